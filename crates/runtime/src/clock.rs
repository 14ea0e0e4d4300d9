//! The clock that provides `now` to code that may not read one.

use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant as SystemTime};

use fairlane_core::Nanos;
use quanta::Instant;

/// How long the first clock of a process compares the counter with the system's clock. Either
/// end of that is known to some 100 ns.
const CALIBRATION: Duration = Duration::from_millis(50);

/// Looks at both clocks at either end, of which the quickest counts.
const LOOKS: usize = 100;

/// How far the counters of two cores may be apart.
const APART: Duration = Duration::from_millis(1);

/// A look at counter and system's clock that took longer is no look at both at one moment.
const QUICK: Duration = Duration::from_millis(5);

/// A monotonic clock that starts at zero; copies show the same time, on every core.
///
/// Processors read the counter out of order with earlier loads, some microseconds ahead at most: a time that
/// another thread has handed over may exceed the one that is read next. It counts as now, by
/// [`Nanos::since`].
///
/// Reads the processor's time-stamp counter where it runs at a constant rate, through all power states and
/// alike on all cores; elsewhere, the system's monotonic clock. The first clock of a process calibrates the
/// counter against the system's clock, which takes up to a quarter of a second. Afterwards it may deviate
/// from that clock by some millionths, as that clock is disciplined to world time.
///
/// The counter may go backwards when a machine sleeps or migrates to another host. [`drive`](crate::drive)
/// detects that soon, and all clocks of the process use the system's clock from then on.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
    /// Nanoseconds of the system's clock in one of the counter's, in 2^-32.
    pace: u64,
    counter: &'static Counter,
}

/// The counter and the system's clock at one moment.
type Both = (Instant, SystemTime);

/// State of the counter.
#[derive(Debug)]
struct Counter {
    /// When it was last found to be sound, if it is not any more.
    failed: OnceLock<Both>,
    /// When it was last looked at.
    looked: Mutex<Option<Both>>,
}

/// That of this process.
static COUNTER: Counter = Counter::new();

impl Counter {
    const fn new() -> Counter {
        Counter {
            failed: OnceLock::new(),
            looked: Mutex::new(None),
        }
    }

    /// Returns the counter's time, or its extrapolation after a failure.
    #[inline]
    fn read(&self, pace: u64) -> Instant {
        match self.failed.get() {
            None => Instant::now(),
            Some(failed) => go_on_from(failed, pace),
        }
    }
}

/// Returns the counter's time extrapolated by the system's clock.
#[cold]
#[inline(never)]
fn go_on_from(&(counter, system): &Both, pace: u64) -> Instant {
    counter + counted(system.elapsed(), pace)
}

/// Converts a span of the system's clock into one of the counter.
fn counted(span: Duration, pace: u64) -> Duration {
    let nanos = span.as_nanos().min(u64::MAX.into());
    let counted = (nanos << 32) / u128::from(pace.max(1));
    Duration::from_nanos(u64::try_from(counted).unwrap_or(u64::MAX))
}

impl Clock {
    /// Returns a clock that starts now.
    pub fn start() -> Self {
        // The counter's nanoseconds are those of a calibration that a busy machine puts out by
        // hundreds of millionths.
        static PACE: OnceLock<u64> = OnceLock::new();
        let pace = *PACE.get_or_init(|| {
            let first = both();
            thread::sleep(CALIBRATION);
            let last = both();
            let counter = last.0.duration_since(first.0).as_nanos().max(1);
            let system = last.1.duration_since(first.1).as_nanos();
            ((system << 32) / counter) as u64
        });
        Clock {
            origin: COUNTER.read(pace),
            pace,
            counter: &COUNTER,
        }
    }

    /// Returns the same clock, set to `time` now: that of another process, for example.
    #[must_use]
    pub fn set(self, time: Nanos) -> Self {
        let counted = counted(time.into(), self.pace);
        let now = self.counter.read(self.pace);
        Clock {
            // A time before the counter's own cannot be represented.
            origin: now.checked_sub(counted).unwrap_or(now),
            ..self
        }
    }

    /// Time since the start, in nanoseconds. Some 10 ns.
    #[inline]
    pub fn now(&self) -> Nanos {
        let now = self.counter.read(self.pace);
        self.told(now.duration_since(self.origin))
    }

    /// Converts a span of the counter into one of the system's clock.
    #[inline]
    fn told(&self, counted: Duration) -> Nanos {
        Nanos(((counted.as_nanos() * u128::from(self.pace)) >> 32) as u64)
    }

    /// Checks whether the counter went backwards since the last check. Never blocks. Some 100 ns.
    #[cold]
    #[inline(never)]
    pub(crate) fn look(&self) {
        let Counter { failed, looked } = self.counter;
        if failed.get().is_some() {
            return;
        }
        let Ok(mut looked) = looked.try_lock() else {
            return;
        };
        let begun = SystemTime::now();
        let now = (Instant::now(), SystemTime::now());
        match *looked {
            Some(last) if now.0 + APART < last.0 => {
                // No other thread checks meanwhile.
                let _ = failed.set(last);
            }
            // Another thread had the processor in between.
            Some(_) if now.1.duration_since(begun) > QUICK => {}
            _ => *looked = Some(now),
        }
    }
}

/// Returns the counter and the system's clock at one moment.
fn both() -> Both {
    let look = || {
        let before = SystemTime::now();
        let counter = Instant::now();
        let took = before.elapsed();
        (took, counter, before + took / 2)
    };
    let quicker = |one: (Duration, _, _), other: (Duration, _, _)| match other.0 < one.0 {
        true => other,
        false => one,
    };
    let (_, counter, system) = (1..LOOKS).fold(look(), |best, _| quicker(best, look()));
    (counter, system)
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::{Idling, Next, Step, Steps, Woken, drive};

    const HOUR: Duration = Duration::from_secs(3_600);
    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_clock_that_is_set_tells_that_time_and_runs_on() {
        let clock = Clock::start();
        for time in [Nanos::ZERO, Nanos::from_millis(60_000)] {
            let set = clock.set(time);
            let told = set.now();
            // The pace may cut off a nanosecond.
            let early = time.since(told);
            assert!(
                early.0 <= 1 && told.since(time) < Nanos::from_millis(2_000),
                "{told:?}"
            );
            thread::sleep(Duration::from_millis(2));
            assert!(set.now().since(told) >= Nanos::from_millis(2));
        }
    }

    /// Returns a clock whose last check was a second ago, at five seconds, before the counter went back by an
    /// hour.
    fn put_back() -> Clock {
        let looked = (Instant::now() + HOUR, SystemTime::now() - SECOND);
        let counter: &Counter = Box::leak(Box::new(Counter::new()));
        *counter.looked.lock().unwrap() = Some(looked);
        let clock = Clock {
            origin: looked.0 - 5 * SECOND,
            counter,
            ..Clock::start()
        };
        assert_eq!(clock.now(), Nanos::ZERO, "it stands still");
        clock
    }

    #[test]
    fn clocks_go_on_by_the_systems_where_the_counter_was_put_back() {
        let clock = put_back();
        clock.look();
        let told = clock.now();
        let hour = Nanos::from(HOUR);
        assert!(told >= Nanos::from_millis(5_990) && told < hour, "{told:?}");
        let set = clock.set(told);
        thread::sleep(Duration::from_millis(2));
        for clock in [clock, set] {
            let later = clock.now();
            assert!(later > told && later < hour, "{later:?}");
        }
    }

    #[test]
    fn a_counter_that_is_sound_is_not_given_up() {
        let counter: &Counter = Box::leak(Box::new(Counter::new()));
        let clock = Clock {
            counter,
            ..Clock::start()
        };
        for _ in 0..50 {
            clock.look();
            thread::sleep(Duration::from_millis(1));
        }
        // A counter that ran while the machine slept.
        let earlier = Instant::now() - Duration::from_millis(10);
        *counter.looked.lock().unwrap() = Some((earlier, SystemTime::now()));
        clock.look();
        assert_eq!(counter.failed.get(), None);
    }

    /// Has something to do a little later than the clock stands.
    struct Later(Vec<Nanos>);

    impl Steps for Later {
        fn step(&mut self, now: Nanos) -> io::Result<Step> {
            self.0.push(now);
            Ok(Step {
                drained: 0,
                released: 0,
                transmitted: 0,
                next: Next::At(Nanos::from_millis(6_050)),
            })
        }

        fn sleep(&mut self, longest: Duration) -> io::Result<Option<Woken>> {
            thread::sleep(longest);
            Ok(Some(Woken::TimedOut))
        }

        fn is_done(&self) -> bool {
            self.0.last() >= Some(&Nanos::from_millis(6_050))
        }
    }

    #[test]
    fn who_waits_for_a_time_goes_on_where_the_counter_was_put_back() {
        let mut later = Later(Vec::new());
        drive(&mut later, &put_back(), Idling::default(), |_, _, _| true).unwrap();
        assert!(later.0.is_sorted(), "time goes backwards");
    }
}
