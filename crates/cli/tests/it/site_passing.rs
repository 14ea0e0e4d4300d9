//! `fairlane run CONFIG`: frames of real hosts pass between two interfaces, in both directions.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use crate::program::{Pressure, start};
use crate::site::{
    self, BACKENDS, FILLED, PATIENCE, Site, interfaces, link, start_on_tap, total, up, wire,
};
use fairlane_netlab::{
    Echo, Flow, Link, Namespace, Wire, cable, iperf_is_installed, or_skip, veth,
};

const BOTH_WAYS: &str = r#"
[[link]]
name = "up"
to = "outside"
rate = "50mbit"
overhead = 24

[[link]]
name = "down"
to = "inside"
rate = "100mbit"
"#;

#[test]
fn datagrams_pass_both_ways_on_either_backend() {
    let Some(wire) = wire("datagrams pass both ways", 1) else {
        return;
    };
    for backend in BACKENDS {
        let site = Site::start(&wire, &[interfaces(backend), BOTH_WAYS.into()].concat());
        let mut echo = Echo::between(wire.sender(0), wire.receiver(), 9).unwrap();
        let pressure = Pressure::begin();
        let mut rounds = Vec::new();
        // If a round trip waited for a block to fill, or for a sleeping thread, none would be this short. The median of
        // 21 is short on an idle machine; on a busy one, a few of many are.
        loop {
            rounds.push(echo.round_trip(100, 1_400, PATIENCE).unwrap());
            let is_short = |round: &&Duration| **round < Duration::from_micros(700);
            let short = rounds.iter().filter(is_short).count() as f64;
            if rounds.len() >= 21 && short > pressure.least(10.0 / 21.0, 2.0 / 21.0) * 21.0 {
                break;
            }
            let most = pressure.most(21.0, 1_000.0);
            assert!((rounds.len() as f64) < most, "{backend}: {rounds:?}");
        }
        let report = site.stop();
        for name in ["up", "down"] {
            let link = link(&report, name);
            assert!(
                link["transmitted"].as_u64() >= Some(21),
                "{backend}: {link:#}"
            );
            assert_eq!(total(link, "sent_packets"), link["transmitted"], "{link:#}");
            assert_eq!(link["queued_packets"], 0);
        }
        let used = report["interfaces"][0]["backend"].as_str().unwrap();
        assert!(used.starts_with(backend), "{used}");
    }
}

#[test]
fn a_connection_fills_its_link_and_no_more() {
    let Some(wire) = wire("a connection fills its link", 1) else {
        return;
    };
    if or_skip("a connection fills its link", iperf_is_installed()).is_none() {
        return;
    }
    for backend in BACKENDS {
        let site = Site::start(&wire, &[interfaces(backend), BOTH_WAYS.into()].concat());
        let pressure = Pressure::begin();
        let flow = Flow::start(wire.sender(0), wire.receiver(), 5_201, 3).unwrap();
        // The link's output, independent of the receiver's timing: at most its rate over the time and the 20 ms for
        // which it catches up, and packets in flight at the start.
        thread::sleep(Duration::from_millis(500));
        let came = || wire.receiver().link().received().unwrap();
        let (began, before) = (Instant::now(), came());
        thread::sleep(Duration::from_millis(2_000));
        let (after, span) = (came(), began.elapsed() + Duration::from_millis(40));
        let bytes = after.1 - before.1 + 24 * (after.0 - before.0);
        let most = 50e6 * span.as_secs_f64() / 8.0;
        assert!(bytes as f64 <= most, "{backend}: {bytes} bytes of {most}");
        let transfer = flow.finish().unwrap();
        // A receiver that waited for a processor reads earlier arrivals in one window.
        let limits = pressure.least(0.98, FILLED)..pressure.most(1.01, 0.3);
        site.stop();
        // From one second on; a starved receiver reports fewer and longer windows.
        let begun = transfer.windows.first().expect("a window").start;
        let full = begun + Duration::from_millis(950)..begun + Duration::from_millis(2_550);
        let of = transfer.windows.iter();
        let windows: Vec<_> = of
            .filter(|window| full.contains(&window.start) && full.contains(&window.end))
            .collect();
        let bytes: u64 = windows.iter().map(|window| window.bytes).sum();
        let (first, last) = (windows.first(), windows.last());
        let (first, last) = first.zip(last).expect("a window of iperf3's");
        let span = last.end - first.start;
        // 1,448 bytes of a frame of 1,514 and 24 of overhead.
        let wire_bps = bytes as f64 * 8.0 / span.as_secs_f64() * 1_538.0 / 1_448.0;
        let part = wire_bps / 50e6;
        assert!(
            limits.contains(&part),
            "{backend}: {part} of the link, not in {limits:?}"
        );
    }
}

#[test]
fn a_direction_without_a_link_passes_as_it_is() {
    let Some(wire) = wire("a direction without a link", 1) else {
        return;
    };
    let up_alone = &BOTH_WAYS[..BOTH_WAYS.rfind("[[link]]").unwrap()];
    let site = Site::start(&wire, &[interfaces("packet"), up_alone.into()].concat());
    round_trips(&wire);
    let report = site.stop();
    assert_eq!(report["links"].as_array().unwrap().len(), 1);
    let open = &report["open"][0];
    assert_eq!(open["to"], "inside");
    assert!(open["frames"].as_u64() >= Some(10), "{open}");
}

#[test]
fn a_link_of_cbq_passes_and_is_read_again_as_any() {
    let Some(wire) = wire("a link of CBQ", 1) else {
        return;
    };
    let config = up("packet", "50mbit")
        + r#"algorithm = "cbq"

[[link.class]]
name = "all"
rate = "40mbit"
borrow = true
default = true
"#;
    let mut site = Site::start(&wire, &config);
    round_trips(&wire);
    site.signal("HUP");
    site.until_said("reloaded ");
    round_trips(&wire);
    let finished = site.end();
    assert!(finished.stderr.contains("reloaded "), "{finished:?}");
    let report: serde_json::Value = serde_json::from_str(&finished.stdout).unwrap();
    let all = site::class(&report, "up", "all");
    assert!(all["sent_packets"].as_u64() >= Some(20), "{all:#}");
    assert_eq!(all["sent_packets"], all["accepted_packets"]);
    assert_eq!(link(&report, "up")["algorithm"], "cbq");
}

/// With default offload settings: arriving frames are neither segmented nor checksummed.
#[test]
fn offloaded_checksums_and_segmentation_are_done_in_software() {
    let made = || {
        let middle = Namespace::new()?;
        let hosts = [Namespace::new()?, Namespace::new()?];
        for (number, (near, host)) in (1..).zip(["inside", "outside"].iter().zip(&hosts)) {
            let (near, far) = veth((&middle, near), (host, "host"), 1_500)?;
            far.add_address(Ipv4Addr::new(10, 0, 0, number).into(), 24)?;
            near.up()?;
            far.up()?;
        }
        Ok((middle, hosts))
    };
    let Some((middle, hosts)) = or_skip("what hosts leave to hardware", made()) else {
        return;
    };
    // The kernel itself keeps long frames from a native AF_XDP socket.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("site.toml");
    std::fs::write(&file, [interfaces("xdp"), BOTH_WAYS.into()].concat()).unwrap();
    let mut running = middle.run(|| start(&["run", file.to_str().unwrap(), "--json"]));
    let listener = hosts[1].run(|| TcpListener::bind("10.0.0.2:9").unwrap());
    let begun = Instant::now();
    let mut stream = loop {
        let address = "10.0.0.2:9".parse().unwrap();
        let second = Duration::from_secs(1);
        match hosts[0].run(|| TcpStream::connect_timeout(&address, second)) {
            Ok(stream) => break stream,
            Err(error) => assert!(begun.elapsed() < PATIENCE, "{error}"),
        }
    };
    let sent: Vec<u8> = (0..2_000_000).map(|at| (at % 251) as u8).collect();
    let received = thread::scope(|scope| {
        let receiving = scope.spawn(|| {
            let mut received = Vec::new();
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream.read_to_end(&mut received).unwrap();
            received
        });
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(&sent).unwrap();
        drop(stream);
        receiving.join().unwrap()
    });
    assert!(received == sent);
    running.signal("INT");
    running.finish().success();
}

#[test]
fn the_egress_of_a_host_is_shaped_through_a_tap_device() {
    let Some((near, far)) = or_skip("egress through a tap device", cable(1_500)) else {
        return;
    };
    far.add_address(Ipv4Addr::new(10, 0, 0, 2).into(), 24)
        .unwrap();
    let (mut running, _folder, tap) = start_on_tap(
        &near,
        "[[link]]\nname = \"up\"\nto = \"outside\"\nrate = \"8mbit\"\n\
         [[link.class]]\nname = \"ours\"\n[[link.class]]\nname = \"default\"\n\
         [[link.filter]]\nclass = \"ours\"\ningress = \"tap\"\n",
    );
    let (host, begun) = (near.namespace(), Instant::now());
    tap.add_address(Ipv4Addr::new(10, 0, 0, 1).into(), 24)
        .unwrap();
    let bind = |namespace: &Namespace, last| {
        let address = (Ipv4Addr::new(10, 0, 0, last), 9);
        let socket = namespace.run(|| UdpSocket::bind(address).unwrap());
        socket
            .set_read_timeout(Some(Duration::from_secs(2)))
            .unwrap();
        socket
    };
    let (ours, theirs) = (bind(host, 1), bind(far.namespace(), 2));
    let mut buffer = [0; 2_000];
    let mut passed = 0;
    for _ in 0..20 {
        // The device exists before it is up.
        while let Err(error) = ours.send_to(&[1; 500], "10.0.0.2:9") {
            assert!(begun.elapsed() < PATIENCE, "{error}");
            thread::sleep(Duration::from_millis(5));
        }
        let Ok((_, peer)) = theirs.recv_from(&mut buffer) else {
            continue;
        };
        theirs.send_to(&[2; 900], peer).unwrap();
        passed += usize::from(ours.recv(&mut buffer).is_ok());
    }
    assert!(passed >= 19, "{passed}");
    running.signal("INT");
    let report: serde_json::Value = serde_json::from_str(&running.finish().success()).unwrap();
    let sent = site::class(&report, "up", "ours")["sent_packets"].as_u64();
    assert!(sent >= Some(19), "{report:#}");
    assert_eq!(report["open"][0]["to"], "fair0");
    assert!(
        Link::find(host, "fair0").is_err(),
        "the device is gone with the program"
    );
}

fn round_trips(wire: &Wire) {
    let mut echo = Echo::between(wire.sender(0), wire.receiver(), 9).unwrap();
    for _ in 0..10 {
        assert!(echo.round_trip(100, 100, PATIENCE).is_some());
    }
}

#[test]
fn an_idle_site_sleeps() {
    let Some(wire) = wire("an idle site sleeps", 1) else {
        return;
    };
    for workers in ["", "[workers]\narbiters = 2\n"] {
        let config = [&interfaces("packet"), workers, BOTH_WAYS].concat();
        let site = Site::start(&wire, &config);
        let before = site.processor_time();
        std::thread::sleep(Duration::from_secs(1));
        let used = site.processor_time() - before;
        site.stop();
        assert!(
            used < Duration::from_millis(50),
            "{used:?} of a second: {workers}"
        );
    }
}
