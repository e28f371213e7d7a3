//! What is not done for everybody: who may say what to a base, and for whom a session is released.

use alloc::boxed::Box;
use alloc::vec::Vec;

use lasthop_units::Time;
use lasthop_wire::mhp::MhpError;
use lasthop_wire::mhp::handoff::{
    BaseName, Envelope, GRANTS_MAX, Grant, Message, Reason, SessionId, Warrant,
};

use super::base::{Base, BaseEvent};
use super::entry::{Asked, Doubt, Entry, Grants, Recipient, Role};
use super::{Address, Authority, Claim, Denied};

/// Who says a message.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Speaker {
    Mobile,
    Base,
    /// One base to another, about a session's wired sockets; or a base to a mobile.
    Elsewhere,
}

fn speaker(message: &Message<'_>) -> Speaker {
    match message {
        Message::Greet { .. }
        | Message::Expect { .. }
        | Message::Here { .. }
        | Message::Orphans { .. } => Speaker::Mobile,
        Message::Resume { .. }
        | Message::TakeOver
        | Message::Expected { .. }
        | Message::Attach { .. }
        | Message::Attached => Speaker::Elsewhere,
        _ => Speaker::Base,
    }
}

/// Whether somebody waits for an answer.
fn is_request(message: &Message<'_>) -> bool {
    matches!(
        message,
        Message::Greet { .. }
            | Message::Handover { .. }
            | Message::Commit { .. }
            | Message::Pull { .. }
    )
}

impl<A: Address, T: Authority<A>> Base<A, T> {
    /// Whether the sender of a message may send it; it is refused otherwise.
    pub(super) fn admits(&mut self, asked: Asked<A>, message: &Message<'_>) -> bool {
        let Asked { by: from, session, .. } = asked;
        let why = match speaker(message) {
            Speaker::Mobile if !self.authority.is_mobile(from) => Denied::NotMobile,
            Speaker::Base if !self.authority.is_base(from) => Denied::NotBase,
            Speaker::Elsewhere => return false,
            _ => return true,
        };
        match message {
            Message::Expect { candidate } => {
                self.refuse_candidate(asked, candidate.clone(), why);
            }
            message if is_request(message) => self.deny(asked, why),
            _ => self.note(from, session, why),
        }
        false
    }

    /// A message cannot be read. A sender that is trusted here is notified, but for a refusal, which is
    /// never answered.
    pub(super) fn on_unreadable(&mut self, from: A, datagram: &[u8], error: MhpError) {
        let Some(envelope) = Envelope::read(datagram) else { return };
        let known = self.authority.is_base(from) || self.authority.is_mobile(from);
        if !known || envelope.is_refusal() {
            return;
        }
        let why = match error {
            MhpError::Version(version) => Denied::Version(version),
            MhpError::Type(kind) if envelope.critical => Denied::Kind(kind),
            _ => return,
        };
        let Envelope { session, attempt, .. } = envelope;
        self.deny(Asked { by: from, session, attempt }, why);
    }

    /// Refuses, and reports that to the world.
    pub(super) fn deny(&mut self, asked: Asked<A>, why: Denied) {
        let Asked { by: to, session, attempt } = asked;
        self.note(to, session, why);
        self.send(to, session, attempt, Message::Refuse(why.reason()));
    }

    pub(super) fn refuse_candidate(&mut self, asked: Asked<A>, candidate: BaseName, why: Denied) {
        let Asked { by: mobile, session, attempt } = asked;
        self.note(mobile, session, why);
        let refused = Some(why.reason());
        self.send(mobile, session, attempt, Message::Expected { candidate, refused });
    }

    /// In whose name a base asks for a session, if it may have it.
    pub(super) fn warranted(
        &self,
        asked: Asked<A>,
        warrant: Option<&Warrant>,
    ) -> Result<Option<A>, Denied> {
        let Asked { by: to, session, attempt } = asked;
        let Some(warrant) = warrant else {
            return if self.authority.needs_grants() { Err(Denied::NoGrant) } else { Ok(None) };
        };
        let mobile = A::from_name(&warrant.mobile).filter(|m| self.authority.is_mobile(*m));
        let mobile = mobile.ok_or(Denied::UnknownMobile)?;
        let claim = Claim { session, attempt, to };
        if !self.authority.holds(mobile, &claim, &warrant.grant) {
            return Err(Denied::NotGranted);
        }
        match self.sessions.get(&session).and_then(|entry| entry.owner) {
            Some(owner) if owner != mobile => Err(Denied::NotOwner),
            _ => Ok(Some(mobile)),
        }
    }

    /// By whose grant the session is requested from that base.
    pub(super) fn warrant(&self, session: SessionId, holder: A) -> Option<Warrant> {
        let (mobile, _, grant) = self.granted(session, holder)?;
        Some(Warrant { mobile: mobile.to_name(), grant })
    }

    /// The mobile, the handoff in which it came here and its grant to `holder`.
    pub(super) fn granted(&self, session: SessionId, holder: A) -> Option<(A, u32, Grant)> {
        let entry = self.sessions.get(&session)?;
        let grants = entry.grants.as_deref()?;
        let (_, grant) = grants.list.iter().find(|(name, _)| *name == holder)?;
        Some((entry.owner?, grants.attempt, *grant))
    }

    /// The grant to `holder` that the mobile brought when it came here last, and the handoff that it
    /// is for.
    pub fn grant_for(&self, session: SessionId, holder: A) -> Option<(u32, Grant)> {
        self.attachable(session, holder).map(|(_, attempt, grant)| (attempt, grant))
    }

    /// As [`granted`](Self::granted). Where no grants are required any will do.
    pub(super) fn attachable(&self, session: SessionId, holder: A) -> Option<(A, u32, Grant)> {
        self.granted(session, holder).or_else(|| {
            let entry = self.sessions.get(&session).filter(|_| !self.authority.needs_grants())?;
            Some((entry.owner?, entry.attempt, Grant([0; Grant::LEN])))
        })
    }

    /// What a mobile brought is for this handoff of its session, and replaces what it brought for
    /// earlier ones.
    pub(super) fn store_grants(&mut self, asked: Asked<A>, grants: &[(BaseName, Grant)]) {
        let Asked { by: mobile, session, attempt } = asked;
        self.sessions.set_owner(session, mobile);
        let Some(entry) = self.sessions.get_mut(&session) else { return };
        let read = |(name, grant): &(BaseName, Grant)| Some((A::from_name(name)?, *grant));
        let list: Vec<_> = grants.iter().take(GRANTS_MAX).filter_map(read).collect();
        entry.grants = (!list.is_empty()).then(|| Box::new(Grants { attempt, list }));
    }

    /// Whether the session may be this mobile's, as far as is known. One that could not be had is
    /// nobody's.
    pub(super) fn owns(&mut self, mobile: A, session: SessionId) -> Result<(), Denied> {
        let Some(entry) = self.sessions.get(&session) else { return Ok(()) };
        if entry.owner.is_none_or(|owner| owner == mobile) {
            return Ok(());
        }
        match entry.role {
            Role::Failed { .. } => {
                self.remove(session);
                Ok(())
            }
            // Whose it is, is being found out.
            Role::Arriving(_) => Err(Denied::For(Reason::Busy)),
            _ => Err(Denied::NotOwner),
        }
    }

    /// A mobile is with this base, and says by how many handoffs: of the grants of before none counts
    /// any more. If they are more than this base knows, the session broke meanwhile and begins
    /// anew.
    pub(super) fn on_here(&mut self, asked: Asked<A>, since: u32) {
        let Asked { by: mobile, session, attempt } = asked;
        if let Err(why) = self.owns(mobile, session) {
            return self.note(mobile, session, why);
        }
        if !self.has_place(session, Some(mobile)) {
            return self.note(mobile, session, Denied::For(Reason::Busy));
        }
        let Some(entry) = self.sessions.get_mut(&session) else {
            return self.begin_anew(asked, since);
        };
        if attempt < entry.attempt {
            return self.note(mobile, session, Denied::Outdated);
        }
        let latest = attempt == entry.attempt;
        match &mut entry.role {
            Role::Serving if latest => self.confirm_fences(session),
            Role::Leaving(_) | Role::Rebuilding(_) | Role::Given { .. } if latest => {}
            role => {
                let state = match role {
                    Role::Leaving(leaving) => leaving.state.take(),
                    _ => None,
                };
                self.expire(state);
                self.ahead.remove(session);
                self.pending.remove(&session);
                self.begin_anew(asked, since);
            }
        }
    }

    fn begin_anew(&mut self, asked: Asked<A>, since: u32) {
        let Asked { by: mobile, session, attempt } = asked;
        let known = self.sessions.get(&session).map_or(0, |entry| entry.number);
        let (role, owner) = (Role::Serving, Some(mobile));
        let number = known.max(since);
        let entry = Entry { attempt, role, number, gave: None, owner, grants: None };
        self.sessions.insert(session, entry);
        self.events.push_back(BaseEvent::Begins { session, mobile });
    }

    /// Whether the session is on its way here: what its mobile wants to carry on here should wait.
    pub fn is_coming(&self, session: SessionId) -> bool {
        self.sessions.get(&session).is_some_and(|entry| match &entry.role {
            Role::Arriving(_) | Role::Rebuilding(_) => true,
            Role::Leaving(leaving) => matches!(leaving.wanted, Recipient::Mobile(_)),
            _ => false,
        })
    }

    /// Whether the session is used here, as far as this machine knows.
    pub fn is_here(&self, session: SessionId) -> bool {
        let role = self.sessions.get(&session).map(|entry| &entry.role);
        matches!(role, Some(Role::Serving))
    }

    /// That base cannot be reached, and nothing that was sent to it will be answered: what waits for
    /// it fails at once (MHP-21), or is taken over.
    pub fn unreachable(&mut self, now: Time, holder: A) {
        for session in self.awaited_from(holder) {
            if !self.doubt_holder(now, session, Doubt::Unreachable) {
                self.fail(now, session, Reason::Unreachable);
            }
            self.rearm(session);
        }
    }

    /// That base is not known any more, and [the authority](Self::authority_mut) says so by now: what waits for it ends as if
    /// it were dead, it is asked for nothing, and no copy goes to it or is of use that came from it.
    pub fn forget_base(&mut self, now: Time, base: A) {
        self.unreachable(now, base);
        let fenced = self.fences.forget(base);
        let copied = self.ahead.forget(base);
        fenced.into_iter().chain(copied).for_each(|session| self.rearm(session));
    }

    /// That base can be reached again: what is awaited from it is requested at once.
    pub fn reached(&mut self, now: Time, holder: A) {
        for session in self.awaited_from(holder) {
            self.restart(now, session);
            self.rearm(session);
        }
        self.fence_now(now, holder);
    }

    fn awaited_from(&self, holder: A) -> Vec<SessionId> {
        let awaits = |session: &&SessionId| {
            let role = self.sessions.get(session).map(|entry| &entry.role);
            matches!(role, Some(Role::Arriving(arriving)) if arriving.holder.addr == holder)
        };
        self.pending.iter().filter(awaits).copied().collect()
    }
}
