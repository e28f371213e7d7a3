//! What is done to bases.

use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use lasthop_fleet::commands::{self, JoinOptions, Joined, Left};
use lasthop_fleet::config::FOLDER;
use lasthop_fleet::records::Name;
use lasthop_fleet::token::Token;
use lasthop_units::parse_duration;

use super::{FleetOptions, print};

/// Makes this machine's base one of a fleet: its key, its record in etcd, and its files.
#[derive(Args, Debug)]
pub(super) struct Join {
    /// What `lasthop fleet token` printed; -: read it from standard input, where other users do not see it
    #[arg(allow_hyphen_values = true)]
    token: String,

    /// The base's name
    #[arg(long)]
    name: Name,

    /// Where other bases reach it
    #[arg(long, value_name = "IP:PORT")]
    peer: SocketAddr,

    /// Where mobiles reach it
    #[arg(long, value_name = "IP:PORT")]
    hop: SocketAddr,

    /// Where the wired network reaches it, for routes [default: the IP of --peer]
    #[arg(long, value_name = "IP")]
    via: Option<IpAddr>,

    /// Show etcd the certificate in FILE (PEM)
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,

    /// The secret key of that certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,

    /// Where the base's files are written
    #[arg(long, value_name = "DIR", default_value = FOLDER)]
    folder: PathBuf,
}

/// Takes this machine's base out of the fleet. Stop the base and its agent then.
#[derive(Args, Debug)]
pub(super) struct Leave {
    #[command(flatten)]
    fleet: FleetOptions,
}

/// Marks a base as one to be emptied, and waits until it holds no mobile. Mobiles move by themselves when
/// they are told to (`lasthop handoff`), or when their base goes; the mark is for those who tell them.
#[derive(Args, Debug)]
pub(super) struct Drain {
    /// The base
    base: Name,

    #[command(flatten)]
    fleet: FleetOptions,

    /// How long to wait; 0s: only mark it
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "5min")]
    timeout: Duration,

    /// Take the mark away
    #[arg(long, conflicts_with = "timeout")]
    undo: bool,
}

pub(super) async fn join(options: &Join) -> anyhow::Result<()> {
    let start = Instant::now();
    let token: Token = match options.token.as_str() {
        "-" => {
            let mut text = String::new();
            let most = 256 * 1024;
            std::io::stdin().take(most).read_to_string(&mut text).context("standard input")?;
            text.parse()?
        }
        text => text.parse()?,
    };
    let join = JoinOptions {
        token,
        name: options.name.clone(),
        peer: options.peer,
        hop: options.hop,
        via: options.via,
        identity: options.cert.clone().zip(options.key.clone()),
        folder: options.folder.clone(),
    };
    let joined = commands::join(&join, |done| eprintln!("{done}")).await?;
    let Joined { key, members, file, peers, mobiles, .. } = joined;
    let took = start.elapsed().as_millis();
    print(&format!(
        "joined in {took} ms: {peers} other bases, {mobiles} mobiles\n\n\
         In the base's configuration:\n\n    \
             key = \"{}\"\n    \
             listen = [\"[::]:{}\"]\n    \
             fleet = \"{}\"\n\n    \
             [handoff]\n    \
             mode = \"migrate\"\n    \
             listen = [\"[::]:{}\"]\n\n\
         Beside the base: lasthop fleet agent --fleet {}\n",
        key.display(),
        options.hop.port(),
        members.display(),
        options.peer.port(),
        file.display()
    ))
}

pub(super) async fn leave(options: &Leave) -> anyhow::Result<()> {
    let fleet = options.fleet.open().await?;
    let name = fleet.leave(&options.fleet.fleet).await?;
    print(&format!("{name} is not of the fleet any more: stop its agent, and the base\n"))
}

pub(super) async fn drain(options: &Drain) -> anyhow::Result<()> {
    let (fleet, base) = (options.fleet.open().await?, &options.base);
    if options.undo {
        return print(&match fleet.undo_draining(base).await? {
            true => format!("{base} is not to be emptied any more\n"),
            false => format!("{base} was not to be emptied\n"),
        });
    }
    fleet.mark_draining(base).await?;
    if options.timeout.is_zero() {
        return print(&format!("{base} is marked\n"));
    }
    let progress = |left| match left {
        Left::Mobiles(0) => {}
        Left::Mobiles(1) => eprintln!("{base} holds 1 mobile"),
        Left::Mobiles(n) => eprintln!("{base} holds {n} mobiles"),
        Left::Unknown => eprintln!("waiting for the agent of {base}"),
    };
    fleet.wait_drained(base, options.timeout, progress).await?;
    print(&format!("{base} holds no mobile\n"))
}
