//! Whether the dynamic loader will take a library into a program.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Interpreters of interpreters that are followed, as many as the kernel does (execve(2)).
const MAX_INTERPRETERS: usize = 5;
/// Longest first line that the kernel reads (execve(2)).
const FIRST_LINE: usize = 255;
/// More program headers than any program has.
const MAX_HEADERS: u16 = 128;

const PT_INTERP: u32 = 3;
const PT_NOTE: u32 = 4;

/// The file that `execvp` would run, or `None` where it would find nothing.
pub(super) fn find(name: &OsStr) -> Option<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(name));
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|directory| directory.join(name))
        .find(|file| is_runnable(file))
}

fn is_runnable(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|m| m.is_file() && m.mode() & 0o111 != 0)
}

/// Why the program at `path` will not be helped, if that can be told. What cannot be read is left
/// to `execve` to judge.
pub(super) fn doubt(path: &Path) -> Option<String> {
    let mut path = path.to_path_buf();
    for _ in 0..MAX_INTERPRETERS {
        let file = File::open(&path).ok()?;
        if let Some(interpreter) = interpreter(&file) {
            path = interpreter;
            continue;
        }
        let reason = elf_doubt(&file).ok()?.or_else(|| privilege_doubt(&file))?;
        return Some(format!("{} {reason}", path.display()));
    }
    None
}

/// The program named after `#!`.
fn interpreter(mut file: &File) -> Option<PathBuf> {
    let mut line = [0; FIRST_LINE];
    let read = file.read(&mut line).ok()?;
    let line = line.get(..read)?.strip_prefix(b"#!")?;
    let line = line.split(|&b| b == b'\n').next()?.trim_ascii_start();
    let name = line.split(u8::is_ascii_whitespace).next()?;
    (!name.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(name)))
}

/// A program that changes its user or group runs in secure mode, in which the loader takes no
/// library from a path that the user names (ld.so(8)).
fn privilege_doubt(file: &File) -> Option<&'static str> {
    let meta = file.metadata().ok()?;
    let own_user = rustix::process::getuid().as_raw();
    let own_group = rustix::process::getgid().as_raw();
    let user = meta.mode() & 0o4000 != 0 && meta.uid() != own_user;
    let group = meta.mode() & 0o2010 == 0o2010 && meta.gid() != own_group;
    if user || group {
        return Some("is set-user-id or set-group-id, and takes no library from us");
    }
    let mut nothing = [0_u8; 64];
    let capable = rustix::fs::fgetxattr(file, "security.capability", &mut nothing[..]).is_ok();
    (capable && own_user != 0).then_some("has file capabilities, and takes no library from us")
}

/// What the file's program headers say: the loader named in one of them takes the library in.
fn elf_doubt(file: &File) -> io::Result<Option<&'static str>> {
    let mut head = [0; 64];
    file.read_exact_at(&mut head, 0)?;
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

    fn header(&self, file: &File, index: u16) -> io::Result<Header> {
        let at = self.at.wrapping_add(u64::from(self.size) * u64::from(index));
        let mut bytes = [0; 16];
        file.read_exact_at(&mut bytes, at)?;
        let offset = if self.is_64 { &bytes[8..16] } else { &bytes[4..8] };
        Ok(Header { kind: self.number(&bytes[..4]) as u32, at: self.number(offset) })
    }
}

/// The Go linker leaves a note under the name "Go".
fn is_go_note(file: &File, header: &Header) -> io::Result<bool> {
    let mut note = [0; 16];
    file.read_exact_at(&mut note, header.at)?;
    Ok(note.ends_with(b"Go\0\0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A 64-bit little-endian ELF with one program header for each of `kinds`.
    fn elf(kinds: &[u32]) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[32] = 64;
        bytes[54] = 56;
        bytes[56] = kinds.len() as u8;
        for kind in kinds {
            let mut header = [0; 56];
            header[..4].copy_from_slice(&kind.to_le_bytes());
            bytes.extend(header);
        }
        bytes
    }

    fn written(name: &str, bytes: &[u8]) -> PathBuf {
        let path = std::env::temp_dir().join(format!("lasthop-{}-{name}", std::process::id()));
        fs::write(&path, bytes).unwrap();
        path
    }

    fn doubt_about(name: &str, bytes: &[u8]) -> Option<String> {
        let path = written(name, bytes);
        let doubt = doubt(&path);
        fs::remove_file(path).unwrap();
        doubt
    }

    #[test]
    fn a_program_without_an_interpreter_is_static() {
        let doubt = doubt_about("static", &elf(&[1, 2])).unwrap();
        assert!(doubt.contains("statically linked"), "{doubt}");
    }

    #[test]
    fn a_dynamic_program_is_not_doubted() {
        assert_eq!(doubt_about("dynamic", &elf(&[PT_INTERP, 1])), None);
    }

    #[test]
    fn a_go_note_is_recognised() {
        let mut bytes = elf(&[PT_INTERP, PT_NOTE]);
        let note = bytes.len() as u8;
        bytes[64 + 56 + 8] = note;
        bytes.extend([4, 0, 0, 0, 20, 0, 0, 0, 4, 0, 0, 0, b'G', b'o', 0, 0]);
        assert!(doubt_about("go", &bytes).unwrap().contains("Go program"));
    }

    #[test]
    fn a_program_of_another_word_size_is_doubted() {
        let mut bytes = elf(&[PT_INTERP]);
        bytes[4] = if cfg!(target_pointer_width = "64") { 1 } else { 2 };
        assert!(doubt_about("class", &bytes).unwrap().contains("word size"));
    }

    #[test]
    fn a_script_is_as_good_as_its_interpreter() {
        let program = written("interpreter", &elf(&[]));
        let script = format!("#! {} -x\nhello\n", program.display());
        let doubt = doubt_about("script", script.as_bytes()).unwrap();
        fs::remove_file(&program).unwrap();
        assert!(doubt.contains("interpreter is statically linked"), "{doubt}");
    }

    #[test]
    fn what_cannot_be_read_is_left_to_execve() {
        assert_eq!(doubt(Path::new("/no/such/program")), None);
        assert_eq!(doubt_about("empty", b""), None);
        assert_eq!(doubt_about("short", b"\x7fELF\x02"), None);
        assert_eq!(doubt_about("text", &[b'x'; 100]), None);
    }

    #[test]
    fn a_script_that_interprets_itself_ends() {
        let path = written("loop", b"");
        fs::write(&path, format!("#!{}\n", path.display())).unwrap();
        assert_eq!(doubt(&path), None);
        fs::remove_file(path).unwrap();
    }
}
