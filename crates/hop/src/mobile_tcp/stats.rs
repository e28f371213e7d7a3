//! Counters.

/// What a connection, or all connections of an end, have done.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Stats {
    /// Packets sent, control packets too.
    pub sent: u64,
    /// Packets received that were whole and of a connection, or of none by right.
    pub received: u64,
    /// Acknowledgements that were due at once when a packet took them along.
    pub acks_sent: u64,
    /// Retransmission requests sent (MOB-23).
    pub requests_sent: u64,
    /// Retransmission requests received and handled: the gap is resent (MOB-24).
    pub requests_handled: u64,
    /// Retransmission requests received whose bytes were on their way already (MOB-27, MOB-30).
    pub requests_ignored: u64,
    /// Stream bytes sent for the first time.
    pub bytes_sent: u64,
    /// Stream bytes received for the first time.
    pub bytes_received: u64,
    /// Stream bytes sent again.
    pub bytes_again: u64,
    /// Packets with bytes sent again.
    pub packets_again: u64,
    /// Timeouts that expired (MOB-35).
    pub expiries: u64,
    /// Closed windows asked after (MOB-21).
    pub probes: u64,
    /// Packets that brought nothing new.
    pub duplicates: u64,
    /// Packets beyond the window, or behind the end.
    pub outside: u64,
    /// Acknowledgements, requests and answers that cannot be right: of bytes never sent, or to
    /// questions never asked.
    pub impossible: u64,
    /// Packets dropped for their checksum (MOB-14).
    pub damaged: u64,
    /// Packets dropped for their length, version or code bits.
    pub malformed: u64,
    /// Packets for a connection that nobody has.
    pub unknown: u64,
    /// Openings of the peer's that were refused at a limit.
    pub turned_away: u64,
    /// Answers that were not given because too many were waiting to be sent.
    pub unanswered: u64,
}

impl Stats {
    /// Adds what a connection did in its life.
    pub(super) fn add(&mut self, other: &Self) {
        let Self {
            sent,
            received,
            acks_sent,
            requests_sent,
            requests_handled,
            requests_ignored,
            bytes_sent,
            bytes_received,
            bytes_again,
            packets_again,
            expiries,
            probes,
            duplicates,
            outside,
            impossible,
            damaged,
            malformed,
            unknown,
            turned_away,
            unanswered,
        } = other;
        self.sent += sent;
        self.received += received;
        self.acks_sent += acks_sent;
        self.requests_sent += requests_sent;
        self.requests_handled += requests_handled;
        self.requests_ignored += requests_ignored;
        self.bytes_sent += bytes_sent;
        self.bytes_received += bytes_received;
        self.bytes_again += bytes_again;
        self.packets_again += packets_again;
        self.expiries += expiries;
        self.probes += probes;
        self.duplicates += duplicates;
        self.outside += outside;
        self.impossible += impossible;
        self.damaged += damaged;
        self.malformed += malformed;
        self.unknown += unknown;
        self.turned_away += turned_away;
        self.unanswered += unanswered;
    }
}
