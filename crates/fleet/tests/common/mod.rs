//! What tests of fleets share: etcd's processes, a base that answers, agents.

#![allow(dead_code, reason = "not every test needs everything")]

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt::Debug;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use lasthop_control::{AssociationReport, Report};
use lasthop_fleet::agent::{self, AgentOptions};
use lasthop_fleet::commands::{self, Fleet, JoinOptions, Where};
use lasthop_fleet::config::FleetFile;
use lasthop_fleet::error::FleetError;
use lasthop_fleet::records::Name;
use lasthop_fleet::token::Token;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
const TTL: Duration = Duration::from_secs(600);

pub(crate) fn name(text: &str) -> Name {
    text.parse().unwrap()
}

/// Runs a test that waits for many things.
pub(crate) fn block_on<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test)
}

/// Waits until it is so; how long that took.
pub(crate) async fn until(what: &str, mut done: impl FnMut() -> bool) -> Duration {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    start.elapsed()
}

/// A member of etcd, which is killed when it is dropped.
struct Member {
    arguments: Vec<String>,
    process: Option<Child>,
}

impl Member {
    fn start(&mut self) {
        let etcd = Command::new("etcd")
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        self.process = Some(etcd.unwrap());
    }

    fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Members of etcd on loopback, and a folder.
pub(crate) struct Etcd {
    members: Vec<Member>,
    pub(crate) endpoints: Vec<String>,
    folder: tempfile::TempDir,
}

/// Ports that nobody has at the moment. They are none of those that the kernel gives to whoever connects: in
/// a member's absence one of these would be taken, even by the attempt to connect with the member itself.
fn free_ports(count: usize) -> Vec<u16> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let mut held = Vec::new();
    while held.len() < count {
        let n = std::process::id().wrapping_mul(61) + NEXT.fetch_add(1, Ordering::Relaxed);
        let port = u16::try_from(20_000 + n % 12_000).unwrap();
        held.extend(TcpListener::bind(("127.0.0.1", port)));
    }
    held.iter().map(|listener| listener.local_addr().unwrap().port()).collect()
}

impl Etcd {
    /// So many members; none where etcd is not installed.
    pub(crate) fn start(count: usize) -> Option<Self> {
        Self::start_with(count, "http", &[])
    }

    pub(crate) fn start_with(count: usize, scheme: &str, more: &[String]) -> Option<Self> {
        if !lasthop_testing::is_installed("etcd") {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let ports = free_ports(2 * count);
        let (clients, peers) = ports.split_at(count);
        let peer = |n: usize| format!("http://127.0.0.1:{}", peers[n]);
        let cluster: Vec<_> = (0..count).map(|n| format!("m{n}={}", peer(n))).collect();
        let endpoints: Vec<_> =
            clients.iter().map(|port| format!("{scheme}://127.0.0.1:{port}")).collect();
        let member = |n: usize| {
            let options = [
                ("--name", format!("m{n}")),
                ("--data-dir", folder.path().join(format!("m{n}")).display().to_string()),
                ("--listen-client-urls", endpoints[n].clone()),
                ("--advertise-client-urls", endpoints[n].clone()),
                ("--listen-peer-urls", peer(n)),
                ("--initial-advertise-peer-urls", peer(n)),
                ("--initial-cluster", cluster.join(",")),
                ("--log-level", "error".to_owned()),
            ];
            let options = options.into_iter().flat_map(|(name, value)| [name.to_owned(), value]);
            let arguments = options.chain(more.iter().cloned()).collect();
            let mut member = Member { arguments, process: None };
            member.start();
            member
        };
        let members = (0..count).map(member).collect();
        Some(Self { members, endpoints, folder })
    }

    pub(crate) fn kill(&mut self, member: usize) {
        self.members[member].kill();
    }

    /// It neither ends nor answers from now on.
    pub(crate) fn hang(&mut self, member: usize) {
        let id = self.members[member].process.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args(["-STOP", &id]).status().unwrap().success());
    }

    pub(crate) fn kill_all(&mut self) {
        self.members.iter_mut().for_each(Member::kill);
    }

    pub(crate) fn start_again(&mut self) {
        let down = |member: &&mut Member| member.process.is_none();
        self.members.iter_mut().filter(down).for_each(Member::start);
    }

    /// A folder for this test.
    pub(crate) fn folder(&self, name: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::create_dir_all(&path).unwrap();
        path
    }

    pub(crate) fn at(&self) -> Where {
        Where { endpoints: self.endpoints.clone(), ..Where::default() }
    }

    /// A fleet, once etcd is ready for it.
    pub(crate) async fn fleet(&self) -> Fleet {
        self.fleet_at(self.at()).await
    }

    pub(crate) async fn fleet_at(&self, at: Where) -> Fleet {
        let start = Instant::now();
        loop {
            match commands::init(name("trains"), at.clone(), &self.folder("operator")).await {
                Ok(made) => return made.fleet,
                Err(error) => assert!(start.elapsed() < PATIENCE, "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// A client of etcd itself.
    pub(crate) async fn client(&self) -> etcd_client::Client {
        etcd_client::Client::connect(&self.endpoints, None).await.unwrap()
    }
}

/// How the base with this number joins.
pub(crate) fn joining(token: Token, n: usize, folder: &Path) -> JoinOptions {
    let (high, low) = (n / 250, n % 250 + 1);
    JoinOptions {
        token,
        name: name(&format!("b{n}")),
        peer: format!("10.1.{high}.{low}:4434").parse().unwrap(),
        hop: format!("10.1.{high}.{low}:4433").parse().unwrap(),
        via: None,
        identity: None,
        folder: folder.join(format!("b{n}")),
    }
}

/// Joins as the base with this number; its folder.
pub(crate) async fn join(fleet: &Fleet, n: usize, folder: &Path) -> PathBuf {
    let token = patiently(async || fleet.token(TTL).await).await;
    let options = joining(token, n, folder);
    patiently(async || commands::join(&options, |_| {}).await).await;
    options.folder
}

/// Does it again where etcd, whose members share two processors with everybody else, did not answer.
pub(crate) async fn patiently<T>(what: impl AsyncFn() -> Result<T, FleetError>) -> T {
    let start = Instant::now();
    loop {
        match what().await {
            Ok(done) => return done,
            Err(FleetError::Store(error)) => assert!(start.elapsed() < PATIENCE, "{error}"),
            Err(error) => panic!("{error}"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// An agent in this process.
pub(crate) struct Agent {
    pub(crate) folder: PathBuf,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Agent {
    pub(crate) fn start(folder: &Path) -> Self {
        let file = FleetFile::load(&folder.join("fleet.toml")).unwrap();
        let control = folder.join("base.sock");
        let options = AgentOptions::of(&file, folder.to_owned(), control).unwrap();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            let stop = async {
                let _ = stopped.await;
            };
            agent::run(options, stop).await.unwrap();
        });
        Self { folder: folder.to_owned(), stop: Some(stop), task }
    }

    pub(crate) fn members(&self) -> String {
        fs::read_to_string(self.folder.join("members.toml")).unwrap()
    }

    pub(crate) fn has(&self, what: &str) -> bool {
        self.members().contains(what)
    }

    /// The names of files with keys of tickets.
    pub(crate) fn tickets(&self) -> BTreeSet<String> {
        let names = fs::read_dir(&self.folder).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with("tickets-")).collect()
    }

    pub(crate) async fn stop(mut self) {
        let _ = self.stop.take().unwrap().send(());
        self.task.await.unwrap();
    }
}

/// What a base's control socket answers: it is told whom the base serves, and counts what it is asked.
pub(crate) struct FakeBase {
    pub(crate) report: Arc<Mutex<Report>>,
    pub(crate) reloads: Arc<Mutex<u64>>,
}

impl FakeBase {
    pub(crate) fn serve(folder: &Path) -> Self {
        let listener = UnixListener::bind(folder.join("base.sock")).unwrap();
        let report = Arc::new(Mutex::new(Report {
            version: "7".into(),
            draining: Some(false),
            ..Report::default()
        }));
        let reloads = Arc::new(Mutex::new(0));
        let base = Self { report: report.clone(), reloads: reloads.clone() };
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut line = String::new();
                BufReader::new(&stream).read_line(&mut line).unwrap();
                let answer = if line.contains("reload") {
                    *reloads.lock().unwrap() += 1;
                    r#"{"ok":{"reload":{"added":0,"removed":0}}}"#.to_owned()
                } else if line.contains("drain") {
                    let draining = !line.contains("undo");
                    report.lock().unwrap().draining = Some(draining);
                    serde_json::json!({ "ok": { "drain": { "draining": draining } } }).to_string()
                } else {
                    serde_json::json!({ "ok": *report.lock().unwrap() }).to_string()
                };
                let _ = writeln!(stream, "{answer}");
            }
        });
        base
    }

    /// Whom it serves from now on, and with how many connections.
    pub(crate) fn serves(&self, mobiles: &[(&str, u64)]) {
        let association = |(key, streams): &(&str, u64)| AssociationReport {
            peer: Some((*key).to_owned()),
            state: "up".to_owned(),
            streams: *streams,
            ..AssociationReport::default()
        };
        self.report.lock().unwrap().associations = mobiles.iter().map(association).collect();
    }

    /// Whether it was asked to send its mobiles elsewhere.
    pub(crate) fn is_draining(&self) -> bool {
        self.report.lock().unwrap().draining == Some(true)
    }

    /// An operator asks it to, or no longer.
    pub(crate) fn drain(&self, draining: bool) {
        self.report.lock().unwrap().draining = Some(draining);
    }

    pub(crate) fn reloads(&self) -> u64 {
        *self.reloads.lock().unwrap()
    }
}

/// The program, and what came of it.
pub(crate) fn program<S: AsRef<OsStr>>(arguments: &[S]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lasthop-fleet")).args(arguments).output().unwrap()
}

/// What the program prints when it does what it is told.
#[track_caller]
pub(crate) fn told<S: AsRef<OsStr> + Debug>(arguments: &[S]) -> String {
    let output = program(arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

/// What the program says when it does not.
#[track_caller]
pub(crate) fn refused<S: AsRef<OsStr> + Debug>(arguments: &[S]) -> String {
    let output = program(arguments);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}
