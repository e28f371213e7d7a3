//! The transport's limits inside a handshake's hello.

use core::time::Duration;

use lasthop_units::{Bytes, Rate};
use lasthop_wire::datagram;
use lasthop_wire::varint;

use crate::config::Limits;
use crate::path_id::{PATHS_MAX, PathNumbers};

/// What a mobile may say in its first datagram.
pub const GREETING_MAX: usize = datagram::MAX_LIMITS - 48;

/// As many bytes has a number at most.
const NUMBER_MAX: usize = 8;

impl Limits {
    /// Nothing may be sent yet: the peer's limits are not known.
    pub(crate) const UNKNOWN: Self = Self {
        stream_window: Bytes::ZERO,
        association_window: Bytes::ZERO,
        streams_max: u64::MAX,
        first_stream: 0,
        standing: None,
        first_numbers: PathNumbers::NONE,
        resume: None,
        packet_max: Bytes::ZERO,
    };

    /// Five numbers; unless it is 0, the [`Transport::ID`] of the transport that they bound; unless it is 0,
    /// the first packet number; behind them the greeting, if there is one, with its length. If there is room follow
    /// what the path was worth: bits per second, and the round trip in microseconds, or two zeros if it is not known; the
    /// longest packet, or 0; the first packet numbers of paths 1, 2 and so on. Zeros at the end are left out. A later
    /// version may append more.
    pub(super) fn encode(&self, transport: u64, greeting: &[u8]) -> datagram::Limits {
        let [first_number, further @ ..] = self.first_numbers.0;
        let fields = [
            self.stream_window.get(),
            self.association_window.get(),
            self.streams_max,
            self.first_stream,
            self.standing.map_or(0, |n| u64::from(n) + 1),
            transport,
            first_number,
        ];
        let (rate, rtt) = self.resume.unwrap_or_default();
        let mut behind = [0; PATHS_MAX + 2];
        behind[..3].copy_from_slice(&[
            rate.as_bps(),
            rtt.as_micros() as u64,
            self.packet_max.get(),
        ]);
        behind[3..].copy_from_slice(&further);
        let needed_behind = behind.iter().rposition(|n| *n > 0).map_or(0, |last| last + 1);
        let more = !greeting.is_empty() || needed_behind > 0;
        let needed = match (first_number, transport) {
            _ if more => 7,
            (0, 0) => 5,
            (0, _) => 6,
            _ => 7,
        };
        let fields = &fields[..needed];
        let mut bytes = [0; datagram::MAX_LIMITS];
        let put = |bytes: &mut [u8], at: usize, n: u64| {
            let n = n.min(varint::MAX);
            varint::put(&mut bytes[at..], n);
            at + varint::len(n)
        };
        let mut end = 0;
        for n in fields {
            end = put(&mut bytes, end, *n);
        }
        if more {
            let start = put(&mut bytes, end, greeting.len() as u64);
            end = start + greeting.len();
            bytes[start..end].copy_from_slice(greeting);
        }
        for n in &behind[..needed_behind] {
            if end + NUMBER_MAX > bytes.len() {
                break;
            }
            end = put(&mut bytes, end, *n);
        }
        datagram::Limits::new(&bytes[..end]).unwrap_or(datagram::Limits::NONE)
    }

    /// The mobile's greeting behind the limits; empty if there is none, or if it is cut short.
    pub(super) fn greeting(limits: &datagram::Limits) -> &[u8] {
        let read = || {
            let mut rest: &[u8] = limits;
            for _ in 0..7 {
                rest = varint::get(rest)?.1;
            }
            let (len, rest) = varint::get(rest)?;
            rest.get(..usize::try_from(len).ok()?)
        };
        read().unwrap_or_default()
    }

    /// With what is behind the greeting; `None` if that is cut short.
    fn with_behind(mut self, behind: &[u8]) -> Option<Self> {
        let (len, rest) = varint::get(behind)?;
        let rest = rest.get(usize::try_from(len).ok()?..)?;
        let (rate, rest) = varint::get(rest)?;
        let (rtt, rest) = varint::get(rest)?;
        self.resume = (rate > 0).then(|| (Rate::from_bps(rate), Duration::from_micros(rtt)));
        let (packet_max, mut rest) = optional(rest)?;
        self.packet_max = Bytes::new(packet_max);
        for number in &mut self.first_numbers.0[1..] {
            (*number, rest) = optional(rest)?;
        }
        Some(self)
    }

    /// `None` if a number is missing, or if they are another transport's.
    pub(super) fn decode(limits: &datagram::Limits, transport: u64) -> Option<Self> {
        let (stream_window, rest) = varint::get(limits)?;
        let (association_window, rest) = varint::get(rest)?;
        let (streams_max, rest) = varint::get(rest)?;
        let (first_stream, rest) = varint::get(rest)?;
        let (standing, rest) = varint::get(rest)?;
        let (theirs, rest) = optional(rest)?;
        let (first, rest) = optional(rest)?;
        if theirs != transport {
            return None;
        }
        let mut first_numbers = PathNumbers::NONE;
        first_numbers.0[0] = first;
        let limits = Self {
            stream_window: Bytes::new(stream_window),
            association_window: Bytes::new(association_window),
            streams_max,
            first_stream,
            standing: standing.checked_sub(1).and_then(|n| u32::try_from(n).ok()),
            first_numbers,
            resume: None,
            packet_max: Bytes::ZERO,
        };
        Some(limits.with_behind(rest).unwrap_or(limits))
    }
}

/// A number that may be absent, which is 0 then.
fn optional(bytes: &[u8]) -> Option<(u64, &[u8])> {
    if bytes.is_empty() { Some((0, bytes)) } else { varint::get(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::HopConfig;

    #[test]
    fn limits_survive_the_hello_and_garbage_is_refused() {
        let limits = Limits {
            stream_window: Bytes::from_mib(1),
            association_window: Bytes::from_mib(4),
            streams_max: 4096,
            first_stream: 12,
            standing: Some(0),
            first_numbers: PathNumbers::NONE,
            resume: None,
            packet_max: Bytes::ZERO,
        };
        let numbers = |first, third| {
            let mut numbers = PathNumbers::NONE;
            (numbers.0[0], numbers.0[2]) = (first, third);
            numbers
        };
        for (transport, first, third) in
            [(0, 0, 0), (1, 0, 0), (0, 1 << 40, 0), (1, 1 << 40, 0), (0, 1 << 40, 1 << 50)]
        {
            let limits = Limits { first_numbers: numbers(first, third), ..limits };
            let encoded = limits.encode(transport, &[]);
            assert_eq!(Limits::greeting(&encoded), b"");
            let longest = if third > 0 { GREETING_MAX - 24 } else { GREETING_MAX };
            let greeting = &[7; GREETING_MAX][..longest];
            let greeted = limits.encode(transport, greeting);
            assert_eq!(Limits::decode(&greeted, transport), Some(limits));
            assert_eq!(Limits::greeting(&greeted), greeting);
            assert_eq!(Limits::decode(&encoded, transport), Some(limits));
            assert_eq!(Limits::decode(&encoded, 1 - transport), None);
        }
        assert_eq!(Limits::decode(&datagram::Limits::NONE, 0), None);
    }

    #[test]
    fn what_a_path_was_worth_survives_the_hello_beside_the_greeting() {
        let resume = Some((Rate::from_mbps(20), Duration::from_millis(600)));
        let own = Limits::of(&HopConfig::default());
        assert!(own.packet_max > Bytes::ZERO);
        for (resume, packet_max) in
            [(resume, own.packet_max), (None, own.packet_max), (resume, Bytes::ZERO)]
        {
            let limits = Limits { resume, packet_max, ..own };
            for transport in [0, 1] {
                for greeting in [&[][..], &[7; 100], &[7; GREETING_MAX]] {
                    let encoded = limits.encode(transport, greeting);
                    assert_eq!(Limits::greeting(&encoded), greeting);
                    assert_eq!(Limits::decode(&encoded, transport), Some(limits));
                }
            }
        }
    }
}
