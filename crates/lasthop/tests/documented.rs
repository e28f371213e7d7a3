//! The documentation's tables of settings are what the code has. `make golden` writes them anew.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::env;
use std::fs;
use std::path::Path;

use lasthop_control::link_signals::SignalFile;
use lasthop_control::priority::Rule;
use lasthop_control::settings::{Row, Table};
use lasthop_daemon::base::{self, AllowTable, BaseFile, MobileEntry, PeerFile, TargetsFile};
use lasthop_daemon::config::{MobileTcpFile, SrpFile};
use lasthop_daemon::mobile::{self, CandidateFile, LinkFile, MobileFile, PolicyFile};
use lasthop_daemon::packets::{BaseTunFile, MobileTunFile, PacketRule};
use lasthop_daemon::publish::PublishFile;
use lasthop_daemon::transparent::TransparentFile;
use lasthop_path::AgentFile;

fn rows<T: Table>() -> Vec<&'static Row> {
    T::ROWS.iter().collect()
}

/// What base and mobile both have, or what only `T` has of the two.
fn of_both<T: Table>(shared: bool) -> Vec<&'static Row> {
    let line = |row: &Row| row.markdown(true);
    let has = |rows: &[Row], row: &Row| rows.iter().any(|other| line(other) == line(row));
    let both = |row: &Row| has(BaseFile::ROWS, row) && has(MobileFile::ROWS, row);
    T::ROWS.iter().filter(|row| both(row) == shared).collect()
}

fn table(rows: &[&Row]) -> String {
    let flags = rows.iter().any(|row| !row.flag.is_empty());
    let head = match flags {
        true => "| key | flag | default | what |\n| --- | --- | --- | --- |\n",
        false => "| key | default | what |\n| --- | --- | --- |\n",
    };
    rows.iter().fold(head.to_owned(), |text, row| text + &row.markdown(flags) + "\n")
}

#[track_caller]
fn check(page: &str, tables: &[(&str, Vec<&Row>)]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page);
    let kept = fs::read_to_string(&path).unwrap();
    let mut text = kept.clone();
    for (name, rows) in tables {
        let start = format!("<!-- settings: {name} -->\n");
        let from = text.find(&start).unwrap_or_else(|| panic!("{page} has no {start}"));
        let from = from + start.len();
        let to = from + text[from..].find("<!-- end -->").unwrap();
        text.replace_range(from..to, &table(rows));
    }
    assert_eq!(text.matches("<!-- settings: ").count(), tables.len(), "tables of {page}");
    if env::var("LASTHOP_GOLDEN").is_ok_and(|what| what == "write") {
        return fs::write(&path, text).unwrap();
    }
    for (kept, now) in kept.lines().zip(text.lines()) {
        assert_eq!(kept, now, "docs/{page}: `make golden` writes it anew");
    }
    assert!(kept == text, "docs/{page}: `make golden` writes it anew");
}

#[test]
fn the_documentation_has_the_settings_of_the_code() {
    check(
        "configuration.md",
        &[
            ("both", of_both::<BaseFile>(true)),
            ("srp", rows::<SrpFile>()),
            ("mobile_tcp", rows::<MobileTcpFile>()),
            ("base", of_both::<BaseFile>(false)),
            ("base allow", rows::<AllowTable>()),
            ("base targets", rows::<TargetsFile>()),
            ("base limits", rows::<base::LimitsFile>()),
            ("base publish", rows::<PublishFile>()),
            ("base handoff", rows::<base::HandoffFile>()),
            ("base peers", rows::<PeerFile>()),
            ("base mobiles", rows::<MobileEntry>()),
            ("mobile", of_both::<MobileFile>(false)),
            ("mobile bases", rows::<CandidateFile>()),
            ("mobile links", rows::<LinkFile>()),
            ("mobile policies", rows::<PolicyFile>()),
            ("mobile handoff", rows::<mobile::HandoffFile>()),
            ("priority", rows::<Rule>()),
            ("mobile limits", rows::<mobile::LimitsFile>()),
        ],
    );
    check("events.md", &[("signal", rows::<SignalFile>())]);
    check("transparent.md", &[("transparent", rows::<TransparentFile>())]);
    check(
        "datagrams.md",
        &[
            ("mobile tun", rows::<MobileTunFile>()),
            ("base tun", rows::<BaseTunFile>()),
            ("packets", rows::<PacketRule>()),
        ],
    );
    check("agent.md", &[("agent", rows::<AgentFile>())]);
}
