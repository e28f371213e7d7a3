//! Numbers with units, as ranges of a sweep and random values have them at their ends.

use lasthop_units::{Bytes, Rate, parse_duration};

use super::tree::{Node, Span, Value};

/// A number and what it counts.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Quantity {
    pub(crate) number: f64,
    pub(crate) unit: Unit,
}

/// What a number counts. Times are in nanoseconds, rates in bits per second, sizes in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unit {
    Whole,
    Plain,
    Percent,
    Time,
    Rate,
    Bytes,
}

/// What can stand at the end of a range.
pub(crate) const EXPECTED: &str = "a number, or a text such as `20ms`, `2Mbit/s`, `64KiB` or `5%`";

impl Quantity {
    /// Reads what stands at an end of a range.
    pub(crate) fn read(node: &Node) -> Option<Self> {
        let of = |number: f64, unit| number.is_finite().then_some(Self { number, unit });
        match &node.value {
            Value::Integer(n) => of(*n as f64, Unit::Whole),
            Value::Float(x) => of(*x, Unit::Plain),
            Value::Text(text) => {
                if let Some(percent) = text.trim().strip_suffix('%') {
                    return percent.trim().parse().ok().and_then(|x| of(x, Unit::Percent));
                }
                if let Ok(time) = parse_duration(text) {
                    return of(time.as_nanos() as f64, Unit::Time);
                }
                if let Some(rate) = text.parse().ok().filter(|r: &Rate| *r != Rate::UNLIMITED) {
                    return of(rate.as_bps() as f64, Unit::Rate);
                }
                text.parse().ok().and_then(|b: Bytes| of(b.get() as f64, Unit::Bytes))
            }
            _ => None,
        }
    }

    /// Two ends of one range; a whole number and a fraction make fractions.
    pub(crate) fn alike(a: Self, b: Self) -> Option<(Self, Self)> {
        let plain = |q: Self| matches!(q.unit, Unit::Whole | Unit::Plain);
        match (a.unit, b.unit) {
            (x, y) if x == y => Some((a, b)),
            _ if plain(a) && plain(b) => {
                Some((Self { unit: Unit::Plain, ..a }, Self { unit: Unit::Plain, ..b }))
            }
            _ => None,
        }
    }

    /// Another number of the same unit.
    pub(crate) const fn with(self, number: f64) -> Self {
        Self { number, unit: self.unit }
    }

    /// The quantity as a scenario writes it.
    pub(crate) fn node(self, place: Span) -> Node {
        let whole = |x: f64| libm::round(x).max(0.0) as u64;
        let value = match self.unit {
            Unit::Whole => Value::Integer(libm::round(self.number) as i64),
            Unit::Plain => Value::Float(tidy(self.number)),
            Unit::Percent => Value::Text(format!("{}%", tidy(self.number))),
            Unit::Time => Value::Text(time(whole(self.number))),
            Unit::Rate => Value::Text(rate(whole(self.number))),
            Unit::Bytes => Value::Text(format!("{} B", whole(self.number))),
        };
        Node { value, place }
    }
}

/// Without the dust that adding fractions leaves in the last digits.
fn tidy(x: f64) -> f64 {
    let tidied = libm::round(x * 1e12) / 1e12;
    if tidied == 0.0 && x != 0.0 { x } else { tidied }
}

/// The shortest exact text of a number of nanoseconds.
fn time(ns: u64) -> String {
    for (unit, size) in [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)] {
        if ns.is_multiple_of(size) {
            return format!("{}{unit}", ns / size);
        }
    }
    format!("{ns}ns")
}

fn rate(bps: u64) -> String {
    for (unit, size) in [("Gbit/s", 1_000_000_000), ("Mbit/s", 1_000_000), ("kbit/s", 1_000)] {
        if bps.is_multiple_of(size) {
            return format!("{}{unit}", bps / size);
        }
    }
    format!("{bps}bit/s")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn again(value: Value) -> Value {
        let node = Node { value, place: 0..0 };
        Quantity::read(&node).expect("a quantity").node(0..0).value
    }

    #[test]
    fn quantities_keep_their_unit() {
        let text = |s: &str| Value::Text(s.to_string());
        assert_eq!(again(text("2.8s")), text("2800ms"));
        assert_eq!(again(text("2 Mbit/s")), text("2Mbit/s"));
        assert_eq!(again(text("64KiB")), text("65536 B"));
        assert_eq!(again(text("0.1%")), text("0.1%"));
        assert_eq!(again(Value::Integer(3)), Value::Integer(3));
        assert_eq!(again(Value::Float(0.25)), Value::Float(0.25));
    }

    #[test]
    fn a_range_has_one_unit() {
        let q = |number, unit| Quantity { number, unit };
        assert!(Quantity::alike(q(1.0, Unit::Time), q(2.0, Unit::Rate)).is_none());
        let (a, _) = Quantity::alike(q(0.0, Unit::Whole), q(0.5, Unit::Plain)).expect("alike");
        assert_eq!(a.unit, Unit::Plain);
    }
}
