//! The bytes that an ideal fluid server would have sent of each flow.

use std::sync::atomic::Ordering;

use fairlane_core::AnyScheduler;
use fairlane_runtime::Arbiter;

use crate::Exit;
use crate::flow::{Flows, Outgoing};

/// The last known state of the flows, from which the ideal fluid server is computed in short
/// intervals.
#[derive(Default)]
pub(crate) struct Ledger(Vec<Entry>);

#[derive(Clone, Copy, Default)]
struct Entry {
    offered: u64,
    sent: u64,
    queued: u64,
}

impl Ledger {
    /// Makes the arbiter's own counts visible to other threads.
    pub(crate) fn publish(
        &mut self,
        arbiter: &Arbiter<AnyScheduler<Box<Outgoing>>, Exit>,
        flows: &Flows,
    ) {
        let flows = flows.all();
        self.0.resize(flows.len(), Entry::default());
        let mut demands = Vec::with_capacity(flows.len());
        let mut capacity = 0;
        for (flow, entry) in flows.iter().zip(&mut self.0) {
            let (offered, sent) = (flow.offered.bytes(), flow.sent.bytes());
            let demand = entry.queued + offered - entry.offered;
            demands.push((flow.weight.get(), demand as f64));
            capacity += sent - entry.sent;
            (entry.offered, entry.sent) = (offered, sent);
        }
        for (flow, bytes) in flows
            .iter()
            .zip(fluid_allocation(capacity as f64, &demands))
        {
            flow.expected.add(bytes);
        }
        // A flow that left has no backlog.
        self.0.iter_mut().for_each(|entry| entry.queued = 0);
        for (id, stats) in arbiter.client_stats() {
            let number = flows.iter().position(|flow| flow.is_of(id));
            if let Some(number) = number {
                let dropped = stats.flow.dropped.packets;
                flows[number].dropped.store(dropped, Ordering::Relaxed);
                self.0[number].queued = stats.flow.queued.bytes;
            }
        }
    }
}

/// Returns the ideal fluid server's allocation: `capacity` split by weight among the flows with
/// demand, none of which gets more than its demand.
fn fluid_allocation(capacity: f64, demands: &[(u32, f64)]) -> Vec<f64> {
    let mut given = vec![0.0; demands.len()];
    let mut open: Vec<usize> = (0..demands.len()).collect();
    let mut left = capacity;
    loop {
        let weights: f64 = open.iter().map(|&flow| f64::from(demands[flow].0)).sum();
        let level = left / weights.max(1.0);
        let (satisfied, rest): (Vec<usize>, Vec<usize>) = open
            .iter()
            .partition(|&&flow| demands[flow].1 <= f64::from(demands[flow].0) * level);
        for &flow in &satisfied {
            given[flow] = demands[flow].1;
            left -= demands[flow].1;
        }
        if satisfied.is_empty() {
            for &flow in &rest {
                given[flow] = f64::from(demands[flow].0) * level;
            }
            return given;
        }
        open = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backlogged_flows_share_by_weight() {
        let given = fluid_allocation(150.0, &[(1, 1e9), (2, 1e9), (4, 1e9), (8, 1e9)]);
        assert_eq!(given, [10.0, 20.0, 40.0, 80.0]);
    }

    #[test]
    fn what_a_small_flow_leaves_goes_to_the_others_by_weight() {
        let given = fluid_allocation(100.0, &[(1, 1e9), (3, 1e9), (4, 20.0)]);
        assert_eq!(given, [20.0, 60.0, 20.0]);
    }

    #[test]
    fn an_idle_link_gives_everybody_what_it_asks_for() {
        let given = fluid_allocation(100.0, &[(1, 5.0), (1, 7.0)]);
        assert_eq!(given, [5.0, 7.0]);
    }
}
