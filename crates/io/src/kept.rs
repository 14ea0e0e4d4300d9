//! A per-thread cache of frame memory.
//!
//! A general allocator returns memory to the system once much of it is free in one piece: emptying a queue of a
//! hundred thousand frames then takes milliseconds (glibc), during which the forwarding thread does nothing else, and
//! later frames fault their pages in again. So a thread keeps the memory of its frames until it ends. It keeps at
//! most the memory that such frames ever took at a time; lengths are rounded up to a few sizes, so that frames can
//! share buffers. Frames that were allocated elsewhere are not kept: otherwise the cache could grow without bound.

use std::cell::RefCell;
use std::{iter, mem};

#[cfg(target_os = "linux")]
use crate::unsummed::{PacketFrame, Unsummed};

/// Bytes that frames have room for; longer ones are not kept.
const ROOMS: [usize; 7] = [128, 256, 512, 1_024, 1_536, 4_096, 9_216];

/// A thread's cache, by buffer size.
struct Kept {
    /// Free buffers.
    free: [Vec<Vec<u8>>; ROOMS.len()],
    /// Its frames that have not been dropped here: so much may become free.
    out: [usize; ROOMS.len()],
}

thread_local! {
    static KEPT: RefCell<Kept> = const {
        RefCell::new(Kept {
            free: [const { Vec::new() }; ROOMS.len()],
            out: [0; ROOMS.len()],
        })
    };
}

impl Kept {
    /// Records that one of the frames that may become free is gone, except for its memory; false if there was none.
    #[inline]
    fn is_back(&mut self, number: usize) -> bool {
        let left = self.out[number].checked_sub(1);
        self.out[number] = left.unwrap_or(0);
        left.is_some()
    }

    /// Keeps memory for later frames.
    #[inline]
    fn keep(&mut self, number: usize, mut bytes: Vec<u8>) {
        bytes.clear();
        self.free[number].push(bytes);
    }
}

/// Does something with what this thread keeps; at its end there is nothing kept.
fn with_kept<T>(work: impl FnOnce(&mut Kept) -> T) -> Option<T> {
    KEPT.try_with(|kept| work(&mut kept.borrow_mut())).ok()
}

/// Returns the index of the buffer size `capacity`; `None` for memory that was allocated elsewhere, unless its size
/// matches by chance.
fn number_of(capacity: usize) -> Option<usize> {
    ROOMS.binary_search(&capacity).ok()
}

/// Room for `bytes` bytes, of which nothing is there yet. O(1).
pub(crate) fn room(bytes: usize) -> Vec<u8> {
    let Some(number) = ROOMS.iter().position(|&room| bytes <= room) else {
        return Vec::with_capacity(bytes);
    };
    let free = with_kept(|kept| {
        kept.out[number] += 1;
        kept.free[number].pop()
    });
    free.flatten()
        .unwrap_or_else(|| Vec::with_capacity(ROOMS[number]))
}

/// Memory that a thread owes to a receiving thread: the buffers of the frames that it got from there. The receiver
/// thus gets back as much of every size as its own frames take.
///
/// ```
/// use fairlane_io::{KeptBytes, Owed};
/// use std::thread;
///
/// // Received there, and dropped here.
/// let frame = thread::spawn(|| KeptBytes::from(&[1, 2, 3][..])).join().unwrap();
/// let mut owed = Owed::default();
/// owed.took(&frame);
/// drop(frame);
/// let pieces: Vec<Vec<u8>> = owed.pay().collect();
/// assert_eq!((pieces.len(), owed.pay().count()), (1, 0));
///
/// // There it is kept for frames to come.
/// thread::spawn(|| pieces.into_iter().for_each(KeptBytes::keep)).join().unwrap();
/// ```
#[derive(Debug, Default)]
pub struct Owed([usize; ROOMS.len()]);

impl Owed {
    /// Records a frame that another thread received and this one got: its buffer is kept when it is dropped. O(1).
    #[inline]
    pub fn took(&mut self, frame: &KeptBytes) {
        if let Some(number) = number_of(frame.bytes.capacity()) {
            self.0[number] += 1;
            with_kept(|kept| kept.out[number] += 1);
        }
    }

    /// Takes out, piece by piece, what this thread keeps and owes. O(1) each.
    pub fn pay(&mut self) -> impl Iterator<Item = Vec<u8>> {
        iter::from_fn(move || {
            let paid = with_kept(|kept| {
                let mut rooms = self.0.iter_mut().zip(&mut kept.free);
                rooms.find_map(|(owed, free)| {
                    let left = owed.checked_sub(1)?;
                    let piece = free.pop()?;
                    *owed = left;
                    Some(piece)
                })
            });
            paid.flatten()
        })
    }
}

/// Memory that a thread has lent to a transmitting thread: the buffers of the frames that it handed over. It is
/// returned for later frames of this thread, or of the thread it is [owed](Owed) to.
///
/// ```
/// use fairlane_io::{KeptBytes, Lent, Owed};
/// use std::thread;
///
/// // Received here, and sent there.
/// let frame = KeptBytes::from(&[1, 2, 3][..]);
/// let mut lent = Lent::default();
/// lent.gave(&frame);
/// let sent = thread::spawn(move || {
///     let mut owed = Owed::default();
///     owed.took(&frame);
///     drop(frame);
///     owed.pay().collect::<Vec<_>>()
/// });
/// for piece in sent.join().unwrap() {
///     assert!(lent.took_back(piece));
/// }
///
/// // Memory that was not lent is not kept.
/// assert!(!lent.took_back(Vec::with_capacity(128)));
/// ```
#[derive(Debug, Default)]
pub struct Lent([usize; ROOMS.len()]);

impl Lent {
    /// Another thread has a frame that this one had, if it kept what that is in. O(1).
    #[inline]
    pub fn gave(&mut self, frame: &KeptBytes) {
        let Some(number) = number_of(frame.bytes.capacity()) else {
            return;
        };
        let was_kept = with_kept(|kept| kept.is_back(number));
        self.0[number] += usize::from(was_kept == Some(true));
    }

    /// A frame that was [given](Self::gave) was not taken: it is here as before. O(1).
    pub fn kept(&mut self, frame: &KeptBytes) {
        if let Some(number) = number_of(frame.bytes.capacity())
            && let Some(left) = self.0[number].checked_sub(1)
        {
            self.0[number] = left;
            with_kept(|kept| kept.out[number] += 1);
        }
    }

    /// Keeps returned memory, unless more is returned than was lent; returns whether it does. O(1).
    pub fn took_back(&mut self, bytes: Vec<u8>) -> bool {
        let Some(number) = number_of(bytes.capacity()) else {
            return false;
        };
        let Some(left) = self.0[number].checked_sub(1) else {
            return false;
        };
        self.0[number] = left;
        with_kept(|kept| kept.keep(number, bytes));
        true
    }
}

/// The bytes of a frame that a backend has received. Where they are dropped, their memory is kept for frames that are
/// received on the same thread, if they were received there too, or [taken](Owed::took) from where they were.
#[derive(Debug)]
pub struct KeptBytes {
    bytes: Vec<u8>,
    #[cfg(target_os = "linux")]
    lacks: Option<Unsummed>,
}

impl KeptBytes {
    /// Bytes that may be another's from now on.
    pub fn new(bytes: Vec<u8>) -> KeptBytes {
        KeptBytes {
            bytes,
            #[cfg(target_os = "linux")]
            lacks: None,
        }
    }

    /// Keeps memory for frames that are received on this thread: what one that has had frames of it
    /// [pays](Owed::pay). O(1).
    pub fn keep(bytes: Vec<u8>) {
        if let Some(number) = number_of(bytes.capacity()) {
            with_kept(|kept| kept.keep(number, bytes));
        }
    }
}

/// A copy in memory that is kept, or allocated, as of a frame that this thread has received.
impl From<&[u8]> for KeptBytes {
    fn from(bytes: &[u8]) -> KeptBytes {
        let mut copy = room(bytes.len());
        copy.extend_from_slice(bytes);
        KeptBytes::new(copy)
    }
}

impl From<Vec<u8>> for KeptBytes {
    fn from(bytes: Vec<u8>) -> KeptBytes {
        KeptBytes::new(bytes)
    }
}

impl AsRef<[u8]> for KeptBytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

/// They may lack a checksum.
#[cfg(target_os = "linux")]
impl PacketFrame for KeptBytes {
    const MAY_LACK: bool = true;

    fn lacking(bytes: Vec<u8>, checksum: Unsummed) -> KeptBytes {
        KeptBytes {
            bytes,
            lacks: Some(checksum),
        }
    }

    fn lacks(&self) -> Option<Unsummed> {
        self.lacks
    }

    fn complete(&mut self) {
        if let Some(checksum) = self.lacks.take() {
            checksum.complete(&mut self.bytes);
        }
    }
}

impl std::ops::Deref for KeptBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl std::ops::DerefMut for KeptBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for KeptBytes {
    fn drop(&mut self) {
        let bytes = mem::take(&mut self.bytes);
        // Memory that was allocated elsewhere may have any capacity.
        let Some(number) = number_of(bytes.capacity()) else {
            return;
        };
        with_kept(|kept| {
            // Or one of these, which may be more than are ever received here.
            if kept.is_back(number) {
                kept.keep(number, bytes);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_frame_lies_where_the_last_one_of_about_its_length_did() {
        let mut first = room(1_500);
        first.resize(1_500, 7);
        let place = first.as_ptr();
        drop(KeptBytes::new(first));
        let shorter = room(1_024);
        assert_ne!(shorter.as_ptr(), place);
        let second = room(1_025);
        assert!(second.is_empty() && second.capacity() == 1_536);
        assert_eq!(second.as_ptr(), place);
        let third = room(1_500);
        assert_ne!(third.as_ptr(), place, "it is taken");
    }

    /// Frames of these lengths, as this thread receives them.
    fn received(lengths: &[usize]) -> Vec<KeptBytes> {
        let frame = |&length: &usize| KeptBytes::from(&vec![7_u8; length][..]);
        lengths.iter().map(frame).collect()
    }

    /// The same of another thread.
    fn received_elsewhere(lengths: &'static [usize]) -> Vec<KeptBytes> {
        thread::spawn(move || received(lengths)).join().unwrap()
    }

    fn places(frames: &[KeptBytes]) -> Vec<usize> {
        let mut places: Vec<_> = frames.iter().map(|it| it.as_ptr() as usize).collect();
        places.sort_unstable();
        places
    }

    #[test]
    fn what_one_thread_keeps_is_another_ones_once_it_was_paid() {
        let frames = received_elsewhere(&[1_500, 1_500, 60]);
        let former = places(&frames);
        let mut owed = Owed::default();
        frames.iter().for_each(|frame| owed.took(frame));
        assert_eq!(owed.pay().count(), 0, "they are not dropped");
        drop(frames);
        let two: Vec<Vec<u8>> = owed.pay().take(2).collect();
        let rest: Vec<Vec<u8>> = owed.pay().collect();
        assert_eq!((two.len(), rest.len(), owed.pay().count()), (2, 1, 0));
        let there = thread::spawn(move || {
            two.into_iter().chain(rest).for_each(KeptBytes::keep);
            places(&received(&[1_500, 60, 1_500]))
        });
        assert_eq!(there.join().unwrap(), former);
    }

    #[test]
    fn each_thread_is_paid_with_memory_of_its_own_frames_lengths() {
        let both: [&[usize]; 2] = [&[1_500; 8], &[60; 8]];
        let frames = both.map(received_elsewhere);
        let mut owed = [Owed::default(), Owed::default()];
        for (owed, frames) in owed.iter_mut().zip(&frames) {
            frames.iter().for_each(|frame| owed.took(frame));
        }
        drop(frames);
        let rooms = owed.each_mut().map(|owed| {
            let rooms = owed.pay().map(|piece| piece.capacity());
            rooms.collect::<Vec<_>>()
        });
        assert_eq!(rooms, [vec![1_536; 8], vec![128; 8]]);
    }

    #[test]
    fn what_was_lent_comes_back_and_no_more_than_that() {
        let free = || with_kept(|kept| kept.free.iter().map(Vec::len).sum::<usize>());
        let mut lent = Lent::default();
        let frames = received(&[1_500, 60]);
        let former = places(&frames);
        let made_elsewhere = KeptBytes::new(Vec::with_capacity(1_536));
        // Of the first two alone memory is kept here.
        frames.iter().for_each(|frame| lent.gave(frame));
        lent.gave(&made_elsewhere);
        // It was not taken at first.
        lent.kept(&frames[0]);
        lent.gave(&frames[0]);
        let sent = thread::spawn(move || {
            let mut owed = Owed::default();
            let all: Vec<_> = frames.into_iter().chain([made_elsewhere]).collect();
            all.iter().for_each(|frame| owed.took(frame));
            drop(all);
            owed.pay().collect::<Vec<_>>()
        });
        let pieces = sent.join().unwrap();
        assert_eq!((pieces.len(), free()), (3, Some(0)));
        let (long, short): (Vec<_>, Vec<_>) =
            pieces.into_iter().partition(|piece| piece.capacity() > 128);
        let came = |pieces: Vec<Vec<u8>>, lent: &mut Lent| {
            pieces
                .into_iter()
                .map(|piece| lent.took_back(piece))
                .collect::<Vec<_>>()
        };
        // The one or the other, which are alike.
        assert_eq!(came(long, &mut lent), [true, false]);
        assert_eq!(came(short, &mut lent), [true]);
        let again = places(&received(&[1_500, 60]));
        assert!(again.iter().any(|place| former.contains(place)));
        assert_eq!(free(), Some(2), "dropped again, and kept");
        // A lent buffer is no longer outstanding: memory that was allocated elsewhere is not kept instead.
        drop(KeptBytes::new(Vec::with_capacity(1_536)));
        assert_eq!(free(), Some(2));
    }

    #[test]
    fn a_frame_that_was_not_taken_is_as_if_it_had_not_been_lent() {
        let mut lent = Lent::default();
        let frames = received(&[60]);
        lent.gave(&frames[0]);
        lent.kept(&frames[0]);
        drop(frames);
        assert_eq!(with_kept(|kept| kept.free[0].len()), Some(1));
        assert!(!lent.took_back(Vec::with_capacity(128)));
    }

    #[test]
    fn what_is_made_elsewhere_is_kept_no_further_than_frames_are_received() {
        let free = || with_kept(|kept| kept.free.iter().map(Vec::len).sum::<usize>());
        let made =
            |number| (0..number).for_each(|_| drop(KeptBytes::new(Vec::with_capacity(1_024))));
        made(1_000);
        assert_eq!(free(), Some(0));
        let frames = received(&[1_000, 900]);
        made(1_000);
        assert_eq!(free(), Some(2));
        drop(frames);
        assert_eq!(free(), Some(2), "so many were out");
    }

    #[test]
    fn a_frame_of_any_length_has_room() {
        for bytes in [0, 128, 129, 9_216, 9_217, 70_000] {
            for _ in 0..2 {
                let mut frame = room(bytes);
                assert!(frame.is_empty() && frame.capacity() >= bytes, "{bytes}");
                frame.resize(bytes, 1);
                drop(KeptBytes::new(frame));
            }
        }
        // Not made here.
        drop(KeptBytes::new(Vec::with_capacity(130)));
        assert_eq!(room(130).capacity(), 256);
    }
}
