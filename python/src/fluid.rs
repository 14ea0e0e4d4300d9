//! The ideal fluid server over columns of arrivals.

use anyhow::Result;
use fairlane_core::{FlowId, Length};
use fairlane_sim::{Gps, Picos, Work};
use fairlane_traffic::replay::by_flow::Flow;
use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;

use crate::bounds::{Link, LinkTerms};
use crate::column::{Columns, Numbers, arrivals_of, flows_of};
use crate::replay::Listed;
use crate::watch::Watch;
use crate::wrong::{Wrong, ended};

/// Bytes served between two checks for Ctrl-C.
const PART: u64 = 1 << 18;

/// Returns the time at which the fluid server finishes each arrival, in picoseconds.
#[pyfunction]
pub(crate) fn fluid<'py>(
    py: Python<'py>,
    link: Link<'py>,
    flows: Columns<'py, 2>,
    arrivals: Columns<'py, 3>,
) -> PyResult<Bound<'py, PyArray1<u64>>> {
    let link = link.terms()?;
    let flows = flows_of(&flows)?;
    let columns = arrivals_of(&arrivals);
    let finished = py.detach(|| finishes(&link, &flows, &columns));
    let finished = finished.map_err(|error| ended(py, error))?;
    Ok(finished.into_pyarray(py))
}

/// A fluid server, and the times at which it finished each arrival.
struct Fluid {
    gps: Gps,
    finished: Vec<u64>,
    /// The time until which it has served.
    clock: Picos,
    watch: Watch,
}

impl Fluid {
    /// Serves until a time, in parts.
    fn serve(&mut self, until: Picos, part: Picos) -> Result<()> {
        while self.clock + part < until {
            self.clock += part;
            self.watch.now()?;
            self.gps.advance(self.clock);
            self.take()?;
        }
        Ok(())
    }

    fn take(&mut self) -> Result<(), Wrong> {
        for done in self.gps.take_finished() {
            let index = done.number as usize;
            self.finished[index] = u64::try_from(done.time.0).map_err(|_| {
                let sentence = format!(
                    "time_ns[{index}]: its packet ends {} ns after 0, and 64 bits hold {} ns in \
                     picoseconds: let times begin near 0",
                    done.time.to_nanos().0,
                    u64::MAX / 1000
                );
                Wrong::new("time_ns", sentence).at(index)
            })?;
        }
        Ok(())
    }
}

fn finishes(link: &LinkTerms, flows: &[Flow], columns: &[Numbers<'_>; 3]) -> Result<Vec<u64>> {
    let [times, ..] = columns;
    let mut fluid = Fluid {
        gps: Gps::new(link.rate),
        finished: vec![0; times.len()],
        clock: Picos::ZERO,
        watch: Watch::new(),
    };
    for (number, flow) in (0u32..).zip(flows) {
        let flow_id = FlowId::new(number);
        fluid.gps.add_flow(Picos::ZERO, flow_id, flow.weight);
    }
    let span = |work: Work| Picos(work.0 / u128::from(link.rate.bps()));
    let part = span(Work::from_bytes(PART));
    // The time at which it has served all arrivals, the same for every work-conserving server.
    let mut idle = Picos::ZERO;
    let arrivals = Listed::new(columns.each_ref(), flows, link.overhead)?;
    for (number, arrival) in (0u64..).zip(arrivals) {
        let arrival = arrival?;
        let at = arrival.at();
        fluid.serve(idle.min(at), part)?;
        // The range was checked before.
        let len = Length::new(arrival.len + link.overhead).unwrap_or(Length::MAX);
        fluid.gps.arrive(at, arrival.to, len, number);
        fluid.take()?;
        fluid.clock = at;
        idle = idle.max(at) + span(Work::of(len));
    }
    fluid.serve(idle, part)?;
    fluid.gps.finish();
    fluid.take()?;
    Ok(fluid.finished)
}
