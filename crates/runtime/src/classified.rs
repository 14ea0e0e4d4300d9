//! A queue of classes: where a packet goes is told by the packet, not by who pushed it.

use std::collections::VecDeque;

use fairlane_core::scheduler::Violation;
use fairlane_core::tree::{self, ClassFlow, ClassId, ClassQueue, Payload};
use fairlane_core::{
    ChangeError, Dequeue, FlowConfig, FlowId, FlowStats, Length, Nanos, Packet, Rejected,
    Rejection, TotalStats,
};

use crate::queue::Queue;

/// Says where packets go, and is told what became of them.
pub trait Classify<P> {
    /// Where a packet that comes at `now` goes. `len` counts what the link carries.
    fn classify(&mut self, payload: &P, len: Length, now: Nanos) -> ClassFlow;

    /// A packet of `class` that came was not accepted for want of room, or one that waited has
    /// given way.
    fn refused(&mut self, class: ClassId, payload: &P) {
        let _ = (class, payload);
    }

    /// The packet leaves at `now`.
    fn leaves(&mut self, class: ClassId, payload: &P, len: Length, now: Nanos) {
        let _ = (class, payload, len, now);
    }
}

/// A packet, and the port that it came by.
#[derive(Debug)]
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

/// Classes behind an arbiter: each packet goes where `K` says, whoever pushed it. The flows that
/// the arbiter knows are *ports*: they have a longest packet and counts, no share and no limits.
///
/// `C` decides who is next, and drops or marks what waits too long. What it drops is counted for
/// the port too, and told to the client as any drop.
#[derive(Debug)]
pub struct Classified<P, C, K> {
    classes: C,
    classify: K,
    /// By number; `None` is free.
    ports: Vec<Option<Port>>,
    free: Vec<FlowId>,
    total: TotalStats,
    /// Packets that came while nothing may change the order, and whether that is so.
    held: VecDeque<(Length, FromPort<P>)>,
    holding: bool,
}

#[derive(Clone, Copy, Debug)]
struct Port {
    max_length: Length,
    stats: FlowStats,
}

/// Most ports: their numbers are those of flows.
const MOST_PORTS: usize = fairlane_core::scheduler::MAX_ENTITIES;

impl<P, C, K> Classified<P, C, K> {
    /// A queue without ports. `classes` is empty.
    pub fn new(classes: C, classify: K) -> Self {
        Classified {
            classes,
            classify,
            ports: Vec::new(),
            free: Vec::new(),
            total: TotalStats::default(),
            held: VecDeque::new(),
            holding: false,
        }
    }

    /// The classes.
    pub fn classes(&self) -> &C {
        &self.classes
    }

    /// Who says where packets go.
    pub fn classifier(&self) -> &K {
        &self.classify
    }

    /// Who says where packets go, to change: those that come from now on go by it.
    pub fn classifier_mut(&mut self) -> &mut K {
        &mut self.classify
    }

    fn port(&self, flow: FlowId) -> Option<&Port> {
        self.ports.get(flow.number() as usize)?.as_ref()
    }
}

/// What a port and the total count, both the same.
fn both<'a>(
    ports: &'a mut [Option<Port>],
    total: &'a mut TotalStats,
    port: FlowId,
) -> impl Iterator<Item = &'a mut FlowStats> {
    let port = ports.get_mut(port.number() as usize);
    let port = port.and_then(Option::as_mut).map(|port| &mut port.stats);
    port.into_iter().chain([total])
}

fn discard(ports: &mut [Option<Port>], total: &mut TotalStats, port: FlowId, len: Length) {
    for stats in both(ports, total, port) {
        stats.queued.subtract(len);
        stats.discarded.add(len);
    }
}

impl<P, C, K> Classified<P, C, K>
where
    P: Payload + Send,
    C: ClassQueue<FromPort<P>>,
    K: Classify<P>,
{
    /// The classes, to change or to exchange: whatever leaves them otherwise than by
    /// [`dequeue`](Queue::dequeue) is given to [`adopt`](Self::adopt).
    pub fn classes_mut(&mut self) -> &mut C {
        &mut self.classes
    }

    /// Queues a packet that was taken out of classes, these or others, where `to` says by the
    /// class that it was in. One that is not accepted there, or that gives way to another, is
    /// discarded, and counted.
    #[inline]
    pub fn adopt(
        &mut self,
        taken: tree::Discarded<FromPort<P>>,
        to: impl FnOnce(&mut K, ClassId, &P) -> ClassFlow,
        now: Nanos,
    ) {
        let to = to(&mut self.classify, taken.class, &taken.payload.payload);
        self.place(to, taken.len, taken.payload, now);
    }

    /// Until [`go_on`](Self::go_on), packets that come wait beside the classes, in order, and
    /// none leaves: for packets that are moved from class to class in several steps.
    pub fn hold(&mut self) {
        self.holding = true;
    }

    /// Queues up to `most` of the packets that came while they were held. Returns whether there
    /// are no others: then it holds nothing any more. O(`most`).
    pub fn go_on(&mut self, most: usize, now: Nanos) -> bool {
        for _ in 0..most {
            let Some((len, packet)) = self.held.pop_front() else {
                break;
            };
            let to = self.classify.classify(&packet.payload, len, now);
            self.place(to, len, packet, now);
        }
        self.holding = !self.held.is_empty();
        !self.holding
    }

    fn place(&mut self, to: ClassFlow, len: Length, packet: FromPort<P>, now: Nanos) {
        let port = packet.port;
        let ClassFlow { class, flow } = to;
        let (ports, total) = (&mut self.ports, &mut self.total);
        let gives_way = |gone: tree::Discarded<FromPort<P>>| {
            discard(ports, total, gone.payload.port, gone.len);
        };
        let placed = (self.classes).enqueue(class, flow, len, packet, now, gives_way);
        if placed.is_err() {
            discard(&mut self.ports, &mut self.total, port, len);
        }
    }
}

fn is_want_of_room(rejection: Rejection) -> bool {
    matches!(rejection, Rejection::QueueFull | Rejection::LinkFull)
}

impl<P, C, K> Queue for Classified<P, C, K>
where
    P: Payload + Send,
    C: ClassQueue<FromPort<P>>,
    K: Classify<P>,
{
    type Payload = P;

    const DISCARDS: bool = true;

    fn add_flow(&mut self, config: FlowConfig) -> Result<FlowId, ChangeError> {
        let port = Port {
            max_length: config.max_length,
            stats: FlowStats::default(),
        };
        if let Some(flow) = self.free.pop() {
            self.ports[flow.number() as usize] = Some(port);
            return Ok(flow);
        }
        if self.ports.len() >= MOST_PORTS {
            return Err(ChangeError::TooManyFlows);
        }
        self.ports.push(Some(port));
        Ok(FlowId::new(self.ports.len() as u32 - 1))
    }

    /// Of the configuration, the longest packet counts. What is queued stays.
    fn change_flow(&mut self, flow: FlowId, config: FlowConfig) -> Result<(), ChangeError> {
        let port = self.ports.get_mut(flow.number() as usize);
        let port = port.and_then(Option::as_mut);
        port.ok_or(ChangeError::UnknownFlow)?.max_length = config.max_length;
        Ok(())
    }

    fn remove_flow(&mut self, flow: FlowId) -> Result<(), ChangeError> {
        let port = self.ports.get_mut(flow.number() as usize);
        port.and_then(Option::take)
            .ok_or(ChangeError::UnknownFlow)?;
        self.free.push(flow);
        Ok(())
    }

    #[inline]
    fn enqueue(
        &mut self,
        flow: FlowId,
        len: Length,
        payload: P,
        now: Nanos,
        mut on_discard: impl FnMut(Packet<P>),
    ) -> Result<(), Rejected<P>> {
        let Classified {
            classes,
            classify,
            ports,
            total,
            ..
        } = self;
        let port = ports.get(flow.number() as usize).and_then(Option::as_ref);
        let reason = match port {
            None => Rejection::Unknown,
            Some(&Port {
                max_length: max, ..
            }) if len > max => Rejection::TooLong { max },
            Some(_) if self.holding => {
                let packet = FromPort {
                    port: flow,
                    payload,
                };
                self.held.push_back((len, packet));
                for stats in both(&mut self.ports, &mut self.total, flow) {
                    stats.accepted.add(len);
                    stats.queued.add(len);
                }
                return Ok(());
            }
            Some(_) => {
                let ClassFlow {
                    class,
                    flow: digest,
                } = classify.classify(&payload, len, now);
                let packet = FromPort {
                    port: flow,
                    payload,
                };
                let gives_way = |gone: tree::Discarded<FromPort<P>>| {
                    let FromPort { port, payload } = gone.payload;
                    classify.refused(gone.class, &payload);
                    discard(ports, total, port, gone.len);
                    on_discard(Packet {
                        owner: port,
                        len: gone.len,
                        payload,
                    });
                };
                match classes.enqueue(class, digest, len, packet, now, gives_way) {
                    Ok(()) => {
                        for stats in both(ports, total, flow) {
                            stats.accepted.add(len);
                            stats.queued.add(len);
                        }
                        return Ok(());
                    }
                    Err(rejected) => {
                        if is_want_of_room(rejected.reason) {
                            classify.refused(class, &rejected.payload.payload);
                        }
                        for stats in both(ports, total, flow) {
                            stats.dropped.add(len);
                        }
                        return Err(Rejected {
                            payload: rejected.payload.payload,
                            reason: rejected.reason,
                        });
                    }
                }
            }
        };
        for stats in both(ports, total, flow) {
            stats.dropped.add(len);
        }
        Err(Rejected { payload, reason })
    }

    #[inline]
    fn dequeue(&mut self, now: Nanos, mut on_discard: impl FnMut(Packet<P>)) -> Dequeue<P> {
        let Classified {
            classes,
            classify,
            ports,
            total,
            holding,
            ..
        } = self;
        if *holding {
            return Dequeue::NotBefore(now);
        }
        let next = classes.dequeue(now, |gone| {
            let FromPort { port, payload } = gone.payload;
            discard(ports, total, port, gone.len);
            on_discard(Packet {
                owner: port,
                len: gone.len,
                payload,
            });
        });
        match next {
            Dequeue::Packet(packet) => {
                let FromPort { port, payload } = packet.payload;
                for stats in both(ports, total, port) {
                    stats.queued.subtract(packet.len);
                    stats.sent.add(packet.len);
                }
                classify.leaves(packet.owner, &payload, packet.len, now);
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
        self.port(flow).map(|port| port.stats)
    }

    fn total_stats(&self) -> TotalStats {
        self.total
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.classes.is_empty() && self.held.is_empty()
    }

    fn tidy(&mut self, now: Nanos) {
        self.classes.tidy(now);
    }

    fn invariants(&self) -> Result<(), Violation> {
        self.classes.invariants()?;
        let ports = self.ports.iter().flatten();
        let queued: u64 = ports.map(|port| port.stats.queued.packets).sum();
        let (classes, held) = (self.classes.len(), self.held.len());
        if queued != self.total.queued.packets || queued != u64::from(classes) + held as u64 {
            return Err(Violation(format!(
                "the ports hold {queued} packets, all of them {:?}, the classes {classes}, and \
                 {held} are held",
                self.total.queued
            )));
        }
        for stats in self.ports.iter().flatten().map(|port| port.stats) {
            let FlowStats {
                accepted,
                sent,
                queued,
                discarded,
                ..
            } = stats;
            if accepted.packets != sent.packets + discarded.packets + queued.packets {
                return Err(Violation(format!("a port counts {stats:?}")));
            }
        }
        Ok(())
    }
}
