//! `lasthop base` and `lasthop mobile`.

use std::path::PathBuf;

use anyhow::{Context, Result};
use lasthop_lab::client::Via;
use lasthop_lab::process::Daemon;
use lasthop_linux::keyfile::{self, Existing};
use tempfile::TempDir;

use super::{Hosts, Running, Wait, launch};
use crate::process;

/// Starts a base and a mobile with `hop` for both and `more` for the mobile.
pub(super) fn start(hosts: &Hosts, place: u16, hop: &[&str], more: &[&str]) -> Result<Running> {
    let program = process::lasthop()?;
    let files = tempfile::tempdir().context("making a directory")?;
    let (base_key, mobile_key) = (Key::generate(&files, "base")?, Key::generate(&files, "mobile")?);
    let at = hosts.hop_at(place).to_string();
    let proxy = hosts.local_at(place);

    let mut base = hosts.base.command(program);
    base.args(["base", "--listen", &at, "--allow", &mobile_key.public])
        .arg("--key")
        .arg(&base_key.secret)
        .args(hop);
    let mut mobile = hosts.mobile.command(program);
    mobile
        .args(["mobile", "--base", &at, "--base-key", &base_key.public])
        .args(["--proxy", &proxy.to_string()])
        .arg("--key")
        .arg(&mobile_key.secret)
        .args(hop)
        .args(more);
    let daemons = vec![Daemon::spawn(base)?, Daemon::spawn(mobile)?];
    let ready = Wait { from: &hosts.mobile, at: proxy };
    launch(hosts, Via::Socks5(proxy), hosts.server, daemons, &ready, Some(files))
}

/// A key pair whose secret is in a file.
struct Key {
    secret: PathBuf,
    public: String,
}

impl Key {
    fn generate(files: &TempDir, name: &str) -> Result<Self> {
        let keys = keyfile::generate().context("making a key")?;
        let secret = files.path().join(name);
        keyfile::store(&secret, &keys, Existing::Keep)?;
        Ok(Key { secret, public: keys.public().to_string() })
    }
}
