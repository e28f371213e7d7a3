//! Every stack delivers bytes exactly, through every socket layer.

use lasthop_units::{Seed, Stream};
use proptest::prelude::*;

use super::*;
use crate::socket::{Buffering, Light, Standard};
use crate::stack::{Endpoint, Mobile, TcpIp, Variant};

/// Carries pieces of these sizes both ways and compares every byte.
fn carries<S: Stack, L: Sockets<S>>(mut pair: Pair<S, L>, sizes: &[usize]) {
    let mut random: Stream = Seed::from_u64(1).stream("content");
    for (n, &size) in sizes.iter().enumerate() {
        let mut data = vec![0; size];
        random.fill(&mut data);
        let mut out = vec![0; size];
        pair.carry(n % 2, &data, &mut out).unwrap();
        assert!(out == data, "piece {n} of {size} bytes differs");
    }
}

fn sizes() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(prop_oneof![1_usize..1600, 1_usize..60_000], 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn tcp_delivers_exactly_through_every_socket_layer(sizes in sizes(), ip: bool, checksum: bool) {
        let stacks = || TcpIp::pair(Variant { ip, checksum });
        carries(Pair::new(stacks(), Light::default), &sizes);
        for buffering in [Buffering::Own, Buffering::Shared] {
            carries(Pair::new(stacks(), || Standard::new(buffering)), &sizes);
        }
    }

    /// MOB-45: the light socket library delivers exactly. MOB-47: so do the standard socket layer, with
    /// buffers of its own and shared ones, and the protocol under them is the same machine.
    #[test]
    fn mobile_tcp_delivers_exactly_through_every_socket_layer(sizes in sizes(), padded: bool) {
        let stacks = || Mobile::pair(if padded { 24 } else { 0 }).unwrap();
        carries(Pair::new(stacks(), Light::default), &sizes);
        for buffering in [Buffering::Own, Buffering::Shared] {
            carries(Pair::new(stacks(), || Standard::new(buffering)), &sizes);
        }
        carries(Pair::new(Endpoint::pair().unwrap(), Light::default), &sizes);
    }
}
