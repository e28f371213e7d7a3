use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use lasthop_control::{
    self as control, ConnectionReport, PRIORITY_MAX, Report, Request, RequestError, Target,
};
use serde_json::json;

use super::ask;

const DETAILS: &str = "\
WHICH is a program's name (curl); a connection's number, as `lasthop status` and `lasthop priority
list` show it (58); :PORT of fixed hosts (:443); or a fixed host's address. All but a number mean
connections of now and of later. Connections of which nobody says anything have priority 1.

While two connections would like to have all of the hop, one of priority 3 gets three times what one
of priority 1 gets. PriorityCommand one does not need the others have.

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
    /// Take back what was said of these connections
    Clear {
        /// As it was said: a program's name, a connection's number, :PORT or an address
        #[arg(value_name = "WHICH", value_parser = target)]
        of: Target,
    },
    /// Show what was said, and every connection with its program and its priority
    List {
        /// Print one JSON object a line: `"kind": "said"` or `"kind": "connection"`
        #[arg(long)]
        json: bool,
    },
}

fn target(text: &str) -> Result<Target, String> {
    if let Ok(key) = text.parse() {
        return Ok(Target::Connection(key));
    }
    if let Ok(address) = text.parse() {
        return Ok(Target::Address(address));
    }
    match text.strip_prefix(':').map(str::parse) {
        Some(Ok(0) | Err(_)) => Err("a port is written :1 to :65535".to_owned()),
        Some(Ok(port)) => Ok(Target::Port(port)),
        None if text.is_empty() => Err("a program's name is not empty".to_owned()),
        // Names are what the kernel knows; a path is not.
        None if text.contains('/') => {
            Err("a program is meant by its name alone, without its directory".to_owned())
        }
        None => Ok(Target::Program(text.to_owned())),
    }
}

fn priority(text: &str) -> Result<u32, String> {
    let n = text.parse().ok().filter(|n| (1..=PRIORITY_MAX).contains(n));
    n.ok_or_else(|| format!("a priority is a number from 1 to {PRIORITY_MAX}"))
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let control = options.control.as_deref();
    match &options.what {
        PriorityCommand::Set { of, priority } => set_priority(control, of, Some(*priority)),
        PriorityCommand::Clear { of } => set_priority(control, of, None),
        PriorityCommand::List { json } => {
            let (_, report) = find(control)?;
            let text = if *json { lines(&report) } else { tables(&report) };
            match io::stdout().lock().write_all(text.as_bytes()) {
                Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
                result => Ok(result?),
            }
        }
    }
}

/// The process on `control`, or the first of mobile and agent that answers here, and its report.
fn find(control: Option<&Path>) -> anyhow::Result<(PathBuf, Report)> {
    Ok(ask::find(control, &["mobile", "agent"], 1)?.swap_remove(0))
}

fn set_priority(control: Option<&Path>, of: &Target, priority: Option<u32>) -> anyhow::Result<()> {
    let request = Request::Priority { of: of.clone(), priority };
    let path = match control {
        Some(path) => path.to_owned(),
        // A report costs little.
        None => find(None)?.0,
    };
    match control::request(&path, &request) {
        Ok(_) => Ok(()),
        Err(RequestError::Refused(why)) => bail!(why),
        Err(error) => Err(error).with_context(|| format!("asking on {}", path.display())),
    }
}

fn lines(report: &Report) -> String {
    let said = report.priorities.iter().map(
        |said| json!({ "kind": "said", "of": said.of.to_string(), "priority": said.priority }),
    );
    let connections = report.connections.iter().map(|c| {
        let ConnectionReport { key, program, client, target, priority, .. } = c;
        json!({
            "kind": "connection",
            "key": key,
            "program": program,
            "client": client,
            "target": target,
            "priority": priority,
            "bytes_to_hop": c.bytes_to_hop,
            "bytes_from_hop": c.bytes_from_hop,
        })
    });
    said.chain(connections).map(|line| format!("{line}\n")).collect()
}

fn tables(report: &Report) -> String {
    let mut out = String::new();
    if !report.priorities.is_empty() {
        out.push_str(&format!("{:>8}  SAID OF\n", "PRIORITY"));
        for said in &report.priorities {
            out.push_str(&format!("{:>8}  {}\n", said.priority, said.of));
        }
        out.push('\n');
    }
    out.push_str(&format!("{:>8}  {:>6}  {:<16}  TARGET\n", "PRIORITY", "KEY", "PROGRAM"));
    for c in &report.connections {
        let priority = c.priority.map_or_else(|| "-".to_owned(), |n| n.to_string());
        let program = c.program.as_deref().unwrap_or("-");
        out.push_str(&format!("{priority:>8}  {:>6}  {program:<16}  {}\n", c.key, c.target));
    }
    out
}

#[cfg(test)]
mod tests {
    use lasthop_control::PriorityReport;

    use super::super::ask::tests::{Scripted, options};
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
            let process = Scripted::new("priority-words", &[r#"{"ok":{}}"#]);
            let path = process.path.to_str().unwrap().to_owned();
            run(&options(&[line, &["--control", &path]].concat()).unwrap()).unwrap();
            assert_eq!(process.asked(), [request]);
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
            tables(&report),
            "PRIORITY  SAID OF\n       3  program curl\n\n\
             PRIORITY     KEY  PROGRAM           TARGET\n\
             \x20      3      58  curl              example.net:443\n\
             \x20      -      59  -                 example.net:443\n"
        );
        let lines = lines(&report);
        let lines: Vec<serde_json::Value> =
            lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 3);
        assert_eq!((&lines[0]["kind"], &lines[0]["of"]), (&json!("said"), &json!("program curl")));
        assert_eq!((&lines[1]["key"], &lines[1]["priority"]), (&json!(58), &json!(3)));
        assert_eq!(lines[2]["program"], json!(null));
    }
}
