//! A replay through a packet scheduler of flows.

mod captured;
mod declared;
mod name;
mod report;

use std::io::BufRead;
use std::num::NonZeroU32;

use anyhow::{Context, Result, anyhow, ensure};
use fairlane_core::sched::Algorithm;
use fairlane_core::units::MAX_LENGTH;
use fairlane_core::{AnyScheduler, FlowConfig, FlowId, Length, Limits, Rate, SchedulerLimits};
use fairlane_sim::{Observer, Picos, Server, TransmitQueue, Waiting};

use super::arrivals::{Arrival, Arrivals, Body, Listed};
use super::csv;
use super::departures::{Departures, Unwritten};
use super::engine::{self, ReplayStage};
use declared::check_length;
use report::meters;

pub use captured::Capture;
pub use declared::{Flow, ObservedFlows, read as read_flows};
pub use fairlane_classify::Per;
pub use report::{FlowReport, Report};

/// The scheduler's maximum: no packet is dropped for lack of configured space.
const LIMITS: SchedulerLimits = SchedulerLimits {
    packets: u32::MAX,
    bytes: u64::MAX,
    per_flow: Limits::NONE,
};

/// The link, and its flows.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'a> {
    /// The scheduling algorithm.
    pub algorithm: Algorithm,
    /// Most flows in an aggregate, for algorithms over those.
    pub aggregate: NonZeroU32,
    /// Of the link.
    pub rate: Rate,
    /// Overhead in bytes per packet on the link.
    pub overhead: u32,
    /// All flows, by number.
    pub flows: &'a [Flow],
}

/// Arrivals of flows, from rows of `time_ns,flow,len`.
pub fn rows(
    input: impl BufRead,
    name: String,
    flows: &[Flow],
    overhead: u32,
) -> Result<impl Arrivals<FlowId, ()>> {
    let rows = csv::Rows::new(input, name, ["time_ns", "flow", "len"])?;
    let last = flows.len().saturating_sub(1) as u64;
    let rows = rows.within(1, 0..=last).within(2, 1..=MAX_LENGTH.into());
    Ok(Listed::new(rows, move |rows| {
        let [time, flow, len] = rows.numbers()?;
        let declared = &flows[flow as usize];
        let len = check_length(len, flow, declared, overhead, || rows.place())?;
        Ok(Arrival {
            time,
            to: FlowId::new(flow as u32),
            len,
            body: (),
        })
    }))
}

/// Sends all `arrivals` over the link in the order of the algorithm; with `measured`, returns the report by flow.
///
/// # Errors
///
/// An arrival is not as it must be, or too much is queued; or departures could not be written.
pub fn replay<B: Body + Send>(
    setup: &Setup<'_>,
    arrivals: &mut (impl Arrivals<FlowId, B> + ?Sized),
    departures: &mut (impl Departures + ?Sized),
    measured: bool,
) -> Result<Option<Report>> {
    if !measured {
        watched(setup, arrivals, departures, ())?;
        return Ok(None);
    }
    let meters = watched(setup, arrivals, departures, meters(setup.rate, true))?;
    Ok(Some(Report::new(setup, &meters)))
}

/// The same, and no departures. The report has the delays of all packets, but not those of each flow, which take up
/// to 30 KiB for each.
pub(super) fn in_all(setup: &Setup<'_>, arrivals: &mut dyn Arrivals<FlowId, ()>) -> Result<Report> {
    let meters = watched(setup, arrivals, &mut Unwritten, meters(setup.rate, false))?;
    Ok(Report::new(setup, &meters))
}

/// Sends all `arrivals`, and returns the observer, which may be one that computes nothing.
fn watched<B: Body + Send, O: Observer>(
    setup: &Setup<'_>,
    arrivals: &mut (impl Arrivals<FlowId, B> + ?Sized),
    departures: &mut (impl Departures + ?Sized),
    observer: O,
) -> Result<O> {
    let algorithm = setup.algorithm.with_members(setup.aggregate);
    let scheduler = AnyScheduler::new(algorithm, LIMITS);
    let mut server = Server::over(scheduler, setup.rate, TransmitQueue::NONE, observer);
    for flow in setup.flows {
        // With overhead.
        let longest = (flow.max_len.get() + setup.overhead).min(MAX_LENGTH);
        let longest = Length::new(longest).unwrap_or(Length::MAX);
        server.add_flow(Picos::ZERO, FlowConfig::new(flow.weight, longest))?;
    }
    let mut through = Through {
        overhead: setup.overhead,
    };
    engine::replay(&mut server, &mut through, arrivals, departures)?;
    ensure!(
        server.queue().is_empty(),
        "{} keeps packets back while the link is free",
        setup.algorithm.name()
    );
    Ok(server.into_observer())
}

type Link<O, B> = Server<AnyScheduler<Waiting<FlowId, B>>, O, FlowId, B>;

struct Through {
    overhead: u32,
}

impl<O: Observer, B: Body + Send> ReplayStage<AnyScheduler<Waiting<FlowId, B>>, O, FlowId, B>
    for Through
{
    fn overhead(&self) -> u32 {
        self.overhead
    }

    fn arrive(&mut self, server: &mut Link<O, B>, arrival: Arrival<FlowId, B>) -> Result<()> {
        let (at, flow) = (arrival.at(), arrival.to);
        let len = Length::new(arrival.len + self.overhead).context("no such length")?;
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
