//! What a simulated link tells those who watch it.

use crate::time::{Picos, Work};
use fairlane_core::{FlowConfig, FlowId, Length, Rejection};

/// A point of a run: the time, and the work of the link until then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// The time, rounded down.
    pub time: Picos,
    /// W(time), exact; at the start and the end of a packet that of the exact instant.
    pub work: Work,
}

/// A packet that was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketInfo {
    /// Accepted packets are numbered from 0.
    pub number: u64,
    /// Whose it is, or was.
    pub flow: FlowId,
    /// Its length.
    pub len: Length,
    /// When it arrived.
    pub arrival: Picos,
    /// Its flow was removed while it was in the transmit queue or in service, so that
    /// `flow` may already be the number of another.
    pub orphan: bool,
}

/// A packet that has left the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The packet.
    pub packet: PacketInfo,
    /// The start of its transmission.
    pub start: Moment,
    /// The end of its transmission.
    pub end: Moment,
}

/// Watches a run. Events come in the order of time; at one instant, changes of flows come
/// first, then arrivals, then completions, then what starts. Nothing is asked back.
pub trait Observer {
    /// A flow came, idle.
    fn flow_added(&mut self, at: Moment, flow: FlowId, config: &FlowConfig) {
        let _ = (at, flow, config);
    }

    /// A flow has another weight, maximum length or limits.
    fn flow_changed(&mut self, at: Moment, flow: FlowId, config: &FlowConfig) {
        let _ = (at, flow, config);
    }

    /// A flow went; each packet that it had in the scheduler was `discarded` before.
    fn flow_removed(&mut self, at: Moment, flow: FlowId) {
        let _ = (at, flow);
    }

    /// A packet was accepted.
    fn arrived(&mut self, at: Moment, packet: &PacketInfo) {
        let _ = (at, packet);
    }

    /// A packet was not accepted.
    fn dropped(&mut self, at: Moment, flow: FlowId, len: Length, reason: Rejection) {
        let _ = (at, flow, len, reason);
    }

    /// A packet was accepted and is thrown away, as its flow is being removed.
    fn discarded(&mut self, at: Moment, packet: &PacketInfo) {
        let _ = (at, packet);
    }

    /// The scheduler handed a packet to the transmit queue.
    fn dequeued(&mut self, at: Moment, packet: &PacketInfo) {
        let _ = (at, packet);
    }

    /// The transmission of a packet started.
    fn started(&mut self, at: Moment, packet: &PacketInfo) {
        let _ = (at, packet);
    }

    /// The transmission of a packet ended.
    fn completed(&mut self, completion: &Completion) {
        let _ = completion;
    }

    /// The run is over.
    fn ended(&mut self, at: Moment) {
        let _ = at;
    }
}

/// Watches nothing.
impl Observer for () {}

macro_rules! forward {
    ($self:ident => $($to:expr),+) => {
        fn flow_added(&mut $self, at: Moment, flow: FlowId, config: &FlowConfig) {
            $($to.flow_added(at, flow, config);)+
        }
        fn flow_changed(&mut $self, at: Moment, flow: FlowId, config: &FlowConfig) {
            $($to.flow_changed(at, flow, config);)+
        }
        fn flow_removed(&mut $self, at: Moment, flow: FlowId) {
            $($to.flow_removed(at, flow);)+
        }
        fn arrived(&mut $self, at: Moment, packet: &PacketInfo) {
            $($to.arrived(at, packet);)+
        }
        fn dropped(&mut $self, at: Moment, flow: FlowId, len: Length, reason: Rejection) {
            $($to.dropped(at, flow, len, reason);)+
        }
        fn discarded(&mut $self, at: Moment, packet: &PacketInfo) {
            $($to.discarded(at, packet);)+
        }
        fn dequeued(&mut $self, at: Moment, packet: &PacketInfo) {
            $($to.dequeued(at, packet);)+
        }
        fn started(&mut $self, at: Moment, packet: &PacketInfo) {
            $($to.started(at, packet);)+
        }
        fn completed(&mut $self, completion: &Completion) {
            $($to.completed(completion);)+
        }
        fn ended(&mut $self, at: Moment) {
            $($to.ended(at);)+
        }
    };
}

impl<O: Observer + ?Sized> Observer for &mut O {
    forward!(self => (**self));
}

impl<O: Observer + ?Sized> Observer for Box<O> {
    forward!(self => (**self));
}

/// Both, in this order.
impl<A: Observer, B: Observer> Observer for (A, B) {
    forward!(self => self.0, self.1);
}

/// All three, in this order.
impl<A: Observer, B: Observer, C: Observer> Observer for (A, B, C) {
    forward!(self => self.0, self.1, self.2);
}
