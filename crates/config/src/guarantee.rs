//! The guarantees of a class, or the reason why it has none.

use std::sync::Arc;

use fairlane_core::Nanos;
use fairlane_core::bounds::Service;
use fairlane_core::sched::Algorithm;

/// The guarantees of a class, whatever traffic other classes send.
#[derive(Clone, Debug, PartialEq)]
pub struct Guarantee {
    /// Long-term rate in bit/s; of a class of flows, that of all of them together.
    pub rate: Result<u64, NoGuarantee>,
    /// The delay bound: the longest time from a packet's arrival until it has left the link, for a class or flow that
    /// keeps to its guaranteed rate and [burst](crate::Class::arrival_burst). Over any time t it enqueues at most the burst
    /// plus t times the rate. `None` for a class with children, since packets are queued in those. The link takes a
    /// packet when it has sent the one before; the delays of the daemon's pipeline and transmit queue
    /// ([`PipelineTerms`](crate::link_report::PipelineTerms)), and of a late wakeup of a program, are extra.
    pub delay: Option<Result<Nanos, NoGuarantee>>,
    /// The delay bound of a packet that arrives at an empty class, or flow, which may have been served ahead of its
    /// rate before.
    pub ahead: Option<Result<Nanos, NoGuarantee>>,
    /// The guarantees of each flow of a class of flows while the number of flows is at its limit.
    pub each: Option<Box<Each>>,
    /// Its service, which says more than the rate alone. Under WF2Q it is not strict: [`Service::is_strict`].
    pub service: Result<Service, NoGuarantee>,
    /// Bytes that it may send at once, in addition to its rate, without loss at a full queue: the burst that fits into
    /// its buffer reservation and, for a class of flows, into the limit of one flow. `None` if no burst fits, or
    /// nothing is guaranteed.
    pub burst: Option<u64>,
    /// The algorithms whose bounds these are, from the root down.
    pub path: Arc<[Algorithm]>,
}

/// The guarantees of each flow of a class.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Each {
    /// The limit on the number of flows, plus the one that all further flows share.
    pub flows: u32,
    /// Long-term rate in bit/s.
    pub rate: Result<u64, NoGuarantee>,
    /// The service it gets, which says more than the rate alone.
    pub service: Result<Service, NoGuarantee>,
    /// Bytes that a flow may send at once in addition to its rate without loss, if it is one of those with a buffer
    /// reservation ([`Flows::roomy`](crate::Flows::roomy)).
    pub burst: Option<u64>,
}

/// The reason why a class has no guarantee.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoGuarantee {
    /// The name of an ancestor's algorithm that gives no guarantees, and the reason.
    #[error("{0}: {1}")]
    Nothing(&'static str, &'static str),
    /// An ancestor's algorithm, by name, without a known bound.
    #[error("{0}: no bound is known")]
    Unknown(&'static str),
    /// The class has child classes, and no queue of its own.
    #[error("packets wait in the classes below it")]
    Inner,
    /// Strict priority at an ancestor.
    #[error("priority: the classes above and beside it may take everything")]
    Behind,
    /// Its own ceiling, or its parent's.
    #[error("its burst has no room beside one packet")]
    Burst,
    /// The link's algorithm.
    #[error("cbq: shares follow its estimate, not a bound")]
    Cbq,
}
