//! Eligibility and selection: link sharing and the round robin.
//!
//! A leaf may send while it is within its rate. Beyond it, it may send while it can borrow: from the nearest class
//! above that is within its own rate, through classes that may borrow themselves. *Top-level* link sharing (Floyd and
//! Jacobson 1995, Section 5) keeps a class from borrowing where another has precedence, without an examination of all
//! classes: no class borrows from above the level `cutoff`. The level is a guess. An arriving packet whose class is
//! within its rate lowers it to that class, one whose class can borrow lowers it to the lender, and it rises when no
//! class below it may send.
//!
//! Within a priority, classes take turns of a number of bytes in proportion to their rates (weighted round robin), with
//! a packet's excess deducted from the next turn.

use super::estimator::Fine;
use super::{Cbq, Place, ROOT};
use crate::units::{Length, Nanos};
use alloc::vec::Vec;

/// Whether a leaf may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum May {
    /// Yes, if need be on unused rate of this class.
    Send { lender: Option<u32> },
    /// Not while the cutoff is below its lender.
    NotYet,
    /// No lender: it is suspended until then.
    Sleep(Nanos),
}

/// The class that sends next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub(super) class: u32,
    pub(super) lender: Option<u32>,
}

impl<P> Cbq<P> {
    /// Returns the leaf whose turn it is. O(1) as a rule; O(levels * active classes) if many are overlimit and not
    /// suspended.
    pub(super) fn next_turn(&mut self, now: Nanos) -> Option<Turn> {
        while let Some(class) = self.sleepers.pop(now) {
            self.join(class);
        }
        let top = self.classes[0].depth;
        loop {
            let mut blocked = false;
            for priority in (0..self.rings.len()).rev() {
                let turn = self.turn_in(priority, now, &mut blocked);
                if turn.is_some() {
                    return turn;
                }
            }
            if !blocked || self.cutoff >= top {
                self.cutoff = top;
                return None;
            }
            self.cutoff += 1;
        }
    }

    /// The same within a priority; whether a class might send if the cutoff were higher.
    fn turn_in(&mut self, priority: usize, now: Nanos, blocked: &mut bool) -> Option<Turn> {
        // The fewest further turns after which a class that may send has bytes to send.
        let mut turns: Option<i64> = None;
        for _ in 0..self.rings[priority].len() {
            let class = *self.rings[priority].front()?;
            match self.may_send(class, now) {
                May::Send { lender } => {
                    let leaf = &mut self.classes[class as usize].leaf;
                    if leaf.allocation <= 0 {
                        leaf.allocation += leaf.quantum;
                    }
                    if leaf.allocation > 0 {
                        return Some(Turn { class, lender });
                    }
                    let more = -leaf.allocation / leaf.quantum + 1;
                    turns = Some(turns.map_or(more, |fewest| fewest.min(more)));
                }
                May::NotYet => {
                    *blocked = true;
                    self.classes[class as usize].leaf.stand(Place::Ring);
                }
                May::Sleep(until) => {
                    self.rings[priority].pop_front();
                    let here = &mut self.classes[class as usize];
                    here.counts.overlimits += 1;
                    here.leaf.stand(Place::Asleep);
                    self.sleepers.push(class, now, until);
                    continue;
                }
            }
            self.rings[priority].rotate_left(1);
        }
        // All eligible classes owe bytes: this number of rounds at once brings the first of them out of debt.
        let turns = turns?;
        let mut next = None;
        for _ in 0..self.rings[priority].len() {
            let class = *self.rings[priority].front()?;
            if let May::Send { lender } = self.may_send(class, now) {
                let leaf = &mut self.classes[class as usize].leaf;
                leaf.allocation += leaf.quantum * turns;
                if leaf.allocation > 0 && next.is_none() {
                    next = Some(Turn { class, lender });
                }
            }
            self.rings[priority].rotate_left(1);
        }
        // Its turn: it comes first.
        let first = next?.class;
        while self.rings[priority].front() != Some(&first) {
            self.rings[priority].rotate_left(1);
        }
        next
    }

    fn may_send(&mut self, class: u32, now: Nanos) -> May {
        let mut at = class;
        loop {
            let here = &self.classes[at as usize];
            if here.estimator.is_under_limit(now) {
                let lender = (at != class).then_some(at);
                return May::Send { lender };
            }
            let Some(above) = here.lender() else {
                return May::Sleep(self.suspend(class, at));
            };
            if self.classes[above as usize].depth > self.cutoff {
                return May::NotYet;
            }
            at = above;
        }
    }

    /// Suspends a class that found no lender up to `top`, until it is within its rate, or one of those is.
    fn suspend(&mut self, class: u32, top: u32) -> Nanos {
        // For the offtime of the top of its chain, which is shorter than its own (ALTQ).
        let mut lender = &self.classes[top as usize].estimator;
        let own = &self.classes[class as usize].estimator;
        if lender.is_deep_in_debt() {
            lender = own;
        }
        let offtime = lender.offtime(own);
        self.classes[class as usize].estimator.suspend(offtime);
        let mut until = Nanos::MAX;
        let mut at = Some(class);
        while let Some(number) = at {
            let here = &self.classes[number as usize];
            until = until.min(here.estimator.under_limit_at().unwrap_or(Nanos::ZERO));
            at = here.lender();
        }
        until
    }

    /// Releases up to `most` suspended classes, and cancels their debt; returns their number. For callers that empty
    /// the queues without the pace of a link. O(log n) for each.
    #[doc(hidden)]
    pub fn free_held(&mut self, most: u32, now: Nanos) -> u32 {
        let mut freed = 0;
        while freed < most
            && let Some(class) = self.sleepers.pop(Nanos::MAX)
        {
            self.classes[class as usize].estimator.forgive(now);
            self.join(class);
            freed += 1;
        }
        freed
    }

    /// A packet arrives for `class`: those with a better right than the borrowers above a
    /// level make themselves known.
    pub(super) fn lower_cutoff(&mut self, class: u32, now: Nanos) {
        let mut at = class;
        loop {
            let here = &self.classes[at as usize];
            if here.depth >= self.cutoff {
                return;
            }
            if here.estimator.is_under_limit(now) {
                self.cutoff = here.depth;
                return;
            }
            match here.lender() {
                Some(above) => at = above,
                None => return,
            }
        }
    }

    /// Charges a dequeued packet of `len`: updates the estimators of its class and of all above, advances the turn, and
    /// adjusts the cutoff.
    pub(super) fn charge(&mut self, turn: Turn, len: Length, now: Nanos) {
        let Turn { class, lender } = turn;
        // The link takes it when it has finished its earlier packets.
        self.link_free = self.link_free.max(Fine::from(now)) + self.link_pace.of(len);
        // All but the root: the link is asked for no more than it carries.
        let mut at = class;
        while at != ROOT {
            let here = &mut self.classes[at as usize];
            here.estimator.sent(now, self.link_free, len);
            at = here.parent;
        }
        let priority = self.classes[class as usize].config.priority as usize;
        let leaf = &mut self.classes[class as usize].leaf;
        leaf.allocation -= i64::from(len.get());
        let (over, empty) = (leaf.allocation <= 0, leaf.queue.is_empty());
        if empty {
            leaf.stand(Place::Out);
            self.rings[priority].pop_front();
        } else if over {
            self.rings[priority].rotate_left(1);
        }
        let Some(lender) = lender else { return };
        self.classes[class as usize].counts.borrowed += 1;
        let lender = &self.classes[lender as usize];
        if self.cutoff < lender.depth {
            return;
        }
        self.cutoff = if !empty && lender.estimator.is_under_limit(now) {
            lender.depth
        } else if self.is_somebody_unsatisfied(now) {
            0
        } else {
            self.classes[0].depth
        };
    }

    /// Returns whether a class within its rate has a backlog of more than one packet.
    fn is_somebody_unsatisfied(&self, now: Nanos) -> bool {
        self.rings.iter().flatten().any(|&number| {
            let class = &self.classes[number as usize];
            class.leaf.queued.packets > 1 && class.estimator.is_under_limit(now)
        })
    }

    /// A class with packets joins the others of its priority.
    pub(super) fn join(&mut self, class: u32) {
        let priority = self.classes[class as usize].config.priority as usize;
        self.classes[class as usize].leaf.place = Place::Ring;
        self.rings[priority].push_back(class);
    }

    /// Gives each class of a priority its bytes a turn: its part of as many of the longest
    /// packets as there are classes (ALTQ).
    pub(super) fn weigh(&mut self, priority: u32) {
        let leaves = self.classes.iter().enumerate();
        let of_priority =
            leaves.filter(|(_, class)| class.is_leaf && class.config.priority == priority);
        let numbers: Vec<usize> = of_priority.map(|(number, _)| number).collect();
        let configs = || numbers.iter().map(|&number| &self.classes[number].config);
        let rates: u128 = configs().map(|config| u128::from(config.rate.bps())).sum();
        let longest = configs().map(|config| config.max_length.get()).max();
        let all = numbers.len() as u128 * u128::from(longest.unwrap_or(0));
        for number in numbers {
            let class = &mut self.classes[number];
            let part = all * u128::from(class.config.rate.bps()) / rates.max(1);
            class.leaf.quantum = (part as i64).max(1);
        }
    }
}
