//! A packet scheduler whose algorithm is chosen at run time, for one indirect call a packet. It is
//! for programs that spend far more than that on a packet (a system call, a line of text): their
//! code is compiled once and not for each algorithm.

use crate::sched::{Algorithm, DrrOfQuantum, algorithms};
use crate::scheduler::Violation;
use crate::{
    ChangeError, FlowConfig, FlowId, FlowStats, Length, Packet, PacketScheduler, Rejected,
    Scheduler, SchedulerLimits, TotalStats,
};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Where a payload is kept.
#[derive(Clone, Copy, Debug)]
struct Slot(u32);

/// A packet scheduler of any algorithm, of packets that are kept elsewhere.
trait Flows: Send + core::fmt::Debug {
    fn add_flow(&mut self, config: FlowConfig) -> Result<FlowId, ChangeError>;
    fn change_flow(&mut self, flow: FlowId, config: FlowConfig) -> Result<(), ChangeError>;
    fn remove_flow(
        &mut self,
        flow: FlowId,
        discard: &mut dyn FnMut(Packet<Slot>),
    ) -> Result<FlowStats, ChangeError>;
    fn enqueue(&mut self, flow: FlowId, len: Length, slot: Slot) -> Result<(), Rejected<Slot>>;
    fn dequeue(&mut self) -> Option<Packet<Slot>>;
    fn unsent(&mut self, work: &dyn Fn() -> u128);
    fn flows(&self) -> Box<dyn Iterator<Item = FlowId> + '_>;
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

    fn remove_flow(
        &mut self,
        flow: FlowId,
        discard: &mut dyn FnMut(Packet<Slot>),
    ) -> Result<FlowStats, ChangeError> {
        self.remove_flow(flow, discard)
    }

    fn enqueue(&mut self, flow: FlowId, len: Length, slot: Slot) -> Result<(), Rejected<Slot>> {
        self.enqueue(flow, len, slot)
    }

    fn dequeue(&mut self) -> Option<Packet<Slot>> {
        self.dequeue()
    }

    fn unsent(&mut self, work: &dyn Fn() -> u128) {
        self.unsent(work);
    }

    fn flows(&self) -> Box<dyn Iterator<Item = FlowId> + '_> {
        Box::new(self.flows())
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

/// A [`PacketScheduler`] of an algorithm that is chosen at run time.
///
/// ```
/// use fairlane_core::sched::{Algorithm, UnknownAlgorithm};
/// use fairlane_core::{AnyScheduler, FlowConfig, Length, Weight};
///
/// let algorithm: Algorithm = "qfq+".parse()?;
/// let mut link = AnyScheduler::new(algorithm, Default::default());
/// let len = Length::try_from(1000u32)?;
/// let flow = link.add_flow(FlowConfig::new(Weight::ONE, len))?;
/// link.enqueue(flow, len, 'a')?;
/// assert_eq!(link.dequeue().unwrap().payload, 'a');
///
/// assert_eq!("fairest".parse::<Algorithm>(), Err(UnknownAlgorithm));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct AnyScheduler<P> {
    flows: Box<dyn Flows>,
    payloads: Payloads<P>,
}

/// Payloads of the packets that wait.
struct Payloads<P> {
    slots: Vec<Option<P>>,
    free: Vec<Slot>,
}

impl<P> Payloads<P> {
    #[inline]
    fn keep(&mut self, payload: P) -> Slot {
        let Some(slot) = self.free.pop() else {
            // There are never more packets than a scheduler can number.
            self.slots.push(Some(payload));
            return Slot((self.slots.len() - 1) as u32);
        };
        self.slots[slot.0 as usize] = Some(payload);
        slot
    }

    #[inline]
    fn take(&mut self, slot: Slot) -> P {
        self.free.push(slot);
        let payload = self.slots[slot.0 as usize].take();
        payload.unwrap_or_else(|| unreachable!("a queued packet has a payload"))
    }

    /// The packet with its payload.
    #[inline]
    fn of(&mut self, packet: Packet<Slot>) -> Packet<P> {
        packet.map(|slot| self.take(slot))
    }
}

impl<P> AnyScheduler<P> {
    /// Without flows.
    pub fn new(algorithm: Algorithm, limits: SchedulerLimits) -> Self {
        AnyScheduler {
            flows: flows(algorithm, limits),
            payloads: Payloads {
                slots: Vec::new(),
                free: Vec::new(),
            },
        }
    }

    /// As [`PacketScheduler::add_flow`].
    pub fn add_flow(&mut self, config: FlowConfig) -> Result<FlowId, ChangeError> {
        self.flows.add_flow(config)
    }

    /// As [`PacketScheduler::change_flow`].
    pub fn change_flow(&mut self, flow: FlowId, config: FlowConfig) -> Result<(), ChangeError> {
        self.flows.change_flow(flow, config)
    }

    /// As [`PacketScheduler::remove_flow`].
    pub fn remove_flow(
        &mut self,
        flow: FlowId,
        mut discard: impl FnMut(Packet<P>),
    ) -> Result<FlowStats, ChangeError> {
        let payloads = &mut self.payloads;
        let discard = &mut |packet| discard(payloads.of(packet));
        self.flows.remove_flow(flow, discard)
    }

    /// As [`PacketScheduler::enqueue`].
    #[inline]
    pub fn enqueue(&mut self, flow: FlowId, len: Length, payload: P) -> Result<(), Rejected<P>> {
        let slot = self.payloads.keep(payload);
        let accepted = self.flows.enqueue(flow, len, slot);
        accepted.map_err(|rejected| rejected.map(|slot| self.payloads.take(slot)))
    }

    /// As [`PacketScheduler::dequeue`].
    #[inline]
    pub fn dequeue(&mut self) -> Option<Packet<P>> {
        let packet = self.flows.dequeue()?;
        Some(self.payloads.of(packet))
    }

    /// As [`PacketScheduler::unsent`].
    #[inline]
    pub fn unsent(&mut self, work: impl Fn() -> u128) {
        self.flows.unsent(&work);
    }

    /// As [`PacketScheduler::flows`].
    pub fn flows(&self) -> impl Iterator<Item = FlowId> {
        self.flows.flows()
    }

    /// As [`PacketScheduler::room`].
    pub fn room(&self, flow: FlowId) -> u32 {
        self.flows.room(flow)
    }

    /// As [`PacketScheduler::flow_stats`].
    pub fn flow_stats(&self, flow: FlowId) -> Option<FlowStats> {
        self.flows.flow_stats(flow)
    }

    /// As [`PacketScheduler::total_stats`].
    pub fn total_stats(&self) -> TotalStats {
        self.flows.total_stats()
    }

    /// As [`PacketScheduler::is_empty`].
    pub fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    /// As [`PacketScheduler::invariants`].
    pub fn invariants(&self) -> Result<(), Violation> {
        self.flows.invariants()
    }
}

/// As a [`PacketScheduler`].
impl<P> core::fmt::Debug for AnyScheduler<P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        core::fmt::Debug::fmt(&self.flows, f)
    }
}

/// Compiled once, whatever the packets.
fn flows(algorithm: Algorithm, limits: SchedulerLimits) -> Box<dyn Flows> {
    algorithms!(make!((algorithm, limits)))
}

macro_rules! make {
    (
        ($algorithm:expr, $limits:expr)
        $(
            $variant:ident$(($most:ident: $kind:ty))?:
                $type:ty = $make:expr, $promise:expr, $about:literal;
        )*
    ) => {
        match $algorithm.without_aggregates_of_one() {
            $(Algorithm::$variant$(($most))? => {
                Box::new(PacketScheduler::<$type, Slot>::new($make, $limits))
            })*
            Algorithm::DrrOfQuantum(quantum) => {
                Box::new(PacketScheduler::<_, Slot>::new(DrrOfQuantum::new(quantum), $limits))
            }
            Algorithm::Custom(custom) => {
                Box::new(PacketScheduler::<_, Slot>::new(custom.scheduler(), $limits))
            }
        }
    };
}

use make;
