use std::io::Read;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::cmd::watch;

/// Serves a page that shows a running base, mobile or agent as it works, changes priorities, and
/// serves the metrics beside it, until interrupted. Everybody on this host can open it; from elsewhere
/// it can be reached through `ssh -L` only.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// The control socket of the process [default: those of `mobile`, `base` and `agent` on this
    /// host, whichever answers first]
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,

    /// Serve the page on this loopback address
    #[arg(long, value_name = "ADDRESS:PORT", default_value_t = lasthop_watch::DEFAULT_UI)]
    listen: SocketAddr,

    /// Print one JSON object with the page's address when it is served
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let (mut signalled, signal) = UnixStream::pair().context("no descriptors are left")?;
    for number in [SIGTERM, SIGINT, SIGHUP] {
        let signal = signal.try_clone().context("no descriptors are left")?;
        signal_hook::low_level::pipe::register(number, signal)
            .context("signals cannot be caught")?;
    }
    let handle = lasthop_watch::serve(lasthop_watch::Options {
        ui: Some(options.listen),
        metrics: None,
        control: watch::socket(options.control.as_deref())?,
        own: false,
    })?;
    let page = format!("http://{}/", handle.ui().unwrap_or(options.listen));
    if options.json {
        println!("{}", serde_json::json!({ "page": page }));
    } else {
        println!("the page is at {page}");
    }
    // Nothing else than a signal writes there.
    let _ = signalled.read(&mut [0]);
    drop(handle);
    Ok(())
}
