//! The class tree: a link shared by classes, classes within those, and so on.
//!
//! A *class* has children and an [`Algorithm`] that orders them, or is a *leaf* with a queue of packets, or is made of
//! *flows*, each with a queue, that are created by their first packet and expire after an idle timeout. Any algorithm
//! may order the children of any class: a class is one entity of its parent ([`scheduler`](crate::scheduler)), which is
//! notified explicitly when it becomes active, when it is charged, and when it becomes idle.
//!
//! ```
//! use fairlane_core::sched::Algorithm;
//! use fairlane_core::tree::{ClassConfig, ClassId, LeafConfig, Tree};
//! use fairlane_core::{Dequeue, Length, Nanos, Weight};
//!
//! let length = Length::new(1000).unwrap();
//! let weight = |weight| ClassConfig::new(Weight::new(weight).unwrap(), length);
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
//!         Dequeue::Packet(packet) => sent[usize::from(packet.owner == mail)] += 1,
//!         other => panic!("forty of eighty packets are left: {other:?}"),
//!     }
//! }
//! assert!((sent[1] - 30).abs() <= 1);
//! ```
//!
//! Ceilings, room, flows that come by themselves, packets that are marked and bursts of them:
//!
//! ```
//! use fairlane_core::aqm::{AqmConfig, CodelConfig};
//! use fairlane_core::room::Room;
//! use fairlane_core::sched::Algorithm;
//! use fairlane_core::tree::{
//!     BurstEnd, Ceiling, ClassConfig, ClassFlow, ClassId, ClassQueue, ClassStats, Discarded,
//!     DynamicFlow, FlowsConfig, LeafConfig, Payload, Reason, Tree, TreeError,
//! };
//! use fairlane_core::{Count, Length, Nanos, Packet, Weight};
//!
//! /// A packet that can be marked.
//! #[derive(Debug, PartialEq)]
//! struct Frame {
//!     congestion: bool,
//! }
//!
//! impl Payload for Frame {
//!     fn mark(&mut self) -> bool {
//!         self.congestion = true;
//!         true
//!     }
//! }
//!
//! let len = Length::try_from(1000u32)?;
//! let mut link = Tree::new(Algorithm::Qfq, None, Default::default()).marking();
//! let mut config = ClassConfig::new(Weight::ONE, len);
//! let mut flows = FlowsConfig::new(Algorithm::Drr);
//! flows.leaf.aqm = AqmConfig::Codel(CodelConfig::default());
//! let hosts = link.add_flows(ClassId::ROOT, config, flows)?;
//! // At most 8 Mbit/s, packet by packet; two packets always find room.
//! config.ceiling = Some(Ceiling { rate: "8mbit".parse()?, burst: 1000 });
//! let room = Room { packets: 2, bytes: 2000 };
//! let guests = link.add_leaf(ClassId::ROOT, config, LeafConfig { room, ..LeafConfig::default() })?;
//! let below_a_leaf = link.add_inner(guests, config, Algorithm::Qfq);
//! assert_eq!(below_a_leaf, Err(TreeError::NotInner(guests)));
//!
//! let to = [ClassFlow::from(guests), guests.into(), ClassFlow { class: hosts, flow: 0xcafe }];
//! let packets = to.map(|owner| Packet { owner, len, payload: Frame { congestion: false } });
//! let accepted = link.enqueue_burst(packets, Nanos::ZERO, |packet, why| panic!("{packet:?}: {why}"), drop);
//! assert_eq!(accepted, 3);
//! let flow: DynamicFlow = link.flows(hosts).next().ok_or("no flow")?;
//! assert_eq!((flow.digest, flow.queued), (Some(0xcafe), Count { packets: 1, bytes: 1000 }));
//!
//! let mut burst = Vec::new();
//! let end = link.dequeue_burst(&mut burst, 8, Nanos::ZERO, drop);
//! assert_eq!((burst.len(), end), (2, BurstEnd::NotBefore(Nanos::from_millis(1))));
//!
//! link.flush(guests, Nanos::ZERO, |gone: Discarded<Frame>| assert_eq!(gone.reason, Reason::Flushed))?;
//! let stats: ClassStats = link.stats(guests).ok_or("no class")?;
//! assert_eq!((stats.sent.packets, stats.discarded.packets), (1, 1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Active or not
//!
//! A class has a place in its parent's order while it has a child that may be served and no ceiling holds it. It gets
//! its place with the first such child, and loses it when its last packet has left, or its ceiling holds it from then
//! on: both while it is the selected one, as is the whole path to the packet. A class that loses its packets while it
//! has a place (a flush, a removal) keeps it, and is skipped at its turn; so is one whose last packet queue management
//! drops. Each such step pays for one loss, so that [`Tree::dequeue`] is O(depth) amortised, in O(1) algorithms.
//!
//! # The head reported to a parent
//!
//! A leaf's head; for a class with children, whose next packet depends on later arrivals, the longest possible packet.
//! Queue management that drops at departure drops a head only if the next packet is no longer, so that no packet is
//! sent instead of a shorter one.
//!
//! # Ceilings
//!
//! A class that has used up its [`Ceiling`] leaves its parent's order until the time at which it may send again, which
//! is known exactly ([`Tree::dequeue`] returns the first of these times if no class may be served). Nothing polls and
//! nothing is rounded to a tick: a class reaches its ceiling to the bit at any rate, unless it waits for others
//! meanwhile for longer than its burst lasts.
//!
//! # Room
//!
//! A leaf, a class of flows and each flow in it may have [`room`](crate::room) of its own. When the tree holds its
//! limit of packets or bytes, a packet of the class or flow with the largest excess over its own is evicted
//! ([`Tree::offer`]); a packet of one within its own never is.
//!
//! # Counts
//!
//! `accepted = sent + discarded + queued` holds for every class after every operation, and the counts of a class are
//! the sums over those below it. Accounting is complete before a packet is returned.

mod activity;
pub mod cbq;
mod ceiling;
mod change;
mod change_flows;
mod check;
mod child;
mod config;
mod dequeue;
mod displace;
mod dynamic;
mod enqueue;
mod order;
mod packet;
mod peekable;
mod relocate;
mod stats;
mod table;
mod tally;
mod view;
mod wane;

pub use config::{Ceiling, ClassConfig, ClassId, FlowsConfig, LeafConfig, TreeError};
pub use packet::{BurstEnd, ClassFlow, ClassQueue, Discarded, Payload, Reason};
pub use peekable::Peekable;
pub use stats::ClassStats;
pub use tally::FlowCount;
pub use view::DynamicFlow;

use crate::aqm::{Aqm, AqmConfig};
use crate::grow::Slab;
use crate::packet::Count;
use crate::packet_scheduler::{Limits, SchedulerLimits};
use crate::queue::PacketSlab;
use crate::room::{Beyond, Measure};
use crate::sched::Algorithm;
use crate::units::{Charge, Length, Nanos, Weight};
use alloc::boxed::Box;
use alloc::vec::Vec;

use ceiling::{Ceilings, NONE};
use dynamic::Flows;
use order::{Order, Selected};
use stats::Losses;

/// Where packets of a class go: a node and a slot in it.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// [`NONE`] where the class takes no packets.
    node: u32,
    /// [`NONE`] where the flow is found by its digest.
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
    /// The selected child of the order.
    selected: Selected,
    /// Its parent's node, [`NONE`] for the root, and its slot there.
    parent: u32,
    slot: u32,
    /// The length reported to its parent: the longest packet.
    longest: Charge,
    /// Its ceiling.
    ceiling: u32,
    class: u32,
    /// The order is notified of every packet.
    follows_packets: bool,
    flows: Option<Box<Flows>>,
}

const _: () = assert!(size_of::<Node>() == 64);

impl Node {
    /// Charges the selected child for a sent packet, where `next` is its next one, if any, and selects again. Within
    /// its allowance the child stays selected.
    #[inline(always)]
    fn charge(&mut self, slot: u32, len: Length, next: Option<Charge>) {
        if next.is_none() || !self.order.draw(len) {
            (self.order).charge(slot, len.into(), next, &mut self.selected);
        }
    }
}

/// The properties of a class that packets do not touch.
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
    /// A leaf, its entry in the table of rarely used properties, the amount it may hold before it must check
    /// ([`displace`]), and its pending room and limits ([`wane`]).
    Leaf {
        config: LeafConfig,
        extra: u32,
        soft_limit: Limits,
        due: Option<wane::Due>,
    },
    /// A class with children, in this node.
    Inner { node: u32, children: u32 },
    /// A class of flows, in this node.
    Flows { node: u32 },
}

/// The rarely used properties of a queue: queue management, a ceiling.
#[derive(Clone, Debug)]
struct Extra {
    aqm: Aqm,
    ceiling: u32,
}

/// The packets of one link in the order of a tree of classes.
///
/// `P` is the caller's packet or handle; the tree accesses it only to mark it. One slab holds all packets, with their
/// arrival times. A packet costs the sum of the algorithms on its path; a leaf's queue and its place share a cache
/// line, and a class above costs one more and its entity. Nothing is allocated once the tables have grown to size,
/// except for a new flow with RED, and for the table of flows, which is rebuilt now and then as flows come and go. The
/// classes are numbered; the number of a removed one is used again.
#[derive(Clone)]
pub struct Tree<P> {
    room_bytes: i64,
    places: Vec<Place>,
    nodes: Vec<Node>,
    slab: PacketSlab<(Nanos, P)>,
    ceilings: Ceilings,
    /// The ceiling of the root holds everything.
    root_held: bool,
    extras: Slab<Extra>,
    classes: Vec<Option<Class>>,
    free_classes: Vec<u32>,
    free_nodes: Vec<u32>,
    accepted_bytes: u64,
    limits: SchedulerLimits,
    /// The reservations of all classes together.
    kept: Count,
    measure: Measure,
    /// Leaves and classes of flows, by their excess over their own reservation.
    beyond: Beyond,
    /// Leaves with a pending reduction of room, and classes that were such.
    waning: Vec<u32>,
    /// Which of them was looked at last.
    waned: usize,
    /// Seed of the next queue management that draws numbers.
    seed: u64,
    /// The node whose flows were examined last by `expire_idle`.
    expired: u32,
    /// Marks a packet, if it can be marked; whether it was.
    mark: fn(&mut P) -> bool,
}

/// The tables of a removed class, to be freed when the caller has time: as long as the class had children or flows,
/// which may be megabytes.
#[derive(Debug)]
pub struct Remains {
    _order: Order,
    _flows: Option<Box<Flows>>,
}

/// The remains of a removed class.
///
/// ```
/// use fairlane_core::sched::Algorithm;
/// use fairlane_core::tree::{ClassConfig, ClassId, FlowsConfig, Remains, Removed, Tree};
/// use fairlane_core::{Length, Nanos, Weight};
///
/// let mut link = Tree::new(Algorithm::Qfq, None, Default::default());
/// let config = ClassConfig::new(Weight::ONE, Length::MAX);
/// let hosts = link.add_flows(ClassId::ROOT, config, FlowsConfig::new(Algorithm::Drr))?;
/// for host in 1..=100 {
///     link.enqueue(hosts, host << 32, Length::MAX, "a packet", Nanos::ZERO)?;
/// }
/// link.flush(hosts, Nanos::ZERO, drop)?;
///
/// // Ten of its flows at a time, between packets of other classes.
/// let mut steps = 1;
/// let removed: Removed = loop {
///     match link.go_on_removing(hosts, &mut 10, drop)? {
///         Some(removed) => break removed,
///         None => steps += 1,
///     }
/// };
/// assert!(removed.stats.accepted.packets == 100 && steps > 1);
/// // The caller frees its tables when it has time.
/// let remains: Option<Remains> = removed.remains;
/// drop(remains);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Removed {
    /// Its counts.
    pub stats: ClassStats,
    /// Its tables, if it had any.
    pub remains: Option<Remains>,
}

/// The root's node.
const ROOT: u32 = 0;

impl<P> Tree<P> {
    /// Creates a tree of a root without children, whose `algorithm` will order those. `ceiling` holds all classes
    /// together; of the `limits`, those per flow are not used: each leaf has its own.
    pub fn new(algorithm: Algorithm, ceiling: Option<Ceiling>, limits: SchedulerLimits) -> Self {
        let mut tree = Tree {
            room_bytes: limits.bytes.min(i64::MAX as u64) as i64,
            places: Vec::new(),
            nodes: Vec::new(),
            slab: PacketSlab::new(limits.packets),
            ceilings: Ceilings::default(),
            root_held: false,
            extras: Slab::default(),
            classes: Vec::new(),
            free_classes: Vec::new(),
            free_nodes: Vec::new(),
            accepted_bytes: 0,
            kept: Count::default(),
            measure: Measure::of(limits.packets, limits.bytes),
            beyond: Beyond::default(),
            waning: Vec::new(),
            waned: 0,
            limits,
            seed: 0,
            expired: 0,
            mark: |_| false,
        };
        let config = ClassConfig {
            ceiling,
            ..ClassConfig::new(Weight::ONE, Length::MAX)
        };
        tree.add_node(algorithm, Length::MAX, None, (NONE, NONE));
        tree.nodes[ROOT as usize].ceiling = tree.add_ceiling(ceiling, Length::MAX, (NONE, NONE));
        let body = Body::Inner {
            node: ROOT,
            children: 0,
        };
        tree.register(Class::new(config, Length::MAX, body), Place::NOWHERE);
        tree
    }

    /// Grows the tables ahead of time for `packets` packets.
    pub fn reserve(&mut self, packets: u32) {
        self.slab.reserve(packets);
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

    /// Returns whether the backlog is empty. O(1).
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.slab.is_empty()
    }

    /// Returns how a class is configured, or `None` if there is no such class.
    pub fn config(&self, class: ClassId) -> Option<&ClassConfig> {
        Some(&self.class(class).ok()?.config)
    }
}

impl<P: Payload> Tree<P> {
    /// The same, with packets that queue management may mark: without this it drops those that it would
    /// mark, as of payloads that cannot be marked.
    #[must_use]
    pub fn marking(mut self) -> Self {
        self.mark = P::mark;
        self
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

    /// Returns the queue management of a leaf.
    fn aqm(&self) -> Option<&AqmConfig> {
        match &self.body {
            Body::Leaf { config, .. } => Some(&config.aqm),
            _ => None,
        }
    }
}
