//! The links that are used together: which they are, which of them carry packets, and from which addresses.

use lasthop_control::settings;
use lasthop_hop::PATHS_MAX;

use super::network::{Network, Place};
use crate::config::ConfigError;

/// An interface's name has at most so many bytes (IFNAMSIZ less the zero behind it).
const INTERFACE_MAX: usize = 15;

settings! {
    entry
    /// One of the `[[links]]`.
    pub struct LinkFile {
        /// The interface. It need not be there yet.
        pub interface: String,
        /// What commands and reports call it; the interface's name, if nothing is said.
        pub name: Option<String>,
    }
}

/// A link that is used beside others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LinkConfig {
    /// What commands and reports call it.
    pub name: String,
    /// The interface that its datagrams leave by.
    pub interface: String,
}

/// The `[[links]]`, each of which must be known from the others.
pub(super) fn from_files(files: Vec<LinkFile>) -> Result<Vec<LinkConfig>, ConfigError> {
    let wrong = |why: String| Err(ConfigError::Contradiction(format!("`[[links]]`: {why}")));
    if files.len() > PATHS_MAX {
        return wrong(format!("{} are too many; at most {PATHS_MAX}", files.len()));
    }
    let mut links: Vec<LinkConfig> = Vec::new();
    for LinkFile { interface, name } in files {
        let name = name.unwrap_or_else(|| interface.clone());
        if interface.is_empty() || interface.len() > INTERFACE_MAX {
            return wrong(format!("`{interface}` is no interface's name"));
        }
        if links.iter().any(|other| other.interface == interface) {
            return wrong(format!("{interface}: `interface` stands there twice"));
        }
        if name.is_empty() || links.iter().any(|other| other.name == name) {
            return wrong(format!("{interface}: `name` is empty or another link's too"));
        }
        links.push(LinkConfig { name, interface });
    }
    Ok(links)
}

/// A link, and where it was when it was last looked at.
struct Link {
    config: LinkConfig,
    /// `None` before it was.
    place: Option<Place>,
}

/// All of them, in their order; none where the kernel's routes decide.
pub(super) struct Links(Vec<Link>);

impl Links {
    pub(super) fn new(links: &[LinkConfig]) -> Self {
        let link = |config: &LinkConfig| Link { config: config.clone(), place: None };
        Self(links.iter().map(link).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// What people call a link.
    pub(super) fn name(&self, link: usize) -> &str {
        self.0.get(link).map_or("", |link| &link.config.name)
    }

    /// The link of an interface.
    pub(super) fn position(&self, interface: &str) -> Option<usize> {
        self.0.iter().position(|link| link.config.interface == interface)
    }

    /// What is not as it was when it was last looked at, and whether it carries nothing now.
    pub(super) fn poll(&mut self, network: &Network) -> Vec<(usize, bool)> {
        let mut changes = Vec::new();
        for (n, link) in self.0.iter_mut().enumerate() {
            let place = network.place(&link.config.interface);
            if link.place.as_ref() != Some(&place) {
                changes.push((n, place.is_down()));
                link.place = Some(place);
            }
        }
        changes
    }
}
