//! Byte-exactness under random schedules of loss, pauses and handoffs. `LASTHOP_HANDOFFS` sets how
//! many, `LASTHOP_FIRST` the first one's number.

use std::env;

use lasthop_radio::{Errors, Loss};
use lasthop_sim::net::host::Ending;
use lasthop_sim::schemes::HopKind;
use lasthop_units::{Rate, Seed, Stream};

use lasthop_wire::tcp::Flags;

use crate::world::*;

fn number(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text} is not a number")))
}

/// With `LASTHOP_VERBOSE` the schedules are printed.
fn say(line: impl FnOnce() -> String) {
    if env::var_os("LASTHOP_VERBOSE").is_some() {
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
    let mut plan = Plan::new(all[random.below(4) as usize].clone());
    plan.seed = seed;
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
    say(|| format!("{} mobiles, {} bases, {}", plan.mobiles, plan.bases, plan.hop.name()));
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
    let storms = random.below(2) == 0;
    // Eight requests in a row may be lost.
    let harsh = campus > 0.05;
    for mobile in 0..plan.mobiles {
        let mut now = 200 + random.below(4000);
        let mut cell = mobile.min(plan.bases - 1);
        for _ in 0..random.below(6) {
            cell = (cell + 1 + random.below(plan.bases as u64 - 1) as usize) % plan.bases;
            let pause = [0, 10, 300, 1000, 3000][random.below(5) as usize];
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
    let resets = fixed.borrow().towards(FIXED, Flags::RST);
    if resets > 0 && !cut {
        return Err(format!("the fixed host saw {resets} resets"));
    }
    Ok(cut)
}

/// MHP-19, MHP-24: whatever is lost and wherever mobiles go, every byte comes once and in order, and
/// no fixed host sees a reset.
#[test]
fn every_byte_survives_every_journey() {
    let first = number("LASTHOP_FIRST").unwrap_or(0);
    let count = number("LASTHOP_HANDOFFS").unwrap_or(400);
    let mut cut = 0;
    for seed in first..first + count {
        let once = run(seed);
        cut += u64::from(
            once.unwrap_or_else(|e| panic!("LASTHOP_FIRST={seed} LASTHOP_HANDOFFS=1: {e}")),
        );
    }
    assert!(cut * 50 <= count + 49, "{cut} of {count} runs had a connection cut");
}
