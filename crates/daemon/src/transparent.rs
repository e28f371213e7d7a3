//! A mobile's configuration of interception.

use lasthop_control::config::{self, ConfigError};
use lasthop_control::settings;
use lasthop_kernel::network::Network;
use lasthop_kernel::transparent::{Numbers, TransparentConfig};

/// The kernel's own rules begin here; lasthop's must be asked before them.
const MAIN_PRIORITY: u32 = 32_766;

settings! {
    /// The `[transparent]` table of a mobile.
    pub struct TransparentFile {
        /// Take the connections that this host opens.
        pub host: Option<bool> => "true if no interface is named",
        /// Take the connections that come in by these; one that is not there yet is taken when it
        /// comes.
        pub interfaces: Vec<String>,
        /// Networks that are reached as without lasthop.
        pub exclude: Vec<Network>,
        /// Networks whose hosts' addresses the base is asked to use ([below](#at-the-base)).
        pub keep_source: Vec<Network>,
        /// One bit of marks.
        pub mark: Option<u32> = Numbers::MOBILE.mark => format!("`{:#x}`", Numbers::MOBILE.mark),
        /// A routing table.
        pub table: Option<u32> = Numbers::MOBILE.table,
        /// The first of six priorities of routing rules.
        #[range(format!(", from 1 to {}", MAIN_PRIORITY - Numbers::PRIORITIES))]
        pub priority: Option<u32> = Numbers::MOBILE.priority,
    }
}

impl TransparentFile {
    /// Adds what the flag names: `host`, or interfaces, with commas between them.
    pub fn add(&mut self, names: &str) {
        for name in names.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            match name {
                "host" => self.host = Some(true),
                name => self.interfaces.push(name.to_owned()),
            }
        }
    }
}

/// Refuses numbers that the kernel, or this plan of rules, has another meaning for.
fn check(numbers: Numbers) -> Result<Numbers, ConfigError> {
    if !numbers.mark.is_power_of_two() {
        let why = "`mark` is one bit that nothing else on this host uses, such as 0x1000000";
        return Err(config::contradiction(why));
    }
    if matches!(numbers.table, 0 | 253..=255) {
        let why = "`table` is the number of a routing table of lasthop's own: not 0, nor 253 \
                   to 255, which are the kernel's";
        return Err(config::contradiction(why));
    }
    if !(1..=MAIN_PRIORITY - Numbers::PRIORITIES).contains(&numbers.priority) {
        let why = "`priority` is from 1 to 32760: behind the rule of local addresses (0) and \
                   before that of the main table (32766)";
        return Err(config::contradiction(why));
    }
    Ok(numbers)
}

impl TryFrom<TransparentFile> for TransparentConfig {
    type Error = ConfigError;

    fn try_from(file: TransparentFile) -> Result<Self, ConfigError> {
        if let Some(name) = file.interfaces.iter().find(|name| !is_interface(name)) {
            let why = format!("`interfaces`: `{name}` cannot be the name of an interface");
            return Err(ConfigError::Contradiction(why));
        }
        if file.interfaces.iter().any(|name| name == "lo") {
            let why = "`interfaces`: lo carries this host's own TCP; say `host = true`";
            return Err(config::contradiction(why));
        }
        let host = file.host.unwrap_or(file.interfaces.is_empty());
        if !host && file.interfaces.is_empty() {
            let why = "`[transparent]` intercepts nothing: say `host = true`, or `interfaces`";
            return Err(config::contradiction(why));
        }
        let numbers =
            check(Numbers { mark: file.mark(), table: file.table(), priority: file.priority() })?;
        Ok(Self {
            host,
            interfaces: file.interfaces,
            exclude: file.exclude,
            keep_source: file.keep_source,
            numbers,
        })
    }
}

/// Names reach `nft` as text in quotes, so one must not read as anything else.
pub(crate) fn is_interface(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_graphic() && !b"\"\\/*".contains(&b);
    !name.is_empty() && name.len() < 16 && name.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<TransparentConfig, String> {
        let path = std::path::Path::new("x.toml");
        let file: TransparentFile = config::parse(path, text).map_err(|e| e.to_string())?;
        TransparentConfig::try_from(file).map_err(|e| e.to_string())
    }

    #[test]
    fn the_host_is_meant_where_no_interface_is_named() {
        let config = parse("").unwrap();
        assert!(config.host && config.interfaces.is_empty());
        assert_eq!(config.numbers, Numbers::MOBILE);
        let config = parse("interfaces = [\"lan0\"]").unwrap();
        assert!(!config.host);
        assert_eq!(config.interfaces, ["lan0"]);
        assert!(parse("interfaces = [\"lan0\"]\nhost = true").unwrap().host);
    }

    #[test]
    fn the_flag_names_the_host_and_interfaces() {
        let mut file = TransparentFile::default();
        file.add("host,lan0, lan1");
        assert_eq!((file.host, file.interfaces.len()), (Some(true), 2));
    }

    #[test]
    fn what_cannot_be_meant_is_named_with_the_remedy() {
        for (text, said) in [
            ("host = false", "intercepts nothing"),
            ("interfaces = [\"lo\"]", "`host = true`"),
            ("interfaces = [\"a b\"]", "`a b` cannot be the name"),
            ("interfaces = [\"a\\\"\"]", "cannot be the name"),
            ("interfaces = [\"sixteen-letters-\"]", "cannot be the name"),
            ("mark = 0", "one bit"),
            ("mark = 3", "one bit"),
            ("table = 254", "of lasthop's own"),
            ("priority = 32761", "from 1 to 32760"),
            ("exclude = [\"10.0.0.0/40\"]", "is not a network"),
            ("nets = 1", "`nets`"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(said) && !error.contains('\n'), "{text}: {error}");
        }
    }
}
