//! The results.

use serde::Serialize;

use super::lab::BackendKind;
use super::meter::Sample;
use super::subject::What;

/// All figures of a run.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// Bytes of a packet.
    pub packet: u32,
    /// Of the scheduler.
    pub alg: &'static str,
    pub aggregate: u32,
    pub flows: u8,
    /// Of each measurement in each round.
    pub seconds: f64,
    /// Complete ones.
    pub rounds: usize,
    pub interface: Option<String>,
    pub backends: Vec<Measured>,
    pub skipped: Vec<Skipped>,
}

/// One backend's figures.
#[derive(Debug, Serialize)]
pub(super) struct Measured {
    pub backend: &'static str,
    /// How it exchanges packets with the device, where there are several ways.
    pub mode: Option<String>,
    pub transmit: Figures,
    pub receive: Option<Figures>,
    pub forward: Option<Figures>,
    pub scheduled: Option<Figures>,
    /// CPU time per packet forwarded with the scheduler, by that without: the median of the
    /// rounds' ratios.
    pub ratio: Option<f64>,
}

/// Medians of the rounds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Figures {
    /// Millions of packets a second: while there is work, or for received packets, while the
    /// generator sends.
    pub mpps: f64,
    /// Nanoseconds of CPU time per packet.
    pub cpu_ns: f64,
    /// Instructions per packet, the kernel's included; null where they are not counted.
    pub instructions: Option<f64>,
    /// Packets moved at once, on average.
    pub batch: f64,
    /// In all rounds together.
    pub packets: u64,
}

/// A backend that was not measured.
#[derive(Debug, Serialize)]
pub(super) struct Skipped {
    pub backend: &'static str,
    pub reason: String,
}

/// The results of one backend in each complete round.
#[derive(Debug, Default)]
pub(super) struct Samples {
    pub transmit: Vec<Sample>,
    pub receive: Vec<Sample>,
    pub forward: Vec<Sample>,
    pub scheduled: Vec<Sample>,
}

impl Samples {
    pub(super) fn of(&mut self, what: What) -> &mut Vec<Sample> {
        match what {
            What::Transmit => &mut self.transmit,
            What::Receive => &mut self.receive,
            What::Forward => &mut self.forward,
            What::Scheduled => &mut self.scheduled,
        }
    }

    pub(super) fn measured(&self, kind: BackendKind, mode: Option<String>) -> Option<Measured> {
        let pairs = self.scheduled.iter().zip(&self.forward);
        Some(Measured {
            backend: kind.name(),
            mode,
            transmit: figures(What::Transmit, &self.transmit)?,
            receive: figures(What::Receive, &self.receive),
            forward: figures(What::Forward, &self.forward),
            scheduled: figures(What::Scheduled, &self.scheduled),
            ratio: median(pairs.map(|(with, without)| cpu_ns(with) / cpu_ns(without))),
        })
    }
}

fn figures(what: What, samples: &[Sample]) -> Option<Figures> {
    let over = |sample: &Sample| match what {
        What::Receive => sample.span,
        What::Transmit | What::Forward | What::Scheduled => sample.busy,
    };
    let mpps = |sample: &Sample| sample.packets as f64 / over(sample).as_secs_f64() / 1e6;
    let batch = |sample: &Sample| sample.packets as f64 / sample.rounds.max(1) as f64;
    Some(Figures {
        mpps: median(samples.iter().map(mpps))?,
        cpu_ns: median(samples.iter().map(cpu_ns))?,
        instructions: median(samples.iter().filter_map(instructions)),
        batch: median(samples.iter().map(batch))?,
        packets: samples.iter().map(|sample| sample.packets).sum(),
    })
}

fn cpu_ns(sample: &Sample) -> f64 {
    sample.cpu.as_nanos() as f64 / sample.packets.max(1) as f64
}

fn instructions(sample: &Sample) -> Option<f64> {
    Some(sample.instructions? as f64 / sample.packets.max(1) as f64)
}

/// Of an even number, the mean of the two in the middle.
fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    Some(match values.len() % 2 {
        0 => (values[values.len() / 2 - 1] + upper) / 2.0,
        _ => upper,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn sample(packets: u64, cpu: u64) -> Sample {
        Sample {
            packets,
            rounds: packets / 10,
            cpu: Duration::from_micros(cpu),
            busy: Duration::from_micros(2 * cpu),
            span: Duration::from_micros(4 * cpu),
            instructions: Some(3_000 * cpu),
        }
    }

    #[test]
    fn the_ratio_compares_what_ran_in_the_same_round() {
        // A machine that becomes four times slower in the second round.
        let samples = Samples {
            transmit: vec![sample(1_000, 500); 3],
            receive: Vec::new(),
            forward: vec![
                sample(1_000, 1_000),
                sample(1_000, 4_000),
                sample(1_000, 1_000),
            ],
            scheduled: vec![sample(1_000, 1_100), sample(1_000, 4_400), sample(500, 550)],
        };
        let measured = samples.measured(BackendKind::Xdp, None).unwrap();
        assert!((measured.ratio.unwrap() - 1.1).abs() < 1e-9);
        assert!(measured.receive.is_none());
        let scheduled = measured.scheduled.unwrap();
        assert_eq!(scheduled.instructions, Some(3_300.0));
        assert!((scheduled.cpu_ns - 1_100.0).abs() < 1e-9);
        assert_eq!((scheduled.batch, scheduled.packets), (10.0, 2_500));
    }

    #[test]
    fn what_is_forwarded_counts_by_the_busy_time_and_what_is_received_by_all() {
        let samples = [sample(1_000, 500)];
        assert_eq!(figures(What::Forward, &samples).unwrap().mpps, 1.0);
        assert_eq!(figures(What::Receive, &samples).unwrap().mpps, 0.5);
    }

    #[test]
    fn a_median_is_in_the_middle() {
        assert_eq!(median([].into_iter()), None);
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), Some(2.0));
        assert_eq!(median([4.0, 1.0, 2.0, 100.0].into_iter()), Some(3.0));
    }
}
