//! The supervisor host, packet by packet.

mod queue;
mod random;
mod timers;

use alloc::vec;
use alloc::vec::Vec;

use lasthop_units::{Duration, LinkEvent, Time};
use lasthop_wire::tcp::{Flags, Options, SackBlocks, Segment, Seq, Timestamps};

use super::*;
use crate::link::fake::{Fake, connection};

const MS: Duration = Duration::from_millis(1);
const WINDOW: u16 = 500;

fn at(ms: u64) -> Time {
    Time::from_millis(ms)
}

/// What comes out: the first byte of a packet to the mobile, or what the fixed host is told, and
/// whether it was made here.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Out {
    Data(u32),
    Ack(u32, u16),
    Made(u32, u16),
    Other,
}
use Out::{Ack, Data, Made};

struct Sh(MTcp<Fake>);

impl Sh {
    /// With a mobile that waits for byte 1000.
    fn new(config: &MTcpConfig) -> Self {
        let mut sh = Self(MTcp::new(config));
        assert_eq!(sh.ack(0, 1000), [Ack(1000, WINDOW)]);
        sh
    }

    fn outputs(&mut self) -> Vec<Out> {
        let out = |output: Output<Fake>| match output {
            Output::Packet { towards: Side::Mobile, packet } => Data(packet.id),
            Output::Packet { towards: Side::Fixed, packet } => {
                packet.tcp.map_or(Out::Other, |tcp| Ack(tcp.segment.ack.0, tcp.segment.window))
            }
            Output::Segment { towards: Side::Fixed, segment, .. } => {
                Made(segment.ack.0, segment.window)
            }
            _ => Out::Other,
        };
        core::iter::from_fn(|| self.0.poll_output()).map(out).collect()
    }

    fn fixed(&mut self, ms: u64, segment: Segment) -> Vec<Out> {
        let packet = Fake::segment(&connection(1), Side::Fixed, segment);
        self.0.handle_packet(at(ms), Side::Fixed, packet);
        self.outputs()
    }

    fn data(&mut self, ms: u64, seq: u32, len: u32) -> Vec<Out> {
        let flags = Flags::ACK;
        self.fixed(ms, Segment { seq: Seq(seq), flags, len, ..Segment::default() })
    }

    fn mobile(&mut self, ms: u64, segment: Segment) -> Vec<Out> {
        let packet = Fake::segment(&connection(1), Side::Mobile, segment);
        self.0.handle_packet(at(ms), Side::Mobile, packet);
        self.outputs()
    }

    fn ack(&mut self, ms: u64, ack: u32) -> Vec<Out> {
        self.mobile(ms, acking(ack))
    }

    fn event(&mut self, ms: u64, event: LinkEvent) -> Vec<Out> {
        self.0.handle_link_event(at(ms), event);
        self.outputs()
    }

    /// Lets time pass up to `ms`; what came out, and when.
    fn wait(&mut self, ms: u64) -> Vec<(Time, Out)> {
        let mut all = Vec::new();
        while let Some(now) = self.0.next_timeout().filter(|now| *now <= at(ms)) {
            self.0.handle_timeout(now);
            all.extend(self.outputs().into_iter().map(|out| (now, out)));
        }
        all
    }

    fn is_off(&mut self) -> bool {
        self.0.is_disconnected(&connection(1)).unwrap()
    }

    /// Sends segments of 1000 bytes from `first` on.
    fn burst(&mut self, ms: u64, first: u32, n: u32) {
        for seq in (0..n).map(|n| first.wrapping_add(1000 * n)) {
            assert_eq!(self.data(ms, seq, 1000), [Data(seq)]);
        }
    }
}

fn acking(ack: u32) -> Segment {
    Segment { seq: Seq(77), ack: Seq(ack), flags: Flags::ACK, window: WINDOW, ..Segment::default() }
}

fn with_sack(ack: u32, blocks: &[(u32, u32)]) -> Segment {
    let mut sack = SackBlocks::default();
    for (from, to) in blocks {
        sack.push(Seq(*from), Seq(*to));
    }
    Segment { options: Options { sack, ..Options::default() }, ..acking(ack) }
}

fn sh() -> Sh {
    Sh::new(&MTcpConfig::default())
}

/// MTC-1, MTC-2: the fixed host is told what the mobile has acknowledged and nothing else, all but
/// the last byte.
#[test]
fn the_last_byte_of_each_acknowledgement_is_held_back() {
    let mut sh = sh();
    sh.burst(0, 1000, 3);
    assert_eq!(sh.ack(10, 2000), [Ack(1999, WINDOW)]);
    assert_eq!(sh.ack(11, 3000), [Ack(2999, WINDOW)]);
    assert_eq!(sh.data(12, 4000, 1000), [Data(4000)]);
    assert_eq!(sh.ack(13, 4000), [Ack(3999, WINDOW)]);
    assert_eq!(sh.0.stats().held, 3);
}

/// MTC-2: when nothing comes after the held byte it is acknowledged after a short time, so that a
/// transfer, or a request, ends.
#[test]
fn a_byte_with_nothing_after_it_is_let_go() {
    let mut sh = sh();
    sh.burst(0, 1000, 1);
    assert_eq!(sh.ack(10, 2000), [Ack(1999, WINDOW)]);
    assert_eq!(sh.wait(10_000), [(at(30), Made(2000, WINDOW))]);
    // What comes later begins anew.
    sh.burst(10_001, 2000, 1);
    assert_eq!(sh.ack(10_010, 3000), [Ack(2999, WINDOW)]);
}

/// MTC-2: data that comes keeps the byte held.
#[test]
fn a_byte_with_something_after_it_stays_held() {
    let mut sh = sh();
    sh.burst(0, 1000, 1);
    assert_eq!(sh.ack(10, 2000), [Ack(1999, WINDOW)]);
    sh.burst(20, 2000, 1);
    assert_eq!(sh.wait(40), []);
}

/// MTC-2: an acknowledgement of one byte would be a duplicate without it.
#[test]
fn an_acknowledgement_of_one_byte_waits_whole() {
    let mut sh = sh();
    assert_eq!(sh.data(0, 1000, 1), [Data(1000)]);
    assert_eq!(sh.ack(10, 1001), []);
    assert_eq!(sh.wait(1000), [(at(30), Made(1001, WINDOW))]);
}

/// MTC-2: the fixed host sends again what it was not told of: then it is told.
#[test]
fn a_source_that_asks_for_the_held_byte_gets_it() {
    let mut sh = sh();
    sh.burst(0, 1000, 2);
    assert_eq!(sh.ack(10, 2000), [Ack(1999, WINDOW)]);
    assert_eq!(sh.data(20, 1999, 1), [Made(2000, WINDOW)]);
}

/// MTC-3: the held byte and a window of zero, in the mobile's name.
#[test]
fn a_hop_that_goes_down_closes_the_window() {
    let mut sh = sh();
    sh.burst(0, 1000, 3);
    let stamped = |ack, value, echo| {
        let timestamps = Some(Timestamps { value, echo });
        let options = Options { timestamps, ..Options::default() };
        Segment { options, len: 5, ..acking(ack) }
    };
    assert_eq!(sh.mobile(10, stamped(2000, 900, 40)), [Ack(1999, WINDOW)]);
    sh.0.handle_link_event(at(12), LinkEvent::Down);
    let Some(Output::Segment { towards, connection: of, segment }) = sh.0.poll_output() else {
        panic!("no segment");
    };
    assert_eq!((towards, of), (Side::Fixed, connection(1)));
    let expected = Segment {
        src_port: 1,
        dst_port: 80,
        seq: Seq(82),
        window: 0,
        len: 0,
        ..stamped(2000, 900, 40)
    };
    assert_eq!(segment, expected);
    assert_eq!(sh.event(13, LinkEvent::Down), [], "once");
}

/// MTC-3, MTC-6: a mobile that owes an acknowledgement and says nothing for a few round trips of
/// the hop is disconnected. Before that the hop is asked.
#[test]
fn a_silent_mobile_is_disconnected() {
    let mut sh = sh();
    sh.burst(0, 1000, 1);
    assert_eq!(sh.ack(20, 2000), [Ack(1999, WINDOW)]);
    sh.burst(30, 2000, 2);
    assert_eq!(
        sh.wait(240),
        [(at(90), Data(2000)), (at(210), Data(2000)), (at(230), Made(2000, 0))]
    );
    assert!(sh.is_off());
}

/// MTC-6: with a long round trip silence takes longer to mean something.
#[test]
fn the_time_to_disconnection_follows_the_hops_round_trip() {
    let mut sh = sh();
    sh.burst(0, 1000, 1);
    sh.ack(100, 2000);
    sh.burst(100, 2000, 1);
    sh.wait(499);
    assert!(!sh.is_off());
    sh.wait(500);
    assert!(sh.is_off());
}

#[test]
fn a_mobile_that_owes_nothing_may_be_silent() {
    let mut sh = sh();
    sh.burst(0, 1000, 1);
    sh.ack(10, 2000);
    sh.wait(100_000);
    assert!(!sh.is_off());
}

#[test]
fn a_mobile_that_closes_its_own_window_may_be_silent() {
    let mut sh = sh();
    sh.burst(0, 1000, 2);
    let closed = Segment { window: 0, ..acking(2000) };
    assert_eq!(sh.mobile(10, closed), [Ack(2000, 0)], "there is nothing to hold a byte for");
    assert_eq!(sh.wait(10_000), []);
    assert!(!sh.is_off());
}

/// MTC-3: while the mobile is off, the fixed host's probes are answered, and passed on, since the
/// hop may carry again. What is no probe is kept and not answered: it would count as duplicates.
#[test]
fn probes_are_answered_for_the_mobile() {
    let mut sh = sh();
    sh.burst(0, 1000, 1);
    sh.ack(10, 2000);
    assert_eq!(sh.event(20, LinkEvent::Down), [Made(2000, 0)]);
    assert_eq!(sh.data(21, 2000, 1000), [Made(2000, 0)]);
    assert_eq!(sh.data(22, 3000, 1000), []);
    assert_eq!(sh.data(23, 2000, 1), [Made(2000, 0)]);
    assert_eq!(sh.data(24, 1999, 0), [Data(1999), Made(2000, 0)]);
    assert_eq!(sh.0.stats().probes_answered, 3);
    assert_eq!(sh.0.kept(), 2);
}

/// MTC-4: the hop is up: a fresh acknowledgement with the mobile's window, and all that is missing.
#[test]
fn a_hop_that_comes_up_opens_the_window_and_sends_what_is_missing() {
    let mut sh = sh();
    sh.burst(0, 1000, 2);
    sh.ack(10, 2000);
    sh.event(20, LinkEvent::Down);
    assert_eq!(sh.data(21, 3000, 1000), []);
    assert_eq!(sh.event(500, LinkEvent::Up), [Data(2000), Data(3000), Made(2000, WINDOW)]);
    assert_eq!(sh.ack(510, 4000), [Ack(3999, WINDOW)]);
}

/// MTC-4: any packet of the mobile is its greeting. It tells the highest byte received, and with
/// SACK more: only what is missing is sent.
#[test]
fn a_greeting_opens_the_window_and_names_what_is_missing() {
    let mut sh = sh();
    sh.burst(0, 1000, 5);
    sh.ack(10, 2000);
    assert_eq!(sh.event(20, LinkEvent::Down), [Made(2000, 0)]);
    let greeting = with_sack(3000, &[(4000, 5000)]);
    assert_eq!(sh.mobile(500, greeting), [Data(3000), Data(5000), Ack(3000, WINDOW)]);
    assert!(!sh.is_off());
}

/// MTC-4: an acknowledgement that was overtaken still shows that the mobile is there, but opens no
/// window by itself.
#[test]
fn an_old_greeting_opens_the_window_with_a_new_acknowledgement() {
    let mut sh = sh();
    sh.burst(0, 1000, 2);
    sh.ack(10, 2000);
    sh.event(20, LinkEvent::Down);
    assert_eq!(sh.ack(500, 1000), [Data(2000), Made(2000, WINDOW), Ack(1000, WINDOW)]);
}

/// MTC-4: what was in the air when the hop went down is no greeting.
#[test]
fn what_was_in_the_air_keeps_the_window_closed() {
    let mut sh = sh();
    sh.burst(0, 1000, 3);
    sh.ack(10, 2000);
    assert_eq!(sh.event(20, LinkEvent::Down), [Made(2000, 0)]);
    assert_eq!(sh.ack(22, 3000), [Ack(3000, 0)]);
    assert!(sh.is_off());
}

/// MTC-4: a mobile that says nothing by itself is asked, at a steady interval.
#[test]
fn a_disconnected_mobile_is_probed_until_it_answers() {
    let mut sh = sh();
    sh.burst(0, 1000, 2);
    sh.ack(10, 2000);
    sh.event(20, LinkEvent::Down);
    assert_eq!(sh.wait(650), [(at(220), Data(2000)), (at(420), Data(2000)), (at(620), Data(2000))]);
    assert_eq!(sh.ack(660, 3000), [Ack(3000, WINDOW)]);
}

/// MTC-5: a loss on the hop is repaired on the first duplicate and hidden from the fixed host, and
/// so makes nobody send less.
#[test]
fn the_hops_losses_are_repaired_here() {
    let mut sh = sh();
    sh.burst(0, 1000, 1);
    sh.ack(10, 2000);
    sh.burst(20, 2000, 4);
    assert_eq!(sh.ack(31, 2000), [Data(2000)]);
    assert_eq!(sh.ack(32, 2000), []);
    assert_eq!(sh.ack(33, 2000), []);
    assert_eq!(sh.ack(45, 6000), [Ack(5999, WINDOW)]);
    assert_eq!((sh.0.stats().repaired, sh.0.stats().suppressed), (1, 3));
}

/// MTC-5: with SACK all holes are filled at once, without it one for each partial acknowledgement.
#[test]
fn several_losses_are_repaired_together() {
    let mut sh = sh();
    sh.burst(0, 1000, 1);
    sh.ack(10, 2000);
    sh.burst(20, 2000, 5);
    let duplicate = with_sack(2000, &[(5000, 6000), (3000, 4000)]);
    assert_eq!(sh.mobile(31, duplicate), [Data(2000), Data(4000)]);
    assert_eq!(sh.ack(45, 6000), [Data(6000), Ack(5999, WINDOW)]);
}

/// MTC-1: what was lost before it came here is the fixed host's to repair.
#[test]
fn duplicates_for_what_never_came_here_pass() {
    let mut sh = sh();
    sh.burst(0, 1000, 1);
    sh.ack(10, 2000);
    sh.burst(20, 3000, 2);
    for ms in [31, 32, 33] {
        assert_eq!(sh.ack(ms, 2000), [Ack(1999, WINDOW)]);
    }
}

/// MTC-5: after a disconnection as much is under way as before, and no more than asked for.
#[test]
fn what_was_kept_is_sent_within_the_hops_window() {
    let mut sh = Sh::new(&MTcpConfig { hop_window: 2, ..MTcpConfig::default() });
    sh.burst(0, 1000, 4);
    sh.event(1, LinkEvent::Down);
    assert_eq!(sh.event(9, LinkEvent::Up), [Data(1000), Data(2000), Made(1000, WINDOW)]);
    assert_eq!(sh.data(10, 5000, 1000), [], "its turn comes");
    assert_eq!(sh.ack(20, 2000), [Data(3000), Ack(1999, WINDOW)]);
    assert_eq!(sh.ack(21, 4000), [Data(4000), Data(5000), Ack(3999, WINDOW)]);
    assert_eq!(sh.data(22, 6000, 1000), [Data(6000)]);
}

/// MTC-7: state and buffers move to another supervisor host, which goes on where the first was.
#[test]
fn another_supervisor_host_goes_on() {
    let mut old = sh();
    old.burst(0, 1000, 3);
    old.ack(10, 2000);
    old.event(20, LinkEvent::Down);
    let state = old.0.take(connection(1).mobile.ip());
    assert_eq!(state.connections().collect::<Vec<_>>(), [&connection(1)]);
    assert_eq!((state.kept(), old.0.kept()), (2, 0));
    let mut new = Sh(MTcp::new(&MTcpConfig::default()));
    new.0.adopt(at(300), state);
    assert!(new.is_off());
    assert_eq!(new.data(301, 2000, 1), [Made(2000, 0)]);
    assert_eq!(new.ack(310, 2000), [Data(2000), Data(3000), Ack(2000, WINDOW)]);
    assert_eq!(new.ack(320, 4000), [Ack(3999, WINDOW)]);
}

/// MTC-7: a base of the same supervisor host is none of its business; a mobile that goes elsewhere
/// without its state leaves nothing behind.
#[test]
fn a_removed_mobile_leaves_nothing() {
    let mut sh = sh();
    sh.burst(0, 1000, 3);
    sh.0.remove_mobile(connection(1).mobile.ip());
    assert_eq!((sh.0.kept(), sh.wait(100_000)), (0, vec![]));
}

/// MTC-8: the buffer has a bound; what finds no room passes by.
#[test]
fn the_buffer_is_bounded() {
    let mut sh = Sh::new(&MTcpConfig { buffer: 3, ..MTcpConfig::default() });
    sh.burst(0, 1000, 5);
    assert_eq!((sh.0.kept(), sh.0.stats().unkept), (3, 2));
}

#[test]
fn a_fin_is_acknowledged_whole() {
    let mut sh = sh();
    let flags = Flags::ACK.with(Flags::FIN);
    let fin = Segment { seq: Seq(1000), flags, len: 1000, ..Segment::default() };
    assert_eq!(sh.fixed(0, fin), [Data(1000)]);
    assert_eq!(sh.ack(10, 2001), [Ack(2001, WINDOW)]);
    assert_eq!(sh.wait(1000), []);
}

#[test]
fn a_reset_ends_what_is_known() {
    let mut sh = sh();
    sh.burst(0, 1000, 3);
    sh.mobile(5, Segment { flags: Flags::RST, ..acking(0) });
    assert_eq!(sh.0.is_disconnected(&connection(1)), None);
    assert_eq!(sh.wait(10_000), []);
}

/// The handshake's own acknowledgements are whole, and the window of a SYN, which is not scaled, is
/// not repeated.
#[test]
fn a_handshake_is_not_held_up() {
    let mut sh = Sh(MTcp::new(&MTcpConfig::default()));
    let syn = Segment { seq: Seq(999), flags: Flags::SYN, ..Segment::default() };
    assert_eq!(sh.fixed(0, syn), [Data(999)]);
    let flags = Flags::SYN.with(Flags::ACK);
    let answer = Segment { flags, window: 60_000, ..acking(1000) };
    assert_eq!(sh.mobile(10, answer), [Ack(1000, 60_000)]);
    sh.burst(20, 1000, 1);
    assert_eq!(sh.event(21, LinkEvent::Down), [Made(1000, 0)]);
    assert_eq!(sh.event(22, LinkEvent::Up), [Data(1000)]);
    assert_eq!(sh.ack(30, 2000), [Ack(1999, WINDOW)]);
}

#[test]
fn sequence_numbers_wrap() {
    let mut sh = Sh(MTcp::new(&MTcpConfig::default()));
    let first = 0_u32.wrapping_sub(1500);
    sh.ack(0, first);
    sh.burst(0, first, 3);
    assert_eq!(sh.ack(10, first.wrapping_add(1000)), [Ack(first.wrapping_add(999), WINDOW)]);
    assert_eq!(sh.ack(11, 500), [Ack(499, WINDOW)]);
    assert_eq!(sh.event(20, LinkEvent::Down), [Made(500, 0)]);
    assert_eq!(sh.event(30, LinkEvent::Up), [Data(500), Made(500, WINDOW)]);
}

#[test]
fn what_is_not_understood_passes() {
    let mut sh = sh();
    sh.0.handle_packet(at(0), Side::Fixed, Fake::hidden(5));
    assert_eq!(sh.outputs(), [Data(5)]);
    assert_eq!(sh.data(0, 1 << 31, 1000), [Data(1 << 31)]);
    assert_eq!(sh.ack(1, 9000), [Ack(9000, WINDOW)], "nothing was sent there");
    sh.burst(2, 1000, 1);
    assert_eq!(sh.ack(10, 2000), [Ack(1999, WINDOW)]);
}

/// MTC-1: a duplicate that answers a needless copy brings no copy of what waits in the hop's queue,
/// whose duplicate would bring the next, and the next.
#[test]
fn what_came_twice_brings_no_repair() {
    let mut sh = sh();
    sh.burst(0, 1000, 2);
    sh.ack(20, 3000);
    // The fixed host repeats what the mobile has, as after a timeout.
    assert!(sh.data(21, 1000, 1000).contains(&Data(1000)));
    sh.burst(22, 3000, 4);
    assert_eq!(sh.ack(60, 3000), [], "its answer tells of no loss");
    assert_eq!(sh.ack(61, 3000), [Data(3000)], "another one does");
}

/// MTC-1: what the fixed host repeats while it is under way to the mobile does not go twice.
#[test]
fn what_is_under_way_is_not_sent_again_for_the_fixed_host() {
    let mut sh = sh();
    sh.burst(0, 1000, 3);
    assert_eq!(sh.data(5, 1000, 1000), []);
    assert_eq!(sh.ack(10, 4000), [Ack(3999, WINDOW)]);
}

/// MTC-5: a copy that is older than what the fixed host has sent since would be refused for ever.
#[test]
fn what_is_sent_again_bears_the_fixed_hosts_latest_timestamps() {
    let mut sh = Sh::new(&MTcpConfig::default());
    let data = |seq: u32, value: u32| {
        let timestamps = Some(Timestamps { value, echo: 7 });
        let options = Options { timestamps, ..Options::default() };
        Segment { seq: Seq(seq), flags: Flags::ACK, len: 100, options, ..Segment::default() }
    };
    sh.fixed(0, data(1000, u32::MAX));
    sh.fixed(0, data(1100, u32::MAX));
    sh.fixed(1, data(900, 5));
    sh.0.handle_link_event(at(2), LinkEvent::Down);
    sh.outputs();
    sh.0.handle_link_event(at(3), LinkEvent::Up);
    let sent = core::iter::from_fn(|| sh.0.poll_output()).filter_map(|output| match output {
        Output::Packet { towards: Side::Mobile, packet } => {
            let segment = packet.tcp?.segment;
            Some((segment.seq.0, segment.options.timestamps?.value))
        }
        _ => None,
    });
    assert_eq!(sent.collect::<Vec<_>>(), [(1000, 5), (1100, 5)]);
}
