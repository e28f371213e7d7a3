use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::Context;
use clap::{ArgGroup, Args};
use lasthop_daemon::keyfile::{self, Existing, KeyFileError};
use serde_json::json;

#[derive(Args, Debug)]
#[command(group = ArgGroup::new("written").args(["out", "psk"]))]
pub(crate) struct Options {
    /// Write the secret key to FILE, readable by its owner alone, and print the public key
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// Write a new pre-shared key to FILE, readable by its owner alone: a mobile and its base, or two bases,
    /// have the same in theirs, and what they send each other stays secret even from quantum computers
    #[arg(long, value_name = "FILE", conflicts_with_all = ["out", "public", "json"])]
    psk: Option<PathBuf>,

    /// Replace FILE if it exists; the key in it is lost
    #[arg(long, requires = "written")]
    force: bool,

    /// Make no key: print the public key that belongs to the secret in FILE
    #[arg(long, value_name = "FILE", conflicts_with = "out")]
    public: Option<PathBuf>,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    generate(options, &mut io::stdout().lock())
}

fn generate(options: &Options, out: &mut impl Write) -> anyhow::Result<()> {
    if let Some(path) = &options.public {
        let keys = keyfile::load(path)?;
        return print_public(&keys.public().to_string(), options.json, out);
    }
    let existing = if options.force { Existing::Replace } else { Existing::Keep };
    if let Some(path) = &options.psk {
        let psk = keyfile::generate_psk().context("cannot make a key: no entropy")?;
        return keyfile::store_psk(path, &psk, existing).map_err(not_written);
    }
    let keys = keyfile::generate().context("cannot make a key: no entropy")?;
    let public = keys.public().to_string();
    if let Some(path) = &options.out {
        keyfile::store(path, &keys, existing).map_err(not_written)?;
        return print_public(&public, options.json, out);
    }
    let secret = keys.secret().to_text();
    if options.json {
        writeln!(out, "{}", json!({ "secret": secret.as_str(), "public": public }))?;
    } else {
        writeln!(out, "secret {}\npublic {public}", secret.as_str())?;
    }
    Ok(())
}

fn not_written(e: KeyFileError) -> anyhow::Error {
    match e {
        KeyFileError::Exists { .. } => {
            anyhow::Error::new(e).context("no key written (--force replaces the file)")
        }
        other => other.into(),
    }
}

fn print_public(public: &str, as_json: bool, out: &mut impl Write) -> anyhow::Result<()> {
    if as_json {
        writeln!(out, "{}", json!({ "public": public }))?;
    } else {
        writeln!(out, "{public}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::ask::tests::options;
    use super::*;

    fn keygen(line: &[&str]) -> anyhow::Result<String> {
        let options: Options = options(line)?;
        let mut out = Vec::new();
        generate(&options, &mut out)?;
        Ok(String::from_utf8(out)?)
    }

    #[test]
    fn without_a_file_both_halves_are_printed_and_belong_together() {
        let folder = std::env::temp_dir().join(format!("lasthop-keygen-a-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join("key");
        let path = path.to_str().expect("a plain name");

        let both = keygen(&[]).expect("made");
        let lines: Vec<_> = both.lines().filter_map(|line| line.split_once(' ')).collect();
        let [("secret", secret), ("public", public)] = lines[..] else { panic!("{both}") };
        assert_ne!(secret, public);

        let printed = keygen(&["--out", path]).expect("written");
        assert_eq!(keygen(&["--public", path]).expect("read"), printed);
        let object: serde_json::Value =
            serde_json::from_str(&keygen(&["--public", path, "--json"]).expect("read"))
                .expect("JSON");
        assert_eq!(object["public"].as_str(), Some(printed.trim()));

        let refused = format!("{:#}", keygen(&["--out", path]).expect_err("it exists"));
        assert!(refused.contains("--force") && refused.contains(path), "{refused}");
        let replaced = keygen(&["--out", path, "--force"]).expect("replaced");
        assert_ne!(replaced, printed);
        std::fs::remove_dir_all(&folder).expect("removed");
    }

    #[test]
    fn json_holds_both_halves() {
        let object: serde_json::Value =
            serde_json::from_str(&keygen(&["--json"]).expect("made")).expect("JSON");
        for half in ["secret", "public"] {
            assert_eq!(object[half].as_str().map(str::len), Some(44), "{half}");
        }
    }

    /// SEC-43: what is printed nobody has to hide, and a key in use is not lost.
    #[test]
    fn a_pre_shared_key_is_written_printed_nowhere_and_not_overwritten() {
        let folder = std::env::temp_dir().join(format!("lasthop-keygen-p-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let file = folder.join("psk");
        let path = file.to_str().expect("a plain name");
        let read = || std::fs::read_to_string(&file).expect("a file");
        assert_eq!(keygen(&["--psk", path]).expect("written"), "");
        let first = read();
        let refused = format!("{:#}", keygen(&["--psk", path]).expect_err("it exists"));
        assert!(refused.contains("--force") && refused.contains(path), "{refused}");
        assert_eq!(read(), first);
        keygen(&["--psk", path, "--force"]).expect("replaced");
        assert_ne!(read(), first);
        std::fs::remove_dir_all(&folder).expect("removed");
    }

    #[test]
    fn options_that_contradict_are_refused() {
        for other in [&["--out", "b"][..], &["--public", "b"], &["--json"]] {
            assert!(keygen(&[&["--psk", "a"], other].concat()).is_err(), "{other:?}");
        }
        assert!(keygen(&["--force"]).is_err());
        assert!(keygen(&["--out", "a", "--public", "b"]).is_err());
    }
}
