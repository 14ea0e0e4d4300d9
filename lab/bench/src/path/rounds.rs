//! Repetition of measurements, and its statistics.

use std::ops::AddAssign;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::frames::FRAMES;
use crate::instructions::{Counter, Of};

/// How much is measured for each figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    /// At least this many packets.
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

    /// Returns whether there is another round, which the caller then makes.
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

/// Measures rounds on one thread; `round` returns the cost of each.
pub(super) fn measured(amount: Amount, mut round: impl FnMut(&mut Stopwatch) -> Taken) -> Figure {
    let (mut rounds, mut watch) = (Rounds::new(amount), Stopwatch::of_this_thread());
    let mut taken = Vec::new();
    while rounds.more() {
        taken.push(round(&mut watch));
    }
    Figure::of(&taken)
}

/// The cost of a piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Taken {
    time: Duration,
    /// Where they were counted.
    instructions: Option<u64>,
}

impl Taken {
    pub(super) const NOTHING: Taken = Taken {
        time: Duration::ZERO,
        instructions: Some(0),
    };
}

impl From<Duration> for Taken {
    fn from(time: Duration) -> Taken {
        Taken {
            time,
            instructions: None,
        }
    }
}

impl AddAssign for Taken {
    fn add_assign(&mut self, other: Taken) {
        self.time += other.time;
        let both = self.instructions.zip(other.instructions);
        self.instructions = both.map(|(sum, more)| sum + more);
    }
}

/// Looks at the clock, and at the instructions of its thread where the machine counts them.
pub(super) struct Stopwatch(Option<Counter>);

impl Stopwatch {
    pub(super) fn of_this_thread() -> Stopwatch {
        Stopwatch(Counter::of_this_thread(Of::Program).ok())
    }

    fn instructions(&mut self) -> Option<u64> {
        self.0.as_mut().and_then(Counter::read)
    }

    /// Measures the cost of `work`.
    pub(super) fn timed(&mut self, work: impl FnOnce()) -> Taken {
        let before = self.instructions();
        let begun = Instant::now();
        work();
        let time = begun.elapsed();
        let counted = before.zip(self.instructions());
        Taken {
            time,
            instructions: counted.map(|(before, after)| after - before),
        }
    }
}

/// Nanoseconds a packet: the median of the rounds, and their 10th and 90th percentiles.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Figure {
    pub ns: f64,
    pub p10_ns: f64,
    pub p90_ns: f64,
    /// A packet's, the median of the rounds, where they were counted.
    pub instructions: Option<f64>,
    pub rounds: usize,
}

impl Figure {
    /// Of what rounds of all frames took, the first of which warmed up.
    pub(super) fn of(rounds: &[Taken]) -> Figure {
        let rounds = &rounds[1..];
        let times = sorted(rounds.iter().map(|round| round.time.as_nanos() as f64));
        let counted = rounds.iter().filter_map(|round| round.instructions);
        let counted = sorted(counted.map(|instructions| instructions as f64));
        Figure {
            ns: at(&times, 0.5),
            p10_ns: at(&times, 0.1),
            p90_ns: at(&times, 0.9),
            instructions: (!counted.is_empty()).then(|| at(&counted, 0.5)),
            rounds: rounds.len(),
        }
    }
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values
}

/// A packet's part of what this part of the rounds is below.
fn at(rounds: &[f64], part: f64) -> f64 {
    let place = (rounds.len() - 1) as f64 * part;
    rounds[place.round() as usize] / FRAMES as f64
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
        let round = |ns: u64| Taken {
            time: Duration::from_nanos(ns * FRAMES as u64),
            instructions: Some(3 * ns * FRAMES as u64),
        };
        let mut rounds = vec![round(1_000)];
        rounds.extend((1..=11).rev().map(round));
        let figure = Figure {
            ns: 6.0,
            p10_ns: 2.0,
            p90_ns: 10.0,
            instructions: Some(18.0),
            rounds: 11,
        };
        assert_eq!(Figure::of(&rounds), figure);
        // Of the rounds in which they were counted, if there is one.
        for round in &mut rounds[..10] {
            round.instructions = None;
        }
        assert_eq!(Figure::of(&rounds).instructions, Some(6.0));
        for round in &mut rounds {
            round.instructions = None;
        }
        assert_eq!(Figure::of(&rounds).instructions, None);
    }

    #[test]
    fn parts_of_a_round_are_counted_together_or_not_at_all() {
        let mut sum = Taken::NOTHING;
        for instructions in [3, 4] {
            sum += Taken {
                time: Duration::from_nanos(5),
                instructions: Some(instructions),
            };
        }
        assert_eq!((sum.time.as_nanos(), sum.instructions), (10, Some(7)));
        sum += Duration::from_nanos(1).into();
        assert_eq!((sum.time.as_nanos(), sum.instructions), (11, None));
    }
}
