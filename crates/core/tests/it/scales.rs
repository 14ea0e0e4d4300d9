//! Only the proportions of weights count: multiplied by one number, they lead to the same order
//! and the same bounds.
//!
//! To the packet, with DRR and all that know no weights or only which is the larger. Where weights are inverted, that
//! is done to 40 bits, and timestamps that are equal by the equations may differ either way by the truncated part:
//! there the order is the same to the packet if nothing is truncated, with weights and their sum powers of two, and
//! everywhere a flow's service is the same to within its guarantee. Slots of virtual time are powers of two as well
//! (Eq. 4 of the QFQ report): a factor between two of these moves some flows to slots up to twice as long or half, and
//! their guarantees with them.

use crate::support::{config, length, next, scheduler, some_cases, weight};
use fairlane_core::Scheduler;
use fairlane_core::bounds::{Head, Siblings, Transmit, Wfi};
use fairlane_core::sched::Algorithm;
use fairlane_core::sched::{
    Drr, Fifo, Gfq, Plus, Priority, Qfq, SKps, Scfq, Sfq, Wf2q, Wf2qPlus, Wfq,
};
use fairlane_testkit::scale::{self, Case, any_case, power_case};
use proptest::prelude::*;

/// Runs a generic test on each algorithm that keeps its order to the packet at every scale.
macro_rules! for_every_exact_algorithm {
    ($test:ident($($arguments:tt)*)) => {
        $test(Fifo::new(), $($arguments)*);
        $test(Drr::new(), $($arguments)*);
        $test(Plus::<Drr>::default(), $($arguments)*);
        $test(Priority::new(), $($arguments)*);
        $test(Sfq::new(), $($arguments)*);
    };
}

/// And on each whose timestamps are rounded, except for WFQ and WF2Q, whose fluid server divides by the sum of the
/// backlogged weights, whatever it is.
macro_rules! for_every_rounding_algorithm {
    ($test:ident($($arguments:tt)*)) => {
        $test(Wf2qPlus::new(), $($arguments)*);
        $test(Qfq::new(), $($arguments)*);
        $test(Gfq::new(), $($arguments)*);
        $test(SKps::new(), $($arguments)*);
        $test(Scfq::new(), $($arguments)*);
        $test(Plus::<Wf2qPlus>::default(), $($arguments)*);
        $test(Plus::<Qfq>::default(), $($arguments)*);
        $test(Plus::<Gfq>::default(), $($arguments)*);
        $test(Plus::<SKps>::default(), $($arguments)*);
    };
}

fn same_order<A: Scheduler + Clone>(algorithm: A, case: &Case) {
    let outcome = scale::same_order(&|| algorithm.clone(), case);
    outcome.unwrap_or_else(|what| panic!("{}: {what}", A::NAME));
}

/// Flows that are always backlogged, at two scales and at each time after as much work as can be:
/// the most bytes by which the service of each was apart.
fn apart<A: Scheduler + Clone>(algorithm: A, flows: &[(u32, u32)], factor: u32) -> Vec<u64> {
    let mut links = [1, factor].map(|factor| {
        let mut link = scheduler(algorithm.clone());
        for &(of, longest) in flows {
            let id = link.add_flow(config(of * factor, longest)).unwrap();
            for _ in 0..2 {
                link.enqueue(id, length(longest), ()).unwrap();
            }
        }
        link
    });
    let mut served = [0; 2].map(|none| vec![none; flows.len()]);
    let (mut work, mut worst) = ([0u64; 2], vec![0u64; flows.len()]);
    for _ in 0..2_000 {
        let behind = usize::from(work[1] < work[0]);
        let packet = next(&mut links[behind]);
        links[behind].enqueue(packet.owner, packet.len, ()).unwrap();
        work[behind] += u64::from(packet.len.get());
        served[behind][packet.owner.number() as usize] += u64::from(packet.len.get());
        for (worst, (a, b)) in worst.iter_mut().zip(served[0].iter().zip(&served[1])) {
            *worst = (*worst).max(a.abs_diff(*b));
        }
    }
    worst
}

/// Returns the guarantee of an algorithm of this name to each of these flows, at a scale.
fn guaranteed(name: &str, flows: &[(u32, u32)], factor: u32, head: Head) -> Vec<Option<Wfi>> {
    let algorithm = name.parse().unwrap();
    let shares = flows
        .iter()
        .map(|&(of, longest)| (weight(of * factor), length(longest)));
    let siblings = Siblings::new(
        algorithm,
        shares.clone().map(|(of, longest)| (of, longest, 1)),
    );
    let bound = |(of, longest)| siblings.bound(of, longest, head, Transmit::Direct);
    shares.map(bound).collect()
}

/// A flow may be behind by its bound at one scale, and ahead at the other by the slot that its start
/// was rounded by, at most two packets, and the packet that it sends; and the work compared
/// differs by a packet.
fn within_the_bounds<A: Scheduler + Clone>(algorithm: A, flows: &[(u32, u32)], factor: u32) {
    let apart = apart(algorithm, flows, factor);
    let bounds = [1, factor].map(|factor| guaranteed(A::NAME, flows, factor, Head::Known));
    let sum: u32 = flows.iter().map(|&(of, _)| of).sum();
    let longest_of_all = flows.iter().map(|&(_, longest)| longest).max().unwrap();
    for (flow, apart) in apart.into_iter().enumerate() {
        let bytes = |bounds: &[Option<Wfi>]| bounds[flow].unwrap().service.bytes();
        let (of, longest) = flows[flow];
        let a_packet = f64::from(of) / f64::from(sum) * f64::from(longest_of_all);
        let allowed =
            bytes(&bounds[0]).max(bytes(&bounds[1])) + 3.0 * f64::from(longest) + a_packet;
        assert!(
            apart as f64 <= allowed,
            "{}: {apart} bytes of {allowed} in {flows:?}",
            A::NAME
        );
    }
}

fn flows() -> impl Strategy<Value = Vec<(u32, u32)>> {
    prop::collection::vec((1..=100u32, prop_oneof![Just(1500), 1..=9000u32]), 2..8)
}

proptest! {
    #![proptest_config(some_cases(64))]

    #[test]
    fn the_order_is_the_same_at_every_scale(case in any_case()) {
        for_every_exact_algorithm!(same_order(&case));
    }

    #[test]
    fn where_inverse_weights_are_exact_the_order_is_the_same(case in power_case()) {
        for_every_rounding_algorithm!(same_order(&case));
    }

    #[test]
    fn a_share_is_the_same_at_every_scale(flows in flows(), factor in 2..=10_000u32) {
        within_the_bounds(Wf2q::new(), &flows, factor);
        within_the_bounds(Wfq::new(), &flows, factor);
        for_every_rounding_algorithm!(within_the_bounds(&flows, factor));
    }

    #[test]
    fn a_bound_is_the_same_at_every_scale_but_for_the_length_of_slots(
        flows in flows(), factor in 2..=10_000u32, log in 1..=13u32,
    ) {
        for &algorithm in Algorithm::ALL {
            let name = algorithm.name();
            let slots = ["qfq", "gfq", "s-kps"].contains(&name.trim_end_matches('+'));
            for head in [Head::Known, Head::Longest] {
                let [plain, scaled, doubled] = [1, factor, 1 << log]
                    .map(|factor| guaranteed(name, &flows, factor, head));
                for ((plain, scaled), doubled) in plain.into_iter().zip(scaled).zip(doubled) {
                    let (Some(plain), Some(scaled), Some(doubled)) = (plain, scaled, doubled) else {
                        prop_assert_eq!((plain, scaled), (None, None));
                        continue;
                    };
                    for of in [|wfi: Wfi| wfi.delay.bytes(), |wfi: Wfi| wfi.service.bytes()] {
                        let by = [of(scaled) / of(plain), of(doubled) / of(plain)];
                        let range = if slots { 0.5..=2.0 } else { 1.0 - 1e-9..=1.0 + 1e-9 };
                        prop_assert!(range.contains(&by[0]), "{} {:?}", name, by);
                        prop_assert!((by[1] - 1.0).abs() < 1e-9, "{} {:?}", name, by);
                    }
                }
            }
        }
    }
}

#[test]
fn all_algorithms_are_tested() {
    fn count<A: Scheduler>(_: A, names: &mut Vec<&'static str>) {
        names.push(A::NAME);
    }
    let mut names = Vec::new();
    for_every_exact_algorithm!(count(&mut names));
    count(Wf2q::new(), &mut names);
    count(Wfq::new(), &mut names);
    for_every_rounding_algorithm!(count(&mut names));
    names.sort_unstable();
    let all = Algorithm::ALL.iter().copied();
    let mut all: Vec<_> = all.map(Algorithm::name).collect();
    all.sort_unstable();
    assert_eq!(names, all);
}
