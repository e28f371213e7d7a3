//! Priorities: how streams divide the window and the turns.

use super::*;

const WINDOW: u64 = 4 << 20;

fn windows(end: &Srp) -> Vec<u64> {
    end.streams.inspect().values().map(|s| s.window).collect()
}

fn turns(end: &Srp) -> Vec<u64> {
    end.streams.inspect().values().map(|s| s.turn).collect()
}

fn run(w: &mut Pairs, bulks: &mut [Bulk], until: Time) {
    while w.now < until {
        bulks.iter_mut().for_each(|b| b.pump(w));
        w.step(until);
    }
}

/// RWC-2, UFB-3: from the first priority on the receiver's window and the sender's turns are
/// divided, at both ends alike, new streams included; until then nothing is.
#[test]
fn both_ends_divide_by_the_priorities_that_one_was_given() {
    let mut w = Pairs::new(1);
    let mut bulks = [(); 2].map(|()| Bulk::start(&mut w, 1, FOREVER));
    run(&mut w, &mut bulks, Time::from_millis(500));
    assert!(w.ends[0].iter().all(|end| end.streams.sharing().is_none()));
    w.ends[0][0].set_priority(bulks[0].id, 3);
    run(&mut w, &mut bulks, Time::from_millis(600));
    for end in &w.ends[0] {
        assert_eq!(windows(end), [WINDOW * 3 / 4, WINDOW / 4]);
        assert_eq!(turns(end), [3 * 256, 256]);
    }
    let mut third = [Bulk::start(&mut w, 1, FOREVER)];
    run(&mut w, &mut third, Time::from_millis(700));
    for end in &w.ends[0] {
        // A fifth of 1024 units is rounded to 205; three fifths to 614, and the new stream has the
        // remainder, which is a fifth too.
        let unit = WINDOW / 1024;
        assert_eq!(windows(end), [614 * unit, 205 * unit, 205 * unit]);
    }
}

/// RWC-9: a stream whose priority falls keeps the credit that it was granted.
#[test]
fn credit_that_was_granted_stays_granted() {
    let mut w = Pairs::new(1);
    let mut bulks = [(); 2].map(|()| Bulk::start(&mut w, 1, FOREVER));
    run(&mut w, &mut bulks, Time::from_secs(1));
    let limit = |w: &Pairs, b: &Bulk| w.ends[0][0].streams.inspect()[&b.id.0].limit;
    let before = limit(&w, &bulks[0]);
    w.ends[0][0].set_priority(bulks[0].id, 0);
    assert_eq!(limit(&w, &bulks[0]), before);
    run(&mut w, &mut bulks, Time::from_secs(8));
    assert!(w.ends[0].iter().all(|end| end.closed().is_none()));
    // The least that there is: it goes on, one datagram to the other's 64.
    let rates = bulks.each_ref().map(|b| b.goodput(Time::from_secs(4), w.now));
    let ratio = rates[1] / rates[0];
    assert!((50.0..80.0).contains(&ratio), "{rates:?}");
}

/// A priority frame that is lost is sent again, in its latest form.
#[test]
fn priorities_reach_the_peer_over_a_lossy_hop() {
    for seed in 0..20 {
        let mut w = Pairs::new(seed);
        w.pipes.iter_mut().for_each(|p| p.loss = 0.4);
        let mut bulks = [(); 2].map(|()| Bulk::start(&mut w, 1, FOREVER));
        for priority in 2..9 {
            let soon = w.now + Duration::from_millis(40);
            run(&mut w, &mut bulks, soon);
            w.ends[0][0].set_priority(bulks[1].id, priority);
        }
        run(&mut w, &mut bulks, Time::from_secs(2));
        assert_eq!(w.ends[0][1].streams.inspect()[&bulks[1].id.0].priority, 8, "seed {seed}");
    }
}

/// A stream that has nothing to send leaves the hop to the others, whatever its priority.
#[test]
fn an_idle_stream_costs_the_others_nothing() {
    let mut w = Pairs::new(1);
    let idle = Bulk::start(&mut w, 1, 100);
    let mut bulks = [idle, Bulk::start(&mut w, 1, FOREVER)];
    run(&mut w, &mut bulks[..1], Time::from_millis(200));
    w.ends[0][0].set_priority(bulks[0].id, 1000);
    run(&mut w, &mut bulks, Time::from_secs(8));
    let share = bulks[1].goodput(Time::from_secs(3), w.now) / 19.3e6;
    assert!(share > 0.95, "{share}");
}

/// RWC-10: streams that end or leave are out of the division.
#[test]
fn streams_that_end_take_no_share() {
    let mut w = Pairs::new(1);
    let ids = [(); 3].map(|()| w.ends[0][0].open().unwrap());
    let end = &mut w.ends[0][0];
    end.set_priority(ids[0], 2);
    assert_eq!(windows(end), [WINDOW / 2, WINDOW / 4, WINDOW / 4]);
    assert!(end.detach(ids[1]).is_some());
    end.reset(ids[2], 1);
    let live = |end: &Srp| end.streams.sharing();
    assert_eq!(live(end), Some(vec![ids[0].0, ids[2].0]), "a reset stream lasts until it is known");
    w.ends[0][1].reset(ids[2], 1);
    let until = w.now + Duration::from_secs(3);
    while w.step(until) {}
    assert_eq!(live(&w.ends[0][0]), Some(vec![ids[0].0]));
    w.ends[0][0].set_priority(ids[2], 7);
    assert_eq!(live(&w.ends[0][0]), Some(vec![ids[0].0]));
}

/// A datagram with as many of these frames as fit.
fn full_of<'f>(frames: impl Iterator<Item = lasthop_wire::frame::Frame<'f>>) -> (Vec<u8>, u64) {
    let mut out = [0; 1200];
    let mut writer = lasthop_wire::frame::Writer::new(&mut out);
    let count = frames.take_while(|frame| writer.put(frame)).count() as u64;
    let len = writer.len();
    (out[..len].to_vec(), count)
}

/// SEC-17: a datagram full of frames costs what it carries, however many streams there are: for each frame a
/// few looks at the stream that it names, and none at others.
#[test]
fn frames_cost_the_same_however_many_streams_there_are() {
    use lasthop_wire::frame::Frame;
    let ids = |n: u64| (0..n).cycle().map(|n| 2 * n);
    for streams in [8, 2000] {
        let mut w = Pairs::new(1);
        let opened: Vec<StreamId> = (0..streams).map(|_| w.ends[0][0].open().unwrap()).collect();
        for id in opened {
            w.ends[0][0].write(id, b"some bytes").unwrap();
        }
        while w.step(Time::from_secs(2)) {}
        let base = &mut w.ends[0][1];
        assert_eq!(base.stats().streams, streams as usize);
        let datagrams = [
            full_of(core::iter::repeat(Frame::Blocked)),
            full_of(ids(8).map(|id| Frame::StreamBlocked { id })),
            full_of(ids(8).zip(2..).map(|(id, n)| Frame::Priority { id, priority: n % 1000 })),
            full_of(ids(8).zip(1..).map(|(id, limit)| Frame::StreamCredit { id, limit })),
            full_of((1..).map(Frame::Credit)),
            full_of(core::iter::repeat(Frame::Ping)),
        ];
        for (number, (datagram, frames)) in (1 << 20..).zip(&datagrams) {
            let before = base.streams.visits();
            base.handle(w.now, PathId::FIRST, number, datagram).unwrap();
            while base.poll(w.now, &mut [0; 2000]).is_some() {}
            let _ = base.next_timeout();
            let visits = base.streams.visits() - before;
            assert!(visits <= 8 * frames + 64, "{number}: {visits} for {frames} of {streams}");
        }
        assert!(base.streams.sharing().is_some() && base.closed().is_none());
    }
}

/// SEC-17: streams that wait for credit for all of them are not looked at by each datagram that comes.
#[test]
fn streams_without_credit_cost_nothing() {
    use lasthop_wire::frame::Frame;
    let mut w = Pairs::with(
        1,
        HopConfig { association_window: Bytes::from_kib(64), ..HopConfig::default() },
    );
    let opened: Vec<StreamId> = (0..2000).map(|_| w.ends[0][1].open().unwrap()).collect();
    for id in &opened {
        w.ends[0][1].write(*id, &[1; 1000]).unwrap();
    }
    while w.step(Time::from_secs(3)) {}
    let base = &mut w.ends[0][1];
    // A bare end needs no credit, and goes all the same.
    base.finish(opened[0]);
    assert!(base.poll(w.now, &mut [0; 2000]).is_some());
    let (ping, _) = full_of(core::iter::repeat(Frame::Ping));
    let before = base.streams.visits();
    for number in 1 << 20..(1 << 20) + 10 {
        base.handle(w.now, PathId::FIRST, number, &ping).unwrap();
        while base.poll(w.now, &mut [0; 2000]).is_some() {}
        let _ = base.next_timeout();
    }
    let visits = base.streams.visits() - before;
    assert!(visits < 200, "{visits}");
}

/// A stream's share follows from all priorities, in whatever order they came.
#[test]
fn many_priorities_in_a_datagram_divide_as_the_last_of_each() {
    use lasthop_wire::frame::Frame;
    let mut w = Pairs::new(1);
    let ids = [(); 3].map(|()| w.ends[0][0].open().unwrap());
    let end = &mut w.ends[0][0];
    end.set_priority(ids[0], 2);
    let priorities = (0..300).map(|n| Frame::Priority { id: ids[1].0, priority: 6 + n % 2 });
    let (datagram, frames) = full_of(priorities);
    assert_eq!(frames, 300);
    end.handle(w.now, PathId::FIRST, 1, &datagram).unwrap();
    assert_eq!(windows(end), [205, 717, 102].map(|units| units * (WINDOW / 1024)));
}
