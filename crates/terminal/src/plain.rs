//! Text that is safe for a terminal. Names come from files and from clients: a character that a terminal would take for
//! a command, or that would reorder or hide other characters, is replaced by `\u{fffd}`.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::Value as Json;

/// Returns whether a character would control a terminal (C0, C1), reorder text (bidirectional marks, embeddings,
/// overrides and isolates), or be invisible.
fn is_hidden(letter: char) -> bool {
    letter.is_control()
        || matches!(letter,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e0fff}')
}

fn shown(text: &str, is_hidden: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_hidden) {
        return Cow::Borrowed(text);
    }
    let letters = text.chars().map(|letter| match is_hidden(letter) {
        true => '\u{fffd}',
        false => letter,
    });
    Cow::Owned(letters.collect())
}

/// Returns a name or a sentence as one plain line. O(characters).
pub fn plain(text: &str) -> Cow<'_, str> {
    shown(text, is_hidden)
}

/// Returns plain lines, with their line ends and tabs. O(characters).
pub fn lines(text: &str) -> Cow<'_, str> {
    shown(text, |letter| {
        !matches!(letter, '\n' | '\t') && is_hidden(letter)
    })
}

/// Returns a name or a sentence of a site's answer; empty if it is not a string.
pub(crate) fn told(text: &Json) -> Cow<'_, str> {
    plain(text.as_str().unwrap_or_default())
}

/// Returns JSON in which all such characters are escaped: a parser reads the same values.
///
/// # Errors
///
/// The value cannot be written as JSON.
pub fn json(value: &(impl Serialize + ?Sized)) -> serde_json::Result<String> {
    let text = serde_json::to_string(value)?;
    if !text.contains(is_hidden) {
        return Ok(text);
    }
    let mut escaped = String::with_capacity(text.len() + 64);
    for letter in text.chars() {
        if !is_hidden(letter) {
            escaped.push(letter);
            continue;
        }
        for unit in letter.encode_utf16(&mut [0; 2]) {
            escaped += &format!("\\u{unit:04x}");
        }
    }
    Ok(escaped)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ODD: &str = "a\u{1b}[2Jb\u{9b}c\nd\u{202e}e\u{200b}f\u{e0001}";

    #[test]
    fn no_text_commands_the_terminal() {
        assert_eq!(plain("voice"), "voice");
        assert_eq!(plain("größer"), "größer");
        let shown = "a\u{fffd}[2Jb\u{fffd}c\u{fffd}d\u{fffd}e\u{fffd}f\u{fffd}";
        assert_eq!(plain(ODD), shown);
        assert_eq!(lines("one\n\ttwo\r\n"), "one\n\ttwo\u{fffd}\n");
        assert_eq!(told(&Json::Null), "");
    }

    #[test]
    fn json_says_the_same_without_such_letters() {
        let text = json(&[ODD, "größer"]).unwrap();
        assert!(!text.contains(is_hidden), "{text}");
        assert!(text.contains("größer"), "{text}");
        let read: Vec<String> = serde_json::from_str(&text).unwrap();
        assert_eq!(read, [ODD, "größer"]);
    }
}
