//! The decoders of Mobile IP's messages, on any bytes.

use lasthop_sim::mobile_ip::Message;

/// Takes a message to bytes and back; it is the same.
fn comes_back(message: Message, decode: fn(&[u8]) -> Option<Message>) {
    let again = message.encode();
    assert!(again.as_slice().len() as u64 <= message.size().get());
    assert_eq!(decode(again.as_slice()), Some(message));
}

/// One input: the payload of an ICMP packet and that of a UDP datagram.
pub fn run(bytes: &[u8]) {
    if let Some(message) = Message::decode_icmp(bytes) {
        assert!(message.is_icmp());
        comes_back(message, Message::decode_icmp);
    }
    if let Some(message) = Message::decode_udp(bytes) {
        assert!(!message.is_icmp());
        comes_back(message, Message::decode_udp);
    }
}
