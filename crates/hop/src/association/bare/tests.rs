//! Mobiles and a base on a bare hop in virtual time.

use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use lasthop_units::{LinkEvent, Seed, Time};
use lasthop_wire::mobile_tcp::{Cid, Code, Control, DataHeader, Packet};

use super::*;
use crate::association::testbed::{Addr, BASE, Testbed, read};
use crate::association::{AssociationEvent, AssociationId, Mobile, Refusal};
use crate::config::HopConfig;
use crate::greeting::LinkMessage;
use crate::mobile_tcp::{self, MobileTcp};
use crate::seal::Keypair;
use crate::streams::{RecvState, StreamId, Streams};
use crate::transport::CloseReason;
use crate::unreachable::Unreachable;

const DELAY: Duration = Duration::from_millis(5);

type Ends = Testbed<BareLink<Addr>, BareLinks<Addr>>;

fn new_mobile(n: u64, now: Time) -> BareMobile<Addr> {
    let seed = Seed::from_u64(100 + n).child("mobile");
    BareMobile::new(mobile_tcp::Config::default(), BASE, seed, now)
}

fn new_base(n: u64, bounds: BareBounds) -> BareBase<Addr> {
    BareBase::new(mobile_tcp::Config::default(), bounds, Seed::from_u64(n).child("base"))
}

impl Ends {
    fn new(loss: f64, seed: u64) -> Self {
        let base = new_base(seed, BareBounds::default());
        Self::between(new_mobile(1, Time::ZERO), base, DELAY, loss, seed)
    }

    /// What the base has for the mobile at `addr`.
    fn at_base(&mut self, addr: Addr) -> &mut MobileTcp {
        let id = self.base.views().find(|v| v.peer == Some(addr)).map(|v| v.id);
        let association = self.base.association_mut(id.expect("a known mobile"));
        association.expect("a known mobile").transport_mut()
    }

    /// What the base has for the first mobile, if anything.
    fn read_at_base(&mut self, id: StreamId) -> Vec<u8> {
        let addr = self.mobiles[0].0;
        let known = self.base.views().any(|v| v.peer == Some(addr));
        if known { read(self.at_base(addr), id) } else { Vec::new() }
    }
}

/// A packet for which nobody has a connection.
fn data_for(cid: u16) -> Vec<u8> {
    let mut out = vec![0; 40];
    out[16..21].copy_from_slice(b"bytes");
    let header = DataHeader { code: Code::ACK, cid: Cid(cid), ..DataHeader::default() };
    let len = header.emit(5, &mut out).unwrap();
    out.truncate(len);
    out
}

fn greeting(life: u64) -> Vec<u8> {
    let mut out = vec![0; 64];
    let len = LinkMessage::Greeting { life, first_stream: 0 }.emit(&mut out).unwrap();
    out.truncate(len);
    out
}

/// MOB-1: nothing but the paper's packets is on the hop, after one greeting and its answer.
#[test]
fn streams_cross_a_bare_hop_in_the_paper_s_packets() {
    let mut w = Ends::new(0.0, 1);
    let id = w.mobile().open().unwrap();
    assert_eq!(w.mobile().write(id, b"\xffearly words"), Ok(12));
    assert!(!w.mobile().is_up());
    w.run(Duration::from_secs(2));
    assert_eq!(w.mobile_events(), [AssociationEvent::Up]);
    assert_eq!(read(w.at_base(1), id), b"\xffearly words");
    w.at_base(1).write(id, b"an answer").unwrap();
    w.run(Duration::from_secs(2));
    assert_eq!(read(w.mobile(), id), b"an answer");
    assert_eq!(w.base_events, [(AssociationId(0), AssociationEvent::Up)]);
    let words = w.recorded.iter().filter(|r| LinkMessage::is_one(&r.2)).count();
    assert_eq!(words, 2);
    assert!(w.recorded.iter().all(|r| Packet::decode(&r.2).is_ok()));
    assert_eq!((w.base.refused(), w.mobile().refused()), (0, 0));
}

#[test]
fn greetings_and_streams_survive_heavy_loss() {
    for seed in 0..40 {
        let mut w = Ends::new(0.3, seed);
        let id = w.mobile().open().unwrap();
        let data: Vec<u8> = (0..30_000_u32).map(|n| (n % 251) as u8 | 0x80).collect();
        let (mut sent, mut got) = (0, Vec::new());
        for _ in 0..400 {
            sent += w.mobile().write(id, &data[sent..]).unwrap();
            w.run(Duration::from_millis(500));
            if w.mobile().is_up() && w.base.peers() == 1 {
                got.extend(read(w.at_base(1), id));
            }
            if got.len() == data.len() {
                break;
            }
        }
        assert!(got == data, "seed {seed}: {} of {} bytes", got.len(), data.len());
        assert_eq!(w.mobile_events(), [AssociationEvent::Up], "seed {seed}");
        assert_eq!(w.base_events.len(), 1, "seed {seed}: {:?}", w.base_events);
    }
}

/// MOB-18: connection IDs are unique among a base's connections with one mobile; the address says
/// which mobile's they are.
#[test]
fn two_mobiles_use_the_same_identifiers_at_one_base() {
    let mut w = Ends::new(0.1, 1);
    w.mobiles.push((2, new_mobile(2, Time::ZERO)));
    let mut ids = Vec::new();
    for (n, (_, mobile)) in w.mobiles.iter_mut().enumerate() {
        let id = mobile.open().unwrap();
        mobile.write(id, &[0xf0 | n as u8; 10]).unwrap();
        ids.push(id);
    }
    w.run(Duration::from_secs(10));
    assert_eq!(ids[0], ids[1]);
    for (n, addr) in [1, 2].into_iter().enumerate() {
        assert_eq!(read(w.at_base(addr), ids[n]), [0xf0 | n as u8; 10]);
        let answer = [n as u8; 5];
        w.at_base(addr).write(ids[n], &answer).unwrap();
    }
    w.run(Duration::from_secs(10));
    for (n, (_, mobile)) in w.mobiles.iter_mut().enumerate() {
        assert_eq!(read(mobile, ids[n]), [n as u8; 5]);
    }
    let cids = |addr: Addr| {
        let to_base = w.recorded.iter().filter(move |r| r.0 == addr && r.1 == BASE);
        let data = to_base.filter_map(|r| match Packet::decode(&r.2) {
            Ok(Packet::Data(header, _)) => Some(header.cid),
            _ => None,
        });
        data.filter(|cid| !cid.is_none()).collect::<Vec<_>>()
    };
    assert!(cids(1).iter().any(|cid| cids(2).contains(cid)), "the case is not met");
}

#[test]
fn garbage_changes_nothing_but_a_counter() {
    let mut w = Ends::new(0.0, 1);
    let id = w.mobile().open().unwrap();
    w.mobile().write(id, b"\xffwords").unwrap();
    w.run(Duration::from_secs(2));
    assert_eq!(read(w.at_base(1), id), b"\xffwords");
    let recorded: Vec<_> = w.recorded.iter().filter(|r| r.1 == BASE).cloned().collect();
    let (before, sent) = (w.base.refused(), w.recorded.len());
    let mut attempts = 0;
    for (_, _, bytes) in &recorded {
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x41;
            for from in [1, 666] {
                w.base.handle_datagram(w.now, from, &mut damaged.clone());
                attempts += 1;
            }
        }
        for cut in [15, 9, 1, 0] {
            w.base.handle_datagram(w.now, 1, &mut bytes[..cut].to_vec());
            attempts += 1;
        }
    }
    assert_eq!(w.base.refused() - before, attempts);
    w.transmit();
    assert_eq!(w.recorded.len(), sent, "garbage is not answered");
    w.mobile().write(id, b" and more").unwrap();
    w.run(Duration::from_secs(2));
    assert_eq!(read(w.at_base(1), id), b" and more");
    assert_eq!(w.base.peers(), 1);
}

#[test]
fn a_stranger_gets_unknown_and_nothing_is_kept_of_it() {
    let mut w = Ends::new(0.0, 1);
    let id = w.mobile().open().unwrap();
    w.mobile().write(id, b"\xffwords").unwrap();
    w.run(Duration::from_secs(2));
    read(w.at_base(1), id);
    let stats = w.at_base(1).stats();
    let spoken = w.recorded.iter().filter(|r| r.1 == BASE && !LinkMessage::is_one(&r.2));
    let spoken: Vec<_> = spoken.map(|r| r.2.clone()).collect();
    for mut bytes in spoken {
        w.base.handle_datagram(w.now, 666, &mut bytes);
    }
    w.recorded.clear();
    w.transmit();
    assert!(!w.recorded.is_empty());
    assert!(
        w.recorded
            .iter()
            .all(|r| r.1 == 666 && LinkMessage::decode(&r.2) == Some(LinkMessage::Unknown))
    );
    assert_eq!(w.base.peers(), 1);
    assert_eq!(w.at_base(1).stats(), stats);
    assert_eq!(read(w.at_base(1), id), b"");
    assert!(w.base.stats().strangers > 0);
}

#[test]
fn what_is_not_from_the_base_is_refused_by_the_mobile() {
    let mut w = Ends::new(0.0, 1);
    let id = w.mobile().open().unwrap();
    w.mobile().write(id, b"\xffwords").unwrap();
    w.run(Duration::from_secs(2));
    w.at_base(1).write(id, b"once").unwrap();
    w.run(Duration::from_secs(2));
    assert_eq!(read(w.mobile(), id), b"once");
    let before = w.mobile().refused();
    let spoken = w.recorded.iter().filter(|r| r.1 == 1 && !LinkMessage::is_one(&r.2));
    let spoken: Vec<_> = spoken.map(|r| r.2.clone()).collect();
    assert!(!spoken.is_empty());
    for bytes in &spoken {
        let now = w.now;
        w.mobile().handle_datagram(now, 666, &mut bytes.clone());
    }
    assert_eq!(w.mobile().refused() - before, spoken.len() as u64);
    assert_eq!(read(w.mobile(), id), b"");
}

#[test]
fn a_flood_of_strangers_is_answered_seldom_and_keeps_no_memory() {
    let mut w = Ends::new(0.0, 1);
    for from in 2000..12_000 {
        w.base.handle_datagram(w.now, from, &mut data_for(7));
    }
    assert_eq!((w.base.peers(), w.base.stats().strangers), (0, 10_000));
    assert!(w.base.stats().throttled > 9_800);
    w.transmit();
    assert!(w.recorded.iter().filter(|r| r.0 == BASE).count() <= 64);
    // A genuine mobile still gets in.
    w.run(Duration::from_secs(2));
    assert!(w.mobile().is_up());
}

/// Two ends that tell each other that they do not know each other do not do so for ever.
#[test]
fn an_unknown_is_not_answered() {
    let mut w = Ends::new(0.0, 1);
    let mut out = [0; 40];
    let len = LinkMessage::Unknown.emit(&mut out).unwrap();
    w.base.handle_datagram(w.now, 666, &mut out[..len]);
    let unknown =
        DataHeader { code: Code::RST.with(Code::UNKNOWN), cid: Cid(5), ..DataHeader::default() };
    let len = unknown.emit(0, &mut out).unwrap();
    w.base.handle_datagram(w.now, 666, &mut out[..len]);
    let control = Control { code: Code::RST, cid: Cid(5), ..Control::default() };
    let len = control.emit(&mut out).unwrap();
    w.base.handle_datagram(w.now, 666, &mut out[..len]);
    w.transmit();
    assert!(w.recorded.iter().all(|r| r.1 != 666));
}

#[test]
fn a_restarted_base_answers_unknown_and_old_streams_are_reset() {
    for seed in 0..20 {
        let mut w = Ends::new(if seed == 0 { 0.0 } else { 0.3 }, seed);
        let old = w.mobile().open().unwrap();
        w.mobile().write(old, b"\xffa").unwrap();
        w.run(Duration::from_secs(10));
        assert_eq!(read(w.at_base(1), old), b"\xffa");
        w.base = new_base(1000 + seed, BareBounds::default());
        w.base_events.clear();
        w.mobile().write(old, b"into the void").unwrap();
        w.run(Duration::from_secs(20));
        let lost = AssociationEvent::Lost(CloseReason::Silence);
        let events = w.mobile_events();
        assert_eq!(events, [AssociationEvent::Up, lost, AssociationEvent::Up], "seed {seed}");
        assert!(matches!(w.mobile().recv_state(old), RecvState::Reset(_)));
        let new = w.mobile().open().unwrap();
        assert!(new > old, "stream numbers are never used twice");
        w.mobile().write(new, b"\xffagain").unwrap();
        w.run(Duration::from_secs(10));
        assert_eq!(read(w.at_base(1), new), b"\xffagain", "seed {seed}");
        assert_eq!(w.base_events.len(), 1, "seed {seed}: {:?}", w.base_events);
    }
}

#[test]
fn a_restarted_mobile_begins_anew_at_the_base() {
    for seed in 0..20 {
        let mut w = Ends::new(if seed == 0 { 0.0 } else { 0.3 }, seed);
        let id = w.mobile().open().unwrap();
        w.mobile().write(id, b"\xfffirst life").unwrap();
        w.run(Duration::from_secs(10));
        assert_eq!(read(w.at_base(1), id), b"\xfffirst life");
        // What the base still sends to the first life meets the second.
        w.at_base(1).write(id, &[0x77; 10_000]).unwrap();
        w.transmit();
        w.mobiles[0].1 = new_mobile(50 + seed, w.now);
        let again = w.mobile().open().unwrap();
        assert_eq!(again, id, "the case is not met");
        w.mobile().write(again, b"\xffsecond life").unwrap();
        w.run(Duration::from_secs(10));
        let happened: Vec<_> = w.base_events.iter().map(|e| e.1).collect();
        let replaced = AssociationEvent::Lost(CloseReason::Replaced);
        assert_eq!(happened, [AssociationEvent::Up, replaced, AssociationEvent::Up]);
        assert_eq!(read(w.at_base(1), id), b"\xffsecond life", "seed {seed}");
        assert_eq!(read(w.mobile(), id), b"", "seed {seed}");
    }
}

/// Whoever sends that the base knows nobody, the base itself is asked, and streams go on.
#[test]
fn a_forged_unknown_costs_a_greeting_and_no_stream() {
    let mut w = Ends::new(0.0, 1);
    let id = w.mobile().open().unwrap();
    w.mobile().write(id, b"\xffa").unwrap();
    w.run(Duration::from_secs(2));
    let mut out = [0; 40];
    let len = LinkMessage::Unknown.emit(&mut out).unwrap();
    let now = w.now;
    w.mobile().handle_datagram(now, 666, &mut out[..len]);
    w.mobile().write(id, b"b").unwrap();
    w.run(Duration::from_secs(2));
    assert_eq!(w.mobile_events(), [AssociationEvent::Up]);
    assert_eq!(read(w.at_base(1), id), b"\xffab");
    assert_eq!(w.base_events.len(), 1);
}

/// Restarts of either end, other addresses and silences in any order: a stream carries a prefix of
/// what was written into it, in that life, and after the last of them a new stream carries
/// everything.
#[test]
fn streams_stay_exact_under_random_schedules() {
    let mut whole = 0;
    for seed in 0..40 {
        let mut w = Ends::new(0.15, seed);
        let mut dice = Seed::from_u64(seed).stream("schedule");
        for turn in 0..6 {
            let id = w.mobile().open().unwrap();
            let mut data: Vec<u8> = (0..4_000_u32).map(|n| (n * 7 + turn * 31) as u8).collect();
            data[0] = 0xff;
            w.mobile().write(id, &data).unwrap();
            w.run(Duration::from_millis(dice.next_u64() % 3_000));
            let mut got = w.read_at_base(id);
            match dice.next_u64() % 5 {
                0 => w.mobiles[0].0 = 1 + (w.mobiles[0].0 % 500),
                1 => w.base = new_base(10_000 * seed + u64::from(turn), BareBounds::default()),
                2 => w.mobiles[0].1 = new_mobile(10_000 * seed + u64::from(turn), w.now),
                3 => {
                    w.loss = 1.0;
                    w.run(Duration::from_millis(dice.next_u64() % 5_000));
                    w.loss = 0.15;
                }
                _ => {}
            }
            w.run(Duration::from_secs(8));
            got.extend(w.read_at_base(id));
            assert!(data.starts_with(&got), "seed {seed}, turn {turn}");
            whole += u32::from(got == data);
        }
        // That an end was restarted is noticed when something is sent, at the latest now.
        let mut last = Vec::new();
        for _ in 0..2 {
            let id = w.mobile().open().unwrap();
            w.mobile().write(id, b"\xffthe last").unwrap();
            w.run(Duration::from_secs(30));
            last = w.read_at_base(id);
            if w.mobile().recv_state(id) == RecvState::Open {
                break;
            }
        }
        assert_eq!(last, b"\xffthe last", "seed {seed}");
    }
    assert!(whole > 80, "{whole} of 240 arrived whole");
}

/// On a bare hop a mobile is its address: from another one it is another.
#[test]
fn a_mobile_at_another_address_begins_anew() {
    let mut w = Ends::new(0.0, 1);
    let id = w.mobile().open().unwrap();
    w.mobile().write(id, b"\xffa").unwrap();
    w.run(Duration::from_secs(2));
    w.mobiles[0].0 = 2;
    w.mobile().write(id, b"b").unwrap();
    w.run(Duration::from_secs(4));
    assert!(matches!(w.mobile().recv_state(id), RecvState::Reset(_)));
    let new = w.mobile().open().unwrap();
    w.mobile().write(new, b"\xffc").unwrap();
    w.run(Duration::from_secs(2));
    assert_eq!(read(w.at_base(2), new), b"\xffc");
}

/// A base whose address is not known is asked by broadcast; its answer has the address.
#[test]
fn a_base_may_answer_from_another_address_than_it_was_asked_at() {
    const EVERYBODY: Addr = 0xffff;
    let mut w = Ends::new(0.0, 1);
    w.mobiles[0].1.set_base_address(Time::ZERO, PathId::FIRST, EVERYBODY);
    let mut out = [0; 2000];
    let sent = w.mobiles[0].1.poll_transmit(Time::ZERO, &mut out).unwrap();
    assert_eq!(sent.to, EVERYBODY);
    w.fly(1, BASE, out[..sent.len].to_vec());
    w.run(Duration::from_millis(100));
    assert_eq!(w.mobile_events(), [AssociationEvent::Up]);
    let now = w.now;
    w.mobile().set_base_address(now, PathId::FIRST, BASE);
    let id = w.mobile().open().unwrap();
    w.mobile().write(id, b"\xffwords").unwrap();
    w.run(Duration::from_secs(2));
    assert_eq!(read(w.at_base(1), id), b"\xffwords");
    assert_eq!(w.mobile_events(), []);
}

#[test]
fn a_full_table_refuses_and_counts() {
    let mut w = Ends::new(0.0, 1);
    let idle = Duration::from_secs(20);
    w.base = new_base(1, BareBounds { peers_max: 3, idle });
    for from in 10..20 {
        w.base.handle_datagram(w.now, from, &mut greeting(u64::from(from)));
    }
    assert_eq!((w.base.peers(), w.base.stats().turned_away), (3, 7));
    // Those who are in may come again.
    w.base.handle_datagram(w.now, 10, &mut greeting(99));
    assert_eq!((w.base.peers(), w.base.stats().turned_away), (3, 7));
    // None of the three has a mobile behind it: they are probed in vain, and removed.
    w.run(Duration::from_secs(40));
    assert!(w.mobile().is_up());
    assert_eq!((w.base.peers(), w.base.stats().expired), (1, 3));
}

#[test]
fn an_idle_mobile_that_answers_is_not_removed() {
    let mut w = Ends::new(0.3, 1);
    w.base = new_base(1, BareBounds { idle: Duration::from_secs(20), ..BareBounds::default() });
    w.run(Duration::from_secs(600));
    assert_eq!((w.base.peers(), w.base.stats().expired), (1, 0));
    assert_eq!(w.mobile_events(), [AssociationEvent::Up]);
    assert_eq!(w.base_events.len(), 1);
}

/// An answer to another life's greeting means nothing.
#[test]
fn an_answer_to_another_life_is_refused() {
    let mut w = Ends::new(1.0, 1);
    w.run(Duration::from_secs(1));
    let mut out = [0; 100];
    let answer = LinkMessage::Answer { life: 4711, instance: 1, first_stream: 1 };
    let len = answer.emit(&mut out).unwrap();
    let now = w.now;
    w.mobile().handle_datagram(now, BASE, &mut out[..len]);
    assert_eq!((w.mobile().is_up(), w.mobile().refused()), (false, 1));
}

/// A mobile that was removed is a stranger, and gets "unknown".
#[test]
fn a_mobile_that_was_removed_gets_unknown() {
    let mut w = Ends::new(0.0, 1);
    w.mobiles.clear();
    w.base.handle_datagram(w.now, 10, &mut greeting(10));
    w.run(Duration::from_secs(100));
    assert_eq!((w.base.peers(), w.base.stats().expired), (0, 1));
    let mut packet = [0; 16];
    let header = DataHeader { code: Code::ACK, cid: Cid(3), ..DataHeader::default() };
    header.emit(0, &mut packet).unwrap();
    w.base.handle_datagram(w.now, 10, &mut packet);
    w.transmit();
    let (_, to, said) = w.recorded.last().unwrap();
    assert_eq!((*to, LinkMessage::decode(said)), (10, Some(LinkMessage::Unknown)));
}

/// A mobile that goes away with connections that nobody uses is noticed, after the silence that
/// connections are meant to survive.
#[test]
fn a_mobile_that_goes_away_with_idle_connections_is_noticed() {
    let mut w = Ends::new(0.0, 1);
    let config = mobile_tcp::Config {
        silence_limit: Duration::from_secs(300),
        ..mobile_tcp::Config::default()
    };
    w.base = BareBase::new(config, BareBounds::default(), Seed::from_u64(1).child("base"));
    let id = w.mobile().open().unwrap();
    w.mobile().write(id, b"\xffidle").unwrap();
    w.run(Duration::from_secs(200));
    assert_eq!((read(w.at_base(1), id), w.base.peers()), (b"\xffidle".to_vec(), 1));
    w.mobiles.clear();
    w.run(Duration::from_secs(200));
    assert_eq!(w.base.peers(), 1, "a dead zone may last");
    w.run(Duration::from_secs(200));
    let last = w.base_events.last().map(|e| e.1);
    assert_eq!((last, w.base.peers()), (Some(AssociationEvent::Lost(CloseReason::Silence)), 0));
}

#[test]
fn a_close_is_sent_to_the_other_end() {
    let mut w = Ends::new(0.0, 1);
    w.run(Duration::from_secs(1));
    w.mobile().close(CloseReason::Shutdown);
    w.run(Duration::from_millis(500));
    let last = w.base_events.last().map(|e| e.1);
    assert_eq!(last, Some(AssociationEvent::Lost(CloseReason::Shutdown)));
    assert_eq!(w.base.peers(), 0);
    // The mobile that goes on greets again, and gets the base's end as well.
    w.run(Duration::from_secs(3));
    assert_eq!(w.base.peers(), 1);
    w.mobile_events();
    w.base.close(CloseReason::Shutdown);
    w.run(Duration::from_millis(500));
    let first = w.mobile_events().first().copied();
    assert_eq!(first, Some(AssociationEvent::Lost(CloseReason::Shutdown)));
}

#[test]
fn a_link_that_comes_up_is_greeted_at_once() {
    let mut w = Ends::new(1.0, 1);
    w.run(Duration::from_millis(8_900));
    w.loss = 0.0;
    let now = w.now;
    w.mobile().handle_link_event(now, PathId::FIRST, LinkEvent::Up);
    w.run(3 * DELAY);
    assert!(w.mobile().is_up());
}

/// MOB-8: what a mobile listens on is known to its base, and only that.
#[test]
fn a_base_knows_on_which_ports_its_mobile_listens() {
    let mut w = Ends::new(0.2, 1);
    w.mobile().listen(8080);
    w.run(Duration::from_secs(10));
    let id = w.base.views().next().map(|v| v.id).unwrap();
    assert_eq!((w.base.listens(id, 8080), w.base.listens(id, 80)), (Some(true), Some(false)));
    // Also after the base has removed everything.
    w.base = new_base(2, BareBounds::default());
    let ask = w.mobile().open().unwrap();
    w.mobile().write(ask, b"\xffx").unwrap();
    w.run(Duration::from_secs(10));
    let id = w.base.views().next().map(|v| v.id).unwrap();
    assert_eq!(w.base.listens(id, 8080), Some(true));
    w.mobile().unlisten(8080);
    w.run(Duration::from_secs(10));
    assert_eq!(w.base.listens(id, 8080), Some(false));
}

#[test]
fn a_base_reports_mobiles_that_have_a_seal_or_no_room_and_answers_neither() {
    let bounds = BareBounds { peers_max: 1, ..BareBounds::default() };
    let mut base = new_base(1, bounds);
    let mut out = [0; 2000];
    for (n, addr) in [(1, 1), (2, 2), (2, 2)] {
        let t = new_mobile(n, Time::ZERO).poll_transmit(Time::ZERO, &mut out).unwrap();
        base.handle_datagram(Time::ZERO, addr, &mut out[..t.len]);
    }
    let keys = |n| Keypair::generate(Seed::from_u64(n));
    let (base_key, seed) = (*keys(9).public(), Seed::from_u64(3));
    let config = HopConfig::default();
    let mut sealed = Mobile::<_>::new(config, keys(1), base_key, BASE, seed, Time::ZERO);
    let t = sealed.poll_transmit(Time::ZERO, &mut out).unwrap();
    base.handle_datagram(Time::ZERO, 3, &mut out[..t.len]);
    let told: Vec<_> = core::iter::from_fn(|| base.poll_refused()).collect();
    assert_eq!(
        told.iter().map(|r| (r.from, r.why)).collect::<Vec<_>>(),
        [(2, Refusal::Full), (3, Refusal::OtherSeal)]
    );
    while let Some(t) = base.poll_transmit(Time::ZERO, &mut out) {
        assert_eq!(t.to, 1);
    }
}

#[test]
fn a_bare_base_is_given_up_when_its_host_keeps_saying_so_and_not_for_less() {
    let mut w = Ends::new(0.0, 1);
    w.run(Duration::from_secs(1));
    assert_eq!(w.mobile_events(), [AssociationEvent::Up]);
    for _ in 0..100 {
        let now = w.now;
        w.mobile().handle_unreachable(now, Unreachable::Port);
        w.run(Duration::from_millis(100));
    }
    assert!(w.mobile_events().is_empty(), "forged: the base answers");
    w.network = Some(Unreachable::Port);
    let now = w.now;
    w.mobile().handle_unreachable(now, Unreachable::Port);
    w.run(Duration::from_secs(3));
    assert_eq!(w.mobile_events(), [AssociationEvent::Lost(CloseReason::Unreachable)]);
    (w.network, w.base) = (None, new_base(2, BareBounds::default()));
    w.run(Duration::from_secs(1));
    assert_eq!(w.mobile_events(), [AssociationEvent::Up]);
}
