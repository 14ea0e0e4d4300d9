//! A taker of batches, of either candidate.

use super::exchange::Exchange;
use crate::{Batch, Shard, Wait};

pub(super) enum Taker {
    Shard(Shard),
    /// A part of the rate, by number.
    Part {
        place: usize,
        credit: i64,
    },
}

impl Taker {
    pub(super) fn part(place: usize) -> Self {
        Self::Part { place, credit: 0 }
    }

    pub(super) fn step(
        &mut self,
        now: u64,
        want: u64,
        exchange: Option<&mut Exchange>,
    ) -> Option<Result<Batch, Wait>> {
        match (self, exchange) {
            (Self::Shard(shard), _) => shard.step(now, want),
            (Self::Part { place, credit }, Some(exchange)) => {
                let wanted = (want as i64 - *credit).max(0) as u64;
                let taken = exchange.take(*place, now, wanted);
                *credit += taken.map_or(0, |batch| batch.bytes as i64);
                Some(taken)
            }
            (Self::Part { .. }, None) => None,
        }
    }

    pub(super) fn credit(&self) -> i64 {
        match self {
            Self::Shard(shard) => shard.credit(),
            Self::Part { credit, .. } => *credit,
        }
    }

    pub(super) fn sent(&mut self, bytes: u64) {
        match self {
            Self::Shard(shard) => shard.sent(bytes),
            Self::Part { credit, .. } => *credit -= bytes as i64,
        }
    }

    pub(super) fn idle(&mut self, exchange: Option<&mut Exchange>) {
        match (self, exchange) {
            (Self::Shard(shard), _) => shard.idle(),
            (Self::Part { place, .. }, Some(exchange)) => exchange.rests(*place),
            (Self::Part { .. }, None) => {}
        }
    }

    /// Whether the next access is one of several independent ones.
    pub(super) fn looks_around(&self) -> bool {
        matches!(self, Self::Shard(shard) if shard.looks_around())
    }

    pub(super) fn position(&self) -> Option<u64> {
        match self {
            Self::Shard(shard) => shard.position(),
            Self::Part { .. } => None,
        }
    }

    pub(super) fn left_out(&self) -> u64 {
        match self {
            Self::Shard(shard) => shard.left_out(),
            Self::Part { .. } => 0,
        }
    }
}
