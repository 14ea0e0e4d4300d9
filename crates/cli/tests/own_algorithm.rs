//! The program with an algorithm of another crate: the example, by name in every command.
//!
//! A process of this test runs as the program if it is started with the variable `PROGRAM`.

#[path = "it/program/mod.rs"]
mod program;
#[path = "../examples/own_algorithm/start_time.rs"]
mod start_time;

use std::env;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode, Output};

use fairlane_cli::Program;
use fairlane_core::sched::{Algorithm, CustomAlgorithm, Plus};
use fairlane_core::tree::{ClassConfig, ClassId, LeafConfig, Tree};
use fairlane_core::{Dequeue, FlowConfig, Length, Nanos, PacketScheduler, SchedulerLimits, Weight};
use fairlane_testkit::Conformance;
use serde_json::Value;
use start_time::StartTime;

type Test = fn(&Path);

/// The variable that makes a process the program with the algorithm by these names.
const PROGRAM: &str = "FAIRLANE_TEST_PROGRAM";

fn main() -> ExitCode {
    if let Ok(names) = env::var(PROGRAM) {
        // If one of them is invalid, it is the last.
        let names = names.leak().split(',');
        let program = names.fold(Program::new(), Program::algorithm::<StartTime>);
        return program.algorithm::<Plus<StartTime>>("start-time+").main();
    }
    let tests: [(&str, Test); 9] = [
        ("it keeps the contract, and its bound", conforms),
        ("bench measures it", bench),
        ("the arbiter schedules by it", arbiter),
        ("replay serves by it, within its bound", replay),
        ("check tells what it guarantees", check),
        ("sim holds it to that", sim),
        ("a class may be ordered by it", classes),
        ("it is one of the names in help and in errors", is_named),
        ("a name that is taken is refused", refusals),
    ];
    for (name, test) in tests {
        let folder = tempfile::tempdir().unwrap();
        test(folder.path());
        println!("{name}: ok");
    }
    ExitCode::SUCCESS
}

/// Runs the program that has the algorithm by these names.
fn start(names: &str, arguments: &[&str]) -> Output {
    let this = env::current_exe().unwrap();
    let mut command = Command::new(this);
    command.args(arguments).env(PROGRAM, names);
    command.output().unwrap()
}

/// Returns its output, and checks that it succeeds.
fn printed(arguments: &[&str]) -> String {
    let output = start("start-time", arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

fn report(arguments: &[&str]) -> Value {
    serde_json::from_str(&printed(arguments)).unwrap()
}

/// Returns its error message, and checks that it fails.
fn refused(names: &str, arguments: &[&str]) -> String {
    let output = start(names, arguments);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn write(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

fn conforms(_: &Path) {
    let own = Algorithm::custom::<StartTime>("start-time");
    Conformance::of(StartTime::default).guarantees(own).assert();
    // Selected at run time, it gives the same result.
    let Algorithm::Custom(custom) = own else {
        panic!("{own:?} is one of another crate")
    };
    Conformance::of(move || custom.scheduler())
        .guarantees(own)
        .cases(8)
        .assert();
    Conformance::of(Plus::<StartTime>::default)
        .never_held()
        .cases(8)
        .assert();
}

fn bench(_: &Path) {
    let pairs = |alg: &str| {
        let options = "--flowsets 1::8,2-64-4:100:4 -n 20000 --json --alg";
        let arguments: Vec<&str> = ["bench"].into_iter().chain(options.split(' ')).collect();
        report(&[&arguments[..], &[alg]].concat())
    };
    let (own, other) = (pairs("start-time"), pairs("qfq"));
    assert_eq!(own["alg"], "start-time");
    for count in ["enqueues", "dequeues", "drops"] {
        assert_eq!(own[count], other[count], "{count}: the same packets come");
    }
}

fn arbiter(_: &Path) {
    let run = "run --alg start-time --weights 3,1 --rate 20mbit --json --seconds";
    let ran = program::in_time(|seconds| {
        let arguments: Vec<&str> = run.split(' ').chain([seconds]).collect();
        let printed = printed(&arguments);
        let ran: Value = serde_json::from_str(printed.lines().last()?).unwrap();
        Some(ran).filter(|ran| ran["link"]["sent_bps"].as_f64() > Some(0.0))
    });
    assert_eq!(ran["alg"], "start-time");
}

fn replay(folder: &Path) {
    let mut flows = "flow,weight,max_len\n".to_owned();
    for flow in 0..6 {
        flows += &format!("{flow},{},{}\n", flow * flow + 1, 500 + 100 * flow);
    }
    let mut arrivals = "time_ns,flow,len\n".to_owned();
    for n in 0..1200 {
        let flow = n * 7 % 6;
        let len = 1 + n * 7919 % (500 + 100 * flow);
        arrivals += &format!("{},{flow},{len}\n", n * 100);
    }
    let flows = write(folder, "flows.csv", &flows);
    let arrivals = write(folder, "arrivals.csv", &arrivals);
    let rest = ["--rate", "8mbit", "--flows", &flows, &arrivals, "--json"];
    let report = report(&[&["replay", "--alg", "start-time"][..], &rest].concat());
    assert_eq!(report["alg"], "start-time");
    for flow in report["flows"].as_array().unwrap() {
        let value = |name: &str| flow[name].as_f64().unwrap();
        assert!(value("t_wfi_ns") <= value("t_wfi_bound_ns"), "{flow}");
        assert!(value("b_wfi_bytes") <= value("b_wfi_bound_bytes"), "{flow}");
    }
    // Together with other algorithms, and with the cost of a packet.
    let arguments = ["compare", "--alg", "drr,start-time", "-n", "1000"];
    let compared = self::report(&[&arguments[..], &rest].concat());
    let rows = compared["algorithms"].as_array().unwrap();
    let own = rows.iter().find(|row| row["alg"] == "start-time").unwrap();
    assert_eq!(own["jain"], report["jain"]);
    assert!(own["ns_per_packet"].is_f64(), "{own}");
}

/// Returns a link with two classes under an algorithm, and flows below one of them.
fn site(algorithm: &str) -> String {
    format!(
        "[[site.link]]\nname = \"l\"\nrate = \"10mbit\"\nalgorithm = \"{algorithm}\"\n\
         class = [\n  {{ name = \"a\", rate = \"2mbit\" }},\n  \
         {{ name = \"b\", algorithm = \"{algorithm}\", default = true }},\n  \
         {{ name = \"c\", parent = \"b\", weight = 3 }},\n  \
         {{ name = \"d\", parent = \"b\", default = true }},\n]\n"
    )
    .replacen(", default = true", "", 1)
}

fn check(folder: &Path) {
    let text = site("start-time").replace("site.link", "link");
    let path = write(folder, "site.toml", &text);
    let printed = printed(&["check", &path]);
    let row = |class: &str| {
        let row = printed.lines().find(|line| line.contains(class));
        row.unwrap_or_else(|| panic!("{class} is not in {printed}"))
    };
    // Ten packets of 1522 bytes at 10 Mbit/s: five at a fifth of the link, four that its flow sent before, one of the
    // other class. And one in transmission.
    for part in ["2mbit", "13.39ms", "start-time"] {
        assert!(row("│ a ").contains(part), "{part}: {printed}");
    }
    assert!(row(" c ").contains("start-time > start-time"), "{printed}");
    // It has no guarantee over aggregates of flows.
    let over_aggregates = site("start-time+").replace("site.link", "link");
    let path = write(folder, "site.toml", &over_aggregates);
    let told = crate::printed(&["check", &path]);
    assert!(told.contains("start-time+: no bound is known"), "{told}");
}

fn scenario(algorithm: &str) -> String {
    let source = |class: &str, keys: &str| format!("[[source]]\nclass = \"{class}\"\n{keys}\n");
    let lengths = "length = \"64-1514\"";
    [
        "seconds = 3\n".to_owned(),
        site(algorithm),
        source(
            "a",
            &format!("traffic = \"poisson\"\nrate = \"1mbit\"\n{lengths}"),
        ),
        source("c", &format!("traffic = \"backlogged\"\n{lengths}")),
        source(
            "d",
            &format!("count = 3\ntraffic = \"backlogged\"\n{lengths}"),
        ),
    ]
    .concat()
}

fn sim(folder: &Path) {
    let path = write(folder, "scenario.toml", &scenario("start-time"));
    let report = report(&["sim", &path, "--json"]);
    let class = |name: &str| {
        let classes = report["classes"].as_array().unwrap();
        let class = classes.iter().find(|class| class["name"] == name);
        class.unwrap_or_else(|| panic!("{report}"))
    };
    let a = |key: &str| class("a")[key].as_f64().unwrap();
    // The bound applies to packets within rate and burst.
    assert!(a("conforming_packets") > 100.0, "{report}");
    assert!(a("conforming_max_us") <= a("bound_us"), "{report}");
    let sent = |name: &str| class(name)["sent_bps"].as_f64().unwrap();
    // Three quarters of the rest, and one quarter.
    let ratio = sent("c") / sent("d");
    assert!((2.9..3.1).contains(&ratio), "{ratio}: {report}");
}

/// Departures equal those of the monomorphic algorithm, in a tree as in a flat list.
fn classes(_: &Path) {
    let own = Algorithm::custom::<StartTime>("start-time");
    let mut tree = Tree::<u32>::new(own, None, SchedulerLimits::default());
    let mut flat = PacketScheduler::new(StartTime::default(), SchedulerLimits::default());
    let leaves = [1, 4, 9, 16, 25].map(|weight| {
        let (weight, leaf) = (Weight::new(weight).unwrap(), LeafConfig::default());
        let class = ClassConfig::new(weight, Length::MAX);
        let leaf = tree.add_leaf(ClassId::ROOT, class, leaf).unwrap();
        let flow = flat.add_flow(FlowConfig::new(weight, Length::MAX)).unwrap();
        (leaf, flow)
    });
    for n in 0..400u32 {
        let (leaf, flow) = leaves[(n * 7 % 5) as usize];
        let len = Length::new(1 + n * 7919 % 1500).unwrap();
        tree.enqueue(leaf, 0, len, n, Nanos(0)).unwrap();
        flat.enqueue(flow, len, n).unwrap();
        if n % 3 == 0 {
            same(&mut tree, &mut flat);
        }
    }
    while !flat.is_empty() {
        same(&mut tree, &mut flat);
    }
}

fn same(tree: &mut Tree<u32>, flat: &mut PacketScheduler<StartTime, u32>) {
    let Dequeue::Packet(packet) = tree.dequeue(Nanos(0), |_| ()) else {
        panic!("a packet waits")
    };
    assert_eq!(packet.payload, flat.dequeue().unwrap().payload);
}

fn is_named(folder: &Path) {
    let help = printed(&["bench", "--help"]);
    assert!(help.contains("start-time"), "{help}");
    assert!(help.contains(StartTime::ABOUT), "{help}");
    let text = site("start-tim").replace("site.link", "link");
    let path = write(folder, "site.toml", &text);
    let said = refused("start-time", &["check", &path]);
    assert!(said.contains("start-time"), "the nearest name: {said}");
}

fn refusals(_: &Path) {
    for (names, name, why) in [
        (
            "mine,other,mine",
            "mine",
            "one of this name was added before",
        ),
        (
            "start-time+",
            "start-time+",
            "one of this name was added before",
        ),
        ("mine,qfq", "qfq", "a built-in one of this name"),
        ("cbq", "cbq", "a built-in one of this name"),
        ("none", "none", "a built-in one of this name"),
        ("My Own", "My Own", "a name is lower-case letters"),
        ("", "", "a name is lower-case letters"),
    ] {
        let said = refused(names, &["bench", "-n", "10"]);
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(
            said.contains(&format!("'{name}' cannot be added")),
            "{said}"
        );
        assert!(said.contains(why), "{said}");
    }
}
