//! What the radio does to a transfer: the columns of a demonstration.

use std::fmt;

use lasthop_radio::Errors;
use lasthop_units::Duration;

use crate::cell::Silence;
use crate::topology::Topology;

/// A condition of the radio. Losses and fades befall both directions, each independently.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Condition {
    /// This share of packets is lost, each by itself, in percent.
    Loss(u8),
    /// Fades of 17 ms mean in this share of the time, in percent; what touches one is lost.
    Fades(u8),
    /// The radio falls silent for this many milliseconds, beside a uniform loss in percent.
    Silence {
        /// For how long.
        ms: u32,
        /// Lost before and after.
        loss: u8,
    },
}

impl Condition {
    /// The conditions of `lasthop demo`.
    pub const DEMO: [Self; 5] = [
        Self::Loss(0),
        Self::Loss(5),
        Self::Loss(20),
        Self::Fades(10),
        Self::Silence { ms: 2800, loss: 5 },
    ];

    /// The default topology under this condition.
    pub fn topology(self) -> Topology {
        let uniform = |percent: u8| Errors::Uniform(f64::from(percent) / 100.0);
        match self {
            Self::Loss(0) | Self::Silence { loss: 0, .. } => Topology::default(),
            Self::Loss(percent) | Self::Silence { loss: percent, .. } => {
                Topology::losing(uniform(percent))
            }
            Self::Fades(percent) => Topology::losing(Errors::Fade {
                mean: Duration::from_millis(17),
                share: f64::from(percent) / 100.0,
            }),
        }
    }

    /// The silence, if there is one, a quarter into a part measured for `measured`.
    pub fn silence(self, measured: Duration) -> Option<Silence> {
        match self {
            Self::Silence { ms, .. } => {
                Some(Silence { after: measured / 4, lasting: Duration::from_millis(ms.into()) })
            }
            Self::Loss(_) | Self::Fades(_) => None,
        }
    }
}

/// A name without spaces: `loss-5`, `fades-10`, `silence-2.8`.
impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Loss(percent) => format!("loss-{percent}"),
            Self::Fades(percent) => format!("fades-{percent}"),
            Self::Silence { ms, .. } => format!("silence-{}", f64::from(*ms) / 1000.0),
        };
        f.pad(&name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_have_short_names_and_valid_radios() {
        let names = Condition::DEMO.map(|c| c.to_string());
        assert_eq!(names, ["loss-0", "loss-5", "loss-20", "fades-10", "silence-2.8"]);
        for condition in Condition::DEMO {
            let radio = condition.topology().radio;
            assert_eq!((radio.up.validate(), radio.down.validate()), (Ok(()), Ok(())));
        }
    }

    #[test]
    fn only_a_silence_is_silent() {
        let measured = Duration::from_secs(16);
        let silent = Condition::DEMO.map(|c| c.silence(measured).is_some());
        assert_eq!(silent, [false, false, false, false, true]);
        let silence = Condition::Silence { ms: 2800, loss: 5 }.silence(measured);
        assert_eq!(silence.map(|s| s.after), Some(Duration::from_secs(4)));
    }
}
