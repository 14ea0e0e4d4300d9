//! Evaluation of the records of all arbiters.

use fairlane_shards::Config;
use serde::Serialize;

use super::part::{Log, Record};

/// Over how long a shard's share is looked at, in nanoseconds.
const SHARE_NS: u64 = 10_000_000;

const SECOND_NS: u64 = 1_000_000_000;

/// Shards for which there is a prediction.
const PREDICTED: u32 = 8;

/// Accesses to shared memory of a visit to all others, in addition to one for each of them.
const ACCESSES: u32 = 3;

/// The measurement and its parameters.
pub(super) struct Setting<'a> {
    pub weights: &'a [u32],
    pub config: Config,
    pub cores: usize,
    pub length: u32,
    pub flows: u32,
    pub goes_idle_ms: Option<u32>,
    /// For how long the others have to carry the whole link.
    pub window_ns: u64,
    /// Time to read the clock.
    pub clock_ns: u64,
}

/// The printed results.
#[derive(Debug, Serialize)]
pub(super) struct Outcome {
    pub shards: usize,
    /// Cores that the shards were spread over.
    pub cores: usize,
    pub rate_bps: u64,
    pub length: u32,
    pub flows: u32,
    pub batch_bytes: u32,
    pub ahead_bytes: u64,
    pub patience_ns: u64,
    pub goes_idle_ms: Option<u32>,
    /// While all arbiters ran.
    pub seconds: f64,
    pub decisions: u64,
    pub decisions_per_sec: f64,
    pub aggregate: Aggregate,
    pub lead: Lead,
    pub parts: Vec<Part>,
    pub left_to_others: Option<LeftToOthers>,
    pub costs: Costs,
    pub predicted: Prediction,
}

/// The total taken, less the part given back.
#[derive(Debug, Serialize)]
pub(super) struct Aggregate {
    /// Whole seconds, or all of the time if that is shorter.
    pub windows: usize,
    /// Relative to the link's capacity in a window.
    pub least_over_rate: f64,
    pub most_over_rate: f64,
    /// The most by which it was above the rate's, from the beginning on, and Q and a batch.
    pub above_rate_bytes: u64,
    pub above_rate_bound_bytes: u64,
}

/// How far a shard stood above the floor after it took a batch, which none of those that count is below.
#[derive(Debug, Serialize)]
pub(super) struct Lead {
    pub longest_bytes: u64,
    /// B, and a batch over the least share.
    pub bound_bytes: u64,
}

/// One shard.
#[derive(Debug, Serialize)]
pub(super) struct Part {
    pub weight: u32,
    pub share: f64,
    /// The largest deviation of its share of all that was taken in 10 ms from its weight's share, relative to that;
    /// `None` if one goes idle.
    pub worst_off: Option<f64>,
    pub decisions: u64,
    pub batches: u64,
    /// Empty visits: enough of the link was claimed; another shard was too far behind.
    pub looks_wire: u64,
    pub looks_others: u64,
    pub went_idle: u64,
    pub left_out: u64,
}

/// From when the first shard went idle, until the others took the whole link's rate.
#[derive(Debug, Serialize)]
pub(super) struct LeftToOthers {
    /// They should take it for this long, except for two batches.
    pub window_us: f64,
    pub times: u64,
    /// How often they did not before it resumed.
    pub not_reached: u64,
    pub p50_us: f64,
    pub p90_us: f64,
    pub p99_us: f64,
    pub longest_us: f64,
}

/// Medians, in nanoseconds, without what reading the clock takes.
#[derive(Debug, Serialize)]
pub(super) struct Costs {
    /// A packet's way in and out, without looks.
    pub decision_ns: f64,
    /// A look that took a batch.
    pub look_ns: f64,
    /// All visits, including empty ones, over the batches.
    pub looks_ns_a_batch: f64,
    pub clock_ns: u64,
}

/// The decisions of this many shards on cores of their own, if cores do not compete for memory or caches.
#[derive(Debug, Serialize)]
pub(super) struct Prediction {
    pub shards: u32,
    /// A look that reads all others.
    pub look_ns: f64,
    pub decisions_per_sec: f64,
    /// How often all of them write the wire's word, which one line has to bear.
    pub wire_writes_per_sec: f64,
    /// Over one arbiter that makes no looks, and decides in the time that one of these was measured to take.
    pub over_one: f64,
}

impl Outcome {
    pub(super) fn of(setting: &Setting, logs: &[Log]) -> Outcome {
        let began = logs.iter().map(|log| log.began).max().unwrap_or(0);
        let ended = logs.iter().map(|log| log.ended).min().unwrap_or(0);
        let seconds = ended.saturating_sub(began) as f64 / 1e9;
        let decisions = logs.iter().map(|log| log.released).sum();
        let costs = Costs::of(setting, logs);
        let config = setting.config;
        Outcome {
            shards: logs.len(),
            cores: setting.cores,
            rate_bps: config.rate,
            length: setting.length,
            flows: setting.flows,
            batch_bytes: config.batch,
            ahead_bytes: config.ahead,
            patience_ns: config.patience,
            goes_idle_ms: setting.goes_idle_ms,
            seconds,
            decisions,
            decisions_per_sec: decisions as f64 / seconds,
            aggregate: Aggregate::of(config, logs, (began, ended)),
            lead: Lead::of(setting, logs),
            parts: parts(setting, logs, (began, ended)),
            left_to_others: (setting.goes_idle_ms)
                .map(|_| LeftToOthers::of(setting, &logs[0], &logs[1..], ended)),
            predicted: Prediction::of(setting, &costs),
            costs,
        }
    }
}

/// Returns the amounts that these took and gave back, by time.
fn merged<'a>(logs: impl IntoIterator<Item = &'a Log>) -> Vec<(u64, i64)> {
    let records = logs.into_iter().flat_map(|log| &log.records);
    let mut merged: Vec<_> = records.map(|record| (record.at, record.bytes)).collect();
    merged.sort_unstable_by_key(|&(at, _)| at);
    merged
}

/// Returns the sum in each whole span of `ns`, from `began` to `ended`; in all of it, if it is
/// shorter.
fn spans(taken: &[(u64, i64)], (began, ended): (u64, u64), ns: u64) -> (u64, Vec<i64>) {
    let ns = ns.min(ended.saturating_sub(began).max(1));
    let mut sums = vec![0; (ended.saturating_sub(began) / ns) as usize];
    for &(at, bytes) in taken.iter().filter(|&&(at, _)| at >= began) {
        if let Some(sum) = sums.get_mut(((at - began) / ns) as usize) {
            *sum += bytes;
        }
    }
    (ns, sums)
}

/// Returns the value that this part of them is not above; sorts them.
fn quantile(values: &mut [f64], part: f64) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let last = values.len().saturating_sub(1) as f64;
    let at = (last * part).round() as usize;
    values.get(at).copied().unwrap_or(0.0)
}

/// Returns the link's capacity in `ns` nanoseconds.
fn carried(config: Config, ns: u64) -> f64 {
    config.rate as f64 / 8e9 * ns as f64
}

impl Aggregate {
    fn of(config: Config, logs: &[Log], time: (u64, u64)) -> Aggregate {
        let taken = merged(logs);
        let (ns, sums) = spans(&taken, time, SECOND_NS);
        let over = |&sum: &i64| sum as f64 / carried(config, ns);
        let (mut sum, mut above) = (0, 0.0_f64);
        for &(at, bytes) in &taken {
            sum += bytes;
            above = above.max(sum as f64 - carried(config, at));
        }
        Aggregate {
            windows: sums.len(),
            least_over_rate: sums.iter().map(over).fold(f64::INFINITY, f64::min),
            most_over_rate: sums.iter().map(over).fold(0.0, f64::max),
            above_rate_bytes: above.ceil() as u64,
            above_rate_bound_bytes: config.ahead + u64::from(config.batch),
        }
    }
}

impl Lead {
    fn of(setting: &Setting, logs: &[Log]) -> Lead {
        let records = logs.iter().flat_map(|log| &log.records);
        let least = setting.weights.iter().copied().min().unwrap_or(1);
        Lead {
            longest_bytes: records.map(|record| record.above_floor).max().unwrap_or(0),
            bound_bytes: setting.config.apart(least, whole(setting)),
        }
    }
}

fn whole(setting: &Setting) -> u64 {
    setting.weights.iter().copied().map(u64::from).sum()
}

fn parts(setting: &Setting, logs: &[Log], time: (u64, u64)) -> Vec<Part> {
    let taken = |log: &Log| log.records.iter().map(|record| record.bytes).sum::<i64>() as f64;
    let total: f64 = logs.iter().map(taken).sum();
    let (_, all) = spans(&merged(logs), time, SHARE_NS);
    let part = |(log, &weight): (&Log, &u32)| {
        let due = f64::from(weight) / whole(setting) as f64;
        let (_, own) = spans(&merged([log]), time, SHARE_NS);
        let off = |(&own, &all): (&i64, &i64)| (own as f64 / all as f64 / due - 1.0).abs();
        let worst = own.iter().zip(&all).filter(|&(_, &all)| all > 0).map(off);
        Part {
            weight,
            share: taken(log) / total,
            worst_off: match setting.goes_idle_ms {
                Some(_) => None,
                None => worst.reduce(f64::max),
            },
            decisions: log.released,
            batches: log.looks.taken,
            looks_wire: log.looks.wire,
            looks_others: log.looks.others,
            went_idle: log.looks.idle,
            left_out: log.left_out,
        }
    };
    logs.iter().zip(setting.weights).map(part).collect()
}

impl LeftToOthers {
    fn of(setting: &Setting, leaves: &Log, others: &[Log], ended: u64) -> LeftToOthers {
        let taken = merged(others);
        let idle = |pair: &[Record]| pair[0].is_idle.then_some((pair[0].at, pair[1].at));
        let times = leaves.records.windows(2).filter_map(idle);
        // A shard that runs out of packets in the middle of a batch returns at once.
        let long = times.filter(|&(at, back)| back.min(ended) >= at + 2 * setting.window_ns);
        let reached: Vec<_> = long
            .map(|time| reached_after(setting, &taken, time))
            .collect();
        let not_reached = reached.iter().filter(|after| after.is_none()).count() as u64;
        let mut after: Vec<f64> = reached.into_iter().flatten().collect();
        LeftToOthers {
            window_us: setting.window_ns as f64 / 1e3,
            times: after.len() as u64,
            not_reached,
            p50_us: quantile(&mut after, 0.5),
            p90_us: quantile(&mut after, 0.9),
            p99_us: quantile(&mut after, 0.99),
            longest_us: quantile(&mut after, 1.0),
        }
    }
}

/// Returns the microseconds from `idle` on after which the whole link was taken for a window, that ends before
/// `back`.
fn reached_after(setting: &Setting, taken: &[(u64, i64)], (idle, back): (u64, u64)) -> Option<f64> {
    let window = setting.window_ns;
    let enough = carried(setting.config, window) - 2.0 * f64::from(setting.config.batch);
    let first = taken.partition_point(|&(at, _)| at < idle);
    let starts = taken[first..].iter().map(|&(at, _)| at);
    let (mut from, mut to, mut sum) = (first, first, 0);
    for start in [idle].into_iter().chain(starts) {
        if start + window > back {
            return None;
        }
        while from < to && taken[from].0 < start {
            sum -= taken[from].1;
            from += 1;
        }
        while to < taken.len() && taken[to].0 < start + window {
            sum += taken[to].1;
            to += 1;
        }
        if sum as f64 >= enough {
            return Some((start - idle) as f64 / 1e3);
        }
    }
    None
}

impl Costs {
    fn of(setting: &Setting, logs: &[Log]) -> Costs {
        let clock = setting.clock_ns as f64;
        let net = |ns: u64| (ns as f64 - clock).max(0.0);
        let steps = logs.iter().flat_map(|log| &log.steps);
        let mut decisions: Vec<_> = steps
            .map(|step| net(step.ns) / step.packets as f64)
            .collect();
        let records = logs.iter().flat_map(|log| &log.records);
        let mut looks: Vec<_> = (records.filter(|record| record.bytes > 0))
            .map(|record| net(record.look_ns))
            .collect();
        let made = |log: &Log| log.looks.taken + log.looks.wire + log.looks.others;
        let (made, batches) = logs.iter().fold((0, 0), |(all, batches), log| {
            (all + made(log), batches + log.looks.taken)
        });
        let all: u64 = logs.iter().map(|log| log.look_ns).sum();
        Costs {
            decision_ns: quantile(&mut decisions, 0.5),
            look_ns: quantile(&mut looks, 0.5),
            looks_ns_a_batch: (all as f64 - clock * made as f64).max(0.0) / batches.max(1) as f64,
            clock_ns: setting.clock_ns,
        }
    }
}

impl Prediction {
    fn of(setting: &Setting, costs: &Costs) -> Prediction {
        let shards = f64::from(PREDICTED);
        let access_ns = costs.look_ns / (f64::from(ACCESSES) + setting.weights.len() as f64);
        let look_ns = access_ns * f64::from(ACCESSES + PREDICTED);
        let in_a_batch = f64::from(setting.config.batch) / f64::from(setting.length);
        let decisions_per_sec = shards * 1e9 / (costs.decision_ns + look_ns / in_a_batch);
        Prediction {
            shards: PREDICTED,
            look_ns,
            decisions_per_sec,
            wire_writes_per_sec: decisions_per_sec / in_a_batch,
            over_one: decisions_per_sec * costs.decision_ns / 1e9,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a byte in a nanosecond, in batches of 100.
    fn setting(weights: &[u32]) -> Setting<'_> {
        Setting {
            weights,
            config: Config {
                rate: 8_000_000_000,
                batch: 100,
                ahead: 0,
                catch_up: 0,
                lead: 0,
                patience: 1,
            },
            cores: 2,
            length: 10,
            flows: 1,
            goes_idle_ms: Some(1),
            window_ns: 1_600,
            clock_ns: 0,
        }
    }

    #[test]
    fn the_whole_link_is_taken_from_when_the_gap_is_over() {
        let setting = setting(&[1, 1]);
        let half = (0..20).map(|at| (at * 200, 100));
        let whole = (0..100).map(|at| (4_000 + at * 100, 100));
        let taken: Vec<_> = half.clone().chain(whole).collect();
        // Of the 16 batches of a window two may be missing: of those at half the rate, 4.
        assert_eq!(reached_after(&setting, &taken, (1_000, 9_000)), Some(2.6));
        assert_eq!(reached_after(&setting, &taken, (1_000, 5_000)), None);
        assert_eq!(reached_after(&setting, &taken, (5_000, 9_000)), Some(0.0));
        let half: Vec<_> = half.collect();
        assert_eq!(reached_after(&setting, &half, (0, 4_000)), None);
    }

    #[test]
    fn what_eight_shards_do_is_what_decisions_and_looks_at_all_of_them_leave() {
        let costs = Costs {
            decision_ns: 100.0,
            look_ns: 50.0,
            looks_ns_a_batch: 0.0,
            clock_ns: 0,
        };
        // Ten packets a batch; a look of 5 accesses here has 11 there.
        let eight = Prediction::of(&setting(&[1, 1]), &costs);
        assert_eq!(
            (eight.look_ns, eight.over_one),
            (110.0, 8.0 * 100.0 / 111.0)
        );
        assert_eq!(eight.wire_writes_per_sec, eight.decisions_per_sec / 10.0);
    }

    #[test]
    fn sums_are_of_whole_spans_and_of_all_if_that_is_shorter() {
        let taken = [(5, 1), (10, 2), (19, -1), (20, 4), (29, 8), (31, 16)];
        assert_eq!(spans(&taken, (10, 35), 10), (10, vec![1, 12]));
        assert_eq!(spans(&taken, (10, 35), 100), (25, vec![29]));
    }
}
