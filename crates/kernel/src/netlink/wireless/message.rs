//! What messages of nl80211 mean here. Their format is wl-nl80211's matter.

use netlink_packet_core::{DecodeError, Emitable, NlasIterator, Parseable, ParseableParametrized};
use netlink_packet_generic::{GenlFamily, GenlHeader, GenlMessage};
use netlink_sys::protocols::NETLINK_GENERIC;
use wl_nl80211::{
    Ieee80211StatusCode, Nl80211Attr, Nl80211Command, Nl80211CqmAttr, Nl80211Message,
    Nl80211StationInfo,
};

use super::super::channel::Language;

/// `NL80211_ATTR_*`.
const INTERFACE: u16 = 3;
const STATION_INFO: u16 = 21;
const STATUS_CODE: u16 = 72;
const QUALITY: u16 = 94;

/// A message of nl80211, of which only those attributes are read that are of use here. Others hold
/// frames and elements of any sender in reach, and words that newer kernels have learnt.
#[derive(Clone, Debug)]
pub(super) struct Message(Nl80211Message);

impl Message {
    /// The question for all stations of an interface, for the family with this number.
    pub(super) fn question(family: u16, interface: u32) -> GenlMessage<Self> {
        let cmd = Nl80211Command::GetStation;
        let attributes = vec![Nl80211Attr::IfIndex(interface)];
        let mut message = GenlMessage::from_payload(Self(Nl80211Message { cmd, attributes }));
        message.set_resolved_family_id(family);
        message
    }

    /// What it tells, and of which interface.
    pub(super) fn news(&self) -> Option<(u32, News)> {
        let attributes = &self.0.attributes;
        let interface = attributes.iter().find_map(|attribute| match attribute {
            Nl80211Attr::IfIndex(index) => Some(*index),
            _ => None,
        })?;
        let news = match self.0.cmd {
            Nl80211Command::NewStation => News::Station(station_level(attributes)?),
            Nl80211Command::NotifyCqm => News::Level(quality_level(attributes)?),
            Nl80211Command::Connect if succeeded(attributes) => News::Connected,
            // An attempt that failed leaves the interface without a connection.
            Nl80211Command::Connect | Nl80211Command::Disconnect => News::Disconnected,
            Nl80211Command::Roam => News::Roamed,
            _ => return None,
        };
        Some((interface, news))
    }
}

/// What a message tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum News {
    /// A station's level, dBm.
    Station(i16),
    /// The connection's level, dBm, which the kernel tells by itself if somebody asked for it.
    Level(i16),
    Connected,
    Roamed,
    Disconnected,
}

/// The level of the last frame; failing that, the driver's average.
fn station_level(attributes: &[Nl80211Attr]) -> Option<i16> {
    let info = attributes.iter().find_map(|attribute| match attribute {
        Nl80211Attr::StationInfo(info) => Some(info),
        _ => None,
    })?;
    let last = info.iter().find_map(|info| match info {
        Nl80211StationInfo::Signal(dbm) => Some(*dbm),
        _ => None,
    });
    let average = info.iter().find_map(|info| match info {
        Nl80211StationInfo::SignalAvg(dbm) => Some(*dbm),
        _ => None,
    });
    // Zero is what some drivers say while they know nothing.
    last.into_iter().chain(average).find(|dbm| *dbm < 0).map(i16::from)
}

fn quality_level(attributes: &[Nl80211Attr]) -> Option<i16> {
    let quality = attributes.iter().find_map(|attribute| match attribute {
        Nl80211Attr::Cqm(quality) => Some(quality),
        _ => None,
    })?;
    quality.iter().find_map(|quality| match quality {
        Nl80211CqmAttr::RssiLevel(dbm) => i16::try_from(*dbm).ok().filter(|dbm| *dbm < 0),
        _ => None,
    })
}

/// An attempt that ran out of time has no status.
fn succeeded(attributes: &[Nl80211Attr]) -> bool {
    attributes.iter().any(|attribute| {
        matches!(attribute, Nl80211Attr::StatusCode(code) if *code == Ieee80211StatusCode::Success)
    })
}

impl GenlFamily for Message {
    fn family_name() -> &'static str {
        Nl80211Message::family_name()
    }

    fn command(&self) -> u8 {
        self.0.command()
    }

    fn version(&self) -> u8 {
        self.0.version()
    }
}

impl Emitable for Message {
    fn buffer_len(&self) -> usize {
        self.0.buffer_len()
    }

    fn emit(&self, buffer: &mut [u8]) {
        self.0.emit(buffer);
    }
}

impl ParseableParametrized<[u8], GenlHeader> for Message {
    fn parse_with_param(bytes: &[u8], header: GenlHeader) -> Result<Self, DecodeError> {
        let cmd = Nl80211Command::from(header.cmd);
        let mut attributes = Vec::new();
        for attribute in NlasIterator::new(bytes).filter_map(Result::ok) {
            match attribute.kind() {
                INTERFACE | STATUS_CODE | QUALITY => {
                    attributes.extend(Nl80211Attr::parse(&attribute).ok());
                }
                STATION_INFO => {
                    let info = NlasIterator::new(attribute.value())
                        .filter_map(Result::ok)
                        .filter_map(|info| Nl80211StationInfo::parse(&info).ok())
                        .collect();
                    attributes.push(Nl80211Attr::StationInfo(info));
                }
                _ => {}
            }
        }
        Ok(Self(Nl80211Message { cmd, attributes }))
    }
}

impl Language for GenlMessage<Message> {
    const PROTOCOL: isize = NETLINK_GENERIC;
}
