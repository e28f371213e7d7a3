//! Byte-exactness under random schedules of loss, pauses and handoffs. `LASTHOP_HANDOFFS` sets how
//! many over all transports, `LASTHOP_MOBILE_TCP` how many of Mobile TCP's own, `LASTHOP_FIRST` the
//! first one's number; with `LASTHOP_SEED` only that one runs. With `LASTHOP_KEEP_GOING` all failures
//! are printed, not only one.

use lasthop_hop::mobile_tcp;
use lasthop_radio::{Errors, Loss, QueueLimit};
use lasthop_sim::net::host::Ending;
use lasthop_sim::schemes::HopKind;
use lasthop_testing::{Replay, is_set, number, schedules};
use lasthop_units::{Bytes, Rate, Seed, Stream};
use lasthop_wire::tcp::Flags;
use rayon::prelude::*;

use crate::world::*;

/// With `LASTHOP_VERBOSE` the schedules are printed.
fn say(line: impl FnOnce() -> String) {
    if is_set("LASTHOP_VERBOSE") {
        println!("{}", line());
    }
}

fn lossy(p: f64) -> Vec<Loss> {
    vec![Loss::lose(Errors::Uniform(p))]
}

fn size(random: &mut Stream) -> u64 {
    match random.below(4) {
        0 => 0,
        1 => random.below(100),
        2 => random.below(5000),
        _ => random.below(60_000),
    }
}

/// One world: whether every promise was kept, and a connection cut. SRP's handshake may cross its
/// first datagrams where those are lost; the base then ends what came by the association that the
/// mobile has given up, with a reset and without a wrong byte. Where a tenth of all packets between
/// bases is lost a handoff may come to nothing.
fn run(seed: u64) -> Result<bool, String> {
    let mut random = Seed::from_u64(seed).stream("schedule");
    let all = schemes();
    let plan = Plan::new(all[random.below(all.len() as u64) as usize].clone());
    run_plan(seed, random, plan).map(|outcome| outcome.cut)
}

/// The same with SRP, and a second link of each mobile's to each base, which comes and goes by itself.
fn run_bond(seed: u64) -> Result<bool, String> {
    let mut random = Seed::from_u64(seed).stream("bond");
    let mut beside = link(Rate::from_kbps(50 + random.below(2000)), ms(1 + random.below(200)));
    beside.losses = faults(&mut random);
    let mut plan = Plan::new(srp_today());
    plan.beside = Some(beside);
    // A connection that a fixed host opens reaches the mobile in the last moment before it moves more often than by one link,
    // and is opened anew.
    run_plan(seed, random, plan).map(|outcome| outcome.lost)
}

/// What came of one world.
struct Outcome {
    /// A connection was cut.
    cut: bool,
    /// And was not opened anew, or did not come to its end.
    lost: bool,
}

fn run_plan(seed: u64, mut random: Stream, mut plan: Plan) -> Result<Outcome, String> {
    plan.seed = seed;
    plan.anchors = Seed::from_u64(seed).stream("mode").below(2) == 0;
    // A SYN of 1990 that is lost four times takes a minute and a half.
    plan.session.0.opening_timeout = ms(900_000);
    plan.session.1.opening_timeout = ms(900_000);
    plan.bases = 2 + random.below(3) as usize;
    plan.mobiles = 1 + random.below(2) as usize;
    plan.radio = link(Rate::from_kbps(50 + random.below(2000)), ms(1 + random.below(50)));
    plan.radio.mtu = 256;
    plan.radio.losses = lossy([0.0, 0.02, 0.1][random.below(3) as usize]);
    let campus = [0.0, 0.02, 0.1][random.below(3) as usize];
    plan.campus.losses = lossy(campus);
    plan.campus.delay = ms(1 + random.below(60));
    plan.wired.losses = lossy([0.0, 0.01, 0.05][random.below(3) as usize]);
    if random.below(2) == 0 {
        plan.wired_tcp = lasthop_tcp::Config::modern();
        plan.fixed_tcp = plan.wired_tcp;
    }
    let mode = if plan.anchors { "anchor" } else { "migrate" };
    say(|| {
        format!("{} mobiles, {} bases, {}, {mode}", plan.mobiles, plan.bases, plan.hop.scheme())
    });
    let mut world = plan.build();
    let fixed = world.watch_fixed();
    let nodes: Vec<_> = world.mobiles.iter().copied().chain([world.fixed]).collect();
    for n in 0..1 + random.below(4) {
        let client = random.below(nodes.len() as u64) as usize;
        let server = (client + 1 + random.below(nodes.len() as u64 - 1) as usize) % nodes.len();
        let mut deal = Deal::new(100 + n as u16, size(&mut random), size(&mut random));
        if random.below(3) == 0 {
            deal.reads_from = at(random.below(12_000));
        }
        let begins = at(random.below(6000));
        say(|| format!("{begins:?}: node {client} to node {server}: {deal:?}"));
        world.deal(begins, nodes[client], nodes[server], deal);
    }
    for n in 0..world.beside.len() {
        let mut now = random.below(3000);
        for _ in 0..random.below(8) {
            let pause = [10, 300, 1000, 5000][random.below(4) as usize];
            world.lose_beside(n, at(now), ms(pause));
            now += pause + 1 + random.below(4000);
        }
    }
    let storms = random.below(2) == 0;
    // Eight requests in a row may be lost.
    let harsh = campus > 0.05;
    for mobile in 0..plan.mobiles {
        let mut now = 200 + random.below(4000);
        let mut cell = mobile.min(plan.bases - 1);
        for _ in 0..random.below(6) {
            cell = (cell + 1 + random.below(plan.bases as u64 - 1) as usize) % plan.bases;
            let pause = [0, 10, 300, 1000, 3000][random.below(5) as usize];
            if random.below(2) == 0 {
                // Right, wrong, or too late.
                let to = [cell, random.below(plan.bases as u64) as usize][random.below(2) as usize];
                let lead = [0, 50, 400][random.below(3) as usize];
                say(|| format!("{lead} ms before that: mobile {mobile} expects base {to}"));
                world.warn(mobile, at(now.saturating_sub(lead)), ms(lead), to);
            }
            say(|| format!("{now} ms: mobile {mobile} to base {cell} in {pause} ms"));
            world.hand_over(mobile, at(now), ms(pause), cell);
            if storms {
                world.storm(&plan.campus, at(now + pause), ms(1500), lossy(0.5));
            }
            now += pause + [20, 100, 400, 2000, 6000][random.below(5) as usize];
        }
    }
    world.run_to_the_end(at(3_600_000));
    let broken = (0..plan.mobiles).find_map(|n| world.mobile(n).broken());
    if let Some(why) = broken.filter(|_| !harsh) {
        return Err(format!("a session broke: {why}"));
    }
    for (who, node) in nodes.iter().enumerate() {
        for conn in &world.peer(*node).conns {
            say(|| format!("node {who}: {conn:?}"));
        }
    }
    let reset = |conn: &Conn| matches!(conn.closed, Some((_, Ending::Reset)));
    let conns = || nodes.iter().flat_map(|node| &world.peer(*node).conns);
    let cut = broken.is_some() || (matches!(plan.hop, HopKind::Srp(_)) && conns().any(reset));
    for (who, node) in nodes.iter().enumerate() {
        for conn in &world.peer(*node).conns {
            conn.check().map_err(|e| format!("node {who}: {e}"))?;
            // One that a handoff cut short before the base knew of it comes once more.
            let repeated = world.peer(*node).conns.iter().filter(|c| c.deal.port == conn.deal.port);
            if !cut && !conn.is_whole() && repeated.count() == 1 {
                return Err(format!("node {who}: {conn:?}"));
            }
        }
    }
    // A fixed host whose last FIN was acknowledged in vain for the whole of TIME-WAIT finds nobody.
    let fixed_host = &world.peer(world.fixed).conns;
    let late = fixed_host.iter().filter(|conn| reset(conn) && conn.is_whole()).count();
    let resets = fixed.borrow().towards(FIXED, Flags::RST).saturating_sub(late);
    // One that is half-open is asked for anew, from another base's address.
    if resets > 0 && !cut && !plan.anchors {
        return Err(format!("the fixed host saw {resets} resets"));
    }
    let is_lost = |conn: &Conn| {
        let mut same = conns()
            .filter(|other| other.deal.port == conn.deal.port && other.opener == conn.opener);
        !same.any(Conn::is_whole)
    };
    Ok(Outcome { cut, lost: conns().any(is_lost) })
}

/// MHP-19, MHP-24, MOB-41..43: whatever is lost, wherever mobiles go and whatever was foreseen, every
/// byte comes once and in order, and no fixed host sees a reset.
#[test]
fn every_byte_survives_every_journey() {
    let count = number("LASTHOP_HANDOFFS").unwrap_or(400);
    let all = run_all(count, &ANCHORS_LOST, "every_byte_survives_every", run);
    let cut = all.iter().filter(|cut| **cut).count();
    assert!(cut * 50 <= all.len() + 49, "{cut} of {} runs had a connection cut", all.len());
}

/// MHP-19, SRP-38: the same with two links to each base, of which either may carry a connection, and both.
#[test]
fn every_byte_survives_journeys_with_several_links() {
    let count = number("LASTHOP_HANDOFFS").unwrap_or(300);
    let all = run_all(count, &[], "every_byte_survives_journeys_with", run_bond);
    let lost = all.iter().filter(|lost| **lost).count();
    assert!(lost * 50 <= all.len() + 49, "{lost} of {} runs lost a connection", all.len());
}

/// Schedules in which a wired half that had stayed behind was reset with bytes for its fixed host.
const ANCHORS_LOST: [u64; 4] = [1565, 1789, 4656, 11_409];

/// What came of so many schedules, and of some others. If any fails the first is told, or all of them.
fn run_all(
    count: u64,
    others: &[u64],
    test: &str,
    run: fn(u64) -> Result<bool, String>,
) -> Vec<bool> {
    let test = format!("-p lasthop-sim --test mhp {test}");
    let mut numbers: Vec<u64> = schedules(count).collect();
    if numbers.len() > 1 {
        numbers.extend(others);
    }
    let all: Vec<_> = numbers
        .into_par_iter()
        .map(|number| {
            let replay = Replay::new(number, &test);
            std::panic::catch_unwind(|| run(number))
                .unwrap_or_else(|_| Err("panicked".into()))
                .map_err(|e| format!("{number}: {e}\nreplay: {}", replay.line()))
        })
        .collect();
    let failures: Vec<&String> = all.iter().filter_map(|result| result.as_ref().err()).collect();
    let shown = if is_set("LASTHOP_KEEP_GOING") { usize::MAX } else { 1 };
    let told: Vec<&str> = failures.iter().take(shown).map(|told| told.as_str()).collect();
    assert!(failures.is_empty(), "{} schedules fail:\n{}", failures.len(), told.join("\n"));
    all.into_iter().flatten().collect()
}

/// What the radio does to frames: nothing, or losses one by one, in bursts and in fades, and damage.
/// It never changes their order.
fn faults(random: &mut Stream) -> Vec<Loss> {
    let p = [0.01, 0.05, 0.2][random.below(3) as usize];
    match random.below(5) {
        0 => Vec::new(),
        1 => lossy(p),
        2 => vec![Loss::lose(Errors::burst(p, 1.0 + 4.0 * random.uniform()))],
        3 => vec![Loss::lose(Errors::Fade { mean: ms(5 + random.below(300)), share: p })],
        _ => vec![Loss::corrupt(Errors::Uniform(p / 2.0)), Loss::lose(Errors::Uniform(p / 4.0))],
    }
}

/// Mobile TCP with windows, packets, buffers and timers of all sizes.
fn settings(random: &mut Stream) -> mobile_tcp::Config {
    mobile_tcp::Config {
        window: Bytes::new([100, 240, 3000, 16_384, 32_767][random.below(5) as usize]),
        send_buffer: Bytes::new([2048, 16_384, 65_536][random.below(3) as usize]),
        max_packet: Bytes::new([16, 100, 216][random.below(3) as usize]),
        tick: ms([20, 200, 500][random.below(3) as usize]),
        ack_every: 1 + random.below(4) as u32,
        inflight: (random.below(3) == 0).then(|| Bytes::new(500 + random.below(8000))),
        pad: Bytes::new([0, 24][random.below(2) as usize]),
        ..mobile_tcp::Config::default()
    }
}

/// One world with Mobile TCP in bare frames: whether everything came over. Bases forget all now and
/// then in a third of them; what they carried is then reset at best, and never mixed up.
fn run_mobile_tcp(number: u64) -> Result<bool, String> {
    let mut random = Seed::from_u64(number).stream("mobile-tcp");
    let mut plan = Plan::new(HopKind::MobileTcp(settings(&mut random)));
    plan.seed = number;
    plan.session.0.opening_timeout = ms(900_000);
    plan.session.1.opening_timeout = ms(900_000);
    plan.bases = 2 + random.below(2) as usize;
    plan.mobiles = 1 + random.below(2) as usize;
    plan.radio = link(Rate::from_kbps(100 + random.below(5000)), ms(random.below(60)));
    plan.radio.mtu = 256;
    plan.radio.losses = faults(&mut random);
    plan.radio.queue = QueueLimit::Packets([3, 20, 200][random.below(3) as usize]);
    plan.radio.duplicate = [0.0, 0.0, 0.05][random.below(3) as usize];
    plan.campus.delay = ms(1 + random.below(30));
    plan.wired_tcp = lasthop_tcp::Config::modern();
    plan.fixed_tcp = plan.wired_tcp;
    say(|| format!("{} mobiles, {} bases, {:?}", plan.mobiles, plan.bases, plan.hop));
    say(|| format!("{:?}", plan.radio));
    let mut world = plan.build();
    let nodes: Vec<_> = world.mobiles.iter().copied().chain([world.fixed]).collect();
    for n in 0..1 + random.below(4) {
        let client = random.below(nodes.len() as u64) as usize;
        let server = (client + 1 + random.below(nodes.len() as u64 - 1) as usize) % nodes.len();
        let mut deal = Deal::new(100 + n as u16, size(&mut random), size(&mut random));
        if random.below(4) == 0 {
            deal.reads_from = at(random.below(8000));
        }
        world.deal(at(random.below(5000)), nodes[client], nodes[server], deal);
    }
    let mut crashes: Vec<(u64, usize)> = Vec::new();
    if random.below(3) == 0 {
        for _ in 0..1 + random.below(3) {
            crashes.push((300 + random.below(8000), random.below(plan.bases as u64) as usize));
        }
    }
    crashes.sort_unstable();
    for mobile in 0..plan.mobiles {
        let mut now = 200 + random.below(3000);
        let mut cell = mobile.min(plan.bases - 1);
        for _ in 0..random.below(5) {
            cell = (cell + 1 + random.below(plan.bases as u64 - 1) as usize) % plan.bases;
            let pause = [0, 10, 300, 2000][random.below(4) as usize];
            world.hand_over(mobile, at(now), ms(pause), cell);
            now += pause + [20, 100, 400, 2000][random.below(4) as usize];
        }
    }
    for (when, base) in &crashes {
        world.run(at(*when));
        world.crash(&plan, *base);
    }
    let end = if crashes.is_empty() { at(3_600_000) } else { at(120_000) };
    world.run_to_the_end(end);
    // Where the radio loses much, a handoff may come to nothing.
    let broken = (0..plan.mobiles).any(|n| world.mobile(n).broken().is_some());
    let calm = crashes.is_empty() && !broken;
    for (who, node) in nodes.iter().enumerate() {
        for conn in &world.peer(*node).conns {
            say(|| format!("node {who}: {conn:?}"));
            conn.check().map_err(|e| format!("node {who}: {e}"))?;
            let repeated = world.peer(*node).conns.iter().filter(|c| c.deal.port == conn.deal.port);
            if calm && !conn.is_whole() && repeated.count() == 1 {
                return Err(format!("node {who}: {conn:?}"));
            }
        }
    }
    Ok(calm)
}

/// MOB-25, MOB-37, MOB-38: through losses, bursts, fades, damage, doubled frames, pauses, handoffs
/// and bases that forget everything: no byte is wrong, missing or doubled, and without such a base
/// every byte comes.
#[test]
fn mobile_tcp_carries_every_byte_through_every_schedule() {
    let count = number("LASTHOP_MOBILE_TCP").unwrap_or(1000);
    let all = run_all(count, &[], "mobile_tcp_carries", run_mobile_tcp);
    let whole = all.iter().filter(|whole| **whole).count();
    let count = all.len();
    assert!(whole * 5 >= count * 3 || count < 100, "{whole} of {count} came through whole");
}
