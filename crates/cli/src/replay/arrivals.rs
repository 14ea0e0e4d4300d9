//! Arrivals, one after another.

use std::io::BufRead;

use anyhow::{Result, bail, ensure};
use fairlane_core::units::MAX_LENGTH;

use super::flows::Flow;
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
    last: u64,
}

impl<'a, R: BufRead> Listed<'a, R> {
    pub fn new(input: R, name: String, flows: &'a [Flow], overhead: u32) -> Result<Self> {
        Ok(Listed {
            rows: Rows::new(input, name, ["time_ns", "flow", "len"])?,
            flows,
            overhead,
            last: 0,
        })
    }
}

impl<R: BufRead> Arrivals<()> for Listed<'_, R> {
    fn next(&mut self) -> Result<Option<Arrival<()>>> {
        let Some([time, flow, len]) = self.rows.next()? else {
            return Ok(None);
        };
        ensure!(
            time >= self.last,
            "{}: time_ns {time} is before the {} of the row above, arrivals are in order of time",
            self.place(),
            self.last
        );
        self.last = time;
        let declared = usize::try_from(flow).ok().and_then(|n| self.flows.get(n));
        let Some(declared) = declared else {
            bail!(
                "{}: there is no flow {flow}, the flows are 0 to {}",
                self.place(),
                self.flows.len() - 1
            );
        };
        let len = check_length(len, flow, declared, self.overhead, || self.place())?;
        Ok(Some(Arrival {
            time,
            flow: flow as u32,
            len,
            body: (),
        }))
    }

    fn place(&self) -> String {
        self.rows.place()
    }
}
