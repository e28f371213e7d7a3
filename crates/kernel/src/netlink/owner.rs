//! A socket that is found by the addresses of its connection: its inode, and its end.

use std::net::{IpAddr, SocketAddr};

use netlink_sys::protocols::NETLINK_SOCK_DIAG;

use super::channel::Channel;
use super::message::Message;
use super::{NetlinkError, family};

// linux/sock_diag.h
const BY_FAMILY: u16 = 20;
const DESTROY: u16 = 21;
/// Every state that a socket can be in (net/tcp_states.h).
const STATES: u32 = 0xffe;

/// Any socket with these addresses (`INET_DIAG_NOCOOKIE`).
const NO_COOKIE: [u8; 8] = [0xff; 8];

/// The two ends of a connection of a program here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ends {
    /// It is one of UDP, not TCP.
    pub udp: bool,
    /// The program's.
    pub client: SocketAddr,
    /// What it has connected to.
    pub server: SocketAddr,
}

impl Ends {
    /// Those of a TCP connection.
    pub const fn tcp(client: SocketAddr, server: SocketAddr) -> Self {
        Self { udp: false, client, server }
    }
}

/// Asks the kernel whose sockets are whose (sock_diag(7)). It holds nothing where the kernel does not tell.
pub struct Owners(Option<Channel>);

impl Owners {
    /// A kernel that does not answer is queried no more.
    #[allow(clippy::new_without_default, reason = "it opens a socket")]
    pub fn new() -> Self {
        let channel = Channel::open(NETLINK_SOCK_DIAG).inspect_err(|error| {
            tracing::info!(%error, "the kernel does not tell which process owns a connection");
        });
        Self(channel.ok())
    }

    /// The inode of the program's own socket; `None` if the program is not on this host, or is gone.
    pub fn inode(&mut self, ends: Ends) -> Option<u64> {
        let what = || "find whose a connection is".to_owned();
        let found = self.0.as_mut()?.query(question(BY_FAMILY, ends), &what).ok()?;
        let (port, inode) = parse_socket(&found)?;
        // Where there is no connection the kernel names who listens. A socket of UDP has one seldom.
        let is_meant = port == ends.server.port() || (ends.udp && port == 0);
        Some(u64::from(inode)).filter(|inode| is_meant && *inode != 0)
    }
}

/// Ends sockets of TCP, whoever has them, also those that nobody has any more and that the kernel is still closing.
pub struct Destroyer(Channel);

impl Destroyer {
    /// One for the calling thread's network namespace.
    ///
    /// # Errors
    ///
    /// There is no netlink socket to be had.
    pub fn open() -> Result<Self, NetlinkError> {
        Channel::open(NETLINK_SOCK_DIAG).map(Self)
    }

    /// Ends the socket of that connection as a reset by its owner would; false if there is none.
    ///
    /// # Errors
    ///
    /// No permission (CAP_NET_ADMIN), or a kernel without CONFIG_INET_DIAG_DESTROY.
    pub fn destroy(&mut self, ends: Ends) -> Result<bool, NetlinkError> {
        let what = || format!("end the connection from {} to {}", ends.client, ends.server);
        match self.0.order(question(DESTROY, ends), 0, &what) {
            Ok(()) => Ok(true),
            Err(error) if error.is_absent() => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn question(kind: u16, Ends { client, server, udp }: Ends) -> Message {
    let plain = |addr: SocketAddr| addr.ip().to_canonical();
    let address = |addr: SocketAddr| {
        let mut words = [0; 16];
        match plain(addr) {
            IpAddr::V4(ip) => words[..4].copy_from_slice(&ip.octets()),
            IpAddr::V6(ip) => words = ip.octets(),
        }
        words
    };
    // Of UDP the kernel takes the two ends the other way round (udp_dump_one).
    let (protocol, first, second) = match udp {
        true => (libc::IPPROTO_UDP, server, client),
        false => (libc::IPPROTO_TCP, client, server),
    };
    // struct inet_diag_req_v2: family, protocol, what more is asked, padding, states; and struct
    // inet_diag_sockid: ports, addresses, interface, cookie
    let fields = [
        &[family(plain(client).is_ipv6()), protocol as u8, 0, 0][..],
        &STATES.to_ne_bytes(),
        &first.port().to_be_bytes(),
        &second.port().to_be_bytes(),
        &address(first),
        &address(second),
        &[0; 4],
        &NO_COOKIE,
    ];
    Message::new(kind, &fields.concat())
}

/// The peer's port and the inode, of struct inet_diag_msg: family, state, timer, retransmissions, the
/// socket's name as above, and, after four other numbers, the inode.
pub(super) fn parse_socket(message: &Message) -> Option<(u16, u32)> {
    let (fields, _) = message.parts::<72>()?;
    let [_, _, _, _, _, _, a, b, .., c, d, e, f] = *fields;
    (message.kind == BY_FAMILY)
        .then_some((u16::from_be_bytes([a, b]), u32::from_ne_bytes([c, d, e, f])))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_socket_is_found_by_its_addresses_and_a_listener_is_no_connection() {
        for any in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(any) else { continue };
            let server = listener.local_addr().unwrap();
            let stream = TcpStream::connect(server).unwrap();
            let client = stream.local_addr().unwrap();
            let mut owners = Owners::new();
            let Some(inode) = owners.inode(Ends::tcp(client, server)) else {
                return println!("skipped: this kernel does not tell whose a socket is");
            };
            assert_eq!(inode, rustix::fs::fstat(stream.as_fd()).unwrap().st_ino);
            let nobody = SocketAddr::new(server.ip(), 1);
            assert_eq!(owners.inode(Ends::tcp(server, nobody)), None);
        }
    }

    #[test]
    fn a_socket_of_udp_is_found_whether_it_is_connected_or_not() {
        for (any, to) in
            [("127.0.0.1:0", "127.0.0.1:9"), ("[::]:0", "[::1]:9"), ("0.0.0.0:0", "127.0.0.1:9")]
        {
            let Ok(socket) = UdpSocket::bind(any) else { continue };
            let server: SocketAddr = to.parse().unwrap();
            let client = SocketAddr::new(server.ip(), socket.local_addr().unwrap().port());
            for connected in [false, true] {
                if connected {
                    socket.connect(server).unwrap();
                }
                let found = Owners::new().inode(Ends { udp: true, client, server });
                assert_eq!(
                    found,
                    Some(rustix::fs::fstat(socket.as_fd()).unwrap().st_ino),
                    "{any} {connected}"
                );
            }
            let free = SocketAddr::new(server.ip(), 1);
            assert_eq!(Owners::new().inode(Ends { udp: true, client: free, server }), None);
        }
    }

    #[test]
    fn a_socket_is_ended_by_its_addresses_and_then_there_is_none() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = listener.local_addr().unwrap();
        let stream = TcpStream::connect(server).unwrap();
        let ends = Ends::tcp(stream.local_addr().unwrap(), server);
        let mut destroyer = Destroyer::open().unwrap();
        match destroyer.destroy(ends) {
            Err(error) => return println!("skipped: {error}"),
            Ok(ended) => assert!(ended),
        }
        let error = std::io::Read::read(&mut &stream, &mut [0]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionAborted);
        drop(stream);
        assert!(!destroyer.destroy(ends).unwrap());
    }

    #[test]
    fn an_answer_that_is_cut_off_names_no_socket() {
        let mut bytes = [0; 72];
        bytes[6..8].copy_from_slice(&443_u16.to_be_bytes());
        bytes[68..].copy_from_slice(&7_u32.to_ne_bytes());
        assert_eq!(parse_socket(&Message::new(BY_FAMILY, &bytes)), Some((443, 7)));
        assert_eq!(parse_socket(&Message::new(BY_FAMILY + 1, &bytes)), None);
        for length in 0..bytes.len() {
            assert_eq!(parse_socket(&Message::new(BY_FAMILY, &bytes[..length])), None);
        }
    }
}
