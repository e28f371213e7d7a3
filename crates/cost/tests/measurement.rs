//! The engines allocate nothing per packet, and a whole measurement has the form that it says.

#![allow(unsafe_code, reason = "an allocator is unsafe by nature")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use lasthop_cost::{Measured, Options, measure};

struct Counting;

thread_local! {
    /// Of this thread alone: the measuring one allocates nothing for others.
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

fn add() {
    // A thread that is ending has no counter any more.
    let _ = COUNT.try_with(|count| count.set(count.get() + 1));
}

fn count() -> u64 {
    COUNT.with(Cell::get)
}

// SAFETY: every call is the system allocator's own; counting touches no memory of the caller.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add();
        // SAFETY: the caller keeps `alloc`'s contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: `ptr` is `System`'s, and the caller keeps `dealloc`'s contract.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        add();
        // SAFETY: `ptr` is `System`'s, and the caller keeps `realloc`'s contract.
        unsafe { System.realloc(ptr, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn measured() -> Measured {
    let mut options = Options::tiny();
    options.allocations = Some(count);
    options.namespaces = false;
    measure(&options, &mut |_| ())
}

/// The engines alone, Mobile TCP's and TCP's, allocate nothing for a packet sent, received and
/// acknowledged.
#[test]
fn the_engines_allocate_nothing_per_packet() {
    let measured = measured();
    assert_eq!(measured.engine.len(), 6);
    for engine in &measured.engine {
        assert_eq!(
            engine.allocations_per_packet,
            Some(0.0),
            "{} with packets of {} bytes",
            engine.engine,
            engine.size
        );
    }
}

/// MOB-46, MOB-47: protocol alone, with the standard and with the light socket layer are measured
/// apart, and the light layer's share is told with its copy and without.
#[test]
fn every_stack_is_measured_and_every_share_told() {
    let measured = measured();
    let stacks: Vec<&str> = measured.stacks.iter().map(|s| s.stack.as_str()).collect();
    for wanted in [
        "tcp-ip",
        "tcp-ip-shared",
        "tcp-ip-light",
        "tcp-ip-protocol",
        "tcp-protocol",
        "mobile-tcp",
        "mobile-tcp-24",
        "mobile-tcp-standard",
        "mobile-tcp-protocol",
        "kernel-loopback",
    ] {
        assert!(stacks.contains(&wanted), "{wanted} is missing from {stacks:?}");
    }
    for missing in ["kernel-veth", "mobile-tcp-ethernet"] {
        assert!(measured.not_measured.iter().any(|m| m.stack == missing), "{missing}");
    }
    for size in [100, 1460] {
        for stack in ["tcp-ip", "mobile-tcp"] {
            let shares = measured.shares.iter().filter(|s| s.stack == stack && s.size == size);
            let whole: f64 = shares.map(|s| s.percent).sum();
            // The parts are what is left after the others: they make up the whole.
            assert!((whole - 100.0).abs() < 1e-6, "{stack}, {size} bytes: {whole} %");
        }
    }
    for id in [
        "mobile-tcp-2001.figure10.gain_100",
        "mobile-tcp-2001.figure10.mtcp24_difference",
        "mobile-tcp-2001.figure11.cpu_ratio",
        "mobile-tcp-2001.figure12.tcp_excess",
        "mobile-tcp-2001.figure13.intercept_ratio",
        "mobile-tcp-2001.figure13.slope_ratio",
        "mobile-tcp-2001.figure14.ip_share",
        "mobile-tcp-2001.figure14.socket_layer_share",
    ] {
        assert!(measured.ratios.iter().any(|r| r.id == id), "{id} is missing");
    }
}

#[test]
fn a_measurement_is_json_with_the_names_of_its_fields() {
    let json = serde_json::to_value(measured()).unwrap();
    assert_eq!(json["effort"], "tiny");
    let stack = &json["stacks"][0];
    assert_eq!(stack["stack"], "tcp-ip");
    assert_eq!(stack["points"].as_array().unwrap().len(), 8);
    assert_eq!(stack["points"][7]["size"], 1460);
    assert!(stack["latency"]["slope_ns_per_byte"]["hi"].is_f64());
    assert_eq!(json["throughput"].as_array().unwrap().len(), 3 * 8 * 3);
    assert!(json["machine"]["kernel"].is_string());
}
