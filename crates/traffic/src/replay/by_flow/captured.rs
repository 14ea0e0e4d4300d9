//! The packets of a capture as arrivals of flows.

use std::io::Read;

use anyhow::{Context, Result, ensure};
use fairlane_classify::{DigestKey, Origin, Per};
use fairlane_core::scheduler::MAX_ENTITIES;
use fairlane_core::units::MAX_LENGTH;
use fairlane_core::{FlowId, Length, Weight};
use fairlane_wire::parse_partly;

use super::Report;
use super::declared::{Flow, check_length};
use super::name::flow_name;
use crate::digest_map::DigestMap;
use crate::replay::arrivals::{Arrival, Arrivals, Body};
use crate::replay::capture::Packets;
use crate::replay::framing::View;
use crate::replay::in_order::Disorder;

/// A flow without declarations.
const ANY: Flow = Flow {
    weight: Weight::ONE,
    max_len: Length::MAX,
};

/// The packets of a capture in flows, which are numbered in the order of their appearance.
pub struct Capture<'a, R: Read> {
    packets: Packets<R>,
    per: Per,
    /// The entitlements of flows, in the order of their appearance; without it any number of them may appear.
    declared: Option<&'a [Flow]>,
    overhead: u32,
    /// By digest.
    numbers: DigestMap<u32>,
    names: Vec<String>,
    view: View,
    /// Packets longer than any link carries.
    oversized: u64,
}

impl<'a, R: Read> Capture<'a, R> {
    /// Distinguishes flows by the source address or by the 5-tuple, according to `per`. Row n of `declared` is for the
    /// n-th flow to appear; without it any number may.
    pub fn new(packets: Packets<R>, per: Per, declared: Option<&'a [Flow]>, overhead: u32) -> Self {
        Capture {
            packets,
            per,
            declared,
            overhead,
            numbers: DigestMap::default(),
            names: Vec::new(),
            view: View::default(),
            oversized: 0,
        }
    }

    /// Returns the capture itself.
    pub fn packets(&self) -> &Packets<R> {
        &self.packets
    }

    /// Returns the fields that the packets of each flow share, by its number.
    pub fn names(self) -> Vec<String> {
        self.names
    }

    /// Returns the number of packets dropped because they are longer than any link carries and could not be segmented.
    pub fn oversized(&self) -> u64 {
        self.oversized
    }

    /// Adds to a report the packets that were dropped, and the names of the flows.
    pub fn complete(&self, report: &mut Report) {
        report.oversized = self.oversized;
        for (flow, name) in report.flows.iter_mut().zip(&self.names) {
            flow.key = Some(name.clone());
        }
    }
}

impl<R: Read, B: Body> Arrivals<FlowId, B> for Capture<'_, R> {
    fn next(&mut self) -> Result<Option<Arrival<FlowId, B>>> {
        let most = MAX_LENGTH - self.overhead;
        let packet = loop {
            match self.packets.next()? {
                None => return Ok(None),
                Some(packet) if packet.len > most => self.oversized += 1,
                Some(packet) => break packet,
            }
        };
        let (seen, layer, headers) = self.view.of(&packet);
        let read = parse_partly(seen, layer).0;
        // The same in every run.
        let digest = (self.per).digest(&read, &Origin::default(), &DigestKey([0; 2]));
        let place = || self.packets.place();
        let flow = *self.numbers.entry(digest).or_insert_with(|| {
            self.names.push(flow_name(&read, self.per));
            self.names.len() as u32 - 1
        });
        let declared = match self.declared {
            None => {
                ensure!(
                    (flow as usize) < MAX_ENTITIES,
                    "{}: there are {MAX_ENTITIES} flows at most",
                    place()
                );
                &ANY
            }
            Some(flows) => flows.get(flow as usize).with_context(|| {
                let count = flows.len();
                format!(
                    "{}: flow {flow} ({}) is beyond the {count} that are declared",
                    place(),
                    flow_name(&read, self.per)
                )
            })?,
        };
        let len = check_length(
            packet.len.into(),
            flow.into(),
            declared,
            self.overhead,
            place,
        )?;
        Ok(Some(Arrival {
            time: packet.time,
            to: FlowId::new(flow),
            len,
            body: B::of(&packet.bytes, headers),
        }))
    }

    fn place(&self) -> String {
        self.packets.place()
    }

    fn disorder(&self) -> Disorder {
        self.packets.disorder()
    }
}
