//! The wire while no daemon shapes it, for a process that watches over the daemon.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use fairlane_config::Interfaces;

use crate::bypass;
use crate::error::Result;
use crate::reload::read_regular;
use fairlane_dataplane::unshaped::Unshaped;

/// Interval of retries on an interface that cannot be used.
const AWAY: Duration = Duration::from_millis(100);

/// The wire for the times when no daemon shapes it: frames pass in order of arrival in both directions, on a separate
/// thread, from [`connect`](Self::connect) to [`disconnect`](Self::disconnect), even if interfaces are lost and
/// restored. These are open beforehand, so that nothing has to be opened when the daemon has died. They are not held
/// against other programs, and their settings are not changed.
pub struct Standby {
    interfaces: Interfaces,
    /// While frames do not pass by it.
    unshaped: Option<Unshaped>,
    connected: Option<Connected>,
}

struct Connected {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Option<Unshaped>>,
}

impl Standby {
    /// Opens both interfaces and prepares to connect them.
    ///
    /// # Errors
    ///
    /// The site is not between two interfaces: a tap device goes with the daemon. An interface cannot be
    /// used, or the kernel [passes packets](crate::bypasses) between both.
    pub fn open(interfaces: Interfaces) -> Result<Standby> {
        bypass::refuse(&interfaces)?;
        let unshaped = Unshaped::open(&interfaces)?;
        Ok(Standby {
            interfaces,
            unshaped: Some(unshaped),
            connected: None,
        })
    }

    /// Starts forwarding.
    pub fn connect(&mut self) {
        if self.connected.is_some() {
            return;
        }
        let stop = Arc::new(AtomicBool::new(false));
        let (unshaped, interfaces) = (self.unshaped.take(), self.interfaces.clone());
        let is_over = Arc::clone(&stop);
        let thread = thread::Builder::new().name("unshaped".to_owned());
        let thread = thread.spawn(move || pass(unshaped, &interfaces, &is_over));
        self.connected = thread.ok().map(|thread| Connected { stop, thread });
    }

    /// Stops forwarding. Returns whether any frame was forwarded.
    pub fn disconnect(&mut self) -> bool {
        let Some(Connected { stop, thread }) = self.connected.take() else {
            return false;
        };
        stop.store(true, Ordering::Relaxed);
        self.unshaped = thread.join().ok().flatten();
        true
    }

    /// Prepares for the next time, with the interfaces that the file names by then, if it is a regular file. Takes as
    /// long as the system needs to release the former ones.
    pub fn rest(&mut self, file: &Path) {
        if let Some(interfaces) = read_regular(file).ok().and_then(|site| site.interfaces) {
            self.interfaces = interfaces;
        }
        self.unshaped = None;
        self.unshaped = Unshaped::open(&self.interfaces).ok();
    }
}

/// Forwards frames between the interfaces until it is stopped, even if they are lost and restored.
fn pass(
    mut unshaped: Option<Unshaped>,
    interfaces: &Interfaces,
    is_over: &AtomicBool,
) -> Option<Unshaped> {
    while !is_over.load(Ordering::Relaxed) {
        match unshaped.take().or_else(|| Unshaped::open(interfaces).ok()) {
            Some(mut open) => {
                if open.run(is_over).is_ok() {
                    return Some(open);
                }
            }
            None => thread::sleep(AWAY),
        }
    }
    unshaped
}
