//! The helper's client.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use lasthop_kernel::network::Network;
use lasthop_kernel::sockopt::{Repair, is_in_repair};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, ipproto,
};

use super::error::MigrateError;
use super::message::{self, Answer, FDS_MAX, FLOWS_MAX, MESSAGE_MAX, Request, SocketRequest};
use super::{Flow, Route, bound_unread};

/// The helper answers within this, or is given up; one that has ended is noticed at once. Usually it
/// takes milliseconds, but changes of packet rules wait for each other in all namespaces of the host,
/// and for every processor. Bases give each other up after twice that.
const PATIENCE: Duration = Duration::from_secs(4);
/// One that was started here and has to put its rules in place first has longer.
const STARTUP: Duration = Duration::from_secs(30);
/// A helper of our own that was sent goodbye has this long to clean up before we go on without it.
const FAREWELL: Duration = Duration::from_secs(2);
const HOLDING: &str = "hold acknowledgements";
/// This program, however it was called and wherever its file has gone.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// The way to the privileged helper. Calls wait for its answer: microseconds for sockets, some
/// milliseconds for what is a change of packet rules; [`Worker`](super::Worker) does that for a loop
/// that must not. One that has ended, or does not answer within 4 s, is given up, and every call fails until it has [come back](Self::recover). What was to stand
/// in the kernel then stands again, and what was to go meanwhile is gone.
#[derive(Debug)]
pub struct Admin {
    socket: OwnedFd,
    child: Option<Child>,
    origin: Option<Origin>,
    buffer: Vec<u8>,
    /// What is guarded.
    guarded: Vec<Network>,
    /// Where packets for addresses go.
    routed: BTreeMap<IpAddr, Route>,
    /// What is answered for, and on which interface.
    announced: BTreeSet<(IpAddr, String)>,
    /// What is frozen here by us.
    frozen: BTreeSet<Flow>,
    /// Addresses whose strays are reset.
    answered: BTreeSet<IpAddr>,
    /// The memory of slots, and the connections that are held by them.
    slots: Option<OwnedFd>,
    held: BTreeMap<Flow, u32>,
    lost: bool,
}

/// Where the helper was had from.
#[derive(Clone, Debug)]
enum Origin {
    /// It was started from here, for these addresses.
    Own(Vec<Network>),
    /// Somebody else starts it, and it serves this path.
    Path(PathBuf),
}

impl Admin {
    /// Starts a helper of our own, which may work for these addresses and no others. It ends, and
    /// everything that it installed goes, when this process ends in whatever way. It is for a base
    /// that has the privilege itself.
    ///
    /// # Errors
    ///
    /// It cannot be started, or says why it will not serve.
    pub fn spawn(networks: &[Network]) -> Result<Self, MigrateError> {
        let program = PathBuf::from(THIS_PROGRAM);
        let fail = |source| MigrateError::Spawn { program: program.clone(), source };
        let (ours, theirs) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .map_err(|e| fail(e.into()))?;
        let mut command = Command::new(&program);
        command.args(["helper", "--inherited"]);
        for network in networks {
            command.arg(format!("--address={network}"));
        }
        // A signal from the terminal is for us: the helper ends when we are done.
        let child = command.stdin(Stdio::from(theirs)).process_group(0).spawn().map_err(fail)?;
        drop(command);
        let mut admin = Self::over(ours)?;
        admin.child = Some(child);
        admin.origin = Some(Origin::Own(networks.to_vec()));
        admin.set_patience(STARTUP)?;
        admin.hello()?;
        admin.set_patience(PATIENCE)?;
        Ok(admin)
    }

    /// Speaks to the helper that serves `path`.
    ///
    /// # Errors
    ///
    /// Nobody serves it, or not us.
    pub fn connect(path: &Path) -> Result<Self, MigrateError> {
        let fail = |source| MigrateError::NoHelper { path: path.to_owned(), source };
        let connect = || -> io::Result<OwnedFd> {
            let address = SocketAddrUnix::new(path)?;
            let socket = rustix::net::socket_with(
                AddressFamily::UNIX,
                SocketType::SEQPACKET,
                SocketFlags::CLOEXEC,
                None,
            )?;
            rustix::net::connect(&socket, &address)?;
            Ok(socket)
        };
        let mut admin = Self::over(connect().map_err(fail)?)?;
        admin.origin = Some(Origin::Path(path.to_owned()));
        match admin.hello() {
            Err(MigrateError::Gone { source, .. }) => Err(fail(source)),
            other => other.map(|()| admin),
        }
    }

    /// Speaks to a helper at the other end of `socket`, of the kind `SOCK_SEQPACKET`.
    pub(super) fn over(socket: OwnedFd) -> Result<Self, MigrateError> {
        let admin = Self {
            socket,
            child: None,
            origin: None,
            buffer: vec![0; MESSAGE_MAX],
            guarded: Vec::new(),
            routed: BTreeMap::new(),
            announced: BTreeSet::new(),
            frozen: BTreeSet::new(),
            answered: BTreeSet::new(),
            slots: None,
            held: BTreeMap::new(),
            lost: false,
        };
        admin.set_patience(PATIENCE)?;
        Ok(admin)
    }

    fn set_patience(&self, patience: Duration) -> Result<(), MigrateError> {
        for timeout in [Timeout::Recv, Timeout::Send] {
            sockopt::set_socket_timeout(&self.socket, timeout, Some(patience)).map_err(|e| {
                MigrateError::kernel("set how long to wait for the helper")(e.into())
            })?;
        }
        Ok(())
    }

    /// Whether the helper has gone, as far as is known.
    pub fn is_gone(&self) -> bool {
        self.lost
    }

    /// Checks whether the helper has gone, which is otherwise found out with the next request.
    pub fn check_helper(&mut self) {
        let mut polled = [PollFd::new(&self.socket, PollFlags::IN)];
        // It sends nothing unrequested but its end.
        let ended = rustix::event::poll(&mut polled, Some(&Timespec::default()));
        self.lost |= matches!(ended, Ok(1..));
    }

    /// Finds a helper in place of the one that has gone, and has it do again all that is to stand.
    ///
    /// # Errors
    ///
    /// There is none, or it does not serve us; it may be tried again.
    pub fn recover(&mut self) -> Result<(), MigrateError> {
        let mut other = match self.origin.clone() {
            Some(Origin::Own(networks)) => {
                // One that only did not answer still has the name that the next one needs.
                if let Some(child) = &mut self.child {
                    let _ = child.kill();
                    let _ = child.wait();
                }
                Self::spawn(&networks)?
            }
            Some(Origin::Path(path)) => Self::connect(&path)?,
            None => {
                let source = io::ErrorKind::NotConnected.into();
                return Err(MigrateError::Gone { doing: "come back", source });
            }
        };
        mem::swap(&mut self.socket, &mut other.socket);
        mem::swap(&mut self.child, &mut other.child);
        // What is dropped here is what has gone.
        other.lost = true;
        drop(other);
        self.lost = false;
        let done = self.restore_standing();
        self.lost |= done.is_err();
        done
    }

    /// Asks for all that is to stand. Without the guard nothing else is of use; a single address
    /// that cannot be had any more is reported, and does not keep the others waiting.
    fn restore_standing(&mut self) -> Result<(), MigrateError> {
        let tell = |outcome| match outcome {
            Err(error @ MigrateError::Refused { .. }) => {
                tracing::warn!(%error, "cannot restore everything that the helper had set up");
                Ok(())
            }
            other => other,
        };
        if !self.guarded.is_empty() {
            // One that somebody else starts may work for less than is wanted by now.
            let refused = match self.origin {
                Some(Origin::Path(_)) => self.permit(&self.guarded.clone())?,
                _ => Vec::new(),
            };
            self.guard_but(&refused)?;
        }
        // Before anything is answered, so that nothing is that may be on its way.
        let frozen: Vec<Flow> = self.frozen.iter().copied().collect();
        self.freeze(&frozen)?;
        for (address, route) in self.routed.clone() {
            tell(self.route(address, route))?;
        }
        for (address, interface) in self.announced.clone() {
            tell(self.announce(address, &interface))?;
        }
        if let Some(slots) = self.slots.take() {
            let held = self.held.iter().map(|(flow, slot)| (*flow, *slot)).collect();
            let done = self.perform_with(HOLDING, &Request::SlotsAgain(held), &[slots.as_fd()]);
            self.slots = Some(slots);
            tell(done)?;
        }
        if self.answered.is_empty() { Ok(()) } else { self.send_answered() }
    }

    /// The memory of slots for connections whose acknowledgements are [held](super::Holding).
    ///
    /// # Errors
    ///
    /// The kernel refuses, or is older than Linux 6.6.
    pub fn slots(&mut self) -> Result<OwnedFd, MigrateError> {
        let (Answer::Done, mut fds) = self.request(HOLDING, &Request::Slots, &[])? else {
            return Err(self.strange(HOLDING));
        };
        let slots = fds.pop().ok_or_else(|| self.strange(HOLDING))?;
        self.slots = Some(slots.try_clone().map_err(MigrateError::kernel(HOLDING))?);
        Ok(slots)
    }

    /// Holds the acknowledgements of a connection that is to be made: by which slot.
    ///
    /// # Errors
    ///
    /// The helper may not use its address, or as many are held as can be.
    pub fn hold(&mut self, flow: Flow) -> Result<u32, MigrateError> {
        let (Answer::Slot(slot), _) = self.request(HOLDING, &Request::Hold(flow), &[])? else {
            return Err(self.strange(HOLDING));
        };
        self.held.insert(flow, slot);
        Ok(slot)
    }

    /// Holds a connection's no longer.
    ///
    /// # Errors
    ///
    /// The kernel refuses.
    pub fn release(&mut self, flow: Flow) -> Result<(), MigrateError> {
        self.held.remove(&flow);
        self.perform("hold acknowledgements no longer", &Request::Release(flow))
    }

    /// A TCP socket that is bound to `local`, whose address need not be this host's: to its port if
    /// that can be had, else to any. It does not block, and the kernel holds little of it unread, so that the
    /// connection can move. Connect it as any other.
    ///
    /// # Errors
    ///
    /// The helper may not use the address, or the kernel refuses.
    pub fn socket(&mut self, local: SocketAddr) -> Result<OwnedFd, MigrateError> {
        let wanted = SocketRequest { local, repair: None };
        let mut sockets = self.sockets(&[wanted])?;
        let missing = io::Error::from(io::ErrorKind::InvalidData);
        let socket = sockets.pop().unwrap_or(Err(missing));
        socket
            .inspect(|fd| bound_unread(fd))
            .map_err(MigrateError::kernel("make a socket for the mobile's address"))
    }

    /// Has packets for sockets of these addresses come to them, and those of any other TCP to these
    /// addresses dropped, so that nobody ever answers one with a reset; but an address whose
    /// [route](Self::route) leads to another base is left alone. They replace those that were
    /// guarded until then.
    ///
    /// # Errors
    ///
    /// The helper may not use an address, or the kernel refuses.
    pub fn guard(&mut self, networks: &[Network]) -> Result<(), MigrateError> {
        self.guarded = networks.to_vec();
        self.guard_but(&[])
    }

    /// Works for `permitted` and no others from here on, if the helper is our own; one that somebody else starts works for what
    /// it was started for. Of those it [guards](Self::guard) the second. Returns those for which it does not work.
    ///
    /// # Errors
    ///
    /// The helper has gone, and does so when it has come back; or the kernel refuses.
    pub fn change(
        &mut self,
        permitted: &[Network],
        guarded: &[Network],
    ) -> Result<Vec<Network>, MigrateError> {
        if let Some(Origin::Own(own)) = &mut self.origin {
            *own = permitted.to_vec();
        }
        self.guarded = guarded.to_vec();
        let answered = self.answered.len();
        self.answered.retain(|address| guarded.iter().any(|n| n.contains(*address)));
        if self.answered.len() < answered {
            self.send_answered()?;
        }
        let refused = self.permit(permitted)?;
        self.guard_but(&refused)?;
        Ok(refused)
    }

    /// Those of these for which the helper does not work.
    fn permit(&mut self, networks: &[Network]) -> Result<Vec<Network>, MigrateError> {
        let (doing, request) = ("work for these addresses", Request::Permit(networks.to_vec()));
        let (errors, _) = self.request_each(doing, &request, &[], networks.len())?;
        let refused = networks.iter().zip(errors).filter(|(_, error)| *error != 0);
        Ok(refused.map(|(network, _)| *network).collect())
    }

    /// Guards what is to be guarded, but for these.
    fn guard_but(&mut self, refused: &[Network]) -> Result<(), MigrateError> {
        let guarded = self.guarded.iter().filter(|network| !refused.contains(network));
        let guarded = guarded.copied().collect();
        self.perform("guard the mobiles' addresses", &Request::Guard(guarded))
    }

    /// Has TCP for this guarded address that meets no socket here answered with a reset: all
    /// connections of the address are here, so it belongs to none. Or has it dropped again, as
    /// freezing any connection of the address does, too.
    ///
    /// # Errors
    ///
    /// The helper may not use the address, nothing is guarded, or the kernel refuses.
    pub fn answer(&mut self, address: IpAddr, answers: bool) -> Result<(), MigrateError> {
        let known = &mut self.answered;
        let changed = if answers { known.insert(address) } else { known.remove(&address) };
        if !changed {
            return Ok(());
        }
        self.send_answered()
    }

    fn send_answered(&mut self) -> Result<(), MigrateError> {
        let addresses = self.answered.iter().copied().collect();
        self.perform("answer strays", &Request::Answer(addresses))
    }

    /// Drops the packets of these connections in both directions, in one step, until they are
    /// thawed, but for 60 s at most. Strays to their addresses are not [answered](Self::answer) any
    /// more.
    ///
    /// # Errors
    ///
    /// The helper may not use an address, or the kernel refuses; then none is frozen that was not.
    pub fn freeze(&mut self, flows: &[Flow]) -> Result<(), MigrateError> {
        for (i, some) in flows.chunks(FLOWS_MAX).enumerate() {
            let done = self.perform("stop packets for a moment", &Request::Freeze(some.to_vec()));
            if done.is_err() && i > 0 {
                let _ = self.thaw(&flows[..i * FLOWS_MAX]);
            }
            done?;
            self.frozen.extend(some);
            some.iter().for_each(|flow| {
                self.answered.remove(&flow.local.ip());
            });
        }
        Ok(())
    }

    /// Lets packets of these connections pass again. Those that are not frozen are no error.
    ///
    /// # Errors
    ///
    /// The kernel refuses.
    pub fn thaw(&mut self, flows: &[Flow]) -> Result<(), MigrateError> {
        let ours: Vec<Flow> = flows.iter().filter(|f| self.frozen.contains(f)).copied().collect();
        // Should the helper go now, what is frozen goes with it or in time, and must not come back.
        for flow in &ours {
            self.frozen.remove(flow);
        }
        for some in ours.chunks(FLOWS_MAX) {
            self.perform("let packets pass again", &Request::Thaw(some.to_vec()))?;
        }
        Ok(())
    }

    /// Sends what is for `address` that way, instead of where it went. TCP for it that another
    /// router gets is not dropped by [`guard`](Self::guard).
    ///
    /// # Errors
    ///
    /// The helper may not use the address, or the kernel refuses.
    pub fn route(&mut self, address: IpAddr, route: Route) -> Result<(), MigrateError> {
        self.routed.insert(address, route.clone());
        let done = self.perform("change a route", &Request::Route(address, route));
        if matches!(done, Err(MigrateError::Refused { .. })) {
            self.routed.remove(&address);
        }
        done
    }

    /// Takes back what [`route`](Self::route) did.
    ///
    /// # Errors
    ///
    /// The kernel refuses.
    pub fn unroute(&mut self, address: IpAddr) -> Result<(), MigrateError> {
        self.routed.remove(&address);
        self.perform("remove a route", &Request::Unroute(address))
    }

    /// Answers for `address` on the segment at `interface`, and tells everybody there.
    ///
    /// # Errors
    ///
    /// The helper may not use the address, there is no such interface, or the kernel refuses.
    pub fn announce(&mut self, address: IpAddr, interface: &str) -> Result<(), MigrateError> {
        let key = (address, interface.to_owned());
        self.announced.insert(key.clone());
        let request = Request::Announce(address, interface.to_owned());
        let done = self.perform("announce an address", &request);
        if matches!(done, Err(MigrateError::Refused { .. })) {
            self.announced.remove(&key);
        }
        done
    }

    /// Answers for `address` no more.
    ///
    /// # Errors
    ///
    /// The kernel refuses.
    pub fn retract(&mut self, address: IpAddr, interface: &str) -> Result<(), MigrateError> {
        self.announced.remove(&(address, interface.to_owned()));
        let request = Request::Retract(address, interface.to_owned());
        self.perform("retract an address", &request)
    }

    /// Sets the mode of sockets: for each the kernel's result.
    pub(super) fn repair(
        &mut self,
        fds: &[BorrowedFd<'_>],
        mode: Repair,
    ) -> Result<Vec<io::Result<()>>, MigrateError> {
        let doing = "use TCP_REPAIR";
        let mut all = Vec::with_capacity(fds.len());
        for some in fds.chunks(FDS_MAX) {
            let (errors, _) = self.request_each(doing, &Request::Repair(mode), some, some.len())?;
            all.extend(errors.into_iter().map(outcome));
        }
        Ok(all)
    }

    /// Makes transparent sockets: for each the socket, or the kernel's error.
    pub(super) fn sockets(
        &mut self,
        wanted: &[SocketRequest],
    ) -> Result<Vec<io::Result<OwnedFd>>, MigrateError> {
        let doing = "make sockets for the mobile's address";
        let mut all = Vec::with_capacity(wanted.len());
        for some in wanted.chunks(FDS_MAX) {
            let request = Request::Sockets(some.to_vec());
            let (errors, fds) = self.request_each(doing, &request, &[], some.len())?;
            let mut fds = fds.into_iter();
            for error in errors {
                let missing = || io::Error::from(io::ErrorKind::InvalidData);
                all.push(outcome(error).and_then(|()| fds.next().ok_or_else(missing)));
            }
        }
        Ok(all)
    }

    /// [`super::probe`].
    pub(super) fn probe(&mut self, address: Option<IpAddr>) -> Result<(), MigrateError> {
        let not_here = |tried: String| MigrateError::NotHere { tried };
        let socket = rustix::net::socket_with(
            AddressFamily::INET,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            Some(ipproto::TCP),
        )
        .map_err(|e| not_here(format!("a TCP socket: {}", io::Error::from(e))))?;
        // A kernel without TCP_REPAIR does not know the option; only one that does asks who may.
        is_in_repair(socket.as_fd()).map_err(|e| {
            not_here(format!("asked this kernel for TCP_REPAIR, which it does not have ({e})"))
        })?;
        if let Some(address) = address {
            let wanted = SocketRequest { local: SocketAddr::new(address, 0), repair: Some((0, 0)) };
            let made = self.sockets(&[wanted]).map_err(|e| not_here(e.to_string()))?;
            made.into_iter().try_for_each(|outcome| outcome.map(drop)).map_err(|e| {
                let need = match e.raw_os_error() {
                    Some(libc::EACCES) => "the helper was not started for it: --address",
                    _ => "the helper needs CAP_NET_ADMIN in this network namespace",
                };
                not_here(format!(
                    "asked the helper for a socket of {address} in TCP_REPAIR: {e} ({need})"
                ))
            })?;
        }
        let nothing = Request::Freeze(Vec::new());
        self.perform("stop packets for a moment", &nothing).map_err(|e| not_here(e.to_string()))
    }

    /// Ends as a killed client does: without a word.
    #[cfg(test)]
    pub(super) fn abandon(&mut self) {
        self.lost = true;
    }

    fn hello(&mut self) -> Result<(), MigrateError> {
        self.perform("serve", &Request::Hello)
    }

    fn perform(&mut self, doing: &'static str, request: &Request) -> Result<(), MigrateError> {
        self.perform_with(doing, request, &[])
    }

    fn perform_with(
        &mut self,
        doing: &'static str,
        request: &Request,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), MigrateError> {
        match self.request(doing, request, fds)? {
            (Answer::Done, _) => Ok(()),
            _ => Err(self.strange(doing)),
        }
    }

    fn request_each(
        &mut self,
        doing: &'static str,
        request: &Request,
        fds: &[BorrowedFd<'_>],
        count: usize,
    ) -> Result<(Vec<i32>, Vec<OwnedFd>), MigrateError> {
        match self.request(doing, request, fds)? {
            (Answer::Each(errors), fds) if errors.len() == count => Ok((errors, fds)),
            _ => Err(self.strange(doing)),
        }
    }

    fn request(
        &mut self,
        doing: &'static str,
        request: &Request,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(Answer, Vec<OwnedFd>), MigrateError> {
        let gone = |source| MigrateError::Gone { doing, source };
        if self.lost {
            return Err(gone(io::ErrorKind::NotConnected.into()));
        }
        match self.exchange(request, fds) {
            Ok((Answer::Failed(said), _)) => Err(MigrateError::Refused { doing, said }),
            Ok(answer) => Ok(answer),
            Err(source) => {
                // An answer may still come, and would be taken for another's.
                self.lost = true;
                Err(gone(source))
            }
        }
    }

    fn exchange(
        &mut self,
        request: &Request,
        fds: &[BorrowedFd<'_>],
    ) -> io::Result<(Answer, Vec<OwnedFd>)> {
        message::send(&self.socket, &request.encode(), fds, SendFlags::empty())?;
        let got = message::receive(&self.socket, &mut self.buffer, RecvFlags::empty());
        let got = got.map_err(|e| match e.kind() {
            io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
            _ => e,
        })?;
        let (length, fds) = got.ok_or(io::ErrorKind::UnexpectedEof)?;
        let answer = Answer::decode(&self.buffer[..length]).ok_or(io::ErrorKind::InvalidData)?;
        Ok((answer, fds))
    }

    fn strange(&mut self, doing: &'static str) -> MigrateError {
        self.lost = true;
        MigrateError::Gone { doing, source: io::ErrorKind::InvalidData.into() }
    }
}

fn outcome(errno: i32) -> io::Result<()> {
    if errno == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(errno)) }
}

/// Readable when the helper has gone.
impl AsFd for Admin {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        if !self.lost {
            let _ = self.perform("clean up", &Request::Goodbye);
        }
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
        let Some(child) = &mut self.child else { return };
        let start = Instant::now();
        while matches!(child.try_wait(), Ok(None)) && start.elapsed() < FAREWELL {
            thread::sleep(Duration::from_millis(1));
        }
    }
}
