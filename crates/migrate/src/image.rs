//! All of one kernel TCP connection, as bytes that travel with a session's state.

use lasthop_kernel::sockopt::Window;
use thiserror::Error;

use super::Flow;
use super::codec::{Reader, put_address, put_string, put_u16, put_u32};

/// The form in which an image is written. A base refuses any other.
const VERSION: u8 = 2;
/// What each queue of an image may hold, bytes: as much as a whole session's state.
pub(super) const QUEUE_MAX: usize = 16 << 20;
/// The kernel keeps at most 15 bytes of a congestion control's name.
const NAME_MAX: usize = 15;
/// The largest scale of a window (RFC 7323, section 2.3).
const SCALE_MAX: u8 = 14;

const RECEIVED_END: u8 = 1;
const SENT_END: u8 = 2;
const SCALED: u8 = 4;
const SACK: u8 = 8;
const TIMESTAMPS: u8 = 16;
const NODELAY: u8 = 32;
const KEEPALIVE: u8 = 64;
/// No image of this version has others.
const KNOWN: u8 = 127;

/// Why bytes are not an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ImageError {
    /// Another release wrote it in another form.
    #[error("the image of a connection is of version {0}; this base reads version {VERSION}")]
    Version(u8),
    /// It ends too early, or goes on behind its end.
    #[error("the image of a connection has a wrong length")]
    Length,
    /// A field has a value that it cannot have.
    #[error("the image of a connection has a wrong {0}")]
    Field(&'static str),
}

/// When the kernel asks a silent peer whether it lives (tcp(7)), in seconds and questions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct KeepAlive {
    pub(super) idle: u32,
    pub(super) interval: u32,
    pub(super) count: u32,
}

/// What was set on the socket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Settings {
    pub(super) nodelay: bool,
    pub(super) keepalive: Option<KeepAlive>,
    /// Milliseconds; zero is the kernel's own.
    pub(super) user_timeout: u32,
    /// Bytes.
    pub(super) not_sent_low_water: u32,
    pub(super) congestion: String,
}

/// All of one kernel TCP connection.
///
/// A peer's selective acknowledgements are not in it, nor what was received out of order:
/// both kernels must be ready for that (RFC 2018, section 8), and it is sent again.
#[derive(Clone, PartialEq, Eq, Debug)]
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
    pub(super) unread: Vec<u8>,
    /// The oldest sequence number that is not acknowledged.
    pub(super) snd_una: u32,
    /// Sent and not acknowledged.
    pub(super) unacknowledged: Vec<u8>,
    /// Behind that: never sent.
    pub(super) unsent: Vec<u8>,
    pub(super) window: Window,
    /// Sizes of the receive and the send buffer as the kernel counts them, bytes.
    pub(super) buffers: (u32, u32),
    pub(super) settings: Settings,
}

impl Image {
    /// Whose connection it is.
    pub fn flow(&self) -> Flow {
        self.flow
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
        let queues = self.unread.len() + self.unacknowledged.len() + self.unsent.len();
        let mut out = Vec::with_capacity(queues + 192);
        out.extend([VERSION, self.flags()]);
        put_address(&mut out, self.flow.local);
        put_address(&mut out, self.flow.remote);
        put_u16(&mut out, self.mss as u16);
        let (send, receive) = self.scales.unwrap_or_default();
        out.extend([send, receive]);
        let Window { snd_wl1, snd_wnd, max_window, rcv_wnd, rcv_wup } = self.window;
        let seqs = [self.timestamp.unwrap_or(0), self.rcv_nxt, self.snd_una];
        let keepalive = self.settings.keepalive;
        let keepalive = keepalive.map_or([0; 3], |k| [k.idle, k.interval, k.count]);
        let limits = [self.settings.user_timeout, self.settings.not_sent_low_water];
        let numbers = seqs
            .into_iter()
            .chain([snd_wl1, snd_wnd, max_window, rcv_wnd, rcv_wup])
            .chain([self.buffers.0, self.buffers.1])
            .chain(keepalive)
            .chain(limits);
        numbers.for_each(|n| put_u32(&mut out, n));
        put_string(&mut out, self.settings.congestion.as_bytes());
        for queue in [&self.unread, &self.unacknowledged, &self.unsent] {
            put_string(&mut out, queue);
        }
        out
    }

    fn flags(&self) -> u8 {
        let flags = [
            (self.received_end, RECEIVED_END),
            (self.sent_end, SENT_END),
            (self.scales.is_some(), SCALED),
            (self.sack, SACK),
            (self.timestamp.is_some(), TIMESTAMPS),
            (self.settings.nodelay, NODELAY),
            (self.settings.keepalive.is_some(), KEEPALIVE),
        ];
        flags.into_iter().filter(|(set, _)| *set).map(|(_, flag)| flag).sum()
    }

    /// Reads what [`encode`](Self::encode) wrote.
    ///
    /// # Errors
    ///
    /// [`ImageError`]. What is read has sensible values; whether the kernel takes them is known
    /// when it is asked.
    pub fn decode(bytes: &[u8]) -> Result<Self, ImageError> {
        let mut reader = Reader::new(bytes);
        let version = reader.u8().ok_or(ImageError::Length)?;
        if version != VERSION {
            return Err(ImageError::Version(version));
        }
        if bytes.get(1).is_some_and(|flags| flags & !KNOWN != 0) {
            return Err(ImageError::Field("flag"));
        }
        let image = Self::read(&mut reader).ok_or(ImageError::Length)?;
        if !reader.is_empty() {
            return Err(ImageError::Length);
        }
        image.check()
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let flags = reader.u8()?;
        let has = |flag: u8| flags & flag != 0;
        let flow = Flow { local: reader.address()?, remote: reader.address()? };
        let mss = u32::from(reader.u16()?);
        let scales = (reader.u8()?, reader.u8()?);
        let timestamp = reader.u32()?;
        let (rcv_nxt, snd_una) = (reader.u32()?, reader.u32()?);
        let window = Window {
            snd_wl1: reader.u32()?,
            snd_wnd: reader.u32()?,
            max_window: reader.u32()?,
            rcv_wnd: reader.u32()?,
            rcv_wup: reader.u32()?,
        };
        let buffers = (reader.u32()?, reader.u32()?);
        let keepalive =
            KeepAlive { idle: reader.u32()?, interval: reader.u32()?, count: reader.u32()? };
        let (user_timeout, not_sent_low_water) = (reader.u32()?, reader.u32()?);
        let congestion = String::from_utf8_lossy(reader.string(NAME_MAX)?).into_owned();
        let mut queue = || reader.string(QUEUE_MAX).map(<[u8]>::to_vec);
        let (unread, unacknowledged, unsent) = (queue()?, queue()?, queue()?);
        let settings = Settings {
            nodelay: has(NODELAY),
            keepalive: has(KEEPALIVE).then_some(keepalive),
            user_timeout,
            not_sent_low_water,
            congestion,
        };
        Some(Self {
            flow,
            received_end: has(RECEIVED_END),
            sent_end: has(SENT_END),
            mss,
            scales: has(SCALED).then_some(scales),
            sack: has(SACK),
            timestamp: has(TIMESTAMPS).then_some(timestamp),
            rcv_nxt,
            unread,
            snd_una,
            unacknowledged,
            unsent,
            window,
            buffers,
            settings,
        })
    }

    /// Refuses what no connection has.
    fn check(self) -> Result<Self, ImageError> {
        let Flow { local, remote } = self.flow;
        let (send, receive) = self.scales.unwrap_or_default();
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let wrong = if !self.flow.is_sensible() || local.is_ipv4() != remote.is_ipv4() {
            "four-tuple"
        } else if self.mss == 0 {
            "largest segment"
        } else if send > SCALE_MAX || receive > SCALE_MAX {
            "window scale"
        } else if !self.settings.congestion.chars().all(plain) {
            "congestion control"
        } else {
            return Ok(self);
        };
        Err(ImageError::Field(wrong))
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, SocketAddr};

    use proptest::prelude::*;

    use super::*;

    fn address() -> impl Strategy<Value = (SocketAddr, SocketAddr)> {
        let v4 = (1u8..200, 1u16.., 1u8..200, 1u16..).prop_map(|(a, p, b, q)| {
            (SocketAddr::from(([10, 0, 0, a], p)), SocketAddr::from(([192, 0, 2, b], q)))
        });
        let v6 = (1u16.., 1u16.., 1u16.., 1u16..).prop_map(|(a, p, b, q)| {
            let at = |n, port| SocketAddr::from(([0x2001, 0xdb8, 0, 0, 0, 0, 0, n], port));
            (at(a, p), at(b, q))
        });
        prop_oneof![v4, v6]
    }

    prop_compose! {
        fn settings()(
            nodelay: bool,
            keepalive in prop::option::of(any::<(u32, u32, u32)>()),
            user_timeout: u32,
            not_sent_low_water: u32,
            congestion in "[a-z0-9_-]{0,15}",
        ) -> Settings {
            let keepalive =
                keepalive.map(|(idle, interval, count)| KeepAlive { idle, interval, count });
            Settings { nodelay, keepalive, user_timeout, not_sent_low_water, congestion }
        }
    }

    prop_compose! {
        fn image()(
            (local, remote) in address(),
            ends: (bool, bool),
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
                received_end: ends.0,
                sent_end: ends.1,
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
        assert_eq!(Image::decode(&[]), Err(ImageError::Length));
        for cut in 1..good.len() {
            assert_eq!(Image::decode(&good[..cut]), Err(ImageError::Length), "{cut}");
        }
        assert_eq!(Image::decode(&[&good[..], &[0]].concat()), Err(ImageError::Length));
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
        assert_eq!(refused(|i| i.scales = Some((15, 0))), "window scale");
        assert_eq!(refused(|i| i.settings.congestion = "a b".into()), "congestion control");
    }

    #[test]
    fn a_flag_that_means_nothing_is_refused() {
        let mut bytes = some().encode();
        bytes[1] |= !KNOWN;
        assert_eq!(Image::decode(&bytes), Err(ImageError::Field("flag")));
    }

    #[test]
    fn a_length_that_lies_allocates_nothing() {
        let mut image = some();
        image.unsent.clear();
        let mut bytes = image.encode();
        let end = bytes.len();
        bytes[end - 4..].copy_from_slice(&u32::MAX.to_be_bytes());
        assert_eq!(Image::decode(&bytes), Err(ImageError::Length));
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
                prop_assert_eq!(image.encode().len(), bytes.len());
            }
        }
    }
}
