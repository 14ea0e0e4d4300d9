//! An output file that appears complete or not at all.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use tempfile::NamedTempFile;

use crate::{interrupt, output};

/// The temporary file, removed if the program is interrupted.
type Unfinished = Arc<Mutex<Option<NamedTempFile>>>;

/// A file that is written under a temporary name in the same directory, and renamed at the end. If it is dropped before
/// that, or interrupted, no file is left.
///
/// Anything other than a regular file, such as a pipe, is written directly.
pub(super) struct OutFile {
    /// The path, with links resolved: renaming would replace a link.
    target: PathBuf,
    shown: String,
    unfinished: Unfinished,
}

impl OutFile {
    /// Creates the file for `path`, and returns it with a handle for writing.
    pub(super) fn create(path: &Path) -> Result<(OutFile, File)> {
        let shown = path.display().to_string();
        let creating = || format!("creating {shown}");
        let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let existing = fs::metadata(&target).ok();
        let unfinished = Unfinished::default();
        let file = match &existing {
            Some(there) if there.is_dir() => {
                return Err(io::Error::from(io::ErrorKind::IsADirectory)).with_context(creating);
            }
            Some(there) if !there.is_file() => OpenOptions::new()
                .write(true)
                .open(&target)
                .with_context(creating)?,
            _ => {
                let directory = match target.parent() {
                    Some(parent) if !parent.as_os_str().is_empty() => parent,
                    _ => Path::new("."),
                };
                remove_on_signal(&unfinished, &shown).with_context(creating)?;
                let mode = match existing {
                    Some(there) => there.permissions().mode(),
                    None => NEW_FILE_MODE,
                };
                // Locked, so that a signal handler finds a complete entry.
                let mut slot = lock(&unfinished);
                // The system's error code, which the library does not return.
                let mut failed = None;
                let open = |part: &Path| {
                    let mut options = OpenOptions::new();
                    let opened = options.write(true).create_new(true).mode(mode).open(part);
                    opened.inspect_err(|error| failed = error.raw_os_error())
                };
                let mut builder = tempfile::Builder::new();
                let made = builder.prefix(".fairlane-").suffix(".part");
                let made = made.make_in(directory, open);
                let temporary = made.map_err(|error| match failed {
                    Some(code) => io::Error::from_raw_os_error(code),
                    None => error.kind().into(),
                });
                let temporary = temporary.with_context(creating)?;
                let file = temporary.as_file().try_clone().with_context(creating)?;
                *slot = Some(temporary);
                file
            }
        };
        let outfile = OutFile {
            target,
            shown,
            unfinished,
        };
        Ok((outfile, file))
    }

    /// Renames the complete file to its final name.
    pub(super) fn finish(self) -> Result<()> {
        // Locked until the rename is done, so that a signal is handled before or after.
        let mut slot = lock(&self.unfinished);
        if let Some(temporary) = slot.take() {
            temporary
                .persist(&self.target)
                .map_err(|error| error.error)
                .with_context(|| format!("creating {}", self.shown))?;
        }
        Ok(())
    }
}

impl Drop for OutFile {
    fn drop(&mut self) {
        lock(&self.unfinished).take();
    }
}

fn lock(unfinished: &Unfinished) -> MutexGuard<'_, Option<NamedTempFile>> {
    unfinished.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes the file and ends the program on a signal such as Ctrl-C, even while the program waits for its input.
fn remove_on_signal(unfinished: &Unfinished, shown: &str) -> io::Result<()> {
    let unfinished = Arc::clone(unfinished);
    let shown = shown.to_owned();
    interrupt::answer(move || {
        let mut slot = lock(&unfinished);
        if slot.take().is_some() {
            output::aside(format_args!("interrupted, {shown} is unchanged"));
        }
        std::process::exit(130)
    })
}

/// The default of other programs; the user's mask applies.
const NEW_FILE_MODE: u32 = 0o666;
