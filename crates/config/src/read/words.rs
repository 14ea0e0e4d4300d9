//! Words and names.

use std::collections::HashMap;

use crate::diagnostic::{Report, suggestion};
use crate::written::Text;

/// Linux's rules for the name of an interface, in words.
pub const INTERFACE_NAME: &str =
    "the name of an interface has 1 to 15 bytes, without spaces, '/' and ':'";

/// Returns whether a name is valid for an interface by [Linux's rules](INTERFACE_NAME).
pub fn is_interface_name(text: &str) -> bool {
    let unfit = |c: char| matches!(c, '/' | ':' | '\0') || c.is_whitespace();
    (1..=15).contains(&text.len()) && text != "." && text != ".." && !text.contains(unfit)
}

pub(super) fn interface_name(key: &str, name: &Text, report: &mut Report) {
    let text = name.value();
    if !is_interface_name(text) {
        report.error(&name.span(), format!("{key} '{text}': {INTERFACE_NAME}"));
    }
}

/// Returns the value of a word; if there is none, reports the valid words or the nearest.
pub(super) fn word<T: Copy>(
    text: &Text,
    key: &str,
    words: &[(&str, T)],
    report: &mut Report,
) -> Option<T> {
    let written = text.value();
    let found = words.iter().find(|(word, _)| word == written);
    if found.is_none() {
        let known: Vec<_> = words.iter().map(|&(word, _)| word).collect();
        report.error(&text.span(), unknown(key, written, &known));
    }
    found.map(|&(_, value)| value)
}

/// Formats the error about an unknown name, with the nearest one or all valid ones.
pub(super) fn unknown(what: &str, name: &str, known: &[&str]) -> String {
    let near = suggestion(name, known.iter().copied());
    match near.is_empty() {
        true => format!(
            "{what} '{name}' does not exist: it is one of {}",
            known.join(", ")
        ),
        false => format!("{what} '{name}' does not exist{near}"),
    }
}

/// Names that must be distinct.
pub(super) struct Names<'a> {
    what: &'static str,
    known: HashMap<&'a str, usize>,
}

impl<'a> Names<'a> {
    pub(super) fn new(what: &'static str) -> Names<'a> {
        let known = HashMap::new();
        Names { what, known }
    }

    /// Returns the number of names before this one. Reports a name that is a duplicate, is empty, or has a control
    /// character, which a terminal or a log would not show.
    pub(super) fn insert(&mut self, name: &'a Text, report: &mut Report) {
        let number = self.known.len();
        let is_control = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
        if let Some(letter) = name.value().chars().find(|&c| is_control(c)) {
            report.error(
                &name.span(),
                format!(
                    "name '{}': {} is a control character (any other character is allowed)",
                    name.value().escape_debug(),
                    letter.escape_unicode()
                ),
            );
        }
        if name.value().is_empty() {
            report.error(
                &name.span(),
                format!("name: a {} needs one that is not empty", self.what),
            );
        }
        if let "." | ".." = name.value().as_str() {
            report.error(
                &name.span(),
                format!(
                    "name '{}': no {} has that name, which is no part of an address",
                    name.value(),
                    self.what
                ),
            );
        }
        if self.known.insert(name.value(), number).is_some() {
            report.error(
                &name.span(),
                format!(
                    "name '{}': another {} has it already",
                    name.value(),
                    self.what
                ),
            );
        }
    }
}
