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
