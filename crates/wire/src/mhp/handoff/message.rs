//! What a handoff's datagrams say, as bytes.

use alloc::vec::Vec;

use super::super::{MhpError, Reader};
use super::{BaseName, CopyName, Message, PULL_MAX, Pieces, Reason, Warrant, trust};

const TYPE_GREET: u8 = 20;
const TYPE_RESUME: u8 = 21;
const TYPE_HANDOVER: u8 = 22;
const TYPE_PULL: u8 = 23;
const TYPE_STATE: u8 = 24;
const TYPE_COMMIT: u8 = 25;
const TYPE_COMMITTED: u8 = 26;
const TYPE_MOVED: u8 = 27;
pub(super) const TYPE_REFUSE: u8 = 28;
const TYPE_SUPERSEDED: u8 = 29;
const TYPE_EXPECT: u8 = 30;
const TYPE_EXPECTED: u8 = 31;
const TYPE_AHEAD: u8 = 32;
const TYPE_FETCH: u8 = 33;
const TYPE_HAVE: u8 = 34;
const TYPE_ATTACH: u8 = 35;
const TYPE_ATTACHED: u8 = 36;
const TYPE_HERE: u8 = 37;

impl<'a> Message<'a> {
    pub(super) fn kind(&self) -> u8 {
        match self {
            Self::Greet { .. } => TYPE_GREET,
            Self::Resume { .. } => TYPE_RESUME,
            Self::Handover { .. } => TYPE_HANDOVER,
            Self::Pull { .. } => TYPE_PULL,
            Self::State { .. } => TYPE_STATE,
            Self::Commit { .. } => TYPE_COMMIT,
            Self::Committed { .. } => TYPE_COMMITTED,
            Self::Superseded { .. } => TYPE_SUPERSEDED,
            Self::Moved { .. } => TYPE_MOVED,
            Self::Refuse(_) => TYPE_REFUSE,
            Self::Expect { .. } => TYPE_EXPECT,
            Self::Expected { .. } => TYPE_EXPECTED,
            Self::Ahead { .. } => TYPE_AHEAD,
            Self::Fetch { .. } => TYPE_FETCH,
            Self::Have { .. } => TYPE_HAVE,
            Self::Attach { .. } => TYPE_ATTACH,
            Self::Attached => TYPE_ATTACHED,
            Self::Here { .. } => TYPE_HERE,
        }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Resume { since: generation }
            | Self::Here { since: generation }
            | Self::Committed { generation }
            | Self::Superseded { generation }
            | Self::Have { number: generation } => {
                out.extend_from_slice(&generation.to_be_bytes());
            }
            Self::Commit { generation, warrant } => {
                out.extend_from_slice(&generation.to_be_bytes());
                if let Some(warrant) = warrant {
                    warrant.put(out);
                }
            }
            Self::Greet { holder, since, grants } => {
                out.extend_from_slice(&since.to_be_bytes());
                holder.put(out);
                trust::put_grants(out, grants);
            }
            Self::Moved { to, since } => {
                out.extend_from_slice(&since.to_be_bytes());
                to.put(out);
            }
            Self::Handover { limit, piece, window, since, copy, warrant } => {
                out.extend_from_slice(&limit.to_be_bytes());
                out.extend_from_slice(&piece.to_be_bytes());
                out.extend_from_slice(&window.to_be_bytes());
                out.extend_from_slice(&since.to_be_bytes());
                if copy.is_some() || warrant.is_some() {
                    copy.unwrap_or(CopyName::NONE).put(out);
                }
                if let Some(warrant) = warrant {
                    warrant.put(out);
                }
            }
            Self::Pull { piece, pieces } => put_pieces(out, *piece, pieces),
            Self::Fetch { number, piece, pieces } => {
                out.extend_from_slice(&number.to_be_bytes());
                put_pieces(out, *piece, pieces);
            }
            Self::State { generation, total, offset, bytes }
            | Self::Ahead { number: generation, total, offset, bytes } => {
                out.extend_from_slice(&generation.to_be_bytes());
                out.extend_from_slice(&total.to_be_bytes());
                out.extend_from_slice(&offset.to_be_bytes());
                out.extend_from_slice(bytes);
            }
            Self::Refuse(reason) => out.push(reason.code()),
            Self::Expect { candidate } => candidate.put(out),
            Self::Expected { candidate, refused } => {
                candidate.put(out);
                out.extend(refused.map(Reason::code));
            }
            Self::Attach { warrant } => warrant.put(out),
            Self::Attached => {}
        }
    }

    pub(super) fn decode(kind: u8, mut body: Reader<'a>) -> Result<Self, MhpError> {
        Ok(match kind {
            TYPE_GREET => {
                let since = body.take_u32("state's generation")?;
                let holder = BaseName::take(&mut body)?;
                Self::Greet { holder, since, grants: trust::take_grants(&mut body)? }
            }
            TYPE_RESUME => Self::Resume { since: body.take_u32("state's generation")? },
            TYPE_HANDOVER => Self::Handover {
                limit: body.take_u64("limit")?,
                piece: body.take_u16("piece size")?,
                window: body.take_u16("window")?,
                since: body.take_u32("state's generation")?,
                copy: CopyName::take(&mut body),
                warrant: Warrant::take_last(&mut body)?,
            },
            TYPE_PULL => {
                let (piece, pieces) = take_pieces(&mut body)?;
                Self::Pull { piece, pieces }
            }
            TYPE_STATE => Self::State {
                generation: body.take_u32("state's generation")?,
                total: body.take_u64("total")?,
                offset: body.take_u64("offset")?,
                bytes: body.0,
            },
            TYPE_COMMIT => Self::Commit {
                generation: body.take_u32("state's generation")?,
                warrant: Warrant::take_last(&mut body)?,
            },
            TYPE_COMMITTED => Self::Committed { generation: body.take_u32("state's generation")? },
            TYPE_SUPERSEDED => {
                Self::Superseded { generation: body.take_u32("state's generation")? }
            }
            TYPE_MOVED => {
                let since = body.take_u32("state's generation")?;
                Self::Moved { to: BaseName::take(&mut body)?, since }
            }
            TYPE_REFUSE => {
                let [code] = body.take("reason")?;
                Self::Refuse(Reason::from_code(code))
            }
            TYPE_EXPECT => Self::Expect { candidate: BaseName::take(&mut body)? },
            TYPE_EXPECTED => Self::Expected {
                candidate: BaseName::take(&mut body)?,
                refused: body.0.first().map(|code| Reason::from_code(*code)),
            },
            TYPE_AHEAD => Self::Ahead {
                number: body.take_u32("copy's number")?,
                total: body.take_u64("total")?,
                offset: body.take_u64("offset")?,
                bytes: body.0,
            },
            TYPE_FETCH => {
                let number = body.take_u32("copy's number")?;
                let (piece, pieces) = take_pieces(&mut body)?;
                Self::Fetch { number, piece, pieces }
            }
            TYPE_HAVE => Self::Have { number: body.take_u32("copy's number")? },
            TYPE_ATTACH => Self::Attach { warrant: Warrant::take(&mut body)? },
            TYPE_ATTACHED => Self::Attached,
            TYPE_HERE => Self::Here { since: body.take_u32("state's generation")? },
            _ => return Err(MhpError::Type(kind)),
        })
    }
}

fn put_pieces(out: &mut Vec<u8>, piece: u16, pieces: &[Pieces]) {
    let pieces = &pieces[..pieces.len().min(PULL_MAX)];
    out.extend_from_slice(&piece.to_be_bytes());
    out.push(pieces.len() as u8);
    for run in pieces {
        out.extend_from_slice(&run.first.to_be_bytes());
        out.extend_from_slice(&run.count.to_be_bytes());
    }
}

/// Bytes in each piece, and the runs that are wanted.
fn take_pieces(body: &mut Reader<'_>) -> Result<(u16, Vec<Pieces>), MhpError> {
    let piece = body.take_u16("piece size")?;
    let [count] = body.take("count")?;
    let mut pieces = Vec::new();
    for _ in 0..usize::from(count).min(PULL_MAX) {
        let first = body.take_u32("first piece")?;
        pieces.push(Pieces { first, count: body.take_u16("number of pieces")? });
    }
    Ok((piece, pieces))
}
