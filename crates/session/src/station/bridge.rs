//! Bytes between two connections of two sessions: one comes from a mobile, the other leads on to the
//! base that keeps the wired socket.

use alloc::vec::Vec;

use lasthop_hop::RecvState;

use super::associations::{Associations, Name};
use crate::ResetReason;

/// Bytes that one bridge may move in one direction in one turn of the loop.
const SHARE: usize = 512 * 1024;
/// Bytes that are moved at once.
const PIECE: usize = 64 * 1024;

/// Two connections that are one.
#[derive(Debug)]
pub struct Bridge<I> {
    /// The mobile's; `None` once it is over.
    pub near: Option<Name<I>>,
    /// The one to the base that keeps the socket; `None` once it is over.
    pub far: Option<Name<I>>,
    /// The mobile has ended its direction, and the far base knows.
    up_done: bool,
    /// The fixed host has, and the mobile knows.
    down_done: bool,
    /// Bytes from the far base to the mobile.
    pub to_hop: u64,
    /// Bytes from the mobile to the far base.
    pub from_hop: u64,
}

/// What came of one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Carried {
    /// All that could be moved was.
    All,
    /// The turn's share was used up before that.
    Share,
}

impl<I: Copy + Ord> Bridge<I> {
    /// Nothing moved yet.
    pub fn new(near: Name<I>, far: Name<I>) -> Self {
        let (near, far) = (Some(near), Some(far));
        Self { near, far, up_done: false, down_done: false, to_hop: 0, from_hop: 0 }
    }

    /// Which directions are over.
    pub fn state(&self) -> &'static str {
        match (self.down_done, self.up_done) {
            (false, false) => "open",
            (true, false) => "sent-end",
            (false, true) => "got-end",
            (true, true) => "closing",
        }
    }

    /// Moves what can be moved. True if the turn's share was used up before that.
    pub fn pump(&mut self, world: &mut impl Associations<Id = I>) -> bool {
        let (Some(near), Some(far)) = (self.near, self.far) else { return false };
        // Where the fixed host has what the mobile sends, only the far base knows.
        if let Some((session, mut streams)) = world.session(near.0)
            && session.is_retained(near.1)
        {
            session.release_ahead(&mut streams, near.1);
        }
        let mut pump = Pump { world, piece: Vec::new() };
        let up = pump.carry(near, far, &mut self.up_done, &mut self.from_hop);
        let down = pump.carry(far, near, &mut self.down_done, &mut self.to_hop);
        up == Carried::Share || down == Carried::Share
    }

    /// One end is over; true if both are.
    pub fn end(&mut self, name: Name<I>) -> bool {
        self.near.take_if(|near| *near == name);
        self.far.take_if(|far| *far == name);
        self.near.is_none() && self.far.is_none()
    }

    /// The end that is left.
    pub fn rest(&self) -> Option<Name<I>> {
        self.near.or(self.far)
    }
}

struct Pump<'a, W> {
    world: &'a mut W,
    piece: Vec<u8>,
}

impl<W: Associations> Pump<'_, W> {
    /// Room at `to`; `None` if nothing can be written any more.
    fn room(&mut self, to: Name<W::Id>) -> Option<usize> {
        let (session, mut streams) = self.world.session(to.0)?;
        session.send_space(&mut streams, to.1).ok().map(|space| space.len())
    }

    fn carry(
        &mut self,
        from: Name<W::Id>,
        to: Name<W::Id>,
        done: &mut bool,
        count: &mut u64,
    ) -> Carried {
        let mut left = SHARE;
        while !*done {
            if left == 0 {
                return Carried::Share;
            }
            // After a reset of one end its event is on its way.
            let Some(room) = self.room(to) else { return Carried::All };
            let Some((session, mut streams)) = self.world.session(from.0) else {
                return Carried::All;
            };
            let data = session.received(&streams, from.1);
            if data.is_empty() {
                if session.recv_state(&streams, from.1) == RecvState::Finished {
                    self.finish(to);
                    *done = true;
                }
                return Carried::All;
            }
            let n = data.len().min(room).min(left).min(PIECE);
            if n == 0 {
                return Carried::All;
            }
            self.piece.clear();
            self.piece.extend_from_slice(&data[..n]);
            session.consume(&mut streams, from.1, n);
            self.write(to);
            *count += n as u64;
            left -= n;
        }
        Carried::All
    }

    fn write(&mut self, to: Name<W::Id>) {
        let Some((session, mut streams)) = self.world.session(to.0) else { return };
        let written = session.write(&mut streams, to.1, &self.piece);
        if written != Ok(self.piece.len()) {
            // There was room for all of it: a connection with a hole must not go on.
            session.reset(&mut streams, to.1, ResetReason::Protocol);
        }
    }

    fn finish(&mut self, to: Name<W::Id>) {
        if let Some((session, mut streams)) = self.world.session(to.0) {
            session.finish(&mut streams, to.1);
        }
    }
}
