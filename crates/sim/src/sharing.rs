//! Two agencies share a link: the experiment of Cho's paper on ALTQ (USENIX 1998, Section 4.5,
//! Figs. 12 to 15).
//!
//! Each agency has a class of interactive traffic, of high priority, and one of bulk traffic. All
//! four try to fill the link, except for an idle time of each. An agency should have its share of
//! the link all the time: what one of its classes leaves, the other gets. With CBQ, the paper's
//! *class-4*, of high priority and a small share, got more than its share while it competed with
//! its sibling, and less so with equal priorities.
//!
//! The paper's figures give no numbers in its text; the shares and times here are our own.

use crate::class_meter::ClassMeter;
use crate::link::TransmitQueue;
use crate::simulation::{ClassPacket, ClassSource, Simulation};
use crate::source::{Lengths, Traffic};
use crate::time::Picos;
use fairlane_core::sched::Algorithm;
use fairlane_core::tree::cbq::{Cbq, CbqClass, CbqError};
use fairlane_core::tree::{ClassConfig, ClassId, ClassQueue, LeafConfig, Tree, TreeError};
use fairlane_core::{Length, Rate, Weight};

/// A leaf of the experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// The paper's name.
    pub name: &'static str,
    /// Its agency: 0 for X, 1 for Y.
    pub agency: usize,
    /// Its share of the link, in percent.
    pub percent: u32,
    /// Whether it is interactive, which is of high priority.
    pub interactive: bool,
    /// While it has nothing to send, in seconds.
    pub idle: (u64, u64),
}

/// The leaves, by agency. Class-2 was the root's default class, which is unused here.
pub const LEAVES: [Leaf; 4] = [
    Leaf::new("class-0", 0, 40, false, (4, 8)),
    Leaf::new("class-1", 0, 20, true, (10, 14)),
    Leaf::new("class-3", 1, 30, false, (16, 20)),
    Leaf::new("class-4", 1, 10, true, (22, 26)),
];

impl Leaf {
    const fn new(
        name: &'static str,
        agency: usize,
        percent: u32,
        interactive: bool,
        idle: (u64, u64),
    ) -> Leaf {
        Leaf {
            name,
            agency,
            percent,
            interactive,
            idle,
        }
    }
}

/// Names of the agencies.
pub const AGENCIES: [&str; 2] = ["X", "Y"];

/// Length of all packets.
pub const LENGTH: Length = Length::new(1500).unwrap();

/// Packets that each class keeps in its queue.
pub const WINDOW: u32 = 32;

/// How long the experiment lasts, in seconds.
pub const SECONDS: u64 = 30;

/// Share of an agency, in percent of the link.
pub fn percent_of(agency: usize) -> u32 {
    let leaves = LEAVES.iter().filter(|leaf| leaf.agency == agency);
    leaves.map(|leaf| leaf.percent).sum()
}

/// Returns whether a leaf has something to send at a time.
fn is_busy(leaf: &Leaf, second: f64) -> bool {
    !(leaf.idle.0 as f64..leaf.idle.1 as f64).contains(&second)
}

/// Returns a leaf's share at a time, in percent of the link: its agency's share, divided in
/// proportion among those of its classes that are backlogged. At no time is a whole agency idle.
pub fn entitled(leaf: usize, second: f64) -> f64 {
    let Leaf {
        agency, percent, ..
    } = LEAVES[leaf];
    let busy = |other: &&Leaf| other.agency == agency && is_busy(other, second);
    let sum: u32 = LEAVES.iter().filter(busy).map(|leaf| leaf.percent).sum();
    if !is_busy(&LEAVES[leaf], second) || sum == 0 {
        return 0.0;
    }
    f64::from(percent_of(agency)) * f64::from(percent) / f64::from(sum)
}

fn part(rate: Rate, percent: u32) -> Rate {
    Rate::from_bps(rate.bps() * u64::from(percent) / 100).unwrap_or(Rate::MIN)
}

/// Returns the agencies under CBQ; with `priorities`, the interactive classes go first (Fig. 14),
/// else all are equal (Fig. 15). Returns the queue and its leaves, in the order of [`LEAVES`].
pub fn cbq(rate: Rate, priorities: bool) -> Result<(Cbq<ClassPacket>, [ClassId; 4]), CbqError> {
    let class_of = |rate| CbqClass::new(rate, LENGTH);
    let mut cbq = Cbq::new(rate, Default::default()).marking();
    let mut agencies = [ClassId::ROOT; 2];
    for (agency, class) in agencies.iter_mut().enumerate() {
        let config = class_of(part(rate, percent_of(agency)));
        *class = cbq.add_inner(ClassId::ROOT, config)?;
    }
    let mut leaves = [ClassId::ROOT; 4];
    for (leaf, class) in LEAVES.iter().zip(&mut leaves) {
        let config = CbqClass {
            priority: u32::from(priorities && leaf.interactive),
            ..class_of(part(rate, leaf.percent))
        };
        *class = cbq.add_leaf(agencies[leaf.agency], config, LeafConfig::default())?;
    }
    Ok((cbq, leaves))
}

/// Returns the agencies as a class tree, with `algorithm` at both levels. Also returns its
/// leaves, in the order of [`LEAVES`].
pub fn tree(algorithm: Algorithm) -> Result<(Tree<ClassPacket>, [ClassId; 4]), TreeError> {
    let weight = |percent| ClassConfig::new(Weight::new(percent).unwrap_or(Weight::ONE), LENGTH);
    let mut tree = Tree::new(algorithm, None, Default::default()).marking();
    let mut agencies = [ClassId::ROOT; 2];
    for (agency, class) in agencies.iter_mut().enumerate() {
        *class = tree.add_inner(ClassId::ROOT, weight(percent_of(agency)), algorithm)?;
    }
    let mut leaves = [ClassId::ROOT; 4];
    for (leaf, class) in LEAVES.iter().zip(&mut leaves) {
        let above = agencies[leaf.agency];
        *class = tree.add_leaf(above, weight(leaf.percent), LeafConfig::default())?;
    }
    Ok((tree, leaves))
}

/// Returns the sources: each leaf keeps [`WINDOW`] packets in its queue, except for its idle time,
/// like a TCP sender with much data; and like one, it retransmits a packet that waits for more than
/// 200 ms.
pub fn sources(leaves: [ClassId; 4]) -> [ClassSource; 4] {
    let at = Picos::from_secs;
    core::array::from_fn(|leaf| {
        let (from, until) = LEAVES[leaf].idle;
        let lengths = Lengths::Fixed(LENGTH);
        ClassSource {
            active: vec![at(0)..at(from), at(until)..at(SECONDS)],
            patience: Some(Picos::from_millis(200)),
            ..ClassSource::new(leaves[leaf].into(), Traffic::Greedy(WINDOW), lengths)
        }
    })
}

/// Runs the experiment and measures each class's throughput in every `interval`.
pub fn run(
    queue: impl ClassQueue<ClassPacket>,
    leaves: [ClassId; 4],
    rate: Rate,
    interval: Picos,
) -> ClassMeter {
    let meter = ClassMeter::new(interval);
    let mut simulation = Simulation::of_classes(queue, rate, TransmitQueue::NONE, meter, 1);
    for source in sources(leaves) {
        // Greedy sources of one length have no parameters that could be refused.
        let added = simulation.add_source(source);
        debug_assert!(added.is_ok());
    }
    simulation.run_until(Picos::from_secs(SECONDS));
    simulation.into_observer()
}
