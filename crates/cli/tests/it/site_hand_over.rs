//! `fairlane run CONFIG --take-over`: a new process goes on with what another one runs.

use std::collections::HashMap;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fairlane_io::packet::Options;
use fairlane_io::{Backend, PacketBackend, Waiter};
use fairlane_netlab::{Host, Wire};
use serde_json::Value;

use crate::program::{Finished, Pressure, fairlane};
use crate::site::{PATIENCE, Site, bind, class, interfaces, up, wire};
use crate::site_control::Asked;
use crate::site_reload::{Ends, numbered, send};

/// Of which nothing may be lost, and of which there is always some that waits.
const STEADY: u16 = 1_001;
const BULK: u16 = 1_002;

/// What arrived at a port: the numbers, and when by the kernel's note.
type Arrivals = Vec<(u32, Instant)>;

/// Notes all that arrives at a host until `done`, and for a while after it.
fn watch(mut device: PacketBackend, done: &AtomicBool) -> HashMap<u16, Arrivals> {
    let (mut waiter, mut frames) = (Waiter::new(), Vec::new());
    let mut arrived: HashMap<u16, Arrivals> = HashMap::new();
    let mut patience = 10;
    while patience > 0 {
        let over = done.load(Ordering::Relaxed);
        let wait = Duration::from_millis(50);
        if waiter.wait_readable(&[&device], wait).unwrap().next().is_none() && over {
            patience -= 1;
        }
        device.receive(&mut frames, 256).unwrap();
        let now = Instant::now();
        for (frame, arrival) in frames.drain(..).zip(device.arrivals()) {
            // Ethernet, IP and UDP before the number.
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

/// What hears all that arrives at a host.
fn listen(host: &Host) -> PacketBackend {
    let options = Options {
        prompt: true,
        ..Options::default()
    };
    let open = || PacketBackend::open(host.link().name(), &options);
    host.namespace().run(open).unwrap()
}

/// What arrived under a load of more than the link carries.
struct Load {
    arrived: HashMap<u16, Arrivals>,
    /// To each of the two ports.
    sent: [u32; 2],
    /// When there was a backlog.
    full: [Instant; 2],
}

impl Load {
    /// The longest time between two frames while there was a backlog.
    fn longest_gap(&self) -> Duration {
        let [from, until] = self.full;
        let times = self.arrived.values().flatten().map(|(_, at)| *at);
        let mut times: Vec<_> = times.filter(|at| (from..until).contains(at)).collect();
        times.sort();
        let gaps = times.windows(2).map(|pair| pair[1] - pair[0]);
        gaps.max().unwrap()
    }
}

/// Loads the link from the sender to the receiver while `meanwhile` lasts.
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

fn config() -> String {
    up("packet", "16mbit")
        + "[[link.class]]\nname = \"steady\"\nrate = \"8mbit\"\n\
           [[link.class]]\nname = \"bulk\"\nweight = 1\ndefault = true\n\
           [[link.filter]]\nclass = \"steady\"\ndestination-port = 1001\n"
}

fn report(finished: &Finished) -> Value {
    assert!(finished.status.success(), "{finished:?}");
    serde_json::from_str(&finished.stdout).unwrap()
}

fn numbers(arrivals: &[(u32, Instant)]) -> Vec<u32> {
    arrivals.iter().map(|(number, _)| *number).collect()
}

#[test]
fn a_loaded_link_is_handed_over_again_and_again_and_nothing_is_lost_or_out_of_order() {
    let Some(wire) = wire("a site that is handed over", 1) else {
        return;
    };
    const TIMES: usize = 5;
    let mut site = Site::start(&wire, &config());
    let pressure = Pressure::begin();
    let mut ended = Vec::new();
    let load = loaded(&wire, || {
        for _ in 0..TIMES {
            ended.push(site.hand_over(&wire));
            thread::sleep(Duration::from_millis(200));
        }
    });
    ended.push(site.end());
    let waited = ended.iter().filter_map(|one| {
        let (_, told) = one.stderr.split_once("has taken over, with ")?;
        told.split(' ').next()?.parse::<u64>().ok()
    });
    let waited: Vec<_> = waited.collect();
    assert_eq!(waited.len(), TIMES, "{ended:#?}");
    assert!(waited.iter().all(|&waited| waited > 20), "no backlog: {waited:?}");
    let steady = numbers(&load.arrived[&STEADY]);
    assert!(
        steady.iter().copied().eq(0..load.sent[0]),
        "{} of {:?} arrived, or not in order",
        steady.len(),
        load.sent
    );
    let bulk = numbers(&load.arrived[&BULK]);
    assert!(bulk.is_sorted_by(|one, next| one < next), "twice, or out of order");
    // What did not arrive had no room, and was told.
    let told = ended.iter().map(|one| {
        let report = report(one);
        let bulk = class(&report, "up", "bulk");
        let count = |key: &str| bulk[key].as_u64().unwrap();
        count("dropped") + count("discarded") + count("queued_packets")
    });
    let told: u64 = told.sum();
    assert_eq!(bulk.len() as u64 + told, u64::from(load.sent[1]));
    let stood = ended.iter().filter_map(|one| {
        let (_, told) = one.stderr.split_once("frames stood still for ")?;
        told.split(' ').next()?.parse().ok()
    });
    let stood: Vec<f64> = stood.collect();
    assert_eq!(stood.len(), TIMES, "{ended:#?}");
    let gap = load.longest_gap();
    eprintln!("{gap:?} between two frames; without a round {stood:?} us; {waited:?} waited");
    let longest = stood.into_iter().fold(0.0, f64::max) / 1e3;
    let most = pressure.most(1.0, 100.0);
    assert!(longest <= most, "{longest} ms without a round, {most} allowed");
    let (gap, most) = (gap.as_secs_f64() * 1e3, pressure.most(2.0, 100.0));
    assert!(gap <= most, "nothing left for {gap} ms, {most} allowed");
}
