//! Arrivals that are held, to be replayed more than once.

use std::slice::Iter;

use anyhow::Result;
use fairlane_core::FlowId;

use super::arrivals::{Arrival, Arrivals};
use super::by_flow::{self, ObservedFlows, Report, Setup};
use super::in_order::Disorder;

/// Packets between two progress reports of a replay.
const STEP: usize = 4096;

/// A packet that arrives.
#[derive(Clone, Copy, Debug)]
struct RecordedPacket {
    time: u64,
    flow: u32,
    len: u32,
}

/// Arrivals of flows, held to be replayed under one algorithm after the other. 16 bytes for each.
#[derive(Clone, Debug)]
pub struct Recording {
    name: String,
    held: Vec<RecordedPacket>,
    left_out: u64,
}

impl Recording {
    /// Records all of `arrivals`, which errors call `name`; `flow` returns the flow of each, or `None` to omit it.
    /// O(arrivals).
    ///
    /// # Errors
    ///
    /// An arrival is not as it must be.
    pub fn of<L, B>(
        name: String,
        arrivals: &mut dyn Arrivals<L, B>,
        flow: impl Fn(&Arrival<L, B>) -> Option<u32>,
    ) -> Result<Recording> {
        let (mut held, mut left_out) = (Vec::new(), 0);
        while let Some(arrival) = arrivals.next()? {
            match flow(&arrival) {
                Some(flow) => held.push(RecordedPacket {
                    time: arrival.time,
                    flow,
                    len: arrival.len,
                }),
                None => left_out += 1,
            }
        }
        Ok(Recording {
            name,
            held,
            left_out,
        })
    }

    /// Returns the number of recorded arrivals.
    pub fn packets(&self) -> usize {
        self.held.len()
    }

    /// Returns the number of omitted arrivals.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Returns the time from the first to the last arrival, in seconds.
    pub fn seconds(&self) -> f64 {
        match (self.held.first(), self.held.last()) {
            (Some(first), Some(last)) => (last.time - first.time) as f64 / 1e9,
            _ => 0.0,
        }
    }

    /// Returns the flows of these arrivals if none are declared. O(arrivals).
    pub fn found(&self) -> ObservedFlows {
        let mut found = ObservedFlows::default();
        for held in &self.held {
            found.add(held.flow, held.len);
        }
        found
    }

    /// Sends all over the link in the order of the setup's algorithm, and returns the report by flow, with delays of
    /// all packets instead of each flow's. `left` is called from time to time with the number of packets still to
    /// arrive.
    ///
    /// # Errors
    ///
    /// As [`by_flow::replay`].
    pub fn replay(&self, setup: &Setup<'_>, left: &mut dyn FnMut(usize)) -> Result<Report> {
        let mut again = Again {
            name: &self.name,
            rest: self.held.iter(),
            left,
        };
        by_flow::in_all(setup, &mut again)
    }
}

/// The arrivals once more.
struct Again<'a> {
    name: &'a str,
    rest: Iter<'a, RecordedPacket>,
    left: &'a mut dyn FnMut(usize),
}

impl Arrivals<FlowId, ()> for Again<'_> {
    fn next(&mut self) -> Result<Option<Arrival<FlowId, ()>>> {
        let Some(&RecordedPacket { time, flow, len }) = self.rest.next() else {
            return Ok(None);
        };
        if self.rest.len().is_multiple_of(STEP) {
            (self.left)(self.rest.len());
        }
        Ok(Some(Arrival {
            time,
            to: FlowId::new(flow),
            len,
            body: (),
        }))
    }

    fn place(&self) -> String {
        self.name.to_owned()
    }

    fn disorder(&self) -> Disorder {
        Disorder::default()
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use fairlane_core::sched::Algorithm;
    use fairlane_core::{Length, Weight};

    use super::*;
    use crate::replay::by_flow::{Flow, rows};

    #[test]
    fn second_replay_reports_delays_of_all_flows() {
        let flows = [Flow {
            weight: Weight::ONE,
            max_len: Length::MAX,
        }];
        let text = "time_ns,flow,len\n5,0,1000\n5,0,1000\n";
        let mut arrivals = rows(text.as_bytes(), "a".to_owned(), &flows, 0).unwrap();
        let flow = |arrival: &Arrival<FlowId, ()>| Some(arrival.to.number());
        let recording = Recording::of("a".to_owned(), &mut arrivals, flow).unwrap();
        let setup = Setup {
            algorithm: Algorithm::Qfq,
            aggregate: NonZeroU32::MIN,
            rate: "8mbit".parse().unwrap(),
            overhead: 0,
            flows: &flows,
        };
        for _ in 0..2 {
            let report = recording.replay(&setup, &mut |_| ()).unwrap();
            let [flow] = &report.flows[..] else {
                panic!("{report:?}")
            };
            assert_eq!((report.packets, flow.packets, flow.bytes), (2, 2, 2000));
            assert_eq!((report.delay_ns.max, flow.delay_ns.max), (2e6, 0.0));
        }
    }
}
