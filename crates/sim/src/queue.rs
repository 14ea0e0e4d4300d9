//! The queue of a simulated link: a packet scheduler of flows, or queues of classes.

use crate::time::{Picos, Work};
use core::fmt;
use fairlane_core::scheduler::Scheduler;
use fairlane_core::tree::{self, ClassFlow, ClassQueue, Payload};
use fairlane_core::{
    AnyScheduler, ChangeError, Dequeue, FlowConfig, FlowId, FlowStats, Length, Nanos,
    PacketScheduler, Rejection,
};

/// The owner of a packet: a [`FlowId`] of a packet scheduler, a [`ClassFlow`] of queues of classes.
pub trait Label: Copy + fmt::Debug + PartialEq {}

impl Label for FlowId {}

impl Label for ClassFlow {}

/// A queue's answer to a request for its next packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next<P> {
    /// The packet, and its length.
    Packet(Length, P),
    /// Packets wait, and none may leave before this time.
    NotBefore(Nanos),
    /// Nothing waits.
    Empty,
}

/// Packets `P` that wait in an order, each for the one that its label names. Those that were
/// accepted and will not be sent go to `discard`, with their lengths.
///
/// ```
/// use fairlane_core::{FlowId, Length, Nanos, Rejection};
/// use fairlane_sim::{
///     Label, Next, PacketInfo, Picos, Queue, Server, Step, TransmitQueue, Waiting,
/// };
///
/// /// The last arrival is next.
/// struct Stack<P>(Vec<(Length, P)>);
///
/// impl<P> Queue<FlowId, P> for Stack<P> {
///     fn enqueue(
///         &mut self,
///         _to: FlowId,
///         len: Length,
///         packet: P,
///         _now: Nanos,
///         _discard: impl FnMut(Length, P),
///     ) -> Result<(), Rejection> {
///         self.0.push((len, packet));
///         Ok(())
///     }
///
///     fn dequeue(&mut self, _now: Nanos, _discard: impl FnMut(Length, P)) -> Next<P> {
///         self.0.pop().map_or(Next::Empty, |(len, packet)| Next::Packet(len, packet))
///     }
/// }
///
/// /// Of flows and of classes alike.
/// fn whose<L: Label>(packet: &PacketInfo<L>) -> String {
///     format!("packet {} of {:?}", packet.number, packet.flow)
/// }
///
/// let stack: Stack<Waiting<FlowId, char>> = Stack(Vec::new());
/// let mut server = Server::over(stack, "8mbit".parse()?, TransmitQueue::NONE, ());
/// let len = Length::try_from(1000u32)?;
/// for body in ['a', 'b', 'c'] {
///     server.arrive(Picos::ZERO, FlowId::new(0), len, body)?;
/// }
/// let mut sent = String::new();
/// while let Some(step) = server.step() {
///     if let Step::Completed(completion, body) = step {
///         println!("{}: {body}", whose(&completion.packet));
///         sent.push(body);
///     }
/// }
/// assert_eq!(sent, "cba");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Queue<L: Label, P> {
    /// Accepts a packet, or says why not.
    fn enqueue(
        &mut self,
        to: L,
        len: Length,
        packet: P,
        now: Nanos,
        discard: impl FnMut(Length, P),
    ) -> Result<(), Rejection>;

    /// The link has yet to transmit `work()`: said before each packet that arrives.
    fn unsent(&mut self, work: impl Fn() -> Work) {
        let _ = work;
    }

    /// Hands out the packet that is next at `now`.
    fn dequeue(&mut self, now: Nanos, discard: impl FnMut(Length, P)) -> Next<P>;

    /// Returns the length of the next packet, if it is known without a dequeue.
    fn head(&mut self) -> Option<Length> {
        None
    }

    /// Does a bounded amount of deferrable work.
    fn expire_idle(&mut self, now: Nanos) {
        let _ = now;
    }
}

/// A queue of flows that are added, changed and removed.
///
/// ```
/// use fairlane_core::{AnyScheduler, ChangeError, FlowConfig, Length, Weight, sched::Algorithm};
/// use fairlane_sim::Flows;
///
/// /// A flow of each of these weights.
/// fn add<P>(to: &mut impl Flows<P>, weights: &[u32]) -> Result<(), ChangeError> {
///     for &weight in weights {
///         let weight = Weight::new(weight).unwrap_or(Weight::ONE);
///         to.add_flow(FlowConfig::new(weight, Length::MAX))?;
///     }
///     Ok(())
/// }
///
/// let mut link = AnyScheduler::<u32>::new(Algorithm::Qfq, Default::default());
/// add(&mut link, &[4, 2, 1])?;
/// # Ok::<(), ChangeError>(())
/// ```
pub trait Flows<P>: Queue<FlowId, P> {
    /// Adds a flow, idle.
    ///
    /// # Errors
    ///
    /// There are too many; nothing was added.
    fn add_flow(&mut self, config: FlowConfig) -> Result<FlowId, ChangeError>;

    /// Changes the configuration of a flow.
    ///
    /// # Errors
    ///
    /// There is no such flow, or it has a longer packet queued; nothing was changed.
    fn change_flow(&mut self, flow: FlowId, config: FlowConfig) -> Result<(), ChangeError>;

    /// Removes a flow; its queued packets go to `discard`.
    ///
    /// # Errors
    ///
    /// There is no such flow.
    fn remove_flow(
        &mut self,
        flow: FlowId,
        discard: impl FnMut(Length, P),
    ) -> Result<FlowStats, ChangeError>;
}

/// Each flow has its share of the link; `$more` has the functions of this scheduler alone.
macro_rules! of_flows {
    ($scheduler:ident[$($algorithm:ident)?] $($more:item)?) => {
        impl<$($algorithm: Scheduler,)? P> Queue<FlowId, P> for $scheduler<$($algorithm,)? P> {
            fn enqueue(
                &mut self,
                to: FlowId,
                len: Length,
                packet: P,
                _: Nanos,
                _: impl FnMut(Length, P),
            ) -> Result<(), Rejection> {
                $scheduler::enqueue(self, to, len, packet).map_err(|rejected| rejected.reason)
            }

            fn unsent(&mut self, work: impl Fn() -> Work) {
                $scheduler::unsent(self, || work().in_fractions_of_bytes());
            }

            fn dequeue(&mut self, _: Nanos, _: impl FnMut(Length, P)) -> Next<P> {
                Dequeue::from($scheduler::dequeue(self)).into()
            }

            $($more)?
        }

        impl<$($algorithm: Scheduler,)? P> Flows<P> for $scheduler<$($algorithm,)? P> {
            fn add_flow(&mut self, config: FlowConfig) -> Result<FlowId, ChangeError> {
                $scheduler::add_flow(self, config)
            }

            fn change_flow(&mut self, flow: FlowId, config: FlowConfig) -> Result<(), ChangeError> {
                $scheduler::change_flow(self, flow, config)
            }

            fn remove_flow(
                &mut self,
                flow: FlowId,
                mut discard: impl FnMut(Length, P),
            ) -> Result<FlowStats, ChangeError> {
                $scheduler::remove_flow(self, flow, |gone| discard(gone.len, gone.payload))
            }
        }
    };
}

of_flows!(AnyScheduler[]);
of_flows! {
    PacketScheduler[A]
    fn head(&mut self) -> Option<Length> {
        self.peek().map(|head| head.len)
    }
}

/// The receiver of discards from queues of classes, behind a pointer: the queues are compiled once
/// for all receivers.
type Discard<'a, P> = &'a mut dyn FnMut(tree::Discarded<P>);

impl<Q: ClassQueue<P>, P> Queue<ClassFlow, P> for Q {
    fn enqueue(
        &mut self,
        to: ClassFlow,
        len: Length,
        packet: P,
        now: Nanos,
        mut discard: impl FnMut(Length, P),
    ) -> Result<(), Rejection> {
        let discard: Discard<'_, P> = &mut |gone| discard(gone.len, gone.payload);
        let accepted = ClassQueue::enqueue(self, to.class, to.flow, len, packet, now, discard);
        accepted.map_err(|rejected| rejected.reason)
    }

    fn dequeue(&mut self, now: Nanos, mut discard: impl FnMut(Length, P)) -> Next<P> {
        let discard: Discard<'_, P> = &mut |gone| discard(gone.len, gone.payload);
        ClassQueue::dequeue(self, now, discard).into()
    }

    fn expire_idle(&mut self, now: Nanos) {
        ClassQueue::expire_idle(self, now);
    }
}

impl<P, O> From<Dequeue<P, O>> for Next<P> {
    fn from(answer: Dequeue<P, O>) -> Next<P> {
        match answer {
            Dequeue::Packet(packet) => Next::Packet(packet.len, packet.payload),
            Dequeue::NotBefore(time) => Next::NotBefore(time),
            Dequeue::Empty => Next::Empty,
        }
    }
}

/// A packet as it waits in the queue of a [`Server`](crate::Server), with the `body` that it was
/// given. As small as it can be: there may be millions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting<L, B> {
    number: u64,
    to: L,
    /// When it arrived: whole nanoseconds, and picoseconds beyond them.
    nanos: u64,
    picos: u16,
    marked: bool,
    body: B,
}

/// Queue management marks the packet where its body can be marked.
impl<L, B: Payload> Payload for Waiting<L, B> {
    fn mark(&mut self) -> bool {
        let marks = self.body.mark();
        self.marked |= marks;
        marks
    }
}

impl<L: Label, B> Waiting<L, B> {
    /// Returns a packet that arrives at a time, which is `nanos` in whole nanoseconds.
    pub(crate) fn new(number: u64, to: L, arrival: Picos, nanos: Nanos, body: B) -> Self {
        Waiting {
            number,
            to,
            nanos: nanos.0,
            // The remainder is below a thousand, except at the end of time.
            picos: (arrival - Picos::from(nanos)).0.min(999) as u16,
            marked: false,
            body,
        }
    }

    /// Returns its description, given this length.
    pub(crate) fn info(&self, len: Length) -> PacketInfo<L> {
        PacketInfo {
            number: self.number,
            flow: self.to,
            len,
            arrival: Picos::from_nanos(self.nanos) + Picos(self.picos.into()),
            marked: self.marked,
            orphan: false,
        }
    }

    /// The same, and its body.
    pub(crate) fn open(self, len: Length) -> (PacketInfo<L>, B) {
        (self.info(len), self.body)
    }
}

/// A packet that was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketInfo<L = FlowId> {
    /// Accepted packets are numbered from 0.
    pub number: u64,
    /// The present or former owner.
    pub flow: L,
    /// Its length.
    pub len: Length,
    /// When it arrived.
    pub arrival: Picos,
    /// Queue management marked it.
    pub marked: bool,
    /// Its flow was removed while it was in the transmit queue or in service, so that
    /// `flow` may already be the number of another.
    pub orphan: bool,
}
