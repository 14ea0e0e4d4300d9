//! DRR: deficit round robin.
//!
//! M. Shreedhar, G. Varghese, *Efficient fair queueing using deficit round
//! robin*, SIGCOMM 1995. Active entities take turns in a circle; each turn adds a
//! quantum in proportion to the weight to the entity's deficit, and the entity
//! sends while its deficit covers its head.
//!
//! # The quantum
//!
//! O(1) needs a quantum of at least the entity's own longest packet, else an entity is visited
//! for nothing, round after round; and a smaller quantum is fairer. With packets of one
//! longest length L it is `(phi / phi_min) L`. With a longest packet L^k of each, whose ratio
//! `L^k / phi^k` is the largest decides, the *reference*, be it the lightest or one with long
//! packets:
//!
//! ```text
//! Q^k = phi^k U        U = max over j of L^j / phi^j
//! ```
//!
//! The reference has a quantum of one longest packet, and no entity has a quantum below its own longest packet. Q^k is
//! a quotient of integers, which does not change when all weights are multiplied by one number; cut off below 2^-20
//! bytes, it does not either. So neither the order nor the bound ([`bounds::drr`](crate::bounds::drr)) knows the scale
//! of the weights, and a share is right to 10^-6. Fairness is coarse all the same: an entity may wait for a quantum of
//! every other one, O(N) (Eq. 15 of the QFQ+ paper).
//!
//! [`DrrOfQuantum`] has a quantum that is given, and may be smaller.
//!
//! # When the reference changes
//!
//! All entities count for U, idle ones too, since they may send at any time. U changes only where a round begins:
//! within a round every quantum is computed from the same U, so that no entity gets more than its part of a round,
//! however entities come, go and change, and the bound for the larger U holds across the change. Until that round, an
//! entity whose next packet exceeds its quantum is granted that packet. With no active entity, U changes at once.
//!
//! Each entity keeps its quantum, which is computed when it becomes active and, in the round that begins with another
//! U, when its turn ends: a change never walks all entities.

mod quantum;
mod shares;

pub use self::quantum::DrrOfQuantum;

use self::shares::{Number, Shares};
use super::Standing;
use super::ring::{Linked, Ring};
use super::scale::{Costs, Packets, Scale};
use crate::cost::MAX_COST;
use crate::ensure_invariant;
use crate::scheduler::{
    Entities, EntityId, Holds, MAX_ALLOWANCE, MaybeEntity, Removal, Scheduler, Share, Violation,
};
use crate::units::{Charge, MAX_AGGREGATE_WEIGHT, MAX_CHARGE, MAX_LENGTH, Weight};
use alloc::collections::BTreeMap;
use core::cmp::Ordering;
use core::marker::PhantomData;

/// Bits of fraction of a deficit, which counts bytes.
pub(super) const FRACTION: u32 = 20;

/// Returns a whole number of bytes as a deficit: below 2^52.
#[inline(always)]
fn bytes<D: From<i64>>(charge: Charge) -> D {
    D::from(i64::from(charge.get()) << FRACTION)
}

/// State of one entity.
#[derive(Clone, Copy, Debug, Default)]
pub struct DrrEntity<D = i64> {
    /// The bytes that it may still send in its present turn, or in its next one.
    deficit: D,
    /// While active, the quantum that each turn adds; while inactive, 0 only if the entity is not a member.
    quantum: D,
    next: MaybeEntity,
    /// Weight and longest packet, in [`Drr::shares`].
    share: Number,
    state: Standing,
}

impl<D> Linked for DrrEntity<D> {
    #[inline]
    fn next(&mut self) -> &mut MaybeEntity {
        &mut self.next
    }
}

impl<D: Default + PartialEq> DrrEntity<D> {
    /// Returns whether it was added, and not removed for good.
    fn is_known(&self) -> bool {
        self.state != Standing::Inactive || self.quantum != D::default()
    }
}

/// `L^k / phi^k`, in order of its value.
#[derive(Clone, Copy, Debug)]
struct Ratio {
    charge: u32,
    weight: u32,
}

impl Ratio {
    fn of(share: Share) -> Ratio {
        Ratio {
            charge: share.max_charge().get(),
            weight: share.weight().get(),
        }
    }
}

impl Ord for Ratio {
    fn cmp(&self, other: &Ratio) -> Ordering {
        let product = |a: &Ratio, b: &Ratio| u64::from(a.charge) * u64::from(b.weight);
        product(self, other).cmp(&product(other, self))
    }
}

impl PartialOrd for Ratio {
    fn partial_cmp(&self, other: &Ratio) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ratio {
    fn eq(&self, other: &Ratio) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Ratio {}

/// U, the quantum of weight 1.
#[derive(Clone, Copy, Debug)]
struct Unit {
    /// The ratio times 2^([`FRACTION`] + `shift`), rounded up.
    scaled: u64,
    /// Chosen so that `scaled` has as many bits as fit; 63 at most.
    shift: u32,
    /// The ratio itself.
    of: Ratio,
}

// For packets, `scaled` is less than one too large, which adds less than phi^k / 2^shift to a quantum. In a quotient by
// phi, the truncated part is a multiple of 1 / phi and so leaves a margin of 1 / phi at least. So nothing is carried
// where phi^k phi <= 2^shift. With x = 2^20 L / phi, the shift is 63 or 2^shift >= 2^63 / ceil(x), and phi <= 2^40 / x.
const _: () = assert!(MAX_CHARGE <= 1 << 20 && FRACTION == 20);
const _: () = assert!(
    MAX_AGGREGATE_WEIGHT as u64 * 22 <= 21 << 23,
    "where x >= 21"
);
const _: () = assert!(1 << 58 >= (MAX_AGGREGATE_WEIGHT as u64).pow(2), "and below");

impl Unit {
    fn new(of: Ratio) -> Unit {
        let scaled = |shift: u32| {
            (u128::from(of.charge) << (FRACTION + shift)).div_ceil(of.weight.max(1).into()) as u64
        };
        let shift = scaled(0).leading_zeros().min(63);
        Unit {
            scaled: scaled(shift),
            shift,
            of,
        }
    }

    /// Returns the quantum of `weight`, cut off.
    #[inline]
    fn quantum<S: Scale>(&self, weight: u32) -> S::Deficit {
        S::quantum(
            self.scaled,
            self.shift,
            [self.of.charge, self.of.weight],
            weight,
        )
    }
}

/// Deficit round robin, of packets or of requests by cost.
#[derive(Clone, Debug)]
pub struct Drr<S: Scale = Packets> {
    /// The active entities.
    active: Ring,
    unit: Unit,
    /// The largest ratio is not that of `unit`, or was not when this round began: the quanta of
    /// those that are active may be of another unit.
    unsettled: bool,
    /// The entity whose turn begins a round.
    first: MaybeEntity,
    /// The ratios of all entities, and the number of entities with each.
    ratios: BTreeMap<Ratio, u32>,
    shares: Shares,
    scale: PhantomData<S>,
}

const _: () = assert!(size_of::<DrrEntity>() == 24);
// A deficit is the rest of a turn, less than a packet of the entity, and a quantum, no less than that packet: phi^k U,
// where U is no more than the largest charge.
const _: () = assert!(
    (MAX_AGGREGATE_WEIGHT as i128 * MAX_LENGTH as i128) << (FRACTION + 1) < i64::MAX as i128
);
const _: () = assert!(MAX_COST.ilog2() + MAX_AGGREGATE_WEIGHT.ilog2() + 1 + FRACTION + 1 < 127);

impl<S: Scale> Default for Drr<S> {
    fn default() -> Self {
        Drr {
            active: Ring::default(),
            unit: Unit::new(Ratio {
                charge: 1,
                weight: 1,
            }),
            unsettled: false,
            first: MaybeEntity::NONE,
            ratios: BTreeMap::new(),
            shares: Shares::default(),
            scale: PhantomData,
        }
    }
}

impl Drr {
    /// Creates an empty round.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Drr<Costs> {
    /// Returns an empty round, for [costs](crate::CostScheduler).
    pub fn for_costs() -> Self {
        Self::default()
    }
}

impl<S: Scale> Drr<S> {
    fn admit(&mut self, ratio: Ratio) {
        *self.ratios.entry(ratio).or_default() += 1;
        self.compare();
    }

    fn dismiss(&mut self, ratio: Ratio) {
        if let Some(count) = self.ratios.get_mut(&ratio) {
            *count -= 1;
            if *count == 0 {
                self.ratios.remove(&ratio);
            }
        }
        self.compare();
    }

    /// Recomputes the unit after the set of entities has changed.
    fn compare(&mut self) {
        if self.active.head == MaybeEntity::NONE {
            self.update();
        } else {
            self.unsettled |= self.outdated().is_some();
        }
    }

    /// Returns the largest ratio, if it is not that of U.
    fn outdated(&self) -> Option<Ratio> {
        let (&largest, _) = self.ratios.last_key_value()?;
        (largest != self.unit.of).then_some(largest)
    }

    /// Sets U to that of the present entities, where a round begins. Returns whether it changed.
    fn update(&mut self) -> bool {
        let outdated = self.outdated();
        if let Some(largest) = outdated {
            self.unit = Unit::new(largest);
        }
        outdated.is_some()
    }

    /// The turn of the selected entity ends, which will be charged for `next`.
    fn end_turn(
        &mut self,
        entities: &mut [impl Holds<DrrEntity<S::Deficit>>],
        id: EntityId,
        next: Charge,
    ) {
        let entity = entities.entity_mut(id);
        self.active.turn(id, entity.next);
        // Its quantum may be of another unit.
        entity.quantum = self.quantum(entity.share);
        entity.deficit += entity.quantum;
        if self.outdated().is_some() {
            entity.deficit = entity.deficit.max(bytes(next));
        }
        if self.active.head == self.first {
            // Each has had a turn since the last change of U.
            self.unsettled = self.update();
        }
    }

    /// Returns the quantum of this share by the unit in force.
    fn quantum(&self, share: Number) -> S::Deficit {
        self.unit.quantum::<S>(self.shares.get(share).weight)
    }

    /// Makes a quantum of weight 1 cover `charge` from now on, whichever entities leave.
    pub(super) fn cover(&mut self, charge: Charge) {
        let ratio = Ratio {
            charge: charge.get(),
            weight: 1,
        };
        if self
            .ratios
            .last_key_value()
            .is_none_or(|(largest, _)| *largest < ratio)
        {
            self.admit(ratio);
        }
    }

    #[inline(never)]
    fn insert(
        &mut self,
        entities: &mut [impl Holds<DrrEntity<S::Deficit>>],
        id: EntityId,
        head: Charge,
    ) {
        if self.active.head == MaybeEntity::NONE {
            self.first = MaybeEntity::of(id);
        }
        let entity = entities.entity_mut(id);
        entity.state = Standing::Active;
        entity.quantum = self.quantum(entity.share);
        entity.deficit = entity.quantum.max(bytes(head));
        self.active.push_last(entities, id);
    }
}

impl<S: Scale> Scheduler for Drr<S> {
    type Entity = DrrEntity<S::Deficit>;
    const NAME: &'static str = "drr";
    const LARGEST: u32 = S::LARGEST;

    fn add(&mut self, entities: &mut [impl Holds<Self::Entity>], id: EntityId, share: Share) {
        let ratio = Ratio::of(share);
        self.admit(ratio);
        *entities.entity_mut(id) = DrrEntity {
            quantum: bytes(share.max_charge()),
            share: self.shares.enter(ratio),
            ..DrrEntity::default()
        };
    }

    fn remove(&mut self, entities: &mut [impl Holds<Self::Entity>], id: EntityId) -> Removal {
        let entity = entities.entity_mut(id);
        self.dismiss(self.shares.get(entity.share));
        if entity.state == Standing::Inactive {
            self.shares.leave(entity.share);
            *entity = DrrEntity::default();
            Removal::Done
        } else {
            entity.state = Standing::Leaving;
            Removal::WhenSelected
        }
    }

    fn change(&mut self, entities: &mut [impl Holds<Self::Entity>], id: EntityId, share: Share) {
        let entity = entities.entity_mut(id);
        let (before, after) = (self.shares.get(entity.share), Ratio::of(share));
        self.shares.leave(entity.share);
        entity.share = self.shares.enter(after);
        self.admit(after);
        self.dismiss(before);
        if entity.state != Standing::Inactive {
            entity.quantum = self.quantum(entity.share);
        }
    }

    fn weight(&self, entities: &[impl Holds<Self::Entity>], id: EntityId) -> Weight {
        let share = self.shares.get(entities.entity(id).share);
        Weight::of_entity(share.weight).unwrap_or(Weight::ONE)
    }

    fn is_active(&self, entities: &[impl Holds<Self::Entity>], id: EntityId) -> bool {
        entities.entity(id).state != Standing::Inactive
    }

    #[inline]
    fn backlogged(
        &mut self,
        entities: &mut [impl Holds<Self::Entity>],
        id: EntityId,
        head: Charge,
    ) {
        let entity = entities.entity_mut(id);
        if entity.state == Standing::Inactive {
            self.insert(entities, id, head);
        } else {
            // A head that grew while its flow waited is let through once, so that
            // the deficit of a waiting entity always covers its head.
            entity.deficit = entity.deficit.max(bytes(head));
        }
    }

    #[inline]
    fn select(&self, _: &[impl Holds<Self::Entity>]) -> MaybeEntity {
        self.active.head
    }

    #[inline]
    fn hold(&mut self, _: &mut [impl Holds<Self::Entity>], _: EntityId) {}

    #[inline]
    fn served(&mut self, _: Charge) {}

    fn reschedule(
        &mut self,
        entities: &mut [impl Holds<Self::Entity>],
        id: EntityId,
        charged: Charge,
        next: Option<Charge>,
    ) {
        let Some(next) = next else {
            return self.idle(entities, id);
        };
        if self.advance(entities, id, charged, Some(next)) {
            return;
        }
        let entity = entities.entity_mut(id);
        entity.deficit -= bytes(charged);
        if entity.deficit < bytes::<S::Deficit>(next) {
            self.end_turn(entities, id, next);
        }
    }

    #[inline(always)]
    fn step(
        &mut self,
        entities: &mut [impl Holds<Self::Entity>],
        id: EntityId,
        charged: Charge,
        next: Option<Charge>,
    ) -> bool {
        self.advance(entities, id, charged, next)
    }

    #[inline(always)]
    fn advance(
        &mut self,
        entities: &mut [impl Holds<Self::Entity>],
        id: EntityId,
        charged: Charge,
        next: Option<Charge>,
    ) -> bool {
        let Some(next) = next.filter(|_| !self.unsettled) else {
            return false;
        };
        let entity = entities.entity_mut(id);
        let mut deficit = entity.deficit - bytes::<S::Deficit>(charged);
        if deficit < bytes::<S::Deficit>(next) {
            deficit += entity.quantum;
            self.active.turn(id, entity.next);
        }
        entity.deficit = deficit;
        true
    }

    /// Continues while the deficit covers the next packet.
    #[inline]
    fn allowance(&self, entities: &[impl Holds<Self::Entity>], id: EntityId, next: Charge) -> u32 {
        let beyond = S::whole(entities.entity(id).deficit - bytes::<S::Deficit>(next));
        beyond.clamp(0, MAX_ALLOWANCE.into()) as u32
    }

    #[inline]
    fn used(&mut self, entities: &mut [impl Holds<Self::Entity>], id: EntityId, work: Charge) {
        entities.entity_mut(id).deficit -= bytes(work);
    }

    #[cold]
    #[inline(never)]
    fn idle(&mut self, entities: &mut [impl Holds<Self::Entity>], id: EntityId) {
        let entity = entities.entity_mut(id);
        if entity.state == Standing::Inactive {
            return;
        }
        // An idle entity keeps no credit.
        entity.deficit = S::Deficit::default();
        if entity.state == Standing::Leaving {
            self.shares.leave(entity.share);
            entity.quantum = S::Deficit::default();
        } else {
            entity.quantum = entity.quantum.max(1.into());
        }
        entity.state = Standing::Inactive;
        self.active.pop_head(entities, id);
        if self.first == MaybeEntity::of(id) {
            // Those behind it have this round before them.
            self.first = self.active.head;
            self.unsettled |= self.update();
        } else if self.active.head == self.first {
            self.unsettled = self.update();
        }
        self.unsettled &= self.active.head != MaybeEntity::NONE;
    }

    fn invariants(&self, entities: &[impl Holds<Self::Entity>]) -> Result<(), Violation> {
        let mut listed = alloc::vec![false; entities.len()];
        let named = |Violation(what)| Violation(alloc::format!("drr: {what}"));
        self.active.check(entities, &mut listed).map_err(named)?;
        for id in (0..entities.len()).filter_map(EntityId::new) {
            let entity = entities.entity(id);
            let active = entity.state != Standing::Inactive;
            ensure_invariant!(
                active == listed[id.index()],
                "drr: {id:?} is {:?} and {}in the round",
                entity.state,
                if listed[id.index()] { "" } else { "not " }
            );
            ensure_invariant!(
                active
                    || (entity.deficit == S::Deficit::default()
                        && entity.next == MaybeEntity::NONE),
                "drr: inactive {id:?} keeps a deficit or a link"
            );
            let there = entity.is_known() && entity.state != Standing::Leaving;
            let largest = self.ratios.last_key_value().map(|(&ratio, _)| ratio);
            ensure_invariant!(
                !there || largest.is_some_and(|largest| largest >= self.shares.get(entity.share)),
                "drr: {id:?} needs more than the unit of {largest:?}"
            );
            ensure_invariant!(
                self.unsettled || largest.is_none_or(|largest| largest == self.unit.of),
                "drr: the unit is of {:?} and no other flow has {largest:?}",
                self.unit.of
            );
            ensure_invariant!(
                self.unsettled || !active || entity.quantum == self.quantum(entity.share),
                "drr: {id:?} has a quantum of another unit than {:?}",
                self.unit
            );
        }
        let in_round = |link: MaybeEntity| link.get().is_some_and(|id| listed[id.index()]);
        ensure_invariant!(
            in_round(self.first) || (self.active.head == MaybeEntity::NONE && !self.unsettled),
            "drr: a round begins with {:?}, which has no turn",
            self.first
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Length;

    fn share(weight: u32, max_length: u32) -> Share {
        Share::new(
            Weight::new(weight).unwrap(),
            Length::new(max_length).unwrap(),
        )
    }

    fn charge(bytes: u32) -> Charge {
        Charge::new(bytes).unwrap()
    }

    fn added(shares: &[Share]) -> (Drr, alloc::vec::Vec<DrrEntity>) {
        let mut drr = Drr::new();
        let mut entities = alloc::vec![DrrEntity::default(); shares.len()];
        for (index, &share) in shares.iter().enumerate() {
            drr.add(&mut entities, id(index), share);
        }
        (drr, entities)
    }

    fn id(index: usize) -> EntityId {
        EntityId::new(index).unwrap()
    }

    fn quantum(drr: &Drr, entity: &DrrEntity) -> i64 {
        drr.quantum(entity.share)
    }

    /// Serves one turn with packets of 100 bytes; returns the entity and the number of packets.
    fn turn(drr: &mut Drr, entities: &mut [DrrEntity]) -> (usize, u32) {
        let id = drr.select(entities).get().unwrap();
        let mut packets = 0;
        while drr.active.head == MaybeEntity::of(id) {
            packets += 1;
            drr.reschedule(entities, id, charge(100), Some(charge(100)));
            drr.invariants(entities).unwrap();
        }
        (id.index(), packets)
    }

    #[test]
    fn a_quantum_is_the_quotient_cut_off_at_every_scale() {
        let weights = [
            1u32, 2, 3, 7, 21, 22, 1000, 123_457, 524_287, 999_999, 1_000_000, 7_999_999, 8_000_000,
        ];
        let charges = [1, 2, 3, 40, 1499, 1500, 65_535, 99_999, 524_280, MAX_CHARGE];
        for weight in weights {
            for charge in charges
                .into_iter()
                .filter(|&charge| charge <= weight.saturating_mul(65_535))
            {
                let unit = Unit::new(Ratio { charge, weight });
                assert_eq!(
                    unit.quantum::<Packets>(weight),
                    i64::from(charge) << FRACTION
                );
                for other in weights {
                    let exact =
                        ((u128::from(other) * u128::from(charge)) << FRACTION) / u128::from(weight);
                    assert_eq!(
                        unit.quantum::<Packets>(other) as u128,
                        exact,
                        "{other} of {unit:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn every_quantum_covers_the_longest_packet_of_its_entity() {
        let (mut shares, mut largest) = (
            alloc::vec![],
            Ratio {
                charge: 0,
                weight: 1,
            },
        );
        for (weight, max_length) in [
            (1_000_000, 65_535),
            (1500, 1500),
            (1499, 1500),
            (750, 1500),
            (749, 1500),
            (1_000_000, 1),
            (1, 65_535),
        ] {
            shares.push(share(weight, max_length));
            largest = largest.max(Ratio::of(share(weight, max_length)));
            let (drr, entities) = added(&shares);
            assert_eq!(drr.unit.of, largest);
            let covered = |entity: &DrrEntity| {
                let longest = drr.shares.get(entity.share).charge;
                quantum(&drr, entity) - (i64::from(longest) << FRACTION)
            };
            assert!(entities.iter().all(|entity| covered(entity) >= 0));
            assert!(
                entities.iter().any(|entity| covered(entity) == 0),
                "the reference has one packet"
            );
        }
    }

    #[test]
    fn with_nobody_active_a_change_counts_at_once() {
        let (mut drr, mut entities) = added(&[share(100, 1500), share(200, 1500)]);
        assert_eq!(quantum(&drr, &entities[1]), 3000 << FRACTION);
        drr.change(&mut entities, id(0), share(50, 1500));
        assert_eq!(quantum(&drr, &entities[1]), 6000 << FRACTION);
        assert_eq!(drr.remove(&mut entities, id(0)), Removal::Done);
        assert_eq!(quantum(&drr, &entities[1]), 1500 << FRACTION);
        assert_eq!(drr.weight(&entities, id(1)).get(), 200);
    }

    /// Otherwise entities that come and go at the right times would let some be served by the larger unit and others by
    /// the smaller, round after round.
    #[test]
    fn within_a_round_every_quantum_is_of_one_unit() {
        let equal = share(1000, 100);
        for joins_after in 0..4 {
            for leaves_after in 0..4 {
                let (mut drr, mut entities) = added(&[equal; 4]);
                entities.push(DrrEntity::default());
                for n in 0..4 {
                    drr.backlogged(&mut entities, id(n), charge(100));
                }
                let mut packets = [0; 4];
                for _ in 0..20 {
                    for place in 0..4 {
                        let (who, sent) = turn(&mut drr, &mut entities);
                        packets[who] += sent;
                        if place == joins_after {
                            drr.add(&mut entities, id(4), share(100, 100));
                        }
                        if place == leaves_after && entities[4].is_known() {
                            let _ = drr.remove(&mut entities, id(4));
                        }
                    }
                }
                let most = packets.iter().max().unwrap() - packets.iter().min().unwrap();
                assert!(
                    most <= 10,
                    "{packets:?}: joins after {joins_after}, leaves after {leaves_after}"
                );
            }
        }
    }

    #[test]
    fn a_longer_packet_than_the_unit_covers_is_granted_until_the_next_round() {
        let (mut drr, mut entities) = added(&[share(10, 100), share(10, 100)]);
        entities.push(DrrEntity::default());
        drr.backlogged(&mut entities, id(0), charge(100));
        drr.backlogged(&mut entities, id(1), charge(100));
        drr.add(&mut entities, id(2), share(10, 900));
        assert_eq!(
            quantum(&drr, &entities[0]),
            100 << FRACTION,
            "the round goes on"
        );
        drr.backlogged(&mut entities, id(2), charge(800));
        assert_eq!(entities[2].deficit, 800 << FRACTION);
        for n in [0, 1] {
            drr.reschedule(&mut entities, id(n), charge(100), Some(charge(100)));
        }
        drr.reschedule(&mut entities, id(2), charge(800), Some(charge(850)));
        assert_eq!(entities[2].deficit, 850 << FRACTION);
        assert_eq!(drr.select(&entities), MaybeEntity::of(id(0)));
        drr.reschedule(&mut entities, id(0), charge(100), Some(charge(100)));
        assert_eq!(
            entities[0].deficit,
            900 << FRACTION,
            "the next one is of the new unit"
        );
    }

    #[test]
    fn a_turn_that_was_cut_short_leaves_no_deficit() {
        let (mut drr, mut entities) = added(&[share(1, 1500)]);
        let len = charge(100);
        for _ in 0..3 {
            drr.backlogged(&mut entities, id(0), len);
            assert_eq!(entities[0].deficit, 1500 << FRACTION);
            drr.reschedule(&mut entities, id(0), len, Some(len));
            assert_eq!(entities[0].deficit, 1400 << FRACTION);
            drr.reschedule(&mut entities, id(0), len, None);
            assert_eq!(entities[0].deficit, 0);
        }
    }
}
