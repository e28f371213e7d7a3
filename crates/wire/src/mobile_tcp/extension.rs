//! What a control packet of version 1 has behind its header.
//!
//! Each extension is a type (one byte), a zero byte, a length (two bytes) and that many bytes. Type
//! 0 with length 0 ends the packet.

use core::iter::FusedIterator;

use super::{DecodeError, EmitError, room};

/// Bytes in front of each extension.
const HEADER: usize = 4;

const END: u8 = 0;
const MESSAGE: u8 = 1;
const RESET_CODE: u8 = 2;

/// One extension.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extension<'a> {
    /// One whole message of the session ([`crate::mhp`]) that opens or answers.
    Message(&'a [u8]),
    /// Why an opening is refused, in the session's code, where 16 bits cannot hold it.
    ResetCode(u64),
}

impl Extension<'_> {
    /// The bytes that it takes.
    fn len(&self) -> usize {
        HEADER
            + match self {
                Self::Message(message) => message.len(),
                Self::ResetCode(_) => 8,
            }
    }

    fn emit(&self, out: &mut [u8]) -> Result<(), EmitError> {
        match self {
            Self::Message(message) => put(MESSAGE, message, out),
            Self::ResetCode(code) => put(RESET_CODE, &code.to_be_bytes(), out),
        }
    }
}

fn put(kind: u8, value: &[u8], out: &mut [u8]) -> Result<(), EmitError> {
    let len = u16::try_from(value.len()).map_err(|_| EmitError::TooLong(value.len()))?;
    let out = room(out, HEADER + value.len())?;
    out[0] = kind;
    out[1] = 0;
    out[2..HEADER].copy_from_slice(&len.to_be_bytes());
    out[HEADER..].copy_from_slice(value);
    Ok(())
}

/// Bytes that `extensions` take, with their end.
pub(super) fn emitted_len(extensions: &[Extension<'_>]) -> usize {
    extensions.iter().map(Extension::len).sum::<usize>() + HEADER
}

/// Writes `extensions` and their end into `out`, which has as many bytes as [`emitted_len`] says.
pub(super) fn emit(extensions: &[Extension<'_>], mut out: &mut [u8]) -> Result<(), EmitError> {
    for extension in extensions {
        extension.emit(out)?;
        out = &mut out[extension.len()..];
    }
    put(END, &[], out)
}

/// The extensions of a control packet, in order; those of unknown types are left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extensions<'a> {
    /// Extensions that were checked, without the one that ends them.
    bytes: &'a [u8],
}

impl<'a> Extensions<'a> {
    /// Reads the extensions that begin at `at` in `bytes`; where they end.
    pub(super) fn decode(bytes: &'a [u8], at: usize) -> Result<(Self, usize), DecodeError> {
        let mut end = at;
        loop {
            let (kind, value) = split(bytes, end)?;
            let len = value.len() as u16;
            match (kind, len) {
                (END, 0) => return Ok((Self { bytes: &bytes[at..end] }, end + HEADER)),
                (END, _) => return Err(DecodeError::Extension { kind, len }),
                (RESET_CODE, len) if len != 8 => {
                    return Err(DecodeError::Extension { kind, len });
                }
                _ => end += HEADER + value.len(),
            }
        }
    }

    /// The session's message, if there is one.
    pub fn message(self) -> Option<&'a [u8]> {
        self.into_iter().find_map(|extension| match extension {
            Extension::Message(message) => Some(message),
            Extension::ResetCode(_) => None,
        })
    }

    /// The reset code, if there is one.
    pub fn reset_code(self) -> Option<u64> {
        self.into_iter().find_map(|extension| match extension {
            Extension::ResetCode(code) => Some(code),
            Extension::Message(_) => None,
        })
    }
}

impl<'a> IntoIterator for Extensions<'a> {
    type Item = Extension<'a>;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        Iter { rest: self.bytes }
    }
}

/// See [`Extensions`].
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Iter<'a> {
    type Item = Extension<'a>;

    fn next(&mut self) -> Option<Extension<'a>> {
        loop {
            let (kind, value) = split(self.rest, 0).ok()?;
            self.rest = self.rest.get(HEADER + value.len()..)?;
            match (kind, value.first_chunk()) {
                (MESSAGE, _) => return Some(Extension::Message(value)),
                (RESET_CODE, Some(code)) => {
                    return Some(Extension::ResetCode(u64::from_be_bytes(*code)));
                }
                _ => {}
            }
        }
    }
}

impl FusedIterator for Iter<'_> {}

/// Type and value of the extension that begins at `at`.
fn split(bytes: &[u8], at: usize) -> Result<(u8, &[u8]), DecodeError> {
    let short = |least| DecodeError::Truncated { found: bytes.len(), least };
    let start = at + HEADER;
    let header: &[u8; HEADER] =
        bytes.get(at..).and_then(<[u8]>::first_chunk).ok_or(short(start))?;
    let end = start + usize::from(u16::from_be_bytes([header[2], header[3]]));
    Ok((header[0], bytes.get(start..end).ok_or(short(end))?))
}
