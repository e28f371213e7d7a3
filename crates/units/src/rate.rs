use core::fmt;
use core::iter::Sum;
use core::ops::{Add, AddAssign, Sub, SubAssign};
use core::str::FromStr;
use core::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::ParseError;
use crate::parse::{self, Scale};

/// A number of bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Bytes(u64);

impl Bytes {
    /// None.
    pub const ZERO: Self = Self(0);

    /// More than there ever is.
    pub const MAX: Self = Self(u64::MAX);

    /// `n` bytes.
    pub const fn new(n: u64) -> Self {
        Self(n)
    }

    /// `n` times 1024 bytes.
    pub const fn from_kib(n: u64) -> Self {
        Self(n.saturating_mul(1024))
    }

    /// `n` times 1024² bytes.
    pub const fn from_mib(n: u64) -> Self {
        Self(n.saturating_mul(1024 * 1024))
    }

    /// The number as an integer.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The number as a length in memory; saturates where `usize` is narrower.
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }

    /// The difference, or zero.
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl From<usize> for Bytes {
    fn from(n: usize) -> Self {
        Self(n as u64)
    }
}

impl Add for Bytes {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Bytes {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        self.saturating_sub(other)
    }
}

impl SubAssign for Bytes {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

impl Sum for Bytes {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::ZERO, Add::add)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            n if n < 10_000 => write!(f, "{n} B"),
            n if n < 10_000_000 => write!(f, "{:.1} kB", n as f64 / 1e3),
            n if n < 10_000_000_000 => write!(f, "{:.1} MB", n as f64 / 1e6),
            n => write!(f, "{:.1} GB", n as f64 / 1e9),
        }
    }
}

const SIZES: &[(&str, Scale)] = &[
    ("B", Scale::new(1, 1)),
    ("", Scale::new(1, 1)),
    ("KB", Scale::new(1_000, 1)),
    ("kB", Scale::new(1_000, 1)),
    ("MB", Scale::new(1_000_000, 1)),
    ("GB", Scale::new(1_000_000_000, 1)),
    ("KiB", Scale::new(1 << 10, 1)),
    ("MiB", Scale::new(1 << 20, 1)),
    ("GiB", Scale::new(1 << 30, 1)),
];

/// Parses `65536`, `16 kB` (1000), `16 KiB` (1024), `4 MB`, `4 MiB`, `1 GB`, `1 GiB`.
impl FromStr for Bytes {
    type Err = ParseError;

    fn from_str(s: &str) -> Result<Self, ParseError> {
        parse::quantity(s, SIZES, "a size such as 64KiB or 4MB").map(Self)
    }
}

/// As it is read: exactly, unlike its [`Display`](fmt::Display).
impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&parse::written(self.0.into(), SIZES))
    }
}

/// A data rate in bits per second.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Rate(u64);

impl Rate {
    /// Nothing moves.
    pub const ZERO: Self = Self(0);
    /// No limit: anything takes no time.
    pub const UNLIMITED: Self = Self(u64::MAX);

    /// `n` bits per second.
    pub const fn from_bps(n: u64) -> Self {
        Self(n)
    }

    /// `n` kilobits per second.
    pub const fn from_kbps(n: u64) -> Self {
        Self(n.saturating_mul(1_000))
    }

    /// `n` megabits per second.
    pub const fn from_mbps(n: u64) -> Self {
        Self(n.saturating_mul(1_000_000))
    }

    /// The rate at which `bytes` move in `over`; unlimited if `over` is zero.
    pub fn of(bytes: Bytes, over: Duration) -> Self {
        let bits = u128::from(bytes.get()) * 8 * 1_000_000_000;
        match bits.checked_div(over.as_nanos()) {
            Some(bps) => Self(u64::try_from(bps).unwrap_or(u64::MAX)),
            None => Self::UNLIMITED,
        }
    }

    /// Bits per second.
    pub const fn as_bps(self) -> u64 {
        self.0
    }

    /// How long `bytes` take at this rate; [`Duration::MAX`] at rate zero.
    pub fn time_for(self, bytes: Bytes) -> Duration {
        if self == Self::UNLIMITED {
            return Duration::ZERO;
        }
        // Packets are short: the narrow division is the usual one and several times as fast.
        if let Some(scaled) = bytes.get().checked_mul(8 * 1_000_000_000) {
            return match scaled.checked_div(self.0) {
                Some(ns) => Duration::from_nanos(ns),
                None => Duration::MAX,
            };
        }
        let scaled = u128::from(bytes.get()) * 8 * 1_000_000_000;
        match scaled.checked_div(u128::from(self.0)) {
            Some(ns) => Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX)),
            None => Duration::MAX,
        }
    }

    /// How many whole bytes move at this rate in `over`.
    pub fn bytes_in(self, over: Duration) -> Bytes {
        let bits = u128::from(self.0).saturating_mul(over.as_nanos()) / 1_000_000_000;
        Bytes(u64::try_from(bits / 8).unwrap_or(u64::MAX))
    }

    /// This rate times `factor`, which must not be negative.
    pub fn scale(self, factor: f64) -> Self {
        // A float-to-integer cast saturates, which is what a rate should do.
        Self((self.0 as f64 * factor) as u64)
    }
}

impl Add for Rate {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            u64::MAX => f.write_str("unlimited"),
            n if n < 10_000 => write!(f, "{n} bit/s"),
            n if n < 1_000_000 => write!(f, "{:.1} kbit/s", n as f64 / 1e3),
            n if n < 1_000_000_000 => write!(f, "{:.2} Mbit/s", n as f64 / 1e6),
            n => write!(f, "{:.3} Gbit/s", n as f64 / 1e9),
        }
    }
}

/// Parses `unlimited`, `9600 bit/s`, `56 kbit/s`, `20 Mbit/s`, `1 Gbit/s` (or `bps`, `kbps`, ...).
impl FromStr for Rate {
    type Err = ParseError;

    fn from_str(s: &str) -> Result<Self, ParseError> {
        const UNITS: &[(&str, Scale)] = &[
            ("bit/s", Scale::new(1, 1)),
            ("bit", Scale::new(1, 1)),
            ("bps", Scale::new(1, 1)),
            ("kbit/s", Scale::new(1_000, 1)),
            ("kbit", Scale::new(1_000, 1)),
            ("kbps", Scale::new(1_000, 1)),
            ("Mbit/s", Scale::new(1_000_000, 1)),
            ("Mbit", Scale::new(1_000_000, 1)),
            ("Mbps", Scale::new(1_000_000, 1)),
            ("Gbit/s", Scale::new(1_000_000_000, 1)),
            ("Gbit", Scale::new(1_000_000_000, 1)),
            ("Gbps", Scale::new(1_000_000_000, 1)),
        ];
        if s.trim() == "unlimited" {
            return Ok(Self::UNLIMITED);
        }
        parse::quantity(s, UNITS, "a rate such as 20Mbit/s, or unlimited").map(Self)
    }
}

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        parse::deserialize(d)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        parse::deserialize(d)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_1500_byte_packet_takes_600_us_at_20_mbit() {
        let rate = Rate::from_mbps(20);
        assert_eq!(rate.time_for(Bytes::new(1500)), Duration::from_micros(600));
        assert_eq!(rate.bytes_in(Duration::from_micros(600)), Bytes::new(1500));
        assert_eq!(Rate::of(Bytes::new(1500), Duration::from_micros(600)), rate);
    }

    #[test]
    fn extremes_do_not_overflow() {
        assert_eq!(Rate::ZERO.time_for(Bytes::new(1)), Duration::MAX);
        assert_eq!(Rate::UNLIMITED.time_for(Bytes::new(u64::MAX)), Duration::ZERO);
        assert_eq!(Rate::of(Bytes::new(1), Duration::ZERO), Rate::UNLIMITED);
        assert_eq!(
            Rate::from_bps(1).time_for(Bytes::new(u64::MAX)),
            Duration::from_nanos(u64::MAX)
        );
        assert_eq!(Rate::UNLIMITED.bytes_in(Duration::MAX), Bytes::new(u64::MAX));
    }

    #[test]
    fn rates_and_sizes_are_read_as_people_write_them() {
        assert_eq!("20Mbit/s".parse(), Ok(Rate::from_mbps(20)));
        assert_eq!("0.66 Mbit/s".parse(), Ok(Rate::from_kbps(660)));
        assert_eq!("unlimited".parse(), Ok(Rate::UNLIMITED));
        assert_eq!("64KiB".parse(), Ok(Bytes::from_kib(64)));
        assert_eq!("1500".parse(), Ok(Bytes::new(1500)));
        assert!("20".parse::<Rate>().is_err());
        assert!("-1 kB".parse::<Bytes>().is_err());
        assert!("99999999999999999999 GB".parse::<Bytes>().is_err());
    }
}
