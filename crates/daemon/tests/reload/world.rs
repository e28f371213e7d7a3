//! A base whose configuration is a file, its mobiles, and servers that they reach.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use lasthop_control::{self as control, Reloaded, Report, Request};
use lasthop_daemon::base::{Base, BaseConfig, BaseFile, ConfigSource};
use lasthop_daemon::keyfile::{self, Existing};
use lasthop_daemon::mobile::{Mobile, MobileConfig, MobileFile};
use lasthop_daemon::{RunError, config};
use lasthop_kernel::stop::Stop;

/// Nothing in these tests should take longer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Running {
    pub(crate) stop: Stop,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    pub(crate) fn start(run: impl FnOnce(&Stop) + Send + 'static) -> Self {
        let stop = Stop::new().unwrap();
        let theirs = stop.clone();
        Self { stop, thread: Some(thread::spawn(move || run(&theirs))) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.request();
        self.stop.request();
        if let Some(thread) = self.thread.take()
            && !thread::panicking()
        {
            thread.join().unwrap();
        }
    }
}

pub(crate) const TARGETS: &str = "[targets]\nallow = [\"127.0.0.0/8\"]\n";

/// A mobile with a proxy.
pub(crate) struct Served {
    pub(crate) key: String,
    pub(crate) proxy: SocketAddr,
    _running: Running,
}

/// A base whose configuration is a file, and mobiles of which it may know some.
pub(crate) struct World {
    pub(crate) dir: PathBuf,
    /// What the file has before `allow`.
    pub(crate) head: String,
    /// Ports that lead to mobiles that are allowed.
    pub(crate) doors: Vec<(SocketAddr, usize)>,
    pub(crate) address: String,
    pub(crate) base: Running,
    pub(crate) mobiles: Vec<Served>,
    /// What a mobile's file says, with `NAME` for the mobile's.
    pub(crate) mobile_text: String,
}

/// A mobile that is configured so; its proxy.
pub(crate) fn mobile(text: &str, more: &str) -> (SocketAddr, Running) {
    let file: MobileFile =
        config::parse(Path::new("mobile.toml"), &format!("{text}{more}")).unwrap();
    let mobile = Mobile::bind(MobileConfig::try_from(file).unwrap()).unwrap();
    let proxy = mobile.local_addrs()[0];
    (proxy, Running::start(move |stop| mobile.run(stop).unwrap()))
}

impl World {
    /// `count` mobiles of which the first `allowed` are allowed, with ports that lead to some of them.
    pub(crate) fn start(
        hop: &str,
        count: usize,
        allowed: usize,
        doors: &[(SocketAddr, usize)],
    ) -> Self {
        Self::start_with(hop, "", count, allowed, doors)
    }

    /// The same with a base whose file says `more`.
    pub(crate) fn start_with(
        hop: &str,
        more: &str,
        count: usize,
        allowed: usize,
        doors: &[(SocketAddr, usize)],
    ) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("lasthop-reload-{}-{n}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let key = |name: &str| {
            let keys = keyfile::generate().unwrap();
            keyfile::store(&dir.join(name), &keys, Existing::Keep).unwrap();
            keys.public().to_string()
        };
        let (shown, base_key) = (dir.display(), key("base"));
        let keys: Vec<String> = (0..count).map(|n| key(&format!("mobile{n}"))).collect();
        let head = format!(
            "listen = [\"127.0.0.1:0\"]\nkey = \"{shown}/base\"\nhop = \"{hop}\"\n\
             control = \"{shown}/base.sock\"\n{more}"
        );
        let path = dir.join("base.toml");
        write(&path, &head, &keys[..allowed], doors);
        let read = {
            let path = path.clone();
            move || config::load::<BaseFile>(&path)
        };
        let file = read().unwrap();
        let base = Base::bind(BaseConfig::try_from(file.clone()).unwrap()).unwrap();
        let base = base.with_source(ConfigSource::new(path.display().to_string(), file, read));
        let address = base.places().remove(0);
        let base = Running::start(move |stop| base.run(stop).unwrap());
        let mobile_text = format!(
            "base = \"{address}\"\nbase_key = \"{base_key}\"\nkey = \"{shown}/NAME\"\n\
             proxy = [\"127.0.0.1:0\"]\nhop = \"{hop}\"\ncontrol = \"{shown}/NAME.sock\"\n"
        );
        let mobiles = keys.into_iter().enumerate().map(|(n, key)| {
            let text = mobile_text.replace("NAME", &format!("mobile{n}"));
            let more = format!("publish = [\"80 -> {}\"]\n", echo_server());
            let (proxy, running) = mobile(&text, &more);
            Served { key, proxy, _running: running }
        });
        let mobiles = mobiles.collect();
        Self { address, dir, head, doors: doors.to_vec(), base, mobiles, mobile_text }
    }

    /// A base whose file says this.
    pub(crate) fn bind(text: &str) -> Result<Base, RunError> {
        let file: BaseFile = config::parse(Path::new("base.toml"), text).unwrap();
        Base::bind(BaseConfig::try_from(file).unwrap())
    }

    /// Writes the file anew, with a pre-shared key with the first mobile; the second has none.
    pub(crate) fn share(&self, psk: &Path) {
        let [first, second] = [0, 1].map(|n| &self.mobiles[n].key);
        let first = format!("{{ key = {first:?}, psk = {psk:?} }}");
        let text = format!("{}allow = [{first}, {second:?}]\n", self.head);
        std::fs::write(self.file(), text + TARGETS).unwrap();
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.dir.join("base.toml")
    }

    /// Writes the file anew, with these mobiles allowed and what leads to them.
    pub(crate) fn allow(&self, mobiles: &[usize]) {
        let keys: Vec<String> = mobiles.iter().map(|n| self.mobiles[*n].key.clone()).collect();
        let of = |n: &usize| mobiles.iter().position(|other| other == n);
        let doors = self.doors.iter().filter_map(|(door, n)| Some((*door, of(n)?)));
        write(&self.file(), &self.head, &keys, &doors.collect::<Vec<_>>());
    }

    pub(crate) fn reload(&self) -> Result<Reloaded, String> {
        let reply = control::request(&self.dir.join("base.sock"), &Request::Reload {});
        reply.map(|reply| reply.reload.unwrap()).map_err(|e| e.to_string())
    }

    pub(crate) fn report(&self) -> Report {
        control::query(&self.dir.join("base.sock")).unwrap()
    }

    /// Bytes that the base remembers: into the hop, and out of it.
    pub(crate) fn remembered(&self) -> [u64; 2] {
        let past = control::query_with_past(&self.dir.join("base.sock")).unwrap().past.unwrap();
        [past.to_hop_bps, past.from_hop_bps].map(|bps| bps.iter().sum::<u64>() / 8)
    }

    /// The mobiles that have an association.
    pub(crate) fn present(&self) -> Vec<usize> {
        let report = self.report();
        let is_there = |key: &String| {
            report.associations.iter().any(|a| a.peer.as_ref() == Some(key) && a.state == "up")
        };
        (0..self.mobiles.len()).filter(|n| is_there(&self.mobiles[*n].key)).collect()
    }

    pub(crate) fn await_mobiles(&self, which: &[usize]) {
        let told = || format!("{:?} are here, not {which:?}", self.present());
        lasthop_testing::wait_or(PATIENCE, || self.present() == which, told);
    }

    /// A connection of a mobile's application.
    pub(crate) fn connect(&self, mobile: usize, target: SocketAddr) -> TcpStream {
        self.try_connect(mobile, target).unwrap()
    }

    /// The same, or what the proxy says instead.
    pub(crate) fn try_connect(
        &self,
        mobile: usize,
        target: SocketAddr,
    ) -> Result<TcpStream, String> {
        let mut stream = TcpStream::connect(self.mobiles[mobile].proxy).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "CONNECT {target} HTTP/1.1\r\n\r\n").unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        let head = String::from_utf8_lossy(&head);
        if head.starts_with("HTTP/1.1 200") { Ok(stream) } else { Err(head.into_owned()) }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// Writes a file that allows these keys, with ports that lead to some of them.
pub(crate) fn write(path: &Path, head: &str, keys: &[String], doors: &[(SocketAddr, usize)]) {
    let rules: String = doors.iter().map(|(door, n)| publish(*door, &keys[*n])).collect();
    std::fs::write(path, format!("{head}allow = {keys:?}\n{rules}{TARGETS}")).unwrap();
}

pub(crate) fn publish(listen: SocketAddr, mobile: &str) -> String {
    format!("[[publish]]\nlisten = \"{listen}\"\nport = 80\nmobile = \"{mobile}\"\n")
}

/// Sends back what it gets, until the end.
pub(crate) fn echo_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            thread::spawn(move || io::copy(&mut &stream, &mut &stream));
        }
    });
    addr
}

/// Sends for ever what nobody has asked for; how each connection ended.
pub(crate) fn source() -> (SocketAddr, mpsc::Receiver<ErrorKind>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let (out, ends) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, out) = (stream.unwrap(), out.clone());
            thread::spawn(move || {
                let end = loop {
                    if let Err(e) = stream.write_all(&[7; 1000]) {
                        break e.kind();
                    }
                    thread::sleep(Duration::from_millis(1));
                };
                let _ = out.send(end);
            });
        }
    });
    (addr, ends)
}

pub(crate) fn is_reset(end: ErrorKind) -> bool {
    matches!(end, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
}

/// Bytes that do not repeat within any buffer.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| ((i * i) ^ (i >> 8)) as u8).collect()
}

/// Different ports that are free, on the loopback address.
pub(crate) fn free_ports<const N: usize>() -> [SocketAddr; N] {
    // None is free again before all are found.
    let listeners = [(); N].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap())
}
