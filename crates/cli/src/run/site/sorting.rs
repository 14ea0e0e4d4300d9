//! Which class a frame belongs to, and how long it stayed there.

use std::hash::{BuildHasher, RandomState};

use fairlane_classify::{DigestKey, Layer};
use fairlane_config::{Link, Sorter};
use fairlane_core::tree::ClassId;
use fairlane_core::{Length, Nanos};
use fairlane_runtime::{Classify, Target};
use hdrhistogram::Histogram;

use super::frame::Parcel;
use crate::classes::Places;

/// Longest delay told apart, in nanoseconds: a hundred seconds.
const LONGEST: u64 = 100_000_000_000;

/// Sorts the frames of one link, and measures how long they stay.
pub struct Sorting {
    pub sorter: Sorter,
    places: Places,
    /// By place.
    pub delays: Vec<Delays>,
    /// By place, frames that came while their device was losing others: a sample of those.
    pub beside_lost: Vec<u64>,
}

/// A key that nobody outside knows, so that nobody can choose flows that collide.
pub fn random_key() -> DigestKey {
    let random = || RandomState::new().hash_one(0);
    DigestKey([random(), random()])
}

impl Sorting {
    /// For a link whose classes, in the order of the configuration, have these numbers.
    pub fn new(link: &Link, ids: &[ClassId], key: DigestKey) -> Sorting {
        Sorting {
            sorter: link.sorter(ids, key),
            places: Places::new(ids),
            delays: ids.iter().map(|_| Delays::default()).collect(),
            beside_lost: vec![0; ids.len()],
        }
    }
}

impl Sorting {
    /// Where a frame goes by the filters.
    pub fn sort(&mut self, parcel: &Parcel) -> Target {
        let bytes = parcel.frame.bytes();
        let sorted = self.sorter.sort(bytes, Layer::Ethernet, &parcel.origin);
        Target {
            class: sorted.class,
            flow: sorted.flow,
        }
    }
}

impl Classify<Parcel> for Sorting {
    #[inline]
    fn classify(&mut self, parcel: &Parcel, _: Length, _: Nanos) -> Target {
        let target = self.sort(parcel);
        if parcel.losing {
            self.beside_lost[self.places.of(target.class)] += 1;
        }
        target
    }

    #[inline]
    fn leaves(&mut self, class: ClassId, parcel: &Parcel, _: Length, now: Nanos) {
        self.delays[self.places.of(class)].record(now.since(parcel.came));
    }
}

/// How long packets stayed, from the device to the device.
#[derive(Clone, Debug, Default)]
pub struct Delays(Option<Box<Histogram<u32>>>);

impl Delays {
    /// To two digits, from a microsecond on. The table is made for the first; there may be
    /// thousands of classes, so it is kept small.
    fn record(&mut self, delay: Nanos) {
        let histogram = self.0.get_or_insert_with(|| {
            let histogram = Histogram::new_with_bounds(1_000, LONGEST, 2);
            Box::new(histogram.expect("the bounds are far enough apart"))
        });
        histogram.saturating_record(delay.0);
    }

    /// The delay in nanoseconds that this part of the packets did not exceed; `None` without any.
    pub fn quantile(&self, quantile: f64) -> Option<u64> {
        let histogram = self.0.as_ref()?;
        Some(histogram.value_at_quantile(quantile))
    }

    pub fn longest(&self) -> Option<u64> {
        self.0.as_ref().map(|histogram| histogram.max())
    }
}
