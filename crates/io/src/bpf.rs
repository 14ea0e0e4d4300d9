//! Programs for the kernel, written down as its instructions: no compiler is needed.

/// A register. The first five are arguments, and lost with a call; the result is in `R0`; `R10` is
/// the end of 512 bytes of stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Register {
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
    R10,
}

/// One instruction, as the kernel has it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Instruction {
    code: u8,
    /// The destination in the low half, the source in the high one.
    registers: u8,
    offset: i16,
    immediate: i32,
}

/// How many bytes an access is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Size {
    Word = 0x00,
    Half = 0x08,
    Byte = 0x10,
    Double = 0x18,
}

/// Operations on a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Do {
    Add = 0x00,
    Subtract = 0x10,
    Multiply = 0x20,
    Or = 0x40,
    And = 0x50,
    ShiftLeft = 0x60,
    ShiftRight = 0x70,
    ExclusiveOr = 0xa0,
    Set = 0xb0,
}

/// When a jump is taken. Unsigned, except for the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum If {
    Equal = 0x10,
    Greater = 0x20,
    AtLeast = 0x30,
    Differs = 0x50,
    Less = 0xa0,
    SignedLess = 0xc0,
}

/// A place in a program that is jumped to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Label(usize);

// The classes of instructions, and the sources of operands.
const LD_IMM_DOUBLE: u8 = 0x18;
const LDX: u8 = 0x61;
const ST: u8 = 0x62;
const STX: u8 = 0x63;
const ALU: u8 = 0x07;
const BYTE_SWAP: u8 = 0xd4;
const TO_BIG_ENDIAN: u8 = 0x08;
const JUMP: u8 = 0x05;
const GO: u8 = 0x05;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
const OF_REGISTER: u8 = 0x08;
const ATOMIC_ADD: u8 = 0xdb;
/// Pseudo source registers of a load instruction: the number is a map's descriptor, or stands for
/// the address of the map's only element.
const MAP: Register = Register::R1;
const MAP_VALUE: Register = Register::R2;

/// Writes a program, from the start to the end.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    instructions: Vec<Instruction>,
    /// Instructions that jump, and where.
    jumps: Vec<(usize, Label)>,
    /// Where labels are.
    places: Vec<usize>,
}

const R0: Register = Register::R0;

impl Assembler {
    fn push(&mut self, code: u8, to: Register, from: Register, offset: i16, immediate: i32) {
        let (to, from) = (to as u8, from as u8);
        self.instructions.push(Instruction {
            code,
            registers: match cfg!(target_endian = "little") {
                true => to | from << 4,
                false => to << 4 | from,
            },
            offset,
            immediate,
        });
    }

    /// Returns the program.
    ///
    /// # Panics
    ///
    /// Over a label that was jumped to and not placed, or is more than 32,767 instructions away.
    pub(crate) fn finish(mut self) -> Vec<Instruction> {
        for &(at, Label(label)) in &self.jumps {
            let distance = self.places[label] as isize - at as isize - 1;
            self.instructions[at].offset = i16::try_from(distance).expect("programs are short");
        }
        self.instructions
    }

    pub(crate) fn label(&mut self) -> Label {
        self.places.push(usize::MAX);
        Label(self.places.len() - 1)
    }

    /// Here is where jumps to `label` go.
    pub(crate) fn place(&mut self, label: Label) {
        self.places[label.0] = self.instructions.len();
    }

    /// `to` = the bytes at `base` + `offset`.
    pub(crate) fn load(&mut self, size: Size, to: Register, base: Register, offset: i16) {
        self.push(LDX | size as u8, to, base, offset, 0);
    }

    /// The bytes at `base` + `offset` = `from`.
    pub(crate) fn store(&mut self, size: Size, base: Register, offset: i16, from: Register) {
        self.push(STX | size as u8, base, from, offset, 0);
    }

    /// The eight bytes at `base` + `offset` = `number`.
    pub(crate) fn store_number(&mut self, base: Register, offset: i16, number: i32) {
        self.push(ST | Size::Double as u8, base, R0, offset, number);
    }

    /// Adds `from` to the eight bytes at `base` + `offset`, at once.
    pub(crate) fn add_at(&mut self, base: Register, offset: i16, from: Register) {
        self.push(ATOMIC_ADD, base, from, offset, 0);
    }

    pub(crate) fn calculate(&mut self, what: Do, to: Register, number: i32) {
        self.push(ALU | what as u8, to, R0, 0, number);
    }

    pub(crate) fn calculate_by(&mut self, what: Do, to: Register, by: Register) {
        self.push(ALU | OF_REGISTER | what as u8, to, by, 0, 0);
    }

    /// From the order of bytes of the network to the processor's.
    pub(crate) fn order_from_network(&mut self, register: Register, bits: i32) {
        self.push(BYTE_SWAP | TO_BIG_ENDIAN, register, R0, 0, bits);
    }

    /// `to` = a number of 64 bits.
    pub(crate) fn set(&mut self, to: Register, number: u64) {
        self.wide(to, R0, number as i32, (number >> 32) as i32);
    }

    /// `to` = the map with this descriptor.
    pub(crate) fn set_map(&mut self, to: Register, map: i32) {
        self.wide(to, MAP, map, 0);
    }

    /// `to` = where the bytes of the only element of this map are.
    pub(crate) fn set_map_value(&mut self, to: Register, map: i32) {
        self.wide(to, MAP_VALUE, map, 0);
    }

    fn wide(&mut self, to: Register, kind: Register, low: i32, high: i32) {
        self.push(LD_IMM_DOUBLE, to, kind, 0, low);
        self.push(0, R0, R0, 0, high);
    }

    pub(crate) fn go(&mut self, label: Label) {
        self.jumps.push((self.instructions.len(), label));
        self.push(GO, R0, R0, 0, 0);
    }

    pub(crate) fn go_if(&mut self, what: If, register: Register, number: i32, label: Label) {
        self.jumps.push((self.instructions.len(), label));
        self.push(JUMP | what as u8, register, R0, 0, number);
    }

    pub(crate) fn go_if_by(&mut self, what: If, register: Register, by: Register, label: Label) {
        self.jumps.push((self.instructions.len(), label));
        self.push(JUMP | OF_REGISTER | what as u8, register, by, 0, 0);
    }

    pub(crate) fn call(&mut self, function: i32) {
        self.push(CALL, R0, R0, 0, function);
    }

    /// Appends the exit instruction; the program returns `R0`.
    pub(crate) fn exit(&mut self) {
        self.push(EXIT, R0, R0, 0, 0);
    }
}
