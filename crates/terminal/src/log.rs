//! The log of a long run: lines on standard error, each with its time, or for the journal with its priority. A
//! thread of its own writes them, so that a full pipe delays no other thread.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Instant, SystemTime};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use fairlane_service::Ending;
use fairlane_service::log::{Events, Limit, Line, is_journal};
use humantime::format_rfc3339_seconds;
use tracing::level_filters::LevelFilter;
use tracing::subscriber::set_global_default;

use crate::output;

/// Maximum number of queued lines; further ones are lost.
const WAITING: usize = 1_000;

/// The log of all events of the program; one per process.
pub struct Log {
    lines: Arc<Mutex<Option<Lines>>>,
    written: Receiver<()>,
}

type Lines = SyncSender<(SystemTime, Line)>;

impl Log {
    /// Starts a log of events of this level and above. Of one kind it writes only a few in a short time, and a count.
    pub fn open(least: LevelFilter) -> io::Result<Log> {
        let (lines, to_write) = sync_channel(WAITING);
        let (done, written) = sync_channel(1);
        let lines = Arc::new(Mutex::new(Some(lines)));
        let log = Log {
            lines: Arc::clone(&lines),
            written,
        };
        let events = Events::new(least, move |line| {
            // No thread waits while it holds the lock.
            let lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(lines) = &*lines {
                let _ = lines.try_send((SystemTime::now(), line));
            }
        });
        set_global_default(events).map_err(io::Error::other)?;
        thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || {
                write(&to_write);
                let _ = done.send(());
            })?;
        Ok(log)
    }

    /// Waits until all lines so far are written, up to a limit.
    pub fn close(self, ending: &Ending) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        *lines = None;
        drop(lines);
        ending.wait_for_output(&self.written, io::stderr());
    }
}

/// Returns a parser of level names.
pub fn level() -> impl TypedValueParser<Value = LevelFilter> {
    let levels = ["off", "error", "warn", "info", "debug"];
    PossibleValuesParser::new(levels).try_map(|level| level.parse::<LevelFilter>())
}

/// Writes lines until the log is closed.
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
