//! Membership in the parent's order: begin, hold, release, remove.

use crate::units::{Charge, Nanos};

use super::ceiling::NONE;
use super::child::{ChildKind, flag};
use super::order::Selected;
use super::{ROOT, Tree};

impl<P> Tree<P> {
    /// Activates a child that has become backlogged and that no ceiling of its own holds. It gets its place, and so
    /// does each class above for which it is the first.
    pub(super) fn activate(
        &mut self,
        at: u32,
        slot: u32,
        head: Charge,
        arrived: Charge,
        now: Nanos,
    ) {
        let node = &mut self.nodes[at as usize];
        let selected = node.order.backlogged(slot, head, arrived);
        self.activate_above(at, selected, now);
    }

    /// A node has a child that got its place, and this one is selected by now. If it is the
    /// only one, the node gets its own.
    fn activate_above(&mut self, mut at: u32, mut selected: Selected, now: Nanos) {
        loop {
            let node = &mut self.nodes[at as usize];
            let before = core::mem::replace(&mut node.selected, selected);
            if before.is_somebody() {
                return;
            }
            let (slot, longest, parent) = (node.slot, node.longest, node.parent);
            if node.ceiling != NONE && self.hold_node(at, now) {
                return;
            }
            at = parent;
            let Some(parent) = self.nodes.get_mut(at as usize) else {
                return;
            };
            selected = parent.order.backlogged(slot, longest, longest);
        }
    }

    /// A child with a ceiling of its own got its first packet: whether the ceiling holds it.
    #[inline(never)]
    pub(super) fn hold_queue(&mut self, at: u32, slot: u32, now: Nanos) -> bool {
        let child = *self.nodes[at as usize].order.child(slot);
        let Some(ceiling) = self.ceiling_of_queue(&child) else {
            return false;
        };
        if self.ceilings.is_held(ceiling) {
            return true;
        }
        // It was flushed, and its ceiling changed: it sends once from the place it has.
        if self.nodes[at as usize].order.is_active(slot) {
            return false;
        }
        let held = self.ceilings.hold(ceiling, now);
        if held {
            self.count(at, &child, |losses| losses.overlimits += 1);
        }
        held
    }

    /// A class with others below it and a ceiling has something to send: whether the ceiling holds
    /// it.
    #[inline(never)]
    pub(super) fn hold_node(&mut self, at: u32, now: Nanos) -> bool {
        let node = &self.nodes[at as usize];
        if self.ceilings.is_held(node.ceiling) {
            return true;
        }
        if let Some(parent) = self.nodes.get(node.parent as usize)
            && parent.order.is_active(node.slot)
        {
            return false;
        }
        let held = self.ceilings.hold(node.ceiling, now);
        if held {
            self.count_held_node(at);
        }
        held
    }

    /// A ceiling holds a class with others below it from now on.
    #[inline(never)]
    pub(super) fn count_held_node(&mut self, at: u32) {
        self.root_held |= at == ROOT;
        let class = self.nodes[at as usize].class;
        if let Some(class) = &mut self.classes[class as usize] {
            class.losses.overlimits += 1;
        }
    }

    /// Releases every class and flow that its ceiling no longer holds. O(log n) for each.
    #[cold]
    #[inline(never)]
    pub(super) fn release(&mut self, now: Nanos) {
        while let Some(owner) = self.ceilings.release(now) {
            self.resume(owner, now);
        }
    }

    /// Releases up to `most` classes and flows that ceilings hold, and cancels their debt; returns their number. For
    /// callers that empty the tree without the pace of a link. O(log n) for each.
    #[doc(hidden)]
    pub fn free_held(&mut self, most: u32, now: Nanos) -> u32 {
        let mut freed = 0;
        while freed < most
            && let Some(owner) = self.ceilings.free_first(now)
        {
            self.resume(owner, now);
            freed += 1;
        }
        freed
    }

    /// A child that no ceiling of its own holds any more has its place again, if it has something
    /// to send.
    pub(super) fn resume(&mut self, (at, slot): (u32, u32), now: Nanos) {
        if at == NONE {
            self.root_held = false;
            return;
        }
        let child = *self.nodes[at as usize].order.child(slot);
        let head = match child.tag.kind {
            ChildKind::Inner => {
                let node = &self.nodes[child.side as usize];
                node.selected.is_somebody().then_some(node.longest)
            }
            _ => {
                let head = child.packets.front_length(&self.slab);
                head.map(Into::into)
            }
        };
        if let Some(head) = head {
            self.activate(at, slot, head, head, now);
        }
    }

    /// Removes the selected child, which has no packets, from its order. The class above leaves its own order at the
    /// next selection, if it has no other active child. A child whose place was computed for a discarded packet, and
    /// that has packets by now, gets another place for its first one.
    #[cold]
    #[inline(never)]
    pub(super) fn pass_over(&mut self, at: u32, slot: u32, now: Nanos) {
        let node = &mut self.nodes[at as usize];
        if node.order.child(slot).may_rest()
            && let Some(flows) = &mut node.flows
        {
            flows.rest(&mut node.order, slot, now);
        }
        let child = node.order.child_mut(slot);
        child.tag.flags &= !flag::STALE;
        let head = child.packets.front_length(&self.slab);
        node.order.idle(slot);
        if let Some(head) = head {
            node.order.backlogged(slot, head.into(), head.into());
        }
        node.selected = node.order.selected();
    }
}
