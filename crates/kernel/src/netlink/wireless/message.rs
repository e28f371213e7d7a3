//! What messages of nl80211 mean here.

use super::super::attributes::{Attributes, Value};
use super::super::message::Message;

// linux/nl80211.h
pub(super) const GET_STATION: u8 = 17;
pub(super) const NEW_STATION: u8 = 19;
pub(super) const CONNECT: u8 = 46;
pub(super) const ROAM: u8 = 47;
pub(super) const DISCONNECT: u8 = 48;
pub(super) const NOTIFY_QUALITY: u8 = 64;
pub(super) const INTERFACE: u16 = 3;
pub(super) const STATION_INFO: u16 = 21;
pub(super) const STATUS_CODE: u16 = 72;
pub(super) const QUALITY: u16 = 94;
pub(super) const SIGNAL: u16 = 7;
pub(super) const SIGNAL_AVERAGE: u16 = 13;
pub(super) const LEVEL: u16 = 9;

/// The family's version, of which there is one.
const VERSION: u8 = 1;
/// The status of an attempt that succeeded (IEEE 802.11, 9.4.1.9).
const SUCCESS: u16 = 0;

/// The question for all stations of an interface, for the family with this number.
pub(super) fn question(family: u16, interface: u32) -> Message {
    // struct genlmsghdr: command, version, reserved
    Message::new(family, &[GET_STATION, VERSION, 0, 0]).with_u32(INTERFACE, interface)
}

/// What a message tells, and of which interface. Only those attributes are read that are of use:
/// others hold frames and elements of any sender in reach.
pub(super) fn news(message: &Message) -> Option<(u32, SignalNews)> {
    let (&[command, ..], attributes) = message.parts::<4>()?;
    let interface = attributes.find(INTERFACE)?.u32()?;
    let news = match command {
        NEW_STATION => SignalNews::Station(station_level(attributes)?),
        NOTIFY_QUALITY => SignalNews::Level(quality_level(attributes)?),
        CONNECT if succeeded(attributes) => SignalNews::Connected,
        // An attempt that failed leaves the interface without a connection.
        CONNECT | DISCONNECT => SignalNews::Disconnected,
        ROAM => SignalNews::Roamed,
        _ => return None,
    };
    Some((interface, news))
}

/// What a message tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SignalNews {
    /// A station's level, dBm.
    Station(i16),
    /// The connection's level, dBm, which the kernel tells by itself if somebody asked for it.
    Level(i16),
    Connected,
    Roamed,
    Disconnected,
}

/// The level of the last frame; failing that, the driver's average.
fn station_level(attributes: Attributes<'_>) -> Option<i16> {
    let info = attributes.find(STATION_INFO)?.attributes();
    let levels = [SIGNAL, SIGNAL_AVERAGE].map(|kind| info.find(kind).and_then(Value::i8));
    // Zero is what some drivers say while they know nothing.
    levels.into_iter().flatten().find(|dbm| *dbm < 0).map(i16::from)
}

fn quality_level(attributes: Attributes<'_>) -> Option<i16> {
    let dbm = attributes.find(QUALITY)?.attributes().find(LEVEL)?.i32()?;
    i16::try_from(dbm).ok().filter(|dbm| *dbm < 0)
}

/// An attempt that ran out of time has no status.
fn succeeded(attributes: Attributes<'_>) -> bool {
    attributes.find(STATUS_CODE).and_then(Value::u16) == Some(SUCCESS)
}
