//! Counting packets, and the time that a thread takes for them.

use std::io;
use std::ops::AddAssign;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fairlane_lab_bench::instructions::{Counter, Of};
use rustix::time::{ClockId, clock_gettime};

use super::wire::BATCH;

/// How long packets pile up before they are worked off: a few batches of them.
const PAUSE: Duration = Duration::from_micros(200);
/// How long a first packet is waited for beyond the span, on a machine with other work.
const PATIENCE: Duration = Duration::from_secs(2);

/// The result of one round of a loop.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Round {
    /// Received packets.
    pub came: usize,
    /// Completed packets, which count.
    pub done: usize,
    /// Some received packets are not finished.
    pub unfinished: bool,
}

/// Packets, and the time for them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sample {
    pub packets: u64,
    /// Rounds that moved packets.
    pub rounds: u64,
    /// Time of the thread on its core, the kernel's part included, while there was work.
    pub cpu: Duration,
    /// The same by the clock on the wall.
    pub busy: Duration,
    /// From the begin to the end.
    pub span: Duration,
    /// Of the thread, the kernel's in its place included, while there was work; where they are counted.
    pub instructions: Option<u64>,
}

impl AddAssign for Sample {
    fn add_assign(&mut self, other: Sample) {
        self.packets += other.packets;
        self.rounds += other.rounds;
        self.cpu += other.cpu;
        self.busy += other.busy;
        self.span += other.span;
        let both = self.instructions.zip(other.instructions);
        self.instructions = both.map(|(sum, more)| sum + more);
    }
}

/// Of the calling thread's instructions, where this user may count them.
fn counter() -> Option<Counter> {
    Counter::of_this_thread(Of::ProgramAndKernel).ok()
}

/// Returns the time that the calling thread was on a core so far.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// When a measurement is over.
#[derive(Clone, Copy)]
pub(super) struct Until<'a> {
    pub span: Duration,
    /// Set when it is to end early.
    pub stop: &'a AtomicBool,
}

impl Until<'_> {
    /// Returns whether it is over after `packets` packets.
    fn is_over(&self, begun: Instant, packets: u64) -> bool {
        let span = match packets {
            0 => self.span.saturating_add(PATIENCE),
            _ => self.span,
        };
        begun.elapsed() >= span || self.stop.load(Ordering::Relaxed)
    }
}

/// Makes rounds without a pause.
pub(super) fn without_pause(
    until: Until,
    round: impl FnMut() -> io::Result<Round>,
) -> io::Result<Sample> {
    let begun = Instant::now();
    let last = |_, packets| until.is_over(begun, packets);
    let mut sample = busy(round, last, counter().as_mut())?;
    sample.span = begun.elapsed();
    Ok(sample)
}

/// Lets packets pile up, makes rounds until they are worked off, and so on. Only the latter
/// counts as busy, so that packets are worked off as by a thread that always has more.
pub(super) fn with_backlog(
    until: Until,
    mut round: impl FnMut() -> io::Result<Round>,
) -> io::Result<Sample> {
    let begun = Instant::now();
    let mut counter = counter();
    let mut total = Sample {
        instructions: counter.is_some().then_some(0),
        ..Sample::default()
    };
    while !until.is_over(begun, total.packets) {
        thread::sleep(PAUSE);
        let last = |round: Round, packets| {
            let worked_off = round.came < BATCH && !round.unfinished;
            worked_off || until.is_over(begun, total.packets + packets)
        };
        let sample = busy(&mut round, last, counter.as_mut())?;
        if sample.packets > 0 {
            total += sample;
        }
    }
    total.span = begun.elapsed();
    Ok(total)
}

/// Makes rounds until one was the last.
fn busy(
    mut round: impl FnMut() -> io::Result<Round>,
    mut last: impl FnMut(Round, u64) -> bool,
    mut counter: Option<&mut Counter>,
) -> io::Result<Sample> {
    let mut sample = Sample::default();
    let mut instructions = || counter.as_mut().and_then(|counter| counter.read());
    let before = instructions();
    let (begun, cpu) = (Instant::now(), thread_time());
    loop {
        let did = round()?;
        sample.packets += did.done as u64;
        sample.rounds += u64::from(did.done > 0);
        if last(did, sample.packets) {
            break;
        }
    }
    sample.cpu = thread_time().saturating_sub(cpu);
    sample.busy = begun.elapsed();
    let counted = before.zip(instructions());
    sample.instructions = counted.map(|(before, after)| after - before);
    Ok(sample)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Duration = Duration::from_millis(30);

    fn full() -> Round {
        Round {
            came: BATCH,
            done: BATCH,
            unfinished: false,
        }
    }

    #[test]
    fn pauses_count_neither_as_time_on_the_core_nor_as_busy() {
        let stop = AtomicBool::new(false);
        let until = Until {
            span: SPAN,
            stop: &stop,
        };
        let mut rounds = 0_u64;
        let sample = with_backlog(until, || {
            rounds += 1;
            // Every other round empties the queue.
            Ok(Round {
                came: BATCH - (rounds % 2) as usize,
                ..full()
            })
        })
        .unwrap();
        assert_eq!(sample.packets, rounds * BATCH as u64);
        let pauses = PAUSE * (rounds / 2) as u32;
        assert!(sample.span >= SPAN, "{sample:?}");
        assert!(
            sample.span >= sample.busy + pauses,
            "{sample:?}, {pauses:?}"
        );
        assert!(sample.cpu <= sample.busy * 11 / 10, "{sample:?}");
    }

    #[test]
    fn who_never_pauses_is_busy_all_the_time() {
        let stop = AtomicBool::new(false);
        let until = Until {
            span: SPAN,
            stop: &stop,
        };
        let sample = without_pause(until, || Ok(full())).unwrap();
        // The clock was read a moment before.
        assert!(sample.busy >= SPAN * 9 / 10, "{sample:?}");
        assert!(sample.busy <= sample.span, "{sample:?}");
        assert!(sample.cpu > Duration::ZERO && sample.packets == sample.rounds * BATCH as u64);
    }

    #[test]
    fn a_first_packet_that_is_late_is_waited_for() {
        let stop = AtomicBool::new(false);
        let until = Until {
            span: SPAN,
            stop: &stop,
        };
        let begun = Instant::now();
        let late = || match begun.elapsed() >= 2 * SPAN {
            true => Ok(full()),
            false => Ok(Round::default()),
        };
        assert!(without_pause(until, late).unwrap().packets > 0);
    }

    #[test]
    fn what_is_unfinished_is_worked_off_before_the_next_pause() {
        let stop = AtomicBool::new(false);
        let until = Until {
            span: Duration::MAX,
            stop: &stop,
        };
        let mut left = 1_000;
        let sample = with_backlog(until, || {
            left -= 1;
            stop.store(left == 0, Ordering::Relaxed);
            Ok(Round {
                came: 0,
                done: 1,
                unfinished: true,
            })
        })
        .unwrap();
        assert_eq!(sample.packets, 1_000);
        // One pause, not a thousand.
        assert!(sample.span < sample.busy + 500 * PAUSE, "{sample:?}");
    }
}
