//! What speed is claimed, and the runs that show it, peers included.

fn main() {}
