//! Many idle mobiles in one thread: the machines of a mobile, each with a socket and an address of its own, and
//! connections that carry nothing.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result, anyhow, bail};
use lasthop_hop::seal::{Keypair, PublicKey};
use lasthop_hop::{AssociationEvent, HopConfig, Mobile, Unreachable};
use lasthop_kernel::clock::{Clock, wall_nanos};
use lasthop_kernel::cpu;
use lasthop_kernel::netns::Netns;
use lasthop_kernel::reactor::{Interest, Reactor};
use lasthop_session::{Event, Opening, Session};
use lasthop_units::{Bytes, Deadlines, Duration, Seed, Time};

use crate::peer::Hosts;

const CABLE: &str = "fleet0";
/// Addresses of the cable's two ends; those of the mobiles are behind it.
const AT_BASE: Ipv4Addr = Ipv4Addr::new(10, 0, 10, 1);
const AT_FLEET: Ipv4Addr = Ipv4Addr::new(10, 0, 10, 2);
const MOBILES: Ipv4Addr = Ipv4Addr::new(10, 65, 0, 0);
const PREFIX: u8 = 16;
/// How often the thread looks whether there is another wish.
const TICK: Duration = Duration::from_millis(50);
/// The longest datagram that comes.
const LONGEST: usize = 2048;

/// Mobiles at work, until this is dropped.
pub(super) struct Fleet {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Result<()>>>,
}

/// What there is of a fleet.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Standing {
    /// Associations that stand.
    pub(super) up: usize,
    /// Connections that stand.
    pub(super) open: usize,
    /// How often an association came to stand so far.
    pub(super) made: usize,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    standing: Mutex<Standing>,
    /// Connections that every mobile is to have.
    wanted: AtomicUsize,
    /// Bytes that have come on connections.
    bytes: AtomicU64,
}

impl Fleet {
    /// Makes mobiles with these keys at a host beside the base, and starts them; connections go to the `targets`, each
    /// mobile's first to the first and so on.
    pub(super) fn start(
        hosts: &Hosts,
        base: PublicKey,
        keys: &[Keypair],
        targets: Vec<SocketAddr>,
        seed: Seed,
    ) -> Result<Self> {
        let host = Netns::anonymous()?;
        hosts.base.veth(CABLE, &host, CABLE)?;
        hosts.base.interface_up(CABLE, &[(AT_BASE.into(), 24)])?;
        host.interface_up(CABLE, &[(AT_FLEET.into(), 24)])?;
        host.route(None, AT_BASE.into())?;
        hosts.base.route(Some((MOBILES.into(), PREFIX)), AT_FLEET.into())?;
        host.ip(&format!("route add local {MOBILES}/{PREFIX} dev lo\n"))?;

        let clock = Clock::start();
        let mut members = Members::new(clock, targets)?;
        for (n, keys) in keys.iter().enumerate() {
            members.add(n, keys, base, seed.child(&format!("mobile {n}")));
        }
        let shared = Arc::new(Shared::default());
        let (told, to) = (Arc::clone(&shared), SocketAddr::from(hosts.hop));
        let run =
            move || host.enter(|| members.open_sockets(to).and_then(|()| members.run(&told)))?;
        let thread = thread::Builder::new().name("fleet".into()).spawn(run);
        Ok(Fleet { shared, thread: Some(thread.context("starting a thread")?) })
    }

    /// Every mobile is to have so many connections from here on.
    pub(super) fn connect(&self, each: usize) {
        self.shared.wanted.store(each, Ordering::Relaxed);
    }

    /// Bytes that have come on all connections, and were thrown away.
    pub(super) fn received(&self) -> Bytes {
        Bytes::new(self.shared.bytes.load(Ordering::Relaxed))
    }

    /// What there is at this moment.
    pub(super) fn standing(&mut self) -> Result<Standing> {
        if self.thread.as_ref().is_some_and(JoinHandle::is_finished)
            && let Some(thread) = self.thread.take()
        {
            thread.join().map_err(|_| anyhow!("the fleet panicked"))??;
            bail!("the fleet has ended");
        }
        Ok(*self.shared.standing.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        // Why it ended concerns nobody any more.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// One mobile.
struct Member {
    mobile: Mobile<()>,
    session: Session,
    socket: Option<UdpSocket>,
    /// Datagrams that had come when the base last answered: only the next shows that the association stands there too.
    heard: u64,
    /// What of it is counted.
    counted: Standing,
}

impl Member {
    /// Sends what it has to send. A datagram that the kernel does not take is lost.
    fn flush(&mut self, now: Time, buffer: &mut [u8]) {
        let Some(socket) = &self.socket else { return };
        while let Some(transmit) = self.mobile.poll_transmit(now, buffer) {
            let _ = socket.send(&buffer[..transmit.len]);
        }
    }

    /// Takes in what has come.
    fn receive(&mut self, now: Time, buffer: &mut [u8]) {
        let Some(socket) = &self.socket else { return };
        loop {
            match socket.recv(buffer) {
                Ok(len) => self.mobile.handle_datagram(now, (), &mut buffer[..len]),
                Err(e) if e.kind() == ErrorKind::ConnectionRefused => {
                    self.mobile.handle_unreachable(now, Unreachable::Port);
                }
                Err(_) => return,
            }
        }
    }

    /// Follows what has happened, and opens the connections that are missing: how many bytes have come.
    fn advance(&mut self, now: Time, wanted: usize, targets: &[SocketAddr]) -> Result<usize> {
        while let Some(event) = self.mobile.poll_association_event() {
            match event {
                AssociationEvent::Up => {
                    self.counted.made += 1;
                    self.heard = self.mobile.stats().datagrams_received;
                }
                AssociationEvent::Lost(_) => self.session = idle_session(),
                AssociationEvent::Moved => {}
            }
        }
        if self.mobile.is_up() {
            for target in targets.iter().take(wanted).skip(self.session.connections()) {
                let target = (*target).into();
                self.session.connect(now, &mut self.mobile, &target, Opening::Faithful)?;
            }
        }
        let mut bytes = 0;
        while let Some(event) = self.session.poll_event(now, &mut self.mobile) {
            match event {
                Event::Failed { refusal, .. } => bail!("a connection is refused: {refusal}"),
                Event::Readable(id) => {
                    // A buffer is a ring: what is behind its end is the next piece.
                    loop {
                        let piece = self.session.received(&self.mobile, id).len();
                        if piece == 0 {
                            break;
                        }
                        self.session.consume(&mut self.mobile, id, piece);
                        bytes += piece;
                    }
                }
                _ => {}
            }
        }
        Ok(bytes)
    }

    fn next_timeout(&self) -> Option<Time> {
        [self.mobile.next_timeout(), self.session.next_timeout()].into_iter().flatten().min()
    }

    fn handle_timeout(&mut self, now: Time) {
        self.mobile.handle_timeout(now);
        self.session.handle_timeout(now, &mut self.mobile);
    }
}

fn idle_session() -> Session {
    Session::mobile(lasthop_session::Config::mobile())
}

/// All mobiles, and when each wants to be called.
struct Members {
    members: Vec<Member>,
    deadlines: Deadlines<usize>,
    reactor: Reactor<usize>,
    clock: Clock,
    targets: Vec<SocketAddr>,
    sum: Standing,
}

impl Members {
    fn new(clock: Clock, targets: Vec<SocketAddr>) -> Result<Self> {
        let reactor = Reactor::new().context("making an epoll set")?;
        let (members, deadlines) = (Vec::new(), Deadlines::new());
        Ok(Self { members, deadlines, reactor, clock, targets, sum: Standing::default() })
    }

    fn add(&mut self, n: usize, keys: &Keypair, base: PublicKey, seed: Seed) {
        let now = self.clock.now();
        let at_zero = wall_nanos().saturating_sub(now.as_nanos());
        let mobile = Mobile::new(HopConfig::default(), keys.clone(), base, (), seed, now)
            .with_fast_aes(now, cpu::fast_aes())
            .with_wall_clock(now, at_zero);
        self.deadlines.set(n, Some(now));
        let session = idle_session();
        let counted = Standing::default();
        self.members.push(Member { mobile, session, socket: None, heard: 0, counted });
    }

    /// To be called in the host where the mobiles are.
    fn open_sockets(&mut self, base: SocketAddr) -> Result<()> {
        for (n, member) in self.members.iter_mut().enumerate() {
            let own = Ipv4Addr::from_bits(MOBILES.to_bits() + 1 + n as u32);
            let socket = UdpSocket::bind((own, 0))
                .and_then(|socket| {
                    socket.connect(base)?;
                    socket.set_nonblocking(true)?;
                    self.reactor.add(&socket, Interest::ReadInShares, n)?;
                    Ok(socket)
                })
                .with_context(|| format!("a socket at {own}"))?;
            member.socket = Some(socket);
        }
        Ok(())
    }

    fn run(&mut self, shared: &Shared) -> Result<()> {
        let (mut ready, mut buffer) = (Vec::new(), vec![0; LONGEST]);
        let mut wanted = 0;
        while !shared.stop.load(Ordering::Relaxed) {
            let until = self.deadlines.next().unwrap_or(Time::NEVER);
            let wait = until.since(self.clock.now()).min(TICK);
            self.reactor.wait(Some(wait), &mut ready)?;
            let now = self.clock.now();
            for (n, _) in ready.drain(..) {
                self.members[n].receive(now, &mut buffer);
                self.deadlines.set(n, Some(now));
            }
            let wish = shared.wanted.load(Ordering::Relaxed);
            if std::mem::replace(&mut wanted, wish) != wish {
                (0..self.members.len()).for_each(|n| self.deadlines.set(n, Some(now)));
            }
            let mut bytes = 0;
            while let Some(n) = self.deadlines.pop_due(now) {
                bytes += self.turn(n, now, wanted, &mut buffer)?;
            }
            shared.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
            *shared.standing.lock().unwrap_or_else(PoisonError::into_inner) = self.sum;
        }
        Ok(())
    }

    /// One mobile's turn: how many bytes have come.
    fn turn(&mut self, n: usize, now: Time, wanted: usize, buffer: &mut [u8]) -> Result<usize> {
        let member = &mut self.members[n];
        let before = member.counted;
        member.handle_timeout(now);
        let bytes = member.advance(now, wanted, &self.targets)?;
        member.flush(now, buffer);
        let Member { mobile, session, heard, counted, .. } = member;
        let up = mobile.is_up() && mobile.stats().datagrams_received > *heard;
        counted.up = usize::from(up);
        counted.open = session.connections() - session.half_open();
        let Standing { up, open, made } = &mut self.sum;
        *up = *up - before.up + counted.up;
        *open = *open - before.open + counted.open;
        *made += counted.made - before.made;
        // What it asks for at once it gets in the next round, behind the others.
        let next = member.next_timeout().map(|at| at.max(now + Duration::from_micros(1)));
        self.deadlines.set(n, next);
        Ok(bytes)
    }
}
