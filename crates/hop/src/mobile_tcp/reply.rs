//! Short answers.

use lasthop_wire::mobile_tcp::{Control, DataHeader};

/// A packet that answers another one at once and belongs to no connection that is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reply {
    Data(DataHeader),
    Control(Control),
    /// With the session's code.
    Refusal(Control, u64),
}
