//! Puts connections into the kernel.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use lasthop_kernel::sockopt::{self, Queue, Repair, Window};
use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown, sockopt as options};

use super::error::MigrateError;
use super::image::Image;
use super::message::{BUFFER_MAX, SocketRequest};
use super::{Admin, Flow, bound_unread};

/// Room that a queue is given beyond its bytes.
const ROOM: u32 = 64 * 1024;

/// Puts connections into the kernel; outcomes are in the order of the images. Each goes on where it
/// stopped: bytes that were received are there to be read, and the peer's end behind them; bytes
/// that were not acknowledged are sent as often as needed, and our end behind them. The peer is
/// asked for its window at once. The sockets do not block, and to close one resets it.
///
/// # Errors
///
/// For each what the kernel or the helper refused: then nothing is left of it here, nothing was
/// said to its peer, and the image is as good as before.
pub fn restore_all(admin: &mut Admin, images: &[Image]) -> Vec<Result<OwnedFd, MigrateError>> {
    all(admin, images, Packets::Here)
}

/// As [`restore_all`], where packets for the connections do not come to this host yet: rules that
/// would keep them away cost two of the kernel's grace periods, and are left out.
///
/// # Errors
///
/// As [`restore_all`].
pub fn restore_unrouted(admin: &mut Admin, images: &[Image]) -> Vec<Result<OwnedFd, MigrateError>> {
    all(admin, images, Packets::Elsewhere)
}

/// Where packets for connections go that are being made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Packets {
    Here,
    Elsewhere,
}

fn all(
    admin: &mut Admin,
    images: &[Image],
    packets: Packets,
) -> Vec<Result<OwnedFd, MigrateError>> {
    match fill_all(admin, images, packets) {
        Ok(sockets) => sockets,
        Err(error) => {
            let _ = admin.thaw(&images.iter().map(Image::flow).collect::<Vec<_>>());
            let said = error.to_string();
            let again = || MigrateError::Refused { doing: "take connections", said: said.clone() };
            images.iter().map(|_| Err(again())).collect()
        }
    }
}

fn fill_all(
    admin: &mut Admin,
    images: &[Image],
    packets: Packets,
) -> Result<Vec<Result<OwnedFd, MigrateError>>, MigrateError> {
    if images.is_empty() {
        return Ok(Vec::new());
    }
    // What arrives while a socket is half made would be answered out of its wrong state.
    let flows: Vec<Flow> = match packets {
        Packets::Here => images.iter().map(Image::flow).collect(),
        Packets::Elsewhere => Vec::new(),
    };
    admin.freeze(&flows)?;
    let wanted: Vec<SocketRequest> = images
        .iter()
        .map(|image| SocketRequest { local: image.flow.local, repair: Some(room(image)) })
        .collect();
    let mut sockets: Vec<Result<OwnedFd, MigrateError>> = admin
        .sockets(&wanted)?
        .into_iter()
        .zip(images)
        .map(|(socket, image)| {
            let fd = socket.map_err(MigrateError::kernel("make a socket in repair"))?;
            fill(fd.as_fd(), image)
                .map_err(|(doing, source)| MigrateError::Kernel { doing, source })?;
            Ok(fd)
        })
        .collect();
    admin.thaw(&flows)?;
    let filled: Vec<BorrowedFd<'_>> =
        sockets.iter().filter_map(|socket| Some(socket.as_ref().ok()?.as_fd())).collect();
    let mut started = admin.repair(&filled, Repair::Off)?.into_iter();
    for (socket, image) in sockets.iter_mut().zip(images) {
        let Ok(fd) = socket else { continue };
        let started = started.next().unwrap_or(Err(io::ErrorKind::InvalidData.into()));
        let outcome = started
            .map_err(MigrateError::kernel("let a connection go on (TCP_REPAIR)"))
            .and_then(|()| finish(fd.as_fd(), image));
        if let Err(error) = outcome {
            // So that its close says nothing.
            let _ = admin.repair(&[fd.as_fd()], Repair::On);
            *socket = Err(error);
        }
    }
    Ok(sockets)
}

/// What the receive and the send queue must have room for.
fn room(image: &Image) -> (u32, u32) {
    // As much as there was: the window that was advertised to the peer fits into that. The kernel counts its
    // own bookkeeping too, of which another one may have more.
    let room = |had: u32, bytes: usize| {
        let bytes = u32::try_from(bytes).unwrap_or(BUFFER_MAX);
        had.max(bytes.saturating_mul(2).saturating_add(ROOM)).min(BUFFER_MAX)
    };
    (room(image.buffers.0, image.unread()), room(image.buffers.1, image.outstanding()))
}

/// How often, and after what pause, a four-tuple that is taken is tried again.
const CONNECT_TRIES: u32 = 10;
const CONNECT_PAUSE: Duration = Duration::from_millis(2);

/// Connects in repair. Where the connection was dumped on this very host, its socket may live a moment
/// longer than its last descriptor here.
fn connect(fd: BorrowedFd<'_>, remote: &SocketAddr) -> rustix::io::Result<()> {
    for _ in 0..CONNECT_TRIES {
        match rustix::net::connect(fd, remote) {
            Err(Errno::ADDRNOTAVAIL) => std::thread::sleep(CONNECT_PAUSE),
            other => return other,
        }
    }
    rustix::net::connect(fd, remote)
}

/// Makes a bound socket in repair the connection of the image, up to what was sent.
fn fill(fd: BorrowedFd<'_>, image: &Image) -> Result<(), (&'static str, io::Error)> {
    let step = |doing: &'static str| move |source: io::Error| (doing, source);
    let received = image.rcv_nxt.wrapping_sub(image.unread() as u32);
    for (queue, seq) in [(Queue::Send, image.snd_una), (Queue::Receive, received)] {
        sockopt::select_queue(fd, queue).map_err(step("select a queue"))?;
        sockopt::set_queue_seq(fd, seq).map_err(step("set a sequence number"))?;
    }
    // How long segments are is settled when a connection is made, and the kernel does not look again
    // when the peer's MSS is set below: without it, it would send 536 bytes at a time, as
    // to a peer without that option (RFC 9293, section 3.7.1), which is thrice the packets.
    sockopt::choose_mss(fd, image.mss).map_err(step("choose the largest segment"))?;
    connect(fd, &image.flow.remote).map_err(|e| step("set up a connection in repair")(e.into()))?;
    let scales = image.scales.unwrap_or_default();
    sockopt::set_options(fd, image.mss, scales, image.sack, image.timestamp.is_some())
        .map_err(step("set what the ends agreed on"))?;
    if let Some(timestamp) = image.timestamp {
        sockopt::set_timestamp(fd, timestamp).map_err(step("set the clock of timestamps"))?;
    }
    for (queue, bytes) in [(Queue::Receive, &image.unread), (Queue::Send, &image.unacknowledged)] {
        sockopt::select_queue(fd, queue).map_err(step("select a queue"))?;
        write(fd, bytes).map_err(step("fill a queue"))?;
    }
    sockopt::select_queue(fd, Queue::Neither).map_err(step("select no queue"))?;
    // Whoever is killed from here on must not make half a stream look whole.
    lasthop_kernel::tcp::abort_on_close(fd);
    sockopt::set_window(fd, acceptable(image)).map_err(step("set the windows"))
}

/// The windows as the kernel takes them: one that was dumped between two of its own steps may be
/// ahead of itself by a segment.
fn acceptable(image: &Image) -> Window {
    let after = |a: u32, b: u32| (b.wrapping_sub(a) as i32) < 0;
    let mut window = image.window;
    window.max_window = window.max_window.max(window.snd_wnd);
    if after(window.rcv_wup, image.rcv_nxt) {
        window.rcv_wup = image.rcv_nxt;
    }
    if after(window.snd_wl1, image.rcv_nxt.wrapping_add(window.rcv_wnd)) {
        window.snd_wl1 = image.rcv_nxt;
    }
    window
}

/// What is left to do once the connection is alive.
fn finish(fd: BorrowedFd<'_>, image: &Image) -> Result<(), MigrateError> {
    let nodelay = options::set_tcp_nodelay(fd, image.settings.nodelay);
    write(fd, &image.unsent).map_err(MigrateError::kernel("write what was not sent"))?;
    sockopt::adapt_buffers(fd);
    bound_unread(fd);
    // A socket that refuses one of these still carries bytes.
    let _ = nodelay;
    let _ = image.settings.apply(fd);
    if image.received_end {
        // Reads then end behind the last byte as they did before; nothing is sent.
        let _ = rustix::net::shutdown(fd, Shutdown::Read);
    }
    if image.sent_end {
        rustix::net::shutdown(fd, Shutdown::Write)
            .map_err(|e| MigrateError::kernel("send the end once more")(e.into()))?;
    }
    Ok(())
}

/// Writes all of it at once: the socket has room.
fn write(fd: BorrowedFd<'_>, mut bytes: &[u8]) -> io::Result<()> {
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    while !bytes.is_empty() {
        match rustix::net::send(fd, bytes, flags) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => bytes = bytes.get(n..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}
