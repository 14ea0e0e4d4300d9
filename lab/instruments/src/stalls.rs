//! `fairlane-instruments stalls`: the cost of reading memory that another core writes, and of writing memory
//! that it reads, after the PSPAT paper's Appendix A.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;

use anyhow::{Result, ensure};
use clap::ValueEnum;
use fairlane_cli::arguments::seconds;
use fairlane_cli::{interrupt, output};
use serde::Serialize;

use crate::busy::{Busy, steps};
use crate::line::Line;
use crate::machine;
use crate::measurement::Measurement;

/// Accesses between two looks at whether to stop.
const BATCH: u64 = 64;

/// Options of `fairlane-instruments stalls`.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Options {
    /// Which side goes as fast as it can
    #[arg(long, value_enum)]
    fast: Side,
    /// Nanoseconds that the other side pauses after each access; 0: it goes as fast as it can, too [default:
    /// it does nothing]
    #[arg(long, value_name = "NS", value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pause_ns: Option<u32>,
    /// Core of the reader, as the system numbers them
    #[arg(long, value_name = "CORE")]
    reader_core: usize,
    /// Core of the writer
    #[arg(long, value_name = "CORE")]
    writer_core: usize,
    /// Seconds to measure
    #[arg(long, value_name = "S", default_value = "0.05", value_parser = seconds)]
    seconds: f64,
}

/// The accessing side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum Side {
    /// Reads
    Reader,
    /// Writes
    Writer,
}

/// The printed results.
#[derive(Clone, Copy, Debug, Serialize)]
struct Outcome {
    fast: Side,
    pause_ns: Option<u32>,
    reader_core: usize,
    writer_core: usize,
    reads: u64,
    /// Reads that found another value than the one before.
    changes: u64,
    writes: u64,
    /// Processor time of each side.
    reading_ns: u64,
    writing_ns: u64,
}

/// Measures and prints the outcome.
pub(crate) fn run(options: &Options) -> Result<()> {
    let cores = machine::cores()?;
    for (option, core) in [
        ("--reader-core", options.reader_core),
        ("--writer-core", options.writer_core),
    ] {
        ensure!(
            cores.contains(&core),
            "{option} {core}: this program may run on the cores {cores:?}"
        );
    }
    ensure!(
        options.reader_core != options.writer_core,
        "--writer-core {}: it is the reader's, and each needs one of its own",
        options.writer_core
    );
    let stop = interrupt::asked()?;
    output::json(&measure(
        &Measurement::new(options.seconds, &stop),
        options,
    )?)
}

/// How fast a side goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pace {
    Never,
    /// A pause of this many nanoseconds after each access.
    Every(u32),
    Always,
}

impl Options {
    fn pace(&self, side: Side) -> Pace {
        match self.pause_ns {
            _ if side == self.fast => Pace::Always,
            None => Pace::Never,
            Some(0) => Pace::Always,
            Some(ns) => Pace::Every(ns),
        }
    }
}

/// The two variables, which writer and reader take in turn: enough to keep the buffer for
/// writes full.
type Shared = [Line<AtomicU64>; 2];

/// Writes until `stop` is set; returns the number of writes.
fn write(shared: &Shared, stop: &AtomicBool, pause: impl Fn()) -> u64 {
    let mut written = 0;
    while !stop.load(Ordering::Relaxed) {
        for turn in 0..BATCH {
            shared[turn as usize % 2]
                .0
                .store(written + turn + 1, Ordering::Relaxed);
            pause();
        }
        written += BATCH;
    }
    written
}

/// Reads until `stop` is set; returns the number of reads, and of those that found a new value.
fn read(shared: &Shared, stop: &AtomicBool, pause: impl Fn()) -> (u64, u64) {
    let (mut reads, mut changes) = (0, 0);
    let mut last = [0, 0];
    while !stop.load(Ordering::Relaxed) {
        for turn in 0..BATCH as usize {
            let value = shared[turn % 2].0.load(Ordering::Relaxed);
            // Without a branch: a wrong guess would count as a part of the stall.
            changes += u64::from(value != last[turn % 2]);
            last[turn % 2] = value;
            pause();
        }
        reads += BATCH;
    }
    (reads, changes)
}

fn measure(measurement: &Measurement, options: &Options) -> Result<Outcome> {
    let busy = Busy::calibrate();
    let shared = Shared::default();
    let stop = Line(AtomicBool::new(false));
    let (ready, begun) = (Barrier::new(2), AtomicU32::new(0));
    let begin = |core: usize| -> Result<u64> {
        let pinned = machine::pin(core);
        ready.wait();
        begun.fetch_add(1, Ordering::Relaxed);
        pinned.map(|()| machine::thread_ns())
    };
    let writer = || -> Result<(u64, u64)> {
        let start = begin(options.writer_core)?;
        let written = match options.pace(Side::Writer) {
            Pace::Never => 0,
            Pace::Always => write(&shared, &stop.0, || ()),
            Pace::Every(ns) => {
                let pause = busy.for_ns(f64::from(ns));
                write(&shared, &stop.0, || _ = steps(pause, 1))
            }
        };
        Ok((written, machine::thread_ns() - start))
    };
    let reader = || -> Result<((u64, u64), u64)> {
        let start = begin(options.reader_core)?;
        let counts = match options.pace(Side::Reader) {
            Pace::Never => (0, 0),
            Pace::Always => read(&shared, &stop.0, || ()),
            Pace::Every(ns) => {
                let pause = busy.for_ns(f64::from(ns));
                read(&shared, &stop.0, || _ = steps(pause, 1))
            }
        };
        Ok((counts, machine::thread_ns() - start))
    };
    thread::scope(|scope| {
        let (writer, reader) = (scope.spawn(writer), scope.spawn(reader));
        let waited = measurement.wait(|| begun.load(Ordering::Relaxed) == 2);
        stop.0.store(true, Ordering::Relaxed);
        let (writes, writing_ns) = writer.join().expect("the writer panicked")?;
        let ((reads, changes), reading_ns) = reader.join().expect("the reader panicked")?;
        waited?;
        Ok(Outcome {
            fast: options.fast,
            pause_ns: options.pause_ns,
            reader_core: options.reader_core,
            writer_core: options.writer_core,
            reads,
            changes,
            writes,
            reading_ns,
            writing_ns,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_side_is_fast_and_the_other_does_as_it_is_told() {
        let paces = |fast, pause_ns| {
            let options = Options {
                fast,
                pause_ns,
                reader_core: 0,
                writer_core: 1,
                seconds: 1.0,
            };
            [Side::Reader, Side::Writer].map(|side| options.pace(side))
        };
        assert_eq!(paces(Side::Reader, None), [Pace::Always, Pace::Never]);
        assert_eq!(paces(Side::Writer, Some(0)), [Pace::Always; 2]);
        assert_eq!(
            paces(Side::Writer, Some(64)),
            [Pace::Every(64), Pace::Always]
        );
    }

    #[test]
    fn a_reader_sees_what_a_writer_writes_and_nothing_where_nobody_writes() {
        let stop = AtomicBool::new(false);
        let measurement = Measurement::new(0.02, &stop);
        let &[reader_core, writer_core, ..] = &machine::cores().unwrap()[..] else {
            return;
        };
        let counts = |pause_ns| {
            let options = Options {
                fast: Side::Reader,
                pause_ns,
                reader_core,
                writer_core,
                seconds: 0.02,
            };
            measure(&measurement, &options).unwrap()
        };
        let alone = counts(None);
        assert_eq!((alone.changes, alone.writes), (0, 0), "{alone:?}");
        let both = counts(Some(1000));
        assert!(both.changes <= both.reads, "{both:?}");
        assert!(both.changes <= both.writes, "{both:?}");
    }
}
