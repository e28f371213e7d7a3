//! The socket options by which the kernel gives away and takes a TCP connection (`TCP_REPAIR`), and
//! what else of a connection has no name in the libraries that are used here.
#![allow(unsafe_code)]

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use serde::{Deserialize, Serialize};

/// Bytes that were received and not read (sockios.h: `SIOCINQ`).
const SIOCINQ: libc::c_ulong = 0x541b;
/// Bytes that the peer has not acknowledged (`SIOCOUTQ`).
const SIOCOUTQ: libc::c_ulong = 0x5411;
/// Of those, what was never sent (`SIOCOUTQNSD`).
const SIOCOUTQNSD: libc::c_ulong = 0x894b;
/// Whether buffer sizes were chosen by hand, which ends their adaptation (Linux 5.14).
const SO_BUF_LOCK: libc::c_int = 72;
/// All of `struct tcp_info` that is read here.
const INFO_LENGTH: usize = 104;

/// `TCP_REPAIR` (tcp(7) does not tell; `enum` beside it in linux/tcp.h).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Repair {
    /// The socket sends nothing and can be read out or filled.
    On,
    /// It goes on, and asks its peer for the window at once.
    Off,
    /// It goes on and says nothing until it has cause to.
    OffSilently,
}

impl Repair {
    fn value(self) -> i32 {
        match self {
            Self::Off => 0,
            Self::On => 1,
            Self::OffSilently => -1,
        }
    }
}

/// Which half of a connection options and calls mean while it is in repair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Queue {
    /// None of them.
    Neither,
    /// What was received and not read.
    Receive,
    /// What was written and not acknowledged.
    Send,
}

/// `struct tcp_repair_window`.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Window {
    /// The segment that last changed the send window.
    pub snd_wl1: u32,
    /// What the peer takes, bytes.
    pub snd_wnd: u32,
    /// The most that it ever took.
    pub max_window: u32,
    /// What we advertised to the peer, bytes.
    pub rcv_wnd: u32,
    /// From where that counts.
    pub rcv_wup: u32,
}

/// The state of a connection, RFC 9293 section 3.3.2, as the kernel numbers it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SocketState {
    /// ESTABLISHED.
    Established,
    /// FIN-WAIT-1.
    FinWait1,
    /// FIN-WAIT-2.
    FinWait2,
    /// CLOSE-WAIT.
    CloseWait,
    /// LAST-ACK.
    LastAck,
    /// CLOSING.
    Closing,
    /// Not there yet or there no more.
    Other(u8),
}

impl SocketState {
    /// SYN-SENT, among the others.
    pub const SYN_SENT: u8 = 2;
    /// SYN-RECEIVED, among the others.
    pub const SYN_RECEIVED: u8 = 3;
    /// CLOSED, among the others.
    pub const CLOSED: u8 = 7;
}

/// What is used of `TCP_INFO`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Info {
    /// How far the connection is.
    pub state: SocketState,
    /// Whether timestamps were agreed on (RFC 7323 section 3).
    pub timestamps: bool,
    /// Whether selective acknowledgements were (RFC 2018).
    pub sack: bool,
    /// Whether window scaling was (RFC 7323 section 2).
    pub window_scaling: bool,
    /// By what the peer shifts its window.
    pub snd_wscale: u8,
    /// By what this end shifts its own.
    pub rcv_wscale: u8,
    /// The bytes that one segment of ours carries at present.
    pub snd_mss: u32,
}

/// How far a connection's own bytes have come, from `TCP_INFO`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Bytes that the peer has acknowledged, and perhaps the SYN.
    pub bytes_acked: u64,
    /// Segments that were sent again.
    pub total_retrans: u32,
}

/// Puts the socket into repair, or out of it. Needs `CAP_NET_ADMIN` in the socket's network namespace.
pub fn set_repair(fd: BorrowedFd<'_>, mode: Repair) -> io::Result<()> {
    set_int(fd, libc::IPPROTO_TCP, libc::TCP_REPAIR, mode.value())
}

/// Whether the socket is in repair.
pub fn is_in_repair(fd: BorrowedFd<'_>) -> io::Result<bool> {
    get_int(fd, libc::IPPROTO_TCP, libc::TCP_REPAIR).map(|n| n != 0)
}

/// Chooses the queue that sequence numbers and peeked bytes are of.
pub fn select_queue(fd: BorrowedFd<'_>, queue: Queue) -> io::Result<()> {
    let n = match queue {
        Queue::Neither => 0,
        Queue::Receive => 1,
        Queue::Send => 2,
    };
    set_int(fd, libc::IPPROTO_TCP, libc::TCP_REPAIR_QUEUE, n)
}

/// The sequence number behind the last byte of the selected queue.
pub fn queue_seq(fd: BorrowedFd<'_>) -> io::Result<u32> {
    get_int(fd, libc::IPPROTO_TCP, libc::TCP_QUEUE_SEQ).map(i32::cast_unsigned)
}

/// Sets it, before anything is in the queue.
pub fn set_queue_seq(fd: BorrowedFd<'_>, seq: u32) -> io::Result<()> {
    set_int(fd, libc::IPPROTO_TCP, libc::TCP_QUEUE_SEQ, seq.cast_signed())
}

/// The clock that the socket puts into timestamps; the lowest bit says whether it counts
/// microseconds.
pub fn timestamp(fd: BorrowedFd<'_>) -> io::Result<u32> {
    get_int(fd, libc::IPPROTO_TCP, libc::TCP_TIMESTAMP).map(i32::cast_unsigned)
}

/// Sets that clock.
pub fn set_timestamp(fd: BorrowedFd<'_>, value: u32) -> io::Result<()> {
    set_int(fd, libc::IPPROTO_TCP, libc::TCP_TIMESTAMP, value.cast_signed())
}

/// The largest segment that a connection which is not made yet takes for its peer's, as far as one
/// can be chosen.
pub fn choose_mss(fd: BorrowedFd<'_>, mss: u32) -> io::Result<()> {
    // What the kernel takes (`TCP_MIN_MSS`, `MAX_TCP_WINDOW`).
    set_int(fd, libc::IPPROTO_TCP, libc::TCP_MAXSEG, mss.clamp(88, 32_767).cast_signed())
}

/// The peer's largest segment, for a socket in repair.
pub fn mss_clamp(fd: BorrowedFd<'_>) -> io::Result<u32> {
    get_int(fd, libc::IPPROTO_TCP, libc::TCP_MAXSEG).map(i32::cast_unsigned)
}

/// The windows of both directions.
pub fn window(fd: BorrowedFd<'_>) -> io::Result<Window> {
    let bytes: [u8; 20] = get(fd, libc::IPPROTO_TCP, libc::TCP_REPAIR_WINDOW)?;
    let number = |i: usize| word(&bytes, i * 4);
    Ok(Window {
        snd_wl1: number(0),
        snd_wnd: number(1),
        max_window: number(2),
        rcv_wnd: number(3),
        rcv_wup: number(4),
    })
}

/// Sets them.
pub fn set_window(fd: BorrowedFd<'_>, window: Window) -> io::Result<()> {
    let Window { snd_wl1, snd_wnd, max_window, rcv_wnd, rcv_wup } = window;
    set_words(fd, libc::TCP_REPAIR_WINDOW, &[snd_wl1, snd_wnd, max_window, rcv_wnd, rcv_wup])
}

/// What the ends agreed on when they connected. Only before anything was put into a queue.
pub fn set_options(
    fd: BorrowedFd<'_>,
    mss: u32,
    scales: (u8, u8),
    sack: bool,
    timestamps: bool,
) -> io::Result<()> {
    // Each option is its number in RFC 9293, 7323 or 2018 and a value. A scale of zero is included:
    // the socket has chosen one for itself when it connected.
    let (send, receive) = scales;
    let mut words = vec![2, mss, 3, u32::from(send) | u32::from(receive) << 16];
    if sack {
        words.extend([4, 0]);
    }
    if timestamps {
        words.extend([8, 0]);
    }
    set_words(fd, libc::TCP_REPAIR_OPTIONS, &words)
}

/// The least round trip that the kernel has measured of late, in microseconds (`tcpi_min_rtt`);
/// `u32::MAX` while there is none.
pub fn least_round_trip(fd: BorrowedFd<'_>) -> io::Result<u32> {
    let bytes: [u8; 152] = get(fd, libc::IPPROTO_TCP, libc::TCP_INFO)?;
    Ok(word(&bytes, 148))
}

/// The connection's state and what its ends agreed on.
pub fn info(fd: BorrowedFd<'_>) -> io::Result<Info> {
    let bytes: [u8; INFO_LENGTH] = get(fd, libc::IPPROTO_TCP, libc::TCP_INFO)?;
    let (options, scales) = (bytes[5], bytes[6]);
    let (snd_wscale, rcv_wscale) = if cfg!(target_endian = "little") {
        (scales & 15, scales >> 4)
    } else {
        (scales >> 4, scales & 15)
    };
    Ok(Info {
        state: match bytes[0] {
            1 => SocketState::Established,
            4 => SocketState::FinWait1,
            5 => SocketState::FinWait2,
            8 => SocketState::CloseWait,
            9 => SocketState::LastAck,
            11 => SocketState::Closing,
            other => SocketState::Other(other),
        },
        timestamps: options & 1 != 0,
        sack: options & 2 != 0,
        window_scaling: options & 4 != 0,
        snd_wscale,
        rcv_wscale,
        snd_mss: word(&bytes, 16),
    })
}

/// What the peer has acknowledged, and how often something was sent again.
pub fn progress(fd: BorrowedFd<'_>) -> io::Result<Progress> {
    let bytes: [u8; 128] = get(fd, libc::IPPROTO_TCP, libc::TCP_INFO)?;
    let acked = bytes.last_chunk().copied().unwrap_or_default();
    let total_retrans = word(&bytes, 100);
    Ok(Progress { bytes_acked: u64::from_ne_bytes(acked), total_retrans })
}

/// Bytes that were received and not read; the peer's end is not counted.
pub fn unread(fd: BorrowedFd<'_>) -> io::Result<u32> {
    read_ioctl(fd, SIOCINQ)
}

/// Sequence numbers that the peer has not acknowledged; our end is one of them.
pub fn unacknowledged(fd: BorrowedFd<'_>) -> io::Result<u32> {
    read_ioctl(fd, SIOCOUTQ)
}

/// Of those, what was never sent.
pub fn unsent(fd: BorrowedFd<'_>) -> io::Result<u32> {
    read_ioctl(fd, SIOCOUTQNSD)
}

/// Sizes of the receive and the send buffer as the kernel counts them, bytes.
pub fn buffers(fd: BorrowedFd<'_>) -> io::Result<(u32, u32)> {
    let size = |option| get_int(fd, libc::SOL_SOCKET, option).map(|n| n.max(0).cast_unsigned());
    Ok((size(libc::SO_RCVBUF)?, size(libc::SO_SNDBUF)?))
}

/// Chooses buffer sizes, as the kernel counts them, beyond the usual limits. Needs
/// `CAP_NET_ADMIN`.
pub fn force_buffers(fd: BorrowedFd<'_>, receive: u32, send: u32) -> io::Result<()> {
    // The kernel doubles what is set.
    let size = |n: u32| (n / 2).cast_signed();
    set_int(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, size(receive))?;
    set_int(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, size(send))
}

/// Lets the kernel adapt buffers again whose size was chosen. An older kernel keeps them as they
/// are, which only costs memory.
pub fn adapt_buffers(fd: BorrowedFd<'_>) {
    let _ = set_int(fd, libc::SOL_SOCKET, SO_BUF_LOCK, 0);
}

/// From which byte of the receive queue on a peek begins, and each next one where the last ended; or
/// all of them at the first byte again. For TCP since Linux 6.9, over IPv6 since 6.12.
pub fn set_peek_offset(fd: BorrowedFd<'_>, from: Option<usize>) -> io::Result<()> {
    let from = from.map_or(-1, |from| i32::try_from(from).unwrap_or(i32::MAX));
    set_int(fd, libc::SOL_SOCKET, libc::SO_PEEK_OFF, from)
}

fn get_int(fd: BorrowedFd<'_>, level: i32, option: i32) -> io::Result<i32> {
    get(fd, level, option).map(i32::from_ne_bytes)
}

fn set_int(fd: BorrowedFd<'_>, level: i32, option: i32, value: i32) -> io::Result<()> {
    set(fd, level, option, &[value])
}

fn set_words(fd: BorrowedFd<'_>, option: i32, words: &[u32]) -> io::Result<()> {
    set(fd, libc::IPPROTO_TCP, option, words)
}

pub(crate) fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_ne_bytes)
}

/// An option of exactly `N` bytes; fewer that the kernel has are followed by zeros.
pub(crate) fn get<const N: usize>(
    fd: BorrowedFd<'_>,
    level: i32,
    option: i32,
) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut length = N as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, which is the array's size.
    let result = unsafe {
        libc::getsockopt(fd.as_raw_fd(), level, option, bytes.as_mut_ptr().cast(), &raw mut length)
    };
    if result == 0 { Ok(bytes) } else { Err(io::Error::last_os_error()) }
}

/// Gives the socket a program (classic BPF) for what `option` says.
pub(crate) fn attach(
    fd: BorrowedFd<'_>,
    option: i32,
    program: &[libc::sock_filter],
) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
        // The kernel only reads it, whatever the type says.
        filter: program.as_ptr().cast_mut(),
    };
    set(fd, libc::SOL_SOCKET, option, &[program])
}

/// Sets any option, to one plain value or several.
pub fn set<T: Copy>(fd: BorrowedFd<'_>, level: i32, option: i32, values: &[T]) -> io::Result<()> {
    let (values, length) = (values.as_ptr().cast(), size_of_val(values) as libc::socklen_t);
    // SAFETY: the kernel reads the values, whose size is given.
    let result = unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, values, length) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A request of TCP's that fills in one number.
fn read_ioctl(fd: impl AsFd, request: libc::c_ulong) -> io::Result<u32> {
    let mut number: libc::c_int = 0;
    // SAFETY: each request that is passed here writes one `int`.
    let result =
        unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), request as libc::Ioctl, &raw mut number) };
    debug_assert_eq!(mem::size_of_val(&number), 4);
    if result == 0 { Ok(number.max(0).cast_unsigned()) } else { Err(io::Error::last_os_error()) }
}
