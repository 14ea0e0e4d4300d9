//! Events of the interfaces.

use std::io;
use std::sync::Arc;

use crate::error::Error;

/// An event of an interface.
#[derive(Debug)]
pub enum Event {
    /// A setting of an interface is unusual or remains from a former process.
    Warning(String),
    /// An interface was deleted.
    Lost(String),
    /// An interface that was deleted is there again, and used.
    Restored(String),
    /// An interface has reappeared and cannot be used; it is tried again.
    Unusable {
        /// Its name.
        interface: String,
        /// The reason.
        error: Error,
    },
    /// Early drop is not possible at an interface. Reported once.
    NoEarlyDrop {
        /// Its name.
        interface: String,
        /// The system's error.
        reason: io::Error,
    },
}

/// Called for each event, on the thread where it happens: never the forwarding thread.
pub type Notify = Arc<dyn Fn(Event) + Send + Sync>;
