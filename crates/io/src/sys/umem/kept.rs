//! Frames that a thread keeps of those that others have received, until it gives them back to these.
//!
//! A frame that is dropped goes to the list of free ones, which all threads share: two changes of shared words a
//! frame. A thread that has frames of others, and says so, keeps what it drops instead, and hands it on: so what is
//! shared is changed for many frames at once, or not at all. Whoever takes a free frame takes what his thread keeps
//! first. A frame that is kept counts as held in [`Shared::alive`], so what keeps it in being is what kept it in being
//! before.

use std::cell::RefCell;
use std::ptr::NonNull;
use std::{iter, mem};

use super::{Shared, XdpFrame, release};

/// What a thread keeps, of one memory at a time.
struct Kept {
    /// The memory. It is there while there are [`frames`](Self::frames), and perhaps not any more else.
    shared: Option<NonNull<Shared>>,
    /// Its number: another may be in its place.
    number: u64,
    /// Which nobody else holds, and `alive` counts.
    frames: Vec<u32>,
    /// Frames of others that were taken and not freed here: so many may be kept.
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
    /// Whether it is of this memory.
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
    /// As of [`is_of`](Self::is_of).
    #[inline]
    unsafe fn turn_to(&mut self, shared: NonNull<Shared>) {
        // SAFETY: by the caller's promise.
        let number = unsafe { shared.as_ref() }.number;
        if self.number != number {
            self.give(self.frames.len());
            (self.shared, self.number, self.out) = (Some(shared), number, 0);
        }
    }

    /// Gives as many frames to the list, those that were kept first.
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

    /// How many of so many frames of this memory that become free here may be kept; as many less may then.
    ///
    /// # Safety
    ///
    /// As of [`is_of`](Self::is_of).
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

/// Keeps frames that have become free here, as far as they are of others: how many, the first ones.
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
/// As of [`keep_freed`].
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

/// Takes at most `max` frames of this memory out of what the thread keeps, the last kept first. They are the caller's,
/// and count as before. `each` uses nothing that is kept.
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
    pub const MOST_KEPT: usize = 512;

    /// Keeps the frame, without the packet, for those who take one on this thread: a backend that receives here, say,
    /// or [`Umem::frame_from`](super::Umem::frame_from). A thread keeps frames of one memory,
    /// [so many](Self::MOST_KEPT) at most, until it ends; all others become free. O(1), with no change of what threads share.
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
            // What is kept counts in its place.
            mem::forget(self);
        }
    }
}

/// Frames that a thread owes to another one that receives, for those that it has had from there. What such frames lie in
/// is kept where they become free, and [paid](OwedFrames::pay) back: so no thread changes what all share for a frame. A
/// thread keeps frames of one memory at a time, and 512 at most: beyond that they become free, many at once.
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
/// // There it is kept for frames to come; what a thread keeps becomes free when it ends.
/// thread::spawn(|| paid.into_iter().for_each(XdpFrame::keep)).join().unwrap();
/// assert_eq!(umem.free_frames(), 64);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct OwedFrames(usize);

impl OwedFrames {
    /// This thread has a frame that the other one has received: what it lies in is kept when it becomes free here, by
    /// being dropped or by having been sent. O(1).
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
                // SAFETY: it was kept, so nobody else holds it, and `alive` counts it, so that `shared` lives.
                Some(unsafe { XdpFrame::at(shared, shared.as_ref().layout.start(frame), 0) })
            });
            let paid = paid.flatten()?;
            self.0 = left;
            Some(paid)
        })
    }
}
