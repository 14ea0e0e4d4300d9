//! The output of a run: lines, a table redrawn in place, or one JSON object.

use anyhow::{Context, Result};
use console::{Term, truncate_str};
use fairlane_service::Ending;
use serde::Serialize;
use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::{output, plain};

/// Lines around the flows: the table's borders and header, the sentence on the link, and the cursor's own line.
const FRAME: usize = 7;

/// Longest time until the end of a run is noticed.
const LOOK: Duration = Duration::from_millis(20);

/// Formats a state, given the earlier one.
#[derive(Debug)]
pub struct Shown<R> {
    /// Returns a table with rates since the earlier state, in at most this many lines besides those around it, and the
    /// text below it.
    pub table: fn(&R, &R, usize) -> String,
    /// Returns the same as lines of plain text.
    pub lines: fn(&R, &R) -> String,
}

/// Prints the state on a thread of its own. If a pipe is full or a terminal is stopped, that thread waits and skips
/// states; no other thread is delayed.
pub struct Screen<R> {
    jobs: Sender<Job>,
    /// Reports its end; the lock only lets threads share the screen.
    printed: Mutex<Receiver<Result<()>>>,
    /// Number of pending jobs.
    waiting: Arc<AtomicUsize>,
    /// Whether printing has failed.
    failed: Arc<AtomicBool>,
    shows: Shows,
    shown: Shown<R>,
}

/// The kind of output of a run.
#[derive(Clone, Debug)]
pub struct Shows {
    /// One object at the end, and nothing else.
    pub json: bool,
    /// No state while it runs.
    pub quiet: bool,
    /// Interval between states, in seconds.
    pub every: Option<f64>,
}

impl Shows {
    /// Returns the interval between states.
    pub fn interval(&self) -> Duration {
        match self.every {
            Some(seconds) => Duration::from_secs_f64(seconds),
            None if io::stdout().is_terminal() && !self.json => Duration::from_millis(500),
            None => Duration::from_secs(1),
        }
    }
}

enum Job {
    /// A line that is the same on a terminal.
    Line(String),
    /// A state: its table with at most this many lines, or its lines of text.
    State(Box<dyn FnOnce(Option<usize>) -> String + Send>),
    /// The final report, formatted by the printer.
    Last(Box<dyn FnOnce() -> Result<String> + Send>),
}

impl<R: Serialize + Send + Sync + 'static> Screen<R> {
    /// Prints the introduction, unless the output is one JSON object.
    pub fn open(introduction: String, shows: Shows, shown: Shown<R>) -> io::Result<Screen<R>> {
        let (jobs, to_do) = channel();
        let (done, printed) = channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let failed = Arc::new(AtomicBool::new(false));
        let printer = Printer {
            live: (!shows.json && io::stdout().is_terminal())
                .then(|| Live::new(introduction.clone())),
            waiting: Arc::clone(&waiting),
            failed: Arc::clone(&failed),
        };
        thread::Builder::new()
            .name("print".to_owned())
            .spawn(move || done.send(printer.run(&to_do)))?;
        let screen = Screen {
            jobs,
            printed: Mutex::new(printed),
            waiting,
            failed,
            shows,
            shown,
        };
        if !screen.shows.json {
            screen.give(Job::Line(introduction));
        }
        Ok(screen)
    }

    fn give(&self, job: Job) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        // The printer ends after the final report, or when the channel is closed.
        let _ = self.jobs.send(job);
    }

    /// Returns whether the next state would be shown: states are wanted, and the last one is printed.
    pub fn is_ready(&self) -> bool {
        !self.shows.json
            && !self.shows.quiet
            && !self.has_failed()
            && self.waiting.load(Ordering::Acquire) == 0
    }

    /// Returns whether printing has failed, as after the reader closed the pipe.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Shows a state, if the last one is printed.
    pub fn show(&self, report: &Arc<R>, earlier: &Arc<R>) {
        if !self.is_ready() {
            return;
        }
        let (report, earlier) = (Arc::clone(report), Arc::clone(earlier));
        let Shown { table, lines: text } = self.shown;
        self.give(Job::State(Box::new(move |lines| match lines {
            Some(lines) => table(&report, &earlier, lines),
            None => text(&report, &earlier),
        })));
    }

    /// Shows the state of `take` periodically, until `done` or until printing fails.
    pub fn follow(&self, done: &AtomicBool, take: impl Fn() -> R) {
        let mut next = Instant::now() + self.shows.interval();
        let mut earlier = Arc::new(take());
        while !done.load(Ordering::Acquire) && !self.has_failed() {
            let left = next.saturating_duration_since(Instant::now());
            if !left.is_zero() {
                thread::sleep(left.min(LOOK));
                continue;
            }
            next += self.shows.interval();
            if self.is_ready() {
                let report = Arc::new(take());
                self.show(&report, &earlier);
                earlier = report;
            }
        }
    }

    /// Prints the final report: one object, or `text`. Gives up after a time limit if the reader does not take it.
    pub fn conclude(
        &self,
        report: Arc<R>,
        text: impl FnOnce(&R) -> String + Send + 'static,
        ending: &Ending,
    ) -> Result<()> {
        let json = self.shows.json;
        self.give(Job::Last(Box::new(move || match json {
            true => Ok(plain::json(&*report)?),
            false => Ok(text(&report)),
        })));
        let printed = self.printed.lock().unwrap_or_else(PoisonError::into_inner);
        ending
            .wait_for_output(&printed, io::stdout())
            .unwrap_or(Ok(()))
    }
}

/// The printing thread.
struct Printer {
    live: Option<Live>,
    waiting: Arc<AtomicUsize>,
    failed: Arc<AtomicBool>,
}

impl Printer {
    /// Runs until the final report is printed or printing fails.
    fn run(mut self, jobs: &Receiver<Job>) -> Result<()> {
        let mut outcome = Ok(());
        for job in jobs {
            let last = matches!(job, Job::Last(_));
            if outcome.is_ok() || last {
                outcome = self.print(job);
            }
            if outcome.is_err() {
                self.failed.store(true, Ordering::Release);
            }
            self.waiting.fetch_sub(1, Ordering::Release);
            if last {
                break;
            }
        }
        outcome
    }

    fn print(&mut self, job: Job) -> Result<()> {
        match (job, &mut self.live) {
            (Job::Line(text), _) => output::line(text),
            (Job::State(text), Some(live)) => live.draw(text).context("printing"),
            (Job::State(text), None) => output::line(text(None)),
            (Job::Last(text), live) => {
                if let Some(live) = live {
                    live.leave().context("printing")?;
                }
                output::line(text()?)
            }
        }
    }
}

/// A table that each drawing replaces. It never exceeds the terminal, since lines that wrap or scroll away could not be
/// erased.
struct Live {
    /// Buffered: a drawing goes out in one write, so that it does not flicker.
    term: Term,
    introduction: String,
    /// Rows and columns of the terminal when the table was drawn.
    size: (u16, u16),
    /// Lines of the table on the terminal.
    lines: usize,
}

impl Live {
    fn new(introduction: String) -> Self {
        let term = Term::buffered_stdout();
        let size = term.size();
        Live {
            term,
            introduction,
            size,
            lines: 0,
        }
    }

    fn draw(&mut self, text: impl FnOnce(Option<usize>) -> String) -> io::Result<()> {
        let size = self.term.size();
        if size == self.size {
            self.erase()?;
        } else {
            // The terminal has wrapped the old lines again.
            self.size = size;
            self.term.clear_screen()?;
            self.term.write_line(&self.introduction)?;
        }
        let (rows, columns) = (usize::from(size.0), usize::from(size.1));
        let text = text(Some(rows.saturating_sub(FRAME).max(1)));
        self.lines = 0;
        for line in text.lines().take(rows.saturating_sub(1)) {
            let line = plain::plain(line);
            self.term.write_line(&truncate_str(&line, columns, ""))?;
            self.lines += 1;
        }
        self.term.flush()
    }

    /// Erases the table, and text typed below it.
    fn leave(&mut self) -> io::Result<()> {
        self.erase()?;
        self.term.flush()
    }

    fn erase(&mut self) -> io::Result<()> {
        self.term.clear_line()?;
        self.term.move_cursor_up(self.lines)?;
        self.lines = 0;
        self.term.clear_to_end_of_screen()
    }
}
