//! Instructions that a thread executes, where the machine counts them: most virtual machines do not.

use std::io;

use perf_event::Builder;
use perf_event::events::{Event, Hardware};

/// The threads whose instructions count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// The program's own.
    Program,
    /// Those of the kernel in the thread's place, too: a user needs `perf_event_paranoid` of 1 or less for that.
    ProgramAndKernel,
}

/// Counts for the thread that made it, wherever that runs.
pub struct Counter(perf_event::Counter);

impl Counter {
    /// Of the calling thread, from now on.
    ///
    /// # Errors
    ///
    /// The machine has no such counter, or this user may not have it.
    pub fn of_this_thread(of: Of) -> io::Result<Counter> {
        Counter::new(Hardware::INSTRUCTIONS.into(), of)
    }

    fn new(what: Event, of: Of) -> io::Result<Counter> {
        let mut builder = Builder::new().kind(what);
        // All of the time, or not at all: no share of it that others leave, by which to multiply.
        builder.pinned(true);
        builder.exclude_kernel(of == Of::Program);
        let mut counter = builder.build()?;
        counter.enable()?;
        Ok(Counter(counter))
    }

    /// So far; `None` where others have taken the machine's counters.
    pub fn read(&mut self) -> Option<u64> {
        self.0.read().ok()
    }
}

/// Why nothing is counted, for a report.
#[must_use]
pub fn why_not(error: &io::Error) -> String {
    match error.kind() {
        // The error of perf_event_open without hardware of that kind.
        io::ErrorKind::NotFound => {
            "this machine has no counter of them; few virtual machines do".to_owned()
        }
        io::ErrorKind::PermissionDenied => {
            "this user may not count them: kernel.perf_event_paranoid is too high, or a sandbox forbids it"
                .to_owned()
        }
        _ => format!("perf_event_open: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    use fairlane_netlab::skip_unsupported;
    use perf_event::events::Software;

    use super::*;

    /// Pages that are touched for the first time: what every machine counts.
    #[test]
    fn it_counts_what_this_thread_does_and_no_other() {
        const PAGES: usize = 512;
        let touch = || {
            let size = PAGES * 4_096;
            let mut memory: Vec<u8> = Vec::with_capacity(size);
            memory.resize(size, 1);
            black_box(&memory);
        };
        let mut counter = match Counter::new(Software::PAGE_FAULTS.into(), Of::Program) {
            Ok(counter) => counter,
            Err(error) => return skip_unsupported("counting page faults", why_not(&error)),
        };
        let before = counter.read().unwrap();
        std::thread::scope(|scope| scope.spawn(touch).join().unwrap());
        let between = counter.read().unwrap();
        touch();
        let after = counter.read().unwrap();
        // Large pages take fewer faults, but one at least; starting a thread takes some.
        assert!(after > between, "{after} after {between}");
        assert!(
            between - before < PAGES as u64 / 2,
            "{between} after {before}"
        );
    }

    #[test]
    fn instructions_are_counted() {
        match Counter::of_this_thread(Of::Program) {
            Ok(mut counter) => {
                let before = counter.read().unwrap();
                for number in 0..10_000_u32 {
                    black_box(number);
                }
                let counted = counter.read().unwrap() - before;
                assert!((10_000..10_000_000).contains(&counted), "{counted}");
            }
            Err(error) => skip_unsupported("counting instructions", why_not(&error)),
        }
    }

    #[test]
    fn the_reason_is_told_in_a_sentence() {
        for (kind, part) in [
            (io::ErrorKind::NotFound, "no counter"),
            (io::ErrorKind::PermissionDenied, "perf_event_paranoid"),
            (io::ErrorKind::Unsupported, "perf_event_open: "),
        ] {
            let why = why_not(&kind.into());
            assert!(why.contains(part), "{why}");
        }
    }
}
