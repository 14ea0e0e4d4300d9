//! `fairlane run CONFIG --take-over`: a new process takes over from a running one.

use std::collections::{HashMap, VecDeque};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fairlane_control::view::drops;
use fairlane_io::packet::Options;
use fairlane_io::{Backend, PacketBackend, Waiter, files, socket_of_holder};
use fairlane_netlab::{Host, Link, Wire};
use serde_json::Value;

use crate::program::{Finished, Pressure, beside_noise, fairlane};
use crate::site::{PATIENCE, Site, bind, class, up, wire};
use crate::site_control::{Asked, until_it_tells};
use crate::site_interfaces::frame;
use crate::site_reload::{Ends, numbered, send};

/// Destination port of the steady flow, which may lose no packet, and that of the backlogged one.
const STEADY: u16 = 1_001;
const BULK: u16 = 1_002;

/// Arrivals at a port: the numbers, and the kernel's timestamps.
type Arrivals = Vec<(u32, Instant)>;

/// Records all arrivals at a host until `done`, and for a while after it.
fn watch(mut device: PacketBackend, done: &AtomicBool) -> HashMap<u16, Arrivals> {
    let (mut waiter, mut frames) = (Waiter::new(), Vec::new());
    let mut arrived: HashMap<u16, Arrivals> = HashMap::new();
    let mut patience = 10;
    while patience > 0 {
        let over = done.load(Ordering::Relaxed);
        let wait = Duration::from_millis(50);
        if waiter
            .wait_readable(&[&device], wait)
            .unwrap()
            .next()
            .is_none()
            && over
        {
            patience -= 1;
        }
        device.receive(&mut frames, 256).unwrap();
        let now = Instant::now();
        for (frame, arrival) in frames.drain(..).zip(device.arrivals()) {
            // The headers of Ethernet, IP and UDP precede the number.
            if let (Some(port), Some(number)) = (frame.get(36..38), frame.get(42..46)) {
                let port = u16::from_be_bytes(port.try_into().unwrap());
                let number = u32::from_be_bytes(number.try_into().unwrap());
                let all = arrived.entry(port).or_default();
                all.push((number, now - arrival.waited));
            }
        }
    }
    assert_eq!(device.lost().unwrap(), 0, "the test itself has lost some");
    arrived
}

/// Opens a receiver of all frames that arrive at a host.
fn listen(host: &Host) -> PacketBackend {
    let options = Options {
        prompt: true,
        ..Options::default()
    };
    let open = || PacketBackend::open(host.link().name(), &options);
    host.namespace().run(open).unwrap()
}

/// The arrivals under a load above the link's rate.
struct Load {
    arrived: HashMap<u16, Arrivals>,
    /// The numbers of datagrams sent to each of the two ports.
    sent: [u32; 2],
    /// The start and the end of the backlog.
    full: [Instant; 2],
}

impl Load {
    /// Returns the longest time between two frames while there was a backlog.
    fn longest_gap(&self) -> Duration {
        let [from, until] = self.full;
        let times = self.arrived.values().flatten().map(|(_, at)| *at);
        let mut times: Vec<_> = times.filter(|at| (from..until).contains(at)).collect();
        times.sort();
        let gaps = times.windows(2).map(|pair| pair[1] - pair[0]);
        gaps.max().unwrap()
    }
}

/// Loads the link from the sender to the receiver while `meanwhile` runs.
fn loaded(wire: &Wire, meanwhile: impl FnOnce()) -> Load {
    let (from, to) = (wire.sender(0), wire.receiver());
    let device = listen(to);
    let (stop, done) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let watching = scope.spawn(|| watch(device, &done));
        let sending = [(STEADY, 1_000.0), (BULK, 5_000.0)].map(|(port, pps)| {
            let (socket, stop) = (bind(from, 0), &stop);
            let to = format!("{}:{port}", to.address());
            scope.spawn(move || send(&socket, &to, pps, stop))
        });
        let ends = Ends([&stop, &done]);
        // Until there is a backlog.
        thread::sleep(Duration::from_millis(700));
        let begun = Instant::now();
        meanwhile();
        let full = [begun, Instant::now()];
        stop.store(true, Ordering::Relaxed);
        let sent = sending.map(|sending| sending.join().unwrap());
        drop(ends);
        Load {
            arrived: watching.join().unwrap(),
            sent,
            full,
        }
    })
}

/// A site with a link of this rate, of which `steady` is guaranteed to the steady flow. The hosts' own traffic (ARP,
/// IPv6 neighbour discovery) has a separate class, so that it is not counted with the others.
fn of_rates(link: &str, steady: &str) -> String {
    up("packet", link)
        + &format!(
            "[[link.class]]\nname = \"steady\"\nrate = \"{steady}\"\n\
             [[link.class]]\nname = \"bulk\"\nweight = 1\n\
             [[link.class]]\nname = \"others\"\nweight = 1\ndefault = true\n\
             [[link.filter]]\nclass = \"steady\"\ndestination-port = {STEADY}\n\
             [[link.filter]]\nclass = \"bulk\"\ndestination-port = {BULK}\n"
        )
}

fn report(finished: &Finished) -> Value {
    assert!(finished.status.success(), "{finished:?}");
    serde_json::from_str(&finished.stdout).unwrap()
}

/// Returns the numbers that arrived at a port.
fn numbers_of(load: &Load, port: u16) -> Vec<u32> {
    load.arrived[&port]
        .iter()
        .map(|(number, _)| *number)
        .collect()
}

#[test]
fn handover_under_load_loses_and_reorders_nothing() {
    is_handed_over("", 5);
}

#[test]
fn frames_that_workers_have_are_handed_over_too() {
    is_handed_over("[workers]\narbiters = 1\n", 2);
}

#[test]
fn with_an_arbiter_a_link_both_lanes_are_handed_over() {
    is_handed_over("[workers]\narbiters = 2\n", 2);
}

#[test]
fn frames_that_workers_are_to_transmit_leave_before_those_that_are_handed_over() {
    is_handed_over("[workers]\nreceive = 1\ntransmit = 1\n", 2);
}

#[test]
fn frames_that_workers_could_not_transmit_are_handed_over_and_do_not_count_as_transmitted() {
    // Fewer than the budget of an interface allows.
    const FRAMES: u64 = 100;
    let Some(wire) = wire("frames that could not be transmitted", 1) else {
        return;
    };
    let config = up("packet", "100mbit") + "[workers]\nreceive = 1\ntransmit = 1\n";
    let mut asked = Asked::over(&wire, &config, "");
    let count = |asked: &Asked, what: &str| {
        let state = asked.json(&["show"]);
        state["links"][0][what].as_u64().unwrap()
    };
    let outside = Link::find(wire.middle(), "outside").unwrap();
    outside.down().unwrap();
    let [before, received] = ["transmitted", "received_frames"].map(|what| count(&asked, what));
    let host = wire.sender(0);
    let open = || PacketBackend::open(host.link().name(), &Options::default());
    let mut from = host.namespace().run(open).unwrap();
    let mut batch: VecDeque<_> = (0..FRAMES).map(|number| frame(number as u8)).collect();
    let begun = Instant::now();
    while !batch.is_empty() || count(&asked, "received_frames") < received + FRAMES {
        assert!(begun.elapsed() < PATIENCE, "they are not taken");
        from.transmit(&mut batch).unwrap();
        thread::sleep(Duration::from_millis(20));
    }
    let ended = asked.site.hand_over(&wire);
    let told = ended.stderr.split_once("has taken over, with ");
    let told = told.and_then(|(_, told)| told.split(' ').next()?.parse::<u64>().ok());
    assert!(told >= Some(FRAMES), "{ended:?}");
    let link = &report(&ended)["links"][0];
    let left = link["transmitted"].as_u64().unwrap();
    // The earlier count may be slightly older than the hand-over.
    assert!(
        (before..before + FRAMES / 2).contains(&left),
        "{before} and {left}"
    );
    outside.up().unwrap();
    assert!(wire.is_through(PATIENCE).unwrap(), "nothing passes");
    asked.site.end();
}

/// Hands a site over this number of times, with more keys in its file.
fn is_handed_over(more: &str, times: usize) {
    let Some(wire) = wire("a site that is handed over", 1) else {
        return;
    };
    // A link with a low rate, which has a backlog even if senders get little CPU time.
    let mut asked = Asked::over(&wire, &(of_rates("8mbit", "6mbit") + more), "");
    let pressure = Pressure::begin();
    let mut ended = Vec::new();
    let hand_over = || {
        for _ in 0..times {
            until_backlog(&asked, BACKLOG);
            ended.push(asked.site.hand_over(&wire));
            thread::sleep(Duration::from_millis(200));
        }
    };
    let (load, stall) = beside_noise(|| loaded(&wire, hand_over));
    ended.push(asked.site.end());
    let waited = ended.iter().filter_map(|one| {
        let (_, told) = one.stderr.split_once("has taken over, with ")?;
        told.split(' ').next()?.parse::<u64>().ok()
    });
    let waited: Vec<_> = waited.collect();
    assert_eq!(waited.len(), times, "{ended:#?}");
    assert!(
        waited.iter().all(|&waited| waited > 20),
        "no backlog: {waited:?}"
    );
    let steady = numbers_of(&load, STEADY);
    assert!(
        steady.iter().copied().eq(0..load.sent[0]),
        "{} of {:?} arrived, or not in order",
        steady.len(),
        load.sent
    );
    let bulk = numbers_of(&load, BULK);
    assert!(
        bulk.is_sorted_by(|one, next| one < next),
        "twice, or out of order"
    );
    // Datagrams that did not arrive were dropped for lack of space, and counted.
    let told = ended.iter().map(|one| {
        let report = report(one);
        let bulk = class(&report, "up", "bulk");
        drops(bulk) + bulk["queued_packets"].as_u64().unwrap()
    });
    let told: u64 = told.sum();
    assert_eq!(bulk.len() as u64 + told, u64::from(load.sent[1]));
    let stood = ended.iter().filter_map(|one| {
        let (_, told) = one.stderr.split_once("forwarding paused for ")?;
        told.split(' ').next()?.parse().ok()
    });
    let stood: Vec<f64> = stood.collect();
    assert_eq!(stood.len(), times, "{ended:#?}");
    let gap = load.longest_gap();
    eprintln!("{gap:?} between two frames; without a round {stood:?} us; {waited:?} waited");
    // In the meantime several threads wait for one another, each possibly for a processor.
    let stall = 4.0 * stall.as_secs_f64() * 1e3;
    let longest = stood.into_iter().fold(0.0, f64::max) / 1e3;
    let most = pressure.most(1.0, 100.0) + stall;
    assert!(
        longest <= most,
        "{longest} ms without a round, {most} allowed"
    );
    let most = pressure.most(5.0, 1_000.0) + stall;
    let gap = gap.as_secs_f64() * 1e3;
    assert!(gap <= most, "nothing left for {gap} ms, {most} allowed");
}

#[test]
fn handover_keeps_changes_grants_and_disabled_shaping() {
    let Some(wire) = wire("a site that was changed and is handed over", 1) else {
        return;
    };
    Link::find(wire.middle(), "lo").unwrap().up().unwrap();
    let mut asked = Asked::start(&wire, "packet", "http = \"127.0.0.1:7373\"\n");
    let file = fs::read_to_string(asked.site.file()).unwrap();
    asked.json(&["set", "voice", "rate=3mbit"]);
    let grant = [
        "grant",
        "up",
        "rate=1mbit",
        "destination-port=1003",
        "--for",
        "10min",
    ];
    asked.json(&grant);
    asked.json(&[
        "grant",
        "up",
        "rate=1mbit",
        "destination-port=1004",
        "--for",
        "2s",
    ]);
    asked.json(&["disable", "outside"]);
    let (config, before) = (asked.config(), asked.json(&["grants"]));
    let hosts = (wire.sender(0), wire.receiver());
    let (ended, numbers, sent) = numbered(hosts, 1_001, || asked.site.hand_over(&wire));
    report(&ended);
    assert!(
        numbers.iter().copied().eq(0..sent),
        "{} of {sent}",
        numbers.len()
    );

    assert_eq!(asked.config(), config);
    assert!(
        config.contains("\"3mbit\"") && !file.contains("\"3mbit\""),
        "{config}"
    );
    let after = asked.json(&["grants"]);
    for key in [
        "id",
        "class",
        "filter",
        "rate_bps",
        "reserved_bps",
        "granted",
        "lifetime_s",
    ] {
        assert_eq!(after[0][key], before[0][key], "{key}: {after:#}");
    }
    let left = |grants: &Value| grants[0]["expires_in_s"].as_f64().unwrap();
    assert!(left(&after) <= left(&before), "{after:#}");
    let state = asked.json(&["show"]);
    assert_eq!(state["interfaces"][1]["shaped"], false, "{state:#}");
    let over_http = || {
        let ctl = ["ctl", "--http", "127.0.0.1:7373", "show"];
        fairlane(&ctl)
    };
    wire.middle().run(over_http).success();
    // A grant still expires at its time.
    let begun = Instant::now();
    while asked.json(&["grants"]).as_array().unwrap().len() > 1 {
        assert!(begun.elapsed() < PATIENCE, "it does not end");
        thread::sleep(Duration::from_millis(50));
    }
    // The next grant gets a new number.
    let next = asked.json(&["grant", "up", "rate=1mbit", "destination-port=1005"]);
    assert_eq!(next["grant"]["id"], 3, "{next:#}");
    asked.json(&["save"]);
    assert_eq!(fs::read_to_string(asked.site.file()).unwrap(), config);
    report(&asked.site.end());
}

/// A process that requests a hand-over by the protocol's messages.
struct Other(UnixStream);

impl Other {
    fn ask(wire: &Wire, version: u32) -> (Other, String) {
        let path = wire.middle().run(|| socket_of_holder("outside")).unwrap();
        let mut stream = UnixStream::connect(path).unwrap();
        let hello = format!("{{\"version\":{version},\"pid\":1}}");
        let length = u32::try_from(hello.len()).unwrap();
        stream.write_all(&length.to_be_bytes()).unwrap();
        stream.write_all(hello.as_bytes()).unwrap();
        let mut length = [0; 4];
        stream.read_exact(&mut length).unwrap();
        let mut answer = vec![0; u32::from_be_bytes(length) as usize];
        stream.read_exact(&mut answer).unwrap();
        (Other(stream), String::from_utf8(answer).unwrap())
    }

    /// Takes the files, reports ready, and reads this number of bytes of the state.
    fn begin(&mut self, bytes: usize) {
        // The descriptors of both interfaces, of the hand-over socket, and of `[control]`.
        assert_eq!(files::receive(&self.0).unwrap().len(), 8);
        self.0.write_all(b"r").unwrap();
        self.0.read_exact(&mut vec![0; bytes]).unwrap();
    }
}

/// The version of the hand-over protocol.
const VERSION: u32 = 1;

/// Bytes of about 800 packets, whose transmission takes most of a second.
const BACKLOG: u64 = 430_000;

/// Waits until this number of bytes of the bulk class is queued; of the other class no packet may be lost.
fn until_backlog(asked: &Asked, bytes: u64) {
    // A process that has just taken over has not published its state yet.
    until_it_tells(&asked.socket());
    let begun = Instant::now();
    let waiting = || class(&asked.json(&["show"]), "up", "bulk")["queued_bytes"].as_u64();
    while waiting().unwrap() < bytes {
        assert!(begun.elapsed() < PATIENCE, "there is no backlog");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Bytes of the hand-over that the new process reads before it fails.
const TOLD: usize = 20_000;

#[test]
fn one_that_fails_or_dies_on_the_way_leaves_the_other_one_forwarding() {
    let Some(wire) = wire("a hand-over that fails", 1) else {
        return;
    };
    // A link with a low rate, which has a backlog even if senders get little CPU time.
    let mut asked = Asked::over(&wire, &of_rates("8mbit", "6mbit"), "");
    // The time of a hand-over, including the end of the former process.
    let begun = Instant::now();
    report(&asked.site.hand_over(&wire));
    let whole = begun.elapsed().min(Duration::from_millis(60));
    until_it_tells(&asked.socket());
    let hosts = (wire.sender(0), wire.receiver());
    // Until the new process is ready, the hand-over has no effect.
    let ((), numbers, sent) = numbered(hosts, STEADY, || {
        let (other, answer) = Other::ask(&wire, VERSION);
        assert!(answer.starts_with("{\"Given\":"), "{answer}");
        let refused = asked.refused(&["set", "steady", "rate=7mbit"]);
        assert!(
            refused.contains("another process is taking over"),
            "{refused}"
        );
        drop(other);
        let (_, answer) = Other::ask(&wire, VERSION + 1);
        assert!(answer.starts_with("{\"Refused\":"), "{answer}");
    });
    assert!(
        numbers.iter().copied().eq(0..sent),
        "{} of {sent}",
        numbers.len()
    );
    // No packet is lost if the new process is killed at its start either, unless it is already ready: then it takes the
    // backlog with it, which are the arrivals while the machine delayed a thread.
    let pressure = Pressure::begin();
    let kill_at_start = || {
        for eighths in 0..4 {
            let killed = asked.site.start_next(&wire);
            thread::sleep(whole * eighths / 8);
            drop(killed);
        }
    };
    let (((), numbers, sent), stall) = beside_noise(|| numbered(hosts, STEADY, kill_at_start));
    assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
    let lost = f64::from(sent) - numbers.len() as f64;
    let waited = 4.0 * (2.0 + 2.0 * stall.as_secs_f64() * 1e3);
    let most = pressure.most(waited, 1_000.0);
    assert!(lost <= most, "{lost} of {sent}, {most} allowed");
    asked.json(&["set", "steady", "rate=7mbit"]);
    // After that point the backlog may be lost, but no other packet, even if the new process only hangs.
    for hangs in [false, true] {
        let load = loaded(&wire, || {
            until_backlog(&asked, 2 * TOLD as u64);
            let (mut other, _) = Other::ask(&wire, VERSION);
            other.begin(TOLD);
            if hangs {
                thread::sleep(Duration::from_millis(1_500));
            }
            drop(other);
            thread::sleep(Duration::from_millis(1_000));
        });
        let steady = numbers_of(&load, STEADY);
        assert!(
            steady.is_sorted_by(|one, next| one < next),
            "twice, or out of order"
        );
        let lost = load.sent[0] as usize - steady.len();
        // After a second the backlog may exceed the class's limit.
        assert!(lost < 100 || hangs, "{lost} of {:?}", load.sent);
        let last = steady.last().unwrap();
        assert!(load.sent[0] - last < 100, "{last} of {:?}", load.sent);
    }
    let ended = asked.site.hand_over(&wire);
    report(&ended);
    let told = ended
        .stderr
        .matches("has not taken over: this process keeps running")
        .count();
    assert!(told >= 3, "{ended:?}");
    report(&asked.site.end());
}

#[test]
fn refused_handover_leaves_the_running_daemon() {
    let Some(wire) = wire("a site that is not handed over", 1) else {
        return;
    };
    let refused = |site: &Site, sentence: &str| {
        let finished = site.start_next(&wire).finish();
        assert_eq!(finished.status.code(), Some(2), "{finished:?}");
        assert_eq!(finished.stderr.lines().count(), 1, "{finished:?}");
        assert!(finished.stderr.contains(sentence), "{finished:?}");
        assert!(wire.is_through(PATIENCE).unwrap(), "nothing passes");
    };
    let socket = tempfile::tempdir().unwrap();
    let attach = format!(
        "[attach]\nsocket = \"{}\"\n",
        socket.path().join("attach").display()
    );
    for (config, more, sentence) in [
        (
            up("xdp", "20mbit"),
            &[][..],
            "the backend xdp cannot be handed over",
        ),
        (
            up("packet", "20mbit") + &attach,
            &[],
            "a site that processes attach to",
        ),
        (
            up("packet", "20mbit"),
            &["--fail-open"],
            "runs with --fail-open",
        ),
        (
            up("packet", "20mbit") + "[workers]\nreceive = 2\n",
            &[],
            "2 threads receive at outside, and one alone can be handed over",
        ),
    ] {
        let site = Site::start_with(&wire, &config, more);
        refused(&site, sentence);
        site.end();
    }
    let tap = up("packet", "20mbit").replace("inside = \"inside\"", "tap = \"fair0\"");
    let site = Site::start_unseen(&wire, &tap);
    let begun = Instant::now();
    // Until the process runs there is nothing to take over.
    loop {
        let refused = site.start_next(&wire).finish();
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        if refused
            .stderr
            .contains("a tap device goes with its process")
        {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{refused:?}");
    }
    site.end();
    let site = Site::start(&wire, &up("packet", "20mbit"));
    fs::write(site.file(), "no configuration").unwrap();
    refused(&site, "site.toml:1:");
    let elsewhere = up("packet", "20mbit").replace("\"outside\"\nb", "\"lo\"\nb");
    fs::write(site.file(), elsewhere).unwrap();
    refused(&site, "no handover: no process");
    site.stop();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("site.toml");
    fs::write(&file, up("packet", "20mbit")).unwrap();
    let both = fairlane(&["run", file.to_str().unwrap(), "--take-over", "--fail-open"]);
    assert!(both.stderr.contains("cannot be used with"), "{both:?}");
}
