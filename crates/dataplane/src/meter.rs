//! Delay measurement of a class's packets: written by the forwarding thread, read by another.
//!
//! It has one writer, which loads and stores without locks or fences. A reader may miss a count in progress, and sees
//! it at the next read.
//!
//! With thousands of classes, most have few packets between two reads. Those are noted one by one, and histogram counts
//! are allocated only for a class with more. The totals since the start take few bytes.

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use fairlane_config::class_report::DelayReport;
use fairlane_core::Nanos;
use fairlane_mailbox::prefetch;

/// Parts that each doubling of a delay is divided into: two digits.
const PARTS: usize = 64;
const PART_BITS: u32 = PARTS.trailing_zeros();
/// A bucket of the first doubling is as wide as 2^10 ns, about a microsecond.
const UNIT_BITS: u32 = 10;
/// Doublings: up to two minutes.
const DOUBLINGS: usize = 21;
const BUCKETS: usize = PARTS * (DOUBLINGS + 1);

/// Exact buckets of the totals since the start. Buckets beyond these hold little: the tails of the distribution.
const FINE: usize = 192;
/// Number of the other buckets that are merged into one.
const COARSE: usize = 4;

/// The counts of one doubling, and of all.
type Parts = Arc<[AtomicU32; PARTS]>;
type Doublings = Box<[OnceLock<Parts>; DOUBLINGS + 1]>;

/// Clocks of the flows of a class: flows of one clock are judged together.
const CLOCKS: usize = 128;
/// A time at the guaranteed rate is a product of bytes, shifted by this many bits.
const FRACTION_BITS: u32 = 24;

/// The result of comparing a packet with its class's contract: the permitted delay in units of 2^`UNIT_BITS` ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict(u32);

impl Verdict {
    /// Its class has no bound, or it was not classified here.
    const UNJUDGED: Verdict = Verdict(u32::MAX);
    /// It arrived beyond its class's guaranteed rate and arrival burst.
    const NONCONFORMING: Verdict = Verdict(u32::MAX - 1);

    /// Whether it conforms, and took longer than its bound.
    fn is_late(self, delay: Nanos) -> bool {
        self.0 < Verdict::NONCONFORMING.0 && delay.0 >> UNIT_BITS > u64::from(self.0)
    }
}

impl Default for Verdict {
    fn default() -> Verdict {
        Verdict::UNJUDGED
    }
}

/// A class's guarantee for its packets while its arrivals conform.
#[derive(Clone, Copy, Debug)]
pub struct Contract {
    /// The guaranteed rate in bits per second, of the class or of each of its flows.
    pub bps: u64,
    /// Bytes that may arrive at once on top.
    pub burst: u64,
    /// The delay of a packet is no longer.
    pub bound: Nanos,
    /// Bytes that the queue may hold.
    pub backlog: u64,
    /// Whether it applies to each flow.
    pub is_of_flows: bool,
}

/// Delays that are noted one by one. A class with more from one look to the next has counts, and to read those of thousands
/// of classes once a second is a tenth of a core.
const NOTED: usize = 64;

/// Buckets of the latest packets, until they are read.
#[derive(Debug)]
#[repr(C)]
struct Notes {
    /// Number of buckets noted, and number of these that were read: the former is the writer's, the latter the
    /// reader's.
    noted: AtomicU32,
    read: AtomicU32,
    buckets: [AtomicU16; NOTED],
}

impl Default for Notes {
    fn default() -> Notes {
        Notes {
            buckets: [const { AtomicU16::new(0) }; NOTED],
            noted: AtomicU32::new(0),
            read: AtomicU32::new(0),
        }
    }
}

impl Notes {
    /// Notes another bucket if there is space. Returns whether there was.
    fn note(&self, bucket: usize) -> bool {
        let noted = self.noted.load(Ordering::Relaxed);
        let room = noted.wrapping_sub(self.read.load(Ordering::Acquire)) < NOTED as u32;
        if room {
            self.buckets[noted as usize % NOTED].store(bucket as u16, Ordering::Relaxed);
            self.noted.store(noted.wrapping_add(1), Ordering::Release);
        }
        room
    }

    /// Takes the unread notes.
    fn take(&self) -> Vec<usize> {
        let (from, to) = (
            self.read.load(Ordering::Relaxed),
            self.noted.load(Ordering::Acquire),
        );
        let numbers = (0..to.wrapping_sub(from)).map(|more| from.wrapping_add(more));
        let buckets = numbers.map(|at| self.buckets[at as usize % NOTED].load(Ordering::Relaxed));
        let buckets = buckets.map(usize::from).collect();
        self.read.store(to, Ordering::Release);
        buckets
    }
}

/// The delays of one class since it was added.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Meter {
    /// Counts beyond the notes. Each doubling is allocated at its first entry, since the delays of a class fall into
    /// few.
    doublings: OnceLock<Doublings>,
    /// In nanoseconds.
    longest: AtomicU64,
    /// The contract: the time of a byte at its rate, with [`FRACTION_BITS`], 0 without a contract; the time of its
    /// burst in nanoseconds; its bound in the lowest bits, and above it whether it applies to flows.
    contract: [AtomicU64; 3],
    /// When all that has arrived has left at the rate of the contract.
    clock: AtomicU64,
    /// Placed so that the fields read for each packet share one cache line, except where it is noted.
    notes: Notes,
    /// The same for flows.
    clocks: OnceLock<Box<[AtomicU64; CLOCKS]>>,
    /// How long nonconforming arrivals count after their end, in nanoseconds: until their backlog has left.
    forget: AtomicU64,
    /// Nonconforming packets that have left; and conforming packets that were late.
    nonconforming: AtomicU64,
    violations: AtomicU64,
    /// Frames that arrived while their interface was losing others: a sample of those.
    ring_loss_samples: AtomicU64,
    /// The guaranteed rate of the class in bits per second, 0 for none, and the time of its burst at that rate in
    /// nanoseconds.
    guaranteed: [AtomicU64; 2],
    /// Fragments that arrived without the first one of their datagram.
    orphans: AtomicU64,
}

const _: () = assert!(std::mem::offset_of!(Meter, notes) + 8 <= 64);

/// The counting thread's local part of a meter: half a cache line, so a packet touches that and its counter. The meter
/// itself and its table of doublings take two more lines, for each of thousands of classes.
#[derive(Debug)]
#[repr(align(32))]
pub struct Recorder {
    meter: Arc<Meter>,
    /// The counts of two doublings side by side, by the last bit of their numbers: the delays of a class
    /// lie about one boundary at a time.
    parts: [Option<Parts>; 2],
    /// A lower bound of the longest delay, in nanoseconds: delays up to it need no update.
    longest: u32,
    /// Which doublings those are; of none, [`Recorder::NONE`].
    doublings: [u8; 2],
}

const _: () = assert!(size_of::<Option<Recorder>>() == 32 && DOUBLINGS < Recorder::NONE as usize);

/// Returns the transmission time of `bytes` at a rate in bits per second.
pub fn duration(bytes: u64, bps: u64) -> Nanos {
    let nanos = u128::from(bytes) * 8_000_000_000 / u128::from(bps.max(1));
    Nanos(nanos.min(u64::MAX.into()) as u64)
}

impl Recorder {
    const NONE: u8 = u8::MAX;

    /// Creates a recorder. All recorders of a meter belong to one thread.
    pub fn new(meter: Arc<Meter>) -> Recorder {
        Recorder {
            meter,
            parts: [None, None],
            longest: 0,
            doublings: [Recorder::NONE; 2],
        }
    }

    pub fn meter(&self) -> &Meter {
        &self.meter
    }

    /// Prefetches the meter for a delay that is about to be recorded.
    #[inline]
    pub fn prefetch_meter(&self) {
        prefetch(Arc::as_ptr(&self.meter));
    }

    /// Counts the delay of a packet with this verdict.
    #[inline]
    pub fn record_judged(&mut self, delay: Nanos, verdict: Verdict) {
        self.record(delay);
        if verdict == Verdict::NONCONFORMING || verdict.is_late(delay) {
            self.meter.count(verdict);
        }
    }

    /// Counts one delay.
    #[inline]
    pub fn record(&mut self, delay: Nanos) {
        if delay.0 > self.longest.into() {
            self.lengthen(delay);
        }
        let bucket = bucket_of(delay);
        let (doubling, part) = (bucket / PARTS, bucket % PARTS);
        if self.doublings[doubling % 2] != doubling as u8 && self.note_or_turn_to(bucket) {
            return;
        }
        if let Some(parts) = &self.parts[doubling % 2] {
            let count = parts[part].load(Ordering::Relaxed);
            parts[part].store(count.wrapping_add(1), Ordering::Relaxed);
        }
    }

    /// Notes a delay, or selects the counts of its doubling.
    #[cold]
    #[inline(never)]
    fn note_or_turn_to(&mut self, bucket: usize) -> bool {
        let doubling = bucket / PARTS;
        if self.meter.made(doubling).is_none() && self.meter.note(bucket) {
            return true;
        }
        self.parts[doubling % 2] = Some(Arc::clone(self.meter.parts(doubling)));
        self.doublings[doubling % 2] = doubling as u8;
        false
    }

    #[cold]
    #[inline(never)]
    fn lengthen(&mut self, delay: Nanos) {
        let longest = self.meter.longest.load(Ordering::Relaxed).max(delay.0);
        self.meter.longest.store(longest, Ordering::Relaxed);
        self.longest = longest.try_into().unwrap_or(u32::MAX);
    }
}

impl Meter {
    fn parts(&self, doubling: usize) -> &Parts {
        let none = || Box::new([const { OnceLock::new() }; DOUBLINGS + 1]);
        let empty = || Arc::new([const { AtomicU32::new(0) }; PARTS]);
        self.doublings.get_or_init(none)[doubling].get_or_init(empty)
    }

    /// Returns the counts of a doubling, if they were made.
    fn made(&self, doubling: usize) -> Option<&Parts> {
        self.doublings.get()?[doubling].get()
    }

    fn note(&self, bucket: usize) -> bool {
        self.notes.note(bucket)
    }

    /// Iterates over the allocated doublings in order: the first bucket of each, and its counts.
    fn all_made(&self) -> impl Iterator<Item = (usize, &Parts)> {
        let doublings = self.doublings.get().into_iter();
        let doublings = doublings.flat_map(|doublings| doublings.iter().enumerate());
        doublings.filter_map(|(doubling, parts)| Some((doubling * PARTS, parts.get()?)))
    }

    /// Sets the contract that packets are compared with from now on.
    pub fn set_contract(&self, contract: Option<Contract>) {
        let [per_byte, burst, bound] = match contract {
            None => [0; 3],
            Some(contract) => {
                let forget = duration(contract.backlog, contract.bps) + contract.bound;
                self.forget.store(forget.0, Ordering::Relaxed);
                if contract.is_of_flows {
                    self.clocks
                        .get_or_init(|| Box::new([const { AtomicU64::new(0) }; CLOCKS]));
                }
                let per_byte =
                    (8_000_000_000u128 << FRACTION_BITS).div_ceil(contract.bps.max(1).into());
                let units = (contract.bound.0 >> UNIT_BITS)
                    .min(u64::from(Verdict::NONCONFORMING.0) - 1)
                    + 1;
                let of_flows = u64::from(contract.is_of_flows) << 63;
                [
                    per_byte.min(u64::MAX.into()) as u64,
                    duration(contract.burst, contract.bps).0 + 1,
                    units | of_flows,
                ]
            }
        };
        for (word, value) in self.contract.iter().zip([per_byte, burst, bound]) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Compares a packet that has arrived, of this many bytes and this flow, with the contract. A clock of the class,
    /// or of some of its flows, gives the time when all packets up to this one have left at the guaranteed rate. The
    /// packet conforms if that time is no later after its arrival than the burst takes. To be called from one thread
    /// only.
    #[inline]
    pub fn judge(&self, flow: u64, bytes: u64, came: Nanos) -> Verdict {
        let [per_byte, burst, bound] =
            [0, 1, 2].map(|word: usize| self.contract[word].load(Ordering::Relaxed));
        if per_byte == 0 {
            return Verdict::UNJUDGED;
        }
        let clock = match self.clocks.get() {
            Some(clocks) if bound >> 63 != 0 => &clocks[flow as usize % CLOCKS],
            _ => &self.clock,
        };
        let span = bytes.saturating_mul(per_byte) >> FRACTION_BITS;
        let done = clock.load(Ordering::Relaxed).max(came.0) + span;
        let conforming = done - came.0 <= burst;
        if conforming {
            clock.store(done, Ordering::Relaxed);
            return Verdict(bound as u32);
        }
        // Arrivals that were dropped or served ahead are forgotten. A full queue is not: the packets behind it are late.
        let forget = self.forget.load(Ordering::Relaxed);
        let most = came.0.saturating_add(burst).saturating_add(forget);
        clock.store(done.min(most), Ordering::Relaxed);
        Verdict::NONCONFORMING
    }

    #[cold]
    #[inline(never)]
    fn count(&self, verdict: Verdict) {
        let count = match verdict {
            Verdict::NONCONFORMING => &self.nonconforming,
            _ => &self.violations,
        };
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Returns the number of nonconforming packets that have left.
    pub fn nonconforming(&self) -> u64 {
        self.nonconforming.load(Ordering::Relaxed)
    }

    /// Returns the number of conforming packets that took longer than the bound.
    pub fn violations(&self) -> u64 {
        self.violations.load(Ordering::Relaxed)
    }

    /// Counts a frame that arrived while others were lost. To be called from one thread only.
    pub fn record_beside_lost(&self) {
        let counted = self.ring_loss_samples.load(Ordering::Relaxed);
        self.ring_loss_samples.store(counted + 1, Ordering::Relaxed);
    }

    /// Counts a fragment that arrived without the first one of its datagram. To be called from one thread only.
    pub fn record_orphan(&self) {
        let counted = self.orphans.load(Ordering::Relaxed);
        self.orphans.store(counted + 1, Ordering::Relaxed);
    }

    /// Returns the number of fragments that arrived without the first one of their datagram.
    pub fn orphans(&self) -> u64 {
        self.orphans.load(Ordering::Relaxed)
    }

    /// Returns the number of frames that arrived while others were lost.
    pub fn ring_loss_samples(&self) -> u64 {
        self.ring_loss_samples.load(Ordering::Relaxed)
    }

    /// Notes the guaranteed rate of its class in bits per second, and the burst in bytes.
    pub fn set_guaranteed(&self, bps: Option<u64>, burst: u64) {
        let bps = bps.unwrap_or(0);
        let span = duration(burst, bps);
        for (word, value) in self.guaranteed.iter().zip([bps, span.0]) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Returns the guaranteed rate in bits per second, if any, and the time of its burst.
    pub fn guaranteed(&self) -> Option<(u64, Nanos)> {
        let [bps, span] = [0, 1].map(|word: usize| self.guaranteed[word].load(Ordering::Relaxed));
        (bps > 0).then_some((bps, Nanos(span)))
    }

    /// Returns the delays since the last read and adds them to `told`. The buckets count only to 2^32, so it must be
    /// read within that many packets, and by one reader, which passes the result on. O(allocated buckets).
    pub fn read(&self, told: &mut ReadTotals) -> Delays {
        let mut noted = self.notes.take();
        noted.sort_unstable();
        let noted = noted.chunk_by(PartialEq::eq);
        let noted = noted.map(|alike| (alike[0], alike.len() as u64));
        let (counted, more) = self.counted_after(&told.counted);
        let longest = Nanos(self.longest.load(Ordering::Relaxed));
        let recent = Delays {
            counts: more.plus(noted),
            longest,
        };
        if counted != told.counted {
            told.counted = counted;
        }
        if recent.counts != Counts::default() || longest != told.delays.longest {
            let counts = told.delays.counts.with(&recent.counts);
            told.delays = Arc::new(Delays { counts, longest });
        }
        recent
    }

    /// Returns all counts, given those at the last read, and the increase since.
    fn counted_after(&self, before: &Counts) -> (Counts, Counts) {
        let mut before_in = before.iter().peekable();
        let mut all = Writer::within(before.0.len() + SOME_MORE);
        let mut later = Writer::within(SOME_MORE);
        for (first, parts) in self.all_made() {
            for (bucket, count) in (first..).zip(parts.iter()) {
                let count = count.load(Ordering::Relaxed);
                let had = before_in.next_if(|&(other, _)| other == bucket);
                let had = had.map_or(0, |(_, count)| count);
                let more = u64::from(count.wrapping_sub(had as u32));
                all.write(bucket, had + more);
                later.write(bucket, more);
            }
        }
        (all.into(), later.into())
    }
}

/// The totals that a reader has read from a meter.
#[derive(Clone, Default)]
pub struct ReadTotals {
    /// All since the start.
    pub delays: Arc<Delays>,
    /// Those of them in the meter's buckets.
    counted: Counts,
}

fn bucket_of(delay: Nanos) -> usize {
    let units = delay.0 >> UNIT_BITS;
    let doubling = (64 - (units >> PART_BITS).leading_zeros()) as usize;
    match doubling {
        0 => units as usize,
        // The highest bit is the doubling's own.
        _ => (PARTS * doubling + (units >> (doubling - 1)) as usize - PARTS).min(BUCKETS - 1),
    }
}

/// Returns the longest delay that falls into a bucket.
fn longest_in(bucket: usize) -> u64 {
    let (doubling, part) = (bucket / PARTS, bucket % PARTS);
    let after = match doubling {
        0 => part as u64 + 1,
        _ => ((PARTS + part) as u64 + 1) << (doubling - 1),
    };
    (after << UNIT_BITS) - 1
}

/// Non-empty buckets with their counts, in order, encoded in few bytes: for each bucket its distance from the one
/// before, and its count, both in seven bits per byte.
#[derive(Clone, Default, PartialEq, Eq)]
struct Counts(Box<[u8]>);

impl Counts {
    fn iter(&self) -> impl Iterator<Item = (usize, u64)> {
        let (mut left, mut bucket) = (&*self.0, 0);
        std::iter::from_fn(move || {
            let (distance, behind) = number(left)?;
            let (count, behind) = number(behind)?;
            left = behind;
            bucket += distance as usize;
            Some((bucket, count))
        })
    }

    /// Returns an upper bound of the number of buckets. O(1).
    fn at_most(&self) -> usize {
        // Of each two bytes at least.
        self.0.len() / 2
    }

    /// Returns the sum with `others`, which came later. Once there are [`FINE`] buckets, delays outside them go to the
    /// last of a group of [`COARSE`] buckets; delays in existing buckets are always counted there. O(buckets of both).
    fn with(&self, others: &Counts) -> Counts {
        if self.at_most() + others.at_most() <= FINE {
            return self.plus(others.iter());
        }
        let mut there = self.iter().map(|(bucket, _)| bucket).peekable();
        let mut room = FINE.saturating_sub(self.iter().count());
        let others = others.iter().map(|(bucket, count)| {
            while there.next_if(|&other| other < bucket).is_some() {}
            match there.peek() == Some(&bucket) {
                true => (bucket, count),
                false if room > 0 => {
                    room -= 1;
                    (bucket, count)
                }
                false => (bucket | (COARSE - 1), count),
            }
        });
        // Some are in one bucket by now, and out of order.
        let mut others: Vec<_> = others.collect();
        others.sort_unstable();
        let alike = others.chunk_by(|one, other| one.0 == other.0);
        let sums = alike.map(|alike| (alike[0].0, alike.iter().map(|(_, count)| count).sum()));
        self.plus(sums)
    }

    /// Returns the sums of both. O(buckets of both).
    fn plus(&self, others: impl Iterator<Item = (usize, u64)>) -> Counts {
        let (mut own, mut others) = (self.iter().peekable(), others.peekable());
        let next = std::iter::from_fn(move || {
            let of_own = own.peek().map(|&(bucket, _)| bucket);
            let of_others = others.peek().map(|&(bucket, _)| bucket);
            let bucket = of_own.into_iter().chain(of_others).min()?;
            let counts = [
                own.next_if(|&(other, _)| other == bucket),
                others.next_if(|&(other, _)| other == bucket),
            ];
            let counts = counts.into_iter().flatten();
            Some((bucket, counts.map(|(_, count)| count).sum()))
        });
        let mut sums = Writer::within(self.0.len() + SOME_MORE);
        next.for_each(|(bucket, count)| sums.write(bucket, count));
        sums.into()
    }
}

impl FromIterator<(usize, u64)> for Counts {
    /// Collects buckets in ascending order.
    fn from_iter<T: IntoIterator<Item = (usize, u64)>>(counts: T) -> Counts {
        let mut writer = Writer::within(0);
        let counts = counts.into_iter();
        counts.for_each(|(bucket, count)| writer.write(bucket, count));
        writer.into()
    }
}

/// Writes [`Counts`], bucket after bucket.
struct Writer {
    bytes: Vec<u8>,
    last: usize,
}

impl Writer {
    /// Creates a writer with capacity for this many bytes, which usually suffices.
    fn within(bytes: usize) -> Writer {
        Writer {
            bytes: Vec::with_capacity(bytes),
            last: 0,
        }
    }

    /// Appends a bucket above all before; an empty one is left out.
    #[inline]
    fn write(&mut self, bucket: usize, count: u64) {
        if count > 0 {
            write(&mut self.bytes, (bucket - self.last) as u64);
            write(&mut self.bytes, count);
            self.last = bucket;
        }
    }
}

impl From<Writer> for Counts {
    fn from(writer: Writer) -> Counts {
        Counts(writer.bytes.into())
    }
}

impl fmt::Debug for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// Bytes of a few buckets.
const SOME_MORE: usize = 16;

/// Bits of a number in a byte; the highest bit says that more follow.
const DIGIT: u32 = 7;
const MORE: u8 = 1 << DIGIT;

fn write(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= MORE.into() {
        bytes.push(number as u8 | MORE);
        number >>= DIGIT;
    }
    bytes.push(number as u8);
}

/// Parses the first number. Returns it with the remainder; `None` if there is none.
fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (&(mut byte), mut behind) = bytes.split_first()?;
    let (mut number, mut shift) = (u64::from(byte & !MORE), 0);
    while byte & MORE != 0 {
        (byte, behind) = behind.split_first().map(|(byte, behind)| (*byte, behind))?;
        shift += DIGIT;
        number |= u64::from(byte & !MORE) << shift;
    }
    Some((number, behind))
}

/// Counts of delays, each to two significant digits. Of a class's delays since its start, this holds for the first 192
/// distinct values; the others are rounded to a sixteenth.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delays {
    counts: Counts,
    longest: Nanos,
}

impl Delays {
    /// Counts one more. O(distinct delays).
    pub fn record(&mut self, delay: Nanos) {
        self.counts = self.counts.plus([(bucket_of(delay), 1)].into_iter());
        self.longest = self.longest.max(delay);
    }

    /// Counts all of `others` too. O(distinct delays of both).
    pub fn extend(&mut self, others: &Delays) {
        if others.counts != Counts::default() {
            self.counts = self.counts.plus(others.counts.iter());
        }
        self.longest = self.longest.max(others.longest);
    }

    /// Returns the number of delays.
    pub fn count(&self) -> u64 {
        self.counts.iter().map(|(_, count)| count).sum()
    }

    /// Iterates over the distinct delays, ascending, with their counts. A delay is too long by at most a sixty-fourth,
    /// and by a microsecond below 64 of them; after 192 distinct values, by at most a sixteenth, or four microseconds.
    pub fn distinct(&self) -> impl Iterator<Item = (Nanos, u64)> {
        let counts = self.counts.iter();
        counts.map(|(bucket, count)| (Nanos(longest_in(bucket)), count))
    }

    /// Returns the mean in nanoseconds; `None` without delays.
    pub fn mean(&self) -> Option<f64> {
        let sum: f64 = (self.distinct())
            .map(|(delay, count)| delay.0 as f64 * count as f64)
            .sum();
        let count = self.count();
        (count > 0).then(|| sum / count as f64)
    }

    /// Returns the longest delay counted; 0 before the first.
    #[must_use]
    pub fn longest(&self) -> Nanos {
        self.longest
    }

    /// Returns quantiles of the delays for these parts of the packets, to two digits; `None` without any. The parts are
    /// in ascending order. O(distinct delays).
    fn quantiles<const N: usize>(&self, ascending: [f64; N]) -> Option<[Nanos; N]> {
        let all = self.count();
        let (mut counts, mut last, mut so_far) = (self.counts.iter(), None, 0);
        let delays = ascending.map(|quantile| {
            let wanted = ((all as f64 * quantile).ceil() as u64).max(1);
            while so_far < wanted
                && let Some((bucket, count)) = counts.next()
            {
                (last, so_far) = (Some(bucket), so_far + count);
            }
            let bucket = last.unwrap_or(0);
            Nanos(longest_in(bucket)).min(self.longest)
        });
        (all > 0).then_some(delays)
    }

    /// Converts the delays to a report in microseconds; `None` without packets. `longest` is more precise than the
    /// delays' digits.
    pub fn in_micros(&self, longest: Option<Nanos>) -> Option<DelayReport> {
        let micros = |nanos: Nanos| nanos.0 as f64 / 1e3;
        let [p50, p99, max] = self.quantiles([0.5, 0.99, 1.0])?;
        Some(DelayReport {
            mean: None,
            p50: micros(p50),
            p99: micros(p99),
            max: micros(longest.unwrap_or(max)),
        })
    }
}
