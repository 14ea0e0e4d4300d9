//! The commands in `docs/corrections.md` print the output shown there.

use super::*;

/// Runs the command after `$ fairlane` in the source folder. Returns its output where the page shows it.
fn run(command: &str) -> String {
    let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let (command, report_only) = match command.strip_suffix(" > /dev/null") {
        Some(command) => (command, true),
        None => (command, false),
    };
    let words: Vec<String> = command
        .split_whitespace()
        .map(|word| match word.starts_with("docs/") {
            true => format!("{sources}/{word}"),
            false => word.to_owned(),
        })
        .collect();
    let finished = fairlane(&words.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(finished.status.success(), "{command}: {finished:?}");
    match report_only {
        true => finished.stderr,
        false => finished.stdout,
    }
}

#[test]
fn each_counterexample_is_replayed_as_the_page_of_corrections_shows_it() {
    let page = include_str!("../../../../../docs/corrections.md");
    let blocks = page.split("```console\n$ fairlane ").skip(1);
    let mut replayed = 0;
    for block in blocks {
        let (block, _) = block.split_once("```").unwrap();
        let (command, shown) = block.split_once('\n').unwrap();
        assert_eq!(run(command), shown, "{command}");
        replayed += 1;
    }
    let folders = fs::read_dir(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/corrections"
    ));
    assert_eq!(replayed, folders.unwrap().count(), "one for each folder");
}

/// The page's description of the four schedules, by the names of their folders.
#[test]
fn what_is_measured_is_more_than_the_papers_allow_and_no_more_than_the_corrected_forms() {
    for (name, index, allowed) in [
        (
            "theorem-1",
            "b_wfi_bytes",
            3.0 * 1024.0 + 2.0 * 65_000.0 / 1024.0,
        ),
        (
            "theorem-2",
            "t_wfi_ns",
            f64::from(3 * (1 << 20) + 2 * 65_000),
        ),
        (
            "six-packets",
            "t_wfi_ns",
            f64::from(6 * 513 * 1024 + 65_000 - 513 + 65_000),
        ),
    ] {
        let folder = format!("docs/corrections/{name}");
        let report = run(&format!(
            "replay --alg qfq --rate 8gbit --flows {folder}/flows.csv {folder}/arrivals.csv --json"
        ));
        let report: serde_json::Value = serde_json::from_str(&report).unwrap();
        let flow = &report["flows"][0];
        let value = |key: &str| flow[key].as_f64().unwrap();
        let bound = match index {
            "b_wfi_bytes" => value("b_wfi_bound_bytes"),
            _ => value("t_wfi_bound_ns"),
        };
        assert!(value(index) > allowed, "{name}: {flow}");
        assert!(
            (0.9..1.0).contains(&(value(index) / bound)),
            "{name}: {flow}"
        );
    }
}
