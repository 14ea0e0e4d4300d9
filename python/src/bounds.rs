//! The guarantees of an algorithm: worst-case fair indexes, rate and delay.

use fairlane_core::bounds::{Head, Siblings, Transmit};
use fairlane_core::units::MAX_LENGTH;
use fairlane_core::{Length, Rate, Weight};
use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;

use crate::column::{Columns, Given, Whole, aggregate, algorithm, flows_of, rate};
use crate::wrong::Wrong;

/// The arguments of a link: algorithm, rate, overhead, flows in an aggregate.
#[derive(FromPyObject)]
pub(crate) struct Link<'py>(Given<String>, Bound<'py, PyAny>, Whole, Whole);

/// The same, parsed.
#[derive(Clone, Copy)]
pub(crate) struct LinkTerms {
    pub algorithm: fairlane_core::sched::Algorithm,
    pub aggregate: std::num::NonZeroU32,
    pub rate: Rate,
    pub overhead: u32,
}

impl Link<'_> {
    pub(crate) fn terms(&self) -> Result<LinkTerms, Wrong> {
        let Link(name, link_rate, overhead, members) = self;
        let (overhead, members) = (overhead.small("overhead")?, aggregate(members)?);
        if overhead >= MAX_LENGTH {
            let sentence = format!("overhead is {overhead}: it is below {MAX_LENGTH} bytes");
            return Err(Wrong::new("overhead", sentence));
        }
        Ok(LinkTerms {
            algorithm: algorithm(name, members)?,
            aggregate: members,
            rate: rate("rate", link_rate)?,
            overhead,
        })
    }
}

/// Returns a bound as a cell; NaN if there is none.
pub(crate) fn cell(number: Option<f64>) -> u64 {
    number.unwrap_or(f64::NAN).to_bits()
}

/// Returns for each flow the cells of `BOUNDS` in `fairlane/records.py`; a transmit queue has `queued` bytes in
/// addition to the packet on the wire.
#[pyfunction]
pub(crate) fn bounds<'py>(
    py: Python<'py>,
    link: Link<'py>,
    flows: Columns<'py, 2>,
    queued: Whole,
) -> PyResult<Bound<'py, PyArray1<u64>>> {
    let (link, queued) = (link.terms()?, queued.large("queue_bytes")?);
    let flows = flows_of(&flows)?;
    let on_link = |length: Length| {
        let with_overhead = (length.get() + link.overhead).min(MAX_LENGTH);
        Length::new(with_overhead).unwrap_or(Length::MAX)
    };
    let children: Vec<(Weight, Length)> = flows
        .iter()
        .map(|flow| (flow.weight, on_link(flow.max_len)))
        .collect();
    let siblings = Siblings::new(
        link.algorithm,
        children.iter().map(|&(weight, length)| (weight, length, 1)),
    );
    let transmit = Transmit::Queue(queued);
    let mut cells = Vec::with_capacity(children.len() * 8);
    for (number, &(weight, length)) in (0u64..).zip(&children) {
        let wfi = siblings.bound(weight, length, Head::Known, transmit);
        let terms = siblings.terms(weight, length, transmit);
        let promised = wfi.zip(terms);
        let nanos = |nanos: fairlane_core::Nanos| nanos.0 as f64;
        cells.extend([
            number,
            weight.get().into(),
            flows[number as usize].max_len.get().into(),
            cell(Some(siblings.share(weight))),
            terms.map_or(0, |terms| terms.guaranteed_rate(link.rate)),
            cell(wfi.map(|wfi| nanos(wfi.delay.time(link.rate)))),
            cell(wfi.filter(|wfi| wfi.strict).map(|wfi| wfi.service.bytes())),
            cell(
                promised.map(|(wfi, terms)| {
                    nanos(terms.worst_delay(wfi, length.get().into(), link.rate))
                }),
            ),
        ]);
    }
    Ok(cells.into_pyarray(py))
}
