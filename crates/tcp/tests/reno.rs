//! RENO-1 to RENO-12 on one connection whose peer is played by the test.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use lasthop_tcp::{
    AckRequest, AckWindow, Algorithm, Config, Connection, Event, LossBase, Ports, ShrunkWindow,
    State, Window,
};
use lasthop_units::{Bytes, Duration, LinkEvent, Time};
use lasthop_wire::tcp::{Flags, Options, Segment, Seq};

const MSS: u32 = 1000;
const ISS: Seq = Seq(u32::MAX - 2500);
const PEER: Seq = Seq(u32::MAX - 1500);

/// A connection and the peer's side of the conversation.
struct Peer {
    now: Time,
    it: Connection,
    window: u16,
}

fn config() -> Config {
    Config {
        window_scale: false,
        cwnd_max: None,
        initial_cwnd: Window::Segments(8),
        limited_transmit: false,
        loss_base: LossBase::Flight,
        recv_buffer: Bytes::new(8000),
        ..Config::ns2()
    }
}

impl Peer {
    /// A connection that stands, after a round trip of 100 ms.
    fn connected(config: Config) -> Self {
        let now = Time::from_secs(1);
        let ports = Ports { local: 1, remote: 2 };
        let mut it = Connection::connect(config, ports, ISS, now);
        let syn = it.poll_transmit(now).unwrap().segment;
        assert_eq!((syn.flags, syn.seq, syn.options.mss), (Flags::SYN, ISS, Some(config.mss)));
        let mut peer = Self { now: now + Duration::from_millis(100), it, window: 60_000 };
        peer.segment(Segment {
            seq: PEER,
            ack: ISS + 1,
            flags: Flags::SYN.with(Flags::ACK),
            window: peer.window,
            options: Options { mss: Some(MSS as u16), ..Options::default() },
            ..Segment::default()
        });
        let ack = peer.poll();
        assert_eq!((ack.len(), ack[0].flags, ack[0].ack), (1, Flags::ACK, PEER + 1));
        assert_eq!(peer.it.poll_event(), Some(Event::Connected));
        peer
    }

    fn segment(&mut self, segment: Segment) {
        self.it.handle_segment(self.now, &segment);
    }

    /// The peer acknowledges the first `n` bytes of our stream.
    fn ack(&mut self, n: u32) {
        self.segment(Segment {
            seq: PEER + 1,
            ack: ISS + 1 + n,
            flags: Flags::ACK,
            window: self.window,
            ..Segment::default()
        });
    }

    /// The peer sends `len` bytes from `offset` of its stream.
    fn data(&mut self, offset: u32, len: u32) {
        self.segment(Segment {
            seq: PEER + 1 + offset,
            ack: ISS + 1,
            flags: Flags::ACK,
            window: self.window,
            len,
            ..Segment::default()
        });
    }

    fn poll(&mut self) -> Vec<Segment> {
        let (it, now) = (&mut self.it, self.now);
        std::iter::from_fn(|| it.poll_transmit(now)).map(|o| o.segment).take(100).collect()
    }

    /// The offsets in our stream of the data segments that go out.
    fn offsets(&mut self) -> Vec<u32> {
        let data = self.poll().into_iter().filter(|s| s.len > 0);
        data.map(|s| (s.seq - ISS.0 - 1).0).collect()
    }

    fn write(&mut self, n: u64) {
        assert_eq!(self.it.write(Bytes::new(n)), Bytes::new(n));
    }

    /// Time passes until the next timer, which expires; how long that took.
    fn expire(&mut self) -> Duration {
        let at = self.it.next_timeout().expect("a timer");
        let waited = at.since(self.now);
        self.now = at;
        self.it.handle_timeout(at);
        waited
    }

    fn cwnd(&self) -> u64 {
        self.it.probe().cwnd.get()
    }

    fn ssthresh(&self) -> u64 {
        self.it.probe().ssthresh.get()
    }
}

/// Eight segments are out, the first of them is lost, and `n` duplicates have come.
fn with_duplicates(config: Config, n: u32) -> Peer {
    let mut peer = Peer::connected(config);
    peer.write(100_000);
    assert_eq!(peer.offsets(), [0, 1000, 2000, 3000, 4000, 5000, 6000, 7000]);
    peer.now += Duration::from_millis(100);
    (0..n).for_each(|_| peer.ack(0));
    peer
}

/// RENO-1: the lesser segment size of both sides is used; the peer's is in its SYN.
#[test]
fn segments_are_as_large_as_both_sides_allow() {
    let mut peer = Peer::connected(Config { mss: 1460, ..config() });
    peer.write(3000);
    assert!(peer.poll().iter().all(|s| s.len == MSS));
    let mut peer = Peer::connected(Config { mss: 400, ..config() });
    peer.write(800);
    assert!(peer.poll().iter().all(|s| s.len == 400));
}

/// RENO-2: one segment more for each acknowledgement below ssthresh, one for each round trip above.
#[test]
fn the_window_doubles_and_then_grows_by_one_segment_a_round_trip() {
    let slow = Config { initial_cwnd: Window::Segments(2), ..config() };
    let slow = Config { initial_ssthresh: Some(Window::Segments(4)), ..slow };
    let mut peer = Peer::connected(slow);
    peer.write(100_000);
    assert_eq!((peer.cwnd(), peer.offsets().len()), (2000, 2));
    peer.ack(1000);
    peer.ack(2000);
    assert_eq!((peer.cwnd(), peer.offsets().len()), (4000, 4));
    (3..7).for_each(|n| peer.ack(n * 1000));
    assert!((4900..=5000).contains(&peer.cwnd()), "{}", peer.cwnd());
    let mut capped = Peer::connected(Config { cwnd_max: Some(Window::Segments(3)), ..slow });
    capped.write(100_000);
    (1..30).for_each(|n| {
        capped.poll();
        capped.ack(n * 1000);
    });
    assert_eq!(capped.cwnd(), 3000);
}

/// RENO-3: the third duplicate retransmits; further ones inflate; the first new one deflates.
#[test]
fn the_third_duplicate_retransmits_and_the_first_new_acknowledgement_ends_recovery() {
    let mut peer = with_duplicates(config(), 2);
    assert!(peer.offsets().is_empty());
    peer.ack(0);
    assert_eq!(peer.offsets(), [0]);
    assert_eq!((peer.ssthresh(), peer.cwnd()), (4000, 7000));
    peer.ack(0);
    assert!(peer.offsets().is_empty());
    peer.ack(0);
    assert_eq!(peer.offsets(), [8000]);
    assert_eq!(peer.cwnd(), 9000);
    // A partial acknowledgement ends Reno's recovery.
    peer.ack(3000);
    assert_eq!((peer.cwnd(), peer.it.probe().recovering), (4000, false));
    assert_eq!(peer.it.stats().fast_retransmits, 1);
    // Duplicates of what went out before recovery are no new sign of loss (RFC 6582).
    (0..5).for_each(|_| peer.ack(3000));
    assert!(!peer.it.probe().recovering);
}

/// RENO-3: ssthresh is never below two segments.
#[test]
fn ssthresh_is_at_least_two_segments() {
    let mut peer = Peer::connected(Config { initial_cwnd: Window::Segments(2), ..config() });
    peer.write(10_000);
    peer.poll();
    peer.expire();
    assert_eq!((peer.ssthresh(), peer.cwnd()), (2000, 1000));
}

/// RENO-12: Tahoe begins again with one segment.
#[test]
fn tahoe_slow_starts_after_a_fast_retransmit() {
    let mut peer = with_duplicates(Config { algorithm: Algorithm::Tahoe, ..config() }, 3);
    assert_eq!(peer.offsets(), [0]);
    assert_eq!((peer.ssthresh(), peer.cwnd()), (4000, 1000));
    peer.ack(8000);
    assert_eq!(peer.offsets(), [8000, 9000]);
}

/// RFC 6582: a partial acknowledgement retransmits the next hole and recovery goes on.
#[test]
fn newreno_stays_in_recovery_until_all_is_acknowledged() {
    let mut peer = with_duplicates(Config { algorithm: Algorithm::NewReno, ..config() }, 3);
    assert_eq!(peer.offsets(), [0]);
    peer.ack(2000);
    assert_eq!(peer.offsets()[0], 2000);
    assert!(peer.it.probe().recovering);
    peer.ack(8000);
    assert!(!peer.it.probe().recovering);
    assert!(peer.cwnd() <= 4000);
}

/// RENO-4: a changed window, data, or nothing outstanding: no duplicate.
#[test]
fn only_the_same_number_with_the_same_window_and_no_data_is_a_duplicate() {
    let mut peer = with_duplicates(config(), 0);
    for n in 0..6 {
        peer.window = 50_000 + n;
        peer.ack(0);
    }
    peer.data(0, 10);
    assert_eq!(peer.it.stats().dupacks_received, 0);
    assert!(peer.offsets().is_empty());
    peer.ack(8000);
    peer.poll();
    let mut idle = Peer::connected(config());
    (0..5).for_each(|_| idle.ack(0));
    assert_eq!(idle.it.stats().dupacks_received, 0);
}

/// RENO-5 and RENO-6: every expiry doubles and counts; a retransmission's acknowledgement is no
/// sample and leaves the timeout doubled; a fresh one ends it.
#[test]
fn timeouts_double_and_go_back_and_only_fresh_data_ends_the_doubling() {
    let mut peer = Peer::connected(config());
    peer.write(100_000);
    peer.poll();
    assert_eq!(peer.expire(), Duration::from_millis(300));
    assert_eq!((peer.cwnd(), peer.ssthresh()), (1000, 4000));
    assert_eq!(peer.offsets(), [0]);
    assert_eq!(peer.expire(), Duration::from_millis(600));
    assert_eq!(peer.offsets(), [0]);
    // RFC 5681: the same data's second expiry leaves ssthresh alone.
    assert_eq!(peer.ssthresh(), 4000);
    assert_eq!(peer.it.stats().timeouts, 2);
    peer.ack(1000);
    assert_eq!(peer.offsets(), [1000, 2000]);
    assert_eq!(peer.it.probe().rto, Duration::from_millis(1200));
    peer.ack(8000);
    assert_eq!(peer.offsets()[0], 8000);
    peer.now += Duration::from_millis(100);
    peer.ack(9000);
    assert!(peer.it.probe().rto < Duration::from_millis(400));
}

/// RENO-6: with BSD's base each expiry halves anew, so that the second leaves two segments.
#[test]
fn the_old_base_halves_at_every_expiry() {
    let mut peer = with_duplicates(Config { loss_base: LossBase::Window, ..config() }, 0);
    peer.expire();
    assert_eq!(peer.ssthresh(), 4000);
    peer.expire();
    assert_eq!(peer.ssthresh(), 2000);
}

/// RENO-7: every second segment, or after 200 ms; at once on a gap and on its fill.
#[test]
fn acknowledgements_wait_for_the_second_segment_but_not_at_gaps() {
    let delayed = Config { delayed_ack: Config::bsd_1990s().delayed_ack, ..config() };
    let mut peer = Peer::connected(delayed);
    peer.data(0, 1000);
    assert!(peer.poll().is_empty());
    peer.data(1000, 1000);
    assert_eq!(peer.poll()[0].ack, PEER + 1 + 2000);
    peer.data(2000, 1000);
    assert!(peer.expire() <= Duration::from_millis(200));
    assert_eq!(peer.poll()[0].ack, PEER + 1 + 3000);
    // A gap: one duplicate for each segment above it.
    peer.data(4000, 1000);
    peer.data(5000, 1000);
    let acks: Vec<_> = peer.poll().iter().map(|s| s.ack).collect();
    assert_eq!(acks, [PEER + 1 + 3000; 2]);
    peer.data(3000, 1000);
    assert_eq!(peer.poll()[0].ack, PEER + 1 + 6000);
}

/// RENO-8: a closed window is probed ever more seldom, and nothing is learnt from it.
#[test]
fn a_closed_window_is_probed_between_5_and_60_s() {
    let mut peer = Peer::connected(config());
    peer.write(5000);
    assert_eq!(peer.offsets().len(), 5);
    peer.window = 0;
    peer.ack(5000);
    let before = peer.it.probe();
    peer.write(5000);
    assert!(peer.poll().is_empty());
    let mut spacing = Vec::new();
    for _ in 0..12 {
        spacing.push(peer.expire());
        let probe = peer.poll();
        assert_eq!((probe.len(), probe[0].len, probe[0].seq), (1, 1, ISS + 1 + 5000));
        peer.ack(5000);
    }
    assert_eq!(spacing[0], Duration::from_secs(5));
    assert!(spacing.windows(2).all(|w| w[0] <= w[1]));
    assert_eq!(spacing[11], Duration::from_secs(60));
    let after = peer.it.probe();
    assert_eq!((before.cwnd, before.ssthresh), (after.cwnd, after.ssthresh));
    assert_eq!((before.srtt, before.rto), (after.srtt, after.rto));
    assert_eq!((peer.it.stats().timeouts, peer.it.stats().window_probes_sent), (0, 12));
}

/// RENO-9 and RENO-10: a window that closes on outstanding data stops the retransmission timer; when
/// it opens, sending begins at once from the first unacknowledged byte.
#[test]
fn a_window_shrunk_to_nothing_stops_the_clock_and_a_reopened_one_resumes_at_once() {
    let mut peer = with_duplicates(config(), 0);
    let open = peer.window;
    peer.window = 0;
    peer.ack(1000);
    assert_eq!(peer.it.retransmission_due_in(peer.now), None);
    assert_eq!(peer.it.probe().flight, Bytes::ZERO);
    let cwnd = peer.cwnd();
    (0..4).for_each(|_| {
        peer.expire();
        peer.poll();
        peer.ack(1000);
    });
    assert_eq!((peer.it.stats().timeouts, peer.cwnd()), (0, cwnd));
    peer.window = open;
    peer.ack(1000);
    let sent = peer.offsets();
    assert_eq!((sent[0], sent.len() as u64), (1000, cwnd / 1000));
}

/// RENO-9: the other policy keeps the timer, which then expires.
#[test]
fn a_stack_that_keeps_its_timer_times_out_on_a_shrunk_window() {
    let keep = Config { shrunk_window: ShrunkWindow::KeepTimer, ..config() };
    let mut peer = with_duplicates(keep, 0);
    peer.window = 0;
    peer.ack(1000);
    assert!(peer.expire() < Duration::from_secs(1));
    assert_eq!((peer.it.stats().timeouts, peer.cwnd()), (1, 1000));
    assert_eq!(peer.offsets(), [1000]);
}

/// RENO-11: never more than the lesser window is out.
#[test]
fn the_advertised_window_bounds_what_is_out() {
    let mut peer = Peer::connected(config());
    peer.window = 3000;
    peer.ack(0);
    peer.write(100_000);
    assert_eq!(peer.offsets(), [0, 1000, 2000]);
}

/// RFC 9293 section 3.8.6.2: neither side lets the window become silly.
#[test]
fn small_windows_are_neither_offered_nor_used() {
    let mut peer = Peer::connected(config());
    (0..8).for_each(|n| peer.data(n * 1000, 1000));
    assert_eq!(peer.poll().last().unwrap().window, 0);
    peer.it.consume(Bytes::new(500));
    assert!(peer.poll().is_empty());
    peer.it.consume(Bytes::new(1500));
    let update = peer.poll();
    assert_eq!((update.len(), update[0].window), (1, 2000));
    // Our side: a window below a segment waits for the persist timer, which then uses it.
    peer.window = 60_000;
    let mut peer = Peer::connected(config());
    peer.window = 300;
    peer.ack(0);
    peer.write(5000);
    assert!(peer.poll().is_empty());
    peer.expire();
    assert_eq!(peer.poll()[0].len, 300);
}

/// RENO-8: a probe into our own closed window gets an answer and is not taken.
#[test]
fn a_probe_of_our_closed_window_is_answered() {
    let mut peer = Peer::connected(config());
    (0..8).for_each(|n| peer.data(n * 1000, 1000));
    peer.poll();
    peer.data(8000, 1);
    let answer = peer.poll();
    assert_eq!((answer[0].ack, answer[0].window), (PEER + 1 + 8000, 0));
    assert_eq!(peer.it.received(), Bytes::new(8000));
}

/// FRZ-1, FRZ-3, ATR-3: a helper closes the window, acknowledges less, and acknowledges thrice.
#[test]
fn helpers_can_bend_the_acknowledgements() {
    let mut peer = Peer::connected(config());
    peer.data(0, 1000);
    peer.it.consume(Bytes::new(1000));
    peer.poll();
    peer.it.set_advertised_limit(Some(Bytes::ZERO));
    assert!(peer.it.request_ack(AckRequest::default()));
    let frozen = peer.poll();
    assert_eq!((frozen[0].window, frozen[0].ack), (0, PEER + 1 + 1000));
    peer.it.set_advertised_limit(None);
    (0..3).for_each(|_| assert!(peer.it.request_ack(AckRequest::default())));
    let thawed = peer.poll();
    assert_eq!(thawed.len(), 3);
    assert!(thawed.iter().all(|s| s.window == 8000 && s.ack == PEER + 1 + 1000));
    peer.it.request_ack(AckRequest { withhold: 1, window: AckWindow::Zero });
    let bent = peer.poll();
    assert_eq!((bent[0].ack, bent[0].window), (PEER + 1 + 999, 0));
    peer.it.handle_link_event(peer.now, LinkEvent::Up);
    assert!(peer.poll().is_empty());
}

/// RFC 9293 section 3.7.4: a small segment waits while data is outstanding.
#[test]
fn nagle_holds_small_segments_back() {
    let mut peer = Peer::connected(Config { nagle: true, ..config() });
    peer.write(10);
    assert_eq!(peer.offsets(), [0]);
    peer.write(10);
    assert!(peer.offsets().is_empty());
    peer.ack(10);
    assert_eq!(peer.offsets(), [10]);
}

/// RFC 3042: the first two duplicates each let out one new segment.
#[test]
fn limited_transmit_sends_new_data_on_the_first_duplicates() {
    let mut peer = with_duplicates(Config { limited_transmit: true, ..config() }, 1);
    assert_eq!(peer.offsets(), [8000]);
    peer.ack(0);
    assert_eq!(peer.offsets(), [9000]);
}

/// RFC 6298 section 5.7: after a lost SYN data begins with 3 s and one segment.
#[test]
fn a_lost_syn_makes_the_beginning_careful() {
    let now = Time::from_secs(1);
    let quick = lasthop_tcp::Rto { initial: Duration::from_secs(1), ..config().rto };
    let quick = Config { rto: quick, ..config() };
    let mut it = Connection::connect(quick, Ports { local: 1, remote: 2 }, ISS, now);
    it.poll_transmit(now).unwrap();
    let later = now + Duration::from_secs(1);
    assert_eq!(it.next_timeout(), Some(later));
    it.handle_timeout(later);
    let again = it.poll_transmit(later).unwrap().segment;
    assert_eq!((again.flags, again.seq), (Flags::SYN, ISS));
    let answer = Segment {
        seq: PEER,
        ack: ISS + 1,
        flags: Flags::SYN.with(Flags::ACK),
        window: 9000,
        options: Options { mss: Some(1000), ..Options::default() },
        ..Segment::default()
    };
    it.handle_segment(later, &answer);
    assert_eq!(it.probe().rto, Duration::from_secs(3));
    assert_eq!(it.probe().cwnd, Bytes::new(1000));
    assert_eq!((it.state(), it.stats().syn_timeouts), (State::Established, 1));
}

/// A connection whose peer is gone gives up after as many expiries as it was told.
#[test]
fn a_silent_peer_is_given_up() {
    let mut config = config();
    config.rto.give_up_after = Some(3);
    let mut peer = Peer::connected(config);
    peer.write(1000);
    peer.poll();
    (0..4).for_each(|_| {
        peer.expire();
        peer.poll();
    });
    assert_eq!(peer.it.state(), State::Closed);
    assert_eq!(peer.it.poll_event(), Some(Event::GaveUp));
    assert_eq!(peer.it.poll_event(), Some(Event::Closed));
    assert_eq!(peer.it.next_timeout(), None);
}
