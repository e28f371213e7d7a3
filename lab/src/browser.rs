//! A web browser: headless Chromium, driven by the DevTools protocol over a pipe.
//!
//! The pipe needs no port, so that nobody but its owner can reach the browser, in whatever namespace
//! it runs.

use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use lasthop_kernel::netns::Netns;
use serde_json::{Value, json};

use crate::error::LabError;
use crate::wait::wait_for;

/// What Debian calls it, and others.
const NAMES: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];
/// The browser reads commands from its descriptor 3 and writes answers to 4.
const PLUMBING: &str = "exec \"$@\" 3<&0 4>&1 0</dev/null 1>&2";
/// It shows one page and talks to nobody but that page's server.
const FLAGS: [&str; 12] = [
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--metrics-recording-only",
    "--window-size=1280,1000",
];
const TICK: Duration = Duration::from_millis(50);
const GRACE: Duration = Duration::from_secs(5);

/// A browser with one page, until it is dropped.
#[derive(Debug)]
pub struct Browser {
    child: Child,
    commands: ChildStdin,
    messages: Receiver<Value>,
    session: String,
    number: u64,
    complaints: Vec<String>,
    patience: Duration,
}

impl Browser {
    /// Starts the browser of this machine in `host`, if it has one. It keeps its files in `folder`, and
    /// gives up on what takes longer than `patience`. It ends with the calling thread.
    ///
    /// # Errors
    ///
    /// It does not start, or does not answer.
    pub fn start(
        host: &Netns,
        folder: &Path,
        patience: Duration,
    ) -> Result<Option<Self>, LabError> {
        let Some(name) = NAMES.into_iter().find(|name| is_installed(name)) else {
            return Ok(None);
        };
        let mut command = host.command("sh");
        command.args(["-c", PLUMBING, "sh", name]).args(FLAGS);
        command.arg(format!("--user-data-dir={}", folder.display())).arg("about:blank");
        command.env("HOME", folder).env_remove("DISPLAY").env_remove("WAYLAND_DISPLAY");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|e| LabError::io("starting the browser", e))?;
        let (Some(commands), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(LabError::io("starting the browser", io::ErrorKind::BrokenPipe.into()));
        };
        let (tell, messages) = channel();
        let read = move || {
            let messages = messages_of(BufReader::new(answers));
            for message in messages {
                if tell.send(message).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new()
            .name("browser".into())
            .spawn(read)
            .map_err(|e| LabError::io("starting a thread", e))?;
        let mut browser = Self {
            child,
            commands,
            messages,
            session: String::new(),
            number: 0,
            complaints: Vec::new(),
            patience,
        };
        browser.attach()?;
        Ok(Some(browser))
    }

    fn attach(&mut self) -> Result<(), LabError> {
        let target = self.call("Target.createTarget", &json!({ "url": "about:blank" }))?;
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let session = self.call("Target.attachToTarget", &attach)?;
        self.session = session["sessionId"].as_str().unwrap_or_default().to_owned();
        for domain in ["Page", "Runtime", "Log"] {
            self.call(&format!("{domain}.enable"), &json!({}))?;
        }
        Ok(())
    }

    /// Opens a page, and waits until it is there.
    ///
    /// # Errors
    ///
    /// It cannot be loaded.
    pub fn open(&mut self, url: &str) -> Result<(), LabError> {
        let answer = self.call("Page.navigate", &json!({ "url": url }))?;
        if let Some(why) = answer["errorText"].as_str() {
            return Err(LabError::Answer { who: "the browser", what: why.to_owned() });
        }
        self.wait_for("document.readyState === 'complete'").map(drop)
    }

    /// What a JavaScript expression is in the page.
    ///
    /// # Errors
    ///
    /// It throws.
    pub fn evaluate(&mut self, expression: &str) -> Result<Value, LabError> {
        let how = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let mut answer = self.call("Runtime.evaluate", &how)?;
        match answer.get("exceptionDetails") {
            Some(details) => {
                let what = format!("`{expression}`: {details}");
                Err(LabError::Answer { who: "the browser", what })
            }
            None => Ok(answer["result"]["value"].take()),
        }
    }

    /// Waits until a JavaScript expression is true of the page, and says what it is then.
    ///
    /// # Errors
    ///
    /// It throws, or does not become true in time.
    pub fn wait_for(&mut self, expression: &str) -> Result<Value, LabError> {
        wait_for(self.patience, format!("`{expression}` in the page"), || {
            let value = self.evaluate(expression)?;
            Ok(Some(value).filter(|value| !matches!(value, Value::Null | Value::Bool(false))))
        })
    }

    /// Presses and releases a key, by its name in `KeyboardEvent.key`, as a user would.
    ///
    /// # Errors
    ///
    /// The browser is gone.
    pub fn press(&mut self, key: &str, code: u32) -> Result<(), LabError> {
        for kind in ["rawKeyDown", "keyUp"] {
            let event = json!({
                "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code,
            });
            self.call("Input.dispatchKeyEvent", &event)?;
        }
        Ok(())
    }

    /// Exceptions, errors and violations of the page's security policy so far.
    pub fn complaints(&self) -> &[String] {
        &self.complaints
    }

    fn call(&mut self, method: &str, parameters: &Value) -> Result<Value, LabError> {
        self.number += 1;
        let mut command = json!({ "id": self.number, "method": method, "params": parameters });
        if !self.session.is_empty() {
            command["sessionId"] = self.session.as_str().into();
        }
        let mut bytes = command.to_string().into_bytes();
        bytes.push(0);
        self.commands
            .write_all(&bytes)
            .map_err(|e| LabError::io(format!("telling the browser {method}"), e))?;
        let deadline = Instant::now() + self.patience;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let mut message = match self.messages.recv_timeout(left) {
                Ok(message) => message,
                Err(RecvTimeoutError::Timeout) => return Err(LabError::TooLong(method.to_owned())),
                Err(RecvTimeoutError::Disconnected) => {
                    let gone = io::ErrorKind::UnexpectedEof.into();
                    return Err(LabError::io(format!("the browser's answer to {method}"), gone));
                }
            };
            if message["id"] == self.number {
                return match message.get("error") {
                    Some(error) => {
                        let what = format!("{method}: {error}");
                        Err(LabError::Answer { who: "the browser", what })
                    }
                    None => Ok(message["result"].take()),
                };
            }
            self.note(&message);
        }
    }

    fn note(&mut self, message: &Value) {
        let parameters = &message["params"];
        match message["method"].as_str() {
            Some("Runtime.exceptionThrown") => {
                self.complaints.push(parameters["exceptionDetails"].to_string());
            }
            Some("Log.entryAdded") if parameters["entry"]["level"] == "error" => {
                self.complaints.push(parameters["entry"].to_string());
            }
            _ => {}
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        self.session.clear();
        self.patience = GRACE;
        // It says goodbye by ending.
        let _ = self.call("Browser.close", &json!({}));
        let deadline = Instant::now() + GRACE;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            thread::sleep(TICK);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn is_installed(name: &str) -> bool {
    let mut command = Command::new(name);
    command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Messages end with a byte of zero.
fn messages_of(mut from: impl BufRead) -> impl Iterator<Item = Value> {
    std::iter::from_fn(move || {
        let mut bytes = Vec::new();
        match from.read_until(0, &mut bytes) {
            Ok(n) if n > 0 => Some(bytes),
            _ => None,
        }
    })
    .filter_map(|bytes| serde_json::from_slice(bytes.strip_suffix(&[0]).unwrap_or(&bytes)).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_cut_at_zeros_and_nonsense_is_left_out() {
        let bytes: &[u8] = b"{\"id\":1}\0nonsense\0{\"id\":2}\0{\"id\"";
        let ids: Vec<_> = messages_of(bytes).map(|m| m["id"].as_u64()).collect();
        assert_eq!(ids, [Some(1), Some(2)]);
    }
}
