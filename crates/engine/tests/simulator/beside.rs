//! A call, and a user who types, beside a download that fills the same hop.

use super::*;

const DOWNLOAD: &str = r#"
[flow.bulk]
from = "server"
to = "phone"
[tcp]
stack = "modern"
[tcp.wired]
send-buffer = "1MiB"
receive-buffer = "1MiB"
[tcp.hop]
send-buffer = "1MiB"
receive-buffer = "1MiB"
[agent]
buffer = "1MiB"
[measure]
from = "5s"
"#;
const CALL: &str = r#"
[flow.call]
from = "server"
to = "phone"
start = "5s"
traffic = "voice"
"#;
const KEYS: &str = r#"
[flow.keys]
from = "phone"
to = "server"
start = "5s"
traffic = { interactive = { every = "200ms" } }
"#;
/// Of the hop, without a queue.
const ROUND_TRIP: f64 = 0.04;
/// A round trip of the hop and of the wire behind it.
const PATH: f64 = 0.08;
/// What a call's packets take with their headers of UDP and IPv4, in bit/s.
const CALL_RATE: f64 = 50.0 * 8.0 * (160.0 + 28.0);

/// The means of metrics over three runs, with something beside the download.
fn means<const N: usize>(loss: &str, beside: &str, names: [&str; N]) -> [f64; N] {
    means_over(["20Mbit/s", "100 packets"], loss, &(DOWNLOAD.to_owned() + beside), names)
}

/// The same of these flows over a radio of this rate and queue.
fn means_over<const N: usize>(
    [rate, queue]: [&str; 2],
    loss: &str,
    flows: &str,
    names: [&str; N],
) -> [f64; N] {
    let more = format!("queue = \"{queue}\"\nloss = \"{loss}\"");
    let hop = OneHop {
        scheme: "srp",
        duration: "60s",
        wire: ["100Mbit/s", "20ms"],
        radio: [rate, "20ms"],
        more: &more,
    };
    let text = hop.with(flows);
    let runs = [1, 2, 3].map(|seed| run(&text, seed));
    names.map(|name| runs.iter().map(|outcome| metric(outcome, name)).sum::<f64>() / 3.0)
}

/// SRP-30, SRP-33: hardly anything of a call is missing, it waits for one repetition at most, and the download has all
/// that the call leaves.
#[test]
fn a_call_and_a_download_do_not_disturb_each_other() {
    for loss in ["0%", "5%", "10%", "burst 5% length 3", "fade 1% mean 20ms"] {
        let [alone] = means(loss, "", ["bulk.goodput_bps"]);
        let names =
            ["bulk.goodput_bps", "call.residual_loss", "call.added_p50_s", "call.added_p99_s"];
        let [bulk, lost, half, most] = means(loss, CALL, names);
        assert!(lost <= 0.001, "loss {loss}: {lost} of the call");
        assert!(most <= half + ROUND_TRIP, "loss {loss}: {half} and {most}");
        assert!(bulk >= 0.99 * (alone - CALL_RATE), "loss {loss}: {bulk} of {alone}");
    }
}

/// SRP-30, SRP-33: nor is anything missing where fades take a large part of the time. What is in one waits for its end, and
/// for the repetition after it.
#[test]
fn a_call_beside_a_download_bridges_short_fades() {
    for fades in ["fade 5% mean 17ms", "fade 10% mean 17ms"] {
        let names = ["call.residual_loss", "call.added_p50_s", "call.added_p99_s"];
        let [lost, half, most] = means(fades, CALL, names);
        assert!(lost <= 0.001, "{fades}: {lost} of the call");
        assert!(most <= half + 3.0 * ROUND_TRIP, "{fades}: {half} and {most}");
    }
}

/// SRP-30, SRP-33: upwards, where there is nothing else but acknowledgements, hardly anything of a call is missing either.
#[test]
fn a_call_against_a_download_is_whole() {
    let up = CALL.replace("from = \"server\"\nto = \"phone\"", "from = \"phone\"\nto = \"server\"");
    for loss in ["5%", "10%"] {
        let names = ["call.residual_loss", "call.added_p50_s", "call.added_p99_s"];
        let [lost, half, most] = means(loss, &up, names);
        assert!(lost <= 0.001, "loss {loss}: {lost} of the call");
        assert!(most <= half + ROUND_TRIP, "loss {loss}: {half} and {most}");
    }
}

/// SRP-33: the echo of a keystroke beside a download takes hardly longer than the path.
#[test]
fn a_keystroke_beside_a_download_is_echoed_at_once() {
    for loss in ["0%", "5%", "10%"] {
        let [answers, most] = means(loss, KEYS, ["keys.answers", "keys.latency_p99_s"]);
        assert!(answers > 270.0 && most <= 1.5 * PATH, "loss {loss}: {answers} {most}");
    }
}

/// SRP-11, SRP-33: nor where the download has taken all the memory that it gets, over a hop on which each of its datagrams
/// takes 6 ms: one is on the air, one before it at the radio, and one has the byte.
#[test]
fn a_keystroke_beside_a_download_finds_memory() {
    let flows = DOWNLOAD.replace("1MiB", "64KiB") + KEYS;
    for loss in ["0%", "5%", "10%"] {
        let names = ["keys.answers", "keys.latency_p99_s"];
        let [answers, most] = means_over(["2Mbit/s", "25 packets"], loss, &flows, names);
        assert!(answers > 270.0 && most <= 1.5 * (PATH + 0.018), "loss {loss}: {answers} {most}");
    }
}
