//! Tables as all commands print them.

use comfy_table::presets::UTF8_BORDERS_ONLY;
use comfy_table::{CellAlignment, ContentArrangement, Table};
use console::Term;

/// A table as wide as the terminal at most: names on the left, numbers aligned to
/// the right.
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
