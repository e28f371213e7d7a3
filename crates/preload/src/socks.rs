//! SOCKS5 as a client speaks it (RFC 1928), without authentication and without names: a program
//! that calls `connect` has an address already.

use core::net::{IpAddr, SocketAddr};

use rustix::io::Errno;

const VERSION: u8 = 5;
const NO_AUTHENTICATION: u8 = 0;
const CONNECT: u8 = 1;
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;

/// The methods offered: none but "no authentication required" (RFC 1928 section 3).
pub(crate) const GREETING: [u8; 3] = [VERSION, 1, NO_AUTHENTICATION];

/// Bytes of a reply that must be read before its length is known.
pub(crate) const REPLY_HEAD: usize = 5;
/// Most bytes that can follow a reply's head: a name of 255 bytes (its length is in the head) and
/// a port.
pub(crate) const REPLY_REST_MAX: usize = 255 + 2;

/// A CONNECT request (RFC 1928 section 4).
pub(crate) struct Request {
    bytes: [u8; 22],
    len: usize,
}

impl Request {
    /// The request for `target`; a v4-mapped address is sent as the IPv4 address it is.
    pub(crate) fn connect(target: SocketAddr) -> Self {
        let mut bytes = [0; 22];
        let port = target.port().to_be_bytes();
        let len = match target.ip().to_canonical() {
            IpAddr::V4(ip) => {
                bytes[..4].copy_from_slice(&[VERSION, CONNECT, 0, IPV4]);
                bytes[4..8].copy_from_slice(&ip.octets());
                bytes[8..10].copy_from_slice(&port);
                10
            }
            IpAddr::V6(ip) => {
                bytes[..4].copy_from_slice(&[VERSION, CONNECT, 0, IPV6]);
                bytes[4..20].copy_from_slice(&ip.octets());
                bytes[20..22].copy_from_slice(&port);
                22
            }
        };
        Request { bytes, len }
    }

    /// What goes on the wire.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&self.bytes)
    }
}

/// The other side's answer, where it is not success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It does not use SOCKS5.
    NotSocks,
    /// It wants an authentication that we do not have.
    WantsAuthentication,
    /// It says why the connection does not stand, as `connect(2)` would.
    Refused(Errno),
}

/// Judges the method that the proxy chose.
pub(crate) fn method(chosen: [u8; 2]) -> Result<(), Answer> {
    match chosen {
        [VERSION, NO_AUTHENTICATION] => Ok(()),
        [VERSION, _] => Err(Answer::WantsAuthentication),
        _ => Err(Answer::NotSocks),
    }
}

/// Judges a reply's head; a yes comes with the number of bytes that still belong to it.
pub(crate) fn reply(head: [u8; REPLY_HEAD]) -> Result<usize, Answer> {
    let [version, code, _, kind, first] = head;
    if version != VERSION {
        return Err(Answer::NotSocks);
    }
    if code != 0 {
        return Err(Answer::Refused(meaning(code)));
    }
    match kind {
        IPV4 => Ok(3 + 2),
        IPV6 => Ok(15 + 2),
        NAME => Ok(usize::from(first) + 2),
        _ => Err(Answer::NotSocks),
    }
}

/// The `errno` of a reply code (RFC 1928 section 6). "TTL expired" is the only code of the nine
/// that a proxy has for a connection that timed out.
fn meaning(code: u8) -> Errno {
    match code {
        2 => Errno::ACCESS,
        3 => Errno::NETUNREACH,
        4 => Errno::HOSTUNREACH,
        5 => Errno::CONNREFUSED,
        6 => Errno::TIMEDOUT,
        7 => Errno::OPNOTSUPP,
        8 => Errno::AFNOSUPPORT,
        _ => Errno::CONNABORTED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_names_the_address_as_rfc_1928_section_4_has_it() {
        let v4 = Request::connect("192.0.2.1:443".parse().unwrap());
        assert_eq!(v4.as_bytes(), [5, 1, 0, 1, 192, 0, 2, 1, 1, 187]);
        let v6 = Request::connect("[2001:db8::1]:80".parse().unwrap());
        assert_eq!(
            v6.as_bytes(),
            [5, 1, 0, 4, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 80]
        );
    }

    #[test]
    fn a_v4_mapped_address_is_asked_for_as_ipv4() {
        let mapped = Request::connect("[::ffff:192.0.2.1]:443".parse().unwrap());
        assert_eq!(mapped.as_bytes(), [5, 1, 0, 1, 192, 0, 2, 1, 1, 187]);
    }

    #[test]
    fn each_reply_code_means_its_errno() {
        let of = |code| reply([5, code, 0, 1, 0]);
        assert_eq!(of(0), Ok(5));
        assert_eq!(of(2), Err(Answer::Refused(Errno::ACCESS)));
        assert_eq!(of(3), Err(Answer::Refused(Errno::NETUNREACH)));
        assert_eq!(of(4), Err(Answer::Refused(Errno::HOSTUNREACH)));
        assert_eq!(of(5), Err(Answer::Refused(Errno::CONNREFUSED)));
        assert_eq!(of(6), Err(Answer::Refused(Errno::TIMEDOUT)));
        assert_eq!(of(255), Err(Answer::Refused(Errno::CONNABORTED)));
    }

    #[test]
    fn a_reply_is_exactly_as_long_as_its_address() {
        assert_eq!(reply([5, 0, 0, 1, 127]), Ok(5));
        assert_eq!(reply([5, 0, 0, 4, 0x20]), Ok(17));
        assert_eq!(reply([5, 0, 0, 3, 11]), Ok(13));
        assert_eq!(reply([5, 0, 0, 9, 0]), Err(Answer::NotSocks));
    }

    #[test]
    fn what_is_not_socks_is_detected() {
        assert_eq!(method(*b"HT"), Err(Answer::NotSocks));
        assert_eq!(method([5, 255]), Err(Answer::WantsAuthentication));
        assert_eq!(reply(*b"HTTP/"), Err(Answer::NotSocks));
    }

    proptest::proptest! {
        #[test]
        fn any_reply_is_bounded(head: [u8; REPLY_HEAD]) {
            if let Ok(rest) = reply(head) {
                proptest::prop_assert!(rest <= REPLY_REST_MAX);
            }
        }
    }
}
