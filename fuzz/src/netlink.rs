//! Answers and news of a kernel, as the readers of netlink see them, on any bytes.

pub fn run(bytes: &[u8]) {
    let _ = lasthop_kernel::netlink::hostile::read(bytes);
}
