//! A run follows from its point and its seed: the order in which a file names things is no part of
//! a point, and changes nothing (LNK-15).

use std::fs;

use lasthop_units::{Scheme, Stream};
use rayon::prelude::*;

use super::*;

/// Orders of each random scenario.
const ORDERS: u64 = 3;

/// Two mobiles at one base, which another base relieves, with flows that begin at one time: whoever
/// comes first at a tie, or draws first, would be seen.
const CROWD: &str = r#"
duration = "30s"
[node]
server = "fixed-host"
backup = "fixed-host"
backbone = { kind = "router", supervisor = false }
east = "base"
west = "base"
phone = "mobile-host"
pad = "mobile-host"
[link.wire]
between = ["server", "backbone"]
rate = "10Mbit/s"
delay = "10ms"
loss = "1%"
[link.twin]
between = ["backup", "backbone"]
rate = "10Mbit/s"
delay = "10ms"
loss = "1%"
[link.to-east]
between = ["backbone", "east"]
rate = "10Mbit/s"
[link.to-west]
between = ["backbone", "west"]
rate = "10Mbit/s"
[link.radio-east]
between = ["east", "phone"]
rate = "2Mbit/s"
delay = { uniform = ["2ms", "9ms"] }
loss = "burst 5% length 3"
[link.radio-west]
between = ["west", "phone"]
rate = "2Mbit/s"
delay = { uniform = ["2ms", "9ms"] }
loss = "fade 5% mean 50ms"
shared-fades = true
[link.pads]
between = ["east", "pad"]
rate = "2Mbit/s"
loss = "3%"
reorder = "1% by 20ms"
[flow.down]
from = "server"
to = "phone"
[flow.besides]
from = "backup"
to = "phone"
[flow.up]
from = "phone"
to = "server"
traffic = { request-response = { request = "200 B", response = "10kB", think = "1s", exponential = true } }
[flow.keys]
from = "pad"
to = "backup"
traffic = { interactive = { every = "200ms", exponential = true } }
scheme = "none"
[flow.voice]
from = "pad"
to = "server"
traffic = { on-off = { rate = "64kbit/s", on = "1s", off = "1s", exponential = true } }
scheme = "none"
[rwc]
packets = 20
priorities = { down = 2, up = 3 }
changes = [{ at = "9s", flow = "besides", priority = 3 }, { at = "9s", flow = "down", priority = 1 }]
[handoff]
mobile = "phone"
cells = ["radio-east", "radio-west"]
first = "3s"
pause = "1s"
pause-spread = "30%"
start-spread = "1s"
every = "5s"
count = 4
[measure]
series = "100ms"
bins = "500ms"
bytes = true
captures = ["pads", "phone", "backbone"]
"#;

/// The same tables and keys in another order. What stands before the first table stays there.
fn shuffled(text: &str, random: &mut Stream) -> String {
    let mut tables: Vec<(&str, Vec<&str>)> = vec![("", Vec::new())];
    for line in text.lines().filter(|line| !line.is_empty()) {
        match tables.last_mut() {
            Some((_, lines)) if !line.starts_with('[') => lines.push(line),
            _ => tables.push((line, Vec::new())),
        }
    }
    let mut mix = |list: &mut [(&str, Vec<&str>)]| {
        for last in (1..list.len()).rev() {
            list.swap(last, random.below(last as u64 + 1) as usize);
        }
        for (_, lines) in list {
            for last in (1..lines.len()).rev() {
                lines.swap(last, random.below(last as u64 + 1) as usize);
            }
        }
    };
    let (top, others) = tables.split_at_mut(1);
    mix(top);
    mix(others);
    let table = |(head, lines): &(&str, Vec<&str>)| format!("{head}\n{}\n", lines.join("\n"));
    tables.iter().map(table).collect()
}

/// What a run is known by and all that it gave.
fn told(text: &str, seed: u64) -> String {
    let study = Study::parse(Path::new("x.toml"), text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    // Values that are no number are equal as texts.
    format!("{} {:?}", study.points()[0].hash(), run(text, seed))
}

#[test]
fn no_order_of_a_files_tables_and_keys_changes_a_run() {
    for schemes in ["[\"none\"]", "[\"m-tcp\"]", "[\"snoop\", \"freeze\", \"rwc\"]"] {
        let phones = |way: &str| format!("{way} = \"phone\"\nscheme = {schemes}");
        let text = CROWD.replace("to = \"phone\"", &phones("to"));
        let text = text.replace("from = \"phone\"", &phones("from"));
        let first = told(&text, 1);
        let random = &mut Seed::from_u64(1).stream(schemes);
        for order in 0..6 {
            let other = shuffled(&text, random);
            assert_eq!(told(&other, 1), first, "{schemes}, order {order}:\n{other}");
        }
    }
}

#[test]
fn no_order_changes_a_random_network_with_any_scheme() {
    let all: Vec<(Scheme, u64)> =
        Scheme::ALL.into_iter().flat_map(|s| (0..10).map(move |n| (s, n))).collect();
    let differ: Vec<String> = all
        .into_par_iter()
        .filter_map(|(scheme, number)| {
            let text = random::scenario(scheme, number).replace('$', scheme.name());
            let random = &mut Seed::from_u64(number).stream("order");
            let first = told(&text, number);
            let found = (0..ORDERS).map(|_| shuffled(&text, random));
            let other = found.into_iter().find(|other| told(other, number) != first)?;
            Some(format!("{scheme}, number {number}:\n{text}\nand\n{other}"))
        })
        .collect();
    assert!(differ.is_empty(), "{} differ:\n{}", differ.len(), differ[0]);
}

#[test]
fn series_and_captures_of_any_order_are_the_same_to_the_byte() {
    let files = |text: &str| {
        let directory = tempfile::tempdir().expect("a directory");
        let study = Study::parse(Path::new("x.toml"), text).unwrap_or_else(|e| panic!("{e}"));
        let seed = Seed::from_u64(7);
        let scenario = study.scenario(&study.points()[0], seed).expect("a scenario");
        let stop = AtomicBool::new(false);
        let outputs = Outputs { directory: Some(directory.path().to_owned()), stop: &stop };
        Simulator.run(&scenario, seed, &outputs).unwrap_or_else(|e| panic!("{e}"));
        ["series.csv", "rates.csv", "capture.pcapng"]
            .map(|name| fs::read(directory.path().join(name)).expect("a file"))
    };
    let first = files(CROWD);
    let random = &mut Seed::from_u64(1).stream("files");
    for _ in 0..3 {
        // Texts of megabytes would help nobody.
        assert!(files(&shuffled(CROWD, random)) == first, "the files differ");
    }
}
