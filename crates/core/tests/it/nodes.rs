//! Every algorithm at an inner node, over every other at the leaves: two levels built from the contract alone. A node
//! is an entity of the root, which is notified when it becomes backlogged, of its charges, and when it becomes idle.

use std::collections::VecDeque;

use crate::support::{Random, length, weight};
use fairlane_core::sched::{
    Drr, Fifo, Gfq, Plus, Priority, Qfq, SKps, Scfq, Sfq, Wf2q, Wf2qPlus, Wfq,
};
use fairlane_core::scheduler::{EntityId, Scheduler, Share};
use fairlane_core::{Charge, Length};

fn id(index: usize) -> EntityId {
    EntityId::new(index).unwrap()
}

/// Flows of equal weight, as one entity of the root.
struct Node<B: Scheduler> {
    algorithm: B,
    entities: Vec<B::Entity>,
    queues: Vec<VecDeque<Length>>,
}

impl<B: Scheduler> Node<B> {
    fn new(mut algorithm: B, flows: usize, max_length: u32) -> Self {
        let mut entities = vec![B::Entity::default(); flows];
        for flow in 0..flows {
            let share = Share::new(weight(1), length(max_length));
            algorithm.add(&mut entities, id(flow), share);
        }
        Node {
            algorithm,
            entities,
            queues: vec![VecDeque::new(); flows],
        }
    }

    fn push(&mut self, flow: usize, len: Length) {
        self.queues[flow].push_back(len);
        if self.queues[flow].len() == 1 {
            self.algorithm
                .backlogged(&mut self.entities, id(flow), len.into());
        }
        self.algorithm
            .arrived(&mut self.entities, id(flow), len.into());
    }

    /// The length of the packet that would leave next.
    fn head(&mut self) -> Option<Length> {
        loop {
            let selected = self.algorithm.select(&self.entities).get()?;
            match self.queues[selected.index()].front() {
                Some(&len) => return Some(len),
                None => self.algorithm.idle(&mut self.entities, selected),
            }
        }
    }

    /// Sends the packet that `head` returned.
    fn pop(&mut self) -> (usize, Length) {
        let flow = self.algorithm.select(&self.entities);
        let flow = flow.get().expect("it has a head");
        let queue = &mut self.queues[flow.index()];
        let len = queue.pop_front().expect("it has a head");
        let next = queue.front().map(|&len| Charge::from(len));
        self.algorithm.served(len.into());
        self.algorithm
            .reschedule(&mut self.entities, flow, len.into(), next);
        (flow.index(), len)
    }
}

struct Tree<A: Scheduler, B: Scheduler> {
    root: A,
    entities: Vec<A::Entity>,
    nodes: Vec<Node<B>>,
}

impl<A: Scheduler, B: Scheduler> Tree<A, B> {
    fn push(&mut self, node: usize, flow: usize, len: Length) {
        let child = &mut self.nodes[node];
        child.push(flow, len);
        // A new packet may come before those that wait, with another length.
        let head = child.head().expect("a packet has just come");
        self.root
            .backlogged(&mut self.entities, id(node), head.into());
        self.root.arrived(&mut self.entities, id(node), len.into());
    }

    fn pop(&mut self) -> Option<(usize, usize, Length)> {
        let node = self.root.select(&self.entities).get()?;
        let child = &mut self.nodes[node.index()];
        child.head().expect("no node here loses packets");
        let (flow, len) = child.pop();
        let next = child.head().map(Charge::from);
        self.root.served(len.into());
        self.root
            .reschedule(&mut self.entities, node, len.into(), next);
        Some((node.index(), flow, len))
    }

    fn check(&self) {
        let at_root = self.root.invariants(&self.entities);
        at_root.unwrap_or_else(|violation| panic!("{} over {}: {violation}", A::NAME, B::NAME));
        for child in &self.nodes {
            let at_node = child.algorithm.invariants(&child.entities);
            at_node
                .unwrap_or_else(|violation| panic!("{} under {}: {violation}", B::NAME, A::NAME));
        }
    }
}

const WEIGHTS: [u32; 3] = [1, 2, 5];
const FLOWS: usize = 4;
const MTU: u32 = 1500;

fn tree<A: Scheduler, B: Scheduler>(root: fn() -> A, leaf: fn() -> B) -> Tree<A, B> {
    let mut root = root();
    let mut entities = vec![A::Entity::default(); WEIGHTS.len()];
    for (node, of_weight) in WEIGHTS.into_iter().enumerate() {
        root.add(
            &mut entities,
            id(node),
            Share::new(weight(of_weight), length(MTU)),
        );
    }
    let nodes = WEIGHTS.map(|_| Node::new(leaf(), FLOWS, MTU));
    Tree {
        root,
        entities,
        nodes: nodes.into(),
    }
}

/// Packets come and go at random until all have left: none is lost, each flow's in order.
fn loses_nothing<A: Scheduler, B: Scheduler>(root: fn() -> A, leaf: fn() -> B) {
    let mut tree = tree(root, leaf);
    let mut random = Random(7);
    let mut sent = [[0u64; FLOWS]; WEIGHTS.len()];
    let mut received = sent;
    for round in 0..300 {
        for _ in 0..random.below(3) {
            let (node, flow) = (random.below(3) as usize, random.below(4) as usize);
            let bytes = 1 + random.below(MTU);
            sent[node][flow] += u64::from(bytes);
            tree.push(node, flow, length(bytes));
        }
        if let Some((node, flow, len)) = tree.pop() {
            received[node][flow] += u64::from(len.get());
        }
        if round % 4 == 0 {
            tree.check();
        }
    }
    while let Some((node, flow, len)) = tree.pop() {
        received[node][flow] += u64::from(len.get());
    }
    tree.check();
    assert_eq!(sent, received, "{} over {}", A::NAME, B::NAME);
}

/// Where all are backlogged, nodes share by weight, and the flows of each evenly.
fn shares_alike<A: Scheduler, B: Scheduler>(root: fn() -> A, leaf: fn() -> B) {
    let mut tree = tree(root, leaf);
    let mut random = Random(3);
    let mut bytes = move || length(200 + random.below(MTU - 199));
    for node in 0..WEIGHTS.len() {
        for flow in 0..FLOWS {
            for _ in 0..3 {
                tree.push(node, flow, bytes());
            }
        }
    }
    let mut served = [[0u64; FLOWS]; WEIGHTS.len()];
    for _ in 0..8_000 {
        let (node, flow, len) = tree.pop().expect("all are backlogged");
        served[node][flow] += u64::from(len.get());
        tree.push(node, flow, bytes());
    }
    let total: u64 = served.iter().flatten().sum();
    let sum: u32 = WEIGHTS.iter().sum();
    for (of_node, of_weight) in served.iter().zip(WEIGHTS) {
        let fair = total as f64 * f64::from(of_weight) / f64::from(sum) / FLOWS as f64;
        for &of_flow in of_node {
            let off = of_flow as f64 / fair - 1.0;
            assert!(off.abs() < 0.04, "{} over {}: {served:?}", A::NAME, B::NAME);
        }
    }
}

/// Runs `$test` with each of some algorithms at the root over each at the leaves.
macro_rules! for_all_pairs {
    ($test:ident: [$($root:expr),+] over $leaves:tt) => {
        $(for_all_pairs!(@ $test: $root, $leaves);)+
    };
    (@ $test:ident: $root:expr, [$($leaf:expr),+]) => {
        $($test(|| $root, || $leaf);)+
    };
}

#[test]
fn a_hierarchy_of_any_two_loses_nothing() {
    for_all_pairs!(loses_nothing:
        [
            Drr::new(), Qfq::new(), Plus::<Qfq>::default(), Wf2qPlus::new(), Gfq::new(),
            SKps::new(), Scfq::new(), Priority::new(), Wf2q::new(), Wfq::new(), Fifo::new(), Sfq::new()
        ] over [
            Fifo::new(), Drr::new(), Qfq::new(), Plus::<Qfq>::default(), Wf2qPlus::new(),
            Gfq::new(), SKps::new(), Scfq::new(), Priority::new(), Sfq::new(), Wf2q::new(), Wfq::new()
        ]
    );
}

#[test]
fn a_hierarchy_of_any_two_fair_ones_is_fair_at_both_levels() {
    for_all_pairs!(shares_alike:
        [
            Drr::new(), Qfq::new(), Plus::<Qfq>::default(), Wf2qPlus::new(), Gfq::new(),
            SKps::new(), Scfq::new(), Wf2q::new()
        ] over [
            Drr::new(), Qfq::new(), Plus::<Qfq>::default(), Wf2qPlus::new(), Gfq::new(),
            SKps::new(), Scfq::new(), Wf2q::new()
        ]
    );
}
