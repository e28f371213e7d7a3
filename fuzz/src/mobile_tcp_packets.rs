//! The decoder of Mobile TCP's packets, on any bytes: what is read can be written and read again.

use lasthop_wire::mobile_tcp::{
    CONTROL_HEADER, Control, DATA_HEADER, DataHeader, Extensions, Packet, is_mobile_tcp,
};

fn data(header: &DataHeader, payload: &[u8]) {
    let mut out = vec![0; DATA_HEADER + payload.len()];
    out[DATA_HEADER..].copy_from_slice(payload);
    assert_eq!(header.emit(payload.len(), &mut out), Ok(out.len()));
    assert_eq!(Packet::decode(&out), Ok(Packet::Data(*header, payload)));
    assert!(Packet::decode(&out[..out.len() - 1]).is_err());
    // One changed bit is never believed.
    out[DATA_HEADER / 2] ^= 1;
    assert!(Packet::decode(&out).is_err());
}

fn control(control: &Control, extensions: Option<Extensions<'_>>, room: usize) {
    let mut out = vec![0; room];
    let all: Vec<_> = extensions.into_iter().flatten().collect();
    let written = match extensions {
        Some(_) => control.emit_extended(&all, &mut out),
        None => control.emit(&mut out),
    };
    let len = written.expect("not longer than it came");
    let Ok(Packet::Control(again, carried)) = Packet::decode(&out[..len]) else {
        panic!("what was written is not read: {out:?}")
    };
    assert_eq!(again, *control);
    assert_eq!(carried.is_some(), extensions.is_some());
    assert_eq!(carried.into_iter().flatten().collect::<Vec<_>>(), all);
    assert_eq!(again.reset_code(carried), control.reset_code(extensions));
    assert!(Packet::decode(&out[..len - 1]).is_err());
}

fn packet(bytes: &[u8]) {
    let Ok(packet) = Packet::decode(bytes) else { return };
    assert!(is_mobile_tcp(bytes[0]));
    match packet {
        Packet::Data(header, payload) => data(&header, payload),
        Packet::Control(header, extensions) => control(&header, extensions, bytes.len()),
    }
}

/// The bytes with the checksum made right that a data or a control packet as long as they are has.
fn mended(bytes: &[u8]) -> Option<Vec<u8>> {
    let is_data = bytes.first()? & 0x80 == 0;
    let header = if is_data { DATA_HEADER } else { CONTROL_HEADER };
    let payload = bytes.len().checked_sub(header)?;
    let mut right = bytes.to_vec();
    if is_data {
        right[12..14].copy_from_slice(&u16::try_from(payload).ok()?.to_be_bytes());
    }
    let at = if is_data { 14 } else { 10 };
    right[at..at + 2].fill(0);
    let sum = right.chunks(2).fold(0_u64, |sum, pair| {
        sum + u64::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]))
    });
    let folded = (sum & 0xffff) + (sum >> 16);
    let checksum = !((folded & 0xffff) + (folded >> 16)) as u16;
    right[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
    Some(right)
}

/// One input: a packet, and the same with length and checksum made right.
pub fn run(bytes: &[u8]) {
    packet(bytes);
    if let Some(right) = mended(bytes) {
        packet(&right);
    }
}
