//! A queue of classes: the packet, and not its client, decides the class.

use std::collections::VecDeque;
use std::fmt;

use fairlane_core::scheduler::Violation;
use fairlane_core::tree::{self, ClassFlow, ClassId, ClassQueue, Payload};
use fairlane_core::{
    ChangeError, Count, Dequeue, FlowConfig, FlowId, FlowStats, Length, Nanos, Packet, Rejected,
    Rejection, TotalStats,
};

use crate::queue::Queue;

/// Assigns packets to classes, and learns their fates.
pub trait Classify<P> {
    /// Returns the class of a packet that arrives at `now`. `len` is its length on the link.
    fn classify(&mut self, payload: &P, len: Length, now: Nanos) -> ClassFlow;

    /// The same for packets that arrive together: appends the class of each to `to`, in order. A classifier with large
    /// tables may find several at once faster than one by one. By default it costs as much as
    /// [`classify`](Self::classify) for each.
    fn classify_all<'a>(
        &mut self,
        packets: impl ExactSizeIterator<Item = (&'a P, Length)> + Clone,
        now: Nanos,
        to: &mut Vec<ClassFlow>,
    ) where
        P: 'a,
    {
        to.extend(packets.map(|(payload, len)| self.classify(payload, len, now)));
    }

    /// Reports that an arrival of `class` was rejected for lack of space, or that a queued packet was evicted.
    fn no_room(&mut self, class: ClassId, payload: &P) {
        let _ = (class, payload);
    }

    /// The packet leaves at `now`.
    fn leaves(&mut self, class: ClassId, payload: &P, len: Length, now: Nanos) {
        let _ = (class, payload, len, now);
    }
}

/// A packet, and its port.
pub struct FromPort<P> {
    port: FlowId,
    payload: P,
}

impl<P: Payload> Payload for FromPort<P> {
    #[inline]
    fn mark(&mut self) -> bool {
        self.payload.mark()
    }
}

/// Classes behind an arbiter: `K` selects the class of each packet, whichever client pushed it. The flows that the
/// arbiter knows are *ports*: they have a longest packet and counts, no share and no limits.
///
/// `C` selects the next packet, and drops or marks packets that wait too long. Its drops count for the port too, and
/// are reported to the client as any drop.
///
/// ```
/// use fairlane_core::sched::Algorithm;
/// use fairlane_core::tree::{ClassConfig, ClassFlow, ClassId, LeafConfig, Tree};
/// use fairlane_core::{FlowConfig, Length, Nanos, Weight};
/// use fairlane_runtime::{Classified, Classify, FromPort, Queue};
///
/// /// Packets that begin with an exclamation mark are urgent.
/// struct ByFirst {
///     urgent: ClassId,
///     rest: ClassId,
/// }
///
/// impl Classify<String> for ByFirst {
///     fn classify(&mut self, packet: &String, _len: Length, _now: Nanos) -> ClassFlow {
///         let class = if packet.starts_with('!') { self.urgent } else { self.rest };
///         ClassFlow { class, flow: 0 }
///     }
/// }
///
/// let longest = Length::try_from(1_000u32)?;
/// let mut classes: Tree<FromPort<String>> = Tree::new(Algorithm::Qfq, None, Default::default());
/// let mut leaf = |weight| {
///     let config = ClassConfig::new(Weight::new(weight).unwrap(), longest);
///     classes.add_leaf(ClassId::ROOT, config, LeafConfig::default())
/// };
/// let by_first = ByFirst { urgent: leaf(9)?, rest: leaf(1)? };
/// let urgent = by_first.urgent;
///
/// // A client is a port, without a share of its own.
/// let mut queue = Classified::new(classes, by_first);
/// let port = queue.add_flow(FlowConfig::new(Weight::ONE, longest))?;
/// for text in ["a letter", "! a call", "another letter"] {
///     queue.enqueue(port, Length::try_from(text.len())?, text.to_owned(), Nanos::ZERO, drop)?;
/// }
/// assert_eq!(queue.classes().stats(urgent).unwrap().queued.packets, 1);
/// assert_eq!(queue.total_stats().queued.packets, 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Classified<P, C, K> {
    classes: C,
    classify: K,
    ports: Ports,
    /// Packets that arrived while the order must not change, and whether that is so.
    held: VecDeque<(Length, FromPort<P>)>,
    holding: bool,
    /// Of these, those that arrived since some of them were queued.
    came: Option<usize>,
    /// The classes of packets that arrive together.
    to: Vec<ClassFlow>,
}

/// The ports, and what became of their packets.
#[derive(Debug, Default)]
struct Ports {
    /// By number; `None` is free.
    ports: Vec<Option<Port>>,
    free: Vec<FlowId>,
    /// Counts of packets of ports that were removed, or never existed.
    gone: TotalStats,
}

#[derive(Clone, Copy, Debug)]
struct Port {
    max_length: Length,
    /// The number of queued packets is the difference of the others.
    stats: FlowStats,
}

/// Returns the counts with the queued packets filled in.
fn with_queued(stats: FlowStats) -> FlowStats {
    FlowStats {
        queued: stats.accepted.minus(stats.sent).minus(stats.discarded),
        ..stats
    }
}

/// Most ports: their numbers are those of flows.
const MOST_PORTS: usize = fairlane_core::scheduler::MAX_ENTITIES;

impl Ports {
    fn add(&mut self, max_length: Length) -> Result<FlowId, ChangeError> {
        let port = Some(Port {
            max_length,
            stats: FlowStats::default(),
        });
        if let Some(flow) = self.free.pop() {
            self.ports[flow.number() as usize] = port;
            return Ok(flow);
        }
        if self.ports.len() >= MOST_PORTS {
            return Err(ChangeError::TooManyFlows);
        }
        self.ports.push(port);
        Ok(FlowId::new(self.ports.len() as u32 - 1))
    }

    fn remove(&mut self, flow: FlowId) -> Result<(), ChangeError> {
        let port = self.ports.get_mut(flow.number() as usize);
        let port = port.and_then(Option::take);
        self.gone = sum(self.gone, port.ok_or(ChangeError::UnknownFlow)?.stats);
        self.free.push(flow);
        Ok(())
    }

    #[inline]
    fn get(&self, flow: FlowId) -> Option<&Port> {
        self.ports.get(flow.number() as usize)?.as_ref()
    }

    #[inline]
    fn get_mut(&mut self, flow: FlowId) -> Option<&mut Port> {
        self.ports.get_mut(flow.number() as usize)?.as_mut()
    }

    /// The counts of a port.
    #[inline]
    fn of(&mut self, flow: FlowId) -> &mut FlowStats {
        match self.ports.get_mut(flow.number() as usize) {
            Some(Some(port)) => &mut port.stats,
            _ => &mut self.gone,
        }
    }

    /// O(ports).
    fn total(&self) -> TotalStats {
        let ports = self.ports.iter().flatten();
        with_queued(ports.map(|port| port.stats).fold(self.gone, sum))
    }
}

/// Returns the sum of two counts, without queued packets.
fn sum(one: FlowStats, other: FlowStats) -> FlowStats {
    FlowStats {
        accepted: one.accepted.plus(other.accepted),
        sent: one.sent.plus(other.sent),
        queued: Count::default(),
        dropped: one.dropped.plus(other.dropped),
        discarded: one.discarded.plus(other.discarded),
    }
}

impl<P, C, K> Classified<P, C, K> {
    /// Returns a queue without ports. `classes` is empty.
    pub fn new(classes: C, classify: K) -> Self {
        Classified {
            classes,
            classify,
            ports: Ports::default(),
            held: VecDeque::new(),
            holding: false,
            came: None,
            to: Vec::new(),
        }
    }

    /// Returns the classes.
    pub fn classes(&self) -> &C {
        &self.classes
    }

    /// Returns the classifier.
    pub fn classifier(&self) -> &K {
        &self.classify
    }

    /// Returns the classifier, mutably: changes apply to later arrivals.
    #[doc(hidden)]
    pub fn classifier_mut(&mut self) -> &mut K {
        &mut self.classify
    }
}

impl<P, C, K> Classified<P, C, K>
where
    P: Send,
    C: ClassQueue<FromPort<P>>,
    K: Classify<P>,
{
    /// Returns the classes, to change or to exchange: whatever leaves them otherwise than by
    /// [`dequeue`](Queue::dequeue) is given to [`adopt`](Self::adopt).
    #[doc(hidden)]
    pub fn classes_mut(&mut self) -> &mut C {
        &mut self.classes
    }

    /// Queues a packet that was taken out of classes, these or others, where `to` says by the class that it was in.
    /// One that is rejected there, or evicted, is discarded, and counted.
    #[inline]
    #[doc(hidden)]
    pub fn adopt(
        &mut self,
        taken: tree::Discarded<FromPort<P>>,
        to: impl FnOnce(&mut K, ClassId, &P) -> ClassFlow,
        now: Nanos,
    ) {
        let to = to(&mut self.classify, taken.class, &taken.payload.payload);
        self.place(to, taken.len, taken.payload, now);
    }

    /// Counts and drops a packet that was taken out of the classes and will not be sent; returns its port.
    #[inline]
    pub fn discard(&mut self, taken: tree::Discarded<FromPort<P>>) -> FlowId {
        let port = taken.payload.port;
        self.ports.of(port).discarded.add(taken.len);
        port
    }

    /// Dequeues the packet that would be next without ceilings, for a caller that queues it elsewhere: it counts as
    /// sent, but its departure is not reported. Packets discarded meanwhile are dropped, and counted.
    pub fn hand_over(&mut self, now: Nanos) -> Option<(Length, P)> {
        const MOST_FREED: u32 = 64;
        loop {
            let ports = &mut self.ports;
            let next = self.classes.dequeue(now, |gone| {
                ports.of(gone.payload.port).discarded.add(gone.len);
            });
            match next {
                Dequeue::Packet(packet) => {
                    let FromPort { port, payload } = packet.payload;
                    self.ports.of(port).sent.add(packet.len);
                    return Some((packet.len, payload));
                }
                Dequeue::NotBefore(_) if self.classes.free_held(MOST_FREED, now) > 0 => {}
                Dequeue::NotBefore(_) | Dequeue::Empty => return None,
            }
        }
    }

    /// Holds arrivals in order outside the classes until [`go_on`](Self::go_on), and releases none: for moving packets
    /// between classes in several steps.
    pub fn hold(&mut self) {
        self.holding = true;
        self.came = None;
    }

    /// Classifies up to `most` of the held packets, plus as many as have arrived since the last call, so that it
    /// finishes however fast they arrive. Returns whether none is left, which ends the hold. O(`most`), plus the cost
    /// that the others would have had on arrival.
    #[doc(hidden)]
    pub fn go_on(&mut self, most: usize, now: Nanos) -> bool {
        let came = self.came.replace(0).unwrap_or(0);
        for _ in 0..most + came {
            let Some((len, packet)) = self.held.pop_front() else {
                break;
            };
            let to = self.classify.classify(&packet.payload, len, now);
            self.place(to, len, packet, now);
        }
        self.holding = !self.held.is_empty();
        !self.holding
    }

    /// The same as [`enqueue`](Queue::enqueue) with another source of the packet's class: `to`, which is called at
    /// once, or later the classifier if packets are [held](Self::hold).
    ///
    /// # Errors
    ///
    /// The packet is returned with the reason, and is counted.
    #[inline]
    #[doc(hidden)]
    pub fn enqueue_by(
        &mut self,
        flow: FlowId,
        len: Length,
        payload: P,
        now: Nanos,
        to: impl FnOnce(&mut K, &P) -> ClassFlow,
        mut on_discard: impl FnMut(Packet<P>),
    ) -> Result<(), Rejected<P>> {
        let Classified {
            classes,
            classify,
            ports,
            ..
        } = self;
        let Some(Some(port)) = ports.ports.get_mut(flow.number() as usize) else {
            ports.gone.dropped.add(len);
            let reason = Rejection::Unknown;
            return Err(Rejected { payload, reason });
        };
        if len > port.max_length {
            port.stats.dropped.add(len);
            let max = port.max_length;
            let reason = Rejection::TooLong { max };
            return Err(Rejected { payload, reason });
        }
        // Taken back if it is not: seldom.
        port.stats.accepted.add(len);
        let packet = FromPort {
            port: flow,
            payload,
        };
        if self.holding {
            self.held.push_back((len, packet));
            self.came = self.came.map(|came| came + 1);
            return Ok(());
        }
        let to = to(classify, &packet.payload);
        let gives_way = |gone: tree::Discarded<FromPort<P>>| {
            let FromPort { port, payload } = gone.payload;
            classify.no_room(gone.class, &payload);
            ports.of(port).discarded.add(gone.len);
            on_discard(Packet {
                owner: port,
                len: gone.len,
                payload,
            });
        };
        let Err(rejected) = classes.enqueue(to.class, to.flow, len, packet, now, gives_way) else {
            return Ok(());
        };
        let (payload, reason) = (rejected.payload.payload, rejected.reason);
        if is_want_of_room(reason) {
            classify.no_room(to.class, &payload);
        }
        let stats = ports.of(flow);
        stats.accepted.subtract(len);
        stats.dropped.add(len);
        Err(Rejected { payload, reason })
    }

    /// Returns whether each of these is put into its class at once, or rejected there.
    #[inline]
    fn takes_all(&self, flow: FlowId, packets: &[(Length, P)]) -> bool {
        let port = self.ports.get(flow);
        let longest = port.map(|port| port.max_length);
        !self.holding && packets.iter().all(|&(len, _)| Some(len) <= longest)
    }

    fn place(&mut self, to: ClassFlow, len: Length, packet: FromPort<P>, now: Nanos) {
        let port = packet.port;
        let ClassFlow { class, flow } = to;
        let ports = &mut self.ports;
        let gives_way = |gone: tree::Discarded<FromPort<P>>| {
            ports.of(gone.payload.port).discarded.add(gone.len);
        };
        let placed = (self.classes).enqueue(class, flow, len, packet, now, gives_way);
        if placed.is_err() {
            self.ports.of(port).discarded.add(len);
        }
    }
}

fn is_want_of_room(rejection: Rejection) -> bool {
    matches!(rejection, Rejection::QueueFull | Rejection::LinkFull)
}

impl<P, C, K> Queue for Classified<P, C, K>
where
    P: Send,
    C: ClassQueue<FromPort<P>>,
    K: Classify<P>,
{
    type Payload = P;

    const DISCARDS: bool = true;

    fn add_flow(&mut self, config: FlowConfig) -> Result<FlowId, ChangeError> {
        self.ports.add(config.max_length)
    }

    /// Only the longest packet of the configuration applies. Queued packets stay.
    fn change_flow(&mut self, flow: FlowId, config: FlowConfig) -> Result<(), ChangeError> {
        let port = self.ports.get_mut(flow);
        port.ok_or(ChangeError::UnknownFlow)?.max_length = config.max_length;
        Ok(())
    }

    fn remove_flow(&mut self, flow: FlowId) -> Result<(), ChangeError> {
        self.ports.remove(flow)
    }

    #[inline]
    fn enqueue(
        &mut self,
        flow: FlowId,
        len: Length,
        payload: P,
        now: Nanos,
        on_discard: impl FnMut(Packet<P>),
    ) -> Result<(), Rejected<P>> {
        let to = |classify: &mut K, payload: &P| classify.classify(payload, len, now);
        self.enqueue_by(flow, len, payload, now, to, on_discard)
    }

    fn enqueue_all(
        &mut self,
        flow: FlowId,
        packets: &mut Vec<(Length, P)>,
        now: Nanos,
        mut on_discard: impl FnMut(Packet<P>),
        mut rejected: impl FnMut(Rejected<P>),
    ) {
        let mut to = std::mem::take(&mut self.to);
        // Only those are looked at that are queued now: others later, or never.
        if self.takes_all(flow, packets) {
            let packets = packets.iter().map(|(len, payload)| (payload, *len));
            let count = packets.len();
            self.classify.classify_all(packets, now, &mut to);
            debug_assert_eq!(to.len(), count, "one for each packet");
        }
        let mut known = to.drain(..);
        for (len, payload) in packets.drain(..) {
            let to = |classify: &mut K, payload: &P| match known.next() {
                Some(to) => to,
                None => classify.classify(payload, len, now),
            };
            if let Err(back) = self.enqueue_by(flow, len, payload, now, to, &mut on_discard) {
                rejected(back);
            }
        }
        drop(known);
        self.to = to;
    }

    #[inline]
    fn dequeue(&mut self, now: Nanos, mut on_discard: impl FnMut(Packet<P>)) -> Dequeue<P> {
        if self.holding {
            return Dequeue::NotBefore(now);
        }
        let ports = &mut self.ports;
        let next = self.classes.dequeue(now, |gone| {
            let FromPort { port, payload } = gone.payload;
            ports.of(port).discarded.add(gone.len);
            on_discard(Packet {
                owner: port,
                len: gone.len,
                payload,
            });
        });
        match next {
            Dequeue::Packet(packet) => {
                let FromPort { port, ref payload } = packet.payload;
                ports.of(port).sent.add(packet.len);
                self.classify.leaves(packet.owner, payload, packet.len, now);
                let payload = packet.payload.payload;
                Dequeue::Packet(Packet {
                    owner: port,
                    len: packet.len,
                    payload,
                })
            }
            Dequeue::NotBefore(time) => Dequeue::NotBefore(time),
            Dequeue::Empty => Dequeue::Empty,
        }
    }

    /// The class of a packet is not known before the packet is: as many as there are.
    fn room(&self, _: FlowId) -> u32 {
        u32::MAX
    }

    fn flow_stats(&self, flow: FlowId) -> Option<FlowStats> {
        self.ports.get(flow).map(|port| with_queued(port.stats))
    }

    fn total_stats(&self) -> TotalStats {
        self.ports.total()
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.classes.is_empty() && self.held.is_empty()
    }

    fn free_held(&mut self, most: u32, now: Nanos) -> u32 {
        match self.holding {
            true => 0,
            false => self.classes.free_held(most, now),
        }
    }

    fn expire_idle(&mut self, now: Nanos) {
        self.classes.expire_idle(now);
    }

    fn invariants(&self) -> Result<(), Violation> {
        self.classes.invariants()?;
        let total = self.ports.total();
        let (classes, held) = (self.classes.len(), self.held.len());
        if total.queued.packets != u64::from(classes) + held as u64 {
            return Err(Violation(format!(
                "the ports count {total:?}, the classes hold {classes} packets, and {held} are held"
            )));
        }
        for Port { stats, .. } in self.ports.ports.iter().flatten() {
            if stats.accepted.packets < stats.sent.packets + stats.discarded.packets {
                return Err(Violation(format!("a port counts {stats:?}")));
            }
        }
        Ok(())
    }
}

impl<P> fmt::Debug for FromPort<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FromPort")
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}

impl<P, C, K> fmt::Debug for Classified<P, C, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Classified")
            .field("packets", &self.ports.total())
            .field("held", &self.held.len())
            .finish_non_exhaustive()
    }
}
