//! A model of a class tree: plain queues, and ceilings in exact numbers.

mod bucket;
mod operations;

use std::collections::{BTreeMap, VecDeque};

use fairlane_core::aqm::AqmConfig;
use fairlane_core::room::Room;
use fairlane_core::sched::Algorithm;
use fairlane_core::tree::{
    ClassConfig, ClassId, ClassStats, Discarded, LeafConfig, Reason, Tree, TreeError,
};
use fairlane_core::{Count, Length, Limits, Nanos, SchedulerLimits, Weight};
use fairlane_core::{Dequeue, Rejection};

use bucket::{Bucket, ROUNDED};
use operations::plain;
pub(crate) use operations::{Operation, Plain, Tag, operation};
use proptest::prelude::*;

impl Plain {
    /// Returns the part of it that counts: of a leaf, no more than its limits.
    fn own(self, body: &Body) -> Room {
        match body {
            Body::Flows(_) => self.room(),
            Body::Leaf(_) => Room {
                packets: self.room.0.min(self.limits.0),
                bytes: self.room.1.min(self.limits.1),
            },
            Body::Inner(_) => Room::NONE,
        }
    }
}

#[derive(Clone, Debug)]
enum Body {
    Inner(Algorithm),
    Leaf(VecDeque<(Length, Tag)>),
    /// By digest.
    Flows(BTreeMap<u64, VecDeque<(Length, Tag)>>),
}

#[derive(Clone, Debug)]
struct Class {
    parent: Option<ClassId>,
    plain: Plain,
    bucket: Option<Bucket>,
    /// Its flows have ceilings.
    capped_flows: bool,
    body: Body,
    accepted: Count,
    sent: Count,
    dropped: Count,
    discarded: Count,
    marked: u64,
    overflowed: bool,
}

fn plus(count: &mut Count, other: Count) {
    count.packets += other.packets;
    count.bytes += other.bytes;
}

/// Returns whether a queue with these limits has no room for another packet.
fn is_full(queue: Option<&VecDeque<(Length, Tag)>>, limits: Limits, len: Length) -> bool {
    let most = |limit: u32| u64::from(limit.min(i32::MAX as u32));
    let lengths = queue.into_iter().flatten().map(|(len, _)| len);
    let bytes: u64 = lengths.map(|len| u64::from(len.get())).sum();
    let packets = queue.map_or(0, |queue| queue.len() as u64);
    packets >= most(limits.packets) || bytes + u64::from(len.get()) > most(limits.bytes)
}

fn one(len: Length) -> Count {
    Count {
        packets: 1,
        bytes: len.get().into(),
    }
}

/// The tree, and the model of its expected content.
pub(crate) struct Pair {
    real: Tree<Tag>,
    classes: BTreeMap<ClassId, Class>,
    ids: Vec<ClassId>,
    now: u64,
    next: u64,
    limits: SchedulerLimits,
    removed: Class,
}

impl Pair {
    pub(crate) fn new(root: Plain, limits: SchedulerLimits) -> Pair {
        let real = Tree::new(root.algorithm(), root.ceiling(), limits).marking();
        let class = |plain: Plain, body| Class {
            parent: None,
            plain,
            bucket: plain.ceiling().map(|ceiling| Bucket::full(ceiling, 0)),
            capped_flows: false,
            body,
            accepted: Count::default(),
            sent: Count::default(),
            dropped: Count::default(),
            discarded: Count::default(),
            marked: 0,
            overflowed: false,
        };
        let root = Plain {
            max_length: 65_535,
            ..root
        };
        Pair {
            real,
            classes: BTreeMap::from([(ClassId::ROOT, class(root, Body::Inner(root.algorithm())))]),
            ids: vec![ClassId::ROOT],
            now: 0,
            next: 0,
            limits,
            removed: class(root, Body::Inner(Algorithm::Fifo)),
        }
    }

    fn pick(&self, number: usize) -> ClassId {
        self.ids[number % self.ids.len()]
    }

    /// Returns the largest delay of a release compared with the exact time.
    fn rounded(&self) -> u64 {
        let buckets = self
            .classes
            .values()
            .filter_map(|class| class.bucket.as_ref());
        buckets
            .map(|bucket| bucket.rounded)
            .max()
            .unwrap_or(ROUNDED)
    }

    fn path(&self, id: ClassId) -> Vec<ClassId> {
        let mut path = vec![id];
        while let Some(parent) = self.classes[path.last().unwrap()].parent {
            path.push(parent);
        }
        path
    }

    fn longest(&self, id: ClassId) -> u32 {
        let path = self.path(id);
        let lengths = path.iter().map(|id| self.classes[id].plain.max_length);
        lengths.min().unwrap()
    }

    fn queued(&self) -> Count {
        let mut count = Count::default();
        for class in self.classes.values() {
            plus(&mut count, queued(class));
        }
        count
    }

    /// Returns whether any class may send at a time, by the ceilings of classes; those of flows are not modelled.
    fn somebody_may_send(&self, now: u64) -> bool {
        self.classes.iter().any(|(&id, class)| {
            let exact = match &class.body {
                Body::Flows(_) => !class.capped_flows,
                _ => true,
            };
            let free = |id: &ClassId| match &self.classes[id].bucket {
                Some(bucket) => bucket.may_send(self.longest(*id), now),
                None => true,
            };
            exact && queued(class).packets > 0 && self.path(id).iter().all(free)
        })
    }

    fn add(&mut self, parent: usize, plain: Plain, body: Body) {
        if self.ids.len() >= 30 {
            return;
        }
        let parent = self.pick(parent);
        let outcome = match &body {
            Body::Inner(algorithm) => self.real.add_inner(parent, plain.class(), *algorithm),
            Body::Leaf(_) => self.real.add_leaf(parent, plain.class(), plain.leaf()),
            Body::Flows(_) => self.real.add_flows(parent, plain.class(), plain.flows()),
        };
        let id = match outcome {
            Ok(id) => id,
            Err(TreeError::NotInner(refused)) => {
                assert_eq!(refused, parent);
                return assert!(!matches!(self.classes[&parent].body, Body::Inner(_)));
            }
            Err(TreeError::Unfit { .. }) => {
                let follows = match (&self.classes[&parent].body, &body) {
                    (Body::Inner(algorithm), _) if algorithm.follows_packets() => true,
                    (_, Body::Flows(_)) => plain.algorithm().follows_packets(),
                    _ => false,
                };
                return assert!(follows);
            }
            Err(TreeError::Room { .. }) => {
                return assert!(!self.can_keep(plain.own(&body), Room::NONE));
            }
            Err(other) => panic!("{other}"),
        };
        assert!(self.can_keep(plain.own(&body), Room::NONE));
        let class = Class {
            parent: Some(parent),
            plain,
            bucket: plain
                .ceiling()
                .map(|ceiling| Bucket::full(ceiling, self.now)),
            capped_flows: plain.flows().ceiling.is_some(),
            body,
            ..self.empty()
        };
        assert!(self.classes.insert(id, class).is_none(), "{id} was in use");
        self.ids.push(id);
    }

    fn empty(&self) -> Class {
        Class {
            accepted: Count::default(),
            sent: Count::default(),
            dropped: Count::default(),
            discarded: Count::default(),
            marked: 0,
            overflowed: false,
            ..self.removed.clone()
        }
    }

    fn enqueue(&mut self, id: ClassId, flow: u64, len: Length, capable: bool) {
        let tag = Tag {
            number: self.next,
            capable,
            marked: 0,
        };
        self.next += 1;
        let mut gone = Vec::new();
        let now = Nanos(self.now);
        let outcome = self
            .real
            .offer(id, flow, len, tag, now, |one| gone.push(one));
        for one in gone {
            self.give_way(id, len, one);
        }
        let total = self.queued();
        let tree_full = total.packets >= u64::from(self.limits.packets)
            || total.bytes + u64::from(len.get()) > self.limits.bytes;
        let Some(class) = self.classes.get(&id) else {
            let rejected = outcome.expect_err("there is no such class");
            assert_eq!(rejected.reason, Rejection::Unknown);
            let root = self.classes.get_mut(&ClassId::ROOT).unwrap();
            return plus(&mut root.dropped, one(len));
        };
        let longest = self.longest(id);
        let leaf = class.plain.leaf();
        let beyond = (self.beyond(id, Some(len)), self.most_beyond());
        let full = |queue| is_full(queue, leaf.limits, len);
        let (queue_full, no_queue) = match &class.body {
            Body::Inner(_) => (false, true),
            Body::Leaf(queue) => (full(Some(queue)), false),
            Body::Flows(flows) => (full(flows.get(&flow)), false),
        };
        let red = matches!(leaf.aqm, AqmConfig::Red(_));
        let class = self.classes.get_mut(&id).unwrap();
        match outcome {
            Ok(()) => {
                assert!(
                    !no_queue && !tree_full && len.get() <= longest,
                    "accepted {len}"
                );
                match &mut class.body {
                    Body::Leaf(queue) => {
                        assert!(!queue_full);
                        queue.push_back((len, tag));
                    }
                    Body::Flows(flows) => flows.entry(flow).or_default().push_back((len, tag)),
                    Body::Inner(_) => unreachable!(),
                }
                plus(&mut class.accepted, one(len));
            }
            Err(rejected) => {
                assert_eq!(rejected.payload, tag, "it comes back untouched");
                match rejected.reason {
                    Rejection::Unknown => panic!("{id} exists"),
                    Rejection::NoQueue => assert!(no_queue),
                    Rejection::TooLong { max } => {
                        assert!(max.get() == longest && len > max);
                    }
                    // The content of a common flow is not modelled.
                    Rejection::QueueFull => {
                        assert!(queue_full || matches!(class.body, Body::Flows(_)));
                    }
                    Rejection::LinkFull => {
                        let (with_it, most) = beyond;
                        assert!(
                            tree_full && with_it >= most,
                            "{with_it} beyond, others {most}"
                        );
                    }
                    Rejection::Congestion => assert!(red),
                    other => panic!("{other}"),
                }
                plus(&mut class.dropped, one(len));
            }
        }
    }

    /// Returns the excess of a class over its own reservation, with another packet if given, in bytes.
    fn beyond(&self, id: ClassId, more: Option<Length>) -> u64 {
        let class = &self.classes[&id];
        let own = class.plain.own(&class.body);
        let mut held = queued(class);
        if let Some(len) = more {
            plus(&mut held, one(len));
        }
        let each = (self.limits.bytes / u64::from(self.limits.packets)).max(1);
        let packets = held.packets.saturating_sub(own.packets.into()) * each;
        packets.max(held.bytes.saturating_sub(own.bytes.into()))
    }

    fn most_beyond(&self) -> u64 {
        let all = self.classes.keys();
        all.map(|&id| self.beyond(id, None)).max().unwrap_or(0)
    }

    /// Returns whether this much more can be reserved for classes, instead of `instead`.
    fn can_keep(&self, more: Room, instead: Room) -> bool {
        let mut packets = u64::from(more.packets);
        let mut bytes = u64::from(more.bytes);
        for class in self.classes.values() {
            let own = class.plain.own(&class.body);
            packets += u64::from(own.packets);
            bytes += u64::from(own.bytes);
        }
        packets -= u64::from(instead.packets);
        bytes -= u64::from(instead.bytes);
        packets <= self.limits.packets.into() && bytes <= self.limits.bytes
    }

    /// Records that a packet of the class with the largest excess was evicted for one of another class.
    fn give_way(&mut self, to: ClassId, len: Length, gone: Discarded<Tag>) {
        assert_eq!(gone.reason, Reason::Displaced);
        let beyond = self.beyond(gone.class, None);
        let with_it = self.beyond(to, Some(len));
        if gone.class == to {
            // Of another flow of the class, which the packet takes beyond its own.
            let flows = matches!(self.classes[&to].body, Body::Flows(_));
            assert!(flows && with_it > 0 && with_it >= self.most_beyond());
        } else {
            assert!(
                beyond > 0,
                "{} is within its own, and gives way",
                gone.class
            );
            assert!(beyond == self.most_beyond() && beyond > with_it);
        }
        let total = self.queued();
        assert!(
            total.packets >= self.limits.packets.into()
                || total.bytes + u64::from(len.get()) > self.limits.bytes,
            "the tree was not full"
        );
        let class = self.classes.get_mut(&gone.class).unwrap();
        let same = |&(length, tag): &(Length, Tag)| {
            length == gone.len && tag.number == gone.payload.number
        };
        let found = match &mut class.body {
            Body::Leaf(queue) => {
                let at = queue.iter().position(same);
                assert!(at <= Some(1), "none but the first or the second gives way");
                queue.remove(at.unwrap())
            }
            Body::Flows(flows) => flows.values_mut().find_map(|queue| {
                let at = queue.iter().position(same)?;
                queue.remove(at)
            }),
            Body::Inner(_) => None,
        };
        assert!(found.is_some());
        plus(&mut class.discarded, one(gone.len));
        if gone.payload.capable {
            class.marked += gone.payload.marked;
        }
    }

    /// Records that a packet left the tree, or was discarded by it.
    fn take(&mut self, id: ClassId, len: Length, tag: Tag) -> &mut Class {
        let class = self.classes.get_mut(&id).expect("a class that exists");
        let same = |&(other, queued): &(Length, Tag)| (other, queued.number) == (len, tag.number);
        match &mut class.body {
            Body::Leaf(queue) => {
                assert!(queue.pop_front().is_some_and(|front| same(&front)), "{id}");
            }
            Body::Flows(flows) => {
                let many = flows.len() as u32 > class.plain.flows.0 || class.overflowed;
                class.overflowed = many;
                let found = flows.values_mut().find_map(|queue| {
                    let at = queue.iter().position(same)?;
                    assert!(at == 0 || many, "out of order");
                    queue.remove(at)
                });
                assert!(found.is_some(), "{id} did not have {tag:?}");
            }
            Body::Inner(_) => panic!("{id} has no packets"),
        }
        if tag.capable {
            class.marked += tag.marked;
        }
        class
    }

    /// Dequeues a packet, if one may leave; returns the tree's answer.
    fn dequeue(&mut self) -> Option<Dequeue<Tag, ClassId>> {
        let earlier = self.now.checked_sub(self.rounded());
        let may_send = earlier.is_some_and(|earlier| self.somebody_may_send(earlier));
        let mut gone: Vec<Discarded<Tag>> = Vec::new();
        let answer = self
            .real
            .dequeue(Nanos(self.now), |discarded| gone.push(discarded));
        let some_gone = !gone.is_empty();
        for Discarded {
            class,
            len,
            payload,
            ..
        } in gone
        {
            assert!(payload.marked == 0 || payload.capable);
            let class = self.take(class, len, payload);
            plus(&mut class.discarded, one(len));
        }
        match answer {
            Dequeue::Packet(packet) => {
                let class = self.take(packet.owner, packet.len, packet.payload);
                plus(&mut class.sent, one(packet.len));
                let now = self.now;
                for id in self.path(packet.owner) {
                    let longest = self.longest(id);
                    let class = self.classes.get_mut(&id).unwrap();
                    if let Some(bucket) = &mut class.bucket {
                        let may_send = bucket.changed || bucket.may_send(longest, now);
                        assert!(may_send, "{id} sends too early");
                        bucket.send(packet.len.get(), now);
                    }
                }
            }
            Dequeue::NotBefore(time) => {
                assert!(time.0 > self.now, "it is time");
                assert!(some_gone || !may_send, "somebody may send");
                let earlier = self.now.max(time.0.saturating_sub(self.rounded()));
                assert!(
                    earlier == self.now || !self.somebody_may_send(earlier),
                    "nobody may send earlier"
                );
                assert!(self.queued().packets > 0);
            }
            Dequeue::Empty => assert_eq!(self.queued().packets, 0),
        }
        Some(answer)
    }

    pub(crate) fn apply(&mut self, operation: &Operation) {
        let now = Nanos(self.now);
        match *operation {
            Operation::AddInner(at, plain) => {
                self.add(at, plain, Body::Inner(plain.algorithm()));
            }
            Operation::AddLeaf(at, plain) => self.add(at, plain, Body::Leaf(VecDeque::new())),
            Operation::AddFlows(at, plain) => self.add(at, plain, Body::Flows(BTreeMap::new())),
            Operation::Change(at, plain) => self.change(self.pick(at), plain),
            Operation::ChangeQueue(at, plain) => self.change_queue(self.pick(at), plain),
            Operation::Remove(at) => self.remove(self.pick(at)),
            Operation::Move(at, parent, plain) => {
                self.move_below(self.pick(at), self.pick(parent), plain);
            }
            Operation::Flush(at) => self.flush(self.pick(at)),
            Operation::Enqueue {
                class,
                flow,
                len,
                packets,
                capable,
            } => {
                let id = self.pick(class);
                // Mostly within the declared maximum, so that queues do fill.
                let len = if len % 8 == 0 {
                    len
                } else {
                    len.min(self.longest(id))
                };
                for _ in 0..packets {
                    self.enqueue(id, flow, Length::new(len).unwrap(), capable);
                }
            }
            Operation::EnqueueAll { flow, len } => {
                for id in self.ids.clone() {
                    let len = len.min(self.longest(id));
                    self.enqueue(id, flow, Length::new(len).unwrap(), flow % 2 == 0);
                }
            }
            Operation::Dequeue(packets) => {
                for _ in 0..packets {
                    let answer = self.dequeue();
                    self.check();
                    if !matches!(answer, Some(Dequeue::Packet(_))) {
                        break;
                    }
                }
            }
            Operation::Wait(span) => self.now += span,
            Operation::WaitForNext => {
                if let Some(Dequeue::NotBefore(time)) = self.dequeue() {
                    self.now = time.0;
                }
            }
            Operation::ExpireIdle => self.real.expire_idle(now),
            Operation::Stray(number) => {
                let id = ClassId::new(number);
                if !self.classes.contains_key(&id) {
                    self.enqueue(id, 0, Length::MAX, true);
                    let unknown = Err(TreeError::UnknownClass(id));
                    assert_eq!(self.real.stats(id), None);
                    assert_eq!(self.real.flush(id, now, |_| {}), unknown);
                    assert_eq!(self.real.remove(id, |_| {}).map(|_| ()), unknown);
                    let config = ClassConfig::new(Weight::ONE, Length::MAX);
                    assert_eq!(self.real.change(id, config, now), unknown);
                    assert_eq!(
                        self.real.change_leaf(id, LeafConfig::default(), now),
                        unknown
                    );
                }
            }
        }
        self.check();
    }

    fn flush(&mut self, id: ClassId) {
        let now = Nanos(self.now);
        let mut gone = Vec::new();
        self.real
            .flush(id, now, |discarded| gone.push(discarded))
            .unwrap();
        for Discarded {
            class,
            len,
            payload,
            ..
        } in gone
        {
            assert!(self.path(class).contains(&id));
            plus(&mut self.take(class, len, payload).discarded, one(len));
        }
        for (&other, class) in &self.classes {
            assert!(queued(class).packets == 0 || !self.path(other).contains(&id));
        }
    }

    fn change(&mut self, id: ClassId, plain: Plain) {
        let before = self.real.stats(id);
        match self.real.change(id, plain.class(), Nanos(self.now)) {
            Ok(()) => self.reconfigured(id, plain),
            Err(TreeError::LongerPacketQueued { queued, max }) => self.is_longest(id, queued, max),
            Err(TreeError::Unfit { .. }) => assert!(plain.ceiling.is_some()),
            Err(other) => panic!("{other}"),
        }
        assert_eq!(self.real.stats(id), before, "a change changes no count");
    }

    /// A class is of another configuration.
    fn reconfigured(&mut self, id: ClassId, plain: Plain) {
        // The longest packet decides how full a bucket must be, also further down.
        let mut below: Vec<ClassId> = self.classes.keys().copied().collect();
        below.retain(|&other| self.path(other).contains(&id));
        for other in below {
            if let Some(bucket) = &mut self.classes.get_mut(&other).unwrap().bucket {
                bucket.changed = true;
            }
        }
        let class = self.classes.get_mut(&id).unwrap();
        Bucket::change(&mut class.bucket, plain.ceiling(), self.now);
        class.plain = Plain {
            weight: plain.weight,
            level: plain.level,
            ceiling: plain.ceiling,
            max_length: plain.max_length,
            ..class.plain
        };
        assert_eq!(self.real.config(id), Some(&plain.class()));
    }

    /// Checks that the queued packet that is too long for a new limit is the longest in the class and below it.
    fn is_longest(&self, id: ClassId, queued: Length, max: Length) {
        assert!(queued > max);
        let path = |other: ClassId| self.path(other).contains(&id);
        let lengths = self.classes.iter().filter(|(other, _)| path(**other));
        let longest = lengths
            .filter_map(|(_, class)| lengths_of(class).max())
            .max();
        assert_eq!(longest, Some(queued));
    }

    fn move_below(&mut self, id: ClassId, parent: ClassId, plain: Plain) {
        let before = self.real.stats(id);
        let outcome = (self.real).move_below(id, parent, plain.class(), Nanos(self.now));
        let to = match &self.classes[&parent].body {
            Body::Inner(algorithm) => Some(*algorithm),
            _ => None,
        };
        let is_below = self.path(parent).contains(&id);
        match outcome {
            Ok(()) => {
                assert!(to.is_some() && !is_below);
                self.classes.get_mut(&id).unwrap().parent = Some(parent);
                self.reconfigured(id, plain);
                assert_eq!(self.real.parent(id), Some(parent));
            }
            Err(TreeError::Root) => assert_eq!(id, ClassId::ROOT),
            Err(TreeError::NotInner(refused)) => assert!(refused == parent && to.is_none()),
            Err(TreeError::Below { .. }) => assert!(is_below),
            Err(TreeError::Unfit { .. }) => assert!(to.unwrap().follows_packets()),
            Err(TreeError::LongerPacketQueued { queued, max }) => self.is_longest(id, queued, max),
            Err(other) => panic!("{other}"),
        }
        // But that a ceiling may hold it from now on.
        let alike = |stats: Option<ClassStats>| {
            let overlimits = 0;
            stats.map(|stats| ClassStats {
                overlimits,
                ..stats
            })
        };
        let after = self.real.stats(id);
        assert_eq!(alike(after), alike(before), "a move changes no count");
    }

    fn change_queue(&mut self, id: ClassId, plain: Plain) {
        let class = &self.classes[&id];
        // The algorithm of flows stays.
        let plain = Plain {
            algorithm: class.plain.algorithm,
            ..plain
        };
        // A class of flows keeps its own weight and ceiling; those of its flows change.
        let outcome = match class.body {
            Body::Leaf(_) => self.real.change_leaf(id, plain.leaf(), Nanos(self.now)),
            Body::Flows(_) => self.real.change_flows(id, plain.flows(), Nanos(self.now)),
            Body::Inner(_) => {
                let refused = self.real.change_leaf(id, plain.leaf(), Nanos(self.now));
                return assert!(matches!(refused, Err(TreeError::OtherKind { .. })));
            }
        };
        let is_flows = matches!(class.body, Body::Flows(_));
        match outcome {
            Ok(()) => {
                let class = self.classes.get_mut(&id).unwrap();
                class.overflowed |= is_flows;
                class.capped_flows = plain.flows().ceiling.is_some();
                class.plain = Plain {
                    limits: plain.limits,
                    room: plain.room,
                    aqm: plain.aqm,
                    flows: plain.flows,
                    ..class.plain
                };
            }
            Err(TreeError::Unfit { .. }) => {}
            Err(TreeError::Room { .. }) => {
                let class = &self.classes[&id];
                let before = class.plain.own(&class.body);
                let wanted = Plain {
                    limits: plain.limits,
                    room: plain.room,
                    ..class.plain
                };
                assert!(!self.can_keep(wanted.own(&class.body), before));
            }
            Err(other) => panic!("{other}"),
        }
    }

    fn remove(&mut self, id: ClassId) {
        let mut gone = Vec::new();
        let outcome = self.real.remove(id, |discarded| gone.push(discarded));
        let has_children = self.classes.values().any(|class| class.parent == Some(id));
        match outcome {
            Ok(stats) => {
                assert!(!has_children && id != ClassId::ROOT);
                for Discarded {
                    class,
                    len,
                    payload,
                    ..
                } in gone
                {
                    assert_eq!(class, id);
                    plus(&mut self.take(class, len, payload).discarded, one(len));
                }
                let class = self.classes.remove(&id).unwrap();
                assert_eq!(queued(&class).packets, 0);
                assert_eq!(stats.discarded, class.discarded);
                assert_eq!(self.real.stats(id), None);
                let mut former = class.clone();
                // The counts of its parent from now on.
                let parent = self.classes.get_mut(&class.parent.unwrap()).unwrap();
                for (count, more) in [
                    (&mut parent.accepted, &mut former.accepted),
                    (&mut parent.sent, &mut former.sent),
                    (&mut parent.dropped, &mut former.dropped),
                    (&mut parent.discarded, &mut former.discarded),
                ] {
                    plus(count, *more);
                }
                parent.marked += class.marked;
                self.ids.retain(|&other| other != id);
            }
            Err(TreeError::Root) => assert_eq!(id, ClassId::ROOT),
            Err(TreeError::HasChildren(refused)) => assert!(has_children && refused == id),
            Err(other) => panic!("{other}"),
        }
    }

    pub(crate) fn check(&self) {
        if let Err(violation) = self.real.invariants() {
            panic!("{violation}");
        }
        let mut sums: BTreeMap<ClassId, ClassStats> = BTreeMap::new();
        for (&id, class) in &self.classes {
            for above in self.path(id) {
                let sum = sums.entry(above).or_default();
                plus(&mut sum.accepted, class.accepted);
                plus(&mut sum.sent, class.sent);
                plus(&mut sum.dropped, class.dropped);
                plus(&mut sum.discarded, class.discarded);
                plus(&mut sum.queued, queued(class));
            }
        }
        for (id, sum) in sums {
            let stats = self.real.stats(id).unwrap();
            assert_eq!(stats.accepted, sum.accepted, "{id}");
            assert_eq!(stats.sent, sum.sent, "{id}");
            assert_eq!(stats.queued, sum.queued, "{id}");
            assert_eq!(stats.dropped, sum.dropped, "{id}");
            assert_eq!(stats.discarded, sum.discarded, "{id}");
        }
    }

    /// Sends all that is left, and waits where ceilings say so.
    pub(crate) fn drain(&mut self) {
        let mut steps = 0u64;
        loop {
            match self.dequeue() {
                Some(Dequeue::Packet(_)) => {}
                Some(Dequeue::NotBefore(time)) => self.now = time.0,
                _ => break,
            }
            steps += 1;
            assert!(steps < 200_000, "it does not end");
        }
        self.check();
        assert!(self.real.is_empty());
        // Packets that were marked left with the mark, or were discarded.
        let marked: u64 = self.classes.values().map(|class| class.marked).sum();
        assert_eq!(self.real.stats(ClassId::ROOT).unwrap().marked, marked);
    }
}

fn lengths_of(class: &Class) -> impl Iterator<Item = Length> {
    let queues: Vec<&VecDeque<(Length, Tag)>> = match &class.body {
        Body::Inner(_) => vec![],
        Body::Leaf(queue) => vec![queue],
        Body::Flows(flows) => flows.values().collect(),
    };
    queues.into_iter().flatten().map(|&(len, _)| len)
}

fn queued(class: &Class) -> Count {
    let mut count = Count::default();
    for len in lengths_of(class) {
        plus(&mut count, one(len));
    }
    count
}

/// Runs operations on a tree of this root.
pub(crate) fn run(root: Plain, limits: SchedulerLimits, operations: &[Operation]) {
    let mut pair = Pair::new(root, limits);
    for operation in operations {
        pair.apply(operation);
    }
    pair.drain();
}

/// Returns a root, limits of the tree, operations.
pub(crate) fn runs() -> impl Strategy<Value = (Plain, SchedulerLimits, Vec<Operation>)> {
    let limits = prop_oneof![
        3 => Just(SchedulerLimits::default()),
        1 => (1u32..40, 1u64..40_000).prop_map(|(packets, bytes)| SchedulerLimits {
            packets, bytes, ..SchedulerLimits::default()
        }),
    ];
    let root = plain().prop_map(|root| Plain {
        // Most roots have children of any kind.
        ceiling: root.ceiling.filter(|_| root.weight % 4 == 0),
        ..root
    });
    (root, limits, prop::collection::vec(operation(), 1..120))
}
