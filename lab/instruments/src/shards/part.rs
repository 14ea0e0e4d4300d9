//! One of the arbiters, on its thread.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Result, ensure};
use fairlane_core::sched::Qfq;
use fairlane_core::{FlowConfig, FlowId, Length, Nanos, Packet, PacketScheduler, Weight};
use fairlane_runtime::{Arbiter, ArbiterConfig, Clock, Link, Next, Pace, Release};
use fairlane_shards::{Credit, Looks, Turns};

/// Virtual times are on a circle of this many bytes.
const CIRCLE: u64 = 1 << 40;

/// Packets of each flow in the queue.
const DEEP: u32 = 2;

/// The load of an arbiter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub flows: u32,
    pub len: Length,
    /// There are more threads than cores: a waiting thread lets others run.
    pub is_crowded: bool,
    /// Most records of a kind.
    pub records: usize,
}

/// Part of the link was taken, or returned.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    /// By the clock that the look went by.
    pub at: u64,
    /// Below 0 where it was returned.
    pub bytes: i64,
    /// Duration of the visit; 0 where the shard went idle.
    pub look_ns: u64,
    /// How far above the floor the shard stood after it.
    pub above_floor: u64,
    /// The shard went idle.
    pub is_idle: bool,
}

/// A step that decided, without its look.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decided {
    pub ns: u64,
    pub packets: u64,
}

/// The results of one arbiter.
#[derive(Debug)]
pub(super) struct Log {
    pub records: Vec<Record>,
    pub steps: Vec<Decided>,
    pub looks: Looks,
    /// Duration of all its visits.
    pub look_ns: u64,
    pub left_out: u64,
    pub released: u64,
    /// When its first and its last step began.
    pub began: u64,
    pub ended: u64,
    given: u64,
    queued: u64,
    misplaced: u64,
    is_whole: bool,
}

impl Log {
    /// Fails if a packet was lost or reordered, or something was not recorded.
    pub(super) fn check(&self) -> Result<()> {
        ensure!(
            self.misplaced == 0 && self.given == self.released + self.queued,
            "of {} packets {} left and {} wait, {} of them out of their flow's order",
            self.given,
            self.released,
            self.queued,
            self.misplaced
        );
        ensure!(self.is_whole, "more was taken than there is room to record");
        Ok(())
    }
}

/// Returns the minimal time to read the clock.
pub(super) fn clock_ns(clock: Clock) -> u64 {
    let read = || {
        let begun = clock.now();
        clock.now().since(begun).0
    };
    (0..1_000).map(|_| read()).min().unwrap_or(0)
}

/// A shard's pace that records the amounts taken.
struct Recorded {
    turns: Turns,
    clock: Clock,
    records: Vec<Record>,
    is_whole: bool,
    /// Duration of all visits, and of the last one.
    look_ns: u64,
    last_look_ns: u64,
}

impl Recorded {
    fn record(&mut self, record: Record) {
        self.is_whole &= self.records.len() < self.records.capacity();
        if self.is_whole {
            self.records.push(record);
        }
    }

    fn went_idle(&mut self, at: Nanos, gave_back: i64) {
        self.record(Record {
            at: at.0,
            bytes: -gave_back,
            look_ns: 0,
            above_floor: 0,
            is_idle: true,
        });
    }

    /// The floor may have been raised above a shard that was left out meanwhile.
    fn above_floor(&self) -> u64 {
        let shard = self.turns.shard();
        let above = |at: u64| at.wrapping_sub(shard.lowest()) % CIRCLE;
        (shard.position().map(above))
            .filter(|&above| above < CIRCLE / 2)
            .unwrap_or(0)
    }
}

impl Pace for Recorded {
    type Opening = Credit;

    fn link(&self) -> &Link {
        self.turns.link()
    }

    fn open(&mut self, now: Nanos, waiting: impl FnOnce() -> u64) -> Credit {
        self.last_look_ns = 0;
        if self.turns.shard().credit() > 0 {
            return self.turns.open(now, waiting);
        }
        let before = self.turns.looks();
        let begun = self.clock.now();
        let credit = self.turns.open(now, waiting);
        let took = self.clock.now().since(begun).0;
        let after = self.turns.looks();
        if after == before {
            return credit;
        }
        self.last_look_ns = took;
        self.look_ns += took;
        if after.taken > before.taken {
            self.record(Record {
                at: now.0,
                bytes: (after.bytes - before.bytes) as i64,
                look_ns: took,
                above_floor: self.above_floor(),
                is_idle: false,
            });
        } else if after.idle > before.idle {
            self.went_idle(now, 0);
        }
        credit
    }

    fn close(&mut self, credit: Credit, now: Nanos) {
        self.turns.close(credit, now);
    }

    fn idled(&mut self, now: Nanos) {
        let (before, left) = (self.turns.looks().idle, self.turns.shard().credit());
        self.turns.idled(now);
        if self.turns.looks().idle > before {
            self.went_idle(now, left.max(0));
        }
    }

    fn held_up(&mut self) {
        self.turns.held_up();
    }

    fn next(&self, now: Nanos) -> Next {
        self.turns.next(now)
    }
}

/// Packets have no receiver: each makes space for another of its flow.
struct Out {
    /// Of each flow.
    sent: Vec<u64>,
    freed: Vec<FlowId>,
    misplaced: u64,
}

impl Release<u64> for Out {
    fn release(&mut self, packet: Packet<u64>) {
        let sent = &mut self.sent[packet.owner.number() as usize];
        self.misplaced += u64::from(packet.payload != *sent);
        *sent += 1;
        self.freed.push(packet.owner);
    }

    fn flush(&mut self, _: bool) -> io::Result<usize> {
        Ok(0)
    }

    fn waiting(&self) -> usize {
        0
    }
}

/// An arbiter with permanently backlogged flows, except in its idle periods.
pub(super) struct Part {
    arbiter: Arbiter<PacketScheduler<Qfq, u64>, Out, Recorded>,
    clock: Clock,
    load: Load,
    /// Has something to send for so long, and nothing for as long after.
    idle_ns: Option<u64>,
    /// Of each flow.
    given: Vec<u64>,
    steps: Vec<Decided>,
    released: u64,
}

impl Part {
    pub(super) fn new(
        turns: Turns,
        clock: Clock,
        load: Load,
        idle_ns: Option<u64>,
    ) -> Result<Part> {
        let (flows, in_queue) = (load.flows as usize, (load.flows * DEEP) as usize);
        let config = ArbiterConfig::new(*turns.link());
        let out = Out {
            sent: vec![0; flows],
            freed: Vec::with_capacity(in_queue),
            misplaced: 0,
        };
        let pace = Recorded {
            turns,
            clock,
            records: Vec::with_capacity(load.records),
            is_whole: true,
            look_ns: 0,
            last_look_ns: 0,
        };
        let queue = PacketScheduler::new(Qfq::new(), config.limits);
        let mut arbiter = Arbiter::paced(queue, config, out, pace, clock.now());
        for _ in 0..flows {
            let flow = arbiter.open_flow(FlowConfig::new(Weight::ONE, load.len))?;
            let freed = &mut arbiter.release_mut().freed;
            freed.extend((0..DEEP).map(|_| flow));
        }
        Ok(Part {
            arbiter,
            clock,
            load,
            idle_ns,
            given: vec![0; flows],
            steps: Vec::with_capacity(load.records),
            released: 0,
        })
    }

    /// Decides until `stop` is set.
    pub(super) fn run(mut self, stop: &AtomicBool) -> Result<Log> {
        let began = self.clock.now();
        let mut now = began;
        while !stop.load(Ordering::Relaxed) {
            if !self.is_to_be_idle(now) {
                self.fill(now)?;
            }
            let released = self.arbiter.step(now)?.released as u64;
            self.released += released;
            if released == 0 && self.load.is_crowded {
                thread::yield_now();
            }
            let then = self.clock.now();
            if released > 0 && self.steps.len() < self.steps.capacity() {
                let looked = self.arbiter.pace().last_look_ns;
                self.steps.push(Decided {
                    ns: then.since(now).0.saturating_sub(looked),
                    packets: released,
                });
            }
            now = then;
        }
        Ok(self.log(began, now))
    }

    fn is_to_be_idle(&self, now: Nanos) -> bool {
        self.idle_ns.is_some_and(|ns| now.0 / ns % 2 == 1)
    }

    /// Replaces departed packets.
    fn fill(&mut self, now: Nanos) -> Result<()> {
        while let Some(flow) = self.arbiter.release_mut().freed.pop() {
            let given = &mut self.given[flow.number() as usize];
            let admitted = self.arbiter.admit(flow, self.load.len, *given, now);
            ensure!(admitted.is_ok(), "a queue had no room for {DEEP} packets");
            *given += 1;
        }
        Ok(())
    }

    fn log(self, began: Nanos, ended: Nanos) -> Log {
        let pace = self.arbiter.pace();
        Log {
            records: pace.records.clone(),
            steps: self.steps,
            looks: pace.turns.looks(),
            look_ns: pace.look_ns,
            left_out: pace.turns.shard().left_out(),
            released: self.released,
            began: began.0,
            ended: ended.0,
            given: self.given.iter().sum(),
            queued: self.arbiter.total_stats().queued.packets,
            misplaced: self.arbiter.release().misplaced,
            is_whole: pace.is_whole,
        }
    }
}
