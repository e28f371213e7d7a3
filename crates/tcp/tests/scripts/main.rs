//! Scripts in the manner of packetdrill: one for each rule that RENO-1 to RENO-13 name. README.md
//! beside this file describes their language.

#![allow(missing_docs, clippy::unwrap_used)]

mod coherence;
mod connection;
mod mobility;
mod parse;
mod refusals;
mod run;
mod schemes;
mod script;
mod sending;
mod settings;
mod timing;

use std::fs;
use std::path::Path;

/// Plays a script of this folder.
fn play(name: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts").join(name);
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let played = parse::parse(name, &text).and_then(|script| run::run(&script));
    played.unwrap_or_else(|fault| panic!("{fault}"));
}
