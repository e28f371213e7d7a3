//! What a radio that either sends or receives would make of the gain without loss: arithmetic from what the
//! paper states, beside the simulation, whose hop does both at once.
//!
//! The radio carries 1.6 Mbit/s and TCP reaches 0.66 over it (section 4.1). If each frame costs the channel
//! the same time beside its bits, that difference says how much, for a given number of data packets to an
//! acknowledgement.

/// The radio's rate in bits a millisecond.
const RATE: f64 = 1600.0;
/// TCP's throughput over it, likewise.
const PEAK: f64 = 660.0;
/// Bits in a packet: payload, and the headers of TCP/IP and of Mobile TCP.
const PAYLOAD: f64 = 1460.0 * 8.0;
const TCP_HEADERS: f64 = 40.0 * 8.0;
const MOBILE_TCP_HEADERS: f64 = 16.0 * 8.0;

/// How many data packets each end lets pass for an acknowledgement.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Acknowledged {
    /// TCP's receiver.
    pub(super) tcp: u32,
    /// Mobile TCP's.
    pub(super) mobile_tcp: u32,
}

/// What the report shows.
pub(super) const CASES: [Acknowledged; 5] = [
    Acknowledged { tcp: 2, mobile_tcp: 2 },
    Acknowledged { tcp: 2, mobile_tcp: 3 },
    Acknowledged { tcp: 2, mobile_tcp: 4 },
    Acknowledged { tcp: 1, mobile_tcp: 1 },
    Acknowledged { tcp: 1, mobile_tcp: 2 },
];

impl Acknowledged {
    /// The time that each frame takes beside its bits, in ms, if TCP is to have its throughput.
    pub(super) fn overhead(&self) -> f64 {
        let share = 1.0 / f64::from(self.tcp);
        let bits = PAYLOAD + TCP_HEADERS * (1.0 + share);
        (PAYLOAD / PEAK - bits / RATE) / (1.0 + share)
    }

    /// What Mobile TCP then gains without loss, in per cent.
    pub(super) fn gain(&self) -> f64 {
        let share = 1.0 / f64::from(self.mobile_tcp);
        let bits = PAYLOAD + MOBILE_TCP_HEADERS * (1.0 + share);
        let packet = bits / RATE + self.overhead() * (1.0 + share);
        100.0 * (PAYLOAD / PEAK / packet - 1.0)
    }
}

/// What the shorter headers alone give on a hop that does both at once, in per cent.
pub(super) fn headers_alone() -> f64 {
    100.0 * ((PAYLOAD + TCP_HEADERS) / (PAYLOAD + MOBILE_TCP_HEADERS) - 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_alone_are_worth_24_bytes_of_1476() {
        assert!((headers_alone() - 1.626).abs() < 1e-3);
    }

    /// With equal acknowledgements only headers differ, and a frame's own time makes them less.
    #[test]
    fn fewer_acknowledgements_are_worth_more_than_headers() {
        let [same, third, fourth, each, second] = CASES.map(|case| case.gain());
        assert!((0.5..headers_alone()).contains(&same) && (0.5..headers_alone()).contains(&each));
        assert!(same < third && third < fourth && each < second);
        // 17.70 ms a packet = 7.5 + 0.1 on air and 1.5 frames of 6.73 ms.
        assert!((CASES[0].overhead() - 6.731).abs() < 1e-3, "{}", CASES[0].overhead());
    }
}
