//! Addresses of Ethernet interfaces.

use std::fmt;
use std::str::FromStr;

use lasthop_units::CarrierAddress;

/// The address of an Ethernet interface.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// Every interface on the link.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// Whether the address stands for more than one interface.
    pub const fn is_group(&self) -> bool {
        self.0[0] & 1 == 1
    }
}

impl CarrierAddress for Mac {
    fn source(&self) -> [u8; 8] {
        let [a, b, c, d, e, g] = self.0;
        [0, 0, a, b, c, d, e, g]
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl FromStr for Mac {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let fail = || format!("`{s}` is not an Ethernet address such as 02:00:5e:10:00:01");
        let mut mac = [0; 6];
        let mut parts = s.split(':');
        for byte in &mut mac {
            let part = parts.next().filter(|p| p.len() == 2).ok_or_else(fail)?;
            // The parser would take a sign.
            if !part.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(fail());
            }
            *byte = u8::from_str_radix(part, 16).map_err(|_| fail())?;
        }
        if parts.next().is_some() { Err(fail()) } else { Ok(Self(mac)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_are_shown() {
        let mac: Mac = "02:00:5E:10:00:0a".parse().unwrap();
        assert_eq!(mac.to_string(), "02:00:5e:10:00:0a");
        assert!(!mac.is_group() && Mac::BROADCAST.is_group());
        for bad in
            ["", "02:00:5e:10:00", "02:00:5e:10:00:0a:01", "2:0:5e:10:0:a", "+2:00:5e:10:00:0a"]
        {
            let e = bad.parse::<Mac>().unwrap_err();
            assert!(e.contains("02:00:5e:10:00:01"), "{e}");
        }
    }
}
