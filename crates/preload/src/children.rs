//! Programs that this one becomes or starts, and that will not be helped.
//!
//! This runs between `vfork` and `exec` too, in memory that is the parent's.

use core::ffi::{CStr, c_char, c_int};
use std::os::fd::BorrowedFd;

use lasthop_loader::{Doubt, Room};
use rustix::fs::CWD;

use crate::config::Config;
use crate::stderr;

/// The variable by which the loader knows of our library.
const LOADED_BY: &[u8] = b"LD_PRELOAD=";

/// What a program is given to see: strings that end with NUL, behind the last a null pointer.
pub(crate) type Strings = *const *const c_char;

unsafe extern "C" {
    /// environ(7): what `execv` and `execvp` give to a program.
    static mut environ: Strings;
}

/// A program that is to be started.
#[derive(Clone, Copy)]
pub(crate) enum Program {
    /// At a path, seen from a directory or `AT_FDCWD`.
    At(c_int, *const c_char),
    /// At a path or, if there is no slash in it, along `PATH`.
    Named(*const c_char),
    /// It is open already.
    Open(c_int),
}

impl Program {
    /// The program at `path`, or the descriptor itself if the flags of `execveat(2)` allow for a path
    /// that is empty and it is.
    ///
    /// # Safety
    /// `path` ends with NUL, or is null.
    #[cfg(not(test))]
    pub(crate) unsafe fn at_or_open(directory: c_int, path: *const c_char, flags: c_int) -> Self {
        let is_open = flags & libc::AT_EMPTY_PATH != 0 && !path.is_null();
        // SAFETY: not null, and so it has at least its NUL.
        if is_open && unsafe { *path } == 0 {
            Self::Open(directory)
        } else {
            Self::At(directory, path)
        }
    }
}

/// Reports a `program` that will not be helped in this environment; in this process's own, as it is
/// now, if `None`.
///
/// # Safety
/// Strings and their lists are as C has them, or null.
pub(crate) unsafe fn check_program(program: Program, environment: Option<Strings>) {
    if Config::get().is_none() {
        return;
    }
    // SAFETY: as for `execv` itself, which reads it too.
    let environment = environment.unwrap_or_else(|| unsafe { (&raw const environ).read() });
    // SAFETY: the caller's promise, or the C library's.
    let named = unsafe { names_library(environment) };
    let report = |doubt: Doubt<'_>| stderr::report_program(format_args!("{doubt}"));
    // SAFETY: the caller's promise.
    let string = |text: *const c_char| unsafe { string(text) };
    match program {
        Program::Open(fd) => {
            borrow(fd).and_then(|file| lasthop_loader::doubt_of_file(file, named)).map(report);
        }
        Program::At(directory, path) => {
            let directory = if directory == libc::AT_FDCWD { Some(CWD) } else { borrow(directory) };
            directory
                .zip(string(path))
                .and_then(|(directory, path)| lasthop_loader::doubt(directory, path, named))
                .map(report);
        }
        Program::Named(name) => {
            let mut room = Room::default();
            // SAFETY: as for `execvp` itself, which reads it too.
            let path = string(unsafe { libc::getenv(c"PATH".as_ptr()) }).map(CStr::to_bytes);
            string(name)
                .and_then(|name| lasthop_loader::find(name, path, &mut room))
                .and_then(|path| lasthop_loader::doubt(CWD, path, named))
                .map(report);
        }
    }
}

/// # Safety
/// As [`check_program`].
unsafe fn names_library(environment: Strings) -> bool {
    if environment.is_null() {
        return false;
    }
    (0..)
        // SAFETY: the list goes on until its null pointer, at which the iteration ends.
        .map_while(|n| unsafe { string(*environment.add(n)) })
        .any(|variable| variable.to_bytes().starts_with(LOADED_BY))
}

/// # Safety
/// As [`check_program`].
unsafe fn string<'call>(string: *const c_char) -> Option<&'call CStr> {
    // SAFETY: not null, and so it ends with NUL; used no longer than the call that got it.
    (!string.is_null()).then(|| unsafe { CStr::from_ptr(string) })
}

fn borrow<'call>(fd: c_int) -> Option<BorrowedFd<'call>> {
    // SAFETY: not -1, and used no longer than the call in which the program named it.
    (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
}

#[cfg(test)]
mod tests {
    use core::ptr;

    use super::*;

    #[test]
    fn a_library_is_named_by_its_variable_alone() {
        let names = |variables: &[&CStr]| {
            let mut list: Vec<_> = variables.iter().map(|variable| variable.as_ptr()).collect();
            list.push(ptr::null());
            // SAFETY: made of C's strings, with a null pointer behind them.
            unsafe { names_library(list.as_ptr()) }
        };
        assert!(names(&[c"HOME=/", c"LD_PRELOAD=/l/ours.so"]));
        assert!(!names(&[c"HOME=/", c"OLD_PRELOAD=/l/ours.so", c"LD_PRELOADED=1"]));
        assert!(!names(&[]));
    }
}
