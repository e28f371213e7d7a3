//! Packets as they go, and the one timer.

use core::time::Duration;

use lasthop_units::{Bytes, Time};
use lasthop_wire::mhp::ResetReason;
use lasthop_wire::mobile_tcp::{Cid, Code, Control, DataHeader, Extension, short_code};

use super::connection::Patience;
use super::endpoint::MobileTcp;
use super::entry::{ConnectionStage, Entry};
use super::head::Head;
use super::reply::Reply;

/// How often a reset is repeated until the peer acknowledges it.
const RESET_TRIES: u32 = 16;

impl MobileTcp {
    /// Writes the next packet that should leave now into `out`; its length. A packet that does not
    /// fit is cut to what does, where it can be.
    pub fn poll(&mut self, now: Time, out: &mut [u8]) -> Option<usize> {
        self.advance(now);
        if !self.established || self.closed.is_some() {
            return None;
        }
        self.update_shares();
        if self.closing.is_some() {
            return self.send_close(out);
        }
        if self.down.is_some() {
            return None;
        }
        let pad = self.config.pad.as_usize();
        let room = out.len().checked_sub(pad)?;
        let len = match self.poll_own(now, &mut out[..room]) {
            Some(len) => {
                self.stats.sent += 1;
                out[len..len + pad].fill(0);
                Some(len + pad)
            }
            None => self.poll_connections(now, out, pad),
        };
        if len.is_some() {
            self.last_sent = self.now;
        }
        len
    }

    fn send_close(&mut self, out: &mut [u8]) -> Option<usize> {
        let (reason, copies) = self.closing?;
        if copies == 0 {
            self.closed = Some(reason);
            return None;
        }
        self.closing = Some((reason, copies - 1));
        self.stats.sent += 1;
        Self::close_header(reason).emit(0, out).ok()
    }

    /// Writes a packet of no connection.
    fn poll_own(&mut self, now: Time, out: &mut [u8]) -> Option<usize> {
        if let Some(reply) = self.replies.pop_front() {
            return match reply {
                Reply::Data(header) => header.emit(0, out),
                Reply::Control(control) => control.emit(out),
                Reply::Refusal(control, code) => control.emit_refusal(code, out),
            }
            .ok();
        }
        if let Some(word) = self.ports.next_announcement(&self.ticks, now) {
            return word.emit(out).ok();
        }
        if self.ping.due {
            let timeout = self.patience(self.ping.tries);
            self.ping.on_sent(&self.ticks, now, timeout);
            let ask = DataHeader { code: Code::PSH, cid: Cid::NONE, ..DataHeader::default() };
            return ask.emit(0, out).ok();
        }
        None
    }

    /// Connections send in turn, a packet each.
    fn poll_connections(&mut self, now: Time, out: &mut [u8], pad: usize) -> Option<usize> {
        // Once round at most: what one of them has to say may not fit `out`.
        for _ in 0..self.ready.len() + self.capped.len() {
            let allowed = self.allowed();
            let cid = self.next_turn(allowed)?;
            let Some(entry) = self.entries.get_mut(&cid) else { continue };
            let len = match entry.stage {
                ConnectionStage::Established | ConnectionStage::Over => {
                    entry.connection.poll(now, allowed, out)
                }
                _ if entry.repeat.due => self.poll_repeated(now, cid, out, pad),
                _ => None,
            };
            if len.is_none()
                && let Some(entry) = self.entries.get_mut(&cid)
                && entry.wants_to_send()
            {
                // It comes back when the cap has room, or with something urgent.
                if !core::mem::replace(&mut entry.capped, true) {
                    self.capped.push_back(cid);
                }
            }
            self.update(cid);
            if len.is_some() {
                self.complete_row(cid);
                return len;
            }
        }
        None
    }

    /// Where there is a cap, a connection goes on until it has sent as many packets as are
    /// acknowledged at once (MOB-22). Were it fewer, all that the cap allows could wait for the
    /// peers' next tick.
    fn complete_row(&mut self, cid: u16) {
        if self.config.inflight.is_none() || self.ready.back() != Some(&cid) {
            return;
        }
        let packet = u64::from(self.config.max_packet());
        let every = u64::from(self.config.ack_every.max(1));
        let Some(entry) = self.entries.get_mut(&cid) else { return };
        if entry.inflight.div_ceil(packet) % every != 0 && !entry.capped {
            self.ready.pop_back();
            (entry.queued, entry.capped) = (false, true);
            self.capped.push_front(cid);
        }
    }

    /// Whose turn it is: that of a connection that the cap has stopped, if the cap lets it send.
    fn next_turn(&mut self, allowed: Bytes) -> Option<u16> {
        let capped = if allowed > Bytes::ZERO { self.capped.pop_front() } else { None };
        let cid = capped.or_else(|| self.ready.pop_front())?;
        if let Some(entry) = self.entries.get_mut(&cid) {
            match capped {
                Some(_) => entry.capped = false,
                None => entry.queued = false,
            }
        }
        Some(cid)
    }

    /// What is new may be sent up to the cap on all connections together, in full packets.
    fn allowed(&self) -> Bytes {
        let Some(cap) = self.config.inflight else { return Bytes::new(u64::MAX) };
        let packet = u64::from(self.config.max_packet());
        let left = cap.get().saturating_sub(self.inflight);
        match self.inflight {
            0 => Bytes::new(left.max(packet)),
            _ if left < packet => Bytes::ZERO,
            _ => Bytes::new(left),
        }
    }

    /// Writes the packet that a connection repeats until it is answered.
    fn poll_repeated(&mut self, now: Time, cid: u16, out: &mut [u8], pad: usize) -> Option<usize> {
        let patience = self.patience(self.entries.get(&cid)?.repeat.tries);
        let entry = self.entries.get_mut(&cid)?;
        let room = out.len().checked_sub(pad)?;
        entry.repeat.on_sent(&self.ticks, now, patience);
        let len = entry.write_repeated(Cid(cid), self.config.max_packet(), &mut out[..room])?;
        self.stats.sent += 1;
        out[len..len + pad].fill(0);
        Some(len + pad)
    }

    /// How long to wait for an answer to what was sent so often before.
    fn patience(&self, tries: u32) -> Duration {
        self.round_trip.timeout(&Patience::of(&self.config), tries)
    }

    /// The tick of every connection; whether one of them waits in vain.
    pub(super) fn tick_connections(&mut self, now: Time) -> bool {
        self.deadline = None;
        let (mut from, mut unanswered) = (0, false);
        while let Some((&cid, entry)) = self.entries.range_mut(from..).next() {
            let expired = entry.repeat.on_tick(now);
            if entry.stage == ConnectionStage::Established || entry.stage == ConnectionStage::Over {
                entry.connection.handle_timeout(now);
                unanswered |= entry.connection.expiries() > 0;
            }
            unanswered |= expired;
            let tries = entry.repeat.tries;
            let lost = entry.connection.has_failed()
                || (expired && tries >= self.config.give_up_after.max(1));
            match entry.stage {
                ConnectionStage::Resetting { .. } if expired && tries >= RESET_TRIES => {
                    entry.repeat.stop()
                }
                ConnectionStage::Resetting { .. }
                | ConnectionStage::Over
                | ConnectionStage::Silent => {}
                _ if lost => self.fail(cid, ResetReason::TimedOut.code()),
                _ => {}
            }
            self.update(cid);
            let Some(next) = cid.checked_add(1) else { break };
            from = next;
        }
        unanswered
    }
}

impl Entry {
    fn write_repeated(&self, cid: Cid, max_packet: u16, out: &mut [u8]) -> Option<usize> {
        match &self.stage {
            ConnectionStage::SynSent { head, .. } | ConnectionStage::SynAckSent { head } => {
                write_head(self.control(cid, Code::SYN, max_packet), head, out)
            }
            ConnectionStage::Resetting { code, control } => {
                let short = short_code(*code);
                // A data packet has 16 bits for the code.
                if *control || short == u16::MAX {
                    self.control_reset(cid, max_packet).emit_refusal(*code, out).ok()
                } else {
                    self.connection.empty_header(Code::RST, short).emit(0, out).ok()
                }
            }
            _ => None,
        }
    }
}

fn write_head(control: Control, head: &Head, out: &mut [u8]) -> Option<usize> {
    match head {
        Head::Addresses { destination, source } => {
            Control { destination: *destination, source: *source, ..control }.emit(out)
        }
        Head::Message(message) => control.emit_extended(&[Extension::Message(message)], out),
        Head::Nothing => control.emit_extended(&[], out),
    }
    .ok()
}
