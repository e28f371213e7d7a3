//! Where a datagram's nanoseconds go: what each part of its way through base and mobile costs by itself on this
//! machine, and what the whole way costs.

mod machine;
mod sockets;
mod threads;

use anyhow::Result;
use lasthop_units::Duration;

use super::Setting;
use crate::cables::cabled;
use crate::peer::Peer;
use crate::pump::Load;
use crate::report::{Report, Row};

const FIGURE: &str = "budget";
/// Connections that are carried at once.
const CONNECTIONS: usize = 64;
/// Bytes of a connection in a full datagram of SRP.
const PAYLOAD: usize = 1420;
const GIGA: f64 = 1e9;

/// What measures the nanoseconds of CPU that something takes for a datagram, in about that time.
type Measure = fn(Duration) -> Result<f64>;

/// What a download's datagram needs at either end, one after the other: nothing of it is there twice.
const PARTS: [(&str, Measure); 5] = [
    ("tcp-in", sockets::tcp_in),
    ("machines", machine::unsealed),
    ("seal", machine::seal),
    ("udp", sockets::udp),
    ("tcp-out", sockets::tcp_out),
];
/// What these consist of, each once.
const UNITS: [(&str, Measure); 3] =
    [("copy", machine::copy), ("system-call", threads::system_call), ("wake-up", threads::wake_up)];

/// Measures the whole, then each part and what parts consist of.
pub(crate) fn run(setting: &Setting, report: &mut Report) {
    let span = Duration::from_secs(setting.choose(1, 5));
    let mut all = None;
    setting.attempt(report, FIGURE, &Peer::Srp, "whole", || {
        let load = Load::carry(&cabled()?, &Peer::Srp, CONNECTIONS, span * 4)?;
        let datagrams = load.bytes as f64 / PAYLOAD as f64;
        let [base, mobile] = load.cpu.map(|cpu| cpu.as_nanos() as f64 / datagrams);
        all = Some(base + mobile);
        Ok(Row::new(FIGURE, Peer::Srp, "whole")
            .number("ns", base + mobile)
            .number("share", 1.0)
            .number("gbit_s", load.rate.as_bps() as f64 / GIGA)
            .number("base_ns", base)
            .number("mobile_ns", mobile)
            .every_byte("bytes_ok", load.right))
    });
    let mut sum = 0.0;
    for (name, measure) in PARTS {
        setting.attempt_named(report, FIGURE, "part", true, name, || {
            let nanos = measure(span)?;
            sum += nanos;
            Ok(part(name, nanos, all))
        });
    }
    setting.attempt_named(report, FIGURE, "part", false, "sum", || Ok(part("sum", sum, all)));
    for (name, measure) in UNITS {
        setting.attempt_named(report, FIGURE, "unit", true, name, || {
            Ok(Row::new(FIGURE, "unit", name).number("ns", measure(span)?))
        });
    }
}

/// How long a part takes, which share of `all` that is, and how fast a core would be that did nothing else.
fn part(name: &str, nanos: f64, all: Option<f64>) -> Row {
    Row::new(FIGURE, "part", name)
        .number("ns", nanos)
        .number("share", all.map(|all| nanos / all))
        .number("gbit_s", PAYLOAD as f64 * 8.0 / nanos)
}
