//! Test scenarios: 100 Gbit/s, batches of 15,000 bytes.

use super::{Candidate, Core, Member, Setup, Source};
use crate::Config;
use core::fmt;

/// Arrivals at the shards, and interruptions of their threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// All shards are always backlogged.
    Greedy,
    /// The same, with weights from 1 to 7.
    Weights,
    /// All traffic arrives at one shard.
    OneShard,
    /// All are backlogged for 300 us and idle for 200 us, at the same time.
    InPhase,
    /// Each is backlogged for 100 to 400 us and idle for 100 to 300 us.
    OutOfPhase,
    /// Bursts of random sizes at random times, 95% of the link in all.
    Bursts,
    /// One with half the weight is backlogged for 500 us and idle for 500 us; the others are always backlogged.
    Leaves,
    /// All are always backlogged, and one's core is up to seven times slower, but fast enough for its share.
    SlowCore,
    /// All are always backlogged, and one's core can carry only a third of its share.
    TooSlowCore,
    /// All are always backlogged, and one's thread loses its core for 1 ms now and then.
    Stops,
}

impl Scenario {
    /// All of them.
    pub const ALL: [Scenario; 10] = [
        Scenario::Greedy,
        Scenario::Weights,
        Scenario::OneShard,
        Scenario::InPhase,
        Scenario::OutOfPhase,
        Scenario::Bursts,
        Scenario::Leaves,
        Scenario::SlowCore,
        Scenario::TooSlowCore,
        Scenario::Stops,
    ];

    /// Returns the setup with this number of shards of 100 Gbit/s for `span` nanoseconds. The lead is two batches over
    /// an equal share, the queue 10 us, the patience 5 us.
    #[must_use]
    pub fn setup(self, shards: u32, candidate: Candidate, span: u64, seed: u64) -> Setup {
        let batch = 15_000;
        let config = Config {
            rate: 100_000_000_000,
            batch,
            ahead: 125_000,
            catch_up: 0,
            lead: 2 * u64::from(batch) * u64::from(shards),
            patience: 5_000,
        };
        Setup {
            config,
            members: (0..shards)
                .map(|place| self.member(place, shards))
                .collect(),
            candidate,
            span,
            seed,
        }
    }

    fn member(self, place: u32, shards: u32) -> Member {
        let (first, place, number) = (place == 0, u64::from(place), u64::from(shards));
        let mut member = Member {
            weight: 1,
            core: Core::default(),
            source: Source::Always,
        };
        match self {
            Scenario::Weights => member.weight = 1 + (place * 5 % 7) as u32,
            Scenario::OneShard if !first => {
                member.source = Source::OnOff {
                    start: u64::MAX / 2,
                    on: 1,
                    off: 1,
                }
            }
            Scenario::InPhase => {
                member.source = Source::OnOff {
                    start: 0,
                    on: 300_000,
                    off: 200_000,
                }
            }
            Scenario::OutOfPhase => {
                member.source = Source::OnOff {
                    start: 17_000 * place,
                    on: 100_000 + 37_000 * (place % 9),
                    off: 100_000 + 23_000 * (place % 7),
                }
            }
            // 12.5 bytes per nanosecond.
            Scenario::Bursts => {
                member.source = Source::Bursts {
                    bytes: 60_000,
                    gap: 60_000 * number * 1000 / (12_500 * 95 / 100),
                }
            }
            Scenario::Leaves if first => {
                member.weight = shards - 1;
                member.source = Source::OnOff {
                    start: 0,
                    on: 500_000,
                    off: 500_000,
                }
            }
            // A core carries about 17 bytes per nanosecond, and all shards together must carry 12.5.
            Scenario::SlowCore if first => {
                member.core = member.core.slower((number * 9 / 10).clamp(1, 7))
            }
            Scenario::TooSlowCore if first => member.core = member.core.slower(number * 4),
            Scenario::Stops if first => {
                member.core.stops_one_in = 500;
                member.core.stops_for = 1_000_000;
            }
            _ => {}
        }
        member
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Scenario::Greedy => "greedy",
            Scenario::Weights => "weights",
            Scenario::OneShard => "one shard",
            Scenario::InPhase => "in phase",
            Scenario::OutOfPhase => "out of phase",
            Scenario::Bursts => "bursts",
            Scenario::Leaves => "leaves",
            Scenario::SlowCore => "slow core",
            Scenario::TooSlowCore => "too slow core",
            Scenario::Stops => "stops",
        })
    }
}
