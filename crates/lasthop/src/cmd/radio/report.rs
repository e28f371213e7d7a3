//! What a radio did, for people and for programs.

use std::fmt::Write;
use std::time::Duration;

use lasthop_emulator::{PortStats, Snapshot};
use lasthop_radio::{Count, Direction, LinkStats};
use lasthop_units::Bytes;
use serde_json::{Value, json};

/// One object; durations in seconds, sizes in bytes, rates in bits per second.
pub(super) fn json(snapshot: &Snapshot, last: bool) -> Value {
    json!({
        "elapsed_s": snapshot.up.elapsed().as_secs_f64(),
        "last": last,
        "up": link_json(&snapshot.up),
        "down": link_json(&snapshot.down),
        "lateness": {
            "packets": snapshot.lateness.packets,
            "mean_s": snapshot.lateness.mean.as_secs_f64(),
            "p99_s": snapshot.lateness.p99.as_secs_f64(),
            "max_s": snapshot.lateness.max.as_secs_f64(),
        },
        "ports": { "mobile": port_json(&snapshot.mobile), "base": port_json(&snapshot.base) },
    })
}

fn link_json(link: &LinkStats) -> Value {
    json!({
        "offered": count_json(link.offered),
        "marked": count_json(link.marked),
        "sent": count_json(link.sent),
        "delivered": count_json(link.delivered),
        "corrupted": count_json(link.corrupted),
        "duplicated": count_json(link.duplicated),
        "reordered": count_json(link.reordered),
        "dropped": {
            "queue": count_json(link.dropped.queue),
            "oversize": count_json(link.dropped.oversize),
            "silence": count_json(link.dropped.silence),
            "loss": count_json(link.dropped.loss),
            "capacity": count_json(link.dropped.capacity),
        },
        "held": link.held,
        "delivered_bps": link.delivered_rate().as_bps(),
        "loss": link.loss(),
        "queue_drop_share": link.queue_drop_share(),
        "bursts": link.bursts,
        "burst_length": link.burst_length(),
        "fades": link.fades,
        "fade_share": link.fade_share(),
        "pauses": link.pauses,
        "silent_s": link.silent.as_secs_f64(),
        "air_share": link.utilisation(),
        "queue": {
            "wait_mean_s": link.mean_wait().as_secs_f64(),
            "wait_max_s": link.queue.wait_max.as_secs_f64(),
            "packets_mean": link.mean_backlog_packets(),
            "packets_max": link.queue.packets_max,
            "bytes_mean": link.mean_backlog_bytes(),
            "bytes_max": link.queue.bytes_max,
        },
    })
}

fn count_json(count: Count) -> Value {
    json!({ "packets": count.packets, "bytes": count.bytes })
}

fn port_json(port: &PortStats) -> Value {
    json!({
        "received": port.received,
        "sent": port.sent,
        "missed": port.missed,
        "unreadable": port.unreadable,
        "unsent": port.unsent,
        "turned_away": port.turned_away,
    })
}

/// One line of what matters while it runs.
pub(super) fn line(snapshot: &Snapshot) -> String {
    let mut out = format!("{:7.1} s", snapshot.up.elapsed().as_secs_f64());
    for direction in Direction::ALL {
        let link = snapshot.link(direction);
        // Writing to a string cannot fail.
        let _ = write!(
            out,
            "  {direction}: {}, {:.1} % lost, {} dropped, queue {}",
            link.delivered_rate(),
            100.0 * link.loss(),
            link.dropped.queue.packets,
            milliseconds(link.mean_wait()),
        );
    }
    let _ = write!(out, "  late {}", milliseconds(snapshot.lateness.p99));
    out
}

/// The whole story, in two columns.
pub(super) fn table(snapshot: &Snapshot) -> String {
    let mut out = String::new();
    let mut row = |name: &str, value: &dyn Fn(&LinkStats) -> String| {
        let (up, down) = (value(&snapshot.up), value(&snapshot.down));
        let _ = writeln!(out, "{name:<24}{up:>22}{down:>22}");
    };
    row("", &|link| if std::ptr::eq(link, &snapshot.up) { "up".into() } else { "down".into() });
    row("offered", &|link| count(link.offered));
    row("marked", &|link| count(link.marked));
    row("delivered", &|link| count(link.delivered));
    row("rate delivered", &|link| link.delivered_rate().to_string());
    row("lost or corrupted", &|link| format!("{:.2} %", 100.0 * link.loss()));
    row("  in bursts of", &|link| format!("{:.2} packets", link.burst_length()));
    row("fades", &|link| format!("{}, {:.2} %", link.fades, 100.0 * link.fade_share()));
    row("pauses", &|link| format!("{}, {:.1} s", link.pauses, link.silent.as_secs_f64()));
    row("dropped, queue full", &|link| count(link.dropped.queue));
    row("dropped, too long", &|link| count(link.dropped.oversize));
    row("dropped, silence", &|link| count(link.dropped.silence));
    row("dropped, capacity", &|link| count(link.dropped.capacity));
    row("wait, mean", &|link| milliseconds(link.mean_wait()));
    row("wait, longest", &|link| milliseconds(link.queue.wait_max));
    row("queue, mean", &|link| format!("{:.1} packets", link.mean_backlog_packets()));
    row("air time used", &|link| format!("{:.1} %", 100.0 * link.utilisation()));
    let late = snapshot.lateness;
    let _ = writeln!(
        out,
        "late by {} on average, {} for 99 %, {} at most; missed {}, not sent {}",
        milliseconds(late.mean),
        milliseconds(late.p99),
        milliseconds(late.max),
        snapshot.mobile.missed + snapshot.base.missed,
        snapshot.mobile.unsent + snapshot.base.unsent,
    );
    out
}

fn count(count: Count) -> String {
    format!("{} ({})", count.packets, Bytes::new(count.bytes))
}

fn milliseconds(time: Duration) -> String {
    format!("{:.3} ms", time.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_say_what_was_counted() {
        let mut snapshot = Snapshot::default();
        snapshot.down.offered = Count { packets: 7, bytes: 700 };
        snapshot.down.dropped.queue = Count { packets: 3, bytes: 300 };
        let value = json(&snapshot, true);
        assert_eq!(value["down"]["offered"]["packets"], 7);
        assert_eq!(value["down"]["dropped"]["queue"]["bytes"], 300);
        assert!(!value.to_string().contains('\n'));
        assert!(table(&snapshot).contains("7 (700 B)"));
        assert!(line(&snapshot).contains("3 dropped"));
    }
}
