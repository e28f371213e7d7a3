//! The `[[priority]]` tables of a configuration.

use std::num::NonZeroU16;

use lasthop_kernel::network::Network;
use serde::{Deserialize, Deserializer, de};

use super::Flow;
use crate::settings;
use crate::settings::{Row, Table};
use crate::socket::PRIORITY_MAX;

/// Connections that are all that is said.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Which {
    program: Option<String>,
    port: Option<u16>,
    address: Option<Network>,
}

impl Which {
    /// Those of the program of this name, to this port of fixed hosts, and to fixed hosts in this network: one of these at
    /// least.
    ///
    /// # Errors
    ///
    /// Nothing is said, or nothing of the program.
    pub fn new(
        program: Option<String>,
        port: Option<NonZeroU16>,
        address: Option<Network>,
    ) -> Result<Self, &'static str> {
        if program.is_none() && port.is_none() && address.is_none() {
            return Err("says whose it is: `program`, `port` or `address`, or several of them");
        }
        if program.as_deref() == Some("") {
            return Err("says nothing: its `program` is empty");
        }
        Ok(Self { program, port: port.map(NonZeroU16::get), address })
    }

    /// Something is said of a program.
    pub fn names_program(&self) -> bool {
        self.program.is_some()
    }

    /// Whether a connection is meant.
    pub fn fits(&self, flow: &Flow) -> bool {
        let program = |name: &String| flow.program.as_ref().is_some_and(|known| known.is(name));
        self.program.as_ref().is_none_or(program)
            && self.port.is_none_or(|port| port == flow.port)
            && self.address.is_none_or(|net| flow.host.is_some_and(|ip| net.contains(ip)))
    }
}

/// One `[[priority]]` table: connections that are all that it says have its priority.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(try_from = "RuleFile")]
pub struct Rule {
    which: Which,
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
    type Error = String;

    fn try_from(file: RuleFile) -> Result<Self, Self::Error> {
        let RuleFile { program, port, address, priority } = file;
        let which = Which::new(program, port, address);
        let which = which.map_err(|why| format!("a [[priority]] {why}"))?;
        Ok(Self { which, priority })
    }
}

impl Rules {
    /// Nothing is said.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Some is said of a program.
    pub(super) fn name_programs(&self) -> bool {
        self.0.iter().any(|rule| rule.which.names_program())
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
        self.0.iter().find(|rule| rule.which.fits(flow)).map(|rule| rule.priority)
    }
}
