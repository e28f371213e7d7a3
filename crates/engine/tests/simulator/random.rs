//! Files through random networks with every scheme: what arrives is what was sent, and nothing
//! hangs that does not hang without help.

use lasthop_testing::{Replay, schedules};
use lasthop_units::{Scheme, Stream, WorksAt};
use rayon::prelude::*;

use super::*;

/// Random scenarios of each scheme, unless others are asked for (`LASTHOP_SEED` and the like).
const RUNS: u64 = 1000;

fn one_of<'a>(stream: &mut Stream, all: &[&'a str]) -> &'a str {
    all[stream.below(all.len() as u64) as usize]
}

/// A network, a file through it, and what happens to both.
pub(super) fn scenario(scheme: Scheme, number: u64) -> String {
    let stream = &mut Seed::from_u64(number).stream(scheme.name());
    let two_hops = match scheme {
        Scheme::Obtcp => true,
        _ if scheme.ends_at_mobile() || scheme.traits().changes_fixed => false,
        _ if scheme.traits().place == WorksAt::Surrogate => false,
        _ => stream.chance(0.3),
    };
    let moves = stream.chance(0.6);
    let cells = if moves { 1 + stream.below(2) as usize } else { 1 };
    let mut text = "scheme = \"$\"\ngive-up = \"900s\"\n[node]\nserver = \"fixed-host\"\n\
                    backbone = \"router\"\nphone = \"mobile-host\"\n"
        .to_string();
    let near = if two_hops { "train" } else { "phone" };
    if two_hops {
        text += "train = \"mobile-router\"\n";
    }
    for cell in 0..cells {
        text += &format!("base-{cell} = \"base\"\n");
    }
    let wire = one_of(stream, &["1ms", "20ms", "100ms"]);
    text += &format!(
        "[link.wire]\nbetween = [\"server\", \"backbone\"]\nrate = \"10Mbit/s\"\ndelay = \"{wire}\"\n"
    );
    for cell in 0..cells {
        text += &format!(
            "[link.wire-{cell}]\nbetween = [\"backbone\", \"base-{cell}\"]\nrate = \"10Mbit/s\"\n\
             [link.cell-{cell}]\nbetween = [\"base-{cell}\", \"{near}\"]\n"
        );
        text += &radio(stream, scheme);
    }
    if two_hops {
        text += "[link.wlan]\nbetween = [\"train\", \"phone\"]\n";
        text += &radio(stream, scheme);
    }
    let (from, to) = if stream.chance(0.7) { ("server", "phone") } else { ("phone", "server") };
    let size = 1 + stream.below(60_000);
    text += &format!(
        "[flow.file]\nfrom = \"{from}\"\nto = \"{to}\"\ntraffic = {{ file = {{ size = \"{size}B\" }} }}\n"
    );
    let variant = one_of(stream, &["reno", "newreno", "sack", "cubic"]);
    let (sack, stamps) = (stream.chance(0.5), stream.chance(0.5));
    let stack = one_of(stream, &["modern", "ns2", "bsd-1990s"]);
    let window = 2 + stream.below(40);
    text += &format!(
        "[tcp]\nstack = \"{stack}\"\nvariant = \"{variant}\"\nsack = {}\ntimestamps = {stamps}\n\
         give-up-after = 0\nmax-window = {window}\n",
        sack || variant == "sack"
    );
    if moves {
        let names: Vec<String> = (0..cells).map(|cell| format!("\"cell-{cell}\"")).collect();
        let first = stream.below(1500);
        let pause = 1 + stream.below(3000);
        let every = pause + 500 + stream.below(3000);
        let registration = stream.below(400);
        text += &format!(
            "[handoff]\nmobile = \"{near}\"\ncells = [{}]\nfirst = \"{first}ms\"\n\
             pause = \"{pause}ms\"\nevery = \"{every}ms\"\ncount = {}\n\
             registration = \"{registration}ms\"\n",
            names.join(", "),
            1 + stream.below(6)
        );
        let lead = stream.below(300);
        let miss = stream.below(50);
        text += &format!(
            "[signals]\npredicted = {{ lead = \"{lead}ms\", miss = \"{miss}%\" }}\n\
             up = {{ miss = \"{miss}%\" }}\ndown = {{ miss = \"{miss}%\", delay = \"5ms\" }}\n\
             complete = {{ miss = \"{miss}%\" }}\n"
        );
    }
    text += "[measure]\nbytes = true\n";
    text
}

/// The settings of a hop. One that must keep its order does.
fn radio(stream: &mut Stream, scheme: Scheme) -> String {
    let rate = one_of(stream, &["64kbit/s", "500kbit/s", "2Mbit/s", "11Mbit/s"]);
    let delay = one_of(stream, &["1ms", "10ms", "60ms"]);
    let loss = match stream.below(5) {
        0 => "none".to_string(),
        1 | 2 => format!("{}%", stream.below(20)),
        3 => format!("burst {}% length {}", 1 + stream.below(15), 2 + stream.below(4)),
        _ => format!("fade {}% mean {}ms", 1 + stream.below(15), 10 + stream.below(100)),
    };
    let queue = 3 + stream.below(50);
    let side = one_of(stream, &["", "forward.", "backward."]);
    let mut text = format!(
        "rate = \"{rate}\"\ndelay = \"{delay}\"\nqueue = \"{queue} packets\"\n{side}loss = \"{loss}\"\n"
    );
    if stream.chance(0.2) && !scheme.needs_order() {
        text += &format!("reorder = \"{}% by 20ms\"\n", 1 + stream.below(5));
    }
    if stream.chance(0.2) {
        text += "duplicate = \"2%\"\n";
    }
    if side.is_empty() && stream.chance(0.3) {
        text += "half-duplex = true\n";
    }
    text
}

/// What is wrong with one run, if anything is.
fn fault(scheme: Scheme, number: u64) -> Option<String> {
    let text = scenario(scheme, number);
    let helped = run(&text.replace('$', scheme.name()), number);
    let differs = metric(&helped, "file.wrong") != 0.0;
    if helped.completed && !differs {
        return None;
    }
    // What is slow alone may be unlucky: it is given a hundred times as long.
    let longer = text.replace("\"900s\"", "\"90000s\"");
    let go = |scheme: Scheme| run(&longer.replace('$', scheme.name()), number).completed;
    if !differs && (go(scheme) || !go(Scheme::None)) {
        return None;
    }
    let what = if differs { "wrong bytes" } else { "hangs only with help" };
    let replay = Replay::new(number, "-p lasthop-study --lib random_networks").line();
    let text = text.replace('$', scheme.name());
    Some(format!("{scheme}, number {number}: {what}:\n{text}\nreplay: {replay}"))
}

/// Every scheme carries files byte by byte through losses, bursts, fades, disconnections, handoffs,
/// missed signals and reordering, over one hop or two, half-duplex or not, and none hangs that does not hang without it
/// (MHP, SPL, ITCP, SRP, MOB, ALT, SNP, OBB, OBM, MTC, DDA, CC, EBS, FRZ, LLT, ATS, ATR, 3DA, RWC).
#[test]
fn random_networks_get_files_through_byte_by_byte() {
    let all: Vec<(Scheme, u64)> =
        Scheme::ALL.into_iter().flat_map(|s| schedules(RUNS).map(move |n| (s, n))).collect();
    let faults: Vec<String> =
        all.into_par_iter().filter_map(|(scheme, number)| fault(scheme, number)).collect();
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}
