//! Departures, as CSV or as a capture.

use std::borrow::Cow;
use std::io::{self, Write};

use anyhow::{Context, Result};
use pcap_file::pcap::{PcapHeader, PcapWriter, RawPcapPacket};
use pcap_file::{PcapError, TsResolution};

/// A packet that has left; times in nanoseconds, rounded down.
#[derive(Clone, Copy, Debug)]
pub struct Departure<'a> {
    /// Of its transmission.
    pub start: u64,
    /// Of its transmission.
    pub end: u64,
    /// The number of its flow, or of its class.
    pub flow: u32,
    /// In bytes, without overhead.
    pub len: u32,
    /// When it arrived.
    pub arrival: u64,
    /// The captured bytes of it.
    pub bytes: &'a [u8],
}

/// Where departures go.
pub trait Departures {
    /// Takes the next one, in the order of time.
    ///
    /// # Errors
    ///
    /// It could not be written.
    fn write(&mut self, departure: &Departure<'_>) -> Result<()>;
}

/// Nowhere: only the report is wanted.
pub struct Unwritten;

impl Departures for Unwritten {
    fn write(&mut self, _: &Departure<'_>) -> Result<()> {
        Ok(())
    }
}

/// Rows of `start_ns,end_ns,flow,len,arrival_ns`.
pub struct Rows<W> {
    output: W,
    row: Vec<u8>,
}

impl<W: Write> Rows<W> {
    /// Writes the header.
    pub fn new(mut output: W) -> Result<Self> {
        writeln!(output, "start_ns,end_ns,flow,len,arrival_ns").context(WRITING)?;
        let row = Vec::new();
        Ok(Rows { output, row })
    }
}

impl<W: Write> Departures for Rows<W> {
    fn write(&mut self, departure: &Departure<'_>) -> Result<()> {
        let (flow, len) = (departure.flow.into(), departure.len.into());
        self.row.clear();
        for number in [departure.start, departure.end, flow, len] {
            push_number(&mut self.row, number);
            self.row.push(b',');
        }
        push_number(&mut self.row, departure.arrival);
        self.row.push(b'\n');
        self.output.write_all(&self.row).context(WRITING)
    }
}

/// Appends a number in decimal: at a third of the cost of the standard library's formatting.
fn push_number(row: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20];
    let mut first = digits.len();
    loop {
        first -= 1;
        digits[first] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    row.extend_from_slice(&digits[first..]);
}

/// A capture of the link's far end: each packet bears the time of its end.
pub struct Captured<W: Write> {
    output: PcapWriter<W>,
}

impl<W: Write> Captured<W> {
    /// As the capture that `header` was read from, in nanoseconds.
    pub fn new(output: W, header: PcapHeader) -> Result<Self> {
        let header = PcapHeader {
            ts_resolution: TsResolution::NanoSecond,
            ..header
        };
        let output = PcapWriter::with_header(output, header).map_err(unwritten)?;
        Ok(Captured { output })
    }
}

impl<W: Write> Departures for Captured<W> {
    fn write(&mut self, departure: &Departure<'_>) -> Result<()> {
        let seconds = u32::try_from(departure.end / 1_000_000_000)
            .ok()
            .context("a packet leaves after 2106-02-07, the end of pcap's time range (use CSV)")?;
        let packet = RawPcapPacket {
            ts_sec: seconds,
            ts_frac: (departure.end % 1_000_000_000) as u32,
            // It was read from a field of this width.
            incl_len: departure.bytes.len() as u32,
            orig_len: departure.len,
            data: Cow::Borrowed(departure.bytes),
        };
        self.output.write_raw_packet(&packet).map_err(unwritten)?;
        Ok(())
    }
}

/// Context of every error here.
pub const WRITING: &str = "writing departures";

/// Returns the error of the writer itself, so that a broken pipe is recognized as such.
fn unwritten(error: PcapError) -> anyhow::Error {
    match error {
        PcapError::IoError(error) => anyhow::Error::new(error),
        other => anyhow::Error::new(io::Error::other(other)),
    }
    .context(WRITING)
}
