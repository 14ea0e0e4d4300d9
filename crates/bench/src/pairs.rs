//! The cost of an enqueue/dequeue pair, in the test environment of the QFQ report.

use std::num::NonZeroU32;
use std::time::Instant;

use anyhow::{Result, ensure};
use fairlane_core::queue::{PacketList, PacketSlab};
use fairlane_core::sched::Algorithm;
use fairlane_core::scheduler::Scheduler;
use fairlane_core::with_algorithm;
use fairlane_core::{FlowConfig, FlowId, Length, PacketScheduler, SchedulerLimits};

use crate::controller::{self, Arrivals, Controller, Dequeued, Packets, Subject, Tally};
use crate::flowsets::{Backlog, FlowSets};

/// The subjects of measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contender {
    /// The environment alone: packets pass through a plain FIFO queue.
    None,
    /// An algorithm.
    Algorithm(Algorithm),
}

impl Contender {
    /// As the command line calls it.
    pub fn name(self) -> &'static str {
        match self {
            Contender::None => "none",
            Contender::Algorithm(algorithm) => algorithm.name(),
        }
    }

    /// Returns a one-line description.
    pub fn about(self) -> &'static str {
        match self {
            Contender::None => "The environment alone: packets pass through a plain FIFO queue",
            Contender::Algorithm(algorithm) => algorithm.about(),
        }
    }
}

/// The parameters of a measurement.
#[derive(Clone, Debug)]
pub struct Case {
    /// The flows.
    pub sets: FlowSets,
    /// Backlog to drain to.
    pub qmin: Backlog,
    /// Backlog to fill to.
    pub qmax: Backlog,
    /// Requests before those that are measured.
    pub warm_up: u64,
    /// Requests to make, enqueues and dequeues together.
    pub loops: u64,
    /// The order in which packets arrive.
    pub arrivals: Arrivals,
    /// Of the random numbers.
    pub seed: u64,
    /// Most flows in an aggregate.
    pub aggregate: NonZeroU32,
}

/// The results of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Backlog that was drained to, in packets.
    pub qmin: u64,
    /// Backlog that was filled to.
    pub qmax: u64,
    /// Requests by kind.
    pub tally: Tally,
    /// Of an enqueue and a dequeue, packet generation and disposal included.
    pub ns_per_pair: f64,
}

impl Case {
    /// Returns the backlogs to drain to and to fill to, in packets.
    ///
    /// # Errors
    ///
    /// If they are not in order, or more than a queue can hold.
    pub fn backlogs(&self) -> Result<(u64, u64)> {
        let flows = self.sets.flows();
        let (qmin, qmax) = (self.qmin.packets(flows), self.qmax.packets(flows));
        ensure!(
            qmin < qmax,
            "--qmin {qmin} must be below --qmax {qmax} ({flows} flows)"
        );
        ensure!(
            qmax < u64::from(u32::MAX),
            "--qmax {qmax} is more packets than the {} a queue can hold ({flows} flows)",
            u32::MAX - 1
        );
        Ok((qmin, qmax))
    }

    /// Measures. An algorithm of another crate has an indirect call for each statement;
    /// [`measure_algorithm`](Self::measure_algorithm) has none.
    ///
    /// # Errors
    ///
    /// As [`backlogs`](Self::backlogs), and if there are more flows than a scheduler can number.
    pub fn measure(&self, contender: Contender) -> Result<Measured> {
        self.measure_with(contender, Ok)
    }

    /// The same with packets that are more than numbers: as what `with` makes of the controller has them.
    /// Code of its own for each way.
    ///
    /// # Errors
    ///
    /// As [`measure`](Self::measure), and what `with` answers.
    pub fn measure_with<P: Packets>(
        &self,
        contender: Contender,
        with: impl Fn(Controller) -> Result<Controller<P>>,
    ) -> Result<Measured> {
        match contender {
            Contender::None => self.measured(|room| Ok(Plain::new(room)), with),
            Contender::Algorithm(algorithm) => {
                with_algorithm!(algorithm.with_members(self.aggregate), new => {
                    self.measured(|room| Scheduled::new(new(), &self.sets, room), with)
                })
            }
        }
    }

    /// The same of any algorithm, with code of its own.
    ///
    /// # Errors
    ///
    /// As [`measure`](Self::measure).
    pub fn measure_algorithm<A: Scheduler>(&self, algorithm: A) -> Result<Measured> {
        self.measured(|room| Scheduled::new(algorithm, &self.sets, room), Ok)
    }

    fn measured<S: Subject, P: Packets>(
        &self,
        subject: impl FnOnce(u64) -> Result<S>,
        with: impl Fn(Controller) -> Result<Controller<P>>,
    ) -> Result<Measured> {
        let (qmin, qmax) = self.backlogs()?;
        // Room for all that the controller ever lets wait, however high it aims.
        let room = qmax.min(self.sets.flows() as u64 * u64::from(controller::MOST));
        let controller = Controller::new(&self.sets, qmin, qmax, self.arrivals, self.seed);
        let (mut controller, mut subject) = (with(controller)?, subject(room)?);
        let mut outcome = Default::default();
        for loops in [self.warm_up, self.loops] {
            outcome = timed(&mut controller, &mut subject, loops);
        }
        let (tally, seconds): (Tally, f64) = outcome;
        Ok(Measured {
            qmin,
            qmax,
            tally,
            ns_per_pair: seconds * 1e9 / tally.enqueues.max(1) as f64,
        })
    }
}

/// One copy of the loop for each subject, to count its instructions separately.
#[inline(never)]
fn timed(
    controller: &mut Controller<impl Packets>,
    subject: &mut impl Subject,
    loops: u64,
) -> (Tally, f64) {
    let start = Instant::now();
    let tally = controller.drive(subject, loops);
    (tally, start.elapsed().as_secs_f64())
}

/// The baseline of all algorithms: one FIFO list of packets.
struct Plain {
    slab: PacketSlab<u32>,
    packets: PacketList,
}

impl Plain {
    fn new(packets: u64) -> Self {
        let mut slab = PacketSlab::new(packets as u32);
        slab.reserve(packets as u32);
        Plain {
            slab,
            packets: PacketList::default(),
        }
    }
}

impl Subject for Plain {
    #[inline]
    fn enqueue(&mut self, _: u32, len: Length, packet: u32) -> bool {
        self.packets.push_back(&mut self.slab, len, packet).is_ok()
    }

    #[inline]
    fn dequeue(&mut self) -> Option<Dequeued> {
        let (_, packet) = self.packets.pop_front(&mut self.slab)?;
        // It knows no flows: of numbers alone this is the flow's.
        let flow = packet;
        Some(Dequeued { flow, packet })
    }
}

struct Scheduled<A: Scheduler>(PacketScheduler<A, u32>);

impl<A: Scheduler> Scheduled<A> {
    fn new(algorithm: A, sets: &FlowSets, packets: u64) -> Result<Self> {
        let limits = SchedulerLimits {
            packets: packets as u32,
            bytes: u64::MAX,
            ..SchedulerLimits::default()
        };
        let mut scheduler = PacketScheduler::new(algorithm, limits);
        scheduler.reserve(sets.flows(), packets as u32);
        for set in sets.sets() {
            for _ in 0..set.flows {
                scheduler.add_flow(FlowConfig::new(set.weight, set.length))?;
            }
        }
        Ok(Scheduled(scheduler))
    }
}

impl<A: Scheduler> Subject for Scheduled<A> {
    #[inline]
    fn enqueue(&mut self, flow: u32, len: Length, packet: u32) -> bool {
        self.0.enqueue(FlowId::new(flow), len, packet).is_ok()
    }

    #[inline]
    fn dequeue(&mut self) -> Option<Dequeued> {
        self.0.dequeue().map(|packet| Dequeued {
            flow: packet.owner.number(),
            packet: packet.payload,
        })
    }
}
