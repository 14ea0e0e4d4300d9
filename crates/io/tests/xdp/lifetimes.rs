//! Frames, backends and memory that outlive one another.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fairlane_io::{Backend, Umem, XdpMode, XdpOptions};
use fairlane_netlab::{cable, or_skip};

use crate::rig::*;

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
            // Takes frames as soon as they are free, and would see a packet arrive in one of them.
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
