//! Figure 10: throughput of the bidirectional test, measured and computed.

use lasthop_study::reproduce::processing::{Point, StackCost, Throughput};

/// What the paper's line had, in bits per second.
const RATE: f64 = 10e6;
/// Bytes of a frame's payload at least.
const LEAST: u32 = 46;
/// Bytes around a frame's payload: preamble 8, header 14, check sequence 4, gap 12.
const AROUND: u32 = 38;
/// The paper's intercept of TCP/IP (figure 13), in nanoseconds.
const PAPER_INTERCEPT: f64 = 123_000.0;

/// Bytes of headers between the data and the frame, for the stacks of figure 10.
const STACKS: [(&str, u32); 3] = [("tcp-ip", 40), ("mobile-tcp", 16), ("mobile-tcp-24", 40)];

/// How throughput was found.
pub(crate) const KINDS: [&str; 3] = ["measured", "computed-10M", "computed-10M-paper-cpu"];

/// Nanoseconds that a packet takes on 10 Mbit/s Ethernet.
fn on_the_line(packet: u32) -> f64 {
    f64::from((packet.max(LEAST) + AROUND) * 8) / RATE * 1e9
}

/// Throughput by size, for each stack of figure 10 that was measured.
pub(crate) fn throughput(stacks: &[StackCost]) -> Vec<Throughput> {
    let find = |id: &str| stacks.iter().find(|s| s.stack == id);
    let Some(tcp) = find("tcp-ip") else { return Vec::new() };
    let slower = PAPER_INTERCEPT / tcp.latency.intercept_ns.value;
    let mut all = Vec::new();
    for (id, headers) in STACKS {
        for point in find(id).map_or(&[][..], |stack| &stack.points) {
            let line = on_the_line(point.size + headers);
            let [measured, here, paper] = KINDS;
            all.push(row(id, point, measured, point.latency_ns));
            all.push(row(id, point, here, point.latency_ns + line));
            all.push(row(id, point, paper, point.latency_ns * slower + line));
        }
    }
    all
}

/// A buffer of application data arrives every `half` nanoseconds.
fn row(stack: &str, point: &Point, kind: &str, half: f64) -> Throughput {
    let bits_per_s = f64::from(point.size) * 8.0 / half * 1e9;
    Throughput { stack: stack.into(), size: point.size, kind: kind.into(), bits_per_s }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A full frame of 1538 bytes with all that surrounds it takes 1.2304 ms, the smallest 67.2 us.
    #[test]
    fn frames_take_as_long_as_the_standard_says() {
        assert!((on_the_line(1500) - 1_230_400.0).abs() < 1e-6);
        assert!((on_the_line(1) - 67_200.0).abs() < 1e-6);
    }
}
