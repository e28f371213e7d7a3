//! The functions by which a program becomes or starts another. Each looks at that one and then does
//! what it always did.
//!
//! `execl` and its kin take any number of arguments, which cannot be handed on from here.

use core::ffi::{c_char, c_int, c_void};

use libc::{AT_FDCWD, pid_t};
use rustix::io::Errno;

use crate::children::{Program, Strings, check_program};
use crate::exports::fail;
use crate::next;

/// A function of C for each row: its arguments, the function behind ours and what is returned where
/// there is none, the program that it starts and with which environment, if not this process's own.
macro_rules! exec {
    ($(
        $(#[$doc:meta])*
        $name:ident($($argument:ident: $type:ty),*) by $next:ident or $missing:expr,
            $program:expr, $environment:expr;
    )*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// As the C function of this name.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            // SAFETY: the caller's own arguments.
            unsafe { check_program($program, $environment) };
            match next::$next.get() {
                // SAFETY: as above.
                Some(function) => unsafe { function($($argument),*) },
                None => $missing(Errno::NOSYS),
            }
        }
    )*};
}

exec! {
    /// `execve(2)`.
    execve(path: *const c_char, arguments: Strings, environment: Strings) by EXECVE or fail,
        Program::At(AT_FDCWD, path), Some(environment);
    /// `execveat(2)`. With an empty path the descriptor is the program itself.
    execveat(
        directory: c_int, path: *const c_char, arguments: Strings, environment: Strings, flags: c_int
    ) by EXECVEAT or fail,
        Program::at_or_open(directory, path, flags), Some(environment);
    /// `fexecve(3)`.
    fexecve(fd: c_int, arguments: Strings, environment: Strings) by FEXECVE or fail,
        Program::Open(fd), Some(environment);
    /// `execv(3)`.
    execv(path: *const c_char, arguments: Strings) by EXECV or fail,
        Program::At(AT_FDCWD, path), None;
    /// `execvp(3)`.
    execvp(name: *const c_char, arguments: Strings) by EXECVP or fail,
        Program::Named(name), None;
    /// `execvpe(3)`.
    execvpe(name: *const c_char, arguments: Strings, environment: Strings) by EXECVPE or fail,
        Program::Named(name), Some(environment);
    /// `posix_spawn(3)`, which returns what others leave in `errno`.
    posix_spawn(
        pid: *mut pid_t, path: *const c_char, actions: *const c_void, attributes: *const c_void,
        arguments: Strings, environment: Strings
    ) by POSIX_SPAWN or Errno::raw_os_error,
        Program::At(AT_FDCWD, path), Some(environment);
    /// `posix_spawnp(3)`, which returns what others leave in `errno`.
    posix_spawnp(
        pid: *mut pid_t, name: *const c_char, actions: *const c_void, attributes: *const c_void,
        arguments: Strings, environment: Strings
    ) by POSIX_SPAWNP or Errno::raw_os_error,
        Program::Named(name), Some(environment);
}
