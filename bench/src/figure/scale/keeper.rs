//! A server that accepts and keeps, and says nothing.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result};
use lasthop_kernel::reactor::{Interest, Reactor};
use lasthop_units::Duration;

use crate::peer::Hosts;

/// The first of its ports. There are several: an address has a connection from each port of the base at most.
const PORT: u16 = 9000;
const TICK: Duration = Duration::from_millis(50);
/// Connections that the kernel completes before they are accepted.
const BACKLOG: i32 = 4096;

/// A server, until this is dropped.
pub(super) struct Keeper {
    /// Where it listens.
    pub(super) addresses: Vec<SocketAddr>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Listens on so many ports of the fixed host.
    pub(super) fn start(hosts: &Hosts, ports: u16) -> Result<Self> {
        let listen = |port| {
            let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))?;
            listener.set_nonblocking(true)?;
            // Of a socket that listens this changes the backlog.
            rustix::net::listen(&listener, BACKLOG)?;
            Ok(listener)
        };
        let ports = PORT..PORT + ports;
        let addresses = ports.clone().map(|port| (hosts.server.ip(), port).into()).collect();
        let listeners: std::io::Result<Vec<_>> =
            hosts.fixed.enter(|| ports.map(listen).collect())?;
        let listeners = listeners.context("listening at the fixed host")?;
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let mut reactor = Reactor::new().context("making an epoll set")?;
        for (n, listener) in listeners.iter().enumerate() {
            reactor.add(listener.as_fd(), Interest::ReadInShares, n)?;
        }
        let keep = move || keep(&listeners, reactor, &told);
        let thread = thread::Builder::new().name("keeper".into()).spawn(keep);
        Ok(Self { addresses, stop, thread: Some(thread.context("starting a thread")?) })
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn keep(listeners: &[TcpListener], mut reactor: Reactor<usize>, stop: &AtomicBool) {
    let (mut kept, mut ready) = (Vec::<TcpStream>::new(), Vec::new());
    while !stop.load(Ordering::Relaxed) && reactor.wait(Some(TICK), &mut ready).is_ok() {
        for (n, _) in &ready {
            while let Ok((stream, _)) = listeners[*n].accept() {
                kept.push(stream);
            }
        }
    }
}
