//! In what order packets of a flow come, and when.

use super::*;

/// SRP-31: packets of a flow come in order and once, whatever is lost, late or copied on the way.
#[test]
fn packets_of_a_flow_come_in_order_and_once() {
    for seed in 0..20 {
        let mut w = lossy(seed, 0.15);
        w.pipes[0].late = Some((7, Duration::from_millis(3 + seed)));
        let every = |n: u64| Duration::from_millis(1 + n * 3);
        let mut flows: Vec<Flow> = (0..6).map(|n| Flow::new(n, every(n))).collect();
        let sink =
            run(&mut w, &mut flows, |f| 60 + (f.sent % 700) as usize, None, Time::from_secs(11));
        for flow in &flows {
            let numbers = sink.numbers(flow.flow);
            assert!(numbers.is_sorted_by(|a, b| a < b), "seed {seed}, flow {}", flow.flow);
            let lost = flow.sent - numbers.len() as u64;
            assert!(lost * 20 < flow.sent, "seed {seed}: {lost} of {}", flow.sent);
        }
    }
}

/// SRP-31: what never comes holds others up for as long as it would have been sent again, and no longer.
#[test]
fn what_is_given_up_holds_nobody_up_for_longer() {
    let mut w = Pairs::new(5);
    // All that leaves while one of them is worth sending is lost.
    w.pipes[0].loses = Some(Box::new(move |now, _| {
        (Time::from_millis(1995)..Time::from_millis(2080)).contains(&now)
    }));
    let class = PacketClass { doubled: false, ..BRIEF };
    let mut flows = [Flow { class, ..Flow::new(1, Duration::from_millis(100)) }];
    let sink = run(&mut w, &mut flows, |_| 200, None, Time::from_secs(11));
    let numbers = sink.numbers(1);
    assert_eq!(numbers.len() as u64, flows[0].sent - 1, "{:?}", stats(&w, 0));
    assert!(!numbers.contains(&20) && sink.delay(1, 990) < 3 * RTT, "{:?}", sink.delay(1, 990));
}

/// SRP-30, SRP-31: one short packet among long ones of a transport is worth as much as they are: it is sent again for as
/// long, and takes its turn.
#[test]
fn packets_of_one_flow_are_worth_the_same() {
    let mut w = lossy(8, 0.2);
    let flow = |class, every| Flow { class, ..Flow::new(1, Duration::from_millis(every)) };
    let mut flows = [flow(PacketClass::TRANSPORT, 2), flow(PacketClass::ORDINARY, 23)];
    let length = |flow: &Flow| if flow.class == PacketClass::ORDINARY { 60 } else { 1200 };
    let sink = run(&mut w, &mut flows, length, None, Time::from_secs(11));
    let sent: u64 = flows.iter().map(|flow| flow.sent).sum();
    assert_eq!(sink.of[&1].len() as u64, sent, "{:?} {:?}", stats(&w, 0), stats(&w, 1));
}

/// SRP-31: a packet that came and that the sender gave up all the same, since the news of it was lost, does not come
/// after its successor. As in the simulator's schedule 1 with packets.
#[test]
fn what_is_given_up_and_came_is_not_overtaken() {
    let [mut end, _] = pair(&HopConfig::default(), &HopConfig::default(), Time::ZERO);
    let frame = |number, after| PacketFrame {
        number,
        flow: 1,
        after: number - after,
        patience_ms: 100,
        ce: false,
        header: PacketHeader::Whole,
        part: None,
        data: &[1, 2, 3],
    };
    deliver(&mut end, 1, PacketFrame { after: 0, ..frame(1, 1) });
    // It waits for number 2, which is lost. The fourth is no longer told to wait for either.
    deliver(&mut end, 2, PacketFrame { data: &[3], ..frame(3, 2) });
    deliver(&mut end, 3, PacketFrame { data: &[4], ..frame(4, 1) });
    let lane = end.packets().unwrap();
    for expected in [[1, 2, 3].as_slice(), &[3], &[4]] {
        assert_eq!(lane.front(), Some((expected, false)));
        lane.pop();
    }
}

/// SRP-31: one that is sent again waits for others only as long as one that need not. As in the simulator's schedule
/// 42 with packets.
#[test]
fn what_is_sent_again_waits_no_longer_for_others() {
    let mut w = Pairs::new(42);
    // The first of those that are lost are too old when that is known.
    w.pipes[0].loses = Some(Box::new(move |now, _| {
        (Time::from_millis(1995)..Time::from_millis(2170)).contains(&now)
    }));
    let class = PacketClass { patience: 4.0, doubled: false, ..BRIEF };
    let mut flows = [Flow { class, ..Flow::new(1, Duration::from_millis(10)) }];
    let sink = run(&mut w, &mut flows, |_| 200, None, Time::from_secs(11));
    let (slowest, patience) = (sink.delay(1, 1000), RTT.mul_f64(class.patience * 1.1));
    assert!(slowest > patience && slowest <= patience + RTT, "{slowest:?}");
    let lost = flows[0].sent - sink.numbers(1).len() as u64;
    assert!((1..17).contains(&lost), "{lost}: {:?}", stats(&w, 0));
}

/// SRP-36: what waited for a packet that was lost comes at a pace that a receiver's buffer stands, and catches up: none
/// is longer on its way for it than the first, which waited longest.
#[test]
fn what_has_waited_is_not_delivered_all_at_once() {
    const MS: Duration = Duration::from_millis(1);
    let mut w = Pairs::new(36);
    w.pipes[0].loses =
        Some(Box::new(|now, _| (Time::from_millis(2000)..Time::from_millis(2040)).contains(&now)));
    let mut flows = [Flow { class: PacketClass::TRANSPORT, ..Flow::new(1, MS) }];
    let sink = run(&mut w, &mut flows, |_| 1200, None, Time::from_secs(11));
    let came: Vec<(Time, Duration)> = sink.of[&1]
        .iter()
        .map(|(n, delay)| (Time::ZERO + MS * *n as u32 + *delay, *delay))
        .collect();
    assert_eq!(came.len() as u64, flows[0].sent);
    let within = |at: Time| came.iter().filter(|(then, _)| (at..at + MS).contains(then)).count();
    let busiest = came.iter().map(|(at, _)| within(*at)).max().unwrap();
    assert!((15..30).contains(&busiest), "{busiest} packets in a millisecond");
    let first = came.iter().find(|(_, delay)| *delay > RTT).unwrap().1;
    let slowest = came.iter().map(|(_, delay)| *delay).max().unwrap();
    assert!(slowest <= first + MS, "{slowest:?} after {first:?}");
}
