//! A file of arrivals, of either format.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use anyhow::{Context, Result, bail};

/// What an input is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Rows of CSV.
    Rows,
    /// A pcap file.
    Capture,
}

/// An input that has been looked at.
pub struct Input {
    file: File,
    /// What was read of it to know the format.
    beginning: Vec<u8>,
    /// What it is.
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
        let format = match beginning[..] {
            [0xa1, 0xb2, 0xc3, 0xd4]
            | [0xd4, 0xc3, 0xb2, 0xa1]
            | [0xa1, 0xb2, 0x3c, 0x4d]
            | [0x4d, 0x3c, 0xb2, 0xa1] => Format::Capture,
            [0x0a, 0x0d, 0x0d, 0x0a] => bail!(
                "{name}: this is a pcapng file, only pcap can be read: convert it with \
                 editcap -F nsecpcap"
            ),
            // What is called a capture and is none: it is told so, not that it lacks columns.
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

    /// All of it.
    pub fn reader(self) -> impl Read {
        io::Cursor::new(self.beginning).chain(self.file)
    }
}

/// Whether a file is called a capture.
pub fn is_capture(path: &Path) -> bool {
    let extension = path.extension();
    extension.is_some_and(|extension| extension.eq_ignore_ascii_case("pcap"))
}
