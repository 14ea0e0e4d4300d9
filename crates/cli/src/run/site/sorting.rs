//! Which class a frame belongs to, and how long it stayed there.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use fairlane_classify::{DigestKey, Layer};
use fairlane_config::{Sorted, Sorter};
use fairlane_core::tree::ClassId;
use fairlane_core::{Length, Nanos};
use fairlane_runtime::{Classify, Target};

use super::frame::Parcel;
use super::meter::Meter;

/// Sorts the frames of one link, and measures how long they stay. Made off the forwarding thread
/// and exchanged whole.
pub struct Sorting {
    pub sorter: Sorter,
    /// By the number of the class.
    meters: Vec<Option<Arc<Meter>>>,
}

/// A key that nobody outside knows, so that nobody can choose flows that collide.
pub fn random_key() -> DigestKey {
    let random = || RandomState::new().hash_one(0);
    DigestKey([random(), random()])
}

impl Sorting {
    /// With a meter for each class that packets may leave from.
    pub fn new<'a>(
        sorter: Sorter,
        metered: impl IntoIterator<Item = (ClassId, &'a Arc<Meter>)>,
    ) -> Sorting {
        let mut meters = Vec::new();
        for (id, meter) in metered {
            let number = id.number() as usize;
            if number >= meters.len() {
                meters.resize_with(number + 1, || None);
            }
            meters[number] = Some(Arc::clone(meter));
        }
        Sorting { sorter, meters }
    }

    #[inline]
    fn meter(&self, class: ClassId) -> Option<&Meter> {
        self.meters.get(class.number() as usize)?.as_deref()
    }

    /// Where a frame goes by the filters.
    pub fn sort(&mut self, parcel: &Parcel) -> Target {
        let bytes = parcel.frame.bytes();
        target(self.sorter.sort(bytes, Layer::Ethernet, &parcel.origin))
    }

    /// Where a frame goes that stays in the class at this place.
    pub fn within(&self, place: usize, parcel: &Parcel) -> Target {
        let bytes = parcel.frame.bytes();
        target((self.sorter).within(place, bytes, Layer::Ethernet, &parcel.origin))
    }
}

fn target(sorted: Sorted) -> Target {
    Target {
        class: sorted.class,
        flow: sorted.flow,
    }
}

impl Classify<Parcel> for Sorting {
    #[inline]
    fn classify(&mut self, parcel: &Parcel, _: Length, _: Nanos) -> Target {
        let target = self.sort(parcel);
        if parcel.losing
            && let Some(meter) = self.meter(target.class)
        {
            meter.record_beside_lost();
        }
        target
    }

    #[inline]
    fn leaves(&mut self, class: ClassId, parcel: &Parcel, _: Length, now: Nanos) {
        if let Some(meter) = self.meter(class) {
            meter.record(now.since(parcel.came));
        }
    }
}
