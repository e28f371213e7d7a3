use std::path::PathBuf;

use clap::{Args, Subcommand};
use lasthop_control::{PRIORITY_MAX, Request, Target};
use serde_json::Value;

use super::words::{self, Words, target};

/// Priorities, which an agent that divides windows knows too.
const WORDS: Words<u32> = Words {
    name: "priority",
    roles: &["mobile", "agent"],
    request: |of, priority| Request::Priority { of, priority },
    said: |report| report.priorities.iter().map(|said| (&said.of, said.priority.into())).collect(),
    of: |connection| connection.priority.map_or(Value::Null, Value::from),
};

const DETAILS: &str = "\
WHICH is a program's name (curl); a connection's number, as `lasthop status` and `lasthop priority
list` show it (58); :PORT of fixed hosts (:443); or a fixed host's address. All but a number mean
connections of now and of later. Connections of which nobody says anything have priority 1.

While two connections would like to have all of the hop, one of priority 3 gets three times what one
of priority 1 gets. What one does not need the others have.

  lasthop priority set curl 3      downloads by curl get three times what others get
  lasthop priority set :22 10      so does what goes to port 22, but ten times
  lasthop priority set 58 1        the connection 58 has no precedence, whosever it is
  lasthop priority clear curl      of curl the configuration decides again

The later of two words counts, and every one of them before the configuration's [[priority]]. They
are kept until the mobile or the agent ends.";

/// Says which connections of a running mobile, or of those that an agent helps, matter more.
#[derive(Args, Debug)]
#[command(after_help = DETAILS)]
pub(crate) struct Options {
    #[command(subcommand)]
    what: PriorityCommand,

    /// The control socket of the mobile or the agent [default: that of `mobile` on this host, or
    /// else that of `agent`]
    #[arg(long, value_name = "PATH", global = true)]
    control: Option<PathBuf>,
}

#[derive(Subcommand, Debug)]
enum PriorityCommand {
    /// Give connections a priority, at once and from now on
    Set {
        /// A program's name, a connection's number, :PORT or an address
        #[arg(value_name = "WHICH", value_parser = target)]
        of: Target,
        /// From 1 to 1000, relative to other connections'
        #[arg(value_name = "PRIORITY", value_parser = priority)]
        priority: u32,
    },
    #[command(flatten)]
    Other(words::Command),
}

fn priority(text: &str) -> Result<u32, String> {
    let n = text.parse().ok().filter(|n| (1..=PRIORITY_MAX).contains(n));
    n.ok_or_else(|| format!("a priority is a number from 1 to {PRIORITY_MAX}"))
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let control = options.control.as_deref();
    match &options.what {
        PriorityCommand::Set { of, priority } => WORDS.set(control, of, Some(*priority)),
        PriorityCommand::Other(command) => WORDS.run(control, command),
    }
}

#[cfg(test)]
mod tests {
    use lasthop_control::{ConnectionReport, PriorityReport, Report};
    use serde_json::json;

    use super::super::ask::tests::{Scripted, asked_by, options};
    use super::*;

    #[test]
    fn each_word_is_one_request() {
        for (line, request) in [
            (&["set", "curl", "3"][..], r#"{"priority":{"of":{"program":"curl"},"priority":3}}"#),
            (&["set", "58", "1000"], r#"{"priority":{"of":{"connection":58},"priority":1000}}"#),
            (&["set", ":443", "2"], r#"{"priority":{"of":{"port":443},"priority":2}}"#),
            (&["clear", "192.0.2.1"], r#"{"priority":{"of":{"address":"192.0.2.1"}}}"#),
            (&["clear", "2001:db8::1"], r#"{"priority":{"of":{"address":"2001:db8::1"}}}"#),
            (&["clear", "python3.12"], r#"{"priority":{"of":{"program":"python3.12"}}}"#),
        ] {
            assert_eq!(asked_by("priority-words", run, line), [request]);
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused_before_anybody_is_asked() {
        for (line, said) in [
            (&["set", "curl", "0"][..], "from 1 to 1000"),
            (&["set", "curl", "1001"], "from 1 to 1000"),
            (&["set", "curl"], "PRIORITY"),
            (&["set", ":0", "1"], ":65535"),
            (&["set", ":x", "1"], ":65535"),
            (&["set", "", "1"], "not empty"),
            (&["set", "/usr/bin/curl", "1"], "by its name alone"),
            (&["clear"], "WHICH"),
        ] {
            let error = options::<Options>(line).unwrap_err().to_string();
            assert!(error.contains(said), "{line:?}: {error}");
        }
    }

    #[test]
    fn a_refusal_is_said_in_the_process_s_own_words() {
        let process = Scripted::new("priority-refused", &[r#"{"error":"no connection has it"}"#]);
        let path = process.path.to_str().unwrap().to_owned();
        let error = run(&options(&["set", "9", "2", "--control", &path]).unwrap()).unwrap_err();
        assert_eq!(format!("{error:#}"), "no connection has it");
        process.asked();
    }

    #[test]
    fn the_list_has_what_was_said_and_every_connection() {
        let said = PriorityReport { of: Target::Program("curl".to_owned()), priority: 3 };
        let connection = ConnectionReport {
            key: 58,
            target: "example.net:443".to_owned(),
            program: Some("curl".to_owned()),
            priority: Some(3),
            ..ConnectionReport::default()
        };
        let other = ConnectionReport { key: 59, ..connection.clone() };
        let other = ConnectionReport { program: None, priority: None, ..other };
        let report = Report {
            priorities: vec![said],
            connections: vec![connection, other],
            ..Report::default()
        };
        assert_eq!(
            WORDS.tables(&report),
            "PRIORITY  SAID OF\n       3  program curl\n\n\
             PRIORITY     KEY  PROGRAM           TARGET\n\
             \x20      3      58  curl              example.net:443\n\
             \x20      -      59  -                 example.net:443\n"
        );
        let lines = WORDS.lines(&report);
        let lines: Vec<serde_json::Value> =
            lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 3);
        assert_eq!((&lines[0]["kind"], &lines[0]["of"]), (&json!("said"), &json!("program curl")));
        assert_eq!((&lines[1]["key"], &lines[1]["priority"]), (&json!(58), &json!(3)));
        assert_eq!(lines[2]["program"], json!(null));
    }
}
