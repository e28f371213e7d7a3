//! Whether the dynamic loader will take a library into a program.
//!
//! A program asks this of another that it is about to become, possibly between `vfork` and `exec`.
//! So nothing here allocates, takes a lock or leaves a descriptor open.

mod elf;

use core::ffi::CStr;
use core::fmt::{self, Write};

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, CWD, FileType, Mode, OFlags, Stat};
use rustix::io;

/// Interpreters of interpreters that are followed, as many as the kernel does (execve(2)).
const MAX_INTERPRETERS: usize = 5;
/// Longest first line that the kernel reads (execve(2)).
const FIRST_LINE: usize = 255;
/// Longest path that the kernel takes, with its NUL.
const PATH_MAX: usize = 4096;
/// Where programs are sought if `PATH` is not set (execvp(3)).
const USUAL_PATH: &[u8] = b"/bin:/usr/bin";

/// Why a program will not be helped.
pub struct Doubt<'a> {
    /// The requested file, where it has a name.
    path: Option<&'a CStr>,
    /// The program that interprets it, if that is what the doubt is about.
    interpreter: Option<Name>,
    reason: &'static str,
}

/// The file and what is said of it, as the beginning of a sentence.
impl fmt::Display for Doubt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.interpreter.as_ref().map(Name::as_bytes);
        let name = name.or(self.path.map(CStr::to_bytes)).unwrap_or(b"a program");
        for chunk in name.utf8_chunks() {
            f.write_str(chunk.valid())?;
            if !chunk.invalid().is_empty() {
                f.write_char(char::REPLACEMENT_CHARACTER)?;
            }
        }
        write!(f, " {}", self.reason)
    }
}

/// The program named after `#!`.
struct Name {
    bytes: [u8; FIRST_LINE + 1],
    len: usize,
}

impl Name {
    fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    fn as_c_str(&self) -> Option<&CStr> {
        CStr::from_bytes_until_nul(&self.bytes).ok()
    }
}

/// Why the program at `path`, seen from `directory`, will not be helped, if that can be told; `named`
/// says whether its environment names the library. What cannot be read or run is left to `execve` to
/// judge.
pub fn doubt<'a>(directory: impl AsFd, path: &'a CStr, named: bool) -> Option<Doubt<'a>> {
    let doubt = judge(open(directory, path)?, named)?;
    Some(Doubt { path: Some(path), ..doubt })
}

/// The same of a program that is open already. The file's offset stays.
pub fn doubt_of_file(file: BorrowedFd<'_>, named: bool) -> Option<Doubt<'static>> {
    judge(io::fcntl_dupfd_cloexec(file, 0).ok()?, named)
}

/// The file that `execvp` would run, or `None` where it would find nothing. `path` is the
/// environment's `PATH`; `room` is for the answer.
pub fn find<'a>(name: &'a CStr, path: Option<&[u8]>, room: &'a mut Room) -> Option<&'a CStr> {
    let bytes = name.to_bytes();
    if bytes.contains(&b'/') {
        return Some(name);
    }
    let mut folders = path.unwrap_or(USUAL_PATH).split(|&b| b == b':');
    let len = folders.find_map(|folder| {
        // An empty folder is the current one.
        let slash: &[u8] = if folder.is_empty() { b"" } else { b"/" };
        let parts = [folder, slash, bytes, b"\0"];
        let len = parts.iter().map(|part| part.len()).sum();
        let mut left = room.bytes.get_mut(..len)?;
        for part in parts {
            let (here, rest) = left.split_at_mut_checked(part.len())?;
            here.copy_from_slice(part);
            left = rest;
        }
        let file = CStr::from_bytes_with_nul(room.bytes.get(..len)?).ok()?;
        is_runnable(&fs::stat(file).ok()?).then_some(len)
    });
    CStr::from_bytes_with_nul(room.bytes.get(..len?)?).ok()
}

/// Room for a path.
pub struct Room {
    bytes: [u8; PATH_MAX],
}

impl Default for Room {
    fn default() -> Self {
        Room { bytes: [0; PATH_MAX] }
    }
}

fn is_runnable(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode).is_file() && stat.st_mode & 0o111 != 0
}

/// Only what can be run, and without waiting for whoever may be at the other end of a FIFO.
fn open(directory: impl AsFd, path: &CStr) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = fs::openat(directory, path, flags, Mode::empty()).ok()?;
    is_runnable(&fs::fstat(&file).ok()?).then_some(file)
}

fn judge<'a>(mut file: OwnedFd, named: bool) -> Option<Doubt<'a>> {
    let mut interpreter = None;
    for _ in 0..MAX_INTERPRETERS {
        if let Some(next) = interpreter_of(file.as_fd()) {
            file = open(CWD, next.as_c_str()?)?;
            interpreter = Some(next);
            continue;
        }
        let reason = elf::doubt(file.as_fd()).ok()?.or_else(|| privilege_doubt(file.as_fd()));
        let reason = reason.or((!named).then_some("is started without LD_PRELOAD"))?;
        return Some(Doubt { path: None, interpreter, reason });
    }
    None
}

fn interpreter_of(file: BorrowedFd<'_>) -> Option<Name> {
    let mut line = [0; FIRST_LINE];
    let read = io::pread(file, &mut line, 0).ok()?;
    let line = line.get(..read)?.strip_prefix(b"#!")?;
    let line = line.split(|&b| b == b'\n').next()?.trim_ascii_start();
    let name = line.split(u8::is_ascii_whitespace).next()?;
    let mut bytes = [0; FIRST_LINE + 1];
    bytes.get_mut(..name.len())?.copy_from_slice(name);
    (!name.is_empty()).then_some(Name { bytes, len: name.len() })
}

/// A program that changes its user or group runs in secure mode, in which the loader takes no
/// library from a path that the user names (ld.so(8)).
fn privilege_doubt(file: BorrowedFd<'_>) -> Option<&'static str> {
    let stat = fs::fstat(file).ok()?;
    let own_user = rustix::process::getuid().as_raw();
    let own_group = rustix::process::getgid().as_raw();
    let user = stat.st_mode & 0o4000 != 0 && stat.st_uid != own_user;
    let group = stat.st_mode & 0o2010 == 0o2010 && stat.st_gid != own_group;
    if user || group {
        return Some("is set-user-id or set-group-id, and takes no library from us");
    }
    let mut nothing = [0_u8; 64];
    let capable = fs::fgetxattr(file, c"security.capability", &mut nothing[..]).is_ok();
    (capable && own_user != 0).then_some("has file capabilities, and takes no library from us")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
