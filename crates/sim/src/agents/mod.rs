//! Nodes with helpers in them: routers that carry [agents](lasthop_agent) for the mobiles behind
//! them, and mobiles behind agents of their own.

mod linked;
mod packet;
mod router;

pub use linked::Linked;
pub use router::{AgentRouter, Help, Peers};
