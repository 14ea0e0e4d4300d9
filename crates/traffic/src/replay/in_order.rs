//! Arrivals that are nearly in order of time, put in order.
//!
//! Two processors that take packets from one interface write them as each gets to it: a capture of
//! a busy machine has packets that are a microsecond late.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};

/// How much earlier than the latest previous arrival an arrival may be, in nanoseconds.
pub(super) const WINDOW: u64 = 1_000_000;

/// An arrival is earlier than this by more than [`WINDOW`].
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Late(pub u64);

/// Arrivals of the last [`WINDOW`], and the number that were out of order. Simultaneous ones keep their order.
pub(super) struct InOrder<T> {
    /// Those that were no earlier than all before them, in this order.
    in_time: VecDeque<Unordered<T>>,
    late: BinaryHeap<Reverse<Unordered<T>>>,
    latest: u64,
    ended: bool,
    pub disorder: Disorder,
}

/// Counts of the arrivals that were sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Disorder {
    /// Arrivals that were earlier than one before them.
    pub moved: u64,
    /// All arrivals.
    pub of: u64,
    /// In nanoseconds, by how much at most.
    pub most: u64,
}

struct Unordered<T> {
    time: u64,
    number: u64,
    arrival: T,
}

impl<T> Unordered<T> {
    fn place(&self) -> (u64, u64) {
        (self.time, self.number)
    }
}

impl<T> PartialEq for Unordered<T> {
    fn eq(&self, other: &Self) -> bool {
        self.place() == other.place()
    }
}

impl<T> Eq for Unordered<T> {}

impl<T> PartialOrd for Unordered<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Unordered<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.place().cmp(&other.place())
    }
}

impl<T> InOrder<T> {
    pub(super) fn new() -> Self {
        InOrder {
            in_time: VecDeque::new(),
            late: BinaryHeap::new(),
            latest: 0,
            ended: false,
            disorder: Disorder::default(),
        }
    }

    /// Adds the next arrival in input order. O(1) if in time order, else O(log n) in the number within the window.
    pub(super) fn push(&mut self, time: u64, arrival: T) -> Result<(), Late> {
        let early = self.latest.saturating_sub(time);
        if early > WINDOW {
            return Err(Late(self.latest));
        }
        let waiting = Unordered {
            time,
            number: self.disorder.of,
            arrival,
        };
        self.disorder.of += 1;
        if early == 0 {
            self.latest = time;
            self.in_time.push_back(waiting);
        } else {
            self.disorder.moved += 1;
            self.disorder.most = self.disorder.most.max(early);
            self.late.push(Reverse(waiting));
        }
        Ok(())
    }

    /// Declares the input complete.
    pub(super) fn end(&mut self) {
        self.ended = true;
    }

    /// Whether all arrivals were taken after the end of the input.
    pub(super) fn is_over(&self) -> bool {
        self.ended && self.in_time.is_empty() && self.late.is_empty()
    }

    /// Takes the next arrival, once no earlier one can follow.
    pub(super) fn pop(&mut self) -> Option<T> {
        let (in_time, late) = (self.in_time.front(), self.late.peek());
        let late = late.map(|Reverse(late)| late);
        let is_late = late.is_some_and(|late| in_time.is_none_or(|in_time| late < in_time));
        let first = if is_late { late } else { in_time }?;
        // An arrival with the same time that comes later would leave after this one, so the window excludes its end.
        if !self.ended && self.latest - first.time < WINDOW {
            return None;
        }
        let first = match is_late {
            true => self.late.pop().map(|Reverse(late)| late),
            false => self.in_time.pop_front(),
        };
        first.map(|first| first.arrival)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns all arrivals, each as soon as it may leave, or the one that was too late.
    fn ordered(times: &[u64]) -> Result<(Vec<(u64, usize)>, Disorder), Late> {
        let mut order = InOrder::new();
        let mut out = Vec::new();
        for (number, &time) in times.iter().enumerate() {
            order.push(time, (time, number))?;
            out.extend(std::iter::from_fn(|| order.pop()));
        }
        order.end();
        out.extend(std::iter::from_fn(|| order.pop()));
        assert!(order.is_over());
        Ok((out, order.disorder))
    }

    #[test]
    fn what_is_in_order_stays_as_it_is() {
        let (out, disorder) = ordered(&[0, 0, 5, 5, 5, 3_000_000, 3_000_000]).unwrap();
        let numbers: Vec<_> = out.iter().map(|&(_, number)| number).collect();
        assert_eq!(numbers, [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!((disorder.moved, disorder.of, disorder.most), (0, 7, 0));
    }

    #[test]
    fn an_arrival_is_put_in_order_up_to_the_window_and_not_beyond() {
        let (out, disorder) = ordered(&[7_000_000, 6_000_000, 7_000_001, 7_000_000]).unwrap();
        assert_eq!(
            out,
            [
                (6_000_000, 1),
                (7_000_000, 0),
                (7_000_000, 3),
                (7_000_001, 2)
            ]
        );
        assert_eq!((disorder.moved, disorder.most), (2, WINDOW));
        assert_eq!(ordered(&[7_000_000, 5_999_999]), Err(Late(7_000_000)));
    }

    #[test]
    fn however_arrivals_are_mixed_within_the_window_they_come_out_in_order() {
        let mut state = 1u64;
        let times: Vec<u64> = (0..5_000u64)
            .map(|number| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                1_000_000 + number * 10_000 + (state >> 33) % 900_000
            })
            .collect();
        let (out, disorder) = ordered(&times).unwrap();
        assert!(out.is_sorted() && out.len() == times.len());
        assert!(disorder.moved > 1_000 && disorder.most <= 900_000);
    }
}
