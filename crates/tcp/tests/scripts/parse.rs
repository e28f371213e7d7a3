//! Reads scripts. What cannot be read is refused with its file and line.

use std::str::{FromStr, SplitWhitespace};
use std::time::Duration;

use lasthop_units::{Bytes, LinkEvent, Time, parse_duration};
use lasthop_wire::tcp::Flags;

use super::script::{
    COUNTS, Check, ECN, EVENTS, FLAGS, Fault, Line, OptionShape, Quantity, SIZES, SPANS, STATES,
    Script, Shape, Step,
};
use super::settings;

/// A burst or a repetition in one line has at most so many segments.
const MOST_AT_ONCE: usize = 1000;
/// No segment carries more.
const LONGEST: u32 = u16::MAX as u32;

/// Reads the script `text`; `file` is its name in messages.
pub(crate) fn parse(file: &str, text: &str) -> Result<Script, Fault> {
    let mut reader = Reader {
        script: Script {
            file: file.to_owned(),
            config: settings::rfc(),
            tolerance: Duration::ZERO,
            lines: Vec::new(),
        },
        now: Time::ZERO,
    };
    for (n, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if !line.is_empty() {
            let fault = |what| Fault { file: file.to_owned(), line: n + 1, what };
            reader.line(n + 1, line).map_err(fault)?;
        }
    }
    if reader.script.lines.is_empty() {
        let what = "the script does nothing".to_owned();
        return Err(Fault { file: file.to_owned(), line: text.lines().count().max(1), what });
    }
    Ok(reader.script)
}

struct Reader {
    script: Script,
    now: Time,
}

impl Reader {
    fn line(&mut self, number: usize, line: &str) -> Result<(), String> {
        let (first, rest) = split(line);
        if self.setting(first, rest)? {
            return Ok(());
        }
        let timed = first.starts_with('+') || first.starts_with(|c: char| c.is_ascii_digit());
        let (name, rest) = if timed { split(rest) } else { (first, rest) };
        if timed {
            self.now = self.time(first)?;
        }
        let step = step(name, rest)?;
        let at = self.now;
        if let Step::Open { rtt, .. } = step {
            self.now += rtt;
        }
        self.script.lines.push(Line { number, at, step });
        Ok(())
    }

    /// Takes a configuration line; false if it is something else.
    fn setting(&mut self, key: &str, rest: &str) -> Result<bool, String> {
        let words = &mut rest.split_whitespace();
        if key == "tolerance" {
            self.script.tolerance = duration(word(words, "a duration")?)?;
            end(words)?;
        } else {
            match settings::apply(&mut self.script.config, key, words) {
                None => return Ok(false),
                Some(done) => done?,
            }
        }
        if self.script.lines.is_empty() {
            return Ok(true);
        }
        Err(format!("`{key}` must stand before the first line that does something"))
    }

    fn time(&self, text: &str) -> Result<Time, String> {
        if let Some(text) = text.strip_prefix('+') {
            return Ok(self.now + duration(text)?);
        }
        let at = Time::ZERO + duration(text)?;
        if at < self.now {
            return Err(format!("{at} is before {}, the time of the line above", self.now));
        }
        Ok(at)
    }
}

fn split(line: &str) -> (&str, &str) {
    line.split_once(char::is_whitespace).map_or((line, ""), |(a, b)| (a, b.trim_start()))
}

fn duration(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    parse_duration(text).map_err(|e| e.to_string())
}

/// The next word; `what` it should be if there is none.
pub(crate) fn word<'a>(words: &mut SplitWhitespace<'a>, what: &str) -> Result<&'a str, String> {
    words.next().ok_or_else(|| format!("expected {what} at the end of the line"))
}

pub(crate) fn number<T: FromStr>(words: &mut SplitWhitespace<'_>, what: &str) -> Result<T, String> {
    let text = word(words, what)?;
    text.parse().map_err(|_| format!("expected {what}, not `{text}`"))
}

/// The next word is one of these names.
pub(crate) fn choose<T: Copy>(
    words: &mut SplitWhitespace<'_>,
    names: &[(&str, T)],
) -> Result<T, String> {
    let known = || names.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    let text = words.next().ok_or_else(|| format!("expected one of: {}", known()))?;
    let found = names.iter().find(|(name, _)| *name == text);
    found.map(|(_, value)| *value).ok_or_else(|| format!("`{text}` is none of: {}", known()))
}

pub(crate) fn end(words: &mut SplitWhitespace<'_>) -> Result<(), String> {
    words.next().map_or(Ok(()), |more| Err(format!("`{more}` is one word too many")))
}

fn step(name: &str, rest: &str) -> Result<Step, String> {
    let words = &mut rest.split_whitespace();
    let step = match name {
        "<" => return segments(rest).map(Step::Inject),
        ">" if rest == "nothing" => return Ok(Step::ExpectNothing),
        ">" => return segments(rest).map(Step::Expect),
        "=" => Step::Check(check(words)?),
        "connect" => Step::Connect,
        "accept" => Step::Accept,
        "open" => open(words)?,
        "write" => Step::Write(Bytes::new(number(words, "bytes")?)),
        "read" => Step::Read(Bytes::new(number(words, "bytes")?)),
        "close" => Step::Close,
        "abort" => Step::Abort,
        "link" => Step::Link(link(words)?),
        "bad-state" => Step::BadState,
        "" => return Err("a time, and nothing that happens then".to_owned()),
        other => return Err(format!("`{other}` is no setting, no call and none of <, >, =")),
    };
    end(words)?;
    Ok(step)
}

fn open(words: &mut SplitWhitespace<'_>) -> Result<Step, String> {
    let rtt = duration(word(words, "the round trip")?)?;
    choose(words, &[("win", ())])?;
    Ok(Step::Open { rtt, window: number(words, "a window")? })
}

fn link(words: &mut SplitWhitespace<'_>) -> Result<LinkEvent, String> {
    match choose(words, &[("up", 0), ("down", 1), ("complete", 2), ("imminent", 3)])? {
        0 => Ok(LinkEvent::Up),
        1 => Ok(LinkEvent::Down),
        2 => Ok(LinkEvent::Complete),
        _ => Ok(LinkEvent::Imminent { lead: duration(word(words, "the lead")?)? }),
    }
}

fn check(words: &mut SplitWhitespace<'_>) -> Result<Check, String> {
    let name = word(words, "what is to be so")?;
    if let Some(size) = find(&SIZES, name) {
        return Ok(Check::Size(size, settings::window(word(words, "a size")?)?));
    }
    if let Some(span) = find(&SPANS, name) {
        return match word(words, "a duration or off")? {
            "off" => Ok(Check::Span(span, None)),
            text => Ok(Check::Span(span, Some(duration(text)?))),
        };
    }
    if let Some(count) = find(&COUNTS, name) {
        return Ok(Check::Count(count, number(words, "a number")?));
    }
    match name {
        "state" => choose(words, &STATES).map(Check::State),
        "in" => {
            choose(words, &[("recovery", Check::Recovering as fn(bool) -> Check)]).map(|c| c(true))
        }
        "not" => {
            choose(words, &[("in", ())])?;
            choose(words, &[("recovery", ())])?;
            Ok(Check::Recovering(false))
        }
        "events" => {
            let mut events = Vec::new();
            while words.clone().next().is_some() {
                events.push(choose(words, &EVENTS)?);
            }
            Ok(Check::Events(events))
        }
        other => Err(format!("`{other}` cannot be asked of a connection")),
    }
}

fn find<T>(all: &'static [Quantity<T>], name: &str) -> Option<&'static Quantity<T>> {
    all.iter().find(|quantity| quantity.name == name)
}

/// `FLAGS start:end [by N] [ack N] [win N] [times N] [ect] [<options>]`.
fn segments(text: &str) -> Result<Vec<Shape>, String> {
    let (text, options) = match text.split_once('<') {
        Some((text, options)) => (text, Some(read_options(options)?)),
        None => (text, None),
    };
    let words = &mut text.split_whitespace();
    let mut shape = Shape { flags: flags(word(words, "flags")?)?, options, ..Shape::default() };
    let (start, end) = range(word(words, "sequence numbers such as 1:1001")?)?;
    shape.seq = start;
    let (mut size, mut times, mut ack) = (end - start, 1, None);
    while let Some(key) = words.next() {
        match key {
            "by" => size = number(words, "a segment size")?,
            "ack" => ack = Some(number(words, "a sequence number")?),
            "win" => shape.window = Some(number(words, "a window of at most 65535")?),
            "times" => times = number(words, "a number")?,
            name if ECN.iter().any(|(known, _)| *known == name) => {
                shape.ecn = ECN.iter().find(|(known, _)| *known == name).map(|(_, ecn)| *ecn);
            }
            other => {
                return Err(format!("`{other}` is none of: by, ack, win, times, not-ect, ect, ce"));
            }
        }
    }
    if shape.flags.contains(Flags::ACK) != ack.is_some() {
        return Err("the flag A and an ack number go together".to_owned());
    }
    shape.ack = ack.unwrap_or_default();
    burst(&shape, end, size, times)
}

fn burst(shape: &Shape, end: u32, size: u32, times: usize) -> Result<Vec<Shape>, String> {
    let whole = end - shape.seq;
    if size > LONGEST || (size == 0 && whole > 0) {
        return Err(format!("a segment carries 1 to {LONGEST} bytes; cut it by a size"));
    }
    let pieces = whole.div_ceil(size.max(1)).max(1);
    let total = times.saturating_mul(pieces as usize);
    if total == 0 || total > MOST_AT_ONCE {
        return Err(format!("{total} segments in one line; 1 to {MOST_AT_ONCE} are possible"));
    }
    let piece = |n: u32| {
        let seq = shape.seq + n * size;
        Shape { seq, len: size.min(end - seq), ..shape.clone() }
    };
    Ok((0..times).flat_map(|_| (0..pieces).map(piece)).collect())
}

fn flags(text: &str) -> Result<Flags, String> {
    let mut all = Flags::empty();
    for letter in text.chars() {
        match FLAGS.iter().find(|(known, _)| *known == letter) {
            Some((_, flag)) if !all.contains(*flag) => all = all.with(*flag),
            _ => {
                return Err(format!(
                    "flags are letters of SFRPAUEC, each at most once, not `{text}`"
                ));
            }
        }
    }
    Ok(all)
}

fn range(text: &str) -> Result<(u32, u32), String> {
    let fault = || format!("expected sequence numbers such as 1:1001, not `{text}`");
    let (start, end) = text.split_once(':').ok_or_else(fault)?;
    let start: u32 = start.parse().map_err(|_| fault())?;
    let end: u32 = end.parse().map_err(|_| fault())?;
    if end < start {
        return Err(format!("`{text}` ends before it starts"));
    }
    Ok((start, end))
}

/// What stands after `<`: `mss N, ws N, sackOK, TS N ecr N, sack a:b ...>`.
fn read_options(text: &str) -> Result<OptionShape, String> {
    let inner = text.trim_end().strip_suffix('>').ok_or("the options have no `>` at their end")?;
    let mut options = OptionShape::default();
    for part in inner.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let words = &mut part.split_whitespace();
        match word(words, "an option")? {
            "mss" => options.mss = Some(number(words, "a segment size")?),
            "ws" => options.window_scale = Some(number(words, "a shift")?),
            "sackOK" => options.sack_permitted = true,
            "eln" => options.eln = true,
            "TS" => {
                let value = stamp(words)?;
                choose(words, &[("ecr", ())])?;
                options.timestamps = Some((value, stamp(words)?));
            }
            "sack" => {
                options.sack = words.by_ref().map(range).collect::<Result<_, _>>()?;
                if options.sack.is_empty() || options.sack.len() > 4 {
                    return Err("a sack option has one to four blocks such as 1:1001".to_owned());
                }
            }
            other => return Err(format!("`{other}` is none of: mss, ws, sackOK, TS, sack, eln")),
        }
        end(words)?;
    }
    Ok(options)
}

fn stamp(words: &mut SplitWhitespace<'_>) -> Result<Option<u32>, String> {
    match word(words, "a clock, or *")? {
        "*" => Ok(None),
        text => text.parse().map(Some).map_err(|_| format!("expected a clock or *, not `{text}`")),
    }
}
