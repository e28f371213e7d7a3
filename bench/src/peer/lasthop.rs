//! `lasthop base` and `lasthop mobile`.

use std::path::PathBuf;

use anyhow::{Context, Result};
use lasthop_daemon::keyfile::{self, Existing};
use lasthop_lab::client::Via;
use lasthop_lab::process::Daemon;
use lasthop_lab::topology::RADIO;
use tempfile::TempDir;

use super::{Hosts, Running, Wait, launch};
use crate::process;

/// A hop, in the command's own words.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Hop<'a> {
    /// The value of `--hop`, and what else both ends are told.
    pub(super) both: &'a [&'a str],
    /// More for the mobile.
    pub(super) mobile: &'a [&'a str],
    /// By raw frames of the hop's interfaces instead of by IP: one such hop at a time.
    pub(super) frames: bool,
    /// Without keys.
    pub(super) bare: bool,
}

impl<'a> Hop<'a> {
    /// Over IP and sealed.
    pub(super) fn named(both: &'a [&'a str]) -> Self {
        Hop { both, ..Hop::default() }
    }
}

/// Starts a base and a mobile with `hop` between them.
pub(super) fn start(hosts: &Hosts, place: u16, hop: &Hop<'_>) -> Result<Running> {
    let program = process::lasthop()?;
    let files = tempfile::tempdir().context("making a directory")?;
    let at = hosts.hop_at(place).to_string();
    let proxy = hosts.local_at(place);

    let mut base = hosts.base.command(program);
    let mut mobile = hosts.mobile.command(program);
    base.args(["base", "--hop"]).args(hop.both);
    mobile.args(["mobile", "--hop"]).args(hop.both).args(hop.mobile);
    mobile.args(["--proxy", &proxy.to_string()]);
    if hop.frames {
        base.args(["--carrier", "ethernet", "--interface", RADIO]);
        mobile.args(["--base", &format!("ether:{RADIO}")]);
    } else {
        base.args(["--listen", &at]);
        mobile.args(["--base", &at]);
    }
    if hop.bare {
        base.args(["--seal", "none"]);
        mobile.args(["--seal", "none"]);
    } else {
        let of_base = Key::generate(&files, "base")?;
        let of_mobile = Key::generate(&files, "mobile")?;
        base.arg("--key").arg(&of_base.secret).args(["--allow", &of_mobile.public]);
        mobile.arg("--key").arg(&of_mobile.secret).args(["--base-key", &of_base.public]);
    }
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
