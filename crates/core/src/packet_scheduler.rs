//! The packet scheduler: flows with their queues, ordered by an algorithm.

mod burst;
mod sojourn;
mod view;

use crate::ensure_invariant;
use crate::grow::Slab;
use crate::packet::{Count, Packet, Rejected, Rejection};
use crate::queue::{PacketSlab, Record, Stored};
use crate::scheduler::{EntityId, Holds, MAX_ENTITIES, Removal, Scheduler, Share, Violation};
use crate::size::{Ledger, Room, Size};
use crate::units::{Charge, Length, Weight};
use alloc::vec::Vec;
use core::fmt;

mod correction;

pub use correction::{Correction, CostScheduler, Request, Ticket};

/// A flow of one [`PacketScheduler`].
///
/// Packets for the number of a removed flow are rejected, until [`add_flow`] hands it out again.
///
/// [`add_flow`]: PacketScheduler::add_flow
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId(u32);

impl FlowId {
    /// Returns the identifier of the flow with this number; each call that takes it reports whether such a flow exists.
    #[inline]
    pub const fn new(number: u32) -> FlowId {
        FlowId(number)
    }

    /// Returns its number: flows of one scheduler are numbered from 0.
    #[inline]
    pub const fn number(self) -> u32 {
        self.0
    }

    #[inline]
    const fn index(self) -> usize {
        self.0 as usize
    }

    #[inline]
    const fn of(id: EntityId) -> FlowId {
        FlowId(id.index() as u32)
    }

    /// As the algorithm knows it, once the flow table does.
    #[inline]
    const fn entity(self) -> EntityId {
        EntityId::in_use(self.0)
    }
}

/// Its number.
impl fmt::Display for FlowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The largest backlog of one flow. Both bounds hold; 0 admits nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Limits {
    /// Packets, at most 2^31 - 1.
    pub packets: u32,
    /// Bytes, at most 2^31 - 1. Where costs are counted, their units, and 2^31 - 1 or more are any
    /// number.
    pub bytes: u32,
}

impl Limits {
    const LARGEST: u32 = i32::MAX as u32;

    /// No limit but the scheduler's own.
    pub const NONE: Limits = Limits {
        packets: Self::LARGEST,
        bytes: Self::LARGEST,
    };

    pub(crate) fn clamped(self) -> Limits {
        Limits {
            packets: self.packets.min(Self::LARGEST),
            bytes: self.bytes.min(Self::LARGEST),
        }
    }
}

/// The largest backlog of all flows together.
///
/// A full scheduler rejects every arrival: a flat one has no reserved [room](crate::room). So that no flow is starved
/// of space by others, let `packets` be no less than the largest number of flows times `per_flow.packets`, and `bytes`
/// no less than that number times `per_flow.bytes`: then a flow is rejected only for its own backlog. Memory is
/// allocated as packets arrive, not by limits. A [tree](crate::tree) of one class of flows does without such limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct SchedulerLimits {
    /// Packets, 1 to 2^32 - 1.
    pub packets: u32,
    /// Bytes, or units of cost.
    pub bytes: u64,
    /// The limits of a flow unless its own configuration has others.
    pub per_flow: Limits,
}

impl SchedulerLimits {
    /// Returns a million requests, whatever they cost.
    pub const fn for_costs() -> Self {
        SchedulerLimits {
            packets: 1 << 20,
            bytes: u64::MAX,
            per_flow: Limits::NONE,
        }
    }
}

impl Default for SchedulerLimits {
    /// Creates a million packets, 1 GiB, and no other limit a flow.
    fn default() -> Self {
        SchedulerLimits {
            packets: 1 << 20,
            bytes: 1 << 30,
            per_flow: Limits::NONE,
        }
    }
}

/// The share and the limits of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct FlowConfig<L = Length> {
    /// Weight (phi).
    pub weight: Weight,
    /// Longest packet it will send, or largest cost of its requests: longer ones are rejected at
    /// enqueue.
    pub max_length: L,
    /// Its own limits, or `None` for the scheduler's `per_flow`.
    pub limits: Option<Limits>,
}

impl<L> FlowConfig<L> {
    /// Creates a flow of `weight` with packets up to `max_length` and the common limits.
    ///
    /// Say the length that its packets have, not the longest that there could be: rounded
    /// timestamps are as fine as a flow's longest packet is short. Two flows of weights 3 and
    /// 1 with packets of 1000 bytes are within two packets of their shares under QFQ; the same
    /// flows declared for 65,535 bytes get 99 packets in a row.
    pub const fn new(weight: Weight, max_length: L) -> Self {
        FlowConfig {
            weight,
            max_length,
            limits: None,
        }
    }

    fn share(&self) -> Share
    where
        L: Into<Charge> + Copy,
    {
        Share::new(self.weight, self.max_length)
    }
}

/// Why a flow could not be added or changed; nothing was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChangeError {
    /// No flow has this number.
    #[error("there is no such flow")]
    UnknownFlow,
    /// All flow numbers are in use.
    #[error("there are {MAX_ENTITIES} flows already")]
    TooManyFlows,
    /// A packet longer than the new maximum is queued.
    #[error("a packet of {queued} is queued, more than the new maximum of {max}")]
    LongerPacketQueued {
        /// The longest packet queued.
        queued: Length,
        /// The maximum asked for.
        max: Length,
    },
    /// A request that costs more than the new maximum is queued.
    #[error("a request of {queued} {unit} is queued, more than the new maximum of {max}")]
    CostlierRequestQueued {
        /// The largest cost queued.
        queued: u32,
        /// The maximum asked for.
        max: u32,
        /// The unit of the costs, by name.
        unit: &'static str,
    },
}

/// The counters of a flow's packets: `accepted = sent + discarded + queued`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
pub struct FlowStats {
    /// Accepted at enqueue.
    pub accepted: Count,
    /// Packets returned by dequeue.
    pub sent: Count,
    /// Waiting now.
    pub queued: Count,
    /// Rejected at enqueue, for whatever reason.
    pub dropped: Count,
    /// Accepted and discarded later (a flush).
    pub discarded: Count,
}

/// The same for all flows together, those removed included.
pub type TotalStats = FlowStats;

/// A flow's queue and its algorithm state, in one cache line.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
struct Flow<S, L: Size = Length> {
    /// With its entry in `accounts`, or [`NO_ACCOUNT`], for `side`; and with its longest packet, 0 where no
    /// flow has this number, which then rejects every packet.
    queue: Record<u32, L::Room>,
    state: S,
    ledger: L::Ledger,
}

const _: () = assert!(size_of::<Flow<[u64; 3]>>() == 64);

impl<S, L: Size> Flow<S, L> {
    /// Returns its longest packet; 0 where no flow has this number.
    #[inline(always)]
    fn max_length(&self) -> u32 {
        self.queue.tag
    }
}

/// No entry in `accounts`.
const NO_ACCOUNT: u32 = u32::MAX;

/// The reason against a packet, in the order of the checks: space taken by an earlier check is returned.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Against {
    /// It is too long, or there is no such flow.
    Length,
    FlowPackets,
    FlowBytes,
    Bytes,
    Packets,
}

/// Rarely used properties of a flow: its own limits, and counts of dropped packets.
#[derive(Clone, Copy, Debug)]
struct Account {
    limits: Limits,
    dropped: Count,
    discarded: Count,
}

impl<S, L: Size> Holds<S> for Flow<S, L> {
    #[inline]
    fn state(&self) -> &S {
        &self.state
    }
    #[inline]
    fn state_mut(&mut self) -> &mut S {
        &mut self.state
    }
}

/// Flows and their packets, in the order of algorithm `A`.
///
/// `P` is the caller's packet or handle; the scheduler never accesses it. `enqueue` and `dequeue` have the cost of the
/// algorithm, O(1) for most, and touch one cache line a flow and one a packet. Nothing is allocated once the tables
/// have grown to the largest number of flows and packets.
///
/// ```
/// use fairlane_core::{
///     ChangeError, Count, FlowConfig, FlowId, FlowStats, Length, Limits, PacketScheduler, Rejected,
///     Rejection, SchedulerLimits, TotalStats, Weight, sched::Qfq,
/// };
///
/// let per_flow = Limits { packets: 2, bytes: 3000 };
/// let limits = SchedulerLimits { per_flow, ..SchedulerLimits::default() };
/// let mut link = PacketScheduler::new(Qfq::new(), limits);
/// let len = Length::try_from(1000u32)?;
/// let flow: FlowId = link.add_flow(FlowConfig::new(Weight::ONE, len))?;
///
/// link.enqueue(flow, len, "first")?;
/// link.enqueue(flow, len, "second")?;
/// // What finds no room comes back, with the reason.
/// let Rejected { payload, reason } = link.enqueue(flow, len, "third").unwrap_err();
/// assert_eq!((payload, reason), ("third", Rejection::QueueFull));
///
/// assert_eq!(link.dequeue().unwrap().payload, "first");
/// let stats: FlowStats = link.flow_stats(flow).unwrap();
/// assert_eq!(stats.queued, Count { packets: 1, bytes: 1000 });
///
/// // What a flow still holds when it is removed is the caller's again.
/// let mut discarded = Vec::new();
/// link.remove_flow(flow, |packet| discarded.push(packet.payload))?;
/// assert_eq!(discarded, ["second"]);
/// assert_eq!(link.remove_flow(flow, drop), Err(ChangeError::UnknownFlow));
/// let all: TotalStats = link.total_stats();
/// assert_eq!((all.accepted.packets, all.dropped.packets), (2, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
// `room_bytes` and `accepted_bytes` stand apart for the reason given at `Record`.
#[derive(Clone)]
#[repr(C)]
pub struct PacketScheduler<A: Scheduler, P, L: Size = Length> {
    room_bytes: i64,
    flows: Vec<Flow<A::Entity, L>>,
    slab: PacketSlab<P, L>,
    accepted_bytes: u64,
    algorithm: A,
    limits: SchedulerLimits,
    dropped: Count,
    discarded: Count,
    free_flows: Vec<FlowId>,
    accounts: Slab<Account>,
}

impl<A: Scheduler, P> PacketScheduler<A, P> {
    /// Creates a scheduler of packets, without flows. [`for_costs`](Self::for_costs) makes one of requests.
    pub fn new(algorithm: A, limits: SchedulerLimits) -> Self {
        Self::without_flows(algorithm, limits)
    }
}

impl<A: Scheduler, P, L: Size> PacketScheduler<A, P, L> {
    fn without_flows(algorithm: A, limits: SchedulerLimits) -> Self {
        PacketScheduler {
            algorithm,
            flows: Vec::new(),
            slab: PacketSlab::new(limits.packets),
            room_bytes: limits.bytes.min(i64::MAX as u64) as i64,
            accepted_bytes: 0,
            limits: SchedulerLimits {
                per_flow: limits.per_flow.clamped(),
                ..limits
            },
            dropped: Count::default(),
            discarded: Count::default(),
            free_flows: Vec::new(),
            accounts: Slab::default(),
        }
    }

    /// Grows the tables ahead of time for this many flows and packets.
    pub fn reserve(&mut self, flows: usize, packets: u32) {
        let flows = flows.min(MAX_ENTITIES);
        self.flows
            .reserve_exact(flows.saturating_sub(self.flows.len()));
        self.slab.reserve(packets);
    }

    /// Returns the algorithm, for inspection.
    pub fn algorithm(&self) -> &A {
        &self.algorithm
    }

    /// Adds a flow, idle. O(1) amortised.
    pub fn add_flow(&mut self, config: FlowConfig<L>) -> Result<FlowId, ChangeError> {
        let id = match self.free_flows.pop() {
            Some(id) => id,
            None => {
                let entity = EntityId::new(self.flows.len()).ok_or(ChangeError::TooManyFlows)?;
                self.flows.push(Flow {
                    queue: Record::new(0, NO_ACCOUNT, self.limits.per_flow),
                    state: A::Entity::default(),
                    ledger: L::Ledger::default(),
                });
                FlowId::of(entity)
            }
        };
        let limits = config.limits.unwrap_or(self.limits.per_flow).clamped();
        let flow = &mut self.flows[id.index()];
        flow.queue = Record::new(config.max_length.amount(), NO_ACCOUNT, limits);
        if limits != self.limits.per_flow {
            self.account(id).limits = limits;
        }
        self.algorithm
            .add(self.flows.as_mut_slice(), id.entity(), config.share());
        Ok(id)
    }

    /// Gives a flow another weight, maximum length or limits, backlogged or not.
    ///
    /// Queued packets stay, also above a lowered limit. The new weight counts from the flow's next place in the order.
    /// The cost is that of the algorithm's change, and O(packets queued in the flow) where the maximum length is
    /// lowered.
    pub fn change_flow(&mut self, id: FlowId, config: FlowConfig<L>) -> Result<(), ChangeError> {
        let flow = self.flow(id).ok_or(ChangeError::UnknownFlow)?;
        if config.max_length.amount() < flow.max_length() {
            let longest = flow
                .queue
                .packets
                .iter(&self.slab)
                .map(|(len, _)| len)
                .max();
            if let Some(queued) = longest.filter(|&len| len > config.max_length) {
                return Err(queued.queued_beyond(config.max_length));
            }
        }
        let old = self.limits_of(id);
        let new = config.limits.unwrap_or(self.limits.per_flow).clamped();
        if new != old {
            self.account(id).limits = new;
        }
        let flow = &mut self.flows[id.index()];
        flow.queue.relimit(old, new);
        flow.queue.tag = config.max_length.amount();
        self.algorithm
            .change(self.flows.as_mut_slice(), id.entity(), config.share());
        Ok(())
    }

    /// Removes a flow, backlogged or not; its packets go to `discard` in order.
    /// O(packets queued in the flow; with FIFO, in all). Its number is used again once
    /// its place in the order has come up.
    pub fn remove_flow(
        &mut self,
        id: FlowId,
        discard: impl FnMut(Packet<P, FlowId, L>),
    ) -> Result<FlowStats, ChangeError> {
        self.flush_flow(id, discard)?;
        let stats = self.flow_stats(id).ok_or(ChangeError::UnknownFlow)?;
        let flow = &mut self.flows[id.index()];
        flow.queue.tag = 0;
        flow.ledger.close();
        let account = core::mem::replace(&mut flow.queue.side, NO_ACCOUNT);
        if account != NO_ACCOUNT {
            self.accounts.release(account);
        }
        if self
            .algorithm
            .remove(self.flows.as_mut_slice(), id.entity())
            == Removal::Done
        {
            self.free_flows.push(id);
        }
        Ok(stats)
    }

    /// Discards the backlog of a flow; its packets go to `discard` in order. The flow stays, and keeps its place in the
    /// order. O(packets queued in the flow; with FIFO, in all).
    pub fn flush_flow(
        &mut self,
        id: FlowId,
        mut discard: impl FnMut(Packet<P, FlowId, L>),
    ) -> Result<(), ChangeError> {
        let flow = self.flow(id).ok_or(ChangeError::UnknownFlow)?;
        if let Some(first) = flow.queue.packets.front_length(&self.slab) {
            self.flows[id.index()].ledger.forget(first);
        }
        let mut gone = 0;
        while let Some((len, payload)) = self.flows[id.index()]
            .queue
            .packets
            .pop_front(&mut self.slab)
        {
            let flow = &mut self.flows[id.index()];
            flow.queue.give_room(len);
            self.room_bytes += i64::from(len.amount());
            self.discarded.add(len);
            self.account(id).discarded.add(len);
            gone += 1;
            discard(Packet {
                owner: id,
                len,
                payload,
            });
        }
        if gone > 0 {
            self.algorithm
                .discarded(self.flows.as_mut_slice(), id.entity(), gone);
        }
        Ok(())
    }

    /// Accepts a packet into its flow, or hands it back with the reason. The
    /// length is frozen here: nothing reads it from the payload later.
    #[inline]
    pub fn enqueue(&mut self, id: FlowId, len: L, payload: P) -> Result<(), Rejected<P, L>> {
        let bytes = len.amount();
        let Some(flow) = self.flows.get_mut(id.index()) else {
            return Err(self.rejected(id, len, payload, Against::Length));
        };
        if bytes > flow.max_length() {
            return Err(self.rejected(id, len, payload, Against::Length));
        }
        // Space is taken at once, since the result of each subtraction shows whether there was enough.
        flow.queue.room_packets -= 1;
        if flow.queue.room_packets < 0 {
            return Err(self.rejected(id, len, payload, Against::FlowPackets));
        }
        if !flow.queue.room_bytes.take(bytes) {
            return Err(self.rejected(id, len, payload, Against::FlowBytes));
        }
        let room = self.room_bytes;
        self.room_bytes = room.wrapping_sub(i64::from(bytes));
        if room < i64::from(bytes) {
            return Err(self.rejected(id, len, payload, Against::Bytes));
        }
        let Some(vacant) = self.slab.vacant() else {
            return self.enqueue_with_growth(id, len, payload);
        };
        let stored = vacant.fill(len, payload);
        self.append(id, len, stored);
        Ok(())
    }

    /// A packet for which room was taken is in the slab.
    #[inline(always)]
    fn append(&mut self, id: FlowId, len: L, stored: Stored) {
        let Some(flow) = self.flows.get_mut(id.index()) else {
            return;
        };
        flow.queue.count_accepted(len);
        self.accepted_bytes += u64::from(len.amount());
        if flow.queue.packets.append(&mut self.slab, stored) {
            self.activate(id, len);
        }
        self.algorithm
            .arrived(self.flows.as_mut_slice(), id.entity(), len.into());
    }

    /// A packet for which room was taken finds no free slot.
    #[cold]
    #[inline(never)]
    fn enqueue_with_growth(
        &mut self,
        id: FlowId,
        len: L,
        payload: P,
    ) -> Result<(), Rejected<P, L>> {
        match self.slab.insert(len, payload) {
            Ok(stored) => self.append(id, len, stored),
            Err(payload) => return Err(self.rejected(id, len, payload, Against::Packets)),
        }
        Ok(())
    }

    /// Activates a flow that was empty and got a packet. A function of its own, so that the code after a packet keeps
    /// its registers.
    #[cold]
    #[inline(never)]
    fn activate(&mut self, id: FlowId, len: L) {
        let flow = self.flows.get_mut(id.index());
        let head = flow.map_or(len.into(), |flow| flow.ledger.tell(len, flow.max_length()));
        self.algorithm
            .backlogged(self.flows.as_mut_slice(), id.entity(), head);
    }

    /// Returns how many packets of the flow's maximum length, or of as many bytes as it may hold if that is less, would
    /// be accepted now: 0 for an unknown flow. O(1).
    pub fn room(&self, id: FlowId) -> u32 {
        let Some(flow) = self.flow(id) else {
            return 0;
        };
        let most = i64::from(self.limits_of(id).bytes).max(1);
        let longest = i64::from(flow.max_length()).min(most);
        let room: i64 = flow.queue.room_bytes.into();
        let bytes = room.min(self.room_bytes) / longest;
        let packets = i64::from(flow.queue.room_packets).min(i64::from(self.slab.room()));
        bytes.min(packets).clamp(0, i64::from(u32::MAX)) as u32
    }

    #[inline]
    fn rejected(&mut self, id: FlowId, len: L, payload: P, against: Against) -> Rejected<P, L> {
        let reason = self.reject(id, len, against);
        Rejected { payload, reason }
    }

    /// Counts a packet that is not accepted, and says why.
    #[cold]
    #[inline(never)]
    fn reject(&mut self, id: FlowId, len: L, against: Against) -> Rejection<L> {
        self.dropped.add(len);
        if self.flow(id).is_none() {
            return Rejection::Unknown;
        }
        self.account(id).dropped.add(len);
        let flow = &mut self.flows[id.index()];
        if against >= Against::FlowPackets {
            flow.queue.room_packets += 1;
        }
        if against >= Against::FlowBytes {
            flow.queue.room_bytes.give(len.amount());
        }
        if against >= Against::Bytes {
            self.room_bytes += i64::from(len.amount());
        }
        match against {
            Against::Length => Rejection::TooLong {
                max: L::of_amount(flow.max_length()).unwrap_or(L::LARGEST),
            },
            Against::FlowPackets | Against::FlowBytes => Rejection::QueueFull,
            Against::Bytes | Against::Packets => Rejection::LinkFull,
        }
    }

    /// Reports that the link has yet to transmit `work()` of the packets it was given, in 2^-64 bytes. An owner that
    /// knows it calls this before each [`enqueue`](Self::enqueue), so that WFQ and WF2Q count an arrival at its time
    /// and not at the end of the packet in service; other algorithms ignore it. O(1), except that it costs those two as
    /// much as a dequeue.
    #[inline]
    pub fn unsent(&mut self, work: impl FnOnce() -> u128) {
        if A::FOLLOWS_LINK {
            self.algorithm.unsent(work());
        }
    }

    /// Returns the packet that [`dequeue`](Self::dequeue) would return, without removing it.
    pub fn peek(&mut self) -> Option<Packet<&P, FlowId, L>> {
        let (id, packets) = loop {
            self.algorithm.settle(self.flows.as_mut_slice());
            let selected = self.algorithm.select(self.flows.as_slice());
            let flow = self.flows.get(selected.index())?;
            let id = EntityId::in_use(selected.index() as u32);
            if !flow.queue.packets.is_empty() {
                break (id, flow.queue.packets);
            }
            self.pass_over(id);
        };
        let (len, payload) = packets.front(&self.slab)?;
        Some(Packet {
            owner: FlowId::of(id),
            len,
            payload,
        })
    }

    /// Removes and returns the next packet, which the caller then owns; `None` if the backlog is empty.
    #[inline]
    pub fn dequeue(&mut self) -> Option<Packet<P, FlowId, L>> {
        match self.dequeue_selected() {
            Ok(packet) => Some(packet),
            Err(emptied) => self.dequeue_behind(emptied?),
        }
    }

    /// The same where the selected flow lost its packets while it waited.
    #[cold]
    #[inline(never)]
    fn dequeue_behind(&mut self, emptied: EntityId) -> Option<Packet<P, FlowId, L>> {
        let mut emptied = emptied;
        loop {
            self.pass_over(emptied);
            match self.dequeue_selected() {
                Ok(packet) => return Some(packet),
                Err(next) => emptied = next?,
            }
        }
    }

    /// The selected flow's next packet; `Err` with the flow if that lost its packets, or with none.
    #[inline(always)]
    fn dequeue_selected(&mut self) -> Result<Packet<P, FlowId, L>, Option<EntityId>> {
        let flows = self.flows.as_mut_slice();
        self.algorithm.settle(flows);
        let selected = self.algorithm.select(flows);
        let flow = flows.get_mut(selected.index()).ok_or(None)?;
        let id = EntityId::in_use(selected.index() as u32);
        let first = flow.queue.packets.advance(&mut self.slab);
        let (len, payload, rest) = first.ok_or(Some(id))?;
        flow.queue.room_packets += 1;
        flow.queue.room_bytes.give(len.amount());
        self.room_bytes += i64::from(len.amount());
        let charged = flow.ledger.told(len);
        // One branch for each, so that the code after it knows which of them applies.
        match rest.length() {
            Some(next) => {
                let next = flow.ledger.tell(next, flow.max_length());
                if !self.algorithm.step(flows, id, charged, Some(next)) {
                    self.reschedule(id, charged, Some(next));
                }
            }
            None => {
                if !self.algorithm.step(flows, id, charged, None) {
                    self.reschedule(id, charged, None);
                }
            }
        }
        Ok(Packet {
            owner: FlowId::of(id),
            len,
            payload,
        })
    }

    /// A packet was sent, and the algorithm has more to do than a step.
    #[cold]
    #[inline(never)]
    fn reschedule(&mut self, id: EntityId, charged: Charge, next: Option<Charge>) {
        self.algorithm.served(charged);
        self.algorithm
            .reschedule(self.flows.as_mut_slice(), id, charged, next);
    }

    /// The selected flow lost its packets while it waited.
    #[cold]
    #[inline(never)]
    fn pass_over(&mut self, id: EntityId) {
        self.algorithm.idle(self.flows.as_mut_slice(), id);
        if self.flows[id.index()].max_length() == 0 {
            self.free_flows.push(FlowId::of(id));
        }
    }

    /// Weight of a flow, or `None` if there is no such flow. O(1).
    pub fn weight(&self, id: FlowId) -> Option<Weight> {
        self.flow(id)?;
        Some(self.algorithm.weight(self.flows.as_slice(), id.entity()))
    }

    /// Returns the counters of a flow, or `None` if there is no such flow. O(1).
    pub fn flow_stats(&self, id: FlowId) -> Option<FlowStats> {
        let flow = self.flow(id)?;
        let limits = self.limits_of(id);
        let account = self.accounts.get(flow.queue.side as usize);
        let (accepted, queued) = (flow.queue.accepted(), flow.queue.queued(limits));
        let discarded = account.map_or(Count::default(), |a| a.discarded);
        Some(FlowStats {
            accepted,
            sent: accepted.minus(discarded).minus(queued),
            queued,
            dropped: account.map_or(Count::default(), |a| a.dropped),
            discarded,
        })
    }

    /// Returns the counters of all packets, those of removed flows included. O(1).
    pub fn total_stats(&self) -> TotalStats {
        let limit = self.limits.bytes.min(i64::MAX as u64) as i64;
        let queued = Count {
            packets: u64::from(self.slab.len()),
            bytes: (limit - self.room_bytes) as u64,
        };
        let accepted = Count {
            packets: self.slab.stored(),
            bytes: self.accepted_bytes,
        };
        FlowStats {
            accepted,
            sent: accepted.minus(self.discarded).minus(queued),
            queued,
            dropped: self.dropped,
            discarded: self.discarded,
        }
    }

    /// Packets waiting in all flows. O(1).
    #[inline]
    pub fn len(&self) -> u32 {
        self.slab.len()
    }

    /// Returns whether the backlog is empty. O(1).
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.slab.is_empty()
    }

    fn flow(&self, id: FlowId) -> Option<&Flow<A::Entity, L>> {
        self.flows
            .get(id.index())
            .filter(|flow| flow.max_length() != 0)
    }

    fn limits_of(&self, id: FlowId) -> Limits {
        let account = self.flows[id.index()].queue.side as usize;
        self.accounts
            .get(account)
            .map_or(self.limits.per_flow, |a| a.limits)
    }

    /// The account of a flow, opened where it has none. By itself: packets seldom need it.
    #[inline(never)]
    fn account(&mut self, id: FlowId) -> &mut Account {
        let flow = &mut self.flows[id.index()];
        if flow.queue.side == NO_ACCOUNT {
            let fresh = Account {
                limits: self.limits.per_flow,
                dropped: Count::default(),
                discarded: Count::default(),
            };
            flow.queue.side = self.accounts.insert(fresh);
        }
        &mut self.accounts[flow.queue.side as usize]
    }

    /// Checks that every count is the sum of its parts, that every flow with
    /// packets has a place in the order, and the algorithm's own invariants. For
    /// tests: O(flows + packets).
    pub fn invariants(&self) -> Result<(), Violation> {
        let mut total = Count::default();
        for (number, flow) in (0u32..).zip(&self.flows) {
            let id = FlowId::new(number);
            let mut queued = Count::default();
            for (len, _) in flow.queue.packets.iter(&self.slab) {
                queued.add(len);
            }
            total = total.plus(queued);
            ensure_invariant!(
                queued.packets == 0 || self.algorithm.is_active(self.flows.as_slice(), id.entity()),
                "flow {number} holds packets and has no place in the order"
            );
            let Some(stats) = self.flow_stats(id) else {
                ensure_invariant!(queued.packets == 0, "removed flow {number} holds packets");
                continue;
            };
            ensure_invariant!(
                stats.queued == queued,
                "flow {number} counts {:?}, holds {queued:?}",
                stats.queued
            );
        }
        let stats = self.total_stats();
        ensure_invariant!(
            stats.queued == total,
            "the scheduler counts {:?}, holds {total:?}",
            stats.queued
        );
        self.algorithm.invariants(self.flows.as_slice())
    }
}
