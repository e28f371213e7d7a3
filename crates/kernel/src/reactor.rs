//! One epoll set, and what each descriptor in it is for.

use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

use crate::slab::{Key, Slab};

/// How many ready descriptors one wake takes; the rest wait in the kernel for the next.
const EVENTS_MAX: usize = 512;

/// What a descriptor is watched for. All but one are edge-triggered: the kernel tells of a change once,
/// and the owner reads or writes until nothing moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Interest {
    /// Something to read or to accept.
    Read,
    /// Something to read, reported in each turn until all of it was read.
    ReadInShares,
    /// Both directions, urgent data, and the peer's half-close.
    ReadWrite,
}

impl Interest {
    fn flags(self) -> EventFlags {
        match self {
            Self::Read => EventFlags::IN | EventFlags::ET,
            Self::ReadInShares => EventFlags::IN,
            Self::ReadWrite => {
                let both = EventFlags::IN | EventFlags::OUT;
                both | EventFlags::PRI | EventFlags::RDHUP | EventFlags::ET
            }
        }
    }
}

/// What changed on a descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Readiness {
    /// A read would return bytes, an end, or an error.
    pub readable: bool,
    /// A write would take bytes, or return an error.
    pub writable: bool,
    /// The peer ended its direction or the connection broke: reading will come to an end, and
    /// nothing will tell so again.
    pub ended: bool,
    /// Among the bytes is a mark of urgent data, at which a read stops with more behind it.
    pub urgent: bool,
}

impl Readiness {
    fn of(flags: EventFlags) -> Self {
        let broken = flags.intersects(EventFlags::ERR | EventFlags::HUP);
        let ended = broken || flags.contains(EventFlags::RDHUP);
        Self {
            ended,
            urgent: flags.contains(EventFlags::PRI),
            readable: ended || flags.contains(EventFlags::IN),
            writable: broken || flags.contains(EventFlags::OUT),
        }
    }
}

/// Names one descriptor of a [`Reactor`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Token(Key);

/// An epoll set in which every descriptor stands for a `Source`.
pub struct Reactor<S> {
    epoll: OwnedFd,
    sources: Slab<S>,
}

impl<S: Copy> Reactor<S> {
    /// An empty set.
    pub fn new() -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        Ok(Self { epoll, sources: Slab::new() })
    }

    /// Watches `fd`; its events come back as `source`.
    pub fn add(&mut self, fd: impl AsFd, interest: Interest, source: S) -> io::Result<Token> {
        let key = self.sources.insert(source);
        let data = EventData::new_u64(key.to_u64());
        match epoll::add(&self.epoll, fd, data, interest.flags()) {
            Ok(()) => Ok(Token(key)),
            Err(e) => {
                self.sources.remove(key);
                Err(e.into())
            }
        }
    }

    /// Watches what was `opened` for reading. A loop does without what could not be opened; that it cannot do
    /// `what` is logged.
    ///
    /// # Errors
    ///
    /// It was opened, and the kernel does not watch it.
    pub fn add_optional<T: AsFd, E: fmt::Display>(
        &mut self,
        opened: Result<T, E>,
        source: S,
        what: &str,
    ) -> io::Result<Option<T>> {
        match opened {
            Ok(opened) => self.add(&opened, Interest::Read, source).map(|_| Some(opened)),
            Err(error) => {
                tracing::warn!(%error, "cannot {what}");
                Ok(None)
            }
        }
    }

    /// From here on the events of `token` come back as `source`.
    pub fn reassign(&mut self, token: Token, source: S) {
        if let Some(held) = self.sources.get_mut(token.0) {
            *held = source;
        }
    }

    /// Stops watching `fd`. Events that the kernel has already handed over are dropped.
    pub fn remove(&mut self, fd: impl AsFd, token: Token) {
        self.sources.remove(token.0);
        // The descriptor is valid and was added; the kernel has no reason left to refuse.
        let _ = epoll::delete(&self.epoll, fd);
    }

    /// Removes every descriptor that stands for a source that `which` names. Its owner is about to
    /// close it, which takes it out of the set.
    pub fn remove_where(&mut self, which: impl Fn(S) -> bool) {
        for key in self.sources.keys() {
            if self.sources.get(key).is_some_and(|source| which(*source)) {
                self.sources.remove(key);
            }
        }
    }

    /// Waits until something is ready or `timeout` has passed (`None`: for ever), and puts it into
    /// `ready`, which is emptied first.
    pub fn wait(
        &mut self,
        timeout: Option<Duration>,
        ready: &mut Vec<(S, Readiness)>,
    ) -> io::Result<()> {
        ready.clear();
        let timeout = timeout.map(|t| Timespec {
            tv_sec: i64::try_from(t.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: t.subsec_nanos().into(),
        });
        let mut events = [const { MaybeUninit::<Event>::uninit() }; EVENTS_MAX];
        let events = match epoll::wait(&self.epoll, &mut events, timeout.as_ref()) {
            Ok((events, _)) => events,
            Err(rustix::io::Errno::INTR) => return Ok(()),
            Err(e) => return Err(e.into()),
        };
        for event in events {
            let key = Key::from_u64(event.data.u64());
            if let Some(source) = self.sources.get(key) {
                ready.push((*source, Readiness::of(event.flags)));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn readiness_comes_back_as_the_source_and_only_once() {
        let mut reactor = Reactor::new().unwrap();
        let (mut a, b) = UnixStream::pair().unwrap();
        let token = reactor.add(&b, Interest::Read, 'b').unwrap();
        a.write_all(b"x").unwrap();
        let mut ready = Vec::new();
        reactor.wait(Some(Duration::from_secs(5)), &mut ready).unwrap();
        let readable = Readiness { readable: true, ..Readiness::default() };
        assert_eq!(ready, [('b', readable)]);
        reactor.wait(Some(Duration::ZERO), &mut ready).unwrap();
        assert!(ready.is_empty());
        reactor.reassign(token, 'c');
        a.write_all(b"x").unwrap();
        reactor.wait(Some(Duration::from_secs(5)), &mut ready).unwrap();
        assert_eq!(ready[0].0, 'c');
    }

    #[test]
    fn a_removed_descriptor_is_silent() {
        let mut reactor = Reactor::new().unwrap();
        let (mut a, b) = UnixStream::pair().unwrap();
        let token = reactor.add(&b, Interest::ReadWrite, ()).unwrap();
        reactor.remove(&b, token);
        a.write_all(b"x").unwrap();
        let mut ready = Vec::new();
        reactor.wait(Some(Duration::ZERO), &mut ready).unwrap();
        assert!(ready.is_empty());
    }
}
