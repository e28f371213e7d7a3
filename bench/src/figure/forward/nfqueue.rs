//! The least that a process can do which the packet filter asks about every packet.

use anyhow::{Context, Result};
use nfq::{Queue, Verdict};

use super::path::READY;

/// Lets every packet of queue 0 pass, until it is killed.
pub(crate) fn run() -> Result<()> {
    let mut queue = Queue::open().context("opening a netfilter queue")?;
    queue.bind(0).context("binding to queue 0")?;
    // What the queue has no room for is lost: passed unseen, as fail-open has it, it would look as if
    // the process had done it.
    queue.set_fail_open(0, false).context("dropping what the queue has no room for")?;
    eprintln!("{READY}");
    loop {
        let mut message = queue.recv().context("receiving a packet")?;
        message.set_verdict(Verdict::Accept);
        queue.verdict(message).context("answering")?;
    }
}
