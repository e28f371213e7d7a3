//! What keeps the kernel's bridge from forwarding what the agent forwards: packet rules that end with
//! the process, however it ends.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::nft::{self, NftError};

/// The name of the table begins so; the process's number follows.
const TABLE: &str = "lasthop_agent";
/// How long the rules may take to stand.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often it is looked whether they do.
const LOOK: Duration = Duration::from_millis(5);

/// While this lives the bridge drops plain TCP, and the frames of agents, between two of its ports.
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
    /// Closes the way from `fixed` to `mobile` and back for what is the agent's. The rules stand when
    /// this returns.
    ///
    /// # Errors
    ///
    /// [`NftError`].
    pub(super) fn close(fixed: &str, mobile: &str) -> Result<Self, NftError> {
        let table = format!("{TABLE}_{}", std::process::id());
        let script = script(&table, fixed, mobile);
        // As a whole and checked, which gives the reason if the kernel refuses something of it.
        nft::check(&script)?;
        let mut gate = Self::spawn()?;
        if let Some(orders) = &mut gate.orders {
            orders.write_all(script.as_bytes()).map_err(NftError::Io)?;
            orders.flush().map_err(NftError::Io)?;
        }
        let deadline = Instant::now() + PATIENCE;
        while nft::drops_in_bridge(&table)? < RULES {
            if Instant::now() >= deadline || matches!(gate.keeper.try_wait(), Ok(Some(_))) {
                return Err(NftError::Refused("the rules do not stand".to_owned()));
            }
            thread::sleep(LOOK);
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
            thread::sleep(LOOK);
        }
    }
}

/// How many rules there are.
const RULES: usize = 6;

/// The same packets as [`is_plain_tcp`](super::frame::is_plain_tcp) finds, one order a line.
fn script(table: &str, fixed: &str, mobile: &str) -> String {
    let mut text = format!(
        "add table bridge {table} {{ flags owner; }}\n\
         add chain bridge {table} forward {{ type filter hook forward priority 0; }}\n"
    );
    for (from, to) in [(fixed, mobile), (mobile, fixed)] {
        for what in [
            "ether type ip ip protocol tcp ip frag-off & 0x3fff == 0",
            "ether type ip6 ip6 nexthdr tcp",
            "ether type 0x88b5",
        ] {
            let rule = format!("iifname \"{from}\" oifname \"{to}\" {what} drop");
            // Writing to a string does not fail.
            let _ = writeln!(text, "add rule bridge {table} forward {rule}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netns::Netns;

    fn tables(netns: &Netns) -> String {
        let output = netns.command("nft").args(["list", "ruleset"]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn the_rules_stand_as_long_as_the_gate_and_no_longer() {
        let Some(netns) = Netns::for_test() else { return };
        let mut gate = netns.enter(|| Gate::close("a0", "b0")).unwrap().unwrap();
        let rules = tables(&netns);
        assert_eq!(rules.matches(" drop").count(), RULES, "{rules}");
        assert!(rules.contains("flags owner") && gate.is_closed(), "{rules}");
        drop(gate);
        assert_eq!(tables(&netns), "");
    }

    #[test]
    fn rules_whose_keeper_is_killed_are_gone_and_it_shows() {
        let Some(netns) = Netns::for_test() else { return };
        let mut gate = netns.enter(|| Gate::close("a0", "b0")).unwrap().unwrap();
        gate.keeper.kill().unwrap();
        gate.keeper.wait().unwrap();
        assert!(!gate.is_closed());
        assert_eq!(tables(&netns), "");
    }

    #[test]
    fn a_name_that_breaks_the_rules_is_refused_with_a_reason() {
        let Some(netns) = Netns::for_test() else { return };
        let refused = netns.enter(|| Gate::close("a\"0", "b0")).unwrap();
        assert!(matches!(refused, Err(NftError::Refused(_))), "{refused:?}");
    }
}
