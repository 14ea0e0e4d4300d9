//! How an arbiter is set up.

use fairlane_core::{Nanos, SchedulerLimits};

use crate::link::Link;

/// How an arbiter is set up.
#[derive(Clone, Copy, Debug)]
pub struct ArbiterConfig {
    /// The link to pace.
    pub link: Link,
    /// How much may wait in all flows, and in each.
    pub limits: SchedulerLimits,
    /// Most clients at a time, 1 to 2^24. Memory is allocated as they register, and not before.
    pub max_clients: usize,
    /// Slots of a client's mailbox: a power of two.
    pub mailbox_slots: usize,
    /// Whether packets of a flow with a full queue wait in the mailbox, and the client learns when
    /// that is full (`true`); or are dropped, which the client learns at its next push (`false`).
    pub hold_back: bool,
    /// Least time between two looks into the same mailbox. Each look may take the cache
    /// line that its client writes to; so much time apart, the client hardly notices
    /// (PSPAT, Section 4.1). It is a part of Delta_A (Eq. 1).
    pub read_interval: Nanos,
    /// Most packets taken from one mailbox in one look, so that no client holds up the
    /// others.
    pub drain_limit: usize,
    /// Most mailboxes visited in one step, so that a step is short; the next step continues where
    /// this one stopped. With more active clients than this a round of all takes several steps. Not
    /// all earlier arrivals are then in the queue when the step releases, unlike in the paper
    /// (Section 3.4); the bound needs less. A packet is in the queue a round after its arrival, and
    /// that is Delta_A of Eq. 1, measured by [`ArbiterStats::looks`](crate::ArbiterStats::looks).
    /// `docs/internals/arbiter.md` explains the benefit of fewer visits.
    pub scan_limit: usize,
    /// Most packets released in one step. As long as more can be drained, queues build up when the
    /// arbiter is the bottleneck, and weights keep their meaning (Section 6.5).
    pub release_limit: usize,
    /// A client that was silent for this long is visited no more until it rings.
    pub linger: Nanos,
}

impl ArbiterConfig {
    /// `scan_limit`, unless said otherwise.
    pub const SCAN_LIMIT: usize = 6;

    /// Returns a thousand clients of 256 slots; a look at each mailbox every microsecond, 6 looks a
    /// step at most and 128 packets each; 64 packets out a step. With many active clients, few
    /// looks a step find more packets each, and so cost less a packet: with 1,000 clients that all
    /// send, looking at all of them in each step carries a quarter of the packets.
    pub fn new(link: Link) -> Self {
        ArbiterConfig {
            link,
            limits: SchedulerLimits::default(),
            max_clients: 1024,
            mailbox_slots: 256,
            hold_back: false,
            read_interval: Nanos::from_micros(1),
            drain_limit: 128,
            scan_limit: Self::SCAN_LIMIT,
            release_limit: 64,
            linger: Nanos::from_millis(1),
        }
    }
}
