//! How long the packets of a class stayed: counted by the forwarding thread, read by another.
//!
//! One writer, which loads and stores and neither locks nor fences; a reader may miss what is
//! being counted just then, and sees it the next time.

use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use fairlane_config::class_report::DelayReport;
use fairlane_core::Nanos;

/// Parts that each doubling of a delay is divided into: two digits.
const PARTS: usize = 64;
const PART_BITS: u32 = PARTS.trailing_zeros();
/// A bucket of the first doubling is as wide as 2^10 ns, about a microsecond.
const UNIT_BITS: u32 = 10;
/// Doublings: up to two minutes.
const DOUBLINGS: usize = 21;
const BUCKETS: usize = PARTS * (DOUBLINGS + 1);

/// The counts of one doubling, and of all.
type Parts = Arc<[AtomicU32; PARTS]>;
type Doublings = Box<[OnceLock<Parts>; DOUBLINGS + 1]>;

/// The delays of one class since it came.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    /// Made for the first packet, and each doubling for the first one in it: there may be thousands of
    /// classes, of which many have no packets, and the delays of one are within a few doublings.
    doublings: OnceLock<Doublings>,
    /// In nanoseconds.
    longest: AtomicU64,
    /// Frames that came while their interface was losing others: a sample of those.
    beside_lost: AtomicU64,
}

/// What the thread that counts keeps at hand of a meter: half a cache line, so that a packet touches that and
/// its counter. The meter itself and its table of doublings are two lines more, of each class of thousands.
#[derive(Debug)]
#[repr(align(32))]
pub(crate) struct Recorder {
    meter: Arc<Meter>,
    /// The counts of two doublings side by side, by the last bit of their numbers: the delays of a class
    /// lie about one boundary at a time.
    parts: [Option<Parts>; 2],
    /// Nanoseconds: delays of no more are not longer than the longest.
    longest: u32,
    /// Which doublings those are; of none, [`Recorder::NONE`].
    doublings: [u8; 2],
}

const _: () = assert!(size_of::<Option<Recorder>>() == 32 && DOUBLINGS < Recorder::NONE as usize);

impl Recorder {
    const NONE: u8 = u8::MAX;

    /// All recorders of a meter are of one thread.
    pub(crate) fn new(meter: Arc<Meter>) -> Recorder {
        Recorder {
            meter,
            parts: [None, None],
            longest: 0,
            doublings: [Recorder::NONE; 2],
        }
    }

    pub(crate) fn meter(&self) -> &Meter {
        &self.meter
    }

    /// Counts one delay.
    #[inline]
    pub(crate) fn record(&mut self, delay: Nanos) {
        if delay.0 > self.longest.into() {
            self.lengthen(delay);
        }
        let bucket = bucket_of(delay);
        let (doubling, part) = (bucket / PARTS, bucket % PARTS);
        if self.doublings[doubling % 2] != doubling as u8 {
            self.turn_to(doubling);
        }
        if let Some(parts) = &self.parts[doubling % 2] {
            let count = parts[part].load(Ordering::Relaxed);
            parts[part].store(count.wrapping_add(1), Ordering::Relaxed);
        }
    }

    #[cold]
    #[inline(never)]
    fn turn_to(&mut self, doubling: usize) {
        self.parts[doubling % 2] = Some(Arc::clone(self.meter.parts(doubling)));
        self.doublings[doubling % 2] = doubling as u8;
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

    /// Each bucket that was made, in order, and what it counts.
    fn buckets(&self) -> impl Iterator<Item = (usize, u32)> {
        let doublings = self.doublings.get().into_iter();
        let doublings = doublings.flat_map(|doublings| doublings.iter().enumerate());
        let made = doublings.filter_map(|(doubling, parts)| Some((doubling, parts.get()?)));
        made.flat_map(|(doubling, parts)| {
            let counts = parts.iter().map(|count| count.load(Ordering::Relaxed));
            (doubling * PARTS..).zip(counts)
        })
    }

    /// Counts a frame that came while others were lost. Of one thread only.
    pub(crate) fn record_beside_lost(&self) {
        let counted = self.beside_lost.load(Ordering::Relaxed);
        self.beside_lost.store(counted + 1, Ordering::Relaxed);
    }

    /// Frames that came while others were lost.
    pub(crate) fn beside_lost(&self) -> u64 {
        self.beside_lost.load(Ordering::Relaxed)
    }

    /// What was counted so far, of which `before` was read last, and is shared where nothing came since: the
    /// buckets themselves count only to 2^32, so it is to be read within so many packets. O(buckets that were made).
    pub(crate) fn read(&self, before: &Arc<Delays>) -> Arc<Delays> {
        let mut had = before.counts.iter().peekable();
        let counts = self.buckets().map(|(bucket, count)| {
            let had = had.next_if(|&(other, _)| other == bucket);
            let had = had.map_or(0, |(_, count)| count);
            let more = count.wrapping_sub(had as u32);
            (bucket, had + u64::from(more))
        });
        let delays = Delays {
            counts: counts.collect(),
            longest: Nanos(self.longest.load(Ordering::Relaxed)),
        };
        match delays == **before {
            true => Arc::clone(before),
            false => Arc::new(delays),
        }
    }
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

/// The longest delay that falls into a bucket.
fn longest_in(bucket: usize) -> u64 {
    let (doubling, part) = (bucket / PARTS, bucket % PARTS);
    let after = match doubling {
        0 => part as u64 + 1,
        _ => ((PARTS + part) as u64 + 1) << (doubling - 1),
    };
    (after << UNIT_BITS) - 1
}

/// Buckets with something in them, in order, and how many, in few bytes: of each how far it is from the one
/// before, and its count, both in seven bits a byte.
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

    /// The sums of both. O(buckets of both).
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
        next.collect()
    }
}

impl FromIterator<(usize, u64)> for Counts {
    /// Of buckets in their order; those that are empty are left out.
    fn from_iter<T: IntoIterator<Item = (usize, u64)>>(counts: T) -> Counts {
        let (mut bytes, mut last) = (Vec::new(), 0);
        for (bucket, count) in counts.into_iter().filter(|&(_, count)| count > 0) {
            write(&mut bytes, (bucket - last) as u64);
            write(&mut bytes, count);
            last = bucket;
        }
        Counts(bytes.into())
    }
}

impl fmt::Debug for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

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

/// The first number, and what is behind it; `None` where there is none.
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

/// Delays that were counted, each to two digits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delays {
    counts: Counts,
    longest: Nanos,
}

impl Delays {
    /// Those that were not counted when `earlier` was read.
    pub(crate) fn since(&self, earlier: &Delays) -> Delays {
        let mut before = earlier.counts.iter().peekable();
        let counts = self.counts.iter().map(|(bucket, count)| {
            while before.next_if(|&(other, _)| other < bucket).is_some() {}
            let had = before.next_if(|&(other, _)| other == bucket);
            (bucket, count - had.map_or(0, |(_, count)| count))
        });
        Delays {
            counts: counts.collect(),
            longest: self.longest,
        }
    }

    /// Counts one more. O(distinct delays).
    pub fn record(&mut self, delay: Nanos) {
        self.counts = self.counts.plus([(bucket_of(delay), 1)].into_iter());
        self.longest = self.longest.max(delay);
    }

    /// Counts all of `others` too. O(distinct delays of both).
    pub(crate) fn extend(&mut self, others: &Delays) {
        if others.counts != Counts::default() {
            self.counts = self.counts.plus(others.counts.iter());
        }
        self.longest = self.longest.max(others.longest);
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u64 {
        self.counts.iter().map(|(_, count)| count).sum()
    }

    /// Each delay that there was, ascending, and how often: too long by at most a sixty-fourth, and by a
    /// microsecond below 64 of them.
    pub fn distinct(&self) -> impl Iterator<Item = (Nanos, u64)> {
        let counts = self.counts.iter();
        counts.map(|(bucket, count)| (Nanos(longest_in(bucket)), count))
    }

    /// Their mean, in nanoseconds; `None` without any.
    pub(crate) fn mean(&self) -> Option<f64> {
        let sum: f64 = (self.distinct())
            .map(|(delay, count)| delay.0 as f64 * count as f64)
            .sum();
        let count = self.count();
        (count > 0).then(|| sum / count as f64)
    }

    /// The longest that was ever counted; 0 before the first.
    #[must_use]
    pub fn longest(&self) -> Nanos {
        self.longest
    }

    /// The delay that this part of the packets did not exceed, to two digits; `None` without
    /// any.
    pub(crate) fn quantile(&self, quantile: f64) -> Option<Nanos> {
        let wanted = ((self.count() as f64 * quantile).ceil() as u64).max(1);
        let mut so_far = 0;
        let bucket = self.counts.iter().find(|&(_, count)| {
            so_far += count;
            so_far >= wanted
        });
        bucket.map(|(bucket, _)| Nanos(longest_in(bucket)).min(self.longest))
    }

    /// As they are told, in microseconds; none of no packet. `longest` is known better than by the
    /// delays' digits.
    pub(crate) fn in_micros(&self, longest: Option<Nanos>) -> Option<DelayReport> {
        let micros = |nanos: Nanos| nanos.0 as f64 / 1e3;
        Some(DelayReport {
            mean: None,
            p50: micros(self.quantile(0.5)?),
            p99: micros(self.quantile(0.99)?),
            max: micros(longest.or_else(|| self.quantile(1.0))?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metered() -> (Arc<Meter>, Recorder) {
        let meter = Arc::new(Meter::default());
        (Arc::clone(&meter), Recorder::new(meter))
    }

    #[test]
    fn every_delay_is_in_a_bucket_less_than_two_hundredths_wide() {
        let mut last = 0;
        for step in 0..2_000_u64 {
            let delay = Nanos((1.012_f64.powf(step as f64) * 1_000.0) as u64);
            let bucket = bucket_of(delay);
            assert!(bucket >= last && bucket < BUCKETS, "{delay:?}");
            last = bucket;
            if bucket == BUCKETS - 1 {
                assert!(delay.0 > 100_000_000_000, "{delay:?}");
                break;
            }
            let longest = longest_in(bucket);
            let wide = (longest - delay.0) as f64;
            assert!(longest >= delay.0, "{delay:?} {longest}");
            assert!(
                wide <= 1_100.0_f64.max(delay.0 as f64 / 63.0),
                "{delay:?} {longest}"
            );
            assert_eq!(bucket_of(Nanos(longest)), bucket);
            assert_eq!(bucket_of(Nanos(longest + 1)), bucket + 1);
        }
    }

    #[test]
    fn delays_that_are_counted_one_by_one_are_those_of_a_meter() {
        let (meter, mut recorder) = metered();
        let (mut delays, mut others) = (Delays::default(), Delays::default());
        for us in [900, 7, 900, 12_000, 3, 7] {
            recorder.record(Nanos::from_micros(us));
            match us {
                900 => others.record(Nanos::from_micros(us)),
                _ => delays.record(Nanos::from_micros(us)),
            }
        }
        delays.extend(&others);
        let metered = meter.read(&Arc::default());
        assert_eq!(delays.counts, metered.counts);
        assert_eq!(delays.longest(), metered.longest());
    }

    #[test]
    fn counts_of_any_size_are_what_they_were_in_few_bytes() {
        let all = [
            (0, 1),
            (1, 127),
            (128, 128),
            (256, 1 << 14),
            (BUCKETS - 1, u64::MAX),
        ];
        let counts: Counts = all.into_iter().collect();
        assert!(counts.iter().eq(all));
        assert_eq!(counts.0.len(), 2 + 2 + 3 + 5 + 12);
        let empty = [(3, 0), (4, 2), (9, 0)];
        let counts: Counts = empty.into_iter().collect();
        assert!(counts.iter().eq([(4, 2)]));
        let sum = counts.plus([(1, 5), (4, 126), (7, 1)].into_iter());
        assert!(sum.iter().eq([(1, 5), (4, 128), (7, 1)]), "{sum:?}");
        assert!(Counts::default().iter().next().is_none());
    }

    #[test]
    fn what_was_read_before_is_shared_until_more_comes() {
        let (meter, mut recorder) = metered();
        let none = Arc::default();
        assert!(Arc::ptr_eq(&meter.read(&none), &none));
        recorder.record(Nanos::from_micros(7));
        let first = meter.read(&none);
        assert!(Arc::ptr_eq(&meter.read(&first), &first));
        // In the bucket where others are.
        recorder.record(Nanos::from_micros(7));
        assert_eq!(meter.read(&first).count(), 2);
    }

    #[test]
    fn a_class_whose_delays_are_alike_has_few_buckets_and_one_without_packets_none() {
        let (meter, mut recorder) = metered();
        assert_eq!(meter.buckets().count(), 0);
        for us in 1_100..2_000 {
            recorder.record(Nanos::from_micros(us));
        }
        assert_eq!(meter.buckets().count(), PARTS);
        assert_eq!(meter.read(&Arc::default()).count(), 900);
        recorder.record(Nanos::from_micros(7));
        recorder.record(Nanos::MAX);
        assert_eq!(meter.buckets().count(), 3 * PARTS);
        let buckets: Vec<usize> = meter.buckets().map(|(bucket, _)| bucket).collect();
        assert!(buckets.is_sorted());
    }

    #[test]
    fn a_window_has_what_came_in_it_and_the_whole_has_all() {
        let (meter, mut recorder) = metered();
        let none = Arc::default();
        assert_eq!(meter.read(&none).quantile(0.5), None);
        for _ in 0..99 {
            recorder.record(Nanos::from_millis(10));
        }
        recorder.record(Nanos::from_millis(500));
        let first = meter.read(&none);
        for _ in 0..100 {
            recorder.record(Nanos::from_millis(1));
        }
        let all = meter.read(&first);
        let recent = all.since(&first);
        let about = |delays: &Delays, quantile, millis: f64| {
            let found = delays.quantile(quantile).unwrap().0 as f64 / 1e6;
            assert!((1.0..1.02).contains(&(found / millis)), "{found}");
        };
        about(&first, 0.99, 10.0);
        about(&all, 1.0, 500.0);
        about(&recent, 1.0, 1.0);
        about(&recent, 0.5, 1.0);
        assert_eq!(all.since(&all).quantile(0.5), None);
    }

    #[test]
    fn a_bucket_that_is_full_goes_on_from_the_beginning_and_nobody_notices() {
        let (meter, mut recorder) = metered();
        recorder.record(Nanos::from_millis(1));
        let bucket = bucket_of(Nanos::from_millis(1));
        meter.parts(bucket / PARTS)[bucket % PARTS].store(u32::MAX, Ordering::Relaxed);
        let before = meter.read(&Arc::default());
        assert_eq!(before.count(), u64::from(u32::MAX));
        recorder.record(Nanos::from_millis(1));
        let none_in_it = meter.read(&before);
        assert_eq!(none_in_it.count(), 1 << 32);
        assert_eq!(none_in_it.since(&before).count(), 1);
        recorder.record(Nanos::from_millis(1));
        assert_eq!(meter.read(&none_in_it).count(), (1 << 32) + 1);
    }

    #[test]
    fn whoever_goes_on_counting_in_a_meter_forgets_nothing_and_shortens_nothing() {
        let (meter, mut first) = metered();
        first.record(Nanos::from_secs(7));
        first.record(Nanos::from_millis(3));
        let mut second = Recorder::new(Arc::clone(&meter));
        // Over three doublings and back, and beyond what a recorder knows as the longest itself.
        for (ms, longest) in [
            (3, 7_000),
            (6, 7_000),
            (12, 7_000),
            (3, 7_000),
            (8_000, 8_000),
            (5_000, 8_000),
        ] {
            second.record(Nanos::from_millis(ms));
            let delays = meter.read(&Arc::default());
            assert_eq!(
                delays.longest(),
                Nanos::from_millis(longest),
                "after {ms} ms"
            );
        }
        let delays = meter.read(&Arc::default());
        let counts: Vec<u64> = delays.distinct().map(|(_, count)| count).collect();
        assert_eq!((delays.count(), counts), (8, vec![3, 1, 1, 1, 1, 1]));
    }
}
