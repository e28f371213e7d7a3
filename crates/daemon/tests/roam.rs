//! A mobile and several bases in one process, over loopback: the mobile moves, and bases die.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::io::{self, ErrorKind, Read, Write};
use std::iter;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use lasthop_control::{self as control, Changes, HandoffState, Link, Reloaded, Report, Request};
use lasthop_daemon::base::{Base, BaseConfig, BaseFile, ConfigSource, PeerFile};
use lasthop_daemon::config::{self, KeyText};
use lasthop_daemon::keyfile::{self, Existing};
use lasthop_daemon::mobile::{Mobile, MobileConfig, MobileFile};
use lasthop_kernel::stop::Stop;

/// Nothing in these tests should take longer.
const PATIENCE: Duration = Duration::from_secs(60);
const MB: usize = 1 << 20;

struct Running {
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn start(run: impl FnOnce(&Stop) + Send + 'static) -> Self {
        let stop = Stop::new().unwrap();
        let theirs = stop.clone();
        Self { stop, thread: Some(thread::spawn(move || run(&theirs))) }
    }

    fn join(mut self) {
        self.stop.request();
        self.stop.request();
        self.thread.take().unwrap().join().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.request();
        self.stop.request();
    }
}

struct BaseProcess {
    name: String,
    /// What it reads when it starts, and when it is to read it again.
    file: Arc<Mutex<BaseFile>>,
    running: Option<Running>,
}

/// The hop of a base, and how many serve it.
#[derive(Clone, Copy)]
struct BaseHop {
    name: &'static str,
    workers: usize,
}

/// Bases that know each other, and a mobile that knows them.
struct Country {
    proxy: SocketAddr,
    bases: Vec<BaseProcess>,
    _mobile: Running,
    dir: PathBuf,
}

fn parse<T: serde::de::DeserializeOwned>(text: &str) -> T {
    config::parse(Path::new("test.toml"), text).unwrap()
}

/// Ports that are free, for UDP and TCP, and that the kernel gives to nobody who does not ask.
fn ports(n: usize) -> Vec<u16> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id().wrapping_mul(211);
    let free = |port: &u16| {
        UdpSocket::bind(("127.0.0.1", *port)).is_ok()
            && TcpListener::bind(("127.0.0.1", *port)).is_ok()
    };
    let some = iter::repeat_with(|| {
        let n = first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        (12_000 + n % 18_000) as u16
    });
    some.filter(free).take(n).collect()
}

impl Country {
    /// `count` bases, with `more` in the mobile's configuration.
    fn start(hop: BaseHop, count: usize, more: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("lasthop-roam-{}-{n}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let key = |name: &str| {
            let keys = keyfile::generate().unwrap();
            keyfile::store(&dir.join(name), &keys, Existing::Keep).unwrap();
            keys.public().to_string()
        };
        let BaseHop { name: hop, workers } = hop;
        let shown = dir.display();
        let mobile_key = key("mobile");
        // With more workers, the mobile has another at each base.
        let others: Vec<String> = (0..workers).map(|n| key(&format!("other{n}"))).collect();
        let keys: Vec<String> = (0..count).map(|i| key(&format!("b{}", i + 1))).collect();
        let (near, far) = (ports(count), ports(count));
        let mut bases = Vec::new();
        let mut listed = String::new();
        for i in 0..count {
            let name = format!("b{}", i + 1);
            let (near_port, far_port) = (near[i], far[i]);
            let mut allow = others.clone();
            allow.insert((i + 1) % workers, mobile_key.clone());
            let mut text = format!(
                "listen = [\"127.0.0.1:{near_port}\"]\nkey = \"{shown}/{name}\"\n\
                 allow = {allow:?}\nhop = \"{hop}\"\ncontrol = \"{shown}/{name}.sock\"\n\
                 workers = {workers}\n[targets]\nallow = [\"127.0.0.0/8\"]\n"
            );
            if count > 1 {
                text +=
                    &format!("[handoff]\nmode = \"anchor\"\nlisten = [\"127.0.0.1:{far_port}\"]\n");
            }
            for j in (0..count).filter(|j| *j != i) {
                let (peer, port) = (&keys[j], far[j]);
                text += &format!(
                    "[[peers]]\nname = \"b{}\"\nkey = \"{peer}\"\naddress = \"127.0.0.1:{port}\"\n",
                    j + 1
                );
            }
            let file = Arc::new(Mutex::new(parse::<BaseFile>(&text)));
            bases.push(BaseProcess { name: name.clone(), file, running: None });
            listed += &format!(
                "[[bases]]\nname = \"{name}\"\naddress = \"127.0.0.1:{near_port}\"\nkey = \"{}\"\n",
                keys[i]
            );
        }
        let text = format!(
            "key = \"{shown}/mobile\"\nproxy = [\"127.0.0.1:0\"]\nhop = \"{hop}\"\n\
             control = \"{shown}/mobile.sock\"\n{listed}{more}\n"
        );
        let config = MobileConfig::try_from(parse::<MobileFile>(&text)).unwrap();
        let mobile = Mobile::bind(config).unwrap();
        let proxy = mobile.local_addrs()[0];
        let mobile = Running::start(move |stop| mobile.run(stop).unwrap());
        let mut country = Self { proxy, bases, _mobile: mobile, dir };
        (0..count).for_each(|i| country.raise(i));
        country
    }

    fn raise(&mut self, i: usize) {
        let (name, shared) = (self.bases[i].name.clone(), Arc::clone(&self.bases[i].file));
        let file = shared.lock().unwrap().clone();
        let base = Base::bind(BaseConfig::try_from(file.clone()).unwrap()).unwrap();
        let read = move || Ok(shared.lock().unwrap().clone());
        let base = base.with_source(ConfigSource::new(name, file, read));
        self.bases[i].running = Some(Running::start(move |stop| base.run(stop).unwrap()));
    }

    /// The base ends without a word, as far as a thread can.
    fn fell(&mut self, i: usize) {
        self.bases[i].running.take().unwrap().join();
    }

    /// These are all other bases that a base knows from its next start or [reload](Self::reload) on.
    fn set_peers(&self, i: usize, peers: &[PeerFile]) {
        let mut file = self.bases[i].file.lock().unwrap();
        // Others may come and go.
        file.fleet = Some("members.toml".into());
        file.peers = peers.to_vec();
    }

    fn peers(&self, i: usize) -> Vec<PeerFile> {
        self.bases[i].file.lock().unwrap().peers.clone()
    }

    fn reload(&self, i: usize) -> Reloaded {
        let path = self.dir.join(format!("{}.sock", self.bases[i].name));
        control::request(&path, &Request::Reload {}).unwrap().reload.unwrap()
    }

    /// Waits until every base that this one knows is reached, or none is.
    fn await_peers(&self, i: usize, up: bool) {
        let told = || format!("not {up}: {:#?}", self.base_report(i).peers);
        let done = || self.base_report(i).peers.iter().all(|peer| peer.up == up);
        lasthop_testing::wait_or(PATIENCE, done, told);
    }

    fn report(&self) -> Report {
        control::query(&self.dir.join("mobile.sock")).unwrap()
    }

    fn base_report(&self, i: usize) -> Report {
        control::query(&self.dir.join(format!("{}.sock", self.bases[i].name))).unwrap()
    }

    fn ask(&self, request: &Request) -> Result<control::Reply, String> {
        control::request(&self.dir.join("mobile.sock"), request).map_err(|e| e.to_string())
    }

    fn await_that(&self, what: &str, done: impl Fn(&Report) -> bool) -> Report {
        let mut report = self.report();
        let told = || format!("not {what}: {:#?}", self.report());
        let done = || {
            report = self.report();
            done(&report)
        };
        lasthop_testing::wait_or(PATIENCE, done, told);
        report
    }

    /// Moves to a base and waits until that is done.
    fn go(&self, i: usize) {
        let number = self.ask(&handoff(i)).unwrap().handoff;
        let report = self.await_that("moved", |report| {
            let latest = report.handoff.as_ref();
            latest.is_some_and(|h| Some(h.number) == number && h.state != HandoffState::UnderWay)
        });
        let latest = report.handoff.unwrap();
        assert_eq!(latest.state, HandoffState::Done, "{latest:?}");
    }

    fn current(&self) -> String {
        self.report().bases.into_iter().find(|base| base.current).unwrap().name
    }

    fn socks(&self, target: SocketAddr) -> Result<TcpStream, u8> {
        let mut stream = TcpStream::connect(self.proxy).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let SocketAddr::V4(target) = target else { panic!("IPv4 only") };
        let mut request = vec![5, 1, 0, 5, 1, 0, 1];
        request.extend_from_slice(&target.ip().octets());
        request.extend_from_slice(&target.port().to_be_bytes());
        stream.write_all(&request).unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).unwrap();
        if answer[3] == 0 { Ok(stream) } else { Err(answer[3]) }
    }

    fn connect(&self, target: SocketAddr) -> TcpStream {
        self.socks(target).unwrap()
    }
}

impl Drop for Country {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn handoff(i: usize) -> Request {
    Request::Handoff { to: format!("b{}", i + 1) }
}

/// Sends back what it gets, until the end.
fn echo_server() -> SocketAddr {
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

/// Bytes that do not repeat within any buffer.
fn pattern(len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| ((i * i) ^ (i >> 8)) as u8).collect()
}

/// A connection that sends a pattern slowly enough to be moved meanwhile, and reads it back.
struct Exchange {
    writer: JoinHandle<io::Result<()>>,
    reader: JoinHandle<(Vec<u8>, io::Result<usize>)>,
    len: usize,
}

impl Exchange {
    fn start(stream: TcpStream, len: usize) -> Self {
        let mut out = stream.try_clone().unwrap();
        out.set_write_timeout(Some(PATIENCE)).unwrap();
        let writer = thread::spawn(move || {
            for piece in pattern(len).chunks(64 * 1024) {
                out.write_all(piece)?;
                thread::sleep(Duration::from_millis(10));
            }
            out.shutdown(Shutdown::Write)
        });
        let mut into = stream;
        let reader = thread::spawn(move || {
            into.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut got = Vec::new();
            let end = into.read_to_end(&mut got);
            (got, end)
        });
        Self { writer, reader, len }
    }

    fn finish(self) -> bool {
        self.writer.join().unwrap().unwrap();
        let (got, end) = self.reader.join().unwrap();
        end.unwrap();
        got == pattern(self.len)
    }

    /// Everything came, or what came is right and a reset ended it at both ends.
    fn ends_whole_or_reset(self) {
        let written = self.writer.join().unwrap();
        let (got, end) = self.reader.join().unwrap();
        let whole = pattern(self.len);
        assert!(whole.starts_with(&got), "bytes were lost, changed or doubled");
        if end.is_ok() {
            written.unwrap();
            return assert_eq!(got.len(), whole.len(), "the end came too early");
        }
        for error in [end.err(), written.err()].into_iter().flatten() {
            let clean = matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe);
            assert!(clean, "it hangs: {error}");
        }
    }
}

fn says(stream: &mut TcpStream, text: &str) {
    stream.write_all(text.as_bytes()).unwrap();
    let mut got = vec![0; text.len()];
    stream.read_exact(&mut got).unwrap();
    assert_eq!(got, text.as_bytes());
}

/// Runs every test once with each hop (SPL-3, SRP-13, MOB-37), and with bases that have several
/// workers.
macro_rules! with_each_hop {
    ($($name:ident,)*) => {
        with_each_hop! { srp "srp" 1: $($name,)* }
        with_each_hop! { srp_with_workers "srp" 3: $($name,)* }
        with_each_hop! { mobile_tcp "mobile-tcp" 2: $($name,)* }
        with_each_hop! { split_tcp "split-tcp" 1: $($name,)* }
    };
    ($module:ident $hop:literal $workers:literal: $($name:ident,)*) => {
        mod $module {
            $(#[test] fn $name() { super::$name(super::BaseHop { name: $hop, workers: $workers }) })*
        }
    };
}

with_each_hop! {
    a_connection_goes_round_all_bases_with_every_byte,
    a_move_back_before_it_is_done_harms_nothing,
    a_foreseen_move_is_made_over_the_association_that_waits,
    a_fading_signal_prepares_the_only_other_base,
    a_prediction_that_does_not_come_true_leaves_nothing,
    a_base_that_dies_is_left_for_another_and_new_connections_work,
    the_next_connection_after_a_restart_works,
    a_base_that_nobody_knows_is_named_and_nothing_happens,
    what_stayed_at_a_base_that_revokes_its_mobile_is_reset_at_once,
    a_base_comes_and_goes_while_the_others_run,
    a_base_that_is_elsewhere_is_found_there,
}

/// MHP-15, MHP-18, MHP-19, SCL-9
fn a_connection_goes_round_all_bases_with_every_byte(hop: BaseHop) {
    let country = Country::start(hop, 3, "");
    let echo = echo_server();
    let mut idle = country.connect(echo);
    says(&mut idle, "before");
    let exchange = Exchange::start(country.connect(echo), 8 * MB);
    for i in [1, 2, 0] {
        thread::sleep(Duration::from_millis(200));
        country.go(i);
    }
    assert!(exchange.finish(), "bytes were lost, changed or doubled");
    says(&mut idle, "after");
    let report = country.report();
    assert_eq!(report.handoffs.unwrap().here, 3);
    assert!(report.bases.iter().all(|base| base.handoffs == 1 && base.last_pause_s.is_some()));
    says(&mut country.connect(echo), "new");
}

/// MHP-23: a handoff that others interrupt within milliseconds ends with a moved connection, an unmoved
/// one or a clean reset, and with not one wrong byte; the next connection works.
fn a_move_back_before_it_is_done_harms_nothing(hop: BaseHop) {
    let country = Country::start(hop, 3, "");
    let echo = echo_server();
    let exchange = Exchange::start(country.connect(echo), 8 * MB);
    for round in 0..5 {
        thread::sleep(Duration::from_millis(60));
        for i in [1, 2, 0, 1, 0] {
            let _ = country.ask(&handoff(i)).unwrap();
            thread::sleep(Duration::from_millis(3 * round));
        }
        country.await_that("settled", |report| {
            let latest = report.handoff.as_ref();
            latest.is_some_and(|h| h.state != HandoffState::UnderWay)
        });
    }
    exchange.ends_whole_or_reset();
    says(&mut country.connect(echo), "afterwards");
}

/// MOB-39
fn a_foreseen_move_is_made_over_the_association_that_waits(hop: BaseHop) {
    let country = Country::start(hop, 2, "");
    let echo = echo_server();
    let exchange = Exchange::start(country.connect(echo), 8 * MB);
    // Where this one, too, is open, the base knows the session: before, it gives none away.
    says(&mut country.connect(echo), "settled");
    let imminent = Request::Link(Link::Imminent { to: Some("b2".to_owned()), in_ms: 300 });
    country.ask(&imminent).unwrap();
    country.await_that("reached ahead", |report| report.bases[1].state == "up");
    assert_eq!(country.current(), "b1");
    country.go(1);
    assert!(exchange.finish(), "bytes were lost, changed or doubled");
}

/// MOB-39, LNK-14: a signal that fades foretells a move as an operator does.
fn a_fading_signal_prepares_the_only_other_base(hop: BaseHop) {
    let signal = "[signal]\nwindow = \"400ms\"\nhorizon = \"2s\"";
    let country = Country::start(hop, 2, signal);
    let mut stream = country.connect(echo_server());
    let quality = |dbm| Request::Link(Link::Quality { interface: None, dbm });
    for _ in 0..12 {
        assert_eq!(country.report().bases[1].state, "idle", "the signal is good");
        country.ask(&quality(-50)).unwrap();
        thread::sleep(Duration::from_millis(50));
    }
    // However slowly these go, five of them span half of the window, or the last is too weak.
    for step in 0..60 {
        country.ask(&quality(-50 - step)).unwrap();
        if country.report().bases[1].state != "idle" {
            break;
        }
        thread::sleep(Duration::from_millis(50));
    }
    country.await_that("reached ahead", |report| report.bases[1].state == "up");
    assert_eq!(country.current(), "b1", "it foretells a move and does not make it");
    says(&mut stream, "still here");
}

/// MOB-41, MOB-43
fn a_prediction_that_does_not_come_true_leaves_nothing(hop: BaseHop) {
    let country = Country::start(hop, 2, "");
    let mut stream = country.connect(echo_server());
    let imminent = Request::Link(Link::Imminent { to: Some("b2".to_owned()), in_ms: 10 });
    country.ask(&imminent).unwrap();
    country.await_that("reached ahead", |report| report.bases[1].state == "up");
    country.await_that("dropped", |report| report.bases[1].state == "idle");
    says(&mut stream, "still here");
    assert_eq!(country.current(), "b1");
}

fn a_base_that_dies_is_left_for_another_and_new_connections_work(hop: BaseHop) {
    let mut country = Country::start(hop, 2, "[handoff]\nlost_after = \"500ms\"");
    let echo = echo_server();
    says(&mut country.connect(echo), "before");
    country.fell(0);
    let mut stream = None;
    lasthop_testing::wait_until("it is not refused", PATIENCE, || {
        stream = country.socks(echo).ok();
        stream.is_some()
    });
    says(&mut stream.unwrap(), "there");
    assert_eq!(country.current(), "b2");
    assert_eq!(country.base_report(1).associations.len(), 1);
}

fn the_next_connection_after_a_restart_works(hop: BaseHop) {
    let mut country = Country::start(hop, 1, "");
    let echo = echo_server();
    says(&mut country.connect(echo), "before");
    country.fell(0);
    country.raise(0);
    says(&mut country.connect(echo), "after");
}

fn a_base_that_nobody_knows_is_named_and_nothing_happens(hop: BaseHop) {
    let country = Country::start(hop, 2, "");
    let mut stream = country.connect(echo_server());
    let error = country.ask(&Request::Handoff { to: "b9".to_owned() }).unwrap_err();
    assert!(error.contains("b9") && error.contains("b1, b2"), "{error}");
    assert_eq!(country.ask(&handoff(0)).unwrap().handoff, None);
    says(&mut stream, "still here");
}

/// The base that has the session serves the mobile as before.
fn what_stayed_at_a_base_that_revokes_its_mobile_is_reset_at_once(hop: BaseHop) {
    let country = Country::start(hop, 2, "");
    let echo = echo_server();
    let mut stayed = country.connect(echo);
    says(&mut stayed, "before");
    country.go(1);
    says(&mut stayed, "from there");
    let mut new = country.connect(echo);
    says(&mut new, "its own");
    let other = KeyText(*keyfile::generate().unwrap().public());
    let revoke = |file: &mut BaseFile| {
        let allow = file.allow.as_mut().unwrap();
        allow[1 % hop.workers] = other.into();
    };
    revoke(&mut country.bases[0].file.lock().unwrap());
    let reply = control::request(&country.dir.join("b1.sock"), &Request::Reload {}).unwrap();
    assert_eq!(reply.reload.map(|reload| (reload.added, reload.removed)), Some((1, 1)));
    assert!(country.base_report(0).connections.is_empty());
    assert_eq!(stayed.read(&mut [0; 1]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    says(&mut new, "still here");
    says(&mut country.connect(echo), "new");
}

/// FLT-1, FLT-2: a base that runs alone hands over to one that joins, and what is between it and one that leaves is over.
fn a_base_comes_and_goes_while_the_others_run(hop: BaseHop) {
    let mut country = Country::start(hop, 2, "");
    let [of_first, of_second] = [0, 1].map(|i| country.peers(i));
    country.fell(0);
    country.set_peers(0, &[]);
    country.raise(0);
    let echo = echo_server();
    country.await_that("at the base that is alone", |report| {
        report.bases.iter().any(|base| base.state == "up")
    });
    if country.current() != "b1" {
        country.ask(&handoff(0)).unwrap();
        country.await_that("at the base that is alone", |report| report.bases[0].current);
    }
    let mut moving = country.connect(echo);
    says(&mut moving, "alone");
    assert!(country.base_report(0).peers.is_empty());

    country.set_peers(0, &of_first);
    let reloaded = country.reload(0);
    assert_eq!(reloaded.bases, Changes { added: 1, ..Changes::default() });
    assert_eq!(reloaded.restart, Vec::<String>::new());
    assert!(country.reload(0).bases.is_none(), "it is known by now");
    country.await_peers(0, true);
    country.await_peers(1, true);
    country.go(1);
    says(&mut moving, "moved");

    country.set_peers(1, &[]);
    let reloaded = country.reload(1);
    assert_eq!(reloaded.bases, Changes { removed: 1, ..Changes::default() });
    let ended = moving.read(&mut [0; 10]).unwrap_err();
    assert_eq!(ended.kind(), ErrorKind::ConnectionReset, "its socket is with the base that left");
    assert!(country.base_report(1).peers.is_empty());
    country.await_peers(0, false);
    says(&mut country.connect(echo), "new");

    // And is welcome once more.
    country.set_peers(1, &of_second);
    assert_eq!(country.reload(1).bases.added, 1);
    country.await_peers(0, true);
    country.await_peers(1, true);
    let mut moving = country.connect(echo);
    country.go(0);
    says(&mut moving, "back");
}

/// FLT-1
fn a_base_that_is_elsewhere_is_found_there(hop: BaseHop) {
    let country = Country::start(hop, 2, "");
    country.await_peers(0, true);
    let right = country.peers(0);
    let nowhere = |peer: &PeerFile| {
        let address = SocketAddr::new(peer.address.ip(), ports(1)[0]);
        PeerFile { address, ..peer.clone() }
    };
    let wrong: Vec<PeerFile> = right.iter().map(nowhere).collect();
    country.set_peers(0, &[]);
    assert_eq!(country.reload(0).bases.removed, 1);
    country.set_peers(0, &wrong);
    assert_eq!(country.reload(0).bases.added, 1);
    thread::sleep(Duration::from_millis(500));
    country.await_peers(0, false);
    country.set_peers(0, &right);
    let reloaded = country.reload(0);
    assert_eq!(reloaded.bases, Changes { changed: 1, ..Changes::default() });
    country.await_peers(0, true);
    let mut moving = country.connect(echo_server());
    country.go(1);
    says(&mut moving, "moved");
}
