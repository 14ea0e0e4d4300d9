//! Checks README's statements against the code that it shows.

use std::error::Error;

use fairlane::{FlowConfig, Length, PacketScheduler, Weight, sched::Qfq};

fn send(_: u32) {}

/// Returns the greatest deviation of the heavy flow from three quarters of the packets sent, at any time while both
/// flows are backlogged, and the longest run of packets of one flow.
fn shares() -> Result<(f64, u32), Box<dyn Error>> {
    let (my_packet, another) = (0, 0);
    // The lines of README begin here.
    let mut link = PacketScheduler::new(Qfq::new(), Default::default());
    let longest = Length::new(1000).unwrap(); // as it is: the shares are exact to a few of these
    let heavy = link.add_flow(FlowConfig::new(Weight::new(3).unwrap(), longest))?;
    let light = link.add_flow(FlowConfig::new(Weight::ONE, longest))?;

    link.enqueue(heavy, longest, my_packet).unwrap();
    link.enqueue(light, longest, another).unwrap();
    if let Some(packet) = link.dequeue() {
        send(packet.payload);
    }
    // And end here.
    while link.dequeue().is_some() {}
    for _ in 0..4 {
        link.enqueue(heavy, longest, 1).unwrap();
        link.enqueue(light, longest, 1).unwrap();
    }
    let (mut sent, mut worst) = ([0u32; 2], 0f64);
    let (mut last, mut row, mut longest_row) = (None, 0, 0);
    for _ in 0..4_000 {
        let Some(packet) = link.dequeue() else {
            return Err("both flows always have packets".into());
        };
        link.enqueue(packet.owner, longest, 1).unwrap();
        sent[usize::from(packet.owner == light)] += 1;
        worst = worst.max((f64::from(sent[0]) - 0.75 * f64::from(sent[0] + sent[1])).abs());
        row = match last == Some(packet.owner) {
            true => row + 1,
            false => 1,
        };
        last = Some(packet.owner);
        longest_row = longest_row.max(row);
    }
    Ok((worst, longest_row))
}

#[test]
fn flows_as_readme_adds_them_have_their_shares_to_within_two_packets() {
    let (worst, row) = shares().unwrap();
    assert!(
        worst <= 2.0 && row <= 6,
        "{worst} packets off, {row} in a row"
    );
}

#[test]
fn readme_shows_the_code_that_is_tested() {
    let readme = include_str!("../../../README.md");
    let code = readme.split("```rust\n").nth(1).unwrap();
    let shown: Vec<&str> = code.split("```").next().unwrap().lines().collect();
    let source = include_str!("readme.rs");
    let mut tested = source.lines().map(str::trim);
    for line in shown.iter().map(|line| line.trim()) {
        assert!(
            tested.any(|other| other == line),
            "README's line is not tested, or not in this order: {line}"
        );
    }
    assert!(shown.len() > 10, "{} lines", shown.len());
}
