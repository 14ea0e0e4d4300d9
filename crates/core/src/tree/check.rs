//! Invariants after every operation, for tests.

use crate::ensure_invariant;
use crate::packet::Count;
use crate::room::Room;
use crate::scheduler::Violation;
use alloc::vec::Vec;

use super::ceiling::NONE;
use super::child::{Child, ChildKind, flag};
use super::displace::counted;
use super::{Body, Class, ClassId, ClassStats, Node, ROOT, Tree};

impl<P> Tree<P> {
    /// Checks that every count is the sum of its parts, that every eligible class and flow has a place in the order,
    /// that idle flows are in their list, and the algorithms' own invariants. For tests: O(classes, flows and packets).
    pub fn invariants(&self) -> Result<(), Violation> {
        let mut total = Count::default();
        let mut kept = Count::default();
        let mut held = usize::from(self.root_held);
        for (number, class) in (0..).zip(&self.classes) {
            let Some(class) = class else { continue };
            let id = ClassId::new(number);
            self.check_sum(id, class)?;
            kept = kept.plus(self.check_room(number, class)?.count());
            let node = match class.body {
                Body::Leaf { .. } => continue,
                Body::Inner { node, .. } | Body::Flows { node } => node,
            };
            let node = &self.nodes[node as usize];
            ensure_invariant!(
                node.class == number && (node.parent, node.slot) == (class.parent, class.slot),
                "class {id} is not that of its node"
            );
            ensure_invariant!(
                node.selected == node.order.selected(),
                "class {id} takes {:?} for the next",
                node.selected
            );
            for slot in 0..node.order.slots() {
                let child = node.order.child(slot);
                held += usize::from(self.is_held(child));
                total = total.plus(self.check_child(number, slot, node, child)?);
            }
            if let Some(flows) = &node.flows {
                self.check_idle(number, node, flows.oldest())?;
                let common = flows.common().map(|slot| node.order.child(slot));
                ensure_invariant!(
                    common.is_none_or(|common| common.has(flag::COMMON)),
                    "class {id} lost its common flow"
                );
            }
            node.order.check()?;
        }
        ensure_invariant!(
            kept == self.kept && self.beyond.is_sound(),
            "{kept:?} are kept for classes, and {:?} counted",
            self.kept
        );
        ensure_invariant!(
            total == self.queued(),
            "the tree counts {:?}, and holds {total:?}",
            self.queued()
        );
        ensure_invariant!(
            held == self.ceilings.held() && self.ceilings.is_sound(),
            "{held} classes are held, and {} in the heap",
            self.ceilings.held()
        );
        let stats = self.stats(ClassId::ROOT).unwrap_or_default();
        ensure_invariant!(
            stats.accepted == self.accepted() && stats.queued == total,
            "the tree accepted {:?} and its root {stats:?}",
            self.accepted()
        );
        Ok(())
    }

    /// Checks that the counts of a class are the sums over those right below, that they balance, and that the number of
    /// children is right.
    fn check_sum(&self, id: ClassId, class: &Class) -> Result<(), Violation> {
        let stats = self.stats(id).unwrap_or_default();
        ensure_invariant!(
            stats.accepted == stats.sent.plus(stats.discarded).plus(stats.queued),
            "class {id} does not balance: {stats:?}"
        );
        if let Body::Inner { node, children } = class.body {
            let below: Vec<u32> = self.classes_below(node).collect();
            let sum = below.iter().fold(class.former, |sum, &number| {
                let below = self.stats(ClassId::new(number));
                sum.plus(&below.unwrap_or_default())
            });
            let own = ClassStats {
                dropped: class.losses.dropped,
                overlimits: class.losses.overlimits,
                ..ClassStats::default()
            };
            ensure_invariant!(
                below.len() == children as usize && sum.plus(&own) == stats,
                "class {id} counts {stats:?}, those below {sum:?}"
            );
        }
        Ok(())
    }

    /// Checks that no child holds more beyond its own than recorded; returns the reservation of a class.
    fn check_room(&self, number: u32, class: &Class) -> Result<Room, Violation> {
        let known = self.beyond.bound(number);
        match class.body {
            Body::Inner { .. } => {
                ensure_invariant!(known == 0, "class {number} has no packets, and is listed");
                Ok(Room::NONE)
            }
            Body::Leaf {
                config, soft_limit, ..
            } => {
                let child = self.nodes[class.parent as usize].order.child(class.slot);
                for held in [counted(soft_limit), child.queued(soft_limit)] {
                    let beyond = self.measure.beyond(held, config.room);
                    ensure_invariant!(
                        beyond <= known,
                        "class {number} holds or may hold {beyond} beyond its own, and {known} is known"
                    );
                }
                Ok(config.room)
            }
            Body::Flows { node } => {
                let node = &self.nodes[node as usize];
                let Some(flows) = &node.flows else {
                    return Ok(Room::NONE);
                };
                let room = flows.config.room;
                let beyond = self.measure.beyond(flows.queued, room);
                ensure_invariant!(
                    beyond <= known && flows.beyond.is_sound(),
                    "class {number} holds {beyond} beyond its own, and {known} is known"
                );
                ensure_invariant!(
                    flows.tally.is_sound(node.order.slots(), flows.sent),
                    "the flows of class {number} have sent less than their record says"
                );
                let mut with_room = 0;
                for slot in 0..node.order.slots() {
                    let flow = node.order.child(slot);
                    if flow.tag.kind != ChildKind::Flow {
                        continue;
                    }
                    with_room += u32::from(flow.has(flag::ROOMY));
                    if !flow.has(flag::IDLE) {
                        let held = flow.queued(flows.config.leaf.limits);
                        let beyond = self.measure.beyond(held, flows.own(slot, flow));
                        let known = flows.beyond.bound(slot);
                        ensure_invariant!(
                            beyond <= known,
                            "flow {slot} of class {number} holds {beyond} beyond its own, and \
                             {known} is known"
                        );
                    }
                }
                ensure_invariant!(
                    with_room == flows.with_room
                        && (with_room <= flows.roomy || flows.changing.is_some()),
                    "{with_room} flows of class {number} have room, and {} are counted",
                    flows.with_room
                );
                Ok(room)
            }
        }
    }

    /// Ceiling of a child.
    pub(super) fn ceiling_of(&self, child: &Child) -> Option<u32> {
        match child.tag.kind {
            ChildKind::Inner => {
                let ceiling = self.nodes[child.side as usize].ceiling;
                (ceiling != NONE).then_some(ceiling)
            }
            ChildKind::Leaf | ChildKind::Flow => self.ceiling_of_queue(child),
            ChildKind::Free | ChildKind::Leaving => None,
        }
    }

    fn is_held(&self, child: &Child) -> bool {
        let ceiling = self.ceiling_of(child);
        ceiling.is_some_and(|ceiling| self.ceilings.is_held(ceiling))
    }

    /// Returns the content of a child, checked against its place and its reservation.
    fn check_child(
        &self,
        number: u32,
        slot: u32,
        node: &Node,
        child: &Child,
    ) -> Result<Count, Violation> {
        let mut queued = Count::default();
        for len in self.lengths(&child.packets) {
            queued.add(len);
        }
        let at = match self.classes[number as usize] {
            Some(Class {
                body: Body::Inner { node, .. } | Body::Flows { node },
                ..
            }) => node,
            _ => ROOT,
        };
        let may_be_served = match child.tag.kind {
            ChildKind::Free | ChildKind::Leaving => {
                ensure_invariant!(
                    queued.packets == 0,
                    "a removed child of {number} has packets"
                );
                return Ok(queued);
            }
            ChildKind::Inner => self.nodes[child.side as usize].selected.is_somebody(),
            ChildKind::Leaf | ChildKind::Flow => {
                let idle = child.has(flag::IDLE);
                ensure_invariant!(
                    idle || child.queued(self.limits_of(at, child)) == queued,
                    "child {slot} of class {number} holds {queued:?}, and has room for more"
                );
                ensure_invariant!(
                    !idle || queued.packets == 0,
                    "an idle flow of class {number} has packets"
                );
                queued.packets > 0
            }
        };
        let held = self.is_held(child);
        let active = node.order.is_active(slot);
        ensure_invariant!(
            !may_be_served || held || active,
            "child {slot} of class {number} may be served, and has no place"
        );
        ensure_invariant!(
            active || !child.has(flag::STALE),
            "child {slot} of class {number} has no place, and is to get another"
        );
        ensure_invariant!(
            !(held && active),
            "child {slot} of class {number} is held and has a place"
        );
        ensure_invariant!(
            !child.may_rest() || child.has(flag::IDLE) != active,
            "flow {slot} of class {number} is idle and has a place, or neither"
        );
        Ok(queued)
    }

    /// The list of idle flows leads through all of them, the longest idle first.
    fn check_idle(&self, number: u32, node: &Node, oldest: u32) -> Result<(), Violation> {
        let slots = 0..node.order.slots();
        let idle = slots.filter(|&slot| node.order.child(slot).has(flag::IDLE));
        let idle = idle.count();
        let (mut at, mut before, mut listed) = (oldest, NONE, 0);
        while at != NONE {
            let child = node.order.child(at);
            let (older, newer) = child.neighbours();
            ensure_invariant!(
                child.has(flag::IDLE) && older == before && listed < idle,
                "the idle flows of class {number} are not linked at {at}"
            );
            (before, at) = (at, newer);
            listed += 1;
        }
        ensure_invariant!(
            listed == idle,
            "{listed} of {idle} idle flows of class {number} are listed"
        );
        Ok(())
    }
}
