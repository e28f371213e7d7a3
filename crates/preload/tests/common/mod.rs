//! A SOCKS5 proxy that goes nowhere: what lies behind an address is told by the port asked for,
//! an echo unless it is one of these.

#![allow(clippy::unwrap_used)]
// Each test program uses a part of it.
#![allow(dead_code)]

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

/// An HTTP server.
pub(crate) const HTTP: u16 = 80;
/// Greets at once, in one segment with the proxy's reply, and closes.
pub(crate) const GREETER: u16 = 25;
/// An echo behind a reply that comes byte by byte and names an IPv6 address.
pub(crate) const DRIBBLE: u16 = 26;
/// Never answers.
pub(crate) const SILENT: u16 = 27;
/// The proxy answers with SOCKS5 code `port - CODES`.
pub(crate) const CODES: u16 = 1000;

/// Longer than any test takes; a hung program fails its test instead of hanging it.
const LIMIT: Duration = Duration::from_secs(120);

/// The proxy and what it was asked for.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    asked: Receiver<SocketAddr>,
}

impl Proxy {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (tell, asked) = mpsc::channel();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let tell = tell.clone();
                // A program may break off at any point; what it saw is what is checked.
                thread::spawn(move || drop(serve(stream, &tell)));
            }
        });
        Proxy { address, asked }
    }

    /// What was asked for since the last call.
    pub(crate) fn asked(&self) -> Vec<SocketAddr> {
        self.asked.try_iter().collect()
    }
}

fn serve(mut stream: TcpStream, tell: &Sender<SocketAddr>) -> io::Result<()> {
    let mut greeting = [0; 3];
    stream.read_exact(&mut greeting)?;
    assert_eq!(greeting, [5, 1, 0]);
    stream.write_all(&[5, 0])?;
    let target = read_request(&mut stream)?;
    let _ = tell.send(target);
    match target.port() {
        GREETER => {
            stream.write_all(b"\x05\0\0\x01\0\0\0\0\0\0hello from afar\n")?;
        }
        DRIBBLE => {
            for byte in [&[5, 0, 0, 4][..], &[0; 18]].concat() {
                stream.write_all(&[byte])?;
                thread::sleep(Duration::from_millis(1));
            }
            echo(stream)?;
        }
        SILENT => {
            io::copy(&mut stream, &mut io::sink())?;
        }
        HTTP => {
            reply(&mut stream, 0)?;
            serve_http(stream)?;
        }
        code @ CODES..=1255 => reply(&mut stream, (code - CODES) as u8)?,
        _ => {
            reply(&mut stream, 0)?;
            echo(stream)?;
        }
    }
    Ok(())
}

fn read_request(stream: &mut TcpStream) -> io::Result<SocketAddr> {
    let mut head = [0; 4];
    stream.read_exact(&mut head)?;
    assert_eq!(head[..3], [5, 1, 0]);
    let ip = if head[3] == 1 {
        let mut ip = [0; 4];
        stream.read_exact(&mut ip)?;
        IpAddr::from(Ipv4Addr::from(ip))
    } else {
        assert_eq!(head[3], 4);
        let mut ip = [0; 16];
        stream.read_exact(&mut ip)?;
        IpAddr::from(Ipv6Addr::from(ip))
    };
    let mut port = [0; 2];
    stream.read_exact(&mut port)?;
    Ok(SocketAddr::new(ip, u16::from_be_bytes(port)))
}

fn reply(stream: &mut TcpStream, code: u8) -> io::Result<()> {
    stream.write_all(&[5, code, 0, 1, 0, 0, 0, 0, 0, 0])
}

fn echo(mut stream: TcpStream) -> io::Result<()> {
    let mut from = stream.try_clone()?;
    io::copy(&mut from, &mut stream).map(drop)
}

fn serve_http(mut stream: TcpStream) -> io::Result<()> {
    let mut seen = Vec::new();
    while !seen.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        seen.extend(byte);
    }
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\nConnection: close\r\n\r\nthere\r\n")
}

/// What a program left behind.
pub(crate) struct Outcome {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) success: bool,
}

/// The library, built by the first test that asks: cargo builds a library for the loader only when
/// it is what was asked for.
pub(crate) fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let test = std::env::current_exe().unwrap();
        let profile = test.parent().and_then(Path::parent).unwrap();
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--package", "lasthop-preload"]);
        if profile.ends_with("release") {
            cargo.arg("--release");
        }
        assert!(cargo.status().unwrap().success(), "the library does not build");
        let library = profile.join("liblasthop_preload.so");
        assert!(library.exists(), "{} is not built", library.display());
        library
    })
}

/// Runs `command` with its connect interposed, or tells visibly that it is not installed.
pub(crate) fn run(
    proxy: SocketAddr,
    command: &[&str],
    settings: &[(&str, &str)],
) -> Option<Outcome> {
    let (library, proxy) = (library().to_str().unwrap(), proxy.to_string());
    let ours = [("LD_PRELOAD", library), ("LASTHOP_PROXY", &proxy)];
    run_with(command, &[&ours, settings].concat())
}

fn run_with(command: &[&str], settings: &[(&str, &str)]) -> Option<Outcome> {
    if !lasthop_testing::is_installed(command[0]) {
        return None;
    }
    let mut child = Command::new(command[0])
        .args(&command[1..])
        .envs(settings.iter().copied())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + LIMIT;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > deadline {
            child.kill().unwrap();
            break;
        }
        thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().unwrap();
    Some(Outcome {
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        success: output.status.success(),
    })
}

/// Runs a Python script and gives its output, which must be all that it said.
pub(crate) fn python(proxy: SocketAddr, script: &str, settings: &[(&str, &str)]) -> Option<String> {
    said(run(proxy, &["python3", "-c", &imported(script)], settings)?)
}

/// The same of a script whose connections are its own.
pub(crate) fn python_alone(script: &str) -> Option<String> {
    said(run_with(&["python3", "-c", &imported(script)], &[])?)
}

fn imported(script: &str) -> String {
    format!("import errno, os, socket\n{script}")
}

fn said(outcome: Outcome) -> Option<String> {
    assert!(outcome.success, "stdout: {}\nstderr: {}", outcome.stdout, outcome.stderr);
    assert_eq!(outcome.stderr, "");
    Some(outcome.stdout)
}
