//! Which links carry which connections.

use std::num::NonZeroU16;

use lasthop_control::priority::{Flow, Which};
use lasthop_control::settings;
use lasthop_hop::{PathId, Policy};
use lasthop_kernel::network::Network;

use super::links::LinkConfig;
use crate::config::{self, ConfigError};

settings! {
    entry
    /// One of the `[[policies]]`.
    pub struct PolicyFile {
        /// The name of the program whose connections they are.
        pub program: Option<String> => "any",
        /// The fixed host's port; of connections that fixed hosts open, the published port.
        pub port: Option<NonZeroU16> => "any",
        /// A network or an address that the fixed host is in, as `"10.0.0.0/8"`.
        pub address: Option<Network> => "any",
        /// `speed`, `redundant`, `cheap`, or `only NAME` with a link's name.
        pub policy: String,
    }
}

/// Which links carry a connection: as the first table that fits it says, or else as all that nothing is said of.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Policies {
    rules: Vec<(Which, Policy)>,
    others: Policy,
}

impl Policies {
    /// As the configuration has it, of a mobile with these links.
    ///
    /// # Errors
    ///
    /// Says which table is wrong, and why.
    pub(super) fn from_files(
        files: Vec<PolicyFile>,
        others: Option<&str>,
        links: &[LinkConfig],
    ) -> Result<Self, ConfigError> {
        let rule = |PolicyFile { program, port, address, policy }| {
            let which = Which::new(program, port, address).map_err(|why| format!(" {why}"))?;
            Ok((which, parse(&policy, links).map_err(|why| format!(": {why}"))?))
        };
        let rules: Result<_, String> = files.into_iter().map(rule).collect();
        let rules = rules
            .map_err(|why| config::contradiction(&format!("one of the `[[policies]]`{why}")))?;
        let others = others.map(|name| parse(name, links)).transpose();
        let others = others.map_err(|why| config::contradiction(&format!("`policy`: {why}")))?;
        Ok(Self { rules, others: others.unwrap_or_default() })
    }

    /// Something is said.
    pub(super) fn say_something(&self) -> bool {
        *self != Self::default()
    }

    /// Some is said of programs.
    pub(super) fn name_programs(&self) -> bool {
        self.rules.iter().any(|(which, _)| which.names_program())
    }

    /// A connection's, or a flow's of packets.
    pub(super) fn of(&self, flow: &Flow) -> Policy {
        let rule = self.rules.iter().find(|(which, _)| which.fits(flow));
        rule.map_or(self.others, |(_, policy)| *policy)
    }
}

/// The policy of this name.
fn parse(name: &str, links: &[LinkConfig]) -> Result<Policy, String> {
    match name.split_once(' ').map(|(word, link)| (word, link.trim())) {
        None if name == "speed" => Ok(Policy::Speed),
        None if name == "redundant" => Ok(Policy::Redundant),
        None if name == "cheap" => Ok(Policy::Cheap),
        Some(("only", link)) => {
            let at = links.iter().position(|known| known.name == link);
            let at = at.ok_or_else(|| format!("no link in [[links]] is called `{link}`"))?;
            Ok(Policy::Only(PathId(at as u8)))
        }
        _ => Err(format!(
            "`{name}` is no policy: there are speed, redundant, cheap, and only with a link's name"
        )),
    }
}

#[cfg(test)]
mod tests {
    use lasthop_hop::PathStatus;

    use super::*;

    fn link(name: &str) -> LinkConfig {
        let (interface, status) = (name.to_owned(), PathStatus::FREE);
        LinkConfig { name: name.to_owned(), interface, status, cap: None }
    }

    fn file(port: u16, policy: &str) -> PolicyFile {
        PolicyFile {
            program: None,
            port: NonZeroU16::new(port),
            address: None,
            policy: policy.to_owned(),
        }
    }

    #[test]
    fn the_first_table_that_fits_counts_and_what_makes_no_sense_is_refused() {
        let links = [link("modem"), link("dish")];
        let files = vec![file(5060, "redundant"), file(80, "only dish"), file(80, "speed")];
        let got = Policies::from_files(files, Some("cheap"), &links).unwrap();
        let of = |port| got.of(&Flow { port, ..Flow::default() });
        assert_eq!((of(5060), of(80)), (Policy::Redundant, Policy::Only(PathId(1))));
        assert!(of(22) == Policy::Cheap && got.say_something() && !got.name_programs());
        for (files, others, why) in [
            (vec![file(80, "only train")], None, "no link in [[links]] is called `train`"),
            (vec![file(80, "slow")], None, "`slow` is no policy"),
            (vec![file(0, "speed")], None, "one of the `[[policies]]` says whose it is"),
            (vec![], Some("only"), "`policy`: `only` is no policy"),
        ] {
            let error = Policies::from_files(files, others, &links).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        assert!(!Policies::default().say_something());
    }
}
