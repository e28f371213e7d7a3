//! The home agent: it knows where each of its mobiles is, and sends their packets there.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use lasthop_units::{Duration, Seed, Time};
use thiserror::Error;

use super::advertiser::{Advertiser, AdvertiserConfig};
use super::message::{
    ALL_SYSTEMS, Code, Envelope, Identification, Message, Prefix, Reply, Request, Role,
};
use super::outbox::Outbox;

/// How a home agent behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HomeAgentConfig {
    /// Its address: one end of its tunnels.
    pub address: Ipv4Addr,
    /// The longest binding that it grants.
    pub lifetime: Duration,
    /// From a request's arrival until the binding holds and the reply leaves: the agent's part of
    /// the registration delay (MIP-8).
    pub processing: Duration,
    /// How far a request's clock may be from this agent's (RFC 5944 section 5.7.1).
    pub tolerance: Duration,
    /// The most mobiles that it serves.
    pub mobiles: usize,
    /// How it advertises itself on the home link, if mobiles come home.
    pub advertise: Option<AdvertiserConfig>,
}

impl HomeAgentConfig {
    /// An agent at `address` with RFC 5944's defaults, that works in no time and stays silent on
    /// its own link.
    pub const fn new(address: Ipv4Addr) -> Self {
        Self {
            address,
            lifetime: Duration::from_secs(1800),
            processing: Duration::ZERO,
            tolerance: Duration::from_secs(7),
            mobiles: 4096,
            advertise: None,
        }
    }
}

/// Why a home agent cannot serve a mobile.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ServeError {
    /// No more mobiles fit.
    #[error("the home agent serves {0} mobiles, as many as its configuration allows")]
    Full(usize),
    /// The address is served already.
    #[error("{0} is served already; serve each home address once")]
    Twice(Ipv4Addr),
    /// Two mobile routers would have the same addresses behind them.
    #[error("the networks {0} and {1} overlap; give each mobile router addresses of its own")]
    Overlap(Prefix, Prefix),
}

/// Where a mobile is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Binding {
    /// The end of the tunnel.
    pub care_of: Ipv4Addr,
    /// Until then, unless it is renewed.
    pub until: Time,
}

/// What becomes of a packet that reaches the home agent's router.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Route {
    /// It is for somebody else: it is forwarded as ever.
    Elsewhere,
    /// It is for one of this agent's mobiles (or the network behind it), which is at home or
    /// nowhere: it goes to the home link.
    Home,
    /// It goes through a tunnel to this care-of address.
    Tunnel(Ipv4Addr),
}

/// What a home agent did.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct HomeStats {
    /// Requests that made, renewed or ended a binding.
    pub accepted: u64,
    /// Requests denied for any reason.
    pub denied: u64,
    /// Of those, the ones whose identification was old, repeated or far from the clock.
    pub replayed: u64,
    /// Bindings whose lifetime ran out.
    pub expired: u64,
    /// Requests that came faster than they could be worked on.
    pub dropped: u64,
}

#[derive(Clone, Debug, Default)]
struct Mobile {
    network: Option<Prefix>,
    binding: Option<Binding>,
    last: Option<Identification>,
}

/// A home agent (RFC 5944 section 3.8): bindings, registration, and where packets go (MIP-1, MIP-3).
#[derive(Clone, Debug)]
pub struct HomeAgent {
    config: HomeAgentConfig,
    mobiles: BTreeMap<Ipv4Addr, Mobile>,
    /// The networks' first addresses, and whose they are. None overlap, so that the last one that
    /// begins at or before an address is the only one that can hold it.
    networks: BTreeMap<Ipv4Addr, (Prefix, Ipv4Addr)>,
    requests: Outbox<(Ipv4Addr, Request)>,
    out: Outbox<Envelope>,
    advertiser: Option<Advertiser>,
    stats: HomeStats,
}

impl HomeAgent {
    /// An agent without mobiles, whose random times follow from `seed`.
    pub fn new(config: HomeAgentConfig, seed: Seed, now: Time) -> Self {
        let advertiser = config
            .advertise
            .map(|advertise| Advertiser::new(advertise, config.address, Role::Home, seed, now));
        Self {
            config,
            mobiles: BTreeMap::new(),
            networks: BTreeMap::new(),
            requests: Outbox::new(),
            out: Outbox::new(),
            advertiser,
            stats: HomeStats::default(),
        }
    }

    /// The agent's address.
    pub const fn address(&self) -> Ipv4Addr {
        self.config.address
    }

    /// Takes on the mobile at `home`; if it is a router, the whole `network` behind it (MIP-9).
    ///
    /// # Errors
    ///
    /// If it does not fit with those that are served.
    pub fn serve(&mut self, home: Ipv4Addr, network: Option<Prefix>) -> Result<(), ServeError> {
        if self.mobiles.contains_key(&home) {
            return Err(ServeError::Twice(home));
        }
        if self.mobiles.len() >= self.config.mobiles {
            return Err(ServeError::Full(self.mobiles.len()));
        }
        if let Some(network) = network {
            let mut others = self.networks.values().map(|&(other, _)| other);
            if let Some(other) = others.find(|&other| network.overlaps(other)) {
                return Err(ServeError::Overlap(network, other));
            }
            self.networks.insert(network.first(), (network, home));
        }
        self.mobiles.insert(home, Mobile { network, ..Mobile::default() });
        Ok(())
    }

    /// Takes in a message that reached the agent.
    pub fn handle(&mut self, now: Time, from: &Envelope) {
        match from.message {
            Message::Request(request) => {
                self.requests.push(now + self.config.processing, (from.src, request));
                self.work(now);
            }
            Message::Solicitation => {
                if let Some(found) = self.advertiser.as_mut().and_then(|a| a.answer(false)) {
                    self.send(now, from.src, Message::Advertisement(found));
                }
            }
            Message::Advertisement(_) | Message::Reply(_) | Message::BindingUpdate(_) => {}
        }
    }

    /// The next message to send.
    pub fn poll_transmit(&mut self, now: Time) -> Option<Envelope> {
        self.handle_timeout(now);
        self.out.pop(now)
    }

    /// When the agent has to do something.
    pub fn next_timeout(&self) -> Option<Time> {
        let advertisement = self.advertiser.as_ref().map(Advertiser::next_time);
        let waiting = self.requests.next_time().into_iter().chain(self.out.next_time());
        waiting.chain(advertisement).min()
    }

    /// Does what was due by `now`.
    pub fn handle_timeout(&mut self, now: Time) {
        self.work(now);
        if let Some(found) = self.advertiser.as_mut().and_then(|a| a.poll(now, false)) {
            self.send(now, ALL_SYSTEMS, Message::Advertisement(found));
        }
    }

    /// Where a packet for `dst` goes (MIP-3).
    pub fn route(&mut self, now: Time, dst: Ipv4Addr) -> Route {
        self.work(now);
        let Some(home) = self.home_of(dst) else { return Route::Elsewhere };
        match self.binding(now, home) {
            Some(binding) => Route::Tunnel(binding.care_of),
            None => Route::Home,
        }
    }

    /// Where the mobile at `home` is, if it is bound (MIP-1).
    pub fn binding(&mut self, now: Time, home: Ipv4Addr) -> Option<Binding> {
        let mobile = self.mobiles.get_mut(&home)?;
        if mobile.binding?.until <= now {
            mobile.binding = None;
            self.stats.expired += 1;
        }
        mobile.binding
    }

    /// What it did.
    pub fn stats(&self) -> HomeStats {
        HomeStats { dropped: self.requests.dropped() + self.out.dropped(), ..self.stats }
    }

    /// The mobile that `dst` belongs to: itself, or the router of its network.
    fn home_of(&self, dst: Ipv4Addr) -> Option<Ipv4Addr> {
        if self.mobiles.contains_key(&dst) {
            return Some(dst);
        }
        let (_, &(network, home)) = self.networks.range(..=dst).next_back()?;
        network.contains(dst).then_some(home)
    }

    /// Works on the requests whose processing has ended.
    fn work(&mut self, now: Time) {
        while let Some((from, request)) = self.requests.pop(now) {
            let reply = self.register(now, &request);
            match reply.code {
                Code::Accepted => self.stats.accepted += 1,
                Code::Identification => {
                    self.stats.denied += 1;
                    self.stats.replayed += 1;
                }
                _ => self.stats.denied += 1,
            }
            self.send(now, from, Message::Reply(reply));
        }
    }

    fn register(&mut self, now: Time, request: &Request) -> Reply {
        let mut reply = Reply {
            home: request.home,
            home_agent: self.config.address,
            lifetime: request.lifetime.min(self.config.lifetime),
            id: request.id,
            code: Code::Accepted,
        };
        if let Some(code) = self.objection(now, request) {
            if code == Code::Identification {
                reply.id.seconds = Identification::at(now, 0, 0).seconds;
            }
            return Reply { code, lifetime: Duration::ZERO, ..reply };
        }
        if let Some(mobile) = self.mobiles.get_mut(&request.home) {
            mobile.last = Some(request.id);
            let away = !reply.lifetime.is_zero() && request.care_of != request.home;
            let until = now + reply.lifetime;
            mobile.binding = away.then_some(Binding { care_of: request.care_of, until });
        }
        reply
    }

    fn objection(&self, now: Time, request: &Request) -> Option<Code> {
        if request.home_agent != self.config.address {
            return Some(Code::WrongHomeAgent);
        }
        let Some(mobile) = self.mobiles.get(&request.home) else {
            return Some(Code::Unauthenticated);
        };
        if request.network.is_some() && request.network != mobile.network {
            return Some(Code::Unauthenticated);
        }
        let clock = Identification::at(now, 0, 0).seconds;
        let apart = u64::from(clock.abs_diff(request.id.seconds));
        let old = mobile.last.is_some_and(|last| request.id <= last);
        (old || apart > self.config.tolerance.as_secs()).then_some(Code::Identification)
    }

    fn send(&mut self, now: Time, dst: Ipv4Addr, message: Message) {
        self.out.push(now, Envelope { src: self.config.address, dst, message });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME_AGENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
    const MOBILE: Ipv4Addr = Ipv4Addr::new(10, 0, 9, 9);
    const FIRST: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 1);
    const SECOND: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 1);

    fn agent(config: HomeAgentConfig) -> HomeAgent {
        let mut agent = HomeAgent::new(config, Seed::from_u64(1), Time::ZERO);
        agent.serve(MOBILE, None).unwrap();
        agent
    }

    fn request(now: Time, care_of: Ipv4Addr, lifetime: u64) -> Request {
        Request {
            home: MOBILE,
            home_agent: HOME_AGENT,
            care_of,
            lifetime: Duration::from_secs(lifetime),
            id: Identification::at(now, 0, 1),
            network: None,
            previous: None,
        }
    }

    fn ask(agent: &mut HomeAgent, now: Time, request: Request) -> Reply {
        let message = Message::Request(request);
        agent.handle(now, &Envelope { src: request.care_of, dst: HOME_AGENT, message });
        match agent.poll_transmit(now) {
            Some(Envelope { dst, message: Message::Reply(reply), .. }) => {
                assert_eq!(dst, request.care_of);
                reply
            }
            other => panic!("no reply but {other:?}"),
        }
    }

    /// MIP-1: a binding holds for its lifetime, is renewed, and ends.
    #[test]
    fn a_binding_holds_for_its_lifetime() {
        let mut agent = agent(HomeAgentConfig::new(HOME_AGENT));
        let at = Time::from_secs;
        assert_eq!(agent.route(at(0), MOBILE), Route::Home);
        assert_eq!(agent.route(at(0), FIRST), Route::Elsewhere);
        assert_eq!(ask(&mut agent, at(1), request(at(1), FIRST, 10)).code, Code::Accepted);
        assert_eq!(agent.route(at(10), MOBILE), Route::Tunnel(FIRST));
        assert_eq!(ask(&mut agent, at(10), request(at(10), SECOND, 10)).code, Code::Accepted);
        assert_eq!(agent.route(at(19), MOBILE), Route::Tunnel(SECOND));
        assert_eq!(agent.route(at(20), MOBILE), Route::Home);
        assert_eq!(agent.stats().expired, 1);
    }

    #[test]
    fn a_lifetime_of_zero_ends_the_binding() {
        let mut agent = agent(HomeAgentConfig::new(HOME_AGENT));
        let at = Time::from_secs;
        ask(&mut agent, at(1), request(at(1), FIRST, 10));
        let reply = ask(&mut agent, at(2), request(at(2), MOBILE, 0));
        assert_eq!((reply.code, reply.lifetime), (Code::Accepted, Duration::ZERO));
        assert_eq!(agent.route(at(2), MOBILE), Route::Home);
    }

    #[test]
    fn a_binding_is_granted_no_longer_than_the_agent_allows() {
        let config = HomeAgentConfig {
            lifetime: Duration::from_secs(5),
            ..HomeAgentConfig::new(HOME_AGENT)
        };
        let at = Time::from_secs;
        let reply = ask(&mut agent(config), at(1), request(at(1), FIRST, 60));
        assert_eq!(reply.lifetime, Duration::from_secs(5));
    }

    #[test]
    fn an_old_or_repeated_request_changes_nothing() {
        let mut agent = agent(HomeAgentConfig::new(HOME_AGENT));
        let at = Time::from_secs;
        let old = request(at(1), FIRST, 100);
        let new = request(at(2), SECOND, 100);
        assert_eq!(ask(&mut agent, at(3), new).code, Code::Accepted);
        for stale in [old, new] {
            assert_eq!(ask(&mut agent, at(4), stale).code, Code::Identification);
        }
        assert_eq!(agent.route(at(4), MOBILE), Route::Tunnel(SECOND));
        assert_eq!(agent.stats().replayed, 2);
    }

    #[test]
    fn a_wrong_clock_is_told_the_right_one() {
        let mut agent = agent(HomeAgentConfig::new(HOME_AGENT));
        let now = Time::from_secs(100);
        let early = request(Time::from_secs(92), FIRST, 10);
        let reply = ask(&mut agent, now, early);
        assert_eq!((reply.code, reply.id.seconds), (Code::Identification, 100));
        assert_eq!(reply.id.low, early.id.low);
    }

    #[test]
    fn strangers_and_misdirected_requests_are_denied() {
        let mut agent = agent(HomeAgentConfig::new(HOME_AGENT));
        let now = Time::from_secs(1);
        let stranger = Request { home: SECOND, ..request(now, FIRST, 10) };
        assert_eq!(ask(&mut agent, now, stranger).code, Code::Unauthenticated);
        let other = Request { home_agent: SECOND, ..request(now, FIRST, 10) };
        assert_eq!(ask(&mut agent, now, other).code, Code::WrongHomeAgent);
        let network = Some(Prefix::new(MOBILE, 24));
        let greedy = Request { network, ..request(now, FIRST, 10) };
        assert_eq!(ask(&mut agent, now, greedy).code, Code::Unauthenticated);
    }

    /// MIP-8: the agent's part of the registration delay is a parameter; until it has passed the
    /// old binding holds (MIP-4).
    #[test]
    fn the_binding_changes_when_processing_ends() {
        let config = HomeAgentConfig {
            processing: Duration::from_millis(30),
            ..HomeAgentConfig::new(HOME_AGENT)
        };
        let mut agent = agent(config);
        let at = Time::from_millis;
        let message = Message::Request(request(at(1000), FIRST, 10));
        agent.handle(at(1000), &Envelope { src: FIRST, dst: HOME_AGENT, message });
        assert_eq!(agent.poll_transmit(at(1029)), None);
        assert_eq!(agent.route(at(1029), MOBILE), Route::Home);
        assert_eq!(agent.next_timeout(), Some(at(1030)));
        assert!(agent.poll_transmit(at(1030)).is_some());
        assert_eq!(agent.route(at(1030), MOBILE), Route::Tunnel(FIRST));
    }

    /// MIP-9: whatever is behind a mobile router follows its binding.
    #[test]
    fn a_routers_network_moves_with_it() {
        let mut agent = agent(HomeAgentConfig::new(HOME_AGENT));
        let router = Ipv4Addr::new(10, 0, 9, 10);
        let network = Prefix::new(Ipv4Addr::new(10, 7, 0, 0), 16);
        let behind = Ipv4Addr::new(10, 7, 3, 4);
        agent.serve(router, Some(network)).unwrap();
        let now = Time::from_secs(1);
        assert_eq!(agent.route(now, behind), Route::Home);
        let asked = Request { home: router, network: Some(network), ..request(now, FIRST, 10) };
        assert_eq!(ask(&mut agent, now, asked).code, Code::Accepted);
        assert_eq!(agent.route(now, behind), Route::Tunnel(FIRST));
        assert_eq!(agent.route(now, router), Route::Tunnel(FIRST));
        assert_eq!(agent.route(now, Ipv4Addr::new(10, 8, 0, 0)), Route::Elsewhere);
        assert_eq!(agent.route(now, Ipv4Addr::new(10, 6, 255, 255)), Route::Elsewhere);
    }

    #[test]
    fn mobiles_that_do_not_fit_are_named() {
        let config = HomeAgentConfig { mobiles: 2, ..HomeAgentConfig::new(HOME_AGENT) };
        let mut agent = agent(config);
        assert_eq!(agent.serve(MOBILE, None), Err(ServeError::Twice(MOBILE)));
        let wide = Prefix::new(FIRST, 16);
        assert_eq!(agent.serve(FIRST, Some(wide)), Ok(()));
        assert_eq!(agent.serve(SECOND, None), Err(ServeError::Full(2)));
        let mut roomy =
            HomeAgent::new(HomeAgentConfig::new(HOME_AGENT), Seed::from_u64(1), Time::ZERO);
        let narrow = Prefix::new(FIRST, 24);
        assert_eq!(roomy.serve(FIRST, Some(wide)), Ok(()));
        assert_eq!(roomy.serve(SECOND, Some(narrow)), Err(ServeError::Overlap(narrow, wide)));
    }
}
