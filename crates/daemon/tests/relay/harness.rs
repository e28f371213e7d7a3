//! A running pair, and servers to reach through it.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use lasthop_control::{self as control, Report};
use lasthop_daemon::base::{Base, BaseConfig, BaseFile, LimitsFile};
use lasthop_daemon::config::{HopAddress, HopKind, KeyText, SealKind};
use lasthop_daemon::keyfile::{self, Existing};
use lasthop_daemon::mobile::{BaseAddress, Connect, Mobile, MobileConfig, MobileFile};
use lasthop_daemon::publish::{PublishFile, Server};
use lasthop_kernel::stop::Stop;
use socket2::{Domain, Socket, Type};

/// Nothing in these tests should take longer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// How an application asks the mobile.
#[derive(Clone, Copy)]
pub(crate) enum Way {
    Socks,
    Connect,
}

/// All of them.
pub(crate) const REQUESTS: [Way; 2] = [Way::Socks, Way::Connect];

/// Takes what comes for a base at `base` and never answers.
pub(crate) fn silence(hop: HopKind, base: SocketAddr) -> Box<dyn std::any::Any> {
    match hop {
        HopKind::SplitTcp => Box::new(TcpListener::bind(base).unwrap()),
        HopKind::Srp | HopKind::MobileTcp => Box::new(UdpSocket::bind(base).unwrap()),
    }
}

/// A server to which a connection is neither made nor refused: its queue is full.
pub(crate) struct FullServer {
    pub(crate) address: SocketAddr,
    _listener: socket2::Socket,
    _waiting: Vec<socket2::Socket>,
}

impl FullServer {
    pub(crate) fn new() -> Self {
        use socket2::{Domain, Socket, Type};
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        listener.listen(0).unwrap();
        let address = listener.local_addr().unwrap();
        let waiting = (0..4).map(|_| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            socket.set_nonblocking(true).unwrap();
            let _ = socket.connect(&address);
            socket
        });
        let waiting = waiting.collect();
        Self { address: address.as_socket().unwrap(), _listener: listener, _waiting: waiting }
    }
}

/// How a pair is set up.
#[derive(Clone)]
pub(crate) struct Setting {
    pub(crate) hop: HopKind,
    pub(crate) seal: SealKind,
    pub(crate) connect: Connect,
    pub(crate) allow_mobile: bool,
    /// Servers on the mobile, and where fixed hosts reach them.
    pub(crate) published: Vec<(SocketAddr, Option<SocketAddr>)>,
    /// Where connections may go although it is the base itself.
    pub(crate) allowed: Vec<&'static str>,
    /// The base's bounds.
    pub(crate) limits: LimitsFile,
}

impl Setting {
    pub(crate) fn new(hop: HopKind) -> Self {
        Self {
            hop,
            seal: SealKind::Noise,
            connect: Connect::Faithful,
            allow_mobile: true,
            published: Vec::new(),
            allowed: vec!["127.0.0.0/8"],
            limits: LimitsFile::default(),
        }
    }
}

struct Running {
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn join(&mut self) {
        wait_until("it stops", || self.thread.as_ref().is_none_or(|t| t.is_finished()));
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.request();
        self.stop.request();
        // Its addresses are free again when it has ended.
        if !thread::panicking() {
            self.join();
        }
    }
}

/// A base and a mobile.
pub(crate) struct Pair {
    pub(crate) base: SocketAddr,
    pub(crate) proxy: SocketAddr,
    base_config: BaseConfig,
    running_base: Option<Running>,
    running_mobile: Running,
    dir: PathBuf,
}

fn start_base(config: BaseConfig) -> (SocketAddr, Running) {
    let base = Base::bind(config).unwrap();
    let addr = base.places()[0].parse().unwrap();
    let stop = Stop::new().unwrap();
    let theirs = stop.clone();
    let thread = thread::spawn(move || base.run(&theirs).unwrap());
    (addr, Running { stop, thread: Some(thread) })
}

impl Pair {
    pub(crate) fn sealed(hop: HopKind) -> Self {
        Self::start(Setting::new(hop))
    }

    pub(crate) fn start(setting: Setting) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("lasthop-relay-{}-{n}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let keys = ["base", "mobile", "stranger"].map(|name| {
            let keys = keyfile::generate().unwrap();
            keyfile::store(&dir.join(name), &keys, Existing::Keep).unwrap();
            keys
        });
        let allowed = if setting.allow_mobile { &keys[1] } else { &keys[2] };
        let sealed = setting.seal == SealKind::Noise;
        let mut file = BaseFile {
            listen: Some(vec!["127.0.0.1:0".parse().unwrap()]),
            key: Some(dir.join("base")),
            allow: sealed.then(|| vec![KeyText(*allowed.public()).into()]),
            hop: Some(setting.hop),
            seal: Some(setting.seal),
            control: Some(dir.join("base.sock")),
            ..BaseFile::default()
        };
        file.targets.allow = setting.allowed.iter().map(|text| text.parse().unwrap()).collect();
        file.limits = setting.limits;
        file.publish = setting
            .published
            .iter()
            .map(|(listen, _)| PublishFile { listen: *listen, mobile: None, port: None })
            .collect();
        let servers = setting.published.iter().filter_map(|(listen, server)| {
            Some(Server { port: listen.port(), server: (*server)? })
        });
        let mut base_config = BaseConfig::try_from(file).unwrap();
        let (base, running_base) = start_base(base_config.clone());
        base_config.place = HopAddress::Internet(vec![base]);
        let file = MobileFile {
            base: Some(HopAddress::Internet(BaseAddress {
                host: base.ip().to_string(),
                port: base.port(),
            })),
            base_key: Some(KeyText(*keys[0].public())),
            key: Some(dir.join("mobile")),
            proxy: Some(vec!["127.0.0.1:0".parse().unwrap()]),
            connect: Some(setting.connect),
            hop: Some(setting.hop),
            seal: Some(setting.seal),
            control: Some(dir.join("mobile.sock")),
            publish: servers.collect(),
            ..MobileFile::default()
        };
        let mobile = Mobile::bind(MobileConfig::try_from(file).unwrap()).unwrap();
        let proxy = mobile.local_addrs()[0];
        let stop = Stop::new().unwrap();
        let theirs = stop.clone();
        let thread = thread::spawn(move || mobile.run(&theirs).unwrap());
        let running_mobile = Running { stop, thread: Some(thread) };
        Self { base, proxy, base_config, running_base: Some(running_base), running_mobile, dir }
    }

    /// Asks the mobile's SOCKS5 listener for `target`; the reply code if it is not zero.
    pub(crate) fn socks(&self, target: SocketAddr) -> Result<TcpStream, u8> {
        let mut request = vec![5, 1, 0];
        match target {
            SocketAddr::V4(a) => {
                request.push(1);
                request.extend_from_slice(&a.ip().octets());
            }
            SocketAddr::V6(a) => {
                request.push(4);
                request.extend_from_slice(&a.ip().octets());
            }
        }
        self.ask(request, target.port())
    }

    /// The same for a name.
    pub(crate) fn socks_name(&self, name: &str, port: u16) -> Result<TcpStream, u8> {
        let mut request = vec![5, 1, 0, 3, name.len() as u8];
        request.extend_from_slice(name.as_bytes());
        self.ask(request, port)
    }

    fn ask(&self, mut request: Vec<u8>, port: u16) -> Result<TcpStream, u8> {
        let mut stream = TcpStream::connect(self.proxy).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(&[5, 1, 0]).unwrap();
        let mut answer = [0; 2];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer, [5, 0]);
        request.extend_from_slice(&port.to_be_bytes());
        stream.write_all(&request).unwrap();
        let mut head = [0; 4];
        stream.read_exact(&mut head).unwrap();
        let rest = if head[3] == 4 { 18 } else { 6 };
        stream.read_exact(&mut vec![0; rest]).unwrap();
        if head[1] == 0 { Ok(stream) } else { Err(head[1]) }
    }

    /// A connection to `target` through the pair.
    pub(crate) fn connect(&self, target: SocketAddr) -> TcpStream {
        self.socks(target).unwrap()
    }

    /// The same, again and again for as long as it fails.
    pub(crate) fn connect_patiently(&self, target: SocketAddr) -> TcpStream {
        let mut stream = None;
        wait_until("it is not refused", || {
            stream = self.socks(target).ok();
            stream.is_some()
        });
        stream.unwrap()
    }

    /// A request for `target`, whose answer nobody has read.
    pub(crate) fn requested(&self, way: Way, target: SocketAddr) -> TcpStream {
        let mut stream = TcpStream::connect(self.proxy).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        match way {
            Way::Socks => {
                stream.write_all(&[5, 1, 0]).unwrap();
                stream.read_exact(&mut [0; 2]).unwrap();
                let SocketAddr::V4(to) = target else { panic!("of IPv4") };
                let [a, b, c, d] = to.ip().octets();
                let [high, low] = to.port().to_be_bytes();
                stream.write_all(&[5, 1, 0, 1, a, b, c, d, high, low]).unwrap();
            }
            Way::Connect => write!(stream, "CONNECT {target} HTTP/1.1\r\n\r\n").unwrap(),
        }
        // What is closed before it was accepted was never requested.
        let asked =
            || self.mobile_report().connections.iter().any(|c| c.target == target.to_string());
        wait_until("the mobile is asked", asked);
        stream
    }

    pub(crate) fn restart_base(&mut self) {
        self.stop_base();
        self.start_base();
    }

    pub(crate) fn stop_base(&mut self) {
        let mut old = self.running_base.take().unwrap();
        old.stop.request();
        old.stop.request();
        old.join();
    }

    pub(crate) fn start_base(&mut self) {
        let (_, running) = start_base(self.base_config.clone());
        self.running_base = Some(running);
    }

    pub(crate) fn stop_mobile(&self) {
        self.running_mobile.stop.request();
        thread::sleep(Duration::from_millis(50));
    }

    pub(crate) fn join_mobile(&mut self) {
        self.running_mobile.join();
    }

    pub(crate) fn mobile_report(&self) -> Report {
        control::query(&self.dir.join("mobile.sock")).unwrap()
    }

    pub(crate) fn base_report(&self) -> Report {
        control::query(&self.dir.join("base.sock")).unwrap()
    }

    /// Bytes that `base` or `mobile` remembers: into the hop, and out of it.
    pub(crate) fn remembered(&self, role: &str) -> [u64; 2] {
        let report = control::query_with_past(&self.dir.join(format!("{role}.sock"))).unwrap();
        let past = report.past.unwrap();
        [past.to_hop_bps, past.from_hop_bps].map(|bps| bps.iter().sum::<u64>() / 8)
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// Bytes that do not repeat within any buffer.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| ((i * i) ^ (i >> 8)) as u8).collect()
}

pub(crate) fn read_all(stream: &mut TcpStream) -> Vec<u8> {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut out = Vec::new();
    stream.read_to_end(&mut out).unwrap();
    out
}

/// Closing `stream` will send a reset.
pub(crate) fn reset(stream: &TcpStream) {
    rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO)).unwrap();
}

/// An address on which nobody listens.
pub(crate) fn closed_port() -> SocketAddr {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    let port = socket.local_addr().unwrap().as_socket().unwrap();
    // As long as it has one that does not listen, no other test is given it.
    std::mem::forget(socket);
    port
}

/// A port that is free, on the loopback address of either family.
pub(crate) fn free_port(ipv6: bool) -> SocketAddr {
    let any = if ipv6 { "[::1]:0" } else { "127.0.0.1:0" };
    TcpListener::bind(any).unwrap().local_addr().unwrap()
}

/// Serves one connection with `serve`, and closes it.
pub(crate) fn serve_once(serve: impl FnOnce(TcpStream) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    thread::spawn(move || serve(listener.accept().unwrap().0));
    addr
}

/// Serves every connection with `serve`, and closes it.
pub(crate) fn serve_all(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let serve = std::sync::Arc::new(serve);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, serve) = (stream.unwrap(), std::sync::Arc::clone(&serve));
            thread::spawn(move || serve(stream));
        }
    });
    addr
}

/// Sends back what it gets, until the end.
pub(crate) fn echo_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            thread::spawn(move || std::io::copy(&mut &stream, &mut &stream));
        }
    });
    addr
}

/// Answers one request with `body`.
pub(crate) fn serve_http(stream: &mut TcpStream, body: &[u8]) {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if stream.read_exact(&mut byte).is_err() {
            return;
        }
        request.push(byte[0]);
    }
    let head =
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    let _ = stream.write_all(head.as_bytes());
    let _ = stream.write_all(body);
}

pub(crate) fn send_datagram(to: SocketAddr, datagram: &[u8]) {
    UdpSocket::bind("127.0.0.1:0").unwrap().send_to(datagram, to).unwrap();
}

/// Says something to a TCP port that must answer by hanging up.
pub(crate) fn send_and_await_end(to: SocketAddr, bytes: &[u8]) {
    let mut stream = TcpStream::connect(to).unwrap();
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let said = stream.read(&mut [0; 100]);
    let silent = |e: &std::io::Error| e.kind() != std::io::ErrorKind::WouldBlock;
    assert!(matches!(&said, Ok(0)) || said.as_ref().is_err_and(silent), "{said:?}");
}

#[track_caller]
pub(crate) fn wait_until(what: &str, done: impl FnMut() -> bool) {
    lasthop_testing::wait_until(what, PATIENCE, done);
}
