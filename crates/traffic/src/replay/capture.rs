//! Arrivals from a capture.

use std::collections::VecDeque;
use std::io::Read;

use anyhow::{Result, anyhow, ensure};
use pcap_file::DataLink;
use pcap_file::pcap::PcapHeader;

use super::fit::{self, Segmented};
use super::framing::Framing;
use super::in_order::{Disorder, InOrder, Late};
use super::records::Records;

/// A packet of a capture.
pub(super) struct Packet {
    /// In nanoseconds, never before that of the packet before.
    pub(super) time: u64,
    /// Bytes on the wire.
    pub(super) len: u32,
    /// Those that were captured.
    pub(super) bytes: Vec<u8>,
    pub(super) framing: Framing,
    /// Its place in the file, from 1.
    pub(super) number: u64,
}

/// The packets of a capture, one after another.
pub struct Packets<R: Read> {
    records: Records<R>,
    longest: u32,
    /// The one that packets have, where they may have no other.
    link: Option<DataLink>,
    /// The number of the last one that was given.
    given: u64,
    order: InOrder<Packet>,
    /// The frames that the last one was cut into, but for those that were given.
    pieces: VecDeque<Packet>,
    segmented: Segmented,
}

impl<R: Read> Packets<R> {
    /// Reads the header of the file, which errors call `name`. Frames longer than `longest` bytes are cut, as
    /// segmentation offload does it, where they can be.
    ///
    /// # Errors
    ///
    /// The input is no capture, or of an unsupported kind.
    pub fn new(input: R, name: String, longest: u32) -> Result<Self> {
        Ok(Packets {
            records: Records::new(input, name)?,
            longest,
            link: None,
            given: 0,
            order: InOrder::new(),
            pieces: VecDeque::new(),
            segmented: Segmented::default(),
        })
    }

    /// Returns the header of a pcap file with these packets, which must all have its link type from now on.
    pub fn one_header(&mut self) -> PcapHeader {
        let header = self.records.header();
        self.link = Some(header.datalink);
        header
    }

    /// Returns counts of the packets that were sorted.
    pub fn disorder(&self) -> Disorder {
        self.order.disorder
    }

    /// Returns counts of the segmented frames.
    pub fn segmented(&self) -> Segmented {
        self.segmented
    }

    /// Returns the length of the longest frame that is not segmented.
    pub fn longest(&self) -> u32 {
        self.longest
    }

    /// Returns the next one, checked; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Packet>> {
        loop {
            if let Some(piece) = self.pieces.pop_front() {
                return Ok(Some(piece));
            }
            if let Some(packet) = self.order.pop() {
                self.given = packet.number;
                let long = packet.len > self.longest;
                match long.then(|| fit::cut(&packet, self.longest)).flatten() {
                    Some(pieces) => {
                        self.segmented.frames += 1;
                        self.segmented.into += pieces.len() as u64;
                        self.segmented.longest = self.segmented.longest.max(packet.len);
                        self.pieces.extend(pieces);
                    }
                    None => return Ok(Some(packet)),
                }
                continue;
            }
            if self.order.is_over() {
                return Ok(None);
            }
            self.read()?;
        }
    }

    /// Puts the next one of the file in order.
    fn read(&mut self) -> Result<()> {
        let Some(record) = self.records.next()? else {
            self.order.end();
            return Ok(());
        };
        let (time, number) = (record.time, self.records.number());
        if let Some(link) = self.link {
            ensure!(
                record.link == link,
                "{}: its link type is {}, that of the first packet {}: a pcap file has one (take CSV)",
                self.records.place_of(number),
                u32::from(record.link),
                u32::from(link)
            );
        }
        let packet = Packet {
            time,
            len: record.len,
            bytes: record.bytes,
            framing: record.framing,
            number,
        };
        self.order.push(time, packet).map_err(|Late(latest)| {
            anyhow!(
                "{}: its time {} is before the {} of a packet before: packets are in order of \
                 time, and put in order where they are up to 1 ms early",
                self.records.place_of(number),
                Seconds(time),
                Seconds(latest)
            )
        })
    }

    /// Returns the position of the last one, for errors.
    pub fn place(&self) -> String {
        self.records.place_of(self.given)
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
