//! Packets between a TUN device and the lanes of associations: what is not TCP, or all.

mod config;
mod sorting;

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use lasthop_control::TunReport;
use lasthop_hop::{OutgoingPacket, PacketError, PacketLane};
use lasthop_kernel::packet_tun::PacketTun;
use lasthop_kernel::reactor::{Interest, Reactor};
use lasthop_kernel::transparent::Tunnel;
use lasthop_kernel::turn::Source;
use lasthop_units::Time;
use lasthop_wire::packet::{self, IcmpError, Packet};

pub use config::{BaseTunConfig, BaseTunFile, MobileTunConfig, MobileTunFile};
pub use sorting::{ClassName, PacketRule};
pub(crate) use sorting::{OWN, PacketRules, Sorting, Worth, client, flow_ends};

/// Reads of the device in one turn; what is left waits for the next.
const READS_MAX: usize = 32;
/// Errors that may be answered in a second (RFC 1812 section 4.3.2.8, RFC 4443 section 2.4 (f)).
const ERRORS_PER_SECOND: u32 = 100;
/// The longest packet of an ICMP error.
const ERROR_MAX: usize = 1280;

/// What is done with a packet.
pub(crate) enum Verdict {
    /// It goes on.
    Passed,
    /// It is dropped and counted under this name.
    Refused(&'static str),
    /// It is too, and its sender is told.
    Answered(&'static str, IcmpError),
}

/// A TUN device, or one queue of it.
pub(crate) struct TunWay {
    device: PacketTun,
    /// Where ICMP errors come from, of IPv4 and IPv6.
    own: Vec<IpAddr>,
    sorting: Sorting,
    refused: BTreeMap<&'static str, u64>,
    /// When the present second began, and how many errors were answered in it.
    errors: (Time, u32),
    /// Errors to be given to the device.
    answers: Vec<Vec<u8>>,
    /// A packet that is to be marked.
    marked: Vec<u8>,
    /// What leads packets to the device; with the first queue.
    _tunnel: Option<Tunnel>,
}

impl TunWay {
    /// Uses a queue of a device. `own` are the addresses that ICMP errors come from.
    pub(crate) fn new(
        device: PacketTun,
        own: Vec<IpAddr>,
        sorting: Sorting,
        tunnel: Option<Tunnel>,
    ) -> Self {
        Self {
            device,
            own,
            sorting,
            refused: BTreeMap::new(),
            errors: (Time::ZERO, 0),
            answers: Vec::new(),
            marked: Vec::new(),
            _tunnel: tunnel,
        }
    }

    /// Watches for packets.
    pub(crate) fn watch(&self, reactor: &mut Reactor<Source>) -> io::Result<()> {
        reactor.add(&self.device, Interest::ReadInShares, Source::Tun).map(drop)
    }

    /// How packets are sorted.
    pub(crate) fn sorting(&self) -> &Sorting {
        &self.sorting
    }

    /// Hands what has come to the device to `send`, which says what was done with it.
    pub(crate) fn receive(&mut self, now: Time, mut send: impl FnMut(&Packet, &[u8]) -> Verdict) {
        let Self { device, refused, errors, answers, .. } = self;
        let mut each = |bytes: &[u8]| {
            let verdict = match Packet::inspect(bytes) {
                Ok(packet) => send(&packet, bytes),
                Err(bad) => Verdict::Refused(bad.name()),
            };
            if let Some(error) = count(refused, verdict)
                && let Some(answer) = error_about(now, errors, &[], error, bytes)
            {
                answers.push(answer);
            }
        };
        for _ in 0..READS_MAX {
            match device.receive(&mut each) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    tracing::debug!(%error, "reading the TUN device");
                    break;
                }
            }
        }
        for answer in self.answers.drain(..) {
            self.device.send(&answer);
        }
    }

    /// Hands what has come by a lane to the device, where `admits` lets it pass, up to the first that is no
    /// IP packet.
    pub(crate) fn deliver(
        &mut self,
        now: Time,
        lane: &mut PacketLane,
        mut admits: impl FnMut(&Packet) -> Verdict,
    ) {
        while let Some((bytes, ce)) = lane.front().filter(|(bytes, _)| is_ip(bytes)) {
            let inspected = Packet::inspect(bytes);
            let verdict = match &inspected {
                Ok(packet) => admits(packet),
                Err(bad) => Verdict::Refused(bad.name()),
            };
            let passed = matches!(verdict, Verdict::Passed);
            if passed && ce {
                self.marked.clear();
                self.marked.extend_from_slice(bytes);
                packet::mark_ce(&mut self.marked);
                self.device.send(&self.marked);
            } else if passed {
                self.device.send(bytes);
            }
            let error = count(&mut self.refused, verdict);
            let answer =
                error.and_then(|e| error_about(now, &mut self.errors, &self.own, e, bytes));
            lane.pop();
            if let Some(answer) = answer
                && let Ok(packet) = Packet::inspect(&answer)
            {
                // What does not fit is as good as lost.
                let to = (packet.destination(), Worth::default());
                let _ = send(now, &self.sorting, lane, &packet, &answer, to);
            }
        }
    }

    /// Counts what came of a packet that did not come by the device: nobody is told of an error.
    pub(crate) fn count(&mut self, verdict: Verdict) {
        count(&mut self.refused, verdict);
    }

    /// Hands the kernel what was delivered.
    pub(crate) fn flush(&mut self) {
        self.device.flush();
    }

    /// What went through so far.
    pub(crate) fn report(&self) -> TunReport {
        let counts = self.device.counts();
        let mut refused: BTreeMap<String, u64> =
            self.refused.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        for (name, count) in [("kernel", counts.refused), ("unfinished", counts.unfinished)] {
            if count > 0 {
                refused.insert(name.to_owned(), count);
            }
        }
        let name = self.device.name().to_owned();
        let (from_kernel, to_kernel) = (counts.received, counts.sent);
        TunReport { name, from_kernel, to_kernel, refused, ..TunReport::default() }
    }
}

/// Whether a packet of a lane is one of IP, rather than a record of a UDP socket: by its version.
pub(crate) fn is_ip(bytes: &[u8]) -> bool {
    matches!(bytes.first().map(|first| first >> 4), Some(4 | 6))
}

/// Puts a packet into an association's lane; `host` is the one at the mobile whose packet it is, and `worth` what is said of
/// its flow.
pub(crate) fn send(
    now: Time,
    sorting: &Sorting,
    lane: &mut PacketLane,
    packet: &Packet,
    data: &[u8],
    (host, worth): (IpAddr, Worth),
) -> Verdict {
    let longest = lane.longest();
    let outgoing = OutgoingPacket {
        client: sorting.client(host).into(),
        flow: sorting.flow(packet),
        ecn_capable: packet.is_ect(),
        class: sorting.class(packet, data.len(), host, worth),
        data,
    };
    match lane.send(now, &outgoing) {
        Ok(()) => Verdict::Passed,
        Err(PacketError::NoMemory) => Verdict::Refused("memory"),
        Err(PacketError::BadLength(..)) => {
            let mtu = u16::try_from(longest).unwrap_or(u16::MAX);
            Verdict::Answered("too long", IcmpError::TooBig { mtu })
        }
    }
}

/// Counts what is refused: the error that its sender is to be told of.
fn count(refused: &mut BTreeMap<&'static str, u64>, verdict: Verdict) -> Option<IcmpError> {
    let (name, error) = match verdict {
        Verdict::Passed => return None,
        Verdict::Refused(name) => (name, None),
        Verdict::Answered(name, error) => (name, Some(error)),
    };
    *refused.entry(name).or_default() += 1;
    error
}

/// The ICMP error about a packet, where there may be one and there were not too many.
fn error_about(
    now: Time,
    (since, answered): &mut (Time, u32),
    own: &[IpAddr],
    error: IcmpError,
    of: &[u8],
) -> Option<Vec<u8>> {
    if now.since(*since) >= Duration::from_secs(1) {
        (*since, *answered) = (now, 0);
    }
    if *answered >= ERRORS_PER_SECOND {
        return None;
    }
    *answered += 1;
    let packet = Packet::inspect(of).ok()?;
    // A host takes no packet from an address of its own: where none else is known, whom the packet was for speaks.
    let from = own.iter().copied().find(|ip| ip.is_ipv4() == packet.source().is_ipv4());
    let mut answer = vec![0; ERROR_MAX];
    let from = from.unwrap_or_else(|| packet.destination());
    let length = packet::icmp_error(error, of, from, &mut answer)?;
    answer.truncate(length);
    Some(answer)
}
