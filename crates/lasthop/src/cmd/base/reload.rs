use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::bail;
use clap::Args;
use lasthop_control::{Reloaded, Request};
use serde_json::json;

use crate::cmd::ask;

const DETAILS: &str = "\
What `allow`, [[mobiles]], [[peers]] and [handoff] fleet_keys say then is so from then on. A mobile that
is not in `allow` any more is out at once: its connections are reset, and no other base gets them. With a
base that is not in [[peers]] any more it is as if it had died. Nobody else notices. Flags win over the
file, as when the base was started. Of whatever else has changed it says that it needs a restart.

If the file cannot be used nothing changes, and the exit status is 1. SIGHUP does the same.";

/// Has a running base read its configuration again, for the mobiles that it serves and the bases that it knows.
#[derive(Args, Debug)]
#[command(after_help = DETAILS)]
pub(super) struct Options {
    /// The control socket of the base [default: that of `base` on this host]
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn run(options: &Options) -> anyhow::Result<()> {
    let path = ask::base(options.control.as_deref());
    reload(options, &path, &mut io::stdout().lock())
}

fn reload(options: &Options, path: &Path, out: &mut impl Write) -> anyhow::Result<()> {
    let reply = ask::ask("base", path, &Request::Reload {})?;
    let Some(reloaded) = reply.reload else { bail!("the base does not say what has changed") };
    match options.json {
        true => writeln!(out, "{}", json!(reloaded))?,
        false => write!(out, "{}", text(&reloaded))?,
    }
    Ok(())
}

fn text(reloaded: &Reloaded) -> String {
    let Reloaded { added, removed, bases, addresses, keys, restart } = reloaded;
    let mut text = format!("mobiles: {added} added, {removed} removed\n");
    for (what, changes) in [("bases", bases), ("addresses", addresses), ("keys of tickets", keys)] {
        if !changes.is_none() {
            text += &format!("{what}: {changes}\n");
        }
    }
    if !restart.is_empty() {
        text += &format!("needs a restart: {}\n", restart.join(", "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::ask::tests::{Scripted, options};

    fn said(name: &str, answer: &str, words: &[&str]) -> (anyhow::Result<()>, String) {
        let process = Scripted::new(name, &[answer]);
        let mut out = Vec::new();
        let done = reload(&options(words).unwrap(), &process.path, &mut out);
        assert_eq!(process.asked(), [r#"{"reload":{}}"#]);
        (done, String::from_utf8(out).unwrap())
    }

    #[test]
    fn what_has_changed_is_said_and_what_has_not() {
        let answer = r#"{"ok":{"reload":{"added":2,"removed":1}}}"#;
        assert_eq!(said("reload-text", answer, &[]).1, "mobiles: 2 added, 1 removed\n");
        let answer = r#"{"ok":{"reload":{"added":1,"removed":0,"bases":{"added":1,"removed":2,"changed":3},"keys":{"added":1,"removed":1}}}}"#;
        let (_, text) = said("reload-all", answer, &[]);
        let bases = "bases: 1 added, 2 removed, 3 changed\n";
        assert_eq!(
            text,
            format!("mobiles: 1 added, 0 removed\n{bases}keys of tickets: 1 added, 1 removed\n")
        );
        let answer = r#"{"ok":{"reload":{"added":0,"removed":0,"restart":["listen","limits.connections"]}}}"#;
        let (_, text) = said("reload-restart", answer, &[]);
        assert!(text.ends_with("needs a restart: listen, limits.connections\n"), "{text}");
        let json = "{\"added\":0,\"removed\":0,\"restart\":[\"listen\",\"limits.connections\"]}\n";
        assert_eq!(said("reload-json", answer, &["--json"]).1, json);
    }

    #[test]
    fn a_refusal_is_an_error_in_the_base_s_words() {
        let (done, out) =
            said("reload-refused", r#"{"error":"base.toml:3: `allow`: no key"}"#, &[]);
        assert_eq!(format!("{:#}", done.unwrap_err()), "base.toml:3: `allow`: no key");
        assert!(out.is_empty());
    }
}
