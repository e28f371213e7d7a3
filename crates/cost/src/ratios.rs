//! The numbers that are held against the paper's.

use lasthop_study::reproduce::processing::{Estimate, Point, Ratio, Share, StackCost, Throughput};

/// All that was measured so far.
pub(crate) struct Facts<'a> {
    pub(crate) stacks: &'a [StackCost],
    pub(crate) shares: &'a [Share],
    pub(crate) throughput: &'a [Throughput],
}

/// The buffers below this say more of timers than of protocols: the paper's curves begin here.
const SMALLEST: u32 = 100;

impl Facts<'_> {
    fn stack(&self, id: &str) -> Option<&StackCost> {
        self.stacks.iter().find(|s| s.stack == id)
    }

    fn point(&self, id: &str, size: u32) -> Option<&Point> {
        self.stack(id)?.points.iter().find(|p| p.size == size)
    }

    fn share(&self, id: &str, size: u32, component: &str) -> Option<&Share> {
        let mut shares = self.shares.iter();
        shares.find(|s| s.stack == id && s.size == size && s.component == component)
    }

    fn rate(&self, id: &str, size: u32, kind: &str) -> Option<f64> {
        let mut rows = self.throughput.iter();
        let row = rows.find(|t| t.stack == id && t.size == size && t.kind == kind)?;
        Some(row.bits_per_s)
    }

    /// How much more throughput one stack has than the other, in percent.
    fn gain(&self, id: &str, over: &str, size: u32, kind: &str) -> Option<f64> {
        Some(100.0 * (self.rate(id, size, kind)? / self.rate(over, size, kind)? - 1.0))
    }
}

/// Every ratio for which there is what it needs.
pub(crate) fn ratios(facts: &Facts<'_>) -> Vec<Ratio> {
    let mut all = Vec::new();
    lines(facts, &mut all);
    cpu(facts, &mut all);
    shares(facts, &mut all);
    throughput(facts, &mut all);
    all.retain(|ratio| ratio.value.is_finite());
    all
}

fn plain(id: impl Into<String>, value: f64, meaning: impl Into<String>) -> Ratio {
    Ratio { id: id.into(), value, lo: None, hi: None, meaning: meaning.into() }
}

/// A quotient of two estimates. Its interval holds every quotient of values in theirs; there is none
/// where they are so wide that they reach zero.
fn quotient(id: String, a: &Estimate, b: &Estimate, meaning: String) -> Ratio {
    let known = a.lo > 0.0 && b.lo > 0.0;
    let (lo, hi) = (known.then(|| a.lo / b.hi), known.then(|| a.hi / b.lo));
    Ratio { id, value: a.value / b.value, lo, hi, meaning }
}

fn lines(facts: &Facts<'_>, all: &mut Vec<Ratio>) {
    let Some(mobile) = facts.stack("mobile-tcp") else { return };
    let against = [
        ("tcp-ip", "mobile-tcp-2001.figure13", "our TCP/IP"),
        ("tcp-ip-shared", "tcp_ip_shared", "our TCP/IP with BSD's socket buffers"),
        ("kernel-loopback", "kernel_loopback", "the kernel over loopback"),
        ("kernel-veth", "kernel_veth", "the kernel over veth"),
    ];
    for (id, prefix, name) in against {
        let Some(other) = facts.stack(id) else { continue };
        let (a, b) = (&mobile.latency, &other.latency);
        all.push(quotient(
            format!("{prefix}.intercept_ratio"),
            &a.intercept_ns,
            &b.intercept_ns,
            format!("measured: fixed latency of Mobile TCP over that of {name}"),
        ));
        all.push(quotient(
            format!("{prefix}.slope_ratio"),
            &a.slope_ns_per_byte,
            &b.slope_ns_per_byte,
            format!("measured: latency per byte of Mobile TCP over that of {name}"),
        ));
    }
    let frames = facts.stack("mobile-tcp-ethernet").zip(facts.stack("kernel-veth"));
    if let Some((frames, kernel)) = frames {
        all.push(quotient(
            "ethernet_veth.intercept_ratio".into(),
            &frames.latency.intercept_ns,
            &kernel.latency.intercept_ns,
            "measured: Mobile TCP in raw frames over the kernel's TCP/IP, both over veth".into(),
        ));
    }
}

fn cpu(facts: &Facts<'_>, all: &mut Vec<Ratio>) {
    let Some(tcp) = facts.stack("tcp-ip") else { return };
    let ratio = |p: &Point| Some(facts.point("mobile-tcp", p.size)?.cpu_ns / p.cpu_ns);
    let sizes = tcp.points.iter().filter(|p| p.size >= SMALLEST);
    let values: Vec<f64> = sizes.filter_map(ratio).collect();
    if !values.is_empty() {
        let (lo, hi) = values.iter().fold((f64::MAX, f64::MIN), |(l, h), &v| (l.min(v), h.max(v)));
        all.push(Ratio {
            id: "mobile-tcp-2001.figure11.cpu_ratio".into(),
            value: values.iter().sum::<f64>() / values.len() as f64,
            lo: Some(lo),
            hi: Some(hi),
            meaning:
                "measured: CPU time per buffer of Mobile TCP over that of our TCP/IP, mean over \
                      buffers of 100 bytes and more; least and greatest beside it"
                    .into(),
        });
    }
    for (size, suffix) in [(100, ""), (1460, ".1460")] {
        let points = facts.point("mobile-tcp", size).zip(facts.point("tcp-ip", size));
        let Some((mobile, tcp)) = points else { continue };
        all.push(plain(
            format!("mobile-tcp-2001.figure12.tcp_excess{suffix}"),
            100.0 * (tcp.cpu_ns_per_kb / mobile.cpu_ns_per_kb - 1.0),
            format!("measured: CPU time per kB that TCP/IP takes more, percent, {size} bytes"),
        ));
    }
}

fn shares(facts: &Facts<'_>, all: &mut Vec<Ratio>) {
    for (size, suffix) in [(100, ""), (1460, ".1460")] {
        let ns = |component| facts.share("tcp-ip", size, component).map(|s| s.ns);
        let protocol = ["transport", "ip", "checksum", "copy"].map(ns);
        let whole: Option<f64> = protocol.iter().copied().sum();
        if let (Some(ip), Some(whole)) = (ns("ip"), whole) {
            all.push(plain(
                format!("mobile-tcp-2001.figure14.ip_share{suffix}"),
                100.0 * ip / whole,
                format!("measured: IP's share of TCP and IP, percent, {size} bytes"),
            ));
        }
        let percent = |stack, component| facts.share(stack, size, component).map(|s| s.percent);
        let socket =
            |stack| Some((percent(stack, "socket-layer")?, percent(stack, "socket-copy")?));
        if let Some((layer, copy)) = socket("mobile-tcp") {
            let id = format!("mobile-tcp-2001.figure14.socket_layer_share{suffix}");
            let what = "percent of CPU in the light socket library";
            all.push(plain(
                format!("{id}.with_copy"),
                layer + copy,
                format!("measured: {what} with its one copy each way, {size} bytes"),
            ));
            all.push(plain(id, layer, format!("measured: {what} without its copy, {size} bytes")));
        }
        if let Some((layer, copy)) = socket("tcp-ip") {
            all.push(plain(
                format!("mobile-tcp-2001.figure14.socket_layer_tcp{suffix}"),
                layer + copy,
                format!("measured: percent of CPU in the standard socket layer, {size} bytes"),
            ));
        }
    }
}

fn throughput(facts: &Facts<'_>, all: &mut Vec<Ratio>) {
    let kinds = [
        ("computed-10M-paper-cpu", "mobile-tcp-2001.figure10.", "10 Mbit/s, the paper's CPU speed"),
        ("computed-10M", "figure10.here.", "10 Mbit/s, this CPU"),
    ];
    for (kind, prefix, how) in kinds {
        for size in [100, 1460] {
            if let Some(gain) = facts.gain("mobile-tcp", "tcp-ip", size, kind) {
                all.push(plain(
                    format!("{prefix}gain_{size}"),
                    gain,
                    format!("computed for {how}: throughput of Mobile TCP over TCP/IP, percent"),
                ));
            }
            if let Some(gain) = facts.gain("mobile-tcp-24", "mobile-tcp", size, kind) {
                all.push(plain(
                    format!("{prefix}mtcp24_difference_{size}"),
                    -gain,
                    format!("computed for {how}: what 24 bytes more cost, percent"),
                ));
            }
        }
    }
    let loss = |size: u32| Some(-facts.gain("mobile-tcp-24", "mobile-tcp", size, "measured")?);
    let sizes = crate::meter::SIZES.into_iter().filter(|&size| size >= SMALLEST);
    let losses: Vec<f64> = sizes.filter_map(loss).collect();
    if !losses.is_empty() {
        all.push(plain(
            "mobile-tcp-2001.figure10.mtcp24_difference",
            crate::fit::median(&losses),
            "measured, with no link rate: what 24 bytes more cost in processing, percent, median \
             over buffers of 100 bytes and more",
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quotient_has_an_interval_unless_one_reaches_zero() {
        let estimate = |value, lo, hi| Estimate { value, lo, hi };
        let of = |a: Estimate, b: Estimate| quotient(String::new(), &a, &b, String::new());
        let ratio = of(estimate(34.0, 30.0, 36.0), estimate(123.0, 120.0, 150.0));
        assert!((ratio.value - 0.2764).abs() < 1e-4);
        assert_eq!((ratio.lo, ratio.hi), (Some(0.2), Some(0.3)));
        let wide = of(estimate(34.0, 30.0, 36.0), estimate(1.0, -1.0, 3.0));
        assert_eq!((wide.lo, wide.hi), (None, None));
    }
}
