//! Classes, a link of 8 Mbit/s, queues with management.

use fairlane_core::Dequeue;
use fairlane_core::aqm::{AqmConfig, CodelConfig, CodelParameters, RedConfig, RedParameters};
use fairlane_core::tree::cbq::{Cbq, CbqClass};
use fairlane_core::tree::{ClassId, LeafConfig, Payload};
use fairlane_core::{Length, Nanos, Rate, SchedulerLimits};
use std::collections::BTreeMap;

pub(super) const ROOT: ClassId = ClassId::ROOT;
pub(super) const MBIT: u64 = 1_000_000;

pub(super) fn rate(bps: u64) -> Rate {
    Rate::from_bps(bps).unwrap()
}

pub(super) fn length(bytes: u32) -> Length {
    Length::new(bytes).unwrap()
}

/// Returns a class of `mbit` Mbit/s with packets of at most 1500 bytes.
pub(super) fn class(mbit: u64) -> CbqClass {
    CbqClass::new(rate(mbit * MBIT), length(1500))
}

pub(super) fn bounded(mbit: u64) -> CbqClass {
    CbqClass {
        borrow: false,
        ..class(mbit)
    }
}

pub(super) fn cbq<P: Payload>(mbit: u64) -> Cbq<P> {
    Cbq::new(rate(mbit * MBIT), SchedulerLimits::default()).marking()
}

pub(super) fn leaf<P: Payload>(cbq: &mut Cbq<P>, parent: ClassId, config: CbqClass) -> ClassId {
    cbq.add_leaf(parent, config, LeafConfig::default()).unwrap()
}

/// Time of a packet of 1000 bytes on 8 Mbit/s.
pub(super) const MS: Nanos = Nanos::from_millis(1);

/// A link of 8 Mbit/s and packets of 1000 bytes: a millisecond each.
pub(super) struct Run {
    pub cbq: Cbq<u32>,
    pub now: Nanos,
    /// The time at which the link will have sent its packets.
    pub free: Nanos,
}

impl Run {
    pub(super) fn new() -> Run {
        Run {
            cbq: cbq(8),
            now: Nanos::ZERO,
            free: Nanos::ZERO,
        }
    }

    pub(super) fn fill(&mut self, class: ClassId, packets: u32) {
        for n in 0..packets {
            self.cbq.enqueue(class, length(1000), n, self.now).unwrap();
        }
    }

    /// Sends until `until` whatever may be sent; a class that is in `busy` gets another
    /// packet for each. Packets by class.
    pub(super) fn send(&mut self, until: Nanos, busy: &[ClassId]) -> BTreeMap<ClassId, u32> {
        let mut sent = BTreeMap::new();
        loop {
            self.now = self.now.max(self.free);
            if self.now >= until {
                return sent;
            }
            match self.cbq.dequeue(self.now, |_| {}) {
                Dequeue::Packet(packet) => {
                    *sent.entry(packet.owner).or_insert(0) += 1;
                    self.free = self.now + MS;
                    if busy.contains(&packet.owner) {
                        self.fill(packet.owner, 1);
                    }
                }
                Dequeue::NotBefore(time) => {
                    assert!(time > self.now);
                    self.now = time;
                }
                Dequeue::Empty => self.now = until,
            }
            self.cbq.invariants().unwrap();
        }
    }
}

pub(super) fn red(ecn: bool) -> AqmConfig {
    let parameters = RedParameters {
        min: 2,
        max: 4,
        weight_shift: 1,
        ecn,
        ..RedParameters::default()
    };
    AqmConfig::Red(RedConfig::new(parameters).unwrap())
}

pub(super) fn codel(ecn: bool) -> AqmConfig {
    let parameters = CodelParameters {
        ecn,
        ..CodelParameters::default()
    };
    AqmConfig::Codel(CodelConfig::new(parameters).unwrap())
}
