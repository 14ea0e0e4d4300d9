//! Memory that is shared with the kernel, and the ownership of the frames in it.
//!
//! The memory is cut into frames of equal size, which lie in it as their [`Layout`] says. At any time a
//! frame is held by exactly one of: the free list, an [`XdpFrame`] in safe code, a thread that
//! [keeps](kept) it, or a socket that has handed it to the kernel.
//! Whoever holds a frame, and nobody else, may touch its bytes; so a frame is taken out of the
//! list, or received from the kernel, as the one `XdpFrame` that there is of it, and an `XdpFrame`
//! is gone once its frame is the kernel's.

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
/// Bytes before a packet that is to be sent in which the kernel is told what is left to do to it
/// (`xsk_tx_metadata`).
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
    /// Who keeps this in being: handles, times [`HANDLE`], and frames that are not in the list.
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
        // SAFETY: this was mapped by `new` with this length, and whoever drops the last owner has
        // no reference into it. Pages that the kernel still uses stay until it lets go of them.
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

// SAFETY: `Shared` is `Sync` (its memory, atomics and constants are), and is dropped by whoever
// comes last, on any thread: all its parts are `Send`.
unsafe impl Send for Umem {}
// SAFETY: the same.
unsafe impl Sync for Umem {}

impl Umem {
    /// Memory for `frames` frames of `frame_size` bytes, 2048 or 4096, all free. It is allocated at
    /// once, and pinned when a backend is bound. Backends bind to it in any mode.
    ///
    /// Of a frame's bytes 256 are the kernel's when it receives: a frame of 2048 bytes holds 1792.
    ///
    /// How many are enough: each backend keeps as many as its receive ring has places, and up to
    /// as many as its transmit ring has; the rest is what a scheduler can queue.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for another size, no frames, or more than 1,048,576 (4 GiB of 4096);
    /// `OutOfMemory` when there is none.
    pub fn new(frames: u32, frame_size: u32) -> io::Result<Self> {
        Self::with(Layout::aligned, frames, frame_size)
    }

    /// The same, with frames that lie a line of the cache further apart: their headers, which are what a
    /// scheduler reads of them, then share the whole of a cache in place of a thirty-second, or less. Where thousands of frames
    /// are in use, forwarding a packet costs some 5% less.
    ///
    /// A device that reads and writes frames itself wants each within a page. So backends bind to this memory in the modes
    /// that [copy](super::super::xdp::XdpMode), though the device might offer zero-copy; asked for that, they refuse. Of
    /// the kernel's names this is a UMEM of unaligned chunks.
    ///
    /// # Errors
    ///
    /// Those of [`new`](Self::new); of 4096 bytes there are 1,032,444 frames at most, in 4 GiB.
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

    /// A free frame with a copy of `bytes`; `None` if no frame is free, or `bytes` are more than a
    /// frame has. O(length).
    pub fn frame_from(&self, bytes: &[u8]) -> Option<XdpFrame> {
        if bytes.len() > self.frame_size() as usize {
            return None;
        }
        let mut taken = None;
        self.take(1, |index| taken = Some(index));
        // What is so long that it leaves no such room is longer than any interface takes it.
        let ahead = TOLD.min(self.frame_size() as usize - bytes.len());
        let start = self.layout().start(taken?) + ahead as u32;
        // SAFETY: the frame has just come out of the list, so nobody else holds it; as many bytes as
        // `bytes` has are within it behind the first `ahead`.
        let mut frame = unsafe { self.adopt(start, bytes.len() as u16) };
        frame.bytes_mut().copy_from_slice(bytes);
        Some(frame)
    }

    /// How many frames there are, free or not.
    pub fn frames(&self) -> u32 {
        self.shared().frames
    }

    /// Bytes of a frame.
    pub fn frame_size(&self) -> u32 {
        self.layout().frame_size()
    }

    /// Whether its frames are [unaligned](Self::unaligned).
    pub fn is_unaligned(&self) -> bool {
        !self.layout().is_aligned()
    }

    /// Where its frames lie.
    pub(crate) fn layout(&self) -> Layout {
        self.shared().layout
    }

    /// How many frames are free. While other threads take and give, of a moment ago. Those that a thread
    /// [keeps](OwedFrames) are not. O(1).
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
        // SAFETY: `alive` counts this handle, so what it points to lives.
        unsafe { self.shared.as_ref() }
    }

    /// Where the memory starts, and how many bytes it has.
    pub(super) fn memory(&self) -> (NonNull<u8>, usize) {
        (self.shared().memory.start, self.shared().memory.bytes)
    }

    /// A number for one more socket; `None` if there are 64.
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
        // Nobody can count down to nothing meanwhile: this handle counts.
        shared.alive.fetch_add(count as u64, Ordering::Relaxed);
        kept + count
    }

    /// Makes frames free that were sent: what is another thread's is kept for it, the rest goes to the list. None is
    /// left in `frames`.
    ///
    /// # Safety
    ///
    /// As of [`give`](Self::give).
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

    /// Gives up frames that the kernel may still touch: nobody will hold them again. They do not
    /// keep the memory in being; its pages the kernel keeps for itself as long as it needs them.
    ///
    /// # Safety
    ///
    /// The caller holds so many frames, and from now on does not.
    pub(super) unsafe fn lose(&self, count: u32) {
        let shared = self.shared();
        shared.lost.fetch_add(count, Ordering::Relaxed);
        // This handle stays, so this is not the end.
        shared.alive.fetch_sub(count.into(), Ordering::Relaxed);
    }

    /// The frame that these bytes are in, as safe code's.
    ///
    /// # Safety
    ///
    /// The caller holds the frame with the byte `start`, gives it up, and the kernel no longer
    /// touches it; `length` bytes from `start` are within that frame.
    pub(super) unsafe fn adopt(&self, start: u32, length: u16) -> XdpFrame {
        // SAFETY: by the caller's promise; `alive` counts each frame that is not in the list.
        unsafe { XdpFrame::at(self.shared, start, length) }
    }

    /// The `N` bytes before the packet of a frame that are its frame's too, if there are as many.
    pub(super) fn before<const N: usize>(&self, frame: &XdpFrame) -> Option<[u8; N]> {
        (self.owns(frame) && frame.ahead() >= N).then(|| {
            // SAFETY: the bytes lie in the frame, which `frame` holds, so nobody writes to them;
            // all bytes of the memory have had a value since it was mapped, and any are a value of
            // this type.
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

    /// Whether this is a frame of this memory.
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

/// Counts down `alive`, and frees everything when nothing is left.
///
/// # Safety
///
/// `alive` has counted `count` for the caller, who does not use `shared` again.
unsafe fn release(shared: NonNull<Shared>, count: u64) {
    // SAFETY: `alive` still counts the caller's share, so `shared` lives.
    let alive = unsafe { &shared.as_ref().alive };
    // Release and acquire as for any shared owner: what others did before they let go comes before
    // the end.
    if alive.fetch_sub(count, Ordering::Release) == count {
        fence(Ordering::Acquire);
        // SAFETY: made by `Box::leak`, and nobody else is left who could use it.
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
    /// Where what is to be summed of the packet begins, if it lacks its checksum; else 0.
    summed_from: u8,
    /// How far behind that the checksum is to be written.
    field: u8,
}

const _: () = assert!(size_of::<Option<XdpFrame>>() == 16);

// SAFETY: the frame is this value's alone, and what it points to is `Sync` and may be dropped on
// any thread.
unsafe impl Send for XdpFrame {}
// SAFETY: a shared reference only reads.
unsafe impl Sync for XdpFrame {}

impl XdpFrame {
    /// The packet.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: by the contract of `adopt` these bytes are within a frame that this value holds,
        // so neither the kernel nor anybody else writes to them; all bytes of the memory have had
        // a value since it was mapped. `alive` counts this frame, so the memory lives.
        unsafe { slice::from_raw_parts(self.first().as_ptr(), self.len()) }
    }

    /// The packet, to be changed in place.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`; and this value is borrowed mutably, so nobody reads them either.
        unsafe { slice::from_raw_parts_mut(self.first().as_ptr(), self.len()) }
    }

    /// The packet's length in bytes.
    #[allow(clippy::len_without_is_empty, reason = "no packet on a wire is empty")]
    pub fn len(&self) -> usize {
        usize::from(self.length)
    }

    /// Cuts the packet to `length` bytes; does nothing if it has fewer.
    pub fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length.try_into().unwrap_or(u16::MAX));
    }

    /// Looks whether the sender of the packet, on the same machine, has left its checksum undone, which
    /// [shows](crate::checksum::unsummed): whoever sends the packet again then leaves it so where the
    /// kernel can be told to compute it, and computes it else. O(1).
    pub fn find_unsummed(&mut self) {
        let Some(lacks) = checksum::unsummed(self.bytes()) else {
            return;
        };
        let (start, field) = lacks.place();
        match (u8::try_from(start), u8::try_from(field - start)) {
            (Ok(start), Ok(field)) => (self.summed_from, self.field) = (start, field),
            // Behind more tags than anybody writes.
            _ => lacks.complete(self.bytes_mut()),
        }
    }

    /// The checksum that the packet was [found](Self::find_unsummed) to lack.
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

    /// Writes before the packet what tells the kernel to compute the checksum that it lacks; whether it
    /// lacks any, and there is room.
    pub(super) fn tell(&mut self) -> bool {
        let Some(lacks) = self.lacks().filter(|_| self.ahead() >= TOLD) else {
            return false;
        };
        let told = metadata(lacks);
        // SAFETY: as many bytes before the packet are its frame's too, which this value holds, so that
        // nobody else reads or writes them; it is borrowed mutably.
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

    /// Its number in the memory.
    fn number(&self) -> u32 {
        // SAFETY: `alive` counts this frame, so `shared` lives.
        unsafe { self.shared.as_ref() }
            .layout
            .number(self.start.into()) as u32
    }

    /// The frame with this byte, with a packet of so many bytes from there.
    ///
    /// # Safety
    ///
    /// As of [`Umem::adopt`], with a frame that `alive` of `shared` counts.
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

/// What tells the kernel to compute this checksum.
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
