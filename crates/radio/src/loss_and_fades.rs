use alloc::vec::Vec;

use lasthop_units::{Duration, Seed, Stream, Time};

use crate::{Damage, Errors, Gap, Loss};

/// Fade changes walked through one by one in a single query; beyond, the chain jumps.
const LONGEST_WALK: u32 = 1 << 20;

/// What became of a transmission.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    Intact,
    Lost,
    Corrupted,
}

/// All error processes of a link.
#[derive(Debug)]
pub(crate) struct ErrorProcesses(Vec<(Process, Damage)>);

#[derive(Debug)]
enum Process {
    Uniform { probability: f64, stream: Stream },
    Burst(Burst),
    Fade(Fade),
}

impl ErrorProcesses {
    /// `link` seeds what is this direction's own, `fades` the fades, which two directions may
    /// share (ERR-4).
    pub(crate) fn new(losses: &[Loss], link: Seed, fades: Seed, now: Time) -> Self {
        // The position tells equal processes of one link apart.
        let names = ["0", "1", "2", "3", "4", "5", "6", "7"];
        let process = |(loss, name): (&Loss, &&str)| {
            let own = link.child("loss").stream(name);
            let process = match loss.errors {
                Errors::Uniform(probability) => Process::Uniform { probability, stream: own },
                Errors::Burst { gap, length } => Process::Burst(Burst::new(gap, length, own, now)),
                Errors::Fade { mean, share } => {
                    Process::Fade(Fade::new(mean, share, fades.child("fade").stream(name), now))
                }
            };
            (process, loss.damage)
        };
        Self(losses.iter().zip(&names).map(process).collect())
    }

    /// There is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Decides over the next transmission. Every process sees every packet, so that none depends
    /// on another.
    pub(crate) fn judge(&mut self, start: Time, end: Time) -> Outcome {
        let mut outcome = Outcome::Intact;
        for (process, damage) in &mut self.0 {
            if process.hits(start, end) {
                outcome = match (outcome, damage) {
                    (Outcome::Lost, _) | (_, Damage::Lose) => Outcome::Lost,
                    (_, Damage::Corrupt) => Outcome::Corrupted,
                };
            }
        }
        outcome
    }

    /// Runs the clocked processes up to `now`.
    pub(crate) fn advance(&mut self, now: Time) {
        for fade in self.fades() {
            fade.advance(now);
        }
    }

    /// Fades begun and time spent in them since the last [`ErrorProcesses::restart_counts`].
    pub(crate) fn fade_counts(&mut self, now: Time) -> (u64, Duration) {
        self.advance(now);
        self.fades().fold((0, Duration::ZERO), |(count, time), fade| {
            (count + fade.count, time.saturating_add(fade.time_faded(now)))
        })
    }

    pub(crate) fn restart_counts(&mut self, now: Time) {
        self.advance(now);
        for fade in self.fades() {
            fade.restart_counts(now);
        }
    }

    fn fades(&mut self) -> impl Iterator<Item = &mut Fade> {
        self.0.iter_mut().filter_map(|(process, _)| match process {
            Process::Fade(fade) => Some(fade),
            Process::Uniform { .. } | Process::Burst(_) => None,
        })
    }
}

impl Process {
    fn hits(&mut self, start: Time, end: Time) -> bool {
        match self {
            Self::Uniform { probability, stream } => stream.chance(*probability),
            Self::Burst(burst) => burst.hits(end),
            Self::Fade(fade) => fade.touches(start, end),
        }
    }
}

/// Exponential gaps, geometric bursts (LNK-4).
#[derive(Debug)]
struct Burst {
    stream: Stream,
    gap: Gap,
    length: f64,
    /// What the gap leaves when it is cut to whole packets: kept, so that the mean stays exact.
    fraction: f64,
    good: Good,
    bad: u64,
}

/// What is left of the gap.
#[derive(Debug)]
enum Good {
    Packets(u64),
    Until(Time),
}

impl Burst {
    fn new(gap: Gap, length: f64, stream: Stream, now: Time) -> Self {
        let mut burst = Self { stream, gap, length, fraction: 0.0, good: Good::Packets(0), bad: 0 };
        burst.draw_gap(now);
        burst.draw_length();
        burst
    }

    fn hits(&mut self, now: Time) -> bool {
        match &mut self.good {
            Good::Packets(0) => {}
            Good::Packets(left) => {
                *left -= 1;
                return false;
            }
            Good::Until(time) if now < *time => return false,
            Good::Until(_) => {}
        }
        self.bad -= 1;
        if self.bad == 0 {
            self.draw_gap(now);
            self.draw_length();
        }
        true
    }

    fn draw_gap(&mut self, now: Time) {
        self.good = match self.gap {
            Gap::Packets(mean) => {
                let gap = exponential(&mut self.stream, mean) + self.fraction;
                let whole = libm::floor(gap);
                self.fraction = gap - whole;
                Good::Packets(whole as u64)
            }
            Gap::Time(mean) => Good::Until(now + span(&mut self.stream, mean)),
        };
    }

    fn draw_length(&mut self) {
        self.bad = geometric(&mut self.stream, self.length);
    }
}

/// The two-state chain in clock time (ERR-1..3).
#[derive(Debug)]
struct Fade {
    stream: Stream,
    fade: Duration,
    good: Duration,
    share: f64,
    faded: bool,
    /// When the present state began and ends.
    since: Time,
    until: Time,
    /// When the last fade before the present state ended.
    last_end: Option<Time>,
    count: u64,
    total: Duration,
    counting_since: Time,
}

impl Fade {
    fn new(mean: Duration, share: f64, mut stream: Stream, now: Time) -> Self {
        let good = Duration::from_nanos((mean.as_nanos() as f64 * (1.0 - share) / share) as u64);
        // The chain starts in its stationary state, so that the share holds from the first packet.
        let faded = stream.chance(share);
        let until = now + span(&mut stream, if faded { mean } else { good });
        Self {
            stream,
            fade: mean,
            good,
            share,
            faded,
            since: now,
            until,
            last_end: None,
            count: u64::from(faded),
            total: Duration::ZERO,
            counting_since: now,
        }
    }

    /// Whether any of `[start, end]` lies in a fade (ERR-2). Queries must not go back in time.
    fn touches(&mut self, start: Time, end: Time) -> bool {
        self.advance(end);
        self.faded || self.last_end.is_some_and(|t| t > start)
    }

    fn advance(&mut self, now: Time) {
        let mut walked = 0;
        while self.until <= now {
            if walked == LONGEST_WALK {
                return self.jump(now);
            }
            walked += 1;
            self.change();
        }
    }

    fn change(&mut self) {
        let at = self.until;
        if self.faded {
            self.total += at.since(self.since.max(self.counting_since));
            self.last_end = Some(at);
        } else {
            self.count += 1;
        }
        self.faded = !self.faded;
        self.since = at;
        self.until = at + span(&mut self.stream, if self.faded { self.fade } else { self.good });
    }

    /// After a very long idle time the state is drawn anew: the chain has no memory. The counts
    /// grow by what is expected.
    fn jump(&mut self, now: Time) {
        let gap = now.since(self.until);
        self.count += (gap.as_secs_f64() * self.share / self.fade.as_secs_f64()) as u64;
        self.total = self.total.saturating_add(gap.mul_f64(self.share));
        self.faded = self.stream.chance(self.share);
        self.last_end = None;
        self.since = now;
        self.until = now + span(&mut self.stream, if self.faded { self.fade } else { self.good });
    }

    fn time_faded(&self, now: Time) -> Duration {
        let present = if self.faded {
            now.since(self.since.max(self.counting_since))
        } else {
            Duration::ZERO
        };
        self.total.saturating_add(present)
    }

    fn restart_counts(&mut self, now: Time) {
        self.count = u64::from(self.faded);
        self.total = Duration::ZERO;
        self.counting_since = now;
    }
}

fn exponential(stream: &mut Stream, mean: f64) -> f64 {
    // 1 - u is never zero; libm's logarithm is the same on every machine.
    -mean * libm::log(1.0 - stream.uniform())
}

fn span(stream: &mut Stream, mean: Duration) -> Duration {
    Duration::from_nanos(exponential(stream, mean.as_nanos() as f64) as u64)
}

/// A whole number from 1 up with this mean.
fn geometric(stream: &mut Stream, mean: f64) -> u64 {
    if mean <= 1.0 {
        return 1;
    }
    let u = libm::log(1.0 - stream.uniform());
    1 + (u / libm::log(1.0 - 1.0 / mean)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream() -> Stream {
        Seed::from_u64(5).stream("test")
    }

    #[test]
    fn draws_have_the_means_they_are_asked_for() {
        let mut s = stream();
        let n = 200_000;
        let mean = |total: f64| total / f64::from(n);
        let exponential = mean((0..n).map(|_| exponential(&mut s, 19.0)).sum());
        assert!((exponential - 19.0).abs() < 0.2, "{exponential}");
        let geometric3 = mean((0..n).map(|_| geometric(&mut s, 3.0) as f64).sum());
        assert!((geometric3 - 3.0).abs() < 0.05, "{geometric3}");
        assert!((0..n).all(|_| geometric(&mut s, 1.0) == 1));
    }

    /// ERR-1, ERR-3: the share of time in fades, and their mean, hold although nothing is sent.
    #[test]
    fn the_chain_runs_while_the_link_is_idle() {
        let fade = Duration::from_millis(17);
        let losses = [Loss::lose(Errors::Fade { mean: fade, share: 0.1 })];
        let seed = Seed::from_u64(1);
        let mut errors = ErrorProcesses::new(&losses, seed, seed, Time::ZERO);
        let now = Time::from_secs(10_000);
        let (count, time) = errors.fade_counts(now);
        let share = time.as_secs_f64() / now.as_secs_f64();
        assert!((share - 0.1).abs() < 0.003, "{share}");
        let mean = time.as_secs_f64() / count as f64;
        assert!((mean - 0.017).abs() < 0.0005, "{mean}");
    }

    /// ERR-2: air time that only grazes a fade is enough, and one that ends before it is not.
    #[test]
    fn a_packet_is_hit_if_its_air_time_touches_a_fade() {
        let ms = Time::from_millis;
        let mut fade = Fade::new(Duration::from_millis(10), 0.5, stream(), Time::ZERO);
        (fade.faded, fade.since, fade.until) = (false, Time::ZERO, ms(100));
        assert!(!fade.touches(ms(98), ms(99)));
        assert!(fade.touches(ms(99), ms(100)));
        (fade.faded, fade.since, fade.until) = (true, ms(100), ms(110));
        assert!(fade.touches(ms(105), ms(106)));
        fade.until = ms(110);
        fade.change();
        fade.until = ms(200);
        assert!(fade.touches(ms(109), ms(111)));
        assert!(!fade.touches(ms(110), ms(112)));
    }

    #[test]
    fn an_endless_idle_time_takes_bounded_work() {
        let losses = [Loss::lose(Errors::Fade { mean: Duration::from_micros(10), share: 0.5 })];
        let seed = Seed::from_u64(1);
        let mut errors = ErrorProcesses::new(&losses, seed, seed, Time::ZERO);
        let now = Time::from_secs(1_000_000_000);
        let (_, faded) = errors.fade_counts(now);
        let share = faded.as_secs_f64() / now.as_secs_f64();
        assert!((share - 0.5).abs() < 0.01, "{share}");
    }
}
