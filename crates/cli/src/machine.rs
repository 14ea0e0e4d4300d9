//! The state of the machine that the program reads.

use std::fs::{self, File};
use std::io::IsTerminal;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use fairlane_config::{Site, SiteError};
use rustix::thread::{CpuSet, sched_getaffinity};

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
                    "{} is no file: waiting for whoever writes to it",
                    path.display()
                ));
            }
        });
    }
    let site = fairlane_daemon::read(path);
    drop(read);
    site
}

/// Returns the cores that this program may run on, by the system's numbers.
///
/// # Errors
///
/// Fails if the system does not report them.
pub fn cores() -> Result<Vec<usize>> {
    let set = sched_getaffinity(None).context("asking which cores there are")?;
    Ok((0..CpuSet::MAX_CPU)
        .filter(|&core| set.is_set(core))
        .collect())
}

/// Returns two of these cores, without shared caches if possible; `None` if there is only one core.
pub(crate) fn two_cores() -> Result<Option<[usize; 2]>> {
    let cores = cores()?;
    let [first, others @ ..] = &cores[..] else {
        return Ok(None);
    };
    let path = format!("/sys/devices/system/cpu/cpu{first}/topology/thread_siblings_list");
    let siblings = numbers(&fs::read_to_string(path).unwrap_or_default());
    let apart = others.iter().find(|core| !siblings.contains(core));
    Ok(apart.or(others.first()).map(|&other| [*first, other]))
}

/// Returns the numbers of a list in the system's format, `0-1,8`. Ignores anything else in it.
fn numbers(list: &str) -> Vec<usize> {
    let parts = list.trim().split(',').filter_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<usize>().ok()?..=last.parse().ok()?)
    });
    parts.flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cores_are_read_as_the_system_writes_them() {
        assert_eq!(numbers("0-1,8\n"), [0, 1, 8]);
        assert_eq!(numbers("3"), [3]);
        assert!(numbers("").is_empty());
    }

    #[test]
    fn two_cores_are_two_of_those_that_there_are() {
        let all = cores().unwrap();
        let two = two_cores().unwrap();
        assert_eq!(two.is_some(), all.len() > 1);
        assert!(two.is_none_or(|[one, other]| one != other && all.contains(&other)));
    }
}
