//! `fairlane-lab reproduce`: what it lists, does, writes and refuses.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::program::{fairlane, start};
use serde_json::Value;

const FILES: [&str; 4] = ["plot.png", "plot.svg", "result.json", "result.md"];

/// Does `name` quickly, into `out`; what it printed.
fn quickly(name: &str, out: &Path, more: &[&str]) -> String {
    let out = out.to_str().unwrap();
    let arguments = ["reproduce", name, "--seconds", "0.002", "--out", out];
    fairlane(&[&arguments, more].concat()).success()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn without_a_name_it_lists_name_claim_paper_and_time() {
    let listed = fairlane(&["reproduce"]).success();
    for text in ["pspat-table1", "pspat-table2", "Table 2", " s "] {
        assert!(listed.contains(text), "{text} is not in:\n{listed}");
    }
    let object = json(&fairlane(&["reproduce", "--json"]).success());
    let experiments = object["experiments"].as_array().unwrap();
    for experiment in experiments {
        let name = experiment["name"].as_str().unwrap();
        assert!(listed.contains(name), "{name}");
        assert!(experiment["takes_seconds"].as_f64().unwrap() > 0.0);
        // What a checkout needs to do it again.
        for file in ["scenario.toml", "paper.toml"] {
            let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
            assert!(root.join(name).join(file).is_file(), "{name}/{file}");
        }
    }
}

#[test]
fn help_explains_every_option_and_what_is_written() {
    let help = fairlane(&["reproduce", "--help"]).success();
    for text in [
        "NAME|all",
        "--out",
        "--seconds",
        "--json",
        "result.json",
        "plot.png",
    ] {
        assert!(help.contains(text), "{text} is not in:\n{help}");
    }
    assert!(fairlane(&["--help"]).success().contains("reproduce"));
}

#[test]
fn an_unknown_experiment_is_named_with_the_nearest_there_is() {
    for (name, nearest) in [
        ("pspat-tabel2", "'pspat-table2'"),
        ("table1", "'pspat-table1'"),
    ] {
        let finished = fairlane(&["reproduce", name]);
        assert_eq!(finished.status.code(), Some(2));
        assert_eq!(finished.stdout, "");
        let sentence = finished.stderr.strip_suffix('\n').unwrap();
        assert!(
            !sentence.contains('\n') && sentence.contains(nearest),
            "{sentence}"
        );
        assert!(sentence.contains(&format!("'{name}'")), "{sentence}");
    }
}

#[test]
fn bad_options_are_refused_before_anything_is_measured() {
    for (arguments, names) in [
        (["--seconds", "0"], "'0'"),
        (["--seconds", "1e9"], "'1e9'"),
        (["--out", "/dev/null/below"], "/dev/null/below"),
    ] {
        let finished = fairlane(&[&["reproduce", "pspat-table1"], &arguments[..]].concat());
        assert_eq!(finished.status.code(), Some(2), "{finished:?}");
        let sentence = finished.stderr.strip_suffix('\n').unwrap();
        assert!(
            !sentence.contains('\n') && sentence.contains(names),
            "{sentence}"
        );
        assert!(finished.took < Duration::from_secs(3), "{finished:?}");
    }
}

#[test]
fn it_writes_figures_a_page_and_plots_with_ours_beside_the_papers() {
    let temporary = tempfile::tempdir().unwrap();
    let out = temporary.path().join("results/lock");
    let printed = quickly("pspat-table1", &out, &[]);
    assert_eq!(names(&out), FILES);

    let result = json(&fs::read_to_string(out.join("result.json")).unwrap());
    assert_eq!(result["name"], "pspat-table1");
    assert_eq!(result["seconds"], 0.002);
    assert_eq!(result["parameters"]["section_ns"], 100);
    assert!(result["seed"].is_u64() && result["machine"]["cores"].as_u64().unwrap() > 1);
    assert_eq!(result["figures"]["paper"]["total_mops"][6], 0.55);
    let ours = result["figures"]["ours"].as_array().unwrap();
    let users: Vec<u64> = ours
        .iter()
        .map(|point| point["users"].as_u64().unwrap())
        .collect();
    assert_eq!(users, [1, 2, 3, 4, 8, 20, 40]);
    for point in ours {
        assert!(point["total_mops"].as_f64().unwrap() > 0.0, "{point}");
    }

    let page = fs::read_to_string(out.join("result.md")).unwrap();
    let verdict = if result["verdict"]["holds"].as_bool().unwrap() {
        "It holds here"
    } else {
        "It does not hold here"
    };
    for text in [
        verdict,
        "| 40 | 0.550 |",
        "plot.svg",
        result["claim"].as_str().unwrap(),
    ] {
        assert!(page.contains(text), "{text} is not in:\n{page}");
    }
    for text in [verdict, "paper Mops/s", out.to_str().unwrap()] {
        assert!(printed.contains(text), "{text} is not in:\n{printed}");
    }

    let svg = fs::read_to_string(out.join("plot.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("users of the lock"));
    let png = fs::read(out.join("plot.png")).unwrap();
    assert!(png.starts_with(b"\x89PNG\r\n"));
}

#[test]
fn json_is_the_same_object_as_in_the_file_and_nothing_else() {
    let temporary = tempfile::tempdir().unwrap();
    let printed = quickly("pspat-table2", temporary.path(), &["--json"]);
    let written = fs::read_to_string(temporary.path().join("result.json")).unwrap();
    assert_eq!(json(&printed), json(&written));
    assert_eq!(printed.lines().count(), 1);
    let pairs = json(&printed)["figures"]["ours"].clone();
    assert!(pairs[0]["read"]["slow_ns"].is_number(), "{pairs}");
}

#[test]
fn an_interrupt_ends_it_soon_and_leaves_no_trace() {
    let temporary = tempfile::tempdir().unwrap();
    let out = temporary.path().join("new");
    let arguments = ["reproduce", "pspat-table1", "--seconds", "30", "--out"];
    let mut running = start(&[&arguments[..], &[out.to_str().unwrap()]].concat());
    while !out.exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    // It minds signals before it makes the folder.
    running.signal("INT");
    let finished = running.finish();
    assert_eq!(finished.status.code(), Some(130), "{finished:?}");
    assert_eq!(finished.stdout, "");
    assert!(finished.stderr.contains("interrupted"), "{finished:?}");
    assert!(finished.took < Duration::from_secs(10), "{finished:?}");
    assert!(!out.exists());
}
