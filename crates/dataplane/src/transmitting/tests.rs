//! Transmit workers send all frames, in order and within the budget.

use super::*;
use crate::device::sent::Sending;
use crate::device::{Handover, Receive, Transmit};
use crate::rig;
use crate::workers::tests::{PATIENCE, ROOM, frame, source_and_number, transmitting};
use fairlane_io::{MemoryBackend, memory};
use rustix::event::{EventfdFlags, eventfd};
use std::collections::HashSet;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Instant;

/// A device in memory that frames leave by, with a switchable state.
struct Out {
    to: MemoryBackend<Frame>,
    fate: Arc<Fate>,
    ready: OwnedFd,
}

#[derive(Default)]
struct Fate {
    is_gone: AtomicBool,
    panics: AtomicBool,
    /// Takes no frames at present.
    is_full: AtomicBool,
    /// Drops the frames it takes, as sockets do.
    drops: AtomicBool,
    /// Number of accepted frames that the kernel has not taken.
    untaken: AtomicU64,
}

impl Backend for Out {
    type Tx = Frame;
    type Rx = Frame;

    fn transmit(&mut self, batch: &mut VecDeque<Frame>) -> io::Result<usize> {
        let is = |what: &AtomicBool| what.load(Ordering::Relaxed);
        assert!(!is(&self.fate.panics), "as it is to");
        match () {
            () if is(&self.fate.is_gone) => {
                let sentence = "the interface lan0 has been removed";
                Err(io::Error::new(io::ErrorKind::NotFound, sentence))
            }
            () if is(&self.fate.is_full) => Ok(0),
            () if is(&self.fate.drops) => Ok(batch.drain(..).count()),
            () => self.to.transmit(batch),
        }
    }

    fn receive(&mut self, _: &mut Vec<Frame>, _: usize) -> io::Result<usize> {
        Ok(0)
    }

    fn in_flight(&self) -> io::Result<u64> {
        self.to.in_flight()
    }

    fn refused(&self) -> u64 {
        self.to.refused()
    }
}

impl Receive for Out {}

impl Transmit for Out {
    fn untaken(&self) -> u64 {
        self.fate.untaken.load(Ordering::Relaxed)
    }
}

impl Handover for Out {}

impl Device for Out {
    fn backend(&self) -> String {
        "memory".to_owned()
    }
}

impl AsFd for Out {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }
}

/// Returns a device with space for `room` frames of at most 1,000 bytes, its switchable state, and its other end.
fn out(room: usize) -> (Out, Arc<Fate>, MemoryBackend<Frame>) {
    let (to, from) = memory::pair(room);
    let fate = Arc::<Fate>::default();
    let out = Out {
        to: to.with_mtu(1_000),
        fate: Arc::clone(&fate),
        ready: eventfd(0, EventfdFlags::CLOEXEC).unwrap(),
    };
    (out, fate, from)
}

/// Returns `count` such devices, and their other ends.
fn outs(count: usize, room: usize) -> (Vec<Out>, Vec<MemoryBackend<Frame>>) {
    let one = |_| {
        let (out, _, from) = out(room);
        (out, from)
    };
    (0..count).map(one).unzip()
}

/// Workers with threads.
fn working(devices: Vec<Out>, budget: u64, slots: usize) -> TransmitHandles<Out> {
    let options = transmitting(devices.len(), budget);
    let devices = devices.into_iter().map(IdleSender::new).collect();
    let started = TransmitHandles::with_slots(devices, &options, "memory", slots);
    started.map_err(|(error, _)| error).unwrap()
}

/// Creates a worker without a thread.
fn one(device: Out, budget: u64, slots: usize) -> (Transmitter<Out>, TransmitHandles<Out>) {
    let (handle, ends) = connect(slots).unwrap();
    let options = transmitting(1, budget);
    let worker = Transmitter::new(IdleSender::new(device), options.cost, ends);
    (worker, TransmitHandles::over(vec![handle], &options))
}

/// Returns numbered frames of `sources` sources in turn.
fn frames(sources: u32, each: u32, bytes: usize) -> VecDeque<Frame> {
    let all = 0..sources * each;
    let made = all.map(|number| frame(number % sources, number / sources, bytes));
    made.map(Frame::from).collect()
}

/// Returns the frames that have arrived at the other end of a device.
fn heard(from: &mut MemoryBackend<Frame>) -> Vec<Frame> {
    let mut frames = Vec::new();
    from.receive(&mut frames, usize::MAX).unwrap();
    frames
}

fn numbers(frames: &[Frame]) -> Vec<(u32, u32)> {
    let numbers = frames.iter().map(|frame| source_and_number(frame.bytes()));
    numbers.collect()
}

/// Waits until `is_so` returns true.
#[track_caller]
fn until(mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "it takes too long");
        std::thread::yield_now();
    }
}

#[test]
fn between_threads_no_frame_is_lost_doubled_or_passes_its_flow_and_none_exceeds_the_budget() {
    // Enough sources that each worker gets some, except with probability 10^-10.
    const SOURCES: u32 = 64;
    const EACH: u32 = 400;
    const BYTES: usize = 100;
    // By a budget that is smaller than the mailboxes, and by mailboxes that are smaller than the budget.
    for (count, budget, slots) in [
        (1, 1_000, 64),
        (3, 1_000, 64),
        (1, 1 << 20, 4),
        (3, 1 << 20, 4),
    ] {
        let (devices, mut from) = outs(count, 8);
        let mut workers = working(devices, budget, slots);
        let mut waiting = frames(SOURCES, EACH, BYTES);
        let (mut next, mut ways) = ([0; SOURCES as usize], [usize::MAX; SOURCES as usize]);
        let (mut handed, mut came, begun) = (0, 0, Instant::now());
        while came < u64::from(SOURCES * EACH) {
            assert!(begun.elapsed() < PATIENCE, "{came} frames came");
            // As many as a round releases.
            let mut batch = waiting.drain(..waiting.len().min(BATCH)).collect();
            handed += workers.transmit(&mut batch).unwrap() as u64;
            while let Some(frame) = batch.pop_back() {
                waiting.push_front(frame);
            }
            let on_their_way = (handed - came) * BYTES as u64;
            assert!(on_their_way <= budget, "{on_their_way} of {budget} bytes");
            for (way, from) in from.iter_mut().enumerate() {
                for (source, number) in numbers(&heard(from)) {
                    let source = source as usize;
                    assert_eq!(number, next[source], "of {source}");
                    next[source] += 1;
                    came += 1;
                    assert!(ways[source] == usize::MAX || ways[source] == way);
                    ways[source] = way;
                }
            }
        }
        assert_eq!(next, [EACH; SOURCES as usize]);
        let used: HashSet<_> = ways.into_iter().collect();
        assert_eq!(used.len(), count, "each has some: {ways:?}");
        assert!((1..=budget).contains(&workers.most_in_flight()));
        until(|| workers.unsent().unwrap() == 0);
        assert_eq!((workers.too_long(), workers.refused()), (0, 0));
    }
}

#[test]
fn what_was_handed_over_is_in_flight_until_it_has_left_the_device_wherever_it_is() {
    const BYTES: u64 = 100;
    let (device, _, mut from) = out(ROOM);
    let (mut worker, mut handles) = one(device, 5 * BYTES, 64);
    let mut batch = frames(1, 8, BYTES as usize);
    assert_eq!(handles.transmit(&mut batch).unwrap(), 5);
    let (left, most) = (numbers(batch.make_contiguous()), handles.most_in_flight());
    assert_eq!((left, most), (vec![(0, 5), (0, 6), (0, 7)], 5 * BYTES));
    assert_eq!(handles.unsent().unwrap(), 5 * BYTES, "in the mailbox");
    let step = worker.step(Nanos::ZERO).unwrap();
    assert_eq!((step.drained, step.transmitted), (5, 5));
    assert_eq!(
        step.next,
        Next::WhenBackendTakesMore,
        "no completion is reported"
    );
    assert_eq!(handles.unsent().unwrap(), 5 * BYTES, "with the device");
    assert_eq!(handles.transmit(&mut batch).unwrap(), 0);
    assert_eq!(batch.len(), 3);
    let two = &mut Vec::new();
    from.receive(two, 2).unwrap();
    assert_eq!(handles.unsent().unwrap(), 5 * BYTES, "it was not told");
    worker.step(Nanos::ZERO).unwrap();
    assert_eq!(handles.unsent().unwrap(), 3 * BYTES);
    assert_eq!(handles.transmit(&mut batch).unwrap(), 2);
    while worker.step(Nanos::ZERO).unwrap().moved() > 0 {}
    heard(&mut from);
    let step = worker.step(Nanos::ZERO).unwrap();
    assert_eq!(
        (step.next, handles.unsent().unwrap()),
        (Next::WhenPushed, 0)
    );
    // A frame that exceeds the whole budget waits for nothing.
    let mut batch: VecDeque<Frame> = [frame(1, 1, 501), frame(1, 2, 500)].map(Frame::from).into();
    assert_eq!(handles.transmit(&mut batch).unwrap(), 1);
    assert_eq!((batch.len(), handles.too_long()), (0, 1));
}

#[test]
fn what_a_device_has_before_a_worker_has_it_is_of_the_budget_too() {
    let (mut device, _, mut from) = out(ROOM);
    device.transmit(&mut frames(1, 3, 100)).unwrap();
    let mut workers = working(vec![device], 500, 64);
    let mut batch = frames(1, 8, 100);
    assert_eq!(workers.transmit(&mut batch).unwrap(), 2);
    assert_eq!(workers.unsent().unwrap(), 500);
    until(|| {
        heard(&mut from);
        workers.transmit(&mut batch).unwrap();
        batch.is_empty() && workers.unsent().unwrap() == 0
    });
}

#[test]
fn where_a_mailbox_is_full_the_rest_stays_in_order() {
    let (device, _, mut from) = out(ROOM);
    let (mut worker, mut handles) = one(device, 1 << 20, 2);
    let mut batch = frames(1, 300, 64);
    let mut came = Vec::new();
    for round in 0.. {
        assert!(round < 1_000, "it stands still");
        let (before, handed) = (batch.len(), handles.transmit(&mut batch).unwrap());
        assert_eq!(before - batch.len(), handed);
        assert!(handed <= 2 * 4, "more than there are places: {handed}");
        worker.step(Nanos::ZERO).unwrap();
        came.extend(numbers(&heard(&mut from)));
        if came.len() == 300 {
            break;
        }
    }
    assert!(came.into_iter().eq((0..300).map(|number| (0, number))));
}

#[test]
fn what_a_full_mailbox_holds_is_with_the_device_within_the_rounds_promised_and_not_before() {
    let (device, fate, mut from) = out(ROOM);
    let (mut worker, mut handles) = one(device, 1 << 30, SLOTS);
    let millis = |round: usize| Nanos::from_millis(round as u64);
    // The round in which they arrive is the first.
    worker.step(millis(1)).unwrap();
    let mut batch = frames(1, 2 * SLOTS as u32, 64);
    let held = handles.transmit(&mut batch).unwrap();
    assert_eq!(held, WAITING);
    for round in 2..=ROUNDS {
        assert!(heard(&mut from).len() < held, "before round {round}");
        worker.step(millis(round)).unwrap();
        let left = held - (round - 2) * BATCH;
        assert_eq!(
            worker.device.to.queued(),
            left.min(BATCH),
            "in round {round}"
        );
    }
    assert!(worker.frames.is_empty() && worker.batch.is_empty());
    worker.step(millis(ROUNDS + 1)).unwrap();
    let waits = handles.waits().unwrap();
    assert_eq!((waits.rounds, waits.beyond), (ROUNDS, 0));
    assert_eq!(
        (waits.longest_round, waits.longest),
        (millis(1), millis(ROUNDS - 1))
    );
    // While the device takes nothing, there is no guarantee.
    heard(&mut from);
    worker.step(millis(8)).unwrap();
    fate.is_full.store(true, Ordering::Relaxed);
    assert!(handles.transmit(&mut batch).unwrap() > 0);
    for round in 9..40 {
        let step = worker.step(millis(round)).unwrap();
        assert_eq!(step.next, Next::WhenBackendTakesMore);
    }
    fate.is_full.store(false, Ordering::Relaxed);
    while worker.step(millis(40)).unwrap().moved() > 0 {}
    assert_eq!(handles.waits().unwrap(), waits);
}

#[test]
fn what_waits_in_a_mailbox_for_more_rounds_than_promised_is_counted() {
    let (device, _, _from) = out(ROOM);
    let (mut worker, mut handles) = one(device, 1 << 30, SLOTS);
    worker.meter = WaitMeter::within(2);
    worker.step(Nanos::from_millis(1)).unwrap();
    handles
        .transmit(&mut frames(1, 2 * BATCH as u32, 64))
        .unwrap();
    for round in 2..=4 {
        worker.step(Nanos::from_millis(round)).unwrap();
    }
    let waits = handles.waits().unwrap();
    assert_eq!((waits.rounds, waits.beyond), (3, 1));
}

#[test]
fn what_devices_refuse_is_told_and_is_not_among_what_was_sent() {
    let (devices, mut from) = outs(2, ROOM);
    let mut sending = Sending::new(devices, Some(&transmitting(2, 1 << 20)));
    let long = |number| frame(number, 0, 1_001);
    // The frame does not count as taken, whether the worker or the forwarding thread holds it.
    let mut batch: VecDeque<Frame> = [long(1), frame(1, 0, 64)].map(Frame::from).into();
    assert_eq!(sending.transmit(&mut batch).unwrap(), 1);
    assert_eq!((sending.refused(), sending.unsent()), (1, 0));
    sending.start("memory").unwrap();
    let both = (0..40).flat_map(|number| [long(number), frame(number, 0, 64)]);
    let mut batch: VecDeque<Frame> = both.map(Frame::from).collect();
    assert_eq!(sending.transmit(&mut batch).unwrap(), 80);
    until(|| (sending.refused(), sending.unsent()) == (41, 40));
    let mut came = 0;
    until(|| {
        came += from.iter_mut().map(|from| heard(from).len()).sum::<usize>();
        came == 41
    });
    sending.end();
    assert_eq!(
        (sending.refused(), sending.unsent(), sending.away()),
        (41, 40, 0)
    );
}

#[test]
fn a_worker_that_loses_its_device_says_why_and_every_frame_has_left_or_is_counted() {
    for count in [1, 3] {
        let (devices, mut from) = outs(count, ROOM);
        let fates: Vec<_> = devices.iter().map(|out| Arc::clone(&out.fate)).collect();
        let mut sending = Sending::new(devices, Some(&transmitting(count, 1 << 20)));
        sending.start("lan0").unwrap();
        let mut handed = sending.transmit(&mut frames(16, 10, 64)).unwrap();
        let mut came = 0;
        until(|| {
            came += from.iter_mut().map(|from| heard(from).len()).sum::<usize>();
            came == 160
        });
        for fate in &fates {
            fate.is_gone.store(true, Ordering::Relaxed);
        }
        let mut waiting = frames(16, 10, 64);
        handed += sending.transmit(&mut waiting).unwrap();
        assert!(waiting.is_empty());
        until(|| sending.in_flight().is_err());
        // The same result at each call, and nothing is taken.
        let mut batch = frames(16, 1, 64);
        for _ in 0..2 {
            let error = sending.transmit(&mut batch).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::NotFound);
            assert_eq!(error.to_string(), "the interface lan0 has been removed");
        }
        assert_eq!(batch.len(), 16);
        sending.end();
        assert_eq!((sending.unsent(), sending.away()), (160, 160));
        assert_eq!(handed as u64 - sending.unsent(), came as u64);
        sending.end();
        assert_eq!(sending.away(), 160, "they count once");
    }
}

#[test]
fn a_worker_that_panics_ends_what_it_was_to_do_and_holds_up_nobody() {
    let (devices, _from) = outs(2, ROOM);
    devices[1].fate.panics.store(true, Ordering::Relaxed);
    let mut sending = Sending::new(devices, Some(&transmitting(2, 1 << 20)));
    sending.start("lan0").unwrap();
    sending.transmit(&mut frames(64, 1, 64)).unwrap();
    until(|| sending.in_flight().is_err());
    let why = "a transmit worker has ended";
    let mut batch = frames(1, 1, 64);
    assert_eq!(sending.transmit(&mut batch).unwrap_err().to_string(), why);
    sending.quiesce();
    assert_eq!(sending.transmit(&mut batch).unwrap_err().to_string(), why);
    assert_eq!(sending.in_flight().unwrap_err().to_string(), why);
    assert_eq!(batch.len(), 1);
    sending.as_fd();
    sending.end();
}

#[test]
fn an_ended_worker_has_sent_what_it_had_or_leaves_it_and_that_goes_first_later() {
    let (device, fate, mut from) = out(ROOM);
    let mut sending = Sending::new(vec![device], Some(&transmitting(1, 1 << 20)));
    sending.start("lan0").unwrap();
    let mut batch = frames(1, 100, 64);
    assert_eq!(sending.transmit(&mut batch).unwrap(), 100);
    sending.quiesce();
    let mut came = numbers(&heard(&mut from));
    assert_eq!((came.len(), sending.unsent()), (100, 0), "it has sent all");
    // A device that takes nothing.
    fate.is_full.store(true, Ordering::Relaxed);
    sending.start("lan0").unwrap();
    let mut batch: VecDeque<Frame> = (100..300)
        .map(|number| frame(0, number, 64).into())
        .collect();
    assert_eq!(sending.transmit(&mut batch).unwrap(), 200);
    sending.quiesce();
    assert_eq!((sending.unsent(), sending.refused()), (200, 0));
    assert_eq!(
        sending.in_flight().unwrap(),
        0,
        "the device has none of them"
    );
    fate.is_full.store(false, Ordering::Relaxed);
    let mut next: VecDeque<Frame> = (300..310)
        .map(|number| frame(0, number, 64).into())
        .collect();
    assert_eq!(sending.transmit(&mut next).unwrap(), 0, "not before those");
    sending.start("lan0").unwrap();
    assert_eq!(sending.transmit(&mut next).unwrap(), 10);
    until(|| {
        came.extend(numbers(&heard(&mut from)));
        came.len() == 310 && sending.unsent() == 0
    });
    assert!(came.into_iter().eq((0..310).map(|number| (0, number))));
    // Or the thread that hands over to another process takes it.
    fate.is_full.store(true, Ordering::Relaxed);
    let mut batch = frames(1, 7, 64);
    sending.transmit(&mut batch).unwrap();
    sending.quiesce();
    let mut left = VecDeque::new();
    sending.take_left(&mut left);
    assert_eq!((left.len(), sending.unsent(), sending.away()), (7, 7, 0));
    sending.end();
    assert_eq!((sending.unsent(), sending.away()), (7, 0));
}

#[test]
fn what_the_kernel_has_not_taken_of_a_device_is_unsent_whoever_has_the_device() {
    let (device, fate, mut from) = out(ROOM);
    let mut sending = Sending::new(vec![device], Some(&transmitting(1, 1 << 20)));
    let untaken = |count| fate.untaken.store(count, Ordering::Relaxed);
    untaken(5);
    assert_eq!(sending.transmit(&mut frames(1, 20, 64)).unwrap(), 20);
    assert_eq!(sending.unsent(), 5);
    // A worker has them with the device, also before it was given any.
    sending.start("lan0").unwrap();
    assert_eq!(sending.unsent(), 5);
    assert_eq!(sending.transmit(&mut frames(1, 20, 64)).unwrap(), 20);
    until(|| sending.unsent() == 5);
    untaken(4);
    until(|| sending.unsent() == 4);
    sending.quiesce();
    assert_eq!(sending.unsent(), 4);
    // They are with the device still, and go out by the next.
    sending.start("lan0").unwrap();
    assert_eq!(sending.unsent(), 4);
    untaken(0);
    until(|| sending.unsent() == 0);
    assert_eq!(heard(&mut from).len(), 40);
    // The same of one that ends by itself.
    untaken(6);
    fate.is_gone.store(true, Ordering::Relaxed);
    assert_eq!(sending.transmit(&mut frames(1, 1, 64)).unwrap(), 1);
    until(|| sending.in_flight().is_err());
    assert_eq!(sending.unsent(), 1 + 6);
    sending.end();
    assert_eq!((sending.unsent(), sending.away()), (1 + 6, 1));
}

#[test]
fn a_flow_stays_with_its_device_when_workers_have_ended_and_start_again() {
    const SOURCES: u32 = 64;
    let (devices, mut from) = outs(2, ROOM);
    let mut sending = Sending::new(devices, Some(&transmitting(2, 1 << 20)));
    let mut sources = || {
        sending.start("lan0").unwrap();
        let mut batch = frames(SOURCES, 1, 64);
        assert_eq!(sending.transmit(&mut batch).unwrap(), SOURCES as usize);
        sending.quiesce();
        let of = |from: &mut _| -> HashSet<u32> {
            let all = numbers(&heard(from)).into_iter();
            all.map(|(source, _)| source).collect()
        };
        [of(&mut from[0]), of(&mut from[1])]
    };
    // Frames left with one worker would be overtaken by those sent through another.
    let first = sources();
    assert!(first.iter().all(|sources| !sources.is_empty()));
    assert_eq!(first, sources());
}

#[test]
fn where_a_worker_cannot_start_the_sentence_says_so_and_whoever_has_the_device_transmits() {
    let (devices, mut from) = outs(2, ROOM);
    let no_room = TransmitOptions {
        stack: usize::MAX / 4,
        ..transmitting(2, 1 << 20)
    };
    let mut sending = Sending::new(devices, Some(&no_room));
    let sentence = sending.start("lan0").unwrap_err().to_string();
    let begins = "cannot start a transmit worker at lan0: ";
    assert!(sentence.starts_with(begins), "{sentence}");
    assert_eq!(sending.transmit(&mut frames(4, 1, 64)).unwrap(), 4);
    assert_eq!(heard(&mut from[0]).len(), 4);
    assert_eq!(sending.workers(), 2);
}

#[test]
fn a_worker_that_waits_is_woken_by_the_first_frame_and_by_its_end() {
    let (device, _, mut from) = out(ROOM);
    let (mut worker, mut handles) = one(device, 1 << 20, 8);
    assert!(
        worker.wait(Duration::ZERO).unwrap().is_some(),
        "there is nothing"
    );
    let mut waiter = Waiter::new();
    let bell = handles.bell().unwrap();
    let mut is_rung = || {
        let rung = waiter.wait_readable(&[&*bell], Duration::ZERO).unwrap();
        rung.count() > 0
    };
    assert!(!is_rung());
    handles.transmit(&mut frames(1, 1, 64)).unwrap();
    assert!(is_rung());
    assert!(worker.wait(PATIENCE).unwrap().is_none(), "there is a frame");
    worker.step(Nanos::ZERO).unwrap();
    assert_eq!(heard(&mut from).len(), 1);
    assert!(worker.wait(PATIENCE).unwrap().is_some(), "it was rung");
    assert!(!is_rung());
    handles.stop();
    assert!(worker.wait(PATIENCE).unwrap().is_none());
}

#[test]
fn what_frames_were_in_comes_back_from_whoever_sent_them() {
    const ROUNDS: usize = 200;
    for count in [1, 3] {
        let (devices, _from) = outs(count, ROOM);
        for device in &devices {
            device.fate.drops.store(true, Ordering::Relaxed);
        }
        let mut workers = working(devices, 1 << 20, SLOTS);
        let mut places = HashSet::new();
        for _ in 0..ROUNDS {
            // In memory that is kept, as frames are that were received.
            let made = (0..BATCH as u32).map(|number| frame(number, 0, 900));
            let mut batch: VecDeque<Frame> = made.map(|frame| Frame::from(&frame[..])).collect();
            places.extend(batch.iter().map(|frame| frame.bytes().as_ptr() as usize));
            assert_eq!(workers.transmit(&mut batch).unwrap(), BATCH);
            until(|| workers.unsent().unwrap() == 0);
        }
        let few = 8 * BATCH;
        assert!(
            places.len() <= few,
            "{} for {} frames",
            places.len(),
            ROUNDS * BATCH
        );
    }
}

#[test]
fn what_finds_no_place_is_not_lent() {
    let (device, _, _from) = out(ROOM);
    let (_worker, mut handles) = one(device, 1 << 20, 2);
    // In memory that is kept.
    let mut batch: VecDeque<Frame> = (0..40).map(|_| Frame::from(&[0; 64][..])).collect();
    let handed = handles.transmit(&mut batch).unwrap();
    for _ in 0..40 {
        assert_eq!(handles.transmit(&mut batch).unwrap(), 0);
    }
    let lent = &mut handles.each[0].lent;
    let back = (0..100).filter(|_| lent.took_back(Vec::with_capacity(128)));
    assert_eq!(back.count(), handed);
}

#[test]
fn fragments_between_two_hosts_and_frames_without_addresses_go_one_way() {
    let key = DigestKey([1, 2]);
    let of = |frame: &[u8]| queue_of(frame, &key, 16);
    let datagram = |port: u8, fragment: u16| {
        let mut frame = rig::frame(1, 100);
        frame[20..22].copy_from_slice(&fragment.to_be_bytes());
        (frame[23], frame[37]) = (17, port);
        frame[38] = 66;
        frame
    };
    // More fragments, and from byte 8 on.
    let parts = (0..50).flat_map(|port| [datagram(port, 0x2000), datagram(port, 1)]);
    let ways: HashSet<_> = parts.map(|frame| of(&frame)).collect();
    assert_eq!(ways.len(), 1);
    let whole: HashSet<_> = (0..50).map(|port| of(&datagram(port, 0))).collect();
    assert!(whole.len() > 8, "flows are spread: {whole:?}");
    let arp = |number: u8| {
        let mut frame = vec![number; 60];
        frame[12..14].copy_from_slice(&[8, 6]);
        frame
    };
    let without: HashSet<_> = (0..50).map(|number| of(&arp(number))).collect();
    assert_eq!(without.len(), 1);
    assert!((0..50).all(|port| queue_of(&datagram(port, 0), &key, 3) < 3));
    assert_eq!(of(&[]), of(&[1; 5]), "what cannot be read");
}
