//! The engines allocate nothing per packet, and a whole measurement has the form that it says.

#![allow(unsafe_code, reason = "an allocator is unsafe by nature")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use lasthop_cost::{Options, measure};
use lasthop_study::reproduce::processing::{Line, Processing, Share, StackCost, Throughput};

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

fn measured() -> Processing {
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
fn every_stack_is_measured_and_every_share_printed() {
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

fn stack<'a>(measured: &'a Processing, name: &str) -> &'a StackCost {
    measured.stacks.iter().find(|s| s.stack == name).unwrap()
}

fn ratio(measured: &Processing, id: &str) -> f64 {
    measured.ratios.iter().find(|r| r.id == id).unwrap().value
}

fn rate(measured: &Processing, stack: &str, size: u32, kind: &str) -> f64 {
    let is_it = |t: &&Throughput| t.stack == stack && t.size == size && t.kind == kind;
    measured.throughput.iter().find(is_it).unwrap().bits_per_s
}

fn near(a: f64, b: f64) {
    assert!((a - b).abs() <= 1e-9 * a.abs().max(b.abs()), "{a} instead of {b}");
}

/// EXP-H1, figure 10: every buffer is sent by every stack of it, also with 24 bytes more of header, and
/// the gain and what they cost are those of the rates that come of it.
#[test]
fn buffers_of_all_sizes_are_sent_with_24_bytes_more_and_without() {
    let measured = measured();
    for name in ["mobile-tcp", "mobile-tcp-24", "tcp-ip"] {
        let points = &stack(&measured, name).points;
        let sizes: Vec<u32> = points.iter().map(|p| p.size).collect();
        assert_eq!(sizes, [1, 100, 250, 500, 750, 1000, 1250, 1460], "{name}");
        for point in points {
            assert!(point.rounds > 0 && point.latency_lo_ns > 0.0, "{name}: {point:?}");
            let within = point.latency_lo_ns..=point.latency_hi_ns;
            assert!(within.contains(&point.latency_ns), "{name}: {point:?}");
            // Both applications have a buffer on its way at a time, one each way.
            let rate = rate(&measured, name, point.size, "measured");
            assert!(rate > 0.0, "{name}: {rate}");
        }
    }
    let computed = "computed-10M-paper-cpu";
    for size in [100, 1460] {
        let of = |name| rate(&measured, name, size, computed);
        let gain = ratio(&measured, &format!("mobile-tcp-2001.figure10.gain_{size}"));
        near(gain, 100.0 * (of("mobile-tcp") / of("tcp-ip") - 1.0));
        let cost = format!("mobile-tcp-2001.figure10.mtcp24_difference_{size}");
        near(ratio(&measured, &cost), 100.0 * (1.0 - of("mobile-tcp-24") / of("mobile-tcp")));
    }
}

/// EXP-H2, EXP-H3, MET-5, MET-6, figures 11 and 12: the processor's time is measured for each buffer, and what
/// is held against the paper follows from it.
#[test]
fn the_processors_time_is_measured_for_each_buffer() {
    let measured = measured();
    let (mobile, tcp) = (stack(&measured, "mobile-tcp"), stack(&measured, "tcp-ip"));
    let mut shares = Vec::new();
    for (mobile, tcp) in mobile.points.iter().zip(&tcp.points) {
        assert!(mobile.cpu_ns > 0.0 && tcp.cpu_ns > 0.0, "{mobile:?} {tcp:?}");
        near(tcp.cpu_ns_per_kb, tcp.cpu_ns * 1000.0 / f64::from(tcp.size));
        if tcp.size >= 100 {
            shares.push(mobile.cpu_ns / tcp.cpu_ns);
        }
    }
    let mean = shares.iter().sum::<f64>() / shares.len() as f64;
    near(ratio(&measured, "mobile-tcp-2001.figure11.cpu_ratio"), mean);
    let (mobile, tcp) = (mobile.points[1].cpu_ns_per_kb, tcp.points[1].cpu_ns_per_kb);
    near(ratio(&measured, "mobile-tcp-2001.figure12.tcp_excess"), 100.0 * (tcp / mobile - 1.0));
}

/// EXP-H4, MET-4, figure 13: the latency is the straight line of least squares through the points, and the
/// quotients are those of two such lines.
#[test]
fn the_latency_is_a_line_through_the_points() {
    let measured = measured();
    for stack in &measured.stacks {
        let n = stack.points.len() as f64;
        let sum = |of: &dyn Fn(f64, f64) -> f64| -> f64 {
            stack.points.iter().map(|p| of(f64::from(p.size), p.latency_ns)).sum()
        };
        let (x, y) = (sum(&|x, _| x) / n, sum(&|_, y| y) / n);
        let slope = sum(&|size, ns| (size - x) * (ns - y)) / sum(&|size, _| (size - x).powi(2));
        let line = &stack.latency;
        let off = (line.slope_ns_per_byte.value - slope).abs();
        assert!(off <= 1e-6 * slope.abs().max(1e-3), "{}: {line:?}", stack.stack);
        let intercept = line.intercept_ns;
        assert!((intercept.value - (y - slope * x)).abs() <= 1e-6 * y, "{}", stack.stack);
        assert!(intercept.lo <= intercept.value && intercept.value <= intercept.hi);
    }
    let [mobile, tcp] = ["mobile-tcp", "tcp-ip"].map(|name| stack(&measured, name).latency);
    let quotient = |of: fn(&Line) -> f64| of(&mobile) / of(&tcp);
    near(
        ratio(&measured, "mobile-tcp-2001.figure13.intercept_ratio"),
        quotient(|line| line.intercept_ns.value),
    );
    near(
        ratio(&measured, "mobile-tcp-2001.figure13.slope_ratio"),
        quotient(|line| line.slope_ns_per_byte.value),
    );
}

/// EXP-H5, figure 14: each component has its share, and they make up the whole.
#[test]
fn the_shares_of_all_components_make_up_the_whole() {
    let measured = measured();
    for size in [100, 1460] {
        let share = |stack: &str, component: &str| {
            let is_it = |s: &&Share| s.stack == stack && s.size == size && s.component == component;
            measured.shares.iter().find(is_it).cloned()
        };
        for stack in ["tcp-ip", "mobile-tcp"] {
            let all = measured.shares.iter().filter(|s| s.stack == stack && s.size == size);
            let whole: f64 = all.map(|s| s.percent).sum();
            assert!((whole - 100.0).abs() < 1e-6, "{stack}, {size} bytes: {whole} %");
            assert!(share(stack, "transport").is_some(), "{stack}");
        }
        assert!(share("mobile-tcp", "ip").is_none(), "there is no IP on its data path");
        let ns = |component| share("tcp-ip", component).unwrap().ns;
        let whole: f64 = ["transport", "ip", "checksum", "copy"].map(ns).iter().sum();
        let suffix = if size == 1460 { ".1460" } else { "" };
        let told = ratio(&measured, &format!("mobile-tcp-2001.figure14.ip_share{suffix}"));
        near(told, 100.0 * ns("ip") / whole);
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
