//! Fields whose values have names.

use core::fmt;

/// Writes the first of these names that is the value's, or else its number.
pub(crate) fn write_name<T: PartialEq>(
    f: &mut fmt::Formatter<'_>,
    names: &[(&str, T)],
    value: T,
    number: u8,
) -> fmt::Result {
    match names.iter().find(|(_, known)| *known == value) {
        Some((name, _)) => f.write_str(name),
        None => write!(f, "{number}"),
    }
}

/// Returns the value of a name, ignoring case.
pub(crate) fn named<T: Copy>(names: &[(&str, T)], text: &str) -> Option<T> {
    let mut names = names.iter();
    let found = names.find(|(name, _)| name.eq_ignore_ascii_case(text));
    found.map(|&(_, value)| value)
}
