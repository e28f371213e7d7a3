//! The parameters of Mobile TCP on the hop: the `[mobile-tcp]` table. What is not said is left to
//! the machine's own defaults.

use std::time::Duration;

use lasthop_radio::Span;
use lasthop_units::Bytes;
use serde::Deserialize;

use super::complaint::Complaints;
use super::tcp::MOST_HELD;

/// Mobile TCP (MOB).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct MobileTcpSettings {
    /// The receive buffer of a connection, and so the largest window (MOB-20).
    pub window: Option<Bytes>,
    /// What a connection holds to send.
    pub send_buffer: Option<Bytes>,
    /// Bytes of data in a packet, at most.
    pub packet: Option<u32>,
    /// The one timer's period (MOB-34).
    pub tick: Option<Span>,
    /// Packets in sequence that one acknowledgement answers (MOB-22).
    pub ack_every: Option<u32>,
    /// Bytes that each packet is longer than it need be: 24 make the paper's MTCP_24.
    pub pad: Option<u32>,
    /// The retransmission timeout before there is a round trip to go by.
    pub rto: Option<Span>,
    /// A timeout that expires in vain doubles, up to this (MOB-35).
    pub backoff: Option<Span>,
    /// A packet that is not full waits while others are on their way.
    pub nagle: Option<bool>,
    /// Expiries in a row after which a connection is given up; 0 is never.
    pub give_up: Option<u32>,
    /// What all connections of a mobile may have on their way together; only their windows limit
    /// them otherwise (MOB-3).
    pub inflight: Option<Bytes>,
}

impl MobileTcpSettings {
    /// The longest window: with 16-bit numbers more would be ambiguous (MOB-13).
    pub const MOST_WINDOW: Bytes = Bytes::new(32_767);
    /// Bytes of a data packet's header (MOB-11).
    pub const HEADER: u32 = 16;
    /// Bytes of data in a packet, at least: less would not be worth the header.
    pub const LEAST_PACKET: u32 = 16;

    /// Complains about values that Mobile TCP cannot have.
    pub(crate) fn check(&self, wrong: &mut Complaints) {
        if self.window.is_some_and(|window| window > Self::MOST_WINDOW) {
            let message = "is more than 32767 B, the most that its 16-bit numbers can tell apart";
            wrong.add(&["mobile-tcp", "window"], message, "the paper's is `16KiB`");
        }
        if self.send_buffer.is_some_and(|buffer| buffer > MOST_HELD) {
            let message = "is more than 64 MiB, the most that an end of the hop can hold";
            wrong.add(&["mobile-tcp", "send-buffer"], message, "`16KiB` to `1MiB` are usual");
        }
        for (key, bytes) in [
            ("window", self.window),
            ("send-buffer", self.send_buffer),
            ("inflight", self.inflight),
            ("packet", self.packet.map(|n| Bytes::new(u64::from(n)))),
            ("ack-every", self.ack_every.map(|n| Bytes::new(u64::from(n)))),
        ] {
            if bytes == Some(Bytes::ZERO) {
                wrong.add(&["mobile-tcp", key], "0 moves nothing", "give 1 or more");
            }
        }
        if let Some(packet) = self.packet.filter(|n| (1..Self::LEAST_PACKET).contains(n)) {
            let message = format!("{packet} bytes are less than the 16 of a header");
            wrong.add(&["mobile-tcp", "packet"], message, "the paper's is 1460");
        }
        let most = u32::from(u16::MAX);
        for (key, bytes) in [("packet", self.packet), ("pad", self.pad)] {
            if let Some(bytes) = bytes.filter(|n| *n > most) {
                let message =
                    format!("{bytes} is more than {most}, the most that a length can say");
                wrong.add(&["mobile-tcp", key], message, "");
            }
        }
        for (key, span) in [("tick", self.tick), ("rto", self.rto), ("backoff", self.backoff)] {
            if span.is_some_and(|span| span.0 < Duration::from_millis(1)) {
                let message = "is shorter than 1ms";
                wrong.add(&["mobile-tcp", key], message, "the paper's tick is `200ms`");
            }
        }
    }
}
