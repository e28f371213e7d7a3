use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use lasthop_control::{
    AgentReport, AssociationReport, BaseReport, ConnectionReport, Counters, HandoffReport,
    HandoffState, Handoffs, InterfaceReport, PacketReport, PastReport, PathReport,
};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::*;
use crate::history::History;

fn connection(key: u64, program: &str, target: &str, priority: u32) -> ConnectionReport {
    ConnectionReport {
        key,
        association: Some("1".into()),
        target: target.into(),
        client: Some(format!("127.0.0.1:{}", 50_000 + key)),
        program: Some(program.into()),
        priority: Some(priority),
        state: "open".into(),
        age_s: 61.0,
        ..ConnectionReport::default()
    }
}

/// A mobile that has carried for `s` seconds.
fn mobile(s: u64) -> Report {
    let mut curl = connection(7, "curl", "mirror.example.net:443", 2);
    curl.bytes_from_hop = 1_500_000 * s;
    let mut wget = connection(8, "wget", "files.example.org:80", 1);
    wget.bytes_from_hop = 500_000 * s;
    let mut again = connection(9, "curl", "[2001:db8::1]:443", 2);
    again.bytes_from_hop = 1000;
    Report {
        role: "mobile".into(),
        version: "0.1.0".into(),
        uptime_s: 60.0 + s as f64,
        hop: "srp".into(),
        associations: vec![AssociationReport {
            id: 1,
            peer: Some("hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=".into()),
            address: Some("192.0.2.1:4433".into()),
            state: "up".into(),
            age_s: 60.0 + s as f64,
            pacing_bps: Some(20_000_000),
            loss: Some(0.05),
            srtt_ms: Some(41.9),
            queue_ms: Some(1.1),
            bytes_received: 2_000_000 * s,
            ..AssociationReport::default()
        }],
        connections: vec![curl, wget, again],
        counters: Counters { opened: 3, ..Counters::default() },
        bases: vec![
            BaseReport {
                name: "north".into(),
                address: "192.0.2.1:4433".into(),
                state: "up".into(),
                current: true,
                handoffs: 1,
                last_pause_s: Some(0.0413),
                ..BaseReport::default()
            },
            BaseReport { name: "south".into(), state: "idle".into(), ..BaseReport::default() },
        ],
        handoffs: Some(Handoffs { here: 1, ..Handoffs::default() }),
        handoff: Some(HandoffReport {
            number: 1,
            to: "north".into(),
            state: HandoffState::Done,
            pause_s: Some(0.0413),
            moved: 3,
            ..HandoffReport::default()
        }),
        ..Report::default()
    }
}

fn agent(s: u64) -> Report {
    let interface = |name: &str, n| InterfaceReport {
        name: name.into(),
        up: true,
        packets_received: n,
        bytes_sent: n * 1500,
        ..InterfaceReport::default()
    };
    Report {
        role: "agent".into(),
        version: "0.1.0".into(),
        uptime_s: s as f64,
        agent: Some(AgentReport {
            schemes: vec!["snoop".into()],
            fixed: interface("eth0", 1000 * s),
            mobile: interface("wlan0", 900 * s),
            peer: Some(true),
            link: "up".into(),
            counters: [("snoop_repaired".to_owned(), 40 * s)].into(),
        }),
        ..Report::default()
    }
}

/// The same by two links.
fn mobile_of_two_links(s: u64) -> Report {
    let path = |name: &str, state: &str, per_s: u64| PathReport {
        name: name.into(),
        address: Some("192.0.2.1:4433".into()),
        state: state.into(),
        loss: 0.02,
        srtt_ms: Some(41.9),
        queue_ms: Some(1.1),
        bytes_sent: 50_000 + 1000 * s,
        bytes_received: 3_000_000 + per_s * s,
        ..PathReport::default()
    };
    let mut report = mobile(s);
    report.associations[0].paths =
        vec![path("modem", "up", 2_000_000), path("dish", "silent", 125_000)];
    report
}

fn app(report: impl Fn(u64) -> Report) -> App {
    let mut app = App::default();
    app.handle_report(Time::from_secs(0), Ok(&report(0)));
    app.handle_report(Time::from_secs(1), Ok(&report(1)));
    app
}

fn drawn(app: &App, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| view::draw(frame, app, "/run/lasthop/mobile.sock")).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..height).map(|y| format!("{}\n", line(y).trim_end())).collect()
}

fn press(app: &mut App, keys: &[KeyCode]) -> Vec<Action> {
    let press = |key: &KeyCode| app.handle_key(KeyEvent::new(*key, KeyModifiers::NONE));
    keys.iter().filter_map(press).collect()
}

const PLUS: KeyCode = KeyCode::Char('+');
const MINUS: KeyCode = KeyCode::Char('-');

fn set(of: Target, priority: u32) -> Action {
    Action::Priority { of, priority: Some(priority) }
}

#[test]
fn a_mobile_is_drawn() {
    let expected = "\
lasthop mobile (srp, version 0.1.0), up 1m01s   /run/lasthop/mobile.sock
down 16.00 Mbit/s   up 0 bit/s   loss 5.0 %   srtt 41.9 ms   queue 1.1 ms   connections 3 opened, 0
PEER   ADDRESS         STATE          DOWN       UP   LOSS     SRTT   QUEUE         PACED    AGE
north  192.0.2.1:4433  up     16.00 Mbit/s  0 bit/s  5.0 %  41.9 ms  1.1 ms  20.00 Mbit/s  1m01s

 BASE   ADDRESS         STATE  INTERFACE  MOVES  LAST PAUSE
*north  192.0.2.1:4433  up     -              1     41.3 ms
 south                  idle   -              0           -

handoffs: 1 done, 0 refused, 0 connections lost; to north: 3 moved, 0 lost, pause 41.3 ms

connections: 1/3, by rate
PROGRAM  TARGET                  PRIO          DOWN       UP      TOTAL    AGE  STATE
curl     mirror.example.net:443     2  12.00 Mbit/s  0 bit/s  1500.0 kB  1m01s  open
wget     files.example.org:80       1   4.00 Mbit/s  0 bit/s   500.0 kB  1m01s  open
curl     [2001:db8::1]:443          2       0 bit/s  0 bit/s     1000 B  1m01s  open


q quit  ? help  tab list  s sort  +/- priority
";
    let text = drawn(&app(mobile), 100, 19);
    assert_eq!(text, expected, "{text}");
}

#[test]
fn what_was_carried_before_is_drawn_at_once() {
    let mut report = mobile(0);
    report.past = Some(PastReport {
        until_s: 60,
        to_hop_bps: vec![0; 60],
        from_hop_bps: (0..60).map(|s| s * 100_000).collect(),
        loss: vec![Some(0.05); 60],
        queue_ms: vec![None; 60],
    });
    let mut app = App::new(Duration::from_secs(1));
    app.handle_report(Time::ZERO, Ok(&report));
    let text = drawn(&app, 100, 30);
    assert!(text.contains("down 5.90 Mbit/s"), "{text}");
    report.past = None;
    let mut empty = App::default();
    empty.handle_report(Time::ZERO, Ok(&report));
    let full = |text: &str| text.matches('█').count();
    let alone = full(&drawn(&empty, 100, 30));
    assert!(full(&text) > alone + 20, "one sample alone has {alone} bars\n{text}");
}

#[test]
fn each_of_several_paths_has_a_line_under_the_associations() {
    let expected = "
PATH   PEER   STATE           DOWN          UP   LOSS     SRTT   QUEUE     SENT   RECEIVED  RATE
modem  north  up      16.00 Mbit/s  8000 bit/s  2.0 %  41.9 ms  1.1 ms  51.0 kB  5000.0 kB   █
dish   north  silent   1.00 Mbit/s  8000 bit/s  2.0 %  41.9 ms  1.1 ms  51.0 kB  3125.0 kB   █

";
    let two = app(mobile_of_two_links);
    let text = drawn(&two, 100, 30);
    assert!(text.contains(expected), "{text}");
    let at = |text: &str, title: &str| text.lines().position(|line| line.starts_with(title));
    assert_eq!(at(&text, "PATH "), at(&text, "PEER ").map(|line| line + 3), "{text}");
    let narrow = drawn(&two, 40, 30);
    let row = narrow.lines().find(|line| line.starts_with("dish")).unwrap();
    assert!(row.contains("silent") && row.contains("1.00 Mbit/s"), "{narrow}");
    let plain = to_text(two.sample.as_ref().unwrap());
    let row = plain.lines().find(|line| line.starts_with("dish")).unwrap();
    assert!(row.contains("192.0.2.1:4433") && row.contains("1.00 Mbit/s"), "{plain}");
    let one = app(mobile);
    for text in [drawn(&one, 100, 30), to_text(one.sample.as_ref().unwrap())] {
        assert!(at(&text, "PATH ").is_none(), "{text}");
    }
}

#[test]
fn a_path_is_of_the_same_association_from_look_to_look() {
    let base = |s: u64| {
        let mut report = mobile_of_two_links(s);
        report.role = "base".into();
        report.bases.clear();
        let mut other = AssociationReport {
            id: 2,
            peer: Some("zSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=".into()),
            address: Some("192.0.2.9:4433".into()),
            ..report.associations[0].clone()
        };
        other.paths.iter_mut().for_each(|path| path.bytes_sent += 499_000 * s);
        report.associations.push(other);
        report
    };
    let text = drawn(&app(base), 120, 40);
    let rows: Vec<&str> = text.lines().skip_while(|line| !line.starts_with("PATH ")).collect();
    // At a base what is sent goes down.
    for (row, peer, down) in [
        (rows[1], "hSDwCYkw", "8000 bit/s"),
        (rows[2], "hSDwCYkw", "8000 bit/s"),
        (rows[3], "zSDwCYkw", "4.00 Mbit/s"),
        (rows[4], "zSDwCYkw", "4.00 Mbit/s"),
    ] {
        assert!(row.contains(peer) && row.contains(down), "{text}");
    }
    assert!(rows[4].starts_with("dish") && rows[4].contains("1.00 Mbit/s"), "{text}");
}

#[test]
fn packets_have_a_line_once_there_are_some() {
    let with_packets = |s: u64| {
        let mut report = mobile(s);
        report.associations[0].packets = Some(PacketReport {
            sent: 50 * s,
            received: 400 * s,
            flows: 3,
            dropped_queue: 7,
            late: 1,
            ..PacketReport::default()
        });
        report
    };
    let said = "packets: down 400/s, up 50/s; 3 flows, 0 B held; 7 dropped, 0 given up, 1 late";
    assert!(drawn(&app(with_packets), 100, 20).contains(said));
    assert!(to_text(app(with_packets).sample.as_ref().unwrap()).contains(said));
    assert!(!drawn(&app(mobile), 100, 20).contains("packets"));
}

#[test]
fn an_agent_is_drawn() {
    let text = drawn(&app(agent), 90, 24);
    for part in
        ["agent (snoop, version 0.1.0)", "link up", "other agent heard", "down 10.80 Mbit/s"]
    {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let row = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap();
    assert!(row("eth0").contains("1000") && row("wlan0").contains("900"), "{text}");
    assert!(row("snoop_repaired").ends_with("40.0"), "{text}");
}

#[test]
fn what_matters_stays_on_a_narrow_terminal_and_none_is_too_small() {
    let text = drawn(&app(mobile), 40, 12);
    let row = text.lines().find(|line| line.contains("mirror"));
    assert!(row.is_some_and(|row| row.contains("12.00 Mbit/s")), "{text}");
    let mut app = app(mobile);
    for help in [false, true] {
        app.help = help;
        for (width, height) in [(0, 0), (1, 1), (1, 40), (300, 2), (5, 5), (80, 1), (20, 60)] {
            drawn(&app, width, height);
        }
    }
}

#[test]
fn keys_change_the_priority_of_the_selected_connection() {
    let mut app = app(mobile);
    assert_eq!(press(&mut app, &[PLUS]), [set(Target::Connection(7), 3)]);
    // Nobody waits for the process to say so.
    assert_eq!(press(&mut app, &[PLUS]), [set(Target::Connection(7), 4)]);
    let wget = Target::Connection(8);
    assert_eq!(
        press(&mut app, &[KeyCode::Down, PLUS, MINUS, MINUS]),
        [set(wget.clone(), 2), set(wget.clone(), 1), set(wget.clone(), 1),]
    );
    let default = Action::Priority { of: wget.clone(), priority: None };
    assert_eq!(press(&mut app, &[KeyCode::Char('0')]), [default]);
    app.handle_answer(&wget, Some(1), Err("priorities are not known here".to_owned()));
    assert!(drawn(&app, 80, 20).contains("priorities are not known here"));
}

#[test]
fn what_was_asked_for_is_forgotten_when_it_is_there() {
    let mut app = app(mobile);
    press(&mut app, &[PLUS]);
    let mut report = mobile(2);
    report.connections[0].priority = Some(3);
    app.handle_report(Time::from_secs(2), Ok(&report));
    // Somebody else sets another one.
    report.connections[0].priority = Some(9);
    report.uptime_s += 1.0;
    app.handle_report(Time::from_secs(3), Ok(&report));
    assert_eq!(press(&mut app, &[PLUS]), [set(Target::Connection(7), 10)]);
}

#[test]
fn keys_change_the_priority_of_a_program() {
    let mut app = app(mobile);
    let got = press(&mut app, &[KeyCode::Tab, KeyCode::End, PLUS, KeyCode::Up, PLUS]);
    let program = |name: &str| Target::Program(name.to_owned());
    assert_eq!(got, [set(program("wget"), 2), set(program("curl"), 3)]);
    let text = drawn(&app, 80, 30);
    assert!(text.contains("programs: 1/2, by rate"), "{text}");
    let curl = text.lines().find(|line| line.starts_with("curl")).unwrap();
    assert!(curl.contains("12.00 Mbit/s"), "{text}");
}

#[test]
fn where_priorities_are_not_known_none_is_changed() {
    let mut app = app(|s| {
        let mut report = mobile(s);
        report.connections.iter_mut().for_each(|c| c.priority = None);
        report
    });
    assert_eq!(press(&mut app, &[PLUS, KeyCode::Char('0'), KeyCode::Tab, MINUS]), []);
    assert!(drawn(&app, 80, 20).contains("no priority"));
    let mut nothing = App::default();
    assert_eq!(press(&mut nothing, &[PLUS, KeyCode::Down, KeyCode::Tab, KeyCode::End]), []);
}

#[test]
fn the_selection_stays_with_a_connection_wherever_it_goes() {
    let mut app = app(mobile);
    press(&mut app, &[KeyCode::Down]);
    let mut report = mobile(2);
    report.connections[1].bytes_from_hop = 50_000_000;
    app.handle_report(Time::from_secs(2), Ok(&report));
    assert!(drawn(&app, 80, 20).contains("connections: 1/3"));
    assert_eq!(press(&mut app, &[PLUS]), [set(Target::Connection(8), 2)]);
    // It ends; what has come in its place is selected.
    report.connections.remove(1);
    report.connections[0].bytes_from_hop += 1_000_000;
    report.uptime_s += 1.0;
    app.handle_report(Time::from_secs(3), Ok(&report));
    assert_eq!(press(&mut app, &[PLUS]), [set(Target::Connection(7), 3)]);
}

#[test]
fn lists_are_sorted_by_what_is_chosen() {
    let mut app = app(mobile);
    let first = |app: &App| {
        let text = drawn(app, 120, 30);
        let rows: Vec<&str> = text.lines().skip_while(|l| !l.starts_with("connections:")).collect();
        (rows[0].rsplit(' ').next().unwrap().to_owned(), rows[2].to_owned())
    };
    for (name, target) in [
        ("rate", "mirror"),
        ("total", "mirror"),
        ("priority", "2001:db8"),
        ("name", "2001:db8"),
        ("age", "2001:db8"),
        ("rate", "mirror"),
    ] {
        let (by, row) = first(&app);
        assert!(by == name && row.contains(target), "{name}: {by}, {row}");
        press(&mut app, &[KeyCode::Char('s')]);
    }
}

#[test]
fn until_somebody_selects_the_first_row_is_selected() {
    let mut app = app(mobile);
    let mut report = mobile(2);
    report.connections[1].bytes_from_hop = 50_000_000;
    app.handle_report(Time::from_secs(2), Ok(&report));
    assert_eq!(press(&mut app, &[PLUS]), [set(Target::Connection(8), 2)]);
}

#[test]
fn plots_in_rows_are_bars_of_the_highest() {
    let mut ring = crate::history::Ring::new(99);
    assert_eq!(tables::spark(&ring), "");
    [None, Some(0.0), Some(50.0), Some(100.0)].into_iter().for_each(|v| ring.push(v));
    assert_eq!(tables::spark(&ring), " ▁▅█");
    (0..40).for_each(|_| ring.push(Some(0.0)));
    assert_eq!(tables::spark(&ring), "▁▁▁▁▁▁▁▁▁▁▁▁");
}

#[test]
fn q_quits_and_a_question_mark_explains() {
    let mut app = app(mobile);
    assert_eq!(press(&mut app, &[KeyCode::Char('?')]), []);
    assert!(drawn(&app, 100, 30).contains("higher or lower priority"));
    assert_eq!(press(&mut app, &[PLUS]), [], "the first key ends the help");
    for key in [KeyCode::Char('q'), KeyCode::Esc] {
        assert_eq!(press(&mut app, &[key]), [Action::Quit]);
    }
    let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(app.handle_key(interrupt), Some(Action::Quit));
}

#[test]
fn a_process_that_goes_and_comes_again_is_told_of() {
    let mut app = app(mobile);
    app.handle_report(Time::from_secs(2), Err("nobody answers on /x.sock"));
    let text = drawn(&app, 100, 20);
    assert!(text.contains("nobody answers") && text.contains("mirror"), "{text}");
    app.handle_report(Time::from_secs(9), Ok(&Report { uptime_s: 0.5, ..mobile(0) }));
    assert!(drawn(&app, 100, 20).contains("started again"));
}

#[test]
fn everything_is_in_the_plain_text() {
    let text = to_text(app(mobile).sample.as_ref().unwrap());
    for part in ["PEER", "BASE", "PROGRAM  CONNECTIONS", "mirror.example.net:443", "pause 41.3 ms"]
    {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let mut evil = mobile(0);
    evil.connections[0].target = "\x1b]0;evil\x07".into();
    let text = to_text(&History::default().feed(Time::ZERO, &evil));
    assert!(!text.contains('\x1b') && text.contains("?]0;evil?"), "{text}");
}
