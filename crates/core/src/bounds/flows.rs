//! The guarantees of an algorithm to each of a set of flows.

use super::{Head, Siblings, Transmit, Wfi, pspat, pspat_block, pspat_direct, qfq_rounding};
use crate::sched::{Algorithm, Promise};
use crate::{FlowConfig, Length, Nanos, Rate};

/// T-WFI of the whole by PSPAT's Eq. 1, where the algorithm alone guarantees `algorithm`, scans of a mailbox are up to
/// `scan` (Delta_A) apart, and packets are `longest` at most.
pub fn with_arbiter(
    algorithm: Nanos,
    scan: Nanos,
    dispatched: Option<Dispatched>,
    rate: Rate,
    longest: Length,
) -> Nanos {
    match dispatched {
        Some(Dispatched { passes, held }) => {
            // More than they hold cannot be on its way through the dispatchers.
            let block = pspat_block(scan, rate, longest).min(held);
            pspat(algorithm, scan, passes, block)
        }
        None => pspat_direct(algorithm, scan),
    }
}

/// Dispatchers between arbiter and link.
#[derive(Clone, Copy, Debug)]
pub struct Dispatched {
    /// Longest time from one pass to the next: Delta_D.
    pub passes: Nanos,
    /// Packets that all of them hold at most.
    pub held: u64,
}

/// The guarantees of an algorithm to its flows, by their weights and maximum lengths.
#[derive(Clone, Debug)]
pub struct Guarantees {
    siblings: Siblings,
    /// Bytes that the link sent.
    sent: u64,
}

impl Guarantees {
    /// Returns the guarantees of flows under `alg`, over all the time in which the link sends `sent` bytes. Lengths
    /// count as on the link. O(flows).
    pub fn new(alg: Algorithm, flows: &[FlowConfig], sent: u64) -> Guarantees {
        let flows = flows.iter().map(|flow| (flow.weight, flow.max_length, 1));
        Guarantees {
            siblings: Siblings::new(alg, flows),
            sent,
        }
    }

    /// Returns the bound of a flow: `None` if its algorithm guarantees none, or none is known.
    pub fn of(&self, flow: &FlowConfig) -> Option<Wfi> {
        // Arrivals may find a packet half sent.
        let transmit = Transmit::Direct;
        let (weight, length) = (flow.weight, flow.max_length);
        let exact = self.siblings.bound(weight, length, Head::Known, transmit)?;
        let Promise::Rounded(_) = self.siblings.algorithm().promise() else {
            return Some(exact);
        };
        // The error of fixed-point shares, over all bytes sent.
        let terms = self.siblings.terms(weight, length, transmit)?;
        Some(exact + qfq_rounding(&terms, self.sent))
    }
}
