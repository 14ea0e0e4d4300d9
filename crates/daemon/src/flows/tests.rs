//! Flows are counted and named on request, in steps, however many there are.

use std::sync::mpsc::{Receiver, channel};

use fairlane_config::Site;
use fairlane_core::FlowId;
use fairlane_core::tree::ClassFlow;

use super::*;
use fairlane_dataplane::passing::What;
use fairlane_dataplane::rig::{self, InMemory, frame};

const SECOND: Nanos = Nanos::from_millis(1_000);

/// A link whose frames all go to one class, with flows per `per`.
struct Rig {
    plans: Vec<Plan>,
    arbiter: InMemory,
    port: FlowId,
    watch: Watch,
    now: Nanos,
}

impl Rig {
    fn new(flows: &str) -> Rig {
        let text = format!(
            "[[link]]\nname = \"up\"\nto = \"outside\"\nrate = \"1gbit\"\n\
             [[link.class]]\nname = \"voice\"\nrate = \"2mbit\"\n\
             [[link.class]]\nname = \"everybody\"\n{flows}\ndefault = true\n"
        );
        let site = Site::parse(&text, "test").unwrap();
        let (plan, arbiter, port) = rig::start(&site.links[0]);
        Rig {
            plans: vec![plan],
            arbiter,
            port,
            watch: Watch::default(),
            now: Nanos::ZERO,
        }
    }

    /// Passes frames of 1,000 bytes.
    fn pass(&mut self, source: u32, frames: usize) {
        for _ in 0..frames {
            self.pass_one(frame(source, 1_000));
        }
    }

    /// Adds a TCP observation for this source.
    fn see(&mut self, source: u32, what: What) {
        let received = rig::received(frame(source, 1_000), self.now);
        let classifier = self.arbiter.queue_mut().classifier_mut();
        let ClassFlow { class, flow } = classifier.by_filters(&received);
        self.watch.found(&[Finding {
            flow,
            class: class.number(),
            side: Side::Right,
            what,
        }]);
    }

    fn pass_one(&mut self, bytes: Vec<u8>) {
        rig::pass(self.arbiter.queue_mut(), self.port, bytes, self.now);
    }

    fn ask(&mut self) -> Receiver<Arc<TopFlows>> {
        let (tell, told) = channel();
        let hear = move |top: &Arc<TopFlows>| tell.send(Arc::clone(top)).unwrap();
        self.watch.hear(Box::new(hear), self.now);
        told
    }

    /// Makes a whole walk when it is due, a few flows at a time. Returns the number of steps.
    fn walk(&mut self) -> usize {
        self.now = self.now.max(self.watch.due());
        let mut walking = self.watch.walk(&self.plans, self.now);
        let last = walking.last;
        let link = &mut walking.links[Side::Right as usize];
        let mut steps = 1;
        while !link.step(self.arbiter.queue_mut(), &mut 7, last, self.now) {
            steps += 1;
        }
        self.watch.walked(walking, &self.plans);
        steps
    }

    fn counts(&mut self) -> bool {
        let id = self.plans[0].ids[1];
        let queue = self.arbiter.queue_mut();
        let counted = queue.classes_mut().is_tallied(id);
        assert_eq!(queue.classifier().naming.is_some(), counted);
        counted
    }
}

fn names(top: &TopFlows) -> Vec<&str> {
    top.flows.iter().map(|flow| &*flow.flow).collect()
}

#[test]
fn who_sends_most_is_told_first_by_what_all_its_packets_have_in_common() {
    let mut rig = Rig::new("per = \"source-ip\"");
    assert_eq!(rig.watch.due(), Nanos::MAX);
    rig.pass(1, 100);
    assert!(!rig.counts(), "no request was made");
    let told = rig.ask();
    let also = rig.ask();
    rig.walk();
    assert!(told.try_recv().is_err(), "one walk alone tells no rate");
    rig.pass(1, 10);
    rig.pass(2, 30);
    rig.pass(3, 20);
    rig.pass_one(vec![0; 13]);
    rig.walk();
    let top = told.try_recv().unwrap();
    assert!(Arc::ptr_eq(&top, &also.try_recv().unwrap()), "all share it");
    assert_eq!(
        names(&top),
        ["10.0.0.2", "10.0.0.3", "10.0.0.1", "unreadable"]
    );
    assert_eq!(top.seconds, 1.0);
    let flow = &top.flows[0];
    assert_eq!((&*flow.link, &*flow.class), ("up", "everybody"));
    assert_eq!(
        (flow.packets, flow.bytes, flow.bps),
        (30, 30_000, 240_000.0)
    );
    assert!((flow.share - 0.5).abs() < 0.001, "{flow:?}");
    // The next request is answered at once; flows that have sent nothing since are not listed.
    rig.pass(3, 5);
    rig.walk();
    let top = rig.ask().try_recv().unwrap();
    assert_eq!(names(&top), ["10.0.0.3"]);
    assert_eq!(top.flows[0].bytes, 5_000);
}

#[test]
fn what_is_seen_in_passing_is_told_of_its_flow_once() {
    let mut rig = Rig::new("per = \"source-ip\"");
    rig.see(1, What::Again);
    let told = rig.ask();
    rig.walk();
    for _ in 0..99 {
        rig.see(1, What::Trip(20_000));
    }
    rig.see(1, What::Trip(300_000));
    rig.see(1, What::Again);
    rig.see(2, What::Marked);
    rig.pass(1, 10);
    rig.pass(2, 30);
    rig.walk();
    let top = told.try_recv().unwrap();
    let [second, first] = &top.flows[..] else {
        panic!("{top:?}");
    };
    let rtt = first.rtt_us.unwrap();
    for (told, micros) in [(rtt.p50, 2e4), (rtt.p99, 2e4), (rtt.max, 3e5)] {
        assert!((1.0..1.02).contains(&(told / micros)), "{rtt:?}");
    }
    assert!(
        rtt.mean
            .is_some_and(|mean| (22_800.0..23_300.0).contains(&mean))
    );
    assert_eq!((first.retransmits, first.ecn_ce), (1, 0));
    assert!(second.rtt_us.is_none());
    assert_eq!((second.retransmits, second.ecn_ce), (0, 1));
    // Another walk starts from zero.
    rig.pass(1, 1);
    rig.walk();
    let top = rig.ask().try_recv().unwrap();
    assert!(top.flows[0].rtt_us.is_none() && top.flows[0].retransmits == 0);
}

#[test]
fn of_a_flood_of_flows_what_is_seen_takes_bounded_room() {
    let mut rig = Rig::new("per = \"source-ip\"");
    let told = rig.ask();
    rig.walk();
    rig.see(1, What::Again);
    for source in 0..20_000 {
        rig.see(0x1_0000 + source, What::Trip(1));
    }
    rig.see(1, What::Again);
    let passing = &rig.watch.links[Side::Right as usize].passing;
    assert_eq!(passing.len(), PASSED);
    rig.pass(1, 1);
    rig.walk();
    assert_eq!(told.try_recv().unwrap().flows[0].retransmits, 2);
}

#[test]
fn nothing_is_counted_once_nobody_has_asked_for_long() {
    let mut rig = Rig::new("per = \"source-ip\"");
    let told = rig.ask();
    rig.walk();
    rig.walk();
    told.try_recv().unwrap();
    let mut walks = 0;
    while rig.counts() {
        rig.walk();
        walks += 1;
        assert!(walks < 20);
    }
    assert!(rig.now >= KEPT, "{walks}");
    assert_eq!(rig.watch.due(), Nanos::MAX);
    // From then on the behavior is as at first.
    let told = rig.ask();
    assert!(told.try_recv().is_err());
    rig.walk();
    rig.pass(1, 1);
    rig.walk();
    assert_eq!(names(&told.try_recv().unwrap()), ["10.0.0.1"]);
}

#[test]
fn in_a_flood_of_flows_no_step_does_more_and_who_sends_much_has_a_name() {
    const FLOOD: u32 = 30_000;
    let mut rig = Rig::new("per = \"source-ip\"\nflows = { most = 40000 }");
    let flood = |rig: &mut Rig| {
        for source in 0..FLOOD {
            rig.pass(0x1_0000 + source, 1);
        }
        rig.pass(7, 50);
        rig.now += SECOND;
    };
    flood(&mut rig);
    let told = rig.ask();
    let steps = rig.walk();
    assert!(steps > FLOOD as usize / 7, "{steps}");
    flood(&mut rig);
    rig.walk();
    let first = told.try_recv().unwrap();
    assert_eq!(first.flows.len(), OF_A_CLASS);
    // An unknown name is not guessed.
    let unknown = &first.flows[0];
    assert!(unknown.flow.starts_with('?'), "{unknown:?}");
    assert_eq!(unknown.packets, 50);
    for _ in 0..2 {
        flood(&mut rig);
        rig.walk();
    }
    let third = rig.ask().try_recv().unwrap();
    assert_eq!((third.flows[0].packets, names(&third)[0]), (50, "10.0.0.7"));
    let known: usize = rig.watch.links.iter().map(|seen| seen.names.len()).sum();
    assert!(
        known <= fairlane_dataplane::names::UNASKED + 2 * OF_A_CLASS,
        "{known}"
    );
}

#[test]
fn flows_for_which_there_is_no_room_are_told_as_others() {
    let mut rig = Rig::new("per = \"source-ip\"\nflows = { most = 1 }");
    let told = rig.ask();
    rig.pass(1, 1);
    rig.walk();
    rig.pass(1, 2);
    rig.pass(2, 3);
    rig.walk();
    let top = told.try_recv().unwrap();
    assert_eq!(names(&top), ["others", "10.0.0.1"]);
}

#[test]
fn subnets_are_told_as_such() {
    let mut rig = Rig::new("per = \"source-subnet/24\"");
    let told = rig.ask();
    rig.walk();
    rig.pass(0x0001_0203, 1);
    rig.pass(0x0001_0204, 1);
    rig.walk();
    let top = told.try_recv().unwrap();
    assert_eq!(names(&top), ["10.1.2.0/24"]);
    assert_eq!(top.flows[0].packets, 2);
}

#[test]
fn without_classes_of_flows_the_first_walk_tells_that_there_are_none() {
    let mut rig = Rig::new("limit = { packets = 9 }");
    let told = rig.ask();
    assert_eq!(rig.walk(), 1);
    assert!(told.try_recv().unwrap().flows.is_empty());
}

#[test]
fn with_many_classes_of_flows_fewer_of_each_are_told() {
    let classes = (0..200).map(|number| {
        format!(
            "[[link.class]]\nname = \"c{number}\"\nper = \"source-ip\"\nflows = {{ most = 2 }}\n"
        )
    });
    let text = "[[link]]\nname = \"up\"\nto = \"outside\"\nrate = \"1gbit\"\n".to_owned()
        + &classes.collect::<String>()
        + "[[link.class]]\nname = \"rest\"\ndefault = true\n";
    let site = Site::parse(&text, "test").unwrap();
    let (plan, ..) = rig::start(&site.links[0]);
    let mut watch = Watch::default();
    watch.hear(Box::new(|_| {}), Nanos::ZERO);
    let walking = watch.walk(&[plan], Nanos::ZERO);
    let classes = walking.links.into_iter().flat_map(|link| link.classes);
    let most: Vec<usize> = classes.map(|class| class.top.most).collect();
    assert_eq!(most, vec![OF_ALL / 200; 200]);
}
