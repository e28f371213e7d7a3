//! The session over Mobile TCP, on a hop that loses packets: the session is the same as over any
//! other transport.

use std::collections::VecDeque;

use lasthop_hop::mobile_tcp::{Config as HopConfig, MobileTcp};
use lasthop_hop::{Role as End, Transport};
use lasthop_units::{Seed, Stream as Numbers};

use super::*;

/// A session, its transport, and what is on its way to it.
struct Side {
    hop: MobileTcp,
    session: Session,
    arriving: VecDeque<Vec<u8>>,
    told: Vec<Event>,
}

struct Hop {
    mobile: Side,
    base: Side,
    now: Time,
    numbers: Numbers,
    /// Of 100 packets so many are lost, both ways.
    lost: u64,
}

impl Side {
    fn new(role: End, session: Session) -> Self {
        let config = HopConfig::default();
        let limits = MobileTcp::limits(&config);
        let mut hop = MobileTcp::new(config, role, Time::ZERO);
        hop.establish(Time::ZERO, &limits);
        Self { hop, session, arriving: VecDeque::new(), told: vec![] }
    }

    fn hear(&mut self, now: Time) {
        while let Some(packet) = self.arriving.pop_front() {
            self.hop.handle(now, &packet).expect("whole");
        }
        if self.hop.next_timeout().is_some_and(|at| at <= now) {
            self.hop.handle_timeout(now);
        }
        self.session.handle_timeout(now, &mut self.hop);
        while let Some(event) = self.session.poll_event(now, &mut self.hop) {
            self.told.push(event);
        }
    }

    fn read(&mut self, id: ConnId) -> Vec<u8> {
        read_all(&mut self.session, &mut self.hop, id)
    }
}

impl Hop {
    fn new(lost: u64) -> Self {
        Self {
            mobile: Side::new(End::Mobile, Session::mobile(Config::mobile())),
            base: Side::new(End::Base, Session::base(Config::base())),
            now: Time::ZERO,
            numbers: Seed::from_u64(lost).stream("losses"),
            lost,
        }
    }

    fn carry(&mut self) {
        let Self { mobile, base, now, numbers, lost } = self;
        let mut pass = |from: &mut Side, to: &mut Side| {
            let mut room = [0; 1600];
            while let Some(len) = from.hop.poll(*now, &mut room) {
                if numbers.next_u64() % 100 >= *lost {
                    to.arriving.push_back(room[..len].to_vec());
                }
            }
            to.hear(*now);
        };
        pass(mobile, base);
        pass(base, mobile);
    }

    /// Carries on until `done`, for ten minutes at most.
    fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        while !done(self) {
            self.carry();
            self.now += Duration::from_millis(10);
            assert!(self.now < Time::from_secs(600), "{what} takes too long");
        }
    }

    /// To an address with a faithful opening, which the paper's packets say, else to a name.
    fn connect(&mut self, opening: Opening) -> ConnId {
        let target = match opening {
            Opening::Faithful => Target::Addr(bound()),
            Opening::Early => target(),
        };
        let Side { hop, session, .. } = &mut self.mobile;
        let id = session.connect(self.now, hop, &target, opening).expect("room");
        let asked = Event::Connect { id, target, source: None };
        self.until("the opening", |hop| hop.base.told.contains(&asked));
        id
    }
}

/// MOB-2, MOB-4: openings, transfers both ways, half-closes and ends of the session's connections
/// come out over Mobile TCP as over any transport, whatever it loses.
#[test]
fn connections_live_over_mobile_tcp() {
    for lost in [0, 20, 50] {
        let mut hop = Hop::new(lost);
        for opening in [Opening::Faithful, Opening::Early] {
            let id = hop.connect(opening);
            hop.base.session.accept(&mut hop.base.hop, id, bound());
            let stands = |e: &Event| matches!(e, Event::Opened { id: of, .. } if *of == id);
            hop.until("the answer", |hop| hop.mobile.told.iter().any(stands));
            let data: Vec<u8> = (0..100_000_u32).map(|n| (n / 3) as u8).collect();
            let (mut sent, mut up, mut down) = ([0, 0], vec![], vec![]);
            hop.until("the transfer", |hop| {
                for (n, side) in [&mut hop.mobile, &mut hop.base].into_iter().enumerate() {
                    let Side { hop, session, .. } = side;
                    if sent[n] < data.len() {
                        sent[n] += session.write(hop, id, &data[sent[n]..]).expect("writable");
                    } else {
                        session.finish(hop, id);
                    }
                }
                up.extend(hop.base.read(id));
                down.extend(hop.mobile.read(id));
                up.len() == data.len() && down.len() == data.len()
            });
            assert!(up == data && down == data);
            let closed = Event::Closed(id);
            hop.until("the end", |hop| {
                hop.mobile.read(id);
                hop.base.read(id);
                hop.mobile.told.contains(&closed) && hop.base.told.contains(&closed)
            });
        }
        assert_eq!((hop.mobile.session.connections(), hop.base.session.connections()), (0, 0));
    }
}

/// MOB-7: the fixed host's refusal is the one that the mobile's application gets, and both sessions
/// forget the connection.
#[test]
fn a_refusal_comes_out_as_itself() {
    for (lost, refusal) in [(0, Refusal::Refused), (50, Refusal::Other(99))] {
        let mut hop = Hop::new(lost);
        let id = hop.connect(Opening::Faithful);
        hop.base.session.refuse(&mut hop.base.hop, id, refusal);
        hop.until("the refusal", |hop| hop.mobile.told.contains(&Event::Closed(id)));
        assert_eq!(hop.mobile.told, [Event::Failed { id, refusal }, Event::Closed(id)]);
        hop.until("the base's end", |hop| hop.base.told.contains(&Event::Closed(id)));
        assert_eq!((hop.mobile.session.connections(), hop.base.session.connections()), (0, 0));
    }
}

/// MOB-8, MOB-9: a fixed host opens towards the mobile; if the mobile is gone before it answers, the
/// fixed host's connection is not left standing.
#[test]
fn offers_travel_over_mobile_tcp() {
    let to = "10.0.0.2:22".parse().expect("an address");
    let from = "10.9.9.9:5555".parse().expect("an address");
    let mut hop = Hop::new(30);
    hop.mobile.session.set_listening(true);
    let Side { hop: streams, session, .. } = &mut hop.base;
    let id = session.offer(hop.now, streams, to, from).expect("room");
    hop.until("the offer", |hop| hop.mobile.told.iter().any(|e| e.id() == id));
    assert_eq!(hop.mobile.session.caller(id), Some(from));
    hop.mobile.session.accept(&mut hop.mobile.hop, id, to);
    let stands = Event::Opened { id, bound: Some(to) };
    hop.until("the answer", |hop| hop.base.told.contains(&stands));

    let Side { hop: streams, session, .. } = &mut hop.base;
    let late = session.offer(hop.now, streams, to, from).expect("room");
    hop.lost = 100;
    let failed = Event::Failed { id: late, refusal: Refusal::TimedOut };
    hop.until("giving up", |hop| hop.base.told.contains(&failed));
}

/// MOB-37: connections leave the transport with all that either end still owes, and go on over
/// another one.
#[test]
fn connections_leave_for_another_hop() {
    let mut hop = Hop::new(20);
    let id = hop.connect(Opening::Faithful);
    hop.base.session.accept(&mut hop.base.hop, id, bound());
    hop.until("the answer", |hop| {
        hop.mobile.told.iter().any(|e| matches!(e, Event::Opened { .. }))
    });
    let stream = hop.mobile.session.stream(id).expect("a stream");
    let data = vec![5; 20_000];
    hop.mobile.session.write(&mut hop.mobile.hop, id, &data).expect("writable");
    for _ in 0..20 {
        hop.carry();
        hop.now += Duration::from_millis(1);
    }
    let sent = hop.mobile.hop.detach(stream).expect("it lives");
    let got = hop.base.hop.detach(stream).expect("it lives");
    // The two messages in front of the bytes are of one length at both ends.
    assert!(sent.send_start <= got.received && got.received > 1000);
    let missing = sent.send_start + sent.send.len() as u64 - got.received;
    assert_eq!(got.unread.len() as u64 + missing, data.len() as u64);
    assert_eq!((hop.mobile.hop.stats().streams, hop.base.hop.stats().streams), (0, 0));
}

/// MHP-15: messages travel over Mobile TCP as over any transport, in front of every connection and
/// beside it.
#[test]
fn messages_of_handoffs_travel_over_mobile_tcp() {
    for lost in [0, 50] {
        let mut hop = Hop::new(lost);
        let said = |n: u8| [&[1, 20, 0, 200][..], &[n; 200]].concat();
        let mut expected = [vec![], vec![]];
        let mut came = [vec![], vec![]];
        for n in 0..20 {
            let Side { hop: streams, session, .. } = &mut hop.mobile;
            session.send_message(hop.now, streams, &said(n)).expect("room");
            expected[0].push(said(n));
            hop.until("a message", |hop| {
                came[0].extend(hop.base.session.poll_message());
                came[0].len() == expected[0].len()
            });
            if n == 5 {
                let id = hop.connect(Opening::Faithful);
                hop.base.session.accept(&mut hop.base.hop, id, bound());
            }
            let Side { hop: streams, session, .. } = &mut hop.base;
            session.send_message(hop.now, streams, &said(100 + n)).expect("room");
            expected[1].push(said(100 + n));
        }
        hop.until("the answers", |hop| {
            came[1].extend(hop.mobile.session.poll_message());
            came[1].len() == expected[1].len()
        });
        assert_eq!(came, expected);
        assert_eq!(hop.base.session.stats().malformed, 0);
    }
}
