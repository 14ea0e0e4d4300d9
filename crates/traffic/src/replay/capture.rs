//! Arrivals from a pcap file.

use std::io::{ErrorKind, Read};

use anyhow::{Context, Result, anyhow, ensure};
use fairlane_classify::Layer;
use pcap_file::pcap::{PcapHeader, PcapReader};
use pcap_file::{DataLink, PcapError, TsResolution};

use super::in_order::{Disorder, InOrder, Late};

/// A packet of a capture.
pub(super) struct Packet {
    /// In nanoseconds, never before that of the packet before.
    pub(super) time: u64,
    /// Bytes on the wire.
    pub(super) len: u32,
    /// Those that were captured.
    pub(super) bytes: Vec<u8>,
    /// Its place in the file, from 1.
    number: u64,
}

/// The packets of a capture, one after another.
pub struct Packets<R: Read> {
    reader: PcapReader<R>,
    name: String,
    framing: Framing,
    /// Packets that were read.
    read: u64,
    /// The number of the last one that was given.
    given: u64,
    order: InOrder<Packet>,
}

impl<R: Read> Packets<R> {
    /// Reads the header of the file, which errors call `name`.
    ///
    /// # Errors
    ///
    /// It is no capture, or of a kind that cannot be read.
    pub fn new(input: R, name: String) -> Result<Self> {
        let reader = PcapReader::new(input).map_err(|error| match error {
            PcapError::InvalidField(_) => anyhow!("{name}: this is not a pcap file"),
            other => broken(&name, "the file header", other),
        })?;
        let header = reader.header();
        ensure!(
            header.version_major == 2,
            "{name}: pcap version {}.{} is not 2.4",
            header.version_major,
            header.version_minor
        );
        let framing = Framing::of(header.datalink).with_context(|| {
            let link = u32::from(header.datalink);
            format!(
                "{name}: link type {link} cannot be read, {} can",
                Framing::ALL
            )
        })?;
        Ok(Packets {
            reader,
            name,
            framing,
            read: 0,
            given: 0,
            order: InOrder::new(),
        })
    }

    /// The file's header.
    pub fn header(&self) -> PcapHeader {
        self.reader.header()
    }

    /// What precedes the IP header.
    pub fn framing(&self) -> Framing {
        self.framing
    }

    /// What was put in order.
    pub fn disorder(&self) -> Disorder {
        self.order.disorder
    }

    /// The next one, checked; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Packet>> {
        loop {
            if let Some(packet) = self.order.pop() {
                self.given = packet.number;
                return Ok(Some(packet));
            }
            if self.order.is_over() {
                return Ok(None);
            }
            match self.read()? {
                Some(packet) => {
                    let time = packet.time;
                    self.order.push(time, packet).map_err(|Late(latest)| {
                        anyhow!(
                            "{}: its time {} is before the {} of a packet before: packets are in \
                             order of time, and put in order where they are up to 1 ms early",
                            self.place_of(self.read),
                            Seconds(time),
                            Seconds(latest)
                        )
                    })?;
                }
                None => self.order.end(),
            }
        }
    }

    /// The next one in the file.
    fn read(&mut self) -> Result<Option<Packet>> {
        let resolution = self.reader.header().ts_resolution;
        // Raw, as the checked form refuses packets that were captured in part.
        let raw = match self.reader.next_raw_packet() {
            None => return Ok(None),
            Some(Ok(raw)) => raw,
            Some(Err(error)) => {
                let what = format!("packet {}", self.read + 1);
                return Err(broken(&self.name, &what, error));
            }
        };
        self.read += 1;
        let (name, number) = (&self.name, self.read);
        let place = || format!("{name}: packet {number}");
        let (unit, units) = match resolution {
            TsResolution::MicroSecond => (1_000, 1_000_000),
            TsResolution::NanoSecond => (1, 1_000_000_000),
        };
        ensure!(
            raw.ts_frac < units,
            "{}: {} is more than the {} parts of its second can be",
            place(),
            raw.ts_frac,
            units - 1
        );
        ensure!(
            raw.incl_len <= raw.orig_len,
            "{}: {} bytes of a packet of {} were captured, there cannot be more than it has",
            place(),
            raw.incl_len,
            raw.orig_len
        );
        let time = u64::from(raw.ts_sec) * 1_000_000_000 + u64::from(raw.ts_frac) * unit;
        Ok(Some(Packet {
            time,
            len: raw.orig_len,
            bytes: raw.data.into_owned(),
            number,
        }))
    }

    /// Where the last one stands, as errors say it.
    pub fn place(&self) -> String {
        self.place_of(self.given)
    }

    fn place_of(&self, number: u64) -> String {
        format!("{}: packet {number}", self.name)
    }
}

/// What filters and flows look at in a packet.
#[derive(Default)]
pub(super) struct View {
    /// The packet, where that is not as it was captured.
    scratch: Vec<u8>,
}

impl View {
    /// Its bytes from where headers begin, of which layer that is, and where in the packet the
    /// headers are that can be marked, if anywhere.
    pub(super) fn of<'a>(
        &'a mut self,
        framing: Framing,
        packet: &'a Packet,
    ) -> (&'a [u8], Layer, Option<(Layer, usize)>) {
        let captured = &packet.bytes[..];
        self.scratch.clear();
        let (layer, start, headers) = match framing.layer(captured) {
            Ok((layer, start)) => (layer, start, Some((layer, start))),
            Err(ether_type) => {
                self.scratch.extend([0; 12]);
                self.scratch.extend(ether_type.to_be_bytes());
                (Layer::Ethernet, captured.len(), None)
            }
        };
        let seen = captured.get(start..).unwrap_or_default();
        let missing = packet.len as usize - captured.len();
        if missing == 0 && headers.is_some() {
            return (seen, layer, headers);
        }
        // What was not captured was there when it was sent; all headers come first.
        self.scratch.extend(seen);
        let whole = self.scratch.len() + missing.min(usize::from(u16::MAX));
        self.scratch.resize(whole, 0);
        (&self.scratch, layer, headers)
    }
}

/// What precedes the IP header.
#[derive(Clone, Copy, Debug)]
pub enum Framing {
    Ethernet,
    /// IP at once.
    Raw,
    /// Four bytes of address family.
    Loopback,
    /// Linux's "any" interface: the ether type, and where the payload begins.
    Cooked {
        ether_type: usize,
        payload: usize,
    },
}

impl Framing {
    /// The framings that can be read, in words.
    pub const ALL: &str = "Ethernet, raw IP, loopback and Linux cooked (v1, v2)";

    /// The framing of a link type, or `None` for one that cannot be read.
    pub fn of(link: DataLink) -> Option<Framing> {
        // The upper bits of the field may tell the length of a checksum.
        match u32::from(link) & 0xffff {
            1 => Some(Framing::Ethernet),
            12 | 14 | 101 | 228 | 229 => Some(Framing::Raw),
            0 | 108 => Some(Framing::Loopback),
            113 => Some(Framing::Cooked {
                ether_type: 14,
                payload: 16,
            }),
            276 => Some(Framing::Cooked {
                ether_type: 0,
                payload: 20,
            }),
            _ => None,
        }
    }

    /// The layer at which a packet's headers begin, and behind how many bytes of it; or its ether
    /// type, where it begins as no layer does.
    pub fn layer(self, packet: &[u8]) -> Result<(Layer, usize), u16> {
        match self {
            Framing::Ethernet => Ok((Layer::Ethernet, 0)),
            Framing::Raw => Ok((Layer::Ip, 0)),
            Framing::Loopback => Ok((Layer::Ip, 4)),
            Framing::Cooked {
                ether_type,
                payload,
            } => {
                let found = packet.get(ether_type..ether_type + 2);
                match found.map_or(0, |found| u16::from_be_bytes([found[0], found[1]])) {
                    0x0800 | 0x86dd => Ok((Layer::Ip, payload)),
                    other => Err(other),
                }
            }
        }
    }
}

/// A time as seconds with nine decimals, as capture tools print it.
struct Seconds(u64);

impl std::fmt::Display for Seconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}.{:09}",
            self.0 / 1_000_000_000,
            self.0 % 1_000_000_000
        )
    }
}

/// Why `what` could not be read.
fn broken(name: &str, what: &str, error: PcapError) -> anyhow::Error {
    match error {
        PcapError::IoError(error) if error.kind() == ErrorKind::UnexpectedEof => {
            anyhow!("{name}: {what} is cut off, the file ends before it does")
        }
        PcapError::IoError(error) => anyhow::Error::new(error).context(format!("reading {name}")),
        other => anyhow!("{name}: {what}: {other}"),
    }
}
