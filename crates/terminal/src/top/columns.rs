//! The columns of the tree: their contents, their widths, and the order in which they are omitted.

use super::look::Mood;
use super::state::{Class, Link};
use crate::figures;
use crate::table::NOT_APPLICABLE;

/// The content of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Figure {
    Rate,
    /// The share of the link's rate, with a mark at the guarantee.
    ShareBar,
    Share,
    Guaranteed,
    Ceiling,
    Offered,
    P50,
    P99,
    Max,
    Bound,
    /// The maximum recent delay as a fraction of the bound.
    DelayBar,
    Worst,
    Late,
    Queued,
    Flows,
    DropRate,
    Drops,
    MarkRate,
    Weight,
}

/// A column.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    pub figure: Figure,
    pub head: &'static str,
    pub width: u16,
    /// The lowest ranks are omitted last.
    rank: u8,
}

const fn column(figure: Figure, head: &'static str, width: u16, rank: u8) -> Column {
    Column {
        figure,
        head,
        width,
        rank,
    }
}

/// All columns, from the left.
const COLUMNS: [Column; 19] = [
    column(Figure::Rate, "rate", 9, 0),
    column(Figure::ShareBar, "share", 11, 1),
    column(Figure::Share, "%", 6, 8),
    column(Figure::Guaranteed, "guarant.", 9, 7),
    column(Figure::Ceiling, "ceiling", 9, 9),
    column(Figure::Offered, "offered", 9, 10),
    column(Figure::P50, "p50", 7, 15),
    column(Figure::P99, "p99", 7, 2),
    column(Figure::Max, "max", 7, 6),
    column(Figure::Bound, "bound", 7, 3),
    column(Figure::DelayBar, "delay/bound", 11, 11),
    column(Figure::Worst, "worst", 7, 14),
    column(Figure::Late, "late", 5, 17),
    column(Figure::Queued, "queued", 6, 4),
    column(Figure::Flows, "flows", 5, 16),
    column(Figure::DropRate, "drops/s", 7, 5),
    column(Figure::Drops, "drops", 6, 13),
    column(Figure::MarkRate, "marks/s", 7, 12),
    column(Figure::Weight, "weight", 6, 18),
];

/// Width of the signs before the name.
pub(super) const SIGNS: u16 = 2;
/// Width reserved for the name before any column is shown, and its maximum while bars can still grow.
const NAME: (u16, u16) = (14, 48);
/// Maximum width of a bar.
const BAR: u16 = 30;

/// The columns that fit a line.
#[derive(Clone, Debug)]
pub(super) struct Fitting {
    pub name: u16,
    pub columns: Vec<Column>,
}

/// Returns the columns that fit `width` if names are up to `longest` wide.
pub(super) fn fitting(width: u16, longest: u16) -> Fitting {
    let width = width.saturating_sub(SIGNS);
    let mut by_rank = COLUMNS;
    by_rank.sort_by_key(|column| column.rank);
    let (mut taken, mut kept) = (0, 0);
    for column in by_rank {
        if taken + column.width + 1 > width.saturating_sub(NAME.0) {
            break;
        }
        taken += column.width + 1;
        kept += 1;
    }
    let mut columns = COLUMNS.to_vec();
    columns.retain(|column| column.rank < kept);
    let left = width - taken;
    let name = match columns.is_empty() {
        true => left,
        false => left.min(longest.clamp(NAME.0, NAME.1)),
    };
    let mut rest = left - name;
    for column in &mut columns {
        if matches!(column.figure, Figure::ShareBar | Figure::DelayBar) {
            let more = rest.min(BAR - column.width);
            column.width += more;
            rest -= more;
        }
    }
    // The name gets the remaining width.
    Fitting {
        name: name + rest,
        columns,
    }
}

/// Returns the text of a class and its meaning. Bars have no text.
pub(super) fn of_class(figure: Figure, class: &Class) -> (String, Mood) {
    let late = match class.beyond {
        true => Mood::Alarm,
        false => Mood::Plain,
    };
    let delay = |us: Option<f64>| (us.map_or("-".to_owned(), micros), late);
    match figure {
        Figure::Rate => match class.low {
            true => (rate(class.bps), Mood::Alarm),
            false => (rate(class.bps), quiet(class.bps == 0.0)),
        },
        Figure::Share => (percent(class.share), quiet(class.share == 0.0)),
        Figure::Guaranteed => (optional(class.guaranteed_bps, rate), Mood::Plain),
        Figure::Ceiling => (optional(class.ceil_bps, rate), Mood::Plain),
        Figure::Offered => {
            let offered = class.since.map(|since| since.offered_bps);
            (optional(offered, rate), Mood::Plain)
        }
        Figure::P50 => delay(class.delay.map(|delay| delay.p50)),
        Figure::P99 => delay(class.delay.map(|delay| delay.p99)),
        Figure::Max => delay(class.delay.map(|delay| delay.max)),
        Figure::Bound if class.exceeds => (NOT_APPLICABLE.to_owned(), Mood::Quiet),
        Figure::Bound => delay(class.bound_us),
        Figure::Worst => (optional(class.worst_us, micros), Mood::Plain),
        Figure::Late => (count(class.violations), warn(class.violations > 0)),
        Figure::Queued => (count(class.queued), quiet(class.queued == 0)),
        Figure::Flows => (count(class.flows), quiet(class.flows == 0)),
        Figure::DropRate => {
            let drops = class.since.map(|since| since.drops);
            (optional(drops, per_second), warn(drops > Some(0.0)))
        }
        Figure::Drops => (count(class.dropped), quiet(class.dropped == 0)),
        Figure::MarkRate => {
            let marks = class.since.map(|since| since.marks);
            (optional(marks, per_second), quiet(marks == Some(0.0)))
        }
        Figure::Weight => {
            let weight = class.weight.map_or("-".to_owned(), count);
            (weight, Mood::Plain)
        }
        Figure::ShareBar | Figure::DelayBar => (String::new(), Mood::Plain),
    }
}

/// Returns the text of a link; empty if only classes have the figure.
pub(super) fn of_link(figure: Figure, link: &Link) -> String {
    let sum = |of: fn(&Class) -> f64| link.top().map(of).sum::<f64>();
    match figure {
        Figure::Rate => rate(link.bps),
        Figure::Share => percent(link.bps / link.rate_bps.max(1.0)),
        Figure::Guaranteed => rate(link.rate_bps),
        Figure::Offered => rate(sum(|class| {
            class.since.map_or(0.0, |since| since.offered_bps)
        })),
        Figure::Queued => count(link.queued),
        Figure::Flows => count(link.top().map(|class| class.flows).sum()),
        Figure::DropRate => per_second(sum(|class| class.since.map_or(0.0, |since| since.drops))),
        Figure::Drops => count(link.top().map(|class| class.dropped).sum()),
        Figure::MarkRate => per_second(sum(|class| class.since.map_or(0.0, |since| since.marks))),
        _ => String::new(),
    }
}

fn quiet(nothing: bool) -> Mood {
    match nothing {
        true => Mood::Quiet,
        false => Mood::Plain,
    }
}

fn warn(something: bool) -> Mood {
    match something {
        true => Mood::Warn,
        false => Mood::Quiet,
    }
}

fn optional(value: Option<f64>, tell: fn(f64) -> String) -> String {
    value.map_or("-".to_owned(), tell)
}

/// Formats a rate in bit/s.
pub(super) fn rate(bps: f64) -> String {
    figures::rate(bps.round() as u64)
}

/// Formats a time in microseconds.
pub(super) fn micros(us: f64) -> String {
    figures::micros(us)
}

pub(super) fn percent(part: f64) -> String {
    format!("{:.1}%", 100.0 * part)
}

/// Formats a number in at most five characters.
pub(super) fn count(number: u64) -> String {
    let scales = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    let number = number as f64;
    if number < 100_000.0 {
        return format!("{number:.0}");
    }
    let found = scales.iter().find(|(scale, _)| number >= 10.0 * scale);
    let &(scale, unit) = found.unwrap_or(&(1.0, ""));
    format!("{:.0}{unit}", (number / scale).min(9_999.0))
}

fn per_second(rate: f64) -> String {
    match rate {
        rate if rate > 0.0 && rate < 10.0 => format!("{rate:.1}"),
        _ => count(rate.round() as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_drop_away_from_the_least_important_and_fit_any_width() {
        let all = fitting(220, 20);
        assert_eq!(all.columns.len(), COLUMNS.len());
        let mut before = all.columns.len();
        for width in (0..=220).rev() {
            let fitting = fitting(width, 20);
            let taken: u16 = fitting.columns.iter().map(|column| column.width + 1).sum();
            assert!(taken + fitting.name + SIGNS <= width.max(SIGNS), "{width}");
            let count = fitting.columns.len();
            assert!(count <= before, "{width}");
            let ranks = fitting
                .columns
                .iter()
                .map(|column| usize::from(column.rank));
            assert!(ranks.max().is_none_or(|most| most + 1 == count), "{width}");
            before = count;
        }
        let heads = |width| -> Vec<&str> {
            let fitting = fitting(width, 20);
            fitting.columns.iter().map(|column| column.head).collect()
        };
        assert_eq!(
            heads(80),
            ["rate", "share", "p99", "max", "bound", "queued", "drops/s"]
        );
        assert_eq!(heads(30), ["rate"]);
        assert!(heads(20).is_empty());
        assert_eq!(heads(200).len(), COLUMNS.len());
    }

    #[test]
    fn counts_have_five_letters_at_most() {
        for (number, text) in [
            (0, "0"),
            (99_999, "99999"),
            (100_000, "100k"),
            (9_999_499, "9999k"),
            (10_000_000, "10M"),
            (u64::MAX, "9999T"),
        ] {
            assert_eq!(count(number), text);
            assert!(text.len() <= 5);
        }
        assert_eq!(
            (per_second(0.0), per_second(0.26), per_second(12.4)),
            ("0".into(), "0.3".into(), "12".into())
        );
    }
}
