//! Another configuration for a class of flows, a few of its flows at a time.
//!
//! Properties of the class change at once; the reservation of each flow changes when the change reaches that flow. The
//! amounts that flows hold beyond their own reservation are known by bounds that are never too low
//! ([`room`](crate::room)):
//!
//! 1. From the beginning, bounds are raised as if each flow had the lesser of its former and its new room
//!    ([`Flows::lower`]). A first round over all flows gives each its room, raises its bound accordingly, takes room
//!    from as many as will have none, and sets share, ceiling and queue management.
//! 2. A second round gives room to such as had none, if there is more of it.
//!
//! Until the first round is over the class keeps the larger of its former and its new reservation, and no more flows
//! have a reservation than the smaller number of them: that covers the reservations of all flows, at any point of the
//! round. A change of the limits alone applies to all flows at once, since a flow's content is derived from the
//! remainder of its limits.

use crate::packet::Count;
use crate::room::Room;
use crate::scheduler::Share;
use crate::units::{Length, Nanos};

use super::child::{Child, ChildKind, flag};
use super::dynamic::Flows;
use super::table::{check_flows, clamped};
use super::{Body, ClassId, FlowsConfig, Tree, TreeError};

/// A change that has come to some of the flows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Changing {
    /// The new reservation of the class.
    room: Room,
    aqm_floor: Room,
    /// The former reservation of a flow that has one.
    had: Room,
    /// The number of such flows after the change.
    roomy: u32,
    /// Shares, ceilings or queue management are others.
    queues: bool,
    /// Queue management is.
    management: bool,
    second_round: bool,
    /// Slot of the flow that is next in the round.
    next: u32,
}

impl<P> Tree<P> {
    /// Gives a class of flows other ones: all but the algorithm. With a lower `most`, idle flows expire as new ones
    /// arrive; backlogged ones never do. O(flows).
    pub fn change_flows(
        &mut self,
        id: ClassId,
        flows: FlowsConfig,
        now: Nanos,
    ) -> Result<(), TreeError> {
        self.begin_change_of_flows(id, flows, now)?;
        let mut left = usize::MAX;
        self.go_on_changing(id, &mut left, now);
        Ok(())
    }

    /// Begins the same change: [`go_on_changing`](Self::go_on_changing) must follow, until it is done; packets may come
    /// and go in between. O(1); O(flows) if their limits change, plus the rest of an earlier change.
    #[doc(hidden)]
    pub fn begin_change_of_flows(
        &mut self,
        id: ClassId,
        flows: FlowsConfig,
        now: Nanos,
    ) -> Result<(), TreeError> {
        let leaf = clamped(flows.leaf);
        let flows = FlowsConfig { leaf, ..flows };
        let other_kind = |wanted| Err(TreeError::OtherKind { class: id, wanted });
        let Body::Flows { node: at } = self.class(id)?.body else {
            return other_kind("a class of flows");
        };
        check_flows(&flows)?;
        if flows.algorithm != self.nodes[at as usize].order.algorithm() {
            return other_kind("in that order, which only another class of flows can have");
        }
        let mut left = usize::MAX;
        self.go_on_changing(id, &mut left, now);
        let Some(table) = &self.nodes[at as usize].flows else {
            return Ok(());
        };
        let old = table.config;
        if old == flows {
            return Ok(());
        }
        let mut meanwhile = old.room.or_more(flows.room);
        if self.keep_room(old.room, meanwhile).is_err() {
            meanwhile = flows.room;
            self.keep_needed(meanwhile, None, old.room)?;
        }
        let node = &mut self.nodes[at as usize];
        let Some(table) = &mut node.flows else {
            return Ok(());
        };
        table.config = FlowsConfig {
            room: meanwhile,
            aqm_floor: old.aqm_floor.or_more(flows.aqm_floor),
            ..flows
        };
        table.lower = old.leaf.room.least(leaf.room);
        table.roomy = old.roomy().min(flows.roomy());
        let management = (leaf.aqm, leaf.rate) != (old.leaf.aqm, old.leaf.rate);
        table.changing = Some(Changing {
            room: flows.room,
            aqm_floor: flows.aqm_floor,
            had: old.leaf.room,
            roomy: flows.roomy(),
            queues: management || (flows.weight, flows.ceiling) != (old.weight, old.ceiling),
            management,
            second_round: false,
            next: 0,
        });
        if old.leaf.limits != leaf.limits {
            for slot in 0..node.order.slots() {
                let child = node.order.child_mut(slot);
                if child.tag.kind == ChildKind::Flow && !child.has(flag::IDLE) {
                    child.relimit(old.leaf.limits, leaf.limits);
                }
            }
        }
        self.settle_room(id.number());
        Ok(())
    }

    /// Continues the change of a class of flows, examining no more than `left` flows, which are subtracted from it.
    /// Returns whether the change is complete. O(`left`).
    #[doc(hidden)]
    pub fn go_on_changing(&mut self, id: ClassId, left: &mut usize, now: Nanos) -> bool {
        let Ok(Body::Flows { node: at }) = self.class(id).map(|class| class.body) else {
            return true;
        };
        while let Some(mut changing) = self.changing(at) {
            let slots = self.nodes[at as usize].order.slots();
            while changing.next < slots {
                if *left == 0 {
                    self.set_changing(at, Some(changing));
                    return false;
                }
                *left -= 1;
                self.change_flow(at, changing, now);
                changing.next += 1;
            }
            self.end_round(id, at, changing);
        }
        true
    }

    fn changing(&self, at: u32) -> Option<Changing> {
        self.nodes[at as usize].flows.as_ref()?.changing
    }

    fn set_changing(&mut self, at: u32, changing: Option<Changing>) {
        if let Some(flows) = &mut self.nodes[at as usize].flows {
            flows.changing = changing;
        }
    }

    /// The change comes to the flow that is next.
    fn change_flow(&mut self, at: u32, changing: Changing, now: Nanos) {
        let node = &mut self.nodes[at as usize];
        let Some(flows) = &mut node.flows else { return };
        let slot = changing.next;
        let flow = node.order.child_mut(slot);
        if flow.tag.kind != ChildKind::Flow {
            return;
        }
        if changing.second_round {
            return flows.grant_room(flow);
        }
        if flow.has(flag::ROOMY) && flows.with_room > flows.roomy {
            flow.tag.flags &= !flag::ROOMY;
            flows.with_room -= 1;
        }
        if !flow.has(flag::IDLE) {
            let held = flow.queued(flows.config.leaf.limits);
            let own = flows.own_at_least(flow);
            flows.beyond.raise(slot, self.measure.beyond(held, own));
        }
        if changing.queues {
            let longest = Length::new(node.longest.get()).unwrap_or(Length::MAX);
            let FlowsConfig {
                weight,
                ceiling,
                leaf,
                ..
            } = flows.config;
            self.apply_to_child(at, slot, Share::new(weight, longest), longest);
            self.apply_to_queue(at, slot, ceiling, &leaf, changing.management, now);
        }
    }

    /// All flows were looked at once, or twice.
    fn end_round(&mut self, id: ClassId, at: u32, changing: Changing) {
        let Some(flows) = &mut self.nodes[at as usize].flows else {
            return;
        };
        let more = flows.with_room < changing.roomy;
        flows.changing = (!changing.second_round && more).then_some(Changing {
            second_round: true,
            next: 0,
            ..changing
        });
        if changing.second_round {
            return;
        }
        let had: Count = flows.config.room.count();
        flows.config.room = changing.room;
        flows.config.aqm_floor = changing.aqm_floor;
        (flows.lower, flows.roomy) = (flows.config.leaf.room, changing.roomy);
        self.kept = self.kept.minus(had).plus(changing.room.count());
        self.settle_room(id.number());
    }
}

impl Flows {
    /// Returns the own reservation of a flow.
    pub(super) fn own(&self, slot: u32, flow: &Child) -> Room {
        match (flow.has(flag::ROOMY), self.changing) {
            (false, _) => Room::NONE,
            (true, Some(changing)) if !changing.second_round && slot >= changing.next => {
                changing.had
            }
            (true, _) => self.config.leaf.room,
        }
    }

    /// Returns the reservation used in the bounds of a flow's content beyond its own: no more than its present
    /// reservation, nor than its new one.
    #[inline]
    pub(super) fn own_at_least(&self, flow: &Child) -> Room {
        match flow.has(flag::ROOMY) {
            true => self.lower,
            false => Room::NONE,
        }
    }
}
