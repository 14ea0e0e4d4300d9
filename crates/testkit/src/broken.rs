//! What is wrong, and how it was found.

use std::fmt;

/// What is wrong, in a sentence.
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

/// A check that an algorithm does not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Broken {
    /// The algorithm's name.
    pub algorithm: &'static str,
    /// Which check.
    pub check: &'static str,
    /// What is wrong, in a sentence.
    pub what: String,
    /// Of the random numbers: the same seed finds it again.
    pub seed: u64,
    /// The smallest case found in which it happens.
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
