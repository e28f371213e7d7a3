//! Asking a running process.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde::de::DeserializeOwned;
use thiserror::Error;

use super::report::Report;
use super::request::{Line, Reply, Request};

/// How long a process may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// No answer is longer: some kilobytes for each of thousands of connections.
const ANSWER_MAX: u64 = 64 << 20;

/// Why a request came to nothing.
#[derive(Debug, Error)]
pub enum RequestError {
    /// Nobody serves the socket, or it cannot be reached, or the answer does not come.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The process refused, and says why.
    #[error("{0}")]
    Refused(String),
    /// The answer is not understood; the process may be of another version.
    #[error("the answer is not understood: {0}")]
    Strange(#[from] serde_json::Error),
}

/// Asks the process that serves `path` for its picture.
///
/// # Errors
///
/// Nobody serves it, or the answer is not a report.
pub fn query(path: &Path) -> io::Result<Report> {
    ask(path, &Request::Status { past: false }).map_err(no_report)
}

/// The same, with what the process has carried in the last two minutes, if it knows.
///
/// # Errors
///
/// See [`query`].
pub fn query_with_past(path: &Path) -> io::Result<Report> {
    match ask(path, &Request::Status { past: true }) {
        // It is of a version that remembers nothing.
        Err(RequestError::Refused(_)) => query(path),
        report => report.map_err(no_report),
    }
}

fn no_report(error: RequestError) -> io::Error {
    match error {
        RequestError::Io(error) => error,
        other => io::Error::new(io::ErrorKind::InvalidData, other),
    }
}

/// Asks the process that serves `path` to do something: anything but [`Request::Status`], for which
/// there is [`query`].
///
/// # Errors
///
/// Nobody serves the socket; the process refuses and says why; or its answer is not understood.
pub fn request(path: &Path, request: &Request) -> Result<Reply, RequestError> {
    ask(path, request)
}

fn ask<T: DeserializeOwned>(path: &Path, request: &Request) -> Result<T, RequestError> {
    let stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut answers = BufReader::new(&stream);
    // One that is turned away is notified and cannot write any more.
    let written = (&stream).write_all(&request.to_line()?);
    let mut line = Vec::new();
    answers.by_ref().take(ANSWER_MAX).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        written?;
        let why = "the process ended the conversation without an answer";
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, why).into());
    }
    match serde_json::from_slice(&line)? {
        Line::Ok(value) => Ok(value),
        Line::Error(why) => Err(RequestError::Refused(why)),
    }
}
