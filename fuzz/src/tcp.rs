//! A TCP connection, whatever its peer sends, its application does and the snapshot says that it was
//! made from: nothing panics, its positions only rise, its windows hold, and it never spins.

use std::time::Duration;

use arbitrary::Unstructured;
use lasthop_tcp::{
    AckRequest, AckWindow, Algorithm, Arrival, Config, Connection, Ports, RttState, Snapshot,
    State, Window,
};
use lasthop_units::{Bytes, LinkEvent, Time};
use lasthop_wire::ip::Addresses;
use lasthop_wire::tcp::{Flags, Options, Segment, Seq, Timestamps};

const PORTS: Ports = Ports { local: 1, remote: 2 };
const ISS: Seq = Seq(u32::MAX - 2000);
const IRS: Seq = Seq(u32::MAX - 1000);
/// More segments than that at one instant would be a sender that does not stop.
const BURST: usize = 200_000;
/// No stream comes so far. What a snapshot says beyond is cut.
const FARTHEST: u64 = 1 << 60;
/// How often a timer may be due at once.
const ROUNDS: usize = 10;
/// Bytes that a snapshot says were written and not acknowledged.
const LONGEST: u64 = 4096;
/// Ranges above a gap that are kept.
const FRAGMENTS: usize = 256;
/// RFC 7323 section 2.3.
const WIDEST: u64 = (u16::MAX as u64) << 14;

const ALGORITHMS: [Algorithm; 5] =
    [Algorithm::Tahoe, Algorithm::Reno, Algorithm::NewReno, Algorithm::Sack, Algorithm::Cubic];
const STATES: [State; 10] = [
    State::Closed,
    State::SynSent,
    State::SynReceived,
    State::Established,
    State::FinWait1,
    State::FinWait2,
    State::CloseWait,
    State::Closing,
    State::LastAck,
    State::TimeWait,
];

/// The next value; zero where the input has ended.
fn next<'a, T: arbitrary::Arbitrary<'a> + Default>(input: &mut Unstructured<'a>) -> T {
    input.arbitrary().unwrap_or_default()
}

/// One of three presets, with buffers that soon fill.
pub(crate) fn config(input: &mut Unstructured<'_>) -> Config {
    let [preset, algorithm, switches, sizes]: [u8; 4] = next(input);
    let preset = [Config::modern(), Config::ns2(), Config::bsd_1990s()][usize::from(preset % 3)];
    let on = |bit: u8| switches >> bit & 1 == 1;
    Config {
        algorithm: ALGORITHMS[usize::from(algorithm % 5)],
        mss: [536, 1460, 100, 20][usize::from(sizes & 3)],
        recv_buffer: Bytes::new([20_000, 100_000, 700, 4096][usize::from(sizes >> 2 & 3)]),
        send_buffer: Bytes::new([20_000, 100_000, 700, 4096][usize::from(sizes >> 4 & 3)]),
        cwnd_max: (sizes >> 6 == 1).then_some(Window::Segments(5)),
        initial_ssthresh: (sizes >> 6 == 2).then_some(Window::Bytes(Bytes::new(3000))),
        sack: on(0),
        timestamps: on(1),
        window_scale: on(2),
        nagle: on(3),
        limited_transmit: on(4),
        cwnd_validation: on(5),
        restart_after_idle: on(6),
        delayed_ack: preset.delayed_ack.filter(|_| on(7)),
        ..preset
    }
}

fn options(input: &mut Unstructured<'_>) -> Options {
    let which: u8 = next(input);
    let on = |bit: u8| which >> bit & 1 == 1;
    let mut options = Options { sack_permitted: on(0), ..Options::default() };
    if on(1) {
        options.mss = Some(next(input));
    }
    if on(2) {
        options.window_scale = Some(next(input));
    }
    if on(3) {
        let [value, echo]: [u16; 2] = next(input);
        options.timestamps = Some(Timestamps { value: value.into(), echo: echo.into() });
    }
    options
}

fn snapshot(input: &mut Unstructured<'_>) -> Snapshot {
    let state = STATES[usize::from(next::<u8>(input) % 10)];
    let flags: u8 = next(input);
    let on = |bit: u8| flags >> bit & 1 == 1;
    // Half of all offsets are near each other, as they are in truth.
    let mut offset = || match next::<u8>(input) {
        near if near < 128 => u64::from(near) * 100,
        far if far < 192 => u64::from(far) << 32,
        _ => next(input),
    };
    let [acknowledged, sent, written, received, consumed, receive_edge, send_edge, end] =
        [(); 8].map(|()| offset());
    let ranges = [(); 3].map(|()| offset()..offset());
    // More would be what a sender of such windows has to send at once.
    let opens = matches!(state, State::Closed | State::SynSent | State::SynReceived);
    let acked = if opens { 0 } else { acknowledged };
    let written = written.min(acked.saturating_add(LONGEST));
    let [cwnd, ssthresh] = [(); 2].map(|()| Bytes::new(offset()));
    let [srtt, rttvar, rto] = [(); 3].map(|()| Duration::from_nanos(offset()));
    Snapshot {
        state,
        ports: PORTS,
        iss: ISS,
        irs: IRS,
        acknowledged,
        syn_acknowledged: on(0),
        fin_acknowledged: on(1),
        sent,
        syn_sent: on(2),
        fin_sent: on(3),
        written,
        finished: on(4),
        received,
        consumed,
        received_ahead: ranges.to_vec(),
        peer_end: on(5).then_some(end),
        receive_edge,
        send_edge,
        mss: next(input),
        window_shifts: on(6).then(|| next(input)),
        sack: on(7),
        timestamps: on(6).then(|| next(input)),
        cwnd,
        ssthresh,
        rtt: RttState { srtt, rttvar, rto, backoff: next(input) },
    }
}

/// How far a connection has come; no step back.
#[derive(Clone, Copy, Default, Debug)]
struct Reached {
    written: u64,
    acknowledged: u64,
    received: u64,
}

struct OneEnd {
    now: Time,
    connection: Connection,
    reached: Reached,
    between: Addresses,
}

impl OneEnd {
    fn new(input: &mut Unstructured<'_>) -> Option<Self> {
        let now = Time::from_secs(1);
        let config = config(input);
        let connection = match next::<u8>(input) % 3 {
            0 => Connection::connect(config, PORTS, ISS, now),
            1 => {
                let options = options(input);
                let window = next(input);
                let syn =
                    Segment { seq: IRS, flags: Flags::SYN, window, options, ..Segment::default() };
                Connection::accept(config, PORTS, &syn, ISS, now).ok()?
            }
            _ => Connection::restore(config, now, &snapshot(input)),
        };
        let [src, dst] = [[192, 0, 2, 1], [192, 0, 2, 2]].map(Into::into);
        let between = Addresses::V4 { src, dst };
        Some(Self { now, connection, reached: Reached::default(), between })
    }

    /// A segment near what the connection expects, or far from it.
    fn segment(&self, input: &mut Unstructured<'_>) -> Segment {
        let near = |input: &mut Unstructured<'_>, from: u32| match next::<u8>(input) {
            exact if exact < 128 => from,
            close if close < 220 => from.wrapping_add(u32::from(close)).wrapping_sub(128 + 46),
            close if close < 250 => from.wrapping_add_signed(i32::from(next::<i16>(input))),
            _ => next(input),
        };
        let expected = IRS.0.wrapping_add(1).wrapping_add(self.reached.received as u32);
        let sent = ISS.0.wrapping_add(1).wrapping_add(self.reached.acknowledged as u32);
        let flight = self.connection.probe().flight.get() as u32;
        let seq = Seq(near(input, expected));
        let acked = if next::<u8>(input) & 1 == 1 { flight } else { 0 };
        let ack = Seq(near(input, sent.wrapping_add(acked)));
        // Most segments carry an acknowledgement and nothing else.
        let flags = match next::<u8>(input) {
            plain if plain < 160 => Flags::ACK,
            end if end < 190 => Flags::ACK.with(Flags::FIN),
            any => Flags::from_bits(any),
        };
        let mut options = options(input);
        for _ in 0..next::<u8>(input) % 5 {
            let start = near(input, ack.0.wrapping_add(500));
            options.sack.push(Seq(start), Seq(start.wrapping_add(u32::from(next::<u16>(input)))));
        }
        let len = match next::<u8>(input) {
            none if none < 100 => 0,
            some if some < 250 => u32::from(some) * 8,
            _ => next(input),
        };
        let window = next(input);
        Segment { src_port: 2, dst_port: 1, seq, ack, flags, window, options, len }
    }

    fn arrive(&mut self, segment: &Segment) {
        let Arrival { offset, skip, len } = self.connection.handle_segment(self.now, segment);
        assert!(u64::from(skip) + u64::from(len) <= u64::from(segment.len));
        if len > 0 {
            let end = offset + u64::from(len);
            assert!(end <= self.connection.received().get() + WIDEST);
            assert!(end > self.reached.received, "what was there already is no news");
        }
    }

    fn operate(&mut self, input: &mut Unstructured<'_>) {
        let [operation, argument]: [u8; 2] = next(input);
        let amount = Bytes::new(1 << (argument & 31));
        match operation % 20 {
            0..=9 => {
                let segment = self.segment(input);
                self.arrive(&segment);
            }
            10 | 11 => drop(self.connection.write(amount)),
            12 => self.connection.consume(amount),
            13 => self.advance(Duration::from_millis(u64::from(argument) * 16)),
            14 => self.wait(),
            15 => self.link(argument),
            16 => match argument % 4 {
                0 => self.connection.finish(),
                1 if argument > 200 => self.connection.abort(),
                2 => self.connection.retransmit_now(self.now),
                _ => self.move_away(input),
            },
            17 => {
                let windows = [AckWindow::Real, AckWindow::Unchanged, AckWindow::Zero];
                let window = windows[usize::from(argument % 3)];
                let withhold = u32::from(argument) * 8;
                self.connection.request_ack(AckRequest { withhold, window });
            }
            18 => self.connection.set_advertised_limit((argument & 1 == 1).then_some(amount)),
            _ => self.connection.adopt(&self.connection.estimates()),
        }
        self.settle();
    }

    fn link(&mut self, argument: u8) {
        let lead = Duration::from_millis(u64::from(argument));
        let imminent = LinkEvent::Imminent { lead };
        let events = [LinkEvent::Up, LinkEvent::Down, imminent, LinkEvent::Complete];
        self.connection.handle_link_event(self.now, events[usize::from(argument % 4)]);
    }

    /// The same connection goes on elsewhere, with whatever configuration.
    fn move_away(&mut self, input: &mut Unstructured<'_>) {
        let before = self.connection.snapshot(self.now);
        assert!(before.received_ahead.len() <= FRAGMENTS + 1);
        let config =
            if next::<u8>(input) < 200 { *self.connection.config() } else { config(input) };
        self.connection = Connection::restore(config, self.now, &before);
        let after = self.connection.snapshot(self.now);
        if before.written.max(before.received) > FARTHEST {
            // No stream comes so far: positions are cut to what there is room for.
            self.reached = reached(&self.connection);
            return;
        }
        let position = |s: &Snapshot| (s.acknowledged, s.sent, s.written, s.received, s.consumed);
        assert_eq!(position(&before), position(&after));
        assert_eq!((before.state, before.peer_end), (after.state, after.peer_end));
    }

    fn wait(&mut self) {
        if let Some(at) = self.connection.next_timeout() {
            self.advance(at.since(self.now));
        }
    }

    fn advance(&mut self, by: Duration) {
        self.now += by;
        self.connection.handle_timeout(self.now);
    }

    /// What follows from any operation: events are heard, due segments leave, promises hold.
    fn settle(&mut self) {
        let mut sent = 0;
        for _ in 0..ROUNDS {
            while self.connection.poll_event().is_some() {}
            while let Some(outgoing) = self.connection.poll_transmit(self.now) {
                sent += 1;
                assert!(sent < BURST, "it does not stop sending: {outgoing:?}");
                self.is_sound(&outgoing.segment, outgoing.offset);
            }
            self.check();
            if self.connection.next_timeout().is_none_or(|at| at > self.now) {
                return;
            }
            self.connection.handle_timeout(self.now);
        }
        panic!("a timer that is over does not fire");
    }

    fn is_sound(&self, segment: &Segment, offset: u64) {
        let len = u64::from(segment.len);
        assert!(len <= self.connection.segment_size().get());
        assert!(len == 0 || offset + len <= self.connection.written().get());
        let payload = vec![0; segment.len as usize];
        let mut bytes = Vec::new();
        assert_eq!(segment.emit(&self.between, &payload, &mut bytes), Ok(()));
        let (read, _) = Segment::parse(&self.between, &bytes).expect("what was sent is read");
        assert_eq!(&read, segment, "what is sent fits its header");
    }

    fn check(&mut self) {
        let it = &self.connection;
        assert!(it.next_timeout().is_none() || !it.is_closed());
        let reached = reached(it);
        assert!(reached.written >= self.reached.written);
        assert!(reached.acknowledged >= self.reached.acknowledged);
        assert!(reached.received >= self.reached.received);
        assert!(reached.acknowledged <= reached.written);
        assert!(it.readable().get() <= reached.received);
        self.reached = reached;
        let probe = it.probe();
        assert!(probe.flight.get() <= reached.written - reached.acknowledged + 2);
        assert!(probe.rcv_wnd.get() <= WIDEST && probe.snd_wnd.get() <= WIDEST);
        assert!(probe.cwnd >= Bytes::new(1) && probe.ssthresh >= Bytes::new(1));
    }
}

fn reached(connection: &Connection) -> Reached {
    Reached {
        written: connection.written().get(),
        acknowledged: connection.acknowledged().get(),
        received: connection.received().get(),
    }
}

/// One input: how the connection begins, and operations.
pub fn run(bytes: &[u8]) {
    let mut input = Unstructured::new(bytes);
    let Some(mut world) = OneEnd::new(&mut input) else { return };
    // A snapshot may begin anywhere.
    world.reached.received = world.connection.received().get();
    world.settle();
    while !input.is_empty() {
        world.operate(&mut input);
    }
}
