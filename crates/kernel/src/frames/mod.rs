//! Payloads of Ethernet frames of one EtherType, many in one system call.

mod batch;
mod socket;

pub use batch::Batch;
pub use socket::Socket;
