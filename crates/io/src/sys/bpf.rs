//! Programs and maps in the kernel, by `bpf(2)`.

use std::ffi::CStr;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use libc::{c_int, c_long, c_uint};

use super::memory::Mapped;
use super::packet::{let_none_pass, let_pass};
use super::set_option;
use crate::bpf::{Assembler, Do, Instruction, Register};
use crate::xdp::program::{enter, redirect};

/// Queues of one interface that can have a socket.
pub(crate) const QUEUES: u32 = 256;

// From the kernel's `linux/bpf.h` and `linux/if_link.h`.
const MAP_CREATE: c_uint = 0;
const MAP_UPDATE_ELEM: c_uint = 2;
const MAP_DELETE_ELEM: c_uint = 3;
const PROG_LOAD: c_uint = 5;
const PROG_TEST_RUN: c_uint = 10;
const LINK_CREATE: c_uint = 28;
const MAP_TYPE_HASH: u32 = 1;
const MAP_TYPE_ARRAY: u32 = 2;
const MAP_TYPE_PROG_ARRAY: u32 = 3;
const MAP_TYPE_LRU_HASH: u32 = 9;
const MAP_TYPE_XSKMAP: u32 = 17;
const MAP_MMAPABLE: u32 = 1 << 10;
const PROG_TYPE_SOCKET_FILTER: u32 = 1;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_TYPE_XDP: u32 = 37;
const FLAGS_SKB_MODE: u32 = 1 << 1;
const FLAGS_DRV_MODE: u32 = 1 << 2;
pub(crate) const XDP_DROP: u32 = 1;
pub(crate) const XDP_PASS: i32 = 2;

/// The purpose of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProgramKind {
    /// The number of bytes of a packet that a socket receives.
    SocketFilter,
    /// The verdict on a packet that arrives at an interface.
    Xdp,
}

/// Where in the packet's path the program stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttachPoint {
    /// In the driver, before the kernel makes its own structures for the packet.
    Driver,
    /// Behind the driver, in every kernel and for every device.
    Stack,
}

/// The program that delivers packets to sockets, on one interface. Dropping it detaches it.
///
/// The kernel empties a table of programs when its last descriptor is closed, and the program on the interface passes
/// packets to the stack while the table is empty. Detaching that program and closing the sockets takes the kernel a
/// tenth of a second. The table therefore has one of the highest descriptors, since Linux closes a dying process's
/// highest descriptors first.
#[derive(Debug)]
pub(crate) struct Program {
    /// Declared first, so that no packet is redirected to a map that is going.
    table: OwnedFd,
    /// The program in the table.
    current: Mutex<Arc<OwnedFd>>,
    /// Keeps what enters the table on the interface.
    _link: OwnedFd,
    sockets: OwnedFd,
}

impl Program {
    /// Puts the program on the interface with this index.
    pub(crate) fn attach(interface: u32, place: AttachPoint) -> io::Result<Self> {
        let sockets = create_map(MapCreate {
            map_type: MAP_TYPE_XSKMAP,
            key_size: size_of::<u32>() as u32,
            value_size: size_of::<u32>() as u32,
            max_entries: QUEUES,
            flags: 0,
        })?;
        let table = highest(create_map(MapCreate {
            map_type: MAP_TYPE_PROG_ARRAY,
            key_size: size_of::<u32>() as u32,
            value_size: size_of::<u32>() as u32,
            max_entries: 1,
            flags: 0,
        })?);
        let entry = load(ProgramKind::Xdp, &enter(table.as_raw_fd()))?;
        let link = create_link(entry.as_fd(), interface, place)?;
        let mut asm = Assembler::default();
        asm.calculate_by(Do::Set, Register::R6, Register::R1);
        redirect(&mut asm, sockets.as_raw_fd());
        let current = load(ProgramKind::Xdp, &asm.finish())?;
        set_entry(table.as_fd(), 0, current.as_fd())?;
        Ok(Self {
            table,
            current: Mutex::new(Arc::new(current)),
            _link: link,
            sockets,
        })
    }

    /// Returns the descriptor of the map of sockets.
    pub(crate) fn sockets(&self) -> i32 {
        self.sockets.as_raw_fd()
    }

    /// Replaces the current program atomically, and returns the former one.
    pub(crate) fn exchange(&self, program: Arc<OwnedFd>) -> io::Result<Arc<OwnedFd>> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        set_entry(self.table.as_fd(), 0, program.as_fd())?;
        Ok(mem::replace(&mut current, program))
    }

    /// Lets the packets of `queue` go to `socket`.
    pub(crate) fn serve(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        set_entry(self.sockets.as_fd(), queue, socket)
    }

    /// Lets the packets of `queue` go to the kernel's stack again.
    pub(crate) fn leave(&self, queue: u32) -> io::Result<()> {
        let attributes = MapElement {
            map: self.sockets.as_raw_fd() as u32,
            key: &raw const queue as u64,
            ..MapElement::default()
        };
        // SAFETY: as in `set_entry`; this command reads no value.
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

#[repr(C)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    flags: u32,
}

/// Sets the entry `key` of a map to the object of a descriptor.
fn set_entry(map: BorrowedFd<'_>, key: u32, value: BorrowedFd<'_>) -> io::Result<()> {
    let value = value.as_raw_fd();
    let attributes = MapElement {
        map: map.as_raw_fd() as u32,
        key: &raw const key as u64,
        value: &raw const value as u64,
        ..MapElement::default()
    };
    // SAFETY: `MapElement` is what this command reads; the pointers in it are to a key and a
    // value of the four bytes that these maps are made for, which outlive the call.
    unsafe { bpf(MAP_UPDATE_ELEM, &attributes) }.map(drop)
}

/// The same with one of the highest numbers that the process may have, if one is free.
fn highest(descriptor: OwnedFd) -> OwnedFd {
    /// A table of descriptors is as long as its highest.
    const MOST: libc::rlim_t = 1 << 16;
    /// Places that are looked at.
    const PLACES: libc::rlim_t = 64;

    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the kernel writes one `rlimit` at the pointer.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    let least = limit.rlim_cur.min(MOST).saturating_sub(PLACES);
    if known != 0 || least == 0 {
        return descriptor;
    }
    // SAFETY: takes no pointer.
    let copy = unsafe {
        libc::fcntl(
            descriptor.as_raw_fd(),
            libc::F_DUPFD_CLOEXEC,
            least as c_int,
        )
    };
    match copy {
        -1 => descriptor,
        copy => own(copy.into()),
    }
}

fn create_map(attributes: MapCreate) -> io::Result<OwnedFd> {
    // SAFETY: `MapCreate` is the start of what this command reads; there are no pointers in it.
    let descriptor = unsafe { bpf(MAP_CREATE, &attributes) }?;
    Ok(own(descriptor))
}

/// Creates a map of `bytes` zero bytes in one piece, which programs may read and write and processes may map.
pub(crate) fn shared_memory(bytes: usize) -> io::Result<OwnedFd> {
    create_map(MapCreate {
        map_type: MAP_TYPE_ARRAY,
        key_size: size_of::<u32>() as u32,
        value_size: u32::try_from(bytes).map_err(|_| io::ErrorKind::OutOfMemory)?,
        max_entries: 1,
        flags: MAP_MMAPABLE,
    })
}

/// A hash table with keys of `N` words and a fixed capacity.
#[derive(Debug)]
pub(crate) struct HashTable<const N: usize>(OwnedFd);

impl<const N: usize> HashTable<N> {
    /// Returns an empty one.
    pub(crate) fn new(entries: usize) -> io::Result<Self> {
        Self::of_type(MAP_TYPE_HASH, entries)
    }

    /// Returns an empty one, for programs to insert into: in a full one a new entry takes the place of one that was
    /// used long ago.
    pub(crate) fn of_latest(entries: u32) -> io::Result<Self> {
        Self::of_type(MAP_TYPE_LRU_HASH, entries as usize)
    }

    fn of_type(map_type: u32, entries: usize) -> io::Result<Self> {
        create_map(MapCreate {
            map_type,
            key_size: (N * size_of::<u64>()) as u32,
            value_size: size_of::<u64>() as u32,
            max_entries: u32::try_from(entries.max(1)).map_err(|_| io::ErrorKind::OutOfMemory)?,
            flags: 0,
        })
        .map(HashTable)
    }

    /// Sets the value of `key`.
    pub(crate) fn insert(&self, key: &[u64; N], value: u64) -> io::Result<()> {
        let attributes = MapElement {
            map: self.descriptor() as u32,
            key: &raw const *key as u64,
            value: &raw const value as u64,
            ..MapElement::default()
        };
        // SAFETY: `MapElement` is what this command reads; the pointers in it are to a key and a
        // value of the sizes that the map was made for, which outlive the call.
        unsafe { bpf(MAP_UPDATE_ELEM, &attributes) }.map(drop)
    }

    pub(crate) fn descriptor(&self) -> i32 {
        self.0.as_raw_fd()
    }
}

/// Maps `bytes` bytes, a multiple of eight, of memory that [`shared_memory`] created.
pub(crate) fn map_shared(memory: &OwnedFd, bytes: usize) -> io::Result<Mapped> {
    Mapped::new(memory.as_fd(), bytes / size_of::<u64>())
}

/// Gives a program to the kernel, which refuses it if it could do harm.
pub(crate) fn load(kind: ProgramKind, instructions: &[Instruction]) -> io::Result<OwnedFd> {
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

    let attributes = ProgLoad {
        prog_type: match kind {
            ProgramKind::SocketFilter => PROG_TYPE_SOCKET_FILTER,
            ProgramKind::Xdp => PROG_TYPE_XDP,
        },
        instructions: instructions.len() as u32,
        start: instructions.as_ptr() as u64,
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

/// Runs a program on a frame and returns its verdict.
pub(crate) fn run(program: &OwnedFd, frame: &[u8]) -> io::Result<u32> {
    #[repr(C)]
    struct TestRun {
        program: u32,
        answer: u32,
        input_size: u32,
        output_size: u32,
        input: u64,
        output: u64,
        repeat: u32,
        duration: u32,
    }
    let mut attributes = TestRun {
        program: program.as_raw_fd() as u32,
        answer: 0,
        input_size: frame.len() as u32,
        output_size: 0,
        input: frame.as_ptr() as u64,
        output: 0,
        repeat: 1,
        duration: 0,
    };
    let size = size_of_val(&attributes) as c_uint;
    // SAFETY: `TestRun` is the start of what this command reads and writes, and ours alone; the input
    // has as many bytes as it says, and no output is asked for.
    let result = unsafe { libc::syscall(libc::SYS_bpf, PROG_TEST_RUN, &raw mut attributes, size) };
    match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(attributes.answer),
    }
}

/// The filter on a socket's arrivals.
#[derive(Clone, Debug, Default)]
pub(crate) enum Heard {
    #[default]
    All,
    /// Packets that this program passes.
    By(Arc<OwnedFd>),
    /// Nothing more, whatever is said later.
    Nothing,
}

/// A socket and its filter.
#[derive(Debug)]
pub(crate) struct Filtered {
    socket: OwnedFd,
    hears: Mutex<Heard>,
}

impl Filtered {
    /// Returns a socket that receives all frames.
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Self {
            socket,
            hears: Mutex::default(),
        }
    }

    /// Replaces the filter atomically, and returns the former one.
    pub(crate) fn exchange(&self, hears: Heard) -> io::Result<Heard> {
        let mut current = self.hears.lock().unwrap_or_else(PoisonError::into_inner);
        if let Heard::Nothing = *current {
            return Ok(Heard::Nothing);
        }
        let socket = self.socket.as_fd();
        match &hears {
            Heard::All => let_pass(socket),
            Heard::By(program) => {
                let program = program.as_raw_fd();
                set_option(socket, libc::SOL_SOCKET, libc::SO_ATTACH_BPF, program)
            }
            Heard::Nothing => let_none_pass(socket),
        }?;
        Ok(mem::replace(&mut current, hears))
    }
}

impl AsFd for Filtered {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn create_link(program: BorrowedFd<'_>, interface: u32, place: AttachPoint) -> io::Result<OwnedFd> {
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
            AttachPoint::Driver => FLAGS_DRV_MODE,
            AttachPoint::Stack => FLAGS_SKB_MODE,
        },
    };
    // SAFETY: `LinkCreate` is the start of what this command reads; there are no pointers in it.
    let descriptor = unsafe { bpf(LINK_CREATE, &attributes) }?;
    Ok(own(descriptor))
}

/// The system call. The kernel treats missing trailing fields of `attributes` as zero.
///
/// # Safety
///
/// `T` is the type that the kernel reads for this command, without padding, and the pointers in it are valid for it.
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

/// Returns a descriptor that the kernel has just returned.
fn own(descriptor: c_long) -> OwnedFd {
    // SAFETY: these calls return a new descriptor, closed on `exec`, that no other owner has.
    unsafe { OwnedFd::from_raw_fd(descriptor as i32) }
}
