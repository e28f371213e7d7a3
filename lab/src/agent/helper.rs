//! `lasthop agent` at a bridge.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use lasthop_control::{self as control, AgentReport, Link, Request};
use lasthop_kernel::netns::Netns;
use lasthop_units::{HopEnd, Placement};

use super::path::{self, FIXED_IF, MOBILE_IF};
use crate::error::LabError;
use crate::folder::Folder;
use crate::process::Daemon;

const TICK: Duration = Duration::from_millis(10);

/// An agent at work, until this is dropped.
///
/// It ends with the thread that started it at the latest.
#[derive(Debug)]
pub struct Helper {
    /// Its process.
    pub daemon: Daemon,
    host: Netns,
    program: PathBuf,
    args: Vec<String>,
    // Removed last: the process has its socket there.
    folder: Folder,
}

impl Helper {
    /// Starts `lasthop agent ARGS` between the two ports of the bridge of `host`, from the `lasthop`
    /// command at `program`. The agent is at work when this returns.
    ///
    /// # Errors
    ///
    /// It ended, or was not ready within `patience`.
    pub fn start(
        host: &Netns,
        program: &Path,
        args: &[&str],
        patience: Duration,
    ) -> Result<Self, LabError> {
        let folder = Folder::new()?;
        let socket = folder.path("agent.sock");
        let mut args: Vec<String> = args.iter().map(ToString::to_string).collect();
        for (option, value) in [("--fixed-if", FIXED_IF), ("--mobile-if", MOBILE_IF)] {
            args.extend([option.to_owned(), value.to_owned()]);
        }
        args.extend(["--control".to_owned(), socket.display().to_string()]);
        let daemon = spawn(host, program, &args)?;
        let (host, program) = (host.clone(), program.to_owned());
        let mut helper = Self { daemon, host, program, args, folder };
        helper.wait_until(patience, |_| true)?;
        Ok(helper)
    }

    /// Where it is spoken to.
    pub fn control(&self) -> PathBuf {
        self.folder.path("agent.sock")
    }

    /// Tells it something of the link.
    ///
    /// # Errors
    ///
    /// It does not answer, or refuses.
    pub fn tell(&self, news: Link) -> Result<(), LabError> {
        tell(&self.control(), news)
    }

    /// Its picture.
    ///
    /// # Errors
    ///
    /// It does not answer.
    pub fn report(&self) -> Result<AgentReport, LabError> {
        let asking = |e| LabError::io("asking an agent", e);
        let report = control::query(&self.control()).map_err(asking)?;
        report.agent.ok_or_else(|| asking(std::io::ErrorKind::InvalidData.into()))
    }

    /// Waits until its picture is such, which is returned.
    ///
    /// # Errors
    ///
    /// It ended, or `patience` did.
    pub fn wait_until(
        &mut self,
        patience: Duration,
        is: impl Fn(&AgentReport) -> bool,
    ) -> Result<AgentReport, LabError> {
        let deadline = Instant::now() + patience;
        loop {
            self.daemon.check()?;
            match self.report() {
                Ok(report) if is(&report) => return Ok(report),
                _ if Instant::now() >= deadline => {
                    let what = format!("an agent that said: {}", self.daemon.said());
                    return Err(LabError::TooLong(what));
                }
                _ => thread::sleep(TICK),
            }
        }
    }

    /// Starts it again as it was started.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub fn restart(&mut self, patience: Duration) -> Result<(), LabError> {
        self.daemon.kill();
        self.daemon = spawn(&self.host, &self.program, &self.args)?;
        self.wait_until(patience, |_| true).map(drop)
    }
}

/// Starts the agents of a scheme where they belong.
///
/// # Errors
///
/// An agent did not start, or the path has no second bridge and one is needed.
pub fn start_all(
    path: &path::Path,
    placements: &[Placement],
    program: &Path,
    patience: Duration,
) -> Result<Vec<Helper>, LabError> {
    let start = |placement: &Placement| {
        let host = match placement.end {
            HopEnd::Base => Some(&path.base),
            HopEnd::Mobile => path.behind.as_ref(),
        };
        let none = || LabError::io("finding a second bridge", std::io::ErrorKind::NotFound.into());
        Helper::start(host.ok_or_else(none)?, program, &placement.args, patience)
    };
    placements.iter().map(start).collect()
}

/// Tells the agent that serves `control` something of the link.
pub(super) fn tell(control: &Path, news: Link) -> Result<(), LabError> {
    match control::request(control, &Request::Link(news)) {
        Ok(_) => Ok(()),
        Err(e) => Err(LabError::Answer { who: "an agent", what: e.to_string() }),
    }
}

fn spawn(host: &Netns, program: &Path, args: &[String]) -> Result<Daemon, LabError> {
    let mut command = host.command(program);
    command.arg("agent").args(args).env("NO_COLOR", "1");
    Daemon::spawn(command)
}
