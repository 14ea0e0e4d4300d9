//! Operations on a packet scheduler, and a model of plain queues beside it. The property
//! test and the fuzz target both drive every algorithm with it.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Debug;

use fairlane_core::scheduler::Scheduler;
use fairlane_core::{
    ChangeError, FlowConfig, FlowId, Length, Limits, PacketScheduler, Rejection, SchedulerLimits,
    VirtualTime, Weight,
};

/// Hands every algorithm to the macro `$with`, for which `fairlane_core::sched` must be in
/// scope: its name, and how to make it from a starting virtual time and the most members of
/// an aggregate. New ones go to the end, so that the fuzzer's inputs keep their meaning.
macro_rules! algorithms {
    ($with:ident) => {
        $with! {
            fifo: |_, _| Fifo::new();
            drr: |_, _| Drr::new();
            qfq: |start, _| Qfq::starting_at(start);
            fifo_plus: |_, members| Plus::<Fifo>::new(members);
            drr_plus: |_, members| Plus::<Drr>::new(members);
            qfq_plus: |start, members| Plus::over(Qfq::starting_at(start), members);
            wf2q: |start, _| Wf2q::starting_at(start);
            wf2q_in_aggregates: |start, members| Plus::over(Wf2q::starting_at(start), members);
            wf2q_plus: |start, _| Wf2qPlus::starting_at(start);
            wf2q_plus_plus: |start, members| Plus::over(Wf2qPlus::starting_at(start), members);
            s_kps: |start, _| SKps::starting_at(start);
            s_kps_plus: |start, members| Plus::over(SKps::starting_at(start), members);
            gfq: |start, _| Gfq::starting_at(start);
            gfq_plus: |start, members| Plus::over(Gfq::starting_at(start), members);
            priority: |_, _| Priority::new();
            priority_plus: |_, members| Plus::<Priority>::new(members);
            sfq: |_, _| Sfq::new();
            sfq_of_few_buckets: |start, members| {
                Sfq::with(members, start.units(), core::num::NonZeroU64::new(100_000))
            };
            sfq_plus: |_, members| Plus::<Sfq>::new(members);
            scfq: |start, _| Scfq::starting_at(start);
            scfq_plus: |start, members| Plus::over(Scfq::starting_at(start), members);
        }
    };
}
pub(crate) use algorithms;

/// So much virtual time before it wraps: 2^`shift` units, and a little more.
pub(crate) fn before_the_wrap(shift: u32, more: u16) -> VirtualTime {
    VirtualTime::new((u64::from(more) << 24 | 1 << shift).wrapping_neg())
}

/// What happens to the scheduler. A flow is one of those that exist, counted on from the
/// first again after the last.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    Add(Config),
    Remove(usize),
    Change(usize, Config),
    Flush(usize),
    Enqueue {
        flow: usize,
        len: u32,
        packets: u8,
    },
    /// A packet to each flow, so that many are backlogged at once.
    EnqueueAll {
        len: u32,
    },
    Dequeue(u16),
    Peek,
    /// Speaks of a flow that may not exist.
    Stray(u32),
    /// All flows at once, so that the sum of weights moves far.
    ChangeAll(u32),
}

/// How a flow is configured, in plain numbers within their ranges.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Config {
    pub weight: u32,
    pub max_length: u32,
    /// Packets and bytes.
    pub limits: Option<(u32, u32)>,
}

impl Config {
    fn flow(self) -> FlowConfig {
        FlowConfig {
            weight: Weight::new(self.weight).unwrap(),
            max_length: Length::new(self.max_length).unwrap(),
            limits: self
                .limits
                .map(|(packets, bytes)| Limits { packets, bytes }),
        }
    }
}

/// What the scheduler should hold of one flow.
#[derive(Debug)]
struct Flow {
    queue: VecDeque<(Length, u64)>,
    config: Config,
    accepted: u64,
    dropped: u64,
    discarded: u64,
    sent: u64,
}

/// The scheduler, and the model of what it should hold.
struct Pair<A: Scheduler + Debug> {
    real: PacketScheduler<A, u64>,
    model: BTreeMap<FlowId, Flow>,
    /// Flows in order of creation, so that operations can pick one by number.
    flows: Vec<FlowId>,
    limits: SchedulerLimits,
    next_tag: u64,
}

impl<A: Scheduler + Debug> Pair<A> {
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
        let max = Length::new(flow.config.max_length).unwrap();
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

    fn enqueue(&mut self, id: FlowId, len: Length) {
        let expected = self.expected_rejection(id, len);
        let tag = self.next_tag;
        self.next_tag += 1;
        let outcome = self.real.enqueue(id, len, tag);
        assert_eq!(
            outcome.map_err(|r| (r.payload, r.reason)),
            match expected {
                None => Ok(()),
                Some(reason) => Err((tag, reason)),
            }
        );
        if let Some(flow) = self.model.get_mut(&id) {
            if expected.is_none() {
                flow.queue.push_back((len, tag));
                flow.accepted += 1;
            } else {
                flow.dropped += 1;
            }
        }
    }

    fn peek(&mut self) -> Option<(FlowId, Length, u64)> {
        let packet = self.real.peek()?;
        Some((packet.owner, packet.len, *packet.payload))
    }

    fn dequeue(&mut self) -> bool {
        let waiting = self.model.values().any(|flow| !flow.queue.is_empty());
        match self.real.dequeue() {
            Some(p) => {
                let flow = self.model.get_mut(&p.owner).expect("a flow that exists");
                assert_eq!(flow.queue.pop_front(), Some((p.len, p.payload)));
                flow.sent += 1;
                true
            }
            None => {
                assert!(!waiting, "the link idles while packets wait");
                false
            }
        }
    }

    fn apply(&mut self, operation: &Operation) {
        match *operation {
            Operation::Add(config) => self.add(config),
            Operation::Remove(number) => self.remove(number),
            Operation::Change(number, config) => self.change(number, config),
            Operation::ChangeAll(weight) => {
                for id in self.flows.clone() {
                    let flow = self.model.get_mut(&id).unwrap();
                    flow.config.weight = weight;
                    self.real.change_flow(id, flow.config.flow()).unwrap();
                    self.check();
                }
            }
            Operation::Flush(number) => {
                let Some(id) = self.pick(number) else { return };
                let flow = self.model.get_mut(&id).unwrap();
                self.real
                    .flush_flow(id, |p| {
                        assert_eq!(flow.queue.pop_front(), Some((p.len, p.payload)));
                        flow.discarded += 1;
                    })
                    .unwrap();
                assert!(flow.queue.is_empty());
            }
            Operation::Enqueue { flow, len, packets } => {
                let Some(id) = self.pick(flow) else { return };
                // Mostly within the declared maximum, so that queues do fill.
                let max = self.model[&id].config.max_length;
                let len = if len % 8 == 0 { len } else { len.min(max) };
                for _ in 0..packets {
                    self.enqueue(id, Length::new(len).unwrap());
                }
            }
            Operation::EnqueueAll { len } => {
                for id in self.flows.clone() {
                    let max = self.model[&id].config.max_length;
                    self.enqueue(id, Length::new(len.min(max)).unwrap());
                }
            }
            Operation::Dequeue(packets) => {
                for _ in 0..packets {
                    if !self.dequeue() {
                        break;
                    }
                    self.check();
                }
            }
            Operation::Peek => {
                let seen = self.peek();
                self.check();
                assert_eq!(self.peek(), seen, "peek changes nothing");
                if let Some((flow, len, tag)) = seen {
                    assert_eq!(self.model[&flow].queue.front(), Some(&(len, tag)));
                    self.dequeue();
                    assert!(
                        !self.model[&flow].queue.contains(&(len, tag)),
                        "another came out"
                    );
                } else {
                    assert!(!self.dequeue());
                }
            }
            Operation::Stray(number) => self.stray(number),
        }
    }

    fn add(&mut self, config: Config) {
        if self.flows.len() >= 40 {
            return;
        }
        let id = self.real.add_flow(config.flow()).unwrap();
        let flow = Flow {
            queue: VecDeque::new(),
            config,
            accepted: 0,
            dropped: 0,
            discarded: 0,
            sent: 0,
        };
        assert!(self.model.insert(id, flow).is_none(), "{id:?} was in use");
        self.flows.push(id);
    }

    fn remove(&mut self, number: usize) {
        let Some(id) = self.pick(number) else { return };
        self.flows.retain(|&other| other != id);
        let mut flow = self.model.remove(&id).unwrap();
        let stats = self
            .real
            .remove_flow(id, |p| {
                assert_eq!(flow.queue.pop_front(), Some((p.len, p.payload)));
                flow.discarded += 1;
            })
            .unwrap();
        assert!(flow.queue.is_empty());
        assert_eq!(stats.sent.packets, flow.sent);
        assert_eq!(stats.discarded.packets, flow.discarded);
        assert_eq!(stats.accepted.packets, flow.accepted);
        assert_eq!(self.real.flow_stats(id), None);
    }

    fn change(&mut self, number: usize, config: Config) {
        let Some(id) = self.pick(number) else { return };
        let before = self.real.weight(id);
        let flow = self.model.get_mut(&id).unwrap();
        let queued = flow.queue.iter().map(|&(len, _)| len).max();
        let max = Length::new(config.max_length).unwrap();
        let outcome = self.real.change_flow(id, config.flow());
        match queued.filter(|&len| len > max) {
            Some(queued) => {
                let refused = ChangeError::LongerPacketQueued { queued, max };
                assert_eq!(outcome, Err(refused));
                assert_eq!(self.real.weight(id), before, "refused changes nothing");
            }
            None => {
                assert_eq!(outcome, Ok(()));
                flow.config = config;
                assert_eq!(self.real.weight(id).unwrap().get(), config.weight);
            }
        }
    }

    fn stray(&mut self, number: u32) {
        let id = FlowId::new(number);
        if !self.model.contains_key(&id) {
            self.enqueue(id, Length::MAX);
            assert_eq!(
                self.real.flush_flow(id, |_| {}),
                Err(ChangeError::UnknownFlow)
            );
            assert_eq!(
                self.real.remove_flow(id, |_| {}),
                Err(ChangeError::UnknownFlow)
            );
            let config = FlowConfig::new(Weight::ONE, Length::MAX);
            assert_eq!(
                self.real.change_flow(id, config),
                Err(ChangeError::UnknownFlow)
            );
        }
    }

    fn check(&self) {
        if let Err(violation) = self.real.invariants() {
            panic!("{violation}");
        }
    }

    fn check_counts(&self) {
        for (&id, flow) in &self.model {
            let stats = self.real.flow_stats(id).unwrap();
            assert_eq!(
                (
                    stats.accepted.packets,
                    stats.sent.packets,
                    stats.queued.packets,
                    stats.dropped.packets,
                    stats.discarded.packets
                ),
                (
                    flow.accepted,
                    flow.sent,
                    flow.queue.len() as u64,
                    flow.dropped,
                    flow.discarded
                )
            );
        }
        let total = self.real.total_stats();
        assert_eq!(
            total.accepted.packets,
            total.sent.packets + total.queued.packets + total.discarded.packets
        );
        assert_eq!(
            total.accepted.bytes,
            total.sent.bytes + total.queued.bytes + total.discarded.bytes
        );
    }
}

/// Drives `algorithm` and the model through `operations`, and panics where they differ.
pub(crate) fn drive<A: Scheduler + Debug>(algorithm: A, operations: &[Operation]) {
    let mut pair = Pair::new(algorithm);
    for operation in operations {
        pair.apply(operation);
        pair.check();
        pair.check_counts();
    }
    while pair.dequeue() {
        pair.check();
    }
    pair.check_counts();
    assert!(pair.real.is_empty());
}
