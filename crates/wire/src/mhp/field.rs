//! The fields of messages: how each is written and read.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{HostName, MhpError, Refusal, Target};
use crate::varint;

const ADDRESS_IPV4: u8 = 1;
const ADDRESS_IPV6: u8 = 2;
const ADDRESS_NAME: u8 = 3;

/// What messages are made of.
pub(super) trait Field<'a>: Sized {
    /// Appends the field to `out`.
    fn put(&self, out: &mut Vec<u8>);

    /// Reads the field, which is called `what` where the body ends within it.
    fn take(body: &mut Reader<'a>, what: &'static str) -> Result<Self, MhpError>;
}

/// Appends fields, one after the other.
macro_rules! put {
    ($out:expr, $($field:expr),+) => { $($field.put($out);)+ };
}
pub(super) use put;

macro_rules! numbers {
    ($($number:ty)+) => {$(
        impl Field<'_> for $number {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_be_bytes());
            }

            fn take(body: &mut Reader<'_>, what: &'static str) -> Result<Self, MhpError> {
                body.take(what).map(Self::from_be_bytes)
            }
        }
    )+};
}

numbers!(u8 u16 u32 u64);

/// Written only where there is one, and last: a peer that is too old to know of it ends before.
impl<'a, T: Field<'a>> Field<'a> for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        if let Some(field) = self {
            field.put(out);
        }
    }

    fn take(body: &mut Reader<'a>, what: &'static str) -> Result<Self, MhpError> {
        body.take_if(!body.0.is_empty(), what)
    }
}

impl<'a, A: Field<'a>, B: Field<'a>> Field<'a> for (A, B) {
    fn put(&self, out: &mut Vec<u8>) {
        put!(out, self.0, self.1);
    }

    fn take(body: &mut Reader<'a>, what: &'static str) -> Result<Self, MhpError> {
        Ok((A::take(body, what)?, B::take(body, what)?))
    }
}

/// All that is left of the body.
impl<'a> Field<'a> for &'a [u8] {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }

    fn take(body: &mut Reader<'a>, _: &'static str) -> Result<Self, MhpError> {
        Ok(core::mem::take(&mut body.0))
    }
}

impl Field<'_> for Refusal {
    fn put(&self, out: &mut Vec<u8>) {
        put!(out, self.code(), self.detail());
    }

    fn take(body: &mut Reader<'_>, what: &'static str) -> Result<Self, MhpError> {
        Ok(Self::from_code(body.get(what)?, body.get(what)?))
    }
}

impl Field<'_> for SocketAddr {
    fn put(&self, out: &mut Vec<u8>) {
        let kind = if self.is_ipv4() { ADDRESS_IPV4 } else { ADDRESS_IPV6 };
        put!(out, kind, self.port());
        match self.ip() {
            IpAddr::V4(ip) => out.extend_from_slice(&ip.octets()),
            IpAddr::V6(ip) => out.extend_from_slice(&ip.octets()),
        }
    }

    fn take(body: &mut Reader<'_>, what: &'static str) -> Result<Self, MhpError> {
        let kind = body.get(what)?;
        take_addr(body, kind)
    }
}

impl Field<'_> for Target {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Addr(addr) => addr.put(out),
            Self::Name(name, port) => {
                let name = name.as_str().as_bytes();
                // A HostName has at most 255 bytes.
                put!(out, ADDRESS_NAME, port, name.len() as u8, name);
            }
        }
    }

    fn take(body: &mut Reader<'_>, what: &'static str) -> Result<Self, MhpError> {
        let kind = body.get(what)?;
        if kind != ADDRESS_NAME {
            return take_addr(body, kind).map(Self::Addr);
        }
        let port = body.get("port")?;
        let len: u8 = body.get("name length")?;
        let name = body.take_slice(usize::from(len), "name")?;
        Ok(Self::Name(HostName::from_bytes(name)?, port))
    }
}

/// An address whose kind was read.
pub(super) fn take_addr(body: &mut Reader<'_>, kind: u8) -> Result<SocketAddr, MhpError> {
    if !matches!(kind, ADDRESS_IPV4 | ADDRESS_IPV6) {
        return Err(MhpError::Address(kind));
    }
    let port = body.get("port")?;
    let ip: IpAddr = if kind == ADDRESS_IPV4 {
        Ipv4Addr::from(body.take::<4>("IPv4 address")?).into()
    } else {
        Ipv6Addr::from(body.take::<16>("IPv6 address")?).into()
    };
    Ok(SocketAddr::new(ip, port))
}

/// A flag's bit, if it is on.
pub(super) const fn flag(on: bool, bit: u8) -> u8 {
    if on { bit } else { 0 }
}

/// The part of a body that was not read yet.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn take<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], MhpError> {
        let (head, rest) = self.0.split_first_chunk().ok_or(MhpError::Truncated(what))?;
        self.0 = rest;
        Ok(*head)
    }

    pub(super) fn take_slice(
        &mut self,
        n: usize,
        what: &'static str,
    ) -> Result<&'a [u8], MhpError> {
        let (head, rest) = self.0.split_at_checked(n).ok_or(MhpError::Truncated(what))?;
        self.0 = rest;
        Ok(head)
    }

    pub(super) fn take_varint(&mut self, what: &'static str) -> Result<u64, MhpError> {
        let (n, rest) = varint::get(self.0).ok_or(MhpError::Truncated(what))?;
        self.0 = rest;
        Ok(n)
    }

    pub(super) fn get<T: Field<'a>>(&mut self, what: &'static str) -> Result<T, MhpError> {
        T::take(self, what)
    }

    /// The field, if it is there.
    pub(super) fn take_if<T: Field<'a>>(
        &mut self,
        there: bool,
        what: &'static str,
    ) -> Result<Option<T>, MhpError> {
        if there { T::take(self, what).map(Some) } else { Ok(None) }
    }
}
