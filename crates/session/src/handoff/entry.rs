//! A base's state of one session.

use alloc::boxed::Box;
use alloc::vec::Vec;

use lasthop_units::Time;
use lasthop_wire::mhp::handoff::{CopyName, Grant, Orphan, Reason, SessionId, SessionState};

use super::pull::Pull;
use super::{Config, Retry};

/// The numbers of a handoff's states begin at so many times its own: then those of a base that was
/// restarted are above those of any state of before, wherever that is.
pub(super) const NUMBERS: u32 = 256;

/// Who asks something of a base, of which session, and in which of its handoffs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Asked<A> {
    pub(super) by: A,
    pub(super) session: SessionId,
    pub(super) attempt: u32,
}

/// Who wants a session's state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Recipient<A> {
    /// Another base, in that mobile's name, which takes at most `limit` bytes, in pieces of that size,
    /// and may have a copy.
    Base {
        addr: A,
        mobile: Option<A>,
        limit: u64,
        piece: u16,
        window: u16,
        since: u32,
        copy: Option<CopyName>,
    },
    /// The mobile itself: it is here again.
    Mobile(A),
}

impl<A: Copy + Eq> Recipient<A> {
    pub(super) fn is_base(&self, base: A) -> bool {
        matches!(self, Self::Base { addr, .. } if *addr == base)
    }

    /// The mobile, if it was named.
    pub(super) fn mobile(&self) -> Option<A> {
        match self {
            Self::Base { mobile, .. } => *mobile,
            Self::Mobile(mobile) => Some(*mobile),
        }
    }

    /// Who is to be notified.
    pub(super) fn addr(&self) -> A {
        match self {
            Self::Base { addr, .. } | Self::Mobile(addr) => *addr,
        }
    }

    /// The copy that it has.
    fn copy(&self) -> Option<CopyName> {
        match self {
            Self::Base { copy, .. } => *copy,
            Self::Mobile(_) => None,
        }
    }
}

/// Which base has a session, as far as is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Holder<A> {
    pub(super) addr: A,
    /// The number of the state that it got. It rises from base to base, so of two opinions the later
    /// one is right.
    pub(super) since: u32,
}

/// A state on its way here.
#[derive(Debug)]
pub(super) struct Arriving<A> {
    pub(super) mobile: A,
    /// The handoff that the mobile wants it for. Another base may have asked for it in a later one.
    pub(super) attempt: u32,
    /// The base that is queried.
    pub(super) holder: Holder<A>,
    pub(super) stage: ArrivingStage,
    pub(super) last_message: Time,
    pub(super) retry: Retry,
    /// A base that wants it next, once all is here.
    pub(super) wanted: Option<Recipient<A>>,
    /// The number for which another base was named that is as late as the one that is queried.
    pub(super) turned: Option<u32>,
    /// Whether the base that is queried is thought to be dead.
    pub(super) holder_is: Doubt,
    /// When the mobile is asked, and again, whether the session is to go on without that base.
    pub(super) ask_mobile: Option<Time>,
    /// What it has said so far, from the beginning of an answer on.
    pub(super) orphans: Option<Vec<Orphan>>,
}

impl<A> Arriving<A> {
    /// The base that is queried lives.
    pub(super) fn trust_holder(&mut self) {
        (self.holder_is, self.ask_mobile) = (Doubt::None, None);
        self.orphans = None;
    }
}

/// What is thought of a base that is queried, until it says something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Doubt {
    /// Nothing yet.
    None,
    /// It is silent.
    Silent,
    /// It cannot be reached.
    Unreachable,
}

#[derive(Debug)]
pub(super) enum ArrivingStage {
    /// Nothing has come yet.
    Asking,
    /// Pieces come of the state with that number.
    Pulling { pull: Pull, generation: u32 },
    /// All is here, `len` bytes; the old base must confirm that it is ours. It was requested in that handoff.
    Committing { state: SessionState, len: usize, generation: u32, attempt: u32 },
}

impl ArrivingStage {
    pub(super) fn is_committing(&self) -> bool {
        matches!(self, Self::Committing { .. })
    }
}

/// A state that is frozen here.
#[derive(Debug)]
pub(super) struct Leaving<A> {
    pub(super) wanted: Recipient<A>,
    /// Its number.
    pub(super) generation: u32,
    /// Absent until the world has given it.
    pub(super) state: Option<Vec<u8>>,
    /// As what it is sent, once it is. Its number stands for that too.
    pub(super) form: Option<Form>,
    /// The copy that the form was chosen for, if whoever wants it named one.
    pub(super) formed_for: Option<CopyName>,
    pub(super) last_message: Time,
}

/// What is sent of a state.
#[derive(Debug)]
pub(super) enum Form {
    Whole,
    /// What that copy lacks.
    Remainder(CopyName, Vec<u8>),
}

impl<A: Copy + Eq> Leaving<A> {
    /// What is sent of it.
    pub(super) fn package(&self) -> Option<&[u8]> {
        match self.form.as_ref()? {
            Form::Whole => self.state.as_deref(),
            Form::Remainder(_, bytes) => Some(bytes),
        }
    }

    /// The form was chosen for whoever wants it: it costs too much to be chosen at every request.
    pub(super) fn is_formed(&self) -> bool {
        self.form.is_some() && self.formed_for == self.wanted.copy()
    }

    /// It is sent in that form from here on. In another than before it is another state, as far as
    /// its pieces go, which must not mix.
    pub(super) fn set_form(&mut self, form: Form) {
        self.formed_for = self.wanted.copy();
        let copy = |form: &Form| match form {
            Form::Whole => None,
            Form::Remainder(copy, _) => Some(*copy),
        };
        match &self.form {
            Some(before) if copy(before) == copy(&form) => return,
            Some(_) => self.generation = self.generation.saturating_add(1),
            None => {}
        }
        self.form = Some(form);
    }
}

/// Where a session stands, as far as this base is concerned.
#[derive(Debug)]
pub(super) enum Role<A> {
    /// The world rebuilds it, to tell this mobile then.
    Rebuilding(A),
    /// It is used here.
    Serving,
    Arriving(Arriving<A>),
    Leaving(Leaving<A>),
    /// It was given to that base.
    Given {
        to: Holder<A>,
        until: Time,
    },
    /// It could not be had; who may have it.
    Failed {
        reason: Reason,
        holder: Option<Holder<A>>,
        until: Time,
    },
}

#[derive(Debug)]
pub(super) struct Entry<A> {
    /// The latest of the session's handoffs that is known here.
    pub(super) attempt: u32,
    pub(super) role: Role<A>,
    /// The number of the state that is or was used here last.
    pub(super) number: u32,
    /// To whom the state with that number was given, for as long as it has not come back: that base
    /// may ask once more whether it may use it, whatever happened here since.
    pub(super) gave: Option<(A, u32)>,
    /// The mobile, if it was here or was named.
    pub(super) owner: Option<A>,
    /// What it brought when it came here.
    pub(super) grants: Option<Box<Grants<A>>>,
}

/// A mobile's grants to bases that may hold its session.
#[derive(Debug)]
pub(super) struct Grants<A> {
    /// The handoff that they are for.
    pub(super) attempt: u32,
    pub(super) list: Vec<(A, Grant)>,
}

impl<A: Copy> Role<A> {
    /// Who has the session, if it is another base.
    pub(super) fn holder(&self) -> Option<Holder<A>> {
        match self {
            Role::Arriving(arriving) => Some(arriving.holder),
            Role::Given { to, .. } => Some(*to),
            Role::Failed { holder, .. } => *holder,
            _ => None,
        }
    }
}

impl<A> Entry<A> {
    /// Whether the session is on its way.
    pub(super) fn is_pending(&self) -> bool {
        matches!(self.role, Role::Arriving(_) | Role::Leaving(_))
    }

    /// Whether the session is that mobile's, as far as is known, or on its way for it.
    pub(super) fn is_of(&self, mobile: A) -> bool
    where
        A: Copy + Eq,
    {
        let waiting = match &self.role {
            Role::Rebuilding(mobile) => Some(*mobile),
            Role::Arriving(arriving) => Some(arriving.mobile),
            Role::Leaving(leaving) => leaving.wanted.mobile(),
            _ => None,
        };
        self.owner.or(waiting) == Some(mobile)
    }

    /// Another base got a state of that number, and what is here is older.
    pub(super) fn is_outdone(&self, since: u32) -> bool {
        match &self.role {
            Role::Serving | Role::Rebuilding(_) => self.number <= since,
            Role::Leaving(leaving) => leaving.generation <= since,
            Role::Arriving(Arriving {
                stage: ArrivingStage::Committing { generation, .. },
                ..
            }) => *generation <= since,
            _ => false,
        }
    }

    /// The state that the world has yet to give, and for which handoff.
    pub(super) fn unfrozen(&mut self) -> Option<(u32, &mut Leaving<A>)> {
        match &mut self.role {
            Role::Leaving(leaving) if leaving.state.is_none() => Some((self.attempt, leaving)),
            _ => None,
        }
    }

    /// Bytes of a state that is being fetched.
    pub(super) fn fetching(&self) -> usize {
        match &self.role {
            Role::Arriving(Arriving { stage: ArrivingStage::Pulling { pull, .. }, .. }) => {
                pull.memory()
            }
            Role::Arriving(Arriving { stage: ArrivingStage::Committing { len, .. }, .. }) => *len,
            _ => 0,
        }
    }

    /// When to look at it, whatever happens.
    pub(super) fn deadline(&self, config: &Config) -> Option<Time> {
        match &self.role {
            Role::Arriving(arriving) => {
                let doubts = config.take_over.filter(|_| arriving.holder_is == Doubt::None);
                let patience = doubts.map_or(config.give_up, |doubts| doubts.min(config.give_up));
                let next = arriving.retry.next.min(arriving.last_message + patience);
                Some(arriving.ask_mobile.map_or(next, |at| next.min(at)))
            }
            Role::Leaving(leaving) => Some(leaving.last_message + config.hold),
            Role::Given { until, .. } | Role::Failed { until, .. } => Some(*until),
            Role::Serving | Role::Rebuilding(_) => None,
        }
    }
}
