//! `fairlane compare`: the same arrivals under one algorithm after another, with the results of each replay.

use serde_json::Value;

use super::captures::{capture, frames, header, udp};
use super::report::busy;
use super::*;

impl Folder {
    /// Runs `compare` with `arguments`, as `replay` does.
    pub(super) fn compare(&self, arguments: &str) -> Finished {
        let mut words = vec!["compare".to_owned()];
        words.extend(arguments.split_whitespace().map(|word| self.expand(word)));
        fairlane(&words.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Returns the output without the cost of a packet.
    #[track_caller]
    fn compared(&self, arguments: &str) -> Value {
        let output = self.compare(&format!("{arguments} -n 0 --json")).success();
        assert_eq!(output.lines().count(), 1);
        serde_json::from_str(&output).unwrap()
    }

    #[track_caller]
    fn replayed(&self, arguments: &str) -> Value {
        let output = self.replay(&format!("{arguments} --json")).success();
        serde_json::from_str(&output).unwrap()
    }
}

const ARRIVALS: &str = "--rate 8mbit --flows @flows.csv @arrivals.csv";

#[track_caller]
fn rows_of(comparison: &Value) -> &Vec<Value> {
    comparison["algorithms"].as_array().unwrap()
}

/// A row of a comparison equals the report of a replay.
#[track_caller]
fn is_that_of(row: &Value, replayed: &Value) {
    for key in ["alg", "delay_ns", "jain"] {
        assert_eq!(row[key], replayed[key], "{row}");
    }
    let flows = replayed["flows"].as_array().unwrap();
    let behind = flows.iter().map(|flow| flow["t_wfi_ns"].as_f64().unwrap());
    assert_eq!(row["t_wfi_ns"], behind.fold(0.0, f64::max), "{row}");
    let flow = &flows[row["flow"].as_u64().unwrap() as usize];
    for key in ["t_wfi_ns", "t_wfi_bound_ns"] {
        assert_eq!(row[key], flow[key], "{row}");
    }
}

#[test]
fn compare_rows_equal_replay_reports_sorted_by_lag() {
    let folder = Folder::new();
    busy(&folder, 10);
    let options = "--overhead 24 --aggregate 4";
    let all = folder.compared(&format!("{options} {ARRIVALS}"));
    let total = folder.replayed(&format!("--alg drr {options} {ARRIVALS}"));
    for key in ["rate_bps", "overhead", "aggregate", "packets", "bytes"] {
        assert_eq!(all[key], total[key], "{key}");
    }
    assert_eq!(all["flows"], 10);
    let seconds = all["seconds"].as_f64().unwrap();
    assert!((seconds - 99_900e-9).abs() < 1e-12, "{seconds}");
    let rows = rows_of(&all);
    let names: Vec<&str> = rows
        .iter()
        .map(|row| row["alg"].as_str().unwrap())
        .collect();
    for alg in algorithms() {
        let place = names.iter().position(|name| **name == alg);
        let row = &rows[place.unwrap_or_else(|| panic!("{alg} is not in {names:?}"))];
        is_that_of(
            row,
            &folder.replayed(&format!("--alg {alg} {options} {ARRIVALS}")),
        );
        assert!(
            row["ns_per_packet"].is_null() && row["key"].is_null(),
            "{row}"
        );
    }
    assert_eq!(names.len(), algorithms().len());
    let behind = |row: &Value| row["t_wfi_ns"].as_f64().unwrap();
    assert!(rows.is_sorted_by_key(behind), "{all}");
    let some = folder.compared(&format!("--alg fifo,wf2q+ {options} {ARRIVALS}"));
    let named = |alg: &str| rows.iter().find(|row| row["alg"] == alg).unwrap().clone();
    assert_eq!(rows_of(&some), &[named("wf2q+"), named("fifo")]);
}

#[test]
fn jains_index_is_of_what_flows_got_of_what_was_due_to_them() {
    let folder = Folder::new();
    folder.write("flows.csv", "flow,weight,max_len\n0,1,1000\n1,1,1000\n");
    let arrivals = "0,0,1000\n".repeat(3) + "0,1,1000\n";
    folder.write("arrivals.csv", format!("time_ns,flow,len\n{arrivals}"));
    let compared = folder.compared(&format!("--alg fifo,drr {ARRIVALS}"));
    let [drr, fifo] = &rows_of(&compared)[..] else {
        panic!("{compared}")
    };
    // For 3 ms two flows are backlogged, and half of the 3000 bytes belong to each; one gets all of them. For 1 ms the
    // other is alone: it sends 1000 bytes of 2500.
    let exact = (1.0 + 0.4) * (1.0 + 0.4) / (2.0 * (1.0 + 0.4 * 0.4));
    let index = fifo["jain"].as_f64().unwrap();
    assert!((index - exact).abs() < 1e-9, "{compared}");
    assert_eq!(fifo["flow"], 1);
    assert_eq!(fifo["t_wfi_ns"], 2e6);
    assert!(fifo["t_wfi_bound_ns"].is_null());
    assert_eq!(fifo["delay_ns"]["max"], 4e6);
    assert_eq!(fifo["delay_ns"]["mean"], 2.5e6);
    // One of the first two packets belongs to the other flow.
    assert!(drr["jain"].as_f64().unwrap() > 0.99, "{compared}");
    assert!(drr["t_wfi_bound_ns"].is_u64(), "{compared}");
}

#[test]
fn flows_of_a_capture_are_named_and_their_longest_packets_count() {
    let folder = Folder::new();
    let packets: Vec<_> = (0..40u32)
        .map(|number| match number % 4 {
            0 => (0, 200 + number, udp(2, 5)),
            _ => (0, 1000 - number, udp(1, 5)),
        })
        .collect();
    folder.write("in.pcap", capture(header(), &packets));
    folder.write("flows.csv", "flow,weight,max_len\n0,1,236\n1,1,999\n");
    let compared = folder.compared("--rate 8mbit --alg fifo,qfq,drr+ @in.pcap");
    assert_eq!(compared["flows"], 2);
    for row in rows_of(&compared) {
        let alg = row["alg"].as_str().unwrap();
        let declared = format!("--alg {alg} --rate 8mbit --flows @flows.csv @in.pcap");
        let replayed = folder.replayed(&declared);
        is_that_of(row, &replayed);
        let flow = row["flow"].as_u64().unwrap() as usize;
        assert_eq!(row["key"], replayed["flows"][flow]["key"], "{row}");
        // A replay finds the same flows, whether or not it can rewind its input.
        let found = format!("--alg {alg} --rate 8mbit");
        assert_eq!(folder.replayed(&format!("{found} @in.pcap")), replayed);
        let pipe = folder.pipe("pipe");
        let bytes = fs::read(folder.path("in.pcap")).unwrap();
        let writer = thread::spawn(move || fs::write(pipe, bytes).unwrap());
        assert_eq!(folder.replayed(&format!("{found} @pipe")), replayed);
        writer.join().unwrap();
        fs::remove_file(folder.path("pipe")).unwrap();
        assert!(row["key"].is_string(), "{row}");
    }
    // In the order of the options, and not of the arrivals.
    let options = "--rate 8mbit --alg qfq --flow-by source --flows @flows.csv @in.pcap";
    is_that_of(
        &rows_of(&folder.compared(options))[0],
        &folder.replayed(options),
    );
}

#[test]
fn of_flows_as_far_behind_the_first_that_sent_is_named() {
    let folder = Folder::new();
    folder.write(
        "flows.csv",
        "flow,weight,max_len\n0,1,9\n1,1,9\n2,1,9\n3,1,9\n",
    );
    folder.write("arrivals.csv", "time_ns,flow,len\n0,2,9\n90000,1,9\n");
    let compared = folder.compared(&format!("--alg qfq,fifo {ARRIVALS}"));
    for row in rows_of(&compared) {
        assert_eq!((&row["flow"], &row["t_wfi_ns"]), (&1.into(), &0.0.into()));
    }
}

const SITE: &str = "[[link]]\nname = \"up\"\nrate = \"8mbit\"\noverhead = \"ethernet\"\nclass = [\n\
    { name = \"office\", rate = \"6mbit\" },\n\
    { name = \"calls\", parent = \"office\", rate = \"2mbit\" },\n\
    { name = \"mail\", parent = \"office\", rate = \"4mbit\", ceil = \"5mbit\" },\n\
    { name = \"rest\", rate = \"2mbit\", default = true },\n]\n\
    filter = [{ class = \"calls\", source = \"10.0.0.1\" }]\n";

#[test]
fn the_classes_of_a_site_are_flows_of_the_rates_that_they_are_guaranteed() {
    let folder = Folder::new();
    folder.write("site.toml", SITE);
    let (mut named, mut numbered) = (String::new(), String::new());
    for number in 0..300 {
        let (class, flow) = [("calls", 0), ("mail", 1), ("rest", 2)][number % 3];
        let len = 100 + 400 * flow + number;
        named += &format!("{},{class},{len}\n", number * 1000);
        numbered += &format!("{},{flow},{len}\n", number * 1000);
    }
    folder.write("named.csv", format!("time_ns,flow,len\n{named}"));
    folder.write("arrivals.csv", format!("time_ns,flow,len\n{numbered}"));
    let flows = "0,500000,1522\n1,1000000,1522\n2,500000,1522\n";
    folder.write("flows.csv", format!("flow,weight,max_len\n{flows}"));
    let compared = folder.compared("--config @site.toml --alg wf2q+,fifo @named.csv");
    assert_eq!(
        (&compared["rate_bps"], &compared["flows"]),
        (&8_000_000.into(), &3.into())
    );
    assert_eq!(compared["overhead"], 24);
    for row in rows_of(&compared) {
        let alg = row["alg"].as_str().unwrap();
        is_that_of(
            row,
            &folder.replayed(&format!("--alg {alg} --overhead 24 {ARRIVALS}")),
        );
        let name = ["calls", "mail", "rest"][row["flow"].as_u64().unwrap() as usize];
        assert_eq!(row["key"], name, "{row}");
    }
}

#[test]
fn packets_of_a_capture_go_by_the_filters_and_too_long_ones_are_counted() {
    let folder = Folder::new();
    folder.write("site.toml", SITE);
    let packets = [
        (0, 1000, udp(2, 5)),
        (0, 1523, udp(1, 5)),
        (0, 200, udp(1, 5)),
    ];
    folder.write("in.pcap", capture(header(), &packets));
    let finished = folder.compare("--config @site.toml --link up --alg fifo -n 0 @in.pcap --json");
    assert!(finished.status.success(), "{finished:?}");
    assert_eq!(
        finished.stderr,
        "fairlane: 1 of 3 packets are longer than the link carries, and are left out\n"
    );
    let compared: Value = serde_json::from_str(&finished.stdout).unwrap();
    assert_eq!(
        (&compared["packets"], &compared["bytes"]),
        (&2.into(), &1200.into())
    );
    // The call waits for the packet before it.
    assert_eq!(rows_of(&compared)[0]["key"], "calls");
}

#[test]
fn what_the_link_does_not_carry_is_nothing_to_compare() {
    let folder = Folder::new();
    folder.write("with.toml", SITE);
    folder.write("site.toml", SITE.replace("overhead = \"ethernet\"\n", ""));
    let empty = (0, 0, Vec::new());
    folder.write("long.pcap", capture(header(), &[(0, 1523, udp(1, 5))]));
    folder.write("in.pcap", capture(header(), &[empty, (0, 200, udp(1, 5))]));
    let finished = folder.compare("--config @site.toml --alg qfq @long.pcap");
    assert_eq!(finished.status.code(), Some(2), "{finished:?}");
    let sentence = finished.stderr.strip_suffix('\n').unwrap();
    assert!(
        sentence.ends_with("there is no packet that the link carries, and nothing to compare")
            && !sentence.contains('\n'),
        "{sentence}"
    );
    // A packet without bytes takes its overhead, if there is one.
    for (site, packets) in [("site.toml", 1), ("with.toml", 2)] {
        let arguments = format!("--config @{site} --alg qfq -n 0 --json @in.pcap");
        let finished = folder.compare(&arguments);
        let compared: Value = serde_json::from_str(&finished.stdout).unwrap();
        assert_eq!(compared["packets"], packets, "{finished:?}");
    }
}

#[test]
fn the_table_has_what_a_packet_costs_where_that_is_asked_for() {
    let folder = Folder::new();
    busy(&folder, 3);
    let options = format!("--alg qfq,fifo {ARRIVALS}");
    let without = folder.compare(&format!("{options} -n 0")).success();
    let begins = |alg: &str| format!("\u{2502} {alg} ");
    let order = ["qfq", "fifo"].map(|alg| without.find(&begins(alg)).unwrap());
    assert!(order[0] < order[1], "{without}");
    assert!(
        without.contains("300 packets") && without.contains("3 flows"),
        "{without}"
    );
    assert!(
        without.contains("none") && !without.contains("packet \u{2502}"),
        "{without}"
    );
    assert_eq!(
        without,
        folder.compare(&format!("{options} -n 0")).success()
    );
    let with = folder.compare(&format!("{options} -n 1")).success();
    assert!(with.contains("packet \u{2502}"), "{with}");
    let json = folder.compare(&format!("{options} -n 1 --json")).success();
    let compared: Value = serde_json::from_str(&json).unwrap();
    for row in rows_of(&compared) {
        assert!(row["ns_per_packet"].as_f64().unwrap() >= 0.0, "{row}");
    }
}

#[test]
fn incomparable_input_is_refused() {
    let folder = Folder::with_flows();
    folder.write("site.toml", SITE);
    folder.write("arrivals.csv", "time_ns,flow,len\n0,0,1\n");
    folder.write("none.csv", "time_ns,flow,len\n");
    folder.write("none.pcap", capture(header(), &[]));
    folder.write("in.pcap", frames(&[udp(1, 5)]));
    folder.write("ng.pcap", [0x0a, 0x0d, 0x0d, 0x0a, 0, 0, 0, 0]);
    folder.write("late.csv", "time_ns,flow,len\n2000000,0,1\n0,0,1\n");
    for (arguments, says) in [
        (
            "--rate 8mbit @none.pcap",
            &["none.pcap: there is no packet"][..],
        ),
        (
            "--rate 8mbit --flows @flows.csv @none.csv",
            &["none.csv: there is no packet"],
        ),
        (
            "--config @site.toml @none.csv",
            &["none.csv: there is no packet"],
        ),
        ("@in.pcap", &["--rate"]),
        ("--rate 8 @in.pcap", &["--rate", "unit"]),
        ("--rate 8mbit", &["ARRIVALS.csv|IN.pcap"]),
        (
            "--rate 8mbit --alg hfsc @in.pcap",
            &["--alg", "'hfsc'", "wf2q+"],
        ),
        ("--rate 8mbit --alg qfq,hfsc @in.pcap", &["--alg", "'hfsc'"]),
        ("--rate 8mbit --alg= @in.pcap", &["--alg"]),
        (
            "--rate 8mbit --aggregate 0 @in.pcap",
            &["--aggregate", "'0'"],
        ),
        ("--rate 8mbit -n -1 @in.pcap", &["'-1'"]),
        (
            "--rate 8mbit @missing.pcap",
            &["missing.pcap", "No such file"],
        ),
        ("--rate 8mbit @ng.pcap", &["file header", "cut off"]),
        ("--rate 8mbit @arrivals.csv", &["arrivals.csv: ", "--flows"]),
        (
            "--rate 8mbit --flows @flows.csv @late.csv",
            &["late.csv:3:", "1 ms"],
        ),
        (
            "--rate 8mbit --flow-by port @in.pcap",
            &["--flow-by", "5-tuple, source"],
        ),
        (
            "--rate 8mbit --config @site.toml @in.pcap",
            &["--config", "--rate"],
        ),
        ("--rate 8mbit --link up @in.pcap", &["--link", "--config"]),
        (
            "--config @site.toml --link down @in.pcap",
            &["link 'down'", "up"],
        ),
        ("--config @flows.csv @in.pcap", &["flows.csv:1:"]),
    ] {
        let finished = folder.compare(arguments);
        assert_eq!(finished.status.code(), Some(2), "{arguments}: {finished:?}");
        assert_eq!(finished.stdout, "", "{arguments}");
        let sentence = finished.stderr.strip_suffix('\n').unwrap();
        assert!(!sentence.contains('\n'), "{arguments}: {sentence}");
        for word in says {
            assert!(sentence.contains(word), "{word} is not in: {sentence}");
        }
    }
}
