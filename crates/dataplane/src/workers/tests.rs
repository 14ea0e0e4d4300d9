//! Frames that workers receive fare as they do on one thread.

mod giving_back;
mod lending;
mod several;
mod shared;
mod waiting;

use std::collections::{HashMap, HashSet};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use fairlane_classify::Found;
use fairlane_config::{Link, Role, Site};
use fairlane_core::random::splitmix64;
use fairlane_core::tree::{ClassFlow, ClassId, ClassStats};
use fairlane_core::{FlowConfig, Length, Weight};
use fairlane_io::{Arrival, Backend, Budget, MemoryBackend, Umem, memory};
use fairlane_runtime::bridge::{Bridge, Lane, LaneStats, Side};

use rustix::event::{EventfdFlags, eventfd};

use super::*;
use crate::bridge::{Maker, SiteBridge};
use crate::classifier::random_key;
use crate::counts::STACK;
use crate::device::sent::Sending;
use crate::device::worked::Worked;
use crate::device::{AnyDevice, Handover, Receive, Replace, Transmit, Workers};
use crate::forward::round::{Rounds, is_filling};
use crate::note::NUMBERS;
use crate::plan::Plan;
use crate::rig;
use crate::work::Counting;
use giving_back::{Endless, endless, stepping};
use several::{full, receive};

pub const PATIENCE: Duration = Duration::from_secs(120);

/// Frames that a device holds.
pub const ROOM: usize = 1 << 16;

/// No queue drops a packet before it is full, however long a thread was without a core.
const TAIL_DROP: &str = "queue = \"tail-drop\"\n";

/// Returns a site with two directions, one of which has a class with a queue per host; packets that match no filter
/// have a queue of `rest` packets. With `turned`, filters select other classes; with `has_more`, there is one more
/// class, whose filter matches no packet.
fn site(rate: &str, rest: u32, (turned, has_more): (bool, bool)) -> Site {
    let (one, other) = if turned { ("b", "a") } else { ("a", "b") };
    let link = |name: &str, to: &str, more: &str| {
        format!(
            "[[link]]\nname = \"{name}\"\nto = \"{to}\"\nrate = \"{rate}\"\n\
             limit = {{ packets = 60000, bytes = \"64mb\" }}\n\
             [[link.class]]\nname = \"a\"\nweight = 3\nlimit = {{ packets = 40000 }}\n{TAIL_DROP}\
             [[link.class]]\nname = \"b\"\nlimit = {{ packets = 40000 }}\n{TAIL_DROP}{more}\
             [[link.class]]\nname = \"rest\"\ndefault = true\nlimit = {{ packets = {rest} }}\n{TAIL_DROP}\
             [[link.filter]]\nclass = \"{one}\"\nsource = \"10.0.0.0/30\"\n\
             [[link.filter]]\nclass = \"{other}\"\nsource = \"10.0.0.4/30\"\n"
        )
    };
    let (up, down) = (
        link("up", "outside", "per = \"source-ip\"\n"),
        link("down", "inside", ""),
    );
    let more = match has_more {
        true => {
            "[[link.class]]\nname = \"new\"\n\
             [[link.filter]]\nclass = \"new\"\nsource = \"10.9.0.0/16\"\n"
        }
        false => "",
    };
    let text =
        format!("[interfaces]\ninside = \"i\"\noutside = \"o\"\n[workers]\n{up}{more}{down}");
    Site::parse(&text, "test").unwrap()
}

/// For each link: the counts of its classes, the numbers of malformed and of unmatched frames, and the totals.
type Counts = [(Vec<ClassStats>, [u64; 2], LaneStats); 2];

/// A device in memory that transmits to one queue and receives from another.
pub struct Wire {
    out: MemoryBackend<Frame>,
    arriving: MemoryBackend<Frame>,
    /// The device reports an error once no frames are left.
    is_gone: bool,
    /// A good part of its ring is taken.
    is_filling: bool,
    /// Never readable: frames for a worker are there before it polls.
    ready: OwnedFd,
}

impl Wire {
    pub fn new(out: MemoryBackend<Frame>, arriving: MemoryBackend<Frame>) -> Wire {
        Wire {
            out,
            arriving,
            is_gone: false,
            is_filling: false,
            ready: eventfd(0, EventfdFlags::CLOEXEC).unwrap(),
        }
    }
}

impl Backend for Wire {
    type Tx = Frame;
    type Rx = Frame;

    fn transmit(&mut self, batch: &mut VecDeque<Frame>) -> io::Result<usize> {
        self.out.transmit(batch)
    }

    fn receive(&mut self, into: &mut Vec<Frame>, max: usize) -> io::Result<usize> {
        match self.arriving.receive(into, max)? {
            0 if self.is_gone => Err(io::ErrorKind::NotFound.into()),
            came => Ok(came),
        }
    }

    fn arrivals(&self) -> &[Arrival] {
        &[]
    }

    fn in_flight(&self) -> io::Result<u64> {
        self.out.in_flight()
    }

    fn refused(&self) -> u64 {
        self.out.refused()
    }
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }
}

impl Receive for Wire {
    fn is_filling(&self) -> bool {
        self.is_filling
    }
}

impl Transmit for Wire {}

impl Handover for Wire {}

impl Workers for Wire {}

impl Replace for Wire {}

impl Device for Wire {
    fn backend(&self) -> String {
        "memory".to_owned()
    }
}

/// A machine at an end, with a way from each device that frames leave by.
struct Host {
    to: MemoryBackend<Frame>,
    from: Vec<MemoryBackend<Frame>>,
}

impl Host {
    fn send(&mut self, frames: impl IntoIterator<Item = Vec<u8>>) {
        let mut batch: VecDeque<Frame> = frames.into_iter().map(Frame::from).collect();
        self.to.transmit(&mut batch).unwrap();
        assert!(batch.is_empty(), "there is room");
    }

    fn heard(&mut self) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        for from in &mut self.from {
            from.receive(&mut frames, usize::MAX).unwrap();
        }
        frames.iter().map(|frame| frame.bytes().to_vec()).collect()
    }
}

fn unused() -> MemoryBackend<Frame> {
    memory::pair(0).0
}

pub fn options(role: Role) -> WorkerOptions {
    WorkerOptions {
        clock: Clock::start(),
        filters: Arc::default(),
        ingress: role.ingress(),
        count: 1,
        cores: Vec::new(),
        stack: STACK,
        transmit: None,
    }
}

/// Returns options for this many transmit workers, with a common budget in bytes.
pub fn transmitting(count: usize, budget: u64) -> TransmitOptions {
    TransmitOptions {
        clock: Clock::start(),
        count,
        cores: Vec::new(),
        key: random_key(),
        stack: STACK,
        budget: Budget::from_bytes(budget),
        cost: |bytes| bytes as u64,
    }
}

/// Creates a worker at a device, without a thread, and the forwarding thread's handle of it.
fn one<D: Device + 'static>(
    device: D,
    options: &WorkerOptions,
    slots: usize,
) -> (Worker<D>, WorkerHandles<D>) {
    let (handles, mut ends) = connect(1, slots).unwrap();
    let worker = Worker::new(device, options, ends.pop().unwrap());
    (worker, handles)
}

/// Workers with threads, at these devices.
fn working<D: Device + 'static>(devices: Vec<D>, slots: usize) -> WorkerHandles<D> {
    let started = WorkerHandles::with_slots(devices, &options(Role::Inside), "memory", slots);
    started.map_err(|(error, _)| error).unwrap()
}

/// A site between two hosts.
struct Rig {
    hosts: [Host; 2],
    bridge: SiteBridge,
    plans: Vec<Plan>,
    worker_options: [WorkerOptions; 2],
    /// That have no thread.
    workers: Vec<Worker<Wire>>,
}

impl Rig {
    /// Creates a rig with workers whose mailboxes have this many places, or without workers.
    fn new(site: &Site, slots: Option<usize>) -> Rig {
        Rig::transmitting(site, slots, 0)
    }

    /// The same with this many transmit workers on either side, whose budget holds all frames.
    fn transmitting(site: &Site, slots: Option<usize>, transmit: usize) -> Rig {
        let worker_options = [Role::Inside, Role::Outside].map(|role| WorkerOptions {
            transmit: (transmit > 0).then(|| transmitting(transmit, 1 << 30)),
            ..options(role)
        });
        let (mut hosts, mut plans, mut workers) = (Vec::new(), Vec::new(), Vec::new());
        let lanes = Side::BOTH.map(|side| {
            let (to, arriving) = memory::pair(ROOM);
            let ways = (0..transmit.max(1)).map(|_| memory::pair(ROOM));
            let (mut out, from): (Vec<_>, Vec<_>) = ways.unzip();
            hosts.push(Host { to, from });
            let device: AnyDevice = match slots {
                None => Box::new(Wire::new(out.remove(0), arriving)),
                Some(slots) => {
                    let options = &worker_options[side as usize];
                    let receiver = Wire::new(unused(), arriving);
                    let (worker, handle) = one(receiver, options, slots);
                    workers.push(worker);
                    let sender = |out| Wire::new(out, unused());
                    let senders = out.into_iter().map(sender).collect();
                    let unheard = Wire::new(unused(), unused());
                    let worked = Worked::new("memory", senders, vec![unheard], options);
                    let mut worked = worked.working(handle);
                    // Those that transmit.
                    worked.start().unwrap();
                    Box::new(worked)
                }
            };
            let role = if side == Side::Left {
                Role::Inside
            } else {
                Role::Outside
            };
            let link = site.links.iter().find(|link| link.to == role).unwrap();
            let (mut plan, mut arbiter) = Plan::start(link, side, device, 0, None, Nanos::ZERO);
            if slots.is_some() {
                let filters = &worker_options[side.other() as usize].filters;
                plan.publishes_to(filters, arbiter.queue_mut().classifier_mut());
            }
            plans.push(plan);
            Lane::Shaped(Box::new(arbiter), FlowConfig::new(Weight::ONE, Length::MAX))
        });
        let [left, right] = lanes;
        Rig {
            hosts: hosts.try_into().map_err(drop).unwrap(),
            bridge: Bridge::new(left, right, Maker { near: Role::Inside }).unwrap(),
            plans,
            worker_options,
            workers,
        }
    }

    /// Receives with threadless workers until they are full.
    fn receive(&mut self, now: Nanos) {
        receive(&mut self.workers, now);
    }

    /// Starts the workers on separate threads.
    fn working(&mut self) -> Vec<Running> {
        let working = self.workers.drain(..).zip(&self.worker_options);
        let run = |(worker, options): (Worker<Wire>, &WorkerOptions)| {
            let clock = options.clock;
            let shared = Arc::clone(&worker.shared);
            let thread = thread::spawn(move || worker.run(&clock));
            Running { shared, thread }
        };
        working.map(run).collect()
    }

    fn round(&mut self, now: Nanos) -> Step {
        Rounds::of(&mut self.bridge, true).step(now).unwrap()
    }

    /// Returns the frames that have left on either side, once none is in transit there.
    fn heard(&mut self) -> [Vec<Vec<u8>>; 2] {
        let (mut heard, begun) = ([Vec::new(), Vec::new()], Instant::now());
        loop {
            assert!(begun.elapsed() < PATIENCE);
            let left = Side::BOTH.map(|side| self.bridge.device(side).in_flight().unwrap());
            for (host, heard) in self.hosts.iter_mut().zip(&mut heard) {
                heard.append(&mut host.heard());
            }
            if left == [0; 2] {
                return heard;
            }
        }
    }

    /// Switches to another site, as the control thread does.
    fn apply(&mut self, site: &Site, now: Nanos) {
        for at in 0..self.plans.len() {
            let side = self.plans[at].side;
            let role = if side == Side::Left {
                Role::Inside
            } else {
                Role::Outside
            };
            let link: &Arc<Link> = site.links.iter().find(|link| link.to == role).unwrap();
            let next = self.plans[at].running().becomes(Arc::clone(link));
            let adding = self.plans[at].adding(&next);
            let arbiter = self.bridge.arbiter_mut(side).unwrap();
            let ids = adding.map(|mut adding| {
                while !adding.step(arbiter.queue_mut()) {}
                adding.ids
            });
            let (mut taking, mut after) = self.plans[at].taking(next, ids);
            while !taking.step(arbiter, now) {}
            assert!(taking.error.is_none());
            after.inherit(&self.plans[at], &taking);
            self.plans[at] = after;
        }
    }

    /// Returns the counts of each class, and of all.
    fn counts(&mut self) -> Counts {
        let mut counting = Counting::of([0, 1].map(|at| self.plans[at].ids.clone()));
        while !counting.step(&mut self.bridge) {}
        let Counting { links, devices, .. } = counting;
        let mut both = links.into_iter().zip(devices).map(|(link, device)| {
            let unclear = [link.malformed, link.unmatched];
            (link.classes, unclear, device.lane)
        });
        [(); 2].map(|()| both.next().unwrap())
    }
}

/// A worker on a separate thread.
struct Running {
    shared: Arc<Shared>,
    thread: JoinHandle<EndedWorker<Wire>>,
}

impl Running {
    fn end(self) {
        self.shared.end.request();
        self.thread.join().unwrap();
    }
}

/// Returns the frame of a source with this number.
pub fn frame(source: u32, number: u32, bytes: usize) -> Vec<u8> {
    let mut frame = rig::frame(source, bytes.max(64));
    frame[40..44].copy_from_slice(&source.to_be_bytes());
    frame[44..48].copy_from_slice(&number.to_be_bytes());
    frame
}

/// Returns the source and the number of such a frame.
pub fn source_and_number(frame: &[u8]) -> (u32, u32) {
    let word = |at: usize| u32::from_be_bytes(frame[at..at + 4].try_into().unwrap());
    (word(40), word(44))
}

/// Returns the frames that leave in each round on either side, and the counts, across configuration changes and with
/// this many transmit workers. A round may be replaced.
fn fares(
    slots: Option<usize>,
    transmit: usize,
    mut make_round: impl FnMut(&mut Rig, Nanos),
) -> (Vec<[Vec<Vec<u8>>; 2]>, Counts) {
    let [first, turned] = [false, true].map(|turned| site("10mbit", 100, (turned, turned)));
    let mut rig = Rig::transmitting(&first, slots, transmit);
    let (mut left, mut seed, mut number) = (Vec::new(), 7, 0);
    for round in 1..400 {
        let now = Nanos::from_millis(round);
        for side in 0..2 {
            let frames: Vec<Vec<u8>> = (0..splitmix64(&mut seed) % 12)
                .map(|_| {
                    number += 1;
                    let random = splitmix64(&mut seed);
                    let mut frame =
                        frame(random as u32 % 16, number, (random >> 32) as usize % 1_500);
                    if random.is_multiple_of(37) {
                        frame.truncate(20);
                    }
                    frame
                })
                .collect();
            rig.hosts[side].send(frames);
        }
        // By the filters that count until then.
        rig.receive(now);
        if round % 50 == 25 {
            let other = if round % 100 == 25 { &turned } else { &first };
            rig.apply(other, now);
        }
        make_round(&mut rig, now);
        left.push(rig.heard());
    }
    (left, rig.counts())
}

#[test]
fn what_workers_receive_goes_where_it_goes_on_one_thread_and_leaves_with_it() {
    let (alone, counted) = fares(None, 0, whole_round);
    let (worked, counted_so) = fares(Some(SLOTS), 0, whole_round);
    let sent: usize = alone.iter().flatten().map(Vec::len).sum();
    assert!(sent > 1_000, "{sent}");
    for (_, [malformed, unmatched], lane) in &counted {
        assert!(*malformed > 10 && *unmatched > 100, "{counted:?}");
        assert!(
            lane.rejected.frames > 10,
            "the link is too slow for all: {lane:?}"
        );
    }
    is_alike((&alone, &counted), (&worked, &counted_so));
    // And with an arbiter a link.
    let (apart, counted_so) = fares(Some(SLOTS), 0, lending::round_apart);
    is_alike((&alone, &counted), (&apart, &counted_so));
}

fn whole_round(rig: &mut Rig, now: Nanos) {
    rig.round(now);
}

fn is_alike(one: (&[[Vec<Vec<u8>>; 2]], &Counts), other: (&[[Vec<Vec<u8>>; 2]], &Counts)) {
    for (round, (one, other)) in one.0.iter().zip(other.0).enumerate() {
        assert_eq!(one, other, "in round {round}");
    }
    assert_eq!(format!("{:?}", one.1), format!("{:?}", other.1));
}

#[test]
fn what_threads_transmit_leaves_as_it_does_from_one_thread_each_flow_in_its_order() {
    let (alone, counted) = fares(None, 0, whole_round);
    let (one, counted_so) = fares(Some(SLOTS), 1, whole_round);
    assert_eq!(alone, one);
    assert_eq!(format!("{counted:?}"), format!("{counted_so:?}"));
    let (apart, counted_so) = fares(Some(SLOTS), 1, lending::round_apart);
    is_alike((&alone, &counted), (&apart, &counted_so));
    let (three, counted_so) = fares(Some(SLOTS), 3, whole_round);
    assert_eq!(format!("{counted:?}"), format!("{counted_so:?}"));
    // Frames without a source are too short to have one; this many are among the others.
    let of = |frames: &[Vec<u8>], source| -> Vec<Vec<u8>> {
        let of_source = |frame: &&Vec<u8>| {
            frame.len() < 48 && source == 16
                || frame.len() >= 48 && source_and_number(frame).0 == source
        };
        frames.iter().filter(of_source).cloned().collect()
    };
    let mut others = 0;
    for (alone, three) in alone.iter().flatten().zip(three.iter().flatten()) {
        others += usize::from(alone != three);
        for source in 0..=16 {
            assert_eq!(of(alone, source), of(three, source), "of {source}");
        }
    }
    assert!(
        others > 10,
        "between flows there is another order: {others}"
    );
}

#[test]
fn a_note_is_taken_while_its_filters_count_and_no_longer() {
    let mut rig = Rig::new(&site("20mbit", 100, (false, false)), Some(64));
    let now = Nanos::from_millis(1);
    let table = |rig: &Rig| {
        let arbiter = rig.bridge.arbiter(Side::Right).unwrap();
        arbiter.queue().classifier().table
    };
    assert_eq!(table(&rig), 1);
    rig.hosts[0].send([frame(1, 1, 100)]);
    rig.receive(now);
    rig.apply(&site("20mbit", 100, (true, true)), now);
    assert_eq!(table(&rig), 2);
    rig.round(now);
    rig.round(Nanos::from_millis(5));
    assert_eq!(rig.hosts[1].heard().len(), 1);
    let [_, (classes, ..)] = rig.counts();
    // The second class, as the filters that count now have it.
    assert_eq!((classes[0].sent.packets, classes[1].sent.packets), (0, 1));
}

#[test]
fn a_ring_that_fills_before_a_worker_is_noticed_however_little_was_handed_on() {
    let mut rig = Rig::new(&site("20mbit", 100, (false, false)), Some(64));
    let round = rig.round(Nanos::ZERO);
    assert_eq!(round.moved(), 0);
    let noticed =
        |rig: &Rig| Side::BOTH.map(|leaves_by| is_filling(&rig.bridge, leaves_by, true, &round));
    assert_eq!(noticed(&rig), [false; 2]);
    rig.workers[0].device.is_filling = true;
    rig.receive(Nanos::ZERO);
    // A frame that arrives inside leaves outside.
    assert_eq!(noticed(&rig), [false, true]);
}

#[test]
fn a_worker_leaves_in_the_device_what_its_mailbox_has_no_room_for() {
    const FRAMES: usize = 300;
    let mut rig = Rig::new(&site("10gbit", 1_000, (false, false)), Some(2));
    rig.hosts[0].send((0..FRAMES).map(|number| frame(1, number as u32, 100)));
    let full = loop {
        let step = rig.workers[0].step(Nanos::ZERO).unwrap();
        if step.moved() == 0 {
            break step;
        }
    };
    assert_eq!(full.next, Next::WhenBackendTakesMore);
    assert!(
        rig.hosts[0].to.queued() > FRAMES - 2 * BATCH,
        "no more than a batch is taken"
    );
    let mut came = Vec::new();
    for round in 1.. {
        assert!(round < 10 * FRAMES as u64, "it stands still");
        let now = Nanos::from_micros(round);
        rig.receive(now);
        rig.round(now);
        came.extend(rig.hosts[1].heard());
        if came.len() == FRAMES {
            break;
        }
    }
    let in_order = (0..FRAMES as u32).map(|number| (1, number));
    assert!(
        came.iter()
            .map(|frame| source_and_number(frame))
            .eq(in_order)
    );
}

#[test]
fn between_threads_no_frame_is_lost_doubled_or_reordered_while_filters_change() {
    let sites = [false, true].map(|more| site("100gbit", 60_000, (false, more)));
    // So few places that both ends wait for each other.
    let mut rig = Rig::new(&sites[0], Some(64));
    let clock = Clock::start();
    let mut rounds = 0;
    all_pass(&mut rig, |rig| {
        let now = clock.now();
        rig.round(now);
        rounds += 1;
        if rounds % 64 == 0 {
            rig.apply(&sites[rounds / 64 % 2], now);
        }
    });
    all_is_counted(&mut rig);
}

/// Frames of each host; the sources have this many in turn.
const FRAMES: u32 = 20_000;
const SOURCES: u32 = 16;

/// Sends many frames both ways through workers on separate threads, and makes steps until all have arrived, each once
/// and in order.
fn all_pass(rig: &mut Rig, mut step: impl FnMut(&mut Rig)) {
    for host in &mut rig.hosts {
        let all = 0..FRAMES;
        host.send(all.map(|number| frame(number % SOURCES, number / SOURCES, 64)));
    }
    let running = rig.working();
    let begun = Instant::now();
    let mut came = [Vec::new(), Vec::new()];
    while came.iter().any(|came| came.len() < FRAMES as usize) {
        assert!(
            begun.elapsed() < PATIENCE,
            "{:?}",
            came.map(|came| came.len())
        );
        step(rig);
        for (host, came) in rig.hosts.iter_mut().zip(&mut came) {
            came.extend(host.heard());
        }
    }
    for came in &came {
        is_in_order(came);
        assert_eq!(came.len(), FRAMES as usize, "none comes twice");
    }
    running.into_iter().for_each(Running::end);
}

/// Asserts that no frame of a source is missing before the last one that arrived.
fn is_in_order(came: &[Vec<u8>]) {
    let mut next: HashMap<u32, u32> = HashMap::new();
    for frame in came {
        let (source, number) = source_and_number(frame);
        let next = next.entry(source).or_default();
        assert_eq!(number, *next, "of {source}");
        *next += 1;
    }
}

/// Asserts that all frames [sent](all_pass), and no others, were received and transmitted.
fn all_is_counted(rig: &mut Rig) {
    for (_, _, lane) in rig.counts() {
        assert_eq!(
            (lane.received.frames, lane.transmitted),
            (FRAMES.into(), FRAMES.into())
        );
        assert_eq!((lane.rejected.frames, lane.oversized.frames), (0, 0));
    }
}

#[test]
fn memory_goes_back_to_whoever_receives_by_way_of_whoever_transmits() {
    const ROUNDS: usize = 200;
    for count in [1, 2] {
        let (mut step, mut handle) = endless(900);
        let senders = (0..count).map(|_| Endless::new(0)).collect();
        let options = transmitting(count, 1 << 20);
        let mut sending = Sending::new(senders, Some(&options));
        sending.start("memory").unwrap();
        let (mut places, begun) = (0, Instant::now());
        for _ in 0..ROUNDS {
            places = step();
            let mut classified = Vec::new();
            assert_eq!(handle.take(&mut classified, BATCH).unwrap(), BATCH);
            let mut batch = classified.into_iter().map(|it| it.frame).collect();
            assert_eq!(sending.transmit(&mut batch).unwrap(), BATCH);
            // The wire drops the frames it sends.
            while sending.in_flight().unwrap() > 0 {
                assert!(begun.elapsed() < PATIENCE);
                thread::yield_now();
            }
            handle.return_buffers();
        }
        let few = ROUNDS * BATCH / 10;
        assert!(places <= few, "{places} for {} frames", ROUNDS * BATCH);
    }
}

#[test]
fn what_a_device_has_lost_before_it_is_a_workers_counts_at_once() {
    let (_worker, handle) = one(Endless::new(60), &options(Role::Inside), 8);
    let Losses { lost, uncut, .. } = handle.losses();
    assert_eq!((lost, uncut), (7, 3));
}

#[test]
fn a_worker_that_loses_its_device_says_so_behind_its_last_frame() {
    let (to, arriving) = memory::pair(ROOM);
    let mut host = Host {
        to,
        from: Vec::new(),
    };
    host.send((0..100).map(|number| frame(1, number, 64)));
    let mut receiver = Wire::new(unused(), arriving);
    receiver.is_gone = true;
    let mut handle = working(vec![receiver], SLOTS);
    let (mut came, begun) = (Vec::new(), Instant::now());
    let error = loop {
        assert!(begun.elapsed() < PATIENCE);
        match handle.take(&mut came, 7) {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert_eq!((came.len(), error.kind()), (100, io::ErrorKind::NotFound));
    assert!(!handle.arm_wakeup(), "there is nothing to wait for");
}

#[test]
fn an_ended_worker_leaves_its_device_and_all_that_nobody_has_taken_in_order() {
    const FRAMES: u32 = 300;
    let (to, arriving) = memory::pair(ROOM);
    let mut host = Host {
        to,
        from: Vec::new(),
    };
    host.send((0..FRAMES).map(|number| frame(1, number, 64)));
    let receiver = Wire::new(unused(), arriving);
    let mut handle = working(vec![receiver], 2);
    let (mut came, begun) = (Vec::new(), Instant::now());
    while came.len() < 50 {
        assert!(begun.elapsed() < PATIENCE);
        handle.take(&mut came, 8).unwrap();
    }
    let (mut receiver, left) = handle.end().unwrap().pop().unwrap();
    came.extend(left);
    let mut frames: Vec<Frame> = came
        .into_iter()
        .map(|classified| classified.frame)
        .collect();
    receiver.receive(&mut frames, usize::MAX).unwrap();
    let all = frames.iter().map(|frame| source_and_number(frame.bytes()));
    assert!(all.eq((0..FRAMES).map(|number| (1, number))));
}

#[test]
fn a_worker_that_was_ended_for_nothing_begins_again_behind_what_it_has_left() {
    const FRAMES: u32 = 300;
    let (to, arriving) = memory::pair(ROOM);
    let mut host = Host {
        to,
        from: Vec::new(),
    };
    let receiver = Wire::new(unused(), arriving);
    let sender = Wire::new(unused(), unused());
    let mut worked = Worked::new(
        "memory",
        vec![sender],
        vec![receiver],
        &options(Role::Inside),
    );
    let mut frames = Vec::new();
    for round in 0..3 {
        let numbers = round * FRAMES..(round + 1) * FRAMES;
        host.send(numbers.map(|number| frame(1, number, 64)));
        worked.start().unwrap();
        // As when another process was to take over and did not.
        worked.quiesce(&mut frames);
    }
    worked.start().unwrap();
    let (mut classified, begun) = (Vec::new(), Instant::now());
    while frames.len() + classified.len() < 3 * FRAMES as usize {
        assert!(begun.elapsed() < PATIENCE);
        worked.take_classified(&mut classified, BATCH).unwrap();
    }
    frames.extend(
        classified
            .into_iter()
            .map(|classified: ClassifiedFrame| classified.frame),
    );
    let all = frames.iter().map(|frame| source_and_number(frame.bytes()));
    assert!(all.eq((0..3 * FRAMES).map(|number| (1, number))));
}

#[test]
fn whoever_waits_for_frames_is_woken_by_the_first_one() {
    let (to, arriving) = memory::pair(ROOM);
    let mut host = Host {
        to,
        from: Vec::new(),
    };
    let receiver = Wire::new(unused(), arriving);
    let (mut worker, mut handle) = one(receiver, &options(Role::Inside), 8);
    let mut waiter = Waiter::new();
    let mut is_rung = |handle: &WorkerHandles<Wire>| {
        let rung = waiter
            .wait_readable(&[handle.bell().as_fd()], Duration::ZERO)
            .unwrap();
        rung.count() > 0
    };
    assert!(handle.arm_wakeup() && !is_rung(&handle));
    host.send([frame(1, 1, 64)]);
    worker.step(Nanos::ZERO).unwrap();
    assert!(is_rung(&handle) && !handle.arm_wakeup());
    let mut came = Vec::new();
    assert_eq!(handle.take(&mut came, 8).unwrap(), 1);
    assert!(!is_rung(&handle), "until it waits again");
    host.send([frame(1, 2, 64)]);
    worker.step(Nanos::ZERO).unwrap();
    assert!(!is_rung(&handle), "nobody waits");
    assert!(!handle.arm_wakeup());
}

#[test]
fn a_note_goes_by_the_mailbox_as_it_is() {
    let to = ClassFlow {
        class: ClassId::new(123_456),
        flow: u64::MAX - 1,
    };
    for found in [
        Found::FILTER,
        Found::NO_FILTER.and(Found::OPAQUE),
        Found::UNREADABLE,
        Found::FRAGMENT,
    ] {
        for (table, losing) in [(1, true), (NUMBERS - 1, false)] {
            let (note, at) = (Note { table, to, found }, Nanos::from_millis(7));
            let classified = ClassifiedFrame::new(vec![0_u8; 64].into(), Came { at, losing }, note);
            assert_eq!(
                (classified.note(), classified.came()),
                (note, Came { at, losing })
            );
        }
    }
}

#[test]
fn the_numbers_of_tables_begin_again_at_one() {
    let filters = SharedFilters::default();
    let site = site("20mbit", 100, (false, false));
    let (_, ids) = site.links[0].discipline::<Vec<u8>>();
    let by = site.links[0].classifier(&ids, crate::classifier::random_key());
    filters.number.store(NUMBERS - 2, Ordering::Relaxed);
    assert_eq!([(); 2].map(|()| filters.publish(&by)), [NUMBERS - 1, 1]);
}
