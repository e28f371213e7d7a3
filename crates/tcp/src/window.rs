//! Windows, as the papers and RFCs state them.

use alloc::format;
use alloc::string::String;
use core::fmt;
use core::str::FromStr;

use lasthop_units::Bytes;
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer};

/// A window, in segments or in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Window {
    /// So many segments of the connection's segment size.
    Segments(u32),
    /// So many bytes.
    Bytes(Bytes),
}

impl Window {
    /// The window in bytes for segments of `mss` bytes.
    pub const fn bytes(self, mss: u32) -> Bytes {
        match self {
            Self::Segments(n) => Bytes::new((n as u64).saturating_mul(mss as u64)),
            Self::Bytes(n) => n,
        }
    }
}

const WINDOW: &str = "a window such as `16` or `16 segments`, or `16KiB`";

/// `16 segments`, `16KiB`.
impl FromStr for Window {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let segments = text.trim().strip_suffix("segments").map(str::trim);
        let window = match segments {
            Some(n) => n.parse().ok().map(Self::Segments),
            // A bare number as a text would leave open what it counts.
            None if text.trim().bytes().all(|b| b.is_ascii_digit()) => None,
            None => text.parse().ok().map(Self::Bytes),
        };
        window.ok_or_else(|| format!("`{text}` is not {WINDOW}"))
    }
}

impl<'de> Deserialize<'de> for Window {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = Window;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(WINDOW)
            }

            fn visit_i64<E: de::Error>(self, n: i64) -> Result<Window, E> {
                let n = u32::try_from(n);
                n.map(Window::Segments)
                    .map_err(|_| E::custom(format!("found {n:?}, expected {WINDOW}")))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Window, E> {
                text.parse().map_err(E::custom)
            }
        }
        d.deserialize_any(Reader)
    }
}
