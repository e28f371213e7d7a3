//! Instructions of eBPF (RFC 9669), put together in order, with jumps to labels.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd};

use thiserror::Error;

// RFC 9669 section 3: classes of instructions, and what else the first byte of one says.
const CLASS_LD: u8 = 0x00;
const CLASS_LDX: u8 = 0x01;
const CLASS_ST: u8 = 0x02;
const CLASS_STX: u8 = 0x03;
const CLASS_ALU: u8 = 0x04;
const CLASS_JMP: u8 = 0x05;
const CLASS_JMP32: u8 = 0x06;
const CLASS_ALU64: u8 = 0x07;
const MODE_MEM: u8 = 0x60;
const MODE_ATOMIC: u8 = 0xc0;
const SOURCE_REGISTER: u8 = 0x08;
/// The operation of changing the order of bytes, with the bit that asks for the network's.
const TO_BIG_ENDIAN: u8 = 0xd8;
const JUMP_ALWAYS: u8 = 0x00;
const JUMP_CALL: u8 = 0x80;
const JUMP_EXIT: u8 = 0x90;
/// The number in a 64-bit immediate is a map's descriptor (RFC 9669 section 5.4, `map_by_fd`).
const PSEUDO_MAP_FD: u8 = 1;

/// The numbers of the kernel's functions that programs here call (bpf-helpers(7)).
pub mod helper {
    /// `bpf_map_lookup_elem(map, key)`: a pointer to the value, or zero.
    pub const MAP_LOOKUP_ELEM: i32 = 1;
    /// `bpf_ktime_get_ns()`: CLOCK_MONOTONIC.
    pub const KTIME_GET_NS: i32 = 5;
    /// `bpf_skb_store_bytes(skb, offset, from, len, flags)`: zero, or an error.
    pub const SKB_STORE_BYTES: i32 = 9;
    /// `bpf_l4_csum_replace(skb, offset, from, to, flags)`: zero, or an error.
    pub const L4_CSUM_REPLACE: i32 = 11;
    /// `bpf_skb_load_bytes(skb, offset, to, len)`: zero, or an error.
    pub const SKB_LOAD_BYTES: i32 = 26;
    /// `bpf_csum_diff(from, from_size, to, to_size, seed)`: a sum, or an error.
    pub const CSUM_DIFF: i32 = 28;
}

/// A register. `R0` holds what functions return, `R1` to `R5` what they are given, `R6` to `R9` survive them, and
/// `R10` points at the end of the stack and cannot be changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reg {
    /// What a function or the program returns.
    R0,
    /// First argument; at the start the packet.
    R1,
    /// Second argument.
    R2,
    /// Third argument.
    R3,
    /// Fourth argument.
    R4,
    /// Fifth argument.
    R5,
    /// Survives calls.
    R6,
    /// Survives calls.
    R7,
    /// Survives calls.
    R8,
    /// Survives calls.
    R9,
    /// The end of the stack, of 512 bytes below.
    R10,
}

/// The second operand of an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// A register.
    Reg(Reg),
    /// A number, whose sign is extended where 64 bits are asked for.
    Imm(i32),
}

impl From<Reg> for Source {
    fn from(reg: Reg) -> Self {
        Self::Reg(reg)
    }
}

impl From<i32> for Source {
    fn from(number: i32) -> Self {
        Self::Imm(number)
    }
}

impl Source {
    /// The bit of the code that says which it is, the register's number, and the immediate.
    fn parts(self) -> (u8, u8, i32) {
        match self {
            Self::Reg(reg) => (SOURCE_REGISTER, reg as u8, 0),
            Self::Imm(number) => (0, 0, number),
        }
    }
}

/// How much of memory an instruction reads or writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Size {
    /// Four bytes.
    Word = 0x00,
    /// Two bytes.
    Half = 0x08,
    /// One byte.
    Byte = 0x10,
    /// Eight bytes.
    Double = 0x18,
}

/// Arithmetic. Shifts use as many bits of their second operand as the width needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// Sum.
    Add = 0x00,
    /// Difference.
    Sub = 0x10,
    /// Bits of either.
    Or = 0x40,
    /// Bits of both.
    And = 0x50,
    /// Shift to the left.
    Lsh = 0x60,
    /// Shift to the right; zeros follow.
    Rsh = 0x70,
    /// The second operand itself.
    Mov = 0xb0,
}

/// What is done to memory in one step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtomicOp {
    /// Adds.
    Add = 0x00,
    /// Sets bits.
    Or = 0x40,
}

/// When a jump is made: the first operand is ... the second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Condition {
    /// Equal to.
    Eq = 0x10,
    /// Greater than, without signs.
    Gt = 0x20,
    /// Has a bit in common with.
    Set = 0x40,
    /// Different from.
    Ne = 0x50,
    /// Greater than, with signs.
    Sgt = 0x60,
    /// Less than, without signs.
    Lt = 0xa0,
    /// At most, without signs.
    Le = 0xb0,
    /// Less than, with signs.
    Slt = 0xc0,
    /// At most, with signs.
    Sle = 0xd0,
}

/// `struct bpf_insn`: one instruction of eight bytes.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Instruction {
    code: u8,
    /// Destination and source, four bits each.
    registers: u8,
    offset: i16,
    immediate: i32,
}

/// A program that cannot be put together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum AssembleError {
    /// A jump goes to a label that is nowhere.
    #[error("no label `{0}` is bound")]
    UnknownLabel(&'static str),
    /// A label is in two places.
    #[error("the label `{0}` is bound twice")]
    BoundTwice(&'static str),
    /// A jump spans more instructions than 16 bits can say.
    #[error("the label `{0}` is too far from a jump to it")]
    TooFar(&'static str),
}

/// Puts a program together, instruction by instruction. Labels may be jumped to before they are bound.
#[derive(Clone, Default, Debug)]
pub struct Assembler {
    instructions: Vec<Instruction>,
    labels: BTreeMap<&'static str, usize>,
    /// Of each jump its place, and where it goes.
    jumps: Vec<(usize, &'static str)>,
    bound_twice: Option<&'static str>,
}

impl Assembler {
    /// An empty program.
    pub fn new() -> Self {
        Self::default()
    }

    /// Jumps to the label come here.
    pub fn bind(&mut self, label: &'static str) {
        if self.labels.insert(label, self.instructions.len()).is_some() {
            self.bound_twice.get_or_insert(label);
        }
    }

    /// `dst = dst op src`, of 64 bits.
    pub fn alu64(&mut self, op: Op, dst: Reg, src: impl Into<Source>) {
        self.operate(CLASS_ALU64 | op as u8, dst, src.into(), 0);
    }

    /// `dst = dst op src`, of 32 bits; the upper ones become zero.
    pub fn alu32(&mut self, op: Op, dst: Reg, src: impl Into<Source>) {
        self.operate(CLASS_ALU | op as u8, dst, src.into(), 0);
    }

    /// `dst = src`.
    pub fn mov(&mut self, dst: Reg, src: impl Into<Source>) {
        self.alu64(Op::Mov, dst, src);
    }

    /// The lower 16 bits between the host's order of bytes and the network's; the others become zero.
    pub fn be16(&mut self, dst: Reg) {
        self.push(CLASS_ALU | TO_BIG_ENDIAN, dst as u8, 0, 0, 16);
    }

    /// The lower 32 bits between the host's order of bytes and the network's; the others become zero.
    pub fn be32(&mut self, dst: Reg) {
        self.push(CLASS_ALU | TO_BIG_ENDIAN, dst as u8, 0, 0, 32);
    }

    /// `dst = *(base + offset)`; what is shorter than the register is followed by zeros.
    pub fn load(&mut self, size: Size, dst: Reg, base: Reg, offset: i16) {
        self.push(CLASS_LDX | MODE_MEM | size as u8, dst as u8, base as u8, offset, 0);
    }

    /// `*(base + offset) = src`.
    pub fn store(&mut self, size: Size, base: Reg, offset: i16, src: impl Into<Source>) {
        let (source, src, number) = src.into().parts();
        let class = if source == 0 { CLASS_ST } else { CLASS_STX };
        self.push(class | MODE_MEM | size as u8, base as u8, src, offset, number);
    }

    /// `*(base + offset) op= src` in one step, of four or eight bytes.
    pub fn atomic(&mut self, op: AtomicOp, size: Size, base: Reg, offset: i16, src: Reg) {
        let code = CLASS_STX | MODE_ATOMIC | size as u8;
        self.push(code, base as u8, src as u8, offset, op as i32);
    }

    /// `dst = number`, of 64 bits; takes the place of two instructions.
    pub fn load_imm64(&mut self, dst: Reg, number: u64) {
        self.wide(dst, 0, number);
    }

    /// `dst` becomes the map, which must be open when the program is loaded; takes the place of two instructions.
    pub fn load_map(&mut self, dst: Reg, map: impl AsFd) {
        let fd = u64::from(map.as_fd().as_raw_fd().cast_unsigned());
        self.wide(dst, PSEUDO_MAP_FD, fd);
    }

    /// Goes to the label.
    pub fn jump(&mut self, label: &'static str) {
        self.jumps.push((self.instructions.len(), label));
        self.push(CLASS_JMP | JUMP_ALWAYS, 0, 0, 0, 0);
    }

    /// Goes to the label if that is so, of 64 bits.
    pub fn jump_if(
        &mut self,
        condition: Condition,
        dst: Reg,
        src: impl Into<Source>,
        label: &'static str,
    ) {
        self.jumps.push((self.instructions.len(), label));
        self.operate(CLASS_JMP | condition as u8, dst, src.into(), 0);
    }

    /// Goes to the label if that is so of the lower 32 bits.
    pub fn jump_if32(
        &mut self,
        condition: Condition,
        dst: Reg,
        src: impl Into<Source>,
        label: &'static str,
    ) {
        self.jumps.push((self.instructions.len(), label));
        self.operate(CLASS_JMP32 | condition as u8, dst, src.into(), 0);
    }

    /// Calls one of the kernel's functions, by its number (see [`helper`]).
    pub fn call(&mut self, function: i32) {
        self.push(CLASS_JMP | JUMP_CALL, 0, 0, 0, function);
    }

    /// Ends the program, which returns `R0`.
    pub fn exit(&mut self) {
        self.push(CLASS_JMP | JUMP_EXIT, 0, 0, 0, 0);
    }

    /// The whole program.
    ///
    /// # Errors
    ///
    /// A label is nowhere, in two places, or too far.
    pub fn finish(mut self) -> Result<Vec<Instruction>, AssembleError> {
        if let Some(label) = self.bound_twice {
            return Err(AssembleError::BoundTwice(label));
        }
        for (place, label) in self.jumps {
            let to = *self.labels.get(label).ok_or(AssembleError::UnknownLabel(label))?;
            // Counted from the instruction after the jump.
            let distance = to as i64 - place as i64 - 1;
            let jump = &mut self.instructions[place];
            jump.offset = i16::try_from(distance).map_err(|_| AssembleError::TooFar(label))?;
        }
        Ok(self.instructions)
    }

    fn operate(&mut self, code: u8, dst: Reg, src: Source, offset: i16) {
        let (source, src, number) = src.parts();
        self.push(code | source, dst as u8, src, offset, number);
    }

    fn wide(&mut self, dst: Reg, kind: u8, number: u64) {
        let half = |bits: u64| (bits as u32).cast_signed();
        self.push(CLASS_LD | Size::Double as u8, dst as u8, kind, 0, half(number));
        self.push(0, 0, 0, 0, half(number >> 32));
    }

    fn push(&mut self, code: u8, dst: u8, src: u8, offset: i16, immediate: i32) {
        let little = cfg!(target_endian = "little");
        let registers = if little { src << 4 | dst } else { dst << 4 | src };
        self.instructions.push(Instruction { code, registers, offset, immediate });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(assembler: Assembler) -> Vec<(u8, u8, i16, i32)> {
        let all = assembler.finish().unwrap();
        all.iter().map(|i| (i.code, i.registers, i.offset, i.immediate)).collect()
    }

    /// The codes are those of linux/bpf.h, as a compiler writes them.
    #[cfg(target_endian = "little")]
    #[test]
    fn instructions_have_the_codes_of_the_standard() {
        let mut a = Assembler::new();
        a.mov(Reg::R6, Reg::R1);
        a.alu32(Op::Add, Reg::R2, -1);
        a.be16(Reg::R2);
        a.load(Size::Word, Reg::R3, Reg::R6, 16);
        a.store(Size::Double, Reg::R10, -8, Reg::R3);
        a.store(Size::Byte, Reg::R10, -9, 7);
        a.atomic(AtomicOp::Add, Size::Word, Reg::R7, 4, Reg::R1);
        a.load_imm64(Reg::R4, 0x1_0000_0002);
        a.call(helper::KTIME_GET_NS);
        a.exit();
        let expected = [
            (0xbf, 0x16, 0, 0),
            (0x04, 0x02, 0, -1),
            (0xdc, 0x02, 0, 16),
            (0x61, 0x63, 16, 0),
            (0x7b, 0x3a, -8, 0),
            (0x72, 0x0a, -9, 7),
            (0xc3, 0x17, 4, 0),
            (0x18, 0x04, 0, 2),
            (0x00, 0x00, 0, 1),
            (0x85, 0x00, 0, 5),
            (0x95, 0x00, 0, 0),
        ];
        assert_eq!(bytes(a), expected);
    }

    #[test]
    fn jumps_are_counted_from_the_instruction_behind_them() {
        let mut a = Assembler::new();
        a.bind("again");
        a.jump_if(Condition::Eq, Reg::R1, 0, "end");
        a.jump_if32(Condition::Slt, Reg::R1, Reg::R2, "again");
        a.jump("end");
        a.bind("end");
        a.exit();
        let offsets: Vec<i16> = bytes(a).iter().map(|i| i.2).collect();
        assert_eq!(offsets, [2, -2, 0, 0]);
    }

    #[test]
    fn labels_that_cannot_be_reached_are_named() {
        let mut a = Assembler::new();
        a.jump("nowhere");
        assert_eq!(a.clone().finish(), Err(AssembleError::UnknownLabel("nowhere")));
        a.bind("here");
        a.bind("here");
        assert_eq!(a.finish(), Err(AssembleError::BoundTwice("here")));
        let mut a = Assembler::new();
        a.jump("far");
        (0..40_000).for_each(|_| a.exit());
        a.bind("far");
        assert_eq!(a.finish(), Err(AssembleError::TooFar("far")));
    }
}
