//! Moves of a class below another parent, with everything in it.
//!
//! Its contents stay in place: its queue, or its flows and classes with their places among themselves, its queue
//! management, its counts, its debt to its ceiling. Only its place among siblings changes: it leaves its former parent
//! as a removed class does, whose place is skipped at its turn, and enters the order of the new one as a class that
//! becomes backlogged.

use crate::scheduler::Share;
use crate::units::Nanos;

use super::ceiling::NONE;
use super::child::{Child, ChildKind, flag};
use super::{Body, Class, ClassConfig, ClassId, Place, Tree, TreeError};

impl<P> Tree<P> {
    /// Moves a class below another parent and gives it this configuration there, with everything in it: packets and
    /// flows in their order, classes below it, queue management, counts, and its debt to its ceiling. It enters among
    /// its new siblings as a class that becomes backlogged, with no credit and no debt from before. O(depth);
    /// O(classes, flows and packets below) where the longest packet changes, and O(packets in either parent) where that
    /// one's algorithm follows packets.
    ///
    /// ```
    /// use fairlane_core::sched::Algorithm;
    /// use fairlane_core::tree::{ClassConfig, ClassId, FlowsConfig, Tree, TreeError};
    /// use fairlane_core::{Length, Nanos, Weight};
    ///
    /// let mut link = Tree::<u32>::new(Algorithm::Qfq, None, Default::default());
    /// let config = ClassConfig::new(Weight::ONE, Length::MAX);
    /// let office = link.add_inner(ClassId::ROOT, config, Algorithm::Drr)?;
    /// let guests = link.add_flows(ClassId::ROOT, config, FlowsConfig::new(Algorithm::Drr))?;
    /// link.enqueue(guests, 7, Length::MAX, 1, Nanos::ZERO)?;
    ///
    /// link.move_below(guests, office, config, Nanos::ZERO)?;
    /// assert_eq!(link.parent(guests), Some(office));
    /// assert_eq!(link.stats(office).ok_or("no class")?.queued.packets, 1);
    /// let within_itself = link.move_below(office, office, config, Nanos::ZERO);
    /// assert_eq!(within_itself, Err(TreeError::Below { class: office, parent: office }));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn move_below(
        &mut self,
        id: ClassId,
        parent: ClassId,
        config: ClassConfig,
        now: Nanos,
    ) -> Result<(), TreeError> {
        let class = self.class(id)?;
        if id == ClassId::ROOT {
            return Err(TreeError::Root);
        }
        let (to, share, longest) = self.admit(parent, &config, class.aqm())?;
        let (from, had) = (class.parent, class.longest);
        if from == to {
            return self.change(id, config, now);
        }
        let mut above = core::iter::successors(Some(parent), |&at| self.parent(at));
        if above.any(|at| at == id) {
            return Err(TreeError::Below { class: id, parent });
        }
        if longest < had {
            self.check_lengths(id, longest)?;
        }
        let place = self.rehang(id, to, share);
        let place = place.ok_or(TreeError::TooManyClasses(parent))?;
        self.configure(id, config, longest != had, now);
        self.take_place(place, now);
        Ok(())
    }

    /// Takes a class out of its parent's order into another one, where it says nothing yet: its node and slot
    /// there; `None`, and nothing is done, where all slots are in use.
    fn rehang(&mut self, id: ClassId, to: u32, share: Share) -> Option<(u32, u32)> {
        let class = self.class(id).ok()?;
        let (from, slot, body) = (class.parent, class.slot, class.body);
        let mut child = *self.nodes[from as usize].order.child(slot);
        child.tag.flags &= !flag::STALE;
        let ceiling = self.ceiling_of(&child);
        let there = &mut self.nodes[to as usize];
        let place = (to, there.order.add(child, share)?);
        let follows_packets = there.follows_packets;
        self.refresh(to);
        if let Some(ceiling) = ceiling {
            self.ceilings.set_owner(ceiling, place);
            // Below such an order the place cannot stay: the class leaves, and no packet is sent before the order knows
            // its packets.
            if follows_packets {
                self.ceilings.let_go(ceiling);
            }
        }
        self.leave(from, slot, &child);
        match body {
            Body::Leaf { .. } => {
                let (node, slot) = place;
                self.places[id.index()] = Place { node, slot };
            }
            Body::Inner { node, .. } | Body::Flows { node } => {
                let node = &mut self.nodes[node as usize];
                (node.parent, node.slot) = place;
            }
        }
        if let Some(class) = &mut self.classes[id.index()] {
            (class.parent, class.slot) = place;
        }
        if let Some(children) = self.children_of(from) {
            *children -= 1;
        }
        if let Some(children) = self.children_of(to) {
            *children += 1;
        }
        Some(place)
    }

    /// Removes a child that moves elsewhere from the order: its place is skipped.
    fn leave(&mut self, at: u32, slot: u32, child: &Child) {
        // Of others the order knows no packets.
        if self.nodes[at as usize].follows_packets && !child.packets.is_empty() {
            let queued = child.queued(self.limits_of(at, child)).packets as u32;
            self.nodes[at as usize].order.discarded(slot, queued);
        }
        let _ = self.nodes[at as usize].order.remove(slot);
        self.refresh(at);
    }

    /// Returns the number of classes right below the class of a node.
    fn children_of(&mut self, node: u32) -> Option<&mut u32> {
        let class = self.nodes[node as usize].class;
        match &mut self.classes[class as usize] {
            Some(Class {
                body: Body::Inner { children, .. },
                ..
            }) => Some(children),
            _ => None,
        }
    }

    /// Adds a class that moved to a slot to the order there, if it is backlogged and no ceiling of its own holds it.
    fn take_place(&mut self, (at, slot): (u32, u32), now: Nanos) {
        let child = *self.nodes[at as usize].order.child(slot);
        if child.tag.kind == ChildKind::Inner {
            let node = &self.nodes[child.side as usize];
            let (longest, has_ceiling) = (node.longest, node.ceiling != NONE);
            if node.selected.is_somebody() && !(has_ceiling && self.hold_node(child.side, now)) {
                self.activate(at, slot, longest, longest, now);
            }
            return;
        }
        let Some(first) = child.packets.front_length(&self.slab) else {
            return;
        };
        if child.has(flag::CEILING) && self.hold_queue(at, slot, now) {
            return;
        }
        self.activate(at, slot, first.into(), first.into(), now);
        let node = &mut self.nodes[at as usize];
        if node.follows_packets {
            for (len, _) in child.packets.iter(&self.slab).skip(1) {
                node.order.arrived(slot, len.into());
            }
        }
    }
}
