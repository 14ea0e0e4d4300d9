//! A replay through a packet scheduler of flows.

use anyhow::{Context, Result, anyhow, ensure};
use fairlane_core::sched::Algorithm;
use fairlane_core::units::MAX_LENGTH;
use fairlane_core::{AnyScheduler, FlowConfig, FlowId, Length, Limits, Rate, SchedulerLimits};
use fairlane_sim::{
    Backlogged, Completion, DelayMeter, Now, Observer, Picos, Server, TransmitQueue, Waiting,
    WfiMeter,
};

use crate::arrivals::{Arrival, Arrivals, Body};
use crate::departures::Departures;
use crate::engine::{self, Course};
use crate::flows::Flow;

/// As many as the scheduler can number: nothing is dropped for want of room that
/// there is.
const LIMITS: SchedulerLimits = SchedulerLimits {
    packets: u32::MAX,
    bytes: u64::MAX,
    per_flow: Limits::NONE,
};

/// All that is measured: the indexes, the delays, and the bytes that each flow sent, overhead
/// included.
pub type Meters = (WfiMeter, DelayMeter, Bytes);

/// The meters of a link of this rate.
pub fn meters(rate: Rate) -> Meters {
    // What the bounds are proved for.
    let wfi = WfiMeter::reading(rate, Backlogged::UntilDequeued);
    (wfi, DelayMeter::new(), Bytes::default())
}

/// Bytes by flow.
#[derive(Debug, Default)]
pub struct Bytes(pub Vec<u64>);

impl Observer for Bytes {
    fn flow_added(&mut self, _: Now, _: FlowId, _: &FlowConfig) {
        self.0.push(0);
    }

    fn completed(&mut self, completion: &Completion) {
        let packet = &completion.packet;
        self.0[packet.flow.number() as usize] += u64::from(packet.len.get());
    }
}

/// The link, and who may use it.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'a> {
    pub algorithm: Algorithm,
    pub rate: Rate,
    /// Bytes that each packet takes on the link beside its own.
    pub overhead: u32,
    /// Flows that there are before the first packet.
    pub flows: &'a [Flow],
}

/// Sends all `arrivals` over the link in the order of the algorithm.
pub fn replay<B: Body + Send>(
    setup: &Setup<'_>,
    arrivals: &mut dyn Arrivals<FlowId, B>,
    departures: &mut dyn Departures,
    meters: Option<Meters>,
) -> Result<Option<Meters>> {
    let scheduler = AnyScheduler::new(setup.algorithm, LIMITS);
    let mut server = Server::over(scheduler, setup.rate, TransmitQueue::NONE, meters);
    let mut through = Through { setup, flows: 0 };
    for flow in setup.flows {
        through.add(&mut server, Picos::ZERO, flow)?;
    }
    engine::replay(&mut server, &mut through, arrivals, departures)?;
    ensure!(
        server.queue().is_empty(),
        "{} keeps packets back while the link is free",
        setup.algorithm.name()
    );
    Ok(server.into_observer())
}

type Link<B> = Server<AnyScheduler<Waiting<FlowId, B>>, Option<Meters>, FlowId, B>;

struct Through<'a> {
    setup: &'a Setup<'a>,
    /// Flows there are.
    flows: u32,
}

impl Through<'_> {
    fn add<B: Send>(&mut self, server: &mut Link<B>, at: Picos, flow: &Flow) -> Result<()> {
        // With overhead.
        let longest = (flow.max_len.get() + self.setup.overhead).min(MAX_LENGTH);
        let longest = Length::new(longest).unwrap_or(Length::MAX);
        server.add_flow(at, FlowConfig::new(flow.weight, longest))?;
        self.flows += 1;
        Ok(())
    }
}

impl<B: Body + Send> Course<AnyScheduler<Waiting<FlowId, B>>, Option<Meters>, FlowId, B>
    for Through<'_>
{
    fn overhead(&self) -> u32 {
        self.setup.overhead
    }

    fn arrive(&mut self, server: &mut Link<B>, arrival: Arrival<FlowId, B>) -> Result<()> {
        let (at, flow) = (arrival.at(), arrival.to);
        while self.flows <= flow.number() {
            self.add(server, at, &Flow::UNDECLARED)?;
        }
        let len = Length::new(arrival.len + self.setup.overhead).context("no such length")?;
        let accepted = server.arrive(at, flow, len, arrival.body);
        accepted.map_err(|reason| {
            anyhow!(
                "flow {} can hold {} bytes, arrivals are too far above the rate: {reason}",
                flow.number(),
                LIMITS.per_flow.bytes,
            )
        })
    }

    fn number(&self, flow: FlowId) -> u32 {
        flow.number()
    }

    fn name(&self, flow: FlowId) -> String {
        format!("flow {}", flow.number())
    }
}
