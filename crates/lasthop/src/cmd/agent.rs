use clap::Args;
use lasthop_path::{Agent, AgentConfig, AgentFile};

use super::watch;
use crate::daemon;

/// Helps the TCP connections that cross this host, between two ports of a bridge. A flag wins over the
/// configuration file.
///
/// If lasthop stops or dies the bridge forwards the packets, as it does all that is no plain TCP.
#[derive(Args, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    settings: daemon::Settings<AgentFile>,

    #[command(flatten)]
    metrics: watch::MetricsOptions,

    #[command(flatten)]
    log: daemon::LogOptions,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let mut config: AgentConfig = options.settings.resolve()?;
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
    use lasthop_units::{HopEnd, Scheme};

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        options: Options,
    }

    fn config(args: &[&str]) -> anyhow::Result<AgentConfig> {
        let between = ["agent", "--fixed-if", "a", "--mobile-if", "b"];
        let command = Command::try_parse_from([&between, args].concat())?;
        Ok(command.options.settings.resolve()?)
    }

    #[test]
    fn the_common_case_needs_no_file() {
        let config = config(&["snoop"]).unwrap();
        assert_eq!((config.schemes.as_slice(), config.end), (Scheme::Snoop.roles(), HopEnd::Base));
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
