//! Tables in the format of all commands.

use comfy_table::presets::UTF8_BORDERS_ONLY;
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table};
use console::{Term, measure_text_width};

use crate::plain::plain;

/// Shown for the delay bound of a class above its guarantee.
pub const NOT_APPLICABLE: &str = "n/a";
/// The explanation of that.
pub const WHY_NOT_APPLICABLE: &str =
    "the delay bound does not apply, since the class is above its guarantee";

/// Returns a table at most as wide as the terminal: names on the left, numbers aligned right.
pub fn new<I, T>(header: I) -> Table
where
    I: IntoIterator<Item = T>,
    T: Into<comfy_table::Cell>,
{
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY);
    table.set_header(header.into_iter().map(Into::into));
    if let Some((_, columns)) = Term::stdout().size_checked() {
        table.set_content_arrangement(ContentArrangement::Dynamic);
        table.set_width(columns);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Returns the first cell of a class's row, indented by its depth.
pub fn class(depth: usize, name: &str) -> String {
    format!("{}{}", "  ".repeat(depth), plain(name))
}

/// Hides columns, in the order given, until the others fit the terminal without
/// wrapping.
pub fn fit(table: &mut Table, expendable: &[usize]) {
    let Some((_, columns)) = Term::stdout().size_checked() else {
        return;
    };
    table.set_content_arrangement(ContentArrangement::Disabled);
    for &column in expendable {
        let width = table.lines().map(|line| measure_text_width(&line)).max();
        if width <= Some(usize::from(columns)) {
            break;
        }
        if let Some(column) = table.column_mut(column) {
            column.set_constraint(ColumnConstraint::Hidden);
        }
    }
    table.set_content_arrangement(ContentArrangement::Dynamic);
}
