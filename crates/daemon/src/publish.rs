//! Servers on a mobile that fixed hosts reach through the base (MOB-8): which, and for whom.

use std::net::SocketAddr;
use std::str::FromStr;

use lasthop_control::settings;
use lasthop_hop::seal::PublicKey;
use serde::{Deserialize, Deserializer, de};

use crate::config::{ConfigError, KeyText};

/// At the mobile: who comes for `port` is connected with `server`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Server {
    /// The port that the base names.
    pub port: u16,
    /// The server that is meant.
    pub server: SocketAddr,
}

/// Parses `8080 -> 127.0.0.1:80`.
impl FromStr for Server {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let fail = || format!("`{s}` is not PORT -> ADDRESS:PORT, such as 8080 -> 127.0.0.1:80");
        let (port, server) = s.split_once("->").ok_or_else(fail)?;
        let port = port.trim().parse().ok().filter(|port| *port != 0).ok_or_else(fail)?;
        let server: SocketAddr = server.trim().parse().map_err(|_| fail())?;
        if server.port() == 0 { Err(fail()) } else { Ok(Self { port, server }) }
    }
}

impl<'de> Deserialize<'de> for Server {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(de::Error::custom)
    }
}

settings! {
    entry
    /// At the base, a `[[publish]]` table.
    pub struct PublishFile {
        /// Where fixed hosts connect.
        pub listen: SocketAddr,
        /// The public key of the mobile that they reach.
        ///
        /// It may be left out if `allow` has one key; with `seal = "none"` it must be, and whichever
        /// mobile came last is meant.
        pub mobile: Option<KeyText> => "the one in `allow`",
        /// The port that the mobile publishes.
        pub port: Option<u16> => "that of `listen`",
    }
}

/// Parses `ADDRESS:PORT -> PORT` and `ADDRESS:PORT -> KEY:PORT`.
impl FromStr for PublishFile {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let fail =
            || format!("`{s}` is not ADDRESS:PORT -> [KEY:]PORT, such as 0.0.0.0:8080 -> 80");
        let (listen, inner) = s.split_once("->").ok_or_else(fail)?;
        let listen = listen.trim().parse().map_err(|_| fail())?;
        let (mobile, port) = match inner.trim().rsplit_once(':') {
            Some((key, port)) => {
                (Some(key.parse().map(KeyText).map_err(|e| format!("`{s}`: {e}"))?), port)
            }
            None => (None, inner.trim()),
        };
        Ok(Self { listen, mobile, port: Some(port.parse().map_err(|_| fail())?) })
    }
}

/// At the base: who connects to `listen` is offered to a mobile, for its port `port`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Published {
    /// Where fixed hosts connect.
    pub listen: SocketAddr,
    /// The mobile; `None` if it is whichever came last, as where mobiles cannot prove a key.
    pub mobile: Option<PublicKey>,
    /// The port that they reach there.
    pub port: u16,
}

/// The tables of a base that serves `allow`; without a seal it can tell no mobile from another.
pub(crate) fn published(
    files: Vec<PublishFile>,
    allow: &[PublicKey],
) -> Result<Vec<Published>, ConfigError> {
    let contradiction = |why: String| Err(ConfigError::Contradiction(why));
    let mut out: Vec<Published> = Vec::new();
    for PublishFile { listen, mobile, port } in files {
        let mobile = match (mobile, allow) {
            (Some(KeyText(key)), allow) if allow.contains(&key) => Some(key),
            (Some(KeyText(key)), []) => {
                return contradiction(format!(
                    "`publish`: `mobile = \"{key}\"` has no meaning with seal = \"none\": nobody \
                     can prove a key"
                ));
            }
            (Some(KeyText(key)), _) => {
                return contradiction(format!("`publish`: the mobile {key} is not in `allow`"));
            }
            (None, [] | [_]) => allow.first().copied(),
            (None, _) => {
                return contradiction(format!(
                    "`publish`: say `mobile = \"PUBLIC KEY\"` for {listen}: there are {} in `allow`",
                    allow.len()
                ));
            }
        };
        let port = port.unwrap_or(listen.port());
        if listen.port() == 0 || port == 0 {
            return contradiction(format!("`publish`: port 0 of {listen} cannot be reached"));
        }
        if out.iter().any(|other| other.listen == listen) {
            return contradiction(format!("`publish`: {listen} stands there twice"));
        }
        out.push(Published { listen, mobile, port });
    }
    Ok(out)
}

/// The servers of a mobile, if each port is named once.
pub(crate) fn servers(servers: Vec<Server>) -> Result<Vec<Server>, ConfigError> {
    for (n, Server { port, .. }) in servers.iter().enumerate() {
        if servers[..n].iter().any(|other| other.port == *port) {
            let why = format!("`publish`: port {port} stands there twice");
            return Err(ConfigError::Contradiction(why));
        }
    }
    Ok(servers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_a_port_an_arrow_and_an_address() {
        let server: Server = "8080 -> 127.0.0.1:80".parse().unwrap();
        assert_eq!((server.port, server.server), (8080, "127.0.0.1:80".parse().unwrap()));
        assert_eq!("22->[::1]:22".parse::<Server>().unwrap().port, 22);
        for bad in ["", "8080", "0 -> 127.0.0.1:80", "8080 -> localhost:80", "1 -> 127.0.0.1:0"] {
            assert!(bad.parse::<Server>().unwrap_err().contains("8080 -> 127.0.0.1:80"));
        }
    }

    #[test]
    fn a_publication_may_name_its_mobile() {
        let key = PublicKey::from_bytes([7; 32]);
        let file: PublishFile = format!("[::]:8080 -> {key}:80").parse().unwrap();
        assert_eq!((file.mobile, file.port), (Some(KeyText(key)), Some(80)));
        let file: PublishFile = "0.0.0.0:8080->80".parse().unwrap();
        assert_eq!((file.mobile, file.port), (None, Some(80)));
        for bad in ["8080", "8080 -> 80", "0.0.0.0:1 -> abc:80", "0.0.0.0:1 -> 99999"] {
            assert!(bad.parse::<PublishFile>().unwrap_err().contains(bad), "{bad}");
        }
    }

    #[test]
    fn what_a_base_cannot_mean_is_refused_by_name() {
        let key = |n: u8| PublicKey::from_bytes([n; 32]);
        let file = |mobile: Option<PublicKey>, port: Option<u16>| PublishFile {
            listen: "0.0.0.0:8080".parse().unwrap(),
            mobile: mobile.map(KeyText),
            port,
        };
        let both = [key(1), key(2)];
        let ok = published(vec![file(Some(key(2)), None)], &both).unwrap();
        assert_eq!((ok[0].mobile, ok[0].port), (Some(key(2)), 8080));
        assert_eq!(
            published(vec![file(None, Some(80))], &both[..1]).unwrap()[0].mobile,
            Some(key(1))
        );
        assert_eq!(published(vec![file(None, None)], &[]).unwrap()[0].mobile, None);
        for (files, allow, said) in [
            (vec![file(Some(key(3)), None)], &both[..], "not in `allow`"),
            (vec![file(None, None)], &both, "there are 2"),
            (vec![file(Some(key(1)), None)], &[], "seal = \"none\""),
            (vec![file(None, Some(0))], &both[..1], "port 0"),
            (vec![file(None, None), file(None, Some(1))], &both[..1], "twice"),
        ] {
            let e = published(files, allow).unwrap_err().to_string();
            assert!(e.contains("`publish`") && e.contains(said), "{e}");
        }
    }
}
