//! The overlay above the tree: help, explanations, top talkers, a change and its effects.

use console::measure_text_width;
use ratatui_core::layout::Rect;

use super::app::{App, Change, Mode, Reply, Stage, name};
use super::ask::Talker;
use super::columns;
use super::look::{Mood, Pen, plain, wrapped};
use crate::effects::{self, Effects};

/// Maximum width.
const WIDTH: u16 = 110;
/// Margin around the text, if the terminal is large enough.
const FRAME: u16 = 2;
/// Size below which there is no margin.
const TINY: (u16, u16) = (30, 8);

const HELP: &[&str] = &[
    "arrows, PgUp, PgDn, Home, End   select a line (also j, k, g, G)",
    "Enter, Space       fold or unfold; Left folds, Right unfolds (also h, l)",
    "-  +               fold all classes, unfold all",
    "s  S               sort siblings by the next column; reverse the order",
    "/                  filter classes by name; Esc shows all",
    "e                  explain why packets of the selected class are queued or dropped",
    "w  r               change its weight, or its rate (a link's, too): a preview shows the",
    "                   effect on all guarantees, then Enter applies the change",
    "t  T               top talkers: of all classes, or of the selected class or link",
    "Ctrl-L             redraw",
    "q, Esc, Ctrl-C     end",
    "",
    "!  recent packets exceeded the delay bound although the class kept to its rate",
    "<  less than the guaranteed rate, although more was offered and packets are queued",
    "^  recently delayed by its own ceiling",
    "",
    "share         the class's part of the link's rate; the mark is the guaranteed rate",
    "p99, max      recent delays; 'worst' is the maximum since the start",
    "bound         delay bound; n/a while the class is above its guarantee",
    "delay/bound   the longest recent delay as a part of the bound",
    "drops/s       packets dropped per second, since the previous state",
    "A folded line has the signs of all classes below it.",
];

/// The lines and their position.
#[derive(Clone, Debug)]
pub(super) struct Over {
    area: Rect,
    framed: bool,
    title: String,
    lines: Vec<(String, Mood)>,
}

impl Over {
    /// Returns the overlay of the current mode.
    pub(super) fn of(app: &App, area: Rect) -> Option<Over> {
        let framed = area.width >= TINY.0 && area.height >= TINY.1;
        let beside = if framed { 2 * FRAME } else { 0 };
        let width = area.width.min(WIDTH);
        let text = width.saturating_sub(beside);
        let (title, lines) = match &app.mode {
            Mode::Tree | Mode::Filter(_) => return None,
            Mode::Help => ("keys and signs".to_owned(), help(text)),
            Mode::Explain(place, told) => {
                let title = format!("{} explained", name(place));
                (title, of_told(told, text, |told| paragraphs(told, text)))
            }
            Mode::Talkers(only, told) => {
                let title = match only {
                    Some(place) => format!("top talkers of {}", name(place)),
                    None => "top talkers".to_owned(),
                };
                (title, of_told(told, text, |told| talkers(told)))
            }
            Mode::Change(change) => (
                format!("{} of {}", change.key, name(&change.place)),
                of_change(change, app, text),
            ),
        };
        let around = if framed { 2 } else { 0 };
        // The line with the keys stays visible.
        let most = area.height.saturating_sub(1);
        let needed = u16::try_from(lines.len()).unwrap_or(u16::MAX);
        let height = needed.saturating_add(around).min(most);
        let area = Rect::new(
            (area.width - width) / 2,
            (area.height - height) / 3,
            width,
            height,
        );
        Some(Over {
            area,
            framed,
            title,
            lines,
        })
    }

    fn inner(&self) -> Rect {
        match self.framed {
            true => Rect::new(
                self.area.x + FRAME,
                self.area.y + 1,
                self.area.width - 2 * FRAME,
                self.area.height.saturating_sub(2),
            ),
            false => self.area,
        }
    }

    pub(super) fn most_scroll(&self) -> usize {
        self.lines.len().saturating_sub(self.inner().height.into())
    }

    pub(super) fn draw(&self, pen: &mut Pen<'_>, scroll: usize) {
        let Rect {
            x,
            y,
            width,
            height,
        } = self.area;
        let blank = " ".repeat(width.into());
        for y in y..y + height {
            for x in x..x + width {
                if let Some(cell) = pen.buffer.cell_mut((x, y)) {
                    cell.reset();
                }
            }
            pen.text((x, y), width, &blank, Mood::Plain);
        }
        if self.framed {
            self.frame(pen, scroll);
        }
        let inner = self.inner();
        let seen = self.lines.iter().skip(scroll);
        for (y, (line, mood)) in (inner.y..inner.bottom()).zip(seen) {
            pen.cut((inner.x, y), inner.width, line, *mood);
        }
    }

    fn frame(&self, pen: &mut Pen<'_>, scroll: usize) {
        let signs = pen.look.signs();
        let area = self.area;
        let (right, bottom) = (area.right() - 1, area.bottom().saturating_sub(1));
        for x in area.x..area.right() {
            pen.text((x, area.y), 1, signs.across, Mood::Plain);
            pen.text((x, bottom), 1, signs.across, Mood::Plain);
        }
        for y in area.y..area.bottom() {
            pen.text((area.x, y), 1, signs.down, Mood::Plain);
            pen.text((right, y), 1, signs.down, Mood::Plain);
        }
        let corners = [
            (area.x, area.y),
            (right, area.y),
            (area.x, bottom),
            (right, bottom),
        ];
        for (at, corner) in corners.into_iter().zip(signs.corners) {
            pen.text(at, 1, corner, Mood::Plain);
        }
        let title = format!(" {} ", self.title);
        pen.cut((area.x + 2, area.y), area.width - 4, &title, Mood::Strong);
        let below = self.most_scroll().saturating_sub(scroll);
        if below > 0 {
            let more = format!(" {below} more lines below ");
            pen.cut((area.x + 2, bottom), area.width - 4, &more, Mood::Strong);
        }
    }
}

fn plainly(lines: impl IntoIterator<Item = String>) -> Vec<(String, Mood)> {
    lines.into_iter().map(|line| (line, Mood::Plain)).collect()
}

fn help(width: u16) -> Vec<(String, Mood)> {
    let lines = HELP.iter().flat_map(|&line| {
        // Tables keep their columns if they fit.
        match line.len() <= width.into() {
            true => vec![line.to_owned()],
            false => wrapped(line, width),
        }
    });
    plainly(lines)
}

fn paragraphs(sentences: &[String], width: u16) -> Vec<(String, Mood)> {
    plainly(
        sentences
            .iter()
            .flat_map(|sentence| wrapped(sentence, width)),
    )
}

fn of_told<T>(
    told: &Reply<T>,
    width: u16,
    tell: impl FnOnce(&T) -> Vec<(String, Mood)>,
) -> Vec<(String, Mood)> {
    match told {
        Reply::Asked => vec![("asking the site ..".to_owned(), Mood::Quiet)],
        Reply::Told(told) => tell(told),
        Reply::Refused(sentence) => refused(sentence, width),
    }
}

fn refused(sentence: &str, width: u16) -> Vec<(String, Mood)> {
    let lines = wrapped(sentence, width).into_iter();
    lines.map(|line| (line, Mood::Alarm)).collect()
}

fn talkers(talkers: &[Talker]) -> Vec<(String, Mood)> {
    if talkers.is_empty() {
        return vec![("no flow sends anything".to_owned(), Mood::Plain)];
    }
    let head = [
        "flow",
        "offered",
        "sent",
        "of class",
        "packets",
        "rtt",
        "retransmits",
        "CE",
        "class",
    ]
    .map(str::to_owned);
    let rows = talkers.iter().map(|talker| {
        let cells = [
            talker.flow.clone(),
            columns::rate(talker.offered_bps),
            columns::rate(talker.bps),
            columns::percent(talker.share),
            columns::count(talker.packets),
            (talker.rtt_us).map_or("-".to_owned(), columns::micros),
            columns::count(talker.retransmits),
            columns::count(talker.marked),
            format!("{}/{}", talker.link, talker.class),
        ];
        (cells, Mood::Plain)
    });
    aligned(head, rows.collect(), u16::MAX)
}

fn of_change(change: &Change, app: &App, width: u16) -> Vec<(String, Mood)> {
    let typing = match change.stage {
        Stage::Typing(_) => "_",
        _ => "",
    };
    let prompt = format!("{} = {}{typing}", change.key, change.value);
    let mut lines = vec![(prompt, Mood::Strong)];
    if let Some(now) = present(change, app) {
        lines.push((format!("now {now}"), Mood::Quiet));
    }
    let say = |text: &str, mood| {
        let lines = wrapped(text, width).into_iter();
        lines.map(move |line| (line, mood)).collect::<Vec<_>>()
    };
    match &change.stage {
        Stage::Typing(refusal) => {
            if let Some(sentence) = refusal {
                lines.extend(refused(sentence, width));
            }
            lines.extend(say(
                "Enter: preview. Leave empty to remove the setting.",
                Mood::Quiet,
            ));
        }
        Stage::Looking => lines.extend(say("asking for a preview ..", Mood::Quiet)),
        Stage::Applying => lines.extend(say("applying ..", Mood::Quiet)),
        Stage::Shown(effects, warnings) => {
            lines.extend(say(
                "Preview, nothing applied yet. Enter: apply. Backspace: edit the value.",
                Mood::Strong,
            ));
            for warning in warnings {
                lines.extend(say(&format!("warning: {warning}"), Mood::Warn));
            }
            lines.extend(promises(effects, width));
        }
    }
    lines
}

/// Returns the current value.
fn present(change: &Change, app: &App) -> Option<String> {
    let (link, class) = &change.place;
    let link = app.state.as_ref()?.link(link)?;
    let Some(class) = class else {
        return Some(columns::rate(link.rate_bps));
    };
    let class = &link.classes[link.place(class)?];
    Some(match (change.key, class.guaranteed_bps) {
        ("weight", _) => match class.weight {
            Some(weight) => weight.to_string(),
            None => "no weight in the file".to_owned(),
        },
        (_, Some(bps)) => format!("guaranteed {}", columns::rate(bps)),
        (_, None) => "no guarantee".to_owned(),
    })
}

/// Formats the effects of a change on the guarantees of classes.
fn promises(effects: &Effects, width: u16) -> Vec<(String, Mood)> {
    if effects.total == 0 {
        let nothing = "no guarantees would change";
        return vec![(nothing.to_owned(), Mood::Plain)];
    }
    let rows = effects.listed.iter().map(|effect| {
        let mut cells = effect.cells.clone();
        let (sign, mood) = match effect.worse {
            true => ("! ", Mood::Warn),
            false => ("  ", Mood::Plain),
        };
        cells[0].insert_str(0, sign);
        (cells, mood)
    });
    let mut lines = Vec::new();
    if effects.worse > 0 {
        let Effects { total, worse, .. } = effects;
        let text = format!("! {worse} of {total} are guaranteed less than now");
        lines.push((text, Mood::Warn));
    }
    lines.extend(aligned(
        effects::HEADER.map(str::to_owned),
        rows.collect(),
        width,
    ));
    lines.extend(effects.more().map(|more| (more, Mood::Quiet)));
    lines
}

/// Formats a table whose first column is a name; columns that do not fit are omitted from the right.
fn aligned<const N: usize>(
    head: [String; N],
    rows: Vec<([String; N], Mood)>,
    width: u16,
) -> Vec<(String, Mood)> {
    let all = || std::iter::once(&head).chain(rows.iter().map(|(cells, _)| cells));
    let wide = |column: usize| {
        let cells = all().map(|cells| measure_text_width(&plain(&cells[column])));
        cells.max().unwrap_or(0)
    };
    let widths: [usize; N] = std::array::from_fn(wide);
    let mut fits = 0;
    let mut taken = 0;
    for width_of in widths {
        taken += width_of + 2;
        if taken > usize::from(width) + 2 && fits > 1 {
            break;
        }
        fits += 1;
    }
    let line = |cells: &[String; N]| {
        let cells = cells.iter().zip(widths).take(fits);
        let padded = cells.map(|(cell, width)| {
            let cell = plain(cell);
            let pad = width - measure_text_width(&cell).min(width);
            format!("{cell}{}", " ".repeat(pad))
        });
        let line = padded.collect::<Vec<_>>().join("  ");
        line.trim_end().to_owned()
    };
    let first = (line(&head), Mood::Head);
    let others = rows.iter().map(|(cells, mood)| (line(cells), *mood));
    std::iter::once(first).chain(others).collect()
}
