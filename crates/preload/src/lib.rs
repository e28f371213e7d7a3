//! The interposed `connect` of `lasthop exec`.
//!
//! The dynamic loader puts this library before the C library (`LD_PRELOAD`), so that a program's
//! `connect` arrives here first. A TCP connection towards another host is opened to the mobile's
//! SOCKS5 listener on the very same descriptor, the connection is requested from the mobile for the address that the
//! program wanted (RFC 1928), and the program learns what came of it: a return value and an
//! `errno`, as from the kernel. Everything else passes untouched to the function that would have
//! been called without us.
//!
//! We are a guest in somebody else's process, possibly between `fork` and `exec` or inside a
//! signal handler, both of which POSIX allows for `connect`. So nothing here allocates, takes a
//! lock that a second thread could hold for longer than the reading of the environment, or changes
//! a descriptor's flags; our own system calls are made directly, not through functions that others
//! interpose; and `errno` changes only where a failure is reported.
//!
//! What this cannot be: a non-blocking `connect` that returns at once. The reply of the far end is
//! waited for inside the call, for a bounded time. What comes after that call is as from the kernel.
//!
//! Programs into which the loader does not load us are reported by the one that starts them: the `exec`
//! functions arrive here too.

// Interposing C functions means speaking C; each block says why it is sound.
#![allow(unsafe_code)]
// In a test program the exports are left out: they would come before its own C library's.
#![cfg_attr(test, allow(dead_code))]

mod address;
mod children;
mod config;
#[cfg(not(test))]
mod exec;
#[cfg(not(test))]
mod exports;
mod failures;
mod next;
mod peers;
mod route;
mod socks;
mod stderr;
mod tunnel;
