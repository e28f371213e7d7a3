//! Calls and transfers of datagrams across a hop that loses packets.

use super::*;

const CALL: &str = r#"
scheme = "$scheme"
duration = "30s"
[node]
server = "fixed-host"
base = "base"
phone = "mobile-host"
[link.wire]
between = ["server", "base"]
rate = "100Mbit/s"
delay = "20ms"
[link.radio]
between = ["base", "phone"]
rate = "2Mbit/s"
delay = "20ms"
queue = "25 packets"
loss = "$loss"
[flow.it]
from = "$from"
to = "$to"
start = "1s"
traffic = $traffic
"#;

fn cross(scheme: &str, loss: &str, traffic: &str, up: bool) -> Outcome {
    let [from, to] = if up { ["phone", "server"] } else { ["server", "phone"] };
    let text = CALL.replace("$scheme", scheme).replace("$loss", loss).replace("$from", from);
    run(&text.replace("$to", to).replace("$traffic", traffic), 3)
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
    let fast = CALL.replace("2Mbit/s", "20Mbit/s").replace("25 packets", "100 packets");
    for (loss, limit) in [("0%", 19.3e6), ("5%", 18.3e6), ("10%", 17.4e6), ("20%", 15.4e6)] {
        let text = fast.replace("$scheme", "srp").replace("$loss", loss);
        let text = text.replace("$from", "server").replace("$to", "phone");
        let outcome = run(&text.replace("$traffic", "\"quic-like\""), 3);
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
