//! Observers: who looks at packets on their way, for captures and metrics.

use std::cell::RefCell;
use std::rc::Rc;

use lasthop_radio::Refusal;
use lasthop_units::Time;

use super::{Datagram, LinkId, NodeId};

/// A place at which packets can be watched.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TapPoint {
    /// The near end of a link: what is offered to it, refused packets too.
    LinkIn(LinkId),
    /// The far end of a link: what comes out.
    LinkOut(LinkId),
    /// A node: what comes in and what it offers to links.
    Node(NodeId),
}

/// What is seen of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sight {
    /// A link took it.
    Entered(LinkId),
    /// A link did not take it.
    Refused(LinkId, Refusal),
    /// It came out of a link.
    Left(LinkId),
    /// Its node has no route for it.
    Unroutable,
}

/// Somebody who watches packets. An observer sees; it changes nothing.
pub trait Observer {
    /// `packet` passed `point` at `now`. Refused and unroutable ones end here.
    fn handle_packet(&mut self, now: Time, point: TapPoint, sight: Sight, packet: &Datagram);
}

/// An observer that its owner can look into while the network holds it too.
pub type SharedObserver = Rc<RefCell<dyn Observer>>;

/// The observers of one point.
#[derive(Default)]
pub(super) struct Taps(Vec<SharedObserver>);

impl Taps {
    pub(super) fn add(&mut self, observer: SharedObserver) {
        self.0.push(observer);
    }

    #[inline]
    pub(super) fn show(&self, now: Time, point: TapPoint, sight: Sight, packet: &Datagram) {
        for observer in &self.0 {
            observer.borrow_mut().handle_packet(now, point, sight, packet);
        }
    }
}
