pub(crate) mod agent;
mod ask;
pub(crate) mod base;
pub(crate) mod beside;
pub(crate) mod exec;
pub(crate) mod handoff;
pub(crate) mod helper;
pub(crate) mod keygen;
pub(crate) mod link;
pub(crate) mod mobile;
pub(crate) mod policy;
pub(crate) mod priority;
pub(crate) mod radio;
pub(crate) mod status;
#[cfg(feature = "views")]
pub(crate) mod top;
#[cfg(feature = "views")]
pub(crate) mod ui;
#[cfg_attr(not(feature = "views"), path = "unwatched.rs")]
pub(crate) mod watch;
mod words;
