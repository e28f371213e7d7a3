//! Traffic that is not TCP's: datagrams at a constant rate, as calls have them, and a paced transfer as QUIC does it.

mod quic;
#[cfg(test)]
mod tests;

use core::net::{Ipv4Addr, SocketAddrV4};

use lasthop_stream::RangeSet;
use lasthop_units::{Bytes, Duration, Time};

use crate::net::host::OutgoingDatagram;
use quic::{Receiver, Sender};

/// What each datagram begins with: what it is, its number, when it was sent, and which piece of data it carries.
const HEAD: usize = 25;
const CONSTANT: u8 = 0;
const DATA: u8 = 1;
const ACK: u8 = 2;

/// What a flow of datagrams is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DatagramWork {
    /// One after another, for ever.
    Constant {
        /// From one to the next.
        every: Duration,
        /// Bytes of payload in each, 25 at least.
        size: Bytes,
    },
    /// As much as will go, as QUIC sends it: CUBIC, paced, with the loss detection of RFC 9002.
    Quic,
}

impl DatagramWork {
    /// Bytes of payload in each datagram of a transfer.
    pub const QUIC_SIZE: Bytes = Bytes::new(quic::SIZE);
}

/// What one end of a flow of datagrams has seen.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct DatagramRecord {
    /// The port of the end that takes them.
    pub port: u16,
    /// This is the end that sends.
    pub sends: bool,
    /// When each was handed in.
    pub sent: Vec<Time>,
    /// When each that came for the first time had been handed in, and how long it was on its way.
    pub arrived: Vec<(Time, Duration)>,
    /// Bytes of payload that came, each piece of data once.
    pub received: Bytes,
    /// Datagrams that came again.
    pub repeated: u64,
    /// Taken for lost by the sender (RFC 9002 section 6.1).
    pub lost: u64,
    /// Expiries of its probe timer (RFC 9002 section 6.2).
    pub timeouts: u64,
}

/// One end.
#[derive(Debug)]
struct End {
    record: DatagramRecord,
    peer: Option<SocketAddrV4>,
    role: Role,
}

#[derive(Debug)]
enum Role {
    Constant { every: Duration, size: usize, next: Time },
    Sending { start: Time, sender: Box<Sender> },
    Taking { seen: RangeSet, pieces: RangeSet, acks: Receiver },
}

/// All ends at one host.
#[derive(Debug, Default)]
pub(super) struct Datagrams(Vec<End>);

impl Datagrams {
    /// Sends to a port of another host, from `at` on. Both ends use the same number.
    pub(super) fn send(&mut self, at: Time, (host, port): (Ipv4Addr, u16), work: DatagramWork) {
        let role = match work {
            DatagramWork::Constant { every, size } => {
                // Whatever was asked for, time goes on.
                let every = every.max(Duration::from_micros(1));
                Role::Constant { every, size: size.as_usize().max(HEAD), next: at }
            }
            DatagramWork::Quic => Role::Sending { start: at, sender: Box::new(Sender::new(at)) },
        };
        let record = DatagramRecord { port, sends: true, ..DatagramRecord::default() };
        self.0.push(End { record, peer: Some(SocketAddrV4::new(host, port)), role });
    }

    /// Takes what comes to a port, and acknowledges what is a transfer's.
    pub(super) fn take(&mut self, port: u16) {
        let role = Role::Taking {
            seen: RangeSet::default(),
            pieces: RangeSet::default(),
            acks: Receiver::default(),
        };
        let record = DatagramRecord { port, ..DatagramRecord::default() };
        self.0.push(End { record, peer: None, role });
    }

    pub(super) fn record(&self, port: u16, sends: bool) -> Option<&DatagramRecord> {
        self.0.iter().map(|end| &end.record).find(|r| r.port == port && r.sends == sends)
    }

    /// Takes a datagram in; whether it is for any of these.
    pub(super) fn handle(
        &mut self,
        now: Time,
        from: SocketAddrV4,
        port: u16,
        bytes: &[u8],
    ) -> bool {
        let Some(end) = self.0.iter_mut().find(|end| end.record.port == port) else { return false };
        let End { record, peer, role } = end;
        match role {
            Role::Sending { sender, .. } => sender.handle(now, bytes, record),
            Role::Constant { .. } => {}
            Role::Taking { seen, pieces, acks } => {
                let Some((kind, number, sent, piece)) = head(bytes) else { return false };
                *peer = Some(from);
                if kind == DATA {
                    acks.handle(now, number);
                }
                if seen.insert(number..number + 1) == 0 {
                    record.repeated += 1;
                    return true;
                }
                record.arrived.push((sent, now.since(sent)));
                let new = pieces.insert(piece..piece + 1);
                record.received += Bytes::new(new * bytes.len() as u64);
            }
        }
        true
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.0.iter().filter_map(|end| end.role.next_timeout()).min()
    }

    pub(super) fn handle_timeout(&mut self, now: Time) {
        for End { record, role, .. } in &mut self.0 {
            if let Role::Sending { start, sender } = role
                && now >= *start
            {
                sender.handle_timeout(now, record);
            }
        }
    }

    /// What is to be sent next.
    pub(super) fn poll(&mut self, now: Time) -> Option<OutgoingDatagram> {
        self.0.iter_mut().find_map(|end| {
            let (to, from) = (end.peer?, end.record.port);
            let bytes = end.role.poll(now, &mut end.record)?;
            Some(OutgoingDatagram { from, to, bytes })
        })
    }
}

impl Role {
    fn next_timeout(&self) -> Option<Time> {
        match self {
            Self::Constant { next, .. } => Some(*next),
            Self::Sending { start, sender } => sender.next_timeout().map(|at| at.max(*start)),
            Self::Taking { acks, .. } => acks.next_timeout(),
        }
    }

    fn poll(&mut self, now: Time, record: &mut DatagramRecord) -> Option<Vec<u8>> {
        match self {
            Self::Constant { every, size, next } => {
                if now < *next {
                    return None;
                }
                *next += *every;
                let number = record.sent.len() as u64;
                record.sent.push(now);
                Some(datagram(CONSTANT, number, now, number, *size))
            }
            Self::Sending { start, sender } => {
                if now < *start {
                    None
                } else {
                    sender.poll(now, record)
                }
            }
            Self::Taking { acks, .. } => acks.poll(now),
        }
    }
}

fn datagram(kind: u8, number: u64, sent: Time, piece: u64, size: usize) -> Vec<u8> {
    let mut bytes = vec![0; size.max(HEAD)];
    bytes[0] = kind;
    bytes[1..9].copy_from_slice(&number.to_be_bytes());
    bytes[9..17].copy_from_slice(&sent.as_nanos().to_be_bytes());
    bytes[17..HEAD].copy_from_slice(&piece.to_be_bytes());
    bytes
}

/// Kind, number, time and piece of a datagram.
fn head(bytes: &[u8]) -> Option<(u8, u64, Time, u64)> {
    let (kind, rest) = bytes.split_first()?;
    let (number, rest) = rest.split_first_chunk()?;
    let (sent, rest) = rest.split_first_chunk()?;
    let (piece, _) = rest.split_first_chunk()?;
    let sent = Time::from_nanos(u64::from_be_bytes(*sent));
    Some((*kind, u64::from_be_bytes(*number), sent, u64::from_be_bytes(*piece)))
}
