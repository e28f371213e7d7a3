//! A mobile is not to be served any more, or another base not to be known.

use alloc::collections::BTreeSet;
use core::fmt::Debug;

use lasthop_units::Time;

use super::take::Restoring;
use super::{Deferred, Station, Wires};
use crate::SessionId;
use crate::handoff::{Address, Authority};

impl<A, T, I, S> Station<A, T, I, S>
where
    A: Address + Ord,
    T: Authority<A>,
    I: Copy + Ord + Debug,
    S: Copy,
{
    /// A mobile is served no more, and [the authority](Self::authority_mut) says so by now: nothing of it
    /// is kept for anybody, and none of its sessions leaves. Its association, if there is one, is to be
    /// lost next, and what is carried on it with it.
    pub fn revoke(&mut self, world: &mut impl Wires<A, I, S>, now: Time, mobile: A) {
        let mut sessions: BTreeSet<SessionId> = self.kept_of(mobile).collect();
        for (session, frozen) in self.machine.revoke(mobile) {
            sessions.insert(session);
            frozen.into_iter().for_each(|state| self.discard(world, now, state));
        }
        let call = self.mobiles.get_mut(mobile).and_then(|known| known.call.take());
        if let Some(state) = call.and_then(|call| call.state) {
            sessions.insert(state.session);
            self.discard(world, now, state);
        }
        self.end_leaving(world, |leaving| leaving.mobile == mobile);
        let restoring = self.restoring.iter_mut();
        restoring.filter(|restoring| restoring.mobile == mobile).for_each(Restoring::end);
        for (at, deferred) in core::mem::take(&mut self.deferred) {
            match deferred {
                Deferred::Restore(restoring) if restoring.mobile == mobile => {
                    let Restoring { session, images, .. } = restoring;
                    world.discard(session, images);
                }
                other => self.deferred.push_back((at, other)),
            }
        }
        for session in sessions {
            self.delayed.remove(&session);
            if let Some((_, sockets)) = self.recall(world, now, session) {
                sockets.into_values().for_each(|socket| world.reset(socket));
            }
            self.end_far(world, session);
        }
        self.mobiles.unname(mobile);
        world.release_mobile(mobile);
    }

    /// Another base is known no more, and [the authority](Self::authority_mut) says so by now: what was on its way from there
    /// ends as if it were dead, and connections whose wired halves are there are reset. The associations that it made are
    /// to be lost next.
    pub fn forget_base(&mut self, world: &mut impl Wires<A, I, S>, now: Time, base: A) {
        self.machine.forget_base(now, base);
        for id in self.far.of_anchor(base) {
            self.handle_link_lost(world, id, "that base is not known any more");
        }
    }
}
