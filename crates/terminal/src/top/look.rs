//! The appearance: colours and symbols that the terminal supports, and text that contains no control sequences.

use std::borrow::Cow;

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::{Position, Rect};
use ratatui_core::style::{Color, Modifier, Style};

use crate::plain;

/// Maximum length of a text in a line for any width: a letter may carry any number of combining marks.
const LONGEST: usize = 1_000;

/// The meaning of a text, which determines its style.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Mood {
    /// Not noteworthy.
    Quiet,
    Plain,
    Strong,
    Good,
    Warn,
    /// A violated guarantee.
    Alarm,
    /// The selection.
    Selected,
    Head,
}

/// The capabilities of the terminal.
#[derive(Clone, Copy, Debug)]
pub(super) struct TerminalStyle {
    pub colours: bool,
    /// Characters beyond ASCII.
    pub unicode: bool,
}

impl Default for TerminalStyle {
    fn default() -> TerminalStyle {
        TerminalStyle {
            colours: true,
            unicode: true,
        }
    }
}

/// Symbols, in Unicode or in ASCII.
#[derive(Clone, Copy, Debug)]
pub(super) struct Signs {
    pub open: &'static str,
    pub closed: &'static str,
    pub cut: &'static str,
    pub between: &'static str,
    /// Blocks from an eighth of a cell to a full one.
    pub blocks: &'static [&'static str],
    pub tick: &'static str,
    pub corners: [&'static str; 4],
    pub across: &'static str,
    pub down: &'static str,
}

const UNICODE: Signs = Signs {
    open: "▾ ",
    closed: "▸ ",
    cut: "…",
    between: " · ",
    blocks: &["▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"],
    tick: "│",
    corners: ["┌", "┐", "└", "┘"],
    across: "─",
    down: "│",
};

const ASCII: Signs = Signs {
    open: "- ",
    closed: "+ ",
    cut: "~",
    between: " - ",
    blocks: &["="],
    tick: "|",
    corners: ["+", "+", "+", "+"],
    across: "-",
    down: "|",
};

impl TerminalStyle {
    /// Reads the environment: `NO_COLOR`, and the first variable that names the encoding.
    pub(super) fn of(variable: impl Fn(&str) -> Option<String>) -> TerminalStyle {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set);
        TerminalStyle {
            colours: set("NO_COLOR").is_none(),
            unicode: locale.is_none_or(|locale| {
                let locale = locale.to_lowercase();
                locale.contains("utf-8") || locale.contains("utf8")
            }),
        }
    }

    pub(super) fn signs(self) -> Signs {
        match self.unicode {
            true => UNICODE,
            false => ASCII,
        }
    }

    pub(super) fn style(self, mood: Mood) -> Style {
        let plain = Style::new();
        let strong = plain.add_modifier(Modifier::BOLD);
        match (mood, self.colours) {
            (Mood::Plain, _) | (Mood::Good, false) => plain,
            (Mood::Quiet, true) => plain.fg(Color::DarkGray),
            (Mood::Quiet, false) => plain.add_modifier(Modifier::DIM),
            (Mood::Strong, _) | (Mood::Warn, false) => strong,
            (Mood::Good, true) => plain.fg(Color::Green),
            (Mood::Warn, true) => plain.fg(Color::Yellow),
            (Mood::Alarm, true) => strong.fg(Color::Red),
            (Mood::Alarm, false) => strong.add_modifier(Modifier::UNDERLINED),
            (Mood::Selected, _) => plain.add_modifier(Modifier::REVERSED),
            (Mood::Head, true) => strong.fg(Color::Cyan),
            (Mood::Head, false) => strong.add_modifier(Modifier::UNDERLINED),
        }
    }
}

/// Draws within the bounds of a terminal.
pub(super) struct Pen<'a> {
    pub buffer: &'a mut Buffer,
    pub look: TerminalStyle,
}

impl Pen<'_> {
    /// Writes at most `width` cells of a text, and returns how many it took.
    pub(super) fn text(&mut self, (x, y): (u16, u16), width: u16, text: &str, mood: Mood) -> u16 {
        if !self.buffer.area.contains(Position { x, y }) {
            return 0;
        }
        let style = self.look.style(mood);
        let text = plain(text);
        let (end, _) = self.buffer.set_stringn(x, y, text, width.into(), style);
        end - x
    }

    /// Writes a text; one that is cut off ends with a symbol.
    pub(super) fn cut(&mut self, at: (u16, u16), width: u16, text: &str, mood: Mood) {
        let whole = console::measure_text_width(&plain(text)) <= width.into();
        if whole || width == 0 {
            self.text(at, width, text, mood);
            return;
        }
        let written = self.text(at, width - 1, text, mood);
        self.text((at.0 + written, at.1), 1, self.look.signs().cut, mood);
    }

    /// Writes a text right-aligned; one that is too long is aligned left.
    pub(super) fn right(&mut self, (x, y): (u16, u16), width: u16, text: &str, mood: Mood) {
        let long = console::measure_text_width(text).min(width.into()) as u16;
        self.text((x + width - long, y), long, text, mood);
    }

    /// Draws a bar over `part` of its cells, with a mark at `tick`.
    pub(super) fn bar(
        &mut self,
        (x, y): (u16, u16),
        width: u16,
        [part, tick]: [Option<f64>; 2],
        mood: Mood,
    ) {
        let signs = self.look.signs();
        let steps = signs.blocks.len();
        let part = part.filter(|part| part.is_finite()).unwrap_or(0.0);
        let mut filled =
            (part.clamp(0.0, 1.0) * (usize::from(width) * steps) as f64).round() as usize;
        if part > 0.0 {
            // A small value is distinguishable from zero.
            filled = filled.max(1);
        }
        for cell in 0..width {
            let here = filled.saturating_sub(usize::from(cell) * steps).min(steps);
            if let Some(block) = here.checked_sub(1) {
                self.text((x + cell, y), 1, signs.blocks[block], mood);
            }
        }
        let tick = tick.filter(|tick| tick.is_finite() && width > 0);
        if let Some(tick) = tick {
            let cell = ((tick.clamp(0.0, 1.0) * f64::from(width)) as u16).min(width - 1);
            self.text((x + cell, y), 1, signs.tick, mood);
            if usize::from(cell) * steps < filled {
                self.over(Rect::new(x + cell, y, 1, 1), Mood::Selected);
            }
        }
    }

    /// Restyles cells that are already drawn.
    pub(super) fn over(&mut self, area: Rect, mood: Mood) {
        let style = self.look.style(mood);
        self.buffer.set_style(area, style);
    }
}

/// Returns text that is [safe](plain::plain) for a terminal, up to the maximum length.
pub(super) fn plain(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(LONGEST) {
        None => plain::plain(text),
        Some((end, _)) => plain::plain(&text[..end]),
    }
}

/// Splits text into lines of at most `width` letters, broken between words.
pub(super) fn wrapped(text: &str, width: u16) -> Vec<String> {
    let width = usize::from(width.max(1));
    let mut lines: Vec<String> = vec![String::new()];
    let mut long = 0;
    for word in text.split_whitespace() {
        let mut letters: Vec<char> = word.chars().collect();
        if long > 0 && long + 1 + letters.len() > width {
            lines.push(String::new());
            long = 0;
        }
        // The last line is empty if a word is too long for any.
        while letters.len() > width {
            let rest = letters.split_off(width);
            put(&mut lines, letters);
            lines.push(String::new());
            letters = rest;
        }
        if long > 0 {
            put(&mut lines, vec![' ']);
            long += 1;
        }
        long += letters.len();
        put(&mut lines, letters);
    }
    lines.retain(|line| !line.is_empty());
    lines
}

fn put(lines: &mut [String], letters: Vec<char>) {
    if let Some(line) = lines.last_mut() {
        line.extend(letters);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(width: u16, look: TerminalStyle, draw: impl FnOnce(&mut Pen<'_>)) -> String {
        let mut buffer = Buffer::empty(Rect::new(0, 0, width, 1));
        draw(&mut Pen {
            buffer: &mut buffer,
            look,
        });
        buffer.content().iter().map(|cell| cell.symbol()).collect()
    }

    #[test]
    fn bar_shows_share_and_mark_at_any_width() {
        let bar = |width, part, tick, unicode| {
            let look = TerminalStyle {
                colours: false,
                unicode,
            };
            drawn(width, look, |pen| {
                pen.bar((0, 0), width, [Some(part), tick], Mood::Good);
            })
        };
        assert_eq!(bar(8, 0.5, None, true), "████    ");
        assert_eq!(bar(8, 0.5, Some(0.75), true), "████  │ ");
        assert_eq!(bar(8, 0.5, Some(0.25), true), "██│█    ");
        assert_eq!(bar(4, 0.0, None, true), "    ");
        assert_eq!(bar(4, 1e-9, None, true), "▏   ");
        assert_eq!(bar(4, 7.0, Some(7.0), true), "███│");
        assert_eq!(bar(4, f64::NAN, Some(f64::INFINITY), true), "    ");
        assert_eq!(bar(4, -1.0, Some(-1.0), false), "|   ");
        assert_eq!(bar(4, 0.5, Some(0.75), false), "== |");
        assert_eq!(bar(0, 0.5, Some(0.5), true), "");
    }

    #[test]
    fn no_text_commands_the_terminal_or_is_endless() {
        assert_eq!(plain("a\u{1b}[2J"), "a\u{fffd}[2J");
        assert!(plain(&"e\u{301}".repeat(9_999)).len() < 4_000);
    }

    #[test]
    fn text_is_cut_where_its_cells_end_and_nothing_is_written_beside_the_terminal() {
        let look = TerminalStyle::default();
        assert_eq!(
            drawn(6, look, |pen| pen.cut((0, 0), 5, "abcdef", Mood::Plain)),
            "abcd… "
        );
        assert_eq!(
            drawn(6, look, |pen| pen.cut((0, 0), 6, "abcdef", Mood::Plain)),
            "abcdef"
        );
        assert_eq!(
            drawn(4, look, |pen| pen.cut((2, 0), 9, "abcdef", Mood::Plain)),
            "  ab"
        );
        assert_eq!(
            drawn(4, look, |pen| pen.right((0, 0), 4, "ab", Mood::Plain)),
            "  ab"
        );
        assert_eq!(
            drawn(4, look, |pen| pen.right((0, 0), 2, "abc", Mood::Plain)),
            "ab  "
        );
        let beside = drawn(4, look, |pen| {
            pen.cut((9, 0), 9, "abcdef", Mood::Plain);
            pen.cut((0, 9), 9, "abcdef", Mood::Plain);
        });
        assert_eq!(beside, "    ");
    }

    #[test]
    fn words_are_kept_together_where_they_fit() {
        assert_eq!(wrapped("to be or not", 5), ["to be", "or", "not"]);
        assert_eq!(wrapped("a abcdefg b", 3), ["a", "abc", "def", "g b"]);
        assert!(wrapped("", 3).is_empty());
        assert_eq!(wrapped("ab", 0), ["a", "b"]);
    }

    #[test]
    fn the_environment_says_whether_there_are_colours_and_which_letters() {
        let look = |variables: &[(&str, &str)]| {
            let look = TerminalStyle::of(|name| {
                let found = variables.iter().find(|(other, _)| *other == name);
                found.map(|(_, value)| (*value).to_owned())
            });
            (look.colours, look.unicode)
        };
        assert_eq!(look(&[]), (true, true));
        assert_eq!(look(&[("NO_COLOR", "")]), (true, true));
        assert_eq!(
            look(&[("NO_COLOR", "1"), ("LANG", "de_DE.UTF-8")]),
            (false, true)
        );
        assert_eq!(
            look(&[("LANG", "de_DE.UTF-8"), ("LC_ALL", "C")]),
            (true, false)
        );
        assert_eq!(
            look(&[("LC_ALL", ""), ("LC_CTYPE", "C.utf8")]),
            (true, true)
        );
    }
}
