//! Numbered datagrams in at one host, and those that come out at another.

use std::io::{ErrorKind, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Result, anyhow, bail};
use lasthop_kernel::netns::Netns;
use lasthop_units::Duration;
use quinn_udp::{RecvMeta, Transmit, UdpSocketState};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::peer::packet_tunnel::bind;

/// Headers of IPv4 and UDP.
pub(super) const HEADERS: usize = 28;
/// Where datagrams go.
const PORT: u16 = 9000;
/// So many are on their way at most.
const WINDOW: u64 = 512;
/// Who has to wait looks again after so long.
const PAUSE: Duration = Duration::from_micros(50);
/// What has not come by then, and nothing after it, is lost.
const LATE: Duration = Duration::from_millis(100);
/// How long a way may take until a first datagram crosses.
const PATIENCE: Duration = Duration::from_secs(20);
/// Left out at the start.
const SETTLE: Duration = Duration::from_millis(1500);
const BUFFERS: usize = 16;
const BUFFER: usize = 64 << 10;

/// What is offered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// The length of a packet in bytes, headers of IP and UDP included.
    pub(super) size: usize,
    /// Datagrams that a call hands to the kernel in one piece (`UDP_SEGMENT`).
    pub(super) together: usize,
    /// Flows, which send in turn.
    pub(super) flows: usize,
}

/// What has happened up to a moment.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Seen {
    /// Datagrams that arrived.
    pub(super) arrived: u64,
    /// The number after the highest of them: as many were sent before.
    pub(super) sent: u64,
}

/// What one thread tells the other.
#[derive(Default)]
struct Shared {
    arrived: AtomicU64,
    next: AtomicU64,
    stop: AtomicBool,
}

impl Shared {
    fn seen(&self) -> Seen {
        Seen {
            sent: self.next.load(Ordering::Acquire),
            arrived: self.arrived.load(Ordering::Acquire),
        }
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Has `load` cross from one host to an address of the other without end while `measure` runs, which can ask what has
/// been seen so far. No more is on its way than [`WINDOW`]: what arrives sets the pace.
pub(super) fn carry<T>(
    [near, far]: [&Netns; 2],
    to: IpAddr,
    load: Load,
    measure: impl FnOnce(&dyn Fn() -> Seen) -> Result<T>,
) -> Result<T> {
    let sink = far.enter(|| open(PORT))??;
    let flows = near.enter(|| (0..load.flows).map(|_| open(0)).collect::<Result<Vec<_>>>())??;
    let shared = Shared::default();
    thread::scope(|scope| {
        let receiver = scope.spawn(|| receive(&sink, &shared));
        let sender = scope.spawn(|| send(&flows, SocketAddr::new(to, PORT), load, &shared));
        let result = first(&shared).and_then(|()| {
            thread::sleep(SETTLE);
            measure(&|| shared.seen())
        });
        shared.stop.store(true, Ordering::Relaxed);
        for thread in [receiver, sender] {
            thread.join().map_err(|_| anyhow!("a thread panicked"))??;
        }
        result
    })
}

/// Waits until something has arrived.
fn first(shared: &Shared) -> Result<()> {
    let began = Instant::now();
    while shared.seen().arrived == 0 {
        if began.elapsed() > PATIENCE {
            bail!("no packet crossed within {PATIENCE:?}");
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

type Socket = (UdpSocket, UdpSocketState);

fn open(port: u16) -> Result<Socket> {
    bind((Ipv4Addr::UNSPECIFIED, port).into())
}

fn send(flows: &[Socket], destination: SocketAddr, load: Load, shared: &Shared) -> Result<()> {
    let length = load.size - HEADERS;
    let mut contents = vec![0; length * load.together];
    // The number of the next, and of the one up to which none is waited for any more.
    let (mut next, mut settled) = (0, 0);
    let mut heard = (0, Instant::now());
    for (socket, state) in flows.iter().cycle() {
        while next + load.together as u64 > settled + WINDOW {
            if shared.is_over() {
                return Ok(());
            }
            let arrived = shared.next.load(Ordering::Acquire);
            if arrived > heard.0 {
                heard = (arrived, Instant::now());
                settled = settled.max(arrived);
            } else if heard.1.elapsed() > LATE {
                heard.1 = Instant::now();
                settled = next;
            } else {
                thread::sleep(PAUSE);
            }
        }
        for (datagram, number) in contents.chunks_mut(length).zip(next..) {
            datagram[..8].copy_from_slice(&u64::to_be_bytes(number));
        }
        next += load.together as u64;
        let segment_size = (load.together > 1).then_some(length);
        let transmit =
            Transmit { destination, ecn: None, contents: &contents, segment_size, src_ip: None };
        match state.try_send(socket.into(), &transmit) {
            Ok(()) => {}
            // What the kernel does not take, or a router says cannot go on, is lost as any other.
            Err(error) if error.kind() == ErrorKind::InvalidInput => return Err(error.into()),
            Err(_) => thread::sleep(PAUSE),
        }
    }
    Ok(())
}

fn receive((socket, state): &Socket, shared: &Shared) -> Result<()> {
    let mut buffers = vec![vec![0; BUFFER]; BUFFERS];
    let wait = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
    while !shared.is_over() {
        let mut metas = [RecvMeta::default(); BUFFERS];
        let mut pieces: Vec<_> = buffers.iter_mut().map(|b| IoSliceMut::new(b)).collect();
        let Ok(n) = state.recv(socket.into(), &mut pieces, &mut metas) else {
            let mut fds = [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)];
            // A signal only makes it look earlier.
            let _ = poll(&mut fds, Some(&wait));
            continue;
        };
        let (mut arrived, mut next) = (0, 0);
        for (meta, buffer) in metas[..n].iter().zip(&buffers) {
            for datagram in buffer[..meta.len].chunks(meta.stride.max(1)) {
                let number = datagram.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
                next = next.max(number + 1);
                arrived += 1;
            }
        }
        shared.arrived.fetch_add(arrived, Ordering::Release);
        shared.next.fetch_max(next, Ordering::Release);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_is_counted_at_the_other_end() {
        let here = Netns::current().unwrap();
        let load = Load { size: 128, together: 8, flows: 3 };
        let seen =
            carry([&here, &here], Ipv4Addr::LOCALHOST.into(), load, |seen| Ok(seen())).unwrap();
        assert!(seen.arrived > 1000 && seen.sent + WINDOW >= seen.arrived, "{seen:?}");
    }
}
