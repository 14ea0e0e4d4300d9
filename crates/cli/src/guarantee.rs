//! What an algorithm promises each of a set of flows.

use std::collections::HashMap;
use std::num::NonZeroU32;

use fairlane_core::bounds::{self, Aggregate, Round, Slot, Terms, Transmit, Wfi};
use fairlane_core::{FlowConfig, Length, Nanos, Rate, Weight};

use crate::algorithm::Algorithm;

/// T-WFI of the whole by PSPAT's Eq. 1, where the algorithm alone promises `algorithm`, looks at
/// a mailbox are up to `scan` (Delta_A) apart, and packets are `longest` at most.
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
            let block = bounds::pspat_block(scan, rate, longest).min(held);
            bounds::pspat(algorithm, scan, passes, block)
        }
        None => bounds::pspat_direct(algorithm, scan),
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

/// What an algorithm promises its flows, by their weights and maximum lengths.
pub struct Guarantees {
    alg: &'static str,
    weight_sum: u64,
    longest: Length,
    round: Option<Round>,
    /// Bytes that the link sent.
    sent: u64,
    /// Most flows that any aggregate has.
    members: u32,
    of_kind: HashMap<Kind, Option<Wfi>>,
}

/// Weight and maximum length: flows that agree in both are promised the same.
type Kind = (Weight, Length);

fn kind(flow: &FlowConfig) -> Kind {
    (flow.weight, flow.max_length)
}

impl Guarantees {
    /// Of flows under `alg`, with at most `aggregate` of them in one aggregate, over all the
    /// time in which the link sends `sent` bytes. Lengths count what the link carries. O(flows).
    pub fn new(
        alg: Algorithm,
        aggregate: NonZeroU32,
        flows: &[FlowConfig],
        sent: u64,
    ) -> Guarantees {
        let mut alike: HashMap<Kind, u32> = HashMap::new();
        for flow in flows {
            *alike.entry(kind(flow)).or_default() += 1;
        }
        let mut guarantees = Guarantees {
            alg: alg.name(),
            weight_sum: flows.iter().map(|flow| u64::from(flow.weight.get())).sum(),
            longest: flows
                .iter()
                .map(|flow| flow.max_length)
                .max()
                .unwrap_or(Length::MAX),
            round: Round::of(flows.iter().map(kind)),
            sent,
            members: aggregate
                .get()
                .min(alike.values().copied().max().unwrap_or(1)),
            of_kind: HashMap::new(),
        };
        guarantees.of_kind = alike
            .into_iter()
            .map(|(kind, flows)| (kind, guarantees.compute(kind, flows)))
            .collect();
        guarantees
    }

    /// The bound of a flow: `None` where its algorithm promises none, or none is known.
    pub fn of(&self, flow: &FlowConfig) -> Option<Wfi> {
        self.of_kind.get(&kind(flow)).copied().flatten()
    }

    fn compute(&self, (weight, length): Kind, alike: u32) -> Option<Wfi> {
        // Arrivals may find a packet half sent.
        let transmit = Transmit::Direct;
        let terms = Terms::new(weight, self.weight_sum, length, self.longest, transmit).ok()?;
        let slot = Slot::Actual;
        let exact = match self.alg {
            "drr" => return bounds::drr(self.round.as_ref()?, weight, length, transmit),
            "wf2q" => bounds::wf2q(&terms),
            "wf2q+" => bounds::wf2q_plus(&terms),
            "gfq" => bounds::gfq(&terms, slot),
            "qfq" => bounds::qfq(&terms, slot),
            "s-kps" => bounds::s_kps(&terms, slot),
            "wf2q++" => self.aggregated(terms, alike, bounds::wf2q_plus_plus)?,
            "gfq+" => self.aggregated(terms, alike, |a| bounds::gfq_plus(a, slot))?,
            "qfq+" => self.aggregated(terms, alike, |a| bounds::qfq_plus(a, slot))?,
            "s-kps+" => self.aggregated(terms, alike, |a| bounds::s_kps_plus(a, slot))?,
            _ => return None,
        };
        // What fixed-point shares may be off by, over all that was sent.
        Some(exact + bounds::qfq_rounding(&terms, self.sent))
    }

    /// The loosest bound over the sizes that the aggregates of a kind may have: they are
    /// filled one after the other, so all are full but one.
    fn aggregated(
        &self,
        terms: Terms,
        alike: u32,
        bound: impl Fn(&Aggregate) -> Wfi,
    ) -> Option<Wfi> {
        let full = alike.min(self.members);
        [1, alike % full, full]
            .into_iter()
            .filter_map(|members| Aggregate::new(terms, members, self.members).ok())
            .map(|aggregate| bound(&aggregate))
            .max_by(|a, b| a.delay.bytes().total_cmp(&b.delay.bytes()))
    }
}
