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

    /// Five numbers; a later version may append more.
    pub(super) fn encode(&self) -> datagram::Limits {
        let fields = [
            self.stream_window.get(),
            self.association_window.get(),
            self.streams_max,
            self.first_stream,
            self.standing.map_or(0, |n| u64::from(n) + 1),
        ];
        let mut bytes = [0; 40];
        let mut len = 0;
        for n in fields {
            let n = n.min(varint::MAX);
            varint::put(&mut bytes[len..], n);
            len += varint::len(n);
        }
        datagram::Limits::new(&bytes[..len]).unwrap_or(datagram::Limits::NONE)
    }

    /// `None` if a number is missing.
    pub(super) fn decode(limits: &datagram::Limits) -> Option<Self> {
        let (stream_window, rest) = varint::get(limits)?;
        let (association_window, rest) = varint::get(rest)?;
        let (streams_max, rest) = varint::get(rest)?;
        let (first_stream, rest) = varint::get(rest)?;
        let (standing, _) = varint::get(rest)?;
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
        assert_eq!(Limits::decode(&limits.encode()), Some(limits));
        assert_eq!(Limits::decode(&datagram::Limits::NONE), None);
    }
}
