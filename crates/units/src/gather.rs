//! Collecting into maps and sets.

/// Collects one by one. What `collect` makes of the standard library's ordered maps and sets is sorted first,
/// by some 4 KB of code for every type: too much where few are collected, or seldom.
pub fn gather<C: Default + Extend<T>, T>(items: impl IntoIterator<Item = T>) -> C {
    let mut all = C::default();
    all.extend(items);
    all
}
