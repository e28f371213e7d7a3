//! What can be asked of a running process, and how that is written.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The longest request, without the end of its line.
pub(super) const LINE_MAX: usize = 4096;
/// The longest name of a base.
const NAME_MAX: usize = 64;
/// The longest policy, with a link's name.
const POLICY_MAX: usize = 255;
/// The longest name that an interface can have (`IFNAMSIZ`).
const INTERFACE_MAX: usize = 15;
/// How far ahead a move can be foreseen. A base that was told of one holds a copy of the state for
/// some seconds only (MOB-41), so more would be of no use.
pub const IN_MAX: Duration = Duration::from_secs(60);
/// The longest name that the kernel keeps of a program's file.
const PROGRAM_MAX: usize = 255;
/// The highest priority. Beyond it shares of the lowest would be less than a packet.
pub const PRIORITY_MAX: u32 = 1000;

/// What is asked of a running process.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// What it is doing.
    Status {
        /// And what it has carried of late ([`Report::past`](super::Report::past)).
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        past: bool,
    },
    /// A mobile shall move its connections to another base, now.
    Handoff {
        /// The base's name in the mobile's configuration.
        to: String,
    },
    /// Something is known of the link.
    Link(Link),
    /// Some connections matter more, or less, than others (UFB-1). A mobile and an agent take it.
    Priority {
        /// Which.
        of: Target,
        /// Relative to the others', from 1 to [`PRIORITY_MAX`]; absent: what the configuration says.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        priority: Option<u32>,
    },
    /// These links shall carry some connections. A mobile takes it.
    Policy {
        /// Which.
        of: Target,
        /// A policy as the configuration has it; absent: what the configuration says.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        policy: Option<String>,
    },
    /// A base shall read its configuration again, for the mobiles that it serves.
    Reload {},
    /// A base shall have its mobiles go to other bases.
    Drain {
        /// No longer.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        undo: bool,
    },
}

/// Which connections are meant.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Target {
    /// Those of a program, by its name, at this moment and later.
    Program(String),
    /// The one with this [`key`](super::ConnectionReport::key).
    Connection(u64),
    /// Those to this port of fixed hosts, at this moment and later.
    Port(u16),
    /// Those to this fixed host, at this moment and later.
    Address(IpAddr),
}

impl Target {
    /// What the types cannot say.
    fn check(&self) -> Result<(), String> {
        match self {
            Self::Program(name) => check_name("program", name, PROGRAM_MAX),
            Self::Connection(_) | Self::Port(_) | Self::Address(_) => Ok(()),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Program(name) => write!(f, "program {name}"),
            Self::Connection(key) => write!(f, "connection {key}"),
            Self::Port(port) => write!(f, "port {port}"),
            Self::Address(address) => address.fmt(f),
        }
    }
}

/// What is known of the link (MHP-15, MOB-39).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Link {
    /// The link will soon fall silent, or the mobile will move to another base.
    Imminent {
        /// The name in the mobile's configuration of the base that it will move to, which can be
        /// prepared for it. Absent: nothing is known but that the link will fall silent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to: Option<String>,
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
    /// The link leads to another base than before.
    Base {
        /// Which link: that of this interface.
        interface: String,
        /// The base, as the mobile's configuration names it.
        to: String,
    },
    /// Packets for the mobile find it again, after a move (LLT-5).
    Complete {},
    /// What a radio says of its signal, for the prediction of disconnections.
    Quality {
        /// Which radio's; absent: the one that there is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        interface: Option<String>,
        /// The signal's level in dBm.
        dbm: i16,
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
            Self::Status { .. } | Self::Reload {} | Self::Drain { .. } => Ok(()),
            Self::Handoff { to } => check_name("base", to, NAME_MAX),
            Self::Link(Link::Imminent { to, in_ms }) => {
                let max = IN_MAX.as_millis();
                if u128::from(*in_ms) > max {
                    return Err(format!("`in_ms` is {in_ms}, and {max} at most is of any use"));
                }
                to.as_deref().map_or(Ok(()), |to| check_name("base", to, NAME_MAX))
            }
            Self::Link(
                Link::Down { interface } | Link::Up { interface } | Link::Quality { interface, .. },
            ) => match interface {
                Some(name) => check_name("interface", name, INTERFACE_MAX),
                None => Ok(()),
            },
            Self::Link(Link::Base { interface, to }) => {
                check_name("interface", interface, INTERFACE_MAX)?;
                check_name("base", to, NAME_MAX)
            }
            Self::Link(Link::Complete {}) => Ok(()),
            Self::Priority { of, priority } => {
                if priority.is_some_and(|n| !(1..=PRIORITY_MAX).contains(&n)) {
                    return Err(format!("a priority is a number from 1 to {PRIORITY_MAX}"));
                }
                of.check()
            }
            Self::Policy { of, policy } => {
                let policy = policy.as_deref();
                policy.map_or(Ok(()), |policy| check_name("policy", policy, POLICY_MAX))?;
                of.check()
            }
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
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reply {
    /// The number of the handoff that was begun; [`HandoffReport`](super::HandoffReport) tells how
    /// it goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handoff: Option<u64>,
    /// What came of reading the configuration again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reload: Option<Reloaded>,
    /// Whether a base is being emptied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<Drained>,
}

/// How a base is that was asked to empty itself.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Drained {
    /// Its mobiles have been told to leave.
    pub draining: bool,
}

/// What came of reading a base's configuration again.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reloaded {
    /// Mobiles that are served from now on, and were not.
    pub added: u64,
    /// Mobiles that were served, and are not any more.
    pub removed: u64,
    /// Other bases.
    #[serde(default, skip_serializing_if = "Changes::is_none")]
    pub bases: Changes,
    /// Addresses of mobiles, and networks behind them.
    #[serde(default, skip_serializing_if = "Changes::is_none")]
    pub addresses: Changes,
    /// Keys of tickets.
    #[serde(default, skip_serializing_if = "Changes::is_none")]
    pub keys: Changes,
    /// Settings that differ from those that the base runs with, and that need a restart.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub restart: Vec<String>,
}

/// How many of a kind are new, gone, or known and not as before.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Changes {
    /// New ones.
    pub added: u64,
    /// Those that are gone.
    pub removed: u64,
    /// Those that are elsewhere, or called otherwise.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub changed: u64,
}

impl Changes {
    /// Whether all is as before.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { added, removed, changed } = self;
        write!(f, "{added} added, {removed} removed")?;
        if *changed > 0 {
            write!(f, ", {changed} changed")?;
        }
        Ok(())
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// What a line of an answer says: a value, or why there is none.
pub type Answer = Result<Value, String>;

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
pub fn unknown_base<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    match known.as_slice() {
        [] => format!("no base is called `{name}`: the configuration has no [[bases]]"),
        names => format!("no base is called `{name}`; there are {}", names.join(", ")),
    }
}
