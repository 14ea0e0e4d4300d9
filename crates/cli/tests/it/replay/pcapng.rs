//! Captures in pcapng.

use super::captures::{capture, frames, header, udp};
use super::*;

/// A file of one section, written by hand.
#[derive(Clone)]
struct Section {
    big: bool,
    bytes: Vec<u8>,
}

const ETHERNET: u16 = 1;
const RAW: u16 = 101;

impl Section {
    fn new(big: bool) -> Section {
        let mut section = Section {
            big,
            bytes: Vec::new(),
        };
        let body = [
            section.four(0x1a2b_3c4d).to_vec(),
            section.two(1).to_vec(),
            vec![0, 0],
            vec![0xff; 8],
        ];
        section.block(0x0a0d_0d0a, &body.concat());
        section
    }

    fn two(&self, number: u16) -> [u8; 2] {
        if self.big {
            number.to_be_bytes()
        } else {
            number.to_le_bytes()
        }
    }

    fn four(&self, number: u32) -> [u8; 4] {
        if self.big {
            number.to_be_bytes()
        } else {
            number.to_le_bytes()
        }
    }

    fn block(&mut self, kind: u32, body: &[u8]) {
        let padding = body.len().next_multiple_of(4) - body.len();
        let length = self.four((12 + body.len() + padding) as u32);
        let block = [
            &self.four(kind)[..],
            &length,
            body,
            &vec![0; padding],
            &length,
        ]
        .concat();
        self.bytes.extend(block);
    }

    /// Adds an interface whose times have the resolution `resolution`, and are `offset` seconds late.
    fn interface(&mut self, link: u16, resolution: Option<u8>, offset: i64) {
        let mut body = [self.two(link), [0, 0]].concat();
        body.extend(self.four(262_144));
        if let Some(resolution) = resolution {
            body.extend([self.two(9), self.two(1)].concat());
            body.extend([resolution, 0, 0, 0]);
        }
        if offset != 0 {
            body.extend([self.two(14), self.two(8)].concat());
            body.extend(if self.big {
                offset.to_be_bytes()
            } else {
                offset.to_le_bytes()
            });
        }
        if body.len() > 8 {
            // The end of the options.
            body.extend([0; 4]);
        }
        self.block(1, &body);
    }

    fn packet(&mut self, interface: u32, units: u64, length: u32, captured: &[u8]) {
        let body = [
            interface,
            (units >> 32) as u32,
            units as u32,
            captured.len() as u32,
            length,
        ];
        let body = body.map(|field| self.four(field)).concat();
        self.block(6, &[&body[..], captured].concat());
    }

    /// Adds an obsolete Packet Block.
    fn old_packet(&mut self, interface: u16, units: u64, captured: &[u8]) {
        let length = captured.len() as u32;
        let mut body = [self.two(interface), [0xff, 0xff]].concat();
        let fields = [(units >> 32) as u32, units as u32, length, length];
        body.extend(fields.map(|field| self.four(field)).concat());
        self.block(2, &[&body[..], captured].concat());
    }
}

/// 2026-11-28, in seconds.
const NOW: u64 = 1_795_824_000;

#[test]
fn a_pcapng_file_is_replayed_as_the_same_packets_in_pcap() {
    let times = [0, 1_000, 5_000, 1_000_000_000, 1_000_000_000];
    let packets: Vec<_> = (1..)
        .zip(times)
        .map(|(number, time)| (NOW * 1_000_000_000 + time, 400, udp(number, 5)))
        .collect();
    for big in [false, true] {
        let folder = Folder::new();
        folder.write("in.pcap", capture(header(), &packets));
        let mut section = Section::new(big);
        // Microseconds by default, nanoseconds, 2^-20 of a second, and a second late.
        section.interface(ETHERNET, None, 0);
        section.interface(ETHERNET, Some(9), 0);
        section.interface(ETHERNET, Some(0x80 | 20), 0);
        section.interface(ETHERNET, Some(3), 1);
        section.packet(0, NOW * 1_000_000, 400, &packets[0].2);
        // Blocks without a packet: of names, of counts, and of an unknown kind.
        for kind in [4, 5, 0x1234_5678] {
            section.block(kind, &[0xc3, 0x28, 1, 2, 3]);
        }
        section.packet(1, NOW * 1_000_000_000 + 1_000, 400, &packets[1].2);
        section.packet(0, NOW * 1_000_000 + 5, 400, &packets[2].2);
        section.packet(2, (NOW + 1) << 20, 400, &packets[3].2);
        section.packet(3, NOW * 1_000, 400, &packets[4].2);
        for name in ["in.pcapng", "in.dump"] {
            folder.write(name, &section.bytes);
            for options in [
                "--alg qfq --rate 1mbit",
                "--alg drr --rate 1mbit --flow-by source --json",
            ] {
                let [one, other] = ["in.pcap", name]
                    .map(|input| folder.replay(&format!("{options} @{input}")).success());
                assert_eq!(one, other, "{options}");
            }
        }
        for input in ["in.pcap", "in.pcapng"] {
            let out = format!("--alg qfq --rate 1mbit @{input} -o @{input}.out.pcap");
            folder.replay(&out).success();
        }
        let [one, other] = ["in.pcap", "in.pcapng"].map(|input| {
            let bytes = fs::read(folder.path(&format!("{input}.out.pcap"))).unwrap();
            let mut reader = PcapReader::new(&bytes[..]).unwrap();
            assert_eq!(reader.header().datalink, DataLink::ETHERNET);
            let mut packets = Vec::new();
            while let Some(packet) = reader.next_packet() {
                let packet = packet.unwrap();
                packets.push((packet.timestamp, packet.orig_len, packet.data.into_owned()));
            }
            packets
        });
        assert_eq!(one, other);
    }
}

#[test]
fn older_packet_blocks_and_several_sections_are_read() {
    let mut section = Section::new(false);
    section.interface(ETHERNET, None, 0);
    section.old_packet(0, 5, &udp(1, 5));
    // Another section has its own interfaces, and may have the other byte order.
    let mut other = Section::new(true);
    other.interface(ETHERNET, Some(9), 0);
    other.old_packet(0, 7_000, &udp(2, 5));
    let folder = Folder::new();
    folder.write("in.pcapng", [section.bytes, other.bytes].concat());
    let sent = departures(&folder, "--alg fifo --rate 1tbit @in.pcapng");
    assert_eq!(
        sent.iter().map(|row| row[4]).collect::<Vec<_>>(),
        [5_000, 7_000]
    );
    folder.write("in.pcap", frames(&[]));
    let none = Section::new(false);
    folder.write("none.pcapng", none.bytes);
    assert_eq!(
        departures(&folder, "--alg fifo --rate 1gbit @none.pcapng").len(),
        0
    );
}

#[test]
fn packets_of_two_link_types_leave_as_rows_and_not_as_a_pcap_file() {
    let mut section = Section::new(false);
    section.interface(ETHERNET, None, 0);
    section.interface(RAW, None, 0);
    let frame = udp(1, 5);
    section.packet(0, 1, 42, &frame);
    section.packet(1, 2, 28, &frame[14..]);
    let folder = Folder::new();
    folder.write("in.pcapng", section.bytes);
    let sent = departures(&folder, "--alg fifo --rate 1gbit @in.pcapng");
    // Both belong to one flow.
    assert_eq!(sent.iter().map(|row| row[2]).collect::<Vec<_>>(), [0, 0]);
    let finished = folder.replay("--alg fifo --rate 1gbit @in.pcapng -o @out.pcap");
    assert_eq!(finished.status.code(), Some(2), "{finished:?}");
    let says = "packet 2: its link type is 101, that of the first packet 1: a pcap file has one";
    assert!(finished.stderr.contains(says), "{finished:?}");
    assert_eq!(folder.names(), ["in.pcapng"]);
}

#[test]
fn a_bad_pcapng_file_is_named_with_the_packet() {
    let frame = udp(1, 5);
    let mut good = Section::new(false);
    good.interface(ETHERNET, None, 0);
    good.packet(0, 1, 42, &frame);
    let with = |change: &dyn Fn(&mut Section)| {
        let mut section = good.clone();
        change(&mut section);
        section.bytes
    };
    for (bytes, place, says) in [
        (
            good.bytes[..20].to_vec(),
            "",
            &["file header", "cut off"][..],
        ),
        (
            good.bytes[..good.bytes.len() - 1].to_vec(),
            " packet 1",
            &["cut off"],
        ),
        (
            with(&|it| it.packet(1, 1, 42, &frame)),
            " packet 2",
            &["interface 1"],
        ),
        (
            with(&|it| it.packet(0, 2, 41, &frame)),
            " packet 2",
            &["of 41"],
        ),
        (
            with(&|it| it.block(6, &[0; 16])),
            " packet 2",
            &["too short"],
        ),
        (
            with(&|it| it.block(3, &[0; 16])),
            " packet 2",
            &["simple packet block", "no time"],
        ),
        (
            with(&|it| {
                it.interface(147, None, 0);
                it.packet(1, 2, 42, &frame);
            }),
            " packet 2",
            &["link type 147", "Ethernet"],
        ),
        (
            with(&|it| {
                it.interface(ETHERNET, Some(9), -1);
                it.packet(1, 2, 42, &frame);
            }),
            " packet 2",
            &["its time"],
        ),
        (
            with(&|it| it.bytes.extend([6, 0, 0, 0, 13, 0, 0, 0, 0, 0, 0, 0, 0])),
            " packet 2",
            &["Block"],
        ),
    ] {
        let folder = Folder::new();
        folder.write("in.pcapng", bytes);
        let arguments = "--alg drr --rate 1gbit @in.pcapng";
        refuses(&folder, arguments, &format!("@in.pcapng:{place}"), says);
    }
}
