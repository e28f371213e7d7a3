//! The decoder of what agents say to each other, on any bytes.

use lasthop_wire::agent::Message;

/// One input: a datagram's payload. What it says comes back from its bytes.
pub fn run(bytes: &[u8]) {
    let Ok(message) = Message::parse(bytes) else { return };
    let mut out = [0; Message::MAX_LEN];
    let len = message.emit(&mut out).expect("room for any message");
    assert_eq!(Message::parse(&out[..len]), Ok(message));
}
