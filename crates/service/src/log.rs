//! Log lines: how events become lines, their format, and their rate limits.
//!
//! Code reports an event through `tracing` where it occurs. A program with a log of its own has a
//! subscriber of its own; this one has [`Events`].
//!
//! Lines go to standard error. The environment variable `JOURNAL_STREAM` shows that systemd's journal
//! reads it; each line then begins with its priority (`sd-daemon(3)`), and without time and program name,
//! which the journal adds.

use std::env;
use std::fmt::{self, Debug};
use std::io;
use std::time::{Duration, Instant};

use rustix::fs::fstat;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Lines of one kind in a period; further ones are only counted.
const MOST: u32 = 20;
const SPAN: Duration = Duration::from_secs(10);

/// How much a line matters, by the numbers of syslog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// An operation cannot continue.
    Error = 3,
    /// Something is not as it should be.
    Warning = 4,
    /// Something has happened as it should.
    Info = 6,
    /// Details for diagnosis.
    Debug = 7,
}

impl From<tracing::Level> for Level {
    fn from(level: tracing::Level) -> Level {
        match level {
            tracing::Level::ERROR => Level::Error,
            tracing::Level::WARN => Level::Warning,
            tracing::Level::INFO => Level::Info,
            _ => Level::Debug,
        }
    }
}

/// A line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// A word for all lines of its kind: they have a limit together.
    pub kind: &'static str,
    /// How much it matters.
    pub level: Level,
    /// The message.
    pub text: String,
}

/// Makes a line of the message of each event of sufficient level, and passes it to a callback. An event's
/// name is its kind. Its other fields repeat parts of the message separately.
#[derive(Debug)]
pub struct Events<T> {
    least: LevelFilter,
    tell: T,
}

impl<T: Fn(Line) + 'static> Events<T> {
    /// Passes events of this level and above. `tell` is called on the thread of the event, and must not
    /// block.
    pub fn new(least: LevelFilter, tell: T) -> Events<T> {
        Events { least, tell }
    }
}

impl<T: Fn(Line) + 'static> Subscriber for Events<T> {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= self.least
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.least)
    }

    fn event(&self, event: &Event<'_>) {
        let metadata = event.metadata();
        let mut message = Message::default();
        event.record(&mut message);
        (self.tell)(Line {
            kind: metadata.name(),
            level: (*metadata.level()).into(),
            text: message.0,
        });
    }

    // Nothing lasts.

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The message of an event.
#[derive(Default)]
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.0 = fmt::format(format_args!("{value:?}"));
        }
    }
}

/// Returns whether the journal reads standard error.
#[must_use]
pub fn is_journal() -> bool {
    let Ok(stream) = env::var("JOURNAL_STREAM") else {
        return false;
    };
    // Not where it was redirected since.
    fstat(io::stderr()).is_ok_and(|file| stream == format!("{}:{}", file.st_dev, file.st_ino))
}

impl Line {
    /// As the journal reads it: each line of it has its level in front.
    #[must_use]
    pub fn for_journal(&self) -> String {
        let lines = self.text.lines();
        let lines: Vec<_> = lines
            .map(|line| format!("<{}>{line}", self.level as u8))
            .collect();
        lines.join("\n")
    }
}

/// Leaves out lines of a kind that is too frequent, and reports their number.
#[derive(Debug, Default)]
pub struct Limit {
    windows: Vec<Window>,
}

/// The lines of a kind in a span of time.
#[derive(Debug)]
struct Window {
    began: Instant,
    said: u32,
    left_out: u32,
    /// The last line's time.
    last: Line,
}

impl Limit {
    /// Returns whether a line at `now` is written. Of each kind, the first few of a span of ten seconds
    /// are. O(kinds).
    pub fn admits(&mut self, line: &Line, now: Instant) -> bool {
        let mut windows = self.windows.iter_mut();
        let Some(window) = windows.find(|window| window.last.kind == line.kind) else {
            self.windows.push(Window {
                began: now,
                said: 1,
                left_out: 0,
                last: line.clone(),
            });
            return true;
        };
        let is_said = window.said < MOST;
        match is_said {
            true => window.said += 1,
            false => {
                window.left_out += 1;
                window.last = line.clone();
            }
        }
        is_said
    }

    /// Removes the periods that are over by `now`. Returns a line for each that reports how many were left
    /// out.
    pub fn over(&mut self, now: Instant) -> Vec<Line> {
        self.close(|window| now.saturating_duration_since(window.began) >= SPAN)
    }

    /// The same of all of them, at the end.
    pub fn end(&mut self) -> Vec<Line> {
        self.close(|_| true)
    }

    fn close(&mut self, is_over: impl Fn(&Window) -> bool) -> Vec<Line> {
        let over = self.windows.extract_if(.., |window| is_over(window));
        let left_out = over.filter(|window| window.left_out > 0);
        left_out.map(Window::left_out).collect()
    }

    /// Returns when [`over`](Limit::over) must be called next; never if nothing was left out.
    pub fn next(&self) -> Option<Instant> {
        let left_out = self.windows.iter().filter(|window| window.left_out > 0);
        left_out.map(|window| window.began + SPAN).min()
    }
}

impl Window {
    fn left_out(self) -> Line {
        let text = format!("{} more like this: {}", self.left_out, self.last.text);
        Line { text, ..self.last }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(kind: &'static str, text: &str) -> Line {
        Line {
            kind,
            level: Level::Info,
            text: text.to_owned(),
        }
    }

    #[test]
    fn of_a_kind_that_comes_too_often_some_are_said_and_the_rest_counted() {
        let mut limit = Limit::default();
        let start = Instant::now();
        let mut said = 0;
        for number in 0..1_000 {
            let now = start + Duration::from_millis(number);
            said += u32::from(limit.admits(&line("often", &number.to_string()), now));
            assert!(limit.over(now).is_empty());
            if number % 200 == 0 {
                assert!(limit.admits(&line("seldom", ""), now), "another kind");
            }
        }
        assert_eq!(said, MOST);
        assert_eq!(limit.next(), Some(start + SPAN));
        let almost = start + SPAN - Duration::from_nanos(1);
        assert!(limit.over(almost).is_empty());
        assert_eq!(
            limit.over(start + SPAN),
            [line("often", "980 more like this: 999")]
        );
        assert_eq!(limit.next(), None);
        assert!(limit.admits(&line("often", ""), start + SPAN));
        assert!(limit.end().is_empty(), "nothing was left out since");
    }

    #[test]
    fn what_was_left_out_by_the_end_is_said_then() {
        let mut limit = Limit::default();
        let now = Instant::now();
        let said = (0..MOST + 1).filter(|_| limit.admits(&line("often", "x"), now));
        assert_eq!(said.count() as u32, MOST);
        assert_eq!(limit.end(), [line("often", "1 more like this: x")]);
        assert!(limit.end().is_empty());
    }

    #[test]
    fn an_event_that_matters_enough_becomes_a_line_of_its_kind() {
        let (tell, lines) = std::sync::mpsc::channel();
        let events = Events::new(LevelFilter::INFO, move |line| tell.send(line).unwrap());
        tracing::subscriber::with_default(events, || {
            tracing::warn!(name: "gone", interface = "up0", "{} is gone", "up0");
            let span = tracing::error_span!("span", number = 1);
            span.in_scope(|| tracing::info!(name: "back", again = true, "back"));
            tracing::debug!("how");
        });
        let level = |kind, level, text| Line {
            level,
            ..line(kind, text)
        };
        let expected = [
            level("gone", Level::Warning, "up0 is gone"),
            level("back", Level::Info, "back"),
        ];
        assert_eq!(lines.iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn the_journal_reads_the_level_of_each_line() {
        let two = Line {
            level: Level::Warning,
            ..line("", "one\ntwo")
        };
        assert_eq!(two.for_journal(), "<4>one\n<4>two");
        assert_eq!(line("", "one").for_journal(), "<6>one");
    }
}
