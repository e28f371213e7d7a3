//! Ordinary programs across a lossy radio, with real kernels in between: through the SOCKS5 listener
//! and through `lasthop exec`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on says where")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use lasthop_lab::LabError;
use lasthop_lab::client::Via;
use lasthop_lab::condition::Condition;
use lasthop_lab::process::Daemon;
use lasthop_lab::scheme::{Carrier, Scheme};
use lasthop_lab::topology::{Family, Lab};

const PATIENCE: Duration = Duration::from_secs(60);
const LASTHOP: &str = env!("CARGO_BIN_EXE_lasthop");

/// A base and a mobile with 5 % of loss between them, and a folder.
struct Setup {
    lab: Lab,
    carrier: Carrier,
    folder: PathBuf,
}

impl Drop for Setup {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Setup {
    /// None where `program` or namespaces cannot be had.
    fn with(program: &str) -> Option<Self> {
        if !lasthop_testing::is_installed(program) {
            return None;
        }
        if !Path::new(LASTHOP).with_file_name("liblasthop_preload.so").exists() {
            lasthop_testing::skip("no library beside lasthop (cargo build -p lasthop-preload)");
            return None;
        }
        let lab = Lab::start(&Condition::Loss(5).topology());
        let lab = lasthop_testing::or_skip(lab, LabError::is_permission)?;
        let command = Path::new(LASTHOP);
        let carrier = Carrier::start(&Scheme::Srp, &lab, Family::V4, command, PATIENCE).unwrap();
        let name = format!("lasthop-{program}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        Some(Self { lab, carrier, folder })
    }

    fn proxy(&self) -> SocketAddr {
        let Via::Socks5(proxy) = self.carrier.via() else { panic!("srp has a proxy") };
        proxy
    }

    /// An address at the fixed host.
    fn server(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.lab.server_address(Family::V4).ip(), port)
    }

    /// A command at the mobile, whose connections `lasthop exec` takes through the hop.
    fn exec(&self, program: &str) -> Command {
        let mut command = self.lab.mobile.command(LASTHOP);
        let proxy = self.proxy().to_string();
        command.args(["exec", "--proxy", &proxy, "--", program]).current_dir(&self.folder);
        command
    }

    /// Starts a server at the fixed host and waits until it listens there.
    fn serve(&self, program: &str, arguments: &[&str], address: SocketAddr) -> Daemon {
        let mut command = self.lab.fixed.command(program);
        command.args(arguments);
        let mut daemon = Daemon::spawn(command).unwrap();
        let deadline = Instant::now() + PATIENCE;
        let listens = || TcpListener::bind(address).is_err();
        while !self.lab.fixed.enter(listens).unwrap() {
            daemon.check().unwrap();
            assert!(Instant::now() < deadline, "{program} does not listen");
            thread::sleep(Duration::from_millis(20));
        }
        daemon
    }
}

fn succeeds(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let (said, complained) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{command:?}: {status}\n{said}\n{complained}");
    said.into_owned()
}

fn git(folder: &Path) -> Command {
    let mut git = Command::new("git");
    without_settings(&mut git).current_dir(folder);
    git
}

/// Keeps this machine's settings out.
fn without_settings(git: &mut Command) -> &mut Command {
    git.env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_TERMINAL_PROMPT", "0")
}

/// A repository with one file, laid out for plain HTTP.
fn repository(folder: &Path) -> Vec<u8> {
    let content: Vec<u8> = (0..300_000u32).flat_map(|i| i.wrapping_mul(i).to_le_bytes()).collect();
    let work = folder.join("work");
    succeeds(git(folder).args(["init", "--quiet", "work"]));
    fs::write(work.join("file"), &content).unwrap();
    succeeds(git(&work).args(["add", "file"]));
    let author = ["-c", "user.name=A", "-c", "user.email=a@example.org"];
    succeeds(git(&work).args(author).args(["commit", "--quiet", "--message", "File"]));
    succeeds(git(folder).args(["clone", "--quiet", "--bare", "work", "bare.git"]));
    succeeds(git(&folder.join("bare.git")).arg("update-server-info"));
    content
}

/// MHP-1, SRP-1: neither program nor server is changed.
#[test]
fn git_clones_over_http_by_exec_and_by_socks() {
    let Some(world) = Setup::with("git") else { return };
    let content = repository(&world.folder);
    let address = world.server(8000);
    let (ip, folder) = (address.ip().to_string(), world.folder.display().to_string());
    let files = ["-m", "http.server", "--bind", &ip, "--directory", &folder, "8000"];
    let _server = world.serve("python3", &files, address);
    let url = format!("http://{address}/bare.git");

    succeeds(without_settings(&mut world.exec("git")).args(["clone", "--quiet", &url, "by-exec"]));
    let mut by_socks = world.lab.mobile.command("git");
    let proxy = format!("http.proxy=socks5h://{}", world.proxy());
    without_settings(&mut by_socks).current_dir(&world.folder);
    succeeds(by_socks.args(["-c", &proxy, "clone", "--quiet", &url, "by-socks"]));
    for copy in ["by-exec", "by-socks"] {
        assert!(fs::read(world.folder.join(copy).join("file")).unwrap() == content, "{copy}");
    }
}

#[test]
fn iperf3_measures_both_directions_by_exec() {
    let Some(world) = Setup::with("iperf3") else { return };
    let address = world.server(5201);
    let ip = address.ip().to_string();
    let _server = world.serve("iperf3", &["--server", "--bind", &ip], address);
    for direction in [&[][..], &["--reverse"]] {
        let told = succeeds(
            world
                .exec("iperf3")
                .args(["--client", &ip, "--bitrate", "8M", "--time", "2", "--json"])
                .args(direction),
        );
        let report: serde_json::Value = serde_json::from_str(&told).unwrap();
        let bytes = |sum: &str| report["end"][sum]["bytes"].as_u64().unwrap();
        let (sent, received) = (bytes("sum_sent"), bytes("sum_received"));
        assert!(0 < received && received <= sent, "{received} of {sent} bytes");
    }
}

/// Answers each line with itself, for as many connections as come; tells whom they come from.
fn echo(world: &Setup) -> (SocketAddr, Receiver<IpAddr>) {
    let address = world.server(7);
    let listener = world.lab.fixed.enter(|| TcpListener::bind(address)).unwrap().unwrap();
    let (tell, peers) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let _ = tell.send(stream.peer_addr().unwrap().ip());
            thread::spawn(move || {
                let mut lines = BufReader::new(stream.try_clone().unwrap());
                let (mut stream, mut line) = (stream, Vec::new());
                while lines.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
                    if stream.write_all(&line).is_err() {
                        return;
                    }
                    line.clear();
                }
            });
        }
    });
    (address, peers)
}

/// Says a line and waits for it to come back before the next.
const TALK: &str = "
import socket, sys
host, port, proxy = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
if proxy:
    s = socket.create_connection((proxy[0], int(proxy[1])), 20)
    s.sendall(b'\\5\\1\\0')
    assert s.recv(2) == b'\\5\\0'
    s.sendall(b'\\5\\1\\0\\1' + socket.inet_aton(host) + port.to_bytes(2, 'big'))
    answer = s.recv(10, socket.MSG_WAITALL)
    assert answer[:2] == b'\\5\\0', answer
else:
    s = socket.create_connection((host, port), 20)
f = s.makefile('rwb')
for i in range(30):
    said = b'line %d\\n' % i
    f.write(said)
    f.flush()
    assert f.readline() == said
print('all came back')
";

/// MHP-3: the fixed host has one connection for each of the application's, from the base. ITCP-2:
/// `exec` puts calls of its library in place of the standard ones, and nothing is linked anew.
#[test]
fn a_conversation_line_by_line_by_exec_and_by_socks() {
    let Some(world) = Setup::with("python3") else { return };
    let (address, peers) = echo(&world);
    let (ip, port) = (address.ip().to_string(), address.port().to_string());
    let by_exec = succeeds(world.exec("python3").args(["-c", TALK, &ip, &port]));
    let proxy = [world.proxy().ip().to_string(), world.proxy().port().to_string()];
    let mut direct = world.lab.mobile.command("python3");
    let by_socks = succeeds(direct.args(["-c", TALK, &ip, &port]).args(&proxy));
    assert_eq!([by_exec, by_socks], ["all came back\n"; 2]);
    let mobile = world.lab.mobile_address(Family::V4);
    let peers: Vec<IpAddr> = peers.try_iter().collect();
    assert!(peers.len() == 2 && peers.iter().all(|peer| *peer != mobile), "{peers:?}");
}
