//! What several kinds of number on the wire have in common.

/// Sequence numbers: arithmetic with counts is modulo the number's range.
macro_rules! wraps {
    ($type:ident($number:ty)) => {
        impl core::ops::Add<$number> for $type {
            type Output = Self;

            #[inline]
            fn add(self, n: $number) -> Self {
                Self(self.0.wrapping_add(n))
            }
        }

        impl core::ops::AddAssign<$number> for $type {
            #[inline]
            fn add_assign(&mut self, n: $number) {
                *self = *self + n;
            }
        }

        impl core::ops::Sub<$number> for $type {
            type Output = Self;

            #[inline]
            fn sub(self, n: $number) -> Self {
                Self(self.0.wrapping_sub(n))
            }
        }
    };
}

/// Types that read like the number that they hold.
macro_rules! reads_as_number {
    ($($type:ident)+) => {$(
        impl core::fmt::Debug for $type {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                self.0.fmt(f)
            }
        }

        impl core::fmt::Display for $type {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                self.0.fmt(f)
            }
        }
    )+};
}

/// A set of bits that have names, lowest first.
macro_rules! bits {
    (
        $(#[$of:meta])*
        pub struct $type:ident($number:ty) {
            $($(#[$doc:meta])* $name:ident = $bit:literal,)+
        }
    ) => {
        $(#[$of])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub struct $type($number);

        impl $type {
            $($(#[$doc])* pub const $name: Self = Self($bit);)+

            /// No bit.
            pub const fn empty() -> Self {
                Self(0)
            }

            /// Those of the bits that have names.
            pub const fn from_bits(bits: $number) -> Self {
                Self(bits & (0 $(| $bit)+))
            }

            /// The bits as they are in a packet.
            pub const fn bits(self) -> $number {
                self.0
            }

            /// Both.
            #[must_use]
            pub const fn with(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }

            /// With `other`, if `set`.
            #[must_use]
            pub const fn with_if(self, other: Self, set: bool) -> Self {
                if set { self.with(other) } else { self }
            }

            /// These without `other`.
            #[must_use]
            pub const fn without(self, other: Self) -> Self {
                Self(self.0 & !other.0)
            }

            /// All of `other` are set.
            pub const fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// Any of `other` is set.
            pub const fn intersects(self, other: Self) -> bool {
                self.0 & other.0 != 0
            }
        }

        impl core::fmt::Debug for $type {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                let names = [$((stringify!($name), Self::$name)),+];
                let mut set = names.into_iter().filter(|(_, bit)| self.contains(*bit));
                match set.next() {
                    Some((first, _)) => f.write_str(first)?,
                    None => return f.write_str("-"),
                }
                set.try_for_each(|(name, _)| write!(f, "|{name}"))
            }
        }
    };
}

/// The variants of an enum that have a meaning and a number each; others carry what they stand for.
macro_rules! numbered {
    ($type:ident: $number:ty { $($name:ident = $n:literal,)+ }) => {
        impl $type {
            /// Every one that has a meaning of its own.
            pub const NAMED: [Self; [$($n),+].len()] = [$(Self::$name),+];

            /// The number of one that has a meaning of its own, zero for others.
            const fn number(self) -> $number {
                match self {
                    $(Self::$name => $n,)+
                    _ => 0,
                }
            }

            const fn of_number(number: $number) -> Option<Self> {
                match number {
                    $($n => Some(Self::$name),)+
                    _ => None,
                }
            }
        }
    };
}

pub(crate) use {bits, numbered, reads_as_number, wraps};
