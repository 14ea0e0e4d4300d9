//! The link ends every packet on time, and its transmit queue keeps its limit.

use crate::support::{config, length, rate};
use fairlane_core::sched::{Drr, Fifo};
use fairlane_core::{Rejection, SchedulerLimits};
use fairlane_sim::{
    Completion, Link, Now, Observer, PacketInfo, Picos, Server, Step, TransmitQueue, Work,
};

const PICOS: u128 = 1_000_000_000_000;

#[test]
fn a_million_packets_end_when_their_bits_say() {
    for bps in [1_000, 7_000, 3_000_000_000, 999_999_999_989, PICOS as u64] {
        let mut link = Link::new(rate(bps), TransmitQueue::Packets(1));
        let start = Picos(12_345);
        let mut bits = 0;
        let mut before = start;
        let len = |n: u32| length(1 + n.wrapping_mul(2_654_435_761) % 1500);
        link.push(start, len(0), 0).unwrap();
        for n in 0..1_000_000 {
            link.push(before, len(n + 1), n + 1).unwrap();
            bits += u128::from(len(n).get()) * 8;
            let sent = link.complete().unwrap();
            let end = Picos(start.0 + bits * PICOS / u128::from(bps));
            assert_eq!((sent.payload, sent.start, sent.end), (n, before, end));
            assert_eq!(sent.end_work, Work::from_bits(bits));
            before = end;
        }
    }
}

#[test]
fn a_packet_in_the_picosecond_of_the_last_end_follows_without_a_gap() {
    // One byte at 7 kbit/s ends after 1142857142.857.. ps.
    let mut link = Link::new(rate(7_000), TransmitQueue::NONE);
    link.push(Picos(0), length(1), ()).unwrap();
    let end = link.complete().unwrap().end;
    assert_eq!(end, Picos(1_142_857_142));
    link.push(end, length(1), ()).unwrap();
    assert_eq!(link.complete().unwrap().end, Picos(2_285_714_285));
    // A picosecond later, a new busy period begins.
    let next = Picos(2_285_714_286);
    link.push(next, length(1), ()).unwrap();
    let sent = link.complete().unwrap();
    assert_eq!((sent.start, sent.end), (next, next + Picos(1_142_857_142)));
    assert_eq!(sent.start_work, Work::from_bytes(2));
}

#[test]
fn work_grows_with_time_and_stands_still_when_idle() {
    let mut link = Link::new(rate(8_000), TransmitQueue::NONE);
    assert_eq!(link.work(Picos::from_secs(9)), Work::ZERO);
    link.push(Picos::from_secs(10), length(1000), ()).unwrap();
    assert_eq!(link.work(Picos::from_secs(10)), Work::ZERO);
    assert_eq!(link.work(Picos::from_millis(10_500)), Work::from_bytes(500));
    assert_eq!(link.next_completion(), Some(Picos::from_secs(11)));
    link.complete().unwrap();
    assert_eq!(link.work(Picos::from_secs(12)), Work::from_bytes(1000));
    link.push(Picos::from_secs(20), length(1000), ()).unwrap();
    assert_eq!(
        link.work(Picos::from_millis(20_250)),
        Work::from_bytes(1250)
    );
}

#[test]
fn the_transmit_queue_holds_what_it_may_beside_the_packet_in_service() {
    for (queue, takes) in [
        (TransmitQueue::NONE, [true, false, false, false]),
        (TransmitQueue::Packets(1), [true, true, false, false]),
        (TransmitQueue::Packets(3), [true, true, true, true]),
        (TransmitQueue::Bytes(99), [true, false, false, false]),
        (TransmitQueue::Bytes(100), [true, true, false, false]),
        (TransmitQueue::Bytes(299), [true, true, true, false]),
    ] {
        let mut link = Link::new(rate(1_000), queue);
        for (n, take) in takes.into_iter().enumerate() {
            assert_eq!(
                link.push(Picos(0), length(100), n).is_ok(),
                take,
                "{queue:?} {n}"
            );
        }
        assert!(queue.bytes(length(100)) / 100 + 1 == link.held() as u64);
    }
    // A short packet still fits, a long one waits.
    let mut link = Link::new(rate(1_000), TransmitQueue::Bytes(150));
    link.push(Picos(0), length(100), ()).unwrap();
    link.push(Picos(0), length(100), ()).unwrap();
    assert!(link.has_room(length(50)) && !link.has_room(length(51)) && !link.is_full());
    assert_eq!(link.push(Picos(0), length(51), ()), Err(()));
    link.complete().unwrap();
    assert!(link.has_room(length(150)) && !link.has_room(length(151)));
}

/// The order of events, by name.
#[derive(Default)]
struct Names(Vec<String>);

impl Observer for Names {
    fn arrived(&mut self, at: Now, packet: &PacketInfo) {
        self.0
            .push(format!("{} arrives {}", packet.number, at.time.0 / PICOS));
    }
    fn dequeued(&mut self, at: Now, packet: &PacketInfo) {
        self.0
            .push(format!("{} leaves {}", packet.number, at.time.0 / PICOS));
    }
    fn started(&mut self, at: Now, packet: &PacketInfo) {
        self.0
            .push(format!("{} starts {}", packet.number, at.time.0 / PICOS));
    }
    fn completed(&mut self, done: &Completion) {
        self.0.push(format!(
            "{} ends {}",
            done.packet.number,
            done.end.time.0 / PICOS
        ));
    }
    fn discarded(&mut self, at: Now, packet: &PacketInfo) {
        self.0
            .push(format!("{} lost {}", packet.number, at.time.0 / PICOS));
    }
    fn ended(&mut self, at: Now) {
        self.0.push(format!("over {}", at.time.0 / PICOS));
    }
}

#[test]
fn arrivals_come_before_what_ends_at_the_same_instant() {
    let mut server = Server::new(
        Drr::new(),
        SchedulerLimits::default(),
        rate(8_000),
        TransmitQueue::Packets(1),
        Names::default(),
    );
    let at = Picos::from_secs;
    let flow = server.add_flow(at(0), config(1, 1000)).unwrap();
    for second in [0, 0, 0, 1] {
        server.arrive(at(second), flow, length(1000), ()).unwrap();
    }
    server.finish();
    let expected = [
        "0 arrives 0",
        "1 arrives 0",
        "2 arrives 0",
        "0 leaves 0",
        "0 starts 0",
        "1 leaves 0",
        "3 arrives 1",
        "0 ends 1",
        "1 starts 1",
        "2 leaves 1",
        "1 ends 2",
        "2 starts 2",
        "3 leaves 2",
        "2 ends 3",
        "3 starts 3",
        "3 ends 4",
        "over 4",
    ];
    assert_eq!(server.into_observer().0, expected);
}

#[test]
fn what_has_left_the_scheduler_is_sent_though_its_flow_is_gone() {
    #[derive(Default)]
    struct Orphans(Vec<(u64, bool)>);
    impl Observer for Orphans {
        fn completed(&mut self, done: &Completion) {
            self.0.push((done.packet.number, done.packet.orphan));
        }
    }
    let observer = (Orphans::default(), Names::default());
    let limits = SchedulerLimits::default();
    let mut server = Server::new(
        Fifo::new(),
        limits,
        rate(8_000),
        TransmitQueue::Packets(1),
        observer,
    );
    let at = Picos::from_millis;
    let flow = server.add_flow(at(0), config(1, 1000)).unwrap();
    for _ in 0..3 {
        server.arrive(at(0), flow, length(1000), ()).unwrap();
    }
    let stats = server.remove_flow(at(500), flow).unwrap();
    assert_eq!((stats.sent.packets, stats.discarded.packets), (2, 1));
    assert_eq!(
        server.arrive(at(600), flow, length(1), ()),
        Err(Rejection::Unknown)
    );
    // The number is given to another flow while packets of the first are on their way.
    while server.step() != Some(Step::Settled) {}
    let mut next = server.add_flow(at(1500), config(1, 1000)).unwrap();
    if next != flow {
        next = server.add_flow(at(1500), config(1, 1000)).unwrap();
    }
    server.arrive(at(1500), next, length(1000), ()).unwrap();
    assert_eq!(server.finish(), at(3000));
    let (orphans, names) = server.into_observer();
    assert_eq!(orphans.0, [(0, true), (1, true), (3, false)]);
    assert!(names.0.contains(&"2 lost 0".to_owned()));
}
