//! CSV files of whole numbers, row by row.
//!
//! Every error names file and line. The csv crate's positions are a line off after CRLF and blank lines, so lines are
//! counted here; quoting is not supported.

use std::io::{BufRead, Read};
use std::ops::RangeInclusive;

use anyhow::{Context, Result, bail};

/// No valid row is nearly this long; a line of a file that is not CSV may be.
const LONGEST_LINE: u64 = 4096;

/// Rows of `N` fields below a header; the last columns may be missing from the file.
pub(super) struct Rows<R, const N: usize> {
    input: R,
    name: String,
    columns: [&'static str; N],
    /// The least and the largest number of each column.
    ranges: [(u64, u64); N],
    /// Number of columns in the file.
    present: usize,
    line: u64,
    text: Vec<u8>,
    /// Where each field of the row ends in the text.
    ends: [usize; N],
}

impl<R: BufRead, const N: usize> Rows<R, N> {
    /// Reads and checks the header of the file, which errors call `name`.
    pub(super) fn new(input: R, name: String, columns: [&'static str; N]) -> Result<Self> {
        Rows::with_optional(input, name, columns, 0)
    }

    /// The same, with the last `optional` columns optional.
    pub(super) fn with_optional(
        input: R,
        name: String,
        columns: [&'static str; N],
        optional: usize,
    ) -> Result<Self> {
        let mut rows = Rows {
            input,
            name,
            columns,
            ranges: [(0, u64::MAX); N],
            present: N,
            line: 0,
            text: Vec::new(),
            ends: [0; N],
        };
        let needed = &columns[..N - optional];
        let mut header = needed.join(",");
        for column in &columns[N - optional..] {
            header += &format!("[,{column}]");
        }
        if !rows.advance()? {
            bail!(
                "{}: the file is empty, it must begin with the header {header}",
                rows.name
            );
        }
        let text = rows
            .text
            .strip_prefix("\u{feff}".as_bytes())
            .unwrap_or(&rows.text);
        let found: Vec<&[u8]> = text.split(|&b| b == b',').map(<[u8]>::trim_ascii).collect();
        let place = rows.place();
        for column in needed {
            if !found.contains(&column.as_bytes()) {
                bail!("{place}: the header lacks the column {column}, it must be {header}");
            }
        }
        let unknown = found.iter().find(|name| !is_one_of(&columns, name));
        if let Some(extra) = unknown.or(found.get(N)) {
            let extra = shown(extra);
            bail!("{place}: the header has the extra column '{extra}', it must be {header}");
        }
        let present = found.len();
        let expected = columns[..present].iter().map(|c| c.as_bytes());
        if !found.iter().copied().eq(expected) {
            bail!("{place}: the columns are in another order than {header}");
        }
        rows.present = present;
        Ok(rows)
    }

    /// Numbers of the column at this place lie in this range.
    pub(super) fn within(mut self, place: usize, range: RangeInclusive<u64>) -> Self {
        self.ranges[place] = range.into_inner();
        self
    }

    /// Returns the fields of the row as numbers; 0 for a missing column.
    pub(super) fn numbers(&self) -> Result<[u64; N]> {
        let mut row = [0; N];
        for (place, number) in row[..self.present].iter_mut().enumerate() {
            *number = self.number(place)?;
        }
        Ok(row)
    }

    /// Advances to the next row. Returns whether there is one. Blank lines are skipped.
    pub(super) fn next_row(&mut self) -> Result<bool> {
        if !self.advance()? {
            return Ok(false);
        }
        let mut fields = 0;
        let mut end = 0;
        for field in self.text.split(|&byte| byte == b',') {
            end += field.len();
            if fields == self.present {
                bail!(
                    "{}: '{}' is an extra column, a row is {}",
                    self.place(),
                    shown(field),
                    self.columns().join(",")
                );
            }
            self.ends[fields] = end;
            fields += 1;
            end += 1;
        }
        if fields < self.present {
            bail!(
                "{}: the column {} is missing, a row is {}",
                self.place(),
                self.columns[fields],
                self.columns().join(",")
            );
        }
        Ok(true)
    }

    fn columns(&self) -> &[&'static str] {
        &self.columns[..self.present]
    }

    /// Whether the file has the column at this place.
    pub(super) fn has(&self, place: usize) -> bool {
        place < self.present
    }

    /// Returns a field of the row, with surrounding blanks.
    fn field(&self, place: usize) -> &[u8] {
        let start = match place {
            0 => 0,
            _ => self.ends[place - 1] + 1,
        };
        &self.text[start..self.ends[place]]
    }

    /// Returns a field of the row as text, without surrounding blanks; empty if it is not UTF-8.
    pub(super) fn word(&self, place: usize) -> &str {
        std::str::from_utf8(self.field(place)).map_or("", str::trim)
    }

    /// Returns a field of the row as a number.
    pub(super) fn number(&self, place: usize) -> Result<u64> {
        let field = self.field(place);
        let (least, most) = self.ranges[place];
        match number_of(field).filter(|number| (least..=most).contains(number)) {
            Some(number) => Ok(number),
            None => bail!(
                "{}: {} '{}' is not a whole number from {least} to {most}",
                self.place(),
                self.columns[place],
                shown(field)
            ),
        }
    }

    /// Returns file and line of the last row, as in `arrivals.csv:7`.
    pub(super) fn place(&self) -> String {
        self.place_of(self.line)
    }

    /// Returns file and line.
    pub(super) fn place_of(&self, line: u64) -> String {
        format!("{}:{line}", self.name)
    }

    /// Returns the number of the last line read.
    pub(super) fn line(&self) -> u64 {
        self.line
    }

    /// Reads the next line that is not blank; whether there was one.
    fn advance(&mut self) -> Result<bool> {
        loop {
            self.text.clear();
            let mut limited = self.input.by_ref().take(LONGEST_LINE);
            let read = limited
                .read_until(b'\n', &mut self.text)
                .with_context(|| format!("reading {}", self.name))?;
            if read == 0 {
                return Ok(false);
            }
            self.line += 1;
            if read as u64 == LONGEST_LINE && self.text.last() != Some(&b'\n') {
                bail!("{}: the line is longer than any row", self.place());
            }
            if !self.text.trim_ascii().is_empty() {
                return Ok(true);
            }
        }
    }
}

fn is_one_of(columns: &[&str], name: &[u8]) -> bool {
    columns.iter().any(|column| column.as_bytes() == name)
}

/// Reads digits, with blanks around them.
fn number_of(field: &[u8]) -> Option<u64> {
    let digits = field.trim_ascii();
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |number, &byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number.checked_mul(10)?.checked_add(digit.into())
    })
}

/// Returns a field for an error message: on one line, and of limited length.
fn shown(field: &[u8]) -> String {
    let text = String::from_utf8_lossy(field.trim_ascii());
    let mut shown: String = text.chars().take(40).collect();
    if shown.len() < text.len() {
        shown.push_str("..");
    }
    shown.escape_debug().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(text: &str) -> Result<Vec<([u64; 2], u64)>> {
        let mut rows = Rows::new(text.as_bytes(), "f.csv".to_owned(), ["a", "b"])?;
        let mut read = Vec::new();
        while rows.next_row()? {
            read.push((rows.numbers()?, rows.line()));
        }
        Ok(read)
    }

    #[test]
    fn lines_are_counted_whatever_ends_them() {
        let expected = [([1, 2], 2), ([3, 4], 4)];
        assert_eq!(rows("a,b\n1,2\n\n3,4\n").unwrap(), expected);
        assert_eq!(rows("a,b\r\n1,2\r\n \r\n3,4\r\n").unwrap(), expected);
        assert_eq!(rows("\u{feff}a , b\n 1,2 \n\n3,4").unwrap(), expected);
        assert_eq!(rows("a,b").unwrap(), []);
    }

    #[test]
    fn a_number_takes_all_of_sixty_four_bits_and_no_more() {
        assert_eq!(number_of(b"18446744073709551615"), Some(u64::MAX));
        for text in ["18446744073709551616", "", "-1", "+1", "1.0", "1e3", "1 2"] {
            assert_eq!(number_of(text.as_bytes()), None, "{text}");
        }
        assert_eq!(number_of(b"007"), Some(7));
    }

    #[test]
    fn an_error_names_the_line_and_the_column() {
        for (text, names) in [
            ("", "f.csv: the file is empty"),
            ("a\n", "f.csv:1: the header lacks the column b"),
            ("a,b,c\n", "f.csv:1: the header has the extra column 'c'"),
            ("b,a\n", "f.csv:1: the columns are in another order"),
            ("a,b\n1\n", "f.csv:2: the column b is missing"),
            ("a,b\n1,2\n3,4,\n", "f.csv:3: '' is an extra column"),
            ("a,b\n1,2x\n", "f.csv:2: b '2x' is not a whole number"),
        ] {
            let error = format!("{:#}", rows(text).unwrap_err());
            assert!(error.starts_with(names), "{text:?}: {error}");
        }
        let long = format!("a,b\n{}\n", "1".repeat(LONGEST_LINE as usize));
        let error = rows(&long).unwrap_err().to_string();
        assert!(error.starts_with("f.csv:2: the line is longer"), "{error}");
    }
}
