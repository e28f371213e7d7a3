//! The scenarios that both simulators run. The keys of options are those of the Tcl scripts.

use lasthop_units::{Bytes, Duration, Rate};
use serde::Deserialize;

use crate::options::{OptionError, Options};

/// Which answer to loss the sender has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
pub enum Sender {
    /// `Agent/TCP`.
    Tahoe,
    /// `Agent/TCP/Reno`.
    Reno,
    /// `Agent/TCP/Newreno`.
    NewReno,
    /// `Agent/TCP/Sack1`, with its sink.
    Sack,
}

impl Sender {
    /// What ns-2 calls it.
    pub const fn ns2_name(self) -> &'static str {
        match self {
            Self::Tahoe => "Tahoe",
            Self::Reno => "Reno",
            Self::NewReno => "Newreno",
            Self::Sack => "Sack1",
        }
    }
}

/// Which network a scenario has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Topology {
    /// Fixed host, base, mobile router, mobile: obtcp-2010's, with losses on its last two links.
    Chain,
    /// The same with snoop at the base.
    Snoop,
    /// A last hop that is silent once in a cycle.
    Outage,
    /// A last hop that fades.
    Fade,
}

impl Topology {
    /// The name of its script, without `.tcl`.
    pub const fn script(self) -> &'static str {
        match self {
            Self::Chain => "chain",
            Self::Snoop => "snoop",
            Self::Outage => "outage",
            Self::Fade => "fade",
        }
    }
}

/// One saturating flow over one network.
#[derive(Clone, PartialEq, Debug)]
pub struct Scenario {
    /// How long it lasts.
    pub time: Duration,
    /// The flow.
    pub flow: Flow,
    /// The network.
    pub network: Network,
}

/// A saturating flow, as ns-2's one-way agents have it.
#[derive(Clone, PartialEq, Debug)]
pub struct Flow {
    /// The answer to loss.
    pub sender: Sender,
    /// Payload of each segment.
    pub payload: u16,
    /// Segments in the receiver's window.
    pub window: u32,
    /// Segments in the first congestion window.
    pub first_window: u32,
    /// Segments in the first slow-start threshold; the window if none.
    pub ssthresh: Option<u32>,
    /// The least retransmission timeout.
    pub min_rto: Duration,
    /// The greatest.
    pub max_rto: Duration,
    /// The clock that round trips are measured with.
    pub tick: Duration,
}

/// Which snoop of ours stands beside ns-2's.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Snoop {
    /// As ns-2's: it acts on the second duplicate, and its timer is what the `pin` of the options
    /// says, or grows as ns-2's own does.
    #[default]
    Alike,
    /// With the defaults of `lasthop-agent`.
    Usual,
}

/// The networks' own parameters.
#[derive(Clone, PartialEq, Debug)]
pub enum Network {
    /// See [`Topology::Chain`].
    Chain(Chain),
    /// See [`Topology::Outage`].
    Outage(Outage),
    /// See [`Topology::Fade`].
    Fade(Fade),
}

/// Losses on a wireless hop between base and mobile router.
#[derive(Clone, PartialEq, Debug)]
pub struct Chain {
    /// Packets that a queue holds.
    pub queue: u32,
    /// Delay from base to mobile router.
    pub d1: Duration,
    /// Delay from mobile router to mobile.
    pub d2: Duration,
    /// The share of packets lost on the first.
    pub p1: f64,
    /// The share of packets lost on the second.
    pub p2: f64,
    /// Acknowledgements are lost too.
    pub both: bool,
    /// The mean length of a burst of losses on the first.
    pub burst: f64,
    /// The agent at the base, if there is one.
    pub snoop: Option<SnoopAt>,
}

/// A snoop, and ns-2's timer beside it.
#[derive(Clone, PartialEq, Debug)]
pub struct SnoopAt {
    /// Which of ours.
    pub which: Snoop,
    /// At what ns-2's timer is held; none if it goes as it goes.
    pub pin: Option<Duration>,
}

/// A last hop that loses whatever arrives during an outage.
#[derive(Clone, PartialEq, Debug)]
pub struct Outage {
    /// Packets that a queue holds.
    pub queue: u32,
    /// Round trip without queues.
    pub rtt: Duration,
    /// Mean length of an outage.
    pub outage: Duration,
    /// Its length is uniform between 1 - spread and 1 + spread times the mean.
    pub spread: f64,
    /// From one cycle to the next.
    pub cycle: Duration,
    /// The earliest start within a cycle.
    pub first: Duration,
    /// How much later it may be.
    pub jitter: Duration,
    /// The mobile sends.
    pub from_mobile: bool,
}

/// A last hop that fades in clock time.
#[derive(Clone, PartialEq, Debug)]
pub struct Fade {
    /// Packets that a queue holds.
    pub queue: u32,
    /// Its rate.
    pub rate: Rate,
    /// The share of time in fades.
    pub share: f64,
    /// Their mean length.
    pub fade: Duration,
}

impl Scenario {
    /// What a topology's script would run with these options.
    ///
    /// # Errors
    ///
    /// An option is unknown to the topology, or out of its range.
    pub fn new(
        topology: Topology,
        sender: Sender,
        snoop: Snoop,
        mut options: Options,
    ) -> Result<Self, OptionError> {
        let o = &mut options;
        let (time, network, window, ssthresh, payload, min_rto) = match topology {
            Topology::Chain | Topology::Snoop => {
                let ssthresh = o.count("ssthresh", 10)?;
                let chain = match topology {
                    Topology::Snoop => Chain::with_snoop(o, snoop)?,
                    _ => Chain::new(o)?,
                };
                (2000.0, Network::Chain(chain), 16, Some(ssthresh), 1000, 0.3)
            }
            Topology::Outage => (500.0, Network::Outage(Outage::new(o)?), 20, None, 1000, 0.2),
            Topology::Fade => (1000.0, Network::Fade(Fade::new(o)?), 11, None, 1460, 0.2),
        };
        let payload = o.count("payload", payload)?;
        let flow = Flow {
            sender,
            payload: u16::try_from(payload).map_err(|_| OptionError::Value {
                key: "payload",
                found: f64::from(payload),
                expected: "a payload below 65536 bytes",
            })?,
            window: o.count("window", window)?,
            first_window: o.count("first_window", 2)?,
            ssthresh,
            min_rto: o.seconds("min_rto", min_rto)?,
            max_rto: o.seconds("max_rto", 60.0)?,
            tick: o.seconds("tick", 0.01)?,
        };
        let time = o.seconds("time", time)?;
        options.finish()?;
        Ok(Self { time, flow, network })
    }
}

impl Flow {
    /// The receiver's window.
    pub fn window_bytes(&self) -> Bytes {
        Bytes::new(u64::from(self.window) * u64::from(self.payload))
    }
}

impl Chain {
    fn new(o: &mut Options) -> Result<Self, OptionError> {
        Ok(Self {
            queue: o.count("queue", 100)?,
            d1: o.millis("d1", 20.0)?,
            d2: o.millis("d2", 20.0)?,
            p1: o.share("p1", 0.0)?,
            p2: o.share("p2", 0.0001)?,
            both: o.flag("both")?,
            burst: o.number("burst", 1.0)?,
            snoop: None,
        })
    }

    fn with_snoop(o: &mut Options, which: Snoop) -> Result<Self, OptionError> {
        let pin = Some(o.millis("pin", 0.0)?).filter(|pin| !pin.is_zero());
        Ok(Self { snoop: Some(SnoopAt { which, pin }), ..Self::new(o)? })
    }
}

impl Outage {
    fn new(o: &mut Options) -> Result<Self, OptionError> {
        Ok(Self {
            queue: o.count("queue", 50)?,
            rtt: o.millis("rtt", 5.0)?,
            outage: o.seconds("outage", 1.0)?,
            spread: o.share("spread", 0.0)?,
            cycle: o.seconds("cycle", 10.0)?,
            first: o.seconds("first", 4.0)?,
            jitter: o.seconds("jitter", 2.0)?,
            from_mobile: o.flag("from_mobile")?,
        })
    }
}

impl Fade {
    fn new(o: &mut Options) -> Result<Self, OptionError> {
        Ok(Self {
            queue: o.count("queue", 50)?,
            rate: Rate::from_bps(o.number("rate", 0.66e6)? as u64),
            share: o.share("share", 0.01)?,
            fade: o.seconds("fade", 0.017)?,
        })
    }
}
