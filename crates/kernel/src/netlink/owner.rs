//! The inode of a socket, by the addresses of its connection.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use netlink_packet_core::{NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_sock_diag::SockDiagMessage;
use netlink_packet_sock_diag::constants::{AF_INET, AF_INET6, IPPROTO_TCP};
use netlink_packet_sock_diag::inet::{ExtensionFlags, InetRequest, SocketId, StateFlags};
use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_SOCK_DIAG;
use rustix::net::sockopt::{Timeout, set_socket_timeout};

/// How long the kernel may take to answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// Longer than any answer on one socket of which nothing more is asked.
const BUFFER: usize = 4096;
/// Any socket with these addresses (`INET_DIAG_NOCOOKIE`).
const NO_COOKIE: [u8; 8] = [0xff; 8];

/// The two ends of a connection between a program here and us.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ends {
    /// The program's.
    pub client: SocketAddr,
    /// What it has connected to.
    pub server: SocketAddr,
}

/// Asks the kernel whose sockets are whose (sock_diag(7)).
pub struct Owners {
    /// None where the kernel does not tell.
    socket: Option<Socket>,
    sequence: u32,
}

impl Owners {
    /// A kernel that does not tell is asked nothing.
    #[allow(clippy::new_without_default, reason = "it opens a socket")]
    pub fn new() -> Self {
        let socket = open().inspect_err(|error| {
            tracing::info!(%error, "the kernel does not tell which process owns a connection");
        });
        Self { socket: socket.ok(), sequence: 0 }
    }

    /// The inode of the program's own socket; `None` if the program is not on this host, or is gone.
    pub fn inode(&mut self, ends: Ends) -> Option<u64> {
        let socket = self.socket.as_ref()?;
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        (header.flags, header.sequence_number) = (NLM_F_REQUEST, self.sequence);
        let question = SockDiagMessage::InetRequest(question(ends));
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(question));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        socket.send(&bytes, 0).ok()?;
        let mut buffer = vec![0; BUFFER];
        // The answers to questions that took too long may still come first.
        for _ in 0..4 {
            let (length, from) = socket.recv_from(&mut &mut buffer[..], 0).ok()?;
            let answer = NetlinkMessage::<SockDiagMessage>::deserialize(buffer.get(..length)?);
            let (header, payload) = answer.ok()?.into_parts();
            // Only the kernel is believed.
            if from.port_number() != 0 || header.sequence_number != self.sequence {
                continue;
            }
            let NetlinkPayload::InnerMessage(SockDiagMessage::InetResponse(found)) = payload else {
                return None;
            };
            // Where there is no connection the kernel names who listens.
            let connected = found.header.socket_id.destination_port == ends.server.port();
            return Some(u64::from(found.header.inode)).filter(|inode| connected && *inode != 0);
        }
        None
    }
}

fn open() -> io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_SOCK_DIAG)?;
    socket.bind_auto()?;
    set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;
    Ok(socket)
}

fn question(Ends { client, server }: Ends) -> InetRequest {
    let plain = |addr: SocketAddr| addr.ip().to_canonical();
    let socket_id = SocketId {
        source_port: client.port(),
        destination_port: server.port(),
        source_address: plain(client),
        destination_address: plain(server),
        interface_id: 0,
        cookie: NO_COOKIE,
    };
    InetRequest {
        family: if matches!(plain(client), IpAddr::V4(_)) { AF_INET } else { AF_INET6 },
        protocol: IPPROTO_TCP,
        extensions: ExtensionFlags::empty(),
        states: StateFlags::all(),
        socket_id,
    }
}
