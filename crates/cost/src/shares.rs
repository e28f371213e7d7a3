//! Where the time goes (EXP-H5, figure 14).
//!
//! Layers are told apart by subtraction: the same stack is measured with and without each, in the
//! same rounds, and the median of the differences taken. What lies inside the transport, its checksum
//! and its copies, is timed apart and taken off.

use lasthop_study::reproduce::processing::Share;

use crate::fit::median;
use crate::meter::{Entry, SIZES};
use crate::options::Options;
use crate::sections::{self, Sections};

/// The sizes at which shares are told: the paper's smallest that it speaks of, and a full packet.
const AT: [u32; 2] = [100, 1460];

/// Bytes of a TCP and of a Mobile TCP header.
const TCP_HEADER: usize = 20;
const MOBILE_HEADER: usize = 16;

/// The shares of our TCP/IP and of Mobile TCP.
pub(crate) fn shares(entries: &[Entry], options: &Options) -> Vec<Share> {
    let mut shares = Vec::new();
    for size in AT {
        let Some(at) = SIZES.iter().position(|&s| s == size) else { continue };
        let rounds = Rounds { entries, at };
        let bytes = size as usize;
        shares.extend(tcp_ip(&rounds, &sections::time(options, bytes, TCP_HEADER)));
        let section = sections::time(options, bytes, MOBILE_HEADER);
        shares.extend(mobile_tcp(&rounds, &section));
    }
    shares
}

/// The rounds with buffers of one size.
struct Rounds<'a> {
    entries: &'a [Entry],
    at: usize,
}

impl Rounds<'_> {
    fn of(&self, stack: &str) -> Option<Vec<f64>> {
        let entry = self.entries.iter().find(|e| e.stack == stack)?;
        let values = entry.latencies(self.at);
        (!values.is_empty()).then_some(values)
    }

    fn median(&self, stack: &str) -> Option<f64> {
        self.of(stack).map(|values| median(&values))
    }

    /// What `with` takes more than `without`.
    fn difference(&self, with: &str, without: &str) -> Option<f64> {
        let (with, without) = (self.of(with)?, self.of(without)?);
        Some(median(&with.iter().zip(&without).map(|(a, b)| a - b).collect::<Vec<_>>()))
    }

    fn shares(&self, stack: &str, whole: f64, parts: &[(&str, f64)]) -> Vec<Share> {
        let share = |&(component, ns): &(&str, f64)| Share {
            stack: stack.into(),
            size: SIZES[self.at],
            component: component.into(),
            ns,
            percent: 100.0 * ns / whole,
        };
        parts.iter().map(share).collect()
    }
}

fn tcp_ip(rounds: &Rounds<'_>, timed: &Sections) -> Vec<Share> {
    let parts = || {
        let layer = rounds.difference("tcp-ip-shared", "tcp-ip-light")?;
        let copy = rounds.difference("tcp-ip-light", "tcp-ip-protocol")?
            + rounds.difference("tcp-ip", "tcp-ip-shared")?;
        let ip = rounds.difference("tcp-ip-protocol", "tcp-protocol")?;
        Some((rounds.median("tcp-ip")?, layer, copy, ip))
    };
    let Some((whole, layer, copy, ip)) = parts() else { return Vec::new() };
    let transport = whole - layer - copy - ip - timed.checksum - timed.copy - timed.link;
    let parts = [
        ("socket-layer", layer),
        ("socket-copy", copy),
        ("transport", transport),
        ("ip", ip),
        ("checksum", timed.checksum),
        ("copy", timed.copy),
        ("link", timed.link),
    ];
    rounds.shares("tcp-ip", whole, &parts)
}

fn mobile_tcp(rounds: &Rounds<'_>, timed: &Sections) -> Vec<Share> {
    let parts = || {
        let layer = rounds.difference("mobile-tcp-uncopied", "mobile-tcp-protocol")?;
        let copy = rounds.difference("mobile-tcp", "mobile-tcp-uncopied")?;
        Some((rounds.median("mobile-tcp")?, layer, copy))
    };
    let Some((whole, layer, copy)) = parts() else { return Vec::new() };
    let transport = whole - layer - copy - timed.checksum - timed.copy - timed.link;
    let parts = [
        ("socket-layer", layer),
        ("socket-copy", copy),
        ("transport", transport),
        ("checksum", timed.checksum),
        ("copy", timed.copy),
        ("link", timed.link),
    ];
    rounds.shares("mobile-tcp", whole, &parts)
}
