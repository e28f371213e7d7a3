//! A mobile and a base that are known and mean harm, beside a mobile that moves.

use lasthop_wire::mhp::handoff::{Datagram, Message, Pieces};

use super::paths::{moves, world};
use super::*;
use crate::handoff::{Address, Grant};

/// A mobile that is served here and invents sessions.
const INSIDER: u32 = MOBILE + 1;
/// A base that is a peer and invents sessions.
const PEER: u32 = 3;

fn said(session: u64, attempt: u32, message: Message<'_>) -> Vec<u8> {
    let mut out = vec![];
    Datagram { session: SessionId(session), attempt, message }.encode(&mut out);
    out
}

/// All that a mobile can say of a session.
fn of_mobile(session: u64, attempt: u32) -> Vec<Vec<u8>> {
    let grants = vec![(1_u32.to_name(), Grant([7; Grant::LEN])); 16];
    let greet =
        |holder: u32| Message::Greet { holder: holder.to_name(), since: 0, grants: grants.clone() };
    let expect = |candidate: u32| Message::Expect { candidate: candidate.to_name() };
    let here = Message::Here { since: 0 };
    let all = [here, expect(PEER), expect(1), expect(2), greet(PEER), greet(1), greet(2)];
    all.into_iter().map(|message| said(session, attempt, message)).collect()
}

/// All that a base can say of a session.
fn of_base(session: u64, attempt: u32) -> Vec<Vec<u8>> {
    let (limit, piece, window, since) = (u64::MAX, 1000, u16::MAX, 0);
    let pieces = vec![Pieces { first: 0, count: u16::MAX }; 16];
    let (number, generation, total, offset, bytes) = (1, 1, 16 << 20, 0, &[7; 1000][..]);
    let all = [
        Message::Handover { limit, piece, window, since, copy: None, warrant: None },
        Message::Ahead { number, total, offset, bytes },
        Message::State { generation, total, offset, bytes },
        Message::Pull { piece: 1, pieces: pieces.clone() },
        Message::Fetch { number, piece: 1, pieces },
        Message::Commit { generation, warrant: None },
        Message::Moved { to: 2_u32.to_name(), since: 9 },
    ];
    all.into_iter().map(|message| said(session, attempt, message)).collect()
}

impl Roaming {
    /// So many sessions are invented, at bases 1 and 2.
    fn invent(&mut self, sessions: core::ops::Range<u64>) {
        let now = self.now;
        for n in sessions {
            for base in [1, 2] {
                let attempt = (n % 7) as u32;
                self.with_node(base, |station, world| {
                    for message in of_mobile(1000 + n, attempt) {
                        station.handle_mobile(world, now, INSIDER, &message);
                    }
                    // The same of one session, again and again.
                    for message in of_mobile(999, n as u32) {
                        station.handle_mobile(world, now, INSIDER, &message);
                    }
                    for message in of_base(1000 + n, attempt) {
                        station.handle_peer(world, now, At::messages(PEER), PEER, &message);
                    }
                });
            }
            if n % 50 == 0 {
                self.poll();
            }
        }
        self.poll();
    }
}

/// SEC-10: a mobile and a base that invent sessions without end take nothing from a mobile that moves, and no
/// more room than they have.
#[test]
fn invented_sessions_cost_the_others_nothing() {
    for mode in [Mode::Anchor, Mode::Migrate] {
        let (mut world, id) = world(mode);
        let mut invented = 0;
        for to in [2, 1, 2] {
            world.invent(invented..invented + 16_000);
            invented += 16_000;
            world.mobile.handle_upcall(world.now, to);
            for _ in 0..20 {
                world.invent(invented..invented + 50);
                invented += 50;
                world.wait(MS);
                (0..20).for_each(|_| _ = world.deliver());
                world.carry(usize::MAX, usize::MAX);
                world.carry_links(usize::MAX);
            }
            moves(&mut world, id, to);
            for node in &world.nodes[..2] {
                let machine = node.station.machine();
                assert!(machine.sessions() <= 18, "{} sessions", machine.sessions());
                assert!(machine.pending() <= 4 && machine.backlog() <= 2 * ROUND_MAX);
                assert!(machine.copies() <= 300, "{} copies", machine.copies());
            }
        }
        assert_eq!(world.broken, 0);
        // The insider leaves, and nothing is left of what it said.
        let now = world.now;
        for base in [1, 2] {
            let at = At { pair: usize::MAX - 100, link: false };
            world.with_node(base, |station, world| {
                station.handle_up(world, now, at, INSIDER);
                station.handle_lost(world, now, at);
            });
        }
        world.run(Duration::from_secs(130));
        for node in &world.nodes[..2] {
            let machine = node.station.machine();
            assert!(machine.sessions() <= 1, "{} sessions", machine.sessions());
            assert_eq!((machine.pending(), machine.copies()), (0, 0));
        }
        moves(&mut world, id, 1);
    }
}

/// Wired halves of one mobile's sessions wait for but a few of them: one more ends the one that would be over
/// first, and no other mobile's.
#[test]
fn a_mobile_leaves_few_sessions_behind() {
    use super::super::kept::KEPT_OF_ONE;
    let (mut world, _) = world(Mode::Anchor);
    let now = world.now;
    world.with_node(1, |station, world| {
        let keep = |station: &mut node::Base, world: &mut node::NodeWires<'_>, mobile, session| {
            let socket = world.spare(ConnId(2 * session));
            let sockets = BTreeMap::from([(ConnId(2 * session), socket)]);
            station.keep(world, now, SessionId(session), mobile, vec![], sockets);
        };
        keep(station, world, MOBILE, 1);
        for session in 2..1000 {
            keep(station, world, INSIDER, session);
        }
        assert_eq!(station.anchored(), KEPT_OF_ONE + 1);
        assert!(station.kept.contains_key(&SessionId(1)), "another mobile's");
        assert!(station.kept.contains_key(&SessionId(999)), "the last");
        assert_eq!(world.sockets.left().1, KEPT_OF_ONE + 2, "one is in use");
    });
}
