//! The packets of a capture as arrivals of flows.

use std::collections::HashMap;
use std::io::Read;

use anyhow::{Context, Result, ensure};
use fairlane_classify::parse_partly;
use fairlane_core::FlowId;
use fairlane_core::scheduler::MAX_ENTITIES;

use super::Report;
use super::declared::{Flow, check_length};
use super::key::{FlowBy, Key};
use crate::replay::arrivals::{Arrival, Arrivals, Body};
use crate::replay::capture::{Packets, View};
use crate::replay::in_order::Disorder;

/// The packets of a capture in flows, which are numbered in the order of their appearance.
pub struct Capture<'a, R: Read> {
    packets: Packets<R>,
    by: FlowBy,
    /// What flows are entitled to, in the order of their appearance; without it any
    /// number of them may appear.
    declared: Option<&'a [Flow]>,
    overhead: u32,
    numbers: HashMap<Key, u32>,
    view: View,
}

impl<'a, R: Read> Capture<'a, R> {
    /// The packets of each flow are alike in what `by` names. Row n of `declared` is for the n-th
    /// flow to appear; without it any number may.
    pub fn new(
        packets: Packets<R>,
        by: FlowBy,
        declared: Option<&'a [Flow]>,
        overhead: u32,
    ) -> Self {
        Capture {
            packets,
            by,
            declared,
            overhead,
            numbers: HashMap::new(),
            view: View::default(),
        }
    }

    /// The capture itself.
    pub fn packets(&self) -> &Packets<R> {
        &self.packets
    }

    /// Says of each flow in `report` what its packets have in common.
    pub fn name_flows(&self, report: &mut Report) {
        for (key, &number) in &self.numbers {
            if let Some(flow) = report.flows.get_mut(number as usize) {
                flow.key = Some(key.to_string());
            }
        }
    }
}

impl<R: Read, B: Body> Arrivals<FlowId, B> for Capture<'_, R> {
    fn next(&mut self) -> Result<Option<Arrival<FlowId, B>>> {
        let framing = self.packets.framing();
        let Some(packet) = self.packets.next()? else {
            return Ok(None);
        };
        let (seen, layer, headers) = self.view.of(framing, &packet);
        let key = Key::of(&parse_partly(seen, layer).0, self.by);
        let place = || self.packets.place();
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
