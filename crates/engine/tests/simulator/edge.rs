//! Schemes at the mobile's edge instead of in its TCP.

use super::*;

/// Nine disconnections of two seconds, told a quarter of a second ahead.
const GAPS: &str = "[handoff]\ncells = [\"radio\"]\nfirst = \"5s\"\npause = \"2s\"\n\
                    every = \"10s\"\ncount = 9\n[signals]\npredicted.lead = \"250ms\"\n";

/// A download over a wire and a hop, with the mobile's schemes at its edge.
fn filled(scheme: &str, stack: &str, radio: &str, rest: &str) -> String {
    let (radio, rest) =
        (format!("queue = \"25 packets\"\n{radio}"), format!("[mobile]\nedge = true\n{rest}"));
    download(scheme, stack, &radio, &rest)
}

fn goodput(scheme: &str, stack: &str, radio: &str, rest: &str) -> f64 {
    metric(&run(&filled(scheme, stack, radio, rest), 1), "download.goodput_bps")
}

/// FRZ-1, FRZ-3, LLT-3, LLT-6, ATR-3: whoever tells the sender of the gap's end, or lets it wait
/// without its timer, beats TCP that is cut off.
#[test]
fn schemes_at_the_edge_beat_plain_tcp_over_disconnections() {
    for stack in ["ns2", "modern"] {
        let none = goodput("none", stack, "", GAPS);
        for scheme in ["freeze", "ll-freeze", "atcp"] {
            let helped = goodput(scheme, stack, "", GAPS);
            assert!(helped > 1.05 * none, "{scheme}, {stack}: {helped} against {none}");
        }
    }
}

/// FRZ-1, LLT-3: the windows closed at the edge spare the sender its timeouts, as those of the mobile's
/// own TCP do.
#[test]
fn a_warning_at_the_edge_spares_the_sender_its_timeouts() {
    for scheme in ["freeze", "ll-freeze"] {
        let timeouts = |gaps: &str| {
            let outcome = run(&filled(scheme, "ns2", "", gaps), 1);
            assert!(metric(&outcome, "phone.freeze.thaws") >= 1.0, "{scheme}");
            metric(&outcome, "download.fixed_timeouts")
        };
        assert!(timeouts(GAPS) < 1.0, "{scheme}");
        let untold = timeouts(&GAPS.replace("250ms", "0s"));
        assert!(untold >= 9.0, "{scheme}: {untold}");
    }
}

/// DDA-1, DDA-3, CC-4, CC-5: a link that recovers by itself, with duplicates held back at the edge,
/// beats plain TCP on a lossy hop.
#[test]
fn duplicates_held_at_the_edge_let_the_link_repair() {
    let lossy = "loss = \"2%\"";
    for stack in ["ns2", "modern"] {
        let none = goodput("none", stack, lossy, "");
        for scheme in ["delayed-dupacks", "congestion-coherence"] {
            let outcome = run(&filled(scheme, stack, lossy, ""), 1);
            let helped = metric(&outcome, "download.goodput_bps");
            assert!(helped > 1.1 * none, "{scheme}, {stack}: {helped} against {none}");
            assert!(metric(&outcome, "phone.dupacks.held") > 10.0, "{scheme}, {stack}");
            let repaired = metric(&outcome, "base.link.local_retransmits");
            assert!(repaired > 100.0, "{scheme}, {stack}: {repaired}");
        }
    }
}

/// RWC-1: priorities become shares of the window at the edge, and follow a change of mind.
#[test]
fn priorities_at_the_edge_become_shares() {
    let rest = "[flow.video]\nfrom = \"server\"\nto = \"phone\"\n[measure]\nfrom = \"10s\"\n[rwc]\n\
                packets = 32\n";
    let share = |rwc: &str| {
        let outcome = run(&filled("rwc", "modern", "", &format!("{rest}{rwc}")), 1);
        let [one, other] =
            ["download", "video"].map(|f| metric(&outcome, &format!("{f}.goodput_bps")));
        assert!(one + other > 1.7e6, "{one} and {other}");
        other / one
    };
    let even = share("");
    assert!((0.9..1.1).contains(&even), "{even}");
    let more = share("priorities = { video = 3 }");
    assert!((2.7..3.3).contains(&more), "{more}");
    let later = share("changes = [{ at = \"5s\", flow = \"video\", priority = 3 }]");
    assert!((2.7..3.3).contains(&later), "{later}");
}

/// RWC-1, FRZ-1: what divides windows and what closes them go together.
#[test]
fn agents_at_an_edge_go_together() {
    let outcome = run(&filled("[\"snoop\", \"freeze\", \"rwc\"]", "ns2", "", GAPS), 1);
    assert!(metric(&outcome, "phone.freeze.freezes") >= 9.0);
    assert!(metric(&outcome, "phone.rwc.narrowed") > 100.0);
    assert!(metric(&outcome, "download.fixed_timeouts") < 1.0);
}

/// LLT-1: agents at the edge cannot read what is encrypted, and hand it on as it came.
#[test]
fn encryption_takes_the_agents_at_the_edge_away() {
    let encrypted = |scheme: &str| {
        let text = filled(scheme, "ns2", "", GAPS);
        let text = text.replace("to = \"phone\"", "to = \"phone\"\nencrypted = true");
        metric(&run(&text, 1), "download.goodput_bps")
    };
    let none = encrypted("none");
    for scheme in ["freeze", "ll-freeze", "atcp", "rwc"] {
        let useless = encrypted(scheme);
        assert!((useless - none).abs() < 1e-9, "{scheme}: {useless} against {none}");
    }
}

/// MTC-4, MTC-5: M-TCP finds a mobile that does not greet by its own probing.
#[test]
fn m_tcp_does_without_a_greeting() {
    let [none, helped] = ["none", "m-tcp"].map(|scheme| goodput(scheme, "ns2", "", GAPS));
    assert!(helped > 1.05 * none, "{helped} against {none}");
}

#[test]
fn what_cannot_stand_at_an_edge_is_refused() {
    let told = refusal(&filled("fast-rtx-handoff", "ns2", "", GAPS));
    assert!(told.contains("fast-rtx-handoff has no agent at an edge"), "{told}");
    let other = "[flow.other]\nfrom = \"server\"\nto = \"phone\"\nscheme = \"atcp\"\n";
    let told = refusal(&filled("freeze", "ns2", "", &format!("{other}{GAPS}")));
    assert!(told.contains("flow.other.scheme") && told.contains("`phone`"), "{told}");
}
