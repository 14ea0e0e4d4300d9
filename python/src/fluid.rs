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
use crate::wrong::ended;

/// Parts in which what is left after the last arrival is served.
const PARTS: u128 = 1 << 10;

/// When the fluid server finishes each arrival, in picoseconds.
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

fn finishes(link: &LinkTerms, flows: &[Flow], columns: &[Numbers<'_>; 3]) -> Result<Vec<u64>> {
    let [times, ..] = columns;
    let mut gps = Gps::new(link.rate);
    for (number, flow) in (0u32..).zip(flows) {
        gps.add_flow(Picos::ZERO, FlowId::new(number), flow.weight);
    }
    let mut finished = vec![0; times.len()];
    let mut take = |gps: &mut Gps| {
        for done in gps.take_finished() {
            finished[done.number as usize] = u64::try_from(done.time.0).unwrap_or(u64::MAX);
        }
    };
    let (mut last, mut bytes) = (Picos::ZERO, 0u64);
    let arrivals = Listed::new(columns.each_ref(), flows, link.overhead)?;
    for (number, arrival) in (0u64..).zip(arrivals) {
        let arrival = arrival?;
        // Within the range, as it was checked.
        let len = Length::new(arrival.len + link.overhead).unwrap_or(Length::MAX);
        last = arrival.at();
        bytes += u64::from(len.get());
        gps.arrive(last, arrival.to, len, number);
        take(&mut gps);
    }
    let whole = Work::from_bytes(bytes).0 / u128::from(link.rate.bps());
    let mut watch = Watch::new();
    for part in 1..=PARTS {
        watch.now()?;
        gps.advance(last + Picos(whole / PARTS * part));
        take(&mut gps);
    }
    gps.finish();
    take(&mut gps);
    Ok(finished)
}
