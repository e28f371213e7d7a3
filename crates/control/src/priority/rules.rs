//! The `[[priority]]` tables of a configuration.

use std::num::NonZeroU16;

use lasthop_kernel::network::Network;
use serde::{Deserialize, Deserializer, de};

use super::Flow;
use crate::settings;
use crate::settings::{Row, Table};
use crate::socket::PRIORITY_MAX;

/// One `[[priority]]` table: connections that are all that it says have its priority.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(try_from = "RuleFile")]
pub struct Rule {
    /// The name of the program whose they are.
    pub program: Option<String>,
    /// The fixed host's port.
    pub port: Option<u16>,
    /// Networks that the fixed host is in.
    pub address: Option<Network>,
    /// Relative to other connections', of which nothing is said and which have 1.
    pub priority: u32,
}

settings! {
    entry
    /// A table as it is written.
    struct RuleFile {
        /// The name of the program whose connections they are.
        program: Option<String> => "any",
        /// The fixed host's port; of connections that fixed hosts open, the published port.
        port: Option<NonZeroU16> => "any",
        /// A network or an address that the fixed host is in, as `"10.0.0.0/8"`.
        address: Option<Network> => "any",
        /// Relative to others'. Connections of which nothing is said have 1.
        #[range(format!(", from 1 to {PRIORITY_MAX}"))]
        #[serde(deserialize_with = "priority")]
        priority: u32,
    }
}

impl Table for Rule {
    const ROWS: &'static [Row] = RuleFile::ROWS;
}

fn priority<'de, D: Deserializer<'de>>(d: D) -> Result<u32, D::Error> {
    let n = u32::deserialize(d)?;
    if (1..=PRIORITY_MAX).contains(&n) {
        return Ok(n);
    }
    Err(de::Error::custom(format!("{n} is no priority: there are 1 to {PRIORITY_MAX}")))
}

impl TryFrom<RuleFile> for Rule {
    type Error = &'static str;

    fn try_from(file: RuleFile) -> Result<Self, Self::Error> {
        let RuleFile { program, port, address, priority } = file;
        if program.is_none() && port.is_none() && address.is_none() {
            return Err("a [[priority]] says whose it is: `program`, `port` or `address`, or \
                        several of them");
        }
        if program.as_deref() == Some("") {
            return Err("the `program` of a [[priority]] is empty");
        }
        Ok(Self { program, port: port.map(NonZeroU16::get), address, priority })
    }
}

impl Rules {
    /// Nothing is said.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Some is said of a program.
    pub(super) fn name_programs(&self) -> bool {
        self.0.iter().any(|rule| rule.program.is_some())
    }
}

impl Rule {
    fn fits(&self, flow: &Flow) -> bool {
        let program = |name: &String| flow.program.as_ref().is_some_and(|known| known.is(name));
        self.program.as_ref().is_none_or(program)
            && self.port.is_none_or(|port| port == flow.port)
            && self.address.is_none_or(|net| flow.host.is_some_and(|ip| net.contains(ip)))
    }
}

/// All `[[priority]]` tables of a configuration, in their order.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Rules(Vec<Rule>);

impl From<Vec<Rule>> for Rules {
    fn from(rules: Vec<Rule>) -> Self {
        Self(rules)
    }
}

impl Rules {
    /// The priority of a connection: that of the first rule that fits it, if one does.
    pub fn priority(&self, flow: &Flow) -> Option<u32> {
        self.0.iter().find(|rule| rule.fits(flow)).map(|rule| rule.priority)
    }
}
