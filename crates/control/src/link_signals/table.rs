//! `/proc/net/wireless`: the levels of wireless interfaces as older drivers tell them, and kernels
//! without nl80211.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Of the thread that opens it, whose network namespace it is about.
const PATH: &str = "/proc/thread-self/net/wireless";
/// A line has about 80 bytes, and there is one for each wireless interface.
const LENGTH_MAX: usize = 8192;
/// The column of the level, after the name, the status and the link's quality.
const LEVEL: usize = 2;

/// The table.
#[derive(Debug)]
pub(super) struct Table(File);

impl Table {
    /// Opens it for the calling thread's network namespace; `None` where there is none.
    pub(super) fn open() -> Option<Self> {
        File::open(PATH).ok().map(Self)
    }

    /// The level of an interface in dBm, if the table has it.
    pub(super) fn level(&self, interface: &str) -> io::Result<Option<i16>> {
        let mut text = [0; LENGTH_MAX];
        let mut length = 0;
        while let Some(rest) = text.get_mut(length..).filter(|rest| !rest.is_empty()) {
            match self.0.read_at(rest, length as u64)? {
                0 => break,
                n => length += n,
            }
        }
        let text = text.get(..length).unwrap_or_default();
        Ok(level(&String::from_utf8_lossy(text), interface))
    }
}

/// The level of an interface in the table's text. Positive numbers are no dBm but a scale of the
/// driver's own.
fn level(table: &str, interface: &str) -> Option<i16> {
    table.lines().find_map(|line| {
        let (name, columns) = line.split_once(':')?;
        if name.trim() != interface {
            return None;
        }
        // A dot after a number says that it is new since the last reading.
        let level = columns.split_whitespace().nth(LEVEL)?.trim_end_matches('.');
        level.parse().ok().filter(|dbm| *dbm < 0)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: &str = "\
Inter-| sta-|   Quality        |   Discarded packets               | Missed | WE
 face | tus | link level noise |  nwid  crypt   frag  retry   misc | beacon | 22
 wlan0: 0000   54.  -56.  -256        0      0      0      0     11        0
wlp2s0: 0000    0     45     0        0      0      0      0      0        0
 wlan1: 0000   20   -90   -256        0      0      0      0      0        0
";

    #[test]
    fn the_level_is_the_third_column_if_it_is_in_dbm() {
        assert_eq!(level(TEXT, "wlan0"), Some(-56));
        assert_eq!(level(TEXT, "wlan1"), Some(-90));
        assert_eq!(level(TEXT, "wlp2s0"), None, "a scale of the driver's own");
        assert_eq!(level(TEXT, "eth0"), None);
        assert_eq!(level(TEXT, "wlan"), None, "a name is the whole of it");
        assert_eq!(level("", "wlan0"), None);
        assert_eq!(level(" wlan0: 0000 54.", "wlan0"), None);
    }

    #[test]
    fn a_table_is_read_from_its_start_each_time() {
        let path = std::env::temp_dir().join(format!("lasthop-wireless-{}", std::process::id()));
        std::fs::write(&path, TEXT).unwrap();
        let table = Table(File::open(&path).unwrap());
        for _ in 0..2 {
            assert_eq!(table.level("wlan1").unwrap(), Some(-90));
        }
        std::fs::remove_file(path).unwrap();
    }

    proptest! {
        #[test]
        fn no_text_breaks_it(text: String, name in "[a-z]{0,3}") {
            let _ = level(&text, &name);
        }
    }
}
