//! The records of a capture file, pcap or pcapng.

use std::io::{Chain, Cursor, ErrorKind, Read};

use anyhow::{Context, Result, anyhow, ensure};
use pcap_file::pcap::{PcapHeader, PcapReader};
use pcap_file::pcapng::PcapNgReader;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::blocks::{ENHANCED_PACKET_BLOCK, PACKET_BLOCK, SIMPLE_PACKET_BLOCK};
use pcap_file::{DataLink, Endianness, PcapError, TsResolution};

use super::framing::Framing;

/// The first bytes of a pcapng file.
pub(super) const PCAPNG: &[u8] = &[0x0a, 0x0d, 0x0d, 0x0a];

const SECOND: u64 = 1_000_000_000;

/// A packet as stored in the file.
pub(super) struct Record {
    /// In nanoseconds.
    pub(super) time: u64,
    /// Bytes on the wire.
    pub(super) len: u32,
    /// Those that were captured.
    pub(super) bytes: Vec<u8>,
    pub(super) link: DataLink,
    pub(super) framing: Framing,
}

/// The file, its first bytes read already.
type Source<R> = Chain<Cursor<Vec<u8>>, R>;

enum Reader<R: Read> {
    Pcap(PcapReader<Source<R>>, Framing),
    PcapNg(PcapNgReader<Source<R>>),
}

/// The records of a file, one after another.
pub(super) struct Records<R: Read> {
    reader: Reader<R>,
    name: String,
    /// Records that were read.
    read: u64,
    /// One that was read ahead.
    ahead: Option<Record>,
    header: PcapHeader,
}

impl<R: Read> Records<R> {
    /// Reads the header of the file, which errors call `name`.
    pub(super) fn new(mut input: R, name: String) -> Result<Self> {
        let mut beginning = Vec::new();
        let four = input.by_ref().take(4).read_to_end(&mut beginning);
        four.with_context(|| format!("reading {name}"))?;
        let is_pcapng = beginning == PCAPNG;
        let source = Cursor::new(beginning).chain(input);
        let (reader, header) = match is_pcapng {
            true => {
                let reader = PcapNgReader::new(source);
                let reader = reader.map_err(|error| broken(&name, "the file header", error))?;
                (Reader::PcapNg(reader), PcapHeader::default())
            }
            false => {
                let reader = pcap(source, &name)?;
                let header = reader.header();
                let framing = framing(header.datalink).with_context(|| name.clone())?;
                (Reader::Pcap(reader, framing), header)
            }
        };
        let mut records = Records {
            reader,
            name,
            read: 0,
            ahead: None,
            header,
        };
        if is_pcapng {
            // The file has no link type except those of the packets.
            records.ahead = records.next()?;
            records.read = 0;
            let first = records.ahead.as_ref();
            records.header.datalink = first.map_or(DataLink::ETHERNET, |first| first.link);
        }
        Ok(records)
    }

    /// Returns the header of a pcap file with these packets.
    pub(super) fn header(&self) -> PcapHeader {
        self.header
    }

    /// Returns the number of the record that was read last, from 1.
    pub(super) fn number(&self) -> u64 {
        self.read
    }

    /// Returns the position of a record, for errors.
    pub(super) fn place_of(&self, number: u64) -> String {
        format!("{}: packet {number}", self.name)
    }

    /// Returns the next one in the file, checked; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Record>> {
        let number = self.read + 1;
        if let Some(ahead) = self.ahead.take() {
            self.read = number;
            return Ok(Some(ahead));
        }
        let record = match &mut self.reader {
            Reader::Pcap(reader, framing) => next_in_pcap(reader, *framing),
            Reader::PcapNg(reader) => next_in_pcapng(reader),
        };
        let record = record.map_err(|error| match error {
            Wrong::File(error) => broken(&self.name, &format!("packet {number}"), error),
            Wrong::Packet(sentence) => anyhow!("{}: {sentence}", self.place_of(number)),
        })?;
        let Some(record) = record else {
            return Ok(None);
        };
        let (captured, len) = (record.bytes.len(), record.len);
        ensure!(
            captured as u64 <= u64::from(len),
            "{}: {captured} bytes of a packet of {len} were captured, there cannot be more than it has",
            self.place_of(number)
        );
        self.read = number;
        Ok(Some(record))
    }
}

/// Why a packet cannot be read.
enum Wrong {
    File(PcapError),
    Packet(String),
}

impl From<PcapError> for Wrong {
    fn from(error: PcapError) -> Wrong {
        Wrong::File(error)
    }
}

fn framing(link: DataLink) -> Result<Framing> {
    Framing::of(link).with_context(|| {
        let link = u32::from(link);
        format!("link type {link} cannot be read, {} can", Framing::ALL)
    })
}

fn pcap<R: Read>(source: R, name: &str) -> Result<PcapReader<R>> {
    let reader = PcapReader::new(source).map_err(|error| match error {
        PcapError::InvalidField(_) => anyhow!("{name}: this is not a pcap or pcapng file"),
        other => broken(name, "the file header", other),
    })?;
    let header = reader.header();
    ensure!(
        header.version_major == 2,
        "{name}: pcap version {}.{} is not 2.4",
        header.version_major,
        header.version_minor
    );
    Ok(reader)
}

fn next_in_pcap<R: Read>(
    reader: &mut PcapReader<R>,
    framing: Framing,
) -> Result<Option<Record>, Wrong> {
    let header = reader.header();
    // Raw, as the checked form refuses packets that were captured in part.
    let Some(raw) = reader.next_raw_packet().transpose()? else {
        return Ok(None);
    };
    let units = match header.ts_resolution {
        TsResolution::MicroSecond => 1_000_000,
        TsResolution::NanoSecond => SECOND,
    };
    let (seconds, part) = (u64::from(raw.ts_sec), u64::from(raw.ts_frac));
    if part >= units {
        let most = units - 1;
        return Err(Wrong::Packet(format!(
            "{part} is more than the {most} parts of its second can be"
        )));
    }
    Ok(Some(Record {
        time: seconds * SECOND + part * (SECOND / units),
        len: raw.orig_len,
        bytes: raw.data.into_owned(),
        link: header.datalink,
        framing,
    }))
}

/// Blocks that hold no packet are passed over.
fn next_in_pcapng<R: Read>(reader: &mut PcapNgReader<R>) -> Result<Option<Record>, Wrong> {
    let wrong = |sentence: &str| Wrong::Packet(sentence.to_owned());
    loop {
        let endianness = reader.section().endianness;
        // Raw, as the library takes every time for one in nanoseconds.
        let Some(block) = reader.next_raw_block().transpose()? else {
            return Ok(None);
        };
        let kind = block.type_;
        match kind {
            ENHANCED_PACKET_BLOCK | PACKET_BLOCK => {}
            SIMPLE_PACKET_BLOCK => {
                return Err(wrong(
                    "a simple packet block has no time (an enhanced packet block has one)",
                ));
            }
            _ => continue,
        }
        // Both kinds have the same fields but for the first, which is shorter in the older one.
        let mut bytes = block.body.into_owned();
        let header = bytes.first_chunk::<20>();
        let header = *header.ok_or_else(|| wrong("its block is too short for a packet"))?;
        let field = |at: usize| {
            let field = [header[at], header[at + 1], header[at + 2], header[at + 3]];
            match endianness {
                Endianness::Big => u32::from_be_bytes(field),
                Endianness::Little => u32::from_le_bytes(field),
            }
        };
        let interface = match (kind, endianness) {
            (ENHANCED_PACKET_BLOCK, _) => field(0),
            (_, Endianness::Big) => field(0) >> 16,
            (_, Endianness::Little) => field(0) & 0xffff,
        };
        let captured = field(12) as usize;
        bytes.drain(..header.len());
        if captured > bytes.len() {
            return Err(wrong("its block is shorter than its captured bytes"));
        }
        bytes.truncate(captured);
        let described = reader.interfaces().get(interface as usize);
        let described = described.ok_or_else(|| {
            Wrong::Packet(format!(
                "no block before it describes interface {interface}"
            ))
        })?;
        let units = u64::from(field(4)) << 32 | u64::from(field(8));
        let time = nanos(described, units);
        let time = time.ok_or_else(|| wrong("its time is not within 584 years of 1970"))?;
        let framing = framing(described.linktype);
        return Ok(Some(Record {
            time,
            len: field(16),
            bytes,
            link: described.linktype,
            framing: framing.map_err(|error| Wrong::Packet(error.to_string()))?,
        }));
    }
}

/// Converts a time in an interface's units to nanoseconds, rounded down.
fn nanos(interface: &InterfaceDescriptionBlock<'_>, units: u64) -> Option<u64> {
    let (mut a_second, mut offset) = (1_000_000_u128, 0);
    for option in &interface.options {
        match *option {
            InterfaceDescriptionOption::IfTsResol(power) if power & 0x80 != 0 => {
                a_second = 1 << (power & 0x7f);
            }
            InterfaceDescriptionOption::IfTsResol(power) => {
                a_second = 10_u128.checked_pow(power.into())?;
            }
            // Two's complement.
            InterfaceDescriptionOption::IfTsOffset(seconds) => offset = seconds as i64,
            _ => {}
        }
    }
    let since = u128::from(units) * u128::from(SECOND) / a_second;
    let offset = i128::from(offset) * i128::from(SECOND);
    u64::try_from(i128::try_from(since).ok()? + offset).ok()
}

/// Returns the error of reading `what`.
fn broken(name: &str, what: &str, error: PcapError) -> anyhow::Error {
    match error {
        PcapError::IoError(error) if error.kind() == ErrorKind::UnexpectedEof => {
            anyhow!("{name}: {what} is cut off, the file ends before it does")
        }
        PcapError::IoError(error) => anyhow::Error::new(error).context(format!("reading {name}")),
        other => anyhow!("{name}: {what}: {other}"),
    }
}
