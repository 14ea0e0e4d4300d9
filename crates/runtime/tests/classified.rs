//! Packets in the classes of a tree, independent of the client that pushed them.

use fairlane_core::aqm::{AqmConfig, CodelConfig};
use fairlane_core::room::Room;
use fairlane_core::sched::Algorithm;
use fairlane_core::tree::{Ceiling, ClassConfig, ClassFlow, ClassId, LeafConfig, Payload, Tree};
use fairlane_core::{
    Dequeue, FlowConfig, FlowId, Length, Limits, Nanos, Rate, Rejected, Rejection, SchedulerLimits,
    TotalStats, Weight,
};
use fairlane_io::{Backend, ByteLen, MemoryBackend, memory};
use fairlane_runtime::{
    Arbiter, ArbiterConfig, Classified, Classify, FromPort, Link, Next, Queue, Straight,
};

/// A packet that says its class.
#[derive(Debug, PartialEq)]
struct Packet {
    place: usize,
    number: u32,
}

impl Payload for Packet {}

impl ByteLen for Packet {
    fn byte_len(&self) -> usize {
        1_000
    }
}

/// Takes a packet's word for its class, and remembers when each left.
#[derive(Debug, Default)]
struct Word {
    ids: Vec<ClassId>,
    left: Vec<(usize, u32, Nanos)>,
    /// How many packets it was asked about, in calls for one and in calls for several.
    asked: (usize, usize),
    /// Packets reported as rejected for lack of space, or evicted.
    no_room: Vec<(ClassId, u32)>,
}

impl Classify<Packet> for Word {
    fn classify(&mut self, packet: &Packet, _: Length, _: Nanos) -> ClassFlow {
        self.asked.0 += 1;
        self.of(packet)
    }

    fn classify_all<'a>(
        &mut self,
        packets: impl ExactSizeIterator<Item = (&'a Packet, Length)> + Clone,
        _: Nanos,
        to: &mut Vec<ClassFlow>,
    ) {
        self.asked.1 += packets.len();
        to.extend(packets.map(|(packet, _)| self.of(packet)));
    }

    fn no_room(&mut self, class: ClassId, packet: &Packet) {
        self.no_room.push((class, packet.number));
    }

    fn leaves(&mut self, _: ClassId, packet: &Packet, _: Length, now: Nanos) {
        self.left.push((packet.place, packet.number, now));
    }
}

impl Word {
    fn of(&self, packet: &Packet) -> ClassFlow {
        self.ids[packet.place].into()
    }
}

type Classes = Classified<Packet, Tree<FromPort<Packet>>, Word>;

/// Leaves with these weights, queue management and ceilings.
fn classes(leaves: &[(u32, AqmConfig, Option<Ceiling>)]) -> (Tree<FromPort<Packet>>, Word) {
    classes_within(SchedulerLimits::default(), 100, leaves)
}

/// The same, each with a queue of limited length.
fn classes_within(
    limits: SchedulerLimits,
    packets: u32,
    leaves: &[(u32, AqmConfig, Option<Ceiling>)],
) -> (Tree<FromPort<Packet>>, Word) {
    let mut tree = Tree::new(Algorithm::Qfq, None, limits);
    let ids = leaves.iter().map(|&(weight, aqm, ceiling)| {
        let config = ClassConfig {
            ceiling,
            ..ClassConfig::new(Weight::new(weight).unwrap(), length(1_000))
        };
        let limits = Limits {
            packets,
            ..Limits::NONE
        };
        let leaf = LeafConfig {
            aqm,
            limits,
            ..LeafConfig::default()
        };
        tree.add_leaf(ClassId::ROOT, config, leaf).unwrap()
    });
    let ids = ids.collect();
    let word = Word {
        ids,
        ..Word::default()
    };
    (tree, word)
}

const PLAIN: (u32, AqmConfig, Option<Ceiling>) = (1, AqmConfig::TailDrop, None);

fn length(bytes: u32) -> Length {
    Length::new(bytes).unwrap()
}

fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

/// Returns a byte a microsecond.
fn arbiter(
    leaves: &[(u32, AqmConfig, Option<Ceiling>)],
) -> (
    Arbiter<Classes, Straight<MemoryBackend<Packet>>>,
    MemoryBackend<Packet>,
) {
    let (near, far) = memory::pair(10_000);
    let (tree, word) = classes(leaves);
    let config = ArbiterConfig {
        read_interval: Nanos::ZERO,
        ..ArbiterConfig::new(Link::new(Rate::from_bps(8_000_000).unwrap()))
    };
    let queue = Classified::new(tree, word);
    let arbiter = Arbiter::over(queue, config, Straight::to(near), Nanos::ZERO);
    (arbiter, far)
}

fn packets(place: usize, count: u32) -> impl Iterator<Item = (Length, Packet)> {
    (0..count).map(move |number| (length(1_000), Packet { place, number }))
}

fn of_any_length() -> FlowConfig {
    FlowConfig::new(Weight::ONE, Length::MAX)
}

#[test]
fn a_packet_shares_the_link_by_its_class_and_not_by_its_client() {
    let heavy = (3, AqmConfig::TailDrop, None);
    let (mut arbiter, mut far) = arbiter(&[PLAIN, heavy]);
    let registrar = arbiter.registrar();
    // Three clients in the class of weight 1, none in the other: there, the arbiter's own thread.
    let mut clients = [0; 3].map(|_| registrar.register(of_any_length()).unwrap());
    for client in &mut clients {
        client.push_batch(&mut packets(0, 30)).unwrap();
    }
    let own = arbiter.open_flow(of_any_length()).unwrap();
    for (len, packet) in packets(1, 90) {
        arbiter.admit(own, len, packet, Nanos::ZERO).unwrap();
    }
    for now in 0..80 {
        arbiter.step(ms(now)).unwrap();
        arbiter.invariants().unwrap();
    }
    let mut arrived = Vec::new();
    far.receive(&mut arrived, 1_000).unwrap();
    let heavy = arrived.iter().filter(|packet| packet.place == 1).count();
    assert_eq!(arrived.len(), 80);
    assert!((58..=62).contains(&heavy), "{heavy} of 80");
    assert_eq!(arbiter.flow_stats(own).unwrap().sent.packets, heavy as u64);
    let of_clients = arbiter.client_stats().map(|(_, stats)| stats.flow);
    let (sent, queued) = of_clients.fold((0, 0), |(sent, queued), stats| {
        (sent + stats.sent.packets, queued + stats.queued.packets)
    });
    assert_eq!((sent, queued), (80 - heavy as u64, 10 + heavy as u64));
    let told = &arbiter.queue().classifier().left;
    assert_eq!(told.len(), 80, "it is told of each that leaves");
    assert_eq!((told[0].2, told[79].2), (ms(0), ms(79)));
}

#[test]
fn drops_at_either_end_of_a_queue_are_told_to_the_client_they_concern() {
    let codel = AqmConfig::Codel(CodelConfig::default());
    let (mut arbiter, mut far) = arbiter(&[PLAIN, (1, codel, None)]);
    let registrar = arbiter.registrar();
    let [mut tail, mut head] = [0; 2].map(|_| registrar.register(of_any_length()).unwrap());
    // Twenty more than its class holds.
    tail.push_batch(&mut packets(0, 120)).unwrap();
    let mut pushed = 0;
    let mut told = 0;
    for now in 0..1_000 {
        // Twice as much as the class can send, until it has a standing queue.
        if now < 300 {
            told += head
                .push(
                    length(1_000),
                    Packet {
                        place: 1,
                        number: now,
                    },
                )
                .unwrap()
                .dropped_before;
            pushed += 1;
        }
        arbiter.step(ms(now.into())).unwrap();
        arbiter.invariants().unwrap();
    }
    let mut arrived = Vec::new();
    far.receive(&mut arrived, 10_000).unwrap();
    told += head
        .push(
            length(1_000),
            Packet {
                place: 1,
                number: 0,
            },
        )
        .unwrap()
        .dropped_before;
    let total = arbiter.total_stats();
    assert!(total.discarded.packets > 1, "{total:?}");
    assert_eq!(told, total.discarded.packets + total.dropped.packets - 20);
    let last = tail
        .push(
            length(1_000),
            Packet {
                place: 0,
                number: 0,
            },
        )
        .unwrap();
    assert_eq!(last.dropped_before, 20);
    assert_eq!(arrived.len() as u64, 100 + pushed - told);
    assert_eq!(arrived.len() as u64, total.sent.packets);
}

#[test]
fn a_ceiling_says_when_the_next_step_is_due() {
    let ceiling = Ceiling {
        rate: Rate::from_bps(800_000).unwrap(),
        burst: 1_000,
    };
    let (mut arbiter, _far) = arbiter(&[(1, AqmConfig::TailDrop, Some(ceiling))]);
    let own = arbiter.open_flow(of_any_length()).unwrap();
    for (len, packet) in packets(0, 3) {
        arbiter.admit(own, len, packet, Nanos::ZERO).unwrap();
    }
    let step = arbiter.step(Nanos::ZERO).unwrap();
    assert_eq!((step.released, step.next), (1, Next::At(ms(1))));
    let step = arbiter.step(ms(1)).unwrap();
    assert_eq!((step.released, step.next), (0, Next::At(ms(10))));
    assert_eq!(arbiter.step(ms(10)).unwrap().released, 1);
}

#[test]
fn a_rejected_packet_comes_back_and_counts_once() {
    let (tree, word) = classes(&[PLAIN]);
    let mut queue: Classes = Classified::new(tree, word);
    let short = FlowConfig {
        max_length: length(500),
        ..of_any_length()
    };
    let port = queue.add_flow(short).unwrap();
    let packet = || Packet {
        place: 0,
        number: 7,
    };
    let mut enqueue = |port, len| {
        let refused = queue.enqueue(port, length(len), packet(), Nanos::ZERO, |_| {});
        refused.map_err(|rejected| {
            assert_eq!(rejected.payload, packet());
            rejected.reason
        })
    };
    let max = length(500);
    assert_eq!(enqueue(port, 501), Err(Rejection::TooLong { max }));
    let nobody = FlowId::new(9);
    assert_eq!(enqueue(nobody, 500), Err(Rejection::Unknown));
    for _ in 0..100 {
        assert_eq!(enqueue(port, 500), Ok(()));
    }
    assert_eq!(enqueue(port, 500), Err(Rejection::QueueFull));
    let stats = queue.flow_stats(port).unwrap();
    assert_eq!((stats.accepted.packets, stats.dropped.packets), (100, 2));
    assert_eq!(queue.total_stats().dropped.packets, 3);
    queue.invariants().unwrap();
}

#[test]
fn other_classes_take_over_what_is_queued_in_order_also_of_what_comes_meanwhile() {
    let (tree, word) = classes(&[PLAIN, PLAIN]);
    let mut queue: Classes = Classified::new(tree, word);
    let port = queue.add_flow(of_any_length()).unwrap();
    for (len, packet) in packets(0, 60).chain(packets(1, 60)) {
        queue
            .enqueue(port, len, packet, Nanos::ZERO, |_| {})
            .unwrap();
    }
    // One class is left, with room for 100.
    let (mut former, word) = classes(&[PLAIN]);
    let only = word.ids[0];
    let target = ClassFlow {
        class: only,
        flow: 0,
    };
    let ids = queue.classifier().ids.clone();
    std::mem::swap(queue.classes_mut(), &mut former);
    *queue.classifier_mut() = word;
    queue.hold();
    let mut late = packets(0, 65).skip(60);
    for id in ids {
        let mut from = 0;
        loop {
            let mut taken = Vec::new();
            let mut left = 9;
            let done = former.take_out(id, &mut from, &mut left, ms(1), |gone| taken.push(gone));
            assert!(taken.len() <= 9);
            for gone in taken {
                queue.adopt(gone, |_, _, _| target, ms(1));
            }
            // Nothing leaves before earlier arrivals are queued.
            let next = queue.dequeue(ms(1), |_| {});
            assert!(matches!(next, fairlane_core::Dequeue::NotBefore(_)));
            if let Some((len, packet)) = late.next() {
                queue.enqueue(port, len, packet, ms(1), |_| {}).unwrap();
            }
            if done.unwrap() {
                break;
            }
        }
    }
    assert!(former.is_empty());
    let stats = queue.flow_stats(port).unwrap();
    assert_eq!((stats.queued.packets, stats.discarded.packets), (105, 20));
    assert!(!queue.is_empty());
    assert!(!queue.go_on(2, ms(1)));
    assert!(queue.go_on(9, ms(1)));
    queue.invariants().unwrap();
    let stats = queue.flow_stats(port).unwrap();
    assert_eq!((stats.queued.packets, stats.discarded.packets), (100, 25));
    let mut numbers = Vec::new();
    while let fairlane_core::Dequeue::Packet(packet) = queue.dequeue(ms(2), |_| {}) {
        numbers.push((packet.payload.place, packet.payload.number));
    }
    let expected = (0..60).map(|n| (0, n)).chain((0..40).map(|n| (1, n)));
    assert!(numbers.into_iter().eq(expected), "in order");
    assert_eq!(queue.classes().stats(only).unwrap().sent.packets, 100);
    queue.remove_flow(port).unwrap();
    assert_eq!(queue.total_stats().sent.packets, 100);
}

/// Processes must not take bandwidth from a bridge's traffic although the link's limit is shared.
#[test]
fn clients_that_fill_the_link_take_nothing_from_a_class_within_its_own() {
    let limits = SchedulerLimits {
        packets: 120,
        bytes: 120_000,
        ..SchedulerLimits::default()
    };
    let mut tree = Tree::new(Algorithm::Qfq, None, limits);
    let config = ClassConfig::new(Weight::ONE, length(1_000));
    let room = Room {
        packets: 10,
        bytes: 10_000,
    };
    let ids = [room, Room::NONE].map(|room| {
        let leaf = LeafConfig {
            room,
            ..LeafConfig::default()
        };
        tree.add_leaf(ClassId::ROOT, config, leaf).unwrap()
    });
    let word = Word {
        ids: ids.to_vec(),
        ..Word::default()
    };
    let (near, mut far) = memory::pair::<Packet, Packet>(10_000);
    let config = ArbiterConfig {
        read_interval: Nanos::ZERO,
        ..ArbiterConfig::new(Link::new(Rate::from_bps(8_000_000).unwrap()))
    };
    let queue = Classified::new(tree, word);
    let mut arbiter = Arbiter::over(queue, config, Straight::to(near), Nanos::ZERO);
    let registrar = arbiter.registrar();
    let mut clients = [0; 14].map(|_| registrar.register(of_any_length()).unwrap());
    let own = arbiter.open_flow(of_any_length()).unwrap();
    for now in 0..400 {
        for client in &mut clients {
            let _ = client.push_batch(&mut packets(1, 200));
        }
        arbiter.step(ms(now)).unwrap();
        // Three at a time, half of what its share would carry.
        if now % 12 == 0 {
            for (len, packet) in packets(0, 3) {
                arbiter.admit(own, len, packet, ms(now)).unwrap();
            }
        }
        arbiter.invariants().unwrap();
    }
    let stats = arbiter.flow_stats(own).unwrap();
    assert_eq!((stats.accepted.packets, stats.discarded.packets), (102, 0));
    // Some of the clients' packets were evicted after they were accepted, and each was counted.
    let total = arbiter.total_stats();
    assert!(total.discarded.packets > 50, "{total:?}");
    let sum = total.sent.packets + total.discarded.packets + total.queued.packets;
    assert_eq!(total.accepted.packets, sum);
    let of_clients = arbiter
        .client_stats()
        .map(|(_, stats)| stats.flow.discarded.packets);
    assert_eq!(of_clients.sum::<u64>(), total.discarded.packets);
    let mut arrived = Vec::new();
    far.receive(&mut arrived, 10_000).unwrap();
    let bridged = arrived.iter().filter(|packet| packet.place == 0).count() as u64;
    assert_eq!(bridged, stats.sent.packets);
}

#[test]
fn what_was_held_is_queued_in_the_end_however_fast_more_comes() {
    let (tree, word) = classes(&[PLAIN]);
    let mut queue = Classified::new(tree, word);
    let port = queue.add_flow(of_any_length()).unwrap();
    let come = |queue: &mut Classes, count| {
        for (len, packet) in packets(0, count) {
            queue.enqueue(port, len, packet, ms(0), drop).unwrap();
        }
    };
    queue.hold();
    come(&mut queue, 40);
    let mut steps = 0;
    while !queue.go_on(5, ms(0)) {
        queue.invariants().unwrap();
        steps += 1;
        assert_eq!(queue.classes().len(), 5 * steps + 7 * (steps - 1));
        come(&mut queue, 7);
    }
    assert_eq!(steps, 7, "no step did more than it was to");
    assert_eq!(queue.total_stats().queued.packets, 40 + 7 * 7);
}

/// Fates of packets.
#[derive(Debug, PartialEq)]
struct Became {
    /// With the reason.
    back: Vec<(Packet, Rejection)>,
    discarded: Vec<u32>,
    stats: TotalStats,
    left: Vec<(usize, u32, Nanos)>,
    no_room: Vec<(ClassId, u32)>,
    /// How many packets were looked at.
    looked_at: usize,
}

/// Returns the fates of packets that arrive in parts of this size, or one by one; and how many were classified
/// singly.
fn become_in_parts(
    flow: FlowId,
    packets: &[(Length, usize, u32)],
    (link, leaf): (u32, u32),
    part: Option<usize>,
) -> (Became, usize) {
    let limits = SchedulerLimits {
        packets: link,
        ..SchedulerLimits::default()
    };
    let (tree, word) = classes_within(limits, leaf, &[PLAIN, PLAIN]);
    let mut queue = Classified::new(tree, word);
    let config = FlowConfig::new(Weight::ONE, length(1_000));
    assert_eq!(queue.add_flow(config).unwrap().number(), 0);
    let (mut back, mut discarded) = (Vec::new(), Vec::new());
    let packet = |&(len, place, number)| (len, Packet { place, number });
    for packets in packets.chunks(part.unwrap_or(1)) {
        let mut packets: Vec<_> = packets.iter().map(packet).collect();
        let discard = |gone: fairlane_core::Packet<Packet>| discarded.push(gone.payload.number);
        let mut rejected = |one: Rejected<Packet>| back.push((one.payload, one.reason));
        match part {
            Some(_) => queue.enqueue_all(flow, &mut packets, ms(0), discard, rejected),
            None => {
                let (len, packet) = packets.pop().unwrap();
                let put = queue.enqueue(flow, len, packet, ms(0), discard);
                put.unwrap_or_else(&mut rejected);
            }
        }
        assert!(packets.is_empty());
    }
    queue.invariants().unwrap();
    let stats = queue.total_stats();
    while let Dequeue::Packet(_) = queue.dequeue(ms(1), drop) {}
    let word = std::mem::take(queue.classifier_mut());
    let became = Became {
        back,
        discarded,
        stats,
        left: word.left,
        no_room: word.no_room,
        looked_at: word.asked.0 + word.asked.1,
    };
    (became, word.asked.0)
}

#[test]
fn packets_that_come_together_become_what_they_would_one_by_one() {
    let known = FlowId::new(0);
    // Of one class four times as many as of the other.
    let many: Vec<_> = (0..250)
        .map(|n| (length(1_000), usize::from(n % 5 == 0), n))
        .collect();
    let mut too_long = many.clone();
    too_long[3].0 = length(1_001);
    // One of them overfills its queue; then the link is full, and it is evicted for the other.
    let (full_class, full_link) = ((10_000, 100), (100, 10_000));
    for (flow, packets, room, at_once) in [
        (known, &many, full_class, true),
        (known, &many, full_link, true),
        (known, &too_long, full_class, false),
        (FlowId::new(7), &many, full_class, true),
    ] {
        let (alone, _) = become_in_parts(flow, packets, room, None);
        for part in [1, 2, 64, 250] {
            let (together, by_themselves) = become_in_parts(flow, packets, room, Some(part));
            assert_eq!(together, alone, "in parts of {part}");
            // A packet that is too long makes its whole part be classified one by one.
            assert_eq!(by_themselves == 0, at_once || part == 1, "{by_themselves}");
        }
        assert_eq!(alone.discarded.is_empty(), room == full_class);
        assert!(!alone.back.is_empty());
        assert_eq!(alone.looked_at == 0, flow != known);
    }
}

#[test]
fn packets_that_come_together_while_others_are_held_wait_behind_them() {
    let (tree, word) = classes(&[PLAIN]);
    let mut queue = Classified::new(tree, word);
    let flow = queue.add_flow(of_any_length()).unwrap();
    queue.hold();
    let mut all: Vec<_> = packets(0, 10).collect();
    queue.enqueue_all(flow, &mut all, ms(0), drop, |_| panic!("there is room"));
    assert_eq!(queue.classifier().asked, (0, 0), "filters may change yet");
    assert!(!queue.go_on(4, ms(0)));
    let mut more: Vec<_> = packets(0, 12).skip(10).collect();
    queue.enqueue_all(flow, &mut more, ms(0), drop, |_| panic!("there is room"));
    while !queue.go_on(4, ms(0)) {}
    while let Dequeue::Packet(_) = queue.dequeue(ms(1), drop) {}
    let left = queue.classifier().left.iter();
    assert!(left.map(|&(_, number, _)| number).eq(0..12));
}
