//! Assembler of eBPF instructions. Knows nothing of the purpose of a program.
//!
//! Source: the kernel's Documentation/bpf/standardization/instruction-set.rst. The programs have a few
//! hundred instructions. Assembled here, they need no compiler except cargo's. The server's pid, lengths and
//! maps are constants in them.

/// r0: results; r1 to r5: arguments, lost in a call; r6 to r9: kept over calls; r10: the frame of 512 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reg {
    R0 = 0,
    R1,
    R2,
    R3,
    R4,
    R6 = 6,
    R7,
    R8,
    R9,
    Frame,
}

/// Bytes of a load or store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    Two,
    Four,
    Eight,
}

impl Size {
    fn bits(self) -> u8 {
        match self {
            Size::Two => 0x08,
            Size::Four => 0x00,
            Size::Eight => 0x18,
        }
    }
}

/// 64-bit arithmetic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    Add = 0x00,
    Sub = 0x10,
    Or = 0x40,
    ShiftLeft = 0x60,
    ShiftRight = 0x70,
    Move = 0xb0,
    /// Keeps the sign.
    SignedShiftRight = 0xc0,
}

/// When to jump; comparisons are of 64 bits, a constant is extended by its sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    Equal = 0x10,
    /// Unsigned.
    AtLeast = 0x30,
    /// Any bit of the constant is set.
    AnyBit = 0x40,
    NotEqual = 0x50,
    /// Unsigned.
    AtMost = 0xb0,
    SignedLess = 0xc0,
    SignedAtMost = 0xd0,
}

/// Functions of the kernel, by their numbers in `enum bpf_func_id` (uapi/linux/bpf.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Helper {
    MapLookup = 1,
    MapUpdate = 2,
    MapDelete = 3,
    /// CLOCK_MONOTONIC, ns.
    Now = 5,
    Cpu = 8,
    /// Process in the upper half, thread in the lower.
    ProcessAndThread = 14,
    /// Of a socket: no other ever has the same.
    Cookie = 46,
    ReadUser = 112,
    ReadKernel = 113,
    RingOutput = 130,
    /// The thread that is running, and with what its system call was called.
    Task = 158,
    Registers = 175,
}

/// A place in a program, to jump to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Label(usize);

/// A program as it is written.
#[derive(Debug, Default)]
pub struct Assembler {
    code: Vec<u64>,
    /// Where each label lies, once it is placed.
    labels: Vec<Option<usize>>,
    /// Jumps, and where they lead.
    jumps: Vec<(usize, Label)>,
}

const IMMEDIATE: u8 = 0x00;
const REGISTER: u8 = 0x08;
const ALU64: u8 = 0x07;
const JUMP: u8 = 0x05;
const LOAD: u8 = 0x61;
const STORE: u8 = 0x63;
const STORE_CONSTANT: u8 = 0x62;
const ATOMIC: u8 = 0xc3;
const EXCHANGE: i32 = 0xe1;
const CALL: u8 = 0x85;
/// In the source of a call.
const KERNEL_FUNCTION: u8 = 2;
const EXIT: u8 = 0x95;
/// Takes two places; the kernel puts a map's address there if the source says 1.
const LOAD_LONG: u8 = 0x18;
const MAP_BY_DESCRIPTOR: u8 = 1;

/// In memory: opcode, two registers, offset, constant, each in the machine's own order.
fn instruction(code: u8, to: u8, from: u8, offset: i16, constant: i32) -> u64 {
    let [c0, c1, c2, c3] = constant.to_ne_bytes();
    let [o0, o1] = offset.to_ne_bytes();
    let registers = if cfg!(target_endian = "little") { to | from << 4 } else { to << 4 | from };
    u64::from_ne_bytes([code, registers, o0, o1, c0, c1, c2, c3])
}

impl Assembler {
    fn push(&mut self, code: u8, to: Reg, from: Reg, offset: i16, constant: i32) {
        self.code.push(instruction(code, to as u8, from as u8, offset, constant));
    }

    pub fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// The label is here.
    pub fn bind(&mut self, label: Label) {
        self.labels[label.0] = Some(self.code.len());
    }

    pub fn set(&mut self, to: Reg, constant: i32) {
        self.compute(Op::Move, to, constant);
    }

    pub fn copy(&mut self, to: Reg, from: Reg) {
        self.combine(Op::Move, to, from);
    }

    /// `to = to op constant`
    pub fn compute(&mut self, op: Op, to: Reg, constant: i32) {
        self.push(ALU64 | IMMEDIATE | op as u8, to, Reg::R0, 0, constant);
    }

    /// `to = to op from`
    pub fn combine(&mut self, op: Op, to: Reg, from: Reg) {
        self.push(ALU64 | REGISTER | op as u8, to, from, 0, 0);
    }

    /// `to = base + offset`
    pub fn address(&mut self, to: Reg, base: Reg, offset: i32) {
        self.copy(to, base);
        if offset != 0 {
            self.compute(Op::Add, to, offset);
        }
    }

    /// `to = *(base + offset)`
    pub fn load(&mut self, size: Size, to: Reg, base: Reg, offset: i16) {
        self.push(LOAD | size.bits(), to, base, offset, 0);
    }

    /// `*(base + offset) = from`
    pub fn store(&mut self, size: Size, base: Reg, offset: i16, from: Reg) {
        self.push(STORE | size.bits(), base, from, offset, 0);
    }

    pub fn store_constant(&mut self, size: Size, base: Reg, offset: i16, constant: i32) {
        self.push(STORE_CONSTANT | size.bits(), base, Reg::R0, offset, constant);
    }

    /// `from` and `*(base + offset)` change places, eight bytes at once; Linux 5.12.
    pub fn exchange(&mut self, base: Reg, offset: i16, from: Reg) {
        self.push(ATOMIC | Size::Eight.bits(), base, from, offset, EXCHANGE);
    }

    /// `to` = the map with this descriptor.
    pub fn map(&mut self, to: Reg, descriptor: i32) {
        self.code.push(instruction(LOAD_LONG, to as u8, MAP_BY_DESCRIPTOR, 0, descriptor));
        self.code.push(0);
    }

    /// r1 to r5 are the arguments, r0 the result.
    pub fn call(&mut self, helper: Helper) {
        self.push(CALL, Reg::R0, Reg::R0, 0, helper as i32);
    }

    /// Calls a function of the kernel that is no helper, by its number in the kernel's type information.
    pub fn call_kernel(&mut self, function: i32) {
        self.code.push(instruction(CALL, 0, KERNEL_FUNCTION, 0, function));
    }

    pub fn jump(&mut self, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.push(JUMP, Reg::R0, Reg::R0, 0, 0);
    }

    pub fn jump_if(&mut self, when: Condition, what: Reg, constant: i32, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.push(JUMP | IMMEDIATE | when as u8, what, Reg::R0, 0, constant);
    }

    /// Ends the program; 0 is what every hook may answer.
    pub fn exit(&mut self) {
        self.set(Reg::R0, 0);
        self.push(EXIT, Reg::R0, Reg::R0, 0, 0);
    }

    /// The program, with its jumps resolved. `None`: a label was never placed, or a jump is too long.
    pub fn finish(mut self) -> Option<Vec<u64>> {
        for (at, label) in self.jumps {
            let place = self.labels[label.0]?;
            let distance = i16::try_from(place as i64 - at as i64 - 1).ok()?;
            let mut bytes = self.code[at].to_ne_bytes();
            bytes[2..4].copy_from_slice(&distance.to_ne_bytes());
            self.code[at] = u64::from_ne_bytes(bytes);
        }
        Some(self.code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each instruction by its eight bytes, as the kernel's own documents and headers spell them.
    #[test]
    fn instructions_are_encoded_as_the_kernel_reads_them() {
        let mut asm = Assembler::default();
        let out = asm.label();
        asm.set(Reg::R6, -2);
        asm.combine(Op::Sub, Reg::R2, Reg::R9);
        asm.compute(Op::ShiftRight, Reg::R0, 32);
        asm.call_kernel(4711);
        asm.load(Size::Eight, Reg::R7, Reg::R6, 112);
        asm.load(Size::Four, Reg::R1, Reg::Frame, -8);
        asm.load(Size::Two, Reg::R1, Reg::Frame, -8);
        asm.store(Size::Eight, Reg::Frame, -16, Reg::R3);
        asm.store_constant(Size::Four, Reg::R7, 36, 0x0401);
        asm.exchange(Reg::R7, -48, Reg::R1);
        asm.map(Reg::R1, 5);
        asm.call(Helper::RingOutput);
        asm.jump_if(Condition::NotEqual, Reg::R0, 4711, out);
        asm.jump_if(Condition::SignedAtMost, Reg::R8, 0, out);
        asm.jump(out);
        asm.set(Reg::R1, 1);
        asm.bind(out);
        asm.exit();
        let bytes: Vec<[u8; 8]> = asm.finish().unwrap().iter().map(|word| word.to_le_bytes()).collect();
        assert_eq!(
            bytes,
            [
                [0xb7, 0x06, 0, 0, 0xfe, 0xff, 0xff, 0xff],
                [0x1f, 0x92, 0, 0, 0, 0, 0, 0],
                [0x77, 0x00, 0, 0, 32, 0, 0, 0],
                [0x85, 0x20, 0, 0, 0x67, 0x12, 0, 0],
                [0x79, 0x67, 112, 0, 0, 0, 0, 0],
                [0x61, 0xa1, 0xf8, 0xff, 0, 0, 0, 0],
                [0x69, 0xa1, 0xf8, 0xff, 0, 0, 0, 0],
                [0x7b, 0x3a, 0xf0, 0xff, 0, 0, 0, 0],
                [0x62, 0x07, 36, 0, 0x01, 0x04, 0, 0],
                [0xdb, 0x17, 0xd0, 0xff, 0xe1, 0, 0, 0],
                [0x18, 0x11, 0, 0, 5, 0, 0, 0],
                [0, 0, 0, 0, 0, 0, 0, 0],
                [0x85, 0x00, 0, 0, 130, 0, 0, 0],
                [0x55, 0x00, 3, 0, 0x67, 0x12, 0, 0],
                [0xd5, 0x08, 2, 0, 0, 0, 0, 0],
                [0x05, 0x00, 1, 0, 0, 0, 0, 0],
                [0xb7, 0x01, 0, 0, 1, 0, 0, 0],
                [0xb7, 0x00, 0, 0, 0, 0, 0, 0],
                [0x95, 0x00, 0, 0, 0, 0, 0, 0],
            ]
        );
    }

    #[test]
    fn jumps_lead_backwards_too_and_a_label_without_a_place_is_no_program() {
        let mut asm = Assembler::default();
        let again = asm.label();
        asm.bind(again);
        asm.compute(Op::Add, Reg::R1, 1);
        asm.jump_if(Condition::AtMost, Reg::R1, 9, again);
        let code = asm.finish().unwrap();
        assert_eq!(code[1].to_ne_bytes()[2..4], (-2i16).to_ne_bytes());

        let mut asm = Assembler::default();
        let nowhere = asm.label();
        asm.jump(nowhere);
        assert_eq!(asm.finish(), None);
    }
}
