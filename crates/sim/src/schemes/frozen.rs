//! A wired half's state as bytes, to travel between bases (MHP-17): what a snapshot says, and the
//! bytes that belong to it.

use core::net::{Ipv4Addr, SocketAddrV4};
use core::time::Duration;

use lasthop_tcp::{Config, Ports, RttState, Snapshot, Socket, State};
use lasthop_units::{Bytes, Time};
use lasthop_wire::tcp::Seq;

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

/// The state of `socket`, whose peer is `remote`, as bytes.
pub(super) fn encode(
    socket: &Socket,
    local: SocketAddrV4,
    remote: SocketAddrV4,
    now: Time,
) -> Vec<u8> {
    let mut s = socket.snapshot(now);
    if s.state == State::Closed && s.syn_acknowledged {
        // Over on the wire, but not read to its end: what is left is a reader's.
        s.state = State::TimeWait;
    }
    let join = |(a, b): (&[u8], &[u8])| [a, b].concat();
    let mut out = Writer::default();
    for addr in [local, remote] {
        out.u64(u64::from(u32::from(*addr.ip())) << 16 | u64::from(addr.port()));
    }
    out.u64(STATES.iter().position(|state| *state == s.state).unwrap_or(0) as u64);
    out.u64(u64::from(s.iss.0) << 32 | u64::from(s.irs.0));
    let flags = [
        s.syn_acknowledged,
        s.fin_acknowledged,
        s.syn_sent,
        s.fin_sent,
        s.finished,
        s.peer_end.is_some(),
        s.window_shifts.is_some(),
        s.sack,
        s.timestamps.is_some(),
    ];
    out.u64(flags.iter().enumerate().fold(0, |bits, (i, flag)| bits | u64::from(*flag) << i));
    let (send_shift, receive_shift) = s.window_shifts.unwrap_or_default();
    let (clock, echo) = s.timestamps.unwrap_or_default();
    for n in [
        s.acknowledged,
        s.sent,
        s.written,
        s.received,
        s.consumed,
        s.peer_end.unwrap_or(0),
        s.receive_edge,
        s.send_edge,
        u64::from(s.mss),
        u64::from(send_shift) << 8 | u64::from(receive_shift),
        u64::from(clock) << 32 | u64::from(echo),
        s.cwnd.get(),
        s.ssthresh.get(),
        nanos(s.rtt.srtt),
        nanos(s.rtt.rttvar),
        nanos(s.rtt.rto),
        u64::from(s.rtt.backoff),
    ] {
        out.u64(n);
    }
    out.bytes(&join(socket.unacknowledged()));
    out.bytes(&join(socket.unread()));
    out.0
}

/// A socket that goes on where another base left off, and its two ends. `None` if the bytes are no
/// such state.
pub(super) fn decode(
    config: Config,
    bytes: &[u8],
    now: Time,
) -> Option<(Socket, SocketAddrV4, SocketAddrV4)> {
    let mut input = Reader(bytes);
    let mut addr = || {
        let n = input.u64()?;
        let ip = Ipv4Addr::from(u32::try_from(n >> 16).ok()?);
        Some(SocketAddrV4::new(ip, (n & 0xffff) as u16))
    };
    let (local, remote) = (addr()?, addr()?);
    let state = *STATES.get(usize::try_from(input.u64()?).ok()?)?;
    let (iss, irs) = halves(input.u64()?);
    let bits = input.u64()?;
    let flag = |i: u32| bits & (1 << i) != 0;
    let mut n = [0; 17];
    for slot in &mut n {
        *slot = input.u64()?;
    }
    let (clock, echo) = halves(n[10]);
    let snapshot = Snapshot {
        state,
        ports: Ports { local: local.port(), remote: remote.port() },
        iss: Seq(iss),
        irs: Seq(irs),
        syn_acknowledged: flag(0),
        fin_acknowledged: flag(1),
        syn_sent: flag(2),
        fin_sent: flag(3),
        finished: flag(4),
        acknowledged: n[0],
        sent: n[1],
        written: n[2],
        received: n[3],
        consumed: n[4],
        received_ahead: Vec::new(),
        peer_end: flag(5).then_some(n[5]),
        receive_edge: n[6],
        send_edge: n[7],
        mss: u32::try_from(n[8]).ok()?,
        window_shifts: flag(6).then_some(((n[9] >> 8) as u8, n[9] as u8)),
        sack: flag(7),
        timestamps: flag(8).then_some((clock, echo)),
        cwnd: Bytes::new(n[11]),
        ssthresh: Bytes::new(n[12]),
        rtt: RttState {
            srtt: Duration::from_nanos(n[13]),
            rttvar: Duration::from_nanos(n[14]),
            rto: Duration::from_nanos(n[15]),
            backoff: u32::try_from(n[16]).ok()?,
        },
    };
    let (unacknowledged, unread) = (input.bytes()?, input.bytes()?);
    let socket = Socket::restore(config, now, &snapshot, unacknowledged, unread)?;
    Some((socket, local, remote))
}

pub(super) fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

fn halves(n: u64) -> (u32, u32) {
    ((n >> 32) as u32, n as u32)
}

#[derive(Default)]
pub(super) struct Writer(pub(super) Vec<u8>);

impl Writer {
    pub(super) fn u64(&mut self, n: u64) {
        self.0.extend_from_slice(&n.to_be_bytes());
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.u64(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }
}

pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn u64(&mut self) -> Option<u64> {
        let (n, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_be_bytes(*n))
    }

    pub(super) fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.u64()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }
}
