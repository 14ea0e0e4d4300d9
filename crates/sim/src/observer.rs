//! The events that a simulated link reports to observers.

use crate::link::Progress;
use crate::queue::{Label, PacketInfo};
use crate::time::{Picos, Work};
use core::slice::from_mut;
use fairlane_core::{FlowConfig, FlowId, Length, Rejection};

/// When something happens.
#[derive(Clone, Copy, Debug)]
pub struct Now<'a> {
    /// The time, rounded down.
    pub time: Picos,
    progress: &'a Progress,
}

impl<'a> Now<'a> {
    pub(crate) fn new(time: Picos, progress: &'a Progress) -> Now<'a> {
        Now { time, progress }
    }

    /// W(time): the exact work of the link until then. O(1), in numbers of 128 bits, computed on
    /// request.
    pub fn work(self) -> Work {
        self.progress.work(self.time)
    }
}

/// The start or the end of a transmission: the time, and the work of the link until then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// The time, rounded down.
    pub time: Picos,
    /// That of the exact instant.
    pub work: Work,
}

/// A packet that has left the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion<L = FlowId> {
    /// The packet.
    pub packet: PacketInfo<L>,
    /// The start of its transmission.
    pub start: Moment,
    /// The end of its transmission.
    pub end: Moment,
}

/// Watches a run over flows, or over classes (`L`). Events are reported in order of time; at one
/// instant, changes of flows come first, then arrivals, then completions, then starts. Observers
/// return nothing.
pub trait Observer<L: Label = FlowId> {
    /// A flow was added, idle.
    fn flow_added(&mut self, at: Now, flow: FlowId, config: &FlowConfig) {
        let _ = (at, flow, config);
    }

    /// A flow has another weight, maximum length or limits.
    fn flow_changed(&mut self, at: Now, flow: FlowId, config: &FlowConfig) {
        let _ = (at, flow, config);
    }

    /// A flow went; each packet that it had in the scheduler was `discarded` before.
    fn flow_removed(&mut self, at: Now, flow: FlowId) {
        let _ = (at, flow);
    }

    /// A packet was accepted.
    fn arrived(&mut self, at: Now, packet: &PacketInfo<L>) {
        let _ = (at, packet);
    }

    /// A packet was not accepted.
    fn dropped(&mut self, at: Now, flow: L, len: Length, reason: Rejection) {
        let _ = (at, flow, len, reason);
    }

    /// An accepted packet is dropped: its flow is being removed, queue management dropped it, or it
    /// was evicted.
    fn discarded(&mut self, at: Now, packet: &PacketInfo<L>) {
        let _ = (at, packet);
    }

    /// The scheduler handed a packet out, to the transmit queue.
    fn dequeued(&mut self, at: Now, packet: &PacketInfo<L>) {
        let _ = (at, packet);
    }

    /// The transmission of a packet started.
    fn started(&mut self, at: Now, packet: &PacketInfo<L>) {
        let _ = (at, packet);
    }

    /// The transmission of a packet ended.
    fn completed(&mut self, completion: &Completion<L>) {
        let _ = completion;
    }

    /// The run is over.
    fn ended(&mut self, at: Now) {
        let _ = at;
    }
}

/// Watches nothing.
impl<L: Label> Observer<L> for () {}

macro_rules! forward {
    ($self:ident => $($to:expr),+) => {
        fn flow_added(&mut $self, at: Now, flow: FlowId, config: &FlowConfig) {
            $(for to in $to { to.flow_added(at, flow, config); })+
        }
        fn flow_changed(&mut $self, at: Now, flow: FlowId, config: &FlowConfig) {
            $(for to in $to { to.flow_changed(at, flow, config); })+
        }
        fn flow_removed(&mut $self, at: Now, flow: FlowId) {
            $(for to in $to { to.flow_removed(at, flow); })+
        }
        fn arrived(&mut $self, at: Now, packet: &PacketInfo<L>) {
            $(for to in $to { to.arrived(at, packet); })+
        }
        fn dropped(&mut $self, at: Now, flow: L, len: Length, reason: Rejection) {
            $(for to in $to { to.dropped(at, flow, len, reason); })+
        }
        fn discarded(&mut $self, at: Now, packet: &PacketInfo<L>) {
            $(for to in $to { to.discarded(at, packet); })+
        }
        fn dequeued(&mut $self, at: Now, packet: &PacketInfo<L>) {
            $(for to in $to { to.dequeued(at, packet); })+
        }
        fn started(&mut $self, at: Now, packet: &PacketInfo<L>) {
            $(for to in $to { to.started(at, packet); })+
        }
        fn completed(&mut $self, completion: &Completion<L>) {
            $(for to in $to { to.completed(completion); })+
        }
        fn ended(&mut $self, at: Now) {
            $(for to in $to { to.ended(at); })+
        }
    };
}

/// An optional observer.
impl<L: Label, O: Observer<L>> Observer<L> for Option<O> {
    forward!(self => self.iter_mut());
}

/// Both, in this order.
impl<L: Label, A: Observer<L>, B: Observer<L>> Observer<L> for (A, B) {
    forward!(self => from_mut(&mut self.0), from_mut(&mut self.1));
}

/// All three, in this order.
impl<L: Label, A: Observer<L>, B: Observer<L>, C: Observer<L>> Observer<L> for (A, B, C) {
    forward!(self => from_mut(&mut self.0), from_mut(&mut self.1), from_mut(&mut self.2));
}
