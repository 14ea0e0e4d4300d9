//! A queue of classes: where a packet goes is told by the packet, not by who pushed it.

use fairlane_core::scheduler::Violation;
use fairlane_core::tree::{self, ClassId, ClassQueue, Payload};
use fairlane_core::{
    ChangeError, Count, Dequeue, FlowConfig, FlowId, FlowStats, Length, Nanos, Packet, Rejected,
    Rejection, TotalStats,
};

use crate::queue::Queue;

/// Where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its class.
    pub class: ClassId,
    /// The digest of its flow, which only classes of flows look at.
    pub flow: u64,
}

/// Says where packets go, and is told what became of them.
pub trait Classify<P> {
    /// Where a packet that comes at `now` goes. `len` counts what the link carries.
    fn classify(&mut self, payload: &P, len: Length, now: Nanos) -> Target;

    /// The packet leaves at `now`.
    fn leaves(&mut self, class: ClassId, payload: &P, len: Length, now: Nanos) {
        let _ = (class, payload, len, now);
    }
}

/// A packet, and whose it is.
#[derive(Debug)]
pub struct Ported<P> {
    port: FlowId,
    payload: P,
}

impl<P: Payload> Payload for Ported<P> {
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
    payload: std::marker::PhantomData<fn(P)>,
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
            payload: std::marker::PhantomData,
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

fn add(count: &mut Count, len: Length) {
    count.packets += 1;
    count.bytes += u64::from(len.get());
}

fn subtract(count: &mut Count, len: Length) {
    count.packets -= 1;
    count.bytes -= u64::from(len.get());
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
        subtract(&mut stats.queued, len);
        add(&mut stats.discarded, len);
    }
}

impl<P, C, K> Classified<P, C, K>
where
    P: Payload + Send,
    C: ClassQueue<Ported<P>>,
    K: Classify<P>,
{
    /// Goes on with other classes and another classifier: what is queued moves over. `drain`
    /// takes all packets out of the former classes, those of a class in order; `target` says
    /// where each belongs from now on, by the class it was in. Returns what there was before.
    ///
    /// A packet that its new class does not accept, or that gives way to another there, is discarded,
    /// and counted.
    pub fn replace(
        &mut self,
        classes: C,
        classify: K,
        now: Nanos,
        drain: impl FnOnce(&mut C, &mut dyn FnMut(tree::Discarded<Ported<P>>)),
        mut target: impl FnMut(&mut K, ClassId, &P) -> Target,
    ) -> (C, K) {
        let mut former = std::mem::replace(&mut self.classes, classes);
        let classify = std::mem::replace(&mut self.classify, classify);
        drain(&mut former, &mut |moved| {
            let tree::Discarded {
                class,
                len,
                payload,
                ..
            } = moved;
            let port = payload.port;
            let (ports, total) = (&mut self.ports, &mut self.total);
            let Target { class, flow } = target(&mut self.classify, class, &payload.payload);
            let moved = self
                .classes
                .enqueue(class, flow, len, payload, now, |gone| {
                    discard(ports, total, gone.payload.port, gone.len);
                });
            if moved.is_err() {
                discard(ports, total, port, len);
            }
        });
        (former, classify)
    }
}

/// Why a port's packet was not accepted, in the words of flows. What queue management refuses is
/// refused for the length of a queue.
fn reason_of(rejection: tree::Rejection) -> Rejection {
    match rejection {
        tree::Rejection::UnknownClass | tree::Rejection::NoQueue => Rejection::UnknownFlow,
        tree::Rejection::TooLong { max } => Rejection::TooLong { max },
        tree::Rejection::QueueFull | tree::Rejection::Congestion => Rejection::FlowFull,
        tree::Rejection::TreeFull => Rejection::SchedulerFull,
    }
}

impl<P, C, K> Queue for Classified<P, C, K>
where
    P: Payload + Send,
    C: ClassQueue<Ported<P>>,
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
            None => Rejection::UnknownFlow,
            Some(&Port {
                max_length: max, ..
            }) if len > max => Rejection::TooLong { max },
            Some(_) => {
                let Target {
                    class,
                    flow: digest,
                } = classify.classify(&payload, len, now);
                let ported = Ported {
                    port: flow,
                    payload,
                };
                let gives_way = |gone: tree::Discarded<Ported<P>>| {
                    let Ported { port, payload } = gone.payload;
                    discard(ports, total, port, gone.len);
                    on_discard(Packet {
                        flow: port,
                        len: gone.len,
                        payload,
                    });
                };
                match classes.enqueue(class, digest, len, ported, now, gives_way) {
                    Ok(()) => {
                        for stats in both(ports, total, flow) {
                            add(&mut stats.accepted, len);
                            add(&mut stats.queued, len);
                        }
                        return Ok(());
                    }
                    Err(rejected) => {
                        for stats in both(ports, total, flow) {
                            add(&mut stats.dropped, len);
                        }
                        return Err(Rejected {
                            payload: rejected.payload.payload,
                            reason: reason_of(rejected.reason),
                        });
                    }
                }
            }
        };
        for stats in both(ports, total, flow) {
            add(&mut stats.dropped, len);
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
            ..
        } = self;
        let next = classes.dequeue(now, |gone| {
            let Ported { port, payload } = gone.payload;
            discard(ports, total, port, gone.len);
            on_discard(Packet {
                flow: port,
                len: gone.len,
                payload,
            });
        });
        match next {
            tree::Dequeue::Packet(packet) => {
                let Ported { port, payload } = packet.payload;
                for stats in both(ports, total, port) {
                    subtract(&mut stats.queued, packet.len);
                    add(&mut stats.sent, packet.len);
                }
                classify.leaves(packet.class, &payload, packet.len, now);
                Dequeue::Packet(Packet {
                    flow: port,
                    len: packet.len,
                    payload,
                })
            }
            tree::Dequeue::NotBefore(time) => Dequeue::NotBefore(time),
            tree::Dequeue::Empty => Dequeue::Empty,
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
        self.classes.is_empty()
    }

    fn tidy(&mut self, now: Nanos) {
        self.classes.tidy(now);
    }

    fn invariants(&self) -> Result<(), Violation> {
        self.classes.invariants()?;
        let ports = self.ports.iter().flatten();
        let queued: u64 = ports.map(|port| port.stats.queued.packets).sum();
        if queued != self.total.queued.packets || queued != u64::from(self.classes.len()) {
            return Err(Violation(format!(
                "the ports hold {queued} packets, all of them {:?}, the classes {}",
                self.total.queued,
                self.classes.len()
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
