//! The two processes of the QUIC tunnel.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use lasthop_lab::client::Via;
use lasthop_lab::process::Daemon;
use lasthop_units::Rate;
use tempfile::TempDir;

use super::{Hosts, Running, Wait, launch, quic_tunnel};

/// Starts a tunnel from the mobile to the base, and on to the server.
pub(super) fn start(hosts: &Hosts, place: u16, told: Option<Rate>) -> Result<Running> {
    let parts = Parts::new(hosts, place, told)?;
    let local = parts.local(0);
    let daemons = vec![Daemon::spawn(parts.base())?, Daemon::spawn(parts.mobile(0))?];
    let ready = Wait { from: &hosts.mobile, at: local };
    launch(hosts, Via::Direct, local, daemons, &ready, Some(parts.files))
}

/// What the commands of a base and of its mobiles are made from.
pub(super) struct Parts {
    hosts: Hosts,
    place: u16,
    told: Option<Rate>,
    program: PathBuf,
    files: TempDir,
}

impl Parts {
    /// An identity for the base, by which all mobiles know it.
    pub(super) fn new(hosts: &Hosts, place: u16, told: Option<Rate>) -> Result<Self> {
        let files = tempfile::tempdir().context("making a directory")?;
        quic_tunnel::make_identity(files.path())?;
        let program = std::env::current_exe().context("finding this command")?;
        Ok(Parts { hosts: hosts.clone(), place, told, program, files })
    }

    /// The command of the base.
    pub(super) fn base(&self) -> Command {
        let mut command = self.hosts.base.command(&self.program);
        command.args(["quic-base", "--target", &self.hosts.server.to_string()]);
        command.args(["--listen", &self.hosts.hop_at(self.place).to_string()]);
        self.add_common(&mut command);
        command
    }

    /// The command of the `n`th mobile.
    pub(super) fn mobile(&self, n: u16) -> Command {
        let mut command = self.hosts.mobile.command(&self.program);
        command.args(["quic-mobile", "--listen", &self.local(n).to_string()]);
        command.args(["--base", &self.hosts.hop_at(self.place).to_string()]);
        self.add_common(&mut command);
        command
    }

    /// Where clients reach the `n`th mobile.
    pub(super) fn local(&self, n: u16) -> SocketAddr {
        self.hosts.local_at(self.place + n)
    }

    fn add_common(&self, command: &mut Command) {
        command.arg("--identity").arg(self.files.path());
        if let Some(rate) = self.told {
            command.arg("--told").arg(format!("{}bps", rate.as_bps()));
        }
    }
}
