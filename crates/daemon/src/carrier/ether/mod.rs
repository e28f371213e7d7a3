//! Raw Ethernet frames between two interfaces, with no IP: Mobile TCP's own place (MOB-1).
//!
//! Frames of one EtherType pass one `AF_PACKET` socket that is bound to one interface, many in one
//! system call. The kernel's send buffer is kept small: when it is full, what was not taken waits in
//! the transport until the interface has sent. An interface that goes away is looked for until it
//! is back; meanwhile what would be sent is lost, as on a radio that fades.

#[cfg(test)]
mod tests;

use std::io;
use std::time::Duration;

use lasthop_kernel::clock::Clock;
use lasthop_kernel::frames::{Batch, Socket};
use lasthop_kernel::mac::Mac;
use lasthop_kernel::mmsg::{BATCH, Inbox};
use lasthop_kernel::netlink::{Interface, NetlinkError, Rtnetlink};
use lasthop_kernel::reactor::{Interest, Readiness, Token};
use lasthop_kernel::slab::Key;
use lasthop_kernel::turn::Turn;
use lasthop_units::{LinkEvent, Time};
use lasthop_wire::mobile_tcp::{ETHERTYPE, ETHERTYPE_HOP, HOP_LEN_END};
use thiserror::Error;

use crate::carrier::{Carrier, Poll, Route};

/// Calls in one turn; what is left waits for the next.
const CALLS_MAX: usize = 16;
/// Frames that a call asks for while there are few.
const FEW: usize = 4;
/// An interface that is down or gone is looked for this often.
const CHECK_AGAIN: Duration = Duration::from_millis(250);

/// What a frame's payload is (IEEE 802's two EtherTypes for experiments).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Framing {
    /// EtherType 0x88B5: one Mobile TCP packet and nothing added, as in the paper. The packet says
    /// its length itself, so that the padding of a short frame does no harm.
    Bare,
    /// EtherType 0x88B6: a 16-bit length and a hop datagram of that length.
    Sized,
}

impl Framing {
    const fn ethertype(self) -> u16 {
        match self {
            Self::Bare => ETHERTYPE,
            Self::Sized => ETHERTYPE_HOP,
        }
    }

    /// Bytes before the datagram.
    pub(crate) const fn overhead(self) -> usize {
        match self {
            Self::Bare => 0,
            Self::Sized => 2,
        }
    }

    /// The datagram in a frame's payload.
    fn strip(self, payload: &mut [u8]) -> Option<&mut [u8]> {
        match self {
            Self::Bare => Some(payload),
            Self::Sized => {
                let (length, rest) = payload.split_first_chunk_mut::<2>()?;
                let length = u16::from_be_bytes(*length);
                rest.get_mut(..usize::from(length)).filter(|_| length < HOP_LEN_END)
            }
        }
    }
}

/// An interface that cannot carry frames.
#[derive(Debug, Error)]
pub enum EtherError {
    /// There is no interface of that name.
    #[error("there is no interface `{0}` here (see `ip link`)")]
    NoInterface(String),
    /// Raw frames need a privilege.
    #[error("interface `{0}`: raw Ethernet frames need root or CAP_NET_RAW")]
    NotPermitted(String),
    /// The interface has no Ethernet addresses.
    #[error("interface `{0}` is not Ethernet: use carrier = \"udp\" there")]
    NotEthernet(String),
    /// The system refused.
    #[error("interface `{name}`: {doing}: {source}")]
    Io {
        /// The interface.
        name: String,
        /// What was being done.
        doing: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

/// How the interface is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Up,
    Down,
    Gone,
}

fn state(interface: &Interface) -> State {
    if interface.works() { State::Up } else { State::Down }
}

/// One interface, and the frames on their way through it.
pub(crate) struct Ether {
    framing: Framing,
    /// Of the namespace in which the interface is.
    kernel: Rtnetlink,
    socket: Socket,
    interface: Interface,
    state: State,
    watched: Option<(Key, Token)>,
    readable: bool,
    /// Frames that the next call asks for.
    want: usize,
    inbox: Inbox,
    batch: Batch,
    /// When to look at the interface.
    check_at: Option<Time>,
    event: Option<LinkEvent>,
    /// Said once.
    told_too_long: bool,
}

impl Ether {
    /// Opens the interface `name` in the calling thread's network namespace.
    pub(crate) fn open(name: &str, framing: Framing) -> Result<Self, EtherError> {
        let io = |doing| move |source| EtherError::Io { name: name.to_owned(), doing, source };
        let asked = Rtnetlink::open().and_then(|mut kernel| Ok((kernel.interface(name)?, kernel)));
        let (interface, kernel) = asked.map_err(|e| match e {
            NetlinkError::NoInterface(name) => EtherError::NoInterface(name),
            e => io("looking for it")(io::Error::other(e)),
        })?;
        if !interface.ethernet {
            return Err(EtherError::NotEthernet(name.to_owned()));
        }
        let socket =
            Socket::open(framing.ethertype(), interface.index).map_err(|e| match e.kind() {
                io::ErrorKind::PermissionDenied => EtherError::NotPermitted(name.to_owned()),
                _ => io("opening a packet socket")(e),
            })?;
        let state = state(&interface);
        let room = (interface.mtu as usize).max(1500);
        Ok(Self {
            framing,
            kernel,
            socket,
            interface,
            state,
            watched: None,
            readable: false,
            want: FEW,
            inbox: Inbox::new(room, BATCH),
            batch: Batch::new(room),
            check_at: None,
            event: None,
            told_too_long: false,
        })
    }

    /// The longest payload of a frame, as the interface was when it was opened.
    pub(crate) fn mtu(&self) -> usize {
        (self.interface.mtu as usize).min(usize::from(HOP_LEN_END))
    }

    /// The interface's own address.
    fn mac(&self) -> Mac {
        Mac(self.interface.mac.unwrap_or_default())
    }

    /// Queries the interface, and opens it again if it is another one by now.
    fn check_interface(&mut self, turn: &mut Turn<'_>) {
        self.check_at = None;
        let state = match self.kernel.interface(&self.interface.name) {
            Ok(found) if self.socket.bound_to() == Some(found.index) => state(&found),
            Ok(found) if found.ethernet => self.reopen(turn, found),
            Ok(_) | Err(_) => State::Gone,
        };
        self.enter(turn.now, state);
    }

    fn reopen(&mut self, turn: &mut Turn<'_>, found: Interface) -> State {
        let opened = Socket::open(self.framing.ethertype(), found.index);
        let Ok(socket) = opened else { return State::Gone };
        if let Some((key, token)) = self.watched.take() {
            turn.reactor.remove(&self.socket, token);
            match turn.reactor.add(&socket, Interest::Read, turn.source(key)) {
                Ok(token) => self.watched = Some((key, token)),
                Err(_) => return State::Gone,
            }
        }
        (self.socket, self.interface) = (socket, found);
        self.readable = false;
        state(&self.interface)
    }

    fn enter(&mut self, now: Time, state: State) {
        if state != State::Up {
            self.check_at = Some(now + CHECK_AGAIN);
        }
        if state == self.state {
            return;
        }
        let interface = &self.interface.name;
        match state {
            State::Up => tracing::info!(interface, mac = %self.mac(), "interface is up"),
            State::Down => tracing::warn!(interface, "interface is down; waiting for it"),
            State::Gone => tracing::warn!(interface, "interface has gone; waiting for it"),
        }
        let was_up = self.state == State::Up;
        self.state = state;
        if was_up || state == State::Up {
            self.event = Some(if was_up { LinkEvent::Down } else { LinkEvent::Up });
        }
    }

    /// Sends what was polled. False if the kernel would not take it now: it is kept.
    fn flush(&mut self, now: Time) -> bool {
        while self.state == State::Up && !self.batch.is_empty() {
            let Err(error) = self.socket.send(self.batch.frames()).map(|n| self.batch.sent(n))
            else {
                continue;
            };
            match error.raw_os_error() {
                Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => return false,
                Some(libc::EINTR) => {}
                Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV) => {
                    self.check_at = Some(now);
                    self.batch.clear();
                }
                // A frame that the interface does not take is a frame lost.
                _ => {
                    self.log_refusal(&error);
                    self.batch.sent(1);
                }
            }
        }
        self.batch.clear();
        true
    }

    fn log_refusal(&mut self, error: &io::Error) {
        if !std::mem::replace(&mut self.told_too_long, true) {
            tracing::warn!(interface = self.interface.name, %error, "a frame was refused");
        }
    }
}

impl Carrier for Ether {
    fn watch(&mut self, turn: &mut Turn<'_>, keys: &mut dyn FnMut(usize) -> Key) -> io::Result<()> {
        let key = keys(0);
        let token = turn.reactor.add(&self.socket, Interest::Read, turn.source(key))?;
        self.watched = Some((key, token));
        if self.state != State::Up {
            tracing::warn!(interface = self.interface.name, "interface is down; waiting for it");
            self.check_at = Some(turn.now + CHECK_AGAIN);
        }
        Ok(())
    }

    fn ready(&mut self, turn: &mut Turn<'_>, _n: usize, readiness: Readiness) {
        self.readable |= readiness.readable;
        if readiness.ended {
            self.check_interface(turn);
        }
    }

    fn readable(&self) -> bool {
        self.readable
    }

    fn is_blocked(&self) -> bool {
        !self.batch.is_empty()
    }

    fn receive(&mut self, clock: &Clock, take: &mut dyn FnMut(Time, Route, &mut [u8])) {
        for _ in 0..CALLS_MAX {
            if !self.readable {
                return;
            }
            match self.socket.receive(&mut self.inbox, self.want) {
                Ok(0) => self.readable = false,
                // A call that is not filled has emptied the socket, and what comes later is a new
                // event.
                Ok(n) => {
                    self.readable = n == self.want;
                    self.want = if self.readable { BATCH } else { FEW.max(n) };
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                // The interface is down. The call that reports it takes the error away.
                Err(_) => {
                    self.check_at = Some(clock.now());
                    continue;
                }
            }
            let now = clock.now();
            for (payload, sender, truncated) in self.inbox.messages() {
                if let Some(from) = sender.ethernet().filter(|from| !from.is_group() && !truncated)
                    && let Some(datagram) = self.framing.strip(payload)
                {
                    take(now, Route::Ethernet(from), datagram);
                }
            }
        }
    }

    fn send(&mut self, turn: &mut Turn<'_>, poll: &mut Poll<'_>) {
        // What the kernel did not take before goes first.
        while self.flush(turn.now) {
            let framing = self.framing;
            while let Some(room) = self.batch.room() {
                let (head, datagram) = room.split_at_mut(framing.overhead());
                let Some((to, len)) = poll(datagram) else { break };
                if let (Ok(head), Ok(len)) = (<&mut [u8; 2]>::try_from(head), u16::try_from(len)) {
                    *head = len.to_be_bytes();
                }
                if let Route::Ethernet(to) = to {
                    self.batch.push(to, framing.overhead() + len);
                }
            }
            if self.batch.is_empty() {
                return;
            }
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        self.check_at
    }

    fn handle_timeout(&mut self, turn: &mut Turn<'_>) {
        if self.check_at.is_some_and(|at| at <= turn.now) {
            self.check_interface(turn);
        }
    }

    fn poll_link_event(&mut self) -> Option<(usize, LinkEvent)> {
        self.event.take().map(|event| (0, event))
    }

    fn everyone(&self) -> Option<Route> {
        Some(Route::Ethernet(Mac::BROADCAST))
    }

    fn places(&self) -> Vec<String> {
        vec![format!("ether:{}/{}", self.interface.name, self.mac())]
    }

    fn show(&self, route: Route) -> String {
        let mac = if let Route::Ethernet(mac) = route { mac } else { Mac([0; 6]) };
        format!("ether:{}/{mac}", self.interface.name)
    }
}
