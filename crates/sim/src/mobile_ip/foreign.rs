//! The foreign agent: it advertises itself, passes registrations on, and is the end of the tunnel.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use lasthop_units::{Duration, Seed, Time};

use super::advertiser::{Advertiser, AdvertiserConfig};
use super::message::{
    ALL_SYSTEMS, BindingUpdate, Code, Envelope, Message, Prefix, Reply, Request, Role,
};
use super::outbox::Outbox;

/// How a foreign agent behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ForeignAgentConfig {
    /// Its address, which is its visitors' care-of address.
    pub address: Ipv4Addr,
    /// How it advertises itself (MIP-2).
    pub advertise: AdvertiserConfig,
    /// From the arrival of a request or reply until it is passed on (MIP-8).
    pub processing: Duration,
    /// The most visitors, and the most registrations under way.
    pub visitors: usize,
    /// How long a request may go unanswered before the mobile is notified.
    pub patience: Duration,
    /// For how long packets of a departed visitor are sent on to its new care-of address. Off by
    /// default, so that they are lost (MIP-4).
    pub forward: Option<Duration>,
}

impl ForeignAgentConfig {
    /// An agent at `address` with RFC 5944's defaults, that works in no time.
    pub fn new(address: Ipv4Addr) -> Self {
        Self {
            address,
            advertise: AdvertiserConfig::default(),
            processing: Duration::ZERO,
            visitors: 1024,
            patience: Duration::from_secs(7),
            forward: None,
        }
    }
}

/// What becomes of a packet that came out of the tunnel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Delivery {
    /// It goes over the last hop to the visitor with this home address.
    Visitor(Ipv4Addr),
    /// Its mobile has left for this care-of address: it goes into a tunnel again.
    Forward(Ipv4Addr),
    /// Its mobile is not here: it is dropped.
    Nobody,
}

/// What a foreign agent did.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ForeignStats {
    /// Advertisements sent, answers to solicitations included.
    pub advertisements: u64,
    /// Requests passed on to home agents.
    pub requests: u64,
    /// Replies passed on to mobiles.
    pub replies: u64,
    /// Requests that the agent itself denied, or that no home agent answered.
    pub denied: u64,
    /// Messages that came faster than they could be worked on.
    pub dropped: u64,
}

#[derive(Clone, Copy, Debug)]
struct Visitor {
    network: Option<Prefix>,
    until: Time,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    request: Request,
    deadline: Time,
}

#[derive(Clone, Copy, Debug)]
struct Departed {
    network: Option<Prefix>,
    care_of: Ipv4Addr,
    until: Time,
}

/// A foreign agent (RFC 5944 section 3.7), part of a base station (MIP-2..4).
#[derive(Clone, Debug)]
pub struct ForeignAgent {
    config: ForeignAgentConfig,
    advertiser: Advertiser,
    visitors: BTreeMap<Ipv4Addr, Visitor>,
    pending: BTreeMap<Ipv4Addr, Pending>,
    departed: BTreeMap<Ipv4Addr, Departed>,
    out: Outbox<Envelope>,
    stats: ForeignStats,
}

impl ForeignAgent {
    /// An agent without visitors, whose random times follow from `seed`.
    pub fn new(config: ForeignAgentConfig, seed: Seed, now: Time) -> Self {
        let advertise = config.advertise;
        Self {
            config,
            advertiser: Advertiser::new(advertise, config.address, Role::Foreign, seed, now),
            visitors: BTreeMap::new(),
            pending: BTreeMap::new(),
            departed: BTreeMap::new(),
            out: Outbox::new(),
            stats: ForeignStats::default(),
        }
    }

    /// The agent's address: its visitors' care-of address.
    pub const fn address(&self) -> Ipv4Addr {
        self.config.address
    }

    /// Takes in a message that reached the agent, from either side.
    pub fn handle(&mut self, now: Time, from: &Envelope) {
        match &from.message {
            Message::Solicitation => {
                let busy = self.is_busy(now);
                if let Some(found) = self.advertiser.answer(busy) {
                    self.stats.advertisements += 1;
                    self.send(now, from.src, Message::Advertisement(found));
                }
            }
            Message::Request(request) => self.handle_request(now, request),
            Message::Reply(reply) => self.handle_reply(now, reply),
            Message::BindingUpdate(update) => self.handle_update(now, update),
            Message::Advertisement(_) => {}
        }
    }

    /// The next message to send: to a home agent, a previous agent, a mobile, or all on the link.
    pub fn poll_transmit(&mut self, now: Time) -> Option<Envelope> {
        self.handle_timeout(now);
        self.out.pop(now)
    }

    /// When the agent has to do something.
    pub fn next_timeout(&self) -> Option<Time> {
        let unanswered = self.pending.values().map(|pending| pending.deadline);
        let advertisement = self.advertiser.next_time();
        unanswered.chain(self.out.next_time()).chain([advertisement]).min()
    }

    /// Does what was due by `now`.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.advertiser.next_time() <= now {
            let busy = self.is_busy(now);
            if let Some(found) = self.advertiser.poll(now, busy) {
                self.stats.advertisements += 1;
                self.send(now, ALL_SYSTEMS, Message::Advertisement(found));
            }
        }
        while let Some(late) = self.unanswered(now) {
            self.pending.remove(&late.home);
            self.deny(now, &late, Code::TimedOut, Duration::ZERO);
        }
    }

    /// What becomes of a packet for `dst` that came out of the tunnel (MIP-3, MIP-4). Nobody tells
    /// the agent that a visitor has left, so that it counts as one until its registration ends.
    pub fn deliver(&self, now: Time, dst: Ipv4Addr) -> Delivery {
        if let Some(visitor) = self.visitor_of(now, dst) {
            return Delivery::Visitor(visitor);
        }
        let here = |(&home, departed): (&Ipv4Addr, &Departed)| {
            let its = home == dst || departed.network.is_some_and(|n| n.contains(dst));
            (its && now < departed.until).then_some(departed.care_of)
        };
        match self.departed.iter().find_map(here) {
            Some(care_of) => Delivery::Forward(care_of),
            None => Delivery::Nobody,
        }
    }

    /// Whether the mobile at `home` is registered through this agent.
    pub fn is_visitor(&self, now: Time, home: Ipv4Addr) -> bool {
        self.visitors.get(&home).is_some_and(|visitor| now < visitor.until)
    }

    /// What it did.
    pub fn stats(&self) -> ForeignStats {
        ForeignStats { dropped: self.out.dropped(), ..self.stats }
    }

    /// The mobile here that `dst` belongs to. One whose registration is under way counts: only an
    /// agent that it left sends its packets here so early (RFC 5944 section 3.7.1).
    fn visitor_of(&self, now: Time, dst: Ipv4Addr) -> Option<Ipv4Addr> {
        if self.is_visitor(now, dst) || self.pending.contains_key(&dst) {
            return Some(dst);
        }
        let visiting = self.visitors.iter().filter(|(_, visitor)| now < visitor.until);
        let networks = visiting.map(|(home, visitor)| (home, visitor.network));
        let asking = self.pending.iter().map(|(home, p)| (home, p.request.network));
        let holds = |network: &Option<Prefix>| network.is_some_and(|n| n.contains(dst));
        networks.chain(asking).find(|(_, network)| holds(network)).map(|(&home, _)| home)
    }

    /// No visitor fits any more.
    fn is_busy(&mut self, now: Time) -> bool {
        if self.visitors.len() >= self.config.visitors {
            self.visitors.retain(|_, visitor| now < visitor.until);
        }
        self.visitors.len() >= self.config.visitors
    }

    fn handle_request(&mut self, now: Time, request: &Request) {
        if request.care_of != self.config.address {
            return;
        }
        let known = self.visitors.contains_key(&request.home);
        let queue_full =
            self.pending.len() >= self.config.visitors && !self.pending.contains_key(&request.home);
        if queue_full || (!known && self.is_busy(now)) {
            return self.deny(now, request, Code::AgentFull, Duration::ZERO);
        }
        let longest = self.advertiser.config().lifetime;
        if request.lifetime > longest {
            return self.deny(now, request, Code::LifetimeTooLong, longest);
        }
        let deadline = now + self.config.patience;
        self.pending.insert(request.home, Pending { request: *request, deadline });
        self.stats.requests += 1;
        let onward = Request { previous: None, ..*request };
        self.send_later(now, request.home_agent, Message::Request(onward));
        if let Some(previous) = request.previous.filter(|&p| p != self.config.address) {
            let Request { home, care_of, id, .. } = *request;
            let update = Message::BindingUpdate(BindingUpdate { home, care_of, id });
            self.send_later(now, previous, update);
        }
    }

    fn handle_reply(&mut self, now: Time, reply: &Reply) {
        let asked = |pending: &&Pending| pending.request.id.low == reply.id.low;
        let Some(Pending { request, .. }) = self.pending.get(&reply.home).filter(asked).copied()
        else {
            return;
        };
        self.pending.remove(&reply.home);
        if reply.code == Code::Accepted {
            self.departed.remove(&reply.home);
            if reply.lifetime.is_zero() {
                self.visitors.remove(&reply.home);
            } else {
                let until = now + reply.lifetime;
                self.visitors.insert(reply.home, Visitor { network: request.network, until });
            }
        }
        self.stats.replies += 1;
        self.send_later(now, reply.home, Message::Reply(*reply));
    }

    /// A visitor is with another agent. Without forwarding nothing changes: its packets go on to
    /// the radio that it has left.
    fn handle_update(&mut self, now: Time, update: &BindingUpdate) {
        let Some(forward) = self.config.forward else { return };
        if update.care_of == self.config.address {
            return;
        }
        let network = match (self.visitors.remove(&update.home), self.departed.get(&update.home)) {
            (Some(visitor), _) => visitor.network,
            (None, Some(departed)) => departed.network,
            (None, None) => return,
        };
        if self.departed.len() >= self.config.visitors {
            self.departed.retain(|_, departed| now < departed.until);
        }
        if self.departed.len() < self.config.visitors {
            let until = now + forward;
            self.departed.insert(update.home, Departed { network, care_of: update.care_of, until });
        }
    }

    fn unanswered(&self, now: Time) -> Option<Request> {
        let late = self.pending.values().find(|pending| pending.deadline <= now);
        late.map(|pending| pending.request)
    }

    fn deny(&mut self, now: Time, request: &Request, code: Code, lifetime: Duration) {
        let Request { home, home_agent, id, .. } = *request;
        self.stats.denied += 1;
        self.send_later(now, home, Message::Reply(Reply { home, home_agent, lifetime, id, code }));
    }

    fn send_later(&mut self, now: Time, dst: Ipv4Addr, message: Message) {
        self.send(now + self.config.processing, dst, message);
    }

    fn send(&mut self, due: Time, dst: Ipv4Addr, message: Message) {
        self.out.push(due, Envelope { src: self.config.address, dst, message });
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::{Advertisement, Identification};
    use super::*;

    const AGENT: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 1);
    const OTHER: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 1);
    const HOME_AGENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
    const MOBILE: Ipv4Addr = Ipv4Addr::new(10, 0, 9, 9);

    fn at(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    fn agent(config: ForeignAgentConfig) -> ForeignAgent {
        let advertise = AdvertiserConfig { period: Duration::from_secs(1000), ..config.advertise };
        let config = ForeignAgentConfig { advertise, ..config };
        // The first advertisement comes long after what these tests look at.
        let far = |seed: &u64| {
            let agent = ForeignAgent::new(config, Seed::from_u64(*seed), Time::ZERO);
            agent.advertiser.next_time() > Time::from_secs(100)
        };
        let seed = (0..100).find(far).unwrap();
        ForeignAgent::new(config, Seed::from_u64(seed), Time::ZERO)
    }

    fn request(now: Time) -> Request {
        Request {
            home: MOBILE,
            home_agent: HOME_AGENT,
            care_of: AGENT,
            lifetime: Duration::from_secs(60),
            id: Identification::at(now, 0, 1),
            network: None,
            previous: None,
        }
    }

    fn reply(request: &Request) -> Reply {
        Reply {
            home: request.home,
            home_agent: request.home_agent,
            lifetime: request.lifetime,
            id: request.id,
            code: Code::Accepted,
        }
    }

    fn hand(agent: &mut ForeignAgent, now: Time, src: Ipv4Addr, message: Message) {
        agent.handle(now, &Envelope { src, dst: AGENT, message });
    }

    fn register(agent: &mut ForeignAgent, now: Time, request: Request) {
        hand(agent, now, request.home, Message::Request(request));
        hand(agent, now, request.home_agent, Message::Reply(reply(&request)));
        while agent.poll_transmit(now).is_some() {}
    }

    fn denied(agent: &mut ForeignAgent, now: Time) -> Option<(Code, Duration)> {
        match agent.poll_transmit(now) {
            Some(Envelope { dst: MOBILE, message: Message::Reply(r), .. }) => {
                Some((r.code, r.lifetime))
            }
            _ => None,
        }
    }

    /// MIP-2: request and reply pass through the agent, and the reply makes the visitor.
    #[test]
    fn a_registration_passes_through_and_makes_a_visitor() {
        let mut agent = agent(ForeignAgentConfig::new(AGENT));
        let asked = request(at(0));
        assert_eq!(agent.deliver(at(0), MOBILE), Delivery::Nobody);
        hand(&mut agent, at(0), MOBILE, Message::Request(asked));
        let onward = Envelope { src: AGENT, dst: HOME_AGENT, message: Message::Request(asked) };
        assert_eq!(agent.poll_transmit(at(0)), Some(onward));
        assert!(!agent.is_visitor(at(10), MOBILE));
        hand(&mut agent, at(20), HOME_AGENT, Message::Reply(reply(&asked)));
        let back = Envelope { src: AGENT, dst: MOBILE, message: Message::Reply(reply(&asked)) };
        assert_eq!(agent.poll_transmit(at(20)), Some(back));
        assert_eq!(agent.deliver(at(20), MOBILE), Delivery::Visitor(MOBILE));
        assert_eq!(agent.deliver(at(20), OTHER), Delivery::Nobody);
        assert_eq!(agent.deliver(at(60_020), MOBILE), Delivery::Nobody);
    }

    /// MIP-2: a solicitation is answered at once, if the agent answers any.
    #[test]
    fn a_solicitation_is_answered_at_once() {
        let mut willing = agent(ForeignAgentConfig::new(AGENT));
        hand(&mut willing, at(5), MOBILE, Message::Solicitation);
        let answer = willing.poll_transmit(at(5)).map(|envelope| envelope.message);
        assert!(matches!(answer, Some(Message::Advertisement(Advertisement { agent: AGENT, .. }))));
        let advertise = AdvertiserConfig { answers: false, ..AdvertiserConfig::default() };
        let config = ForeignAgentConfig { advertise, ..ForeignAgentConfig::new(AGENT) };
        let mut silent = agent(config);
        hand(&mut silent, at(5), MOBILE, Message::Solicitation);
        assert_eq!(silent.poll_transmit(at(5)), None);
    }

    #[test]
    fn a_reply_that_nobody_asked_for_is_ignored() {
        let mut agent = agent(ForeignAgentConfig::new(AGENT));
        let asked = request(at(0));
        hand(&mut agent, at(0), HOME_AGENT, Message::Reply(reply(&asked)));
        assert_eq!(agent.poll_transmit(at(0)), None);
        assert!(!agent.is_visitor(at(0), MOBILE));
    }

    #[test]
    fn too_many_too_long_and_unanswered_are_told_so() {
        let config = ForeignAgentConfig { visitors: 1, ..ForeignAgentConfig::new(AGENT) };
        let mut agent = agent(config);
        let long = Request { lifetime: Duration::from_secs(5000), ..request(at(0)) };
        hand(&mut agent, at(0), MOBILE, Message::Request(long));
        let longest = Duration::from_secs(1800);
        assert_eq!(denied(&mut agent, at(0)), Some((Code::LifetimeTooLong, longest)));
        hand(&mut agent, at(1), MOBILE, Message::Request(request(at(1))));
        assert!(agent.poll_transmit(at(1)).is_some());
        assert_eq!(agent.next_timeout(), Some(at(7001)));
        assert_eq!(denied(&mut agent, at(7001)), Some((Code::TimedOut, Duration::ZERO)));
        register(&mut agent, at(8000), Request { home: OTHER, ..request(at(8000)) });
        hand(&mut agent, at(8001), MOBILE, Message::Request(request(at(8001))));
        assert_eq!(denied(&mut agent, at(8001)), Some((Code::AgentFull, Duration::ZERO)));
        hand(&mut agent, at(70_000), MOBILE, Message::Request(request(at(70_000))));
        assert!(denied(&mut agent, at(70_000)).is_none(), "the old visitor's time is over");
    }

    /// MIP-4: a departed visitor's packets are lost on the radio that it left, unless forwarding
    /// is on.
    #[test]
    fn a_departed_visitor_is_followed_only_if_forwarding_is_on() {
        let update = BindingUpdate { home: MOBILE, care_of: OTHER, id: Identification::default() };
        for forward in [None, Some(Duration::from_secs(2))] {
            let config = ForeignAgentConfig { forward, ..ForeignAgentConfig::new(AGENT) };
            let mut agent = agent(config);
            register(&mut agent, at(0), request(at(0)));
            hand(&mut agent, at(100), OTHER, Message::BindingUpdate(update));
            let (soon, later) = match forward {
                None => (Delivery::Visitor(MOBILE), Delivery::Visitor(MOBILE)),
                Some(_) => (Delivery::Forward(OTHER), Delivery::Nobody),
            };
            assert_eq!(agent.deliver(at(100), MOBILE), soon);
            assert_eq!(agent.deliver(at(2100), MOBILE), later);
            register(&mut agent, at(3000), request(at(3000)));
            assert_eq!(agent.deliver(at(3000), MOBILE), Delivery::Visitor(MOBILE));
        }
    }

    /// MIP-4: the new agent tells the previous one as soon as the mobile asks.
    #[test]
    fn the_previous_agent_is_told_where_the_mobile_went() {
        let mut agent = agent(ForeignAgentConfig::new(AGENT));
        let asked = Request { previous: Some(OTHER), ..request(at(0)) };
        hand(&mut agent, at(0), MOBILE, Message::Request(asked));
        let first = agent.poll_transmit(at(0)).map(|envelope| envelope.dst);
        let second = agent.poll_transmit(at(0));
        assert_eq!(first, Some(HOME_AGENT));
        let update = BindingUpdate { home: MOBILE, care_of: AGENT, id: asked.id };
        let message = Message::BindingUpdate(update);
        assert_eq!(second, Some(Envelope { src: AGENT, dst: OTHER, message }));
    }

    /// MIP-9: the agent learns the network behind a router from its registration.
    #[test]
    fn packets_for_a_visiting_network_go_to_its_router() {
        let mut agent = agent(ForeignAgentConfig::new(AGENT));
        let network = Some(Prefix::new(Ipv4Addr::new(10, 7, 0, 0), 16));
        register(&mut agent, at(0), Request { network, ..request(at(0)) });
        let behind = Ipv4Addr::new(10, 7, 1, 2);
        assert_eq!(agent.deliver(at(0), behind), Delivery::Visitor(MOBILE));
        assert_eq!(agent.deliver(at(0), OTHER), Delivery::Nobody);
    }
}
