//! The small process that has the privilege (`CAP_NET_ADMIN`, and `CAP_NET_RAW` for announcing): it
//! sets `TCP_REPAIR` on sockets that are passed to it, makes sockets for mobiles' addresses, stops
//! the packets of four-tuples, and has routes and neighbours follow a mobile. It does nothing else,
//! for nobody else and for no other addresses than those that it was given.
//!
//! What it put into the kernel for a client goes when the client goes, in whatever way, and what a
//! helper left that was killed goes at the next start; but a route that leads to the base where a
//! mobile is now stays after a client that did not say goodbye, since connections may live on it.

mod announce;
mod duty;
mod freeze;
mod held;
mod ways;

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lasthop_kernel::accept::{self, Pauses};
use lasthop_kernel::clock::Clock;
use lasthop_kernel::lock::{Lock, LockError};
use lasthop_kernel::network::Network;
use lasthop_kernel::stop::Stop;
use lasthop_units::Time;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use thiserror::Error;

pub(super) use self::announce::forwards;
use self::duty::{Duty, Holdings};
use super::message::{self, Answer, MESSAGE_MAX, Request};

/// Clients at once; one more is turned away.
const CLIENTS_MAX: usize = 16;
/// What a helper that ends has to clean up in, before the next gives up waiting for it.
const SUCCESSION: Duration = Duration::from_secs(3);
/// How long a helper that ends goes on with what clients left that went without a word.
const MOURNING: Duration = Duration::from_secs(1);
/// One process in a network namespace has this role.
const ROLE: &str = "helper";

/// Whom the helper serves, and for what.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Config {
    /// The mobiles' addresses, unicast. It works for no others, and for none if there are none.
    pub addresses: Vec<Network>,
    /// Users who may connect beside root and the helper's own.
    pub users: Vec<u32>,
}

/// Why the helper does not serve.
#[derive(Debug, Error)]
pub enum HelperError {
    /// The path cannot be served.
    #[error("cannot serve {}: {source}", path.display())]
    Path {
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// There is one already.
    #[error(
        "another lasthop helper serves this network namespace; let its client use it, or stop it"
    )]
    Taken,
    /// Whether there is one cannot be found out.
    #[error(transparent)]
    Lock(LockError),
    /// The inherited descriptor is no client.
    #[error("standard input is not a socket to a client: `--inherited` is for lasthop itself")]
    NotInherited,
    /// The kernel refused what the loop cannot do without.
    #[error("the kernel refused: {0}")]
    Kernel(#[from] io::Error),
}

/// The client that started this process, which is at the other end of its standard input.
///
/// # Errors
///
/// No descriptors are left.
pub fn inherited() -> io::Result<OwnedFd> {
    io::stdin().as_fd().try_clone_to_owned()
}

/// Serves the one client at the other end of `socket`, until it goes.
///
/// # Errors
///
/// [`HelperError`].
pub fn serve_client(socket: OwnedFd, config: &Config, stop: &Stop) -> Result<(), HelperError> {
    let kind = rustix::net::sockopt::socket_type(&socket);
    if kind != Ok(SocketType::SEQPACKET) {
        return Err(HelperError::NotInherited);
    }
    rustix::io::ioctl_fionbio(&socket, true).map_err(io::Error::from)?;
    let mut helper = Helper::new(config)?;
    helper.duty.obey();
    helper.clients.push(Client { socket, holdings: Holdings::default(), refusal: None });
    helper.run(None, stop)
}

/// Serves whoever may connect to `path`, until it is stopped. The socket's directory must
/// exist; a socket there that nobody serves is replaced.
///
/// # Errors
///
/// [`HelperError`].
pub fn serve_path(path: &Path, config: &Config, stop: &Stop) -> Result<(), HelperError> {
    let fail = |source| HelperError::Path { path: path.to_owned(), source };
    let mut helper = Helper::new(config)?;
    let listener = listen(path).map_err(fail)?;
    tracing::info!(path = %path.display(), "serving");
    let outcome = helper.run(Some(&listener), stop);
    let _ = fs::remove_file(path);
    outcome
}

/// Anybody may open the path; who connects is checked by its user.
fn listen(path: &Path) -> io::Result<OwnedFd> {
    let address = SocketAddrUnix::new(path)?;
    if fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket()) {
        fs::remove_file(path)?;
    }
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let fd = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    rustix::net::bind(&fd, &address)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o666))?;
    rustix::net::listen(&fd, CLIENTS_MAX as i32)?;
    Ok(fd)
}

struct Client {
    socket: OwnedFd,
    holdings: Holdings,
    /// It is not served: this is the answer to the first thing that it asks.
    refusal: Option<String>,
}

struct Helper {
    users: Vec<u32>,
    duty: Duty,
    clients: Vec<Client>,
    clock: Clock,
    pauses: Pauses,
    /// Until when nobody is accepted, since that could not be done.
    accept_at: Option<Time>,
    buffer: Vec<u8>,
    _lock: Lock,
}

impl Helper {
    fn new(config: &Config) -> Result<Self, HelperError> {
        let lock = Lock::take(ROLE, SUCCESSION).map_err(|error| match error {
            LockError::Taken(_) => HelperError::Taken,
            error => HelperError::Lock(error),
        })?;
        let mut users = vec![0, rustix::process::geteuid().as_raw()];
        users.extend(&config.users);
        Ok(Self {
            users,
            duty: Duty::new(&config.addresses),
            clients: Vec::new(),
            clock: Clock::start(),
            pauses: Pauses::default(),
            accept_at: None,
            buffer: vec![0; MESSAGE_MAX],
            _lock: lock,
        })
    }

    fn run(&mut self, listener: Option<&OwnedFd>, stop: &Stop) -> Result<(), HelperError> {
        while listener.is_some() || !self.clients.is_empty() || self.duty.mourns() {
            self.accept_at.take_if(|at| *at <= self.clock.now());
            let accepting = listener.filter(|_| self.accept_at.is_none());
            let ready = self.wait(accepting, stop)?;
            if ready.stop && stop.take() > 0 {
                break;
            }
            self.duty.handle_timeout();
            // From the back, so that one that goes does not move those still to come.
            for i in ready.clients.into_iter().rev() {
                if !self.serve(i) {
                    let client = self.clients.swap_remove(i);
                    self.duty.clean(client.holdings);
                }
            }
            if let Some(listener) = listener.filter(|_| ready.listener) {
                self.accept(listener);
            }
        }
        for client in self.clients.drain(..) {
            self.duty.clean(client.holdings);
        }
        // Whoever ends both may have ended the client first.
        let until = Instant::now() + MOURNING;
        while self.duty.mourns() && Instant::now() < until {
            std::thread::sleep(self.duty.next_timeout().unwrap_or_default());
            self.duty.handle_timeout();
        }
        Ok(())
    }

    fn wait(&self, listener: Option<&OwnedFd>, stop: &Stop) -> io::Result<Ready> {
        let fds: Vec<BorrowedFd<'_>> = [stop.as_fd()]
            .into_iter()
            .chain(self.clients.iter().map(|client| client.socket.as_fd()))
            .chain(listener.map(AsFd::as_fd))
            .collect();
        let mut polled: Vec<PollFd<'_>> =
            fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
        let rest = self.accept_at.map(|at| at.since(self.clock.now()));
        let next = self.duty.next_timeout().into_iter().chain(rest).min();
        let timeout = next.and_then(|d| Timespec::try_from(d).ok());
        match rustix::event::poll(&mut polled, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        let is_ready = |i: usize| polled.get(i).is_some_and(|p| !p.revents().is_empty());
        let count = self.clients.len();
        Ok(Ready {
            stop: is_ready(0),
            clients: (0..count).filter(|i| is_ready(i + 1)).collect(),
            listener: is_ready(count + 1),
        })
    }

    fn accept(&mut self, listener: &OwnedFd) {
        let last = accept::share(|| accept::accept(listener).map(|(socket, _)| self.admit(socket)));
        self.accept_at = self.pauses.next(self.clock.now(), last);
    }

    fn admit(&mut self, socket: OwnedFd) {
        let user = rustix::net::sockopt::socket_peercred(&socket).map(|who| who.uid.as_raw());
        let known = user.is_ok_and(|user| self.users.contains(&user));
        let refused = self.clients.iter().filter(|client| client.refusal.is_some()).count();
        let served = self.clients.len() - refused;
        let refusal = if !known {
            Some(format!(
                "this user may not ask (`lasthop helper --allow-uid {}` lets it)",
                user.map_or_else(|_| "UID".to_owned(), |user| user.to_string())
            ))
        } else if served >= CLIENTS_MAX {
            Some(format!("{CLIENTS_MAX} clients are served already"))
        } else {
            None
        };
        if refusal.is_some() {
            tracing::warn!(user = user.ok(), "client refused");
            if refused >= CLIENTS_MAX {
                return;
            }
        }
        self.clients.push(Client { socket, holdings: Holdings::default(), refusal });
    }

    /// Does what a client asks for; false when it is over with it.
    fn serve(&mut self, i: usize) -> bool {
        let Some(client) = self.clients.get_mut(i) else { return true };
        let (length, fds) =
            match message::receive(&client.socket, &mut self.buffer, RecvFlags::DONTWAIT) {
                Ok(Some(got)) => got,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return true,
                Ok(None) | Err(_) => return false,
            };
        if let Some(refusal) = client.refusal.take() {
            let answer = Answer::Failed(refusal).encode();
            let _ = message::send(&client.socket, &answer, &[], SendFlags::DONTWAIT);
            return false;
        }
        let request = Request::decode(self.buffer.get(..length).unwrap_or_default());
        let (answer, made) = match request {
            Some(request) => self.duty.perform(&mut client.holdings, request, &fds),
            None => (Answer::Failed("that is no request of this version".into()), Vec::new()),
        };
        // A socket that the client closes next must have no other owner then.
        drop(fds);
        let made: Vec<BorrowedFd<'_>> = made.iter().map(AsFd::as_fd).collect();
        // A client that does not take its answers is none.
        message::send(&client.socket, &answer.encode(), &made, SendFlags::DONTWAIT).is_ok()
    }
}

struct Ready {
    stop: bool,
    clients: Vec<usize>,
    listener: bool,
}
