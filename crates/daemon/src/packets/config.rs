//! The `[tun]` tables.

use std::net::IpAddr;

use lasthop_control::config::{self, ConfigError};
use lasthop_control::settings;
use lasthop_kernel::network::Network;

use crate::transparent::is_interface;

/// What crosses an Ethernet uncut with all headers of the hop.
const MTU: u16 = 1400;
/// IPv6 is not possible below (RFC 8200 section 5).
const MTU_MIN: u16 = 1280;
/// The interface where nobody says.
const NAME: &str = "lasthop0";

settings! {
    /// The `[tun]` table of a mobile.
    #[derive(Eq)]
    pub struct MobileTunFile {
        /// The interface, which is made if it is not there.
        pub name: Option<String> => format!("`\"{NAME}\"`"),
        /// The mobile's addresses, as its bases have them under `[[mobiles]]`.
        pub address: Vec<IpAddr>,
        /// Take what this host sends.
        pub host: Option<bool> => "true if no interface is named",
        /// Take what comes in by these; one that is not there yet is taken when it comes.
        pub interfaces: Vec<String>,
        /// Networks that are reached as without lasthop.
        pub exclude: Vec<Network>,
        /// Take TCP too, whole as it is, instead of leaving it to the proxy and to `[transparent]`.
        pub tcp: Option<bool> = false,
        /// The longest packet that goes through uncut by the sender, from 1280 to 65535.
        pub mtu: Option<u16> = MTU,
    }
}

settings! {
    /// The `[tun]` table of a base.
    #[derive(Eq)]
    pub struct BaseTunFile {
        /// The interface, which is made if it is not there.
        pub name: Option<String> => format!("`\"{NAME}\"`"),
        /// The base's own addresses on it, from which routers' messages come; at most one of each family.
        pub address: Vec<IpAddr>,
        /// Mobiles' packets from their `tun` addresses leave from the base's own address.
        pub masquerade: Option<bool> = false,
        /// The longest packet that goes through uncut by the sender, from 1280 to 65535.
        pub mtu: Option<u16> = MTU,
    }
}

fn contradiction<T>(why: String) -> Result<T, ConfigError> {
    Err(ConfigError::Contradiction(why))
}

fn name(name: Option<&String>) -> Result<String, ConfigError> {
    let name = name.map_or(NAME, String::as_str);
    if !is_interface(name) || name == "lo" {
        return contradiction(format!("`[tun] name`: `{name}` cannot be the name of a TUN device"));
    }
    Ok(name.to_owned())
}

fn mtu(mtu: u16) -> Result<u16, ConfigError> {
    if mtu < MTU_MIN {
        return contradiction(format!("`[tun] mtu`: {mtu} is less than the 1280 of IPv6"));
    }
    Ok(mtu)
}

fn one_of_each_family(addresses: &[IpAddr]) -> Result<(), ConfigError> {
    for family in [IpAddr::is_ipv4, IpAddr::is_ipv6] {
        if addresses.iter().filter(|ip| family(ip)).count() > 1 {
            return Err(config::contradiction("`[tun] address` has two addresses of one family"));
        }
    }
    Ok(())
}

/// What a mobile carries as packets.
#[derive(Clone, PartialEq, Debug)]
pub struct MobileTunConfig {
    pub(crate) name: String,
    pub(crate) mtu: u16,
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) host: bool,
    pub(crate) interfaces: Vec<String>,
    pub(crate) exclude: Vec<Network>,
    pub(crate) tcp: bool,
}

impl TryFrom<MobileTunFile> for MobileTunConfig {
    type Error = ConfigError;

    fn try_from(file: MobileTunFile) -> Result<Self, ConfigError> {
        if file.address.is_empty() {
            return Err(ConfigError::Missing {
                what: "the mobile's address for packets",
                how: "say `address = [\"IP\"]` under [tun], or --tun IP; its bases have the same \
                      under [[mobiles]]",
            });
        }
        one_of_each_family(&file.address)?;
        if let Some(bad) = file.interfaces.iter().find(|name| !is_interface(name) || *name == "lo")
        {
            return contradiction(format!("`[tun] interfaces`: `{bad}` cannot be meant"));
        }
        let host = file.host.unwrap_or(file.interfaces.is_empty());
        Ok(Self {
            name: name(file.name.as_ref())?,
            mtu: mtu(file.mtu())?,
            host,
            tcp: file.tcp(),
            addresses: file.address,
            interfaces: file.interfaces,
            exclude: file.exclude,
        })
    }
}

/// How a base carries packets on.
#[derive(Clone, PartialEq, Debug)]
pub struct BaseTunConfig {
    pub(crate) name: String,
    pub(crate) mtu: u16,
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) masquerade: bool,
}

impl TryFrom<BaseTunFile> for BaseTunConfig {
    type Error = ConfigError;

    fn try_from(file: BaseTunFile) -> Result<Self, ConfigError> {
        one_of_each_family(&file.address)?;
        Ok(Self {
            name: name(file.name.as_ref())?,
            mtu: mtu(file.mtu())?,
            masquerade: file.masquerade(),
            addresses: file.address,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn mobile(text: &str) -> Result<MobileTunConfig, String> {
        let file: MobileTunFile =
            config::parse(Path::new("x.toml"), text).map_err(|e| e.to_string())?;
        MobileTunConfig::try_from(file).map_err(|e| e.to_string())
    }

    #[test]
    fn the_host_is_meant_where_no_interface_is_named() {
        let got = mobile("address = [\"10.9.0.7\", \"2001:db8::7\"]").unwrap();
        assert!(got.host && !got.tcp && got.name == "lasthop0" && got.mtu == 1400);
        assert!(!mobile("address = [\"10.9.0.7\"]\ninterfaces = [\"lan0\"]").unwrap().host);
    }

    #[test]
    fn what_cannot_be_meant_is_named_with_the_remedy() {
        let with = |more: &str| format!("address = [\"10.9.0.7\"]\n{more}");
        for (text, said) in [
            (String::new(), "say `address = [\"IP\"]` under [tun]"),
            ("address = [\"10.9.0.7\", \"10.9.0.8\"]".to_owned(), "two addresses of one family"),
            (with("mtu = 1279"), "less than the 1280"),
            (with("name = \"a/b\""), "`a/b` cannot be"),
            (with("name = \"lo\""), "`lo` cannot be"),
            (with("interfaces = [\"lo\"]"), "`lo` cannot be meant"),
            (with("mtu = 70000"), "mtu"),
            (with("adress = 1"), "`adress`"),
        ] {
            let error = mobile(&text).unwrap_err();
            assert!(error.contains(said) && !error.contains('\n'), "{text}: {error}");
        }
        let base: BaseTunFile =
            config::parse(Path::new("x.toml"), "address = [\"::1\", \"::2\"]").unwrap();
        assert!(BaseTunConfig::try_from(base).is_err());
    }
}
