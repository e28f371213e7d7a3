//! One bound for the buffers of many associations.

use super::*;
use crate::memory::Memory;

const MOBILES: usize = 24;
const STREAMS: usize = 40;
const BOUND: Bytes = Bytes::from_mib(32);

/// A hop to many mobiles, whose base has one bound for all; each mobile has a path of its own as far as
/// the hop goes, which is fast.
fn many(memory: &Memory, mobiles: usize) -> Pairs {
    let mobile = HopConfig::default();
    let base = HopConfig { memory: memory.clone(), ..HopConfig::default() };
    let mut w = Pairs::new(1);
    w.ends = (0..mobiles).map(|_| self::pair(&mobile, &base, Time::ZERO)).collect();
    for pipe in &mut w.pipes {
        pipe.rate = Rate::from_mbps(400);
        pipe.queue = 10_000;
    }
    w
}

/// What bases hold in buffers.
fn held(w: &Pairs) -> u64 {
    w.ends.iter().map(|[_, base]| base.stats().memory.get()).sum()
}

/// A mobile that takes whatever it can get of a base and reads nothing, or whose servers read nothing.
struct Greedy {
    pair: usize,
    from: usize,
    ids: Vec<StreamId>,
}

impl Greedy {
    fn start(w: &mut Pairs, pair: usize, from: usize) -> Self {
        let end = &mut w.ends[pair][from];
        Self { pair, from, ids: (0..STREAMS).map(|_| end.open().unwrap()).collect() }
    }

    fn pump(&self, w: &mut Pairs) {
        let end = &mut w.ends[self.pair][self.from];
        for id in &self.ids {
            while let Ok(room) = end.send_space(*id)
                && !room.is_empty()
            {
                let n = room.len();
                end.commit(*id, n);
            }
        }
        for end in &mut w.ends[self.pair] {
            while end.poll_event().is_some() {}
        }
    }
}

/// The most that the base held while all but the last mobile read nothing, one way and the other, and
/// the goodputs of the last, which read.
fn besiege(memory: &Memory) -> (u64, [f64; 2]) {
    let mut w = many(memory, MOBILES + 1);
    let greedy: Vec<Greedy> =
        (0..MOBILES).map(|pair| Greedy::start(&mut w, pair, pair % 2)).collect();
    let mut most = 0;
    let mut run = |w: &mut Pairs, bulks: &mut [Bulk], until: Time| {
        while w.now < until {
            let next = w.now + Duration::from_millis(20);
            greedy.iter().for_each(|g| g.pump(w));
            while w.now < next {
                bulks.iter_mut().for_each(|b| b.pump(w));
                w.step(next);
            }
            most = most.max(held(w));
        }
    };
    run(&mut w, &mut [], Time::from_secs(2));
    let mut bulks = [1, 0].map(|from| Bulk::start_on(&mut w, MOBILES, from, FOREVER));
    run(&mut w, &mut bulks, Time::from_secs(6));
    let goodputs = bulks.map(|b| b.goodput(Time::from_secs(4), w.now));
    assert!(w.ends.iter().flatten().all(|end| end.closed().is_none()));
    (most, goodputs)
}

/// What a direction of a mobile can move in a second, if all are given equally much and a round trip
/// takes 40 ms: memory is counted for two and a half times the credit that it backs.
fn fair() -> f64 {
    let share = BOUND.get() / (MOBILES as u64 + 1) / 2;
    share as f64 / 2.5 * 8.0 / 0.04
}

/// SEC-13, SEC-14: however many mobiles read nothing, or send to servers that read nothing, a base
/// holds no more than its bound, and one that reads has its share of it.
#[test]
fn mobiles_that_read_nothing_hold_no_more_than_the_bound() {
    let (unbounded, _) = besiege(&Memory::default());
    assert!(unbounded > 3 * BOUND.get(), "{unbounded}");
    let memory = Memory::bounded(BOUND, 32);
    let (most, goodputs) = besiege(&memory);
    assert!(most <= BOUND.get(), "{most}");
    assert_eq!(memory.needed(), Bytes::ZERO, "all was given back");
    for goodput in goodputs {
        assert!(goodput > 0.8 * fair(), "{goodputs:?} {}", fair());
    }
}

/// SEC-14: what idle mobiles do not need is anybody's: one that is busy beside them is as fast as
/// without a bound.
#[test]
fn idle_mobiles_leave_their_share_to_the_others() {
    let goodputs = [Memory::default(), Memory::bounded(BOUND, 32)].map(|memory| {
        let mut w = many(&memory, 32);
        let mut bulks = [1, 0].map(|from| Bulk::start_on(&mut w, 31, from, FOREVER));
        while w.now < Time::from_secs(4) {
            bulks.iter_mut().for_each(|b| b.pump(&mut w));
            w.step(Time::from_secs(4));
        }
        assert!(memory.bound().is_none_or(|bound| memory.needed() <= bound));
        bulks.map(|b| b.goodput(Time::from_secs(2), w.now))
    });
    let [without, with] = goodputs;
    for (without, with) in without.into_iter().zip(with) {
        assert!(with > 0.95 * without, "{goodputs:?}");
    }
}

/// SEC-15: a base holds neither rings nor ranges beyond what was granted, whatever is sent: streams that
/// were large and are left with a byte, and bytes of which every other one is missing.
#[test]
fn hollow_buffers_and_shreds_are_counted() {
    use lasthop_wire::frame::{Frame, StreamFrame, Writer};
    let memory = Memory::bounded(Bytes::from_mib(16), 2);
    let mut w = many(&memory, 1);
    let ids: Vec<StreamId> = (0..200).map(|_| w.ends[0][0].open().unwrap()).collect();
    for id in &ids {
        w.ends[0][0].write(*id, &[1; 200_000]).unwrap();
        let soon = w.now + Duration::from_millis(200);
        while w.step(soon) {}
        let base = &mut w.ends[0][1];
        while !base.received(*id).is_empty() && base.streams.inspect()[&id.0].waiting > 1 {
            let n =
                (base.streams.inspect()[&id.0].waiting - 1).min(base.received(*id).len() as u64);
            base.consume(*id, n as usize);
        }
        assert!(held(&w) <= memory.needed().get() && memory.needed().get() <= 16 << 20);
    }
    assert_eq!(w.ends[0][1].streams.inspect().values().map(|s| s.waiting).sum::<u64>(), 200);

    let (base, mut number, mut offset) = (&mut w.ends[0][1], 1 << 20, 0);
    while base.closed().is_none() && offset < 1 << 20 {
        let mut out = [0; 1200];
        let mut writer = Writer::new(&mut out);
        let id = ids.len() as u64 * 2;
        let shred = |offset| Frame::Stream(StreamFrame { id, offset, fin: false, data: b"x" });
        while writer.put(&shred(offset + 1)) && writer.room() > 40 {
            offset += 2;
        }
        let len = writer.len();
        number += 1;
        base.handle(w.now, PathId::FIRST, number, &out[..len]).unwrap();
        base.poll(w.now, &mut [0; 2000]);
    }
    assert_eq!(base.closed(), Some(CloseReason::Protocol), "{offset}");
    assert!(offset > 20_000, "{offset}");
}
