//! Sources in front of whatever carries their packets: the events of a run, in the order of time.

use crate::source::{Lengths, Source, SourceError, Traffic};
use crate::tcp::{Sender, Tcp};
use crate::time::{PICOS_PER_SECOND, Picos};
use fairlane_core::tree::Payload;
use fairlane_core::{Length, Rate};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

/// The sender of a packet of a [`Simulation`](crate::Simulation), stored as its body in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tag {
    /// Its source, by the order in which sources were added.
    pub(crate) source: usize,
    /// Packets are numbered from 0 as they are sent, those that are not accepted too.
    pub(crate) number: u64,
    /// When it was sent, in picoseconds modulo 2^64.
    pub(crate) sent: u64,
    /// Queues of a network that it has left.
    pub(crate) hop: u16,
    /// Whether it may be marked instead of dropped.
    ecn: bool,
}

impl Payload for Tag {
    fn mark(&mut self) -> bool {
        self.ecn
    }
}

/// A source: whose packets it sends, and when.
#[derive(Clone, Debug, PartialEq)]
pub struct SourcePlan<L> {
    /// The owner of its packets.
    pub to: L,
    /// When it sends. A greedy source is one that fills the pipe as a TCP with data
    /// to send does: it keeps its packets in the queue, and sends another for each that leaves,
    /// sent or dropped.
    pub traffic: Traffic,
    /// Its packet lengths.
    pub lengths: Lengths,
    /// When it sends; each span starts from the beginning. Empty: always.
    pub active: Vec<Range<Picos>>,
    /// A greedy source that saw none of its packets leave for so long sends one more, as
    /// a TCP does whose retransmission timer expires.
    pub patience: Option<Picos>,
    /// Whether its packets may be marked.
    pub ecn: bool,
    /// Sends like a [`Tcp`] with data to send, restarted in each span. Its `traffic` is greedy then.
    pub tcp: Option<Tcp>,
}

impl<L> SourcePlan<L> {
    /// Returns a source that always sends packets which may not be marked.
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

    /// Splits the plan into the owner of its packets and the rest.
    pub(crate) fn split(self) -> (L, SourcePlan<()>) {
        let rest = SourcePlan {
            to: (),
            traffic: self.traffic,
            lengths: self.lengths,
            active: self.active,
            patience: self.patience,
            ecn: self.ecn,
            tcp: self.tcp,
        };
        (self.to, rest)
    }
}

/// Feedback to a source about its packets.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Went {
    /// A packet reached its end, marked on its way perhaps, at a time.
    Arrived(Tag, bool, Picos),
    /// A packet left the first queue on its way.
    Left(Tag),
    /// Nothing.
    Nothing,
}

/// The carrier of packets from sources to destinations: a link, or a network of them.
pub(crate) trait Carrier {
    /// Returns the time until which everything has happened.
    fn clock(&self) -> Picos;

    /// Sets the clock to it; nothing is due before.
    fn advance(&mut self, to: Picos);

    /// Lets one thing happen that is due before `to`; `None` if nothing is.
    fn step_before(&mut self, to: Picos) -> Option<Went>;

    /// A packet is sent at the clock: whether its first queue accepted it.
    fn arrive(&mut self, len: Length, tag: Tag) -> bool;

    /// Returns previously queued packets that were discarded in the last step or arrival.
    fn take_discarded(&mut self) -> Vec<(Length, Tag)>;

    /// The rate of the first link of what this source sends.
    fn rate(&self, source: usize) -> Rate;
}

/// A source of the run.
#[derive(Debug)]
struct Running {
    plan: SourcePlan<()>,
    source: Source,
    /// The present span, and later ones.
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

impl Running {
    fn new(plan: SourcePlan<()>, seed: u64) -> Result<Self, SourceError> {
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

/// The events at a time; in this order at the same time.
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

/// Sources, and what carries their packets. At the same time packets arrive first, in the order of their
/// sources, then whatever the carrier has to do. O(log sources) an event, and what carrying costs.
#[derive(Debug)]
pub(crate) struct Senders<C: ?Sized> {
    pub(crate) seed: u64,
    /// `None`: a source that has not started, or is gone.
    sources: Vec<Option<Running>>,
    events: BinaryHeap<Reverse<(Picos, usize, Event)>>,
    /// Packets that were sent.
    sent: u64,
    pub(crate) carrier: C,
}

impl<C: Carrier> Senders<C> {
    pub(crate) fn new(carrier: C, seed: u64) -> Self {
        Senders {
            seed,
            sources: Vec::new(),
            events: BinaryHeap::new(),
            sent: 0,
            carrier,
        }
    }

    /// Returns the senders with any carrier, so that event handling is compiled once.
    pub(crate) fn any(&mut self) -> &mut Senders<dyn Carrier + '_> {
        self
    }
}

impl Senders<dyn Carrier + '_> {
    /// Adds a source, which draws from a seed of its own; spans in the past begin at the clock.
    pub(crate) fn add(&mut self, plan: SourcePlan<()>) -> Result<usize, SourceError> {
        let index = self.sources.len();
        let seed = self.seed.wrapping_add((index as u64 + 1) << 32);
        let running = Running::new(plan, seed.wrapping_add(1))?;
        self.sources.push(Some(running));
        self.await_span(index);
        Ok(index)
    }

    /// Reserves the next number for a later source.
    pub(crate) fn reserve(&mut self) {
        self.sources.push(None);
    }

    /// Starts a source with this seed, or removes it.
    pub(crate) fn set(&mut self, index: usize, plan: Option<SourcePlan<()>>, seed: u64) {
        self.sources[index] = plan.and_then(|plan| Running::new(plan, seed).ok());
        self.begin_span(index);
    }

    fn clock(&self) -> Picos {
        self.carrier.clock()
    }

    /// Processes all events before `until`, and sets the clock to it, as long as `go_on` returns true,
    /// which is called at every event; returns whether it reached `until`.
    pub(crate) fn run_until(&mut self, until: Picos, go_on: &mut dyn FnMut() -> bool) -> bool {
        let came = self.work_until(until, go_on);
        if came {
            self.carrier.advance(until);
        }
        came
    }

    /// Lets everything happen that is due before `until`, as long as `go_on` says so: whether it did.
    pub(crate) fn work_until(&mut self, until: Picos, go_on: &mut dyn FnMut() -> bool) -> bool {
        while go_on() {
            let next = self.events.peek().map(|Reverse((at, ..))| *at);
            let next = next.filter(|&at| at < until);
            // At one instant sources come first.
            if self.work_before(next.unwrap_or(until)) {
                continue;
            }
            let Some(at) = next else { return true };
            if let Some(Reverse((_, index, event))) = self.events.pop() {
                self.carrier.advance(at);
                self.happen(index, event);
            }
        }
        false
    }

    /// Lets the carrier do one thing that is due before `to`, and sources follow it. Whether there
    /// was one.
    fn work_before(&mut self, to: Picos) -> bool {
        let Some(went) = self.carrier.step_before(to) else {
            return false;
        };
        for (_, tag) in self.carrier.take_discarded() {
            self.left(tag);
        }
        match went {
            Went::Arrived(tag, marked, at) => self.acknowledge(tag, marked, at),
            Went::Left(tag) => self.left(tag),
            Went::Nothing => {}
        }
        true
    }

    /// A closed-loop source will learn of a packet that arrived.
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
        // Another seed for each span, which would otherwise have the same packets.
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

    /// Makes a source send its due packets, or schedules them.
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

    /// Makes a closed-loop source fill its window. Rejections count as losses.
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
        let (clock, rate) = (self.clock(), self.carrier.rate(index));
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
            sent: self.carrier.clock().0 as u64,
            hop: 0,
            ecn: running.plan.ecn,
        };
        self.sent += 1;
        let accepted = self.carrier.arrive(len, tag);
        for (len, tag) in self.carrier.take_discarded() {
            self.lost(len, tag);
        }
        if let Some(running) = &mut self.sources[index] {
            running.queued += u32::from(accepted);
        }
        accepted
    }

    /// A packet was evicted. A greedy source sends the next when one of its packets leaves, or tries again
    /// if it has none.
    fn lost(&mut self, len: Length, tag: Tag) {
        if let Some(running) = &mut self.sources[tag.source] {
            running.queued -= 1;
            if running.keeps().is_some() {
                self.retry(tag.source, len);
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
