//! Names of an association's paths.

/// As many paths may an association have.
pub const PATHS_MAX: usize = 8;

/// A path between the two ends of an association, from 0 to less than [`PATHS_MAX`]. Whatever comes to have a name that
/// another had goes on with its numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct PathId(pub u8);

impl PathId {
    /// The one that an association begins with.
    pub const FIRST: Self = Self(0);
}

/// Some of an association's paths.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PathSet(u8);

impl PathSet {
    /// Adds a path.
    pub fn insert(&mut self, path: PathId) {
        self.0 |= 1 << path.0;
    }

    /// Takes a path out.
    pub fn remove(&mut self, path: PathId) {
        self.0 &= !(1 << path.0);
    }

    /// There is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// All of them, in the order of their names.
    pub fn iter(self) -> impl Iterator<Item = PathId> {
        (0..PATHS_MAX as u8).map(PathId).filter(move |path| self.contains(*path))
    }

    /// Whether this is one of them.
    pub fn contains(self, path: PathId) -> bool {
        self.0 >> path.0 & 1 == 1
    }
}

/// Of each path the least packet number that is still to be used; 0 of one that has none yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PathNumbers(pub [u64; PATHS_MAX]);

impl PathNumbers {
    /// No path has used any.
    pub const NONE: Self = Self([0; PATHS_MAX]);

    /// A path's.
    pub fn of(&self, path: PathId) -> u64 {
        self.0.get(usize::from(path.0)).copied().unwrap_or(0)
    }
}
