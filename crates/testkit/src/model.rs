//! Operations on a packet scheduler, checked against a model of plain queues: no packet is lost, duplicated or
//! reordered within a flow, the link never idles while packets are queued, and all counts add up. A property test or a
//! fuzzer supplies the operations.

use std::collections::{BTreeMap, VecDeque};

use fairlane_core::scheduler::Scheduler;
use fairlane_core::{
    ChangeError, Count, FlowConfig, FlowId, Length, Limits, Packet, PacketScheduler, Rejection,
    SchedulerLimits, VirtualTime, Weight,
};

use crate::broken::{Sentence, demand};
use crate::numbers::{length, weight};

/// Returns a virtual time 2^`shift` units, and a little more, before the wrap.
pub fn before_the_wrap(shift: u32, more: u16) -> VirtualTime {
    VirtualTime::new((u64::from(more) << 24 | 1 << shift).wrapping_neg())
}

/// An operation on the scheduler. A flow is selected by number, modulo the number of existing flows.
#[derive(Clone, Debug)]
pub enum Operation {
    /// Adds a flow.
    Add(Config),
    /// Removes a flow and its packets.
    Remove(usize),
    /// Changes a flow's weight, maximum packet length or limits.
    Change(usize, Config),
    /// Empties a flow's queue.
    Flush(usize),
    /// Enqueues packets of a flow.
    Enqueue {
        /// The flow.
        flow: usize,
        /// Length of each packet in bytes.
        len: u32,
        /// Number of packets.
        packets: u8,
    },
    /// Enqueues a packet of each flow, so that many are backlogged at once.
    EnqueueAll {
        /// Length of each packet in bytes.
        len: u32,
    },
    /// Dequeues this many packets.
    Dequeue(u16),
    /// Peeks at the next packet, then dequeues it.
    Peek,
    /// Uses the number of a flow that may not exist.
    Stray(u32),
    /// Gives all flows this weight at once, so that the sum of weights changes widely.
    ChangeAll(u32),
}

/// The configuration of a flow, in plain numbers within their ranges.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Its weight.
    pub weight: u32,
    /// Its maximum packet length in bytes.
    pub max_length: u32,
    /// Limits of its queue in packets and bytes.
    pub limits: Option<(u32, u32)>,
}

impl Config {
    fn flow(self) -> FlowConfig {
        FlowConfig {
            weight: weight(self.weight),
            max_length: length(self.max_length),
            limits: self
                .limits
                .map(|(packets, bytes)| Limits { packets, bytes }),
        }
    }
}

/// The model of one flow.
#[derive(Debug)]
struct Flow {
    queue: VecDeque<(Length, u64)>,
    config: Config,
    accepted: u64,
    dropped: u64,
    discarded: u64,
    sent: u64,
}

impl Flow {
    fn counts(&self) -> [u64; 5] {
        let queued = self.queue.len() as u64;
        let Flow {
            accepted,
            sent,
            dropped,
            discarded,
            ..
        } = *self;
        [accepted, sent, queued, dropped, discarded]
    }

    /// Checks that a packet which left the queue is the oldest one of the model.
    fn lets_go(&mut self, packet: Packet<u64>) -> Sentence {
        let (first, left) = (self.queue.pop_front(), (packet.len, packet.payload));
        demand!(
            first == Some(left),
            "a flow's packets leave out of order: {left:?} came out before {first:?}"
        );
        Ok(())
    }
}

/// The scheduler and its model.
struct Pair<A: Scheduler> {
    real: PacketScheduler<A, u64>,
    model: BTreeMap<FlowId, Flow>,
    /// Flows in order of creation, so that operations can pick one by number.
    flows: Vec<FlowId>,
    limits: SchedulerLimits,
    next_tag: u64,
}

impl<A: Scheduler> Pair<A> {
    fn new(algorithm: A) -> Self {
        let limits = SchedulerLimits {
            packets: 400,
            bytes: 4_000_000,
            per_flow: Limits {
                packets: 50,
                bytes: 1_000_000,
            },
        };
        Pair {
            real: PacketScheduler::new(algorithm, limits),
            model: BTreeMap::new(),
            flows: Vec::new(),
            limits,
            next_tag: 0,
        }
    }

    fn pick(&self, number: usize) -> Option<FlowId> {
        let count = self.flows.len();
        (count > 0).then(|| self.flows[number % count])
    }

    fn limits(&self, flow: &Flow) -> Limits {
        let (packets, bytes) = flow
            .config
            .limits
            .unwrap_or((self.limits.per_flow.packets, self.limits.per_flow.bytes));
        Limits { packets, bytes }
    }

    fn expected_rejection(&self, id: FlowId, len: Length) -> Option<Rejection> {
        let Some(flow) = self.model.get(&id) else {
            return Some(Rejection::Unknown);
        };
        let max = length(flow.config.max_length);
        let limits = self.limits(flow);
        let bytes = |flow: &Flow| {
            flow.queue
                .iter()
                .map(|(len, _)| u64::from(len.get()))
                .sum::<u64>()
        };
        let all_packets: usize = self.model.values().map(|f| f.queue.len()).sum();
        let all_bytes: u64 = self.model.values().map(bytes).sum();
        let len_bytes = u64::from(len.get());
        if len > max {
            Some(Rejection::TooLong { max })
        } else if flow.queue.len() as u64 + 1 > u64::from(limits.packets)
            || bytes(flow) + len_bytes > u64::from(limits.bytes)
        {
            Some(Rejection::QueueFull)
        } else if all_packets as u64 + 1 > u64::from(self.limits.packets)
            || all_bytes + len_bytes > self.limits.bytes
        {
            Some(Rejection::LinkFull)
        } else {
            None
        }
    }

    fn enqueue(&mut self, id: FlowId, len: Length) -> Sentence {
        let reason = self.expected_rejection(id, len);
        let tag = self.next_tag;
        self.next_tag += 1;
        let outcome = self.real.enqueue(id, len, tag);
        let outcome = outcome.map_err(|r| (r.payload, r.reason));
        let expected = reason.map_or(Ok(()), |reason| Err((tag, reason)));
        demand!(
            outcome == expected,
            "a packet of {len} is not accepted or rejected as the limits say: {outcome:?}, not {expected:?}"
        );
        if let Some(flow) = self.model.get_mut(&id) {
            if reason.is_none() {
                flow.queue.push_back((len, tag));
                flow.accepted += 1;
            } else {
                flow.dropped += 1;
            }
        }
        Ok(())
    }

    fn peek(&mut self) -> Option<(FlowId, Length, u64)> {
        let packet = self.real.peek()?;
        Some((packet.owner, packet.len, *packet.payload))
    }

    /// Dequeues a packet; false if there was none.
    fn dequeue(&mut self) -> Result<bool, String> {
        let waiting = self.model.values().any(|flow| !flow.queue.is_empty());
        let Some(packet) = self.real.dequeue() else {
            demand!(
                !waiting,
                "the link idles while packets wait: a backlogged flow is never selected"
            );
            return Ok(false);
        };
        let Some(flow) = self.model.get_mut(&packet.owner) else {
            return Err(format!(
                "a packet leaves of {:?}, which does not exist",
                packet.owner
            ));
        };
        flow.lets_go(packet)?;
        flow.sent += 1;
        Ok(true)
    }

    fn apply(&mut self, operation: &Operation) -> Sentence {
        match *operation {
            Operation::Add(config) => self.add(config),
            Operation::Remove(number) => self.remove(number),
            Operation::Change(number, config) => self.change(number, config),
            Operation::ChangeAll(weight) => self.change_all(weight),
            Operation::Flush(number) => self.flush(number),
            Operation::Enqueue { flow, len, packets } => {
                let Some(id) = self.pick(flow) else {
                    return Ok(());
                };
                // Mostly within the declared maximum, so that queues do fill.
                let max = self.model[&id].config.max_length;
                let len = if len % 8 == 0 { len } else { len.min(max) };
                (0..packets).try_for_each(|_| self.enqueue(id, length(len)))
            }
            Operation::EnqueueAll { len } => self.flows.clone().into_iter().try_for_each(|id| {
                let max = self.model[&id].config.max_length;
                self.enqueue(id, length(len.min(max)))
            }),
            Operation::Dequeue(packets) => {
                for _ in 0..packets {
                    if !self.dequeue()? {
                        break;
                    }
                    self.check()?;
                }
                Ok(())
            }
            Operation::Peek => self.look(),
            Operation::Stray(number) => self.stray(number),
        }
    }

    fn look(&mut self) -> Sentence {
        let seen = self.peek();
        self.check()?;
        let again = self.peek();
        demand!(
            again == seen,
            "a look changes the next entity: {seen:?}, and {again:?} when asked again"
        );
        let Some((id, len, tag)) = seen else {
            let left = self.dequeue()?;
            demand!(!left, "a look finds nothing, and a packet leaves");
            return Ok(());
        };
        let holds = |pair: &Self| {
            let flow = pair.model.get(&id);
            flow.is_some_and(|flow| flow.queue.contains(&(len, tag)))
        };
        demand!(holds(self), "a look finds a packet that is not queued");
        self.dequeue()?;
        demand!(!holds(self), "another packet leaves than the look found");
        Ok(())
    }

    fn add(&mut self, config: Config) -> Sentence {
        if self.flows.len() >= 40 {
            return Ok(());
        }
        let id = self.real.add_flow(config.flow());
        let id = id.map_err(|error| format!("a flow is refused: {error}"))?;
        let flow = Flow {
            queue: VecDeque::new(),
            config,
            accepted: 0,
            dropped: 0,
            discarded: 0,
            sent: 0,
        };
        let known = self.model.insert(id, flow);
        demand!(known.is_none(), "the number of {id:?} is given twice");
        self.flows.push(id);
        Ok(())
    }

    /// Checks packets that left a flow's queue without being sent.
    fn discard(flow: &mut Flow, gone: Vec<Packet<u64>>) -> Sentence {
        for packet in gone {
            flow.lets_go(packet)?;
            flow.discarded += 1;
        }
        demand!(
            flow.queue.is_empty(),
            "a flow keeps packets that were to be discarded"
        );
        Ok(())
    }

    fn flush(&mut self, number: usize) -> Sentence {
        let Some(id) = self.pick(number) else {
            return Ok(());
        };
        let mut gone = Vec::new();
        let outcome = self.real.flush_flow(id, |packet| gone.push(packet));
        demand!(outcome.is_ok(), "a flow cannot be emptied: {outcome:?}");
        match self.model.get_mut(&id) {
            Some(flow) => Self::discard(flow, gone),
            None => Ok(()),
        }
    }

    fn remove(&mut self, number: usize) -> Sentence {
        let Some(id) = self.pick(number) else {
            return Ok(());
        };
        self.flows.retain(|&other| other != id);
        let mut gone = Vec::new();
        let outcome = self.real.remove_flow(id, |packet| gone.push(packet));
        let (Some(mut flow), Ok(stats)) = (self.model.remove(&id), outcome) else {
            return Err(format!("a flow cannot be removed: {outcome:?}"));
        };
        Self::discard(&mut flow, gone)?;
        let [accepted, sent, _, _, discarded] = flow.counts();
        let told = [stats.accepted, stats.sent, stats.discarded].map(|count| count.packets);
        demand!(
            told == [accepted, sent, discarded],
            "a removed flow's counts are wrong: {told:?} packets accepted, sent and discarded"
        );
        let known = self.real.flow_stats(id);
        demand!(known.is_none(), "a removed flow still has counts");
        Ok(())
    }

    fn change(&mut self, number: usize, config: Config) -> Sentence {
        let Some(id) = self.pick(number) else {
            return Ok(());
        };
        let before = self.real.weight(id);
        let Some(flow) = self.model.get_mut(&id) else {
            return Ok(());
        };
        let queued = flow.queue.iter().map(|&(len, _)| len).max();
        let max = length(config.max_length);
        let outcome = self.real.change_flow(id, config.flow());
        let (expected, then) = match queued.filter(|&len| len > max) {
            Some(queued) => {
                let refused = ChangeError::LongerPacketQueued { queued, max };
                (Err(refused), before)
            }
            None => {
                flow.config = config;
                (Ok(()), Some(weight(config.weight)))
            }
        };
        demand!(
            outcome == expected,
            "a change of share ends with {outcome:?}, not {expected:?}"
        );
        let now = self.real.weight(id);
        demand!(
            now == then,
            "a flow's weight reads {now:?} after a change, not {then:?}"
        );
        Ok(())
    }

    fn change_all(&mut self, weight: u32) -> Sentence {
        for id in self.flows.clone() {
            if let Some(flow) = self.model.get_mut(&id) {
                flow.config.weight = weight;
                let outcome = self.real.change_flow(id, flow.config.flow());
                demand!(outcome.is_ok(), "a weight cannot be changed: {outcome:?}");
            }
            self.check()?;
        }
        Ok(())
    }

    fn stray(&mut self, number: u32) -> Sentence {
        let id = FlowId::new(number);
        if self.model.contains_key(&id) {
            return Ok(());
        }
        self.enqueue(id, Length::MAX)?;
        let config = FlowConfig::new(Weight::ONE, Length::MAX);
        let unknown = Err(ChangeError::UnknownFlow);
        let outcomes = [
            self.real.flush_flow(id, |_| {}),
            self.real.remove_flow(id, |_| {}).map(|_| ()),
            self.real.change_flow(id, config),
        ];
        demand!(
            outcomes == [unknown; 3],
            "a flow that does not exist is emptied, removed or changed: {outcomes:?}"
        );
        Ok(())
    }

    fn check(&self) -> Sentence {
        let checked = self.real.invariants();
        checked.map_err(|violation| format!("an invariant is violated: {violation}"))
    }

    fn check_counts(&self) -> Sentence {
        for (&id, flow) in &self.model {
            let Some(stats) = self.real.flow_stats(id) else {
                return Err(format!("{id:?} has no counts"));
            };
            let told = [
                stats.accepted,
                stats.sent,
                stats.queued,
                stats.dropped,
                stats.discarded,
            ];
            let told = told.map(|count| count.packets);
            demand!(
                told == flow.counts(),
                "the counts of {id:?} are {told:?} (accepted, sent, queued, dropped, discarded), not {:?}",
                flow.counts()
            );
        }
        let total = self.real.total_stats();
        let of = |count: fn(&Count) -> u64| {
            let [accepted, sent, queued, discarded] = [
                count(&total.accepted),
                count(&total.sent),
                count(&total.queued),
                count(&total.discarded),
            ];
            accepted == sent + queued + discarded
        };
        demand!(
            of(|count| count.packets) && of(|count| count.bytes),
            "accepted packets differ from those sent, queued and discarded: {total:?}"
        );
        Ok(())
    }
}

/// Applies `operations` to `algorithm` and to the model until they differ.
///
/// # Errors
///
/// One sentence that describes the first difference.
pub fn drive<A: Scheduler>(algorithm: A, operations: &[Operation]) -> Sentence {
    let mut pair = Pair::new(algorithm);
    for operation in operations {
        pair.apply(operation)?;
        pair.check()?;
        pair.check_counts()?;
    }
    while pair.dequeue()? {
        pair.check()?;
    }
    pair.check_counts()?;
    demand!(pair.real.is_empty(), "packets are left that no queue holds");
    Ok(())
}
