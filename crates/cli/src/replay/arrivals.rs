//! Arrivals, one after another.

use std::io::BufRead;

use anyhow::{Result, anyhow, bail};
use fairlane_core::units::MAX_LENGTH;

use super::flows::Flow;
use super::in_order::{Disorder, InOrder, Late};
use super::rows::Rows;

/// A packet that arrives.
#[derive(Clone, Debug)]
pub struct Arrival<B> {
    /// In nanoseconds, never before that of the arrival before.
    pub time: u64,
    pub flow: u32,
    /// In bytes, without overhead.
    pub len: u32,
    /// What leaves with the packet.
    pub body: B,
}

/// Where arrivals come from.
pub trait Arrivals<B> {
    /// The next one; `None` at the end.
    fn next(&mut self) -> Result<Option<Arrival<B>>>;

    /// Where the last one stands, as errors say it.
    fn place(&self) -> String;
}

/// Why a row is refused whose time is before that of one above it.
pub fn too_late(place: &str, time: u64, Late(latest): Late) -> anyhow::Error {
    anyhow!(
        "{place}: time_ns {time} is before the {latest} of a row above: rows are in order of time, \
         and put in order where they are up to 1 ms early"
    )
}

/// Checks what every packet must fulfil; `place` is only made for an error.
pub fn check_length(
    len: u64,
    flow: u64,
    declared: &Flow,
    overhead: u32,
    place: impl Fn() -> String,
) -> Result<u32> {
    let max = u64::from(declared.max_len.get());
    if len == 0 || len > max {
        bail!(
            "{}: len {len} of flow {flow} is not from 1 to its max_len {max}",
            place()
        );
    }
    if len + u64::from(overhead) > u64::from(MAX_LENGTH) {
        bail!(
            "{}: len {len} and the overhead of {overhead} make more than {MAX_LENGTH} bytes",
            place()
        );
    }
    Ok(len as u32)
}

/// Arrivals from rows of `time_ns,flow,len`.
pub struct Listed<'a, R> {
    rows: Rows<R, 3>,
    flows: &'a [Flow],
    overhead: u32,
    /// Each with its line.
    order: InOrder<(Arrival<()>, u64)>,
    line: u64,
}

impl<'a, R: BufRead> Listed<'a, R> {
    pub fn new(input: R, name: String, flows: &'a [Flow], overhead: u32) -> Result<Self> {
        Ok(Listed {
            rows: Rows::new(input, name, ["time_ns", "flow", "len"])?,
            flows,
            overhead,
            order: InOrder::new(),
            line: 0,
        })
    }

    /// What was put in order.
    pub fn disorder(&self) -> Disorder {
        self.order.disorder
    }

    /// The next row.
    fn read(&mut self) -> Result<Option<Arrival<()>>> {
        let Some([time, flow, len]) = self.rows.next()? else {
            return Ok(None);
        };
        let declared = usize::try_from(flow).ok().and_then(|n| self.flows.get(n));
        let Some(declared) = declared else {
            bail!(
                "{}: there is no flow {flow}, the flows are 0 to {}",
                self.rows.place(),
                self.flows.len() - 1
            );
        };
        let len = check_length(len, flow, declared, self.overhead, || self.rows.place())?;
        Ok(Some(Arrival {
            time,
            flow: flow as u32,
            len,
            body: (),
        }))
    }
}

impl<R: BufRead> Arrivals<()> for Listed<'_, R> {
    fn next(&mut self) -> Result<Option<Arrival<()>>> {
        loop {
            if let Some((arrival, line)) = self.order.pop() {
                self.line = line;
                return Ok(Some(arrival));
            }
            if self.order.is_over() {
                return Ok(None);
            }
            match self.read()? {
                Some(arrival) => {
                    let (time, line) = (arrival.time, self.rows.line());
                    let pushed = self.order.push(time, (arrival, line));
                    pushed.map_err(|late| too_late(&self.rows.place(), time, late))?;
                }
                None => self.order.end(),
            }
        }
    }

    fn place(&self) -> String {
        self.rows.place_of(self.line)
    }
}
