//! The functions that the loader finds before the C library's.

use core::ffi::{c_int, c_uint, c_void};
use core::net::SocketAddr;
use std::os::fd::BorrowedFd;

use libc::{MSG_FASTOPEN, mmsghdr, msghdr, size_t, sockaddr, socklen_t, ssize_t};
use rustix::io::Errno;

use crate::failures::FAILURES;
use crate::next::{self, Next};
use crate::route;
use crate::tunnel::Tunnelled;
use crate::{address, config::Config, stderr, tunnel};

/// Everything that is done once is done while the library is loaded, so that no later call needs
/// the environment, the loader or a lock.
#[used]
#[unsafe(link_section = ".init_array")]
static LOADED: extern "C" fn() = loaded;

extern "C" fn loaded() {
    Config::get();
    next::resolve_all();
    stderr::recognise_stderr();
}

/// `connect(2)`, through the mobile where that is its business.
///
/// # Safety
/// As the C function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn connect(
    fd: c_int,
    address: *const sockaddr,
    len: socklen_t,
) -> c_int {
    // SAFETY: the caller's promise.
    let target = unsafe { address::read(address, len) };
    match tunnelled(fd, target) {
        Some((socket, wanted)) => match open(socket, wanted) {
            Ok(()) => 0,
            Err(errno) => fail(errno),
        },
        None => {
            // SAFETY: the caller's own arguments.
            let result = or_missing(&next::CONNECT, |f| unsafe { f(fd, address, len) });
            if let (Some(socket), Some(target)) = (borrow(fd), target) {
                route::remove_direct(socket, target);
            }
            result
        }
    }
}

/// `getpeername(2)`, which returns the address that the program asked for.
///
/// # Safety
/// As the C function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn getpeername(
    fd: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    if !address.is_null()
        && !len.is_null()
        && let Some(peer) = borrow(fd).and_then(route::peer_of)
    {
        // SAFETY: neither is null, and the rest is the caller's promise.
        unsafe { address::write(peer, address, len) };
        return 0;
    }
    // SAFETY: the caller's own arguments.
    or_missing(&next::GETPEERNAME, |f| unsafe { f(fd, address, len) })
}

/// `sendto(2)`, which with `MSG_FASTOPEN` is a `connect` too.
///
/// # Safety
/// As the C function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sendto(
    fd: c_int,
    bytes: *const c_void,
    count: size_t,
    flags: c_int,
    address: *const sockaddr,
    len: socklen_t,
) -> ssize_t {
    if flags & MSG_FASTOPEN != 0 {
        // SAFETY: the caller's promise.
        let target = unsafe { address::read(address, len) };
        if let Some((socket, wanted)) = tunnelled(fd, target) {
            if let Err(errno) = open(socket, wanted) {
                return fail(errno);
            }
            let flags = flags & !MSG_FASTOPEN;
            return or_missing(&next::SENDTO, |f| {
                // SAFETY: the caller's own buffer; a connected socket needs no address.
                unsafe { f(fd, bytes, count, flags, core::ptr::null(), 0) }
            });
        }
    }
    // SAFETY: the caller's own arguments.
    or_missing(&next::SENDTO, |f| unsafe { f(fd, bytes, count, flags, address, len) })
}

/// `sendmsg(2)`, which with `MSG_FASTOPEN` is a `connect` too.
///
/// # Safety
/// As the C function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sendmsg(
    fd: c_int,
    message: *const msghdr,
    flags: c_int,
) -> ssize_t {
    if flags & MSG_FASTOPEN != 0 && !message.is_null() {
        // SAFETY: not null, and the rest is the caller's promise; a copy, since it is not ours to
        // change.
        let mut message = unsafe { core::ptr::read(message) };
        // SAFETY: the message's own address and length.
        let target = unsafe { address::read(message.msg_name.cast(), message.msg_namelen) };
        if let Some((socket, wanted)) = tunnelled(fd, target) {
            if let Err(errno) = open(socket, wanted) {
                return fail(errno);
            }
            message.msg_name = core::ptr::null_mut();
            message.msg_namelen = 0;
            let flags = flags & !MSG_FASTOPEN;
            // SAFETY: the caller's own buffers, in a message of ours.
            return or_missing(&next::SENDMSG, |f| unsafe { f(fd, &message, flags) });
        }
    }
    // SAFETY: the caller's own arguments.
    or_missing(&next::SENDMSG, |f| unsafe { f(fd, message, flags) })
}

/// `sendmmsg(2)`, which with `MSG_FASTOPEN` is a `connect` too: the first message opens the
/// connection, and the others are left to the program's next call.
///
/// # Safety
/// As the C function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sendmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
) -> c_int {
    if flags & MSG_FASTOPEN != 0 && count > 0 && !messages.is_null() {
        // SAFETY: the first of at least one message, by the caller's promise.
        let sent = unsafe { sendmsg(fd, &raw const (*messages).msg_hdr, flags) };
        let Ok(sent) = c_uint::try_from(sent) else { return -1 };
        // SAFETY: as above.
        unsafe { (*messages).msg_len = sent };
        return 1;
    }
    // SAFETY: the caller's own arguments.
    or_missing(&next::SENDMMSG, |f| unsafe { f(fd, messages, count, flags) })
}

/// `getsockopt(2)`, whose `SO_ERROR` is the outcome of a non-blocking connection.
///
/// # Safety
/// As the C function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    option: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    // SAFETY: the caller's own arguments.
    let result = or_missing(&next::GETSOCKOPT, |f| unsafe { f(fd, level, option, value, len) });
    if result == 0
        && (level, option) == (libc::SOL_SOCKET, libc::SO_ERROR)
        && let Some(errno) = borrow(fd).and_then(|socket| FAILURES.take(socket))
    {
        let errno = errno.raw_os_error().to_ne_bytes();
        // SAFETY: the kernel has just written so many bytes of an `int` there, and told how many.
        unsafe {
            let written = (*len as usize).min(errno.len());
            core::ptr::copy_nonoverlapping(errno.as_ptr(), value.cast(), written);
        }
    }
    result
}

/// The descriptor, for the time of the call.
fn borrow<'call>(fd: c_int) -> Option<BorrowedFd<'call>> {
    // SAFETY: not -1, and used no longer than the call in which the program named it. One that is
    // not open makes our system calls fail, which means that the call is passed on.
    (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
}

fn tunnelled<'call>(
    fd: c_int,
    target: Option<SocketAddr>,
) -> Option<(BorrowedFd<'call>, Tunnelled)> {
    let (socket, target) = (borrow(fd)?, target?);
    // What became of an earlier connection is of no interest any more.
    FAILURES.take(socket);
    Some((socket, route::tunnelled(socket, target)?))
}

/// Opens through the mobile; on success `errno` is what it was.
fn open(socket: BorrowedFd<'_>, wanted: Tunnelled) -> Result<(), Errno> {
    // SAFETY: the calling thread's own `errno`.
    let before = unsafe { *libc::__errno_location() };
    let result = tunnel::open(socket, wanted);
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = before };
    result
}

/// Calls the function behind ours.
fn or_missing<F: Copy, R: From<i8>>(next: &Next<F>, call: impl FnOnce(F) -> R) -> R {
    match next.get() {
        Some(function) => call(function),
        None => fail(Errno::NOSYS),
    }
}

/// Reports `errno` as the functions of C do.
pub(crate) fn fail<R: From<i8>>(errno: Errno) -> R {
    // SAFETY: the calling thread's own `errno`.
    unsafe { *libc::__errno_location() = errno.raw_os_error() };
    R::from(-1)
}
