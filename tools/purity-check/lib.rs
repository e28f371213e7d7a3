//! Everything pure in one program without std. If any of it brought std along, there would be two
//! panic handlers, and the compiler would say so.

#![no_std]

use lasthop_agent as _;
use lasthop_hop as _;
use lasthop_radio as _;
use lasthop_session as _;
use lasthop_stream as _;
use lasthop_tcp as _;
use lasthop_units as _;
use lasthop_wire as _;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
