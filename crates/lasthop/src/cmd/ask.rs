//! Requests to running processes.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use lasthop_control::config::listed;
use lasthop_control::{self as control, Reply, Report, Request, RequestError};

/// The socket of the mobile that is meant.
pub(super) fn mobile(control: Option<&Path>) -> PathBuf {
    control.map_or_else(|| control::known_path("mobile"), Path::to_owned)
}

/// The socket of the base that is meant.
pub(super) fn base(control: Option<&Path>) -> PathBuf {
    control.map_or_else(|| control::known_path("base"), Path::to_owned)
}

/// The process that was named, or the first of `roles` that answer on this host, `most` at most and
/// one at least: their sockets and their reports.
pub(super) fn find(
    named: Option<&Path>,
    roles: &[&str],
    most: usize,
) -> anyhow::Result<Vec<(PathBuf, Report)>> {
    let who = listed(roles, "or");
    if let Some(path) = named {
        let nobody = || format!("no {who} answers on {}", path.display());
        let report = control::query(path).with_context(nobody)?;
        return Ok(vec![(path.to_owned(), report)]);
    }
    let paths: Vec<PathBuf> = roles.iter().map(|role| control::known_path(role)).collect();
    let mut found = Vec::new();
    for path in &paths {
        match control::query(path) {
            Ok(report) => found.push((path.clone(), report)),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                return Err(error).with_context(|| format!("cannot ask on {}", path.display()));
            }
            Err(_) => {}
        }
        if found.len() == most {
            break;
        }
    }
    if found.is_empty() {
        let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
        let paths = listed(&paths, "or");
        bail!(
            "no {who} runs here: nobody answers on {paths} (--control PATH names another socket)"
        );
    }
    Ok(found)
}

/// Asks the process at `path`, which should be a `role`.
pub(super) fn ask(role: &str, path: &Path, request: &Request) -> anyhow::Result<Reply> {
    match control::request(path, request) {
        Err(RequestError::Refused(why)) => bail!(why),
        Err(RequestError::Io(error)) => {
            Err(error).with_context(|| format!("no {role} answers on {}", path.display()))
        }
        other => other.with_context(|| format!("asking on {}", path.display())),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixListener;
    use std::thread::{self, JoinHandle};

    use super::*;

    #[derive(clap::Parser)]
    struct Line<O: clap::Args> {
        #[command(flatten)]
        options: O,
    }

    /// What a subcommand is told by the words after its name.
    pub(crate) fn options<O: clap::Args>(words: &[&str]) -> Result<O, clap::Error> {
        let line = [&["lasthop"], words].concat();
        <Line<O> as clap::Parser>::try_parse_from(line).map(|line| line.options)
    }

    /// What a process is asked on its control socket by a subcommand that is told these words.
    pub(crate) fn asked_by<O: clap::Args>(
        name: &str,
        run: fn(&O) -> anyhow::Result<()>,
        words: &[&str],
    ) -> Vec<String> {
        let process = Scripted::new(name, &[r#"{"ok":{}}"#]);
        let path = process.path.to_str().unwrap().to_owned();
        run(&options(&[words, &["--control", &path]].concat()).unwrap()).unwrap();
        process.asked()
    }

    /// A process that answers each client with the next of its lines, and keeps what it was asked.
    pub(crate) struct Scripted {
        pub(crate) path: PathBuf,
        served: Option<JoinHandle<Vec<String>>>,
    }

    impl Scripted {
        pub(crate) fn new(name: &str, answers: &[&str]) -> Self {
            let path = std::env::temp_dir().join(format!("lasthop-{name}-{}", std::process::id()));
            let _ = std::fs::remove_file(&path);
            let listener = UnixListener::bind(&path).unwrap();
            let answers: Vec<String> = answers.iter().map(|a| (*a).to_owned()).collect();
            let serve = move || {
                let mut asked = Vec::new();
                for answer in answers {
                    let (stream, _) = listener.accept().unwrap();
                    let mut line = String::new();
                    BufReader::new(&stream).read_line(&mut line).unwrap();
                    asked.push(line.trim_end().to_owned());
                    writeln!(&stream, "{answer}").unwrap();
                }
                asked
            };
            Self { path, served: Some(thread::spawn(serve)) }
        }

        /// What it was asked, once it has answered everything.
        pub(crate) fn asked(mut self) -> Vec<String> {
            self.served.take().unwrap().join().unwrap()
        }
    }

    impl Drop for Scripted {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.path);
        }
    }

    #[test]
    fn a_refusal_is_said_in_the_process_s_own_words() {
        let process = Scripted::new("ask-refused", &[r#"{"error":"no base is called `b9`"}"#]);
        let request = Request::Handoff { to: "b9".to_owned() };
        let error = ask("mobile", &process.path, &request).unwrap_err();
        assert_eq!(format!("{error:#}"), "no base is called `b9`");
        assert_eq!(process.asked(), [r#"{"handoff":{"to":"b9"}}"#]);
    }

    #[test]
    fn where_nobody_answers_the_socket_is_named() {
        let path = Path::new("/nonexistent/lasthop.sock");
        let error = ask("mobile", path, &Request::Handoff { to: "b2".to_owned() }).unwrap_err();
        let said = format!("{error:#}");
        assert!(said.contains("no mobile answers on /nonexistent/lasthop.sock"), "{said}");
    }
}
