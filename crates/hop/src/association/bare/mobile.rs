//! How a mobile asks for an association by greetings.

use core::time::Duration;

use lasthop_units::{Seed, Stream as Numbers, Time};

use super::super::mobile::{LossHint, MobileEnd, MobileLink};
use super::Bare;
use crate::config::Limits;
use crate::greeting::LinkMessage;
use crate::mobile_tcp::{self, MobileTcp};
use crate::transport::Transport;

/// A mobile's bare link.
pub struct BareLink<A> {
    numbers: Numbers,
    life: u64,
    /// Where the base's answer came from: a carrier may know its address more exactly than it was
    /// configured.
    answers: Option<A>,
}

/// A mobile's end of a bare hop to one base.
///
/// The base no longer knows a mobile that comes from another address, as if it were restarted.
pub type BareMobile<A> = MobileEnd<BareLink<A>>;

impl<A: Copy + Eq> BareMobile<A> {
    /// A mobile that greets the base at `base` at once. `seed` tells its lives apart: it must differ
    /// each time that a mobile is started.
    pub fn new(config: mobile_tcp::Config, base: A, seed: Seed, now: Time) -> Self {
        let mut numbers = seed.stream("lives");
        let life = numbers.next_u64();
        Self::over(config, BareLink { numbers, life, answers: None }, base, now)
    }

    /// False if the word means nothing here.
    fn handle_word(&mut self, now: Time, from: A, packet: &[u8]) -> bool {
        match LinkMessage::decode(packet) {
            Some(LinkMessage::Answer { life, instance, first_stream })
                if life == self.link.life =>
            {
                self.handle_answer(now, from, instance, first_stream)
            }
            // Whoever sent it, the base's answer to a greeting decides.
            Some(LinkMessage::Unknown) if self.is_up() => {
                self.check_loss(now, LossHint::Unknown);
                true
            }
            _ => false,
        }
    }

    fn handle_answer(&mut self, now: Time, from: A, instance: u64, first_stream: u64) -> bool {
        let Some(asked) = self.take_pending() else { return false };
        self.link.answers = Some(from);
        if self.association.link().is_some_and(|link| link.instance == instance) {
            self.association.transport.probe(now);
            return true;
        }
        let link = Bare { life: self.link.life, instance, heard: now, check_at: None };
        let limits = Limits { first_stream, ..MobileTcp::limits(&self.config) };
        self.establish(now, &asked, link, &limits);
        true
    }
}

impl<A: Copy + Eq> MobileLink for BareLink<A> {
    type Address = A;
    type Transport = MobileTcp;
    type Link = Bare;
    type Question = ();

    const ASKS_ALONE: bool = true;
    const FOLLOWS: bool = false;
    const DOUBT_AGAIN: Duration = Duration::ZERO;

    fn overhead(&self, _config: &mobile_tcp::Config) -> usize {
        0
    }

    fn question(_mobile: &mut MobileEnd<Self>, _at: Time) -> Option<()> {
        Some(())
    }

    fn write(mobile: &MobileEnd<Self>, (): &(), out: &mut [u8]) -> Option<usize> {
        let first_stream = mobile.association.transport.first_stream();
        LinkMessage::Greeting { life: mobile.link.life, first_stream }.emit(out)
    }

    fn handle(mobile: &mut MobileEnd<Self>, now: Time, from: A, datagram: &mut [u8]) -> bool {
        if LinkMessage::is_one(datagram) {
            return mobile.handle_word(now, from, datagram);
        }
        // Before the answer to the first greeting, all that comes is an earlier life's.
        let known = from == mobile.bases.first() || mobile.link.answers == Some(from);
        known && mobile.deliver(now, from, datagram)
    }

    /// An answer to the life that is over means nothing.
    fn handle_lost(mobile: &mut MobileEnd<Self>) {
        mobile.link.life = mobile.link.numbers.next_u64();
        mobile.pending = None;
    }

    /// Packets that could not be read are among them.
    fn refused(mobile: &MobileEnd<Self>) -> u64 {
        mobile.refused + mobile.stats().malformed
    }
}
