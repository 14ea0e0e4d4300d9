//! Memory of frames that is kept for those to come.
//!
//! A general allocator gives memory back to the system once much of it is free in one piece: where a queue of
//! a hundred thousand frames is emptied that takes milliseconds (glibc), in which the thread that forwards
//! does nothing else, and the frames to come take it from the system again page by page. So a thread keeps
//! what its frames were in. What it keeps is what such frames have taken at a time at the most, until it
//! ends; their lengths are rounded up to few, so that what is kept of the one serves the other.

use std::cell::RefCell;
use std::{iter, mem};

#[cfg(target_os = "linux")]
use crate::unsummed::{PacketFrame, Unsummed};

/// Bytes that frames have room for; longer ones are not kept.
const ROOMS: [usize; 7] = [128, 256, 512, 1_024, 1_536, 4_096, 9_216];

thread_local! {
    /// Of each room, what is free.
    static KEPT: RefCell<[Vec<Vec<u8>>; ROOMS.len()]> = const {
        RefCell::new([const { Vec::new() }; ROOMS.len()])
    };
}

/// Room for `bytes` bytes, of which nothing is there yet. O(1).
pub(crate) fn room(bytes: usize) -> Vec<u8> {
    let Some(number) = ROOMS.iter().position(|&room| bytes <= room) else {
        return Vec::with_capacity(bytes);
    };
    // At the end of the thread there is nothing kept.
    let kept = KEPT.try_with(|kept| kept.borrow_mut()[number].pop());
    kept.ok()
        .flatten()
        .unwrap_or_else(|| Vec::with_capacity(ROOMS[number]))
}

/// Takes out, piece by piece, what this thread keeps, for a thread that receives: that one keeps a piece by
/// [making](KeptBytes::new) a frame of it and dropping that. O(1) each.
///
/// ```
/// use fairlane_io::{KeptBytes, take_kept};
///
/// drop(KeptBytes::new(Vec::with_capacity(256)));
/// let pieces: Vec<Vec<u8>> = take_kept().collect();
/// assert_eq!((pieces.len(), take_kept().count()), (1, 0));
/// ```
pub fn take_kept() -> impl Iterator<Item = Vec<u8>> {
    iter::from_fn(|| {
        let taken = KEPT.try_with(|kept| kept.borrow_mut().iter_mut().find_map(Vec::pop));
        taken.ok().flatten()
    })
}

/// The bytes of a frame that a backend has received. Where they are dropped, their memory is kept for
/// frames that are received on the same thread.
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
        let mut bytes = mem::take(&mut self.bytes);
        // What was made elsewhere may have any room.
        let Ok(number) = ROOMS.binary_search(&bytes.capacity()) else {
            return;
        };
        bytes.clear();
        let _ = KEPT.try_with(|kept| kept.borrow_mut()[number].push(bytes));
    }
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn what_one_thread_keeps_is_another_ones_once_it_was_taken_out() {
        let rooms = [1_500, 1_500, 60].map(room);
        let mut places = rooms.each_ref().map(|room| room.as_ptr() as usize);
        rooms.into_iter().map(KeptBytes::new).for_each(drop);
        let mut taken = take_kept();
        let two: Vec<Vec<u8>> = taken.by_ref().take(2).collect();
        let rest: Vec<Vec<u8>> = taken.collect();
        assert_eq!((two.len(), rest.len()), (2, 1));
        assert_eq!(take_kept().count(), 0);
        let there = std::thread::spawn(move || {
            let all = two.into_iter().chain(rest);
            all.map(KeptBytes::new).for_each(drop);
            let rooms = [1_500, 60, 1_500].map(room);
            rooms.each_ref().map(|room| room.as_ptr() as usize)
        });
        let mut there = there.join().unwrap();
        places.sort_unstable();
        there.sort_unstable();
        assert_eq!(there, places);
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
