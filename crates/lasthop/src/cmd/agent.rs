use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use lasthop_daemon::config;
use lasthop_path::{Agent, AgentConfig, AgentFile, End, Scheme, Total};
use lasthop_units::parse_duration;

use super::watch;
use crate::daemon;

/// Helps the TCP connections that cross this host, between two ports of a bridge. A flag wins over the
/// configuration file.
///
/// If lasthop stops or dies the bridge forwards the packets, as it does all that is no plain TCP.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// What is done, from the fixed side to the mobile side: none, snoop, obtcp-base,
    /// obtcp-mobile-router, delayed-dupacks, m-tcp, freeze, ll-freeze, atcp, rwc,
    /// congestion-coherence; several go together
    #[arg(value_name = "SCHEME")]
    schemes: Vec<Scheme>,

    /// Read the configuration from FILE
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// The interface where the fixed hosts are
    #[arg(long, value_name = "NAME")]
    fixed_if: Option<String>,

    /// The interface where the mobiles are
    #[arg(long, value_name = "NAME")]
    mobile_if: Option<String>,

    /// Make the two interfaces ports of this bridge, which is made if it is not there and stays
    #[arg(long, value_name = "NAME")]
    bridge: Option<String>,

    /// Which end of the hop this is: base or mobile [default: where the scheme acts, or mobile]
    #[arg(long, value_name = "END")]
    end: Option<End>,

    /// At the mobile's end of delayed-dupacks and congestion-coherence: the radio recovers its losses by
    /// itself, so that no agent is needed at the base
    #[arg(long)]
    no_recovery: bool,

    /// How long duplicates wait for the link's recovery [default: 100ms]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    hold: Option<Duration>,

    /// Acknowledgements at the end of a freeze, from 1 to 8 [default: 3 for freeze, 1 for ll-freeze]
    #[arg(long, value_name = "COUNT")]
    acks: Option<u8>,

    /// Packets that all windows together have for rwc, or auto for what the path is measured to hold
    /// [default: auto]
    #[arg(long, value_name = "PACKETS")]
    window: Option<Total>,

    /// Serve `lasthop status`, `link` and `priority` on this Unix socket
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,

    #[command(flatten)]
    metrics: watch::MetricsOptions,

    #[command(flatten)]
    log: daemon::LogOptions,
}

impl Options {
    fn config(&self) -> anyhow::Result<AgentConfig> {
        let mut file: AgentFile = match &self.config {
            Some(path) => config::load(path)?,
            None => AgentFile::default(),
        };
        daemon::replace(&mut file.schemes, &self.schemes);
        file.fixed_if = self.fixed_if.clone().or(file.fixed_if);
        file.mobile_if = self.mobile_if.clone().or(file.mobile_if);
        file.bridge = self.bridge.clone().or(file.bridge);
        file.end = self.end.or(file.end);
        file.recovery = self.no_recovery.then_some(false).or(file.recovery);
        file.hold = self.hold.or(file.hold);
        file.acks = self.acks.or(file.acks);
        file.window = self.window.or(file.window);
        file.control = self.control.clone().or(file.control);
        Ok(file.try_into()?)
    }
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let mut config = options.config()?;
    let stop = daemon::prepare(&options.log)?;
    let shown = options.metrics.bind(&mut config.control, "agent")?;
    let (fixed, mobile) = (config.fixed_if.clone(), config.mobile_if.clone());
    let agent = Agent::open(config)?;
    let _shown = watch::serve(shown)?;
    tracing::info!(fixed, mobile, "in the path");
    Ok(agent.run(&stop)?)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        options: Options,
    }

    fn config(args: &[&str]) -> anyhow::Result<AgentConfig> {
        let between = ["agent", "--fixed-if", "a", "--mobile-if", "b"];
        Command::try_parse_from([&between, args].concat())?.options.config()
    }

    #[test]
    fn the_common_case_needs_no_file() {
        let config = config(&["snoop"]).unwrap();
        assert_eq!((config.schemes.as_slice(), config.end), (&[Scheme::Snoop][..], End::Base));
        assert_eq!((config.fixed_if.as_str(), config.mobile_if.as_str()), ("a", "b"));
    }

    #[test]
    fn what_is_missing_or_wrong_is_one_line_that_names_it() {
        for (args, said) in [
            (&[][..], "the scheme is missing"),
            (&["carrier-pigeon"], "congestion-coherence"),
            (&["delayed-dupacks"], "--end base at one"),
            (&["snoop", "--end", "mobile"], "snoop acts at the base"),
            (&["freeze", "--acks", "9"], "from 1 to 8"),
            (&["rwc", "--window", "wide"], "neither auto"),
        ] {
            let error = format!("{:#}", config(args).unwrap_err());
            assert!(error.contains(said), "{args:?}: {error}");
        }
    }
}
