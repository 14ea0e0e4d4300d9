//! Packet sockets, and the ring of blocks that a receiving one shares with the kernel.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::mem::{self, MaybeUninit, offset_of};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

use libc::{c_int, c_uint, c_void, socklen_t};
use libc::{tpacket_block_desc, tpacket_hdr_v1, tpacket_hdr_variant1, tpacket2_hdr, tpacket3_hdr};

use super::{BATCH, count_or_error};

/// After so many milliseconds the kernel hands over a block that holds anything. It takes no less.
const HAND_OVER_MILLISECONDS: c_uint = 1;

/// A packet socket that hears nothing yet.
pub(crate) fn open() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: takes no pointer.
    let socket = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
    count_or_error(socket)?;
    // SAFETY: the kernel has just made this descriptor, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(socket) })
}

/// Which frames a bound socket hears.
#[derive(Clone, Copy)]
pub(crate) enum Hears {
    Nothing,
    Everything,
}

/// Ties the socket to one interface of the network namespace in which it was opened.
pub(crate) fn bind(socket: BorrowedFd<'_>, index: u32, hears: Hears) -> io::Result<()> {
    let protocol = match hears {
        Hears::Nothing => 0,
        Hears::Everything => libc::ETH_P_ALL as u16,
    };
    // SAFETY: the struct is made of integers, for which all zeros is a value.
    let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = index as c_int;
    // SAFETY: the kernel reads one `sockaddr_ll` of this length at the pointer.
    let bound = unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            size_of_val(&address) as socklen_t,
        )
    };
    count_or_error(bound)?;
    Ok(())
}

/// Makes the interface of this index hear frames to any address, while the socket is open.
pub(crate) fn hear_all_addresses(socket: BorrowedFd<'_>, index: u32) -> io::Result<()> {
    let membership = libc::packet_mreq {
        mr_ifindex: index as c_int,
        mr_type: libc::PACKET_MR_PROMISC as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set(socket, libc::PACKET_ADD_MEMBERSHIP, membership)
}

/// Sends the first `count`, at most [`BATCH`], frames of `batch` and returns how many the kernel
/// took: at least one if `count` is not 0. An error is about the first frame or the socket.
pub(crate) fn send<F: AsRef<[u8]>>(
    socket: BorrowedFd<'_>,
    batch: &VecDeque<F>,
    count: usize,
) -> io::Result<usize> {
    let count = count.min(batch.len()).min(BATCH);
    let mut payloads = [IoSlice::new(&[]); BATCH];
    for (payload, frame) in payloads.iter_mut().zip(batch).take(count) {
        *payload = IoSlice::new(frame.as_ref());
    }
    let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; BATCH];
    // `IoSlice` has the layout of `iovec`, and the kernel does not write to what it sends.
    let payload = payloads.as_mut_ptr().cast::<libc::iovec>();
    for (index, slot) in headers.iter_mut().enumerate().take(count) {
        slot.write(super::header(
            ptr::null_mut(),
            0,
            payload.wrapping_add(index),
        ));
    }
    // SAFETY: the first `count` headers are initialised. Each has no address and points at one
    // `IoSlice`, which std guarantees to be laid out as `iovec`; the arrays are alive, and
    // `payloads` borrows the bytes from `batch` until after the call. The kernel reads all of them
    // and writes only `msg_len` in the headers, which are ours alone.
    let sent = unsafe {
        libc::sendmmsg(
            socket.as_raw_fd(),
            headers.as_mut_ptr().cast(),
            count as c_uint,
            (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as _,
        )
    };
    count_or_error(sent)
}

/// A received frame that still lies in its block.
pub(crate) struct Arrival<'a> {
    /// The frame from its Ethernet header on, without the VLAN tag that the kernel took out.
    pub(crate) bytes: &'a [u8],
    /// Its length when it arrived; more than there are bytes if it was cut.
    pub(crate) length: usize,
    /// The tag taken out: its protocol, and priority and number.
    pub(crate) vlan: Option<(u16, u16)>,
    /// What hardware was to do and nobody has done.
    pub(crate) offload: Offload,
}

/// What the sender's kernel left to hardware (`virtio_net_hdr`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Offload {
    /// Sum the frame from the first position on, and write the checksum at the second.
    pub(crate) checksum: Option<(usize, usize)>,
    /// Cut it into segments.
    pub(crate) segments: bool,
}

const NO_TAG_PROTOCOL: u16 = libc::ETH_P_8021Q as u16;

/// Bytes of `virtio_net_hdr`, which the kernel puts before each frame.
const OFFLOAD: usize = 10;
const NEEDS_CHECKSUM: u8 = 1;

impl Offload {
    fn decode(header: &[u8]) -> Self {
        let read = |at: usize| usize::from(u16::from_le_bytes([header[at], header[at + 1]]));
        let (flags, segmentation) = (header[0], header[1]);
        let (start, offset) = (read(6), read(8));
        Self {
            checksum: (flags & NEEDS_CHECKSUM != 0).then_some((start, start + offset)),
            segments: segmentation != 0,
        }
    }
}

/// How the kernel hands over what arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandOver {
    /// In blocks, when they are full or some time has passed (`TPACKET_V3`).
    Blocks,
    /// Frame by frame, at once (`TPACKET_V2`). What is longer than a frame's place is cut.
    Frames,
}

/// A receiving socket with its ring.
///
/// The ring is an array of blocks in memory shared with the kernel. A block's status word says
/// whose it is. The kernel fills one with frames, of any lengths, and hands it over when it is full
/// or some time has passed; we walk through the frames and hand it back. Blocks go round in order.
/// Where frames are handed over one by one, a block is the place of one frame.
#[derive(Debug)]
pub(crate) struct Ring {
    socket: OwnedFd,
    hand_over: HandOver,
    memory: NonNull<u8>,
    blocks: usize,
    block_size: usize,
    /// The block to look at next, or the one half read.
    block: usize,
    /// Frames of that block not yet read; 0 if it has not been opened.
    left: u32,
    /// Where in the block the next of them lies.
    at: usize,
}

// SAFETY: the memory belongs to this value alone, on our side; no thread-local state refers to it.
unsafe impl Send for Ring {}

impl Ring {
    /// Gives `socket`, which must not be bound yet, a ring of so many blocks of `block_size` bytes,
    /// a power of two and no less than a page. A place for a single frame has `frame` bytes, a power
    /// of two that divides the block.
    pub(crate) fn new(
        socket: OwnedFd,
        hand_over: HandOver,
        (blocks, block_size): (usize, usize),
        frame: usize,
    ) -> io::Result<Self> {
        let fd = socket.as_fd();
        set(fd, libc::PACKET_IGNORE_OUTGOING, 1 as c_int)?;
        set(fd, libc::PACKET_VNET_HDR, 1 as c_int)?;
        let version = match hand_over {
            HandOver::Blocks => libc::tpacket_versions::TPACKET_V3,
            HandOver::Frames => libc::tpacket_versions::TPACKET_V2,
        };
        set(fd, libc::PACKET_VERSION, version as c_int)?;
        let too_large = || io::Error::from_raw_os_error(libc::ENOMEM);
        let size = blocks.checked_mul(block_size).ok_or_else(too_large)?;
        let narrow = |value| c_uint::try_from(value).map_err(|_| too_large());
        // In blocks frames are packed: their size means nothing there, but has to divide the block.
        let request = libc::tpacket_req3 {
            tp_block_size: narrow(block_size)?,
            tp_block_nr: narrow(blocks)?,
            tp_frame_size: narrow(frame)?,
            tp_frame_nr: narrow(size / frame)?,
            tp_retire_blk_tov: HAND_OVER_MILLISECONDS,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        match hand_over {
            HandOver::Blocks => set(fd, libc::PACKET_RX_RING, request)?,
            HandOver::Frames => set(
                fd,
                libc::PACKET_RX_RING,
                libc::tpacket_req {
                    tp_block_size: request.tp_block_size,
                    tp_block_nr: request.tp_block_nr,
                    tp_frame_size: request.tp_frame_size,
                    tp_frame_nr: request.tp_frame_nr,
                },
            )?,
        }
        // SAFETY: asks for new memory at a place of the kernel's choice.
        let memory = unsafe {
            libc::mmap(
                ptr::null_mut(),
                size,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            )
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let (blocks, block_size) = match hand_over {
            HandOver::Blocks => (blocks, block_size),
            HandOver::Frames => (size / frame, frame),
        };
        Ok(Self {
            socket,
            hand_over,
            memory: NonNull::new(memory.cast()).expect("the kernel maps nothing at 0 by choice"),
            blocks,
            block_size,
            block: 0,
            left: 0,
            at: 0,
        })
    }

    /// Shows at most `max` frames to `deliver`, in order of arrival, and returns how many. Makes no
    /// system call.
    pub(crate) fn receive(&mut self, max: usize, mut deliver: impl FnMut(Arrival<'_>)) -> usize {
        let mut came = 0;
        while came < max {
            let block = self
                .memory
                .as_ptr()
                .wrapping_add(self.block * self.block_size);
            let status = block.wrapping_add(match self.hand_over {
                HandOver::Blocks => offset_in_block(offset_of!(tpacket_hdr_v1, block_status)),
                HandOver::Frames => offset_of!(tpacket2_hdr, tp_status),
            });
            // SAFETY: `block` is one of the `blocks` blocks of the mapping, which lives as long as
            // `self`; the status word in its header, or in that of its only frame, is aligned, since
            // blocks and the headers' fields are, and both sides only ever access it as one word.
            let status = unsafe { AtomicU32::from_ptr(status.cast()) };
            // Acquire: with the status comes what the kernel wrote before it.
            if self.left == 0 && status.load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
                break;
            }
            // SAFETY: the block lies in the mapping, as said. Its status says that it is ours: the
            // kernel writes no byte of it until we hand it back, below, after the last use of this
            // slice.
            let bytes = unsafe { std::slice::from_raw_parts(block, self.block_size) };
            if self.hand_over == HandOver::Frames {
                came += 1;
                deliver(arrival_alone(bytes));
            } else if self.left == 0 {
                self.left = read_u32(bytes, offset_in_block(offset_of!(tpacket_hdr_v1, num_pkts)));
                self.at = read_u32(
                    bytes,
                    offset_in_block(offset_of!(tpacket_hdr_v1, offset_to_first_pkt)),
                ) as usize;
            }
            while self.left > 0 && came < max {
                let header = &bytes[self.at..];
                self.left -= 1;
                self.at += read_u32(header, offset_of!(tpacket3_hdr, tp_next_offset)) as usize;
                came += 1;
                deliver(arrival(header));
            }
            if self.left == 0 {
                // Release: we have read what we read before the kernel writes anew.
                status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
                self.block = (self.block + 1) % self.blocks;
            }
        }
        came
    }

    /// Frames that found no room in the ring since this was last asked.
    pub(crate) fn lost(&self) -> io::Result<u64> {
        // SAFETY: the struct is made of integers, for which all zeros is a value.
        let mut statistics: libc::tpacket_stats_v3 = unsafe { mem::zeroed() };
        let mut length = size_of_val(&statistics) as socklen_t;
        // SAFETY: the kernel writes at most `length` bytes, the struct, at the first pointer and
        // the number of bytes written at the second; both are ours.
        let got = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut statistics).cast(),
                &raw mut length,
            )
        };
        count_or_error(got)?;
        Ok(u64::from(statistics.tp_drops))
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: this is the mapping that `new` made, of this size; nothing borrows from it, for
        // `receive` lends slices of it to a closure only.
        unsafe {
            libc::munmap(
                self.memory.as_ptr().cast::<c_void>(),
                self.blocks * self.block_size,
            );
        }
    }
}

/// Where a field of the block's header lies in the block.
const fn offset_in_block(field: usize) -> usize {
    offset_of!(tpacket_block_desc, hdr) + field
}

/// The frame behind this header.
fn arrival(header: &[u8]) -> Arrival<'_> {
    let word = |field| read_u32(header, field);
    let variant = offset_of!(tpacket3_hdr, hv1);
    let status = word(offset_of!(tpacket3_hdr, tp_status));
    let mac = usize::from(read_u16(header, offset_of!(tpacket3_hdr, tp_mac)));
    let captured = word(offset_of!(tpacket3_hdr, tp_snaplen)) as usize;
    Arrival {
        bytes: &header[mac..mac + captured],
        length: word(offset_of!(tpacket3_hdr, tp_len)) as usize,
        vlan: tag(
            status,
            read_u16(
                header,
                variant + offset_of!(tpacket_hdr_variant1, tp_vlan_tpid),
            ),
            word(variant + offset_of!(tpacket_hdr_variant1, tp_vlan_tci)) as u16,
        ),
        offload: Offload::decode(&header[mac - OFFLOAD..mac]),
    }
}

/// The frame behind this header, the only one of its block.
fn arrival_alone(header: &[u8]) -> Arrival<'_> {
    let word = |field| read_u32(header, field);
    let half = |field| read_u16(header, field);
    let mac = usize::from(half(offset_of!(tpacket2_hdr, tp_mac)));
    let captured = word(offset_of!(tpacket2_hdr, tp_snaplen)) as usize;
    Arrival {
        bytes: &header[mac..mac + captured],
        length: word(offset_of!(tpacket2_hdr, tp_len)) as usize,
        vlan: tag(
            word(offset_of!(tpacket2_hdr, tp_status)),
            half(offset_of!(tpacket2_hdr, tp_vlan_tpid)),
            half(offset_of!(tpacket2_hdr, tp_vlan_tci)),
        ),
        offload: Offload::decode(&header[mac - OFFLOAD..mac]),
    }
}

/// The tag that the kernel took out, as the status of a frame says.
fn tag(status: u32, protocol: u16, tag: u16) -> Option<(u16, u16)> {
    let known = status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
    let protocol = if known { protocol } else { NO_TAG_PROTOCOL };
    (status & libc::TP_STATUS_VLAN_VALID != 0).then_some((protocol, tag))
}

fn read_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn read_u16(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

/// A plain value that the kernel reads as an option of a packet socket.
trait OptionValue: Copy {}
impl OptionValue for c_int {}
impl OptionValue for libc::packet_mreq {}
impl OptionValue for libc::tpacket_req {}
impl OptionValue for libc::tpacket_req3 {}

fn set<T: OptionValue>(socket: BorrowedFd<'_>, option: c_int, value: T) -> io::Result<()> {
    // SAFETY: the kernel reads the bytes of `value`, all of them initialised: the types above are
    // structs of integers without padding, or integers.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            option,
            (&raw const value).cast(),
            size_of::<T>() as socklen_t,
        )
    };
    count_or_error(set)?;
    Ok(())
}
