//! What a handoff did to a flow.

use lasthop_units::{Duration, Rate, Time};

use super::RateSeries;

/// A handoff: from the loss of service to its resumption.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Handoff {
    /// Service was lost.
    pub start: Time,
    /// Service resumed; `None` if it did not before the run ended.
    pub end: Option<Time>,
}

impl Handoff {
    /// MET-12: the handoff's latency, from the loss of service to `resume`; `None` if service did
    /// not resume.
    pub fn latency(&self) -> Option<Duration> {
        self.end.map(|end| end.since(self.start))
    }
}

/// MET-9: what a handoff did to a traffic rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HandoffEffect {
    /// The lowest rate of a whole bin from the handoff's start until recovery, or until the end of
    /// the observation.
    pub minimum: Rate,
    /// From the handoff's start to recovery; `None` if the rate did not recover.
    pub from_start: Option<Duration>,
    /// From the handoff's end to recovery; `None` if the rate or the service did not recover.
    pub from_end: Option<Duration>,
}

impl HandoffEffect {
    /// The share of the top rate that counts as recovered, in percent.
    pub const RECOVERED_PERCENT: u64 = 99;

    /// The effect of `handoff` on `series`, looked at up to `until`, such as the next handoff or
    /// the end of the run. `top` is the rate to recover to; if none is given it is the highest of
    /// a whole bin before the handoff.
    ///
    /// The rate has recovered with the first whole bin that begins when service is back or later
    /// and has 99 % of the top rate; the bin's beginning is the time of recovery. `None` if no
    /// whole bin lies between the handoff's start and `until`.
    pub fn of(
        handoff: &Handoff,
        series: &RateSeries,
        top: Option<Rate>,
        until: Time,
    ) -> Option<Self> {
        let top = top.unwrap_or_else(|| {
            let before = series.bins(Time::ZERO, handoff.start).map(|(_, rate)| rate);
            before.max().unwrap_or(Rate::ZERO)
        });
        let enough = u128::from(top.as_bps()) * u128::from(Self::RECOVERED_PERCENT);
        let is_top = |rate: Rate| u128::from(rate.as_bps()) * 100 >= enough;

        let mut minimum: Option<Rate> = None;
        // The bin in which the handoff starts belongs to it.
        for (begin, rate) in series.bins(series.bin_start(handoff.start), until) {
            if handoff.end.is_some_and(|end| begin >= end) && is_top(rate) {
                return Some(Self {
                    minimum: minimum.unwrap_or(rate),
                    from_start: Some(begin.since(handoff.start)),
                    from_end: handoff.end.map(|end| begin.since(end)),
                });
            }
            minimum = Some(minimum.map_or(rate, |least| least.min(rate)));
        }
        minimum.map(|minimum| Self { minimum, from_start: None, from_end: None })
    }
}

#[cfg(test)]
mod tests {
    use lasthop_units::Bytes;

    use super::*;

    /// 56 kbit/s but for the seconds in `dip`, whose rates in kbit/s are given.
    fn series(dip: &[(u64, u64)]) -> RateSeries {
        let mut series = RateSeries::new(Duration::from_secs(1));
        for second in 0..250 {
            let kbps = dip.iter().find(|(at, _)| *at == second).map_or(56, |(_, kbps)| *kbps);
            series.add(Time::from_millis(second * 1000 + 500), Bytes::new(kbps * 125));
        }
        series
    }

    fn handoff() -> Handoff {
        Handoff { start: Time::from_secs(115), end: Some(Time::from_millis(119_300)) }
    }

    const UNTIL: Time = Time::from_secs(250);

    /// MET-9: recovery is counted from the handoff's start, and from its end.
    #[test]
    fn recovery_is_told_from_the_start_and_from_the_end() {
        let dip = [(115, 30), (116, 0), (117, 0), (118, 0), (119, 20), (120, 55), (121, 56)];
        let effect = HandoffEffect::of(&handoff(), &series(&dip), None, UNTIL).unwrap();
        // 55 of 56 is 98.2 %.
        assert_eq!(
            effect,
            HandoffEffect {
                minimum: Rate::ZERO,
                from_start: Some(Duration::from_secs(6)),
                from_end: Some(Duration::from_millis(1700)),
            }
        );
    }

    /// MET-9: full bins while service is away, from what was buffered, are no recovery.
    #[test]
    fn nothing_recovers_before_service_is_back() {
        let effect = HandoffEffect::of(&handoff(), &series(&[(119, 50)]), None, UNTIL).unwrap();
        assert_eq!(effect.minimum, Rate::from_kbps(50));
        assert_eq!(effect.from_start, Some(Duration::from_secs(5)));
    }

    /// MET-9, MET-13: a rate that does not recover has no recovery time.
    #[test]
    fn what_does_not_recover_has_no_time() {
        let dip: Vec<_> = (115..250).map(|second| (second, 40)).collect();
        let none = HandoffEffect::of(&handoff(), &series(&dip), None, UNTIL).unwrap();
        assert_eq!((none.minimum, none.from_start), (Rate::from_kbps(40), None));
        let lost = Handoff { end: None, ..handoff() };
        assert_eq!(lost.latency(), None);
        let effect = HandoffEffect::of(&lost, &series(&[]), None, UNTIL).unwrap();
        assert_eq!(effect.from_start, None);
    }

    /// MET-9: the top rate may be given.
    #[test]
    fn a_lower_top_is_reached_earlier() {
        let dip = [(115, 0), (116, 0), (117, 0), (118, 0), (119, 0), (120, 30), (121, 45)];
        let top = Some(Rate::from_kbps(30));
        let effect = HandoffEffect::of(&handoff(), &series(&dip), top, UNTIL).unwrap();
        assert_eq!(effect.from_start, Some(Duration::from_secs(5)));
    }

    /// MET-12
    #[test]
    fn latency_lasts_from_loss_to_resume() {
        assert_eq!(handoff().latency(), Some(Duration::from_millis(4300)));
    }
}
