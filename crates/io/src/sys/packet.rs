//! Packet sockets, and the ring of blocks that a receiving one shares with the kernel.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::marker::PhantomData;
use std::mem::{self, offset_of};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use libc::{c_int, c_uint, c_void, socklen_t};
use libc::{tpacket_block_desc, tpacket_hdr_v1, tpacket_hdr_variant1, tpacket2_hdr, tpacket3_hdr};

use super::bpf::Filtered;
use super::{BATCH, Plain, count_or_error, option_of, set_option};
use fairlane_wire::segmentation::{self, Offload};

/// Milliseconds after which the kernel hands over a block that is not empty. It accepts no shorter time.
const HAND_OVER_MILLISECONDS: c_uint = 1;

/// Returns a packet socket that receives nothing yet.
pub(crate) fn open() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: takes no pointer.
    let socket = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
    count_or_error(socket)?;
    // SAFETY: the kernel has just made this descriptor, and it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(socket) })
}

/// The frames that a bound socket receives.
#[derive(Clone, Copy)]
pub(crate) enum Hears {
    Nothing,
    /// The same for a socket that received something before, for which the kernel treats 0 as no change: a
    /// reserved type (RFC 1701), so that no station sends it.
    NothingMore,
    Everything,
}

/// Ties the socket to one interface of the network namespace in which it was opened.
pub(crate) fn bind(socket: BorrowedFd<'_>, index: u32, hears: Hears) -> io::Result<()> {
    let protocol = match hears {
        Hears::Nothing => 0,
        Hears::NothingMore => 0xffff,
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

/// Makes transmitted frames begin with a `virtio_net_hdr` from now on, which describes their pending offloads.
pub(crate) fn leave_to_hardware(socket: BorrowedFd<'_>) -> io::Result<()> {
    set(socket, libc::PACKET_VNET_HDR, 1 as c_int)
}

/// Makes the interface of this index receive frames to any address, while the socket is open.
pub(crate) fn hear_all_addresses(socket: BorrowedFd<'_>, index: u32) -> io::Result<()> {
    let membership = libc::packet_mreq {
        mr_ifindex: index as c_int,
        mr_type: libc::PACKET_MR_PROMISC as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set(socket, libc::PACKET_ADD_MEMBERSHIP, membership)
}

/// Receives no frame from now on, whatever it is bound to, until [`let_pass`] resumes.
pub(crate) fn let_none_pass(socket: BorrowedFd<'_>) -> io::Result<()> {
    // `ret 0`: of no frame a byte.
    let mut none = libc::sock_filter {
        code: (libc::BPF_RET | libc::BPF_K) as u16,
        jt: 0,
        jf: 0,
        k: 0,
    };
    let program = libc::sock_fprog {
        len: 1,
        filter: &raw mut none,
    };
    // SAFETY: it has padding, which the kernel skips: it reads the length and, at the address, as many
    // instructions, which live until then, and copies them.
    unsafe { super::set_option_to(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program) }
}

/// Resumes receiving from the bound interface.
pub(crate) fn let_pass(socket: BorrowedFd<'_>) -> io::Result<()> {
    set_option(socket, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, 0 as c_int)
}

// Of linux/if_packet.h.
const FANOUT: c_int = 18;
const FANOUT_HASH: u32 = 0;
const FANOUT_UNIQUE_ID: u32 = 0x2000;
const FANOUT_IGNORE_OUTGOING: u32 = 0x4000;

/// Makes sockets on the same interface share its frames: each frame arrives at one of them, those of one flow at
/// the same one. None of them can be rebound.
///
/// By the kernel's own hash of a frame's addresses and ports. Not used: reassembly of fragments (`FLAG_DEFRAG`),
/// which a bridge must not do, and overflow to another socket (`FLAG_ROLLOVER`), by which a flow would overtake
/// itself.
pub(crate) fn share(sockets: &[BorrowedFd<'_>]) -> io::Result<()> {
    let Some((first, others)) = sockets.split_first() else {
        return Ok(());
    };
    let how = FANOUT_HASH | FANOUT_IGNORE_OUTGOING;
    let join = |socket, how: u32, group: u32| {
        let word = how << 16 | group;
        set(socket, FANOUT, word.cast_signed())
    };
    join(*first, how | FANOUT_UNIQUE_ID, 0)?;
    let word: c_int = option_of(*first, libc::SOL_PACKET, FANOUT)?;
    let group = word.cast_unsigned() & 0xffff;
    others.iter().try_for_each(|&other| join(other, how, group))
}

/// Sends the first `count`, at most [`BATCH`], frames of `batch` and returns how many the kernel
/// took: at least one if `count` is not 0. An error is about the first frame or the socket.
pub(crate) fn send<F: AsRef<[u8]>>(
    socket: BorrowedFd<'_>,
    batch: &VecDeque<F>,
    count: usize,
) -> io::Result<usize> {
    let count = count.min(batch.len()).min(BATCH);
    let mut payloads = [[IoSlice::new(&[])]; BATCH];
    for (payload, frame) in payloads.iter_mut().zip(batch).take(count) {
        *payload = [IoSlice::new(frame.as_ref())];
    }
    // SAFETY: there are no addresses.
    unsafe { super::send_messages(socket, &mut payloads[..count], |_| (ptr::null_mut(), 0)) }
}

/// The same of frames each of which goes behind what `header` says is left to do to it, by a socket that is
/// to [leave that to hardware](leave_to_hardware).
pub(crate) fn send_with<F: AsRef<[u8]>>(
    socket: BorrowedFd<'_>,
    batch: &VecDeque<F>,
    count: usize,
    header: impl Fn(&F) -> [u8; segmentation::HEADER],
) -> io::Result<usize> {
    let count = count.min(batch.len()).min(BATCH);
    let mut headers = [[0; segmentation::HEADER]; BATCH];
    for (place, frame) in headers.iter_mut().zip(batch).take(count) {
        *place = header(frame);
    }
    let mut payloads = [[IoSlice::new(&[]); 2]; BATCH];
    for ((payload, header), frame) in payloads.iter_mut().zip(&headers).zip(batch).take(count) {
        *payload = [IoSlice::new(header), IoSlice::new(frame.as_ref())];
    }
    // SAFETY: there are no addresses.
    unsafe { super::send_messages(socket, &mut payloads[..count], |_| (ptr::null_mut(), 0)) }
}

/// A received frame that still lies in the ring.
pub(crate) struct Arrival<'a> {
    /// The frame from its Ethernet header on, without the VLAN tag that the kernel took out.
    pub(crate) bytes: &'a [u8],
    /// Its length when it arrived; more than there are bytes if it was cut.
    pub(crate) length: usize,
    /// The tag taken out: its protocol, and priority and number.
    pub(crate) vlan: Option<(u16, u16)>,
    /// Offloads that were left to hardware and are still pending.
    pub(crate) offload: Offload,
    /// When the kernel put it there, by the clock of the world, since 1970.
    pub(crate) came: Duration,
    /// Frames found no space since the losses were last queried.
    pub(crate) losing: bool,
}

const NO_TAG_PROTOCOL: u16 = libc::ETH_P_8021Q as u16;

/// How the kernel hands over what arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandOver {
    /// In blocks, when they are full or some time has passed (`TPACKET_V3`).
    Blocks,
    /// Frame by frame, on arrival (`TPACKET_V2`). Each has a slot of `place` bytes, a multiple of 16 and no larger
    /// than a block; longer frames take a system call, from a queue of about `queue` bytes (`PACKET_COPY_THRESH`).
    Frames { place: usize, queue: usize },
}

/// How a ring is divided that hands over frame by frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Its blocks.
    pub blocks: usize,
    /// Bytes of each.
    pub block_size: usize,
    /// Bytes of each frame's place in them.
    pub place: usize,
}

/// A receiving socket with its ring.
///
/// The ring is an array of blocks in memory shared with the kernel. In blocks, the kernel packs frames of any
/// lengths into one; frame by frame, a block is divided into slots, and the remainder at its end is unused. A
/// block or a slot has a status word that names its owner: the kernel fills it and hands it over, we read it and
/// hand it back. They are used in order, cyclically.
#[derive(Debug)]
pub(crate) struct Ring {
    socket: Arc<Filtered>,
    hand_over: HandOver,
    memory: Memory,
    /// The block to look at next, or the one half read.
    block: usize,
    /// Frames of a block handed over that are not yet read; 0 if it has not been opened.
    left: u32,
    /// Where in the block the next of them lies, or the place to look at next.
    at: usize,
    /// Buffer for a frame that bypasses the ring, after the header with its pending offloads.
    long: Box<[u8]>,
    /// An error that the socket reported instead of such a frame.
    met: Option<io::Error>,
}

/// Bytes of the longest frame that can bypass the ring: an IP packet of maximum length with two tags.
const LONGEST: usize = 65_535 + 22;

impl Ring {
    /// Gives `socket`, which must not be bound yet, a ring of `blocks` blocks of `block_size` bytes, a power of
    /// two and at least a page.
    pub(crate) fn new(
        socket: OwnedFd,
        hand_over: HandOver,
        blocks: usize,
        block_size: usize,
    ) -> io::Result<Self> {
        let fd = socket.as_fd();
        let too_large = || io::Error::from_raw_os_error(libc::ENOMEM);
        blocks.checked_mul(block_size).ok_or_else(too_large)?;
        set(fd, libc::PACKET_IGNORE_OUTGOING, 1 as c_int)?;
        set(fd, libc::PACKET_VNET_HDR, 1 as c_int)?;
        let (version, place) = match hand_over {
            // Frames are packed, so this size means nothing; it must be stated and divide the block.
            HandOver::Blocks => (libc::tpacket_versions::TPACKET_V3, 2_048),
            HandOver::Frames { place, .. } => (libc::tpacket_versions::TPACKET_V2, place),
        };
        set(fd, libc::PACKET_VERSION, version as c_int)?;
        if let HandOver::Frames { queue, .. } = hand_over {
            set(fd, libc::PACKET_COPY_THRESH, 1 as c_int)?;
            set_queue(fd, queue)?;
        }
        let narrow = |value| c_uint::try_from(value).map_err(|_| too_large());
        let request = libc::tpacket_req {
            tp_block_size: narrow(block_size)?,
            tp_block_nr: narrow(blocks)?,
            tp_frame_size: narrow(place)?,
            tp_frame_nr: narrow(blocks * (block_size / place))?,
        };
        match hand_over {
            HandOver::Frames { .. } => set(fd, libc::PACKET_RX_RING, request)?,
            HandOver::Blocks => set(
                fd,
                libc::PACKET_RX_RING,
                libc::tpacket_req3 {
                    tp_block_size: request.tp_block_size,
                    tp_block_nr: request.tp_block_nr,
                    tp_frame_size: request.tp_frame_size,
                    tp_frame_nr: request.tp_frame_nr,
                    tp_retire_blk_tov: HAND_OVER_MILLISECONDS,
                    tp_sizeof_priv: 0,
                    tp_feature_req_word: 0,
                },
            )?,
        }
        Ring::over(socket, hand_over, blocks, block_size)
    }

    /// Returns the ring of frame by frame that a socket has, which has been given one of this shape. It
    /// is read by one side at a time.
    pub(crate) fn shared(socket: OwnedFd, shape: Shape) -> io::Result<Self> {
        let fits = (1..=shape.block_size).contains(&shape.place)
            && shape.place.is_multiple_of(16)
            && shape.blocks.checked_mul(shape.block_size).is_some();
        if !fits {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let frames = HandOver::Frames {
            place: shape.place,
            queue: 0,
        };
        // The kernel maps a ring whole or not at all.
        Ring::over(socket, frames, shape.blocks, shape.block_size)
    }

    fn over(
        socket: OwnedFd,
        hand_over: HandOver,
        blocks: usize,
        block_size: usize,
    ) -> io::Result<Self> {
        let memory = Memory::map(socket.as_fd(), blocks, block_size)?;
        let long = match hand_over {
            HandOver::Frames { .. } => segmentation::HEADER + LONGEST,
            HandOver::Blocks => 0,
        };
        Ok(Self {
            socket: Arc::new(Filtered::new(socket)),
            hand_over,
            memory,
            block: 0,
            left: 0,
            at: 0,
            long: vec![0; long].into(),
            met: None,
        })
    }

    /// Returns the layout that another process needs to read the ring; `None` for one in blocks.
    pub(crate) fn shape(&self) -> Option<Shape> {
        match self.hand_over {
            HandOver::Frames { place, .. } => Some(Shape {
                blocks: self.memory.blocks,
                block_size: self.memory.block_size,
                place,
            }),
            HandOver::Blocks => None,
        }
    }

    /// Returns the block and the place in it that are looked at next.
    pub(crate) fn next(&self) -> (usize, usize) {
        (self.block, self.at)
    }

    /// Continues from a position that another process that has read the ring has [reported](Self::next).
    pub(crate) fn go_on_from(&mut self, (block, at): (usize, usize)) {
        let fits = self.shape().is_some_and(|shape| {
            block < shape.blocks
                && at.is_multiple_of(shape.place)
                && at + shape.place <= shape.block_size
        });
        debug_assert!(fits, "no place of the ring: {block}, {at}");
        if fits {
            (self.block, self.at) = (block, at);
        }
    }

    /// Shows at most `max` frames that arrived to `deliver`, in order, which says how many it makes
    /// of each; ends when these are `max`, and returns how many they are. Makes no system call but
    /// for a frame that has no place in the ring.
    pub(crate) fn receive(
        &mut self,
        max: usize,
        deliver: impl FnMut(Arrival<'_>) -> usize,
    ) -> usize {
        match self.hand_over {
            HandOver::Blocks => self.receive_from_blocks(max, deliver),
            HandOver::Frames { place, .. } => self.receive_from_places(max, place, deliver),
        }
    }

    fn receive_from_blocks(
        &mut self,
        max: usize,
        mut deliver: impl FnMut(Arrival<'_>) -> usize,
    ) -> usize {
        let (mut came, mut shown) = (0, 0);
        while came < max && shown < max {
            let part = self.memory.part(self.block, 0, self.memory.block_size);
            let in_block = |field| offset_of!(tpacket_block_desc, hdr) + field;
            let status = in_block(offset_of!(tpacket_hdr_v1, block_status));
            if self.left == 0 && !part.is_ours(status) {
                break;
            }
            // SAFETY: a block of which something is left was ours when it was opened, and has not
            // been handed back.
            let bytes = unsafe { part.bytes() };
            if self.left == 0 {
                self.left = read_u32(bytes, in_block(offset_of!(tpacket_hdr_v1, num_pkts)));
                let first = in_block(offset_of!(tpacket_hdr_v1, offset_to_first_pkt));
                self.at = read_u32(bytes, first) as usize;
            }
            while self.left > 0 && came < max && shown < max {
                let header = &bytes[self.at..];
                self.left -= 1;
                self.at += read_u32(header, offset_of!(tpacket3_hdr, tp_next_offset)) as usize;
                shown += 1;
                came += deliver(packed_arrival(header));
            }
            if self.left == 0 {
                part.hand_back(status);
                self.block = (self.block + 1) % self.memory.blocks;
            }
        }
        came
    }

    fn receive_from_places(
        &mut self,
        max: usize,
        place: usize,
        mut deliver: impl FnMut(Arrival<'_>) -> usize,
    ) -> usize {
        let status = offset_of!(tpacket2_hdr, tp_status);
        let (mut came, mut shown) = (0, 0);
        while came < max && shown < max {
            let part = self.memory.part(self.block, self.at, place);
            if !part.is_ours(status) {
                break;
            }
            // SAFETY: it is ours, as its status has just said, until it is handed back below.
            let bytes = unsafe { part.bytes() };
            let mut arrival = arrival(bytes);
            if read_u32(bytes, status) & libc::TP_STATUS_COPY != 0 {
                let length = take_long(self.socket.as_fd(), &mut self.long, &mut self.met);
                // A frame longer than the maximum is truncated, as in the ring.
                let length = length.min(self.long.len());
                if let Some((header, whole)) = self.long[..length].split_first_chunk() {
                    arrival.bytes = whole;
                    arrival.offload = Offload::decode(header);
                }
            }
            shown += 1;
            came += deliver(arrival);
            part.hand_back(status);
            self.at += place;
            if self.at + place > self.memory.block_size {
                self.at = 0;
                self.block = (self.block + 1) % self.memory.blocks;
            }
        }
        came
    }

    /// Returns whether a quarter of the ring is taken.
    pub(crate) fn is_filling(&self) -> bool {
        let ahead = (self.block + self.memory.blocks / 4) % self.memory.blocks;
        let (at, length, status) = match self.hand_over {
            HandOver::Blocks => (
                0,
                self.memory.block_size,
                offset_of!(tpacket_block_desc, hdr) + offset_of!(tpacket_hdr_v1, block_status),
            ),
            HandOver::Frames { place, .. } => (self.at, place, offset_of!(tpacket2_hdr, tp_status)),
        };
        self.memory.part(ahead, at, length).is_ours(status)
    }

    /// Returns the socket, which lives as long as this has it.
    pub(crate) fn socket(&self) -> &Arc<Filtered> {
        &self.socket
    }

    /// Fails with the error that the socket has to report, if there is one.
    pub(crate) fn take_error(&mut self) -> io::Result<()> {
        match self.met.take() {
            Some(error) => Err(error),
            None => super::take_error(self.socket.as_fd()),
        }
    }

    /// Frames that found no room in the ring since this was last asked.
    pub(crate) fn lost(&self) -> io::Result<u64> {
        let statistics: libc::tpacket_stats_v3 =
            option_of(self.as_fd(), libc::SOL_PACKET, libc::PACKET_STATISTICS)?;
        Ok(u64::from(statistics.tp_drops))
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Receives the next frame that bypassed the ring, after a header with its pending offloads, and returns its
/// length, which may exceed the buffer; 0 if there is none. An error that the socket reports comes before the
/// frame, and is left in `met`.
fn take_long(socket: BorrowedFd<'_>, into: &mut [u8], met: &mut Option<io::Error>) -> usize {
    for _ in 0..2 {
        // SAFETY: the kernel writes at most as many bytes as there are at the pointer.
        let length = unsafe {
            libc::recv(
                socket.as_raw_fd(),
                into.as_mut_ptr().cast(),
                into.len(),
                libc::MSG_DONTWAIT | libc::MSG_TRUNC,
            )
        };
        match usize::try_from(length) {
            Ok(length) => return length,
            Err(_) => *met = Some(io::Error::last_os_error()),
        }
    }
    0
}

/// Limits the frames that bypass the ring to `bytes` bytes, as the kernel counts them, or to the limit for
/// unprivileged processes (`net.core.rmem_max`).
fn set_queue(socket: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    let bytes = c_int::try_from(bytes).unwrap_or(c_int::MAX);
    set_option(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, bytes)
        .or_else(|_| set_option(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, bytes))
}

/// Memory that a ring shares with the kernel: consecutive blocks.
#[derive(Debug)]
struct Memory {
    start: NonNull<u8>,
    blocks: usize,
    block_size: usize,
}

// SAFETY: the memory belongs to this value alone, on our side; no thread-local state refers to it.
unsafe impl Send for Memory {}

impl Memory {
    /// Maps the ring that `socket` has just been given.
    fn map(socket: BorrowedFd<'_>, blocks: usize, block_size: usize) -> io::Result<Self> {
        // SAFETY: asks for new memory at a place of the kernel's choice.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                blocks * block_size,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                socket.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            start: NonNull::new(start.cast()).expect("the kernel maps nothing at 0 by choice"),
            blocks,
            block_size,
        })
    }

    /// Returns the `length` bytes from `at` on of one of the blocks.
    fn part(&self, block: usize, at: usize, length: usize) -> Part<'_> {
        assert!(block < self.blocks && at + length <= self.block_size);
        let start = block * self.block_size + at;
        Part {
            start: self.start.as_ptr().wrapping_add(start),
            length,
            memory: PhantomData,
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: this is the mapping that `map` made, of this size; no `Part` outlives it.
        unsafe {
            libc::munmap(
                self.start.as_ptr().cast::<c_void>(),
                self.blocks * self.block_size,
            );
        }
    }
}

/// The unit of handover: a block, or the slot of a frame. It lies in the mapping.
struct Part<'a> {
    start: *mut u8,
    length: usize,
    memory: PhantomData<&'a Memory>,
}

impl<'a> Part<'a> {
    /// Returns the status word at this offset, which names the owner of the part.
    fn status(&self, at: usize) -> &'a AtomicU32 {
        let word = self.start.wrapping_add(at).cast::<u32>();
        assert!(at + size_of::<u32>() <= self.length && word.is_aligned());
        // SAFETY: the word lies in the part and so in the mapping, which lives for `'a`; it is
        // aligned; and both sides only ever access it as one word while it says whose the part is.
        unsafe { AtomicU32::from_ptr(word) }
    }

    fn is_ours(&self, status: usize) -> bool {
        // Acquire: the status makes the kernel's earlier writes visible.
        self.status(status).load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    /// # Safety
    ///
    /// The part must be ours, and not handed back before the last use of these bytes.
    unsafe fn bytes(&self) -> &'a [u8] {
        // SAFETY: the part lies in the mapping, which lives for `'a`. It is ours, says the caller:
        // the kernel writes no byte of it until it is handed back.
        unsafe { std::slice::from_raw_parts(self.start, self.length) }
    }

    /// Makes it the kernel's.
    fn hand_back(&self, status: usize) {
        // Release: our reads complete before the kernel writes again.
        self.status(status)
            .store(libc::TP_STATUS_KERNEL, Ordering::Release);
    }
}

/// Returns the frame behind this header in a block.
fn packed_arrival(header: &[u8]) -> Arrival<'_> {
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
        offload: offload(&header[..mac]),
        came: time(
            word(offset_of!(tpacket3_hdr, tp_sec)),
            word(offset_of!(tpacket3_hdr, tp_nsec)),
        ),
        losing: status & libc::TP_STATUS_LOSING != 0,
    }
}

/// Returns the frame behind this header in a place of its own.
fn arrival(header: &[u8]) -> Arrival<'_> {
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
        offload: offload(&header[..mac]),
        came: time(
            word(offset_of!(tpacket2_hdr, tp_sec)),
            word(offset_of!(tpacket2_hdr, tp_nsec)),
        ),
        losing: word(offset_of!(tpacket2_hdr, tp_status)) & libc::TP_STATUS_LOSING != 0,
    }
}

/// Decodes the kernel's header with a frame's pending offloads.
fn offload(before: &[u8]) -> Offload {
    let header = before.last_chunk::<{ segmentation::HEADER }>();
    Offload::decode(header.expect("a ring's header is longer"))
}

/// Returns the tag that the kernel took out, as the status of a frame says.
fn tag(status: u32, protocol: u16, tag: u16) -> Option<(u16, u16)> {
    let known = status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
    let protocol = if known { protocol } else { NO_TAG_PROTOCOL };
    (status & libc::TP_STATUS_VLAN_VALID != 0).then_some((protocol, tag))
}

fn time(seconds: u32, nanoseconds: u32) -> Duration {
    Duration::new(seconds.into(), nanoseconds)
}

fn read_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn read_u16(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

// SAFETY: structs of integers without padding, as are the next three.
unsafe impl Plain for libc::packet_mreq {}
// SAFETY: as above.
unsafe impl Plain for libc::tpacket_req {}
// SAFETY: as above.
unsafe impl Plain for libc::tpacket_req3 {}
// SAFETY: as above.
unsafe impl Plain for libc::tpacket_stats_v3 {}

fn set(socket: BorrowedFd<'_>, option: c_int, value: impl Plain) -> io::Result<()> {
    set_option(socket, libc::SOL_PACKET, option, value)
}
