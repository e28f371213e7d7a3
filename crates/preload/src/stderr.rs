//! Lines on standard error: one about the proxy in a program's life, and one about each program that
//! it starts and that will not be helped.

use core::fmt::{self, Write};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::OnceLock;

use rustix::fs::{self, FileType};
use rustix::io::{self, FdFlags};
use rustix::stdio;

static REPORTED: AtomicBool = AtomicBool::new(false);
static STDERR: OnceLock<Option<(u64, u64)>> = OnceLock::new();

/// Hashes of reports about programs, as far as there is room: a later one takes an earlier one's place.
static PROGRAMS: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

/// Longest line written; the rest is cut.
const LINE_MAX: usize = 512;

/// Remembers what descriptor 2 is while it is surely standard error.
pub(crate) fn recognise_stderr() {
    STDERR.get_or_init(identity);
}

/// Writes `what` to standard error, unless this was called before. A program that closed its standard
/// error may have a connection or a file in its place; nothing is written to that.
pub(crate) fn report_once(what: fmt::Arguments<'_>) {
    if REPORTED.swap(true, Ordering::Relaxed) {
        return;
    }
    if is_known_stderr() {
        write(&Line::of(format_args!("lasthop exec: {what}")));
    }
}

/// Reports that a program will not be helped, for the reason `doubt`, unless this process has reported
/// the same before.
pub(crate) fn report_program(doubt: fmt::Arguments<'_>) {
    let line = Line::of(format_args!(
        "lasthop exec: warning: {doubt}; its connections will not go through the mobile"
    ));
    let mark = line.mark();
    let told = PROGRAMS.get((mark % PROGRAMS.len() as u64) as usize);
    if told.is_none_or(|told| told.swap(mark, Ordering::Relaxed) != mark) && is_for_children() {
        write(&line);
    }
}

/// A line that is too long is cut, not lost, and nothing can be done about a failed write.
fn write(line: &Line) {
    let _ = io::write(stdio::stderr(), line.as_bytes());
}

/// Whether descriptor 2 is still what it was when it was surely standard error.
fn is_known_stderr() -> bool {
    matches!((STDERR.get(), identity()), (Some(Some(known)), Some(now)) if *known == now)
}

/// Whether descriptor 2 will be the standard error of a program that is started: a shell sends it
/// elsewhere before. What will be closed is not, and a socket is rather a connection.
fn is_for_children() -> bool {
    let inherited =
        || io::fcntl_getfd(stdio::stderr()).is_ok_and(|flags| !flags.contains(FdFlags::CLOEXEC));
    let socket = || {
        fs::fstat(stdio::stderr())
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_socket())
    };
    is_known_stderr() || (inherited() && !socket())
}

fn identity() -> Option<(u64, u64)> {
    let stat = fs::fstat(stdio::stderr()).ok()?;
    Some((stat.st_dev, stat.st_ino))
}

struct Line {
    bytes: [u8; LINE_MAX],
    len: usize,
}

impl Default for Line {
    fn default() -> Self {
        Line { bytes: [0; LINE_MAX], len: 0 }
    }
}

impl Line {
    fn of(what: fmt::Arguments<'_>) -> Self {
        let mut line = Line::default();
        let _ = writeln!(line, "{what}");
        if line.len == LINE_MAX
            && let Some(last) = line.bytes.last_mut()
        {
            *last = b'\n';
        }
        line
    }

    /// A hash of the line (FNV-1a).
    fn mark(&self) -> u64 {
        let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        self.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, step)
    }

    fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&self.bytes)
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for (to, from) in self.bytes.iter_mut().skip(self.len).zip(text.bytes()) {
            *to = from;
            self.len += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_is_cut_and_stays_a_line() {
        let line = Line::of(format_args!("{}", "x".repeat(LINE_MAX + 1)));
        assert_eq!(line.as_bytes().len(), LINE_MAX);
        assert!(line.as_bytes().ends_with(b"x\n"));
    }

    #[test]
    fn a_short_line_is_whole_and_has_a_mark_of_its_own() {
        let line = Line::of(format_args!("a {} c", 1));
        assert_eq!(line.as_bytes(), b"a 1 c\n");
        assert_ne!(line.mark(), Line::of(format_args!("a 2 c")).mark());
    }
}
