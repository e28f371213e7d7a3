//! The decoder of connections that move from one kernel to another, on any bytes.

use lasthop_migrate::Image;

/// One input: a connection's image. What it says comes back from its bytes.
pub fn run(bytes: &[u8]) {
    let Ok(image) = Image::decode(bytes) else { return };
    assert!(image.unread() + image.outstanding() <= bytes.len());
    assert_eq!(Image::decode(&image.encode()), Ok(image));
}
