//! A bridge between two devices: what arrives at one leaves by the other, in both directions.
#![cfg(target_os = "linux")]

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fairlane_core::sched::Fifo;
use fairlane_core::{
    FlowConfig, Length, Limits, Nanos, PacketScheduler, Rate, SchedulerLimits, Weight,
};
use fairlane_io::{Arrival, Backend, Datagram, MemoryBackend, UdpBackend, memory};
use fairlane_runtime::bridge::{BATCH, Bridge, Came, Frames, Lane, LaneStats, MOST_TAKEN_IN, Side};
use fairlane_runtime::{
    Arbiter, ArbiterConfig, Clock, Idling, Link, Next, Step, Steps, Woken, drive,
};
use rustix::time::{ClockId, clock_gettime};

type Frame = Vec<u8>;
type Memory = MemoryBackend<Frame>;
type Queue = PacketScheduler<Fifo, Frame>;

fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

fn as_it_is<F>(frame: F, _: Side, _: Came) -> F {
    frame
}

fn any_frame() -> FlowConfig {
    FlowConfig::new(Weight::ONE, Length::MAX)
}

/// Returns a lane by `device` over a link that carries a byte a microsecond, with room for
/// `packets`.
fn shaped<D: Backend<Tx: Send>>(
    device: D,
    packets: u32,
    overhead: u32,
) -> Lane<PacketScheduler<Fifo, D::Tx>, D> {
    let link = Link {
        overhead,
        ..Link::new(Rate::from_bps(8_000_000).unwrap())
    };
    let per_flow = Limits {
        packets,
        ..Limits::NONE
    };
    let config = ArbiterConfig {
        limits: SchedulerLimits {
            per_flow,
            ..SchedulerLimits::default()
        },
        ..ArbiterConfig::new(link)
    };
    let arbiter = Arbiter::new(Fifo::new(), config, device, Nanos::ZERO);
    Lane::Shaped(Box::new(arbiter), any_frame())
}

fn open<D: Backend<Tx: Send>>(device: D) -> Lane<PacketScheduler<Fifo, D::Tx>, D> {
    Lane::Open(device)
}

fn send(host: &mut Memory, frames: impl IntoIterator<Item = Frame>) {
    let mut batch: VecDeque<_> = frames.into_iter().collect();
    host.transmit(&mut batch).unwrap();
    assert!(batch.is_empty(), "the device has room");
}

fn heard(host: &mut Memory) -> Vec<Frame> {
    let mut frames = Vec::new();
    host.receive(&mut frames, usize::MAX).unwrap();
    frames
}

#[test]
fn what_arrives_on_one_side_leaves_on_the_other_and_nowhere_else() {
    let ((left, mut here), (right, mut there)) = (memory::pair(100), memory::pair(100));
    let mut bridge = Bridge::new(open(left), shaped(right, 100, 0), as_it_is).unwrap();
    send(&mut here, [vec![1; 60], vec![2; 60]]);
    send(&mut there, [vec![3; 60]]);
    let round = bridge.round(ms(1)).unwrap();
    assert!(round.moved() > 0);
    bridge.round(ms(2)).unwrap();
    assert_eq!(heard(&mut there), [vec![1; 60], vec![2; 60]]);
    assert_eq!(heard(&mut here), [vec![3; 60]]);
    let idle = bridge.round(ms(3)).unwrap();
    assert_eq!((idle.moved(), idle.next), (0, Next::WhenPushed));
    let stats = bridge.stats(Side::Right);
    assert_eq!(
        stats.received,
        Frames {
            frames: 2,
            bytes: 120
        }
    );
    assert_eq!((stats.transmitted, stats.rejected.frames), (2, 0));
}

#[test]
fn each_direction_keeps_the_pace_of_its_own_link() {
    let ((left, mut here), (right, mut there)) = (memory::pair(1000), memory::pair(1000));
    let mut bridge =
        Bridge::new(shaped(left, 1000, 100), shaped(right, 1000, 0), as_it_is).unwrap();
    send(&mut here, (0..200).map(|_| vec![0; 900]));
    send(&mut there, (0..200).map(|_| vec![0; 900]));
    for now in 0..=100 {
        bridge.round(ms(now)).unwrap();
    }
    // One more than the time is worth is on its way.
    assert_eq!(heard(&mut here).len(), 101, "100 bytes of overhead each");
    assert_eq!(heard(&mut there).len(), 112);
    let Next::At(next) = bridge.round(ms(100)).unwrap().next else {
        panic!("packets wait");
    };
    assert_eq!(next, Nanos(100_800_000), "the earlier of both");
}

#[test]
fn an_open_direction_takes_no_more_than_a_batch_of_a_round() {
    let ((left, mut here), (right, mut there)) = (memory::pair(10_000), memory::pair(10_000));
    let mut bridge = Bridge::new(open(left), open(right), as_it_is).unwrap();
    send(&mut here, (0..1000).map(|_| vec![0; 60]));
    send(&mut there, (0..10).map(|_| vec![1; 60]));
    let round = bridge.round(ms(0)).unwrap();
    assert_eq!(heard(&mut there).len(), BATCH);
    assert_eq!(heard(&mut here).len(), 10);
    assert_eq!(round.next, Next::Now, "there is more");
}

#[test]
fn a_closed_bridge_takes_in_nothing_and_sends_what_it_holds_at_the_pace_of_the_link() {
    let ((left, mut here), (right, mut there)) = (memory::pair(1000), memory::pair(1000));
    let mut bridge = Bridge::new(open(left), shaped(right, 1000, 0), as_it_is).unwrap();
    assert!(bridge.is_drained());
    send(&mut here, (0..10).map(|_| vec![1; 1_000]));
    bridge.round(ms(0)).unwrap();
    assert!(!bridge.is_drained());
    bridge.close();
    send(&mut here, [vec![2; 1_000]]);
    send(&mut there, [vec![3; 1_000]]);
    let mut came = Vec::new();
    // A millisecond each; the first left on arrival.
    for now in 1..=9 {
        assert!(!bridge.is_drained(), "{now} ms");
        bridge.round(ms(now)).unwrap();
        came.extend(heard(&mut there));
    }
    assert_eq!(came, vec![vec![1; 1_000]; 10]);
    assert!(bridge.is_drained());
    assert_eq!(bridge.round(ms(20)).unwrap().moved(), 0);
    assert!(heard(&mut here).is_empty() && heard(&mut there).is_empty());
    assert_eq!(bridge.stats(Side::Right).received.frames, 10);
}

#[test]
fn what_a_device_has_not_sent_yet_is_not_drained() {
    let ((left, mut here), (right, mut there)) = (memory::pair(10), memory::pair(10));
    let mut bridge = Bridge::new(open(left), open(right), as_it_is).unwrap();
    send(&mut here, [vec![1; 60]]);
    bridge.round(ms(0)).unwrap();
    bridge.close();
    assert!(!bridge.is_drained(), "it is on its way");
    assert_eq!(heard(&mut there).len(), 1);
    assert!(bridge.is_drained());
}

#[test]
fn what_has_arrived_is_taken_in_before_anything_is_sent() {
    let ((left, mut here), (right, mut there)) = (memory::pair(10_000), memory::pair(10_000));
    let mut bridge = Bridge::new(open(left), shaped(right, 10_000, 0), as_it_is).unwrap();
    send(&mut here, (0..MOST_TAKEN_IN + 7).map(|_| vec![0; 60]));
    send(&mut there, [vec![1; 60]]);
    let round = bridge.round(ms(0)).unwrap();
    let taken_in = bridge.stats(Side::Right).received.frames;
    assert_eq!(taken_in, MOST_TAKEN_IN as u64, "and no more of a flood");
    assert_eq!(round.next, Next::Now, "there is more");
    assert_eq!(heard(&mut here).len(), 1, "the other side is heard");
    assert_eq!(heard(&mut there).len(), 1, "what the link can carry");
    let round = bridge.round(ms(0)).unwrap();
    let taken_in = bridge.stats(Side::Right).received.frames;
    assert_eq!(taken_in, MOST_TAKEN_IN as u64 + 7);
    assert_ne!(round.next, Next::Now);
}

/// A device that knows how its frames arrived.
struct Knowing(Memory, Vec<Arrival>);

impl Backend for Knowing {
    type Tx = Frame;
    type Rx = Frame;

    fn transmit(&mut self, batch: &mut VecDeque<Frame>) -> io::Result<usize> {
        self.0.transmit(batch)
    }

    fn receive(&mut self, into: &mut Vec<Frame>, max: usize) -> io::Result<usize> {
        self.0.receive(into, max)
    }

    fn arrivals(&self) -> &[Arrival] {
        &self.1
    }

    fn in_flight(&self) -> io::Result<u64> {
        self.0.in_flight()
    }

    fn refused(&self) -> u64 {
        self.0.refused()
    }
}

#[test]
fn a_frame_came_when_its_device_says_not_when_it_was_taken_in() {
    let ((left, mut here), (right, _there)) = (memory::pair(10), memory::pair(10));
    let waited = |millis, losing| Arrival {
        waited: Duration::from_millis(millis),
        losing,
    };
    let left = Knowing(left, vec![waited(200, true), waited(50_000, false)]);
    let right = Knowing(right, Vec::new());
    let mut made = Vec::new();
    let make = |frame: Frame, _: Side, came: Came| {
        made.push(came);
        frame
    };
    let mut bridge = Bridge::new(open(left), shaped(right, 10, 0), make).unwrap();
    send(&mut here, [vec![1; 60], vec![2; 60], vec![3; 60]]);
    bridge.round(ms(300)).unwrap();
    drop(bridge);
    let came = |millis, losing| Came {
        at: ms(millis),
        losing,
    };
    // Not before the clock began, and now where nothing is known.
    assert_eq!(made, [came(100, true), came(0, false), came(300, false)]);
}

#[test]
fn a_full_device_holds_up_its_own_direction_alone() {
    let ((left, mut here), (right, mut there)) = (memory::pair(10_000), memory::pair(4));
    let mut bridge = Bridge::new(open(left), open(right), as_it_is).unwrap();
    send(&mut here, (0..200).map(|n| vec![n; 60]));
    for _ in 0..4 {
        bridge.round(ms(0)).unwrap();
    }
    assert_eq!(
        bridge.round(ms(0)).unwrap().next,
        Next::WhenBackendTakesMore
    );
    assert_eq!(
        bridge.stats(Side::Right).received.frames,
        BATCH as u64,
        "no more is taken in"
    );
    send(&mut there, [vec![9; 60]]);
    bridge.round(ms(0)).unwrap();
    assert_eq!(heard(&mut here), [vec![9; 60]]);
    let mut arrived = Vec::new();
    while arrived.len() < 200 {
        arrived.extend(heard(&mut there).iter().map(|frame| frame[0]));
        bridge.round(ms(0)).unwrap();
    }
    assert!(
        arrived.iter().copied().eq(0..200),
        "in order, and all of them"
    );
}

#[test]
fn what_was_held_up_is_looked_for_as_soon_as_there_is_room() {
    let ((left, mut here), (right, mut there)) = (memory::pair(100), memory::pair(4));
    let mut bridge = Bridge::new(open(left), open(right), as_it_is).unwrap();
    send(&mut here, (0..6).map(|n| vec![n; 60]));
    assert_eq!(
        bridge.round(ms(0)).unwrap().next,
        Next::WhenBackendTakesMore
    );
    assert_eq!(heard(&mut there).len(), 4);
    // No frame was looked for in this round.
    assert_eq!(bridge.round(ms(0)).unwrap().next, Next::Now);
    assert_eq!(bridge.round(ms(0)).unwrap().next, Next::WhenPushed);
}

#[test]
fn a_frame_that_no_link_carries_is_dropped_and_counted() {
    let ((left, mut here), (right, mut there)) = (memory::pair(10), memory::pair(10));
    let mut bridge = Bridge::new(open(left), shaped(right, 2, 24), as_it_is).unwrap();
    send(
        &mut here,
        [
            vec![0; 65_512],
            vec![0; 65_511],
            Vec::new(),
            vec![0; 60],
            vec![0; 61],
        ],
    );
    bridge.round(ms(0)).unwrap();
    let stats = bridge.stats(Side::Right);
    assert_eq!(stats.received.frames, 5);
    assert_eq!(
        stats.oversized,
        Frames {
            frames: 2,
            bytes: 65_512
        }
    );
    assert_eq!(
        stats.rejected,
        Frames {
            frames: 1,
            bytes: 61
        },
        "the queue had room for two"
    );
    bridge.round(ms(1000)).unwrap();
    let lengths: Vec<_> = heard(&mut there).iter().map(Vec::len).collect();
    assert_eq!(lengths, [65_511, 60]);
}

/// Enough of them to be queued together.
#[test]
fn frames_that_come_together_are_counted_as_each_would_be_by_itself() {
    let ((left, mut here), (right, mut there)) = (memory::pair(100), memory::pair(100));
    let Lane::Shaped(arbiter, _) = shaped(right, 20, 24) else {
        unreachable!("it is shaped");
    };
    let longest = FlowConfig::new(Weight::ONE, Length::new(1_000).unwrap());
    let right = Lane::Shaped(arbiter, longest);
    let mut bridge = Bridge::new(open(left), right, as_it_is).unwrap();
    let lengths = (0..30).map(|n| match n {
        3 => 0,
        7 => 65_512,
        // With the link's overhead it is longer than its flow allows.
        11 => 1_001,
        _ => 60 + n,
    });
    send(&mut here, lengths.clone().map(|bytes| vec![0; bytes]));
    bridge.round(ms(0)).unwrap();
    let LaneStats {
        received,
        oversized,
        rejected,
        ..
    } = bridge.stats(Side::Right);
    let frames = |frames, bytes: usize| Frames {
        frames,
        bytes: bytes as u64,
    };
    assert_eq!(received, frames(30, lengths.clone().sum()));
    assert_eq!(oversized, frames(3, 65_512 + 1_001));
    // There is room for 20 of the 27 others.
    let beyond: usize = (23..30).map(|n| 60 + n).sum();
    assert_eq!(rejected, frames(8, 1_001 + beyond));
    bridge.round(ms(10_000)).unwrap();
    let arrived = heard(&mut there);
    let those = lengths.take(23).filter(|bytes| (60..1_000).contains(bytes));
    assert!(arrived.iter().map(Vec::len).eq(those), "in order");
}

#[test]
fn a_made_payload_knows_where_and_when_its_frame_arrived() {
    let ((left, mut here), (right, mut there)) = (memory::pair(10), memory::pair(10));
    let mut made = Vec::new();
    let mut bridge: Bridge<Queue, Memory, _> = Bridge::new(
        shaped(left, 10, 0),
        shaped(right, 10, 0),
        |frame: Frame, side: Side, now: Came| {
            made.push((frame[0], side, now));
            frame
        },
    )
    .unwrap();
    send(&mut here, [vec![1; 60]]);
    bridge.round(ms(3)).unwrap();
    send(&mut there, [vec![2; 60]]);
    bridge.round(ms(5)).unwrap();
    drop(bridge);
    let came = |millis| Came {
        at: ms(millis),
        losing: false,
    };
    assert_eq!(made, [(1, Side::Left, came(3)), (2, Side::Right, came(5))]);
}

/// A UDP socket that sends everything to one address.
struct Towards {
    socket: UdpBackend<Datagram>,
    peer: SocketAddr,
}

impl Backend for Towards {
    type Tx = Datagram;
    type Rx = Datagram;
    fn transmit(&mut self, batch: &mut VecDeque<Datagram>) -> io::Result<usize> {
        batch
            .iter_mut()
            .for_each(|datagram| datagram.peer = self.peer);
        self.socket.transmit(batch)
    }
    fn receive(&mut self, into: &mut Vec<Datagram>, max: usize) -> io::Result<usize> {
        self.socket.receive(into, max)
    }
    fn in_flight(&self) -> io::Result<u64> {
        self.socket.in_flight()
    }
    fn refused(&self) -> u64 {
        self.socket.refused()
    }
}

impl AsFd for Towards {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Returns a host, and the bridge's device that leads to it.
fn host() -> (UdpSocket, Towards, SocketAddr) {
    let host = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    host.set_read_timeout(Some(Duration::from_secs(120)))
        .unwrap();
    let socket = UdpBackend::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let address = socket.local_addr().unwrap();
    let peer = host.local_addr().unwrap();
    (host, Towards { socket, peer }, address)
}

fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Ends a bridge, also where the test fails: a frame wakes it.
struct Ends<'a> {
    stop: &'a AtomicBool,
    host: &'a UdpSocket,
    device: SocketAddr,
}

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // It fails only where the test does.
        let _ = self.host.send_to(b"the end", self.device);
    }
}

/// Drives a bridge until `stop`: how many rounds, and in how much of a processor's time.
fn run(mut bridge: impl Steps, stop: &AtomicBool) -> (u64, Duration) {
    let idling = Idling {
        // Longer than a host waits.
        longest_sleep: ms(240_000),
        ..Idling::default()
    };
    let mut rounds = 0;
    drive(&mut bridge, &Clock::start(), idling, |_, _, _| {
        rounds += 1;
        !stop.load(Ordering::Relaxed)
    })
    .unwrap();
    (rounds, thread_time())
}

/// By then the bridge sleeps.
const PAUSE: Duration = Duration::from_millis(40);

/// Drives a bridge while `talk` lasts, and holds it to a fifth of that time. A frame of the host's to the device wakes
/// it at the end.
fn asleep_most_of_the_time(
    bridge: impl Steps + Send,
    (host, device): (&UdpSocket, SocketAddr),
    talk: impl FnOnce(),
) {
    let stop = &AtomicBool::new(false);
    thread::scope(|scope| {
        let at_the_end = Ends { stop, host, device };
        let bridging = scope.spawn(move || run(bridge, stop));
        let began = Instant::now();
        talk();
        let took = began.elapsed();
        drop(at_the_end);
        let (rounds, busy) = bridging.join().unwrap();
        assert!(busy < took / 5, "{busy:?} of {took:?}, {rounds} rounds");
    });
}

#[test]
fn an_idle_bridge_sleeps_and_wakes_for_frames_of_either_side() {
    let ((here, left, to_left), (there, right, to_right)) = (host(), host());
    let bridge = Bridge::new(open(left), shaped(right, 100, 0), as_it_is).unwrap();
    let mut buffer = [0; 100];
    asleep_most_of_the_time(bridge, (&here, to_left), || {
        for _ in 0..4 {
            thread::sleep(PAUSE);
            here.send_to(b"to the right", to_left).unwrap();
            let (length, _) = there.recv_from(&mut buffer).unwrap();
            assert_eq!(&buffer[..length], b"to the right");
            thread::sleep(PAUSE);
            there.send_to(b"to the left", to_right).unwrap();
            let (length, _) = here.recv_from(&mut buffer).unwrap();
            assert_eq!(&buffer[..length], b"to the left");
        }
    });
}

#[test]
fn an_idle_bridge_sleeps_and_hears_of_clients_whom_no_device_tells_of() {
    let ((here, left, to_left), (there, right, _)) = (host(), host());
    let Lane::Shaped(arbiter, frames) = shaped(right, 100, 0) else {
        unreachable!()
    };
    let mut client = arbiter.registrar().register(any_frame()).unwrap();
    let bridge = Bridge::new(open(left), Lane::Shaped(arbiter, frames), as_it_is).unwrap();
    let mut buffer = [0; 100];
    asleep_most_of_the_time(bridge, (&here, to_left), || {
        for _ in 0..4 {
            thread::sleep(PAUSE);
            let peer = to_left;
            let bytes = b"of a client".to_vec();
            client
                .push(Length::new(11).unwrap(), Datagram { peer, bytes })
                .unwrap();
            let (length, _) = there.recv_from(&mut buffer).unwrap();
            assert_eq!(&buffer[..length], b"of a client");
        }
    });
}

#[test]
fn what_is_changed_after_a_round_is_seen_to_before_the_bridge_sleeps() {
    let ((_here, left, to_left), (there, right, _)) = (host(), host());
    let idling = Idling {
        spin_for: Nanos::ZERO,
        // Longer than a host waits.
        longest_sleep: ms(240_000),
        ..Idling::default()
    };
    let mut bridge = Bridge::new(open(left), shaped(right, 100, 0), as_it_is).unwrap();
    thread::scope(|scope| {
        let bridging = scope.spawn(move || {
            let mut rounds = 0;
            drive(&mut bridge, &Clock::start(), idling, |bridge, now, _| {
                rounds += 1;
                if rounds == 1 {
                    let arbiter = bridge.arbiter_mut(Side::Right).unwrap();
                    let flow = arbiter.open_flow(any_frame()).unwrap();
                    let datagram = Datagram {
                        peer: to_left,
                        bytes: b"now".to_vec(),
                    };
                    let length = Length::new(3).unwrap();
                    assert!(arbiter.admit(flow, length, datagram, now).is_ok());
                }
                rounds < 2
            })
            .unwrap();
        });
        let mut buffer = [0; 100];
        let (length, _) = there.recv_from(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"now");
        bridging.join().unwrap();
    });
}

#[test]
fn how_late_a_round_is_for_what_may_leave_is_counted_and_no_wait_for_the_link() {
    let ((left, mut here), (right, mut there)) = (memory::pair(100), memory::pair(100));
    let mut bridge = Bridge::new(open(left), shaped(right, 100, 0), as_it_is).unwrap();
    let micros = Nanos::from_micros;
    let late = |bridge: &Bridge<_, _, _>| {
        let late = bridge.rounds().late;
        (late.count(), late.longest())
    };
    bridge.round(micros(0)).unwrap();
    bridge.round(micros(1_000)).unwrap();
    assert_eq!(late(&bridge), (0, Nanos::ZERO), "nothing is to leave");
    // A millisecond each: the second may leave at 2 ms.
    send(&mut here, [vec![1; 1_000], vec![2; 1_000]]);
    let next = bridge.round(micros(1_000)).unwrap().next;
    assert_eq!(next, Next::At(micros(2_000)));
    bridge.round(micros(1_500)).unwrap();
    assert_eq!(late(&bridge), (0, Nanos::ZERO), "it may not leave yet");
    bridge.round(micros(2_007)).unwrap();
    assert_eq!(late(&bridge), (1, micros(7)));
    assert_eq!(heard(&mut there).len(), 2);
    assert_eq!(
        bridge.rounds().scan.count(),
        0,
        "nobody has told how long they took"
    );
}

#[test]
fn a_full_device_is_late_from_round_to_round() {
    let ((left, mut here), (right, mut there)) = (memory::pair(100), memory::pair(1));
    let mut bridge = Bridge::new(open(left), open(right), as_it_is).unwrap();
    send(&mut here, [vec![1; 60], vec![2; 60]]);
    let next = bridge.round(ms(1)).unwrap().next;
    assert_eq!(next, Next::WhenBackendTakesMore);
    assert_eq!(heard(&mut there).len(), 1);
    bridge.round(ms(4)).unwrap();
    assert_eq!(heard(&mut there).len(), 1);
    let late = bridge.rounds().late;
    assert_eq!((late.count(), late.longest()), (1, ms(3)));
}

/// Records the duration of its steps, which do nothing.
#[derive(Default)]
struct Timed(Vec<Nanos>);

impl Steps for Timed {
    fn step(&mut self, _: Nanos) -> io::Result<Step> {
        Ok(Step {
            drained: 0,
            released: 0,
            transmitted: 0,
            next: Next::WhenPushed,
        })
    }

    fn sleep(&mut self, longest: Duration) -> io::Result<Option<Woken>> {
        thread::sleep(longest);
        Ok(Some(Woken::TimedOut))
    }

    fn took(&mut self, span: Nanos) {
        self.0.push(span);
    }
}

#[test]
fn a_step_takes_what_is_done_after_it_and_no_wait() {
    let mut timed = Timed::default();
    let idling = Idling {
        spin_for: Nanos::ZERO,
        longest_sleep: ms(200),
        ..Idling::default()
    };
    drive(&mut timed, &Clock::start(), idling, |timed, _, _| {
        thread::sleep(Duration::from_millis(2));
        timed.0.len() < 3
    })
    .unwrap();
    assert_eq!(timed.0.len(), 4);
    assert!(timed.0.iter().all(|&took| took >= ms(2)), "{:?}", timed.0);
    // Of four on a busy machine one at least is shorter than the sleeps in between.
    assert!(timed.0.iter().any(|&took| took < ms(200)), "{:?}", timed.0);
}

#[test]
fn a_lane_that_is_cut_off_goes_on_by_itself_and_comes_back_as_it_is() {
    let ((left, mut here), (right, mut there)) = (memory::pair(100), memory::pair(100));
    let mut bridge = Bridge::new(shaped(left, 100, 0), shaped(right, 100, 0), as_it_is).unwrap();
    let micros = Nanos::from_micros;
    bridge.round(micros(0)).unwrap();
    bridge.round(micros(1_000)).unwrap();
    // A millisecond each: on the left one waits until 2 ms.
    send(&mut there, [vec![1; 1_000], vec![2; 1_000]]);
    bridge.round(micros(1_000)).unwrap();
    send(&mut here, [vec![3; 1_000]]);
    bridge.round(micros(1_500)).unwrap();
    // Arrivals come through the stand-ins from here on.
    let ((near, mut near_host), (far, mut far_host)) = (memory::pair(100), memory::pair(100));
    let mut cut = bridge.split_off(Side::Left, near, far);
    send(&mut here, [vec![9; 60]]);
    send(&mut near_host, [vec![5; 1_000]]);
    send(&mut far_host, [vec![6; 1_000]]);
    let late = |bridge: &Bridge<_, _, _>| bridge.rounds().late.longest();
    cut.round(micros(2_007)).unwrap();
    assert_eq!(late(&cut), micros(7));
    assert_eq!(heard(&mut here), [vec![1; 1_000], vec![2; 1_000]]);
    bridge.round(micros(2_503)).unwrap();
    assert_eq!(
        bridge.rounds().late.count(),
        0,
        "nothing was to leave there"
    );
    assert_eq!(heard(&mut there), [vec![3; 1_000], vec![5; 1_000]]);
    // Nothing leaves where the lane is not.
    assert_eq!((bridge.room(Side::Left), cut.room(Side::Right)), (0, 0));
    assert!(bridge.arbiter(Side::Left).is_none() && !bridge.set_shaped(Side::Left, false));
    let came = Came {
        at: Nanos::ZERO,
        losing: false,
    };
    cut.admit(vec![0; 60], Side::Right, came, micros(2_600));
    assert_eq!(cut.stats(Side::Right).rejected.frames, 1);
    assert!(bridge.is_drained() && !cut.is_drained());

    bridge.join(Side::Left, cut);
    assert_eq!(late(&bridge), micros(7));
    bridge.round(micros(10_000)).unwrap();
    // Frames that arrived meanwhile are received again.
    bridge.round(micros(11_000)).unwrap();
    assert_eq!(heard(&mut here), [vec![6; 1_000]]);
    assert_eq!(heard(&mut there), [vec![9; 60]]);
    for (side, frames) in [(Side::Left, 3), (Side::Right, 3)] {
        let stats = bridge.stats(side);
        let transmitted = (stats.received.frames, stats.transmitted);
        assert_eq!(transmitted, (frames, frames), "{side:?}");
    }
    assert!(bridge.is_drained());
}
