//! The schemes that help a flow, and which of them go together.

use std::fmt;

use lasthop_units::{Scheme, WorksAt};
use serde::de::{self, IntoDeserializer, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// The schemes that help one flow: none, one, or several that go together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Schemes(u32);

impl Schemes {
    /// No help at all.
    pub const NONE: Self = Self(0);

    /// One scheme.
    pub const fn one(scheme: Scheme) -> Self {
        Self(bit(scheme))
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
            _ => self.0 & bit(scheme) != 0,
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

    /// The one that makes both hosts' TCP multipath.
    pub fn multipath(self) -> Option<Scheme> {
        self.at(WorksAt::Ends)
    }

    /// Whether they use all links of a mobile that has several.
    pub fn uses_several_links(self) -> bool {
        self.iter().any(|scheme| scheme.traits().several_links)
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

const fn bit(scheme: Scheme) -> u32 {
    if matches!(scheme, Scheme::None) { 0 } else { 1 << scheme as u16 }
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
                Scheme::deserialize(name.into_deserializer()).map(Schemes::one)
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
