//! Who may say what in a handoff, and by whose word a session leaves a base.

use alloc::vec::Vec;

use lasthop_wire::mhp::handoff::{Grant, Reason, SessionId};
use thiserror::Error;

/// What a grant is given for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Claim<A> {
    /// The session that is to leave the base that checks the grant.
    pub session: SessionId,
    /// The handoff.
    pub attempt: u32,
    /// The base that it is to go to.
    pub to: A,
}

/// At a mobile: makes its grants.
pub trait Granter<A> {
    /// The mobile's word to each base that may hold its session: in this handoff it goes to `to`. At
    /// most [`GRANTS_MAX`](lasthop_wire::mhp::handoff::GRANTS_MAX) of them are sent.
    fn grants(&self, session: SessionId, attempt: u32, to: A) -> Vec<(A, Grant)>;
}

/// At a base: whom it knows, and whether a grant is genuine.
///
/// Whoever sends a message is taken for who the world says it is: the names that come with
/// datagrams must be those that the seal has proved.
pub trait Authority<A> {
    /// Whether that is a base that sessions may come from and go to.
    fn is_base(&self, name: A) -> bool;

    /// Whether that is a mobile that may be served here.
    fn is_mobile(&self, name: A) -> bool;

    /// Whether a session leaves for nobody without a grant.
    fn needs_grants(&self) -> bool {
        true
    }

    /// Whether `grant` is that mobile's word to this base.
    fn holds(&self, mobile: A, claim: &Claim<A>, grant: &Grant) -> bool;
}

/// Makes no grants and asks for none, and knows everybody: for worlds without keys.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Open;

impl<A> Granter<A> for Open {
    fn grants(&self, _session: SessionId, _attempt: u32, _to: A) -> Vec<(A, Grant)> {
        Vec::new()
    }
}

impl<A> Authority<A> for Open {
    fn is_base(&self, _name: A) -> bool {
        true
    }

    fn is_mobile(&self, _name: A) -> bool {
        true
    }

    fn needs_grants(&self) -> bool {
        false
    }

    fn holds(&self, _mobile: A, _claim: &Claim<A>, _grant: &Grant) -> bool {
        true
    }
}

/// Why a base refused a request. Nothing was released and nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Denied {
    /// What only a mobile says, from somebody who is none that may be served here.
    #[error("it is no mobile that this base serves; add its key if it should be")]
    NotMobile,
    /// What only a base says, from somebody who is none that is known.
    #[error("it is no base that this base knows; add it to the peers if it should be")]
    NotBase,
    /// A session would come from a base that is not known.
    #[error("the mobile's session is held by a base that this one does not know")]
    UnknownHolder,
    /// A session would go to a base that is not known.
    #[error("the mobile expects to go to a base that this one does not know")]
    UnknownCandidate,
    /// The session would go to a mobile that is not known here.
    #[error("it asks in the name of a mobile that this base does not serve")]
    UnknownMobile,
    /// The mobile's word is missing.
    #[error("it has no grant by the mobile; it may be older than grants are")]
    NoGrant,
    /// Not from the mobile: forged, or made for another base, of another base, of another
    /// session, or in another handoff.
    #[error("its grant is not the mobile's word for this base, that base and this handoff")]
    NotGranted,
    /// The session is another mobile's.
    #[error("the session is another mobile's")]
    NotOwner,
    /// A later handoff of the session is known.
    #[error("it belongs to an earlier handoff than the latest that is known, or was said before")]
    Outdated,
    /// The message is of another version.
    #[error("it speaks version {0} of handoffs, this base version {version}", version = lasthop_wire::mhp::VERSION)]
    Version(u8),
    /// The message is of a type that must be understood and is not.
    #[error("its message of type {0} is not understood here")]
    Kind(u8),
    /// For another reason, which says it all.
    #[error("{0}")]
    For(Reason),
}

impl Denied {
    /// The answer to the sender.
    pub(super) fn reason(self) -> Reason {
        match self {
            Self::NotMobile
            | Self::NotBase
            | Self::UnknownHolder
            | Self::UnknownCandidate
            | Self::UnknownMobile
            | Self::NoGrant
            | Self::NotGranted => Reason::Unauthorised,
            Self::NotOwner => Reason::Unknown,
            Self::Outdated => Reason::Outdated,
            Self::Version(_) | Self::Kind(_) => Reason::Version,
            Self::For(reason) => reason,
        }
    }
}
