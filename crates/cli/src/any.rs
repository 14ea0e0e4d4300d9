//! Packets of flows in the order of any algorithm, for one indirect call a packet. It is for
//! those who spend far more than that on a packet (a system call, a line of text): what they are
//! made of is compiled once and not for each algorithm. What is measured has code of its own.

use fairlane_core::scheduler::Violation;
use fairlane_core::{
    ChangeError, Dequeue, FlowConfig, FlowId, FlowStats, Length, Nanos, Packet, PacketScheduler,
    Rejected, Rejection, Scheduler, SchedulerLimits, TotalStats,
};
use fairlane_runtime::Queue;
use fairlane_sim as sim;

use crate::algorithm::Algorithm;
use fairlane_core::with_algorithm;

/// Where a payload is kept.
#[derive(Clone, Copy, Debug)]
struct Slot(u32);

/// A packet scheduler of any algorithm, of packets that are kept elsewhere.
trait Flows: Send {
    fn add_flow(&mut self, config: FlowConfig) -> Result<FlowId, ChangeError>;
    fn change_flow(&mut self, flow: FlowId, config: FlowConfig) -> Result<(), ChangeError>;
    /// Of a flow that holds no packets.
    fn remove_flow(&mut self, flow: FlowId) -> Result<(), ChangeError>;
    fn enqueue(&mut self, flow: FlowId, len: Length, slot: Slot) -> Result<(), Rejected<Slot>>;
    fn dequeue(&mut self, now: Nanos) -> Dequeue<Slot>;
    fn room(&self, flow: FlowId) -> u32;
    fn flow_stats(&self, flow: FlowId) -> Option<FlowStats>;
    fn total_stats(&self) -> TotalStats;
    fn is_empty(&self) -> bool;
    fn invariants(&self) -> Result<(), Violation>;
}

impl<A: Scheduler + Send> Flows for PacketScheduler<A, Slot> {
    fn add_flow(&mut self, config: FlowConfig) -> Result<FlowId, ChangeError> {
        self.add_flow(config)
    }

    fn change_flow(&mut self, flow: FlowId, config: FlowConfig) -> Result<(), ChangeError> {
        self.change_flow(flow, config)
    }

    fn remove_flow(&mut self, flow: FlowId) -> Result<(), ChangeError> {
        self.remove_flow(flow, drop).map(drop)
    }

    fn enqueue(&mut self, flow: FlowId, len: Length, slot: Slot) -> Result<(), Rejected<Slot>> {
        self.enqueue(flow, len, slot)
    }

    fn dequeue(&mut self, now: Nanos) -> Dequeue<Slot> {
        self.dequeue(now)
    }

    fn room(&self, flow: FlowId) -> u32 {
        self.room(flow)
    }

    fn flow_stats(&self, flow: FlowId) -> Option<FlowStats> {
        self.flow_stats(flow)
    }

    fn total_stats(&self) -> TotalStats {
        self.total_stats()
    }

    fn is_empty(&self) -> bool {
        self.is_empty()
    }

    fn invariants(&self) -> Result<(), Violation> {
        self.invariants()
    }
}

/// Packets of flows, each of which has its share by an algorithm chosen at run time.
pub struct AnyScheduler<P> {
    flows: Box<dyn Flows>,
    payloads: Vec<Option<P>>,
    free: Vec<Slot>,
}

impl<P> AnyScheduler<P> {
    /// Without flows.
    pub fn new(algorithm: Algorithm, limits: SchedulerLimits) -> Self {
        AnyScheduler {
            flows: with_algorithm!(algorithm, new => {
                Box::new(PacketScheduler::new(new(), limits)) as Box<dyn Flows>
            }),
            payloads: Vec::new(),
            free: Vec::new(),
        }
    }

    fn keep(&mut self, payload: P) -> Slot {
        let Some(slot) = self.free.pop() else {
            // There are no more packets than a scheduler can number.
            self.payloads.push(Some(payload));
            return Slot((self.payloads.len() - 1) as u32);
        };
        self.payloads[slot.0 as usize] = Some(payload);
        slot
    }

    fn take(&mut self, slot: Slot) -> P {
        self.free.push(slot);
        let payload = self.payloads[slot.0 as usize].take();
        payload.unwrap_or_else(|| unreachable!("a queued packet has a payload"))
    }
}

impl<P: Send> Queue for AnyScheduler<P> {
    type Payload = P;

    const DISCARDS: bool = false;

    fn add_flow(&mut self, config: FlowConfig) -> Result<FlowId, ChangeError> {
        self.flows.add_flow(config)
    }

    fn change_flow(&mut self, flow: FlowId, config: FlowConfig) -> Result<(), ChangeError> {
        self.flows.change_flow(flow, config)
    }

    fn remove_flow(&mut self, flow: FlowId) -> Result<(), ChangeError> {
        self.flows.remove_flow(flow)
    }

    fn enqueue(
        &mut self,
        flow: FlowId,
        len: Length,
        payload: P,
        _: Nanos,
        _: impl FnMut(Packet<P>),
    ) -> Result<(), Rejected<P>> {
        let slot = self.keep(payload);
        let accepted = self.flows.enqueue(flow, len, slot);
        accepted.map_err(|rejected| Rejected {
            payload: self.take(rejected.payload),
            reason: rejected.reason,
        })
    }

    fn dequeue(&mut self, now: Nanos, _: impl FnMut(Packet<P>)) -> Dequeue<P> {
        match self.flows.dequeue(now) {
            Dequeue::Packet(packet) => Dequeue::Packet(Packet {
                flow: packet.flow,
                len: packet.len,
                payload: self.take(packet.payload),
            }),
            Dequeue::NotBefore(time) => Dequeue::NotBefore(time),
            Dequeue::Empty => Dequeue::Empty,
        }
    }

    fn room(&self, flow: FlowId) -> u32 {
        self.flows.room(flow)
    }

    fn flow_stats(&self, flow: FlowId) -> Option<FlowStats> {
        self.flows.flow_stats(flow)
    }

    fn total_stats(&self) -> TotalStats {
        self.flows.total_stats()
    }

    fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    fn invariants(&self) -> Result<(), Violation> {
        self.flows.invariants()
    }
}

/// In front of a simulated link.
impl<P: Send> sim::Queue<FlowId, P> for AnyScheduler<P> {
    fn enqueue(
        &mut self,
        to: FlowId,
        len: Length,
        packet: P,
        now: Nanos,
        _: impl FnMut(Length, P),
    ) -> Result<(), Rejection> {
        let accepted = Queue::enqueue(self, to, len, packet, now, drop);
        accepted.map_err(|rejected| rejected.reason)
    }

    fn dequeue(&mut self, now: Nanos, _: impl FnMut(Length, P)) -> sim::Next<P> {
        Queue::dequeue(self, now, drop).into()
    }
}

impl<P: Send> sim::Flows<P> for AnyScheduler<P> {
    fn add_flow(&mut self, config: FlowConfig) -> Result<FlowId, ChangeError> {
        self.flows.add_flow(config)
    }
}
