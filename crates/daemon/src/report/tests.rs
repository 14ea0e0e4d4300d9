//! Reports of a link, over changes of its classes.

use std::sync::Arc;

use fairlane_config::{Link, Site};
use fairlane_core::Dequeue;
use fairlane_runtime::Queue as _;

use super::*;
use fairlane_dataplane::rig::{self, Rig, frame};
use fairlane_dataplane::steps::STEP;
use fairlane_dataplane::work::Counting;

const LINK: &str = "[[link]]\nname = \"up\"\nto = \"outside\"\nrate = \"1gbit\"\n";

/// Returns a link with these classes.
fn link(classes: &str) -> Arc<Link> {
    let text = LINK.to_owned() + "limit = { packets = 800000, bytes = \"800mb\" }\n";
    Arc::clone(&Site::parse(&(text + classes), "test").unwrap().links[0])
}

const REST: &str = "[[link.class]]\nname = \"rest\"\ndefault = true\n";

/// Returns the report of a link, a second after the last one.
fn told(rig: &mut Rig, seconds: f64) -> LinkReport {
    let [_, mut count] = Counting::of([Vec::new(), rig.plan.ids.clone()]).links;
    assert!(count.step(rig.arbiter.queue(), &mut { STEP }));
    let (device, times) = (DeviceCount::default(), [seconds, 1.0]);
    let pipeline = PipelineReport::default();
    LinkReport::new(&mut rig.plan, count, &device, "".into(), times, 0, pipeline)
}

/// Returns whether the report shows late packets of the default class of a link in the last second, though it kept to
/// its rate.
fn is_beyond_its_bound(rig: &mut Rig, seconds: f64) -> bool {
    let report = told(rig, seconds);
    let mut classes = report.classes.iter();
    let class = classes.find(|class| class.terms.default).unwrap();
    class.recent.as_ref().unwrap().late_packets > 0
}

#[test]
fn classes_that_have_nothing_else_to_tell_are_shared_with_the_report_before() {
    // The size of a shared piece, and one.
    const OTHER: usize = 64;
    let between: String = (1..OTHER)
        .map(|number| format!("[[link.class]]\nname = \"c{number}\"\n"))
        .collect();
    let text = |rate| {
        link(&format!(
            "{REST}{between}[[link.class]]\nname = \"other\"\nrate = \"{rate}\"\n"
        ))
    };
    let mut rig = Rig::new(&text("1mbit"));
    let shared = |before: &LinkReport, after: &LinkReport| {
        [0, OTHER].map(|at| before.classes.share(at).is(&after.classes.share(at)))
    };
    let first = told(&mut rig, 1.0);
    let second = told(&mut rig, 2.0);
    assert_eq!(shared(&first, &second), [true, true]);
    rig::put(
        rig.arbiter.queue_mut(),
        rig.port,
        frame(1, 100),
        Nanos::from_millis(2_500),
    );
    let third = told(&mut rig, 3.0);
    assert_eq!(shared(&second, &third), [false, true]);
    assert_eq!(third.classes[0].queued_packets, 1);
    rig.apply(&text("2mbit"));
    let fourth = told(&mut rig, 4.0);
    assert_eq!(shared(&third, &fourth), [false, false]);
    assert_eq!(fourth.classes[OTHER].terms.rate_bps, Some(2_000_000));
    // The former terms are not kept.
    let terms = |at: usize| &fourth.classes[at].terms;
    assert!((0..=OTHER).all(|at| rig.plan.terms.share(at).is(terms(at))));
}

#[test]
fn what_left_before_a_class_was_promised_more_is_within_its_bound() {
    let of_rate = |rate| {
        link(&format!(
            "{REST}rate = \"{rate}\"\n[[link.class]]\nname = \"other\"\n"
        ))
    };
    let mut rig = Rig::new(&of_rate("1mbit"));
    // Within the bound of the one rate, and not of the other.
    let wait = |rig: &mut Rig, came| {
        let queue = rig.arbiter.queue_mut();
        rig::put(queue, rig.port, frame(1, 100), came);
        let left = queue.dequeue(came + Nanos::from_millis(5), drop);
        assert!(matches!(left, Dequeue::Packet(_)));
    };
    assert!(!is_beyond_its_bound(&mut rig, 1.0));
    wait(&mut rig, Nanos::from_millis(1_500));
    assert!(!is_beyond_its_bound(&mut rig, 2.0));
    wait(&mut rig, Nanos::from_millis(2_500));
    rig.apply(&of_rate("500mbit"));
    assert!(!is_beyond_its_bound(&mut rig, 3.0));
    wait(&mut rig, Nanos::from_millis(3_500));
    assert!(is_beyond_its_bound(&mut rig, 4.0));
}

/// A class of 8 Mbit/s sends a byte in a microsecond.
#[test]
fn a_packet_beyond_rate_and_burst_is_no_violation_however_late_it_is() {
    let text = "[[link.class]]\nname = \"rest\"\nrate = \"8mbit\"\ndefault = true\n";
    let mut rig = Rig::new(&link(text));
    let bound = rig.plan.terms[0].bound.unwrap().0;
    let figures = |rig: &mut Rig, seconds: f64| {
        let report = told(rig, seconds);
        let class = &report.classes[0];
        let recent = class.recent.unwrap();
        (
            class.nonconforming_packets,
            recent.violations,
            recent.bound_applies,
        )
    };
    let late = Nanos(bound + Nanos::from_millis(1).0);
    // Two packets at once, of a burst of one.
    for (bytes, at) in [(1_500, 0), (1_500, 0)] {
        rig::put(
            rig.arbiter.queue_mut(),
            rig.port,
            frame(1, bytes),
            Nanos(at),
        );
    }
    for _ in 0..2 {
        let gone = rig.arbiter.queue_mut().dequeue(late, drop);
        assert!(matches!(gone, Dequeue::Packet(_)));
    }
    assert_eq!(figures(&mut rig, 1.0), (1, 1, Some(false)));
    // One more, in time; and one that is late.
    let second = Nanos::from_secs(3);
    rig::pass(rig.arbiter.queue_mut(), rig.port, frame(1, 1_500), second);
    assert_eq!(figures(&mut rig, 2.0), (1, 1, Some(true)));
    let second = Nanos::from_secs(4);
    rig::put(rig.arbiter.queue_mut(), rig.port, frame(1, 1_500), second);
    let gone = rig.arbiter.queue_mut().dequeue(second + late, drop);
    assert!(matches!(gone, Dequeue::Packet(_)));
    assert_eq!(figures(&mut rig, 3.0), (1, 2, Some(true)));
}
