//! A session's state on its way from base to base (MHP-17).

use alloc::vec::Vec;
use core::net::SocketAddr;

use thiserror::Error;

use super::super::field::{Field, Reader, flag, put};
use super::super::{MhpError, Opening, Refusal, Target};
use super::{SessionId, put_bound, take_bound};

/// The version of the state's format.
const STATE_VERSION: u8 = 1;

const STAGE_CONNECTING: u8 = 1;
const STAGE_CONNECTING_EARLY: u8 = 2;
const STAGE_REFUSING: u8 = 3;
const STAGE_OPEN: u8 = 4;
const STAGE_OVER: u8 = 5;

const FLAG_UP_ENDED: u8 = 1;
const FLAG_DOWN_ENDED: u8 = 2;

/// How far a connection has come at the base.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// The fixed host has not answered yet.
    Connecting(Opening),
    /// The mobile is being notified that there is no connection.
    Refusing(Refusal),
    /// The connection to the fixed host stands.
    Open,
    /// Everything was delivered to the mobile, and it has ended its direction: only its last bytes
    /// are left for the fixed host.
    Over,
}

/// Bytes of one direction that a base holds. Offsets count the application's bytes.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Direction {
    /// Offset of the first of `bytes`.
    pub start: u64,
    /// Up, towards the fixed host: acknowledged on the hop and not yet taken by the wired side.
    /// Down: taken from the wired side and not yet acknowledged by the mobile.
    pub bytes: Vec<u8>,
    /// The stream ends behind them.
    pub ended: bool,
}

impl Direction {
    /// Offset behind the last byte.
    pub fn end(&self) -> u64 {
        self.start.saturating_add(self.bytes.len() as u64)
    }
}

/// One connection (MHP-13).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectionState {
    /// The number of the stream that carried the connection at first.
    pub id: u64,
    /// How far it has come.
    pub stage: Stage,
    /// The fixed host.
    pub target: Target,
    /// The surrogate's own end of the connection to the fixed host, once it stands.
    pub bound: Option<SocketAddr>,
    /// Towards the fixed host. Its end is the next byte expected from the mobile.
    pub up: Direction,
    /// Towards the mobile.
    pub down: Direction,
    /// The wired half, in whatever form the two worlds understand.
    pub wired: Vec<u8>,
    /// Whoever opened the connection, where that is known: the application's own address, or the
    /// fixed host's.
    pub source: Option<SocketAddr>,
}

/// A connection that is over, and that the mobile may still ask about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ended {
    /// Which.
    pub id: u64,
    /// The code of its reset; `None` if everything was delivered.
    pub reset: Option<u64>,
}

/// All that a base holds of a session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionState {
    /// Whose.
    pub session: SessionId,
    /// Connections.
    pub connections: Vec<ConnectionState>,
    /// Connections that ended lately.
    pub ended: Vec<Ended>,
    /// Of connections up to this number it is no longer known how they ended, but for `ended`.
    pub forgotten: u64,
    /// How often the mobile had resumed when its connections were last asked for; zero if nobody
    /// counted. What it asked before that is out of date.
    pub turn: u32,
    /// What the old hop's transport learned, in whatever form the two worlds understand; may be
    /// empty.
    pub hop: Vec<u8>,
}

/// Why bytes are no state of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum StateError {
    /// Another version.
    #[error("the session's state has version {0}, this side reads {STATE_VERSION}")]
    Version(u8),
    /// A connection at a stage that this version does not know.
    #[error("the session's state has a connection at the unknown stage {0}")]
    Stage(u8),
    /// A field is cut short or impossible.
    #[error("the session's state: {0}")]
    Field(#[from] MhpError),
}

impl SessionState {
    /// One of nothing but these connections.
    pub fn of(session: SessionId, connections: Vec<ConnectionState>) -> Self {
        let (ended, hop) = (Vec::new(), Vec::new());
        Self { session, connections, ended, forgotten: 0, turn: 0, hop }
    }

    /// The state as bytes. Each part of unsure length carries its length, so that a later version
    /// may append to it.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.encoded_len());
        let hop = Counted(&self.hop);
        put!(&mut out, STATE_VERSION, 0u8, self.session, self.forgotten, hop);
        (self.ended.len() as u32).put(&mut out);
        for Ended { id, reset } in &self.ended {
            put!(&mut out, id, u8::from(reset.is_some()), reset.unwrap_or(0));
        }
        (self.connections.len() as u32).put(&mut out);
        for connection in &self.connections {
            let start = out.len();
            0u32.put(&mut out);
            connection.encode(&mut out);
            let len = (out.len() - start - 4) as u32;
            out[start..start + 4].copy_from_slice(&len.to_be_bytes());
        }
        self.turn.put(&mut out);
        out
    }

    /// Bytes that [`encode`](Self::encode) takes at most.
    pub fn encoded_len(&self) -> usize {
        let one = |c: &ConnectionState| 350 + c.up.bytes.len() + c.down.bytes.len() + c.wired.len();
        let connections: usize = self.connections.iter().map(one).sum();
        36 + self.hop.len() + 17 * self.ended.len() + connections
    }

    /// Reads what [`encode`](Self::encode) wrote.
    ///
    /// # Errors
    ///
    /// Another version, or a field that is cut short or impossible.
    pub fn decode(bytes: &[u8]) -> Result<Self, StateError> {
        let mut body = Reader(bytes);
        let [version, _flags] = body.take("version")?;
        if version != STATE_VERSION {
            return Err(StateError::Version(version));
        }
        let (session, forgotten) = body.get("session")?;
        let Counted(hop) = body.get("hop's state")?;
        let mut ended = Vec::new();
        for _ in 0..body.get::<u32>("number of ended connections")? {
            let (id, [is_reset]) = (body.get("ended connection")?, body.take("end")?);
            let code = body.get("reset code")?;
            ended.push(Ended { id, reset: (is_reset != 0).then_some(code) });
        }
        let mut connections = Vec::new();
        for _ in 0..body.get::<u32>("number of connections")? {
            let Counted(record) = body.get("connection")?;
            connections.push(ConnectionState::decode(Reader(record))?);
        }
        // Absent where the peer is too old to say.
        let turn = body.get::<Option<_>>("turn")?.unwrap_or(0);
        Ok(Self { session, connections, ended, forgotten, turn, hop: hop.to_vec() })
    }
}

impl ConnectionState {
    fn encode(&self, out: &mut Vec<u8>) {
        let (stage, refusal) = match self.stage {
            Stage::Connecting(Opening::Faithful) => (STAGE_CONNECTING, None),
            Stage::Connecting(Opening::Early) => (STAGE_CONNECTING_EARLY, None),
            Stage::Refusing(refusal) => (STAGE_REFUSING, Some(refusal)),
            Stage::Open => (STAGE_OPEN, None),
            Stage::Over => (STAGE_OVER, None),
        };
        let (code, detail) = refusal.map_or((0, 0), |r| (r.code(), r.detail()));
        let flags = flag(self.up.ended, FLAG_UP_ENDED) | flag(self.down.ended, FLAG_DOWN_ENDED);
        put!(out, self.id, stage, code, detail, flags, self.target);
        put_bound(out, self.bound);
        for direction in [&self.up, &self.down] {
            put!(out, direction.start, Counted(&direction.bytes));
        }
        put!(out, Counted(&self.wired), self.source);
    }

    fn decode(mut body: Reader<'_>) -> Result<Self, StateError> {
        let (id, stage) = body.get("connection")?;
        let refusal = body.get("refusal")?;
        let flags: u8 = body.get("flags")?;
        let stage = match stage {
            STAGE_CONNECTING => Stage::Connecting(Opening::Faithful),
            STAGE_CONNECTING_EARLY => Stage::Connecting(Opening::Early),
            STAGE_REFUSING => Stage::Refusing(refusal),
            STAGE_OPEN => Stage::Open,
            STAGE_OVER => Stage::Over,
            other => return Err(StateError::Stage(other)),
        };
        let target = body.get("address kind")?;
        let bound = take_bound(&mut body)?;
        let mut direction = |ended| {
            let (start, Counted(bytes)) = body.get("bytes")?;
            Ok::<_, MhpError>(Direction { start, bytes: bytes.to_vec(), ended })
        };
        let up = direction(flags & FLAG_UP_ENDED != 0)?;
        let down = direction(flags & FLAG_DOWN_ENDED != 0)?;
        let Counted(wired) = body.get("wired half")?;
        // Absent where it is not known, or the peer is too old to say.
        let source = if body.0.is_empty() { None } else { take_bound(&mut body)? };
        Ok(Self { id, stage, target, bound, up, down, wired: wired.to_vec(), source })
    }
}

/// Bytes behind their number.
struct Counted<'a>(&'a [u8]);

impl<'a> Field<'a> for Counted<'a> {
    fn put(&self, out: &mut Vec<u8>) {
        put!(out, self.0.len() as u32, self.0);
    }

    fn take(body: &mut Reader<'a>, what: &'static str) -> Result<Self, MhpError> {
        let len: u32 = body.get(what)?;
        body.take_slice(len as usize, what).map(Self)
    }
}
