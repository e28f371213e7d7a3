//! The applications at a mobile and the fixed hosts behind a base, over the session.

use std::collections::{BTreeMap, VecDeque};

use lasthop_hop::Policy;
use lasthop_session::{Config, ConnId, Event, Session};
use lasthop_units::{Duration, Seed, Time};

use crate::hop::Endpoint;
use crate::plan::ConnectionPlan;
use crate::side::{Account, EndKind, Side};

/// How long an opening waits that met a bound.
const RETRY: Duration = Duration::from_millis(50);
/// Connections have these in turn.
const POLICIES: [Policy; 3] = [Policy::Speed, Policy::Redundant, Policy::Cheap];

/// The session of one association and the connections on it.
#[derive(Debug)]
struct Table {
    session: Session,
    sides: BTreeMap<ConnId, (usize, Side)>,
}

/// All that lives on one endpoint.
#[derive(Debug)]
pub(crate) struct Applications {
    end: EndKind,
    plans: Vec<ConnectionPlan>,
    seed: Seed,
    tables: Vec<Table>,
    /// Connections that this mobile has still to open, earliest first.
    to_open: VecDeque<usize>,
    /// Fixed hosts that have still to answer: when, association, connection.
    to_answer: Vec<(Time, usize, ConnId)>,
    /// What every connection came to, by its number.
    pub(crate) done: BTreeMap<usize, Account>,
    /// No dawdling from here on.
    pub(crate) eager: bool,
    /// The most that the endpoint said it buffers, for each number of streams it had then.
    pub(crate) buffered_max: BTreeMap<u64, u64>,
    calls: u32,
    /// An opening met a bound: the next try is not before this.
    retry: Time,
    /// Something that no end may ever see.
    pub(crate) absurd: Option<(Time, String)>,
    next: Option<Time>,
}

impl Applications {
    /// The applications of mobile number `mobile`.
    pub(crate) fn of_mobile(mobile: usize, plans: &[ConnectionPlan], seed: Seed) -> Self {
        let mut order: Vec<_> = (0..plans.len()).filter(|i| plans[*i].mobile == mobile).collect();
        order.sort_by_key(|i| plans[*i].at);
        let next = order.first().map(|i| plans[*i].at);
        let table = Table { session: Session::mobile(Config::mobile()), sides: BTreeMap::new() };
        let new = Self::new(EndKind::Application, plans, seed);
        Self { to_open: order.into(), tables: vec![table], next, ..new }
    }

    /// The fixed hosts.
    pub(crate) fn fixed_hosts(plans: &[ConnectionPlan], seed: Seed) -> Self {
        Self::new(EndKind::FixedHost, plans, seed)
    }

    fn new(end: EndKind, plans: &[ConnectionPlan], seed: Seed) -> Self {
        Self {
            end,
            plans: plans.to_vec(),
            seed,
            tables: Vec::new(),
            to_open: VecDeque::new(),
            to_answer: Vec::new(),
            done: BTreeMap::new(),
            eager: false,
            buffered_max: BTreeMap::new(),
            calls: 0,
            retry: Time::ZERO,
            absurd: None,
            next: None,
        }
    }

    /// Connections that are not over, those not yet begun included.
    pub(crate) fn open(&self) -> usize {
        self.tables.iter().map(|t| t.sides.len()).sum::<usize>() + self.to_open.len()
    }

    /// Connections that the sessions remember.
    pub(crate) fn remembered(&self) -> usize {
        self.tables.iter().map(|t| t.session.connections()).sum()
    }

    /// What the connections that are not over have come to so far.
    pub(crate) fn unfinished(&self) -> impl Iterator<Item = (usize, &Account)> {
        self.tables.iter().flat_map(|t| t.sides.values()).map(|(i, side)| (*i, &side.account))
    }

    /// What connection number `index` has come to.
    pub(crate) fn account(&self, index: usize) -> Option<&Account> {
        let unfinished = self.unfinished().find(|(i, _)| *i == index).map(|(_, account)| account);
        unfinished.or_else(|| self.done.get(&index))
    }

    /// Lets all of them do what they can at this moment.
    pub(crate) fn drive(&mut self, now: Time, endpoint: &mut Endpoint) {
        while self.tables.len() < endpoint.associations() {
            let session = Session::base(Config::base());
            self.tables.push(Table { session, sides: BTreeMap::new() });
        }
        self.open_due(now, endpoint);
        self.answer_due(now, endpoint);
        for association in 0..self.tables.len() {
            self.resume_due(now, association, endpoint);
            self.handle_events(now, association, endpoint);
        }
        self.measure(endpoint);
        self.next = self.earliest();
    }

    /// When one of them goes on though nothing arrives.
    pub(crate) fn next_timeout(&self) -> Option<Time> {
        self.next
    }

    fn open_due(&mut self, now: Time, endpoint: &mut Endpoint) {
        while let Some(&index) = self.to_open.front() {
            let plan = &self.plans[index];
            if plan.at.max(self.retry) > now {
                return;
            }
            self.retry = now + RETRY;
            let Some(mut hop) = endpoint.streams(0) else { return };
            let Table { session, sides } = &mut self.tables[0];
            let Ok(id) = session.connect(now, &mut hop, &plan.target(index), plan.opening) else {
                return;
            };
            // Hosts are told apart as those of packets are.
            session.set_client(&mut hop, id, index as u32 % 3);
            session.set_policy(&mut hop, id, POLICIES[index % POLICIES.len()]);
            self.retry = Time::ZERO;
            self.to_open.pop_front();
            let side = Side::new(id, index, self.end, plan.application.clone(), self.seed);
            sides.insert(id, (index, side));
        }
    }

    fn answer_due(&mut self, now: Time, endpoint: &mut Endpoint) {
        let due = self.to_answer.extract_if(.., |(at, _, _)| *at <= now);
        for (_, association, id) in due.collect::<Vec<_>>() {
            let Some(mut hop) = endpoint.streams(association) else { continue };
            let Table { session, sides } = &mut self.tables[association];
            let Some((index, side)) = sides.get_mut(&id) else { continue };
            match self.plans[*index].refusal {
                Some(refusal) => {
                    side.account.refused = true;
                    session.refuse(&mut hop, id, refusal);
                }
                None => {
                    session.accept(&mut hop, id, bound(*index));
                    side.account.opened = true;
                    side.can_write = true;
                    side.drive(now, self.eager, session, &mut hop);
                }
            }
        }
    }

    fn handle_events(&mut self, now: Time, association: usize, endpoint: &mut Endpoint) {
        let Some(mut hop) = endpoint.streams(association) else { return };
        while let Some(event) = self.tables[association].session.poll_event(now, &mut hop) {
            if let Event::Connect { id, target, .. } = &event {
                self.accept(now, association, *id, ConnectionPlan::index_of(target));
                continue;
            }
            let Table { session, sides } = &mut self.tables[association];
            let Some((index, side)) = sides.get_mut(&event.id()) else {
                self.absurd.get_or_insert_with(|| (now, format!("{event:?} after the end")));
                continue;
            };
            handle_event(side, &event);
            if side.account.closed {
                let index = *index;
                self.done.insert(index, side.account.clone());
                sides.remove(&event.id());
            } else {
                side.drive(now, self.eager, session, &mut hop);
            }
        }
    }

    fn accept(&mut self, now: Time, association: usize, id: ConnId, index: Option<usize>) {
        let Some((index, plan)) = index.and_then(|i| Some((i, self.plans.get(i)?))) else {
            self.absurd.get_or_insert_with(|| (now, "a target that nobody asked for".into()));
            return;
        };
        let known = self.unfinished().any(|(i, _)| i == index) || self.done.contains_key(&index);
        if known {
            self.absurd.get_or_insert_with(|| (now, format!("connection {index} asked for twice")));
        }
        let side = Side::new(id, index, self.end, plan.fixed_host.clone(), self.seed);
        self.to_answer.push((now + plan.answer_after, association, id));
        self.tables[association].sides.insert(id, (index, side));
    }

    /// Lets sides go on whose own pause is over.
    fn resume_due(&mut self, now: Time, association: usize, endpoint: &mut Endpoint) {
        let Some(mut hop) = endpoint.streams(association) else { return };
        let Table { session, sides } = &mut self.tables[association];
        if session.next_timeout().is_some_and(|t| t <= now) {
            session.handle_timeout(now, &mut hop);
        }
        for (_, side) in sides.values_mut() {
            if self.eager || side.next_timeout().is_some_and(|t| t <= now) {
                side.drive(now, self.eager, session, &mut hop);
            }
        }
    }

    fn measure(&mut self, endpoint: &mut Endpoint) {
        self.calls = self.calls.wrapping_add(1);
        if self.calls.is_multiple_of(8) {
            for (streams, bytes) in endpoint.held() {
                let most = self.buffered_max.entry(streams).or_default();
                *most = bytes.max(*most);
            }
        }
    }

    fn earliest(&self) -> Option<Time> {
        let opening = self.to_open.front().map(|i| self.plans[*i].at.max(self.retry));
        let answer = self.to_answer.iter().map(|(at, _, _)| *at).min();
        let sides = self.tables.iter().flat_map(|t| {
            let own = t.sides.values().filter_map(|(_, side)| side.next_timeout());
            own.chain(t.session.next_timeout())
        });
        opening.into_iter().chain(answer).chain(sides).min()
    }
}

/// The near end of the base's connection to a fixed host.
fn bound(index: usize) -> std::net::SocketAddr {
    std::net::SocketAddr::from(([198, 51, 100, 1], 2000 + index as u16))
}

fn handle_event(side: &mut Side, event: &Event) {
    match event {
        Event::Opened { .. } => {
            side.account.opened = true;
            side.can_write = true;
            side.can_read = true;
        }
        Event::Failed { refusal, .. } => side.account.failed = Some(*refusal),
        Event::Reset { reason, .. } => side.account.reset = Some(*reason),
        Event::Readable(_) => side.can_read = true,
        Event::Writable(_) => side.can_write = true,
        Event::Acknowledged(_) => {}
        Event::Closed(_) => {
            // A transport closes a stream only when everything was read, so this may be the first
            // that a stalled reader hears of the end.
            side.account.ended |= side.account.opened && !side.is_over();
            side.account.closed = true;
        }
        Event::Connect { .. } => {}
    }
}
