use std::path::PathBuf;

use clap::{Args, Subcommand};
use lasthop_control::{Request, Target};

use super::words::{self, Words, target};

/// What a connection goes by of which nothing is reported.
const USUAL: &str = "speed";

const WORDS: Words<String> = Words {
    name: "policy",
    roles: &["mobile"],
    request: |of, policy| Request::Policy { of, policy },
    said: |report| report.policies.iter().map(|said| (&said.of, (*said.policy).into())).collect(),
    of: |connection| connection.policy.as_deref().unwrap_or(USUAL).into(),
};

const DETAILS: &str = "\
WHICH is a program's name (curl); a connection's number, as `lasthop status` and `lasthop policy
list` show it (58); :PORT of fixed hosts (:443); or a fixed host's address. All but a number mean
connections and flows of packets of now and of later.

POLICY is as in the configuration:

  speed        all links: whatever brings it earliest
  redundant    all, and each piece goes by a second one too
  cheap        those that cost least of the ones that answer
  only NAME    the link of that name; where it does not answer the connection waits

  lasthop policy set rsync only modem    copies are left to the modem
  lasthop policy set :5060 redundant     what is said there is to be heard
  lasthop policy clear rsync             of rsync the configuration decides again

The later of two words counts, and every one of them before the configuration's [[policies]] and
`policy`. They are kept until the mobile ends.";

/// Says which of a running mobile's links carry which connections.
#[derive(Args, Debug)]
#[command(after_help = DETAILS)]
pub(crate) struct Options {
    #[command(subcommand)]
    what: PolicyCommand,

    /// The control socket of the mobile [default: that of `mobile` on this host]
    #[arg(long, value_name = "PATH", global = true)]
    control: Option<PathBuf>,
}

#[derive(Subcommand, Debug)]
enum PolicyCommand {
    /// Give connections a policy, at once and from now on
    Set {
        /// A program's name, a connection's number, :PORT or an address
        #[arg(value_name = "WHICH", value_parser = target)]
        of: Target,
        /// `speed`, `redundant`, `cheap`, or `only` and a link's name
        #[arg(value_name = "POLICY", required = true, num_args = 1..=2)]
        policy: Vec<String>,
    },
    #[command(flatten)]
    Other(words::Command),
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let control = options.control.as_deref();
    match &options.what {
        PolicyCommand::Set { of, policy } => WORDS.set(control, of, Some(policy.join(" "))),
        PolicyCommand::Other(command) => WORDS.run(control, command),
    }
}

#[cfg(test)]
mod tests {
    use lasthop_control::{ConnectionReport, PolicyReport, Report};

    use super::super::ask::tests::{asked_by, options};
    use super::*;

    #[test]
    fn each_word_is_one_request() {
        for (line, request) in [
            (
                &["set", "curl", "cheap"][..],
                r#"{"policy":{"of":{"program":"curl"},"policy":"cheap"}}"#,
            ),
            (
                &["set", "58", "only", "dish"],
                r#"{"policy":{"of":{"connection":58},"policy":"only dish"}}"#,
            ),
            (
                &["set", ":443", "only my dish"],
                r#"{"policy":{"of":{"port":443},"policy":"only my dish"}}"#,
            ),
            (&["clear", "192.0.2.1"], r#"{"policy":{"of":{"address":"192.0.2.1"}}}"#),
        ] {
            assert_eq!(asked_by("policy-words", run, line), [request]);
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused_before_anybody_is_asked() {
        for (line, said) in [
            (&["set", "curl"][..], "POLICY"),
            (&["set", "curl", "only", "dish", "modem"], "'modem'"),
            (&["set", ":0", "cheap"], ":65535"),
            (&["clear"], "WHICH"),
            (&["clear", "curl", "cheap"], "'cheap'"),
        ] {
            let error = options::<Options>(line).unwrap_err().to_string();
            assert!(error.contains(said), "{line:?}: {error}");
        }
    }

    #[test]
    fn the_list_has_what_was_said_and_every_connection() {
        let of = Target::Program("rsync".to_owned());
        let connection = ConnectionReport {
            key: 58,
            target: "example.net:873".to_owned(),
            program: Some("rsync".to_owned()),
            policy: Some("only modem".to_owned()),
            ..ConnectionReport::default()
        };
        let other = ConnectionReport { key: 59, policy: None, ..connection.clone() };
        let report = Report {
            policies: vec![PolicyReport { of, policy: "only modem".to_owned() }],
            connections: vec![connection, other],
            ..Report::default()
        };
        assert_eq!(
            WORDS.tables(&report),
            "POLICY      SAID OF\nonly modem  program rsync\n\n\
             POLICY         KEY  PROGRAM           TARGET\n\
             only modem      58  rsync             example.net:873\n\
             \x20    speed      59  rsync             example.net:873\n"
        );
        let lines = WORDS.lines(&report);
        let lines: Vec<_> = lines.lines().collect();
        assert_eq!(lines[0], r#"{"kind":"said","of":"program rsync","policy":"only modem"}"#);
        assert!(lines[2].contains(r#""policy":"speed""#), "{lines:?}");
    }
}
