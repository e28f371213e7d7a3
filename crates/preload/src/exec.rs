//! The functions by which a program becomes or starts another. Each looks at that one and then does
//! what it always did.
//!
//! `execl` and its kin take any number of arguments, which cannot be handed on from here.

use core::ffi::{c_char, c_int, c_void};

use libc::pid_t;
use rustix::io::Errno;

use crate::children::{Program, Strings, check_program};
use crate::exports::or_missing;
use crate::next;

/// `execve(2)`.
///
/// # Safety
/// As the C function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn execve(
    path: *const c_char,
    arguments: Strings,
    environment: Strings,
) -> c_int {
    // SAFETY: the caller's own arguments.
    unsafe { check_program(Program::At(libc::AT_FDCWD, path), Some(environment)) };
    // SAFETY: as above.
    or_missing(&next::EXECVE, |f| unsafe { f(path, arguments, environment) })
}

/// `execveat(2)`. With an empty path the descriptor is the program itself.
///
/// # Safety
/// As the C function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn execveat(
    directory: c_int,
    path: *const c_char,
    arguments: Strings,
    environment: Strings,
    flags: c_int,
) -> c_int {
    let is_open = flags & libc::AT_EMPTY_PATH != 0;
    // SAFETY: the caller's own arguments.
    let is_open = is_open && !path.is_null() && unsafe { *path } == 0;
    let program = if is_open { Program::Open(directory) } else { Program::At(directory, path) };
    // SAFETY: as above.
    unsafe { check_program(program, Some(environment)) };
    // SAFETY: as above.
    or_missing(&next::EXECVEAT, |f| unsafe { f(directory, path, arguments, environment, flags) })
}

/// `fexecve(3)`.
///
/// # Safety
/// As the C function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fexecve(
    fd: c_int,
    arguments: Strings,
    environment: Strings,
) -> c_int {
    // SAFETY: the caller's own arguments.
    unsafe { check_program(Program::Open(fd), Some(environment)) };
    // SAFETY: as above.
    or_missing(&next::FEXECVE, |f| unsafe { f(fd, arguments, environment) })
}

/// `execv(3)`.
///
/// # Safety
/// As the C function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn execv(path: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: the caller's own arguments.
    unsafe { check_program(Program::At(libc::AT_FDCWD, path), None) };
    // SAFETY: as above.
    or_missing(&next::EXECV, |f| unsafe { f(path, arguments) })
}

/// `execvp(3)`.
///
/// # Safety
/// As the C function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn execvp(name: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: the caller's own arguments.
    unsafe { check_program(Program::Named(name), None) };
    // SAFETY: as above.
    or_missing(&next::EXECVP, |f| unsafe { f(name, arguments) })
}

/// `execvpe(3)`.
///
/// # Safety
/// As the C function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn execvpe(
    name: *const c_char,
    arguments: Strings,
    environment: Strings,
) -> c_int {
    // SAFETY: the caller's own arguments.
    unsafe { check_program(Program::Named(name), Some(environment)) };
    // SAFETY: as above.
    or_missing(&next::EXECVPE, |f| unsafe { f(name, arguments, environment) })
}

/// `posix_spawn(3)`.
///
/// # Safety
/// As the C function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn posix_spawn(
    pid: *mut pid_t,
    path: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: Strings,
    environment: Strings,
) -> c_int {
    // SAFETY: the caller's own arguments.
    unsafe { check_program(Program::At(libc::AT_FDCWD, path), Some(environment)) };
    match next::POSIX_SPAWN.get() {
        // SAFETY: as above.
        Some(f) => unsafe { f(pid, path, actions, attributes, arguments, environment) },
        None => Errno::NOSYS.raw_os_error(),
    }
}

/// `posix_spawnp(3)`.
///
/// # Safety
/// As the C function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn posix_spawnp(
    pid: *mut pid_t,
    name: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: Strings,
    environment: Strings,
) -> c_int {
    // SAFETY: the caller's own arguments.
    unsafe { check_program(Program::Named(name), Some(environment)) };
    match next::POSIX_SPAWNP.get() {
        // SAFETY: as above.
        Some(f) => unsafe { f(pid, name, actions, attributes, arguments, environment) },
        None => Errno::NOSYS.raw_os_error(),
    }
}
