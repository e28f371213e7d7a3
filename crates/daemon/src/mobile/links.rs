//! The links that are used together: which they are, which of them carry packets, and from which addresses.

use lasthop_control::settings;
use lasthop_hop::{PATHS_MAX, PathStatus};
use lasthop_units::{Bytes, Rate};

use super::network::{Network, Place};
use crate::config::ConfigError;

/// An interface's name has at most so many bytes (IFNAMSIZ less the zero behind it).
const INTERFACE_MAX: usize = 15;

/// Instead of an interface's name: those that have a default route.
const AUTO: &str = "auto";

settings! {
    entry
    /// One of the `[[links]]`.
    pub struct LinkFile {
        /// The interface. It need not be there yet. `auto` is each that has a default route, now or later.
        pub interface: String,
        /// What commands and reports call it; the interface's name, if nothing is said.
        pub name: Option<String>,
        /// What it costs, relative to other links: what is `cheap` goes by those that cost least, as long as one of them
        /// answers.
        pub cost: Option<u32> = 0,
        /// It carries what is `cheap` also while the links that cost less carry less than this together.
        pub below: Option<Rate> => "no rate",
        /// It carries so much in a day, both ways together, with all headers, and nothing more until the next begins (in
        /// local time).
        pub cap: Option<Bytes> => "no cap",
        /// The one of `[[bases]]` that it [leads to](links.md#links-to-different-bases), and no other.
        pub base: Option<String> => "it leads to every base",
    }
}

impl LinkFile {
    /// The link of an interface of which nothing else is said.
    pub(super) fn of(interface: String) -> Self {
        Self { interface, name: None, cost: None, below: None, cap: None, base: None }
    }
}

/// A link that is used beside others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LinkConfig {
    /// What commands and reports call it.
    pub name: String,
    /// The interface that its datagrams leave by.
    pub interface: String,
    /// What it costs.
    pub status: PathStatus,
    /// What it may carry in a day.
    pub cap: Option<Bytes>,
    /// The only base that it leads to, by its place among all.
    pub base: Option<usize>,
}

/// The `[[links]]`, each of which must be known from the others, and whether all that have a default route are used. `bases`
/// are the names of those that there are.
pub(super) fn from_files(
    files: Vec<LinkFile>,
    bases: &[&str],
) -> Result<(Vec<LinkConfig>, bool), ConfigError> {
    let wrong = |why: String| Err(ConfigError::Contradiction(format!("`[[links]]`: {why}")));
    if files.len() > PATHS_MAX {
        return wrong(format!("{} are too many; at most {PATHS_MAX}", files.len()));
    }
    let (mut links, mut all): (Vec<LinkConfig>, _) = (Vec::new(), false);
    for file in files {
        if file.interface == AUTO {
            if all || file != LinkFile::of(AUTO.to_owned()) {
                return wrong(format!("`{AUTO}` stands there once, and alone in its table"));
            }
            all = true;
            continue;
        }
        let LinkFile { interface, name, cost, below, cap, base } = file;
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
        let status = PathStatus { cost: cost.unwrap_or(0), below: below.unwrap_or(Rate::ZERO) };
        if status.is_spent() {
            return wrong(format!("{interface}: `cost` is at most {}", u32::MAX - 1));
        }
        if cap == Some(Bytes::ZERO) {
            return wrong(format!("{interface}: `cap` leaves it nothing to carry"));
        }
        let at = |base: &String| bases.iter().position(|name| name == base);
        let known = base.as_ref().and_then(at).filter(|_| bases.len() > 1);
        if let (Some(base), None) = (base, known) {
            return wrong(format!("{interface}: no base in [[bases]] is called `{base}`"));
        }
        links.push(LinkConfig { name, interface, status, cap, base: known });
    }
    Ok((links, all))
}

/// A link, and where it was when it was last looked at.
struct Link {
    config: LinkConfig,
    /// `None` before it was.
    place: Option<Place>,
}

/// All of them, in their order.
pub(super) struct Links {
    all: Vec<Link>,
    /// Every interface with a default route is one, but for this, by which packets come that are to cross the hop.
    found: Option<String>,
}

impl Links {
    /// These, and with `found` others, but for the interface of that name.
    pub(super) fn new(links: &[LinkConfig], found: Option<String>) -> Self {
        let link = |config: &LinkConfig| Link { config: config.clone(), place: None };
        Self { all: links.iter().map(link).collect(), found }
    }

    /// Links decide where datagrams leave, and not the kernel's routes.
    pub(super) fn are_used(&self) -> bool {
        self.found.is_some() || !self.all.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Interfaces that have become links, if links are found.
    pub(super) fn find(&mut self, network: &Network) -> Vec<LinkConfig> {
        let Some(own) = &self.found else { return Vec::new() };
        let mut new = Vec::new();
        for interface in network.outlets() {
            if interface == *own || self.position(&interface).is_some() {
                continue;
            }
            if self.all.len() == PATHS_MAX {
                tracing::debug!(interface, "a link too many: {PATHS_MAX} are used");
                break;
            }
            let (name, status) = (interface.clone(), PathStatus::FREE);
            let config = LinkConfig { name, interface, status, cap: None, base: None };
            self.all.push(Link { config: config.clone(), place: None });
            new.push(config);
        }
        new
    }

    /// What people call a link.
    pub(super) fn name(&self, link: usize) -> &str {
        self.all.get(link).map_or("", |link| &link.config.name)
    }

    /// What people call each.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.all.iter().map(|link| &*link.config.name)
    }

    /// The link of an interface.
    pub(super) fn position(&self, interface: &str) -> Option<usize> {
        self.all.iter().position(|link| link.config.interface == interface)
    }

    /// Whether any leads to one base alone.
    pub(super) fn any_leads(&self) -> bool {
        self.all.iter().any(|link| link.config.base.is_some())
    }

    /// The only base that a link leads to, if there is one.
    pub(super) fn base_of(&self, link: usize) -> Option<usize> {
        self.all.get(link)?.config.base
    }

    /// Whether any leads to this base alone.
    pub(super) fn leads_to(&self, base: usize) -> bool {
        self.all.iter().any(|link| link.config.base == Some(base))
    }

    /// Whether none leads to this base.
    pub(super) fn all_lead_elsewhere(&self, base: usize) -> bool {
        self.all.iter().all(|link| link.config.base.is_some_and(|other| other != base))
    }

    /// A link leads to this base alone from now on: whether it did not.
    pub(super) fn set_base(&mut self, link: usize, base: usize) -> bool {
        let Some(link) = self.all.get_mut(link) else { return false };
        link.config.base.replace(base) != Some(base)
    }

    /// What is not as it was when it was last looked at, and whether it carries nothing now.
    pub(super) fn poll(&mut self, network: &Network) -> Vec<(usize, bool)> {
        let mut changes = Vec::new();
        for (n, link) in self.all.iter_mut().enumerate() {
            let place = network.place(&link.config.interface);
            if link.place.as_ref() != Some(&place) {
                changes.push((n, place.is_down()));
                link.place = Some(place);
            }
        }
        changes
    }
}
