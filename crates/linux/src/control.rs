//! The status socket: whoever connects is sent one picture of the process, as JSON, and goodbye.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use serde::{Deserialize, Serialize};

use crate::error::RunError;
use crate::hop::{Source, Turn};
use crate::reactor::Readiness;
use crate::slab::{Key, Slab};
use crate::tcp::{self, Accepted, Moved, Socket};

/// Clients at once; one more is turned away.
const CLIENTS_MAX: usize = 16;

/// A picture of a running base or mobile.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// `base` or `mobile`.
    pub role: String,
    /// The program's version.
    pub version: String,
    /// Seconds since it was started.
    pub uptime_s: f64,
    /// `srp` or `split-tcp`.
    pub hop: String,
    /// One for each mobile, or one for the base.
    pub associations: Vec<AssociationReport>,
    /// Every connection.
    pub connections: Vec<ConnectionReport>,
    /// What happened since the start.
    pub counters: Counters,
}

/// One association. What a hop does not know is absent.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub struct AssociationReport {
    /// Its number in this process.
    pub id: u64,
    /// The peer's public key.
    pub peer: Option<String>,
    /// Where the peer is.
    pub address: Option<String>,
    /// `up`, `silent`, `connecting`, `down` or `closing`.
    pub state: String,
    /// Seconds since it came up.
    pub age_s: f64,
    /// Streams at this moment.
    pub streams: u64,
    /// The rate at which it may send, in bit/s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pacing_bps: Option<u64>,
    /// The rate at which the hop delivers, in bit/s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery_bps: Option<u64>,
    /// The share of what was sent that was lost, of late.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
    /// Smoothed round trip, milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub srtt_ms: Option<f64>,
    /// Least round trip, milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_rtt_ms: Option<f64>,
    /// The round trip beyond its least, milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_ms: Option<f64>,
    /// The longest datagram, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u64>,
    /// Packets sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packets_sent: Option<u64>,
    /// Of which were lost on the way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packets_lost: Option<u64>,
    /// Packets received.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packets_received: Option<u64>,
    /// Application bytes sent to the peer.
    pub bytes_sent: u64,
    /// Application bytes sent again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_retransmitted: Option<u64>,
    /// Application bytes received from the peer.
    pub bytes_received: u64,
}

/// One connection.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ConnectionReport {
    /// Its association.
    pub association: Option<String>,
    /// Its number in the association.
    pub id: Option<u64>,
    /// Where it goes.
    pub target: String,
    /// `opening`, `open`, `sent-end`, `got-end` or `closing`.
    pub state: String,
    /// Bytes from here into the hop.
    pub bytes_to_hop: u64,
    /// Bytes out of the hop.
    pub bytes_from_hop: u64,
    /// Seconds since it was asked for.
    pub age_s: f64,
}

/// Counts since the start.
#[derive(Clone, Copy, Default, Debug, Serialize, Deserialize)]
pub struct Counters {
    /// Connections that stood.
    pub opened: u64,
    /// Connections that were refused or failed.
    pub refused: u64,
    /// Connections that are over.
    pub closed: u64,
    /// Datagrams or hop connections that were no peer's.
    pub garbage: u64,
}

/// Where the socket of `role` is when nobody says.
pub fn default_path(role: &str) -> PathBuf {
    let dir = match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(dir) if !dir.is_empty() => PathBuf::from(dir).join("lasthop"),
        _ => PathBuf::from("/run/lasthop"),
    };
    dir.join(format!("{role}.sock"))
}

/// Asks the process that serves `path` for its picture.
///
/// # Errors
///
/// Nobody serves it, or the answer is not a report.
pub fn query(path: &Path) -> io::Result<Report> {
    let stream = std::os::unix::net::UnixStream::connect(path)?;
    stream.set_read_timeout(Some(std::time::Duration::from_secs(5)))?;
    let text = io::read_to_string(stream)?;
    serde_json::from_str(&text).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
}

/// Serves `path`, or the default place of `role` if nobody chose one; there a socket that cannot be
/// made is no reason to stop.
pub(crate) fn open(path: Option<&Path>, role: &str) -> Result<Option<Control>, RunError> {
    match path {
        Some(path) => Control::bind(path)
            .map(Some)
            .map_err(|source| RunError::Control { path: path.to_owned(), source }),
        None => {
            let path = default_path(role);
            Ok(Control::bind(&path)
                .inspect_err(|error| {
                    tracing::warn!(path = %path.display(), %error, "no status socket");
                })
                .ok())
        }
    }
}

struct Client {
    socket: Socket,
    out: Vec<u8>,
    sent: usize,
}

/// Serves the socket.
pub(crate) struct Control {
    listener: OwnedFd,
    path: PathBuf,
    clients: Slab<Client>,
}

impl Control {
    /// Listens on `path`, which only this user can open. A socket that nobody serves any more is
    /// replaced.
    pub(crate) fn bind(path: &Path) -> io::Result<Self> {
        let address = SocketAddrUnix::new(path)?;
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, "another process serves it"));
        }
        if let Some(dir) = path.parent()
            && !dir.exists()
        {
            use std::os::unix::fs::DirBuilderExt;
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        }
        let is_socket = |path: &Path| {
            use std::os::unix::fs::FileTypeExt;
            std::fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket())
        };
        if is_socket(path) {
            std::fs::remove_file(path)?;
        }
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let listener =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        // The file takes the mode that the socket has when it is bound.
        rustix::fs::fchmod(&listener, Mode::RUSR | Mode::WUSR)?;
        rustix::net::bind(&listener, &address)?;
        rustix::net::listen(&listener, CLIENTS_MAX as i32)?;
        Ok(Self { listener, path: path.to_owned(), clients: Slab::new() })
    }

    /// The listening descriptor.
    pub(crate) fn listener(&self) -> &OwnedFd {
        &self.listener
    }

    /// Somebody connects.
    pub(crate) fn handle_listener(&mut self, turn: &mut Turn<'_>, report: &Report) {
        while let Accepted::Connection(fd, _) = tcp::accept(&self.listener) {
            if self.clients.len() >= CLIENTS_MAX {
                continue;
            }
            let Ok(mut out) = serde_json::to_vec(report) else { continue };
            out.push(b'\n');
            // The source needs the key, and the key the socket: the source is corrected after.
            let Ok(socket) = Socket::new(turn.reactor, fd, Source::Control(None)) else { continue };
            let token = socket.token;
            let key = self.clients.insert(Client { socket, out, sent: 0 });
            turn.reactor.reassign(token, Source::Control(Some(key)));
        }
    }

    /// A client can be written to.
    pub(crate) fn handle_client(&mut self, turn: &mut Turn<'_>, key: Key, readiness: Readiness) {
        let Some(client) = self.clients.get_mut(key) else { return };
        client.socket.ready(readiness);
        let over = loop {
            let rest = client.out.get(client.sent..).unwrap_or_default();
            if rest.is_empty() {
                break true;
            }
            match client.socket.write(rest) {
                Moved::Bytes(n) => client.sent += n,
                Moved::Blocked => break false,
                Moved::End | Moved::Broken(_) => break true,
            }
        };
        if over && let Some(client) = self.clients.remove(key) {
            client.socket.close(turn.reactor, false);
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
