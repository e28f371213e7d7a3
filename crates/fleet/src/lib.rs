//! Many bases as one fleet, by records in etcd.
//!
//! What etcd says becomes plain files that a base reads ([`members`]), so etcd is never in the way of a byte:
//! when it is away everything goes on as it was. [`records`] is what etcd has, [`store`] how it is asked,
//! [`agent`] runs beside each base, [`commands`] are what operators do.

pub mod agent;
pub mod commands;
pub mod config;
pub mod error;
pub mod files;
pub mod members;
pub mod records;
pub mod store;
mod time;
pub mod token;
