//! The program that brings an interface's packets to AF_XDP sockets, by `bpf(2)`.
//!
//! The program is so short that it is written down here as the kernel's instructions, and no
//! compiler is needed: it looks up the packet's receive queue in a map of sockets (`XSKMAP`). A
//! packet of a queue with a socket goes there, any other on to the kernel's own stack. Before each
//! packet it writes when it came, as far as the driver has room for that.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libc::{c_long, c_uint};

/// Queues of one interface that can have a socket.
pub(crate) const QUEUES: u32 = 256;

// From the kernel's `linux/bpf.h` and `linux/if_link.h`.
const MAP_CREATE: c_uint = 0;
const MAP_UPDATE_ELEM: c_uint = 2;
const MAP_DELETE_ELEM: c_uint = 3;
const PROG_LOAD: c_uint = 5;
const LINK_CREATE: c_uint = 28;
const MAP_TYPE_XSKMAP: u32 = 17;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_TYPE_XDP: u32 = 37;
const FUNC_KTIME_GET_NS: i32 = 5;
const FUNC_REDIRECT_MAP: i32 = 51;
const FUNC_XDP_ADJUST_META: i32 = 54;
const PSEUDO_MAP_FD: u8 = 1;
const XDP_PASS: i32 = 2;
const FLAGS_SKB_MODE: u32 = 1 << 1;
const FLAGS_DRV_MODE: u32 = 1 << 2;
// Offsets in `struct xdp_md`.
const DATA: i16 = 0;
const DATA_META: i16 = 8;
const RX_QUEUE_INDEX: i16 = 16;

/// Bytes before a packet that say when it came: nanoseconds since the start of the machine
/// (`CLOCK_MONOTONIC`), as the processor has numbers. Not there if the driver has no room for it.
pub(super) const STAMP: usize = 8;

/// One instruction.
#[repr(C)]
#[derive(Clone, Copy)]
struct Instruction {
    code: u8,
    /// The destination in the low half, the source in the high one.
    registers: u8,
    offset: i16,
    immediate: i32,
}

const fn instruction(
    code: u8,
    destination: u8,
    source: u8,
    offset: i16,
    immediate: i32,
) -> Instruction {
    Instruction {
        code,
        registers: if cfg!(target_endian = "little") {
            destination | source << 4
        } else {
            destination << 4 | source
        },
        offset,
        immediate,
    }
}

/// Where in the packet's path the program stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the driver, before the kernel makes its own structures for the packet.
    Driver,
    /// Behind the driver, in every kernel and for every device.
    Stack,
}

/// The program on one interface. Dropping it takes it off.
#[derive(Debug)]
pub(crate) struct Program {
    /// Declared first, so that no packet is redirected to a map that is going.
    _link: OwnedFd,
    sockets: OwnedFd,
}

impl Program {
    /// Puts the program on the interface with this index.
    pub(crate) fn attach(interface: u32, place: Place) -> io::Result<Self> {
        let sockets = create_map()?;
        let program = load(sockets.as_fd())?;
        let link = create_link(program.as_fd(), interface, place)?;
        Ok(Self {
            _link: link,
            sockets,
        })
    }

    /// Lets the packets of `queue` go to `socket`.
    pub(crate) fn serve(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        let value = socket.as_raw_fd();
        let attributes = MapElement {
            map: self.sockets.as_raw_fd() as u32,
            key: &raw const queue as u64,
            value: &raw const value as u64,
            ..MapElement::default()
        };
        // SAFETY: `MapElement` is what this command reads; the pointers in it are to a key and a
        // value of the four bytes that the map was made for, which outlive the call.
        unsafe { bpf(MAP_UPDATE_ELEM, &attributes) }.map(drop)
    }

    /// Lets the packets of `queue` go to the kernel's stack again.
    pub(crate) fn leave(&self, queue: u32) -> io::Result<()> {
        let attributes = MapElement {
            map: self.sockets.as_raw_fd() as u32,
            key: &raw const queue as u64,
            ..MapElement::default()
        };
        // SAFETY: as in `serve`; this command reads no value.
        unsafe { bpf(MAP_DELETE_ELEM, &attributes) }.map(drop)
    }
}

#[repr(C)]
#[derive(Default)]
struct MapElement {
    map: u32,
    _padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

fn create_map() -> io::Result<OwnedFd> {
    #[repr(C)]
    struct MapCreate {
        map_type: u32,
        key_size: u32,
        value_size: u32,
        max_entries: u32,
    }
    let attributes = MapCreate {
        map_type: MAP_TYPE_XSKMAP,
        key_size: size_of::<u32>() as u32,
        value_size: size_of::<u32>() as u32,
        max_entries: QUEUES,
    };
    // SAFETY: `MapCreate` is the start of what this command reads; there are no pointers in it.
    let descriptor = unsafe { bpf(MAP_CREATE, &attributes) }?;
    Ok(own(descriptor))
}

fn load(sockets: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct ProgLoad {
        prog_type: u32,
        instructions: u32,
        start: u64,
        license: u64,
        log_level: u32,
        log_size: u32,
        log: u64,
        kernel_version: u32,
        flags: u32,
    }
    /// The functions that are called are open to any licence.
    const LICENSE: &CStr = c"MIT OR Apache-2.0";

    // The names of the kernel's assembler, for the codes used.
    const ADD64_K: u8 = 0x07;
    const JGT_X: u8 = 0x2d;
    const JNE_K: u8 = 0x55;
    const LDX_MEM_W: u8 = 0x61;
    const STX_MEM_DW: u8 = 0x7b;
    const MOV64_X: u8 = 0xbf;
    const LD_IMM_DW: u8 = 0x18;
    const MOV_K: u8 = 0xb7;
    const CALL: u8 = 0x85;
    const EXIT: u8 = 0x95;
    let instructions = [
        // r6 = context, which no call changes
        instruction(MOV64_X, 6, 1, 0, 0),
        // if bpf_xdp_adjust_meta(context, -8) goes wrong, go to the redirection
        instruction(MOV_K, 2, 0, 0, -(STAMP as i32)),
        instruction(CALL, 0, 0, 0, FUNC_XDP_ADJUST_META),
        instruction(JNE_K, 0, 0, 7, 0),
        // r0 = bpf_ktime_get_ns()
        instruction(CALL, 0, 0, 0, FUNC_KTIME_GET_NS),
        // r1 = where the eight bytes begin; they end at the packet, as the verifier wants to see
        instruction(LDX_MEM_W, 1, 6, DATA_META, 0),
        instruction(LDX_MEM_W, 2, 6, DATA, 0),
        instruction(MOV64_X, 3, 1, 0, 0),
        instruction(ADD64_K, 3, 0, 0, STAMP as i32),
        instruction(JGT_X, 3, 2, 1, 0),
        instruction(STX_MEM_DW, 1, 0, 0, 0),
        // The redirection: r2 = context->rx_queue_index
        instruction(LDX_MEM_W, 2, 6, RX_QUEUE_INDEX, 0),
        // r1 = the map, which takes two places
        instruction(LD_IMM_DW, 1, PSEUDO_MAP_FD, 0, sockets.as_raw_fd()),
        instruction(0, 0, 0, 0, 0),
        // r3 = what to answer for a queue without a socket
        instruction(MOV_K, 3, 0, 0, XDP_PASS),
        // r0 = bpf_redirect_map(r1, r2, r3)
        instruction(CALL, 0, 0, 0, FUNC_REDIRECT_MAP),
        instruction(EXIT, 0, 0, 0, 0),
    ];
    let attributes = ProgLoad {
        prog_type: PROG_TYPE_XDP,
        instructions: instructions.len() as u32,
        start: &raw const instructions as u64,
        license: LICENSE.as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log: 0,
        kernel_version: 0,
        flags: 0,
    };
    // SAFETY: `ProgLoad` is the start of what this command reads; it points to as many
    // instructions as it says and to a text that ends with a zero, and both outlive the call.
    let descriptor = unsafe { bpf(PROG_LOAD, &attributes) }?;
    Ok(own(descriptor))
}

fn create_link(program: BorrowedFd<'_>, interface: u32, place: Place) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct LinkCreate {
        program: u32,
        interface: u32,
        attach_type: u32,
        flags: u32,
    }
    let attributes = LinkCreate {
        program: program.as_raw_fd() as u32,
        interface,
        attach_type: ATTACH_TYPE_XDP,
        flags: match place {
            Place::Driver => FLAGS_DRV_MODE,
            Place::Stack => FLAGS_SKB_MODE,
        },
    };
    // SAFETY: `LinkCreate` is the start of what this command reads; there are no pointers in it.
    let descriptor = unsafe { bpf(LINK_CREATE, &attributes) }?;
    Ok(own(descriptor))
}

/// The system call. The kernel takes what `attributes` lacks to be zero.
///
/// # Safety
///
/// `T` is what the kernel reads for this command, without padding, and the pointers in it are
/// good for it.
unsafe fn bpf<T>(command: c_uint, attributes: &T) -> io::Result<c_long> {
    let size = size_of::<T>() as c_uint;
    // SAFETY: the kernel reads `size` bytes at the pointer; the rest is the caller's promise. The
    // commands used here write nothing back.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, &raw const *attributes, size) };
    match result {
        -1 => Err(io::Error::last_os_error()),
        result => Ok(result),
    }
}

/// A descriptor that `bpf` has just returned.
fn own(descriptor: c_long) -> OwnedFd {
    // SAFETY: the commands that this is used for return a new descriptor, closed on `exec`, that
    // nobody else knows.
    unsafe { OwnedFd::from_raw_fd(descriptor as i32) }
}
