//! Simulation of shards over a link, each on its own core that may be slow or lose its thread: the protocol of this
//! crate, one access to shared memory at a time, and for comparison an exchange of rates at intervals.
//!
//! ```
//! use fairlane_shards::Config;
//! use fairlane_shards::simulation::{Candidate, Core, Member, Setup, Source};
//!
//! let config = Config { rate: 100_000_000_000, batch: 15_000, ahead: 125_000, catch_up: 0, lead: 240_000, patience: 10_000 };
//! let member = Member { weight: 1, core: Core::default(), source: Source::Always };
//! let setup = Setup { config, members: vec![member; 8], candidate: Candidate::LinkClock, span: 500_000, seed: 1 };
//! let report = setup.run()?;
//! assert!(report.used > 0.99);
//! assert!(report.apart <= config.apart(1, 8));
//! # Ok::<(), fairlane_shards::ConfigError>(())
//! ```

mod exchange;
mod meters;
mod random;
mod scenario;
mod taker;

use crate::{Batch, Config, ConfigError, Wait, divide};
use exchange::Exchange;
use meters::Meters;
use random::Random;
pub use scenario::Scenario;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use taker::Taker;

/// The method of dividing the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Candidate {
    /// The protocol of this crate.
    LinkClock,
    /// At each interval, the rate is divided by weight among the shards that are backlogged at that moment. A shard
    /// that becomes backlogged later has its share of the whole.
    Exchange {
        /// The interval, in nanoseconds.
        every: u64,
    },
}

/// A core, and interruptions of its thread. Times are nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Core {
    /// The time of an access to shared memory.
    pub access: u64,
    /// The time of a decision and of sending its packet.
    pub packet: u64,
    /// The time from a failed look to the next one, varying by up to a half.
    pub poll: u64,
    /// The thread loses its core at one in this many accesses and batches, 0 for never,
    pub stops_one_in: u64,
    /// and for this time.
    pub stops_for: u64,
}

impl Default for Core {
    /// Accesses that miss the cache, decisions like the arbiter's, and a thread that keeps its core.
    fn default() -> Self {
        Core {
            access: 40,
            packet: 30,
            poll: 200,
            stops_one_in: 0,
            stops_for: 0,
        }
    }
}

impl Core {
    /// Returns a core that takes `times` as long for everything.
    #[must_use]
    pub fn slower(self, times: u64) -> Core {
        Core {
            access: self.access * times,
            packet: self.packet * times,
            poll: self.poll * times,
            ..self
        }
    }
}

/// The arrivals of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Always backlogged.
    Always,
    /// Alternately backlogged and without arrivals, from `start` on.
    OnOff {
        /// The start of the first backlogged time, in nanoseconds.
        start: u64,
        /// The length of backlogged times.
        on: u64,
        /// The length of times without arrivals.
        off: u64,
    },
    /// Bursts of random size at random times.
    Bursts {
        /// The mean size in bytes.
        bytes: u64,
        /// The mean time between bursts in nanoseconds.
        gap: u64,
    },
}

/// A simulated shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its weight, at least 1.
    pub weight: u32,
    /// Its core.
    pub core: Core,
    /// Its arrivals.
    pub source: Source,
}

/// The parameters of a simulation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    /// The link, for either candidate; the exchange has no lead and no patience.
    pub config: Config,
    /// The shards.
    pub members: Vec<Member>,
    /// The method of dividing the link among them.
    pub candidate: Candidate,
    /// The simulated time, in nanoseconds.
    pub span: u64,
    /// The seed: the same seed gives the same simulation.
    pub seed: u64,
}

/// The results of a simulation.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The utilization of the wire while a shard was backlogged.
    pub used: f64,
    /// The time for which the wire was idle meanwhile, in nanoseconds.
    pub idle: u64,
    /// The longest contiguous part of it.
    pub longest_idle: u64,
    /// The worst time from a shard becoming idle to the last idle time of the wire before any shard's next change:
    /// until then the others did not use all of the capacity that it left.
    pub reuse: u64,
    /// The largest backlog of the wire, in bytes.
    pub queue: u64,
    /// The bytes that each shard sent.
    pub sent: Vec<u64>,
    /// The largest difference of two shards' service over their shares, in any interval in which both were backlogged,
    /// in bytes of the link.
    pub spread: f64,
    /// The largest distance of the virtual times of two counting shards, in bytes of the link.
    pub apart: u64,
    /// The worst lag of each shard behind its share of the rate in any interval in which it was backlogged, in bytes.
    pub behind: Vec<f64>,
    /// How often each shard was left out.
    pub left_out: Vec<u64>,
}

/// Lengths of packets in bytes, equally likely.
const LENGTHS: [u32; 4] = [64, 374, 1500, 1500];
/// The least backlog of an always backlogged shard, in batches.
const FILLED: u64 = 4;
/// The number of independent loads that take as long as one, at one moment.
const AT_ONCE: u64 = 8;
/// The time from an arrival at an idle shard until its thread looks, in accesses.
const WAKE: u64 = 5;

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrival(usize),
    Thread(usize),
    Exchange,
}

/// The state of a thread.
#[derive(Clone, Copy, Debug)]
enum Doing {
    Asleep,
    /// In a look that began at this time, with this backlog.
    Looking {
        since: u64,
        want: u64,
    },
    /// Between two looks.
    Waiting,
    /// Deciding for this many packets and bytes, and sending them.
    Sending {
        bytes: u64,
    },
}

struct Thread {
    member: Member,
    doing: Doing,
    taker: Taker,
    /// Lengths of packets.
    queue: VecDeque<u32>,
    queued: u64,
}

struct Simulation<'a> {
    setup: &'a Setup,
    random: Random,
    events: BinaryHeap<Reverse<(u64, Event)>>,
    threads: Vec<Thread>,
    exchange: Option<Exchange>,
    meters: Meters,
}

impl Setup {
    /// Runs the simulation.
    ///
    /// # Errors
    ///
    /// If the configuration is invalid.
    pub fn run(&self) -> Result<Report, ConfigError> {
        let weights: Vec<_> = self.members.iter().map(|member| member.weight).collect();
        let shards = divide(self.config, &weights)?;
        let exchange = match self.candidate {
            Candidate::LinkClock => None,
            Candidate::Exchange { every } => Some(Exchange::new(self.config, &weights, every)),
        };
        let threads = self.members.iter().zip(shards).enumerate();
        let threads = threads.map(|(place, (&member, shard))| Thread {
            member,
            doing: Doing::Asleep,
            taker: match exchange {
                None => Taker::Shard(shard),
                Some(_) => Taker::part(place),
            },
            queue: VecDeque::new(),
            queued: 0,
        });
        let mut simulation = Simulation {
            setup: self,
            random: Random::new(self.seed),
            events: BinaryHeap::new(),
            threads: threads.collect(),
            exchange,
            meters: Meters::new(self.config, &weights),
        };
        simulation.run();
        Ok(simulation.report())
    }
}

impl Simulation<'_> {
    fn run(&mut self) {
        for place in 0..self.threads.len() {
            let first = match self.threads[place].member.source {
                Source::Always => 0,
                Source::OnOff { start, .. } => start,
                Source::Bursts { gap, .. } => self.random.around(gap),
            };
            self.at(first, Event::Arrival(place));
        }
        if self.exchange.is_some() {
            self.at(0, Event::Exchange);
        }
        while let Some(Reverse((now, event))) = self.events.pop() {
            if now >= self.setup.span {
                break;
            }
            match event {
                Event::Arrival(place) => self.arrives(place, now),
                Event::Thread(place) => self.goes_on(place, now),
                Event::Exchange => self.exchanges(now),
            }
        }
    }

    fn report(self) -> Report {
        let left_out = self.threads.iter().map(|thread| thread.taker.left_out());
        self.meters.report(self.setup.span, left_out.collect())
    }

    fn at(&mut self, time: u64, event: Event) {
        self.events.push(Reverse((time, event)));
    }

    fn exchanges(&mut self, now: u64) {
        if let Some(exchange) = &mut self.exchange {
            let waits = |thread: &Thread| thread.queued > 0;
            exchange.divide(self.threads.iter().map(waits));
            let next = now + exchange.every();
            self.at(next, Event::Exchange);
        }
    }

    fn arrives(&mut self, place: usize, now: u64) {
        match self.threads[place].member.source {
            Source::Always => {}
            Source::OnOff { on, off, .. } => self.at(now + on + off, Event::Arrival(place)),
            Source::Bursts { bytes, gap } => {
                let size = self.random.around(bytes).max(1);
                let mut rest = size;
                while rest > 0 {
                    rest = rest.saturating_sub(self.one_more(place));
                }
                let next = now + self.random.around(gap).max(1);
                self.at(next, Event::Arrival(place));
            }
        }
        self.fill(place, now);
        self.meters.waits(place, now);
        if matches!(self.threads[place].doing, Doing::Asleep) {
            self.threads[place].doing = Doing::Waiting;
            let wake = WAKE * self.threads[place].member.core.access;
            self.at(now + wake, Event::Thread(place));
        }
    }

    /// Adds a packet; returns its length.
    fn one_more(&mut self, place: usize) -> u64 {
        let length = LENGTHS[self.random.below(LENGTHS.len() as u64) as usize];
        let thread = &mut self.threads[place];
        thread.queue.push_back(length);
        thread.queued += u64::from(length);
        length.into()
    }

    /// Refills the queue of an always backlogged shard.
    fn fill(&mut self, place: usize, now: u64) {
        let more = match self.threads[place].member.source {
            Source::Always => true,
            Source::OnOff { start, on, off } => (now - start) % (on + off) < on,
            Source::Bursts { .. } => false,
        };
        let enough = FILLED * u64::from(self.setup.config.batch);
        while more && self.threads[place].queued < enough {
            self.one_more(place);
        }
    }

    /// Returns the duration of an access or a batch, in which the thread may lose its core.
    fn takes(&mut self, place: usize, time: u64) -> u64 {
        let core = self.threads[place].member.core;
        let stops = core.stops_one_in > 0 && self.random.below(core.stops_one_in) == 0;
        time + if stops { core.stops_for } else { 0 }
    }

    fn goes_on(&mut self, place: usize, now: u64) {
        let thread = &mut self.threads[place];
        let core = thread.member.core;
        match thread.doing {
            Doing::Asleep => {}
            Doing::Sending { bytes } => {
                thread.doing = Doing::Waiting;
                self.meters.sent(place, bytes, now);
                self.fill(place, now);
                let thread = &mut self.threads[place];
                if thread.queued == 0 {
                    thread.taker.idle(self.exchange.as_mut());
                    thread.doing = Doing::Asleep;
                    self.meters.rests(place, now);
                } else {
                    self.at(now + core.access, Event::Thread(place));
                }
            }
            Doing::Waiting => {
                let (since, want) = (now, thread.queued);
                thread.doing = Doing::Looking { since, want };
                self.goes_on(place, now);
            }
            Doing::Looking { since, want } => {
                let mut outcome = thread.taker.step(since, want, self.exchange.as_mut());
                let mut more = AT_ONCE - 1;
                while outcome.is_none() && more > 0 && thread.taker.looks_around() {
                    outcome = thread.taker.step(since, want, self.exchange.as_mut());
                    more -= 1;
                }
                if let Some(Ok(_)) = outcome {
                    self.meters.positions(place, &self.threads);
                }
                self.looked(place, now, outcome);
            }
        }
    }

    fn looked(&mut self, place: usize, now: u64, outcome: Option<Result<Batch, Wait>>) {
        let core = self.threads[place].member.core;
        let next = match outcome {
            None => self.takes(place, core.access),
            Some(Ok(_)) => {
                let (packets, bytes) = self.threads[place].decide();
                self.threads[place].doing = Doing::Sending { bytes };
                self.takes(place, (packets * core.packet).max(1))
            }
            Some(Err(wait)) => {
                self.threads[place].doing = Doing::Waiting;
                let poll = core.poll / 2 + self.random.below(core.poll.max(1));
                let until = match wait {
                    Wait::Wire { until } => until.saturating_sub(now),
                    Wait::Others => 0,
                };
                self.takes(place, poll.max(until).max(1))
            }
        };
        self.at(now + next, Event::Thread(place));
    }
}

impl Thread {
    /// Decides for the bytes taken; returns packets and bytes.
    fn decide(&mut self) -> (u64, u64) {
        let (mut packets, mut bytes) = (0, 0);
        while self.taker.credit() > 0
            && let Some(length) = self.queue.pop_front()
        {
            let length = u64::from(length);
            self.taker.sent(length);
            self.queued -= length;
            packets += 1;
            bytes += length;
        }
        (packets, bytes)
    }
}
