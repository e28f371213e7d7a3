//! Which frames the kernel hands to the agent, as a classic BPF program: those that the bridge's rules
//! ([`gate`](super::gate)) keep back.

use lasthop_wire::agent::beside::{ETHERTYPE, SUBTYPE};
use libc::{
    BPF_ABS, BPF_B, BPF_H, BPF_JEQ, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_RET, SKF_AD_OFF,
    SKF_AD_VLAN_TAG_PRESENT, sock_filter,
};

/// Ethernet types.
const IPV4: u32 = 0x0800;
const IPV6: u32 = 0x86dd;
/// What agents say to each other.
const BESIDE: u32 = ETHERTYPE as u32;
/// Where the Ethernet type is, and what follows from it.
const TYPE: u32 = 12;
const FIRST: u32 = 14;
const IPV4_FRAGMENT: u32 = 14 + 6;
const IPV4_PROTOCOL: u32 = 14 + 9;
const IPV6_NEXT: u32 = 14 + 6;
const TCP: u32 = 6;
/// More fragments, or not the first.
const FRAGMENT: u32 = 0x3fff;
/// As much of a frame as there is.
const ALL: u32 = u32::MAX;

/// How many instructions there are.
const LENGTH: usize = 16;

/// Plain TCP and, where the agent `speaks`, messages between agents; nothing with a VLAN tag,
/// which the kernel has taken off by the time that it looks here.
pub(super) fn program(speaks: bool) -> [sock_filter; LENGTH] {
    let load = |size, at| instruction(BPF_LD | size | BPF_ABS, at, 0, 0);
    let branch = |test, value, yes, no| instruction(BPF_JMP | test | BPF_K, value, yes, no);
    let end = |length| instruction(BPF_RET | BPF_K, length, 0, 0);
    [
        load(BPF_B, (SKF_AD_OFF + SKF_AD_VLAN_TAG_PRESENT).cast_unsigned()),
        branch(BPF_JEQ, 0, 0, 13),
        load(BPF_H, TYPE),
        branch(BPF_JEQ, BESIDE, if speaks { 8 } else { 11 }, 0),
        branch(BPF_JEQ, IPV6, 5, 0),
        branch(BPF_JEQ, IPV4, 0, 9),
        load(BPF_B, IPV4_PROTOCOL),
        branch(BPF_JEQ, TCP, 0, 7),
        load(BPF_H, IPV4_FRAGMENT),
        branch(BPF_JSET, FRAGMENT, 5, 4),
        load(BPF_B, IPV6_NEXT),
        branch(BPF_JEQ, TCP, 2, 3),
        load(BPF_B, FIRST),
        branch(BPF_JEQ, SUBTYPE as u32, 0, 1),
        end(ALL),
        end(0),
    ]
}

const fn instruction(code: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code: code as u16, jt, jf, k }
}

#[cfg(test)]
mod tests {
    use super::super::ethernet::tests::frame;
    use super::*;

    /// Runs the program over a frame; what the kernel does, for the instructions that there are.
    fn passes_by(program: &[sock_filter], frame: &[u8], tagged: bool) -> bool {
        let (mut at, mut a) = (0, 0_u32);
        loop {
            let i = program[at];
            at += 1;
            let code = u32::from(i.code);
            let jump = |taken: bool| usize::from(if taken { i.jt } else { i.jf });
            match code & 0x07 {
                BPF_RET => return i.k > 0,
                BPF_LD if i.k > 0x8000_0000 => a = tagged.into(),
                BPF_LD => {
                    let at = i.k as usize;
                    let size = if code & 0x18 == BPF_B { 1 } else { 2 };
                    let Some(bytes) = frame.get(at..at + size) else { return false };
                    a = bytes.iter().fold(0, |n, b| n << 8 | u32::from(*b));
                }
                _ if code & 0xf0 == BPF_JEQ => at += jump(a == i.k),
                _ => at += jump(a & i.k != 0),
            }
        }
    }

    fn passes(frame: &[u8], tagged: bool) -> bool {
        passes_by(&program(true), frame, tagged)
    }

    #[test]
    fn who_speaks_to_no_agent_takes_plain_tcp_only() {
        let hello = frame(0x88b6, &[(14, 0xff)]);
        let silent = program(false);
        assert!(passes(&hello, false) && !passes_by(&silent, &hello, false));
        for (ethertype, protocol) in [(0x0800, 23), (0x86dd, 20)] {
            assert!(passes_by(&silent, &frame(ethertype, &[(protocol, 6)]), false));
        }
    }

    #[test]
    fn plain_tcp_and_agents_pass_and_nothing_else() {
        let tcp4 = frame(0x0800, &[(23, 6)]);
        assert!(passes(&tcp4, false) && !passes(&tcp4, true));
        assert!(passes(&frame(0x0800, &[(23, 6), (20, 0x40)]), false), "not to be fragmented");
        assert!(!passes(&frame(0x0800, &[(23, 17)]), false));
        assert!(!passes(&frame(0x0800, &[(23, 6), (20, 0x20)]), false), "more fragments");
        assert!(!passes(&frame(0x0800, &[(23, 6), (21, 1)]), false), "a later fragment");
        assert!(passes(&frame(0x86dd, &[(20, 6)]), false));
        assert!(!passes(&frame(0x86dd, &[(20, 44)]), false), "a fragment header");
        assert!(!passes(&frame(0x86dd, &[(20, 0)]), false), "a hop-by-hop header");
        let hello = frame(0x88b6, &[(14, 0xff)]);
        assert!(passes(&hello, false) && !passes(&hello, true));
        assert!(!passes(&frame(0x88b6, &[(14, 0x05)]), false), "a hop datagram");
        for other in [0x0806, 0x8100, 0x88a8, 0x88b5, 0x88cc] {
            assert!(!passes(&frame(other, &[(23, 6), (20, 6)]), false));
        }
        assert!(!passes(&[0; 12], false));
    }
}
