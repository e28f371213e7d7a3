//! Datagrams of applications' UDP sockets, on any bytes: as the application sends them to the relay and as
//! they cross the hop; and what is said there of flows of packets.

use lasthop_session::flow_worth::FlowWorth;
use lasthop_session::socks::Datagram;
use lasthop_session::udp_relay::UdpRecord;

fn socks(datagram: &Datagram<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    datagram.encode(&mut out);
    out
}

/// One input.
pub fn run(bytes: &[u8]) {
    if let Ok(datagram) = Datagram::decode(bytes) {
        assert!(bytes.ends_with(datagram.payload));
        // A mapped address is written as the IPv4 address that it is.
        let written = socks(&datagram);
        let again = Datagram::decode(&written).expect("what was written");
        assert_eq!((again.payload, socks(&again)), (datagram.payload, written.clone()));
    }
    if let Ok(worth) = FlowWorth::decode(bytes) {
        let mut out = Vec::new();
        worth.encode(&mut out);
        assert_eq!(FlowWorth::decode(&out), Ok(worth));
    }
    if let Ok(record) = UdpRecord::decode(bytes) {
        let mut out = Vec::new();
        match record.encode(&mut out) {
            Ok(()) => assert_eq!(UdpRecord::decode(&out), Ok(record)),
            Err(_) => assert!(out.is_empty()),
        }
    }
}
