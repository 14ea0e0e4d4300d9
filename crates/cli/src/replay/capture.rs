//! Arrivals from a pcap file.

use std::collections::HashMap;
use std::io::{ErrorKind, Read};
use std::marker::PhantomData;

use anyhow::{Context, Result, anyhow, ensure};
use fairlane_core::scheduler::MAX_ENTITIES;
use pcap_file::pcap::{PcapHeader, PcapReader};
use pcap_file::{PcapError, TsResolution};

use super::arrivals::{Arrival, Arrivals, check_length};
use super::flow_key::{FlowBy, Framing, Key};
use super::flows::Flow;

/// What is kept of a packet's bytes while it waits.
pub trait Body {
    fn of(bytes: &[u8]) -> Self;
}

impl Body for () {
    fn of(_: &[u8]) {}
}

impl Body for Box<[u8]> {
    fn of(bytes: &[u8]) -> Self {
        bytes.into()
    }
}

/// The packets of a capture; flows are numbered in the order of their appearance.
pub struct Capture<'a, R: Read, B> {
    reader: PcapReader<R>,
    name: String,
    framing: Framing,
    by: FlowBy,
    /// What flows are entitled to, in the order of their appearance; without it any
    /// number of them may appear.
    declared: Option<&'a [Flow]>,
    overhead: u32,
    numbers: HashMap<Key, u32>,
    packet: u64,
    last: u64,
    body: PhantomData<B>,
}

impl<'a, R: Read, B> Capture<'a, R, B> {
    pub fn new(
        input: R,
        name: String,
        by: FlowBy,
        declared: Option<&'a [Flow]>,
        overhead: u32,
    ) -> Result<Self> {
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
        Ok(Capture {
            reader,
            name,
            framing,
            by,
            declared,
            overhead,
            numbers: HashMap::new(),
            packet: 0,
            last: 0,
            body: PhantomData,
        })
    }

    /// The file's header.
    pub fn header(&self) -> PcapHeader {
        self.reader.header()
    }

    /// What the packets of each flow have in common, by its number.
    pub fn keys(&self) -> Vec<Key> {
        let mut keys: Vec<(u32, Key)> = self.numbers.iter().map(|(&k, &n)| (n, k)).collect();
        keys.sort_unstable_by_key(|&(number, _)| number);
        keys.into_iter().map(|(_, key)| key).collect()
    }
}

impl<R: Read, B: Body> Arrivals<B> for Capture<'_, R, B> {
    fn next(&mut self) -> Result<Option<Arrival<B>>> {
        let resolution = self.reader.header().ts_resolution;
        // Raw, as the checked form refuses packets that were captured in part.
        let raw = match self.reader.next_raw_packet() {
            None => return Ok(None),
            Some(Ok(raw)) => raw,
            Some(Err(error)) => {
                let what = format!("packet {}", self.packet + 1);
                return Err(broken(&self.name, &what, error));
            }
        };
        self.packet += 1;
        let (name, packet) = (&self.name, self.packet);
        let place = || format!("{name}: packet {packet}");
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
        ensure!(
            time >= self.last,
            "{}: its time {} is before the {} of the packet before, packets are in order of time",
            place(),
            Seconds(time),
            Seconds(self.last)
        );
        self.last = time;
        let key = Key::of(self.framing, &raw.data, self.by);
        let unused = self.numbers.len() as u32;
        let flow = *self.numbers.entry(key).or_insert(unused);
        let declared = match self.declared {
            None => {
                ensure!(
                    (flow as usize) < MAX_ENTITIES,
                    "{}: there are {MAX_ENTITIES} flows at most",
                    place()
                );
                &Flow::UNDECLARED
            }
            Some(flows) => flows.get(flow as usize).with_context(|| {
                let count = flows.len();
                format!(
                    "{}: flow {flow} ({key}) is beyond the {count} that are declared",
                    place()
                )
            })?,
        };
        let len = check_length(
            raw.orig_len.into(),
            flow.into(),
            declared,
            self.overhead,
            place,
        )?;
        Ok(Some(Arrival {
            time,
            flow,
            len,
            body: B::of(&raw.data),
        }))
    }

    fn place(&self) -> String {
        format!("{}: packet {}", self.name, self.packet)
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
