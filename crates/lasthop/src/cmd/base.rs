use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use lasthop_daemon::base::{Base, BaseConfig, BaseFile};
use lasthop_daemon::config::{self, CarrierKind, HopKind, KeyText, SealKind};
use lasthop_daemon::publish::PublishFile;
use lasthop_kernel::network::Network;
use lasthop_kernel::tcp::Congestion;
use lasthop_units::parse_duration;

use crate::cmd::watch;
use crate::daemon::{self, MobileTcpOptions};

/// Serves mobiles. A flag wins over the configuration file.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Read the configuration from FILE
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Serve mobiles on this address; may be given several times [default: every address, port 4433]
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Vec<SocketAddr>,

    /// The base's secret key (see lasthop keygen)
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,

    /// Serve the mobile with this public key; may be given several times
    #[arg(long, value_name = "PUBLIC KEY", value_parser = daemon::public_key)]
    allow: Vec<KeyText>,

    /// What crosses the hop: srp, mobile-tcp or split-tcp [default: srp]
    #[arg(long, value_name = "NAME")]
    hop: Option<HopKind>,

    /// What moves the datagrams of srp and mobile-tcp: udp, or ethernet for raw frames without IP
    /// [default: udp]
    #[arg(long, value_name = "NAME")]
    carrier: Option<CarrierKind>,

    /// The interface on which mobiles are served with --carrier ethernet
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,

    /// What protects the hop: noise, or none on a hop that is private already [default: noise]
    #[arg(long, value_name = "NAME")]
    seal: Option<SealKind>,

    /// The congestion control of split-tcp, as the kernel calls it (bbr, cubic)
    #[arg(long, value_name = "NAME")]
    congestion: Option<Congestion>,

    /// Let fixed hosts reach a mobile's server: who connects to ADDRESS:PORT is offered to the mobile
    /// for its PORT, or to the mobile with this key; may be given several times
    #[arg(long, value_name = "ADDRESS:PORT -> [KEY:]PORT")]
    publish: Vec<PublishFile>,

    #[command(flatten)]
    mobile_tcp: MobileTcpOptions,

    /// Let connections go to this network, or to this address even if it is the base's own; may be
    /// given several times
    #[arg(long, value_name = "ADDRESS/BITS")]
    allow_target: Vec<Network>,

    /// Let no connection go to this network; may be given several times
    #[arg(long, value_name = "ADDRESS/BITS")]
    deny_target: Vec<Network>,

    /// How long a fixed host may take to answer [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    connect_timeout: Option<Duration>,

    /// Mobiles at once [default: 256]
    #[arg(long, value_name = "COUNT")]
    max_associations: Option<usize>,

    /// Connections of one mobile at once [default: 4096]
    #[arg(long, value_name = "COUNT")]
    max_connections: Option<usize>,

    /// Serve `lasthop status` on this Unix socket
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,

    #[command(flatten)]
    metrics: watch::MetricsOptions,

    #[command(flatten)]
    log: daemon::LogOptions,
}

impl Options {
    fn config(&self) -> anyhow::Result<BaseConfig> {
        let mut file: BaseFile = match &self.config {
            Some(path) => config::load(path)?,
            None => BaseFile::default(),
        };
        daemon::replace(&mut file.listen, &self.listen);
        daemon::replace(&mut file.allow, &self.allow);
        file.key = self.key.clone().or(file.key);
        file.hop = self.hop.or(file.hop);
        file.carrier = self.carrier.or(file.carrier);
        file.interface = self.interface.clone().or(file.interface);
        file.seal = self.seal.or(file.seal);
        file.congestion = self.congestion.clone().or(file.congestion);
        file.control = self.control.clone().or(file.control);
        file.targets.allow.extend_from_slice(&self.allow_target);
        file.targets.deny.extend_from_slice(&self.deny_target);
        file.targets.connect_timeout = self.connect_timeout.or(file.targets.connect_timeout);
        file.limits.associations = self.max_associations.or(file.limits.associations);
        file.publish.extend_from_slice(&self.publish);
        self.mobile_tcp.apply(&mut file.mobile_tcp);
        file.limits.connections = self.max_connections.or(file.limits.connections);
        Ok(file.try_into()?)
    }
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let mut config = options.config()?;
    let stop = daemon::prepare(&options.log)?;
    let shown = options.metrics.bind(&mut config.control, "base")?;
    let base = Base::bind(config)?;
    let _shown = watch::serve(shown)?;
    for addr in base.places() {
        tracing::info!(addr, "serving mobiles");
    }
    Ok(base.run(&stop)?)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use lasthop_daemon::config::HopAddress;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        options: Options,
    }

    fn config(args: &[&str]) -> anyhow::Result<BaseConfig> {
        Command::try_parse_from([&["base"], args].concat())?.options.config()
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
