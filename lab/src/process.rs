//! Child processes that end with the lab.

use std::collections::VecDeque;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::error::LabError;

/// How much of what a child writes to its standard error is kept.
const TAIL: usize = 32 * 1024;
/// How long a child may take to end when asked to, on a busy machine.
const GRACE: Duration = Duration::from_secs(20);
const TICK: Duration = Duration::from_millis(10);

/// A child that serves until it is dropped: it is then asked to end, and killed if it does not.
#[derive(Debug)]
pub struct Daemon {
    name: String,
    child: Child,
    said: Arc<Mutex<Said>>,
}

impl Daemon {
    /// Starts `command`, with nothing on its standard input and its output kept for errors.
    ///
    /// # Errors
    ///
    /// It could not be started.
    pub fn spawn(mut command: Command) -> Result<Self, LabError> {
        let name = short_name(&command);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| LabError::io(format!("starting `{name}`"), e))?;
        let said = Arc::new(Mutex::new(Said::default()));
        if let Some(mut stderr) = child.stderr.take() {
            let said = Arc::clone(&said);
            let keep = move || {
                let mut piece = [0; 1024];
                while let Ok(n @ 1..) = stderr.read(&mut piece) {
                    said.lock().unwrap_or_else(PoisonError::into_inner).add(&piece[..n]);
                }
            };
            thread::Builder::new()
                .name("stderr".into())
                .spawn(keep)
                .map_err(|e| LabError::io("starting a thread", e))?;
        }
        Ok(Self { name, child, said })
    }

    /// The process's number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The last that it wrote to its standard error.
    pub fn said(&self) -> String {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&said.bytes()).trim().to_owned()
    }

    /// When it first wrote a line that contains `text`, from `moment` on: the line must be among the last.
    pub fn said_at(&self, moment: Instant, text: &str) -> Option<Instant> {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let mut lines = said.lines.iter().filter(|(at, _)| *at >= moment);
        lines.find(|(_, line)| String::from_utf8_lossy(line).contains(text)).map(|(at, _)| *at)
    }

    /// Whether it still runs.
    ///
    /// # Errors
    ///
    /// [`LabError::Ended`] with its last words if it does not.
    pub fn check(&mut self) -> Result<(), LabError> {
        let status = self.child.try_wait().map_err(|e| LabError::io("waiting for a child", e))?;
        match status {
            None => Ok(()),
            Some(status) => {
                // Its last words may still be in the pipe.
                thread::sleep(TICK);
                Err(LabError::Ended {
                    command: self.name.clone(),
                    status: status.to_string(),
                    message: self.said(),
                })
            }
        }
    }

    /// Stops it where it is (SIGSTOP), until it [goes on](Self::go_on).
    pub fn pause(&mut self) {
        self.signal(Signal::STOP);
    }

    /// Has it go on after a [pause](Self::pause).
    pub fn go_on(&mut self) {
        self.signal(Signal::CONT);
    }

    fn signal(&mut self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        // Once waited for, its number may be somebody else's.
        if let (Ok(None), Some(pid)) = (self.child.try_wait(), pid) {
            let _ = kill_process(pid, signal);
        }
    }

    /// Ends it without asking.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Asks it to end, once more after a while, and waits; false if it had to be killed.
    pub fn stop(&mut self) -> bool {
        if self.ends_within(GRACE / 8) || self.ends_within(GRACE) {
            return true;
        }
        self.kill();
        false
    }

    /// Asks it to end (SIGTERM).
    pub fn ask_to_end(&mut self) {
        self.signal(Signal::TERM);
        // One that is paused hears nothing.
        self.signal(Signal::CONT);
    }

    /// Whether it has ended in good order; none while it runs.
    ///
    /// # Errors
    ///
    /// [`LabError::Ended`] with its last words if its exit status is not 0.
    pub fn ended(&mut self) -> Result<Option<()>, LabError> {
        match self.child.try_wait().map_err(|e| LabError::io("waiting for a child", e))? {
            Some(status) if status.success() => Ok(Some(())),
            _ => self.check().map(|()| None),
        }
    }

    /// Whether it has ended `patience` after being asked to.
    fn ends_within(&mut self, patience: Duration) -> bool {
        self.ask_to_end();
        let deadline = Instant::now() + patience;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() >= deadline {
                return false;
            }
            thread::sleep(TICK);
        }
        true
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Runs `command` to its end, and returns what it printed.
///
/// # Errors
///
/// It could not be started; [`LabError::Ended`] with what it wrote to its standard error if it failed.
pub fn run(mut command: Command) -> Result<String, LabError> {
    let name = short_name(&command);
    let output = command.output().map_err(|e| LabError::io(format!("starting `{name}`"), e))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    let (status, message) = (output.status.to_string(), text(&output.stderr).trim().to_owned());
    Err(LabError::Ended { command: name, status, message })
}

/// The program's name and its subcommand, which is what people know it by.
fn short_name(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    let first = command.get_args().next().map(|a| a.to_string_lossy()).unwrap_or_default();
    if first.starts_with(|c: char| c.is_ascii_alphabetic()) {
        format!("{} {first}", program.to_string_lossy())
    } else {
        program.to_string_lossy().into_owned()
    }
}

/// The last lines that a child has written, and when each began to come.
#[derive(Default, Debug)]
struct Said {
    lines: VecDeque<(Instant, Vec<u8>)>,
    len: usize,
}

impl Said {
    fn add(&mut self, piece: &[u8]) {
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            match self.lines.back_mut().filter(|(_, line)| line.last() != Some(&b'\n')) {
                Some((_, line)) => line.extend(part),
                None => self.lines.push_back((Instant::now(), part.to_vec())),
            }
        }
        self.len += piece.len();
        while self.len > TAIL
            && let Some((at, mut first)) = self.lines.pop_front()
        {
            let rest = first.split_off(first.len().min(self.len - TAIL));
            self.len -= first.len();
            if !rest.is_empty() {
                self.lines.push_front((at, rest));
            }
        }
    }

    fn bytes(&self) -> Vec<u8> {
        self.lines.iter().flat_map(|(_, line)| line).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Daemon {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Daemon::spawn(command).unwrap()
    }

    #[test]
    fn a_child_that_ended_early_is_told_with_its_last_words() {
        let mut daemon = shell("echo no such luck >&2; exit 3");
        let deadline = Instant::now() + Duration::from_secs(10);
        let e = loop {
            match daemon.check() {
                Err(e) => break e.to_string(),
                Ok(()) => assert!(Instant::now() < deadline),
            }
            thread::sleep(TICK);
        };
        assert!(e.contains("no such luck") && e.contains("status: 3") && e.contains("`sh`"), "{e}");
    }

    #[test]
    fn a_child_ends_when_asked_and_when_it_will_not() {
        assert!(shell("exec sleep 60").stop());
        let mut stubborn = shell("trap '' TERM; echo ready >&2; while :; do sleep 0.1; done");
        let deadline = Instant::now() + Duration::from_secs(10);
        while stubborn.said().is_empty() {
            assert!(Instant::now() < deadline);
            thread::sleep(TICK);
        }
        assert!(!stubborn.stop());
    }

    #[test]
    fn only_the_tail_of_what_is_said_is_kept() {
        for end in ["", "\n"] {
            let mut said = Said::default();
            for i in 0..100 {
                let line = format!("{i:>999}{end}");
                // As it comes: in pieces that end anywhere.
                line.as_bytes().chunks(300).for_each(|piece| said.add(piece));
            }
            let bytes = said.bytes();
            assert_eq!((bytes.len(), said.len), (TAIL, TAIL));
            assert!(String::from_utf8(bytes).unwrap().trim().ends_with("99"));
        }
    }

    #[test]
    fn what_was_said_has_its_time() {
        let start = Instant::now();
        let daemon = shell("echo one >&2; sleep 0.2; echo two >&2; sleep 60");
        let said_at = |text| {
            while daemon.said_at(start, text).is_none() {
                assert!(start.elapsed() < Duration::from_secs(10));
                thread::sleep(TICK);
            }
            daemon.said_at(start, text).unwrap()
        };
        let (one, two) = (said_at("one"), said_at("two"));
        assert!(one < two);
        assert_eq!(daemon.said_at(two, "one"), None);
        assert_eq!(daemon.said_at(one, "o"), Some(one));
    }
}
