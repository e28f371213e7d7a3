//! A base and a mobile with TUN devices, for packets of any kind.

use std::net::IpAddr;
use std::process::Output;

use lasthop_control::TunReport;
use lasthop_lab::process::Daemon;
pub(crate) use lasthop_lab::scheme::{PACKET_ADDRESSES as OWN, PACKET_ROUTERS as BASE};
use lasthop_lab::topology::{Family, Lab, Topology};
use lasthop_radio::Errors;

use super::pair::Pair;

/// fixed host -- base -- radio -- mobile
pub(crate) struct Scene {
    pub(crate) lab: Lab,
    pub(crate) pair: Pair,
}

impl Scene {
    /// With a radio that loses this share in both directions; none where a test may not have it.
    pub(crate) fn new(loss: f64) -> Option<Self> {
        Self::with(&match loss > 0.0 {
            true => Topology::losing(Errors::Uniform(loss)),
            false => Topology::default(),
        })
    }

    /// With this radio and wire; none where a test may not have them.
    pub(crate) fn with(topology: &Topology) -> Option<Self> {
        let pair = Pair::new()?;
        let lab = super::lab(topology)?;
        Some(Self { lab, pair })
    }

    /// A base whose mobile has its addresses under `as_what`, with more in `[tun]` and before it.
    pub(crate) fn base(&self, as_what: &str, tun: &str, more: &str) -> Daemon {
        let mobile = &self.pair.keys[1];
        let addresses = format!("{as_what} = {OWN:?}");
        let config = format!(
            "listen = [\"[::]:4433\"]\nallow = [{mobile:?}]\n\
             {more}\n[tun]\naddress = {BASE:?}\n{tun}\n[[mobiles]]\nkey = {mobile:?}\n{addresses}\n"
        );
        self.pair.start(&self.lab.base, "base", &config)
    }

    /// A mobile with more in `[tun]`, whose association stands.
    pub(crate) fn mobile(&self, tun: &str) -> Daemon {
        let base = self.lab.base_from_mobile(Family::V4);
        let config = format!(
            "base = \"{base}\"\nbase_key = {:?}\n\
             [tun]\naddress = {OWN:?}\n{tun}\n",
            self.pair.keys[0]
        );
        let mut mobile = self.pair.start(&self.lab.mobile, "mobile", &config);
        self.pair.wait_up(&mut mobile);
        mobile
    }

    pub(crate) fn tun(&self, role: &str) -> TunReport {
        self.pair.status(role).unwrap().tun.unwrap()
    }

    /// How many packets a role has refused by that name.
    pub(crate) fn refused(&self, role: &str, name: &str) -> u64 {
        self.tun(role).refused.get(name).copied().unwrap_or(0)
    }

    pub(crate) fn fixed(&self, n: usize) -> IpAddr {
        self.lab.server_address([Family::V4, Family::V6][n]).ip()
    }

    pub(crate) fn at_mobile(&self, program: &str, args: &str) -> Output {
        self.lab.mobile.command(program).args(args.split(' ')).output().unwrap()
    }
}
