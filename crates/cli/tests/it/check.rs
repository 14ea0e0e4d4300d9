//! `fairlane check`: a table of guarantees, or errors with their places.

use crate::program::{example, fairlane, file};

#[test]
fn the_table_has_every_class_with_its_rate_and_delay() {
    let printed = fairlane(&["check", &example("tenants.toml")]).success();
    assert!(
        printed.starts_with("out leaves by outside at 10gbit: drr"),
        "{printed}"
    );
    let row = |name: &str| {
        let row = printed.lines().find(|line| line.contains(name));
        row.unwrap_or_else(|| panic!("{name} is not in\n{printed}"))
    };
    for (class, has) in [
        ("blue ", &["7.267gbit", "drr"][..]),
        ("  blue-database", &["2gbit", "drr > wf2q+"]),
        ("green", &["1gbit", "2gbit", "drr > qfq"]),
        ("each of 256 per owner", &["7.782mbit", "1446b", "5.722ms"]),
        ("host (default)", &["1.733gbit"]),
    ] {
        for part in has {
            assert!(row(class).contains(part), "{part} is not in {}", row(class));
        }
    }
}

#[test]
fn readme_shows_what_is_printed_of_the_site_that_it_shows() {
    let readme = include_str!("../../../../README.md");
    let block = |kind: &str, begins: &str| {
        let fence = format!("```{kind}\n");
        let mut blocks = readme.split(&fence).skip(1);
        let block = blocks.find(|block| block.starts_with(begins)).unwrap();
        block.split("```").next().unwrap().to_owned()
    };
    // An interface lan0 or wan0 of this machine might have another MTU. No interface has these names: the kernel
    // replaces %d by a number.
    let site = block("toml", "# site.toml");
    let site = site.replace("lan0", "lan%d").replace("wan0", "wan%d");
    let (_folder, path) = file(&site);
    let printed = fairlane(&["check", &path]).success();
    assert_eq!(printed.trim_end(), block("text", "up leaves").trim_end());
}

#[test]
fn the_reason_stands_where_there_is_no_guarantee() {
    let (_folder, path) = file(
        "[[link]]\nname = 'up'\nrate = '1mbit'\nalgorithm = 'priority'\n\
         class = [{ name = 'high', priority = 1 }, { name = 'low' , default = true}]\n",
    );
    let printed = fairlane(&["check", &path]).success();
    let low = printed.lines().find(|line| line.contains("low")).unwrap();
    assert!(
        low.contains("none") && low.contains("may take everything"),
        "{printed}"
    );
    let high = printed.lines().find(|line| line.contains("high")).unwrap();
    assert!(
        high.contains("1mbit") && high.contains("24.35ms"),
        "{printed}"
    );
}

#[test]
fn json_has_the_same_in_bits_and_nanoseconds() {
    let printed = fairlane(&["check", "--json", &example("isp.toml")]).success();
    let report: serde_json::Value = serde_json::from_str(&printed).unwrap();
    let classes = report["links"][0]["classes"].as_array().unwrap();
    assert_eq!(classes.len(), 52);
    let last = classes.last().unwrap();
    assert_eq!(last["name"], "link-control");
    assert_eq!(last["rate_bps"], 1_000_000);
    for class in classes {
        assert!(
            class["guaranteed_bps"].as_u64() >= class["rate_bps"].as_u64(),
            "{class}"
        );
        assert!(class["bound_us"].as_f64() > Some(0.0), "{class}");
    }
}

/// Adds the transmit queue and the rounds of the pipeline, if there is one, to a delay.
fn added_to(delay: u64, pipeline: &serde_json::Value) -> Option<u64> {
    let queued = pipeline["transmit_time_ns"].as_u64()?;
    let rounds = 2 + pipeline["arrival_rounds"].as_u64().unwrap_or(0);
    Some(delay + queued + rounds * 1_000_000)
}

#[test]
fn check_reports_pipeline_delay_apart_from_delay_bounds() {
    let site = |interfaces: &str| {
        format!(
            "{interfaces}[[link]]\nname = 'up'\nto = 'outside'\nrate = '1gbit'\n\
             link-control = 'none'\nclass = [{{ name = 'all', default = true }}]\n"
        )
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let most = (cores - 1).clamp(1, 16);
    // No interface has these names.
    let between = "[interfaces]\ninside = 'lan%d'\noutside = 'wan%d'\n";
    let alone = "[interfaces]\noutside = 'wan%d'\ntap = 'fair0'\n[workers]\nreceive = 3\n";
    let xdp = format!("{between}backend = 'xdp'\n");
    // A millisecond, and 64 packets of 1,522 bytes.
    let queued = "222408 217kb 1.779ms";
    let mut classes = Vec::new();
    for (interfaces, (workers, held, rounds), queue) in [
        ("", (0, 0, None), ""),
        (between, (0, 0, None), queued),
        (&xdp, (0, 0, None), queued),
        // The host's packets do not arrive at an interface.
        (alone, (0, 0, None), queued),
        (
            &format!("{between}[workers]\nreceive = 1\n"),
            (1, 1_092, Some(3)),
            queued,
        ),
        (
            &format!("{between}[workers]\nreceive = 2\n"),
            (2, 2_184, Some(4)),
            queued,
        ),
        (
            &format!("{xdp}[workers]\nreceive = 2\n"),
            (2, 2_184, Some(4)),
            queued,
        ),
        // By default as many as this machine has cores besides that of the forwarding thread, for interfaces that do
        // not exist here.
        (
            &format!("{between}[workers]\n"),
            (most, most * 1_092, Some(1 + (most * 18).div_ceil(16))),
            queued,
        ),
    ] {
        let (_folder, path) = file(&site(interfaces));
        let json = fairlane(&["check", "--json", &path]).success();
        let report: serde_json::Value = serde_json::from_str(&json).unwrap();
        let link = &report["links"][0];
        let mut own = link["classes"].clone();
        let class = own[0].as_object_mut().unwrap();
        let total = class.remove("port_to_port_ns").unwrap();
        let delay = (class["bound_us"].as_f64().unwrap() * 1e3).round() as u64;
        assert_eq!(total.as_u64(), added_to(delay, &link["pipeline"]));
        classes.push(own);
        let text = fairlane(&["check", &path]).success();
        let pipeline = &link["pipeline"];
        let [bytes, size, time] = queue.split(' ').collect::<Vec<_>>()[..] else {
            assert!(pipeline.is_null() && !text.contains("pipeline"), "{text}");
            continue;
        };
        assert_eq!(pipeline["receive_workers"], workers, "{interfaces}");
        assert_eq!(pipeline["held_frames"], held);
        assert_eq!(
            pipeline["arrival_rounds"].as_u64(),
            rounds.map(|rounds| rounds as u64)
        );
        assert_eq!(pipeline["transmit_bytes"].to_string(), bytes);
        assert_eq!(
            pipeline["transmit_time_ns"],
            bytes.parse::<u64>().unwrap() * 8
        );
        let plural = if workers == 1 { " holds" } else { "s hold" };
        let received = rounds.map_or(String::new(), |rounds| {
            format!("{workers} receive worker{plural} up to {held} frames, each enqueued within {rounds} rounds;\n  ")
        });
        let line = format!(
            "  pipeline, on top of each delay: {received}transmit queue up to {size}, {time} at this rate, less \
             where the interface is faster; rounds of up to 1ms, {}ms in all\n",
            2 + rounds.unwrap_or(0)
        );
        assert!(text.contains(&line), "{line} is not in\n{text}");
    }
    let same = classes.iter().all(|other| *other == classes[0]);
    assert!(same, "none is in the delays");
}

/// Returns the pipeline in `check`'s output for a site whose `[workers]` have this key too: as JSON, and the whole
/// text.
fn told_of(key: &str) -> (serde_json::Value, String) {
    let (_folder, path) = file(&format!(
        "[interfaces]\ninside = 'lan%d'\noutside = 'wan%d'\n[workers]\nreceive = 1\n{key}\n\
         [[link]]\nname = 'up'\nrate = '1gbit'\n"
    ));
    let json = fairlane(&["check", "--json", &path]).success();
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    (
        report["links"][0]["pipeline"].clone(),
        fairlane(&["check", &path]).success(),
    )
}

#[test]
fn check_reports_one_arbiter_per_link() {
    for (arbiters, is_told) in [(1, false), (2, true)] {
        let (pipeline, text) = told_of(&format!("arbiters = {arbiters}"));
        assert_eq!(pipeline["arbiters"], arbiters);
        let line =
            "rounds;\n  each link has an arbiter on a thread of its own;\n  transmit queue up to";
        assert_eq!(text.contains(line), is_told, "{text}");
    }
}

#[test]
fn check_reports_transmit_workers_and_an_unchanged_transmit_queue() {
    let (without, text) = told_of("");
    assert!(!text.contains("transmit worker"), "{text}");
    assert_eq!(without["transmit_workers"], 0);
    assert!(without["transmit_rounds"].is_null());
    for (transmit, line) in [
        (
            1,
            "  1 transmit worker sends each frame within 6 rounds of its own;\n",
        ),
        (
            3,
            "  3 transmit workers send each frame within 6 rounds of their own;\n",
        ),
    ] {
        let (pipeline, text) = told_of(&format!("transmit = {transmit}"));
        assert!(text.contains(line), "{text}");
        assert_eq!(
            (&pipeline["transmit_workers"], &pipeline["transmit_rounds"]),
            (&transmit.into(), &6.into())
        );
        for key in ["transmit_bytes", "departure_rounds", "arrival_rounds"] {
            assert_eq!(pipeline[key], without[key], "{key}");
        }
    }
}

#[test]
fn the_schema_is_printed_without_a_file() {
    let printed = fairlane(&["check", "--schema"]).success();
    let schema: serde_json::Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(schema["properties"]["link"]["type"], "array");
}

#[test]
fn errors_are_bare_sentences_with_their_places_and_status_2() {
    let (_folder, path) = file(
        "[[link]]\nname = 'up'\nrate = '40mbit'\n\
         class = [{ name = 'a', rate = '30mbit' }, { name = 'b', rate = '20mbit' }]\n",
    );
    let finished = fairlane(&["check", &path]);
    assert_eq!(finished.status.code(), Some(2));
    assert_eq!(finished.stdout, "");
    let sentence =
        "rate: the rates below link 'up' add up to 50mbit, more than the 40mbit that it has";
    assert_eq!(finished.stderr, format!("{path}:4:64: {sentence}\n"));
}

#[test]
fn warnings_go_to_standard_error_and_change_nothing() {
    let (_folder, path) = file(
        "[[link]]\nname = 'up'\nrate = '40mbit'\n\
         class = [{ name = 'a', rate = '40mbit' }]\n",
    );
    let finished = fairlane(&["check", &path]);
    assert!(
        finished.status.success() && finished.stdout.contains("40mbit"),
        "{finished:?}"
    );
    assert!(
        finished
            .stderr
            .starts_with(&format!("fairlane: warning: {path}:"))
            && finished.stderr.contains("default"),
        "{finished:?}"
    );
}

#[test]
fn a_file_that_is_not_there_is_named_once() {
    let finished = fairlane(&["check", "/no/such/site.toml"]);
    assert_eq!(finished.status.code(), Some(2));
    assert_eq!(
        finished.stderr.matches("No such file").count(),
        1,
        "{finished:?}"
    );
    assert!(
        finished
            .stderr
            .starts_with("fairlane: /no/such/site.toml: "),
        "{finished:?}"
    );
}

#[test]
fn check_refuses_on_this_machine_what_run_would_refuse() {
    let Some(wire) = crate::site::wire("a check on the machine of a site", 1) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    let control = format!("[control]\nhttp = \"127.0.0.1:0\"\ntoken = {token:?}\n");
    let site = crate::site::up("packet", "10mbit") + &control;
    let (_folder, path) = file(&site);
    let sentence = format!("{path}: control: token {}: No such file", token.display());
    let check = |path: &str| wire.middle().run(|| fairlane(&["check", path]));
    let refused = check(&path);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(refused.stderr.contains(&sentence), "{refused:?}");
    // The file may exist on another machine.
    let elsewhere = fairlane(&["check", &path]);
    assert!(elsewhere.status.success(), "{elsewhere:?}");
    let warning = format!("warning: control: token {}: No such", token.display());
    assert!(elsewhere.stderr.contains(&warning), "{elsewhere:?}");
    std::fs::write(&token, "a token that is not guessed").unwrap();
    check(&path).success();

    let (_folder, path) = file(&site.replace("\"outside\"\nbackend", "\"nosuch0\"\nbackend"));
    let missing = check(&path);
    assert!(missing.status.success(), "{missing:?}");
    let warning = "warning: interface \"nosuch0\" is not on this machine";
    assert!(missing.stderr.contains(warning), "{missing:?}");

    let tap = site.replace("inside = \"inside\"", "tap = \"inside\"");
    let (_folder, path) = file(&tap);
    for command in ["check", "run"] {
        let refused = wire.middle().run(|| fairlane(&[command, &path]));
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        assert!(refused.stderr.contains("of another kind"), "{refused:?}");
    }

    let queues = "[workers]\nreceive = 1\ncores = [0, 65535]\n";
    let (_folder, path) = file(&(site + queues));
    let refused = check(&path);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(refused.stderr.contains("core 65535"), "{refused:?}");
}

/// A gigabit port before a line of 40 Mbit/s.
#[test]
fn one_number_is_the_delay_from_interface_to_interface() {
    let (_folder, path) = file(
        "[interfaces]\ninside = 'lan%d'\noutside = 'wan%d'\nspeed = '1gbit'\nlongest-round = '500us'\n\
         [[link]]\nname = 'up'\nrate = '40mbit'\nlink-control = 'none'\nalgorithm = 'wf2q+'\n\
         class = [{ name = 'voice', rate = '2mbit' }, { name = 'rest', default = true }]\n",
    );
    let json = fairlane(&["check", "--json", &path]).success();
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    let link = &report["links"][0];
    let bytes = link["pipeline"]["transmit_bytes"].as_u64().unwrap();
    // A millisecond of the link, and a round's worth and a packet.
    assert_eq!(bytes, 5_000 + 2_500 + 1_522);
    assert_eq!(
        link["pipeline"]["transmit_time_ns"].as_u64(),
        Some(bytes * 8)
    );
    let voice = &link["classes"][0];
    // 6,088 us at 2 Mbit/s, two packets at 40, two rounds, and the queue at 1 Gbit/s.
    let delay = 6_088_000 + 2 * 304_400;
    assert_eq!(voice["bound_us"], delay as f64 / 1e3);
    assert_eq!(
        voice["port_to_port_ns"].as_u64(),
        Some(delay + 1_000_000 + bytes * 8)
    );
    let text = fairlane(&["check", "--explain", &path]).success();
    for part in [
        "at 1gbit; rounds of up to 500us, 1ms in all",
        "6.088ms",
        "608.8us",
        "port to port",
        "7.769ms",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
}
