//! The kernel's program against the rule that it follows, and on kernels that talk to each other.

mod kernels;

use lasthop_session::acknowledge::{self, Control, Known, Seen, Segment, Slot, Told, Verdict};
use lasthop_wire::checksum::{self, Sum};
use lasthop_wire::ip::{Addresses, Header};
use lasthop_wire::tcp::{self, Flags};
use proptest::prelude::*;

use lasthop_kernel::bpf::{NEXT, SHOT};

use super::*;

/// A packet as it lies on Ethernet.
#[derive(Clone, Copy, Debug)]
struct Shape {
    flow: Flow,
    /// Four bytes of IPv4's, if it is that.
    ip_options: bool,
    /// Blocks of a SACK option.
    blocks: usize,
    /// Something else is the last option, in so many words.
    others: usize,
}

impl Shape {
    fn header(&self, segment: &Segment) -> Vec<u8> {
        let flow = &self.flow;
        let mut tcp = Vec::new();
        tcp.extend(flow.local.port().to_be_bytes());
        tcp.extend(flow.remote.port().to_be_bytes());
        tcp.extend(segment.seq.to_be_bytes());
        tcp.extend(segment.ack.to_be_bytes());
        tcp.extend([0, segment.flags.bits()]);
        tcp.extend(segment.window.to_be_bytes());
        tcp.extend([0, 0]);
        tcp.extend(segment.urgent.to_be_bytes());
        // As Linux writes them.
        if let Some((value, echo)) = segment.timestamps {
            tcp.extend([1, 1, 8, 10]);
            tcp.extend(value.to_be_bytes());
            tcp.extend(echo.to_be_bytes());
        }
        if self.blocks > 0 {
            let mut sack = vec![1, 1, 5, 2 + 8 * self.blocks as u8];
            sack.extend((0..8 * self.blocks).map(|n| n as u8));
            if !segment.sack {
                sack.fill(1);
            }
            tcp.extend(sack);
        }
        (0..self.others).for_each(|_| tcp.extend([254, 4, 0, 0]));
        tcp[12] = (tcp.len() as u8 / 4) << 4;
        tcp
    }

    /// With right checksums, summed anew.
    fn packet(&self, segment: &Segment) -> Vec<u8> {
        let mut tcp = self.header(segment);
        tcp.extend((0..segment.payload).map(|n| n as u8));
        let pseudo = |octets: &[u8]| {
            let sum = Sum::new().with(octets).with(&[0, 6]).with(&(tcp.len() as u32).to_be_bytes());
            sum.with(&tcp).checksum()
        };
        let mut packet = vec![0; 12];
        let addresses = Addresses::new(self.flow.local.ip(), self.flow.remote.ip()).unwrap();
        let sum = match addresses {
            Addresses::V4 { src, dst } => pseudo(&[src.octets(), dst.octets()].concat()),
            Addresses::V6 { src, dst } => pseudo(&[src.octets(), dst.octets()].concat()),
        };
        tcp[16..18].copy_from_slice(&sum.to_be_bytes());
        let is_ipv4 = self.flow.local.is_ipv4();
        packet.extend(if is_ipv4 { [0x08, 0x00] } else { [0x86, 0xdd] });
        let options: &[u8] = if is_ipv4 && self.ip_options { &[1; 4] } else { &[] };
        let ip = Header::new(addresses, lasthop_wire::ip::Protocol::TCP);
        ip.emit(options.len() + tcp.len(), &mut packet).unwrap();
        if !options.is_empty() {
            packet[14] += 1;
            packet[24..26].fill(0);
            packet.extend(options);
            let sum = checksum::of(&packet[14..]);
            packet[24..26].copy_from_slice(&sum.to_be_bytes());
        }
        packet.extend(tcp);
        packet
    }
}

/// Some place near a sequence number, or far from it.
fn near() -> impl Strategy<Value = u32> {
    prop_oneof![
        6 => (-2..6_i32).prop_map(|n| (n * 1000).cast_unsigned()),
        2 => (-70_000..3_000_000_i32).prop_map(i32::cast_unsigned),
        1 => any::<u32>(),
    ]
}

fn slot() -> impl Strategy<Value = Slot> {
    let mostly = || prop::bool::weighted(0.9);
    let scale = prop::option::weighted(0.9, 0..15_u8);
    let seldom = || prop::bool::weighted(0.05);
    let control = (mostly(), mostly(), any::<bool>(), (seldom(), seldom()), scale);
    let known = (mostly(), mostly(), mostly(), mostly());
    let places = [near(), near(), near(), near(), near()];
    let repeated = prop_oneof![Just(0), Just(1 << 62)];
    let echo = prop_oneof![Just(0), any::<u32>()];
    let inherited = prop::option::weighted(0.8, near());
    let rest = (any::<[u32; 8]>(), echo, repeated, inherited);
    (control, known, places, rest).prop_map(|(control, known, places, rest)| {
        let (live, hold, may_end, (mute, opening), window_scale) = control;
        let (base, kernel, edge, let_out) = known;
        let (numbers, echo, repeated, inherited) = rest;
        let at = |place: u32| numbers[0].wrapping_add(place);
        Slot {
            control: Control { live, hold, may_end, mute, opening, window_scale },
            told: Told { offset: places[0], echo },
            inherited: inherited.map(|place| places[2].wrapping_add(place)),
            seen: Seen {
                known: Known { base, kernel, edge, let_out },
                base: numbers[0],
                kernel_ack: at(places[1]),
                kernel_echo: numbers[1],
                next_seq: places[2],
                next_value: numbers[2],
                edge: at(places[3]),
                let_out: at(places[4]),
                repeated,
                lowered: numbers[3],
                swallowed: numbers[4],
                ended: numbers[5],
                injected: numbers[6],
                cut: numbers[7],
            },
        }
    })
}

fn segment() -> impl Strategy<Value = Segment> {
    let flags = prop_oneof![
        8 => Just(Flags::ACK),
        1 => Just(Flags::ACK.with(Flags::FIN)),
        1 => any::<u8>().prop_map(Flags::from_bits),
    ];
    let urgent = prop_oneof![4 => Just(0), 2 => Just(acknowledge::INJECTED), 1 => any::<u16>()];
    let payload = prop_oneof![2 => Just(0), 1 => 1..1400_u32];
    let timestamps = prop::option::of(any::<(u32, u32)>());
    (near(), near(), any::<u16>(), flags, urgent, payload, timestamps).prop_map(
        |(seq, ack, window, flags, urgent, payload, timestamps)| Segment {
            seq,
            ack,
            window,
            flags,
            urgent,
            payload,
            timestamps,
            sack: false,
        },
    )
}

fn flow(is_ipv4: bool) -> Flow {
    let [local, remote] = if is_ipv4 {
        ["10.9.0.7:40000", "192.0.2.1:80"]
    } else {
        ["[fd00:9::7]:40000", "[2001:db8::1]:80"]
    };
    Flow { local: local.parse().unwrap(), remote: remote.parse().unwrap() }
}

fn filter_for_test(connections: u32) -> Option<AckFilter> {
    lasthop_testing::or_skip(AckFilter::new(connections), AckFilterError::is_unavailable)
}

impl Slots {
    fn put(&self, n: u32, slot: &Slot) {
        slot.words().into_iter().enumerate().for_each(|(at, word)| {
            assert!(self.write(n, at, word));
        });
    }

    fn slot(&self, n: u32) -> Slot {
        self.get(n).unwrap()
    }
}

/// The program does what the rule says: verdict, bytes and checksum, and what it notes.
#[test]
fn the_program_follows_the_rule() {
    let Some(mut filter) = filter_for_test(3) else { return };
    let numbers = [true, false].map(|is_ipv4| filter.insert(flow(is_ipv4)).unwrap());
    let config = ProptestConfig::with_cases(10_000);
    proptest!(config, |(
        before in slot(), segment in segment(), is_ipv4: bool, ip_options: bool,
        blocks in 0..4_usize, others in 0..2_usize, is_last: bool,
    )| {
        let base = before.seen.base;
        let ack = if is_last { before.seen.kernel_ack } else { base.wrapping_add(segment.ack) };
        let segment = Segment { ack, sack: blocks > 0, ..segment };
        let shape = Shape { flow: flow(is_ipv4), ip_options, blocks, others: others.min(3 - blocks) };
        let n = numbers[usize::from(!is_ipv4)];
        filter.slots.put(n, &before);
        let packet = shape.packet(&segment);
        let run = filter.ethernet.out.test_run(&packet, 1).unwrap();
        // Later than any time that is zero, earlier than the others.
        let mut after = before;
        let verdict = acknowledge::filter(&mut after, &segment, 1 << 40);
        let mut noted = filter.slots.slot(n);
        if after.seen.repeated != before.seen.repeated {
            prop_assert!(noted.seen.repeated != 0);
            noted.seen.repeated = after.seen.repeated;
        }
        prop_assert_eq!(noted, after);
        let (expected, leaves) = match verdict {
            Verdict::Pass => (packet, true),
            Verdict::Drop => (packet, false),
            Verdict::Rewrite(segment) => (shape.packet(&segment), true),
        };
        prop_assert_eq!(run.verdict, if leaves { NEXT } else { SHOT }, "{:?}", verdict);
        prop_assert_eq!(run.packet, expected, "{:?}", verdict);
    });
}

/// ACK-11: so does the other, of what comes from the fixed host.
#[test]
fn the_program_for_what_comes_in_follows_the_rule() {
    let Some(mut filter) = filter_for_test(3) else { return };
    let numbers = [true, false].map(|is_ipv4| filter.insert(flow(is_ipv4)).unwrap());
    let config = ProptestConfig::with_cases(10_000);
    proptest!(config, |(
        before in slot(), segment in segment(), is_ipv4: bool, ip_options: bool, blocks in 0..4_usize,
    )| {
        let ack = before.seen.next_seq.wrapping_add(segment.ack);
        let segment = Segment { ack, sack: blocks > 0, ..segment };
        let Flow { local, remote } = flow(is_ipv4);
        let shape = Shape { flow: Flow { local: remote, remote: local }, ip_options, blocks, others: 0 };
        let n = numbers[usize::from(!is_ipv4)];
        filter.slots.put(n, &before);
        let run = filter.ethernet.into.test_run(&shape.packet(&segment), 1).unwrap();
        let mut after = before;
        let ack = match segment.flags.contains(Flags::ACK) {
            true => acknowledge::receive(&mut after, segment.ack),
            false => segment.ack,
        };
        prop_assert_eq!(filter.slots.slot(n), after);
        prop_assert_eq!((run.verdict, run.packet), (NEXT, shape.packet(&Segment { ack, ..segment })));
    });
}

fn live() -> Slot {
    let control = Control { live: true, hold: true, window_scale: Some(7), ..Control::default() };
    Slot { control, ..Slot::default() }
}

#[test]
fn what_is_no_segment_of_a_held_connection_passes() {
    let Some(mut filter) = filter_for_test(2) else { return };
    let flows = [true, false].map(flow);
    for flow in flows {
        let n = filter.insert(flow).unwrap();
        let mute = Control { mute: true, ..live().control };
        filter.slots.put(n, &Slot { control: mute, ..live() });
    }
    let segment = Segment { flags: Flags::ACK, ..Segment::default() };
    let shape = |flow| Shape { flow, ip_options: false, blocks: 0, others: 0 };
    let verdict = |packet: &[u8]| filter.ethernet.out.test_run(packet, 1).unwrap().verdict;
    for flow in flows {
        let packet = shape(flow).packet(&segment);
        assert_eq!(verdict(&packet), SHOT);
        let reversed = Flow { local: flow.remote, remote: flow.local };
        assert_eq!(verdict(&shape(reversed).packet(&segment)), NEXT);
        let with = |at: usize, byte: u8| {
            let mut packet = packet.clone();
            packet[at] = byte;
            packet
        };
        // What follows IP's header; its version; TCP's length.
        let (protocol, tcp) = if flow.local.is_ipv4() { (23, 34) } else { (20, 54) };
        for (at, byte) in [(protocol, 17), (protocol, 44), (14, 0x55)] {
            assert_eq!(verdict(&with(at, byte)), NEXT, "{at} {byte}");
        }
        assert_eq!(verdict(&packet[..tcp + 10]), NEXT);
    }
    let mut fragment = shape(flows[0]).packet(&segment);
    for (byte, passes) in [(0x40, SHOT), (0x20, NEXT), (0x01, NEXT)] {
        fragment[20] = byte;
        assert_eq!(verdict(&fragment), passes, "{byte:x}");
    }
    for flow in flows {
        assert!(filter.remove(&flow).unwrap() && !filter.remove(&flow).unwrap());
        let verdict =
            filter.ethernet.out.test_run(&shape(flow).packet(&segment), 1).unwrap().verdict;
        assert_eq!(verdict, NEXT);
    }
}

/// Bytes that are no options as Linux writes them stay, and the number is lowered all the same.
#[test]
fn options_in_other_layouts_are_left_alone() {
    let Some(mut filter) = filter_for_test(1) else { return };
    let flow = flow(true);
    let n = filter.insert(flow).unwrap();
    let known = Known { base: true, ..Known::default() };
    let seen = Seen { known, ..Seen::default() };
    let echo = 0x0505_0505;
    filter.slots.put(n, &Slot { told: Told { offset: 10, echo }, seen, ..live() });
    let flags = Flags::ACK;
    let segment = Segment { ack: 1000, flags, payload: 4, sack: true, ..Segment::default() };
    let sack = Shape { flow, ip_options: false, blocks: 1, others: 0 };
    // A block more than there is room for, half a block, none; timestamps before their NOPs.
    let options: [&[u8]; 4] = [&[1, 1, 5, 18], &[1, 1, 5, 6], &[1, 1, 5, 2], &[8, 10, 1, 1]];
    for option in options {
        let mut packet = sack.packet(&segment);
        packet[54..58].copy_from_slice(option);
        let after = filter.ethernet.out.test_run(&packet, 1).unwrap().packet;
        assert_eq!(after[42..46], 10_u32.to_be_bytes(), "{option:?}");
        assert_eq!(after[54..], packet[54..], "{option:?}");
    }
}

#[test]
fn slots_are_taken_zeroed_and_given_back() {
    let Some(mut filter) = filter_for_test(2) else { return };
    let [a, b] = [true, false].map(flow);
    let first = filter.insert(a).unwrap();
    filter.slots.put(first, &live());
    assert!(matches!(filter.insert(a), Err(AckFilterError::Present(flow)) if flow == a));
    let second = filter.insert(b).unwrap();
    assert_ne!(first, second);
    let c = Flow { local: a.remote, remote: a.local };
    assert!(matches!(filter.insert(c), Err(AckFilterError::Full(2))));
    assert!(filter.remove(&a).unwrap());
    assert_eq!(filter.insert(c).unwrap(), first);
    let theirs = Slots::of(filter.slots().as_fd().try_clone_to_owned().unwrap()).unwrap();
    assert_eq!((theirs.len(), theirs.read(first)), (2, Some([0; WORDS])));
    assert!(theirs.write(first, 1, 7) && !theirs.write(first, WORDS, 7) && !theirs.write(2, 0, 7));
    assert_eq!(filter.slots().read(first).unwrap()[1], 7);
}

#[test]
fn an_acknowledgement_of_our_own_has_right_checksums() {
    for (is_ipv4, has_timestamps) in [(true, true), (true, false), (false, true), (false, false)] {
        let flow = flow(is_ipv4);
        let packet = inject::acknowledgement(&flow, has_timestamps, 9).unwrap();
        let (header, tcp) = Header::parse(&packet).unwrap();
        let (segment, _) = tcp::Segment::parse(&header.addresses, tcp).unwrap();
        let ports = (segment.src_port, segment.dst_port);
        assert_eq!(ports, (flow.local.port(), flow.remote.port()));
        assert_eq!(segment.options.timestamps.is_some(), has_timestamps);
        assert_eq!(tcp[18..20], acknowledge::INJECTED.to_be_bytes());
    }
    let mixed = Flow { local: flow(true).local, remote: flow(false).remote };
    assert!(inject::acknowledgement(&mixed, true, 9).is_none());
}
