//! The bound of a child among its siblings, by the algorithm that orders them. The [table of algorithms](crate::sched)
//! lists them.
//!
//! With [`Head::Longest`], a packet is treated as one of L_k until it has been sent, and then charged for its own
//! length. [`Siblings::bound`] has the cost of that.

use super::{
    Aggregate, Errors, Finish, Head, Round, Siblings, Slot, Terms, Transmit, Wfi, Work, sched,
};
use crate::units::{Length, Weight};

/// The child of a query for a bound.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Child<'a> {
    pub(crate) siblings: &'a Siblings,
    pub(crate) weight: Weight,
    pub(crate) length: Length,
    pub(crate) head: Head,
    pub(crate) transmit: Transmit,
    pub(super) terms: Terms,
}

/// The guarantee of an algorithm to a child; `None` if there is none, or none is known.
pub(crate) type Bound = fn(&Child<'_>) -> Option<Wfi>;

impl Child<'_> {
    fn slot(&self) -> Slot {
        self.siblings.slot()
    }

    /// Returns L_k / phi, if the algorithm does not know the length of the next packet.
    fn unknown_head(&self) -> Work {
        match self.head {
            Head::Known => Work::ZERO,
            Head::Longest => self.terms.packet_service(),
        }
    }

    /// In a round. A head that is not known counts as one packet more of the child's in front.
    pub(super) fn in_round(
        &self,
        round: &Round,
        bound: fn(&Round, Weight, Length, Transmit) -> Option<Wfi>,
    ) -> Option<Wfi> {
        let wfi = bound(round, self.weight, self.length, self.transmit)?;
        if self.head == Head::Known {
            return Some(wfi);
        }
        // L_k more in front, by the share of the round.
        let share = round.share(self.weight);
        let length = f64::from(self.length.get());
        let unknown = Wfi::of(share, (1.0 / share - 1.0) * length);
        Some(Wfi {
            turn: Work::ZERO,
            ..wfi + unknown
        })
    }

    /// Returns the loosest bound over the sizes that the aggregates of a kind may have: they are filled one after the
    /// other, so all are full but one. Each index may be the largest for another size.
    fn aggregated(&self, bound: fn(&Aggregate, Slot) -> Wfi) -> Option<Wfi> {
        let siblings = self.siblings;
        let most = siblings.algorithm.members()?.get().min(siblings.most_alike);
        let alike = siblings.alike.get(&(self.weight, self.length))?;
        let full = (*alike).min(most);
        let loosest = [1, alike % full, full]
            .into_iter()
            .filter_map(|members| Aggregate::new(self.terms, members, most).ok())
            .map(|aggregate| bound(&aggregate, self.slot()))
            .reduce(Wfi::or_looser)?;
        Some(loosest + Wfi::of(self.terms.share(), self.unknown_head().0))
    }
}

/// Timestamps of packets of L_k, `slot` apart from the exact ones.
fn after_start(terms: &Terms, slot: Work) -> Wfi {
    let finish = terms.packet_service() + slot;
    sched(
        terms,
        Errors {
            start: slot,
            finish: Finish::AfterStart(finish),
        },
    )
}

pub(crate) fn drr(child: &Child<'_>) -> Option<Wfi> {
    child.in_round(child.siblings.round()?, super::drr)
}

pub(crate) fn scfq(child: &Child<'_>) -> Option<Wfi> {
    child.in_round(child.siblings.round()?, super::scfq)
}

/// It follows every packet, and a class of several has no place in it.
pub(crate) fn wfq(child: &Child<'_>) -> Option<Wfi> {
    let round = child
        .siblings
        .round()
        .filter(|_| child.head == Head::Known)?;
    Some(super::wfq(&child.terms, round.slowest()))
}

/// As [`wfq`].
pub(crate) fn wf2q(child: &Child<'_>) -> Option<Wfi> {
    (child.head == Head::Known).then(|| super::wf2q(&child.terms))
}

pub(crate) fn wf2q_plus(child: &Child<'_>) -> Option<Wfi> {
    Some(match child.head {
        Head::Known => super::wf2q_plus(&child.terms),
        Head::Longest => after_start(&child.terms, Work::ZERO),
    })
}

pub(crate) fn gfq(child: &Child<'_>) -> Option<Wfi> {
    Some(match child.head {
        Head::Known => super::gfq(&child.terms, child.slot()),
        Head::Longest => after_start(&child.terms, child.slot().of(&child.terms)),
    })
}

/// Only a child alone on the highest level has [`Siblings::terms`].
pub(crate) fn priority(child: &Child<'_>) -> Option<Wfi> {
    super::strict_priority(0, child.siblings.longest(), child.transmit)
}

pub(crate) fn qfq(child: &Child<'_>) -> Option<Wfi> {
    Some(super::qfq(&child.terms, child.slot()))
}

pub(crate) fn s_kps(child: &Child<'_>) -> Option<Wfi> {
    Some(super::s_kps(&child.terms, child.slot()))
}

pub(crate) fn qfq_plus(child: &Child<'_>) -> Option<Wfi> {
    child.aggregated(super::qfq_plus)
}

pub(crate) fn wf2q_plus_plus(child: &Child<'_>) -> Option<Wfi> {
    child.aggregated(|aggregate, _| super::wf2q_plus_plus(aggregate))
}

pub(crate) fn s_kps_plus(child: &Child<'_>) -> Option<Wfi> {
    child.aggregated(super::s_kps_plus)
}

pub(crate) fn gfq_plus(child: &Child<'_>) -> Option<Wfi> {
    child.aggregated(super::gfq_plus)
}
