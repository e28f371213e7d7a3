//! Files for packages, made from the command itself: manual pages and completions for shells.

mod pages;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use clap::{Args, Command, Subcommand};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use self::pages::Page;

/// The shells whose completions are written.
const SHELLS: [Shell; 3] = [Shell::Bash, Shell::Zsh, Shell::Fish];

/// Writes files that packages hold.
#[derive(Args, Debug)]
pub(crate) struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    /// Write a manual page for the command and for each subcommand into DIR
    Man {
        /// Where to; it is made if it is not there
        dir: PathBuf,
    },
    /// Write completions for bash, zsh and fish into DIR
    Completions {
        /// Where to; it is made if it is not there
        dir: PathBuf,
    },
}

/// Writes what is asked for, of `command`.
pub(crate) fn run(options: &Options, command: Command) -> anyhow::Result<()> {
    let (What::Man { dir } | What::Completions { dir }) = &options.what;
    fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
    match &options.what {
        What::Man { .. } => manual(command, dir),
        What::Completions { .. } => completions(command, dir),
    }
    .with_context(|| format!("writing into {}", dir.display()))
}

fn completions(command: Command, dir: &Path) -> io::Result<()> {
    // Shells would offer what the help hides.
    let shown = command.get_subcommands().filter(|sub| !sub.is_hide_set()).cloned();
    let mut command = Command::new("lasthop").version(env!("CARGO_PKG_VERSION")).subcommands(shown);
    for shell in SHELLS {
        clap_complete::generate_to(shell, &mut command, "lasthop", dir)?;
    }
    Ok(())
}

fn manual(command: Command, dir: &Path) -> io::Result<()> {
    // What every subcommand has (`--help`, its usage) is there once the command is built.
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let name = command.get_name().to_owned();
    let pages = pages::read().map_err(io::Error::other)?;
    pages_of(&command, &name, &[], &pages, dir)
}

/// Writes the page of `command`, and those of its subcommands. `parents` are the pages above it.
fn pages_of(
    command: &Command,
    name: &str,
    parents: &[&str],
    pages: &BTreeMap<String, Page>,
    dir: &Path,
) -> io::Result<()> {
    let below: Vec<_> = command.get_subcommands().filter(|sub| !sub.is_hide_set()).collect();
    let named = |sub: &Command| format!("{name}-{}", sub.get_name());
    let mut related: Vec<String> = parents.iter().copied().map(str::to_owned).collect();
    related.extend(below.iter().map(|sub| named(sub)));
    let none = Page::default();
    let page = pages.get(name).unwrap_or(&none);
    related.extend_from_slice(&page.see_also);
    let text = render(command, name, page, &related)?;
    File::create(dir.join(format!("{name}.1")))?.write_all(&text)?;
    for sub in below {
        pages_of(sub, &named(sub), &[parents, &[name]].concat(), pages, dir)?;
    }
    Ok(())
}

fn render(command: &Command, name: &str, page: &Page, related: &[String]) -> io::Result<Vec<u8>> {
    // The title is the page's name; in the synopsis there are spaces in it.
    let man = Man::new(command.clone().display_name(name))
        .title(name.to_uppercase())
        .date(date())
        .source(format!("lasthop {}", env!("CARGO_PKG_VERSION")))
        .manual("lasthop");
    let mut out = Vec::new();
    man.render_title(&mut out)?;
    man.render_name_section(&mut out)?;
    man.render_synopsis_section(&mut out)?;
    man.render_description_section(&mut out)?;
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        man.render_options_section(&mut out)?;
    }
    if command.get_subcommands().any(|sub| !sub.is_hide_set()) {
        man.render_subcommands_section(&mut out)?;
    }
    if command.get_after_long_help().or(command.get_after_help()).is_some() {
        man.render_extra_section(&mut out)?;
    }
    let mut more = Roff::new();
    terms(&mut more, "FILES", &page.files);
    terms(&mut more, "EXIT STATUS", &page.exit);
    examples(&mut more, &page.examples);
    see_also(&mut more, related);
    more.to_writer(&mut out)?;
    Ok(without_idle_breaks(&out))
}

/// An empty line ends the line as well: beside one, breaks do nothing and formatters mind them.
fn without_idle_breaks(page: &[u8]) -> Vec<u8> {
    let lines: Vec<&[u8]> = page.split_inclusive(|byte| *byte == b'\n').collect();
    let is_gap =
        |n: Option<usize>| n.and_then(|n| lines.get(n)).is_some_and(|line| **line == *b"\n");
    let idle =
        |n: usize| *lines[n] == *b".br\n" && (is_gap(n.checked_sub(1)) || is_gap(Some(n + 1)));
    (0..lines.len()).filter(|n| !idle(*n)).flat_map(|n| lines[n]).copied().collect()
}

fn terms(roff: &mut Roff, title: &str, items: &[(String, String)]) {
    if items.is_empty() {
        return;
    }
    roff.control("SH", [title]);
    for (term, what) in items {
        roff.control("TP", []).text([bold(term)]).text([roman(what)]);
    }
}

fn examples(roff: &mut Roff, items: &[(String, String)]) {
    if items.is_empty() {
        return;
    }
    roff.control("SH", ["EXAMPLES"]);
    for (i, (what, command)) in items.iter().enumerate() {
        if i > 0 {
            roff.control("PP", []);
        }
        roff.text([roman(what)]);
        roff.control("PP", []).control("nf", []).control("RS", ["4"]);
        roff.text([roman(command)]);
        roff.control("RE", []).control("fi", []);
    }
}

fn see_also(roff: &mut Roff, related: &[String]) {
    let Some(last) = related.len().checked_sub(1) else { return };
    roff.control("SH", ["SEE ALSO"]);
    for (i, name) in related.iter().enumerate() {
        let (name, section) = name.split_once('(').unwrap_or((name, "1)"));
        let end = if i == last { "" } else { "," };
        roff.text([bold(name), roman(format!("({section}{end}"))]);
    }
}

/// The day that whoever builds a package says (`SOURCE_DATE_EPOCH`, seconds since 1970), so that the
/// same sources make the same pages; or else today.
fn date() -> String {
    let said = std::env::var("SOURCE_DATE_EPOCH").ok().and_then(|text| text.parse().ok());
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    day(said.unwrap_or_else(now) / 86_400)
}

/// A day's date in the Gregorian calendar, from the days since 1970-01-01. The calendar repeats every
/// 146097 days; years begin with March, so that a leap day is the last of its year.
fn day(since_1970: u64) -> String {
    let days = since_1970.saturating_add(719_468);
    let era_day = days % 146_097;
    let era_year = (era_day - era_day / 1_460 + era_day / 36_524 - era_day / 146_096) / 365;
    let year_day = era_day - (365 * era_year + era_year / 4 - era_year / 100);
    let from_march = (5 * year_day + 2) / 153;
    let day = year_day - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = era_year + 400 * (days / 146_097) + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests;
