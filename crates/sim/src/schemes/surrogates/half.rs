//! The wired half of a connection.

use core::net::{Ipv4Addr, SocketAddr};

use lasthop_hop::Streams;
use lasthop_session::station::{Associations, Name};
use lasthop_session::{ConnId, RecvState, Refusal, ResetReason, Session};
use lasthop_tcp::{self as tcp, Socket, State};
use lasthop_units::Time;
use lasthop_wire::tcp::Segment;

use super::super::frozen;
use super::names::{Way, WiredEnd};
use super::sessions::Sessions;

/// See the module's text.
pub(in crate::schemes) struct Half {
    pub(super) mobile: Ipv4Addr,
    pub(super) ends: WiredEnd,
    pub(super) socket: Socket,
    /// The connection whose it is; while it waits for another base there is none.
    pub(super) name: Option<Name<Way>>,
    /// The fixed host has not answered yet.
    pub(super) connecting: bool,
    /// The mobile's end was passed on, and the fixed host's.
    pub(super) finished: bool,
    pub(super) told_end: bool,
    /// The session has removed the connection: only the wired side's own end is awaited.
    pub(super) over: bool,
}

impl Half {
    pub(super) fn new(
        mobile: Ipv4Addr,
        ends: WiredEnd,
        socket: Socket,
        name: Option<Name<Way>>,
    ) -> Self {
        let (connecting, finished, told_end, over) = (false, false, false, false);
        Self { mobile, ends, socket, name, connecting, finished, told_end, over }
    }

    /// Its state, to go on with at another base (MHP-17).
    pub(super) fn encode(&self, now: Time) -> Vec<u8> {
        frozen::encode(&self.socket, self.ends.local, self.ends.remote, now)
    }

    /// One that goes on where another base left off; `None` if the bytes are no such state.
    pub(super) fn decode(
        config: tcp::Config,
        mobile: Ipv4Addr,
        bytes: &[u8],
        now: Time,
    ) -> Option<Self> {
        let (mut socket, local, remote) = frozen::decode(config, bytes, now)?;
        // The path to the fixed host is another one, and acknowledgements may have been lost on the
        // old: what is outstanding is sent again.
        socket.retransmit_now(now);
        let connecting = socket.connection().state() == State::SynSent;
        Some(Self { connecting, ..Self::new(mobile, WiredEnd { local, remote }, socket, None) })
    }

    /// Both ends were passed on; bytes may have yet to go to the fixed host.
    pub(super) fn is_over(&self) -> bool {
        self.over || self.finished && self.told_end
    }

    /// What it has to say last: nothing, or a reset.
    pub(super) fn last_word(&mut self, now: Time) -> Option<(WiredEnd, Segment)> {
        let mut room = vec![0; self.socket.connection().segment_size().as_usize()];
        let last = self.socket.poll_transmit(now, &mut room)?;
        Some((self.ends, last))
    }

    /// Passes on what can be passed on.
    pub(super) fn relay(&mut self, sessions: &mut Sessions) {
        if self.over {
            self.finished = true;
            return self.socket.finish();
        }
        let Some((id, conn)) = self.name else { return };
        let Some((session, mut streams)) = sessions.session(id) else { return };
        if self.connecting && self.socket.connection().is_established() {
            self.connecting = false;
            session.accept(&mut streams, conn, SocketAddr::V4(self.ends.local));
        }
        self.take_events(session, streams, conn);
        if !self.connecting {
            self.pass_up(session, streams, conn);
            self.pass_down(session, streams, conn);
        }
    }

    fn take_events(&mut self, session: &mut Session, mut streams: &mut dyn Streams, conn: ConnId) {
        while let Some(event) = self.socket.poll_event() {
            match event {
                tcp::Event::Reset | tcp::Event::GaveUp if self.connecting => {
                    self.connecting = false;
                    let refusal = match event {
                        tcp::Event::Reset => Refusal::Refused,
                        _ => Refusal::TimedOut,
                    };
                    session.refuse(&mut streams, conn, refusal);
                }
                tcp::Event::Reset | tcp::Event::GaveUp => {
                    session.reset(&mut streams, conn, ResetReason::Aborted);
                }
                _ => {}
            }
        }
    }

    /// Towards the fixed host (MHP-8): TCP itself makes larger segments of it.
    fn pass_up(&mut self, session: &mut Session, mut streams: &mut dyn Streams, conn: ConnId) {
        loop {
            let data = session.received(&streams, conn);
            let taken = self.socket.write(data);
            if taken == 0 {
                break;
            }
            session.consume(&mut streams, conn, taken);
        }
        if !self.finished && session.recv_state(&streams, conn) == RecvState::Finished {
            self.finished = true;
            self.socket.finish();
        }
    }

    /// Towards the mobile (MHP-9), in pieces that the hop carries.
    fn pass_down(&mut self, session: &mut Session, mut streams: &mut dyn Streams, conn: ConnId) {
        loop {
            let data = self.socket.received();
            let Ok(room) = session.send_space(&mut streams, conn) else { break };
            let n = data.len().min(room.len());
            if n == 0 {
                break;
            }
            room[..n].copy_from_slice(&data[..n]);
            session.commit(&mut streams, conn, n);
            self.socket.consume(n);
        }
        let ended = self.socket.connection().peer_finished() && self.socket.received().is_empty();
        if ended && !self.told_end {
            self.told_end = true;
            session.finish(&mut streams, conn);
        }
    }
}
