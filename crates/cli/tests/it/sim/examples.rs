//! The repository's scenarios have the results that their comments state.

use super::*;

#[test]
fn at_home_calls_are_in_time_and_the_rest_have_what_they_are_guaranteed() {
    let report = example("home-evening.toml", &[]);
    let voice = class(&report, "voice");
    assert_eq!(voice["sent_packets"], 10_000 / 20 * 2);
    assert_eq!(voice["drops"]["full"], 0);
    assert_eq!(voice["late_packets"], 0);
    assert!(number(&voice["delay_us"]["max"]) <= number(&voice["bound_us"]));
    // A class that offers more than its guaranteed rate gets at least that.
    for name in ["interactive", "bulk"] {
        let class = class(&report, name);
        let guaranteed = number(&class["guaranteed_bps"]);
        assert!(number(&class["offered_bps"]) > guaranteed);
        assert!(number(&class["sent_bps"]) >= guaranteed * 0.999, "{class}");
    }
    let sum: f64 = ["voice", "interactive", "bulk"]
        .iter()
        .map(|name| number(&class(&report, name)["sent_bps"]))
        .sum();
    near(sum, 38e6, 0.001);
    // Three hosts with screens and one with photographs; four connections of one host.
    assert_eq!(class(&report, "interactive")["flows"], 4);
    assert_eq!(class(&report, "bulk")["flows"], 1);
    assert_eq!(report["unmatched_sources"], 4);
    // All of both calls.
    assert!(within_bounds(&report) >= 1_000);
}

#[test]
fn an_agency_has_its_part_whichever_of_its_classes_is_silent() {
    let until = |seconds: u32| example("agencies.toml", &["--seconds", &seconds.to_string()]);
    let reports = [6, 12, 18, 24].map(until);
    let bits = |number: usize, name: &str| {
        let sent = |report: &Value| super::number(&class(report, name)["sent_bytes"]) * 8.0;
        let before = number.checked_sub(1).map_or(0.0, |at| sent(&reports[at]));
        sent(&reports[number]) - before
    };
    for phase in 0..4 {
        near(bits(phase, "X"), 36e6, 0.002);
        near(bits(phase, "Y"), 24e6, 0.002);
    }
    near(bits(0, "X-bulk"), 24e6, 0.01);
    near(bits(0, "Y-interactive"), 6e6, 0.01);
    // The backlog still leaves after a source falls silent: up to 32 packets.
    near(bits(1, "X-interactive"), 36e6, 0.02);
    near(bits(2, "X-bulk"), 36e6, 0.02);
    near(bits(3, "Y-bulk"), 24e6, 0.02);
}

#[test]
fn in_the_busy_hour_three_sites_are_at_their_ceiling_and_the_others_notice_nothing() {
    let report = example("isp-busy-hour.toml", &[]);
    for site in 1..=50 {
        let class = class(&report, &format!("site-{site:02}"));
        if site <= 3 {
            near(number(&class["sent_bps"]), 500e6, 0.001);
            assert_eq!(class["flows"], 200);
            assert!(number(&class["offered_bps"]) > 500e6);
        } else {
            assert_eq!(class["late_packets"], 0, "{class}");
            assert!(number(&class["sent_packets"]) > 1_000.0);
        }
    }
    assert!(within_bounds(&report) > 500);
}

#[test]
fn in_a_flood_calls_lose_nothing_and_are_in_time() {
    let report = example("flood.toml", &[]);
    let voice = class(&report, "voice");
    assert_eq!(voice["sent_packets"], 5_000 / 20 * 2);
    assert_eq!(
        (&voice["drops"]["full"], &voice["drops"]["managed"]),
        (&0.into(), &0.into())
    );
    assert!(number(&voice["delay_us"]["max"]) <= number(&voice["bound_us"]));
    // The other classes lose most of their offered load.
    for name in ["interactive", "bulk"] {
        let class = class(&report, name);
        assert!(number(&class["offered_bps"]) > 5.0 * number(&class["sent_bps"]));
        assert!(number(&class["sent_bps"]) >= 0.999 * number(&class["guaranteed_bps"]));
    }
}
