//! `fairlane bench`: the same command does the same work, and reports its amount.

use std::collections::BTreeSet;

use crate::program::fairlane;
use serde::Deserialize;

/// The fields that `--json` documents.
#[derive(Debug, Deserialize)]
struct Report {
    alg: String,
    flows: u64,
    flowsets: String,
    qmin: u64,
    qmax: u64,
    loops: u64,
    enqueues: u64,
    dequeues: u64,
    drops: u64,
    ns_per_pair: f64,
}

impl Report {
    fn counts(&self) -> [u64; 3] {
        [self.enqueues, self.dequeues, self.drops]
    }
}

const ALGORITHMS: [&str; 17] = [
    "none", "fifo", "drr", "wfq", "wf2q", "wf2q+", "qfq", "qfq+", "s-kps", "gfq", "priority",
    "sfq", "scfq", "wf2q++", "s-kps+", "gfq+", "drr+",
];

fn bench(alg: &str, options: &str) -> Report {
    let mut arguments = vec!["bench", "--json", "--alg", alg];
    arguments.extend(options.split_whitespace());
    let output = fairlane(&arguments).success();
    let object = output.strip_suffix('\n').unwrap();
    assert!(!object.contains('\n'), "more than one line: {output}");
    serde_json::from_str(object).unwrap_or_else(|error| panic!("{error}: {object}"))
}

#[track_caller]
fn adds_up(report: &Report) {
    let [enqueues, dequeues, drops] = report.counts();
    assert!(enqueues + dequeues <= report.loops, "{report:?}");
    let queued = enqueues - drops - dequeues;
    assert!(queued <= report.qmax, "{report:?}");
    assert!(report.ns_per_pair > 0.0, "{report:?}");
}

#[test]
fn the_counts_add_up_for_every_algorithm_and_pattern() {
    for alg in ALGORITHMS {
        for backlogs in ["--qmin 0 --qmax 5n", "--qmin 0 --qmax 30n", "--qmin 3n"] {
            for arrivals in ["smooth", "bursty"] {
                let report = bench(
                    alg,
                    &format!("--flowsets 1::64,8::8 -n 10001 --arrivals {arrivals} {backlogs}"),
                );
                assert_eq!((&*report.alg, report.flows), (alg, 72));
                assert_eq!((report.loops, report.drops), (10_001, 0));
                adds_up(&report);
            }
        }
    }
}

#[test]
fn a_backlog_swings_between_its_bounds() {
    // 8 flows: fills to 240, drains to 24, fills again.
    let report = bench("qfq", "--flowsets 1::8 -n 456");
    assert_eq!((report.qmin, report.qmax), (24, 240));
    assert_eq!(report.counts(), [240, 216, 0]);
    let report = bench("qfq", "--flowsets 1::8 -n 457");
    assert_eq!(report.counts(), [241, 216, 0]);
}

#[test]
fn the_same_command_does_the_same_work() {
    for alg in ALGORITHMS {
        for options in [
            "--flowsets 1::100,5::20 -n 20000",
            "--flowsets 1::100,5::20 -n 20000 --arrivals bursty",
            "--flowsets 1::100,5::20 -n 20000 --arrivals bursty --seed 18446744073709551615",
        ] {
            let counts = bench(alg, options).counts();
            assert_eq!(counts, bench(alg, options).counts(), "{alg} {options}");
        }
    }
}

#[test]
fn all_algorithms_are_given_the_same_work() {
    for arrivals in ["smooth", "bursty"] {
        let options = format!("--flowsets 1-4:64-1500:32 -n 20000 --arrivals {arrivals}");
        let [none, others @ ..] = ALGORITHMS.map(|alg| bench(alg, &options));
        for other in others {
            assert_eq!(none.counts(), other.counts(), "{}", other.alg);
        }
    }
}

#[test]
fn flow_sets_take_ranges_suffixes_and_an_empty_length() {
    for (sets, flows) in [
        ("1::1", 1),
        ("1::512,8::64", 512 + 64),
        ("1:1500:2k", 2 << 10),
        ("1-16-4:64-1500-3:1k", 4 * 3 * (1 << 10)),
        ("1-2:1000:3", 2 * 3),
        ("1k::1,1000000:65535:1", 2),
    ] {
        let report = bench("qfq", &format!("--flowsets {sets} -n 3000"));
        assert_eq!((&*report.flowsets, report.flows), (sets, flows));
        adds_up(&report);
    }
}

#[test]
fn backlogs_are_absolute_or_per_flow() {
    let report = bench("drr", "--flowsets 1::64 --qmin 2n --qmax 1k -n 5000");
    assert_eq!((report.qmin, report.qmax), (128, 1024));
    adds_up(&report);
}

#[test]
fn a_backlog_beyond_what_the_flows_may_hold_costs_no_memory() {
    // Each flow has at most 30 packets.
    let report = bench("qfq", "--flowsets 1::2 --qmin 0 --qmax 4294967294 -n 1000");
    assert!(report.enqueues - report.dequeues <= 60, "{report:?}");
}

#[test]
fn one_sentence_says_the_outcome_without_json() {
    let output = fairlane(&["bench", "--alg", "qfq", "--flowsets", "1::64", "-n", "5000"]);
    let sentence = output.success();
    assert_eq!(sentence.lines().count(), 1, "{sentence}");
    for part in ["qfq: ", " ns a pair", "64 flows (1::64)", "drops"] {
        assert!(sentence.contains(part), "{part} is not in: {sentence}");
    }
}

/// The flow sets of the QFQ report's Table 4, with their numbers of flows.
const TABLE: [(&str, u64); 7] = [
    ("1::1", 1),
    ("1::8", 8),
    ("1::64", 64),
    ("1::512", 512),
    ("1::4k", 4096),
    ("1::32k", 32768),
    ("1::32k,2::4k,4::2k,8::1k,128::16,1k::1", 39953),
];

#[test]
fn without_an_algorithm_a_table_compares_all_on_all_flow_sets() {
    let table = fairlane(&["bench", "-n", "500"]).success();
    assert!(!table.contains('\u{1b}'), "{table:?}");
    let cells = |line: &str| -> Vec<String> {
        let cells = line.split_whitespace().map(str::to_owned);
        cells
            .filter(|cell| cell.chars().any(char::is_alphanumeric))
            .collect()
    };
    for (sets, flows) in TABLE {
        let name = format!("{flows} ({sets})");
        assert!(table.contains(&name), "{name} is missing:\n{table}");
    }
    for alg in ALGORITHMS {
        let row = table
            .lines()
            .map(cells)
            .find(|row| row.first().is_some_and(|name| name == alg));
        let row = row.unwrap_or_else(|| panic!("{alg} is missing:\n{table}"));
        let times = row[1..].iter().filter(|cell| cell.parse::<f64>().is_ok());
        assert_eq!(times.count(), TABLE.len(), "{row:?}");
    }
}

#[test]
fn the_table_with_json_is_one_object_a_line() {
    let output = fairlane(&["bench", "-n", "500", "--json"]).success();
    let reports: Vec<Report> = output
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    reports.iter().for_each(adds_up);
    let cells: BTreeSet<(&str, u64, &str)> = reports
        .iter()
        .map(|report| (&*report.flowsets, report.flows, &*report.alg))
        .collect();
    let all = TABLE
        .iter()
        .flat_map(|&(sets, flows)| ALGORITHMS.map(|alg| (sets, flows, alg)))
        .collect();
    assert_eq!(cells, all);
    assert_eq!(reports.len(), cells.len(), "each once");
}

#[test]
fn the_table_takes_flow_sets_too() {
    let table = fairlane(&["bench", "-n", "500", "--flowsets", "3::5"]).success();
    assert!(table.contains("5 (3::5)"), "{table}");
    assert!(!table.contains("1::1"), "{table}");
}

#[test]
fn a_quantum_is_of_drr_alone() {
    let options = "--flowsets 1::64 -n 1000 --quantum";
    let given = |alg: &str, quantum: &str| {
        let mut arguments = vec!["bench", "--json", "--alg", alg];
        arguments.extend(options.split_whitespace().chain([quantum]));
        fairlane(&arguments)
    };
    assert!(given("drr", "128").success().contains("\"quantum\":128"));
    for (alg, quantum, problem) in [
        ("qfq", "128", "--quantum: only drr has a quantum"),
        ("none", "128", "--quantum: only drr has a quantum"),
        ("drr", "63", "a number of bytes from 64 to 65535"),
    ] {
        let refused = given(alg, quantum);
        assert!(!refused.status.success());
        assert!(refused.stderr.contains(problem), "{}", refused.stderr);
    }
}
