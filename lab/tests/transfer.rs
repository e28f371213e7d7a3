//! Transfers across the lab arrive as they were sent.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use lasthop_lab::LabError;
use lasthop_lab::cell::{Measured, Plan, measure};
use lasthop_lab::client::{Client, Stop, Via};
use lasthop_lab::condition::Condition;
use lasthop_lab::content::Content;
use lasthop_lab::lasthop_program;
use lasthop_lab::process::Daemon;
use lasthop_lab::scheme::{Carrier, Scheme};
use lasthop_lab::topology::{Family, Lab, Topology};
use lasthop_lab::transfer::Direction;
use lasthop_testing::wait_until;
use lasthop_units::Seed;

const PATIENCE: Duration = Duration::from_secs(60);
const SIZE: u64 = 2_000_000;

/// What came of a short measurement; none where the machine cannot have it.
fn short(condition: Condition, scheme: Scheme, direction: Direction) -> Option<Measured> {
    let measured = Duration::from_secs(4);
    let plan = Plan {
        topology: condition.topology(),
        scheme,
        direction,
        settle: Duration::from_millis(500),
        measured,
        silence: condition.silence(measured),
        ..Plan::default()
    };
    let program = lasthop_program().unwrap_or_default();
    common::permitted(measure(&plan, &program, &Stop::default()))
}

#[test]
fn kernel_tcp_crosses_a_lossless_radio_with_the_right_bytes() {
    for direction in [Direction::Download, Direction::Upload] {
        let cubic = Scheme::Kernel("cubic".into());
        let Some(m) = short(Condition::Loss(0), cubic, direction) else { return };
        assert!(m.sha256_ok);
        assert!(m.share_of_limit.unwrap() > 0.0, "{direction}: nothing came");
        assert_eq!(m.loss, 0.0);
    }
}

#[test]
fn a_silence_is_survived_and_its_end_noticed() {
    let silence = Condition::Silence { ms: 300, loss: 0 };
    let reno = Scheme::Kernel("reno".into());
    let Some(m) = short(silence, reno, Direction::Download) else { return };
    assert!(m.sha256_ok);
    assert!(m.radio.dropped.silence.packets > 0);
    assert!(m.recovery.is_some());
}

/// A folder that is removed with everything in it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("lasthop-lab-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// nginx at the fixed host, with `content` at `/file`.
fn nginx(lab: &Lab, folder: &Folder, content: &[u8]) -> (Daemon, SocketAddr) {
    let root = folder.0.display();
    let address = lab.server_address(Family::V4);
    fs::write(folder.0.join("file"), content).unwrap();
    let config = format!(
        "user root; daemon off; worker_processes 1; pid {root}/pid; error_log stderr;\n\
         events {{ worker_connections 64; }}\n\
         http {{ access_log off; client_body_temp_path {root}/body; proxy_temp_path {root}/proxy;\n\
         fastcgi_temp_path {root}/fastcgi; uwsgi_temp_path {root}/uwsgi; scgi_temp_path \
         {root}/scgi;\n\
         server {{ listen {address}; root {root}; }} }}\n"
    );
    let file = folder.0.join("nginx.conf");
    fs::write(&file, config).unwrap();
    let mut command = lab.fixed.command("nginx");
    command.arg("-p").arg(&folder.0).arg("-c").arg(&file);
    let mut daemon = Daemon::spawn(command).unwrap();
    let client = Client::new(&lab.fixed, Via::Direct, address);
    wait_until("nginx listens", PATIENCE, || {
        daemon.check().unwrap();
        client.connect(PATIENCE).is_ok()
    });
    (daemon, address)
}

/// Fetches nginx's file with curl by `scheme` and compares it.
fn curl_fetches_by(scheme: &Scheme, name: &str) {
    let Some(program) = common::program() else { return };
    if !lasthop_testing::is_installed("nginx") || !lasthop_testing::is_installed("curl") {
        return;
    }
    let Some(lab) = common::lab(&Condition::Loss(5).topology()) else { return };
    let folder = Folder::new(name);
    let mut content = vec![0; SIZE as usize];
    Content::new(Seed::from_u64(1)).fill(&mut content);
    let (_nginx, address) = nginx(&lab, &folder, &content);
    let carrier = match Carrier::start(scheme, &lab, Family::V4, &program, PATIENCE) {
        Err(e @ LabError::NoCongestionControl(_)) => return lasthop_testing::skip(e),
        carrier => carrier.unwrap(),
    };
    let mut curl = lab.mobile.command("curl");
    curl.args(["--silent", "--show-error", "--fail", "--max-time", "60"]);
    if let Via::Socks5(proxy) = carrier.via() {
        curl.args(["--socks5", &proxy.to_string()]);
    }
    let output = curl.arg(format!("http://{address}/file")).output().unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaint}");
    assert!(output.stdout == content, "{} bytes of {SIZE} came", output.stdout.len());
}

#[test]
fn curl_fetches_from_nginx_by_kernel_tcp() {
    curl_fetches_by(&Scheme::Kernel("bbr".into()), "kernel");
}

#[test]
fn curl_fetches_from_nginx_by_split_tcp() {
    curl_fetches_by(&Scheme::SplitTcp("bbr".into()), "split");
}

#[test]
fn curl_fetches_from_nginx_by_srp() {
    curl_fetches_by(&Scheme::Srp, "srp");
}

#[test]
fn a_topology_can_be_had_again_and_again() {
    for _ in 0..5 {
        if common::lab(&Topology::default()).is_none() {
            return;
        }
    }
}
