//! Packets in at one end, and those that come out at the other.

use std::os::fd::AsFd;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use lasthop_kernel::netns::Netns;
use lasthop_kernel::offload::{HEADER_LENGTH, NOTHING_LEFT};
use lasthop_kernel::packet_socket::PacketSocket;
use lasthop_lab::agent::path::HOST_IF;
use lasthop_units::Duration;
use lasthop_wire::ip::{Addresses, Header, Protocol};
use lasthop_wire::tcp::{Flags, Segment, Seq};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::cores::{RECEIVES, SENDS, pin};

/// Ethernet frames without their checksum: the shortest, and the longest of an MTU of 1500.
pub(super) const SMALL: usize = 60;
pub(super) const FULL: usize = 1514;

/// Nobody's address, in the middle of the hosts': the far interface counts the frame and drops it.
const TO: [u8; 6] = [2, 0, 0, 0, 0, 0xee];
const FROM: [u8; 6] = [2, 0, 0, 0, 0, 0xdd];
const HEADERS: usize = 14 + 20 + 20;

/// Time between packets whose delay is measured.
const GAP: Duration = Duration::from_micros(500);
/// A packet that has not come after this time is lost.
const LATE: Duration = Duration::from_millis(500);
/// What is on its way when the last packet was sent may arrive.
const DRAIN: Duration = Duration::from_millis(100);

/// What became of a load.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// Packets that arrived while it was offered.
    pub(super) arrived: u64,
    /// How long that was.
    pub(super) took: Duration,
}

/// Time on the way, in µs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delays {
    pub(super) median: f64,
    pub(super) p99: f64,
}

/// A frame of so many bytes with a header for the packet socket before it.
fn frame(size: usize, number: u32) -> Result<Vec<u8>> {
    let between = Addresses::new([10, 0, 1, 1].into(), [10, 0, 1, 3].into())?;
    let payload = vec![0; size - HEADERS];
    let segment = Segment {
        src_port: 5001,
        dst_port: 5002,
        seq: Seq(number),
        flags: Flags::ACK,
        window: 500,
        len: payload.len() as u32,
        ..Segment::default()
    };
    let mut out = [&NOTHING_LEFT[..], &TO, &FROM, &[8, 0]].concat();
    Header::new(between, Protocol::TCP).emit(size - 34, &mut out)?;
    segment.emit(&between, &payload, &mut out)?;
    Ok(out)
}

fn open(host: &Netns, name: &str) -> Result<PacketSocket> {
    Ok(host.enter(|| PacketSocket::open(name))??)
}

/// From one host to the other, offers frames of `size` bytes at `rate` a second for `span`.
pub(super) fn offer(
    [near, far]: [&Netns; 2],
    size: usize,
    rate: f64,
    span: Duration,
) -> Result<Load> {
    let socket = open(near, HOST_IF)?;
    let frame = frame(size, 0)?;
    let received = || received(far);
    let before = received()?;
    let took = thread::scope(|scope| {
        let sender = scope.spawn(|| -> Result<Duration> {
            pin(None, SENDS)?;
            let began = Instant::now();
            let mut sent = 0_u64;
            loop {
                let elapsed = began.elapsed();
                if elapsed >= span {
                    return Ok(elapsed);
                }
                while (sent as f64) < elapsed.as_secs_f64() * rate {
                    // What does not fit into the interface is lost there.
                    let _ = send(&socket, &frame, SendFlags::DONTWAIT);
                    sent += 1;
                    if sent.is_multiple_of(64) && began.elapsed() >= span {
                        break;
                    }
                }
            }
        });
        sender.join().unwrap_or_else(|_| bail!("the sender panicked"))
    })?;
    let arrived = received()? - before;
    thread::sleep(DRAIN);
    Ok(Load { arrived, took })
}

/// Packets that have come to the mobile's interface so far.
fn received(host: &Netns) -> Result<u64> {
    let text = host.enter(|| std::fs::read_to_string("/proc/thread-self/net/dev"))??;
    let line = text.lines().find_map(|line| line.trim().strip_prefix(HOST_IF)?.strip_prefix(':'));
    let field = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
    field.context("the interface has no counters")
}

/// Sends `count` small packets one by one from one host to the other and looks how long each takes.
/// The receiver asks without end: it need not be woken.
pub(super) fn delays([near, far]: [&Netns; 2], count: u32) -> Result<Delays> {
    let (near, far) = (open(near, HOST_IF)?, open(far, HOST_IF)?);
    let (sent, arrived) = thread::scope(|scope| {
        let receiver = scope.spawn(|| arrivals(&far, count));
        let sender = scope.spawn(|| one_by_one(&near, count));
        let sent = sender.join().unwrap_or_else(|_| bail!("the sender panicked"));
        let arrived = receiver.join().unwrap_or_else(|_| bail!("the receiver panicked"));
        anyhow::Ok((sent?, arrived?))
    })?;
    let mut took: Vec<f64> = sent
        .iter()
        .zip(&arrived)
        .filter_map(|(sent, arrived)| Some(arrived.as_ref()?.duration_since(*sent)))
        .map(|took| took.as_secs_f64() * 1e6)
        .collect();
    if took.len() * 10 < sent.len() * 9 {
        bail!("{} of {count} packets crossed", took.len());
    }
    took.sort_by(f64::total_cmp);
    let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize];
    Ok(Delays { median: at(0.5), p99: at(0.99) })
}

/// Sends packets with their number, and tells when each was sent.
fn one_by_one(socket: &PacketSocket, count: u32) -> Result<Vec<Instant>> {
    pin(None, SENDS)?;
    let mut sent = Vec::with_capacity(count as usize);
    for number in 0..count {
        let frame = frame(100, number)?;
        let began = Instant::now();
        sent.push(began);
        // One that is not taken is missed at the other end.
        let _ = send(socket, &frame, SendFlags::DONTWAIT);
        thread::sleep(GAP.saturating_sub(began.elapsed()));
    }
    Ok(sent)
}

/// When each of the packets came.
fn arrivals(socket: &PacketSocket, count: u32) -> Result<Vec<Option<Instant>>> {
    pin(None, RECEIVES)?;
    let mut arrived = vec![None; count as usize];
    let mut buffer = [0; 2048];
    let mut latest = Instant::now();
    let number = HEADER_LENGTH + 14 + 20 + 4;
    while arrived.iter().any(Option::is_none) && latest.elapsed() < LATE {
        match recv(socket.as_fd(), &mut buffer[..], RecvFlags::DONTWAIT) {
            Ok((length, _)) => {
                let now = Instant::now();
                let frame = &buffer[..length];
                let ours = frame.get(HEADER_LENGTH..HEADER_LENGTH + 6) == Some(&TO);
                let field = frame.get(number..number + 4).filter(|_| ours);
                let Some(field) = field.and_then(|bytes| bytes.first_chunk()) else { continue };
                if let Some(place) = arrived.get_mut(u32::from_be_bytes(*field) as usize) {
                    place.get_or_insert(now);
                    latest = now;
                }
            }
            Err(Errno::WOULDBLOCK | Errno::INTR) => std::hint::spin_loop(),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(arrived)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_whole_and_as_long_as_asked_for() {
        for size in [SMALL, 100, FULL] {
            let frame = frame(size, 7).unwrap();
            assert_eq!(frame.len(), HEADER_LENGTH + size);
            let (header, packet) = Header::parse(&frame[HEADER_LENGTH + 14..]).unwrap();
            let (segment, payload) = Segment::parse(&header.addresses, packet).unwrap();
            assert_eq!((segment.seq, payload.len()), (Seq(7), size - HEADERS));
        }
    }
}
