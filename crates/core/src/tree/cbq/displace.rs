//! Eviction in a full [`Cbq`]: from the leaf with the largest excess over its own ([`room`](crate::room)).

use super::{Cbq, CbqError, Class};
use crate::packet::Count;
use crate::room::Room;
use crate::tree::{ClassId, Discarded, Reason};
use crate::units::{Length, Nanos};

impl<P> Cbq<P> {
    /// Keeps other room than before for a leaf, unless the link holds less than all of it.
    pub(super) fn keep_room(&mut self, before: Room, after: Room) -> Result<(), CbqError> {
        let kept = self.kept.minus(before.count()).plus(after.count());
        let limits = self.limits;
        if after != before && (kept.packets > limits.packets.into() || kept.bytes > limits.bytes) {
            return Err(CbqError::Room {
                packets: kept.packets,
                bytes: kept.bytes,
            });
        }
        self.kept = kept;
        Ok(())
    }

    fn fits(&self, len: Length) -> bool {
        self.slab.room() > 0 && self.queued_bytes + u64::from(len.get()) <= self.limits.bytes
    }

    /// Makes the link fit for a packet of a leaf, if the leaf would not hold most beyond its own
    /// itself: whether it fits.
    pub(super) fn make_room(
        &mut self,
        id: ClassId,
        len: Length,
        now: Nanos,
        discard: &mut dyn FnMut(Discarded<P>),
    ) -> bool {
        while !self.fits(len) {
            let leaf = &self.classes[id.index()].leaf;
            let mut held = leaf.queued;
            held.add(len);
            let with_it = self.measure.beyond(held, leaf.config.room);
            let (classes, measure) = (&self.classes, self.measure);
            let most = self.beyond.most(|number| {
                let leaf = &classes[number as usize].leaf;
                measure.beyond(leaf.queued, leaf.config.room)
            });
            let Some((victim, _)) = most.filter(|&(_, most)| most > with_it) else {
                return false;
            };
            let Some((_, len, payload)) = self.take(victim) else {
                return false;
            };
            let Class { leaf, counts, .. } = &mut self.classes[victim as usize];
            counts.discarded.add(len);
            if leaf.queued.packets == 0 {
                leaf.aqm.emptied(now);
            }
            discard(Discarded {
                class: ClassId::new(victim),
                len,
                payload,
                reason: Reason::Displaced,
            });
        }
        true
    }

    /// Records the present content and reservation of a leaf.
    pub(super) fn note(&mut self, number: u32) {
        let leaf = &self.classes[number as usize].leaf;
        let beyond = self.measure.beyond(leaf.queued, leaf.config.room);
        self.beyond.raise(number, beyond);
    }

    /// Returns the reservations of all classes together.
    pub fn kept(&self) -> Count {
        self.kept
    }
}
