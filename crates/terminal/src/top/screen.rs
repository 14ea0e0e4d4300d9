//! The terminal in full-screen mode, which is always restored at the end.

use std::io::{self, BufWriter, Stdout, Write, stdout};
use std::panic;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use console::Term;
use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::style::{Attribute, Print, SetAttribute, SetBackgroundColor, SetForegroundColor};
use crossterm::terminal::{
    self, Clear, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use crossterm::{execute, queue};
use ratatui_core::backend::{Backend, ClearType, WindowSize};
use ratatui_core::buffer::Cell;
use ratatui_core::layout::{Position, Size};
use ratatui_core::style::{Color, Modifier};
use ratatui_core::terminal::{Frame, Terminal};
use signal_hook::consts::SIGTSTP;
use signal_hook::low_level::raise;

/// True while the terminal is taken over.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Maximum number of columns and lines drawn, whatever size the terminal reports.
const MOST: u16 = 1_000;

/// The terminal, which is restored on drop.
pub(super) struct Screen {
    terminal: Terminal<Ansi>,
}

impl Screen {
    /// Takes over the terminal at standard output. A panic restores it before its message is printed.
    pub(super) fn open() -> Result<Screen> {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |panicked| {
            give_back();
            before(panicked);
        }));
        let terminal = Terminal::new(Ansi::new());
        let screen = Screen {
            terminal: terminal.context("asking for the terminal's size")?,
        };
        take().context("taking over the terminal")?;
        Ok(screen)
    }

    /// Draws a frame; only differences are sent.
    pub(super) fn draw(&mut self, picture: impl FnOnce(&mut Frame<'_>)) -> Result<()> {
        let drawn = self.terminal.draw(picture).map(|_| ());
        drawn.context("drawing")
    }

    /// Sends the next frame as a whole.
    pub(super) fn forget(&mut self) -> Result<()> {
        let size = self
            .terminal
            .size()
            .context("asking for the terminal's size")?;
        self.terminal.resize(size.into()).context("drawing")
    }

    /// Restores the terminal and stops the program until it is continued.
    pub(super) fn suspend(&mut self) -> Result<()> {
        give_back();
        raise(SIGTSTP).context("stopping")?;
        take().context("taking over the terminal")?;
        self.forget()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

fn take() -> io::Result<()> {
    enable_raw_mode()?;
    TAKEN.store(true, Ordering::Release);
    execute!(stdout(), EnterAlternateScreen, Hide)
}

/// Restores the terminal once: a second time would move the cursor.
fn give_back() {
    if TAKEN.swap(false, Ordering::AcqRel) {
        // A closed terminal needs no restoring.
        let _ = execute!(
            stdout(),
            SetAttribute(Attribute::Reset),
            LeaveAlternateScreen,
            Show
        );
        let _ = disable_raw_mode();
    }
}

/// Restores the mode of a terminal that accepts no output.
pub(super) fn abandon() {
    let _ = disable_raw_mode();
}

/// Encodes frames as ANSI sequences, each written at once.
struct Ansi {
    out: BufWriter<Stdout>,
}

impl Ansi {
    fn new() -> Ansi {
        Ansi {
            out: BufWriter::with_capacity(1 << 16, stdout()),
        }
    }
}

impl Backend for Ansi {
    type Error = io::Error;

    fn draw<'a, I>(&mut self, content: I) -> io::Result<()>
    where
        I: Iterator<Item = (u16, u16, &'a Cell)>,
    {
        // The terminal's current position and style.
        let (mut next, mut looks) = (None, None);
        for (x, y, cell) in content {
            if next != Some((x, y)) {
                queue!(self.out, MoveTo(x, y))?;
            }
            next = Some((x + 1, y));
            let wanted = (cell.fg, cell.bg, cell.modifier);
            if looks != Some(wanted) {
                queue!(self.out, SetAttribute(Attribute::Reset))?;
                for attribute in attributes(cell.modifier) {
                    queue!(self.out, SetAttribute(attribute))?;
                }
                if cell.fg != Color::Reset {
                    queue!(self.out, SetForegroundColor(colour(cell.fg)))?;
                }
                if cell.bg != Color::Reset {
                    queue!(self.out, SetBackgroundColor(colour(cell.bg)))?;
                }
                looks = Some(wanted);
            }
            queue!(self.out, Print(cell.symbol()))?;
        }
        queue!(self.out, SetAttribute(Attribute::Reset))
    }

    fn hide_cursor(&mut self) -> io::Result<()> {
        queue!(self.out, Hide)
    }

    fn show_cursor(&mut self) -> io::Result<()> {
        queue!(self.out, Show)
    }

    fn get_cursor_position(&mut self) -> io::Result<Position> {
        // Only inline viewports use the cursor's position.
        Ok(Position::ORIGIN)
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> io::Result<()> {
        let Position { x, y } = position.into();
        queue!(self.out, MoveTo(x, y))
    }

    fn clear(&mut self) -> io::Result<()> {
        self.clear_region(ClearType::All)
    }

    fn clear_region(&mut self, region: ClearType) -> io::Result<()> {
        let region = match region {
            ClearType::All => terminal::ClearType::All,
            ClearType::AfterCursor => terminal::ClearType::FromCursorDown,
            ClearType::BeforeCursor => terminal::ClearType::FromCursorUp,
            ClearType::CurrentLine => terminal::ClearType::CurrentLine,
            ClearType::UntilNewLine => terminal::ClearType::UntilNewLine,
        };
        queue!(self.out, Clear(region))
    }

    /// Returns the size of the terminal at standard output, even if it is not the controlling one.
    fn size(&self) -> io::Result<Size> {
        let (height, width) = Term::stdout().size_checked().unwrap_or((0, 0));
        // 80x24 if the terminal reports no size.
        let or = |known: u16, usual| if known == 0 { usual } else { known.min(MOST) };
        Ok(Size::new(or(width, 80), or(height, 24)))
    }

    fn window_size(&mut self) -> io::Result<WindowSize> {
        Ok(WindowSize {
            columns_rows: self.size()?,
            pixels: Size::ZERO,
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn attributes(modifier: Modifier) -> impl Iterator<Item = Attribute> {
    let all = [
        (Modifier::BOLD, Attribute::Bold),
        (Modifier::DIM, Attribute::Dim),
        (Modifier::UNDERLINED, Attribute::Underlined),
        (Modifier::REVERSED, Attribute::Reverse),
    ];
    let set = all
        .into_iter()
        .filter(move |(one, _)| modifier.contains(*one));
    set.map(|(_, attribute)| attribute)
}

/// Maps the colours in use to the sixteen standard ones.
fn colour(colour: Color) -> crossterm::style::Color {
    use crossterm::style::Color as Ansi;
    match colour {
        Color::Red => Ansi::DarkRed,
        Color::Green => Ansi::DarkGreen,
        Color::Yellow => Ansi::DarkYellow,
        Color::Cyan => Ansi::DarkCyan,
        Color::DarkGray => Ansi::DarkGrey,
        _ => Ansi::Reset,
    }
}
