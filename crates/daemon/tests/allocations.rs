//! The hot path allocates nothing per packet: counted over a bulk transfer, base and mobile in this
//! process, sealed.

#![allow(unsafe_code, reason = "an allocator is unsafe by nature")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

#[allow(dead_code, reason = "the harness serves the relay's tests too")]
#[path = "relay/harness.rs"]
mod harness;

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{Read, Write};
use std::sync::atomic::{AtomicU64, Ordering};

use lasthop_daemon::config::HopKind;

use crate::harness::{Pair, serve_once};

/// Enough for every buffer to have grown.
const WARM: usize = 64 << 20;
const MEASURED: usize = 64 << 20;
/// The payload of a full datagram at most.
const PACKET: usize = 1472;

struct Counting;

static COUNT: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call is the system allocator's own; counting touches no memory of the caller.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps `alloc`'s contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: `ptr` is `System`'s, and the caller keeps `dealloc`'s contract.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::Relaxed);
        // SAFETY: `ptr` is `System`'s, and the caller keeps `realloc`'s contract.
        unsafe { System.realloc(ptr, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_bulk_transfer_allocates_less_than_once_in_a_hundred_packets() {
    let pair = Pair::sealed(HopKind::Srp);
    let server = serve_once(|mut stream| {
        let chunk = [7; 64 << 10];
        while stream.write_all(&chunk).is_ok() {}
    });
    let mut stream = pair.connect_patiently(server);
    let mut buffer = vec![0; 256 << 10];
    let mut take = |bytes: usize| {
        let mut left = bytes;
        while left > 0 {
            let n = stream.read(&mut buffer).unwrap();
            assert!(n > 0, "the transfer ended");
            left = left.saturating_sub(n);
        }
    };
    take(WARM);
    let before = COUNT.load(Ordering::Relaxed);
    take(MEASURED);
    let count = COUNT.load(Ordering::Relaxed) - before;
    let packets = (MEASURED / PACKET) as u64;
    assert!(count * 100 < packets, "{count} allocations for {packets} packets");
}
