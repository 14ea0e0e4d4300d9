//! Errors and warnings about a file, with their positions.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::panic::Location;

use crate::grant::Broken;

/// A sentence about a place in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The file's name as given.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column, from 1, in characters.
    pub column: usize,
    /// The problem, and the allowed values.
    pub sentence: String,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Diagnostic {
            file,
            line,
            column,
            sentence,
        } = self;
        // A name may contain line breaks, which must not look like another sentence.
        let sentence = sentence.replace(['\n', '\r'], "\u{fffd}");
        write!(f, "{file}:{line}:{column}: {sentence}")
    }
}

/// The reason why a file is not a valid site.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SiteError {
    /// It cannot be read.
    #[error("{file}: {reason}")]
    Unreadable {
        /// The file's name as given.
        file: String,
        /// The system's reason.
        reason: std::io::Error,
    },
    /// It has errors: one sentence each, in order of place, at least one.
    #[error("{}", lines(.0))]
    Invalid(Vec<Diagnostic>),
    /// It is valid by itself, but would break [grants](crate::Grant).
    #[error("{file}: it would break {}", listed(.broken))]
    Grants {
        /// The file's name as given.
        file: String,
        /// The broken grants, at least one. Of two that conflict, the later one.
        broken: Vec<Broken>,
    },
}

fn listed(broken: &[Broken]) -> String {
    let all: Vec<_> = broken.iter().map(Broken::to_string).collect();
    all.join("; ")
}

fn lines(diagnostics: &[Diagnostic]) -> String {
    let lines: Vec<_> = diagnostics.iter().map(Diagnostic::to_string).collect();
    lines.join("\n")
}

/// Warnings of one kind that are kept with their sentences; further ones are only counted.
const WARNINGS_OF_A_KIND: usize = 3;
/// Errors that are kept with their sentences.
const ERRORS: usize = 100;

/// The text with the errors and warnings collected so far. Of many of one kind, only some are kept, and the number of
/// the others.
#[derive(Debug)]
pub struct Report<'a> {
    file: &'a str,
    text: &'a str,
    errors: Vec<(usize, String)>,
    /// Number of errors.
    failures: usize,
    warnings: Vec<(usize, String)>,
    /// By the line of code that warns: the number of warnings, and the index of the last one kept.
    kinds: HashMap<&'static Location<'static>, (usize, usize)>,
}

impl<'a> Report<'a> {
    /// Returns an empty report about `text`, whose name in sentences is `file`.
    pub fn new(file: &'a str, text: &'a str) -> Report<'a> {
        Report {
            file,
            text,
            errors: Vec::new(),
            failures: 0,
            warnings: Vec::new(),
            kinds: HashMap::new(),
        }
    }

    /// Reports an error at these bytes of the text.
    pub fn error(&mut self, at: &Range<usize>, sentence: impl Into<String>) {
        self.failures += 1;
        if !self.is_full() {
            self.errors.push((at.start, sentence.into()));
        }
    }

    /// Reports a probably unintended setting. Each caller has its own kind of warnings, of which the first few are
    /// kept.
    #[track_caller]
    pub fn warning(&mut self, at: &Range<usize>, sentence: impl Into<String>) {
        let (count, last) = self.kinds.entry(Location::caller()).or_default();
        *count += 1;
        if *count <= WARNINGS_OF_A_KIND {
            *last = self.warnings.len();
            self.warnings.push((at.start, sentence.into()));
        }
    }

    /// Returns whether further errors are only counted, so that expensive sentences need not be built.
    pub(crate) fn is_full(&self) -> bool {
        self.errors.len() >= ERRORS
    }

    /// Returns whether there is an error.
    pub fn failed(&self) -> bool {
        !self.errors.is_empty()
    }

    /// Returns whether there are no messages.
    pub(crate) fn is_empty(&self) -> bool {
        self.errors.is_empty() && self.warnings.is_empty()
    }

    /// Returns the first error or warning, without its place.
    pub(crate) fn first(self) -> Option<String> {
        let mut all = self.errors.into_iter().chain(self.warnings);
        all.next().map(|(_, sentence)| sentence)
    }

    /// Returns the number of errors.
    pub fn errors(&self) -> usize {
        self.failures
    }

    /// Returns the warnings, or the errors if there are any.
    pub fn finish(mut self) -> Result<Vec<Diagnostic>, SiteError> {
        if self.errors.is_empty() {
            for &(count, last) in self.kinds.values() {
                let more = count.saturating_sub(WARNINGS_OF_A_KIND);
                let sentence = &mut self.warnings[last].1;
                add_count(sentence, more, "warning like this", "warnings like this");
            }
            Ok(located(self.file, self.text, self.warnings))
        } else {
            let more = self.failures - self.errors.len();
            if let Some((_, sentence)) = self.errors.last_mut() {
                add_count(sentence, more, "error", "errors");
            }
            Err(SiteError::Invalid(located(
                self.file,
                self.text,
                self.errors,
            )))
        }
    }
}

/// Appends the number of further messages, if any.
fn add_count(sentence: &mut String, more: usize, one: &str, several: &str) {
    match more {
        0 => {}
        1 => *sentence += &format!(" (and one more {one})"),
        _ => *sentence += &format!(" (and {more} more {several})"),
    }
}

/// Sorts messages by place and converts offsets to lines and columns, in one pass over the text.
fn located(file: &str, text: &str, mut found: Vec<(usize, String)>) -> Vec<Diagnostic> {
    found.sort_by_key(|&(offset, _)| offset);
    let (mut line, mut start, mut seen) = (1, 0, 0);
    found
        .into_iter()
        .map(|(offset, sentence)| {
            let mut offset = offset.min(text.len());
            while !text.is_char_boundary(offset) {
                offset -= 1;
            }
            for (at, _) in text[seen..offset].match_indices('\n') {
                line += 1;
                start = seen + at + 1;
            }
            seen = offset;
            Diagnostic {
                file: file.to_owned(),
                line,
                column: text[start..offset].chars().count() + 1,
                sentence,
            }
        })
        .collect()
}

/// Returns `, did you mean 'x'?` where a known name is near; else nothing.
pub fn suggestion<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let near = nearest(name, known);
    near.map_or(String::new(), |near| format!(", did you mean '{near}'?"))
}

/// Returns the nearest of some known names, if one is near. A name of more than a hundred characters is near none:
/// the comparison takes time and memory by the product of both lengths.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    const LONGEST: usize = 100;
    // No character has more than four bytes.
    if name.len() > 4 * LONGEST {
        return None;
    }
    let length = name.chars().count();
    if length > LONGEST {
        return None;
    }
    // Otherwise any letter would be near a name of one letter.
    let most = (length / 3).max(1).min(length.saturating_sub(1));
    known
        .into_iter()
        .filter(|known| known.len() <= 4 * LONGEST)
        .map(|known| (strsim::damerau_levenshtein(name, known), known))
        .filter(|&(distance, _)| (1..=most).contains(&distance))
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_counted_in_lines_and_characters_from_one() {
        let text = "a = 1\nü = 2\n\nlast";
        let mut report = Report::new("f", text);
        for word in ["last", "2", "a"] {
            let at = text.find(word).unwrap();
            report.error(&(at..at + 1), word);
        }
        let Err(SiteError::Invalid(found)) = report.finish() else {
            panic!("three errors");
        };
        let places: Vec<_> = found.iter().map(Diagnostic::to_string).collect();
        assert_eq!(places, ["f:1:1: a", "f:2:5: 2", "f:4:1: last"]);
    }

    #[test]
    fn many_warnings_of_a_kind_are_three_and_a_count() {
        let text = "\n".repeat(20_000);
        let mut report = Report::new("f", &text);
        for at in 0..10_000 {
            report.warning(&(at..at), format!("first kind, {at}"));
            if at < 4 {
                report.warning(&(at..at), format!("second kind, {at}"));
            }
        }
        let found = report.finish().unwrap();
        let shown: Vec<_> = found.iter().map(Diagnostic::to_string).collect();
        let expected = [
            "f:1:1: first kind, 0",
            "f:1:1: second kind, 0",
            "f:2:1: first kind, 1",
            "f:2:1: second kind, 1",
            "f:3:1: first kind, 2 (and 9997 more warnings like this)",
            "f:3:1: second kind, 2 (and one more warning like this)",
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn many_errors_are_a_hundred_and_a_count() {
        let mut report = Report::new("f", "");
        for at in 0..5_000 {
            report.error(&(0..0), format!("wrong, {at}"));
        }
        assert_eq!(report.errors(), 5_000);
        let Err(SiteError::Invalid(found)) = report.finish() else {
            panic!("there are errors");
        };
        let last = "wrong, 99 (and 4900 more errors)";
        assert_eq!((found.len(), &*found[99].sentence), (100, last));
    }

    #[test]
    fn only_a_near_name_is_suggested() {
        let known = ["rate", "ceil", "burst"];
        assert_eq!(suggestion("rat", known), ", did you mean 'rate'?");
        assert_eq!(suggestion("brust", known), ", did you mean 'burst'?");
        assert_eq!(suggestion("colour", known), "");
        // The product of these lengths would be 10^14.
        let long = "a".repeat(10_000_000);
        assert_eq!(suggestion(&long, [&*long]), "");
        assert_eq!(suggestion("aaaa", [&*long]), "");
    }
}
