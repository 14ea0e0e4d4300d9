//! What a running site tells beside its reports.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fairlane_runtime::attach::Refusals;

use crate::error::Error;

/// What happened, for whoever keeps a log; displayed, it is one line.
#[derive(Debug)]
#[non_exhaustive]
pub enum Notice {
    /// Something is allowed and hardly meant.
    Warning(String),
    /// An interface was deleted. What is to leave by it is dropped until there is one of that name.
    Gone(String),
    /// An interface that was deleted is there again, and used.
    Back(String),
    /// An interface is there again and cannot be used; it is tried again.
    Unusable {
        /// Its name.
        interface: String,
        /// Why.
        error: Error,
    },
    /// An interface was let go of, as was asked for. What is to leave by it is dropped until one is
    /// attached in its place.
    Detached(String),
    /// An interface was attached, as was asked for.
    Attached(String),
    /// Nothing can be dropped early at an interface. Told once.
    NoEarlyDrop {
        /// Its name.
        interface: String,
        /// What the system says.
        reason: io::Error,
    },
    /// Processes were refused to attach: one notice a report, however many they are.
    NotAttached(Refusals),
    /// A configuration has taken over; the file that it was read from, if it was.
    Reloaded(Option<PathBuf>),
    /// A configuration cannot take over. The running one is kept.
    ReloadRefused(Error),
    /// Another process forwards from now on.
    HandedOver {
        /// Which.
        to: u32,
        /// The frames that waited.
        frames: u64,
    },
    /// This process forwards from now on what another one did.
    TookOver {
        /// Which.
        from: u32,
        /// How long neither of both made a round.
        stood: Duration,
    },
    /// Another process was to take over and has not: this one goes on.
    NotHandedOver(u32),
}

impl Notice {
    /// A word for all events of its kind.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Notice::Warning(_) => "warning",
            Notice::Gone(_) => "gone",
            Notice::Back(_) => "back",
            Notice::Detached(_) => "detached",
            Notice::Attached(_) => "attached",
            Notice::Unusable { .. } => "unusable",
            Notice::NoEarlyDrop { .. } => "no early drop",
            Notice::NotAttached(_) => "not attached",
            Notice::Reloaded(_) => "reloaded",
            Notice::ReloadRefused(_) => "reload refused",
            Notice::HandedOver { .. } => "handed over",
            Notice::TookOver { .. } => "took over",
            Notice::NotHandedOver(_) => "not handed over",
        }
    }

    /// Whether something is not as it should be.
    #[must_use]
    pub fn is_trouble(&self) -> bool {
        !matches!(
            self,
            Notice::Back(_)
                | Notice::Detached(_)
                | Notice::Attached(_)
                | Notice::Reloaded(_)
                | Notice::HandedOver { .. }
                | Notice::TookOver { .. }
        )
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::Warning(text) => write!(f, "warning: {text}"),
            Notice::Gone(name) => write!(
                f,
                "{name} is gone: what is to leave by it is dropped until it is back"
            ),
            Notice::Back(name) => write!(f, "{name} is back"),
            Notice::Detached(name) => write!(
                f,
                "{name} was detached: what is to leave by it is dropped until one is attached"
            ),
            Notice::Attached(name) => write!(f, "{name} was attached"),
            Notice::Unusable { interface, error } => {
                write!(f, "{interface} is back and cannot be used: {error}")
            }
            Notice::NoEarlyDrop { interface, reason } => write!(
                f,
                "{interface}: nothing can be dropped early under overload, all else works: {reason}"
            ),
            Notice::NotAttached(refusals) => refusals.fmt(f),
            Notice::Reloaded(Some(path)) => {
                write!(f, "{} was read again and taken over", path.display())
            }
            Notice::Reloaded(None) => write!(f, "another configuration was taken over"),
            Notice::ReloadRefused(error) => {
                write!(f, "reload refused, running configuration kept: {error}")
            }
            Notice::HandedOver { to, frames } => {
                write!(
                    f,
                    "process {to} has taken over, with {frames} frames that waited"
                )
            }
            Notice::TookOver { from, stood } => write!(
                f,
                "took over from process {from}: frames stood still for {} us",
                stood.as_micros()
            ),
            Notice::NotHandedOver(to) => {
                write!(f, "process {to} has not taken over: this one goes on")
            }
        }
    }
}

/// Hears of each event, on the thread that it happens on: never the one that forwards.
pub(crate) type Notify = Arc<dyn Fn(Notice) + Send + Sync>;
