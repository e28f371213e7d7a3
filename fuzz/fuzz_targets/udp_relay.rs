#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| lasthop_fuzz::udp_relay::run(bytes));
