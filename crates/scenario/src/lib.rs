//! Scenario files: what is simulated, over which ranges of parameters, and how often.
//!
//! A file is read into a tree whose values know their lines. A sweep puts values into copies of
//! that tree (its points), which are then sorted by their keys; a run draws the random ones, and
//! only then is a point read into a [`Scenario`], so that whatever is wrong is reported where the
//! file says it. `docs/scenarios.md` describes every key.

mod agents;
mod complaint;
mod draw;
mod engine;
mod file;
mod link_sets;
mod mobile;
mod mobile_tcp;
mod model;
mod ordered;
mod path;
mod problem;
mod quantity;
mod read;
mod resolve;
mod scheme;
mod sweep;
mod tcp;
#[cfg(test)]
mod tests;
mod topology;
mod traces;
mod tree;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lasthop_units::Seed;
use rayon::prelude::*;
use serde::Deserialize;
use sha2::{Digest, Sha256};

use complaint::Complaints;
use draw::Source;
use file::ScenarioFile;
use read::Kind;
use traces::Traces;
use tree::{Node, Table, Value};

pub use agents::AgentSettings;
pub use engine::{Engine, Outcome, Outputs, RunError};
pub use mobile::{AtcpSettings, MobileSettings};
pub use mobile_tcp::MobileTcpSettings;
pub use model::Node as ScenarioNode;
pub use model::{
    Capture, End, Flow, FlowTcp, Handoff, HandoffMode, Headers, Link, LinkIndex, LinkSet, Measure,
    Move, NodeIndex, NodeKind, Rwc, RwcChange, Scenario, Srp, SrpWindow, Traffic,
};
pub use ordered::Ordered;
pub use path::{PathHelp, Station};
pub use problem::{Problem, ScenarioError};
pub use scheme::Schemes;
pub use sweep::PointHash;
pub use tcp::{DelayedAck, MOST_BUFFER, MOST_HELD, Stack, TcpSettings};

/// No scenario is longer; a wrong path must not be read whole.
const MAX_LEN: u64 = 4 * 1024 * 1024;

/// More problems than this help nobody.
const MOST_PROBLEMS: usize = 50;

/// The most runs of one point.
const MOST_RUNS: i64 = 1_000_000;

/// A scenario file: its points, how many runs each has, and where their seeds begin.
#[derive(Debug)]
pub struct Study {
    path: PathBuf,
    text: String,
    name: String,
    runs: u64,
    seed: u64,
    points: Vec<Point>,
    traces: Traces,
}

/// One point of a sweep.
#[derive(Debug)]
pub struct Point {
    hash: PointHash,
    parameters: Vec<(String, String)>,
    tree: Node,
    /// The scenario itself, where no run draws anything.
    fixed: Option<Arc<Scenario>>,
}

impl Point {
    /// What this point is, whatever file describes it: the hash of its canonical text.
    pub const fn hash(&self) -> PointHash {
        self.hash
    }

    /// What the sweep sets here, in the sweep's order: paths and their values.
    pub fn parameters(&self) -> &[(String, String)] {
        &self.parameters
    }

    /// The parameters as `key=value`, with blanks between; `-` without a sweep.
    pub fn label(&self) -> String {
        let pairs: Vec<String> =
            self.parameters.iter().map(|(key, value)| format!("{key}={value}")).collect();
        if pairs.is_empty() { "-".to_string() } else { pairs.join(" ") }
    }

    /// The whole point as one line of JSON with sorted keys: what the hash is of.
    pub fn canonical(&self) -> String {
        let mut text = String::new();
        self.tree.canonical(&mut text);
        text
    }
}

impl Study {
    /// Reads a scenario file and checks every point of its sweep.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or describes no scenario: every problem with its line and key.
    pub fn load(path: &Path) -> Result<Self, ScenarioError> {
        let text =
            read(path).map_err(|source| ScenarioError::Read { path: path.to_owned(), source })?;
        Self::parse(path, &text)
    }

    /// Reads a scenario from its text. `path` is for messages, and its directory is where traces
    /// are looked for.
    ///
    /// # Errors
    ///
    /// As [`Study::load`].
    pub fn parse(path: &Path, text: &str) -> Result<Self, ScenarioError> {
        let invalid = |mut problems: Vec<Problem>| {
            problems.sort();
            problems.dedup();
            problems.truncate(MOST_PROBLEMS);
            ScenarioError::Invalid { path: path.to_owned(), problems }
        };
        let mut tree = tree::parse(text).map_err(|errors| {
            let problem = |(place, message)| Problem::at(text, &place, "", message);
            invalid(errors.into_iter().map(problem).collect())
        })?;
        let mut problems = Vec::new();
        let around = Around::take(&mut tree, text, &mut problems);
        let drafts = match sweep::points(&tree, around.sweep.as_ref()) {
            Ok(drafts) => drafts,
            Err(wrong) => {
                problems.extend(wrong.into_iter().map(|fault| Problem {
                    remedy: fault.remedy,
                    ..Problem::at(text, &fault.place, fault.key, fault.message)
                }));
                return Err(invalid(problems));
            }
        };
        let traces = Traces::beside(path);
        let checked: Vec<Result<Point, Vec<Problem>>> =
            drafts.into_par_iter().map(|draft| check(draft, text, &traces)).collect();
        let mut points = Vec::with_capacity(checked.len());
        let mut found = BTreeSet::new();
        for point in checked {
            match point {
                Ok(point) => points.push(point),
                Err(wrong) => found.extend(wrong),
            }
        }
        problems.extend(found);
        if !problems.is_empty() {
            return Err(invalid(problems));
        }
        let stem = || path.file_stem().map_or_else(String::new, |s| s.to_string_lossy().into());
        Ok(Self {
            path: path.to_owned(),
            text: text.to_string(),
            name: around.name.unwrap_or_else(stem),
            runs: around.runs,
            seed: around.seed,
            points,
            traces,
        })
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file's text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The scenario's name: what the file says, or the file's own name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many runs the file asks for at each point.
    pub const fn runs(&self) -> u64 {
        self.runs
    }

    /// The seed of each point's first run; the next runs have the numbers that follow.
    pub const fn seed(&self) -> u64 {
        self.seed
    }

    /// The points of the sweep: the cross product of its axes, the last axis fastest. One without a
    /// sweep.
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// What a run of a point draws from `seed`: the paths of its random values, and the values.
    pub fn drawn(&self, point: &Point, seed: Seed) -> Vec<(String, String)> {
        if point.fixed.is_some() {
            return Vec::new();
        }
        draw::resolve(&mut point.tree.clone(), &Source::Seed(seed)).unwrap_or_default()
    }

    /// What one run of a point simulates: its random values are drawn from `seed`.
    ///
    /// # Errors
    ///
    /// A trace that has gone since the file was checked, or a random value between ends that are
    /// each valid which is not.
    pub fn scenario(&self, point: &Point, seed: Seed) -> Result<Arc<Scenario>, ScenarioError> {
        if let Some(fixed) = &point.fixed {
            return Ok(Arc::clone(fixed));
        }
        build(&point.tree, &Source::Seed(seed), &self.text, &self.traces)
            .map(Arc::new)
            .map_err(|problems| ScenarioError::Invalid { path: self.path.clone(), problems })
    }
}

fn read(path: &Path) -> io::Result<String> {
    if fs::metadata(path)?.len() > MAX_LEN {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "too long for a scenario"));
    }
    fs::read_to_string(path)
}

/// What a file says around its scenario.
struct Around {
    name: Option<String>,
    runs: u64,
    seed: u64,
    sweep: Option<Node>,
}

impl Around {
    fn take(tree: &mut Node, text: &str, problems: &mut Vec<Problem>) -> Self {
        let top = tree.as_table_mut();
        let mut around = top
            .map(|top| top.take_if(|e| file::AROUND.contains(&e.key.as_str())))
            .unwrap_or_default();
        let mut wrong = |place: &tree::Span, key: &str, message: String| {
            problems.push(Problem::at(text, place, key, message));
        };
        let mut number = |around: &mut Table, key: &str, least: i64, most: i64| {
            let entry = around.remove(key)?;
            match entry.node.value {
                Value::Integer(n) if (least..=most).contains(&n) => u64::try_from(n).ok(),
                _ => {
                    let found = entry.node.label();
                    let message =
                        format!("found {found}, expected a whole number from {least} to {most}");
                    wrong(&entry.node.place, key, message);
                    None
                }
            }
        };
        let runs = number(&mut around, "runs", 1, MOST_RUNS).unwrap_or(1);
        let seed = number(&mut around, "seed", 0, i64::MAX - MOST_RUNS).unwrap_or(1);
        let mut words = |around: &mut Table, key: &str| {
            let entry = around.remove(key)?;
            match entry.node.value {
                Value::Text(text) => Some(text),
                _ => {
                    let message = format!("found {}, expected a text", entry.node.label());
                    wrong(&entry.node.place, key, message);
                    None
                }
            }
        };
        let name = words(&mut around, "name");
        words(&mut around, "about");
        Self { name, runs, seed, sweep: around.remove("sweep").map(|e| e.node) }
    }
}

/// Reads a point with its random values at every corner.
fn check(draft: sweep::Draft, text: &str, traces: &Traces) -> Result<Point, Vec<Problem>> {
    let sweep::Draft { tree: written, parameters } = draft;
    // A run is made from what the hash is of, so that no other order can change it.
    let mut tree = written.clone();
    tree.sort();
    let corners = draw::corners(&tree);
    let mut fixed = None;
    for corner in 0..corners.max(1) {
        let source = Source::Corner(corner);
        let scenario = build(&tree, &source, text, traces).map_err(|wrong| {
            // Of two links that make a loop, the one that the file has last is to blame.
            build(&written, &source, text, traces).err().unwrap_or(wrong)
        })?;
        if corners == 0 {
            fixed = Some(Arc::new(scenario));
        }
    }
    let mut canonical = String::new();
    tree.canonical(&mut canonical);
    let mut hash = Sha256::new();
    hash.update(&canonical);
    traces.digest(&tree, &mut hash);
    Ok(Point { hash: PointHash::of(hash), parameters, tree, fixed })
}

/// From a point's tree to what an engine runs.
fn build(
    point: &Node,
    source: &Source,
    text: &str,
    traces: &Traces,
) -> Result<Scenario, Vec<Problem>> {
    let mut tree = point.clone();
    if let Err(wrong) = draw::resolve(&mut tree, source) {
        let problem = |(place, message)| Problem::at(text, &place, point.path_at(&place), message);
        return Err(wrong.into_iter().map(problem).collect());
    }
    let drawn = tree.clone();
    file::normalise(&mut tree);
    let file = deserialize(&mut tree, text)?;
    resolve::resolve(&file, &mut |name| traces.text(name))
        .map_err(|complaints| place(complaints, &drawn, text))
}

fn place(complaints: Complaints, tree: &Node, text: &str) -> Vec<Problem> {
    let problem = |complaint: complaint::Complaint| {
        let path: Vec<&str> = complaint.path.iter().map(String::as_str).collect();
        let key = complaint.path.join(".");
        Problem {
            remedy: complaint.remedy,
            ..Problem::at(text, &tree.place_of(&path), key, complaint.message)
        }
    };
    complaints.into_list().into_iter().map(problem).collect()
}

/// Reads a tree. What cannot be read is taken out and the rest read again, so that one pass finds
/// all that is wrong.
fn deserialize(tree: &mut Node, text: &str) -> Result<ScenarioFile, Vec<Problem>> {
    let mut problems: Vec<Problem> = Vec::new();
    let mut gone: Vec<Vec<String>> = Vec::new();
    loop {
        let fault = match ScenarioFile::deserialize(&*tree) {
            Ok(file) if problems.is_empty() => return Ok(file),
            Ok(_) => return Err(problems),
            Err(fault) => fault,
        };
        let mut path = fault.path();
        let known_gap = match fault.kind {
            Kind::Missing(key) => {
                let mut missing = path.clone();
                missing.push(key.to_string());
                gone.contains(&missing)
            }
            _ => false,
        };
        if !known_gap {
            problems.push(problem_of(&fault, &path, tree, text));
        }
        take_out(tree, &mut path);
        if path.is_empty() || problems.len() >= MOST_PROBLEMS {
            return Err(problems);
        }
        gone.push(path);
    }
}

/// A fault as a problem of the file, in which the short forms are still short.
fn problem_of(fault: &read::Fault, path: &[String], tree: &Node, text: &str) -> Problem {
    let (message, mut remedy) = fault.words();
    let mut shown: Vec<&str> = path.iter().map(String::as_str).collect();
    let place = fault.place.clone().unwrap_or_else(|| tree.place_of(&shown));
    let more: &[&str] = match shown.as_slice() {
        ["link", _, "both", ..] => {
            shown.remove(2);
            &file::LINK
        }
        ["tcp", "all", ..] => {
            shown.remove(1);
            &file::TCP
        }
        ["node", _, "kind"] => {
            shown.pop();
            &[]
        }
        [_] => &file::AROUND,
        _ => &[],
    };
    if let Kind::UnknownKey { found, known } = &fault.kind {
        remedy = Some(problem::suggest(found, known.iter().copied().chain(more.iter().copied())));
    }
    Problem { remedy, ..Problem::at(text, &place, shown.join("."), message) }
}

/// Removes what stands at `path`, of a list the whole, with the tables that this empties. `path`
/// becomes that of what is gone.
fn take_out(tree: &mut Node, path: &mut Vec<String>) {
    let mut depth = 0;
    let mut node = &*tree;
    while let Some(key) = path.get(depth)
        && let Some(child) = node.as_table().and_then(|t| t.get(key))
    {
        node = &child.node;
        depth += 1;
    }
    path.truncate(depth);
    loop {
        let Some((last, above)) = path.split_last() else { return };
        let Some(table) = table_at(tree, above) else { return };
        table.remove(last);
        // An element without anything is told as such; what is inside one goes with it.
        if !table.entries().is_empty() || path.len() <= 3 {
            return;
        }
        path.pop();
    }
}

fn table_at<'a>(tree: &'a mut Node, path: &[String]) -> Option<&'a mut Table> {
    let inner = |node: &'a mut Node, key: &String| {
        node.as_table_mut()?.get_mut(key).map(|entry| &mut entry.node)
    };
    path.iter().try_fold(tree, inner)?.as_table_mut()
}
