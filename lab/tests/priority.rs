//! Priorities of connections that share a radio, changed by the command while they run.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lasthop_control::{self as control, ConnectionReport};
use lasthop_lab::scheme::Hop;
use lasthop_lab::sharing::{Patience, Scene, Times};
use lasthop_lab::topology::{Topology, link};
use lasthop_lab::transfer::Direction;
use lasthop_radio::RadioConfig;
use lasthop_testing::wait_until;
use lasthop_units::Rate;

/// How near shares have to come to their due; that of the step before is further from it. How soon
/// they do, and that nothing is lost by it, the benchmarks show.
const NEAR: f64 = 0.25;
/// The same where the kernel's congestion windows bind for seconds (RWC-11).
const LESS_NEAR: f64 = 0.4;
const STEPS: [[u32; 2]; 3] = [[1, 1], [2, 1], [1, 3]];
const PATIENCE: Duration = Duration::from_secs(60);

/// A radio that a busy machine fills too, so that it is what is shared.
fn topology() -> Topology {
    let radio = link(Rate::from_mbps(5), Duration::from_millis(20), 60);
    Topology { radio: RadioConfig::both(radio), ..Topology::default() }
}

fn scene(hop: &Hop) -> Option<Scene> {
    let program = common::program()?;
    common::permitted(Scene::start(hop, &topology(), &program))
}

/// Two transfers whose shares of the bytes that come follow their priorities.
fn shares_follow(hop: &Hop, direction: Direction, near: f64) {
    let Some(mut scene) = scene(hop) else { return };
    let patience = Some(Patience { error: near, lasting: PATIENCE });
    let times = Times { patience, ..Times::default() };
    let (rows, right) = scene.run(direction, &STEPS, times).unwrap();
    for row in &rows {
        eprintln!(
            "{:?} {direction} {:?}: share {:.3}, due {:.3}",
            hop.both,
            row.priorities,
            row.share(),
            row.due(),
        );
    }
    assert!(right, "not the bytes that were sent");
    let [_, steps @ ..] = rows.as_slice() else { panic!("nothing was measured") };
    assert_eq!(steps.len(), STEPS.len());
    for row in steps {
        assert!(row.error() < near, "{row:?}");
    }
}

/// RWC-2, RWC-4, RWC-6: on kernels, downloads by SRP share the hop as their priorities say.
#[test]
fn downloads_by_srp_follow_priorities() {
    shares_follow(&Hop::new("srp"), Direction::Download, NEAR);
}

#[test]
fn uploads_by_srp_follow_priorities() {
    shares_follow(&Hop::new("srp"), Direction::Upload, NEAR);
}

/// RWC-2, RWC-7: the kernel's own senders follow the windows that they are given.
#[test]
fn downloads_by_split_tcp_follow_priorities() {
    shares_follow(&Hop::new("split-tcp"), Direction::Download, LESS_NEAR);
}

/// RWC-2, RWC-12: windows of Mobile TCP, told in its own packets.
#[test]
fn downloads_by_mobile_tcp_follow_priorities() {
    shares_follow(&Hop::new("mobile-tcp"), Direction::Download, NEAR);
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
    let mut got = Vec::new();
    wait_until("the connections", PATIENCE, || {
        got = control::query(&scene.socket).unwrap().connections;
        ready(&got)
    });
    got
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
    if !lasthop_testing::is_installed("curl") {
        return;
    }
    let Some(program) = common::program() else { return };
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("mobile.toml");
    std::fs::write(&rules, "[[priority]]\nprogram = \"curl\"\npriority = 4\n").unwrap();
    let mut hop = Hop::new("srp");
    hop.mobile.extend(["--config".to_owned(), rules.display().to_string()]);
    let Some(scene) = scene(&hop) else { return };
    let server = scene.server.address();
    let lasthop_lab::client::Via::Socks5(proxy) = scene.carrier.via() else { panic!() };
    let curl = |scene: &Scene| {
        let mut curl = scene.lab.mobile.command("curl");
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
    let (Some(program), Some(scene)) = (common::program(), scene(&Hop::new("srp"))) else { return };
    let error = lasthop_lab::sharing::set_priority(&program, &scene.socket, "999", 2).unwrap_err();
    assert!(error.to_string().contains("no connection has the number 999"), "{error}");
}
