use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use clap::{Args, Subcommand};
use lasthop_control::{self as control, IN_MAX, Link, Request, RequestError};
use lasthop_units::parse_duration;

use super::ask;

const DETAILS: &str = "\
Mobile and agent see by themselves when an interface gains or loses its carrier or an address. This
is for whoever knows more or knows it earlier, such as a radio's own software. If both run here both
are told. Nothing is printed, and the exit status is 0 if one of them has understood.

  lasthop link imminent --in 500ms            the link will fall silent soon
  lasthop link imminent --to b2 --in 300ms    the radio expects to be at b2 soon
  lasthop link down --interface wlan0         wlan0 carries nothing, whatever its carrier says
  lasthop link up --interface wlan0           it does again
  lasthop link base --to b2 --interface wwan1   wwan1 has come to the radio cell of b2
  lasthop link complete                       after a move, packets find their way here again
  lasthop link quality --dbm -78              a modem's signal, from which a loss is foretold";

/// Tells the mobile and the agent that run on this host what is known of their link.
#[derive(Args, Debug)]
#[command(after_help = DETAILS)]
pub(crate) struct Options {
    #[command(subcommand)]
    what: LinkCommand,

    /// The control socket of the one that is meant [default: those of `mobile` and `agent` on this
    /// host]
    #[arg(long, value_name = "PATH", global = true)]
    control: Option<PathBuf>,

    /// Print one JSON object
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand, Debug)]
enum LinkCommand {
    /// The link will soon fall silent, or the mobile will be at another base
    ///
    /// A mobile sends the state of its connections ahead to that base. An agent warns the
    /// connections' far ends, if its scheme has a way to.
    Imminent {
        /// The base where the mobile will be, as its configuration names it; if it is not known, a
        /// mobile of two bases thinks of the other
        #[arg(long, value_name = "NAME")]
        to: Option<String>,
        /// How far ahead that is
        #[arg(long = "in", value_name = "TIME", value_parser = parse_duration)]
        ahead: Duration,
    },
    /// The link carries nothing: a mobile sends nothing, and looks for a base elsewhere
    Down {
        /// Only that of this interface
        #[arg(long, value_name = "IF")]
        interface: Option<String>,
    },
    /// The link carries packets again: the connections go on at once
    Up {
        /// Only that of this interface
        #[arg(long, value_name = "IF")]
        interface: Option<String>,
    },
    /// One of a mobile's links leads to another base
    ///
    /// Where other links lead elsewhere the base passes on what goes by this one; where none leads to the base that the
    /// mobile is with any more, the mobile moves.
    Base {
        /// The base, as the mobile's configuration names it
        #[arg(long, value_name = "NAME")]
        to: String,
        /// The interface of the link
        #[arg(long, value_name = "IF")]
        interface: String,
    },
    /// Packets find their way here again after a move, as when Mobile IP has registered
    Complete,
    /// How strong the signal is; with a signal table in the configuration its loss is foretold
    Quality {
        /// The signal's level in dBm, from -200 to 100
        #[arg(long, value_name = "LEVEL", allow_negative_numbers = true, value_parser = level)]
        dbm: i16,
        /// The interface that it is received on [default: the one that the signal table is about]
        #[arg(long, value_name = "IF")]
        interface: Option<String>,
    },
}

/// A level in dBm, as people and programs write it: modems tell fractions.
fn level(text: &str) -> Result<i16, String> {
    let level: f64 = text.parse().map_err(|_| "a level is a number of dBm, as -67".to_owned())?;
    if !(-200.0..=100.0).contains(&level) {
        return Err("levels are from -200 to 100 dBm".to_owned());
    }
    Ok(level.round() as i16)
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let paths = match &options.control {
        Some(path) => vec![path.clone()],
        None => vec![ask::mobile(None), control::known_path("agent")],
    };
    send_to_all(options, &paths, &mut io::stdout().lock())
}

/// Sends the request to every process that answers on one of `paths`; one that takes it is enough.
fn send_to_all(options: &Options, paths: &[PathBuf], out: &mut impl Write) -> anyhow::Result<()> {
    let request = Request::Link(link(&options.what)?);
    let (mut understood, mut refusals, mut failure) = (false, Vec::new(), None);
    for path in paths {
        match control::request(path, &request) {
            Ok(_) => understood = true,
            Err(RequestError::Refused(why)) => refusals.push(why),
            // That nobody is there says less than any other failure.
            Err(RequestError::Io(error)) if is_absence(&error) => {}
            Err(error) => {
                failure = Some(anyhow!(error).context(format!("asking on {}", path.display())));
            }
        }
    }
    if understood {
        if options.json {
            writeln!(out, "{}", serde_json::to_string(&request)?)?;
        }
        return Ok(());
    }
    if !refusals.is_empty() {
        refusals.dedup();
        bail!(refusals.join("; "));
    }
    failure.map_or(Ok(()), Err)?;
    let shown: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
    bail!("no mobile or agent answers on {}", shown.join(" or "))
}

fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

fn link(what: &LinkCommand) -> anyhow::Result<Link> {
    Ok(match what {
        LinkCommand::Imminent { ahead, .. } if *ahead > IN_MAX => {
            bail!("--in {ahead:?} is too far ahead: a base keeps the copy of a state for seconds")
        }
        LinkCommand::Imminent { to, ahead } => {
            let in_ms = u64::try_from(ahead.as_millis()).context("--in is too far ahead")?;
            Link::Imminent { to: to.clone(), in_ms }
        }
        LinkCommand::Down { interface } => Link::Down { interface: interface.clone() },
        LinkCommand::Up { interface } => Link::Up { interface: interface.clone() },
        LinkCommand::Base { to, interface } => {
            Link::Base { interface: interface.clone(), to: to.clone() }
        }
        LinkCommand::Complete => Link::Complete {},
        LinkCommand::Quality { dbm, interface } => {
            Link::Quality { interface: interface.clone(), dbm: *dbm }
        }
    })
}

#[cfg(test)]
mod tests {

    use super::super::ask::tests::{Scripted, options};
    use super::*;

    const UNDERSTOOD: &str = r#"{"ok":{}}"#;

    fn nobody() -> PathBuf {
        PathBuf::from("/nonexistent/lasthop.sock")
    }

    #[test]
    fn each_event_is_one_request() {
        for (line, request) in [
            (
                &["imminent", "--to", "b2", "--in", "300ms"][..],
                r#"{"link":{"imminent":{"to":"b2","in_ms":300}}}"#,
            ),
            (&["imminent", "--in", "1s"], r#"{"link":{"imminent":{"in_ms":1000}}}"#),
            (&["down"], r#"{"link":{"down":{}}}"#),
            (&["down", "--interface", "wlan0"], r#"{"link":{"down":{"interface":"wlan0"}}}"#),
            (&["up", "--interface", "wlan0"], r#"{"link":{"up":{"interface":"wlan0"}}}"#),
            (
                &["base", "--to", "b2", "--interface", "wwan1"],
                r#"{"link":{"base":{"interface":"wwan1","to":"b2"}}}"#,
            ),
            (&["complete"], r#"{"link":{"complete":{}}}"#),
            (&["quality", "--dbm", "-67"], r#"{"link":{"quality":{"dbm":-67}}}"#),
            (
                &["quality", "--dbm", "-67.50", "--interface", "wwan0"],
                r#"{"link":{"quality":{"interface":"wwan0","dbm":-68}}}"#,
            ),
        ] {
            let process = Scripted::new("link-events", &[UNDERSTOOD]);
            let mut out = Vec::new();
            send_to_all(&options(line).unwrap(), std::slice::from_ref(&process.path), &mut out)
                .unwrap();
            assert!(out.is_empty(), "nothing went wrong, and nothing is said");
            assert_eq!(process.asked(), [request]);

            let process = Scripted::new("link-events", &[UNDERSTOOD]);
            let json = options(&[line, &["--json"]].concat()).unwrap();
            send_to_all(&json, std::slice::from_ref(&process.path), &mut out).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), format!("{request}\n"));
        }
    }

    #[test]
    fn mobile_and_agent_are_both_told_and_one_that_understands_is_enough() {
        let quality = options(&["quality", "--dbm", "-67"]).unwrap();
        let refusal = r#"{"error":"this mobile does not watch its signal"}"#;
        for answers in [[UNDERSTOOD, UNDERSTOOD], [refusal, UNDERSTOOD], [UNDERSTOOD, refusal]] {
            let mobile = Scripted::new("link-mobile", &answers[..1]);
            let agent = Scripted::new("link-agent", &answers[1..]);
            let paths = [mobile.path.clone(), agent.path.clone()];
            send_to_all(&quality, &paths, &mut Vec::new()).unwrap();
            assert_eq!((mobile.asked().len(), agent.asked().len()), (1, 1));
        }
        let agent = Scripted::new("link-agent", &[UNDERSTOOD]);
        send_to_all(&quality, &[nobody(), agent.path.clone()], &mut Vec::new()).unwrap();
    }

    #[test]
    fn what_nobody_understands_is_said_in_their_own_words() {
        let quality = options(&["quality", "--dbm", "-67"]).unwrap();
        let agent = Scripted::new("link-refused", &[r#"{"error":"nobody judges it here"}"#]);
        let error =
            send_to_all(&quality, &[nobody(), agent.path.clone()], &mut Vec::new()).unwrap_err();
        assert_eq!(format!("{error:#}"), "nobody judges it here");
        let error = send_to_all(&quality, &[nobody()], &mut Vec::new()).unwrap_err().to_string();
        assert_eq!(error, "no mobile or agent answers on /nonexistent/lasthop.sock");
    }

    #[test]
    fn what_cannot_be_meant_is_refused_before_anybody_is_asked() {
        for line in [
            &[][..],
            &["imminent", "--to", "b2"],
            &["imminent", "--to", "b2", "--in", "soon"],
            &["up", "--to", "b2"],
            &["complete", "--interface", "wlan0"],
            &["quality"],
            &["quality", "--dbm", "strong"],
            &["quality", "--dbm", "-300"],
            &["quality", "--dbm", "nan"],
        ] {
            assert!(options::<Options>(line).is_err(), "{line:?}");
        }
        let far: Options = options(&["imminent", "--to", "b2", "--in", "2min"]).unwrap();
        assert!(link(&far.what).unwrap_err().to_string().contains("too far ahead"));
    }
}
