//! `fairlane-instruments bench path`: its output, and the relations between its figures. It measures few packets, and
//! other tests take the cores: no figure here is a measurement.

use crate::program::{example, fairlane, file};
use serde_json::Value;

#[track_caller]
fn measured(arguments: &[&str]) -> Value {
    let path = ["bench", "path", "-n", "1", "--json"];
    let output = fairlane(&[&path[..], arguments].concat()).success();
    serde_json::from_str(&output).expect("one JSON object")
}

fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("{value} is no number"))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

/// Checks the values that are the same for any site.
#[track_caller]
fn is_whole(length: &Value, two_cores: bool, counted: bool) {
    let names = [
        "rx",
        "classify",
        "mailbox_push",
        "mailbox_pop",
        "arbiter",
        "return_push",
        "return_pop",
        "tx",
    ];
    let (stages, together) = (&length["stages"], &length["stages"]["together"]);
    let alone = names.iter().map(|name| &stages[name]);
    let on_one_core = ["rx", "classify", "arbiter", "tx"].map(|name| &together[name]);
    for figure in alone.chain(on_one_core) {
        let ns = ["p10_ns", "ns", "p90_ns"].map(|part| number(&figure[part]));
        assert!(ns[0] > 0.0 && ns.is_sorted(), "{figure}");
        assert_eq!(figure["rounds"], 1);
    }
    for name in names {
        let instructions = &stages[name]["instructions"];
        assert_eq!(instructions.is_null(), !counted, "{name}: {instructions}");
        assert!(
            !counted || number(instructions) > 1.0,
            "{name}: {instructions}"
        );
    }
    assert_eq!(stages.as_object().unwrap().len(), names.len() + 1);
    let sum: f64 = on_one_core.iter().map(|figure| number(&figure["ns"])).sum();
    let predictions = list(&length["predictions"]);
    let cores = predictions.iter().map(|one| one["cores"].as_u64().unwrap());
    assert!(cores.eq([1, 2, 4, 8, 16, 32, 64]));
    let one = number(&predictions[0]["packets_per_sec"]);
    assert!((one * sum / 1e9 - 1.0).abs() < 1e-9, "{length}");
    for one in &predictions[1..] {
        let workers = ["rx_workers", "tx_workers"].map(|kind| one[kind].as_u64().unwrap());
        assert_eq!(Some(workers[0] + workers[1] + 1), one["cores"].as_u64());
    }
    let checks = list(&length["checks"]);
    assert_eq!(checks.len(), 1 + usize::from(two_cores));
    for (check, prediction) in checks.iter().zip(predictions) {
        assert_eq!(check["cores"], prediction["cores"]);
        let predicted = &check["predicted_packets_per_sec"];
        assert_eq!(predicted, &prediction["packets_per_sec"]);
        let ratio = number(&check["measured_packets_per_sec"]) / number(predicted);
        assert!((ratio / number(&check["ratio"]) - 1.0).abs() < 1e-9);
    }
}

#[test]
fn every_stage_is_measured_and_every_number_of_cores_predicted() {
    for (site, link, algorithm, reached) in [
        ("home-gateway.toml", "up", "wf2q+", 2),
        ("tenants.toml", "out", "drr", 3),
    ] {
        let figures = measured(&["--config", &example(site), "--link", link]);
        assert_eq!(
            (&figures["link"], &figures["algorithm"]),
            (&link.into(), &algorithm.into())
        );
        let two_cores = figures["two_cores"].as_bool().unwrap();
        let counted = figures["no_instructions"].is_null();
        let lengths = list(&figures["lengths"]);
        assert!(
            lengths
                .iter()
                .map(|length| &length["bytes"])
                .eq(&[64, 374, 1500])
        );
        for length in lengths {
            is_whole(length, two_cores, counted);
            assert_eq!(length["classes_reached"], reached, "{site}: {length}");
            assert!(length["waiting"].as_u64().unwrap() > 0, "{length}");
        }
    }
}

#[test]
fn what_the_link_does_not_carry_is_left_out() {
    let site = |longest: &str| {
        file(&format!(
            "[[link]]\nname = 'up'\nto = 'outside'\nrate = '1gbit'\nlongest = '{longest}'\nalgorithm = 'cbq'\n\
             class = [{{ name = 'all', rate = '900mbit', default = true }}]\n"
        ))
    };
    let (_folder, path) = site("374b");
    let figures = measured(&["--config", &path]);
    let lengths = list(&figures["lengths"]);
    assert!(lengths.iter().map(|length| &length["bytes"]).eq(&[64, 374]));
    let (_folder, path) = site("63b");
    let refused = fairlane(&["bench", "path", "--config", &path]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(refused.stderr.contains("up to 63 bytes"), "{refused:?}");
}

#[test]
fn tables_say_the_same_without_json() {
    let site = example("home-gateway.toml");
    let arguments = [
        "bench", "path", "-n", "1", "--config", &site, "--link", "down",
    ];
    let output = fairlane(&arguments).success();
    for part in [
        "Link down: ",
        "64 bytes",
        "1500 bytes",
        "parse+classify",
        "bottleneck",
        "as measured",
        "Instructions ",
    ] {
        assert!(output.contains(part), "{part} is not in:\n{output}");
    }
}

#[test]
fn impossible_options_are_refused() {
    let site = example("home-gateway.toml");
    for (arguments, names) in [
        (&["-n", "0"][..], "-n"),
        (&["-n", "5", "--seconds", "1"], "--seconds"),
        (&["--seconds", "0"], "--seconds"),
        (&["--link", "up"], "--config"),
        (&["--config", "/nowhere/site.toml"], "/nowhere/site.toml"),
        (&["--config", &site], "up, down"),
        (&["--config", &site, "--link", "upp"], "did you mean 'up'"),
    ] {
        let refused = fairlane(&[&["bench", "path"], arguments].concat());
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        assert!(refused.stdout.is_empty(), "{refused:?}");
        let said = refused.stderr;
        assert_eq!(said.trim_end().lines().count(), 1, "{said}");
        assert!(said.contains(names), "{arguments:?}: {said}");
    }
}
