//! Delays of packets, from arrival to the end of transmission.

use crate::observer::{Completion, Now, Observer};
use crate::time::Picos;
use fairlane_core::{FlowConfig, FlowId};
use hdrhistogram::Histogram;

/// Delays of one flow's packets.
#[derive(Clone, Debug)]
pub struct Delays {
    histogram: Histogram<u32>,
    count: u64,
    sum: u128,
    max: Picos,
    /// The first delay; the sums of differences and of their squares are relative to it, so that
    /// constant delays deviate by 0.
    first: Picos,
    apart: f64,
    squares: f64,
}

impl Delays {
    /// Decimal digits to which [`percentile`](Self::percentile) is right: off by at most 1%.
    pub const DIGITS: u8 = 2;

    /// None yet.
    pub fn new() -> Delays {
        Delays {
            histogram: Histogram::new(Self::DIGITS).expect("the precision is in range"),
            count: 0,
            sum: 0,
            max: Picos::ZERO,
            first: Picos::ZERO,
            apart: 0.0,
            squares: 0.0,
        }
    }

    /// Counts one. O(1); the table grows with the range of delays, to 30 KiB.
    pub fn record(&mut self, delay: Picos) {
        if self.count == 0 {
            self.first = delay;
        }
        let apart = delay.0.wrapping_sub(self.first.0) as i64 as f64;
        self.apart += apart;
        self.squares += apart * apart;
        self.count += 1;
        self.sum += delay.0;
        self.max = self.max.max(delay);
        let delay = u64::try_from(delay.0).unwrap_or(u64::MAX);
        if self.histogram.record(delay).is_err() {
            self.histogram.saturating_record(delay);
        }
    }

    /// Returns how many.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the mean, rounded down; zero for none.
    pub fn mean(&self) -> Picos {
        Picos(self.sum.checked_div(self.count.into()).unwrap_or(0))
    }

    /// Returns the standard deviation of all, if they are less than 106 days apart; zero for none.
    pub fn deviation(&self) -> Picos {
        let count = self.count.max(1) as f64;
        let mean = self.apart / count;
        Picos((self.squares / count - mean * mean).max(0.0).sqrt() as u128)
    }

    /// Returns the longest, exact.
    pub fn max(&self) -> Picos {
        self.max
    }

    /// Returns a delay that `percent` of all do not exceed, to [`DIGITS`](Self::DIGITS) digits and
    /// never above the longest.
    pub fn percentile(&self, percent: f64) -> Picos {
        let delay = self.histogram.value_at_percentile(percent);
        Picos(delay.into()).min(self.max)
    }
}

impl Default for Delays {
    fn default() -> Self {
        Self::new()
    }
}

/// Measures the delays of every flow, from arrival until the last bit has left the link.
/// O(1) a packet. A flow's delays are kept until its number is given to another.
#[derive(Clone, Debug, Default)]
pub struct DelayMeter {
    flows: Vec<Delays>,
}

impl DelayMeter {
    /// Returns an empty meter.
    pub fn new() -> DelayMeter {
        DelayMeter::default()
    }

    /// Returns the delays of a flow, or `None` if there never was one of this number.
    pub fn flow(&self, flow: FlowId) -> Option<&Delays> {
        self.flows.get(flow.number() as usize)
    }
}

impl Observer for DelayMeter {
    fn flow_added(&mut self, _: Now, flow: FlowId, _: &FlowConfig) {
        let number = flow.number() as usize;
        if self.flows.len() <= number {
            self.flows.resize_with(number + 1, Delays::new);
        }
        self.flows[number] = Delays::new();
    }

    fn completed(&mut self, completion: &Completion) {
        let packet = &completion.packet;
        if let Some(delays) = self.flows.get_mut(packet.flow.number() as usize)
            && !packet.orphan
        {
            delays.record(completion.end.time - packet.arrival);
        }
    }
}
