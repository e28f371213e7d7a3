//! Connections whose acknowledgements are held, as a base has them.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use lasthop_session::acknowledge::{Control, Known, Seen, Slot, Told};

use super::Flow;
use super::ack_filter::{Acknowledgement, Injector, Slots};
use super::error::MigrateError;
use super::image::{Held, Image};
use super::ticket::Ticket;

/// The window that ends a handshake, bytes: less than any kernel has offered with the first segment.
const OFFERED: u32 = 32 * 1024;

/// What connections are held by: memory that the program shares which looks at what the kernel sends, and a socket for
/// acknowledgements of the base's own.
#[derive(Debug)]
pub struct Holding {
    slots: Slots,
    injector: Injector,
}

impl Holding {
    /// By the slots whose descriptor [`Admin::slots`](super::Admin::slots) has given.
    ///
    /// # Errors
    ///
    /// The memory cannot be had, or this process may not send raw packets (CAP_NET_RAW).
    pub fn new(slots: OwnedFd) -> Result<Self, MigrateError> {
        let fail = |e: &dyn fmt::Display| MigrateError::NotHeld { tried: e.to_string() };
        let slots = Slots::of(slots).map_err(|e| fail(&e))?;
        Ok(Self { slots, injector: Injector::open().map_err(|e| fail(&e))? })
    }

    /// Holds a connection by the slot that [`Admin::hold`](super::Admin::hold) has given. It is to be made next; `release` is
    /// called with it once this is dropped.
    pub fn hold(
        self: &Arc<Self>,
        flow: Flow,
        slot: u32,
        release: impl FnOnce(Flow) + Send + 'static,
    ) -> HeldFlow {
        let held = self.flow(flow, slot, release);
        held.set_control(HeldFlow::CONTROL);
        held
    }

    /// The same of a connection that is about to be made anew from this image, and whose acknowledgements were held before. Once
    /// it is, it is to be [told](HeldFlow::tell) how far, and to [acknowledge](HeldFlow::acknowledge) that.
    pub fn resume(
        self: &Arc<Self>,
        image: &Image,
        held: &Held,
        slot: u32,
        release: impl FnOnce(Flow) + Send + 'static,
    ) -> HeldFlow {
        let Held { ticket, acknowledged, inherited } = held;
        let base = ticket.first_received;
        let known = Known { base: true, kernel: true, ..Known::default() };
        // What the kernel sends first, a probe, has a number that lies before.
        let next_seq = image.snd_una.wrapping_add(image.unacknowledged.len() as u32);
        let seen = Seen {
            known,
            base,
            kernel_ack: image.rcv_nxt,
            next_seq,
            next_value: image.timestamp.unwrap_or_default(),
            ..Seen::default()
        };
        // The kernel's probe lies before the fixed host's window, which does not heed what it acknowledges. So that it does not
        // count as said, it says a byte less.
        let told = Told { offset: acknowledged.wrapping_sub(1), echo: 0 };
        let inherited = *inherited;
        self.slots.prepare(slot, &Slot { told, inherited, seen, ..Slot::default() });
        let mut flow = self.flow(image.flow(), slot, release);
        let (_, scale) = image.scales.unwrap_or_default();
        flow.set_control(HeldFlow::resumed(scale));
        flow.agree(image.timestamp.is_some(), scale);
        flow.before = Some(Box::new(held.clone()));
        flow
    }

    fn flow(
        self: &Arc<Self>,
        flow: Flow,
        slot: u32,
        release: impl FnOnce(Flow) + Send + 'static,
    ) -> HeldFlow {
        let (holding, release) = (Arc::clone(self), Some(Box::new(release) as Box<_>));
        HeldFlow { holding, flow, slot, packet: None, before: None, release }
    }
}

/// A connection that is held, until this is dropped.
pub struct HeldFlow {
    holding: Arc<Holding>,
    flow: Flow,
    slot: u32,
    packet: Option<Acknowledgement>,
    /// What was known of it when it was made anew.
    before: Option<Box<Held>>,
    release: Option<Box<dyn FnOnce(Flow) + Send>>,
}

impl HeldFlow {
    /// What is wanted of each to begin with.
    pub const CONTROL: Control = Control {
        live: true,
        hold: true,
        may_end: false,
        mute: false,
        opening: true,
        window_scale: None,
    };

    /// What is wanted to begin with of one that was made anew, with this scale of its window.
    pub fn resumed(window_scale: u8) -> Control {
        Control { opening: false, window_scale: Some(window_scale), ..Self::CONTROL }
    }

    /// What was known of it when it was made anew, if it was.
    pub fn before(&self) -> Option<&Held> {
        self.before.as_deref()
    }

    /// What another base needs to hold it as far as it was held here.
    pub fn held(&self, ticket: Ticket) -> Held {
        let Slot { seen: Seen { base, let_out, known, .. }, inherited, .. } = self.slot();
        let acknowledged = if known.let_out { let_out.wrapping_sub(base) } else { 0 };
        Held { ticket, acknowledged, inherited }
    }

    /// From here on this is wanted of it.
    pub fn set_control(&self, control: Control) {
        self.holding.slots.set_control(self.slot, control);
    }

    /// Nothing of it leaves from here on.
    pub fn mute(&self) {
        self.set_control(Control { mute: true, ..Self::CONTROL });
    }

    /// From here on so much may be acknowledged.
    pub fn tell(&self, told: Told) {
        self.holding.slots.tell(self.slot, told);
    }

    /// What was seen of it so far.
    pub fn seen(&self) -> Seen {
        self.slot().seen
    }

    fn slot(&self) -> Slot {
        self.holding.slots.get(self.slot).unwrap_or_default()
    }

    /// What another base needs to go on with the connection of this socket, which stands, and of which nothing was written.
    ///
    /// # Errors
    ///
    /// The kernel does not say what its ends agreed on, or has not acknowledged the fixed host's opening yet.
    pub fn ticket(&self, fd: impl AsFd) -> Result<Ticket, MigrateError> {
        let Seen { known, base, next_seq, next_value, .. } = self.seen();
        if !known.base || !known.kernel {
            return Err(MigrateError::NotYet);
        }
        Ticket::of(fd.as_fd(), self.flow, next_seq, base, next_value)
    }

    /// It stands, with timestamps or without, and its window is shifted by so much.
    pub fn agree(&mut self, timestamps: bool, window_scale: u8) {
        let window = (OFFERED >> window_scale.min(14)) as u16;
        self.packet = Acknowledgement::new(&self.flow, timestamps, window).ok();
    }

    /// Acknowledges what is told. Nothing is sent that says nothing new.
    ///
    /// # Errors
    ///
    /// The kernel does not take it, or the connection does not stand yet.
    pub fn acknowledge(&self) -> io::Result<()> {
        let packet = self.packet.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        self.holding.injector.send(packet)
    }
}

impl fmt::Debug for HeldFlow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldFlow").field("flow", &self.flow).field("slot", &self.slot).finish()
    }
}

impl Drop for HeldFlow {
    fn drop(&mut self) {
        // Until it is released nothing is held any more.
        self.set_control(Control::default());
        if let Some(release) = self.release.take() {
            release(self.flow);
        }
    }
}
