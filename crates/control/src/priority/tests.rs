use std::path::Path;

use super::words::WORDS_MAX;
use super::*;
use crate::config;

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    priority: Vec<Rule>,
}

fn rules(text: &str) -> Result<Rules, String> {
    let file = config::parse::<File>(Path::new("m.toml"), text).map_err(|e| e.to_string())?;
    Ok(file.priority.into())
}

fn program(name: &str) -> Program {
    Program { name: name.to_owned(), binary: None }
}

fn flow(name: Option<&str>, to: &str) -> Flow {
    Flow { program: name.map(program), ..Flow::to(to.parse().unwrap()) }
}

fn priorities(text: &str) -> Priorities {
    Priorities::new(rules(text).unwrap(), FeedbackConfig { flows_max: 4, ..Default::default() })
}

fn settings(priorities: &mut Priorities) -> Vec<(u64, u32)> {
    let next = || priorities.poll_setting();
    let all = std::iter::from_fn(next).filter_map(|setting| match setting {
        Setting::Priority { flow, priority } => Some((flow, priority)),
        _ => None,
    });
    all.collect()
}

const RULES: &str = r#"
[[priority]]
program = "curl"
port = 443
priority = 5

[[priority]]
address = "10.0.0.0/8"
priority = 3

[[priority]]
port = 22
priority = 9
"#;

#[test]
fn the_first_rule_that_fits_counts_and_all_that_it_says_must_fit() {
    let rules = rules(RULES).unwrap();
    for (flow, priority) in [
        (flow(Some("curl"), "192.0.2.1:443"), Some(5)),
        (flow(Some("curl"), "10.1.0.1:443"), Some(5)),
        (flow(Some("curl"), "192.0.2.1:80"), None),
        (flow(None, "192.0.2.1:443"), None),
        (flow(None, "10.1.0.1:22"), Some(3)),
        (flow(Some("ssh"), "192.0.2.1:22"), Some(9)),
        (flow(None, "[2001:db8::1]:22"), Some(9)),
        // A name is not resolved here.
        (Flow { program: None, host: None, port: 80 }, None),
    ] {
        assert_eq!(rules.priority(&flow), priority, "{flow:?}");
    }
}

#[test]
fn what_cannot_be_meant_by_a_rule_is_named_with_its_line() {
    for (text, said) in [
        ("[[priority]]\npriority = 3\n", "m.toml:1: a [[priority]] says whose it is"),
        ("[[priority]]\nport = 22\npriority = 0\n", "m.toml:3: `priority`: 0 is no priority"),
        ("[[priority]]\nport = 22\npriority = 1001\n", "1 to 1000"),
        ("[[priority]]\nport = 0\npriority = 1\n", "m.toml:2: `port`"),
        ("[[priority]]\nport = 22\n", "missing field `priority`"),
        (
            "[[priority]]\naddress = \"x\"\npriority = 1\n",
            "m.toml:2: `address`: `x` is not a network",
        ),
        ("[[priority]]\nprogramme = \"x\"\npriority = 1\n", "m.toml:2: unknown field `programme`"),
        ("[[priority]]\nprogram = \"\"\npriority = 1\n", "is empty"),
    ] {
        let error = rules(text).unwrap_err();
        assert!(error.contains(said), "{text}: {error}");
    }
}

/// UFB-1, UFB-3: the user speaks at any time, of connections that there are and of those to come,
/// and layers below hear what has changed.
#[test]
fn a_word_counts_for_connections_of_now_and_of_later() {
    let mut p = priorities("");
    assert!(p.begin(1, flow(Some("curl"), "192.0.2.1:80"), Layer::Hop));
    assert!(p.begin(2, flow(None, "192.0.2.1:80"), Layer::Hop));
    assert_eq!(settings(&mut p), []);
    let curl = Target::Program("curl".to_owned());
    assert_eq!(p.set(&curl, Some(3)), Ok(1));
    assert_eq!(settings(&mut p), [(1, 3)]);
    assert!(p.begin(3, flow(Some("curl"), "192.0.2.9:80"), Layer::Hop));
    assert_eq!(settings(&mut p), [(3, 3)]);
    p.recognise(2, program("curl"));
    assert_eq!(settings(&mut p), [(2, 3)]);
    assert_eq!(p.set(&curl, None), Ok(3));
    assert_eq!(settings(&mut p), [(1, 1), (2, 1), (3, 1)]);
    assert_eq!(p.words().count(), 0);
}

/// UFB-4: what the user says beats what the configuration says, and only another word of the user's
/// changes it.
#[test]
fn the_users_word_beats_the_rules() {
    let mut p = priorities(RULES);
    assert!(p.begin(7, flow(None, "10.0.0.1:443"), Layer::Hop));
    assert_eq!(settings(&mut p), [(7, 3)]);
    assert_eq!(p.set(&Target::Port(443), Some(8)), Ok(1));
    assert_eq!(settings(&mut p), [(7, 8)]);
    // A rule would give 5.
    p.recognise(7, program("curl"));
    assert_eq!(settings(&mut p), []);
    assert_eq!(p.set(&Target::Connection(7), Some(2)), Ok(1));
    assert_eq!(p.set(&Target::Port(443), Some(9)), Ok(1));
    assert_eq!(settings(&mut p), [(7, 9)]);
    assert_eq!(p.set(&Target::Port(443), None), Ok(1));
    assert_eq!(settings(&mut p), [(7, 2)]);
    assert_eq!(p.set(&Target::Connection(7), None), Ok(1));
    assert_eq!(settings(&mut p), [(7, 5)]);
    assert_eq!(p.priority(7), Some(5));
}

#[test]
fn a_fixed_host_is_meant_in_either_form_of_its_address() {
    let mut p = priorities("");
    p.begin(1, flow(None, "[::ffff:192.0.2.1]:80"), Layer::Hop);
    assert_eq!(p.set(&Target::Address("192.0.2.1".parse().unwrap()), Some(2)), Ok(1));
    assert_eq!(p.set(&Target::Address("::ffff:192.0.2.1".parse().unwrap()), Some(3)), Ok(1));
    assert_eq!(p.set(&Target::Address("192.0.2.2".parse().unwrap()), Some(3)), Ok(0));
}

#[test]
fn connections_and_words_are_bounded_and_a_connections_word_ends_with_it() {
    let mut p = priorities("");
    for key in 0..4 {
        assert!(p.begin(key, flow(None, "192.0.2.1:80"), Layer::Hop));
    }
    assert!(!p.begin(4, flow(None, "192.0.2.1:80"), Layer::Hop), "too many");
    assert!(p.set(&Target::Connection(4), Some(2)).unwrap_err().contains("lasthop status"));
    assert_eq!(p.set(&Target::Connection(3), Some(2)), Ok(1));
    assert_eq!(p.words().count(), 1);
    p.end(3);
    assert_eq!((p.words().count(), p.priority(3)), (0, None));
    for n in 0..WORDS_MAX {
        let of = Target::Program(format!("p{n}"));
        assert_eq!(p.set(&of, Some(2)), Ok(0));
    }
    assert!(p.set(&Target::Port(1), Some(2)).unwrap_err().contains("clear some"));
    assert_eq!(p.set(&Target::Program("p0".to_owned()), Some(5)), Ok(0));
    assert_eq!(p.set(&Target::Program("p0".to_owned()), None), Ok(0));
    assert_eq!(p.set(&Target::Port(80), Some(2)), Ok(3));
}

#[test]
fn a_program_goes_by_either_name_and_is_shown_by_the_whole_one() {
    let long = Program {
        name: "networkmanager-".to_owned(),
        binary: Some("networkmanager-dispatcher".to_owned()),
    };
    assert!(long.is("networkmanager-") && long.is("networkmanager-dispatcher"));
    assert_eq!(long.shown(), "networkmanager-dispatcher");
    let python = Program { name: "python3".to_owned(), binary: Some("python3.12".to_owned()) };
    assert_eq!(python.shown(), "python3");
    assert!(!python.is("python"));
}
