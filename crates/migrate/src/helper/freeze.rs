//! Stops the packets of four-tuples in both directions.

use std::fmt::Write;

use lasthop_kernel::insist::insist;
use lasthop_kernel::netlink::{Field, SetChange, Sets, key};
use lasthop_kernel::nft;

use super::super::Flow;

/// The table of packet rules, of the family `inet`.
const TABLE: &str = "lasthop_freeze";
/// Four-tuples that one client may have frozen at once.
pub(super) const FROZEN_MAX: usize = 65_536;
/// A four-tuple is frozen for so long at most, whoever dies meanwhile.
const LONGEST: &str = "60s";

/// Four-tuples of each family are in a set, which two rules ask: one for each direction. That is
/// before everything else that looks at packets, so that neither a connection's tracking nor a
/// socket learns of them.
#[derive(Debug)]
pub(super) struct Freezer {
    /// The table stands.
    stands: bool,
    sets: Sets,
}

impl Freezer {
    /// Ready: nothing is frozen, whatever an earlier helper froze.
    pub(super) fn new() -> Self {
        let mut freezer = Self { stands: false, sets: Sets::default() };
        if let Err(error) = freezer.install() {
            tracing::warn!(error, "cannot drop packets of moving connections");
        }
        freezer
    }

    fn install(&mut self) -> Result<(), String> {
        nft::apply(&table()).map_err(|e| e.to_string())?;
        self.stands = true;
        Ok(())
    }

    /// `beside` is done in the same step.
    pub(super) fn freeze(&mut self, flows: &[Flow], beside: Vec<SetChange>) -> Result<(), String> {
        let changes = [beside, elements(true, flows)].concat();
        if self.stands && self.sets.change(&changes).is_ok() {
            return Ok(());
        }
        // Somebody has taken the table away.
        self.install()?;
        self.change(&changes)
    }

    /// Changes other sets, such as those of the table of exceptions.
    pub(super) fn change(&mut self, changes: &[SetChange]) -> Result<(), String> {
        self.sets.change(changes).map_err(|e| e.to_string())
    }

    pub(super) fn thaw(&mut self, flows: &[Flow]) -> Result<(), String> {
        if !self.stands {
            return Ok(());
        }
        // One that has expired would make all fail: after adding it is there.
        let changes = [elements(true, flows), elements(false, flows)].concat();
        self.change(&changes)
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        if self.stands
            && let Err(error) = insist(|| nft::delete(TABLE))
        {
            tracing::warn!(%error, "cannot remove packet rules: the next start removes them");
        }
    }
}

fn table() -> String {
    let mut text = nft::absent(TABLE);
    let _ = writeln!(text, "table inet {TABLE} {{");
    for (n, kind) in [(4, "ipv4_addr"), (6, "ipv6_addr")] {
        let key = format!("{kind} . inet_service . {kind} . inet_service");
        let _ = writeln!(text, "  set flows{n} {{ type {key}; timeout {LONGEST}; }}");
    }
    let from = "saddr . tcp sport";
    let to = "daddr . tcp dport";
    for (chain, hook, local, remote) in
        [("incoming", "prerouting", to, from), ("outgoing", "output", from, to)]
    {
        let _ = writeln!(text, "  chain {chain} {{");
        let _ = writeln!(text, "    type filter hook {hook} priority raw - 10; policy accept;");
        for (n, ip) in [(4, "ip"), (6, "ip6")] {
            let _ = writeln!(text, "    {ip} {local} . {ip} {remote} @flows{n} drop");
        }
        let _ = writeln!(text, "  }}");
    }
    let _ = writeln!(text, "}}");
    text
}

fn elements(add: bool, flows: &[Flow]) -> Vec<SetChange> {
    let of = |ipv6: bool| {
        let flows = flows.iter().filter(|flow| flow.local.is_ipv6() == ipv6);
        let key = |Flow { local, remote }: &Flow| {
            let [local, remote] =
                [local, remote].map(|end| [Field::Ip(end.ip()), Field::Port(end.port())]);
            key(&[local, remote].concat())
        };
        let set = if ipv6 { "flows6" } else { "flows4" };
        SetChange { table: TABLE, set: set.to_owned(), add, keys: flows.map(key).collect() }
    };
    let mut changes = vec![of(false), of(true)];
    changes.retain(|change| !change.keys.is_empty());
    changes
}
