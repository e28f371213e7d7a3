//! The machines of an agent, one behind the other from the fixed side to the mobile side.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use lasthop_agent::{Agent, Output, Side};
use lasthop_units::{LinkEvent, Time};
use lasthop_wire::agent::Message;

use super::frame::Frame;
use super::header::Headers;
use super::machine::Machine;
use super::pool::Pool;

/// Connections whose Ethernet headers are remembered, for segments that machines make.
const HEADERS: usize = 4096;
/// How long they are remembered after a connection's last packet.
const IDLE: Duration = Duration::from_secs(300);

/// Something that leaves the chain.
#[derive(Debug)]
pub(super) enum Leaving {
    /// A packet for that side.
    Packet(Side, Frame),
    /// A message for the agent on that side; messages are long, and few.
    Message(Side, Box<Message>),
}

/// Something within the chain, for machine `at`; one before the first leaves towards the fixed hosts, one
/// behind the last towards the mobiles.
#[derive(Debug)]
struct Passing {
    at: Option<usize>,
    from: Side,
    frame: Frame,
}

/// The machines.
pub(super) struct Chain {
    machines: Vec<Machine>,
    passing: VecDeque<Passing>,
    leaving: VecDeque<Leaving>,
    headers: Headers,
    /// Whether the agent at the other end of the hop is there.
    peer: bool,
    /// Whether any machine makes segments of its own.
    makes_segments: bool,
}

impl Chain {
    pub(super) fn new(machines: Vec<Machine>) -> Self {
        let makes_segments = machines.iter().any(Machine::makes_segments);
        Self {
            machines,
            passing: VecDeque::new(),
            leaving: VecDeque::new(),
            headers: Headers::new(HEADERS, IDLE),
            peer: false,
            makes_segments,
        }
    }

    /// The agent at the other end of the hop is there, or not any more. A machine that cannot do
    /// without it is passed by meanwhile.
    pub(super) fn set_peer(&mut self, now: Time, there: bool, pool: &Pool) {
        self.peer = there;
        for at in 0..self.machines.len() {
            if let Some(machine) = self.machines.get_mut(at)
                && machine.needs_peer()
            {
                machine.begin_anew();
                self.collect(at, pool);
            }
        }
        self.pass(now, pool);
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
    pub(super) fn handle_frame(&mut self, now: Time, from: Side, frame: Frame, pool: &Pool) {
        if self.makes_segments {
            self.headers.remember(now, from, &frame);
        }
        let at = match from {
            Side::Fixed => self.next(None, Side::Mobile),
            Side::Mobile => self.next(Some(self.machines.len()), Side::Fixed),
        };
        self.passing.push_back(Passing { at, from, frame });
        self.pass(now, pool);
    }

    /// The agent on that side said something.
    pub(super) fn handle_message(&mut self, now: Time, from: Side, message: &Message, pool: &Pool) {
        for at in 0..self.machines.len() {
            if let Some(machine) = self.machines.get_mut(at) {
                machine.agent.handle_message(now, from, message);
                self.collect(at, pool);
            }
        }
        self.pass(now, pool);
    }

    /// The hop's state changed.
    pub(super) fn handle_link_event(&mut self, now: Time, event: LinkEvent, pool: &Pool) {
        for at in 0..self.machines.len() {
            if let Some(machine) = self.machines.get_mut(at) {
                machine.agent.handle_link_event(now, event);
                self.collect(at, pool);
            }
        }
        self.pass(now, pool);
    }

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.machines.iter().filter_map(|m| m.agent.next_timeout()).min()
    }

    /// The time asked for has come.
    pub(super) fn handle_timeout(&mut self, now: Time, pool: &Pool) {
        for at in 0..self.machines.len() {
            if let Some(machine) = self.machines.get_mut(at)
                && machine.agent.next_timeout().is_some_and(|due| due <= now)
            {
                machine.agent.handle_timeout(now);
                self.collect(at, pool);
            }
        }
        self.pass(now, pool);
    }

    /// The next thing that leaves.
    pub(super) fn poll(&mut self) -> Option<Leaving> {
        self.leaving.pop_front()
    }

    /// The machines.
    pub(super) fn machines(&mut self) -> &mut [Machine] {
        &mut self.machines
    }

    /// What the machines have counted.
    pub(super) fn counters(&self) -> BTreeMap<String, u64> {
        self.machines.iter().flat_map(Machine::counters).collect()
    }

    /// Hands on what a machine has to hand on after it was changed from outside.
    pub(super) fn flush(&mut self, now: Time, pool: &Pool) {
        for at in 0..self.machines.len() {
            self.collect(at, pool);
        }
        self.pass(now, pool);
    }

    /// The machine after `at` in that direction which is to see packets; none at the end.
    fn next(&self, at: Option<usize>, towards: Side) -> Option<usize> {
        let sees = |i: &usize| self.machines.get(*i).is_some_and(|m| self.peer || !m.needs_peer());
        match towards {
            Side::Mobile => {
                let first = at.map_or(0, |at| at + 1);
                (first..self.machines.len()).find(sees)
            }
            Side::Fixed => (0..at.unwrap_or(0)).rev().find(sees),
        }
    }

    /// Moves what is within the chain until all of it has been handled or has left.
    fn pass(&mut self, now: Time, pool: &Pool) {
        while let Some(Passing { at, from, frame }) = self.passing.pop_front() {
            let Some(at) = at else {
                self.leaving.push_back(Leaving::Packet(from.other(), frame));
                continue;
            };
            if let Some(machine) = self.machines.get_mut(at) {
                machine.agent.handle_packet(now, from, frame);
                self.collect(at, pool);
            }
        }
    }

    /// Takes over what machine `at` has to hand on.
    fn collect(&mut self, at: usize, pool: &Pool) {
        while let Some(output) = self.machines.get_mut(at).and_then(|m| m.agent.poll_output()) {
            let (towards, frame) = match output {
                Output::Packet { towards, packet } => (towards, packet),
                Output::Segment { towards, connection, segment } => {
                    let made = self.headers.build(towards, &connection, &segment, pool);
                    // Nothing of that connection was seen, so that nobody knows where to send it.
                    let Some(frame) = made else { continue };
                    (towards, frame)
                }
                Output::Message { towards, message } => {
                    self.leaving.push_back(Leaving::Message(towards, Box::new(message)));
                    continue;
                }
            };
            let next = self.next(Some(at), towards);
            self.passing.push_back(Passing { at: next, from: towards.other(), frame });
        }
    }
}
