//! Algorithms with one defect each: every one is rejected, with a description of the defect.

use fairlane_core::sched::Algorithm;
use fairlane_core::scheduler::{
    Entities, EntityId, Holds, MaybeEntity, Removal, Scheduler, Share, Violation,
};
use fairlane_core::{Charge, Weight};
use fairlane_testkit::{Broken, Conformance, Scale};

/// The defect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Mutation {
    #[default]
    Nothing,
    WeightsIgnored,
    NewcomersFirst,
    HoldIgnored,
    RemovedTooEarly,
    WakeLost,
    StandingStill,
    LookChanges,
}

/// State of an entity of [`StartTime`].
#[derive(Clone, Copy, Debug, Default)]
struct Tagged {
    weight: u32,
    /// Virtual start of the next packet, or of the last packet served.
    start: u128,
    active: bool,
    leaving: bool,
}

/// Start-time fair queueing over a sorted list: O(n), but short.
#[derive(Clone, Debug, Default)]
struct StartTime {
    mutation: Mutation,
    /// Ordered by start.
    order: Vec<(u128, EntityId)>,
    held: bool,
    now: u128,
    wakes: u32,
}

impl StartTime {
    fn but(mutation: Mutation) -> Self {
        StartTime {
            mutation,
            ..Self::default()
        }
    }

    fn insert(&mut self, start: u128, id: EntityId, first: usize) {
        let at = self.order.partition_point(|&(other, _)| other <= start);
        self.order.insert(at.max(first), (start, id));
    }

    /// Removes the selected entity, whose service ends.
    fn take(&mut self) {
        self.held = false;
        if !self.order.is_empty() {
            self.order.remove(0);
        }
        if self.mutation != Mutation::StandingStill
            && let Some(&(start, _)) = self.order.first()
        {
            self.now = self.now.max(start);
        }
    }
}

impl Scheduler for StartTime {
    type Entity = Tagged;
    const NAME: &'static str = "start-time";

    fn add(&mut self, entities: &mut [impl Holds<Tagged>], id: EntityId, share: Share) {
        *entities.entity_mut(id) = Tagged {
            weight: share.weight().get(),
            ..Tagged::default()
        };
    }

    fn remove(&mut self, entities: &mut [impl Holds<Tagged>], id: EntityId) -> Removal {
        let entity = entities.entity_mut(id);
        if !entity.active {
            return Removal::Done;
        }
        if self.mutation == Mutation::RemovedTooEarly {
            entity.active = false;
            self.order.retain(|&(_, other)| other != id);
            return Removal::Done;
        }
        entity.leaving = true;
        Removal::WhenSelected
    }

    fn change(&mut self, entities: &mut [impl Holds<Tagged>], id: EntityId, share: Share) {
        entities.entity_mut(id).weight = share.weight().get();
    }

    fn weight(&self, entities: &[impl Holds<Tagged>], id: EntityId) -> Weight {
        Weight::new(entities.entity(id).weight).unwrap()
    }

    fn is_active(&self, entities: &[impl Holds<Tagged>], id: EntityId) -> bool {
        entities.entity(id).active
    }

    fn backlogged(&mut self, entities: &mut [impl Holds<Tagged>], id: EntityId, _: Charge) {
        let entity = entities.entity_mut(id);
        if entity.active {
            return;
        }
        entity.active = true;
        entity.start = entity.start.max(self.now);
        let start = entity.start;
        self.wakes += 1;
        match self.mutation {
            Mutation::NewcomersFirst => self.order.insert(usize::from(self.held), (start, id)),
            Mutation::WakeLost if self.wakes.is_multiple_of(8) => {}
            _ => self.insert(start, id, usize::from(self.held)),
        }
    }

    fn select(&self, _: &[impl Holds<Tagged>]) -> MaybeEntity {
        let first = match self.mutation {
            Mutation::LookChanges => self.order.get(looks() % self.order.len().max(1)),
            _ => self.order.first(),
        };
        first.map_or(MaybeEntity::NONE, |&(_, id)| MaybeEntity::of(id))
    }

    fn hold(&mut self, _: &mut [impl Holds<Tagged>], _: EntityId) {
        self.held = self.mutation != Mutation::HoldIgnored;
    }

    fn served(&mut self, _: Charge) {}

    fn reschedule(
        &mut self,
        entities: &mut [impl Holds<Tagged>],
        id: EntityId,
        charged: Charge,
        next: Option<Charge>,
    ) {
        let entity = entities.entity_mut(id);
        let weight = match self.mutation {
            Mutation::WeightsIgnored => 1,
            _ => entity.weight,
        };
        entity.start += (u128::from(charged.get()) << 64) / u128::from(weight);
        entity.active = next.is_some();
        let start = entity.start;
        self.take();
        if next.is_some() {
            self.insert(start, id, 0);
        }
    }

    fn idle(&mut self, entities: &mut [impl Holds<Tagged>], id: EntityId) {
        if entities.entity(id).active {
            entities.entity_mut(id).active = false;
            self.take();
        }
    }

    fn invariants(&self, _: &[impl Holds<Tagged>]) -> Result<(), Violation> {
        match self.order.is_sorted_by_key(|&(start, _)| start) || self.mutation != Mutation::Nothing
        {
            true => Ok(()),
            false if self.held => Ok(()),
            false => Err(Violation("starts are not in order".to_owned())),
        }
    }
}

/// Returns a different number at each call.
fn looks() -> usize {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static LOOKS: AtomicUsize = AtomicUsize::new(0);
    LOOKS.fetch_add(1, Ordering::Relaxed)
}

/// State of an entity of [`Turns`].
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    weight: u32,
    longest: u32,
    left: u64,
    active: bool,
}

/// Deficit round robin with a quantum rounded up to whole bytes per unit of weight.
#[derive(Clone, Debug, Default)]
struct Turns {
    circle: std::collections::VecDeque<EntityId>,
    /// The maximum over all entities so far of bytes per unit of weight, so that a quantum holds a packet.
    unit: u64,
}

impl Scheduler for Turns {
    type Entity = Turn;
    const NAME: &'static str = "turns";

    fn add(&mut self, entities: &mut [impl Holds<Turn>], id: EntityId, share: Share) {
        *entities.entity_mut(id) = Turn::default();
        self.change(entities, id, share);
    }

    fn remove(&mut self, entities: &mut [impl Holds<Turn>], id: EntityId) -> Removal {
        match entities.entity(id).active {
            true => Removal::WhenSelected,
            false => Removal::Done,
        }
    }

    fn change(&mut self, entities: &mut [impl Holds<Turn>], id: EntityId, share: Share) {
        let entity = entities.entity_mut(id);
        (entity.weight, entity.longest) = (share.weight().get(), share.max_charge().get());
        self.unit = self.unit.max(entity.longest.div_ceil(entity.weight).into());
    }

    fn weight(&self, entities: &[impl Holds<Turn>], id: EntityId) -> Weight {
        Weight::new(entities.entity(id).weight).unwrap()
    }

    fn is_active(&self, entities: &[impl Holds<Turn>], id: EntityId) -> bool {
        entities.entity(id).active
    }

    fn backlogged(&mut self, entities: &mut [impl Holds<Turn>], id: EntityId, _: Charge) {
        let entity = entities.entity_mut(id);
        if !entity.active {
            entity.active = true;
            entity.left = u64::from(entity.weight) * self.unit;
            self.circle.push_back(id);
        }
    }

    fn select(&self, _: &[impl Holds<Turn>]) -> MaybeEntity {
        let first = self.circle.front();
        first.map_or(MaybeEntity::NONE, |&id| MaybeEntity::of(id))
    }

    fn hold(&mut self, _: &mut [impl Holds<Turn>], _: EntityId) {}

    fn served(&mut self, _: Charge) {}

    fn reschedule(
        &mut self,
        entities: &mut [impl Holds<Turn>],
        id: EntityId,
        charged: Charge,
        next: Option<Charge>,
    ) {
        let entity = entities.entity_mut(id);
        let Some(next) = next else {
            return self.idle(entities, id);
        };
        entity.left = entity.left.saturating_sub(charged.get().into());
        if entity.left < next.get().into() {
            entity.left += u64::from(entity.weight) * self.unit;
            self.circle.rotate_left(1);
        }
    }

    fn idle(&mut self, entities: &mut [impl Holds<Turn>], id: EntityId) {
        if std::mem::take(&mut entities.entity_mut(id).active) {
            self.circle.pop_front();
        }
    }

    fn invariants(&self, _: &[impl Holds<Turn>]) -> Result<(), Violation> {
        Ok(())
    }
}

/// Checks that a mutation fails this check, in a sentence with these words, and with all that reproduces it.
fn refused(mutation: Mutation, check: &str, words: &str) {
    refused_as(
        Conformance::of(move || StartTime::but(mutation)),
        check,
        words,
    );
}

fn refused_as<A: Scheduler + 'static>(conformance: Conformance<A>, check: &str, words: &str) {
    let again = || conformance.check().expect_err("it is broken");
    let broken: Broken = again();
    let told = broken.to_string();
    assert_eq!(broken.check, check, "{told}");
    assert!(broken.what.contains(words), "{told}");
    assert!(told.contains("seed 1"), "{told}");
    assert!(!broken.smallest.is_empty(), "{told}");
    assert_eq!(again(), broken, "the same seed finds the same");
}

#[test]
fn what_is_not_broken_conforms() {
    Conformance::of(StartTime::default).assert();
    fairlane_testkit::conforms::<StartTime>();
}

#[test]
fn weights_that_are_ignored_are_seen() {
    refused(
        Mutation::WeightsIgnored,
        "shares",
        "shares do not follow weights",
    );
}

#[test]
fn newcomers_that_always_come_first_are_seen() {
    refused(
        Mutation::NewcomersFirst,
        "newcomers",
        "flows that become backlogged come before all others",
    );
}

#[test]
fn a_hold_that_does_nothing_is_seen() {
    refused(Mutation::HoldIgnored, "statements", "a hold is not kept");
}

#[test]
fn a_removal_before_the_turn_is_seen() {
    refused(
        Mutation::RemovedTooEarly,
        "statements",
        "is removed too early",
    );
}

#[test]
fn a_lost_wake_is_seen() {
    refused(Mutation::WakeLost, "statements", "its wake is lost");
}

#[test]
fn virtual_time_that_stands_still_is_seen() {
    refused(
        Mutation::StandingStill,
        "idle flows",
        "virtual time stands still",
    );
}

#[test]
fn a_look_that_changes_who_is_next_is_seen() {
    let conformance = Conformance::of(|| StartTime::but(Mutation::LookChanges));
    let broken = conformance.check().expect_err("it is broken");
    assert!(broken.what.contains("when asked again"), "{broken}");
}

#[test]
fn a_quantum_rounded_to_whole_bytes_is_seen() {
    refused_as(
        Conformance::of(Turns::default),
        "scale",
        "the order depends on the scale of weights",
    );
}

#[test]
fn a_bound_that_is_not_kept_is_seen() {
    // It is less fair than WF2Q+ even if its order may depend on the scale.
    let turns = Conformance::of(Turns::default).scale(Scale::Free);
    refused_as(
        turns.guarantees(Algorithm::Wf2qPlus),
        "bound",
        "the bound does not hold",
    );
}
