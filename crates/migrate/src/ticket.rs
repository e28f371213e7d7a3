//! What a base writes down of a connection when it stands, so that another can take it over when this one dies.

use std::os::fd::AsFd;

use lasthop_kernel::sockopt::{self, SocketState};
use lasthop_wire::tcp::Seq;
use serde::{Deserialize, Serialize};

use super::Flow;
use super::error::MigrateError;
use super::form::{ImageError, check, read};
use super::settings::Settings;

/// The form in which a ticket is written. A base refuses any other.
const VERSION: u8 = 1;
/// What timestamps take of each segment (RFC 7323 appendix A).
const TIMESTAMPS_LENGTH: u32 = 12;

/// What of a connection stays as it is while the connection lives, and when it was: 40 to 90 bytes.
///
/// With what the mobile knows it makes a [`Claim`](super::Claim).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Ticket {
    pub(super) flow: Flow,
    /// The largest segment that the fixed host takes, bytes without options.
    pub(super) mss: u32,
    /// By how much the send and the receive window are scaled, if at all.
    pub(super) scales: Option<(u8, u8)>,
    pub(super) sack: bool,
    /// Where the clock of our timestamps was, if they are used.
    pub(super) timestamp: Option<u32>,
    /// The sequence number of the mobile's first byte: behind our SYN.
    pub(super) first_sent: u32,
    /// The sequence number of the fixed host's first byte: behind its SYN.
    pub(super) first_received: u32,
    pub(super) settings: Settings,
}

impl Ticket {
    /// Of a TCP socket that stands and has neither sent nor acknowledged anything but its SYN's, to be called soon. Needs no
    /// privilege: the sequence numbers of the first byte in each direction, modulo 2^32, and a value that its clock of
    /// timestamps (RFC 7323) has had, come from what
    /// [looks at all that it sends](lasthop_session::acknowledge::Seen): `next_seq`, `base` and `next_value`.
    ///
    /// # Errors
    ///
    /// It does not stand, or the kernel does not tell what it is like.
    pub fn of(
        fd: impl AsFd,
        flow: Flow,
        first_sent: u32,
        first_received: u32,
        timestamp: u32,
    ) -> Result<Self, MigrateError> {
        let fd = fd.as_fd();
        let info = sockopt::info(fd).map_err(MigrateError::kernel("read TCP_INFO"))?;
        match info.state {
            SocketState::Other(SocketState::SYN_SENT | SocketState::SYN_RECEIVED) => {
                return Err(MigrateError::NotYet);
            }
            SocketState::Other(_) => return Err(MigrateError::Over),
            _ => {}
        }
        // The kernel has taken off what it puts into each segment.
        let options = if info.timestamps { TIMESTAMPS_LENGTH } else { 0 };
        Ok(Self {
            flow,
            mss: (info.snd_mss + options).clamp(1, u32::from(u16::MAX)),
            scales: info.window_scaling.then_some((info.snd_wscale, info.rcv_wscale)),
            sack: info.sack,
            timestamp: info.timestamps.then_some(timestamp),
            first_sent,
            first_received,
            settings: Settings::of(fd)
                .map_err(MigrateError::kernel("read a connection's settings"))?,
        })
    }

    /// Whose connection it is.
    pub fn flow(&self) -> Flow {
        self.flow
    }

    /// By how much the window that is offered to the fixed host is scaled.
    pub fn window_scale(&self) -> u8 {
        self.scales.unwrap_or_default().1
    }

    /// The ticket as bytes.
    pub fn encode(&self) -> Vec<u8> {
        // There is nothing in it that the form cannot say; were it otherwise, nobody would read it.
        postcard::to_allocvec(&(VERSION, self)).unwrap_or_default()
    }

    /// Reads what [`encode`](Self::encode) wrote.
    ///
    /// # Errors
    ///
    /// [`ImageError`]. What is read has sensible values.
    pub fn decode(bytes: &[u8]) -> Result<Self, ImageError> {
        let ticket: Self = read(VERSION, bytes)?;
        ticket.check().map(|()| ticket)
    }

    /// Refuses what no connection has.
    pub(super) fn check(&self) -> Result<(), ImageError> {
        check(&self.flow, self.mss, self.scales, &self.settings)
    }

    /// The sequence number of a byte of the mobile's.
    pub(super) fn sent(&self, byte: u64) -> Seq {
        Seq(self.first_sent) + byte as u32
    }

    /// The sequence number of a byte of the fixed host's.
    pub(super) fn received(&self, byte: u64) -> Seq {
        Seq(self.first_received) + byte as u32
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::super::settings::some::{ends, settings};
    use super::*;

    /// One over IPv6, with every option.
    pub(crate) fn some() -> Ticket {
        Ticket {
            flow: Flow {
                local: "[2001:db8::9:7]:40000".parse().unwrap(),
                remote: "[2001:db8::1]:443".parse().unwrap(),
            },
            mss: 1440,
            scales: Some((7, 9)),
            sack: true,
            timestamp: Some(u32::MAX),
            first_sent: u32::MAX - 1,
            first_received: u32::MAX - 2,
            settings: Settings {
                nodelay: true,
                keepalive: None,
                user_timeout: 120_000,
                not_sent_low_water: 131_072,
                congestion: "cubic".into(),
            },
        }
    }

    prop_compose! {
        fn ticket()(
            (local, remote) in ends(),
            mss in 1u32..65_536,
            scales in prop::option::of((0u8..=14, 0u8..=14)),
            sack: bool,
            timestamp: Option<u32>,
            first: (u32, u32),
            settings in settings(),
        ) -> Ticket {
            Ticket {
                flow: Flow { local, remote },
                mss,
                scales,
                sack,
                timestamp,
                first_sent: first.0,
                first_received: first.1,
                settings,
            }
        }
    }

    #[test]
    fn a_ticket_is_short() {
        let length = some().encode().len();
        assert!(length <= 90, "{length}");
    }

    #[test]
    fn another_version_and_another_length_are_refused() {
        let good = some().encode();
        assert_eq!(Ticket::decode(&good), Ok(some()));
        for version in [VERSION - 1, VERSION + 1] {
            let other = [&[version], &good[1..]].concat();
            assert_eq!(Ticket::decode(&other), Err(ImageError::Version(version)));
        }
        for cut in 0..good.len() {
            assert_eq!(Ticket::decode(&good[..cut]), Err(ImageError::Malformed), "{cut}");
        }
        assert_eq!(Ticket::decode(&[&good[..], &[0]].concat()), Err(ImageError::Malformed));
    }

    #[test]
    fn values_that_no_connection_has_are_refused_by_name() {
        let refused = |change: fn(&mut Ticket)| {
            let mut ticket = some();
            change(&mut ticket);
            Ticket::decode(&ticket.encode())
        };
        let field = |name| Err(ImageError::Field(name));
        assert_eq!(refused(|t| t.flow.local = "1.2.3.4:5".parse().unwrap()), field("four-tuple"));
        assert_eq!(refused(|t| t.flow.remote.set_port(0)), field("four-tuple"));
        assert_eq!(refused(|t| t.mss = 0), field("largest segment"));
        assert_eq!(refused(|t| t.scales = Some((0, 15))), field("window scale"));
        let name = |t: &mut Ticket| t.settings.congestion = "../x".into();
        assert_eq!(refused(name), field("congestion control"));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(ticket in ticket()) {
            prop_assert_eq!(Ticket::decode(&ticket.encode()), Ok(ticket));
        }

        #[test]
        fn no_bytes_make_the_decoder_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..120)) {
            let _ = Ticket::decode(&bytes);
            if let Some(first) = bytes.first_mut() {
                *first = VERSION;
            }
            if let Ok(ticket) = Ticket::decode(&bytes) {
                prop_assert_eq!(Ticket::decode(&ticket.encode()), Ok(ticket));
            }
        }
    }
}
