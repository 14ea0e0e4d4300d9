//! Classification of frames, and measurement of their delays.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use fairlane_classify::{DigestKey, Found, LinkClassifier, Scratch};
use fairlane_core::tree::{ClassFlow, ClassId};
use fairlane_core::{Length, Nanos};
use fairlane_io::EarlyDrop;
use fairlane_mailbox::prefetch;
use fairlane_runtime::Classify;
use fairlane_wire::Layer;

use crate::early::words;
use crate::frame::Received;
use crate::meter::{Meter, Recorder, duration};
use crate::names::{self, Naming};
use crate::note::Note;
use crate::passing::Watch;

/// Classifies the frames of one link, and measures their delays. Built off the forwarding thread and replaced as a
/// whole.
pub struct FrameClassifier {
    pub filters: LinkClassifier,
    scratch: Scratch,
    /// By the number of the class.
    recorders: Vec<Option<Recorder>>,
    early: Option<Arc<EarlyDrop>>,
    /// For each class, by number, whether it conforms to its guarantee during an overload; empty without early drop.
    conduct: Vec<Conduct>,
    /// Frames of single-queue classes that were rejected or evicted.
    pub rejected: u64,
    /// Overhead on the wire in bytes per frame.
    pub overhead: u32,
    /// The passive TCP observer.
    pub watch: Option<Box<Watch>>,
    /// The places of classes by their numbers; of classes that go, none.
    places: Vec<Option<u32>>,
    /// Where the names of flows are noted while they are requested.
    pub naming: Option<Box<Naming>>,
    /// The number of the workers' table of these filters; 0 for none.
    pub table: u32,
}

/// The number of classes whose recorders are in a near cache in any case.
const NEAR: usize = 256;

/// Returns a secret random key, so that no sender can choose flows whose digests collide.
pub fn random_key() -> DigestKey {
    let random = || RandomState::new().hash_one(0);
    DigestKey([random(), random()])
}

impl FrameClassifier {
    /// Creates the classifier with a meter for each leaf class, and the early-drop tables of the classes with these
    /// numbers, by place.
    pub fn new<'a>(
        filters: LinkClassifier,
        metered: impl IntoIterator<Item = (ClassId, &'a Arc<Meter>)>,
        early: Option<Arc<EarlyDrop>>,
        ids: &[ClassId],
    ) -> FrameClassifier {
        let metered = metered.into_iter();
        let recorders = metered.map(|(id, meter)| (id, Recorder::new(Arc::clone(meter))));
        let recorders = by_number(recorders);
        let conduct = match early {
            Some(_) => vec![Conduct::default(); recorders.len()],
            None => Vec::new(),
        };
        FrameClassifier {
            filters,
            scratch: Scratch::default(),
            recorders,
            early,
            conduct,
            rejected: 0,
            overhead: 0,
            watch: None,
            places: by_number(ids.iter().copied().zip(0..)),
            naming: None,
            table: 0,
        }
    }

    /// Returns the early-drop state, if any.
    pub fn early(&self) -> Option<&EarlyDrop> {
        self.early.as_deref()
    }

    /// Returns the early-drop state and the place of a frame's class during an overload.
    #[inline]
    fn overloaded(&self, class: ClassId, received: &Received) -> Option<(&EarlyDrop, u32)> {
        let early = self.early.as_deref().filter(|early| early.is_on())?;
        // Frames sent by processes do not arrive at an interface.
        let place = received.origin.owner.is_none();
        Some((early, place.then(|| self.place(class))??))
    }

    /// Reports a frame that leaves to early drop while any limit is in force. Out of line, since it is rare.
    #[cold]
    #[inline(never)]
    fn leaves_beside_limits(&self, class: ClassId, received: &Received) {
        if let Some((early, place)) = self.overloaded(class, received) {
            early.sent(place, || words(received.frame.bytes()));
        }
    }

    /// Returns the place of a class.
    #[inline]
    fn place(&self, class: ClassId) -> Option<u32> {
        self.places.get(class.number() as usize).copied()?
    }

    /// Updates, for an arriving frame, whether its class conforms to its guarantee: by the frame's arrival at the
    /// interface, however long the thread has stood still since. Out of line, since it is only needed in an overload.
    #[cold]
    #[inline(never)]
    fn judge(&mut self, class: ClassId, received: &Received) {
        let number = class.number() as usize;
        let (Some(conduct), Some(Some(recorder))) =
            (self.conduct.get_mut(number), self.recorders.get(number))
        else {
            return;
        };
        if let Some((bps, burst)) = recorder.meter().guaranteed() {
            let bytes = received.frame.bytes().len() as u64 + u64::from(self.overhead);
            conduct.arrive(duration(bytes, bps), burst, received.came);
        }
    }

    /// Whether a class has sent no more than its guarantee since the overload began, as far as is known.
    fn keeps_to_guarantee(&self, class: ClassId) -> bool {
        let number = class.number() as usize;
        let guaranteed = match self.recorders.get(number) {
            Some(Some(recorder)) => recorder.meter().guaranteed(),
            _ => None,
        };
        let conduct = self.conduct.get(number);
        guaranteed
            .zip(conduct)
            .is_some_and(|((_, burst), conduct)| conduct.is_within(burst))
    }

    /// Notes the flow key of a frame, if it is not known. Out of line, since requests are rare.
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

    /// Prefetches the state written when these packets leave, if it belongs to too many classes for the near caches:
    /// once for all of them, where each would wait for its own.
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

    /// Classifies a frame by the filters.
    #[inline]
    pub fn by_filters(&mut self, received: &Received) -> ClassFlow {
        let bytes = received.frame.bytes();
        let (layer, origin) = (Layer::Ethernet, &received.origin);
        let to = (self.filters).classify(bytes, layer, origin, received.came);
        self.note_orphans();
        to
    }

    /// Counts the fragments that have just been classified without the first one of their datagram.
    #[inline]
    fn note_orphans(&mut self) {
        for class in self.filters.take_orphans() {
            if let Some(Some(recorder)) = self.recorders.get(class.number() as usize) {
                recorder.meter().record_orphan();
            }
        }
    }

    /// Uses a worker's classification of a frame, if it was made by these filters.
    #[inline]
    pub fn classified(&mut self, received: &Received, note: Note) -> ClassFlow {
        // Only this thread knows the datagram of a fragment.
        let is_known = note.table == self.table && !note.found.has(Found::FRAGMENT);
        let to = match note.table != 0 && is_known {
            true => {
                self.filters.count(note.found, received.frame.bytes());
                note.to
            }
            false => self.by_filters(received),
        };
        self.comes(to, received);
        to
    }

    /// Records the arrival of a frame in a class.
    #[inline]
    fn comes(&mut self, to: ClassFlow, received: &Received) {
        let bytes = received.frame.bytes().len() as u64 + u64::from(self.overhead);
        if let Some(recorder) = self.recorder(to.class) {
            let meter = recorder.meter();
            (received.verdict).set(meter.judge(to.flow, bytes, received.came));
            if received.losing {
                meter.record_beside_lost();
            }
        }
        if self.early.as_deref().is_some_and(EarlyDrop::is_on) {
            self.judge(to.class, received);
        }
        if let Some(watch) = &mut self.watch {
            watch.see(received.frame.bytes(), to, received.came);
        }
        if self.naming.is_some() {
            self.note(to, received);
        }
    }

    /// Returns the destination of a frame that stays in the class at this place.
    pub fn within(&self, place: usize, received: &Received) -> ClassFlow {
        let bytes = received.frame.bytes();
        (self.filters).within(place, bytes, Layer::Ethernet, &received.origin)
    }
}

/// The arrivals of a class during an overload, as a virtual schedule (GCRA, ITU-T I.371): the time when all of them
/// will have left at the guaranteed rate.
#[derive(Clone, Copy, Debug, Default)]
pub struct Conduct {
    done: Nanos,
    /// Time of the last observed arrival.
    last: Nanos,
    /// Time of the first arrival since all earlier ones would have left.
    began: Nanos,
}

impl Conduct {
    /// Records the arrival of a frame that takes `span` at the guaranteed rate, at which the burst takes `burst`.
    pub fn arrive(&mut self, span: Nanos, burst: Nanos, came: Nanos) {
        if came < self.began {
            // By a receiver that lags behind another one: all of its time would have been over by then.
            return;
        }
        if came > self.done {
            self.began = came;
        }
        self.last = self.last.max(came);
        let done = self.done.max(self.last) + span;
        // A flood is forgotten as long after it as a burst takes, or a second.
        let most = self.last + burst.max(FORGET) + burst;
        self.done = done.min(most);
    }

    pub fn is_within(self, burst: Nanos) -> bool {
        self.done.since(self.last) <= burst
    }
}

/// Minimum time for which a flood counts after its end.
const FORGET: Nanos = Nanos::from_secs(1);

/// Indexes values by class number.
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
        now: Nanos,
        to: &mut Vec<ClassFlow>,
    ) {
        let packets = all.clone();
        let packets = packets.map(|(received, _)| (received.frame.bytes(), received.origin));
        let before = to.len();
        (self.filters).classify_all(packets, Layer::Ethernet, now, &mut self.scratch, to);
        self.note_orphans();
        let to = &to[before..];
        self.prefetch(to);
        for (&to, (received, _)) in to.iter().zip(all) {
            self.comes(to, received);
        }
    }

    /// If a class conforms to its guarantee and its queue is full, the cause is a pause of this thread, or of the link:
    /// a limit would drop more of the class.
    fn no_room(&mut self, class: ClassId, received: &Received) {
        if let (Some(early), Some(place)) = (&self.early, self.place(class)) {
            self.rejected += u64::from(!early.has_flows(place));
        }
        if self.keeps_to_guarantee(class) {
            return;
        }
        if let Some((early, place)) = self.overloaded(class, received) {
            early.no_room(place, || words(received.frame.bytes()));
        }
    }

    #[inline]
    fn leaves(&mut self, class: ClassId, received: &Received, _: Length, now: Nanos) {
        if let Some(recorder) = self.recorder(class) {
            recorder.record_judged(now.since(received.came), received.verdict.get());
        }
        if self.early.as_deref().is_some_and(EarlyDrop::has_limits) {
            self.leaves_beside_limits(class, received);
        }
    }
}
