//! The stages of the path, each by itself: those before the arbiter's mailbox, and those behind it.

use std::collections::{HashSet, VecDeque};
use std::hint::black_box;
use std::io;

use fairlane_classify::{LinkClassifier, Scratch};
use fairlane_core::tree::{ClassFlow, ClassQueue};
use fairlane_core::{Dequeue, Discipline, Nanos, Packet, Rate};
use fairlane_io::Backend;
use fairlane_io::memory::{self, MemoryBackend};
use fairlane_wire::Layer;

use super::frames::{Classified, Frame, Memory};
use super::rounds::{Amount, Figure, measured};

/// Frames that are received, and handed on, at once.
pub(super) const BURST: usize = 64;

/// A device that sends and receives by a link in memory, with its other end.
struct Device {
    device: MemoryBackend<Frame>,
    wire: MemoryBackend<Frame>,
}

impl Device {
    fn new() -> Device {
        let (device, wire) = memory::pair(usize::MAX);
        Device { device, wire }
    }
}

/// Unwraps a result of a link in memory with both ends here, which cannot fail.
fn sound<T>(answer: io::Result<T>) -> T {
    answer.expect("both ends of the link are held")
}

/// Receives and classifies.
pub(super) struct Front<'a> {
    rx: Device,
    received: Vec<Frame>,
    classifying: Classifying<'a>,
}

/// Finds the class and flow of frames.
struct Classifying<'a> {
    memory: &'a Memory,
    classifier: LinkClassifier,
    scratch: Scratch,
    to: Vec<ClassFlow>,
    /// Those looked at last.
    classified: Vec<Classified>,
}

impl Classifying<'_> {
    fn classify(&mut self, frames: &[Frame]) {
        let (memory, to) = (self.memory, &mut self.to);
        let packets = frames.iter();
        let packets = packets.map(|&frame| (memory.bytes(frame), *memory.origin(frame)));
        (self.classifier).classify_all(
            packets,
            Layer::Ethernet,
            Nanos::ZERO,
            &mut self.scratch,
            to,
        );
        self.classified.clear();
        let classified = to.drain(..).zip(frames);
        (self.classified).extend(classified.map(|(to, &frame)| Classified { to, frame }));
    }
}

impl<'a> Front<'a> {
    pub(super) fn new(memory: &'a Memory, classifier: LinkClassifier) -> Front<'a> {
        Front {
            rx: Device::new(),
            received: Vec::with_capacity(BURST),
            classifying: Classifying {
                memory,
                classifier,
                scratch: Scratch::default(),
                to: Vec::with_capacity(BURST),
                classified: Vec::with_capacity(BURST),
            },
        }
    }

    /// Returns all frames, classified.
    pub(super) fn all(&mut self) -> Vec<Classified> {
        let mut all = Vec::new();
        for frames in self.classifying.memory.frames().chunks(BURST) {
            self.classifying.classify(frames);
            all.extend_from_slice(&self.classifying.classified);
        }
        all
    }

    /// All frames arrive at the device.
    pub(super) fn arrive(&mut self) {
        let mut all = VecDeque::from(self.classifying.memory.frames().to_vec());
        sound(self.rx.wire.transmit(&mut all));
    }

    /// Takes in a burst: whether there was one.
    #[inline]
    pub(super) fn receive(&mut self) -> bool {
        self.received.clear();
        sound(self.rx.device.receive(&mut self.received, BURST)) > 0
    }

    /// Classifies the received packets.
    #[inline]
    pub(super) fn classify_received(&mut self) -> &[Classified] {
        self.classifying.classify(&self.received);
        &self.classifying.classified
    }

    /// Receiving alone.
    pub(super) fn rx(&mut self, amount: Amount) -> Figure {
        measured(amount, |watch| {
            self.arrive();
            watch.timed(|| {
                while self.receive() {
                    black_box(&self.received);
                }
            })
        })
    }

    /// Parsing and classifying alone.
    pub(super) fn classify(&mut self, amount: Amount) -> Figure {
        let frames = self.classifying.memory.frames();
        measured(amount, |watch| {
            watch.timed(|| {
                for burst in frames.chunks(BURST) {
                    self.classifying.classify(burst);
                    black_box(&self.classifying.classified);
                }
            })
        })
    }
}

/// Returns how many classes these go to.
pub(super) fn classes(classified: &[Classified]) -> usize {
    let classes = classified.iter().map(|one| one.to.class.number());
    classes.collect::<HashSet<_>>().len()
}

/// Decides and transmits.
pub(super) struct Back {
    pub(super) arbiter: Arbiter,
    /// Packets that were released and not yet transmitted.
    pub(super) out: VecDeque<Frame>,
    tx: Device,
    sent: Vec<Frame>,
}

impl Back {
    pub(super) fn new(arbiter: Arbiter) -> Back {
        Back {
            arbiter,
            out: VecDeque::with_capacity(2 * BURST),
            tx: Device::new(),
            sent: Vec::new(),
        }
    }

    /// Queues a burst, and takes out as many.
    #[inline]
    pub(super) fn decide(&mut self, classified: &[Classified]) {
        self.arbiter.pass(classified, &mut self.out);
    }

    /// Transmits the released packets.
    #[inline]
    pub(super) fn transmit(&mut self) {
        sound(self.tx.device.transmit(&mut self.out));
    }

    /// Completes the transmitted packets.
    pub(super) fn leave(&mut self) {
        self.sent.clear();
        sound(self.tx.wire.receive(&mut self.sent, usize::MAX));
    }

    /// Deciding alone.
    pub(super) fn decisions(&mut self, classified: &[Classified], amount: Amount) -> Figure {
        measured(amount, |watch| {
            watch.timed(|| {
                for burst in classified.chunks(BURST) {
                    self.decide(burst);
                    black_box(&self.out);
                    self.out.clear();
                }
            })
        })
    }

    /// Transmitting alone.
    pub(super) fn tx(&mut self, frames: &[Frame], amount: Amount) -> Figure {
        measured(amount, |watch| {
            let taken = watch.timed(|| {
                for burst in frames.chunks(BURST) {
                    self.out.extend(burst);
                    self.transmit();
                }
            });
            self.leave();
            taken
        })
    }
}

/// The queues of a link that is always busy, in a time that its own rate makes.
pub(super) struct Arbiter {
    queues: Discipline<Frame>,
    overhead: u32,
    ns_per_byte: f64,
    now: Nanos,
    /// As many wait at any time.
    pub(super) waiting: u32,
    pub(super) offered: u64,
    /// Of those, the number that the queues rejected or discarded.
    pub(super) lost: u64,
}

impl Arbiter {
    /// Keeps half of these packets queued; if the queues reject some of them, half of the number that they hold
    /// then, or few enough to leave space for a burst.
    pub(super) fn new(
        queues: Discipline<Frame>,
        rate: Rate,
        overhead: u32,
        classified: &[Classified],
    ) -> Arbiter {
        let mut arbiter = Arbiter {
            queues,
            overhead,
            ns_per_byte: 8e9 / rate.bps() as f64,
            now: Nanos::ZERO,
            waiting: u32::MAX,
            offered: 0,
            lost: 0,
        };
        let mut out = VecDeque::new();
        for burst in classified[..classified.len() / 2].chunks(BURST) {
            arbiter.pass(burst, &mut out);
            if arbiter.lost > 0 {
                break;
            }
        }
        let held = arbiter.queues.len();
        arbiter.waiting = match arbiter.lost {
            0 => held,
            _ => (held / 2).min(held.saturating_sub(BURST as u32)),
        };
        arbiter.pass(&[], &mut out);
        (arbiter.offered, arbiter.lost) = (0, 0);
        arbiter
    }

    /// Enqueues these, and dequeues all above the standing backlog. If none is eligible yet, advances the time until
    /// one is.
    #[inline]
    fn pass(&mut self, classified: &[Classified], out: &mut VecDeque<Frame>) {
        let (overhead, mut rejected, mut discarded) = (self.overhead, 0, 0);
        let packets = classified.iter().map(|one| Packet {
            owner: one.to,
            len: one.frame.on_link(overhead),
            payload: one.frame,
        });
        (self.queues).enqueue_burst(packets, self.now, |_, _| rejected += 1, |_| discarded += 1);
        let mut bytes = 0;
        while self.queues.len() > self.waiting {
            match self.queues.dequeue(self.now, |_| discarded += 1) {
                Dequeue::Packet(packet) => {
                    bytes += packet.len.get();
                    out.push_back(packet.payload);
                }
                Dequeue::NotBefore(time) => self.now = time,
                Dequeue::Empty => break,
            }
        }
        self.now += Nanos((f64::from(bytes) * self.ns_per_byte) as u64);
        self.offered += classified.len() as u64;
        self.lost += rejected + discarded;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairlane_core::sched::Algorithm;
    use fairlane_core::tree::{Ceiling, ClassConfig, ClassId, LeafConfig, Tree};
    use fairlane_core::{Length, SchedulerLimits, Weight};

    /// Returns an arbiter with one class for all frames, under this ceiling, in queues for `packets` packets.
    fn arbiter(packets: u32, ceiling: Option<Ceiling>) -> (Arbiter, Vec<Classified>) {
        let limits = SchedulerLimits {
            packets,
            bytes: u64::MAX,
            ..SchedulerLimits::default()
        };
        let mut tree = Tree::new(Algorithm::Qfq, None, limits);
        let config = ClassConfig {
            ceiling,
            ..ClassConfig::new(Weight::ONE, Length::MAX)
        };
        let class = tree.add_leaf(ClassId::ROOT, config, LeafConfig::default());
        let to = class.unwrap().into();
        let memory = Memory::new(&[], 0, 64);
        let frames = memory.frames().iter();
        let classified: Vec<Classified> = frames.map(|&frame| Classified { to, frame }).collect();
        let rate = "1gbit".parse().unwrap();
        let arbiter = Arbiter::new(Discipline::Tree(tree), rate, 24, &classified);
        (arbiter, classified)
    }

    #[test]
    fn as_many_leave_as_come_and_the_same_number_waits() {
        let (mut arbiter, classified) = arbiter(10_000, None);
        assert_eq!((arbiter.waiting, classes(&classified)), (4_096, 1));
        let mut out = VecDeque::new();
        arbiter.pass(&classified[..BURST], &mut out);
        assert_eq!((out.len(), arbiter.queues.len()), (BURST, 4_096));
        // The first of those that wait are the first of all; 88 bytes each at 1 Gbit/s.
        assert!(
            out.iter()
                .eq(classified[..BURST].iter().map(|one| &one.frame))
        );
        assert_eq!((arbiter.now, arbiter.lost), (Nanos(64 * 704), 0));
    }

    #[test]
    fn queues_with_room_for_few_hold_so_many_that_a_burst_has_room() {
        let (mut few, classified) = arbiter(100, None);
        assert_eq!(few.waiting, 36);
        let mut out = VecDeque::new();
        for burst in classified.chunks(BURST) {
            few.pass(burst, &mut out);
        }
        assert_eq!((out.len(), few.lost), (classified.len(), 0));
        // If even a burst has no space, rejections are counted.
        let (mut tiny, _) = arbiter(10, None);
        tiny.pass(&classified[..BURST], &mut out);
        assert_eq!((tiny.waiting, tiny.offered, tiny.lost), (0, 64, 54));
    }

    #[test]
    fn where_a_ceiling_lets_nothing_leave_it_is_as_late_as_something_may() {
        let ceiling = Ceiling {
            rate: "880kbit".parse().unwrap(),
            burst: 100_000,
        };
        let (mut arbiter, classified) = arbiter(10_000, Some(ceiling));
        let mut out = VecDeque::new();
        for burst in classified.chunks(BURST) {
            arbiter.pass(burst, &mut out);
        }
        assert_eq!(out.len(), classified.len());
        // A packet of 88 bytes takes 0.8 ms, except those of the first burst.
        let millis = arbiter.now.0 / 1_000_000;
        assert!((5_500..6_600).contains(&millis), "{millis}");
    }
}
