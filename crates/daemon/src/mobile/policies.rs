//! Which links carry which connections.

use std::num::NonZeroU16;

use lasthop_control::priority::{Flow, Which, Words};
use lasthop_control::{PolicyReport, Target, settings};
use lasthop_hop::{PathId, Policy};
use lasthop_kernel::network::Network;

use super::links::{LinkConfig, Links};
use crate::config::{self, ConfigError};

/// Why a mobile without links has no policies.
pub(super) const NO_LINKS: &str =
    "policies are of a mobile with `[[links]]`: without these there is one path";

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

/// Which links carry a connection: as the user's latest word on it says, or the first table that fits it, or else as all that
/// nothing is said of.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Policies {
    words: Words<Policy>,
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
        let names = || links.iter().map(|link| &*link.name);
        let rule = |PolicyFile { program, port, address, policy }| {
            let which = Which::new(program, port, address).map_err(|why| format!(" {why}"))?;
            Ok((which, parse(&policy, names()).map_err(|why| format!(": {why}"))?))
        };
        let rules: Result<_, String> = files.into_iter().map(rule).collect();
        let rules = rules
            .map_err(|why| config::contradiction(&format!("one of the `[[policies]]`{why}")))?;
        let others = others.map(|name| parse(name, names())).transpose();
        let others = others.map_err(|why| config::contradiction(&format!("`policy`: {why}")))?;
        Ok(Self { words: Words::default(), rules, others: others.unwrap_or_default() })
    }

    /// Something is said.
    pub(super) fn say_something(&self) -> bool {
        *self != Self::default()
    }

    /// Some is said of programs.
    pub(super) fn name_programs(&self) -> bool {
        self.words.name_programs() || self.rules.iter().any(|(which, _)| which.names_program())
    }

    /// That of the connection called `key`, or of a flow of packets.
    pub(super) fn of(&self, key: u64, flow: &Flow) -> Policy {
        let rule = || self.rules.iter().find(|(which, _)| which.fits(flow));
        let said = self.words.of(key, flow).or_else(|| rule().map(|(_, policy)| *policy));
        said.unwrap_or(self.others)
    }

    /// The user's words on it.
    pub(super) fn words(&mut self) -> &mut Words<Policy> {
        &mut self.words
    }

    /// These words, for reports.
    pub(super) fn said(&self, links: &Links) -> Vec<PolicyReport> {
        let said = |(of, policy): (&Target, Policy)| PolicyReport {
            of: of.clone(),
            policy: text(policy, links),
        };
        self.words.iter().map(said).collect()
    }
}

/// The policy of this name, of a mobile whose links are called so.
///
/// # Errors
///
/// Says what is wrong with the name.
pub(super) fn parse<'a>(
    name: &str,
    mut links: impl Iterator<Item = &'a str>,
) -> Result<Policy, String> {
    match name.split_once(' ').map(|(word, link)| (word, link.trim())) {
        None if name == "speed" => Ok(Policy::Speed),
        None if name == "redundant" => Ok(Policy::Redundant),
        None if name == "cheap" => Ok(Policy::Cheap),
        Some(("only", link)) => {
            let at = links.position(|known| known == link);
            let at = at.ok_or_else(|| format!("no link in [[links]] is called `{link}`"))?;
            Ok(Policy::Only(PathId(at as u8)))
        }
        _ => Err(format!(
            "`{name}` is no policy: there are speed, redundant, cheap, and only with a link's name"
        )),
    }
}

/// A policy's name.
pub(super) fn text(policy: Policy, links: &Links) -> String {
    match policy {
        Policy::Speed => "speed".to_owned(),
        Policy::Redundant => "redundant".to_owned(),
        Policy::Cheap => "cheap".to_owned(),
        Policy::Only(path) => format!("only {}", links.name(path.0.into())),
    }
}

#[cfg(test)]
mod tests {
    use lasthop_hop::PathStatus;

    use super::*;

    fn link(name: &str) -> LinkConfig {
        let (interface, status) = (name.to_owned(), PathStatus::FREE);
        LinkConfig { name: name.to_owned(), interface, status, cap: None, base: None }
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
        let of = |port| got.of(1, &Flow { port, ..Flow::default() });
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
