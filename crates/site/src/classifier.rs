//! Which class a frame belongs to, and how long it stayed there.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use fairlane_classify::{DigestKey, Layer, LinkClassifier, Scratch};
use fairlane_core::tree::{ClassFlow, ClassId};
use fairlane_core::{Length, Nanos};
use fairlane_io::EarlyDrop;
use fairlane_mailbox::prefetch;
use fairlane_runtime::Classify;

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
    scratch: Scratch,
    /// By the number of the class.
    recorders: Vec<Option<Recorder>>,
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

/// Classes whose recorders are in a near cache in any case.
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
            scratch: Scratch::default(),
            recorders: by_number(recorders),
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

    /// What early drop wants to know of a frame of a class while there is an overload.
    #[inline]
    fn overloaded(&self, class: ClassId, received: &Received) -> Option<(&EarlyDrop, u32)> {
        let early = self.early.as_deref().filter(|early| early.is_on())?;
        // What processes send does not come by an interface.
        let place = received.origin.owner.is_none();
        Some((early, place.then(|| self.place(class))??))
    }

    /// Early drop is told of a frame that leaves while somebody has a limit. By itself: that is seldom.
    #[cold]
    #[inline(never)]
    fn leaves_beside_limits(&self, class: ClassId, received: &Received) {
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

    /// Asks for what is written when these leave, where that is of so many classes that it is in no near cache: for all of
    /// them at once, where it would be waited for by each.
    fn prefetch(&self, to: &[ClassFlow]) {
        if self.recorders.len() <= NEAR {
            return;
        }
        let recorders = || {
            let of = |to: &ClassFlow| self.recorders.get(to.class.number() as usize);
            to.iter().filter_map(of)
        };
        recorders().for_each(|recorder| prefetch(recorder));
        (recorders().flatten()).for_each(Recorder::prefetch_meter);
    }

    #[inline]
    fn recorder(&mut self, class: ClassId) -> Option<&mut Recorder> {
        self.recorders.get_mut(class.number() as usize)?.as_mut()
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

    #[inline]
    fn classify_all<'a>(
        &mut self,
        all: impl ExactSizeIterator<Item = (&'a Received, Length)> + Clone,
        _: Nanos,
        to: &mut Vec<ClassFlow>,
    ) {
        let packets = all.clone();
        let packets = packets.map(|(received, _)| (received.frame.bytes(), received.origin));
        let before = to.len();
        (self.filters).classify_all(packets, Layer::Ethernet, &mut self.scratch, to);
        let to = &to[before..];
        self.prefetch(to);
        for (&to, (received, _)) in to.iter().zip(all) {
            self.comes(to, received);
        }
    }

    fn no_room(&mut self, class: ClassId, received: &Received) {
        if let Some((early, place)) = self.overloaded(class, received) {
            early.no_room(place, || words(received.frame.bytes()));
        }
    }

    #[inline]
    fn leaves(&mut self, class: ClassId, received: &Received, _: Length, now: Nanos) {
        if let Some(recorder) = self.recorder(class) {
            recorder.record(now.since(received.came));
        }
        if self.early.as_deref().is_some_and(EarlyDrop::has_limits) {
            self.leaves_beside_limits(class, received);
        }
    }
}
