//! The state of the machine that the program reads.

use std::fs::{self, File};
use std::io::IsTerminal;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use fairlane_config::{Site, SiteError};

use crate::output;

/// Time before the program prints that it waits for input.
const PATIENCE: Duration = Duration::from_secs(1);

/// Reads the file of a site whose interfaces are this machine's, as far as they exist.
///
/// A pipe or a terminal may block until there is input; a message says so once.
pub(crate) fn read_site(path: &Path) -> Result<Site, SiteError> {
    let waits = fs::metadata(path).is_ok_and(|what| {
        let is_device = what.file_type().is_char_device();
        what.file_type().is_fifo()
            || (is_device && File::open(path).is_ok_and(|device| device.is_terminal()))
    });
    let (read, is_read) = mpsc::channel::<()>();
    if waits {
        let path = path.to_owned();
        // The thread ends with the program, or when the text has been read.
        thread::spawn(move || {
            if is_read.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                output::aside(format_args!(
                    "{} is not a regular file: waiting for its writer",
                    path.display()
                ));
            }
        });
    }
    let site = fairlane_daemon::read(path);
    drop(read);
    site
}
