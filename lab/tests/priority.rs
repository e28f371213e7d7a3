//! Priorities of connections that share a radio, changed by the command while they run.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use lasthop_lab::cell::Direction;
use lasthop_lab::lasthop_program;
use lasthop_lab::scheme::Hop;
use lasthop_lab::sharing::{Scene, Times};
use lasthop_lab::topology::Topology;
use lasthop_linux::control::{self, ConnectionReport};

/// What is allowed beyond what is claimed of an idle machine, a tenth: a machine at work has
/// moments when it keeps neither queues full nor clocks.
const MARGIN: f64 = 0.25;
/// The same where congestion windows bind for seconds on a machine at work (RWC-11).
const WIDE: f64 = 0.5;
const SUM: f64 = 0.4;
/// Shares follow within this time.
const SOON: Duration = Duration::from_secs(2);
/// Where congestion windows of the kernel's have to grow after losses of the start, they take longer.
const LATER: Duration = Duration::from_secs(6);
const STEPS: [[u32; 2]; 3] = [[1, 1], [2, 1], [1, 3]];
const PATIENCE: Duration = Duration::from_secs(30);

fn program() -> Option<PathBuf> {
    let program = lasthop_program();
    if program.is_none() {
        eprintln!("skipped: no lasthop beside this test (cargo build -p lasthop)");
    }
    program
}

fn scene(hop: &Hop) -> Option<Scene> {
    let program = program()?;
    match Scene::start(hop, &Topology::default(), &program) {
        Ok(scene) => Some(scene),
        Err(e) if e.is_permission() => {
            eprintln!("skipped: {e}");
            None
        }
        Err(e) => panic!("{e}"),
    }
}

/// Two transfers whose shares follow their priorities, and whose sum does not fall.
fn shares_follow(hop: &Hop, direction: Direction, follow: Duration, margin: f64) {
    let Some(mut scene) = scene(hop) else { return };
    let times = Times { follow, ..Times::default() };
    let (rows, right) = scene.run(direction, &STEPS, times, Topology::default().seed).unwrap();
    for row in &rows {
        eprintln!(
            "{:?} {direction} {:?}: share {:.3}, due {:.3}, sum {}",
            hop.both,
            row.priorities,
            row.share(),
            row.due(),
            row.sum(),
        );
    }
    assert!(right, "not the bytes that were sent");
    let [before, steps @ ..] = rows.as_slice() else { panic!("nothing was measured") };
    for row in steps {
        assert!(row.error() < margin, "{row:?}");
        // More than before is no fault of the division: a machine at work is slow to begin.
        let sum = row.sum().as_bps() as f64 / before.sum().as_bps() as f64;
        assert!(sum > 1.0 - SUM, "the sum became {sum} of what it was: {row:?}");
    }
}

/// RWC-2, RWC-4, RWC-6: on kernels, downloads by SRP share the hop as their priorities say.
#[test]
fn downloads_by_srp_follow_priorities() {
    shares_follow(&Hop::new("srp"), Direction::Download, SOON, MARGIN);
}

#[test]
fn uploads_by_srp_follow_priorities() {
    shares_follow(&Hop::new("srp"), Direction::Upload, SOON, MARGIN);
}

/// RWC-2, RWC-7: the kernel's own senders follow the windows that they are given.
#[test]
fn downloads_by_split_tcp_follow_priorities() {
    shares_follow(&Hop::new("split-tcp"), Direction::Download, LATER, WIDE);
}

/// RWC-2, RWC-12: windows of Mobile TCP, told in its own packets.
#[test]
fn downloads_by_mobile_tcp_follow_priorities() {
    shares_follow(&Hop::new("mobile-tcp"), Direction::Download, SOON, MARGIN);
}

/// A program that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The mobile's connections, once `ready` likes them.
fn connections(
    scene: &Scene,
    ready: impl Fn(&[ConnectionReport]) -> bool,
) -> Vec<ConnectionReport> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let got = control::query(&scene.socket).unwrap().connections;
        if ready(&got) {
            return got;
        }
        assert!(Instant::now() < deadline, "{got:?}");
        thread::sleep(Duration::from_millis(50));
    }
}

fn command(scene: &Scene, program: &std::path::Path, args: &[&str]) -> String {
    let output = Command::new(program)
        .arg("priority")
        .args(args)
        .arg("--control")
        .arg(&scene.socket)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// UFB-1, UFB-3, UFB-4: a program is known by its name, what the user says of it beats the
/// configuration at once, and counts for its later connections.
#[test]
fn a_program_is_known_by_its_name() {
    if !common::is_installed("curl") {
        return;
    }
    let Some(program) = program() else { return };
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("mobile.toml");
    std::fs::write(&rules, "[[priority]]\nprogram = \"curl\"\npriority = 4\n").unwrap();
    let mut hop = Hop::new("srp");
    hop.mobile.extend(["--config".to_owned(), rules.display().to_string()]);
    let Some(mut scene) = scene(&hop) else { return };
    let server = scene.server().address();
    let lasthop_lab::client::Via::Socks5(proxy) = scene.carrier().via() else { panic!() };
    let curl = |scene: &Scene| {
        let mut curl = scene.lab().mobile.command("curl");
        curl.args(["-s", "-o", "/dev/null", "--socks5", &proxy.to_string()]);
        curl.arg(format!("http://{server}/bytes/{}", 1u64 << 40)).stdout(Stdio::null());
        Running(curl.spawn().unwrap())
    };
    let named = |c: &ConnectionReport| c.program.as_deref() == Some("curl");

    let _first = curl(&scene);
    let got = connections(&scene, |all| all.iter().any(named));
    assert!(got[0].client.as_deref().is_some_and(|client| client.starts_with("127.0.0.1:")));
    let of_curl = |priority: u32, count: usize| {
        move |all: &[ConnectionReport]| {
            all.len() == count && all.iter().all(|c| c.priority == Some(priority))
        }
    };
    connections(&scene, of_curl(4, 1));

    command(&scene, &program, &["set", "curl", "7"]);
    connections(&scene, of_curl(7, 1));
    let _second = curl(&scene);
    connections(&scene, of_curl(7, 2));
    let listed = command(&scene, &program, &["list", "--json"]);
    assert!(listed.contains(r#""kind":"said","of":"program curl","priority":7"#), "{listed}");
    assert_eq!(listed.matches(r#""program":"curl""#).count(), 2, "{listed}");
    command(&scene, &program, &["clear", "curl"]);
    connections(&scene, of_curl(4, 2));
}

#[test]
fn what_nobody_has_is_refused_by_name() {
    let (Some(program), Some(scene)) = (program(), scene(&Hop::new("srp"))) else { return };
    let error = lasthop_lab::sharing::set_priority(&program, &scene.socket, "999", 2).unwrap_err();
    assert!(error.to_string().contains("no connection has the number 999"), "{error}");
}
