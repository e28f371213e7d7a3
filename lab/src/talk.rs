//! Conversations that no HTTP server holds: both ways at once, and mostly silent.
//!
//! The client's first line says which. `both NAME N`: the server sends the first N bytes of its
//! content and ends its direction, and meanwhile takes what comes, remembered under the name.
//! `lines`: every line is answered by the same line. `paced US N`: the server says N bytes every so many microseconds,
//! each time with their number and when they were due.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::LazyLock;
use std::thread;
use std::time::{Duration, Instant};

use lasthop_kernel::netns::Netns;
use lasthop_units::Seed;

use crate::arrivals::Watched;
use crate::client::{Client, Patient, Stop};
use crate::content::{Content, hex};
use crate::error::LabError;
use crate::service::{Habits, Server, Shared};

const CHUNK: usize = 64 * 1024;
/// Conversations at once.
const MOST: usize = 2048;
/// The longest line.
const LINE: u64 = 4096;
/// How often one who waits looks whether it should stop.
const TICK: Duration = Duration::from_millis(100);
/// A thread of a conversation needs no more.
const STACK: usize = 256 << 10;

/// What the server sends where both speak.
pub fn server_seed(seed: Seed) -> Seed {
    seed.child("server speaks")
}

/// What the client sends where both speak.
pub fn client_seed(seed: Seed) -> Seed {
    seed.child("client speaks")
}

/// Serves on `address` inside `netns`. A client's name is that under which arrives what it says.
///
/// # Errors
///
/// The namespace cannot be entered, or the address cannot be listened on.
pub fn start(netns: &Netns, address: SocketAddr, seed: Seed) -> Result<Server, LabError> {
    Server::start(netns, address, seed, HABITS)
}

/// The same, also for connections of multipath TCP.
///
/// # Errors
///
/// As [`start`], or the kernel has no multipath TCP.
pub fn start_multipath(netns: &Netns, address: SocketAddr, seed: Seed) -> Result<Server, LabError> {
    Server::start(netns, address, seed, Habits { multipath: true, ..HABITS })
}

const HABITS: Habits =
    Habits { name: "talk", most: MOST, stack: Some(STACK), multipath: false, converse };

fn converse(stream: TcpStream, shared: &Shared) -> io::Result<()> {
    let (stream, stop) = (&stream, &Stop::default());
    let mut reader = BufReader::with_capacity(CHUNK, Patient { stream, stop });
    let mut line = String::new();
    (&mut reader).take(LINE).read_line(&mut line)?;
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    match words[..] {
        ["lines"] => answer_lines(reader, stream),
        ["paced", every, length] => {
            let number = |word: &str| word.parse().map_err(|_| io::ErrorKind::InvalidData);
            let every = Duration::from_micros(number(every)?);
            say_paced(stream, Pace { every, length: number(length)? as usize })
        }
        ["both", name, n] => {
            let n = n.parse().map_err(|_| io::ErrorKind::InvalidData)?;
            let heard = shared.arrivals(name);
            thread::scope(|scope| {
                let speak = || say(stream, n, server_seed(shared.seed), stop);
                let speaker =
                    thread::Builder::new().stack_size(STACK).spawn_scoped(scope, speak)?;
                let listened = listen(&mut reader, &heard);
                let spoken = speaker.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()));
                spoken.and(listened.map(drop))
            })
        }
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

fn answer_lines(mut reader: impl BufRead, mut stream: &TcpStream) -> io::Result<()> {
    loop {
        let mut line = Vec::new();
        if (&mut reader).take(LINE).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        stream.write_all(&line)?;
    }
}

/// What a server says that keeps a pace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pace {
    /// How often, whole microseconds.
    pub every: Duration,
    /// How many bytes each time, 17 to 65,536.
    pub length: usize,
}

/// The least that is said each time: a number, a time, and something else.
const LEAST: usize = 17;

/// What times are counted from; both ends are in this process.
static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);

impl Pace {
    /// What is said the `n`th time, when it was due so long after the epoch.
    fn record(self, n: u64, due: Duration) -> Vec<u8> {
        let mut record = vec![n as u8; self.length];
        record[..8].copy_from_slice(&n.to_be_bytes());
        record[8..16].copy_from_slice(&(due.as_nanos() as u64).to_be_bytes());
        record
    }

    pub(crate) fn check(self) -> io::Result<Self> {
        let allowed = (LEAST..=CHUNK).contains(&self.length) && !self.every.is_zero();
        if allowed { Ok(self) } else { Err(io::ErrorKind::InvalidInput.into()) }
    }
}

/// Keeps a pace until the other end is gone. Who is late is not so the next time.
fn say_paced(mut stream: &TcpStream, pace: Pace) -> io::Result<()> {
    let pace = pace.check()?;
    stream.set_nodelay(true)?;
    let mut due = EPOCH.elapsed();
    for n in 0.. {
        thread::sleep(due.saturating_sub(EPOCH.elapsed()));
        stream.write_all(&pace.record(n, due))?;
        due += pace.every;
    }
    Ok(())
}

/// Listens to a server that keeps a pace: how long each of those that were due in the second span, after the first, took
/// to be here in its order, from when it was due on. What has not come is waited for.
///
/// # Errors
///
/// The connection could not be made, broke, brought nothing for as long as `patience`, or something else than was said.
pub fn paced(
    client: &Client,
    pace: Pace,
    (settle, lasting): (Duration, Duration),
    patience: Duration,
) -> Result<Vec<Duration>, LabError> {
    let talk = |e| LabError::io("listening to a pace", e);
    pace.check().map_err(talk)?;
    let stream = client.connect(patience)?;
    let from = EPOCH.elapsed() + settle;
    let request = format!("paced {} {}\n", pace.every.as_micros(), pace.length);
    (&stream).write_all(request.as_bytes()).map_err(talk)?;
    let mut reader = BufReader::with_capacity(CHUNK, &stream);
    let (mut delays, mut record) = (Vec::new(), vec![0; pace.length]);
    for n in 0.. {
        reader.read_exact(&mut record).map_err(talk)?;
        let now = EPOCH.elapsed();
        let nanos = record[8..16].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        let due = Duration::from_nanos(nanos);
        if record != pace.record(n, due) {
            return Err(LabError::Answer { who: "the server", what: format!("not number {n}") });
        }
        if due >= from + lasting {
            break;
        }
        if due >= from {
            delays.push(now.saturating_sub(due));
        }
    }
    Ok(delays)
}

/// Sends the first `n` bytes of the content of `seed`, then the end; less if told to stop.
fn say(stream: &TcpStream, n: u64, seed: Seed, stop: &Stop) -> io::Result<()> {
    Patient { stream, stop }.write_content(n, seed)?;
    stream.shutdown(Shutdown::Write)
}

/// Takes what comes up to its end, or until told to stop.
fn listen(stream: &mut BufReader<Patient<'_>>, heard: &Watched) -> io::Result<()> {
    loop {
        let bytes = stream.fill_buf()?;
        let n = bytes.len();
        if n == 0 {
            return Ok(());
        }
        heard.lock().take(Instant::now(), bytes);
        stream.consume(n);
    }
}

/// How many bytes of content go which way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Amounts {
    /// From the client.
    pub up: u64,
    /// From the server.
    pub down: u64,
}

/// Speaks and listens at once as `name`: each end sends its amount and ends its direction, which the
/// other does not take for the end of the conversation; the client sends less if `stop` is set.
/// What came from the server is in `received`.
///
/// # Errors
///
/// The connection could not be made or broke.
pub fn both(
    client: &Client,
    name: &str,
    amounts: Amounts,
    seed: Seed,
    received: &Watched,
    stop: &Stop,
    patience: Duration,
) -> Result<(), LabError> {
    both_over(&client.connect(patience)?, name, amounts, seed, received, stop)
}

/// The same over a connection that stands.
///
/// # Errors
///
/// It broke.
pub fn both_over(
    mut stream: &TcpStream,
    name: &str,
    amounts: Amounts,
    seed: Seed,
    received: &Watched,
    stop: &Stop,
) -> Result<(), LabError> {
    let talk = |e| LabError::io("talking both ways", e);
    stream.write_all(format!("both {name} {}\n", amounts.down).as_bytes()).map_err(talk)?;
    stream
        .set_write_timeout(Some(TICK))
        .and_then(|()| stream.set_read_timeout(Some(TICK)))
        .map_err(talk)?;
    thread::scope(|scope| {
        let speak = || say(stream, amounts.up, client_seed(seed), stop);
        let speaker = thread::Builder::new().stack_size(STACK).spawn_scoped(scope, speak)?;
        let listened = listen(&mut BufReader::new(Patient { stream, stop }), received);
        let spoken = speaker.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()));
        spoken.and(listened)
    })
    .map_err(talk)
}

/// Says a line every `interval` until `stop` is set, and counts in `received` the answers, each of
/// which must be the line that was said.
///
/// # Errors
///
/// The connection could not be made, broke, or a line came back as another.
pub fn lines(
    client: &Client,
    interval: Duration,
    seed: Seed,
    received: &Watched,
    stop: &Stop,
    patience: Duration,
) -> Result<(), LabError> {
    let stream = client.connect(patience)?;
    let talk = |e| LabError::io("a line now and then", e);
    (&stream).write_all(b"lines\n").map_err(talk)?;
    stream.set_read_timeout(Some(TICK)).map_err(talk)?;
    let mut reader = BufReader::new(Patient { stream: &stream, stop });
    let mut content = Content::new(seed);
    let mut next = Instant::now();
    loop {
        while Instant::now() < next {
            if stop.is_set() {
                return Ok(());
            }
            thread::sleep(next.saturating_duration_since(Instant::now()).min(TICK));
        }
        next += interval;
        let line = line(&mut content);
        (&stream).write_all(&line).map_err(talk)?;
        let mut answer = Vec::new();
        reader.read_until(b'\n', &mut answer).map_err(talk)?;
        if answer != line {
            if stop.is_set() {
                return Ok(());
            }
            if !answer.ends_with(b"\n") {
                return Err(talk(io::ErrorKind::UnexpectedEof.into()));
            }
            let what = format!("`{}` to another line", String::from_utf8_lossy(&answer).trim());
            return Err(LabError::Answer { who: "the server", what });
        }
        received.lock().take(Instant::now(), &answer);
    }
}

/// The next line that belongs to a seed.
fn line(content: &mut Content) -> Vec<u8> {
    let mut bytes = [0; 16];
    content.fill(&mut bytes);
    format!("{}\n", hex(&bytes)).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Via;

    const SEED: Seed = Seed::from_u64(11);
    const PATIENCE: Duration = Duration::from_secs(10);

    fn server() -> (Server, Client) {
        let here = Netns::current().unwrap();
        let server = start(&here, "127.0.0.1:0".parse().unwrap(), SEED).unwrap();
        let client = Client::new(&here, Via::Direct, server.address());
        (server, client)
    }

    #[test]
    fn both_ends_speak_at_once_and_each_hears_the_other_to_the_end() {
        let (server, client) = server();
        let received = Watched::default();
        let amounts = Amounts { up: 1_000_000, down: 10_000 };
        both(&client, "a", amounts, SEED, &received, &Stop::default(), PATIENCE).unwrap();
        let heard = server.arrivals("a");
        for (watched, amount, seed) in
            [(&received, amounts.down, server_seed(SEED)), (&heard, amounts.up, client_seed(SEED))]
        {
            // The server may still be reading the last of what was said.
            let deadline = Instant::now() + PATIENCE;
            while watched.lock().total().get() < amount {
                assert!(Instant::now() < deadline);
                thread::sleep(TICK);
            }
            assert!(watched.lock().is_prefix_of(seed));
        }
    }

    #[test]
    fn a_pace_is_kept() {
        let (_server, client) = server();
        let pace = Pace { every: Duration::from_millis(5), length: 100 };
        let spans = (Duration::from_millis(50), Duration::from_millis(500));
        let delays = paced(&client, pace, spans, PATIENCE).unwrap();
        // Those due in half a second, whenever they came.
        assert!((99..=101).contains(&delays.len()), "{}", delays.len());
        assert!(delays.iter().any(|delay| *delay < pace.every), "{delays:?}");
    }

    #[test]
    fn lines_come_back_until_it_is_enough() {
        let (_server, client) = server();
        let (received, stop) = (Watched::default(), Stop::default());
        let every = Duration::from_millis(1);
        thread::scope(|scope| {
            let task = scope.spawn(|| lines(&client, every, SEED, &received, &stop, PATIENCE));
            let deadline = Instant::now() + PATIENCE;
            while received.lock().total().get() < 3 * 33 {
                assert!(Instant::now() < deadline);
                thread::sleep(TICK / 10);
            }
            stop.set();
            task.join().unwrap().unwrap();
        });
        assert_eq!(received.lock().total().get() % 33, 0);
    }
}
