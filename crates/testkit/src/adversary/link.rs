//! The links of scenarios, packet schedulers and trees, and the bounds of their flows.

use fairlane_core::bounds::{Guarantees, Head};
use fairlane_core::sched::Algorithm;
use fairlane_core::scheduler::Violation;
use fairlane_core::tree::{ClassConfig, ClassId, LeafConfig, Tree};
use fairlane_core::{Dequeue, FlowId, Nanos, PacketScheduler, Scheduler, SchedulerLimits};

use super::play::{Link, Next};
use super::scenario::Scenario;
use crate::broken::Sentence;
use crate::guarantee::{Bound, Node, Served};
use crate::numbers::{config, length, weight};

const LIMITS: SchedulerLimits = SchedulerLimits {
    packets: u32::MAX,
    bytes: u64::MAX,
    per_flow: fairlane_core::Limits::NONE,
};

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

/// Returns a tree with the flows of a scenario as its leaves.
pub(super) fn tree(
    root: Algorithm,
    below: Algorithm,
    scenario: &Scenario,
) -> Result<(Box<dyn Link>, Vec<Bound>), String> {
    let (mut nodes, work) = (nodes(root, below, scenario), scenario.work());
    let mut tree = Tree::new(root, None, LIMITS);
    let mut ids = vec![ClassId::ROOT];
    let mut served = vec![Some(Served::link(nodes[0].longest))];
    for (at, class) in scenario.classes.iter().enumerate() {
        let (parent, longest) = (&nodes[class.parent], nodes[at + 1].longest);
        let mut config = ClassConfig::new(weight(class.weight), length(longest));
        let mut has = served[class.parent].and_then(|above| {
            let (share, wfi) = parent.wfi(class.weight, longest, Head::Longest, work)?;
            Some(above.child(share, wfi))
        });
        if let Some((free, percent)) = has.zip(class.ceiling) {
            config.ceiling = free.ceiling(percent, length(longest));
            let below = |ceiling| free.below_ceiling(ceiling, length(longest));
            has = config.ceiling.map_or(Some(free), below);
        }
        served.push(has);
        let added = tree.add_inner(ids[class.parent], config, below);
        ids.push(added.map_err(|error| format!("a class is refused: {error}"))?);
        if let Some(ceiling) = config.ceiling {
            nodes[class.parent].limit(config.weight, config.max_length, ceiling);
        }
    }
    let (mut leaves, mut bounds) = (Vec::new(), Vec::new());
    for senders in &scenario.senders {
        let (above, node) = (served[senders.class], &nodes[senders.class]);
        let bound = Bound::below(above, node, senders.weight, senders.longest, work);
        let config = ClassConfig::new(weight(senders.weight), length(senders.longest));
        for _ in 0..senders.count {
            let added = tree.add_leaf(ids[senders.class], config, LeafConfig::default());
            leaves.push(added.map_err(|error| format!("a class is refused: {error}"))?);
            bounds.push(bound);
        }
    }
    Ok((Box::new(Classes { tree, leaves }), bounds))
}

/// Returns the root and each class, with its children.
fn nodes(root: Algorithm, below: Algorithm, scenario: &Scenario) -> Vec<Node> {
    let mut nodes = vec![Node::new(root)];
    nodes.extend(scenario.classes.iter().map(|_| Node::new(below)));
    for senders in &scenario.senders {
        nodes[senders.class].add(senders.weight, senders.longest, senders.count);
    }
    // A class follows its parent.
    for (at, class) in scenario.classes.iter().enumerate().rev() {
        let longest = nodes[at + 1].longest;
        nodes[class.parent].add(class.weight, longest, 1);
    }
    nodes
}
