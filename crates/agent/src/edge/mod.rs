//! Helpers that read and change the headers of acknowledgements where these enter or leave the hop.
//!
//! Schemes that their authors put into a mobile's TCP work as well on a bridge in front of it, on a
//! mobile router, and where no more than headers is needed at the base: they say in the mobile's name
//! what its TCP does not know to say. All they know is soft, and what they do to a sender it gets
//! over by itself if they vanish: a sender with a window of zero probes it.
//!
//! A connection whose beginning was missed is helped as far as it can be. Window fields are told
//! again as they came, and zero is zero at any scale; only [`ReceiverWindows`] must know the scale.

/// [`Agent`](crate::Agent) for a helper with `flows`, a `queue` and `stats`. Its `handle_tcp` gives
/// back what is to pass of a packet; what follows the name is its own part of the trait.
macro_rules! helper {
    ($helper:ident: $($own:tt)*) => {
        impl<P: Packet> $crate::Agent<P> for $helper<P> {
            fn handle_packet(&mut self, now: Time, from: Side, packet: P) {
                self.flows.expire(now);
                let passes = match packet.tcp() {
                    Some(tcp) => self.handle_tcp(now, from, &tcp, packet),
                    None => Some(packet),
                };
                if let Some(packet) = passes {
                    self.stats.passed += 1;
                    self.queue.packet(from.other(), packet);
                }
            }

            fn remove_mobile(&mut self, mobile: core::net::IpAddr) {
                self.flows.take_mobile(mobile);
            }

            fn poll_output(&mut self) -> Option<$crate::Output<P>> {
                self.queue.pop()
            }

            $($own)*
        }
    };
}

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
