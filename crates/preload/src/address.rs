//! Between C's socket addresses and ours.

use core::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use core::{mem, ptr};

use libc::{AF_INET, AF_INET6, sa_family_t, sockaddr, sockaddr_in, sockaddr_in6, socklen_t};

/// The Internet address at `address`, or `None` for another family, a short one or none at all.
///
/// # Safety
/// `address` is null or points to `len` readable bytes.
pub(crate) unsafe fn read(address: *const sockaddr, len: socklen_t) -> Option<SocketAddr> {
    let len = len as usize;
    if address.is_null() || len < mem::size_of::<sa_family_t>() {
        return None;
    }
    // SAFETY: there are at least as many bytes as the family, with which every address begins;
    // nothing is promised about alignment.
    let family = unsafe { ptr::read_unaligned(address.cast::<sa_family_t>()) };
    match i32::from(family) {
        AF_INET if len >= mem::size_of::<sockaddr_in>() => {
            // SAFETY: the length was checked, and any bytes are a valid `sockaddr_in`.
            let raw = unsafe { ptr::read_unaligned(address.cast::<sockaddr_in>()) };
            let ip = IpAddr::from(raw.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddr::new(ip, u16::from_be(raw.sin_port)))
        }
        AF_INET6 if len >= mem::size_of::<sockaddr_in6>() => {
            // SAFETY: the length was checked, and any bytes are a valid `sockaddr_in6`.
            let raw = unsafe { ptr::read_unaligned(address.cast::<sockaddr_in6>()) };
            let ip = Ipv6Addr::from(raw.sin6_addr.s6_addr);
            let port = u16::from_be(raw.sin6_port);
            Some(SocketAddrV6::new(ip, port, raw.sin6_flowinfo, raw.sin6_scope_id).into())
        }
        _ => None,
    }
}

/// Writes `peer` as `getpeername(2)` does: as much as fits, and the full length to `len`.
///
/// # Safety
/// `len` is valid, and `address` points to `*len` writable bytes.
pub(crate) unsafe fn write(peer: SocketAddr, address: *mut sockaddr, len: *mut socklen_t) {
    match peer {
        SocketAddr::V4(v4) => {
            // SAFETY: all zeroes are a valid `sockaddr_in`.
            let mut raw: sockaddr_in = unsafe { mem::zeroed() };
            raw.sin_family = AF_INET as sa_family_t;
            raw.sin_port = v4.port().to_be();
            raw.sin_addr.s_addr = u32::from_ne_bytes(v4.ip().octets());
            // SAFETY: handed on from our own caller.
            unsafe { copy(&raw, address, len) }
        }
        SocketAddr::V6(v6) => {
            // SAFETY: all zeroes are a valid `sockaddr_in6`.
            let mut raw: sockaddr_in6 = unsafe { mem::zeroed() };
            raw.sin6_family = AF_INET6 as sa_family_t;
            raw.sin6_port = v6.port().to_be();
            raw.sin6_addr.s6_addr = v6.ip().octets();
            // SAFETY: handed on from our own caller.
            unsafe { copy(&raw, address, len) }
        }
    }
}

/// # Safety
/// As [`write`]; `T` is plain old data without padding.
unsafe fn copy<T>(from: &T, to: *mut sockaddr, len: *mut socklen_t) {
    // SAFETY: `len` is valid by the caller's promise.
    let room = unsafe { *len } as usize;
    let size = mem::size_of::<T>();
    // SAFETY: no more is copied than `from` has and than `to` has room for, and the two cannot
    // overlap since `from` is our own.
    unsafe {
        ptr::copy_nonoverlapping(ptr::from_ref(from).cast::<u8>(), to.cast::<u8>(), size.min(room));
        *len = size as socklen_t;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(text: &str) {
        let given: SocketAddr = text.parse().unwrap();
        let mut bytes = [0_u8; 128];
        let mut len = bytes.len() as socklen_t;
        // SAFETY: `bytes` has `len` bytes.
        let back = unsafe {
            write(given, bytes.as_mut_ptr().cast(), &mut len);
            read(bytes.as_ptr().cast(), len)
        };
        assert_eq!(back, Some(given));
    }

    #[test]
    fn an_address_survives_the_way_to_c_and_back() {
        round_trip("192.0.2.1:443");
        round_trip("[2001:db8::1]:80");
    }

    #[test]
    fn a_short_room_gets_as_much_as_fits_and_the_full_length() {
        let mut bytes = [0xaa_u8; 16];
        let mut len = 4;
        // SAFETY: `bytes` has at least `len` bytes.
        unsafe {
            write("1.2.3.4:258".parse().unwrap(), bytes.as_mut_ptr().cast(), &mut len);
        }
        assert_eq!(len, 16);
        assert_eq!(bytes[2..6], [1, 2, 0xaa, 0xaa]);
    }

    #[test]
    fn what_is_no_internet_address_is_none() {
        let unix = [libc::AF_UNIX as u8, 0, b'x', 0];
        let short = [AF_INET as u8, 0, 0, 80];
        // SAFETY: the lengths are those of the arrays.
        unsafe {
            assert_eq!(read(unix.as_ptr().cast(), 4), None);
            assert_eq!(read(short.as_ptr().cast(), 4), None);
            assert_eq!(read(short.as_ptr().cast(), 1), None);
            assert_eq!(read(ptr::null(), 16), None);
        }
    }
}
