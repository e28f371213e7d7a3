//! The schemes: ways of helping TCP over a last hop, what each needs, and what runs it on Linux.
//!
//! This is the only list of them: configurations, scenarios, the league and the tables follow from it.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Deserializer, de};

/// Where a scheme does its work.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum WorksAt {
    /// Nowhere.
    Nowhere,
    /// At a base that ends the connection and makes another.
    Surrogate,
    /// At agents that the connection's own packets pass through.
    Path,
    /// At the mobile's TCP and nowhere else.
    Mobile,
    /// At the mobile, between its flows.
    Windows,
    /// At the TCP of both hosts.
    Ends,
}

/// What a scheme needs and keeps: what the schemes table of the ll-trigger paper (Table I) asks, as
/// far as it follows from the scheme itself and need not be measured.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Traits {
    /// Where it does its work.
    pub place: WorksAt,
    /// A node of kind `base` must be on the way.
    pub needs_base: bool,
    /// A node of kind `mobile-router` must be on the way, between base and mobile host.
    pub needs_mobile_router: bool,
    /// Some node between the two hosts must take part.
    pub intermediate_node: bool,
    /// The mobile host must be changed.
    pub changes_mobile: bool,
    /// The fixed host must be changed, or must at least offer what not every host does.
    pub changes_fixed: bool,
    /// An acknowledgement that the sender gets means that the receiver's host has the data.
    pub end_to_end: bool,
    /// It reads TCP headers in the path, which encryption below TCP would hide.
    pub reads_headers: bool,
    /// It acts on link events at the mobile.
    pub uses_signals: bool,
    /// It uses all links of a mobile that has several to one base; the others use one.
    pub several_links: bool,
}

const NOTHING: Traits = Traits {
    place: WorksAt::Nowhere,
    needs_base: false,
    needs_mobile_router: false,
    intermediate_node: false,
    changes_mobile: false,
    changes_fixed: false,
    end_to_end: true,
    reads_headers: false,
    uses_signals: false,
    several_links: false,
};
const SURROGATE: Traits = Traits {
    place: WorksAt::Surrogate,
    needs_base: true,
    intermediate_node: true,
    changes_mobile: true,
    end_to_end: false,
    reads_headers: true,
    uses_signals: true,
    ..NOTHING
};
const PATH: Traits = Traits {
    place: WorksAt::Path,
    needs_base: true,
    intermediate_node: true,
    reads_headers: true,
    ..NOTHING
};
const MULTIPATH: Traits = Traits {
    place: WorksAt::Ends,
    changes_mobile: true,
    changes_fixed: true,
    several_links: true,
    ..NOTHING
};
const MOBILE: Traits =
    Traits { place: WorksAt::Mobile, changes_mobile: true, uses_signals: true, ..NOTHING };

/// An end of the hop.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HopEnd {
    /// Where the fixed side begins: what comes from the mobile has crossed the hop.
    Base,
    /// Where the mobile is, or its router: what comes from the fixed side has crossed the hop.
    #[default]
    Mobile,
}

const AT_BASE: Option<HopEnd> = Some(HopEnd::Base);
const AT_MOBILE: Option<HopEnd> = Some(HopEnd::Mobile);
const AT_EITHER: Option<HopEnd> = None;

/// What `lasthop agent` can be told to be: a scheme, or a scheme's part at one end of the hop.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AgentRole {
    /// The scheme.
    pub scheme: Scheme,
    /// Its name in files and arguments.
    pub name: &'static str,
    /// The only end of the hop where it can be; `None` if it can be at either.
    pub end: Option<HopEnd>,
}

/// An agent of a scheme at the end of the hop where it belongs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placement {
    /// Where.
    pub end: HopEnd,
    /// What `lasthop agent` is told, interfaces apart.
    pub args: Vec<&'static str>,
}

/// Makes the enum and what is constant of each scheme: its name, the title of its page, the codes of
/// its requirements, its roles in the path on Linux, its traits.
macro_rules! schemes {
    ($($(#[$doc:meta])+
       $scheme:ident = $name:literal, $title:literal, $codes:expr,
       [$($role:literal: $end:expr),*], $traits:expr;)+) => {
        /// One way of helping TCP over a last hop.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Scheme {
            $($(#[$doc])+ $scheme,)+
        }

        impl Scheme {
            const NAMES: &'static [&'static str] = &[$($name),+];

            /// All of them, `none` first.
            pub const ALL: [Self; Self::NAMES.len()] = [$(Self::$scheme),+];

            /// The title of its page.
            pub const fn title(self) -> &'static str {
                match self { $(Self::$scheme => $title),+ }
            }

            /// What the names of its requirements begin with, such as `SNP` of `SNP-3`.
            pub const fn codes(self) -> &'static [&'static str] {
                match self { $(Self::$scheme => &$codes),+ }
            }

            /// What it needs and keeps.
            pub const fn traits(self) -> Traits {
                match self { $(Self::$scheme => $traits),+ }
            }

            /// Its agents on Linux, from the fixed side to the mobile side.
            pub const fn roles(self) -> &'static [AgentRole] {
                match self { $(Self::$scheme => {
                    &[$(AgentRole { scheme: Self::$scheme, name: $role, end: $end }),*]
                })+ }
            }
        }
    };
}

schemes! {
    /// End-to-end TCP, unhelped.
    None = "none", "TCP by itself", ["RENO"], ["none": AT_EITHER], NOTHING;
    /// Two TCP connections joined at the base.
    SplitTcp = "split-tcp", "two connections", ["SPL"], [], SURROGATE;
    /// Two TCP connections, the hop's carried through a handoff.
    ITcp = "i-tcp", "two connections, and the second one moves", ["ITCP"], [], SURROGATE;
    /// TCP on the wire, the Selective Repeat Protocol on the hop.
    Srp = "srp", "the hop has a transport of its own", ["SRP"], [], SURROGATE;
    /// The same, over all links of the mobile under one association (SRP-38).
    Bond = "bond", "all links at once", ["SRP"], [], Traits { several_links: true, ..SURROGATE };
    /// The same, and each piece goes by a second link as well where air is to spare (SRP-43).
    BondRedundant = "bond-redundant", "each piece by two links", ["SRP"], [],
        Traits { several_links: true, ..SURROGATE };
    /// TCP on the wire, Haas and Warkhedi's Mobile TCP on the bare hop.
    MobileTcp = "mobile-tcp", "a light transport on the bare link", ["MOB"], [], SURROGATE;
    /// One TCP from end to end whose headers the base compresses and whose losses it repairs. The
    /// mobile's end of the hop compresses, too (ALT-1, ALT-4).
    MobileTcpUnsplit = "mobile-tcp-unsplit", "short headers and local repair, without a split",
        ["ALT"], [], Traits { changes_mobile: true, ..PATH };
    /// The base keeps copies, retransmits them and holds duplicate acknowledgements back.
    Snoop = "snoop", "copies at the base", ["SNP"], ["snoop": AT_BASE], PATH;
    /// Agents at the base and at the mobile router, each for its own hop.
    Obtcp = "obtcp", "an agent on either side of the first hop", ["OBB", "OBM"],
        ["obtcp-base": AT_BASE, "obtcp-mobile-router": AT_MOBILE],
        Traits { needs_mobile_router: true, ..PATH };
    /// The link retransmits, and the receiver holds its later duplicate acknowledgements back. The
    /// link's recovery looks at no header of TCP's (DDA-1).
    DelayedDupacks = "delayed-dupacks", "give the link time", ["DDA"],
        ["delayed-dupacks": AT_EITHER],
        Traits { changes_mobile: true, reads_headers: false, ..PATH };
    /// The base ends the fixed host's flow control, not its acknowledgements.
    MTcp = "m-tcp", "the last byte is kept for bad times", ["MTC"], ["m-tcp": AT_BASE],
        Traits { changes_mobile: true, uses_signals: true, ..PATH };
    /// The link retransmits, and congestion marks tell which losses are its own. Both ends must offer
    /// explicit congestion notification (CC-2).
    CongestionCoherence = "congestion-coherence", "marks tell the cause", ["CC"],
        ["congestion-coherence": AT_EITHER],
        Traits { changes_mobile: true, changes_fixed: true, reads_headers: false, ..PATH };
    /// The link retransmits, and tells the source to wait while it does. The notification names the
    /// connection, and the source must understand it (EBS-3).
    Ebsn = "ebsn", "tell the source that the link is trying", ["EBS"], [],
        Traits { changes_fixed: true, ..PATH };
    /// Three duplicate acknowledgements after a handoff.
    FastRtxHandoff = "fast-rtx-handoff", "three duplicates when it is over", ["3DA"], [], MOBILE;
    /// A closed window before a disconnection, three acknowledgements after it.
    Freeze = "freeze", "close the window before the door", ["FRZ"], ["freeze": AT_EITHER], MOBILE;
    /// A closed window from the link layer's trigger until the handoff is complete.
    LlFreeze = "ll-freeze", "frozen until the network knows", ["LLT"], ["ll-freeze": AT_EITHER],
        MOBILE;
    /// Connection and disconnection events at the mobile's TCP.
    Atcp = "atcp", "two bytes in reserve", ["ATS", "ATR"], ["atcp": AT_MOBILE], MOBILE;
    /// User priorities become receive windows.
    Rwc = "rwc", "priorities become windows", ["RWC"], ["rwc": AT_EITHER],
        Traits { place: WorksAt::Windows, uses_signals: false, ..MOBILE };
    /// Multipath TCP between the two hosts (RFC 8684), a subflow by each link: the fastest that may send does.
    MptcpMinrtt = "mptcp-minrtt", "the fastest subflow that may send", [], [], MULTIPATH;
    /// The same, but what the fastest subflow would have sent sooner waits for it.
    MptcpEcf = "mptcp-ecf", "earliest completion first", [], [], MULTIPATH;
    /// The same, but a slower subflow leaves room in the shared window for the fastest.
    MptcpBlest = "mptcp-blest", "room for the fastest subflow", [], [], MULTIPATH;
}

impl Scheme {
    /// Its name in files and tables.
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// Those that differ from all others over one link too. Over one link, one that uses several is another of
    /// these.
    pub fn over_one_link() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|scheme| !scheme.traits().several_links)
    }

    /// The scheme of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scheme| scheme.name() == name)
    }

    /// Whether the hop's own link recovery is a part of it, which takes both ends of the hop.
    pub const fn recovers_on_link(self) -> bool {
        matches!(self, Self::DelayedDupacks | Self::CongestionCoherence | Self::Ebsn)
    }

    /// Whether the mobile host has the other end of what its base does, so that both must be at one
    /// link: the link's recovery, or compressed headers (ALT-4).
    pub const fn ends_at_mobile(self) -> bool {
        self.recovers_on_link() || matches!(self, Self::MobileTcpUnsplit)
    }

    /// Whether it takes any gap for a loss, which holds only where the hop keeps its order (MOB-25).
    pub const fn needs_order(self) -> bool {
        matches!(self, Self::MobileTcp)
    }

    /// Whether it can do nothing without being told of a disconnection beforehand (FRZ-1, LLT-2).
    pub const fn needs_warning(self) -> bool {
        matches!(self, Self::Freeze | Self::LlFreeze)
    }

    /// Whether what it does at the mobile can be done by an agent at the mobile's edge, in front of a
    /// TCP that knows nothing of it.
    pub fn acts_at_edge(self) -> bool {
        let at_mobile = self.placements().iter().any(|agent| agent.end == HopEnd::Mobile);
        at_mobile && !self.traits().needs_mobile_router
    }

    /// The agents with which it helps on Linux, from the fixed side to the mobile side; none where
    /// nothing helps, or nothing in the path.
    pub fn placements(self) -> Vec<Placement> {
        match self.roles() {
            _ if self == Self::None => Vec::new(),
            [AgentRole { name, end: None, .. }] if self.recovers_on_link() => {
                let at = |end, word| Placement { end, args: vec![*name, "--end", word] };
                vec![at(HopEnd::Base, "base"), at(HopEnd::Mobile, "mobile")]
            }
            roles => {
                let place = |role: &AgentRole| Placement {
                    end: role.end.unwrap_or(HopEnd::Mobile),
                    args: vec![role.name],
                };
                roles.iter().map(place).collect()
            }
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Scheme {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let name = String::deserialize(d)?;
        Self::of_name(&name).ok_or_else(|| de::Error::unknown_variant(&name, Self::NAMES))
    }
}

impl AgentRole {
    /// All of them; those that need something of the fixed host are last.
    pub fn all() -> Vec<Self> {
        let all = Scheme::ALL.into_iter().flat_map(Scheme::roles).copied();
        let (last, first): (Vec<_>, Vec<_>) =
            all.partition(|role| role.scheme.traits().changes_fixed);
        [first, last].concat()
    }

    /// Their names, with commas between them.
    pub fn names() -> String {
        Self::all().iter().map(|role| role.name).collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Display for AgentRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl FromStr for AgentRole {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let role = Self::all().into_iter().find(|role| role.name == s);
        role.ok_or_else(|| format!("`{s}` is no scheme of an agent: there are {}", Self::names()))
    }
}

impl<'de> Deserialize<'de> for AgentRole {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(de::Error::custom)
    }
}

impl FromStr for HopEnd {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        match s {
            "base" => Ok(Self::Base),
            "mobile" => Ok(Self::Mobile),
            _ => Err(format!("`{s}` is no end of the hop: there are base and mobile")),
        }
    }
}

impl fmt::Display for HopEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Base => "base",
            Self::Mobile => "mobile",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scheme_has_a_name_and_traits_that_agree() {
        for scheme in Scheme::ALL {
            assert_eq!(Scheme::of_name(scheme.name()), Some(scheme));
            let traits = scheme.traits();
            assert_eq!(traits.needs_base, traits.intermediate_node, "{scheme}");
            let at_base = matches!(traits.place, WorksAt::Surrogate | WorksAt::Path);
            assert_eq!(traits.needs_base, at_base, "{scheme}");
            assert_eq!(scheme.traits().end_to_end, traits.place != WorksAt::Surrogate, "{scheme}");
        }
    }

    #[test]
    fn every_role_is_known_by_its_name() {
        for role in AgentRole::all() {
            assert_eq!(role.name.parse(), Ok(role));
            assert!(role.name.starts_with(role.scheme.name()), "{role}");
        }
        let e = "snop".parse::<AgentRole>().unwrap_err();
        assert!(e.contains("`snop`") && e.contains("congestion-coherence"), "{e}");
    }

    #[test]
    fn schemes_stand_where_their_packets_pass() {
        let ends = |scheme: Scheme| scheme.placements().iter().map(|at| at.end).collect::<Vec<_>>();
        assert!(ends(Scheme::None).is_empty() && ends(Scheme::Srp).is_empty());
        assert_eq!(ends(Scheme::Snoop), [HopEnd::Base]);
        assert_eq!(ends(Scheme::Freeze), [HopEnd::Mobile]);
        assert_eq!(ends(Scheme::Obtcp), [HopEnd::Base, HopEnd::Mobile]);
        let [_, mobile] = &Scheme::DelayedDupacks.placements()[..] else { panic!("two") };
        assert_eq!(mobile.args, ["delayed-dupacks", "--end", "mobile"]);
        let at_edge = Scheme::ALL.into_iter().filter(|scheme| scheme.acts_at_edge());
        assert_eq!(
            at_edge.map(Scheme::name).collect::<Vec<_>>().join(" "),
            "delayed-dupacks congestion-coherence freeze ll-freeze atcp rwc"
        );
    }
}
