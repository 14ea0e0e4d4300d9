//! Cost of a frame on its whole path through an idle site: received, parsed, classified, enqueued, dequeued, accounted
//! for and transmitted, with devices in memory.
//!
//! The site is the README's: a class with a ceiling, and one with a queue per host. Frames arrive one at a time.
//! Without arguments, prints the time per frame minus that of the devices; with `site 100000`, or `devices 100000`,
//! only sends this many frames, for a tool that counts instructions. With `unseen 100000` and `seen 100000` the frames
//! are successive TCP segments with timestamps, without and with passive TCP observation. `classes 100000 10000` sends
//! short datagrams to this many classes in turn, each of which has a filter and becomes idle again: for a tool that
//! counts cache misses.

use std::fmt::Write;
use std::time::Instant;

use fairlane_config::Site;
use fairlane_core::random::splitmix64;
use fairlane_dataplane::measured::{Through, pass};

const README: &str = include_str!("../../../README.md");

/// Returns the first file in the README.
fn site() -> Site {
    let (_, text) = README
        .split_once("```toml\n")
        .expect("the README has a site");
    let (text, _) = text.split_once("```").expect("it ends");
    Site::parse(text, "README.md").unwrap_or_else(|error| panic!("{error}"))
}

/// Returns a frame with an IPv4 datagram of this many bytes.
fn frame(source: [u8; 4], protocol: u8, dscp: u8, bytes: u16) -> Vec<u8> {
    let mut frame = vec![0; 14 + usize::from(bytes)];
    frame[12] = 8;
    let ip = &mut frame[14..];
    (ip[0], ip[1], ip[8], ip[9]) = (0x45, dscp << 2, 64, protocol);
    ip[2..4].copy_from_slice(&bytes.to_be_bytes());
    ip[12..16].copy_from_slice(&source);
    ip[16..20].copy_from_slice(&[203, 0, 113, 5]);
    frame
}

/// Returns a long segment and a call's packet of each of eight hosts.
fn frames() -> Vec<Vec<u8>> {
    let machines = (1..=8).map(|number| [192, 168, 0, number]);
    machines
        .flat_map(|source| [frame(source, 6, 0, 1500), frame(source, 17, 46, 200)])
        .collect()
}

/// Bytes of the IPv4 header, and of a TCP header with timestamps only.
const IP: usize = 20;
const TCP: usize = 32;

/// Returns a long segment of each of eight hosts, with timestamps.
fn segments() -> Vec<Vec<u8>> {
    let machines = (1..=8).map(|number| [192, 168, 0, number]);
    let segments = machines.map(|source| {
        let mut segment = frame(source, 6, 0, 1500);
        let tcp = &mut segment[14 + IP..];
        // The data offset in words, the ACK flag, and two NOP options in front.
        (tcp[12], tcp[13]) = (((TCP / 4) as u8) << 4, 0x10);
        tcp[20..24].copy_from_slice(&[1, 1, 8, 10]);
        segment
    });
    segments.collect()
}

/// The next segment of the same connection: bytes further, and a millisecond later.
fn next_segment(frame: &mut [u8]) {
    let tcp = &mut frame[14 + IP..];
    let bytes = (1500 - IP - TCP) as u32;
    for (place, more) in [(4, bytes), (24, 1), (28, 1)] {
        let (number, _) = tcp[place..].split_first_chunk_mut::<4>().expect("a header");
        *number = u32::from_be_bytes(*number).wrapping_add(more).to_be_bytes();
    }
}

/// The first port that the filters of many classes match.
const PORTS: u16 = 10_000;

/// Returns a link with this many classes, each with a buffer reservation, and each of which may use the whole link.
fn many(classes: u16) -> Site {
    let mut text = String::from("[[link]]\nname = \"many\"\nto = \"outside\"\nrate = \"20gbit\"\n");
    for number in 0..classes {
        let port = PORTS + number;
        let class = format_args!("name = \"c{number}\"\nrate = \"1mbit\"");
        let room = "{ packets = 12, bytes = \"20kb\" }";
        let filter =
            format_args!("class = \"c{number}\"\nprotocol = \"udp\"\ndestination-port = {port}");
        writeln!(
            text,
            "[[link.class]]\n{class}\nroom = {room}\n[[link.filter]]\n{filter}"
        )
        .expect("it is written to memory");
    }
    Site::parse(&text, "many.toml").unwrap_or_else(|error| panic!("{error}"))
}

/// Returns a short datagram for each class, in a pseudo-random order.
fn datagrams(classes: u16) -> Vec<Vec<u8>> {
    let each = |number| {
        let mut datagram = frame([192, 168, 0, 1], 17, 0, 46);
        datagram[14 + IP + 2..][..2].copy_from_slice(&u16::to_be_bytes(PORTS + number));
        datagram
    };
    let mut numbers: Vec<u16> = (0..classes).collect();
    numbers.sort_by_cached_key(|&number| splitmix64(&mut number.into()));
    numbers.into_iter().map(each).collect()
}

/// Nanoseconds of a frame.
fn time(way: Through<'_>, count: u64) -> f64 {
    let began = Instant::now();
    assert_eq!(pass(way, frames(), count, |_| {}).unwrap(), count);
    began.elapsed().as_nanos() as f64 / count as f64
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [what, count, classes] = arguments.as_slice()
        && what == "classes"
    {
        let number = |text: &String| text.parse::<u16>().expect("a number of classes");
        let (site, frames) = (many(number(classes)), datagrams(number(classes)));
        let count = count.parse().expect("a number of frames");
        assert_eq!(
            pass(Through::Link(&site), frames, count, |_| {}).unwrap(),
            count
        );
        return;
    }
    let site = site();
    if let [what, count, ..] = arguments.as_slice() {
        let count = count.parse().expect("a number of frames");
        let segments = |way| {
            assert_eq!(pass(way, segments(), count, next_segment).unwrap(), count);
        };
        match what.as_str() {
            "site" => drop(time(Through::Link(&site), count)),
            "devices" => drop(time(Through::Nothing, count)),
            "unseen" => segments(Through::Link(&site)),
            "seen" => segments(Through::Watched(&site)),
            other => panic!("{other}: one of site, devices, unseen, seen"),
        }
        return;
    }
    let small = arguments.iter().any(|argument| argument == "--test");
    let count = if small { 1_000 } else { 1_000_000 };
    let (all, devices) = (
        time(Through::Link(&site), count),
        time(Through::Nothing, count),
    );
    println!(
        "{:.0} ns a frame, {devices:.0} ns of it for the devices",
        all
    );
}
