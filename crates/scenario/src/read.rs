//! From the tree to what serde describes, with errors that know their place.

use std::fmt::{self, Display};

use serde::de::value::StrDeserializer;
use serde::de::{
    self, DeserializeSeed, EnumAccess, Expected, IntoDeserializer, MapAccess, SeqAccess,
    Unexpected, VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;

use super::problem::suggest;
use super::tree::{Entry, Node, Span, Table, Value};

/// What serde did not like.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) kind: Kind,
    /// Where the value, or the key if nobody knows it, stands.
    pub(crate) place: Option<Span>,
    /// The keys that lead to it, outermost last.
    way: Vec<String>,
}

/// The sort of a fault.
#[derive(Debug)]
pub(crate) enum Kind {
    /// A key that nobody knows.
    UnknownKey { found: String, known: &'static [&'static str] },
    /// A name that is none of a list.
    UnknownName { found: String, known: &'static [&'static str] },
    /// A table lacks a key.
    Missing(&'static str),
    /// A value of another type than expected.
    Type { found: String, expected: String, number_for_text: bool },
    /// A value that its reader refused.
    Value(String),
}

impl From<Kind> for Fault {
    fn from(kind: Kind) -> Self {
        Self { kind, place: None, way: Vec::new() }
    }
}

impl Fault {
    /// What was wrong, in words, and the remedy.
    pub(crate) fn words(&self) -> (String, Option<String>) {
        match &self.kind {
            Kind::UnknownKey { found, known } => {
                (format!("unknown key `{found}`"), Some(suggest(found, known.iter().copied())))
            }
            Kind::UnknownName { found, known } => {
                (format!("`{found}` is unknown here"), Some(suggest(found, known.iter().copied())))
            }
            Kind::Missing(key) => (format!("`{key}` is missing"), None),
            Kind::Type { found, expected, number_for_text } => {
                let remedy = number_for_text.then(|| {
                    "write it in quotes and with its unit, such as \"20ms\" or \"2Mbit/s\""
                        .to_string()
                });
                (format!("found {found}, expected {expected}"), remedy)
            }
            Kind::Value(message) => (message.clone(), None),
        }
    }

    /// The keys that lead to the value or unknown key, outermost first.
    pub(crate) fn path(&self) -> Vec<String> {
        let mut path: Vec<String> = self.way.iter().rev().cloned().collect();
        if let Kind::UnknownKey { found, .. } = &self.kind {
            path.push(found.clone());
        }
        path
    }

    fn at(mut self, place: &Span) -> Self {
        self.place.get_or_insert_with(|| place.clone());
        self
    }

    fn under(mut self, key: impl Into<String>) -> Self {
        self.way.push(key.into());
        self
    }
}

impl Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words().0)
    }
}

impl std::error::Error for Fault {}

impl de::Error for Fault {
    fn custom<T: Display>(message: T) -> Self {
        Kind::Value(message.to_string()).into()
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let number = matches!(found, Unexpected::Signed(_) | Unexpected::Float(_));
        let number_for_text = number && expected.to_string().contains("string");
        let (found, expected) = (plain_found(found), plain_expected(expected));
        Kind::Type { found, expected, number_for_text }.into()
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let (found, expected) = (plain_found(found), plain_expected(expected));
        Kind::Type { found, expected, number_for_text: false }.into()
    }

    fn unknown_variant(found: &str, known: &'static [&'static str]) -> Self {
        Kind::UnknownName { found: found.to_string(), known }.into()
    }

    fn unknown_field(found: &str, known: &'static [&'static str]) -> Self {
        Kind::UnknownKey { found: found.to_string(), known }.into()
    }

    fn missing_field(field: &'static str) -> Self {
        Kind::Missing(field).into()
    }
}

fn plain_found(found: Unexpected<'_>) -> String {
    match found {
        Unexpected::Signed(n) => format!("the number {n}"),
        Unexpected::Float(x) => format!("the number {x}"),
        Unexpected::Bool(flag) => flag.to_string(),
        Unexpected::Str(text) => format!("the text `{text}`"),
        Unexpected::Seq => "a list".to_string(),
        Unexpected::Map => "a table".to_string(),
        other => other.to_string(),
    }
}

fn plain_expected(expected: &dyn Expected) -> String {
    match expected.to_string().as_str() {
        "a string" => "a text".to_string(),
        "a boolean" => "true or false".to_string(),
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number, zero or more".to_string(),
        "f64" => "a number".to_string(),
        "a sequence" => "a list".to_string(),
        "an object" => "tables with a name each".to_string(),
        text if text.starts_with("struct ") || text == "a map" => "a table".to_string(),
        text if text.starts_with("enum ") || text == "string or map" => "a name".to_string(),
        text => text.to_string(),
    }
}

impl<'de> de::Deserializer<'de> for &'de Node {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let result = match &self.value {
            Value::Text(text) => visitor.visit_borrowed_str(text),
            Value::Integer(n) => visitor.visit_i64(*n),
            Value::Float(x) => visitor.visit_f64(*x),
            Value::Flag(flag) => visitor.visit_bool(*flag),
            Value::List(list) => visitor.visit_seq(List(list.iter().enumerate())),
            Value::Table(table) => visitor.visit_map(Keys::new(table)),
        };
        result.map_err(|fault| fault.at(&self.place))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        known: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let no_name = |found| Err(de::Error::invalid_type(found, &"a name"));
        let one = match &self.value {
            Value::Text(name) => visitor.visit_enum(Choice { name, node: None }),
            Value::Table(table) => match table.entries() {
                [Entry { key, node, .. }] => {
                    visitor.visit_enum(Choice { name: key, node: Some(node) })
                }
                entries => Err(de::Error::custom(format!(
                    "found a table of {} keys, expected exactly one of: {}",
                    entries.len(),
                    known.join(", ")
                ))),
            },
            Value::List(_) => no_name(Unexpected::Seq),
            Value::Integer(n) => no_name(Unexpected::Signed(*n)),
            Value::Float(x) => no_name(Unexpected::Float(*x)),
            Value::Flag(flag) => no_name(Unexpected::Bool(*flag)),
        };
        one.map_err(|fault| fault.at(&self.place))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

struct List<'de>(std::iter::Enumerate<std::slice::Iter<'de, Node>>);

impl<'de> SeqAccess<'de> for List<'de> {
    type Error = Fault;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Fault> {
        let one = |(i, node): (usize, &'de Node)| {
            seed.deserialize(node).map_err(|f| f.at(&node.place).under(i.to_string()))
        };
        self.0.next().map(one).transpose()
    }
}

struct Keys<'de> {
    left: std::slice::Iter<'de, Entry>,
    value: Option<&'de Entry>,
}

impl<'de> Keys<'de> {
    fn new(table: &'de Table) -> Self {
        Self { left: table.entries().iter(), value: None }
    }
}

impl<'de> MapAccess<'de> for Keys<'de> {
    type Error = Fault;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Fault> {
        let Some(entry) = self.left.next() else { return Ok(None) };
        self.value = Some(entry);
        let key: StrDeserializer<'_, Fault> = entry.key.as_str().into_deserializer();
        seed.deserialize(key).map(Some).map_err(|fault| fault.at(&entry.key_place))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Fault> {
        let entry = self
            .value
            .take()
            .ok_or_else(|| <Fault as de::Error>::custom("a key without a value"))?;
        seed.deserialize(&entry.node).map_err(|f| f.at(&entry.node.place).under(&entry.key))
    }
}

/// A name alone, or a name with what belongs to it.
struct Choice<'de> {
    name: &'de str,
    node: Option<&'de Node>,
}

impl<'de> Choice<'de> {
    fn parameters(&self) -> Result<&'de Node, Fault> {
        let name = self.name;
        let missing = || format!("`{name}` needs parameters: write {{ {name} = ... }}");
        self.node.ok_or_else(|| de::Error::custom(missing()))
    }
}

impl<'de> EnumAccess<'de> for Choice<'de> {
    type Error = Fault;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Fault> {
        let name: StrDeserializer<'_, Fault> = self.name.into_deserializer();
        seed.deserialize(name).map(|value| (value, self))
    }
}

impl<'de> VariantAccess<'de> for Choice<'de> {
    type Error = Fault;

    fn unit_variant(self) -> Result<(), Fault> {
        match self.node {
            None => Ok(()),
            Some(_) => Err(de::Error::custom(format!(
                "`{0}` has no parameters; write \"{0}\" alone",
                self.name
            ))),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Fault> {
        let node = self.parameters()?;
        seed.deserialize(node).map_err(|f| f.at(&node.place).under(self.name))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Fault> {
        self.struct_variant(&[], visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let node = self.parameters()?;
        de::Deserializer::deserialize_any(node, visitor).map_err(|fault| fault.under(self.name))
    }
}
