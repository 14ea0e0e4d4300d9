//! Who had what of the link, over time.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::bed::{Run, on_the_link};
use crate::plot::Curve;

/// What each class had of the link in each step of time, as the paper's `cbqmonitor` shows it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Trace {
    /// Length of a step in seconds.
    pub step: f64,
    /// A class each; Mbit/s in each step.
    pub classes: Vec<Vec<f64>>,
}

impl Trace {
    /// Of flows whose class is `classes[flow]`, in `steps` steps since the run began.
    pub(super) fn of(run: &Run, classes: &[usize], step: Duration, steps: u32) -> Trace {
        let count = classes.iter().max().map_or(0, |most| most + 1);
        let mut rates = vec![vec![0.0; steps as usize]; count];
        for (transfer, &class) in run.transfers.iter().zip(classes) {
            for (number, rate) in (0..steps).zip(&mut rates[class]) {
                let from: Instant = run.began + step * number;
                let bits = transfer.bytes(from, from + step) * 8.0;
                *rate += on_the_link(bits, transfer) / step.as_secs_f64() / 1e6;
            }
        }
        Trace {
            step: step.as_secs_f64(),
            classes: rates,
        }
    }

    /// What these classes had together in the steps that lie within the given seconds.
    pub(super) fn sums(&self, classes: &[usize], from: f64, to: f64) -> Vec<f64> {
        let steps = self.classes.first().map_or(0, Vec::len);
        // What a rounding left over of a step does not make it lie outside.
        let within = |number: &usize| {
            let start = *number as f64 * self.step;
            start >= from - 1e-9 && start + self.step <= to + 1e-9
        };
        let sum = |number| {
            classes
                .iter()
                .map(|&class| self.classes[class][number])
                .sum()
        };
        (0..steps).filter(within).map(sum).collect()
    }

    /// A curve for what these classes had together.
    pub(super) fn curve(&self, subject: usize, name: &str, classes: &[usize]) -> Curve {
        let sums = self.sums(classes, 0.0, f64::INFINITY);
        let middle = |number: usize| (number as f64 + 0.5) * self.step;
        let points = sums
            .iter()
            .enumerate()
            .map(|(number, sum)| (middle(number), *sum));
        Curve::ours(subject, name, points.collect())
    }
}

/// The mean, or not a number of nothing.
pub(super) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The largest distance of a value from `target`, as a part of it.
pub(super) fn furthest(values: &[f64], target: f64) -> f64 {
    let far = values.iter().map(|value| (value / target - 1.0).abs());
    far.fold(0.0, f64::max)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use fairlane_netlab::{Transfer, Window};

    /// A flow that brings `mbit` of payload from `from` to `to`, in seconds since `began`.
    pub(crate) fn flow(began: Instant, from: f64, to: f64, mbit: f64) -> Transfer {
        let at = |seconds| began + Duration::from_secs_f64(seconds);
        let count = ((to - from) / 0.1).round() as u32;
        let windows = (0..count).map(|number| Window {
            start: at(from + f64::from(number) * 0.1),
            end: at(from + f64::from(number + 1) * 0.1),
            bytes: (mbit * 1e5 / 8.0) as u64,
        });
        Transfer {
            segment: 1_448,
            retransmits: 0,
            round_trip: Duration::ZERO,
            windows: windows.collect(),
        }
    }

    #[test]
    fn a_trace_has_what_arrived_in_each_step_with_the_frames_around_it() {
        let began = Instant::now();
        let run = Run {
            began,
            // Windows do not begin with steps.
            transfers: vec![
                flow(began, 0.05, 2.05, 14.48),
                flow(began, 1.05, 2.05, 28.96),
            ],
        };
        let step = Duration::from_millis(400);
        let trace = Trace::of(&run, &[0, 1], step, 5);
        let near = |value: f64, expected: f64| (value - expected).abs() < 1e-3 * expected;
        // 1,538 bytes on the wire for 1,448 of payload.
        assert!(near(trace.classes[0][1], 15.38), "{trace:?}");
        assert!(near(trace.classes[0][0], 15.38 * 0.35 / 0.4), "{trace:?}");
        assert_eq!(trace.classes[1][..2], [0.0, 0.0]);
        assert!(near(trace.classes[1][2], 30.76 * 0.15 / 0.4), "{trace:?}");
        let sums = trace.sums(&[0, 1], 1.2, 2.0);
        assert_eq!(sums.len(), 2);
        assert!(near(sums[1], 46.14), "{sums:?}");
        assert!(near(mean(&sums), 46.14) && furthest(&sums, 46.14) < 1e-3);
    }

    #[test]
    fn flows_of_one_class_add_up() {
        let began = Instant::now();
        let run = Run {
            began,
            transfers: vec![flow(began, 0.0, 1.0, 14.48), flow(began, 0.0, 1.0, 14.48)],
        };
        let trace = Trace::of(&run, &[0, 0], Duration::from_millis(500), 2);
        assert_eq!(trace.classes.len(), 1);
        assert!(furthest(&trace.classes[0], 30.76) < 1e-3, "{trace:?}");
    }
}
