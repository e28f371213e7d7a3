//! One connection as its endpoint sees it: its stage, its peer, and what is still to be sent.

use core::net::SocketAddrV4;
use core::time::Duration;

use lasthop_units::Time;
use lasthop_wire::mobile_tcp::{Cid, Code, Control, Seq16};

use super::connection::{Connection, Terms, Ticks};
use super::division::USUAL;
use super::head::Head;

/// How far a connection has come. The stages between opening and end are those of RFC 9293.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum ConnectionStage {
    /// Opened here; its first message is not whole.
    Buffering,
    /// Opened here; the opening is repeated until it is answered.
    SynSent {
        /// The first bytes, as the opening carries them.
        head: Head,
        /// How many of the first bytes that is.
        len: usize,
    },
    /// Opened by the peer; the session has not answered (MOB-7).
    SynReceived,
    /// Opened by the peer; the answer is repeated until something follows it.
    SynAckSent {
        /// Our first bytes, as the answer carries them.
        head: Head,
    },
    /// Both ends have opened it.
    Established,
    /// Aborted here; the reset is repeated until the peer acknowledges it, and answers its packets.
    Resetting {
        /// The session's code.
        code: u64,
        /// By a control packet: the connection never stood.
        control: bool,
    },
    /// Over at both ends; repeated packets are acknowledged.
    Over,
    /// Over; packets are dropped without an answer.
    Silent,
}

/// The peer's parameters, from its opening or its answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PeerSyn {
    /// Its identifier, to be put into packets to it.
    pub(super) cid: Cid,
    /// The number of its SYN.
    pub(super) iss: Seq16,
    pub(super) window: u16,
    pub(super) max_packet: u16,
    /// Where the connection was requested.
    pub(super) destination: SocketAddrV4,
}

impl PeerSyn {
    pub(super) fn of(control: &Control) -> Self {
        Self {
            cid: control.reverse,
            iss: control.seq,
            window: control.max_buffer,
            max_packet: control.max_packet,
            destination: control.destination,
        }
    }
}

/// The timer of a packet that is repeated until it is answered.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct RetransmitTimer {
    /// The packet is to be sent as soon as possible.
    pub(super) due: bool,
    /// How often it was sent.
    pub(super) tries: u32,
    /// When to send it again.
    pub(super) next: Option<Time>,
}

impl RetransmitTimer {
    pub(super) fn start() -> Self {
        Self { due: true, tries: 0, next: None }
    }

    /// It was sent at `now`, and is sent again after `timeout` without an answer.
    pub(super) fn on_sent(&mut self, ticks: &Ticks, now: Time, timeout: Duration) {
        self.due = false;
        self.tries = self.tries.saturating_add(1);
        self.next = Some(ticks.expiry(now, timeout));
    }

    /// Whether the timer has expired; then the packet is due.
    pub(super) fn on_tick(&mut self, now: Time) -> bool {
        let expired = self.next.is_some_and(|at| at <= now);
        if expired {
            (self.due, self.next) = (true, None);
        }
        expired
    }

    /// Makes the packet due at once, if it is being repeated.
    pub(super) fn expire_now(&mut self) {
        if self.next.take().is_some() {
            self.due = true;
        }
    }

    pub(super) fn stop(&mut self) {
        (self.due, self.next) = (false, None);
    }

    /// The packet is being repeated.
    pub(super) fn is_running(&self) -> bool {
        self.due || self.next.is_some()
    }
}

/// One connection.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) stream: u64,
    pub(super) priority: u32,
    pub(super) connection: Connection,
    pub(super) stage: ConnectionStage,
    /// The number of our SYN.
    pub(super) iss: Seq16,
    pub(super) peer: Option<PeerSyn>,
    /// The window advertised with our SYN.
    pub(super) promised: u16,
    pub(super) repeat: RetransmitTimer,
    /// The peer's reset, or a failure, with the session's code.
    pub(super) reset: Option<u64>,
    /// The application met nothing to read, no room to write.
    pub(super) wants_data: bool,
    pub(super) wants_room: bool,
    pub(super) told_finished: bool,
    pub(super) told_closed: bool,
    /// It waits for its turn to send.
    pub(super) queued: bool,
    /// What it has to send that is new waits for others' bytes to arrive.
    pub(super) capped: bool,
    /// Its identifier rests.
    pub(super) resting: bool,
    /// The peer has said something since the identifier rests that shows that it does not know of the
    /// end.
    pub(super) asked: bool,
    /// What it had on its way when that was last counted.
    pub(super) inflight: u64,
    /// What is counted of its buffers: to receive, and to send.
    pub(super) counted: [u64; 2],
}

impl Entry {
    pub(super) fn new(stream: u64, connection: Connection, stage: ConnectionStage) -> Self {
        Self {
            stream,
            priority: USUAL,
            connection,
            stage,
            iss: Seq16((stream as u16).wrapping_mul(0x9e37)),
            peer: None,
            promised: 0,
            repeat: RetransmitTimer::default(),
            reset: None,
            wants_data: true,
            wants_room: false,
            told_finished: false,
            told_closed: false,
            queued: false,
            capped: false,
            resting: false,
            asked: false,
            inflight: 0,
            counted: [0; 2],
        }
    }

    /// Begins the connection: both ends have sent their sequence numbers. The first `sent` bytes written
    /// went with our SYN.
    pub(super) fn begin(&mut self, peer: PeerSyn, sent: usize) {
        let terms = Terms {
            cid: peer.cid,
            send: self.iss + 1,
            recv: peer.iss + 1,
            window: peer.window,
            max_packet: peer.max_packet,
        };
        self.peer = Some(peer);
        self.connection.begin_behind(&terms, sent);
    }

    /// The session still has it and may use it.
    pub(super) fn is_usable(&self) -> bool {
        self.reset.is_none()
            && !self.told_closed
            && !matches!(
                self.stage,
                ConnectionStage::Resetting { .. } | ConnectionStage::Over | ConnectionStage::Silent
            )
    }

    /// The peer opened it, and it does not stand.
    pub(super) fn is_half_open(&self) -> bool {
        matches!(self.stage, ConnectionStage::SynReceived | ConnectionStage::SynAckSent { .. })
    }

    /// Bytes, an end or a reset can be read.
    pub(super) fn is_readable(&self) -> bool {
        self.reset.is_some() || !self.connection.received().is_empty() || self.connection.is_ended()
    }

    /// Whether the session may have an event; room to write is worth one from `worth` bytes on.
    pub(super) fn has_event(&self, worth: usize) -> bool {
        let connection = &self.connection;
        (self.wants_data && self.is_readable())
            || (self.wants_room && connection.send_room() >= worth)
            || (!self.told_finished && connection.is_delivered())
            || self.reset.is_some()
            || connection.is_over()
    }

    /// The peer does not know what is being repeated.
    pub(super) fn repeat_now(&mut self) {
        self.repeat.due = true;
        self.asked = true;
    }

    /// The peer knows what was being repeated.
    pub(super) fn stop_repeating(&mut self) {
        self.repeat.stop();
        self.asked = false;
    }

    /// Whether the peer may have to be told of the end again: it has asked since the last call of this,
    /// or is being told.
    pub(super) fn take_asked(&mut self) -> bool {
        core::mem::take(&mut self.asked) || self.repeat.is_running()
    }

    /// Something is to be sent, if the endpoint lets it.
    pub(super) fn wants_to_send(&self) -> bool {
        match self.stage {
            ConnectionStage::Established | ConnectionStage::Over if self.capped => {
                self.connection.is_urgent()
            }
            ConnectionStage::Established | ConnectionStage::Over => self.connection.wants_to_send(),
            ConnectionStage::SynSent { .. }
            | ConnectionStage::SynAckSent { .. }
            | ConnectionStage::Resetting { .. } => self.repeat.due,
            ConnectionStage::Buffering | ConnectionStage::SynReceived | ConnectionStage::Silent => {
                false
            }
        }
    }

    /// A timer of it runs.
    pub(super) fn is_timed(&self) -> bool {
        let connects = matches!(self.stage, ConnectionStage::Established | ConnectionStage::Over);
        self.repeat.next.is_some() || (connects && self.connection.is_timed())
    }

    /// A control packet of this connection's: everything but what it says in particular.
    pub(super) fn control(&self, cid: Cid, code: Code, max_packet: u16) -> Control {
        let ack = self.peer.map_or(Seq16((self.stream / 2) as u16), |peer| peer.iss + 1);
        Control {
            code: code.with_if(Code::ACK, self.peer.is_some()),
            cid: self.peer.map_or(Cid::NONE, |peer| peer.cid),
            seq: self.iss,
            ack,
            reverse: cid,
            max_buffer: self.promised,
            max_packet,
            ..Control::default()
        }
    }
}
