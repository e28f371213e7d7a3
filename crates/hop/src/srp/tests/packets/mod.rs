//! The datagram lane.

mod headers;
mod order;

use std::collections::BTreeMap;

use lasthop_wire::frame::{Frame, PACKET_MAX, PacketFrame, PacketHeader, Writer};

use super::*;
use crate::config::{Discipline, Window};
use crate::packet_class::PacketClass;
use crate::packets::{OutgoingPacket, PacketError, PacketStats};

const RTT: Duration = Duration::from_millis(40);
/// Worth sending again for round trips, once they are measured.
const BRIEF: PacketClass =
    PacketClass { patience_min: Duration::from_millis(20), ..PacketClass::ORDINARY };
/// A packet for which none waits.
const WHOLE: PacketFrame<'_> = PacketFrame {
    number: 1,
    flow: 1,
    after: 0,
    patience_ms: 0,
    ce: false,
    header: PacketHeader::Whole,
    part: None,
    data: &[1; 1000],
};

/// A flow of packets, each as long as said, that say which they are and when they were sent.
struct Flow {
    client: u64,
    flow: u64,
    class: PacketClass,
    ecn_capable: bool,
    every: Duration,
    next: Time,
    until: Time,
    sent: u64,
}

impl Flow {
    fn new(flow: u64, every: Duration) -> Self {
        let (class, next, until) = (BRIEF, Time::ZERO, Time::from_secs(10));
        Self { client: 0, flow, class, ecn_capable: false, every, next, until, sent: 0 }
    }

    fn packet(&self, now: Time, length: usize) -> Vec<u8> {
        let mut data: Vec<u8> = (0..length as u64).map(|n| byte(n + 7 * self.sent)).collect();
        data[..8].copy_from_slice(&self.sent.to_be_bytes());
        data[8..16].copy_from_slice(&now.as_nanos().to_be_bytes());
        data[16..24].copy_from_slice(&self.flow.to_be_bytes());
        data
    }
}

/// What has come of each flow.
#[derive(Default)]
struct Sink {
    /// The number and the time on the way of each packet, by flow.
    of: BTreeMap<u64, Vec<(u64, Duration)>>,
    marked: u64,
    bytes: u64,
}

impl Sink {
    fn drain(&mut self, now: Time, end: &mut Srp) {
        let Some(lane) = end.packets() else { return };
        while let Some((data, ce)) = lane.front() {
            let number = |at: usize| u64::from_be_bytes(data[at..at + 8].try_into().unwrap());
            let (sent, at, flow) = (number(0), Time::from_nanos(number(8)), number(16));
            for (n, got) in (24..).zip(&data[24..]) {
                assert_eq!(*got, byte(n + 7 * sent), "flow {flow}, packet {sent}, byte {n}");
            }
            self.marked += u64::from(ce);
            self.bytes += data.len() as u64;
            self.of.entry(flow).or_default().push((sent, now.since(at)));
            lane.pop();
        }
    }

    fn numbers(&self, flow: u64) -> Vec<u64> {
        self.of.get(&flow).into_iter().flatten().map(|(n, _)| *n).collect()
    }

    /// The delay that so many per mille of a flow's packets do not exceed.
    fn delay(&self, flow: u64, per_mille: usize) -> Duration {
        let mut all: Vec<Duration> = self.of[&flow].iter().map(|(_, delay)| *delay).collect();
        all.sort();
        all[(all.len() * per_mille / 1000).min(all.len() - 1)]
    }
}

/// Runs flows from one end to the other, beside a transfer if there is one.
fn run(
    w: &mut Pairs,
    flows: &mut [Flow],
    length: impl Fn(&Flow) -> usize,
    mut bulk: Option<&mut Bulk>,
    until: Time,
) -> Sink {
    let mut sink = Sink::default();
    while w.now < until {
        for flow in flows.iter_mut().filter(|flow| flow.next <= w.now && w.now < flow.until) {
            let data = flow.packet(w.now, length(flow));
            let Flow { client, flow: name, class, ecn_capable, .. } = *flow;
            let packet = OutgoingPacket { client, flow: name, ecn_capable, class, data: &data };
            let now = w.now;
            let _ = w.ends[0][0].packets().unwrap().send(now, &packet);
            flow.sent += 1;
            flow.next += flow.every;
        }
        if let Some(bulk) = &mut bulk {
            bulk.pump(w);
        }
        let next = flows.iter().filter(|flow| flow.next < flow.until).map(|flow| flow.next).min();
        w.step(next.unwrap_or(until).min(until));
        let now = w.now;
        sink.drain(now, &mut w.ends[0][1]);
    }
    sink
}

/// The `n`th datagram that comes has this packet.
fn deliver(end: &mut Srp, n: u64, frame: PacketFrame<'_>) {
    let mut buf = [0; 1500];
    let mut w = Writer::new(&mut buf);
    assert!(w.put(&Frame::Packet(frame)));
    let len = w.len();
    let now = Time::from_millis(n);
    let _ = end.handle(now, PathId::FIRST, n, &buf[..len]);
    while end.poll(now, &mut [0; 1500]).is_some() {}
}

fn stats(w: &Pairs, side: usize) -> PacketStats {
    crate::transport::Transport::stats(&w.ends[0][side]).packets
}

fn lossy(seed: u64, loss: f64) -> Pairs {
    let mut w = Pairs::new(seed);
    w.pipes.iter_mut().for_each(|pipe| pipe.loss = loss);
    w
}

/// SRP-30: a packet is sent again while it is worth it, and not after.
#[test]
fn a_lost_packet_is_sent_again_within_its_patience() {
    let residual = |patience: f64| {
        let mut w = lossy(31, 0.1);
        let class = PacketClass { patience, doubled: false, ..BRIEF };
        // As fast as to leave no time for copies of what is outstanding.
        let mut flows = [Flow { class, ..Flow::new(1, Duration::from_micros(700)) }];
        let sink = run(&mut w, &mut flows, |_| 1200, None, Time::from_secs(11));
        let (most, stats) = (sink.delay(1, 999), stats(&w, 0));
        let bound = RTT / 2 + RTT.mul_f64(patience) + RTT;
        assert!(most <= bound, "patience {patience}: {most:?} of {bound:?}");
        let lost = stats.sent - sink.numbers(1).len() as u64;
        assert!(stats.sent + 20 > flows[0].sent, "{stats:?}");
        assert_eq!(stats.repeated > 0, patience > 0.0);
        lost as f64 / flows[0].sent as f64
    };
    let (none, some, more) = (residual(0.0), residual(1.5), residual(4.5));
    assert!((0.08..0.12).contains(&none), "without repetition {none}");
    assert!((0.005..0.02).contains(&some), "repeated once {some}");
    assert!(more < 0.001, "repeated several times {more}");
}

/// SRP-30: nor is a packet that had its turn before a silence and did not fit into the last datagram, or not whole. As
/// in the simulator's schedules 7 and 71 with packets.
#[test]
fn what_had_its_turn_before_a_silence_is_not_sent_after_it() {
    for (length, every) in [(1000, 1000), (3000, 2000)] {
        let mut w = Pairs::new(8);
        w.silences = alloc::vec![(Time::from_secs(3), Time::from_secs(7))];
        let class = PacketClass { lifetime: Duration::from_millis(200), ..BRIEF };
        let mut flows = [Flow { class, ..Flow::new(1, Duration::from_micros(every)) }];
        let sink = run(&mut w, &mut flows, |_| length, None, Time::from_secs(11));
        let slowest = sink.delay(1, 1000);
        assert!(slowest < class.lifetime + 3 * RTT, "{length} B: {slowest:?}");
    }
}

/// SRP-32, SRP-34: parts of what never comes whole make room in time, and for what is newer. As in the simulator's
/// schedule 0 with packets.
#[test]
fn parts_of_what_never_comes_are_dropped() {
    let [mut end, _] = pair(&HopConfig::default(), &HopConfig::default(), Time::ZERO);
    // Those that would be kept hold more than may be held.
    for number in 1..200 {
        let part = Some((0, 60_000));
        deliver(&mut end, number, PacketFrame { number, part, ..WHOLE });
    }
    deliver(&mut end, 200, PacketFrame { number: 200, ..WHOLE });
    assert!(end.packets().unwrap().front().is_some());
    end.packets().unwrap().pop();
    assert!(end.next_timeout().is_some_and(|at| at < Time::from_secs(10)));
    end.handle_timeout(Time::from_secs(10));
    let packets = crate::transport::Transport::stats(&end).packets;
    assert_eq!((packets.bytes_held, packets.dropped_received), (0, 199));
}

/// SRP-32: packets of any length cross, and those that were cut are joined, also where less passes than before.
#[test]
fn packets_of_any_length_cross_a_path_that_shrinks() {
    let mut w = lossy(9, 0.05);
    let class =
        PacketClass { patience: 20.0, lifetime: Duration::from_secs(30), ..PacketClass::default() };
    let mut flows = [Flow { class, ..Flow::new(1, Duration::from_millis(40)) }];
    let lengths = [1280, 1500, 9000, PACKET_MAX, 24, 1439, 1440, 1441];
    let length = |f: &Flow| lengths[f.sent as usize % lengths.len()];
    flows[0].until = Time::from_secs(2);
    let first = run(&mut w, &mut flows, length, None, Time::from_secs(2));
    w.pipes.iter_mut().for_each(|pipe| pipe.mtu = 1300);
    flows[0].until = Time::from_secs(8);
    let then = run(&mut w, &mut flows, length, None, Time::from_secs(16));
    let all: Vec<u64> = first.numbers(1).into_iter().chain(then.numbers(1)).collect();
    assert!(all.is_sorted_by(|a, b| a < b));
    assert!(all.len() as u64 + 3 >= flows[0].sent, "{} of {}", all.len(), flows[0].sent);
    assert!(w.pipes[0].largest > 1450, "full datagrams were used");
    let too_long = OutgoingPacket {
        client: 0,
        flow: 1,
        ecn_capable: false,
        class,
        data: &[0; PACKET_MAX + 1],
    };
    let sent = w.ends[0][0].packets().unwrap().send(Time::from_secs(20), &too_long);
    assert_eq!(sent, Err(PacketError::BadLength(PACKET_MAX + 1, PACKET_MAX)));
}

/// A download's goodput beside calls, or alone.
fn beside_a_transfer(loss: f64, calls: u64) -> (f64, Sink, u64) {
    let mut w = lossy(77, loss);
    let mut bulk = Bulk::start(&mut w, 0, FOREVER);
    let every = Duration::from_millis(20);
    let mut flows: Vec<Flow> = (0..calls)
        .map(|n| Flow {
            next: Time::from_secs(2),
            until: Time::from_secs(20),
            ..Flow::new(n, every)
        })
        .collect();
    let sink = run(&mut w, &mut flows, |_| 160, Some(&mut bulk), Time::from_secs(21));
    let sent = flows.iter().map(|flow| flow.sent).sum();
    (bulk.goodput(Time::from_secs(3), Time::from_secs(20)), sink, sent)
}

/// SRP-33: a call beside a transfer waits for nothing, and loses next to nothing; the transfer loses no more than the
/// call takes.
#[test]
fn a_call_beside_a_transfer_waits_for_nothing() {
    for loss in [0.0, 0.05, 0.1] {
        let (alone, ..) = beside_a_transfer(loss, 0);
        let (beside, sink, sent) = beside_a_transfer(loss, 1);
        let residual = (sent - sink.numbers(0).len() as u64) as f64 / sent as f64;
        assert!(residual <= 0.002, "loss {loss}: residual {residual}");
        let added = sink.delay(0, 990) - RTT / 2;
        assert!(added <= RTT, "loss {loss}: {added:?}");
        assert!(beside + 110_000.0 > alone * 0.985, "loss {loss}: {beside} of {alone}");
    }
}

/// SRP-33: a byte now and then on a stream beside a transfer is sent once more too, and comes at once where it would often
/// have to be repeated.
#[test]
fn keystrokes_beside_a_transfer_seldom_wait_for_a_repetition() {
    for loss in [0.05, 0.1] {
        let mut w = lossy(4, loss);
        let mut bulk = Bulk::start(&mut w, 0, FOREVER);
        let keys = w.ends[0][0].open().unwrap();
        let (mut sent, mut late, mut next) = (Vec::new(), 0, Time::from_secs(2));
        let mut come = 0;
        while w.now < Time::from_secs(102) {
            if next <= w.now {
                assert_eq!(w.ends[0][0].write(keys, b"k"), Ok(1));
                sent.push(w.now);
                next += Duration::from_millis(100);
            }
            bulk.pump(&mut w);
            w.step(next);
            let now = w.now;
            for at in &sent[come..come + w.ends[0][1].received(keys).len()] {
                late += u64::from(now.since(*at) > RTT / 2 + RTT / 2);
            }
            let n = w.ends[0][1].received(keys).len();
            come += n;
            w.ends[0][1].consume(keys, n);
        }
        let late = late as f64 / sent.len() as f64;
        assert!(come + 2 > sent.len() && late < 0.01, "loss {loss}: {late} late, {come} came");
    }
}

/// SRP-33: a call alone, whose packets are far apart, loses next to nothing either.
#[test]
fn a_call_alone_loses_next_to_nothing() {
    for loss in [0.05, 0.1] {
        let mut w = lossy(5, loss);
        let mut flows = [Flow::new(0, Duration::from_millis(20))];
        flows[0].until = Time::from_secs(40);
        let sink = run(&mut w, &mut flows, |_| 160, None, Time::from_secs(41));
        let late = sink.numbers(0).iter().filter(|n| **n > 100).count() as u64;
        let residual = (flows[0].sent - 101 - late) as f64 / (flows[0].sent - 101) as f64;
        let (loss_seen, stats) = (w.ends[0][0].paths[0].rate.loss(), stats(&w, 0));
        assert!(residual <= 0.002, "loss {loss}: residual {residual}, {loss_seen} {stats:?}");
    }
}

/// SRP-33, SRP-35: hosts share before flows do, each with its packets and its streams together.
#[test]
fn hosts_share_before_flows() {
    let mut w = Pairs::new(3);
    let every = Duration::from_micros(500);
    let class = PacketClass { patience: 4.0, ..BRIEF };
    let flow = |client, flow| Flow { client, class, ..Flow::new(flow, every) };
    let mut flows: Vec<Flow> = (0..4).map(|n| flow(1, n)).collect();
    flows.push(flow(2, 10));
    let mut bulk: Option<Bulk> = None;
    // Rates of each of the first host's flows, of the second's, and of the stream, in ten seconds.
    let mut shares = |w: &mut Pairs, bulk: &mut Option<Bulk>| {
        let (from, until) = (w.now + Duration::from_secs(2), w.now + Duration::from_secs(10));
        flows.iter_mut().for_each(|flow| flow.until = until);
        run(w, &mut flows, |_| 690, bulk.as_mut(), from);
        let sink = run(w, &mut flows, |_| 690, bulk.as_mut(), until);
        let rate = |flow| sink.numbers(flow).len() as f64 * 690.0;
        let stream = bulk.as_ref().map_or(0.0, |bulk| bulk.goodput(from, until));
        ([rate(0), rate(1), rate(2), rate(3)], rate(10), stream)
    };
    let equal = |a: f64, b: f64| assert!((0.85..1.15).contains(&(a / b)), "{a} beside {b}");
    let (many, one, _) = shares(&mut w, &mut bulk);
    equal(many.iter().sum(), one);
    many.iter().for_each(|rate| equal(rate * 4.0, one));
    // A third host has a stream.
    let started = bulk.insert(Bulk::start(&mut w, 0, FOREVER)).id;
    let (many, one, stream) = shares(&mut w, &mut bulk);
    equal(many.iter().sum(), one);
    equal(stream, one);
    // It turns out to be the second's.
    w.ends[0][0].set_client(started, 2);
    let (many, one, stream) = shares(&mut w, &mut bulk);
    equal(many.iter().sum(), one + stream);
    equal(stream, one);
    assert_eq!(w.ends[0][1].streams.inspect()[&started.0].client, 2, "the peer knows");
}

/// SRP-37: packets of which only one fits into a datagram show the hop's rate as full datagrams do.
#[test]
fn half_full_datagrams_show_the_rate() {
    for (mbps, length) in [(2, 800), (20, 740), (20, 1028), (100, 900)] {
        let mut w = Pairs::new(8);
        w.pipes[0].rate = Rate::from_mbps(mbps);
        // Half as much again as the hop carries.
        let every = Rate::from_mbps(mbps).time_for(Bytes::from(length)) * 2 / 3;
        let mut flows = [Flow { class: PacketClass::TRANSPORT, ..Flow::new(1, every) }];
        run(&mut w, &mut flows, |_| length, None, Time::from_secs(2));
        let sink = run(&mut w, &mut flows, |_| length, None, Time::from_secs(10));
        let (got, headers) = (sink.bytes as f64 / 1e6, (OVERHEAD + 20) as f64 / length as f64);
        let limit = mbps as f64 / (1.0 + headers);
        assert!(got > 0.94 * limit, "{got} of {limit} Mbit/s, {length} bytes");
        assert_eq!(w.pipes[0].dropped, 0, "{mbps} Mbit/s, {length} bytes");
    }
}

/// SRP-33: flows of a host share by their priorities, packets and streams together.
#[test]
fn flows_share_by_priorities() {
    let mut w = Pairs::new(4);
    let flow = |flow, priority| {
        let class = PacketClass { patience: 4.0, priority, ..BRIEF };
        Flow { class, until: Time::from_secs(100), ..Flow::new(flow, Duration::from_micros(400)) }
    };
    let mut flows = [flow(1, 1), flow(2, 3)];
    let mut bulk = Bulk::start(&mut w, 0, FOREVER);
    let second = Duration::from_secs(1);
    for (stream, expected) in [(1, [0.2, 0.6, 0.2]), (4, [0.125, 0.375, 0.5])] {
        w.ends[0][0].set_priority(bulk.id, stream);
        let (from, until) = (w.now + second, w.now + 9 * second);
        run(&mut w, &mut flows, |_| 690, Some(&mut bulk), from);
        let sink = run(&mut w, &mut flows, |_| 690, Some(&mut bulk), until);
        // Bits of eight seconds.
        let [one, other] = [1, 2].map(|flow| sink.numbers(flow).len() as f64 * 690.0 * 8.0);
        let all = [one, other, bulk.goodput(from, until) * 8.0];
        let sum: f64 = all.iter().sum();
        for (rate, share) in all.iter().zip(expected) {
            assert!((rate / sum - share).abs() < 0.1 * share, "{all:?} of {sum}");
        }
    }
}

/// SRP-35: of two hosts with streams the one that has one gets as much as the one that has five; and none waits for one
/// whose streams nobody reads.
#[test]
fn hosts_share_before_streams() {
    let mut w = Pairs::new(3);
    let mut bulks: Vec<Bulk> = (0..6).map(|_| Bulk::start(&mut w, 0, FOREVER)).collect();
    for bulk in &bulks[1..] {
        w.ends[0][0].set_client(bulk.id, 9);
    }
    let mut rates = |w: &mut Pairs, read: std::ops::Range<usize>| -> Vec<f64> {
        let (from, until) = (w.now + Duration::from_secs(2), w.now + Duration::from_secs(10));
        while w.now < until {
            bulks[read.clone()].iter_mut().for_each(|bulk| bulk.pump(w));
            w.step(until);
        }
        bulks.iter().map(|bulk| bulk.goodput(from, until)).collect()
    };
    let got = rates(&mut w, 0..6);
    let five: f64 = got[1..].iter().sum();
    assert!((0.85..1.15).contains(&(got[0] / five)), "{got:?}");
    assert!(got[1..].iter().all(|rate| (0.85..1.15).contains(&(rate * 5.0 / five))), "{got:?}");
    let alone = rates(&mut w, 0..1);
    assert!(alone[0] > 1.8 * got[0], "{alone:?} after {got:?}");
    let others = rates(&mut w, 1..2);
    assert!(others[1] > 1.8 * five, "{others:?} after {got:?}");
}

/// SRP-33: a queue that stands is kept short by dropping, or by marking what can be marked.
#[test]
fn a_standing_queue_is_kept_short() {
    for ecn_capable in [false, true] {
        let mut w = Pairs::new(3);
        // A little more than the hop carries.
        let every = Duration::from_micros(520);
        let mut flows = [Flow { ecn_capable, ..Flow::new(1, every) }];
        let sink = run(&mut w, &mut flows, |_| 1200, None, Time::from_secs(10));
        let stats = stats(&w, 0);
        if ecn_capable {
            assert!(stats.marked > 20 && stats.dropped_queue == 0, "{stats:?}");
            assert_eq!(sink.marked, stats.marked);
        } else {
            assert!(stats.dropped_queue > 20 && stats.marked == 0, "{stats:?}");
            assert!(sink.delay(1, 900) < Duration::from_millis(200), "{:?}", sink.delay(1, 900));
        }
        assert!(stats.bytes_held < 2 << 20, "{stats:?}");
    }
}

/// SRP-33: what marks do not slow is marked at first, and then kept short by dropping.
#[test]
fn what_marks_do_not_slow_is_dropped() {
    let run_until = |until| {
        let mut w = Pairs::new(3);
        // Half as much again as the hop carries.
        let every = Duration::from_micros(340);
        let mut flows = [Flow { ecn_capable: true, ..Flow::new(1, every) }];
        let sink = run(&mut w, &mut flows, |_| 1200, None, until);
        (stats(&w, 0), sink)
    };
    let (first, _) = run_until(Time::from_millis(800));
    assert!(first.marked > 0 && first.dropped_queue == 0, "{first:?}");
    let (stats, sink) = run_until(Time::from_secs(10));
    assert!(stats.dropped_queue > 8000 && stats.dropped_old == 0, "{stats:?}");
    assert!(sink.delay(1, 600) < Duration::from_millis(150), "{:?}", sink.delay(1, 600));
}

/// SRP-30: what has waited too long, for the end of a silence for instance, is not sent any more.
#[test]
fn what_is_too_old_is_not_sent() {
    let mut w = Pairs::new(8);
    w.silences = alloc::vec![(Time::from_secs(3), Time::from_secs(7))];
    let mut flows = [Flow::new(1, Duration::from_millis(20))];
    let sink = run(&mut w, &mut flows, |_| 160, None, Time::from_secs(11));
    let slowest = sink.of[&1].iter().map(|(_, delay)| *delay).max().unwrap();
    assert!(slowest < Duration::from_millis(1200), "{slowest:?}");
    let lost = flows[0].sent - sink.numbers(1).len() as u64;
    assert!((140..=160).contains(&lost), "{lost} of the 200 in the silence: {:?}", stats(&w, 0));
}

/// SRP-34: a peer that does not take packets is sent none.
#[test]
fn packets_go_only_to_who_takes_them() {
    let plain = HopConfig::default();
    let windowed =
        HopConfig { discipline: Discipline::Windowed(Window::default()), ..plain.clone() };
    let mut ends = pair(&plain, &windowed, Time::ZERO);
    assert!(ends[0].packets().is_none() && ends[1].packets().is_some());
    let mut ends = pair(&plain, &plain, Time::ZERO);
    assert!(ends[0].packets().is_some());
    ends[0].close(CloseReason::Shutdown);
    assert!(ends[0].packets().is_none(), "after the end");
}

/// SRP-34: a peer that sends packets to an end that has announced none, or longer ones, is left.
#[test]
fn who_sends_packets_that_were_not_asked_for_is_left() {
    let windowed = Discipline::Windowed(Window::default());
    let part = Some((0, 1001));
    for (packet_max, discipline, part, taken) in [
        (1000, Discipline::Paced, None, true),
        (999, Discipline::Paced, None, false),
        (1000, Discipline::Paced, part, false),
        (0, Discipline::Paced, None, false),
        (1000, windowed, None, false),
    ] {
        let own =
            HopConfig { packet_max: Bytes::new(packet_max), discipline, ..HopConfig::default() };
        let [mut end, _] = pair(&own, &HopConfig::default(), Time::ZERO);
        deliver(&mut end, 1, PacketFrame { part, ..WHOLE });
        let expected = (!taken).then_some(CloseReason::Protocol);
        assert_eq!(end.closed(), expected, "{packet_max} {discipline:?} {part:?}");
    }
}

/// SRP-31: those that wait for a packet that was lost twice do not wait for a third loss.
#[test]
fn what_was_lost_twice_is_sent_twice() {
    let mut w = lossy(6, 0.2);
    let class = PacketClass { patience: 20.0, doubled: false, ..PacketClass::default() };
    // As fast as to leave no time for copies of what is outstanding.
    let mut flows = [Flow { class, ..Flow::new(1, Duration::from_micros(800)) }];
    let sink = run(&mut w, &mut flows, |_| 1200, None, Time::from_secs(11));
    let stats = stats(&w, 0);
    let (doubled, sent) = (stats.doubled as f64, stats.sent as f64);
    assert!((0.03..0.06).contains(&(doubled / sent)), "{stats:?}");
    assert_eq!(stats.sent, sink.numbers(1).len() as u64, "none is lost");
    // A third loss is one in 125 packets, or 150 that wait for it; of two at once it is one in 625.
    assert!(sink.delay(1, 700) < 4 * RTT, "{:?}", sink.delay(1, 700));
}

/// SRP-34: a peer that contradicts itself is left, and one that sends much that cannot be delivered fills no memory.
#[test]
fn a_hostile_peer_fills_no_memory() {
    let frame = PacketFrame { number: 10, patience_ms: 60_000, ..WHOLE };
    let new = || pair(&HopConfig::default(), &HopConfig::default(), Time::ZERO);
    let [mut end, _] = new();
    deliver(&mut end, 1, PacketFrame { flow: 1024, ..frame });
    assert_eq!(end.closed(), Some(CloseReason::Protocol));
    let [mut end, _] = new();
    deliver(&mut end, 1, PacketFrame { part: Some((0, 2000)), ..frame });
    deliver(&mut end, 2, PacketFrame { part: Some((0, 3000)), ..frame });
    assert_eq!(end.closed(), Some(CloseReason::Protocol));
    for part in [None, Some((0, 60_000))] {
        let [mut end, _] = new();
        // Each waits for one that never comes.
        for n in 1..40_000 {
            let flow = n % 1000;
            deliver(&mut end, n, PacketFrame { number: 2 * n, after: 1, flow, part, ..frame });
        }
        let packets = crate::transport::Transport::stats(&end).packets;
        assert!(packets.bytes_held < 20 << 20 && packets.dropped_received > 0, "{packets:?}");
        assert_eq!(end.closed(), None);
        end.handle_timeout(Time::from_secs(60));
        let mut taken = 0;
        while let Some(lane) = end.packets()
            && lane.front().is_some()
        {
            lane.pop();
            taken += 1;
        }
        let packets = crate::transport::Transport::stats(&end).packets;
        assert!(part.is_some() || (packets.bytes_held == 0 && taken > 1000), "{packets:?}");
    }
}

/// MHP-22: what has not arrived can be taken back, and what is taken back does not arrive. The lane goes on.
#[test]
fn what_is_taken_back_has_not_arrived_and_does_not() {
    for seed in 0..40 {
        let mut w = lossy(seed, 0.15);
        // More than the hop carries, so that queues stand; some are cut.
        let mut flows: Vec<Flow> =
            (0..4).map(|n| Flow::new(n, Duration::from_micros(400 + 300 * n))).collect();
        let length = |f: &Flow| 60 + (f.sent * 131 % 3000) as usize;
        let at = Time::from_millis(300 + 37 * seed);
        let mut sink = run(&mut w, &mut flows, length, None, at);
        let taken = w.ends[0][0].packets().unwrap().take_back(at);
        assert!(!taken.is_empty(), "seed {seed}");
        let before: Vec<u64> = flows.iter().map(|flow| flow.sent).collect();
        let rest = run(&mut w, &mut flows, length, None, at + Duration::from_secs(2));
        for flow in &mut flows {
            flow.until = at;
        }
        let end = run(&mut w, &mut flows, length, None, at + Duration::from_secs(5));
        for more in [rest, end] {
            for (flow, came) in more.of {
                sink.of.entry(flow).or_default().extend(came);
            }
        }
        for (flow, before) in flows.iter().zip(before) {
            let of_flow = taken.iter().filter(|data| data[16..24] == flow.flow.to_be_bytes());
            let number = |data: &Vec<u8>| u64::from_be_bytes(data[..8].try_into().unwrap());
            let taken: Vec<u64> = of_flow.map(number).collect();
            let came = sink.numbers(flow.flow);
            assert!(taken.is_sorted_by(|a, b| a < b), "seed {seed}: {taken:?}");
            assert!(came.is_sorted_by(|a, b| a < b), "seed {seed}");
            assert!(taken.iter().all(|n| !came.contains(n)), "seed {seed}, flow {}", flow.flow);
            assert!(came.iter().filter(|n| **n >= before).count() > 100, "seed {seed}: it goes on");
        }
    }
}
