//! Arrivals and departures of each flow of a class, counted on demand.
//!
//! The record of a flow has no space for counts: they are in a table next to the records, by slot, which exists only
//! while counting is enabled: 32 bytes a flow. Each report takes the counts and resets them, so it has the packets
//! since the one before. A flow keeps its slot as long as its digest has a flow, so that a walk by slots visits each
//! once, however many come and go meanwhile. Traffic of a flow that has expired since is in the counts of its class
//! alone.

use crate::packet::Count;
use crate::units::Length;
use alloc::vec::Vec;

use super::child::{ChildKind, flag};
use super::{Body, ClassId, Tree};

/// The packets of a flow since they were last reported.
///
/// ```
/// use fairlane_core::sched::Algorithm;
/// use fairlane_core::tree::{ClassConfig, ClassId, FlowCount, FlowsConfig, Tree};
/// use fairlane_core::{Length, Nanos, SchedulerLimits, Weight};
///
/// let mut tree = Tree::new(Algorithm::Drr, None, SchedulerLimits::default());
/// let class = ClassConfig::new(Weight::ONE, Length::MAX);
/// let class = tree.add_flows(ClassId::ROOT, class, FlowsConfig::new(Algorithm::Drr))?;
/// tree.tally_flows(class, Some(Vec::new()));
/// tree.enqueue(class, 7, Length::MAX, "a packet", Nanos::ZERO)?;
/// tree.take_tally(class, &mut 0, &mut 9, |flow, FlowCount { offered, sent }| {
///     assert_eq!((flow, offered.packets, sent.packets), (Some(7), 1, 0));
/// });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[doc(hidden)]
pub struct FlowCount {
    /// Arrivals, whether they were queued or dropped.
    pub offered: Count,
    /// Departures.
    pub sent: Count,
}

/// The counts of each slot since they were last reported.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    /// Empty while counting is off. It grows as slots do, from those that the first walk reached.
    counts: Vec<FlowCount>,
    on: bool,
}

impl Tally {
    /// A packet was sent from a slot.
    #[inline]
    pub(super) fn add(&mut self, slot: u32, len: Length) {
        if let Some(count) = self.counts.get_mut(slot as usize) {
            count.sent.add(len);
        }
    }

    /// A packet arrived for a slot, whether it is queued or dropped.
    #[inline]
    pub(super) fn offer(&mut self, slot: u32, len: Length) {
        if let Some(count) = self.counts.get_mut(slot as usize) {
            count.offered.add(len);
        }
    }

    /// Takes the counts of a slot, which start from zero again; this also begins the counting of the first slot that
    /// was not counted.
    pub(super) fn take(&mut self, slot: u32) -> FlowCount {
        match self.counts.get_mut(slot as usize) {
            Some(count) => core::mem::take(count),
            None => {
                if self.on && self.counts.len() == slot as usize {
                    self.counts.push(FlowCount::default());
                }
                FlowCount::default()
            }
        }
    }

    /// Returns whether it counts only existing slots, and no more than the class sent.
    pub(super) fn is_sound(&self, slots: u32, sent: Count) -> bool {
        let all = self
            .counts
            .iter()
            .map(|count| count.sent)
            .fold(Count::default(), Count::plus);
        (self.on || self.counts.is_empty())
            && self.counts.len() <= slots as usize
            && all.packets <= sent.packets
            && all.bytes <= sent.bytes
    }
}

impl<P> Tree<P> {
    /// Starts counting the arrivals and departures of each flow of a class, in `table`, which is cleared, and grows
    /// with the flows where it is too small; or stops it. The first walk of [`take_tally`](Self::take_tally) starts the
    /// counts of each flow that it reaches. Returns the former table, or `table` if there is no such class of flows, so
    /// that the caller can free it when it has time. O(1).
    #[doc(hidden)]
    pub fn tally_flows(&mut self, class: ClassId, table: Option<Vec<FlowCount>>) -> Vec<FlowCount> {
        let on = table.is_some();
        let mut counts = table.unwrap_or_default();
        counts.clear();
        match self.tally(class) {
            Some(tally) => core::mem::replace(tally, Tally { counts, on }).counts,
            None => counts,
        }
    }

    /// Returns whether the traffic of each flow of this class is counted.
    #[doc(hidden)]
    pub fn is_tallied(&self, class: ClassId) -> bool {
        let Ok(Body::Flows { node }) = self.class(class).map(|class| class.body) else {
            return false;
        };
        let flows = self.nodes[node as usize].flows.as_ref();
        flows.is_some_and(|flows| flows.tally.on)
    }

    /// Reports the arrivals and departures of each flow since its last report, by its digest; of the common flow of
    /// those that found no space, without one. Flows without packets are skipped. Examines no more than `left` flows,
    /// which are subtracted from it; `from` is 0 at first and holds the position to continue from. Returns whether it
    /// reached the end. O(`left`).
    ///
    /// A flow that has packets all the time is reported exactly once in a walk, whatever flows come and go in between.
    #[doc(hidden)]
    pub fn take_tally(
        &mut self,
        class: ClassId,
        from: &mut u32,
        left: &mut usize,
        mut tell: impl FnMut(Option<u64>, FlowCount),
    ) -> bool {
        let Ok(Body::Flows { node: at }) = self.class(class).map(|class| class.body) else {
            return true;
        };
        let node = &mut self.nodes[at as usize];
        let Some(flows) = node.flows.as_mut().filter(|flows| flows.tally.on) else {
            return true;
        };
        while *from < node.order.slots() {
            if *left == 0 {
                return false;
            }
            *left -= 1;
            let count = flows.tally.take(*from);
            if count != FlowCount::default() {
                let flow = node.order.child(*from);
                if flow.tag.kind == ChildKind::Flow {
                    tell((!flow.has(flag::COMMON)).then(|| flow.digest()), count);
                }
            }
            *from += 1;
        }
        true
    }

    fn tally(&mut self, class: ClassId) -> Option<&mut Tally> {
        let Ok(Body::Flows { node }) = self.class(class).map(|class| class.body) else {
            return None;
        };
        let flows = self.nodes[node as usize].flows.as_mut()?;
        Some(&mut flows.tally)
    }
}
