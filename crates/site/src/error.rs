//! Why a site cannot be run, or cannot change while it runs.

use std::fmt::Display;
use std::io;
use std::path::PathBuf;

use fairlane_config::SiteError;
use fairlane_runtime::attach::ListenError;

/// Why a site cannot be run, or cannot change while it runs: one sentence.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read, or is not valid.
    #[error(transparent)]
    Site(#[from] SiteError),
    /// The configuration is valid, but cannot be run here, or cannot be applied without a restart.
    #[error("{0}")]
    Unfit(String),
    /// No object of a given name exists; the message names it, and those that exist.
    #[error("{0}")]
    Missing(String),
    /// It cannot be done as things are now.
    #[error("{0}")]
    Conflict(String),
    /// It was made from a configuration that runs no longer.
    #[error("the configuration has changed meanwhile: look again, and change what runs now")]
    Outdated,
    /// The file lacks changes of the running site, which would be lost.
    #[error(
        "{}: a reload would discard {} (save {2} first: fairlane ctl save, or reload with --discard)",
        .file.display(),
        unsaved(*.changes),
        if *.changes == 1 { "it" } else { "them" }
    )]
    Unsaved {
        /// The file.
        file: PathBuf,
        /// Number of such changes.
        changes: u64,
    },
    /// The run has ended.
    #[error("the site does not run any more")]
    Ended,
    /// An interface cannot be used; the sentence names it.
    #[error(transparent)]
    Interface(#[from] io::Error),
    /// Processes cannot attach.
    #[error(transparent)]
    Attach(#[from] ListenError),
    /// The system denies a resource other than an interface.
    #[error("{doing}: {reason}")]
    System {
        /// The operation that failed.
        doing: String,
        /// The system's error.
        reason: io::Error,
    },
}

/// `3 changes that are not in the file`.
fn unsaved(changes: u64) -> String {
    match changes {
        1 => "1 change that is not in the file".to_owned(),
        many => format!("{many} changes that are not in the file"),
    }
}

pub(crate) type Result<T> = std::result::Result<T, Error>;

pub(crate) fn unfit<T>(sentence: impl Into<String>) -> Result<T> {
    Err(Error::Unfit(sentence.into()))
}

/// Adds the failed operation to a system error.
pub(crate) trait Doing<T> {
    fn doing(self, what: impl Display) -> Result<T>;
}

impl<T, E: Into<io::Error>> Doing<T> for std::result::Result<T, E> {
    fn doing(self, what: impl Display) -> Result<T> {
        self.map_err(|error| Error::System {
            doing: what.to_string(),
            reason: error.into(),
        })
    }
}
