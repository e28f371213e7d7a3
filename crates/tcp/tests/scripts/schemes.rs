//! The setting `mobility`: a scheme's name, then what differs from its default.

use std::str::SplitWhitespace;
use std::time::Duration;

use lasthop_tcp::Mobility;
use lasthop_tcp::mobility::{Atcp, FastRetransmit, Freeze, Greet, LinkLayerFreeze, Thaw};
use lasthop_units::parse_duration;

use super::parse::{choose, number, word};

/// `off`, or a name and pairs such as `thaw complete`.
pub(crate) fn mobility(words: &mut SplitWhitespace<'_>) -> Result<Mobility, String> {
    let all = [
        ("off", Mobility::None),
        ("fast-retransmit", Mobility::FastRetransmit(FastRetransmit::default())),
        ("freeze", Mobility::Freeze(Freeze::default())),
        ("ll-freeze", Mobility::LinkLayerFreeze(LinkLayerFreeze::default())),
        ("atcp", Mobility::Atcp(Atcp::default())),
        ("greet", Mobility::Greet(Greet::default())),
    ];
    let mut scheme = choose(words, &all)?;
    while let Some(key) = words.next() {
        set(&mut scheme, key, words)?;
    }
    Ok(scheme)
}

fn set(scheme: &mut Mobility, key: &str, words: &mut SplitWhitespace<'_>) -> Result<(), String> {
    if key == "thaw" {
        *thaw(scheme)? = choose(words, &[("up", Thaw::Up), ("complete", Thaw::Complete)])?;
        return Ok(());
    }
    match (scheme, key) {
        (Mobility::FastRetransmit(it), "copies") => it.copies = copies(words)?,
        (Mobility::FastRetransmit(it), "sender") => it.sender = switch(words)?,
        (Mobility::Freeze(it), "before") => it.copies_before = copies(words)?,
        (Mobility::Freeze(it), "after") => it.acks_after = copies(words)?,
        (Mobility::Freeze(it), "bound") => it.bound = span(words)?,
        (Mobility::LinkLayerFreeze(it), "before") => it.copies_before = copies(words)?,
        (Mobility::LinkLayerFreeze(it), "after") => it.acks_after = copies(words)?,
        (Mobility::LinkLayerFreeze(it), "unforeseen") => it.acks_unforeseen = copies(words)?,
        (Mobility::LinkLayerFreeze(it), "bound") => it.bound = span(words)?,
        (Mobility::LinkLayerFreeze(it), "sender") => it.sender = switch(words)?,
        (Mobility::LinkLayerFreeze(it), "patience") => it.patience = span(words)?,
        (Mobility::Atcp(it), "delay") => it.delay = span(words)?,
        (Mobility::Atcp(it), "patience") => it.patience = span(words)?,
        (Mobility::Greet(it), "patience") => it.patience = span(words)?,
        _ => return Err(format!("this scheme has no `{key}`")),
    }
    Ok(())
}

fn thaw(scheme: &mut Mobility) -> Result<&mut Thaw, String> {
    match scheme {
        Mobility::None => Err("no scheme has no `thaw`".to_owned()),
        Mobility::FastRetransmit(it) => Ok(&mut it.thaw),
        Mobility::Freeze(it) => Ok(&mut it.thaw),
        Mobility::LinkLayerFreeze(it) => Ok(&mut it.thaw),
        Mobility::Atcp(it) => Ok(&mut it.thaw),
        Mobility::Greet(it) => Ok(&mut it.thaw),
    }
}

fn copies(words: &mut SplitWhitespace<'_>) -> Result<u8, String> {
    number(words, "a number of acknowledgements")
}

fn switch(words: &mut SplitWhitespace<'_>) -> Result<bool, String> {
    choose(words, &[("on", true), ("off", false)])
}

fn span(words: &mut SplitWhitespace<'_>) -> Result<Duration, String> {
    parse_duration(word(words, "a duration such as 300ms")?).map_err(|e| e.to_string())
}
