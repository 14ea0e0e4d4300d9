//! Invariants of a [`Cbq`] after every operation.

use super::{Cbq, Class, Place, ROOT};
use crate::ensure_invariant;
use crate::packet::Count;
use crate::scheduler::Violation;
use crate::tree::ClassId;

impl<P> Cbq<P> {
    /// Checks that every count is the sum of its parts, and that each leaf with packets
    /// stands in one place. For tests: O(classes + packets).
    pub fn invariants(&self) -> Result<(), Violation> {
        let mut total = Count::default();
        let mut kept = Count::default();
        for (number, class) in (0u32..).zip(self.classes.iter()) {
            let queued = self.queued(class);
            self.check_place(number, class, queued)?;
            if class.removed {
                ensure_invariant!(self.classes.is_free(number), "class {number} is lost");
                continue;
            }
            total = total.plus(queued);
            kept = kept.plus(class.leaf.config.room.count());
            let beyond = self.measure.beyond(queued, class.leaf.config.room);
            ensure_invariant!(
                beyond <= self.beyond.bound(number),
                "class {number} holds {beyond} beyond its own, and {} is known",
                self.beyond.bound(number)
            );
            let counts = class.counts;
            let accounted = counts.sent.plus(counts.discarded).plus(queued);
            ensure_invariant!(
                counts.accepted == accounted,
                "class {number} accepted {:?}, and accounts for {accounted:?}",
                counts.accepted
            );
            let child = |child: &u32| &self.classes[*child as usize];
            let below = class.children.iter().map(|n| child(n).depth + 1).max();
            ensure_invariant!(
                class.depth == below.unwrap_or(0),
                "class {number} has {below:?} levels below it, not {}",
                class.depth
            );
            let stats = self.stats(ClassId::new(number)).unwrap_or_default();
            let sum = stats.sent.plus(stats.discarded).plus(stats.queued);
            ensure_invariant!(
                stats.accepted == sum,
                "the counts below class {number} do not add up: {stats:?}"
            );
        }
        ensure_invariant!(
            total.packets == u64::from(self.len()) && total.bytes == self.queued_bytes,
            "the link counts {} packets of {} bytes, and holds {total:?}",
            self.len(),
            self.queued_bytes
        );
        ensure_invariant!(
            kept == self.kept && self.beyond.is_sound(),
            "{kept:?} are kept for classes, and {:?} counted",
            self.kept
        );
        let top = self.classes[ROOT as usize].depth;
        ensure_invariant!(
            self.cutoff <= top,
            "a cutoff of {} above {top}",
            self.cutoff
        );
        Ok(())
    }

    /// Returns the backlog of a class.
    fn queued(&self, class: &Class) -> Count {
        let mut queued = Count::default();
        for (len, _) in class.leaf.queue.iter(&self.slab) {
            queued.add(len);
        }
        queued
    }

    fn check_place(&self, number: u32, class: &Class, queued: Count) -> Result<(), Violation> {
        let leaf = &class.leaf;
        ensure_invariant!(
            class.is_leaf || queued.packets == 0,
            "class {number} holds packets and is no leaf"
        );
        ensure_invariant!(
            leaf.queued == queued,
            "leaf {number} counts {:?}, holds {queued:?}",
            leaf.queued
        );
        ensure_invariant!(
            queued.packets == 0 || leaf.place != Place::Out,
            "leaf {number} holds packets and stands nowhere"
        );
        let own_ring = &self.rings[class.config.priority as usize];
        let in_own = own_ring.iter().filter(|&&n| n == number).count();
        let in_rings = self
            .rings
            .iter()
            .flatten()
            .filter(|&&n| n == number)
            .count();
        let asleep = self.sleepers.iter().filter(|&n| n == number).count();
        let expected = match leaf.place {
            Place::Out => (0, 0, 0),
            Place::Ring => (1, 1, 0),
            Place::Asleep => (0, 0, 1),
        };
        ensure_invariant!(
            (in_own, in_rings, asleep) == expected,
            "leaf {number} is {:?}, and stands {in_own} times in its ring, {in_rings} in \
             all, and is suspended {asleep} times",
            leaf.place
        );
        Ok(())
    }
}
