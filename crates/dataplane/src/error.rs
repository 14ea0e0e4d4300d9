//! Why the data plane cannot be opened or changed.

use std::fmt::Display;
use std::io;

/// Why the data plane cannot be opened or changed: one sentence.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration is valid, but cannot run on this machine.
    #[error("{0}")]
    Unfit(String),
    /// The run has ended.
    #[error("the site does not run any more")]
    Ended,
    /// An interface cannot be used; the sentence names it.
    #[error(transparent)]
    Interface(#[from] io::Error),
    /// The system denies a resource other than an interface.
    #[error("{doing}: {reason}")]
    System {
        /// The operation that failed.
        doing: String,
        /// The system's error.
        reason: io::Error,
    },
}

pub type Result<T> = std::result::Result<T, Error>;

pub fn unfit<T>(sentence: impl Into<String>) -> Result<T> {
    Err(Error::Unfit(sentence.into()))
}

/// Adds the failed operation to a system error.
pub trait Context<T> {
    fn doing(self, what: impl Display) -> Result<T>;
}

impl<T, E: Into<io::Error>> Context<T> for std::result::Result<T, E> {
    fn doing(self, what: impl Display) -> Result<T> {
        self.map_err(|error| Error::System {
            doing: what.to_string(),
            reason: error.into(),
        })
    }
}
