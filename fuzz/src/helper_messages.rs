//! The decoders of what a base and its helper say to each other, on any bytes.

use lasthop_migrate::testing::{answer, request};

/// One input: a message in either direction. What it says comes back from its bytes.
pub fn run(bytes: &[u8]) {
    for decode in [request, answer] {
        if let Some(written) = decode(bytes) {
            assert_eq!(decode(&written), Some(written));
        }
    }
}
