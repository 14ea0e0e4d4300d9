//! The fluid server: GPS, which serves all backlogged flows at once, by their weights.

use super::super::clock;
use super::super::heap::{Heap, Keyed};
use crate::ensure_invariant;
use crate::scheduler::{EntityId, MaybeEntity, Violation};
use crate::units::{Charge, VirtualTime};
use alloc::vec::Vec;

/// Bits of fraction of the times and of the work of GPS: 2^-64 of a byte over weight, and of a byte.
const FRACTION: u32 = 64;

/// Of these bits, those that timestamps have not.
const FINER: u32 = FRACTION - clock::FRACTION;

/// Times start here and never wrap. Earlier ones are those of flows that wait for the link.
const ORIGIN: u128 = 1 << (u64::BITS + FINER);

/// A change of weight moves a start time no further from V than this: four times the longest packet's
/// time at the lowest weight.
const MOST_STRETCHED: u128 = 1 << (58 + FINER);

/// Returns a charge as work.
#[inline]
fn work_of(charge: Charge) -> u128 {
    u128::from(charge.get()) << FRACTION
}

/// Bits of fraction by which times of GPS are compared. Times that are equal by exact arithmetic are
/// equal timestamps, unless they lie on the edge between two: with 32 bits less than the times have, that
/// is one in a billion even of those that are not finite in binary.
const COMPARED: u32 = 32;

/// Returns the nearest time with [`COMPARED`] bits of fraction.
#[inline]
fn nearest(time: u128) -> u128 {
    const DROPPED: u32 = FRACTION - COMPARED;
    (time + (1 << (DROPPED - 1))) >> DROPPED << DROPPED
}

/// The same as a timestamp.
#[inline]
fn rounded(time: u128) -> VirtualTime {
    VirtualTime::new((nearest(time) >> FINER) as u64)
}

/// Quotient and remainder of work by a weight, or by a sum of weights.
#[inline]
fn divided(work: u128, weight: u64) -> (u128, u64) {
    let quotient = work / u128::from(weight.max(1));
    let rest = work - quotient * u128::from(weight.max(1));
    (quotient, rest as u64)
}

/// A start or finish time of a flow in GPS, without an error of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tag {
    /// Rounded down.
    time: u128,
    /// The work of the flow that this leaves out, less than its weight.
    rest: u64,
}

impl Tag {
    /// Returns the time after a charge.
    #[inline]
    pub(super) fn after(self, charge: Charge, weight: u64) -> Tag {
        let (span, rest) = divided(work_of(charge) + u128::from(self.rest), weight);
        Tag {
            time: self.time + span,
            rest,
        }
    }

    /// Returns the nearest timestamp.
    #[inline]
    pub(super) fn timestamp(self) -> VirtualTime {
        rounded(self.time)
    }

    /// The same work from `now`, or until `now`, at another weight.
    fn at_weight(self, now: u128, old: u64, new: u64) -> Tag {
        let of_old = |span: u128| span.saturating_mul(old.into());
        match self.time.checked_sub(now) {
            Some(ahead) => {
                let work = of_old(ahead).saturating_add(self.rest.into());
                let (span, rest) = divided(work, new);
                Tag {
                    time: now + span,
                    rest,
                }
            }
            None => {
                let (behind, _) = divided(of_old(now - self.time), new);
                Tag {
                    time: now.saturating_sub(behind.min(MOST_STRETCHED)),
                    rest: 0,
                }
            }
        }
    }
}

/// One flow in the fluid system.
#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    /// When the last of its packets finishes.
    finish: Tag,
    /// Its entry in the heap: not after `finish`.
    entry: u128,
    /// Its weight while it is backlogged, 0 while it is not.
    weight: u64,
}

/// When to look at a flow again; void unless the flow says the same.
#[derive(Clone, Copy, Debug)]
struct Look {
    at: u128,
    entity: MaybeEntity,
}

impl Keyed for Look {
    type Key = u128;

    #[inline]
    fn key(&self) -> u128 {
        self.at
    }
}

/// GPS. V advances by dV = dW / (sum of the weights of the flows backlogged here).
///
/// V is linear from one finish time to the next, and a packet's work is divided among these
/// stretches. No work is lost: the remainder by the sum of weights is carried over, and each flow is
/// served exactly its bytes. So V is rounded down, by less than 2^-64, where a flow becomes
/// backlogged, and nowhere else.
#[derive(Clone, Debug)]
pub(super) struct Fluid {
    /// V.
    time: u128,
    /// Work done after V had this value.
    carry: u128,
    /// Work that the link was given and has not done, where it is followed.
    unsent: u128,
    /// The owner reports the unsent work.
    is_followed: bool,
    weight_sum: u64,
    flows: Vec<Flow>,
    /// The earliest finish times. An entry stays where it is while its flow's packets
    /// come, and is put right when V is there: each packet pays for that once. There are at
    /// most two a flow, and 64.
    looks: Heap<Look>,
}

impl Default for Fluid {
    fn default() -> Self {
        Fluid::starting_at(VirtualTime::default())
    }
}

impl Fluid {
    /// From `now`, rounded down to [`COMPARED`] bits of fraction.
    pub(super) fn starting_at(now: VirtualTime) -> Self {
        let now = now.rounded_down(clock::FRACTION - COMPARED);
        Fluid {
            time: ORIGIN + (u128::from(now.units()) << FINER),
            carry: 0,
            unsent: 0,
            is_followed: false,
            weight_sum: 0,
            flows: Vec::new(),
            looks: Heap::default(),
        }
    }

    /// V, as the nearest timestamp.
    #[inline]
    pub(super) fn now(&self) -> VirtualTime {
        rounded(self.time)
    }

    pub(super) fn add(&mut self, id: EntityId) {
        if self.flows.len() <= id.index() {
            self.flows.resize(id.index() + 1, Flow::default());
        }
        self.flows[id.index()] = Flow::default();
    }

    /// When the last packet of `id` finishes, or V if it did.
    pub(super) fn finish(&self, id: EntityId) -> Tag {
        let flow = &self.flows[id.index()];
        match flow.weight != 0 || flow.finish.time > self.time {
            true => flow.finish,
            false => Tag {
                time: self.time,
                rest: 0,
            },
        }
    }

    /// Returns whether `id` is backlogged here.
    #[inline]
    pub(super) fn is_backlogged(&self, id: EntityId) -> bool {
        self.flows[id.index()].weight != 0
    }

    /// Returns whether any flow is.
    pub(super) fn is_busy(&self) -> bool {
        self.weight_sum != 0
    }

    /// Returns whether V is behind the work that the link was given.
    #[inline]
    pub(super) fn is_behind(&self) -> bool {
        self.unsent != 0
    }

    /// A packet at the weight of its flow.
    #[inline]
    pub(super) fn arrived(&mut self, id: EntityId, length: Charge, weight: u64) {
        let finish = self.finish(id).after(length, weight);
        let flow = &mut self.flows[id.index()];
        flow.finish = finish;
        if flow.weight == 0 {
            flow.weight = weight;
            self.weight_sum += weight;
            self.look_at(id);
        }
    }

    /// The last packet of `id` finishes at `finish`.
    pub(super) fn set_finish(&mut self, id: EntityId, finish: Tag) {
        let now = self.time;
        let flow = &mut self.flows[id.index()];
        let before = core::mem::replace(&mut flow.finish, finish);
        if flow.weight == 0 || before == finish {
            return;
        }
        if finish.time <= now {
            self.leave(id);
        } else {
            self.look_at(id);
        }
    }

    /// Changes the weight of `id` from now on; the rest of its packets takes accordingly longer or shorter.
    pub(super) fn change(&mut self, id: EntityId, old: u64, new: u64) {
        let now = self.time;
        let flow = &mut self.flows[id.index()];
        if flow.weight == 0 {
            return;
        }
        let finish = flow.finish.at_weight(now, old, new);
        let old = core::mem::replace(&mut flow.weight, new);
        self.weight_sum = self.weight_sum - old + new;
        self.set_finish(id, finish);
    }

    /// Returns a start time of a flow whose weight changes.
    pub(super) fn stretched(&self, start: Tag, old: u64, new: u64) -> Tag {
        let most = self.time + MOST_STRETCHED;
        let stretched = start.at_weight(self.time, old, new);
        match stretched.time > most {
            true => Tag {
                time: most,
                rest: 0,
            },
            false => stretched,
        }
    }

    /// `id` has nothing left.
    pub(super) fn leave(&mut self, id: EntityId) {
        let weight = core::mem::take(&mut self.flows[id.index()].weight);
        self.weight_sum -= weight;
    }

    /// The link has nothing left, so neither has the fluid server, unless packets were discarded: V
    /// moves to the last finish time.
    #[inline(never)]
    pub(super) fn end_busy_period(&mut self) {
        while let Some(look) = self.looks.pop() {
            if let Some(id) = look.entity.get()
                && self.flows[id.index()].weight != 0
            {
                self.time = self.time.max(self.flows[id.index()].finish.time);
                self.leave(id);
            }
        }
        self.carry = 0;
    }

    /// The link took `work`. It is done at once, unless the link is followed.
    #[inline]
    pub(super) fn served(&mut self, work: Charge) {
        match self.is_followed {
            true => self.unsent += work_of(work),
            false => self.work(work_of(work)),
        }
    }

    /// The link has done all work but this.
    #[inline]
    pub(super) fn sent_all_but(&mut self, unsent: u128) {
        self.is_followed = true;
        let done = self.unsent.saturating_sub(unsent);
        self.unsent -= done;
        if done != 0 {
            self.work(done);
        }
    }

    /// The link did `work`, and so does the fluid server.
    fn work(&mut self, work: u128) {
        let mut left = work + core::mem::take(&mut self.carry);
        while self.weight_sum != 0 {
            let (span, rest) = divided(left, self.weight_sum);
            let reached = self.time + span;
            let Some(first) = self.first_finish(reached) else {
                (self.time, self.carry) = (reached, rest.into());
                return;
            };
            left -= (first.time - self.time) * u128::from(self.weight_sum);
            self.time = first.time;
            let Some(after) = left.checked_sub(first.rest.into()) else {
                self.carry = left;
                return;
            };
            left = after;
            self.finish_first();
        }
    }

    /// V is at least `time` from now on.
    #[inline(never)]
    pub(super) fn jump_to(&mut self, time: VirtualTime) {
        let now = self.now();
        let ahead = u128::from(time.distance_from(now).max(0).unsigned_abs());
        if ahead == 0 {
            return;
        }
        let time = nearest(self.time) + (ahead << FINER);
        while self.first_finish(time).is_some() {
            self.finish_first();
        }
        (self.time, self.carry) = (self.time.max(time), 0);
    }

    /// When the first flow finishes, if it does until `time`; no earlier than V.
    #[inline]
    fn first_finish(&mut self, time: u128) -> Option<Tag> {
        loop {
            let first = self.looks.first_mut().filter(|first| first.at <= time)?;
            match self.flows.get_mut(first.entity.index()) {
                Some(flow) if flow.weight != 0 && flow.entry == first.at => {
                    if flow.finish.time <= first.at {
                        return Some(flow.finish);
                    }
                    flow.entry = flow.finish.time;
                    let (at, entity) = (flow.entry, first.entity);
                    self.looks.replace_first(Look { at, entity });
                }
                _ => {
                    self.looks.pop();
                }
            }
        }
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
        let flow = &mut self.flows[id.index()];
        let at = flow.finish.time;
        flow.entry = at;
        if self.looks.len() >= 2 * self.flows.len() + 64 {
            return self.look_at_all_again();
        }
        let entity = MaybeEntity::of(id);
        self.looks.push(Look { at, entity });
    }

    /// Makes the entries again, one for each flow: void ones are as many as these. O(flows),
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

    pub(super) fn check(&self) -> Result<(), Violation> {
        ensure_invariant!(
            self.looks.is_sorted(),
            "gps: {:?} is not sorted",
            self.looks
        );
        let now = self.time;
        let mut sum = 0;
        for (n, flow) in self.flows.iter().enumerate().filter(|(_, f)| f.weight != 0) {
            sum += flow.weight;
            ensure_invariant!(
                flow.finish.time >= now
                    && flow.finish.rest < flow.weight
                    && (now..=flow.finish.time).contains(&flow.entry),
                "gps: flow {n} is backlogged at {now}: {flow:?}"
            );
            let mut looks = self.looks.entries().iter();
            ensure_invariant!(
                looks.any(|look| look.entity.index() == n && look.at == flow.entry),
                "gps: no entry is that of flow {n}, {flow:?}"
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
