//! Data packets as they come.

use lasthop_units::Time;
use lasthop_wire::mobile_tcp::{Cid, Code, DataHeader, DecodeError, Packet};
use thiserror::Error;

use super::endpoint::MobileTcp;
use super::entry::ConnectionStage;
use super::reply::Reply;
use crate::transport::{CloseReason, LOST};

/// Why a packet was dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Error {
    /// The packet cannot be read.
    #[error("Mobile TCP: {0}")]
    Packet(#[from] DecodeError),
    /// No association stands, or it is over: nothing can be meant for this end.
    #[error("a Mobile TCP packet before the association stands, or after its end")]
    NotEstablished,
}

impl MobileTcp {
    /// Takes in a packet.
    ///
    /// # Errors
    ///
    /// Says why the packet was dropped: it could not be read, or nothing can be meant for this end.
    /// It is counted, and nothing is answered (MOB-14).
    pub fn handle(&mut self, now: Time, packet: &[u8]) -> Result<(), Error> {
        self.advance(now);
        if !self.established || self.closed.is_some() {
            return Err(Error::NotEstablished);
        }
        let packet = Packet::decode(packet).inspect_err(|e| match e {
            DecodeError::Checksum => self.stats.damaged += 1,
            _ => self.stats.malformed += 1,
        })?;
        self.on_received();
        match packet {
            Packet::Data(header, data) => self.on_data(now, &header, data),
            Packet::Control(control, extensions) => {
                self.stats.received += 1;
                self.on_control(&control, extensions);
            }
        }
        Ok(())
    }

    fn on_data(&mut self, now: Time, header: &DataHeader, data: &[u8]) {
        if header.cid.is_none() {
            return self.on_association(header);
        }
        if header.code.contains(Code::UNKNOWN) {
            return self.on_unknown(header);
        }
        let cid = header.cid.0;
        let Some(entry) = self.entries.get_mut(&cid) else {
            return self.refuse_data(header, data.len());
        };
        if header.code.contains(Code::RST) {
            return self.on_reset(cid, header);
        }
        match entry.stage {
            ConnectionStage::Established | ConnectionStage::Over => {}
            // What was answered is followed: the connection stands.
            ConnectionStage::SynAckSent { .. } => {
                if !header.code.contains(Code::ACK) || header.ack != entry.iss + 1 {
                    self.stats.impossible += 1;
                    return;
                }
                entry.repeat.stop();
                self.set_stage(cid, ConnectionStage::Established);
            }
            ConnectionStage::Resetting { .. } => {
                entry.repeat_now();
                return self.update(cid);
            }
            _ => return,
        }
        let Some(entry) = self.entries.get_mut(&cid) else { return };
        entry.connection.handle(now, header, data);
        entry.asked |= entry.connection.is_urgent();
        self.round_trip = entry.connection.round_trip();
        self.update(cid);
    }

    /// A packet of no connection: a question, an answer, or the peer's last word.
    fn on_association(&mut self, header: &DataHeader) {
        self.stats.received += 1;
        if let Some(code) = header.reset_code() {
            self.closed.get_or_insert(CloseReason::from_code(u64::from(code)));
        } else if header.code.contains(Code::PSH) {
            let answer = DataHeader { code: Code::ACK, cid: Cid::NONE, ..DataHeader::default() };
            self.reply(Reply::Data(answer));
        }
    }

    /// Answers a packet of an unknown connection.
    fn refuse_data(&mut self, header: &DataHeader, len: usize) {
        self.stats.unknown += 1;
        if header.code.contains(Code::RST) {
            return;
        }
        let end = header.seq + len as u16 + u16::from(header.code.contains(Code::FIN));
        let answer = DataHeader {
            code: Code::UNKNOWN.with(Code::RST),
            cid: header.cid,
            seq: header.ack,
            ack: end,
            nack: end,
            ..DataHeader::default()
        };
        self.reply(Reply::Data(answer));
    }

    /// The peer does not have a connection that we sent to.
    fn on_unknown(&mut self, header: &DataHeader) {
        self.stats.received += 1;
        let Some(cid) = self.by_peer.get(&header.cid.0).copied() else { return };
        let Some(entry) = self.entries.get_mut(&cid) else { return };
        match entry.stage {
            ConnectionStage::Resetting { .. } => entry.stop_repeating(),
            ConnectionStage::Established if entry.connection.may_have_sent(header.ack) => {
                // It was removed there because everything had arrived, or the peer lost its state.
                if !entry.connection.conclude() {
                    return self.fail(cid, LOST);
                }
            }
            _ => self.stats.impossible += 1,
        }
        self.update(cid);
    }

    /// The peer resets the connection, or acknowledges our reset.
    fn on_reset(&mut self, cid: u16, header: &DataHeader) {
        self.stats.received += 1;
        let Some(entry) = self.entries.get_mut(&cid) else { return };
        if header.code.contains(Code::ACK) {
            if matches!(entry.stage, ConnectionStage::Resetting { .. }) {
                entry.stop_repeating();
            }
            return;
        }
        let begun = matches!(
            entry.stage,
            ConnectionStage::Established | ConnectionStage::SynAckSent { .. }
        );
        if begun && !entry.connection.may_reset(header.seq) {
            self.stats.impossible += 1;
            return;
        }
        let heard = entry.connection.empty_header(Code::RST.with(Code::ACK), 0);
        if !heard.cid.is_none() {
            self.reply(Reply::Data(heard));
        }
        self.fail(cid, u64::from(header.window));
    }
}
