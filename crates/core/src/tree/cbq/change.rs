//! Classes of a [`Cbq`] changed, emptied and removed while it runs.

use super::{Cbq, CbqClass, CbqError, Place, within_limits};
use crate::aqm::Aqm;
use crate::room::Room;
use crate::tree::{ClassId, ClassStats, Discarded, LeafConfig, Reason};
use crate::units::Nanos;
use alloc::vec::Vec;

impl<P> Cbq<P> {
    /// Gives a class another configuration, backlogged or not. Queued packets stay, also above lower limits; so does
    /// its recent use, and it stays suspended until the same time. O(classes + packets of the class).
    pub fn change(&mut self, id: ClassId, config: CbqClass) -> Result<(), CbqError> {
        config.check(self.link)?;
        let class = self.class(id)?;
        if id == ClassId::ROOT {
            return Err(CbqError::Root);
        }
        let packets = class.leaf.queue.iter(&self.slab);
        let longest = packets.map(|(len, _)| len).max();
        if let Some(queued) = longest.filter(|&len| len > config.max_length) {
            let max = config.max_length;
            return Err(CbqError::LongerPacketQueued { queued, max });
        }
        let old = class.config.priority;
        let link = self.link;
        let class = &mut self.classes[id.index()];
        class.config = config;
        class
            .estimator
            .change(config.rate, link, config.max_length, config.bursts);
        let in_ring = class.leaf.place == Place::Ring;
        if in_ring && old != config.priority {
            self.rings[old as usize].retain(|&number| number != id.number());
            self.join(id.number());
        }
        self.weigh(old);
        self.weigh(config.priority);
        Ok(())
    }

    /// Gives a leaf another queue configuration: queued packets stay, also above lower limits. Queue management
    /// restarts if its configuration differs.
    pub fn change_leaf(&mut self, id: ClassId, config: LeafConfig) -> Result<(), CbqError> {
        if !self.class(id)?.is_leaf {
            return Err(CbqError::NotLeaf(id));
        }
        let config = within_limits(config);
        self.keep_room(self.classes[id.index()].leaf.config.room, config.room)?;
        let leaf = &mut self.classes[id.index()].leaf;
        if leaf.config.aqm != config.aqm || leaf.config.rate != config.rate {
            leaf.aqm = Aqm::new(&config.aqm, config.rate, u64::from(id.number()));
        }
        leaf.config = config;
        self.note(id.number());
        Ok(())
    }

    /// Removes a class that has no others below it; its packets go to `discard` in order. Its counters are added to
    /// those of its parent. O(classes * levels + packets of the class).
    pub fn remove(
        &mut self,
        id: ClassId,
        discard: impl FnMut(Discarded<P>),
    ) -> Result<ClassStats, CbqError> {
        let class = self.class(id)?;
        if id == ClassId::ROOT {
            return Err(CbqError::Root);
        }
        if !class.children.is_empty() {
            return Err(CbqError::HasChildren(id));
        }
        let (parent, priority) = (class.parent, class.config.priority);
        self.keep_room(class.leaf.config.room, Room::NONE)?;
        let gone = self.clear(id);
        self.beyond.remove(id.number());
        let stats = self.stats(id).unwrap_or_default();
        let class = &mut self.classes[id.index()];
        class.removed = true;
        class.is_leaf = false;
        class.leaf.place = Place::Out;
        class.leaf.config.room = Room::NONE;
        let counts = class.counts;
        let above = &mut self.classes[parent as usize];
        above.children.retain(|&number| number != id.number());
        above.counts = above.counts.plus(&counts);
        self.rings[priority as usize].retain(|&number| number != id.number());
        self.sleepers.forget(id.number());
        self.classes.release(id.number());
        self.set_depths();
        self.weigh(priority);
        gone.into_iter().for_each(discard);
        Ok(stats)
    }

    /// Discards the packets of a class and those below it; they go to `discard`, those of one queue in order. O(packets
    /// and classes below).
    pub fn flush(
        &mut self,
        id: ClassId,
        now: Nanos,
        discard: impl FnMut(Discarded<P>),
    ) -> Result<(), CbqError> {
        self.class(id)?;
        let mut all = Vec::new();
        let mut below = alloc::vec![id.number()];
        while let Some(number) = below.pop() {
            below.extend(self.classes[number as usize].children.iter().rev());
            let gone = self.clear(ClassId::new(number));
            if !gone.is_empty() {
                self.classes[number as usize].leaf.aqm.emptied(now);
            }
            all.extend(gone);
        }
        all.into_iter().for_each(discard);
        Ok(())
    }

    /// Discards the first packets of a leaf in order, `left` of them at most, which are taken off
    /// it. Returns whether it has no others. O(`left`).
    #[doc(hidden)]
    pub fn take_out(
        &mut self,
        id: ClassId,
        left: &mut usize,
        now: Nanos,
        mut discard: impl FnMut(Discarded<P>),
    ) -> Result<bool, CbqError> {
        self.class(id)?;
        while *left > 0 {
            match self.discard_first(id) {
                Some(gone) => discard(gone),
                None => return Ok(true),
            }
            *left -= 1;
        }
        let leaf = &mut self.classes[id.index()].leaf;
        let empty = leaf.queue.is_empty();
        if empty {
            leaf.aqm.emptied(now);
        }
        Ok(empty)
    }

    /// Removes all packets of a class and counts them as discarded. It keeps its place, and is skipped at its turn.
    fn clear(&mut self, id: ClassId) -> Vec<Discarded<P>> {
        core::iter::from_fn(|| self.discard_first(id)).collect()
    }

    fn discard_first(&mut self, id: ClassId) -> Option<Discarded<P>> {
        let (_, len, payload) = self.take(id.number())?;
        self.classes[id.index()].counts.discarded.add(len);
        Some(Discarded {
            class: id,
            len,
            payload,
            reason: Reason::Flushed,
        })
    }
}
