//! Counters.

/// A set of counters, and how those of one are added to those of another.
macro_rules! counters {
    (
        $(#[$of:meta])*
        pub struct $type:ident {
            $($(#[$doc:meta])* $name:ident,)+
        }
    ) => {
        $(#[$of])*
        #[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
        pub struct $type {
            $($(#[$doc])* pub $name: u64,)+
        }

        impl $type {
            /// Adds what a connection did in its life.
            pub(super) fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)+
            }
        }
    };
}

counters! {
    /// What a connection, or all connections of an end, have done.
    pub struct Stats {
        /// Packets sent, control packets too.
        sent,
        /// Packets received that were whole and of a connection, or of none by right.
        received,
        /// Acknowledgements that were due at once when a packet took them along.
        acks_sent,
        /// Retransmission requests sent (MOB-23).
        requests_sent,
        /// Retransmission requests received and handled: the gap is resent (MOB-24).
        requests_handled,
        /// Retransmission requests received whose bytes were on their way already (MOB-27, MOB-30).
        requests_ignored,
        /// Stream bytes sent for the first time.
        bytes_sent,
        /// Stream bytes received for the first time.
        bytes_received,
        /// Stream bytes sent again.
        bytes_again,
        /// Packets with bytes sent again.
        packets_again,
        /// Timeouts that expired (MOB-35).
        expiries,
        /// Closed windows asked after (MOB-21).
        probes,
        /// Packets that brought nothing new.
        duplicates,
        /// Packets beyond the window, or behind the end.
        outside,
        /// Acknowledgements, requests and answers that cannot be right: of bytes never sent, or to
        /// questions never asked.
        impossible,
        /// Packets dropped for their checksum (MOB-14).
        damaged,
        /// Packets dropped for their length, version or code bits.
        malformed,
        /// Packets for a connection that nobody has.
        unknown,
        /// Openings of the peer's that were refused at a limit.
        turned_away,
        /// Answers that were not given because too many were waiting to be sent.
        unanswered,
    }
}
