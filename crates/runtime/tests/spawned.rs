//! A link on a thread of its own, in real time.

#[path = "support/executor.rs"]
mod executor;

use std::collections::VecDeque;
use std::env;
use std::io;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fairlane_core::sched::{Algorithm, Qfq};
use fairlane_core::{ChangeError, Length, Nanos, PacketScheduler, Rate, SchedulerLimits};
use fairlane_io::{Backend, MemoryBackend, memory};
use fairlane_runtime::{
    ChangeLinkError, Client, Ended, Flow, FlowError, Idling, Link, LinkHandle, LinkStats, Refusal,
    RegisterError, Registrar, SpawnConfig, spawn, spawn_over,
};

const PATIENCE: Duration = Duration::from_secs(120);

/// A sender, and a number.
type Frame = Vec<u8>;

type Memory = MemoryBackend<Frame>;

fn length(bytes: u32) -> Length {
    Length::new(bytes).unwrap()
}

fn rate(text: &str) -> Rate {
    text.parse().unwrap()
}

/// Returns a link that carries a thousand frames of 1250 bytes in a second, or as the rate says.
fn start(link: &str) -> (Registrar<Frame>, LinkHandle, Memory) {
    let (near, far) = memory::pair(1 << 12);
    let (link, handle) = spawn(rate(link), near).unwrap();
    (link, handle, far)
}

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "never: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

fn arrived(far: &mut Memory) -> Vec<Frame> {
    let mut arrived = Vec::new();
    far.receive(&mut arrived, 1 << 12).unwrap();
    arrived
}

#[test]
fn what_was_pushed_is_sent_before_a_drained_link_ends_and_nothing_after() {
    let (link, handle, mut far) = start("100mbit");
    let mut clients = [4, 1].map(|weight| link.client(Flow::weight(weight).max_len(1250)).unwrap());
    for number in 0..100 {
        for (index, client) in clients.iter_mut().enumerate() {
            client
                .push(length(1250), vec![index as u8, number])
                .unwrap();
        }
    }
    let ending = handle.drain(PATIENCE);
    // Rejected once it has ended, and before, once the thread learned of it.
    let left = ending.wait().unwrap();
    assert_eq!(
        (left.total.sent.packets, left.total.queued.packets),
        (200, 0)
    );
    let frames = arrived(&mut far);
    assert_eq!(frames.len(), 200);
    for index in 0..2 {
        let own = frames.iter().filter(|frame| frame[0] == index);
        assert!(own.map(|frame| frame[1]).eq(0..100), "client {index}");
    }
    let refused = clients[0].push(length(1250), vec![0, 100]).unwrap_err();
    assert_eq!(refused.reason, Refusal::Ending);
    let late = link.client(Flow::weight(1).max_len(100)).unwrap_err();
    assert_eq!(late, RegisterError::ArbiterGone);
    assert!(arrived(&mut far).is_empty());
}

#[test]
fn a_link_drains_no_longer_than_it_may_and_tells_what_is_left() {
    // A frame takes ten seconds.
    let (link, handle, _far) = start("1kbit");
    let mut client = link.client(Flow::weight(1).max_len(1250)).unwrap();
    for number in 0..10 {
        client.push(length(1250), vec![0, number]).unwrap();
    }
    let start = Instant::now();
    let left = executor::block_on(handle.drain(Duration::from_millis(50)).into_future()).unwrap();
    assert!(start.elapsed() < PATIENCE / 2, "a deadline of 50 ms");
    assert!(left.total.queued.packets >= 5, "{left:?}");
    let total = left.total;
    assert_eq!(
        total.accepted.packets,
        total.sent.packets + total.queued.packets
    );
}

#[test]
fn a_stopped_link_ends_at_once() {
    let (link, handle, _far) = start("1kbit");
    let mut client = link.client(Flow::weight(1).max_len(1250)).unwrap();
    for number in 0..10 {
        client.push(length(1250), vec![0, number]).unwrap();
    }
    wait_for("packets are queued", || {
        handle.stats().unwrap().total.accepted.packets == 10
    });
    let left = handle.stop().unwrap();
    assert!(left.total.queued.packets >= 5, "{left:?}");
    wait_for("the client sees it", || client.is_abandoned());
}

/// Returns a link with a second for each frame, and space for two: the others stay in their mailboxes.
fn holding_two() -> SpawnConfig {
    let mut config = SpawnConfig::new(Link::new(rate("10kbit")));
    config.arbiter.hold_back = true;
    config.arbiter.limits = SchedulerLimits {
        packets: 2,
        ..SchedulerLimits::default()
    };
    config
}

#[test]
fn what_lies_in_mailboxes_at_the_end_is_told() {
    for drains in [false, true] {
        let (near, _far): (Memory, Memory) = memory::pair(16);
        let (link, handle) = spawn(holding_two(), near).unwrap();
        let mut client = link.client(Flow::weight(1).max_len(1250)).unwrap();
        for number in 0..10 {
            client.push(length(1250), vec![0, number]).unwrap();
        }
        wait_for("the queue is full", || {
            handle.stats().unwrap().total.queued.packets == 2
        });
        let ended = match drains {
            true => handle.drain(Duration::from_millis(10)).wait(),
            false => handle.stop(),
        };
        let left = ended.unwrap();
        assert_eq!(pushed(&left), 10, "{left:?}");
        assert!(left.in_mailboxes >= 3, "{left:?}");
        let refused = client.push(length(1250), vec![0, 10]).unwrap_err();
        assert_eq!(refused.reason, Refusal::Ending);
    }
}

/// Returns the sum of all counts of pushed packets.
fn pushed(left: &LinkStats) -> u64 {
    let total = left.total;
    let known = [total.sent, total.queued, total.discarded, total.dropped];
    left.in_mailboxes + known.map(|count| count.packets).iter().sum::<u64>()
}

#[test]
fn whoever_pushes_while_a_link_ends_is_refused_or_told_but_for_a_push_in_the_middle() {
    const SENDERS: u64 = 8;
    for drains in [true, false] {
        let (near, _far): (Memory, Memory) = memory::pair(usize::MAX);
        let (link, handle) = spawn(rate("10gbit"), near).unwrap();
        let senders: Vec<_> = (0..SENDERS)
            .map(|_| {
                let mut client = link.client(Flow::weight(1).max_len(1000)).unwrap();
                thread::spawn(move || {
                    let mut taken = 0;
                    loop {
                        match client.push(length(1000), Vec::new()).map_err(|r| r.reason) {
                            Ok(_) => taken += 1,
                            Err(Refusal::MailboxFull) => thread::yield_now(),
                            Err(reason) => return (taken, reason),
                        }
                    }
                })
            })
            .collect();
        wait_for("they push", || {
            let clients = handle.client_stats().unwrap();
            clients
                .iter()
                .filter(|(_, client)| client.pushed > 0)
                .count()
                == SENDERS as usize
        });
        let left = match drains {
            true => handle.drain(PATIENCE).wait().unwrap(),
            false => handle.stop().unwrap(),
        };
        let ends: Vec<(u64, _)> = senders.into_iter().map(|s| s.join().unwrap()).collect();
        assert!(
            ends.iter().all(|(_, why)| *why == Refusal::Ending),
            "{ends:?}"
        );
        let taken: u64 = ends.iter().map(|(taken, _)| taken).sum();
        let told = pushed(&left);
        println!(
            "{taken} taken, {told} told, {} in mailboxes",
            left.in_mailboxes
        );
        assert!(
            told <= taken && taken - told <= SENDERS,
            "{taken}, {left:?}"
        );
        if drains {
            assert_eq!(left.total.queued.packets, 0);
        }
    }
}

#[test]
fn whoever_registered_before_it_is_asked_is_counted() {
    let mut config = SpawnConfig::new(Link::new(rate("10mbit")));
    // Awake, it may be anywhere in its step.
    config.idling = Idling::dedicated();
    let (near, _far): (Memory, Memory) = memory::pair(16);
    let (link, handle) = spawn(config, near).unwrap();
    let mut clients = Vec::new();
    for number in 1..=500 {
        clients.push(link.client(Flow::weight(1).max_len(100)).unwrap());
        if number % 2 == 0 {
            assert_eq!(handle.stats().unwrap().clients, number);
        } else {
            assert_eq!(handle.client_stats().unwrap().len(), number);
        }
    }
}

#[test]
fn the_time_of_a_link_begins_before_it_is_there() {
    let (_link, handle, _far) = start("10mbit");
    let start = Instant::now();
    thread::sleep(Duration::from_millis(20));
    let waited = start.elapsed();
    let uptime = Duration::from(handle.stats().unwrap().uptime);
    assert!(uptime + Duration::from_millis(1) > waited, "{uptime:?}");
}

/// Set for a process of its own.
const ALONE: &str = "FAIRLANE_TEST_ALONE";

#[test]
fn nobody_waits_for_the_clock_of_the_first_link() {
    if env::var_os(ALONE).is_some() {
        let before = Instant::now();
        let _link = start("10mbit");
        // So long the clock takes.
        assert!(before.elapsed() < Duration::from_millis(50));
        return;
    }
    let alone = || {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "nobody_waits_for_the_clock_of_the_first_link"]);
        command.env(ALONE, "1").output().unwrap().status.success()
    };
    // However busy the machine is, one of these has a core when it needs it.
    assert!((0..100).any(|_| alone()));
}

#[test]
fn a_link_that_drains_ends_in_time_though_its_thread_would_sleep_longer() {
    // A frame takes eight minutes.
    let mut config = SpawnConfig::new(Link::new(rate("1kbit")));
    config.idling.longest_sleep = Nanos::from_secs(600);
    let (near, _far): (Memory, Memory) = memory::pair(16);
    let (link, handle) = spawn(config, near).unwrap();
    let mut client = link.client(Flow::weight(1).max_len(60_000)).unwrap();
    for number in 0..2 {
        client.push(length(60_000), vec![0, number]).unwrap();
    }
    wait_for("both are queued", || {
        handle.stats().unwrap().total.accepted.packets == 2
    });
    let start = Instant::now();
    let left = handle.drain(Duration::from_millis(50)).wait().unwrap();
    assert!(start.elapsed() < PATIENCE, "{:?}", start.elapsed());
    assert_eq!(left.total.queued.packets, 1);
}

#[test]
fn a_handle_that_is_dropped_stops_the_link() {
    let (link, handle, _far) = start("10kbit");
    let client = link.client(Flow::weight(1).max_len(1250)).unwrap();
    drop(handle);
    wait_for("the client sees it", || client.is_abandoned());
}

#[test]
fn a_link_is_asked_and_changed_from_any_thread_while_it_sends() {
    let (link, handle, mut far) = start("80mbit");
    let handle = Arc::new(handle);
    let mut client = link.client(Flow::weight(1).max_len(1000)).unwrap();
    let askers: Vec<_> = (0..4)
        .map(|_| {
            let handle = Arc::clone(&handle);
            thread::spawn(move || {
                let mut before = 0;
                for _ in 0..50 {
                    let stats = handle.stats().unwrap();
                    let total = stats.total;
                    let accounted = total.sent.packets + total.queued.packets;
                    assert_eq!(total.accepted.packets, accounted);
                    assert!(total.sent.packets >= before && stats.clients == 1);
                    before = total.sent.packets;
                }
            })
        })
        .collect();
    for number in 0..200 {
        client.push(length(1000), vec![0, number]).unwrap();
    }
    askers.into_iter().for_each(|asker| asker.join().unwrap());
    wait_for("all is sent", || {
        handle.stats().unwrap().total.sent.packets == 200
    });
    assert_eq!(arrived(&mut far).len(), 200);

    // A client's packets may be shorter from now on, and the link faster.
    let id = client.id();
    handle.change(id, Flow::weight(7).max_len(500)).unwrap();
    let refused = client.push(length(501), vec![0, 0]).unwrap_err();
    assert!(matches!(refused.reason, Refusal::TooLong { max, .. } if max == length(500)));
    client.push(length(500), vec![0, 0]).unwrap();
    handle.change_rate(rate("1gbit")).unwrap();
    wait_for("it is sent", || {
        handle.client_stats().unwrap()[0].1.flow.sent.packets == 201
    });
    let wrong = handle.change(id, Flow::weight(0).max_len(500)).unwrap_err();
    assert!(matches!(wrong, ChangeLinkError::Flow(FlowError::Weight(_))));
    assert_eq!(wrong.to_string(), "a weight of 0: weights are 1 to 1000000");
    let wrong = link.client(Flow::weight(1).max_len(65_536)).unwrap_err();
    assert!(matches!(wrong, RegisterError::Flow(FlowError::MaxLen(_))));
    drop(client);
    wait_for("the client left", || handle.stats().unwrap().clients == 0);
    let gone = handle.change(id, Flow::weight(1).max_len(500)).unwrap_err();
    assert_eq!(gone, ChangeLinkError::Change(ChangeError::UnknownFlow));
}

/// A device that holds accepted packets until the next call, and sends some of them at each; it counts the
/// packets sent. It may break with some frame.
struct Odd {
    holds: VecDeque<Frame>,
    sends: usize,
    sent: Arc<AtomicUsize>,
    taken: usize,
    breaks_with: usize,
}

impl Odd {
    fn new(sends: usize) -> Self {
        Odd {
            holds: VecDeque::new(),
            sends,
            sent: Arc::default(),
            taken: 0,
            breaks_with: 0,
        }
    }
}

impl Backend for Odd {
    type Tx = Frame;
    type Rx = ();

    fn transmit(&mut self, frames: &mut VecDeque<Frame>) -> io::Result<usize> {
        let sends = self.sends.min(self.holds.len());
        self.holds.drain(..sends);
        self.sent.fetch_add(sends, Ordering::Relaxed);
        let before = self.taken;
        while let Some(frame) = frames.pop_front() {
            self.holds.push_back(frame);
            self.taken += 1;
            if self.taken == self.breaks_with {
                return Err(io::Error::other("it broke"));
            }
        }
        Ok(self.taken - before)
    }

    fn receive(&mut self, _: &mut Vec<()>, _: usize) -> io::Result<usize> {
        Ok(0)
    }

    fn in_flight(&self) -> io::Result<u64> {
        Ok(self.holds.iter().map(|frame| frame.len() as u64).sum())
    }

    fn refused(&self) -> u64 {
        0
    }
}

/// Ten frames of two bytes each, on a link that takes them at once.
fn ten_frames(device: Odd) -> (LinkHandle, Client<Frame>) {
    let (link, handle) = spawn(rate("1gbit"), device).unwrap();
    let mut client = link.client(Flow::weight(1).max_len(100)).unwrap();
    for number in 0..10 {
        client.push(length(100), vec![0, number]).unwrap();
    }
    (handle, client)
}

#[test]
fn a_drained_link_ends_when_its_device_has_sent_what_it_took() {
    let device = Odd::new(1);
    let sent = Arc::clone(&device.sent);
    let (handle, _client) = ten_frames(device);
    let left = handle.drain(PATIENCE).wait().unwrap();
    assert_eq!(sent.load(Ordering::Relaxed), 10);
    assert_eq!((left.total.sent.packets, left.unsent_bytes), (10, 0));
}

#[test]
fn what_a_device_never_sends_is_told_after_the_time_to_drain() {
    let (handle, _client) = ten_frames(Odd::new(0));
    wait_for("the device has all", || {
        handle.stats().unwrap().unsent_bytes == 20
    });
    let left = handle.drain(Duration::from_millis(20)).wait().unwrap();
    assert_eq!((left.total.sent.packets, left.unsent_bytes), (10, 20));
}

#[test]
fn what_a_device_still_has_goes_out_though_nothing_more_is_pushed() {
    let device = Odd::new(1);
    let sent = Arc::clone(&device.sent);
    let (_handle, _client) = ten_frames(device);
    wait_for("all is sent", || sent.load(Ordering::Relaxed) == 10);
}

#[test]
fn a_backend_that_fails_ends_the_link_and_stop_tells_why() {
    let mut config = SpawnConfig::new(Link::new(rate("1gbit")));
    config.algorithm = Algorithm::Drr;
    let mut device = Odd::new(usize::MAX);
    device.breaks_with = 3;
    let (link, handle) = spawn(config, device).unwrap();
    let mut client = link.client(Flow::weight(1).max_len(100)).unwrap();
    for number in 0..5 {
        // It may have ended by then.
        let _ = client.push(length(100), vec![0, number]);
    }
    wait_for("it ends", || handle.is_ended());
    assert!(handle.stats().is_err() && client.is_abandoned());
    assert_eq!(handle.change_rate(rate("2gbit")), Err(Ended));
    let refused = client.push(length(100), vec![0, 5]).unwrap_err();
    assert_eq!(refused.reason, Refusal::Ending);
    assert_eq!(handle.stop().unwrap_err().to_string(), "it broke");
}

#[test]
fn a_task_that_waits_for_room_in_a_link_that_ends_gets_its_packet_back() {
    let (near, _far): (Memory, Memory) = memory::pair(16);
    let mut config = holding_two();
    config.arbiter.mailbox_slots = 2;
    let queue = PacketScheduler::new(Qfq::new(), config.arbiter.limits);
    let (link, handle) = spawn_over(queue, config, near).unwrap();
    let mut client = link.async_client(Flow::weight(1).max_len(1250)).unwrap();
    let sender = thread::spawn(move || {
        let mut number = 0;
        loop {
            let sent = executor::block_on(client.send(length(1250), vec![0, number]));
            match sent {
                Ok(()) => number += 1,
                Err(refused) => return (number, refused.reason),
            }
        }
    });
    wait_for("the queue is full", || {
        handle.stats().unwrap().total.queued.packets == 2
    });
    drop(handle.drain(Duration::from_millis(100)));
    let (sent, reason) = sender.join().unwrap();
    assert!(sent >= 2, "{sent}");
    assert!(
        matches!(reason, Refusal::Ending | Refusal::ArbiterGone),
        "{reason}"
    );
}
