//! What users say of connections: what commands that hear and list it have in common.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Subcommand;
use lasthop_control::config::listed;
use lasthop_control::{ConnectionReport, Report, Request, Target};
use serde_json::{Value, json};

use super::ask;

/// Commands beside `set`.
#[derive(Subcommand, Debug)]
pub(super) enum Command {
    /// Take back what was said of these connections
    Clear {
        /// As it was said: a program's name, a connection's number, :PORT or an address
        #[arg(value_name = "WHICH", value_parser = target)]
        of: Target,
    },
    /// Show what was said, and every connection with its program and what it has
    List {
        /// Print one JSON object a line: `"kind": "said"` or `"kind": "connection"`
        #[arg(long)]
        json: bool,
    },
}

/// Something that users say of connections.
pub(super) struct Words<T> {
    /// What it is called: a key in JSON, and a column.
    pub(super) name: &'static str,
    /// Who is told it, by default the first of these that runs here.
    pub(super) roles: &'static [&'static str],
    /// How that is told; `None` takes it back.
    pub(super) request: fn(Target, Option<T>) -> Request,
    /// What was said and not taken back.
    pub(super) said: fn(&Report) -> Vec<(&Target, Value)>,
    /// What a connection has.
    pub(super) of: fn(&ConnectionReport) -> Value,
}

impl<T> Words<T> {
    /// Says it of connections, or takes it back.
    pub(super) fn set(
        &self,
        control: Option<&Path>,
        of: &Target,
        word: Option<T>,
    ) -> anyhow::Result<()> {
        let path = match control {
            Some(path) => path.to_owned(),
            // A report costs little.
            None => self.find(None)?.0,
        };
        let request = (self.request)(of.clone(), word);
        ask::ask(&listed(self.roles, "or"), &path, &request).map(drop)
    }

    /// Does what is neither `set` nor anything else of one command alone.
    pub(super) fn run(&self, control: Option<&Path>, command: &Command) -> anyhow::Result<()> {
        let json = match command {
            Command::Clear { of } => return self.set(control, of, None),
            Command::List { json } => *json,
        };
        let (_, report) = self.find(control)?;
        let text = if json { self.lines(&report) } else { self.tables(&report) };
        match io::stdout().lock().write_all(text.as_bytes()) {
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            result => Ok(result?),
        }
    }

    /// The process on `control`, or the first that answers here, and its report.
    fn find(&self, control: Option<&Path>) -> anyhow::Result<(PathBuf, Report)> {
        Ok(ask::find(control, self.roles, 1)?.swap_remove(0))
    }

    pub(super) fn lines(&self, report: &Report) -> String {
        let said = (self.said)(report)
            .into_iter()
            .map(|(of, word)| json!({ "kind": "said", "of": of.to_string(), (self.name): word }));
        let connections = report.connections.iter().map(|c| {
            let ConnectionReport { key, program, client, target, .. } = c;
            json!({
                "kind": "connection",
                "key": key,
                "program": program,
                "client": client,
                "target": target,
                (self.name): (self.of)(c),
                "bytes_to_hop": c.bytes_to_hop,
                "bytes_from_hop": c.bytes_from_hop,
            })
        });
        said.chain(connections).map(|line| format!("{line}\n")).collect()
    }

    pub(super) fn tables(&self, report: &Report) -> String {
        let head = self.name.to_uppercase();
        let said = (self.said)(report);
        let had: Vec<Value> = report.connections.iter().map(self.of).collect();
        let words = said.iter().map(|(_, word)| word).chain(&had);
        let width = words.map(|word| shown(word).len()).chain([head.len()]).max().unwrap_or(0);
        let mut out = String::new();
        if !said.is_empty() {
            out.push_str(&format!("{head:<width$}  SAID OF\n"));
            for (of, word) in &said {
                out.push_str(&format!("{:>width$}  {of}\n", shown(word)));
            }
            out.push('\n');
        }
        out.push_str(&format!("{head:<width$}  {:>6}  {:<16}  TARGET\n", "KEY", "PROGRAM"));
        for (c, word) in report.connections.iter().zip(&had) {
            let program = c.program.as_deref().unwrap_or("-");
            let word = shown(word);
            out.push_str(&format!("{word:>width$}  {:>6}  {program:<16}  {}\n", c.key, c.target));
        }
        out
    }
}

/// What people are shown of a word.
fn shown(word: &Value) -> String {
    match word {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Reads which connections are meant.
pub(super) fn target(text: &str) -> Result<Target, String> {
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
