//! Why there is no network to work in.

use std::io;

/// The error, as a message.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The process may not make network namespaces.
    #[error(
        "making a network namespace needs root's privileges CAP_SYS_ADMIN and CAP_NET_ADMIN: {0}"
    )]
    NotPermitted(#[source] io::Error),
    /// The kernel was built without a needed feature.
    #[error("this kernel cannot {attempt}: {source}")]
    NotSupported {
        /// The attempted operation: "make a ..".
        attempt: String,
        /// The system's reason.
        source: io::Error,
    },
    /// A program that makes traffic is not there.
    #[error(
        "{program} is not installed: it is in Debian's package {}",
        package(program)
    )]
    Missing {
        /// Its name.
        program: String,
    },
    /// Anything else.
    #[error("cannot {attempt}: {source}")]
    Failed {
        /// The attempted operation: "set the link .. up".
        attempt: String,
        /// The system's reason.
        source: io::Error,
    },
}

/// Returns the Debian package of a program; most have its name.
fn package(program: &str) -> &str {
    match program {
        "tc" => "iproute2",
        _ => program,
    }
}

impl LabError {
    pub(crate) fn new(attempt: impl Into<String>, source: io::Error) -> Self {
        let attempt = attempt.into();
        match source.kind() {
            io::ErrorKind::PermissionDenied => Self::NotPermitted(source),
            io::ErrorKind::Unsupported => Self::NotSupported { attempt, source },
            _ => Self::Failed { attempt, source },
        }
    }

    /// Returns whether this machine, or this user, cannot have such a network at all: no fault of
    /// the caller's, and no trial will succeed.
    pub fn is_not_to_be_had(&self) -> bool {
        !matches!(self, Self::Failed { .. })
    }
}
