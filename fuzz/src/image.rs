//! The decoders of connections that move from one kernel to another, or are taken over, on any bytes.

use lasthop_migrate::{Image, Ticket};

/// One input: a connection's image or its ticket. What it says comes back from its bytes.
pub fn run(bytes: &[u8]) {
    if let Ok(ticket) = Ticket::decode(bytes) {
        assert_eq!(Ticket::decode(&ticket.encode()), Ok(ticket));
    }
    let Ok(image) = Image::decode(bytes) else { return };
    assert!(image.unread() + image.outstanding() <= bytes.len());
    assert_eq!(Image::decode(&image.encode()), Ok(image));
}
