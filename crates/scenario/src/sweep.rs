//! Sweeps: paths of a scenario and the values that they take, one point for each combination.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest, Sha256};

use super::file::{AROUND, TOP};
use super::problem::suggest;
use super::quantity::{EXPECTED, Quantity};
use super::tree::{Entry, Node, Span, Table, Value};

/// The most points of one sweep.
const MOST_POINTS: usize = 100_000;

/// What identifies a point wherever it is described: the first 128 bits of the SHA-256 of its
/// canonical text and of the traces that it names.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PointHash([u8; 16]);

impl PointHash {
    pub(crate) fn of(hash: Sha256) -> Self {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hash.finalize()[..16]);
        Self(bytes)
    }
}

impl fmt::Display for PointHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Serialize for PointHash {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PointHash {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        let number = (text.len() == 32).then(|| u128::from_str_radix(&text, 16).ok()).flatten();
        let wrong = || de::Error::custom(format!("`{text}` is not 32 hexadecimal digits"));
        number.map(|n| Self(n.to_be_bytes())).ok_or_else(wrong)
    }
}

/// A point before it is checked.
pub(crate) struct Draft {
    pub(crate) tree: Node,
    pub(crate) parameters: Vec<(String, String)>,
}

/// What is wrong with a sweep.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) place: Span,
    pub(crate) key: String,
    pub(crate) message: String,
    pub(crate) remedy: Option<String>,
}

impl Fault {
    fn new(key: &str, place: &Span, message: impl Into<String>) -> Self {
        Self { place: place.clone(), key: key.to_string(), message: message.into(), remedy: None }
    }

    fn try_this(self, remedy: impl Into<String>) -> Self {
        Self { remedy: Some(remedy.into()), ..self }
    }
}

/// One dimension of a sweep.
struct Axis {
    items: Vec<Item>,
}

/// One place on an axis: what it sets, and how it is told.
struct Item {
    parameters: Vec<(String, String)>,
    settings: Vec<Setting>,
}

struct Setting {
    path: String,
    key_place: Span,
    value: Node,
}

/// The points of `sweep` over `base`, the last axis fastest.
///
/// # Errors
///
/// Everything that is wrong with the sweep itself; not with the values that it sets.
pub(crate) fn points(base: &Node, sweep: Option<&Node>) -> Result<Vec<Draft>, Vec<Fault>> {
    let Some(sweep) = sweep else {
        return Ok(vec![Draft { tree: base.clone(), parameters: Vec::new() }]);
    };
    let Some(table) = sweep.as_table() else {
        let fault = Fault::new("sweep", &sweep.place, "is no table");
        return Err(vec![fault.try_this("write `[sweep]`, and paths with their values below it")]);
    };
    let mut faults = Vec::new();
    let mut axes = Vec::new();
    collect(table, "", &mut axes, &mut faults);
    let count = axes
        .iter()
        .try_fold(1usize, |n, axis| n.checked_mul(axis.items.len()).filter(|n| *n <= MOST_POINTS));
    if count.is_none() {
        let message = format!("has more than {MOST_POINTS} points");
        faults.push(Fault::new("sweep", &sweep.place, message));
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    let mut drafts = vec![Draft { tree: base.clone(), parameters: Vec::new() }];
    for axis in &axes {
        let mut next = Vec::with_capacity(drafts.len() * axis.items.len());
        for draft in &drafts {
            for item in &axis.items {
                match apply(draft, item) {
                    Ok(point) => next.push(point),
                    Err(fault) => return Err(vec![fault]),
                }
            }
        }
        drafts = next;
    }
    Ok(drafts)
}

fn apply(draft: &Draft, item: &Item) -> Result<Draft, Fault> {
    let mut tree = draft.tree.clone();
    for setting in &item.settings {
        let path: Vec<&str> = setting.path.split('.').collect();
        tree.set(&path, &setting.key_place, setting.value.clone()).map_err(|end| {
            let message = format!("leads nowhere: `{end}` is not a table with keys below it");
            Fault::new(&format!("sweep.{}", setting.path), &setting.key_place, message)
        })?;
    }
    let parameters = draft.parameters.iter().chain(&item.parameters).cloned().collect();
    Ok(Draft { tree, parameters })
}

/// Finds the axes of a table, whose keys may be paths in quotes or tables below tables.
fn collect(table: &Table, above: &str, axes: &mut Vec<Axis>, faults: &mut Vec<Fault>) {
    for entry in table.entries() {
        let path = match above {
            "" => entry.key.clone(),
            _ => format!("{above}.{}", entry.key),
        };
        let key = format!("sweep.{path}");
        let root = path.split('.').next().unwrap_or_default();
        if AROUND.contains(&root) {
            faults.push(Fault::new(&key, &entry.key_place, "cannot be swept"));
            continue;
        }
        let axis = match &entry.node.value {
            Value::List(items) if !TOP.contains(&root) => named(&path, items, entry),
            Value::List(items) => list(&path, items, entry),
            Value::Table(range) if is_range(range) => {
                known(&path, entry).and_then(|()| along(&path, range, entry))
            }
            Value::Table(below) => {
                if below.entries().is_empty() {
                    faults.push(Fault::new(&key, &entry.key_place, "has no values"));
                }
                collect(below, &path, axes, faults);
                continue;
            }
            _ => Err(Fault::new(&key, &entry.node.place, "is a single value").try_this(
                "write a list `[...]` or a range such as `{ from = 1, to = 5, step = 1 }`",
            )),
        };
        match axis {
            Ok(axis) => axes.push(axis),
            Err(fault) => faults.push(fault),
        }
    }
}

fn known(path: &str, entry: &Entry) -> Result<(), Fault> {
    let root = path.split('.').next().unwrap_or_default();
    let sweepable = TOP.iter().copied().filter(|key| !AROUND.contains(key));
    if TOP.contains(&root) {
        return Ok(());
    }
    let message = format!("there is no key `{root}` in a scenario");
    let fault = Fault::new(&format!("sweep.{path}"), &entry.key_place, message);
    Err(fault.try_this(suggest(root, sweepable)))
}

fn list(path: &str, items: &[Node], entry: &Entry) -> Result<Axis, Fault> {
    let item = |value: &Node| Item {
        parameters: vec![(path.to_string(), value.label())],
        settings: vec![Setting {
            path: path.to_string(),
            key_place: entry.key_place.clone(),
            value: value.clone(),
        }],
    };
    not_empty(path, items, entry)?;
    Ok(Axis { items: items.iter().map(item).collect() })
}

/// An axis with a name of its own sets several paths at once.
fn named(name: &str, items: &[Node], entry: &Entry) -> Result<Axis, Fault> {
    not_empty(name, items, entry)?;
    let one = |(i, node): (usize, &Node)| {
        let Some(table) = node.as_table() else {
            // Most likely not a name at all but a path with a slip in it.
            known(name, entry)?;
            return Err(Fault::new(&format!("sweep.{name}"), &node.place, "is no table"));
        };
        let label = match table.get("label").map(|e| e.node.label()) {
            Some(label) => label,
            None => i.to_string(),
        };
        let mut settings = Vec::new();
        flatten(table, "", &mut settings)?;
        Ok(Item { parameters: vec![(name.to_string(), label)], settings })
    };
    let items = items.iter().enumerate().map(one).collect::<Result<_, _>>()?;
    Ok(Axis { items })
}

fn flatten(table: &Table, above: &str, settings: &mut Vec<Setting>) -> Result<(), Fault> {
    for entry in table.entries() {
        let path = match above {
            "" => entry.key.clone(),
            _ => format!("{above}.{}", entry.key),
        };
        if path == "label" {
            continue;
        }
        known(&path, entry)?;
        match &entry.node.value {
            Value::Table(below) if below.entries().iter().all(|e| e.key != "uniform") => {
                flatten(below, &path, settings)?;
            }
            _ => settings.push(Setting {
                path,
                key_place: entry.key_place.clone(),
                value: entry.node.clone(),
            }),
        }
    }
    Ok(())
}

fn not_empty(path: &str, items: &[Node], entry: &Entry) -> Result<(), Fault> {
    if items.is_empty() {
        return Err(Fault::new(&format!("sweep.{path}"), &entry.node.place, "has no values"));
    }
    Ok(())
}

/// A range has both its ends, and says how to get from one to the other.
fn is_range(table: &Table) -> bool {
    ["step", "count", "log"].iter().any(|key| table.get(key).is_some())
        && table.entries().iter().all(|e| e.node.as_table().is_none())
}

/// `{ from, to, step }` or `{ from, to, count, log }`.
fn along(path: &str, range: &Table, entry: &Entry) -> Result<Axis, Fault> {
    let key = format!("sweep.{path}");
    let fault = |place: &Span, message: String| Fault::new(&key, place, message);
    let keys = ["from", "to", "step", "count", "log"];
    for e in range.entries() {
        if !keys.contains(&e.key.as_str()) {
            let message = format!("unknown key `{}` of a range", e.key);
            return Err(fault(&e.key_place, message).try_this(suggest(&e.key, keys)));
        }
    }
    let end = |name: &str| {
        let Some(e) = range.get(name) else {
            let message = format!("the range lacks `{name}`");
            return Err(fault(&entry.node.place, message));
        };
        let wrong = || fault(&e.node.place, format!("`{}` is not {EXPECTED}", e.node.label()));
        Quantity::read(&e.node).ok_or_else(wrong)
    };
    let alike = |a, b| {
        let wrong = || fault(&entry.node.place, "the range's values are not of one kind".into());
        Quantity::alike(a, b).ok_or_else(wrong)
    };
    let (from, to) = alike(end("from")?, end("to")?)?;
    let numbers = match (range.get("step"), range.get("count")) {
        (Some(_), None) => {
            let (step, unit) = alike(end("step")?, from)?;
            (steps(from.number, to.number, step.number), unit.unit)
        }
        (None, Some(count)) => {
            let log = range.get("log").is_some_and(|e| e.node.value == Value::Flag(true));
            let count = match count.node.value {
                Value::Integer(n) => {
                    usize::try_from(n).ok().filter(|n| (2..=MOST_POINTS).contains(n))
                }
                _ => None,
            };
            let place = &entry.node.place;
            let count = count.ok_or_else(|| fault(place, "`count` is not 2 or more".into()))?;
            if log && (from.number <= 0.0 || to.number <= 0.0) {
                let message = "a logarithmic range has both ends above zero".into();
                return Err(fault(place, message));
            }
            (Some(spaced(from.number, to.number, count, log)), from.unit)
        }
        _ => {
            let message = "the range has neither `step` nor `count`, or both".into();
            return Err(fault(&entry.node.place, message));
        }
    };
    let (Some(numbers), unit) = numbers else {
        let message = "the steps never lead from `from` to `to`, or are too many".into();
        return Err(fault(&entry.node.place, message));
    };
    let nodes: Vec<Node> = numbers
        .into_iter()
        .map(|number| Quantity { number, unit }.node(entry.node.place.clone()))
        .collect();
    list(path, &nodes, entry)
}

fn steps(from: f64, to: f64, step: f64) -> Option<Vec<f64>> {
    // The slack keeps the last value where fractions do not add up exactly.
    let count = libm::floor((to - from) / step + 1e-9);
    if !(0.0..MOST_POINTS as f64).contains(&count) {
        return None;
    }
    Some((0..=count as usize).map(|i| from + step * i as f64).collect())
}

fn spaced(from: f64, to: f64, count: usize, log: bool) -> Vec<f64> {
    let last = (count - 1) as f64;
    let at = |i: usize| {
        let share = i as f64 / last;
        match (i, log) {
            (0, _) => from,
            (i, _) if i == count - 1 => to,
            (_, false) => from + (to - from) * share,
            (_, true) => significant(from * libm::exp(libm::log(to / from) * share)),
        }
    };
    (0..count).map(at).collect()
}

/// Six significant digits are enough for a parameter, and are written the same way everywhere.
fn significant(x: f64) -> f64 {
    format!("{x:.5e}").parse().unwrap_or(x)
}
