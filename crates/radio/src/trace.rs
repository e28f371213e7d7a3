use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use lasthop_units::{Bytes, Rate};
use thiserror::Error;

/// The most opportunities that a trace may hold: an hour at 33 Mbit/s.
const LONGEST: usize = 10_000_000;

/// A recorded link in mahimahi's form: one line for each chance to send 1500 bytes, in
/// milliseconds from the start; after the last line it begins anew.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trace {
    /// Milliseconds, in order.
    opportunities: Vec<u32>,
}

/// A trace that could not be read.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum TraceError {
    /// A line that is not a time in milliseconds.
    #[error("line {line}: `{found}` is not a whole number of milliseconds")]
    NotANumber {
        /// Counted from 1.
        line: usize,
        /// What stood there, cut to 32 characters.
        found: String,
    },
    /// A line earlier than the one before.
    #[error("line {line}: {found} ms is before {before} ms on the line above it")]
    Backwards {
        /// Counted from 1.
        line: usize,
        /// The time on this line.
        found: u32,
        /// The time on the line before.
        before: u32,
    },
    /// No time in which anything could be sent.
    #[error("the trace needs at least one line, and its last must be above 0 ms")]
    Empty,
    /// More lines than are accepted.
    #[error("line {line}: a trace may hold at most 10000000 delivery opportunities")]
    TooLong {
        /// Counted from 1.
        line: usize,
    },
}

impl Trace {
    /// What one opportunity carries.
    pub const OPPORTUNITY: Bytes = Bytes::new(1500);

    /// Reads a trace. Empty lines are skipped.
    ///
    /// # Errors
    ///
    /// Names the line and what was expected there.
    pub fn parse(text: &str) -> Result<Self, TraceError> {
        let mut opportunities: Vec<u32> = Vec::new();
        for (line, content) in (1..).zip(text.lines()) {
            let content = content.trim();
            if content.is_empty() {
                continue;
            }
            let at: u32 = content.parse().map_err(|_| TraceError::NotANumber {
                line,
                found: content.chars().take(32).collect(),
            })?;
            match opportunities.last() {
                Some(&before) if at < before => {
                    return Err(TraceError::Backwards { line, found: at, before });
                }
                _ if opportunities.len() == LONGEST => return Err(TraceError::TooLong { line }),
                _ => opportunities.push(at),
            }
        }
        match opportunities.last() {
            None | Some(0) => Err(TraceError::Empty),
            Some(_) => Ok(Self { opportunities }),
        }
    }

    /// How long one round through the trace takes.
    pub fn period(&self) -> Duration {
        Duration::from_millis(u64::from(self.opportunities.last().copied().unwrap_or(1).max(1)))
    }

    /// The rate over a whole round.
    pub fn mean_rate(&self) -> Rate {
        let bytes = self.opportunities.len() as u64 * Self::OPPORTUNITY.get();
        Rate::of(Bytes::new(bytes), self.period())
    }

    /// When opportunity `number` comes after the start; numbers run on through the rounds.
    pub(crate) fn time_of(&self, number: u64) -> Duration {
        let per_round = self.opportunities.len() as u64;
        let (round, index) = (number / per_round, number % per_round);
        let within = Duration::from_millis(u64::from(self.opportunities[index as usize]));
        let rounds = (self.period().as_nanos() as u64).saturating_mul(round);
        Duration::from_nanos(rounds).saturating_add(within)
    }

    /// The number of the first opportunity at or after `since_start`.
    pub(crate) fn first_from(&self, since_start: Duration) -> u64 {
        let period = self.period().as_nanos();
        let round = (since_start.as_nanos() / period) as u64;
        let within = (since_start.as_nanos() % period) as u64;
        let index = self.opportunities.partition_point(|&ms| u64::from(ms) * 1_000_000 < within);
        // At the exact end of a round its last opportunities are still to come.
        let first = round * self.opportunities.len() as u64 + index as u64;
        if within == 0 && round > 0 { self.last_of_round(round - 1).min(first) } else { first }
    }

    fn last_of_round(&self, round: u64) -> u64 {
        let last = self.opportunities.last().copied().unwrap_or(0);
        let index = self.opportunities.partition_point(|&ms| ms < last);
        round * self.opportunities.len() as u64 + index as u64
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_trace_wraps_around() {
        let trace = Trace::parse("1\n1\n5\n").expect("reads");
        let ms: Vec<u64> = (0..7).map(|n| trace.time_of(n).as_millis() as u64).collect();
        assert_eq!(ms, [1, 1, 5, 6, 6, 10, 11]);
        assert_eq!(trace.mean_rate(), Rate::from_kbps(7_200));
    }

    #[test]
    fn errors_name_the_line_and_what_was_expected() {
        let error = |text| Trace::parse(text).expect_err("read").to_string();
        assert_eq!(error("1\n2x\n"), "line 2: `2x` is not a whole number of milliseconds");
        assert_eq!(error("1\n-3"), "line 2: `-3` is not a whole number of milliseconds");
        assert_eq!(error("4\n\n3"), "line 3: 3 ms is before 4 ms on the line above it");
        assert!(error("").contains("at least one line"));
        assert!(error("0\n0\n").contains("above 0 ms"));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[0-9 \\n\\-x]{0,64}") {
            let _ = Trace::parse(&text);
        }

        #[test]
        fn the_first_opportunity_is_the_first_one_not_past(
            mut times in prop::collection::vec(0u32..50, 1..20),
            at in 0u64..400_000_000,
        ) {
            times.sort_unstable();
            times.push(times[times.len() - 1].max(1));
            let text: Vec<String> = times.iter().map(u32::to_string).collect();
            let trace = Trace::parse(&text.join("\n")).expect("reads");
            let at = Duration::from_nanos(at);
            let first = trace.first_from(at);
            prop_assert!(trace.time_of(first) >= at);
            prop_assert!(first == 0 || trace.time_of(first - 1) < at);
        }
    }
}
