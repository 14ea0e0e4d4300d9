//! Early drop on a site's interfaces: the frames that may be dropped before they are received, and when.

#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, PoisonError};

use fairlane_classify::{self as classify, Asked, LinkClassifier, Origin};
use fairlane_config::{ClassKind, Link, Role};
use fairlane_core::room::Room;
use fairlane_core::{Count, Nanos};
use fairlane_io::early::{Class, EarlyDrop, Family, Gate, Pattern, Rules, WORDS};
use fairlane_wire::{self as wire, Headers, Layer};

use crate::event::{Event, Notify};

/// Minimum duration of limits, after which an overload may be over. Doubled if the last overload was [recent](AGAIN),
/// up to the longest: a thread that loses its core now and then is overloaded for moments, and in each the ring would
/// be full before limits are set.
const EPOCH: Nanos = Nanos::from_secs(1);
const LONGEST_EPOCH: Nanos = Nanos::from_secs(64);
const AGAIN: Nanos = Nanos::from_secs(120);
/// With fewer drops than this in an epoch, those frames might as well have been received.
const FEW: u64 = 2_000;
/// Frames rejected by queues of classes per second, at which the ring would fill in a second if the thread stood still:
/// limits are set beforehand. Rejections by queues of flows do not count: a flow within its share may have the same
/// limit.
const MANY: u64 = 8_000;

/// Packets that a limit admits of a class in addition to the backlog at its start, and at once; and the same of a flow.
const OF_CLASS: (u32, u32) = (32, 256);
const OF_FLOW: (u32, u32) = (2, 16);
/// The fraction by which limits exceed the minimum, so that tables outlast small changes.
const SPARE: u32 = 8;

const FAMILIES: [(wire::Family, Family); 3] = [
    (wire::Family::V4, Family::V4),
    (wire::Family::V6, Family::V6),
    (wire::Family::Other, Family::Other),
];

/// The interface where frames of a link arrive, with its early drop. It may disappear and reappear.
pub struct Port {
    role: Role,
    notify: Notify,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The interface's name.
    name: String,
    gate: Option<Gate>,
    early: Option<Arc<EarlyDrop>>,
    /// The lack of early drop was reported.
    complained: bool,
}

impl Port {
    pub fn new(name: &str, role: Role, notify: Notify) -> Port {
        Port {
            role,
            notify,
            state: Mutex::new(State {
                name: name.to_owned(),
                ..State::default()
            }),
        }
    }

    /// Changes the state, and installs the tables where frames arrive, if both are known.
    fn change(&self, change: impl FnOnce(&mut State)) {
        // A panic of another holder leaves a state that is whole.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut state);
        if let (Some(gate), Some(early)) = (&state.gate, &state.early)
            && let Err(error) = gate.put(early)
        {
            self.complain(&mut state, error);
        }
    }

    fn complain(&self, state: &mut State, reason: std::io::Error) {
        if !std::mem::replace(&mut state.complained, true) {
            let interface = state.name.clone();
            (self.notify)(Event::NoEarlyDrop { interface, reason });
        }
    }

    /// Installs the tables at an interface that was opened, for the first time, again, or as a replacement.
    pub fn opened(&self, name: &str, gate: Gate) {
        self.change(|state| {
            if state.name != name {
                name.clone_into(&mut state.name);
                state.complained = false;
            }
            state.gate = Some(gate);
        });
    }

    /// Replaces the tables.
    pub fn exchange(&self, early: Option<Arc<EarlyDrop>>) {
        self.change(|state| state.early = early);
    }

    /// Installs the same tables again.
    pub fn reinstall(&self) {
        self.change(|_| ());
    }

    /// Creates the tables for a link, with its classes' places; `None` if the kernel does not permit it.
    pub fn tables(&self, link: &Link, filters: &LinkClassifier) -> Option<Tables> {
        let mut rules = rules(link, filters, self.role);
        for class in &mut rules.classes {
            class.most = class.most.saturating_add(class.most / SPARE);
        }
        match EarlyDrop::new(&rules) {
            Ok(early) => Some(Tables {
                early: Arc::new(early),
                most: rules.classes.iter().map(|class| class.most).collect(),
            }),
            Err(error) => {
                let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                self.complain(&mut state, error);
                None
            }
        }
    }
}

/// The early-drop tables of a link.
#[derive(Clone)]
pub struct Tables {
    pub early: Arc<EarlyDrop>,
    /// The burst that a limit admits of each class, or flow, by place.
    most: Arc<[u32]>,
}

impl Tables {
    /// Whether the tables still suit a link of the same classes and filters, after the parameters of the classes at
    /// these places changed: no class's burst may be smaller than its buffer reservation, or much larger.
    pub fn outlast(&self, link: &Link, changed: &[usize]) -> bool {
        changed.iter().all(|&place| {
            let (_, needed) = limit(&link.classes[place].kind);
            (needed..=needed.saturating_mul(2)).contains(&self.most[place])
        })
    }
}

/// Returns the filters of a link for frames that arrive from one side.
fn rules(link: &Link, filters: &LinkClassifier, from: Role) -> Rules {
    let origin = Origin {
        ingress: from.ingress(),
        owner: None,
    };
    let pattern = |asked: Asked| Pattern {
        mask: asked.mask,
        value: asked.value,
        source_port: asked.source_port,
        destination_port: asked.destination_port,
    };
    let of_family = |(family, _): (wire::Family, Family)| {
        let control = link.link_control.map(|class| (Asked::LINK_CONTROL, class));
        // No IPv4 frame is link control.
        let control = control.filter(|_| family != wire::Family::V4);
        let asked = filters.rules().asked(family, &origin).into_iter();
        let asked = control.into_iter().chain(asked);
        asked
            .map(|(asked, class)| (pattern(asked), class))
            .collect()
    };
    let class = |(kind, longest): (&ClassKind, u32)| {
        let flows = match kind {
            ClassKind::Flows(flows) => Some(flows.per),
            ClassKind::Inner(_) | ClassKind::Leaf(_) => None,
        };
        let (first, most) = limit(kind);
        Class {
            flows: flows.map(|per| FAMILIES.map(|(family, _)| per.words(family))),
            first,
            most,
            longest,
        }
    };
    let kinds = link.classes.iter().map(|class| &class.kind);
    Rules {
        rules: FAMILIES.map(of_family),
        default: link.default,
        follows_fragments: filters.follows_fragments(),
        classes: kinds.zip(link.longest_frames()).map(class).collect(),
    }
}

/// Returns the packets that a limit admits of a class, or of each of its flows: at first, and at once.
fn limit(kind: &ClassKind) -> (u32, u32) {
    let ((first, most), room) = match kind {
        ClassKind::Inner(_) => (OF_CLASS, Room::NONE),
        ClassKind::Leaf(queue) => (OF_CLASS, queue.room),
        ClassKind::Flows(flows) => (OF_FLOW, flows.queue.room),
    };
    (first, most.max(room.packets))
}

/// Returns the words of a frame's headers; `None` for a malformed one.
pub fn words(frame: &[u8]) -> Option<(Family, [u64; WORDS])> {
    let headers: Headers = wire::parse(frame, Layer::Ethernet).ok()?;
    let (_, family) = FAMILIES
        .into_iter()
        .find(|(one, _)| *one == headers.family)?;
    Some((family, classify::words(&headers)))
}

/// Detects overload; owned by the forwarding thread.
#[derive(Default)]
pub struct Guard {
    /// Length of an epoch; 0 before the first overload.
    epoch: Nanos,
    /// The epoch ends, or the last one has ended.
    until: Nanos,
    /// A ring was filling in this epoch.
    filled: bool,
    /// The number of drops when it began.
    dropped: u64,
    /// Rejected frames at a time, and that time.
    rejected: (u64, Nanos),
}

impl Guard {
    /// Checks for overload between two rounds; `is_filling` says whether frames occupy a good part of the receive ring,
    /// and `rejected` is the number of frames rejected by queues so far. O(1).
    #[inline]
    pub fn look(&mut self, early: &EarlyDrop, is_filling: bool, rejected: u64, now: Nanos) {
        if is_filling || !early.is_on() && self.would_fill(rejected, now) {
            self.filled = true;
            if !early.is_on() {
                early.start();
                self.epoch = self.epoch_at(now);
                self.begin_epoch(early, now);
            }
        } else if !early.is_on() {
            return;
        }
        if now >= self.until {
            if self.filled || early.total() >= self.dropped + FEW {
                early.renew();
                self.begin_epoch(early, now);
            } else {
                early.stop();
                self.until = now;
                return;
            }
        }
        early.probe();
    }

    /// Whether a thread that stands still would find the ring full soon.
    fn would_fill(&mut self, rejected: u64, now: Nanos) -> bool {
        let (before, at) = self.rejected;
        // With other filters the count begins again.
        if rejected < before || now.since(at) >= EPOCH {
            self.rejected = (rejected, now);
            return false;
        }
        rejected - before >= MANY
    }

    /// Returns the epoch length of an overload that begins now.
    fn epoch_at(&self, now: Nanos) -> Nanos {
        let is_again = self.epoch > Nanos::ZERO && now.since(self.until) < AGAIN;
        match is_again {
            false => EPOCH,
            // It continues with the new tables.
            true if now < self.until => self.epoch,
            true => (self.epoch + self.epoch).min(LONGEST_EPOCH),
        }
    }

    /// Stops early drop, regardless of the backlog. O(1).
    #[inline]
    pub fn rest(&mut self, early: &EarlyDrop) {
        if early.is_on() {
            early.stop();
            *self = Guard::default();
        }
    }

    fn begin_epoch(&mut self, early: &EarlyDrop, now: Nanos) {
        self.until = now + self.epoch;
        self.filled = false;
        self.dropped = early.total();
    }
}

/// Early drops of a class, over all tables it has been in.
#[derive(Clone, Default)]
pub struct Early {
    /// Counts of former tables.
    before: Count,
    /// With its number there; the last may still be used.
    tables: Vec<(Arc<EarlyDrop>, u32)>,
}

impl Early {
    /// Adds a table to count by.
    pub fn enter(&mut self, early: Option<&Arc<EarlyDrop>>, place: usize) {
        if let Some(early) = early {
            // Of thousands of classes each has one.
            self.tables.reserve_exact(1);
            self.tables.push((Arc::clone(early), place as u32));
        }
    }

    /// Takes over the counts of `other`.
    pub fn inherit(&mut self, other: &Early) {
        self.before = self.before.plus(other.before);
        self.tables.splice(0..0, other.tables.iter().cloned());
    }

    /// Returns the number of frames and their bytes. Releases former tables.
    pub fn count(&mut self, overhead: u32) -> Count {
        let counted = |&(ref early, place): &(Arc<EarlyDrop>, u32)| {
            let dropped = early.dropped(place);
            Count {
                packets: dropped.frames,
                bytes: dropped.bytes + dropped.frames * u64::from(overhead),
            }
        };
        let used = self.tables.len().saturating_sub(1);
        for former in self.tables.drain(..used) {
            self.before = self.before.plus(counted(&former));
        }
        self.tables
            .iter()
            .map(counted)
            .fold(self.before, Count::plus)
    }
}
