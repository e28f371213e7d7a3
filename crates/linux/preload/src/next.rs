//! The functions that would have been called without us.

use core::ffi::{CStr, c_int, c_void};
use core::marker::PhantomData;
use core::mem;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use libc::{msghdr, size_t, sockaddr, socklen_t, ssize_t};

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

/// The next `connect` in the loader's search order.
pub(crate) static CONNECT: Next<Connect> =
    // SAFETY: the type is that of the function of this name.
    unsafe { Next::named(c"connect") };
/// The next `getpeername`.
pub(crate) static GETPEERNAME: Next<GetPeerName> =
    // SAFETY: as above.
    unsafe { Next::named(c"getpeername") };
/// The next `sendto`.
pub(crate) static SENDTO: Next<SendTo> =
    // SAFETY: as above.
    unsafe { Next::named(c"sendto") };
/// The next `sendmsg`.
pub(crate) static SENDMSG: Next<SendMsg> =
    // SAFETY: as above.
    unsafe { Next::named(c"sendmsg") };

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

/// Looks all of them up, so that a later call from a signal handler need not.
pub(crate) fn resolve_all() {
    CONNECT.get();
    GETPEERNAME.get();
    SENDTO.get();
    SENDMSG.get();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_c_library_has_all_four() {
        resolve_all();
        assert!(CONNECT.get().is_some() && GETPEERNAME.get().is_some());
        assert!(SENDTO.get().is_some() && SENDMSG.get().is_some());
    }

    #[test]
    fn an_unknown_name_is_none() {
        // SAFETY: never called.
        let next: Next<Connect> = unsafe { Next::named(c"no_such_function_of_lasthop") };
        assert!(next.get().is_none());
    }
}
