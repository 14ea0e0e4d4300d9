//! A ring of descriptors in memory shared with the kernel.
//!
//! Its writer fills entries and then moves the producer index beyond them (release); its reader
//! sees the index (acquire), reads them, and moves the consumer index (release), whereupon the
//! writer (acquire) may use their places again.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

use libc::c_int;

use super::super::set_option;

/// A ring's size and places, as mapped from the kernel.
pub(super) struct Ring<T> {
    map: NonNull<libc::c_void>,
    bytes: usize,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<T>,
    size: u32,
    /// Our index: the next entry to write, or to read.
    ours: u32,
    /// The kernel's index when we last looked.
    theirs: u32,
}

// SAFETY: the mapping is this value's own and may be used from any one thread at a time.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        // SAFETY: mapped with this length by `Ring::map`, and not used after this.
        unsafe { libc::munmap(self.map.as_ptr(), self.bytes) };
    }
}

impl<T: Copy> Ring<T> {
    /// Asks for a ring of `size` entries by `option`, and maps it; it is found at `page`, with its
    /// parts at `offsets`.
    pub(super) fn map(
        socket: BorrowedFd<'_>,
        option: c_int,
        size: u32,
        page: libc::off_t,
        offsets: &libc::xdp_ring_offset,
    ) -> io::Result<Self> {
        set_option(socket, libc::SOL_XDP, option, size)?;
        let bytes = offsets.desc as usize + size as usize * size_of::<T>();
        // SAFETY: asks for a new mapping, of a ring that the kernel has just made, at an address
        // of its choice.
        let map = unsafe {
            libc::mmap(
                ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                socket.as_raw_fd(),
                page,
            )
        };
        if map == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let map = NonNull::new(map).ok_or(io::ErrorKind::OutOfMemory)?;
        let start = map.cast::<u8>();
        let most = bytes - size_of::<u32>();
        assert!(
            [offsets.producer, offsets.consumer, offsets.flags]
                .iter()
                .all(|&offset| offset as usize <= most && offset.is_multiple_of(4))
                && offsets.desc.is_multiple_of(align_of::<T>() as u64),
            "the kernel's offsets lie in its ring"
        );
        // SAFETY: all offsets are within the mapping, as just checked; the entries' end is its end
        // by the computation of `bytes`. The kernel's offsets keep the entries aligned.
        let (producer, consumer, flags, entries) = unsafe {
            (
                start.add(offsets.producer as usize).cast(),
                start.add(offsets.consumer as usize).cast(),
                start.add(offsets.flags as usize).cast(),
                start.add(offsets.desc as usize).cast(),
            )
        };
        Ok(Self {
            map,
            bytes,
            producer,
            consumer,
            flags,
            entries,
            size,
            ours: 0,
            theirs: 0,
        })
    }

    fn producer(&self) -> &AtomicU32 {
        // SAFETY: an aligned word of the mapping, which lives as long as `self`, and which both
        // sides use as an atomic.
        unsafe { self.producer.as_ref() }
    }

    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as for `producer`.
        unsafe { self.consumer.as_ref() }
    }

    /// Of a ring that we write: places free when we last looked. An index that makes no sense makes
    /// no room.
    fn free(&self) -> u32 {
        self.size
            .saturating_sub(self.ours.wrapping_sub(self.theirs))
    }

    fn entry(&self, index: u32) -> NonNull<T> {
        // SAFETY: masked to less than `size`, a power of two, and there are as many entries.
        unsafe { self.entries.add((index & (self.size - 1)) as usize) }
    }
}

/// A ring that we write.
pub(super) struct Outgoing<T>(pub(super) Ring<T>);

impl<T: Copy> Outgoing<T> {
    /// Places free for at most `wanted` entries; looks at the kernel's index only when it must.
    pub(super) fn room(&mut self, wanted: u32) -> u32 {
        let ring = &mut self.0;
        if ring.free() < wanted {
            ring.theirs = ring.consumer().load(Ordering::Acquire);
        }
        ring.free().min(wanted)
    }

    /// Writes an entry; the kernel sees it after `publish`. `false` if there is no room.
    pub(super) fn write(&mut self, value: T) -> bool {
        if self.room(1) == 0 {
            return false;
        }
        // SAFETY: a place in the mapping, which the kernel reads only once the index is beyond it.
        unsafe { self.0.entry(self.0.ours).write(value) };
        self.0.ours = self.0.ours.wrapping_add(1);
        true
    }

    pub(super) fn publish(&mut self) {
        self.0.producer().store(self.0.ours, Ordering::Release);
    }

    /// Returns how many entries it has.
    pub(super) fn size(&self) -> u32 {
        self.0.size
    }

    /// Returns whether the kernel needs a call to continue.
    pub(super) fn needs_wakeup(&self) -> bool {
        // SAFETY: as for `Ring::producer`.
        let flags = unsafe { self.0.flags.as_ref() };
        flags.load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }

    /// Takes back entries that the kernel has not taken; the kernel must not be using the ring.
    pub(super) fn take_back(&mut self) {
        self.0.ours = self.0.ours.wrapping_sub(self.pending());
        self.publish();
    }

    /// Entries that the kernel has not taken.
    pub(super) fn pending(&self) -> u32 {
        let theirs = self.0.consumer().load(Ordering::Acquire);
        self.0.ours.wrapping_sub(theirs).min(self.0.size)
    }
}

/// A ring that the kernel writes.
pub(super) struct Incoming<T>(pub(super) Ring<T>);

impl<T: Copy> Incoming<T> {
    /// Entries to read, at most `wanted`; looks at the kernel's index only when it must.
    pub(super) fn waiting(&mut self, wanted: u32) -> u32 {
        if self.0.theirs.wrapping_sub(self.0.ours) < wanted {
            self.0.theirs = self.0.producer().load(Ordering::Acquire);
        }
        self.0
            .theirs
            .wrapping_sub(self.0.ours)
            .min(self.0.size)
            .min(wanted)
    }

    /// Entries to read as of now, looking at the kernel's index.
    pub(super) fn waiting_now(&self) -> u32 {
        let theirs = self.0.producer().load(Ordering::Acquire);
        theirs.wrapping_sub(self.0.ours).min(self.0.size)
    }

    /// Returns the entry `ahead` of the next, one of those that are waiting.
    pub(super) fn peek(&self, ahead: u32) -> T {
        // SAFETY: a place in the mapping, which holds a value of integers whatever the kernel put
        // there; it writes no place below the producer index that was seen.
        unsafe { self.0.entry(self.0.ours.wrapping_add(ahead)).read() }
    }

    /// Gives the places of `count` entries back.
    pub(super) fn release(&mut self, count: u32) {
        self.0.ours = self.0.ours.wrapping_add(count);
        self.0.consumer().store(self.0.ours, Ordering::Release);
    }
}
