//! Algorithms under which a flow may wait for a packet of every other.

use super::{Terms, Transmit, Wfi, Work};
use crate::units::{Charge, Weight};

/// The flows of a scheduler, and their quanta under DRR: weights times a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Round {
    /// Of the flow that decides the unit.
    reference: (Weight, Charge),
    weight_sum: u64,
    length_sum: u64,
    longest: Charge,
    /// The unit was given, and need not cover anything.
    is_given: bool,
}

impl Round {
    /// Returns a round of these flows, idle ones too, each with its weight and longest packet. The unit is
    /// [`Drr`](crate::sched::Drr)'s: the largest `length / weight`. `None` of no flow. O(flows).
    pub fn of(flows: impl IntoIterator<Item = (Weight, impl Into<Charge>)>) -> Option<Round> {
        Self::of_many(
            flows
                .into_iter()
                .map(|(weight, length)| (weight, length, 1)),
        )
    }

    /// Returns the same for flows given with their number. O(entries).
    #[doc(hidden)]
    pub fn of_many(
        flows: impl IntoIterator<Item = (Weight, impl Into<Charge>, u32)>,
    ) -> Option<Round> {
        let (mut reference, mut weight_sum, mut length_sum, mut longest) = (None, 0u64, 0u64, None);
        for (weight, length, count) in flows.into_iter().filter(|&(_, _, count)| count > 0) {
            let length: Charge = length.into();
            if reference.is_none_or(|reference| !covers(reference, (weight, length))) {
                reference = Some((weight, length));
            }
            weight_sum += u64::from(weight.get()) * u64::from(count);
            length_sum += u64::from(length.get()) * u64::from(count);
            longest = longest.max(Some(length));
        }
        Some(Round {
            reference: reference?,
            weight_sum,
            length_sum,
            longest: longest?,
            is_given: false,
        })
    }

    /// The same without flows whose weights and longest packets add up to this, with the unit of all.
    pub(super) fn without(self, weight: u64, length: u64) -> Round {
        Round {
            weight_sum: self.weight_sum - weight,
            length_sum: self.length_sum - length,
            ..self
        }
    }

    /// The same with a quantum that is given for a flow of weight `lightest`, and may be smaller than
    /// packets. [`drr`] holds of any quanta: a turn leaves less of the deficit than the next packet is
    /// long, also one in which nothing is sent.
    pub fn with_quantum(self, lightest: Weight, quantum: impl Into<Charge>) -> Round {
        Round {
            reference: (lightest, quantum.into()),
            is_given: true,
            ..self
        }
    }

    /// phi of a flow of `weight`.
    pub(super) fn share(&self, weight: Weight) -> f64 {
        f64::from(weight.get()) / self.weight_sum as f64
    }

    /// Returns the largest L_j / phi_j, in work of the link: the unit times the sum of weights.
    pub fn slowest(&self) -> Work {
        Work(self.unit() * self.weight_sum as f64)
    }

    /// Quantum of weight 1, in bytes.
    pub fn unit(&self) -> f64 {
        let (weight, length) = self.reference;
        f64::from(length.get()) / f64::from(weight.get())
    }
}

/// Returns whether a quantum by the unit of `reference` covers the longest packet of a flow.
fn covers(reference: (Weight, Charge), flow: (Weight, Charge)) -> bool {
    let product =
        |weight: Weight, length: Charge| u64::from(weight.get()) * u64::from(length.get());
    product(flow.0, reference.1) >= product(reference.0, flow.1)
}

/// DRR, for one of the round's flows, of `weight` and with packets up to `length` (L_k);
/// `None` if it cannot be one of them. With quanta q in bytes and their sum F, phi = q_k / F:
///
/// ```text
/// T-WFI R = F - q_k + (sum of the other flows' longest packets) + Q
/// B-WFI   = phi T-WFI R + (1 - phi) L_k
/// ```
///
/// Say that a packet which has B bytes of its flow in front, its own included, is sent in the flow's h-th turn from now
/// on. A turn leaves less of the deficit than the next packet is long, which is sent in the next turn. If the present
/// turn is the first, the h - 2 in between make `B > (h - 2) q_k`, while each other flow has h - 1 turns; otherwise
/// `B > (h - 1) q_k`, and each has h turns at most: a flow that becomes backlogged is put at the end of the round, with
/// one quantum, so that none has two turns between two of another. In n turns a flow sends n quanta and the rest of an
/// earlier turn, less than its longest packet. Both cases lead to `(B / q_k + 1) (F - q_k)` and one packet of each
/// other flow. An interval that ends just before the packet may lack up to L_k more of the flow's own service, for
/// B-WFI.
///
/// If all B bytes arrive together at an idle flow, no turn is under way: n turns leave the packet queued only if
/// their n quanta are less than B, so it is sent in turn `ceil(B / q_k)`. The work until then is a staircase
///
/// ```text
/// B + ceil(B / q_k) (F - q_k) + (sum of the other flows' longest packets) + Q
/// ```
///
/// which [`Wfi::turn`] stands for. Tabatabaee and Le Boudec (*Deficit Round-Robin: A Second Network Calculus
/// Analysis*, 2022) have a staircase too, of a flow that is backlogged already, whose first turn may be all but over.
pub fn drr(
    round: &Round,
    weight: Weight,
    length: impl Into<Charge>,
    transmit: Transmit,
) -> Option<Wfi> {
    let length = length.into();
    if !round.is_given && !covers(round.reference, (weight, length)) {
        return None;
    }
    let wfi = scfq(round, weight, length, transmit)?;
    let turn = f64::from(weight.get()) * round.unit();
    let share = round.share(weight);
    let turns = Wfi::of(share, turn / share - turn);
    Some(Wfi {
        turn: Work(turn),
        ..wfi + turns
    })
}

/// SCFQ, for one of the round's flows, of `weight` and with packets up to `length` (L_k); `None`
/// if it cannot be one of them.
///
/// ```text
/// T-WFI R = (sum of the other flows' longest packets) + Q
/// B-WFI   = phi T-WFI R + (1 - phi) L_k
/// ```
///
/// Golestani's delay bound, with the flow's fair completion time instead of its arrivals. Weights are phi_k of a sum of
/// 1 here. Say that at a time when v is v1 a packet has B bytes of its flow in front, its own included. The tag that
/// the flow continues from is no later than v1, as v has been either there or where the flow became backlogged; so the
/// packet's tag F is at most `v1 + B / phi_k`. Until it is sent, each other flow j sends packets whose tags lie between
/// v1, as tags leave in order, and F: no more than `phi_j (F - v1)` and the part of the first that lies before v1, less
/// than L_j. That adds up to `(1 - phi_k) B / phi_k` and one packet of each other flow, besides B. An interval that
/// ends just before the packet may lack up to L_k more of the flow's own service, for B-WFI.
pub fn scfq(
    round: &Round,
    weight: Weight,
    length: impl Into<Charge>,
    transmit: Transmit,
) -> Option<Wfi> {
    let length = length.into();
    let others = round.length_sum.checked_sub(length.get().into())?;
    if u64::from(weight.get()) > round.weight_sum || length > round.longest {
        return None;
    }
    let share = round.share(weight);
    let queued = transmit.work(round.longest).bytes();
    let wfi = Wfi::of(share, others as f64 + queued);
    Some(wfi.with_service((1.0 - share) * f64::from(length.get())))
}

/// DRR over `flows` flows (N), the lightest of weight `lightest` (phi_min), as the QFQ+
/// paper states it (Eq. 15); `None` if the flow cannot be one of them.
///
/// ```text
/// T-WFI R = (1 / phi_min + 1 / phi + N - 1) L + Q
/// B-WFI   = phi T-WFI R
/// ```
///
/// It holds for quanta of `phi / phi_min L`, which [`Drr`](crate::sched::Drr) has where the longest packets
/// are equally long, and wherever [`drr`] is no larger.
pub fn drr_in_proportion(terms: &Terms, lightest: Weight, flows: u32) -> Option<Wfi> {
    let others = flows.checked_sub(1)?;
    let least = u64::from(others) * u64::from(lightest.get()) + u64::from(terms.weight.get());
    if lightest > terms.weight || least > terms.weight_sum {
        return None;
    }
    let sum = terms.weight_sum as f64;
    let [lightest, own] = [lightest, terms.weight].map(|weight| sum / f64::from(weight.get()));
    let packets = lightest + own + f64::from(others);
    Some(Wfi::of(
        terms.share(),
        packets * terms.longest() + terms.queued(),
    ))
}
