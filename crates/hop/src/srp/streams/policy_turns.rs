//! Streams that wait to send, by their policies.

use super::send::SendHalf;
use super::turns::{TurnState, Turns};
use crate::policy::{PerPolicy, Policy};
use crate::srp::content::{Load, Loads};

/// The turns of streams of each policy.
#[derive(Debug, Default)]
pub(super) struct PolicyTurns(PerPolicy<Turns>);

impl PolicyTurns {
    /// A policy's.
    pub(super) fn of(&mut self, policy: Policy) -> &mut Turns {
        self.0.of(policy)
    }

    /// A policy's, if it ever had any.
    pub(super) fn get(&self, policy: Policy) -> Option<&Turns> {
        self.0.get(policy)
    }

    /// Those of all policies.
    pub(super) fn all(&self) -> impl Iterator<Item = &Turns> {
        self.0.values()
    }

    /// The same, to change them.
    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = &mut Turns> {
        self.0.values_mut()
    }

    /// Policies that ever had some.
    pub(super) fn policies(&self) -> impl Iterator<Item = Policy> {
        self.0.iter().map(|(policy, _)| policy)
    }

    /// Puts a stream in, wherever it has something to send.
    pub(super) fn schedule(&mut self, id: u64, state: &mut TurnState, send: &SendHalf) {
        // Who had nothing to send has saved up nothing.
        let served = match self.0.len() {
            0 | 1 => 0,
            _ => self.all().filter_map(|of| of.served(state.client())).min().unwrap_or(0),
        };
        self.of(state.policy()).schedule(id, state, send, served);
    }

    /// The stream has another policy from here on.
    pub(super) fn set_policy(
        &mut self,
        id: u64,
        state: &mut TurnState,
        send: &SendHalf,
        policy: Policy,
    ) {
        self.of(state.policy()).leave(id, state);
        state.set_policy(policy);
        self.schedule(id, state, send);
    }

    /// Of the policies that this path is to carry something of, but for those `tried`, the one of which the host's streams
    /// have been served least, and what is to be carried of it.
    pub(super) fn next(
        &self,
        client: u16,
        loads: &Loads,
        tried: &[Policy],
    ) -> Option<(Policy, Load)> {
        let left = loads.iter().filter(|(policy, _)| !tried.contains(policy));
        let some = left.filter_map(|load| Some((self.get(load.0)?.served(client)?, load)));
        some.min_by_key(|(served, _)| *served).map(|(_, load)| *load)
    }

    /// Hosts of which some stream has something new to send, of the policies that a path is to carry something of; one that
    /// has several once for each.
    pub(super) fn clients(&self, loads: &Loads) -> impl Iterator<Item = u16> {
        loads.iter().filter_map(|(policy, _)| self.get(*policy)).flat_map(Turns::clients)
    }

    /// How many streams have something new to send.
    pub(super) fn len(&self) -> usize {
        self.all().map(Turns::len).sum()
    }

    /// The priorities together of a host's streams with something new to send.
    pub(super) fn weight_of(&self, client: u16) -> u64 {
        self.all().map(|of| of.weight_of(client)).sum()
    }
}
