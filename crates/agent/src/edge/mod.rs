//! Helpers that read and change the headers of acknowledgements where these enter or leave the hop.
//!
//! Schemes that their authors put into a mobile's TCP work as well on a bridge in front of it, on a
//! mobile router, and where no more than headers is needed at the base: they say in the mobile's name
//! what its TCP does not know to say. All they know is soft, and what they do to a sender it gets
//! over by itself if they vanish: a sender with a window of zero probes it.
//!
//! A connection whose beginning was missed is helped as far as it can be. Window fields are told
//! again as they came, and zero is zero at any scale; only [`ReceiverWindows`] must know the scale.

mod coherent;
mod delayed;
mod flow;
mod freeze;
mod rwc;
mod waiting;
mod withhold;

pub use coherent::{CoherentConfig, CoherentDupacks};
pub use delayed::{DelayedDupacks, DelayedDupacksConfig};
pub use freeze::{Freeze, FreezeConfig, FreezeStats};
pub use lasthop_units::HopEnd;
pub use rwc::{ReceiverWindows, Rule, Total, WindowsConfig, WindowsStats};
pub use waiting::DupackStats;
pub use withhold::{Withhold, WithholdConfig, WithholdStats};

#[cfg(test)]
mod tests;
