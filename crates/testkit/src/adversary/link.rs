//! The links of scenarios, packet schedulers and trees, and the bounds of their flows.

use std::collections::BTreeMap;

use fairlane_core::bounds::{Guarantees, Head, Service, Siblings, Transmit, Wfi, qfq_rounding};
use fairlane_core::sched::Algorithm;
use fairlane_core::scheduler::Violation;
use fairlane_core::tree::{Ceiling, ClassConfig, ClassId, LeafConfig, Tree};
use fairlane_core::{
    Dequeue, FlowId, Length, Nanos, PacketScheduler, Rate, Scheduler, SchedulerLimits, Weight,
};

use super::play::{Link, Next};
use super::scenario::{Scenario, Senders};
use crate::broken::Sentence;
use crate::numbers::{config, length, weight};

/// One byte per nanosecond, in bit/s.
const RATE: u64 = 8_000_000_000;

const LIMITS: SchedulerLimits = SchedulerLimits {
    packets: u32::MAX,
    bytes: u64::MAX,
    per_flow: fairlane_core::Limits::NONE,
};

/// The guarantee of a flow whose packets may arrive while another's is on the wire.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bound {
    /// Part of the link.
    pub rate: f64,
    /// B-WFI in bytes; infinite if none is known.
    pub service: f64,
    /// T-WFI in bytes of the link.
    pub delay: f64,
    /// Guaranteed-rate latency in bytes of the link.
    pub latency: f64,
}

/// Returns a link for a scenario, and the bound of each flow.
pub(super) type Build = dyn Fn(&Scenario) -> Result<(Box<dyn Link>, Vec<Bound>), String>;

struct Flat<A: Scheduler>(PacketScheduler<A, ()>);

impl<A: Scheduler> Link for Flat<A> {
    fn enqueue(&mut self, flow: usize, bytes: u32, _: u64) -> Sentence {
        let outcome = self.0.enqueue(FlowId::new(flow as u32), length(bytes), ());
        outcome.map_err(|rejected| format!("a packet of flow {flow} is rejected: {rejected:?}"))
    }

    fn dequeue(&mut self, _: u64) -> Next {
        match self.0.dequeue() {
            Some(packet) => Next::Packet(packet.owner.number() as usize, packet.len.get()),
            None => Next::Empty,
        }
    }

    fn invariants(&self) -> Result<(), Violation> {
        self.0.invariants()
    }
}

/// Returns a packet scheduler with the flows of a scenario.
pub(super) fn flat<A: Scheduler + 'static>(
    algorithm: A,
    scenario: &Scenario,
    guarantees: Algorithm,
) -> Result<(Box<dyn Link>, Vec<Bound>), String> {
    let mut link = PacketScheduler::new(algorithm, LIMITS);
    let mut configs = Vec::with_capacity(scenario.flows() as usize);
    for senders in &scenario.senders {
        let config = config(senders.weight, senders.longest);
        for _ in 0..senders.count {
            link.add_flow(config)
                .map_err(|error| format!("a flow is refused: {error}"))?;
            configs.push(config);
        }
    }
    let promised = Guarantees::new(guarantees, &configs, scenario.work());
    let sum: f64 = configs.iter().map(|c| f64::from(c.weight.get())).sum();
    let mut bounds = Vec::with_capacity(configs.len());
    for senders in &scenario.senders {
        let wfi = promised.of(&config(senders.weight, senders.longest));
        let bound = Bound::of(f64::from(senders.weight) / sum, wfi);
        bounds.extend((0..senders.count).map(|_| bound));
    }
    Ok((Box::new(Flat(link)), bounds))
}

impl Bound {
    fn of(rate: f64, wfi: Option<Wfi>) -> Bound {
        let of = |index: Option<f64>| index.unwrap_or(f64::INFINITY);
        Bound {
            rate,
            service: of(wfi.filter(|wfi| wfi.strict).map(|wfi| wfi.service.bytes())),
            delay: of(wfi.map(|wfi| wfi.delay.bytes())),
            latency: of(wfi.map(|wfi| wfi.latency.bytes())),
        }
    }
}

struct Classes {
    tree: Tree<usize>,
    /// The leaf of each flow.
    leaves: Vec<ClassId>,
}

impl Link for Classes {
    fn enqueue(&mut self, flow: usize, bytes: u32, now: u64) -> Sentence {
        let leaf = self.leaves[flow];
        let outcome = self.tree.enqueue(leaf, 0, length(bytes), flow, Nanos(now));
        outcome.map_err(|rejected| format!("a packet of flow {flow} is rejected: {rejected:?}"))
    }

    fn dequeue(&mut self, now: u64) -> Next {
        match self.tree.dequeue(Nanos(now), drop) {
            Dequeue::Packet(packet) => Next::Packet(packet.payload, packet.len.get()),
            Dequeue::NotBefore(time) => Next::NotBefore(time.0),
            Dequeue::Empty => Next::Empty,
        }
    }

    fn invariants(&self) -> Result<(), Violation> {
        self.tree.invariants()
    }
}

/// The guarantee of a class, and its part of the link.
#[derive(Clone, Copy)]
struct Served {
    service: Service,
    rate: f64,
}

/// A node of the tree, with its children by weight and longest packet.
struct Node {
    algorithm: Algorithm,
    id: ClassId,
    longest: u32,
    children: BTreeMap<(Weight, Length), u32>,
    /// The children with ceilings.
    ceilings: Vec<(Weight, Length, Ceiling)>,
}

impl Node {
    fn siblings(&self) -> Siblings {
        let children = self.children.iter();
        let children = children.map(|(&(weight, length), &count)| (weight, length, count));
        let ceilings = self.ceilings.iter();
        let ceilings = ceilings
            .map(|&(weight, length, Ceiling { rate, burst })| (weight, length, rate, burst));
        Siblings::new(self.algorithm, children).with_ceilings(ceilings)
    }

    /// Returns share and indexes of a child, with the rounding for an amount of work.
    fn wfi(&self, of: u32, longest: u32, head: Head, work: u64) -> Option<(f64, Wfi)> {
        let siblings = self.siblings();
        let (weight, length) = (weight(of), length(longest));
        let wfi = siblings.bound(weight, length, head, Transmit::Between)?;
        let terms = siblings.terms(weight, length, Transmit::Between)?;
        Some((terms.share(), wfi + qfq_rounding(&terms, work)))
    }
}

/// Returns a tree with the flows of a scenario as its leaves.
pub(super) fn tree(
    root: Algorithm,
    below: Algorithm,
    scenario: &Scenario,
) -> Result<(Box<dyn Link>, Vec<Bound>), String> {
    let (mut nodes, work) = (nodes(root, below, scenario), scenario.work());
    let mut tree = Tree::new(root, None, LIMITS);
    let rate = Rate::from_bps(RATE).ok_or("the rate is out of range")?;
    let link = Served {
        service: Service::of_link(rate, length(nodes[0].longest)),
        rate: 1.0,
    };
    let mut served = vec![Some(link)];
    for (at, class) in scenario.classes.iter().enumerate() {
        let (parent, longest) = (&nodes[class.parent], nodes[at + 1].longest);
        let mut config = ClassConfig::new(weight(class.weight), length(longest));
        let above = served[class.parent];
        let mut has = above.and_then(|above| {
            let (share, wfi) = parent.wfi(class.weight, longest, Head::Longest, work)?;
            Some(Served {
                service: above.service.child(share, wfi),
                rate: above.rate * share,
            })
        });
        if let Some((free, percent)) = has.zip(class.ceiling) {
            (config.ceiling, has) = below_ceiling(free, percent, length(longest));
        }
        served.push(has);
        let added = tree.add_inner(parent.id, config, below);
        nodes[at + 1].id = added.map_err(|error| format!("a class is refused: {error}"))?;
        if let Some(ceiling) = config.ceiling {
            let limited = (config.weight, config.max_length, ceiling);
            nodes[class.parent].ceilings.push(limited);
        }
    }
    let (mut leaves, mut bounds) = (Vec::new(), Vec::new());
    for senders in &scenario.senders {
        let node = &nodes[senders.class];
        let bound = Bound::below(served[senders.class], node, senders, work);
        let config = ClassConfig::new(weight(senders.weight), length(senders.longest));
        for _ in 0..senders.count {
            let added = tree.add_leaf(node.id, config, LeafConfig::default());
            leaves.push(added.map_err(|error| format!("a class is refused: {error}"))?);
            bounds.push(bound);
        }
    }
    Ok((Box::new(Classes { tree, leaves }), bounds))
}

/// Returns the root and each class, with its children.
fn nodes(root: Algorithm, below: Algorithm, scenario: &Scenario) -> Vec<Node> {
    let node = |algorithm| Node {
        algorithm,
        id: ClassId::ROOT,
        longest: 1,
        children: BTreeMap::new(),
        ceilings: Vec::new(),
    };
    let mut nodes = vec![node(root)];
    nodes.extend(scenario.classes.iter().map(|_| node(below)));
    for senders in &scenario.senders {
        let node = &mut nodes[senders.class];
        node.longest = node.longest.max(senders.longest);
        let key = (weight(senders.weight), length(senders.longest));
        *node.children.entry(key).or_default() += senders.count;
    }
    // A class follows its parent.
    for (at, class) in scenario.classes.iter().enumerate().rev() {
        let longest = nodes[at + 1].longest;
        let parent = &mut nodes[class.parent];
        parent.longest = parent.longest.max(longest);
        let key = (weight(class.weight), length(longest));
        *parent.children.entry(key).or_default() += 1;
    }
    nodes
}

/// Returns a ceiling in percent of the guaranteed rate of a class, with the smallest burst that preserves the rest of
/// its guarantee.
fn below_ceiling(free: Served, percent: u32, longest: Length) -> (Option<Ceiling>, Option<Served>) {
    let bps = (free.rate * RATE as f64 * f64::from(percent) / 100.0) as u64;
    let Some(rate) = Rate::from_bps(bps.min(RATE)) else {
        return (None, Some(free));
    };
    let burst = free.service.burst_for(rate, longest);
    let below = free.service.below_ceiling(rate, burst, longest);
    let has = below.map(|service| Served {
        service,
        rate: free.rate.min(rate.bps() as f64 / RATE as f64),
    });
    (Some(Ceiling { rate, burst }), has)
}

impl Bound {
    /// Returns the bound of a flow of these senders below a node that is served as `above`.
    fn below(above: Option<Served>, node: &Node, senders: &Senders, work: u64) -> Bound {
        let (of, longest) = (senders.weight, senders.longest);
        let within = node.wfi(of, longest, Head::Known, work);
        let Some((above, (share, wfi))) = above.zip(within) else {
            return Bound::of(1.0, None);
        };
        let bound = Bound::of_child(above.rate * share, above.service, share, wfi);
        let siblings = node.siblings();
        let child = (weight(of), length(longest), Head::Known);
        let Some((left, share, wfi)) = siblings.residual(above.service, child, None) else {
            return bound;
        };
        let terms = siblings.terms(child.0, child.1, Transmit::Between);
        let rounding = terms.map(|terms| {
            // It includes the indexes of all siblings.
            let all: u32 = node.children.values().sum();
            qfq_rounding(&terms, work * u64::from(all))
        });
        let wfi = rounding.map_or(wfi, |rounding| wfi + rounding);
        let other = Bound::of_child(bound.rate, left, share, wfi);
        Bound {
            rate: bound.rate,
            service: bound.service.min(other.service),
            delay: bound.delay.min(other.delay),
            latency: bound.latency.min(other.latency),
        }
    }

    /// Returns the bound of a flow with this share and these indexes in a node served as `service`. `rate` is at most
    /// the flow's guaranteed rate.
    fn of_child(rate: f64, service: Service, share: f64, wfi: Wfi) -> Bound {
        Bound {
            rate,
            service: service.child(share, wfi).lag().bytes(),
            delay: service.delay_below(share, wfi, 0).0 as f64,
            latency: service.conforming_delay(share, wfi, 0).0 as f64,
        }
    }
}
