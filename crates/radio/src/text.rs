//! The text forms of what configuration files and flags say about a link.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::str::{FromStr, SplitWhitespace};

use lasthop_units::{Bytes, Duration, Rate, parse_duration};
use thiserror::Error;

use crate::{Damage, Errors, Gap, Loss, Pause, QueueLimit, RateStep, Reorder};

/// A text that cannot be taken for what was expected.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum TextError {
    /// It describes none of what was expected.
    #[error("`{found}` is not {expected}")]
    Other {
        /// The text.
        found: String,
        /// What was expected, with an example.
        expected: &'static str,
    },
    /// It has a bare number where a percentage is meant: `1` might be 1 % or all there is.
    #[error("`{found}` is ambiguous: is it `{percent}%`, or `{share}%`? Write it with the %")]
    Ambiguous {
        /// The text.
        found: String,
        /// The number, as a percentage.
        percent: String,
        /// The number times 100, as a percentage.
        share: String,
    },
}

impl TextError {
    fn other(found: &str, expected: &'static str) -> Self {
        Self::Other { found: found.to_string(), expected }
    }
}

const LOSS: &str = "a loss such as `5%`, `burst 5% length 3`, `burst length 3 gap 60` (packets or a \
                    time), `fade 10% mean 17ms`, each with or without `corrupt` behind it";
const QUEUE: &str = "a queue limit such as `100 packets`, `64KiB` or `50ms`";
const PAUSE: &str = "a pause such as `2.8s at 4s` or `1s at 4s every 8s times 3`";
const STEP: &str = "a change of rate such as `4Mbit/s at 10s`";
const REORDER: &str = "a reordering such as `1% by 10ms`";
const SHARE: &str = "a share such as `5%`";

/// Reads words from the front of a text; `None` means that the text is not what was expected.
struct Words<'a>(SplitWhitespace<'a>);

impl<'a> Words<'a> {
    fn of(text: &'a str) -> Self {
        Self(text.split_whitespace())
    }

    fn next<T>(&mut self, read: impl Fn(&str) -> Option<T>) -> Option<T> {
        read(self.0.next()?)
    }

    fn word(&mut self, word: &str) -> Option<()> {
        self.next(|w| (w == word).then_some(()))
    }

    /// The value after `word`, if that comes next.
    fn option<T>(&mut self, word: &str, read: impl Fn(&str) -> Option<T>) -> Option<Option<T>> {
        if self.0.clone().next() != Some(word) {
            return Some(None);
        }
        self.0.next();
        self.next(read).map(Some)
    }

    fn end<T>(mut self, value: T) -> Option<T> {
        self.0.next().is_none().then_some(value)
    }
}

fn parse<T>(
    text: &str,
    expected: &'static str,
    read: impl Fn(Words<'_>) -> Option<T>,
) -> Result<T, TextError> {
    // People write `5 %` too.
    let tidy = text.replace(" %", "%");
    if let Some(value) = read(Words::of(&tidy)) {
        return Ok(value);
    }
    // Only a percentage can be meant where one would be understood.
    let words: Vec<&str> = tidy.split_whitespace().collect();
    let bare = words.iter().enumerate().find_map(|(n, word)| {
        let (before, after) = (words.get(..n)?.join(" "), words.get(n + 1..)?.join(" "));
        read(Words::of(&format!("{before} {word}% {after}")))?;
        Some((*word, number(word)?))
    });
    match bare {
        Some((word, number)) => Err(TextError::Ambiguous {
            found: text.to_string(),
            percent: word.to_string(),
            // Without the dust that multiplying fractions leaves in the last digits.
            share: format!("{}", libm::round(number * 1e14) / 1e12),
        }),
        None => Err(TextError::other(text, expected)),
    }
}

fn duration(text: &str) -> Option<Duration> {
    parse_duration(text).ok()
}

fn number(text: &str) -> Option<f64> {
    text.parse().ok().filter(|n: &f64| n.is_finite() && *n >= 0.0)
}

/// Reads a percentage. Nothing is nothing without the sign too.
fn fraction(text: &str) -> Option<f64> {
    let share = match text.strip_suffix('%') {
        Some(percent) => number(percent)? / 100.0,
        None => number(text).filter(|nothing| *nothing == 0.0)?,
    };
    (share <= 1.0).then_some(share)
}

/// Reads a share: `5%`.
pub(crate) fn share(text: &str) -> Result<f64, TextError> {
    parse(text, SHARE, |mut words| {
        let share = words.next(fraction)?;
        words.end(share)
    })
}

fn errors(words: &mut Words<'_>) -> Option<Errors> {
    let first = words.0.next()?;
    match first {
        "burst" => {
            if let Some(length) = words.option("length", number)? {
                words.word("gap")?;
                let gap =
                    words.next(|w| number(w).map(Gap::Packets).or(duration(w).map(Gap::Time)))?;
                return Some(Errors::Burst { gap, length });
            }
            let loss = words.next(fraction).filter(|&loss| loss > 0.0)?;
            words.word("length")?;
            words.next(number).map(|length| Errors::burst(loss, length))
        }
        "fade" => {
            let share = words.next(fraction)?;
            words.word("mean")?;
            words.next(duration).map(|mean| Errors::Fade { mean, share })
        }
        "uniform" => words.next(fraction).map(Errors::Uniform),
        share => fraction(share).map(Errors::Uniform),
    }
}

/// `5%`, `burst 5% length 3`, `burst length 3 gap 60`, `burst length 3 gap 2s`,
/// `fade 10% mean 17ms`; with `corrupt` behind it, packets are damaged instead of lost.
impl FromStr for Loss {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        parse(text, LOSS, |mut words| {
            let errors = errors(&mut words)?;
            let damage = match words.0.next() {
                None => Damage::Lose,
                Some("corrupt") => Damage::Corrupt,
                Some(_) => return None,
            };
            words.end(Self { errors, damage })
        })
    }
}

/// `100 packets`, `100` (packets), `64KiB`, `50ms`.
impl FromStr for QueueLimit {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        let packets = text.trim().strip_suffix("packets").unwrap_or(text).trim();
        let limit = packets
            .parse()
            .map(Self::Packets)
            .or_else(|_| parse_duration(text).map(Self::Time))
            .or_else(|_| text.parse::<Bytes>().map(Self::Bytes));
        limit.map_err(|_| TextError::other(text, QUEUE))
    }
}

/// `2.8s at 4s`, `1s at 4s every 8s`, `1s at 4s every 8s times 3`.
impl FromStr for Pause {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        parse(text, PAUSE, |mut words| {
            let length = words.next(duration)?;
            words.word("at")?;
            let start = words.next(duration)?;
            let every = words.option("every", duration)?;
            let times = match every {
                Some(_) => words.option("times", |w| w.parse().ok().filter(|&n: &u32| n > 0))?,
                None => None,
            };
            words.end(Self { start, duration: length, every, times })
        })
    }
}

/// `4Mbit/s at 10s`.
impl FromStr for RateStep {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        parse(text, STEP, |mut words| {
            let rate: Rate = words.next(|w| w.parse().ok())?;
            words.word("at")?;
            let at = words.next(duration)?;
            words.end(Self { at, rate })
        })
    }
}

/// `1% by 10ms`.
impl FromStr for Reorder {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        parse(text, REORDER, |mut words| {
            let probability = words.next(fraction)?;
            words.word("by")?;
            let extra = words.next(duration)?;
            words.end(Self { probability, extra })
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn losses_are_read_as_people_write_them() {
        assert_eq!("5%".parse(), Ok(Loss::lose(Errors::Uniform(0.05))));
        assert_eq!("5 % corrupt".parse(), Ok(Loss::corrupt(Errors::Uniform(0.05))));
        assert_eq!("0".parse(), Ok(Loss::lose(Errors::Uniform(0.0))));
        assert_eq!("burst 10% length 3".parse(), Ok(Loss::lose(Errors::burst(0.1, 3.0))));
        let burst = |gap| Loss::lose(Errors::Burst { gap, length: 3.0 });
        assert_eq!("burst length 3 gap 60".parse(), Ok(burst(Gap::Packets(60.0))));
        assert_eq!("burst length 3 gap 60ms".parse(), Ok(burst(Gap::Time(MS * 60))));
        let fade = Errors::Fade { mean: MS * 17, share: 0.1 };
        assert_eq!("fade 10% mean 17ms corrupt".parse(), Ok(Loss::corrupt(fade)));
    }

    #[test]
    fn queues_pauses_steps_and_reordering_are_read_as_people_write_them() {
        assert_eq!("100 packets".parse(), Ok(QueueLimit::Packets(100)));
        assert_eq!("100".parse(), Ok(QueueLimit::Packets(100)));
        assert_eq!("64KiB".parse(), Ok(QueueLimit::Bytes(Bytes::from_kib(64))));
        assert_eq!("50ms".parse(), Ok(QueueLimit::Time(MS * 50)));
        assert_eq!("2.8s at 4s".parse(), Ok(Pause::once(MS * 4000, MS * 2800)));
        let repeated = Pause { every: Some(MS * 8000), times: Some(3), ..Pause::once(MS, MS) };
        assert_eq!("1ms at 1ms every 8s times 3".parse(), Ok(repeated));
        let step = RateStep { at: MS * 10_000, rate: Rate::from_mbps(4) };
        assert_eq!("4Mbit/s at 10s".parse(), Ok(step));
        assert_eq!("1% by 10ms".parse(), Ok(Reorder { probability: 0.01, extra: MS * 10 }));
    }

    #[test]
    fn a_bare_number_is_no_percentage_and_the_error_says_how_to_write_it() {
        fn refuses<T: FromStr<Err = TextError>>(text: &str, readings: [&str; 2]) {
            let Err(error) = text.parse::<T>() else { panic!("{text} was read") };
            let error = error.to_string();
            assert!(error.contains(text) && error.contains("ambiguous"), "{error}");
            for reading in readings {
                assert!(error.contains(&format!("`{reading}%`")), "{error}");
            }
        }
        refuses::<Loss>("1", ["1", "100"]);
        refuses::<Loss>("0.05", ["0.05", "5"]);
        refuses::<Loss>("0.07 corrupt", ["0.07", "7"]);
        refuses::<Loss>("burst 0.1 length 3", ["0.1", "10"]);
        refuses::<Loss>("fade 1 mean 17ms", ["1", "100"]);
        refuses::<Reorder>("1 by 10ms", ["1", "100"]);
        refuses::<crate::Share>("0.5", ["0.5", "50"]);
    }

    #[test]
    fn what_cannot_be_read_is_named_with_what_was_expected() {
        fn refuses<T: FromStr<Err = TextError>>(texts: &[&str]) {
            for text in texts {
                let Err(error) = text.parse::<T>() else { panic!("{text} was read") };
                let error = error.to_string();
                assert!(error.contains(text) && error.contains("such as"), "{error}");
            }
        }
        refuses::<Loss>(&["", "101%", "-1%", "burst 5%", "burst 0% length 2", "5% corupt", "NaN"]);
        refuses::<Loss>(&[
            "fade 10%",
            "fade 10% mean 17",
            "5% corrupt now",
            "burst length 2 gap x",
        ]);
        refuses::<QueueLimit>(&["", "packets", "10 hats", "-5"]);
        refuses::<Pause>(&["1s", "1s at", "1s at 2s every", "1s at 2s times 3"]);
        refuses::<Pause>(&["1s at 2s every 3s times 0", "1s at 2s every 3s times 1 2"]);
        refuses::<RateStep>(&["10s", "4Mbit/s at", "4 Mbit/s at 1s"]);
        refuses::<Reorder>(&["1%", "1% by", "1% by 3", "200% by 3ms"]);
    }

    proptest! {
        #[test]
        fn no_text_makes_a_reader_panic(text in "[0-9a-z%. ]{0,40}") {
            let _ = text.parse::<Loss>();
            let _ = text.parse::<QueueLimit>();
            let _ = text.parse::<Pause>();
            let _ = text.parse::<RateStep>();
            let _ = text.parse::<Reorder>();
        }
    }
}
