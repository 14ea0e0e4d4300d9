//! A cache line of one's own.

/// Keeps `T` apart from neighbouring data: two lines, since processors may fetch them in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Line<T>(pub T);
