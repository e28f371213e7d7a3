//! The functions that would have been called without us.

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::marker::PhantomData;
use core::mem;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use libc::{mmsghdr, msghdr, pid_t, size_t, sockaddr, socklen_t, ssize_t};

use crate::children::Strings;

/// `connect(2)` and no other: the type is what makes the look-up sound.
pub(crate) type Connect = unsafe extern "C" fn(c_int, *const sockaddr, socklen_t) -> c_int;
/// `getpeername(2)`.
pub(crate) type GetPeerName = unsafe extern "C" fn(c_int, *mut sockaddr, *mut socklen_t) -> c_int;
/// `sendto(2)`.
pub(crate) type SendTo = unsafe extern "C" fn(
    c_int,
    *const c_void,
    size_t,
    c_int,
    *const sockaddr,
    socklen_t,
) -> ssize_t;
/// `sendmsg(2)`.
pub(crate) type SendMsg = unsafe extern "C" fn(c_int, *const msghdr, c_int) -> ssize_t;

/// `sendmmsg(2)`.
pub(crate) type SendMMsg = unsafe extern "C" fn(c_int, *mut mmsghdr, c_uint, c_int) -> c_int;
/// `getsockopt(2)`.
pub(crate) type GetSockOpt =
    unsafe extern "C" fn(c_int, c_int, c_int, *mut c_void, *mut socklen_t) -> c_int;
/// `execve(2)`.
pub(crate) type ExecVe = unsafe extern "C" fn(*const c_char, Strings, Strings) -> c_int;
/// `execveat(2)`.
pub(crate) type ExecVeAt =
    unsafe extern "C" fn(c_int, *const c_char, Strings, Strings, c_int) -> c_int;
/// `fexecve(3)`.
pub(crate) type FExecVe = unsafe extern "C" fn(c_int, Strings, Strings) -> c_int;
/// `execv(3)` and `execvp(3)`.
pub(crate) type ExecV = unsafe extern "C" fn(*const c_char, Strings) -> c_int;
/// `posix_spawn(3)` and `posix_spawnp(3)`; what is to be done before and how is only handed on.
pub(crate) type PosixSpawn = unsafe extern "C" fn(
    *mut pid_t,
    *const c_char,
    *const c_void,
    *const c_void,
    Strings,
    Strings,
) -> c_int;

/// Declares the functions behind ours, and how all of them are looked up.
macro_rules! next {
    ($($name:ident: $type:ty = $c:literal,)*) => {
        $(
            #[doc = concat!("The next ", stringify!($name), " in the loader's search order.")]
            pub(crate) static $name: Next<$type> =
                // SAFETY: the type is that of the function of this name.
                unsafe { Next::named($c) };
        )*

        /// Looks all of them up, so that a later call from a signal handler need not.
        pub(crate) fn resolve_all() {
            $($name.get();)*
        }

        #[cfg(test)]
        const ALL: &[(&CStr, fn() -> bool)] = &[$(($c, || $name.get().is_some()),)*];
    };
}

next! {
    CONNECT: Connect = c"connect",
    GETPEERNAME: GetPeerName = c"getpeername",
    GETSOCKOPT: GetSockOpt = c"getsockopt",
    SENDTO: SendTo = c"sendto",
    SENDMSG: SendMsg = c"sendmsg",
    SENDMMSG: SendMMsg = c"sendmmsg",
    EXECVE: ExecVe = c"execve",
    EXECVEAT: ExecVeAt = c"execveat",
    FEXECVE: FExecVe = c"fexecve",
    EXECV: ExecV = c"execv",
    EXECVP: ExecV = c"execvp",
    EXECVPE: ExecVe = c"execvpe",
    POSIX_SPAWN: PosixSpawn = c"posix_spawn",
    POSIX_SPAWNP: PosixSpawn = c"posix_spawnp",
}

/// A function looked up once behind ours, and remembered.
pub(crate) struct Next<F> {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
    function: PhantomData<F>,
}

impl<F: Copy> Next<F> {
    /// # Safety
    /// `F` is a function pointer, of the type of the C function `name`.
    const unsafe fn named(name: &'static CStr) -> Self {
        Next { name, found: AtomicPtr::new(ptr::null_mut()), function: PhantomData }
    }

    /// The function, or `None` where nobody behind us has one of that name.
    pub(crate) fn get(&self) -> Option<F> {
        let mut found = self.found.load(Ordering::Acquire);
        if found.is_null() {
            // SAFETY: `name` ends with NUL; RTLD_NEXT asks for the definition behind this library.
            found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
            self.found.store(found, Ordering::Release);
        }
        if found.is_null() {
            return None;
        }
        // SAFETY: by the promise given to `named`, `found` is the address of an `F`, and a function
        // pointer is as large as a data pointer wherever `dlsym` exists.
        Some(unsafe { mem::transmute_copy::<*mut c_void, F>(&found) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_c_library_has_all_of_them() {
        resolve_all();
        for (name, found) in ALL {
            assert!(found(), "{name:?}");
        }
    }

    #[test]
    fn an_unknown_name_is_none() {
        // SAFETY: never called.
        let next: Next<Connect> = unsafe { Next::named(c"no_such_function_of_lasthop") };
        assert!(next.get().is_none());
    }
}
