//! A measuring HTTP client: straight to the server, or through a SOCKS5 proxy.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lasthop_kernel::netns::Netns;
use lasthop_session::socks::{self, ClientProgress};
use lasthop_units::Seed;
use lasthop_wire::mhp::Target;
use socket2::{Domain, Protocol, Socket, Type};

use crate::arrivals::Watched;
use crate::content::Content;
use crate::error::LabError;

/// How often a waiting transfer looks whether it should stop.
const TICK: Duration = Duration::from_millis(50);
const CHUNK: usize = 64 * 1024;

/// The way to the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Via {
    /// The kernel's TCP, straight.
    Direct,
    /// The kernel's multipath TCP (RFC 8684), straight.
    Multipath,
    /// The SOCKS5 proxy (RFC 1928, without authentication) at this address.
    Socks5(SocketAddr),
}

/// Tells transfers to stop. Clones are one.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// From here on, transfers that hold this end.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// The flag behind it, for a signal handler to set.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }

    /// Whether it was set.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A client inside a namespace.
#[derive(Clone, Debug)]
pub struct Client {
    netns: Netns,
    via: Via,
    server: SocketAddr,
    window: Option<u32>,
}

impl Client {
    /// A client in `netns` that reaches `server` by `via`.
    pub fn new(netns: &Netns, via: Via, server: SocketAddr) -> Self {
        Self { netns: netns.clone(), via, server, window: None }
    }

    /// Offers a window of so many bytes at most while it downloads.
    #[must_use]
    pub fn with_window(self, window: Option<u32>) -> Self {
        Self { window, ..self }
    }

    /// A connection to the server, which stands or failed within `patience`.
    ///
    /// # Errors
    ///
    /// What the system or the proxy said.
    pub fn connect(&self, patience: Duration) -> Result<TcpStream, LabError> {
        let to = match self.via {
            Via::Direct | Via::Multipath => self.server,
            Via::Socks5(proxy) => proxy,
        };
        let what = format!("connecting to {to}");
        let stream = self
            .netns
            .enter(|| match self.via {
                Via::Multipath => connect_multipath(to, patience),
                Via::Direct | Via::Socks5(_) => TcpStream::connect_timeout(&to, patience),
            })?
            .and_then(|s| s.set_read_timeout(Some(patience)).map(|()| s))
            .map_err(|e| LabError::io(what, e))?;
        if let Via::Socks5(_) = self.via {
            socks5_connect(&stream, self.server)?;
        }
        Ok(stream)
    }

    /// Downloads `/bytes/N` into `received` until it is all here or `stop` is set.
    ///
    /// # Errors
    ///
    /// The connection could not be made, broke, or brought something other than the content.
    pub fn download(
        &self,
        n: u64,
        received: &Watched,
        stop: &Stop,
        patience: Duration,
    ) -> Result<(), LabError> {
        let stream = self.connect(patience)?;
        let request = format!(
            "GET /bytes/{n} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
            self.server
        );
        (&stream)
            .write_all(request.as_bytes())
            .map_err(|e| LabError::io("sending the request", e))?;
        stream.set_read_timeout(Some(TICK)).map_err(|e| LabError::io("setting a timeout", e))?;
        let mut reader = BufReader::with_capacity(CHUNK, Patient { stream: &stream, stop });
        let reading = |e| LabError::io("reading the answer", e);
        if stop.is_set() || !read_answer(&mut reader, stop)? {
            return Ok(());
        }
        let mut left = n;
        while left > 0 {
            let bytes = reader.fill_buf().map_err(reading)?;
            let got = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            if got == 0 {
                return if stop.is_set() {
                    Ok(())
                } else {
                    Err(reading(io::ErrorKind::UnexpectedEof.into()))
                };
            }
            received.lock().take(Instant::now(), &bytes[..got]);
            reader.consume(got);
            left -= got as u64;
            if let Some(window) = self.window {
                let clamped = lasthop_kernel::tcp::clamp_window(&stream, window);
                clamped.map_err(|e| LabError::io("bounding a window", e))?;
            }
        }
        Ok(())
    }

    /// Uploads the first `n` bytes of the content of `seed` to `/upload/NAME` until they are all
    /// sent and acknowledged, or `stop` is set. What arrived is known at the server.
    ///
    /// # Errors
    ///
    /// The connection could not be made or broke, or the server did not say 200.
    pub fn upload(
        &self,
        name: &str,
        n: u64,
        seed: Seed,
        stop: &Stop,
        patience: Duration,
    ) -> Result<(), LabError> {
        let stream = self.connect(patience)?;
        let timeouts =
            stream.set_read_timeout(Some(TICK)).and_then(|()| stream.set_write_timeout(Some(TICK)));
        timeouts.map_err(|e| LabError::io("setting a timeout", e))?;
        let mut patient = Patient { stream: &stream, stop };
        let sending = |e| LabError::io("sending the upload", e);
        let request = format!(
            "PUT /upload/{name} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\
             Content-Length: {n}\r\n\r\n",
            self.server
        );
        let head = patient.write_or_stop(request.as_bytes()).map_err(sending)?;
        if head && patient.write_content(n, seed).map_err(sending)? {
            read_answer(&mut BufReader::new(patient), stop)?;
        }
        Ok(())
    }
}

fn connect_multipath(to: SocketAddr, patience: Duration) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::MPTCP))?;
    socket.connect_timeout(&to.into(), patience)?;
    Ok(socket.into())
}

/// A stream with short timeouts that goes on trying until it is told to stop.
pub(crate) struct Patient<'a> {
    pub(crate) stream: &'a TcpStream,
    pub(crate) stop: &'a Stop,
}

impl Patient<'_> {
    /// False if told to stop before everything was written.
    fn write_or_stop(&mut self, mut bytes: &[u8]) -> io::Result<bool> {
        while !bytes.is_empty() {
            if self.stop.is_set() {
                return Ok(false);
            }
            match self.stream.write(bytes) {
                Ok(n) => bytes = &bytes[n..],
                Err(e) if is_timeout(&e) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(true)
    }

    /// Writes the first `n` bytes of the content of `seed`; false if told to stop before.
    pub(crate) fn write_content(&mut self, n: u64, seed: Seed) -> io::Result<bool> {
        let mut content = Content::new(seed);
        let mut buffer = vec![0; CHUNK];
        let mut left = n;
        while left > 0 {
            let now = left.min(CHUNK as u64) as usize;
            content.fill(&mut buffer[..now]);
            if !self.write_or_stop(&buffer[..now])? {
                return Ok(false);
            }
            left -= now as u64;
        }
        Ok(true)
    }
}

/// Reads as if the stream ended where it was told to stop.
impl Read for Patient<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while !self.stop.is_set() {
            match self.stream.read(out) {
                Err(e) if is_timeout(&e) => {}
                other => return other,
            }
        }
        Ok(0)
    }
}

fn is_timeout(e: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(e.kind(), WouldBlock | TimedOut | Interrupted)
}

/// Reads the head of an answer that must say 200; false if told to stop first.
fn read_answer(reader: &mut impl BufRead, stop: &Stop) -> Result<bool, LabError> {
    let mut status = String::new();
    loop {
        let mut line = String::new();
        let n = reader.read_line(&mut line).map_err(|e| LabError::io("reading the answer", e))?;
        if stop.is_set() {
            return Ok(false);
        }
        if n == 0 {
            let e = io::ErrorKind::UnexpectedEof.into();
            return Err(LabError::io("reading the answer", e));
        }
        if status.is_empty() {
            status = line.trim().to_owned();
        } else if line.trim().is_empty() {
            break;
        }
    }
    if status.split_ascii_whitespace().nth(1) == Some("200") {
        Ok(true)
    } else {
        Err(LabError::Answer { who: "the server", what: status })
    }
}

/// Asks the proxy at the other end of `stream` for a connection.
fn socks5_connect(mut stream: &TcpStream, to: SocketAddr) -> Result<(), LabError> {
    let talking = |e| LabError::io("talking to the SOCKS5 proxy", e);
    let mut asking = socks::Client::new(Target::Addr(to));
    loop {
        let output = asking.output();
        stream.write_all(output).map_err(talking)?;
        asking.sent(output.len());
        // No more than belongs to the conversation: what follows is the server's.
        let mut byte = [0];
        stream.read_exact(&mut byte).map_err(talking)?;
        match asking.handle_input(&byte).1 {
            ClientProgress::NeedMore => {}
            ClientProgress::Connected(_) => return Ok(()),
            ClientProgress::Failed(why) => {
                return Err(LabError::Answer { who: "the SOCKS5 proxy", what: why.to_string() });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;
    use crate::http;
    use crate::service::Server;

    const SEED: Seed = Seed::from_u64(5);
    const PATIENCE: Duration = Duration::from_secs(10);

    fn server() -> Server {
        http::start(&Netns::current().unwrap(), "127.0.0.1:0".parse().unwrap(), SEED).unwrap()
    }

    fn client(server: SocketAddr, via: Via) -> Client {
        Client::new(&Netns::current().unwrap(), via, server)
    }

    #[test]
    fn a_download_is_whole_and_right() {
        let server = server();
        let (received, stop) = (Watched::default(), Stop::default());
        client(server.address(), Via::Direct)
            .download(1_000_000, &received, &stop, PATIENCE)
            .unwrap();
        assert_eq!(received.lock().total().get(), 1_000_000);
        assert!(received.lock().is_prefix_of(SEED));
    }

    #[test]
    fn a_download_that_is_stopped_is_a_right_prefix() {
        let server = server();
        let (received, stop) = (Watched::default(), Stop::default());
        let client = client(server.address(), Via::Direct);
        thread::scope(|s| {
            let task = s.spawn(|| client.download(u64::MAX, &received, &stop, PATIENCE));
            let deadline = Instant::now() + PATIENCE;
            while received.lock().total().get() == 0 && Instant::now() < deadline {
                thread::yield_now();
            }
            stop.set();
            task.join().unwrap().unwrap();
        });
        assert!(received.lock().total().get() > 0);
        assert!(received.lock().is_prefix_of(SEED));
    }

    #[test]
    fn an_upload_is_whole_and_right_at_the_server() {
        let server = server();
        client(server.address(), Via::Direct)
            .upload("it", 300_000, SEED, &Stop::default(), PATIENCE)
            .unwrap();
        let upload = server.arrivals("it");
        assert_eq!(upload.lock().total().get(), 300_000);
        assert!(upload.lock().is_prefix_of(SEED));
    }

    #[test]
    fn a_refused_connection_is_told() {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let e = client(free, Via::Direct).connect(PATIENCE).unwrap_err().to_string();
        assert!(e.contains(&free.to_string()) && e.contains("refused"), "{e}");
    }

    /// A proxy that says `reply` and then speaks for the server itself.
    fn proxy(reply: &'static [u8]) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut offer = [0; 3];
            stream.read_exact(&mut offer).unwrap();
            assert_eq!(offer, [5, 1, 0]);
            stream.write_all(&[5, 0]).unwrap();
            let mut request = [0; 10];
            stream.read_exact(&mut request).unwrap();
            assert_eq!(request, [5, 1, 0, 1, 10, 0, 0, 1, 0, 80]);
            stream.write_all(reply).unwrap();
        });
        address
    }

    #[test]
    fn a_proxy_is_asked_for_the_server_and_its_refusal_is_told() {
        let server = "10.0.0.1:80".parse().unwrap();
        let through = |reply| client(server, Via::Socks5(proxy(reply))).connect(PATIENCE);
        assert!(through(&[5, 0, 0, 1, 10, 0, 0, 9, 1, 1]).is_ok());
        let e = through(&[5, 5, 0, 1, 0, 0, 0, 0, 0, 0]).unwrap_err().to_string();
        assert_eq!(e, "the SOCKS5 proxy answered connection refused");
    }
}
