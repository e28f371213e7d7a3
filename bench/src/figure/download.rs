//! A download on a radio, watched for a span of time: what came, what it cost the two ends, and what the radio
//! did.

use std::time::Instant;

use anyhow::Result;
use lasthop_lab::condition::Condition;
use lasthop_lab::transfer::{Direction, Transfer};
use lasthop_radio::LinkStats;
use lasthop_units::{Duration, Rate, Stream};

use super::{DELAY, Setting, with_radio};
use crate::peer::{Peer, Running};
use crate::process::Syscalls;
use crate::report::Row;
use crate::stage::{Stage, limit};

/// Left out at the start.
const SETTLE: Duration = Duration::from_secs(3);
const GB: f64 = 1e9;

/// An end of the hop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    Base,
    Mobile,
}

/// What was seen of a download.
pub(super) struct Download {
    rate: Rate,
    bytes: u64,
    goodput: Rate,
    watched: Watched,
    right: bool,
}

impl Download {
    /// Has `peer` carry a download over a radio of this rate that loses nothing, for `span`. The process at
    /// an end may be stalled.
    pub(super) fn over(
        setting: &Setting,
        peer: &Peer,
        rate: Rate,
        span: Duration,
        stalled: Option<End>,
    ) -> Result<Self> {
        let topology = with_radio(Condition::Loss(0).topology(), rate, DELAY);
        let stage = Stage::build(&setting.seeded(topology, rate))?;
        let mut running = stage.start(peer, 0)?;
        let flow = stage.endless(running.client(), Direction::Download)?;
        let stalls = setting.seed.child("stalls").stream("stalls");
        let watched = watch(&stage, &mut running, &flow, span, stalled.map(|end| (end, stalls)));
        running.check()?;
        let (watched, ended) = flow.end(watched)?;
        let bytes = ended.received.between(watched.from, watched.to);
        let goodput = Rate::of(bytes, watched.to - watched.from);
        Ok(Self { rate, bytes: bytes.get(), goodput, watched, right: ended.is_right })
    }

    /// CPU seconds of the processes at the base and at the mobile for each GB.
    pub(super) fn cpu_per_gb(&self) -> [f64; 2] {
        self.watched.cpu.map(|cpu| cpu.as_secs_f64() / (self.bytes as f64 / GB))
    }

    /// System calls of both for each datagram on the radio, where the kernel counts them.
    pub(super) fn syscalls_per_datagram(&self) -> Option<f64> {
        let syscalls = self.watched.syscalls?;
        Some(syscalls as f64 / self.watched.datagrams as f64)
    }

    /// Goodput as a share of the limit.
    pub(super) fn share(&self) -> f64 {
        self.goodput.as_bps() as f64 / limit(self.rate, 0.0).as_bps() as f64
    }

    /// A row with what all figures show of it.
    pub(super) fn row(&self, figure: &'static str, peer: &Peer, cell: impl ToString) -> Row {
        let radio = &self.watched.radio;
        Row::new(figure, peer, cell)
            .value("scheme", peer.scheme())
            .value("rate_bps", self.rate.as_bps())
            .number("share_of_limit", self.share())
            .number("queue_drops", radio.queue_drop_share())
            .number("queue_ms", radio.mean_wait().as_secs_f64() * 1e3)
            .every_byte("sha256_ok", self.right)
    }
}

/// What was counted in the measured span.
struct Watched {
    from: Instant,
    to: Instant,
    cpu: [Duration; 2],
    syscalls: Option<u64>,
    radio: LinkStats,
    /// Both ways.
    datagrams: u64,
}

fn watch(
    stage: &Stage,
    running: &mut Running,
    flow: &Transfer,
    span: Duration,
    stalls: Option<(End, Stream)>,
) -> Result<Watched> {
    flow.until(flow.first_byte()? + SETTLE)?;
    let syscalls = Syscalls::of(&running.pids());
    let (from, before) = (Instant::now(), running.cpu()?);
    stage.lab.radio.control.reset_stats();
    match stalls {
        Some((end, stalls)) => stall_until(from + span, running, flow, end, stalls)?,
        None => flow.until(from + span)?,
    }
    let (to, after) = (Instant::now(), running.cpu()?);
    let syscalls = syscalls.and_then(Syscalls::count);
    if let Err(error) = &syscalls {
        eprintln!("system calls are not counted: {error:#}");
    }
    let [radio, back] = [Direction::Download, Direction::Upload].map(|way| stage.radio(way));
    let datagrams = radio.offered.packets + back.offered.packets;
    let cpu = [after[0] - before[0], after[1] - before[1]];
    Ok(Watched { from, to, cpu, syscalls: syscalls.ok(), radio, datagrams })
}

/// Stops the process at an end for 1 to 10 ms, again and again, 20 to 180 ms apart.
fn stall_until(
    to: Instant,
    running: &mut Running,
    flow: &Transfer,
    end: End,
    mut random: Stream,
) -> Result<()> {
    loop {
        let gap = Duration::from_millis(20 + random.below(161));
        let next = Instant::now() + gap;
        if next >= to {
            return flow.until(to).map_err(Into::into);
        }
        flow.until(next)?;
        running.stall(end as usize, Duration::from_micros(1000 + random.below(9001)));
    }
}
