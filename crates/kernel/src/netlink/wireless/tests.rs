use netlink_packet_core::{DoneMessage, ErrorMessage, NetlinkHeader};
use proptest::prelude::*;

use super::super::attributes::{NESTED, attributes};
use super::message::{
    CONNECT, DISCONNECT, INTERFACE, LEVEL, NEW_STATION, NOTIFY_QUALITY, QUALITY, ROAM, SIGNAL,
    SIGNAL_AVERAGE, STATION_INFO, STATUS_CODE,
};
use super::*;

const FAMILY: u16 = 0x2c;
const WLAN0: u32 = 3;
// linux/nl80211.h
const NEW_SCAN_RESULTS: u8 = 34;
const MAC: u16 = 6;
const GENERATION: u16 = 46;
const SSID: u16 = 52;
const INACTIVE_TIME: u16 = 1;
const RECEIVED_BYTES_64: u16 = 23;
const BEACON_LOSS: u16 = 18;
const THRESHOLD_EVENT: u16 = 3;

fn interpreter() -> Interpreter {
    Interpreter::new(Family { id: FAMILY, mlme: Some(11) })
}

/// One that waits for the answer to question 7.
fn asking() -> Interpreter {
    let mut it = interpreter();
    it.asked = Some(PendingQuery { sequence: 7, interface: WLAN0, level: None, overdue: 0 });
    it
}

/// A kernel's message as it comes off the socket.
fn bytes(sequence: u32, command: u8, attributes: &[u8]) -> Vec<u8> {
    let payload = [&[command, 1, 0, 0], attributes].concat();
    let mut header = NetlinkHeader::default();
    header.sequence_number = sequence;
    let message = NetlinkPayload::InnerMessage(Message::new(FAMILY, &payload));
    let mut message = NetlinkMessage::new(header, message);
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

fn hear(it: &mut Interpreter, bytes: &[u8]) {
    it.take(NetlinkMessage::deserialize(bytes).unwrap());
}

fn hear_control(it: &mut Interpreter, sequence: u32, payload: NetlinkPayload<Message>) {
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

fn interface() -> Vec<u8> {
    attributes(&[(INTERFACE, &WLAN0.to_ne_bytes())])
}

fn station(info: &[(u16, &[u8])]) -> Vec<u8> {
    let rest = attributes(&[
        (MAC, &[2, 0, 0, 0, 0, 1]),
        (GENERATION, &5_u32.to_ne_bytes()),
        (STATION_INFO | NESTED, &attributes(info)),
    ]);
    [interface(), rest].concat()
}

fn dbm(level: i8) -> [u8; 1] {
    level.to_ne_bytes()
}

#[test]
fn a_question_is_answered_with_the_level_once_the_list_is_over() {
    let mut it = asking();
    let info = station(&[
        (INACTIVE_TIME, &12_u32.to_ne_bytes()),
        (RECEIVED_BYTES_64, &(1_u64 << 40).to_ne_bytes()),
        (SIGNAL, &dbm(-67)),
        (SIGNAL_AVERAGE, &dbm(-64)),
        (BEACON_LOSS, &0_u32.to_ne_bytes()),
    ]);
    hear(&mut it, &bytes(7, NEW_STATION, &info));
    assert_eq!(events(&mut it), []);
    assert!(it.is_busy());
    hear_control(&mut it, 7, NetlinkPayload::Done(DoneMessage::default()));
    assert_eq!(events(&mut it), [told(Wireless::Signal(-67))]);
    assert!(!it.is_busy());
}

#[test]
fn without_a_last_frame_the_average_counts_and_zero_is_no_level() {
    for info in [
        station(&[(SIGNAL_AVERAGE, &dbm(-71))]),
        station(&[(SIGNAL, &dbm(0)), (SIGNAL_AVERAGE, &dbm(-71))]),
    ] {
        let mut it = asking();
        hear(&mut it, &bytes(7, NEW_STATION, &info));
        hear_control(&mut it, 7, NetlinkPayload::Done(DoneMessage::default()));
        assert_eq!(events(&mut it), [told(Wireless::Signal(-71))]);
    }
    let mut it = asking();
    hear(&mut it, &bytes(7, NEW_STATION, &station(&[])));
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
    let info = station(&[(SIGNAL, &dbm(-40))]);
    // One that was given up, and a station that came by itself.
    hear(&mut it, &bytes(6, NEW_STATION, &info));
    hear(&mut it, &bytes(0, NEW_STATION, &info));
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
fn events_of_the_connection_are_reported() {
    let on = |more: &[(u16, &[u8])]| {
        [interface(), attributes(&[(MAC, &[2, 0, 0, 0, 0, 1])]), attributes(more)].concat()
    };
    let status = |code: u16| on(&[(STATUS_CODE, &code.to_ne_bytes())]);
    let level =
        attributes(&[(THRESHOLD_EVENT, &0_u32.to_ne_bytes()), (LEVEL, &(-72_i32).to_ne_bytes())]);
    for (command, attributes, what) in [
        (CONNECT, status(0), Wireless::Connected),
        (CONNECT, status(1), Wireless::Disconnected),
        (CONNECT, on(&[]), Wireless::Disconnected),
        (ROAM, on(&[]), Wireless::Roamed),
        (DISCONNECT, on(&[]), Wireless::Disconnected),
        (NOTIFY_QUALITY, on(&[(QUALITY | NESTED, &level)]), Wireless::Signal(-72)),
    ] {
        let mut it = interpreter();
        hear(&mut it, &bytes(0, command, &attributes));
        assert_eq!(events(&mut it), [told(what)], "{command}");
    }
}

#[test]
fn other_messages_report_nothing() {
    let mut it = interpreter();
    let ssid = [interface(), attributes(&[(SSID, &[0xff; 32])])].concat();
    hear(&mut it, &bytes(0, NEW_SCAN_RESULTS, &ssid));
    hear(&mut it, &bytes(0, ROAM, &[]));
    // Nor does another family, whatever its commands look like.
    let mut other = bytes(0, ROAM, &interface());
    other[4] = 0x2d;
    hear(&mut it, &other);
    assert_eq!(events(&mut it), []);
}

/// An attribute that newer kernels give another length, or that is new, does not hide its
/// neighbours.
#[test]
fn a_strange_attribute_hides_no_other() {
    let info = attributes(&[(2, &[1]), (99, &[1; 9]), (SIGNAL, &dbm(-55))]);
    let rest = attributes(&[(MAC, &[1, 2, 3]), (STATION_INFO, &info)]);
    let message = bytes(7, NEW_STATION, &[interface(), rest].concat());
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
    monitor.query(1).unwrap();
    let _ = monitor.handle_ready();
    assert!(!matches!(monitor.poll_event(), Some(WirelessEvent { what: Wireless::Signal(_), .. })));
}

/// Wherever it ends, what is left is read or not, and nothing else is made of it.
#[test]
fn a_message_that_is_cut_off_gives_less_and_nothing_wrong() {
    let whole = station(&[(SIGNAL, &dbm(-67)), (SIGNAL_AVERAGE, &dbm(-64))]);
    let mut said = 0;
    for length in 0..=whole.len() {
        let mut it = asking();
        hear(&mut it, &bytes(7, NEW_STATION, &whole[..length]));
        let level = it.asked.unwrap().level;
        assert!([None, Some(-67)].contains(&level), "{length}: {level:?}");
        said += usize::from(level.is_some());
    }
    assert_eq!(said, 1, "the information is one attribute, cut off as long as it is not whole");
    // Not even its fields are there.
    for length in 0..4 {
        assert_eq!(message::news(&Message::new(FAMILY, &[NEW_STATION; 4][..length])), None);
    }
}

proptest! {
    /// No bytes from the kernel, however odd, break it.
    #[test]
    fn no_bytes_break_it(payload in prop::collection::vec(any::<u8>(), 0..512), command: u8) {
        hear(&mut asking(), &bytes(7, command, &payload));
    }

    /// Nor does a message of which one byte is another.
    #[test]
    fn no_damage_breaks_it(at: prop::sample::Index, value: u8, cut: prop::sample::Index) {
        let info = station(&[(SIGNAL, &dbm(-67)), (BEACON_LOSS, &1_u32.to_ne_bytes())]);
        let mut message = bytes(7, NEW_STATION, &info);
        let at = at.index(message.len());
        message[at] = value;
        message.truncate(cut.index(message.len()) + 1);
        if let Ok(message) = NetlinkMessage::deserialize(&message) {
            asking().take(message);
        }
    }
}
