//! A network in simulated time: nodes, wires between them, and flows that take the shortest way.

use crate::delay::Delays;
use crate::link::TransmitQueue;
use crate::senders::{Carrier, Senders, SourcePlan, Tag, Went};
use crate::server::{Server, Step};
use crate::simulation::ClassPacket;
use crate::source::{Source, SourceError};
use crate::tcp::Tcp;
use crate::time::Picos;
use core::fmt;
use fairlane_core::sched::Algorithm;
use fairlane_core::tree::{ClassConfig, ClassFlow, ClassId, LeafConfig, Tree, TreeError};
use fairlane_core::{Count, Length, Limits, Rate, SchedulerLimits, Weight};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

/// A wire, one way: an output port of the node where it begins, and the way to its other end.
#[derive(Clone, Copy, Debug)]
pub struct Wire {
    /// The rate of the port.
    pub rate: Rate,
    /// How long a bit is on its way.
    pub delay: Picos,
    /// The scheduling algorithm of the port. Each flow has a queue and its weight there, which is also its
    /// level under strict priority. Under FIFO all share one queue.
    pub algorithm: Algorithm,
    /// Queue limits of the port, and of each flow. When the port is full, a packet of the flow with the longest
    /// queue is evicted; under FIFO the arrival is dropped.
    pub limits: SchedulerLimits,
}

/// The endpoints of a flow, and its weight at every port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowPath {
    /// The node that sends.
    pub from: u16,
    /// The node that receives.
    pub to: u16,
    /// Its weight.
    pub weight: Weight,
}

/// Why a network has no such wire, or source.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NetworkError {
    /// No node has this number.
    Unknown(u16),
    /// Both ends are this node.
    OneNode(u16),
    /// No wires lead from one node to the other.
    NoRoute {
        /// The one.
        from: u16,
        /// The other.
        to: u16,
    },
    /// The source cannot be.
    Source(SourceError),
    /// A port cannot have another flow; those before it on the way keep a queue that stays empty.
    Port(TreeError),
}

impl fmt::Display for NetworkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NetworkError::Unknown(node) => write!(f, "there is no node {node}"),
            NetworkError::OneNode(node) => write!(f, "both ends are node {node}: they are two"),
            NetworkError::NoRoute { from, to } => {
                write!(f, "no wires lead from node {from} to node {to}")
            }
            NetworkError::Source(error) => error.fmt(f),
            NetworkError::Port(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for NetworkError {}

impl From<SourceError> for NetworkError {
    fn from(error: SourceError) -> Self {
        NetworkError::Source(error)
    }
}

/// Counts of the packets of some sources. Packets that were on their way before, and those sent, are received,
/// rejected, evicted, or on their way.
#[derive(Clone, Debug, Default)]
pub struct Carried {
    /// Packets that were on their way when this began.
    pub before: u64,
    /// Packets sent.
    pub sent: Count,
    /// Packets that arrived at their destination.
    pub received: Count,
    /// Packets that a full queue on their way did not accept.
    pub rejected: u64,
    /// Packets that were evicted when the queues of a port were full.
    pub displaced: u64,
    /// From when a packet was sent until its last bit arrived at its end.
    pub delays: Delays,
}

impl Carried {
    /// Packets that wait in a queue, or are on a wire.
    pub fn on_their_way(&self) -> u64 {
        self.before + self.sent.packets - self.received.packets - self.rejected - self.displaced
    }
}

/// Counts of packets at a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCount {
    /// Packets transmitted.
    pub sent: Count,
    /// Packets that were not accepted.
    pub rejected: u64,
    /// Packets that were evicted.
    pub displaced: u64,
}

/// Nodes, wires between them, and sources whose packets take the fewest wires to their destination; of several
/// such paths the one whose wires were laid first. Nodes, wires, and groups of sources are counted from 0.
///
/// A node receives a packet completely before it forwards it. The acknowledgements of a closed-loop source
/// ([`Tcp`]) take the delays of the reverse path, and no space in queues; its `rtt` is the receiver's
/// additional time.
///
/// Events are processed in order of time; at the same time packets are sent first, in the order of their
/// sources, then they reach nodes, then ports continue, in the order of wires. O(log (sources + wires + packets
/// on wires)) an event, plus the cost of queues.
///
/// ```
/// use fairlane_core::{Length, SchedulerLimits, Weight, sched::Algorithm};
/// use fairlane_sim::{
///     Carried, Lengths, Network, NetworkError, Picos, PortCount, SourcePlan, Traffic, FlowPath, Wire,
/// };
///
/// let mut network = Network::new(3, 1);
/// let wire = |delay| Wire {
///     rate: "8mbit".parse().unwrap(),
///     delay: Picos::from_millis(delay),
///     algorithm: Algorithm::Qfq,
///     limits: SchedulerLimits::default(),
/// };
/// network.add_wire(0, 1, wire(5))?;
/// let last: usize = network.add_wire(1, 2, wire(10))?;
///
/// // A packet of a millisecond, alone: stored and forwarded.
/// let len = Length::new(1000).unwrap();
/// let way = FlowPath { from: 0, to: 2, weight: Weight::ONE };
/// let lone = Traffic::Trace(vec![(Picos::ZERO, len)]);
/// network.add_source(SourcePlan::new(way, lone, Lengths::Fixed(len)), 0)?;
/// network.run_until(Picos::from_millis(100));
/// let carried: &Carried = network.carried(0);
/// assert_eq!((carried.delays.max(), carried.on_their_way()), (Picos::from_millis(1 + 5 + 1 + 10), 0));
/// let PortCount { sent, .. } = network.port(last);
/// assert_eq!(sent.bytes, 1000);
///
/// assert_eq!(network.route(2, 0), Err(NetworkError::NoRoute { from: 2, to: 0 }));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Network {
    senders: Senders<Ports>,
}

impl Network {
    /// Returns a network of `nodes` nodes, without wires, at time 0. Each source draws from a seed of its own,
    /// derived from `seed`.
    pub fn new(nodes: u16, seed: u64) -> Network {
        let ports = Ports {
            ports: Vec::new(),
            of_nodes: vec![Vec::new(); nodes.into()],
            routes: BTreeMap::new(),
            flows: Vec::new(),
            groups: Vec::new(),
            due: BinaryHeap::new(),
            clock: Picos::ZERO,
            discarded: Vec::new(),
        };
        Network {
            senders: Senders::new(ports, seed),
        }
    }

    /// Adds a wire, in one direction. Existing sources keep their paths. O(1).
    ///
    /// # Errors
    ///
    /// There is no such node, or both ends are one.
    pub fn add_wire(&mut self, from: u16, to: u16, wire: Wire) -> Result<usize, NetworkError> {
        self.ends(from, to)?;
        let ports = &mut self.senders.carrier;
        let number = ports.ports.len();
        ports.routes.clear();
        ports.of_nodes[usize::from(from)].push((number, to));
        ports.ports.push(Port::new(from, wire));
        Ok(number)
    }

    /// Returns the wires from one node to another. O(nodes + wires).
    ///
    /// # Errors
    ///
    /// There are no such nodes, or no wires lead there.
    pub fn route(&self, from: u16, to: u16) -> Result<Vec<usize>, NetworkError> {
        self.ends(from, to)?;
        let route = self.senders.carrier.route(from, to);
        route.ok_or(NetworkError::NoRoute { from, to })
    }

    /// The same, looked for once.
    fn known_route(&mut self, from: u16, to: u16) -> Result<Vec<usize>, NetworkError> {
        if let Some(route) = self.senders.carrier.routes.get(&(from, to)) {
            return Ok(route.clone());
        }
        let route = self.route(from, to)?;
        let known = &mut self.senders.carrier.routes;
        known.insert((from, to), route.clone());
        Ok(route)
    }

    /// Adds a source: a flow of its own at every port on its way, counted with others of the same `group`.
    /// Spans in the past begin at the clock. O(nodes + wires) for the first from one node to another, then
    /// O(wires on its way + log sources).
    ///
    /// # Errors
    ///
    /// No wires lead where it sends to, or, where it is in a closed loop, back; or there can be no such source.
    pub fn add_source(
        &mut self,
        plan: SourcePlan<FlowPath>,
        group: usize,
    ) -> Result<(), NetworkError> {
        let (FlowPath { from, to, weight }, mut plan) = plan.split();
        Source::new(plan.traffic.clone(), plan.lengths.clone(), 0)?;
        let route = self.known_route(from, to)?;
        if let Some(tcp) = &mut plan.tcp {
            let back = self.known_route(to, from)?.into_iter();
            let back = back.map(|port| self.senders.carrier.ports[port].delay);
            *tcp = Tcp {
                rtt: back.fold(tcp.rtt, |sum, delay| sum + delay),
                ..*tcp
            };
        }
        let longest = plan.traffic.longest(&plan.lengths);
        let ports = &mut self.senders.carrier;
        let mut hops = Vec::with_capacity(route.len());
        for port in route {
            let class = ports.ports[port].class(weight, longest);
            hops.push((port, class.map_err(NetworkError::Port)?));
        }
        if ports.groups.len() <= group {
            ports.groups.resize_with(group + 1, Carried::default);
        }
        ports.flows.push(Flow { hops, group });
        self.senders.any().add(plan)?;
        Ok(())
    }

    /// Processes all events before `until`, and sets the clock to it. Repeated calls continue the run.
    pub fn run_until(&mut self, until: Picos) {
        self.run_until_while(until, || true);
    }

    /// The same, as long as `go_on` returns true, which is called at every event; returns whether it reached
    /// `until`. Where it did not, the clock is at the last event.
    #[doc(hidden)]
    pub fn run_until_while(&mut self, until: Picos, mut go_on: impl FnMut() -> bool) -> bool {
        self.senders.any().run_until(until, &mut go_on)
    }

    /// From here on it is counted.
    pub fn restart(&mut self) {
        let ports = &mut self.senders.carrier;
        for carried in &mut ports.groups {
            *carried = Carried {
                before: carried.on_their_way(),
                ..Carried::default()
            };
        }
        for port in &mut ports.ports {
            port.count = PortCount::default();
        }
    }

    /// Returns the time until which everything has happened.
    pub fn clock(&self) -> Picos {
        self.senders.carrier.clock
    }

    /// Returns the counts of the packets of a group of sources.
    ///
    /// # Panics
    ///
    /// If neither this group nor a later one has a source.
    pub fn carried(&self, group: usize) -> &Carried {
        &self.senders.carrier.groups[group]
    }

    /// Returns the counts of packets at the port of a wire.
    ///
    /// # Panics
    ///
    /// If there is no such wire.
    pub fn port(&self, wire: usize) -> PortCount {
        self.senders.carrier.ports[wire].count
    }

    fn ends(&self, from: u16, to: u16) -> Result<(), NetworkError> {
        let nodes = self.senders.carrier.of_nodes.len();
        match [from, to]
            .into_iter()
            .find(|&node| usize::from(node) >= nodes)
        {
            Some(node) => Err(NetworkError::Unknown(node)),
            None if from == to => Err(NetworkError::OneNode(from)),
            None => Ok(()),
        }
    }
}

/// An output port, and its wire.
#[derive(Debug)]
struct Port {
    server: Server<Tree<ClassPacket>, (), ClassFlow, Tag>,
    from: u16,
    delay: Picos,
    /// Of each flow.
    limits: Limits,
    /// Under FIFO, the class of all.
    common: Option<ClassId>,
    /// When it is due next: other entries of the heap are outdated.
    due: Option<Picos>,
    count: PortCount,
}

impl Port {
    fn new(from: u16, wire: Wire) -> Port {
        let mut tree = Tree::new(wire.algorithm, None, wire.limits);
        let common = (wire.algorithm == Algorithm::Fifo).then(|| {
            let all = ClassConfig::new(Weight::ONE, Length::MAX);
            let leaf = tree.add_leaf(ClassId::ROOT, all, LeafConfig::default());
            leaf.expect("an empty tree takes a class")
        });
        Port {
            server: Server::over(tree, wire.rate, TransmitQueue::NONE, ()),
            from,
            delay: wire.delay,
            limits: wire.limits.per_flow,
            common,
            due: None,
            count: PortCount::default(),
        }
    }

    /// Returns the class of another flow.
    fn class(&mut self, weight: Weight, longest: Length) -> Result<ClassId, TreeError> {
        if let Some(common) = self.common {
            return Ok(common);
        }
        let config = ClassConfig {
            level: weight.get() - 1,
            ..ClassConfig::new(weight, longest)
        };
        let leaf = LeafConfig {
            limits: self.limits,
            ..LeafConfig::default()
        };
        let tree = self.server.queue_mut();
        tree.add_leaf(ClassId::ROOT, config, leaf)
    }
}

/// The packets of a source.
#[derive(Debug)]
struct Flow {
    /// Its ports, and its class at each.
    hops: Vec<(usize, ClassId)>,
    group: usize,
}

/// Internal events of the network; in this order at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    /// Handles a packet's arrival at the end of a wire.
    Arrives(Tag, Length),
    /// A port continues.
    Port(usize),
}

/// The carriers of packets: the ports, and the wires behind them.
#[derive(Debug)]
struct Ports {
    ports: Vec<Port>,
    /// Those of each node, and where their wires lead.
    of_nodes: Vec<Vec<(usize, u16)>>,
    /// Ways that were looked for since a wire was laid.
    routes: BTreeMap<(u16, u16), Vec<usize>>,
    /// By source.
    flows: Vec<Flow>,
    groups: Vec<Carried>,
    due: BinaryHeap<Reverse<(Picos, Due)>>,
    clock: Picos,
    discarded: Vec<(Length, Tag)>,
}

impl Ports {
    /// Returns the path with the fewest wires, breadth first.
    fn route(&self, from: u16, to: u16) -> Option<Vec<usize>> {
        let mut came_by = vec![None; self.of_nodes.len()];
        let mut reached = VecDeque::from([from]);
        'all: while let Some(node) = reached.pop_front() {
            for &(number, next) in &self.of_nodes[usize::from(node)] {
                if next != from && came_by[usize::from(next)].is_none() {
                    came_by[usize::from(next)] = Some(number);
                    if next == to {
                        break 'all;
                    }
                    reached.push_back(next);
                }
            }
        }
        let (mut route, mut node) = (Vec::new(), to);
        while node != from {
            let number = came_by[usize::from(node)]?;
            route.push(number);
            node = self.ports[number].from;
        }
        route.reverse();
        Some(route)
    }

    /// Returns where a packet counts.
    fn carried(&mut self, tag: Tag) -> &mut Carried {
        &mut self.groups[self.flows[tag.source].group]
    }

    /// Handles a packet's arrival at the next port of its path; returns whether it was accepted there.
    fn enter(&mut self, len: Length, tag: Tag) -> bool {
        let (number, class) = self.flows[tag.source].hops[usize::from(tag.hop)];
        let port = &mut self.ports[number];
        let outcome = port.server.arrive(self.clock, class.into(), len, tag);
        if outcome.is_err() {
            port.count.rejected += 1;
            self.carried(tag).rejected += 1;
        }
        self.after(number);
        outcome.is_ok()
    }

    /// A packet arrives at the end of a wire.
    fn come(&mut self, len: Length, tag: Tag) -> Went {
        if usize::from(tag.hop) < self.flows[tag.source].hops.len() {
            self.enter(len, tag);
            return Went::Nothing;
        }
        let now = self.clock;
        let delay = (now.0 as u64).wrapping_sub(tag.sent);
        let carried = self.carried(tag);
        carried.received.add(len);
        carried.delays.record(Picos(delay.into()));
        Went::Arrived(tag, false, now)
    }

    /// Runs the next step of a port.
    fn step(&mut self, number: usize) -> Went {
        let port = &mut self.ports[number];
        port.due = None;
        let mut went = Went::Nothing;
        match port.server.step() {
            Some(Step::Completed(completion, mut tag)) => {
                let len = completion.packet.len;
                port.count.sent.add(len);
                tag.hop += 1;
                let at = completion.end.time + port.delay;
                self.due.push(Reverse((at, Due::Arrives(tag, len))));
            }
            Some(Step::Dequeued(_, &tag)) if tag.hop == 0 => went = Went::Left(tag),
            _ => {}
        }
        self.after(number);
        went
    }

    /// Schedules the follow-up of an event at a port.
    fn after(&mut self, number: usize) {
        for (packet, tag) in self.ports[number].server.take_discarded() {
            self.ports[number].count.displaced += 1;
            self.carried(tag).displaced += 1;
            if tag.hop == 0 {
                self.discarded.push((packet.len, tag));
            }
        }
        let port = &mut self.ports[number];
        let next = port.server.next_event();
        if port.due != next {
            port.due = next;
            let due = next.map(|at| Reverse((at, Due::Port(number))));
            self.due.extend(due);
        }
    }
}

impl Carrier for Ports {
    fn clock(&self) -> Picos {
        self.clock
    }

    fn advance(&mut self, to: Picos) {
        self.clock = self.clock.max(to);
    }

    fn step_before(&mut self, to: Picos) -> Option<Went> {
        loop {
            let &Reverse((at, due)) = self.due.peek().filter(|Reverse((at, _))| *at < to)?;
            self.due.pop();
            match due {
                Due::Arrives(tag, len) => {
                    self.clock = at;
                    return Some(self.come(len, tag));
                }
                Due::Port(number) if self.ports[number].due == Some(at) => {
                    self.clock = at;
                    return Some(self.step(number));
                }
                Due::Port(_) => {}
            }
        }
    }

    fn arrive(&mut self, len: Length, tag: Tag) -> bool {
        self.carried(tag).sent.add(len);
        self.enter(len, tag)
    }

    fn take_discarded(&mut self) -> Vec<(Length, Tag)> {
        std::mem::take(&mut self.discarded)
    }

    fn rate(&self, source: usize) -> Rate {
        let (first, _) = self.flows[source].hops[0];
        self.ports[first].server.rate()
    }
}
