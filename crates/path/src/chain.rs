//! The machines of an agent, one behind the other from the fixed side to the mobile side.

use std::collections::BTreeMap;
use std::time::Duration;

use lasthop_agent::{Agent, Output, Side};
use lasthop_units::{LinkEvent, Time, gather};
use lasthop_wire::agent::Message;

use super::frame::Frame;
use super::header::Headers;
use super::machine::Machine;
use super::pool::Pool;

/// Connections whose Ethernet headers are remembered, for segments that machines make.
const HEADERS: usize = 4096;
/// How long they are remembered after a connection's last packet.
const IDLE: Duration = Duration::from_secs(300);

/// Where packets and messages go that leave the chain.
pub(super) trait Exit {
    /// A packet for that side.
    fn packet(&mut self, towards: Side, frame: Frame);

    /// A message for the agent on that side.
    fn message(&mut self, towards: Side, message: &Message);
}

/// The machines.
pub(super) struct Chain {
    machines: Vec<Machine>,
    headers: Headers,
    pool: Pool,
    /// Whether the agent at the other end of the hop is there.
    peer: bool,
    /// Whether any machine makes segments of its own.
    makes_segments: bool,
}

impl Chain {
    pub(super) fn new(machines: Vec<Machine>, pool: Pool) -> Self {
        let makes_segments = machines.iter().any(Machine::makes_segments);
        Self { machines, headers: Headers::new(HEADERS, IDLE), pool, peer: false, makes_segments }
    }

    /// The agent at the other end of the hop is there, or not any more. A machine that cannot do
    /// without it is passed by meanwhile.
    pub(super) fn set_peer(&mut self, now: Time, there: bool, exit: &mut impl Exit) {
        self.peer = there;
        self.machines.iter_mut().filter(|m| m.needs_peer()).for_each(Machine::begin_anew);
        self.forward(now, exit);
    }

    /// Whether somebody wants to know how full the queue towards the mobiles is.
    pub(super) fn watches_queue(&self) -> bool {
        self.machines.iter().any(|m| m.agent.watches_queue())
    }

    /// How full it is.
    pub(super) fn handle_queue(&mut self, nearly_full: bool) {
        for machine in &mut self.machines {
            machine.agent.handle_queue(nearly_full);
        }
    }

    /// A packet came from that side.
    pub(super) fn handle_frame(
        &mut self,
        now: Time,
        from: Side,
        frame: Frame,
        exit: &mut impl Exit,
    ) {
        if self.makes_segments {
            self.headers.remember(now, from, &frame);
        }
        let towards = from.other();
        match self.next(None, towards) {
            Some(first) => self.handle_packet(first, now, from, frame),
            None => return exit.packet(towards, frame),
        }
        self.forward(now, exit);
    }

    /// Takes a message from the agent on that side.
    pub(super) fn handle_message(
        &mut self,
        now: Time,
        from: Side,
        message: &Message,
        exit: &mut impl Exit,
    ) {
        for machine in &mut self.machines {
            machine.agent.handle_message(now, from, message);
        }
        self.forward(now, exit);
    }

    /// The hop's state changed.
    pub(super) fn handle_link_event(&mut self, now: Time, event: LinkEvent, exit: &mut impl Exit) {
        for machine in &mut self.machines {
            machine.agent.handle_link_event(now, event);
        }
        self.forward(now, exit);
    }

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.machines.iter().filter_map(|m| m.agent.next_timeout()).min()
    }

    /// The time asked for has come.
    pub(super) fn handle_timeout(&mut self, now: Time, exit: &mut impl Exit) {
        for machine in &mut self.machines {
            if machine.agent.next_timeout().is_some_and(|due| due <= now) {
                machine.agent.handle_timeout(now);
            }
        }
        self.forward(now, exit);
    }

    /// The machines. What they say when they are changed from outside is to be
    /// [forwarded](Self::forward).
    pub(super) fn machines(&mut self) -> &mut [Machine] {
        &mut self.machines
    }

    /// What the machines have counted.
    pub(super) fn counters(&self) -> BTreeMap<String, u64> {
        gather(self.machines.iter().flat_map(Machine::counters))
    }

    /// Moves what the machines have to say from one to the next until all of it has been handled or
    /// has left. It waits nowhere but in the queue of the machine that says it.
    pub(super) fn forward(&mut self, now: Time, exit: &mut impl Exit) {
        // From the machine that was handed something last, until none in turn has anything to say.
        let (mut at, mut silent) = (0, 0);
        while silent < self.machines.len() {
            let Some(machine) = self.machines.get_mut(at) else {
                at = 0;
                continue;
            };
            let (towards, frame) = match machine.agent.poll_output() {
                None => {
                    (at, silent) = (at + 1, silent + 1);
                    continue;
                }
                Some(Output::Packet { towards, packet }) => (towards, packet),
                Some(Output::Segment { towards, connection, segment }) => {
                    let made = self.headers.build(towards, &connection, &segment, &self.pool);
                    // Nothing of that connection was seen, so that nobody knows where to send it.
                    let Some(frame) = made else { continue };
                    (towards, frame)
                }
                Some(Output::Message { towards, message }) => {
                    exit.message(towards, &message);
                    continue;
                }
            };
            match self.next(Some(at), towards) {
                Some(next) => {
                    self.handle_packet(next, now, towards.other(), frame);
                    (at, silent) = (next, 0);
                }
                None => exit.packet(towards, frame),
            }
        }
    }

    fn handle_packet(&mut self, at: usize, now: Time, from: Side, frame: Frame) {
        if let Some(machine) = self.machines.get_mut(at) {
            machine.agent.handle_packet(now, from, frame);
        }
    }

    /// The machine behind `at` in that direction which is to see packets, or the first of all; none at
    /// the end.
    fn next(&self, at: Option<usize>, towards: Side) -> Option<usize> {
        let sees = |i: &usize| self.machines.get(*i).is_some_and(|m| self.peer || !m.needs_peer());
        match towards {
            Side::Mobile => (at.map_or(0, |at| at + 1)..self.machines.len()).find(sees),
            Side::Fixed => (0..at.unwrap_or(self.machines.len())).rev().find(sees),
        }
    }
}

#[cfg(test)]
mod tests {
    use etherparse::PacketBuilder;
    use lasthop_agent::Packet as _;
    use lasthop_agent::edge::{ReceiverWindows, WindowsConfig};
    use lasthop_agent::link::{LinkConfig, LinkRetransmission};
    use lasthop_agent::snoop::{self, Snoop};

    use super::*;

    /// What left, in order: the numbers in packets' first sequence numbers, and messages.
    #[derive(Default)]
    struct Left {
        packets: [Vec<u32>; 2],
        messages: Vec<(Side, Message)>,
    }

    impl Exit for Left {
        fn packet(&mut self, towards: Side, frame: Frame) {
            self.packets[towards as usize].extend(frame.tcp().map(|tcp| tcp.segment.seq.0));
        }

        fn message(&mut self, towards: Side, message: &Message) {
            self.messages.push((towards, message.clone()));
        }
    }

    fn frame(pool: &Pool, from: Side, seq: u32) -> Frame {
        let ip = PacketBuilder::ethernet2([1; 6], [2; 6]);
        let tcp = match from {
            Side::Fixed => ip.ipv4([192, 0, 2, 1], [10, 0, 0, 2], 64).tcp(80, 4000, seq, 500),
            Side::Mobile => ip.ipv4([10, 0, 0, 2], [192, 0, 2, 1], 64).tcp(4000, 80, seq, 500),
        };
        let mut bytes = Vec::new();
        tcp.ack(1).write(&mut bytes, &[0; 100]).unwrap();
        Frame::copy_of(pool, &bytes)
    }

    #[test]
    fn frames_of_each_direction_leave_in_their_order_and_answers_with_them() {
        let pool = Pool::new(8);
        let machines = vec![
            ReceiverWindows::new(WindowsConfig::default()).into(),
            Snoop::new(snoop::Config::modern()).into(),
            LinkRetransmission::at_base(&LinkConfig::default()).into(),
        ];
        let mut chain = Chain::new(machines, pool.clone());
        let mut left = Left::default();
        chain.set_peer(Time::ZERO, true, &mut left);
        for n in 0..100 {
            let now = Time::from_millis(n.into());
            chain.handle_frame(now, Side::Fixed, frame(&pool, Side::Fixed, 100 * n), &mut left);
            let mut numbered = frame(&pool, Side::Mobile, 100 * n);
            numbered.set_frame(Some(n));
            chain.handle_frame(now, Side::Mobile, numbered, &mut left);
            let acked = matches!(left.messages.pop(),
                Some((Side::Mobile, Message::LinkAck { latest, .. })) if latest == n);
            assert!(acked && left.messages.is_empty());
        }
        let all: Vec<u32> = (0..100).map(|n| 100 * n).collect();
        assert_eq!(left.packets, [all.clone(), all]);
    }

    #[test]
    fn a_machine_without_its_peer_is_passed_by() {
        let pool = Pool::new(8);
        let link = LinkRetransmission::at_base(&LinkConfig::default());
        let mut chain = Chain::new(vec![link.into()], pool.clone());
        let mut left = Left::default();
        chain.handle_frame(Time::ZERO, Side::Fixed, frame(&pool, Side::Fixed, 7), &mut left);
        assert_eq!((left.packets, chain.next_timeout()), ([vec![], vec![7]], None));
    }
}
