//! Closed-loop sources compared with the known behaviour of TCP.

use crate::support::{length, rate};
use fairlane_core::Rejection;
use fairlane_core::aqm::{AqmConfig, CodelConfig, CodelParameters};
use fairlane_core::sched::Algorithm;
use fairlane_core::tree::{ClassConfig, ClassId, LeafConfig, Tree};
use fairlane_core::{Length, Limits, Nanos, SchedulerLimits, Weight};
use fairlane_sim::{
    ClassFlow, ClassSource, Completion, Lengths, Now, Observer, PacketInfo, Picos, Simulation, Tcp,
    Traffic, TransmitQueue,
};

/// 8 Mbit/s: a packet of 1000 bytes takes a millisecond.
const LINK: u64 = 8_000_000;
const SECONDS: u64 = 60;

/// Counts of the packets of each source, once it is warm.
#[derive(Clone, Debug, Default, PartialEq)]
struct Fate {
    sent: Vec<u64>,
    marked: u64,
    lost: u64,
    /// In the queue and on the link.
    delay: Picos,
}

impl Fate {
    fn all(&self) -> u64 {
        self.sent.iter().sum()
    }

    /// In milliseconds.
    fn mean_delay(&self) -> f64 {
        self.delay.0 as f64 / self.all() as f64 / Picos::from_millis(1).0 as f64
    }
}

impl Observer<ClassFlow> for Fate {
    fn completed(&mut self, done: &Completion<ClassFlow>) {
        let source = done.packet.flow.flow as usize;
        if self.sent.len() <= source {
            self.sent.resize(source + 1, 0);
        }
        self.sent[source] += 1;
        self.marked += u64::from(done.packet.marked);
        self.delay += done.end.time - done.packet.arrival;
    }

    fn dropped(&mut self, _: Now, _: ClassFlow, _: Length, _: Rejection) {
        self.lost += 1;
    }

    fn discarded(&mut self, _: Now, _: &PacketInfo<ClassFlow>) {
        self.lost += 1;
    }
}

/// Packets that wait in a leaf, at most.
fn room(packets: u32) -> LeafConfig {
    LeafConfig {
        limits: Limits {
            packets,
            bytes: u32::MAX,
        },
        rate: rate(LINK),
        ..LeafConfig::default()
    }
}

fn codel(ecn: bool) -> LeafConfig {
    let parameters = CodelParameters {
        target: Nanos::from_millis(5),
        interval: Nanos::from_millis(100),
        max_packet: length(1000),
        ecn,
    };
    LeafConfig {
        aqm: AqmConfig::Codel(CodelConfig::new(parameters).unwrap()),
        ..room(1_000)
    }
}

/// Sources of these leaves, by number, each with a round trip in milliseconds, a window, and
/// whether it may be marked.
fn run(leaves: &[LeafConfig], sources: &[(usize, u64, u32, bool)]) -> Fate {
    let mut tree = Tree::new(Algorithm::Drr, None, SchedulerLimits::default()).marking();
    let of = |class, number| ClassFlow {
        class,
        flow: number as u64,
    };
    let config = ClassConfig::new(Weight::ONE, length(1000));
    let leaves: Vec<_> = leaves
        .iter()
        .map(|&leaf| tree.add_leaf(ClassId::ROOT, config, leaf).unwrap())
        .collect();
    let fate = Fate::default();
    let mut run = Simulation::of_classes(tree, rate(LINK), TransmitQueue::NONE, fate, 1);
    for (number, &(leaf, rtt, window, ecn)) in sources.iter().enumerate() {
        let lengths = Lengths::Fixed(length(1000));
        let source = ClassSource {
            tcp: Some(Tcp {
                rtt: Picos::from_millis(rtt),
                window,
            }),
            ecn,
            // They do not begin as one.
            active: vec![Picos::from_millis(7 * number as u64)..Picos::MAX],
            // A leaf does not inspect flows: they distinguish the sources.
            ..ClassSource::new(of(leaves[leaf], number), Traffic::Greedy(1), lengths)
        };
        run.add_source(source).unwrap();
    }
    run.run_until(Picos::from_secs(10));
    *run.observer_mut() = Fate::default();
    run.run_until(Picos::from_secs(10 + SECONDS));
    run.into_observer()
}

/// Returns the part of the link that was used.
fn used(fate: &Fate) -> f64 {
    fate.all() as f64 / (SECONDS * 1_000) as f64
}

#[test]
fn a_window_goes_round_once_in_a_round_trip_and_the_time_on_the_link() {
    for (rtt, window) in [(50, 5), (99, 1), (20, 20)] {
        let fate = run(&[room(1_000)], &[(0, rtt, window, false)]);
        let expected = f64::from(window) / (rtt + 1) as f64 * (SECONDS * 1_000) as f64;
        let sent = fate.all() as f64;
        assert!((sent / expected - 1.0).abs() < 0.01, "{sent} of {expected}");
        assert_eq!(fate.lost, 0);
    }
}

#[test]
fn a_window_larger_than_the_path_waits_in_the_queue() {
    // 100 packets, 20 of them on the path: the others wait.
    let fate = run(&[room(1_000)], &[(0, 20, 100, false)]);
    assert!(used(&fate) > 0.999, "{fate:?}");
    assert!(
        (fate.mean_delay() - 80.0).abs() < 1.0,
        "{}",
        fate.mean_delay()
    );
}

#[test]
fn equal_sources_share_a_queue_and_exactly_so_where_each_has_one() {
    let sources = [0; 4].map(|leaf| (leaf, 40, 10_000, false));
    let together = run(&[room(60)], &sources);
    assert!(used(&together) > 0.97, "{together:?}");
    let mean = together.all() as f64 / 4.0;
    for &sent in &together.sent {
        assert!((0.6..1.4).contains(&(sent as f64 / mean)), "{together:?}");
    }
    let apart = [0, 1, 2, 3].map(|leaf| (leaf, 40, 10_000, false));
    let apart = run(&[room(60); 4], &apart);
    assert!(used(&apart) > 0.99, "{apart:?}");
    for &sent in &apart.sent {
        let part = sent as f64 / (apart.all() as f64 / 4.0);
        assert!((0.99..1.01).contains(&part), "{apart:?}");
    }
}

/// In one queue, the shorter round trip gets more; with a queue for each it makes no difference.
#[test]
fn a_short_round_trip_wins_in_one_queue_and_nothing_where_each_has_its_own() {
    let rtts = [20, 160];
    let together = run(&[room(60)], &rtts.map(|rtt| (0, rtt, 10_000, false)));
    assert!(together.sent[0] > 2 * together.sent[1], "{together:?}");
    let apart = [(0, rtts[0], 10_000, false), (1, rtts[1], 10_000, false)];
    let apart = run(&[room(200); 2], &apart);
    let part = apart.sent[0] as f64 / apart.sent[1] as f64;
    assert!((0.95..1.05).contains(&part), "{apart:?}");
}

#[test]
fn codel_holds_the_queue_near_its_target_and_a_long_queue_is_full_without_it() {
    let source = [(0, 40, 10_000, false)];
    let plain = run(&[room(1_000)], &source);
    assert!(
        used(&plain) > 0.99 && plain.mean_delay() > 400.0,
        "{}",
        plain.mean_delay()
    );
    let managed = run(&[codel(false)], &source);
    // With no queue at all, half a window would use three quarters of the link.
    assert!(used(&managed) > 0.8, "{managed:?}");
    assert!(managed.mean_delay() < 20.0, "{}", managed.mean_delay());
    assert!(managed.lost > 0 && managed.marked == 0, "{managed:?}");
    // Marks do what drops do, and nothing is lost.
    let marked = run(&[codel(true)], &[(0, 40, 10_000, true)]);
    assert!(used(&marked) > 0.8, "{marked:?}");
    assert!(marked.mean_delay() < 20.0, "{}", marked.mean_delay());
    assert!(marked.lost == 0 && marked.marked > 0, "{marked:?}");
}

#[test]
fn the_same_sources_send_the_same() {
    let sources = [(0, 40, 10_000, false), (0, 90, 10_000, false)];
    assert_eq!(
        run(&[codel(false)], &sources),
        run(&[codel(false)], &sources)
    );
}

#[test]
fn starved_tcp_recovers_when_space_is_available() {
    // Of two packets that wait, the one source always takes both.
    let fate = run(&[room(2)], &[(0, 5, 50, false), (0, 5, 50, false)]);
    assert!(fate.sent.iter().all(|&sent| sent > 1_000), "{fate:?}");
}
