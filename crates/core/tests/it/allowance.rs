//! The service of an entity within its allowance, reported in one statement.

use crate::support::{length, times, weight};
use fairlane_core::scheduler::{EntityId, Scheduler, Share};
use fairlane_core::{Charge, sched};
use proptest::prelude::*;
use std::fmt::Debug;
use std::num::NonZeroU32;

const LONGEST: u32 = 1500;

#[derive(Clone, Debug)]
enum Step {
    /// The selected entity sends this amount, and its next packet has this length.
    Send(u32, Option<u32>),
    Backlogged(usize),
    Change(usize, u32),
}

/// An algorithm and its entities, and the selected entity's unreported bytes.
#[derive(Clone)]
struct Rig<A: Scheduler> {
    algorithm: A,
    entities: Vec<A::Entity>,
    allowance: u32,
    used: u32,
    /// It makes two statements in one where it can.
    advances: bool,
}

fn id(index: usize) -> EntityId {
    EntityId::new(index).unwrap()
}

fn charge(bytes: u32) -> Charge {
    Charge::new(bytes).unwrap()
}

impl<A: Scheduler + Debug> Rig<A> {
    fn new(mut algorithm: A, weights: &[u32]) -> Self {
        let mut entities = vec![A::Entity::default(); weights.len()];
        for (index, &number) in weights.iter().enumerate() {
            let share = Share::new(weight(number), length(LONGEST));
            algorithm.add(&mut entities, id(index), share);
        }
        Rig {
            algorithm,
            entities,
            allowance: 0,
            used: 0,
            advances: false,
        }
    }

    fn selected(&self) -> Option<EntityId> {
        self.algorithm.select(&self.entities).get()
    }

    fn tell(&mut self) {
        if let (Some(id), Some(work)) = (self.selected(), Charge::new(self.used)) {
            self.algorithm.used(&mut self.entities, id, work);
        }
        (self.allowance, self.used) = (0, 0);
    }

    /// Returns whether it was within the allowance.
    fn send(&mut self, bytes: u32, next: Option<u32>) -> bool {
        let Some(id) = self.selected() else {
            return false;
        };
        if next.is_some() && self.used + bytes <= self.allowance {
            self.used += bytes;
            return true;
        }
        // Bytes sent earlier are charged together with the present ones.
        let charged = charge(bytes + std::mem::take(&mut self.used));
        let (all, next) = (&mut self.entities, next.map(charge));
        if !(self.advances && self.algorithm.advance(all, id, charged, next)) {
            self.algorithm.served(charged);
            self.algorithm.reschedule(all, id, charged, next);
        }
        self.allowance = 0;
        if let Some(id) = self.selected() {
            let next = charge(LONGEST);
            self.allowance = (self.algorithm).allowance(&self.entities, id, next);
        }
        false
    }

    fn make(&mut self, step: &Step) {
        self.tell();
        let all = &mut self.entities;
        match *step {
            Step::Backlogged(index) => {
                let index = id(index % all.len());
                self.algorithm.backlogged(all, index, charge(LONGEST));
            }
            Step::Change(index, number) => {
                let index = id(index % all.len());
                let share = Share::new(weight(number), length(LONGEST));
                self.algorithm.change(all, index, share);
            }
            Step::Send(..) => {}
        }
    }

    fn entities_told(&self) -> String {
        format!("{:?}", self.entities)
    }
}

/// Returns the number of packets sent within an allowance.
fn compare<A: Scheduler + Debug + Clone>(
    algorithm: A,
    weights: &[u32],
    steps: &[Step],
    varies: bool,
) -> u32 {
    let mut each = Rig::new(algorithm, weights);
    for index in 0..weights.len() {
        each.make(&Step::Backlogged(index));
    }
    let mut at_once = each.clone();
    at_once.advances = true;
    let mut within = 0;
    for step in steps {
        if let Step::Send(bytes, next) = *step {
            let next = match varies {
                true => next,
                false => next.map(|_| LONGEST),
            };
            each.send(bytes, next);
            // This one reports each packet.
            each.tell();
            each.allowance = 0;
            within += u32::from(at_once.send(bytes, next));
        } else {
            each.make(step);
            at_once.make(step);
        }
        assert_eq!(each.selected(), at_once.selected());
        let mut told = at_once.clone();
        told.tell();
        assert_eq!(each.entities_told(), told.entities_told());
        (told.algorithm).invariants(&told.entities).unwrap();
    }
    at_once.tell();
    let state = |rig: &Rig<A>| format!("{:?}", rig.algorithm);
    assert_eq!(state(&each), state(&at_once));
    within
}

fn members(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).unwrap()
}

fn compare_all(weights: &[u32], steps: &[Step], varies: bool) -> [u32; 6] {
    use sched::{Drr, Plus, Qfq};
    [
        compare(Drr::new(), weights, steps, varies),
        compare(Qfq::new(), weights, steps, varies),
        compare(Plus::<Qfq>::new(members(1)), weights, steps, varies),
        compare(Plus::<Qfq>::new(members(3)), weights, steps, varies),
        compare(Plus::<Qfq>::new(members(8)), weights, steps, varies),
        compare(Plus::<Drr>::new(members(8)), weights, steps, varies),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let next = prop_oneof![9 => (1..=LONGEST).prop_map(Some), 1 => Just(None)];
    prop_oneof![
        16 => (1..=LONGEST, next).prop_map(|(bytes, next)| Step::Send(bytes, next)),
        2 => (0..8usize).prop_map(Step::Backlogged),
        1 => (0..8usize, 1..9u32).prop_map(|(index, number)| Step::Change(index, number)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(times(12, 32)))]

    #[test]
    fn packets_within_an_allowance_told_at_once_are_as_packets_told_one_by_one(
        weights in prop::collection::vec(1..9u32, 1..8),
        steps in prop::collection::vec(step(), 1..150),
        varies: bool,
    ) {
        compare_all(&weights, &steps, varies);
    }
}

#[test]
fn much_of_what_the_children_of_a_class_send_is_within_their_allowances() {
    let steps: Vec<Step> = (0..400)
        .map(|n| Step::Send(64 + n * 919 % 1437, Some(LONGEST)))
        .collect();
    let within = compare_all(&[1, 2, 3, 4, 5, 6, 7, 8], &steps, false);
    let least = [300, 100, 100, 100, 100, 100];
    assert!(
        within
            .iter()
            .zip(least)
            .all(|(&within, least)| within > least),
        "{within:?} of 400 packets"
    );
}
