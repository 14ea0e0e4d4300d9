//! Parsing of a text into the file's tables, with our own messages for syntax errors and unknown keys.

use serde::de::DeserializeOwned;
use toml::de::Error;

use crate::diagnostic::{Report, suggestion};
use crate::text::{MOST_ELEMENTS, TABLE, excess};

/// Parses the tables of a TOML text, or reports the error.
pub fn parse<T: DeserializeOwned>(text: &str, report: &mut Report) -> Option<T> {
    if let Some(at) = excess(text) {
        report.error(
            &(at..at),
            format!(
                "too much text: this is beyond {MOST_ELEMENTS} words, numbers and marks, of which a table counts for {TABLE} \
                 (a class of five keys has about 80)"
            ),
        );
        return None;
    }
    match toml::from_str(text) {
        Ok(file) => Some(file),
        Err(error) => {
            let at = error.span().unwrap_or(0..0);
            let written = text.get(at.clone()).unwrap_or_default();
            let sentence = match key_before(text, at.start) {
                Some(key) => format!("{key}: {}", sentence(&error, written)),
                None => sentence(&error, written),
            };
            report.error(&at, sentence);
            None
        }
    }
}

/// Returns the key whose value starts here.
fn key_before(text: &str, at: usize) -> Option<&str> {
    let before = text.get(..at)?.trim_end().strip_suffix('=')?.trim_end();
    let ends = |mark: char| mark.is_whitespace() || matches!(mark, '{' | ',');
    before.rsplit(ends).next().filter(|key| !key.is_empty())
}

/// Rewrites a message of serde, which quotes unknown and known keys with backticks and names types as in Rust.
fn sentence(error: &Error, written: &str) -> String {
    let message = error.message().trim().replace('\n', ", ");
    let mut quoted = message.split('`').skip(1).step_by(2);
    let first = quoted.next().unwrap_or_default();
    if message.starts_with("unknown field") {
        let known: Vec<_> = quoted.collect();
        let near = suggestion(first, known.iter().copied());
        if near.is_empty() {
            format!(
                "unknown key '{first}': the keys here are {}",
                known.join(", ")
            )
        } else {
            format!("unknown key '{first}'{near}")
        }
    } else if message.starts_with("missing field") {
        format!("the key '{first}' is missing")
    } else if message == "duplicate key" {
        format!("the key '{written}' is given twice")
    } else {
        let message = match message.split_once("expected ") {
            Some((found, "i64")) => format!("{found}expected a whole number"),
            Some((found, "f64")) => format!("{found}expected a number"),
            Some((found, "a string")) => format!("{found}expected a text in quotes"),
            Some((found, "a sequence")) => format!("{found}expected tables in double brackets"),
            Some((found, kind)) if kind.starts_with("struct ") => {
                format!("{found}expected a table")
            }
            _ => message,
        };
        message.replace('`', "'")
    }
}
