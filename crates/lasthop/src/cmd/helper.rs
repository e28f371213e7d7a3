use std::path::PathBuf;

use anyhow::Context;
use clap::{ArgGroup, Args};
use lasthop_kernel::network::Network;
use lasthop_migrate::helper::{self, Config};

use crate::daemon::{self, LogOptions};

#[derive(Args, Debug)]
#[command(group = ArgGroup::new("client").required(true))]
pub(crate) struct Options {
    /// Serve bases that connect to PATH
    #[arg(long, value_name = "PATH", group = "client")]
    socket: Option<PathBuf>,

    /// Serve the base that started this process, by its standard input
    #[arg(long, group = "client", hide = true)]
    inherited: bool,

    /// Let this user connect, beside root and the one who started the helper; may be repeated
    #[arg(long, value_name = "UID", conflicts_with = "inherited")]
    allow_uid: Vec<u32>,

    /// Work for this address or network of a mobile and no other; may be repeated
    #[arg(long, value_name = "ADDRESS", required_unless_present = "inherited")]
    address: Vec<Network>,

    #[command(flatten)]
    log: LogOptions,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let stop = daemon::prepare(&options.log)?;
    let config = Config { addresses: options.address.clone(), users: options.allow_uid.clone() };
    let Some(path) = &options.socket else {
        let client = helper::inherited().context("standard input cannot be used")?;
        return Ok(helper::serve_client(client, &config, &stop)?);
    };
    Ok(helper::serve_path(path, &config, &stop)?)
}
