//! The two processes of the QUIC tunnel.

use std::process::Command;

use anyhow::{Context, Result};
use lasthop_lab::client::Via;
use lasthop_lab::process::Daemon;
use lasthop_units::Rate;

use super::{Hosts, Running, Wait, launch, quic_tunnel};

/// Starts a tunnel from the mobile to the base, and on to the server.
pub(super) fn start(hosts: &Hosts, place: u16, told: Option<Rate>) -> Result<Running> {
    let files = tempfile::tempdir().context("making a directory")?;
    quic_tunnel::make_identity(files.path())?;
    let program = std::env::current_exe().context("finding this command")?;
    let at = hosts.hop_at(place).to_string();
    let local = hosts.local_at(place);
    let common = |command: &mut Command| {
        command.arg("--identity").arg(files.path());
        if let Some(rate) = told {
            command.arg("--told").arg(format!("{}bps", rate.as_bps()));
        }
    };

    let mut base = hosts.base.command(&program);
    base.args(["quic-base", "--listen", &at, "--target", &hosts.server.to_string()]);
    common(&mut base);
    let mut mobile = hosts.mobile.command(&program);
    mobile.args(["quic-mobile", "--listen", &local.to_string(), "--base", &at]);
    common(&mut mobile);

    let daemons = vec![Daemon::spawn(base)?, Daemon::spawn(mobile)?];
    let ready = Wait { from: &hosts.mobile, at: local };
    launch(hosts, Via::Direct, local, daemons, &ready, Some(files))
}
