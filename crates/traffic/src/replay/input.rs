//! A file of arrivals, of either format.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use anyhow::{Context, Result};

use super::records::PCAPNG;

/// The format of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Rows of CSV.
    Rows,
    /// A pcap or pcapng file.
    Capture,
}

/// An input that has been looked at.
pub struct Input {
    file: File,
    /// The bytes read to detect the format.
    beginning: Vec<u8>,
    /// The detected format.
    pub format: Format,
    /// Its size, where that is known.
    pub bytes: Option<u64>,
}

impl Input {
    /// Opens a file and looks at its first bytes.
    ///
    /// # Errors
    ///
    /// It cannot be read, or is in a format that cannot be.
    pub fn open(path: &Path) -> Result<Input> {
        let name = path.display();
        let file = File::open(path).with_context(|| format!("opening {name}"))?;
        let metadata = file.metadata().with_context(|| format!("opening {name}"))?;
        let mut beginning = Vec::new();
        (&file)
            .take(4)
            .read_to_end(&mut beginning)
            .with_context(|| format!("reading {name}"))?;
        let format = match &beginning[..] {
            [0xa1, 0xb2, 0xc3, 0xd4]
            | [0xd4, 0xc3, 0xb2, 0xa1]
            | [0xa1, 0xb2, 0x3c, 0x4d]
            | [0x4d, 0x3c, 0xb2, 0xa1]
            | PCAPNG => Format::Capture,
            // A file named as a capture that is none gets an error that says so, instead of one about missing columns.
            _ if is_capture(path) => Format::Capture,
            _ => Format::Rows,
        };
        Ok(Input {
            file,
            beginning,
            format,
            bytes: metadata.is_file().then_some(metadata.len()),
        })
    }

    /// Returns a reader from the current position: of the whole input, the first time and after
    /// [`rewind`](Self::rewind).
    pub fn reader(&self) -> impl Read {
        (&self.beginning[..]).chain(&self.file)
    }

    /// Makes it an input that can be read more than once: copies one that is no plain file, as a pipe, into
    /// the empty file that `spare` makes.
    ///
    /// # Errors
    ///
    /// It cannot be read, or the copy cannot be made.
    pub fn rereadable(mut self, spare: impl FnOnce() -> io::Result<File>) -> Result<Input> {
        if self.bytes.is_none() {
            let copying = "copying the input, which is read twice, to a temporary file";
            let mut copy = spare().context(copying)?;
            let copied = io::copy(&mut self.reader(), &mut copy);
            self.bytes = Some(copied.context(copying)?);
            self.file = copy;
            self.rewind()?;
        }
        Ok(self)
    }

    /// Makes it be read from its beginning again. Only a [rereadable](Self::rereadable) input can.
    ///
    /// # Errors
    ///
    /// The system cannot.
    pub fn rewind(&self) -> Result<()> {
        let start = SeekFrom::Start(self.beginning.len() as u64);
        (&self.file).seek(start).context("rereading the input")?;
        Ok(())
    }
}

/// Whether a file has the name of a capture.
pub fn is_capture(path: &Path) -> bool {
    let extension = path.extension();
    extension.is_some_and(|extension| extension.eq_ignore_ascii_case("pcap"))
}
