//! Leaves whose room is reduced while they hold packets.
//!
//! The content of a leaf within its reservation has a guaranteed place, and so has everything that it may come to hold
//! before it is empty: it may exceed the reservation by more under its former shares than under its present ones. From
//! then on the new guarantee holds, as for a leaf that existed from the beginning. So until it has been empty once a
//! leaf keeps its former reservation and limits; but no longer than it is within them, which flooders are not, nor
//! longer than no other class needs the difference.

use crate::packet::Count;
use crate::packet_scheduler::Limits;
use crate::room::Room;

use super::{Body, Class, ClassId, LeafConfig, Tree, TreeError};

/// The number of leaves that a call of `expire_idle` examines.
const LOOKED_AT_ONCE: usize = 64;

/// The pending reservation and limits of a leaf.
#[derive(Clone, Copy, Debug)]
pub(super) struct Due {
    room: Room,
    limits: Limits,
}

fn within(held: Count, room: Room) -> bool {
    held.packets <= room.packets.into() && held.bytes <= room.bytes.into()
}

impl<P> Tree<P> {
    /// Reserves space for a class instead of its present reservation, if the class exists by now; where space is short,
    /// other leaves give up reservations beyond their pending ones, one after another until it suffices. If all of that
    /// does not suffice, nothing changes.
    pub(super) fn keep_needed(
        &mut self,
        room: Room,
        own: Option<ClassId>,
        had: Room,
    ) -> Result<(), TreeError> {
        let mut kept = self.keep_room(had, room);
        if kept.is_ok() {
            return kept;
        }
        let own = own.map(ClassId::number);
        self.waning.sort_unstable();
        self.waning.dedup();
        self.waning.retain(|&number| Some(number) != own);
        let beyond = (self.waning.iter()).filter_map(|&number| self.beyond_due(number));
        let beyond = beyond.fold(Count::default(), Count::plus);
        let least = self.kept.minus(beyond).minus(had.count());
        let fits = self.may_keep(least.plus(room.count()));
        while fits.is_ok()
            && kept.is_err()
            && let Some(number) = self.waning.pop()
        {
            self.settle_due(number, |_, _| true);
            kept = self.keep_room(had, room);
        }
        self.waning
            .extend(own.filter(|&own| self.beyond_due(own).is_some()));
        kept
    }

    /// Returns the part of a leaf's reservation beyond the pending one; `None` if nothing is pending.
    fn beyond_due(&self, number: u32) -> Option<Count> {
        match &self.classes[number as usize] {
            Some(Class {
                body: Body::Leaf { config, due, .. },
                ..
            }) => due.map(|due| config.room.count().minus(due.room.count())),
            _ => None,
        }
    }

    /// Keeps the room of `leaf` for a leaf.
    pub(super) fn room_at_once(
        &mut self,
        id: ClassId,
        leaf: LeafConfig,
    ) -> Result<LeafConfig, TreeError> {
        let had = self.leaf_of(id).map_or(Room::NONE, |(had, _)| had.room);
        self.keep_needed(leaf.room, Some(id), had)?;
        self.set_due(id, None);
        Ok(leaf)
    }

    /// Makes the same change once the leaf is empty: until then the leaf keeps its reservation, for as long as it needs
    /// it. Returns the present configuration.
    pub(super) fn room_when_empty(
        &mut self,
        id: ClassId,
        leaf: LeafConfig,
    ) -> Result<LeafConfig, TreeError> {
        let Some((had, held)) = self.leaf_of(id) else {
            return Ok(leaf);
        };
        let is_less = !within(had.room.count(), leaf.room);
        let meanwhile = LeafConfig {
            room: had.room.or_more(leaf.room),
            limits: Limits {
                packets: had.limits.packets.max(leaf.limits.packets),
                bytes: had.limits.bytes.max(leaf.limits.bytes),
            },
            ..leaf
        };
        let keeps = is_less && held.packets > 0 && within(held, had.room);
        if !keeps || self.keep_room(had.room, meanwhile.room).is_err() {
            return self.room_at_once(id, leaf);
        }
        let due = Due {
            room: leaf.room,
            limits: leaf.limits,
        };
        if self.set_due(id, Some(due)).is_none() {
            self.waning.push(id.number());
        }
        Ok(meanwhile)
    }

    /// Returns the configuration of a leaf, and its content.
    fn leaf_of(&self, id: ClassId) -> Option<(LeafConfig, Count)> {
        let class = self.classes.get(id.index())?.as_ref()?;
        let Body::Leaf {
            config, soft_limit, ..
        } = class.body
        else {
            return None;
        };
        let child = self.nodes[class.parent as usize].order.child(class.slot);
        Some((config, child.queued(soft_limit)))
    }

    /// Replaces the pending change of a leaf; returns the former one.
    fn set_due(&mut self, id: ClassId, now: Option<Due>) -> Option<Due> {
        match &mut self.classes[id.index()] {
            Some(Class {
                body: Body::Leaf { due, .. },
                ..
            }) => core::mem::replace(due, now),
            _ => None,
        }
    }

    /// Applies the pending change of a leaf, if its time has come; returns whether nothing is pending any more.
    fn settle_due(&mut self, number: u32, has_come: impl Fn(Count, Room) -> bool) -> bool {
        let id = ClassId::new(number);
        let Some((had, held)) = self.leaf_of(id) else {
            return true;
        };
        let Some(Class {
            body: Body::Leaf { config, due, .. },
            ..
        }) = &mut self.classes[id.index()]
        else {
            return true;
        };
        let Some(is_due) = *due else { return true };
        if !has_come(held, had.room) {
            return false;
        }
        *due = None;
        (config.room, config.limits) = (is_due.room, is_due.limits);
        self.kept = self.kept.minus(had.room.count()).plus(is_due.room.count());
        self.settle_room(number);
        true
    }

    /// Applies the pending changes of some of the leaves that are empty, or hold more than their former reservation.
    #[inline]
    pub(super) fn wane(&mut self) {
        if !self.waning.is_empty() {
            self.look_at_waning();
        }
    }

    #[cold]
    fn look_at_waning(&mut self) {
        for _ in 0..self.waning.len().min(LOOKED_AT_ONCE) {
            self.waned = (self.waned + 1) % self.waning.len().max(1);
            let Some(&number) = self.waning.get(self.waned) else {
                return;
            };
            let has_come = |held: Count, had| held.packets == 0 || !within(held, had);
            if self.settle_due(number, has_come) {
                self.waning.swap_remove(self.waned);
            }
        }
    }
}
