//! What an association needs of the transport that it carries.

use core::time::Duration;

use lasthop_units::{Bytes, LinkEvent, Rate, Time};

use crate::config::Limits;
use crate::lane::PacketLane;
use crate::path_id::{PathId, PathNumbers, PathSet};
use crate::policy::PathStatus;
use crate::saved_path::SavedPath;
use crate::stats::{HopStats, PathStats};
use crate::streams::Streams;

/// The reset code of streams whose association was lost: above all codes of the session.
pub const LOST: u64 = (1 << 62) - 1;

/// Which end of the association this is: decides who names which streams.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Opens even-numbered streams.
    Mobile,
    /// Opens odd-numbered streams.
    Base,
}

/// Why an association ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CloseReason {
    /// An end was shut down.
    Shutdown,
    /// The peer broke the protocol.
    Protocol,
    /// Nothing came for [`HopConfig::silence_limit`](crate::HopConfig::silence_limit).
    Silence,
    /// The mobile has made a new association in place of this one.
    Replaced,
    /// The base's host says, again and again, that nobody is there.
    Unreachable,
    /// The mobile is no longer allowed at the base.
    Revoked,
    /// The peer gave a reason that this version does not know.
    Other(u64),
}

impl CloseReason {
    pub(crate) fn code(self) -> u64 {
        match self {
            Self::Shutdown => 0,
            Self::Protocol => 1,
            Self::Silence => 2,
            Self::Replaced => 3,
            Self::Unreachable => 4,
            Self::Revoked => 5,
            Self::Other(code) => code,
        }
    }

    pub(crate) fn from_code(code: u64) -> Self {
        match code {
            0 => Self::Shutdown,
            1 => Self::Protocol,
            2 => Self::Silence,
            3 => Self::Replaced,
            4 => Self::Unreachable,
            5 => Self::Revoked,
            other => Self::Other(other),
        }
    }
}

/// A packet that a transport has written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet {
    /// By which path it is to go.
    pub path: PathId,
    /// Under which number the seal is to seal it.
    pub number: u64,
    /// How many bytes of the output buffer it takes.
    pub len: usize,
}

/// A transport over one hop, as an [`Association`](crate::Association) drives it: reliable streams
/// above, packets below, and nothing of keys or addresses.
///
/// The association calls [`establish`](Self::establish) when a handshake is over. It may do so twice
/// in a row: when the base has never used the first keys, streams go on under the second. It calls
/// [`restart`](Self::restart) when the peer has lost all state.
pub trait Transport: Streams + Sized {
    /// The transport's bounds and habits.
    type Config: Clone;

    /// Names the transport in the handshake, so that two ends never take one's packets for the
    /// other's: 0 for SRP, 1 for Mobile TCP.
    const ID: u64;

    /// One end of a transport whose peer's limits are not known. `overhead` is what seal and carrier add to
    /// each packet, carrier headers included, in bytes.
    fn new(config: &Self::Config, role: Role, overhead: usize, now: Time) -> Self;

    /// What the configuration promises the peer in the handshake.
    fn limits(config: &Self::Config) -> Limits;

    /// What the carrier puts before each datagram on the radio.
    fn carrier_overhead(config: &Self::Config) -> Bytes;

    /// The peer has sent its limits: streams may be sent from now on.
    fn establish(&mut self, now: Time, peer: &Limits);

    /// The association is over and its streams with it; the next one starts from nothing, but for
    /// stream numbers, which are never used twice.
    fn restart(&mut self, now: Time);

    /// The first stream of this end's that a new association may carry.
    fn first_stream(&self) -> u64;

    /// Asks the peer for a sign of life.
    fn ping(&mut self);

    /// The peer is known to be there although it was silent: what is outstanding is tried at once.
    fn probe(&mut self, now: Time);

    /// For how long nothing has been acknowledged although something is outstanding.
    fn silent_for(&self, now: Time) -> Option<Duration>;

    /// A path leads elsewhere: the peer's address has changed, or ours.
    fn handle_moved(&mut self, now: Time, path: PathId);

    /// What is known of a path's link from below.
    fn handle_link_event(&mut self, now: Time, path: PathId, event: LinkEvent);

    /// There is this path to the peer, perhaps already: false if the transport has no use for it.
    fn add_path(&mut self, _now: Time, _path: PathId) -> bool {
        false
    }

    /// Says what a path costs; the peer is told. The path need not be there yet. A transport with one path to the peer
    /// ignores it.
    fn set_path_status(&mut self, _now: Time, _path: PathId, _status: PathStatus) {}

    /// Nothing may be sent by these paths until then: whether that is all of them.
    fn hold(&mut self, paths: PathSet, _until: Option<Time>) -> bool {
        paths.contains(PathId::FIRST)
    }

    /// Tells a round-trip time that was measured before the association began, by the handshake.
    fn seed_round_trip(&mut self, now: Time, rtt: Duration);

    /// What the path is worth, as far as it was seen; `None` from a transport that does not measure it.
    fn saved_path(&self) -> Option<SavedPath> {
        None
    }

    /// Tells, before the association begins, what the path was worth to one before for what this end sends.
    fn resume_path(&mut self, _rate: Rate, _rtt: Duration) {}

    /// Takes in the packet that came by this path under `number`, authentic and new. One that cannot be read is
    /// counted in [`HopStats::malformed`].
    fn handle(&mut self, now: Time, path: PathId, number: u64, packet: &[u8]);

    /// Writes the next packet that should leave now into `out`, if there is one.
    ///
    /// No number may be used twice by one path under the same keys, and `fresh` is the first path's least that was not. A
    /// transport that numbers its own packets returns its number, which must be at least that; any
    /// other returns `fresh`.
    fn poll(&mut self, now: Time, fresh: u64, out: &mut [u8]) -> Option<Packet>;

    /// The least numbers that [`poll`](Self::poll) may return, whatever is fresh; 0 for a transport that does not
    /// number its packets.
    fn next_numbers(&self) -> PathNumbers {
        PathNumbers::NONE
    }

    /// When to call [`handle_timeout`](Self::handle_timeout), if nothing happens before.
    fn next_timeout(&self) -> Option<Time>;

    /// The same as far as only what has come waits, whether or not anything may be sent.
    fn next_delivery(&self) -> Option<Time> {
        None
    }

    /// Lets timers that are due act.
    fn handle_timeout(&mut self, now: Time);

    /// Packets beside the streams, where the transport has them and the peer takes them.
    fn packets(&mut self) -> Option<&mut PacketLane> {
        None
    }

    /// The same, if any were sent or have come.
    fn packets_so_far(&mut self) -> Option<&mut PacketLane> {
        None
    }

    /// Ends the association: close frames go to the peer, streams are gone.
    fn close(&mut self, reason: CloseReason);

    /// Why the association ended, if it has.
    fn closed(&self) -> Option<CloseReason>;

    /// The mobile accepts connections on `port` from now on, and the base is notified (MOB-8). A
    /// transport that has no such message leaves it to the session.
    fn listen(&mut self, _port: u16) {}

    /// The mobile no longer accepts connections on `port`, and the base is notified.
    fn unlisten(&mut self, _port: u16) {}

    /// Whether the peer is known to accept connections on `port`: a base may then accept or refuse
    /// them without asking. `None` where the transport does not tell.
    fn peer_listens(&self, _port: u16) -> Option<bool> {
        None
    }

    /// Counters and present values.
    fn stats(&self) -> HopStats;

    /// The same of each path, where the transport has several.
    fn path_stats(&self) -> impl Iterator<Item = PathStats> {
        core::iter::empty()
    }
}
