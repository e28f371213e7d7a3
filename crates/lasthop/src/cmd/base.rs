mod drain;
mod reload;

use clap::{Args, Subcommand};
use lasthop_daemon::base::{Base, BaseConfig, BaseFile, ConfigSource};

use crate::cmd::watch;
use crate::daemon;

/// Serves mobiles. A flag wins over the configuration file.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Options {
    #[command(subcommand)]
    command: Option<BaseCommand>,

    #[command(flatten)]
    settings: daemon::Settings<BaseFile>,

    #[command(flatten)]
    metrics: watch::MetricsOptions,

    #[command(flatten)]
    log: daemon::LogOptions,
}

#[derive(Subcommand, Debug)]
enum BaseCommand {
    /// Have a running base read its configuration again, for the mobiles that it serves
    Reload(reload::Options),
    /// Have a running base send its mobiles to other bases
    Drain(drain::Options),
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    match &options.command {
        Some(BaseCommand::Reload(options)) => return reload::run(options),
        Some(BaseCommand::Drain(options)) => return drain::run(options),
        None => {}
    }
    let file = options.settings.read()?.with_fleet()?;
    let mut config = BaseConfig::try_from(file.clone())?;
    let stop = daemon::prepare(&options.log)?;
    daemon::reload_on_hangup(&stop)?;
    let shown = options.metrics.bind(&mut config.control, "base")?;
    let settings = options.settings.clone();
    let source = ConfigSource::new(settings.place(), file, move || settings.read()?.with_fleet());
    let base = Base::bind(config)?.with_source(source);
    let _shown = watch::serve(shown)?;
    for addr in base.places() {
        tracing::info!(addr, "serving mobiles");
    }
    daemon::notify_ready();
    Ok(base.run(&stop)?)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use lasthop_daemon::config::{HopAddress, HopKind, SealKind};

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        options: Options,
    }

    fn config(args: &[&str]) -> anyhow::Result<BaseConfig> {
        let command = Command::try_parse_from([&["base"], args].concat())?;
        Ok(command.options.settings.resolve()?)
    }

    const KEY: &str = "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=";

    #[test]
    fn the_common_case_needs_no_file() {
        let config = config(&["--key", "base.key", "--allow", KEY]).unwrap();
        assert_eq!(config.place, HopAddress::Internet(vec!["[::]:4433".parse().unwrap()]));
        assert_eq!((config.hop, config.seal), (HopKind::Srp, SealKind::Noise));
        assert_eq!(config.allow[0].to_string(), KEY);
    }

    #[test]
    fn what_is_missing_or_wrong_is_one_line_that_names_it() {
        for (args, said) in [
            (&["--allow", KEY][..], "the base's key is missing"),
            (&["--key", "k"], "a mobile that is served is missing"),
            (&["--key", "k", "--allow", "x"], "44 base64 characters"),
            (
                &["--key", "k", "--allow", KEY, "--hop", "carrier-pigeon"],
                "srp, mobile-tcp and split-tcp",
            ),
            (&["--key", "k", "--allow", KEY, "--congestion", "warp"], "available: "),
            (&["--key", "k", "--allow", KEY, "--congestion", "reno"], "split-tcp"),
            (&["--seal", "none", "--allow", KEY], "has no meaning"),
            (&["--config", "/nonexistent"], "cannot read /nonexistent"),
            (&["--seal", "none", "--carrier", "pigeon"], "udp and ethernet"),
            (&["--seal", "none", "--carrier", "ethernet"], "the interface for Ethernet is missing"),
            (&["--seal", "none", "--interface", "eth0"], "carrier = \"ethernet\" only"),
            (
                &[
                    "--seal",
                    "none",
                    "--carrier",
                    "ethernet",
                    "--interface",
                    "eth0",
                    "--listen",
                    "[::]:4433",
                ],
                "frames have no port",
            ),
            (&["--seal", "none", "--hop", "split-tcp", "--carrier", "udp"], "kernel's TCP"),
            (&["--seal", "none", "--inflight", "64KiB"], "hop = \"mobile-tcp\" only"),
            (&["--seal", "none", "--hop", "mobile-tcp", "--window", "32KiB"], "32767"),
            (&["--seal", "none", "--publish", "8080"], "0.0.0.0:8080 -> 80"),
        ] {
            let error = config(args).unwrap_err().to_string();
            assert!(error.contains(said), "{args:?}: {error}");
        }
    }
}
