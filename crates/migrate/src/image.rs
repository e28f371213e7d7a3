//! All of one kernel TCP connection, as bytes that travel with a session's state.

use lasthop_kernel::sockopt::Window;
use serde::{Deserialize, Serialize};

use super::Flow;
use super::form::{ImageError, check, read};
use super::settings::Settings;
use super::ticket::Ticket;

/// The form in which an image is written. A base refuses any other.
const VERSION: u8 = 5;
/// What each queue of an image may hold, bytes: as much as a whole session's state.
pub(super) const QUEUE_MAX: usize = 16 << 20;
/// All of one kernel TCP connection.
///
/// A peer's selective acknowledgements are not in it, nor what was received out of order:
/// both kernels must be ready for that (RFC 2018, section 8), and it is sent again.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Image {
    pub(super) flow: Flow,
    pub(super) received_end: bool,
    pub(super) sent_end: bool,
    /// The largest segment that the peer takes, bytes.
    pub(super) mss: u32,
    /// By how much the send and the receive window are scaled, if at all.
    pub(super) scales: Option<(u8, u8)>,
    pub(super) sack: bool,
    /// The clock of our timestamps, if they are used.
    pub(super) timestamp: Option<u32>,
    /// The next sequence number that is expected.
    pub(super) rcv_nxt: u32,
    /// Received and not read.
    #[serde(with = "serde_bytes")]
    pub(super) unread: Vec<u8>,
    /// The oldest sequence number that is not acknowledged.
    pub(super) snd_una: u32,
    /// Sent and not acknowledged.
    #[serde(with = "serde_bytes")]
    pub(super) unacknowledged: Vec<u8>,
    /// Behind that: never sent.
    #[serde(with = "serde_bytes")]
    pub(super) unsent: Vec<u8>,
    pub(super) window: Window,
    /// Sizes of the receive and the send buffer as the kernel counts them, bytes.
    pub(super) buffers: (u32, u32),
    pub(super) settings: Settings,
    /// Its acknowledgements are held, and go on to be.
    pub(super) held: Option<Held>,
}

/// What is known of a connection whose acknowledgements are held.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Held {
    /// How it began.
    pub ticket: Ticket,
    /// So far the fixed host was acknowledged: bytes from its first, and its end as one more, modulo 2^32.
    pub acknowledged: u32,
    /// The sequence number behind everything that a base which is dead may have sent, if there was one.
    pub inherited: Option<u32>,
}

impl Image {
    /// Whose connection it is.
    pub fn flow(&self) -> Flow {
        self.flow
    }

    /// How the connection's acknowledgements were held, if they were.
    pub fn held(&self) -> Option<&Held> {
        self.held.as_ref()
    }

    /// The connection's acknowledgements were held so. One that is another connection's is none.
    pub fn set_held(&mut self, held: Option<Held>) {
        self.held = held.filter(|held| held.ticket.flow() == self.flow);
    }

    /// Whether the peer has ended its direction. What is restored says so to who reads it.
    pub fn received_end(&self) -> bool {
        self.received_end
    }

    /// Whether our direction was ended. What is restored sends that end once more.
    pub fn sent_end(&self) -> bool {
        self.sent_end
    }

    /// Bytes that were received and not read.
    pub fn unread(&self) -> usize {
        self.unread.len()
    }

    /// Bytes that the peer has not acknowledged, sent or not.
    pub fn outstanding(&self) -> usize {
        self.unacknowledged.len() + self.unsent.len()
    }

    /// The image as bytes.
    pub fn encode(&self) -> Vec<u8> {
        // There is nothing in it that the form cannot say; were it otherwise, nobody would read it.
        postcard::to_allocvec(&(VERSION, self)).unwrap_or_default()
    }

    /// Reads what [`encode`](Self::encode) wrote.
    ///
    /// # Errors
    ///
    /// [`ImageError`]. What is read has sensible values; whether the kernel takes them is known
    /// when it is asked.
    pub fn decode(bytes: &[u8]) -> Result<Self, ImageError> {
        read(VERSION, bytes).and_then(Self::check)
    }

    /// Refuses what no connection has.
    fn check(self) -> Result<Self, ImageError> {
        check(&self.flow, self.mss, self.scales, &self.settings)?;
        let queues = [&self.unread, &self.unacknowledged, &self.unsent];
        if queues.iter().any(|queue| queue.len() > QUEUE_MAX) {
            return Err(ImageError::Field("queue"));
        }
        if let Some(Held { ticket, .. }) = &self.held {
            ticket.check()?;
            if ticket.flow() != self.flow {
                return Err(ImageError::Field("ticket"));
            }
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use proptest::prelude::*;

    use super::super::settings::some::{ends, settings};
    use super::*;

    prop_compose! {
        fn image()(
            (local, remote) in ends(),
            ended: (bool, bool),
            mss in 1u32..65_536,
            scales in prop::option::of((0u8..=14, 0u8..=14)),
            sack: bool,
            timestamp: Option<u32>,
            seqs: (u32, u32),
            window: (u32, u32, u32, u32, u32),
            buffers: (u32, u32),
            queues in prop::array::uniform3(prop::collection::vec(any::<u8>(), 0..300)),
            settings in settings(),
        ) -> Image {
            let [unread, unacknowledged, unsent] = queues;
            let (snd_wl1, snd_wnd, max_window, rcv_wnd, rcv_wup) = window;
            Image {
                flow: Flow { local, remote },
                received_end: ended.0,
                sent_end: ended.1,
                mss,
                scales,
                sack,
                timestamp,
                rcv_nxt: seqs.0,
                unread,
                snd_una: seqs.1,
                unacknowledged,
                unsent,
                window: Window { snd_wl1, snd_wnd, max_window, rcv_wnd, rcv_wup },
                buffers,
                settings,
                held: None,
            }
        }
    }

    fn some() -> Image {
        Image {
            flow: Flow {
                local: "10.9.0.7:4000".parse().unwrap(),
                remote: "192.0.2.1:80".parse().unwrap(),
            },
            received_end: false,
            sent_end: true,
            mss: 1460,
            scales: Some((7, 9)),
            sack: true,
            timestamp: Some(12345),
            rcv_nxt: u32::MAX - 1,
            unread: b"unread".to_vec(),
            snd_una: 5,
            unacknowledged: b"sent".to_vec(),
            unsent: b"not sent".to_vec(),
            window: Window::default(),
            buffers: (131_072, 87_040),
            settings: Settings {
                nodelay: true,
                keepalive: None,
                user_timeout: 0,
                not_sent_low_water: 0,
                congestion: "cubic".into(),
            },
            held: None,
        }
    }

    #[test]
    fn another_version_and_another_length_are_refused() {
        let good = some().encode();
        assert_eq!(Image::decode(&good), Ok(some()));
        for version in [VERSION - 1, VERSION + 1] {
            let mut other = good.clone();
            other[0] = version;
            assert_eq!(Image::decode(&other), Err(ImageError::Version(version)));
        }
        assert_eq!(Image::decode(&[]), Err(ImageError::Malformed));
        for cut in 1..good.len() {
            assert_eq!(Image::decode(&good[..cut]), Err(ImageError::Malformed), "{cut}");
        }
        assert_eq!(Image::decode(&[&good[..], &[0]].concat()), Err(ImageError::Malformed));
    }

    #[test]
    fn values_that_no_connection_has_are_refused_by_name() {
        let refused = |change: fn(&mut Image)| {
            let mut image = some();
            change(&mut image);
            match Image::decode(&image.encode()) {
                Err(ImageError::Field(name)) => name,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(
            refused(|i| i.flow.remote.set_ip("::1".parse::<IpAddr>().unwrap())),
            "four-tuple"
        );
        assert_eq!(refused(|i| i.flow.local.set_port(0)), "four-tuple");
        assert_eq!(refused(|i| i.flow.remote = "224.0.0.1:1".parse().unwrap()), "four-tuple");
        assert_eq!(refused(|i| i.mss = 0), "largest segment");
        assert_eq!(refused(|i| i.mss = 65_536), "largest segment");
        assert_eq!(refused(|i| i.scales = Some((15, 0))), "window scale");
        assert_eq!(refused(|i| i.settings.congestion = "a b".into()), "congestion control");
        assert_eq!(refused(|i| i.settings.congestion = "a".repeat(16)), "congestion control");
        assert_eq!(refused(|i| i.unsent = vec![0; QUEUE_MAX + 1]), "queue");
    }

    #[test]
    fn a_length_that_lies_allocates_nothing() {
        let unread = b"\x06unread";
        let mut bytes = some().encode();
        let at = bytes.windows(unread.len()).position(|w| w == unread).unwrap();
        bytes.splice(at..=at, [0xff, 0xff, 0xff, 0xff, 0x0f]);
        assert_eq!(Image::decode(&bytes), Err(ImageError::Malformed));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(image in image()) {
            prop_assert_eq!(Image::decode(&image.encode()), Ok(image));
        }

        #[test]
        fn no_bytes_make_the_decoder_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = Image::decode(&bytes);
            if let Some(first) = bytes.first_mut() {
                *first = VERSION;
            }
            if let Ok(image) = Image::decode(&bytes) {
                prop_assert_eq!(Image::decode(&image.encode()), Ok(image));
            }
        }
    }
}
