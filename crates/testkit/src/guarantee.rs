//! The bounds of a class or flow on a link of one byte per nanosecond: 8 Gbit/s.

use std::collections::BTreeMap;

use fairlane_core::bounds::{Head, Service, Siblings, Transmit, Wfi, qfq_rounding};
use fairlane_core::sched::Algorithm;
use fairlane_core::tree::Ceiling;
use fairlane_core::{Length, Rate, Weight};

use crate::numbers::{length, weight};

/// One byte per nanosecond, in bit/s.
pub const RATE: u64 = 8_000_000_000;

/// The guarantee of a flow whose packets may arrive while another's is on the wire.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    /// Part of the link.
    pub rate: f64,
    /// B-WFI in bytes; infinite if none is known.
    pub service: f64,
    /// T-WFI in bytes of the link.
    pub delay: f64,
    /// Guaranteed-rate latency in bytes of the link.
    pub latency: f64,
}

/// The guarantee of a class, and its part of the link.
#[derive(Clone, Copy, Debug)]
pub struct Served {
    /// Its service.
    pub service: Service,
    /// Its part of the link.
    pub rate: f64,
}

impl Served {
    /// Returns the whole link, with packets up to `longest` bytes.
    ///
    /// # Panics
    ///
    /// If `longest` is out of range.
    pub fn link(longest: u32) -> Served {
        let rate = Rate::from_bps(RATE).unwrap_or(Rate::MAX);
        Served {
            service: Service::of_link(rate, length(longest)),
            rate: 1.0,
        }
    }

    /// Returns a child with this share and these indexes.
    #[must_use]
    pub fn child(self, share: f64, wfi: Wfi) -> Served {
        Served {
            service: self.service.child(share, wfi),
            rate: self.rate * share,
        }
    }

    /// Returns a ceiling in percent of the guaranteed rate of this class, with the smallest burst that preserves the
    /// rest of its guarantee.
    pub fn ceiling(self, percent: u32, longest: Length) -> Option<Ceiling> {
        let bps = (self.rate * RATE as f64 * f64::from(percent) / 100.0) as u64;
        let rate = Rate::from_bps(bps.min(RATE))?;
        let burst = self.service.burst_for(rate, longest);
        Some(Ceiling { rate, burst })
    }

    /// Returns this class below a ceiling, if anything is guaranteed there.
    pub fn below_ceiling(self, ceiling: Ceiling, longest: Length) -> Option<Served> {
        let Ceiling { rate, burst } = ceiling;
        let service = self.service.below_ceiling(rate, burst, longest)?;
        Some(Served {
            service,
            rate: self.rate.min(rate.bps() as f64 / RATE as f64),
        })
    }
}

/// A node of a tree, with its children by weight and longest packet.
#[derive(Clone, Debug)]
pub struct Node {
    /// The order of the children.
    pub algorithm: Algorithm,
    /// The longest packet of all children.
    pub longest: u32,
    children: BTreeMap<(Weight, Length), u32>,
    /// The children with ceilings.
    ceilings: Vec<(Weight, Length, Ceiling)>,
}

impl Node {
    /// Returns a node without children.
    pub fn new(algorithm: Algorithm) -> Node {
        Node {
            algorithm,
            longest: 1,
            children: BTreeMap::new(),
            ceilings: Vec::new(),
        }
    }

    /// Adds `count` children of a weight, with packets up to `longest` bytes.
    ///
    /// # Panics
    ///
    /// If a number is out of range.
    pub fn add(&mut self, of_weight: u32, longest: u32, count: u32) {
        self.longest = self.longest.max(longest);
        let key = (weight(of_weight), length(longest));
        *self.children.entry(key).or_default() += count;
    }

    /// One of the children has a ceiling.
    pub fn limit(&mut self, of_weight: Weight, longest: Length, ceiling: Ceiling) {
        self.ceilings.push((of_weight, longest, ceiling));
    }

    fn siblings(&self) -> Siblings {
        let children = self.children.iter();
        let children = children.map(|(&(weight, length), &count)| (weight, length, count));
        let ceilings = self.ceilings.iter();
        let ceilings = ceilings
            .map(|&(weight, length, Ceiling { rate, burst })| (weight, length, rate, burst));
        Siblings::new(self.algorithm, children).with_ceilings(ceilings)
    }

    /// Returns share and indexes of a child, with the rounding for an amount of work.
    ///
    /// # Panics
    ///
    /// If a number is out of range.
    pub fn wfi(&self, of: u32, longest: u32, head: Head, work: u64) -> Option<(f64, Wfi)> {
        let siblings = self.siblings();
        let (weight, length) = (weight(of), length(longest));
        let wfi = siblings.bound(weight, length, head, Transmit::Between)?;
        let terms = siblings.terms(weight, length, Transmit::Between)?;
        Some((terms.share(), wfi + qfq_rounding(&terms, work)))
    }
}

impl Bound {
    pub(crate) fn of(rate: f64, wfi: Option<Wfi>) -> Bound {
        let of = |index: Option<f64>| index.unwrap_or(f64::INFINITY);
        Bound {
            rate,
            service: of(wfi.filter(|wfi| wfi.strict).map(|wfi| wfi.service.bytes())),
            delay: of(wfi.map(|wfi| wfi.delay.bytes())),
            latency: of(wfi.map(|wfi| wfi.latency.bytes())),
        }
    }

    /// Returns the bound of a flow of this weight and longest packet below a node that is served as `above`.
    pub(crate) fn below(
        above: Option<Served>,
        node: &Node,
        of: u32,
        longest: u32,
        work: u64,
    ) -> Bound {
        let within = node.wfi(of, longest, Head::Known, work);
        let Some((above, (share, wfi))) = above.zip(within) else {
            return Bound::of(1.0, None);
        };
        let bound = Bound::of_child(above.rate * share, above.service, share, wfi);
        let siblings = node.siblings();
        let child = (weight(of), length(longest), Head::Known);
        let Some((left, share, wfi)) = siblings.residual(above.service, child, None) else {
            return bound;
        };
        let terms = siblings.terms(child.0, child.1, Transmit::Between);
        let rounding = terms.map(|terms| {
            // It includes the indexes of all siblings.
            let all: u32 = node.children.values().sum();
            qfq_rounding(&terms, work * u64::from(all))
        });
        let wfi = rounding.map_or(wfi, |rounding| wfi + rounding);
        let other = Bound::of_child(bound.rate, left, share, wfi);
        Bound {
            rate: bound.rate,
            service: bound.service.min(other.service),
            delay: bound.delay.min(other.delay),
            latency: bound.latency.min(other.latency),
        }
    }

    /// Returns the bound of a flow with this share and these indexes in a node served as `service`. `rate` is at most
    /// the flow's guaranteed rate.
    pub fn of_child(rate: f64, service: Service, share: f64, wfi: Wfi) -> Bound {
        Bound {
            rate,
            service: service.child(share, wfi).lag().bytes(),
            delay: service.delay_below(share, wfi, 0).0 as f64,
            latency: service.conforming_delay(share, wfi, 0).0 as f64,
        }
    }
}
