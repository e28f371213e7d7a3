//! A relayed connection whose fixed host is acknowledged what the mobile has.

use std::os::fd::AsFd;
use std::sync::{Arc, OnceLock};

use lasthop_hop::Streams;
use lasthop_hop::seal::PublicKey;
use lasthop_kernel::sockopt;
use lasthop_kernel::tcp::Socket;
use lasthop_migrate::{self as migrate, HeldFlow, Holding, Ticket};
use lasthop_session::acknowledge::{Control, Hold, Told};
use lasthop_session::{ConnId, Session};
use lasthop_units::{Duration, Time};

use crate::fleet::FleetKeys;
use crate::upward::{Relayed, Upward};

/// A receiver acknowledges every second segment (RFC 5681 section 4.2): less is worth an acknowledgement only where nothing
/// more is on its way to the mobile.
const WORTH: u64 = 2 * 1460;

/// A handshake ends after so long at the latest: fixed hosts answer again after a second (RFC 6298 section 2).
const OPENING_MAX: Duration = Duration::from_millis(900);

/// What holds the acknowledgements of connections, for all workers; nothing where it could not be had, or is yet to be.
pub(crate) type SharedHolding = Arc<OnceLock<Arc<Holding>>>;

/// What holds the acknowledgements of a mobile's connections, and for how long at most what it does not have.
#[derive(Clone, Debug)]
pub(crate) struct Holder {
    pub(crate) holding: SharedHolding,
    pub(crate) most: Duration,
    /// The mobile is given tickets of its connections, made with these keys, if there are some.
    pub(crate) tickets: FleetKeys,
    pub(crate) mobile: PublicKey,
}

/// What holds a connection's acknowledgements.
#[derive(Debug)]
pub(crate) struct Held {
    hold: Hold,
    flow: HeldFlow,
    control: Control,
    /// What another base needs to take it over, and whether the mobile is given that.
    ticket: Option<Ticket>,
    can_go_on: bool,
    /// When the fixed host answered.
    opened: Time,
    /// What the filter was told last.
    told: u64,
    /// How far the fixed host has what the mobile sends.
    upward: Upward,
    /// When its timer was set for.
    pub(crate) armed: Option<Time>,
}

impl Held {
    /// Of a connection that stands and of which nothing was read nor written, by a flow that was held before it was opened.
    pub(crate) fn opened(now: Time, mut flow: HeldFlow, holder: &Holder, socket: &Socket) -> Self {
        let mut control = HeldFlow::CONTROL;
        if let Ok(info) = sockopt::info(socket.fd.as_fd()) {
            control.window_scale = Some(if info.window_scaling { info.rcv_wscale } else { 0 });
            flow.agree(info.timestamps, control.window_scale.unwrap_or_default());
        }
        flow.set_control(control);
        let ticket = flow.ticket(&socket.fd);
        let ticket = ticket.inspect_err(|error| tracing::warn!(%error, "no ticket is made"));
        Self::new(now, flow, control, holder, ticket.ok(), 0)
    }

    /// Of a connection that was made anew, and of which so many bytes were taken before, the fixed host's end as one byte more.
    /// `None` if it was not held then.
    pub(crate) fn resumed(now: Time, flow: HeldFlow, holder: &Holder, taken: u64) -> Option<Self> {
        let migrate::Held { ticket, acknowledged, .. } = flow.before()?.clone();
        // Not more than was taken, and not much less.
        let acknowledged = taken.saturating_sub((taken as u32).wrapping_sub(acknowledged).into());
        let control = HeldFlow::resumed(ticket.window_scale());
        let mut held = Self::new(now, flow, control, holder, Some(ticket), acknowledged);
        held.on_read(now, taken);
        Some(held)
    }

    fn new(
        now: Time,
        flow: HeldFlow,
        control: Control,
        holder: &Holder,
        ticket: Option<Ticket>,
        acknowledged: u64,
    ) -> Self {
        Self {
            hold: Hold::resumed(now, holder.most, acknowledged),
            flow,
            control,
            can_go_on: !holder.tickets.is_empty() && ticket.is_some(),
            ticket,
            opened: now,
            told: acknowledged,
            upward: Upward::new(now),
            armed: None,
        }
    }

    /// What a base of the fleet needs to take it over, if one can.
    pub(crate) fn ticket(&self) -> Option<&Ticket> {
        self.ticket.as_ref().filter(|_| self.can_go_on)
    }

    /// What the next base needs to hold it as far.
    pub(crate) fn at_leaving(&self) -> Option<migrate::Held> {
        Some(self.flow.held(self.ticket.clone()?))
    }

    /// It was made anew: the fixed host is acknowledged what it was before, or may not have heard, so that it goes on at once
    /// instead of when its patience is over.
    pub(crate) fn wake(&self) {
        self.flow.tell(Told { offset: self.told as u32, echo: 0 });
        self.acknowledge();
    }

    /// The relay has read up to this offset, the fixed host's end as one byte more.
    pub(crate) fn on_read(&mut self, now: Time, offset: u64) {
        self.hold.on_received(now, offset, self.flow.seen().kernel_echo);
    }

    /// Acknowledges what the mobile has by now.
    pub(crate) fn advance(&mut self, now: Time, session: &Session, hop: &impl Streams, id: ConnId) {
        if let Some(offset) = session.acknowledged(hop, id) {
            self.end_opening();
            self.hold.on_confirmed(now, offset);
        }
        self.tell();
    }

    /// Time has passed. Whether the relay is to be [followed](Self::follow).
    pub(crate) fn handle_timeout(&mut self, now: Time) -> bool {
        if self.opened + OPENING_MAX <= now {
            self.end_opening();
        }
        self.hold.handle_timeout(now);
        self.tell();
        self.upward.handle_timeout(now)
    }

    /// The mobile knows that the connection stands: the fixed host may know it as well.
    fn end_opening(&mut self) {
        if std::mem::take(&mut self.control.opening) {
            self.flow.set_control(self.control);
            self.acknowledge();
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) is to be called, and the relay to be [followed](Self::follow).
    pub(crate) fn next_timeout(&self) -> Option<Time> {
        let opening = self.control.opening.then(|| self.opened + OPENING_MAX);
        [opening, self.hold.next_timeout(), self.upward.next()].into_iter().flatten().min()
    }

    /// Lets the mobile drop what the fixed host has of what was written to the socket.
    pub(crate) fn follow(
        &mut self,
        now: Time,
        session: &mut Session,
        hop: &mut impl Streams,
        id: ConnId,
        (socket, relayed): (&Socket, Relayed),
    ) {
        if self.can_go_on
            && let Some((behind, end)) = self.upward.look(now, &socket.fd, relayed)
        {
            session.release(hop, id, behind, end);
        }
    }

    /// Another base can take it over.
    pub(crate) fn can_go_on(&self) -> bool {
        self.can_go_on
    }

    /// The connection may end from here on: the mobile's application has said so, or nothing of it goes on.
    pub(crate) fn let_end(&mut self) {
        self.control.may_end = true;
        self.flow.set_control(self.control);
    }

    /// Its mobile is not here any more. Where another base can take it over nothing of it leaves from here on, since one may
    /// have.
    pub(crate) fn leave(&mut self) {
        self.control.mute = self.can_go_on;
        self.flow.set_control(self.control);
    }

    /// Its mobile is served no more, here or elsewhere: no other base takes it over, and its fixed host may hear of its end.
    pub(crate) fn renounce(&mut self) {
        (self.can_go_on, self.control.mute) = (false, false);
        self.let_end();
    }

    /// Nothing of it leaves.
    pub(crate) fn is_mute(&self) -> bool {
        self.control.mute
    }

    /// Everything has come to the mobile: what the kernel says of the connection's end is right.
    pub(crate) fn release(mut self, now: Time) {
        self.hold.on_confirmed(now, u64::MAX);
        self.tell();
        self.let_end();
    }

    fn tell(&mut self) {
        let due = self.hold.due();
        if due.offset == self.told {
            return;
        }
        self.told = due.offset;
        self.flow.tell(Told { offset: due.offset as u32, echo: due.echo });
        let seen = self.flow.seen();
        let ahead = (due.offset as u32).wrapping_sub(seen.let_out.wrapping_sub(seen.base));
        if self.hold.is_waiting() && u64::from(ahead) < WORTH {
            return;
        }
        self.acknowledge();
    }

    fn acknowledge(&self) {
        if let Err(error) = self.flow.acknowledge() {
            tracing::debug!(%error, "cannot send an acknowledgement");
        }
    }
}
