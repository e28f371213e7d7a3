//! The control socket: whoever connects says in one line of JSON what is wanted, is answered by
//! another, and goodbye.
//!
//! | line | what it does |
//! | --- | --- |
//! | `{"status":{}}` | answers with a [`Report`] |
//! | `{"status":{"past":true}}` | and with what the process has carried in the last two minutes |
//! | `{"handoff":{"to":"b2"}}` | a mobile begins to move to another base; the answer is a [`Reply`] |
//! | `{"link":{"imminent":{"to":"b2","in_ms":300}}}` | a move is foreseen |
//! | `{"link":{"down":{"interface":"wlan0"}}}` | the link, or one interface's, carries nothing |
//! | `{"link":{"up":{}}}` | it does again |
//! | `{"link":{"complete":{}}}` | packets find the mobile again after a move |
//! | `{"link":{"quality":{"dbm":-71}}}` | how strong the radio's signal is |
//! | `{"priority":{"of":{"program":"curl"},"priority":3}}` | what matters how much |
//! | `{"policy":{"of":{"port":22},"policy":"only dish"}}` | which of a mobile's links carry what |
//! | `{"drain":{}}` | a base has its mobiles go to other bases; with `"undo":true` no longer |
//! | `{"reload":{}}` | a base reads its configuration again; the answer is a [`Reply`] |
//!
//! The answer is `{"ok":...}`, or `{"error":"..."}` with a text for people.

mod client;
mod report;
mod request;
mod server;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

pub use self::client::{RequestError, query, query_with_past, request};
pub use self::report::{
    AgentReport, AssociationReport, BaseReport, ConnectionReport, Counters, HandoffReport,
    HandoffState, Handoffs, InterfaceReport, MemoryReport, PacketReport, PastReport, PathReport,
    PeerReport, PolicyReport, PriorityReport, Report, TransitReport, TunReport, UdpReport,
};
pub use self::request::{Answer, unknown_base};
pub use self::request::{
    Changes, Drained, IN_MAX, Link, PRIORITY_MAX, Reloaded, Reply, Request, Target,
};
pub use self::server::Control;

/// Where services have their sockets.
const SERVICES: &str = "/run/lasthop";

/// Where the socket of `role` is served when nobody says.
pub fn default_path(role: &str) -> PathBuf {
    let dir = match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(dir) if !dir.is_empty() => PathBuf::from(dir).join("lasthop"),
        _ => PathBuf::from(SERVICES),
    };
    dir.join(format!("{role}.sock"))
}

/// Where the process of `role` is queried by default: in the [default place](default_path), or
/// where a service has its socket if only that is there. A user who logs in, root too, has a runtime
/// directory of his own, which services have not.
pub fn known_path(role: &str) -> PathBuf {
    let own = default_path(role);
    let service = Path::new(SERVICES).join(format!("{role}.sock"));
    if !own.exists() && service.exists() { service } else { own }
}

/// The control socket cannot be served.
#[derive(Debug, Error)]
#[error("cannot serve the control socket {}: {source}", path.display())]
pub struct ControlError {
    /// Its path.
    path: PathBuf,
    /// The kernel's error.
    source: io::Error,
}

/// Serves `path`, or the default place of `role` if nobody chose one; there a socket that cannot be
/// made is no reason to stop.
pub fn open(path: Option<&Path>, role: &str) -> Result<Option<Control>, ControlError> {
    match path {
        Some(path) => Control::bind(path)
            .map(Some)
            .map_err(|source| ControlError { path: path.to_owned(), source }),
        None => {
            let path = default_path(role);
            Ok(Control::bind(&path)
                .inspect_err(|error| {
                    tracing::warn!(path = %path.display(), %error, "no control socket");
                })
                .ok())
        }
    }
}
