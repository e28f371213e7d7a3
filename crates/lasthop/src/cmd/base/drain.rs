use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::bail;
use clap::Args;
use lasthop_control::{Drained, Request};
use serde_json::json;

use crate::cmd::ask;

const DETAILS: &str = "\
Each mobile asks the other bases that it knows how they are, and takes its connections to the best of
them: nobody's connection ends. The base refuses nothing meanwhile; a mobile that knows no other base, or
reaches none, stays. `lasthop status` says how many are left. It lasts until --undo, or the base's end.";

/// Has a running base send its mobiles to other bases.
#[derive(Args, Debug)]
#[command(after_help = DETAILS)]
pub(super) struct Options {
    /// Let mobiles stay again, and come
    #[arg(long)]
    undo: bool,

    /// The control socket of the base [default: that of `base` on this host]
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn run(options: &Options) -> anyhow::Result<()> {
    let path = ask::base(options.control.as_deref());
    drain(options, &path, &mut io::stdout().lock())
}

fn drain(options: &Options, path: &Path, out: &mut impl Write) -> anyhow::Result<()> {
    let reply = ask::ask("base", path, &Request::Drain { undo: options.undo })?;
    let Some(drained) = reply.drain else { bail!("the base does not say how it is") };
    match (options.json, &drained) {
        (true, _) => writeln!(out, "{}", json!(drained))?,
        (false, Drained { draining: true }) => {
            writeln!(out, "draining: its mobiles are told to leave")?
        }
        (false, Drained { draining: false }) => {
            writeln!(out, "not draining: its mobiles may stay")?
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::ask::tests::{Scripted, options};

    fn said(name: &str, words: &[&str], answer: &str, asked: &str) -> String {
        let process = Scripted::new(name, &[answer]);
        let mut out = Vec::new();
        drain(&options(words).unwrap(), &process.path, &mut out).unwrap();
        assert_eq!(process.asked(), [asked]);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_base_is_asked_to_drain_and_says_whether_it_does() {
        let yes = r#"{"ok":{"drain":{"draining":true}}}"#;
        let no = r#"{"ok":{"drain":{"draining":false}}}"#;
        let text = said("drain", &[], yes, r#"{"drain":{}}"#);
        assert_eq!(text, "draining: its mobiles are told to leave\n");
        let text = said("drain-undo", &["--undo"], no, r#"{"drain":{"undo":true}}"#);
        assert_eq!(text, "not draining: its mobiles may stay\n");
        let text = said("drain-json", &["--json"], yes, r#"{"drain":{}}"#);
        assert_eq!(text, "{\"draining\":true}\n");
    }
}
