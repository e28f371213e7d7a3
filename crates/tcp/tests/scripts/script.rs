//! What a script says, once it is read.

use std::fmt;
use std::time::Duration;

use lasthop_tcp::{Config, Connection, Event, State, Window};
use lasthop_units::{Bytes, LinkEvent, Time};
use lasthop_wire::tcp::{Flags, Segment, Seq};
use thiserror::Error;

/// Initial sequence numbers close to their end, so that every longer script passes it.
pub(crate) const ISS: Seq = Seq(u32::MAX - 2500);
pub(crate) const PEER_ISS: Seq = Seq(u32::MAX - 1500);

/// A line that cannot be read, or that did not come true.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{file}:{line}: {what}")]
pub(crate) struct Fault {
    pub(crate) file: String,
    pub(crate) line: usize,
    pub(crate) what: String,
}

#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) file: String,
    pub(crate) config: Config,
    /// How much earlier or later than stated a segment may come.
    pub(crate) tolerance: Duration,
    pub(crate) lines: Vec<Line>,
}

#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) number: usize,
    pub(crate) at: Time,
    pub(crate) step: Step,
}

#[derive(Debug)]
pub(crate) enum Step {
    Connect,
    Accept,
    /// Connects; the peer answers the SYN after a round trip, with its options mirrored.
    Open {
        rtt: Duration,
        window: u16,
    },
    Write(Bytes),
    Read(Bytes),
    Close,
    Abort,
    Link(LinkEvent),
    BadState,
    Inject(Vec<Shape>),
    Expect(Vec<Shape>),
    ExpectNothing,
    Check(Check),
}

impl Step {
    /// Something goes in, so that all that came out before must have been expected.
    pub(crate) fn is_input(&self) -> bool {
        !matches!(self, Self::Expect(_) | Self::Check(_))
    }
}

/// A segment as a script writes it, with relative sequence numbers.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Shape {
    pub(crate) flags: Flags,
    pub(crate) seq: u32,
    pub(crate) len: u32,
    pub(crate) ack: u32,
    /// Not compared, or as the peer stated last, if absent.
    pub(crate) window: Option<u16>,
    /// Not compared, or none, if absent.
    pub(crate) options: Option<OptionShape>,
    /// What the IP header says of congestion; not compared, or nothing, if absent.
    pub(crate) ecn: Option<Ecn>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ecn {
    Not,
    Ect,
    Ce,
}

pub(crate) const ECN: [(&str, Ecn); 3] =
    [("not-ect", Ecn::Not), ("ect", Ecn::Ect), ("ce", Ecn::Ce)];

#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct OptionShape {
    pub(crate) mss: Option<u16>,
    pub(crate) window_scale: Option<u8>,
    pub(crate) sack_permitted: bool,
    /// Value and echo; any if absent.
    pub(crate) timestamps: Option<(Option<u32>, Option<u32>)>,
    pub(crate) sack: Vec<(u32, u32)>,
    pub(crate) eln: bool,
}

impl Shape {
    /// How a segment that was sent reads in a script.
    pub(crate) fn of(segment: &Segment) -> Self {
        let options = &segment.options;
        let block = |b: &(Seq, Seq)| ((b.0 - PEER_ISS.0).0, (b.1 - PEER_ISS.0).0);
        let acks = segment.flags.contains(Flags::ACK);
        Self {
            flags: segment.flags,
            seq: (segment.seq - ISS.0).0,
            len: segment.len,
            ack: if acks { (segment.ack - PEER_ISS.0).0 } else { 0 },
            window: Some(segment.window),
            options: Some(OptionShape {
                mss: options.mss,
                window_scale: options.window_scale,
                sack_permitted: options.sack_permitted,
                timestamps: options.timestamps.map(|t| (Some(t.value), Some(t.echo))),
                sack: options.sack.as_slice().iter().map(block).collect(),
                eln: options.eln,
            }),
            ecn: None,
        }
    }

    /// `came` is what this expects.
    pub(crate) fn matches(&self, came: &Self) -> bool {
        let pushes = self.flags.contains(Flags::PSH);
        let flags = if pushes { came.flags } else { came.flags.without(Flags::PSH) };
        let same = |a: &Option<u16>, b: &Option<u16>| a.is_none() || a == b;
        flags == self.flags
            && (self.seq, self.len, self.ack) == (came.seq, came.len, came.ack)
            && same(&self.window, &came.window)
            && (self.ecn.is_none() || self.ecn == came.ecn)
            && match (&self.options, &came.options) {
                (Some(wanted), Some(came)) => wanted.matches(came),
                _ => true,
            }
    }
}

impl OptionShape {
    fn matches(&self, came: &Self) -> bool {
        let any = |wanted: Option<u32>, came: Option<u32>| wanted.is_none() || wanted == came;
        let stamps = match (self.timestamps, came.timestamps) {
            (Some(wanted), Some(came)) => any(wanted.0, came.0) && any(wanted.1, came.1),
            (wanted, came) => wanted == came,
        };
        stamps
            && Self { timestamps: None, ..self.clone() }
                == Self { timestamps: None, ..came.clone() }
    }
}

pub(crate) const FLAGS: [(char, Flags); 8] = [
    ('S', Flags::SYN),
    ('F', Flags::FIN),
    ('R', Flags::RST),
    ('P', Flags::PSH),
    ('A', Flags::ACK),
    ('U', Flags::URG),
    ('E', Flags::ECE),
    ('C', Flags::CWR),
];

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (letter, flag) in FLAGS {
            if self.flags.contains(flag) {
                write!(f, "{letter}")?;
            }
        }
        write!(f, " {}:{}", self.seq, self.seq.wrapping_add(self.len))?;
        if self.flags.contains(Flags::ACK) {
            write!(f, " ack {}", self.ack)?;
        }
        if let Some(window) = self.window {
            write!(f, " win {window}")?;
        }
        if let Some((name, _)) = ECN.iter().find(|(_, ecn)| self.ecn == Some(*ecn)) {
            write!(f, " {name}")?;
        }
        match &self.options {
            Some(options) => write!(f, " <{options}>"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for OptionShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let any = |n: Option<u32>| n.map_or("*".to_owned(), |n| n.to_string());
        let mut parts = Vec::new();
        parts.extend(self.mss.map(|mss| format!("mss {mss}")));
        parts.extend(self.window_scale.map(|shift| format!("ws {shift}")));
        parts.extend(self.sack_permitted.then(|| "sackOK".to_owned()));
        parts.extend(self.timestamps.map(|(v, e)| format!("TS {} ecr {}", any(v), any(e))));
        if !self.sack.is_empty() {
            let blocks: Vec<_> = self.sack.iter().map(|(a, b)| format!("{a}:{b}")).collect();
            parts.push(format!("sack {}", blocks.join(" ")));
        }
        parts.extend(self.eln.then(|| "eln".to_owned()));
        f.write_str(&parts.join(", "))
    }
}

/// What a `=` line claims.
#[derive(Debug)]
pub(crate) enum Check {
    State(State),
    Recovering(bool),
    /// Exactly these happened since the last such line.
    Events(Vec<Event>),
    Size(&'static Quantity<Bytes>, Window),
    Span(&'static Quantity<Option<Duration>>, Option<Duration>),
    Count(&'static Quantity<u64>, u64),
}

/// Something that can be read off a connection, by name.
pub(crate) struct Quantity<T> {
    pub(crate) name: &'static str,
    pub(crate) of: fn(&Connection, Time) -> T,
}

impl<T> fmt::Debug for Quantity<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

pub(crate) static SIZES: [Quantity<Bytes>; 8] = [
    Quantity { name: "cwnd", of: |c, _| c.probe().cwnd },
    Quantity { name: "ssthresh", of: |c, _| c.probe().ssthresh },
    Quantity { name: "flight", of: |c, _| c.probe().flight },
    Quantity { name: "peer-window", of: |c, _| c.probe().snd_wnd },
    Quantity { name: "window", of: |c, _| c.probe().rcv_wnd },
    Quantity { name: "segment", of: |c, _| c.segment_size() },
    Quantity { name: "readable", of: |c, _| c.readable() },
    Quantity { name: "acknowledged", of: |c, _| c.acknowledged() },
];

pub(crate) static SPANS: [Quantity<Option<Duration>>; 4] = [
    Quantity { name: "rto", of: |c, _| Some(c.probe().rto) },
    Quantity { name: "srtt", of: |c, _| c.probe().srtt },
    Quantity { name: "rttvar", of: |c, _| Some(c.probe().rttvar) },
    Quantity { name: "timer", of: Connection::retransmission_due_in },
];

pub(crate) static COUNTS: [Quantity<u64>; 11] = [
    Quantity { name: "timeouts", of: |c, _| c.stats().timeouts },
    Quantity { name: "retransmits", of: |c, _| c.stats().retransmits },
    Quantity { name: "fast-retransmits", of: |c, _| c.stats().fast_retransmits },
    Quantity { name: "dupacks", of: |c, _| u64::from(c.probe().dupacks) },
    Quantity { name: "samples", of: |c, _| c.stats().rtt_samples },
    Quantity { name: "probes", of: |c, _| c.stats().window_probes_sent },
    Quantity { name: "zero-windows", of: |c, _| c.stats().zero_windows },
    Quantity { name: "challenges", of: |c, _| c.stats().challenge_acks_sent },
    Quantity { name: "echo-cuts", of: |c, _| c.stats().echo_cuts },
    Quantity { name: "spared", of: |c, _| c.stats().spared_losses },
    Quantity { name: "discarded", of: |c, _| c.stats().dupacks_discarded },
];

pub(crate) const STATES: [(&str, State); 10] = [
    ("closed", State::Closed),
    ("syn-sent", State::SynSent),
    ("syn-received", State::SynReceived),
    ("established", State::Established),
    ("fin-wait-1", State::FinWait1),
    ("fin-wait-2", State::FinWait2),
    ("close-wait", State::CloseWait),
    ("closing", State::Closing),
    ("last-ack", State::LastAck),
    ("time-wait", State::TimeWait),
];

pub(crate) const EVENTS: [(&str, Event); 6] = [
    ("connected", Event::Connected),
    ("peer-finished", Event::PeerFinished),
    ("finished", Event::Finished),
    ("reset", Event::Reset),
    ("gave-up", Event::GaveUp),
    ("closed", Event::Closed),
];
