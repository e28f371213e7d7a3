//! Mobile IP messages as bytes (RFC 5944 sections 2.1 and 3, RFC 1256 section 3).
//!
//! Authenticators and checksums have their places and are zero: who sent a message is not in doubt
//! in a simulation, and damage is a packet's own mark.

use std::net::Ipv4Addr;

use lasthop_units::{Bytes, Duration};

use super::message::{
    Advertisement, BindingUpdate, Code, Identification, Message, Prefix, Reply, Request, Role,
};

const IP: u64 = 20;
const UDP: u64 = 8;

const ICMP_ADVERTISEMENT: u8 = 9;
const ICMP_SOLICITATION: u8 = 10;
/// RFC 5944 section 2.1.1.
const AGENT_EXTENSION: u8 = 16;
const BUSY: u8 = 0x40;
const HOME: u8 = 0x20;
const FOREIGN: u8 = 0x10;

/// RFC 5944 sections 3.3 and 3.4.
const REQUEST: u8 = 1;
const REPLY: u8 = 3;
/// As in the drafts on route optimisation that RFC 5944 leaves aside.
const BINDING_UPDATE: u8 = 18;
/// RFC 5944 section 3.5.2; 4 bytes of SPI and 16 of authenticator follow.
const AUTHENTICATION_EXTENSION: u8 = 32;
const AUTHENTICATION_LEN: u8 = 20;
/// RFC 5177 section 3.1, whose first sub-type asks.
const NETWORK_EXTENSION: u8 = 148;
const NETWORK_LEN: u8 = 6;
/// From the range that may be skipped; the drafts that had it gave it no number that lasted.
const PREVIOUS_AGENT_EXTENSION: u8 = 200;
/// Lifetime, two addresses, SPI and authenticator.
const PREVIOUS_AGENT_LEN: u8 = 30;

/// A message's bytes in the making.
#[derive(Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn put(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn address(&mut self, address: Ipv4Addr) {
        self.put(&address.octets());
    }

    fn seconds(&mut self, duration: Duration) {
        self.put(&seconds(duration).to_be_bytes());
    }

    fn identification(&mut self, id: Identification) {
        self.put(&id.seconds.to_be_bytes());
        self.put(&id.low.to_be_bytes());
    }

    fn authentication(&mut self) {
        self.put(&[AUTHENTICATION_EXTENSION, AUTHENTICATION_LEN]);
        self.put(&[0; AUTHENTICATION_LEN as usize]);
    }
}

/// A duration as the wire has it: whole seconds, rounded up, at most 65535.
pub(super) fn seconds(duration: Duration) -> u16 {
    let up = duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0));
    u16::try_from(up).unwrap_or(u16::MAX)
}

impl Message {
    /// The length of the IP datagram that carries it, headers included.
    pub fn size(&self) -> Bytes {
        let udp = if self.is_icmp() { 0 } else { UDP };
        Bytes::new(IP + udp) + Bytes::from(self.encode().len())
    }

    /// What the IP header (of ICMP) or the UDP header is followed by.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        match self {
            Self::Solicitation => out.put(&[ICMP_SOLICITATION, 0, 0, 0, 0, 0, 0, 0]),
            Self::Advertisement(advertisement) => encode_advertisement(&mut out, advertisement),
            Self::Request(request) => encode_request(&mut out, request),
            Self::Reply(reply) => {
                out.put(&[REPLY, reply.code.number()]);
                out.seconds(reply.lifetime);
                out.address(reply.home);
                out.address(reply.home_agent);
                out.identification(reply.id);
                out.authentication();
            }
            Self::BindingUpdate(update) => {
                out.put(&[BINDING_UPDATE, 0, 0, 0]);
                out.address(update.home);
                out.address(update.care_of);
                out.identification(update.id);
                out.authentication();
            }
        }
        out.0
    }

    /// Reads what follows the IP header: a solicitation or an advertisement. None if it is
    /// neither.
    pub fn decode_icmp(bytes: &[u8]) -> Option<Self> {
        let mut from = Reader::new(bytes);
        let [kind, code] = from.take();
        let _checksum: [u8; 2] = from.take();
        match (kind, code) {
            (ICMP_SOLICITATION, 0) => {
                let _reserved: [u8; 4] = from.take();
                from.done(Self::Solicitation)
            }
            (ICMP_ADVERTISEMENT, 0) => decode_advertisement(from).map(Self::Advertisement),
            _ => None,
        }
    }

    /// Reads what follows the UDP header: registration. None if it is none.
    pub fn decode_udp(bytes: &[u8]) -> Option<Self> {
        let mut from = Reader::new(bytes);
        let [kind, code] = from.take();
        match kind {
            REQUEST => decode_request(from).map(Self::Request),
            REPLY => {
                let reply = Reply {
                    code: Code::from_number(code)?,
                    lifetime: from.seconds(),
                    home: from.address(),
                    home_agent: from.address(),
                    id: from.identification(),
                };
                from.done(Self::Reply(reply))
            }
            BINDING_UPDATE => {
                let _lifetime = from.seconds();
                let update = BindingUpdate {
                    home: from.address(),
                    care_of: from.address(),
                    id: from.identification(),
                };
                from.done(Self::BindingUpdate(update))
            }
            _ => None,
        }
    }
}

fn encode_advertisement(out: &mut Writer, advertisement: &Advertisement) {
    out.put(&[ICMP_ADVERTISEMENT, 0, 0, 0, 1, 2]);
    out.seconds(advertisement.validity);
    out.address(advertisement.agent);
    out.put(&[0; 4]);
    let busy = if advertisement.busy { BUSY } else { 0 };
    let (role, len) = match advertisement.role {
        Role::Home => (HOME, 6),
        Role::Foreign => (FOREIGN, 10),
    };
    out.put(&[AGENT_EXTENSION, len]);
    out.put(&advertisement.sequence.to_be_bytes());
    out.seconds(advertisement.lifetime);
    out.put(&[role | busy, 0]);
    if advertisement.role == Role::Foreign {
        out.address(advertisement.agent);
    }
}

fn encode_request(out: &mut Writer, request: &Request) {
    out.put(&[REQUEST, 0]);
    out.seconds(request.lifetime);
    out.address(request.home);
    out.address(request.home_agent);
    out.address(request.care_of);
    out.identification(request.id);
    if let Some(network) = request.network {
        out.put(&[NETWORK_EXTENSION, NETWORK_LEN, 0, network.bits()]);
        out.address(network.first());
    }
    if let Some(previous) = request.previous {
        out.put(&[PREVIOUS_AGENT_EXTENSION, PREVIOUS_AGENT_LEN]);
        out.seconds(request.lifetime);
        out.address(previous);
        out.address(request.care_of);
        out.put(&[0; 20]);
    }
    out.authentication();
}

/// The bytes not read yet. Everything it gives is zero once they have run out.
struct Reader<'a> {
    rest: &'a [u8],
    short: bool,
}

impl<'a> Reader<'a> {
    const fn new(rest: &'a [u8]) -> Self {
        Self { rest, short: false }
    }

    fn take<const N: usize>(&mut self) -> [u8; N] {
        match self.rest.split_first_chunk() {
            Some((head, rest)) => {
                self.rest = rest;
                *head
            }
            None => {
                self.short = true;
                [0; N]
            }
        }
    }

    fn address(&mut self) -> Ipv4Addr {
        self.take::<4>().into()
    }

    fn seconds(&mut self) -> Duration {
        Duration::from_secs(u16::from_be_bytes(self.take()).into())
    }

    fn identification(&mut self) -> Identification {
        Identification {
            seconds: u32::from_be_bytes(self.take()),
            low: u32::from_be_bytes(self.take()),
        }
    }

    fn done<T>(&self, found: T) -> Option<T> {
        (!self.short).then_some(found)
    }
}

/// One router, one extension: what this crate's agents send.
fn decode_advertisement(mut from: Reader<'_>) -> Option<Advertisement> {
    let [addresses, words] = from.take();
    let validity = from.seconds();
    let router = from.address();
    let _preference: [u8; 4] = from.take();
    let [extension, _len] = from.take();
    let sequence = u16::from_be_bytes(from.take());
    let lifetime = from.seconds();
    let [flags, _] = from.take();
    if (addresses, words, extension) != (1, 2, AGENT_EXTENSION) {
        return None;
    }
    let role = if flags & FOREIGN != 0 { Role::Foreign } else { Role::Home };
    let agent = match role {
        Role::Foreign => from.address(),
        Role::Home => router,
    };
    let busy = flags & BUSY != 0;
    from.done(Advertisement { agent, role, sequence, validity, lifetime, busy })
}

fn decode_request(mut from: Reader<'_>) -> Option<Request> {
    let mut request = Request {
        lifetime: from.seconds(),
        home: from.address(),
        home_agent: from.address(),
        care_of: from.address(),
        id: from.identification(),
        network: None,
        previous: None,
    };
    while !from.rest.is_empty() {
        let [kind, len] = from.take();
        from.done(())?;
        let (body, rest) = from.rest.split_at_checked(len.into())?;
        from.rest = rest;
        let mut body = Reader::new(body);
        match kind {
            NETWORK_EXTENSION => {
                let [_, bits] = body.take();
                request.network = Some(Prefix::new(body.address(), bits));
            }
            PREVIOUS_AGENT_EXTENSION => {
                let _lifetime = body.seconds();
                request.previous = Some(body.address());
            }
            _ => {}
        }
        body.done(())?;
    }
    from.done(request)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn addresses() -> impl Strategy<Value = Ipv4Addr> {
        any::<u32>().prop_map(Ipv4Addr::from)
    }

    fn durations() -> impl Strategy<Value = Duration> {
        any::<u16>().prop_map(|s| Duration::from_secs(s.into()))
    }

    fn ids() -> impl Strategy<Value = Identification> {
        any::<(u32, u32)>().prop_map(|(seconds, low)| Identification { seconds, low })
    }

    fn advertisements() -> impl Strategy<Value = Message> {
        let role = prop_oneof![Just(Role::Home), Just(Role::Foreign)];
        (addresses(), role, any::<u16>(), durations(), durations(), any::<bool>()).prop_map(
            |(agent, role, sequence, validity, lifetime, busy)| {
                let found = Advertisement { agent, role, sequence, validity, lifetime, busy };
                Message::Advertisement(found)
            },
        )
    }

    fn requests() -> impl Strategy<Value = Message> {
        let network = (addresses(), 0..=32u8).prop_map(|(a, bits)| Prefix::new(a, bits));
        let head = (addresses(), addresses(), addresses(), durations(), ids());
        (head, prop::option::of(network), prop::option::of(addresses())).prop_map(
            |((home, home_agent, care_of, lifetime, id), network, previous)| {
                let fixed = (home, home_agent, care_of, lifetime);
                let (home, home_agent, care_of, lifetime) = fixed;
                Message::Request(Request {
                    home,
                    home_agent,
                    care_of,
                    lifetime,
                    id,
                    network,
                    previous,
                })
            },
        )
    }

    fn replies() -> impl Strategy<Value = Message> {
        let code = prop::sample::select(vec![
            Code::Accepted,
            Code::AgentFull,
            Code::LifetimeTooLong,
            Code::TimedOut,
            Code::HomeFull,
            Code::Unauthenticated,
            Code::Identification,
            Code::WrongHomeAgent,
        ]);
        (addresses(), addresses(), durations(), ids(), code).prop_map(
            |(home, home_agent, lifetime, id, code)| {
                Message::Reply(Reply { home, home_agent, lifetime, id, code })
            },
        )
    }

    fn messages() -> impl Strategy<Value = Message> {
        let update = (addresses(), addresses(), ids()).prop_map(|(home, care_of, id)| {
            Message::BindingUpdate(BindingUpdate { home, care_of, id })
        });
        prop_oneof![Just(Message::Solicitation), advertisements(), requests(), replies(), update]
    }

    fn decode(message: &Message, bytes: &[u8]) -> Option<Message> {
        if message.is_icmp() { Message::decode_icmp(bytes) } else { Message::decode_udp(bytes) }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_and_what_is_cut_short_is_not(message in messages()) {
            let bytes = message.encode();
            prop_assert_eq!(decode(&message, &bytes), Some(message));
            let fixed = if message.is_icmp() { bytes.len() } else { 20 };
            for len in 0..fixed {
                prop_assert_eq!(decode(&message, &bytes[..len]), None);
            }
        }

        #[test]
        fn no_bytes_make_a_decoder_panic(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
            let _ = (Message::decode_icmp(&bytes), Message::decode_udp(&bytes));
        }
    }

    #[test]
    fn durations_are_rounded_up_to_seconds() {
        assert_eq!(seconds(Duration::from_millis(2800)), 3);
        assert_eq!(seconds(Duration::from_secs(3)), 3);
        assert_eq!(seconds(Duration::MAX), u16::MAX);
    }
}
