//! Has the packets for a mobile's address follow the mobile.

use std::io::{self, Read};
use std::net::IpAddr;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc::{self, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};

use super::error::MigrateError;
use super::helper::forwards;
use super::{Admin, Route};

/// A command of the operator's has this long.
const HOOK_TIME: Duration = Duration::from_secs(10);
/// How often one that says nothing is looked at.
const LOOK: Duration = Duration::from_millis(10);
/// Commands that may wait for the one before them.
const QUEUE_MAX: usize = 4096;
/// What is kept of what a command says, bytes: the end of it.
const SAID_MAX: usize = 512;

/// How routing follows a mobile.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RouteMode {
    /// By something else, such as Mobile IP.
    #[default]
    None,
    /// Both bases are on one segment with their router: the new one tells it that the address is
    /// there (gratuitous ARP, unsolicited neighbour advertisement), and answers for it.
    Announce,
    /// The bases are routers: the old one has a route to the new one.
    Route,
    /// By the operator's command.
    Hook,
}

#[derive(Debug)]
struct Task {
    gained: bool,
    address: IpAddr,
    peer: Option<IpAddr>,
}

/// Has routing follow, as configured. Clones share the commands of the operator's.
#[derive(Clone, Debug)]
pub struct Routing {
    mode: RouteMode,
    interface: Option<String>,
    hook: Option<SyncSender<Task>>,
}

impl Routing {
    /// `interface` is that of the segment ([`RouteMode::Announce`]) or that by which mobiles are
    /// reached ([`RouteMode::Route`], optional); `hook` is the program and its first arguments
    /// ([`RouteMode::Hook`]).
    ///
    /// # Errors
    ///
    /// What the mode needs is missing, or no thread can be had for commands.
    pub fn new(
        mode: RouteMode,
        interface: Option<String>,
        hook: Vec<String>,
    ) -> Result<Self, MigrateError> {
        let missing = |why: &str| MigrateError::Configuration(why.to_owned());
        if mode == RouteMode::Announce && interface.is_none() {
            return Err(missing("`route = \"announce\"` needs `interface`, on the bases' segment"));
        }
        if mode == RouteMode::Hook && hook.is_empty() {
            return Err(missing("`route = \"hook\"` needs `hook`, the command to run"));
        }
        let hook = if mode == RouteMode::Hook {
            let doing = "start a thread for commands";
            Some(start_hook(hook, log).map_err(MigrateError::kernel(doing))?)
        } else {
            None
        };
        Ok(Self { mode, interface, hook })
    }

    /// Whether packets for these addresses can be had to come here, as far as that is known before
    /// they do. An interface that is not there may come.
    ///
    /// # Errors
    ///
    /// They cannot, and what to change.
    pub fn check(
        mode: RouteMode,
        interface: Option<&str>,
        addresses: impl IntoIterator<Item = IpAddr>,
    ) -> Result<(), MigrateError> {
        let (RouteMode::Announce, Some(interface)) = (mode, interface) else { return Ok(()) };
        for address in addresses {
            match forwards(address, interface) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => {
                    return Err(MigrateError::Route { address, why: e.to_string() });
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The connections of the mobile with this address stand here, and so must its packets come
    /// here. They came to the base `from` if that is known. A command is only begun; one that fails is
    /// logged.
    ///
    /// # Errors
    ///
    /// The address stays where it was, and why.
    pub fn gain(
        &self,
        admin: &mut Admin,
        address: IpAddr,
        from: Option<IpAddr>,
    ) -> Result<(), MigrateError> {
        match (self.mode, &self.interface) {
            (RouteMode::Announce, Some(interface)) => {
                admin.unroute(address)?;
                admin.announce(address, interface)
            }
            (RouteMode::Route, Some(interface)) => {
                admin.route(address, Route::OnLink(interface.clone()))
            }
            (RouteMode::Route, None) => admin.unroute(address),
            (RouteMode::Hook, _) => self.run(Task { gained: true, address, peer: from }),
            _ => Ok(()),
        }
    }

    /// The connections have gone to the base `to`, and packets that still come here go there.
    ///
    /// # Errors
    ///
    /// They do not, and why.
    pub fn lose(
        &self,
        admin: &mut Admin,
        address: IpAddr,
        to: Option<IpAddr>,
    ) -> Result<(), MigrateError> {
        let gateway = to.filter(|to| to.is_ipv4() == address.is_ipv4());
        match (self.mode, &self.interface) {
            (RouteMode::Announce, Some(interface)) => {
                if let Some(to) = gateway {
                    admin.route(address, Route::Via(to))?;
                }
                admin.retract(address, interface)
            }
            (RouteMode::Route, _) => match gateway {
                Some(to) => admin.route(address, Route::Via(to)),
                None => Err(MigrateError::Route {
                    address,
                    why: "the other base has no `via` of the same family in [[peers]]".into(),
                }),
            },
            (RouteMode::Hook, _) => self.run(Task { gained: false, address, peer: to }),
            _ => Ok(()),
        }
    }

    /// This host answers for the address no more; where it is, nobody knows. Only a segment has to
    /// be notified: what routes and commands did holds until somebody has the address.
    ///
    /// # Errors
    ///
    /// The kernel refuses.
    pub fn leave(&self, admin: &mut Admin, address: IpAddr) -> Result<(), MigrateError> {
        match (self.mode, &self.interface) {
            (RouteMode::Announce, Some(interface)) => admin.retract(address, interface),
            _ => Ok(()),
        }
    }

    fn run(&self, task: Task) -> Result<(), MigrateError> {
        let address = task.address;
        let begun = self.hook.as_ref().map(|hook| hook.try_send(task));
        match begun {
            Some(Ok(())) => Ok(()),
            _ => Err(MigrateError::Route { address, why: "too many commands wait".into() }),
        }
    }
}

/// Commands run on a thread of their own, one after the other: the last word about an address is the
/// last. How each ended is told to `ended`.
fn start_hook(
    command: Vec<String>,
    ended: impl Fn(&Task, Result<(), MigrateError>) + Send + 'static,
) -> io::Result<SyncSender<Task>> {
    let (tasks, waiting) = mpsc::sync_channel::<Task>(QUEUE_MAX);
    let work = move || {
        while let Ok(task) = waiting.recv() {
            let verb = if task.gained { "gain" } else { "lose" };
            let peer = task.peer.map_or_else(|| "-".to_owned(), |peer| peer.to_string());
            let line: Vec<String> = command
                .iter()
                .cloned()
                .chain([verb.to_owned(), task.address.to_string(), peer])
                .collect();
            ended(&task, run(&line, HOOK_TIME));
        }
    };
    thread::Builder::new().name("hook".into()).spawn(work)?;
    Ok(tasks)
}

fn log(task: &Task, outcome: Result<(), MigrateError>) {
    if let Err(error) = outcome {
        tracing::warn!(address = %task.address, %error, "cannot move a mobile's route");
    }
}

/// Runs a command to its end, or to its time's.
fn run(line: &[String], time: Duration) -> Result<(), MigrateError> {
    let failed = |status: String, stderr: &[u8]| MigrateError::Hook {
        command: line.join(" "),
        status,
        stderr: String::from_utf8_lossy(stderr).trim().replace('\n', "; "),
    };
    let Some((program, arguments)) = line.split_first() else { return Ok(()) };
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(|e| failed(format!("it does not start: {e}"), &[]))?;
    let mut said = Vec::new();
    let stderr = child.stderr.take();
    let status = wait_for_output(&mut child, stderr, &mut said, Instant::now() + time);
    match status {
        Ok(Some(status)) if status.success() => Ok(()),
        Ok(Some(status)) => Err(failed(
            match (status.code(), status.signal()) {
                (Some(code), _) => format!("exit status {code}"),
                (None, Some(signal)) => format!("ended by signal {signal}"),
                (None, None) => "ended".into(),
            },
            &said,
        )),
        Ok(None) => {
            end(&mut child);
            Err(failed(format!("not done after {} s, ended", time.as_secs()), &said))
        }
        Err(e) => {
            end(&mut child);
            Err(failed(e.to_string(), &said))
        }
    }
}

/// Waits for the command, and keeps the end of what it says; nothing if its time is over.
fn wait_for_output(
    child: &mut Child,
    mut stderr: Option<ChildStderr>,
    said: &mut Vec<u8>,
    deadline: Instant,
) -> io::Result<Option<std::process::ExitStatus>> {
    if let Some(stderr) = &stderr {
        rustix::io::ioctl_fionbio(stderr, true)?;
    }
    loop {
        let status = child.try_wait()?;
        // Its output before the end is there when the end is.
        if let Some(stderr) = &mut stderr {
            listen(stderr, said);
        }
        if status.is_some() {
            return Ok(status);
        }
        if Instant::now() >= deadline {
            return Ok(None);
        }
        thread::sleep(LOOK);
    }
}

fn listen(stderr: &mut ChildStderr, said: &mut Vec<u8>) {
    let mut buffer = [0; 4096];
    // One that never stops talking is looked at again later.
    for _ in 0..16 {
        let Ok(n @ 1..) = stderr.read(&mut buffer) else { return };
        said.extend_from_slice(&buffer[..n]);
        let excess = said.len().saturating_sub(SAID_MAX);
        said.drain(..excess);
    }
}

/// Ends the command and what it has started.
fn end(child: &mut Child) {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(pid, Signal::KILL);
    }
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(script: &str) -> Vec<String> {
        ["sh", "-c", script, "hook"].map(str::to_owned).to_vec()
    }

    #[test]
    fn a_command_that_fails_is_reported_with_its_status_and_output() {
        assert!(run(&line("exit 0"), HOOK_TIME).is_ok());
        let error = run(&line("echo no such router >&2; exit 3"), HOOK_TIME).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("exit status 3") && error.contains("no such router"), "{error}");
        let error = run(&line("kill -9 $$"), HOOK_TIME).unwrap_err().to_string();
        assert!(error.contains("signal 9"), "{error}");
        let error = run(&["/no/such/hook".to_owned()], HOOK_TIME).unwrap_err().to_string();
        assert!(error.contains("/no/such/hook") && error.contains("does not start"), "{error}");
    }

    #[test]
    fn a_command_that_does_not_end_is_ended() {
        let error = run(&line("echo wait >&2; sleep 60"), Duration::from_millis(50)).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("not done") && error.contains("wait"), "{error}");
    }

    #[test]
    fn only_the_end_of_a_commands_output_is_kept() {
        let script = "i=0; while [ $i -lt 2000 ]; do echo line $i >&2; i=$((i+1)); done; exit 1";
        let Err(MigrateError::Hook { stderr, .. }) = run(&line(script), HOOK_TIME) else {
            panic!("it did not fail");
        };
        assert!(stderr.len() <= 2 * SAID_MAX && stderr.ends_with("line 1999"), "{stderr}");
    }

    #[test]
    fn commands_run_in_order_beside_the_loop_and_are_given_the_address_and_the_peer() {
        let file = std::env::temp_dir().join(format!("lasthop-hook-{}", std::process::id()));
        let script = format!("echo \"$@\" >> {}", file.display());
        let address: IpAddr = "10.9.0.7".parse().unwrap();
        let (ended, outcomes) = mpsc::channel();
        let hook = start_hook(line(&script), move |task, outcome| {
            ended.send((task.gained, task.address, outcome)).unwrap();
        });
        let routing = Routing { mode: RouteMode::Hook, interface: None, hook: hook.ok() };
        for (gained, peer) in [(true, None), (false, Some("192.0.2.2".parse().unwrap()))] {
            routing.run(Task { gained, address, peer }).unwrap();
        }
        for gained in [true, false] {
            let (which, at, outcome) = outcomes.recv_timeout(HOOK_TIME).unwrap();
            assert_eq!((which, at), (gained, address));
            outcome.unwrap();
        }
        let said = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        assert_eq!(said, "gain 10.9.0.7 -\nlose 10.9.0.7 192.0.2.2\n");
    }

    #[test]
    fn what_a_mode_needs_is_asked_for_at_once() {
        let error = |mode| Routing::new(mode, None, Vec::new()).unwrap_err().to_string();
        assert!(error(RouteMode::Announce).contains("`interface`"));
        assert!(error(RouteMode::Hook).contains("`hook`"));
        assert!(Routing::new(RouteMode::Route, None, Vec::new()).is_ok());
    }
}
