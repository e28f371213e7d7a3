//! A call beside transfers: 50 packets a second of 160 bytes, as G.711 makes them, and what the one who listens gets.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::panic;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use lasthop_kernel::netns::Netns;

use crate::cell::{Plan, start_with_packets};
use crate::client::{Client, Stop};
use crate::error::LabError;
use crate::http;
use crate::scheme::{PACKET_ADDRESSES, Scheme};
use crate::talk::Pace;
use crate::topology::{Family, Lab};
use crate::transfer::{ENDLESS, Transfer};

/// G.711's.
const CALL: Pace = Pace { every: Duration::from_millis(20), length: 160 };
/// What has not come so long after the last packet was sent is lost.
const LAST: Duration = Duration::from_secs(2);
const PORT: u16 = 5004;

/// What became of a call's packets.
#[derive(Clone, Default, Debug)]
pub struct Call {
    /// Packets sent.
    pub sent: u64,
    /// How long each took that came, the shortest first.
    delays: Vec<Duration>,
}

impl Call {
    /// Packets that did not come.
    pub fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.delays.len() as u64)
    }

    /// The share of packets that did not come.
    pub fn residual_loss(&self) -> f64 {
        self.lost() as f64 / self.sent.max(1) as f64
    }

    /// The delay, one way, that so many per mille of those that came did not exceed.
    pub fn delay(&self, per_mille: usize) -> Option<Duration> {
        let last = self.delays.len().checked_sub(1)?;
        self.delays.get((self.delays.len() * per_mille / 1000).min(last)).copied()
    }
}

/// Makes a call of `plan.measured` across `plan`'s topology, beside a download by its scheme.
///
/// # Errors
///
/// As [`measure`](crate::cell::measure).
pub fn call(plan: &Plan, program: &Path, stop: &Stop) -> Result<Call, LabError> {
    let lab = Lab::start(&plan.topology)?;
    let mut carrier = start_with_packets(plan, &lab, program)?;
    let seed = plan.topology.seed.child("content");
    let server = http::start(&lab.fixed, lab.server_address(plan.family), seed)?;
    let client = Client::new(&lab.mobile, carrier.via(), server.address());
    let bulk = Transfer::start(&server, &client, plan.direction, ENDLESS, plan.patience)?;
    let listener = match plan.scheme {
        Scheme::Srp => own(plan.family),
        _ => lab.mobile_address(plan.family),
    };
    let mut run = || {
        let check = || match stop.is_set() {
            true => Err(LabError::Stopped),
            false => carrier.check(),
        };
        let first = bulk.first_byte_while(check)?;
        bulk.until_while(first + plan.settle, || Ok(()))?;
        let at = SocketAddr::new(listener, PORT);
        talk((&lab.fixed, &lab.mobile), at, CALL, (Duration::ZERO, plan.measured), stop)
    };
    let called = run();
    Ok(bulk.end(called)?.0)
}

/// A call both ways between a fixed host, at this address of its own, and a mobile whose packets go by lasthop, for so
/// long or until `stop` is set; both directions together.
pub(crate) fn both(
    (fixed, mobile): (Netns, Netns),
    server: IpAddr,
    family: Family,
    lasting: Duration,
    stop: &Stop,
) -> Result<Call, LabError> {
    let at = |host| SocketAddr::new(host, PORT);
    let (up, down) = thread::scope(|scope| {
        let up = scope
            .spawn(|| talk((&mobile, &fixed), at(server), CALL, (Duration::ZERO, lasting), stop));
        let down = talk((&fixed, &mobile), at(own(family)), CALL, (Duration::ZERO, lasting), stop);
        (up.join().unwrap_or_else(|panic| panic::resume_unwind(panic)), down)
    });
    let (mut call, down) = (up?, down?);
    call.sent += down.sent;
    call.delays.extend(down.delays);
    call.delays.sort_unstable();
    Ok(call)
}

/// Datagrams at this pace from one host to this address of the other: what became of those sent in the second span, after
/// the first.
pub(crate) fn datagrams(
    hosts: (&Netns, &Netns),
    to: IpAddr,
    pace: Pace,
    spans: (Duration, Duration),
) -> Result<Call, LabError> {
    talk(hosts, SocketAddr::new(to, PORT), pace, spans, &Stop::default())
}

/// The mobile's address for packets.
fn own(family: Family) -> IpAddr {
    let [v4, v6] = PACKET_ADDRESSES;
    let text = if family == Family::V4 { v4 } else { v6 };
    text.parse().unwrap_or(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED))
}

/// Sends packets from one host to an address of the other, for as long as both spans or until `stop` is set; those of the
/// first are not counted.
fn talk(
    (from, to): (&Netns, &Netns),
    at: SocketAddr,
    pace: Pace,
    (settle, lasting): (Duration, Duration),
    stop: &Stop,
) -> Result<Call, LabError> {
    let any = if at.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let io = |e| LabError::io("a call's socket", e);
    pace.check().map_err(io)?;
    let listener = to.enter(|| UdpSocket::bind(at))?.map_err(io)?;
    let speaker = from.enter(|| UdpSocket::bind(any))?.map_err(io)?;
    listener.set_read_timeout(Some(Duration::from_millis(50))).map_err(io)?;
    let (start, over) = (Instant::now(), Stop::default());
    let first = (settle.as_nanos() / pace.every.as_nanos()) as u64;
    let (mut sent, mut delays) = (0_u64, Vec::new());
    thread::scope(|scope| {
        let heard = scope.spawn(|| listen(&listener, (first, pace.length), start, &over));
        let mut packet = vec![0; pace.length];
        while start.elapsed() < settle + lasting && !stop.is_set() {
            let now = start.elapsed().as_nanos() as u64;
            packet[..8].copy_from_slice(&now.to_be_bytes());
            packet[8..16].copy_from_slice(&sent.to_be_bytes());
            // A queue on the way that is full is as good as a loss.
            let _ = speaker.send_to(&packet, at);
            sent += 1;
            let next = start + pace.every * sent as u32;
            thread::sleep(next.saturating_duration_since(Instant::now()));
        }
        if !stop.is_set() {
            thread::sleep(LAST);
        }
        over.set();
        delays = heard.join().unwrap_or_default();
    });
    delays.sort_unstable();
    Ok(Call { sent: sent.saturating_sub(first), delays })
}

/// How long each packet of this length took that came, from the `first` on, none counted twice.
fn listen(
    listener: &UdpSocket,
    (first, length): (u64, usize),
    start: Instant,
    over: &Stop,
) -> Vec<Duration> {
    let (mut delays, mut seen) = (Vec::new(), std::collections::HashSet::new());
    let mut packet = vec![0; length + 1];
    while !over.is_set() {
        if listener.recv(&mut packet).ok() != Some(length) {
            continue;
        }
        let now = start.elapsed();
        let number =
            |at: usize| packet[at..at + 8].iter().fold(0_u64, |n, byte| n << 8 | u64::from(*byte));
        if number(8) >= first && seen.insert(number(8)) {
            delays.push(now.saturating_sub(Duration::from_nanos(number(0))));
        }
    }
    delays
}
