//! What packets are worth where the configuration says it, and how hosts and flows are told apart.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::sync::Arc;

use lasthop_control::PRIORITY_MAX;
use lasthop_control::priority::{Program, USUAL};
use lasthop_control::{choice, settings};
use lasthop_hop::{PacketClass, Policy};
use lasthop_kernel::network::Network;
use lasthop_session::Target;
use lasthop_session::flow_worth::{FlowEnds, FlowWorth};
use lasthop_wire::packet::Packet;
use serde::{Deserialize, Deserializer, de};

/// The greatest code point (RFC 2474 section 3).
const DSCP_MAX: u8 = 63;

choice! {
    /// What packets are worth.
    pub enum ClassName: "no class of packets" {
        /// Those of a call.
        Call = "call",
        /// What nothing is known of.
        Ordinary = "ordinary",
        /// Those of a transport that takes a loss for congestion.
        Transport = "transport",
        /// What is not sent again.
        Once = "once",
    }
}

impl ClassName {
    /// Its number where a mobile tells its base of it.
    const fn number(self) -> u8 {
        match self {
            Self::Call => 1,
            Self::Ordinary => 2,
            Self::Transport => 3,
            Self::Once => 4,
        }
    }

    fn of_number(number: u8) -> Option<Self> {
        let all = [Self::Call, Self::Ordinary, Self::Transport, Self::Once];
        all.into_iter().find(|class| class.number() == number)
    }

    const fn class(self) -> PacketClass {
        match self {
            Self::Call => PacketClass::CALL,
            Self::Ordinary => PacketClass::ORDINARY,
            Self::Transport => PacketClass::TRANSPORT,
            Self::Once => PacketClass::ONCE,
        }
    }
}

settings! {
    entry
    /// A `[[packets]]` table.
    #[derive(Eq)]
    pub struct PacketRule {
        /// At a mobile: the name of the program whose they are.
        #[serde(default, deserialize_with = "program_name")]
        pub program: Option<String> => "any",
        /// The fixed host's port of UDP or TCP.
        pub port: Option<NonZeroU16> => "any",
        /// A network or an address that the fixed host is in, as `"10.0.0.0/8"`.
        pub address: Option<Network> => "any",
        /// The packet's code point (DSCP). Datagrams by SOCKS5 have none.
        #[range(format!(", from 0 to {DSCP_MAX}"))]
        #[serde(default, deserialize_with = "code_point")]
        pub dscp: Option<u8> => "any",
        /// What these packets are [worth](#what-a-packet-is-worth).
        #[range(ClassName::range())]
        pub class: ClassName,
    }
}

fn program_name<'de, D: Deserializer<'de>>(d: D) -> Result<Option<String>, D::Error> {
    match String::deserialize(d)? {
        name if name.is_empty() => Err(de::Error::custom("the name of a program is empty")),
        name => Ok(Some(name)),
    }
}

fn code_point<'de, D: Deserializer<'de>>(d: D) -> Result<Option<u8>, D::Error> {
    match u8::deserialize(d)? {
        dscp if dscp <= DSCP_MAX => Ok(Some(dscp)),
        dscp => {
            Err(de::Error::custom(format!("{dscp} is no code point: there are 0 to {DSCP_MAX}")))
        }
    }
}

/// What is known of a packet.
#[derive(Clone, Copy, Debug)]
struct Known<'a> {
    program: Option<&'a Program>,
    remote: Option<IpAddr>,
    port: Option<u16>,
    dscp: Option<u8>,
}

impl PacketRule {
    fn fits(&self, of: Known<'_>) -> bool {
        let program = |name: &String| of.program.is_some_and(|program| program.is(name));
        self.program.as_ref().is_none_or(program)
            && self.port.is_none_or(|port| of.port == Some(port.get()))
            && self.dscp.is_none_or(|dscp| of.dscp == Some(dscp))
            && self.address.is_none_or(|network| of.remote.is_some_and(|ip| network.contains(ip)))
    }
}

/// What the configuration says of packets.
#[derive(Clone, Default, Debug)]
pub(crate) struct PacketRules(Arc<[PacketRule]>);

impl From<&[PacketRule]> for PacketRules {
    fn from(rules: &[PacketRule]) -> Self {
        Self(rules.into())
    }
}

impl PacketRules {
    fn said(&self, of: Known<'_>) -> Option<ClassName> {
        self.0.iter().find(|rule| rule.fits(of)).map(|rule| rule.class)
    }

    fn name_programs(&self) -> bool {
        self.0.iter().any(|rule| rule.program.is_some())
    }

    /// The class of a datagram of so many bytes from or to a fixed host.
    pub(crate) fn class_of_datagram(&self, remote: &Target, length: usize) -> PacketClass {
        let ip = match remote {
            Target::Addr(addr) => Some(addr.ip().to_canonical()),
            Target::Name(..) => None,
        };
        let of = Known { program: None, remote: ip, port: Some(remote.port()), dscp: None };
        let said = self.said(of).map(ClassName::class);
        said.unwrap_or_else(|| PacketClass::of_datagram(remote.port(), length))
    }
}

fn known(packet: &Packet, host: IpAddr) -> Known<'static> {
    let from_host = packet.source() == host;
    let remote = if from_host { packet.destination() } else { packet.source() };
    let port = packet.ports.map(|(from, to)| if from_host { to } else { from });
    Known { program: None, remote: Some(remote), port, dscp: Some(packet.dscp()) }
}

/// The name of a mobile itself among the hosts that share its hop.
pub(crate) const OWN: u32 = 0;

/// The name of a host behind a mobile, for its share of the hop: the same at both ends.
pub(crate) fn client(ip: IpAddr) -> u32 {
    let bits = match ip.to_canonical() {
        IpAddr::V4(ip) => u128::from(ip.to_bits()),
        IpAddr::V6(ip) => ip.to_bits(),
    };
    let folded = (bits >> 64) as u64 ^ bits as u64;
    ((folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32).max(OWN + 1)
}

/// How packets are sorted: into hosts' and flows' queues, and by what they are worth.
#[derive(Clone, Debug)]
pub(crate) struct Sorting {
    /// Makes the names of flows, which nobody is to foresee.
    seed: u64,
    rules: PacketRules,
    /// Addresses of mobiles themselves.
    own: Arc<BTreeSet<IpAddr>>,
}

impl Sorting {
    /// `own` are the mobiles' own addresses; all others are hosts' behind them.
    pub(crate) fn new(
        seed: u64,
        rules: &[PacketRule],
        own: impl IntoIterator<Item = IpAddr>,
    ) -> Self {
        Self { seed, rules: rules.into(), own: Arc::new(own.into_iter().collect()) }
    }

    /// The name of a packet's flow.
    pub(super) fn flow(&self, packet: &Packet) -> u64 {
        packet.flow_key(self.seed)
    }

    /// The name of a host, for its share of the hop.
    pub(super) fn client(&self, ip: IpAddr) -> u32 {
        if self.own.contains(&ip) { OWN } else { client(ip) }
    }

    /// Whether what programs packets are of matters.
    pub(crate) fn name_programs(&self) -> bool {
        self.rules.name_programs()
    }

    /// What the rules say of packets of a flow with that code point.
    pub(crate) fn said(
        &self,
        ends: FlowEnds,
        dscp: u8,
        program: Option<&Program>,
    ) -> Option<ClassName> {
        let (remote, port) = (Some(ends.fixed.ip()), Some(ends.fixed.port()));
        self.rules.said(Known { program, remote, port, dscp: Some(dscp) })
    }

    /// The class of a packet of so many bytes, of a flow of which that is said.
    pub(super) fn class(
        &self,
        packet: &Packet,
        length: usize,
        host: IpAddr,
        of_flow: Worth,
    ) -> PacketClass {
        let said = of_flow.class.or_else(|| self.rules.said(known(packet, host)));
        let class = said.map_or_else(|| PacketClass::of(packet, length), ClassName::class);
        PacketClass { priority: of_flow.priority, policy: of_flow.policy, ..class }
    }
}

/// What is said of a flow of packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Worth {
    pub(crate) class: Option<ClassName>,
    pub(crate) priority: u32,
    pub(crate) policy: Policy,
}

impl Default for Worth {
    fn default() -> Self {
        Self { class: None, priority: USUAL, policy: Policy::Speed }
    }
}

impl Worth {
    /// For the base, of a flow between these ends.
    pub(crate) fn told(self, ends: FlowEnds) -> FlowWorth {
        let class = self.class.map_or(0, ClassName::number);
        FlowWorth { ends, class, priority: self.priority, policy: self.policy.number() }
    }

    /// What a mobile has told.
    pub(crate) fn heard(of: &FlowWorth) -> Self {
        let priority = of.priority.clamp(1, PRIORITY_MAX);
        let policy = Policy::of_number(of.policy).unwrap_or_default();
        Self { class: ClassName::of_number(of.class), priority, policy }
    }
}

/// The ends of a packet's flow, of a transport that has ports; `host` is the one at the mobile.
pub(crate) fn flow_ends(packet: &Packet, host: IpAddr) -> Option<FlowEnds> {
    let (from, to) = packet.ends()?;
    let (mobile, fixed) = if packet.source() == host { (from, to) } else { (to, from) };
    Some(FlowEnds { protocol: packet.protocol.0, mobile, fixed })
}

#[cfg(test)]
mod tests {
    use lasthop_hop::PathId;

    use super::*;

    #[derive(Deserialize)]
    struct File {
        packets: Vec<PacketRule>,
    }

    fn read(text: &str) -> Result<PacketRules, toml::de::Error> {
        Ok(PacketRules::from(toml::from_str::<File>(text)?.packets.as_slice()))
    }

    /// A UDP packet by IPv4 of 60 bytes, from 10.9.0.7 to 192.0.2.7.
    fn packet(dscp: u8, ports: (u16, u16)) -> Vec<u8> {
        let mut bytes = vec![0x45, dscp << 2, 0, 60, 0, 0, 0, 0, 64, 17, 0, 0];
        bytes.extend([10, 9, 0, 7, 192, 0, 2, 7]);
        bytes.extend(ports.0.to_be_bytes());
        bytes.extend(ports.1.to_be_bytes());
        bytes.extend([0, 40]);
        bytes.resize(60, 0);
        bytes
    }

    /// The first table that fits counts, from either end's side, and what fits none is worth what it says of itself.
    #[test]
    fn the_first_table_that_fits_counts() {
        let rules = read(
            "[[packets]]\nport = 4500\naddress = \"192.0.2.0/24\"\nclass = \"transport\"\n\
             [[packets]]\ndscp = 10\nclass = \"once\"\n[[packets]]\nport = 4500\nclass = \"call\"\n",
        )
        .unwrap();
        let [mobile, fixed]: [IpAddr; 2] = ["10.9.0.7", "192.0.2.7"].map(|ip| ip.parse().unwrap());
        for (dscp, ports, host, class) in [
            (0, (9, 4500), mobile, PacketClass::TRANSPORT),
            (10, (9, 4500), mobile, PacketClass::TRANSPORT),
            // The port is the mobile's own.
            (0, (4500, 9), mobile, PacketClass::ORDINARY),
            (10, (4500, 9), mobile, PacketClass::ONCE),
            (0, (9, 443), mobile, PacketClass::TRANSPORT),
            // Seen from the base, 10.9.0.7 is the fixed host.
            (0, (4500, 9), fixed, PacketClass::CALL),
            (46, (8, 9), fixed, PacketClass::CALL),
        ] {
            let bytes = packet(dscp, ports);
            let packet = Packet::inspect(&bytes).unwrap();
            let sorting = Sorting { seed: 0, rules: rules.clone(), own: Arc::default() };
            let said = sorting.class(&packet, bytes.len(), host, Worth::default());
            assert_eq!(said, class, "{dscp} {ports:?} {host}");
            // What a mobile says of a flow goes before.
            let told = Worth { class: Some(ClassName::Once), priority: 5, ..Worth::default() };
            let told = sorting.class(&packet, bytes.len(), host, told);
            assert_eq!(told, PacketClass { priority: 5, ..PacketClass::ONCE });
        }
        for (target, class) in [
            ("192.0.2.7", PacketClass::TRANSPORT),
            ("198.51.100.7", PacketClass::CALL),
            ("name.example", PacketClass::CALL),
        ] {
            let target = Target::from_host(target, 4500).unwrap();
            assert_eq!(rules.class_of_datagram(&target, 20), class, "{target}");
        }
    }

    #[test]
    fn a_base_understands_what_a_mobile_tells() {
        let bytes = packet(0, (9, 4500));
        let up = Packet::inspect(&bytes).unwrap();
        let ends = flow_ends(&up, up.source()).unwrap();
        assert_eq!((ends.protocol, ends.mobile.port(), ends.fixed.port()), (17, 9, 4500));
        let seen_from_base = flow_ends(&up, up.destination()).unwrap();
        assert_eq!((seen_from_base.mobile, seen_from_base.fixed), (ends.fixed, ends.mobile));
        let all = ["call", "ordinary", "transport", "once"].map(|name| {
            let rules = read(&format!("[[packets]]\nclass = \"{name}\"\n")).unwrap();
            rules.0[0].class
        });
        for class in all.map(Some).into_iter().chain([None]) {
            let policy = Policy::Only(PathId(2));
            let worth = Worth { class, priority: 7, policy };
            assert_eq!(Worth::heard(&worth.told(ends)), worth);
        }
        let strange = FlowWorth { ends, class: 99, priority: 0, policy: 99 };
        assert_eq!(Worth::heard(&strange), Worth::default());
    }

    #[test]
    fn what_no_table_can_mean_is_named() {
        for (text, said) in [
            ("port = 0\nclass = \"call\"", "nonzero"),
            ("dscp = 64\nclass = \"call\"", "64 is no code point: there are 0 to 63"),
            ("class = \"loud\"", "unknown variant `loud`"),
            ("port = 5", "class"),
            ("class = \"call\"\nprograms = \"x\"", "programs"),
        ] {
            let error = read(&format!("[[packets]]\n{text}\n")).unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
