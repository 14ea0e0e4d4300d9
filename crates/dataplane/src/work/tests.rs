//! No step takes longer with more classes or flows, in CPU time of the thread: other threads do not count.

use super::*;
use crate::passing::{self, tests as seen};
use crate::rig::{self, Rig, frame, ran};
use fairlane_config::{Draft, Site, Table};
use fairlane_core::Dequeue;
use fairlane_runtime::Queue as _;
use std::fmt::Write;

/// A small number, and sixteen times as many.
const SIZES: [usize; 2] = [1_250, 20_000];

/// Number of runs of each: a disturbance such as an interrupt rarely hits the same step in each.
const TIMES: usize = 4;
const LINK: &str = "[[link]]\nname = \"up\"\nto = \"outside\"\nrate = \"1gbit\"\n";

/// Returns a link with these classes.
fn link(classes: &str) -> Arc<Link> {
    let text = LINK.to_owned() + "limit = { packets = 800000, bytes = \"800mb\" }\n";
    Arc::clone(&Site::parse(&(text + classes), "test").unwrap().links[0])
}

/// Returns a link with one class and space for many packets, with this algorithm.
fn ordered_by(algorithm: &str) -> Arc<Link> {
    let class = "limit = { packets = 50000, bytes = \"50mb\" }\n";
    link(&format!("algorithm = \"{algorithm}\"\n{REST}{class}"))
}

const REST: &str = "[[link.class]]\nname = \"rest\"\ndefault = true\n";

/// Returns a link with this many classes next to another one, with weights that depend on `round`.
fn with_classes(classes: usize, round: usize) -> Arc<Link> {
    let mut text = REST.to_owned();
    for number in 0..classes {
        let weight = 1 + (number + round) % 7;
        write!(
            text,
            "[[link.class]]\nname = \"c{number}\"\nweight = {weight}\n\
             room = {{ packets = 4, bytes = \"8kb\" }}\n"
        )
        .unwrap();
    }
    link(&text)
}

impl Rig {
    /// Returns the number of flows of its classes.
    fn flows(&self) -> u64 {
        let classes = self.arbiter.queue().classes();
        let flows = (self.plan.ids.iter()).map(|&id| classes.own_stats(id).unwrap().flows);
        flows.sum()
    }

    fn waiting(&self) -> usize {
        self.arbiter.queue().classes().len() as usize
    }

    /// Returns the lengths of the next packets, `most` at most.
    fn leave(&mut self, most: usize) -> Vec<u32> {
        let queue = self.arbiter.queue_mut();
        let next = || match queue.dequeue(Nanos::ZERO, drop) {
            Dequeue::Packet(packet) => Some(packet.len.get()),
            _ => None,
        };
        std::iter::from_fn(next).take(most).collect()
    }

    fn id(&self, name: &str) -> ClassId {
        let mut classes = self.plan.link.classes.iter();
        let place = classes.position(|class| &*class.name == name).unwrap();
        self.plan.ids[place]
    }

    fn count(&self) -> Vec<u64> {
        let [_, mut count] = Counting::of([Vec::new(), self.plan.ids.clone()]).links;
        let all = ran(|| count.step(self.arbiter.queue(), &mut { STEP }));
        assert_eq!(count.counted, self.plan.ids.len());
        all
    }
}

/// Returns the longest step of several runs, each step taken at its shortest.
fn longest(steps: impl Fn() -> Vec<u64>) -> u64 {
    let mut least = steps();
    for _ in 1..TIMES {
        let again = steps();
        assert_eq!(again.len(), least.len(), "the same steps");
        for (least, again) in least.iter_mut().zip(again) {
            *least = again.min(*least);
        }
    }
    least.into_iter().max().unwrap()
}

/// Asserts that steps on many are bounded by those on few. They may take longer for cache misses and for new memory
/// pages, which hit the same step in each run, but not in proportion.
fn is_bounded(what: &str, [few, many]: [u64; 2]) {
    eprintln!("{what}: {few} ns at most with {SIZES:?}, {many} ns");
    assert!(many < 4 * few + 150_000, "{what}: {few} and {many} ns");
}

#[test]
fn no_step_is_longer_where_more_classes_come_change_and_go() {
    let few = with_classes(10, 0);
    let links = SIZES.map(|size| [0, 1].map(|round| with_classes(size, round)));
    let come = links
        .each_ref()
        .map(|[first, _]| longest(|| Rig::new(&few).apply(first)));
    is_bounded("classes that come", come);
    let change = links
        .each_ref()
        .map(|[first, second]| longest(|| Rig::new(first).apply(second)));
    is_bounded("classes that change", change);
    let go = links
        .each_ref()
        .map(|[first, _]| longest(|| Rig::new(first).apply(&few)));
    is_bounded("classes that go", go);
    let counted = links
        .each_ref()
        .map(|[first, _]| longest(|| Rig::new(first).count()));
    is_bounded("classes that are counted", counted);
}

/// The longest time that a change of one class may take the thread; several times as long without optimization.
const A_CHANGE: u64 = if cfg!(debug_assertions) {
    400_000
} else {
    50_000
};

/// Classes next to it.
const OTHERS: usize = 10_000;

/// Returns a link of many classes, its text, and the possible changes of one class and its filters.
fn changed_in_one() -> (Arc<Link>, [(&'static str, Arc<Link>); 5]) {
    const LIMIT: &str = "limit = { packets = 8000000, bytes = \"800mb\" }\n";
    const ROOM: &str = "room = { packets = 400, bytes = \"24kb\" }\n";
    let class = |keys: &str| format!("[[link.class]]\nname = \"one\"\n{ROOM}{keys}");
    let filter =
        |port: u32| format!("[[link.filter]]\nclass = \"one\"\ndestination-port = {port}\n");
    let above =
        "[[link.class]]\nname = \"above\"\n[[link.class]]\nname = \"below\"\nparent = \"above\"\n";
    // Their weights have the same scale for any weight of the one.
    let other = |number: usize| {
        let weight = 1 + number % 7;
        format!("[[link.class]]\nname = \"c{number}\"\nweight = {weight}\n{ROOM}")
    };
    let others = (0..OTHERS).map(other);
    let others: String = others.collect();
    let text = LINK.to_owned() + LIMIT + REST + &others + above + &class("") + &filter(7);
    let draft = Draft::of(&text.into(), &|_| None).unwrap();
    let one = Table::Class(0, draft.class(0, "one").unwrap());
    let read = |draft: Draft| {
        let (_, site) = draft.read(&|_| None).unwrap();
        Arc::clone(&site.links[0])
    };
    let with = |change: &dyn Fn(&mut Draft) -> Option<()>| {
        let mut draft = draft.clone();
        change(&mut draft).unwrap();
        read(draft)
    };
    let becomes = |keys: &str| with(&|draft| draft.replace(one, &class(keys)));
    let changed = [
        ("another weight", becomes("weight = 5\n")),
        ("a ceiling", becomes("ceil = \"5mbit\"\n")),
        ("another parent", becomes("parent = \"above\"\n")),
        (
            "another filter",
            with(&|draft| draft.insert(Table::Filter(0, 1), &filter(8))),
        ),
        (
            "a class that goes",
            with(&|draft| {
                draft.remove(Table::Filter(0, 0))?;
                draft.remove(one)
            }),
        ),
    ];
    (read(draft), changed)
}

#[test]
fn a_change_of_one_class_takes_the_thread_little_time_beside_ten_thousand() {
    let (former, changed) = changed_in_one();
    let mut rig = Rig::new(&former);
    for (what, link) in changed {
        // There and back.
        let mut least = [u64::MAX; 2];
        for _ in 0..2 * TIMES {
            for (least, link) in least.iter_mut().zip([&link, &former]) {
                let steps = rig.apply(link);
                assert!(
                    (1..=3).contains(&steps.len()),
                    "{what}: {} steps",
                    steps.len()
                );
                *least = steps.iter().sum::<u64>().min(*least);
            }
        }
        eprintln!("{what}: {least:?} ns, there and back");
        assert!(
            least.iter().all(|&ns| ns <= A_CHANGE),
            "{what}: {least:?} ns"
        );
    }
}

#[test]
fn no_step_is_longer_where_more_packets_go_over_to_new_queues() {
    let (before, after) = (ordered_by("qfq"), ordered_by("drr"));
    let moved = SIZES.map(|packets| {
        longest(|| {
            let mut rig = Rig::new(&before);
            for _ in 0..packets {
                let queue = rig.arbiter.queue_mut();
                rig::put(queue, rig.port, frame(1, 100), Nanos::ZERO);
            }
            let all = rig.apply(&after);
            assert_eq!(rig.arbiter.queue().classes().len() as usize, packets);
            all
        })
    });
    is_bounded("packets that go over", moved);
}

/// Flows of a class.
const EACH: usize = 250;

/// Returns a link with classes of flows, this many in all.
fn of_flows(flows: usize) -> Arc<Link> {
    let mut text = REST.to_owned();
    for number in 0..flows / EACH {
        write!(
            text,
            "[[link.class]]\nname = \"c{number}\"\nper = \"source-ip\"\n\
             room = {{ packets = 4, bytes = \"8kb\" }}\n\
             [[link.filter]]\nclass = \"c{number}\"\nsource = \"10.{number}.0.0/16\"\n"
        )
        .unwrap();
    }
    link(&text)
}

#[test]
fn no_step_is_longer_where_more_classes_of_idle_flows_are_flushed_and_go() {
    let few = link(REST);
    let links = SIZES.map(of_flows);
    let steps = |size: usize, go: bool| {
        let mut rig = Rig::new(&links[size]);
        for flow in 0..SIZES[size] {
            let source = ((flow / EACH) << 16) | (flow % EACH);
            let frame = frame(source as u32, 100);
            rig::pass(rig.arbiter.queue_mut(), rig.port, frame, Nanos::ZERO);
        }
        assert_eq!(rig.flows(), SIZES[size] as u64);
        let (all, looks) = match go {
            // They are emptied, and then removed.
            true => (rig.apply(&few), 2 * SIZES[size]),
            false => {
                let mut flushing = Flushing::new(Side::Right, rig.plan.ids.clone());
                let all = ran(|| flushing.step(&mut rig.arbiter, Nanos::ZERO));
                (all, SIZES[size])
            }
        };
        assert!(all.len() * STEP >= looks, "only {} steps", all.len());
        all
    };
    let flushed = [0, 1].map(|size| longest(|| steps(size, false)));
    is_bounded("idle flows that are flushed", flushed);
    let went = [0, 1].map(|size| longest(|| steps(size, true)));
    is_bounded("classes of idle flows that go", went);
}

#[test]
fn no_step_is_longer_where_a_class_of_more_flows_goes() {
    let had = "[[link.class]]\nname = \"hosts\"\nper = \"source-ip\"\nqueue = \"codel\"\n\
               flows = { most = 40000 }\ndefault = true\n[[link.class]]\nname = \"rest\"\n";
    let (had, few) = (link(had), link(REST));
    let went = SIZES.map(|flows| {
        longest(|| {
            let mut rig = Rig::new(&had);
            for source in 0..flows as u32 {
                rig::pass(
                    rig.arbiter.queue_mut(),
                    rig.port,
                    frame(source, 100),
                    Nanos::ZERO,
                );
            }
            assert_eq!(rig.flows(), flows as u64);
            rig.apply(&few)
        })
    });
    is_bounded("a class of flows that goes", went);
}

#[test]
fn what_was_seen_in_passing_counts_for_nobody_once_numbers_of_classes_are_others() {
    let ms = Nanos::from_millis;
    for (before, after, counted) in [
        (ordered_by("qfq"), ordered_by("drr"), 0),
        (with_classes(2, 0), with_classes(1, 0), 0),
        (with_classes(2, 0), with_classes(2, 0), 1),
    ] {
        let [(mut left, mut findings), (right, _)] = passing::watches().unwrap();
        let mut rig = Rig::new(&before);
        rig.arbiter.queue_mut().classifier_mut().watch = Some(Box::new(right));
        let segment = seen::frame([seen::A, seen::B], 0, 1_000, [100, 1]);
        rig::pass(rig.arbiter.queue_mut(), rig.port, segment, ms(5));
        rig.apply(&after);
        let acknowledgment = seen::frame([seen::B, seen::A], 0, 0, [7, 100]);
        left.see(&acknowledgment, seen::class(1), ms(25));
        assert_eq!(seen::all(&mut findings).len(), counted);
    }
}

#[test]
fn what_was_seen_and_lost_of_a_class_is_of_the_one_above_it_when_it_goes() {
    let of_classes = |below: &[&str]| {
        let class = |more: &&str| format!("[[link.class]]\nparent = \"above\"\n{more}\n");
        let below: String = below.iter().map(class).collect();
        link(&format!("{REST}[[link.class]]\nname = \"above\"\n{below}"))
    };
    let mut rig = Rig::new(&of_classes(&["name = \"one\"", "name = \"other\""]));
    let place = |rig: &Rig, name: &str| {
        let mut classes = rig.plan.link.classes.iter();
        classes.position(|class| &*class.name == name).unwrap()
    };
    let known = |rig: &Rig, name: &str| {
        let account = &rig.plan.accounts[place(rig, name)];
        let passing = &account.passing;
        (account.lost, passing.again, passing.marked)
    };
    for (name, number) in [("one", 2), ("other", 20)] {
        let place = place(&rig, name);
        let account = &mut rig.plan.accounts[place];
        (account.lost, account.passing.again, account.passing.marked) = (1.5, number, number + 1);
    }
    rig.apply(&of_classes(&["name = \"other\""]));
    assert_eq!(known(&rig, "above"), (1.5, 2, 3));
    // One of another kind has them under its name.
    rig.apply(&of_classes(&["name = \"other\"\nper = \"source-ip\""]));
    assert_eq!(known(&rig, "above"), (1.5, 2, 3));
    assert_eq!(known(&rig, "other"), (1.5, 20, 21));
}

/// Returns a link whose default class is below one of two others.
fn below(above: &str, keys: &str) -> Arc<Link> {
    let class = |name: &str, above: &str, keys: &str| {
        format!("[[link.class]]\nname = \"{name}\"\nparent = \"{above}\"\n{keys}")
    };
    link(&format!(
        "[[link.class]]\nname = \"one\"\n[[link.class]]\nname = \"two\"\n{}{}{}",
        class("stays", "one", ""),
        class("beside", "two", ""),
        class("moves", above, &format!("default = true\n{keys}")),
    ))
}

#[test]
fn no_step_is_longer_where_a_class_of_more_packets_moves() {
    let keys = "limit = { packets = 50000, bytes = \"50mb\" }\n";
    let [here, there] = ["one", "two"].map(|above| below(above, keys));
    let moved = SIZES.map(|packets| {
        longest(|| {
            let mut rig = Rig::new(&here);
            for _ in 0..packets {
                let queue = rig.arbiter.queue_mut();
                rig::put(queue, rig.port, frame(1, 100), Nanos::ZERO);
            }
            let all = rig.apply(&there);
            assert!(all.len() <= 3, "{} steps", all.len());
            assert_eq!(rig.waiting(), packets);
            all
        })
    });
    is_bounded("packets of a class that moves", moved);
}

#[test]
fn a_class_that_moves_keeps_its_flows_in_their_order_and_those_without_packets() {
    let [here, there] =
        ["one", "two"].map(|above| below(above, "per = \"source-ip\"\nflows = { most = 64 }\n"));
    let left = [false, true].map(|moves| {
        let mut rig = Rig::new(&here);
        let port = rig.port;
        let idle = frame(9, 900);
        rig::pass(rig.arbiter.queue_mut(), port, idle, Nanos::ZERO);
        // As many bytes of each flow, in packets of its own length.
        for number in 0..60 {
            for source in [1, 2, 5] {
                if number % source == 0 {
                    let frame = frame(source, 100 * source as usize);
                    rig::put(rig.arbiter.queue_mut(), port, frame, Nanos::ZERO);
                }
            }
        }
        let mut left = rig.leave(17);
        if moves {
            let (id, flows) = (rig.id("moves"), rig.flows());
            let before = rig.arbiter.queue().classes().own_stats(id);
            rig.apply(&there);
            assert_eq!((rig.id("moves"), rig.flows(), flows), (id, flows, 4));
            assert_eq!(rig.arbiter.queue().classes().own_stats(id), before);
        }
        left.extend(rig.leave(usize::MAX));
        left
    });
    assert_eq!(left[0].len(), 60 + 30 + 12);
    assert_eq!(left[0], left[1]);
}

#[test]
fn what_waits_in_classes_that_are_no_more_leaves_before_they_go() {
    let of = |head: &str, keys: &str| {
        let filter = "[[link.filter]]\nclass = \"one\"\nsource = \"10.0.0.1/32\"\n";
        link(&format!(
            "{head}{REST}[[link.class]]\nname = \"one\"\n{keys}{filter}"
        ))
    };
    let drr = "algorithm = \"drr\"\n";
    let rig = || {
        let mut rig = Rig::new(&of("", ""));
        for source in [1, 2, 1, 2, 1, 2] {
            let frame = frame(source, 100 * source as usize);
            rig::put(rig.arbiter.queue_mut(), rig.port, frame, Nanos::ZERO);
        }
        rig
    };
    let draining = |rig: &Rig, link: &Arc<Link>| {
        let next = rig.plan.running().becomes(Arc::clone(link));
        rig.plan.draining(&next, Nanos::MAX)
    };
    // If a class of the same name exists, packets move there.
    let flows = "per = \"source-ip\"\nflows = { most = 9 }\n";
    for stays in [
        of("", ""),
        of("", flows),
        of(drr, ""),
        of("", "weight = 7\n"),
    ] {
        assert!(draining(&rig(), &stays).is_none());
    }
    for goes in [link(REST), link(&format!("{drr}{REST}"))] {
        let mut rig = rig();
        let mut draining = draining(&rig, &goes).unwrap();
        assert!(draining.step(rig.arbiter.queue()) && !draining.is_done());
        // Later packets are not waited for.
        let late = frame(1, 100);
        rig::put(rig.arbiter.queue_mut(), rig.port, late, Nanos::ZERO);
        let mut left = 0;
        while left < 3 {
            assert!(!draining.is_done(), "{left} of 3");
            left += usize::from(rig.leave(1) == [100]);
            assert!(draining.step(rig.arbiter.queue()));
        }
        assert!(draining.is_done());
        assert!(rig.waiting() > 0);
    }
}
