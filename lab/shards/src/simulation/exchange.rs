//! The other candidate: at intervals, the rate is divided by weight among the backlogged shards. In between, each shard
//! keeps to its part and has no information about the others.

use crate::{Batch, Config, Wait};

pub(super) struct Exchange {
    config: Config,
    every: u64,
    weights: Vec<u32>,
    parts: Vec<Part>,
}

/// A token bucket.
#[derive(Clone, Copy)]
struct Part {
    /// Bytes per nanosecond, in force and from the shard's next look on.
    rate: f64,
    next: f64,
    tokens: f64,
    at: u64,
    /// Whether it was idle, and saved nothing meanwhile.
    rested: bool,
}

impl Exchange {
    pub(super) fn new(config: Config, weights: &[u32], every: u64) -> Self {
        let part = Part {
            rate: 0.0,
            next: 0.0,
            tokens: f64::from(config.batch),
            at: 0,
            rested: false,
        };
        Self {
            config,
            every,
            parts: vec![part; weights.len()],
            weights: weights.to_vec(),
        }
    }

    pub(super) fn every(&self) -> u64 {
        self.every
    }

    /// Divides the rate. All shards report at the same moment, which is better than threads could do.
    pub(super) fn divide(&mut self, waits: impl Iterator<Item = bool>) {
        let waits: Vec<_> = waits.collect();
        let sum = |only: bool| -> f64 {
            let weights = self.weights.iter().zip(&waits);
            let weights = weights.filter(|&(_, &waits)| waits || !only);
            weights.map(|(&weight, _)| f64::from(weight)).sum()
        };
        let (all, waiting) = (sum(false), sum(true));
        let rate = self.config.rate as f64 / 8e9;
        for ((part, &weight), &waits) in self.parts.iter_mut().zip(&self.weights).zip(&waits) {
            let of = if waits { waiting } else { all };
            part.next = rate * f64::from(weight) / of;
        }
    }

    /// Makes the shard at `place` idle.
    pub(super) fn rests(&mut self, place: usize) {
        self.parts[place].rested = true;
    }

    /// Takes a batch of the saved bytes, at most those of one interval: a late thread catches up by that.
    pub(super) fn take(&mut self, place: usize, now: u64, wanted: u64) -> Result<Batch, Wait> {
        let part = &mut self.parts[place];
        let batch = f64::from(self.config.batch);
        let saved = part.tokens + part.rate * (now - part.at) as f64;
        let most = if part.rested {
            0.0
        } else {
            part.rate * self.every as f64
        };
        part.tokens = saved.min(most + batch);
        (part.at, part.rate, part.rested) = (now, part.next, false);
        let bytes = wanted.min(self.config.batch.into());
        let short = bytes as f64 - part.tokens;
        if short > 0.0 {
            let until = now + (short / part.rate).ceil() as u64;
            return Err(Wait::Wire {
                // The part may change before.
                until: until.min((now / self.every + 1) * self.every),
            });
        }
        part.tokens -= bytes as f64;
        Ok(Batch { bytes })
    }
}
