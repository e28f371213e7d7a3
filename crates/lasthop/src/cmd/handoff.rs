use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use lasthop_control::{self as control, HandoffReport, HandoffState, Request};
use lasthop_units::parse_duration;
use serde_json::json;

use super::ask;

/// How often a handoff is looked at.
const INTERVAL: Duration = Duration::from_millis(20);

const DETAILS: &str = "\
Prints how long the connections stood still and how many moved. The exit status is 0 if every one
did, and 1 if one was lost, if the handoff was not over in time, or if it was refused; then the
connections are where they were, or where another handoff took them.

  lasthop handoff --to b2                     move, and wait until the connections go on
  lasthop handoff --to b2 --json              the same, for a program to read
  lasthop link imminent --to b2 --in 300ms    ahead of it, so that the move takes less time";

/// Moves the connections of the mobile that runs on this host to another of its bases.
#[derive(Args, Debug)]
#[command(after_help = DETAILS)]
pub(crate) struct Options {
    /// The base to move to, as the mobile's configuration names it
    #[arg(long, value_name = "NAME")]
    to: String,

    /// How long to wait; the handoff goes on if that is too short. 0s: only begin it
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "30s")]
    wait: Duration,

    /// The control socket of the mobile [default: that of `mobile` on this host]
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let path = ask::mobile(options.control.as_deref());
    hand_off(options, &path, &mut io::stdout().lock())
}

fn hand_off(options: &Options, path: &Path, out: &mut impl Write) -> anyhow::Result<()> {
    let reply = ask::ask("mobile", path, &Request::Handoff { to: options.to.clone() })?;
    let Some(number) = reply.handoff else {
        let report = HandoffReport {
            to: options.to.clone(),
            state: HandoffState::Done,
            ..HandoffReport::default()
        };
        let text = format!("the connections go through {} already", options.to);
        return print_report(options, out, &report, &text);
    };
    if options.wait.is_zero() {
        let report = HandoffReport { number, to: options.to.clone(), ..HandoffReport::default() };
        return print_report(
            options,
            out,
            &report,
            &format!("the handoff to {} has begun", options.to),
        );
    }
    let report = follow(path, number, options.wait)?;
    print_report(options, out, &report, &summary(&report))?;
    check_outcome(&report, options.wait)
}

fn print_report(
    options: &Options,
    out: &mut impl Write,
    report: &HandoffReport,
    text: &str,
) -> anyhow::Result<()> {
    match (options.json, report.state) {
        (true, _) => writeln!(out, "{}", json!(report))?,
        // What went wrong is an error's matter.
        (false, HandoffState::Broken) => {}
        (false, _) => writeln!(out, "{text}")?,
    }
    Ok(())
}

/// Polls handoff `number` until it is over, or `wait` is.
fn follow(path: &Path, number: u64, wait: Duration) -> anyhow::Result<HandoffReport> {
    let start = Instant::now();
    loop {
        let report = control::query(path)
            .with_context(|| format!("the mobile on {} answers no longer", path.display()))?;
        match report.handoff {
            Some(handoff) if handoff.number == number => {
                if handoff.state != HandoffState::UnderWay || start.elapsed() >= wait {
                    return Ok(handoff);
                }
            }
            Some(handoff) if handoff.number > number => {
                let why = handoff.reason.map(|why| format!(": {why}")).unwrap_or_default();
                bail!("it was overtaken by another handoff, to {}{why}", handoff.to);
            }
            _ => bail!("the mobile on {} knows nothing of it: it was restarted", path.display()),
        }
        thread::sleep(INTERVAL.min(wait.saturating_sub(start.elapsed())));
    }
}

fn summary(report: &HandoffReport) -> String {
    let to = &report.to;
    match (report.state, report.pause_s) {
        (HandoffState::Done, Some(pause)) => {
            let plural = if report.moved == 1 { "" } else { "s" };
            format!(
                "moved to {to}: {} connection{plural}, pause {:.1} ms",
                report.moved,
                pause * 1e3
            )
        }
        (HandoffState::Done, None) => format!("moved to {to}: there were no connections"),
        (HandoffState::UnderWay | HandoffState::Broken, _) => {
            format!("the handoff to {to} is still under way")
        }
    }
}

/// Whether every connection moved.
fn check_outcome(report: &HandoffReport, wait: Duration) -> anyhow::Result<()> {
    let to = &report.to;
    match report.state {
        HandoffState::Done if report.lost == 0 => Ok(()),
        HandoffState::Done => {
            bail!("{} connections could not be moved and were reset", report.lost)
        }
        HandoffState::UnderWay => bail!("{to} was not reached within {wait:?}; the mobile goes on"),
        HandoffState::Broken => {
            let why = report.reason.as_deref().unwrap_or("no reason is known");
            bail!("the handoff to {to} failed: {why}; {} connections were reset", report.lost)
        }
    }
}

#[cfg(test)]
mod tests {

    use super::super::ask::tests::{Scripted, options};
    use super::*;

    fn status(handoff: &str) -> String {
        let empty = serde_json::to_string(&control::Report::default()).unwrap();
        let rest = empty.strip_suffix('}').unwrap();
        format!(r#"{{"ok":{rest},"handoff":{handoff}}}}}"#)
    }

    /// What the command prints, and what it ends with, when a process answers so.
    fn handoff(name: &str, line: &[&str], answers: &[&str]) -> (String, Result<(), String>) {
        let options: Options = options(&[&["--to", "b2"], line].concat()).unwrap();
        let process = Scripted::new(name, answers);
        let mut out = Vec::new();
        let result = hand_off(&options, &process.path, &mut out);
        let asked = process.asked();
        assert_eq!(asked[0], r#"{"handoff":{"to":"b2"}}"#);
        assert!(asked[1..].iter().all(|line| line == r#"{"status":{}}"#), "{asked:?}");
        (String::from_utf8(out).unwrap(), result.map_err(|e| format!("{e:#}")))
    }

    const BEGUN: &str = r#"{"ok":{"handoff":3}}"#;
    const UNDER_WAY: &str = r#"{"number":3,"to":"b2","state":"under_way","moved":0,"lost":0}"#;
    const DONE: &str =
        r#"{"number":3,"to":"b2","state":"done","pause_s":0.0413,"moved":12,"lost":0}"#;

    #[test]
    fn it_waits_until_the_connections_go_on() {
        let answers = [BEGUN, &status(UNDER_WAY), &status(DONE)];
        let (said, result) = handoff("handoff-done", &[], &answers);
        assert_eq!(said, "moved to b2: 12 connections, pause 41.3 ms\n");
        assert_eq!(result, Ok(()));
        let (said, _) = handoff("handoff-json", &["--json"], &answers);
        let object: serde_json::Value = serde_json::from_str(&said).unwrap();
        assert_eq!(object, serde_json::from_str::<serde_json::Value>(DONE).unwrap());
    }

    #[test]
    fn a_connection_that_was_lost_is_a_failure() {
        let lost = DONE.replace(r#""lost":0"#, r#""lost":2"#);
        let (said, result) = handoff("handoff-lost", &[], &[BEGUN, &status(&lost)]);
        assert!(said.contains("12 connections"), "{said}");
        assert!(result.unwrap_err().contains("2 connections could not be moved"));
    }

    #[test]
    fn a_handoff_that_failed_is_told_with_its_reason() {
        let broken = r#"{"number":3,"to":"b2","state":"broken","moved":0,"lost":4,
            "reason":"b1 does not trust b2"}"#
            .replace('\n', "");
        let (said, result) = handoff("handoff-broken", &[], &[BEGUN, &status(&broken)]);
        assert_eq!(said, "");
        let error = result.unwrap_err();
        assert!(error.contains("b1 does not trust b2") && error.contains("4 conn"), "{error}");
    }

    #[test]
    fn it_waits_no_longer_than_it_is_told() {
        let (said, result) = handoff("handoff-begun", &["--wait", "0s"], &[BEGUN]);
        assert_eq!((said.as_str(), result), ("the handoff to b2 has begun\n", Ok(())));
        let answers = [BEGUN, &status(UNDER_WAY), &status(UNDER_WAY)];
        let (said, result) = handoff("handoff-late", &["--wait", "1ns"], &answers[..2]);
        assert!(said.contains("still under way"), "{said}");
        assert!(result.unwrap_err().contains("the mobile goes on"));
    }

    #[test]
    fn where_nothing_is_to_be_done_it_says_so() {
        let (said, result) = handoff("handoff-there", &[], &[r#"{"ok":{}}"#]);
        assert_eq!((said.as_str(), result), ("the connections go through b2 already\n", Ok(())));
    }

    #[test]
    fn another_handoff_or_another_process_in_between_is_told() {
        let overtaken = DONE.replace(r#""number":3,"to":"b2""#, r#""number":4,"to":"b5""#);
        let (_, result) = handoff("handoff-over", &[], &[BEGUN, &status(&overtaken)]);
        assert!(result.unwrap_err().contains("to b5"));
        let (_, result) = handoff("handoff-new", &[], &[BEGUN, &status("null")]);
        assert!(result.unwrap_err().contains("restarted"));
    }
}
