//! A source and a sink that cost as little as a source and a sink can.
//!
//! The content repeats with a period that is no power of two, so that a piece that is missing,
//! doubled or displaced does not compare equal, and comparing costs less than hashing.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use lasthop_kernel::netns::Netns;
use lasthop_lab::client::Client;
use lasthop_units::{Bytes, Duration, Rate, Seed};

use crate::peer::{self, Hosts, Peer};

/// Bytes after which the content repeats: a prime.
const PERIOD: usize = 262_139;
const CHUNK: usize = 128 << 10;
/// Left out at the start.
const SETTLE: Duration = Duration::from_secs(2);
/// What is paced is written so often.
const TICK: Duration = Duration::from_millis(10);
/// How long a connection may take to stand.
const PATIENCE: Duration = Duration::from_secs(20);

/// One period and a chunk more, so that every chunk is one slice of it.
fn pattern() -> Vec<u8> {
    let mut period = vec![0; PERIOD];
    Seed::from_u64(1).stream("pump").fill(&mut period);
    let mut pattern = period.clone();
    pattern.extend(period.iter().cycle().take(CHUNK));
    pattern
}

/// A server that sends without end to whoever connects, to each no faster than `rate` if there is one, until the
/// process ends.
pub(crate) fn start_source(host: &Netns, address: SocketAddr, rate: Option<Rate>) -> Result<()> {
    let listener = host
        .enter(|| TcpListener::bind(address))?
        .with_context(|| format!("listening on {address}"))?;
    let pattern: Arc<[u8]> = pattern().into();
    thread::Builder::new()
        .name("source".into())
        .spawn(move || {
            for stream in listener.incoming().flatten() {
                let pattern = Arc::clone(&pattern);
                // Ends when the connection does.
                thread::spawn(move || drop(send_without_end(stream, &pattern, rate)));
            }
        })
        .context("starting a thread")?;
    Ok(())
}

fn send_without_end(mut stream: TcpStream, pattern: &[u8], rate: Option<Rate>) -> io::Result<()> {
    let each = rate.map_or(CHUNK, |rate| rate.bytes_in(TICK).as_usize().min(CHUNK));
    let (mut at, mut next) = (0, Instant::now());
    loop {
        at = (at + stream.write(&pattern[at..at + each])?) % PERIOD;
        if rate.is_some() {
            next += TICK;
            thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    }
}

/// Connections that receive and compare.
struct Sinks {
    shared: Arc<Shared>,
    tasks: Vec<JoinHandle<bool>>,
}

#[derive(Default)]
struct Shared {
    bytes: AtomicU64,
    stop: AtomicBool,
}

impl Sinks {
    /// Opens `connections` by `client` and receives on all of them.
    fn open(client: &Client, connections: usize) -> Result<Self> {
        let shared = Arc::new(Shared::default());
        let pattern: Arc<[u8]> = pattern().into();
        let mut tasks = Vec::new();
        for _ in 0..connections {
            let stream = client.connect(PATIENCE)?;
            let (shared, pattern) = (Arc::clone(&shared), Arc::clone(&pattern));
            tasks.push(thread::spawn(move || receive(stream, &pattern, &shared)));
        }
        Ok(Sinks { shared, tasks })
    }

    /// Bytes received by all so far.
    fn total(&self) -> u64 {
        self.shared.bytes.load(Ordering::Relaxed)
    }

    /// Whether all still receive.
    fn check(&self) -> Result<()> {
        if self.tasks.iter().any(JoinHandle::is_finished) {
            bail!("a connection ended while it was measured");
        }
        Ok(())
    }

    /// Waits for all to end, now that what carried them is gone; whether every byte was right.
    fn end(self) -> bool {
        self.shared.stop.store(true, Ordering::Relaxed);
        let wrong = |task: JoinHandle<bool>| !task.join().unwrap_or(false);
        self.tasks.into_iter().map(wrong).filter(|wrong| *wrong).count() == 0
    }
}

/// What a peer carried from sources to sinks.
pub(crate) struct Load {
    /// Bytes in the measured part.
    pub(crate) bytes: u64,
    /// How fast that was.
    pub(crate) rate: Rate,
    /// CPU time in it of the peer's process at the base, and of the one at the mobile.
    pub(crate) cpu: [Duration; 2],
    /// Whether every byte was right.
    pub(crate) right: bool,
}

impl Load {
    /// Has `peer` carry without end on so many connections, measured for `span`.
    pub(crate) fn carry(
        hosts: &Hosts,
        peer: &Peer,
        connections: usize,
        span: Duration,
    ) -> Result<Self> {
        start_source(&hosts.fixed, hosts.server, None)?;
        let mut running = peer::start(peer, hosts, 0)?;
        let sinks = Sinks::open(running.client(), connections)?;
        thread::sleep(SETTLE);
        let (from, before, cpu_before) = (Instant::now(), sinks.total(), running.cpu()?);
        thread::sleep(span);
        let (span, bytes, cpu) = (from.elapsed(), sinks.total() - before, running.cpu()?);
        running.check()?;
        sinks.check()?;
        if bytes == 0 {
            bail!("nothing was carried");
        }
        drop(running);
        Ok(Self {
            bytes,
            rate: Rate::of(Bytes::new(bytes), span),
            cpu: [cpu[0] - cpu_before[0], cpu[1] - cpu_before[1]],
            right: sinks.end(),
        })
    }
}

/// Receives until told to stop or the connection ends; false as soon as a byte is wrong.
fn receive(mut stream: TcpStream, pattern: &[u8], shared: &Shared) -> bool {
    let mut buffer = vec![0; CHUNK];
    let mut at = 0;
    while !shared.stop.load(Ordering::Relaxed) {
        // Why a connection ended does not matter here; that it did is noticed by who asks.
        let Ok(read @ 1..) = stream.read(&mut buffer) else { break };
        if buffer[..read] != pattern[at..at + read] {
            return false;
        }
        at = (at + read) % PERIOD;
        shared.bytes.fetch_add(read as u64, Ordering::Relaxed);
    }
    true
}

#[cfg(test)]
mod tests {
    use lasthop_lab::client::Via;

    use super::*;

    #[test]
    fn what_the_source_sends_the_sink_accepts() {
        let here = Netns::current().unwrap();
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        start_source(&here, free, None).unwrap();
        let sinks = Sinks::open(&Client::new(&here, Via::Direct, free), 3).unwrap();
        let deadline = Instant::now() + PATIENCE;
        while sinks.total() < 3_000_000 && Instant::now() < deadline {
            thread::yield_now();
        }
        assert!(sinks.total() >= 3_000_000);
        sinks.check().unwrap();
        assert!(sinks.end());
    }

    #[test]
    fn a_missing_chunk_is_noticed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut far = listener.accept().unwrap().0;
        let pattern = pattern();
        far.write_all(&pattern[..1000]).unwrap();
        far.write_all(&pattern[2000..3000]).unwrap();
        drop(far);
        assert!(!receive(near, &pattern, &Shared::default()));
    }
}
