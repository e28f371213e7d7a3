//! Hears what fixed hosts answer, although no socket of this host's is meant.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use lasthop_kernel::packet_socket;
use libc::{BPF_ABS, BPF_B, BPF_JEQ, BPF_JGT, BPF_JMP, BPF_K, BPF_LD, BPF_LEN, BPF_RET, BPF_W};
use libc::{ETH_P_IP, ETH_P_IPV6, sock_filter};
use rustix::net::RecvFlags;

/// No acknowledgement without data and no reset is longer, bytes: each header at its longest.
pub(super) const LONGEST: usize = 120;
/// So many addresses are told apart by the kernel; with more each is heard.
const ADDRESSES_MAX: usize = 64;
/// Room for a burst of answers, bytes as the kernel counts them: about a thousand in each.
const BUFFER: libc::c_int = 4 << 20;
/// So many packets are taken before anything else is done.
const TURN: usize = 512;
const TCP: u32 = 6;

/// A socket for what one version of IP has for some addresses.
#[derive(Debug)]
pub(super) struct Ear(OwnedFd);

impl Ear {
    /// Listens in the calling thread's network namespace for short TCP segments to these addresses, those of each version
    /// of IP by a socket of its own.
    pub(super) fn open(addresses: impl IntoIterator<Item = IpAddr>) -> io::Result<Vec<Self>> {
        let (v4, v6): (BTreeSet<IpAddr>, _) =
            addresses.into_iter().partition::<BTreeSet<_>, _>(IpAddr::is_ipv4);
        [(ETH_P_IP, v4), (ETH_P_IPV6, v6)]
            .into_iter()
            .filter(|(_, addresses)| !addresses.is_empty())
            .map(|(ethertype, addresses)| {
                let program = program(ethertype == ETH_P_IP, &addresses);
                packet_socket::listen(ethertype as u16, &program, BUFFER).map(Self)
            })
            .collect()
    }

    /// Hands over packets that have come. `true` if there may be more.
    pub(super) fn hear(&self, mut take: impl FnMut(&[u8])) -> bool {
        let mut packet = [0; LONGEST];
        for _ in 0..TURN {
            match rustix::net::recv(&self.0, &mut packet, RecvFlags::DONTWAIT) {
                Ok((_, length)) => take(packet.get(..length).unwrap_or_default()),
                Err(rustix::io::Errno::INTR) => {}
                // Also an interface that goes down: others may bring it.
                Err(_) => return false,
            }
        }
        true
    }
}

impl AsFd for Ear {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Lets short TCP segments to the addresses pass. It sees packets from their own header on.
fn program(is_ipv4: bool, addresses: &BTreeSet<IpAddr>) -> Vec<sock_filter> {
    let step = |code: u32, k: u32, jt, jf| sock_filter { code: code as u16, jt, jf, k };
    let load = |size, at| step(BPF_LD | size, at, 0, 0);
    let end = |length| step(BPF_RET | BPF_K, length, 0, 0);
    // Goes over so many steps if it is something else.
    let is = |value, over| step(BPF_JMP | BPF_JEQ | BPF_K, value, 0, over);
    let (protocol, destination) = if is_ipv4 { (9, 16) } else { (6, 24) };
    let mut out = vec![
        load(BPF_W | BPF_LEN, 0),
        // Ethernet may have put something behind it.
        step(BPF_JMP | BPF_JGT | BPF_K, LONGEST as u32, 0, 1),
        end(0),
        load(BPF_B | BPF_ABS, protocol),
        step(BPF_JMP | BPF_JEQ | BPF_K, TCP, 1, 0),
        end(0),
    ];
    if addresses.len() > ADDRESSES_MAX {
        out.push(end(LONGEST as u32));
        return out;
    }
    for address in addresses {
        let octets = match address {
            IpAddr::V4(ip) => ip.octets().to_vec(),
            IpAddr::V6(ip) => ip.octets().to_vec(),
        };
        let words = octets.as_chunks().0;
        for (n, word) in words.iter().enumerate() {
            let rest = 2 * (words.len() - 1 - n) + 1;
            out.push(load(BPF_W | BPF_ABS, destination + 4 * n as u32));
            out.push(is(u32::from_be_bytes(*word), rest as u8));
        }
        out.push(end(LONGEST as u32));
    }
    out.push(end(0));
    out
}
