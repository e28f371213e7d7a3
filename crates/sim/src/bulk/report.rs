//! What a bulk run measured.

use core::fmt;

use lasthop_units::{Duration, Rate, Time};

use crate::Probe;

/// The state of things at one moment of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct Sample {
    /// When.
    pub at: Time,
    /// Content that each association delivered since the sample before.
    pub goodput: Vec<Rate>,
    /// The mean time that packets which left in this interval had waited in the radio's queue.
    pub queue_delay: Duration,
    /// The first association's sending end.
    pub probe: Probe,
}

/// How a transfer came back after a silence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recovery {
    /// When the radio returned.
    pub at: Time,
    /// How long the silence was.
    pub silence: Duration,
    /// From the radio's return to the first new byte at the receiver.
    pub first_byte: Option<Duration>,
    /// From the radio's return to the end of the first 100 ms at nine tenths of the limit.
    pub full_rate: Option<Duration>,
}

/// How a transfer followed a change of the radio's rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Adaptation {
    /// When the rate changed.
    pub at: Time,
    /// The new rate.
    pub to: Rate,
    /// From the change to the end of the first 100 ms at nine tenths of the new limit.
    pub settled: Option<Duration>,
    /// From the change to the last moment, before the next change, at which packets left that had
    /// waited longer than one hop round trip.
    pub queue_above_rtt: Duration,
}

/// What a bulk run measured, after its warm-up.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct BulkReport {
    /// The transport's name.
    pub transport: &'static str,
    /// Content delivered, in bits per second, all associations together.
    pub goodput: Rate,
    /// Content delivered per association.
    pub per_association: Vec<Rate>,
    /// Content delivered per connection, those of the first association first, each's in the order
    /// in which they were opened.
    pub per_connection: Vec<Rate>,
    /// `goodput / (radio rate x (1 - loss) x 1448/1500)`, loss as it really fell, pauses left out.
    pub share_of_limit: f64,
    /// The share of packets that the radio's error processes took.
    pub loss: f64,
    /// Packets dropped at the radio's queue, as a share of those offered.
    pub queue_drop_share: f64,
    /// Mean wait in the radio's queue.
    pub queue_delay_mean: Duration,
    /// Longest wait in the radio's queue.
    pub queue_delay_max: Duration,
    /// Datagrams that the sending end sent, all associations.
    pub sent: u64,
    /// What it sent again.
    pub retransmitted: u64,
    /// Time-outs of the sending end.
    pub timeouts: u64,
    /// Bytes that went the other way, headers included, as a share of those on the content's way.
    pub reverse_share: f64,
    /// Jain's index over the associations' goodput.
    pub jain: f64,
    /// After each pause.
    pub recoveries: Vec<Recovery>,
    /// After each change of rate.
    pub adaptations: Vec<Adaptation>,
    /// The whole run in steps.
    pub samples: Vec<Sample>,
    /// The run's hash: the same configuration gives the same.
    pub hash: u64,
    /// A connection and the offset at which it delivered a wrong byte.
    pub wrong: Option<(u64, u64)>,
}

/// Jain's fairness index of shares: 1 if all are equal, 1/n if one has all.
pub fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|x| x * x).sum();
    if squares == 0.0 { 1.0 } else { sum * sum / (shares.len() as f64 * squares) }
}

impl BulkReport {
    /// The samples as CSV with a header line: times in seconds, rates in bit/s, sizes in bytes,
    /// delays in milliseconds.
    pub fn csv(&self) -> String {
        let mut out = String::from(
            "time,goodput,cwnd,in_flight,pacing,delivery,queue_ms,srtt_ms,min_rtt_ms,\
             sent,retransmitted\n",
        );
        for s in &self.samples {
            let goodput: Rate = s.goodput.iter().fold(Rate::ZERO, |sum, r| sum + *r);
            let p = &s.probe;
            out += &format!(
                "{:.3},{},{},{},{},{},{:.3},{:.3},{:.3},{},{}\n",
                s.at.as_secs_f64(),
                goodput.as_bps(),
                p.cwnd,
                p.in_flight,
                p.pacing.as_bps(),
                p.delivery.as_bps(),
                ms(s.queue_delay),
                ms(p.srtt),
                ms(p.min_rtt),
                p.sent,
                p.retransmitted,
            );
        }
        out
    }
}

fn ms(d: Duration) -> f64 {
    d.as_secs_f64() * 1e3
}

fn maybe(d: Option<Duration>) -> String {
    d.map_or("never".into(), |d| format!("{:.0} ms", ms(d)))
}

impl fmt::Display for BulkReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |x: f64| x * 100.0;
        writeln!(f, "transport        {}", self.transport)?;
        writeln!(f, "goodput          {}", self.goodput)?;
        writeln!(f, "share of limit   {:.1} %", percent(self.share_of_limit))?;
        writeln!(f, "radio loss       {:.2} %", percent(self.loss))?;
        writeln!(f, "dropped at queue {:.2} %", percent(self.queue_drop_share))?;
        let (mean, max) = (ms(self.queue_delay_mean), ms(self.queue_delay_max));
        writeln!(f, "queue delay      mean {mean:.1} ms, max {max:.1} ms")?;
        writeln!(f, "datagrams        {}", self.sent)?;
        writeln!(f, "retransmitted    {} (time-outs {})", self.retransmitted, self.timeouts)?;
        writeln!(f, "reverse bytes    {:.2} %", percent(self.reverse_share))?;
        if self.per_association.len() > 1 {
            let each: Vec<_> = self.per_association.iter().map(Rate::to_string).collect();
            writeln!(f, "fairness         Jain {:.3} ({})", self.jain, each.join(", "))?;
        }
        for r in &self.recoveries {
            let (first, full) = (maybe(r.first_byte), maybe(r.full_rate));
            let silence = r.silence;
            writeln!(
                f,
                "silence {silence:?} until {}: first byte {first}, full rate {full}",
                r.at
            )?;
        }
        for a in &self.adaptations {
            let (settled, above) = (maybe(a.settled), ms(a.queue_above_rtt));
            writeln!(
                f,
                "rate {} at {}: settled {settled}, queue above one rtt {above:.0} ms",
                a.to, a.at
            )?;
        }
        if let Some((connection, at)) = self.wrong {
            writeln!(f, "WRONG BYTE       connection {connection}, offset {at}")?;
        }
        write!(f, "hash             {:016x}", self.hash)
    }
}

#[cfg(test)]
mod tests {
    use super::jain;

    #[test]
    fn jains_index_is_one_for_equals_and_one_nth_for_a_monopoly() {
        assert!((jain(&[3.0, 3.0, 3.0]) - 1.0).abs() < 1e-12);
        assert!((jain(&[5.0, 0.0]) - 0.5).abs() < 1e-12);
        assert!((jain(&[]) - 1.0).abs() < 1e-12);
    }
}
