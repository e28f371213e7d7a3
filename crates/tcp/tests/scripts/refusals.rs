//! What the scripts' reader and player refuse.

use std::fs;
use std::path::Path;

use super::parse::parse;
use super::run::run;

/// What is said of `text`.
fn fault(text: &str) -> String {
    let played = parse("x.pkt", text).and_then(|script| run(&script));
    played.err().map_or("nothing".to_owned(), |fault| fault.to_string())
}

#[track_caller]
fn refused(text: &str, line: usize, why: &str) {
    let said = fault(text);
    assert!(said.starts_with(&format!("x.pkt:{line}: ")) && said.contains(why), "{said}");
}

#[test]
fn nonsense_is_refused_with_its_file_and_line() {
    let cases = [
        ("", 1, "does nothing"),
        ("# a\n\nfrobnicate 3", 3, "`frobnicate` is no setting"),
        ("mss many", 1, "not `many`"),
        ("mss 70000", 1, "not `70000`"),
        ("mss", 1, "expected a segment size"),
        ("mss 10 20", 1, "`20` is one word too many"),
        ("variant vegas", 1, "`vegas` is none of: tahoe, reno"),
        ("initial-window 4s", 1, "not `4s`"),
        ("delayed-ack 200ms each 2", 1, "`each` is none of: every"),
        ("persist 5s", 1, "expected one of: to"),
        ("0 connect\nmss 500", 2, "before the first line"),
        ("tolerance soon", 1, "soon"),
        ("1s connect\n500ms close", 2, "is before"),
        ("0", 1, "nothing that happens"),
        ("1parsec connect", 1, "parsec"),
        ("+ connect", 1, "duration"),
        ("0 < X 0:0", 1, "letters of SFRPAUEC"),
        ("0 < SS 0:0", 1, "at most once"),
        ("0 < A 0:0", 1, "go together"),
        ("0 < S 0:0 ack 1", 1, "go together"),
        ("0 < S 0", 1, "such as 1:1001"),
        ("0 < S 5:1", 1, "ends before"),
        ("0 < S 0:0 win 65536", 1, "at most 65535"),
        ("0 < S 0:0 <mss 1000", 1, "no `>`"),
        ("0 < S 0:0 <mtu 1000>", 1, "`mtu` is none of"),
        ("0 < A 1:1 ack 1 <sack>", 1, "one to four"),
        ("0 < A 1:100001 ack 1", 1, "carries 1 to 65535"),
        ("0 < A 1:1001 by 0 ack 1", 1, "carries 1 to 65535"),
        ("0 < A 1:4000000001 by 1 ack 1", 1, "segments in one line"),
        ("0 < A 1:1 ack 1 times 0", 1, "0 segments"),
        ("0 = happiness 3", 1, "`happiness` cannot be asked"),
        ("0 = state happy", 1, "`happy` is none of"),
        ("0 = cwnd 4parsec", 1, "4parsec"),
        ("0 open 100ms", 1, "expected one of: win"),
        ("0 link sideways", 1, "`sideways` is none of"),
    ];
    for (text, line, why) in cases {
        refused(text, line, why);
    }
}

#[test]
fn no_text_makes_the_reader_panic() {
    let words = ["0", "+1s", "<", ">", "=", "A", "1:1001", "4294967295:4294967295", "ack", "by"];
    let more = ["times", "win", "<sack", "1:2>", "cwnd", "events", "open", "18446744073709551615"];
    let all: Vec<_> = words.iter().chain(&more).collect();
    for a in &all {
        for b in &all {
            for c in &all {
                let _ = parse("x.pkt", &format!("0 {a} {b} {c} 7\n{a} {b} {c}"));
            }
        }
    }
}

const OPEN: &str = "0 open 100ms win 60000\nwrite 1000\n";

#[test]
fn a_segment_that_does_not_come_is_missed() {
    refused(&format!("{OPEN}> A 1:1001 ack 1\n+500ms > A 1:1001 ack 1"), 4, "nothing came");
    refused(&format!("{OPEN}> A 1:1001 ack 1\n+500ms > A 1:1001 ack 1"), 4, "1.1");
}

#[test]
fn a_segment_that_nothing_expects_is_noticed() {
    refused(&format!("{OPEN}< A 1:1 ack 1"), 3, "what nothing expects: PA 1:1001 ack 1");
    refused(OPEN, 2, "after the last line");
    refused(&format!("{OPEN}> A 1:1001 ack 1\n2s > nothing"), 4, "what nothing expects");
    refused(&format!("{OPEN}> A 1:1001 ack 1\n2s < A 1:1 ack 1001"), 4, "what nothing expects");
}

#[test]
fn a_segment_that_comes_at_another_time_is_noticed() {
    let late = "> A 1:1001 ack 1\n1101ms > A 1:1001 ack 1";
    refused(&format!("{OPEN}{late}"), 4, "came at 1.1");
    assert_eq!(fault(&format!("tolerance 1ms\n{OPEN}{late}")), "nothing");
}

#[test]
fn each_field_of_a_segment_counts() {
    for wrong in [
        "> FA 1:1001 ack 1",
        "> A 2:1002 ack 1",
        "> A 1:1002 ack 1",
        "> A 1:1001 ack 2",
        "> A 1:1001 ack 1 win 1",
        "> A 1:1001 ack 1 <sackOK>",
    ] {
        refused(
            &format!("{OPEN}{wrong}"),
            3,
            &format!("expected at 0.100000000s: {}", &wrong[2..]),
        );
    }
    assert_eq!(fault(&format!("{OPEN}> PA 1:1001 ack 1 win 20000 <>")), "nothing");
}

#[test]
fn a_claim_that_does_not_hold_is_noticed() {
    let open = "0 open 100ms win 60000\n";
    for (claim, said) in [
        ("= cwnd 3mss", "expected cwnd 3000, it is 2000"),
        ("= state closed", "expected state closed, it is established"),
        ("= rto 2s", "expected rto 2s, it is 1s"),
        ("= timeouts 1", "expected timeouts 1, it is 0"),
        ("= in recovery", "expected recovery true"),
        ("= events connected", "expected events connected, it is none"),
        ("read 1", "can be read"),
        ("connect", "a connection already"),
    ] {
        refused(&format!("{open}{claim}"), 2, said);
    }
    refused("0 write 1", 1, "no connection yet");
}

/// Every script has a test.
#[test]
fn no_script_is_forgotten() {
    let tests = [
        include_str!("coherence.rs"),
        include_str!("connection.rs"),
        include_str!("mobility.rs"),
        include_str!("sending.rs"),
        include_str!("timing.rs"),
    ]
    .concat();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let folders = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut count = 0;
    for folder in folders.filter(|path| path.is_dir()) {
        let topic = folder.file_name().unwrap().to_string_lossy().into_owned();
        for script in fs::read_dir(folder).unwrap() {
            let name = script.unwrap().file_name().to_string_lossy().into_owned();
            assert!(tests.contains(&format!("play(\"{topic}/{name}\")")), "{topic}/{name}");
            count += 1;
        }
    }
    assert_eq!(count, tests.matches("    play(\"").count());
}
