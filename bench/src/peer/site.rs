//! A base at work that mobiles join one by one.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use lasthop_hop::seal::{Keypair, PublicKey};
use lasthop_kernel::netns::Netns;
use lasthop_lab::client::{Client, Via};
use lasthop_lab::kept::Process;
use lasthop_lab::process::Daemon;
use lasthop_units::{Bytes, Duration, Seed};
use tempfile::TempDir;

use super::{Hop, Hosts, Peer, Running, Work, tunnel};
use crate::process::{self, cpu_of, cpu_of_threads};

/// Files of the base: its secret key, and its configuration.
const KEY: &str = "base";
const SETTINGS: &str = "base.toml";
/// Associations that a base has room for anyway.
const ASSOCIATIONS: usize = 256;

/// How much a base is to have room for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Capacity {
    /// Mobiles that it serves.
    pub(crate) mobiles: usize,
    /// Connections of all of them at once.
    pub(crate) connections: usize,
    /// Threads that share the work.
    pub(crate) workers: usize,
}

/// A base, until it is dropped. Its mobiles are dropped before it.
pub(crate) struct Site {
    // Ended before the files that it may still read.
    base: Daemon,
    parts: Parts,
    hosts: Hosts,
}

enum Parts {
    Lasthop(Lasthop),
    Tunnel(tunnel::Parts),
}

impl Site {
    /// Starts the base of `peer` with room for so much. Its mobiles' keys, if they have any, follow from `seed`.
    ///
    /// # Errors
    ///
    /// It cannot be started, or this peer has no mobiles that come one by one.
    pub(crate) fn open(peer: &Peer, hosts: &Hosts, room: Capacity, seed: Seed) -> Result<Self> {
        let parts = match peer {
            Peer::Srp => Parts::Lasthop(Lasthop::new(Hop::new("srp"), room, seed)?),
            Peer::SplitTcp(name) => Parts::Lasthop(Lasthop::new(Hop::split_tcp(name), room, seed)?),
            Peer::Quic => Parts::Tunnel(tunnel::Parts::new(hosts, 0, None)?),
            other => bail!("{other} has no mobiles that come one by one"),
        };
        let base = Daemon::spawn(parts.base(hosts))?;
        Ok(Site { base, parts, hosts: hosts.clone() })
    }

    /// Asks the base to end, and starts it again once it has ended.
    pub(crate) fn restart(&mut self) -> Result<()> {
        self.base.stop();
        self.base = Daemon::spawn(self.parts.base(&self.hosts))?;
        Ok(())
    }

    /// Starts the `n`th mobile, and does not wait for it.
    pub(crate) fn join(&self, n: u16) -> Result<Running> {
        let at = self.hosts.local_at(n);
        let (command, via, server) = match &self.parts {
            Parts::Lasthop(lasthop) => {
                (lasthop.mobile(&self.hosts, n)?, Via::Socks5(at), self.hosts.server)
            }
            Parts::Tunnel(tunnel) => (tunnel.mobile(n), Via::Direct, at),
        };
        let client = Client::new(&self.hosts.mobile, via, server);
        let daemons = vec![Daemon::spawn(command)?];
        Ok(Running { client, work: Work::Others { daemons, _files: None } })
    }

    /// The base's public key and its mobiles' key pairs, where there are any.
    pub(crate) fn keys(&self) -> Option<(PublicKey, Vec<Keypair>)> {
        let Parts::Lasthop(Lasthop { base, mobiles, .. }) = &self.parts else { return None };
        Some((*base.public(), mobiles.clone()))
    }

    /// CPU time of the base so far.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        cpu_of(self.base.id())
    }

    /// The same of each of its threads.
    pub(crate) fn cpu_of_threads(&self) -> Result<BTreeMap<u32, Duration>> {
        cpu_of_threads(self.base.id())
    }

    /// Resident memory of the base.
    pub(crate) fn rss(&self) -> Result<Bytes> {
        Ok(Bytes::from_kib(Process::of(self.base.id())?.resident_kib))
    }

    /// An error with its last words if the base has ended.
    pub(crate) fn check(&mut self) -> Result<()> {
        Ok(self.base.check()?)
    }
}

impl Parts {
    fn base(&self, hosts: &Hosts) -> Command {
        match self {
            Parts::Lasthop(lasthop) => lasthop.base(hosts),
            Parts::Tunnel(tunnel) => tunnel.base(),
        }
    }
}

/// What the commands of a base of lasthop's and of its mobiles are made from.
struct Lasthop {
    program: &'static Path,
    hop: Hop,
    files: TempDir,
    base: Keypair,
    mobiles: Vec<Keypair>,
}

impl Lasthop {
    fn new(hop: Hop, room: Capacity, seed: Seed) -> Result<Self> {
        let files = tempfile::tempdir().context("making a directory")?;
        let base = Keypair::generate(seed.child("base"));
        let pair = |n: usize| Keypair::generate(seed.child(&format!("mobile {n}")));
        let mobiles = (0..room.mobiles).map(pair).collect();
        let lasthop = Lasthop { program: process::lasthop()?, hop, files, base, mobiles };
        lasthop.write_secret(KEY, &lasthop.base)?;
        let settings = lasthop.files.path().join(SETTINGS);
        std::fs::write(&settings, lasthop.settings(room))
            .with_context(|| format!("writing {}", settings.display()))?;
        Ok(lasthop)
    }

    /// The base's configuration file.
    fn settings(&self, room: Capacity) -> String {
        let allow: Vec<String> =
            self.mobiles.iter().map(|mobile| format!("\"{}\"", mobile.public())).collect();
        let Capacity { mobiles, connections, workers } = room;
        let associations = mobiles.max(ASSOCIATIONS);
        let limits = format!("associations = {associations}\nconnections_total = {connections}\n");
        format!("workers = {workers}\nallow = [{}]\n[limits]\n{limits}", allow.join(", "))
    }

    fn base(&self, hosts: &Hosts) -> Command {
        let mut command = self.command(&hosts.base, "base");
        command.args(["--listen", &hosts.hop_at(0).to_string()]);
        command.arg("--key").arg(self.files.path().join(KEY));
        command.arg("--config").arg(self.files.path().join(SETTINGS));
        command
    }

    fn mobile(&self, hosts: &Hosts, n: u16) -> Result<Command> {
        let pair = self.mobiles.get(usize::from(n)).context("a mobile without a key")?;
        let mut command = self.command(&hosts.mobile, "mobile");
        command.args(["--base", &hosts.hop_at(0).to_string()]);
        command.args(["--base-key", &self.base.public().to_string()]);
        command.arg("--key").arg(self.write_secret(&format!("mobile{n}"), pair)?);
        command.args(["--proxy", &hosts.local_at(n).to_string()]);
        Ok(command)
    }

    /// No status socket is wanted at the usual place.
    fn command(&self, host: &Netns, role: &str) -> Command {
        let mut command = host.command(self.program);
        command.env("XDG_RUNTIME_DIR", "/dev/null").arg(role).args(&self.hop.both);
        command
    }

    /// A new file with a secret key.
    fn write_secret(&self, name: &str, pair: &Keypair) -> Result<PathBuf> {
        let path = self.files.path().join(name);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        file.and_then(|mut file| file.write_all(pair.secret().to_text().as_bytes()))
            .with_context(|| format!("writing {}", path.display()))?;
        Ok(path)
    }
}
