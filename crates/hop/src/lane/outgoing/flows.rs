//! Flows of packets, the hosts that they are of, and their turns.

use super::{Client, Flow, Outgoing};
use crate::clients;
use crate::lane::FLOWS;
use crate::lane::buckets::Buckets;
use crate::lane::codel::Codel;
use crate::packets::OutgoingPacket;
use crate::policy::Policy;

impl Outgoing {
    /// A flow's host.
    pub(super) fn client_of(&mut self, flow: u16) -> &mut Client {
        let of = &self.flows[usize::from(flow)];
        &mut self.waiting.of(of.policy).clients[of.client]
    }

    /// The flow of a packet, made if there is none.
    pub(super) fn flow_of(&mut self, packet: &OutgoingPacket<'_>) -> u16 {
        let bucket = Buckets::<FLOWS>::bucket(packet.flow ^ packet.client.rotate_left(32));
        let (flow, is_new) = self.flow_buckets.claim(bucket);
        let (host, policy) = (clients::bucket(packet.client), packet.class.policy);
        if is_new {
            if self.flows.len() <= flow {
                self.flows.push(Flow::default());
            }
            let of = &mut self.flows[flow];
            (of.bucket, of.class) = (bucket, packet.class);
            (of.codel, of.last) = (Codel::default(), 0);
            self.join(flow, policy, host);
        } else if self.flows[flow].policy != policy
            && self.flows[flow].queue.is_empty()
            && !self.flows[flow].turn.is_listed()
        {
            self.leave(flow);
            self.join(flow, policy, host);
        }
        flow as u16
    }

    /// A flow is of this host, made if there is none, and policy.
    fn join(&mut self, flow: usize, policy: Policy, host: u16) {
        let waiting = self.waiting.of(policy);
        let (client, _) = waiting.client_buckets.claim(host);
        if waiting.clients.len() <= client {
            waiting.clients.push(Client::default());
        }
        waiting.clients[client].bucket = host;
        waiting.clients[client].flows += 1;
        let of = &mut self.flows[flow];
        (of.policy, of.client) = (policy, client);
    }

    /// A flow is no longer its host's.
    fn leave(&mut self, flow: usize) {
        let of = &self.flows[flow];
        let waiting = self.waiting.of(of.policy);
        let client = &mut waiting.clients[of.client];
        client.flows -= 1;
        if client.flows == 0 {
            waiting.client_buckets.release(client.bucket);
        }
    }

    /// Whose turn it is of a host's flows of a policy. Those that have nothing leave.
    pub(super) fn next_flow(&mut self, policy: Policy, client: usize) -> Option<u16> {
        while let host = &mut self.waiting.of(policy).clients[client]
            && let Some(flow) = host.turns.front()
        {
            let of = &mut self.flows[usize::from(flow)];
            let has_some = !of.queue.is_empty();
            if host.turns.admits(&mut of.turn, has_some, of.priority) {
                return Some(flow);
            }
            self.release(flow);
        }
        None
    }

    /// A flow that waits for no turn gives up its bucket once nothing of it is on its way.
    pub(super) fn release(&mut self, flow: u16) {
        let of = &self.flows[usize::from(flow)];
        if of.packets > 0 || of.turn.is_listed() {
            return;
        }
        let bucket = of.bucket;
        self.leave(usize::from(flow));
        self.flow_buckets.release(bucket);
    }
}
