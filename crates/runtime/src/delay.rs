//! Spans of time, summed up.

use fairlane_core::Nanos;

/// How long something took, over many times: enough for Delta_A and Delta_D of PSPAT's
/// Eq. 1.
///
/// ```
/// use fairlane_core::Nanos;
/// use fairlane_runtime::Spans;
///
/// let mut looks = Spans::default();
/// for micros in [3, 9, 6] {
///     looks.record(Nanos::from_micros(micros));
/// }
/// assert_eq!((looks.mean(), looks.longest()), (Nanos::from_micros(6), Nanos::from_micros(9)));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spans {
    count: u64,
    total: u64,
    longest: Nanos,
}

impl Spans {
    /// Once more. O(1).
    #[inline]
    pub fn record(&mut self, span: Nanos) {
        self.count += 1;
        self.total = self.total.saturating_add(span.0);
        self.longest = self.longest.max(span);
    }

    /// Adds the records of `others`. O(1).
    #[doc(hidden)]
    pub fn merge(&mut self, others: Spans) {
        self.count += others.count;
        self.total = self.total.saturating_add(others.total);
        self.longest = self.longest.max(others.longest);
    }

    /// Returns how many were recorded.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the longest of them.
    pub fn longest(&self) -> Nanos {
        self.longest
    }

    /// Their mean, rounded down; zero if there are none.
    pub fn mean(&self) -> Nanos {
        Nanos(self.total.checked_div(self.count).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_and_longest_are_of_what_was_recorded() {
        let mut spans = Spans::default();
        assert_eq!((spans.mean(), spans.longest()), (Nanos::ZERO, Nanos::ZERO));
        for span in [3, 9, 4] {
            spans.record(Nanos(span));
        }
        assert_eq!(
            (spans.count(), spans.mean(), spans.longest()),
            (3, Nanos(5), Nanos(9))
        );
        let mut others = Spans::default();
        others.merge(spans);
        others.record(Nanos(12));
        spans.merge(others);
        assert_eq!(
            (spans.count(), spans.mean(), spans.longest()),
            (7, Nanos(6), Nanos(12))
        );
        spans.merge(Spans::default());
        assert_eq!(spans.count(), 7);
        spans.record(Nanos::MAX);
        assert_eq!(spans.mean(), Nanos(u64::MAX / 8));
    }
}
