//! Simulation of both methods of dividing a link among shards:
//!
//! `cargo run --release -p fairlane-shards --example shards [MILLISECONDS [SHARDS..]]`
//!
//! `used` is the utilization of the wire while a shard was backlogged; `idle` its idle time then, `longest` the longest
//! contiguous part; `reuse` the time after a shard became idle until the wire was used fully; `spread` the worst
//! difference of two shards' service over their shares in any interval in which both were backlogged, as time of the
//! link; `apart` that of their virtual times, and its bound; `queue` the largest backlog of the wire; `out` how often a
//! shard was left out. All times in us.

use fairlane_shards::simulation::{Candidate, Report, Scenario, Setup};

/// The intervals of the exchange, in nanoseconds: that of `cake_mq`, and a tenth of that.
const INTERVALS: [u64; 2] = [200_000, 20_000];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let span = arguments.next().map_or(Ok(100), |ms| ms.parse::<u64>())? * 1_000_000;
    let mut numbers: Vec<u32> = arguments.map(|n| n.parse()).collect::<Result<_, _>>()?;
    if numbers.is_empty() {
        numbers = vec![2, 8, 64];
    }
    println!(
        "{:14} {:>2} {:15} {:>8} {:>9} {:>8} {:>7} {:>8} {:>6} {:>7} {:>5}",
        "scenario",
        "n",
        "by",
        "used %",
        "idle",
        "longest",
        "reuse",
        "spread",
        "apart",
        "queue",
        "out"
    );
    for scenario in Scenario::ALL {
        for &shards in &numbers {
            let exchanges = INTERVALS.map(|every| Candidate::Exchange { every });
            for candidate in [Candidate::LinkClock].into_iter().chain(exchanges) {
                let setup = scenario.setup(shards, candidate, span, 1);
                row(scenario, &setup, &setup.run()?);
            }
        }
    }
    Ok(())
}

fn row(scenario: Scenario, setup: &Setup, report: &Report) {
    let by = match setup.candidate {
        Candidate::LinkClock => "link clock".to_owned(),
        Candidate::Exchange { every } => format!("exchange {} us", every / 1000),
    };
    let weights = setup.members.iter().map(|member| member.weight);
    let whole: u64 = weights.clone().map(u64::from).sum();
    let allowed = setup.config.apart(weights.min().unwrap_or(1), whole);
    let us = |ns: u64| ns as f64 / 1e3;
    let carried = |bytes: f64| bytes * 8e6 / setup.config.rate as f64;
    println!(
        "{scenario:14} {:>2} {by:15} {:>8.4} {:>9.1} {:>8.1} {:>7.1} {:>8.1} {:>5.0}% {:>7.1} {:>5}",
        setup.members.len(),
        report.used * 100.0,
        us(report.idle),
        us(report.longest_idle),
        us(report.reuse),
        carried(report.spread),
        report.apart as f64 / allowed as f64 * 100.0,
        carried(report.queue as f64),
        report.left_out.iter().sum::<u64>(),
    );
}
