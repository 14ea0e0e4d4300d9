//! The class tree: a link shared by classes, classes within those, and so on.
//!
//! A *class* has children and an [`Algorithm`] that orders them, or is a *leaf* with a queue
//! of packets, or is made of *flows*, each with a queue, that come with their first packet
//! and are forgotten when they were idle for long. Any algorithm may order the children of any
//! class: a class is one entity of its parent ([`scheduler`](crate::scheduler)), told
//! explicitly when it becomes active, what it was charged for, and when it is idle.
//!
//! ```
//! use fairlane_core::tree::{Algorithm, ClassConfig, ClassId, Dequeue, LeafConfig, Tree};
//! use fairlane_core::{Length, Nanos, Weight};
//!
//! let length = Length::new(1000).unwrap();
//! let weight = |weight| ClassConfig {
//!     max_length: length,
//!     ..ClassConfig::new(Weight::new(weight).unwrap())
//! };
//! let mut link = Tree::<u32>::new(Algorithm::Qfq, None, Default::default());
//! let root = ClassId::ROOT;
//! let office = link.add_inner(root, weight(3), Algorithm::Drr).unwrap();
//! let guests = link.add_leaf(root, weight(1), LeafConfig::default()).unwrap();
//! let mail = link.add_leaf(office, weight(1), LeafConfig::default()).unwrap();
//! for n in 0..40 {
//!     link.enqueue(guests, 0, length, n, Nanos::ZERO).unwrap();
//!     link.enqueue(mail, 0, length, n, Nanos::ZERO).unwrap();
//! }
//! let mut sent = [0i32; 2];
//! for _ in 0..40 {
//!     match link.dequeue(Nanos::ZERO, |_| {}) {
//!         Dequeue::Packet(packet) => sent[usize::from(packet.class == mail)] += 1,
//!         other => panic!("forty of eighty packets are left: {other:?}"),
//!     }
//! }
//! assert!((sent[1] - 30).abs() <= 1);
//! ```
//!
//! # Active or not
//!
//! A class has a place in its parent's order while it has a child that may be served and no
//! cap holds it. It gets its place when the first such child comes, and loses it when a packet
//! left and was the last, or its cap holds it from then on: both while it is the selected
//! one, as is the whole path to the packet. A class that loses its packets
//! while it waits (a flush, a removal) keeps its place, and is passed over when its turn
//! comes; so is one whose last packet queue management drops. Each such step pays for one
//! loss, so that [`Tree::dequeue`] is O(depth) amortised, in O(1) algorithms.
//!
//! # What a parent is told of
//!
//! A leaf's head, where that is sure to be sent; else the longest packet that there may be:
//! of a class with children, whose next packet depends on what comes until then, and of a
//! leaf whose queue management drops at departure. QFQ and SCHED+ do not look at heads;
//! DRR tolerates any that is no longer than the longest; the timestamps of the others are
//! those of SCHED+ with M = 1, and so are the bounds.
//!
//! # Caps
//!
//! A class that sent what its [`Cap`] allows leaves its parent's order until the moment at
//! which it may send again, which is known exactly ([`Tree::dequeue`] answers with the
//! first of these moments where nobody else may be served). Nothing polls and nothing is
//! rounded to a tick: a class reaches its cap to the bit at any rate, unless it
//! waits for others meanwhile for longer than its burst lasts.
//!
//! # Counts
//!
//! `accepted = sent + discarded + queued` holds for every class after every operation, and
//! the counts of a class are the sums over those below it. Accounting is complete
//! before a packet is handed to anybody.

mod algorithm;
mod cap;
pub mod cbq;
mod change;
mod check;
mod child;
mod config;
mod dynamic;
mod order;
mod packets;
mod stats;

pub use algorithm::{Algorithm, UnknownAlgorithm};
pub use config::{Cap, ClassConfig, ClassId, FlowsConfig, LeafConfig, TreeError};
pub use packets::{Dequeue, Discarded, Packet, Reason, Rejected, Rejection};
pub use stats::ClassStats;

use crate::aqm::{Aqm, AqmConfig};
use crate::packet_scheduler::{Count, SchedulerLimits};
use crate::queue::PacketSlab;
use crate::scheduler::{MAX_ENTITIES, Share, Violation};
use crate::units::{Charge, Length, Nanos, Rate, Weight};
use alloc::boxed::Box;
use alloc::vec::Vec;

use cap::{Caps, NONE};
use child::{Child, Kind, flag};
use dynamic::Flows;
use order::{Order, Selected};
use stats::Losses;

/// A packet, as far as queue management looks at it.
pub trait Payload {
    /// Marks the packet "congestion experienced" if it is ECN-capable; whether it is. One
    /// that is not is dropped instead.
    fn mark(&mut self) -> bool {
        false
    }
}

impl Payload for () {}
impl Payload for u32 {}
impl Payload for u64 {}
impl Payload for usize {}
impl Payload for Vec<u8> {}
impl Payload for Box<[u8]> {}

/// Queues of classes that share a link: what the program, the simulator and replay release
/// packets from.
pub trait ClassQueue<P> {
    /// Accepts a packet at time `now` into a class, or hands it back with the reason. `flow` is
    /// the digest of its flow, which only classes of flows look at.
    fn enqueue(
        &mut self,
        class: ClassId,
        flow: u64,
        len: Length,
        payload: P,
        now: Nanos,
    ) -> Result<(), Rejected<P>>;

    /// Hands out the next packet at time `now`; what queue management drops on the way goes
    /// to `discard`.
    fn dequeue(&mut self, now: Nanos, discard: impl FnMut(Discarded<P>)) -> Dequeue<P>;

    /// What became of the packets of a class, or `None` if there is no such class.
    fn stats(&self, class: ClassId) -> Option<ClassStats>;

    /// Packets that wait. O(1).
    fn len(&self) -> u32;

    /// Whether nothing waits. O(1).
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets flows that were idle for long, a bounded number of them.
    fn tidy(&mut self, now: Nanos);

    /// Checks that every count is the sum of its parts, and all else that must hold; for
    /// tests.
    fn invariants(&self) -> Result<(), Violation>;
}

/// Where packets of a class go: a node and a slot in it.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// [`NONE`] where the class takes no packets.
    node: u32,
    /// [`NONE`] where the digest of a flow tells.
    slot: u32,
}

impl Place {
    const NOWHERE: Place = Place {
        node: NONE,
        slot: NONE,
    };
}

/// A class with children or flows: the order of these, and its own place.
#[derive(Clone, Debug)]
struct Node {
    order: Order,
    /// Who is next in the order.
    selected: Selected,
    /// Its parent's node, [`NONE`] for the root, and its slot there.
    parent: u32,
    slot: u32,
    /// What its parent is told of: the longest packet.
    longest: Charge,
    /// Its cap.
    cap: u32,
    class: u32,
    algorithm: Algorithm,
    /// The order is told of every packet.
    follows_packets: bool,
    flows: Option<Box<Flows>>,
}

const _: () = assert!(size_of::<Node>() == 64);

/// What a class is, beside what its packets touch.
#[derive(Clone, Debug)]
struct Class {
    config: ClassConfig,
    /// Longest packet, by its own configuration and those of the classes above.
    longest: Length,
    /// Its parent's node and its slot there; [`NONE`] for the root.
    parent: u32,
    slot: u32,
    body: Body,
    losses: Losses,
    /// Counts of classes below that were removed.
    former: ClassStats,
}

#[derive(Clone, Copy, Debug)]
enum Body {
    /// A leaf, and its entry in the table of what few queues need.
    Leaf { config: LeafConfig, extra: u32 },
    /// A class with children, in this node.
    Inner { node: u32, children: u32 },
    /// A class of flows, in this node.
    Flows { node: u32 },
}

/// What few queues need: queue management, a cap.
#[derive(Clone, Debug)]
struct Extra {
    aqm: Aqm,
    cap: u32,
}

/// The packets of one link in the order of a tree of classes.
///
/// `P` is the caller's packet or handle; the tree looks into it only to mark it. One slab
/// holds all packets, with the time at which they came. A packet costs what the algorithms on
/// its path cost; a leaf's queue and its place share a cache line, and a class above costs one
/// more and its entity. Nothing is allocated once the tables have grown to size. The
/// classes are numbered; the number of a removed one is used again.
#[derive(Clone, Debug)]
pub struct Tree<P> {
    room_bytes: i64,
    places: Vec<Place>,
    nodes: Vec<Node>,
    slab: PacketSlab<(Nanos, P)>,
    caps: Caps,
    /// The cap of the root holds everything.
    root_held: bool,
    extras: Vec<Extra>,
    classes: Vec<Option<Class>>,
    free_classes: Vec<u32>,
    free_nodes: Vec<u32>,
    free_extras: Vec<u32>,
    accepted_bytes: u64,
    limits: SchedulerLimits,
    /// Seed of the next queue management that draws numbers.
    seed: u64,
    /// The node whose flows were looked at last by `tidy`.
    tidied: u32,
}

/// The root's node.
const ROOT: u32 = 0;

impl<P: Payload> Tree<P> {
    /// A tree of a root without children, whose `algorithm` will order those. `cap` holds
    /// all classes together; of the `limits`, those per flow are not used: each leaf has
    /// its own.
    pub fn new(algorithm: Algorithm, cap: Option<Cap>, limits: SchedulerLimits) -> Self {
        let mut tree = Tree {
            room_bytes: limits.bytes.min(i64::MAX as u64) as i64,
            places: Vec::new(),
            nodes: Vec::new(),
            slab: PacketSlab::new(limits.packets),
            caps: Caps::default(),
            root_held: false,
            extras: Vec::new(),
            classes: Vec::new(),
            free_classes: Vec::new(),
            free_nodes: Vec::new(),
            free_extras: Vec::new(),
            accepted_bytes: 0,
            limits,
            seed: 0,
            tidied: 0,
        };
        let config = ClassConfig {
            cap,
            ..ClassConfig::new(Weight::ONE)
        };
        tree.add_node(algorithm, Length::MAX, None, (NONE, NONE));
        tree.nodes[ROOT as usize].cap = tree.add_cap(cap, Length::MAX, (NONE, NONE));
        let body = Body::Inner {
            node: ROOT,
            children: 0,
        };
        tree.register(Class::new(config, Length::MAX, body), Place::NOWHERE);
        tree
    }

    /// Grows the tables ahead of time for so many packets.
    pub fn reserve(&mut self, packets: u32) {
        self.slab.reserve(packets);
    }

    /// Adds a class whose children `algorithm` orders.
    pub fn add_inner(
        &mut self,
        parent: ClassId,
        config: ClassConfig,
        algorithm: Algorithm,
    ) -> Result<ClassId, TreeError> {
        let (above, share, longest) = self.admit(parent, &config, None)?;
        let node = self.add_node(algorithm, longest, None, (above, NONE));
        let child = Child::inner(node, longest, 0);
        let body = Body::Inner { node, children: 0 };
        let class = self.enter(parent, child, share, Class::new(config, longest, body));
        let Ok((class, slot)) = class else {
            self.drop_node(node);
            return Err(TreeError::TooManyClasses(parent));
        };
        self.settle_node(node, class, slot, config.cap, longest);
        Ok(class)
    }

    /// Adds a class with a queue of its own.
    pub fn add_leaf(
        &mut self,
        parent: ClassId,
        config: ClassConfig,
        leaf: LeafConfig,
    ) -> Result<ClassId, TreeError> {
        let leaf = clamped(leaf);
        let (above, share, longest) = self.admit(parent, &config, Some(&leaf.aqm))?;
        let flags = flags(config.cap, &leaf.aqm);
        let body = Body::Leaf {
            config: leaf,
            extra: NONE,
        };
        let child = Child::leaf(NONE, leaf.limits, longest, flags);
        let class = self.enter(parent, child, share, Class::new(config, longest, body));
        let (class, slot) = class.map_err(|()| TreeError::TooManyClasses(parent))?;
        let owner = (above, slot);
        self.nodes[above as usize].order.child_mut(slot).side = class.number();
        self.places[class.index()] = Place { node: above, slot };
        let extra = self.add_extra(config.cap, longest, &leaf, owner);
        if let Some(Class {
            body: Body::Leaf { extra: at, .. },
            ..
        }) = &mut self.classes[class.index()]
        {
            *at = extra;
        }
        Ok(class)
    }

    /// Adds a class that makes a flow of each digest its packets come with.
    pub fn add_flows(
        &mut self,
        parent: ClassId,
        config: ClassConfig,
        flows: FlowsConfig,
    ) -> Result<ClassId, TreeError> {
        let flows = FlowsConfig {
            leaf: clamped(flows.leaf),
            ..flows
        };
        check_flows(&flows)?;
        let (above, share, longest) = self.admit(parent, &config, None)?;
        let table = Some(Box::new(Flows::new(flows)));
        let node = self.add_node(flows.algorithm, longest, table, (above, NONE));
        let child = Child::inner(node, longest, 0);
        let body = Body::Flows { node };
        let class = self.enter(parent, child, share, Class::new(config, longest, body));
        let Ok((class, slot)) = class else {
            self.drop_node(node);
            return Err(TreeError::TooManyClasses(parent));
        };
        self.settle_node(node, class, slot, config.cap, longest);
        self.places[class.index()] = Place { node, slot: NONE };
        Ok(class)
    }

    /// What a new class of this configuration will have below `parent`: the parent's node, a
    /// share there, the longest packet. `aqm` is that of a leaf.
    fn admit(
        &self,
        parent: ClassId,
        config: &ClassConfig,
        aqm: Option<&AqmConfig>,
    ) -> Result<(u32, Share, Length), TreeError> {
        let above = self.class(parent)?;
        let Body::Inner { node, .. } = above.body else {
            return Err(TreeError::NotInner(parent));
        };
        let longest = config.max_length.min(above.longest);
        let algorithm = self.nodes[node as usize].algorithm;
        let share = share(algorithm, config, longest)?;
        check_fit(algorithm, config.cap, aqm)?;
        Ok((node, share, longest))
    }

    /// Gives a class a slot in its parent's order and a number.
    fn enter(
        &mut self,
        parent: ClassId,
        child: Child,
        share: Share,
        class: Class,
    ) -> Result<(ClassId, u32), ()> {
        let Some(Class {
            body: Body::Inner { node, children },
            ..
        }) = &mut self.classes[parent.index()]
        else {
            return Err(());
        };
        let above = *node;
        if self.free_classes.is_empty() && self.places.len() >= NONE as usize {
            return Err(());
        }
        let slot = self.nodes[above as usize]
            .order
            .add(child, share)
            .ok_or(())?;
        *children += 1;
        self.refresh(above);
        let class = Class {
            parent: above,
            slot,
            ..class
        };
        Ok((self.register(class, Place::NOWHERE), slot))
    }

    /// Gives a class a number.
    fn register(&mut self, class: Class, place: Place) -> ClassId {
        match self.free_classes.pop() {
            Some(number) => {
                self.classes[number as usize] = Some(class);
                self.places[number as usize] = place;
                ClassId::new(number)
            }
            None => {
                self.classes.push(Some(class));
                self.places.push(place);
                ClassId::new((self.classes.len() - 1) as u32)
            }
        }
    }

    fn add_node(
        &mut self,
        algorithm: Algorithm,
        longest: Length,
        flows: Option<Box<Flows>>,
        (parent, slot): (u32, u32),
    ) -> u32 {
        let node = Node {
            order: Order::new(algorithm),
            selected: Selected::NOBODY,
            parent,
            slot,
            longest: longest.into(),
            cap: NONE,
            class: 0,
            algorithm,
            follows_packets: algorithm.follows_packets(),
            flows,
        };
        match self.free_nodes.pop() {
            Some(at) => {
                self.nodes[at as usize] = node;
                at
            }
            None => {
                self.nodes.push(node);
                (self.nodes.len() - 1) as u32
            }
        }
    }

    /// A node is of this class from now on, which has this slot.
    fn settle_node(
        &mut self,
        node: u32,
        class: ClassId,
        slot: u32,
        cap: Option<Cap>,
        longest: Length,
    ) {
        let parent = self.nodes[node as usize].parent;
        let cap = self.add_cap(cap, longest, (parent, slot));
        let node = &mut self.nodes[node as usize];
        node.class = class.number();
        node.slot = slot;
        node.cap = cap;
    }

    /// A node is not in use any more. It holds no memory.
    fn drop_node(&mut self, node: u32) {
        let at = &mut self.nodes[node as usize];
        at.order = Order::new(Algorithm::Fifo);
        at.selected = Selected::NOBODY;
        at.flows = None;
        let cap = core::mem::replace(&mut at.cap, NONE);
        if cap != NONE {
            self.caps.remove(cap);
        }
        self.free_nodes.push(node);
    }

    fn add_cap(&mut self, cap: Option<Cap>, longest: Length, owner: (u32, u32)) -> u32 {
        cap.map_or(NONE, |cap| self.caps.add(cap, longest, owner))
    }

    /// An entry of what few queues need, if this one needs it.
    fn add_extra(
        &mut self,
        cap: Option<Cap>,
        longest: Length,
        leaf: &LeafConfig,
        owner: (u32, u32),
    ) -> u32 {
        if flags(cap, &leaf.aqm) == 0 {
            return NONE;
        }
        let cap = self.add_cap(cap, longest, owner);
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let aqm = Aqm::new(&leaf.aqm, leaf.rate, self.seed);
        let extra = Extra { aqm, cap };
        match self.free_extras.pop() {
            Some(at) => {
                self.extras[at as usize] = extra;
                at
            }
            None => {
                self.extras.push(extra);
                (self.extras.len() - 1) as u32
            }
        }
    }

    /// Gives an entry back, and the cap in it.
    fn drop_extra(&mut self, extra: u32) {
        let Some(at) = self.extras.get_mut(extra as usize) else {
            return;
        };
        at.aqm = Aqm::new(&AqmConfig::TailDrop, Rate::MAX, 0);
        let cap = core::mem::replace(&mut at.cap, NONE);
        if cap != NONE {
            self.caps.remove(cap);
        }
        self.free_extras.push(extra);
    }

    /// Entry of what few queues need, of a child that is a queue.
    #[inline]
    fn extra_of(&self, child: &Child) -> u32 {
        if child.kind == Kind::Flow {
            return child.side;
        }
        match &self.classes[child.side as usize] {
            Some(Class {
                body: Body::Leaf { extra, .. },
                ..
            }) => *extra,
            _ => NONE,
        }
    }

    /// Looks again who is next in a node, after a statement about it.
    fn refresh(&mut self, node: u32) {
        let node = &mut self.nodes[node as usize];
        node.selected = node.order.selected();
    }

    fn class(&self, id: ClassId) -> Result<&Class, TreeError> {
        let class = self.classes.get(id.index()).and_then(Option::as_ref);
        class.ok_or(TreeError::UnknownClass(id))
    }

    /// Packets that wait in all classes. O(1).
    #[inline]
    pub fn len(&self) -> u32 {
        self.slab.len()
    }

    /// Whether nothing waits. O(1).
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.slab.is_empty()
    }

    /// Classes that there are, the root included.
    pub fn classes(&self) -> usize {
        self.classes.len() - self.free_classes.len()
    }

    /// How a class is configured, or `None` if there is no such class.
    pub fn config(&self, class: ClassId) -> Option<&ClassConfig> {
        Some(&self.class(class).ok()?.config)
    }

    /// What became of the packets of a class and of all below it, or `None` if there is no such
    /// class. The root counts what was refused because there was no such class, too.
    /// O(classes below).
    pub fn stats(&self, class: ClassId) -> Option<ClassStats> {
        let mut sum = ClassStats::default();
        let mut rest = alloc::vec![class.number()];
        self.class(class).ok()?;
        while let Some(number) = rest.pop() {
            let Ok(class) = self.class(ClassId::new(number)) else {
                continue;
            };
            sum = sum.plus(&class.former).plus(&self.own_stats(class));
            if let Body::Inner { node, .. } = class.body {
                rest.extend(self.classes_below(node));
            }
        }
        Some(sum)
    }

    /// Counts of a class without those below it.
    fn own_stats(&self, class: &Class) -> ClassStats {
        let losses = class.losses;
        let mut own = ClassStats {
            dropped: losses.dropped,
            discarded: losses.discarded,
            marked: losses.marked,
            throttled: losses.throttled,
            ..ClassStats::default()
        };
        match class.body {
            Body::Leaf { config, .. } => {
                let child = self.nodes[class.parent as usize].order.child(class.slot);
                own.accepted = child.accepted();
                own.queued = child.queued(config.limits);
                own.sent = own.accepted.minus(own.discarded).minus(own.queued);
            }
            Body::Flows { node } => {
                if let Some(flows) = &self.nodes[node as usize].flows {
                    flows.add_to(&mut own);
                }
            }
            Body::Inner { .. } => {}
        }
        own
    }

    /// Numbers of the classes right below a node that is not one of flows.
    fn classes_below(&self, node: u32) -> impl Iterator<Item = u32> {
        let order = &self.nodes[node as usize].order;
        (0..order.slots()).filter_map(move |slot| {
            let child = order.child(slot);
            match child.kind {
                Kind::Leaf => Some(child.side),
                Kind::Inner => Some(self.nodes[child.side as usize].class),
                _ => None,
            }
        })
    }

    /// Accepted packets and bytes, of all classes that ever were.
    fn accepted(&self) -> Count {
        Count {
            packets: self.slab.stored(),
            bytes: self.accepted_bytes,
        }
    }

    /// Waiting packets and bytes.
    fn queued(&self) -> Count {
        let limit = self.limits.bytes.min(i64::MAX as u64) as i64;
        Count {
            packets: self.slab.len().into(),
            bytes: (limit - self.room_bytes) as u64,
        }
    }
}

impl<P: Payload> ClassQueue<P> for Tree<P> {
    #[inline]
    fn enqueue(
        &mut self,
        class: ClassId,
        flow: u64,
        len: Length,
        payload: P,
        now: Nanos,
    ) -> Result<(), Rejected<P>> {
        Tree::enqueue(self, class, flow, len, payload, now)
    }

    #[inline]
    fn dequeue(&mut self, now: Nanos, discard: impl FnMut(Discarded<P>)) -> Dequeue<P> {
        Tree::dequeue(self, now, discard)
    }

    fn stats(&self, class: ClassId) -> Option<ClassStats> {
        Tree::stats(self, class)
    }

    #[inline]
    fn len(&self) -> u32 {
        Tree::len(self)
    }

    fn tidy(&mut self, now: Nanos) {
        Tree::tidy(self, now);
    }

    fn invariants(&self) -> Result<(), Violation> {
        Tree::invariants(self)
    }
}

impl Class {
    fn new(config: ClassConfig, longest: Length, body: Body) -> Class {
        Class {
            config,
            longest,
            parent: NONE,
            slot: NONE,
            body,
            losses: Losses::default(),
            former: ClassStats::default(),
        }
    }
}

/// What a queue has beside its packets, as bits.
fn flags(cap: Option<Cap>, aqm: &AqmConfig) -> u8 {
    let managed = match aqm {
        AqmConfig::TailDrop => 0,
        AqmConfig::Red(_) => flag::AQM,
        AqmConfig::Codel(_) => flag::AQM | flag::LONGEST,
    };
    managed | if cap.is_some() { flag::CAP } else { 0 }
}

fn clamped(leaf: LeafConfig) -> LeafConfig {
    LeafConfig {
        limits: leaf.limits.clamped(),
        ..leaf
    }
}

/// The share of a class in its parent's order.
fn share(algorithm: Algorithm, config: &ClassConfig, longest: Length) -> Result<Share, TreeError> {
    if config.level > ClassConfig::MAX_LEVEL {
        return Err(TreeError::Level(config.level));
    }
    let weight = match algorithm {
        // Strict priority takes weights for levels, from 1.
        Algorithm::Priority => Weight::new(config.level + 1).unwrap_or(config.weight),
        _ => config.weight,
    };
    Ok(Share::new(weight, longest))
}

/// Whether the algorithm can order a leaf with such a cap and queue management, or a class
/// with children (`None`).
fn check_fit(
    algorithm: Algorithm,
    cap: Option<Cap>,
    aqm: Option<&AqmConfig>,
) -> Result<(), TreeError> {
    let what = match aqm {
        _ if !algorithm.follows_packets() => return Ok(()),
        None => "a class with others or flows below it",
        Some(_) if cap.is_some() => "a class with a cap of its own",
        Some(AqmConfig::Codel(_)) if algorithm == Algorithm::Wf2q => {
            "a queue that drops packets as they leave"
        }
        Some(_) => return Ok(()),
    };
    let algorithm = algorithm.name();
    Err(TreeError::Unfit { algorithm, what })
}

/// Whether there can be such flows.
fn check_flows(flows: &FlowsConfig) -> Result<(), TreeError> {
    if flows.most == 0 || flows.most as usize >= MAX_ENTITIES {
        return Err(TreeError::Flows(flows.most));
    }
    check_fit(flows.algorithm, flows.cap, Some(&flows.leaf.aqm))
}
