//! The wired half of a connection as bytes, and what becomes of it when it comes home.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;

use lasthop_units::gather;
use lasthop_wire::mhp::handoff::BaseName;

use crate::SessionState;
use crate::handoff::{Address, ConnectionState, Direction, SessionId, Stage};

const TAG_IMAGE: u8 = 1;
const TAG_LOST: u8 = 3;
const TAG_ANCHOR: u8 = 4;

/// Where the socket of a connection is.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Wired<A> {
    /// It travels: the state of it, opaque here.
    Image(Vec<u8>),
    /// It stays at that base; how far bytes have come between whoever holds the session and it. Seen
    /// as a mobile sees its base: `up` is what that base has not acknowledged, `down` what came from
    /// it and was not passed on.
    Anchor {
        /// The base.
        base: A,
        /// The connection between the two.
        far: Box<ConnectionState>,
    },
    /// It could not move, and is gone.
    Lost,
}

impl<A: Address> Wired<A> {
    /// As bytes in a session's state; `session` is the state's.
    pub(super) fn encode(self, session: SessionId) -> Vec<u8> {
        match self {
            Self::Image(image) => [vec![TAG_IMAGE], image].concat(),
            Self::Anchor { base, far } => {
                let (name, one) = (base.to_name(), SessionState::of(session, vec![*far]));
                let name = name.as_bytes();
                let head = vec![TAG_ANCHOR, name.len() as u8];
                [head, name.to_vec(), one.encode()].concat()
            }
            Self::Lost => vec![TAG_LOST],
        }
    }

    /// Reads what [`encode`](Self::encode) wrote; `None` for what is cut, damaged or unknown here.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (tag, rest) = bytes.split_first()?;
        match *tag {
            TAG_IMAGE => Some(Self::Image(rest.to_vec())),
            TAG_ANCHOR => {
                let (base, rest) = split_base(rest)?;
                let state = SessionState::decode(rest).ok()?;
                let far = Box::new(state.connections.into_iter().next()?);
                Some(Self::Anchor { base, far })
            }
            TAG_LOST => Some(Self::Lost),
            _ => None,
        }
    }
}

fn split_base<A: Address>(bytes: &[u8]) -> Option<(A, &[u8])> {
    let (len, rest) = bytes.split_first()?;
    let (name, rest) = rest.split_at_checked(usize::from(*len))?;
    Some((A::from_name(&BaseName::new(name)?)?, rest))
}

/// The bases that keep sockets of a session's connections.
pub(super) fn anchors<A: Address + Ord>(state: &SessionState) -> BTreeSet<A> {
    let anchor = |c: &ConnectionState| match c.wired.split_first()? {
        (&TAG_ANCHOR, rest) => Some(split_base::<A>(rest)?.0),
        _ => None,
    };
    gather(state.connections.iter().filter_map(anchor))
}

/// What is left at a base that gives a connection away and keeps its socket: no bytes, and where
/// they go on. `up_done` says that the socket knows the mobile's end.
pub(super) fn emptied(near: &ConnectionState, up_done: bool) -> ConnectionState {
    let behind = |direction: &Direction, ended| Direction {
        start: direction.end(),
        bytes: Vec::new(),
        ended,
    };
    ConnectionState {
        // What is over for the mobile is not over between the bases while bytes are under way.
        stage: if near.stage == Stage::Over { Stage::Open } else { near.stage },
        // The mobile's unread bytes go along, and come over the new way.
        up: Direction { start: near.up.start, bytes: Vec::new(), ended: up_done },
        down: behind(&near.down, near.down.ended),
        target: near.target.clone(),
        wired: Vec::new(),
        ..*near
    }
}

/// A connection whose session returns to the base that kept its socket: what came from the mobile
/// (`near`), what was on its way between the other base and this one (`far`, as that base had it),
/// and what this one holds of that way (`here`). `None` if they do not fit: bytes are missing.
pub(super) fn merge(
    near: ConnectionState,
    far: &ConnectionState,
    here: &ConnectionState,
) -> Option<ConnectionState> {
    let up = [&here.up, &far.up, &near.up];
    let down = [&near.down, &far.down, &here.down];
    let up_ended = near.up.ended;
    let down_ended = here.down.ended;
    let up = Direction { ended: up_ended, ..join(up)? };
    let down = match near.stage {
        // Nothing is for the mobile any more.
        Stage::Over => near.down.clone(),
        _ => Direction { ended: down_ended, ..join(down)? },
    };
    Some(ConnectionState { up, down, wired: Vec::new(), ..near })
}

/// One stretch of bytes out of several, which may overlap but leave no hole.
pub(super) fn join<const N: usize>(parts: [&Direction; N]) -> Option<Direction> {
    let (first, rest) = parts.split_first()?;
    let mut joined = Direction { start: first.start, bytes: first.bytes.clone(), ended: false };
    for part in rest {
        let known = joined.end().checked_sub(part.start)?;
        let known = usize::try_from(known).ok()?;
        joined.bytes.extend_from_slice(part.bytes.get(known..).unwrap_or_default());
    }
    Some(joined)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes(start: u64, end: u64) -> Direction {
        Direction { start, bytes: (start..end).map(|n| n as u8).collect(), ended: false }
    }

    fn connection(up: Direction, down: Direction) -> ConnectionState {
        let target = "192.0.2.1:80".parse::<std::net::SocketAddr>().unwrap().into();
        let (bound, wired, source) = (None, Vec::new(), None);
        ConnectionState { id: 4, stage: Stage::Open, target, bound, up, down, wired, source }
    }

    /// Four places in a stream, in order.
    fn places() -> impl Strategy<Value = [u64; 4]> {
        [0..50u64, 0..50u64, 0..50u64, 0..50u64].prop_map(|mut at| {
            at.sort_unstable();
            at
        })
    }

    proptest! {
        /// MHP-19: what three places hold of a stream becomes one stretch, each byte once.
        #[test]
        fn a_session_that_comes_home_has_every_byte_once(
            [taken, kept, reached, passed] in places(), up_more in 0..20u64,
            [had, given, left, sent] in places(), down_more in 0..20u64,
        ) {
            // Up: the socket took up to `taken`; the anchor has up to `reached`, of which it has
            // acknowledged up to `kept`; the other base passed on up to `passed`.
            let (end, last) = (passed + up_more, sent + down_more);
            let near = connection(bytes(passed, end), bytes(had, given));
            // Down: the mobile has up to `had`; the other base passed on up to `given` and holds up
            // to `left`; the anchor has sent up to `sent`, some of it not acknowledged.
            let far = connection(bytes(kept, passed), bytes(given, left));
            let here = connection(bytes(taken, reached.max(kept)), bytes(given.max(left.saturating_sub(3)), last.max(left)));
            let merged = merge(near, &far, &here).unwrap();
            prop_assert_eq!(&merged.up, &bytes(taken, end.max(reached)));
            prop_assert_eq!(&merged.down, &bytes(had, last.max(left)));
        }
    }

    #[test]
    fn a_hole_is_never_papered_over() {
        let near = connection(bytes(10, 12), bytes(0, 5));
        let far = connection(bytes(6, 10), bytes(5, 7));
        let whole = connection(bytes(2, 6), bytes(7, 9));
        assert!(merge(near.clone(), &far, &whole).is_some());
        for here in [connection(bytes(2, 5), bytes(7, 9)), connection(bytes(2, 6), bytes(8, 9))] {
            assert_eq!(merge(near.clone(), &far, &here), None);
        }
    }

    #[test]
    fn ends_come_home_from_where_they_are_known() {
        let ended = |up, down| {
            let mut c = connection(bytes(0, 0), bytes(0, 0));
            (c.up.ended, c.down.ended) = (up, down);
            c
        };
        let merged = merge(ended(true, false), &ended(false, false), &ended(false, true)).unwrap();
        assert!(merged.up.ended && merged.down.ended);
        let merged = merge(ended(false, true), &ended(false, false), &ended(true, false)).unwrap();
        assert!(!merged.up.ended && !merged.down.ended);
    }

    #[test]
    fn what_a_base_keeps_begins_where_what_it_gave_ends() {
        let mut near = connection(bytes(5, 9), bytes(3, 8));
        near.down.ended = true;
        let here = emptied(&near, false);
        assert_eq!((here.up.start, here.up.end(), here.up.ended), (5, 5, false));
        assert_eq!((here.down.start, here.down.end(), here.down.ended), (8, 8, true));
        // It may come home at once.
        let merged = merge(near.clone(), &here, &here).unwrap();
        assert_eq!((merged.up, merged.down), (near.up, near.down));
    }

    #[test]
    fn an_anchor_survives_its_bytes_and_garbage_does_not() {
        let far = Box::new(connection(bytes(1, 4), bytes(2, 2)));
        let wired = Wired::Anchor { base: 7_u32, far };
        let encoded = wired.clone().encode(SessionId(9));
        assert_eq!(Wired::decode(&encoded), Some(wired));
        // The last four bytes are a field that may be missing.
        for cut in 0..encoded.len() - 4 {
            assert_eq!(Wired::<u32>::decode(&encoded[..cut]), None, "{cut}");
        }
        assert_eq!(Wired::<u32>::decode(&[9, 1, 2]), None);
    }
}
