//! An AF_XDP socket: four rings of descriptors of frames in a [`Umem`], shared with the kernel.
//!
//! | ring | writer | entry |
//! | --- | --- | --- |
//! | fill | we | a frame to receive into, now owned by the kernel |
//! | rx | the kernel | a received packet, now owned by us |
//! | tx | we | a packet to transmit, now owned by the kernel |
//! | completion | the kernel | a transmitted or dropped packet, whose frame we own now |
//!
//! A socket is [split](Socket::cut) into two halves for one thread each: [`Receiving`] has the first two rings,
//! [`Sending`] the others. The descriptor is closed with the last half.
//!
//! A frame's note in the free list names the socket that handed it to the kernel, and the purpose. The descriptor of a
//! frame that the kernel should not have is ignored, and a half that ends finds its own frames.

mod receiving;
mod ring;
mod sending;

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use libc::{c_int, socklen_t, xdp_desc};

use super::bpf::Program;
pub(crate) use super::bpf::QUEUES;
use super::umem::{TOLD, Tenancy, Umem};
use super::{Plain, count_or_error, option_of, set_option, set_option_to};
pub(crate) use receiving::{Receiving, unroute};
use ring::{Incoming, Outgoing, Ring};
pub(crate) use sending::Sending;

/// `XDP_MAX_TX_SKB_BUDGET`, since Linux 6.17: frames that one call sends in copy mode, 32 without.
const MAX_TX_SKB_BUDGET: c_int = 9;

// The note on a frame that the kernel has: the purpose, the socket (in six bits, which a link of the free list leaves
// at zero, as it does these two), and the number of bytes to transmit.
const POSTED: u32 = 1 << 31;
const SENDING: u32 = 1 << 30;
const TENANT_SHIFT: u32 = 24;
const LENGTH: u32 = 0xffff;

/// Bytes that the kernel keeps free in front of a received packet.
pub(crate) const HEADROOM: usize = 256;

/// Whether the kernel may copy packets between frames and memory of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Copying {
    Never,
    IfNeeded,
    Always,
}

/// Counters that the kernel keeps for a socket.
pub(crate) type Statistics = libc::xdp_statistics;

// SAFETY: a struct of integers of one size.
unsafe impl Plain for libc::xdp_statistics {}
// SAFETY: a struct of integers of one size.
unsafe impl Plain for libc::xdp_mmap_offsets {}

/// State that both halves of a bound socket share. Dropping it closes the socket.
struct Common {
    socket: OwnedFd,
    /// The program that may bring packets, which stays with either half: many a driver sends for no socket where it
    /// has none.
    program: Arc<Program>,
    umem: Umem,
    tenancy: Tenancy,
    /// Whether the driver itself reads and writes the frames.
    zero_copy: bool,
    /// Frames that the transmitting half had not got back at its end.
    left: Mutex<Option<sending::Rings>>,
}

/// A socket with its rings, of which the kernel has nothing yet.
pub(crate) struct Socket {
    socket: OwnedFd,
    umem: Umem,
    tenancy: Tenancy,
    /// As for [`Common`], once it is bound.
    zero_copy: bool,
    fill: Outgoing<u64>,
    received: Incoming<xdp_desc>,
    sending: Outgoing<xdp_desc>,
    completed: Incoming<u64>,
    /// Whether the kernel reads a packet's pending offloads from the bytes before it, if its descriptor says so.
    is_told: bool,
}

impl Socket {
    /// Opens a socket with `umem` and rings of these sizes, powers of two, not bound yet. With `to_be_told`, and if the
    /// kernel supports it (since Linux 6.11), transmitted packets carry their pending offloads.
    pub(crate) fn open(umem: &Umem, rx: u32, tx: u32, to_be_told: bool) -> io::Result<Self> {
        // SAFETY: takes no pointer.
        let socket = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        count_or_error(socket)?;
        // SAFETY: the kernel has just made this descriptor, and it has no other owner.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };

        let tenancy = umem.settle().ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::QuotaExceeded,
                "64 sockets have this memory already, the most that can",
            )
        })?;
        let is_told = to_be_told && register(socket.as_fd(), umem, TOLD).is_ok();
        if !is_told {
            register(socket.as_fd(), umem, 0)?;
        }

        let fd = socket.as_fd();
        let offsets: libc::xdp_mmap_offsets = option_of(fd, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS)?;
        let fill = Outgoing(Ring::map(
            fd,
            libc::XDP_UMEM_FILL_RING,
            rx,
            libc::XDP_UMEM_PGOFF_FILL_RING as libc::off_t,
            &offsets.fr,
        )?);
        let completed = Incoming(Ring::map(
            fd,
            libc::XDP_UMEM_COMPLETION_RING,
            tx,
            libc::XDP_UMEM_PGOFF_COMPLETION_RING as libc::off_t,
            &offsets.cr,
        )?);
        let received = Incoming(Ring::map(
            fd,
            libc::XDP_RX_RING,
            rx,
            libc::XDP_PGOFF_RX_RING,
            &offsets.rx,
        )?);
        let sending = Outgoing(Ring::map(
            fd,
            libc::XDP_TX_RING,
            tx,
            libc::XDP_PGOFF_TX_RING,
            &offsets.tx,
        )?);
        // A kernel that does not know it sends 32 a call.
        let _ = set_option(fd, libc::SOL_XDP, MAX_TX_SKB_BUDGET, tx);
        Ok(Self {
            socket,
            umem: umem.clone(),
            tenancy,
            zero_copy: false,
            fill,
            received,
            sending,
            completed,
            is_told,
        })
    }

    /// Binds to a queue of the interface with this index.
    pub(crate) fn bind(&mut self, interface: u32, queue: u32, copy: Copying) -> io::Result<()> {
        let mode = match copy {
            Copying::Never => libc::XDP_ZEROCOPY,
            Copying::IfNeeded => 0,
            Copying::Always => libc::XDP_COPY,
        };
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: mode | libc::XDP_USE_NEED_WAKEUP,
            sxdp_ifindex: interface,
            sxdp_queue_id: queue,
            sxdp_shared_umem_fd: 0,
        };
        // SAFETY: the kernel reads as many bytes as said, one address, at the pointer.
        let result = unsafe {
            libc::bind(
                self.socket.as_raw_fd(),
                (&raw const address).cast(),
                size_of_val(&address) as socklen_t,
            )
        };
        count_or_error(result)?;
        let options: u32 = option_of(self.as_fd(), libc::SOL_XDP, libc::XDP_OPTIONS)?;
        self.zero_copy = options & libc::XDP_OPTIONS_ZEROCOPY != 0;
        Ok(())
    }

    /// Returns whether the driver itself reads and writes the frames.
    pub(crate) fn is_zero_copy(&self) -> bool {
        self.zero_copy
    }

    /// Returns a number that no other network namespace has.
    pub(crate) fn namespace(&self) -> io::Result<u64> {
        option_of(self.as_fd(), libc::SOL_SOCKET, libc::SO_NETNS_COOKIE)
    }

    /// Splits the socket into both halves. `program` delivers the packets of `queue`.
    pub(crate) fn cut(self, program: Arc<Program>, queue: u32) -> (Receiving, Sending) {
        let common = Arc::new(Common {
            socket: self.socket,
            program,
            umem: self.umem,
            tenancy: self.tenancy,
            zero_copy: self.zero_copy,
            left: Mutex::new(None),
        });
        (
            Receiving::new(Arc::clone(&common), self.fill, self.received, queue),
            Sending::new(common, self.sending, self.completed, self.is_told),
        )
    }
}

impl Common {
    /// Returns the note of this socket on a frame that the kernel has for this `purpose`.
    fn mark(&self, purpose: u32) -> u32 {
        purpose | self.tenancy.number << TENANT_SHIFT
    }

    /// Makes the kernel poll the fill ring if it needs to, and report the state of the device.
    fn look(&self) -> io::Result<()> {
        // SAFETY: no bytes are received and no address is asked for.
        let result = unsafe {
            libc::recvfrom(
                self.socket.as_raw_fd(),
                ptr::null_mut(),
                0,
                libc::MSG_DONTWAIT,
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        count_or_error(result as c_int).map(drop)
    }
}

impl Drop for Common {
    /// Neither half is there any more, and none calls the kernel.
    fn drop(&mut self) {
        let left = self.left.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(rings) = left.take() {
            rings.end(self.zero_copy);
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Takes back the frames with this note, which a half of a socket has handed to the kernel and that it does not get
/// back any more: they are free if the kernel `lets_go` of them. Else they are lost to the memory's users, rather than
/// written by two.
///
/// # Safety
///
/// No other half notes this. If the kernel `lets_go`, it touches none of these frames from now on.
unsafe fn take_back(umem: &Umem, mark: u32, lets_go: bool) {
    let frames = (0..umem.frames()).filter(|&frame| {
        let note = umem.noted(frame.into()).map_or(0, |(_, note)| note);
        note & !LENGTH == mark
    });
    let frames: Vec<u32> = frames.collect();
    frames.iter().for_each(|&frame| umem.note(frame, 0));
    let count = frames.len() as u32;
    // SAFETY: by their notes, the half held all these frames; by the caller's promise the kernel touches none of those
    // given.
    unsafe {
        match lets_go {
            true => umem.give(frames),
            false => umem.lose(count),
        }
    }
}

/// Registers the memory with the kernel, and the number of bytes before a packet that may describe its pending
/// offloads.
///
/// Each socket registers the memory for itself. A kernel shared UMEM would bind the second device to the mode of the
/// first, and to its lifetime.
fn register(socket: BorrowedFd<'_>, umem: &Umem, told: usize) -> io::Result<()> {
    let (start, bytes) = umem.memory();
    // SAFETY: made of integers, for which all zeros is a value.
    let mut registration: libc::xdp_umem_reg = unsafe { mem::zeroed() };
    registration.addr = start.as_ptr() as u64;
    registration.len = bytes as u64;
    registration.chunk_size = umem.frame_size();
    if umem.is_unaligned() {
        registration.flags |= libc::XDP_UMEM_UNALIGNED_CHUNK_FLAG;
    }
    if told > 0 {
        registration.flags |= libc::XDP_UMEM_TX_METADATA_LEN;
        registration.tx_metadata_len = told as u32;
    }
    // SAFETY: the memory registered is that of frames; the kernel touches those that it is handed, and
    // keeps the pages for as long as it may.
    unsafe { set_option_to(socket, libc::SOL_XDP, libc::XDP_UMEM_REG, &registration) }
}
