//! A run: sources of packets in front of a server, and flows that come, change and go.

use crate::link::TransmitQueue;
use crate::observer::Observer;
use crate::queue::{Flows, Label, PacketInfo, Queue, Waiting};
use crate::server::{Server, Step};
use crate::source::{Lengths, Source, SourceError, Traffic};
use crate::tcp::{Sender, Tcp};
use crate::time::{PICOS_PER_SECOND, Picos};
use fairlane_core::tree::{ClassFlow, ClassQueue, Payload};
use fairlane_core::{ChangeError, FlowConfig, FlowId, Length, Rate};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

/// Who sent a packet of a [`Simulation`]: the body that it has in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Its source, by the order in which sources were added.
    source: usize,
    /// Packets are numbered from 0 as they are sent, those that are not accepted too.
    number: u64,
    /// Whether it may be marked instead of dropped.
    ecn: bool,
}

impl Payload for Tag {
    fn mark(&mut self) -> bool {
        self.ecn
    }
}

/// What queues of classes hold in a [`Simulation`].
pub type ClassPacket = Waiting<ClassFlow, Tag>;

/// The server of a [`Simulation`] of flows.
pub type FlowServer<Q, O> = Server<Q, O, FlowId, Tag>;

/// What a packet scheduler holds there.
pub type FlowPacket = Waiting<FlowId, Tag>;

/// A flow of a run: what it is entitled to, what it sends, and when it comes and goes.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowPlan {
    /// Its weight, longest packet and limits. What its source sends beyond is dropped.
    pub config: FlowConfig,
    /// When it sends.
    pub traffic: Traffic,
    /// What it sends.
    pub lengths: Lengths,
    /// When it is added, and its source starts.
    pub start: Picos,
    /// From when on its source sends nothing more.
    pub stop: Picos,
    /// Its changes, in any order.
    pub changes: Vec<(Picos, FlowConfig)>,
    /// When it is removed with what it has queued, if ever.
    pub removal: Option<Picos>,
}

impl FlowPlan {
    /// A flow that is there from the start and sends as long as the run lasts.
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

/// A source: whose packets it sends, and when.
#[derive(Clone, Debug, PartialEq)]
pub struct SourcePlan<L> {
    /// Whose its packets are.
    pub to: L,
    /// When it sends. A greedy source is one that fills the pipe as a TCP with data
    /// to send does: it keeps its packets in the queue, and sends another for each that leaves,
    /// sent or dropped.
    pub traffic: Traffic,
    /// What it sends.
    pub lengths: Lengths,
    /// While it sends; in each span anew from its beginning. Empty: always.
    pub active: Vec<Range<Picos>>,
    /// A greedy source that saw none of its packets leave for so long sends one more, as
    /// a TCP does whose retransmission timer expires.
    pub patience: Option<Picos>,
    /// Whether its packets may be marked.
    pub ecn: bool,
    /// Sends as a [`Tcp`] with data to send does, from the beginning of each span anew. Its
    /// `traffic` is greedy then.
    pub tcp: Option<Tcp>,
}

impl<L> SourcePlan<L> {
    /// A source that always sends packets which may not be marked.
    pub fn new(to: L, traffic: Traffic, lengths: Lengths) -> Self {
        SourcePlan {
            to,
            traffic,
            lengths,
            active: Vec::new(),
            patience: None,
            ecn: false,
            tcp: None,
        }
    }
}

/// A source whose packets go to a class.
pub type ClassSource = SourcePlan<ClassFlow>;

/// A source of the run.
#[derive(Debug)]
struct Running<L> {
    plan: SourcePlan<L>,
    source: Source,
    /// The span it is in, and those to come.
    span: Range<Picos>,
    later: Vec<Range<Picos>>,
    /// Of the next span.
    seed: u64,
    /// Its packets in the queue.
    queued: u32,
    /// When a packet of it left for the last time, or it sent one out of impatience.
    moved: Picos,
    /// A greedy source that has nothing queued tries again.
    retries: bool,
    /// It looks whether packets leave.
    watches: bool,
    tcp: Option<Sender>,
    /// It looks whether packets are acknowledged.
    waits: bool,
}

impl<L> Running<L> {
    fn new(plan: SourcePlan<L>, seed: u64) -> Result<Self, SourceError> {
        let mut later = plan.active.clone();
        if later.is_empty() {
            later.push(Picos::ZERO..Picos::MAX);
        }
        // The next span is the last of them.
        later.sort_by_key(|span| Reverse(span.start));
        Ok(Running {
            source: Source::new(plan.traffic.clone(), plan.lengths.clone(), seed)?,
            plan,
            span: Picos::ZERO..Picos::ZERO,
            later,
            seed,
            queued: 0,
            moved: Picos::ZERO,
            retries: false,
            watches: false,
            tcp: None,
            waits: false,
        })
    }

    /// Packets that a greedy source keeps in the queue.
    fn keeps(&self) -> Option<u32> {
        match self.tcp {
            Some(_) => None,
            None => self.source.keeps(),
        }
    }
}

/// What happens at a time; in this order at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A span of sending begins.
    Span,
    /// A packet of a source in a closed loop was acknowledged, and had been marked perhaps.
    Acknowledged(u64, bool),
    /// A source in a closed loop looks whether its packets are acknowledged.
    Timeout,
    /// A greedy source whose packets were all rejected tries again.
    Retry,
    /// A greedy source looks whether its packets leave.
    Look,
    /// A packet arrives.
    Packet(Length),
}

/// What happens to a flow; in this order at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Life {
    Removed,
    Changed,
    Added,
}

/// A run of a [`Server`] with its sources: of classes ([`add_source`](Self::add_source),
/// [`run_until`](Self::run_until)), or of flows that come, change and go ([`add`](Self::add),
/// [`run`](Self::run)).
///
/// Events are taken in the order of time. At the same time flows are removed first, then
/// changed, then added; then packets arrive, in the order of their sources, then one ends, then
/// the queue has its turn. So a run is a function of its plans and its seed. O(log sources) an
/// event, and what the queue costs.
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
    server: Server<Q, O, L, Tag>,
    seed: u64,
    /// None: a flow that has not come, or is gone.
    sources: Vec<Option<Running<L>>>,
    events: BinaryHeap<Reverse<(Picos, usize, Event)>>,
    /// Packets that were sent.
    sent: u64,
    flows: Vec<FlowPlan>,
}

impl<Q: Flows<FlowPacket>, O: Observer> Simulation<Q, O> {
    /// A run without flows. Each source draws from a seed of its own, made from `seed`.
    pub fn new(server: FlowServer<Q, O>, seed: u64) -> Self {
        Simulation::over(server, seed)
    }

    /// Adds a flow to the run; flows are counted from 0.
    pub fn add(&mut self, plan: FlowPlan) -> Result<usize, SourceError> {
        Source::new(plan.traffic.clone(), plan.lengths.clone(), self.seed)?;
        self.flows.push(plan);
        self.sources.push(None);
        Ok(self.flows.len() - 1)
    }

    /// Runs: sources send, flows come, change and go before `until`; then what is queued
    /// is sent. Gives back the server, idle. Fails at a change that the scheduler refuses.
    /// A change of a flow that is not there is passed over.
    pub fn run(self, until: Picos) -> Result<FlowServer<Q, O>, ChangeError> {
        let (server, _) = self.run_while(until, || true)?;
        Ok(server)
    }

    /// The same, as long as `go_on` says so, which is asked at every event: the server, and whether
    /// the run came to its end. Where it did not, the server is as it was then, and its observer
    /// was told of no end.
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
            if !self.work_until(at, &mut go_on) {
                return Ok((self.server, false));
            }
            self.live(at, life, index, config, until)?;
        }
        let mut ended = self.work_until(until, &mut go_on);
        while ended && self.server.step().is_some() {
            ended = go_on();
        }
        if ended {
            self.server.finish();
        }
        Ok((self.server, ended))
    }

    fn live(
        &mut self,
        at: Picos,
        life: Life,
        index: usize,
        config: FlowConfig,
        until: Picos,
    ) -> Result<(), ChangeError> {
        let flow = self.sources[index].as_ref().map(|source| source.plan.to);
        match (life, flow) {
            (Life::Added, _) => {
                let flow = self.server.add_flow(at, config)?;
                let plan = &self.flows[index];
                let mut source = SourcePlan::new(flow, plan.traffic.clone(), plan.lengths.clone());
                source.active = vec![plan.start..plan.stop.min(until)];
                // The golden ratio in 64 bits keeps the seeds of neighbours far apart.
                let own = (index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let running = Running::new(source, self.seed.wrapping_add(own));
                self.sources[index] = running.ok();
                self.begin_span(index);
            }
            (Life::Changed, Some(flow)) => self.server.change_flow(at, flow, config)?,
            (Life::Removed, Some(flow)) => {
                self.sources[index] = None;
                self.server.remove_flow(at, flow)?;
            }
            (_, None) => {}
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
        let index = self.sources.len();
        let seed = self.seed.wrapping_add((index as u64 + 1) << 32);
        let running = Running::new(plan, seed.wrapping_add(1))?;
        self.sources.push(Some(running));
        self.await_span(index);
        Ok(index)
    }

    /// Lets everything happen that is due before `until`, and sets the clock to it. May be
    /// called again to go on.
    pub fn run_until(&mut self, until: Picos) {
        self.run_until_while(until, || true);
    }

    /// The same, as long as `go_on` says so, which is asked at every event: whether it came to
    /// `until`. Where it did not, the clock is at the last event.
    pub fn run_until_while(&mut self, until: Picos, mut go_on: impl FnMut() -> bool) -> bool {
        let came = self.work_until(until, &mut go_on);
        if came {
            self.server.advance(until);
        }
        came
    }
}

impl<Q, O, L> Simulation<Q, O, L>
where
    L: Label,
    Q: Queue<L, Waiting<L, Tag>>,
    O: Observer<L>,
{
    fn over(server: Server<Q, O, L, Tag>, seed: u64) -> Self {
        Simulation {
            server,
            seed,
            sources: Vec::new(),
            events: BinaryHeap::new(),
            sent: 0,
            flows: Vec::new(),
        }
    }

    /// The queue, to look at.
    pub fn queue(&self) -> &Q {
        self.server.queue()
    }

    /// The queue, to change between two runs.
    pub fn queue_mut(&mut self) -> &mut Q {
        self.server.queue_mut()
    }

    /// Lets the queue do what it may do at leisure, now and then.
    pub fn expire_idle(&mut self) {
        self.server.expire_idle();
    }

    /// Who watches.
    pub fn observer(&self) -> &O {
        self.server.observer()
    }

    /// Who watches, to ask or to empty.
    pub fn observer_mut(&mut self) -> &mut O {
        self.server.observer_mut()
    }

    /// Who watched.
    pub fn into_observer(self) -> O {
        self.server.into_observer()
    }

    /// The time until which everything has happened.
    pub fn clock(&self) -> Picos {
        self.server.clock()
    }

    /// Lets everything happen that is due before `until`, as long as `go_on` says so: whether it did.
    fn work_until(&mut self, until: Picos, go_on: &mut impl FnMut() -> bool) -> bool {
        while go_on() {
            let next = self.events.peek().map(|Reverse((at, ..))| *at);
            let next = next.filter(|&at| at < until);
            // At one instant sources come first.
            if self.work_before(next.unwrap_or(until)) {
                continue;
            }
            let Some(at) = next else { return true };
            if let Some(Reverse((_, index, event))) = self.events.pop() {
                self.server.advance(at);
                self.happen(index, event);
            }
        }
        false
    }

    /// Lets the server do one thing that is due before `to`, and sources follow it. Whether there
    /// was one.
    fn work_before(&mut self, to: Picos) -> bool {
        let left = match self.server.step_before(to) {
            None => return false,
            Some(Step::Completed(completion, tag)) => {
                self.acknowledge(tag, completion.packet.marked, completion.end.time);
                return true;
            }
            Some(Step::Dequeued(_, &tag)) => Some(tag),
            Some(Step::Settled) => None,
        };
        for (_, tag) in self.server.take_discarded() {
            self.left(tag);
        }
        if let Some(tag) = left {
            self.left(tag);
        }
        true
    }

    /// A source in a closed loop will hear of a packet that left the link.
    fn acknowledge(&mut self, tag: Tag, marked: bool, sent: Picos) {
        let running = self.sources[tag.source].as_ref();
        if let Some(tcp) = running.and_then(|running| running.tcp.as_ref()) {
            let at = sent + tcp.rtt();
            let event = Event::Acknowledged(tag.number, marked);
            self.events.push(Reverse((at, tag.source, event)));
        }
    }

    fn happen(&mut self, index: usize, event: Event) {
        let clock = self.clock();
        let Some(running) = &mut self.sources[index] else {
            return;
        };
        match event {
            Event::Span => return self.begin_span(index),
            Event::Acknowledged(number, marked) => {
                if let Some(tcp) = &mut running.tcp {
                    tcp.acknowledged(number, marked, clock);
                }
            }
            Event::Timeout => {
                running.waits = false;
                if let Some(tcp) = &mut running.tcp
                    && tcp.deadline().is_some_and(|deadline| deadline <= clock)
                {
                    tcp.give_up(clock);
                }
            }
            Event::Look => return self.look(index),
            Event::Retry => running.retries = false,
            Event::Packet(len) => {
                self.arrive(index, len);
            }
        }
        self.go_on(index);
    }

    /// The next span of a source begins.
    fn begin_span(&mut self, index: usize) {
        let clock = self.clock();
        let Some(running) = &mut self.sources[index] else {
            return;
        };
        let Some(span) = running.later.pop() else {
            return;
        };
        running.span = span.start.max(clock)..span.end;
        let plan = &running.plan;
        let source = Source::new(plan.traffic.clone(), plan.lengths.clone(), running.seed);
        if let Ok(source) = source {
            running.source = source;
        }
        // In each span the same packets would come: another seed for each.
        running.seed = running.seed.wrapping_add(1);
        running.tcp = running.plan.tcp.map(Sender::new);
        running.moved = clock;
        self.await_span(index);
        self.watch(index);
        self.go_on(index);
    }

    /// A greedy source with a patience looks whether its packets leave.
    fn look(&mut self, index: usize) {
        let clock = self.clock();
        let Some(running) = &mut self.sources[index] else {
            return;
        };
        running.watches = false;
        let patience = running.plan.patience.unwrap_or(Picos::MAX);
        if running.span.contains(&clock) && running.moved + patience <= clock {
            running.moved = clock;
            if let Some((_, len)) = running.source.next_packet() {
                self.arrive(index, len);
            }
        }
        self.watch(index);
    }

    /// The beginning of the next span of a source.
    fn await_span(&mut self, index: usize) {
        let running = self.sources[index].as_ref();
        if let Some(span) = running.and_then(|running| running.later.last()) {
            let at = span.start.max(self.clock());
            self.events.push(Reverse((at, index, Event::Span)));
        }
    }

    /// A greedy source with a patience will look whether its packets leave.
    fn watch(&mut self, index: usize) {
        let clock = self.clock();
        if let Some(running) = &mut self.sources[index]
            && let Some(patience) = running.plan.patience
            && running.keeps().is_some()
            && running.span.contains(&clock)
            && !running.watches
        {
            running.watches = true;
            let at = running.moved + patience;
            self.events.push(Reverse((at, index, Event::Look)));
        }
    }

    /// A source sends what it has to send now, or says when it will.
    fn go_on(&mut self, index: usize) {
        let clock = self.clock();
        let Some(running) = &mut self.sources[index] else {
            return;
        };
        if running.tcp.is_some() {
            return self.fill_window(index);
        }
        let Some(keeps) = running.keeps() else {
            if let Some((time, len)) = running.source.next_packet() {
                let at = running.span.start + time;
                if at < running.span.end {
                    self.events.push(Reverse((at, index, Event::Packet(len))));
                }
            }
            return;
        };
        while let Some(running) = &mut self.sources[index]
            && running.span.contains(&clock)
            && running.queued < keeps
            && let Some((_, len)) = running.source.next_packet()
        {
            if !self.arrive(index, len) {
                return self.retry(index, len);
            }
        }
    }

    /// A source in a closed loop sends what its window has room for. Of what is rejected it learns
    /// as of all that is lost.
    fn fill_window(&mut self, index: usize) {
        let clock = self.clock();
        while let Some(running) = &mut self.sources[index]
            && let Some(tcp) = running.tcp.as_mut().filter(|tcp| tcp.may_send())
            && running.span.contains(&clock)
            && let Some((_, len)) = running.source.next_packet()
        {
            tcp.sent(self.sent, clock);
            self.arrive(index, len);
        }
        if let Some(running) = &mut self.sources[index]
            && let Some(deadline) = running.tcp.as_ref().and_then(Sender::deadline)
            && !running.waits
            && running.span.contains(&clock)
        {
            running.waits = true;
            let at = deadline.max(clock);
            self.events.push(Reverse((at, index, Event::Timeout)));
        }
    }

    /// A greedy source was rejected: when it has nothing queued whose departure would let
    /// it send again, it tries again after the time of a packet.
    fn retry(&mut self, index: usize, len: Length) {
        let (clock, rate) = (self.clock(), self.server.rate());
        if let Some(running) = &mut self.sources[index]
            && running.queued == 0
            && !running.retries
        {
            running.retries = true;
            let picos = u128::from(len.get()) * 8 * u128::from(PICOS_PER_SECOND);
            let at = clock + Picos(picos / u128::from(rate.bps()));
            self.events.push(Reverse((at, index, Event::Retry)));
        }
    }

    /// A packet arrives: whether it was accepted.
    fn arrive(&mut self, index: usize, len: Length) -> bool {
        let Some(running) = &self.sources[index] else {
            return false;
        };
        let tag = Tag {
            source: index,
            number: self.sent,
            ecn: running.plan.ecn,
        };
        self.sent += 1;
        let (clock, to) = (self.clock(), running.plan.to);
        let accepted = self.server.arrive(clock, to, len, tag).is_ok();
        for (packet, tag) in self.server.take_discarded() {
            self.lost(&packet, tag);
        }
        if let Some(running) = &mut self.sources[index] {
            running.queued += u32::from(accepted);
        }
        accepted
    }

    /// A packet gave way to another. A greedy source sends the next when one of its packets leaves,
    /// or tries again if it has none.
    fn lost(&mut self, packet: &PacketInfo<L>, tag: Tag) {
        if let Some(running) = &mut self.sources[tag.source] {
            running.queued -= 1;
            if running.keeps().is_some() {
                self.retry(tag.source, packet.len);
            }
        }
    }

    /// A packet left the queue: a greedy source sends another.
    fn left(&mut self, tag: Tag) {
        let clock = self.clock();
        if let Some(running) = &mut self.sources[tag.source] {
            running.queued -= 1;
            running.moved = clock;
            if running.keeps().is_some() {
                self.go_on(tag.source);
            }
        }
    }
}
