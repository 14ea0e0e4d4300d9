//! How often something is measured, and what comes of it.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::frames::FRAMES;

/// How much is measured for each figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    /// At least so many packets.
    Packets(u64),
    /// Rounds for so long, one of them at least.
    Seconds(f64),
}

/// Rounds of all frames, as long as there are not enough; the first, which warms up, counts for nothing.
pub(super) struct Rounds {
    amount: Amount,
    begun: Instant,
    done: u64,
}

impl Rounds {
    pub(super) fn new(amount: Amount) -> Rounds {
        Rounds {
            amount,
            begun: Instant::now(),
            done: 0,
        }
    }

    /// Whether there is another round, which is to be made then.
    pub(super) fn more(&mut self) -> bool {
        let counted = self.done.saturating_sub(1);
        let enough = match self.amount {
            Amount::Packets(packets) => counted * FRAMES as u64 >= packets,
            Amount::Seconds(seconds) => self.begun.elapsed().as_secs_f64() >= seconds,
        };
        let more = counted == 0 || !enough;
        self.done += u64::from(more);
        more
    }
}

/// The figure of rounds on one thread, each of which takes as long as `round` says.
pub(super) fn measured(amount: Amount, mut round: impl FnMut() -> Duration) -> Figure {
    let mut rounds = Rounds::new(amount);
    let mut taken = Vec::new();
    while rounds.more() {
        taken.push(round());
    }
    Figure::of(&taken)
}

/// How long it took to do that.
pub(super) fn timed(work: impl FnOnce()) -> Duration {
    let begun = Instant::now();
    work();
    begun.elapsed()
}

/// Nanoseconds a packet: the median of the rounds, and what a tenth of them were below and above.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Figure {
    pub ns: f64,
    pub p10_ns: f64,
    pub p90_ns: f64,
    pub rounds: usize,
}

impl Figure {
    /// Of what rounds of all frames took, the first of which warmed up.
    pub(super) fn of(rounds: &[Duration]) -> Figure {
        let mut rounds = rounds[1..].to_vec();
        rounds.sort_unstable();
        let at = |part: f64| {
            let place = (rounds.len() - 1) as f64 * part;
            rounds[place.round() as usize].as_nanos() as f64 / FRAMES as f64
        };
        Figure {
            ns: at(0.5),
            p10_ns: at(0.1),
            p90_ns: at(0.9),
            rounds: rounds.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(amount: Amount) -> usize {
        let mut rounds = Rounds::new(amount);
        std::iter::from_fn(|| rounds.more().then_some(())).count()
    }

    #[test]
    fn one_round_warms_up_and_the_others_have_all_packets() {
        let frames = FRAMES as u64;
        for (packets, rounds) in [(1, 1), (frames, 1), (frames + 1, 2), (10 * frames, 10)] {
            assert_eq!(count(Amount::Packets(packets)), 1 + rounds, "{packets}");
        }
        assert_eq!(count(Amount::Seconds(0.0)), 2);
    }

    #[test]
    fn a_figure_is_the_median_beside_what_a_tenth_was_below_and_above() {
        let round = |ns: u64| Duration::from_nanos(ns * FRAMES as u64);
        let mut rounds = vec![round(1_000)];
        rounds.extend((1..=11).rev().map(round));
        let figure = Figure {
            ns: 6.0,
            p10_ns: 2.0,
            p90_ns: 10.0,
            rounds: 11,
        };
        assert_eq!(Figure::of(&rounds), figure);
    }
}
