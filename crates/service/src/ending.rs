//! Whether a run is to end, and how long its last words may take.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use std::{process, thread};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Polling interval of waits that may be given up.
const LOOK: Duration = Duration::from_millis(10);

/// Polls in a row that find an output full before the wait for it is given up, less the number that fitted
/// between the request to end and the first poll: 0.9 s in all. Counted and not timed: a machine without CPU time
/// for the writer has none for these polls either.
const LOOKS: u32 = 90;

/// Polls that an output gets at least, whatever happened before: 0.25 s.
const LEAST: u32 = 25;

/// Polls in all before the wait for a writing thread is given up, whatever it waits for: 10 s. Not measured from
/// the request to end either: the kernel may have taken as long to release the interfaces.
const ALL: u32 = 1_000;

/// Whether a run is to end. Shared by all its threads.
#[derive(Debug, Default)]
pub struct Ending {
    /// When the end was requested.
    asked: OnceLock<Instant>,
    /// Looks so far.
    looks: AtomicU32,
    /// Looks that an output has.
    most: OnceLock<u32>,
    /// Looks in a row that found an output full.
    full: AtomicU32,
}

impl Ending {
    /// Requests the end, for example on a signal.
    pub fn ask(&self) {
        self.asked.get_or_init(Instant::now);
    }

    /// Returns the value that a thread sends after writing to `output`, or `None` if `output` stays full and time
    /// is up: 0.9 s after the request to end, and no sooner than after 0.25 s. While `output` has space, the wait
    /// lasts some 10 s, however long ago the request was.
    pub fn wait_for_output<T>(&self, from: &Receiver<T>, output: impl AsFd) -> Option<T> {
        loop {
            match from.recv_timeout(LOOK) {
                Ok(came) => return Some(came),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) if self.is_over_for(&output) => return None,
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Bounds the final message on standard error. If standard error stays full, the process ends with `code`
    /// when time is up.
    pub fn leave(self: Arc<Self>, code: i32) {
        thread::spawn(move || {
            while !self.is_over_for(&io::stderr()) {
                thread::sleep(LOOK);
            }
            process::exit(code)
        });
    }

    /// Polls once, and returns whether time is up for a wait until `output` has space. After one output was given
    /// up, the next has a single poll.
    fn is_over_for(&self, output: &impl AsFd) -> bool {
        let Some(asked) = self.asked.get() else {
            return false;
        };
        let looks = self.looks.fetch_add(1, Ordering::Relaxed) + 1;
        let most = *self.most.get_or_init(|| {
            let had = asked.elapsed().as_millis() / LOOK.as_millis();
            let left = LOOKS.saturating_sub(u32::try_from(had).unwrap_or(LOOKS));
            left.max(LEAST)
        });
        let mut polled = [PollFd::new(output, PollFlags::OUT)];
        // True for a broken output too: writing to it fails at once.
        let takes = poll(&mut polled, Some(&Timespec::default())) != Ok(0);
        let full = match takes {
            true => 0,
            false => self.full.load(Ordering::Relaxed).saturating_add(1),
        };
        self.full.store(full, Ordering::Relaxed);
        full >= most || looks >= ALL
    }
}

#[cfg(test)]
mod tests {
    use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
    use std::sync::mpsc::channel;

    use super::*;

    /// Returns a full pipe.
    fn full() -> (PipeReader, PipeWriter) {
        let (reader, mut writer) = pipe().unwrap();
        writer.write_all(&[b'.'; 65_536]).unwrap();
        (reader, writer)
    }

    #[test]
    fn a_full_output_is_given_up_on_and_one_that_is_taken_is_not() {
        let (mut reader, writer) = full();
        let (_unsent, nothing) = channel::<()>();
        let ending = Ending::default();
        ending.ask();
        let asked = Instant::now();
        assert_eq!(ending.wait_for_output(&nothing, &writer), None);
        assert!(
            ending.looks.load(Ordering::Relaxed) < ALL,
            "it waited for as long as for one who prints, after {:?}",
            asked.elapsed()
        );

        reader.read_exact(&mut [0; 65_536]).unwrap();
        let ending = Ending::default();
        ending.ask();
        assert!((0..4 * LOOKS).all(|_| !ending.is_over_for(&writer)));
        drop(reader);
        // Writing fails at once.
        assert!((0..4 * LOOKS).all(|_| !ending.is_over_for(&writer)));
    }

    #[test]
    fn a_full_output_has_what_is_left_of_a_second_and_a_quarter_at_least() {
        let (_reader, writer) = full();
        // Half a second is the default time to send queued packets.
        for (had, looks) in [(0, 90), (500, 40), (700, 25), (60_000, 25)] {
            let ending = Ending::default();
            let asked = Instant::now().checked_sub(Duration::from_millis(had));
            ending.asked.set(asked.unwrap()).unwrap();
            let given_up = (1..).find(|_| ending.is_over_for(&writer)).unwrap();
            // Fewer where the machine had no time in between.
            assert!((LEAST..=looks).contains(&given_up), "{given_up}");
            assert!(given_up + 20 > looks, "{given_up} of {looks}");
            assert!(
                ending.is_over_for(&writer),
                "the next one is not waited for"
            );
        }
    }

    /// As if the kernel took long to release the interfaces.
    #[test]
    fn who_prints_has_ten_seconds_however_long_ago_the_word_to_end_was() {
        let (_reader, writer) = pipe().unwrap();
        let ending = Ending::default();
        let asked = Instant::now().checked_sub(Duration::from_secs(60));
        ending.asked.set(asked.unwrap()).unwrap();
        let given_up = (1..).find(|_| ending.is_over_for(&writer)).unwrap();
        assert_eq!(given_up, ALL);
    }

    #[test]
    fn whoever_is_in_no_hurry_waits() {
        let (_reader, writer) = full();
        let ending = Ending::default();
        assert!((0..10 * LOOKS).all(|_| !ending.is_over_for(&writer)));
    }
}
