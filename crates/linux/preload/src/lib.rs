//! The interposed `connect` of `lasthop exec`.
