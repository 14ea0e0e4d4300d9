//! Backends that are split for several threads.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use fairlane_io::{
    Backend, OwedFrames, Umem, Waiter, XdpBackend, XdpFrame, XdpMode, XdpOptions, XdpReceiver,
    XdpSender,
};
use fairlane_netlab::{Link, cable_with_queues, or_skip};

use crate::rig::*;

const QUEUES: u32 = 4;

fn bind_all(umem: &Umem, link: &Link, options: &XdpOptions) -> XdpBackend {
    let bound = link
        .namespace()
        .run(|| XdpBackend::bind_all(umem, link.name(), options));
    bound.unwrap()
}

fn bind_one(umem: &Umem, link: &Link, queue: u32, options: &XdpOptions) -> XdpBackend {
    let bound = link
        .namespace()
        .run(|| XdpBackend::bind(umem, link.name(), queue, options));
    bound.unwrap()
}

/// Returns a backend for each queue.
fn bind_each(umem: &Umem, link: &Link, options: &XdpOptions) -> Vec<XdpBackend> {
    let bind = |queue| bind_one(umem, link, queue, options);
    (0..QUEUES).map(bind).collect()
}

/// Splits a backend into one sender and `receivers` receivers.
fn split(backend: XdpBackend, receivers: usize) -> (XdpSender, Vec<XdpReceiver>) {
    let (mut senders, receivers) = backend.split(1, receivers).unwrap();
    (senders.pop().unwrap(), receivers)
}

fn small(mode: XdpMode) -> XdpOptions {
    XdpOptions {
        rx_ring: 256,
        tx_ring: 64,
        ..options(mode)
    }
}

/// Starts a receiving thread, which is paid back its frames.
fn receive(
    mut receiver: XdpReceiver,
    handed: &Sender<XdpFrame>,
    paid: &Receiver<XdpFrame>,
    done: &AtomicBool,
) -> XdpReceiver {
    let (mut waiter, mut arrived) = (Waiter::new(), Vec::new());
    while !done.load(Ordering::Relaxed) {
        let came = receiver.receive(&mut arrived, 64).unwrap();
        assert_eq!(receiver.arrivals().len(), came);
        paid.try_iter().for_each(XdpFrame::keep);
        for frame in arrived.drain(..) {
            handed.send(frame).unwrap();
        }
        if came == 0 {
            let nap = Duration::from_millis(1);
            waiter.wait_readable(&[&receiver], nap).unwrap();
        }
    }
    receiver
}

/// A forwarding thread's end of a receiving thread.
struct Worker {
    frames: Receiver<XdpFrame>,
    pays: Sender<XdpFrame>,
    owed: OwedFrames,
}

/// Forwards frames from the workers, of which it drops every eighth, on these senders, each flow on one of them, until
/// `until` frames have arrived.
fn forward(workers: &mut [Worker], senders: &mut [XdpSender], until: u32) {
    let mut passing: Vec<_> = senders.iter().map(|_| VecDeque::new()).collect();
    let mut passed = 0;
    let patience = Instant::now() + PATIENCE;
    let has = |sender: &XdpSender| sender.in_flight().unwrap() > 0;
    while passed < until || passing.iter().any(|batch| !batch.is_empty()) || senders.iter().any(has)
    {
        for worker in workers.iter_mut() {
            for frame in worker.frames.try_iter().take(64) {
                worker.owed.took(&frame);
                passed += 1;
                let number = number(frame.bytes());
                if number % 8 < 7 {
                    let flow = (number % QUEUES) as usize;
                    passing[flow % senders.len()].push_back(frame);
                }
            }
        }
        for (sender, batch) in senders.iter_mut().zip(&mut passing) {
            sender.transmit(batch).unwrap();
            sender.receive(&mut Vec::new(), 64).unwrap();
        }
        for worker in workers.iter_mut() {
            for frame in worker.owed.pay() {
                worker.pays.send(frame).unwrap();
            }
        }
        assert!(Instant::now() < patience, "{passed} of {until} came");
    }
}

/// Returns whether no frame is waiting or in flight: the last ones may be among those that are dropped.
fn are_sent(batches: &[VecDeque<XdpFrame>], sources: &[XdpBackend]) -> bool {
    let mut in_flight = sources.iter().map(|source| source.in_flight().unwrap());
    batches.iter().all(VecDeque::is_empty) && in_flight.all(|bytes| bytes == 0)
}

#[test]
fn halves_on_threads_of_their_own_pass_every_frame_on_once_and_in_order_and_their_memory_goes_back()
{
    const FRAMES: u32 = 10_000;
    for (mode, receivers, senders) in MODES
        .into_iter()
        .flat_map(|mode| [(mode, 2, 1), (mode, 3, 4)])
    {
        let cable = || cable_with_queues(1_500, QUEUES);
        let cables = cable().and_then(|one| Ok((one, cable()?)));
        let Some(((source, left), (right, sink))) = or_skip("halves on threads", cables) else {
            return;
        };
        let options = small(mode);
        let ends = Umem::new(8_192, 2_048).unwrap();
        let mut sources = bind_each(&ends, &source, &options);
        let mut sink = bind_all(&ends, &sink, &options);
        let umem = Umem::new(8_192, 2_048).unwrap();
        let (idle, each) = split(bind_all(&umem, &left, &options), receivers);
        let right = bind_all(&umem, &right, &options).split(senders, 1);
        let (mut senders, others) = right.unwrap();
        let queues: Vec<_> = each.iter().map(XdpReceiver::queues).collect();
        assert_eq!((queues.len(), queues.iter().sum()), (receivers, 4_usize));
        assert!(queues.iter().all(|&queues| queues <= 2), "{queues:?}");
        assert_eq!((idle.mode(), each[0].interface()), (mode, "far"));

        let done = AtomicBool::new(false);
        let halves = thread::scope(|scope| {
            let (done, _end) = (&done, Ending(&done));
            let (mut threads, mut workers) = (Vec::new(), Vec::new());
            for receiver in each {
                let ((handed, frames), (pays, paid)) = (channel(), channel());
                threads.push(scope.spawn(move || receive(receiver, &handed, &paid, done)));
                workers.push(Worker {
                    frames,
                    pays,
                    owed: OwedFrames::default(),
                });
            }
            let forwarding = scope.spawn(move || {
                let _end = Ending(done);
                forward(&mut workers, &mut senders, FRAMES);
                // Its kept frames return to the list only when it ends.
                senders
            });

            // The flow of queue q has the numbers q, q + 4, q + 8, ..
            let mut next: Vec<u32> = (0..QUEUES).collect();
            let mut last = [None; QUEUES as usize];
            let mut batches: Vec<_> = (0..QUEUES).map(|_| VecDeque::new()).collect();
            let (mut delivered, mut came) = (Vec::new(), 0);
            let patience = Instant::now() + PATIENCE;
            let mut under_way = 0;
            let is_made = |next: &[u32]| next.iter().all(|&next| next >= FRAMES);
            while came < FRAMES / 8 * 7 || !is_made(&next) || !are_sent(&batches, &sources) {
                for (queue, batch) in batches.iter_mut().enumerate() {
                    // At most as many frames as the rings hold, however threads are scheduled.
                    while batch.len() < 16 && under_way < 100 && next[queue] < FRAMES {
                        let number = next[queue];
                        let bytes = packet(number, length(number));
                        batch.push_back(ends.frame_from(&bytes).expect("frames come back"));
                        next[queue] += QUEUES;
                        under_way += i32::from(number % 8 < 7);
                    }
                    sources[queue].transmit(batch).unwrap();
                }
                sink.receive(&mut delivered, 64).unwrap();
                for frame in delivered.drain(..) {
                    let number = number(frame.bytes());
                    let before = last[(number % QUEUES) as usize].replace(number);
                    assert!(before < Some(number), "{mode}: {number} after {before:?}");
                    (came, under_way) = (came + 1, under_way - 1);
                }
                assert!(Instant::now() < patience, "{mode}: {came} came");
            }
            let senders = forwarding.join().unwrap();
            let each: Vec<_> = threads.into_iter().map(|it| it.join().unwrap()).collect();
            (senders, each)
        });
        assert_eq!(sink.dropped().unwrap(), 0);
        let lost = halves.1.iter().map(|receiver| receiver.dropped().unwrap());
        assert_eq!(lost.sum::<u64>(), 0, "{mode}");
        // The rings hold as many frames as at first, and no thread keeps any.
        let posted = 2 * QUEUES * options.rx_ring;
        assert!(umem.free_frames() >= umem.frames() - posted, "{umem:?}");
        drop((halves, idle, others));
        assert_eq!(umem.free_frames(), umem.frames(), "{mode}");
    }
}

#[test]
fn a_backend_has_a_sender_and_a_receiver_for_each_of_its_queues_and_no_more() {
    let links = or_skip("too many halves", cable_with_queues(1_500, QUEUES));
    let Some((near, _far)) = links else {
        return;
    };
    let umem = Umem::new(4_096, 2_048).unwrap();
    let native = small(XdpMode::Native);
    for (senders, receivers, sentence) in [
        (
            1,
            0,
            "0 threads cannot receive at interface near: it has receive queues for 1 to 4",
        ),
        (
            4,
            5,
            "5 threads cannot receive at interface near: it has receive queues for 1 to 4",
        ),
        (
            0,
            1,
            "0 threads cannot send by interface near: it has queues for 1 to 4",
        ),
        (
            5,
            1,
            "5 threads cannot send by interface near: it has queues for 1 to 4",
        ),
    ] {
        let backend = bind_all(&umem, &near, &native);
        let error = backend.split(senders, receivers).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert_eq!(error.to_string(), sentence);
        assert_eq!(umem.free_frames(), umem.frames());
    }
    let (senders, each) = bind_all(&umem, &near, &native).split(4, 4).unwrap();
    assert_eq!(senders.len(), 4);
    assert!(each.iter().all(|receiver| receiver.queues() == 1));
    drop((senders, each));
    assert_eq!(bind_one(&umem, &near, 3, &native).tx_queues(), 1);
}

#[test]
fn an_interface_sends_by_no_more_queues_than_it_has_to_transmit_and_by_none_that_is_not_served() {
    let links = or_skip("fewer transmit queues", cable_with_queues(1_500, QUEUES));
    let Some((near, _far)) = links else {
        return;
    };
    let umem = Umem::new(4_096, 2_048).unwrap();
    // The kernel takes none away that it may still have a socket of.
    for (receive, transmit, send) in [(1, 4, 1), (3, 4, 3), (4, 3, 3)] {
        near.set_queues(receive, transmit).unwrap();
        let backend = bind_all(&umem, &near, &small(XdpMode::Generic));
        assert_eq!(
            (backend.queues(), backend.tx_queues()),
            (receive as usize, send)
        );
    }
}

#[test]
fn each_queue_that_sends_has_a_ring_and_a_thread_and_what_it_sends_comes_at_its_own_in_order() {
    const FRAMES: u32 = 2_000;
    // The driver of a virtual cable does not show by which queue a frame was transmitted.
    let links = or_skip("queues that send", cable_with_queues(1_500, QUEUES));
    let Some((near, far)) = links else {
        return;
    };
    let options = small(XdpMode::Native);
    let umem = Umem::new(8_192, 2_048).unwrap();
    let (mut senders, others) = bind_all(&umem, &near, &options).split(4, 1).unwrap();
    let ends = Umem::new(8_192, 2_048).unwrap();
    let sinks = bind_each(&ends, &far, &options);
    let came = [const { AtomicU32::new(0) }; QUEUES as usize];
    // Each fills its own ring while the link is down.
    near.down().unwrap();
    for sender in &mut senders {
        let mut batch = VecDeque::new();
        top_up(&mut batch, &umem, &mut 0, 64);
        assert_eq!(sender.transmit(&mut batch).unwrap(), 64);
        assert_eq!(sender.untaken(), 64);
        let more = umem.frame_from(&packet(64, length(64))).unwrap();
        assert_eq!(sender.transmit(&mut VecDeque::from([more])).unwrap(), 0);
    }
    near.up().unwrap();
    thread::scope(|scope| {
        for (mut sender, came) in senders.into_iter().zip(&came) {
            let ours = &umem;
            scope.spawn(move || {
                let (mut next, mut batch) = (64, VecDeque::new());
                let patience = Instant::now() + PATIENCE;
                while next < FRAMES || !batch.is_empty() || sender.in_flight().unwrap() > 0 {
                    // No more than the ring at the other end has room for.
                    let end = FRAMES.min(came.load(Ordering::Relaxed) + 200);
                    top_up(&mut batch, ours, &mut next, end);
                    sender.transmit(&mut batch).unwrap();
                    assert!(Instant::now() < patience, "{next}");
                }
            });
        }
        for (mut sink, came) in sinks.into_iter().zip(&came) {
            scope.spawn(move || {
                for next in 0..FRAMES {
                    let frames = collect(&mut sink, 1);
                    assert_eq!(number(frames[0].bytes()), next);
                    came.store(next + 1, Ordering::Relaxed);
                }
            });
        }
    });
    drop(others);
    assert_eq!(umem.free_frames(), umem.frames());
}

/// A cable with a backend at one end, which is split, and one at the other.
struct Halves {
    umem: Umem,
    sender: XdpSender,
    receiver: XdpReceiver,
    far: XdpBackend,
    links: (Link, Link),
}

fn halves(test: &str, mode: XdpMode) -> Option<Halves> {
    let lab = lab(test, &options(mode))?;
    let (sender, mut each) = split(lab.near, 1);
    Some(Halves {
        umem: lab.umem,
        sender,
        receiver: each.pop()?,
        far: lab.far,
        links: (lab.near_link, lab.far_link),
    })
}

#[test]
fn what_the_half_that_sends_leaves_in_the_ring_is_the_kernels_until_the_other_is_gone() {
    for (mode, goes_up) in MODES
        .into_iter()
        .flat_map(|mode| [(mode, true), (mode, false)])
    {
        let Some(mut halves) = halves("a ring left full by a half", mode) else {
            return;
        };
        let umem = &halves.umem;
        let at_rest = umem.free_frames();
        halves.links.0.down().unwrap();
        let mut batch = VecDeque::new();
        top_up(&mut batch, umem, &mut 0, 40);
        assert_eq!(halves.sender.transmit(&mut batch).unwrap(), 40);
        drop(halves.sender);
        assert_eq!(umem.free_frames(), at_rest - 40, "{mode}");
        // The owner of a wrongly freed frame would see its own bytes transmitted instead.
        let others: Vec<_> = (0..512)
            .map_while(|_| umem.frame_from(&[0xee; 60]))
            .collect();
        if goes_up {
            halves.links.0.up().unwrap();
            // A wait for arrivals makes the kernel transmit.
            let patience = Instant::now() + PATIENCE;
            let (mut waiter, mut came) = (Waiter::new(), Vec::new());
            while came.len() < 40 {
                let nap = Duration::from_millis(1);
                waiter.wait_readable(&[&halves.receiver], nap).unwrap();
                halves.far.receive(&mut came, 64).unwrap();
                assert!(Instant::now() < patience, "{mode}: {} came", came.len());
            }
            for (expected, frame) in (0..).zip(came) {
                assert_eq!(number(frame.bytes()), expected, "{mode}");
            }
        }
        drop(others);
        assert_eq!(umem.free_frames(), at_rest - 40, "{mode}");
        drop(halves.receiver);
        drop(halves.far);
        assert_eq!(umem.free_frames(), umem.frames(), "{mode}");
    }
}

#[test]
fn a_half_goes_on_without_the_other_and_every_frame_comes_back_whichever_ends_first() {
    for (mode, sender_first) in MODES
        .into_iter()
        .flat_map(|mode| [(mode, true), (mode, false)])
    {
        let Some(halves) = halves("one half without the other", mode) else {
            return;
        };
        let Halves {
            umem,
            mut sender,
            mut receiver,
            mut far,
            links: _links,
        } = halves;
        let stop = AtomicBool::new(false);
        // Both ends send all the while.
        thread::scope(|scope| {
            let (stop, _end, ours) = (&stop, Ending(&stop), umem.clone());
            let sending = scope.spawn(move || {
                let (mut next, mut batch) = (0, VecDeque::new());
                let end = Instant::now() + Duration::from_millis(200);
                while next < 4_000 || Instant::now() < end {
                    if sender_first && next >= 2_000 {
                        break;
                    }
                    top_up(&mut batch, &ours, &mut next, u32::MAX);
                    sender.transmit(&mut batch).unwrap();
                }
                // In the middle of it.
                drop(sender);
            });
            let receiving = scope.spawn(move || {
                let (mut arrived, mut count) = (Vec::new(), 0);
                let patience = Instant::now() + PATIENCE;
                while count < 4_000 {
                    count += receiver.receive(&mut arrived, 64).unwrap();
                    for frame in arrived.drain(..) {
                        number(frame.bytes());
                    }
                    if !sender_first && count >= 500 {
                        break;
                    }
                    assert!(Instant::now() < patience, "{count} came");
                }
                drop(receiver);
            });
            let ours = umem.clone();
            let other = scope.spawn(move || {
                let (mut next, mut batch, mut arrived) = (0, VecDeque::new(), Vec::new());
                while !stop.load(Ordering::Relaxed) {
                    top_up(&mut batch, &ours, &mut next, u32::MAX);
                    far.transmit(&mut batch).unwrap();
                    far.receive(&mut arrived, 64).unwrap();
                    for frame in arrived.drain(..) {
                        number(frame.bytes());
                    }
                }
            });
            let ended = [sending.join(), receiving.join()];
            drop(Ending(stop));
            other.join().unwrap();
            ended.into_iter().for_each(Result::unwrap);
        });
        assert_eq!(umem.free_frames(), umem.frames(), "{mode}, {sender_first}");
    }
}

#[test]
fn the_program_stays_with_the_half_that_sends_for_drivers_that_send_for_no_socket_without_one() {
    let links = or_skip("a program without receivers", cable_with_queues(1_500, 2));
    let Some((near, _far)) = links else {
        return;
    };
    let umem = Umem::new(4_096, 2_048).unwrap();
    let [native, generic] = MODES.map(small);
    let (sender, each) = split(bind_one(&umem, &near, 0, &native), 1);
    drop(each);
    // One in the driver and one behind it exclude each other.
    let bind = || XdpBackend::bind(&umem, near.name(), 1, &generic);
    let error = near.namespace().run(bind).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ResourceBusy, "{error}");
    drop(sender);
    near.namespace().run(bind).unwrap();
}

#[test]
fn an_interface_that_is_removed_is_gone_for_both_halves_with_the_same_words() {
    for (mode, sender_first) in MODES
        .into_iter()
        .flat_map(|mode| [(mode, true), (mode, false)])
    {
        let Some(mut halves) = halves("removed for both halves", mode) else {
            return;
        };
        halves.links.0.delete().unwrap();
        let Halves {
            sender, receiver, ..
        } = &mut halves;
        let mut each: [Box<dyn FnMut() -> std::io::Result<usize>>; 2] = [
            Box::new(|| sender.receive(&mut Vec::new(), 1)),
            Box::new(|| receiver.receive(&mut Vec::new(), 1)),
        ];
        if !sender_first {
            each.reverse();
        }
        let patience = Instant::now() + PATIENCE;
        let first = loop {
            match each[0]() {
                Ok(came) => assert_eq!(came, 0),
                Err(error) => break error,
            }
            assert!(Instant::now() < patience, "{mode}");
        };
        // At once.
        let second = each[1]().unwrap_err();
        assert_eq!(first.kind(), ErrorKind::NetworkDown);
        assert!(
            first.to_string().starts_with("interface near was removed"),
            "{first}"
        );
        assert_eq!(first.to_string(), second.to_string());
        drop(each);
        assert!(halves.sender.in_flight().is_err());
        let umem = halves.umem.clone();
        drop(halves);
        assert_eq!(umem.free_frames(), umem.frames(), "{mode}");
    }
}
