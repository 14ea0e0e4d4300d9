//! Flows, in the order of one algorithm.

use fairlane_core::sched::Algorithm;
use fairlane_core::{
    FlowConfig, FlowId, Length, Nanos, PacketScheduler, Scheduler, SchedulerLimits, with_algorithm,
};

use super::{Offered, Queues, Taken, counts, fill, offer};
use crate::pointers::Discard;
use crate::status::fl_status::{self, FL_ERR_FLOW, FL_ERR_FLUSHED, FL_ERR_LENGTH, FL_OK};
use crate::types::{Room, fl_flow, fl_packet, fl_stats};

/// Creates queues without flows. Each algorithm has its own loops over a burst.
pub(crate) fn flat(algorithm: Algorithm, limits: SchedulerLimits) -> Box<dyn Queues> {
    with_algorithm!(algorithm, new => {
        Box::new(Flat {
            queue: PacketScheduler::new(new(), limits),
            generations: Vec::new(),
        })
    })
}

struct Flat<A: Scheduler> {
    queue: PacketScheduler<A, usize>,
    /// The current generation of each flow number. From 1, so that 0 is no flow.
    generations: Vec<u32>,
}

impl<A: Scheduler> Flat<A> {
    #[inline]
    fn known(&self, flow: fl_flow) -> Option<FlowId> {
        let number = flow as u32;
        let generation = self.generations.get(number as usize)?;
        (*generation == (flow >> 32) as u32).then_some(FlowId::new(number))
    }

    #[inline]
    fn named(&self, id: FlowId) -> fl_flow {
        let generation = self.generations.get(id.number() as usize);
        u64::from(id.number()) | generation.map_or(0, |&generation| u64::from(generation) << 32)
    }
}

impl<A: Scheduler + Send> Queues for Flat<A> {
    fn add_flow(&mut self, config: FlowConfig) -> Result<fl_flow, fl_status> {
        let id = self.queue.add_flow(config)?;
        let number = id.number() as usize;
        if number >= self.generations.len() {
            self.generations.resize(number + 1, 1);
        }
        Ok(self.named(id))
    }

    fn change_flow(&mut self, flow: fl_flow, config: FlowConfig) -> Result<(), fl_status> {
        let id = self.known(flow).ok_or(FL_ERR_FLOW)?;
        Ok(self.queue.change_flow(id, config)?)
    }

    fn remove_flow(&mut self, flow: fl_flow, discard: &Discard) -> Result<(), fl_status> {
        let id = self.known(flow).ok_or(FL_ERR_FLOW)?;
        self.queue.remove_flow(id, |packet| {
            discard.tell(&fl_packet::new(
                packet.payload,
                flow,
                packet.len,
                FL_ERR_FLUSHED,
            ));
        })?;
        // It wraps after 2^32 flows of one number; the first would then be mistaken for the last.
        let generation = &mut self.generations[id.number() as usize];
        *generation = generation.checked_add(1).unwrap_or(1);
        Ok(())
    }

    fn enqueue(&mut self, packets: &[fl_packet], _: Nanos, _: &Discard) -> Offered {
        offer(packets, |packet| {
            let Some(flow) = self.known(packet.flow.get()) else {
                return FL_ERR_FLOW;
            };
            let Some(length) = Length::new(packet.length.get()) else {
                return FL_ERR_LENGTH;
            };
            match self.queue.enqueue(flow, length, packet.kept()) {
                Ok(()) => FL_OK,
                Err(rejected) => rejected.reason.into(),
            }
        })
    }

    fn dequeue(&mut self, rooms: &[Room], _: Nanos, _: &Discard) -> Taken {
        fill(rooms, || {
            let packet = self.queue.dequeue().ok_or(u64::MAX)?;
            let flow = self.named(packet.owner);
            Ok(fl_packet::new(packet.payload, flow, packet.len, FL_OK))
        })
    }

    fn stats(&self, flow: fl_flow) -> Result<fl_stats, fl_status> {
        let stats = match flow {
            0 => Some(self.queue.total_stats()),
            flow => self.known(flow).and_then(|id| self.queue.flow_stats(id)),
        };
        let of = stats.ok_or(FL_ERR_FLOW)?;
        Ok(counts([
            of.accepted,
            of.sent,
            of.queued,
            of.dropped,
            of.discarded,
        ]))
    }

    fn flush(&mut self, discard: &Discard) {
        while let Some(packet) = self.queue.dequeue() {
            let flow = self.named(packet.owner);
            discard.tell(&fl_packet::new(
                packet.payload,
                flow,
                packet.len,
                FL_ERR_FLUSHED,
            ));
        }
    }
}
