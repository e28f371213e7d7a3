//! A splitting proxy as the distribution has it: haproxy, or socat where that is missing.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use lasthop_lab::client::Via;
use lasthop_lab::process::Daemon;
use tempfile::TempDir;

use super::kernel::set_on_hop;
use super::{Hosts, NotInstalled, Running, Wait, launch, which};

/// The name of the one that there is.
pub(super) fn installed() -> &'static str {
    if which("haproxy").is_none() && which("socat").is_some() { "socat" } else { "haproxy" }
}

/// Starts the proxy at the base, with this congestion control on the hop.
pub(super) fn start(hosts: &Hosts, place: u16, congestion: &str) -> Result<Running> {
    set_on_hop(hosts, congestion)?;
    let at = hosts.hop_at(place);
    let files = tempfile::tempdir().context("making a directory")?;
    let command = if let Some(program) = which("haproxy") {
        haproxy(hosts, &program, at, &files)?
    } else if let Some(program) = which("socat") {
        socat(hosts, &program, at)
    } else {
        return Err(NotInstalled("neither haproxy nor socat").into());
    };
    let daemons = vec![Daemon::spawn(command)?];
    let ready = Wait { from: &hosts.base, at };
    launch(hosts, Via::Direct, at, daemons, &ready, Some(files))
}

fn haproxy(hosts: &Hosts, program: &Path, at: SocketAddr, files: &TempDir) -> Result<Command> {
    let path = files.path().join("haproxy.cfg");
    std::fs::write(&path, configuration(at, hosts.server)).context("writing haproxy.cfg")?;
    let mut command = hosts.base.command(program);
    command.arg("-db").arg("-f").arg(path);
    Ok(command)
}

fn configuration(at: SocketAddr, server: SocketAddr) -> String {
    format!(
        "global\n maxconn 4096\n\
         defaults\n mode tcp\n timeout connect 60s\n timeout client 1h\n timeout server 1h\n\
         frontend hop\n bind {at}\n default_backend fixed\n\
         backend fixed\n server fixed {server}\n"
    )
}

fn socat(hosts: &Hosts, program: &Path, at: SocketAddr) -> Command {
    let mut command = hosts.base.command(program);
    command
        .arg(format!("TCP-LISTEN:{},bind={},fork,reuseaddr,backlog=1024", at.port(), at.ip()))
        .arg(format!("TCP:{}", hosts.server));
    command
}
