//! What a fixed host is asked, and what its answer means.

use std::net::SocketAddr;

use lasthop_kernel::sockopt::Window;
use lasthop_wire::ip::{self, Addresses, Protocol};
use lasthop_wire::tcp::{Flags, Options, ParseError, Segment, Seq, Timestamps};

use super::{Claim, ClaimError, Claimed};
use crate::UNREAD_MAX;
use crate::image::{Held, Image};

/// How far the clock of timestamps is set ahead of what the fixed host has seen, so that it is also ahead of what is still
/// on its way from the dead base (RFC 7323 section 5): a second of the fastest clock that Linux has, which counts
/// microseconds.
const CLOCK_MARGIN: u32 = 1 << 20;
/// The lowest bit tells the kernel to count microseconds (`TCP_TIMESTAMP`).
const MICROSECONDS: u32 = 1;
/// No window is larger, bytes (RFC 7323 section 2.3).
const WINDOW_MAX: u64 = 1 << 30;

/// A segment and the ends of its connection.
pub(super) type Heard = (Ends, Segment);

/// The ends of a connection: the mobile's, and the fixed host's.
pub(super) type Ends = (SocketAddr, SocketAddr);

/// What a segment of the fixed host's says about a claim.
#[derive(Debug)]
pub(super) enum Word {
    /// Nothing.
    Nothing,
    /// The host has more than was ever sent: up to behind this byte.
    Beyond(u64),
    /// There is no such connection.
    Gone,
    /// How far it is.
    Answer(Box<Claimed>),
}

impl Claim {
    /// Refuses what no mobile can mean.
    pub(super) fn check(&self) -> Result<(), ClaimError> {
        match self.sent.checked_sub(self.kept) {
            None => Err(ClaimError::Wrong("it keeps bytes from behind the last that it sent")),
            Some(n) if n > WINDOW_MAX => Err(ClaimError::Wrong("it keeps more than a window")),
            _ => Ok(()),
        }
    }

    /// The ends as [`read`] names them.
    pub(super) fn ends(&self) -> Ends {
        let flow = &self.ticket.flow;
        // Without what only this host knows of an address.
        let plain = |end: SocketAddr| SocketAddr::new(end.ip(), end.port());
        (plain(flow.local), plain(flow.remote))
    }

    /// The next sequence number that is expected of the fixed host.
    fn expected(&self) -> Seq {
        self.ticket.received(self.received) + u32::from(self.received_end)
    }

    /// What the dead base may have offered to take from there on, bytes.
    fn offered(&self) -> u32 {
        let (_, shift) = self.ticket.scales.unwrap_or_default();
        let most = u32::from(u16::MAX) << shift;
        // It held no more than that unread, as the kernel counts it, which is twice what is asked for.
        most.min(2 * UNREAD_MAX as u32)
    }

    /// A whole IP packet that the fixed host answers by how far it is, and otherwise ignores. None if the addresses are of
    /// different versions.
    ///
    /// It has one byte that the host has, and another such behind it: a segment that ends where the window begins is within
    /// it for Linux, is looked at further, and may be answered by data. Its timestamp is older than any other, which alone
    /// has it answered and dropped (RFC 7323 section 5.3, R1; RFC 9293 section 3.10.7.4). Linux answers data each time, and
    /// pure acknowledgements twice a second.
    pub(super) fn question(&self) -> Option<Vec<u8>> {
        let ticket = &self.ticket;
        let addresses = Addresses::new(ticket.flow.local.ip(), ticket.flow.remote.ip()).ok()?;
        let (_, shift) = ticket.scales.unwrap_or_default();
        let value = ticket.timestamp.map(|value| value.wrapping_sub(CLOCK_MARGIN));
        let segment = Segment {
            src_port: ticket.flow.local.port(),
            dst_port: ticket.flow.remote.port(),
            seq: ticket.sent(self.kept) - 2,
            ack: self.expected(),
            flags: Flags::ACK,
            window: u16::try_from(self.offered() >> shift).unwrap_or(u16::MAX),
            options: Options {
                timestamps: value.map(|value| Timestamps { value, echo: 0 }),
                ..Options::default()
            },
            len: 1,
        };
        let mut packet = Vec::new();
        let length = segment.header_len() as usize + 1;
        ip::Header::new(addresses, Protocol::TCP).emit(length, &mut packet).ok()?;
        segment.emit(&addresses, &[0], &mut packet).ok()?;
        Some(packet)
    }

    /// What a segment says that came after the question was sent.
    ///
    /// Only what has neither data nor an end is an answer: it was sent because something came, so that it knows of all that
    /// came before, while data that is sent again may have waited on its way for long.
    pub(super) fn hear(&self, segment: &Segment) -> Word {
        if segment.flags.contains(Flags::RST) {
            // Who knows no such connection resets it from where the question acknowledges (RFC 9293 section 3.10.7.1).
            // Another reset may be old or forged; whether it is true is asked anyway (RFC 5961 section 3.2).
            return if segment.seq == self.expected() { Word::Gone } else { Word::Nothing };
        }
        let shape = segment.flags.contains(Flags::ACK) && segment.seq_len() == 0;
        // Its next segment is within two windows around what the mobile has.
        let near = segment.seq.ahead_of(self.expected()).unsigned_abs();
        // Whoever uses them has them in every segment (RFC 7323 section 3.2).
        let echo = segment.options.timestamps.map(|timestamps| timestamps.echo);
        let clocks = self.ticket.timestamp.is_none() || echo.is_some();
        if !shape || u64::from(near) > WINDOW_MAX || !clocks {
            return Word::Nothing;
        }
        // An acknowledgement of what was acknowledged before is an old one.
        let Some(up) = self.byte(segment.ack) else { return Word::Nothing };
        let has_end = self.sent_end && up.checked_sub(self.sent) == Some(1);
        if up > self.sent && !has_end {
            return Word::Beyond(up);
        }
        let up = up.min(self.sent);
        let image = self.image(segment, up, has_end);
        Word::Answer(Box::new(Claimed { image, up, up_end: has_end }))
    }

    /// The byte of the mobile's with that sequence number, if it is not before those that it keeps.
    fn byte(&self, seq: Seq) -> Option<u64> {
        let ahead = seq.ahead_of(self.ticket.sent(self.kept));
        Some(self.kept.saturating_add(u32::try_from(ahead).ok()?.into()))
    }

    fn image(&self, segment: &Segment, up: u64, sent_end: bool) -> Image {
        let ticket = &self.ticket;
        let (shift, _) = ticket.scales.unwrap_or_default();
        let (rcv_nxt, snd_wnd) = (self.expected().0, u32::from(segment.window) << shift);
        let echo = segment.options.timestamps.map_or(0, |timestamps| timestamps.echo);
        Image {
            flow: ticket.flow,
            received_end: self.received_end,
            sent_end,
            mss: ticket.mss,
            scales: ticket.scales,
            sack: ticket.sack,
            timestamp: ticket.timestamp.map(|_| echo.wrapping_add(CLOCK_MARGIN) & !MICROSECONDS),
            rcv_nxt,
            unread: Vec::new(),
            // An end that the host has is sent once more, and has this number.
            snd_una: ticket.sent(up).0,
            unacknowledged: Vec::new(),
            unsent: Vec::new(),
            window: Window {
                // The answer's own is ahead of all that the host sends again, whose windows would not count.
                snd_wl1: rcv_nxt.wrapping_sub(1),
                snd_wnd,
                max_window: snd_wnd,
                rcv_wnd: self.offered(),
                rcv_wup: rcv_nxt,
            },
            buffers: (2 * UNREAD_MAX as u32, 0),
            settings: ticket.settings.clone(),
            held: Some(Held {
                ticket: ticket.clone(),
                acknowledged: self.acknowledged(),
                inherited: Some((ticket.sent(self.sent) + u32::from(self.sent_end)).0),
            }),
        }
    }

    /// What the fixed host is acknowledged, as one counts that holds acknowledgements.
    fn acknowledged(&self) -> u32 {
        (self.received as u32).wrapping_add(self.received_end.into())
    }
}

/// The segment in a packet to the mobile, if it is whole.
pub(super) fn read(packet: &[u8]) -> Option<Heard> {
    let (header, payload) = ip::Header::parse(packet).ok()?;
    if header.protocol != Protocol::TCP {
        return None;
    }
    let (segment, _) = match Segment::parse(&header.addresses, payload) {
        Err(ParseError::Checksum) if is_to_be_summed(&header.addresses, payload) => {
            Segment::parse_unverified(payload)
        }
        other => other,
    }
    .ok()?;
    let local = SocketAddr::new(header.addresses.dst(), segment.dst_port);
    let remote = SocketAddr::new(header.addresses.src(), segment.src_port);
    Some(((local, remote), segment))
}

/// Whether a network card was to fill in the checksum, which none did between virtual interfaces: then the field has the
/// sum over the pseudo header (RFC 9293 section 3.1).
fn is_to_be_summed(addresses: &Addresses, tcp: &[u8]) -> bool {
    let begun = !addresses.pseudo_header(Protocol::TCP, tcp.len()).checksum();
    tcp.get(16..18) == Some(&begun.to_be_bytes())
}
