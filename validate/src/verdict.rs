//! Whether a cell agrees.

use serde_json::{Value, json};

use crate::reference::{Cell, Mean, TOLERANCE};
use crate::run::Measured;

/// Where ns-2's mean comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// reference.toml.
    Reference,
    /// Runs made beside ours.
    Spot,
}

/// A cell that both sides have run.
#[derive(Clone, Debug)]
pub struct Compared {
    /// The cell's name.
    pub name: String,
    /// Its unit's name.
    pub unit: &'static str,
    /// ns-2's.
    pub ns2: Mean,
    /// Where that comes from.
    pub source: Source,
    /// What ns-2's runs needed, if they were made.
    pub ns2_runs: Option<Measured>,
    /// Ours.
    pub ours: Measured,
    /// The senders are known to differ.
    pub apart: bool,
    /// Ours must give this part of what ns-2 gives, or else agree.
    pub least: Option<f64>,
}

impl Compared {
    /// Compares with the reference, or with what ns-2 gave on the spot.
    pub fn new(cell: &Cell, ours: Measured, spot: Option<Measured>) -> Self {
        Self {
            name: cell.name(),
            unit: cell.unit.name(),
            ns2: spot.map_or(cell.ns2, |m| m.goodput),
            source: if spot.is_some() { Source::Spot } else { Source::Reference },
            ns2_runs: spot,
            ours,
            apart: cell.apart,
            least: cell.least,
        }
    }

    /// Our mean lies in ns-2's interval, widened; or is not below what is asked of it.
    pub fn agrees(&self) -> bool {
        let mean = self.ours.goodput.mean;
        match self.least {
            Some(part) => mean >= part * self.ns2.mean,
            None => self.ns2.widened(TOLERANCE).contains(mean),
        }
    }

    /// The cell is out although the senders should be alike.
    pub fn fails(&self) -> bool {
        !self.agrees() && !self.apart
    }

    /// `agrees`, `OUT`, or `apart` for what is out and known to differ.
    pub fn verdict(&self) -> &'static str {
        match (self.agrees(), self.apart) {
            (true, _) => "agrees",
            (false, true) => "apart",
            (false, false) => "OUT",
        }
    }

    /// By which part ours is above ns-2's.
    pub fn difference(&self) -> f64 {
        self.ours.goodput.mean / self.ns2.mean - 1.0
    }

    /// One JSON object.
    pub fn json(&self) -> Value {
        let allowed = self.ns2.widened(TOLERANCE);
        let (lo, hi) = match self.least {
            Some(part) => (part * self.ns2.mean, None),
            None => (allowed.lo, Some(allowed.hi)),
        };
        json!({
            "cell": self.name,
            "unit": self.unit,
            "source": match self.source { Source::Reference => "reference", Source::Spot => "ns-2" },
            "ns2": self.ns2.mean,
            "ns2_ci": self.ns2.ci,
            "ns2_runs": self.ns2_runs.map(|m| m.runs),
            "ns2_timeouts": self.ns2_runs.map(|m| m.timeouts),
            "ns2_retransmits": self.ns2_runs.map(|m| m.retransmits),
            "allowed_lo": lo,
            "allowed_hi": hi,
            "ours": self.ours.goodput.mean,
            "ours_ci": self.ours.goodput.ci,
            "ours_runs": self.ours.runs,
            "ours_timeouts": self.ours.timeouts,
            "ours_retransmits": self.ours.retransmits,
            "difference": self.difference(),
            "verdict": self.verdict(),
        })
    }

    /// The heading of [`Compared::line`]s, for names of at most `width` characters.
    pub fn heading(width: usize) -> String {
        format!(
            "{:width$}  {:>6}  {:>17}  {:>17}  {:>7}  verdict",
            "cell", "unit", "ns-2", "ours", "differs"
        )
    }

    /// One line of a table.
    pub fn line(&self, width: usize) -> String {
        format!(
            "{:width$}  {:>6}  {}  {}  {:>+6.1}%  {}",
            self.name,
            self.unit,
            shown(self.ns2),
            shown(self.ours.goodput),
            100.0 * self.difference(),
            self.verdict()
        )
    }
}

fn shown(m: Mean) -> String {
    format!("{:>9.2} ±{:<6.2}", m.mean, m.ci)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compared(ours: f64) -> Compared {
        let ours = Measured {
            goodput: Mean { mean: ours, ci: 0.1 },
            runs: 8,
            timeouts: 0.0,
            retransmits: 0.0,
        };
        Compared {
            name: "t/Reno/p1=0.1".into(),
            unit: "kB/s",
            ns2: Mean { mean: 20.0, ci: 0.5 },
            source: Source::Reference,
            ns2_runs: None,
            ours,
            apart: false,
            least: None,
        }
    }

    #[test]
    fn a_mean_within_the_widened_interval_agrees() {
        for (ours, agrees) in [(18.4, false), (18.6, true), (21.4, true), (21.6, false)] {
            assert_eq!(compared(ours).agrees(), agrees, "{ours}");
        }
    }

    #[test]
    fn what_may_do_better_has_only_a_floor() {
        for (ours, agrees) in [(17.9, false), (18.1, true), (40.0, true)] {
            let floor = Compared { least: Some(0.9), ..compared(ours) };
            assert_eq!(floor.agrees(), agrees, "{ours}");
        }
    }

    #[test]
    fn a_nan_never_agrees() {
        assert!(!compared(f64::NAN).agrees());
        assert!(!Compared { least: Some(0.9), ..compared(f64::NAN) }.agrees());
    }

    #[test]
    fn what_is_known_to_differ_fails_nothing() {
        let apart = Compared { apart: true, ..compared(2.0) };
        assert_eq!((apart.verdict(), apart.fails()), ("apart", false));
        assert_eq!((compared(2.0).verdict(), compared(2.0).fails()), ("OUT", true));
    }

    #[test]
    fn columns_line_up() {
        let (a, b) = (compared(20.0).line(30), compared(2.0).line(30));
        assert_eq!(a.find('±'), b.find('±'));
        assert!(a.ends_with("agrees") && b.ends_with("OUT"));
        assert_eq!(Compared::heading(30).find("verdict"), a.find("agrees").map(|n| n - 2));
    }
}
