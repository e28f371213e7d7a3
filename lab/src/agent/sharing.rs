//! Two downloads that nobody splits, whose windows an agent divides by priorities.

use std::path::Path as FilePath;
use std::time::Duration;

use super::helper::Helper;
use super::path::{Path, Settings};
use crate::client::{Client, Via};
use crate::error::LabError;
use crate::http;
use crate::sharing::{self, Shared, Times};
use crate::topology::Family;
use crate::transfer::Direction;

/// How long the agent's start may take.
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
    let server = http::start(&path.fixed, path.server_address(Family::V4), content)?;
    let client = Client::new(&path.mobile, Via::Direct, server.address());
    let (down, control) = (Direction::Download, helper.control());
    let shared = sharing::measure(&server, &client, down, &control, program, steps, times)?;
    helper.daemon.check()?;
    Ok(shared)
}
