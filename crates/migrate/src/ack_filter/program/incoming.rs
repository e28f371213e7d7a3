//! What becomes of a segment of the fixed host's: `receive` of `lasthop_session::acknowledge`.

use super::*;

/// The new acknowledgement number, on the stack.
const NEW_ACK: i16 = WAS - 8;

impl Writer {
    pub(super) fn receive(&mut self) {
        self.0.jump_if(Set, R9, LIVE, "is live");
        self.0.jump("pass");
        self.0.bind("is live");
        self.half_of_slot(R1, IS_INHERITED);
        self.0.jump_if(Eq, R1, 0, "pass");
        self.half_of_slot(R1, KNOWN);
        self.0.jump_if(Set, R1, KNOWN_KERNEL, "has sent");
        self.0.jump("pass");
        self.0.bind("has sent");
        self.0.load(Size::Byte, R1, R10, WAS + FLAGS);
        self.0.jump_if(Set, R1, ACKNOWLEDGES, "acknowledges");
        self.0.jump("pass");
        self.0.bind("acknowledges");
        self.header_word(R2, ACK);
        self.half_of_slot(R4, NEXT_SEQ);
        let p = &mut self.0;
        p.mov(R1, R2);
        p.alu32(Op::Sub, R1, R4);
        p.jump_if32(Sle, R1, 0, "pass");
        self.half_of_slot(R1, INHERITED);
        let p = &mut self.0;
        p.alu32(Op::Sub, R2, R1);
        p.jump_if32(Sgt, R2, 0, "pass");
        self.count(CUT);
        let p = &mut self.0;
        p.be32(R4);
        p.store(Size::Word, R10, NEW_ACK, R4);
        p.mov(R1, R6);
        p.mov(R2, R8);
        p.alu64(Op::Add, R2, CHECKSUM);
        p.load(Size::Word, R3, R10, WAS + ACK);
        p.mov(R5, 4);
        p.call(helper::L4_CSUM_REPLACE);
        p.jump_if(Ne, R0, 0, "pass");
        p.mov(R1, R6);
        p.mov(R2, R8);
        p.alu64(Op::Add, R2, i32::from(ACK));
        self.stack(R3, NEW_ACK);
        let p = &mut self.0;
        p.mov(R4, 4);
        p.mov(R5, 0);
        p.call(helper::SKB_STORE_BYTES);
        self.pass();
    }
}
