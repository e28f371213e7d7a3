//! A packet of Mobile TCP allocates nothing: counted over a bulk transfer between two ends, once
//! every buffer is there, without losses and with them.

#![allow(unsafe_code, reason = "an allocator is unsafe by nature")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use lasthop_hop::mobile_tcp::{Config, MobileTcp};
use lasthop_hop::{Role, StreamEvent, StreamId, Streams, Transport};
use lasthop_units::{Duration, Time};

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

/// Packets before counting: every loss pattern has been seen.
const WARM: u64 = 20_000;
const COUNTED: u64 = 50_000;

/// A mobile and a base, one transfer up, and a hop that loses every `lossy`-th packet.
struct Transfer {
    mobile: MobileTcp,
    base: MobileTcp,
    id: StreamId,
    now: Time,
    sent: u64,
    lossy: u64,
}

impl Transfer {
    fn new(lossy: u64) -> Self {
        let config = Config::default();
        let limits = MobileTcp::limits(&config);
        let end = |role| {
            let mut end = MobileTcp::new(config.clone(), role, Time::ZERO);
            end.establish(Time::ZERO, &limits);
            end
        };
        let (mut mobile, base) = (end(Role::Mobile), end(Role::Base));
        let id = mobile.open().unwrap();
        Self { mobile, base, id, now: Time::ZERO, sent: 0, lossy }
    }

    /// Carries so many packets of the mobile's.
    fn carry(&mut self, packets: u64) {
        let (mut out, end) = ([0; 1600], self.sent + packets);
        while self.sent < end {
            while let Ok(room) = self.mobile.send_space(self.id)
                && !room.is_empty()
            {
                room.fill(7);
                let n = room.len();
                self.mobile.commit(self.id, n);
            }
            while let Some(len) = self.mobile.poll(self.now, &mut out) {
                self.sent += 1;
                if !self.sent.is_multiple_of(self.lossy) {
                    self.base.handle(self.now, &out[..len]).unwrap();
                }
                self.read();
                self.answer();
            }
            self.now += Duration::from_millis(1);
            self.mobile.handle_timeout(self.now);
            self.base.handle_timeout(self.now);
            self.answer();
        }
    }

    fn read(&mut self) {
        while let Some(event) = self.base.poll_event() {
            if let StreamEvent::Incoming(id) = event {
                assert_eq!(id, self.id);
            }
        }
        let n = self.base.received(self.id).len();
        self.base.consume(self.id, n);
    }

    fn answer(&mut self) {
        let mut out = [0; 100];
        while let Some(len) = self.base.poll(self.now, &mut out) {
            self.mobile.handle(self.now, &out[..len]).unwrap();
            while self.mobile.poll_event().is_some() {}
        }
    }
}

#[test]
fn a_bulk_transfer_allocates_nothing() {
    for lossy in [u64::MAX, 7] {
        let mut transfer = Transfer::new(lossy);
        transfer.carry(WARM);
        let before = COUNT.load(Ordering::Relaxed);
        transfer.carry(COUNTED);
        assert_eq!(COUNT.load(Ordering::Relaxed) - before, 0, "losing every {lossy}th packet");
        assert!(transfer.base.own_stats().bytes_received > COUNTED * 1000);
    }
}
