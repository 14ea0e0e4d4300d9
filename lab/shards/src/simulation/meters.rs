//! The measured quantities, by definitions that are independent of how the link is divided.

use super::{Report, Thread};
use crate::Config;
use crate::circle::ahead;

/// Ticks of the wire's time per nanosecond.
const TICKS: u64 = 1024;
/// The shortest idle time that counts as unused, in nanoseconds.
const NOTED: u64 = 100;

pub(super) struct Meters {
    /// Ticks per byte on the wire.
    per_byte: f64,
    /// Bytes per nanosecond.
    rate: f64,
    weights: Vec<f64>,
    whole: f64,
    /// The time at which the wire will be free, in ticks.
    free: u64,
    /// The number of backlogged shards, and the time since which there are any, in ticks.
    waiting: usize,
    since: u64,
    waited: u64,
    idle: u64,
    longest: u64,
    /// The time at which the last shard became idle, in ticks, if none has changed since.
    left: Option<u64>,
    reuse: u64,
    queue: u64,
    shards: Vec<Meter>,
    /// For each pair of shards, the first before the second, the least and the greatest difference of their service
    /// over their shares since both are backlogged.
    pairs: Vec<(f64, f64)>,
    spread: f64,
    apart: u64,
}

#[derive(Clone, Default)]
struct Meter {
    waits: bool,
    sent: u64,
    /// The least value of its share of the rate less its service since it is backlogged.
    least_due: f64,
    behind: f64,
}

impl Meters {
    pub(super) fn new(config: Config, weights: &[u32]) -> Self {
        let weights: Vec<_> = weights.iter().copied().map(f64::from).collect();
        let rate = config.rate as f64 / 8e9;
        Self {
            per_byte: TICKS as f64 / rate,
            rate,
            whole: weights.iter().sum(),
            free: 0,
            waiting: 0,
            since: 0,
            waited: 0,
            idle: 0,
            longest: 0,
            left: None,
            reuse: 0,
            queue: 0,
            shards: vec![Meter::default(); weights.len()],
            pairs: vec![(0.0, 0.0); weights.len() * weights.len()],
            spread: 0.0,
            apart: 0,
            weights,
        }
    }

    /// Records that a shard becomes backlogged.
    pub(super) fn waits(&mut self, place: usize, now: u64) {
        if self.shards[place].waits {
            return;
        }
        if self.waiting == 0 {
            self.since = now * TICKS;
        }
        self.waiting += 1;
        self.left = None;
        self.shards[place].waits = true;
        self.shards[place].least_due = self.due(place, now);
        for other in 0..self.shards.len() {
            if self.shards[other].waits && other != place {
                let gap = self.gap(place, other);
                let pair = self.pair(place, other);
                self.pairs[pair] = (gap, gap);
            }
        }
    }

    /// Records that a shard becomes idle, after all its packets are on the wire.
    pub(super) fn rests(&mut self, place: usize, now: u64) {
        self.shards[place].waits = false;
        self.waiting -= 1;
        if self.waiting == 0 {
            self.waited += now * TICKS - self.since;
        }
        self.left = Some(now * TICKS);
    }

    /// Records that a shard sends `bytes` to the wire.
    pub(super) fn sent(&mut self, place: usize, bytes: u64, now: u64) {
        let due = self.due(place, now);
        let meter = &mut self.shards[place];
        meter.behind = meter.behind.max(due - meter.least_due);
        meter.sent += bytes;
        let due = self.due(place, now);
        let meter = &mut self.shards[place];
        meter.least_due = meter.least_due.min(due);
        for other in 0..self.shards.len() {
            if other != place && self.shards[other].waits {
                let gap = self.gap(place, other);
                let pair = self.pair(place, other);
                let (least, most) = &mut self.pairs[pair];
                (*least, *most) = (least.min(gap), most.max(gap));
                self.spread = self.spread.max(*most - *least);
            }
        }
        self.idles_until(now * TICKS);
        self.free += (bytes as f64 * self.per_byte) as u64;
        let queue = (self.free - now * TICKS) as f64 / self.per_byte;
        self.queue = self.queue.max(queue as u64);
    }

    /// Records the end of an idle time of the wire: a packet, or the end of the simulation.
    fn idles_until(&mut self, now: u64) {
        // Time without a backlogged shard does not count.
        let began = self.free.max(self.since);
        if began < now && self.waiting > 0 {
            let idle = now - began;
            self.idle += idle;
            self.longest = self.longest.max(idle);
            if let Some(left) = self.left
                && idle > NOTED * TICKS
            {
                self.reuse = self.reuse.max(now - left);
            }
        }
        self.free = self.free.max(now);
    }

    /// Measures positions after an access of the shard at `place`.
    pub(super) fn positions(&mut self, place: usize, threads: &[Thread]) {
        let Some(position) = threads[place].taker.position() else {
            return;
        };
        for other in threads {
            if let Some(other) = other.taker.position() {
                let gap = ahead(position, other).unsigned_abs();
                self.apart = self.apart.max(gap);
            }
        }
    }

    pub(super) fn report(mut self, span: u64, left_out: Vec<u64>) -> Report {
        let end = span * TICKS;
        self.idles_until(end);
        if self.waiting > 0 {
            self.waited += end - self.since;
        }
        for place in 0..self.shards.len() {
            if self.shards[place].waits {
                let due = self.due(place, span);
                let meter = &mut self.shards[place];
                meter.behind = meter.behind.max(due - meter.least_due);
            }
        }
        Report {
            used: 1.0 - self.idle as f64 / self.waited.max(1) as f64,
            idle: self.idle / TICKS,
            longest_idle: self.longest / TICKS,
            reuse: self.reuse / TICKS,
            queue: self.queue,
            sent: self.shards.iter().map(|meter| meter.sent).collect(),
            spread: self.spread,
            apart: self.apart,
            behind: self.shards.iter().map(|meter| meter.behind).collect(),
            left_out,
        }
    }

    fn share(&self, place: usize) -> f64 {
        self.weights[place] / self.whole
    }

    /// Returns its share of the rate by `now`, less its service.
    fn due(&self, place: usize, now: u64) -> f64 {
        self.share(place) * self.rate * now as f64 - self.shards[place].sent as f64
    }

    /// Returns the excess of one shard's service over its share above another's, by their numbers.
    fn gap(&self, place: usize, other: usize) -> f64 {
        let [first, second] = [place.min(other), place.max(other)];
        let service = |place: usize| self.shards[place].sent as f64 / self.share(place);
        service(first) - service(second)
    }

    fn pair(&self, place: usize, other: usize) -> usize {
        place.min(other) * self.shards.len() + place.max(other)
    }
}
