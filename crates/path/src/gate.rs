//! What keeps the kernel's bridge from forwarding what the agent forwards: packet rules that end with
//! the process, however it ends.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use lasthop_wire::agent::beside::{ETHERTYPE, SUBTYPE};

use lasthop_kernel::nft::{self, NftError};

/// The name of the table begins so; the process's number follows.
const TABLE: &str = "lasthop_agent";
/// How long the rules may take to stand.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often it is checked whether they do.
const POLL_EVERY: Duration = Duration::from_millis(5);

/// While this lives the bridge drops plain TCP, and frames of agents that the agent reads, between two of
/// its ports.
///
/// The table belongs to the socket of an `nft` that reads its standard input, which is a pipe from this
/// process. When the pipe closes, by `drop` or because the process was killed, that `nft` ends, its socket
/// is closed, and the kernel removes the table (`flags owner`): the bridge forwards everything again.
#[derive(Debug)]
pub(super) struct Gate {
    keeper: Child,
    orders: Option<ChildStdin>,
}

impl Gate {
    /// Closes the way from `fixed` to `mobile` and back for what is the agent's: frames between agents
    /// only if it `speaks` to another. The rules stand when this returns.
    ///
    /// # Errors
    ///
    /// [`NftError`].
    pub(super) fn close(fixed: &str, mobile: &str, speaks: bool) -> Result<Self, NftError> {
        let table = format!("{TABLE}_{}", std::process::id());
        let script = script(&table, fixed, mobile, speaks);
        // As a whole and checked, which gives the reason if the kernel refuses something of it.
        nft::check(&script)?;
        let mut gate = Self::spawn()?;
        if let Some(orders) = &mut gate.orders {
            orders.write_all(script.as_bytes()).map_err(NftError::Io)?;
            orders.flush().map_err(NftError::Io)?;
        }
        let deadline = Instant::now() + PATIENCE;
        while nft::drops_in_bridge(&table)? < rules(speaks) {
            if Instant::now() >= deadline || matches!(gate.keeper.try_wait(), Ok(Some(_))) {
                return Err(NftError::Refused("the rules do not stand".to_owned()));
            }
            thread::sleep(POLL_EVERY);
        }
        Ok(gate)
    }

    fn spawn() -> Result<Self, NftError> {
        for program in nft::PROGRAMS {
            let spawned = Command::new(program)
                .arg("-i")
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn();
            match spawned {
                Ok(mut keeper) => {
                    let orders = keeper.stdin.take();
                    return Ok(Self { keeper, orders });
                }
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(NftError::Io(e)),
            }
        }
        Err(NftError::Missing)
    }

    /// Whether the rules stand; they do not if somebody ended their keeper.
    pub(super) fn is_closed(&mut self) -> bool {
        matches!(self.keeper.try_wait(), Ok(None))
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        drop(self.orders.take());
        // It ends by itself when its input does; one that does not is ended.
        let deadline = Instant::now() + PATIENCE;
        while matches!(self.keeper.try_wait(), Ok(None)) {
            if Instant::now() >= deadline {
                let _ = self.keeper.kill();
                let _ = self.keeper.wait();
                return;
            }
            thread::sleep(POLL_EVERY);
        }
    }
}

/// Plain TCP.
const TCP: [&str; 2] =
    ["ether type ip ip protocol tcp ip frag-off & 0x3fff == 0", "ether type ip6 ip6 nexthdr tcp"];

/// How many rules there are.
const fn rules(speaks: bool) -> usize {
    2 * (TCP.len() + speaks as usize)
}

/// The same packets as [`is_plain_tcp`](super::frame::is_plain_tcp) finds, one order a line.
fn script(table: &str, fixed: &str, mobile: &str, speaks: bool) -> String {
    let mut text = format!(
        "add table bridge {table} {{ flags owner; }}\n\
         add chain bridge {table} forward {{ type filter hook forward priority 0; }}\n"
    );
    for (from, to) in [(fixed, mobile), (mobile, fixed)] {
        let beside = format!("ether type {ETHERTYPE:#06x} @ll,112,8 {SUBTYPE:#04x}");
        for what in TCP.into_iter().chain(speaks.then_some(beside.as_str())) {
            let rule = format!("iifname \"{from}\" oifname \"{to}\" {what} drop");
            // Writing to a string does not fail.
            let _ = writeln!(text, "add rule bridge {table} forward {rule}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use lasthop_kernel::netns::{Netns, NetnsError};

    use super::*;

    fn tables(netns: &Netns) -> String {
        let output = netns.command("nft").args(["list", "ruleset"]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    /// A namespace, or none where tests may not have one.
    fn netns() -> Option<Netns> {
        lasthop_testing::or_skip(Netns::anonymous(), NetnsError::is_unavailable)
    }

    #[test]
    fn the_rules_stand_as_long_as_the_gate_and_no_longer() {
        let Some(netns) = netns() else { return };
        for speaks in [false, true] {
            let mut gate = netns.enter(|| Gate::close("a0", "b0", speaks)).unwrap().unwrap();
            let stand = tables(&netns);
            assert_eq!(stand.matches(" drop").count(), rules(speaks), "{stand}");
            assert_eq!(stand.contains("0x88b6"), speaks, "{stand}");
            assert!(stand.contains("flags owner") && gate.is_closed(), "{stand}");
            drop(gate);
            assert_eq!(tables(&netns), "");
        }
    }

    #[test]
    fn rules_whose_keeper_is_killed_are_gone_and_it_shows() {
        let Some(netns) = netns() else { return };
        let mut gate = netns.enter(|| Gate::close("a0", "b0", true)).unwrap().unwrap();
        gate.keeper.kill().unwrap();
        gate.keeper.wait().unwrap();
        assert!(!gate.is_closed());
        assert_eq!(tables(&netns), "");
    }

    #[test]
    fn a_name_that_breaks_the_rules_is_refused_with_a_reason() {
        let Some(netns) = netns() else { return };
        let refused = netns.enter(|| Gate::close("a\"0", "b0", true)).unwrap();
        assert!(matches!(refused, Err(NftError::Refused(_))), "{refused:?}");
    }
}
