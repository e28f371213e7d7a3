//! Control packets (figure 3a).

use core::net::{Ipv4Addr, SocketAddrV4};

use super::extension::{self, Extension, Extensions};
use super::{
    CONTROL_BIT, CONTROL_HEADER, Cid, Code, DecodeError, EXTENDED, EmitError, PAPER, Seq16,
    VERSION_SHIFT, get16, header, put16, room,
};
use crate::checksum;

const CHECKSUM: usize = 10;

/// What a control packet says, apart from checksum and extensions (MOB-10).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Control {
    /// The code bits.
    pub code: Code,
    /// The connection, by the number that the packet's receiver allotted; [`Cid::NONE`] in an
    /// opening (MOB-16).
    pub cid: Cid,
    /// The sequence number that the SYN takes.
    pub seq: Seq16,
    /// Place of the next byte expected, if [`Code::ACK`] is set. In an opening the low 16 bits of
    /// the opener's count of streams, which tells the receiver which stream it is.
    pub ack: Seq16,
    /// The number under which the packet's sender wants to receive this connection's packets
    /// (MOB-16).
    pub reverse: Cid,
    /// The sender's receive buffer in bytes, which is the first window (MOB-6). With
    /// [`Code::RST`] why it refuses: see [`Control::reset_code`].
    pub max_buffer: u16,
    /// The most bytes of data that the sender takes in one packet (MOB-6).
    pub max_packet: u16,
    /// Where the connection is to go: the fixed host's address, or the mobile's where the fixed
    /// host opens.
    pub destination: SocketAddrV4,
    /// Where it comes from.
    pub source: SocketAddrV4,
}

impl Default for Control {
    /// All zero.
    fn default() -> Self {
        let nowhere = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
        Self {
            code: Code::empty(),
            cid: Cid::NONE,
            seq: Seq16(0),
            ack: Seq16(0),
            reverse: Cid::NONE,
            max_buffer: 0,
            max_packet: 0,
            destination: nowhere,
            source: nowhere,
        }
    }
}

impl Control {
    /// Writes the packet, as the paper has it, at the start of `out`; how many bytes it took.
    ///
    /// # Errors
    ///
    /// There is no room.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, EmitError> {
        let packet = room(out, CONTROL_HEADER)?;
        self.write(PAPER, packet);
        Ok(packet.len())
    }

    /// Writes the packet with extensions, in version 1, at the start of `out`; how many bytes it
    /// took.
    ///
    /// # Errors
    ///
    /// There is no room, or an extension is longer than 65535 bytes.
    pub fn emit_extended(
        &self,
        extensions: &[Extension<'_>],
        out: &mut [u8],
    ) -> Result<usize, EmitError> {
        let packet = room(out, CONTROL_HEADER + extension::emitted_len(extensions))?;
        extension::emit(extensions, &mut packet[CONTROL_HEADER..])?;
        self.write(EXTENDED, packet);
        Ok(packet.len())
    }

    /// Writes a refusal with `code` as the session has it: the paper's packet if 16 bits hold the
    /// code, else one of version 1. [`Code::RST`] is added to the code bits.
    ///
    /// # Errors
    ///
    /// There is no room.
    pub fn emit_refusal(&self, code: u64, out: &mut [u8]) -> Result<usize, EmitError> {
        let max_buffer = short_code(code);
        let refusal = Self { code: self.code.with(Code::RST), max_buffer, ..*self };
        match max_buffer {
            u16::MAX => refusal.emit_extended(&[Extension::ResetCode(code)], out),
            _ => refusal.emit(out),
        }
    }

    /// Why the opening is refused, in the session's code, if this is a refusal. The extensions are
    /// those that came with it.
    pub fn reset_code(&self, extensions: Option<Extensions<'_>>) -> Option<u64> {
        if !self.code.contains(Code::RST) {
            return None;
        }
        let extended = extensions.and_then(Extensions::reset_code);
        Some(extended.unwrap_or(u64::from(self.max_buffer)))
    }

    fn write(&self, version: u8, packet: &mut [u8]) {
        let code = CONTROL_BIT | u16::from(version) << VERSION_SHIFT | self.code.bits();
        put16(packet, 0, code);
        put16(packet, 2, self.cid.0);
        put16(packet, 4, self.seq.0);
        put16(packet, 6, self.ack.0);
        put16(packet, 8, self.reverse.0);
        put16(packet, CHECKSUM, 0);
        put16(packet, 12, self.max_buffer);
        put16(packet, 14, self.max_packet);
        put16(packet, 16, self.destination.port());
        put16(packet, 18, self.source.port());
        packet[20..24].copy_from_slice(&self.destination.ip().octets());
        packet[24..28].copy_from_slice(&self.source.ip().octets());
        let checksum = checksum::of(packet);
        put16(packet, CHECKSUM, checksum);
    }
}

/// A reset's code as the 16 bits that a packet has for it: 0xffff is any code that they cannot
/// hold, and itself.
pub fn short_code(code: u64) -> u16 {
    u16::try_from(code).unwrap_or(u16::MAX)
}

pub(super) fn decode(
    version: u8,
    bytes: &[u8],
) -> Result<(Control, Option<Extensions<'_>>), DecodeError> {
    let head: &[u8; CONTROL_HEADER] = header(bytes)?;
    let (extensions, len) = match version {
        PAPER => (None, CONTROL_HEADER),
        EXTENDED => {
            let (extensions, len) = Extensions::decode(bytes, CONTROL_HEADER)?;
            (Some(extensions), len)
        }
        _ => return Err(DecodeError::ControlVersion(version)),
    };
    if checksum::of(&bytes[..len]) != 0 {
        return Err(DecodeError::Checksum);
    }
    let addr = |at: usize, port: u16| {
        SocketAddrV4::new(Ipv4Addr::new(head[at], head[at + 1], head[at + 2], head[at + 3]), port)
    };
    let control = Control {
        code: Code::from_bits(get16(head, 0)),
        cid: Cid(get16(head, 2)),
        seq: Seq16(get16(head, 4)),
        ack: Seq16(get16(head, 6)),
        reverse: Cid(get16(head, 8)),
        max_buffer: get16(head, 12),
        max_packet: get16(head, 14),
        destination: addr(20, get16(head, 16)),
        source: addr(24, get16(head, 18)),
    };
    Ok((control, extensions))
}
