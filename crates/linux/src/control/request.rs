//! What can be asked of a running process, and how that is written.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The longest request, without the end of its line.
pub(super) const LINE_MAX: usize = 4096;
/// The longest name of a base.
const NAME_MAX: usize = 64;
/// The longest name that an interface can have (`IFNAMSIZ`).
const INTERFACE_MAX: usize = 15;
/// How far ahead a move can be foreseen. A base that was told of one holds a copy of the state for
/// some seconds only (MOB-41), so more would be of no use.
pub const IN_MAX: Duration = Duration::from_secs(60);

/// What is asked of a running process.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// What it is doing.
    Status {},
    /// A mobile shall move its connections to another base, now.
    Handoff {
        /// The base's name in the mobile's configuration.
        to: String,
    },
    /// Something is known of the link.
    Link(Link),
}

/// What is known of the link (MHP-15, MOB-39).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Link {
    /// The mobile will soon move to another base, which can be prepared for it.
    Imminent {
        /// The base's name in the mobile's configuration.
        to: String,
        /// In how many milliseconds; [`IN_MAX`] at most.
        in_ms: u64,
    },
    /// The link carries nothing.
    Down {
        /// That of this interface only.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        interface: Option<String>,
    },
    /// The link carries packets again.
    Up {
        /// That of this interface only.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        interface: Option<String>,
    },
}

impl Request {
    /// Reads a line.
    pub(super) fn parse(line: &[u8]) -> Result<Self, String> {
        if line.len() > LINE_MAX {
            return Err(format!("the request is longer than {LINE_MAX} bytes"));
        }
        let request: Self = serde_json::from_slice(line)
            .map_err(|e| format!("the request is not understood: {e}"))?;
        request.check()?;
        Ok(request)
    }

    /// Its line, with the end.
    pub(super) fn to_line(&self) -> serde_json::Result<Vec<u8>> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        Ok(line)
    }

    /// What the types cannot say.
    fn check(&self) -> Result<(), String> {
        match self {
            Self::Status {} => Ok(()),
            Self::Handoff { to } => check_name("base", to, NAME_MAX),
            Self::Link(Link::Imminent { to, in_ms }) => {
                let max = IN_MAX.as_millis();
                if u128::from(*in_ms) > max {
                    return Err(format!("`in_ms` is {in_ms}, and {max} at most is of any use"));
                }
                check_name("base", to, NAME_MAX)
            }
            Self::Link(Link::Down { interface } | Link::Up { interface }) => match interface {
                Some(name) => check_name("interface", name, INTERFACE_MAX),
                None => Ok(()),
            },
        }
    }
}

fn check_name(what: &str, name: &str, max: usize) -> Result<(), String> {
    if name.is_empty() || name.len() > max || name.contains(char::is_control) {
        return Err(format!("the name of {what} is not from 1 to {max} printable bytes"));
    }
    Ok(())
}

/// What a process answers to a request that is no [`Request::Status`] and that it accepts.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reply {
    /// The number of the handoff that was begun; [`HandoffReport`](super::HandoffReport) tells how
    /// it goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handoff: Option<u64>,
}

/// What a line of an answer says: a value, or why there is none.
pub(crate) type Answer = Result<Value, String>;

/// An answer as it is written.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Line<T> {
    /// The request was accepted.
    Ok(T),
    /// It was not, for this reason.
    Error(String),
}

/// Says that no base has this name, and which names there are.
pub(crate) fn unknown_base<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    match known.as_slice() {
        [] => format!("no base is called `{name}`: the configuration has no [[bases]]"),
        names => format!("no base is called `{name}`; there are {}", names.join(", ")),
    }
}
