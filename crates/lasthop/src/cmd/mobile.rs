use clap::Args;
use lasthop_daemon::mobile::{Mobile, MobileConfig, MobileFile};

use crate::cmd::watch;
use crate::daemon;

/// Carries connections over the hop to a base. A flag wins over the configuration file.
#[derive(Args, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    settings: daemon::Settings<MobileFile>,

    #[command(flatten)]
    views: watch::PageOptions,

    #[command(flatten)]
    log: daemon::LogOptions,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let mut config: MobileConfig = options.settings.resolve()?;
    let stop = daemon::prepare(&options.log)?;
    let shown = options.views.bind(&mut config.control, "mobile")?;
    let mobile = Mobile::bind(config)?;
    let _shown = watch::serve(shown)?;
    for addr in mobile.local_addrs() {
        tracing::info!(%addr, "serving SOCKS5 and HTTP CONNECT");
    }
    daemon::notify_ready();
    Ok(mobile.run(&stop)?)
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use clap::Parser;
    use lasthop_daemon::config::HopAddress;
    use lasthop_daemon::mobile::{BaseAddress, Connect};

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        options: Options,
    }

    fn config(args: &[&str]) -> anyhow::Result<MobileConfig> {
        let command = Command::try_parse_from([&["mobile"], args].concat())?;
        Ok(command.options.settings.resolve()?)
    }

    fn internet(host: &str, port: u16) -> HopAddress<BaseAddress> {
        HopAddress::Internet(BaseAddress { host: host.to_owned(), port })
    }

    const KEY: &str = "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=";

    #[test]
    fn the_common_case_needs_no_file() {
        let config =
            config(&["--base", "[2001:db8::1]:4433", "--base-key", KEY, "--key", "m.key"]).unwrap();
        assert_eq!(config.bases[0].place, internet("2001:db8::1", 4433));
        assert_eq!(config.proxy, ["127.0.0.1:1080".parse::<SocketAddr>().unwrap()]);
        assert_eq!(config.connect, Connect::Faithful);
    }

    #[test]
    fn what_is_missing_or_wrong_is_one_line_that_names_it() {
        for (args, said) in [
            (&["--base-key", KEY, "--key", "k"][..], "the base's address is missing"),
            (&["--base", "b:1", "--key", "k"], "the base's public key is missing"),
            (&["--base", "b:1", "--base-key", KEY], "the mobile's key is missing"),
            (&["--base", "base"], "HOST:PORT"),
            (&["--base", "::1:4433"], "brackets"),
            (&["--base", "b:0"], "HOST:PORT"),
            (&["--connect", "late"], "faithful and early"),
            (&["--base", "ether:eth0/02:00"], "02:00:5e:10:00:01"),
            (&["--base", "ether:eth0/ff:ff:ff:ff:ff:ff"], "leave it out"),
            (&["--base", "ether:"], "ether:INTERFACE"),
            (&["--seal", "none", "--base", "b:1", "--carrier", "ethernet"], "ether:INTERFACE"),
            (&["--seal", "none", "--base", "ether:a", "--carrier", "udp"], "carrier = \"udp\""),
            (&["--seal", "none", "--base", "ether:a", "--interface", "b"], "`base` is at a"),
            (&["--seal", "none", "--base", "b:1", "--interface", "b"], "`interface` is of"),
            (&["--seal", "none", "--carrier", "ethernet"], "the interface for Ethernet"),
            (&["--seal", "none", "--base", "ether:a", "--hop", "split-tcp"], "no meaning"),
            (&["--publish", "80"], "8080 -> 127.0.0.1:80"),
            (&["--seal", "none", "--base", "b:1", "--transparent=lo"], "`host = true`"),
            (
                &[
                    "--seal",
                    "none",
                    "--base",
                    "b:1",
                    "--publish",
                    "1 -> 127.0.0.1:1",
                    "--publish",
                    "1 -> 127.0.0.1:2",
                ],
                "port 1 stands there twice",
            ),
        ] {
            let error = config(args).unwrap_err().to_string();
            assert!(error.contains(said), "{args:?}: {error}");
        }
    }

    #[test]
    fn a_base_on_an_ethernet_link_is_named_or_found() {
        let seal = ["--seal", "none"];
        for (args, peer) in [
            (&["--base", "ether:eth0/02:00:00:00:00:01"][..], Some("02:00:00:00:00:01")),
            (&["--base", "ether:eth0"], None),
            (&["--carrier", "ethernet", "--interface", "eth0"], None),
        ] {
            let got = config(&[&seal, args].concat()).unwrap().bases.remove(0).place;
            let peer = peer.map(|mac| mac.parse().unwrap());
            assert_eq!(got, HopAddress::Ethernet { interface: "eth0".to_owned(), peer });
        }
    }

    #[test]
    fn interception_is_of_the_host_unless_interfaces_are_named() {
        let hop = ["--seal", "none", "--base", "b:1"];
        let transparent = |flag: &[&str]| config(&[&hop, flag].concat()).unwrap().transparent;
        assert!(transparent(&[]).is_none());
        assert!(transparent(&["--transparent"]).is_some_and(|t| t.host));
        let t = transparent(&["--transparent=lan0,lan1"]).unwrap();
        assert!(!t.host);
        assert_eq!(t.interfaces, ["lan0", "lan1"]);
        assert!(transparent(&["--transparent=host,lan0"]).is_some_and(|t| t.host));
    }

    #[test]
    fn a_flag_wins_over_the_file() {
        let dir = std::env::temp_dir().join(format!("lasthop-mobile-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("mobile.toml");
        let text = format!("base = \"a:1\"\nbase_key = \"{KEY}\"\nkey = \"k\"\nhop = \"srp\"\n");
        std::fs::write(&path, text).unwrap();
        let got = config(&["--config", path.to_str().unwrap(), "--base", "b:2"]).unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
        assert_eq!(got.bases[0].place, internet("b", 2));
    }
}
