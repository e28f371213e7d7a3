//! Ports on which the mobile accepts connections (MOB-8).

use lasthop_wire::mobile_tcp::{Code, Control};

use super::endpoint::MobileTcp;
use super::reply::Reply;

impl MobileTcp {
    /// Mobile: whether the base accepts connections for `port`; `None` while it has not answered.
    pub fn listening(&self, port: u16) -> Option<bool> {
        match self.ports.ours.get(&port) {
            None => Some(false),
            Some(port) if !port.acknowledged => None,
            Some(port) => Some(port.open && !port.denied),
        }
    }

    /// Base: whether the mobile has announced that it accepts connections to `port`.
    pub fn peer_listens(&self, port: u16) -> bool {
        self.ports.theirs.contains(&port)
    }

    pub(super) fn on_listen(&mut self, control: &Control) {
        let number = control.destination.port();
        let open = !control.code.contains(Code::FIN);
        if control.code.contains(Code::ACK) {
            self.ports.on_answer(number, open, control.code.contains(Code::RST));
            return;
        }
        let allowed =
            self.role == crate::transport::Role::Base && self.ports.on_announcement(number, open);
        let code =
            Code::LISTEN.with(Code::ACK).with_if(Code::FIN, !open).with_if(Code::RST, !allowed);
        let destination = control.destination;
        self.reply(Reply::Control(Control { code, destination, ..Control::default() }));
    }
}
