//! Data packets (figure 3b).

use super::{
    Cid, Code, DATA_HEADER, DecodeError, EmitError, MAX_WINDOW, Seq16, get16, header, room,
};
use crate::checksum::{self, Sum};

/// What a data packet's header says, apart from length and checksum (MOB-11).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct DataHeader {
    /// The code bits.
    pub code: Code,
    /// The connection, by the number that the packet's receiver allotted (MOB-16).
    pub cid: Cid,
    /// Place of the first byte of data.
    pub seq: Seq16,
    /// Place of the next byte expected, if [`Code::ACK`] is set.
    pub ack: Seq16,
    /// Bytes from `ack` on that the receiver has room for (MOB-19), at most [`MAX_WINDOW`]. With
    /// [`Code::RST`] why the connection ends: see [`DataHeader::reset_code`].
    pub window: u16,
    /// The next in-order segment: with [`Code::RRQ`] the place of the first byte held above the
    /// gap that begins at `ack` (MOB-26), else equal to `ack` (MOB-15).
    pub nack: Seq16,
}

impl DataHeader {
    /// Writes the header in front of `payload` bytes of data that lie in `out` already, from
    /// [`DATA_HEADER`] on; how many bytes the packet has.
    ///
    /// # Errors
    ///
    /// There is no room, or more data than a packet can have.
    #[inline]
    pub fn emit(&self, payload: usize, out: &mut [u8]) -> Result<usize, EmitError> {
        let len = u16::try_from(payload).map_err(|_| EmitError::TooLong(payload))?;
        let packet = room(out, DATA_HEADER + payload)?;
        let (header, data) = packet.split_at_mut(DATA_HEADER);
        // Read back from memory, field by field as it was written, it would be far slower to sum.
        let head = four([self.code.bits(), self.cid.0, self.seq.0, self.ack.0]);
        let tail = four([self.window, self.nack.0, len, 0]);
        let checksum = Sum::new().with_u64(head).with_u64(tail).with(data).checksum();
        header[..8].copy_from_slice(&head.to_be_bytes());
        header[8..].copy_from_slice(&(tail | u64::from(checksum)).to_be_bytes());
        Ok(packet.len())
    }

    /// Why the connection ends, if this is a reset: the session's code as [`short_code`] makes it.
    ///
    /// [`short_code`]: super::short_code
    pub const fn reset_code(&self) -> Option<u16> {
        if self.code.contains(Code::RST) { Some(self.window) } else { None }
    }
}

/// Four fields of a header, the first one highest.
#[inline]
fn four(fields: [u16; 4]) -> u64 {
    fields.into_iter().fold(0, |all, field| all << 16 | u64::from(field))
}

#[inline]
pub(super) fn decode(bytes: &[u8]) -> Result<(DataHeader, &[u8]), DecodeError> {
    let head: &[u8; DATA_HEADER] = header(bytes)?;
    let len = DATA_HEADER + usize::from(get16(head, 12));
    let packet =
        bytes.get(..len).ok_or(DecodeError::Truncated { found: bytes.len(), least: len })?;
    if checksum::of(packet) != 0 {
        return Err(DecodeError::Checksum);
    }
    let header = DataHeader {
        code: Code::from_bits(get16(head, 0)),
        cid: Cid(get16(head, 2)),
        seq: Seq16(get16(head, 4)),
        ack: Seq16(get16(head, 6)),
        window: get16(head, 8),
        nack: Seq16(get16(head, 10)),
    };
    if header.code.intersects(Code::CONTROL_ONLY) {
        return Err(DecodeError::Code(header.code));
    }
    if header.window > MAX_WINDOW && header.reset_code().is_none() {
        return Err(DecodeError::Window(header.window));
    }
    Ok((header, &packet[DATA_HEADER..]))
}
