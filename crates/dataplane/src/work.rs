//! Orders of the control thread to the forwarding thread, carried out in small steps between rounds.
//!
//! Everything that can be prepared comes with the order, and all remains go back with it, so nothing is built or freed
//! here. A step handles at most [`STEP`] classes, flows or packets, however many there are; a class that is added,
//! removed or changed counts for `CLASS` and a packet that moves for `MOVED`. There is one exception: new limits
//! for the flows of a class apply to all backlogged flows at once (`core::tree::Tree::begin_change_of_flows`).

#[cfg(test)]
mod tests;

use std::sync::Arc;

use fairlane_config::Link;
use fairlane_core::tree::{ClassId, ClassQueue, ClassStats, Discarded, Remains};
use fairlane_core::{Count, Discipline, DisciplineError, Nanos};
use fairlane_io::Backend;
use fairlane_runtime::bridge::{LaneStats, RoundStats, Side};
use fairlane_runtime::{Arbiter, FromPort, Spans, Straight};

use crate::bridge::{Shaped, SiteBridge};
use crate::classifier::FrameClassifier;
use crate::device::{Losses, opener::short_queue};
use crate::frame::{Frame, Received};
use crate::steps::{STEP, StepKind};
use crate::waits::Waits;

/// Cost of adding, removing or changing a class, in units of a step: its place among others changes, too.
const CLASS: usize = 8;

/// Cost of moving a packet: it is classified and queued again.
const MOVED: usize = 2;

/// Cost of counting a class, in units of a step: its state spans several cache lines.
const COUNTED: usize = 4;

/// The counts of one link.
#[derive(Default)]
pub struct LinkCount {
    /// The numbers of its classes, by place.
    pub ids: Vec<ClassId>,
    /// The counts of each class without its descendants, by place. Has the length of `ids`: the first write to fresh
    /// memory is costly for the writing thread.
    pub classes: Vec<ClassStats>,
    /// How many of the classes were counted.
    pub counted: usize,
    pub malformed: u64,
    pub unmatched: u64,
    /// Frames of protocols that no filter looks into, and the type of the last one.
    pub opaque: (u64, u16),
    pub queued: u32,
}

/// The counts of one device and of its egress.
#[derive(Clone, Debug, Default)]
pub struct DeviceCount {
    /// How frames are exchanged with it, if that has changed or may.
    pub backend: Option<Arc<str>>,
    pub losses: Losses,
    pub refused: u64,
    pub lane: LaneStats,
    pub most_in_flight: u64,
    /// Of the frames that arrive there, where workers receive them.
    pub waits: Option<Waits>,
    /// How long frames have waited with its transmit workers, if any.
    pub transmit_waits: Option<Waits>,
    /// Whether its egress is shaped now.
    pub shaped: bool,
}

/// Timing of the forwarding thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThreadCount {
    pub rounds: RoundStats,
    /// Looks at the mailboxes of processes.
    pub looks: Spans,
}

impl ThreadCount {
    fn of(bridge: &SiteBridge) -> ThreadCount {
        let arbiters = Side::BOTH
            .into_iter()
            .filter_map(|side| bridge.arbiter(side));
        let mut looks = arbiters.map(|arbiter| arbiter.stats().looks);
        ThreadCount {
            rounds: bridge.rounds(),
            // Only one of the arbiters has attached processes.
            looks: looks.find(|looks| looks.count() > 0).unwrap_or_default(),
        }
    }
}

/// Counts, by side.
#[derive(Default)]
pub struct Counting {
    pub thread: ThreadCount,
    pub links: [LinkCount; 2],
    pub devices: [DeviceCount; 2],
    begun: bool,
}

impl Counting {
    /// Creates the order to count the classes with these numbers.
    pub fn of(ids: [Vec<ClassId>; 2]) -> Counting {
        Counting {
            links: ids.map(|ids| LinkCount {
                classes: vec![ClassStats::default(); ids.len()],
                ids,
                ..LinkCount::default()
            }),
            ..Counting::default()
        }
    }

    /// Counts a part of the classes. Returns whether it is done.
    pub fn step(&mut self, bridge: &mut SiteBridge) -> bool {
        if !self.begun {
            self.begun = true;
            self.thread = ThreadCount::of(bridge);
            for side in Side::BOTH {
                // A device that is gone has no further losses to report.
                let losses = bridge.device_mut(side).losses().unwrap_or_default();
                let mut lane = bridge.stats(side);
                lane.transmitted = lane.transmitted.saturating_sub(losses.unsent);
                self.devices[side as usize] = DeviceCount {
                    backend: bridge.device(side).backend_now(),
                    losses,
                    // Includes frames dropped while the interface was absent.
                    refused: bridge.device(side).refused(),
                    lane,
                    most_in_flight: bridge.device(side).most_in_flight(),
                    waits: bridge.device(side).receive_waits(),
                    transmit_waits: bridge.device(side).transmit_waits(),
                    shaped: bridge.is_shaped(side),
                };
            }
        }
        let mut left = STEP / COUNTED;
        for side in Side::BOTH {
            let count = &mut self.links[side as usize];
            let Some(arbiter) = bridge.arbiter(side) else {
                continue;
            };
            if !count.step(arbiter.queue(), &mut left) {
                return false;
            }
        }
        true
    }
}

impl LinkCount {
    /// Counts at most `left` classes, and subtracts their number from it. Returns whether it is done.
    pub fn step(&mut self, queue: &Shaped, left: &mut usize) -> bool {
        while let Some(&id) = self.ids.get(self.counted) {
            if *left == 0 {
                return false;
            }
            *left -= 1;
            let stats = queue.classes().own_stats(id).unwrap_or_default();
            self.classes[self.counted] = stats;
            self.counted += 1;
        }
        let filters = &queue.classifier().filters;
        (self.malformed, self.unmatched) = (filters.malformed(), filters.unmatched());
        self.opaque = filters.opaque();
        self.queued = queue.classes().len();
        true
    }
}

/// Classes to be added, before packets are sent to them.
pub struct Adding {
    pub side: Side,
    pub link: Arc<Link>,
    /// Places of the classes to be added.
    pub added: Vec<usize>,
    /// By place: the numbers of existing classes, and those of the others once they are added.
    pub ids: Vec<ClassId>,
    /// Why it went no further.
    pub error: Option<DisciplineError>,
    at: usize,
}

impl Adding {
    pub fn new(side: Side, link: Arc<Link>, added: Vec<usize>, ids: Vec<ClassId>) -> Adding {
        Adding {
            side,
            link,
            added,
            ids,
            error: None,
            at: 0,
        }
    }

    /// Adds a few of the classes. Returns whether it is done.
    pub fn step(&mut self, queue: &mut Shaped) -> bool {
        for _ in 0..STEP / CLASS {
            let Some(&place) = self.added.get(self.at) else {
                return true;
            };
            let parent = self.link.classes[place].parent;
            let parent = parent.map_or(ClassId::ROOT, |parent| self.ids[parent]);
            match self.link.add_class(queue.classes_mut(), place, parent) {
                Ok(id) => self.ids[place] = id,
                Err(error) => {
                    self.error = Some(error);
                    return true;
                }
            }
            self.at += 1;
        }
        false
    }
}

/// Classes to be removed once they have drained.
pub struct Draining {
    pub side: Side,
    /// At this time they are removed with their remaining backlog.
    pub until: Nanos,
    ids: Vec<ClassId>,
    /// Packets that had arrived in each class at its first poll.
    came: Vec<u64>,
    /// How many of them, from the first, are known to have sent those.
    drained: usize,
}

impl Draining {
    pub fn new(side: Side, ids: Vec<ClassId>, until: Nanos) -> Draining {
        Draining {
            side,
            until,
            came: Vec::with_capacity(ids.len()),
            ids,
            drained: 0,
        }
    }

    /// Whether the backlog of each class at its first poll has left: at least as many packets were sent.
    pub fn is_done(&self) -> bool {
        self.drained == self.ids.len()
    }

    /// Polls a few of the classes. Returns whether all were polled.
    pub fn step(&mut self, queue: &Shaped) -> bool {
        let stats = |id| queue.classes().own_stats(id).unwrap_or_default();
        for _ in 0..STEP / COUNTED {
            if let Some(&id) = self.ids.get(self.came.len()) {
                self.came.push(stats(id).accepted.packets);
                continue;
            }
            let Some(&id) = self.ids.get(self.drained) else {
                return true;
            };
            let ClassStats {
                accepted, queued, ..
            } = stats(id);
            if accepted.minus(queued).packets < self.came[self.drained] {
                return true;
            }
            self.drained += 1;
        }
        false
    }
}

/// A class that moves below another parent.
pub struct Moved {
    /// In the new link.
    pub place: usize,
    pub id: ClassId,
    pub parent: ClassId,
}

/// A class that is removed, or whose queues are rebuilt.
pub struct Gone {
    pub id: ClassId,
    /// In the former link.
    pub place: usize,
    /// The class that takes its packets in the new configuration; without one they are classified again.
    pub to: Option<usize>,
    /// Packets that it handed over.
    pub moved: Count,
    /// Its counts when it was removed.
    pub stats: ClassStats,
    /// Its tables, which go back to be freed.
    pub remains: Option<Remains>,
}

/// Keeps the transmit queue as short as the link's rate demands, or as long as it may be while nothing is shaped.
pub fn keep_short<D: Backend<Tx = Frame>>(arbiter: &mut Arbiter<Shaped, Straight<D>>) {
    let bytes = match arbiter.is_open() {
        true => u64::MAX,
        false => short_queue(arbiter.link().rate),
    };
    arbiter.backend_mut().keep_short(bytes);
}

/// Going on as another link: classes that move or change, filters, packets that move, classes that go.
pub struct Taking {
    pub side: Side,
    pub link: Arc<Link>,
    /// Parents before their children.
    pub moved: Vec<Moved>,
    /// Places and numbers of the classes whose parameters change.
    pub changed: Vec<(usize, ClassId)>,
    /// The new filters; afterwards the former ones. `None` if filters stay the same.
    pub classifier: Option<FrameClassifier>,
    /// New queues for all classes, if they are rebuilt; afterwards the former ones.
    pub anew: Option<Discipline<FromPort<Received>>>,
    /// Children before their parents.
    pub gone: Vec<Gone>,
    /// Why a change was not made. The others were.
    pub error: Option<DisciplineError>,
    phase: Phase,
    at: usize,
    /// The class that is next has begun to change.
    begun: bool,
    from: u32,
    taken: Vec<Discarded<FromPort<Received>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Moves classes below other parents.
    Hang,
    Change,
    Exchange,
    Move,
    GoOn,
    Remove,
    Done,
}

impl Taking {
    pub fn new(
        side: Side,
        link: Arc<Link>,
        changed: Vec<(usize, ClassId)>,
        classifier: Option<FrameClassifier>,
        gone: Vec<Gone>,
    ) -> Taking {
        Taking {
            side,
            link,
            moved: Vec::new(),
            changed,
            classifier,
            anew: None,
            gone,
            error: None,
            phase: Phase::Hang,
            at: 0,
            begun: false,
            from: 0,
            taken: Vec::with_capacity(STEP),
        }
    }

    /// Returns the kind of work that its next step begins with.
    pub fn kind(&self) -> StepKind {
        match self.phase {
            Phase::Hang | Phase::Change => StepKind::Change,
            Phase::Exchange | Phase::Done => StepKind::Exchange,
            Phase::Move | Phase::GoOn => StepKind::Move,
            Phase::Remove => StepKind::Remove,
        }
    }

    /// Applies a part of it. Returns whether it is done.
    pub fn step<D: Backend<Tx = Frame>>(
        &mut self,
        arbiter: &mut Arbiter<Shaped, Straight<D>>,
        now: Nanos,
    ) -> bool {
        let mut left = STEP;
        while left > 0 && self.phase != Phase::Done {
            let queue = arbiter.queue_mut();
            let phase_done = match self.phase {
                Phase::Hang => self.hang(queue, &mut left, now),
                Phase::Change => self.change(queue, &mut left, now),
                Phase::Exchange => {
                    self.exchange(queue);
                    arbiter.change_rate(self.link.rate, now);
                    keep_short(arbiter);
                    true
                }
                Phase::Move => self.relocate(queue, &mut left, now),
                Phase::GoOn => queue.go_on(std::mem::take(&mut left), now),
                Phase::Remove => self.remove(queue, &mut left),
                Phase::Done => false,
            };
            if phase_done {
                self.at = 0;
                self.phase = match self.phase {
                    Phase::Hang => Phase::Change,
                    Phase::Change => Phase::Exchange,
                    Phase::Exchange if self.classifier.is_none() => Phase::Done,
                    Phase::Exchange => Phase::Move,
                    Phase::Move => Phase::GoOn,
                    // Former queues go back whole.
                    Phase::GoOn if self.anew.is_some() => Phase::Done,
                    Phase::GoOn => Phase::Remove,
                    Phase::Remove | Phase::Done => Phase::Done,
                };
            }
        }
        self.phase == Phase::Done
    }

    fn hang(&mut self, queue: &mut Shaped, left: &mut usize, now: Nanos) -> bool {
        while let Some(&Moved { place, id, parent }) = self.moved.get(self.at) {
            if *left == 0 {
                return false;
            }
            *left = left.saturating_sub(CLASS);
            let classes = queue.classes_mut();
            if let Err(error) = self.link.move_class(classes, place, id, parent, now) {
                self.error = Some(error);
            }
            self.at += 1;
        }
        true
    }

    fn change(&mut self, queue: &mut Shaped, left: &mut usize, now: Nanos) -> bool {
        while let Some(&(place, id)) = self.changed.get(self.at) {
            if *left == 0 {
                return false;
            }
            if !self.begun {
                *left = left.saturating_sub(CLASS);
                self.begun = true;
                if let Err(error) = self.link.change_class(queue.classes_mut(), place, id, now) {
                    self.error = Some(error);
                }
            }
            if !queue.classes_mut().go_on_changing(id, left, now) {
                return false;
            }
            self.begun = false;
            self.at += 1;
        }
        true
    }

    /// From here on the new filters apply; no packet leaves until those that move are in their new queues.
    fn exchange(&mut self, queue: &mut Shaped) {
        let Some(classifier) = &mut self.classifier else {
            return;
        };
        std::mem::swap(queue.classifier_mut(), classifier);
        queue.classifier_mut().filters.resume(&classifier.filters);
        let mut watch = classifier.watch.take();
        // The numbers of classes that go are others' later.
        if self.anew.is_some() || !self.gone.is_empty() {
            watch.iter_mut().for_each(|watch| watch.renumbered());
        }
        queue.classifier_mut().watch = watch;
        queue.classifier_mut().naming = classifier.naming.take();
        // It has the former filters only.
        if let Some(early) = classifier.early() {
            early.stop();
        }
        if let Some(anew) = &mut self.anew {
            std::mem::swap(queue.classes_mut(), anew);
        }
        queue.hold();
    }

    fn relocate(&mut self, queue: &mut Shaped, left: &mut usize, now: Nanos) -> bool {
        while let Some(gone) = self.gone.get_mut(self.at) {
            if *left == 0 {
                return false;
            }
            let taken = &mut self.taken;
            let former = match &mut self.anew {
                Some(former) => former,
                None => queue.classes_mut(),
            };
            let most = left.div_ceil(MOVED);
            let mut rest = most;
            let empty = former.take_out(gone.id, &mut self.from, &mut rest, now, |packet| {
                taken.push(packet);
            });
            // Each class counts, also an empty one.
            let looked_at = (most - rest) + (MOVED - 1) * taken.len();
            *left = left.saturating_sub(looked_at.max(MOVED));
            for packet in taken.drain(..) {
                gone.moved.packets += 1;
                gone.moved.bytes += u64::from(packet.len.get());
                let target =
                    |classifier: &mut FrameClassifier, _, received: &Received| match gone.to {
                        Some(place) => classifier.within(place, received),
                        None => classifier.by_filters(received),
                    };
                queue.adopt(packet, target, now);
            }
            if empty {
                self.at += 1;
                self.from = 0;
            }
        }
        true
    }

    fn remove(&mut self, queue: &mut Shaped, left: &mut usize) -> bool {
        while let Some(gone) = self.gone.get_mut(self.at) {
            if *left == 0 {
                return false;
            }
            // It is empty, since its packets have moved.
            match (queue.classes_mut()).go_on_removing(gone.id, left, |_| {}) {
                Ok(Some(removed)) => (gone.stats, gone.remains) = (removed.stats, removed.remains),
                Ok(None) => return false,
                Err(error) => self.error = Some(error),
            }
            *left = left.saturating_sub(CLASS);
            self.at += 1;
        }
        true
    }
}

/// Drops the backlog of some classes; packets that arrive meanwhile are queued separately.
pub struct Flushing {
    pub side: Side,
    ids: Vec<ClassId>,
    /// The dropped packets.
    pub gone: Count,
    at: usize,
    from: u32,
    taken: Vec<Discarded<FromPort<Received>>>,
}

impl Flushing {
    pub fn new(side: Side, ids: Vec<ClassId>) -> Flushing {
        Flushing {
            side,
            ids,
            gone: Count::default(),
            at: 0,
            from: 0,
            taken: Vec::with_capacity(STEP),
        }
    }

    /// Drops a part of the backlog. Returns whether it is done.
    pub fn step<D: Backend<Tx = Frame>>(
        &mut self,
        arbiter: &mut Arbiter<Shaped, Straight<D>>,
        now: Nanos,
    ) -> bool {
        let mut left = STEP;
        while let Some(&id) = self.ids.get(self.at) {
            arbiter.queue_mut().hold();
            if left == 0 {
                return false;
            }
            let (before, taken, from) = (left, &mut self.taken, &mut self.from);
            let classes = arbiter.queue_mut().classes_mut();
            let empty = classes.take_out(id, from, &mut left, now, |gone| taken.push(gone));
            // Each class counts, also an empty one.
            left = left.min(before - 1);
            for gone in self.taken.drain(..) {
                self.gone.add(gone.len);
                let port = arbiter.queue_mut().discard(gone);
                arbiter.tell_discarded(port);
            }
            if empty {
                (self.at, self.from) = (self.at + 1, 0);
            }
        }
        left > 0 && arbiter.queue_mut().go_on(left, now)
    }
}
