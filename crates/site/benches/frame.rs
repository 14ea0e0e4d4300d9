//! What a frame costs on its whole way through an idle site: received, read, classified, queued, taken
//! out, accounted for and transmitted, with devices in memory.
//!
//! The site is the README's: a class with a ceiling, and one with a queue for each machine. One frame
//! comes at a time. Without arguments, prints the time of a frame beyond what the devices take; with
//! `site 100000`, or `devices 100000`, it only sends so many, for a tool that counts instructions.

use std::time::Instant;

use fairlane_config::Site;
use fairlane_site::measured::pass;

const README: &str = include_str!("../../../README.md");

/// The first file in the README.
fn site() -> Site {
    let (_, text) = README
        .split_once("```toml\n")
        .expect("the README has a site");
    let (text, _) = text.split_once("```").expect("it ends");
    Site::parse(text, "README.md").unwrap_or_else(|error| panic!("{error}"))
}

/// A frame with an IPv4 datagram of so many bytes.
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

/// Of each of eight machines a long segment and a call's packet.
fn frames() -> Vec<Vec<u8>> {
    let machines = (1..=8).map(|number| [192, 168, 0, number]);
    machines
        .flat_map(|source| [frame(source, 6, 0, 1500), frame(source, 17, 46, 200)])
        .collect()
}

/// Nanoseconds of a frame.
fn time(site: Option<&Site>, count: u64) -> f64 {
    let began = Instant::now();
    assert_eq!(pass(site, frames(), count).unwrap(), count);
    began.elapsed().as_nanos() as f64 / count as f64
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let site = site();
    if let [what, count, ..] = arguments.as_slice() {
        let site = match what.as_str() {
            "site" => Some(&site),
            "devices" => None,
            other => panic!("{other}: one of site, devices"),
        };
        time(site, count.parse().expect("a number of frames"));
        return;
    }
    let small = arguments.iter().any(|argument| argument == "--test");
    let count = if small { 1_000 } else { 1_000_000 };
    let (all, devices) = (time(Some(&site), count), time(None, count));
    println!(
        "{:.0} ns a frame, {devices:.0} ns of it for the devices",
        all
    );
}
