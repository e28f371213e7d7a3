//! Configuration lines: a preset, then what differs from it.

use std::str::SplitWhitespace;
use std::time::Duration;

use lasthop_tcp::{
    Algorithm, BackoffReset, Coherence, Config, DelayedAck, LossBase, Persist, ShrunkWindow, Window,
};
use lasthop_units::{Bytes, parse_duration};

use super::parse::{choose, end, number, word};
use super::schemes::mobility;

/// Reno by the letter of RFC 5681 and 6298: exact clock, 1 s least timeout, no option but MSS, each
/// segment acknowledged at once.
pub(crate) fn rfc() -> Config {
    let mut config = Config {
        cwnd_max: None,
        recv_buffer: Bytes::new(20_000),
        window_scale: false,
        limited_transmit: false,
        loss_base: LossBase::Flight,
        time_wait: Duration::from_secs(60),
        ..Config::ns2()
    };
    config.rto.initial = Duration::from_secs(1);
    config.rto.min = Duration::from_secs(1);
    config.rto.tick = Duration::from_nanos(1);
    config.rto.forget_after = None;
    config
}

type Setter = fn(&mut Config, &mut SplitWhitespace<'_>) -> Result<(), String>;

const KEYS: [(&str, Setter); 33] = [
    ("preset", |c, w| put(c, preset(w))),
    ("mss", |c, w| put(&mut c.mss, number(w, "a segment size in bytes"))),
    ("initial-window", |c, w| put(&mut c.initial_cwnd, window(word(w, WINDOW)?))),
    ("ssthresh", |c, w| put(&mut c.initial_ssthresh, or_off(w, WINDOW, window))),
    ("cwnd-max", |c, w| put(&mut c.cwnd_max, or_off(w, WINDOW, window))),
    ("receive-buffer", |c, w| put(&mut c.recv_buffer, number(w, "bytes").map(Bytes::new))),
    ("send-buffer", |c, w| put(&mut c.send_buffer, number(w, "bytes").map(Bytes::new))),
    ("window-scale", |c, w| put(&mut c.window_scale, switch(w))),
    ("timestamps", |c, w| put(&mut c.timestamps, switch(w))),
    ("sack", |c, w| put(&mut c.sack, switch(w))),
    ("delayed-ack", |c, w| put(&mut c.delayed_ack, delayed_ack(w))),
    ("rto-initial", |c, w| put(&mut c.rto.initial, span(w))),
    ("rto-min", |c, w| put(&mut c.rto.min, span(w))),
    ("rto-max", |c, w| put(&mut c.rto.max, span(w))),
    ("tick", |c, w| put(&mut c.rto.tick, span(w))),
    ("fires-on-ticks", |c, w| put(&mut c.rto.fires_on_ticks, switch(w))),
    ("backoff-reset", |c, w| put(&mut c.rto.backoff_reset, choose(w, &RESETS))),
    ("forget-after", |c, w| put(&mut c.rto.forget_after, or_off(w, "expiries", count))),
    ("give-up-after", |c, w| put(&mut c.rto.give_up_after, or_off(w, "expiries", count))),
    ("nagle", |c, w| put(&mut c.nagle, switch(w))),
    ("persist", |c, w| put(&mut c.persist, persist(w))),
    ("shrunk-window", |c, w| put(&mut c.shrunk_window, choose(w, &SHRUNK))),
    ("limited-transmit", |c, w| put(&mut c.limited_transmit, switch(w))),
    ("restart-after-idle", |c, w| put(&mut c.restart_after_idle, switch(w))),
    ("cwnd-validation", |c, w| put(&mut c.cwnd_validation, switch(w))),
    ("loss-base", |c, w| put(&mut c.loss_base, choose(w, &LOSS_BASES))),
    ("time-wait", |c, w| put(&mut c.time_wait, span(w))),
    ("ecn", |c, w| put(&mut c.ecn, switch(w))),
    ("coherence", |c, w| put(&mut c.coherence, coherence(w))),
    ("delayed-dupacks", |c, w| put(&mut c.delayed_dupacks, or_off(w, "a duration", spanned))),
    ("eln", |c, w| put(&mut c.eln, switch(w))),
    ("mobility", |c, w| put(&mut c.mobility, mobility(w))),
    ("variant", |c, w| put(&mut c.algorithm, choose(w, &VARIANTS))),
];

const WINDOW: &str = "a window such as 4mss or 4000";
const RESETS: [(&str, BackoffReset); 2] =
    [("sample", BackoffReset::Sample), ("any-ack", BackoffReset::AnyAck)];
const SHRUNK: [(&str, ShrunkWindow); 2] =
    [("persist", ShrunkWindow::Persist), ("keep-timer", ShrunkWindow::KeepTimer)];
const LOSS_BASES: [(&str, LossBase); 2] =
    [("flight", LossBase::Flight), ("window", LossBase::Window)];
const VARIANTS: [(&str, Algorithm); 5] = [
    ("tahoe", Algorithm::Tahoe),
    ("reno", Algorithm::Reno),
    ("newreno", Algorithm::NewReno),
    ("sack", Algorithm::Sack),
    ("cubic", Algorithm::Cubic),
];

/// Applies a line `key value...`; `None` if there is no such key.
pub(crate) fn apply(
    config: &mut Config,
    key: &str,
    words: &mut SplitWhitespace<'_>,
) -> Option<Result<(), String>> {
    let (_, set) = KEYS.iter().find(|(name, _)| *name == key)?;
    Some(set(config, words).and_then(|()| end(words)))
}

fn put<T>(slot: &mut T, value: Result<T, String>) -> Result<(), String> {
    *slot = value?;
    Ok(())
}

fn preset(words: &mut SplitWhitespace<'_>) -> Result<Config, String> {
    let all = [
        ("rfc", rfc()),
        ("bsd", Config::bsd_1990s()),
        ("ns2", Config::ns2()),
        ("modern", Config::modern()),
    ];
    choose(words, &all)
}

fn switch(words: &mut SplitWhitespace<'_>) -> Result<bool, String> {
    choose(words, &[("on", true), ("off", false)])
}

fn span(words: &mut SplitWhitespace<'_>) -> Result<Duration, String> {
    parse_duration(word(words, "a duration such as 300ms")?).map_err(|e| e.to_string())
}

fn spanned(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|e| e.to_string())
}

/// `off`, or `50ms`, with `behind 1` after it for fewer neighbours.
fn coherence(words: &mut SplitWhitespace<'_>) -> Result<Option<Coherence>, String> {
    let hold = match word(words, "off or a duration")? {
        "off" => return Ok(None),
        text => spanned(text)?,
    };
    match words.next() {
        None => Ok(Some(Coherence::new(hold))),
        Some("behind") => Ok(Some(Coherence { hold, behind: number(words, "segments")? })),
        Some(other) => Err(format!("expected behind or nothing more, not `{other}`")),
    }
}

fn count(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("expected a number, not `{text}`"))
}

fn or_off<T>(
    words: &mut SplitWhitespace<'_>,
    what: &str,
    read: fn(&str) -> Result<T, String>,
) -> Result<Option<T>, String> {
    match word(words, what)? {
        "off" => Ok(None),
        text => read(text).map(Some),
    }
}

/// `4mss` or `4000`.
pub(crate) fn window(text: &str) -> Result<Window, String> {
    let fault = || format!("expected {WINDOW}, not `{text}`");
    match text.strip_suffix("mss") {
        Some(n) => n.parse().map(Window::Segments).map_err(|_| fault()),
        None => text.parse().map(|n| Window::Bytes(Bytes::new(n))).map_err(|_| fault()),
    }
}

/// `off`, or `200ms every 2`, with `on-ticks` after it for BSD's fast timer.
fn delayed_ack(words: &mut SplitWhitespace<'_>) -> Result<Option<DelayedAck>, String> {
    let timeout = match word(words, "off or a duration")? {
        "off" => return Ok(None),
        text => parse_duration(text).map_err(|e| e.to_string())?,
    };
    choose(words, &[("every", ())])?;
    let every = number(words, "a number of segments")?;
    let on_ticks = match words.next() {
        None => false,
        Some("on-ticks") => true,
        Some(other) => return Err(format!("expected on-ticks or nothing more, not `{other}`")),
    };
    Ok(Some(DelayedAck { timeout, every, on_ticks }))
}

/// `5s to 60s`, or `5s to 60s gives-up`.
fn persist(words: &mut SplitWhitespace<'_>) -> Result<Persist, String> {
    let min = span(words)?;
    choose(words, &[("to", ())])?;
    let max = span(words)?;
    let gives_up = match words.next() {
        None => false,
        Some("gives-up") => true,
        Some(other) => return Err(format!("expected gives-up or nothing more, not `{other}`")),
    };
    Ok(Persist { min, max, gives_up })
}
