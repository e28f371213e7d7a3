//! Network namespaces that vanish with the process.
//!
//! A [`Netns`] is held by a file descriptor and has no name, so nothing is left behind however the
//! process ends: the kernel drops the namespace, its links and its routes with the last descriptor
//! and the last process inside. Links, addresses and routes are set by `ip` (iproute2).

use std::fs::{self, File};
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;

use rustix::thread::{LinkNameSpaceType, UnshareFlags};
use thiserror::Error;

/// Why a namespace could not be made or changed.
#[derive(Debug, Error)]
pub enum NetnsError {
    /// The kernel refuses namespaces to this process.
    #[error("network namespaces are not permitted here (root or CAP_SYS_ADMIN is needed)")]
    NotPermitted(#[source] io::Error),
    /// The `ip` command is not installed.
    #[error("the `ip` command is missing: install iproute2")]
    NoIpCommand,
    /// `ip` refused a line.
    #[error("`ip` refused `{lines}`: {message}")]
    Ip {
        /// Its input.
        lines: String,
        /// Its error output.
        message: String,
    },
    /// A namespace, or something in it, could not be opened or written.
    #[error("{what}: {source}")]
    Io {
        /// What was opened or written.
        what: String,
        /// The system's error.
        source: io::Error,
    },
    /// Not a name that an interface can have.
    #[error("`{0}` cannot be the name of an interface")]
    BadName(String),
}

impl NetnsError {
    /// Whether this host, or this user, has no namespaces.
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Self::NotPermitted(_) | Self::NoIpCommand)
    }

    fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}

/// An address and the length of its prefix.
pub type Prefix = (IpAddr, u8);

/// A network namespace, held open. Clones share it.
#[derive(Clone, Debug)]
pub struct Netns {
    fd: Arc<OwnedFd>,
}

impl Netns {
    /// A new, empty namespace without a name. Its loopback interface is up.
    ///
    /// # Errors
    ///
    /// [`NetnsError::NotPermitted`] without the privilege; [`NetnsError::NoIpCommand`].
    pub fn anonymous() -> Result<Self, NetnsError> {
        let fd = on_a_fresh_thread(|| {
            unshare(UnshareFlags::NEWNET).map_err(NetnsError::NotPermitted)?;
            open_namespace("/proc/thread-self/ns/net".into())
        })??;
        let netns = Self { fd: Arc::new(fd) };
        netns.interface_up("lo", &[])?;
        Ok(netns)
    }

    /// The namespace of the calling thread. Threads that are in it anyway may use it without any
    /// privilege.
    ///
    /// # Errors
    ///
    /// Says what could not be opened.
    pub fn current() -> Result<Self, NetnsError> {
        open_namespace("/proc/thread-self/ns/net".into()).map(|fd| Self { fd: Arc::new(fd) })
    }

    /// A namespace by its name under `/run/netns` (as `ip netns` makes them) or by its path.
    ///
    /// # Errors
    ///
    /// Says what could not be opened.
    pub fn open(name: &str) -> Result<Self, NetnsError> {
        let path = PathBuf::from("/run/netns").join(name);
        open_namespace(path).map(|fd| Self { fd: Arc::new(fd) })
    }

    /// A path by which another process of the same user can reach the namespace while this process
    /// lives, as `nsenter --net=PATH` takes it.
    pub fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.fd.as_raw_fd()).into()
    }

    /// Runs `f` inside the namespace, on a thread of its own, and waits for it. Sockets that `f`
    /// opens belong to the namespace wherever they are used afterwards.
    ///
    /// Children that `f` spawns through [`command`](Self::command) die when `f` returns.
    ///
    /// # Errors
    ///
    /// The namespace cannot be entered, or no thread can be started. A panic of `f` goes on in the
    /// caller.
    pub fn enter<T: Send>(&self, f: impl FnOnce() -> T + Send) -> Result<T, NetnsError> {
        on_a_fresh_thread(|| {
            enter_network(self.fd.as_fd()).map_err(NetnsError::io("entering a namespace"))?;
            Ok(f())
        })?
    }

    /// A command that will run inside the namespace.
    ///
    /// The kernel kills the child when the *thread* that spawned it ends, so that nothing survives
    /// this process: spawn from a thread that lives as long as the child should.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        confine(&mut command, Arc::clone(&self.fd));
        command
    }

    /// Runs `lines` of the `ip` command's language (`ip -batch`), without the word `ip`, inside
    /// the namespace.
    ///
    /// # Errors
    ///
    /// [`NetnsError::NoIpCommand`], or the error of `ip` for the first line that it refused.
    pub fn ip(&self, lines: &str) -> Result<(), NetnsError> {
        let mut child = self
            .command("ip")
            .args(["-batch", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| match e.kind() {
                io::ErrorKind::NotFound => NetnsError::NoIpCommand,
                _ => NetnsError::Io { what: "starting `ip`".into(), source: e },
            })?;
        if let Some(mut stdin) = child.stdin.take() {
            // A line refused closes the pipe; the exit status tells the story then.
            let _ = stdin.write_all(lines.as_bytes());
        }
        let output = child.wait_with_output().map_err(NetnsError::io("waiting for `ip`"))?;
        if output.status.success() {
            return Ok(());
        }
        let message = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
        Err(NetnsError::Ip { lines: lines.trim().replace('\n', "; "), message })
    }

    /// Joins `name` here with `peer_name` in `peer` by a pair of virtual Ethernet interfaces, both
    /// down.
    ///
    /// # Errors
    ///
    /// As [`ip`](Self::ip), or a bad name.
    pub fn veth(&self, name: &str, peer: &Self, peer_name: &str) -> Result<(), NetnsError> {
        check_name(name)?;
        check_name(peer_name)?;
        let path = peer.path();
        self.ip(&format!(
            "link add {name} type veth peer name {peer_name} netns {}\n",
            path.display()
        ))
    }

    /// Gives the interface its addresses and sets it up. IPv6 addresses are usable at once:
    /// neighbours are not resolved first.
    ///
    /// # Errors
    ///
    /// As [`ip`](Self::ip), or a bad name.
    pub fn interface_up(&self, name: &str, addresses: &[Prefix]) -> Result<(), NetnsError> {
        check_name(name)?;
        let mut lines = String::new();
        for (address, length) in addresses {
            let nodad = if address.is_ipv6() { " nodad" } else { "" };
            lines.push_str(&format!("address add {address}/{length} dev {name}{nodad}\n"));
        }
        lines.push_str(&format!("link set dev {name} up\n"));
        self.ip(&lines)
    }

    /// Sends what goes to `to`, or everything if none is given, through `gateway`.
    ///
    /// # Errors
    ///
    /// As [`ip`](Self::ip).
    pub fn route(&self, to: Option<Prefix>, gateway: IpAddr) -> Result<(), NetnsError> {
        let to = match to {
            Some((address, length)) => format!("{address}/{length}"),
            None => "default".into(),
        };
        self.ip(&format!("route add {to} via {gateway}\n"))
    }

    /// Sets a kernel parameter under `net` for this namespace alone: `ipv4.ip_forward`.
    ///
    /// # Errors
    ///
    /// The parameter does not exist, belongs to the whole machine, or refuses the value.
    pub fn sysctl(&self, key: &str, value: &str) -> Result<(), NetnsError> {
        let path = sysctl_path(key);
        let what = format!("setting net.{key} to `{value}`");
        self.enter(|| fs::write(path, value))?.map_err(NetnsError::io(what))
    }

    /// The names of the interfaces in the namespace.
    ///
    /// # Errors
    ///
    /// The kernel's list cannot be read.
    pub fn interfaces(&self) -> Result<Vec<String>, NetnsError> {
        let text = self.enter(|| fs::read_to_string("/proc/thread-self/net/dev"))?;
        let text = text.map_err(NetnsError::io("reading the list of interfaces"))?;
        Ok(text.lines().filter_map(|l| Some(l.split_once(':')?.0.trim().to_owned())).collect())
    }
}

impl AsFd for Netns {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Makes an ordinary user the root of a user namespace of this process's own, in which network
/// namespaces are permitted. Files are reached with the user's own rights, as before.
///
/// # Errors
///
/// The system does not permit it, or the process has more than one thread.
pub fn become_root_of_a_user_namespace() -> Result<(), NetnsError> {
    let user = rustix::process::getuid().as_raw();
    let group = rustix::process::getgid().as_raw();
    unshare(UnshareFlags::NEWUSER).map_err(NetnsError::NotPermitted)?;
    // A group may be mapped only by who gave up changing groups (user_namespaces(7)).
    let files = [
        ("/proc/self/setgroups", "deny".to_owned()),
        ("/proc/self/uid_map", format!("0 {user} 1")),
        ("/proc/self/gid_map", format!("0 {group} 1")),
    ];
    files.into_iter().try_for_each(|(path, text)| {
        fs::write(path, text).map_err(NetnsError::io(format!("writing {path}")))
    })
}

fn open_namespace(path: PathBuf) -> Result<OwnedFd, NetnsError> {
    let what = format!("opening {}", path.display());
    File::open(path).map(OwnedFd::from).map_err(NetnsError::io(what))
}

fn sysctl_path(key: &str) -> PathBuf {
    PathBuf::from("/proc/sys/net").join(key.replace('.', "/"))
}

/// Names reach `ip` as text, so one must not read as anything else.
fn check_name(name: &str) -> Result<(), NetnsError> {
    let good = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    let starts_well = name.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
    if starts_well && name.len() < 16 && name.bytes().all(good) {
        Ok(())
    } else {
        Err(NetnsError::BadName(name.to_owned()))
    }
}

fn on_a_fresh_thread<T: Send>(f: impl FnOnce() -> T + Send) -> Result<T, NetnsError> {
    thread::scope(|scope| {
        let handle = thread::Builder::new()
            .name("netns".into())
            .spawn_scoped(scope, f)
            .map_err(NetnsError::io("starting a thread"))?;
        handle.join().or_else(|panic| resume_unwind(panic))
    })
}

/// Moves this thread into the namespace. Where it is in it already, no privilege is needed.
///
/// Makes system calls only, so that it may run between fork and exec.
fn enter_network(fd: BorrowedFd<'_>) -> io::Result<()> {
    let there = rustix::fs::fstat(fd)?;
    let here = rustix::fs::stat(c"/proc/thread-self/ns/net")?;
    if (here.st_dev, here.st_ino) != (there.st_dev, there.st_ino) {
        rustix::thread::move_into_link_name_space(fd, Some(LinkNameSpaceType::Network))?;
    }
    Ok(())
}

/// Gives this thread, or this process for a user namespace, a new namespace.
#[allow(unsafe_code)]
fn unshare(kind: UnshareFlags) -> io::Result<()> {
    debug_assert!(!kind.intersects(UnshareFlags::FILES | UnshareFlags::FS));
    // SAFETY: neither the descriptor table nor memory that threads share is parted: callers in
    // this file ask for a network or a user namespace only.
    unsafe { rustix::thread::unshare_unsafe(kind) }?;
    Ok(())
}

/// Makes the child enter the namespace, and die with the thread that starts it.
#[allow(unsafe_code)]
fn confine(command: &mut Command, fd: Arc<OwnedFd>) {
    use std::os::unix::process::CommandExt;
    let parent = rustix::process::getpid();
    let prepare = move || {
        enter_network(fd.as_fd())?;
        end_with(parent)
    };
    // SAFETY: between fork and exec the closure makes system calls only; it allocates nothing and
    // takes no lock.
    unsafe { command.pre_exec(prepare) };
}

/// Asks the kernel to kill this process when its parent ends.
///
/// Makes system calls only, so that it may run between fork and exec.
fn end_with(parent: rustix::process::Pid) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    // The parent may have ended before the kernel's request.
    if rustix::process::getppid() == Some(parent) {
        Ok(())
    } else {
        Err(io::ErrorKind::BrokenPipe.into())
    }
}

#[cfg(test)]
impl Netns {
    /// A namespace, or none where tests may not have one, which is said.
    pub(crate) fn for_test() -> Option<Self> {
        lasthop_testing::or_skip(Self::anonymous(), NetnsError::is_unavailable)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_new_namespace_has_only_its_own_loopback() {
        let Some(a) = Netns::for_test() else { return };
        assert_eq!(a.interfaces().unwrap(), ["lo"]);
        let address =
            a.enter(|| TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()).unwrap();
        assert!(TcpStream::connect(address).is_err(), "reached from outside");
    }

    #[test]
    fn tcp_crosses_a_veth_pair_by_both_families() {
        let (Some(a), Some(b)) = (Netns::for_test(), Netns::for_test()) else { return };
        let v6 = |n| IpAddr::from(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n));
        let v4 = |n| IpAddr::from(Ipv4Addr::new(10, 0, 0, n));
        a.veth("left", &b, "right").unwrap();
        a.interface_up("left", &[(v4(1), 24), (v6(1), 64)]).unwrap();
        b.interface_up("right", &[(v4(2), 24), (v6(2), 64)]).unwrap();
        for address in [v4(1), v6(1)] {
            let listener = a.enter(|| TcpListener::bind((address, 0)).unwrap()).unwrap();
            let address = listener.local_addr().unwrap();
            let stream = b.enter(|| TcpStream::connect(address).unwrap()).unwrap();
            let (_, from) = listener.accept().unwrap();
            assert_eq!(from, stream.local_addr().unwrap());
        }
    }

    #[test]
    fn parameters_are_each_namespaces_own() {
        let (Some(a), Some(b)) = (Netns::for_test(), Netns::for_test()) else { return };
        a.sysctl("ipv4.ip_forward", "1").unwrap();
        b.sysctl("ipv4.ip_forward", "0").unwrap();
        let forwards = || fs::read_to_string(sysctl_path("ipv4.ip_forward")).unwrap();
        assert_eq!(
            (a.enter(forwards).unwrap(), b.enter(forwards).unwrap()),
            ("1\n".into(), "0\n".into())
        );
        let e = a.sysctl("ipv4.no_such_thing", "1").unwrap_err().to_string();
        assert!(e.contains("net.ipv4.no_such_thing"), "{e}");
    }

    #[test]
    fn the_refusal_of_ip_is_reported_in_its_words() {
        let Some(a) = Netns::for_test() else { return };
        let e = a.route(None, IpAddr::from(Ipv4Addr::new(10, 9, 9, 9))).unwrap_err().to_string();
        assert!(e.contains("route add default via 10.9.9.9"), "{e}");
    }

    #[test]
    fn a_child_runs_inside_and_dies_with_the_thread_that_started_it() {
        let Some(a) = Netns::for_test() else { return };
        let output = a.command("cat").arg("/proc/self/net/dev").output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout).matches(": ").count(), 1);
        let spawn = || a.command("sleep").arg("60").spawn().unwrap();
        let mut child = thread::scope(|s| s.spawn(spawn).join().unwrap());
        assert!(!child.wait().unwrap().success());
    }

    #[test]
    fn names_that_could_be_read_as_more_are_refused() {
        for bad in ["", "a b", "a\nlink", "-x", "sixteen-letters-", "é"] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
        assert!(check_name("radio0.5").is_ok());
    }
}
