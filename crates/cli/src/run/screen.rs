//! What the user sees: lines, a table redrawn in place, or one JSON object.

use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use console::{Term, truncate_str};
use fairlane_core::Nanos;
use fairlane_runtime::Clock;
use serde::Serialize;

use crate::output;

/// Lines around the flows: the table's borders and header, the sentence on the link,
/// and the cursor's own.
const FRAME: usize = 7;

/// A state that can be shown.
pub trait Shown {
    /// A table with rates over the time since `earlier`, in `lines` lines beside what is around
    /// it, and what is to be said below it.
    fn table(&self, earlier: &Self, lines: usize) -> String;

    /// The same in lines of plain text.
    fn lines(&self, earlier: &Self) -> String;
}

pub struct Screen {
    introduction: String,
    json: bool,
    live: bool,
}

impl Screen {
    pub fn new(introduction: String, json: bool) -> Self {
        Screen {
            introduction,
            json,
            live: io::stdout().is_terminal(),
        }
    }

    pub fn introduce(&self) -> Result<()> {
        if self.json {
            return Ok(());
        }
        output::line(&self.introduction)
    }

    /// Shows the state from time to time until `done`.
    pub fn follow<R: Shown>(
        &self,
        clock: Clock,
        start: Nanos,
        done: &AtomicBool,
        take: impl Fn(Nanos) -> R,
    ) -> Result<()> {
        if self.json {
            return Ok(());
        }
        let interval = Nanos::from_millis(if self.live { 500 } else { 1000 });
        let mut next = start + interval;
        let mut earlier = take(Nanos::ZERO);
        let mut live = self.live.then(|| Live::new(&self.introduction));
        while !done.load(Ordering::Acquire) {
            if clock.now() < next {
                thread::sleep(Duration::from_millis(20));
                continue;
            }
            next = next + interval;
            let report = take(clock.now().since(start));
            match &mut live {
                Some(live) => live.draw(&report, &earlier).context("printing")?,
                None => output::line(report.lines(&earlier))?,
            }
            earlier = report;
        }
        match &mut live {
            Some(live) => live.leave().context("printing"),
            None => Ok(()),
        }
    }

    /// What is left when it is over: one object, or what `text` says.
    pub fn conclude(&self, report: &impl Serialize, text: impl FnOnce() -> String) -> Result<()> {
        match self.json {
            true => output::line(serde_json::to_string(report)?),
            false => output::line(text()),
        }
    }
}

/// A table that each drawing replaces. It never takes more than the terminal has, as
/// what wraps or scrolls away could not be erased.
struct Live<'a> {
    /// Buffered: a drawing goes out in one write, so that it does not flicker.
    term: Term,
    introduction: &'a str,
    /// Rows and columns of the terminal when the table was drawn.
    size: (u16, u16),
    /// Lines of the table on the terminal.
    lines: usize,
}

impl<'a> Live<'a> {
    fn new(introduction: &'a str) -> Self {
        let term = Term::buffered_stdout();
        let size = term.size();
        Live {
            term,
            introduction,
            size,
            lines: 0,
        }
    }

    fn draw<R: Shown>(&mut self, report: &R, earlier: &R) -> io::Result<()> {
        let size = self.term.size();
        if size == self.size {
            self.erase()?;
        } else {
            // The terminal has wrapped the old lines anew.
            self.size = size;
            self.term.clear_screen()?;
            self.term.write_line(self.introduction)?;
        }
        let (rows, columns) = (usize::from(size.0), usize::from(size.1));
        let text = report.table(earlier, rows.saturating_sub(FRAME).max(1));
        self.lines = 0;
        for line in text.lines().take(rows.saturating_sub(1)) {
            self.term.write_line(&truncate_str(line, columns, ""))?;
            self.lines += 1;
        }
        self.term.flush()
    }

    /// Clears the table away, and what was typed below it.
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
