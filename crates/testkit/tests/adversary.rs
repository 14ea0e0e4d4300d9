//! No search exceeds a bound, and a mutant of QFQ's cap on returning flows is detected.

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use fairlane_core::sched::{Algorithm, Plus, Qfq, SKps};
use fairlane_core::scheduler::{
    Entities, EntityId, Holds, MaybeEntity, Removal, Scheduler, Share, Violation,
};
use fairlane_core::{Charge, VirtualTime, Weight, with_algorithm};
use fairlane_testkit::{Adversary, Index, long_tests};

/// Prints the ratio: the long form is also the measurement.
fn stays_within(name: &str, seed: usize, adversary: Adversary) {
    let packets = if long_tests() { 400_000 } else { 20_000 };
    let adversary = adversary.seed(seed as u64).packets(packets);
    match adversary.check() {
        Ok(nearest) => println!("{name}: {:.3}, {}", nearest.ratio, nearest.what),
        Err(broken) => panic!("{name}: {broken}"),
    }
}

/// Algorithms with a bound, those over aggregates with several M.
fn bounded() -> impl Iterator<Item = Algorithm> {
    let members = [2, 3, 8, 32].map(|members| NonZeroU32::new(members).unwrap());
    let all = Algorithm::ALL.iter().filter(|all| all.is_bounded());
    all.flat_map(move |&algorithm| {
        let mut of_each = members
            .map(|members| algorithm.with_members(members))
            .to_vec();
        of_each.dedup();
        of_each
    })
}

#[test]
fn every_algorithm_stays_within_its_bounds() {
    for (n, algorithm) in bounded().enumerate() {
        let adversary = with_algorithm!(algorithm, new => Adversary::of(new, algorithm));
        stays_within(&format!("{algorithm:?}"), n, adversary);
    }
}

#[test]
fn unnamed_variants_stay_within_their_bounds() {
    let most = NonZeroU32::new(8).unwrap();
    let seeing = move || Plus::seeing(Qfq::new(), most);
    stays_within("seeing", 1, Adversary::of(seeing, Algorithm::QfqPlus(most)));
    // A flow that keeps to its rate may wait for a slot more than the latency of S-KPS, since it is released late.
    let late = || SKps::late(VirtualTime::new(0));
    for index in [Index::Service, Index::Delay] {
        stays_within("late", 1, Adversary::of(late, Algorithm::SKps).index(index));
    }
}

/// Each algorithm at the root and below, combined with one other algorithm each.
#[test]
fn trees_stay_within_their_bounds() {
    let all = Algorithm::ALL.iter().copied();
    let all: Vec<_> = all
        .filter(|all| all.is_bounded() && !all.follows_packets())
        .collect();
    for (n, &root) in all.iter().enumerate() {
        let below = |further: usize| all[(n + further) % all.len()];
        let plain = Adversary::of_tree(root, below(1));
        stays_within(&format!("{root} over {}", below(1)), n, plain);
        let capped = Adversary::of_tree(root, below(3)).with_ceilings();
        stays_within(&format!("{root} over {}, ceilings", below(3)), n, capped);
    }
}

/// The latest F that a returning flow keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cap {
    /// The end of the slot after V's, which no flow passes that was eligible when it was served.
    EndOfSlot,
    /// A slot after V: a flow that is idle for an instant loses up to a slot of its lead.
    SlotAfterNow,
}

/// QFQ by the definition of its timestamps, in 2^-64 bytes at weight 1 that never wrap.
#[derive(Clone, Debug)]
struct Rounded {
    cap: Cap,
    now: u128,
    weight_sum: u128,
    longest: u128,
    /// Eligible flows by rounded finish and the others by rounded start; of equal ones the last comes first.
    eligible: BTreeSet<(u128, i64, EntityId)>,
    ineligible: BTreeSet<(u128, i64, EntityId)>,
    inserted: i64,
}

/// State of an entity of [`Rounded`].
#[derive(Clone, Copy, Debug, Default)]
struct Stamped {
    weight: u32,
    longest: u32,
    /// S while active, otherwise the last F.
    start: u128,
    slot: u128,
    place: Option<(u128, i64)>,
}

impl Stamped {
    fn rounded(&self) -> u128 {
        self.start & !(self.slot - 1)
    }
}

impl Rounded {
    fn with(cap: Cap) -> Rounded {
        Rounded {
            cap,
            now: 0,
            weight_sum: 0,
            longest: 0,
            eligible: BTreeSet::new(),
            ineligible: BTreeSet::new(),
            inserted: 0,
        }
    }

    fn insert(&mut self, entity: &mut Stamped, id: EntityId) {
        self.inserted -= 1;
        entity.place = Some((entity.rounded(), self.inserted));
        self.ineligible
            .insert((entity.rounded(), self.inserted, id));
    }

    fn leave(&mut self, entity: &mut Stamped, id: EntityId) {
        if let Some((start, order)) = entity.place.take() {
            self.eligible.remove(&(start + 2 * entity.slot, order, id));
            self.ineligible.remove(&(start, order, id));
        }
    }

    /// Advances V to the first start if no flow is eligible; flows that start by V become eligible.
    fn advance(&mut self, entities: &[impl Holds<Stamped>]) {
        while let Some(&(start, order, id)) = self.ineligible.first()
            && (start <= self.now || self.eligible.is_empty())
        {
            self.now = self.now.max(start);
            self.ineligible.pop_first();
            let finish = start + 2 * entities.entity(id).slot;
            self.eligible.insert((finish, order, id));
        }
    }
}

impl Scheduler for Rounded {
    type Entity = Stamped;
    const NAME: &'static str = "rounded";

    fn add(&mut self, entities: &mut [impl Holds<Stamped>], id: EntityId, share: Share) {
        *entities.entity_mut(id) = Stamped::default();
        self.change(entities, id, share);
    }

    fn remove(&mut self, entities: &mut [impl Holds<Stamped>], id: EntityId) -> Removal {
        match entities.entity(id).place {
            Some(_) => Removal::WhenSelected,
            None => Removal::Done,
        }
    }

    fn change(&mut self, entities: &mut [impl Holds<Stamped>], id: EntityId, share: Share) {
        let entity = entities.entity_mut(id);
        self.weight_sum -= u128::from(entity.weight);
        (entity.weight, entity.longest) = (share.weight().get(), share.max_charge().get());
        self.weight_sum += u128::from(entity.weight);
        self.longest = self.longest.max(entity.longest.into());
    }

    fn weight(&self, entities: &[impl Holds<Stamped>], id: EntityId) -> Weight {
        Weight::new(entities.entity(id).weight).unwrap()
    }

    fn is_active(&self, entities: &[impl Holds<Stamped>], id: EntityId) -> bool {
        entities.entity(id).place.is_some()
    }

    fn backlogged(&mut self, entities: &mut [impl Holds<Stamped>], id: EntityId, _: Charge) {
        let now = self.now;
        let finest = ((self.longest << 64) / self.weight_sum) >> 5;
        let entity = entities.entity_mut(id);
        if entity.place.is_some() {
            return;
        }
        let own = (u128::from(entity.longest) << 64).div_ceil(entity.weight.into());
        entity.slot = own.max(finest).next_power_of_two();
        let latest = match self.cap {
            Cap::EndOfSlot => (now & !(entity.slot - 1)) + 2 * entity.slot - 1,
            Cap::SlotAfterNow => now + entity.slot - 1,
        };
        entity.start = now.max(entity.start.min(latest));
        self.insert(entity, id);
        self.advance(entities);
    }

    fn select(&self, _: &[impl Holds<Stamped>]) -> MaybeEntity {
        let first = self.eligible.first();
        first.map_or(MaybeEntity::NONE, |&(_, _, id)| MaybeEntity::of(id))
    }

    fn hold(&mut self, _: &mut [impl Holds<Stamped>], _: EntityId) {}

    fn served(&mut self, work: Charge) {
        self.now += (u128::from(work.get()) << 64) / self.weight_sum;
    }

    fn reschedule(
        &mut self,
        entities: &mut [impl Holds<Stamped>],
        id: EntityId,
        charged: Charge,
        next: Option<Charge>,
    ) {
        let entity = entities.entity_mut(id);
        self.leave(entity, id);
        entity.start += (u128::from(charged.get()) << 64).div_ceil(entity.weight.into());
        if next.is_some() {
            self.insert(entity, id);
        }
        self.advance(entities);
    }

    fn idle(&mut self, entities: &mut [impl Holds<Stamped>], id: EntityId) {
        self.leave(entities.entity_mut(id), id);
        self.advance(entities);
    }

    fn invariants(&self, _: &[impl Holds<Stamped>]) -> Result<(), Violation> {
        Ok(())
    }
}

fn of_cap(cap: Cap) -> Adversary {
    Adversary::of(move || Rounded::with(cap), Algorithm::Qfq)
}

#[test]
fn a_cap_on_returning_flows_below_the_end_of_their_slot_is_found() {
    let broken = of_cap(Cap::SlotAfterNow).packets(5_000_000).check();
    let broken = broken.expect_err("the cap is too low");
    assert!(broken.what.contains("a bound does not hold"), "{broken}");
    println!("{broken}");
}

#[test]
fn the_same_seed_makes_the_same_search() {
    let nearest = |seed| of_cap(Cap::EndOfSlot).seed(seed).packets(5_000).check();
    assert_eq!(nearest(1), nearest(1));
    assert_ne!(nearest(1), nearest(2));
}

#[test]
fn the_same_algorithm_with_the_right_cap_stays_within_its_bounds() {
    stays_within("rounded", 1, of_cap(Cap::EndOfSlot));
}
