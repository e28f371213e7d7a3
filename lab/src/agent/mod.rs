//! `lasthop agent` in the path of kernels that know nothing of it.
//!
//! [`path::Path`] is a server, one bridge or two, and a mobile on one subnet, with emulated links
//! between; [`helper::Helper`] is an agent at one of the bridges; [`script`] takes a radio away and
//! tells the agents; [`cell::measure`] is one cell of the table that puts kernels beside the
//! simulator.

pub mod cell;
pub mod ends;
pub mod helper;
pub mod path;
pub mod placement;
pub mod script;
pub mod sender;
pub mod sharing;
