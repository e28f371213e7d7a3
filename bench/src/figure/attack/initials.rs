//! A QUIC client's first datagrams (RFC 9000, section 17.2.2): each an Initial packet with a ClientHello,
//! protected as RFC 9001, section 5.2, has it, under a connection ID of its own.

use std::sync::Arc;

use anyhow::{Context, Result};
use lasthop_units::{Seed, Stream};
use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use rustls::quic::{ClientConnection, Suite, Version};
use rustls::{ClientConfig, RootCertStore, Side};

use super::messages::bytes;

/// Different messages of a flood whose messages may come again.
const OTHERS: usize = 2000;
/// Packets with a ClientHello that were recorded.
const RECORDED: u64 = 300;
/// Those under a new connection ID are at most so many: 1200 bytes each.
const FRESH_MAX: u64 = 100_000;
const DATAGRAM: usize = 1200;
const ID: usize = 8;
const TAG: usize = 16;
/// Where the packet number is, of four bytes, and where the payload.
const NUMBER_AT: usize = 1 + 4 + 1 + ID + 1 + ID + 1 + 2;
const PAYLOAD_AT: usize = NUMBER_AT + 4;
/// The transport parameter that a server insists on: initial_source_connection_id.
const SOURCE_ID: u8 = 0x0f;

/// Makes packets.
pub(super) struct Initials {
    hello: Vec<u8>,
    suite: Suite,
    source: [u8; ID],
    random: Stream,
}

impl Initials {
    /// With one ClientHello in all of them, as there is no client in QUIC that could be told from others by it.
    pub(super) fn new(seed: Seed) -> Result<Self> {
        let suite = ring::cipher_suite::TLS13_AES_128_GCM_SHA256.tls13();
        let suite = suite.and_then(|s| s.quic_suite()).context("no cipher for QUIC")?;
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .context("preparing TLS")?
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        let source = [7; ID];
        let parameters = [&[SOURCE_ID, ID as u8][..], &source].concat();
        let name = ServerName::try_from("base").context("the name of the base")?;
        let mut client = ClientConnection::new(Arc::new(config), Version::V1, name, parameters)
            .context("preparing TLS")?;
        let mut hello = Vec::new();
        client.write_hs(&mut hello);
        Ok(Initials { hello, suite, source, random: seed.stream("initials") })
    }

    /// Packets that a server answers with a whole flight, each under a new connection ID as far as that can be.
    pub(super) fn fresh(&mut self, count: u64) -> Result<Vec<Vec<u8>>> {
        let hello = self.hello.clone();
        (0..count.min(FRESH_MAX)).map(|_| self.packet(&hello)).collect()
    }

    /// The same, but few.
    pub(super) fn recorded(&mut self) -> Result<Vec<Vec<u8>>> {
        self.fresh(RECORDED)
    }

    /// Packets that are protected as they should be, and of which the ClientHello is nonsense.
    pub(super) fn forged(&mut self, count: u64) -> Result<Vec<Vec<u8>>> {
        let forge = |_| {
            let mut hello = self.hello.clone();
            // Behind the type and length of the TLS message.
            self.random.fill(&mut hello[4..]);
            self.packet(&hello)
        };
        (0..count.min(FRESH_MAX)).map(forge).collect()
    }

    fn packet(&mut self, hello: &[u8]) -> Result<Vec<u8>> {
        let mut id = [0; ID];
        self.random.fill(&mut id);
        // A long header, an Initial, a number of four bytes; version 1; both IDs; no token.
        let mut packet = vec![0xc3, 0, 0, 0, 1, ID as u8];
        packet.extend_from_slice(&id);
        packet.push(ID as u8);
        packet.extend_from_slice(&self.source);
        packet.push(0);
        packet.extend_from_slice(&two_bytes(DATAGRAM - NUMBER_AT));
        packet.extend_from_slice(&[0; 4]);
        // A CRYPTO frame at offset 0, and padding.
        packet.extend_from_slice(&[0x06, 0]);
        packet.extend_from_slice(&two_bytes(hello.len()));
        packet.extend_from_slice(hello);
        packet.resize(DATAGRAM - TAG, 0);

        let keys = self.suite.keys(&id, Side::Client, Version::V1).local;
        let (header, payload) = packet.split_at_mut(PAYLOAD_AT);
        let tag = keys.packet.encrypt_in_place(0, header, payload).context("sealing a packet")?;
        packet.extend_from_slice(tag.as_ref());
        let (header, payload) = packet.split_at_mut(PAYLOAD_AT);
        let (before, number) = header.split_at_mut(NUMBER_AT);
        let sample = &payload[..keys.header.sample_len()];
        keys.header
            .encrypt_in_place(sample, &mut before[0], number)
            .context("protecting a header")?;
        Ok(packet)
    }
}

/// Datagrams with nothing sensible in them.
pub(super) fn garbage(seed: Seed) -> Vec<Vec<u8>> {
    let mut random = seed.stream("garbage");
    let datagram = |_| {
        let len = 1 + random.below(DATAGRAM as u64) as usize;
        bytes(&mut random, len)
    };
    (0..OTHERS).map(datagram).collect()
}

/// Packets with a short header for connections that do not exist.
pub(super) fn unknown(seed: Seed) -> Vec<Vec<u8>> {
    let mut random = seed.stream("unknown");
    let packet = |_| {
        let len = 100 + random.below(DATAGRAM as u64 - 100) as usize;
        let mut packet = bytes(&mut random, len);
        packet[0] = 0x40 | packet[0] & 0x3f;
        packet
    };
    (0..OTHERS).map(packet).collect()
}

/// A variable-length integer of two bytes (RFC 9000, section 16).
fn two_bytes(n: usize) -> [u8; 2] {
    (0x4000 | n as u16).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use lasthop_lab::quic::Identity;
    use quinn_proto::{Connection, DatagramEvent, Endpoint, EndpointConfig, TransportConfig};

    use super::*;

    /// What a server makes of a datagram.
    fn served(datagram: &[u8]) -> Option<Connection> {
        let identity = Identity::generate("base").unwrap();
        let config = Some(Arc::new(identity.server(TransportConfig::default()).unwrap()));
        let mut server = Endpoint::new(Arc::new(EndpointConfig::default()), config, true, None);
        let (now, from) = (Instant::now(), "127.0.0.1:9".parse().unwrap());
        let mut out = Vec::new();
        let event = server.handle(now, from, None, None, datagram.into(), &mut out);
        let Some(DatagramEvent::NewConnection(incoming)) = event else { return None };
        server.accept(incoming, now, &mut out, None).ok().map(|(_, connection)| connection)
    }

    #[test]
    fn a_server_begins_a_handshake_for_what_is_fresh() {
        let mut initials = Initials::new(Seed::from_u64(1)).unwrap();
        let packets = initials.fresh(2).unwrap();
        assert!(packets[0] != packets[1] && packets.iter().all(|p| p.len() == DATAGRAM));
        let connection = served(&packets[1]).expect("a connection");
        assert!(connection.is_handshaking() && !connection.is_closed());
        assert!(connection.crypto_session().handshake_data().is_some(), "the ClientHello was read");
    }

    #[test]
    fn a_server_begins_none_for_what_is_forged() {
        let forged = Initials::new(Seed::from_u64(1)).unwrap().forged(5).unwrap();
        for packet in forged {
            let read = served(&packet).and_then(|c| c.crypto_session().handshake_data());
            assert!(read.is_none());
        }
    }

    #[test]
    fn nothing_random_opens_a_connection() {
        for datagrams in [garbage(Seed::from_u64(2)), unknown(Seed::from_u64(2))] {
            assert!(datagrams.iter().take(50).all(|datagram| served(datagram).is_none()));
        }
    }
}
