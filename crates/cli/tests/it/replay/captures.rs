//! Captures as input and output.

use super::*;

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const ARP: u16 = 0x0806;
const UDP: u8 = 17;

/// Returns a frame with an ether type and a payload, after a VLAN tag if there is one.
pub(super) fn ethernet(vlan: Option<u16>, ether_type: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2; 12];
    if let Some(vlan) = vlan {
        frame.extend(0x8100u16.to_be_bytes());
        frame.extend(vlan.to_be_bytes());
    }
    frame.extend(ether_type.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Returns a packet from 10.0.0.`source` to 10.0.1.1; `fragment` is the field of flags and offset.
pub(super) fn ipv4(source: u8, protocol: u8, ports: [u16; 2], fragment: u16) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 28, 0, 1];
    packet.extend(fragment.to_be_bytes());
    packet.extend([64, protocol, 0, 0, 10, 0, 0, source, 10, 0, 1, 1]);
    packet.extend(ports.iter().flat_map(|port| port.to_be_bytes()));
    packet.extend([0, 8, 0, 0]);
    packet
}

/// Returns a UDP packet from `2001:db8::source` to `2001:db8::ffff`.
pub(super) fn ipv6(source: u8, ports: [u16; 2]) -> Vec<u8> {
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

pub(super) fn udp(source: u8, port: u16) -> Vec<u8> {
    ethernet(None, IPV4, &ipv4(source, UDP, [port, 80], 0))
}

pub(super) fn header() -> PcapHeader {
    PcapHeader {
        ts_resolution: TsResolution::NanoSecond,
        snaplen: 1 << 18,
        ..PcapHeader::default()
    }
}

/// Returns a capture of packets, each with its time in nanoseconds and its length on the wire.
pub(super) fn capture(header: PcapHeader, packets: &[(u64, u32, Vec<u8>)]) -> Vec<u8> {
    let mut writer = PcapWriter::with_header(Vec::new(), header).unwrap();
    for (time, length, bytes) in packets {
        let packet = PcapPacket::new(Duration::from_nanos(*time), *length, bytes);
        writer.write_packet(&packet).unwrap();
    }
    writer.into_writer()
}

/// Returns a capture of frames a microsecond apart.
pub(super) fn frames(frames: &[Vec<u8>]) -> Vec<u8> {
    let packets: Vec<_> = (1..)
        .zip(frames)
        .map(|(number, frame)| (number * 1000, frame.len() as u32, frame.clone()))
        .collect();
    capture(header(), &packets)
}

/// Returns the flows of a capture's frames, in order.
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
        // ICMP has no ports: the bytes at their place are ignored.
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
        [0, 1, 0, 0, 0, 0, 0, 1, 2, 2, 3, 4]
    );
}

#[test]
fn the_fragments_of_a_datagram_are_one_flow() {
    let fragment = |field| ethernet(None, IPV4, &ipv4(1, UDP, [5, 80], field));
    let (more, later) = (0x2000, 0x00b9);
    let packets = [udp(1, 5), fragment(more), fragment(later), udp(1, 5)];
    assert_eq!(flows_of(frames(&packets), ""), [0, 1, 1, 0]);
    // As in a site's `per = "5-tuple"`: one flow for all protocols between two addresses.
    let tcp = ethernet(None, IPV4, &ipv4(1, 6, [5, 80], later));
    let other = ethernet(None, IPV4, &ipv4(2, UDP, [5, 80], later));
    let packets = [fragment(later), tcp, other, fragment(more)];
    assert_eq!(flows_of(frames(&packets), ""), [0, 0, 1, 0]);
    // "Do not fragment" does not make a fragment.
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
            // One packet of 1500 bytes precedes the small ones, the other follows them.
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
            // A CSV file gets the same text as standard output.
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
fn departure_beyond_the_pcap_time_range_is_rejected() {
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
    // Flow 1, the second to appear, has the weight that puts it first.
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

#[test]
fn packets_that_two_processors_wrote_are_put_in_order_and_how_many_is_said() {
    let folder = Folder::new();
    // A microsecond late, and as late as allowed.
    let times = [
        5_000_000, 5_001_000, 5_000_000, 5_002_000, 4_002_000, 9_000_000,
    ];
    let packets: Vec<_> = (0..6u8)
        .map(|number| (times[usize::from(number)], 60, udp(number, 5)))
        .collect();
    folder.write("in.pcap", capture(header(), &packets));
    let replayed = folder.replay("--alg fifo --rate 1tbit @in.pcap");
    assert!(replayed.status.success(), "{replayed:?}");
    let arrived: Vec<_> = rows(&replayed.stdout).iter().map(|row| row[4]).collect();
    assert_eq!(
        arrived,
        [
            4_002_000, 5_000_000, 5_000_000, 5_001_000, 5_002_000, 9_000_000
        ]
    );
    assert_eq!(
        replayed.stderr,
        "fairlane: 2 of 6 packets were out of order by up to 1000 us, and were put in order\n"
    );
    // The same through a site.
    folder.write("site.toml", "[[link]]\nname='up'\nrate='1gbit'\n");
    let replayed = folder.replay("--config @site.toml @in.pcap");
    assert!(replayed.stderr.contains("2 of 6 packets"), "{replayed:?}");
    let times: Vec<_> = rows(&replayed.stdout).iter().map(|row| row[4]).collect();
    assert_eq!(times, arrived);
}

#[test]
fn rows_are_put_in_order_too() {
    let folder = Folder::with_flows();
    folder.write("arrivals.csv", "time_ns,flow,len\n7,0,1\n5,1,1\n7,1,1\n");
    let replayed = folder.replay("--alg fifo --rate 1tbit --flows @flows.csv @arrivals.csv");
    let sent: Vec<_> = rows(&replayed.stdout)
        .iter()
        .map(|row| (row[4], row[2]))
        .collect();
    assert_eq!(sent, [(5, 1), (7, 0), (7, 1)]);
    assert_eq!(
        replayed.stderr,
        "fairlane: 1 of 3 rows were out of order by up to 1 us, and were put in order\n"
    );
}
