//! A simulated link with seeded sources and all meters.

use anyhow::Result;
use fairlane_core::bounds::Guarantees;
use fairlane_core::{AnyScheduler, FlowConfig, FlowId, Length, Rate, Rejection};
use fairlane_sim::{
    Backlogged, Completion, DelayMeter, FlowPlan, LagMeter, Now, Observer, PacketInfo, Picos,
    Server, Simulation, TransmitQueue, WfiMeter,
};
use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;

use crate::bounds::{Link, LinkTerms, cell};
use crate::column::{Given, Whole, length, weight};
use crate::scheduler::{limits, own_limits};
use crate::source::{Lengths, Traffic, in_few_spans, seconds};
use crate::watch::Watch;
use crate::wrong::{Wrong, ended};

/// A flow of a simulation, with its source.
#[pyclass(frozen, from_py_object, name = "Flow", module = "fairlane")]
#[derive(Clone)]
pub(crate) struct Plan {
    plan: FlowPlan,
}

#[pymethods]
impl Plan {
    #[new]
    #[pyo3(signature = (
        weight, traffic, lengths, *, max_len = None, start = Given(Ok(0.0)), stop = None,
        limit_packets = None, limit_bytes = None
    ))]
    #[expect(
        clippy::too_many_arguments,
        reason = "all but three are named by the caller"
    )]
    fn new(
        weight: Whole,
        traffic: Traffic,
        lengths: Lengths,
        max_len: Option<Whole>,
        start: Given<f64>,
        stop: Option<Given<f64>>,
        limit_packets: Option<Whole>,
        limit_bytes: Option<Whole>,
    ) -> PyResult<Plan> {
        in_few_spans(&traffic, &lengths)?;
        let max_len = max_len.unwrap_or(Whole::Number(lengths.longest().into()));
        let config = FlowConfig {
            limits: Some(own_limits(limit_packets, limit_bytes)?),
            ..FlowConfig::new(self::weight(&weight)?, length("max_len", &max_len)?)
        };
        let plan = FlowPlan {
            start: seconds("start", &start)?,
            stop: stop.map_or(Ok(Picos::MAX), |stop| seconds("stop", &stop))?,
            ..FlowPlan::new(config, traffic.traffic, lengths.lengths)
        };
        Ok(Plan { plan })
    }

    #[getter]
    fn weight(&self) -> u32 {
        self.plan.config.weight.get()
    }

    #[getter]
    fn max_len(&self) -> u32 {
        self.plan.config.max_length.get()
    }
}

/// Departures as the cells of `DEPARTURES` in `fairlane/records.py`, and counters of each flow.
#[derive(Default)]
struct Log {
    cells: Vec<u64>,
    counts: Vec<Counts>,
}

#[derive(Clone, Copy, Default)]
struct Counts {
    arrived: u64,
    dropped: u64,
    sent: u64,
    bytes: u64,
}

impl Log {
    fn of(&mut self, flow: FlowId) -> &mut Counts {
        let number = flow.number() as usize;
        if self.counts.len() <= number {
            self.counts.resize(number + 1, Counts::default());
        }
        &mut self.counts[number]
    }
}

impl Observer for Log {
    fn flow_added(&mut self, _: Now, flow: FlowId, _: &FlowConfig) {
        self.of(flow);
    }

    fn arrived(&mut self, _: Now, packet: &PacketInfo) {
        self.of(packet.flow).arrived += 1;
    }

    fn dropped(&mut self, _: Now, flow: FlowId, _: Length, _: Rejection) {
        self.of(flow).dropped += 1;
    }

    fn completed(&mut self, completion: &Completion) {
        let packet = &completion.packet;
        let counts = self.of(packet.flow);
        counts.sent += 1;
        counts.bytes += u64::from(packet.len.get());
        let [start, end, arrival] =
            [completion.start.time, completion.end.time, packet.arrival].map(|at| at.to_nanos().0);
        let (flow, len) = (packet.flow.number().into(), packet.len.get().into());
        self.cells.extend([start, end, flow, len, arrival]);
    }
}

/// All meters: fairness, the fluid server, delays, and counters.
type Watching = ((WfiMeter, LagMeter), (DelayMeter, Log));

/// Returns the cells of `SIM_FLOWS` in `fairlane/records.py`.
fn reported(link: &LinkTerms, queued: u64, watching: &Watching) -> Vec<u64> {
    let ((wfi, lag), (delays, log)) = watching;
    let configs: Vec<FlowConfig> = wfi.flows().map(|(_, wfi)| wfi.config).collect();
    let sent = log.counts.iter().map(|counts| counts.bytes).sum();
    let guarantees = Guarantees::new(link.algorithm.with_members(link.aggregate), &configs, sent);
    let weights: f64 = configs
        .iter()
        .map(|config| f64::from(config.weight.get()))
        .sum();
    let nanos = |time: Picos| time.0 as f64 / 1e3;
    let mut cells = Vec::new();
    for (flow, wfi) in wfi.flows() {
        let counts = log.counts[flow.number() as usize];
        let bound = guarantees.of(&wfi.config);
        // The transmit queue adds to the packet on the wire.
        let behind = queued as f64 * f64::from(wfi.config.weight.get()) / weights;
        let late = |work: f64| (work + queued as f64) * 8e9 / link.rate.bps() as f64;
        let delays = delays.flow(flow);
        let delay = |of: &dyn Fn(&fairlane_sim::Delays) -> Picos| {
            cell(
                delays
                    .filter(|delays| delays.count() > 0)
                    .map(|delays| nanos(of(delays))),
            )
        };
        cells.extend([
            flow.number().into(),
            wfi.config.weight.get().into(),
            wfi.config.max_length.get().into(),
            counts.arrived,
            counts.dropped,
            counts.sent,
            counts.bytes,
            cell(Some(nanos(wfi.t_wfi))),
            cell(bound.map(|bound| late(bound.delay.bytes()))),
            cell(Some(wfi.b_wfi.as_bytes_f64())),
            cell(Some(wfi.b_wfi_backlogged.as_bytes_f64())),
            cell(bound.map(|bound| bound.service.bytes() + behind)),
            cell(lag.worst(flow).map(nanos)),
            delay(&|delays| delays.mean()),
            delay(&|delays| delays.percentile(50.0)),
            delay(&|delays| delays.percentile(99.0)),
            delay(&|delays| delays.max()),
        ]);
    }
    cells
}

fn run(
    link: &LinkTerms,
    transmit: TransmitQueue,
    until_sent: bool,
    plans: Vec<FlowPlan>,
    (until, seed): (Picos, u64),
) -> Result<(Vec<u64>, Vec<u64>)> {
    let reading = match until_sent {
        true => Backlogged::UntilSent,
        false => Backlogged::UntilDequeued,
    };
    let rate: Rate = link.rate;
    let meters = (WfiMeter::reading(rate, reading), LagMeter::new(rate));
    let watching: Watching = (meters, (DelayMeter::new(), Log::default()));
    let algorithm = link.algorithm.with_members(link.aggregate);
    let queue = AnyScheduler::new(algorithm, limits(None, None)?);
    let longest = plans.iter().map(|plan| plan.config.max_length).max();
    let queued = longest.map_or(0, |longest| match transmit {
        // A queue without a known head dequeues it to check for room.
        TransmitQueue::Bytes(bytes) => bytes.saturating_add(longest.get().into()),
        TransmitQueue::Packets(_) => transmit.bytes(longest),
    });
    let server = Server::over(queue, rate, transmit, watching);
    let mut simulation = Simulation::new(server, seed);
    for (index, plan) in plans.into_iter().enumerate() {
        let added = simulation.add(plan);
        added.map_err(|error| Wrong::new("flows", format!("flows[{index}]: {error}")).at(index))?;
    }
    let (mut watch, mut raised) = (Watch::new(), None);
    let (server, _) = simulation.run_while(until, || {
        raised = raised.take().or(watch.often().err());
        raised.is_none()
    })?;
    if let Some(raised) = raised {
        return Err(raised.into());
    }
    let watching = server.into_observer();
    let report = reported(link, queued, &watching);
    let (_, (_, log)) = watching;
    Ok((log.cells, report))
}

type Cells<'py> = Bound<'py, PyArray1<u64>>;

/// Returns departures, and the results of each flow. `queue` is the size of the transmit queue in packets or bytes.
#[pyfunction]
pub(crate) fn simulate<'py>(
    py: Python<'py>,
    link: Link<'py>,
    flows: Vec<Plan>,
    time: (Given<f64>, Whole),
    queue: (Option<Whole>, Option<Whole>),
    until_sent: bool,
) -> PyResult<(Cells<'py>, Cells<'py>)> {
    let link = link.terms()?;
    if flows.is_empty() {
        let sentence = "flows: there is none, one at least is needed";
        return Err(Wrong::new("flows", sentence).into());
    }
    let (until, seed) = (seconds("seconds", &time.0)?, time.1.large("seed")?);
    let transmit = match queue {
        (_, Some(bytes)) => TransmitQueue::Bytes(bytes.large("queue_bytes")?),
        (Some(packets), None) => TransmitQueue::Packets(packets.small("queue_packets")?),
        (None, None) => TransmitQueue::NONE,
    };
    let plans: Vec<FlowPlan> = flows.into_iter().map(|flow| flow.plan).collect();
    let done = py.detach(|| run(&link, transmit, until_sent, plans, (until, seed)));
    let (departures, report) = done.map_err(|error| ended(py, error))?;
    Ok((departures.into_pyarray(py), report.into_pyarray(py)))
}
