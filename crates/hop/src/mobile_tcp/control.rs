//! Control packets as they come, and short answers as they go (MOB-5 to MOB-9).

use lasthop_wire::mhp::{MAX_MESSAGE_LEN, Refusal, ResetReason};
use lasthop_wire::mobile_tcp::{Cid, Code, Control, Extensions};

use super::endpoint::MobileTcp;
use super::entry::{ConnectionStage, Entry, PeerSyn, RetransmitTimer};
use super::head;
use super::reply::Reply;
use crate::streams::{StreamEvent, StreamId};
use crate::transport::Role;

/// Short answers that may wait to be sent: what is beyond is as good as lost.
const REPLIES_MAX: usize = 64;
/// How often an opening that the peer has received is repeated (MOB-7).
const PENDING_PATIENCE: core::time::Duration = core::time::Duration::from_secs(5);
/// Streams are named by 16 bits of half their number.
const TURN: u64 = 1 << 16;

/// The role at the other end.
pub(super) fn other(role: Role) -> Role {
    match role {
        Role::Mobile => Role::Base,
        Role::Base => Role::Mobile,
    }
}

/// Refuses a SYN of which nothing is kept.
fn refusal_of(syn: &Control) -> Control {
    Control { code: Code::RST, cid: syn.reverse, ack: syn.seq + 1, ..Control::default() }
}

impl MobileTcp {
    pub(super) fn reply(&mut self, reply: Reply) {
        if self.replies.len() < REPLIES_MAX {
            self.replies.push_back(reply);
        } else {
            self.stats.unanswered += 1;
        }
    }

    pub(super) fn on_control(&mut self, control: &Control, extensions: Option<Extensions<'_>>) {
        let code = control.code;
        if code.contains(Code::LISTEN) {
            self.on_listen(control);
        } else if code.contains(Code::RST) {
            self.on_control_reset(control, extensions);
        } else if code.contains(Code::PENDING) {
            self.on_pending(control);
        } else if code.contains(Code::SYN.with(Code::ACK)) {
            self.on_answer(control, extensions);
        } else if code.contains(Code::SYN) && !control.reverse.is_none() {
            self.on_opening(control, extensions);
        } else {
            self.stats.malformed += 1;
        }
    }

    /// The connection that a control packet is for: by our identifier or, while the peer does not know
    /// that, by the peer's.
    fn connection_of(&self, control: &Control) -> Option<u16> {
        if control.cid.is_none() {
            return self.by_peer.get(&control.reverse.0).copied();
        }
        let entry = self.entries.get(&control.cid.0)?;
        let same =
            control.reverse.is_none() || entry.peer.is_none_or(|peer| peer.cid == control.reverse);
        same.then_some(control.cid.0)
    }

    /// Whether a reset can be the peer's: it has the number of the peer's SYN, or, while the
    /// connection does not stand, acknowledges ours.
    fn may_reset(&self, cid: u16, control: &Control) -> bool {
        let Some(entry) = self.entries.get(&cid) else { return false };
        let waits = matches!(
            entry.stage,
            ConnectionStage::SynSent { .. } | ConnectionStage::SynAckSent { .. }
        );
        (waits && control.ack == entry.iss + 1)
            || entry.peer.is_some_and(|peer| peer.iss == control.seq)
    }

    /// The peer has received our opening and works on it (MOB-7).
    fn on_pending(&mut self, control: &Control) {
        let Some(entry) = self.entries.get_mut(&control.cid.0) else { return };
        if matches!(entry.stage, ConnectionStage::SynSent { .. }) && control.ack == entry.iss + 1 {
            entry.repeat.on_sent(&self.ticks, self.now, PENDING_PATIENCE);
            self.update(control.cid.0);
        }
    }

    /// A refusal, or a reset of what does not stand yet. With an acknowledgement: our own arrived.
    fn on_control_reset(&mut self, control: &Control, extensions: Option<Extensions<'_>>) {
        let known = self.connection_of(control);
        if control.code.contains(Code::ACK) {
            if let Some(cid) = known
                && let Some(entry) = self.entries.get_mut(&cid)
                && matches!(entry.stage, ConnectionStage::Resetting { .. })
            {
                entry.stop_repeating();
            }
            return;
        }
        if known.is_some_and(|cid| !self.may_reset(cid, control)) {
            self.stats.impossible += 1;
            return;
        }
        if !control.reverse.is_none() {
            let heard = Control {
                code: Code::RST.with(Code::ACK),
                cid: control.reverse,
                reverse: known.map_or(Cid::NONE, Cid),
                ..Control::default()
            };
            self.reply(Reply::Control(heard));
        }
        if let Some(cid) = known {
            let code = control.reset_code(extensions).unwrap_or_default();
            self.fail(cid, code);
        }
    }

    /// The peer has accepted (MOB-5).
    fn on_answer(&mut self, control: &Control, extensions: Option<Extensions<'_>>) {
        let cid = control.cid.0;
        let Some(entry) = self.entries.get_mut(&cid) else {
            return self.refuse_unknown(control);
        };
        if control.ack != entry.iss + 1 || control.reverse.is_none() {
            self.stats.impossible += 1;
            return;
        }
        match entry.stage {
            ConnectionStage::SynSent { len, .. } => {
                let Some(head) = head::write_answer(control, extensions) else {
                    self.stats.malformed += 1;
                    return;
                };
                entry.connection.foresee(&head);
                entry.begin(PeerSyn::of(control), len);
                entry.connection.acknowledge();
                entry.repeat.stop();
                self.set_stage(cid, ConnectionStage::Established);
                self.by_peer.insert(control.reverse.0, cid);
            }
            // Our acknowledgement was lost.
            ConnectionStage::Established | ConnectionStage::Over => entry.connection.acknowledge(),
            ConnectionStage::Resetting { .. } => entry.repeat_now(),
            _ => {}
        }
        self.update(cid);
    }

    fn refuse_unknown(&mut self, control: &Control) {
        self.stats.unknown += 1;
        self.reply(Reply::Refusal(refusal_of(control), ResetReason::Aborted.code()));
    }

    /// The peer opens a connection (MOB-6, MOB-8).
    fn on_opening(&mut self, control: &Control, extensions: Option<Extensions<'_>>) {
        let stream = self.peer_stream(control.ack.0);
        if let Some(cid) = self.by_peer.get(&control.reverse.0).copied()
            && let Some(entry) = self.entries.get(&cid)
            && entry.stream == stream
            && entry.peer.is_some_and(|peer| peer.iss == control.seq)
        {
            return self.on_repeated_opening(cid);
        }
        // Another life's connection of that number must be over first.
        if self.streams.contains_key(&stream) {
            return;
        }
        if self.streams.len() >= self.connections_max() || self.half_open >= self.half_open_max() {
            return self.refuse_opening(control);
        }
        let (head, waits) = head::write_opening(control, extensions, other(self.role));
        if head.len() > MAX_MESSAGE_LEN {
            self.stats.malformed += 1;
            return;
        }
        let Some(cid) = self.add(stream, ConnectionStage::SynReceived) else {
            return self.refuse_opening(control);
        };
        self.highest = self.highest.max(stream / 2);
        self.by_peer.insert(control.reverse.0, cid);
        let Some(entry) = self.entries.get_mut(&cid) else { return };
        entry.peer = Some(PeerSyn::of(control));
        entry.promised = entry.connection.promise(head.len());
        entry.connection.foresee(&head);
        self.events.push_back(StreamEvent::Incoming(StreamId(stream)));
        if waits {
            self.reply_pending(cid);
        } else {
            self.send_answer(cid, head::Head::Nothing, 0);
        }
        self.update(cid);
    }

    fn half_open_max(&self) -> usize {
        self.config.half_open_max.max(1)
    }

    fn refuse_opening(&mut self, control: &Control) {
        self.stats.turned_away += 1;
        let code = ResetReason::Refused(Refusal::TooMany).code();
        self.reply(Reply::Refusal(refusal_of(control), code));
    }

    fn on_repeated_opening(&mut self, cid: u16) {
        let Some(entry) = self.entries.get_mut(&cid) else { return };
        match entry.stage {
            ConnectionStage::SynReceived => self.reply_pending(cid),
            ConnectionStage::SynAckSent { .. } | ConnectionStage::Resetting { .. } => {
                entry.repeat_now();
            }
            _ => {}
        }
        self.update(cid);
    }

    /// Acknowledges an opening that waits for the fixed host.
    fn reply_pending(&mut self, cid: u16) {
        let Some(entry) = self.entries.get(&cid) else { return };
        let code = Code::PENDING.with(Code::ACK);
        let pending = entry.control(Cid(cid), code, self.config.max_packet());
        self.reply(Reply::Control(pending));
    }

    /// Accepts a connection that the peer opened; `len` of our first bytes are in `head`.
    pub(super) fn send_answer(&mut self, cid: u16, head: head::Head, len: usize) {
        let Some(entry) = self.entries.get_mut(&cid) else { return };
        let Some(peer) = entry.peer else { return };
        entry.begin(peer, len);
        entry.repeat = RetransmitTimer::start();
        self.set_stage(cid, ConnectionStage::SynAckSent { head });
    }

    /// The stream whose half has those low bits: of all, the nearest to the highest known.
    fn peer_stream(&self, low: u16) -> u64 {
        let turn = self.highest - self.highest % TURN + u64::from(low);
        let half = if turn + TURN / 2 < self.highest {
            turn + TURN
        } else if turn > self.highest + TURN / 2 && turn >= TURN {
            turn - TURN
        } else {
            turn
        };
        2 * half + u64::from(self.role == Role::Mobile)
    }
}

impl Entry {
    /// The control packet that resets it.
    pub(super) fn control_reset(&self, cid: Cid, max_packet: u16) -> Control {
        let control = self.control(cid, Code::RST, max_packet);
        Control { code: control.code.without(Code::ACK), ..control }
    }
}
