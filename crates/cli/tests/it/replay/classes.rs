//! Replays through the classes of a site's link.

use super::captures::{capture, ethernet, header, ipv4, udp};
use super::*;
use fairlane_control::view::drops;
use serde_json::Value;

/// Two agencies, one after the other in the file, followed by their classes.
const SITE: &str = "[[link]]\nname = \"wan\"\nrate = \"8mbit\"\nalgorithm = \"wf2q+\"\nclass = [\n\
    { name = \"X\", rate = \"6mbit\", algorithm = \"wf2q+\" },\n\
    { name = \"Y\", rate = \"2mbit\", algorithm = \"wf2q+\" },\n\
    { name = \"x-calls\", parent = \"X\", ceil = \"1mbit\", queue = \"tail-drop\" },\n\
    { name = \"y-users\", parent = \"Y\", per = \"source-ip\" },\n\
    { name = \"x-rest\", parent = \"X\", default = true, limit = { packets = 5 } },\n]\n\
    filter = [{ class = \"x-calls\", source = \"10.0.0.1\" }, { class = \"y-users\", source = \"10.0.0.0/24\" }]\n";

const CONFIG: &str = "--config @site.toml";

fn folder() -> Folder {
    let folder = Folder::with_flows();
    folder.write("site.toml", SITE);
    folder
}

#[track_caller]
fn report(folder: &Folder, arguments: &str) -> Value {
    let output = folder.replay(&format!("{CONFIG} {arguments} --json"));
    serde_json::from_str(&output.success()).unwrap()
}

fn class<'a>(report: &'a Value, name: &str) -> &'a Value {
    let classes = report["classes"].as_array().unwrap();
    classes.iter().find(|class| class["name"] == name).unwrap()
}

#[test]
fn a_class_is_known_by_its_name_and_by_its_number_in_the_file() {
    let folder = folder();
    let arrivals = "time_ns,flow,len\n0,x-rest,1000\n0,3,1000\n5,y-users,1000\n7,4,500\n";
    folder.write("a.csv", arrivals);
    let sent = departures(&folder, &format!("{CONFIG} @a.csv"));
    // X had the whole link for its first packet: its second is eligible after Y's.
    assert_eq!(
        sent,
        [
            [0, 1_000_000, 4, 1000, 0],
            [1_000_000, 2_000_000, 3, 1000, 0],
            [2_000_000, 2_500_000, 4, 500, 7],
            [2_500_000, 3_500_000, 3, 1000, 5],
        ]
    );
    folder.write(
        "b.csv",
        arrivals
            .replace("x-rest", " 4 ")
            .replace(",3,", ", y-users,"),
    );
    assert_eq!(departures(&folder, &format!("{CONFIG} @b.csv")), sent);
    assert_eq!(
        departures(&folder, &format!("{CONFIG} --link wan @b.csv")),
        sent
    );
}

#[test]
fn agencies_have_their_parts_and_flows_of_a_class_are_equal() {
    let folder = folder();
    let mut arrivals = "time_ns,flow,len,key\n".to_owned();
    for _ in 0..500 {
        arrivals += "0,y-users,1001,7\n0,y-users,1002,7\n0,y-users,1003,8\n";
    }
    for number in 0..1000 {
        arrivals += &format!("{},x-rest,1000,0\n", number * 1_000_000);
    }
    folder.write("a.csv", arrivals);
    let sent = departures(&folder, &format!("{CONFIG} @a.csv"));
    let early = sent.iter().filter(|row| row[1] <= 800_000_000);
    let bytes = |lens: &[u64]| -> u64 {
        early
            .clone()
            .filter(|row| lens.contains(&row[3]))
            .map(|row| row[3])
            .sum()
    };
    let (x, first, second) = (bytes(&[1000]), bytes(&[1001, 1002]), bytes(&[1003]));
    assert!(x.abs_diff(600_000) < 5_000, "{x}");
    assert!(first.abs_diff(second) < 5_000, "{first} {second}");
}

#[test]
fn a_ceiling_holds_packets_back_while_the_link_is_idle() {
    let folder = folder();
    let row = "0,x-calls,1000\n";
    folder.write("a.csv", format!("time_ns,flow,len\n{}", row.repeat(1000)));
    let sent = departures(&folder, &format!("{CONFIG} @a.csv"));
    assert_eq!(sent.len(), 1000);
    // 1 Mbit/s: a packet every 8 ms, once the burst is used up.
    let (middle, last) = (sent[499][1], sent[999][1]);
    assert_eq!((last - middle) / 1_000, 500 * 8_000);
}

#[test]
fn what_the_limits_refuse_does_not_depart_and_is_counted() {
    let folder = folder();
    let row = "0,x-rest,1000\n";
    folder.write("a.csv", format!("time_ns,flow,len\n{}", row.repeat(20)));
    let report = report(&folder, "@a.csv -o @out.csv");
    let rest = class(&report, "x-rest");
    assert_eq!(
        (&rest["sent_packets"], &rest["drops"]["full"]),
        (&5.into(), &15.into())
    );
    assert_eq!(class(&report, "X")["sent_packets"], 5);
    assert_eq!(
        (&report["packets"], &report["bytes"]),
        (&5.into(), &5000.into())
    );
    assert_eq!(rows(&folder.read("out.csv")).len(), 5);
    assert_eq!(rest["number"], 4);
}

#[test]
fn packets_of_a_capture_go_where_the_filters_send_them() {
    let folder = folder();
    let packets = |number: u64, frame: Vec<u8>| (number * 10_000_000, 1500, frame);
    let arp = ethernet(None, 0x0806, &[0; 28]);
    let all = [
        udp(1, 5),
        udp(2, 5),
        udp(77, 9),
        arp,
        ethernet(None, 0x0800, &[0x45; 10]),
    ];
    let mut all: Vec<_> = (0..)
        .zip(all)
        .map(|(number, frame)| packets(number, frame))
        .collect();
    // Too long for the link.
    all.push((90_000_000, 1523, udp(2, 5)));
    folder.write("in.pcap", capture(header(), &all));
    let finished = folder.replay(&format!("{CONFIG} @in.pcap"));
    assert!(finished.stderr.ends_with("can be cut): 1\n"));
    let flows: Vec<u64> = rows(&finished.stdout).iter().map(|row| row[2]).collect();
    assert_eq!(flows, [2, 3, 3, 4, 4]);
    let finished = folder.replay(&format!("{CONFIG} @in.pcap --json"));
    let report: Value = serde_json::from_str(&finished.stdout).unwrap();
    assert_eq!(class(&report, "y-users")["drops"]["full"], 1);
    assert_eq!(
        (&report["malformed"], &report["unmatched"]),
        (&1.into(), &1.into())
    );
    assert_eq!(report["oversized"], 1);
    assert_eq!(class(&report, "y-users")["flows"], 2);
    // The same without Ethernet, and from any interface at once.
    let ip: Vec<_> = [1, 2].map(|source| ipv4(source, 17, [5, 80], 0)).into();
    for (link, before) in [
        (DataLink::RAW, vec![]),
        (DataLink::NULL, vec![2, 0, 0, 0]),
        (DataLink::LINUX_SLL, [vec![0; 14], vec![8, 0]].concat()),
    ] {
        let framed = ip.iter().map(|packet| [&before[..], packet].concat());
        let framed: Vec<_> = framed.map(|frame| (0, frame.len() as u32, frame)).collect();
        let header = PcapHeader {
            datalink: link,
            ..header()
        };
        folder.write("in.pcap", capture(header, &framed));
        let sent = departures(&folder, &format!("{CONFIG} @in.pcap"));
        let mut flows: Vec<u64> = sent.iter().map(|row| row[2]).collect();
        flows.sort();
        assert_eq!(flows, [2, 3], "{link:?}");
    }
}

/// 250 datagrams in two fragments each, in a class with a guaranteed part of a link that others fill: all arrive
/// intact, since second fragments belong to the class of the first ones. Orphan fragments are counted in the class that
/// they go to.
#[test]
fn fragments_go_where_the_first_of_their_datagram_went() {
    let folder = Folder::new();
    folder.write(
        "site.toml",
        "[[link]]\nname = 'wan'\nrate = '8mbit'\n\
         class = [{ name = 'voice', rate = '4mbit' }, { name = 'rest', default = true, limit = { packets = 20 } }]\n\
         filter = [{ class = 'voice', protocol = 'udp', destination-port = 80 }]\n",
    );
    let part = |id: u16, place: u16| {
        let mut packet = ipv4(1, 17, [5, 80], place);
        packet[4..6].copy_from_slice(&id.to_be_bytes());
        ethernet(None, 0x0800, &packet)
    };
    let bulk = || ethernet(None, 0x0800, &ipv4(2, 17, [5, 81], 0));
    let mut all = Vec::new();
    for id in 0..250 {
        let at = 10_000_000 * u64::from(id);
        all.extend((0..10).map(|_| (at, 1_500, bulk())));
        all.extend([(at, 42, part(id, 0x2000)), (at, 42, part(id, 1))]);
    }
    all.extend([
        (2_500_000_000, 42, part(999, 1)),
        (2_500_000_000, 42, part(998, 2)),
    ]);
    folder.write("in.pcap", capture(header(), &all));
    let report = report(&folder, "@in.pcap");
    let (voice, rest) = (class(&report, "voice"), class(&report, "rest"));
    assert_eq!(
        (&voice["sent_packets"], &voice["drops"]["full"]),
        (&500.into(), &0.into())
    );
    assert_eq!(voice["orphan_fragments"], 0);
    assert!(rest["drops"]["full"].as_u64() > Some(250), "{rest:#}");
    assert_eq!(rest["orphan_fragments"], 2);
}

#[test]
fn a_packet_captured_in_part_is_sorted_by_its_headers() {
    let folder = folder();
    let mut frame = udp(1, 5);
    // 1486 bytes of IP, of which only the headers were captured.
    frame[16..18].copy_from_slice(&1486u16.to_be_bytes());
    assert_eq!(frame.len(), 42);
    folder.write("in.pcap", capture(header(), &[(0, 1500, frame)]));
    let sent = departures(&folder, &format!("{CONFIG} @in.pcap"));
    assert_eq!(sent, [[0, 1_500_000, 2, 1500, 0]]);
    assert_eq!(report(&folder, "@in.pcap")["malformed"], 0);
}

#[test]
fn marks_are_in_the_capture_of_what_left() {
    let folder = folder();
    folder.write("site.toml", "[[link]]\nname = \"l\"\nrate = \"10mbit\"\nclass = [{ name = \"a\", queue = \"codel\", default = true }]\n");
    let mut capable = udp(1, 5);
    capable[15] = 2;
    let mut packets = Vec::new();
    for number in 0..800 {
        let frame = if number % 2 == 0 {
            capable.clone()
        } else {
            udp(1, 5)
        };
        packets.push((number * 600_000, 1500, frame));
    }
    folder.write("in.pcap", capture(header(), &packets));
    let report = report(&folder, "@in.pcap -o @out.pcap");
    let bytes = fs::read(folder.path("out.pcap")).unwrap();
    let mut reader = PcapReader::new(&bytes[..]).unwrap();
    let (mut marked, mut left) = (0, 0);
    while let Some(packet) = reader.next_packet() {
        let packet = packet.unwrap();
        marked += u64::from(packet.data[15] & 3 == 3);
        left += 1;
    }
    let a = class(&report, "a");
    assert!(marked > 3, "{a}");
    assert_eq!(a["marked"], marked);
    assert!(a["drops"]["managed"].as_u64() > Some(3), "{a}");
    assert_eq!(a["drops"]["managed"].as_u64().unwrap() + left, 800);
}

#[test]
fn a_report_has_each_class_and_its_bound() {
    let folder = folder();
    folder.write("a.csv", "time_ns,flow,len\n0,x-rest,1000\n0,x-rest,1000\n");
    let finished = folder.replay(&format!("{CONFIG} @a.csv -o @out.csv --report"));
    let text = finished.success();
    for word in [
        "x-rest",
        "6mbit",
        "bound",
        "wan at 8mbit: wf2q+",
        "2 packets, 2000 bytes",
    ] {
        assert!(text.contains(word), "{word}: {text}");
    }
    let report = report(&folder, "@a.csv");
    let rest = class(&report, "x-rest");
    assert_eq!(
        (&rest["conforming_packets"], &rest["conforming_max_us"]),
        (&1.into(), &1000.0.into())
    );
    assert_eq!(rest["delay_us"]["max"], 2000.0);
}

#[test]
fn what_does_not_fit_a_site_is_named() {
    for (arguments, place, words) in [
        (
            "--alg qfq @a.csv",
            "",
            &["--config", "cannot be used with", "--alg"][..],
        ),
        ("--rate 1mbit @a.csv", "", &["--config", "--rate"]),
        ("--flows @flows.csv @a.csv", "", &["--config", "--flows"]),
        ("--overhead 24 @a.csv", "", &["--config", "--overhead"]),
        ("--link up @a.csv", "", &["link 'up' does not exist", "wan"]),
        ("@a.csv", "@a.csv:2:", &["flow 'z'", "link 'wan'", "0 to 4"]),
        ("@b.csv", "@b.csv:3:", &["class 'Y' has children"]),
        ("@c.csv", "@c.csv:2:", &["len '1523'", "1 to 1522"]),
        (
            "@d.csv",
            "@d.csv:1:",
            &["extra column 'note'", "time_ns,flow,len[,key]"],
        ),
        ("@e.csv", "@e.csv:2:", &["column key is missing"]),
    ] {
        let folder = folder();
        folder.write("a.csv", "time_ns,flow,len\n0,z,5\n");
        folder.write("b.csv", "time_ns,flow,len\n0,x-rest,5\n0,1,5\n");
        folder.write("c.csv", "time_ns,flow,len\n0,x-rest,1523\n");
        folder.write("d.csv", "time_ns,flow,len,note\n");
        folder.write("e.csv", "time_ns,flow,len,key\n0,x-rest,5\n");
        refuses(&folder, &format!("{CONFIG} {arguments}"), place, words);
    }
    let folder = folder();
    folder.write("a.csv", "time_ns,flow,len\n");
    let finished = folder.replay("--link wan --alg qfq --rate 1mbit --flows @flows.csv @a.csv");
    assert_eq!(finished.status.code(), Some(2));
    assert!(finished.stderr.contains("--link"), "{finished:?}");
    // As in `check`, with the place in the file.
    folder.write("site.toml", SITE.replace("2mbit", "3mbit"));
    let finished = folder.replay(&format!("{CONFIG} @a.csv"));
    assert_eq!(finished.status.code(), Some(2));
    let path = folder.path("site.toml").display().to_string();
    assert!(
        finished.stderr.starts_with(&format!("{path}:")),
        "{finished:?}"
    );
}

/// The README's site, on a line of 20 Mbit/s.
fn readme() -> String {
    let text = include_str!("../../../../../README.md");
    let from = text.find("# site.toml").unwrap();
    let text = &text[from..];
    let text = &text[..text.find("```").unwrap()];
    text.replace("38mbit", "20mbit")
}

/// A link of a site: the class of voice, and that of flows that send at the rate of a port.
struct Beside<'a> {
    site: &'a str,
    link: &'a str,
    flooded: &'a str,
    /// The port's rate in bytes a millisecond.
    port: u64,
}

impl<'a> Beside<'a> {
    /// The README's classes, on a port of 100 Mbit/s.
    fn readme(site: &'a str) -> Beside<'a> {
        Beside {
            site,
            link: "up",
            flooded: "everybody",
            port: 12_500,
        }
    }

    /// Replays voice of 1 Mbit/s, a packet a millisecond, together with flows that fill the port with packets of
    /// `flood` bytes in turn; `key` is the flow of a packet. Returns the packets sent and lost of each.
    fn voice(&self, packets: u64, flood: u64, key: impl Fn(u64) -> u64) -> [(u64, u64); 2] {
        let folder = Folder::with_flows();
        folder.write("site.toml", self.site);
        let mut arrivals = String::from("time_ns,flow,len,key\n");
        let mut number = 0;
        for n in 0..packets {
            let start = n * 1_000_000;
            arrivals += &format!("{start},voice,126,0\n");
            let frames = self.port / (flood + 24);
            for at in 0..frames {
                let time = start + at * 1_000_000 / frames;
                arrivals += &format!("{time},{},{flood},{}\n", self.flooded, key(number));
                number += 1;
            }
        }
        folder.write("a.csv", arrivals);
        let report = report(&folder, &format!("--link {} @a.csv", self.link));
        ["voice", self.flooded].map(|name| {
            let class = class(&report, name);
            (class["sent_packets"].as_u64().unwrap(), drops(class))
        })
    }
}

#[test]
fn guaranteed_class_drops_nothing_under_a_dozen_floods() {
    // 4,000 packets of voice, none of which may be lost to the flood.
    let dozen = |number| 1 + number % 12;
    let [voice, flood] = Beside::readme(&readme()).voice(4_000, 1500, dozen);
    assert_eq!(voice, (4_000, 0));
    assert!(flood.1 > 10_000, "{flood:?} is no flood");
    // The same with a minimal shared part, so that the link is full and packets are evicted.
    let full = "overhead = \"ethernet\"\nlimit = { packets = 13100 }";
    let site = readme().replace("overhead = \"ethernet\"", full);
    for site in [site.replace("wf2q+", "qfq"), site] {
        let [voice, _] = Beside::readme(&site).voice(1_000, 1000, dozen);
        assert_eq!(voice, (1_000, 0));
    }
}

#[test]
fn home_example_voice_drops_nothing_under_a_dozen_floods() {
    let site = include_str!("../../../../../examples/home-gateway.toml");
    // The direction with a class of few flows is included.
    for (link, flooded, port, packets) in [
        ("up", "bulk", 12_500, 3_000),
        ("down", "machines", 125_000, 800),
    ] {
        for (flood, flows) in [(1500, 12), (700, 12), (1500, 100)] {
            let beside = Beside {
                site,
                link,
                flooded,
                port,
            };
            let [voice, flood] = beside.voice(packets, flood, |number| 1 + number % flows);
            assert_eq!(voice, (packets, 0), "{link}, {flows} flows");
            assert!(flood.1 > 8_000, "{link}: {flood:?} is no flood");
        }
    }
}

/// Replays a call of one host next to 12 Mbit/s of another host's traffic marked EF, in the voice class. Returns the
/// packets of the call that were sent in ten seconds, of 500, and the longest delay in microseconds.
fn call_next_to_a_flood(site: &str) -> (usize, u64) {
    const CALL: u64 = 200;
    let folder = Folder::with_flows();
    folder.write("site.toml", site);
    let calls = (0..500u64).map(|n| (n * 20_000_000 + 1, CALL, 1));
    let flood = (0..15_000u64).map(|n| (n * 10_000_000_000 / 15_000, 1_000, 2));
    let mut all: Vec<(u64, u64, u64)> = calls.chain(flood).collect();
    all.sort_unstable();
    let rows = all.iter();
    let rows = rows.map(|(time, len, host)| format!("{time},voice,{len},{host}\n"));
    folder.write(
        "a.csv",
        "time_ns,flow,len,key\n".to_owned() + &rows.collect::<String>(),
    );
    let sent = departures(&folder, &format!("{CONFIG} --link up @a.csv"));
    let delays = sent.iter().filter(|row| row[3] == CALL);
    let delays: Vec<u64> = delays.map(|row| (row[1] - row[4]) / 1_000).collect();
    (delays.len(), delays.iter().copied().max().unwrap())
}

#[test]
fn one_host_cannot_starve_the_voice_class_of_the_init_file() {
    let named = [
        "--outside",
        "out%d",
        "--inside",
        "in%d",
        "--rate-up",
        "20mbit",
    ];
    let site = fairlane(&[&["init"], &named[..], &["-"]].concat());
    let site = site.stdout;
    let (sent, longest) = call_next_to_a_flood(&site);
    assert!(sent == 500 && longest < 5_000, "{sent} sent, {longest} us");
    // In a single FIFO, the same flood starves all hosts.
    let own =
        "per = \"source-ip\"\nflows = { most = 16 }\nalgorithm = \"wf2q+\"\nlongest = \"320b\"";
    let shared = site.replacen(own, "queue = \"tail-drop\"", 1);
    assert_ne!(shared, site);
    let (sent, longest) = call_next_to_a_flood(&shared);
    assert!(
        sent < 300 && longest > 1_500_000,
        "{sent} sent, {longest} us"
    );
}

#[test]
fn guaranteed_class_drops_nothing_under_spoofed_sources() {
    let limits = "per = \"source-ip\"\nlimit = { packets = 100 }";
    for site in [readme(), readme().replace("per = \"source-ip\"", limits)] {
        let [voice, flood] = Beside::readme(&site).voice(1_000, 60, |number| 1 + number * 7_919);
        assert_eq!(voice, (1_000, 0));
        assert!(flood.1 > 10_000, "{flood:?} is no flood");
    }
}

#[test]
fn one_source_may_send_the_burst_of_its_class_in_short_packets() {
    let folder = Folder::with_flows();
    let site = "[[link]]\nname = \"up\"\nrate = \"20mbit\"\nlongest = \"1522b\"\nclass = [\n\
        { name = \"voice\", rate = \"2mbit\" },\n\
        { name = \"everybody\", per = \"source-ip\", default = true },\n]\n\
        filter = [{ class = \"voice\", destination-port = 5060 }]\n";
    folder.write("site.toml", site);
    let arrivals: String = (0..2_000)
        .map(|at| format!("{at},everybody,60,7\n"))
        .collect();
    folder.write("a.csv", format!("time_ns,flow,len,key\n{arrivals}"));
    // 120 kB of a burst of 691.
    let report = report(&folder, "@a.csv");
    assert_eq!(
        class(&report, "everybody")["sent_packets"],
        2_000,
        "{report:#}"
    );
}
