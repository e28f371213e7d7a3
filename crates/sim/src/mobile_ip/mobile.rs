//! The mobile's part: it receives advertisements, registers, and notifies the layers above.

use std::collections::VecDeque;
use std::net::Ipv4Addr;

use lasthop_units::{Duration, LinkEvent, Time};

use super::message::{
    ALL_ROUTERS, Advertisement, Code, Envelope, Identification, Message, Prefix, Reply, Request,
    Role,
};
use super::outbox::Outbox;

/// When a mobile takes another agent's advertisement for a move (RFC 5944 section 2.4.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum MoveDetection {
    /// At once: a mobile with one radio receives one base, so that another's advertisement means a move.
    #[default]
    Eager,
    /// Once the present agent's advertisement has expired.
    Lifetime,
}

/// How a mobile registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MobileConfig {
    /// The address that everybody knows it by.
    pub home: Ipv4Addr,
    /// Who is notified where it is.
    pub home_agent: Ipv4Addr,
    /// The network behind it, if it is a router (MIP-9).
    pub network: Option<Prefix>,
    /// How long a registration it asks for; an agent may grant less.
    pub lifetime: Duration,
    /// How long after a request the next follows, if there is no answer; it doubles each time.
    pub retry: Duration,
    /// The longest that a retransmission may wait.
    pub retry_max: Duration,
    /// Whether it asks for an advertisement when the link comes up, instead of waiting for one.
    pub solicit: bool,
    /// When another agent's advertisement means a move.
    pub detection: MoveDetection,
    /// Whether it asks its new agent to tell the previous one (MIP-4).
    pub notify_previous: bool,
    /// Seconds that its clock is fast.
    pub clock_ahead: i32,
}

impl MobileConfig {
    /// A mobile with RFC 5944's defaults: it waits for advertisements (MIP-2) and retries after
    /// one second.
    pub fn new(home: Ipv4Addr, home_agent: Ipv4Addr) -> Self {
        Self {
            home,
            home_agent,
            network: None,
            lifetime: Duration::from_secs(300),
            retry: Duration::from_secs(1),
            retry_max: Duration::from_secs(64),
            solicit: false,
            detection: MoveDetection::Eager,
            notify_previous: false,
            clock_ahead: 0,
        }
    }
}

/// Notifications to the layers above (MIP-6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Upcall {
    /// The mobile is out of reach: its base is gone, or it has found another.
    HandoffInProgress,
    /// The mobile can be reached through `base`: packets for it pass there from now on (MIP-7).
    HandoffComplete {
        /// The address of the new base station's agent.
        base: Ipv4Addr,
        /// When what happened.
        timing: HandoffTiming,
    },
    /// The mobile is with the same base again, and its binding held meanwhile.
    Returned {
        /// The address of the base station's agent.
        base: Ipv4Addr,
    },
    /// An agent denies the registration for good; another agent will be asked.
    Refused {
        /// Why.
        code: Code,
    },
}

/// The parts of a handoff's latency (MIP-8, MET-12).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HandoffTiming {
    /// The base before; none for the first registration.
    pub from: Option<Ipv4Addr>,
    /// When service was lost: the link went down, or the move was found out without a word from
    /// the link.
    pub lost: Time,
    /// When the link was up again, or could be known to be.
    pub up: Time,
    /// When the new agent's advertisement came.
    pub heard: Time,
    /// When the reply came.
    pub complete: Time,
    /// Requests sent.
    pub requests: u32,
}

impl HandoffTiming {
    /// The link's part: the loss of service until the link is up.
    pub fn link(&self) -> Duration {
        self.up - self.lost
    }

    /// The wait for an advertisement.
    pub fn advertisement(&self) -> Duration {
        self.heard - self.up
    }

    /// Registration: about one round trip to the home agent if nothing is lost.
    pub fn registration(&self) -> Duration {
        self.complete - self.heard
    }

    /// All of it.
    pub fn latency(&self) -> Duration {
        self.complete - self.lost
    }
}

/// What a mobile did.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct MobileStats {
    /// Solicitations sent.
    pub solicitations: u64,
    /// Requests sent.
    pub requests: u64,
    /// Of those, the ones that repeat an unanswered one.
    pub retransmits: u64,
    /// Registrations, renewals included.
    pub accepted: u64,
    /// Replies that denied one.
    pub denied: u64,
    /// Handoffs completed, the first registration not counted.
    pub handoffs: u64,
}

/// The agent whose advertisements the mobile receives.
#[derive(Clone, Copy, Debug)]
struct VisibleAgent {
    agent: Ipv4Addr,
    role: Role,
    sequence: u16,
    lifetime: Duration,
    until: Time,
}

#[derive(Clone, Copy, Debug)]
struct Registered {
    base: Ipv4Addr,
    granted: Duration,
    until: Time,
}

#[derive(Clone, Copy, Debug)]
struct Attempt {
    id: Identification,
    lifetime: Duration,
    sent: Time,
    retry_at: Time,
    backoff: Duration,
    /// The last request was a correction of the one before, so that another is not made at once.
    corrected: bool,
}

/// A handoff under way.
#[derive(Clone, Copy, Debug)]
struct Handoff {
    lost: Time,
    up: Option<Time>,
    heard: Option<Time>,
    requests: u32,
}

#[derive(Clone, Copy, Debug)]
struct Soliciting {
    next: Time,
    interval: Duration,
    sent: u32,
}

/// A mobile's registration (RFC 5944 section 3.6).
#[derive(Clone, Debug)]
pub struct MobileRegistration {
    config: MobileConfig,
    link_up: bool,
    soliciting: Option<Soliciting>,
    heard: Option<VisibleAgent>,
    registered: Option<Registered>,
    attempt: Option<Attempt>,
    /// The agent through which a registration was denied for good.
    refused_by: Option<Ipv4Addr>,
    /// When to register again although nothing has changed.
    renew_at: Option<Time>,
    handoff: Option<Handoff>,
    last: Option<Identification>,
    count: u32,
    clock_ahead: i32,
    out: Outbox<Envelope>,
    upcalls: VecDeque<Upcall>,
    stats: MobileStats,
}

impl MobileRegistration {
    /// Solicitations sent a second apart before the gaps grow (RFC 5944 section 2.4).
    const QUICK_SOLICITATIONS: u32 = 3;
    const SOLICITATION_GAP: Duration = Duration::from_secs(1);
    const SOLICITATION_GAP_MAX: Duration = Duration::from_secs(60);
    /// Upcalls that nobody takes; the oldest is dropped for the next.
    const UPCALLS: usize = 32;
    /// A retransmission timer below would flood the hop.
    const SHORTEST_RETRY: Duration = Duration::from_millis(1);

    /// A mobile whose link is up and which has received nothing yet.
    pub fn new(config: MobileConfig, now: Time) -> Self {
        let mut mobile = Self {
            config,
            link_up: false,
            soliciting: None,
            heard: None,
            registered: None,
            attempt: None,
            refused_by: None,
            renew_at: None,
            handoff: Some(Handoff { lost: now, up: None, heard: None, requests: 0 }),
            last: None,
            count: 0,
            clock_ahead: config.clock_ahead,
            out: Outbox::new(),
            upcalls: VecDeque::new(),
            stats: MobileStats::default(),
        };
        mobile.link_is_up(now);
        mobile
    }

    /// The address that everybody knows it by.
    pub const fn home(&self) -> Ipv4Addr {
        self.config.home
    }

    /// Takes in what the link says. Its words are a help and no need: an advertisement shows a
    /// link that is up, and silence one that is down.
    pub fn handle_link(&mut self, now: Time, event: LinkEvent) {
        match event {
            LinkEvent::Up => self.link_is_up(now),
            LinkEvent::Down => self.link_is_down(now),
            LinkEvent::Imminent { .. } | LinkEvent::Complete => {}
        }
    }

    /// Takes in a message that reached the mobile.
    pub fn handle(&mut self, now: Time, from: &Envelope) {
        match &from.message {
            Message::Advertisement(advertisement) => {
                self.handle_advertisement(now, advertisement);
            }
            Message::Reply(reply) => self.handle_reply(now, reply),
            Message::Solicitation | Message::Request(_) | Message::BindingUpdate(_) => {}
        }
    }

    /// The next message to send.
    pub fn poll_transmit(&mut self, now: Time) -> Option<Envelope> {
        self.handle_timeout(now);
        self.out.pop(now)
    }

    /// The next notification to the layers above (MIP-6).
    pub fn poll_upcall(&mut self) -> Option<Upcall> {
        self.upcalls.pop_front()
    }

    /// When the mobile has to do something.
    pub fn next_timeout(&self) -> Option<Time> {
        let active = self.link_up.then(|| {
            let solicitation = self.soliciting.map(|s| s.next);
            let retry = self.attempt.map(|a| a.retry_at);
            let silence = self.heard.map(|h| h.until);
            [solicitation, retry, silence, self.renew_at].into_iter().flatten().min()
        });
        let expiry = self.registered.map(|r| r.until);
        active.flatten().into_iter().chain(expiry).chain(self.out.next_time()).min()
    }

    /// Does what was due by `now`.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.registered.is_some_and(|r| r.until <= now) {
            self.registered = None;
            self.renew_at = None;
            self.begin_handoff(now);
            self.restart_registration(now);
        }
        if !self.link_up {
            return;
        }
        if self.heard.is_some_and(|h| h.until <= now) {
            self.heard = None;
            self.attempt = None;
            self.begin_handoff(now);
            self.solicit(now);
        }
        if self.renew_at.is_some_and(|at| at <= now) {
            self.renew_at = None;
            self.restart_registration(now);
        }
        if self.soliciting.is_some_and(|s| s.next <= now) {
            self.send_solicitation(now);
        }
        if self.attempt.is_some_and(|a| a.retry_at <= now) {
            self.retry(now);
        }
    }

    /// The base that the mobile's packets leave through: the one it receives, registered or not, so
    /// that it can send before it can be reached (MIP-5).
    pub fn router(&self) -> Option<Ipv4Addr> {
        self.heard.map(|heard| heard.agent)
    }

    /// The base through which the mobile can be reached, as far as it knows.
    pub fn base(&self, now: Time) -> Option<Ipv4Addr> {
        self.registered.filter(|r| now < r.until).map(|r| r.base)
    }

    /// What it did.
    pub const fn stats(&self) -> MobileStats {
        self.stats
    }

    fn link_is_up(&mut self, now: Time) {
        if self.link_up {
            return;
        }
        self.link_up = true;
        if let Some(handoff) = &mut self.handoff {
            handoff.up.get_or_insert(now);
        }
        self.solicit(now);
    }

    fn link_is_down(&mut self, now: Time) {
        if !self.link_up {
            return;
        }
        self.link_up = false;
        self.soliciting = None;
        self.heard = None;
        self.attempt = None;
        self.refused_by = None;
        self.begin_handoff(now);
        // What a handoff had reached on this link is void.
        if let Some(handoff) = &mut self.handoff {
            handoff.up = None;
            handoff.heard = None;
        }
    }

    fn begin_handoff(&mut self, now: Time) {
        if self.handoff.is_none() {
            let up = self.link_up.then_some(now);
            self.handoff = Some(Handoff { lost: now, up, heard: None, requests: 0 });
            self.upcall(Upcall::HandoffInProgress);
        }
    }

    fn handle_advertisement(&mut self, now: Time, found: &Advertisement) {
        self.link_is_up(now);
        let present = self.heard.filter(|heard| now < heard.until);
        let same = present.is_some_and(|heard| heard.agent == found.agent);
        let stays = present.is_some() && !same && self.config.detection == MoveDetection::Lifetime;
        let registered_here = self.registered.is_some_and(|r| r.base == found.agent);
        let foreign_home = found.role == Role::Home && found.agent != self.config.home_agent;
        if stays || foreign_home || (found.busy && !registered_here && !same) {
            return;
        }
        let restarted = present
            .is_some_and(|heard| same && found.sequence < heard.sequence && found.sequence < 256);
        self.heard = Some(VisibleAgent {
            agent: found.agent,
            role: found.role,
            sequence: found.sequence,
            lifetime: found.lifetime,
            until: now + found.validity.max(Duration::from_secs(1)),
        });
        self.soliciting = None;
        if registered_here && !restarted {
            return self.return_to(now, found.agent);
        }
        let asked = self.attempt.is_some() || self.refused_by == Some(found.agent);
        if same && !restarted && asked {
            return;
        }
        self.refused_by = None;
        self.begin_handoff(now);
        if let Some(handoff) = &mut self.handoff {
            handoff.heard = Some(now);
        }
        self.restart_registration(now);
    }

    /// The registered agent advertised: if it had been out of reach, it is the base again.
    fn return_to(&mut self, now: Time, base: Ipv4Addr) {
        if self.handoff.take().is_some() {
            self.attempt = None;
            self.upcall(Upcall::Returned { base });
            self.plan_renewal(now);
        }
    }

    /// A quarter of the lifetime is left for the renewal; at home no lifetime runs.
    fn plan_renewal(&mut self, now: Time) {
        let away = self.registered.filter(|registered| registered.until != Time::NEVER);
        self.renew_at = away.map(|r| (r.until - r.granted / 4).max(now));
    }

    /// Registers with the visible agent, as for the first time.
    fn restart_registration(&mut self, now: Time) {
        let Some(heard) = self.heard else { return };
        let lifetime = match heard.role {
            Role::Home => Duration::ZERO,
            Role::Foreign => self.config.lifetime.min(heard.lifetime),
        };
        let backoff = self.config.retry.max(Self::SHORTEST_RETRY);
        self.request(now, lifetime, backoff, false);
    }

    fn retry(&mut self, now: Time) {
        let Some(attempt) = self.attempt else { return };
        self.stats.retransmits += 1;
        let longest = self.config.retry_max.max(Self::SHORTEST_RETRY);
        let backoff = attempt.backoff.saturating_mul(2).min(longest);
        self.request(now, attempt.lifetime, backoff, false);
    }

    fn request(&mut self, now: Time, lifetime: Duration, backoff: Duration, corrected: bool) {
        let Some(heard) = self.heard else { return };
        let id = self.identification(now);
        let at_home = heard.role == Role::Home;
        let left = self.registered.map(|r| r.base).filter(|&base| base != heard.agent);
        let request = Request {
            home: self.config.home,
            home_agent: self.config.home_agent,
            care_of: if at_home { self.config.home } else { heard.agent },
            lifetime,
            id,
            network: self.config.network,
            previous: left.filter(|_| self.config.notify_previous && !at_home),
        };
        let retry_at = now + backoff;
        self.attempt = Some(Attempt { id, lifetime, sent: now, retry_at, backoff, corrected });
        if let Some(handoff) = &mut self.handoff {
            handoff.requests += 1;
        }
        self.stats.requests += 1;
        self.send(now, heard.agent, Message::Request(request));
    }

    fn handle_reply(&mut self, now: Time, reply: &Reply) {
        let Some(attempt) = self.attempt else { return };
        let Some(heard) = self.heard else { return };
        if reply.home != self.config.home || reply.id.low != attempt.id.low {
            return;
        }
        match reply.code {
            Code::Accepted => self.accept(now, heard, attempt, reply.lifetime),
            Code::LifetimeTooLong if !reply.lifetime.is_zero() && !attempt.corrected => {
                self.stats.denied += 1;
                let lifetime = reply.lifetime.min(attempt.lifetime);
                self.request(now, lifetime, attempt.backoff, true);
            }
            Code::Identification if !attempt.corrected => {
                self.stats.denied += 1;
                let wrong = reply.id.seconds.wrapping_sub(attempt.id.seconds).cast_signed();
                self.clock_ahead = self.clock_ahead.wrapping_add(wrong);
                // A corrected clock may go back: requests before count no more.
                self.last = None;
                self.request(now, attempt.lifetime, attempt.backoff, true);
            }
            Code::Unauthenticated | Code::WrongHomeAgent => {
                self.stats.denied += 1;
                self.attempt = None;
                self.refused_by = Some(heard.agent);
                self.upcall(Upcall::Refused { code: reply.code });
            }
            // Another try may do better: the timer runs.
            _ => self.stats.denied += 1,
        }
    }

    fn accept(&mut self, now: Time, heard: VisibleAgent, attempt: Attempt, granted: Duration) {
        self.attempt = None;
        self.stats.accepted += 1;
        let from = self.registered.map(|r| r.base);
        let granted = granted.min(attempt.lifetime);
        let until = match heard.role {
            Role::Home => Time::NEVER,
            Role::Foreign => attempt.sent + granted.max(Duration::from_secs(1)),
        };
        self.registered = Some(Registered { base: heard.agent, granted, until });
        self.plan_renewal(now);
        let Some(handoff) = self.handoff.take() else { return };
        let up = handoff.up.unwrap_or(handoff.lost);
        let heard_at = handoff.heard.unwrap_or(up);
        let timing = HandoffTiming {
            from,
            lost: handoff.lost,
            up,
            heard: heard_at,
            complete: now,
            requests: handoff.requests,
        };
        self.stats.handoffs += u64::from(from.is_some());
        self.upcall(Upcall::HandoffComplete { base: heard.agent, timing });
    }

    fn solicit(&mut self, now: Time) {
        if self.config.solicit {
            self.soliciting =
                Some(Soliciting { next: now, interval: Self::SOLICITATION_GAP, sent: 0 });
        }
    }

    fn send_solicitation(&mut self, now: Time) {
        let Some(soliciting) = &mut self.soliciting else { return };
        soliciting.sent += 1;
        if soliciting.sent >= Self::QUICK_SOLICITATIONS {
            soliciting.interval = (soliciting.interval * 2).min(Self::SOLICITATION_GAP_MAX);
        }
        soliciting.next = now + soliciting.interval;
        self.stats.solicitations += 1;
        self.send(now, ALL_ROUTERS, Message::Solicitation);
    }

    /// A timestamp above all before.
    fn identification(&mut self, now: Time) -> Identification {
        self.count = self.count.wrapping_add(1);
        let id = Identification::at(now, self.clock_ahead, self.count);
        let id = self.last.map_or(id, |last| id.max(last.next()));
        self.last = Some(id);
        id
    }

    fn send(&mut self, now: Time, dst: Ipv4Addr, message: Message) {
        self.out.push(now, Envelope { src: self.config.home, dst, message });
    }

    fn upcall(&mut self, upcall: Upcall) {
        if self.upcalls.len() >= Self::UPCALLS {
            self.upcalls.pop_front();
        }
        self.upcalls.push_back(upcall);
    }
}

#[cfg(test)]
mod tests;
