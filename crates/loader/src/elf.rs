//! What a program's headers say: the loader named in one of them takes the library in.

use rustix::fd::BorrowedFd;
use rustix::io::{self, Errno};

/// More program headers than any program has.
const MAX_HEADERS: u16 = 128;

const PT_INTERP: u32 = 3;
const PT_NOTE: u32 = 4;

/// Why the loader will not help this program; what is no program is nothing to doubt here.
pub(crate) fn doubt(file: BorrowedFd<'_>) -> io::Result<Option<&'static str>> {
    let mut head = [0; 64];
    read_exact_at(file, &mut head, 0)?;
    let Some(elf) = Elf::parse(&head) else { return Ok(None) };
    if elf.is_64 != cfg!(target_pointer_width = "64") {
        return Ok(Some("is of another word size than our library"));
    }
    let mut dynamic = false;
    let mut go = false;
    for index in 0..elf.headers.min(MAX_HEADERS) {
        let header = elf.header(file, index)?;
        match header.kind {
            PT_INTERP => dynamic = true,
            PT_NOTE => go |= is_go_note(file, &header)?,
            _ => {}
        }
    }
    Ok(match (dynamic, go) {
        (false, _) => Some("is statically linked"),
        (true, true) => Some("is a Go program, which calls the kernel without the C library"),
        (true, false) => None,
    })
}

/// The parts of an ELF header that lead to the program headers.
struct Elf {
    is_64: bool,
    big_endian: bool,
    at: u64,
    size: u16,
    headers: u16,
}

/// One program header.
struct Header {
    kind: u32,
    at: u64,
}

impl Elf {
    fn parse(head: &[u8; 64]) -> Option<Elf> {
        let is_64 = match head.strip_prefix(b"\x7fELF")?.first()? {
            1 => false,
            2 => true,
            _ => return None,
        };
        let elf = Elf { is_64, big_endian: head[5] == 2, at: 0, size: 0, headers: 0 };
        let (at, size, headers) = if is_64 {
            (elf.number(&head[32..40]), &head[54..56], &head[56..58])
        } else {
            (elf.number(&head[28..32]), &head[42..44], &head[44..46])
        };
        Some(Elf { at, size: elf.number(size) as u16, headers: elf.number(headers) as u16, ..elf })
    }

    fn number(&self, bytes: &[u8]) -> u64 {
        let add = |sum: u64, byte: &u8| sum << 8 | u64::from(*byte);
        if self.big_endian { bytes.iter().fold(0, add) } else { bytes.iter().rev().fold(0, add) }
    }

    fn header(&self, file: BorrowedFd<'_>, index: u16) -> io::Result<Header> {
        let at = self.at.wrapping_add(u64::from(self.size) * u64::from(index));
        let mut bytes = [0; 16];
        read_exact_at(file, &mut bytes, at)?;
        let offset = if self.is_64 { &bytes[8..16] } else { &bytes[4..8] };
        Ok(Header { kind: self.number(&bytes[..4]) as u32, at: self.number(offset) })
    }
}

/// The Go linker leaves a note under the name "Go".
fn is_go_note(file: BorrowedFd<'_>, header: &Header) -> io::Result<bool> {
    let mut note = [0; 16];
    read_exact_at(file, &mut note, header.at)?;
    Ok(note.ends_with(b"Go\0\0"))
}

fn read_exact_at(file: BorrowedFd<'_>, mut bytes: &mut [u8], mut at: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match io::pread(file, &mut *bytes, at) {
            Ok(0) => return Err(Errno::NOEXEC),
            Ok(read) => {
                bytes = bytes.get_mut(read..).unwrap_or_default();
                at = at.wrapping_add(read as u64);
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
