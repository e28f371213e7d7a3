//! Bounds what the kernel acknowledges of connections that a base splits, so that a base that dies loses nothing: a
//! program in what interfaces send holds acknowledgement numbers at what the mobile has confirmed. Its rule is that
//! of `lasthop_session::acknowledge`.
//!
//! The privileged helper makes an [`AckFilter`] and says which connections are held; the base, which has no privilege,
//! maps their [`Slots`] and writes how far each may be acknowledged, and has an [`Injector`] acknowledge when that
//! advances.

mod inject;
mod layout;
mod program;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

use lasthop_kernel::bpf::{AssembleError, BpfError, HashMap, Hook, Link, Program, SharedArray};
use lasthop_kernel::netlink::{Interface, NetlinkError, Rtnetlink};
use lasthop_session::acknowledge::{Control, Slot, Told, WORDS};
use thiserror::Error;

pub use self::inject::{Acknowledgement, InjectError, Injector};
use self::program::Way;
use super::Flow;

/// Words of a slot that a base writes.
const CONTROL: usize = 0;
const TOLD: usize = 1;
/// Bytes of a flow as the program looks for it: both addresses as those of IPv6, both ports, and four zeros.
const KEY: usize = 40;

/// Why acknowledgements are not held.
#[derive(Debug, Error)]
pub enum AckFilterError {
    /// The kernel did not do it.
    #[error(transparent)]
    Bpf(#[from] BpfError),
    /// The program cannot be put together, which is a mistake of ours.
    #[error(transparent)]
    Assemble(#[from] AssembleError),
    /// The interfaces are not known.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// Every slot is in use.
    #[error("no more than {0} connections can be held at once")]
    Full(usize),
    /// The connection is held already.
    #[error("the connection from {} to {} is held already", .0.local, .0.remote)]
    Present(Flow),
}

impl AckFilterError {
    /// Whether this user, or this kernel, has no such programs.
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Self::Bpf(error) if error.is_unavailable())
    }
}

/// For what interfaces send, and for what they receive.
#[derive(Debug)]
struct Programs {
    out: Program,
    into: Program,
}

impl Programs {
    fn load(
        link_header: i32,
        flows: &HashMap<KEY, 4>,
        slots: &Slots,
    ) -> Result<Self, AckFilterError> {
        let load = |name, way| -> Result<Program, AckFilterError> {
            let program = program::program(way, link_header, flows.as_fd(), slots.as_fd())?;
            Ok(Program::load(name, &program)?)
        };
        Ok(Self { out: load("lasthop_ack", Way::Out)?, into: load("lasthop_ack_in", Way::In)? })
    }

    fn attach(&self, interface: u32) -> Result<[Link; 2], AckFilterError> {
        let out = self.out.attach(interface, Hook::Egress)?;
        Ok([out, self.into.attach(interface, Hook::Ingress)?])
    }
}

/// The programs in the kernel, and the connections that they hold. All of it ends when this is dropped.
#[derive(Debug)]
pub struct AckFilter {
    flows: HashMap<KEY, 4>,
    slots: Slots,
    ethernet: Programs,
    bare: Programs,
    links: BTreeMap<u32, [Link; 2]>,
    held: BTreeMap<Flow, u32>,
    /// The one that has been free for the longest comes first: who still writes to one that was taken from him writes
    /// where nobody is for a while.
    free: VecDeque<u32>,
}

impl AckFilter {
    /// A program that is attached nowhere and has room for so many connections, of 128 bytes each.
    ///
    /// # Errors
    ///
    /// No permission (CAP_BPF and CAP_NET_ADMIN), or the kernel refuses.
    pub fn new(connections: u32) -> Result<Self, AckFilterError> {
        let flows = HashMap::create("lasthop_flows", connections)?;
        let slots = SharedArray::create("lasthop_slots", WORDS, connections)?;
        Self::load(flows, Slots(slots))
    }

    /// The same over slots that there are already, and hold these connections.
    ///
    /// # Errors
    ///
    /// As for [`new`](Self::new); or they are no slots, or not those of so many connections.
    pub fn over(slots: OwnedFd, held: &[(Flow, u32)]) -> Result<Self, AckFilterError> {
        let slots = Slots::of(slots)?;
        let connections = slots.len();
        let flows =
            HashMap::create("lasthop_flows", u32::try_from(connections).unwrap_or(u32::MAX))?;
        let mut filter = Self::load(flows, slots)?;
        for (flow, slot) in held {
            let place = filter.free.iter().position(|free| free == slot);
            let place = place.ok_or(AckFilterError::Full(connections))?;
            filter.flows.insert(&key(flow), &slot.to_ne_bytes())?;
            filter.free.remove(place);
            filter.held.insert(*flow, *slot);
        }
        Ok(filter)
    }

    fn load(flows: HashMap<KEY, 4>, slots: Slots) -> Result<Self, AckFilterError> {
        let load = |link_header| Programs::load(link_header, &flows, &slots);
        let (ethernet, bare) = (load(program::ETHERNET)?, load(program::NO_LINK_HEADER)?);
        let (links, held) = (BTreeMap::new(), BTreeMap::new());
        let free = (0..u32::try_from(slots.len()).unwrap_or(u32::MAX)).collect();
        Ok(Self { flows, slots, ethernet, bare, links, held, free })
    }

    /// From here on the programs see what all interfaces of the calling thread's network namespace send and receive that are there, but
    /// for loopbacks and ports of others. One that it has been attached to is left as it is.
    ///
    /// # Errors
    ///
    /// As for [`attach`](Self::attach).
    pub fn attach_everywhere(&mut self) -> Result<(), AckFilterError> {
        let all = Rtnetlink::open()?.interfaces()?;
        self.links.retain(|index, _| all.iter().any(|one| one.index == *index));
        let new = |one: &&Interface| !self.links.contains_key(&one.index);
        let wired = |one: &&Interface| !one.loopback && one.controller.is_none();
        let new: Vec<&Interface> = all.iter().filter(new).filter(wired).collect();
        new.into_iter().try_for_each(|interface| self.attach(interface))
    }

    /// From here on the programs see what the interface of the calling thread's network namespace sends and receives.
    ///
    /// # Errors
    ///
    /// There is no such interface, or the kernel is older than Linux 6.6 and cannot attach the program.
    pub fn attach(&mut self, interface: &Interface) -> Result<(), AckFilterError> {
        // Loopbacks have such headers as well; tunnels and modems have none.
        let has_header = interface.ethernet || interface.loopback;
        let program = if has_header { &self.ethernet } else { &self.bare };
        // One that is attached already ends only then: a moment of both does no harm, one of neither may.
        self.links.insert(interface.index, program.attach(interface.index)?);
        Ok(())
    }

    /// Holds a connection, and says by which slot. Its words are zero: nothing is done before the base writes that it is
    /// live. That should be before the connection is made.
    ///
    /// # Errors
    ///
    /// It is held already, or no slot is free.
    pub fn insert(&mut self, flow: Flow) -> Result<u32, AckFilterError> {
        if self.held.contains_key(&flow) {
            return Err(AckFilterError::Present(flow));
        }
        let slot = *self.free.front().ok_or(AckFilterError::Full(self.slots.len()))?;
        self.slots.clear(slot);
        self.flows.insert(&key(&flow), &slot.to_ne_bytes())?;
        self.free.pop_front();
        self.held.insert(flow, slot);
        Ok(slot)
    }

    /// Holds a connection no longer: what its kernel sends passes. `false` if it was not held.
    ///
    /// # Errors
    ///
    /// The kernel refuses, and it is still held.
    pub fn remove(&mut self, flow: &Flow) -> Result<bool, AckFilterError> {
        let Some(slot) = self.held.get(flow).copied() else { return Ok(false) };
        self.flows.remove(&key(flow))?;
        self.held.remove(flow);
        self.free.push_back(slot);
        Ok(true)
    }

    /// The connections that are held, each with its slot.
    pub fn held(&self) -> impl Iterator<Item = (Flow, u32)> {
        self.held.iter().map(|(flow, slot)| (*flow, *slot))
    }

    /// The slots of all connections, also to be handed to the base as a descriptor.
    pub fn slots(&self) -> &Slots {
        &self.slots
    }
}

/// The memory of the slots, which the program shares: [`WORDS`] words each, of which the first eight are the base's to
/// write and the others the program's. `lasthop_session::acknowledge::Slot` says what they mean.
#[derive(Debug)]
pub struct Slots(SharedArray);

impl Slots {
    /// The slots whose descriptor this is. Needs no privilege.
    ///
    /// # Errors
    ///
    /// It is the descriptor of something else, or the memory cannot be had.
    pub fn of(fd: OwnedFd) -> Result<Self, BpfError> {
        SharedArray::from_fd(fd).map(Self)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// There is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A slot, each word of it as it was at some moment; none if there is no such slot.
    pub fn get(&self, slot: u32) -> Option<Slot> {
        self.read(slot).map(|words| Slot::of_words(&words))
    }

    fn read(&self, slot: u32) -> Option<[u64; WORDS]> {
        let words = self.0.entry(slot as usize)?;
        (words.len() == WORDS).then(|| std::array::from_fn(|n| words[n].load(Ordering::Acquire)))
    }

    /// Fills in what is known of a connection that is not live yet. `false` if there is no such slot.
    pub fn prepare(&self, slot: u32, known: &Slot) -> bool {
        let words = known.words();
        (CONTROL + 1..WORDS).all(|word| self.write(slot, word, words[word]))
    }

    /// From here on this is wanted of a connection. `false` if there is no such slot.
    pub fn set_control(&self, slot: u32, control: Control) -> bool {
        self.write(slot, CONTROL, control.word())
    }

    /// From here on so much may be acknowledged of a connection. `false` if there is no such slot.
    pub fn tell(&self, slot: u32, told: Told) -> bool {
        self.write(slot, TOLD, told.word())
    }

    /// Writes a word in one step.
    fn write(&self, slot: u32, word: usize, value: u64) -> bool {
        let word = self.0.entry(slot as usize).and_then(|words| words.get(word));
        word.inspect(|word| word.store(value, Ordering::Release)).is_some()
    }

    /// Another descriptor of them.
    ///
    /// # Errors
    ///
    /// No descriptors are left.
    pub fn share(&self) -> io::Result<OwnedFd> {
        self.as_fd().try_clone_to_owned()
    }

    fn clear(&self, slot: u32) {
        (0..WORDS).for_each(|word| {
            self.write(slot, word, 0);
        });
    }
}

impl AsFd for Slots {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn key(flow: &Flow) -> [u8; KEY] {
    let mut key = [0; KEY];
    let octets = |address: SocketAddr| match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    };
    key[..16].copy_from_slice(&octets(flow.local));
    key[16..32].copy_from_slice(&octets(flow.remote));
    key[32..34].copy_from_slice(&flow.local.port().to_be_bytes());
    key[34..36].copy_from_slice(&flow.remote.port().to_be_bytes());
    key
}
