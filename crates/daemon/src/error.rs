//! Why a site cannot be run, or cannot change while it runs.

use fairlane_config::SiteError;
use fairlane_runtime::attach::ListenError;
use std::io;
use std::path::PathBuf;

use fairlane_dataplane::error as data_plane;

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

impl From<data_plane::Error> for Error {
    fn from(error: data_plane::Error) -> Error {
        match error {
            data_plane::Error::Unfit(sentence) => Error::Unfit(sentence),
            data_plane::Error::Ended => Error::Ended,
            data_plane::Error::Interface(reason) => Error::Interface(reason),
            data_plane::Error::System { doing, reason } => Error::System { doing, reason },
        }
    }
}

pub(crate) type Result<T> = std::result::Result<T, Error>;

pub(crate) fn unfit<T>(sentence: impl Into<String>) -> Result<T> {
    Err(Error::Unfit(sentence.into()))
}
