//! A base and a mobile with configurations of a test's own.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use lasthop_control::{self as control, Report};
use lasthop_daemon::keyfile::{self, Existing};
use lasthop_kernel::netns::Netns;
use lasthop_lab::process::Daemon;

const PATIENCE: Duration = Duration::from_secs(60);

/// The two roles' keys, and a folder for their files.
pub(crate) struct Pair {
    program: PathBuf,
    folder: tempfile::TempDir,
    /// The base's public key, and the mobile's.
    pub(crate) keys: [String; 2],
}

impl Pair {
    /// None where the command was not built.
    pub(crate) fn new() -> Option<Self> {
        let program = super::program()?;
        let folder = tempfile::tempdir().unwrap();
        let keys = ["base", "mobile"].map(|name| {
            let keys = keyfile::generate().unwrap();
            keyfile::store(&folder.path().join(name), &keys, Existing::Keep).unwrap();
            keys.public().to_string()
        });
        Some(Self { program, folder, keys })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts a role with its own key and control socket, and `config` behind them.
    pub(crate) fn start(&self, netns: &Netns, role: &str, config: &str) -> Daemon {
        let (key, control) = (self.path(role), self.path(&format!("{role}.sock")));
        let path = self.path(&format!("{role}.toml"));
        fs::write(&path, format!("key = {key:?}\ncontrol = {control:?}\n{config}")).unwrap();
        let mut command = netns.command(&self.program);
        command.arg(role).arg("--config").arg(&path);
        Daemon::spawn(command).unwrap()
    }

    /// What a role reports, once it does.
    pub(crate) fn status(&self, role: &str) -> Option<Report> {
        control::query(&self.path(&format!("{role}.sock"))).ok()
    }

    /// Waits until the mobile's association stands.
    pub(crate) fn wait_up(&self, mobile: &mut Daemon) {
        let is_up = |report: Report| report.associations.iter().any(|a| a.state == "up");
        let start = Instant::now();
        while !self.status("mobile").is_some_and(is_up) {
            mobile.check().unwrap();
            assert!(start.elapsed() < PATIENCE, "no association:\n{}", mobile.said());
            thread::sleep(Duration::from_millis(20));
        }
    }
}
