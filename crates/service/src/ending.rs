//! Whether a run is to end, and how long its last words may take.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use std::{process, thread};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// How often somebody who waits looks whether he is to stop waiting.
const LOOK: Duration = Duration::from_millis(10);

/// Looks in a row that find an output full before it is given up on, less as many as had time between the
/// word to end and the first one: 0.9 s in all. Not a time: where the machine has none for who prints, it
/// has none for who looks.
const LOOKS: u32 = 90;

/// Looks that an output has at least, whatever came before: 0.25 s.
const LEAST: u32 = 25;

/// Looks in all before it is given up on whoever prints, whatever he waits for: 10 s. Not a time from the word to
/// end, either: the kernel may have taken as long to let go of the interfaces.
const ALL: u32 = 1_000;

/// Whether a run is to end. Shared by all its threads.
#[derive(Debug, Default)]
pub struct Ending {
    /// When it was told to.
    asked: OnceLock<Instant>,
    /// Looks so far.
    looks: AtomicU32,
    /// Looks that an output has.
    most: OnceLock<u32>,
    /// Looks in a row that found an output full.
    full: AtomicU32,
}

impl Ending {
    /// Somebody wants it to end: a signal.
    pub fn ask(&self) {
        self.asked.get_or_init(Instant::now);
    }

    /// What comes from a thread when it has written to `output`, or nothing where nobody takes
    /// anything there and it has to be over: 0.9 s after the word to end, and no sooner than after 0.25 s.
    /// Where somebody does, it is waited for some 10 s, however long ago that word was.
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

    /// Nothing is left but to say on standard error what failed. Where nobody reads that, the
    /// process ends with `code` when it has to be over.
    pub fn leave(self: Arc<Self>, code: i32) {
        thread::spawn(move || {
            while !self.is_over_for(&io::stderr()) {
                thread::sleep(LOOK);
            }
            process::exit(code)
        });
    }

    /// Whether it has to be over for whoever waits until somebody takes what is written to `output`: one
    /// look. Where one output was given up on, the next is after a single look.
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
        // Also where it cannot be written to any more: whoever writes is told so at once.
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

    /// A pipe that takes no more.
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
        // Whoever writes is told.
        assert!((0..4 * LOOKS).all(|_| !ending.is_over_for(&writer)));
    }

    #[test]
    fn a_full_output_has_what_is_left_of_a_second_and_a_quarter_at_least() {
        let (_reader, writer) = full();
        // Half a second is what is queued sent for, where nobody says otherwise.
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

    /// As where the kernel took long to let go of the interfaces.
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
