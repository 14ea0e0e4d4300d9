//! Reading text files of bounded length.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

use rustix::fs::{Mode, OFlags, open};
use toml_parser::Source;
use toml_parser::lexer::TokenKind;

use crate::diagnostic::SiteError;

/// Longest file that is read, in bytes: some tens of thousands of classes with their filters, and their comments. An
/// endless device is read up to that length.
pub const MAX_FILE: u64 = 16 << 20;

/// Most elements of a text: a parser keeps some 80 bytes for each.
pub(crate) const MOST_ELEMENTS: usize = 3_000_000;

/// Number of elements that a table counts as: it takes a kilobyte by itself.
pub(crate) const TABLE: usize = 16;

/// Returns the position at which a text exceeds [`MOST_ELEMENTS`]: words, strings, comments, runs of blanks, other
/// marks, and ends of lines. A mark that may begin a table counts as [`TABLE`] of them. O(n), without allocation.
pub(crate) fn excess(text: &str) -> Option<usize> {
    beyond(text, MOST_ELEMENTS)
}

fn beyond(text: &str, most: usize) -> Option<usize> {
    let mut elements = 0;
    let mut before = TokenKind::Newline;
    let mut tokens = Source::new(text).lex();
    let last = tokens.find(|token| {
        let kind = token.kind();
        elements += match kind {
            TokenKind::LeftSquareBracket if before == kind => 1,
            TokenKind::LeftSquareBracket | TokenKind::LeftCurlyBracket | TokenKind::Dot => TABLE,
            _ => 1,
        };
        before = kind;
        elements > most && kind != TokenKind::Eof
    });
    last.map(|token| token.span().start())
}

/// The text of a file, or of whatever else the path leads to.
///
/// # Errors
///
/// It cannot be read, is longer than [`MAX_FILE`], or is no text.
///
/// ```
/// use fairlane_config::read_text;
/// use std::path::Path;
///
/// let text = read_text(Path::new("Cargo.toml"))?;
/// assert!(text.contains("[package]"));
/// // One sentence says which file, and why not.
/// println!("{}", read_text(Path::new("nosuch.toml")).unwrap_err());
/// # Ok::<(), fairlane_config::SiteError>(())
/// ```
pub fn read(path: &Path) -> Result<String, SiteError> {
    of(path, || File::open(path))
}

/// Reads the text of a regular file. Never blocks on another kind of file, such as a pipe without a writer.
///
/// # Errors
///
/// Returns the errors of [`read`], and one if the path is not a regular file.
pub fn read_regular(path: &Path) -> Result<String, SiteError> {
    of(path, || {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(open(path, flags, Mode::empty())?);
        match file.metadata()?.is_file() {
            true => Ok(file),
            false => Err(io::Error::new(
                ErrorKind::InvalidInput,
                "it is not a regular file, and only such a one is read while frames pass",
            )),
        }
    })
}

fn of(path: &Path, open: impl FnOnce() -> io::Result<File>) -> Result<String, SiteError> {
    open()
        .and_then(bounded)
        .map_err(|reason| SiteError::Unreadable {
            file: path.display().to_string(),
            reason,
        })
}

fn bounded(file: impl Read) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.take(MAX_FILE + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(io::Error::new(
            ErrorKind::FileTooLarge,
            format!("longer than {} MiB, the most that is read", MAX_FILE >> 20),
        ));
    }
    let no_text = |_| io::Error::new(ErrorKind::InvalidData, "this is not text in UTF-8");
    String::from_utf8(bytes).map_err(no_text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(result: Result<String, SiteError>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn what_has_no_end_is_read_up_to_the_limit() {
        let sentence = refused(read(Path::new("/dev/zero")));
        assert_eq!(
            sentence,
            "/dev/zero: longer than 16 MiB, the most that is read"
        );
    }

    #[test]
    fn a_file_as_long_as_the_limit_is_read_and_one_longer_is_not() {
        let text = |length| bounded(io::repeat(b'#').take(length));
        assert_eq!(text(MAX_FILE).unwrap().len() as u64, MAX_FILE);
        assert_eq!(
            text(MAX_FILE + 1).unwrap_err().kind(),
            ErrorKind::FileTooLarge
        );
    }

    #[test]
    fn elements_are_words_texts_and_marks_and_tables_count_for_more() {
        const MOST: usize = 3_000;
        for (element, count) in [
            ("\n", 1),
            ("#[.\n", 2),
            ("a=", 2),
            ("\"1.2.3.4\"", 1),
            ("1,", 2),
            ("a.", 1 + TABLE),
            ("{}", 1 + TABLE),
            ("[]", 1 + TABLE),
            ("[[]]", 3 + TABLE),
        ] {
            let most = MOST / count;
            assert_eq!(beyond(&element.repeat(most), MOST), None, "{element:?}");
            let more = beyond(&element.repeat(most + 1), MOST);
            assert!(more.is_some(), "{element:?}");
        }
        for text in ["a", " ", "ü", "1", "#"] {
            assert_eq!(beyond(&text.repeat(3 * MOST), MOST), None, "{text}");
        }
        let text = format!("name{}", "\n".repeat(MOST));
        assert_eq!(beyond(&text, MOST), Some(text.len() - 1));
    }

    #[test]
    fn only_a_regular_file_is_read_again_and_nothing_else_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        for path in [&fifo, Path::new("/dev/zero"), folder.path()] {
            let sentence = refused(read_regular(path));
            assert!(sentence.contains("not a regular file"), "{sentence}");
        }
        let file = folder.path().join("site.toml");
        std::fs::write(&file, "ünï").unwrap();
        assert_eq!(read_regular(&file).unwrap(), "ünï");
        std::fs::write(&file, [0xff]).unwrap();
        assert!(refused(read_regular(&file)).contains("UTF-8"));
    }
}
