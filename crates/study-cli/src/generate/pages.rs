//! What manual pages say beyond the command's own help: `pages.toml`.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The further sections of a page.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Page {
    /// Paths, and what is there.
    pub(super) files: Vec<(String, String)>,
    /// Statuses other than 0 and 1, and what they say.
    pub(super) exit: Vec<(String, String)>,
    /// What one may want, and the command for it.
    pub(super) examples: Vec<(String, String)>,
    /// Other pages, with their section unless it is 1.
    pub(super) see_also: Vec<String>,
}

/// The pages that have more than their help, by their names.
///
/// # Errors
///
/// The file is damaged, which tests would have shown.
pub(super) fn read() -> Result<BTreeMap<String, Page>, toml::de::Error> {
    toml::from_str(include_str!("pages.toml"))
}
