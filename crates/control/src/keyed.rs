//! Structs that are read key by key, into what they are by default.
//!
//! What serde derives holds every field apart until all are read, drops them wherever one can fail, and reads
//! sequences as well: several times the code, of which a program with so many settings has a lot.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, Visitor};

/// A struct of which any key may be absent.
pub trait Keyed: Default {
    /// Its keys, 64 at most; an empty one is no key.
    const KEYS: &'static [&'static str];
    /// Whether others are refused.
    const CLOSED: bool;

    /// Reads the value of the key with this place in [`KEYS`](Self::KEYS).
    ///
    /// # Errors
    ///
    /// The value is not understood.
    fn read<'de, A: MapAccess<'de>>(&mut self, key: usize, from: &mut A) -> Result<(), A::Error>;
}

/// Reads a struct.
///
/// # Errors
///
/// It is none, a key is not understood or said twice, or a value is not understood.
pub fn read<'de, T: Keyed, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    from.deserialize_map(Reader(PhantomData))
}

struct Reader<T>(PhantomData<T>);

impl<'de, T: Keyed> Visitor<'de> for Reader<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<T, A::Error> {
        const { assert!(T::KEYS.len() <= u64::BITS as usize) };
        let (mut read, mut seen) = (T::default(), 0u64);
        while let Some(key) = from.next_key_seed(Key { keys: T::KEYS, closed: T::CLOSED })? {
            let Some(key) = key else {
                from.next_value::<IgnoredAny>()?;
                continue;
            };
            if seen & (1 << key) != 0 {
                return Err(A::Error::duplicate_field(T::KEYS[key]));
            }
            seen |= 1 << key;
            read.read(key, &mut from)?;
        }
        Ok(read)
    }
}

/// Finds a key's place.
struct Key {
    keys: &'static [&'static str],
    closed: bool,
}

impl<'de> DeserializeSeed<'de> for Key {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Option<usize>, D::Error> {
        from.deserialize_identifier(self)
    }
}

impl Visitor<'_> for Key {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<Option<usize>, E> {
        let known = || self.keys.iter().filter(|known| !known.is_empty());
        match self.keys.iter().position(|known| *known == key && !key.is_empty()) {
            None if self.closed => {
                let known: Vec<String> = known().map(|known| format!("`{known}`")).collect();
                let known = known.join(", ");
                Err(E::custom(format_args!("unknown field `{key}`, expected one of {known}")))
            }
            place => Ok(place),
        }
    }
}

/// Implements [`Keyed`] and serde's `Deserialize` for a struct by its fields, of which `[skip]` stands before one that
/// has no key, and `[read = FUNCTION]` before one that is read by a function.
#[macro_export]
macro_rules! keyed {
    ($name:ident, $closed:literal, $([$($how:tt)*] $field:ident: $type:ty,)*) => {
        impl $crate::keyed::Keyed for $name {
            const KEYS: &'static [&'static str] = &[$($crate::keyed!(@key $field $($how)*)),*];
            const CLOSED: bool = $closed;

            fn read<'de, A: serde::de::MapAccess<'de>>(
                &mut self,
                key: usize,
                from: &mut A,
            ) -> Result<(), A::Error> {
                let mut place = 0..;
                $(if place.next() == Some(key) {
                    $crate::keyed!(@value self.$field, $type, from, $($how)*);
                    return Ok(());
                })*
                Ok(())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                $crate::keyed::read(d)
            }
        }
    };
    (@key $field:ident skip) => { "" };
    (@key $field:ident $($how:tt)*) => { stringify!($field) };
    (@value $field:expr, $type:ty, $from:ident, skip) => {};
    (@value $field:expr, $type:ty, $from:ident, read = $read:path) => {{
        struct Value($type);
        impl<'de> serde::Deserialize<'de> for Value {
            fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                $read(d).map(Self)
            }
        }
        $field = $from.next_value::<Value>()?.0;
    }};
    (@value $field:expr, $type:ty, $from:ident,) => { $field = $from.next_value()?; };
}

#[cfg(test)]
mod tests {
    #[derive(Default, PartialEq, Debug)]
    struct Open {
        a: u8,
        b: Option<String>,
    }

    #[derive(Default, PartialEq, Debug)]
    struct Closed {
        a: u8,
        own: u8,
        tenfold: u8,
    }

    crate::keyed!(Open, false, [] a: u8, [] b: Option<String>,);
    crate::keyed!(Closed, true, [] a: u8, [skip] own: u8, [read = tenfold] tenfold: u8,);

    fn tenfold<'de, D: serde::Deserializer<'de>>(d: D) -> Result<u8, D::Error> {
        Ok(10 * <u8 as serde::Deserialize>::deserialize(d)?)
    }

    fn open(text: &str) -> Result<Open, String> {
        serde_json::from_str(text).map_err(|e| e.to_string())
    }

    fn closed(text: &str) -> Result<Closed, String> {
        serde_json::from_str(text).map_err(|e| e.to_string())
    }

    #[test]
    fn keys_come_in_any_order_and_may_be_absent() {
        assert_eq!(open(r#"{"b": "x", "a": 2}"#), Ok(Open { a: 2, b: Some("x".to_owned()) }));
        assert_eq!(open("{}"), Ok(Open::default()));
        assert_eq!(closed(r#"{"tenfold": 2}"#), Ok(Closed { a: 0, own: 0, tenfold: 20 }));
    }

    #[test]
    fn other_keys_are_passed_over_or_refused() {
        assert_eq!(open(r#"{"c": [{"a": 7}], "a": 2}"#), Ok(Open { a: 2, b: None }));
        for key in ["c", "own", ""] {
            let said = closed(&format!(r#"{{"{key}": 1}}"#)).unwrap_err();
            let expected = format!("unknown field `{key}`, expected one of `a`, `tenfold`");
            assert!(said.starts_with(&expected), "{said}");
        }
    }

    #[test]
    fn what_is_said_twice_or_is_no_table_is_refused() {
        let said = open(r#"{"a": 1, "a": 2}"#).unwrap_err();
        assert!(said.starts_with("duplicate field `a`"), "{said}");
        assert!(open(r#"[1, "x"]"#).unwrap_err().contains("expected a table"));
        assert!(open(r#"{"a": "x"}"#).is_err());
    }
}
