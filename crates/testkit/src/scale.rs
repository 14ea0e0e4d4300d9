//! Only the proportions of weights matter: multiplying all of them by one factor leads to the same order.
//!
//! An algorithm that inverts weights rounds them to a number of bits, so timestamps that are equal by the equations may
//! differ in either direction. Its order is the same to the packet if nothing is rounded, that is with weights and
//! their sum powers of two.

use fairlane_core::{FlowId, PacketScheduler, Scheduler};
use proptest::prelude::*;

use crate::broken::{Sentence, demand};
use crate::numbers::{config, length, scheduler};

#[derive(Clone, Debug)]
enum Operation {
    /// Enqueues a packet of a flow, of a percentage of its maximum length.
    Enqueue(usize, u32),
    Dequeue,
    /// Changes a flow's weight, and its maximum packet length if no longer packet is queued.
    Change(usize, u32, u32),
    /// Removes a flow and adds it again, possibly with another number.
    Replace(usize),
}

const FLOWS: usize = 6;

/// Flows, operations on them, and the factor of their weights.
#[derive(Clone, Debug)]
pub struct Case {
    /// Weight and maximum packet length.
    flows: Vec<(u32, u32)>,
    operations: Vec<Operation>,
    factor: u32,
}

fn case(weights: BoxedStrategy<u32>, factors: BoxedStrategy<u32>) -> impl Strategy<Value = Case> {
    let lengths = prop_oneof![Just(1500u32), 1..=9000u32];
    let flows = prop::collection::vec((weights.clone(), lengths.clone()), FLOWS);
    let operation = prop_oneof![
        8 => (0..FLOWS, prop_oneof![Just(100u32), 1..=100u32])
            .prop_map(|(flow, part)| Operation::Enqueue(flow, part)),
        6 => Just(Operation::Dequeue),
        1 => (0..FLOWS, weights, lengths)
            .prop_map(|(flow, weight, longest)| Operation::Change(flow, weight, longest)),
        1 => (0..FLOWS).prop_map(Operation::Replace),
    ];
    let operations = prop::collection::vec(operation, 1..400);
    (flows, operations, factors).prop_map(|(flows, operations, factor)| Case {
        flows,
        operations,
        factor,
    })
}

/// Returns cases of any weights, with a factor that keeps them from 1 to 10^6.
pub fn any_case() -> impl Strategy<Value = Case> {
    (1..=1_000_000u32).prop_flat_map(|factor| {
        let most = 1_000_000 / factor;
        let weights = prop_oneof![1..=most.min(10), 1..=most];
        case(weights.boxed(), Just(factor).boxed())
    })
}

/// Returns cases of permanent flows whose weights, their sum and the factor are powers of two.
pub fn power_case() -> impl Strategy<Value = Case> {
    let splits = prop::collection::vec(0..FLOWS, FLOWS - 1);
    let cases = case(
        Just(1).boxed(),
        (1..=10u32).prop_map(|log| 1 << log).boxed(),
    );
    (splits, cases).prop_map(|(splits, mut case)| {
        let mut weights = vec![512];
        for split in splits {
            // At most nine halvings of 512.
            let half = split % weights.len();
            weights[half] /= 2;
            weights.push(weights[half]);
        }
        for (flow, weight) in case.flows.iter_mut().zip(weights) {
            flow.0 = weight;
        }
        case.operations
            .retain(|operation| matches!(operation, Operation::Enqueue(..) | Operation::Dequeue));
        case
    })
}

/// A dequeued packet: its flow, its length, and the number of its arrival.
type Left = (FlowId, u32, usize);

/// Returns the packets in the order of their departure.
fn order<A: Scheduler>(algorithm: A, case: &Case, factor: u32) -> Result<Vec<Left>, String> {
    let mut link = scheduler(algorithm);
    let mut shares = case.flows.clone();
    let refused = |error| format!("a change is refused: {error}");
    let mut flows = Vec::new();
    for &(of, longest) in &shares {
        let flow = link.add_flow(config(of * factor, longest));
        flows.push(flow.map_err(refused)?);
    }
    let mut left = Vec::new();
    for (number, operation) in case.operations.iter().enumerate() {
        match *operation {
            Operation::Enqueue(flow, part) => {
                let len = length((shares[flow].1 * part / 100).max(1));
                let outcome = link.enqueue(flows[flow], len, number);
                outcome.map_err(|rejected| format!("a packet is rejected: {}", rejected.reason))?;
            }
            Operation::Dequeue => take(&mut link, &mut left),
            Operation::Change(flow, of, longest) => {
                let share = config(of * factor, longest);
                if link.change_flow(flows[flow], share).is_ok() {
                    shares[flow] = (of, longest);
                }
            }
            Operation::Replace(flow) => {
                link.remove_flow(flows[flow], |_| {}).map_err(refused)?;
                let (of, longest) = shares[flow];
                let share = config(of * factor, longest);
                flows[flow] = link.add_flow(share).map_err(refused)?;
            }
        }
    }
    for _ in 0..link.len() {
        take(&mut link, &mut left);
    }
    Ok(left)
}

fn take<A: Scheduler>(link: &mut PacketScheduler<A, usize>, left: &mut Vec<Left>) {
    if let Some(packet) = link.dequeue() {
        left.push((packet.owner, packet.len.get(), packet.payload));
    }
}

/// Checks that the order is the same at both scales.
///
/// # Errors
///
/// One sentence with the first packet that differs.
pub fn same_order<A: Scheduler>(make: &dyn Fn() -> A, case: &Case) -> Sentence {
    let plain = order(make(), case, 1)?;
    let scaled = order(make(), case, case.factor)?;
    let differs = plain.iter().zip(&scaled).position(|(a, b)| a != b);
    demand!(
        differs.is_none() && plain.len() == scaled.len(),
        "the order depends on the scale of weights: multiplied by {}, the flows of the same shares leave \
         in another order from packet {} on",
        case.factor,
        differs.unwrap_or(plain.len().min(scaled.len()))
    );
    Ok(())
}
