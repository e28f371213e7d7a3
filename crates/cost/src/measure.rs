//! A whole measurement.

use std::thread;

use lasthop_study::reproduce::processing::{BulkCost, EngineCost, Machine, Missing, Processing};

use crate::clock::{self, Whose};
use crate::engine::{Engine, MobileTcp, Tcp};
use crate::meter::{self, Entry};
use crate::options::Options;
use crate::ratios::{self, Facts};
use crate::{ethernet_rate, shares, stacks};

/// The packets of which the engines' cost is told.
const PACKETS: [u32; 3] = [1, 100, 1460];
/// What a bulk transfer writes at once.
const WRITES: [u32; 2] = [1460, 16 * 1024];
/// The stacks of which a bulk transfer is measured.
const BULK: [&str; 5] = ["tcp-ip", "tcp-ip-shared", "mobile-tcp", "kernel-loopback", "kernel-veth"];

/// Measures everything that can be measured here; `say` hears how far it is. What cannot is named in
/// [`Processing::not_measured`].
pub fn measure(options: &Options, say: &mut (dyn FnMut(&str) + Send)) -> Processing {
    // A thread of its own, so that nobody else is kept on one core.
    thread::scope(|scope| {
        let worker = scope.spawn(move || on_this_thread(options, say));
        worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn on_this_thread(options: &Options, say: &mut dyn FnMut(&str)) -> Processing {
    let mut entries = stacks::ours();
    let mut not_measured = Vec::new();
    say("opening connections");
    stacks::mobile(&mut entries, &mut not_measured);
    // The echoing thread starts before this one is kept on its core.
    stacks::kernels(options, &mut entries, &mut not_measured);
    let machine = machine(cores(), clock::pin());
    meter::run(&mut entries, options, say);
    let mut costs = Vec::new();
    for entry in &entries {
        match entry.cost() {
            Ok(cost) => costs.push(cost),
            Err(missing) => not_measured.push(missing),
        }
    }
    say("shares, engines and bulk transfers");
    let shares = shares::shares(&entries, options);
    let throughput = ethernet_rate::throughput(&costs);
    let facts = Facts { stacks: &costs, shares: &shares, throughput: &throughput };
    let ratios = ratios::ratios(&facts);
    Processing {
        machine,
        effort: options.name.into(),
        engine: engines(options, &mut not_measured),
        bulk: bulk(options, &mut entries),
        not_measured,
        shares,
        throughput,
        ratios,
        stacks: costs,
    }
}

/// Cores that this thread may use, before it is kept on one.
fn cores() -> u32 {
    thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(u32::MAX))
}

fn machine(cores: u32, pinned: bool) -> Machine {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split(':').nth(1));
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    Machine {
        cpu: model.unwrap_or("unknown").trim().into(),
        cores,
        kernel: release,
        optimised: !cfg!(debug_assertions),
        pinned,
    }
}

fn engines(options: &Options, not_measured: &mut Vec<Missing>) -> Vec<EngineCost> {
    let mut all = Vec::new();
    for size in PACKETS {
        let mut add = |name: &str, engine: Option<&mut dyn Engine>| match engine
            .and_then(|engine| engine_cost(options, name, engine, size))
        {
            Some(cost) => all.push(cost),
            None => not_measured.push(Missing {
                stack: format!("{name} engine"),
                why: "a packet did not arrive".into(),
            }),
        };
        add("mobile-tcp", Some(&mut MobileTcp::new()));
        add("tcp", Tcp::new().as_mut().map(|tcp| tcp as &mut dyn Engine));
    }
    all
}

fn engine_cost(
    options: &Options,
    name: &str,
    engine: &mut dyn Engine,
    size: u32,
) -> Option<EngineCost> {
    let mut packets = |times: u32| (0..times).all(|_| engine.packet(size as usize));
    let took = meter::repeat(options, Whose::Thread, &mut packets)?;
    let allocations = options.allocations.map(|count| {
        const MANY: u32 = 10_000;
        let before = count();
        packets(MANY);
        (count() - before) as f64 / f64::from(MANY)
    });
    Some(EngineCost {
        engine: name.into(),
        size,
        ns_per_packet: took.wall,
        lo_ns: took.lo,
        hi_ns: took.hi,
        allocations_per_packet: allocations,
    })
}

fn bulk(options: &Options, entries: &mut [Entry]) -> Vec<BulkCost> {
    let mut all = Vec::new();
    for entry in entries.iter_mut().filter(|e| BULK.contains(&e.stack)) {
        for write in WRITES {
            let buffer = vec![0x5a; write as usize];
            let work = |times| entry.subject.bulk(&buffer, times).is_ok();
            if let Some(took) = meter::repeat(options, Whose::Thread, work) {
                all.push(BulkCost {
                    stack: entry.stack.into(),
                    write,
                    cpu_ns_per_kb: took.cpu * 1000.0 / f64::from(write),
                });
            }
        }
    }
    all
}
