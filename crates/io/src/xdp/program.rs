//! The program that delivers an interface's packets to AF_XDP sockets.
//!
//! The program on the interface jumps to the current program in a table; if the table is empty packets go
//! to the kernel's own stack. The one in the table looks up the packet's receive queue in a map of
//! sockets (`XSKMAP`). A packet of a queue with a socket goes there, any other to the kernel's own stack.
//! Before each packet it writes the arrival time, if the driver has headroom for it.

use crate::bpf::{Assembler, Do, If, Instruction, Register::*, Size};
use crate::sys::bpf::XDP_PASS;

/// Bytes before a packet for its arrival time: nanoseconds since boot (`CLOCK_MONOTONIC`), in the
/// processor's byte order. Not there if the driver has no room for it.
pub(crate) const STAMP: usize = 8;

// The kernel's functions.
const KTIME_GET_NS: i32 = 5;
const TAIL_CALL: i32 = 12;
const REDIRECT_MAP: i32 = 51;
const XDP_ADJUST_META: i32 = 54;
// Offsets in `struct xdp_md`.
const DATA: i16 = 0;
const DATA_META: i16 = 8;
const RX_QUEUE_INDEX: i16 = 16;

/// Returns a program that jumps to the program in `table`.
pub(crate) fn enter(table: i32) -> Vec<Instruction> {
    let mut asm = Assembler::default();
    asm.set_map(R2, table);
    asm.calculate(Do::Set, R3, 0);
    asm.call(TAIL_CALL);
    // There is none.
    asm.calculate(Do::Set, R0, XDP_PASS);
    asm.exit();
    asm.finish()
}

/// Ends a program by bringing packets to sockets, with the context in `R6` and the descriptor of the map.
pub(crate) fn redirect(asm: &mut Assembler, sockets: i32) {
    let unstamped = asm.label();
    asm.calculate_by(Do::Set, R1, R6);
    asm.calculate(Do::Set, R2, -(STAMP as i32));
    asm.call(XDP_ADJUST_META);
    asm.go_if(If::Differs, R0, 0, unstamped);
    asm.call(KTIME_GET_NS);
    // R1 = where the eight bytes begin; they end at the packet, as the verifier wants to see.
    asm.load(Size::Word, R1, R6, DATA_META);
    asm.load(Size::Word, R2, R6, DATA);
    asm.calculate_by(Do::Set, R3, R1);
    asm.calculate(Do::Add, R3, STAMP as i32);
    asm.go_if_by(If::Greater, R3, R2, unstamped);
    asm.store(Size::Double, R1, 0, R0);
    asm.place(unstamped);
    asm.load(Size::Word, R2, R6, RX_QUEUE_INDEX);
    asm.set_map(R1, sockets);
    // The verdict for a queue without a socket.
    asm.calculate(Do::Set, R3, XDP_PASS);
    asm.call(REDIRECT_MAP);
    asm.exit();
}
