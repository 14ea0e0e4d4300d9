//! A site of several threads an interface, or of an arbiter a link, between real interfaces, while all changes that can: counted to the frame.
//!
//! Runs for `FAIRLANE_SOAK_SECONDS` seconds (default 5):
//!
//! ```sh
//! FAIRLANE_SOAK_SECONDS=600 cargo test --release -p fairlane-daemon --test workers -- --nocapture
//! ```

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use fairlane_config::Site;
use fairlane_daemon::{
    Attaching, Daemon, Handle, Notice, Options, Outcome, PipelineReport, Report, Source,
    pipeline_terms,
};
use fairlane_io::packet::Options as Ring;
use fairlane_io::{Backend, PacketBackend};
use fairlane_netlab::{Link, Wire, or_skip, skip_unsupported};

const PATIENCE: Duration = Duration::from_secs(120);
/// A silence after which no more of the frames that may be lost are expected.
const SILENCE: Duration = Duration::from_millis(300);
const PORT: u16 = 5_001;
const FLOWS: usize = 24;
/// Between two datagrams of a flow.
const PAUSE: Duration = Duration::from_millis(6);

/// The threads of a site at each of its interfaces.
#[derive(Clone, Copy)]
struct Workers {
    /// How frames are exchanged.
    through: &'static str,
    receive: usize,
    transmit: usize,
    arbiters: usize,
}

impl Workers {
    fn new(receive: usize, transmit: usize, arbiters: usize) -> Workers {
        Workers {
            through: "packet",
            receive,
            transmit,
            arbiters,
        }
    }

    /// Whether there are enough cores for these workers.
    fn fit(self) -> bool {
        let most = self.receive.max(self.transmit).max(self.arbiters);
        let fit = most <= thread::available_parallelism().unwrap().get();
        if !fit {
            let reason = format_args!("{most} workers an interface need as many cores");
            skip_unsupported("several workers", reason);
        }
        fit
    }

    /// Returns the backend's name in a site's report.
    fn backend(self) -> String {
        let told = |count: usize, what: &str| match count {
            1 => format!(", 1{what} worker"),
            _ => format!(", {count}{what} workers"),
        };
        let transmit = match self.transmit {
            0 => String::new(),
            transmit => told(transmit, " transmit"),
        };
        format!("{}{}{transmit}", self.through, told(self.receive, ""))
    }
}

fn site(class: &str, workers: Workers) -> Site {
    site_of(class, workers, &[("up", "outside")])
}

/// Returns a site with links of these names, and to these interfaces.
fn site_of(class: &str, workers: Workers, links: &[(&str, &str)]) -> Site {
    let Workers {
        through,
        receive,
        transmit,
        arbiters,
    } = workers;
    let backend = &through[..through.find(',').unwrap_or(through.len())];
    let mut text = format!(
        "[interfaces]\ninside = \"inside\"\noutside = \"outside\"\nbackend = \"{backend}\"\n\
         [workers]\nreceive = {receive}\ntransmit = {transmit}\narbiters = {arbiters}\n"
    );
    for (name, to) in links {
        text += &format!(
            "[[link]]\nname = \"{name}\"\nto = \"{to}\"\nrate = \"200mbit\"\n\
             [[link.class]]\nname = \"{class}\"\nrate = \"40mbit\"\nqueue = \"tail-drop\"\n\
             [[link.class]]\nname = \"rest\"\ndefault = true\nqueue = \"tail-drop\"\n\
             [[link.filter]]\nclass = \"{class}\"\nsource-port = \"20000-20011\"\n"
        );
    }
    Site::parse(&text, "test").unwrap()
}

/// Datagrams of many flows, numbered, from one host to another.
struct Flows {
    sockets: Vec<UdpSocket>,
    to: SocketAddr,
    ears: Ears,
    /// The next sequence number of each flow.
    next: Vec<u32>,
}

/// Where datagrams arrive, and which have, in the whole run.
struct Ears {
    device: PacketBackend,
    /// Of each flow, by number.
    heard: Vec<Vec<bool>>,
    /// Flow and number of duplicates, over the whole run.
    doubled: Vec<(usize, u32)>,
    /// Number of arrivals whose loss was already counted.
    late: usize,
}

/// The arrivals of each flow sent during an operation.
struct Came {
    /// Numbers in order of arrival.
    numbers: Vec<Vec<u32>>,
    sent: Vec<std::ops::Range<u32>>,
}

impl Flows {
    fn over(wire: &Wire) -> Flows {
        let (from, to) = (wire.sender(0), wire.receiver());
        let socket = |flow| UdpSocket::bind((from.address(), 20_000 + flow as u16));
        let sockets = || (0..FLOWS).map(socket).collect::<io::Result<Vec<_>>>();
        let ring = Ring {
            prompt: true,
            ..Ring::default()
        };
        let open = || PacketBackend::open(to.link().name(), &ring);
        Flows {
            sockets: from.namespace().run(sockets).unwrap(),
            to: (to.address(), PORT).into(),
            ears: Ears {
                device: to.namespace().run(open).unwrap(),
                heard: vec![Vec::new(); FLOWS],
                doubled: Vec::new(),
                late: 0,
            },
            next: vec![0; FLOWS],
        }
    }

    /// Sends during `meanwhile`, and then receives until all frames have arrived or none has for `silence`.
    fn during(&mut self, silence: Duration, meanwhile: impl FnOnce()) -> Came {
        let first = self.next.clone();
        let mut numbers = vec![Vec::new(); FLOWS];
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let (done, numbers) = (&done, &mut numbers);
            let sending = scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    for (socket, next) in self.sockets.iter().zip(&mut self.next) {
                        // Without a carrier it is lost.
                        let _ = socket.send_to(&next.to_be_bytes(), self.to);
                        *next += 1;
                    }
                    self.ears.hear(&first, numbers);
                    thread::sleep(PAUSE);
                }
                let sent: u32 = self
                    .next
                    .iter()
                    .zip(&first)
                    .map(|(next, first)| next - first)
                    .sum();
                let mut last = Instant::now();
                let mut came = numbers.iter().map(Vec::len).sum::<usize>();
                while came < sent as usize && last.elapsed() < silence {
                    let more = self.ears.hear(&first, numbers);
                    if more > 0 {
                        (came, last) = (came + more, Instant::now());
                    }
                    thread::sleep(Duration::from_millis(1));
                }
            });
            meanwhile();
            done.store(true, Ordering::Relaxed);
            sending.join().unwrap();
        });
        assert_eq!(
            self.ears.device.lost().unwrap(),
            0,
            "the test itself has lost some"
        );
        let doubled = &self.ears.doubled;
        assert!(
            doubled.is_empty(),
            "came again, flow and number: {doubled:?}"
        );
        let sent = first.into_iter().zip(self.next.iter().copied());
        Came {
            numbers,
            sent: sent.map(|(first, next)| first..next).collect(),
        }
    }
}

impl Ears {
    /// Receives the queued datagrams, from the first number of each flow on, and returns their number. Earlier ones may
    /// arrive late if they waited at the sender for address resolution.
    fn hear(&mut self, first: &[u32], numbers: &mut [Vec<u32>]) -> usize {
        let mut frames = Vec::new();
        self.device.receive(&mut frames, usize::MAX).unwrap();
        let mut came = 0;
        for (flow, number) in frames.iter().filter_map(|frame| read(frame)) {
            let (heard, at) = (&mut self.heard[flow], number as usize);
            heard.resize(heard.len().max(at + 1), false);
            if std::mem::replace(&mut heard[at], true) {
                self.doubled.push((flow, number));
            }
            if number < first[flow] {
                self.late += 1;
                continue;
            }
            numbers[flow].push(number);
            came += 1;
        }
        came
    }
}

/// Returns the flow and the number of one of the test's datagrams.
fn read(frame: &[u8]) -> Option<(usize, u32)> {
    let half = |at: usize| Some(u16::from_be_bytes(*frame.get(at..)?.first_chunk()?));
    // IPv4, UDP, and the ports.
    if half(12) != Some(0x0800) || frame.get(23) != Some(&17) || half(36) != Some(PORT) {
        return None;
    }
    let flow = usize::from(half(34)?).checked_sub(20_000)?;
    let number = u32::from_be_bytes(*frame.get(42..)?.first_chunk()?);
    (flow < FLOWS).then_some((flow, number))
}

impl Came {
    /// Asserts that every frame has arrived once, in order within its flow.
    fn is_whole(&self, what: &str) {
        for (flow, (numbers, sent)) in self.numbers.iter().zip(&self.sent).enumerate() {
            assert!(
                numbers.iter().copied().eq(sent.clone()),
                "of flow {flow} {} of {sent:?} came, or not in order: {what}",
                numbers.len()
            );
        }
    }

    /// Asserts that frames arrived at most once, and in order within each flow.
    fn is_in_order(&self, what: &str) {
        for numbers in &self.numbers {
            assert!(
                numbers.is_sorted_by(|one, next| one < next),
                "{numbers:?}: {what}"
            );
        }
    }

    /// Asserts that no frame arrived twice.
    fn has_no_double(mut self, what: &str) {
        for numbers in &mut self.numbers {
            numbers.sort_unstable();
        }
        self.is_in_order(what);
    }

    fn sent(&self) -> u32 {
        self.sent.iter().map(|sent| sent.end - sent.start).sum()
    }
}

/// Ends the run, also where a claim has failed.
struct Ending(Handle);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.stop();
    }
}

fn settle() {
    thread::sleep(Duration::from_millis(100));
}

fn attach(handle: &Handle, interface: &str, site: Site) {
    let attaching = Attaching {
        place: interface.to_owned(),
        interface: interface.to_owned(),
    };
    let source = Source::Site(Box::new(site));
    handle.attach(attaching, source, handle.site()).unwrap();
}

fn churns(workers: Workers) {
    if let Some(wire) = or_skip("a site of several workers", Wire::new(1))
        && workers.fit()
    {
        churn(&wire, workers);
    }
}

#[test]
fn with_several_workers_no_frame_is_lost_doubled_or_reordered_while_all_changes() {
    churns(Workers::new(2, 0, 1));
    churns(Workers::new(1, 0, 2));
    churns(Workers::new(3, 0, 1));
}

#[test]
fn with_workers_that_transmit_no_frame_is_lost_doubled_or_reordered_while_all_changes() {
    churns(Workers::new(1, 1, 1));
    churns(Workers::new(2, 2, 2));
}

/// Queues of each interface.
const QUEUES: u32 = 4;

#[test]
fn with_several_workers_through_af_xdp_it_is_the_same() {
    // The driver of virtual cables takes no such long packets to AF_XDP itself.
    for (through, mtu, workers) in [
        ("xdp, native, 4 queues", 1_500, Workers::new(2, 0, 1)),
        ("xdp, generic, 4 queues", 3_800, Workers::new(2, 1, 2)),
        ("xdp, native, 4 queues", 1_500, Workers::new(1, 2, 2)),
    ] {
        let workers = Workers { through, ..workers };
        let wire = Wire::with_queues(1, mtu, QUEUES);
        if let Some(wire) = or_skip("a site of several workers through AF_XDP", wire)
            && workers.fit()
        {
            churn(&wire, workers);
        }
    }
}

/// The budget of an interface while its link is not shaped.
const UNSHAPED: u64 = 256 << 10;

/// Asserts that the measured waits with workers are within the budget, and the bytes in the device within `most_bytes`.
fn is_within_the_budget(pipeline: &PipelineReport, most_bytes: u64) {
    let PipelineReport {
        terms,
        waited_rounds,
        waited_us,
        arrival_us,
        handed_rounds,
        handed_us,
        transmit_us,
        violations,
        device_most_bytes,
        ..
    } = pipeline;
    eprintln!("{pipeline:?}");
    let rounds = waited_rounds.expect("frames have come");
    assert!(rounds > 0 && Some(rounds) <= terms.arrival_rounds);
    assert!(waited_us.unwrap() <= arrival_us.unwrap());
    assert_eq!(handed_rounds.is_some(), terms.transmit_workers > 0);
    if let Some(rounds) = *handed_rounds {
        assert!(rounds > 0 && Some(rounds) <= terms.transmit_rounds);
        assert!(handed_us.unwrap() <= transmit_us.unwrap());
    }
    assert_eq!(*violations, 0);
    assert!((1..=most_bytes).contains(device_most_bytes));
}

/// Duration of sending datagrams as fast as possible.
const FLOOD: Duration = Duration::from_secs(1);

#[test]
fn in_a_flood_frames_wait_with_workers_no_longer_than_is_promised() {
    let wire = Wire::with_queues(1, 1_500, 2);
    let Some(wire) = or_skip("a flood of a site of workers", wire) else {
        return;
    };
    let all = [
        ("packet", 1, 0, 1),
        ("packet", 2, 0, 1),
        ("packet", 1, 1, 1),
        ("packet", 1, 2, 1),
        ("packet", 1, 0, 2),
        ("xdp", 1, 0, 1),
        ("xdp", 2, 0, 1),
        ("xdp", 1, 1, 2),
        ("xdp", 1, 2, 1),
    ];
    for (through, receive, transmit, arbiters) in all {
        let workers = Workers {
            through,
            ..Workers::new(receive, transmit, arbiters)
        };
        if !workers.fit() {
            continue;
        }
        let site = site("calls", workers);
        let promised = pipeline_terms(&site, &site.links[0]).unwrap();
        let open = || Daemon::open(site, &Options::default(), drop);
        let daemon = wire.middle().run(open).unwrap();
        let ending = Ending(daemon.handle());
        let outcome = thread::scope(|scope| {
            let running = scope.spawn(move || daemon.run(|_| {}));
            let ending = ending;
            assert!(wire.is_through(PATIENCE).unwrap());
            let mut flows = Flows::over(&wire);
            flows.during(SILENCE, settle);
            let end = Instant::now() + FLOOD;
            while Instant::now() < end {
                for socket in &flows.sockets {
                    // A full socket buffer is the test's own loss.
                    let _ = socket.send_to(&[0; 1_000], flows.to);
                }
            }
            drop(ending);
            running.join().unwrap()
        });
        outcome.result.unwrap();
        let pipeline = &outcome.report.links[0].pipeline;
        assert_eq!(pipeline.terms, promised, "as check says");
        is_within_the_budget(pipeline, promised.device_bytes);
    }
}

fn churn(wire: &Wire, workers: Workers) {
    let seconds = std::env::var("FAIRLANE_SOAK_SECONDS");
    let seconds = seconds.ok().and_then(|it| it.parse().ok()).unwrap_or(5);
    let end = Instant::now() + Duration::from_secs(seconds);
    let (tell, notices) = channel();
    let notify = move |notice| drop(tell.send(notice));
    let open = || Daemon::open(site("calls", workers), &Options::default(), notify);
    let daemon = wire.middle().run(open).unwrap();
    for interface in daemon.interfaces() {
        assert_eq!(interface.backend, workers.backend());
    }
    let handle = daemon.handle();
    let links = ["inside", "outside"].map(|name| Link::find(wire.middle(), name).unwrap());
    let (mut rounds, mut counted, mut late) = (0, 0, 0);
    thread::scope(|scope| {
        let running = scope.spawn(move || daemon.run(|_| {}));
        let ending = Ending(handle.clone());
        assert!(wire.is_through(PATIENCE).unwrap());
        let mut flows = Flows::over(wire);
        // Addresses are known from here on.
        flows.during(SILENCE, settle);
        while rounds == 0 || Instant::now() < end {
            let changed = flows.during(PATIENCE, || {
                for class in ["voice", "calls"] {
                    let source = Source::Site(Box::new(site(class, workers)));
                    handle.change(source, None).unwrap();
                    settle();
                }
                handle.shape("outside", false).unwrap();
                settle();
                handle.shape("outside", true).unwrap();
            });
            changed.is_whole("reloads, shaping off and on");
            counted += changed.sent();
            let exchanged = flows.during(SILENCE, || {
                settle();
                handle.detach("outside").unwrap();
                attach(&handle, "outside", site("calls", workers));
                settle();
            });
            exchanged.is_in_order("detached and attached");
            assert!(wire.is_through(PATIENCE).unwrap());
            let flapped = flows.during(SILENCE, || {
                for link in &links {
                    settle();
                    link.down().unwrap();
                    link.up().unwrap();
                }
                settle();
            });
            // While sockets are restored, a flow may move to another worker.
            flapped.has_no_double("links flapping");
            assert!(wire.is_through(PATIENCE).unwrap());
            let after = flows.during(PATIENCE, settle);
            after.is_whole("after all that");
            counted += after.sent();
            rounds += 1;
        }
        late = flows.ears.late;
        drop(ending);
        let outcome = running.join().unwrap();
        outcome.result.unwrap();
        let report = outcome.report;
        assert!(report.reloads >= 2 * rounds);
        is_within_the_budget(&report.links[0].pipeline, UNSHAPED);
        assert_eq!(report.links[0].pipeline.terms.arbiters, workers.arbiters);
        assert_eq!(report.interfaces[1].backend, workers.backend());
    });
    let lost = notices
        .try_iter()
        .any(|notice| matches!(notice, Notice::Gone(_)));
    assert!(!lost, "no interface was removed");
    let backend = workers.backend();
    eprintln!(
        "{backend}, {} arbiters: {rounds} rounds, {counted} frames where none may be lost, {late} of the others came late",
        workers.arbiters
    );
}

/// Returns a datagram of a flow between unassigned addresses: no host answers it or resolves the other.
fn unanswered(flow: u16) -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame[6] = 2;
    frame[12] = 8;
    let ip = &mut frame[14..];
    (ip[0], ip[3], ip[8], ip[9]) = (0x45, 46, 64, 17);
    ip[12..20].copy_from_slice(&[10, 9, 0, 1, 10, 9, 0, 2]);
    ip[20..22].copy_from_slice(&(20_000 + flow).to_be_bytes());
    (ip[23], ip[25]) = (9, 26);
    frame
}

/// The interfaces of a site.
const NAMES: [&str; 2] = ["inside", "outside"];

/// Frames that a site has received inside, and their fate.
struct Balance<'a> {
    sender: PacketBackend,
    /// Where they arrive: its place among the interfaces, and itself.
    from: usize,
    near: &'a Link,
    host: &'a Link,
    told: Arc<Mutex<Arc<Report>>>,
}

impl Balance<'_> {
    /// Sends `frames` frames of many flows.
    fn send(&mut self, frames: usize) {
        let flows = (0..FLOWS as u16).cycle().take(frames);
        let mut batch: VecDeque<_> = flows.map(unanswered).collect();
        let end = Instant::now() + PATIENCE;
        while !batch.is_empty() {
            assert!(Instant::now() < end, "{} frames are left", batch.len());
            self.sender.transmit(&mut batch).unwrap();
        }
    }

    /// Returns the number of frames received there, and of those the number that left, were lost or were dropped by any
    /// counter.
    fn now(&self) -> (u64, u64) {
        let report = Arc::clone(&self.told.lock().unwrap());
        let Some(from) = report.interfaces.get(self.from) else {
            // No report yet: not balanced.
            return (1, 0);
        };
        let to = &report.interfaces[1 - self.from];
        let classes = report.links.iter().flat_map(|link| &link.classes);
        let dropped = classes.map(|class| class.drops.full);
        let counted = from.lost + from.early_drops + from.gso_drops + to.refused + to.absent_drops;
        let left = self.host.received().unwrap().0;
        let received = self.near.received().unwrap().0;
        (received, left + counted + dropped.sum::<u64>())
    }

    /// Waits until the received frames are queued.
    fn is_taken_in(&self) {
        let end = Instant::now() + PATIENCE;
        loop {
            let report = Arc::clone(&self.told.lock().unwrap());
            let from = &report.interfaces[self.from];
            let received = report.links.iter().map(|link| link.received_frames);
            let taken = received.sum::<u64>() + from.lost + from.early_drops + from.gso_drops;
            if taken == self.near.received().unwrap().0 {
                return;
            }
            assert!(Instant::now() < end, "{taken} frames");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Asserts that each received frame has left or was counted, exactly once. Returns the number lost.
    fn is_even(&self, when: &str) -> u64 {
        // Check twice, since the state may be transient; the kernel also sends its own frames now and then, which take
        // time.
        for _ in 0..2 {
            let end = Instant::now() + Duration::from_secs(20);
            loop {
                let (received, counted) = self.now();
                if received == counted {
                    break;
                }
                assert!(Instant::now() < end, "{received} and {counted} {when}");
                thread::sleep(Duration::from_millis(10));
            }
            settle();
        }
        self.told.lock().unwrap().interfaces[0].lost
    }
}

/// Runs a site and an operation on it, with frames received by one of its interfaces (0 inside, 1 outside) and tracked
/// to their end; the site ends when the last of these is dropped. Asserts that no counter decreases, and that received
/// frames are also accounted for after the end.
fn balanced(
    wire: &Wire,
    (site, from): (Site, usize),
    options: Options,
    meanwhile: impl FnOnce(&Handle, &mut Balance<'_>, Ending),
) -> Outcome {
    let options = Options {
        interval: Duration::from_millis(20),
        ..options
    };
    let open = || Daemon::open(site, &options, |_| {});
    let daemon = wire.middle().run(open).unwrap();
    let handle = daemon.handle();
    let near = Link::find(wire.middle(), NAMES[from]).unwrap();
    let hosts = [wire.sender(0), wire.receiver()];
    let ring = Ring {
        ring: 0,
        deaf: true,
        ..Ring::default()
    };
    let sender = || PacketBackend::open(hosts[from].link().name(), &ring);
    let told = Arc::new(Mutex::new(Arc::<Report>::default()));
    let mut balance = Balance {
        sender: hosts[from].namespace().run(sender).unwrap(),
        from,
        near: &near,
        host: hosts[1 - from].link(),
        told: Arc::clone(&told),
    };
    let outcome = thread::scope(|scope| {
        let (tell, mut most) = (Arc::clone(&told), [0; 2]);
        let running = scope.spawn(move || {
            daemon.run(|report| {
                for (most, link) in most.iter_mut().zip(&report.links) {
                    assert!(*most <= link.transmitted, "a count never goes back");
                    *most = link.transmitted;
                }
                tell.lock().unwrap().clone_from(report);
            })
        });
        meanwhile(&handle, &mut balance, Ending(handle.clone()));
        running.join().unwrap()
    });
    told.lock().unwrap().clone_from(&outcome.report);
    balance.is_even("after the end");
    outcome
}

/// Detaches an interface whose workers and ring are full, while further frames are lost before them.
#[test]
fn what_waits_at_workers_when_their_interface_is_let_go_of_is_counted_as_lost_with_what_the_kernel_lost()
 {
    // More than two rings and mailboxes can hold.
    const FRAMES: usize = 40_000;
    const FEW: usize = 500;
    for (through, queues, receive, transmit) in [
        ("packet", 1, 1, 0),
        ("packet", 1, 2, 0),
        ("packet", 1, 1, 1),
        ("packet", 1, 1, 2),
        ("xdp", 2, 1, 0),
        ("xdp", 2, 2, 0),
        ("xdp", 2, 1, 1),
        ("xdp", 2, 1, 2),
    ] {
        let workers = Workers {
            through,
            ..Workers::new(receive, transmit, 1)
        };
        let wire = Wire::with_queues(1, 1_500, queues);
        let Some(wire) = or_skip("what waits at workers", wire) else {
            return;
        };
        if !workers.fit() {
            continue;
        }
        let outside = Link::find(wire.middle(), "outside").unwrap();
        let outcome = balanced(
            &wire,
            (site("calls", workers), 0),
            Options::default(),
            |handle, balance, ending| {
                let _ending = ending;
                balance.send(FEW);
                assert_eq!(balance.is_even("at first"), 0);
                // No frame is received from here on: arrivals queue as far as there is space.
                handle.shape("outside", false).unwrap();
                outside.down().unwrap();
                balance.send(FRAMES);
                settle();
                let lost = balance.told.lock().unwrap().interfaces[0].lost;
                handle.detach("inside").unwrap();
                outside.up().unwrap();
                let all = balance.is_even("after it was let go of");
                assert!(
                    lost > 0 && all > lost + 1_000 * receive as u64,
                    "{lost} and {all}"
                );
                attach(handle, "inside", site("calls", workers));
                balance.send(FEW);
                assert_eq!(balance.is_even("with another in its place"), all);
                // More than the classes have buffer space for.
                handle.shape("outside", true).unwrap();
                balance.send(FRAMES / 2);
                settle();
                handle.detach("inside").unwrap();
                balance.is_even("after it was let go of again");
            },
        );
        outcome.result.unwrap();
    }
}

/// Detaches an interface whose transmit workers hold all that the budget allows.
#[test]
fn what_waits_to_be_transmitted_when_its_interface_is_let_go_of_is_away_and_all_else_has_left() {
    // More than the budget of an interface allows.
    const FRAMES: usize = 1_000;
    for (through, receive, transmit) in [
        ("packet", 1, 1),
        ("packet", 1, 2),
        ("xdp", 1, 0),
        ("xdp", 1, 1),
        ("xdp", 1, 2),
    ] {
        let workers = Workers {
            through,
            ..Workers::new(receive, transmit, 1)
        };
        let wire = Wire::with_queues(1, 1_500, 2);
        let Some(wire) = or_skip("what waits to be transmitted", wire) else {
            return;
        };
        if !workers.fit() {
            continue;
        }
        let outside = Link::find(wire.middle(), "outside").unwrap();
        let options = Options {
            drain: PATIENCE,
            ..Options::default()
        };
        let outcome = balanced(
            &wire,
            (site("calls", workers), 0),
            options,
            |handle, balance, ending| {
                balance.send(FRAMES);
                balance.is_even("at first");
                // Released frames are handed over as far as the budget allows, and stay there.
                outside.down().unwrap();
                balance.send(FRAMES);
                settle();
                let before = Arc::clone(&balance.told.lock().unwrap());
                assert_eq!(before.interfaces[1].absent_drops, 0);
                handle.detach("outside").unwrap();
                balance.is_even("after it was let go of");
                let after = Arc::clone(&balance.told.lock().unwrap());
                let to = &after.interfaces[1];
                assert_eq!((to.refused, to.lost), (0, 0));
                // Includes the workers' frames; the kernel held at most this many.
                assert!(to.absent_drops > 200, "{}", to.absent_drops);
                let took = [&before, &after].map(|report| report.links[0].transmitted);
                assert!(took[0] <= took[1], "a count never goes back: {took:?}");
                // At no time does the count of frames transmitted include one that was handed over and did not leave.
                let left = balance.host.received().unwrap().0;
                assert!(took[1] <= left, "{took:?} and {left}");
                outside.up().unwrap();
                attach(handle, "outside", site("calls", workers));
                balance.send(FRAMES);
                balance.is_even("with another in its place");
                // All queued frames are sent before the run ends.
                balance.send(FRAMES);
                balance.is_taken_in();
                drop(ending);
            },
        );
        outcome.result.unwrap();
    }
}

/// With an arbiter per link and two receive and transmit workers at each interface, offers more than any of them can
/// process, while the egress interface is replaced.
#[test]
fn in_a_flood_of_either_link_every_frame_is_counted_once_while_its_interface_is_exchanged() {
    const FRAMES: usize = 4_000;
    let workers = Workers::new(2, 2, 2);
    if !workers.fit() {
        return;
    }
    let links = [("up", "outside"), ("down", "inside")];
    let both = || site_of("calls", workers, &links);
    for from in [0, 1] {
        let Some(wire) = or_skip("a flood while an interface is exchanged", Wire::new(1)) else {
            return;
        };
        let options = Options {
            drain: PATIENCE,
            ..Options::default()
        };
        let outcome = balanced(&wire, (both(), from), options, |handle, balance, ending| {
            balance.send(FRAMES);
            balance.is_even("at first");
            let done = AtomicBool::new(false);
            thread::scope(|scope| {
                let flooding = scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        balance.send(FRAMES);
                    }
                });
                for _ in 0..3 {
                    settle();
                    handle.detach(NAMES[1 - from]).unwrap();
                    settle();
                    attach(handle, NAMES[1 - from], both());
                }
                settle();
                done.store(true, Ordering::Relaxed);
                flooding.join().unwrap();
            });
            balance.is_even("after the flood");
            balance.send(FRAMES);
            balance.is_taken_in();
            drop(ending);
        });
        outcome.result.unwrap();
    }
}
