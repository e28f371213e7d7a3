//! A mobile with several links to its base.

use super::*;

/// A download to a phone that has a dish and a modem.
const TWO: &str = r#"
scheme = "bond"
duration = "25s"
[node]
server = "fixed-host"
base = "base"
phone = { kind = "mobile-host" }
[link.wire]
between = ["server", "base"]
rate = "1Gbit/s"
delay = "5ms"
queue = "5000 packets"
[link.dish]
between = ["base", "phone"]
rate = "10Mbit/s"
delay = "150ms"
queue = "100 packets"
[link.modem]
between = ["phone", "base"]
rate = "20Mbit/s"
delay = "20ms"
queue = "100 packets"
loss = "2%"
[flow.it]
from = "server"
to = "phone"
[agent]
buffer = "16MiB"
[measure]
from = "10s"
"#;

/// The same with this scheme over the links of these names.
fn by(scheme: &str, links: &str) -> String {
    let text = TWO.replace("\"bond\"", &format!("\"{scheme}\""));
    text.replace("kind = \"mobile-host\"", &format!("kind = \"mobile-host\", links = [{links}]"))
}

/// SRP-38, SRP-39: together two links carry nearly what each of them could, in either direction, and so does each by
/// itself.
#[test]
fn links_carry_together_what_each_could() {
    let up = TWO.replace("from = \"server\"\nto = \"phone\"", "from = \"phone\"\nto = \"server\"");
    for text in [TWO, &up] {
        for seed in 1..4 {
            let outcome = run(text, seed);
            let share = metric(&outcome, "it.share_of_limit");
            assert!((0.94..1.02).contains(&share), "seed {seed}: {share}");
        }
    }
    for (link, other) in [("dish", "modem"), ("modem", "dish")] {
        let outcome = run(&by("srp", &format!("\"{link}\"")), 1);
        let share = metric(&outcome, "it.share_of_limit");
        assert!((0.95..1.02).contains(&share), "{link}: {share}");
        assert_eq!(metric(&outcome, &format!("{other}.forward.packets")), 0.0, "{link}");
    }
}

/// What a link does follows from the seed and its name, whoever uses it beside or instead.
#[test]
fn a_bond_of_one_link_is_srp_over_it() {
    for link in ["\"dish\"", "\"modem\""] {
        assert_eq!(run(&by("bond", link), 3), run(&by("srp", link), 3), "{link}");
    }
}

/// SRP-43: by two links that lose a twentieth each, what is redundant is 99 times of 100 as soon there as by one that loses
/// nothing, and what is sent once is lost where both lose it. A download has all but what goes twice.
#[test]
fn what_is_redundant_is_late_or_lost_only_where_both_links_lose_it() {
    let lossy = |scheme: &str, flows: &str| {
        let link = |name: &str| {
            format!(
                "[link.{name}]\nbetween = [\"base\", \"phone\"]\nrate = \"20Mbit/s\"\ndelay = \"20ms\"\n\
                 queue = \"100 packets\"\nloss = \"5%\"\n"
            )
        };
        let head = TWO.split("[link.dish]").next().expect("a head");
        let head = head.replace("\"bond\"", &format!("\"{scheme}\"")).replace("25s", "110s");
        let [modem, dish] = ["modem", "dish"].map(link);
        run(&format!("{head}{modem}{dish}{flows}[measure]\nfrom = \"5s\"\n"), 1)
    };
    let sparse = r#"
[flow.keys]
from = "phone"
to = "server"
traffic = { interactive = { every = "100ms" } }
[flow.call]
from = "server"
to = "phone"
traffic = "voice"
[flow.position]
from = "server"
to = "phone"
traffic = { udp = { rate = "320kbit/s", size = "100 B" } }
once = true
"#;
    let [once, twice] = ["bond", "bond-redundant"].map(|scheme| lossy(scheme, sparse));
    let lost = |outcome| metric(outcome, "position.residual_loss");
    assert!((0.045..0.055).contains(&lost(&once)), "{}", lost(&once));
    assert!((0.0018..0.0033).contains(&lost(&twice)), "{}", lost(&twice));
    // Twice 5 ms of wire and 20 ms of radio, and what segments of all flows wait for each other.
    let keys = metric(&twice, "keys.latency_p99_s");
    assert!(keys < 0.052, "{keys}");
    let call = metric(&twice, "call.added_p99_s");
    assert!(call < 0.001 && metric(&twice, "call.residual_loss") == 0.0, "{call}");

    let bulk = "[flow.it]\nfrom = \"server\"\nto = \"phone\"\n[agent]\nbuffer = \"16MiB\"\n";
    let share = metric(&lossy("bond-redundant", bulk), "it.share_of_limit");
    assert!(share > 0.85, "{share}");
}

/// LNK-12, SRP-40: a link that is away for a while takes nothing along: the other one goes on.
#[test]
fn a_link_may_be_away() {
    let away = |cell: &str| {
        format!("{TWO}[handoff]\ncells = [\"{cell}\"]\nfirst = \"12s\"\npause = \"10s\"\n")
    };
    for (cell, left) in [("dish", 17e6), ("modem", 9e6)] {
        let outcome = run(&away(cell), 1);
        let goodput = metric(&outcome, "it.goodput_bps");
        assert!(goodput > left, "without {cell}: {goodput}");
    }
}

/// As many as an association may have.
#[test]
fn eight_links_are_used_and_nine_refused() {
    let link = |n: usize| {
        let delay = 10 * n;
        format!(
            "[link.l{n}]\nbetween = [\"base\", \"phone\"]\nrate = \"2Mbit/s\"\ndelay = \"{delay}ms\"\n"
        )
    };
    let with = |count: usize| TWO.to_owned() + &(3..=count).map(link).collect::<String>();
    let outcome = run(&with(8), 1);
    let share = metric(&outcome, "it.share_of_limit");
    assert!(share > 0.9, "{share}");
    assert!(metric(&outcome, "l8.forward.packets") > 100.0);
    assert!(refusal(&with(9)).contains("node.phone.links: uses 9 links, more than the 8"));
}

/// The claims of RFC 6356, of Lim et al. 2017 and of Ferlin et al. 2016, between two hosts over the links of one: on
/// equal links schedulers are alike and have both; on unlike ones, where memory is short, those that wait for the faster
/// link have more than the one that does not.
#[test]
fn multipath_schedulers_are_as_their_papers_have_them() {
    let schemes = ["mptcp-minrtt", "mptcp-ecf", "mptcp-blest"];
    let goodputs = |rates: [&str; 2], delays: [&str; 2], buffer: &str| {
        let text = format!(
            r#"
scheme = "SCHEME"
duration = "40s"
[node]
server = "fixed-host"
base = "base"
phone = {{ kind = "mobile-host" }}
[link.wire]
between = ["server", "base"]
rate = "100Mbit/s"
delay = "1ms"
[link.modem]
between = ["base", "phone"]
rate = "{}"
delay = "{}"
queue = "20 packets"
[link.dish]
between = ["base", "phone"]
rate = "{}"
delay = "{}"
queue = "20 packets"
[flow.it]
from = "server"
to = "phone"
[tcp]
receive-buffer = "{buffer}"
send-buffer = "{buffer}"
[measure]
from = "5s"
"#,
            rates[0], delays[0], rates[1], delays[1]
        );
        schemes.map(|scheme| {
            let outcome = run(&text.replace("SCHEME", scheme), 1);
            metric(&outcome, "it.goodput_bps") / 1e6
        })
    };
    let alike = goodputs(["5Mbit/s"; 2], ["20ms"; 2], "256KiB");
    assert!(alike.iter().all(|mbps| (8.5..10.0).contains(mbps)), "{alike:?}");
    let [min_rtt, ecf, blest] = goodputs(["10Mbit/s", "1Mbit/s"], ["10ms", "100ms"], "96KiB");
    assert!(ecf > 1.3 * min_rtt && blest > 1.3 * min_rtt, "{min_rtt} {ecf} {blest}");
    let [min_rtt, ecf, blest] = goodputs(["10Mbit/s", "1Mbit/s"], ["10ms", "100ms"], "4MiB");
    assert!([min_rtt, ecf, blest].iter().all(|mbps| *mbps > 9.7), "{min_rtt} {ecf} {blest}");
}

/// A file arrives whole by several links, either way, and the connection ends.
#[test]
fn multipath_files_arrive() {
    for scheme in ["mptcp-minrtt", "mptcp-ecf", "mptcp-blest"] {
        for (from, to) in [("server", "phone"), ("phone", "server")] {
            let text = by(scheme, "\"modem\", \"dish\"")
                .replace("duration = \"25s\"", "give-up = \"300s\"")
                .replace("from = \"server\"\nto = \"phone\"", &format!("from = \"{from}\"\nto = \"{to}\"\ntraffic = {{ file = {{ size = \"20MB\" }} }}"))
                .replace("from = \"10s\"", "from = \"0s\"");
            let outcome = run(&text, 1);
            assert!(outcome.completed, "{scheme} to {to}");
            assert_eq!(metric(&outcome, "it.received_bytes"), 20e6, "{scheme} to {to}");
            let both = ["dish", "modem"].map(|link| {
                metric(&outcome, &format!("{link}.forward.bytes"))
                    + metric(&outcome, &format!("{link}.backward.bytes"))
            });
            assert!(both.iter().all(|bytes| *bytes > 1e6), "{scheme} to {to}: {both:?}");
        }
    }
}

/// What a scheme cannot do beside others is told.
#[test]
fn multipath_is_a_mobiles_own() {
    let other =
        "[flow.besides]\nfrom = \"server\"\nto = \"phone\"\nscheme = \"mptcp-ecf\"\n[agent]";
    let text = by("mptcp-minrtt", "\"modem\"").replace("[agent]", other);
    assert!(refusal(&text).contains("is for all connections of `phone`"), "{}", refusal(&text));
    let text =
        by("mptcp-ecf", "\"modem\", \"dish\"").replace("[measure]", "[measure]\nbytes = true");
    assert!(refusal(&text).contains("carries lengths and no bytes"), "{}", refusal(&text));
}
