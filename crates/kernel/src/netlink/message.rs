//! Messages of every kind that is used here: the fields that all messages of a kind begin with, and
//! attributes.

use std::convert::Infallible;
use std::net::IpAddr;

use netlink_packet_core::{NetlinkDeserializable, NetlinkHeader, NetlinkSerializable};

use super::attributes::{Attributes, octets, put, text};

/// A message. What it says is read where it is used: of most kinds a few attributes are of use, and
/// newer kernels have words that this program has not learnt.
#[derive(Clone, Debug)]
pub(super) struct Message {
    /// Its kind (`RTM_*` and the like).
    pub(super) kind: u16,
    body: Vec<u8>,
}

impl Message {
    /// One that begins with these fields.
    pub(super) fn new(kind: u16, fields: &[u8]) -> Self {
        Self { kind, body: fields.to_vec() }
    }

    /// With one more attribute.
    pub(super) fn with(mut self, kind: u16, value: &[u8]) -> Self {
        put(&mut self.body, kind, value);
        self
    }

    pub(super) fn with_u32(self, kind: u16, number: u32) -> Self {
        self.with(kind, &number.to_ne_bytes())
    }

    pub(super) fn with_text(self, kind: u16, value: &str) -> Self {
        self.with(kind, &text(value))
    }

    pub(super) fn with_ip(self, kind: u16, ip: IpAddr) -> Self {
        self.with(kind, &octets(ip))
    }

    /// With one more, if there is one.
    pub(super) fn with_some<T>(self, value: Option<T>, with: impl FnOnce(Self, T) -> Self) -> Self {
        match value {
            Some(value) => with(self, value),
            None => self,
        }
    }

    /// The fields that it begins with, and its attributes; none if it is too short for them.
    pub(super) fn parts<const N: usize>(&self) -> Option<(&[u8; N], Attributes<'_>)> {
        let (fields, rest) = self.body.split_first_chunk()?;
        Some((fields, Attributes(rest)))
    }
}

impl NetlinkSerializable for Message {
    fn message_type(&self) -> u16 {
        self.kind
    }

    fn buffer_len(&self) -> usize {
        self.body.len()
    }

    fn serialize(&self, buffer: &mut [u8]) {
        buffer.copy_from_slice(&self.body);
    }
}

impl NetlinkDeserializable for Message {
    type Error = Infallible;

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> Result<Self, Infallible> {
        Ok(Self { kind: header.message_type, body: payload.to_vec() })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::hostile::read_message;
    use super::super::requests::{NEW_ADDRESS, NEW_LINK, NEW_ROUTE};
    use super::super::{ADDRESS_LOCAL, LINK_NAME, Route, Rule, attributes, family, neighbour};
    use super::*;

    fn read(bytes: &[u8]) -> [bool; 5] {
        read_message(&Message::new(NEW_LINK, bytes))
    }

    /// What is shorter than the fields of its kind says nothing; what ends within an attribute says less.
    #[test]
    fn messages_that_are_cut_off_are_read_as_far_as_they_go() {
        let [v4, unicast] = [family(false), 1];
        let link = Message::new(NEW_LINK, &[0; 16]).with_text(LINK_NAME, "eth0");
        let fields = [v4, 24, 0, 0, 2, 0, 0, 0];
        let address =
            Message::new(NEW_ADDRESS, &fields).with_ip(ADDRESS_LOCAL, [10, 0, 0, 1].into());
        let route = Route { interface: Some(2), ..Route::to(([10, 0, 0, 0].into(), 8)) };
        let rule = Rule { mark: Some((1, 1)), ..Rule::new(false, 7, 100) };
        let proxy = neighbour::message(0, 2, [10, 0, 0, 1].into());
        let messages = [
            (link, 16 + 9),
            (address, 8 + 8),
            (route.message(NEW_ROUTE, false), 12),
            (rule.message(0), 12),
            (proxy, 12 + 8),
        ];
        for (reader, (message, least)) in messages.iter().enumerate() {
            let mut bytes = vec![0; message.buffer_len()];
            message.serialize(&mut bytes);
            for length in 0..=bytes.len() {
                assert_eq!(read(&bytes[..length])[reader], length >= *least, "{reader}: {length}");
            }
        }
        let bytes = [v4, 8, 0, 0, 0, 0, 0, unicast, 0, 0, 0, 0, 3, 0, 1, 0];
        assert!(read(&bytes)[2], "an attribute that is too short for itself ends the list");
    }

    proptest! {
        #[test]
        fn no_bytes_from_the_kernel_break_the_readers(
            family in prop::sample::select(vec![0, family(false), family(true)]),
            rest in prop::collection::vec(any::<u8>(), 0..256),
            kind in 0..40_u16,
            value in prop::collection::vec(any::<u8>(), 0..24),
        ) {
            let mut bytes = [&[family], &rest[..]].concat();
            let _ = read(&bytes);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            attributes::put(&mut bytes, kind, &value);
            let _ = read(&bytes);
        }
    }
}
