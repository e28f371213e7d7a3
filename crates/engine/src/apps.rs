//! What runs on a host: the simulator's own traffic, and what connections did before they were
//! over.

use core::net::SocketAddrV4;

use lasthop_scenario::Traffic;
use lasthop_sim::net::App;
use lasthop_sim::net::host::{Event, FlowId, Io, OutgoingDatagram};
use lasthop_sim::net::traffic::{DatagramRecord, Record, Service, Span, Traffic as Play, Work};
use lasthop_tcp::Stats;
use lasthop_units::{Bytes, Duration, LinkEvent, Time};

/// What on-off traffic writes at once.
const PIECE: Bytes = Bytes::new(1000);

/// What the end that opens a flow does; none if it is one of datagrams.
pub(super) fn work(traffic: Traffic) -> Option<Work> {
    Some(match traffic {
        Traffic::Bulk => Work::Bulk,
        Traffic::File { size } => Work::File(size),
        Traffic::RequestResponse { request, response, think, count, exponential } => {
            let (think, count) = (span(think, exponential), count.map(u64::from));
            Work::Requests { request, response, think, count }
        }
        Traffic::Interactive { every, count, exponential } => {
            Work::Keystrokes { every: span(every, exponential), count: count.map(u64::from) }
        }
        Traffic::OnOff { rate, on, off, exponential } => {
            let (on, off) = (span(on, exponential), span(off, exponential));
            Work::OnOff { on, off, rate, piece: PIECE }
        }
        Traffic::Udp { .. } | Traffic::Voice | Traffic::QuicLike => return None,
    })
}

/// What the end that accepts it does; none if it is one of datagrams.
pub(super) fn service(traffic: Traffic) -> Option<Service> {
    Some(match traffic {
        Traffic::Bulk | Traffic::File { .. } | Traffic::OnOff { .. } => Service::Discard,
        Traffic::RequestResponse { request, response, .. } => {
            Service::Respond { request, response }
        }
        Traffic::Interactive { .. } => Service::Echo,
        Traffic::Udp { .. } | Traffic::Voice | Traffic::QuicLike => return None,
    })
}

const fn span(time: Duration, exponential: bool) -> Span {
    if exponential { Span::Exponential(time) } else { Span::Constant(time) }
}

/// Traffic that remembers the statistics of connections that are over.
pub(super) struct Apps {
    play: Play,
    /// By the traffic's record.
    over: Vec<Option<Stats>>,
}

impl Apps {
    pub(super) fn new(play: Play) -> Self {
        Self { play, over: Vec::new() }
    }

    /// The record of the end of a flow that opens or accepts it, and its number.
    ///
    /// A mobile may have agreed to a connection when it left a base that had not heard so: it
    /// forgets that one and is asked again by the next base, on behalf of the same fixed host
    /// (MHP-6, MHP-17). The latest is the one that carries the flow.
    pub(super) fn record(&self, port: u16, client: bool) -> Option<(usize, &Record)> {
        let mut records = self.play.records().enumerate();
        let is_it = |(_, r): &(usize, &Record)| r.port == port && r.client == client;
        if client { records.find(is_it) } else { records.filter(is_it).last() }
    }

    /// What the end of a flow of datagrams that sends, or takes, has seen.
    pub(super) fn datagrams(&self, port: u16, sends: bool) -> Option<&DatagramRecord> {
        self.play.datagrams(port, sends)
    }

    /// The connection that this host opened to a port, while it lasts.
    pub(super) fn flow(&self, port: u16) -> Option<FlowId> {
        self.record(port, true).and_then(|(number, _)| self.play.flow(number))
    }

    /// What the connection of a record did so far; `live` finds one that is not over.
    pub(super) fn stats(&self, record: usize, live: impl FnOnce(FlowId) -> Option<Stats>) -> Stats {
        let over = self.over.get(record).copied().flatten();
        let live = || self.play.flow(record).and_then(live);
        over.or_else(live).unwrap_or_default()
    }

    #[cold]
    fn keep_stats(&mut self, io: &Io<'_, '_>, flow: FlowId) {
        let Some(stats) = io.stats(flow) else { return };
        let count = self.play.records().count();
        if let Some(record) = (0..count).find(|i| self.play.flow(*i) == Some(flow)) {
            self.over.resize(count.max(self.over.len()), None);
            self.over[record] = Some(stats);
        }
    }
}

impl App for Apps {
    #[inline]
    fn handle_event(&mut self, io: &mut Io<'_, '_>, flow: FlowId, event: Event) {
        if let Event::Closed(_) = event {
            self.keep_stats(io, flow);
        }
        self.play.handle_event(io, flow, event);
    }

    fn handle_link_event(&mut self, io: &mut Io<'_, '_>, event: LinkEvent) {
        self.play.handle_link_event(io, event);
    }

    #[inline]
    fn next_timeout(&self) -> Option<Time> {
        self.play.next_timeout()
    }

    fn handle_timeout(&mut self, io: &mut Io<'_, '_>) {
        self.play.handle_timeout(io);
    }

    fn handle_datagram(&mut self, now: Time, from: SocketAddrV4, port: u16, bytes: &[u8]) -> bool {
        self.play.handle_datagram(now, from, port, bytes)
    }

    fn poll_datagram(&mut self, now: Time) -> Option<OutgoingDatagram> {
        self.play.poll_datagram(now)
    }
}
