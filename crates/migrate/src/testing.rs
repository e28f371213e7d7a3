//! The helper's messages, for fuzzers.

use super::message::{Answer, Request};

/// The bytes of the request that these bytes are, if they are one.
pub fn request(bytes: &[u8]) -> Option<Vec<u8>> {
    Request::decode(bytes).map(|request| request.encode())
}

/// The bytes of the helper's answer that these bytes are, if they are one.
pub fn answer(bytes: &[u8]) -> Option<Vec<u8>> {
    Answer::decode(bytes).map(|answer| answer.encode())
}
