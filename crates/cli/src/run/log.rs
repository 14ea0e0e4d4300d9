//! What a long run says beside its state: lines on standard error, each with its time; or, where the
//! journal reads them, with how much they matter. They are written on a thread of their own, so that a
//! pipe that nobody empties holds nobody up.

use std::fmt::Display;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Instant, SystemTime};

use fairlane_service::log::{Level, Limit, Line, is_journal};
use humantime::format_rfc3339_seconds;

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
pub(super) struct Voice(SyncSender<(SystemTime, Line)>);

impl Voice {
    /// Warns of something, as soon as somebody reads it.
    pub(super) fn say(&self, text: impl Display) {
        self.say_of("", Level::Warning, text);
    }

    /// Says something that matters so much. Of a kind, no more than a few lines are said in a short
    /// time, and how many there were.
    pub(super) fn say_of(&self, kind: &'static str, level: Level, text: impl Display) {
        let text = text.to_string();
        let line = Line { kind, level, text };
        let _ = self.0.try_send((SystemTime::now(), line));
    }
}

impl Log {
    pub(super) fn open() -> std::io::Result<Log> {
        let (lines, to_write) = sync_channel(WAITING);
        let (done, written) = sync_channel(1);
        thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || {
                write(&to_write);
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

/// Writes the lines that come, until nobody says any more.
fn write(lines: &Receiver<(SystemTime, Line)>) {
    let for_journal = is_journal();
    let write = |time: SystemTime, line: &Line| match for_journal {
        true => output::stderr(line.for_journal()),
        false => output::aside(format_args!(
            "{} {}",
            format_rfc3339_seconds(time),
            line.text
        )),
    };
    let mut limit = Limit::default();
    loop {
        let came = match limit.next() {
            Some(at) => lines.recv_timeout(at.saturating_duration_since(Instant::now())),
            None => lines.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        let now = Instant::now();
        let over = match came {
            Err(RecvTimeoutError::Disconnected) => limit.end(),
            _ => limit.over(now),
        };
        over.iter().for_each(|line| write(SystemTime::now(), line));
        match came {
            Ok((time, line)) if limit.admits(&line, now) => write(time, &line),
            Ok(_) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}
