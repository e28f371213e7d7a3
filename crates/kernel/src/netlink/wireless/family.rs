//! What number the kernel has given to nl80211, and to its groups: generic netlink families are
//! numbered as they come.

use netlink_packet_core::{DecodeError, Emitable, NlasIterator, Parseable, ParseableParametrized};
use netlink_packet_generic::constants::{
    CTRL_ATTR_FAMILY_ID, CTRL_ATTR_FAMILY_NAME, CTRL_ATTR_MCAST_GROUPS,
};
use netlink_packet_generic::ctrl::nlas::{GenlCtrlAttrs, McastGrpAttrs};
use netlink_packet_generic::ctrl::{GenlCtrl, GenlCtrlCmd};
use netlink_packet_generic::{GenlFamily, GenlHeader, GenlMessage};
use netlink_sys::protocols::NETLINK_GENERIC;
use wl_nl80211::{Nl80211Message, Nl80211MulticastGroup};

use super::super::NetlinkError;
use super::super::channel::{Channel, Language};

/// Attributes of the controller that are of use here. What others say is left unread: the kernel
/// may have learnt words that this program has not.
const WANTED: [u16; 3] = [CTRL_ATTR_FAMILY_ID, CTRL_ATTR_FAMILY_NAME, CTRL_ATTR_MCAST_GROUPS];

/// A message of generic netlink's controller.
#[derive(Clone, Debug)]
struct Controller(GenlCtrl);

impl GenlFamily for Controller {
    fn family_name() -> &'static str {
        GenlCtrl::family_name()
    }

    fn family_id(&self) -> u16 {
        self.0.family_id()
    }

    fn command(&self) -> u8 {
        self.0.command()
    }

    fn version(&self) -> u8 {
        self.0.version()
    }
}

impl Emitable for Controller {
    fn buffer_len(&self) -> usize {
        self.0.buffer_len()
    }

    fn emit(&self, buffer: &mut [u8]) {
        self.0.emit(buffer);
    }
}

impl ParseableParametrized<[u8], GenlHeader> for Controller {
    fn parse_with_param(bytes: &[u8], header: GenlHeader) -> Result<Self, DecodeError> {
        let nlas = NlasIterator::new(bytes)
            .filter_map(Result::ok)
            .filter(|attribute| WANTED.contains(&attribute.kind()))
            .filter_map(|attribute| GenlCtrlAttrs::parse(&attribute).ok())
            .collect();
        Ok(Self(GenlCtrl { cmd: header.cmd.try_into()?, nlas }))
    }
}

impl Language for GenlMessage<Controller> {
    const PROTOCOL: isize = NETLINK_GENERIC;
}

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
    let mut channel = Channel::<GenlMessage<Controller>>::open()?;
    let question = GenlCtrl { cmd: GenlCtrlCmd::GetFamily, nlas: Vec::new() };
    let families = channel.list(
        &GenlMessage::from_payload(Controller(question)),
        || "list the families of generic netlink".to_owned(),
        |message| of(&message.payload.0.nlas),
    )?;
    Ok(families.into_iter().next())
}

/// The numbers, if the attributes are nl80211's.
fn of(attributes: &[GenlCtrlAttrs]) -> Option<Family> {
    let (mut id, mut ours, mut mlme) = (None, false, None);
    for attribute in attributes {
        match attribute {
            GenlCtrlAttrs::FamilyId(n) => id = Some(*n),
            GenlCtrlAttrs::FamilyName(name) => ours = name == Nl80211Message::family_name(),
            GenlCtrlAttrs::McastGroups(groups) => {
                mlme = groups.iter().find_map(|group| number(group, Nl80211MulticastGroup::Mlme));
            }
            _ => {}
        }
    }
    ours.then_some(Family { id: id?, mlme })
}

/// The number in the description of a group, if that is `wanted`.
fn number(group: &[McastGrpAttrs], wanted: Nl80211MulticastGroup) -> Option<u32> {
    let (mut id, mut ours) = (None, false);
    for attribute in group {
        match attribute {
            McastGrpAttrs::Id(n) => id = Some(*n),
            McastGrpAttrs::Name(name) => ours = name == wanted.name(),
        }
    }
    id.filter(|_| ours)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(message: &GenlCtrl) -> Controller {
        let mut bytes = vec![0; message.buffer_len()];
        message.emit(&mut bytes);
        let header = GenlHeader { cmd: message.command(), version: message.version() };
        Controller::parse_with_param(&bytes, header).unwrap()
    }

    fn described(name: &str) -> GenlCtrl {
        let group = |n, name: &str| vec![McastGrpAttrs::Id(n), McastGrpAttrs::Name(name.into())];
        let nlas = vec![
            GenlCtrlAttrs::FamilyName(name.to_owned()),
            GenlCtrlAttrs::FamilyId(0x2c),
            GenlCtrlAttrs::Version(1),
            GenlCtrlAttrs::MaxAttr(333),
            GenlCtrlAttrs::McastGroups(vec![group(8, "config"), group(11, "mlme")]),
        ];
        GenlCtrl { cmd: GenlCtrlCmd::NewFamily, nlas }
    }

    #[test]
    fn the_family_is_known_by_its_name_and_its_group_too() {
        let family = of(&parsed(&described("nl80211")).0.nlas);
        assert_eq!(family, Some(Family { id: 0x2c, mlme: Some(11) }));
        assert_eq!(of(&parsed(&described("taskstats")).0.nlas), None);
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
        fn no_bytes_break_it(bytes: Vec<u8>, cmd: u8) {
            let header = GenlHeader { cmd, version: 2 };
            if let Ok(message) = Controller::parse_with_param(&bytes, header) {
                let _ = of(&message.0.nlas);
            }
        }
    }
}
