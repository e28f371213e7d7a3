//! What protocol processing costs on this machine (EXP-H1 to EXP-H5): our layered TCP/IP in user
//! space, Mobile TCP and the kernel's TCP/IP, measured by sending buffers to and fro.
//!
//! | stack | what it is |
//! | --- | --- |
//! | `tcp-ip` | our TCP/IP under a standard socket layer: the paper's TCP/IP |
//! | `tcp-ip-shared` | the same, the socket's buffers being TCP's, as in BSD |
//! | `tcp-ip-light` | the same under the light socket layer |
//! | `tcp-ip-protocol` | TCP and IP without a socket layer |
//! | `tcp-ip-unsummed` | the same with TCP's checksum left to a network card |
//! | `tcp-protocol` | TCP alone on the link |
//! | `mobile-tcp` | Mobile TCP under the light socket layer (MOB-45): the paper's MTCP |
//! | `mobile-tcp-uncopied` | `mobile-tcp` without the light layer's copies (MOB-46) |
//! | `mobile-tcp-standard` | Mobile TCP under `tcp-ip`'s socket layer (MOB-47) |
//! | `mobile-tcp-protocol` | Mobile TCP without a socket layer (MOB-47) |
//! | `mobile-tcp-24` | `mobile-tcp` with 24 bytes of padding: the paper's MTCP_24 |
//! | `mobile-tcp-endpoint` | `mobile-tcp` inside the endpoint that a base or a mobile runs |
//! | `kernel-loopback` | the kernel's TCP/IP over loopback, both ends in one thread |
//! | `kernel-veth` | the same over a veth pair between two namespaces |
//! | `kernel-veth-threads` | the same with each end in a thread of its own |
//! | `mobile-tcp-ethernet` | `mobile-tcp` in raw frames over the same veth pair |
//!
//! `docs/processing.md` says what is measured, what is computed, and what came out.

mod clock;
mod engine;
mod ethernet;
mod ethernet_rate;
mod fit;
mod kernel;
pub mod link;
mod measure;
mod meter;
mod options;
pub mod pair;
mod ratios;
mod sections;
mod shares;
pub mod socket;
pub mod stack;
mod stacks;

pub use measure::measure;
pub use options::Options;
