//! What a radio could have carried at best.

use lasthop_radio::{LinkConfig, Pacing};
use lasthop_units::{Duration, Rate, Time};

/// The share of a full Ethernet frame's IP packet that is TCP payload with time stamps: the unit in
/// which goodput is compared with kernel TCP's.
pub const PAYLOAD_SHARE: f64 = 1448.0 / 1500.0;

/// A radio direction's rate at `at`.
pub(super) fn rate_at(link: &LinkConfig, at: Time) -> Rate {
    match &link.pacing {
        Pacing::Rate(rate) => *rate,
        Pacing::Trace(trace) => trace.mean_rate(),
        Pacing::Steps(steps) => {
            let mut since = at.since(Time::ZERO);
            if let Some(period) = steps.period {
                since = Duration::from_nanos((since.as_nanos() % period.as_nanos().max(1)) as u64);
            }
            let past = steps.steps.iter().rev().find(|s| s.at <= since);
            past.map_or(steps.initial, |s| s.rate)
        }
    }
}

/// Every pause that begins before `end`: when it begins and when it is over.
pub(super) fn pauses(link: &LinkConfig, end: Time) -> Vec<(Time, Time)> {
    let mut found = Vec::new();
    for pause in &link.pauses {
        let mut start = Time::ZERO + pause.start;
        let mut left = if pause.every.is_some() { pause.times.unwrap_or(u32::MAX) } else { 1 };
        while start < end && left > 0 {
            found.push((start, start + pause.duration));
            start += pause.every.unwrap_or(Duration::MAX);
            left -= 1;
        }
    }
    found.sort();
    found
}

/// The times before `end` at which the rate changes.
pub(super) fn steps(link: &LinkConfig, end: Time) -> Vec<Time> {
    let Pacing::Steps(steps) = &link.pacing else { return Vec::new() };
    let mut found = Vec::new();
    let mut begin = Time::ZERO;
    while begin < end {
        found.extend(steps.steps.iter().map(|s| begin + s.at).filter(|t| *t < end));
        begin += steps.period.unwrap_or(Duration::MAX);
    }
    found
}

/// The bits that fit through between two times, pauses left out and nothing lost.
pub(super) fn capacity(link: &LinkConfig, from: Time, to: Time) -> f64 {
    let mut edges = vec![from, to];
    edges.extend(steps(link, to).into_iter().filter(|t| *t > from));
    let pauses = pauses(link, to);
    for (start, end) in &pauses {
        edges.extend([*start, *end].into_iter().filter(|t| *t > from && *t < to));
    }
    edges.sort();
    let silent = |t: Time| pauses.iter().any(|(start, end)| *start <= t && t < *end);
    edges
        .windows(2)
        .filter(|w| !silent(w[0]))
        .map(|w| rate_at(link, w[0]).as_bps() as f64 * (w[1] - w[0]).as_secs_f64())
        .sum()
}

#[cfg(test)]
mod tests {
    use lasthop_radio::{Pause, RateStep, RateSteps};

    use super::*;

    #[test]
    fn pauses_and_steps_shape_what_fits() {
        let second = Duration::from_secs(1);
        let step = RateStep { at: second * 4, rate: Rate::from_mbps(4) };
        let link = LinkConfig {
            pacing: Pacing::Steps(RateSteps {
                initial: Rate::from_mbps(20),
                steps: vec![step],
                period: None,
            }),
            pauses: vec![Pause::once(second, second)],
            ..LinkConfig::default()
        };
        let all = capacity(&link, Time::ZERO, Time::from_secs(10));
        assert!((all - 84e6).abs() < 1.0, "{all}");
        let tail = capacity(&link, Time::from_secs(5), Time::from_secs(6));
        assert!((tail - 4e6).abs() < 1.0, "{tail}");
    }

    #[test]
    fn repeated_pauses_end_where_they_should() {
        let second = Duration::from_secs(1);
        let pause =
            Pause { every: Some(second * 5), times: Some(2), ..Pause::once(second, second) };
        let link = LinkConfig { pauses: vec![pause], ..LinkConfig::default() };
        let at = |s| Time::from_secs(s);
        assert_eq!(pauses(&link, at(100)), [(at(1), at(2)), (at(6), at(7))]);
        assert_eq!(pauses(&link, at(3)), [(at(1), at(2))]);
    }
}
