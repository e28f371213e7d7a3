//! Programs that act on segments of held connections: the rule of `lasthop_session::acknowledge` in the kernel's own
//! instructions, for what an interface sends and for what it receives.
//!
//! `R6` is the packet, `R7` the slot, `R8` where TCP's header begins in the packet, and `R9` what the base wants of
//! the connection; the header is copied onto the stack.

mod incoming;
mod outgoing;

use std::os::fd::BorrowedFd;

use lasthop_kernel::bpf::{
    AssembleError, Assembler, AtomicOp, Condition, Instruction, NEXT, Op, Reg, Size, helper,
};

use super::layout::*;

/// Bytes of an Ethernet header, and of none.
pub(super) const ETHERNET: i32 = 14;
pub(super) const NO_LINK_HEADER: i32 = 0;

// struct __sk_buff
const SKB_PROTOCOL: i16 = 16;

// The stack. A header has room for a SACK option that would reach beyond its end, as far as the verifier knows.
const KEY: i16 = -40;
const IP: i16 = KEY - 40;
const WAS: i16 = IP - 72;

const FIXED_HEADER: i32 = 20;

// TCP's header, bytes from its beginning.
const ACK: i16 = 8;
const FLAGS: i16 = 13;
const CHECKSUM: i32 = 16;

const ACKNOWLEDGES: i32 = 0x10;

const TCP: i32 = 6;

/// Four bytes of a packet as the host reads them.
const fn word(bytes: [u8; 4]) -> i32 {
    i32::from_ne_bytes(bytes)
}

/// Two bytes of a packet, of this value, as the host reads them.
const fn half(value: u16) -> i32 {
    value.to_be() as i32
}

/// Which way packets go that a program sees.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    /// To the fixed host.
    Out,
    /// From there.
    In,
}

impl Way {
    /// Where in a flow's key the packet's source and destination are: it begins with this host's address.
    fn places(self) -> (i16, i16) {
        match self {
            Self::Out => (0, 16),
            Self::In => (16, 0),
        }
    }
}

/// The program for packets that go this way, on interfaces with a header of so many bytes before IP's.
pub(super) fn program(
    way: Way,
    link_header: i32,
    flows: BorrowedFd<'_>,
    slots: BorrowedFd<'_>,
) -> Result<Vec<Instruction>, AssembleError> {
    let mut p = Writer(Assembler::new());
    p.find_header(way, link_header);
    p.find_slot(way, flows, slots);
    match way {
        Way::Out => p.filter(),
        Way::In => p.receive(),
    }
    p.0.finish()
}

struct Writer(Assembler);

use Condition::{Eq, Gt, Le, Lt, Ne, Set, Sgt, Sle, Slt};
use Reg::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10};

impl Writer {
    /// `dst` points so far into the stack.
    fn stack(&mut self, dst: Reg, at: i16) {
        self.0.mov(dst, R10);
        self.0.alu64(Op::Add, dst, i32::from(at));
    }

    /// `dst` is a number of the header's, in the host's order.
    fn header_word(&mut self, dst: Reg, at: i16) {
        self.0.load(Size::Word, dst, R10, WAS + at);
        self.0.be32(dst);
    }

    fn half_of_slot(&mut self, dst: Reg, at: i16) {
        self.0.load(Size::Word, dst, R7, at);
    }

    /// One more; `R0` is lost.
    fn count(&mut self, at: i16) {
        self.0.mov(R0, 1);
        self.0.atomic(AtomicOp::Add, Size::Word, R7, at, R0);
    }

    /// So many bytes of the packet from `at` on come onto the stack; whatever is too short passes.
    fn load_bytes(&mut self, to: i16, len: i32) {
        self.stack(R3, to);
        self.0.mov(R1, R6);
        self.0.mov(R4, len);
        self.0.call(helper::SKB_LOAD_BYTES);
        self.0.jump_if(Ne, R0, 0, "pass");
    }

    /// The addresses come into the key, and where TCP begins into `R8`. IPv4 with options is as without; fragments
    /// and what has extension headers are no segments to us.
    fn find_header(&mut self, way: Way, link_header: i32) {
        let (source, destination) = way.places();
        let p = &mut self.0;
        p.mov(R6, R1);
        p.load(Size::Word, R1, R6, SKB_PROTOCOL);
        p.jump_if(Eq, R1, half(libc::ETH_P_IP as u16), "ipv4");
        p.jump_if(Ne, R1, half(libc::ETH_P_IPV6 as u16), "pass");
        p.mov(R2, link_header);
        self.load_bytes(IP, 40);
        let p = &mut self.0;
        p.load(Size::Byte, R1, R10, IP);
        p.alu32(Op::Rsh, R1, 4);
        p.jump_if(Ne, R1, 6, "pass");
        p.load(Size::Byte, R1, R10, IP + 6);
        p.jump_if(Ne, R1, TCP, "pass");
        for (at, to) in [(8, source), (24, destination)] {
            for half in [0, 8] {
                p.load(Size::Double, R1, R10, IP + at + half);
                p.store(Size::Double, R10, KEY + to + half, R1);
            }
        }
        p.mov(R8, link_header + 40);
        p.jump("tcp");
        p.bind("ipv4");
        p.mov(R2, link_header);
        self.load_bytes(IP, 20);
        let p = &mut self.0;
        p.load(Size::Byte, R8, R10, IP);
        p.mov(R1, R8);
        p.alu32(Op::Rsh, R1, 4);
        p.jump_if(Ne, R1, 4, "pass");
        p.load(Size::Byte, R1, R10, IP + 9);
        p.jump_if(Ne, R1, TCP, "pass");
        p.load(Size::Half, R1, R10, IP + 6);
        p.jump_if(Set, R1, half(0x3fff), "pass");
        p.load(Size::Word, R1, R10, IP + 12);
        p.load(Size::Word, R2, R10, IP + 16);
        for (at, address) in [(KEY + source, R1), (KEY + destination, R2)] {
            p.store(Size::Double, R10, at, 0);
            p.store(Size::Word, R10, at + 8, word([0, 0, 0xff, 0xff]));
            p.store(Size::Word, R10, at + 12, address);
        }
        p.alu32(Op::And, R8, 15);
        p.jump_if(Lt, R8, 5, "pass");
        p.alu32(Op::Lsh, R8, 2);
        p.alu32(Op::Add, R8, link_header);
    }

    /// The fixed part of TCP's header comes onto the stack, and with its ports the slot is found.
    fn find_slot(&mut self, way: Way, flows: BorrowedFd<'_>, slots: BorrowedFd<'_>) {
        self.0.bind("tcp");
        self.0.mov(R2, R8);
        self.load_bytes(WAS, FIXED_HEADER);
        let p = &mut self.0;
        let (source, destination) = way.places();
        for (at, place) in [(WAS, source), (WAS + 2, destination)] {
            p.load(Size::Half, R1, R10, at);
            p.store(Size::Half, R10, KEY + 32 + place / 8, R1);
        }
        p.store(Size::Word, R10, KEY + 36, 0);
        self.look_up(flows);
        // What is found is the other map's key.
        self.0.load(Size::Word, R1, R0, 0);
        self.0.store(Size::Word, R10, KEY, R1);
        self.look_up(slots);
        self.0.mov(R7, R0);
        self.0.load(Size::Word, R9, R7, CONTROL);
    }

    /// `R0` is what the map has for the key; what it does not know passes.
    fn look_up(&mut self, map: BorrowedFd<'_>) {
        self.stack(R2, KEY);
        self.0.load_map(R1, map);
        self.0.call(helper::MAP_LOOKUP_ELEM);
        self.0.jump_if(Eq, R0, 0, "pass");
    }

    /// The packet goes on.
    fn pass(&mut self) {
        let p = &mut self.0;
        p.bind("pass");
        p.mov(R0, NEXT);
        p.exit();
    }
}
