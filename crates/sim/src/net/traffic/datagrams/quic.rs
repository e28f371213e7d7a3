//! A transfer as QUIC does it (RFC 9002): each datagram has a number of its own, what is lost is sent again under
//! another, and the window is that of CUBIC as the `tcp` crate has it (RFC 9438). It is endless, so that no end of a
//! flight is special, and it has no handshake: the first round trip is measured by the first datagrams.

use std::collections::{BTreeMap, VecDeque};

use lasthop_stream::RangeSet;
use lasthop_tcp::LossBase;
use lasthop_tcp::response::{AckFacts, Cubic, Response, Windows};
use lasthop_units::{Duration, Time};

use super::{ACK, DATA, DatagramRecord, datagram};

/// Bytes of payload in each datagram: with headers 1280, what every path is expected to pass.
pub(super) const SIZE: u64 = 1252;
/// The first window, in datagrams (RFC 9002 section 7.2).
const INITIAL: u64 = 10;
/// Datagrams behind one that tell that it is lost (section 6.1.1).
const PACKET_THRESHOLD: u64 = 3;
/// No timer is finer (section 6.1.2).
const GRANULARITY: Duration = Duration::from_millis(1);
/// The round trip before there is a sample (section 6.2.2).
const INITIAL_RTT: Duration = Duration::from_millis(333);
/// How long an acknowledgement may be put off (RFC 9000 section 18.2).
const ACK_DELAY_MAX: Duration = Duration::from_millis(25);
/// Acknowledged at the latest with every so many datagrams (RFC 9000 section 13.2.2).
const ACK_EVERY: u32 = 2;
/// Silences of so many probe timers are persistent congestion (section 7.6.1).
const PERSISTENT: u32 = 3;
/// Ranges that an acknowledgement names.
const RANGES: usize = 32;
/// Pacing is faster than the window by this (section 7.7), and lets so many datagrams make up for lost time.
const PACE: f64 = 1.25;
const PACE_BURST: u32 = 2;

/// A datagram that is on its way.
#[derive(Clone, Copy, Debug)]
struct Sent {
    at: Time,
    piece: u64,
}

/// The end that sends.
#[derive(Debug)]
pub(super) struct Sender {
    cubic: Cubic,
    windows: Windows,
    next_number: u64,
    sent: BTreeMap<u64, Sent>,
    largest_acked: Option<u64>,
    srtt: Option<Duration>,
    rttvar: Duration,
    least: Duration,
    latest: Duration,
    /// When the oldest that is overtaken counts as lost.
    loss_at: Option<Time>,
    last_sent: Time,
    probes: u32,
    expiries: u32,
    /// What was sent before is no further sign of congestion (section 7.3.2).
    recovery: Option<Time>,
    next_piece: u64,
    lost: VecDeque<u64>,
    paced: Time,
}

impl Sender {
    pub(super) fn new(at: Time) -> Self {
        Self {
            cubic: Cubic::default(),
            windows: Windows {
                cwnd: INITIAL * SIZE,
                ssthresh: u64::MAX,
                max: 1 << 30,
                initial: INITIAL * SIZE,
                mss: SIZE,
                // RFC 9002 sections 7.3.2 and 7.6.2 go by the window.
                base: LossBase::Window,
            },
            next_number: 0,
            sent: BTreeMap::new(),
            largest_acked: None,
            srtt: None,
            rttvar: INITIAL_RTT / 2,
            least: Duration::MAX,
            latest: Duration::ZERO,
            loss_at: None,
            last_sent: at,
            probes: 0,
            expiries: 0,
            recovery: None,
            next_piece: 0,
            lost: VecDeque::new(),
            paced: at,
        }
    }

    fn flight(&self) -> u64 {
        self.sent.len() as u64 * SIZE
    }

    fn srtt(&self) -> Duration {
        self.srtt.unwrap_or(INITIAL_RTT)
    }

    fn has_room(&self) -> bool {
        self.flight() + SIZE <= self.windows.cwnd
    }

    /// The probe timeout without doublings (section 6.2.1).
    fn probe_timeout(&self) -> Duration {
        self.srtt() + (4 * self.rttvar).max(GRANULARITY) + ACK_DELAY_MAX
    }

    fn probe_at(&self) -> Option<Time> {
        let wait = self.probe_timeout() * (1 << self.expiries.min(10));
        (!self.sent.is_empty()).then_some(self.last_sent + wait)
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        let send = self.has_room().then_some(self.paced);
        self.loss_at.or(self.probe_at()).into_iter().chain(send).min()
    }

    pub(super) fn handle_timeout(&mut self, now: Time, record: &mut DatagramRecord) {
        if let Some(at) = self.loss_at {
            if at <= now {
                self.find_losses(now, record);
            }
        } else if self.probe_at().is_some_and(|at| at <= now) {
            record.timeouts += 1;
            self.expiries += 1;
            self.probes = 2;
        }
    }

    pub(super) fn poll(&mut self, now: Time, record: &mut DatagramRecord) -> Option<Vec<u8>> {
        if self.probes > 0 {
            self.probes -= 1;
        } else if !self.has_room() || now < self.paced {
            return None;
        }
        let piece = self.lost.pop_front().unwrap_or_else(|| {
            self.next_piece += 1;
            self.next_piece - 1
        });
        let number = self.next_number;
        self.next_number += 1;
        self.sent.insert(number, Sent { at: now, piece });
        self.last_sent = now;
        record.sent.push(now);
        if let Some(srtt) = self.srtt {
            let each = srtt.mul_f64(SIZE as f64 / (self.windows.cwnd as f64 * PACE));
            self.paced = self.paced.max(now - each * PACE_BURST) + each;
        }
        Some(datagram(DATA, number, now, piece, SIZE as usize))
    }

    fn facts(&self, now: Time, acked: u64, flight: u64) -> AckFacts {
        let cwnd = self.windows.cwnd;
        AckFacts {
            now,
            acked,
            flight,
            window: cwnd,
            // A paced sender may be a few datagrams short of its window although that limits it.
            limited: flight + u64::from(PACE_BURST + 1) * SIZE >= cwnd || self.windows.slow_start(),
            srtt: self.srtt(),
            repeated: self.expiries > 1,
        }
    }

    /// Takes an acknowledgement.
    pub(super) fn handle(&mut self, now: Time, bytes: &[u8], record: &mut DatagramRecord) {
        let Some((largest, delay, ranges)) = acknowledgement(bytes) else { return };
        let flight = self.flight();
        let (mut acked, mut sample) = (0, None);
        for (first, last) in ranges {
            let numbers: Vec<u64> = self.sent.range(first..=last).map(|(n, _)| *n).collect();
            for number in numbers {
                let Some(sent) = self.sent.remove(&number) else { continue };
                if number == largest {
                    sample = Some(now.since(sent.at));
                }
                if self.recovery.is_none_or(|start| sent.at > start) {
                    acked += SIZE;
                }
            }
        }
        if self.flight() == flight {
            return;
        }
        self.largest_acked = self.largest_acked.max(Some(largest));
        if let Some(sample) = sample {
            self.measure(sample, delay);
        }
        self.expiries = 0;
        // All that is acknowledged counts (RFC 9002 section 7.3.1), not two segments at most as for TCP.
        while acked > 0 {
            let facts = self.facts(now, acked.min(2 * SIZE), flight);
            self.cubic.on_ack(&mut self.windows, &facts);
            acked -= facts.acked;
        }
        self.find_losses(now, record);
    }

    /// Takes a round trip into account (section 5.3).
    fn measure(&mut self, sample: Duration, delay: Duration) {
        self.latest = sample;
        self.least = self.least.min(sample);
        let delay = delay.min(ACK_DELAY_MAX);
        let adjusted = if sample >= self.least + delay { sample - delay } else { sample };
        let Some(srtt) = self.srtt else {
            (self.srtt, self.rttvar) = (Some(sample), sample / 2);
            return;
        };
        self.rttvar = (3 * self.rttvar + srtt.abs_diff(adjusted)) / 4;
        self.srtt = Some((7 * srtt + adjusted) / 8);
    }

    /// What is lost by number or by time (section 6.1), and what that means for the window.
    fn find_losses(&mut self, now: Time, record: &mut DatagramRecord) {
        self.loss_at = None;
        let Some(largest) = self.largest_acked else { return };
        let (flight, wait) =
            (self.flight(), (self.srtt().max(self.latest) * 9 / 8).max(GRANULARITY));
        let mut gone: Vec<(u64, Sent)> = Vec::new();
        for (number, sent) in self.sent.range(..largest) {
            if number + PACKET_THRESHOLD <= largest || sent.at + wait <= now {
                gone.push((*number, *sent));
            } else {
                let at = sent.at + wait;
                self.loss_at = Some(self.loss_at.map_or(at, |earliest| earliest.min(at)));
            }
        }
        for (number, sent) in &gone {
            self.sent.remove(number);
            self.lost.push_back(sent.piece);
        }
        record.lost += gone.len() as u64;
        let (Some((first, oldest)), Some((last, newest))) = (gone.first(), gone.last()) else {
            return;
        };
        if self.recovery.is_some_and(|start| newest.at <= start) {
            return;
        }
        let facts = self.facts(now, 0, flight);
        let whole = last - first + 1 == gone.len() as u64;
        if whole && newest.at.since(oldest.at) > self.probe_timeout() * PERSISTENT {
            self.cubic.on_timeout(&mut self.windows, &facts);
        } else {
            self.cubic.on_loss(&mut self.windows, &facts);
        }
        // The least window (section 7.2).
        self.windows.cwnd = self.windows.cwnd.max(2 * SIZE);
        self.recovery = Some(now);
    }
}

/// The end that takes a transfer, and acknowledges every second datagram, and at once what is out of order.
#[derive(Debug, Default)]
pub(super) struct Receiver {
    got: RangeSet,
    largest: Option<(u64, Time)>,
    waiting: u32,
    due: Option<Time>,
}

impl Receiver {
    pub(super) fn handle(&mut self, now: Time, number: u64) {
        let next = self.largest.map_or(0, |(largest, _)| largest + 1);
        if number >= next {
            self.largest = Some((number, now));
        }
        self.got.insert(number..number + 1);
        if self.got.fragments() > 4 * RANGES
            && let Some(first) = self.got.first()
        {
            self.got.remove(first);
        }
        self.waiting += 1;
        let at_once = self.waiting >= ACK_EVERY || number != next;
        let due = if at_once { now } else { now + ACK_DELAY_MAX };
        self.due = Some(self.due.map_or(due, |at| at.min(due)));
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.due
    }

    /// An acknowledgement that is due.
    pub(super) fn poll(&mut self, now: Time) -> Option<Vec<u8>> {
        let (largest, at) = self.largest.filter(|_| self.due.is_some_and(|due| due <= now))?;
        (self.due, self.waiting) = (None, 0);
        let mut bytes = vec![ACK];
        bytes.extend(largest.to_be_bytes());
        bytes.extend((now.since(at).as_micros() as u64).to_be_bytes());
        for range in self.got.iter().rev().take(RANGES) {
            bytes.extend(range.start.to_be_bytes());
            bytes.extend((range.end - 1).to_be_bytes());
        }
        Some(bytes)
    }
}

/// Numbers from the first to the last.
type Ranges = Vec<(u64, u64)>;

/// The highest number, the delay and the ranges of an acknowledgement.
fn acknowledgement(bytes: &[u8]) -> Option<(u64, Duration, Ranges)> {
    let (kind, rest) = bytes.split_first()?;
    let mut numbers =
        rest.chunks_exact(8).filter_map(|n| Some(u64::from_be_bytes(n.try_into().ok()?)));
    let (largest, delay) = (numbers.next()?, Duration::from_micros(numbers.next()?));
    let numbers: Vec<u64> = numbers.collect();
    let ranges = numbers.chunks_exact(2).map(|range| (range[0], range[1])).collect();
    (*kind == ACK).then_some((largest, delay, ranges))
}
