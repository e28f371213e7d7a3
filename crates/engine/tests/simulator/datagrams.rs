//! Calls and transfers of datagrams across a hop that loses packets.

use super::*;

/// Traffic between server and phone over a hop of this rate and queue.
fn cross_at(hop: [&str; 2], scheme: &str, loss: &str, traffic: &str, up: bool) -> Outcome {
    let ([rate, queue], [from, to]) =
        (hop, if up { ["phone", "server"] } else { ["server", "phone"] });
    let hop = OneHop {
        scheme,
        duration: "30s",
        wire: ["100Mbit/s", "20ms"],
        radio: [rate, "20ms"],
        more: &format!("queue = \"{queue}\"\nloss = \"{loss}\""),
    };
    let flow = format!(
        "[flow.it]\nfrom = \"{from}\"\nto = \"{to}\"\nstart = \"1s\"\ntraffic = {traffic}\n"
    );
    run(&hop.with(&flow), 3)
}

fn cross(scheme: &str, loss: &str, traffic: &str, up: bool) -> Outcome {
    cross_at(["2Mbit/s", "25 packets"], scheme, loss, traffic, up)
}

/// SRP-30: a call is lost less on the hop's lane, either way, and without loss it waits for nothing.
#[test]
fn a_call_rides_on_the_lane_of_srp() {
    for up in [false, true] {
        let call = |scheme, loss| cross(scheme, loss, "\"voice\"", up);
        let lost = |scheme| metric(&call(scheme, "10%"), "it.residual_loss");
        let (bare, lane) = (lost("none"), lost("srp"));
        assert!((0.08..0.12).contains(&bare) && lane < bare / 3.0, "{bare} {lane}");
        let (bare, lane) = (call("none", "none"), call("srp", "none"));
        assert_eq!(metric(&bare, "it.residual_loss"), 0.0);
        assert!(metric(&bare, "it.added_p99_s").abs() < 1e-6, "nothing but the path's own delay");
        assert_eq!(metric(&lane, "it.residual_loss"), 0.0);
        assert!(metric(&lane, "it.added_p99_s") < 0.005);
        assert!(metric(&bare, "it.mos") > 4.3 && metric(&lane, "it.mos") > 4.3);
    }
}

/// Helpers of TCP do nothing for a call; a link that recovers by itself does.
#[test]
fn a_call_is_helped_by_whoever_repeats_packets() {
    let lost = |scheme| metric(&cross(scheme, "10%", "\"voice\"", false), "it.residual_loss");
    assert_eq!(lost("snoop"), lost("none"));
    assert!(lost("delayed-dupacks") < 0.005);
}

#[test]
fn a_paced_transfer_is_faster_where_the_hop_repairs_losses() {
    let rate =
        |scheme, loss| metric(&cross(scheme, loss, "\"quic-like\"", false), "it.goodput_bps");
    assert!(rate("none", "none") > 1.8e6);
    let (bare, lane) = (rate("none", "5%"), rate("srp", "5%"));
    assert!(lane > 1.5 * bare, "{lane} {bare}");
}

/// SRP-30, SRP-33: a transfer that is bounded by its own window fills nine tenths of what the hop can carry at any loss:
/// the hop's rate is measured although sending pauses again and again, and the queue lasts while the order of packets
/// keeps acknowledgements back.
#[test]
fn a_transfer_like_quic_fills_the_hop() {
    for (loss, limit) in [("0%", 19.3e6), ("5%", 18.3e6), ("10%", 17.4e6), ("20%", 15.4e6)] {
        let hop = ["20Mbit/s", "100 packets"];
        let outcome = cross_at(hop, "srp", loss, "\"quic-like\"", false);
        let goodput = metric(&outcome, "it.goodput_bps");
        assert!(goodput > 0.9 * limit, "loss {loss}: {goodput}");
    }
}

#[test]
fn datagrams_at_a_constant_rate_are_counted() {
    let traffic = "{ udp = { rate = \"80kbit/s\", size = \"500 B\" } }";
    let outcome = cross("none", "none", traffic, true);
    assert_eq!(metric(&outcome, "it.datagrams"), 581.0);
    assert_eq!(metric(&outcome, "it.residual_loss"), 0.0);
}
