//! A queue of classes in front of a link: what arrives is sent, rejected or discarded, at the
//! times that the queue and the link say.

use crate::support::{length, rate};
use fairlane_core::Rejection;
use fairlane_core::aqm::{AqmConfig, CodelConfig};
use fairlane_core::sched::Algorithm;
use fairlane_core::tree::cbq::{Cbq, CbqClass};
use fairlane_core::tree::{Ceiling, ClassConfig, ClassId, ClassQueue, LeafConfig, Tree};
use fairlane_core::{Length, Limits, SchedulerLimits, Weight};
use fairlane_sim::{
    ClassFlow, ClassMeter, ClassPacket, ClassSource, Completion, Lengths, Now, Observer,
    PacketInfo, Picos, Simulation, Traffic, TransmitQueue,
};

/// 8 Mbit/s: a packet of 1000 bytes takes a millisecond.
const LINK: u64 = 8_000_000;

fn tree() -> Tree<ClassPacket> {
    Tree::new(Algorithm::Drr, None, SchedulerLimits::default())
}

fn leaf(tree: &mut Tree<ClassPacket>, ceiling: Option<Ceiling>, leaf: LeafConfig) -> ClassId {
    let config = ClassConfig {
        ceiling,
        ..ClassConfig::new(Weight::ONE, length(1000))
    };
    tree.add_leaf(ClassId::ROOT, config, leaf).unwrap()
}

fn run<Q, O>(queue: Q, observer: O) -> Simulation<Q, O, ClassFlow>
where
    Q: ClassQueue<ClassPacket>,
    O: Observer<ClassFlow>,
{
    Simulation::of_classes(queue, rate(LINK), TransmitQueue::NONE, observer, 1)
}

fn source(class: ClassId, traffic: Traffic) -> ClassSource {
    ClassSource::new(class.into(), traffic, Lengths::Fixed(length(1000)))
}

fn ms(ms: u64) -> Picos {
    Picos::from_millis(ms)
}

/// The events, in order: packet numbers and times in microseconds.
#[derive(Default)]
struct Story {
    sent: Vec<(u64, u64, u64)>,
    rejected: Vec<(u64, Rejection)>,
    discarded: u64,
}

fn us(time: Picos) -> u64 {
    time.to_nanos().0 / 1000
}

impl Observer<ClassFlow> for Story {
    fn completed(&mut self, done: &Completion<ClassFlow>) {
        let times = (us(done.start.time), us(done.end.time));
        self.sent.push((done.packet.number, times.0, times.1));
    }
    fn dropped(&mut self, at: Now, _: ClassFlow, _: Length, reason: Rejection) {
        self.rejected.push((us(at.time), reason));
    }
    fn discarded(&mut self, _: Now, _: &PacketInfo<ClassFlow>) {
        self.discarded += 1;
    }
}

#[test]
fn packets_leave_when_the_link_has_sent_those_before() {
    let mut tree = tree();
    let class = leaf(&mut tree, None, LeafConfig::default());
    let mut run = run(tree, Story::default());
    let trace = [0, 0, 500, 5000].map(|at| (Picos::from_micros(at), length(1000)));
    run.add_source(source(class, Traffic::Trace(trace.to_vec())))
        .unwrap();
    run.run_until(ms(2));
    // An event at 2 ms is left for the next run.
    assert_eq!(run.observer().sent, [(0, 0, 1000)]);
    assert_eq!(run.clock(), ms(2));
    run.run_until(ms(100));
    let rest = [(1, 1000, 2000), (2, 2000, 3000), (3, 5000, 6000)];
    assert_eq!(run.observer().sent[1..], rest);
}

#[test]
fn a_queue_that_says_not_before_is_asked_at_that_time() {
    let mut tree = tree();
    let ceiling = Ceiling {
        rate: rate(1_000_000),
        burst: 1000,
    };
    let class = leaf(&mut tree, Some(ceiling), LeafConfig::default());
    let mut run = run(tree, Story::default());
    run.add_source(source(class, Traffic::Greedy(3))).unwrap();
    run.run_until(ms(81));
    // A packet every 8 ms, to the microsecond.
    let expected: Vec<_> = (0..11).map(|n| (n, 8000 * n, 8000 * n + 1000)).collect();
    assert_eq!(run.observer().sent, expected[..10]);
}

#[test]
fn source_restarts_in_each_span() {
    let mut tree = tree();
    let class = leaf(&mut tree, None, LeafConfig::default());
    for (traffic, expected) in [
        // The four packets in the queue are still sent when the span is over.
        (
            Traffic::Greedy(4),
            vec![0, 1, 2, 3, 4, 5, 6, 7, 20, 21, 22, 23, 24, 25, 26],
        ),
        // A packet every two milliseconds.
        (Traffic::Cbr(rate(4_000_000)), vec![0, 2, 20, 22]),
    ] {
        let mut run = run(tree.clone(), Story::default());
        run.add_source(ClassSource {
            // In any order.
            active: vec![ms(20)..ms(23), ms(0)..ms(4)],
            ..source(class, traffic.clone())
        })
        .unwrap();
        run.run_until(ms(100));
        let starts: Vec<u64> = run
            .observer()
            .sent
            .iter()
            .map(|sent| sent.1 / 1000)
            .collect();
        assert_eq!(starts, expected, "{traffic:?}");
    }
}

#[test]
fn a_greedy_source_that_is_rejected_tries_again() {
    let mut tree = tree();
    let limits = Limits {
        packets: 2,
        bytes: 99_999,
    };
    let config = LeafConfig {
        limits,
        ..LeafConfig::default()
    };
    let full = leaf(&mut tree, None, config);
    let none = leaf(
        &mut tree,
        None,
        LeafConfig {
            limits: Limits {
                packets: 0,
                bytes: 0,
            },
            ..LeafConfig::default()
        },
    );
    let mut run = run(tree, ClassMeter::new(ms(10)));
    run.add_source(source(full, Traffic::Greedy(5))).unwrap();
    run.add_source(source(none, Traffic::Greedy(5))).unwrap();
    run.run_until(ms(100));
    // The link stays full; each departure brings one that fits and one that does not.
    assert_eq!(run.observer().rate(full, ms(0), ms(90)), 8e6);
    assert!((90..=110).contains(&run.observer().dropped(full)));
    // Once a packet time, and not for ever at one instant.
    assert!((90..=110).contains(&run.observer().dropped(none)));
    assert_eq!(run.observer().bytes(none, 0), 0);
}

#[test]
fn an_impatient_source_sends_one_more_when_none_of_its_packets_leaves() {
    let mut cbq: Cbq<ClassPacket> = Cbq::new(rate(LINK), SchedulerLimits::default());
    let mut add = |priority| {
        let config = CbqClass {
            priority,
            borrow: true,
            ..CbqClass::new(rate(LINK), length(1000))
        };
        cbq.add_leaf(ClassId::ROOT, config, LeafConfig::default())
            .unwrap()
    };
    let (urgent, starved) = (add(1), add(0));
    let mut run = run(cbq, ());
    run.add_source(ClassSource {
        patience: Some(Picos::from_micros(10_300)),
        ..source(urgent, Traffic::Greedy(4))
    })
    .unwrap();
    run.add_source(ClassSource {
        patience: Some(ms(10)),
        active: vec![ms(0)..ms(95)],
        ..source(starved, Traffic::Greedy(4))
    })
    .unwrap();
    // One whose packets leave keeps as many as it is to keep, at any time.
    for half_milliseconds in 1..=400 {
        run.run_until(Picos::from_micros(500 * half_milliseconds));
        assert_eq!(run.queue().stats(urgent).unwrap().queued.packets, 4);
    }
    // After 10 ms, 20 ms, .. 90 ms.
    let stats = run.queue().stats(starved).unwrap();
    assert_eq!((stats.sent.packets, stats.accepted.packets), (0, 4 + 9));
}

#[test]
fn a_packet_too_long_for_the_room_in_a_queue_of_bytes_waits_and_is_not_lost() {
    let mut tree = tree();
    let class = leaf(&mut tree, None, LeafConfig::default());
    let queue = TransmitQueue::Bytes(1500);
    let mut run = Simulation::of_classes(tree, rate(LINK), queue, Story::default(), 1);
    run.add_source(source(class, Traffic::Greedy(4))).unwrap();
    run.run_until(ms(50));
    let expected: Vec<_> = (0..49).map(|n| (n, 1000 * n, 1000 * (n + 1))).collect();
    assert_eq!(run.observer().sent, expected);
}

#[test]
fn every_packet_is_sent_or_rejected_or_discarded_or_still_there() {
    let mut tree = tree();
    let managed = LeafConfig {
        room: fairlane_core::room::Room::NONE,
        limits: Limits {
            packets: 100,
            bytes: 1_000_000,
        },
        aqm: AqmConfig::Codel(CodelConfig::default()),
        rate: rate(LINK),
    };
    let classes = [0; 3].map(|_| leaf(&mut tree, None, managed));
    let run_of = |seed| {
        let story = Story::default();
        let (tree, link) = (tree.clone(), rate(LINK));
        let mut run = Simulation::of_classes(tree, link, TransmitQueue::NONE, story, seed);
        for (class, load) in classes.into_iter().zip([1_000_000, 4_000_000, 9_000_000]) {
            let lengths = Lengths::Uniform(length(40), length(1000));
            let traffic = Traffic::Poisson(rate(load));
            run.add_source(ClassSource::new(class.into(), traffic, lengths))
                .unwrap();
        }
        run.run_until(ms(4000));
        let stats = run.queue().stats(ClassId::ROOT).unwrap();
        run.queue().invariants().unwrap();
        assert_eq!(run.observer().rejected.len() as u64, stats.dropped.packets);
        assert_eq!(run.observer().discarded, stats.discarded.packets);
        // One may be in service.
        let in_service = stats.sent.packets - run.observer().sent.len() as u64;
        assert!(in_service <= 1 && run.observer().sent.len() > 5000);
        assert!(run.observer().discarded > 0 && stats.queued.packets > 0);
        run.into_observer().sent
    };
    assert_eq!(run_of(1), run_of(1));
    assert_ne!(run_of(1), run_of(2));
}

#[test]
fn a_queue_may_be_changed_between_two_runs() {
    let mut tree = tree();
    let classes = [0; 2].map(|_| leaf(&mut tree, None, LeafConfig::default()));
    let mut run = run(tree, ClassMeter::new(ms(10)));
    for class in classes {
        run.add_source(source(class, Traffic::Greedy(4))).unwrap();
    }
    run.run_until(ms(200));
    let heavy = ClassConfig::new(Weight::new(3).unwrap(), length(1000));
    let now = run.clock().to_nanos();
    run.queue_mut().change(classes[0], heavy, now).unwrap();
    run.run_until(ms(600));
    assert!((run.observer().rate(classes[0], ms(0), ms(200)) / 4e6 - 1.0).abs() < 0.02);
    assert!((run.observer().rate(classes[0], ms(220), ms(600)) / 6e6 - 1.0).abs() < 0.02);
    assert_eq!(run.observer().rate(classes[0], ms(205), ms(209)), 0.0);
    assert_eq!(run.observer().intervals(), 60);
}

#[test]
fn the_meter_counts_what_ends_with_an_interval_in_it() {
    let mut tree = tree();
    let class = leaf(&mut tree, None, LeafConfig::default());
    let mut run = run(tree, ClassMeter::new(ms(2)));
    run.add_source(source(class, Traffic::Greedy(2))).unwrap();
    run.run_until(ms(9));
    let bytes: Vec<u64> = (0..5).map(|n| run.observer().bytes(class, n)).collect();
    assert_eq!(bytes, [2000, 2000, 2000, 2000, 0]);
    let delays = run.observer().delays(class).unwrap();
    // The first went at once, the others waited for one in service and one in the queue.
    assert_eq!((delays.count(), delays.max()), (8, ms(3)));
    assert_eq!(
        run.observer().marked(class) + run.observer().discarded(class),
        0
    );
    assert!(run.observer().delays(ClassId::new(99)).is_none());
}
