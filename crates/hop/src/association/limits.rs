//! The transport's limits inside a handshake's hello.

use lasthop_units::Bytes;
use lasthop_wire::datagram;
use lasthop_wire::varint;

use crate::config::Limits;

impl Limits {
    /// Nothing may be sent yet: the peer has not spoken.
    pub(crate) const UNKNOWN: Self = Self {
        stream_window: Bytes::ZERO,
        association_window: Bytes::ZERO,
        streams_max: u64::MAX,
        first_stream: 0,
        standing: None,
    };

    /// Five numbers and, unless it is 0, the [`Transport::ID`] of the transport that they bound; a
    /// later version may append more.
    pub(super) fn encode(&self, transport: u64) -> datagram::Limits {
        let fields = [
            self.stream_window.get(),
            self.association_window.get(),
            self.streams_max,
            self.first_stream,
            self.standing.map_or(0, |n| u64::from(n) + 1),
            transport,
        ];
        let fields = if transport == 0 { &fields[..5] } else { &fields[..] };
        let mut bytes = [0; 48];
        let mut len = 0;
        for n in fields {
            let n = (*n).min(varint::MAX);
            varint::put(&mut bytes[len..], n);
            len += varint::len(n);
        }
        datagram::Limits::new(&bytes[..len]).unwrap_or(datagram::Limits::NONE)
    }

    /// `None` if a number is missing, or if they are another transport's.
    pub(super) fn decode(limits: &datagram::Limits, transport: u64) -> Option<Self> {
        let (stream_window, rest) = varint::get(limits)?;
        let (association_window, rest) = varint::get(rest)?;
        let (streams_max, rest) = varint::get(rest)?;
        let (first_stream, rest) = varint::get(rest)?;
        let (standing, rest) = varint::get(rest)?;
        let theirs = if rest.is_empty() { 0 } else { varint::get(rest)?.0 };
        if theirs != transport {
            return None;
        }
        Some(Self {
            stream_window: Bytes::new(stream_window),
            association_window: Bytes::new(association_window),
            streams_max,
            first_stream,
            standing: standing.checked_sub(1).and_then(|n| u32::try_from(n).ok()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_survive_the_hello_and_garbage_is_refused() {
        let limits = Limits {
            stream_window: Bytes::from_mib(1),
            association_window: Bytes::from_mib(4),
            streams_max: 4096,
            first_stream: 12,
            standing: Some(0),
        };
        for transport in [0, 1] {
            let encoded = limits.encode(transport);
            assert_eq!(Limits::decode(&encoded, transport), Some(limits));
            assert_eq!(Limits::decode(&encoded, 1 - transport), None);
        }
        assert_eq!(Limits::decode(&datagram::Limits::NONE, 0), None);
    }
}
