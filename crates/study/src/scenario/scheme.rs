//! The schemes: ways of helping TCP, what each needs, and which of them go together.

use std::fmt;

use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// One way of helping TCP over a last hop.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub enum Scheme {
    /// End-to-end TCP, unhelped.
    #[default]
    None,
    /// Two TCP connections joined at the base (SPL).
    SplitTcp,
    /// Two TCP connections, the hop's carried through a handoff (ITCP).
    ITcp,
    /// TCP on the wire, the Selective Repeat Protocol on the hop (SRP).
    Srp,
    /// TCP on the wire, Haas and Warkhedi's Mobile TCP on the bare hop (MOB).
    MobileTcp,
    /// One TCP from end to end whose headers the base compresses and whose losses it repairs (ALT).
    MobileTcpUnsplit,
    /// The base keeps copies, retransmits them and holds duplicate acknowledgements back (SNP).
    Snoop,
    /// Agents at the base and at the mobile router, each for its own hop (OBB, OBM).
    Obtcp,
    /// The link retransmits, and the receiver holds its later duplicate acknowledgements back (DDA).
    DelayedDupacks,
    /// The base ends the fixed host's flow control, not its acknowledgements (MTC).
    MTcp,
    /// The link retransmits, and congestion marks tell which losses are its own (CC).
    CongestionCoherence,
    /// The link retransmits, and tells the source to wait while it does (EBS).
    Ebsn,
    /// Three duplicate acknowledgements after a handoff (3DA).
    FastRtxHandoff,
    /// A closed window before a disconnection, three acknowledgements after it (FRZ).
    Freeze,
    /// A closed window from the link layer's trigger until the handoff is complete (LLT).
    LlFreeze,
    /// Connection and disconnection events at the mobile's TCP (ATS, ATR).
    Atcp,
    /// User priorities become receive windows (RWC).
    Rwc,
}

/// Where a scheme does its work.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
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
}

/// What a scheme at no place at all has.
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

const MOBILE: Traits =
    Traits { place: WorksAt::Mobile, changes_mobile: true, uses_signals: true, ..NOTHING };

impl Scheme {
    /// All of them, `none` first.
    pub const ALL: [Self; 17] = [
        Self::None,
        Self::SplitTcp,
        Self::ITcp,
        Self::Srp,
        Self::MobileTcp,
        Self::MobileTcpUnsplit,
        Self::Snoop,
        Self::Obtcp,
        Self::DelayedDupacks,
        Self::MTcp,
        Self::CongestionCoherence,
        Self::Ebsn,
        Self::FastRtxHandoff,
        Self::Freeze,
        Self::LlFreeze,
        Self::Atcp,
        Self::Rwc,
    ];

    const NAMES: [&'static str; Self::ALL.len()] = {
        let mut names = [""; Self::ALL.len()];
        let mut n = 0;
        while n < names.len() {
            names[n] = Self::ALL[n].name();
            n += 1;
        }
        names
    };

    /// Its name in files and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::SplitTcp => "split-tcp",
            Self::ITcp => "i-tcp",
            Self::Srp => "srp",
            Self::MobileTcp => "mobile-tcp",
            Self::MobileTcpUnsplit => "mobile-tcp-unsplit",
            Self::Snoop => "snoop",
            Self::Obtcp => "obtcp",
            Self::DelayedDupacks => "delayed-dupacks",
            Self::MTcp => "m-tcp",
            Self::CongestionCoherence => "congestion-coherence",
            Self::Ebsn => "ebsn",
            Self::FastRtxHandoff => "fast-rtx-handoff",
            Self::Freeze => "freeze",
            Self::LlFreeze => "ll-freeze",
            Self::Atcp => "atcp",
            Self::Rwc => "rwc",
        }
    }

    /// The scheme of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scheme| scheme.name() == name)
    }

    /// What it needs and keeps.
    pub const fn traits(self) -> Traits {
        match self {
            Self::None => NOTHING,
            Self::SplitTcp | Self::ITcp | Self::Srp | Self::MobileTcp => SURROGATE,
            // The mobile's end of the hop compresses, too (ALT-1, ALT-4).
            Self::MobileTcpUnsplit => Traits { changes_mobile: true, ..PATH },
            Self::Snoop => PATH,
            Self::Obtcp => Traits { needs_mobile_router: true, ..PATH },
            // Its link recovery looks at no header of TCP's (DDA-1).
            Self::DelayedDupacks => Traits { changes_mobile: true, reads_headers: false, ..PATH },
            Self::MTcp => Traits { changes_mobile: true, uses_signals: true, ..PATH },
            // Both ends must offer explicit congestion notification (CC-2).
            Self::CongestionCoherence => {
                Traits { changes_mobile: true, changes_fixed: true, reads_headers: false, ..PATH }
            }
            // The notification names the connection, and the source must understand it (EBS-3).
            Self::Ebsn => Traits { changes_fixed: true, ..PATH },
            Self::FastRtxHandoff | Self::Freeze | Self::LlFreeze | Self::Atcp => MOBILE,
            Self::Rwc => Traits { place: WorksAt::Windows, uses_signals: false, ..MOBILE },
        }
    }

    /// Whether the hop's own link recovery is a part of it.
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
    pub const fn acts_at_edge(self) -> bool {
        matches!(
            self,
            Self::DelayedDupacks
                | Self::CongestionCoherence
                | Self::Freeze
                | Self::LlFreeze
                | Self::Atcp
                | Self::Rwc
        )
    }

    const fn bit(self) -> u32 {
        1 << self as u16
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

fn named<E: de::Error>(name: &str) -> Result<Scheme, E> {
    Scheme::of_name(name).ok_or_else(|| E::unknown_variant(name, &Scheme::NAMES))
}

impl<'de> Deserialize<'de> for Scheme {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        named(&String::deserialize(d)?)
    }
}

/// The schemes that help one flow: none, one, or several that go together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Schemes(u32);

impl Schemes {
    /// No help at all.
    pub const NONE: Self = Self(0);

    /// One scheme.
    pub const fn one(scheme: Scheme) -> Self {
        Self(scheme.bit() & !Scheme::None.bit())
    }

    /// These and one more.
    ///
    /// # Errors
    ///
    /// They do not go together: why, and what would.
    pub fn with(self, scheme: Scheme) -> Result<Self, String> {
        if self.contains(scheme) && scheme != Scheme::None {
            return Err(format!("`{scheme}` is named twice"));
        }
        match self.iter().find(|other| !goes_with(*other, scheme)) {
            Some(other) => {
                Err(format!("`{scheme}` cannot be combined with `{other}`; {}", companions(scheme)))
            }
            None => Ok(Self(self.0 | Self::one(scheme).0)),
        }
    }

    /// Whether a scheme is among them; `none` is if nothing else is.
    pub const fn contains(self, scheme: Scheme) -> bool {
        match scheme {
            Scheme::None => self.0 == 0,
            _ => self.0 & scheme.bit() != 0,
        }
    }

    /// There is no help.
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// They, in the order of [`Scheme::ALL`]; nothing for no help.
    pub fn iter(self) -> impl Iterator<Item = Scheme> {
        Scheme::ALL.into_iter().filter(move |s| *s != Scheme::None && self.contains(*s))
    }

    /// The one of a place, which has at most one.
    pub fn at(self, place: WorksAt) -> Option<Scheme> {
        self.iter().find(|s| s.traits().place == place)
    }

    /// The one that splits the connection.
    pub fn surrogate(self) -> Option<Scheme> {
        self.at(WorksAt::Surrogate)
    }

    /// The one whose agents are in the path.
    pub fn path(self) -> Option<Scheme> {
        self.at(WorksAt::Path)
    }

    /// The one of the mobile's own TCP.
    pub fn mobile(self) -> Option<Scheme> {
        self.at(WorksAt::Mobile)
    }

    /// Their names with `+` between them; `none` if there is none.
    pub fn name(self) -> String {
        let names: Vec<&str> = self.iter().map(Scheme::name).collect();
        if names.is_empty() { Scheme::None.name().to_string() } else { names.join("+") }
    }
}

impl From<Scheme> for Schemes {
    fn from(scheme: Scheme) -> Self {
        Self::one(scheme)
    }
}

impl fmt::Debug for Schemes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

/// Whether two schemes can help the same flow: at most one at each place, none where a surrogate
/// ends the connection, and none at the mobile's TCP where a scheme of the path has its own there.
fn goes_with(a: Scheme, b: Scheme) -> bool {
    let (first, second) = if a < b { (a, b) } else { (b, a) };
    match (first.traits().place, second.traits().place) {
        (WorksAt::Path, WorksAt::Mobile) => first != Scheme::MTcp,
        (WorksAt::Path | WorksAt::Mobile, WorksAt::Windows) => true,
        _ => false,
    }
}

/// What a scheme can be combined with, in words.
fn companions(scheme: Scheme) -> String {
    let list: Vec<&str> =
        Scheme::ALL.into_iter().filter(|s| goes_with(scheme, *s)).map(Scheme::name).collect();
    if list.is_empty() {
        return format!("`{scheme}` stands alone");
    }
    format!("`{scheme}` can be combined with: {}", list.join(", "))
}

/// `"snoop"`, or `["snoop", "freeze"]`.
impl<'de> Deserialize<'de> for Schemes {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Schemes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a scheme such as `snoop`, or a list such as `[\"snoop\", \"freeze\"]`")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<Schemes, E> {
                named(name).map(Schemes::one)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Schemes, A::Error> {
                let mut named = Vec::new();
                while let Some(scheme) = list.next_element::<Scheme>()? {
                    named.push(scheme);
                }
                if named.is_empty() {
                    return Err(de::Error::custom("the list is empty; write `none` for no help"));
                }
                if named.len() > 1 && named.contains(&Scheme::None) {
                    return Err(de::Error::custom("`none` cannot be combined with anything"));
                }
                let all = named.into_iter().try_fold(Schemes::NONE, Schemes::with);
                all.map_err(de::Error::custom)
            }
        }
        d.deserialize_any(Reader)
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
        assert_eq!(Schemes::one(Scheme::None), Schemes::NONE);
    }

    #[test]
    fn a_flow_has_one_scheme_of_a_place() {
        let all = |names: &[Scheme]| {
            names.iter().try_fold(Schemes::NONE, |set, scheme| set.with(*scheme))
        };
        let set = all(&[Scheme::Freeze, Scheme::Snoop, Scheme::Rwc]).expect("go together");
        assert_eq!(set.name(), "snoop+freeze+rwc");
        assert_eq!((set.path(), set.mobile()), (Some(Scheme::Snoop), Some(Scheme::Freeze)));
        for pair in [
            [Scheme::Snoop, Scheme::Obtcp],
            [Scheme::Freeze, Scheme::Atcp],
            [Scheme::Srp, Scheme::Freeze],
            [Scheme::Srp, Scheme::Snoop],
            [Scheme::MobileTcp, Scheme::Srp],
            [Scheme::MobileTcp, Scheme::Freeze],
            [Scheme::MobileTcp, Scheme::MobileTcpUnsplit],
            [Scheme::MobileTcpUnsplit, Scheme::Snoop],
            [Scheme::MTcp, Scheme::Atcp],
            [Scheme::Snoop, Scheme::Snoop],
        ] {
            assert!(all(&pair).is_err(), "{pair:?}");
            assert!(all(&[pair[1], pair[0]]).is_err(), "{pair:?}");
        }
        let told = all(&[Scheme::Srp, Scheme::Freeze]).expect_err("refused");
        assert!(told.contains("can be combined with: mobile-tcp-unsplit, snoop, obtcp"), "{told}");
        assert!(all(&[Scheme::Freeze, Scheme::Srp]).expect_err("refused").contains("stands alone"));
    }
}
