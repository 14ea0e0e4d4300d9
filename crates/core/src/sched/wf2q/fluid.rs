//! The fluid server: GPS, which serves all backlogged flows at once, by their weights.

use super::super::clock::FRACTION;
use super::super::heap::{Heap, Keyed};
use crate::ensure_invariant;
use crate::scheduler::{EntityId, MaybeEntity, Violation};
use crate::units::{Charge, VirtualTime};
use alloc::vec::Vec;

/// Bits of fraction that V has and timestamps have not.
const FINER: u32 = 64 - FRACTION;

/// An entry of the heap is at most so far after V. A finish time may be further away than
/// the circle of virtual time is long.
const HORIZON: u128 = 1 << 60;

/// One flow in the fluid system.
#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    /// When the last of its packets finishes, in units of virtual time.
    finish: u128,
    /// Its entry in the heap: not after `finish`.
    entry: VirtualTime,
    /// Its weight while it is backlogged, 0 while it is not.
    weight: u64,
}

/// When to look at a flow again; void unless the flow says the same.
#[derive(Clone, Copy, Debug)]
struct Look {
    at: VirtualTime,
    entity: MaybeEntity,
}

impl Keyed for Look {
    #[inline]
    fn key(&self) -> VirtualTime {
        self.at
    }
}

/// GPS. V goes on by dV = dW / (sum of the weights of the flows backlogged here).
///
/// V is linear from one finish time to the next, and a packet's work is divided among
/// these stretches. Each is rounded to 2^-40 bytes, and the inverse of the sum
/// down, by less than sum / 2^64 of V; with inverse weights that are rounded up, the
/// fluid server is slower than the link by less than 10^-6, and never faster.
#[derive(Clone, Debug, Default)]
pub(super) struct Fluid {
    /// V, with [`FINER`] bits more than timestamps; it never wraps.
    time: u128,
    weight_sum: u64,
    /// 2^64 / (sum of weights), rounded down.
    inverse_sum: u64,
    flows: Vec<Flow>,
    /// The earliest finish times. An entry stays where it is while its flow's packets
    /// come, and is put right when V is there: each packet pays for that once. There are at
    /// most two a flow, and 64.
    looks: Heap<Look>,
}

impl Fluid {
    pub(super) fn starting_at(now: VirtualTime) -> Self {
        Fluid {
            time: u128::from(now.units()) << FINER,
            ..Fluid::default()
        }
    }

    /// V.
    #[inline]
    pub(super) fn now(&self) -> VirtualTime {
        VirtualTime::new((self.time >> FINER) as u64)
    }

    #[inline]
    fn units(&self) -> u128 {
        self.time >> FINER
    }

    /// `time`, which is less than half the circle from V.
    fn wide(&self, time: VirtualTime) -> u128 {
        let ahead = time.distance_from(self.now());
        self.units().saturating_add_signed(ahead.into())
    }

    pub(super) fn add(&mut self, id: EntityId) {
        if self.flows.len() <= id.index() {
            self.flows.resize(id.index() + 1, Flow::default());
        }
        self.flows[id.index()] = Flow::default();
    }

    /// When the last packet of `id` finishes, or V if it did. The flow has sent all its
    /// packets, so that this is near.
    pub(super) fn finish(&self, id: EntityId) -> VirtualTime {
        let finish = self.flows[id.index()].finish;
        VirtualTime::new(finish.max(self.units()) as u64)
    }

    /// Whether `id` is backlogged here.
    #[inline]
    pub(super) fn is_backlogged(&self, id: EntityId) -> bool {
        self.flows[id.index()].weight != 0
    }

    /// Whether anybody is.
    pub(super) fn is_busy(&self) -> bool {
        self.weight_sum != 0
    }

    /// A packet that takes `span` at the weight of its flow.
    #[inline]
    pub(super) fn arrived(&mut self, id: EntityId, span: u64, weight: u64) {
        let now = self.units();
        let flow = &mut self.flows[id.index()];
        if flow.weight != 0 {
            flow.finish += u128::from(span);
            return;
        }
        flow.weight = weight;
        flow.finish = flow.finish.max(now) + u128::from(span);
        self.set_weight_sum(self.weight_sum + weight);
        self.look_at(id);
    }

    /// The last packet of `id` finishes at `finish`.
    pub(super) fn set_finish(&mut self, id: EntityId, finish: VirtualTime) {
        let finish = self.wide(finish);
        self.set_wide_finish(id, finish);
    }

    fn set_wide_finish(&mut self, id: EntityId, finish: u128) {
        let now = self.units();
        let flow = &mut self.flows[id.index()];
        let before = core::mem::replace(&mut flow.finish, finish);
        if flow.weight == 0 || before == finish {
            return;
        }
        if finish <= now {
            self.leave(id);
        } else {
            self.look_at(id);
        }
    }

    /// From now on `id` has another weight; what is left of its packets takes
    /// accordingly longer or shorter.
    pub(super) fn change(&mut self, id: EntityId, old_inverse: u64, inverse: u64, weight: u64) {
        let now = self.units();
        let flow = &mut self.flows[id.index()];
        if flow.weight == 0 {
            return;
        }
        let left = flow.finish - now;
        let left = scaled(left, old_inverse, inverse);
        let old = core::mem::replace(&mut flow.weight, weight);
        self.set_weight_sum(self.weight_sum - old + weight);
        self.set_wide_finish(id, now + left);
    }

    /// `id` has nothing left.
    pub(super) fn leave(&mut self, id: EntityId) {
        let weight = core::mem::take(&mut self.flows[id.index()].weight);
        self.set_weight_sum(self.weight_sum - weight);
    }

    /// The link has nothing left, so neither has the fluid server: V goes on to the last
    /// finish time, which only rounding kept it from.
    #[inline(never)]
    pub(super) fn end_busy_period(&mut self) {
        while let Some(look) = self.looks.pop() {
            if let Some(id) = look.entity.get()
                && self.flows[id.index()].weight != 0
            {
                let finish = self.flows[id.index()].finish;
                self.time = self.time.max(finish << FINER);
                self.leave(id);
            }
        }
    }

    /// The link took `work`, and so did the fluid server.
    #[inline]
    pub(super) fn served(&mut self, work: Charge) {
        // In 2^-FRACTION bytes.
        let mut left = u128::from(work.get()) << FRACTION;
        while self.weight_sum != 0 {
            let reached = self.time + ((left * u128::from(self.inverse_sum)) >> FRACTION);
            let Some(at) = self.first_look(reached) else {
                self.time = reached;
                return;
            };
            let taken = (at - self.time) * u128::from(self.weight_sum);
            left = left.saturating_sub(taken.div_ceil(1 << FINER));
            self.time = at;
            self.finish_first();
        }
    }

    /// V is at least `time` from now on.
    #[inline(never)]
    pub(super) fn jump_to(&mut self, time: VirtualTime) {
        let time = self.wide(time) << FINER;
        while let Some(at) = self.first_look(time) {
            self.time = at;
            self.finish_first();
        }
        self.time = self.time.max(time);
    }

    /// When the first flow finishes, if it does until `time`.
    #[inline]
    fn first_look(&mut self, time: u128) -> Option<u128> {
        loop {
            let at = self.wide(self.looks.first()?.at) << FINER;
            if at > time {
                return None;
            }
            if !self.put_right(at) {
                return Some(at.max(self.time));
            }
        }
    }

    /// Puts the first entry, which is at `at`, where it belongs, or returns `false` if it is
    /// there.
    fn put_right(&mut self, at: u128) -> bool {
        let horizon = self.units() + HORIZON;
        let Some(first) = self.looks.first_mut() else {
            return false;
        };
        match self.flows.get_mut(first.entity.index()) {
            Some(flow) if flow.weight != 0 && flow.entry == first.at => {
                if flow.finish << FINER <= at {
                    return false;
                }
                flow.entry = VirtualTime::new(flow.finish.min(horizon) as u64);
                let (at, entity) = (flow.entry, first.entity);
                self.looks.replace_first(Look { at, entity });
            }
            _ => {
                self.looks.pop();
            }
        }
        true
    }

    /// The first flow has nothing left.
    fn finish_first(&mut self) {
        if let Some(first) = self.looks.pop()
            && let Some(id) = first.entity.get()
        {
            self.leave(id);
        }
    }

    /// Gives `id` an entry by its finish time.
    fn look_at(&mut self, id: EntityId) {
        let horizon = self.units() + HORIZON;
        let flow = &mut self.flows[id.index()];
        let at = VirtualTime::new(flow.finish.min(horizon) as u64);
        flow.entry = at;
        if self.looks.len() >= 2 * self.flows.len() + 64 {
            return self.look_at_all_again();
        }
        let entity = MaybeEntity::of(id);
        self.looks.push(Look { at, entity });
    }

    /// Makes the entries anew, one for each flow: void ones are as many as these. O(flows),
    /// once in as many new entries.
    #[inline(never)]
    fn look_at_all_again(&mut self) {
        self.looks = Heap::default();
        for (index, flow) in self.flows.iter().enumerate() {
            if let Some(id) = EntityId::new(index).filter(|_| flow.weight != 0) {
                let (at, entity) = (flow.entry, MaybeEntity::of(id));
                self.looks.push(Look { at, entity });
            }
        }
    }

    fn set_weight_sum(&mut self, sum: u64) {
        self.weight_sum = sum;
        self.inverse_sum = u64::MAX.checked_div(sum).unwrap_or(0);
    }

    pub(super) fn check(&self) -> Result<(), Violation> {
        ensure_invariant!(
            self.looks.is_sorted(),
            "gps: {:?} is not sorted",
            self.looks
        );
        let now = self.units();
        let mut sum = 0;
        for (n, flow) in self.flows.iter().enumerate().filter(|(_, f)| f.weight != 0) {
            sum += flow.weight;
            let ahead = flow.entry.distance_from(self.now());
            ensure_invariant!(
                flow.finish > now && ahead > 0 && now + ahead as u128 <= flow.finish,
                "gps: flow {n} is backlogged at {now}: {flow:?}"
            );
            let mut looks = self.looks.entries().iter();
            ensure_invariant!(
                looks.any(|look| look.entity.index() == n && look.at == flow.entry),
                "gps: nobody looks at flow {n}, {flow:?}"
            );
        }
        ensure_invariant!(
            self.looks.len() <= 2 * self.flows.len() + 64,
            "gps: {} entries for {} flows",
            self.looks.len(),
            self.flows.len()
        );
        ensure_invariant!(
            sum == self.weight_sum,
            "gps: the weights add up to {sum}, not {}",
            self.weight_sum
        );
        Ok(())
    }
}

/// `span` of virtual time as it is after a change of the inverse weight.
pub(super) fn scaled(span: u128, old_inverse: u64, inverse: u64) -> u128 {
    let (whole, rest) = (
        span / u128::from(old_inverse.max(1)),
        span % u128::from(old_inverse.max(1)),
    );
    whole * u128::from(inverse) + rest * u128::from(inverse) / u128::from(old_inverse.max(1))
}
