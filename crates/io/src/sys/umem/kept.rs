//! Frames received by other threads that a thread keeps until it returns them.
//!
//! A dropped frame normally goes to the free list, which all threads share: two changes of shared words a frame. A
//! thread that records frames of others keeps the frames that it drops instead, and returns them: shared words change
//! once for many frames, or not at all. A thread that needs a free frame takes its kept frames first. A kept frame
//! counts as held in [`Shared::alive`], so it keeps the memory alive.

use std::cell::RefCell;
use std::ptr::NonNull;
use std::{iter, mem};

use super::{Shared, XdpFrame, release};

/// A thread's kept frames, of one memory at a time.
struct Kept {
    /// The memory. It is there while there are [`frames`](Self::frames), and perhaps not any more else.
    shared: Option<NonNull<Shared>>,
    /// Its number: another may be in its place.
    number: u64,
    /// Frames without other holders, counted by `alive`.
    frames: Vec<u32>,
    /// Frames of others that were received and not freed here: the most that may be kept.
    out: usize,
}

thread_local! {
    static KEPT: RefCell<Kept> = const {
        RefCell::new(Kept {
            shared: None,
            number: 0,
            frames: Vec::new(),
            out: 0,
        })
    };
}

/// Does something with what this thread keeps; at its end there is nothing kept.
fn with_kept<T>(work: impl FnOnce(&mut Kept) -> T) -> Option<T> {
    KEPT.try_with(|kept| work(&mut kept.borrow_mut())).ok()
}

impl Kept {
    /// Returns whether it is of this memory.
    ///
    /// # Safety
    ///
    /// `shared` lives, as while its `alive` counts something.
    #[inline]
    unsafe fn is_of(&self, shared: NonNull<Shared>) -> bool {
        // SAFETY: by the caller's promise.
        self.number == unsafe { shared.as_ref() }.number
    }

    /// From now on it is of this memory, and of no other.
    ///
    /// # Safety
    ///
    /// As for [`is_of`](Self::is_of).
    #[inline]
    unsafe fn turn_to(&mut self, shared: NonNull<Shared>) {
        // SAFETY: by the caller's promise.
        let number = unsafe { shared.as_ref() }.number;
        if self.number != number {
            self.give(self.frames.len());
            (self.shared, self.number, self.out) = (Some(shared), number, 0);
        }
    }

    /// Returns this many frames to the list, those that were kept first.
    fn give(&mut self, count: usize) {
        let Some(shared) = self.shared.filter(|_| count > 0) else {
            return;
        };
        // SAFETY: `alive` counts the frames that are kept, of which there are some, so `shared` lives.
        let given = unsafe { shared.as_ref() }
            .free
            .give(self.frames.drain(..count));
        // SAFETY: they counted, each once, and are held no more; `shared` is used again only while others that are
        // kept count.
        unsafe { release(shared, given as u64) };
    }

    /// Keeps a frame of its memory.
    fn push(&mut self, frame: u32) {
        if self.frames.len() == XdpFrame::MOST_KEPT {
            // Many at once.
            self.give(XdpFrame::MOST_KEPT / 2);
        }
        self.frames.push(frame);
    }

    /// Returns how many of `freed` frames of this memory may be kept, and reduces the allowance by them.
    ///
    /// # Safety
    ///
    /// As for [`is_of`](Self::is_of).
    #[inline]
    unsafe fn may_keep(&mut self, shared: NonNull<Shared>, freed: usize) -> usize {
        // SAFETY: by the caller's promise.
        let count = match unsafe { self.is_of(shared) } {
            true => freed.min(self.out),
            false => 0,
        };
        self.out -= count;
        count
    }
}

impl Drop for Kept {
    /// At the thread's end.
    fn drop(&mut self) {
        self.give(self.frames.len());
    }
}

/// Keeps frames freed here, as far as they are of others; returns how many, the first ones.
///
/// # Safety
///
/// The caller holds these frames of `shared`, which counts them, and those that are kept no more.
pub(super) unsafe fn keep_freed(shared: NonNull<Shared>, frames: &[u32]) -> usize {
    let kept = with_kept(|kept| {
        // SAFETY: `alive` counts the frames, so `shared` lives.
        let count = unsafe { kept.may_keep(shared, frames.len()) };
        frames[..count].iter().for_each(|&frame| kept.push(frame));
        count
    });
    kept.unwrap_or(0)
}

/// The same of one frame: whether it is kept.
///
/// # Safety
///
/// As for [`keep_freed`].
#[inline]
pub(super) unsafe fn keep_dropped(shared: NonNull<Shared>, frame: u32) -> bool {
    let kept = with_kept(|kept| {
        // SAFETY: `alive` counts the frame, so `shared` lives.
        let keeps = unsafe { kept.may_keep(shared, 1) } == 1;
        if keeps {
            kept.push(frame);
        }
        keeps
    });
    kept == Some(true)
}

/// Takes at most `max` frames of this memory out of the thread's kept frames, the last kept first. The caller owns
/// them, and they stay counted. `each` must not use kept frames.
///
/// # Safety
///
/// `shared` lives.
pub(super) unsafe fn take(shared: NonNull<Shared>, max: usize, each: impl FnMut(u32)) -> usize {
    let taken = with_kept(|kept| {
        // SAFETY: by the caller's promise.
        let count = match unsafe { kept.is_of(shared) } {
            true => max.min(kept.frames.len()),
            false => 0,
        };
        let rest = kept.frames.len() - count;
        kept.frames.drain(rest..).rev().for_each(each);
        count
    });
    taken.unwrap_or(0)
}

impl XdpFrame {
    /// Frames that a thread keeps at most.
    #[doc(hidden)]
    pub const MOST_KEPT: usize = 512;

    /// Keeps the frame, without its packet, for later takers on this thread: a receiving backend, or
    /// [`Umem::frame_from`](super::Umem::frame_from). A thread keeps frames of one memory, at most
    /// [`MOST_KEPT`](Self::MOST_KEPT), until it ends; all others are freed. O(1), without changes of shared words.
    pub fn keep(self) {
        let frame = self.number();
        let kept = with_kept(|kept| {
            // SAFETY: `alive` counts this frame, so `shared` lives.
            let keeps = unsafe {
                if kept.frames.is_empty() {
                    kept.turn_to(self.shared);
                }
                kept.is_of(self.shared)
            };
            if keeps {
                kept.push(frame);
            }
            keeps
        });
        if kept == Some(true) {
            // The kept frame stays counted instead.
            mem::forget(self);
        }
    }
}

/// Frames that a thread owes to a receiving thread, for frames that it got from there. Such frames are kept where they
/// are freed, and [paid](OwedFrames::pay) back, so that no thread changes shared words for each frame. A thread keeps
/// frames of one memory at a time, and at most 512: further ones are freed, many at once.
///
/// ```
/// use fairlane_io::{OwedFrames, Umem, XdpFrame};
/// use std::thread;
///
/// let umem = Umem::new(64, 2_048)?;
/// // Received there, and dropped here.
/// let received = { let umem = umem.clone(); move || umem.frame_from(&[7; 60]).expect("64 are free") };
/// let frame = thread::spawn(received).join().unwrap();
/// let mut owed = OwedFrames::default();
/// owed.took(&frame);
/// drop(frame);
/// assert_eq!(umem.free_frames(), 63, "it is kept");
/// let paid: Vec<XdpFrame> = owed.pay().collect();
/// assert_eq!((paid.len(), owed.pay().count()), (1, 0));
///
/// // It is kept there for later frames; a thread's kept frames become free when it ends.
/// thread::spawn(|| paid.into_iter().for_each(XdpFrame::keep)).join().unwrap();
/// assert_eq!(umem.free_frames(), 64);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct OwedFrames(usize);

impl OwedFrames {
    /// Records a frame that another thread received and this one got: it is kept when it is freed here, by a drop or
    /// after transmission. O(1).
    #[inline]
    pub fn took(&mut self, frame: &XdpFrame) {
        self.0 += 1;
        with_kept(|kept| {
            // SAFETY: `alive` counts the frame, so `shared` lives.
            unsafe { kept.turn_to(frame.shared) };
            kept.out += 1;
        });
    }

    /// Takes out, one by one, what this thread keeps and owes: frames without a packet. O(1) each.
    pub fn pay(&mut self) -> impl Iterator<Item = XdpFrame> {
        iter::from_fn(move || {
            let left = self.0.checked_sub(1)?;
            let paid = with_kept(|kept| {
                let (frame, shared) = (kept.frames.pop()?, kept.shared?);
                // SAFETY: it was kept, so it has no other holder, and `alive` counts it, so that `shared` lives.
                Some(unsafe { XdpFrame::at(shared, shared.as_ref().layout.start(frame), 0) })
            });
            let paid = paid.flatten()?;
            self.0 = left;
            Some(paid)
        })
    }
}
