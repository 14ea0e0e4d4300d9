//! Memory that is shared with the kernel, and the ownership of the frames in it.
//!
//! The memory is divided into frames of equal size, at the addresses of their [`Layout`]. At any time a frame is held
//! by exactly one of: the free list, an [`XdpFrame`] in safe code, a thread that [keeps](kept) it, or a socket that has
//! handed it to the kernel. Only the holder of a frame may touch its bytes; so a frame that is taken out of the list,
//! or received from the kernel, becomes its only `XdpFrame`, and handing the frame to the kernel consumes its
//! `XdpFrame`.

mod kept;
mod layout;

use std::fmt;
use std::io;
use std::mem;
use std::process;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use fairlane_mailbox::free::{FreeList, MAX_FRAMES};
use fairlane_mailbox::prefetch;

use crate::checksum;
use crate::unsummed::Unsummed;

pub use kept::OwedFrames;
pub(crate) use layout::Layout;

/// One handle, in [`Shared::alive`]; a frame counts 1.
const HANDLE: u64 = 1 << 32;
/// Bytes before a transmitted packet in which the kernel finds its pending offloads (`xsk_tx_metadata`).
pub(super) const TOLD: usize = 24;
/// Far more handles than memory has room for; a program that leaks them ends before they wrap.
const MAX_HANDLES: u64 = 1 << 30;

/// How many memories have been made.
static MADE: AtomicU64 = AtomicU64::new(0);

struct Shared {
    /// From 1, which no other has.
    number: u64,
    memory: Memory,
    frames: u32,
    layout: Layout,
    free: FreeList,
    /// The owners of this: handles, times [`HANDLE`], plus frames that are not in the list.
    ///
    /// A count of frames, so that moving many of them to or from the list at once costs one
    /// change, and a frame on its way through the kernel none.
    alive: AtomicU64,
    /// Frames that are neither held nor in the list any more.
    lost: AtomicU32,
    /// A bit for each place of [`Tenancy`] that is taken.
    tenants: AtomicU64,
}

/// A number that no other socket with the same memory has, below 64. Given back when dropped.
pub(super) struct Tenancy {
    umem: Umem,
    pub(super) number: u32,
}

impl Drop for Tenancy {
    fn drop(&mut self) {
        let tenants = &self.umem.shared().tenants;
        tenants.fetch_and(!(1 << self.number), Ordering::AcqRel);
    }
}

/// Anonymous memory, page-aligned.
struct Memory {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the memory is this value's own, as a `Box<[u8]>` would be.
unsafe impl Send for Memory {}
// SAFETY: the same; nothing is written through a shared reference to it.
unsafe impl Sync for Memory {}

impl Memory {
    fn new(bytes: usize) -> io::Result<Self> {
        // SAFETY: asks for fresh memory at an address of the kernel's choice; no file is involved.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, bytes })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: this was mapped by `new` with this length, and the thread that drops the last owner has no reference
        // into it. Pages that the kernel still uses stay until it releases them.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// The memory that frames lie in, shared with the kernel and between backends.
///
/// A handle: clones are the same memory. It lives until the last handle, the last backend and the
/// last frame are gone, whichever goes first; a frame that a thread [keeps](XdpFrame::keep) is one of these. Handles
/// and frames may be used from any thread; no call locks or waits.
pub struct Umem {
    shared: NonNull<Shared>,
}

// SAFETY: `Shared` is `Sync` (its memory, atomics and constants are), and the last owner drops it on any thread: all
// its parts are `Send`.
unsafe impl Send for Umem {}
// SAFETY: the same.
unsafe impl Sync for Umem {}

impl Umem {
    /// Memory for `frames` frames of `frame_size` bytes, 2048 or 4096, all free. It is allocated at
    /// once, and pinned when a backend is bound. Backends bind to it in any mode.
    ///
    /// Of a frame's bytes 256 are the kernel's when it receives: a frame of 2048 bytes holds 1792.
    ///
    /// Sizing: each backend keeps as many frames as its receive ring has slots, and up to as many as its transmit ring
    /// has; the remainder is available for packets that a scheduler queues.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for another size, no frames, or more than 1,048,576 (4 GiB of 4096);
    /// `OutOfMemory` when there is none.
    pub fn new(frames: u32, frame_size: u32) -> io::Result<Self> {
        Self::with(Layout::aligned, frames, frame_size)
    }

    /// As [`new`](Self::new), with frames spaced one cache line further apart: their headers, which a scheduler reads,
    /// then spread over the whole of a cache instead of a thirty-second of it, or less. Where thousands of frames are
    /// in use, forwarding a packet costs some 5% less.
    ///
    /// A device that reads and writes frames itself needs each within a page. Backends therefore bind to this memory in
    /// the modes that [copy](super::super::xdp::XdpMode), even if the device offers zero-copy; a request for zero-copy
    /// fails. The kernel calls this a UMEM of unaligned chunks.
    ///
    /// # Errors
    ///
    /// As for [`new`](Self::new); at most 1,032,444 frames of 4096 bytes fit in 4 GiB.
    pub fn unaligned(frames: u32, frame_size: u32) -> io::Result<Self> {
        Self::with(Layout::unaligned, frames, frame_size)
    }

    fn with(layout: impl Fn(u32) -> Layout, frames: u32, frame_size: u32) -> io::Result<Self> {
        const MOST: u32 = 1 << 20;
        const MOST_BYTES: usize = 1 << 32;
        const { assert!(MOST <= MAX_FRAMES) };
        if frame_size != 2048 && frame_size != 4096 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("a frame of {frame_size} bytes is not possible: it has 2048 or 4096"),
            ));
        }
        let layout = layout(frame_size);
        let most = MOST.min((MOST_BYTES / layout.bytes(1)) as u32);
        if frames == 0 || frames > most {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{frames} frames are not possible: there are 1 to {most}"),
            ));
        }
        let shared = Box::new(Shared {
            number: MADE.fetch_add(1, Ordering::Relaxed) + 1,
            memory: Memory::new(layout.bytes(frames))?,
            frames,
            layout,
            free: FreeList::full(frames),
            alive: AtomicU64::new(HANDLE),
            lost: AtomicU32::new(0),
            tenants: AtomicU64::new(0),
        });
        Ok(Self {
            shared: NonNull::from(Box::leak(shared)),
        })
    }

    /// Returns a free frame with a copy of `bytes`; `None` if no frame is free, or `bytes` are more
    /// than a frame has. O(length).
    pub fn frame_from(&self, bytes: &[u8]) -> Option<XdpFrame> {
        if bytes.len() > self.frame_size() as usize {
            return None;
        }
        let mut taken = None;
        self.take(1, |index| taken = Some(index));
        // A packet too long to leave that headroom is too long for any interface.
        let ahead = TOLD.min(self.frame_size() as usize - bytes.len());
        let start = self.layout().start(taken?) + ahead as u32;
        // SAFETY: the frame has just been removed from the list, so it has no other holder; `bytes.len()` bytes after
        // the first `ahead` are within it.
        let mut frame = unsafe { self.adopt(start, bytes.len() as u16) };
        frame.bytes_mut().copy_from_slice(bytes);
        Some(frame)
    }

    /// Returns how many frames there are, free or not.
    pub fn frames(&self) -> u32 {
        self.shared().frames
    }

    /// Bytes of a frame.
    pub fn frame_size(&self) -> u32 {
        self.layout().frame_size()
    }

    /// Returns whether its frames are [unaligned](Self::unaligned).
    #[doc(hidden)]
    pub fn is_unaligned(&self) -> bool {
        !self.layout().is_aligned()
    }

    /// Returns where its frames lie.
    pub(crate) fn layout(&self) -> Layout {
        self.shared().layout
    }

    /// Returns how many frames are free. While other threads take and give, of a moment ago. Those that
    /// a thread [keeps](OwedFrames) are not. O(1).
    #[doc(hidden)]
    pub fn free_frames(&self) -> u32 {
        let shared = self.shared();
        let held = (shared.alive.load(Ordering::Relaxed) % HANDLE) as u32;
        // A frame that one thread has given and not yet counted may be another's already.
        shared
            .frames
            .saturating_sub(held)
            .saturating_sub(shared.lost.load(Ordering::Relaxed))
    }

    fn shared(&self) -> &Shared {
        // SAFETY: `alive` counts this handle, so the pointee lives.
        unsafe { self.shared.as_ref() }
    }

    /// Where the memory starts, and how many bytes it has.
    pub(super) fn memory(&self) -> (NonNull<u8>, usize) {
        (self.shared().memory.start, self.shared().memory.bytes)
    }

    /// Returns a number for one more socket; `None` if there are 64.
    pub(super) fn settle(&self) -> Option<Tenancy> {
        let free = |taken: u64| (taken != u64::MAX).then(|| taken | (taken + 1));
        let tenants = &self.shared().tenants;
        let taken = tenants
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, free)
            .ok()?;
        Some(Tenancy {
            umem: self.clone(),
            number: taken.trailing_ones(),
        })
    }

    /// Takes at most `max` frames out of what this thread keeps, and then out of the list. They are the caller's, by
    /// number. `each` takes and frees none.
    pub(super) fn take(&self, max: usize, mut each: impl FnMut(u32)) -> usize {
        // SAFETY: `alive` counts this handle, so `shared` lives.
        let kept = unsafe { kept::take(self.shared, max, &mut each) };
        if kept == max {
            return kept;
        }
        let shared = self.shared();
        let count = shared.free.take(max - kept, each);
        // The count cannot reach zero meanwhile: it includes this handle.
        shared.alive.fetch_add(count as u64, Ordering::Relaxed);
        kept + count
    }

    /// Frees transmitted frames: those owed to another thread are kept for it, the others go to the list. Empties
    /// `frames`.
    ///
    /// # Safety
    ///
    /// As for [`give`](Self::give).
    pub(super) unsafe fn free(&self, frames: &mut Vec<u32>) {
        // SAFETY: by the caller's promise; those that are kept are not given.
        unsafe {
            let kept = kept::keep_freed(self.shared, frames);
            self.give(frames.drain(..).skip(kept));
        }
    }

    /// Gives frames back to the list.
    ///
    /// # Safety
    ///
    /// The caller holds these frames, each is given once, and neither it nor the kernel touches
    /// them afterwards.
    pub(super) unsafe fn give(&self, frames: impl IntoIterator<Item = u32>) {
        let shared = self.shared();
        let count = shared.free.give(frames);
        // This handle stays, so this is not the end.
        shared.alive.fetch_sub(count as u64, Ordering::Relaxed);
    }

    /// Abandons `count` frames that the kernel may still access: they will have no holder again. They do not keep the
    /// memory alive; the kernel keeps its pages as long as it needs them.
    ///
    /// # Safety
    ///
    /// The caller holds `count` frames, and gives them up.
    pub(super) unsafe fn lose(&self, count: u32) {
        let shared = self.shared();
        shared.lost.fetch_add(count, Ordering::Relaxed);
        // This handle stays, so this is not the end.
        shared.alive.fetch_sub(count.into(), Ordering::Relaxed);
    }

    /// Returns the frame that these bytes are in, as safe code's.
    ///
    /// # Safety
    ///
    /// The caller holds the frame with the byte `start`, gives it up, and the kernel no longer
    /// touches it; `length` bytes from `start` are within that frame.
    pub(super) unsafe fn adopt(&self, start: u32, length: u16) -> XdpFrame {
        // SAFETY: by the caller's promise; `alive` counts each frame that is not in the list.
        unsafe { XdpFrame::at(self.shared, start, length) }
    }

    /// Returns the `N` bytes before the packet of a frame that are its frame's too, if there are as
    /// many.
    pub(super) fn before<const N: usize>(&self, frame: &XdpFrame) -> Option<[u8; N]> {
        (self.owns(frame) && frame.ahead() >= N).then(|| {
            // SAFETY: the bytes lie in the frame, which `frame` holds, so nothing else writes to them; all bytes of the
            // memory have been initialized since it was mapped, and any are a value of this type.
            unsafe { frame.first().sub(N).cast::<[u8; N]>().read_unaligned() }
        })
    }

    /// Asks the processor for the cache line of this byte, counted from the start of the memory.
    #[inline]
    pub(super) fn prefetch(&self, byte: u64) {
        prefetch(
            self.shared()
                .memory
                .start
                .as_ptr()
                .wrapping_add(byte as usize),
        );
    }

    /// See [`FreeList::note`].
    pub(super) fn note(&self, frame: u32, note: u32) {
        self.shared().free.note(frame, note);
    }

    /// See [`FreeList::noted`]; takes any number for a frame's.
    pub(super) fn noted(&self, frame: u64) -> Option<(u32, u32)> {
        let frame = u32::try_from(frame).ok()?;
        Some((frame, self.shared().free.noted(frame)?))
    }

    /// Returns whether this is a frame of this memory.
    pub(crate) fn owns(&self, frame: &XdpFrame) -> bool {
        self.shared == frame.shared
    }
}

impl Clone for Umem {
    fn clone(&self) -> Self {
        let before = self.shared().alive.fetch_add(HANDLE, Ordering::Relaxed);
        if before / HANDLE > MAX_HANDLES {
            process::abort();
        }
        Self {
            shared: self.shared,
        }
    }
}

impl Drop for Umem {
    fn drop(&mut self) {
        // SAFETY: this handle was counted, and is not used again.
        unsafe { release(self.shared, HANDLE) };
    }
}

impl fmt::Debug for Umem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Umem")
            .field("frames", &self.frames())
            .field("frame_size", &self.frame_size())
            .field("free", &self.free_frames())
            .finish()
    }
}

/// Decrements `alive`, and frees everything at zero.
///
/// # Safety
///
/// `alive` has counted `count` for the caller, which does not use `shared` again.
unsafe fn release(shared: NonNull<Shared>, count: u64) {
    // SAFETY: `alive` still counts the caller's share, so `shared` lives.
    let alive = unsafe { &shared.as_ref().alive };
    // Release and acquire as for any reference count: other owners' accesses happen before the memory is freed.
    if alive.fetch_sub(count, Ordering::Release) == count {
        fence(Ordering::Acquire);
        // SAFETY: made by `Box::leak`, and there is no other owner.
        drop(unsafe { Box::from_raw(shared.as_ptr()) });
    }
}

/// A frame of a [`Umem`] with a packet in it: an Ethernet frame from its destination address on,
/// without the check sequence.
///
/// A handle of 16 bytes; moving it moves no packet. Dropping it makes the frame free again, on any
/// thread, without a lock; a thread that [owes](OwedFrames) it to another one keeps it.
pub struct XdpFrame {
    shared: NonNull<Shared>,
    /// The packet's first byte, counted from the start of the memory.
    start: u32,
    length: u16,
    /// Offset in the packet at which the checksummed part begins, if the packet lacks its checksum; otherwise 0.
    summed_from: u8,
    /// Offset of the checksum field from there.
    field: u8,
}

const _: () = assert!(size_of::<Option<XdpFrame>>() == 16);

// SAFETY: this value is the only holder of the frame, and its pointee is `Sync` and may be dropped on any thread.
unsafe impl Send for XdpFrame {}
// SAFETY: a shared reference only reads.
unsafe impl Sync for XdpFrame {}

impl XdpFrame {
    /// Returns the packet.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: by the contract of `adopt` these bytes are within a frame that this value holds, so neither the
        // kernel nor other code writes to them; all bytes of the memory have been initialized since it was mapped.
        // `alive` counts this frame, so the memory lives.
        unsafe { slice::from_raw_parts(self.first().as_ptr(), self.len()) }
    }

    /// Returns the packet, to be changed in place.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`; and this value is borrowed mutably, so there are no other readers.
        unsafe { slice::from_raw_parts_mut(self.first().as_ptr(), self.len()) }
    }

    /// Returns the packet's length in bytes.
    #[allow(clippy::len_without_is_empty, reason = "no packet on a wire is empty")]
    pub fn len(&self) -> usize {
        usize::from(self.length)
    }

    /// Cuts the packet to `length` bytes; does nothing if it has fewer.
    pub fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length.try_into().unwrap_or(u16::MAX));
    }

    /// Detects whether the packet's sender, on the same machine, left its checksum to hardware, as [its field
    /// shows](crate::checksum::unsummed): a backend that transmits the packet then leaves it so if the kernel can be
    /// asked to compute it, and computes it otherwise. O(1).
    #[doc(hidden)]
    pub fn find_unsummed(&mut self) {
        let Some(lacks) = checksum::unsummed(self.bytes()) else {
            return;
        };
        let (start, field) = lacks.place();
        match (u8::try_from(start), u8::try_from(field - start)) {
            (Ok(start), Ok(field)) => (self.summed_from, self.field) = (start, field),
            // After more tags than any sender writes.
            _ => lacks.complete(self.bytes_mut()),
        }
    }

    /// Returns the checksum that the packet was [found](Self::find_unsummed) to lack.
    pub fn lacks(&self) -> Option<Unsummed> {
        let start = usize::from(self.summed_from);
        // It may have been cut since.
        Unsummed::new((start, start + usize::from(self.field)), self.len())
    }

    /// Computes the checksum that the packet lacks, if it does. O(length) then.
    pub fn complete(&mut self) {
        if let Some(lacks) = self.lacks() {
            lacks.complete(self.bytes_mut());
        }
        self.summed_from = 0;
    }

    /// Writes a request before the packet for the kernel to compute its missing checksum; returns whether one is
    /// missing and there is headroom for the request.
    pub(super) fn tell(&mut self) -> bool {
        let Some(lacks) = self.lacks().filter(|_| self.ahead() >= TOLD) else {
            return false;
        };
        let told = metadata(lacks);
        // SAFETY: the same number of bytes before the packet belongs to its frame too, which this value holds, so that
        // nothing else reads or writes them; it is borrowed mutably.
        unsafe {
            self.first()
                .sub(TOLD)
                .cast::<[u8; TOLD]>()
                .write_unaligned(told)
        };
        true
    }

    /// Asks the processor for the cache line that the packet begins in.
    #[inline]
    pub(crate) fn prefetch(&self) {
        prefetch(self.first().as_ptr());
    }

    /// Bytes of the frame before the packet.
    fn ahead(&self) -> usize {
        // SAFETY: `alive` counts this frame, so `shared` lives.
        let shared = unsafe { self.shared.as_ref() };
        shared.layout.ahead(self.start) as usize
    }

    /// Returns its number in the memory.
    fn number(&self) -> u32 {
        // SAFETY: `alive` counts this frame, so `shared` lives.
        unsafe { self.shared.as_ref() }
            .layout
            .number(self.start.into()) as u32
    }

    /// Makes a handle of the frame at this byte, with a packet of `length` bytes from there.
    ///
    /// # Safety
    ///
    /// As for [`Umem::adopt`], with a frame that `alive` of `shared` counts.
    unsafe fn at(shared: NonNull<Shared>, start: u32, length: u16) -> XdpFrame {
        XdpFrame {
            shared,
            start,
            length,
            summed_from: 0,
            field: 0,
        }
    }

    fn first(&self) -> NonNull<u8> {
        // SAFETY: `alive` counts this frame, so `shared` lives; `start` is within its memory.
        unsafe { self.shared.as_ref().memory.start.add(self.start as usize) }
    }

    /// Gives the frame up without making it free: where its packet starts, and its length. The
    /// caller holds it now.
    pub(super) fn into_place(self) -> (u32, u16) {
        let frame = mem::ManuallyDrop::new(self);
        (frame.start, frame.length)
    }
}

/// Returns the metadata that requests this checksum from the kernel.
fn metadata(lacks: Unsummed) -> [u8; TOLD] {
    let (start, field) = lacks.place();
    let mut told = [0; TOLD];
    told[..8].copy_from_slice(&u64::from(libc::XDP_TXMD_FLAGS_CHECKSUM).to_ne_bytes());
    // Both are below 2^16.
    told[8..10].copy_from_slice(&(start as u16).to_ne_bytes());
    told[10..12].copy_from_slice(&((field - start) as u16).to_ne_bytes());
    told
}

impl crate::ByteLen for XdpFrame {
    fn byte_len(&self) -> usize {
        self.len()
    }
}

impl Drop for XdpFrame {
    fn drop(&mut self) {
        let frame = self.number();
        // SAFETY: this value holds the frame, which counts, and is not used again where it is kept.
        if unsafe { kept::keep_dropped(self.shared, frame) } {
            return;
        }
        // SAFETY: `alive` counts this frame, so `shared` lives.
        let shared = unsafe { self.shared.as_ref() };
        shared.free.give([frame]);
        // SAFETY: a frame that is not in the list counts 1; this one was not until now, and this
        // value is not used again.
        unsafe { release(self.shared, 1) };
    }
}

impl fmt::Debug for XdpFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("XdpFrame")
            .field("start", &self.start)
            .field("length", &self.length)
            .finish()
    }
}
