//! `fairlane run CONFIG` with frames of any length: tagged, jumbo, and too long.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::program::{Running, fairlane, start};
use crate::site::{BACKENDS, PATIENCE, interfaces, link};
use fairlane_io::{Backend, PacketBackend, packet};
use fairlane_netlab::{Link, Namespace, or_skip, veth};
use serde_json::Value;

/// Two hosts and the machine between them, all with the same MTU. Frames keep their lengths as sent.
struct Line {
    middle: Namespace,
    hosts: [PacketBackend; 2],
    _links: Vec<Link>,
}

fn line(test: &str, mtu: u32) -> Option<Line> {
    let made = || {
        let middle = Namespace::new()?;
        let mut links = Vec::new();
        let mut hosts = Vec::new();
        for near in ["inside", "outside"] {
            let (near, far) = veth((&middle, near), (&Namespace::new()?, "host"), mtu)?;
            for link in [&near, &far] {
                link.turn_offloads_off()?;
                link.up()?;
            }
            near.wait_for_carrier()?;
            hosts.push(far.namespace().run(|| {
                let options = packet::Options {
                    promiscuous: true,
                    ..packet::Options::default()
                };
                PacketBackend::open("host", &options).unwrap()
            }));
            links.extend([near, far]);
        }
        Ok(Line {
            middle,
            hosts: hosts.try_into().expect("two"),
            _links: links,
        })
    };
    or_skip(test, made())
}

/// Returns a frame of this length with these tags, identified by a number.
fn frame(tags: &[u16], length: usize, number: u8) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    for (at, tag) in tags.iter().enumerate() {
        let protocol = if at + 1 < tags.len() { 0x88a8 } else { 0x8100 };
        frame.extend(u16::to_be_bytes(protocol));
        frame.extend(tag.to_be_bytes());
    }
    let datagram = length - frame.len() - 2;
    frame.extend([8, 0, 0x45, 0]);
    frame.extend((datagram as u16).to_be_bytes());
    // An experimental protocol.
    frame.extend([0, 0, 0, 0, 64, 253]);
    frame.resize(length, number);
    frame
}

fn is_ours(frame: &[u8]) -> bool {
    frame.len() > 12 && frame[..12] == [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]
}

impl Line {
    /// Sends frames from inside, and waits until the expected number has arrived outside.
    fn pass(&mut self, frames: Vec<Vec<u8>>, expected: usize) -> Vec<Vec<u8>> {
        let [from, to] = &mut self.hosts;
        let mut batch = VecDeque::from(frames);
        let mut arrived = Vec::new();
        let begun = Instant::now();
        while arrived.len() < expected && begun.elapsed() < PATIENCE {
            from.transmit(&mut batch).unwrap();
            to.receive(&mut arrived, 64).unwrap();
            arrived.retain(|frame| is_ours(frame));
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(batch.is_empty() && from.refused() == 0);
        arrived
    }

    /// Waits until frames pass.
    fn until_through(&mut self) {
        let begun = Instant::now();
        loop {
            let [from, to] = &mut self.hosts;
            from.transmit(&mut VecDeque::from([frame(&[], 60, 0)]))
                .unwrap();
            std::thread::sleep(Duration::from_millis(10));
            let mut arrived = Vec::new();
            to.receive(&mut arrived, 64).unwrap();
            if arrived.iter().any(|frame| is_ours(frame)) {
                break;
            }
            assert!(begun.elapsed() < PATIENCE, "nothing passes");
        }
        // Earlier frames that are still in flight.
        std::thread::sleep(Duration::from_millis(100));
        let mut late = Vec::new();
        self.hosts[1].receive(&mut late, usize::MAX).unwrap();
    }

    fn run(&self, config: &str, more: &[&str]) -> (Running, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("site.toml");
        std::fs::write(&file, config).unwrap();
        let arguments = [&["run", file.to_str().unwrap()], more].concat();
        (self.middle.run(|| start(&arguments)), folder)
    }
}

fn config(backend: &str, more: &str) -> String {
    interfaces(backend)
        + &format!("[[link]]\nname = \"up\"\nto = \"outside\"\nrate = \"1gbit\"\n{more}")
}

#[test]
fn frames_of_full_size_pass_with_a_tag_as_without() {
    let Some(mut line) = line("frames of full size with a tag", 1_500) else {
        return;
    };
    for backend in BACKENDS {
        let (mut running, _folder) = line.run(&config(backend, ""), &["--json"]);
        line.until_through();
        let frames: Vec<_> = (0..100)
            .map(|number| match number % 2 {
                0 => frame(&[], 1_514, number),
                _ => frame(&[7], 1_518, number),
            })
            .collect();
        let arrived = line.pass(frames.clone(), 100);
        assert!(arrived == frames, "{backend}: {} of 100", arrived.len());
        running.signal("INT");
        let report: Value = serde_json::from_str(&running.finish().success()).unwrap();
        let up = link(&report, "up");
        assert_eq!(up["longest_frame"], 1_522);
        assert_eq!(up["oversized"], 0);
    }
}

#[test]
fn jumbo_frames_pass_where_the_backend_can_and_else_it_says_what_it_cannot() {
    let Some(mut line) = line("jumbo frames", 9_000) else {
        return;
    };
    let (mut running, _folder) = line.run(&config("packet", ""), &["--json"]);
    line.until_through();
    let frames: Vec<_> = (0..50)
        .map(|number| match number % 2 {
            0 => frame(&[], 9_014, number),
            _ => frame(&[7], 9_018, number),
        })
        .collect();
    let arrived = line.pass(frames.clone(), 50);
    assert!(arrived == frames, "{} of 50", arrived.len());
    running.signal("INT");
    let report: Value = serde_json::from_str(&running.finish().success()).unwrap();
    assert_eq!(link(&report, "up")["longest_frame"], 9_022);

    let (running, _folder) = line.run(&config("xdp", ""), &[]);
    let refused = running.finish();
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(
        refused.stderr.contains(
            "with the backend xdp an MTU is at most 3818, and inside has 9000: lower it (ip link \
             set inside mtu 3818), or use the backend packet"
        ),
        "{refused:?}"
    );
}

#[test]
fn what_the_file_makes_too_long_is_warned_of_and_shown() {
    let Some(mut line) = line("frames that are too long for the file", 1_500) else {
        return;
    };
    let (mut running, _folder) = line.run(&config("packet", "longest = \"1514b\"\n"), &[]);
    line.until_through();
    let mut frames: Vec<_> = (0..20).map(|n| frame(&[7], 1_518, n)).collect();
    let last = frame(&[], 1_514, 20);
    frames.push(last.clone());
    assert!(line.pass(frames, 1) == [last]);
    running.signal("INT");
    let finished = running.finish();
    assert!(finished.status.success());
    let warning = "longest '1514b': inside sends frames of up to 1518 bytes with a VLAN tag";
    assert!(finished.stderr.contains(warning), "{finished:?}");
    let shown = "20 frames were longer than the 1514 bytes that link up carries";
    assert!(finished.stdout.contains(shown), "{finished:?}");
}

#[test]
fn what_is_checked_is_the_interface_that_is_there() {
    let Some(line) = line("the interface that is there", 9_000) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("site.toml");
    std::fs::write(&file, config("packet", "")).unwrap();
    let check = || fairlane(&["check", file.to_str().unwrap()]).success();
    let here = line.middle.run(check);
    assert!(here.contains("packets up to 9022 bytes with 0 of overhead (its MTU is 9000)"));
    let elsewhere = check();
    assert!(
        elsewhere
            .contains("packets up to 1522 bytes with 0 of overhead (an MTU of 1500 is assumed)")
    );
}

#[test]
fn an_mtu_raised_during_a_run_is_logged_and_the_report_names_the_limit() {
    let Some(mut line) = line("an MTU raised during a run", 1_500) else {
        return;
    };
    let (mut running, _folder) = line.run(&config("packet", ""), &["--quiet", "--drain", "0"]);
    line.until_through();
    for link in &line._links {
        link.set_mtu(9_000).unwrap();
    }
    let said = "the MTU is 9000 now, 1500 before";
    running.until_said(&format!("inside: {said}\n"));
    running.until_said(&format!(
        "outside: {said}; its link carries frames of up to 1522 bytes until the file is read again"
    ));
    // The second frame arrives after the first was received.
    line.pass(vec![frame(&[], 9_014, 1), frame(&[], 60, 2)], 1);
    running.signal("HUP");
    running.until_said("reloaded ");
    let arrived = line.pass(vec![frame(&[], 9_014, 3)], 1);
    assert_eq!(arrived.len(), 1);
    running.signal("INT");
    let finished = running.finish();
    assert!(finished.status.success(), "{finished:?}");
    assert_eq!(finished.stderr.matches(said).count(), 2, "{finished:?}");

    // Without a reload, the report has the limit that applied.
    for link in &line._links {
        link.set_mtu(1_500).unwrap();
    }
    let (mut running, _folder) = line.run(&config("packet", ""), &["--quiet", "--drain", "0"]);
    line.until_through();
    for link in &line._links {
        link.set_mtu(9_000).unwrap();
    }
    line.pass(vec![frame(&[], 9_014, 1), frame(&[], 60, 2)], 1);
    running.signal("INT");
    let finished = running.finish();
    let note = "1 frames were longer than the 1522 bytes that link up carries, and were dropped: outside had an \
                MTU of 1500 when the file was read: raise that and read the file again (SIGHUP), or set 'longest'";
    assert!(finished.stdout.contains(note), "{finished:?}");
}

#[test]
fn a_device_of_packets_without_ethernet_is_refused() {
    let Some(namespace) = or_skip("a device without Ethernet", Namespace::new()) else {
        return;
    };
    let tun = namespace.run(|| {
        fairlane_io::TunBackend::<Vec<u8>>::open("tun0", fairlane_io::tun::Layer::Ip).unwrap()
    });
    for backend in BACKENDS {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("site.toml");
        let config = format!(
            "[interfaces]\ntap = \"fair0\"\noutside = \"tun0\"\nbackend = \"{backend}\"\n\
             [[link]]\nname = \"up\"\nrate = \"1gbit\"\n"
        );
        std::fs::write(&file, config).unwrap();
        for command in ["check", "run"] {
            let refused = namespace.run(|| fairlane(&[command, file.to_str().unwrap()]));
            assert_eq!(refused.status.code(), Some(2), "{refused:?}");
            assert!(
                refused.stderr.contains("tun0 carries no Ethernet frames"),
                "{refused:?}"
            );
        }
    }
    drop(tun);
}
