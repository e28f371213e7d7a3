use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::bail;
use clap::{Args, Subcommand};
use lasthop_linux::control::{IN_MAX, Link, Request};
use lasthop_units::parse_duration;

use super::ask;

const DETAILS: &str = "\
The mobile sees by itself when an interface gains or loses its carrier or an address. This is for
whoever knows more or knows it earlier, such as a radio's own software. Nothing is printed, and the
exit status is 0 if the mobile has understood.

  lasthop link imminent --to b2 --in 300ms    the radio expects to be at b2 soon
  lasthop link down --interface wlan0         wlan0 carries nothing, whatever its carrier says
  lasthop link up --interface wlan0           it does again";

/// Tells the mobile that runs on this host what is known of its link.
#[derive(Args, Debug)]
#[command(after_help = DETAILS)]
pub(crate) struct Options {
    #[command(subcommand)]
    what: What,

    /// The control socket of the mobile [default: that of `mobile` on this host]
    #[arg(long, value_name = "PATH", global = true)]
    control: Option<PathBuf>,

    /// Print one JSON object
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand, Debug)]
enum What {
    /// A move to another base is foreseen: the state of the connections goes ahead to it
    Imminent {
        /// The base, as the mobile's configuration names it
        #[arg(long, value_name = "NAME")]
        to: String,
        /// How far ahead the move is
        #[arg(long = "in", value_name = "TIME", value_parser = parse_duration)]
        ahead: Duration,
    },
    /// The link carries nothing: the mobile sends nothing, and looks for a base elsewhere
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
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let path = ask::mobile(options.control.as_deref());
    tell(options, &path, &mut io::stdout().lock())
}

fn tell(options: &Options, path: &Path, out: &mut impl Write) -> anyhow::Result<()> {
    let request = Request::Link(link(&options.what)?);
    ask::ask(path, &request)?;
    if options.json {
        writeln!(out, "{}", serde_json::to_string(&request)?)?;
    }
    Ok(())
}

fn link(what: &What) -> anyhow::Result<Link> {
    Ok(match what {
        What::Imminent { ahead, .. } if *ahead > IN_MAX => {
            bail!("--in {ahead:?} is too far ahead: a base keeps the copy of a state for seconds")
        }
        What::Imminent { to, ahead } => {
            let in_ms = u64::try_from(ahead.as_millis()).unwrap_or(u64::MAX);
            Link::Imminent { to: to.clone(), in_ms }
        }
        What::Down { interface } => Link::Down { interface: interface.clone() },
        What::Up { interface } => Link::Up { interface: interface.clone() },
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::ask::tests::Scripted;
    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn options(line: &[&str]) -> Result<Options, clap::Error> {
        Line::try_parse_from([&["link"], line].concat()).map(|line| line.options)
    }

    #[test]
    fn each_event_is_one_request() {
        for (line, request) in [
            (
                &["imminent", "--to", "b2", "--in", "300ms"][..],
                r#"{"link":{"imminent":{"to":"b2","in_ms":300}}}"#,
            ),
            (&["down"], r#"{"link":{"down":{}}}"#),
            (&["down", "--interface", "wlan0"], r#"{"link":{"down":{"interface":"wlan0"}}}"#),
            (&["up", "--interface", "wlan0"], r#"{"link":{"up":{"interface":"wlan0"}}}"#),
        ] {
            let process = Scripted::new("link-events", &[r#"{"ok":{}}"#]);
            let mut out = Vec::new();
            tell(&options(line).unwrap(), &process.path, &mut out).unwrap();
            assert!(out.is_empty(), "nothing went wrong, and nothing is said");
            assert_eq!(process.asked(), [request]);

            let process = Scripted::new("link-events", &[r#"{"ok":{}}"#]);
            let json = options(&[line, &["--json"]].concat()).unwrap();
            tell(&json, &process.path, &mut out).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), format!("{request}\n"));
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused_before_anybody_is_asked() {
        assert!(options(&[]).is_err());
        assert!(options(&["imminent", "--to", "b2"]).is_err());
        assert!(options(&["imminent", "--to", "b2", "--in", "soon"]).is_err());
        assert!(options(&["up", "--to", "b2"]).is_err());
        let far = options(&["imminent", "--to", "b2", "--in", "2min"]).unwrap();
        assert!(link(&far.what).unwrap_err().to_string().contains("too far ahead"));
    }
}
