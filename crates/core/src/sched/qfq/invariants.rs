//! The properties that the theorems of the QFQ report give, checked one by one.

use super::super::groups::check_bucket;
use super::{GroupedEntity, Qfq, SLOTS, Scale};
use crate::ensure_invariant;
use crate::scheduler::{Entities, Holds, MaybeEntity, Violation};

impl<S: Scale> Qfq<S> {
    pub(super) fn check_sets(&self) -> Result<(), Violation> {
        let backlogged: u64 = (0..64)
            .filter(|&i| self.groups[i].occupied != 0)
            .map(|i| 1 << i)
            .sum();
        let sets = [self.er, self.ir, self.eb, self.ib];
        let union = sets.iter().fold(0, |all, set| all | set);
        let members: u32 = sets.iter().map(|set| set.count_ones()).sum();
        ensure_invariant!(
            union == backlogged && members == backlogged.count_ones(),
            "qfq: sets {sets:x?} do not partition the backlogged groups {backlogged:x}"
        );
        ensure_invariant!(
            backlogged == 0 || self.er != 0,
            "qfq: no flow is eligible while groups {backlogged:x} are backlogged"
        );
        let lowest = self.er.trailing_zeros() % 64;
        let first = lowest * SLOTS + self.groups[lowest as usize].first_bucket() as u32;
        ensure_invariant!(
            u32::from(self.first) == first && self.first_slot == self.groups[lowest as usize].first,
            "qfq: bucket {} is selected, not {first} of group {lowest}",
            self.first
        );
        ensure_invariant!(
            self.selected == self.buckets[first as usize],
            "qfq: {:?} is selected, and not on top of bucket {first}",
            self.selected
        );
        let now = self.virtual_time();
        let group = |i: u32| &self.groups[i as usize];
        let indices = |set: u64| (0..64u32).filter(move |i| set >> i & 1 == 1);
        for i in indices(backlogged) {
            let (start, finish) = (group(i).start(i), group(i).end(i));
            let ineligible = (self.ir | self.ib) >> i & 1 == 1;
            ensure_invariant!(
                start.is_after(now) == ineligible,
                "qfq: group {i} starts at {start:?}, V is {now:?}, ineligible is {ineligible}"
            );
            let blocked = (self.eb | self.ib) >> i & 1 == 1;
            let blocker = indices(self.er).find(|&x| x > i && finish.is_after(group(x).end(x)));
            ensure_invariant!(
                blocked == blocker.is_some(),
                "qfq: group {i} is blocked: {blocked}, by {blocker:?}"
            );
            ensure_invariant!(
                !start.is_after(self.latest_start(i).rounded_down(i)),
                "qfq: group {i} starts at {start:?}, after V = {now:?} rounded up (Theorem 3)"
            );
            ensure_invariant!(
                !now.is_after(finish.advanced(self.members.lag)),
                "qfq: V {now:?} is more than L = {} after F = {finish:?} of group {i} (Theorem 4)",
                self.members.lag
            );
        }
        for (name, set) in [
            ("ER", self.er),
            ("EB", self.eb),
            ("IR, IB", self.ir | self.ib),
        ] {
            for (i, j) in indices(set).zip(indices(set).skip(1)) {
                ensure_invariant!(
                    !group(i).end(i).is_after(group(j).end(j)),
                    "qfq: {name} is not sorted by F at groups {i}, {j}"
                );
            }
        }
        let ineligible = self.ir | self.ib;
        for (i, j) in indices(ineligible).zip(indices(ineligible).skip(1)) {
            ensure_invariant!(
                !group(i).start(i).is_after(group(j).start(j)),
                "qfq: IR, IB are not sorted by S at groups {i}, {j}"
            );
        }
        Ok(())
    }

    pub(super) fn check_buckets(
        &self,
        entities: &[impl Holds<GroupedEntity<S>>],
    ) -> Result<(), Violation> {
        let mut listed = alloc::vec![false; entities.len()];
        for (group, i) in self.groups.iter().zip(0u32..) {
            let first = (group.first % u64::from(SLOTS)) as u32;
            ensure_invariant!(
                group.occupied == 0 || group.occupied >> first & 1 == 1,
                "qfq: group {i} starts at an empty bucket"
            );
            let all = i as usize * SLOTS as usize..(i as usize + 1) * SLOTS as usize;
            let (tops, lasts) = (&self.buckets[all.clone()], &self.lasts[all]);
            for ((bucket, &top), &last) in (0u32..).zip(tops).zip(lasts) {
                ensure_invariant!(
                    (top != MaybeEntity::NONE) == (group.occupied >> bucket & 1 == 1),
                    "qfq: group {i} bucket {bucket}: {top:?}, occupied {:x}",
                    group.occupied
                );
                let slots = u64::from(bucket.wrapping_sub(first) % SLOTS);
                let start = group.start(i).advanced(slots << i);
                check_bucket(entities, top, i, start, &mut listed).map_err(named)?;
                let next = |id| entities.entity(id).next.get();
                let end = core::iter::successors(top.get(), |&id| next(id)).last();
                ensure_invariant!(
                    end.is_none() || end == last.get(),
                    "qfq: group {i} bucket {bucket} ends with {end:?}, not {last:?}"
                );
            }
        }
        self.members.check(entities, &listed).map_err(named)
    }
}

fn named(Violation(what): Violation) -> Violation {
    Violation(alloc::format!("qfq: {what}"))
}
