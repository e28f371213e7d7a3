//! The protocol, over real sockets and with a clock of the test's own.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use lasthop_kernel::clock::Clock;
use lasthop_kernel::reactor::Reactor;
use lasthop_kernel::turn::{Source, Turn};
use lasthop_units::Time;
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::request::LINE_MAX;
use super::server::{ASKING, CLIENTS_MAX, READING};
use super::*;

/// Served without a thread: nothing happens but in [`Service::turn`].
struct Service {
    control: Control,
    reactor: Reactor<Source>,
    clock: Clock,
    now: Time,
    path: PathBuf,
    /// What was asked.
    asked: Vec<Request>,
    /// What is answered to everything.
    answer: Answer,
}

impl Service {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("lasthop-{name}-{}", std::process::id()));
        Self::on(path)
    }

    fn on(path: PathBuf) -> Self {
        let mut control = Control::bind(&path).unwrap();
        let mut reactor = Reactor::new().unwrap();
        let (clock, now) = (Clock::start(), Time::ZERO);
        control.watch(&mut Turn::new(now, clock, &mut reactor)).unwrap();
        let (asked, answer) = (Vec::new(), Ok(json!({})));
        Self { control, reactor, clock, now, path, asked, answer }
    }

    fn client(&self) -> UnixStream {
        let client = UnixStream::connect(&self.path).unwrap();
        client.set_nonblocking(true).unwrap();
        client
    }

    /// Does what there is to do.
    fn turn(&mut self) {
        let mut ready = Vec::new();
        loop {
            self.reactor.wait(Some(Duration::ZERO), &mut ready).unwrap();
            let mut turn = Turn::new(self.now, self.clock, &mut self.reactor);
            for (source, readiness) in &ready {
                match source {
                    Source::Control(None) => self.control.handle_listener(&mut turn),
                    Source::Control(Some(key)) => {
                        self.control.handle_client(&mut turn, *key, *readiness);
                    }
                    other => panic!("{other:?}"),
                }
            }
            self.control.handle_timeout(&mut turn);
            while let Some((key, request)) = self.control.poll_request() {
                self.asked.push(request);
                self.control.answer(&mut turn, key, &self.answer);
            }
            if ready.is_empty() {
                return;
            }
        }
    }

    /// What a client is told that says `said`.
    fn told(&mut self, said: &[u8]) -> Told {
        let mut client = self.client();
        self.turn();
        client.write_all(said).unwrap();
        self.turn();
        heard(&mut client)
    }
}

/// What a client hears: an answer, that the conversation is over, or nothing yet.
#[derive(PartialEq, Debug)]
enum Told {
    Answer(Value),
    End,
    Nothing,
}

fn heard(client: &mut UnixStream) -> Told {
    let mut text = Vec::new();
    let result = client.read_to_end(&mut text);
    if text.is_empty() {
        return if result.is_ok() { Told::End } else { Told::Nothing };
    }
    assert_eq!(text.pop(), Some(b'\n'));
    assert!(!text.contains(&b'\n'), "more than one line");
    Told::Answer(serde_json::from_slice(&text).unwrap())
}

fn error(told: &Told) -> String {
    let Told::Answer(answer) = told else { panic!("{told:?}") };
    assert_eq!(answer.as_object().unwrap().len(), 1, "{answer}");
    answer["error"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}

fn handoff(to: &str) -> Request {
    Request::Handoff { to: to.to_owned() }
}

#[test]
fn every_request_is_one_line_and_comes_back_as_it_was() {
    let imminent = Link::Imminent { to: Some("b2".to_owned()), in_ms: 300 };
    let foreseen = Link::Imminent { to: None, in_ms: 300 };
    let quality = Link::Quality { interface: None, dbm: -71 };
    let of = Target::Program("curl".to_owned());
    let down = Link::Down { interface: Some("wlan0".to_owned()) };
    for (request, text) in [
        (Request::Status { past: false }, r#"{"status":{}}"#),
        (Request::Status { past: true }, r#"{"status":{"past":true}}"#),
        (handoff("b2"), r#"{"handoff":{"to":"b2"}}"#),
        (Request::Link(imminent), r#"{"link":{"imminent":{"to":"b2","in_ms":300}}}"#),
        (Request::Link(down), r#"{"link":{"down":{"interface":"wlan0"}}}"#),
        (Request::Link(Link::Down { interface: None }), r#"{"link":{"down":{}}}"#),
        (Request::Link(Link::Up { interface: None }), r#"{"link":{"up":{}}}"#),
        (
            Request::Link(Link::Base { interface: "wwan1".to_owned(), to: "b2".to_owned() }),
            r#"{"link":{"base":{"interface":"wwan1","to":"b2"}}}"#,
        ),
        (Request::Link(foreseen), r#"{"link":{"imminent":{"in_ms":300}}}"#),
        (Request::Link(Link::Complete {}), r#"{"link":{"complete":{}}}"#),
        (Request::Link(quality), r#"{"link":{"quality":{"dbm":-71}}}"#),
        (
            Request::Priority { of, priority: Some(3) },
            r#"{"priority":{"of":{"program":"curl"},"priority":3}}"#,
        ),
        (
            Request::Priority { of: Target::Connection(58), priority: None },
            r#"{"priority":{"of":{"connection":58}}}"#,
        ),
        (
            Request::Policy { of: Target::Port(22), policy: Some("only dish".to_owned()) },
            r#"{"policy":{"of":{"port":22},"policy":"only dish"}}"#,
        ),
    ] {
        let line = request.to_line().unwrap();
        assert_eq!(line, format!("{text}\n").as_bytes());
        assert_eq!(Request::parse(text.as_bytes()), Ok(request));
    }
}

#[test]
fn a_request_is_handed_over_and_answered() {
    let mut service = Service::new("control-request");
    service.answer = Ok(json!({ "handoff": 7 }));
    let told = service.told(b"{\"handoff\":{\"to\":\"b2\"}}\n");
    assert_eq!(told, Told::Answer(json!({ "ok": { "handoff": 7 } })));
    assert_eq!(service.asked, [handoff("b2")]);
    // A refusal is an answer too.
    service.answer = Err("no".to_owned());
    assert_eq!(error(&service.told(b"{\"handoff\":{\"to\":\"b3\"}}\n")), "no");
}

#[test]
fn a_line_may_come_in_pieces_and_end_with_the_stream() {
    let mut service = Service::new("control-pieces");
    let mut client = service.client();
    for byte in br#"{"status":{}}"# {
        client.write_all(&[*byte]).unwrap();
        service.turn();
        assert_eq!(heard(&mut client), Told::Nothing);
    }
    client.shutdown(Shutdown::Write).unwrap();
    service.turn();
    assert_eq!(heard(&mut client), Told::Answer(json!({ "ok": {} })));
    assert_eq!(service.asked, [Request::Status { past: false }]);
}

#[test]
fn what_is_malformed_is_refused_and_not_handed_over() {
    let mut service = Service::new("control-malformed");
    for (said, expected) in [
        ("\n", "not understood"),
        ("GET / HTTP/1.1\r\n", "not understood"),
        ("{\"status\":{}\n", "not understood"),
        ("{\"status\":{}} {}\n", "not understood"),
        ("{\"reboot\":{}}\n", "reboot"),
        ("{\"status\":{\"all\":true}}\n", "all"),
        ("{\"status\":null}\n", "not understood"),
        ("\"status\"\n", "not understood"),
        ("{\"handoff\":{}}\n", "`to`"),
        ("{\"handoff\":{\"to\":7}}\n", "not understood"),
        ("{\"handoff\":{\"to\":\"b2\",\"to\":\"b3\"}}\n", "duplicate"),
        ("{\"handoff\":{\"to\":\"\"}}\n", "name of base"),
        ("{\"handoff\":{\"to\":\"b\\n2\"}}\n", "name of base"),
        ("{\"handoff\":{\"to\":\"b2\"},\"status\":{}}\n", "not understood"),
        ("{\"link\":{\"imminent\":{\"to\":\"b2\"}}}\n", "in_ms"),
        ("{\"link\":{\"imminent\":{\"to\":\"b2\",\"in_ms\":-1}}}\n", "not understood"),
        ("{\"link\":{\"imminent\":{\"to\":\"b2\",\"in_ms\":60001}}}\n", "60000"),
        ("{\"link\":{\"down\":{\"interface\":\"sixteen-letters-\"}}}\n", "interface"),
        ("{\"link\":{\"sideways\":{}}}\n", "sideways"),
        ("{\"status\":{}}\n{\"status\":{}}\n", "more than one line"),
    ] {
        let told = error(&service.told(said.as_bytes()));
        assert!(told.contains(expected), "{said:?}: {told}");
    }
    assert!(error(&service.told(b"\xff\xfe\0\n")).contains("not understood"));
    // Nesting costs no stack.
    let nested = vec![b'['; LINE_MAX - 1];
    assert!(error(&service.told(&[&nested[..], b"\n"].concat())).contains("not understood"));
    assert_eq!(service.asked, []);
}

#[test]
fn a_line_that_is_too_long_is_refused_before_it_ends() {
    let mut service = Service::new("control-long");
    let padding = |length| [br#"{"status":{}}"#, &vec![b' '; length - 13][..]].concat();
    let mut line = padding(LINE_MAX);
    line.push(b'\n');
    assert_eq!(service.told(&line), Told::Answer(json!({ "ok": {} })));
    let told = error(&service.told(&padding(LINE_MAX + 1)));
    assert!(told.contains("longer than 4096"), "{told}");
    let told = error(&service.told(&vec![b'x'; 10 * LINE_MAX]));
    assert!(told.contains("longer than 4096"), "{told}");
    assert_eq!(service.asked.len(), 1);
}

#[test]
fn a_client_that_is_silent_for_a_second_is_notified_and_removed() {
    let mut service = Service::new("control-silent");
    let mut silent = service.client();
    let mut halting = service.client();
    halting.write_all(b"{\"status\"").unwrap();
    service.turn();
    assert_eq!(service.control.next_timeout(), Some(Time::ZERO + ASKING));
    service.now = Time::ZERO + ASKING - Duration::from_nanos(1);
    service.turn();
    assert_eq!(heard(&mut silent), Told::Nothing);
    // More bytes win no time.
    halting.write_all(b":").unwrap();
    service.turn();
    service.now = Time::ZERO + ASKING;
    service.turn();
    for client in [&mut silent, &mut halting] {
        let told = heard(client);
        assert!(error(&told).contains("within a second"), "{told:?}");
    }
    assert_eq!(service.control.next_timeout(), None, "nothing is left of them");
    assert_eq!(service.asked, []);
}

#[test]
fn who_does_not_read_gets_the_rest_as_it_reads_and_goes_in_the_end() {
    let mut service = Service::new("control-slow");
    let long = "x".repeat(4 << 20);
    service.answer = Ok(json!(long));
    let mut slow = service.client();
    let mut never = service.client();
    for client in [&mut slow, &mut never] {
        client.write_all(b"{\"status\":{}}\n").unwrap();
    }
    service.turn();
    let mut text = Vec::new();
    while !text.ends_with(b"\n") {
        let mut piece = [0; 10_000];
        match slow.read(&mut piece) {
            Ok(n) => text.extend_from_slice(&piece[..n]),
            Err(_) => service.turn(),
        }
    }
    assert_eq!(text.len(), long.len() + "{\"ok\":\"\"}\n".len());
    service.now = Time::ZERO + READING;
    service.turn();
    assert_eq!(service.control.next_timeout(), None);
    // A child of another test may have the descriptor too until it runs its own program.
    let gone = (0..500).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        never.write_all(b"x").is_err()
    });
    assert!(gone);
}

#[test]
fn many_clients_are_served_and_one_too_many_is_turned_away() {
    let mut service = Service::new("control-many");
    let mut clients = Vec::new();
    for _ in 0..CLIENTS_MAX {
        clients.push(service.client());
        service.turn();
    }
    let mut last = service.client();
    service.turn();
    let told = heard(&mut last);
    assert!(error(&told).contains("too many"), "{told:?}");
    // They speak in turns, backwards.
    for client in clients.iter_mut().rev() {
        client.write_all(b"{\"handoff\":").unwrap();
    }
    service.turn();
    for (n, client) in clients.iter_mut().enumerate().rev() {
        client.write_all(format!("{{\"to\":\"b{n}\"}}}}\n").as_bytes()).unwrap();
    }
    service.turn();
    for client in &mut clients {
        assert_eq!(heard(client), Told::Answer(json!({ "ok": {} })));
    }
    assert_eq!(service.asked.len(), CLIENTS_MAX);
    assert_eq!(service.told(b"{\"status\":{}}\n"), Told::Answer(json!({ "ok": {} })));
}

#[test]
fn who_only_looks_or_breaks_off_leaves_nothing_behind() {
    let mut service = Service::new("control-gone");
    drop(service.client());
    let mut client = service.client();
    client.write_all(b"{\"stat").unwrap();
    service.turn();
    drop(client);
    let mut client = service.client();
    client.write_all(b"{\"status\":{}}\n").unwrap();
    drop(client);
    service.turn();
    assert_eq!(service.control.next_timeout(), None);
    assert_eq!(service.told(b"{\"status\":{}}\n"), Told::Answer(json!({ "ok": {} })));
}

#[test]
fn the_clients_of_this_crate_understand_the_server() {
    let mut service = Service::new("control-client");
    let path = service.path.clone();
    let mut told = |answer: Answer, ask: &(dyn Fn() -> Result<String, String> + Sync)| {
        service.answer = answer;
        std::thread::scope(|scope| {
            let asking = scope.spawn(ask);
            while !asking.is_finished() {
                service.turn();
            }
            asking.join().unwrap()
        })
    };
    let move_to_b2 = || match request(&path, &handoff("b2")) {
        Ok(reply) => Ok(format!("{:?}", reply.handoff)),
        Err(error) => Err(error.to_string()),
    };
    assert_eq!(told(Ok(json!({ "handoff": 3 })), &move_to_b2), Ok("Some(3)".to_owned()));
    assert_eq!(told(Err("no such base".to_owned()), &move_to_b2), Err("no such base".to_owned()));
    let strange = told(Ok(json!({ "moved": true })), &move_to_b2).unwrap_err();
    assert!(strange.contains("not understood"), "{strange}");
    let look = || query(&path).map(|report| report.role).map_err(|error| error.to_string());
    let report = Report { role: "mobile".to_owned(), ..Report::default() };
    let report = serde_json::to_value(report).unwrap();
    assert_eq!(told(Ok(report), &look), Ok("mobile".to_owned()));
    drop(service);
    assert!(query(&path).is_err(), "nobody is there");
}

#[test]
fn a_report_without_handoffs_reads_as_one_of_before_them() {
    let text = r#"{"role":"base","version":"0","uptime_s":1.0,"hop":"srp","associations":[],
        "connections":[],"counters":{"opened":0,"refused":0,"closed":0,"garbage":0}}"#;
    let report: Report = serde_json::from_str(text).unwrap();
    assert!(report.bases.is_empty() && report.handoffs.is_none() && report.handoff.is_none());
    let again = serde_json::to_value(&report).unwrap();
    assert_eq!(again, serde_json::from_str::<Value>(text).unwrap());
}

#[test]
fn a_base_that_is_not_known_is_answered_with_those_that_are() {
    let said = unknown_base("b9", ["b1", "b2"]);
    assert!(said.contains("`b9`") && said.contains("b1, b2"), "{said}");
    assert!(unknown_base("b9", []).contains("[[bases]]"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever is said, and however it is cut, there is one line of answer, and only what is a
    /// request is handed over.
    #[test]
    fn any_request_is_answered_once(
        said in prop_oneof![
            vec(any::<u8>(), 0..200),
            "[{}\":,a-z_]{0,60}\n".prop_map(String::into_bytes),
            Just(b"{\"link\":{\"up\":{}}}\n".to_vec()),
        ],
        cut in 0_usize..200,
    ) {
        let mut service = Service::new("control-anything");
        let mut client = service.client();
        let (first, second) = said.split_at(cut.min(said.len()));
        client.write_all(first).unwrap();
        service.turn();
        // It may have been refused already.
        let _ = client.write_all(second);
        let _ = client.shutdown(Shutdown::Write);
        service.turn();
        let expected = usize::from(Request::parse(said.strip_suffix(b"\n").unwrap_or(&said)).is_ok());
        prop_assert_eq!(service.asked.len(), expected);
        match heard(&mut client) {
            Told::Answer(answer) if expected == 1 => prop_assert_eq!(answer, json!({ "ok": {} })),
            Told::Answer(answer) => prop_assert!(answer["error"].is_string()),
            Told::End => prop_assert!(said.is_empty()),
            Told::Nothing => prop_assert!(false, "it waits for ever"),
        }
        prop_assert_eq!(service.control.next_timeout(), None);
    }
}

/// A process that is started again holds the socket until it has wound down.
#[test]
fn a_socket_that_another_process_serves_is_had_once_that_process_ends() {
    let mut old = Service::new("control-again");
    let mut new = Service::on(old.path.clone());
    for _ in 0..20 {
        new.now = new.control.next_timeout().expect("it tries again");
        new.turn();
        old.turn();
    }
    assert_eq!(old.told(b"{\"status\":{}}\n"), Told::Answer(json!({ "ok": {} })));
    let path = old.path.clone();
    drop(old);
    assert!(!path.exists(), "the old one takes its socket away");
    new.now = new.control.next_timeout().expect("it tries again");
    new.turn();
    assert_eq!(new.told(b"{\"status\":{}}\n"), Told::Answer(json!({ "ok": {} })));
    assert_eq!(new.control.next_timeout(), None);
}

#[test]
fn a_process_that_ends_takes_nobody_elses_socket_away() {
    let mut old = Service::new("control-own");
    std::fs::remove_file(&old.path).unwrap();
    let mut new = Service::on(old.path.clone());
    old.turn();
    drop(old);
    assert_eq!(new.told(b"{\"status\":{}}\n"), Told::Answer(json!({ "ok": {} })));
}
