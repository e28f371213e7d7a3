//! What an operator does, anywhere.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use lasthop_daemon::base::Acknowledge;
use lasthop_fleet::commands::{self, AddedMobile, Initiated, MobileOptions, Revoked, Where};
use lasthop_fleet::config::FOLDER;
use lasthop_fleet::records::{Key, Name, Printable};
use lasthop_kernel::network::Network;
use lasthop_units::parse_duration;

use super::{FleetOptions, print};

/// How long a token can be used where nobody says.
const TTL: &str = "60min";

/// Makes a fleet in etcd, and the file by which the other commands find it.
#[derive(Args, Debug)]
pub(super) struct Init {
    /// The fleet's name
    name: Name,

    /// The URLs of etcd's members
    #[arg(long, value_name = "URL", value_delimiter = ',', required = true)]
    endpoints: Vec<String>,

    /// Trust who has a certificate by one of those in FILE (PEM) to be etcd
    #[arg(long, value_name = "FILE")]
    cacert: Option<PathBuf>,

    /// Show etcd the certificate in FILE (PEM)
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,

    /// The secret key of that certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,

    /// Be USER in etcd, who may make users: each base gets its own
    #[arg(long, value_name = "USER", requires = "password_file")]
    user: Option<String>,

    /// The file with that user's password
    #[arg(long, value_name = "FILE", requires = "user")]
    password_file: Option<PathBuf>,

    /// Write fleet.toml into DIR
    #[arg(long, value_name = "DIR", default_value = FOLDER)]
    folder: PathBuf,
}

/// Prints a token: one line, good for one base.
#[derive(Args, Debug)]
pub(super) struct Token {
    #[command(flatten)]
    fleet: FleetOptions,

    /// How long it can be used
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = TTL)]
    ttl: Duration,
}

/// Adds a mobile to the fleet: its key pair, unless it has one, and its configuration.
#[derive(Args, Debug)]
pub(super) struct AddMobile {
    /// The mobile's name
    name: Name,

    #[command(flatten)]
    fleet: FleetOptions,

    /// An address from which its connections leave, one of each family; may be given several times
    #[arg(long, value_name = "IP")]
    address: Vec<IpAddr>,

    /// A network behind it, whose hosts leave from their own addresses; may be given several times
    #[arg(long, value_name = "NETWORK")]
    network: Vec<Network>,

    /// An address from which nothing but its packets leaves; may be given several times
    #[arg(long, value_name = "IP")]
    tun: Vec<IpAddr>,

    /// What fixed hosts are acknowledged: what the base has, or what the mobile has
    #[arg(long, value_name = "WHO", default_value_t = Acknowledge::default())]
    acknowledge: Acknowledge,

    /// Make no key: the mobile's public key, whose secret it has already
    #[arg(long, value_name = "KEY")]
    key: Option<Key>,

    /// Write NAME.key and NAME.toml into DIR
    #[arg(long, value_name = "DIR", default_value = ".")]
    folder: PathBuf,
}

/// Takes a key away. No base serves it from then on, and it is never taken again. That of a base costs
/// the keys of tickets too, which it knew.
#[derive(Args, Debug)]
pub(super) struct Revoke {
    /// The name of a mobile or base, or a public key
    #[arg(value_name = "NAME|KEY")]
    who: String,

    #[command(flatten)]
    fleet: FleetOptions,

    /// Why, for people
    #[arg(long, value_name = "TEXT", default_value = "")]
    why: Printable,
}

/// Makes a new key under which bases make tickets. Those of the two keys before it are still taken.
#[derive(Args, Debug)]
pub(super) struct Rotate {
    #[command(flatten)]
    fleet: FleetOptions,

    /// Take none of the keys before it any more: somebody else may know them
    #[arg(long)]
    forget: bool,
}

pub(super) async fn init(options: &Init) -> anyhow::Result<()> {
    let at = Where {
        endpoints: options.endpoints.clone(),
        cacert: options.cacert.clone(),
        cert: options.cert.clone(),
        key: options.key.clone(),
        user: options.user.clone(),
        password_file: options.password_file.clone(),
    };
    let made = commands::init(options.name.clone(), at, &options.folder).await?;
    let Initiated { fleet, file } = made;
    let token = fleet.token(parse_duration(TTL)?).await?;
    print(&format!(
        "made the fleet {}; {} says how it is reached\n\
         a token for the first base, good for {TTL} (lasthop fleet token makes others):\n{token}\n",
        options.name,
        file.display()
    ))
}

pub(super) async fn token(options: &Token) -> anyhow::Result<()> {
    let token = options.fleet.open().await?.token(options.ttl).await?;
    print(&format!("{token}\n"))
}

pub(super) async fn add_mobile(options: &AddMobile) -> anyhow::Result<()> {
    let fleet = options.fleet.open().await?;
    let mobile = MobileOptions {
        name: options.name.clone(),
        address: options.address.clone(),
        network: options.network.clone(),
        tun: options.tun.clone(),
        acknowledge: options.acknowledge,
        key: options.key,
        folder: options.folder.clone(),
    };
    let AddedMobile { key, secret, config, left_out } = fleet.add_mobile(&mobile).await?;
    let mut text = format!("added {}, whose public key is {key}\n", options.name);
    if let Some(secret) = secret {
        text += &format!("its secret key:     {}\n", secret.display());
    }
    text += &format!("its configuration:  {}\n", config.display());
    if left_out > 0 {
        text += &format!("{left_out} bases are not in it: a mobile knows 16 at most\n");
    }
    print(&text)
}

pub(super) async fn revoke(options: &Revoke) -> anyhow::Result<()> {
    let fleet = options.fleet.open().await?;
    let Revoked { key, name, generation } = fleet.revoke(&options.who, options.why.clone()).await?;
    let whose = name.map(|name| format!(" of {name}")).unwrap_or_default();
    let mut text = format!("revoked the key{whose}, {key}\n");
    if let Some(generation) = generation {
        text += &format!(
            "it was a base's: tickets are made under key {generation} now, and none before is taken\n"
        );
    }
    print(&text)
}

pub(super) async fn rotate(options: &Rotate) -> anyhow::Result<()> {
    let generation = options.fleet.open().await?.rotate(!options.forget).await?;
    print(&format!("tickets are made under key {generation} now\n"))
}
