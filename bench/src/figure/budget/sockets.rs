//! What the kernel's part of the way costs an end that does nothing else: across the cables that base and mobile are
//! measured on, in pieces as large as theirs.

use std::io::{IoSliceMut, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, anyhow};
use lasthop_units::Duration;
use quinn_udp::{RecvMeta, Transmit, UdpSocketState};

use super::PAYLOAD;
use super::threads::own_cpu;
use crate::cables::cabled;
use crate::peer::Hosts;
use crate::pump::start_source;

/// What one call moves of a TCP connection.
const PIECE: usize = 128 << 10;
/// A datagram of SRP that is full, and how many of them the kernel takes at once.
const DATAGRAM: usize = 1452;
const SEGMENTS: usize = 44;
/// As a base's and a mobile's.
const SOCKET_BUFFER: usize = 4 << 20;
const BUFFERS: usize = 8;

/// CPU for each datagram's payload.
fn each(cpu: Duration, bytes: u64) -> Result<f64> {
    let datagrams = bytes as f64 / PAYLOAD as f64;
    (bytes > 0).then(|| cpu.as_nanos() as f64 / datagrams).context("nothing was moved")
}

/// A base's thread that reads what a fixed host sends.
pub(super) fn tcp_in(span: Duration) -> Result<f64> {
    let Hosts { fixed, base, server, .. } = cabled()?;
    start_source(&fixed, server, None)?;
    let mut stream = base.enter(|| TcpStream::connect(server))??;
    let (mut buffer, mut bytes) = (vec![0; PIECE], 0);
    let (began, before) = (Instant::now(), own_cpu());
    while began.elapsed() < span {
        bytes += stream.read(&mut buffer)? as u64;
    }
    each(own_cpu() - before, bytes)
}

/// A mobile's thread that writes to its application.
pub(super) fn tcp_out(span: Duration) -> Result<f64> {
    let host = cabled()?.mobile;
    let listener = host.enter(|| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))??;
    let mut stream = host.enter(|| TcpStream::connect(listener.local_addr()?))??;
    let (mut sink, _) = listener.accept()?;
    let reader = thread::spawn(move || {
        let mut buffer = vec![0; PIECE];
        while sink.read(&mut buffer).is_ok_and(|read| read > 0) {}
    });
    let (buffer, mut bytes) = (vec![0; PIECE], 0);
    let (began, before) = (Instant::now(), own_cpu());
    while began.elapsed() < span {
        bytes += stream.write(&buffer)? as u64;
    }
    let cpu = own_cpu() - before;
    drop(stream);
    reader.join().map_err(|_| anyhow!("a thread panicked"))?;
    each(cpu, bytes)
}

/// A socket as a base or a mobile has it.
fn udp_socket(address: Ipv4Addr) -> Result<(UdpSocket, UdpSocketState)> {
    let socket = UdpSocket::bind((address, 0))?;
    let state = UdpSocketState::new((&socket).into())?;
    for set in [UdpSocketState::set_send_buffer_size, UdpSocketState::set_recv_buffer_size] {
        set(&state, (&socket).into(), SOCKET_BUFFER)?;
    }
    Ok((socket, state))
}

/// A base's thread that sends, and a mobile's that receives, nothing else: segmentation is left to the kernel.
pub(super) fn udp(span: Duration) -> Result<f64> {
    let Hosts { base, mobile, hop, .. } = cabled()?;
    let (from, sending) = base.enter(|| udp_socket(*hop.ip()))??;
    let (to, receiving) = mobile.enter(|| udp_socket(Ipv4Addr::UNSPECIFIED))??;
    let port = to.local_addr()?.port();
    let [a, b, c, _] = hop.ip().octets();
    let destination = SocketAddr::from(([a, b, c, 2], port));
    to.set_nonblocking(false)?;
    to.set_read_timeout(Some(Duration::from_millis(100)))?;
    let (stop, received) = (AtomicBool::new(false), AtomicU64::new(0));
    let contents = vec![0; DATAGRAM * SEGMENTS];
    let [sent_cpu, received_cpu] = thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let mut buffers = vec![vec![0; 64 << 10]; BUFFERS];
            let before = own_cpu();
            while !stop.load(Ordering::Relaxed) {
                let mut pieces: Vec<_> = buffers.iter_mut().map(|b| IoSliceMut::new(b)).collect();
                let mut metas = [RecvMeta::default(); BUFFERS];
                let Ok(n) = receiving.recv((&to).into(), &mut pieces, &mut metas) else { continue };
                let bytes: usize = metas[..n].iter().map(|meta| meta.len).sum();
                received.fetch_add(bytes as u64, Ordering::Relaxed);
            }
            own_cpu() - before
        });
        let (began, before, mut sent) = (Instant::now(), own_cpu(), 0);
        let ended = loop {
            if began.elapsed() >= span {
                break Ok(());
            }
            // No more is on its way than a receiver's buffer has room for.
            if sent > received.load(Ordering::Relaxed) + SOCKET_BUFFER as u64 / 8 {
                thread::yield_now();
                continue;
            }
            let segment_size = Some(DATAGRAM);
            let transmit = Transmit {
                destination,
                ecn: None,
                contents: &contents,
                segment_size,
                src_ip: None,
            };
            match sending.try_send((&from).into(), &transmit) {
                Ok(()) => sent += contents.len() as u64,
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => thread::yield_now(),
                Err(e) => break Err(e),
            }
        };
        let cpu = own_cpu() - before;
        stop.store(true, Ordering::Relaxed);
        let receiver = receiver.join().map_err(|_| anyhow!("a thread panicked"))?;
        ended?;
        anyhow::Ok([cpu, receiver])
    })?;
    let datagrams = received.load(Ordering::Relaxed) / DATAGRAM as u64;
    each(sent_cpu + received_cpu, datagrams * PAYLOAD as u64)
}
