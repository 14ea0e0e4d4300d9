//! The delays and lags of each flow, compared with its bounds.

use super::*;

/// Writes arrivals of flows with weights 1 to `flows`, each above its share.
pub(super) fn busy(folder: &Folder, flows: u64) {
    let mut table = "flow,weight,max_len\n".to_owned();
    for flow in 0..flows {
        table += &format!("{flow},{},1000\n", flow + 1);
    }
    folder.write("flows.csv", table);
    let mut arrivals = "time_ns,flow,len\n".to_owned();
    for number in 0..100 * flows {
        let len = 1 + number * 7919 % 1000;
        arrivals += &format!("{},{},{len}\n", number * 100, number % flows);
    }
    folder.write("arrivals.csv", arrivals);
}

#[test]
fn the_indexes_are_those_of_the_definitions() {
    let folder = Folder::new();
    folder.write("flows.csv", "flow,weight,max_len\n0,1,1000\n1,1,1000\n");
    let arrivals = "0,0,1000\n".repeat(3) + "0,1,1000\n";
    folder.write("arrivals.csv", format!("time_ns,flow,len\n{arrivals}"));
    let arguments = format!("{} --json", WITH_FLOWS.replace("qfq", "fifo"));
    let output = folder.replay(&arguments).success();
    let report: serde_json::Value = serde_json::from_str(&output).unwrap();
    let [first, second] = [0, 1].map(|flow| &report["flows"][flow]);
    assert_eq!(first["t_wfi_ns"], 0.0);
    assert_eq!(first["b_wfi_bytes"], 0.0);
    // Its packet ends after 4 ms; at half the rate it would have taken 2. Until it starts, half of the 3000 bytes sent
    // belong to its share.
    assert_eq!(second["t_wfi_ns"], 2e6);
    assert_eq!(second["b_wfi_bytes"], 1500.0);
}

#[test]
fn tables_have_each_figure_with_its_unit() {
    let folder = Folder::new();
    folder.write("flows.csv", "flow,weight,max_len\n0,1,1000\n1,1,1000\n");
    let arrivals = "0,0,1000\n".repeat(3) + "0,1,1000\n";
    folder.write("arrivals.csv", format!("time_ns,flow,len\n{arrivals}"));
    let fifo = WITH_FLOWS.replace("qfq", "fifo");
    let report = folder.replay(&format!("{fifo} --report")).stderr;
    let cells = |text: &str, row: &str| {
        let row = text.lines().find(|line| line.contains(row)).unwrap();
        row.trim_matches(['│', ' '])
            .split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let second = "1 1 1 1000 1000 2ms none 1500.0b none 4ms 4ms 4ms";
    assert_eq!(cells(&report, "│ 1 ").join(" "), second, "{report}");
    let compare = format!(
        "compare {}",
        fifo.replace("--alg fifo", "--alg fifo,drr -n 1")
    );
    let words: Vec<String> = compare.split(' ').map(|word| folder.expand(word)).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let table = fairlane(&words).success();
    let row = cells(&table, "│ fifo ");
    assert_eq!(
        row[..6].join(" "),
        "fifo 2.005ms 4ms 4ms 2ms none",
        "{table}"
    );
    assert!(row[8].ends_with('s'), "{table}");
    for text in [report, table] {
        for header in text.lines().filter(|line| line.starts_with('│')).take(2) {
            let has_unit = |word| ["ns", "us", "ms"].contains(&word);
            assert!(!header.split_whitespace().any(has_unit), "{text}");
        }
    }
}

#[test]
fn the_bounds_are_those_of_a_link_that_may_be_busy() {
    let folder = Folder::with_flows();
    folder.write("arrivals.csv", "time_ns,flow,len\n0,0,1000\n");
    let arguments = format!("{} --json", WITH_FLOWS.replace("qfq", "drr"));
    let output = folder.replay(&arguments).success();
    let report: serde_json::Value = serde_json::from_str(&output).unwrap();
    // The other's quantum of 2000 bytes, one more of its own packets, and one packet in transmission; for the service a
    // third of it, and two thirds of a packet.
    let flow = &report["flows"][0];
    assert_eq!(flow["t_wfi_bound_ns"], 4_000_000);
    let service = flow["b_wfi_bound_bytes"].as_f64().unwrap();
    assert!((service - 2000.0).abs() < 1e-6, "{flow}");
}

/// The example of the paper on DRR: a quantum of 500, packets of up to 750 bytes.
#[test]
fn drr_has_the_quantum_that_is_given() {
    let folder = Folder::new();
    let flows = (0..4).map(|flow| format!("{flow},1,750\n"));
    let flows: String = flows.collect();
    folder.write("flows.csv", format!("flow,weight,max_len\n{flows}"));
    let queues: [&[u32]; 4] = [
        &[200, 750, 20],
        &[500, 500],
        &[100, 600, 200],
        &[180, 700, 50],
    ];
    let rows = queues
        .iter()
        .enumerate()
        .flat_map(|(flow, queue)| queue.iter().map(move |len| format!("0,{flow},{len}\n")));
    let rows: String = rows.collect();
    folder.write("arrivals.csv", format!("time_ns,flow,len\n{rows}"));
    let drr = WITH_FLOWS.replace("qfq", "drr");
    let order = |arguments: &str| {
        let sent = folder.replay(arguments).success();
        let flow = |row: &str| row.split(',').nth(2).unwrap().to_owned();
        sent.lines().skip(1).map(flow).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(order(&drr), "0 1 2 2 3 0 0 1 2 3 3");
    let given = format!("{drr} --quantum 500");
    assert_eq!(order(&given), "0 1 2 3 0 0 1 2 2 3 3");
    let report = folder.replay(&format!("{given} --json")).success();
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["quantum"], 500);
    // The quanta of the three others, a packet of each, and one in transmission, at a byte a microsecond.
    assert_eq!(
        report["flows"][0]["t_wfi_bound_ns"],
        (3 * 500 + 3 * 750 + 750) * 1000
    );
    for (arguments, problem) in [
        (
            format!("{WITH_FLOWS} --quantum 500"),
            "only drr has a quantum",
        ),
        (
            format!("{drr} --quantum 63"),
            "a number of bytes from 64 to 65535",
        ),
    ] {
        let refused = folder.replay(&arguments);
        assert!(!refused.status.success());
        assert!(refused.stderr.contains(problem), "{}", refused.stderr);
    }
}

#[test]
fn weights_with_decimal_places_become_the_smallest_whole_ones() {
    let folder = Folder::new();
    folder.write("arrivals.csv", "time_ns,flow,len\n0,0,1000\n");
    let flows = |weights: [&str; 4]| {
        let rows = weights.iter().enumerate();
        let rows: String = rows
            .map(|(flow, weight)| format!("{flow},{weight},1000\n"))
            .collect();
        folder.write("flows.csv", format!("flow,weight,max_len\n{rows}"));
        folder.replay(&format!("{WITH_FLOWS} --json"))
    };
    let scaled = |weights| {
        let report: serde_json::Value = serde_json::from_str(&flows(weights).success()).unwrap();
        let flows = report["flows"].as_array().unwrap().iter();
        flows
            .map(|flow| flow["weight"].as_u64().unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(scaled(["2.5", "4", "0.50", "1"]), [5, 8, 1, 2]);
    assert_eq!(scaled(["10", "4", "2", "2"]), [10, 4, 2, 2]);
    assert_eq!(
        scaled(["0.000001", "1", "1", ".5"]),
        [1, 1_000_000, 1_000_000, 500_000]
    );
    for (weight, problem) in [
        (
            "1.0000001",
            "flows.csv:2: weight '1.0000001' is not a number from 0.000001",
        ),
        ("0.0", "flows.csv:2: weight '0.0' is not a number"),
        ("2.5.1", "flows.csv:2: weight '2.5.1' is not a number"),
        ("1000.0001", "of which this is 10000001 (at most 1000000)"),
        (
            "0",
            "flows.csv:2: weight '0' is not a whole number from 1 to 1000000",
        ),
    ] {
        let refused = flows([weight, "1", "1", "1"]);
        assert!(!refused.status.success(), "{weight}");
        assert!(
            refused.stderr.contains(problem),
            "{weight}: {}",
            refused.stderr
        );
    }
}

#[test]
fn a_bound_that_holds_under_a_condition_is_marked() {
    let folder = Folder::with_flows();
    folder.write("arrivals.csv", "time_ns,flow,len\n0,0,1000\n");
    for (alg, conditional) in [("wf2q", true), ("wfq", true), ("wf2q+", false)] {
        let arguments = WITH_FLOWS.replace("qfq", alg);
        let json = folder.replay(&format!("{arguments} --json")).success();
        let report: serde_json::Value = serde_json::from_str(&json).unwrap();
        let flow = &report["flows"][0];
        assert_eq!(flow["b_wfi_bound_bytes"].is_null(), conditional, "{flow}");
        let marked = flow.get("b_wfi_conditional_bound_bytes");
        assert_eq!(marked.is_some(), conditional, "{flow}");
        let text = folder.replay(&format!("{arguments} --report -o @out.csv"));
        let text = text.success();
        let condition = text.contains("* holds while the fluid server has packets");
        assert_eq!(
            (condition, text.contains(" *")),
            (conditional, conditional),
            "{text}"
        );
    }
}

#[test]
fn priority_reports_a_bound_for_the_highest_level_alone() {
    let folder = Folder::new();
    let flows = "flow,weight,max_len\n0,5,200\n1,2,1000\n2,2,1000\n";
    folder.write("flows.csv", flows);
    let arrivals = "0,1,1000\n1,0,200\n1,2,1000\n2,0,100\n";
    folder.write("arrivals.csv", format!("time_ns,flow,len\n{arrivals}"));
    let arguments = format!("{} --json", WITH_FLOWS.replace("qfq", "priority"));
    let output = folder.replay(&arguments).success();
    let report: serde_json::Value = serde_json::from_str(&output).unwrap();
    let [highest, second, third] = [0, 1, 2].map(|flow| &report["flows"][flow]);
    // The longest packet of all, which may be in transmission.
    assert_eq!(highest["t_wfi_bound_ns"], 1_000_000);
    assert_eq!(highest["b_wfi_bound_bytes"], 1000.0);
    assert!(highest["t_wfi_ns"].as_f64().unwrap() > 0.0, "{highest}");
    for flow in [second, third] {
        assert!(flow["t_wfi_bound_ns"].is_null(), "{flow}");
        assert!(flow["b_wfi_bound_bytes"].is_null(), "{flow}");
    }
    let text = folder.replay(&format!(
        "{} --report -o @out.csv",
        WITH_FLOWS.replace("qfq", "priority")
    ));
    let text = text.success();
    assert!(text.contains("no bound: arrivals are unlimited"), "{text}");
    let text = folder.replay(&format!(
        "{} --report -o @out.csv",
        WITH_FLOWS.replace("qfq", "fifo")
    ));
    let text = text.success();
    assert!(text.contains("no bound: "), "{text}");
    let text = folder.replay(&format!("{WITH_FLOWS} --report -o @out.csv"));
    assert!(!text.success().contains("no bound"));
}

#[test]
fn measured_delays_stay_within_bounds() {
    let folder = Folder::new();
    busy(&folder, 10);
    for alg in algorithms() {
        for overhead in [0, 24] {
            let arguments = WITH_FLOWS.replace("qfq", &alg);
            check_report(&folder, &format!("{arguments} --overhead {overhead}"), &alg);
        }
    }
}

/// Returns T-WFI in ns and B-WFI in bytes of a flow of weight `number + 1` among ten, at a byte a microsecond, from
/// their definitions. A packet waits from its arrival until it starts.
fn indexes(sent: &[Row], number: u64, overhead: u64) -> (f64, f64) {
    let share = (number + 1) as f64 / 55.0;
    // Returns the bytes that have left by a time, of all packets in a list.
    let left = |packets: &[&Row], at: u64| -> f64 {
        let bytes = |row: &&Row| at.clamp(row[0], row[1]) - row[0];
        packets.iter().map(bytes).sum::<u64>() as f64 / 1e3
    };
    let all: Vec<&Row> = sent.iter().collect();
    let mine: Vec<&Row> = sent.iter().filter(|row| row[2] == number).collect();
    let mut time: f64 = 0.0;
    let (mut service, mut ahead): (f64, f64) = (0.0, 0.0);
    let mut waiting_until = 0;
    for (n, packet) in mine.iter().enumerate() {
        let arrival = packet[4];
        let before = mine[..=n].iter().filter(|row| row[0] >= arrival);
        let backlog: u64 = before.map(|row| row[3] + overhead).sum();
        let ideal = arrival as f64 + backlog as f64 * 1e3 / share;
        time = time.max(packet[1] as f64 - ideal);
        // The lag since the start of this backlog or the end of one of its packets, until the next of its packets
        // starts.
        let owed = |at| share * left(&all, at) - left(&mine, at);
        let last_end = n.checked_sub(1).map_or(0, |last| mine[last][1]);
        let new_backlog = n == 0 || arrival > waiting_until;
        if new_backlog {
            ahead = owed(arrival);
        }
        if last_end > arrival || !new_backlog {
            ahead = ahead.min(owed(last_end));
        }
        service = service.max(owed(packet[0]) - ahead);
        waiting_until = packet[0];
    }
    (time, service)
}

/// Checks the report of 10 flows of 100 packets each against the departures.
fn check_report(folder: &Folder, arguments: &str, alg: &str) {
    let sent = departures(folder, arguments);
    let output = folder.replay(&format!("{arguments} --json")).success();
    assert_eq!(output.lines().count(), 1);
    let report: serde_json::Value = serde_json::from_str(&output).unwrap();
    assert_eq!(report["alg"], alg);
    assert_eq!(report["rate_bps"], 8_000_000);
    assert_eq!(report["packets"], 1000);
    assert_eq!(report["bytes"], sent.iter().map(|row| row[3]).sum::<u64>());
    let flows = report["flows"].as_array().unwrap();
    assert_eq!(flows.len(), 10);
    let mut most_lag = 0.0;
    for (number, flow) in (0u64..).zip(flows) {
        let mine: Vec<&Row> = sent.iter().filter(|row| row[2] == number).collect();
        assert_eq!(flow["flow"], number);
        assert_eq!(flow["weight"], number + 1);
        assert_eq!(flow["max_len"], 1000);
        assert_eq!(flow["packets"], 100);
        assert_eq!(flow["bytes"], mine.iter().map(|row| row[3]).sum::<u64>());
        let value = |name: &str| flow[name].as_f64();
        let [time, service] = ["t_wfi_ns", "b_wfi_bytes"].map(|name| value(name).unwrap());
        let highest = alg == "priority" && number == 9;
        let bounded = highest || ["drr", "qfq", "qfq+"].contains(&alg);
        assert!(
            !bounded || value("t_wfi_bound_ns").is_some(),
            "{alg}: {flow}"
        );
        assert!(
            value("t_wfi_bound_ns").is_none_or(|bound| time <= bound),
            "{alg}: {flow}"
        );
        assert!(
            value("b_wfi_bound_bytes").is_none_or(|bound| service <= bound),
            "{alg}: {flow}"
        );
        let overhead = if arguments.ends_with("24") { 24 } else { 0 };
        let (exact_time, exact_service) = indexes(&sent, number, overhead);
        assert!(
            (time - exact_time).abs() <= 1.0,
            "{alg}: {exact_time}, {flow}"
        );
        let off = (service - exact_service).abs();
        assert!(off < 1e-3, "{alg}: {exact_service}, {flow}");
        // SCFQ is late only for newly backlogged flows, and WFQ for flows that were served ahead; here all flows arrive
        // at once.
        let lag = if ["scfq", "wfq"].contains(&alg) {
            service
        } else {
            time.min(service)
        };
        most_lag = lag.max(most_lag);
        let mut delays: Vec<u64> = mine.iter().map(|row| row[1] - row[4]).collect();
        delays.sort();
        let delay = |name: &str| flow["delay_ns"][name].as_f64().unwrap();
        assert!(
            (delay("max") - *delays.last().unwrap() as f64).abs() < 1.0,
            "{flow}"
        );
        let near = |found: f64, exact: u64| (found / exact as f64 - 1.0).abs() < 0.02;
        assert!(near(delay("p50"), delays[49]), "{flow}: {delays:?}");
        assert!(near(delay("p99"), delays[98]), "{flow}: {delays:?}");
    }
    assert!(most_lag > 0.0, "{report}");
}

#[test]
fn the_report_goes_where_departures_do_not() {
    let folder = Folder::new();
    busy(&folder, 3);
    let plain = folder.replay(WITH_FLOWS).success();
    let both = folder.replay(&format!("{WITH_FLOWS} --report"));
    assert!(both.status.success());
    assert_eq!(both.stdout, plain);
    assert!(both.stderr.contains("T-WFI"), "{}", both.stderr);
    let printed = folder
        .replay(&format!("{WITH_FLOWS} --report -o @out.csv"))
        .success();
    assert_eq!(printed, both.stderr);
    assert_eq!(folder.read("out.csv"), plain);
    let json = folder
        .replay(&format!("{WITH_FLOWS} --json -o @json.csv"))
        .success();
    assert_eq!(folder.read("json.csv"), plain);
    assert_eq!(
        json,
        folder.replay(&format!("{WITH_FLOWS} --json")).success()
    );
    // The report says that there are no bounds.
    let fifo = folder.replay(&format!("{} --json", WITH_FLOWS.replace("qfq", "fifo")));
    let report: serde_json::Value = serde_json::from_str(&fifo.success()).unwrap();
    assert!(report["flows"][0]["t_wfi_bound_ns"].is_null(), "{report}");
}

#[test]
fn the_table_shows_the_worst_flows_and_counts_the_others() {
    let folder = Folder::new();
    let text = |flows| {
        busy(&folder, flows);
        folder
            .replay(&format!("{WITH_FLOWS} --report -o @out.csv"))
            .success()
    };
    let rows = |text: &str| {
        text.lines()
            .filter(|line| line.starts_with('\u{2502}'))
            .count()
    };
    let all = text(20);
    // Plus two header lines.
    assert_eq!(rows(&all), 22);
    assert!(
        all.contains("20 flows") && !all.contains("left out"),
        "{all}"
    );
    let some = text(27);
    assert_eq!(rows(&some), 22);
    assert!(some.contains("7 are left out"), "{some}");
    let json = folder.replay(&format!("{WITH_FLOWS} --json")).success();
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    let mut badness: Vec<(f64, String)> = report["flows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|flow| {
            let part =
                flow["t_wfi_ns"].as_f64().unwrap() / flow["t_wfi_bound_ns"].as_f64().unwrap();
            (part, format!("\u{2502} {} ", flow["flow"]))
        })
        .collect();
    assert_eq!(badness.len(), 27);
    badness.sort_by(|a, b| b.0.total_cmp(&a.0));
    let lines: Vec<&str> = some
        .lines()
        .filter(|l| l.starts_with('\u{2502}'))
        .skip(2)
        .collect();
    for (line, (_, begins)) in lines.iter().zip(&badness) {
        assert!(line.starts_with(begins), "{begins} should be here: {some}");
    }
}

#[test]
fn help_teaches_files_captures_and_examples() {
    let help = fairlane(&["replay", "--help"]).success();
    for part in [
        "flow,weight,max_len",
        "time_ns,flow,len",
        HEADER,
        "--alg <A>",
        "--rate <R>",
        "--flows <FLOWS.csv>",
        "-o <OUT>",
        "--flow-by <KEY>",
        "--overhead <BYTES>",
        "--aggregate <M>",
        "--report",
        "--json",
        "fragments",
        "does not react",
        "stays there",
        "Examples:",
        "examples/replay/flows.csv",
    ] {
        assert!(help.contains(part), "{part} is not in:\n{help}");
    }
}
