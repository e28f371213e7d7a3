//! What the documentation says of defaults is what the code does.

use std::fs;
use std::path::Path;

use lasthop_hop::seal::PublicKey;
use lasthop_path::{AgentConfig, AgentFile};

use crate::base::{BaseConfig, BaseFile};
use crate::config::{MobileTcpFile, SrpFile};
use crate::datagram::settings::{self, Passage};
use crate::mobile::{MobileConfig, MobileFile};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    Base,
    Mobile,
    Agent,
}

/// A row of a table of settings whose default is a value.
struct Row {
    /// The heading above, or the name of the table where one stands before it.
    of: String,
    key: String,
    default: String,
}

/// The rows of a page's tables of settings, in order.
fn rows(page: &str) -> Vec<Row> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page);
    let text = fs::read_to_string(&path).unwrap();
    let (mut rows, mut of, mut column) = (Vec::new(), String::new(), None);
    for line in text.lines() {
        if !line.starts_with('|') {
            column = None;
            if line.starts_with('#') || line.starts_with("`[") {
                of = line.to_owned();
            } else if let Some(at) = line.rfind("`[").filter(|_| line.ends_with("`:")) {
                of = line[at..].to_owned();
            }
            continue;
        }
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        if cells.first() == Some(&"key") {
            column = cells.iter().position(|cell| *cell == "default");
            continue;
        }
        let Some(cell) = column.and_then(|column| cells.get(column)) else { continue };
        let key = cells[0].trim_matches('`').to_owned();
        // What stands behind a value holds elsewhere.
        let default = match cell.strip_prefix('`') {
            Some(rest) => rest.split('`').next().unwrap(),
            None => cell,
        };
        let is_value = toml::from_str::<toml::Table>(&format!("x = {default}")).is_ok();
        if is_value && !key.contains('`') {
            rows.push(Row { of: of.clone(), key, default: default.to_owned() });
        }
    }
    rows
}

/// What a configuration comes to, every default filled in.
fn resolved(role: Role, text: &str) -> String {
    let hop = |srp: &SrpFile, mobile_tcp: &MobileTcpFile| {
        let (srp, framing) = (settings::srp(srp, Passage::udp(false), 7), settings::SEALED);
        let mobile_tcp = settings::mobile_tcp(mobile_tcp, Passage::udp(false), framing, 7).unwrap();
        format!("{srp:?} {mobile_tcp:?}")
    };
    let fail = |why: &dyn std::fmt::Display| -> ! { panic!("{role:?}: {why}\n{text}") };
    match role {
        Role::Base => {
            let file: BaseFile = toml::from_str(text).unwrap_or_else(|e| fail(&e));
            let mut config = BaseConfig::try_from(file).unwrap_or_else(|e| fail(&e));
            let srp = std::mem::take(&mut config.srp);
            format!("{} {config:?}", hop(&srp, &std::mem::take(&mut config.mobile_tcp)))
        }
        Role::Mobile => {
            let file: MobileFile = toml::from_str(text).unwrap_or_else(|e| fail(&e));
            let mut config = MobileConfig::try_from(file).unwrap_or_else(|e| fail(&e));
            let srp = std::mem::take(&mut config.srp);
            format!("{} {config:?}", hop(&srp, &std::mem::take(&mut config.mobile_tcp)))
        }
        Role::Agent => {
            let file: AgentFile = toml::from_str(text).unwrap_or_else(|e| fail(&e));
            format!("{:?}", AgentConfig::try_from(file).unwrap_or_else(|e| fail(&e)))
        }
    }
}

/// A file with `setting` in `table`, or before all tables, and what else there has to be.
fn file(role: Role, table: Option<&str>, key: &str, setting: &str) -> String {
    let other = PublicKey::from_bytes([1; 32]);
    let (head, tail) = match role {
        Role::Base => (
            format!("key = \"k\"\nallow = [\"{other}\"]\n"),
            format!("[[peers]]\nkey = \"{other}\"\naddress = \"192.0.2.2:4434\"\n"),
        ),
        Role::Mobile if table == Some("handoff") => {
            let base = |n| format!("[[bases]]\nname = \"b{n}\"\naddress = \"b{n}:1\"\n");
            let key = format!("key = \"{other}\"\n");
            let second = PublicKey::from_bytes([2; 32]);
            let bases = format!("{}{key}{}key = \"{second}\"\n", base(1), base(2));
            ("key = \"k\"\n".to_owned(), bases)
        }
        Role::Mobile => {
            (format!("key = \"k\"\nbase = \"b:1\"\nbase_key = \"{other}\"\n"), String::new())
        }
        Role::Agent => {
            let scheme = match key {
                "recovery" | "hold" => "schemes = [\"delayed-dupacks\"]\nend = \"mobile\"",
                "window" => "schemes = [\"rwc\"]",
                _ => "schemes = [\"snoop\"]",
            };
            let head = format!("fixed_if = \"a\"\nmobile_if = \"b\"\n{scheme}\n");
            (head, String::new())
        }
    };
    let hop = if table == Some("mobile_tcp") { "hop = \"mobile-tcp\"\n" } else { "" };
    match table {
        Some(table) => format!("{head}{hop}[{table}]\n{setting}\n{tail}"),
        None => format!("{head}{setting}\n{tail}"),
    }
}

/// Every default of the page's tables that is a value, said explicitly, changes nothing.
fn compare(page: &str, place: impl Fn(&str) -> (Vec<Role>, Option<&'static str>)) -> usize {
    let mut compared = 0;
    for Row { of, key, default } in rows(page) {
        let (roles, table) = place(&of);
        for role in roles {
            let silent = resolved(role, &file(role, table, &key, ""));
            let said = resolved(role, &file(role, table, &key, &format!("{key} = {default}")));
            assert!(
                silent == said,
                "docs/{page}: {of}: the default of `{key}` is not {default}:\n{silent}\n{said}"
            );
            compared += 1;
        }
    }
    compared
}

#[test]
fn the_documented_defaults_are_those_of_the_code() {
    let section = std::cell::Cell::new(Role::Base);
    let compared = compare("configuration.md", |of| {
        let both = || vec![Role::Base, Role::Mobile];
        match of {
            "## Both" => (both(), None),
            "### `[srp]`" => (both(), Some("srp")),
            "### `[mobile_tcp]`" => (both(), Some("mobile_tcp")),
            "## `lasthop base`" => (vec![Role::Base], None),
            "### `[targets]`" => (vec![Role::Base], Some("targets")),
            "### `[limits]`" => (vec![section.get()], Some("limits")),
            "`[handoff]`:" => (vec![section.get()], Some("handoff")),
            "## `lasthop mobile`" => {
                section.set(Role::Mobile);
                (vec![Role::Mobile], None)
            }
            // Tables of which there are many.
            _ => (Vec::new(), None),
        }
    });
    assert!(compared >= 35, "{compared}");
    assert!(compare("events.md", |_| (vec![Role::Mobile], Some("signal"))) >= 7);
    assert!(compare("transparent.md", |_| (vec![Role::Mobile], Some("transparent"))) >= 6);
    assert!(compare("agent.md", |_| (vec![Role::Agent], None)) >= 4);
}
