//! Departures are in the algorithm's order, and on time.

use fairlane_testkit::long_tests;

use super::*;

#[test]
fn fifo_sends_in_the_order_of_arrival() {
    let folder = Folder::with_flows();
    // At 8 Mbit/s a byte takes a microsecond.
    folder.write(
        "arrivals.csv",
        "time_ns,flow,len\n0,1,900\n0,0,600\n1000,1,100\n1600000,1,50\n1700000,0,1\n",
    );
    let output = folder
        .replay("--alg fifo --rate 8mbit --flows @flows.csv @arrivals.csv")
        .success();
    assert_eq!(
        output,
        format!(
            "{HEADER}\n0,900000,1,900,0\n900000,1500000,0,600,0\n1500000,1600000,1,100,1000\n\
             1600000,1650000,1,50,1600000\n1700000,1701000,0,1,1700000\n"
        )
    );
}

#[test]
fn drr_takes_turns_of_a_quantum() {
    let folder = Folder::with_flows();
    // Quanta of 1000 and 2000 bytes, as weight 1 must cover its longest packet.
    let arrivals = "0,0,600\n".repeat(3) + &"0,1,900\n".repeat(4);
    folder.write("arrivals.csv", format!("time_ns,flow,len\n{arrivals}"));
    let sent = departures(
        &folder,
        "--alg drr --rate 8mbit --flows @flows.csv @arrivals.csv",
    );
    let expected = [
        // 1000 - 600 = 400 are left, too few for the next.
        (600, 0),
        // 2000 - 2 x 900 = 200.
        (1500, 1),
        (2400, 1),
        // 400 + 1000 - 2 x 600.
        (3000, 0),
        (3600, 0),
        // 200 + 2000 - 2 x 900.
        (4500, 1),
        (5400, 1),
    ];
    let found: Vec<(u64, u64)> = sent.iter().map(|row| (row[1] / 1000, row[2])).collect();
    assert_eq!(found, expected);
}

#[test]
fn what_arrives_when_the_link_becomes_free_is_chosen_from() {
    let folder = Folder::new();
    folder.write("flows.csv", "flow,weight,max_len\n0,1,1000\n1,1000,100\n");
    // Flow 1 arrives exactly at the end of the first packet, or a nanosecond later.
    let sent = |time: u64| -> Vec<u64> {
        folder.write(
            "arrivals.csv",
            format!("time_ns,flow,len\n0,0,1000\n0,0,1000\n{time},1,100\n"),
        );
        let arguments = "--alg qfq --rate 8mbit --flows @flows.csv @arrivals.csv";
        let rows = departures(&folder, arguments);
        rows.iter().map(|row| row[2]).collect()
    };
    assert_eq!(sent(1_000_000), [0, 1, 0]);
    assert_eq!(sent(1_000_001), [0, 0, 1]);
}

#[test]
fn all_arrivals_of_an_instant_count_before_an_idle_link_chooses() {
    let folder = Folder::new();
    folder.write("flows.csv", "flow,weight,max_len\n0,1,1000\n1,1000,100\n");
    // In row order, flow 0 would be first; its finish time is far later.
    folder.write("arrivals.csv", "time_ns,flow,len\n5,0,1000\n5,1,100\n");
    let sent = departures(
        &folder,
        "--alg qfq --rate 8mbit --flows @flows.csv @arrivals.csv",
    );
    assert_eq!(sent[0], [5, 100_005, 1, 100, 5]);
}

#[test]
fn rounding_does_not_add_up() {
    // A packet takes 8/3 ns at 3 Gbit/s: thousands of them still end on time.
    let folder = Folder::with_flows();
    let arrivals = "7,0,1\n".repeat(9_999);
    folder.write("arrivals.csv", format!("time_ns,flow,len\n{arrivals}"));
    let sent = departures(
        &folder,
        "--alg fifo --rate 3gbit --flows @flows.csv @arrivals.csv",
    );
    for (number, row) in (0..).zip(&sent) {
        assert_eq!(row[..2], [7 + number * 8 / 3, 7 + (number + 1) * 8 / 3]);
    }
    assert_eq!(sent.last().unwrap()[1], 7 + 9_999 / 3 * 8);
}

#[test]
fn overhead_takes_time_and_is_not_in_the_length() {
    let folder = Folder::with_flows();
    folder.write("arrivals.csv", "time_ns,flow,len\n0,0,1000\n0,0,76\n");
    let sent = departures(
        &folder,
        "--alg qfq --rate 8mbit --overhead 24 --flows @flows.csv @arrivals.csv",
    );
    assert_eq!(
        sent,
        [[0, 1_024_000, 0, 1000, 0], [1_024_000, 1_124_000, 0, 76, 0]]
    );
}

#[test]
fn the_ends_of_the_ranges_work() {
    let folder = Folder::new();
    folder.write("flows.csv", "flow,weight,max_len\n1,1000000,65535\n0,1,1\n");
    folder.write(
        "arrivals.csv",
        "time_ns,flow,len\r\n18446744073000000000,1,65535\r\n\r\n18446744073000000000,0,1",
    );
    let sent = departures(
        &folder,
        "--alg qfq --rate 1tbit --flows @flows.csv @arrivals.csv",
    );
    assert_eq!(sent.len(), 2);
    assert_eq!(sent[0][1] - sent[0][0], 65_535 * 8 / 1000);
    folder.write("none.csv", "time_ns,flow,len\n");
    assert_eq!(
        departures(
            &folder,
            "--alg qfq --rate 1tbit --flows @flows.csv @none.csv"
        ),
        [[0; 5]; 0]
    );
}

#[derive(Clone, Debug)]
struct Case {
    /// Weight and maximum length.
    flows: Vec<(u32, u64)>,
    /// Time, flow and length.
    arrivals: Vec<[u64; 3]>,
    rate: u64,
}

fn cases() -> impl Strategy<Value = Case> {
    let flow = (1u32..=1000, 1u64..=2000);
    let flows = proptest::collection::vec(flow, 1..6);
    (flows, 1_000u64..=100_000_000_000).prop_flat_map(|(flows, rate)| {
        // Around the time of a packet, so that the link is sometimes idle.
        let packet = 8 * 2000 * 1_000_000_000 / rate;
        let gap = prop_oneof![Just(0), 0..=packet, 0..=4 * packet];
        let arrival = (gap, 0..flows.len(), 0.0..1.0f64);
        proptest::collection::vec(arrival, 0..80).prop_map(move |arrivals| {
            let mut time = 0;
            let arrivals = arrivals.into_iter().map(|(gap, flow, length)| {
                time += gap;
                let length = 1 + (length * flows[flow].1 as f64) as u64;
                [time, flow as u64, length.min(flows[flow].1)]
            });
            Case {
                arrivals: arrivals.collect(),
                flows: flows.clone(),
                rate,
            }
        })
    })
}

impl Case {
    fn write(&self, folder: &Folder) {
        let mut flows = "flow,weight,max_len\n".to_owned();
        for (number, (weight, max_len)) in self.flows.iter().enumerate() {
            flows += &format!("{number},{weight},{max_len}\n");
        }
        folder.write("flows.csv", flows);
        let mut arrivals = "time_ns,flow,len\n".to_owned();
        for [time, flow, len] in &self.arrivals {
            arrivals += &format!("{time},{flow},{len}\n");
        }
        folder.write("arrivals.csv", arrivals);
    }

    /// Checks everything that does not depend on the algorithm.
    fn check(&self, sent: &[Row]) {
        assert_eq!(sent.len(), self.arrivals.len());
        for flow in 0..self.flows.len() as u64 {
            let came = self.arrivals.iter().filter(|a| a[1] == flow);
            let left = sent.iter().filter(|row| row[2] == flow);
            assert!(
                came.map(|a| [a[0], a[2]]).eq(left.map(|r| [r[4], r[3]])),
                "flow {flow} left in another order, or not whole: {sent:?}"
            );
        }
        // The link's time in fractions of 1 / rate nanoseconds.
        let rate = u128::from(self.rate);
        let mut waiting = self.arrivals.clone();
        let mut free = 0u128;
        for &[start, end, flow, len, arrival] in sent {
            let first = u128::from(waiting[0][0]) * rate;
            let begins = free.max(first);
            free = begins + u128::from(len) * 8 * 1_000_000_000;
            assert_eq!(u128::from(start), begins / rate, "idle, or early: {sent:?}");
            assert_eq!(u128::from(end), free / rate, "too long or short: {sent:?}");
            assert!(arrival <= start, "before it came: {sent:?}");
            let place = waiting.iter().position(|&a| a == [arrival, flow, len]);
            waiting.remove(place.unwrap());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(if long_tests() { 64 } else { 16 })
    })]

    #[test]
    fn every_algorithm_sends_everything_in_order_without_a_pause(case in cases()) {
        let folder = Folder::new();
        case.write(&folder);
        let busy: Vec<_> = algorithms().into_iter().map(|alg| {
            let arguments = format!(
                "--alg {alg} --rate {}bit --flows @flows.csv @arrivals.csv", case.rate
            );
            let sent = departures(&folder, &arguments);
            case.check(&sent);
            // The link does the same work at any time, whichever flow is served.
            let last = sent.iter().map(|row| row[1]).max();
            (last, sent.iter().map(|row| row[3]).sum::<u64>())
        }).collect();
        prop_assert!(busy.iter().all(|b| b == &busy[0]), "{busy:?}");
    }
}

#[test]
fn the_same_input_gives_the_same_bytes_wherever_they_go() {
    let folder = Folder::with_flows();
    let mut arrivals = "time_ns,flow,len\n".to_owned();
    for number in 0..3_000u64 {
        let len = 1 + number * number % 1000;
        arrivals += &format!("{},{},{len}\n", number * 400, number * 7 % 5 % 2);
    }
    folder.write("arrivals.csv", arrivals);
    for alg in algorithms() {
        let arguments = format!("--alg {alg} --rate 8gbit --flows @flows.csv @arrivals.csv");
        let printed = folder.replay(&arguments).success();
        assert_eq!(printed, folder.replay(&arguments).success());
        let to_file = format!("{arguments} -o @out.csv");
        assert_eq!(folder.replay(&to_file).success(), "");
        assert_eq!(printed, folder.read("out.csv"));
    }
    assert_eq!(folder.names(), ["arrivals.csv", "flows.csv", "out.csv"]);
}

#[test]
fn the_example_of_the_help_shares_by_weight() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/replay");
    let (flows, arrivals) = (examples.join("flows.csv"), examples.join("arrivals.csv"));
    let worst = |alg: &str| {
        let [flows, arrivals] = [&flows, &arrivals].map(|path| path.to_str().unwrap());
        let output = fairlane(&[
            "replay", "--alg", alg, "--rate", "8mbit", "--flows", flows, arrivals,
        ]);
        let voice = rows(&output.success())
            .into_iter()
            .filter(|row| row[2] == 0);
        voice.map(|row| row[1] - row[4]).max().unwrap()
    };
    let [fifo, drr, qfq] = ["fifo", "drr", "qfq"].map(worst);
    assert!(qfq < drr && drr < fifo, "{qfq}, {drr}, {fifo}");
}
