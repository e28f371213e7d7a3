//! Priorities: windows that are divided, and peers that know nothing of it.

use super::*;

/// A round trip, during which each sender sends what its window lets.
const TRIP: Duration = Duration::from_millis(40);

/// Fills both connections' senders at the base, lets a packet take a round trip, and counts what the
/// mobile reads of each in `trips` of them.
fn downloaded(world: &mut Pair, ids: [StreamId; 2], trips: usize) -> [usize; 2] {
    let mut got = [0; 2];
    for _ in 0..trips {
        for id in ids {
            let _ = world.base.write(id, &[7; 40_000]).unwrap();
        }
        let down = poll_all(&mut world.base, world.now);
        world.now += TRIP;
        down.iter().for_each(|p| world.mobile.handle(world.now, p).unwrap());
        for (id, got) in ids.into_iter().zip(&mut got) {
            *got += read(&mut world.mobile, id).len();
        }
        let up = poll_all(&mut world.mobile, world.now);
        up.iter().for_each(|p| world.base.handle(world.now, p).unwrap());
        for end in [&mut world.mobile, &mut world.base] {
            if end.next_timeout().is_some_and(|at| at <= world.now) {
                end.handle_timeout(world.now);
            }
            events(end);
        }
    }
    got
}

fn share(got: [usize; 2]) -> f64 {
    got[0] as f64 / (got[0] + got[1]) as f64
}

/// RWC-2, RWC-4, RWC-6, RWC-7: the receiving end alone gets them, the sender keeps to the windows that
/// it is granted, and together they are what they were.
#[test]
fn downloads_follow_the_windows_that_priorities_grant() {
    let mut world = Pair::new();
    let ids = [world.connection(), world.connection()];
    let alike: usize = downloaded(&mut world, ids, 50).iter().sum();
    for (priorities, due) in [([1, 1], 0.5), ([2, 1], 2.0 / 3.0), ([1, 3], 0.25)] {
        for (id, priority) in ids.into_iter().zip(priorities) {
            world.mobile.set_priority(id, priority);
        }
        downloaded(&mut world, ids, 5);
        let got = downloaded(&mut world, ids, 50);
        assert!((share(got) - due).abs() < 0.1 * due, "{priorities:?}: {got:?}");
        let sum = got.iter().sum::<usize>() as f64 / alike as f64;
        assert!((sum - 1.0).abs() < 0.05, "{priorities:?}: {got:?}, {alike} before");
    }
}

/// RWC-9: a window that was advertised is never taken back; it gets smaller as it is used.
#[test]
fn an_advertised_window_is_not_taken_back() {
    let mut world = Pair::new();
    let ids = [world.connection(), world.connection()];
    let mut told = [0u64; 2];
    for (n, priority) in [(0, 1), (1, 1), (30, 9), (60, 1), (90, 500)] {
        world.mobile.set_priority(ids[0], priority);
        world.base.write(ids[0], &[n; 3000]).unwrap();
        let down = poll_all(&mut world.base, world.now);
        down.iter().for_each(|p| world.mobile.handle(world.now, p).unwrap());
        for packet in poll_all(&mut world.mobile, world.now) {
            let header = data(&packet);
            let edge = u64::from(header.ack.0) + u64::from(header.window);
            let known = &mut told[usize::from(header.cid.0 != 1)];
            assert!(edge >= *known, "{header:?} after {known}");
            *known = edge;
            world.base.handle(world.now, &packet).unwrap();
        }
        read(&mut world.mobile, ids[0]);
    }
}

/// RWC-10: a connection that ends leaves its window to those that go on.
#[test]
fn a_connection_that_ends_leaves_its_window() {
    let mut world = Pair::new();
    let ids = [world.connection(), world.connection()];
    world.mobile.set_priority(ids[0], 3);
    downloaded(&mut world, ids, 5);
    let [before, _] = downloaded(&mut world, ids, 20);
    world.mobile.reset(ids[0], 0);
    world.pass(Duration::from_secs(1));
    let mut got = 0;
    for _ in 0..20 {
        let _ = world.base.write(ids[1], &[7; 40_000]).unwrap();
        let down = poll_all(&mut world.base, world.now);
        world.now += TRIP;
        down.iter().for_each(|p| world.mobile.handle(world.now, p).unwrap());
        got += read(&mut world.mobile, ids[1]).len();
        let up = poll_all(&mut world.mobile, world.now);
        up.iter().for_each(|p| world.base.handle(world.now, p).unwrap());
    }
    // One window of its own, where three quarters of two were the other's.
    let due = before as f64 * 11.0 / 16.0;
    assert!((got as f64 / due - 1.0).abs() < 0.15, "{got}, due {due}");
}
