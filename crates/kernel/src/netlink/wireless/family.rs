//! What number the kernel has given to nl80211, and to its groups: generic netlink families are
//! numbered as they come.

use netlink_sys::protocols::NETLINK_GENERIC;

use super::super::NetlinkError;
use super::super::attributes::{Attributes, Value};
use super::super::channel::Channel;
use super::super::message::Message;

// linux/genetlink.h
const CONTROLLER: u16 = 16;
const GET_FAMILY: u8 = 3;
const VERSION: u8 = 2;
const ID: u16 = 1;
const NAME: u16 = 2;
const GROUPS: u16 = 7;
const GROUP_NAME: u16 = 1;
const GROUP_ID: u16 = 2;

// linux/nl80211.h
const NL80211: &str = "nl80211";
const MLME: &str = "mlme";

/// The kernel's numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Family {
    /// Of nl80211.
    pub(super) id: u16,
    /// Of its group that tells of connections, roaming and the like.
    pub(super) mlme: Option<u32>,
}

/// Asks for nl80211's numbers; `None` if this kernel has none.
pub(super) fn resolve() -> Result<Option<Family>, NetlinkError> {
    let mut channel = Channel::open(NETLINK_GENERIC)?;
    // struct genlmsghdr: command, version, reserved
    let question = Message::new(CONTROLLER, &[GET_FAMILY, VERSION, 0, 0]);
    let what = || "list the families of generic netlink".to_owned();
    Ok(channel.list(&question, &what, of)?.into_iter().next())
}

/// The numbers, if the message describes nl80211.
pub(super) fn of(message: &Message) -> Option<Family> {
    let (_, attributes) = message.parts::<4>()?;
    if attributes.find(NAME)?.text()? != NL80211 {
        return None;
    }
    let id = attributes.find(ID)?.u16()?;
    let mut groups = attributes.find(GROUPS).map_or(Attributes(&[]), Value::attributes);
    Some(Family { id, mlme: groups.find_map(|(_, group)| number(group.attributes())) })
}

/// The number in the description of a group, if that is the one of connections.
fn number(group: Attributes<'_>) -> Option<u32> {
    let ours = group.find(GROUP_NAME)?.text()? == MLME;
    group.find(GROUP_ID)?.u32().filter(|_| ours)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::super::attributes::{NESTED, attributes, text};
    use super::*;

    const NEW_FAMILY: u8 = 1;

    fn described(name: &str) -> Message {
        let group = |n: u32, name: &str| {
            attributes(&[(GROUP_ID, &n.to_ne_bytes()), (GROUP_NAME, &text(name))])
        };
        let groups =
            attributes(&[(1 | NESTED, &group(8, "config")), (2 | NESTED, &group(11, "mlme"))]);
        Message::new(CONTROLLER, &[NEW_FAMILY, VERSION, 0, 0])
            .with_text(NAME, name)
            .with(ID, &0x2c_u16.to_ne_bytes())
            .with_u32(3, 1)
            .with_u32(5, 333)
            .with(GROUPS | NESTED, &groups)
    }

    #[test]
    fn the_family_is_known_by_its_name_and_its_group_too() {
        assert_eq!(of(&described("nl80211")), Some(Family { id: 0x2c, mlme: Some(11) }));
        assert_eq!(of(&described("taskstats")), None);
    }

    /// A kernel's controller answers, and one without nl80211 is no error.
    #[test]
    fn the_kernel_is_asked() {
        match resolve() {
            Ok(family) => println!("nl80211: {family:?}"),
            Err(error) => panic!("{error}"),
        }
    }

    proptest! {
        #[test]
        fn no_bytes_break_it(bytes: Vec<u8>) {
            let _ = of(&Message::new(CONTROLLER, &bytes));
        }

        /// Attributes that are not known hide none that are.
        #[test]
        fn strange_attributes_hide_no_other(bytes: Vec<u8>, groups: Vec<u8>) {
            let described = described("nl80211").with(99, &bytes).with(GROUPS, &groups);
            prop_assert_eq!(of(&described).map(|family| family.id), Some(0x2c));
        }
    }
}
