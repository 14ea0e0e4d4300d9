//! Frames in captures that segmentation offload left long.

use serde_json::Value;

use super::captures::{capture, ethernet, frames, header, ipv4};
use super::*;

const SITE: &str = "\
[[link]]
name = 'up'
rate = '100mbit'

[[link.class]]
name = 'web'

[[link.class]]
name = 'rest'
default = true

[[link.filter]]
destination-port = 80
class = 'web'
";

/// Bytes of the headers of these packets: IPv4 or IPv6, and TCP with timestamps.
const V4: usize = 20 + 32;
const V6: usize = 40 + 32;

/// Returns a segment to port 80, from its sequence number 1000 on.
fn segment(payload: usize) -> Vec<u8> {
    let mut segment = vec![
        0x9c, 0x40, 0, 80, 0, 0, 3, 0xe8, 0, 0, 0, 1, 0x80, 0x18, 1, 0,
    ];
    segment.extend([0; 4]);
    segment.extend([1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
    segment.extend((0..payload).map(|at| (at * 7) as u8));
    segment
}

/// Returns an IPv4 packet. If it is too long for its length field, that is zero, as in BIG TCP.
fn v4(payload: usize) -> Vec<u8> {
    let total = u16::try_from(V4 + payload).unwrap_or(0);
    let mut packet = vec![0x45, 0];
    packet.extend(total.to_be_bytes());
    packet.extend([0, 9, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 1, 1]);
    packet.extend(segment(payload));
    packet
}

/// Returns an IPv6 packet; with `jumbo`, its length is in an extension header.
fn v6(payload: usize, jumbo: bool) -> Vec<u8> {
    let length = u16::try_from(32 + payload).unwrap_or(0);
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend(length.to_be_bytes());
    packet.extend([if jumbo { 0 } else { 6 }, 64]);
    packet.extend([[0xfd; 16], [0xfe; 16]].concat());
    if jumbo {
        packet.extend([6, 0, 0xc2, 4]);
        packet.extend((8 + 32 + payload as u32).to_be_bytes());
    }
    packet.extend(segment(payload));
    packet
}

fn ethernet4(payload: usize) -> Vec<u8> {
    ethernet(None, 0x0800, &v4(payload))
}

/// Returns the number of TCP segments with a payload of `each`, the last one possibly shorter.
fn cut(total: usize, each: usize) -> usize {
    total.div_ceil(each)
}

/// Returns a folder with a capture.
fn folder(capture: Vec<u8>) -> Folder {
    let folder = Folder::new();
    folder.write("site.toml", SITE);
    folder.write("in.pcap", capture);
    folder
}

fn report(finished: &Finished) -> Value {
    assert!(finished.status.success(), "{finished:?}");
    serde_json::from_str(&finished.stdout).unwrap()
}

#[test]
fn long_frames_are_cut_for_a_link_and_none_is_dropped() {
    let udp_payload = 20_000;
    let mut udp = ipv4(1, 17, [5, 80], 0);
    udp[2..4].copy_from_slice(&(28 + udp_payload as u16).to_be_bytes());
    udp[24..26].copy_from_slice(&(8 + udp_payload as u16).to_be_bytes());
    udp.resize(28 + udp_payload, 1);
    let sent = [
        // The longest frames of a common offload, of a loopback interface, and of BIG TCP.
        (ethernet4(45 * 1_448), 45 * 1_448, 1_500 - V4),
        (ethernet4(65_535 - V4), 65_535 - V4, 1_500 - V4),
        (ethernet4(180_000), 180_000, 1_500 - V4),
        (
            ethernet(None, 0x86dd, &v6(180_000, true)),
            180_000,
            1_500 - V6,
        ),
        (
            ethernet(Some(7), 0x86dd, &v6(180_000, false)),
            180_000,
            1_500 - V6,
        ),
        (ethernet(None, 0x0800, &udp), udp_payload, 1_500 - 28),
    ];
    assert_eq!(sent[1].0.len(), 65_549);
    let pieces: usize = sent.iter().map(|&(_, total, each)| cut(total, each)).sum();
    let payload: usize = sent.iter().map(|&(_, total, _)| total).sum();
    let long: Vec<_> = sent.iter().map(|(frame, ..)| frame.clone()).collect();
    let folder = folder(frames(&long));
    let finished = folder.replay("--config @site.toml @in.pcap --json");
    let through = report(&finished);
    let says = format!(
        "fairlane: 6 of 6 packets are longer than 1522 bytes, as segmentation offload leaves them, and \
         were cut into {pieces}\n"
    );
    assert_eq!(finished.stderr, says);
    assert_eq!(
        (&through["packets"], &through["oversized"]),
        (&pieces.into(), &0.into())
    );
    let headers: usize = sent
        .iter()
        .map(|&(ref frame, total, each)| {
            // No segment has the header of a jumbo payload.
            let jumbo = if frame[12] == 0x86 && frame[20] == 0 {
                8
            } else {
                0
            };
            (frame.len() - total - jumbo) * cut(total, each)
        })
        .sum();
    assert_eq!(through["bytes"], payload + headers);
    let web = &through["classes"][0];
    assert_eq!(web["sent_packets"], pieces, "{web}");
    // They are five flows, since both IPv4 packets of TCP belong to one connection.
    let finished = folder.replay("--alg qfq --rate 100mbit @in.pcap --json");
    let flows = report(&finished);
    assert_eq!(finished.stderr, says);
    assert_eq!(
        (&flows["packets"], &flows["bytes"]),
        (&through["packets"], &through["bytes"])
    );
    for flow in flows["flows"].as_array().unwrap() {
        assert!(flow["max_len"].as_u64().unwrap() <= 1_522, "{flow}");
    }
    // A comparison has the same frames.
    let compared = report(&folder.compare("--rate 100mbit --alg qfq -n 0 --json @in.pcap"));
    assert_eq!(compared["packets"], pieces);
    assert_eq!(compared["algorithms"][0]["t_wfi_ns"], {
        let flows = flows["flows"].as_array().unwrap().iter();
        flows
            .map(|flow| flow["t_wfi_ns"].as_f64().unwrap())
            .fold(0.0, f64::max)
    });
}

#[test]
fn the_frames_of_one_that_was_cut_are_tcp_segments_in_order() {
    let payload = 10_000;
    let whole = ethernet4(payload);
    for captured in [whole.len(), 96, 14 + V4] {
        let input = [(5_000, whole.len() as u32, whole[..captured].to_vec())];
        let folder = folder(capture(header(), &input));
        for link in ["--config @site.toml", "--alg drr --rate 100mbit"] {
            let finished = folder.replay(&format!("{link} @in.pcap -o @out.pcap"));
            assert!(finished.status.success(), "{finished:?}");
            let bytes = fs::read(folder.path("out.pcap")).unwrap();
            let mut reader = PcapReader::new(&bytes[..]).unwrap();
            let (mut next, mut joined) = (1_000, Vec::new());
            while let Some(packet) = reader.next_raw_packet() {
                let packet = packet.unwrap();
                let part = (packet.orig_len as usize) - 14 - V4;
                assert!(packet.orig_len <= 1_514, "{packet:?}");
                let ip = &packet.data[14..];
                assert_eq!(u32::from_be_bytes(ip[24..28].try_into().unwrap()), next);
                assert_eq!(usize::from(ip[2]) << 8 | usize::from(ip[3]), V4 + part);
                next += part as u32;
                joined.extend_from_slice(&ip[V4..]);
            }
            assert_eq!(next, 1_000 + payload as u32);
            // All captured bytes of the payload.
            assert_eq!(joined, whole[14 + V4..captured], "{link}");
        }
    }
}

#[test]
fn frames_that_cannot_be_cut_are_counted_and_said() {
    let icmp = |length: usize| {
        let mut packet = ipv4(1, 1, [8, 0], 0);
        packet.resize(length - 14, 0);
        packet[2..4].copy_from_slice(&u16::try_from(length - 14).unwrap_or(0).to_be_bytes());
        ethernet(None, 0x0800, &packet)
    };
    let mut fragment = ethernet4(5_000);
    fragment[14 + 6] = 0x20;
    let folder = folder(frames(&[icmp(9_014), fragment, icmp(65_549), icmp(100)]));
    let finished = folder.replay("--config @site.toml @in.pcap --json");
    let through = report(&finished);
    assert_eq!(
        (&through["packets"], &through["oversized"]),
        (&1.into(), &3.into())
    );
    let dropped: u64 = (through["classes"].as_array().unwrap().iter())
        .map(|class| class["drops"]["full"].as_u64().unwrap())
        .sum();
    assert_eq!(dropped, 3, "{through}");
    let says = "fairlane: dropped packets (longer than the link carries, and not plain TCP or UDP that can \
                be cut): 3\n";
    assert_eq!(finished.stderr, says);
    let table = folder.replay("--config @site.toml @in.pcap --report -o @out.csv");
    assert!(
        table
            .stdout
            .contains("; 3 longer than the link carries, dropped"),
        "{table:?}"
    );
    // Without a site, a frame keeps its length, except one that is too long for any link.
    let finished = folder.replay("--alg qfq --rate 100mbit @in.pcap --json");
    let flows = report(&finished);
    assert_eq!(
        (&flows["packets"], &flows["oversized"]),
        (&3.into(), &1.into())
    );
    assert_eq!(finished.stderr, says.replace(": 3", ": 1"));
}

#[test]
fn frames_that_may_be_jumbo_frames_are_cut_with_the_option_that_keeps_them() {
    let folder = folder(frames(&[ethernet4(8_948), ethernet4(5_000)]));
    let said = |options: &str| folder.replay(&format!("{options} @in.pcap")).stderr;
    let cut = said("--alg qfq --rate 1gbit --json");
    let hint = "; if they are jumbo frames, --longest 9014 keeps them whole\n";
    assert!(
        cut.contains("2 of 2 packets are longer") && cut.contains(hint),
        "{cut}"
    );
    let whole = said("--alg qfq --rate 1gbit --json --longest 9014");
    assert!(!whole.contains("were cut"), "{whole}");
    let of_site = said("--config @site.toml --json");
    let hint = "; if they are jumbo frames, longest = \"9014b\" in the file keeps them whole\n";
    assert!(of_site.contains(hint), "{of_site}");
}

#[test]
fn the_longest_frame_follows_the_options() {
    let folder = folder(frames(&[ethernet4(8_948), ethernet4(8_948 * 3)]));
    folder.write("flows.csv", "flow,weight,max_len\n0,1,9022\n");
    let packets = |options: &str| {
        let finished = folder.replay(&format!("--alg qfq --rate 1gbit {options} @in.pcap --json"));
        report(&finished)["packets"].as_u64().unwrap()
    };
    assert_eq!(
        packets(""),
        (cut(8_948, 1_448) + cut(8_948 * 3, 1_448)) as u64
    );
    assert_eq!(packets("--longest 9022"), 4);
    assert_eq!(packets("--longest 65535"), 2);
    // Declared flows set the length limit of their packets.
    assert_eq!(packets("--flows @flows.csv"), 4);
    for wrong in ["--longest 100", "--longest 70000"] {
        let finished = folder.replay(&format!("--alg qfq --rate 1gbit {wrong} @in.pcap"));
        assert_eq!(finished.status.code(), Some(2), "{finished:?}");
    }
}
