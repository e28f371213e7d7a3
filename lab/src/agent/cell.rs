//! One cell of the table that puts kernels beside the simulator: a scheme's agents help a kernel's
//! transfer over the league's network, and every byte is checked.

use std::collections::BTreeMap;
use std::path::Path as FilePath;
use std::thread;
use std::time::Instant;

use lasthop_kernel::netns::Netns;
use lasthop_radio::{Errors, LinkConfig, LinkStats, Loss, QueueLimit, RadioConfig};
use lasthop_units::{Bytes, Duration, Placement, Rate, Seed};

use super::helper;
use super::path::{Behind, Path, Settings};
use super::placement;
use super::script::{Gap, Script};
use super::sender::{self, Sender};
use crate::arrivals::Received;
use crate::client::{Client, Stop, Via};
use crate::error::LabError;
use crate::http;
use crate::topology::{Family, link};
use crate::transfer::{Direction, ENDLESS, Ended, Transfer};

/// How long agents may take to start, and the first byte to come.
const PATIENCE: Duration = Duration::from_secs(20);
/// The headers that the limit does not count, and the full packet that they are part of.
const HEADERS: f64 = 40.0;

/// What the hop is like: the league's conditions.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Hop {
    /// It loses nothing.
    Clean,
    /// A second of silence in each ten, of which agents hear 250 ms ahead.
    Gaps,
    /// A mobile router with a second hop, 11 Mbit/s and 5 ms; both lose with this probability.
    TwoHops(f64),
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct Cell {
    /// The network and its kernels; the seed is that of the run.
    pub path: Settings,
    /// The agents.
    pub agents: Vec<Placement>,
    /// Which way.
    pub direction: Direction,
    /// By which addresses.
    pub family: Family,
    /// When the first radio is silent, from the first byte on.
    pub gaps: Vec<Gap>,
    /// How long after the first byte the measured part begins.
    pub settle: Duration,
    /// How long the measured part lasts, with the silences in it.
    pub measured: Duration,
}

impl Cell {
    /// The league's network with this scheme and sender, measured from the first byte on; none if no
    /// agent of the scheme acts from the path of this network. Congestion coherence gets ECN, without
    /// which it would take every loss for the radio's.
    pub fn league(scheme: &str, sender: Sender, hop: Hop, measured: Duration) -> Option<Self> {
        let agents = placement::of(scheme)?;
        if scheme == "obtcp" && !matches!(hop, Hop::TwoHops(_)) {
            return None;
        }
        // Every scheme meets the same bridges.
        let (radio, behind, gaps) = match hop {
            Hop::Clean => (cellular(), Behind::Edge, Vec::new()),
            Hop::Gaps => (cellular(), Behind::Edge, gaps(measured)),
            Hop::TwoHops(loss) => {
                let second = RadioConfig::both(lossy(wlan(), loss));
                (lossy(cellular(), loss), Behind::Router(Box::new(second)), Vec::new())
            }
        };
        let path = Settings {
            wire: Some(RadioConfig::both(wire())),
            radio: Some(RadioConfig::both(radio)),
            behind,
            sender: Sender { ecn: sender.ecn || scheme == "congestion-coherence", ..sender },
            ..Settings::default()
        };
        Some(Self {
            path,
            agents,
            direction: Direction::Download,
            family: Family::V4,
            gaps,
            settle: Duration::ZERO,
            measured,
        })
    }
}

fn wire() -> LinkConfig {
    link(Rate::from_mbps(100), Duration::from_millis(20), 200)
}

fn cellular() -> LinkConfig {
    marking(link(Rate::from_mbps(2), Duration::from_millis(20), 25))
}

fn wlan() -> LinkConfig {
    marking(link(Rate::from_mbps(11), Duration::from_millis(5), 50))
}

fn marking(link: LinkConfig) -> LinkConfig {
    LinkConfig { ecn_mark: Some(QueueLimit::Packets(10)), ..link }
}

fn lossy(link: LinkConfig, loss: f64) -> LinkConfig {
    LinkConfig { losses: vec![Loss::lose(Errors::Uniform(loss))], ..link }
}

/// The middle of the league's spread: 7.5 s after the start and then every 10 s.
fn gaps(measured: Duration) -> Vec<Gap> {
    let lasting = Duration::from_secs(1);
    let lead = Some(Duration::from_millis(250));
    (0..)
        .map(|n| Gap { at: Duration::from_millis(7500 + 10_000 * n), lasting, lead })
        .take_while(|gap| gap.end() < measured)
        .collect()
}

/// What was measured.
#[derive(Clone, Default, Debug)]
pub struct Figures {
    /// New bytes at the receiver over the time in which the radio was there.
    pub goodput: Rate,
    /// The first radio's rate without headers of 40 bytes, less what the hops lost.
    pub limit: Rate,
    /// Packets lost by the hops over packets that they transmitted, data direction.
    pub loss: f64,
    /// Retransmission timeouts of the sender's kernel.
    pub timeouts: u64,
    /// Segments that the sender's kernel sent again.
    pub retransmitted: u64,
    /// What the first radio did, data direction.
    pub radio: LinkStats,
    /// How late a link let its packets go, 99 of 100 of them at most; of several the latest. A machine
    /// that has too much to do makes other links than were asked for.
    pub late: Duration,
    /// What each agent counts.
    pub counters: Vec<BTreeMap<String, u64>>,
    /// Bytes received in all, before the measured part too.
    pub total: Bytes,
    /// Whether those bytes are the bytes that were sent.
    pub is_right: bool,
    /// What arrived when.
    pub received: Received,
}

impl Figures {
    /// Goodput over limit.
    pub fn share_of_limit(&self) -> f64 {
        self.goodput.as_bps() as f64 / self.limit.as_bps().max(1) as f64
    }
}

/// Carries out a cell with the `lasthop` command at `program`, until it is done or `stop` is set. The
/// same seed gives links the same random numbers.
///
/// # Errors
///
/// The network could not be built, an agent ended, the connection broke, or `stop` was set.
pub fn measure(
    cell: &Cell,
    seed: Seed,
    program: &FilePath,
    stop: &Stop,
) -> Result<Figures, LabError> {
    let path = Path::start(&Settings { seed, ..cell.path.clone() })?;
    let mut helpers = helper::start_all(&path, &cell.agents, program, PATIENCE)?;
    let content = seed.child("content");
    let server = http::start(&path.fixed, path.server_address(cell.family), content)?;
    let Settings { sender, mtu, .. } = cell.path;
    let window = sender.window.map(|packets| sender::bytes(packets, mtu));
    let client = Client::new(&path.mobile, Via::Direct, server.address()).with_window(window);
    let transfer = Transfer::start(&server, &client, cell.direction, ENDLESS, PATIENCE)?;
    let script = Script::new(&cell.gaps, &helpers);
    let observed = observe(cell, &path, &transfer, &script, || match stop.is_set() {
        true => Err(LabError::Stopped),
        false => helpers.iter_mut().try_for_each(|helper| helper.daemon.check()),
    });
    let (observed, ended) = transfer.end(observed)?;
    let counters = helpers.iter().map(|h| h.report().map(|r| r.counters));
    let counters = counters.collect::<Result<_, _>>()?;
    let sender = match cell.direction {
        Direction::Download => &path.fixed,
        Direction::Upload => &path.mobile,
    };
    let (timeouts, retransmitted) = retransmissions(sender)?;
    let links = [&path.wire, &path.radio, &path.second].into_iter().flatten();
    let late =
        links.map(|link| link.control.fresh_snapshot().lateness.p99).max().unwrap_or_default();
    let figures = evaluate(cell, &observed, ended);
    Ok(Figures { timeouts, retransmitted, late, counters, ..figures })
}

/// What was seen of the measured part.
struct Observed {
    first: Instant,
    from: Instant,
    to: Instant,
    /// Of the hops that are radios, the first one first.
    hops: Vec<LinkStats>,
}

fn observe(
    cell: &Cell,
    path: &Path,
    transfer: &Transfer,
    script: &Script,
    mut check: impl FnMut() -> Result<(), LabError>,
) -> Result<Observed, LabError> {
    let first = transfer.first_byte_while(&mut check)?;
    let hops: Vec<_> = [&path.radio, &path.second].into_iter().flatten().collect();
    let enough = Stop::default();
    thread::scope(|scope| {
        let playing = scope.spawn(|| match &path.radio {
            Some(radio) => script.play(radio, first, &enough),
            None => Ok(()),
        });
        let mut observed = || {
            transfer.until_while(first + cell.settle, &mut check)?;
            hops.iter().for_each(|hop| hop.control.reset_stats());
            let from = Instant::now();
            transfer.until_while(from + cell.measured, &mut check)?;
            let to = Instant::now();
            let direction = cell.direction.on_radio();
            let hops = hops.iter().map(|hop| hop.stats(direction)).collect();
            Ok(Observed { first, from, to, hops })
        };
        let observed = observed();
        enough.set();
        match playing.join() {
            Ok(played) => played.and(observed),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

fn evaluate(cell: &Cell, observed: &Observed, ended: Ended) -> Figures {
    let Ended { received, is_right } = ended;
    let Observed { first, from, to, hops } = observed;
    let (from, to) = (*from, *to);
    let silent: Duration = cell
        .gaps
        .iter()
        .map(|gap| {
            let (fell, returned) = ((*first + gap.at).max(from), (*first + gap.end()).min(to));
            returned.saturating_duration_since(fell)
        })
        .sum();
    let passed: f64 = hops.iter().map(|hop| 1.0 - hop.loss()).product();
    let rate =
        cell.path.radio.as_ref().and_then(|radio| crate::cell::radio_rate(radio, cell.direction));
    let mtu = f64::from(cell.path.mtu);
    let limit = rate.unwrap_or(Rate::UNLIMITED).scale(passed * (mtu - HEADERS) / mtu);
    Figures {
        goodput: Rate::of(received.between(from, to), (to - from).saturating_sub(silent)),
        limit,
        loss: 1.0 - passed,
        radio: hops.first().copied().unwrap_or_default(),
        total: received.total(),
        is_right,
        received,
        ..Figures::default()
    }
}

/// Timeouts, and segments sent again, of all connections of a host since it was made.
///
/// # Errors
///
/// The kernel's counters cannot be read.
pub fn retransmissions(host: &Netns) -> Result<(u64, u64), LabError> {
    let read = |file: &str| {
        let path = format!("/proc/thread-self/net/{file}");
        host.enter(|| std::fs::read_to_string(path))?
            .map_err(|e| LabError::io("reading the kernel's counters", e))
    };
    let timeouts = counter(&read("netstat")?, "TcpExt:", "TCPTimeouts");
    let segments = counter(&read("snmp")?, "Tcp:", "RetransSegs");
    Ok((timeouts.unwrap_or(0), segments.unwrap_or(0)))
}

/// A counter of a table that has a line of names and one of values for each protocol.
fn counter(table: &str, protocol: &str, name: &str) -> Option<u64> {
    let mut lines = table.lines().filter(|line| line.starts_with(protocol));
    let (names, values) = (lines.next()?, lines.next()?);
    let mut pairs = names.split_ascii_whitespace().zip(values.split_ascii_whitespace());
    pairs.find(|(n, _)| *n == name)?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_by_their_names() {
        let table = "TcpExt: A TCPTimeouts B\nTcpExt: 1 22 3\nIpExt: X\nIpExt: 9\n";
        assert_eq!(counter(table, "TcpExt:", "TCPTimeouts"), Some(22));
        assert_eq!(counter(table, "TcpExt:", "C"), None);
        assert_eq!(counter("", "TcpExt:", "A"), None);
    }

    #[test]
    fn the_leagues_cells_are_valid_and_obtcp_needs_two_hops() {
        let measured = Duration::from_secs(30);
        for hop in [Hop::Clean, Hop::Gaps, Hop::TwoHops(0.05)] {
            let cell = Cell::league("snoop", Sender::CUBIC, hop, measured).unwrap();
            let radio = cell.path.radio.unwrap();
            assert_eq!((radio.up.validate(), radio.down.validate()), (Ok(()), Ok(())));
            let obtcp = Cell::league("obtcp", Sender::CUBIC, hop, measured);
            assert_eq!(obtcp.is_some(), matches!(hop, Hop::TwoHops(_)));
        }
        assert!(Cell::league("srp", Sender::CUBIC, Hop::Clean, measured).is_none());
        assert_eq!(gaps(measured).len(), 3);
    }

    #[test]
    fn silences_in_the_measured_part_do_not_count() {
        let first = Instant::now();
        let at = |ms| first + Duration::from_millis(ms);
        let measured = Duration::from_secs(10);
        let mut cell = Cell::league("none", Sender::RENO_32, Hop::Clean, measured).unwrap();
        let second = Duration::from_secs(1);
        cell.gaps = vec![Gap { at: second * 4, lasting: second, lead: None }];
        let mut received = Received::default();
        (0..100).for_each(|n| received.take(at(n * 100), &[0; 9000]));
        let observed = Observed { first, from: at(0), to: at(10_000), hops: Vec::new() };
        let figures = evaluate(&cell, &observed, Ended::new(received, Seed::from_u64(1)));
        assert_eq!(figures.goodput, Rate::from_bps(100 * 9000 * 8 / 9));
        assert_eq!(figures.limit, Rate::from_bps(1_946_666));
        assert!(!figures.is_right);
    }
}
