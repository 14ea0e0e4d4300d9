//! A shard's side of the protocol, one access to shared memory at a time.

use crate::circle::{IN, ONE_MORE, POSITION, ahead, further};
use crate::sync::{Arc, AtomicU64, Ordering};
use crate::words::Words;

/// A batch taken from the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The bytes taken; 0 if an earlier batch covers the backlog.
    pub bytes: u64,
}

/// The reason why no batch may be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The wire has no room.
    Wire {
        /// The time at which it has room if no other shard takes a batch, in nanoseconds.
        until: u64,
    },
    /// Another shard is too far behind: look again soon.
    Others,
}

/// The result of a look; `None` before its last access.
type Outcome = Option<Result<Batch, Wait>>;

/// The next access to shared memory.
#[derive(Clone, Copy, Debug)]
enum Next {
    /// Read the floor, and start there or above, counting or not.
    Enter,
    /// Publish this shard's position, so that the floor does not pass it.
    Show,
    /// Increment the number of entries, so that a concurrent raise fails, and read the floor.
    Count,
    /// The floor was raised meanwhile: start there.
    Lift { floor: u64 },
    /// Check whether this shard still counts.
    Own,
    /// Check the distance to the floor. If it is too large, read the others, and leave out a shard that stands at
    /// `stuck`.
    Floor { stuck: Option<u64> },
    /// Read the word of another shard.
    Look(Scan),
    /// Leave out the shard whose word was read, if the word is still `seen`.
    LeaveOut { scan: Scan, seen: u64 },
    /// The least shard is above the floor: raise it.
    Raise(Scan),
    /// The least shard is too far behind: check whether the link runs short.
    Short { least: u64 },
    /// Check whether the wire has room for a batch.
    Wire,
    /// Take the batch.
    Take { promised: u64 },
    /// Charge the batch to the virtual time of a counting shard, and publish it.
    Publish { bytes: u64 },
    /// Charge the batch to the virtual time of a shard that does not count, from the floor on.
    Charge { bytes: u64 },
}

/// A scan of all shards.
#[derive(Clone, Copy, Debug)]
struct Scan {
    /// The floor's word before the scan.
    floor: u64,
    /// The shard that is read next.
    place: usize,
    /// The least position so far.
    least: u64,
    /// A shard at this position is left out.
    stuck: Option<u64>,
}

/// One shard of a link: its scheduler takes a batch at a time, and sends as many bytes.
///
/// ```
/// use fairlane_shards::{Batch, Config, Wait, divide};
///
/// // 8 Gbit/s, a byte per nanosecond; no byte is assigned before the wire is free for it.
/// let config = Config { rate: 8_000_000_000, batch: 3000, ahead: 0, catch_up: 0, lead: 6000, patience: 50_000 };
/// let mut shards = divide(config, &[2, 1])?;
/// let (mut now, mut sent) = (0, [0, 0]);
/// while now < 300_000 {
///     for (shard, sent) in shards.iter_mut().zip(&mut sent) {
///         match shard.try_take(now, 100_000) {
///             Ok(Batch { bytes }) => {
///                 shard.sent(bytes);
///                 *sent += bytes;
///             }
///             // Another shard is too far behind, or the wire is busy.
///             Err(Wait::Others | Wait::Wire { .. }) => {}
///         }
///     }
///     now += 1000;
/// }
/// assert_eq!(sent, [201_000, 99_000]);
/// # Ok::<(), fairlane_shards::ConfigError>(())
/// ```
#[derive(Debug)]
pub struct Shard {
    words: Arc<Words>,
    place: usize,
    weight: u32,
    /// V, a position.
    time: u64,
    /// The remainder of the last division by the weight.
    rest: u64,
    /// The word that this shard last published.
    shown: u64,
    next: Next,
    /// Bytes taken and not yet sent; negative if the last packet was longer than the rest.
    credit: i64,
    /// The time since which this shard has seen the link run short at each of its looks.
    short_since: Option<u64>,
    /// The position of the least shard at the last look, if this shard waited for it, and the start of that wait.
    waits_for: Option<(u64, u64)>,
    left_out: u64,
}

impl Shard {
    pub(crate) fn new(words: Arc<Words>, place: usize, weight: u32, start: u64) -> Self {
        Self {
            words,
            place,
            weight,
            time: start,
            rest: 0,
            shown: start,
            next: Next::Enter,
            credit: 0,
            short_since: None,
            waits_for: None,
            left_out: 0,
        }
    }

    /// Takes a batch of the link at `now`, if this shard may. `want` is its backlog in bytes: no more is taken. A shard
    /// with less than a batch to send counts only while it waits for the wire, so that no other shard waits for it if
    /// it can take all of that.
    ///
    /// Lock-free: an access is repeated only if another shard's succeeded. A look that finds this shard within the lead
    /// of the floor takes five accesses; beyond it, one more for each shard.
    ///
    /// # Errors
    ///
    /// [`Wait`], the condition to wait for.
    pub fn try_take(&mut self, now: u64, want: u64) -> Result<Batch, Wait> {
        loop {
            if let Some(outcome) = self.step(now, want) {
                return outcome;
            }
        }
    }

    /// Makes the next access to shared memory of [`try_take`](Self::try_take), which makes all of them: `None` until
    /// the last one. `now` and `want` must not change during a look.
    pub fn step(&mut self, now: u64, want: u64) -> Outcome {
        match self.next {
            Next::Enter => self.enter(want),
            Next::Show => self.show(),
            Next::Count => self.count(),
            Next::Lift { floor } => self.lift(floor),
            Next::Own => self.own(),
            Next::Floor { stuck } => self.floor(stuck),
            Next::Look(scan) => self.look(scan),
            Next::LeaveOut { scan, seen } => self.leave_out(scan, seen),
            Next::Raise(scan) => self.raise(scan),
            Next::Short { least } => self.short(least, now),
            Next::Wire => {
                let promised = self.words.wire.0.load(Ordering::Relaxed);
                self.is_short(promised, now);
                self.room(promised, now, want)
            }
            Next::Take { promised } => self.take(promised, now, want),
            Next::Publish { bytes } => self.publish(bytes, want),
            Next::Charge { bytes } => self.charge(bytes),
        }
    }

    /// Records that `bytes` of the bytes taken were sent. A shard sends while [`credit`](Self::credit) is above 0: the
    /// last packet may exceed it, and the next batch compensates for that.
    pub fn sent(&mut self, bytes: u64) {
        self.credit -= bytes as i64;
    }

    /// Returns the bytes taken and not yet sent.
    #[must_use]
    pub fn credit(&self) -> i64 {
        self.credit
    }

    /// Makes the shard idle: no shard waits for it from now on. Bytes taken and not sent, because packets were dropped
    /// or a ceiling holds them, are returned to the link, and to this shard's virtual time. Called between two looks.
    pub fn idle(&mut self) {
        self.give_back();
        // A shard that reads the older word waits a little longer.
        let was = self.own_word().swap(self.time, Ordering::Relaxed);
        self.left_out += u64::from(self.has_entered() && was != self.shown);
        self.leave();
        self.short_since = None;
    }

    fn give_back(&mut self) {
        let Ok(bytes @ 1..) = u64::try_from(self.credit) else {
            return;
        };
        self.credit = 0;
        self.words.wire.0.fetch_sub(bytes, Ordering::Relaxed);
        // No shard depends on the old position: this shard enters at the floor or above it.
        let product = bytes * self.words.whole;
        let weight = u64::from(self.weight);
        let (mut back, rest) = (product / weight, product % weight);
        if rest > self.rest {
            self.rest += weight;
            back += 1;
        }
        self.rest -= rest;
        self.time = self.time.wrapping_sub(back) & POSITION;
    }

    /// Returns the time at which the link has room for a batch, if no shard takes one or returns bytes before, in
    /// nanoseconds. No look can take a batch until then.
    #[must_use]
    pub fn room_at(&self) -> u64 {
        let promised = self.promised();
        (self.words).carried_at(promised.saturating_sub(self.words.config.ahead))
    }

    /// Sets the weight in force from the next batch on: the weight of the shard's backlogged classes, if not all are
    /// backlogged. Limited to the initial weight; 0 counts as 1.
    pub fn set_weight(&mut self, weight: u32) {
        self.weight = weight.max(1);
    }

    /// Returns how often this shard was left out while it was backlogged.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.left_out + u64::from(self.has_entered() && !self.counts())
    }

    /// Returns its virtual time, if it counts and may take a batch.
    #[must_use]
    pub fn position(&self) -> Option<u64> {
        (self.has_entered() && self.counts()).then_some(self.time)
    }

    /// Whether the next access is part of a scan, whose accesses are independent of each other.
    #[cfg(not(loom))]
    pub(crate) fn looks_around(&self) -> bool {
        matches!(self.next, Next::Look(_))
    }

    /// Returns the floor, a position.
    #[must_use]
    pub fn lowest(&self) -> u64 {
        self.words.floor.0.load(Ordering::Relaxed) & POSITION
    }

    /// Returns the bytes assigned since the start of the link.
    #[must_use]
    pub fn promised(&self) -> u64 {
        self.words.wire.0.load(Ordering::Relaxed)
    }

    /// Whether it has entered as a counting shard.
    fn has_entered(&self) -> bool {
        let enters = matches!(self.next, Next::Count | Next::Lift { .. });
        self.shown & IN != 0 && !enters
    }

    /// Records that this shard no longer counts.
    fn leave(&mut self) {
        self.shown = self.time;
        self.next = Next::Enter;
    }

    /// Whether `want` bytes, less the rest of earlier batches, are less than a batch.
    fn is_thin(&self, want: u64) -> bool {
        self.wanted(want) < u64::from(self.words.config.batch)
    }

    /// Whether it has published its position, and was not left out since.
    fn counts(&self) -> bool {
        self.own_word().load(Ordering::Relaxed) == self.shown
    }

    fn own_word(&self) -> &AtomicU64 {
        &self.words.shards[self.place].0
    }

    fn then(&mut self, next: Next) -> Outcome {
        self.next = next;
        None
    }

    fn done(&mut self, outcome: Result<Batch, Wait>) -> Outcome {
        if outcome != Err(Wait::Others) {
            self.waits_for = None;
        }
        self.next = match self.has_entered() {
            true => Next::Own,
            false => Next::Enter,
        };
        Some(outcome)
    }

    fn enter(&mut self, want: u64) -> Outcome {
        let floor = self.words.floor.0.load(Ordering::Relaxed);
        // A shard that returns soon continues at its position, and gains nothing by its absence. A shard that was
        // absent while the circle went round starts at the floor, or at most the reach above it.
        let above = ahead(self.time, floor);
        if above < 0 || above > self.words.reach() as i64 {
            self.time = floor & POSITION;
            self.rest = 0;
        }
        self.shown = self.time;
        match self.is_thin(want) {
            true => self.then(Next::Floor { stuck: None }),
            false => self.then(Next::Show),
        }
    }

    fn show(&mut self) -> Outcome {
        self.shown = self.time | IN;
        self.own_word().store(self.shown, Ordering::Relaxed);
        self.then(Next::Count)
    }

    fn count(&mut self) -> Outcome {
        // Release: a shard that reads the floor from now on sees this shard's published position. A shard that read it
        // before cannot raise it, since the word has changed.
        let floor = self.words.floor.0.fetch_add(ONE_MORE, Ordering::AcqRel);
        if ahead(floor, self.time) > 0 {
            self.then(Next::Lift { floor })
        } else {
            self.then(Next::Floor { stuck: None })
        }
    }

    fn lift(&mut self, floor: u64) -> Outcome {
        let lifted = (floor & POSITION) | IN;
        let was = self.own_word().compare_exchange(
            self.shown,
            lifted,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        // Otherwise this shard was left out meanwhile, and the floor may have passed it: it enters at its next look,
        // and completes this one, so that it is not kept from sending.
        if was.is_ok() {
            self.shown = lifted;
        }
        (self.time, self.rest) = (lifted & POSITION, 0);
        self.then(Next::Floor { stuck: None })
    }

    fn own(&mut self) -> Outcome {
        if self.counts() {
            self.then(Next::Floor { stuck: None })
        } else {
            self.left_out += 1;
            self.leave();
            None
        }
    }

    fn within_lead_of(&self, position: u64) -> bool {
        ahead(self.time, position) <= self.words.config.lead as i64
    }

    fn floor(&mut self, stuck: Option<u64>) -> Outcome {
        // Acquire: the scan sees the positions of all shards that had entered by then.
        let floor = self.words.floor.0.load(Ordering::Acquire);
        if self.within_lead_of(floor) {
            return self.then(Next::Wire);
        }
        self.then(Next::Look(Scan {
            floor,
            place: 0,
            least: self.time,
            stuck,
        }))
    }

    fn look(&mut self, mut scan: Scan) -> Outcome {
        // An older position is a lower one: it raises the floor by less.
        let word = self.words.shards[scan.place].0.load(Ordering::Relaxed);
        if word & IN != 0 && scan.place != self.place {
            if scan.stuck == Some(word & POSITION) {
                return self.then(Next::LeaveOut { scan, seen: word });
            }
            if ahead(word, scan.least) < 0 {
                scan.least = word & POSITION;
            }
        }
        scan.place += 1;
        if scan.place < self.words.shards.len() {
            self.then(Next::Look(scan))
        } else if ahead(scan.least, scan.floor) > 0 {
            self.then(Next::Raise(scan))
        } else {
            self.judge(scan)
        }
    }

    fn leave_out(&mut self, scan: Scan, seen: u64) -> Outcome {
        // Whether it succeeds or not, the word has changed when it is read again.
        let _ = self.words.shards[scan.place].0.compare_exchange(
            seen,
            seen & POSITION,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        self.then(Next::Look(scan))
    }

    fn raise(&mut self, scan: Scan) -> Outcome {
        let raised = (scan.floor & !POSITION) | scan.least;
        match self.words.floor.0.compare_exchange(
            scan.floor,
            raised,
            Ordering::AcqRel,
            Ordering::Relaxed,
        ) {
            Ok(_) => self.judge(scan),
            // A shard entered, or has raised it.
            Err(_) => self.then(Next::Floor { stuck: scan.stuck }),
        }
    }

    fn judge(&mut self, scan: Scan) -> Outcome {
        if self.within_lead_of(scan.least) {
            return self.then(Next::Wire);
        }
        if scan.stuck.is_some() {
            return self.done(Err(Wait::Others));
        }
        self.then(Next::Short { least: scan.least })
    }

    /// Whether this shard has waited for a quarter of the patience for one shard that stands at `least`: longer than a
    /// running thread takes for a look.
    fn is_stuck(&mut self, least: u64, now: u64) -> bool {
        let since = match self.waits_for {
            Some((position, since)) if position == least => since,
            _ => now,
        };
        self.waits_for = Some((least, since));
        now.saturating_sub(since) >= self.words.config.patience / 4
    }

    fn short(&mut self, least: u64, now: u64) -> Outcome {
        let promised = self.words.wire.0.load(Ordering::Relaxed);
        let is_stuck = self.is_stuck(least, now);
        if !self.is_short(promised, now) || !is_stuck {
            return self.done(Err(Wait::Others));
        }
        self.then(Next::Floor { stuck: Some(least) })
    }

    /// Whether the link has run short for as long as the patience.
    fn is_short(&mut self, promised: u64, now: u64) -> bool {
        if promised > self.words.carried(now) + self.words.scarce {
            self.short_since = None;
            return false;
        }
        let since = *self.short_since.get_or_insert(now);
        now.saturating_sub(since) >= self.words.config.patience
    }

    fn room(&mut self, promised: u64, now: u64, want: u64) -> Outcome {
        let queue = self.words.config.ahead;
        if promised > self.words.carried(now) + queue {
            // The others must leave room for it from now on.
            if !self.has_entered() {
                return self.then(Next::Show);
            }
            let until = self.words.carried_at(promised - queue);
            return self.done(Err(Wait::Wire { until }));
        }
        if self.wanted(want) == 0 {
            return match self.has_entered() {
                true => self.then(Next::Publish { bytes: 0 }),
                false => self.done(Ok(Batch { bytes: 0 })),
            };
        }
        self.then(Next::Take { promised })
    }

    /// Returns the size of the next batch.
    fn wanted(&self, want: u64) -> u64 {
        let want = i64::try_from(want).unwrap_or(i64::MAX);
        let beyond = want.saturating_sub(self.credit);
        u64::from(self.words.config.batch).min(beyond.max(0) as u64)
    }

    fn take(&mut self, promised: u64, now: u64, want: u64) -> Outcome {
        let carried = self.words.carried(now);
        let from = promised.max(carried.saturating_sub(self.words.config.catch_up));
        let bytes = self.wanted(want);
        match self.words.wire.0.compare_exchange(
            promised,
            from + bytes,
            Ordering::Relaxed,
            Ordering::Relaxed,
        ) {
            Ok(_) if self.has_entered() => self.then(Next::Publish { bytes }),
            Ok(_) => self.then(Next::Charge { bytes }),
            Err(promised) => self.room(promised, now, want),
        }
    }

    fn add(&mut self, bytes: u64) {
        let product = bytes * self.words.whole + self.rest;
        let weight = u64::from(self.weight);
        self.rest = product % weight;
        self.time = further(self.time, product / weight);
        self.credit += bytes as i64;
    }

    fn charge(&mut self, bytes: u64) -> Outcome {
        // The floor may have passed this shard since its look. The batch is charged from there on, so that no batch is
        // charged below the floor at that time.
        let floor = self.lowest();
        if ahead(floor, self.time) > 0 {
            (self.time, self.rest) = (floor, 0);
        }
        self.add(bytes);
        self.done(Ok(Batch { bytes }))
    }

    fn publish(&mut self, bytes: u64, want: u64) -> Outcome {
        self.add(bytes);
        // No other shard should wait for one that has less than a batch: it takes that at its look.
        let counts = if self.is_thin(want) { 0 } else { IN };
        let shown = self.time | counts;
        let was = self.own_word().compare_exchange(
            self.shown,
            shown,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        // Otherwise this shard was left out since its look: the next look sees that it does not count.
        if was.is_ok() {
            self.shown = shown;
        }
        self.done(Ok(Batch { bytes }))
    }
}

/// No shard waits for a dropped one.
impl Drop for Shard {
    fn drop(&mut self) {
        self.own_word().store(self.time, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
