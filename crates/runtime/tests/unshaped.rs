//! A direction that is left unshaped for a time: the backlog leaves first, all other packets pass in
//! order of arrival, and flows notice only the pace.

use std::collections::VecDeque;

use fairlane_core::aqm::AqmConfig;
use fairlane_core::sched::Algorithm;
use fairlane_core::tree::{Ceiling, ClassConfig, ClassFlow, ClassId, LeafConfig, Payload, Tree};
use fairlane_core::{FlowConfig, Length, Nanos, Rate, SchedulerLimits, Weight};
use fairlane_io::{Backend, ByteLen, MemoryBackend, memory};
use fairlane_runtime::bridge::{BATCH, Bridge, Came, Frames, Lane, Side};
use fairlane_runtime::{
    Arbiter, ArbiterConfig, Classified, Classify, Client, FromPort, Link, Next, Straight,
};
use proptest::prelude::*;

/// A frame of a class, numbered within it. Those of clients are apart.
#[derive(Debug, PartialEq)]
struct Frame {
    class: usize,
    of_client: bool,
    number: u32,
    length: usize,
}

impl Payload for Frame {}

impl ByteLen for Frame {
    fn byte_len(&self) -> usize {
        self.length
    }
}

/// Takes a frame's word for its class.
struct Word(Vec<ClassId>);

impl Classify<Frame> for Word {
    fn classify(&mut self, frame: &Frame, _: Length, _: Nanos) -> ClassFlow {
        self.0[frame.class].into()
    }
}

type Memory = MemoryBackend<Frame>;
type Queue = Classified<Frame, Tree<FromPort<Frame>>, Word>;
type Make = fn(Frame, Side, Came) -> Frame;

fn as_it_is(frame: Frame, _: Side, _: Came) -> Frame {
    frame
}

const CLASSES: usize = 4;

/// A bridge whose right side is shaped to a byte a microsecond, in four classes, of which the last two
/// have ceilings of a tenth and a thousandth of that.
struct Bed {
    bridge: Bridge<Queue, Memory, Make>,
    here: Memory,
    there: Memory,
    client: Client<Frame>,
    now: Nanos,
    /// Packets sent of each class, by the host and by the client.
    sent: [[u32; 2]; CLASSES],
    arrived: Vec<Frame>,
}

fn rate(bps: u64) -> Rate {
    Rate::from_bps(bps).unwrap()
}

fn any_frame() -> FlowConfig {
    FlowConfig::new(Weight::ONE, Length::MAX)
}

impl Bed {
    /// Returns a bed whose device holds `room` frames.
    fn new(room: usize) -> Bed {
        let ((left, here), (right, there)) = (memory::pair(100_000), memory::pair(room));
        let mut tree = Tree::new(Algorithm::Qfq, None, SchedulerLimits::default());
        let ceilings = [None, None, Some(800_000), Some(8_000)];
        let ids = ceilings.map(|ceiling| {
            let ceiling = ceiling.map(|bps| Ceiling {
                rate: rate(bps),
                burst: 1_500,
            });
            let config = ClassConfig {
                ceiling,
                ..ClassConfig::new(Weight::ONE, Length::new(1_500).unwrap())
            };
            let leaf = LeafConfig {
                aqm: AqmConfig::TailDrop,
                ..LeafConfig::default()
            };
            tree.add_leaf(ClassId::ROOT, config, leaf).unwrap()
        });
        let config = ArbiterConfig {
            read_interval: Nanos::ZERO,
            ..ArbiterConfig::new(Link::new(rate(8_000_000)))
        };
        let queue = Classified::new(tree, Word(ids.into()));
        let arbiter = Arbiter::over(queue, config, Straight::to(right), Nanos::ZERO);
        let client = arbiter.registrar().register(any_frame()).unwrap();
        let shaped = Lane::Shaped(Box::new(arbiter), any_frame());
        let make: Make = as_it_is;
        Bed {
            bridge: Bridge::new(Lane::Open(left), shaped, make).unwrap(),
            here,
            there,
            client,
            now: Nanos::ZERO,
            sent: [[0; 2]; CLASSES],
            arrived: Vec::new(),
        }
    }

    fn frame(&mut self, class: usize, of_client: bool, length: usize) -> Frame {
        let number = &mut self.sent[class][usize::from(of_client)];
        *number += 1;
        Frame {
            class,
            of_client,
            number: *number,
            length,
        }
    }

    fn send(&mut self, class: usize, count: u32, length: usize) {
        let mut batch: VecDeque<Frame> = (0..count)
            .map(|_| self.frame(class, false, length))
            .collect();
        self.here.transmit(&mut batch).unwrap();
    }

    /// As many as the mailbox has room for.
    fn push(&mut self, class: usize, count: u32, length: usize) {
        for _ in 0..count {
            let frame = self.frame(class, true, length);
            let len = Length::new(length as u32).unwrap();
            if self.client.push(len, frame).is_err() {
                self.sent[class][1] -= 1;
                return;
            }
        }
    }

    fn round(&mut self, later: Nanos) -> Next {
        self.now += later;
        let next = self.bridge.round(self.now).unwrap().next;
        let arbiter = self.bridge.arbiter(Side::Right).unwrap();
        arbiter.invariants().unwrap();
        let total = arbiter.total_stats();
        assert_eq!(
            total.accepted,
            total.sent.plus(total.discarded).plus(total.queued)
        );
        next
    }

    fn hear(&mut self, most: usize) -> usize {
        self.there.receive(&mut self.arrived, most).unwrap()
    }

    fn shape(&mut self, shaped: bool) {
        assert!(self.bridge.set_shaped(Side::Right, shaped));
        assert_eq!(self.bridge.is_shaped(Side::Right), shaped);
    }

    fn waits(&self) -> u64 {
        let arbiter = self.bridge.arbiter(Side::Right).unwrap();
        arbiter.total_stats().queued.packets
    }

    /// Checks that all packets sent have arrived, in order.
    fn all_arrived_in_order(&self) {
        for class in 0..CLASSES {
            for of_client in [false, true] {
                let numbers = (self.arrived.iter())
                    .filter(|frame| (frame.class, frame.of_client) == (class, of_client))
                    .map(|frame| frame.number);
                let sent = self.sent[class][usize::from(of_client)];
                assert!(
                    numbers.clone().eq(1..=sent),
                    "class {class}, {sent} sent: {:?}",
                    numbers.collect::<Vec<_>>()
                );
            }
        }
    }
}

#[test]
fn what_waits_leaves_first_and_at_once_whatever_the_ceilings_and_then_frames_pass() {
    let mut bed = Bed::new(100_000);
    for class in 0..CLASSES {
        bed.send(class, 100, 1_000);
    }
    bed.round(Nanos::ZERO);
    assert_eq!(bed.hear(1_000), 1, "the link is slow");
    bed.shape(false);
    for class in [3, 0] {
        bed.send(class, 30, 1_000);
    }
    let mut rounds = 0;
    while bed.waits() > 0 {
        assert!(rounds < 100, "{} packets wait", bed.waits());
        bed.round(Nanos(1_000));
        rounds += 1;
    }
    assert_eq!(bed.hear(1_000), 399, "in {rounds} us");
    bed.round(Nanos(1_000));
    bed.round(Nanos(1_000));
    assert_eq!(bed.hear(1_000), 60);
    bed.all_arrived_in_order();
    let passed: Vec<usize> = bed.arrived[400..].iter().map(|frame| frame.class).collect();
    assert_eq!(
        passed,
        [[3; 30], [0; 30]].concat(),
        "in the order of arrival"
    );
    let stats = bed.bridge.stats(Side::Right);
    let expected = Frames {
        frames: 60,
        bytes: 60_000,
    };
    assert_eq!(stats.passed, expected);
    assert_eq!((stats.received.frames, stats.transmitted), (460, 460));
    let total = bed.bridge.arbiter(Side::Right).unwrap().total_stats();
    assert_eq!(
        total.sent.packets, 400,
        "what passes is in no count of a class"
    );
}

#[test]
fn once_it_is_shaped_again_the_link_and_the_ceilings_hold() {
    let mut bed = Bed::new(100_000);
    bed.send(2, 50, 1_000);
    bed.round(Nanos::ZERO);
    bed.shape(false);
    for _ in 0..100 {
        bed.round(Nanos::from_millis(1));
    }
    bed.send(2, 500, 1_000);
    for _ in 0..20 {
        bed.round(Nanos(1_000));
    }
    assert_eq!(bed.hear(1_000), 550);
    bed.shape(true);
    bed.send(0, 1_000, 1_000);
    bed.send(2, 1_000, 1_000);
    bed.round(Nanos::ZERO);
    assert!(
        bed.hear(2_000) <= 1,
        "no burst for the time in which it was unshaped"
    );
    for _ in 0..100 {
        bed.round(Nanos::from_millis(1));
    }
    let before = bed.arrived.len();
    assert!((100..=101).contains(&bed.hear(2_000)));
    let limited = bed.arrived[before..].iter().filter(|it| it.class == 2);
    assert!((9..=12).contains(&limited.count()), "a tenth of the link");
}

#[test]
fn a_full_device_holds_up_who_sends_and_nothing_grows() {
    let mut bed = Bed::new(10);
    bed.send(0, 200, 1_000);
    bed.round(Nanos::ZERO);
    bed.shape(false);
    bed.send(1, 500, 1_000);
    for _ in 0..50 {
        bed.push(0, 1_000, 100);
        bed.round(Nanos(1_000));
    }
    let received = bed.bridge.stats(Side::Right).received.frames;
    assert_eq!(received, 200, "what waits goes first");
    let mut heard = 0;
    let mut rounds = 0;
    while heard < 700 {
        heard += bed.hear(10);
        bed.round(Nanos(1_000));
        let received = bed.bridge.stats(Side::Right).received.frames;
        assert!(received <= heard as u64 + 200 + BATCH as u64);
        rounds += 1;
        assert!(rounds < 10_000, "{heard}");
    }
    for _ in 0..1_000 {
        bed.hear(10);
        bed.round(Nanos(1_000));
    }
    assert!(bed.sent[0][1] >= 256, "a mailbox full");
    bed.all_arrived_in_order();
}

#[test]
fn a_direction_without_a_queue_has_nothing_to_shape() {
    let mut bed = Bed::new(10);
    assert!(!bed.bridge.set_shaped(Side::Left, false));
    assert!(!bed.bridge.is_shaped(Side::Left));
}

#[derive(Clone, Debug)]
enum Act {
    Send(usize, u32, usize),
    Push(usize, u32, usize),
    Shape(bool),
    Hear(usize),
    Round(u64),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => (0..CLASSES, 1..90_u32, 60..1_500_usize).prop_map(|(c, n, l)| Act::Send(c, n, l)),
        2 => (0..CLASSES, 1..40_u32, 60..1_500_usize).prop_map(|(c, n, l)| Act::Push(c, n, l)),
        1 => any::<bool>().prop_map(Act::Shape),
        2 => (0..200_usize).prop_map(Act::Hear),
        4 => (0..3_000_000_u64).prop_map(Act::Round),
    ]
}

proptest! {
    #[test]
    fn however_often_it_is_switched_nothing_is_lost_or_reordered(
        acts in prop::collection::vec(act(), 1..120),
        room in 1..150_usize,
    ) {
        let mut bed = Bed::new(room);
        for act in acts {
            match act {
                Act::Send(class, count, length) => bed.send(class, count, length),
                Act::Push(class, count, length) => bed.push(class, count, length),
                Act::Shape(shaped) => bed.shape(shaped),
                Act::Hear(most) => {
                    bed.hear(most);
                }
                Act::Round(later) => {
                    bed.round(Nanos(later));
                }
            }
        }
        // Unshaped, all of it is there soon.
        bed.shape(false);
        let all: u32 = bed.sent.iter().flatten().sum();
        let mut rounds = 0;
        while bed.arrived.len() < all as usize {
            bed.hear(usize::MAX);
            bed.round(Nanos(1_000));
            rounds += 1;
            prop_assert!(rounds < 50_000, "{} of {all}", bed.arrived.len());
        }
        bed.all_arrived_in_order();
        let stats = bed.bridge.stats(Side::Right);
        let total = bed.bridge.arbiter(Side::Right).unwrap().total_stats();
        prop_assert_eq!(total.dropped.packets + total.discarded.packets, 0);
        prop_assert_eq!(total.sent.packets + stats.passed.frames, u64::from(all));
        prop_assert_eq!(stats.transmitted, u64::from(all));
    }
}
