//! Sources of traffic, the same packets for the same seed.

use crate::random::Random;
use crate::time::{Picos, Work};
use core::fmt;
use fairlane_core::{Length, Rate};
use std::collections::VecDeque;

/// The lengths of a source's packets, each drawn independently.
#[derive(Clone, Debug, PartialEq)]
pub enum Lengths {
    /// All the same.
    Fixed(Length),
    /// Each from the first to the second equally likely; in either order.
    Uniform(Length, Length),
    /// Each in proportion to its number, at least one of which is not 0.
    Weighted(Vec<(Length, u32)>),
}

impl Lengths {
    fn check(&self) -> Result<(), SourceError> {
        match self {
            Lengths::Weighted(choices) if choices.iter().all(|&(_, weight)| weight == 0) => {
                Err(SourceError::NoLength)
            }
            _ => Ok(()),
        }
    }

    fn draw(&self, random: &mut Random) -> Length {
        match self {
            Lengths::Fixed(len) => *len,
            Lengths::Uniform(a, b) => {
                let least = a.get().min(b.get());
                let choices = a.get().abs_diff(b.get()) + 1;
                let more = random.below(choices.into()) as u32;
                Length::new(least + more).unwrap_or(*a)
            }
            Lengths::Weighted(choices) => {
                let all: u64 = choices.iter().map(|&(_, weight)| u64::from(weight)).sum();
                let mut ticket = random.below(all);
                for &(len, weight) in choices {
                    if ticket < u64::from(weight) {
                        return len;
                    }
                    ticket -= u64::from(weight);
                }
                Length::MAX
            }
        }
    }

    /// Returns the longest that may be drawn.
    pub fn longest(&self) -> Length {
        match self {
            Lengths::Fixed(len) => *len,
            Lengths::Uniform(a, b) => *a.max(b),
            Lengths::Weighted(choices) => {
                let lengths = choices.iter().map(|&(len, _)| len);
                lengths.max().unwrap_or(Length::MAX)
            }
        }
    }

    /// In bytes.
    fn mean(&self) -> f64 {
        match self {
            Lengths::Fixed(len) => f64::from(len.get()),
            Lengths::Uniform(a, b) => f64::from(a.get() + b.get()) / 2.0,
            Lengths::Weighted(choices) => {
                let all: f64 = choices.iter().map(|&(_, weight)| f64::from(weight)).sum();
                let bytes = choices
                    .iter()
                    .map(|&(len, weight)| f64::from(len.get()) * f64::from(weight));
                bytes.sum::<f64>() / all
            }
        }
    }
}

/// When a source sends.
#[derive(Clone, Debug, PartialEq)]
pub enum Traffic {
    /// Always backlogged: keeps this many packets in the scheduler, at least 1. With 1 it is idle for an
    /// instant at each departure.
    Greedy(u32),
    /// Constant bit rate: a packet follows another after the time it takes at this rate.
    Cbr(Rate),
    /// A Poisson process with this mean rate.
    Poisson(Rate),
    /// Sends at the peak rate while on, nothing while off. Both spans have Pareto
    /// distributions of shape `alpha`; up to 2 their variance is infinite, which makes the
    /// sum of many sources self-similar.
    ParetoOnOff {
        /// The shape, above 1.
        alpha: f64,
        /// Mean span of sending, above 0.
        mean_on: Picos,
        /// Mean span of silence.
        mean_off: Picos,
        /// Rate while on.
        peak: Rate,
    },
    /// A burst of this many packets, every period, which is above 0.
    Bursty {
        /// Packets of one burst.
        packets: u32,
        /// From one burst to the next.
        period: Picos,
    },
    /// These packets, at times since the start, in any order. Lengths are the trace's own.
    Trace(Vec<(Picos, Length)>),
}

impl Traffic {
    /// Returns the longest packet, where a source draws these lengths.
    pub(crate) fn longest(&self, lengths: &Lengths) -> Length {
        let of_trace = match self {
            Traffic::Trace(packets) => packets.iter().map(|&(_, len)| len).max(),
            _ => None,
        };
        of_trace.unwrap_or_else(|| lengths.longest())
    }
}

/// Why there is no such source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SourceError {
    /// A weighted choice among no lengths.
    NoLength,
    /// A Pareto distribution without a mean.
    NoMean,
    /// A span of time that must be above zero is not.
    NoTime,
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SourceError::NoLength => "a weighted choice needs a length whose weight is not 0",
            SourceError::NoMean => "alpha must be a number above 1, or the spans have no mean",
            SourceError::NoTime => "the period, or the mean span of sending, must be above 0",
        })
    }
}

impl std::error::Error for SourceError {}

/// A source of packets.
///
/// The same seed gives the same packets on every machine, and in every release: it draws by SplitMix64, and
/// reckons with nothing but what IEEE 754 says exactly.
#[derive(Clone, Debug)]
pub struct Source {
    traffic: Traffic,
    lengths: Lengths,
    random: Random,
    /// Bits sent at a constant rate.
    bits: u128,
    /// When the next packet leaves, apart from that.
    time: Picos,
    /// The remaining time of the sending span, or the remaining burst.
    on: Picos,
    burst: u32,
    trace: VecDeque<(Picos, Length)>,
}

impl Source {
    /// Returns a source that has sent nothing.
    pub fn new(traffic: Traffic, lengths: Lengths, seed: u64) -> Result<Source, SourceError> {
        lengths.check()?;
        let mut trace = VecDeque::new();
        match &traffic {
            Traffic::ParetoOnOff { alpha, mean_on, .. } => {
                if !(alpha.is_finite() && *alpha > 1.0) {
                    return Err(SourceError::NoMean);
                }
                if *mean_on == Picos::ZERO {
                    return Err(SourceError::NoTime);
                }
            }
            Traffic::Bursty { period, .. } if *period == Picos::ZERO => {
                return Err(SourceError::NoTime);
            }
            Traffic::Trace(packets) => {
                trace.extend(packets.iter().copied());
                trace.make_contiguous().sort_by_key(|&(time, _)| time);
            }
            _ => {}
        }
        let mut source = Source {
            traffic,
            lengths,
            random: Random::new(seed),
            bits: 0,
            time: Picos::ZERO,
            on: Picos::ZERO,
            burst: 0,
            trace,
        };
        match source.traffic {
            Traffic::ParetoOnOff { alpha, mean_on, .. } => {
                source.on = source.pareto(alpha, mean_on);
            }
            Traffic::Poisson(rate) => source.time = source.exponential(rate),
            _ => {}
        }
        Ok(source)
    }

    /// Returns how many packets it keeps in the scheduler, if that is its way.
    pub fn keeps(&self) -> Option<u32> {
        match self.traffic {
            Traffic::Greedy(packets) => Some(packets),
            _ => None,
        }
    }

    /// Returns its next packet, and when it is sent, since the start; a greedy source would always
    /// send now. `None` when a trace is over.
    pub fn next_packet(&mut self) -> Option<(Picos, Length)> {
        if let Traffic::Trace(_) = self.traffic {
            return self.trace.pop_front();
        }
        let len = self.lengths.draw(&mut self.random);
        let bits = u128::from(len.get()) * 8;
        let mut time = self.time;
        match self.traffic {
            Traffic::Greedy(_) | Traffic::Trace(_) => {}
            Traffic::Cbr(rate) => {
                time = duration(self.bits, rate);
                self.bits += bits;
            }
            Traffic::Poisson(rate) => {
                self.time = time + self.exponential(rate);
            }
            Traffic::ParetoOnOff {
                alpha,
                mean_on,
                mean_off,
                peak,
            } => {
                // A packet may take several spans, so that short ones count in the mean.
                let mut left = duration(self.bits + bits, peak) - duration(self.bits, peak);
                self.bits += bits;
                while left > self.on {
                    left = left - self.on;
                    let off = self.pareto(alpha, mean_off);
                    self.time += self.on + off;
                    self.on = self.pareto(alpha, mean_on);
                }
                self.on = self.on - left;
                self.time += left;
            }
            Traffic::Bursty { packets, period } => {
                if packets == 0 {
                    return None;
                }
                self.burst += 1;
                if self.burst == packets {
                    self.burst = 0;
                    self.time += period;
                }
            }
        }
        Some((time, len))
    }

    fn exponential(&mut self, rate: Rate) -> Picos {
        let mean = self.lengths.mean() * 8.0 / rate.bps() as f64;
        Picos::from_secs_f64(mean * self.random.exponential())
    }

    /// At least a picosecond, so that every span brings the source forward.
    fn pareto(&mut self, alpha: f64, mean: Picos) -> Picos {
        let least = mean.as_secs_f64() * (alpha - 1.0) / alpha;
        Picos::from_secs_f64(least * self.random.pareto(alpha)).max(Picos(1))
    }
}

fn duration(bits: u128, rate: Rate) -> Picos {
    Picos(Work::from_bits(bits).0 / u128::from(rate.bps()))
}
