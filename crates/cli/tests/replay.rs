//! `fairlane replay`: what arrives leaves, whole, in order, on time, and again the same.

mod program;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use pcap_file::pcap::{PcapHeader, PcapPacket, PcapReader, PcapWriter};
use pcap_file::{DataLink, Endianness, TsResolution};
use program::{Finished, fairlane};
use proptest::prelude::*;

/// The names of all algorithms there are, as the program lists them.
fn algorithms() -> Vec<String> {
    let refusal = fairlane(&["replay", "--alg", "none"]).stderr;
    let (_, names) = refusal.split_once("possible values: ").unwrap();
    let (names, _) = names.split_once(']').unwrap();
    let names: Vec<String> = names.split(", ").map(str::to_owned).collect();
    assert!(
        ["fifo", "drr", "qfq"]
            .iter()
            .all(|name| names.contains(&(*name).to_owned()))
    );
    names
}

const FLOWS: &str = "flow,weight,max_len\n0,1,1000\n1,2,1000\n";

const HEADER: &str = "start_ns,end_ns,flow,len,arrival_ns";

/// A directory of its own for a test, gone at its end.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    /// One with two flows in `flows.csv`.
    fn with_flows() -> Folder {
        let folder = Folder::new();
        folder.write("flows.csv", FLOWS);
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, content).unwrap();
        path
    }

    fn pipe(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        let made = Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        path
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    /// The names of all files, sorted.
    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.0.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// Runs `replay` with `arguments`, in which `@name` is a file of this folder.
    fn replay(&self, arguments: &str) -> Finished {
        let mut words = vec!["replay".to_owned()];
        words.extend(arguments.split_whitespace().map(|word| self.expand(word)));
        fairlane(&words.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn expand(&self, word: &str) -> String {
        match word.strip_prefix('@') {
            Some(name) => self.path(name).display().to_string(),
            None => word.to_owned(),
        }
    }
}

/// A row of the output: start, end, flow, length, arrival.
type Row = [u64; 5];

fn rows(output: &str) -> Vec<Row> {
    let mut lines = output.lines();
    assert_eq!(lines.next(), Some(HEADER));
    lines
        .map(|line| {
            let numbers: Vec<u64> = line.split(',').map(|n| n.parse().unwrap()).collect();
            numbers.try_into().unwrap()
        })
        .collect()
}

/// What a command prints where it succeeds, as rows.
#[track_caller]
fn departures(folder: &Folder, arguments: &str) -> Vec<Row> {
    rows(&folder.replay(arguments).success())
}

// Order and time

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
    // Flow 1 comes at the very end of the first packet, or a nanosecond later.
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
    // In row order, flow 0 would be first; its finish is later by far.
    folder.write("arrivals.csv", "time_ns,flow,len\n5,0,1000\n5,1,100\n");
    let sent = departures(
        &folder,
        "--alg qfq --rate 8mbit --flows @flows.csv @arrivals.csv",
    );
    assert_eq!(sent[0], [5, 100_005, 1, 100, 5]);
}

#[test]
fn rounding_does_not_add_up() {
    // A packet takes 8/3 ns at 3 Gbit/s: thousands of them end on time.
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
        // Around the time of a packet, so that the link is idle now and then.
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

    /// Checks all that does not depend on the algorithm.
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
        // The link in fractions of 1 / rate nanoseconds.
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
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

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
            // The link's work is the same at any time, whoever is served.
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

// Captures

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const ARP: u16 = 0x0806;
const UDP: u8 = 17;

/// A frame with an ether type and what follows, behind a VLAN tag if there is one.
fn ethernet(vlan: Option<u16>, ether_type: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2; 12];
    if let Some(vlan) = vlan {
        frame.extend(0x8100u16.to_be_bytes());
        frame.extend(vlan.to_be_bytes());
    }
    frame.extend(ether_type.to_be_bytes());
    frame.extend(payload);
    frame
}

/// A packet from 10.0.0.`source` to 10.0.1.1; `fragment` is the field of flags and offset.
fn ipv4(source: u8, protocol: u8, ports: [u16; 2], fragment: u16) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 28, 0, 1];
    packet.extend(fragment.to_be_bytes());
    packet.extend([64, protocol, 0, 0, 10, 0, 0, source, 10, 0, 1, 1]);
    packet.extend(ports.iter().flat_map(|port| port.to_be_bytes()));
    packet.extend([0, 8, 0, 0]);
    packet
}

/// A UDP packet from `2001:db8::source` to `2001:db8::ffff`.
fn ipv6(source: u8, ports: [u16; 2]) -> Vec<u8> {
    let address = |last: [u8; 2]| {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&[0x20, 1, 0xd, 0xb8]);
        bytes[14..].copy_from_slice(&last);
        bytes
    };
    let mut packet = vec![0x60, 0, 0, 0, 0, 8, UDP, 64];
    packet.extend(address([0, source]));
    packet.extend(address([0xff, 0xff]));
    packet.extend(ports.iter().flat_map(|port| port.to_be_bytes()));
    packet.extend([0, 8, 0, 0]);
    packet
}

fn udp(source: u8, port: u16) -> Vec<u8> {
    ethernet(None, IPV4, &ipv4(source, UDP, [port, 80], 0))
}

fn header() -> PcapHeader {
    PcapHeader {
        ts_resolution: TsResolution::NanoSecond,
        ..PcapHeader::default()
    }
}

/// A capture of packets, each with its time in nanoseconds and its length on the wire.
fn capture(header: PcapHeader, packets: &[(u64, u32, Vec<u8>)]) -> Vec<u8> {
    let mut writer = PcapWriter::with_header(Vec::new(), header).unwrap();
    for (time, length, bytes) in packets {
        let packet = PcapPacket::new(Duration::from_nanos(*time), *length, bytes);
        writer.write_packet(&packet).unwrap();
    }
    writer.into_writer()
}

/// Frames a microsecond apart.
fn frames(frames: &[Vec<u8>]) -> Vec<u8> {
    let packets: Vec<_> = (1..)
        .zip(frames)
        .map(|(number, frame)| (number * 1000, frame.len() as u32, frame.clone()))
        .collect();
    capture(header(), &packets)
}

/// The flows of the frames of a capture, in its order.
#[track_caller]
fn flows_of(capture: Vec<u8>, options: &str) -> Vec<u64> {
    let folder = Folder::new();
    folder.write("in.pcap", capture);
    let sent = departures(
        &folder,
        &format!("--alg fifo --rate 1gbit {options} @in.pcap"),
    );
    sent.iter().map(|row| row[2]).collect()
}

#[test]
fn flows_are_numbered_as_their_five_tuples_appear() {
    let frames = frames(&[
        udp(1, 5),
        ethernet(None, IPV6, &ipv6(1, [5, 80])),
        udp(1, 6),
        // The same five-tuple in a VLAN.
        ethernet(Some(7), IPV4, &ipv4(1, UDP, [5, 80], 0)),
        // The same ports over TCP.
        ethernet(None, IPV4, &ipv4(1, 6, [5, 80], 0)),
        // No ports in ICMP: what stands there does not count.
        ethernet(None, IPV4, &ipv4(1, 1, [1, 1], 0)),
        ethernet(None, IPV4, &ipv4(1, 1, [2, 2], 0)),
        ethernet(Some(9), IPV6, &ipv6(1, [5, 80])),
        ethernet(None, ARP, &[0; 28]),
        ethernet(None, 0x88cc, &[1; 50]),
        vec![1, 2, 3],
        udp(2, 5),
    ]);
    assert_eq!(
        flows_of(frames.clone(), ""),
        [0, 1, 2, 0, 3, 4, 4, 1, 5, 5, 5, 6]
    );
    assert_eq!(
        flows_of(frames.clone(), "--flow-by 5-tuple"),
        flows_of(frames.clone(), "")
    );
    assert_eq!(
        flows_of(frames, "--flow-by source"),
        [0, 1, 0, 0, 0, 0, 0, 1, 2, 2, 2, 3]
    );
}

#[test]
fn the_fragments_of_a_datagram_are_one_flow() {
    let fragment = |field| ethernet(None, IPV4, &ipv4(1, UDP, [5, 80], field));
    let (more, later) = (0x2000, 0x00b9);
    let packets = [udp(1, 5), fragment(more), fragment(later), udp(1, 5)];
    assert_eq!(flows_of(frames(&packets), ""), [0, 1, 1, 0]);
    // "Do not fragment" is no fragment.
    assert_eq!(flows_of(frames(&[udp(1, 5), fragment(0x4000)]), ""), [0, 0]);
}

#[test]
fn other_link_types_lead_to_the_same_flows() {
    let (v4, v6) = (ipv4(1, UDP, [5, 80], 0), ipv6(1, [5, 80]));
    let framed = |before: &[u8], packet: &[u8]| [before, packet].concat();
    let sll = |ether_type: u16| [&[0; 14][..], &ether_type.to_be_bytes()].concat();
    let sll2 = |ether_type: u16| [&ether_type.to_be_bytes()[..], &[0; 18]].concat();
    for (link, frames) in [
        (DataLink::RAW, [v4.clone(), v6.clone()]),
        (DataLink::Unknown(12), [v4.clone(), v6.clone()]),
        (
            DataLink::NULL,
            [framed(&[2, 0, 0, 0], &v4), framed(&[30, 0, 0, 0], &v6)],
        ),
        (
            DataLink::LINUX_SLL,
            [framed(&sll(IPV4), &v4), framed(&sll(IPV6), &v6)],
        ),
        (
            DataLink::LINUX_SLL2,
            [framed(&sll2(IPV4), &v4), framed(&sll2(IPV6), &v6)],
        ),
    ] {
        let folder = Folder::new();
        let packets: Vec<_> = frames.map(|f| (0, f.len() as u32, f)).into();
        let header = PcapHeader {
            datalink: link,
            ..header()
        };
        folder.write("in.pcap", capture(header, &packets));
        let output = folder.replay("--alg qfq --rate 1gbit @in.pcap --json");
        let report: serde_json::Value = serde_json::from_str(&output.success()).unwrap();
        let keys = [&report["flows"][0]["key"], &report["flows"][1]["key"]];
        assert_eq!(
            keys,
            [
                "10.0.0.1:5 > 10.0.1.1:80 udp",
                "[2001:db8::1]:5 > [2001:db8::ffff]:80 udp"
            ],
            "{link:?}"
        );
    }
}

#[test]
fn a_capture_leaves_as_a_capture_of_the_times_of_departure() {
    let packets: Vec<(u64, u32, Vec<u8>)> = vec![
        (1_700_000_000_000_001_000, 1500, udp(1, 5)),
        (1_700_000_000_000_001_000, 1500, udp(1, 5)),
        (
            1_700_000_000_000_002_000,
            70,
            ethernet(Some(3), IPV6, &ipv6(9, [1, 2])),
        ),
        (1_700_000_000_000_003_000, 64, ethernet(None, ARP, &[7; 28])),
        // It leaves in the next second.
        (1_700_000_001_999_999_000, 1500, udp(1, 5)),
    ];
    for resolution in [TsResolution::MicroSecond, TsResolution::NanoSecond] {
        for endianness in [Endianness::Big, Endianness::Little] {
            let folder = Folder::new();
            let header = PcapHeader {
                ts_resolution: resolution,
                endianness,
                snaplen: 2000,
                ..PcapHeader::default()
            };
            folder.write("in.pcap", capture(header, &packets));
            let arguments = "--alg qfq --rate 1gbit @in.pcap";
            let sent = departures(&folder, arguments);
            assert_eq!(
                sent[0][..2],
                [1_700_000_000_000_001_000, 1_700_000_000_000_013_000]
            );
            // One packet of 1500 bytes is ahead of the small ones, the other behind them.
            let flows: Vec<u64> = sent.iter().map(|row| row[2]).collect();
            assert!(
                matches!(flows[..], [0, 1, 2, 0, 0] | [0, 2, 1, 0, 0]),
                "{flows:?}"
            );

            assert_eq!(
                folder
                    .replay(&format!("{arguments} -o @out.pcap"))
                    .success(),
                ""
            );
            let bytes = fs::read(folder.path("out.pcap")).unwrap();
            let mut reader = PcapReader::new(&bytes[..]).unwrap();
            let found = reader.header();
            assert_eq!(found.ts_resolution, TsResolution::NanoSecond);
            assert_eq!((found.datalink, found.snaplen), (DataLink::ETHERNET, 2000));
            let mut taken = vec![false; packets.len()];
            for row in &sent {
                let packet = reader.next_packet().unwrap().unwrap();
                assert_eq!(packet.timestamp, Duration::from_nanos(row[1]));
                assert_eq!(u64::from(packet.orig_len), row[3]);
                let place = (0..packets.len())
                    .find(|&n| !taken[n] && packets[n].0 == row[4] && packets[n].2 == *packet.data);
                taken[place.expect("the packet that came")] = true;
            }
            assert!(reader.next_packet().is_none());
            // To a file of CSV it is what was printed.
            assert_eq!(
                folder.replay(&format!("{arguments} -o @out.csv")).success(),
                ""
            );
            assert_eq!(rows(&folder.read("out.csv")), sent);
        }
    }
}

#[test]
fn a_packet_captured_in_part_counts_as_on_the_wire_and_stays_as_it_is() {
    let folder = Folder::new();
    // Cut inside the ports, and longer than the snapshot length.
    let cut = udp(1, 5)[..36].to_vec();
    let header = PcapHeader {
        snaplen: 36,
        ..header()
    };
    let mut input = capture(header, &[]);
    for number in [1u8, 2] {
        input.extend([0, 0, 0, number, 0, 0, 0, 0, 0, 0, 0, 36, 0, 0, 3, 232]);
        input.extend(&cut);
    }
    folder.write("in.pcap", input);
    folder
        .replay("--alg drr --rate 8mbit @in.pcap -o @out.pcap")
        .success();
    let sent = departures(&folder, "--alg drr --rate 8mbit @in.pcap");
    assert_eq!(
        sent[0],
        [1_000_000_000, 1_001_000_000, 0, 1000, 1_000_000_000]
    );
    let bytes = fs::read(folder.path("out.pcap")).unwrap();
    let mut reader = PcapReader::new(&bytes[..]).unwrap();
    let packet = reader.next_raw_packet().unwrap().unwrap();
    assert_eq!((packet.ts_sec, packet.ts_frac), (1, 1_000_000));
    assert_eq!((packet.incl_len, packet.orig_len), (36, 1000));
    assert_eq!(packet.data, cut);
}

#[test]
fn a_departure_that_pcap_cannot_tell_is_refused() {
    let folder = Folder::new();
    let last = u64::from(u32::MAX) * 1_000_000_000 + 999_999_999;
    folder.write("in.pcap", capture(header(), &[(last, 42, udp(1, 5))]));
    let finished = folder.replay("--alg qfq --rate 1gbit @in.pcap -o @out.pcap");
    assert_eq!(finished.status.code(), Some(2));
    assert!(finished.stderr.contains("2106"), "{finished:?}");
    assert_eq!(folder.names(), ["in.pcap"]);
    let sent = departures(&folder, "--alg qfq --rate 1gbit @in.pcap");
    assert_eq!(sent, [[last, last + 336, 0, 42, last]]);
}

#[test]
fn rows_of_flows_are_for_flows_as_they_appear() {
    let folder = Folder::new();
    // Flow 1, the second to appear, has the weight that lets it pass.
    folder.write("flows.csv", "flow,weight,max_len\n1,100,100\n0,1,1500\n");
    let mut packets = vec![(0, 1500, udp(1, 5)); 3];
    packets.extend(vec![(0, 100, udp(2, 5)); 2]);
    folder.write("in.pcap", capture(header(), &packets));
    let sent = departures(
        &folder,
        "--alg qfq --rate 1gbit --flows @flows.csv @in.pcap",
    );
    let flows: Vec<u64> = sent.iter().map(|row| row[2]).collect();
    assert_eq!(flows, [1, 1, 0, 0, 0]);
}

// Bad input

/// `replay` with `arguments` fails with one sentence that begins with `place` and has
/// all of `says`, and leaves files as they were.
#[track_caller]
fn refuses(folder: &Folder, arguments: &str, place: &str, says: &[&str]) {
    folder.write("existing.csv", "precious");
    let before = folder.names();
    for output in [
        "",
        "-o @new.csv",
        "-o @existing.csv",
        "--report -o @new.csv",
    ] {
        let finished = folder.replay(&format!("{arguments} {output}"));
        assert_eq!(finished.status.code(), Some(2), "{arguments}: {finished:?}");
        let place = match place.strip_prefix('@') {
            Some(_) => folder.expand(place),
            None => place.to_owned(),
        };
        let sentence = finished.stderr.strip_suffix('\n').unwrap();
        assert!(
            sentence.starts_with(&format!("fairlane: {place}")) && !sentence.contains('\n'),
            "not at {place}: {:?}",
            finished.stderr
        );
        for word in says {
            assert!(sentence.contains(word), "{word} is not in: {sentence}");
        }
        if !output.is_empty() {
            assert_eq!(finished.stdout, "");
        }
        assert_eq!(folder.names(), before, "{arguments}");
        assert_eq!(folder.read("existing.csv"), "precious");
    }
}

const WITH_FLOWS: &str = "--alg qfq --rate 8mbit --flows @flows.csv @arrivals.csv";

#[test]
fn a_bad_row_of_arrivals_is_named() {
    for (rows, line, says) in [
        ("", "", &["empty", "time_ns,flow,len"][..]),
        ("time_ns,flow,len\n0,0,1:\n", ":2:", &["len '1:'"]),
        ("\n\n", "", &["empty"]),
        ("time_ns,flow\n1,1\n", ":1:", &["lacks", "len"]),
        ("time_ns,flow,len,x\n", ":1:", &["extra column 'x'"]),
        ("flow,time_ns,len\n", ":1:", &["order"]),
        ("0,0,100\n", ":1:", &["lacks", "time_ns"]),
        (
            "time_ns,flow,len\n0,0,100\n5,0\n",
            ":3:",
            &["len", "missing"],
        ),
        ("time_ns,flow,len\n\n\n5,0\n", ":4:", &["len", "missing"]),
        (
            "time_ns,flow,len\r\n0,0,1\r\n5,0,1,9\r\n",
            ":3:",
            &["'9'", "extra"],
        ),
        (
            "time_ns,flow,len\n0,0,x\n",
            ":2:",
            &["len 'x'", "whole number"],
        ),
        (
            "time_ns,flow,len\n-1,0,1\n",
            ":2:",
            &["time_ns '-1'", "0 to"],
        ),
        ("time_ns,flow,len\n,0,1\n", ":2:", &["time_ns ''"]),
        ("time_ns,flow,len\n1.5,0,1\n", ":2:", &["time_ns '1.5'"]),
        (
            "time_ns,flow,len\n18446744073709551616,0,1\n",
            ":2:",
            &["18446744073709551615"],
        ),
        (
            "time_ns,flow,len\n7,0,1\n7,0,1\n6,0,1\n",
            ":4:",
            &["time_ns 6", "before the 7", "in order"],
        ),
        ("time_ns,flow,len\n0,2,1\n", ":2:", &["no flow 2", "0 to 1"]),
        (
            "time_ns,flow,len\n0,4294967296,1\n",
            ":2:",
            &["no flow 4294967296"],
        ),
        (
            "time_ns,flow,len\n0,0,0\n",
            ":2:",
            &["len 0", "from 1", "1000"],
        ),
        (
            "time_ns,flow,len\n0,1,1001\n",
            ":2:",
            &["len 1001", "flow 1", "1000"],
        ),
        (
            "time_ns,flow,len\n0,0,4294967297\n",
            ":2:",
            &["len 4294967297", "1000"],
        ),
    ] {
        let folder = Folder::with_flows();
        folder.write("arrivals.csv", rows);
        refuses(&folder, WITH_FLOWS, &format!("@arrivals.csv{line}"), says);
    }
}

#[test]
fn a_bad_row_after_many_good_ones_leaves_no_output() {
    let folder = Folder::with_flows();
    let good = "1,0,100\n".repeat(50_000);
    folder.write("arrivals.csv", format!("time_ns,flow,len\n{good}0,0,100\n"));
    refuses(&folder, WITH_FLOWS, "@arrivals.csv:50002:", &["time_ns 0"]);
}

#[test]
fn a_departure_that_no_number_can_tell_is_refused() {
    let folder = Folder::with_flows();
    let last = u64::MAX;
    folder.write("arrivals.csv", format!("time_ns,flow,len\n{last},1,1\n"));
    refuses(&folder, WITH_FLOWS, "", &["flow 1", &last.to_string()]);
}

#[test]
fn a_bad_row_of_flows_is_named() {
    for (rows, line, says) in [
        ("", "", &["empty", "flow,weight,max_len"][..]),
        ("flow,weight,max_len\n", "", &["no flow"]),
        ("flow,weight\n0,1\n", ":1:", &["lacks", "max_len"]),
        (
            "flow,weight,max_len,name\n",
            ":1:",
            &["extra column 'name'"],
        ),
        ("flow,weight,max_len\n0,1\n", ":2:", &["max_len", "missing"]),
        ("flow,weight,max_len\n0,1,9,9\n", ":2:", &["'9'", "extra"]),
        ("flow,weight,max_len\n0,one,9\n", ":2:", &["weight 'one'"]),
        (
            "flow,weight,max_len\n0,0,9\n",
            ":2:",
            &["weight 0", "1 to 1000000"],
        ),
        (
            "flow,weight,max_len\n0,1000000,9\n1,1000001,9\n",
            ":3:",
            &["weight 1000001", "1 to 1000000"],
        ),
        (
            "flow,weight,max_len\n0,1,0\n",
            ":2:",
            &["max_len 0", "1 to 65535"],
        ),
        (
            "flow,weight,max_len\n0,1,65536\n",
            ":2:",
            &["max_len 65536", "1 to 65535"],
        ),
        (
            "flow,weight,max_len\n0,1,9\n1,1,9\n0,1,9\n",
            ":4:",
            &["flow 0", "line 2"],
        ),
        (
            "flow,weight,max_len\n0,1,9\n2,1,9\n",
            ":3:",
            &["flow 2", "0 to 1"],
        ),
        ("flow,weight,max_len\n1,1,9\n", ":2:", &["flow 1", "gap"]),
    ] {
        let folder = Folder::new();
        folder.write("flows.csv", rows);
        folder.write("arrivals.csv", "time_ns,flow,len\n0,0,1\n");
        refuses(&folder, WITH_FLOWS, &format!("@flows.csv{line}"), says);
    }
}

#[test]
fn a_packet_with_its_overhead_is_no_longer_than_packets_are() {
    let folder = Folder::new();
    folder.write("flows.csv", "flow,weight,max_len\n0,1,65535\n");
    folder.write("arrivals.csv", "time_ns,flow,len\n0,0,65511\n0,0,65512\n");
    refuses(
        &folder,
        &format!("{WITH_FLOWS} --overhead 24"),
        "@arrivals.csv:3:",
        &["len 65512", "overhead of 24", "65535"],
    );
}

#[test]
fn a_bad_capture_is_named_with_the_packet() {
    let good = capture(
        header(),
        &[
            (1000, 42, udp(1, 5)),
            (1000, 42, udp(2, 5)),
            (2000, 42, udp(1, 5)),
        ],
    );
    let record = 16 + 42;
    let changed = |at: usize, bytes: &[u8]| {
        let mut capture = good.clone();
        capture[at..at + bytes.len()].copy_from_slice(bytes);
        capture
    };
    let second = 24 + record;
    for (capture, place, says) in [
        (good[..0].to_vec(), "", &["header", "cut off"][..]),
        (good[..3].to_vec(), "", &["header", "cut off"]),
        (good[..23].to_vec(), "", &["header", "cut off"]),
        (good[..25].to_vec(), " packet 1", &["cut off"]),
        (good[..second + 15].to_vec(), " packet 2", &["cut off"]),
        (good[..good.len() - 1].to_vec(), " packet 3", &["cut off"]),
        (changed(0, b"time"), "", &["not a pcap"]),
        (changed(4, &[0, 3]), "", &["version 3"]),
        (
            changed(20, &[0, 0, 0, 147]),
            "",
            &["link type 147", "Ethernet"],
        ),
        // The second packet is a nanosecond early.
        (
            changed(second + 6, &[3, 0xe7]),
            " packet 2",
            &["0.000000999", "0.000001000", "in order"],
        ),
        (changed(second + 4, &[0xff; 4]), " packet 2", &["999999999"]),
        (changed(second + 8, &[0xff; 4]), " packet 2", &["cut off"]),
        (
            changed(second + 12, &[0, 0, 0, 41]),
            " packet 2",
            &["of 41"],
        ),
        (
            changed(second + 12, &[0, 1, 0, 0]),
            " packet 2",
            &["len 65536", "65535"],
        ),
        (
            changed(0, &[0x0a, 0x0d, 0x0d, 0x0a]),
            "",
            &["pcapng", "editcap"],
        ),
    ] {
        let folder = Folder::new();
        folder.write("in.pcap", capture);
        refuses(
            &folder,
            "--alg drr --rate 1gbit @in.pcap",
            &format!("@in.pcap:{place}"),
            says,
        );
    }
    let folder = Folder::new();
    folder.write("in.pcap", &good[..good.len() - 1]);
    let finished = folder.replay("--alg drr --rate 1gbit @in.pcap -o @out.pcap");
    assert_eq!(finished.status.code(), Some(2));
    assert_eq!(folder.names(), ["in.pcap"]);
}

#[test]
fn a_flow_beyond_the_table_is_named() {
    let folder = Folder::with_flows();
    folder.write(
        "in.pcap",
        frames(&[udp(1, 5), udp(2, 5), udp(1, 5), udp(3, 5)]),
    );
    refuses(
        &folder,
        "--alg drr --rate 1gbit --flows @flows.csv @in.pcap",
        "@in.pcap: packet 4:",
        &["flow 2", "10.0.0.3:5 > 10.0.1.1:80 udp", "beyond the 2"],
    );
}

#[test]
fn a_bad_option_is_named() {
    let folder = Folder::with_flows();
    folder.write("arrivals.csv", "time_ns,flow,len\n0,0,1\n");
    let input = "--flows @flows.csv @arrivals.csv";
    for (options, says) in [
        ("--alg qfq --rate 0mbit", &["--rate", "1kbit and 1tbit"][..]),
        ("--alg qfq --rate 100", &["--rate", "unit"]),
        ("--alg wfq --rate 1mbit", &["--alg", "'wfq'", "qfq"]),
        ("--alg qfq", &["--rate"]),
        ("--rate 1mbit", &["--alg"]),
        (
            "--alg qfq --rate 1mbit --aggregate 0",
            &["--aggregate", "'0'"],
        ),
        (
            "--alg qfq --rate 1mbit --overhead 65535",
            &["--overhead", "65534"],
        ),
        ("--alg qfq --rate 1mbit --overhead -1", &["'-1'"]),
        (
            "--alg qfq --rate 1mbit --flow-by port",
            &["--flow-by", "5-tuple, source"],
        ),
        (
            "--alg qfq --rate 1mbit --flow-by source",
            &["--flow-by", "capture"],
        ),
    ] {
        refuses(&folder, &format!("{options} {input}"), "", says);
    }
    refuses(
        &folder,
        "--alg qfq --rate 1mbit @arrivals.csv",
        "@arrivals.csv: ",
        &["--flows"],
    );
    refuses(
        &folder,
        "--alg qfq --rate 1mbit",
        "",
        &["ARRIVALS.csv|IN.pcap"],
    );
}

#[test]
fn a_missing_file_is_named() {
    let folder = Folder::with_flows();
    let missing = folder.expand("@missing.csv");
    for arguments in [
        "--flows @missing.csv @flows.csv",
        "--flows @flows.csv @missing.csv",
    ] {
        refuses(
            &folder,
            &format!("--alg qfq --rate 1mbit {arguments}"),
            "opening ",
            &[&missing, "No such file"],
        );
    }
    let folder = Folder::with_flows();
    let name = folder.0.path().to_str().unwrap();
    let arguments = format!("--alg qfq --rate 1mbit --flows @flows.csv {name}");
    refuses(&folder, &arguments, "reading ", &[name, "directory"]);
}

#[test]
fn an_output_that_cannot_be_is_named() {
    let folder = Folder::with_flows();
    folder.write("arrivals.csv", "time_ns,flow,len\n0,0,1\n");
    std::os::unix::fs::symlink(folder.path("arrivals.csv"), folder.path("link.csv")).unwrap();
    let before = folder.names();
    let path = folder.0.path().to_str().unwrap();
    for (output, says) in [
        ("@arrivals.csv", "this is an input"),
        ("@flows.csv", "this is an input"),
        ("@link.csv", "this is an input"),
        ("@out.pcap", "takes a capture"),
        ("@none/out.csv", "creating "),
        (path, "creating "),
    ] {
        let finished = folder.replay(&format!("{WITH_FLOWS} -o {output}"));
        assert_eq!(finished.status.code(), Some(2), "{output}");
        assert_eq!(finished.stderr.lines().count(), 1, "{finished:?}");
        assert!(finished.stderr.contains(says), "{output}: {finished:?}");
        assert!(
            finished.stderr.contains(&folder.expand(output)),
            "{finished:?}"
        );
        assert_eq!(folder.names(), before);
    }
    assert_eq!(folder.read("arrivals.csv"), "time_ns,flow,len\n0,0,1\n");
    assert_eq!(folder.read("flows.csv"), FLOWS);
}

// Output

#[test]
fn an_existing_output_is_replaced_and_keeps_its_permissions_and_links() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::with_flows();
    folder.write("arrivals.csv", "time_ns,flow,len\n0,0,1\n");
    let old = folder.write("old.csv", "before");
    fs::set_permissions(&old, fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink(&old, folder.path("link.csv")).unwrap();
    folder
        .replay(&format!("{WITH_FLOWS} -o @link.csv"))
        .success();
    assert!(folder.read("old.csv").starts_with(HEADER));
    assert!(
        fs::symlink_metadata(folder.path("link.csv"))
            .unwrap()
            .is_symlink()
    );
    let mode = fs::metadata(&old).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
    // A new file is as readable as any other that is created here.
    folder
        .replay(&format!("{WITH_FLOWS} -o @new.csv"))
        .success();
    let mode = |name| {
        fs::metadata(folder.path(name))
            .unwrap()
            .permissions()
            .mode()
    };
    assert_eq!(mode("new.csv"), mode("flows.csv"));
}

#[test]
fn a_pipe_is_written_to_and_not_replaced() {
    use std::os::unix::fs::FileTypeExt;
    let folder = Folder::with_flows();
    folder.write("arrivals.csv", "time_ns,flow,len\n0,0,1\n");
    let pipe = folder.pipe("pipe");
    let reader = {
        let pipe = pipe.clone();
        thread::spawn(move || fs::read_to_string(pipe).unwrap())
    };
    let finished = folder.replay(&format!("{WITH_FLOWS} -o @pipe"));
    let kind = fs::symlink_metadata(&pipe).unwrap().file_type();
    assert!(finished.status.success() && kind.is_fifo(), "{finished:?}");
    assert!(reader.join().unwrap().starts_with(HEADER));
}

#[test]
fn an_interrupted_replay_leaves_nothing() {
    let folder = Folder::with_flows();
    folder.write("out.csv", "precious");
    // Its end never comes.
    let pipe = folder.pipe("arrivals.csv");
    let arguments: Vec<String> = format!("replay {WITH_FLOWS} -o @out.csv")
        .split_whitespace()
        .map(|word| folder.expand(word))
        .collect();
    for signal in ["INT", "TERM"] {
        let running = {
            let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
            program::start(&words)
        };
        let mut input = fs::OpenOptions::new().write(true).open(&pipe).unwrap();
        std::io::Write::write_all(&mut input, b"time_ns,flow,len\n0,0,1\n").unwrap();
        while folder.names().len() == 3 {
            thread::sleep(Duration::from_millis(1));
        }
        let mut running = running;
        running.signal(signal);
        let finished = running.finish();
        drop(input);
        assert_eq!(finished.status.code(), Some(130), "{finished:?}");
        assert_eq!(finished.stderr.lines().count(), 1, "{finished:?}");
        assert!(
            finished.stderr.contains("out.csv is as it was"),
            "{finished:?}"
        );
        assert_eq!(folder.names(), ["arrivals.csv", "flows.csv", "out.csv"]);
        assert_eq!(folder.read("out.csv"), "precious");
    }
}

#[test]
fn a_reader_who_leaves_is_no_error() {
    let folder = Folder::with_flows();
    let many = "0,0,100\n".repeat(100_000);
    folder.write("arrivals.csv", format!("time_ns,flow,len\n{many}"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_fairlane"));
    command.arg("replay");
    command.args(
        WITH_FLOWS
            .split_whitespace()
            .map(|word| folder.expand(word)),
    );
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(output.stderr, b"");
}

// Report

/// Flows of weights 1 to `flows`, each with more than its share to send.
fn busy(folder: &Folder, flows: u64) {
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
    // Its packet ends after 4 ms, at half the rate it would have taken 2; and until it
    // starts, half of the 3000 bytes sent were due to it.
    assert_eq!(second["t_wfi_ns"], 2e6);
    assert_eq!(second["b_wfi_bytes"], 1500.0);
}

#[test]
fn the_bounds_are_those_of_a_link_that_may_be_busy() {
    let folder = Folder::with_flows();
    folder.write("arrivals.csv", "time_ns,flow,len\n0,0,1000\n");
    let arguments = format!("{} --json", WITH_FLOWS.replace("qfq", "drr"));
    let output = folder.replay(&arguments).success();
    let report: serde_json::Value = serde_json::from_str(&output).unwrap();
    // The other's quantum of 2000 bytes, one more packet of its own, and one packet that
    // the link has begun; for the service a third of it, and two thirds of a packet.
    let flow = &report["flows"][0];
    assert_eq!(flow["t_wfi_bound_ns"], 4_000_000);
    let service = flow["b_wfi_bound_bytes"].as_f64().unwrap();
    assert!((service - 2000.0).abs() < 1e-6, "{flow}");
}

#[test]
fn what_is_measured_keeps_to_the_bounds() {
    let folder = Folder::new();
    busy(&folder, 10);
    for alg in algorithms() {
        for overhead in [0, 24] {
            let arguments = WITH_FLOWS.replace("qfq", &alg);
            check_report(&folder, &format!("{arguments} --overhead {overhead}"), &alg);
        }
    }
}

/// T-WFI in ns and B-WFI in bytes of a flow of weight `number + 1` among ten, at a byte a
/// microsecond, from their definitions. A packet waits from its arrival until it starts.
fn indexes(sent: &[Row], number: u64, overhead: u64) -> (f64, f64) {
    let share = (number + 1) as f64 / 55.0;
    // Bytes that have left by a time, of all packets in a list.
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
        // Owed since the start of this backlog or the end of one of its packets, until the
        // next of its packets starts.
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
        let bounded = ["drr", "qfq", "qfq+"].contains(&alg);
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
        most_lag = time.min(service).max(most_lag);
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
    // Without bounds it says so.
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
    // Two lines of header.
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
        "cannot be recalled",
        "Examples:",
        "examples/replay/flows.csv",
    ] {
        assert!(help.contains(part), "{part} is not in:\n{help}");
    }
}
