//! Wireless interfaces: how strong their signal is, and when they connect, roam and disconnect,
//! notified by nl80211. Asking and listening need no privilege.
//!
//! The kernel can also be told to watch the level itself (`NL80211_CMD_SET_CQM`). That is left to
//! the network manager, whose own setting it would replace, and which decides by it when to roam;
//! what the kernel tells on the manager's behalf is taken as another sample.

mod family;
mod message;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_sys::protocols::NETLINK_GENERIC;

use self::family::Family;
use self::message::{SignalNews, news, question};
use super::NetlinkError;
use super::channel::{Channel, Read};
use super::message::Message;

/// How many reads one turn makes; what is left is read in the next.
const READS_MAX: usize = 64;
/// Events that wait to be fetched; while there are more nothing is read.
const EVENTS_MAX: usize = 64;
/// A question that was not answered while so many more were due is given up.
const OVERDUE: u32 = 20;

/// Something of a wireless interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WirelessEvent {
    /// The interface's number.
    pub interface: u32,
    /// What is reported.
    pub what: Wireless,
}

/// Has this module's readers look at a message.
#[cfg(any(test, feature = "testing"))]
pub(super) fn read(message: &Message) {
    let _ = (family::of(message), news(message));
}

/// What is reported of a wireless interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wireless {
    /// What is received from its access point is so strong, in dBm.
    Signal(i16),
    /// It is connected: with its first access point, or with another one after its supplicant's
    /// choice.
    Connected,
    /// It went to another access point by its driver's choice.
    Roamed,
    /// It has lost its access point, or was not let in.
    Disconnected,
    /// There is no signal to be had of it: it is not wireless, or gone.
    Deaf,
}

/// A question to the kernel that is not answered in full.
#[derive(Clone, Copy, Debug)]
struct PendingQuery {
    sequence: u32,
    interface: u32,
    /// The strongest station so far. A mobile's interface has one, the access point.
    level: Option<i16>,
    /// How many more questions were due since.
    overdue: u32,
}

/// Asks and listens to nl80211.
///
/// It becomes readable when the kernel has something to tell; then
/// [`handle_ready`](Self::handle_ready), and [`poll_event`](Self::poll_event) until there is
/// nothing more. It never waits.
pub struct WirelessMonitor {
    channel: Channel,
    news: Interpreter,
}

impl WirelessMonitor {
    /// Listens in the calling thread's network namespace. `None` if the kernel knows nothing of
    /// wireless interfaces.
    ///
    /// # Errors
    ///
    /// There is no netlink socket to be had, or the kernel's answers are not.
    pub fn open() -> Result<Option<Self>, NetlinkError> {
        let Some(family) = family::resolve()? else { return Ok(None) };
        let groups: Vec<u32> = family.mlme.into_iter().collect();
        let channel = Channel::listening(NETLINK_GENERIC, &groups)?;
        Ok(Some(Self { channel, news: Interpreter::new(family) }))
    }

    /// Asks how strong the signal of an interface is. The answer is an event; a question that is
    /// not answered yet stands for the next.
    ///
    /// # Errors
    ///
    /// The question was not sent.
    pub fn query(&mut self, interface: u32) -> Result<(), NetlinkError> {
        if self.news.is_busy() {
            return Ok(());
        }
        let sequence = self.channel.request(question(self.news.family.id, interface))?;
        self.news.asked = Some(PendingQuery { sequence, interface, level: None, overdue: 0 });
        Ok(())
    }

    /// Reads what the kernel has to tell. `true` if there may be more: then it wants to be called
    /// again without waiting, after the events were fetched.
    pub fn handle_ready(&mut self) -> bool {
        for _ in 0..READS_MAX {
            if self.news.events.len() >= EVENTS_MAX {
                return true;
            }
            let news = &mut self.news;
            match self.channel.read(&mut |message| news.take(message)) {
                Ok(Read::Some(_)) => {}
                Ok(Read::Empty) => return false,
                Ok(Read::Overrun) => {
                    tracing::debug!("wireless events lost");
                    self.news.asked = None;
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot watch wireless interfaces");
                    return false;
                }
            }
        }
        true
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<WirelessEvent> {
        self.news.events.pop_front()
    }
}

impl AsFd for WirelessMonitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

/// Makes events of messages.
struct Interpreter {
    family: Family,
    asked: Option<PendingQuery>,
    events: VecDeque<WirelessEvent>,
}

impl Interpreter {
    fn new(family: Family) -> Self {
        Self { family, asked: None, events: VecDeque::new() }
    }

    /// Whether an answer is awaited that may still come.
    fn is_busy(&mut self) -> bool {
        let Some(asked) = &mut self.asked else { return false };
        asked.overdue += 1;
        if asked.overdue >= OVERDUE {
            self.asked = None;
        }
        self.asked.is_some()
    }

    fn take(&mut self, message: NetlinkMessage<Message>) {
        let (header, payload) = message.into_parts();
        let answer = |asked: &&mut PendingQuery| asked.sequence == header.sequence_number;
        match payload {
            NetlinkPayload::InnerMessage(message) if header.message_type == self.family.id => {
                let Some((interface, news)) = news(&message) else { return };
                match news {
                    SignalNews::Station(dbm) => {
                        // Stations that come and go are notified without a query, too.
                        if let Some(asked) = self.asked.as_mut().filter(answer) {
                            asked.level = asked.level.max(Some(dbm));
                        }
                    }
                    SignalNews::Level(dbm) => self.report(interface, Wireless::Signal(dbm)),
                    SignalNews::Connected => self.report(interface, Wireless::Connected),
                    SignalNews::Roamed => self.report(interface, Wireless::Roamed),
                    SignalNews::Disconnected => self.report(interface, Wireless::Disconnected),
                }
            }
            NetlinkPayload::Done(done) => {
                let Some(asked) = self.asked.take_if(|asked| answer(&asked)) else { return };
                // A list that cannot be made ends at once, with an error's number.
                if done.code < 0 {
                    self.fail(asked, &io::Error::from_raw_os_error(-done.code));
                } else if let Some(dbm) = asked.level {
                    self.report(asked.interface, Wireless::Signal(dbm));
                }
            }
            NetlinkPayload::Error(error) => {
                if let Some(asked) = self.asked.take_if(|asked| answer(&asked)) {
                    self.fail(asked, &error.to_io());
                }
            }
            _ => {}
        }
    }

    fn fail(&mut self, asked: PendingQuery, error: &io::Error) {
        let interface = asked.interface;
        tracing::debug!(interface, %error, "cannot read the signal level");
        self.report(interface, Wireless::Deaf);
    }

    fn report(&mut self, interface: u32, what: Wireless) {
        self.events.push_back(WirelessEvent { interface, what });
    }
}
