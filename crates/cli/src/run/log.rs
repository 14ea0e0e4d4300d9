//! What a long run says beside its state: lines on standard error, each with its time. They are
//! written on a thread of their own, so that a pipe that nobody empties holds nobody up.

use std::fmt::Display;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::ending::Ending;
use crate::output;

/// Lines that may wait to be written; those beyond are lost.
const WAITING: usize = 1_000;

/// Where the lines go.
pub(super) struct Log {
    voice: Voice,
    written: Receiver<()>,
}

/// Says something in a log, from any thread. The log ends when there is none left.
#[derive(Clone)]
pub(super) struct Voice(SyncSender<String>);

impl Voice {
    /// Says something, as soon as somebody reads it.
    pub(super) fn say(&self, text: impl Display) {
        let _ = self
            .0
            .try_send(format!("{} {text}", utc(SystemTime::now())));
    }
}

impl Log {
    pub(super) fn open() -> std::io::Result<Log> {
        let (lines, to_write) = sync_channel::<String>(WAITING);
        let (done, written) = sync_channel(1);
        thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || {
                to_write.iter().for_each(output::aside);
                let _ = done.send(());
            })?;
        Ok(Log {
            voice: Voice(lines),
            written,
        })
    }

    /// For another thread to say something.
    pub(super) fn voice(&self) -> Voice {
        self.voice.clone()
    }

    /// Ends when all is written, or it has to be over.
    pub(super) fn close(self, ending: &Ending) {
        let Log { voice, written } = self;
        drop(voice);
        ending.wait_for_output(&written, std::io::stderr());
    }
}

/// A time as RFC 3339 has it, in UTC.
pub(super) fn utc(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let (days, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = date(days);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z",
        second / 3_600,
        second / 60 % 60,
        second % 60
    )
}

/// Year, month and day, so many days after 1 January 1970.
fn date(mut days: u64) -> (u64, usize, u64) {
    let divides = |of: u64, year: u64| year.is_multiple_of(of);
    let leap = |year| divides(4, year) && (!divides(100, year) || divides(400, year));
    let mut year = 1970;
    loop {
        let length = 365 + u64::from(leap(year));
        if days < length {
            break;
        }
        days -= length;
        year += 1;
    }
    let february = 28 + u64::from(leap(year));
    let months = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while days >= months[month] {
        days -= months[month];
        month += 1;
    }
    (year, month + 1, days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_as_everybody_reads_it() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (1_795_315_456, "2026-11-22T02:44:16Z"),
        ] {
            assert_eq!(utc(UNIX_EPOCH + Duration::from_secs(seconds)), text);
        }
    }
}
