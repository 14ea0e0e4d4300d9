//! A walk over all flows in small steps between two rounds: the counts of each since the last walk, and flow names.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fairlane_classify::Per;
use fairlane_core::Nanos;
use fairlane_core::tree::{ClassId, FlowCount};
use fairlane_runtime::bridge::Side;

use crate::bridge::{Shaped, SiteBridge};
use crate::names::Naming;
use crate::steps::STEP;

/// A flow and its packets; those that offered more are more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Talker {
    pub offered_bytes: u64,
    pub bytes: u64,
    pub offered_packets: u64,
    pub packets: u64,
    /// Its digest; `None` for the common flow of those beyond the table's limit.
    pub flow: Option<u64>,
}

/// The flows with the highest offered rate, in preallocated space.
pub struct Top {
    pub most: usize,
    /// The lowest of them first.
    heap: BinaryHeap<Reverse<Talker>>,
}

impl Top {
    /// Creates a list of up to `most` flows, at least one.
    pub fn new(most: usize) -> Top {
        Top {
            most,
            heap: BinaryHeap::with_capacity(most),
        }
    }

    /// O(log most).
    fn push(&mut self, talker: Talker) {
        if self.heap.len() < self.most {
            self.heap.push(Reverse(talker));
        } else if let Some(mut least) = self.heap.peek_mut()
            && talker > least.0
        {
            least.0 = talker;
        }
    }

    /// Returns all of them, in no order.
    pub fn into_talkers(self) -> impl Iterator<Item = Talker> {
        self.heap.into_iter().map(|Reverse(talker)| talker)
    }
}

/// A class of flows on a walk.
pub struct ClassWalk {
    pub place: usize,
    pub id: ClassId,
    /// The fields that distinguish its flows.
    pub per: Per,
    /// The table to count in, if that begins with this walk; afterwards the former table.
    table: Option<Vec<FlowCount>>,
    begun: bool,
    /// Whether its flows were counted.
    pub counted: bool,
    /// When the walk reached it.
    pub at: Nanos,
    /// Bytes that the class had sent by then.
    pub sent: u64,
    pub top: Top,
}

impl ClassWalk {
    /// Creates a walk over the class with this place and number; `top` holds the flows to report.
    pub fn new(
        (place, id): (usize, ClassId),
        per: Per,
        table: Option<Vec<FlowCount>>,
        top: Top,
    ) -> ClassWalk {
        ClassWalk {
            place,
            id,
            per,
            table,
            begun: false,
            counted: false,
            at: Nanos::ZERO,
            sent: 0,
            top,
        }
    }

    fn start(&mut self, queue: &mut Shaped, last: bool, now: Nanos) {
        self.begun = true;
        let classes = queue.classes_mut();
        if last || self.table.is_some() {
            let former = classes.tally_flows(self.id, self.table.take());
            self.table = Some(former);
        }
        self.counted = classes.is_tallied(self.id);
        self.at = now;
        let stats = classes.own_stats(self.id);
        self.sent = stats.map_or(0, |stats| stats.sent.bytes);
    }
}

/// The classes of flows of one link.
#[derive(Default)]
pub struct LinkWalk {
    pub classes: Vec<ClassWalk>,
    /// Names to note from the end of this walk on; afterwards those noted since the last one.
    pub naming: Option<Box<Naming>>,
    next: usize,
    /// In the class that is next.
    from: u32,
    done: bool,
}

impl LinkWalk {
    pub fn new(classes: Vec<ClassWalk>, naming: Option<Box<Naming>>) -> LinkWalk {
        LinkWalk {
            classes,
            naming,
            ..LinkWalk::default()
        }
    }

    /// Handles at most `left` classes and flows, and subtracts their number from it. Returns whether it is done.
    pub fn step(&mut self, queue: &mut Shaped, left: &mut usize, last: bool, now: Nanos) -> bool {
        while let Some(class) = self.classes.get_mut(self.next) {
            if *left == 0 {
                return false;
            }
            if !class.begun {
                *left -= 1;
                class.start(queue, last, now);
            }
            let top = &mut class.top;
            let tell = |flow, FlowCount { offered, sent }: FlowCount| {
                top.push(Talker {
                    offered_bytes: offered.bytes,
                    bytes: sent.bytes,
                    offered_packets: offered.packets,
                    packets: sent.packets,
                    flow,
                });
            };
            let classes = queue.classes_mut();
            if !classes.take_tally(class.id, &mut self.from, left, tell) {
                return false;
            }
            self.next += 1;
            self.from = 0;
        }
        if !self.done {
            self.done = true;
            std::mem::swap(&mut queue.classifier_mut().naming, &mut self.naming);
        }
        true
    }
}

/// A walk over all flows of both links.
pub struct Walking {
    /// By side.
    pub links: [LinkWalk; 2],
    /// Counting and naming end with this walk.
    pub last: bool,
}

impl Walking {
    /// Continues the walk. Returns whether it is done.
    pub fn step(&mut self, bridge: &mut SiteBridge, now: Nanos) -> bool {
        let mut left = STEP;
        Side::BOTH.into_iter().all(|side| {
            let link = &mut self.links[side as usize];
            match bridge.arbiter_mut(side) {
                Some(arbiter) => link.step(arbiter.queue_mut(), &mut left, self.last, now),
                None => true,
            }
        })
    }
}
