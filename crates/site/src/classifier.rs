//! Which class a frame belongs to, and how long it stayed there.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use fairlane_classify::{DigestKey, Layer, LinkClassifier};
use fairlane_core::tree::{ClassFlow, ClassId};
use fairlane_core::{Length, Nanos};
use fairlane_io::EarlyDrop;
use fairlane_runtime::Classify;
use fairlane_runtime::bridge::BATCH;

use crate::early::words;
use crate::flows::names::{self, Naming};
use crate::frame::Received;
use crate::meter::{Meter, Recorder};
use crate::passing::Watch;
use crate::workers::Note;

/// Classifies the frames of one link, and measures how long they stay. Made off the forwarding
/// thread and exchanged whole.
pub(crate) struct FrameClassifier {
    pub(crate) filters: LinkClassifier,
    /// By the number of the class.
    recorders: Vec<Option<Recorder>>,
    /// Of packets that leave in this step, their classes and delays, where classes are many: recorded together, so that the
    /// memory that it takes is fetched for several at once.
    left: Vec<(ClassId, Nanos)>,
    early: Option<Arc<EarlyDrop>>,
    /// What looks at TCP in passing.
    pub(crate) watch: Option<Box<Watch>>,
    /// The places of classes by their numbers; of classes that go, none.
    places: Vec<Option<u32>>,
    /// Where it is noted what flows are, while somebody asks.
    pub(crate) naming: Option<Box<Naming>>,
    /// The table of these filters that workers go by; 0 for none.
    pub(crate) table: u32,
}

/// Numbers of classes whose recorders are in a cache in any case.
const NEAR: usize = 256;

/// A key that nobody outside knows, so that nobody can choose flows that collide.
pub(crate) fn random_key() -> DigestKey {
    let random = || RandomState::new().hash_one(0);
    DigestKey([random(), random()])
}

impl FrameClassifier {
    /// With a meter for each class that packets may leave from, and what may be dropped early of
    /// those with these numbers, by place.
    pub(crate) fn new<'a>(
        filters: LinkClassifier,
        metered: impl IntoIterator<Item = (ClassId, &'a Arc<Meter>)>,
        early: Option<Arc<EarlyDrop>>,
        ids: &[ClassId],
    ) -> FrameClassifier {
        let metered = metered.into_iter();
        let recorders = metered.map(|(id, meter)| (id, Recorder::new(Arc::clone(meter))));
        FrameClassifier {
            filters,
            recorders: by_number(recorders),
            left: Vec::with_capacity(BATCH),
            early,
            watch: None,
            places: by_number(ids.iter().copied().zip(0..)),
            naming: None,
            table: 0,
        }
    }

    /// What may be dropped early.
    pub(crate) fn early(&self) -> Option<&EarlyDrop> {
        self.early.as_deref()
    }

    /// What early drop wants to know of a received of a class while there is an overload.
    #[inline]
    fn overloaded(&self, class: ClassId, received: &Received) -> Option<(&EarlyDrop, u32)> {
        let early = self.early.as_deref().filter(|early| early.is_on())?;
        // What processes send does not come by an interface.
        let place = received.origin.owner.is_none();
        Some((early, place.then(|| self.place(class))??))
    }

    /// Early drop is told of a frame that leaves. By itself: seldom is there an overload.
    #[cold]
    #[inline(never)]
    fn leaves_in_overload(&self, class: ClassId, received: &Received) {
        if let Some((early, place)) = self.overloaded(class, received) {
            early.sent(place, || words(received.frame.bytes()));
        }
    }

    /// The place of a class.
    #[inline]
    fn place(&self, class: ClassId) -> Option<u32> {
        self.places.get(class.number() as usize).copied()?
    }

    /// Notes what the flow of a frame is, if that is not known. By itself: seldom does anybody ask.
    #[cold]
    #[inline(never)]
    fn note(&mut self, to: ClassFlow, received: &Received) {
        let (place, flow) = (self.place(to.class), to.flow);
        let Some(naming) = self.naming.as_mut().filter(|naming| naming.wants(flow)) else {
            return;
        };
        let bytes = received.frame.bytes();
        let key = |place| {
            let (layer, origin) = (Layer::Ethernet, &received.origin);
            self.filters.key(place as usize, bytes, layer, origin)
        };
        if let Some((per, key)) = place.and_then(key) {
            naming.note(names::Note { per, flow, key });
        }
    }

    #[inline]
    fn recorder(&mut self, class: ClassId) -> Option<&mut Recorder> {
        self.recorders.get_mut(class.number() as usize)?.as_mut()
    }

    /// Counts the delay of a packet.
    #[inline]
    fn record(&mut self, class: ClassId, delay: Nanos) {
        if let Some(recorder) = self.recorder(class) {
            recorder.record(delay);
        }
    }

    /// Where a frame goes by the filters.
    #[inline]
    pub(crate) fn by_filters(&mut self, received: &Received) -> ClassFlow {
        let bytes = received.frame.bytes();
        (self.filters).classify(bytes, Layer::Ethernet, &received.origin)
    }

    /// The same of a frame of which a worker has said it, if that was by these filters.
    #[inline]
    pub(crate) fn classified(&mut self, received: &Received, note: Note) -> ClassFlow {
        let to = match note.table != 0 && note.table == self.table {
            true => {
                self.filters.count(note.found);
                note.to
            }
            false => self.by_filters(received),
        };
        self.comes(to, received);
        to
    }

    /// A frame that goes there has come.
    #[inline]
    fn comes(&mut self, to: ClassFlow, received: &Received) {
        if received.losing
            && let Some(recorder) = self.recorder(to.class)
        {
            recorder.meter().record_beside_lost();
        }
        if let Some(watch) = &mut self.watch {
            watch.see(received.frame.bytes(), to, received.came);
        }
        if self.naming.is_some() {
            self.note(to, received);
        }
    }

    /// Where a frame goes that stays in the class at this place.
    pub(crate) fn within(&self, place: usize, received: &Received) -> ClassFlow {
        let bytes = received.frame.bytes();
        (self.filters).within(place, bytes, Layer::Ethernet, &received.origin)
    }
}

/// What is known of each, by number.
fn by_number<T>(known: impl IntoIterator<Item = (ClassId, T)>) -> Vec<Option<T>> {
    let mut all = Vec::new();
    for (id, one) in known {
        let number = id.number() as usize;
        if number >= all.len() {
            all.resize_with(number + 1, || None);
        }
        all[number] = Some(one);
    }
    all
}

impl Classify<Received> for FrameClassifier {
    #[inline]
    fn classify(&mut self, received: &Received, _: Length, _: Nanos) -> ClassFlow {
        let to = self.by_filters(received);
        self.comes(to, received);
        to
    }

    fn no_room(&mut self, class: ClassId, received: &Received) {
        if let Some((early, place)) = self.overloaded(class, received) {
            early.no_room(place, || words(received.frame.bytes()));
        }
    }

    #[inline]
    fn leaves(&mut self, class: ClassId, received: &Received, _: Length, now: Nanos) {
        let delay = now.since(received.came);
        match self.recorders.len() > NEAR {
            true => self.left.push((class, delay)),
            false => self.record(class, delay),
        }
        if self.early.as_deref().is_some_and(EarlyDrop::is_on) {
            self.leaves_in_overload(class, received);
        }
    }

    #[inline]
    fn have_left(&mut self) {
        if self.left.is_empty() {
            return;
        }
        let mut left = std::mem::take(&mut self.left);
        for (class, delay) in left.drain(..) {
            self.record(class, delay);
        }
        self.left = left;
    }
}

#[cfg(test)]
mod tests {
    use fairlane_config::Site;
    use fairlane_core::Dequeue;
    use fairlane_runtime::Queue;

    use super::*;
    use crate::meter::Told;
    use crate::rig;

    /// With a class for each address, and more classes than are recorded one by one.
    #[test]
    fn of_many_classes_too_each_delay_is_recorded_in_the_step_in_which_the_packet_leaves() {
        for classes in [3, NEAR + 44] {
            let of_class = |number| {
                format!(
                    "[[link.class]]\nname = \"class{number}\"\n[[link.filter]]\nclass = \"class{number}\"\n\
                     source = \"10.0.{}.{}\"\n",
                    number / 256,
                    number % 256
                )
            };
            let text = "[[link]]\nname = \"up\"\nto = \"outside\"\nrate = \"1gbit\"\n".to_owned()
                + &(0..classes).map(of_class).collect::<String>()
                + "[[link.class]]\nname = \"rest\"\ndefault = true\n";
            let site = Site::parse(&text, "site.toml").unwrap();
            let (plan, mut arbiter, port) = rig::start(&site.links[0]);
            // Of each class since the last call: they are noted one by one, and taken.
            let recorded = |packets: u64| {
                let meters = plan.accounts.iter().take(classes);
                let delays = meters.map(|account| account.meter.read(&mut Told::default()));
                assert!(
                    delays
                        .map(|delays| delays.count())
                        .all(|count| count == packets)
                );
            };
            for class in 0..classes as u32 {
                rig::put(
                    arbiter.queue_mut(),
                    port,
                    rig::frame(class, 60),
                    Nanos::ZERO,
                );
            }
            recorded(0);
            let queue = arbiter.queue_mut();
            while let Dequeue::Packet(_) = queue.dequeue(Nanos::from_millis(1), drop) {}
            queue.released();
            recorded(1);
        }
    }
}
