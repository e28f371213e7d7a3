//! The connections that pass, for those who look.

use std::time::Duration;

use lasthop_agent::table::Table;
use lasthop_agent::{Connection, Side, Tcp};
use lasthop_units::Time;
use lasthop_wire::tcp::Flags;

use lasthop_control::ConnectionReport;

/// A connection without packets is removed after this time.
const IDLE: Duration = Duration::from_secs(300);
/// One that has ended is removed after this time, in which late packets may come.
const LINGER: Duration = Duration::from_secs(5);

/// What has passed of a connection.
#[derive(Clone, Debug)]
struct Flow {
    key: u64,
    since: Time,
    /// Payload towards the mobile and from it.
    to_mobile: u64,
    from_mobile: u64,
    seen_opening: bool,
    /// The fixed host's end, and the mobile's, has ended its direction.
    ends: [bool; 2],
    reset: bool,
    last: Time,
}

/// The connections that pass.
#[derive(Debug)]
pub(super) struct Flows {
    table: Table<Flow>,
    keys: u64,
    opened: u64,
    closed: u64,
}

/// A connection that was not known before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Begun {
    /// What names it in this process.
    pub(super) key: u64,
    /// The connection.
    pub(super) connection: Connection,
}

impl Flows {
    /// Knows so many connections at most; the one that is silent longest gives way.
    pub(super) fn new(limit: usize) -> Self {
        Self { table: Table::new(limit, IDLE), keys: 0, opened: 0, closed: 0 }
    }

    /// A packet came from `from`.
    pub(super) fn record(&mut self, now: Time, from: Side, tcp: &Tcp) -> Option<Begun> {
        let connection = tcp.connection(from);
        let opens = tcp.segment.flags.contains(Flags::SYN);
        let begins_anew = |flow: &Flow| flow.is_over() && opens;
        let known = self.table.get(now, &connection).is_some_and(|flow| !begins_anew(flow));
        let begun = (!known).then(|| {
            self.keys += 1;
            self.opened += u64::from(opens);
            self.table.insert(now, connection, Flow::new(self.keys, now, opens));
            Begun { key: self.keys, connection }
        });
        if let Some(flow) = self.table.peek(&connection) {
            let was_over = flow.is_over();
            flow.record(now, from, tcp);
            self.closed += u64::from(flow.is_over() && !was_over);
        }
        begun
    }

    /// Connections that are over, or of which nothing was seen for long, are removed; returned are
    /// their keys.
    pub(super) fn expire(&mut self, now: Time) -> Vec<u64> {
        let over = |flow: &Flow| flow.is_over() && now >= flow.last + LINGER;
        let over: Vec<Connection> =
            self.table.iter().filter(|(_, flow)| over(flow)).map(|(id, _)| *id).collect();
        let mut gone: Vec<u64> = over
            .iter()
            .filter_map(|connection| self.table.remove(connection))
            .map(|flow| flow.key)
            .collect();
        while let Some((_, flow)) = self.table.pop_expired(now) {
            gone.push(flow.key);
        }
        gone
    }

    /// Connections that were seen to open, and to end.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.opened, self.closed)
    }

    /// A picture of each.
    pub(super) fn reports(&self, now: Time) -> Vec<ConnectionReport> {
        let report = |(connection, flow): (&Connection, &Flow)| ConnectionReport {
            key: flow.key,
            target: connection.fixed.to_string(),
            client: Some(connection.mobile.to_string()),
            state: flow.state().to_owned(),
            bytes_to_hop: flow.to_mobile,
            bytes_from_hop: flow.from_mobile,
            age_s: now.since(flow.since).as_secs_f64(),
            ..ConnectionReport::default()
        };
        let mut flows: Vec<_> = self.table.iter().collect();
        flows.sort_unstable_by_key(|(_, flow)| flow.key);
        flows.into_iter().map(report).collect()
    }
}

impl Flow {
    fn new(key: u64, now: Time, seen_opening: bool) -> Self {
        Self {
            key,
            since: now,
            to_mobile: 0,
            from_mobile: 0,
            seen_opening,
            ends: [false; 2],
            reset: false,
            last: now,
        }
    }

    fn record(&mut self, now: Time, from: Side, tcp: &Tcp) {
        let (bytes, end) = match from {
            Side::Fixed => (&mut self.to_mobile, &mut self.ends[0]),
            Side::Mobile => (&mut self.from_mobile, &mut self.ends[1]),
        };
        *bytes += u64::from(tcp.segment.len);
        *end |= tcp.segment.flags.contains(Flags::FIN);
        self.reset |= tcp.segment.flags.contains(Flags::RST);
        self.last = now;
    }

    fn is_over(&self) -> bool {
        self.reset || self.ends == [true; 2]
    }

    fn state(&self) -> &'static str {
        let quiet = self.to_mobile == 0 && self.from_mobile == 0;
        match self.ends {
            _ if self.is_over() => "closing",
            [true, false] => "got-end",
            [false, true] => "sent-end",
            _ if quiet && self.seen_opening => "opening",
            _ => "open",
        }
    }
}

#[cfg(test)]
mod tests {
    use lasthop_wire::tcp::Segment;

    use super::*;

    fn tcp(from: Side, flags: Flags, len: u32) -> Tcp {
        let (fixed, mobile) = ("192.0.2.1:80".parse().unwrap(), "10.0.0.2:4000".parse().unwrap());
        let (src, dst) = if from == Side::Fixed { (fixed, mobile) } else { (mobile, fixed) };
        Tcp { src, dst, segment: Segment { flags, len, ..Segment::default() } }
    }

    #[test]
    fn a_connection_is_counted_from_its_opening_to_its_end() {
        let mut flows = Flows::new(10);
        let now = Time::from_millis(1);
        assert!(flows.record(now, Side::Mobile, &tcp(Side::Mobile, Flags::SYN, 0)).is_some());
        assert!(flows.record(now, Side::Fixed, &tcp(Side::Fixed, Flags::SYN, 0)).is_none());
        assert_eq!(flows.reports(now)[0].state, "opening");
        flows.record(now, Side::Fixed, &tcp(Side::Fixed, Flags::ACK, 1000));
        let report = flows.reports(now).remove(0);
        assert_eq!((report.key, report.bytes_to_hop, report.bytes_from_hop), (1, 1000, 0));
        assert_eq!((report.state.as_str(), report.target.as_str()), ("open", "192.0.2.1:80"));
        flows.record(now, Side::Fixed, &tcp(Side::Fixed, Flags::FIN, 0));
        assert_eq!(flows.reports(now)[0].state, "got-end");
        flows.record(now, Side::Mobile, &tcp(Side::Mobile, Flags::FIN, 0));
        assert_eq!((flows.reports(now)[0].state.as_str(), flows.counts()), ("closing", (1, 1)));
        assert_eq!(flows.expire(now + LINGER), [1]);
        assert!(flows.reports(now).is_empty());
    }

    #[test]
    fn the_same_ports_again_are_another_connection() {
        let mut flows = Flows::new(10);
        let now = Time::from_millis(1);
        assert!(flows.record(now, Side::Fixed, &tcp(Side::Fixed, Flags::ACK, 9)).is_some());
        flows.record(now, Side::Fixed, &tcp(Side::Fixed, Flags::RST, 0));
        let begun = flows.record(now, Side::Mobile, &tcp(Side::Mobile, Flags::SYN, 0));
        assert_eq!(begun.map(|begun| begun.key), Some(2));
        assert_eq!(flows.counts(), (1, 1), "the first was not seen to open");
    }
}
