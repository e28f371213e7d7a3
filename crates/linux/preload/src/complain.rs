//! One line on the program's standard error, once in its life.

use core::fmt::{self, Write};
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::OnceLock;

use rustix::{fs, io, stdio};

static SAID: AtomicBool = AtomicBool::new(false);
static STDERR: OnceLock<Option<(u64, u64)>> = OnceLock::new();

/// Longest line written; the rest is cut.
const LINE_MAX: usize = 160;

/// Remembers what descriptor 2 is while it is surely standard error.
pub(crate) fn recognise_stderr() {
    STDERR.get_or_init(identity);
}

/// Says `what` on standard error, unless something was said before. A program that closed its
/// standard error may have a connection or a file in its place; that is left alone.
pub(crate) fn once(what: fmt::Arguments<'_>) {
    if SAID.swap(true, Ordering::Relaxed) {
        return;
    }
    let Some(Some(known)) = STDERR.get() else { return };
    if identity() != Some(*known) {
        return;
    }
    let mut line = Line::default();
    // A line that is too long is cut, not lost, and nothing can be done about a failed write.
    let _ = writeln!(line, "lasthop exec: {what}");
    let _ = io::write(stdio::stderr(), line.as_bytes());
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
    fn a_long_line_is_cut() {
        let mut line = Line::default();
        writeln!(line, "{}", "x".repeat(500)).unwrap();
        assert_eq!(line.as_bytes().len(), LINE_MAX);
    }

    #[test]
    fn a_short_line_is_whole() {
        let mut line = Line::default();
        writeln!(line, "a {} c", 1).unwrap();
        assert_eq!(line.as_bytes(), b"a 1 c\n");
    }
}
