//! What a handoff's datagrams say, as bytes.

use alloc::vec::Vec;

use super::super::MhpError;
use super::super::field::{Field, Reader, put};
use super::{CopyName, Message, PULL_MAX, Pieces, Reason, Warrant};

pub(super) const TYPE_REFUSE: u8 = 28;

const GENERATION: &str = "state's generation";
const COPY: &str = "copy's number";

/// Each message with its type and its fields in the order in which they are sent.
macro_rules! messages {
    ($(
        $kind:ident = $type:tt
        $(($one:ident: $what_one:expr))?
        $({
            $($field:ident: $what:expr),+
            $(; ($($more:ident),+) by $put:ident, $take:ident)?
        })?;
    )+) => {
        impl<'a> Message<'a> {
            pub(super) fn kind(&self) -> u8 {
                match self {
                    $(Self::$kind { .. } => $type,)+
                }
            }

            pub(super) fn encode(&self, out: &mut Vec<u8>) {
                match self {
                    $(Self::$kind $(($one))? $({ $($field,)+ $($($more),+)? })? => {
                        $($one.put(out);)?
                        $(put!(out, $($field),+); $($put(out, $($more),+);)?)?
                    })+
                }
            }

            pub(super) fn decode(kind: u8, mut body: Reader<'a>) -> Result<Self, MhpError> {
                match kind {
                    $($type => {
                        $(let $one = body.get($what_one)?;)?
                        $(
                            $(let $field = body.get($what)?;)+
                            $(let ($($more),+) = $take(&mut body)?;)?
                        )?
                        Ok(Self::$kind $(($one))? $({ $($field,)+ $($($more),+)? })?)
                    })+
                    _ => Err(MhpError::Type(kind)),
                }
            }
        }
    };
}

messages! {
    Greet = 20 { since: GENERATION, holder: "holder", grants: "number of grants" };
    Resume = 21 { since: GENERATION };
    Handover = 22 {
        limit: "limit", piece: "piece size", window: "window", since: GENERATION;
        (copy, warrant) by put_copy_and_warrant, take_copy_and_warrant
    };
    Pull = 23 { piece: "piece size", pieces: "count" };
    State = 24 { generation: GENERATION, total: "total", offset: "offset", bytes: "bytes" };
    Commit = 25 { generation: GENERATION, warrant: "warrant" };
    Committed = 26 { generation: GENERATION };
    Moved = 27 { since: GENERATION, to: "new holder" };
    Refuse = TYPE_REFUSE (reason: "reason");
    Superseded = 29 { generation: GENERATION };
    Expect = 30 { candidate: "candidate" };
    Expected = 31 { candidate: "candidate", refused: "reason" };
    Ahead = 32 { number: COPY, total: "total", offset: "offset", bytes: "bytes" };
    Fetch = 33 { number: COPY, piece: "piece size", pieces: "count" };
    Have = 34 { number: COPY };
    Attach = 35 { warrant: "warrant" };
    Attached = 36;
    Here = 37 { since: GENERATION };
    TakeOver = 38;
    Orphans = 39 { flags: "flags", silent: "silence", orphans: "count" };
}

/// Where a warrant follows, the copy that there is not is said to be none.
fn put_copy_and_warrant(out: &mut Vec<u8>, copy: &Option<CopyName>, warrant: &Option<Warrant>) {
    if copy.is_some() || warrant.is_some() {
        let CopyName { len, digest } = copy.unwrap_or(CopyName::NONE);
        put!(out, len, digest, warrant);
    }
}

fn take_copy_and_warrant(
    body: &mut Reader<'_>,
) -> Result<(Option<CopyName>, Option<Warrant>), MhpError> {
    Ok((CopyName::take(body), body.get("warrant")?))
}

impl Field<'_> for Reason {
    fn put(&self, out: &mut Vec<u8>) {
        self.code().put(out);
    }

    fn take(body: &mut Reader<'_>, what: &'static str) -> Result<Self, MhpError> {
        body.get(what).map(Self::from_code)
    }
}

impl Field<'_> for Vec<Pieces> {
    fn put(&self, out: &mut Vec<u8>) {
        let pieces = &self[..self.len().min(PULL_MAX)];
        out.push(pieces.len() as u8);
        for run in pieces {
            put!(out, run.first, run.count);
        }
    }

    fn take(body: &mut Reader<'_>, what: &'static str) -> Result<Self, MhpError> {
        let count: u8 = body.get(what)?;
        let one = |_| body.get("run of pieces").map(|(first, count)| Pieces { first, count });
        (0..usize::from(count).min(PULL_MAX)).map(one).collect()
    }
}
