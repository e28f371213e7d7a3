//! What becomes of a segment on its way to the fixed host: `filter` of `lasthop_session::acknowledge`.
//!
//! Processors do not exclude each other: the kernel sends the segments of a connection one after another, and where one
//! of the base's own acknowledgements is filled in on another processor meanwhile, each still stays within what is
//! told, and the worst is one that is not heeded.

use lasthop_kernel::bpf::SHOT;
use lasthop_session::acknowledge::INJECTED;

use super::*;

// struct __sk_buff
const SKB_LEN: i16 = 0;

// The stack, below what is common.
const IS: i16 = WAS - 72;
const HEADER_LEN: i16 = IS - 8;
const PAYLOAD: i16 = HEADER_LEN - 8;
const HAS_TIMESTAMPS: i16 = PAYLOAD - 8;
/// Where the SACK option's NOPs begin in the header; zero if there is none.
const SACK_AT: i16 = HAS_TIMESTAMPS - 8;
const IS_REPEAT: i16 = SACK_AT - 8;
const SAVED_ACK: i16 = IS_REPEAT - 8;

/// Bytes of the longest header.
const HEADER_MAX: i32 = 60;

// TCP's header, bytes from its beginning; the options as Linux writes them.
const SEQ: i16 = 4;
const DATA_OFFSET: i16 = 12;
const WINDOW: i16 = 14;
const URGENT: i16 = 18;
const TIMESTAMPS: i16 = 20;
const TSVAL: i16 = 24;
const TSECR: i16 = 28;
const BEHIND_TIMESTAMPS: i32 = 32;

const FIN: i32 = 0x01;
const SYN: i32 = 0x02;
const RST: i32 = 0x04;
const URG: i32 = 0x20;

impl Writer {
    pub(super) fn filter(&mut self) {
        self.ends();
        self.read_header();
        self.inject();
        self.note();
        self.lower();
        self.outcomes();
    }

    /// A number of the new header's; `src` is in the network's order afterwards.
    fn set_header_word(&mut self, at: i16, src: Reg) {
        self.0.be32(src);
        self.0.store(Size::Word, R10, IS + at, src);
    }

    fn set_half_of_slot(&mut self, at: i16, src: Reg) {
        self.0.store(Size::Word, R7, at, src);
    }

    /// Notes that something is known; `R0` is lost.
    fn know(&mut self, what: i32) {
        self.0.mov(R0, what);
        self.0.atomic(AtomicOp::Or, Size::Word, R7, KNOWN, R0);
    }

    /// `dst` is by what the window field is shifted.
    fn scale(&mut self, dst: Reg) {
        self.0.mov(dst, R9);
        self.0.alu32(Op::Rsh, dst, SCALE_SHIFT);
        self.0.alu32(Op::And, dst, 15);
    }

    /// What is decided by flags alone.
    fn ends(&mut self) {
        let p = &mut self.0;
        p.jump_if(Set, R9, LIVE, "live");
        p.jump("pass");
        p.bind("live");
        p.jump_if(Set, R9, MUTE, "end");
        p.load(Size::Byte, R1, R10, WAS + FLAGS);
        p.jump_if(Set, R1, SYN, "pass");
        p.jump_if(Set, R1, FIN | RST, "ends");
        p.jump("goes on");
        p.bind("ends");
        p.jump_if(Set, R9, MAY_END, "may end");
        p.jump("end");
        p.bind("may end");
        p.jump_if(Set, R1, RST, "pass");
        p.bind("goes on");
        p.jump_if(Set, R1, ACKNOWLEDGES, "acknowledges");
        p.jump("pass");
        p.bind("acknowledges");
    }

    /// The whole header comes onto the stack, once as it was and once as it will be, and what it has is noted there.
    fn read_header(&mut self) {
        let p = &mut self.0;
        p.load(Size::Byte, R4, R10, WAS + DATA_OFFSET);
        p.alu32(Op::Rsh, R4, 4);
        p.alu32(Op::Lsh, R4, 2);
        p.jump_if(Lt, R4, FIXED_HEADER, "pass");
        p.load(Size::Word, R1, R6, SKB_LEN);
        p.alu64(Op::Sub, R1, R8);
        p.alu64(Op::Sub, R1, R4);
        p.jump_if(Slt, R1, 0, "pass");
        p.store(Size::Double, R10, PAYLOAD, R1);
        p.store(Size::Double, R10, HEADER_LEN, R4);
        p.store(Size::Double, R10, HAS_TIMESTAMPS, 0);
        p.store(Size::Double, R10, SACK_AT, 0);
        for at in (16..72).step_by(8) {
            // The second half of the word at 16 is an option already.
            let (size, at) = if at == 16 { (Size::Word, 20) } else { (Size::Double, at) };
            p.store(size, R10, WAS + at, 0);
        }
        p.jump_if(Eq, R4, FIXED_HEADER, "has no options");
        p.mov(R1, R6);
        p.mov(R2, R8);
        self.stack(R3, WAS);
        let p = &mut self.0;
        p.call(helper::SKB_LOAD_BYTES);
        p.jump_if(Ne, R0, 0, "pass");
        p.mov(R2, i32::from(TIMESTAMPS));
        p.load(Size::Double, R4, R10, HEADER_LEN);
        p.load(Size::Word, R1, R10, WAS + TIMESTAMPS);
        p.jump_if32(Ne, R1, word([1, 1, 8, 10]), "has no timestamps");
        p.jump_if(Lt, R4, BEHIND_TIMESTAMPS, "has no timestamps");
        p.store(Size::Double, R10, HAS_TIMESTAMPS, 1);
        p.mov(R2, BEHIND_TIMESTAMPS);
        p.bind("has no timestamps");
        self.stack(R3, WAS);
        let p = &mut self.0;
        p.alu64(Op::Add, R3, R2);
        p.load(Size::Half, R1, R3, 0);
        p.jump_if(Ne, R1, half(0x0101), "has no options");
        p.load(Size::Byte, R1, R3, 2);
        p.jump_if(Ne, R1, 5, "has no options");
        // With the two NOPs before it the option is four bytes, and eight for each block.
        p.load(Size::Byte, R1, R3, 3);
        p.alu32(Op::Add, R1, 2);
        p.jump_if(Lt, R1, 12, "has no options");
        p.jump_if(Gt, R1, 36, "has no options");
        p.mov(R3, R1);
        p.alu32(Op::And, R3, 7);
        p.jump_if(Ne, R3, 4, "has no options");
        p.alu32(Op::Add, R1, R2);
        p.jump_if(Gt, R1, R4, "has no options");
        p.store(Size::Double, R10, SACK_AT, R2);
        p.bind("has no options");
        for at in (0..72).step_by(8) {
            p.load(Size::Double, R1, R10, WAS + at);
            p.store(Size::Double, R10, IS + at, R1);
        }
    }

    /// An acknowledgement of the base's own.
    fn inject(&mut self) {
        let p = &mut self.0;
        p.load(Size::Half, R1, R10, WAS + URGENT);
        p.jump_if(Ne, R1, half(INJECTED), "kernel's");
        p.load(Size::Byte, R1, R10, WAS + FLAGS);
        p.jump_if(Set, R1, URG, "kernel's");
        self.half_of_slot(R1, KNOWN);
        let p = &mut self.0;
        p.mov(R2, R1);
        p.alu32(Op::And, R2, KNOWN_BASE | KNOWN_KERNEL);
        p.jump_if(Ne, R2, KNOWN_BASE | KNOWN_KERNEL, "swallow");
        // R2 the number, R3 the clock that is echoed.
        p.load(Size::Double, R3, R7, TOLD);
        p.mov(R2, R3);
        p.alu64(Op::Rsh, R3, 32);
        self.half_of_slot(R4, BASE);
        self.0.alu32(Op::Add, R2, R4);
        self.0.jump_if(Set, R9, HOLD, "is held");
        self.half_of_slot(R2, KERNEL_ACK);
        let p = &mut self.0;
        p.bind("is held");
        p.jump_if(Set, R1, KNOWN_LET_OUT, "has been acknowledged");
        p.jump("is new");
        p.bind("has been acknowledged");
        p.mov(R5, R2);
        self.half_of_slot(R4, LET_OUT);
        let p = &mut self.0;
        p.alu32(Op::Sub, R5, R4);
        p.jump_if32(Sle, R5, 0, "swallow");
        p.bind("is new");
        p.jump_if(Set, R9, SCALE_KNOWN, "has a scale");
        p.jump("has no edge");
        p.bind("has a scale");
        p.jump_if(Set, R1, KNOWN_EDGE, "has an edge");
        p.jump("has no edge");
        p.bind("has an edge");
        self.half_of_slot(R4, EDGE);
        let p = &mut self.0;
        p.alu32(Op::Sub, R4, R2);
        p.jump_if32(Sgt, R4, 0, "has room");
        p.mov(R4, 0);
        p.bind("has room");
        self.scale(R5);
        self.0.alu32(Op::Rsh, R4, R5);
        self.set_window("injected window fits");
        self.0.bind("has no edge");
        self.half_of_slot(R4, NEXT_SEQ);
        self.set_header_word(SEQ, R4);
        let p = &mut self.0;
        p.store(Size::Half, R10, IS + URGENT, 0);
        p.load(Size::Double, R4, R10, HAS_TIMESTAMPS);
        p.jump_if(Eq, R4, 0, "filled in");
        self.half_of_slot(R4, NEXT_VALUE);
        self.set_header_word(TSVAL, R4);
        self.0.jump_if(Ne, R3, 0, "echoes what is told");
        self.half_of_slot(R3, KERNEL_ECHO);
        self.0.bind("echoes what is told");
        self.set_header_word(TSECR, R3);
        self.0.bind("filled in");
        self.count(INJECTED_COUNT);
        self.0.jump("let out");
    }

    /// The new header's window is `R4`, or the most that fits.
    fn set_window(&mut self, fits: &'static str) {
        let p = &mut self.0;
        p.jump_if(Le, R4, 0xffff, fits);
        p.mov(R4, 0xffff);
        p.bind(fits);
        p.be16(R4);
        p.store(Size::Half, R10, IS + WINDOW, R4);
    }

    /// Notes what the kernel says. `R1` is what was known before, `R2` its acknowledgement number.
    fn note(&mut self) {
        self.0.bind("kernel's");
        self.half_of_slot(R1, KNOWN);
        self.header_word(R2, ACK);
        self.0.jump_if(Set, R1, KNOWN_BASE, "has a base");
        self.set_half_of_slot(BASE, R2);
        self.0.bind("has a base");
        self.header_word(R3, SEQ);
        let p = &mut self.0;
        p.load(Size::Double, R4, R10, PAYLOAD);
        p.alu32(Op::Add, R3, R4);
        p.load(Size::Byte, R4, R10, WAS + FLAGS);
        p.alu32(Op::And, R4, FIN);
        p.alu32(Op::Add, R3, R4);
        p.store(Size::Double, R10, IS_REPEAT, 0);
        p.jump_if(Set, R1, KNOWN_KERNEL, "was heard");
        p.jump("is next");
        p.bind("was heard");
        self.half_of_slot(R4, KERNEL_ACK);
        self.0.jump_if32(Ne, R4, R2, "is no repeat");
        self.0.store(Size::Double, R10, IS_REPEAT, 1);
        self.0.bind("is no repeat");
        self.half_of_slot(R4, NEXT_SEQ);
        let p = &mut self.0;
        p.mov(R5, R3);
        p.alu32(Op::Sub, R5, R4);
        p.jump_if32(Sle, R5, 0, "is not next");
        p.bind("is next");
        self.set_half_of_slot(NEXT_SEQ, R3);
        self.0.bind("is not next");
        self.set_half_of_slot(KERNEL_ACK, R2);
        self.0.load(Size::Double, R4, R10, HAS_TIMESTAMPS);
        self.0.jump_if(Eq, R4, 0, "clocks are noted");
        for (at, to) in [(TSVAL, NEXT_VALUE), (TSECR, KERNEL_ECHO)] {
            self.header_word(R4, at);
            self.set_half_of_slot(to, R4);
        }
        let p = &mut self.0;
        p.bind("clocks are noted");
        p.mov(R3, KNOWN_BASE | KNOWN_KERNEL);
        p.jump_if(Set, R9, SCALE_KNOWN, "offers");
        p.jump("is noted");
        p.bind("offers");
        p.alu32(Op::Or, R3, KNOWN_EDGE);
        p.load(Size::Half, R4, R10, WAS + WINDOW);
        p.be16(R4);
        self.scale(R5);
        self.0.alu32(Op::Lsh, R4, R5);
        self.0.alu32(Op::Add, R4, R2);
        self.set_half_of_slot(EDGE, R4);
        let p = &mut self.0;
        p.bind("is noted");
        // One step on memory that others write is dear; mostly all is known.
        p.mov(R4, R1);
        p.alu32(Op::And, R4, R3);
        p.jump_if32(Eq, R4, R3, "all was known");
        p.atomic(AtomicOp::Or, Size::Word, R7, KNOWN, R3);
        p.bind("all was known");
    }

    /// Lowers what acknowledges too much. `R1` and `R2` as before; `R3` is the bound, `R4` whether that is news.
    fn lower(&mut self) {
        let p = &mut self.0;
        p.jump_if(Set, R9, OPENING, "opens");
        p.jump("stands");
        p.bind("opens");
        p.load(Size::Byte, R0, R10, WAS + FLAGS);
        p.jump_if(Set, R0, FIN, "stands");
        p.load(Size::Double, R0, R10, PAYLOAD);
        p.jump_if(Eq, R0, 0, "swallow");
        p.bind("stands");
        p.jump_if(Set, R9, HOLD, "holds");
        p.jump("as it is");
        p.bind("holds");
        p.load(Size::Double, R3, R7, TOLD);
        self.half_of_slot(R4, BASE);
        let p = &mut self.0;
        p.alu32(Op::Add, R3, R4);
        p.mov(R4, 1);
        p.jump_if(Set, R1, KNOWN_LET_OUT, "something was let out");
        p.jump("is bounded");
        p.bind("something was let out");
        self.half_of_slot(R5, LET_OUT);
        let p = &mut self.0;
        p.mov(R0, R5);
        p.alu32(Op::Sub, R0, R3);
        p.jump_if32(Slt, R0, 0, "is bounded");
        p.mov(R3, R5);
        p.mov(R4, 0);
        p.bind("is bounded");
        p.mov(R5, R2);
        p.alu32(Op::Sub, R5, R3);
        p.jump_if32(Sle, R5, 0, "as it is");
        p.load(Size::Byte, R0, R10, WAS + FLAGS);
        p.jump_if(Set, R0, FIN, "leaves");
        p.load(Size::Double, R0, R10, PAYLOAD);
        p.jump_if(Ne, R0, 0, "leaves");
        p.load(Size::Double, R0, R10, SACK_AT);
        p.jump_if(Ne, R0, 0, "swallow");
        p.jump_if(Ne, R4, 0, "leaves");
        p.load(Size::Double, R0, R10, IS_REPEAT);
        p.jump_if(Eq, R0, 0, "swallow");
        p.store(Size::Double, R10, SAVED_ACK, R3);
        p.store(Size::Double, R10, IS_REPEAT, R5);
        p.call(helper::KTIME_GET_NS);
        p.load(Size::Double, R1, R7, REPEATED);
        p.mov(R2, R0);
        p.alu64(Op::Sub, R2, R1);
        p.jump_if(Slt, R2, REPEAT_NS, "swallow");
        p.store(Size::Double, R7, REPEATED, R0);
        p.load(Size::Double, R3, R10, SAVED_ACK);
        p.load(Size::Double, R5, R10, IS_REPEAT);
        // By `R5` the number is lowered, to `R3`.
        p.bind("leaves");
        p.mov(R2, R3);
        p.jump_if(Set, R9, SCALE_KNOWN, "raises");
        p.jump("has its window");
        p.bind("raises");
        self.scale(R4);
        let p = &mut self.0;
        p.alu32(Op::Rsh, R5, R4);
        p.load(Size::Half, R4, R10, WAS + WINDOW);
        p.be16(R4);
        p.alu64(Op::Add, R4, R5);
        self.set_window("raised window fits");
        let p = &mut self.0;
        p.bind("has its window");
        p.load(Size::Double, R4, R10, HAS_TIMESTAMPS);
        p.jump_if(Eq, R4, 0, "has its clocks");
        p.load(Size::Double, R4, R7, TOLD);
        p.alu64(Op::Rsh, R4, 32);
        p.jump_if(Eq, R4, 0, "has its clocks");
        self.set_header_word(TSECR, R4);
        self.0.bind("has its clocks");
        self.blank_sack();
        self.count(LOWERED);
    }

    /// NOPs take the place of a SACK option. `R2` stays.
    fn blank_sack(&mut self) {
        let p = &mut self.0;
        p.load(Size::Double, R4, R10, SACK_AT);
        p.jump_if(Eq, R4, 0, "blank");
        self.stack(R3, IS);
        let p = &mut self.0;
        p.alu64(Op::Add, R3, R4);
        p.load(Size::Byte, R4, R3, 3);
        p.alu32(Op::Add, R4, 2);
        for at in (0..36).step_by(4) {
            p.jump_if(Le, R4, i32::from(at), "blank");
            p.store(Size::Word, R3, at, word([1; 4]));
        }
        p.bind("blank");
    }

    /// What becomes of it. Of what leaves, `R2` is the acknowledgement number.
    fn outcomes(&mut self) {
        self.0.bind("let out");
        self.remember("remembered");
        self.set_header_word(ACK, R2);
        self.stack(R1, WAS);
        self.0.mov(R2, HEADER_MAX);
        self.stack(R3, IS);
        let p = &mut self.0;
        p.mov(R4, HEADER_MAX);
        p.mov(R5, 0);
        p.call(helper::CSUM_DIFF);
        p.mov(R9, R0);
        p.mov(R1, R6);
        p.mov(R2, R8);
        self.stack(R3, IS);
        let p = &mut self.0;
        p.load(Size::Double, R4, R10, HEADER_LEN);
        p.mov(R5, 0);
        p.call(helper::SKB_STORE_BYTES);
        // As it was it acknowledges too much.
        p.jump_if(Ne, R0, 0, "drop");
        p.mov(R1, R6);
        p.mov(R2, R8);
        p.alu64(Op::Add, R2, CHECKSUM);
        p.mov(R3, 0);
        p.mov(R4, R9);
        p.mov(R5, 0);
        p.call(helper::L4_CSUM_REPLACE);
        p.jump_if(Ne, R0, 0, "drop");
        p.jump("pass");
        p.bind("as it is");
        self.remember("remembered as it is");
        self.pass();
        self.0.bind("swallow");
        self.count(SWALLOWED);
        self.0.jump("drop");
        self.0.bind("end");
        self.count(ENDED);
        let p = &mut self.0;
        p.bind("drop");
        p.mov(R0, SHOT);
        p.exit();
    }

    /// The fixed host will know the number in `R2`, unless it knows a later one.
    fn remember(&mut self, done: &'static str) {
        let (new, later) = match done {
            "remembered" => ("first", "later"),
            _ => ("first as it is", "later as it is"),
        };
        self.half_of_slot(R1, KNOWN);
        self.0.jump_if(Set, R1, KNOWN_LET_OUT, later);
        self.know(KNOWN_LET_OUT);
        self.0.jump(new);
        self.0.bind(later);
        self.half_of_slot(R4, LET_OUT);
        let p = &mut self.0;
        p.mov(R5, R2);
        p.alu32(Op::Sub, R5, R4);
        p.jump_if32(Sle, R5, 0, done);
        p.bind(new);
        self.set_half_of_slot(LET_OUT, R2);
        self.0.bind(done);
    }
}
