//! The lasthop command.

fn main() {}
