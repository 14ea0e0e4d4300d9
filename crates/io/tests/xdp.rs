//! AF_XDP over cables of the kernel's making. Needs root; skipped without.
#![cfg(target_os = "linux")]

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fairlane_io::{Backend, Budget, Umem, Waiter, XdpBackend, XdpFrame, XdpMode, XdpOptions};
use fairlane_netlab::{Link, cable, or_skip};

/// What a virtual cable offers.
const MODES: [XdpMode; 2] = [XdpMode::Native, XdpMode::Generic];

/// Longer than any wait that is not a fault.
const PATIENCE: Duration = Duration::from_secs(60);

fn options(mode: XdpMode) -> XdpOptions {
    XdpOptions {
        mode: Some(mode),
        ..XdpOptions::default()
    }
}

fn bind(umem: &Umem, link: &Link, options: &XdpOptions) -> io::Result<XdpBackend> {
    link.namespace()
        .run(|| XdpBackend::bind(umem, link.name(), 0, options))
}

/// A cable with a backend on each end, in memory of their own.
struct Lab {
    umem: Umem,
    near: XdpBackend,
    far: XdpBackend,
    near_link: Link,
    far_link: Link,
}

fn lab(test: &str, options: &XdpOptions) -> Option<Lab> {
    let (near_link, far_link) = or_skip(test, cable(1_500))?;
    let umem = Umem::new(8_192, 2_048).unwrap();
    Some(Lab {
        near: bind(&umem, &near_link, options).unwrap(),
        far: bind(&umem, &far_link, options).unwrap(),
        umem,
        near_link,
        far_link,
    })
}

/// The length of the frame with this number: each from 60 to 1514 in its turn, in no simple order.
fn length(number: u32) -> usize {
    60 + (number as usize * 907) % (1_514 - 60 + 1)
}

/// A frame that tells its number, and in every byte what it should be.
fn packet(number: u32, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    // To everybody, from a local address, of a type for experiments.
    bytes[..14].copy_from_slice(&[255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
    bytes[14..18].copy_from_slice(&number.to_be_bytes());
    for (place, byte) in bytes.iter_mut().enumerate().skip(18) {
        *byte = (number as usize + place) as u8;
    }
    bytes
}

/// The number of a frame that is as it was made.
fn number(bytes: &[u8]) -> u32 {
    let number = u32::from_be_bytes(bytes[14..18].try_into().unwrap());
    assert!(
        bytes == packet(number, bytes.len()),
        "frame {number} came damaged"
    );
    number
}

/// Frames with the numbers from `next` on, as long as there are free ones, up to 64.
fn top_up(batch: &mut VecDeque<XdpFrame>, umem: &Umem, next: &mut u32, end: u32) {
    while batch.len() < 64 && *next < end {
        let Some(frame) = umem.frame_from(&packet(*next, length(*next))) else {
            break;
        };
        batch.push_back(frame);
        *next += 1;
    }
}

/// Receives until `wanted` frames are there.
fn collect(backend: &mut XdpBackend, wanted: usize) -> Vec<XdpFrame> {
    let patience = Instant::now() + PATIENCE;
    let mut arrived = Vec::new();
    while arrived.len() < wanted {
        if let Err(error) = backend.receive(&mut arrived, wanted) {
            panic!("{} of {wanted} came: {error}", arrived.len());
        }
        assert!(
            Instant::now() < patience,
            "{} of {wanted} came",
            arrived.len()
        );
    }
    arrived
}

/// Sends all of `batch` and what is in the ring, until the device is done with it.
fn send(backend: &mut XdpBackend, batch: &mut VecDeque<XdpFrame>) {
    let patience = Instant::now() + PATIENCE;
    while !batch.is_empty() || backend.in_flight().unwrap() > 0 {
        backend.transmit(batch).unwrap();
        assert!(Instant::now() < patience, "{} are left", batch.len());
    }
}

/// Frames in the backends' own hands, of each with rings of this size, when nothing is on its way.
fn at_rest(backends: u32, options: &XdpOptions) -> u32 {
    backends * options.rx_ring
}

#[test]
fn every_frame_comes_out_once_intact_and_in_order_in_both_directions() {
    const FRAMES: u32 = 100_000;
    for mode in MODES {
        let Some(mut lab) = lab("every frame, over a cable", &options(mode)) else {
            return;
        };
        assert_eq!(lab.near.mode(), mode);
        let mut batches = [VecDeque::new(), VecDeque::new()];
        let mut sent = [0, 0];
        let mut came = [0, 0];
        let mut arrived = Vec::new();
        let patience = Instant::now() + 3 * PATIENCE;
        while came != [FRAMES; 2] {
            for (side, backend) in [&mut lab.near, &mut lab.far].into_iter().enumerate() {
                top_up(&mut batches[side], &lab.umem, &mut sent[side], FRAMES);
                backend.transmit(&mut batches[side]).unwrap();
                backend.receive(&mut arrived, 64).unwrap();
                for frame in arrived.drain(..) {
                    assert_eq!(number(frame.bytes()), came[side], "{mode}, side {side}");
                    assert_eq!(frame.len(), length(came[side]));
                    came[side] += 1;
                }
            }
            assert!(Instant::now() < patience, "{mode}: {came:?} came");
        }
        for backend in [&lab.near, &lab.far] {
            assert_eq!(backend.refused(), 0);
            assert_eq!(backend.dropped().unwrap(), 0);
        }
    }
}

#[test]
fn a_forwarder_with_one_memory_passes_every_frame_on() {
    const FRAMES: u32 = 100_000;
    for mode in MODES {
        let name = "a forwarder over two cables";
        let Some((source, left)) = or_skip(name, cable(1_500)) else {
            return;
        };
        let Some((right, sink)) = or_skip(name, cable(1_500)) else {
            return;
        };
        let options = options(mode);
        let ends = Umem::new(4_096, 2_048).unwrap();
        let mut source = bind(&ends, &source, &options).unwrap();
        let mut sink = bind(&ends, &sink, &options).unwrap();
        let umem = Umem::new(4_096, 2_048).unwrap();
        let mut left = bind(&umem, &left, &options).unwrap();
        let mut right = bind(&umem, &right, &options).unwrap();

        let (mut next, mut passed, mut came) = (0, 0, 0);
        let (mut batch, mut passing) = (VecDeque::new(), VecDeque::new());
        let (mut arrived, mut delivered) = (Vec::new(), Vec::new());
        let patience = Instant::now() + 3 * PATIENCE;
        while came < FRAMES {
            top_up(&mut batch, &ends, &mut next, FRAMES);
            source.transmit(&mut batch).unwrap();
            left.receive(&mut arrived, 64).unwrap();
            passed += arrived.len();
            passing.extend(arrived.drain(..));
            right.transmit(&mut passing).unwrap();
            sink.receive(&mut delivered, 64).unwrap();
            for frame in delivered.drain(..) {
                assert_eq!(number(frame.bytes()), came, "{mode}");
                came += 1;
            }
            assert!(Instant::now() < patience, "{mode}: {came} came");
        }
        assert_eq!(passed, FRAMES as usize);
        // The last completions may be on their way.
        let rest = umem.frames() - at_rest(2, &options);
        while umem.free_frames() < rest {
            right.transmit(&mut passing).unwrap();
            left.receive(&mut arrived, 64).unwrap();
            assert!(Instant::now() < patience, "{mode}: {umem:?}");
        }
    }
}

#[test]
fn no_frame_of_the_memory_is_lost_over_a_million() {
    const FRAMES: u32 = 1_000_000;
    let options = XdpOptions {
        rx_ring: 256,
        tx_ring: 128,
        ..XdpOptions::default()
    };
    let Some(Lab {
        umem,
        mut near,
        mut far,
        ..
    }) = lab("a million frames", &options)
    else {
        return;
    };
    let bytes = packet(7, 60);
    let (mut batch, mut arrived) = (VecDeque::new(), Vec::new());
    let (mut sent, mut came) = (0, 0);
    let patience = Instant::now() + 6 * PATIENCE;
    while came < FRAMES {
        while batch.len() < 64 && sent + (batch.len() as u32) < FRAMES {
            batch.push_back(umem.frame_from(&bytes).expect("frames come back"));
        }
        sent += near.transmit(&mut batch).unwrap() as u32;
        came += far.receive(&mut arrived, 256).unwrap() as u32;
        arrived.clear();
        assert!(Instant::now() < patience, "{came} came");
    }
    let rest = umem.frames() - at_rest(2, &options);
    while umem.free_frames() < rest {
        near.transmit(&mut batch).unwrap();
        far.receive(&mut arrived, 64).unwrap();
        assert!(Instant::now() < patience, "{umem:?}");
    }
    drop(near);
    drop(far);
    assert_eq!(umem.free_frames(), umem.frames());
}

#[test]
fn what_is_in_flight_stays_within_the_budget() {
    for mode in MODES {
        let options = XdpOptions {
            budget: Budget::from_bytes(4_000),
            ..options(mode)
        };
        let Some(mut lab) = lab("a budget", &options) else {
            return;
        };
        // While the link is down nothing leaves, so that what was taken stays in flight.
        lab.near_link.down().unwrap();
        let mut next = 0;
        let mut batch = VecDeque::new();
        top_up(&mut batch, &lab.umem, &mut next, 64);
        let bytes: Vec<_> = batch.iter().map(XdpFrame::len).collect();
        let taken = lab.near.transmit(&mut batch).unwrap();
        let in_flight = bytes[..taken].iter().sum::<usize>() as u64;
        assert_eq!(lab.near.in_flight().unwrap(), in_flight);
        assert!(in_flight <= 4_000 && in_flight + bytes[taken] as u64 > 4_000);
        assert_eq!(lab.near.transmit(&mut batch).unwrap(), 0, "full");
        lab.near_link.up().unwrap();

        let (mut came, mut arrived) = (0, Vec::new());
        let patience = Instant::now() + PATIENCE;
        while came < 10_000 {
            top_up(&mut batch, &lab.umem, &mut next, 10_000);
            lab.near.transmit(&mut batch).unwrap();
            assert!(lab.near.in_flight().unwrap() <= 4_000);
            lab.far.receive(&mut arrived, 64).unwrap();
            for frame in arrived.drain(..) {
                assert_eq!(number(frame.bytes()), came);
                came += 1;
            }
            assert!(Instant::now() < patience, "{mode}: {came} came");
        }
        while lab.near.in_flight().unwrap() > 0 {
            assert!(Instant::now() < patience, "{mode}: not all came back");
        }
    }
}

#[test]
fn a_link_that_was_down_goes_on_where_it_was() {
    for mode in MODES {
        let Some(mut lab) = lab("a link down and up", &options(mode)) else {
            return;
        };
        let (mut next, mut came) = (0, 0);
        let mut batch = VecDeque::new();
        for round in 1..=5 {
            lab.near_link.down().unwrap();
            top_up(&mut batch, &lab.umem, &mut next, round * 64);
            for _ in 0..3 {
                lab.near.transmit(&mut batch).unwrap();
                assert_eq!(lab.near.receive(&mut Vec::new(), 1).unwrap(), 0);
                thread::sleep(Duration::from_millis(5));
            }
            lab.near_link.up().unwrap();
            send(&mut lab.near, &mut batch);
            for frame in collect(&mut lab.far, 64) {
                assert_eq!(number(frame.bytes()), came, "{mode}");
                came += 1;
            }
            // The other direction too.
            let mut back = VecDeque::from([lab.umem.frame_from(&packet(round, 99)).unwrap()]);
            send(&mut lab.far, &mut back);
            assert_eq!(number(collect(&mut lab.near, 1)[0].bytes()), round);
        }
    }
}

#[test]
fn what_a_link_has_left_in_its_ring_goes_out_when_it_is_up_though_nothing_more_is_sent() {
    let Some(mut lab) = lab("a ring left full", &XdpOptions::default()) else {
        return;
    };
    lab.near_link.down().unwrap();
    let mut batch = VecDeque::new();
    top_up(&mut batch, &lab.umem, &mut 0, 10);
    assert_eq!(lab.near.transmit(&mut batch).unwrap(), 10);
    lab.near_link.up().unwrap();
    let (mut arrived, patience) = (Vec::new(), Instant::now() + PATIENCE);
    while arrived.len() < 10 {
        lab.near.receive(&mut Vec::new(), 1).unwrap();
        lab.far.receive(&mut arrived, 10).unwrap();
        assert!(Instant::now() < patience, "{} came", arrived.len());
    }
}

#[test]
fn a_cable_without_its_other_end_up_loses_one_frame_and_keeps_the_rest() {
    for mode in MODES {
        let Some(mut lab) = lab("no carrier", &options(mode)) else {
            return;
        };
        lab.far_link.down().unwrap();
        let mut batch = VecDeque::new();
        top_up(&mut batch, &lab.umem, &mut 0, 64);
        for _ in 0..10 {
            lab.near.transmit(&mut batch).unwrap();
            thread::sleep(Duration::from_millis(2));
        }
        lab.far_link.up().unwrap();
        send(&mut lab.near, &mut batch);
        let came: Vec<_> = collect(&mut lab.far, 63)
            .iter()
            .map(|frame| number(frame.bytes()))
            .collect();
        assert!(came.is_sorted() && came[62] == 63, "{mode}: {came:?}");
    }
}

#[test]
fn an_interface_removed_while_it_runs_is_a_clear_error_and_the_others_go_on() {
    for mode in MODES {
        let Some(mut lab) = lab("an interface removed", &options(mode)) else {
            return;
        };
        let Some((third, fourth)) = or_skip("others", cable(1_500)) else {
            return;
        };
        let mut third = bind(&lab.umem, &third, &options(mode)).unwrap();
        let mut fourth = bind(&lab.umem, &fourth, &options(mode)).unwrap();

        let mut batch = VecDeque::new();
        top_up(&mut batch, &lab.umem, &mut 0, 40);
        send(&mut lab.near, &mut batch);
        lab.near_link.delete().unwrap();

        // What had arrived is still there, and then the error, for sender and receiver.
        assert_eq!(collect(&mut lab.far, 40).len(), 40);
        top_up(&mut batch, &lab.umem, &mut 0, 10);
        let patience = Instant::now() + PATIENCE;
        let mut accepted = 0;
        let error = loop {
            match lab.near.transmit(&mut batch) {
                Ok(count) => accepted += count,
                Err(error) => break error,
            }
            assert!(Instant::now() < patience);
        };
        assert_eq!(error.kind(), ErrorKind::NetworkDown);
        assert!(
            error.to_string().starts_with("interface near was removed"),
            "{error}"
        );
        assert_eq!(accepted + batch.len(), 10);
        let error = loop {
            match lab.far.receive(&mut Vec::new(), 1) {
                Ok(count) => assert_eq!(count, 0),
                Err(error) => break error,
            }
            assert!(Instant::now() < patience);
        };
        assert!(
            error.to_string().starts_with("interface far was removed"),
            "{error}"
        );
        assert!(lab.near.in_flight().is_err());
        assert!(lab.near.receive(&mut Vec::new(), 1).is_err());
        assert!(lab.far.transmit(&mut batch).is_err());

        let mut batch = VecDeque::new();
        top_up(&mut batch, &lab.umem, &mut 0, 64);
        send(&mut third, &mut batch);
        assert_eq!(collect(&mut fourth, 64).len(), 64);
        drop((lab.near, lab.far, third, fourth));
        assert_eq!(lab.umem.free_frames(), lab.umem.frames(), "{mode}");
    }
}

#[test]
fn a_queue_is_one_backends_at_a_time_and_free_again_when_that_is_dropped() {
    for mode in MODES {
        let Some(lab) = lab("a busy queue", &options(mode)) else {
            return;
        };
        let began = Instant::now();
        let error = bind(&lab.umem, &lab.near_link, &options(mode)).unwrap_err();
        assert!((Duration::from_secs(1)..PATIENCE).contains(&began.elapsed()));
        assert_eq!(error.kind(), ErrorKind::ResourceBusy);
        assert_eq!(
            error.to_string(),
            "queue 0 of interface near is busy: it has an AF_XDP socket already; stop the program \
             that uses it, or take another queue"
        );
        // Two programs, one in the driver and one behind it, exclude each other.
        let other = if mode == XdpMode::Native {
            XdpMode::Generic
        } else {
            XdpMode::Native
        };
        let error = bind(&lab.umem, &lab.near_link, &options(other)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ResourceBusy);
        let sentence = error.to_string();
        assert!(
            sentence.starts_with("interface near is busy: it has an XDP program"),
            "{error}"
        );

        drop(lab.near);
        let mut near = bind(&lab.umem, &lab.near_link, &options(other)).unwrap();
        let mut batch = VecDeque::from([lab.umem.frame_from(&packet(3, 60)).unwrap()]);
        let mut far = lab.far;
        send(&mut far, &mut batch);
        assert_eq!(number(collect(&mut near, 1)[0].bytes()), 3);
    }
}

#[test]
fn left_open_the_mode_is_the_best_that_the_interface_offers() {
    let Some(lab) = lab("the best mode", &XdpOptions::default()) else {
        return;
    };
    assert_eq!(lab.near.mode(), XdpMode::Native);
    drop(lab.near);
    let error = bind(&lab.umem, &lab.near_link, &options(XdpMode::ZeroCopy)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let sentence = error.to_string();
    assert!(
        sentence.starts_with("interface near does not offer the mode"),
        "{sentence}"
    );

    // The driver of virtual cables wants a packet to fit a page, with room before and behind it.
    let Some((long, _other)) = or_skip("a long MTU", cable(3_800)) else {
        return;
    };
    let umem = Umem::new(2_048, 4_096).unwrap();
    let backend = bind(&umem, &long, &XdpOptions::default()).unwrap();
    assert_eq!(backend.mode(), XdpMode::Generic);
}

#[test]
fn frames_outlive_the_backend_and_the_memorys_last_handle() {
    let Some(mut lab) = lab("frames that outlive", &XdpOptions::default()) else {
        return;
    };
    let mut batch = VecDeque::new();
    top_up(&mut batch, &lab.umem, &mut 0, 32);
    send(&mut lab.near, &mut batch);
    let mut frames = collect(&mut lab.far, 32);
    frames.push(lab.umem.frame_from(&packet(32, 100)).unwrap());

    let Lab {
        umem, near, far, ..
    } = lab;
    drop(far);
    assert_eq!(
        umem.free_frames(),
        umem.frames() - 33 - XdpOptions::default().rx_ring
    );
    drop(umem);
    drop(near);
    for (expected, frame) in (0..).zip(&frames) {
        assert_eq!(number(frame.bytes()), expected);
    }
    // And may end on another thread.
    thread::spawn(move || drop(frames)).join().unwrap();
}

#[test]
fn a_backend_dropped_with_a_full_ring_gives_every_frame_back() {
    for mode in MODES {
        let Some(mut lab) = lab("dropped with a full ring", &options(mode)) else {
            return;
        };
        lab.near_link.down().unwrap();
        let mut batch = VecDeque::new();
        top_up(&mut batch, &lab.umem, &mut 0, 64);
        assert!(lab.near.transmit(&mut batch).unwrap() > 0);
        drop(batch);
        drop(lab.near);
        drop(lab.far);
        assert_eq!(lab.umem.free_frames(), lab.umem.frames(), "{mode}");
    }
}

#[test]
fn a_backend_dropped_in_the_middle_of_traffic_leaves_the_others_frames_alone() {
    let Some(mut lab) = lab("dropped in traffic", &XdpOptions::default()) else {
        return;
    };
    let (mut next, mut batch, mut arrived) = (0, VecDeque::new(), Vec::new());
    for _ in 0..5 {
        let stop = Instant::now() + Duration::from_millis(30);
        while Instant::now() < stop {
            top_up(&mut batch, &lab.umem, &mut next, u32::MAX);
            lab.near.transmit(&mut batch).unwrap();
            lab.far.receive(&mut arrived, 64).unwrap();
            for frame in arrived.drain(..) {
                number(frame.bytes());
            }
        }
        // Frames on their way to it are lost, and free.
        lab.near.transmit(&mut batch).unwrap();
        drop(lab.far);
        lab.far = bind(&lab.umem, &lab.far_link, &XdpOptions::default()).unwrap();
    }
    drop(batch);
    drop((lab.near, lab.far));
    assert_eq!(lab.umem.free_frames(), lab.umem.frames());
}

/// Ends the other threads with this one, panic or not.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn the_kernel_no_longer_touches_what_a_dropped_backend_gave_back() {
    const PATTERN: [u8; 1_792] = [0xee; 1_792];
    for mode in MODES {
        let options = options(mode);
        let Some((near, far)) = or_skip("frames given back", cable(1_500)) else {
            return;
        };
        let ends = Umem::new(2_048, 2_048).unwrap();
        let mut near = bind(&ends, &near, &options).unwrap();
        let umem = Umem::new(2_048, 2_048).unwrap();
        let (sent, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                let _end = Ending(&stop);
                let (mut next, mut batch) = (0, VecDeque::new());
                while !stop.load(Ordering::Relaxed) {
                    top_up(&mut batch, &ends, &mut next, u32::MAX);
                    let count = near.transmit(&mut batch).unwrap();
                    sent.fetch_add(count, Ordering::Relaxed);
                }
            });
            // Takes what is free as soon as it is, and would see a packet arrive in it.
            scope.spawn(|| {
                let _end = Ending(&stop);
                while !stop.load(Ordering::Relaxed) {
                    let frames: Vec<_> =
                        (0..512).map_while(|_| umem.frame_from(&PATTERN)).collect();
                    thread::sleep(Duration::from_millis(1));
                    let untouched = frames.iter().all(|frame| frame.bytes() == PATTERN);
                    assert!(
                        untouched,
                        "{mode}: a packet arrived in a frame that was free"
                    );
                }
            });
            let _end = Ending(&stop);
            let mut arrived = Vec::new();
            for _ in 0..10 {
                let mut far = bind(&umem, &far, &options).unwrap();
                // Another descriptor keeps the socket open.
                let duplicate = far.as_fd().try_clone_to_owned().unwrap();
                let patience = Instant::now() + PATIENCE;
                let mut came = 0;
                while came < 200 {
                    came += far.receive(&mut arrived, 64).unwrap();
                    for frame in arrived.drain(..) {
                        number(frame.bytes());
                    }
                    assert!(Instant::now() < patience);
                }
                drop(far);
                let enough = sent.load(Ordering::Relaxed) + 1_000;
                while sent.load(Ordering::Relaxed) < enough {
                    thread::yield_now();
                    assert!(Instant::now() < patience);
                }
                drop(duplicate);
            }
        });
        assert_eq!(umem.free_frames(), umem.frames(), "{mode}");
    }
}

#[test]
fn a_frame_that_the_device_would_not_take_is_refused_and_the_rest_goes_on() {
    for mode in MODES {
        let Some(mut lab) = lab("refused frames", &options(mode)) else {
            return;
        };
        let tagged = |length| {
            let mut bytes = packet(0, length);
            bytes[12..14].copy_from_slice(&[0x81, 0x00]);
            bytes
        };
        let mut batch: VecDeque<_> = [
            packet(0, 1_515),
            packet(1, 1_514),
            tagged(1_519),
            tagged(1_518),
            vec![0; 13],
            packet(2, 20),
        ]
        .iter()
        .map(|bytes| lab.umem.frame_from(bytes).unwrap())
        .collect();
        assert_eq!(lab.near.transmit(&mut batch).unwrap(), 3);
        assert_eq!((batch.len(), lab.near.refused()), (0, 3));
        let came = collect(&mut lab.far, 3);
        let lengths: Vec<_> = came.iter().map(XdpFrame::len).collect();
        assert_eq!(lengths, [1_514, 1_518, 20]);
    }
}

#[test]
fn a_frame_of_another_memory_is_sent_as_a_copy() {
    let Some(mut lab) = lab("another memory", &XdpOptions::default()) else {
        return;
    };
    let other = Umem::new(8, 4_096).unwrap();
    let mut batch: VecDeque<_> = (0..8)
        .map(|number| other.frame_from(&packet(number, 300)).unwrap())
        .collect();
    assert!(other.frame_from(&[0; 60]).is_none(), "all are taken");
    assert_eq!(lab.near.transmit(&mut batch).unwrap(), 8);
    assert_eq!(other.free_frames(), 8);
    for (expected, frame) in (0..).zip(collect(&mut lab.far, 8)) {
        assert_eq!(number(frame.bytes()), expected);
    }
}

#[test]
fn what_arrives_while_no_frame_is_free_is_counted_and_reception_goes_on() {
    let name = "no free frame";
    let Some((near, far)) = or_skip(name, cable(1_500)) else {
        return;
    };
    let options = XdpOptions {
        rx_ring: 64,
        ..XdpOptions::default()
    };
    let plenty = Umem::new(1_024, 2_048).unwrap();
    let scarce = Umem::new(64, 2_048).unwrap();
    let mut near = bind(&plenty, &near, &options).unwrap();
    let mut far = bind(&scarce, &far, &options).unwrap();
    let mut batch = VecDeque::new();
    top_up(&mut batch, &plenty, &mut 0, 64);
    send(&mut near, &mut batch);
    let held = collect(&mut far, 64);
    top_up(&mut batch, &plenty, &mut 0, 10);
    send(&mut near, &mut batch);
    let patience = Instant::now() + PATIENCE;
    while far.dropped().unwrap() < 10 {
        assert_eq!(far.receive(&mut Vec::new(), 1).unwrap(), 0);
        assert!(Instant::now() < patience);
    }
    drop(held);
    far.receive(&mut Vec::new(), 1).unwrap();
    top_up(&mut batch, &plenty, &mut 0, 64);
    send(&mut near, &mut batch);
    assert_eq!(collect(&mut far, 64).len(), 64);
    assert_eq!(far.dropped().unwrap(), 10);
}

#[test]
fn a_backend_keeps_no_more_frames_to_receive_into_than_its_ring_has_places() {
    let options = XdpOptions {
        rx_ring: 64,
        ..XdpOptions::default()
    };
    let Some(mut lab) = lab("frames kept", &options) else {
        return;
    };
    let mut batch = VecDeque::new();
    top_up(&mut batch, &lab.umem, &mut 0, 64);
    send(&mut lab.near, &mut batch);
    let held = collect(&mut lab.far, 32);
    let kept = lab.umem.frames() - lab.umem.free_frames() - held.len() as u32;
    assert_eq!(kept, at_rest(2, &options));
}

#[test]
fn a_call_goes_on_while_the_device_takes_more_though_its_ring_is_short() {
    let options = XdpOptions {
        tx_ring: 64,
        ..XdpOptions::default()
    };
    let Some(mut lab) = lab("a short ring", &options) else {
        return;
    };
    let patience = Instant::now() + PATIENCE;
    let mut most = 0;
    // The other end may be slow to take them, if it gets no processor.
    while most <= 64 {
        let frame = || lab.umem.frame_from(&packet(0, 60));
        let mut batch: VecDeque<_> = (0..512).map_while(|_| frame()).collect();
        most = most.max(lab.near.transmit(&mut batch).unwrap());
        lab.far.receive(&mut Vec::new(), 1_024).unwrap();
        assert!(Instant::now() < patience, "{most} were taken at once");
    }
}

#[test]
fn a_waiter_sleeps_until_a_frame_arrives() {
    let Some(mut lab) = lab("waiting", &XdpOptions::default()) else {
        return;
    };
    let mut waiter = Waiter::new();
    let mut wait = |far: &XdpBackend, milliseconds| {
        let ready = waiter.wait_readable(&[far], Duration::from_millis(milliseconds));
        ready.unwrap().len()
    };
    assert_eq!(wait(&lab.far, 10), 0);
    let sender = thread::spawn(move || {
        thread::sleep(Duration::from_millis(20));
        let mut batch = VecDeque::from([lab.umem.frame_from(&packet(1, 60)).unwrap()]);
        assert_eq!(lab.near.transmit(&mut batch).unwrap(), 1);
        lab.near
    });
    assert_eq!(wait(&lab.far, 60_000), 1);
    assert_eq!(collect(&mut lab.far, 1).len(), 1);
    drop(sender.join().unwrap());
}

#[test]
fn what_cannot_be_bound_is_said_in_a_sentence() {
    let Some((near, _far)) = or_skip("errors", cable(1_500)) else {
        return;
    };
    let umem = Umem::new(512, 2_048).unwrap();
    let refusal = |interface: &str, queue, options: &XdpOptions| {
        let bound = near
            .namespace()
            .run(|| XdpBackend::bind(&umem, interface, queue, options));
        let error = bound.unwrap_err();
        (error.kind(), error.to_string())
    };
    let usual = XdpOptions::default();
    for (interface, queue, options, kind, start) in [
        (
            "near9",
            0,
            usual.clone(),
            ErrorKind::NotFound,
            "there is no interface near9 in",
        ),
        (
            "",
            0,
            usual.clone(),
            ErrorKind::NotFound,
            "there is no interface  in",
        ),
        (
            "a-name-of-16-by.",
            0,
            usual.clone(),
            ErrorKind::NotFound,
            "there is no interface a-",
        ),
        (
            "near",
            1,
            usual.clone(),
            ErrorKind::InvalidInput,
            "interface near has no queue 1: ",
        ),
        (
            "near",
            256,
            usual.clone(),
            ErrorKind::InvalidInput,
            "interface near has no queue 256: ",
        ),
        (
            "lo",
            0,
            usual.clone(),
            ErrorKind::InvalidInput,
            "interface lo has an MTU of 65536, and frames of 2048 bytes serve one of up to 1774: ",
        ),
        (
            "near",
            0,
            XdpOptions {
                rx_ring: 32,
                ..usual.clone()
            },
            ErrorKind::InvalidInput,
            "a receive ring of 32 places is not possible: ",
        ),
        (
            "near",
            0,
            XdpOptions {
                tx_ring: 65_536,
                ..usual.clone()
            },
            ErrorKind::InvalidInput,
            "a transmit ring of 65536 places is not possible: ",
        ),
        (
            "near",
            0,
            XdpOptions {
                rx_ring: 96,
                ..usual.clone()
            },
            ErrorKind::InvalidInput,
            "a receive ring of 96 places is not possible: ",
        ),
        (
            "near",
            0,
            XdpOptions {
                budget: Budget::from_bytes(1_517),
                ..usual.clone()
            },
            ErrorKind::InvalidInput,
            "a transmit budget of 1517 bytes is less than ",
        ),
    ] {
        let (found, sentence) = refusal(interface, queue, &options);
        assert!(sentence.starts_with(start), "{sentence}");
        assert_eq!(found, kind, "{sentence}");
    }
    let least = XdpOptions {
        rx_ring: 64,
        tx_ring: 64,
        budget: Budget::from_bytes(1_518),
        mode: None,
    };
    bind(&umem, &near, &least).unwrap();
    assert_eq!(
        umem.free_frames(),
        umem.frames(),
        "a refused backend leaves nothing behind"
    );
}

#[test]
fn memory_comes_in_frames_of_two_sizes_and_in_no_more_than_four_gigabytes() {
    for (frames, size) in [
        (0, 2_048),
        (1_048_577, 2_048),
        (1, 1_024),
        (1, 8_192),
        (1, 3_000),
    ] {
        let error = Umem::new(frames, size).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{frames} of {size}");
    }
    let umem = Umem::new(1, 4_096).unwrap();
    assert!(umem.frame_from(&[1; 4_097]).is_none());
    let mut frame = umem.frame_from(&[1; 4_096]).unwrap();
    assert!(umem.frame_from(&[]).is_none(), "there is one");
    frame.bytes_mut()[0] = 2;
    frame.truncate(5_000);
    assert_eq!(frame.len(), 4_096);
    frame.truncate(3);
    assert_eq!(frame.bytes(), [2, 1, 1]);
    drop(frame);
    assert!(umem.frame_from(&[]).is_some());
}

#[test]
fn without_privilege_the_error_says_which_is_needed() {
    let Some((near, _far)) = or_skip("no privilege", cable(1_500)) else {
        return;
    };
    let umem = Umem::new(512, 2_048).unwrap();
    let error = near.namespace().run(|| {
        // This thread's, and no other's.
        caps::clear(None, caps::CapSet::Effective).unwrap();
        XdpBackend::bind(&umem, near.name(), 0, &XdpOptions::default()).unwrap_err()
    });
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    let sentence = error.to_string();
    assert!(
        sentence.starts_with("no privilege for AF_XDP on interface near: "),
        "{sentence}"
    );
}

#[test]
fn beyond_the_limit_of_pinned_memory_the_error_says_what_to_raise() {
    let Some((near, _far)) = or_skip("pinned memory", cable(1_500)) else {
        return;
    };
    let umem = Umem::new(32_768, 2_048).unwrap();
    let error = near.namespace().run(|| {
        let limit = rustix::process::Resource::Memlock;
        let mut lower = rustix::process::getrlimit(limit);
        lower.current = Some(1 << 20);
        rustix::process::setrlimit(limit, lower).unwrap();
        caps::drop(
            None,
            caps::CapSet::Effective,
            caps::Capability::CAP_IPC_LOCK,
        )
        .unwrap();
        XdpBackend::bind(&umem, near.name(), 0, &XdpOptions::default()).unwrap_err()
    });
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    let sentence = error.to_string();
    assert!(
        sentence.starts_with("the memory for interface near cannot be pinned: "),
        "{sentence}"
    );
}
