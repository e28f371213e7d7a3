//! Helpers in the path of other people's TCP, as machines: packets go in, packets come out.
//!
//! An [`Agent`] sits between a fixed side, where servers are, and a mobile side, where the radio
//! is. It reads TCP headers, keeps copies of packets and makes small packets of its own; it never
//! sees a socket. What it does not understand it lets pass as it came: other protocols, encrypted
//! payload, fragments, connections whose beginning it has missed as far as it cannot help them.

#![no_std]

extern crate alloc;

mod any;
mod backlog;
pub mod cache;
pub mod edge;
pub mod link;
mod lru;
pub mod m_tcp;
pub mod obtcp;
mod packet;
mod progress;
mod rtt;
pub mod snoop;
pub mod table;
pub mod unsplit;

pub use any::AnyAgent;
pub use packet::{Connection, Output, Packet, Queue, Side, Tcp};

use core::net::IpAddr;

use lasthop_units::{LinkEvent, Time};
use lasthop_wire::agent::Message;

/// A helper in the path.
pub trait Agent<P: Packet> {
    /// A packet came from `from`. It is handed on, kept back or dropped: see
    /// [`poll_output`](Self::poll_output).
    fn handle_packet(&mut self, now: Time, from: Side, packet: P);

    /// Another agent, or a mobile's link, sent a message.
    fn handle_message(&mut self, _now: Time, _from: Side, _message: &Message) {}

    /// The hop's state changed.
    fn handle_link_event(&mut self, _now: Time, _event: LinkEvent) {}

    /// Whether [`handle_queue`](Self::handle_queue) is to be called before each packet that is about
    /// to go over the hop: one from the fixed side at a base, one from the mobile's TCP at a mobile.
    fn watches_queue(&self) -> bool {
        false
    }

    /// Whether the queue in front of the hop is nearly full: what is lost there is congestion, which
    /// is not to be hidden (SNP-7).
    fn handle_queue(&mut self, _nearly_full: bool) {}

    /// A mobile has gone to another base: what is kept for it is dropped (SNP-11).
    fn remove_mobile(&mut self, _mobile: IpAddr) {}

    /// The next thing to send.
    fn poll_output(&mut self) -> Option<Output<P>>;

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called.
    fn next_timeout(&self) -> Option<Time> {
        None
    }

    /// The time asked for has come.
    fn handle_timeout(&mut self, _now: Time) {}
}
