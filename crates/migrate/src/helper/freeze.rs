//! Stops the packets of four-tuples in both directions.

use std::fmt::Write;

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
}

impl Freezer {
    /// What an earlier helper froze is thawed.
    pub(super) fn new() -> Self {
        if let Err(error) = nft::delete(TABLE) {
            tracing::warn!(%error, "cannot drop packets of moving connections");
        }
        Self { stands: false }
    }

    /// `beside` is a script that is done in the same step.
    pub(super) fn freeze(&mut self, flows: &[Flow], beside: &str) -> Result<(), String> {
        let mut script = beside.to_owned();
        if !self.stands {
            script.push_str(&table());
        }
        elements(&mut script, "add", flows);
        self.apply(&script)
    }

    pub(super) fn thaw(&mut self, flows: &[Flow]) -> Result<(), String> {
        if !self.stands {
            return Ok(());
        }
        let mut script = String::new();
        // One that has expired would make the whole script fail: after adding it is there.
        elements(&mut script, "add", flows);
        elements(&mut script, "delete", flows);
        self.apply(&script)
    }

    fn apply(&mut self, script: &str) -> Result<(), String> {
        if script.is_empty() {
            return Ok(());
        }
        nft::apply(script).map_err(|e| e.to_string())?;
        self.stands = true;
        Ok(())
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        if self.stands
            && let Err(error) = nft::delete(TABLE)
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

fn elements(script: &mut String, verb: &str, flows: &[Flow]) {
    for ipv6 in [false, true] {
        let mut flows = flows.iter().filter(|flow| flow.local.is_ipv6() == ipv6).peekable();
        if flows.peek().is_none() {
            continue;
        }
        let n = if ipv6 { 6 } else { 4 };
        let _ = write!(script, "{verb} element inet {TABLE} flows{n} {{ ");
        for Flow { local, remote } in flows {
            let (from, to) = ((local.ip(), local.port()), (remote.ip(), remote.port()));
            let _ = write!(script, "{} . {} . {} . {}, ", from.0, from.1, to.0, to.1);
        }
        script.push_str("}\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thousand_connections_are_one_line_for_each_family() {
        let flow = |n: u16, v6: bool| Flow {
            local: if v6 { format!("[2001:db8::7]:{n}") } else { format!("10.9.0.7:{n}") }
                .parse()
                .unwrap(),
            remote: if v6 { "[2001:db8::1]:80" } else { "192.0.2.1:80" }.parse().unwrap(),
        };
        let flows: Vec<Flow> = (1..=1000).map(|n| flow(n, n % 2 == 0)).collect();
        let mut script = String::new();
        elements(&mut script, "add", &flows);
        assert_eq!(script.lines().count(), 2);
        assert!(script.contains("flows4 { 10.9.0.7 . 1 . 192.0.2.1 . 80, "), "{script}");
        assert!(script.contains("flows6 { 2001:db8::7 . 2 . 2001:db8::1 . 80, "), "{script}");
        script.clear();
        elements(&mut script, "add", &[]);
        assert!(script.is_empty());
    }
}
