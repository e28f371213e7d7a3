//! Two TCPs with a helper at one end of a hop that loses, doubles and falls silent: what arrives is
//! what was sent, and what the helper says in the mobile's name is what a TCP could have said.

#![allow(missing_docs)]

use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};

use lasthop_agent::edge::{
    CoherentConfig, CoherentDupacks, DelayedDupacks, DelayedDupacksConfig, Freeze, FreezeConfig,
    HopEnd, ReceiverWindows, Total, WindowsConfig, Withhold, WithholdConfig,
};
use lasthop_agent::{Agent, Output, Packet, Side, Tcp};
use lasthop_tcp::{Algorithm, Config, Ports, Socket, State};
use lasthop_testing::{Replay, schedules};
use lasthop_units::{Bytes, Duration, LinkEvent, Seed, Stream, Thaw, Time};
use lasthop_wire::tcp::{Flags, Segment, Seq};

const WIRE: Duration = Duration::from_millis(20);
const HOP: Duration = Duration::from_millis(10);
const LEAD: Duration = Duration::from_millis(150);
const STEPS: u32 = 400_000;
/// Random schedules for each helper, unless others are asked for (`LASTHOP_SEED` and the like).
const SCHEDULES: u64 = 300;

#[derive(Clone)]
struct Carried {
    from: Side,
    segment: Segment,
    payload: Vec<u8>,
    marked: bool,
}

impl Packet for Carried {
    fn tcp(&self) -> Option<Tcp> {
        let fixed = SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), 80));
        let mobile = SocketAddr::from((Ipv4Addr::new(192, 0, 2, 2), 1));
        let (src, dst) = match self.from {
            Side::Fixed => (fixed, mobile),
            Side::Mobile => (mobile, fixed),
        };
        Some(Tcp { src, dst, segment: self.segment })
    }

    fn set_segment(&mut self, segment: &Segment) {
        self.segment = Segment { len: self.segment.len, ..*segment };
    }

    fn is_marked(&self) -> bool {
        self.marked
    }
}

/// Where a packet arrives next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stop {
    Helper,
    End,
}

/// What one end of the connection is up to.
struct End {
    socket: Option<Socket>,
    config: Config,
    to_write: u64,
    written: u64,
    read: u64,
    finished: bool,
}

/// What the fixed host was told.
#[derive(Default)]
struct Told {
    ack: Option<Seq>,
    edge: Option<Seq>,
    shift: u8,
    zeros: u64,
}

struct Route<'a> {
    now: Time,
    fixed: End,
    mobile: End,
    helper: &'a mut dyn Agent<Carried>,
    place: HopEnd,
    flying: BTreeMap<(Time, u64), (Carried, Stop)>,
    serial: u64,
    events: VecDeque<(Time, LinkEvent)>,
    silent: bool,
    rng: Stream,
    loss: f64,
    marks: f64,
    told: Told,
    /// Windows are let go back to zero.
    freezes: bool,
}

fn byte(from: Side, at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8 ^ u8::from(from == Side::Fixed)
}

fn config(rng: &mut Stream) -> Config {
    let mut config = Config::modern();
    let algorithms = [Algorithm::Reno, Algorithm::NewReno, Algorithm::Sack, Algorithm::Cubic];
    config.algorithm = algorithms[rng.below(4) as usize];
    config.mss = [536, 1000, 1460][rng.below(3) as usize];
    config.recv_buffer = Bytes::new([8192, 65_535, 1 << 20][rng.below(3) as usize]);
    config.sack = rng.chance(0.5);
    config.timestamps = rng.chance(0.5);
    config.window_scale = rng.chance(0.7);
    config.rto.give_up_after = None;
    config.time_wait = Duration::from_secs(100_000);
    config
}

impl<'a> Route<'a> {
    fn new(seed: u64, helper: &'a mut dyn Agent<Carried>, place: HopEnd, freezes: bool) -> Self {
        let mut rng = Seed::from_u64(seed).stream("edge");
        let now = Time::from_millis(rng.below(1000));
        let end = |rng: &mut Stream, most: u64| End {
            socket: None,
            config: config(rng),
            to_write: rng.below(most),
            written: 0,
            read: 0,
            finished: false,
        };
        let mut it = Self {
            now,
            fixed: end(&mut rng, 200_000),
            mobile: end(&mut rng, 40_000),
            helper,
            place,
            flying: BTreeMap::new(),
            serial: 0,
            events: VecDeque::new(),
            silent: false,
            loss: if rng.chance(0.5) { rng.uniform() * 0.1 } else { 0.0 },
            marks: rng.uniform() * 0.3,
            told: Told::default(),
            freezes,
            rng,
        };
        let ecn = it.rng.chance(0.5);
        (it.fixed.config.ecn, it.mobile.config.ecn) = (ecn, ecn);
        let iss = Seq(u32::MAX - it.rng.below(60_000) as u32);
        let ports = Ports { local: 1, remote: 80 };
        it.mobile.socket = Some(Socket::connect(it.mobile.config, ports, iss, now));
        it.plan();
        it
    }

    /// Silences of the hop, foretold or not, and now and then a false warning.
    fn plan(&mut self) {
        let mut at = self.now;
        for _ in 0..self.rng.below(5) {
            at += Duration::from_millis(200 + self.rng.below(3000));
            if self.rng.chance(0.7) {
                self.events.push_back((at, LinkEvent::Imminent { lead: LEAD }));
                at += LEAD;
            }
            if self.rng.chance(0.8) {
                self.events.push_back((at, LinkEvent::Down));
                at += Duration::from_millis(50 + self.rng.below(4000));
                self.events.push_back((at, LinkEvent::Up));
                at += Duration::from_millis(self.rng.below(200));
                self.events.push_back((at, LinkEvent::Complete));
            }
        }
    }

    fn end(&mut self, side: Side) -> &mut End {
        match side {
            Side::Fixed => &mut self.fixed,
            Side::Mobile => &mut self.mobile,
        }
    }

    /// The end on that side reads, writes and sends.
    fn work(&mut self, side: Side) {
        let now = self.now;
        let end = self.end(side);
        let Some(socket) = &mut end.socket else { return };
        while socket.poll_event().is_some() {}
        while end.written < end.to_write {
            let room = socket.send_space();
            let n = room.len().min((end.to_write - end.written) as usize);
            if n == 0 {
                break;
            }
            (0..n).for_each(|k| room[k] = byte(side, end.written + k as u64));
            socket.commit(n);
            end.written += n as u64;
        }
        if end.written == end.to_write && !end.finished {
            socket.finish();
            end.finished = true;
        }
        let n = socket.received().len();
        for (k, got) in socket.received().iter().enumerate() {
            assert_eq!(*got, byte(side.other(), end.read + k as u64), "a wrong byte");
        }
        if n > 0 {
            socket.consume(n);
            end.read += n as u64;
        }
        let mut out = vec![0; 2000];
        let mut sent = Vec::new();
        while let Some(outgoing) = socket.poll_outgoing(now, &mut out) {
            let payload = out[..outgoing.segment.len as usize].to_vec();
            sent.push((outgoing.segment, payload, outgoing.ecn_capable));
        }
        for (segment, payload, capable) in sent {
            let marked = capable && self.rng.chance(self.marks);
            let carried = Carried { from: side, segment, payload, marked };
            self.carry(side, carried, Stop::Helper);
        }
    }

    /// A packet leaves for `to`, from the end or the helper: over the hop or beside it.
    fn carry(&mut self, from: Side, carried: Carried, to: Stop) {
        let helper_at = Side::of_hop(self.place).other();
        let hop = match to {
            Stop::Helper => from != helper_at,
            Stop::End => from.other() != helper_at,
        };
        let copies = match hop {
            true if self.silent || self.rng.chance(self.loss) => 0,
            true if self.rng.chance(0.01) => 2,
            _ => 1,
        };
        let wired = (from == Side::Fixed) == (to == Stop::Helper);
        let delay = match (hop, wired) {
            (true, true) => WIRE + HOP,
            (true, false) => HOP,
            (false, true) => WIRE,
            (false, false) => Duration::from_micros(10),
        };
        for _ in 0..copies {
            self.serial += 1;
            self.flying.insert((self.now + delay, self.serial), (carried.clone(), to));
        }
    }

    fn outputs(&mut self) {
        while let Some(output) = self.helper.poll_output() {
            let (towards, carried) = match output {
                Output::Packet { towards, packet } => (towards, packet),
                Output::Segment { towards, segment, .. } => {
                    let from = towards.other();
                    (towards, Carried { from, segment, payload: Vec::new(), marked: false })
                }
                Output::Message { .. } => panic!("a message"),
            };
            if towards == Side::Fixed {
                self.check(&carried.segment);
            }
            self.carry(towards.other(), carried, Stop::End);
        }
    }

    /// Numbers and right edges of what the fixed host is told never go back, but for windows that are
    /// shut. Copies that the hop made are no news of the mobile's.
    fn check(&mut self, segment: &Segment) {
        let told = &mut self.told;
        if segment.flags.contains(Flags::SYN) {
            told.shift = segment.options.window_scale.unwrap_or(0);
        }
        if !segment.flags.contains(Flags::ACK)
            || segment.flags.intersects(Flags::SYN.with(Flags::RST))
        {
            return;
        }
        let shift = match self.fixed.socket.as_ref().map(|_| self.fixed.config.window_scale) {
            Some(true) => told.shift,
            _ => 0,
        };
        let before = told.ack.replace(segment.ack);
        let back = before.is_some_and(|before| segment.ack.ahead_of(before) < 0);
        assert!(!back || self.place == HopEnd::Base, "{before:?} {segment:?}");
        let edge = segment.ack + (u32::from(segment.window) << shift);
        told.zeros += u64::from(segment.window == 0);
        // A number that is two bytes lower beside the same window means an edge that is.
        let unit = (1 << shift) + 2;
        let shrinks = told.edge.is_some_and(|told| edge.ahead_of(told) < -unit);
        let shut = self.freezes && segment.window == 0;
        assert!(!shrinks || shut || back, "{:?} {edge} {segment:?}", told.edge);
        if told.edge.is_none_or(|before| edge.ahead_of(before) > 0) {
            told.edge = Some(edge);
        }
    }

    fn arrive(&mut self, carried: Carried, stop: Stop) {
        if stop == Stop::Helper {
            self.helper.handle_packet(self.now, carried.from, carried);
            return self.outputs();
        }
        let (now, side) = (self.now, carried.from.other());
        let end = self.end(side);
        match &mut end.socket {
            Some(socket) => {
                socket.handle_segment_marked(
                    now,
                    &carried.segment,
                    &carried.payload,
                    carried.marked,
                );
            }
            None => {
                let ports = Ports { local: 80, remote: 1 };
                let iss = Seq(u32::MAX - 100_000);
                end.socket = Socket::accept(end.config, ports, &carried.segment, iss, now).ok();
            }
        }
    }

    fn is_over(&self) -> bool {
        [&self.fixed, &self.mobile].iter().all(|end| {
            let state = end.socket.as_ref().map(|socket| socket.connection().state());
            matches!(state, Some(State::Closed | State::TimeWait))
        })
    }

    fn run(&mut self) {
        for _ in 0..STEPS {
            self.work(Side::Fixed);
            self.work(Side::Mobile);
            if self.is_over() {
                return;
            }
            let timers = [&self.fixed, &self.mobile]
                .into_iter()
                .filter_map(|end| end.socket.as_ref()?.next_timeout())
                .chain(self.helper.next_timeout());
            let arrival = self.flying.keys().next().map(|(at, _)| *at);
            let event = self.events.front().map(|(at, _)| *at);
            let next = timers.chain(arrival).chain(event).min();
            let Some(next) = next.filter(|next| *next != Time::NEVER) else {
                panic!("stuck at {}", self.now)
            };
            self.now = self.now.max(next);
            if event.is_some_and(|at| at <= self.now) {
                self.turn();
            } else if arrival.is_some_and(|at| at <= self.now) {
                if let Some((_, (carried, stop))) = self.flying.pop_first() {
                    self.arrive(carried, stop);
                }
            } else {
                self.expire();
            }
        }
        panic!("no end at {}", self.now);
    }

    fn turn(&mut self) {
        let Some((_, event)) = self.events.pop_front() else { return };
        match event {
            LinkEvent::Down => self.silent = true,
            LinkEvent::Up => self.silent = false,
            _ => {}
        }
        self.helper.handle_link_event(self.now, event);
        self.outputs();
    }

    fn expire(&mut self) {
        let now = self.now;
        if self.helper.next_timeout().is_some_and(|at| at <= now) {
            self.helper.handle_timeout(now);
            self.outputs();
        }
        for side in [Side::Fixed, Side::Mobile] {
            if let Some(socket) = &mut self.end(side).socket {
                socket.handle_timeout(now);
            }
        }
    }
}

/// Both streams arrive whole through the helper of each seed, which is at work: over all of them it
/// makes more than so many windows of zero.
fn all_arrives<A: Agent<Carried>>(
    freezes: bool,
    least_zeros: Option<u64>,
    helper: impl Fn(&mut Stream, HopEnd) -> A,
) {
    let mut zeros = 0;
    let seeds = schedules(SCHEDULES);
    let few = seeds.end - seeds.start < SCHEDULES;
    for seed in seeds {
        let _replay = Replay::new(seed, "-p lasthop-sim --test edge streams_arrive_whole");
        let mut rng = Seed::from_u64(seed).stream("helper");
        let place = if freezes && rng.chance(0.5) { HopEnd::Base } else { HopEnd::Mobile };
        let mut agent = helper(&mut rng, place);
        let mut world = Route::new(seed, &mut agent, place, freezes);
        world.run();
        for side in [Side::Fixed, Side::Mobile] {
            let sent = world.end(side).to_write;
            assert_eq!(world.end(side.other()).read, sent, "seed {seed}");
        }
        zeros += world.told.zeros;
    }
    let at_work = least_zeros.is_none_or(|least| zeros > least);
    assert!(at_work || few, "{zeros} windows of zero");
}

fn either(rng: &mut Stream) -> Thaw {
    if rng.chance(0.5) { Thaw::Up } else { Thaw::Complete }
}

/// FRZ-6, LLT-1: neither end knows of the helper.
#[test]
fn streams_arrive_whole_through_freezes() {
    all_arrives(true, Some(300), |rng, place| {
        let thaw = either(rng);
        match rng.chance(0.5) {
            true => Freeze::new(FreezeConfig { thaw, ..FreezeConfig::freeze(place) }),
            false => Freeze::new(FreezeConfig { thaw, ..FreezeConfig::link_layer(place) }),
        }
    });
}

/// ATR-1, ATR-3: neither end knows of the helper.
#[test]
fn streams_arrive_whole_though_two_bytes_wait() {
    all_arrives(true, Some(100), |rng, place| {
        let delay = Duration::from_millis(rng.below(600));
        Withhold::new(WithholdConfig { thaw: either(rng), place, delay, ..Default::default() })
    });
}

/// DDA-5: the connection keeps its meaning.
#[test]
fn streams_arrive_whole_though_duplicates_wait() {
    all_arrives(false, None, |rng, _| {
        let delay = Duration::from_millis(rng.below(400));
        DelayedDupacks::new(DelayedDupacksConfig { delay, ..Default::default() })
    });
}

/// CC-5: so it does where marks decide.
#[test]
fn streams_arrive_whole_though_unmarked_gaps_are_hidden() {
    all_arrives(false, None, |rng, _| {
        let hold = Duration::from_millis(rng.below(400));
        CoherentDupacks::new(CoherentConfig { hold, ..Default::default() })
    });
}

/// RWC-7, RWC-9: neither end knows of the helper, and no right edge goes back.
#[test]
fn streams_arrive_whole_through_narrow_windows() {
    all_arrives(false, None, |rng, place| {
        let total = match rng.chance(0.5) {
            true => Total::Packets(1 + rng.below(30)),
            false => Total::AUTO,
        };
        ReceiverWindows::new(WindowsConfig { total, place, ..Default::default() })
    });
}

/// FRZ-1 to FRZ-4: a silence of 5 s that is foretold costs the sender no timeout and little beyond
/// itself; without the helper it costs seconds.
#[test]
fn a_foretold_silence_costs_little_beyond_itself() {
    let run = |lead: Option<Duration>| {
        let mut agent = Freeze::new(FreezeConfig::freeze(HopEnd::Mobile));
        let mut world = Route::new(7, &mut agent, HopEnd::Mobile, true);
        let start = world.now;
        (world.loss, world.marks) = (0.0, 0.0);
        (world.fixed.config, world.mobile.config) = (Config::modern(), Config::modern());
        // 100 packets of 1460 bytes at a time take 40 s for this.
        world.fixed.config.cwnd_max = Some(lasthop_tcp::Window::Segments(20));
        world.fixed.to_write = 6_000_000;
        let ports = Ports { local: 1, remote: 80 };
        world.mobile.socket = Some(Socket::connect(world.mobile.config, ports, Seq(1), start));
        world.events.clear();
        let at = start + Duration::from_secs(3);
        if let Some(lead) = lead {
            world.events.push_back((at, LinkEvent::Imminent { lead }));
        }
        if lead.is_some() {
            world.events.push_back((at + LEAD, LinkEvent::Down));
            world.events.push_back((at + LEAD + Duration::from_secs(5), LinkEvent::Up));
        }
        world.run();
        let stats = *world.fixed.socket.as_ref().unwrap().connection().stats();
        (world.now.since(start), stats.timeouts)
    };
    let (undisturbed, none) = run(None);
    let (frozen, timeouts) = run(Some(LEAD));
    assert_eq!((none, timeouts), (0, 0));
    let beyond = frozen.saturating_sub(undisturbed).saturating_sub(Duration::from_secs(5));
    assert!(beyond < Duration::from_millis(300), "{beyond:?} of {undisturbed:?}");
}
