//! A run over one link: sources of packets in front of a server, and flows that are added, changed
//! and removed.

use crate::link::TransmitQueue;
use crate::observer::Observer;
use crate::queue::{Flows, Label, Queue, Waiting};
use crate::senders::{Carrier, Senders, SourcePlan, Tag, Went};
use crate::server::{Server, Step};
use crate::source::{Lengths, Source, SourceError, Traffic};
use crate::time::Picos;
use fairlane_core::tree::{ClassFlow, ClassQueue};
use fairlane_core::{ChangeError, FlowConfig, FlowId, Length, Rate};

/// The packets in queues of classes of a [`Simulation`].
///
/// ```
/// use fairlane_core::sched::Algorithm;
/// use fairlane_core::tree::{ClassId, Tree};
/// use fairlane_sim::{ClassFlow, ClassPacket, Picos, Tag, Waiting, sharing};
///
/// let (queues, leaves): (Tree<ClassPacket>, [ClassId; 4]) = sharing::tree(Algorithm::Drr)?;
/// let meter = sharing::run(queues, leaves, "1mbit".parse()?, Picos::from_secs(1));
/// assert!(meter.bytes(leaves[1], 0) > 0);
///
/// /// It is a packet queued in a class, with a tag that names its sender.
/// fn whole(packet: Waiting<ClassFlow, Tag>) -> ClassPacket {
///     packet
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type ClassPacket = Waiting<ClassFlow, Tag>;

/// The server of a [`Simulation`] of flows.
///
/// ```
/// use fairlane_core::{AnyScheduler, FlowId, Length, sched::Algorithm};
/// use fairlane_sim::{
///     DelayMeter, FlowPacket, FlowPlan, FlowServer, Lengths, Picos, Simulation, Traffic,
///     TransmitQueue, scenario,
/// };
///
/// /// Of an algorithm that is chosen at run time.
/// type Link = FlowServer<AnyScheduler<FlowPacket>, DelayMeter>;
///
/// let queue = AnyScheduler::new(Algorithm::Qfq, Default::default());
/// let link = Link::over(queue, "10mbit".parse()?, TransmitQueue::NONE, DelayMeter::new());
/// let mut run = Simulation::new(link, 1);
/// let len = Length::try_from(1500u32)?;
/// for config in scenario::equal(4, len) {
///     run.add(FlowPlan::new(config, Traffic::Cbr("1mbit".parse()?), Lengths::Fixed(len)))?;
/// }
/// let link: Link = run.run(Picos::from_secs(1))?;
/// let delays = link.observer().flow(FlowId::new(0)).ok_or("no flow")?;
/// assert!(delays.count() > 80);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type FlowServer<Q, O> = Server<Q, O, FlowId, Tag>;

/// The packets in its packet schedulers.
pub type FlowPacket = Waiting<FlowId, Tag>;

/// A flow of a run: its configuration, its traffic, and its lifetime.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowPlan {
    /// Its weight, longest packet and limits. Packets of its source in excess of these are dropped.
    pub config: FlowConfig,
    /// When it sends.
    pub traffic: Traffic,
    /// Its packet lengths.
    pub lengths: Lengths,
    /// When it is added, and its source starts.
    pub start: Picos,
    /// From when on its source sends nothing more.
    pub stop: Picos,
    /// Its changes, in any order.
    pub changes: Vec<(Picos, FlowConfig)>,
    /// When it is removed with its queued packets, if ever.
    pub removal: Option<Picos>,
}

impl FlowPlan {
    /// Returns a flow that is there from the start and sends as long as the run lasts.
    pub fn new(config: FlowConfig, traffic: Traffic, lengths: Lengths) -> FlowPlan {
        FlowPlan {
            config,
            traffic,
            lengths,
            start: Picos::ZERO,
            stop: Picos::MAX,
            changes: Vec::new(),
            removal: None,
        }
    }
}

/// A source whose packets go to a class.
pub type ClassSource = SourcePlan<ClassFlow>;

/// The events of a flow; in this order at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Life {
    Removed,
    Changed,
    Added,
}

/// A run of a [`Server`] with its sources: of classes ([`add_source`](Self::add_source),
/// [`run_until`](Self::run_until)), or of flows that are added, changed and removed
/// ([`add`](Self::add), [`run`](Self::run)).
///
/// Events are processed in order of time. At the same time flows are removed first, then changed,
/// then added; then packets arrive, in the order of their sources, then one ends, then the queue is
/// served. So a run is a function of its plans and its seed. O(log sources) an event, plus the cost
/// of the queue.
///
/// ```
/// use fairlane_core::sched::Algorithm;
/// use fairlane_core::tree::{ClassConfig, ClassId, LeafConfig, Tree};
/// use fairlane_core::{Length, Weight};
/// use fairlane_sim::{ClassMeter, ClassSource, Lengths, Picos, Simulation, Traffic, TransmitQueue};
///
/// let mut tree = Tree::new(Algorithm::Qfq, None, Default::default());
/// let mut leaf = |weight| {
///     let config = ClassConfig::new(Weight::new(weight).unwrap(), Length::new(1000).unwrap());
///     tree.add_leaf(ClassId::ROOT, config, LeafConfig::default()).unwrap()
/// };
/// let classes = [leaf(3), leaf(1)];
/// let meter = ClassMeter::new(Picos::from_millis(100));
/// let rate = "8mbit".parse().unwrap();
/// let mut simulation = Simulation::of_classes(tree, rate, TransmitQueue::NONE, meter, 1);
/// for class in classes {
///     let lengths = Lengths::Fixed(Length::new(1000).unwrap());
///     let source = ClassSource::new(class.into(), Traffic::Greedy(4), lengths);
///     simulation.add_source(source).unwrap();
/// }
/// simulation.run_until(Picos::from_secs(1));
/// assert_eq!(simulation.observer().bytes(classes[0], 5), 75_000);
/// assert_eq!(simulation.observer().bytes(classes[1], 5), 25_000);
/// ```
#[derive(Debug)]
pub struct Simulation<Q, O, L = FlowId> {
    senders: Senders<Line<Q, O, L>>,
    flows: Vec<FlowPlan>,
}

impl<Q: Flows<FlowPacket>, O: Observer> Simulation<Q, O> {
    /// Returns a run without flows. Each source draws from a seed of its own, made from `seed`.
    pub fn new(server: FlowServer<Q, O>, seed: u64) -> Self {
        Simulation::over(server, seed)
    }

    /// Adds a flow to the run; flows are counted from 0.
    pub fn add(&mut self, plan: FlowPlan) -> Result<usize, SourceError> {
        Source::new(
            plan.traffic.clone(),
            plan.lengths.clone(),
            self.senders.seed,
        )?;
        self.flows.push(plan);
        self.senders.carrier.whose.push(None);
        self.senders.any().reserve();
        Ok(self.flows.len() - 1)
    }

    /// Runs the simulation: sources send, and flows are added, changed and removed before `until`;
    /// then the backlog is sent. Returns the server, idle. Fails at a change that the scheduler
    /// rejects. A change of a flow that does not exist is skipped.
    pub fn run(self, until: Picos) -> Result<FlowServer<Q, O>, ChangeError> {
        let (server, _) = self.run_while(until, || true)?;
        Ok(server)
    }

    /// The same, as long as `go_on` returns true, which is called at every event: returns the
    /// server, and whether the run came to its end. If it did not, the server is in its state at
    /// that moment, and its observer saw no end.
    #[doc(hidden)]
    pub fn run_while(
        mut self,
        until: Picos,
        mut go_on: impl FnMut() -> bool,
    ) -> Result<(FlowServer<Q, O>, bool), ChangeError> {
        let mut lives = Vec::new();
        for (index, plan) in self.flows.iter().enumerate() {
            lives.push((plan.start, Life::Added, index, plan.config));
            let changes = plan.changes.iter();
            lives.extend(changes.map(|&(at, config)| (at, Life::Changed, index, config)));
            let removal = plan.removal.iter();
            lives.extend(removal.map(|&at| (at, Life::Removed, index, plan.config)));
        }
        lives.sort_by_key(|&(at, life, index, _)| (at, life, index));
        for (at, life, index, config) in lives.into_iter().take_while(|&(at, ..)| at < until) {
            if !self.senders.any().work_until(at, &mut go_on) {
                return Ok((self.senders.carrier.server, false));
            }
            self.live(at, life, index, config, until)?;
        }
        let mut ended = self.senders.any().work_until(until, &mut go_on);
        let mut server = self.senders.carrier.server;
        while ended && server.step().is_some() {
            ended = go_on();
        }
        if ended {
            server.finish();
        }
        Ok((server, ended))
    }

    fn live(
        &mut self,
        at: Picos,
        life: Life,
        index: usize,
        config: FlowConfig,
        until: Picos,
    ) -> Result<(), ChangeError> {
        let line = &mut self.senders.carrier;
        match life {
            Life::Added => {
                line.whose[index] = Some(line.server.add_flow(at, config)?);
                let plan = &self.flows[index];
                let mut source = SourcePlan::new((), plan.traffic.clone(), plan.lengths.clone());
                source.active = vec![plan.start..plan.stop.min(until)];
                // The golden ratio in 64 bits keeps the seeds of neighbours far apart.
                let own = (index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let seed = self.senders.seed.wrapping_add(own);
                self.senders.any().set(index, Some(source), seed);
            }
            Life::Changed => {
                if let Some(flow) = line.whose[index] {
                    line.server.change_flow(at, flow, config)?;
                }
            }
            Life::Removed => {
                if let Some(flow) = line.whose[index].take() {
                    line.server.remove_flow(at, flow)?;
                    self.senders.any().set(index, None, 0);
                }
            }
        }
        Ok(())
    }
}

impl<Q: ClassQueue<ClassPacket>, O: Observer<ClassFlow>> Simulation<Q, O, ClassFlow> {
    /// Queues of classes in front of an idle link at time 0, without sources. Each source draws
    /// from a seed of its own, made from `seed`.
    pub fn of_classes(
        queue: Q,
        rate: Rate,
        transmit_queue: TransmitQueue,
        observer: O,
        seed: u64,
    ) -> Self {
        Simulation::over(Server::over(queue, rate, transmit_queue, observer), seed)
    }

    /// Adds a source; sources are counted from 0. Spans in the past begin at the clock.
    pub fn add_source(&mut self, plan: ClassSource) -> Result<usize, SourceError> {
        let (to, plan) = plan.split();
        let number = self.senders.any().add(plan)?;
        self.senders.carrier.whose.push(Some(to));
        Ok(number)
    }

    /// Processes all events before `until`, and sets the clock to it. Repeated calls continue the
    /// run.
    pub fn run_until(&mut self, until: Picos) {
        self.run_until_while(until, || true);
    }

    /// The same, as long as `go_on` returns true, which is called at every event; returns whether it
    /// reached `until`. Where it did not, the clock is at the last event.
    #[doc(hidden)]
    pub fn run_until_while(&mut self, until: Picos, mut go_on: impl FnMut() -> bool) -> bool {
        self.senders.any().run_until(until, &mut go_on)
    }
}

impl<Q, O, L> Simulation<Q, O, L>
where
    L: Label,
    Q: Queue<L, Waiting<L, Tag>>,
    O: Observer<L>,
{
    fn over(server: Server<Q, O, L, Tag>, seed: u64) -> Self {
        let line = Line {
            server,
            whose: Vec::new(),
        };
        Simulation {
            senders: Senders::new(line, seed),
            flows: Vec::new(),
        }
    }

    /// Returns the queue, to look at.
    pub fn queue(&self) -> &Q {
        self.senders.carrier.server.queue()
    }

    /// Returns the queue, mutably, for changes between two runs.
    #[doc(hidden)]
    pub fn queue_mut(&mut self) -> &mut Q {
        self.senders.carrier.server.queue_mut()
    }

    /// Lets the queue do deferrable work.
    pub fn expire_idle(&mut self) {
        self.senders.carrier.server.expire_idle();
    }

    /// Returns the observer.
    pub fn observer(&self) -> &O {
        self.senders.carrier.server.observer()
    }

    /// Returns the observer, to query or reset it.
    pub fn observer_mut(&mut self) -> &mut O {
        self.senders.carrier.server.observer_mut()
    }

    /// Returns the observer, and drops the rest.
    pub fn into_observer(self) -> O {
        self.senders.carrier.server.into_observer()
    }

    /// Returns the time until which everything has happened.
    pub fn clock(&self) -> Picos {
        self.senders.carrier.server.clock()
    }
}

/// A link, and the owner of each source's packets: packets that leave the link have arrived.
#[derive(Debug)]
struct Line<Q, O, L> {
    server: Server<Q, O, L, Tag>,
    /// By source; `None` for a source that has not started, or is gone.
    whose: Vec<Option<L>>,
}

impl<Q, O, L> Carrier for Line<Q, O, L>
where
    L: Label,
    Q: Queue<L, Waiting<L, Tag>>,
    O: Observer<L>,
{
    fn clock(&self) -> Picos {
        self.server.clock()
    }

    fn advance(&mut self, to: Picos) {
        self.server.advance(to);
    }

    fn step_before(&mut self, to: Picos) -> Option<Went> {
        Some(match self.server.step_before(to)? {
            Step::Completed(completion, tag) => {
                Went::Arrived(tag, completion.packet.marked, completion.end.time)
            }
            Step::Dequeued(_, &tag) => Went::Left(tag),
            Step::Settled => Went::Nothing,
        })
    }

    fn arrive(&mut self, len: Length, tag: Tag) -> bool {
        let Some(to) = self.whose[tag.source] else {
            return false;
        };
        let clock = self.server.clock();
        self.server.arrive(clock, to, len, tag).is_ok()
    }

    fn take_discarded(&mut self) -> Vec<(Length, Tag)> {
        let discarded = self.server.take_discarded().into_iter();
        discarded.map(|(packet, tag)| (packet.len, tag)).collect()
    }

    fn rate(&self, _: usize) -> Rate {
        self.server.rate()
    }
}
