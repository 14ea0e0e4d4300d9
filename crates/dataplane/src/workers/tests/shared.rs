//! Frames in memory shared with the kernel, and their return to the receiver.

use super::*;

fn in_memory(umem: &Umem) -> Endless {
    Endless {
        umem: Some(umem.clone()),
        ..Endless::new(60)
    }
}

/// Waits until all frames are free: those of ending threads are free soon.
fn all_free(umem: &Umem) {
    let begun = Instant::now();
    while umem.free_frames() < umem.frames() {
        assert!(begun.elapsed() < PATIENCE, "{umem:?}");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn frames_that_are_dropped_go_back_to_who_received_them_without_the_list_that_all_share() {
    // For each worker, one batch with the forwarding thread, and one on its way back.
    const FRAMES: u32 = 2 * 2 * BATCH as u32;
    let umem = Umem::new(FRAMES, 2_048).unwrap();
    let forward = || {
        let mut both = [(); 2].map(|()| stepping(in_memory(&umem)));
        for round in 0..100 {
            let mut frames = Vec::new();
            for (step, handle) in &mut both {
                step();
                let came = handle.take(&mut frames, BATCH).unwrap();
                assert_eq!(came, BATCH, "in round {round}");
            }
            if round > 0 {
                // The pool of free frames has not changed.
                assert_eq!(umem.free_frames(), 0, "in round {round}");
            }
            drop(frames);
            both.iter_mut()
                .for_each(|(_, handle)| handle.return_buffers());
        }
    };
    thread::scope(|scope| scope.spawn(forward).join().unwrap());
    all_free(&umem);
}

#[test]
fn what_a_worker_and_its_mailboxes_have_at_its_end_is_free() {
    let umem = Umem::new(1_024, 2_048).unwrap();
    let forward = || {
        let (mut step, mut handle) = stepping(in_memory(&umem));
        let mut frames = Vec::new();
        step();
        handle.take(&mut frames, BATCH).unwrap();
        step();
        frames.clear();
        // A batch is in one mailbox, and one in the other.
        handle.return_buffers();
        assert_eq!(umem.free_frames(), 1_024 - 2 * BATCH as u32);
    };
    thread::scope(|scope| scope.spawn(forward).join().unwrap());
    all_free(&umem);
}

#[test]
fn a_device_that_only_sends_is_looked_after_in_every_round() {
    let sender = Endless::new(60);
    let attended = Arc::clone(&sender.attended);
    let mut device = Worked::new(
        "eth0",
        vec![sender],
        vec![Endless::new(60)],
        &options(Role::Inside),
    );
    assert!(device.is_sole_receiver(), "as the one that sends says");
    device.start().unwrap();
    for round in 1..=3 {
        assert_eq!(device.receive(&mut Vec::new(), BATCH).unwrap(), 0);
        assert_eq!(attended.load(Ordering::Relaxed), round);
    }
}
