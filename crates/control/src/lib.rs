//! What configures and controls running processes, whatever they are: settings, their files, the control
//! socket, signals of links, priorities; and how what they report is shown.

pub mod config;
pub mod grid;
pub mod keyed;
pub mod link_signals;
pub mod past;
pub mod priority;
pub mod settings;
mod socket;

pub use socket::{
    AgentReport, Answer, AssociationReport, BaseReport, Changes, ConnectionReport, Control,
    ControlError, Counters, Drained, HandoffReport, HandoffState, Handoffs, IN_MAX,
    InterfaceReport, Link, MemoryReport, PRIORITY_MAX, PacketReport, PastReport, PathReport,
    PeerReport, PolicyReport, PriorityReport, Reloaded, Reply, Report, Request, RequestError,
    Target, TransitReport, TunReport, UdpReport, default_path, known_path, open, query,
    query_with_past, request, unknown_base,
};
