use lasthop_control::{InterfaceReport, PacketReport, PastReport, PathReport};
use proptest::prelude::*;

use super::*;

fn connection(key: u64, age_s: f64, to_hop: u64, from_hop: u64) -> ConnectionReport {
    ConnectionReport {
        key,
        target: "example.net:443".into(),
        program: Some("curl".into()),
        priority: Some(1),
        state: "open".into(),
        bytes_to_hop: to_hop,
        bytes_from_hop: from_hop,
        age_s,
        ..ConnectionReport::default()
    }
}

fn report(uptime_s: f64, connections: Vec<ConnectionReport>) -> Report {
    Report { role: "mobile".into(), uptime_s, connections, ..Report::default() }
}

fn association(bytes_sent: u64, packets_sent: u64, packets_lost: u64) -> AssociationReport {
    AssociationReport {
        id: 1,
        age_s: 10.0,
        bytes_sent,
        packets_sent: Some(packets_sent),
        packets_lost: Some(packets_lost),
        queue_ms: Some(3.0),
        ..AssociationReport::default()
    }
}

fn at(s: f64) -> Time {
    Time::from_micros((s * 1e6) as u64)
}

fn rates(to: u64, from: u64) -> Rates {
    Rates { to_hop_bps: Some(to), from_hop_bps: Some(from) }
}

#[test]
fn a_rate_is_what_was_carried_between_two_reports() {
    let mut history = History::default();
    let first = history.feed(at(0.0), &report(10.0, vec![connection(7, 5.0, 100, 1000)]));
    assert_eq!(first.connections[0].rates, Rates::default(), "nothing to compare with");
    let second = history.feed(at(2.0), &report(12.0, vec![connection(7, 7.0, 200, 3000)]));
    assert_eq!(second.connections[0].rates, rates(400, 8000));
    assert_eq!(second.total.rates, rates(400, 8000));
    let plot: Vec<f32> = history.connection("7").unwrap().iter().collect();
    assert!(plot[0].is_nan());
    assert_eq!(plot[1], 8400.0);
}

#[test]
fn packets_are_counted_together_and_their_bytes_are_carried_too() {
    let mut history = History::default();
    let mut feed = |s: f64, sent: u64| {
        let own = |id, sent| {
            let packets = PacketReport {
                sent,
                bytes_sent: 100 * sent,
                flows: 2,
                dropped_old: 3,
                ..PacketReport::default()
            };
            AssociationReport { id, age_s: s, packets: Some(packets), ..association(0, 0, 0) }
        };
        let associations = vec![
            own(1, sent),
            own(2, 2 * sent),
            AssociationReport { id: 3, ..association(0, 0, 0) },
        ];
        history.feed(at(s), &Report { associations, ..report(s, Vec::new()) }).total
    };
    assert_eq!(feed(10.0, 10).packets.unwrap().to_hop_per_s, None, "nothing to compare with");
    let total = feed(12.0, 30);
    let packets = total.packets.unwrap();
    assert_eq!((packets.to_hop_per_s, packets.from_hop_per_s), (Some(30.0), Some(0.0)));
    assert_eq!((packets.flows, packets.dropped), (4, 6));
    assert_eq!(total.rates.to_hop_bps, Some(30 * 100 * 8));
}

/// A report of one association with these paths: name, bytes sent and received.
fn with_paths(uptime_s: f64, age_s: f64, paths: &[(&str, u64, u64)]) -> Report {
    let path = |(name, bytes_sent, bytes_received): &(&str, u64, u64)| PathReport {
        name: (*name).into(),
        bytes_sent: *bytes_sent,
        bytes_received: *bytes_received,
        ..PathReport::default()
    };
    let paths = paths.iter().map(path).collect();
    let associations = vec![AssociationReport { age_s, paths, ..association(0, 0, 0) }];
    Report { associations, ..report(uptime_s, vec![]) }
}

#[test]
fn each_path_has_a_rate_of_its_own() {
    let mut history = History::default();
    let paths_of = |sample: Sample| -> Vec<(String, Rates)> {
        let paths = sample.associations.into_iter().flat_map(|a| a.paths);
        paths.map(|p| (p.report.name, p.rates)).collect()
    };
    let first = with_paths(10.0, 9.0, &[("modem", 100, 1000), ("dish", 0, 5000)]);
    let unknown = Rates::default();
    assert_eq!(
        paths_of(history.feed(at(0.0), &first)),
        [("modem".to_owned(), unknown), ("dish".to_owned(), unknown)]
    );
    let second = with_paths(12.0, 11.0, &[("modem", 200, 3000), ("dish", 0, 5000)]);
    assert_eq!(
        paths_of(history.feed(at(2.0), &second)),
        [("modem".to_owned(), rates(400, 8000)), ("dish".to_owned(), rates(0, 0))]
    );
    assert_eq!(history.path(1, "modem").unwrap().iter().last(), Some(8400.0));
    assert!(history.path(2, "modem").is_none(), "of another association");
    // One goes, and one comes whose bytes may be of any time.
    let third = with_paths(13.0, 12.0, &[("wlan", 7000, 7000), ("dish", 100, 5000)]);
    assert_eq!(
        paths_of(history.feed(at(3.0), &third)),
        [("wlan".to_owned(), unknown), ("dish".to_owned(), rates(800, 0))]
    );
    assert!(history.path(1, "modem").is_none());
    // Another association of the same number: what its path has carried was since.
    let again = with_paths(14.0, 0.5, &[("wlan", 8000, 8000), ("dish", 0, 50)]);
    assert_eq!(
        paths_of(history.feed(at(4.0), &again)),
        [("wlan".to_owned(), rates(64_000, 64_000)), ("dish".to_owned(), rates(0, 400))]
    );
}

#[test]
fn a_sample_has_each_path_once_with_its_rates() {
    let mut history = History::default();
    history.feed(at(0.0), &with_paths(10.0, 9.0, &[("modem", 0, 0), ("dish", 0, 0)]));
    let sample = history.feed(at(1.0), &with_paths(11.0, 10.0, &[("modem", 5, 0), ("dish", 0, 9)]));
    let text = serde_json::to_string(&sample).unwrap();
    assert_eq!(text.matches("\"paths\"").count(), 1, "{text}");
    let sample: serde_json::Value = serde_json::from_str(&text).unwrap();
    let dish = &sample["associations"][0]["paths"][1];
    assert_eq!((&dish["name"], &dish["from_hop_bps"]), (&"dish".into(), &72.into()));
    let one = serde_json::to_string(&history.feed(at(2.0), &with_paths(12.0, 11.0, &[]))).unwrap();
    assert!(!one.contains("paths"), "{one}");
}

#[test]
fn the_process_s_clock_counts_and_not_how_long_an_answer_takes() {
    let mut history = History::default();
    history.feed(at(0.0), &report(10.0, vec![connection(7, 5.0, 0, 0)]));
    let late = history.feed(at(4.0), &report(11.0, vec![connection(7, 6.0, 1000, 0)]));
    assert!(!late.restarted);
    assert_eq!(late.connections[0].rates, rates(8000, 0));
}

#[test]
fn a_connection_that_began_since_has_a_rate_at_once_and_one_of_before_has_not() {
    let mut history = History::default();
    history.feed(at(0.0), &report(10.0, vec![]));
    let young = connection(8, 0.4, 0, 500);
    let old = connection(9, 6.0, 0, 500);
    let sample = history.feed(at(1.0), &report(11.0, vec![young, old]));
    assert_eq!(sample.connections[0].rates, rates(0, 4000));
    assert_eq!(sample.connections[1].rates, Rates::default());
}

#[test]
fn a_restart_resets_the_counters_but_not_the_plots() {
    let mut history = History::default();
    history.feed(at(0.0), &report(10.0, vec![connection(7, 5.0, 100, 100)]));
    history.feed(at(1.0), &report(11.0, vec![connection(7, 6.0, 200, 100)]));
    for (now, again) in [
        // It was started a moment ago.
        (at(2.0), report(0.5, vec![connection(7, 6.5, 900, 900)])),
        // Nobody looked for a while, in which it was started again.
        (at(62.0), report(20.0, vec![connection(7, 19.0, 9000, 9000)])),
    ] {
        let sample = history.feed(now, &again);
        assert!(sample.restarted);
        assert_eq!(sample.connections[0].rates, Rates::default());
    }
    assert_eq!(history.plots().to_hop.iter().len(), 4);
    let sample = history.feed(at(63.0), &report(21.0, vec![connection(7, 20.0, 9100, 9000)]));
    assert!(!sample.restarted);
    assert_eq!(sample.connections[0].rates, rates(800, 0));
}

#[test]
fn another_connection_of_the_same_name_is_not_taken_for_the_old_one() {
    let mut history = History::default();
    history.feed(at(0.0), &report(10.0, vec![connection(7, 5.0, 0, 0)]));
    let sample = history.feed(at(1.0), &report(11.0, vec![connection(7, 0.5, 1000, 0)]));
    assert_eq!(sample.connections[0].rates, rates(8000, 0));
    let mut history = History::default();
    history.feed(at(0.0), &report(10.0, vec![connection(7, 5.0, 500, 0)]));
    let sample = history.feed(at(1.0), &report(11.0, vec![connection(7, 6.0, 400, 0)]));
    assert_eq!(sample.connections[0].rates, Rates::default(), "a counter went back");
}

#[test]
fn two_reports_of_the_same_moment_give_no_rates() {
    let mut history = History::default();
    history.feed(at(0.0), &report(10.0, vec![connection(7, 5.0, 0, 0)]));
    let sample = history.feed(at(0.0), &report(10.0, vec![connection(7, 5.0, 100, 0)]));
    assert!(!sample.restarted);
    assert_eq!(sample.connections[0].rates, Rates::default());
}

#[test]
fn connections_that_go_are_forgotten() {
    let mut history = History::default();
    history.feed(at(0.0), &report(10.0, vec![connection(7, 5.0, 0, 0)]));
    history.feed(at(1.0), &report(11.0, vec![]));
    assert!(history.connection("7").is_none());
    assert!(history.program(Some("curl")).is_none());
}

#[test]
fn a_program_is_the_sum_of_its_connections() {
    let mut history = History::default();
    let wget = |to| ConnectionReport {
        program: Some("wget".into()),
        priority: Some(3),
        ..connection(3, 5.0, to, 0)
    };
    let nobody = ConnectionReport { program: None, ..connection(4, 5.0, 0, 0) };
    let curl = |n, key| connection(key, 5.0, n, n);
    history.feed(at(0.0), &report(10.0, vec![nobody.clone(), wget(0), curl(0, 1), curl(0, 2)]));
    let mut other = curl(2000, 2);
    other.priority = Some(2);
    let sample =
        history.feed(at(1.0), &report(11.0, vec![nobody, wget(500), curl(1000, 1), other]));
    let names: Vec<Option<&str>> = sample.programs.iter().map(|p| p.name.as_deref()).collect();
    assert_eq!(names, [Some("curl"), Some("wget"), None]);
    let curl = &sample.programs[0];
    assert_eq!((curl.connections, curl.bytes, curl.rates), (2, 6000, rates(24_000, 24_000)));
    assert_eq!((curl.priority, curl.mixed), (None, true));
    assert_eq!((sample.programs[1].priority, sample.programs[1].mixed), (Some(3), false));
    assert_eq!(history.program(Some("wget")).unwrap().iter().last(), Some(4000.0));
}

#[test]
fn losses_are_of_the_last_interval_where_the_process_does_not_say() {
    let mut history = History::default();
    let with = |uptime_s, a| Report { associations: vec![a], ..report(uptime_s, vec![]) };
    let first = history.feed(at(0.0), &with(10.0, association(0, 1000, 500)));
    assert_eq!(first.associations[0].report.loss, None);
    let second = history.feed(at(1.0), &with(11.0, association(1000, 1100, 505)));
    assert_eq!(second.associations[0].report.loss, Some(0.05));
    assert_eq!((second.total.loss, second.total.queue_ms), (Some(0.05), Some(3.0)));
    assert_eq!(second.total.rates, rates(8000, 0));
    let said = AssociationReport { loss: Some(0.2), ..association(1000, 1200, 505) };
    let third = history.feed(at(2.0), &with(12.0, said));
    assert_eq!(third.total.loss, Some(0.2));
    let loss: Vec<f32> = history.plots().loss.iter().skip(1).collect();
    assert_eq!(loss, [0.05, 0.2]);
}

#[test]
fn an_agent_s_rates_are_those_of_the_interface_to_the_mobiles() {
    let agent = |sent, repaired| AgentReport {
        schemes: vec!["snoop".into()],
        mobile: InterfaceReport { bytes_sent: sent, ..InterfaceReport::default() },
        counters: BTreeMap::from([("snoop_repaired".to_owned(), repaired)]),
        ..AgentReport::default()
    };
    let with = |uptime_s, a| Report { agent: Some(a), ..report(uptime_s, vec![]) };
    let mut history = History::default();
    history.feed(at(0.0), &with(10.0, agent(0, 5)));
    let sample = history.feed(at(2.0), &with(12.0, agent(1000, 9)));
    let agent = sample.agent.unwrap();
    assert_eq!(agent.rates, rates(4000, 0));
    assert_eq!(sample.total.rates, rates(4000, 0));
    assert_eq!(agent.counters_per_s["snoop_repaired"], 2.0);
}

#[test]
fn plots_are_bounded() {
    let mut ring = Ring::new(3);
    (0..10).for_each(|i| ring.push(Some(f64::from(i))));
    assert_eq!(ring.iter().collect::<Vec<_>>(), [7.0, 8.0, 9.0]);
    let mut none = Ring::new(0);
    none.push(Some(1.0));
    assert_eq!(none.iter().len(), 0);
}

proptest! {
    /// Whatever a process says, nothing overflows, every connection is shown, and what is
    /// remembered is what was in the last report.
    #[test]
    fn no_report_confuses_it(
        reports in prop::collection::vec(
            (
                any::<f64>(),
                any::<u64>(),
                prop::collection::vec((0_u64..4, any::<f64>(), any::<u64>(), any::<u64>()), 0..6),
            ),
            0..8,
        ),
    ) {
        let mut history = History::new(4);
        for (uptime_s, now, connections) in reports {
            let connections: Vec<ConnectionReport> =
                connections.into_iter().map(|(k, age, a, b)| connection(k, age, a, b)).collect();
            let sample = history.feed(Time::from_nanos(now), &report(uptime_s, connections.clone()));
            prop_assert_eq!(sample.connections.len(), connections.len());
            prop_assert!(history.connections.len() <= connections.len());
            prop_assert!(history.plots().to_hop.iter().len() <= 4);
            for c in &sample.connections {
                prop_assert!(history.connection(&c.name).is_some_and(|plot| plot.iter().len() <= 4));
            }
        }
    }
}

fn past(to_hop_bps: &[u64]) -> PastReport {
    PastReport {
        until_s: 100,
        to_hop_bps: to_hop_bps.to_vec(),
        from_hop_bps: vec![0; to_hop_bps.len()],
        loss: to_hop_bps.iter().map(|bps| (*bps > 0).then_some(0.5)).collect(),
        queue_ms: vec![None; to_hop_bps.len()],
    }
}

#[test]
fn what_was_carried_before_is_plotted_before_the_first_sample() {
    let mut history = History::default();
    history.remember(&past(&[0, 800, 1600]), Duration::from_secs(1));
    let first = history.feed(at(0.0), &report(100.5, vec![connection(7, 50.0, 0, 0)]));
    assert_eq!(first.total.rates, rates(1600, 0), "of the latest second");
    assert_eq!(first.connections[0].rates, Rates::default(), "nobody knows whose they were");
    history.feed(at(1.0), &report(101.5, vec![connection(7, 51.0, 50, 0)]));
    let plots = history.plots();
    assert_eq!(plots.to_hop.iter().collect::<Vec<_>>(), [0.0, 800.0, 1600.0, 1600.0, 400.0]);
    let loss: Vec<f32> = plots.loss.iter().collect();
    assert!(loss[0].is_nan() && loss[1..3] == [0.5, 0.5], "{loss:?}");
    // It is too late.
    history.remember(&past(&[9; 120]), Duration::from_secs(1));
    assert_eq!(history.plots().to_hop.iter().len(), 5);
}

#[test]
fn what_was_carried_before_is_plotted_as_often_as_samples_come() {
    let plotted = |interval_s: f64, depth| {
        let mut history = History::new(depth);
        history.remember(&past(&[10, 20, 30, 40, 50]), Duration::from_secs_f64(interval_s));
        history.plots().to_hop.iter().collect::<Vec<_>>()
    };
    assert_eq!(plotted(2.0, 9), [10.0, 25.0, 45.0]);
    assert_eq!(plotted(0.5, 4), [40.0, 40.0, 50.0, 50.0]);
    assert_eq!(plotted(3600.0, 9), [30.0]);
    assert_eq!(plotted(1.0, 0), [0.0; 0]);
}
