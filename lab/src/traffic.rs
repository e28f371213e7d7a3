//! Connections of every kind, checked byte by byte while they run.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use lasthop_control::choice;
use lasthop_kernel::netns::Netns;
use lasthop_units::{Rate, Seed};
use sha2::{Digest, Sha256};

use crate::arrivals::Watched;
use crate::client::{Client, Stop, Via};
use crate::content::{Content, Sha256Digest};
use crate::error::LabError;
use crate::http;
use crate::service::Server;
use crate::talk::{self, Amounts};
use crate::transfer::{ENDLESS, Task};

/// How often an idle connection says something, unless told otherwise.
const LINE_EVERY: Duration = Duration::from_secs(1);
/// What rates are measured over.
const WINDOW: Duration = Duration::from_millis(500);
const CHUNK: usize = 64 * 1024;

/// What a connection does until it is told to stop.
type Run = Box<dyn FnOnce(&Stop) -> Result<(), LabError> + Send>;

choice! {
    /// A kind of connection.
    pub enum Traffic: "no kind of connection" {
        /// From the server, as fast as it goes.
        Download = "download",
        /// To the server, as fast as it goes.
        Upload = "upload",
        /// Both at once on one connection.
        Both = "both ways",
        /// A line now and then (each second), and its answer, as in a login session.
        Idle = "idle",
    }
}

/// What the connections go to.
#[derive(Debug)]
pub struct Servers {
    /// The HTTP server.
    pub http: Server,
    /// The server for conversations.
    pub talk: Server,
    /// What contents are made of.
    pub seed: Seed,
    /// How often an idle connection says something.
    pub line_every: Duration,
}

impl Servers {
    /// An HTTP server at `http`, and one for conversations at `talk`, in `netns`.
    ///
    /// # Errors
    ///
    /// An address cannot be listened on.
    pub fn start(
        netns: &Netns,
        http: SocketAddr,
        talk: SocketAddr,
        seed: Seed,
    ) -> Result<Self, LabError> {
        let http = http::start(netns, http, seed)?;
        Ok(Self { http, talk: talk::start(netns, talk, seed)?, seed, line_every: LINE_EVERY })
    }

    /// Opens an endless connection of this kind from `netns`, by `via`; `name` tells it from
    /// others.
    ///
    /// # Errors
    ///
    /// No thread can be had.
    pub fn flow(
        &self,
        kind: Traffic,
        name: &str,
        netns: &Netns,
        via: Via,
        patience: Duration,
    ) -> Result<Flow, LabError> {
        let server = match kind {
            Traffic::Download | Traffic::Upload => self.http.address(),
            Traffic::Both | Traffic::Idle => self.talk.address(),
        };
        let client = Client::new(netns, via, server);
        let (seed, every) = (self.seed, self.line_every);
        let (name, received) = (name.replace(' ', "-"), Watched::default());
        let into = received.clone();
        let (ways, run): (_, Run) = match kind {
            Traffic::Download => (
                vec![Way::new("download", received, seed)],
                Box::new(move |stop| client.download(ENDLESS, &into, stop, patience)),
            ),
            Traffic::Upload => (
                vec![Way::new("upload", self.http.arrivals(&name), seed)],
                Box::new(move |stop| client.upload(&name, ENDLESS, seed, stop, patience)),
            ),
            Traffic::Both => (
                vec![
                    Way::new("down", received, talk::server_seed(seed)),
                    Way::new("up", self.talk.arrivals(&name), talk::client_seed(seed)),
                ],
                Box::new(move |stop| {
                    let endless = Amounts { up: ENDLESS, down: ENDLESS };
                    talk::both(&client, &name, endless, seed, &into, stop, patience)
                }),
            ),
            Traffic::Idle => (
                vec![Way { watched: received, expected: None, name: "idle" }],
                Box::new(move |stop| talk::lines(&client, every, seed, &into, stop, patience)),
            ),
        };
        let task = Task::start(&kind.to_string(), run)?;
        Ok(Flow { kind, ways, task, over: None, is_answered_wrongly: false })
    }
}

/// One direction of a connection.
#[derive(Debug)]
struct Way {
    name: &'static str,
    watched: Watched,
    /// What has been expected so far; none where whoever receives compares by itself.
    expected: Option<Expected>,
}

impl Way {
    fn new(name: &'static str, watched: Watched, seed: Seed) -> Self {
        Self { name, watched, expected: Some(Expected::new(seed)) }
    }
}

/// The hash of a growing prefix of a content.
#[derive(Debug)]
struct Expected {
    content: Content,
    hasher: Sha256,
    length: u64,
}

impl Expected {
    fn new(seed: Seed) -> Self {
        Self { content: Content::new(seed), hasher: Sha256::new(), length: 0 }
    }

    /// Of the first `length` bytes, not fewer than the last time.
    fn digest(&mut self, length: u64) -> Sha256Digest {
        let mut buffer = [0; CHUNK];
        while self.length < length {
            let now = (length - self.length).min(CHUNK as u64);
            let bytes = &mut buffer[..now as usize];
            self.content.fill(bytes);
            self.hasher.update(&*bytes);
            self.length += now;
        }
        self.hasher.clone().finalize().into()
    }
}

/// A connection at work.
#[derive(Debug)]
pub struct Flow {
    kind: Traffic,
    ways: Vec<Way>,
    task: Task,
    over: Option<String>,
    /// It is over because an answer was not the right one.
    is_answered_wrongly: bool,
}

impl Flow {
    /// What kind it is.
    pub fn kind(&self) -> Traffic {
        self.kind
    }

    /// Whether each direction has had something from `moment` on.
    pub fn has_moved_since(&self, moment: Instant) -> bool {
        self.ways.iter().all(|way| way.watched.lock().first_from(moment).is_some())
    }

    /// For each direction by its name: how long after `moment` the next byte arrived.
    pub fn waits(&self, moment: Instant) -> Vec<(&'static str, Option<Duration>)> {
        let wait = |way: &Way| {
            let first = way.watched.lock().first_from(moment);
            (way.name, first.map(|first| first - moment))
        };
        self.ways.iter().map(wait).collect()
    }

    /// The rate of late, both directions together.
    pub fn rate(&self, now: Instant) -> Rate {
        let from = now.checked_sub(WINDOW).unwrap_or(now);
        let bytes = self.ways.iter().map(|way| way.watched.lock().between(from, now)).sum();
        Rate::of(bytes, WINDOW)
    }

    /// Bytes that have arrived, both directions together.
    pub fn total(&self) -> u64 {
        self.ways.iter().map(|way| way.watched.lock().total().get()).sum()
    }

    /// Whether, by SHA-256, everything that has arrived is what was sent.
    pub fn sha256_ok(&mut self) -> bool {
        self.ways.iter_mut().all(|way| {
            let Some(expected) = &mut way.expected else { return true };
            let (total, digest) = {
                let received = way.watched.lock();
                (received.total().get(), received.digest())
            };
            expected.digest(total) == digest
        })
    }

    /// Ends it soon, without waiting for that.
    pub fn stop(&self) {
        self.task.stop();
    }

    /// Whether something has arrived that was not sent.
    pub fn is_wrong(&mut self) -> bool {
        let _ = self.failure();
        self.is_answered_wrongly || !self.sha256_ok()
    }

    /// Why it is over; none while it runs.
    pub fn failure(&mut self) -> Option<&str> {
        if self.over.is_none() && self.task.is_over() {
            let error = self.task.join().err();
            self.is_answered_wrongly = matches!(error, Some(LabError::Answer { .. }));
            let why = error.map_or("it ended".to_owned(), |e| e.to_string());
            self.over = Some(format!("{}: {why}", self.kind));
        }
        self.over.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::content::digest_of_prefix;

    #[test]
    fn a_growing_prefix_hashes_as_a_whole_one_does() {
        let seed = Seed::from_u64(4);
        let mut expected = Expected::new(seed);
        for length in [0, 1, 70_000, 70_000, 200_001] {
            assert_eq!(expected.digest(length), digest_of_prefix(seed, length));
        }
    }

    #[test]
    fn every_kind_moves_and_is_right_until_it_is_dropped() {
        let here = Netns::current().unwrap();
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let patience = Duration::from_secs(10);
        let servers = Servers::start(&here, any, any, Seed::from_u64(1)).unwrap();
        let start = Instant::now();
        for kind in Traffic::ALL {
            let mut flow = servers.flow(kind, "x", &here, Via::Direct, patience).unwrap();
            while !flow.has_moved_since(start) {
                assert_eq!(flow.failure(), None);
                assert!(start.elapsed() < patience);
                thread::sleep(Duration::from_millis(5));
            }
            assert!(flow.sha256_ok(), "{kind}");
        }
    }
}
