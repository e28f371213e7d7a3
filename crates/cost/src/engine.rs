//! Transports alone: a machine and its packets' bytes, with no socket layer, no link and nothing
//! below. Every packet is acknowledged by one of its own.

use lasthop_hop::mobile_tcp::{self, Terms};
use lasthop_tcp::{Ports, Socket};
use lasthop_units::{Bytes, Duration, Time};
use lasthop_wire::ip::Addresses;
use lasthop_wire::mobile_tcp::{Cid, Packet, Seq16};
use lasthop_wire::tcp::{Segment, Seq};

use crate::stack::tcp_config;

/// Between packets, as in [`crate::pair`].
const STEP: Duration = Duration::from_micros(1);

/// Two ends of one connection that hand each other packets.
pub(crate) trait Engine {
    /// Sends one packet of `size` bytes one way, takes it at the other end and reads it, and takes the
    /// acknowledgement if there is one; false if it did not arrive.
    fn packet(&mut self, size: usize) -> bool;
}

/// Mobile TCP's engine.
pub(crate) struct MobileTcp {
    sender: mobile_tcp::Connection,
    receiver: mobile_tcp::Connection,
    now: Time,
}

impl MobileTcp {
    pub(crate) fn new() -> Self {
        let config = mobile_tcp::Config {
            send_buffer: Bytes::from_kib(16),
            ack_every: 1,
            ..mobile_tcp::Config::default()
        };
        let now = Time::from_secs(1);
        let begin = |cid, send, recv| {
            let mut connection = mobile_tcp::Connection::new(&config, now);
            connection.begin(&Terms {
                cid: Cid(cid),
                send: Seq16(send),
                recv: Seq16(recv),
                window: 16 * 1024,
                max_packet: 1460,
            });
            connection
        };
        Self { sender: begin(1, 7, 9), receiver: begin(2, 9, 7), now }
    }
}

/// Hands every packet that one end has to the other.
fn hand_over(now: Time, from: &mut mobile_tcp::Connection, to: &mut mobile_tcp::Connection) {
    let mut packet = [0; 1500];
    while let Some(len) = from.poll(now, Bytes::new(u64::MAX), &mut packet) {
        if let Ok(Packet::Data(header, data)) = Packet::decode(&packet[..len]) {
            to.handle(now, &header, data);
        }
    }
}

impl Engine for MobileTcp {
    fn packet(&mut self, size: usize) -> bool {
        self.now += STEP;
        let mut left = size;
        while left > 0 {
            let n = self.sender.send_space().len().min(left);
            if n == 0 {
                return false;
            }
            self.sender.commit(n);
            left -= n;
        }
        hand_over(self.now, &mut self.sender, &mut self.receiver);
        let mut read = 0;
        while let n @ 1.. = self.receiver.received().len() {
            self.receiver.consume(n);
            read += n;
        }
        hand_over(self.now, &mut self.receiver, &mut self.sender);
        read == size
    }
}

/// TCP's.
pub(crate) struct Tcp {
    sender: Socket,
    receiver: Socket,
    now: Time,
}

const ADDRESSES: Addresses = Addresses::V4 {
    src: std::net::Ipv4Addr::new(10, 0, 0, 1),
    dst: std::net::Ipv4Addr::new(10, 0, 0, 2),
};

impl Tcp {
    /// `None` if the two do not open.
    pub(crate) fn new() -> Option<Self> {
        let config = lasthop_tcp::Config { delayed_ack: None, ..tcp_config() };
        let now = Time::from_secs(1);
        let ports = |local, remote| Ports { local, remote };
        let mut sender = Socket::connect(config, ports(1, 2), Seq(7), now);
        let mut room = [0; 1500];
        let syn = sender.poll_transmit(now, &mut room)?;
        let receiver = Socket::accept(config, ports(2, 1), &syn, Seq(9), now).ok()?;
        let mut it = Self { sender, receiver, now };
        pass(now, &mut it.receiver, &mut it.sender);
        pass(now, &mut it.sender, &mut it.receiver);
        it.receiver.connection().is_established().then_some(it)
    }
}

/// Hands every segment that one end has to the other.
fn pass(now: Time, from: &mut Socket, to: &mut Socket) {
    const HEADER: usize = 20;
    let mut packet = [0; 1500];
    while let Some(segment) = from.poll_transmit(now, &mut packet[HEADER..]) {
        let (header, len) = (segment.header_len() as usize, segment.len as usize);
        if header != HEADER {
            packet.copy_within(HEADER..HEADER + len, header);
        }
        let bytes = &mut packet[..header + len];
        if segment.emit_in_place(&ADDRESSES, bytes).is_err() {
            return;
        }
        if let Ok((segment, payload)) = Segment::parse(&ADDRESSES, bytes) {
            to.handle_segment(now, &segment, payload);
        }
    }
}

impl Engine for Tcp {
    fn packet(&mut self, size: usize) -> bool {
        self.now += STEP;
        let mut left = size;
        while left > 0 {
            let n = self.sender.send_space().len().min(left);
            if n == 0 {
                return false;
            }
            self.sender.commit(n);
            left -= n;
        }
        pass(self.now, &mut self.sender, &mut self.receiver);
        let mut read = 0;
        while let n @ 1.. = self.receiver.received().len() {
            self.receiver.consume(n);
            read += n;
        }
        pass(self.now, &mut self.receiver, &mut self.sender);
        read == size
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_packet_arrives_and_is_acknowledged() {
        let mut engines: [Box<dyn Engine>; 2] =
            [Box::new(MobileTcp::new()), Box::new(Tcp::new().unwrap())];
        for engine in &mut engines {
            for n in 0..100_000 {
                assert!(engine.packet(1 + n % 1460), "packet {n}");
            }
        }
    }
}
