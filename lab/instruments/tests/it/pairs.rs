//! `fairlane-instruments pairs`: the work of `fairlane bench`, with packets in memory.

use crate::program::fairlane;
use serde::Deserialize;

/// The documented output.
#[derive(Debug, Deserialize)]
struct Report {
    alg: String,
    flows: u64,
    flowsets: String,
    qmax: u64,
    aggregate: u32,
    warm_up: u64,
    loops: u64,
    enqueues: u64,
    dequeues: u64,
    ns_per_pair: f64,
}

fn pairs(alg: &str, options: &str) -> Report {
    let mut arguments = vec!["pairs", "--alg", alg];
    arguments.extend(options.split_whitespace());
    serde_json::from_str(&fairlane(&arguments).success()).unwrap()
}

#[test]
fn flows_swing_between_nothing_and_thirty_packets() {
    for arrivals in ["smooth", "bursty"] {
        let options = format!("--flowsets 1:60:40,4:1700:8 --arrivals {arrivals} --aggregate 3");
        // 48 flows: 1440 packets arrive, and leave.
        let report = pairs("qfq+", &format!("{options} -n 3000"));
        assert_eq!(
            (&*report.alg, report.flows, report.qmax),
            ("qfq+", 48, 1_440)
        );
        assert_eq!(
            (&*report.flowsets, report.aggregate),
            ("1:60:40,4:1700:8", 3)
        );
        assert_eq!(
            (report.enqueues, report.dequeues),
            (1_560, 1_440),
            "{arrivals}"
        );
        assert!(report.ns_per_pair > 0.0);
        assert_eq!(pairs("none", &format!("{options} -n 3000")).dequeues, 1_440);
        let warm = pairs("drr", &format!("{options} -n 1440 --warm-up 2880"));
        assert_eq!((warm.warm_up, warm.loops), (2_880, 1_440));
        assert_eq!((warm.enqueues, warm.dequeues), (1_440, 0), "{arrivals}");
    }
}

#[test]
fn a_flow_set_that_does_not_parse_is_refused() {
    let refused = fairlane(&["pairs", "--alg", "qfq", "--flowsets", "1:2", "-n", "10"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(
        refused.stderr.contains("WEIGHT:LENGTH:FLOWS"),
        "{refused:?}"
    );
}
