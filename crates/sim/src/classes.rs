//! Queues of classes in front of a simulated link.

use crate::link::{Link, TransmitQueue};
use crate::source::{Lengths, Source, SourceError, Traffic};
use crate::tcp::{Sender, Tcp};
use crate::time::Picos;
use fairlane_core::tree::{ClassId, ClassQueue, Dequeue, Discarded, Payload, Rejection};
use fairlane_core::{Length, Rate};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

/// A packet on its way through a [`ClassServer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassPacket {
    /// Packets are numbered from 0 as they arrive.
    pub number: u64,
    /// Its source, by the order in which sources were added.
    pub source: usize,
    /// Its class.
    pub class: ClassId,
    /// Its length.
    pub len: Length,
    /// When it arrived.
    pub arrival: Picos,
    /// Whether it may be marked instead of dropped.
    pub ecn: bool,
    /// Whether queue management marked it.
    pub marked: bool,
}

impl Payload for ClassPacket {
    fn mark(&mut self) -> bool {
        self.marked |= self.ecn;
        self.ecn
    }
}

/// A source whose packets go to a class.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassSource {
    /// Where its packets go.
    pub class: ClassId,
    /// Digest of the flow that they belong to, for classes of flows.
    pub flow: u64,
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

impl ClassSource {
    /// A source that always sends packets which may not be marked.
    pub fn new(class: ClassId, traffic: Traffic, lengths: Lengths) -> ClassSource {
        ClassSource {
            class,
            flow: 0,
            traffic,
            lengths,
            active: Vec::new(),
            patience: None,
            ecn: false,
            tcp: None,
        }
    }
}

/// Watches a run of a [`ClassServer`]. Events come in the order of time; nothing is asked back.
pub trait ClassObserver {
    /// A packet arrived and waits.
    fn accepted(&mut self, at: Picos, packet: &ClassPacket) {
        let _ = (at, packet);
    }

    /// A packet left the link: its transmission took from `start` to `end`.
    fn sent(&mut self, packet: &ClassPacket, start: Picos, end: Picos) {
        let _ = (packet, start, end);
    }

    /// A packet was not accepted.
    fn refused(&mut self, at: Picos, packet: &ClassPacket, reason: Rejection) {
        let _ = (at, packet, reason);
    }

    /// Queue management discarded an accepted packet, or it gave way to another.
    fn discarded(&mut self, at: Picos, packet: &ClassPacket) {
        let _ = (at, packet);
    }
}

/// Nobody watches.
impl ClassObserver for () {}

/// A source of the run.
#[derive(Debug)]
struct Running {
    plan: ClassSource,
    source: Source,
    /// The span it is in, and those to come.
    span: Range<Picos>,
    later: Vec<Range<Picos>>,
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

impl Running {
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
enum Kind {
    /// A span of sending begins.
    Begin,
    /// A packet of a source in a closed loop was acknowledged, and had been marked perhaps.
    Acknowledged(u64, bool),
    /// A source in a closed loop looks whether its packets are acknowledged.
    Timeout,
    /// A greedy source whose packets were all refused tries again.
    Retry,
    /// A greedy source looks whether its packets leave.
    Look,
    /// A packet arrives.
    Packet(Length),
}

/// A [`ClassQueue`], the same as in production, that drains through a transmit queue onto an
/// exact [`Link`], with the sources of its packets.
///
/// At one instant packets arrive first, in the order of their sources, then one
/// ends, then the queue is asked for as much as the transmit queue takes. Where it says
/// *not before*, it is asked at that time, or when something else happens before. A packet that
/// does not fit a transmit queue of bytes waits beside it, as it cannot go back. A run is a
/// function of its sources and its seed. O(log sources) an event, and what the queue costs.
///
/// ```
/// use fairlane_core::tree::{Algorithm, ClassConfig, ClassId, LeafConfig, Tree};
/// use fairlane_core::{Length, Weight};
/// use fairlane_sim::{ClassMeter, ClassServer, ClassSource, Lengths, Picos, Traffic, TransmitQueue};
///
/// let mut tree = Tree::new(Algorithm::Qfq, None, Default::default());
/// let mut leaf = |weight| {
///     let config = ClassConfig::new(Weight::new(weight).unwrap(), Length::new(1000).unwrap());
///     tree.add_leaf(ClassId::ROOT, config, LeafConfig::default()).unwrap()
/// };
/// let classes = [leaf(3), leaf(1)];
/// let mut server = ClassServer::new(tree, "8mbit".parse().unwrap(), TransmitQueue::NONE, 1);
/// for class in classes {
///     let lengths = Lengths::Fixed(Length::new(1000).unwrap());
///     server.add(ClassSource::new(class, Traffic::Greedy(4), lengths)).unwrap();
/// }
/// let mut meter = ClassMeter::new(Picos::from_millis(100));
/// server.run(Picos::from_secs(1), &mut meter);
/// assert_eq!(meter.bytes(classes[0], 5), 75_000);
/// assert_eq!(meter.bytes(classes[1], 5), 25_000);
/// ```
#[derive(Debug)]
pub struct ClassServer<Q> {
    queue: Q,
    link: Link<ClassPacket>,
    clock: Picos,
    /// A packet that the queue gave out and that is longer than the room in a transmit queue
    /// of bytes.
    aside: Option<ClassPacket>,
    /// Something happened at the clock, and the queue was not asked since.
    unsettled: bool,
    /// When the queue is asked again, as it wished.
    wake: Option<Picos>,
    sources: Vec<Running>,
    events: BinaryHeap<Reverse<(Picos, usize, Kind)>>,
    arrived: u64,
    seed: u64,
}

impl<Q: ClassQueue<ClassPacket>> ClassServer<Q> {
    /// A queue in front of an idle link at time 0, without sources. Each source draws from
    /// a seed of its own, made from `seed`.
    pub fn new(queue: Q, rate: Rate, transmit_queue: TransmitQueue, seed: u64) -> Self {
        ClassServer {
            queue,
            link: Link::new(rate, transmit_queue),
            aside: None,
            clock: Picos::ZERO,
            unsettled: false,
            wake: None,
            sources: Vec::new(),
            events: BinaryHeap::new(),
            arrived: 0,
            seed,
        }
    }

    /// Adds a source; sources are counted from 0. Spans in the past begin at the clock.
    pub fn add(&mut self, plan: ClassSource) -> Result<usize, SourceError> {
        let index = self.sources.len();
        let mut later = plan.active.clone();
        if later.is_empty() {
            later.push(Picos::ZERO..Picos::MAX);
        }
        // The next span is the last of them.
        later.sort_by_key(|span| Reverse(span.start));
        let seed = self.seed.wrapping_add((index as u64 + 1) << 32);
        let source = Source::new(plan.traffic.clone(), plan.lengths.clone(), seed)?;
        self.sources.push(Running {
            plan,
            source,
            span: Picos::ZERO..Picos::ZERO,
            later,
            seed,
            queued: 0,
            moved: Picos::ZERO,
            retries: false,
            watches: false,
            tcp: None,
            waits: false,
        });
        self.await_span(index);
        Ok(index)
    }

    /// The queue, to look at.
    pub fn queue(&self) -> &Q {
        &self.queue
    }

    /// The queue, to change between two runs.
    pub fn queue_mut(&mut self) -> &mut Q {
        self.unsettled = true;
        &mut self.queue
    }

    /// The time until which everything has happened.
    pub fn clock(&self) -> Picos {
        self.clock
    }

    /// Lets everything happen that is due before `until`, and sets the clock to it. May be
    /// called again to go on.
    pub fn run(&mut self, until: Picos, observer: &mut impl ClassObserver) {
        loop {
            let event = self.events.peek().map(|Reverse((at, ..))| *at);
            let work = self.next_work();
            match (event, work) {
                (Some(at), _) if at < until && work.is_none_or(|work| at <= work) => {
                    if let Some(Reverse((_, index, kind))) = self.events.pop() {
                        self.clock = self.clock.max(at);
                        self.happen(index, kind, observer);
                    }
                }
                (_, Some(at)) if at < until => {
                    self.clock = at;
                    self.work(observer);
                }
                _ => break,
            }
        }
        self.clock = self.clock.max(until);
    }

    /// When the link or the queue has something to do.
    fn next_work(&self) -> Option<Picos> {
        if self.unsettled {
            return Some(self.clock);
        }
        let ends = self.link.next_completion();
        ends.into_iter().chain(self.wake).min()
    }

    fn work(&mut self, observer: &mut impl ClassObserver) {
        self.wake = self.wake.filter(|&wake| wake > self.clock);
        if self.link.next_completion() == Some(self.clock) {
            if let Some(sent) = self.link.complete() {
                observer.sent(&sent.payload, sent.start, sent.end);
                let ClassPacket {
                    source,
                    number,
                    marked,
                    ..
                } = sent.payload;
                if let Some(tcp) = &self.sources[source].tcp {
                    let acknowledged = Kind::Acknowledged(number, marked);
                    self.events
                        .push(Reverse((sent.end + tcp.rtt(), source, acknowledged)));
                }
            }
            self.unsettled = true;
            return;
        }
        self.unsettled = false;
        if let Some(packet) = self.aside.take() {
            self.aside = self.link.push(self.clock, packet.len, packet).err();
            self.unsettled = self.aside.is_none();
            return;
        }
        if self.link.is_full() {
            return;
        }
        let (clock, now) = (self.clock, self.clock.to_nanos());
        let mut discarded = Vec::new();
        let answer = self.queue.dequeue(now, |gone| discarded.push(gone.payload));
        for packet in discarded {
            observer.discarded(clock, &packet);
            self.left(&packet, observer);
        }
        match answer {
            Dequeue::Packet(packet) => {
                self.aside = self.link.push(clock, packet.len, packet.payload).err();
                self.left(&packet.payload, observer);
                self.unsettled = true;
            }
            Dequeue::NotBefore(time) => {
                let soonest = Picos::from(now) + Picos::from_nanos(1);
                self.wake = Some(Picos::from(time).max(soonest));
            }
            Dequeue::Empty => self.wake = None,
        }
    }

    fn happen(&mut self, index: usize, kind: Kind, observer: &mut impl ClassObserver) {
        let clock = self.clock;
        let running = &mut self.sources[index];
        match kind {
            Kind::Begin => {
                let Some(span) = running.later.pop() else {
                    return;
                };
                running.span = span.start.max(clock)..span.end;
                // In each span the same packets would come: another seed for each.
                running.seed = running.seed.wrapping_add(1);
                let plan = &running.plan;
                let source = Source::new(plan.traffic.clone(), plan.lengths.clone(), running.seed);
                if let Ok(source) = source {
                    running.source = source;
                }
                running.tcp = running.plan.tcp.map(Sender::new);
                running.moved = clock;
                self.await_span(index);
                self.watch(index);
                self.go_on(index, observer);
            }
            Kind::Acknowledged(number, marked) => {
                if let Some(tcp) = &mut running.tcp {
                    tcp.acknowledged(number, marked, clock);
                }
                self.go_on(index, observer);
            }
            Kind::Timeout => {
                running.waits = false;
                if let Some(tcp) = &mut running.tcp
                    && tcp.deadline().is_some_and(|deadline| deadline <= clock)
                {
                    tcp.give_up(clock);
                }
                self.go_on(index, observer);
            }
            Kind::Look => {
                running.watches = false;
                let patience = running.plan.patience.unwrap_or(Picos::MAX);
                if running.span.contains(&clock) && running.moved + patience <= clock {
                    running.moved = clock;
                    if let Some((_, len)) = running.source.next_packet() {
                        self.arrive(index, len, observer);
                    }
                }
                self.watch(index);
            }
            Kind::Retry => {
                running.retries = false;
                self.go_on(index, observer);
            }
            Kind::Packet(len) => {
                self.arrive(index, len, observer);
                self.go_on(index, observer);
            }
        }
    }

    /// The beginning of the next span of a source.
    fn await_span(&mut self, index: usize) {
        if let Some(span) = self.sources[index].later.last() {
            let at = span.start.max(self.clock);
            self.events.push(Reverse((at, index, Kind::Begin)));
        }
    }

    /// A greedy source with a patience will look whether its packets leave.
    fn watch(&mut self, index: usize) {
        let running = &mut self.sources[index];
        if let Some(patience) = running.plan.patience
            && running.keeps().is_some()
            && running.span.contains(&self.clock)
            && !running.watches
        {
            running.watches = true;
            let at = running.moved + patience;
            self.events.push(Reverse((at, index, Kind::Look)));
        }
    }

    /// A source sends what it has to send now, or says when it will.
    fn go_on(&mut self, index: usize, observer: &mut impl ClassObserver) {
        if self.sources[index].tcp.is_some() {
            return self.fill_window(index, observer);
        }
        let running = &mut self.sources[index];
        let Some(keeps) = running.keeps() else {
            if let Some((time, len)) = running.source.next_packet() {
                let at = running.span.start + time;
                if at < running.span.end {
                    self.events.push(Reverse((at, index, Kind::Packet(len))));
                }
            }
            return;
        };
        while self.sources[index].span.contains(&self.clock) && self.sources[index].queued < keeps {
            let Some((_, len)) = self.sources[index].source.next_packet() else {
                return;
            };
            if !self.arrive(index, len, observer) {
                return self.retry(index, len);
            }
        }
    }

    /// A source in a closed loop sends what its window has room for. Of what is refused it learns
    /// as of all that is lost.
    fn fill_window(&mut self, index: usize, observer: &mut impl ClassObserver) {
        loop {
            let clock = self.clock;
            let number = self.arrived;
            let running = &mut self.sources[index];
            let Some(tcp) = running.tcp.as_mut().filter(|tcp| tcp.may_send()) else {
                break;
            };
            if !running.span.contains(&clock) {
                break;
            }
            let Some((_, len)) = running.source.next_packet() else {
                break;
            };
            tcp.sent(number, clock);
            self.arrive(index, len, observer);
        }
        let running = &mut self.sources[index];
        let deadline = running.tcp.as_ref().and_then(Sender::deadline);
        if let Some(deadline) = deadline
            && !running.waits
            && running.span.contains(&self.clock)
        {
            running.waits = true;
            let at = deadline.max(self.clock);
            self.events.push(Reverse((at, index, Kind::Timeout)));
        }
    }

    /// A greedy source was refused: when it has nothing queued whose departure would let
    /// it send again, it tries again after the time of a packet.
    fn retry(&mut self, index: usize, len: Length) {
        let running = &mut self.sources[index];
        if running.queued == 0 && !running.retries {
            running.retries = true;
            let picos = u128::from(len.get()) * 8 * u128::from(crate::time::PICOS_PER_SECOND);
            let at = self.clock + Picos(picos / u128::from(self.link.rate().bps()));
            self.events.push(Reverse((at, index, Kind::Retry)));
        }
    }

    /// A packet arrives: whether it was accepted.
    fn arrive(&mut self, index: usize, len: Length, observer: &mut impl ClassObserver) -> bool {
        let running = &mut self.sources[index];
        let packet = ClassPacket {
            number: self.arrived,
            source: index,
            class: running.plan.class,
            len,
            arrival: self.clock,
            ecn: running.plan.ecn,
            marked: false,
        };
        self.arrived += 1;
        self.unsettled = true;
        let now = self.clock.to_nanos();
        let flow = running.plan.flow;
        let mut displaced = Vec::new();
        let gives_way = |gone: Discarded<ClassPacket>| displaced.push(gone.payload);
        let outcome = self
            .queue
            .enqueue(packet.class, flow, len, packet, now, gives_way);
        for packet in displaced {
            observer.discarded(self.clock, &packet);
            self.lost(&packet);
        }
        let running = &mut self.sources[index];
        match outcome {
            Ok(()) => {
                running.queued += 1;
                observer.accepted(self.clock, &packet);
                true
            }
            Err(rejected) => {
                observer.refused(self.clock, &rejected.payload, rejected.reason);
                false
            }
        }
    }

    /// A packet gave way to another. A greedy source sends the next when one of its packets leaves,
    /// or tries again if it has none.
    fn lost(&mut self, packet: &ClassPacket) {
        let running = &mut self.sources[packet.source];
        running.queued -= 1;
        if running.keeps().is_some() {
            self.retry(packet.source, packet.len);
        }
    }

    /// A packet left the queue: a greedy source sends another.
    fn left(&mut self, packet: &ClassPacket, observer: &mut impl ClassObserver) {
        let running = &mut self.sources[packet.source];
        running.queued -= 1;
        running.moved = self.clock;
        if running.keeps().is_some() {
            self.go_on(packet.source, observer);
        }
    }
}
