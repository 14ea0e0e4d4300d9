//! The cost of queries, watching clients and scrapes for the packets that pass through a site. Times and cores are
//! shared with the sender, so spans with and without clients alternate, at the same packet rate; compared are the
//! arrivals, and the CPU time per packet in the forwarding thread. Under a flood that thread has a core of its own,
//! which is always busy; compared is the packet rate. Sender, receiver and clients stand for other machines and must
//! not affect the result: sending costs a small part of the other core and has the highest priority there, the clients
//! have a low one, and that core is busy in both halves of a pair.
//! Run it on an otherwise idle machine; it takes about five minutes:
//! `FAIRLANE_LONG_TESTS=1 cargo test --release -p fairlane-cli --test it _a_flood_ -- --nocapture --test-threads=1`

use std::collections::VecDeque;
use std::fs;
use std::hint::black_box;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fairlane_io::{Backend, Frame, UdpBackend};
use fairlane_netlab::{Wire, or_skip, skip_unsupported};
use fairlane_testkit::long_tests;
use rustix::process::{Pid, getpid, setpriority_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::program::Pressure;
use crate::site::{PATIENCE, Site, bind};
use crate::site_control::{exchanged, until_it_tells};
use crate::site_load::config;
use crate::site_reload::{Ends, numbered_at};

/// Packets a second: a quarter of the capacity of a core, which leaves time for the other threads.
const PPS: f64 = 20_000.0;

/// The interval of a client's requests.
const EVERY: Duration = Duration::from_secs(1);
/// The requests of the page and of Prometheus.
const PAGE: [&str; 5] = [
    "/metrics",
    "/",
    "/v1/history?link=up&class=ours",
    "/v1/state",
    "/v1/flows",
];

/// The measurements of a span.
#[derive(Clone, Copy, Debug)]
struct Span {
    sent: u32,
    arrived: usize,
    /// CPU time of the forwarding thread per packet.
    ns: f64,
    /// The part of the time in which that thread had a processor.
    busy: f64,
    /// Packets a second that arrived.
    pps: f64,
}

/// The load sent through a site.
#[derive(Clone, Copy, PartialEq)]
enum Load {
    /// A rate of [`PPS`].
    Steady,
    /// More than the site can receive.
    Flood,
}

/// Nice values on the core that a flood leaves free: the sender first, then the site's threads that answer clients,
/// then the clients, then the thread that keeps the core busy.
const SENDER: i32 = -20;
const CLIENT: i32 = 10;
const LAST: i32 = 19;

impl Load {
    fn wire(self, test: &str) -> Option<Wire> {
        let wire = match self {
            Load::Steady => Wire::new(1),
            // A segmented message arrives as one.
            Load::Flood => Wire::with_offloads(1),
        };
        or_skip(test, wire)
    }

    /// Returns the link's rate, which a flood cannot reach.
    fn rate(self) -> &'static str {
        match self {
            Load::Steady => "200mbit",
            Load::Flood => "10gbit",
        }
    }

    /// Returns the rate for the next pair: for a flood, more than the throughput of any span so far.
    fn pps<'a>(self, so_far: impl IntoIterator<Item = &'a Span>) -> f64 {
        match self {
            Load::Steady => PPS,
            Load::Flood => 1.5 * so_far.into_iter().map(|span| span.pps).fold(0.0, f64::max),
        }
    }

    /// Returns a first span: the throughput of a flood at the highest rate that a thread can send, or of the steady
    /// load.
    fn first(self, wire: &Wire, site: &Site) -> Span {
        match self {
            Load::Steady => span(PPS, wire, site, Duration::from_millis(500)),
            Load::Flood => flooded(f64::MAX, wire, site, Duration::from_secs(1)),
        }
    }

    fn span(self, pps: f64, wire: &Wire, site: &Site, time: Duration) -> Span {
        match self {
            Load::Steady => span(pps, wire, site, time),
            Load::Flood => flooded(pps, wire, site, time),
        }
    }

    /// Lowers the priority of the calling thread to that of a client.
    fn stand_back(self) {
        if self == Load::Flood {
            setpriority_process(None, CLIENT).unwrap();
        }
    }

    /// Returns the result of `work`. Under a flood, another core is kept busy in the meantime, with or without clients,
    /// since two cores may be hyperthreads of one.
    fn while_busy<T>(self, work: impl FnOnce() -> T) -> T {
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let _ends = Ends([&over, &over]);
            if self == Load::Flood {
                scope.spawn(|| {
                    setpriority_process(None, LAST).unwrap();
                    while !over.load(Ordering::Relaxed) {
                        // Not the hint of a spin loop, which would leave the core to its other hyperthread.
                        black_box(());
                    }
                });
            }
            work()
        })
    }

    /// Under a flood, moves the calling thread, and those it starts from now on, off the first core, which is for the
    /// forwarding thread.
    fn make_room(self) {
        if self == Load::Flood {
            run_on(None, &cores()[1..]);
        }
    }

    /// Moves the forwarding thread of a site to the first core, where it is alone.
    fn settle(self, site: &Site) {
        if self == Load::Flood {
            let thread = forwarding_thread(site);
            let number = thread.file_name().unwrap().to_str().unwrap();
            run_on(Pid::from_raw(number.parse().unwrap()), &cores()[..1]);
        }
    }
}

/// Returns the cores that this process may run on.
fn cores() -> Vec<usize> {
    let all = sched_getaffinity(Some(getpid())).unwrap();
    let cores = 0..CpuSet::MAX_CPU;
    cores.filter(|&core| all.is_set(core)).collect()
}

/// Restricts a thread, by default the calling one, to these cores.
fn run_on(thread: Option<Pid>, cores: &[usize]) {
    let mut set = CpuSet::new();
    cores.iter().for_each(|&core| set.set(core));
    sched_setaffinity(thread, &set).unwrap();
}

/// Returns the forwarding thread of a site.
fn forwarding_thread(site: &Site) -> PathBuf {
    let tasks = fs::read_dir(format!("/proc/{}/task", site.id())).unwrap();
    let mut tasks = tasks.map(|task| task.unwrap().path());
    let forwards = |task: &PathBuf| {
        fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim() == "forward")
    };
    tasks.find(forwards).unwrap()
}

/// Returns the CPU time of that thread in nanoseconds.
fn forwarding_ns(site: &Site) -> f64 {
    let times = fs::read_to_string(forwarding_thread(site).join("schedstat")).unwrap();
    times.split(' ').next().unwrap().parse().unwrap()
}

impl Span {
    fn of(sent: u32, arrived: usize, ns: f64, begun: Instant) -> Span {
        let time = begun.elapsed().as_secs_f64();
        Span {
            sent,
            arrived,
            ns: ns / arrived as f64,
            busy: ns / 1e9 / time,
            pps: arrived as f64 / time,
        }
    }
}

/// Sends packets through a site for some time.
fn span(pps: f64, wire: &Wire, site: &Site, time: Duration) -> Span {
    let hosts = (wire.sender(0), wire.receiver());
    let (before, begun) = (forwarding_ns(site), Instant::now());
    let ((), numbers, sent) = numbered_at(pps, hosts, 1_001, || thread::sleep(time));
    assert!(numbers.is_sorted(), "out of order");
    Span::of(sent, numbers.len(), forwarding_ns(site) - before, begun)
}

/// A short datagram of a flood.
struct Short(SocketAddr);

impl Frame for Short {
    fn bytes(&self) -> &[u8] {
        &[0; 32]
    }

    fn peer(&self) -> SocketAddr {
        self.0
    }
}

/// Sends short datagrams through a site for some time, at this rate in packets a second or as fast as a thread can:
/// more than it can receive. Each 64 of them are one message for the sender and until the site segments it, so that
/// sending is cheap.
fn flooded(pps: f64, wire: &Wire, site: &Site, time: Duration) -> Span {
    const MESSAGE: usize = 64;
    let (from, to) = (wire.sender(0), wire.receiver());
    // The socket is bound but not read, since a closed port would cause replies.
    let heard = bind(to, 1_001);
    let peer = heard.local_addr().unwrap();
    let mut backend = UdpBackend::from_socket(bind(from, 0)).unwrap();
    assert!(backend.set_segmentation(true));
    let arrived = || to.link().received().unwrap().0;
    let (before, already, begun) = (forwarding_ns(site), arrived(), Instant::now());
    let send = || {
        setpriority_process(None, SENDER).unwrap();
        let mut batch = VecDeque::new();
        let (mut sent, mut due, mut last) = (0, 0.0, begun);
        while begun.elapsed() < time {
            // After a pause of the machine it catches up only in part.
            due += last.elapsed().min(Duration::from_millis(20)).as_secs_f64() * pps;
            last = Instant::now();
            while f64::from(sent) < due && last.elapsed() < time {
                batch.extend((0..MESSAGE).map(|_| Short(peer)));
                while !batch.is_empty() {
                    sent += backend.transmit(&mut batch).unwrap() as u32;
                    assert!(begun.elapsed() < time + PATIENCE);
                }
            }
            thread::sleep(Duration::from_millis(1));
        }
        assert!(backend.is_segmenting() && backend.refused() == 0);
        sent
    };
    let sent = thread::scope(|scope| scope.spawn(send).join().unwrap());
    let (arrived, ns) = (arrived() - already, forwarding_ns(site) - before);
    Span::of(sent, arrived as usize, ns, begun)
}

/// Returns the median.
fn middle(all: impl IntoIterator<Item = f64>) -> f64 {
    let mut all: Vec<_> = all.into_iter().collect();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// Returns the median CPU time of a packet in the spans.
fn middle_ns(spans: &[Span]) -> f64 {
    middle(spans.iter().map(|span| span.ns))
}

/// Returns the highest plausible packet rate through a busy thread with clients, relative to that without: the upper
/// end of the 95% confidence interval of the pairs' median. Prints all of them. If other programs had its core, if no
/// more packets were sent than came through, or if fewer than half of the due answers arrived, the result is undecided,
/// and it returns 1.
fn saturated(answered: f64, without: &[Span], with: &[Span]) -> f64 {
    let both = || without.iter().chain(with);
    let busy = both().map(|span| span.busy).fold(1.0, f64::min);
    let lost = both().map(|span| 1.0 - span.arrived as f64 / f64::from(span.sent));
    let lost = lost.fold(1.0, f64::min);
    let pairs = without.iter().zip(with);
    let mut ratios: Vec<_> = pairs
        .map(|(without, with)| with.pps / without.pps)
        .collect();
    ratios.sort_by(f64::total_cmp);
    // The number of ratios below the median has a binomial distribution.
    let few = (ratios.len() as f64 / 2.0 - 0.98 * (ratios.len() as f64).sqrt()) as usize;
    let pps = |spans: &[Span]| middle(spans.iter().map(|span| span.pps));
    let kept = middle(ratios.iter().copied());
    eprintln!(
        "{:.0} and {:.0} packets a second, {kept:.3} of it ({:.3} to {:.3}); the thread was busy for {busy:.3} of \
         the time and lost {lost:.3} of the packets at least; {answered:.2} of the answers came; {ratios:.3?}",
        pps(without),
        pps(with),
        ratios[few],
        ratios[ratios.len() - 1 - few],
    );
    match busy >= 0.95 && lost > 0.05 && answered >= 0.5 {
        true => ratios[ratios.len() - 1 - few],
        false => {
            eprintln!("it was not busy all the time, or not asked: nothing is decided");
            1.0
        }
    }
}

/// Prints alternating spans, and checks the differences between them.
fn compare(
    what: &str,
    load: Load,
    pressure: &Pressure,
    answered: f64,
    without: &[Span],
    with: &[Span],
) {
    let arrived = |spans: &[Span]| {
        let (arrived, sent) = spans.iter().fold((0, 0), |(arrived, sent), span| {
            (arrived + span.arrived, sent + span.sent as usize)
        });
        arrived as f64 / sent as f64
    };
    // Only neighbouring spans are compared: the machine's other load changes from minute to minute.
    let pairs = without.iter().zip(with);
    let ratio = middle(pairs.map(|(without, with)| with.ns / without.ns));
    eprintln!(
        "{what}: {} pairs; {:.4} and {:.4} of the packets arrived; {:.0} and {:.0} ns of the forwarding thread \
         each, {ratio:.3} of it",
        with.len(),
        arrived(without),
        arrived(with),
        middle_ns(without),
        middle_ns(with),
    );
    let (kept, least) = match load {
        Load::Steady => (arrived(with) / arrived(without), pressure.least(0.98, 0.3)),
        Load::Flood => (saturated(answered, without, with), 0.98),
    };
    assert!(kept >= least, "{kept} of the packets, {least} at least");
    if measures() && load == Load::Steady {
        let most = pressure.most(1.02, 1.0);
        assert!(ratio <= most, "{ratio} times, {most} at most");
    }
}

/// Starts a site and waits for its first state.
fn started(wire: &Wire, config: &str, socket: &Path) -> Site {
    let site = Site::start(wire, config);
    until_it_tells(socket);
    site
}

fn connect(socket: &Path) -> UnixStream {
    UnixStream::connect(socket).unwrap()
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")
}

/// Requests these paths in turn, at this interval, until `stop`; counts the answers.
fn ask(socket: &Path, paths: &[&str], every: Duration, stop: &AtomicBool, answers: &AtomicU64) {
    let mut paths = paths.iter().cycle();
    while !stop.load(Ordering::Relaxed) {
        let next = Instant::now() + every;
        let answer = exchanged(connect(socket), get(paths.next().unwrap()));
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        answers.fetch_add(1, Ordering::Relaxed);
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
}

/// Opens streams that are not read.
fn stalled(socket: &Path, count: usize) -> Vec<UnixStream> {
    let streams = (0..count).map(|_| {
        let mut stream = connect(socket);
        stream.write_all(get("/v1/events").as_bytes()).unwrap();
        stream
    });
    streams.collect()
}

/// Returns whether costs are measured. For an unoptimised program, or spans of less than a second, they are
/// meaningless, because the number of packets per round has more effect.
fn measures() -> bool {
    long_tests() && !cfg!(debug_assertions)
}

/// Returns the extent of a measurement: the number of pairs, and the length of each half.
fn extent() -> (usize, Duration) {
    match (measures(), long_tests()) {
        (true, _) => (20, Duration::from_secs(3)),
        (false, true) => (8, Duration::from_secs(1)),
        (false, false) => (2, Duration::from_millis(700)),
    }
}

/// Runs a measurement if there is a core that the flood leaves free.
fn under_a_flood(test: &str, measure: fn(&str, Load)) {
    match long_tests() && cores().len() > 1 {
        true => measure(test, Load::Flood),
        false => skip_unsupported(test, "FAIRLANE_LONG_TESTS is not set, or there is one core"),
    }
}

/// Measures packets without and with a hundred clients and a thousand streams that are not read.
fn crowded(test: &str, load: Load) {
    load.make_room();
    let Some(wire) = load.wire(test) else {
        return;
    };
    let ((pairs, time), readers) = (extent(), if long_tests() { 1_000 } else { 200 });
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("ctl.sock");
    let text = config(20, &socket).replace("200mbit", load.rate());
    let site = started(&wire, &text, &socket);
    load.settle(&site);
    let pressure = Pressure::begin();
    let (mut without, mut with) = (Vec::new(), Vec::new());
    let [answers, scraped, told] = [(); 3].map(|()| AtomicU64::new(0));
    let first = load.first(&wire, &site);
    for pair in 0..pairs {
        let pps = load.pps(without.iter().chain(&with).chain([&first]));
        let span = || load.while_busy(|| load.span(pps, &wire, &site, time));
        // Each of the two is first in turn.
        let quiet_first = pair % 2 == 0;
        if quiet_first {
            without.push(span());
        }
        let stop = AtomicBool::new(false);
        let held = stalled(&socket, readers);
        thread::scope(|scope| {
            let _ends = Ends([&stop, &stop]);
            let client = |path, answers| {
                let (socket, stop) = (&socket, &stop);
                scope.spawn(move || {
                    load.stand_back();
                    ask(socket, &[path], EVERY, stop, answers);
                });
            };
            (0..100).for_each(|_| client("/v1/state", &answers));
            client("/metrics", &scraped);
            // As the page does.
            scope.spawn(|| {
                load.stand_back();
                listen(&socket, &stop, &told);
            });
            with.push(span());
        });
        drop(held);
        if !quiet_first {
            without.push(span());
        }
    }
    let [answers, scraped, told] = [answers, scraped, told].map(AtomicU64::into_inner);
    eprintln!(
        "{readers} streams that nobody reads; {answers} answers to 100 clients, {scraped} scrapes, {told} bytes \
         of a stream that is read"
    );
    assert!(
        answers >= 100 && scraped >= pairs as u64 && told > 0,
        "{answers}, {scraped}, {told}"
    );
    let due = 100.0 * (time * pairs as u32).div_duration_f64(EVERY);
    let answered = answers as f64 / due;
    compare(test, load, &pressure, answered, &without, &with);
    site.stop();
}

#[test]
fn a_hundred_clients_a_thousand_stalled_readers_metrics_and_a_page_cost_the_packets_nothing() {
    crowded("clients", Load::Steady);
}

#[test]
fn a_hundred_clients_and_a_thousand_stalled_readers_cost_a_flood_next_to_nothing() {
    under_a_flood("clients under a flood", crowded);
}

/// Measures packets without and with scrapes, page requests and streams.
fn watched(test: &str, load: Load) {
    load.make_room();
    let (Some(plain_wire), Some(wire)) = (load.wire(test), load.wire(test)) else {
        return;
    };
    let ((pairs, time), classes) = (extent(), if long_tests() { 1_000 } else { 50 });
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("ctl.sock");
    let text = config(classes, &socket).replace("200mbit", load.rate());
    let (plain, _) = text.split_once("[control]").unwrap();
    let plain = Site::start(&plain_wire, plain);
    load.settle(&plain);
    let site = started(&wire, &text, &socket);
    load.settle(&site);
    let pressure = Pressure::begin();
    let (mut without, mut with) = (Vec::new(), Vec::new());
    let (answers, told) = (AtomicU64::new(0), AtomicU64::new(0));
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _ends = Ends([&stop, &stop]);
        scope.spawn(|| {
            load.stand_back();
            ask(&socket, &PAGE, EVERY / 5, &stop, &answers);
        });
        for _ in 0..3 {
            scope.spawn(|| {
                load.stand_back();
                listen(&socket, &stop, &told);
            });
        }
        let first = load.first(&plain_wire, &plain);
        for pair in 0..pairs {
            let pps = load.pps(without.iter().chain(&with).chain([&first]));
            let span = |wire, site| load.while_busy(|| load.span(pps, wire, site, time));
            let mut without = || without.push(span(&plain_wire, &plain));
            let mut with = || with.push(span(&wire, &site));
            // Each of the two is first in turn.
            match pair % 2 {
                0 => (without(), with()),
                _ => (with(), without()),
            };
        }
    });
    let (answers, told) = (answers.into_inner(), told.into_inner());
    eprintln!("{classes} classes; {answers} answers, {told} bytes of streams");
    assert!(answers >= 5 && told > 10_000, "{answers}, {told}");
    let due = (time * 2 * pairs as u32).div_duration_f64(EVERY / 5);
    compare(test, load, &pressure, answers as f64 / due, &without, &with);
    plain.stop();
    site.stop();
}

#[test]
fn metrics_the_page_and_streams_cost_the_packets_next_to_nothing() {
    watched("metrics, page and streams", Load::Steady);
}

#[test]
fn metrics_the_page_and_streams_cost_a_flood_next_to_nothing() {
    under_a_flood("metrics, page and streams under a flood", watched);
}

/// Reads a stream until `stop`, and counts its bytes.
fn listen(socket: &Path, stop: &AtomicBool, told: &AtomicU64) {
    let mut stream = connect(socket);
    stream.write_all(get("/v1/events").as_bytes()).unwrap();
    let timeout = Some(Duration::from_millis(50));
    stream.set_read_timeout(timeout).unwrap();
    let mut buffer = vec![0; 1 << 16];
    while !stop.load(Ordering::Relaxed) {
        if let Ok(bytes) = stream.read(&mut buffer) {
            told.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }
}
