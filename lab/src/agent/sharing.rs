//! Two downloads that nobody splits, whose windows an agent divides by priorities.

use std::path::Path as FilePath;
use std::thread;
use std::time::{Duration, Instant};

use lasthop_control as control;

use super::helper::Helper;
use super::path::{Path, Settings};
use crate::arrivals::Watched;
use crate::client::{Client, Stop, Via};
use crate::error::LabError;
use crate::http::Server;
use crate::sharing::{self, Shared, Times};
use crate::topology::Family;

/// More than any measurement moves.
const ENDLESS: u64 = 1 << 40;
const TICK: Duration = Duration::from_millis(20);
/// How long a start, or the wait for a connection, may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Two downloads across `settings` with `lasthop agent ARGS` at the bridge in front of the mobile, or
/// at the base if there is none, and what they have by each pair of priorities; true if every byte was
/// right.
///
/// # Errors
///
/// The network could not be built, a download broke, or the command failed.
pub fn measure(
    settings: &Settings,
    args: &[&str],
    steps: &[[u32; 2]],
    times: Times,
    program: &FilePath,
) -> Result<(Vec<Shared>, bool), LabError> {
    let path = Path::start(settings)?;
    let host = path.behind.as_ref().unwrap_or(&path.base);
    let mut helper = Helper::start(host, program, args, PATIENCE)?;
    let content = settings.seed.child("content");
    let server = Server::start(&path.fixed, path.server_address(Family::V4), content)?;
    let client = Client::new(&path.mobile, Via::Direct, server.address());
    let flows = [Watched::default(), Watched::default()];
    let stop = Stop::default();
    let rows = thread::scope(|scope| {
        let download = |flow: Watched| {
            let (client, stop) = (client.clone(), stop.clone());
            scope.spawn(move || client.download(ENDLESS, &flow, &stop, PATIENCE))
        };
        // One after the other, so that it is known which connection is whose.
        let first = download(flows[0].clone());
        let begun = keys(&helper, 1);
        let second = download(flows[1].clone());
        let rows = begun.and_then(|_| keys(&helper, 2)).and_then(|keys| {
            sharing::watch([&flows[0], &flows[1]], steps, times, |step| {
                for (key, priority) in keys.iter().zip(step) {
                    let socket = helper.control();
                    sharing::set_priority(program, &socket, &key.to_string(), priority)?;
                }
                Ok(())
            })
        });
        stop.set();
        for download in [first, second] {
            match download.join() {
                Ok(result) => result?,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        rows
    })?;
    helper.check()?;
    let right = flows.iter().all(|flow| flow.lock().is_prefix_of(content));
    Ok((rows, right))
}

/// The numbers of the agent's connections, the oldest first, once there are so many.
fn keys(helper: &Helper, count: usize) -> Result<Vec<u64>, LabError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let report =
            control::query(&helper.control()).map_err(|e| LabError::io("asking an agent", e))?;
        let mut keys: Vec<u64> = report.connections.iter().map(|c| c.key).collect();
        keys.sort_unstable();
        if keys.len() >= count {
            return Ok(keys);
        }
        if Instant::now() >= deadline {
            return Err(LabError::TooLong(format!("{count} connections at the agent")));
        }
        thread::sleep(TICK);
    }
}
