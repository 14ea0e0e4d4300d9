//! Changes, flushes and removals, under load.
//!
//! Changes of configuration. Everything is checked before anything is written: a rejected change has no effect. Queued
//! packets stay, also above a lowered limit.

use crate::room::Room;
use crate::scheduler::Share;
use crate::units::{Length, Nanos};
use alloc::vec::Vec;

use super::ceiling::NONE;
use super::child::{ChildKind, flag};
use super::table::{check_fit, clamped, flags, share};
use super::{
    Body, Ceiling, Class, ClassConfig, ClassId, ClassStats, Discarded, LeafConfig, Place, Reason,
    Removed, Tree, TreeError,
};

/// The parts of the tree that a change affects in addition to the class itself.
#[derive(Clone, Copy)]
struct Touches {
    /// Each flow of the class.
    flows: bool,
    /// Queue management is another one.
    management: bool,
}

impl<P> Tree<P> {
    /// Gives a class another weight, level, ceiling or longest packet, backlogged or not; of the
    /// root, only the ceiling and the longest packet matter.
    ///
    /// The new share counts from the class's next place, and so does a ceiling that would hold it already: one packet
    /// may still leave from the present place. It keeps its debt to the ceiling, in bytes. O(1), and O(classes, flows
    /// and packets below) where the longest packet changes.
    pub fn change(
        &mut self,
        id: ClassId,
        config: ClassConfig,
        now: Nanos,
    ) -> Result<(), TreeError> {
        let class = self.class(id)?;
        let old = class.longest;
        let longest = config.max_length.min(self.longest_above(class));
        if let Some(node) = self.nodes.get(class.parent as usize) {
            check_fit(node.order.algorithm(), config.ceiling, class.aqm())?;
            share(node.order.algorithm(), &config, longest)?;
        }
        if longest < old {
            self.check_lengths(id, longest)?;
        }
        self.configure(id, config, longest != old, now);
        Ok(())
    }

    /// Configures a class as given; and if its longest packet changes, updates the classes below it.
    pub(super) fn configure(
        &mut self,
        id: ClassId,
        config: ClassConfig,
        other_lengths: bool,
        now: Nanos,
    ) {
        if let Some(class) = &mut self.classes[id.index()] {
            class.config = config;
        }
        let touched = match other_lengths {
            false => alloc::vec![id.number()],
            true => self.below(id),
        };
        let touches = Touches {
            flows: other_lengths,
            management: false,
        };
        for number in touched {
            self.apply(number, touches, now);
        }
    }

    /// Gives a leaf another queue: limits, room and queue management, which keeps its state where its
    /// configuration stays the same. O(1).
    pub fn change_leaf(
        &mut self,
        id: ClassId,
        leaf: LeafConfig,
        now: Nanos,
    ) -> Result<(), TreeError> {
        self.change_leaf_with(id, leaf, now, Self::room_at_once)
    }

    /// Changes a leaf, but delays a smaller reservation and lower limits until the leaf has been empty once: until then
    /// it keeps its former ones, as long as it is within that reservation and no other class needs the difference. So a
    /// leaf that stayed within its guarantee continues to. O(1), and O(leaves that keep such a reservation) where space
    /// is short.
    #[doc(hidden)]
    pub fn change_leaf_when_empty(
        &mut self,
        id: ClassId,
        leaf: LeafConfig,
        now: Nanos,
    ) -> Result<(), TreeError> {
        self.change_leaf_with(id, leaf, now, Self::room_when_empty)
    }

    fn change_leaf_with(
        &mut self,
        id: ClassId,
        leaf: LeafConfig,
        now: Nanos,
        keep: fn(&mut Self, ClassId, LeafConfig) -> Result<LeafConfig, TreeError>,
    ) -> Result<(), TreeError> {
        let leaf = clamped(leaf);
        let class = self.class(id)?;
        let Body::Leaf { config: old, .. } = class.body else {
            let wanted = "a leaf";
            return Err(TreeError::OtherKind { class: id, wanted });
        };
        let (parent, ceiling) = (class.parent, class.config.ceiling);
        let node = &self.nodes[parent as usize];
        check_fit(node.order.algorithm(), ceiling, Some(&leaf.aqm))?;
        let leaf = keep(self, id, leaf)?;
        if let Some(Class {
            body: Body::Leaf { config, .. },
            ..
        }) = &mut self.classes[id.index()]
        {
            *config = leaf;
        }
        self.settle_room(id.number());
        let touches = Touches {
            flows: false,
            management: (leaf.aqm, leaf.rate) != (old.aqm, old.rate),
        };
        self.apply(id.number(), touches, now);
        Ok(())
    }

    /// Longest packet that the classes above allow.
    fn longest_above(&self, class: &Class) -> Length {
        let node = self.nodes.get(class.parent as usize);
        let longest = node.and_then(|node| Length::new(node.longest.get()));
        longest.unwrap_or(Length::MAX)
    }

    /// Applies a class's configuration.
    fn apply(&mut self, number: u32, touches: Touches, now: Nanos) {
        let Some(class) = &self.classes[number as usize] else {
            return;
        };
        let longest = class.config.max_length.min(self.longest_above(class));
        let (config, parent, slot, body) = (class.config, class.parent, class.slot, class.body);
        if let Some(class) = &mut self.classes[number as usize] {
            class.longest = longest;
        }
        if let Body::Inner { node, .. } | Body::Flows { node } = body {
            let owner = (parent, slot);
            let ceiling = self.nodes[node as usize].ceiling;
            let ceiling = self.change_ceiling(ceiling, config.ceiling, longest, owner, now);
            let node = &mut self.nodes[node as usize];
            (node.ceiling, node.longest) = (ceiling, longest.into());
        }
        if let Some(node) = self.nodes.get(parent as usize)
            && let Ok(share) = share(node.order.algorithm(), &config, longest)
        {
            self.apply_to_child(parent, slot, share, longest);
        }
        match body {
            Body::Leaf { config: leaf, .. } => {
                self.apply_to_queue(parent, slot, config.ceiling, &leaf, touches.management, now);
            }
            Body::Flows { node } if touches.flows => self.apply_to_flows(node, touches, now),
            _ => {}
        }
    }

    fn apply_to_flows(&mut self, at: u32, touches: Touches, now: Nanos) {
        let node = &self.nodes[at as usize];
        let Some(flows) = &node.flows else { return };
        let (config, slots) = (flows.config, node.order.slots());
        let longest = Length::new(node.longest.get()).unwrap_or(Length::MAX);
        let share = Share::new(config.weight, longest);
        for slot in 0..slots {
            if self.nodes[at as usize].order.child(slot).tag.kind == ChildKind::Flow {
                self.apply_to_child(at, slot, share, longest);
                self.apply_to_queue(
                    at,
                    slot,
                    config.ceiling,
                    &config.leaf,
                    touches.management,
                    now,
                );
            }
        }
    }

    /// Share and longest packet of a child.
    pub(super) fn apply_to_child(&mut self, at: u32, slot: u32, share: Share, longest: Length) {
        let node = &mut self.nodes[at as usize];
        let child = node.order.child_mut(slot);
        child.set_longest(longest);
        node.order.change(slot, share);
        node.selected = node.order.selected();
    }

    /// Ceiling and queue management of a leaf or flow.
    pub(super) fn apply_to_queue(
        &mut self,
        at: u32,
        slot: u32,
        ceiling: Option<Ceiling>,
        leaf: &LeafConfig,
        other_management: bool,
        now: Nanos,
    ) {
        let child = *self.nodes[at as usize].order.child(slot);
        let longest = Length::new(child.longest()).unwrap_or(Length::MAX);
        let flags = flags(ceiling, &leaf.aqm);
        let mut extra = self.extra_of(&child);
        if extra == NONE {
            extra = self.add_extra(ceiling, longest, leaf, (at, slot));
        } else {
            if other_management {
                self.extras[extra as usize].aqm = self.management(leaf);
            }
            let present = self.extras[extra as usize].ceiling;
            let changed = self.change_ceiling(present, ceiling, longest, (at, slot), now);
            self.extras[extra as usize].ceiling = changed;
            if flags == 0 {
                self.drop_extra(extra);
                extra = NONE;
            }
        }
        let node = &mut self.nodes[at as usize];
        let child = node.order.child_mut(slot);
        child.tag.flags = child.tag.flags & !(flag::CEILING | flag::AQM | flag::LEAVING) | flags;
        if child.tag.kind == ChildKind::Flow {
            child.side = extra;
        } else if let Some(Class {
            body: Body::Leaf { extra: at, .. },
            ..
        }) = &mut self.classes[child.side as usize]
        {
            *at = extra;
        }
    }

    /// Replaces the ceiling of a class; `present` is the index of the former one, which may hold the class. Returns the
    /// new index.
    fn change_ceiling(
        &mut self,
        present: u32,
        ceiling: Option<Ceiling>,
        longest: Length,
        owner: (u32, u32),
        now: Nanos,
    ) -> u32 {
        match ceiling {
            Some(ceiling) if present != NONE => {
                self.ceilings.change(present, ceiling, longest, now);
                return present;
            }
            Some(ceiling) => return self.ceilings.add(ceiling, longest, owner),
            None => {}
        }
        if present != NONE && self.ceilings.remove(present) {
            self.resume(owner, now);
        }
        NONE
    }

    /// Removes a class, backlogged or not; its packets go to `discard`. One with classes below
    /// it is refused. Its number is used again; its counts stay with its parent.
    /// O(packets and flows of the class; where its parent's algorithm follows packets,
    /// of all its siblings).
    pub fn remove(
        &mut self,
        id: ClassId,
        discard: impl FnMut(Discarded<P>),
    ) -> Result<ClassStats, TreeError> {
        Ok(self.take_away(id, discard)?.stats)
    }

    /// Removes a class in steps, each of which examines no more than `left` flows, which are subtracted from it. `None`
    /// while there is more to do: nothing may be enqueued there from the first call on, and its packets must be [taken
    /// out](Self::take_out) before. Frees nothing large: that is left to the caller in the [remains](Removed::remains).
    /// O(`left`), plus the cost of [`remove`](Self::remove) if packets are queued or the parent's algorithm follows
    /// them.
    #[doc(hidden)]
    pub fn go_on_removing(
        &mut self,
        id: ClassId,
        left: &mut usize,
        discard: impl FnMut(Discarded<P>),
    ) -> Result<Option<Removed>, TreeError> {
        if let Body::Flows { node } = self.class(id)?.body
            && !self.clear(node, left)
        {
            return Ok(None);
        }
        self.take_away(id, discard).map(Some)
    }

    /// Removes the entries of a class's flows from other tables; returns whether none is left.
    fn clear(&mut self, node: u32, left: &mut usize) -> bool {
        loop {
            let node = &mut self.nodes[node as usize];
            let Some(flows) = &mut node.flows else {
                return true;
            };
            let slot = flows.cleared;
            if slot == node.order.slots() {
                return true;
            }
            if *left == 0 {
                return false;
            }
            *left -= 1;
            flows.cleared += 1;
            let child = node.order.child_mut(slot);
            if child.tag.kind == ChildKind::Flow {
                child.tag.flags &= !(flag::AQM | flag::LEAVING | flag::CEILING);
                let extra = core::mem::replace(&mut child.side, NONE);
                self.drop_extra(extra);
            }
        }
    }

    fn take_away(
        &mut self,
        id: ClassId,
        discard: impl FnMut(Discarded<P>),
    ) -> Result<Removed, TreeError> {
        let class = self.class(id)?;
        if id == ClassId::ROOT {
            return Err(TreeError::Root);
        }
        if let Body::Inner { children: 1.., .. } = class.body {
            return Err(TreeError::HasChildren(id));
        }
        let (parent, slot, body) = (class.parent, class.slot, class.body);
        self.flush(id, Nanos::ZERO, discard)?;
        let stats = self.stats(id).unwrap_or_default();
        self.beyond.remove(id.number());
        let remains = match body {
            Body::Leaf { config, extra, .. } => {
                self.keep_room(config.room, Room::NONE)?;
                self.drop_extra(extra);
                None
            }
            Body::Inner { node, .. } => Some(self.take_node(node)),
            Body::Flows { node } => {
                let kept = self.nodes[node as usize].flows.as_ref();
                let kept = kept.map_or(Room::NONE, |flows| flows.config.room);
                self.keep_room(kept, Room::NONE)?;
                let mut all = usize::MAX;
                self.clear(node, &mut all);
                Some(self.take_node(node))
            }
        };
        let above = &mut self.nodes[parent as usize];
        let _ = above.order.remove(slot);
        let above = above.class as usize;
        self.refresh(parent);
        self.classes[id.index()] = None;
        self.places[id.index()] = Place::NOWHERE;
        self.free_classes.push(id.number());
        if let Some(Class {
            body: Body::Inner { children, .. },
            former,
            ..
        }) = &mut self.classes[above]
        {
            *children -= 1;
            *former = former.plus(&ClassStats { flows: 0, ..stats });
        }
        Ok(Removed { stats, remains })
    }

    /// Discards the packets of a class and those below it; they go to `discard`, those of one queue in order. Classes
    /// keep their places in the order. O(packets, classes and flows below).
    pub fn flush(
        &mut self,
        id: ClassId,
        now: Nanos,
        mut discard: impl FnMut(Discarded<P>),
    ) -> Result<(), TreeError> {
        self.class(id)?;
        for number in self.below(id) {
            let Ok(class) = self.class(ClassId::new(number)) else {
                continue;
            };
            match class.body {
                Body::Leaf { .. } => {
                    let place = (class.parent, class.slot);
                    self.flush_queue(place, ClassId::new(number), now, u32::MAX, &mut discard);
                }
                Body::Flows { node } => {
                    let flows = self.nodes[node as usize].flows.as_ref();
                    if flows.is_none_or(|flows| flows.queued.packets == 0) {
                        continue;
                    }
                    for slot in 0..self.nodes[node as usize].order.slots() {
                        let class = ClassId::new(number);
                        self.flush_queue((node, slot), class, now, u32::MAX, &mut discard);
                    }
                }
                Body::Inner { .. } => {}
            }
        }
        Ok(())
    }

    /// Discards the first packets of a class's own queues, as [`flush`](Self::flush) does, and examines no more than
    /// `left` packets and flows together, which are subtracted from it. `from` is 0 at first, and holds the position to
    /// continue from. Returns whether the whole class was examined. O(`left`).
    ///
    /// For a class that is emptied in steps: nothing else may be removed from it before the last step, since its parent
    /// has been given a head that no longer exists.
    #[doc(hidden)]
    pub fn take_out(
        &mut self,
        id: ClassId,
        from: &mut u32,
        left: &mut usize,
        now: Nanos,
        mut discard: impl FnMut(Discarded<P>),
    ) -> Result<bool, TreeError> {
        let class = self.class(id)?;
        let (node, slots) = match class.body {
            Body::Leaf { .. } => (class.parent, class.slot..class.slot + 1),
            Body::Flows { node } => (node, 0..self.nodes[node as usize].order.slots()),
            Body::Inner { .. } => return Ok(true),
        };
        for slot in (*from).max(slots.start)..slots.end {
            *from = slot;
            if *left == 0 {
                return Ok(false);
            }
            let most = u32::try_from(*left).unwrap_or(u32::MAX);
            let taken = self.flush_queue((node, slot), id, now, most, &mut discard);
            *left -= taken.max(1) as usize;
            if !self.nodes[node as usize]
                .order
                .child(slot)
                .packets
                .is_empty()
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Discards the first packets of a leaf or flow, which keeps its place; returns their number.
    fn flush_queue(
        &mut self,
        (at, slot): (u32, u32),
        class: ClassId,
        now: Nanos,
        most: u32,
        discard: &mut impl FnMut(Discarded<P>),
    ) -> u32 {
        let mut packets = 0;
        while packets < most {
            let child = self.nodes[at as usize].order.child_mut(slot);
            let Some((len, (_, payload))) = child.packets.pop_front(&mut self.slab) else {
                break;
            };
            self.forgo(at, slot, class, len);
            packets += 1;
            discard(Discarded {
                class,
                len,
                payload,
                reason: Reason::Flushed,
            });
        }
        if packets > 0 {
            self.lost_first(at, slot, packets, now);
        }
        packets
    }

    /// Returns a class and all below it, each after the one above it.
    fn below(&self, id: ClassId) -> Vec<u32> {
        let mut all = alloc::vec![id.number()];
        let mut looked_at = 0;
        while let Some(&number) = all.get(looked_at) {
            looked_at += 1;
            if let Ok(Class {
                body: Body::Inner { node, .. },
                ..
            }) = self.class(ClassId::new(number))
            {
                all.extend(self.classes_below(*node));
            }
        }
        all
    }

    /// Returns whether no packet of the class or below it is longer than `max`.
    pub(super) fn check_lengths(&self, id: ClassId, max: Length) -> Result<(), TreeError> {
        let mut queued = None;
        for number in self.below(id) {
            let Ok(class) = self.class(ClassId::new(number)) else {
                continue;
            };
            let (node, slots) = match class.body {
                Body::Leaf { .. } => (class.parent, class.slot..class.slot + 1),
                Body::Flows { node } => (node, 0..self.nodes[node as usize].order.slots()),
                Body::Inner { .. } => continue,
            };
            for slot in slots {
                let child = self.nodes[node as usize].order.child(slot);
                queued = queued.max(self.lengths(&child.packets).max());
            }
        }
        match queued {
            Some(queued) if queued > max => Err(TreeError::LongerPacketQueued { queued, max }),
            _ => Ok(()),
        }
    }
}
