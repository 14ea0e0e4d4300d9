//! Frames that a thread keeps for another one. No privilege is needed.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;

use fairlane_io::{OwedFrames, Umem, XdpFrame};

fn frames(umem: &Umem, count: usize) -> Vec<XdpFrame> {
    let frame = || umem.frame_from(&[1; 60]).expect("so many are free");
    (0..count).map(|_| frame()).collect()
}

/// Frames that another thread has received.
fn received(umem: &Umem, count: usize) -> Vec<XdpFrame> {
    thread::scope(|scope| scope.spawn(|| frames(umem, count)).join().unwrap())
}

/// Does something on a thread that keeps nothing yet, and nothing after it.
fn on_a_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(work).join().unwrap())
}

#[test]
fn what_a_thread_drops_is_free_at_once_but_for_what_it_owes() {
    let umem = Umem::new(64, 2_048).unwrap();
    on_a_thread(|| {
        let mut owed = OwedFrames::default();
        let (theirs, ours) = (received(&umem, 10), frames(&umem, 5));
        theirs.iter().take(4).for_each(|frame| owed.took(frame));
        drop(theirs);
        assert_eq!(umem.free_frames(), 64 - 5 - 4, "four are kept");
        drop(ours);
        assert_eq!(umem.free_frames(), 64 - 4);
        assert_eq!(
            owed.pay().take(3).count(),
            3,
            "and free where they are dropped"
        );
        assert_eq!(umem.free_frames(), 64 - 1);
        assert_eq!((owed.pay().count(), owed.pay().count()), (1, 0));
        assert_eq!(umem.free_frames(), 64);
    });
}

#[test]
fn what_a_thread_keeps_is_taken_there_first_and_is_free_when_it_ends() {
    let umem = Umem::new(16, 2_048).unwrap();
    on_a_thread(|| {
        let all = received(&umem, 16);
        all.into_iter().for_each(XdpFrame::keep);
        assert_eq!(umem.free_frames(), 0);
        on_a_thread(|| assert!(umem.frame_from(&[2; 60]).is_none(), "another's"));
        let here = frames(&umem, 16);
        assert!(umem.frame_from(&[2; 60]).is_none());
        assert!(here.iter().all(|frame| frame.bytes() == [1; 60]));
        drop(here);
        assert_eq!(umem.free_frames(), 16, "it owes nobody");
        received(&umem, 16).into_iter().for_each(XdpFrame::keep);
        assert_eq!(umem.free_frames(), 0);
    });
    assert_eq!(umem.free_frames(), 16);
}

#[test]
fn a_thread_keeps_512_and_of_one_memory() {
    let umem = Umem::new(2_048, 2_048).unwrap();
    let other = Umem::new(64, 2_048).unwrap();
    on_a_thread(|| {
        let mut owed = OwedFrames::default();
        let theirs = received(&umem, 2_000);
        theirs.iter().for_each(|frame| owed.took(frame));
        for frame in theirs {
            drop(frame);
            assert!(umem.free_frames() >= 48);
        }
        let kept = umem.frames() - umem.free_frames();
        assert!((256..=512).contains(&kept), "{kept}");
        received(&umem, 1_000).into_iter().for_each(XdpFrame::keep);
        let kept = umem.frames() - umem.free_frames();
        assert!((256..=512).contains(&kept), "{kept}");
        // Of another memory nothing is kept while there are some, unless it is owed.
        received(&other, 8).into_iter().for_each(XdpFrame::keep);
        assert_eq!(other.free_frames(), 64);
        let theirs = received(&other, 8);
        theirs.iter().for_each(|frame| owed.took(frame));
        assert_eq!(umem.free_frames(), umem.frames(), "given, all of them");
        drop(theirs);
        assert_eq!(other.free_frames(), 56);
    });
    assert_eq!(other.free_frames(), 64);
}

#[test]
fn what_is_kept_keeps_the_memory_in_being_and_no_longer_than_the_thread() {
    on_a_thread(|| {
        let umem = Umem::new(64, 2_048).unwrap();
        received(&umem, 3).into_iter().for_each(XdpFrame::keep);
        drop(umem);
        // A memory at the place of the former, perhaps.
        let next = Umem::new(64, 2_048).unwrap();
        received(&next, 3).into_iter().for_each(XdpFrame::keep);
        assert_eq!(next.free_frames(), 64, "of the first there are some");
    });
}

#[test]
fn what_a_thread_owes_of_a_memory_that_is_gone_it_does_not_owe_of_the_next() {
    on_a_thread(|| {
        for _ in 0..100 {
            // Often where the former one was.
            let umem = Umem::new(8, 2_048).unwrap();
            drop(frames(&umem, 8));
            assert_eq!(umem.free_frames(), 8);
            let mut owed = OwedFrames::default();
            let theirs = received(&umem, 8);
            theirs.iter().for_each(|frame| owed.took(frame));
            on_a_thread(|| drop(theirs));
            assert_eq!(umem.free_frames(), 8);
        }
    });
}

#[test]
fn no_frame_has_two_holders_while_threads_take_keep_and_pay() {
    const FRAMES: u32 = 700;
    const WORKERS: usize = 3;
    let rounds = if cfg!(miri) { 20 } else { 20_000 };
    let umem = Umem::new(FRAMES, 2_048).unwrap();
    let held: Vec<_> = (0..FRAMES).map(|_| AtomicBool::new(false)).collect();
    // By where a frame lies.
    let places = Mutex::new(Vec::new());
    let place = |frame: &XdpFrame| frame.bytes().as_ptr() as usize / 2_048;
    thread::scope(|scope| {
        let (umem, held, places) = (&umem, &held, &places);
        let (mut workers, mut threads) = (Vec::new(), Vec::new());
        for _ in 0..WORKERS {
            let ((hand, frames), (pays, paid)) = (channel::<XdpFrame>(), channel::<XdpFrame>());
            workers.push((frames, pays, OwedFrames::default()));
            threads.push(scope.spawn(move || {
                for _ in 0..rounds {
                    paid.try_iter().for_each(XdpFrame::keep);
                    let Some(frame) = umem.frame_from(&[7; 60]) else {
                        thread::yield_now();
                        continue;
                    };
                    places.lock().unwrap().push(place(&frame));
                    if hand.send(frame).is_err() {
                        return;
                    }
                }
            }));
        }
        threads.push(scope.spawn(move || {
            let mut waiting = Vec::new();
            while !workers.is_empty() {
                workers.retain_mut(|(frames, pays, owed)| {
                    let came = loop {
                        match frames.try_recv() {
                            Ok(frame) => {
                                owed.took(&frame);
                                let at = place(&frame) % FRAMES as usize;
                                assert!(!held[at].swap(true, Ordering::Relaxed), "{at} twice");
                                waiting.push((at, frame));
                            }
                            Err(error) => break error,
                        }
                    };
                    for frame in owed.pay() {
                        let _ = pays.send(frame);
                    }
                    came != std::sync::mpsc::TryRecvError::Disconnected
                });
                for (at, frame) in waiting.drain(..) {
                    assert_eq!(frame.bytes(), [7; 60]);
                    held[at].store(false, Ordering::Relaxed);
                    drop(frame);
                }
            }
        }));
        // Until the threads have ended, with the frames that they keep.
        threads.into_iter().for_each(|it| it.join().unwrap());
    });
    assert_eq!(umem.free_frames(), FRAMES);
    let mut places = places.into_inner().unwrap();
    places.sort_unstable();
    places.dedup();
    assert!(places.len() <= FRAMES as usize, "{}", places.len());
}
