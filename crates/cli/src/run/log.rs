//! What a long run says beside its state: lines on standard error, each with its time. They are
//! written on a thread of their own, so that a pipe that nobody empties holds nobody up.

use std::fmt::Display;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::SystemTime;

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
pub(super) struct Voice(SyncSender<String>);

impl Voice {
    /// Says something, as soon as somebody reads it.
    pub(super) fn say(&self, text: impl Display) {
        let _ = self.0.try_send(format!(
            "{} {text}",
            format_rfc3339_seconds(SystemTime::now())
        ));
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
