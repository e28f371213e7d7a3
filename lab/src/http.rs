//! An ordinary HTTP/1.1 server for measurements.
//!
//! `GET /bytes/N` answers with the first N bytes of the content of the server's seed;
//! `PUT /upload/NAME` takes a body and answers with its SHA-256 and length. Connections are kept
//! alive. One thread a connection, and a bounded number of connections.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use lasthop_kernel::netns::Netns;
use lasthop_units::Seed;

use crate::arrivals::Watched;
use crate::content::{Content, hex};
use crate::error::LabError;
use crate::service::{Habits, Server, Shared};

/// Connections served at once, and uploads remembered.
const MOST: usize = 1024;
/// The longest request head read.
const HEAD: u64 = 16 * 1024;
const CHUNK: usize = 64 * 1024;

/// Serves on `address` inside `netns`; port 0 takes any.
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

const HABITS: Habits = Habits { name: "http", most: MOST, stack: None, multipath: false, converse };

/// A request's head, as far as it matters here.
#[derive(Debug, Default, PartialEq)]
struct Head {
    method: String,
    path: String,
    length: Option<u64>,
    expects_continue: bool,
    close: bool,
}

fn converse(stream: TcpStream, shared: &Shared) -> io::Result<()> {
    let mut reader = BufReader::with_capacity(CHUNK, stream.try_clone()?);
    let mut writer = stream;
    while let Some(head) = read_head(&mut reader)? {
        match (head.method.as_str(), route(&head.path)) {
            ("GET", Route::Bytes(n)) => send_bytes(&mut writer, shared.seed, n)?,
            ("HEAD", Route::Bytes(n)) => write_head(&mut writer, "200 OK", n)?,
            ("PUT" | "POST", Route::Upload(name)) => {
                let Some(length) = head.length else {
                    return answer(&mut writer, "411 Length Required", "say Content-Length\n");
                };
                if head.expects_continue {
                    writer.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
                }
                take_upload(&mut reader, &mut writer, &shared.arrivals(name), length)?;
            }
            (_, Route::Unknown) => return answer(&mut writer, "404 Not Found", "not here\n"),
            _ => return answer(&mut writer, "405 Method Not Allowed", "not so\n"),
        }
        if head.close {
            break;
        }
    }
    Ok(())
}

#[derive(Debug, PartialEq)]
enum Route<'a> {
    Bytes(u64),
    Upload(&'a str),
    Unknown,
}

fn route(path: &str) -> Route<'_> {
    if let Some(n) = path.strip_prefix("/bytes/").and_then(|n| n.parse().ok()) {
        return Route::Bytes(n);
    }
    match path.strip_prefix("/upload") {
        Some(name) if name.is_empty() || name.starts_with('/') => {
            Route::Upload(name.trim_start_matches('/'))
        }
        _ => Route::Unknown,
    }
}

/// The next request's head; none where the client ended the connection.
fn read_head(reader: &mut impl BufRead) -> io::Result<Option<Head>> {
    let mut limited = reader.take(HEAD);
    let mut line = String::new();
    if limited.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_ascii_whitespace();
    let mut head = Head {
        method: words.next().unwrap_or_default().to_owned(),
        path: words.next().unwrap_or_default().to_owned(),
        close: words.next() == Some("HTTP/1.0"),
        ..Head::default()
    };
    loop {
        line.clear();
        if limited.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let Some((name, value)) = line.trim_end().split_once(':') else {
            return Ok(Some(head));
        };
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            "content-length" => head.length = value.parse().ok(),
            "expect" => head.expects_continue = value.eq_ignore_ascii_case("100-continue"),
            "connection" => head.close |= value.eq_ignore_ascii_case("close"),
            _ => {}
        }
    }
}

/// What is sent before a body of so many bytes.
pub(crate) fn head(status: &str, length: u64) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n")
}

fn write_head(writer: &mut impl Write, status: &str, length: u64) -> io::Result<()> {
    writer.write_all(head(status, length).as_bytes())
}

fn answer(writer: &mut impl Write, status: &str, body: &str) -> io::Result<()> {
    write_head(writer, status, body.len() as u64)?;
    writer.write_all(body.as_bytes())
}

fn send_bytes(writer: &mut impl Write, seed: Seed, n: u64) -> io::Result<()> {
    // Head and first bytes in one call, as servers do: a packet for the head alone would cost a
    // tenth of the initial window.
    let mut buffer = Vec::with_capacity(CHUNK);
    write_head(&mut buffer, "200 OK", n)?;
    let mut content = Content::new(seed);
    let mut left = n;
    loop {
        let head = buffer.len();
        let now = left.min((CHUNK - head) as u64) as usize;
        buffer.resize(head + now, 0);
        content.fill(&mut buffer[head..]);
        writer.write_all(&buffer)?;
        left -= now as u64;
        if left == 0 {
            return Ok(());
        }
        buffer.clear();
    }
}

fn take_upload(
    reader: &mut impl BufRead,
    writer: &mut impl Write,
    upload: &Watched,
    length: u64,
) -> io::Result<()> {
    let mut left = length;
    while left > 0 {
        let bytes = reader.fill_buf()?;
        if bytes.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let n = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        upload.lock().take(Instant::now(), &bytes[..n]);
        reader.consume(n);
        left -= n as u64;
    }
    let digest = upload.lock().digest();
    answer(writer, "200 OK", &format!("{} {length}\n", hex(&digest)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::digest_of_prefix;

    const SEED: Seed = Seed::from_u64(3);

    fn server() -> Server {
        start(&Netns::current().unwrap(), "127.0.0.1:0".parse().unwrap(), SEED).unwrap()
    }

    fn ask(server: &Server, request: &[u8]) -> Vec<u8> {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.write_all(request).unwrap();
        let mut reply = Vec::new();
        stream.read_to_end(&mut reply).unwrap();
        reply
    }

    #[test]
    fn a_burst_of_connections_waits_to_be_accepted() {
        let server = server();
        // Nothing is accepted meanwhile.
        let held = server.hold();
        let patience = std::time::Duration::from_secs(5);
        let burst: Result<Vec<_>, _> =
            (0..500).map(|_| TcpStream::connect_timeout(&server.address(), patience)).collect();
        drop(held);
        assert_eq!(burst.unwrap().len(), 500);
    }

    #[test]
    fn two_requests_on_one_connection_are_answered_in_full() {
        let reply = ask(
            &server(),
            b"GET /bytes/100000 HTTP/1.1\r\n\r\nGET /bytes/3 HTTP/1.1\r\nConnection: close\r\n\r\n",
        );
        let mut wanted = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n".to_vec();
        let mut content = vec![0; 100_000];
        Content::new(SEED).fill(&mut content);
        wanted.extend(&content);
        wanted.extend(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n");
        wanted.extend(&content[..3]);
        assert!(reply == wanted);
    }

    #[test]
    fn an_upload_is_hashed_and_remembered_under_its_name() {
        let server = server();
        let mut content = vec![0; 5000];
        Content::new(SEED).fill(&mut content);
        let mut request = b"PUT /upload/a HTTP/1.1\r\nconnection: close\r\n\
            Expect: 100-continue\r\nContent-Length: 5000\r\n\r\n"
            .to_vec();
        request.extend(&content);
        let reply = String::from_utf8(ask(&server, &request)).unwrap();
        assert!(reply.starts_with("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK"), "{reply}");
        assert!(reply.ends_with(&format!("{} 5000\n", hex(&digest_of_prefix(SEED, 5000)))));
        assert!(server.arrivals("a").lock().is_prefix_of(SEED));
        assert_eq!(server.arrivals("b").lock().total().get(), 0);
        assert_eq!(server.accepted(), 1);
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        let server = server();
        for (request, status) in [
            (&b"GET /nothing HTTP/1.1\r\n\r\n"[..], "404"),
            (b"GET /bytes/many HTTP/1.1\r\n\r\n", "404"),
            (b"DELETE /bytes/1 HTTP/1.1\r\n\r\n", "405"),
            (b"PUT /upload/x HTTP/1.1\r\n\r\n", "411"),
        ] {
            let reply = String::from_utf8(ask(&server, request)).unwrap();
            assert!(reply.starts_with(&format!("HTTP/1.1 {status}")), "{reply}");
        }
        assert!(ask(&server, &[b'x'; 20_000]).is_empty(), "a head without end");
    }

    #[test]
    fn a_dropped_server_listens_no_more() {
        let server = server();
        let address = server.address();
        let stream = TcpStream::connect(address).unwrap();
        drop(server);
        drop(stream);
        // The listening socket closes when the accepting thread notices.
        let deadline = Instant::now() + std::time::Duration::from_secs(10);
        while TcpStream::connect(address).is_ok() {
            assert!(Instant::now() < deadline, "still listening");
        }
    }
}
