//! Several UDP sockets at one address (`SO_REUSEPORT`, socket(7)), and which of them a datagram comes to.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::net::sockopt as option;

use crate::sockopt;

/// socket(7); no library that is used here has its name.
const SO_ATTACH_REUSEPORT_CBPF: libc::c_int = 51;
/// No socket has this number: the kernel chooses by the addresses of both ends.
const BY_ADDRESSES: u32 = u32::MAX;

/// Where datagrams of one kind have the number by which they are steered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Numbered {
    /// The first byte of such a datagram.
    pub first_byte: u8,
    /// Where its number of 32 bits begins, most significant byte first.
    pub at: u32,
}

/// Lets the socket share its address with others of this user; call before it is bound. It is not told if another
/// process has the address and shares it too.
///
/// # Errors
///
/// The kernel knows no such option.
pub fn share(fd: impl AsFd) -> io::Result<()> {
    Ok(option::set_socket_reuseport(fd, true)?)
}

/// Of `sockets` sockets that share this one's address, a numbered datagram comes to that whose place, in the order in
/// which they were bound, is the remainder of its number. Others are spread by the addresses of both ends.
///
/// # Errors
///
/// The kernel refuses the program.
pub fn steer(fd: BorrowedFd<'_>, sockets: u32, numbered: &[Numbered]) -> io::Result<()> {
    sockopt::attach(fd, SO_ATTACH_REUSEPORT_CBPF, &program(sockets, numbered))
}

/// The program (classic BPF), which sees a datagram from its payload on.
fn program(sockets: u32, numbered: &[Numbered]) -> Vec<libc::sock_filter> {
    const LOAD: u32 = libc::BPF_LD | libc::BPF_ABS;
    let step = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let mut out = vec![step(LOAD | libc::BPF_B, 0)];
    for Numbered { first_byte, at } in numbered {
        let is_other = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
        out.push(libc::sock_filter { jf: 3, ..step(is_other, u32::from(*first_byte)) });
        out.push(step(LOAD | libc::BPF_W, *at));
        out.push(step(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, sockets));
        out.push(step(libc::BPF_RET | libc::BPF_A, 0));
    }
    out.push(step(libc::BPF_RET | libc::BPF_K, BY_ADDRESSES));
    out
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, UdpSocket};

    use super::*;

    #[test]
    fn a_numbered_datagram_comes_to_the_socket_of_its_number_and_others_to_any() {
        let mut addr: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let sockets: Vec<UdpSocket> = (0..3)
            .map(|_| {
                let socket = socket2::Socket::new(
                    socket2::Domain::IPV4,
                    socket2::Type::DGRAM.nonblocking(),
                    None,
                );
                let socket = socket.unwrap();
                share(&socket).unwrap();
                socket.bind(&addr.into()).unwrap();
                let socket: UdpSocket = socket.into();
                addr = socket.local_addr().unwrap();
                socket
            })
            .collect();
        let numbered = [Numbered { first_byte: 0x10, at: 2 }, Numbered { first_byte: 0x18, at: 1 }];
        steer(sockets[0].as_fd(), 3, &numbered).unwrap();
        let take = || {
            let mut taken = Vec::new();
            for (n, socket) in sockets.iter().enumerate() {
                while socket.recv(&mut [0; 16]).is_ok() {
                    taken.push(n);
                }
            }
            taken
        };
        let mut others = Vec::new();
        for number in 0..300_u32 {
            let from = UdpSocket::bind("127.0.0.1:0").unwrap();
            let number = number.wrapping_mul(0x9e37_79b9);
            let datagram = |first: &[u8]| [first, &number.to_be_bytes()].concat();
            for datagram in [datagram(&[0x10, 0]), datagram(&[0x18])] {
                from.send_to(&datagram, addr).unwrap();
                assert_eq!(take(), [(number % 3) as usize]);
            }
            // Neither is one that is cut short, nor one of another kind.
            from.send_to(&datagram(&[0x11, 0]), addr).unwrap();
            from.send_to(&[], addr).unwrap();
            others.extend(take());
        }
        assert_eq!(others.len(), 600);
        for n in 0..3 {
            assert!(others.iter().filter(|taken| **taken == n).count() > 20, "{n}");
        }
    }
}
