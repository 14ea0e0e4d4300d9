//! QFQ as it is compiled makes the decisions of the model in `proofs/`: the acceptor that Coq extracts certifies them.

use std::cell::RefCell;
use std::env;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::rc::Rc;
use std::thread;

use fairlane_core::sched::{Algorithm, Qfq};
use fairlane_core::scheduler::{EntityId, Holds, MaybeEntity, Removal, Violation};
use fairlane_core::units::{Charge, VirtualTime, Weight};
use fairlane_core::{FlowId, Scheduler, Share};
use fairlane_testkit::{Adversary, long_tests};

use crate::returning_flows;
use crate::support::{Random, config, length, next, scheduler};

/// Returns the program that certifies, if it was built; the long form builds it.
fn program() -> Result<PathBuf, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let this = env::current_exe().map_err(|error| error.to_string())?;
    let target = this.ancestors().find(|folder| folder.ends_with("target"));
    let program = target
        .unwrap_or(&root.join("target"))
        .join("proofs/bin/certify");
    if long_tests() {
        let build = Command::new(root.join("proofs/build")).output();
        let build = build.map_err(|error| format!("proofs/build: {error}"))?;
        let errors = String::from_utf8_lossy(&build.stderr);
        assert!(build.status.success() || errors.contains("there is no"));
    }
    match program.exists() {
        true => Ok(program),
        false => Err("proofs/build has not built it (it needs Coq and OCaml)".to_owned()),
    }
}

fn skip(reason: &str) {
    assert!(env::var_os("FAIRLANE_NO_SKIP").is_none(), "{reason}");
    let test = thread::current().name().unwrap_or("?").to_owned();
    let line = format!("skipped {test}: certify: {reason}\n");
    // The harness keeps the output of `eprintln` in a test that passes.
    let _ = io::stderr().write_all(line.as_bytes());
}

/// A stream of traces to the program.
struct Certify {
    process: Child,
    events: Events,
}

type Events = Rc<RefCell<BufWriter<ChildStdin>>>;

impl Certify {
    /// `None` without the program, after naming the test.
    fn start() -> Option<Certify> {
        let program = program().inspect_err(|reason| skip(reason)).ok()?;
        let mut command = Command::new(program);
        let command = command.arg("--events").stdin(Stdio::piped());
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let input = BufWriter::new(process.stdin.take().unwrap());
        Some(Certify {
            process,
            events: Rc::new(RefCell::new(input)),
        })
    }

    /// QFQ that writes its events into the stream.
    fn qfq(&self) -> Recorded {
        Recorded::new(Qfq::new(), &self.events)
    }

    /// Ends the stream: the first line of the answer.
    fn answer(self) -> String {
        let Certify { process, events } = self;
        let events = Rc::into_inner(events).expect("no scheduler is left");
        // A program that said "no" has closed its end.
        drop(events);
        let output = process.wait_with_output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn assert_yes(self) {
        let answer = self.answer();
        assert!(answer.starts_with("yes"), "{answer}");
    }
}

/// An algorithm that writes each arrival and departure as a line.
///
/// The arrival of a packet behind others is recorded when it becomes the first: algorithms with timestamps are not
/// notified of it before.
struct Recorded {
    algorithm: Qfq,
    flows: usize,
    events: Events,
}

impl Recorded {
    fn new(algorithm: Qfq, events: &Events) -> Self {
        Recorded {
            algorithm,
            flows: 0,
            events: events.clone(),
        }
    }

    fn write(&self, line: std::fmt::Arguments<'_>) {
        // A program that said "no" reads no further; its answer is compared.
        let _ = writeln!(self.events.borrow_mut(), "{line}");
    }
}

type Entity = <Qfq as Scheduler>::Entity;

impl Scheduler for Recorded {
    type Entity = Entity;
    const NAME: &'static str = "qfq";

    fn add(&mut self, entities: &mut [impl Holds<Entity>], id: EntityId, share: Share) {
        if self.flows == 0 {
            self.write(format_args!("trace"));
        }
        assert_eq!(self.flows, id.index(), "flows are added in order");
        self.flows += 1;
        let (weight, longest) = (share.weight().get(), share.max_charge().get());
        self.write(format_args!("flow {weight} {longest}"));
        self.algorithm.add(entities, id, share);
    }

    fn remove(&mut self, _: &mut [impl Holds<Entity>], _: EntityId) -> Removal {
        unreachable!("flows of a trace stay")
    }

    fn change(&mut self, _: &mut [impl Holds<Entity>], _: EntityId, _: Share) {
        unreachable!("weights of a trace stay")
    }

    fn weight(&self, entities: &[impl Holds<Entity>], id: EntityId) -> Weight {
        self.algorithm.weight(entities, id)
    }

    fn is_active(&self, entities: &[impl Holds<Entity>], id: EntityId) -> bool {
        self.algorithm.is_active(entities, id)
    }

    fn backlogged(&mut self, entities: &mut [impl Holds<Entity>], id: EntityId, head: Charge) {
        if !self.is_active(entities, id) {
            self.write(format_args!("+ {} {}", id.index(), head.get()));
        }
        self.algorithm.backlogged(entities, id, head);
    }

    fn select(&self, entities: &[impl Holds<Entity>]) -> MaybeEntity {
        self.algorithm.select(entities)
    }

    fn hold(&mut self, _: &mut [impl Holds<Entity>], _: EntityId) {
        unreachable!("flows of a trace are no aggregates")
    }

    fn served(&mut self, work: Charge) {
        self.algorithm.served(work);
    }

    fn reschedule(
        &mut self,
        entities: &mut [impl Holds<Entity>],
        id: EntityId,
        charged: Charge,
        next: Option<Charge>,
    ) {
        if let Some(next) = next {
            self.write(format_args!("+ {} {}", id.index(), next.get()));
        }
        self.write(format_args!("- {} {}", id.index(), charged.get()));
        self.algorithm.reschedule(entities, id, charged, next);
    }

    fn idle(&mut self, entities: &mut [impl Holds<Entity>], id: EntityId) {
        self.algorithm.idle(entities, id);
    }

    fn invariants(&self, entities: &[impl Holds<Entity>]) -> Result<(), Violation> {
        self.algorithm.invariants(entities)
    }
}

/// A scheduler under random arrivals and services. V wraps after a few packets.
fn random_schedule(certify: &Certify, random: &mut Random, packets: u32) {
    // A multiple of all slots, so that the model may start at 0.
    let before_the_wrap = VirtualTime::new((1u64 << 56).wrapping_neg());
    let algorithm = Recorded::new(Qfq::starting_at(before_the_wrap), &certify.events);
    let mut link = scheduler::<_, ()>(algorithm);
    let flows = 1 + random.below(24);
    let longest: Vec<u32> = (0..flows)
        .map(|_| random.pick(&[40, 64, 576, 1500, 9000, 65_535]))
        .collect();
    for &longest in &longest {
        let weight = random.pick(&[1, 2, 3, 10, 1000]);
        link.add_flow(config(weight, longest)).unwrap();
    }
    let mut arrivals = 0;
    while arrivals < packets || !link.is_empty() {
        // Busy and idle phases in turn.
        let load = if arrivals / 16 % 2 == 0 { 3 } else { 1 };
        if arrivals < packets && (link.is_empty() || random.below(4) < load) {
            let flow = random.below(flows);
            let bytes = 1 + random.below(longest[flow as usize]);
            link.enqueue(FlowId::new(flow), length(bytes), ()).unwrap();
            arrivals += 1;
        } else {
            next(&mut link);
        }
    }
}

#[test]
fn random_schedules_of_qfq_are_certified() {
    let Some(certify) = Certify::start() else {
        return;
    };
    let mut random = Random(1);
    for _ in 0..if long_tests() { 1_000 } else { 100 } {
        random_schedule(&certify, &mut random, 100);
    }
    certify.assert_yes();
}

#[test]
fn schedules_of_an_adversary_of_qfq_are_certified() {
    let Some(certify) = Certify::start() else {
        return;
    };
    let events = certify.events.clone();
    let make = move || Recorded::new(Qfq::new(), &events);
    let packets = if long_tests() { 300_000 } else { 10_000 };
    Adversary::of(make, Algorithm::Qfq)
        .packets(packets)
        .assert();
    for schedule in [
        returning_flows::leaving_and_returning(),
        returning_flows::leaving_at_the_beginning_of_a_slot(),
    ] {
        schedule.of_bounds(certify.qfq(), Algorithm::Qfq);
    }
    certify.assert_yes();
}

/// All schedules of a few flows, each with one length of packets: at any time an idle flow may become backlogged, and
/// a flow that is served may have another packet or none.
struct Exhaustive<'a> {
    events: &'a mut dyn Write,
    lengths: &'a [u32],
    departures: u64,
}

#[derive(Clone)]
struct Node {
    algorithm: Qfq,
    entities: Vec<Entity>,
    packets: u32,
}

impl Exhaustive<'_> {
    fn explore(&mut self, node: &Node) -> io::Result<()> {
        let charge = |lengths: &[u32], id: EntityId| length(lengths[id.index()]).into();
        for id in (0..node.entities.len()).filter_map(EntityId::new) {
            if node.packets == 0 || node.algorithm.is_active(&node.entities, id) {
                continue;
            }
            let mut then = node.clone();
            then.packets -= 1;
            let head = charge(self.lengths, id);
            then.algorithm.backlogged(&mut then.entities, id, head);
            writeln!(self.events, "[\n+ {} {}", id.index(), head.get())?;
            self.explore(&then)?;
            writeln!(self.events, "]")?;
        }
        let Some(id) = node.algorithm.select(&node.entities).get() else {
            return Ok(());
        };
        let head: Charge = charge(self.lengths, id);
        for more in 0..=u32::from(node.packets > 0) {
            let mut then = node.clone();
            then.packets -= more;
            let next = (more > 0).then_some(head);
            then.algorithm.step(&mut then.entities, id, head, next);
            writeln!(self.events, "[")?;
            if next.is_some() {
                writeln!(self.events, "+ {} {}", id.index(), head.get())?;
            }
            writeln!(self.events, "- {} {}", id.index(), head.get())?;
            self.departures += 1;
            self.explore(&then)?;
            writeln!(self.events, "]")?;
        }
        Ok(())
    }
}

#[test]
fn all_small_schedules_of_qfq_are_certified() {
    let Some(certify) = Certify::start() else {
        return;
    };
    // Weights and lengths of up to four flows, and packets of all.
    let mut settings = vec![([1, 1, 2, 7], [1500, 200, 1500, 40], 4)];
    if long_tests() {
        settings = vec![
            ([1, 1, 2, 7], [1500, 200, 1500, 40], 7),
            ([1, 3, 3, 50], [100, 100, 9000, 1500], 5),
            ([1, 1, 1, 1], [1, 2, 3, 4], 5),
        ];
    }
    let mut departures = 0;
    for (weights, lengths, packets) in settings {
        let mut recorded = certify.qfq();
        let mut entities = vec![Entity::default(); weights.len()];
        for (index, (&weight, &bytes)) in weights.iter().zip(&lengths).enumerate() {
            let share = Share::new(Weight::new(weight).unwrap(), length(bytes));
            recorded.add(&mut entities, EntityId::new(index).unwrap(), share);
        }
        let node = Node {
            algorithm: recorded.algorithm,
            entities,
            packets,
        };
        let mut exhaustive = Exhaustive {
            events: &mut *certify.events.borrow_mut(),
            lengths: &lengths,
            departures: 0,
        };
        exhaustive.explore(&node).expect("the program reads on");
        departures += exhaustive.departures;
    }
    let answer = certify.answer();
    let traces = format!("{departures} departures");
    assert!(
        answer.starts_with("yes") && answer.contains(&traces),
        "{answer}, not {traces}"
    );
}

#[test]
fn a_departure_out_of_order_is_not_certified() {
    let Some(certify) = Certify::start() else {
        return;
    };
    let trace = "trace swapped\nflow 4 200\nflow 1 1000\n+ 0 100\n+ 1 1000\n- 1 1000\n";
    let _ = certify.events.borrow_mut().write_all(trace.as_bytes());
    let answer = certify.answer();
    assert!(
        answer.contains("departure 1, flow 1, 1000 bytes: it overtakes flow 0"),
        "{answer}"
    );
}
