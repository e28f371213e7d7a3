use netlink_packet_core::{DoneMessage, ErrorMessage, NetlinkHeader};
use proptest::prelude::*;
use wl_nl80211::{
    Ieee80211StatusCode, Nl80211Attr, Nl80211Command, Nl80211CqmAttr, Nl80211CqmRssiThresholdEvent,
    Nl80211Message, Nl80211StationInfo,
};

use super::*;

const FAMILY: u16 = 0x2c;
const WLAN0: u32 = 3;

fn interpreter() -> Interpreter {
    Interpreter::new(Family { id: FAMILY, mlme: Some(11) })
}

/// One that waits for the answer to question 7.
fn asking() -> Interpreter {
    let mut it = interpreter();
    it.asked = Some(Asked { sequence: 7, interface: WLAN0, level: None, overdue: 0 });
    it
}

/// A kernel's message as it comes off the socket.
fn bytes(sequence: u32, cmd: Nl80211Command, attributes: Vec<Nl80211Attr>) -> Vec<u8> {
    let mut message = GenlMessage::from_payload(Nl80211Message { cmd, attributes });
    message.set_resolved_family_id(FAMILY);
    let mut header = NetlinkHeader::default();
    header.sequence_number = sequence;
    let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message));
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

fn hear(it: &mut Interpreter, bytes: &[u8]) {
    it.take(NetlinkMessage::deserialize(bytes).unwrap());
}

fn hear_control(
    it: &mut Interpreter,
    sequence: u32,
    payload: NetlinkPayload<GenlMessage<Message>>,
) {
    let mut header = NetlinkHeader::default();
    header.sequence_number = sequence;
    it.take(NetlinkMessage::new(header, payload));
}

fn events(it: &mut Interpreter) -> Vec<WirelessEvent> {
    std::iter::from_fn(|| it.events.pop_front()).collect()
}

fn told(what: Wireless) -> WirelessEvent {
    WirelessEvent { interface: WLAN0, what }
}

fn station(info: Vec<Nl80211StationInfo>) -> Vec<Nl80211Attr> {
    vec![
        Nl80211Attr::IfIndex(WLAN0),
        Nl80211Attr::Mac([2, 0, 0, 0, 0, 1]),
        Nl80211Attr::Generation(5),
        Nl80211Attr::StationInfo(info),
    ]
}

#[test]
fn a_question_is_answered_with_the_level_once_the_list_is_over() {
    let mut it = asking();
    let info = vec![
        Nl80211StationInfo::InactiveTime(12),
        Nl80211StationInfo::RxBytes64(1 << 40),
        Nl80211StationInfo::Signal(-67),
        Nl80211StationInfo::SignalAvg(-64),
        Nl80211StationInfo::BeaconLoss(0),
    ];
    hear(&mut it, &bytes(7, Nl80211Command::NewStation, station(info)));
    assert_eq!(events(&mut it), []);
    assert!(it.is_busy());
    hear_control(&mut it, 7, NetlinkPayload::Done(DoneMessage::default()));
    assert_eq!(events(&mut it), [told(Wireless::Signal(-67))]);
    assert!(!it.is_busy());
}

#[test]
fn without_a_last_frame_the_average_counts_and_zero_is_no_level() {
    for info in [
        vec![Nl80211StationInfo::SignalAvg(-71)],
        vec![Nl80211StationInfo::Signal(0), Nl80211StationInfo::SignalAvg(-71)],
    ] {
        let mut it = asking();
        hear(&mut it, &bytes(7, Nl80211Command::NewStation, station(info)));
        hear_control(&mut it, 7, NetlinkPayload::Done(DoneMessage::default()));
        assert_eq!(events(&mut it), [told(Wireless::Signal(-71))]);
    }
    let mut it = asking();
    hear(&mut it, &bytes(7, Nl80211Command::NewStation, station(vec![])));
    hear_control(&mut it, 7, NetlinkPayload::Done(DoneMessage::default()));
    assert_eq!(events(&mut it), []);
}

#[test]
fn an_interface_that_is_not_wireless_is_deaf() {
    let mut error = ErrorMessage::default();
    error.code = std::num::NonZeroI32::new(-libc::ENODEV);
    let mut done = DoneMessage::default();
    done.code = -libc::EOPNOTSUPP;
    for payload in [NetlinkPayload::Error(error), NetlinkPayload::Done(done)] {
        let mut it = asking();
        hear_control(&mut it, 7, payload);
        assert_eq!(events(&mut it), [told(Wireless::Deaf)]);
        assert!(!it.is_busy());
    }
}

#[test]
fn answers_to_other_questions_are_no_answers() {
    let mut it = asking();
    let info = || station(vec![Nl80211StationInfo::Signal(-40)]);
    // One that was given up, and a station that came by itself.
    hear(&mut it, &bytes(6, Nl80211Command::NewStation, info()));
    hear(&mut it, &bytes(0, Nl80211Command::NewStation, info()));
    hear_control(&mut it, 6, NetlinkPayload::Done(DoneMessage::default()));
    assert!(it.is_busy());
    hear_control(&mut it, 7, NetlinkPayload::Done(DoneMessage::default()));
    assert_eq!(events(&mut it), []);
}

#[test]
fn a_question_that_is_never_answered_is_given_up() {
    let mut it = asking();
    let busy = (0..OVERDUE).take_while(|_| it.is_busy()).count();
    assert_eq!(busy, OVERDUE as usize - 1);
}

/// LNK-14: connecting, roaming and disconnecting are told as they happen.
#[test]
fn what_happens_to_the_connection_is_told() {
    let on = |more: Vec<Nl80211Attr>| {
        [vec![Nl80211Attr::IfIndex(WLAN0), Nl80211Attr::Mac([2, 0, 0, 0, 0, 1])], more].concat()
    };
    let status = |code| on(vec![Nl80211Attr::StatusCode(code)]);
    let level = Nl80211Attr::Cqm(vec![
        Nl80211CqmAttr::RssiThresholdEvent(Nl80211CqmRssiThresholdEvent::Low),
        Nl80211CqmAttr::RssiLevel(-72),
    ]);
    for (cmd, attributes, what) in [
        (Nl80211Command::Connect, status(Ieee80211StatusCode::Success), Wireless::Connected),
        (
            Nl80211Command::Connect,
            status(Ieee80211StatusCode::UnspecifiedFailure),
            Wireless::Disconnected,
        ),
        (Nl80211Command::Connect, on(vec![]), Wireless::Disconnected),
        (Nl80211Command::Roam, on(vec![]), Wireless::Roamed),
        (Nl80211Command::Disconnect, on(vec![]), Wireless::Disconnected),
        (Nl80211Command::NotifyCqm, on(vec![level]), Wireless::Signal(-72)),
    ] {
        let mut it = interpreter();
        hear(&mut it, &bytes(0, cmd, attributes));
        assert_eq!(events(&mut it), [told(what)], "{cmd:?}");
    }
}

#[test]
fn what_is_of_no_interest_says_nothing() {
    let mut it = interpreter();
    let ssid = vec![Nl80211Attr::IfIndex(WLAN0), Nl80211Attr::SsidRaw(vec![0xff; 32])];
    hear(&mut it, &bytes(0, Nl80211Command::NewScanResults, ssid));
    hear(&mut it, &bytes(0, Nl80211Command::Roam, vec![]));
    // Nor does another family, whatever its commands look like.
    let mut other = bytes(0, Nl80211Command::Roam, vec![Nl80211Attr::IfIndex(WLAN0)]);
    other[4] = 0x2d;
    hear(&mut it, &other);
    assert_eq!(events(&mut it), []);
}

/// An attribute as it is on the wire, with its padding.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = (value.len() + 4) as u16;
    let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// An attribute that newer kernels give another length, or that is new, does not hide its
/// neighbours.
#[test]
fn a_strange_attribute_hides_no_other() {
    let received_bytes = attribute(2, &[1]);
    let unknown = attribute(99, &[1; 9]);
    let signal = attribute(7, &(-55_i8).to_ne_bytes());
    let info = attribute(21, &[received_bytes, unknown, signal].concat());
    let strange_mac = attribute(6, &[1, 2, 3]);
    let mut message = bytes(7, Nl80211Command::NewStation, vec![Nl80211Attr::IfIndex(WLAN0)]);
    message.extend([strange_mac, info].concat());
    let length = (message.len() as u32).to_ne_bytes();
    message[..4].copy_from_slice(&length);
    let mut it = asking();
    hear(&mut it, &message);
    hear_control(&mut it, 7, NetlinkPayload::Done(DoneMessage::default()));
    assert_eq!(events(&mut it), [told(Wireless::Signal(-55))]);
}

#[test]
fn a_kernel_is_asked_or_has_no_such_thing() {
    let monitor = match WirelessMonitor::open() {
        Ok(monitor) => monitor,
        Err(error) => panic!("{error}"),
    };
    let Some(mut monitor) = monitor else {
        return println!("this kernel has no nl80211: nothing to be asked");
    };
    // The loopback has no stations.
    monitor.ask(1).unwrap();
    let _ = monitor.handle_ready();
    assert!(!matches!(monitor.poll_event(), Some(WirelessEvent { what: Wireless::Signal(_), .. })));
}

proptest! {
    /// No bytes from the kernel, however odd, break it.
    #[test]
    fn no_bytes_break_it(payload in prop::collection::vec(any::<u8>(), 0..512), cmd: u8) {
        let mut message = bytes(7, Nl80211Command::Other(cmd), vec![]);
        message.extend(&payload);
        let length = (message.len() as u32).to_ne_bytes();
        message[..4].copy_from_slice(&length);
        if let Ok(message) = NetlinkMessage::deserialize(&message) {
            asking().take(message);
        }
    }

    /// Nor does a message of which one byte is another.
    #[test]
    fn no_damage_breaks_it(at: prop::sample::Index, value: u8, cut: prop::sample::Index) {
        let info = vec![Nl80211StationInfo::Signal(-67), Nl80211StationInfo::BeaconLoss(1)];
        let mut message = bytes(7, Nl80211Command::NewStation, station(info));
        let at = at.index(message.len());
        message[at] = value;
        message.truncate(cut.index(message.len()) + 1);
        if let Ok(message) = NetlinkMessage::deserialize(&message) {
            asking().take(message);
        }
    }
}
