//! What a scenario says about TCP end points.

use std::time::Duration;

use lasthop_radio::Span;
use lasthop_tcp::{Algorithm, ShrunkWindow, Window};
use lasthop_units::{Bytes, parse_duration};
use serde::{Deserialize, Deserializer, de};

use super::complaint::Complaints;

/// The largest buffer of an end point, as large as TCP's largest window (RFC 7323 section 2.3).
pub const MOST_BUFFER: Bytes = Bytes::from_mib(1024);

/// The largest buffer of a surrogate: its bytes exist, and take memory.
pub const MOST_HELD: Bytes = Bytes::from_mib(64);

/// The `[tcp]` table. What stands in it directly holds for every end point (`all` here); a table
/// of a group takes precedence.
#[derive(Clone, PartialEq, Default, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct TcpGroups {
    /// Every end point.
    pub(crate) all: TcpSettings,
    /// Applications on fixed hosts.
    pub(crate) fixed: TcpSettings,
    /// Applications on mobile hosts.
    pub(crate) mobile: TcpSettings,
    /// A surrogate's wired half.
    pub(crate) wired: TcpSettings,
    /// Both ends of the hop, where TCP crosses it.
    pub(crate) hop: TcpSettings,
}

/// How a TCP end point behaves. What is not said is left to the end point's own defaults.
#[derive(Clone, PartialEq, Default, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct TcpSettings {
    /// The stack whose parameters are taken wherever nothing else is said.
    pub stack: Option<Stack>,
    /// The answer to loss.
    pub variant: Option<Algorithm>,
    /// The largest segment sent and announced, without headers. By default the link's MTU decides.
    pub mss: Option<u32>,
    /// The congestion window at the start.
    pub initial_window: Option<Window>,
    /// The congestion window's ceiling.
    pub max_window: Option<Window>,
    /// The slow start threshold at the start.
    pub initial_ssthresh: Option<Window>,
    /// The retransmission timer before there is a round trip to go by.
    pub initial_rto: Option<Span>,
    /// The shortest retransmission timer.
    pub min_rto: Option<Span>,
    /// The longest retransmission timer.
    pub max_rto: Option<Span>,
    /// The granularity of the clock that round trips are measured with.
    pub tick: Option<Span>,
    /// Timers fire on ticks only, as BSD's do.
    pub timers_on_ticks: Option<bool>,
    /// The connection is given up after this many expiries of the retransmission timer in a row;
    /// 0 is never.
    pub give_up_after: Option<u32>,
    /// How long an acknowledgement may wait for more to acknowledge.
    pub delayed_ack: Option<DelayedAck>,
    /// Segments in sequence that one acknowledgement answers.
    pub ack_every: Option<u32>,
    /// Selective acknowledgements (RFC 2018) are offered.
    pub sack: Option<bool>,
    /// Time stamps (RFC 7323) are offered.
    pub timestamps: Option<bool>,
    /// Window scaling (RFC 7323) is offered.
    pub window_scale: Option<bool>,
    /// Small segments wait for acknowledgements (Nagle).
    pub nagle: Option<bool>,
    /// The receive buffer, and so the window announced.
    pub receive_buffer: Option<Window>,
    /// The send buffer.
    pub send_buffer: Option<Window>,
    /// The first two duplicate acknowledgements each let out a new segment (RFC 3042).
    pub limited_transmit: Option<bool>,
    /// What happens when the window closes on outstanding data (RENO-9).
    pub shrunk_window: Option<ShrunkWindow>,
    /// Explicit congestion notification (RFC 3168) is offered.
    pub ecn: Option<bool>,
    /// A sender believes loss notifications on acknowledgements (SNP-10).
    pub eln: Option<bool>,
}

impl TcpSettings {
    /// These settings where they say something, `base` elsewhere.
    #[must_use]
    pub fn over(&self, base: &Self) -> Self {
        macro_rules! or_else {
            ($($key:ident)+) => { Self { $($key: self.$key.or(base.$key)),+ } };
        }
        or_else! {
            stack variant mss initial_window max_window initial_ssthresh initial_rto min_rto max_rto
            tick timers_on_ticks give_up_after delayed_ack ack_every sack timestamps window_scale nagle
            receive_buffer send_buffer limited_transmit shrunk_window ecn eln
        }
    }

    /// Complains about values that no end point can have; `path` leads to this table.
    pub(crate) fn check(&self, path: &[&str], complaints: &mut Complaints) {
        let mut at = |key: &str, message: String, remedy: &str| {
            let path: Vec<&str> = path.iter().copied().chain([key]).collect();
            complaints.add(&path, message, remedy);
        };
        if let Some(mss) = self.mss.filter(|mss| !(8..=65_495).contains(mss)) {
            at("mss", format!("{mss} is not between 8 and 65495 bytes"), "536 and 1460 are usual");
        }
        if self.ack_every == Some(0) {
            at("ack-every", "0 would acknowledge nothing".into(), "2 is usual, 1 answers each");
        }
        for (key, window) in [
            ("initial-window", self.initial_window),
            ("max-window", self.max_window),
            ("initial-ssthresh", self.initial_ssthresh),
            ("receive-buffer", self.receive_buffer),
            ("send-buffer", self.send_buffer),
        ] {
            if window.is_some_and(|w| w.bytes(1) == Bytes::ZERO) {
                at(key, "nothing could ever be sent".into(), "give one segment or more");
            }
        }
        let (most, reason) = match path.last() {
            Some(&"hop" | &"wired") => (MOST_HELD, "64 MiB, the most that a surrogate can hold"),
            _ => (MOST_BUFFER, "1 GiB, the largest window that TCP has"),
        };
        let mss = self.mss.unwrap_or(1460);
        for (key, buffer) in
            [("receive-buffer", self.receive_buffer), ("send-buffer", self.send_buffer)]
        {
            if buffer.is_some_and(|b| b.bytes(mss) > most) {
                at(key, format!("is more than {reason}"), "`4MiB` is much already");
            }
        }
        for (key, span) in
            [("initial-rto", self.initial_rto), ("min-rto", self.min_rto), ("tick", self.tick)]
        {
            if span.is_some_and(|s| s.0.is_zero() || s.0 > Duration::from_secs(3600)) {
                at(key, "is not above zero and at most an hour".into(), "see docs/scenarios.md");
            }
        }
        if let (Some(min), Some(max)) = (self.min_rto, self.max_rto)
            && min.0 > max.0
        {
            let message = format!("{:?} is shorter than min-rto, {:?}", max.0, min.0);
            at("max-rto", message, "raise it, or lower min-rto");
        }
    }
}

/// A stack whose parameters are known.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize)]
pub enum Stack {
    /// What a current system does: CUBIC, SACK, time stamps, window scaling.
    #[default]
    #[serde(rename = "modern")]
    Modern,
    /// A BSD-derived TCP of the early 1990s: Tahoe, 500 ms ticks, 4 kB buffers (RENO-12).
    #[serde(rename = "bsd-1990s")]
    Bsd1990s,
    /// The one-way agents of ns-2 with its own defaults.
    #[serde(rename = "ns2")]
    Ns2,
}

/// How long an acknowledgement may wait (RENO-7).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DelayedAck {
    /// Every segment is acknowledged at once.
    Off,
    /// As long as this.
    After(Duration),
}

impl<'de> Deserialize<'de> for DelayedAck {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        if text == "off" {
            return Ok(Self::Off);
        }
        parse_duration(&text).map(Self::After).map_err(|_| {
            de::Error::custom(format!("`{text}` is not `off` or a time such as `200ms`"))
        })
    }
}
