//! A plain tunnel of packets: what a TUN device hands over goes as one UDP datagram each, and back. It neither
//! encrypts nor repairs. It reads, cuts, puts together and writes as lasthop does, many packets in one system call. Its
//! two ends are subcommands of this command, so that they run as processes of their own.

use std::io::{ErrorKind, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;

use anyhow::{Context, Result, bail};
use clap::Args;
use lasthop_kernel::netlink::Rtnetlink;
use lasthop_kernel::netns::Netns;
use lasthop_kernel::packet_tun::PacketTun;
use lasthop_lab::process::Daemon;
use quinn_udp::{RecvMeta, Transmit, UdpSocketState};
use rustix::event::{PollFd, PollFlags, poll};

use super::Hosts;

/// The devices' network.
const PREFIX: u8 = 24;
/// Where the mobile's end listens.
const PORT: u16 = 4434;
/// Reads of the device, and of the socket, before the other has its turn.
const READS: usize = 32;
/// Room for what one call receives.
const BUFFERS: usize = 8;
const BUFFER: usize = 64 << 10;
const SOCKET_BUFFER: usize = 4 << 20;
/// What the kernel cuts into datagrams at once, at most.
const SEGMENTS: usize = 64;
const BYTES: usize = 65_000;

/// One end.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// The device's address
    #[arg(long)]
    address: IpAddr,
    /// The longest packet
    #[arg(long)]
    mtu: u16,
    /// Where to take datagrams
    #[arg(long)]
    listen: SocketAddr,
    /// Where to send them
    #[arg(long)]
    to: SocketAddr,
}

/// Starts both ends, the base's first; `inside` are the addresses of their devices.
pub(crate) fn start(hosts: &Hosts, inside: [IpAddr; 2], mtu: u16) -> Result<Vec<Daemon>> {
    let [a, b, c, _] = hosts.hop.ip().octets();
    let (base, mobile) = (SocketAddr::V4(hosts.hop), SocketAddr::from(([a, b, c, 2], PORT)));
    let program = std::env::current_exe().context("finding this command")?;
    let ends = [(&hosts.base, inside[0], base, mobile), (&hosts.mobile, inside[1], mobile, base)];
    let spawn = |(host, address, listen, to): (&Netns, IpAddr, SocketAddr, SocketAddr)| {
        let mut command = host.command(&program);
        command.args(["packet-tunnel", "--address", &address.to_string()]);
        command.args(["--mtu", &mtu.to_string()]);
        command.args(["--listen", &listen.to_string(), "--to", &to.to_string()]);
        Ok(Daemon::spawn(command)?)
    };
    ends.into_iter().map(spawn).collect()
}

/// A socket of the calling thread's host that sends and receives many datagrams at once, with room for them.
pub(crate) fn bind(at: SocketAddr) -> Result<(UdpSocket, UdpSocketState)> {
    let socket = UdpSocket::bind(at).with_context(|| format!("listening on {at}"))?;
    let state = UdpSocketState::new((&socket).into())?;
    for set in [UdpSocketState::set_send_buffer_size, UdpSocketState::set_recv_buffer_size] {
        set(&state, (&socket).into(), SOCKET_BUFFER)?;
    }
    Ok((socket, state))
}

/// Runs an end until it is killed.
pub(crate) fn run(options: &Options) -> Result<()> {
    let Some(mut device) = PacketTun::open("plain%d", 1, options.mtu)?.pop() else {
        bail!("the device has no queue");
    };
    let mut requests = Rtnetlink::open()?;
    let interface = requests.interface(device.name())?.index;
    requests.add_address(interface, (options.address, PREFIX))?;
    requests.set_up(interface, true)?;
    let (socket, state) = bind(options.listen)?;
    let mut out =
        Train { socket: &socket, state: &state, to: options.to, bytes: Vec::new(), size: 0 };
    let mut buffers = vec![vec![0; BUFFER]; BUFFERS];
    loop {
        let (tun, udp) = (device.as_fd(), socket.as_fd());
        let mut fds = [tun, udp].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for _ in 0..READS {
            if !device.receive(&mut |packet| out.add(packet))? {
                break;
            }
        }
        out.leave();
        for _ in 0..READS {
            let mut pieces: [_; BUFFERS] = std::array::from_fn(|_| IoSliceMut::new(&mut []));
            for (piece, buffer) in pieces.iter_mut().zip(&mut buffers) {
                *piece = IoSliceMut::new(buffer);
            }
            let mut metas = [RecvMeta::default(); BUFFERS];
            let Ok(n) = state.recv((&socket).into(), &mut pieces, &mut metas) else { break };
            for (meta, buffer) in metas[..n].iter().zip(&buffers) {
                buffer[..meta.len]
                    .chunks(meta.stride.max(1))
                    .for_each(|packet| device.send(packet));
            }
            if n < BUFFERS {
                break;
            }
        }
        device.flush();
    }
}

/// Packets that leave together: all as long as the first, but for the last.
struct Train<'a> {
    socket: &'a UdpSocket,
    state: &'a UdpSocketState,
    to: SocketAddr,
    bytes: Vec<u8>,
    size: usize,
}

impl Train<'_> {
    fn add(&mut self, packet: &[u8]) {
        let fits = self.bytes.len() + packet.len() <= BYTES
            && self.bytes.len() < self.size * SEGMENTS
            && packet.len() <= self.size
            && self.bytes.len().is_multiple_of(self.size.max(1));
        if !fits {
            self.leave();
            self.size = packet.len();
        }
        self.bytes.extend_from_slice(packet);
    }

    /// What the socket does not take is lost.
    fn leave(&mut self) {
        if self.bytes.is_empty() {
            return;
        }
        let transmit = Transmit {
            destination: self.to,
            ecn: None,
            contents: &self.bytes,
            segment_size: (self.bytes.len() > self.size).then_some(self.size),
            src_ip: None,
        };
        if let Err(error) = self.state.try_send(self.socket.into(), &transmit)
            && error.kind() != ErrorKind::WouldBlock
        {
            eprintln!("sending: {error}");
        }
        self.bytes.clear();
    }
}
