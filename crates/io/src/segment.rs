//! Software segmentation of frames that a sender left to hardware: hands out the frames of a [`Cut`] as space permits.

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) mod whole;

use fairlane_wire::segmentation::{Cut, Offload};

use crate::kept;
use crate::unsummed::{PacketFrame, Unsummed};

/// Returns the frame of this number, in memory that is [kept](crate::KeptBytes), lacking its checksum
/// if it can say so.
fn piece<F: PacketFrame>(cut: &Cut, whole: &[u8], number: usize) -> F {
    let room = kept::room(cut.headers() + cut.part(number).len());
    let lacks = cut.checksum().filter(|_| F::MAY_LACK);
    match lacks.and_then(|place| Unsummed::new(place, whole.len())) {
        Some(checksum) => F::lacking(cut.unsummed_in(room, whole, number), checksum),
        None => cut.frame_in(room, whole, number).into(),
    }
}

/// The segments of one frame, handed out as space permits.
///
/// Until all are, the whole frame is kept here, so that one long frame never causes more work in a round than
/// as many short ones would.
#[derive(Debug, Default)]
pub(crate) struct Cutter {
    whole: Vec<u8>,
    cut: Option<Cut>,
    /// The next frame's number.
    next: usize,
    uncut: u64,
}

impl Cutter {
    /// Frames that could not be cut.
    pub(crate) fn uncut(&self) -> u64 {
        self.uncut
    }

    /// Gives out at most `room` frames of the one that was begun, and returns how many.
    pub(crate) fn go_on<F: PacketFrame>(&mut self, into: &mut Vec<F>, room: usize) -> usize {
        let Some(cut) = self.cut else { return 0 };
        let end = cut.frames().min(self.next.saturating_add(room));
        let count = end - self.next;
        into.extend((self.next..end).map(|number| piece::<F>(&cut, &self.whole, number)));
        self.next = end;
        if end == cut.frames() {
            self.cut = None;
        }
        count
    }

    /// Segments the next frame, which `write` puts into the given buffer, once the frame before is used up;
    /// returns how many of its segments fit. Counts frames that cannot be segmented.
    pub(crate) fn cut_next<F: PacketFrame>(
        &mut self,
        offload: &Offload,
        write: impl FnOnce(&mut Vec<u8>),
        into: &mut Vec<F>,
        room: usize,
    ) -> usize {
        debug_assert!(self.cut.is_none());
        self.whole.clear();
        write(&mut self.whole);
        match Cut::new(&self.whole, offload) {
            Ok(cut) => (self.cut, self.next) = (Some(cut), 0),
            Err(_) => self.uncut += 1,
        }
        self.go_on(into, room)
    }
}
