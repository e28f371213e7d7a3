//! What is written down of connections: how it is read, and what it cannot say.

use serde::de::DeserializeOwned;
use thiserror::Error;

use super::Flow;
use super::settings::Settings;

/// The largest scale of a window (RFC 7323, section 2.3).
const SCALE_MAX: u8 = 14;

/// Why bytes are not an [`Image`](super::Image), or not a [`Ticket`](super::Ticket).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ImageError {
    /// Another release wrote it in another form.
    #[error("a connection was written down in version {0}, which this base does not read")]
    Version(u8),
    /// It ends too early or goes on behind its end, or has another form.
    #[error("what was written down of a connection cannot be read")]
    Malformed,
    /// A field has a value that it cannot have.
    #[error("what was written down of a connection has a wrong {0}")]
    Field(&'static str),
}

/// Reads something of which the version stands in front, and nothing behind it.
pub(super) fn read<T: DeserializeOwned>(version: u8, bytes: &[u8]) -> Result<T, ImageError> {
    let (found, bytes) = bytes.split_first().ok_or(ImageError::Malformed)?;
    if *found != version {
        return Err(ImageError::Version(*found));
    }
    match postcard::take_from_bytes(bytes) {
        Ok((all, [])) => Ok(all),
        _ => Err(ImageError::Malformed),
    }
}

/// Refuses what the ends of no connection agreed on.
pub(super) fn check(
    flow: &Flow,
    mss: u32,
    scales: Option<(u8, u8)>,
    settings: &Settings,
) -> Result<(), ImageError> {
    let (send, receive) = scales.unwrap_or_default();
    let wrong = if !flow.is_sensible() {
        "four-tuple"
    } else if !(1..=u32::from(u16::MAX)).contains(&mss) {
        "largest segment"
    } else if send > SCALE_MAX || receive > SCALE_MAX {
        "window scale"
    } else if !settings.is_sensible() {
        "congestion control"
    } else {
        return Ok(());
    };
    Err(ImageError::Field(wrong))
}
