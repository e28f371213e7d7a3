//! Numbers, addresses and byte strings as images and the helper's messages have them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Takes apart what somebody sent; nothing when it is too short or makes no sense.
#[derive(Clone, Debug)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (first, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(first)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_be_bytes)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(super) fn i32(&mut self) -> Option<i32> {
        self.array().map(i32::from_be_bytes)
    }

    /// A byte string behind its length (4 bytes), which may be `longest`.
    pub(super) fn string(&mut self, longest: usize) -> Option<&'a [u8]> {
        let length = usize::try_from(self.u32()?).ok().filter(|&length| length <= longest)?;
        self.bytes(length)
    }

    pub(super) fn ip(&mut self) -> Option<IpAddr> {
        match self.u8()? {
            4 => self.array().map(|octets: [u8; 4]| Ipv4Addr::from(octets).into()),
            6 => self.array().map(|octets: [u8; 16]| Ipv6Addr::from(octets).into()),
            _ => None,
        }
    }

    pub(super) fn address(&mut self) -> Option<SocketAddr> {
        Some(SocketAddr::new(self.ip()?, self.u16()?))
    }
}

pub(super) fn put_u16(out: &mut Vec<u8>, n: u16) {
    out.extend_from_slice(&n.to_be_bytes());
}

pub(super) fn put_u32(out: &mut Vec<u8>, n: u32) {
    out.extend_from_slice(&n.to_be_bytes());
}

pub(super) fn put_string(out: &mut Vec<u8>, bytes: &[u8]) {
    put_u32(out, bytes.len() as u32);
    out.extend_from_slice(bytes);
}

pub(super) fn put_ip(out: &mut Vec<u8>, ip: IpAddr) {
    match ip {
        IpAddr::V4(ip) => {
            out.push(4);
            out.extend_from_slice(&ip.octets());
        }
        IpAddr::V6(ip) => {
            out.push(6);
            out.extend_from_slice(&ip.octets());
        }
    }
}

pub(super) fn put_address(out: &mut Vec<u8>, address: SocketAddr) {
    put_ip(out, address.ip());
    put_u16(out, address.port());
}
