//! Which of an association's paths may carry what.

use lasthop_units::Rate;
use smallvec::SmallVec;

use crate::path_id::{PATHS_MAX, PathId};

/// Which paths may carry a stream, or a flow of packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Policy {
    /// All: each piece goes where it arrives first.
    #[default]
    Speed,
    /// The same, and each piece goes by a second path as well while air is to spare there.
    Redundant,
    /// Those that cost least, and others only while these do not suffice ([`PathStatus::below`]).
    Cheap,
    /// This one alone: where it does not answer, nothing goes.
    Only(PathId),
}

impl Policy {
    /// Its number on the wire.
    pub fn number(self) -> u32 {
        match self {
            Self::Speed => 0,
            Self::Redundant => 1,
            Self::Cheap => 2,
            Self::Only(path) => 3 + u32::from(path.0),
        }
    }

    /// The policy of this number, if there is one.
    pub fn of_number(number: u32) -> Option<Self> {
        match number {
            0 => Some(Self::Speed),
            1 => Some(Self::Redundant),
            2 => Some(Self::Cheap),
            _ => u8::try_from(number - 3)
                .ok()
                .filter(|path| usize::from(*path) < PATHS_MAX)
                .map(|path| Self::Only(PathId(path))),
        }
    }
}

/// What a path costs, which its mobile says and both ends go by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathStatus {
    /// The cost, relative to other paths'.
    pub cost: u32,
    /// It carries what is to be [cheap](Policy::Cheap) as long as those that cost less carry less than this together. Where
    /// none of them answers it does in any case.
    pub below: Rate,
}

impl PathStatus {
    /// It costs nothing, as all do of which nothing is said.
    pub const FREE: Self = Self { cost: 0, below: Rate::ZERO };
    /// What it may carry is used up: nothing goes there any more.
    pub const SPENT: Self = Self { cost: u32::MAX, below: Rate::ZERO };

    /// Nothing goes there any more.
    pub fn is_spent(&self) -> bool {
        self.cost == u32::MAX
    }
}

impl Default for PathStatus {
    fn default() -> Self {
        Self::FREE
    }
}

/// Something of each policy, as far as there is any.
#[derive(Debug)]
pub(crate) struct PerPolicy<T>(SmallVec<[(Policy, T); 1]>);

impl<T> Default for PerPolicy<T> {
    fn default() -> Self {
        Self(SmallVec::new())
    }
}

impl<T: Default> PerPolicy<T> {
    /// A policy's, made if there is none.
    pub(crate) fn of(&mut self, policy: Policy) -> &mut T {
        let at = self.0.iter().position(|(other, _)| *other == policy).unwrap_or_else(|| {
            self.0.push((policy, T::default()));
            self.0.len() - 1
        });
        &mut self.0[at].1
    }
}

impl<T> PerPolicy<T> {
    /// A policy's, if there is any.
    pub(crate) fn get(&self, policy: Policy) -> Option<&T> {
        self.iter().find(|(other, _)| *other == policy).map(|(_, of)| of)
    }

    /// The same, to change it.
    pub(crate) fn get_mut(&mut self, policy: Policy) -> Option<&mut T> {
        self.0.iter_mut().find(|(other, _)| *other == policy).map(|(_, of)| of)
    }

    /// All that there are.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Policy, &T)> {
        self.0.iter().map(|(policy, of)| (*policy, of))
    }

    /// The same, without their policies.
    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|(_, of)| of)
    }

    /// The same, to change them.
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut().map(|(_, of)| of)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_come_back_from_their_numbers() {
        let paths = (0..PATHS_MAX as u8).map(|path| Policy::Only(PathId(path)));
        for policy in [Policy::Speed, Policy::Redundant, Policy::Cheap].into_iter().chain(paths) {
            assert_eq!(Policy::of_number(policy.number()), Some(policy));
        }
        for number in [3 + PATHS_MAX as u32, 3 + 256, u32::MAX] {
            assert_eq!(Policy::of_number(number), None);
        }
    }
}
