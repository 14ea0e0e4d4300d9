//! Draws the display from the model, without decisions or state of its own.

use ratatui_core::layout::Rect;
use ratatui_core::terminal::Frame;

use super::app::{App, Mode, name};
use super::columns::{self, Figure, Fitting, SIGNS, fitting};
use super::look::{Mood, Pen, TerminalStyle, wrapped};
use super::over::Over;
use super::rows::{Fold, Row};
use super::state::{Class, Link, State};

/// The parts of the display, from the top; on a low terminal the tree is omitted last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lines {
    interfaces: Option<u16>,
    head: Option<u16>,
    tree: (u16, u16),
    detail: (u16, u16),
    foot: Option<u16>,
}

impl Lines {
    fn of(area: Rect) -> Lines {
        let height = area.height;
        let detail = match height {
            0..8 => 0,
            8..12 => 1,
            _ => 2,
        };
        let foot = u16::from(height >= 2);
        let head = u16::from(height >= 4);
        let interfaces = u16::from(height >= 6);
        let above = 1 + interfaces + head;
        let tree = height.saturating_sub(above + detail + foot);
        Lines {
            interfaces: (interfaces > 0).then_some(1),
            head: (head > 0).then_some(above - 1),
            tree: (above, tree),
            detail: (above + tree, detail),
            foot: (foot > 0).then_some(height.saturating_sub(1)),
        }
    }
}

/// Returns the number of visible tree lines, and the maximum scroll position of the overlay.
pub(super) fn sizes(app: &App, area: Rect) -> (usize, usize) {
    let over = Over::of(app, area);
    (
        Lines::of(area).tree.1.into(),
        over.map_or(0, |over| over.most_scroll()),
    )
}

/// Draws the display.
pub(super) fn draw(frame: &mut Frame<'_>, app: &App, look: TerminalStyle) {
    let area = frame.area();
    let lines = Lines::of(area);
    let mut pen = Pen {
        buffer: frame.buffer_mut(),
        look,
    };
    title(&mut pen, app, area.width);
    match &app.state {
        Some(state) => {
            if let Some(y) = lines.interfaces {
                interfaces(&mut pen, state, (y, area.width));
            }
            tree(&mut pen, app, state, lines, area.width);
            detail(&mut pen, app, lines, area.width);
        }
        None => {
            pen.text(
                (0, lines.tree.0),
                area.width,
                "no state was reported yet",
                Mood::Plain,
            );
        }
    }
    if app.stale().is_some() {
        let (from, to) = (1, lines.foot.unwrap_or(area.height));
        let old = Rect::new(0, from, area.width, to.saturating_sub(from));
        pen.over(old, Mood::Quiet);
    }
    if let Some(y) = lines.foot {
        foot(&mut pen, app, y, area.width);
    }
    if let Some(over) = Over::of(app, area) {
        over.draw(&mut pen, app.scroll);
    }
}

/// Formats a duration as `1:02:03`.
fn clock(seconds: f64) -> String {
    let seconds = seconds.max(0.0) as u64;
    let (hours, minutes) = (seconds / 3_600, seconds / 60 % 60);
    format!("{hours}:{minutes:02}:{:02}", seconds % 60)
}

fn title(pen: &mut Pen<'_>, app: &App, width: u16) {
    let between = pen.look.signs().between;
    if let Some(age) = app.stale() {
        let reason = match &app.lost {
            Some(reason) => reason.as_str(),
            None => "nothing comes",
        };
        let text = format!(
            "! no answer: figures are {} s old{between}{reason}{between}reconnecting",
            age.as_secs()
        );
        pen.over(Rect::new(0, 0, width, 1), Mood::Selected);
        pen.cut((0, 0), width, &text, Mood::Alarm);
        return;
    }
    let mut parts = vec!["fairlane top".to_owned()];
    if let Some(state) = &app.state {
        parts.push(format!("up {}", clock(state.seconds)));
        parts.push(format!("last {:.1} s", state.recent_seconds));
    }
    let turned = match app.view.reversed {
        true => ", turned",
        false => "",
    };
    parts.push(format!("by {}{turned}", app.view.sort.name()));
    if !app.view.filter.is_empty() {
        parts.push(format!("/{}", app.view.filter));
    }
    parts.push(app.at.clone());
    pen.cut((0, 0), width, &parts.join(between), Mood::Strong);
}

/// Draws unsaved changes, and losses at the interfaces, recent ones first.
fn interfaces(pen: &mut Pen<'_>, state: &State, (y, width): (u16, u16)) {
    let mut parts = Vec::new();
    let mut mood = Mood::Quiet;
    for interface in &state.interfaces {
        let mut counts = Vec::new();
        for (count, what) in [
            (interface.lost, "lost"),
            (interface.early, "dropped early"),
            (interface.refused, "not sent"),
        ] {
            if count > 0 {
                counts.push(format!("{} {what}", columns::count(count)));
                mood = mood.max(Mood::Plain);
            }
        }
        if !interface.attached {
            counts.push("detached".to_owned());
            mood = Mood::Warn;
        }
        if !counts.is_empty() {
            parts.push(format!("{}: {}", interface.name, counts.join(", ")));
        }
    }
    for link in state.links.iter().filter(|link| link.oversized > 0) {
        let count = columns::count(link.oversized);
        parts.push(format!("{}: {count} too long", link.name));
        mood = mood.max(Mood::Plain);
    }
    for link in &state.links {
        if let Some(protocol) = &link.opaque_protocol {
            parts.push(format!("{}: filters cannot match {protocol}", link.name));
            mood = Mood::Warn;
        }
    }
    for link in state.links.iter().filter(|link| !link.shaped) {
        parts.insert(0, format!("! {} is not shaped", link.name));
        mood = Mood::Warn;
    }
    let overloaded = state
        .interfaces
        .iter()
        .filter(|interface| interface.recently > 0);
    let overloaded: Vec<String> = overloaded
        .map(|interface| {
            let count = columns::count(interface.recently);
            format!("{} lost {count} recently", interface.name)
        })
        .collect();
    if !overloaded.is_empty() {
        parts.insert(0, format!("! overload: {}", overloaded.join(", ")));
        mood = Mood::Alarm;
    }
    if !state.notes.is_empty() {
        parts.splice(0..0, state.notes.iter().map(|note| format!("! {note}")));
        mood = mood.max(Mood::Warn);
    }
    if parts.is_empty() {
        let names = state.interfaces.iter().map(|interface| &*interface.name);
        let names: Vec<&str> = names.filter(|name| !name.is_empty()).collect();
        parts.push(format!("nothing lost at {}", names.join(", ")));
    }
    let between = pen.look.signs().between;
    pen.cut((0, y), width, &parts.join(between), mood);
}

fn tree(pen: &mut Pen<'_>, app: &App, state: &State, lines: Lines, width: u16) {
    let fitting = fitting(width, longest(app, state));
    if let Some(y) = lines.head {
        pen.text((SIGNS, y), fitting.name, "class", Mood::Head);
        let mut x = SIGNS + fitting.name;
        for column in &fitting.columns {
            match column.figure {
                Figure::ShareBar | Figure::DelayBar => {
                    pen.text((x + 1, y), column.width, column.head, Mood::Head);
                }
                _ => pen.right((x + 1, y), column.width, column.head, Mood::Head),
            }
            x += column.width + 1;
        }
    }
    let (top, height) = lines.tree;
    let seen = app.rows.iter().enumerate().skip(app.offset);
    for (y, (at, row)) in (top..top + height).zip(seen) {
        let Some(link) = state.links.get(row.link) else {
            continue;
        };
        match row.class {
            Some(class) => class_line(pen, &fitting, y, (link, &link.classes[class]), *row),
            None => link_line(pen, &fitting, y, link, *row),
        }
        if at == app.selected {
            let named = Rect::new(0, y, SIGNS + fitting.name, 1);
            pen.over(named, Mood::Selected);
            pen.over(Rect::new(0, y, width, 1), Mood::Strong);
        }
    }
    if app.rows.is_empty() {
        pen.text((SIGNS, top), width, "no link", Mood::Plain);
    }
}

/// Returns the width of the longest name with its indentation.
fn longest(app: &App, state: &State) -> u16 {
    let widths = app.rows.iter().map(|row| {
        let link = &state.links[row.link];
        let letters = match row.class {
            Some(class) => link.classes[class].name.chars().count(),
            None => link_name(link).chars().count(),
        };
        2 * (row.depth + 1) + letters
    });
    u16::try_from(widths.max().unwrap_or(0)).unwrap_or(u16::MAX)
}

fn link_name(link: &Link) -> String {
    let passes = match link.shaped {
        true => "",
        false => ", not shaped",
    };
    format!("{} to {}{passes}", link.name, link.to)
}

/// Draws the name of a line, indented by its depth.
fn named(pen: &mut Pen<'_>, width: u16, y: u16, row: Row, name: &str, mood: Mood) {
    let signs = pen.look.signs();
    let fold = match row.fold {
        Fold::Nothing => "  ",
        Fold::Open => signs.open,
        Fold::Closed => signs.closed,
    };
    // Deep in the tree the indentation is limited to leave space for the name.
    let indent = u16::try_from(2 * row.depth)
        .unwrap_or(u16::MAX)
        .min(width / 3);
    pen.text(
        (SIGNS + indent, y),
        2.min(width - indent),
        fold,
        Mood::Quiet,
    );
    let left = (width - indent).saturating_sub(2);
    pen.cut((SIGNS + indent + 2, y), left, name, mood);
}

fn link_line(pen: &mut Pen<'_>, fitting: &Fitting, y: u16, link: &Link, row: Row) {
    let mood = match link.shaped {
        true => Mood::Strong,
        false => Mood::Warn,
    };
    named(pen, fitting.name, y, row, &link_name(link), mood);
    if row.fold == Fold::Closed {
        let late = link.top().any(|class| class.below.beyond);
        let low = link.top().any(|class| class.below.low);
        signs(pen, y, [late, low, false]);
    }
    let mut x = SIGNS + fitting.name;
    for column in &fitting.columns {
        let at = (x + 1, y);
        match column.figure {
            Figure::ShareBar => {
                let part = link.bps / link.rate_bps.max(1.0);
                pen.bar(at, column.width, [Some(part), None], Mood::Plain);
            }
            figure => {
                let text = columns::of_link(figure, link);
                pen.right(at, column.width, &text, Mood::Strong);
            }
        }
        x += column.width + 1;
    }
}

fn class_line(
    pen: &mut Pen<'_>,
    fitting: &Fitting,
    y: u16,
    (link, class): (&Link, &Class),
    row: Row,
) {
    let folded = row.fold == Fold::Closed;
    let late = class.beyond || folded && class.below.beyond;
    let low = class.low || folded && class.below.low;
    signs(pen, y, [late, low, class.held > 0]);
    named(pen, fitting.name, y, row, &class.name, Mood::Plain);
    let mut x = SIGNS + fitting.name;
    for column in &fitting.columns {
        let at = (x + 1, y);
        match column.figure {
            Figure::ShareBar => {
                let of_link = |bps: f64| bps / link.rate_bps.max(1.0);
                let mood = match class.low {
                    true => Mood::Alarm,
                    false => Mood::Good,
                };
                let parts = [Some(of_link(class.bps)), class.guaranteed_bps.map(of_link)];
                pen.bar(at, column.width, parts, mood);
            }
            Figure::DelayBar => {
                let mood = match class.beyond {
                    true => Mood::Alarm,
                    false => Mood::Good,
                };
                pen.bar(at, column.width, [class.of_bound(), None], mood);
            }
            figure => {
                let (text, mood) = columns::of_class(figure, class);
                pen.right(at, column.width, &text, mood);
            }
        }
        x += column.width + 1;
    }
}

/// Draws the signs of violated guarantees and of ceilings in effect.
fn signs(pen: &mut Pen<'_>, y: u16, [late, low, held]: [bool; 3]) {
    if late {
        pen.text((0, y), 1, "!", Mood::Alarm);
    }
    if low {
        pen.text((1, y), 1, "<", Mood::Alarm);
    } else if held {
        pen.text((1, y), 1, "^", Mood::Quiet);
    }
}

/// Draws figures of the selected line that the columns omit.
fn detail(pen: &mut Pen<'_>, app: &App, lines: Lines, width: u16) {
    let (top, height) = lines.detail;
    let Some((link, class)) = app.selection() else {
        return;
    };
    let text = match class {
        Some(class) => class_detail(link, class),
        None => format!(
            "{}: {} of {}, {} packets queued in {} classes",
            link_name(link),
            columns::rate(link.bps),
            columns::rate(link.rate_bps),
            link.queued,
            link.classes.len()
        ),
    };
    for (y, line) in (top..top + height).zip(wrapped(&text, width)) {
        pen.text((0, y), width, &line, Mood::Plain);
    }
}

fn class_detail(link: &Link, class: &Class) -> String {
    let mut parts = vec![match class.weight {
        Some(weight) => format!("{}/{}: weight {weight}", link.name, class.name),
        None => format!("{}/{}", link.name, class.name),
    }];
    if class.beyond {
        parts.push("recent packets exceeded the delay bound".to_owned());
    }
    if class.low {
        parts.push("less than the guaranteed rate although packets are queued".to_owned());
    }
    if class.held > 0 {
        parts.push(format!(
            "delayed by its ceiling {} times recently",
            class.held
        ));
    }
    if let Some(bps) = class.guaranteed_bps {
        parts.push(format!("guaranteed {}", columns::rate(bps)));
    }
    if let Some(bps) = class.ceil_bps {
        parts.push(format!("ceiling {}", columns::rate(bps)));
    }
    match (class.bound_us, &class.no_bound) {
        (Some(us), _) => parts.push(format!("bound {}", columns::micros(us))),
        (None, Some(reason)) => parts.push(format!("no bound: {reason}")),
        (None, None) => {}
    }
    if let Some(us) = class.worst_us {
        parts.push(format!("max delay {}", columns::micros(us)));
    }
    match class.violations {
        _ if class.bound_us.is_none() => {}
        _ if class.exceeds => {
            parts.push("bound not applicable (class above its guarantee)".to_owned());
        }
        1 => parts.push("bound violated once".to_owned()),
        0 => parts.push("bound never violated".to_owned()),
        times => parts.push(format!("bound violated {times} times")),
    }
    parts.push(format!(
        "{} packets ({}) queued",
        class.queued,
        crate::figures::size(class.queued_bytes)
    ));
    parts.push(format!("{} dropped", class.dropped));
    if class.marked > 0 {
        parts.push(format!("{} marked", class.marked));
    }
    parts.join(", ")
}

/// Draws the keys, the typed text, or the result of the last change.
fn foot(pen: &mut Pen<'_>, app: &App, y: u16, width: u16) {
    match (&app.mode, &app.notice) {
        (Mode::Filter(_), _) => {
            pen.cut(
                (0, y),
                width,
                &format!("/{}_", app.view.filter),
                Mood::Strong,
            );
        }
        (Mode::Tree, Some(notice)) => pen.cut((0, y), width, notice, Mood::Warn),
        (Mode::Tree, None) => {
            let mut x = 0;
            for (key, what) in [
                ("?", "help"),
                ("q", "end"),
                ("s", "sort"),
                ("/", "filter"),
                ("Enter", "fold"),
                ("e", "explain"),
                ("w", "weight"),
                ("r", "rate"),
                ("t", "talkers"),
            ] {
                let long = (key.len() + what.len() + 3) as u16;
                if x + long > width + 2 {
                    break;
                }
                x += pen.text((x, y), width - x, key, Mood::Selected);
                x += 1;
                x += pen.text((x, y), width.saturating_sub(x), what, Mood::Plain);
                x += 2;
            }
        }
        (Mode::Change(change), _) => {
            let text = format!("{}: Esc leaves it as it is", name(&change.place));
            pen.cut((0, y), width, &text, Mood::Quiet);
        }
        _ => {
            pen.cut((0, y), width, "Esc back, arrows scroll", Mood::Quiet);
        }
    }
}
