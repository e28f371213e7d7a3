//! Retransmission by the link itself, which knows nothing of TCP (DDA-1, CC-4).
//!
//! Each end of the hop numbers what it sends, keeps copies, and gets reports from the other end which
//! frames have come. No header is read, so encrypted payload is helped like any other. By default
//! a repaired frame is passed on when it comes, behind those that overtook it: what TCP makes of
//! that is the receiver's business (delayed dupacks, congestion coherence).
//!
//! With [`LinkConfig::notify`] the base does read TCP headers, of what it has to send again, and
//! tells the source of each failed attempt (EBSN; EBS-1).
//!
//! There is one machine per hop, since acknowledgements of frames name no host: a base has one for
//! each mobile or mobile router that it serves.

#[cfg(test)]
pub(crate) mod fake;
mod notice;
mod order;
mod receiver;
mod sender;
#[cfg(test)]
mod tests;

pub use receiver::{LinkAck, LinkReceiver, ReceiverStats};
pub use sender::{LinkSender, SenderStats};

use core::net::IpAddr;

use lasthop_units::{Duration, Time, deserialize_duration};
use lasthop_wire::agent::Message;
use serde::Deserialize;

use crate::{Agent, Output, Packet, Queue, Side};
use notice::Notices;

/// How a link recovers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct LinkConfig {
    /// Retransmissions of a frame, and probes in a row without an answer, before it is given up
    /// (DDA-6; silent: the count).
    pub retries: u32,
    /// Copies that are kept at most, from 1 to 256; the oldest gives way.
    pub copies: usize,
    /// Pass frames on in their order, holding back those behind a gap. Delayed dupacks and
    /// congestion coherence live without (silent).
    pub in_order: bool,
    /// With `in_order`: how long a gap is waited for.
    #[serde(deserialize_with = "deserialize_duration")]
    pub hold: Duration,
    /// How long an answer is waited for before the hop's round trip is known.
    #[serde(deserialize_with = "deserialize_duration")]
    pub initial_timeout: Duration,
    /// The least time that an answer is waited for.
    #[serde(deserialize_with = "deserialize_duration")]
    pub least_timeout: Duration,
    /// The number of the first frame. An end that restarts should begin elsewhere, such as at a
    /// random number: the other end takes low numbers that it has seen lately for duplicates.
    #[serde(skip)]
    pub first_frame: u32,
    /// Tell the source of each failed attempt (EBS-1). Only a base does.
    #[serde(skip)]
    pub notify: bool,
    /// With `notify`: the least time between two notices about one connection (silent).
    #[serde(deserialize_with = "deserialize_duration")]
    pub notice_interval: Duration,
}

impl Default for LinkConfig {
    fn default() -> Self {
        Self {
            retries: 3,
            copies: 256,
            in_order: false,
            hold: Duration::from_millis(200),
            initial_timeout: Duration::from_millis(300),
            least_timeout: Duration::from_millis(10),
            first_frame: 0,
            notify: false,
            notice_interval: Duration::from_millis(50),
        }
    }
}

/// What one end of a hop did.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LinkStats {
    /// As the sending end.
    pub sender: SenderStats,
    /// As the receiving end.
    pub receiver: ReceiverStats,
    /// Acknowledgements that came.
    pub acks: u64,
    /// Sources that were notified of a failed attempt (EBS-1).
    pub notices: u64,
}

/// One end of a hop that recovers by itself, in both directions independently.
#[derive(Clone, Debug)]
pub struct LinkRetransmission<P> {
    hop: Side,
    sender: LinkSender<P>,
    receiver: LinkReceiver<P>,
    notices: Option<Notices>,
    queue: Queue<P>,
    acks: u64,
}

impl<P: Packet> LinkRetransmission<P> {
    /// The end at the base: the hop is on its mobile side.
    pub fn at_base(config: &LinkConfig) -> Self {
        let notices = config.notify.then(|| Notices::new(config.notice_interval));
        Self { notices, ..Self::new(config, Side::Mobile) }
    }

    /// The end at a mobile: the hop is on its fixed side, and the mobile's TCP, or the network
    /// behind a mobile router, on its mobile side. It tells no source anything.
    pub fn at_mobile(config: &LinkConfig) -> Self {
        Self::new(config, Side::Fixed)
    }

    fn new(config: &LinkConfig, hop: Side) -> Self {
        Self {
            hop,
            sender: LinkSender::new(config),
            receiver: LinkReceiver::new(config),
            notices: None,
            queue: Queue::default(),
            acks: 0,
        }
    }

    /// What it did.
    pub fn stats(&self) -> LinkStats {
        LinkStats {
            sender: *self.sender.stats(),
            receiver: *self.receiver.stats(),
            acks: self.acks,
            notices: self.notices.as_ref().map_or(0, Notices::count),
        }
    }

    /// Copies that are kept.
    pub const fn kept(&self) -> usize {
        self.sender.kept()
    }

    fn deliver(&mut self) {
        while let Some(packet) = self.receiver.poll_delivery() {
            self.queue.packet(self.hop.other(), packet);
        }
    }

    fn repair(&mut self, now: Time) {
        while let Some(packet) = self.sender.poll_repair() {
            if let Some(notices) = &mut self.notices {
                notices.failed(now, &packet, &mut self.queue);
            }
            self.queue.packet(self.hop, packet);
        }
    }

    /// The hop is silent for all whose packets wait for an answer.
    fn notify_all(&mut self, now: Time) {
        if let Some(notices) = &mut self.notices {
            for packet in self.sender.copies() {
                notices.failed(now, packet, &mut self.queue);
            }
        }
    }
}

impl<P: Packet> Agent<P> for LinkRetransmission<P> {
    fn handle_packet(&mut self, now: Time, from: Side, packet: P) {
        if from != self.hop {
            let packet = self.sender.send(now, packet);
            self.queue.packet(self.hop, packet);
            return;
        }
        let Some(frame) = packet.frame() else {
            self.queue.packet(self.hop.other(), packet);
            return;
        };
        let LinkAck { latest, come } = self.receiver.handle_frame(now, frame, packet);
        self.queue.message(self.hop, Message::LinkAck { latest, come });
        self.deliver();
    }

    fn handle_message(&mut self, now: Time, from: Side, message: &Message) {
        if let Message::LinkAck { latest, come } = *message
            && from == self.hop
        {
            self.acks += 1;
            self.sender.handle_ack(now, latest, come);
            self.repair(now);
        }
    }

    /// The other end of the hop is gone, whichever mobile is named: there is one machine per hop.
    fn remove_mobile(&mut self, _mobile: IpAddr) {
        self.sender.clear();
        self.receiver.clear();
        self.deliver();
    }

    fn poll_output(&mut self) -> Option<Output<P>> {
        self.queue.pop()
    }

    fn next_timeout(&self) -> Option<Time> {
        [self.sender.next_timeout(), self.receiver.next_timeout()].into_iter().flatten().min()
    }

    fn handle_timeout(&mut self, now: Time) {
        if self.sender.handle_timeout(now) {
            self.notify_all(now);
        }
        self.repair(now);
        self.receiver.handle_timeout(now);
        self.deliver();
    }
}
