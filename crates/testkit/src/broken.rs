//! Failures of checks and their reproduction.

use std::fmt;

/// The outcome of a check; an error is a sentence.
pub type Sentence = Result<(), String>;

/// Returns a sentence from the surrounding function unless the condition holds.
macro_rules! demand {
    ($holds:expr, $($what:tt)+) => {
        let holds: bool = $holds;
        if !holds {
            return Err(format!($($what)+));
        }
    };
}
pub(crate) use demand;

/// A failed check of an algorithm.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Broken {
    /// The algorithm's name.
    pub algorithm: &'static str,
    /// The name of the check.
    pub check: &'static str,
    /// The defect, in a sentence.
    pub what: String,
    /// Seed of the random numbers, which reproduces it.
    pub seed: u64,
    /// The smallest case found that fails.
    pub smallest: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {}\ncheck '{}', seed {}, smallest case found:\n{}",
            self.algorithm, self.what, self.check, self.seed, self.smallest
        )
    }
}

impl std::error::Error for Broken {}
