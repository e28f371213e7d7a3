//! Packets beside the connections: what their senders do, and what must hold of each that arrives.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::rc::Rc;

use lasthop_hop::{OutgoingPacket, PacketClass, PathStats};
use lasthop_sim::Content;
use lasthop_units::{Bytes, Duration, Rate, Seed, Stream, Time};
use lasthop_wire::ip::{self, Addresses, Protocol};
use lasthop_wire::udp;

use crate::check::{Check, Violation};
use crate::flaw::Flaw;
use crate::hop::Endpoint;
use crate::plan::{log_uniform, pick, upto};

/// Each packet begins with its flow (4 bytes), its number (8) and when it was handed in (8).
const HEAD: usize = 20;
/// The longest that is sent. It takes many datagrams.
const LONGEST: u64 = 20_000;
/// The longest headers before it.
const HEADERS: u64 = (ip::IPV6_HEADER + udp::HEADER) as u64;
/// A planted flaw strikes one packet in so many.
const STRUCK: u64 = 4;
/// Packets of one flow, at most.
const COUNT_MAX: u64 = 1500;
/// No packet is waited for longer (docs/srp.md, Packets).
const PATIENCE_MAX: Duration = Duration::from_secs(4);

/// One flow of packets, between a mobile and the base.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct PacketPlan {
    /// Which mobile's.
    pub(crate) mobile: usize,
    /// The mobile sends them; otherwise the base does.
    pub(crate) up: bool,
    /// When the first is sent.
    pub(crate) start: Time,
    /// How many.
    pub(crate) count: u64,
    /// The mean time between two; as often they come several at once.
    pub(crate) every: Duration,
    /// The shortest and the longest, in bytes.
    pub(crate) lengths: (u64, u64),
    /// How they are treated.
    pub(crate) class: PacketClass,
    /// They can be marked.
    pub(crate) ecn_capable: bool,
    /// Whose they are.
    pub(crate) client: u64,
}

impl PacketPlan {
    /// One of `count` flows on a radio of some rate that is well from `calm_at` on.
    pub(crate) fn random(
        random: &mut Stream,
        mobiles: usize,
        calm_at: Time,
        rate: Rate,
        count: u64,
    ) -> Self {
        let most = if random.chance(0.1) { LONGEST } else { pick(random, &[100, 300, 1500, 3000]) };
        let least = if random.chance(0.5) { most } else { HEAD as u64 };
        // From next to nothing to twice what the radio carries, all flows together.
        let share = random.uniform() * if random.chance(0.2) { 2.0 } else { 0.5 };
        let share = rate.scale(share.max(0.01) / count as f64);
        let every = share.time_for(Bytes::new(most.midpoint(least)));
        let start = Time::ZERO + upto(random, calm_at.since(Time::ZERO));
        // Some go on for a while when the radio is well.
        let last = calm_at.since(start) + upto(random, Duration::from_secs(1));
        let within = last.as_nanos() / every.as_nanos().max(1);
        Self {
            mobile: random.below(mobiles as u64) as usize,
            up: random.chance(0.5),
            start,
            count: (within as u64 + 1).min(COUNT_MAX),
            every,
            lengths: (least, most),
            class: PacketClass {
                patience: if random.chance(0.2) { 0.0 } else { 0.5 + random.uniform() * 5.5 },
                patience_min: Duration::from_millis(10 + random.below(200)),
                lifetime: Duration::from_millis(log_uniform(random, 20, 3000)),
                doubled: random.chance(0.5),
                ..PacketClass::default()
            },
            ecn_capable: random.chance(0.3),
            client: random.below(3),
        }
    }

    /// Bytes of all of them, at most.
    pub(crate) fn bytes(&self) -> u64 {
        self.count * (self.lengths.1 + HEADERS)
    }

    /// How long one may be worth sending beyond its round trips.
    fn patience(&self, stats: &PathStats) -> Duration {
        if self.class.patience == 0.0 {
            return Duration::ZERO;
        }
        let trips = stats.srtt.mul_f64(self.class.patience).max(self.class.patience_min);
        (trips + stats.reordering).min(PATIENCE_MAX)
    }
}

/// What both ends know together and no machine does.
#[derive(Debug, Default)]
pub(crate) struct Overview {
    /// When each datagram left, by its last bytes.
    left: BTreeMap<u64, Time>,
    /// The longest that a datagram was on its way up and down.
    transit: [Duration; 2],
    /// The longest patience that each flow's packets were sent with.
    patience: BTreeMap<usize, Duration>,
}

impl Overview {
    pub(crate) fn note_sent(&mut self, now: Time, tag: u64) {
        self.left.insert(tag, now);
    }

    pub(crate) fn note_arrived(&mut self, now: Time, tag: u64, up: bool) {
        if let Some(left) = self.left.get(&tag) {
            let most = &mut self.transit[usize::from(!up)];
            *most = now.since(*left).max(*most);
        }
    }
}

/// All packets that one host sends and takes.
#[derive(Debug)]
pub(crate) struct Packets {
    plans: Rc<[PacketPlan]>,
    seed: Seed,
    overview: Rc<RefCell<Overview>>,
    flaw: Flaw,
    /// The base has all mobiles' flows.
    base: bool,
    senders: BTreeMap<usize, Sender>,
    arrived: BTreeMap<usize, BTreeSet<u64>>,
    /// Packets that came in all.
    pub(crate) received: u64,
    /// Kept back by a flaw.
    kept: Option<Vec<u8>>,
    /// The first promise that was broken.
    pub(crate) broken: Option<Violation>,
}

#[derive(Debug)]
struct Sender {
    random: Stream,
    next: Time,
    sent: u64,
}

impl Packets {
    /// Those of a mobile, or of the base.
    pub(crate) fn new(
        mobile: Option<usize>,
        plans: Rc<[PacketPlan]>,
        seed: Seed,
        overview: Rc<RefCell<Overview>>,
        flaw: Flaw,
    ) -> Self {
        let own = |plan: &PacketPlan| match mobile {
            Some(mobile) => plan.up && plan.mobile == mobile,
            None => !plan.up,
        };
        let sender = |(flow, plan): (usize, &PacketPlan)| {
            let random = seed.stream(&format!("packets-{flow}"));
            (flow, Sender { random, next: plan.start, sent: 0 })
        };
        let senders = plans.iter().enumerate().filter(|(_, p)| own(p)).map(sender).collect();
        let (base, arrived) = (mobile.is_none(), BTreeMap::new());
        let (received, kept, broken) = (0, None, None);
        Self { plans, seed, overview, flaw, base, senders, arrived, received, kept, broken }
    }

    /// Takes what has come and sends what is due.
    pub(crate) fn drive(&mut self, now: Time, endpoint: &mut Endpoint) {
        if self.plans.is_empty() {
            return;
        }
        for association in 0..endpoint.associations() {
            self.take(now, association, endpoint);
        }
        let Self { plans, senders, overview, seed, base, .. } = self;
        for (flow, sender) in senders {
            let plan = &plans[*flow];
            // Whose association it is the base knows by the mobile.
            let lane = (0..endpoint.associations())
                .filter_map(|n| Some((n, endpoint.lane_of(n)?)))
                .find(|(_, (mobile, _))| !*base || *mobile == plan.mobile);
            if let Some((_, (_, stats))) = &lane {
                let patience = &mut overview.borrow_mut().patience;
                let patience = patience.entry(*flow).or_default();
                *patience = plan.patience(stats).max(*patience);
            }
            while sender.next <= now && sender.sent < plan.count {
                let data = packet(*seed, *flow, plan, sender.sent, now);
                let PacketPlan { client, ecn_capable, class, .. } = *plan;
                let flow = *flow as u64;
                let packet = OutgoingPacket { client, flow, ecn_capable, class, data: &data };
                if let Some(lane) = lane.and_then(|(n, _)| endpoint.lane(n)) {
                    // What there is no memory for is lost, as what has no association.
                    let _ = lane.send(now, &packet);
                }
                sender.sent += 1;
                if sender.random.chance(0.7) {
                    sender.next += upto(&mut sender.random, plan.every * 3);
                }
            }
        }
    }

    /// When the next is due.
    pub(crate) fn next_timeout(&self) -> Option<Time> {
        let going = self.senders.iter().filter(|(flow, s)| s.sent < self.plans[**flow].count);
        going.map(|(_, sender)| sender.next).min()
    }

    fn take(&mut self, now: Time, association: usize, endpoint: &mut Endpoint) {
        while let Some(lane) = endpoint.lane(association)
            && let Some((data, _)) = lane.front()
        {
            let mut data = data.to_vec();
            lane.pop();
            self.received += 1;
            let struck = self.received.is_multiple_of(STRUCK);
            let mut at = now;
            match self.flaw {
                Flaw::ChangesPackets if struck => *data.last_mut().unwrap_or(&mut 0) ^= 1,
                Flaw::DoublesPackets if struck => self.judge(now, &data),
                Flaw::KeepsPackets if struck => at += Duration::from_secs(20),
                Flaw::MisordersPackets => {
                    if let Some(kept) = self.kept.take() {
                        self.judge(now, &data);
                        data = kept;
                    } else if struck {
                        self.kept = Some(data);
                        continue;
                    }
                }
                _ => {}
            }
            self.judge(at, &data);
        }
    }

    /// Whether a packet may arrive as it does.
    fn judge(&mut self, now: Time, data: &[u8]) {
        if let Err((check, found)) = self.verdict(now, data) {
            let connection = None;
            self.broken.get_or_insert(Violation { check, at: now, connection, found });
        }
    }

    fn verdict(&mut self, now: Time, data: &[u8]) -> Result<(), (Check, String)> {
        let changed = |found: String| Err((Check::PacketsExact, found));
        let Some((flow, number, sent)) = head(data) else {
            return changed(format!("a packet of {} bytes that nobody sent", data.len()));
        };
        let told = format!("packet {number} of flow {flow}, {} B", data.len());
        let plan = self.plans.get(flow).filter(|plan| plan.up == self.base && number < plan.count);
        let Some(plan) = plan else { return changed(format!("{told}: nobody sent it")) };
        if data != packet(self.seed, flow, plan, number, sent) {
            return changed(format!("{told}: is not what was sent"));
        }
        let arrived = self.arrived.entry(flow).or_default();
        let last = arrived.last().copied();
        if !arrived.insert(number) {
            return Err((Check::PacketsOnce, format!("{told}: came before")));
        }
        if let Some(last) = last.filter(|last| *last > number && plan.class.patience > 0.0) {
            return Err((Check::PacketsOrdered, format!("{told}: came after {last}")));
        }
        let overview = self.overview.borrow();
        let patience = overview.patience.get(&flow).copied().unwrap_or_default();
        let transit = overview.transit[usize::from(!plan.up)];
        // The receiver counts in milliseconds.
        let bound = plan.class.lifetime + patience + transit + Duration::from_millis(1);
        let took = now.since(sent);
        if took > bound {
            let parts = format!("{:?} and {patience:?} and {transit:?}", plan.class.lifetime);
            return Err((Check::PacketsTimely, format!("{told}: took {took:?}, not {parts}")));
        }
        Ok(())
    }
}

/// The headers of a flow's packets: none of every third, and for the others of IPv4 and IPv6, with UDP. They change now and
/// then, or every time.
fn headers(flow: usize, number: u64, payload: usize) -> Vec<u8> {
    let addresses = match flow % 3 {
        0 => return Vec::new(),
        1 => Addresses::V4 { src: Ipv4Addr::LOCALHOST, dst: Ipv4Addr::BROADCAST },
        _ => Addresses::V6 { src: Ipv6Addr::LOCALHOST, dst: Ipv6Addr::UNSPECIFIED },
    };
    let steps = 1 << (flow % 8);
    let ttl = 60 + (number / steps % 3) as u8;
    let header = ip::Header { id: number as u16, ttl, ..ip::Header::new(addresses, Protocol::UDP) };
    let length = udp::HEADER as usize + payload;
    let mut out = Vec::new();
    let written = header.emit(length, &mut out);
    written.unwrap_or_else(|error| panic!("{error}"));
    for field in [flow as u16, 53, length as u16, number as u16] {
        out.extend_from_slice(&field.to_be_bytes());
    }
    out
}

/// The `number`th packet of a flow.
fn packet(seed: Seed, flow: usize, plan: &PacketPlan, number: u64, sent: Time) -> Vec<u8> {
    let payload = payload(seed, flow, plan, number, sent);
    [headers(flow, number, payload.len()), payload].concat()
}

fn payload(seed: Seed, flow: usize, plan: &PacketPlan, number: u64, sent: Time) -> Vec<u8> {
    let (least, most) = plan.lengths;
    let content = Content::new(seed, &format!("packets-{flow}"));
    // Lengths and content follow from the number alone.
    let mut drawn = [0; 8];
    content.fill(number * 8, &mut drawn);
    let length = least + u64::from_le_bytes(drawn) % (most - least + 1);
    let mut data = vec![0; length.max(HEAD as u64) as usize];
    content.fill((number + 1) << 20, &mut data[HEAD..]);
    data[..4].copy_from_slice(&(flow as u32).to_be_bytes());
    data[4..12].copy_from_slice(&number.to_be_bytes());
    data[12..HEAD].copy_from_slice(&sent.as_nanos().to_be_bytes());
    data
}

/// Flow, number and time of a packet.
fn head(data: &[u8]) -> Option<(usize, u64, Time)> {
    let headers = match data.first()? >> 4 {
        4 => ip::IPV4_HEADER + udp::HEADER,
        6 => ip::IPV6_HEADER + udp::HEADER,
        _ => 0,
    };
    let data = data.get(headers as usize..)?;
    let (flow, rest) = data.split_first_chunk()?;
    let (number, rest) = rest.split_first_chunk()?;
    let (sent, _) = rest.split_first_chunk()?;
    let sent = Time::from_nanos(u64::from_be_bytes(*sent));
    Some((u32::from_be_bytes(*flow) as usize, u64::from_be_bytes(*number), sent))
}
