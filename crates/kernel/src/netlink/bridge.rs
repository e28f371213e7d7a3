//! Bridges and their ports.

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};

use super::attributes::{attributes, text};
use super::message::Message;
use super::requests::{NEW_LINK, SET_LINK, was_new};
use super::{LINK_CONTROLLER, LINK_NAME, LINK_UP, NetlinkError, Rtnetlink, link};

// linux/if_link.h
const LINK_INFO: u16 = 18;
const INFO_KIND: u16 = 1;

/// The message that switches an interface on, a new one where it has no number yet.
fn switched_on(kind: u16, interface: u32) -> Message {
    link::message(kind, interface, LINK_UP, LINK_UP)
}

impl Rtnetlink {
    /// Makes a bridge and switches it on. `false` if an interface of that name was there already.
    ///
    /// # Errors
    ///
    /// The kernel's error.
    pub fn add_bridge(&mut self, name: &str) -> Result<bool, NetlinkError> {
        let link = switched_on(NEW_LINK, 0)
            .with_text(LINK_NAME, name)
            .with(LINK_INFO, &attributes(&[(INFO_KIND, &text("bridge"))]));
        let flags = NLM_F_CREATE | NLM_F_EXCL;
        was_new(self.order(link, flags, &|| format!("make the bridge {name}")))
    }

    /// Makes an interface a port of a bridge, and switches it on.
    ///
    /// # Errors
    ///
    /// The kernel's error.
    pub fn join_bridge(&mut self, interface: u32, bridge: u32) -> Result<(), NetlinkError> {
        let link = switched_on(SET_LINK, interface).with_u32(LINK_CONTROLLER, bridge);
        let what = || format!("make interface {interface} a port of bridge {bridge}");
        self.order(link, 0, &what)
    }
}
