//! Rounds over all subjects in turn, and their statistics.

use lasthop_study::reproduce::processing::{Line, Missing, Point, StackCost};

use crate::clock::{Took, Whose, time};
use crate::fit::{line, median, quantile};
use crate::options::Options;

/// The paper's buffers (EXP-H1): from nearly nothing to a full packet.
pub(crate) const SIZES: [u32; 8] = [1, 100, 250, 500, 750, 1000, 1250, 1460];

/// A round is disturbed if it took so many times its CPU time.
const DISTURBED: f64 = 1.05;
/// How often a disturbed round is measured again.
const TRIES: u32 = 5;

/// The largest buffer that is sent at once.
pub(crate) const MOST: usize = 16 * 1024;

/// Something that can be measured by sending buffers to and fro.
pub(crate) trait Subject {
    /// Carries `data` from one of its two ends to the other, into `out`, which is as long.
    fn carry(&mut self, from: usize, data: &[u8], out: &mut [u8]) -> Result<(), String>;

    /// The end that sends takes what has arrived there, if it has not yet.
    fn settle(&mut self) {}

    /// Sends the buffer there and back, `times` over.
    fn ping_pong(&mut self, buffer: &mut [u8], times: u32) -> Result<(), String> {
        let mut other = [0; MOST];
        let other = other.get_mut(..buffer.len()).ok_or("too large a buffer")?;
        for _ in 0..times {
            self.carry(0, buffer, other)?;
            self.carry(1, other, buffer)?;
        }
        Ok(())
    }

    /// Sends the buffer one way, `times` over, with the receiver reading along.
    fn bulk(&mut self, buffer: &[u8], times: u32) -> Result<(), String> {
        let mut out = [0; MOST];
        let out = out.get_mut(..buffer.len()).ok_or("too large a buffer")?;
        for _ in 0..times {
            self.carry(0, buffer, out)?;
            self.settle();
        }
        Ok(())
    }

    /// Whose CPU time is the subject's.
    fn whose(&self) -> Whose {
        Whose::Thread
    }
}

/// A subject with its name and what its rounds took.
pub(crate) struct Entry {
    pub(crate) stack: &'static str,
    title: &'static str,
    pub(crate) subject: Box<dyn Subject>,
    /// By size: per buffer, round by round.
    samples: Vec<Vec<Took>>,
    /// Ping-pongs in a round, by size.
    times: Vec<u32>,
    failed: Option<String>,
}

impl Entry {
    pub(crate) fn new(
        stack: &'static str,
        title: &'static str,
        subject: impl Subject + 'static,
    ) -> Self {
        Self::boxed(stack, title, Box::new(subject))
    }

    pub(crate) fn boxed(
        stack: &'static str,
        title: &'static str,
        subject: Box<dyn Subject>,
    ) -> Self {
        let sizes = SIZES.len();
        let (samples, times) = (vec![Vec::new(); sizes], vec![1; sizes]);
        Self { stack, title, subject, samples, times, failed: None }
    }

    fn once(&mut self, at: usize, buffer: &mut [u8]) -> Option<Took> {
        if self.failed.is_some() {
            return None;
        }
        let times = self.times[at];
        let whose = self.subject.whose();
        let (took, result) = undisturbed(whose, || self.subject.ping_pong(buffer, times));
        if let Err(why) = result {
            self.failed = Some(why);
            return None;
        }
        let buffers = 2.0 * f64::from(times);
        Some(Took { wall: took.wall / buffers, cpu: took.cpu / buffers })
    }

    /// Doubles the ping-pongs of a round until one takes long enough; that warms caches too.
    fn calibrate(&mut self, at: usize, buffer: &mut [u8], round: f64) {
        while let Some(took) = self.once(at, buffer) {
            let whole = took.wall * 2.0 * f64::from(self.times[at]);
            if whole >= round || self.times[at] > 1 << 24 {
                break;
            }
            self.times[at] *= 2;
        }
    }

    /// The latencies of a size, round by round.
    pub(crate) fn latencies(&self, at: usize) -> Vec<f64> {
        self.samples[at].iter().map(|took| took.wall).collect()
    }

    fn point(&self, at: usize) -> Point {
        let latency = self.latencies(at);
        let cpu = median(&self.samples[at].iter().map(|took| took.cpu).collect::<Vec<_>>());
        Point {
            size: SIZES[at],
            latency_ns: median(&latency),
            latency_lo_ns: quantile(&latency, 0.25),
            latency_hi_ns: quantile(&latency, 0.75),
            cpu_ns: cpu,
            cpu_ns_per_kb: cpu * 1000.0 / f64::from(SIZES[at]),
            rounds: u32::try_from(latency.len()).unwrap_or(u32::MAX),
        }
    }

    /// What the rounds say.
    pub(crate) fn cost(&self) -> Result<StackCost, Missing> {
        let points: Vec<Point> = (0..SIZES.len()).map(|at| self.point(at)).collect();
        let fits = fit(&points, |p| p.latency_ns).zip(fit(&points, |p| p.cpu_ns));
        match (&self.failed, fits) {
            (None, Some((latency, cpu))) => Ok(StackCost {
                stack: self.stack.into(),
                title: self.title.into(),
                points,
                latency,
                cpu,
            }),
            (failed, _) => Err(Missing {
                stack: self.stack.into(),
                why: failed.clone().unwrap_or_else(|| "no round was measured".into()),
            }),
        }
    }
}

/// Does some work, again if the core was given to somebody else meanwhile: a subject that never waits
/// takes no more time than CPU time. On a machine that is too busy the last try counts.
fn undisturbed<T>(whose: Whose, mut work: impl FnMut() -> T) -> (Took, T) {
    let mut done = time(whose, &mut work);
    for _ in 0..TRIES {
        if whose == Whose::Process || done.0.wall <= DISTURBED * done.0.cpu {
            break;
        }
        done = time(whose, &mut work);
    }
    done
}

fn fit(points: &[Point], of: fn(&Point) -> f64) -> Option<Line> {
    line(&points.iter().map(|p| (f64::from(p.size), of(p))).collect::<Vec<_>>())
}

/// Measures all subjects with all sizes. They take turns within each round, so that whatever else
/// the machine does, and its clock rate, meets all of them alike.
pub(crate) fn run(entries: &mut [Entry], options: &Options, say: &mut dyn FnMut(&str)) {
    let mut buffer: Vec<u8> = (0..1460_u32).map(|n| (n * 31) as u8).collect();
    for entry in entries.iter_mut() {
        say(&format!("warming up: {}", entry.title));
        for (at, &size) in SIZES.iter().enumerate() {
            entry.calibrate(at, &mut buffer[..size as usize], options.round);
        }
    }
    for round in 0..options.rounds {
        if round % options.rounds.div_ceil(10).max(1) == 0 {
            say(&format!("ping-pong: round {} of {}", round + 1, options.rounds));
        }
        for (at, &size) in SIZES.iter().enumerate() {
            for entry in entries.iter_mut() {
                if let Some(took) = entry.once(at, &mut buffer[..size as usize]) {
                    entry.samples[at].push(took);
                }
            }
        }
    }
}

/// The median over `rounds` of what one piece of work takes, in nanoseconds of wall and CPU time,
/// with as many pieces in a round as fill `round`; and the quartiles of the wall time.
pub(crate) fn repeat(
    options: &Options,
    whose: Whose,
    mut work: impl FnMut(u32) -> bool,
) -> Option<Repeated> {
    let mut times = 1;
    loop {
        let (took, fine) = time(whose, || work(times));
        if !fine {
            return None;
        }
        if took.wall >= options.round || times > 1 << 24 {
            break;
        }
        times *= 2;
    }
    let per = f64::from(times);
    let (mut wall, mut cpu) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds {
        let (took, fine) = undisturbed(whose, || work(times));
        if !fine {
            return None;
        }
        wall.push(took.wall / per);
        cpu.push(took.cpu / per);
    }
    Some(Repeated {
        wall: median(&wall),
        lo: quantile(&wall, 0.25),
        hi: quantile(&wall, 0.75),
        cpu: median(&cpu),
    })
}

/// What [`repeat`] found, for one piece of work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Repeated {
    pub(crate) wall: f64,
    pub(crate) lo: f64,
    pub(crate) hi: f64,
    pub(crate) cpu: f64,
}
