//! The kernel's TCP/IP, by system calls.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;

use lasthop_kernel::netns::{Netns, NetnsError};

use crate::clock::Whose;
use crate::meter::{MOST, Subject};

/// A connection whose two ends are in one thread: what a send starts has arrived when it returns, so
/// nothing waits and the scheduler has no part in it.
pub(crate) struct InOneThread {
    ends: [TcpStream; 2],
}

impl InOneThread {
    /// Over this machine's loopback.
    pub(crate) fn loopback() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        Self::between(&listener, || TcpStream::connect(address))
    }

    /// Between two namespaces.
    pub(crate) fn across(hosts: &Hosts) -> io::Result<Self> {
        let listener = hosts.listen()?;
        let address = listener.local_addr()?;
        Self::between(&listener, || hosts.connect(address))
    }

    fn between(
        listener: &TcpListener,
        connect: impl FnOnce() -> io::Result<TcpStream>,
    ) -> io::Result<Self> {
        let client = connect()?;
        let (server, _) = listener.accept()?;
        for end in [&client, &server] {
            end.set_nodelay(true)?;
        }
        Ok(Self { ends: [client, server] })
    }
}

impl Subject for InOneThread {
    fn carry(&mut self, from: usize, data: &[u8], out: &mut [u8]) -> Result<(), String> {
        let carried = self.ends[from].write_all(data);
        carried.and_then(|()| self.ends[1 - from].read_exact(out)).map_err(|e| e.to_string())
    }
}

/// A connection whose far end is a thread that sends back what comes: with the scheduler's part.
pub(crate) struct WithEcho {
    near: TcpStream,
}

impl WithEcho {
    /// Between two namespaces. The echoing thread ends with the connection.
    pub(crate) fn across(hosts: &Hosts) -> io::Result<Self> {
        let InOneThread { ends: [near, mut far] } = InOneThread::across(hosts)?;
        thread::Builder::new().name("echo".into()).spawn(move || {
            let mut bytes = [0; MOST];
            while let Ok(n @ 1..) = far.read(&mut bytes) {
                if far.write_all(&bytes[..n]).is_err() {
                    break;
                }
            }
        })?;
        Ok(Self { near })
    }
}

impl Subject for WithEcho {
    fn ping_pong(&mut self, buffer: &mut [u8], times: u32) -> Result<(), String> {
        let mut there_and_back = || {
            self.near.write_all(buffer)?;
            self.near.read_exact(buffer)
        };
        (0..times).try_for_each(|_| there_and_back()).map_err(|e: io::Error| e.to_string())
    }

    fn carry(&mut self, _from: usize, _data: &[u8], _out: &mut [u8]) -> Result<(), String> {
        Err("an echo gives everything back".into())
    }

    fn whose(&self) -> Whose {
        Whose::Process
    }
}

/// Two namespaces joined by a pair of virtual Ethernet interfaces.
pub(crate) struct Hosts {
    pub(crate) near: Netns,
    pub(crate) far: Netns,
}

/// The interfaces' names.
pub(crate) const INTERFACES: [&str; 2] = ["near", "far"];

impl Hosts {
    /// Makes them. Timestamps are off, so that a segment has the paper's 40 bytes of headers and a
    /// buffer of 1460 bytes fits into one.
    pub(crate) fn new() -> Result<Self, NetnsError> {
        let address = |n| IpAddr::from(Ipv4Addr::new(10, 0, 0, n));
        let (near, far) = (Netns::anonymous()?, Netns::anonymous()?);
        near.veth(INTERFACES[0], &far, INTERFACES[1])?;
        near.interface_up(INTERFACES[0], &[(address(1), 24)])?;
        far.interface_up(INTERFACES[1], &[(address(2), 24)])?;
        for host in [&near, &far] {
            host.sysctl("ipv4.tcp_timestamps", "0")?;
            // A kernel without IPv6 has nothing to be kept quiet.
            let _ = host.sysctl("ipv6.conf.all.disable_ipv6", "1");
        }
        Ok(Self { near, far })
    }

    fn listen(&self) -> io::Result<TcpListener> {
        let address = SocketAddr::from((Ipv4Addr::new(10, 0, 0, 2), 0));
        self.far.enter(|| TcpListener::bind(address)).map_err(io::Error::other)?
    }

    fn connect(&self, to: SocketAddr) -> io::Result<TcpStream> {
        self.near.enter(|| TcpStream::connect(to)).map_err(io::Error::other)?
    }
}
