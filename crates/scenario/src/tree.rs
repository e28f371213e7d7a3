//! A scenario file as a tree in which every key and value knows its place in the text.
//!
//! A sweep puts values into the tree and a run draws its random ones in it; both keep the place
//! they came from, so that what is wrong with them is reported there.

use std::fmt::Write;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Bytes of the text.
pub(crate) type Span = Range<usize>;

/// A value and where it stands.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Node {
    pub(crate) value: Value,
    pub(crate) place: Span,
}

/// A TOML value. Dates have no meaning in a scenario and are kept as their text.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Value {
    Text(String),
    Integer(i64),
    Float(f64),
    Flag(bool),
    List(Vec<Node>),
    Table(Table),
}

/// Keys and values, in the order of the file until they are sorted.
#[derive(Clone, PartialEq, Default, Debug)]
pub(crate) struct Table(Vec<Entry>);

/// A key and its value.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) key_place: Span,
    pub(crate) node: Node,
}

impl Table {
    pub(crate) fn entries(&self) -> &[Entry] {
        &self.0
    }

    pub(crate) fn entries_mut(&mut self) -> &mut [Entry] {
        &mut self.0
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Entry> {
        self.0.iter().find(|e| e.key == key)
    }

    pub(crate) fn get_mut(&mut self, key: &str) -> Option<&mut Entry> {
        self.0.iter_mut().find(|e| e.key == key)
    }

    pub(crate) fn remove(&mut self, key: &str) -> Option<Entry> {
        let at = self.0.iter().position(|e| e.key == key)?;
        Some(self.0.remove(at))
    }

    /// Adds an entry, or replaces the value of the one with this key.
    pub(crate) fn insert(&mut self, entry: Entry) {
        match self.get_mut(&entry.key) {
            Some(old) => *old = entry,
            None => self.0.push(entry),
        }
    }

    /// Takes out the entries that `which` chooses.
    pub(crate) fn take_if(&mut self, mut which: impl FnMut(&Entry) -> bool) -> Self {
        let (taken, kept) = self.0.drain(..).partition(|e| which(e));
        self.0 = kept;
        Self(taken)
    }
}

impl Node {
    pub(crate) fn table(table: Table, place: Span) -> Self {
        Self { value: Value::Table(table), place }
    }

    pub(crate) fn as_table(&self) -> Option<&Table> {
        match &self.value {
            Value::Table(table) => Some(table),
            _ => None,
        }
    }

    pub(crate) fn as_table_mut(&mut self) -> Option<&mut Table> {
        match &mut self.value {
            Value::Table(table) => Some(table),
            _ => None,
        }
    }

    fn child(&self, key: &str) -> Option<(&Self, &Span)> {
        match &self.value {
            Value::Table(table) => table.get(key).map(|e| (&e.node, &e.key_place)),
            Value::List(list) => {
                key.parse().ok().and_then(|i: usize| list.get(i)).map(|n| (n, &n.place))
            }
            _ => None,
        }
    }

    /// The value at `path`.
    #[cfg(test)]
    pub(crate) fn at(&self, path: &[&str]) -> Option<&Self> {
        path.iter().try_fold(self, |node, key| node.child(key).map(|(child, _)| child))
    }

    /// Where the deepest part of `path` that exists stands: its value, or its key for a table.
    pub(crate) fn place_of(&self, path: &[&str]) -> Span {
        let mut node = self;
        let mut place = &self.place;
        for key in path {
            let Some((child, key_place)) = node.child(key) else { break };
            place = if child.as_table().is_some() { key_place } else { &child.place };
            node = child;
        }
        place.clone()
    }

    /// Puts `value` at `path`, making the tables on the way.
    ///
    /// # Errors
    ///
    /// The part of the path that is neither a table nor a list.
    pub(crate) fn set(
        &mut self,
        path: &[&str],
        key_place: &Span,
        value: Self,
    ) -> Result<(), String> {
        let mut node = self;
        for (i, key) in path.iter().enumerate() {
            let here = || path[..i].join(".");
            node = match &mut node.value {
                Value::Table(table) => {
                    if table.get(key).is_none() {
                        let empty = Self::table(Table::default(), value.place.clone());
                        table.insert(Entry {
                            key: (*key).to_string(),
                            key_place: key_place.clone(),
                            node: empty,
                        });
                    }
                    &mut table.get_mut(key).ok_or_else(here)?.node
                }
                Value::List(list) => {
                    key.parse().ok().and_then(|i: usize| list.get_mut(i)).ok_or_else(here)?
                }
                _ => return Err(here()),
            };
        }
        *node = value;
        Ok(())
    }

    /// The path of the key or value that stands at `place`; the nearest around it otherwise.
    pub(crate) fn path_at(&self, place: &Span) -> String {
        let mut path = String::new();
        self.find(place, &mut path);
        path
    }

    fn find(&self, place: &Span, path: &mut String) -> bool {
        if self.place == *place && !matches!(self.value, Value::Table(_)) {
            return true;
        }
        let length = path.len();
        let mut step = |key: &str, key_place: Option<&Span>, node: &Self| {
            if !path.is_empty() {
                path.push('.');
            }
            path.push_str(key);
            let found = key_place == Some(place) || node.find(place, path) || node.place == *place;
            if !found {
                path.truncate(length);
            }
            found
        };
        match &self.value {
            Value::Table(table) => {
                table.entries().iter().any(|e| step(&e.key, Some(&e.key_place), &e.node))
            }
            Value::List(list) => {
                list.iter().enumerate().any(|(i, n)| step(&i.to_string(), None, n))
            }
            _ => false,
        }
    }

    /// Brings the keys of all tables into the order that the canonical text has.
    pub(crate) fn sort(&mut self) {
        match &mut self.value {
            Value::List(list) => list.iter_mut().for_each(Self::sort),
            Value::Table(table) => {
                table.0.sort_by(|a, b| a.key.cmp(&b.key));
                table.0.iter_mut().for_each(|entry| entry.node.sort());
            }
            _ => {}
        }
    }

    /// Writes this value with sorted keys and no white space, so that equal trees have equal texts
    /// whatever their files look like.
    pub(crate) fn canonical(&self, out: &mut String) {
        match &self.value {
            Value::Text(text) => out.push_str(&serde_json::Value::from(text.as_str()).to_string()),
            // Writing to a string cannot fail.
            Value::Integer(n) => _ = write!(out, "{n}"),
            Value::Float(x) => _ = write!(out, "{x:?}"),
            Value::Flag(flag) => _ = write!(out, "{flag}"),
            Value::List(list) => {
                out.push('[');
                for (i, node) in list.iter().enumerate() {
                    out.push_str(if i == 0 { "" } else { "," });
                    node.canonical(out);
                }
                out.push(']');
            }
            Value::Table(table) => {
                let mut entries: Vec<&Entry> = table.entries().iter().collect();
                entries.sort_by(|a, b| a.key.cmp(&b.key));
                out.push('{');
                for (i, entry) in entries.iter().enumerate() {
                    out.push_str(if i == 0 { "" } else { "," });
                    out.push_str(&serde_json::Value::from(entry.key.as_str()).to_string());
                    out.push(':');
                    entry.node.canonical(out);
                }
                out.push('}');
            }
        }
    }

    /// The value as people write it in a list of parameters: a text without quotes.
    pub(crate) fn label(&self) -> String {
        match &self.value {
            Value::Text(text) => text.clone(),
            _ => {
                let mut out = String::new();
                self.canonical(&mut out);
                out
            }
        }
    }
}

/// Reads TOML. Every mistake in it is reported with its place.
pub(crate) fn parse(text: &str) -> Result<Node, Vec<(Span, String)>> {
    let (document, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        let told = |e: &toml::de::Error| {
            (e.span().unwrap_or(0..0), e.message().trim().replace('\n', ", "))
        };
        return Err(errors.iter().map(told).collect());
    }
    let place = document.span();
    Ok(Node::table(table(document.into_inner()), place))
}

fn table(found: DeTable<'_>) -> Table {
    let entry = |(key, value): (Spanned<_>, Spanned<DeValue<'_>>)| Entry {
        key_place: key.span(),
        key: std::borrow::Cow::into_owned(key.into_inner()),
        node: node(value),
    };
    let mut entries: Vec<Entry> = found.into_iter().map(entry).collect();
    entries.sort_by_key(|e| e.key_place.start);
    Table(entries)
}

fn node(found: Spanned<DeValue<'_>>) -> Node {
    let place = found.span();
    let value = match found.into_inner() {
        DeValue::String(text) => Value::Text(text.into_owned()),
        DeValue::Integer(n) => match i64::from_str_radix(n.as_str(), n.radix()) {
            Ok(n) => Value::Integer(n),
            // Too large for any key: kept as text, which every key refuses by quoting it.
            Err(_) => Value::Text(n.as_str().to_string()),
        },
        DeValue::Float(x) => match x.as_str().parse() {
            Ok(x) => Value::Float(x),
            Err(_) => Value::Text(x.as_str().to_string()),
        },
        DeValue::Boolean(flag) => Value::Flag(flag),
        DeValue::Datetime(date) => Value::Text(date.to_string()),
        DeValue::Array(list) => Value::List(list.into_iter().map(node).collect()),
        DeValue::Table(found) => Value::Table(table(found)),
    };
    Node { value, place }
}

/// The line, counted from 1, on which byte `at` stands.
pub(crate) fn line(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|b| *b == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(text: &str) -> String {
        let mut out = String::new();
        parse(text).expect("TOML").canonical(&mut out);
        out
    }

    #[test]
    fn order_and_layout_do_not_change_the_canonical_text() {
        let one = "b = 1\na = \"x\" # comment\n[t]\nk = [1.5, true]\n";
        let other = "t = {k=[1.5,true]}\na = 'x'\nb = 1\n";
        assert_eq!(canonical(one), r#"{"a":"x","b":1,"t":{"k":[1.5,true]}}"#);
        assert_eq!(canonical(one), canonical(other));
    }

    #[test]
    fn keys_and_values_are_found_again_by_their_place() {
        let text = "[link.radio]\nloss = \"5%\"\n[[flow]]\nfrom = \"a\"\n";
        let tree = parse(text).expect("TOML");
        let place = tree.place_of(&["link", "radio", "loss"]);
        assert_eq!(&text[place.clone()], "\"5%\"");
        assert_eq!(tree.path_at(&place), "link.radio.loss");
        assert_eq!(tree.path_at(&tree.place_of(&["flow", "0", "from"])), "flow.0.from");
        assert_eq!(line(text, place.start), 2);
    }

    #[test]
    fn a_path_can_be_set_where_nothing_was() {
        let mut tree = parse("[link.radio]\nrate = \"1Mbit/s\"\n[[flow]]\nx = 1").expect("TOML");
        let five = Node { value: Value::Integer(5), place: 3..4 };
        tree.set(&["link", "radio", "forward", "mtu"], &(1..2), five.clone()).expect("set");
        assert_eq!(tree.at(&["link", "radio", "forward", "mtu"]), Some(&five));
        tree.set(&["flow", "0", "x"], &(1..2), five.clone()).expect("set");
        assert_eq!(tree.set(&["flow", "1", "x"], &(1..2), five.clone()), Err("flow".to_string()));
        let error = tree.set(&["link", "radio", "rate", "x"], &(1..2), five);
        assert_eq!(error, Err("link.radio.rate".to_string()));
    }
}
