//! A user who gives priorities and sees disconnections coming (UFB-1).

use std::collections::{BTreeMap, VecDeque};

use lasthop_session::{FeedbackConfig, Layer, Setting, UserFeedback};
use lasthop_units::{Duration, LinkEvent, Time};

use crate::net::host::{FlowId, Io};

/// Something that the user says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wish {
    /// Flows of the service at a port, present and future, have this priority (RWC-1). The same
    /// port at several servers is one service.
    Priority {
        /// The service's port, here or at the peer.
        port: u16,
        /// The priority, relative to the others'; 1 is usual.
        priority: u32,
    },
    /// The link will be gone (UFB-5).
    Disconnection {
        /// How long from then.
        after: Duration,
        /// For how long, about.
        lasting: Duration,
    },
}

/// The user of a host, as a script.
#[derive(Clone, Debug, Default)]
pub struct User {
    /// Packets that the windows of all the host's TCP flows have together: the paper's A. Without it
    /// priorities leave TCP's windows alone.
    pub window: Option<u64>,
    /// The user's inputs, and when; of those at one time the later counts last.
    pub says: Vec<(Time, Wish)>,
}

/// A user's feedback at work.
#[derive(Debug)]
pub(super) struct Control {
    feedback: UserFeedback<FlowId>,
    says: VecDeque<(Time, Wish)>,
    /// The priority that each port was given.
    given: BTreeMap<u16, u32>,
    flows: Vec<(FlowId, u16)>,
}

impl Control {
    pub(super) fn new(mut user: User) -> Self {
        user.says.sort_by_key(|(at, _)| *at);
        let config = FeedbackConfig { window: user.window, ..FeedbackConfig::default() };
        Self {
            feedback: UserFeedback::new(config),
            says: user.says.into(),
            given: BTreeMap::new(),
            flows: Vec::new(),
        }
    }

    pub(super) fn next_timeout(&self) -> Time {
        let says = self.says.front().map_or(Time::NEVER, |(at, _)| *at);
        says.min(self.feedback.next_timeout().unwrap_or(Time::NEVER))
    }

    pub(super) fn handle_timeout(&mut self, io: &mut Io<'_, '_>) {
        while let Some((at, wish)) = self.says.front().copied()
            && at <= io.now()
        {
            self.says.pop_front();
            self.obey(io.now(), wish);
        }
        self.feedback.handle_timeout(io.now());
        self.apply(io);
    }

    /// The link itself reported.
    pub(super) fn handle_link_event(&mut self, event: LinkEvent) {
        self.feedback.handle_link_event(event);
    }

    fn obey(&mut self, now: Time, wish: Wish) {
        match wish {
            Wish::Priority { port, priority } => {
                self.given.insert(port, priority);
                for (flow, _) in self.flows.iter().filter(|(_, of)| *of == port) {
                    self.feedback.set_priority(*flow, priority);
                }
            }
            Wish::Disconnection { after, lasting } => {
                self.feedback.disconnect_hint(now, after, lasting);
            }
        }
    }

    /// A flow begins. One too many goes on without.
    pub(super) fn begin(&mut self, io: &mut Io<'_, '_>, flow: FlowId, port: u16) {
        let layer = match io.connection(flow) {
            Some(connection) => Layer::Tcp { mss: connection.segment_size() },
            None => Layer::Hop,
        };
        if self.feedback.begin(flow, layer).is_ok() {
            self.flows.push((flow, port));
            if let Some(priority) = self.given.get(&port) {
                self.feedback.set_priority(flow, *priority);
            }
            self.apply(io);
        }
    }

    pub(super) fn end(&mut self, io: &mut Io<'_, '_>, flow: FlowId) {
        self.flows.retain(|(known, _)| *known != flow);
        self.feedback.end(flow);
        self.apply(io);
    }

    /// Hands settings to the layers that they are for (UFB-2).
    fn apply(&mut self, io: &mut Io<'_, '_>) {
        while let Some(setting) = self.feedback.poll_setting() {
            match setting {
                Setting::Window { flow, share } => io.set_window_share(flow, Some(share)),
                Setting::Priority { flow, priority } => io.set_priority(flow, priority),
                Setting::Link(event) => io.report_link_event(event),
            }
        }
    }
}
