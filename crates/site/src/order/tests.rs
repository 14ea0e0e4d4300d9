//! No step takes longer where there are more classes or flows, by the time that the thread itself ran:
//! other threads do not count.

use std::fmt::Write;

use fairlane_config::Site;
use fairlane_core::FlowId;

use super::*;
use crate::plan::Plan;
use crate::rig::{self, InMemory, frame};
use crate::stretch::run_so_far;

/// Few, and sixteen times as many.
const SIZES: [usize; 2] = [1_250, 20_000];
/// How often each is done: what has nothing to do with it, an interrupt say, hardly meets the same step
/// each time.
const TIMES: usize = 4;

/// A link of these classes.
fn link(classes: &str) -> Arc<Link> {
    let text = "[[link]]\nname = \"up\"\nto = \"outside\"\nrate = \"1gbit\"\n\
                limit = { packets = 800000, bytes = \"800mb\" }\n"
        .to_owned();
    Arc::clone(&Site::parse(&(text + classes), "test").unwrap().links[0])
}

const REST: &str = "[[link.class]]\nname = \"rest\"\ndefault = true\n";

/// A link of so many classes beside another one, with weights of a round.
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

struct Rig {
    plan: Plan,
    arbiter: InMemory,
    port: FlowId,
}

/// How long the thread ran for each step.
fn ran(mut step: impl FnMut() -> bool) -> Vec<u64> {
    let mut all = Vec::new();
    loop {
        let before = run_so_far();
        let done = step();
        all.push(run_so_far() - before);
        if done {
            return all;
        }
    }
}

impl Rig {
    fn new(link: &Arc<Link>) -> Rig {
        let (plan, arbiter, port) = rig::start(link);
        Rig {
            plan,
            arbiter,
            port,
        }
    }

    /// Goes over to another link, as the control thread has it done.
    fn go_on_as(&mut self, link: &Arc<Link>) -> Vec<u64> {
        let next = self.plan.running().becomes(Arc::clone(link));
        if let Some(mut changing) = self.plan.changing(&next) {
            let all = ran(|| changing.step(&mut self.arbiter, Nanos::ZERO));
            self.plan.describe(next);
            return all;
        }
        let mut all = Vec::new();
        let ids = self.plan.adding(&next).map(|mut adding| {
            all = ran(|| adding.step(self.arbiter.queue_mut()));
            assert!(adding.error.is_none());
            adding.ids
        });
        let (mut taking, mut after) = self.plan.taking(next, ids);
        all.extend(ran(|| taking.step(&mut self.arbiter, Nanos::ZERO)));
        assert!(taking.error.is_none());
        after.inherit(&self.plan, &taking);
        self.plan = after;
        all
    }

    fn count(&self) -> Vec<u64> {
        let [_, mut count] = Counting::of([Vec::new(), self.plan.ids.clone()]).links;
        let all = ran(|| count.step(self.arbiter.queue(), &mut { STEP }));
        assert_eq!(count.counted, self.plan.ids.len());
        all
    }
}

/// The longest step of some that are done several times, each as short as it was once.
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

/// What is done to many may take longer for want of cache, and not as many times as long.
fn is_bounded(what: &str, [few, many]: [u64; 2]) {
    eprintln!("{what}: {few} ns at most with {SIZES:?}, {many} ns");
    assert!(many < 4 * few + 50_000, "{what}: {few} and {many} ns");
}

#[test]
fn no_step_is_longer_where_more_classes_come_change_and_go() {
    let few = with_classes(10, 0);
    let links = SIZES.map(|size| [0, 1].map(|round| with_classes(size, round)));
    let come = links
        .each_ref()
        .map(|[first, _]| longest(|| Rig::new(&few).go_on_as(first)));
    is_bounded("classes that come", come);
    let change = links
        .each_ref()
        .map(|[first, second]| longest(|| Rig::new(first).go_on_as(second)));
    is_bounded("classes that change", change);
    let go = links
        .each_ref()
        .map(|[first, _]| longest(|| Rig::new(first).go_on_as(&few)));
    is_bounded("classes that go", go);
    let counted = links
        .each_ref()
        .map(|[first, _]| longest(|| Rig::new(first).count()));
    is_bounded("classes that are counted", counted);
}

#[test]
fn no_step_is_longer_where_more_packets_go_over_to_new_queues() {
    let with = |algorithm: &str| {
        let class = "limit = { packets = 50000, bytes = \"50mb\" }\n";
        link(&format!("algorithm = \"{algorithm}\"\n{REST}{class}"))
    };
    let (before, after) = (with("qfq"), with("drr"));
    let moved = SIZES.map(|packets| {
        longest(|| {
            let mut rig = Rig::new(&before);
            for _ in 0..packets {
                let queue = rig.arbiter.queue_mut();
                rig::put(queue, rig.port, frame(1, 100), Nanos::ZERO);
            }
            let all = rig.go_on_as(&after);
            assert_eq!(rig.arbiter.queue().classes().len() as usize, packets);
            all
        })
    });
    is_bounded("packets that go over", moved);
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
            assert_eq!(
                rig.arbiter
                    .queue()
                    .classes()
                    .own_stats(rig.plan.ids[0])
                    .unwrap()
                    .flows,
                flows as u64
            );
            rig.go_on_as(&few)
        })
    });
    is_bounded("a class of flows that goes", went);
}
