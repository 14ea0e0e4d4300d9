//! A replay from columns of arrivals to records of departures.

use anyhow::Result;
use fairlane_core::FlowId;
use fairlane_core::units::MAX_LENGTH;
use fairlane_traffic::replay::by_flow::{self, Flow, FlowReport, Setup};
use fairlane_traffic::replay::{Arrival, Arrivals, Departure, Departures, Disorder};
use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;

use crate::bounds::{Link, cell};
use crate::column::{Columns, Numbers, arrivals_of, equally_long, flows_of};
use crate::watch::Watch;
use crate::wrong::{Wrong, ended};

/// Arrivals in columns.
pub(crate) struct Listed<'a, 'n> {
    times: &'a Numbers<'n>,
    flows: &'a Numbers<'n>,
    lens: &'a Numbers<'n>,
    declared: &'a [Flow],
    overhead: u32,
    index: usize,
    last: u64,
    watch: Watch,
}

impl<'a, 'n> Listed<'a, 'n> {
    pub(crate) fn new(
        [times, flows, lens]: [&'a Numbers<'n>; 3],
        declared: &'a [Flow],
        overhead: u32,
    ) -> Result<Listed<'a, 'n>, Wrong> {
        equally_long(&[times, flows, lens])?;
        Ok(Listed {
            times,
            flows,
            lens,
            declared,
            overhead,
            index: 0,
            last: 0,
            watch: Watch::new(),
        })
    }

    #[cold]
    fn unsorted(&self, time: u64) -> Wrong {
        let (index, last) = (self.index, self.last);
        let sentence = format!(
            "time_ns[{index}] is {time}, before the {last} of the one before: arrivals are in order of time"
        );
        self.times.wrong(index, sentence).of_kind("UnsortedError")
    }

    #[cold]
    fn unknown(&self, flow: u64) -> Wrong {
        let (index, most) = (self.index, self.declared.len() - 1);
        let sentence = format!("flow[{index}] is {flow}: the flows are 0 to {most}");
        self.flows.wrong(index, sentence).of_kind("UnknownFlow")
    }

    #[inline]
    fn read(&mut self) -> Result<Arrival<FlowId, ()>, Wrong> {
        let index = self.index;
        let time = self.times.get(index)?;
        if time < self.last {
            return Err(self.unsorted(time));
        }
        let flow = self.flows.get(index)?;
        let declared = usize::try_from(flow)
            .ok()
            .and_then(|n| self.declared.get(n));
        let Some(declared) = declared else {
            return Err(self.unknown(flow));
        };
        let most = declared.max_len.get().min(MAX_LENGTH - self.overhead);
        let len = self.lens.within(index, most, "LengthError")?;
        self.last = time;
        self.index += 1;
        Ok(Arrival {
            time,
            to: FlowId::new(flow as u32),
            len,
            body: (),
        })
    }
}

impl Iterator for Listed<'_, '_> {
    type Item = Result<Arrival<FlowId, ()>>;

    fn next(&mut self) -> Option<Self::Item> {
        Arrivals::next(self).transpose()
    }
}

impl Arrivals<FlowId, ()> for Listed<'_, '_> {
    fn next(&mut self) -> Result<Option<Arrival<FlowId, ()>>> {
        if self.index == self.times.len() {
            return Ok(None);
        }
        self.watch.often()?;
        Ok(Some(self.read()?))
    }

    fn place(&self) -> String {
        format!("arrival {}", self.index.saturating_sub(1))
    }

    fn disorder(&self) -> Disorder {
        Disorder::default()
    }
}

/// Departures as the cells of `DEPARTURES` in `fairlane/records.py`.
struct Records {
    cells: Vec<u64>,
    watch: Watch,
}

impl Departures for Records {
    fn write(&mut self, departure: &Departure<'_>) -> Result<()> {
        self.watch.often()?;
        self.cells.extend([
            departure.start,
            departure.end,
            departure.flow.into(),
            departure.len.into(),
            departure.arrival,
        ]);
        Ok(())
    }
}

/// Returns the cells of `FLOW_REPORT` in `fairlane/records.py`.
fn reported(flow: &FlowReport) -> [u64; 13] {
    let delay = &flow.delay_ns;
    [
        flow.flow.into(),
        flow.weight.into(),
        flow.max_len.into(),
        flow.packets,
        flow.bytes,
        cell(Some(flow.t_wfi_ns)),
        cell(flow.t_wfi_bound_ns.map(|bound| bound as f64)),
        cell(Some(flow.b_wfi_bytes)),
        cell(flow.b_wfi_bound_bytes),
        cell(delay.mean),
        cell(Some(delay.p50)),
        cell(Some(delay.p99)),
        cell(Some(delay.max)),
    ]
}

type Cells<'py> = Bound<'py, PyArray1<u64>>;

/// Returns departures, and the report of each flow if `measured`.
#[pyfunction]
pub(crate) fn replay<'py>(
    py: Python<'py>,
    link: Link<'py>,
    flows: Columns<'py, 2>,
    arrivals: Columns<'py, 3>,
    measured: bool,
) -> PyResult<(Cells<'py>, Option<Cells<'py>>)> {
    let link = link.terms()?;
    let flows = flows_of(&flows)?;
    let columns = arrivals_of(&arrivals);
    let done = py.detach(|| -> Result<_> {
        let [times, ..] = &columns;
        let setup = Setup {
            algorithm: link.algorithm,
            aggregate: link.aggregate,
            rate: link.rate,
            overhead: link.overhead,
            flows: &flows,
        };
        let mut arrivals = Listed::new(columns.each_ref(), &flows, link.overhead)?;
        let mut departures = Records {
            cells: Vec::with_capacity(times.len() * 5),
            watch: Watch::new(),
        };
        let report = by_flow::replay::<()>(&setup, &mut arrivals, &mut departures, measured)?;
        let report =
            report.map(|report| report.flows.iter().flat_map(reported).collect::<Vec<u64>>());
        Ok((departures.cells, report))
    });
    let (departures, report) = done.map_err(|error| ended(py, error))?;
    let report = report.map(|cells| cells.into_pyarray(py));
    Ok((departures.into_pyarray(py), report))
}
