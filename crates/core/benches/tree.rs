//! The cost of a class tree: packets through three levels compared with one level, and dynamic flows.
//!
//! Without arguments, prints the time of a packet in and a packet out for 512 leaves under eight classes of eight
//! classes, and for the same 512 flows in a flat [`PacketScheduler`], and the cost of a million dynamic flows. With the
//! arguments `qfq flat 100000`, or `1`, `2` or `3` (levels of a tree) or `nothing` instead of `flat`, it only makes
//! that many pairs, for a tool that counts instructions. A fourth argument, `equal`, gives all the same weight. With
//! `qfq flows`, or `qfq reserved` where the tables are made for them ahead of time, it only creates the dynamic flows:
//! a separate process measures their cost without the remains of other runs.

use std::hint::black_box;
use std::num::NonZeroU32;
use std::time::Instant;

use fairlane_core::Dequeue;
use fairlane_core::sched::Algorithm;
use fairlane_core::tree::{ClassConfig, ClassId, FlowsConfig, LeafConfig, Tree};
use fairlane_core::{
    FlowConfig, FlowId, Length, Nanos, PacketScheduler, Scheduler, SchedulerLimits, Weight, sched,
};

/// Children of each class, in three levels.
const WIDTH: u32 = 8;
const LEAVES: u32 = WIDTH * WIDTH * WIDTH;
/// Packets that each leaf holds.
const DEPTH: u32 = 2;
const LONGEST: Length = Length::new(1500).unwrap();

/// A queue under test: takes a packet for a leaf, gives the next one's leaf and length.
trait Link {
    fn enqueue(&mut self, leaf: u32, len: Length);
    fn dequeue(&mut self) -> u32;
}

/// The driver's own cost: leaves take turns.
struct Nothing(u32);

impl Link for Nothing {
    #[inline(never)]
    fn enqueue(&mut self, leaf: u32, len: Length) {
        black_box((leaf, len));
    }

    #[inline(never)]
    fn dequeue(&mut self) -> u32 {
        self.0 = (self.0 + 1) % LEAVES;
        black_box(self.0)
    }
}

struct Flat<A: Scheduler>(PacketScheduler<A, u32>);

impl<A: Scheduler> Flat<A> {
    fn new(algorithm: A) -> Self {
        let mut link = PacketScheduler::new(algorithm, SchedulerLimits::default());
        for n in 0..LEAVES {
            let config = FlowConfig::new(weight(n), LONGEST);
            link.add_flow(config).unwrap();
        }
        Flat(link)
    }
}

impl<A: Scheduler> Link for Flat<A> {
    #[inline(never)]
    fn enqueue(&mut self, leaf: u32, len: Length) {
        self.0.enqueue(FlowId::new(leaf), len, leaf).unwrap();
    }

    #[inline(never)]
    fn dequeue(&mut self) -> u32 {
        let packet = self.0.dequeue().expect("every flow is backlogged");
        packet.payload
    }
}

/// A leaf's number counts from the first class that is one.
struct Classes {
    tree: Tree<u32>,
    first: u32,
}

impl Classes {
    fn new(algorithm: Algorithm, levels: u32) -> Self {
        let mut tree = Tree::new(algorithm, None, SchedulerLimits::default());
        let config = |n| ClassConfig::new(weight(n), LONGEST);
        let mut parents = vec![ClassId::ROOT];
        for _ in 1..levels {
            let below = parents
                .iter()
                .flat_map(|&parent| (0..WIDTH).map(move |n| (parent, n)));
            parents = below
                .map(|(parent, n)| tree.add_inner(parent, config(n), algorithm).unwrap())
                .collect();
        }
        let first = tree.classes().count() as u32;
        for n in 0..LEAVES {
            let parent = parents[n as usize % parents.len()];
            let number = n / parents.len() as u32;
            let leaf = tree.add_leaf(parent, config(number), LeafConfig::default());
            leaf.unwrap();
        }
        Classes { tree, first }
    }
}

impl Link for Classes {
    // `Tree::enqueue` is called, as the functions of the others are.
    #[inline(always)]
    fn enqueue(&mut self, leaf: u32, len: Length) {
        let class = ClassId::new(self.first + leaf);
        self.tree.enqueue(class, 0, len, leaf, Nanos::ZERO).unwrap();
    }

    #[inline(never)]
    fn dequeue(&mut self) -> u32 {
        match self.tree.dequeue(Nanos::ZERO, |_| {}) {
            Dequeue::Packet(packet) => packet.payload,
            other => panic!("every leaf is backlogged: {other:?}"),
        }
    }
}

/// Weights from 1 to 8, or all the same.
fn weight(n: u32) -> Weight {
    match std::env::args().next_back().as_deref() {
        Some("equal") => Weight::ONE,
        _ => Weight::new(1 + n % WIDTH).unwrap(),
    }
}

/// Fills every leaf.
fn fill(link: &mut impl Link, lengths: &mut Lengths) {
    for _ in 0..DEPTH {
        for leaf in 0..LEAVES {
            link.enqueue(leaf, lengths.next());
        }
    }
}

/// Sends packets, each of which another replaces.
#[inline(never)]
fn pairs(link: &mut impl Link, lengths: &mut Lengths, pairs: u32) {
    for _ in 0..pairs {
        let leaf = link.dequeue();
        link.enqueue(leaf, lengths.next());
    }
}

/// Lengths from short to long, the same in every run.
struct Lengths(u32);

impl Lengths {
    #[inline]
    fn next(&mut self) -> Length {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        Length::new(64 + (self.0 >> 16) % 1_437).unwrap_or(LONGEST)
    }
}

/// Nanoseconds of a pair, the best of five runs.
fn time(link: &mut impl Link, count: u32) -> f64 {
    let mut lengths = Lengths(1);
    fill(link, &mut lengths);
    let run = |_| {
        let start = Instant::now();
        pairs(link, &mut lengths, count);
        start.elapsed().as_nanos() as f64 / f64::from(count)
    };
    (0..5).map(run).fold(f64::INFINITY, f64::min)
}

/// Makes `number` pairs after the leaves were filled.
fn count(mut link: impl Link, number: u32) {
    let mut lengths = Lengths(1);
    fill(&mut link, &mut lengths);
    pairs(&mut link, &mut lengths, number);
}

/// Evaluates an expression with `$algorithm` as the flat algorithm of this name.
macro_rules! named {
    ($name:expr, $algorithm:ident => $body:expr) => {
        match $name {
            "qfq" => {
                let $algorithm = sched::Qfq::new();
                $body
            }
            "qfq+" => {
                let $algorithm = sched::Plus::<sched::Qfq>::new(MEMBERS);
                $body
            }
            "drr" => {
                let $algorithm = sched::Drr::new();
                $body
            }
            "wf2q+" => {
                let $algorithm = sched::Wf2qPlus::new();
                $body
            }
            other => panic!("{other}: one of {NAMES:?}"),
        }
    };
}

const MEMBERS: NonZeroU32 = sched::AUTOMATIC_MEMBERS;
const NAMES: [&str; 4] = ["qfq", "qfq+", "drr", "wf2q+"];

fn compare(count: u32) {
    for name in NAMES {
        let algorithm: Algorithm = name.parse().unwrap();
        let own = time(&mut Nothing(0), count);
        let flat = named!(name, algorithm => time(&mut Flat::new(algorithm), count)) - own;
        print!("{name:6} {LEAVES} flows, a pair: flat {flat:.1} ns");
        for levels in 1..=3 {
            let tree = time(&mut Classes::new(algorithm, levels), count) - own;
            print!(", {levels} levels {tree:.1} ns ({:.2}x)", tree / flat);
        }
        println!("; the driver's {own:.1} ns taken off");
    }
}

/// Returns the resident memory of this process in bytes, where the system reports it.
fn resident() -> Option<usize> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: usize = statm.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * 4096)
}

/// Returns the processor time of this process in nanoseconds, to a hundredth of a second, where the system reports it.
fn processor_time() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    let ticks = |n| fields.split_whitespace().nth(n)?.parse::<f64>().ok();
    Some((ticks(11)? + ticks(12)?) * 1e7)
}

/// Returns a tree with one class for `number` flows.
fn of_flows(algorithm: Algorithm, number: u32, reserved: bool) -> (Tree<u32>, ClassId) {
    let limits = SchedulerLimits {
        bytes: u64::MAX,
        ..SchedulerLimits::default()
    };
    let mut tree: Tree<u32> = Tree::new(Algorithm::Qfq, None, limits);
    let class = ClassConfig::new(Weight::ONE, LONGEST);
    let config = FlowsConfig {
        most: number,
        forget_after: Nanos::MAX,
        ..FlowsConfig::new(algorithm)
    };
    let class = tree.add_flows(ClassId::ROOT, class, config).unwrap();
    if reserved {
        tree.reserve_flows(class, number as usize);
    }
    (tree, class)
}

/// Creates flows by their first packets: measures the memory of an idle one, with tables that grew or that were
/// `reserved`, and the time to create one.
fn flows(algorithm: Algorithm, number: u32, reserved: bool) {
    let put = |tree: &mut Tree<u32>, class: ClassId, n: u32| {
        let digest = u64::from(n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let now = Nanos(n.into());
        tree.enqueue(class, digest, LONGEST, n, now).unwrap();
    };
    let before = resident();
    let (mut tree, class) = of_flows(algorithm, number, reserved);
    for n in 0..number {
        put(&mut tree, class, n);
        black_box(tree.dequeue(Nanos(n.into()), |_| {}));
    }
    let stats = tree.stats(class).unwrap();
    assert_eq!(stats.flows, number.into());
    let bytes = match (before, resident()) {
        (Some(before), Some(after)) => {
            let each = after.saturating_sub(before) as f64 / f64::from(number);
            format!("{each:.1} bytes each, all counted")
        }
        _ => "memory use is unknown on this system".to_owned(),
    };
    drop(tree);
    let (mut tree, class) = of_flows(algorithm, number, reserved);
    tree.reserve(number);
    let mut fill = || {
        let start = processor_time();
        for n in 0..number {
            put(&mut tree, class, n);
        }
        let end = processor_time();
        while let Dequeue::Packet(packet) = tree.dequeue(Nanos::ZERO, |_| {}) {
            black_box(packet);
        }
        Some((end? - start?) / f64::from(number))
    };
    let (made, found) = (fill(), fill());
    println!(
        "{algorithm:6} {number} dynamic flows: {bytes}; a packet gets in within {:.0} ns of \
         processor time where it makes its flow, {:.0} ns where it finds it idle",
        made.unwrap_or(f64::NAN),
        found.unwrap_or(f64::NAN)
    );
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [name, what, number, ..] = arguments.as_slice() {
        let number = number.parse().unwrap();
        let algorithm: Algorithm = name.parse().unwrap();
        return match what.as_str() {
            "nothing" => count(Nothing(0), number),
            "flat" => named!(name.as_str(), algorithm => count(Flat::new(algorithm), number)),
            "1" | "2" | "3" => count(Classes::new(algorithm, what.parse().unwrap()), number),
            other => panic!("{other}: one of nothing, flat, 1, 2, 3"),
        };
    }
    let small = arguments.iter().any(|argument| argument == "--test");
    if let [name, what] = arguments.as_slice()
        && (what == "flows" || what == "reserved")
    {
        return flows(name.parse().unwrap(), 1_000_000, what == "reserved");
    }
    compare(if small { 1 << 10 } else { 1 << 20 });
    for algorithm in [Algorithm::Drr, Algorithm::Qfq, Algorithm::QfqPlus(MEMBERS)] {
        flows(algorithm, if small { 1 << 10 } else { 1_000_000 }, false);
    }
}
