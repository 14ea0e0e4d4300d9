//! `fairlane-instruments spinlock` and `stalls`: what cores cost one another.

use std::thread;
use std::time::{Duration, Instant};

use crate::program::{fairlane, start};
use fairlane_netlab::skip_unsupported;
use serde_json::Value;

fn json(text: &str) -> Value {
    assert_eq!(text.lines().count(), 1, "more than one line: {text}");
    serde_json::from_str(text).unwrap()
}

/// Status 2, and one sentence that has these words.
#[track_caller]
fn refuses(arguments: &[&str], words: &[&str]) {
    let finished = fairlane(arguments);
    assert_eq!(finished.status.code(), Some(2), "{finished:?}");
    assert_eq!(finished.stdout, "", "{finished:?}");
    let sentence = finished.stderr.strip_suffix('\n').unwrap_or_default();
    assert!(!sentence.contains('\n'), "{finished:?}");
    for word in words {
        assert!(sentence.contains(word), "{word} is not in: {sentence}");
    }
}

#[test]
fn the_users_of_a_lock_are_counted() {
    let some = ["spinlock", "--users", "3", "--seconds", "0.01"];
    for patience in [None, Some("50")] {
        let more = patience.map(|looks| ["--patience", looks]);
        let arguments = [&some[..], more.as_slice().as_flattened()].concat();
        let outcome = json(&fairlane(&arguments).success());
        assert_eq!(
            (&outcome["users"], &outcome["section_ns"]),
            (&3.into(), &100.into())
        );
        let looks = outcome["patience_looks"].as_u64();
        assert_eq!(looks.map(|looks| looks.to_string()).as_deref(), patience);
        assert!(outcome["sections"].as_u64() > Some(0), "{outcome}");
        assert!(
            outcome["sections_per_sec"].as_f64() > Some(0.0),
            "{outcome}"
        );
        assert!(outcome["cores"].as_u64() > Some(0), "{outcome}");
    }
}

#[test]
fn reads_and_writes_between_two_cores_are_counted() {
    let cores = cores();
    let [reader, writer, ..] = &cores[..] else {
        return skip_unsupported("between two cores", "there is one");
    };
    let some = [
        "stalls",
        "--seconds",
        "0.01",
        "--reader-core",
        reader,
        "--writer-core",
        writer,
    ];
    let counts = |more: &[&str]| json(&fairlane(&[&some[..], more].concat()).success());
    let alone = counts(&["--fast", "reader"]);
    assert_eq!(
        (alone["writes"].as_u64(), alone["changes"].as_u64()),
        (Some(0), Some(0))
    );
    assert_eq!(
        (&alone["fast"], &alone["pause_ns"]),
        (&"reader".into(), &Value::Null)
    );
    let both = counts(&["--fast", "writer", "--pause-ns", "100"]);
    assert_eq!(
        (&both["fast"], &both["pause_ns"]),
        (&"writer".into(), &100.into())
    );
    assert!(
        both["changes"].as_u64() <= both["writes"].as_u64(),
        "{both}"
    );
    assert!(
        both["writing_ns"].is_u64() && both["reading_ns"].is_u64(),
        "{both}"
    );
}

#[test]
fn what_is_out_of_range_is_refused() {
    refuses(&["spinlock", "--users", "0"], &["--users", "1..=1000"]);
    refuses(
        &["spinlock", "--users", "2", "--patience", "0"],
        &["--patience"],
    );
    refuses(
        &["spinlock", "--users", "2", "--seconds", "0"],
        &["--seconds", "above 0"],
    );
    refuses(&["stalls", "--fast", "reader"], &["--reader-core"]);
    let fast = [
        "stalls",
        "--fast",
        "both",
        "--reader-core",
        "0",
        "--writer-core",
        "1",
    ];
    refuses(&fast, &["--fast", "reader, writer"]);
    let pair = |reader, writer| {
        [
            "stalls",
            "--fast",
            "reader",
            "--reader-core",
            reader,
            "--writer-core",
            writer,
        ]
    };
    refuses(&pair("4000", "0"), &["--reader-core 4000", "the cores ["]);
    let first = &cores()[0];
    refuses(&pair(first, first), &["--writer-core", "its own"]);
}

/// Returns the cores that this program may run on, which the kernel lists as in `0-1,4`.
fn cores() -> Vec<String> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mut lines = status.lines();
    let list = lines.find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let number = |text: &str| text.parse::<u32>().unwrap();
    let ranges = list.unwrap().trim().split(',').flat_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        number(first)..=number(last)
    });
    ranges.map(|core| core.to_string()).collect()
}

#[test]
fn an_interrupt_leaves_nothing() {
    let mut running = start(&["spinlock", "--users", "2", "--seconds", "1000"]);
    // At any time: it ends, and prints nothing. A signal before its handler is installed may be ignored, as
    // by all background jobs of a shell.
    let begun = Instant::now();
    while !running.has_ended() {
        assert!(begun.elapsed() < Duration::from_secs(120), "it hangs");
        running.signal("INT");
        thread::sleep(Duration::from_millis(20));
    }
    let finished = running.finish();
    assert!(!finished.status.success(), "{finished:?}");
    assert_eq!(finished.stdout, "");
}
