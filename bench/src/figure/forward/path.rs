//! Two hosts, a bridge between them, and what forwards there.

use std::time::Instant;

use anyhow::{Context, Result, bail};
use lasthop_kernel::netns::Netns;
use lasthop_lab::agent;
use lasthop_lab::agent::path::{FIXED_IF, MOBILE_IF, Settings};
use lasthop_lab::process::{Daemon, run};
use lasthop_units::Duration;
use rustix::thread::Pid;

use super::cores::{FORWARDS, existing, pin};
use super::{Way, traffic};
use crate::peer::{NotInstalled, which};
use crate::process::lasthop;

/// How long a process may take until packets cross.
const PATIENCE: Duration = Duration::from_secs(20);

/// A way across, at work until it is dropped.
pub(super) struct Path {
    process: Option<Daemon>,
    path: agent::path::Path,
}

impl Path {
    pub(super) fn build(way: Way) -> Result<Self> {
        let cables = Settings { wire: None, radio: None, ..Settings::default() };
        let path = agent::path::Path::start(&cables)?;
        let process = match way {
            Way::Bridge => None,
            Way::Agent => Some(agent(&path.base)?),
            Way::Nfqueue => Some(nfqueue(&path.base)?),
            Way::AfXdp => Some(testpmd(&path.base)?),
        };
        let mut path = Path { process, path };
        // What is not ours chooses its core by itself, and says nothing when it stands.
        path.wait(way != Way::AfXdp)?;
        Ok(path)
    }

    /// Where packets come from, and where they go.
    pub(super) fn hosts(&self) -> [&Netns; 2] {
        [&self.path.fixed, &self.path.mobile]
    }

    /// The process that forwards, if it is one.
    pub(super) fn process(&self) -> Option<u32> {
        self.process.as_ref().map(Daemon::id)
    }

    /// An error with its last words if the process has ended.
    pub(super) fn check(&mut self) -> Result<()> {
        Ok(self.process.as_mut().map_or(Ok(()), Daemon::check)?)
    }

    /// Packets cross, by the process if there is one; if it is ours it is pinned, and has to say that
    /// it is [`READY`].
    fn wait(&mut self, ours: bool) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        let process = self.process.as_ref().map(|daemon| daemon.id() as i32);
        if let Some(pid) = process.filter(|_| ours).and_then(Pid::from_raw) {
            pin(Some(pid), FORWARDS).context("pinning the process")?;
        }
        loop {
            self.check()?;
            let said = self.process.as_ref().filter(|_| ours).map(Daemon::said);
            let stands = said.is_none_or(|said| said.contains(READY));
            if stands && traffic::delays(self.hosts(), 20).is_ok() {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("no packet crossed within {PATIENCE:?}");
            }
        }
    }
}

/// What both processes say once they are in the path.
pub(super) const READY: &str = "in the path";

fn agent(base: &Netns) -> Result<Daemon> {
    let mut command = base.command(lasthop()?);
    command.args(["agent", "none", "--fixed-if", FIXED_IF, "--mobile-if", MOBILE_IF]);
    Ok(Daemon::spawn(command)?)
}

/// The bridge asks the packet filter, and that the process.
fn nfqueue(base: &Netns) -> Result<Daemon> {
    let iptables = which("iptables").ok_or(NotInstalled("iptables"))?;
    base.sysctl("bridge.bridge-nf-call-iptables", "1").context("filtering what is bridged")?;
    let mut command = base.command(iptables);
    let rule = "-A FORWARD -p tcp ! -f -j NFQUEUE --queue-num 0 --queue-bypass";
    command.args(rule.split(' '));
    run(command)?;
    let mut command = base.command(std::env::current_exe().context("this command")?);
    command.arg("answer-queue");
    Ok(Daemon::spawn(command)?)
}

/// Two AF_XDP sockets, and what comes to one leaves by the other. Its two threads, of which one only
/// waits, have the one core.
fn testpmd(base: &Netns) -> Result<Daemon> {
    let testpmd = which("dpdk-testpmd").ok_or(NotInstalled("dpdk-testpmd"))?;
    let core = existing(FORWARDS);
    let mut command = base.command(testpmd);
    command.arg(format!("--lcores=0@{core},1@{core}"));
    command.args("--no-pci --no-huge -m 512 --no-telemetry --no-shconf".split(' '));
    for (n, name) in [FIXED_IF, MOBILE_IF].into_iter().enumerate() {
        command.arg(format!("--vdev=net_af_xdp{n},iface={name},force_copy=1"));
    }
    // Without statistics it ends when it can read nothing.
    let way = "-- --forward-mode=io --auto-start --total-num-mbufs=32768 --stats-period=1000";
    command.args(way.split(' '));
    Ok(Daemon::spawn(command)?)
}
