//! Values of a parsed file, as serde reads them.
//!
//! The parser's own deserializer makes the code of each table three times: as a table, as a date and as a value with
//! its place. Settings have no dates and no places, and that code was a tenth of the program.

use std::fmt;

use serde::de::{
    self, DeserializeSeed, Deserializer, Error as _, IntoDeserializer, MapAccess, SeqAccess,
    Visitor,
};
use toml::Spanned;
use toml::de::DeValue;

/// What is wrong with a file.
#[derive(Debug)]
pub(super) struct Mistake {
    /// The byte at which it begins, where that is known.
    pub(super) at: Option<usize>,
    /// What was expected.
    pub(super) message: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Mistake {}

impl de::Error for Mistake {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self { at: None, message: message.to_string() }
    }
}

impl From<toml::de::Error> for Mistake {
    fn from(error: toml::de::Error) -> Self {
        Self { at: error.span().map(|span| span.start), message: error.message().to_owned() }
    }
}

/// A value, or a key.
pub(super) struct Value<'i> {
    at: usize,
    is: DeValue<'i>,
}

impl<'i> Value<'i> {
    pub(super) fn parse(text: &'i str) -> Result<Self, Mistake> {
        let table = toml::de::DeTable::parse(text)?;
        Ok(Self { at: table.span().start, is: DeValue::Table(table.into_inner()) })
    }

    /// Has `seed` read it: what is wrong is wrong here, unless it is further inside.
    pub(super) fn feed<S: DeserializeSeed<'i>>(self, seed: S) -> Result<S::Value, Mistake> {
        let at = self.at;
        let within = |mistake: Mistake| Mistake { at: mistake.at.or(Some(at)), ..mistake };
        seed.deserialize(self).map_err(within)
    }
}

impl<'i> From<Spanned<DeValue<'i>>> for Value<'i> {
    fn from(value: Spanned<DeValue<'i>>) -> Self {
        Self { at: value.span().start, is: value.into_inner() }
    }
}

/// The values of an array.
struct Items<I>(I);

impl<'de, I: Iterator<Item = Value<'de>>> SeqAccess<'de> for Items<I> {
    type Error = Mistake;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Mistake> {
        self.0.next().map(|value| value.feed(seed)).transpose()
    }
}

/// The keys and values of a table.
struct Entries<'i, I> {
    entries: I,
    value: Option<Value<'i>>,
}

impl<'de, I: Iterator<Item = (Value<'de>, Value<'de>)>> MapAccess<'de> for Entries<'de, I> {
    type Error = Mistake;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Mistake> {
        let Some((key, value)) = self.entries.next() else { return Ok(None) };
        self.value = Some(value);
        key.feed(seed).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Mistake> {
        let value = self.value.take().ok_or_else(|| Mistake::custom("a value before its key"))?;
        value.feed(seed)
    }
}

impl<'de> Deserializer<'de> for Value<'de> {
    type Error = Mistake;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        match self.is {
            DeValue::String(text) => visitor.visit_str(&text),
            DeValue::Integer(n) => match i64::from_str_radix(n.as_str(), n.radix()) {
                Ok(n) => visitor.visit_i64(n),
                Err(error) => Err(Mistake::custom(error)),
            },
            DeValue::Float(x) => match x.as_str().parse() {
                Ok(x) => visitor.visit_f64(x),
                Err(error) => Err(Mistake::custom(error)),
            },
            DeValue::Boolean(is) => visitor.visit_bool(is),
            DeValue::Datetime(time) => visitor.visit_str(&time.to_string()),
            DeValue::Array(values) => visitor.visit_seq(Items(values.into_iter().map(Value::from))),
            DeValue::Table(values) => {
                let entries = values.into_iter().map(|(key, value)| {
                    let at = key.span().start;
                    (Value { at, is: DeValue::String(key.into_inner()) }, Value::from(value))
                });
                visitor.visit_map(Entries { entries, value: None })
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        visitor.visit_some(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mistake> {
        match self.is.as_str() {
            Some(name) => visitor.visit_enum(name.into_deserializer()),
            None => self.deserialize_any(visitor),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Mistake> {
        visitor.visit_newtype_struct(self)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}
