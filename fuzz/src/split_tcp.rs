//! The base's end of a connection of `split-tcp`: greetings and records, of strangers and of insiders.

pub fn run(bytes: &[u8]) {
    let _ = lasthop_daemon::split::hostile::run(bytes);
}
