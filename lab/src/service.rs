//! What the lab's servers have in common: a thread a connection, a bounded number of connections, and
//! what came under a name.

use std::collections::HashMap;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use lasthop_kernel::netns::Netns;
use lasthop_units::Seed;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

use crate::arrivals::Watched;
use crate::error::LabError;

/// Connections that the kernel completes before they are accepted. Std's listeners have 128, and
/// where a burst overflows that, the kernel forgets openings that the client holds for made, and
/// resets them later.
const BACKLOG: i32 = 4096;

/// A server that has nothing to send asks a silent client so often whether it is there: a client that
/// answers with a reset is noticed soon, and one that is away for a minute not missed.
const ALIVE: TcpKeepalive =
    TcpKeepalive::new().with_time(Duration::from_secs(5)).with_interval(Duration::from_secs(10));

/// How a service serves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Habits {
    /// What its threads are called.
    pub(crate) name: &'static str,
    /// Connections at once, and names remembered.
    pub(crate) most: usize,
    /// The stack of a connection's thread, bytes; the usual one if `None`.
    pub(crate) stack: Option<usize>,
    /// Connections may be of multipath TCP.
    pub(crate) multipath: bool,
    /// Serves one connection until it is over.
    pub(crate) converse: fn(TcpStream, &Shared) -> io::Result<()>,
}

/// A server. It stops, and its connections are cut, when this is dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    listener: TcpListener,
    shared: Arc<Shared>,
}

/// What the threads of a service share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Whose content it sends.
    pub(crate) seed: Seed,
    habits: Habits,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    connections: HashMap<u64, TcpStream>,
    accepted: u64,
    arrivals: HashMap<String, Watched>,
}

impl Server {
    /// Listens on `address` inside `netns`; port 0 takes any.
    pub(crate) fn start(
        netns: &Netns,
        address: SocketAddr,
        seed: Seed,
        habits: Habits,
    ) -> Result<Self, LabError> {
        let start = || {
            let listener = match habits.multipath {
                true => listen_multipath(address)?,
                false => TcpListener::bind(address)?,
            };
            Self::serve(listener, seed, habits)
        };
        netns.enter(start)?.map_err(|e| LabError::io(format!("listening on {address}"), e))
    }

    fn serve(listener: TcpListener, seed: Seed, habits: Habits) -> io::Result<Self> {
        // On a listener this changes only the backlog.
        let socket = SockRef::from(&listener);
        socket.listen(BACKLOG)?;
        // Accepted ones have it from there.
        socket.set_tcp_keepalive(&ALIVE)?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared { seed, habits, state: Mutex::default() });
        let (theirs, accepting) = (Arc::clone(&shared), listener.try_clone()?);
        thread::Builder::new()
            .name(format!("{}-accept", habits.name))
            .spawn(move || accept_all(&accepting, &theirs))?;
        Ok(Self { address, listener, shared })
    }

    /// Whose content it sends, and is sent.
    pub fn seed(&self) -> Seed {
        self.shared.seed
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many connections were accepted so far.
    pub fn accepted(&self) -> u64 {
        self.shared.lock().accepted
    }

    /// What arrived, or will arrive, under this name.
    pub fn arrivals(&self, name: &str) -> Watched {
        self.shared.arrivals(name)
    }

    /// As long as this is held, nothing is accepted.
    #[cfg(test)]
    pub(crate) fn hold(&self) -> impl Drop + '_ {
        self.shared.lock()
    }
}

fn listen_multipath(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::MPTCP))?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

impl Drop for Server {
    fn drop(&mut self) {
        // Shutting a listener down wakes the thread in `accept`.
        let _ = SockRef::from(&self.listener).shutdown(Shutdown::Both);
        for stream in self.shared.lock().connections.values() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What arrived, or will arrive, under this name; nobody's if too many names are known.
    pub(crate) fn arrivals(&self, name: &str) -> Watched {
        let mut state = self.lock();
        if state.arrivals.len() >= self.habits.most && !state.arrivals.contains_key(name) {
            return Watched::default();
        }
        state.arrivals.entry(name.to_owned()).or_default().clone()
    }
}

fn accept_all(listener: &TcpListener, shared: &Arc<Shared>) {
    let Habits { name, most, stack, converse, .. } = shared.habits;
    while let Ok((stream, _)) = listener.accept() {
        let Ok(clone) = stream.try_clone() else { continue };
        let id = {
            let mut state = shared.lock();
            if state.connections.len() >= most {
                continue;
            }
            state.accepted += 1;
            let id = state.accepted;
            state.connections.insert(id, clone);
            id
        };
        let theirs = Arc::clone(shared);
        let serve = move || {
            // A client that goes away is its own business.
            let _ = converse(stream, &theirs);
            theirs.lock().connections.remove(&id);
        };
        let thread = thread::Builder::new().name(name.to_owned());
        let thread = stack.into_iter().fold(thread, thread::Builder::stack_size);
        if thread.spawn(serve).is_err() {
            shared.lock().connections.remove(&id);
        }
    }
}
