//! Several workers at one interface.

use super::*;

/// Returns devices with queued frames; each flow arrives at only one of them.
pub(super) fn fan(count: u32, frames: u32) -> Vec<Wire> {
    let device = |source| {
        let (to, arriving) = memory::pair(ROOM);
        let mut host = Host {
            to,
            from: Vec::new(),
        };
        host.send((0..frames).map(|number| frame(source, number, 64)));
        Wire::new(unused(), arriving)
    };
    (0..count).map(device).collect()
}

/// Returns workers without threads that hold all they have space for, of this many frames each.
pub(super) fn full(
    count: usize,
    frames: u32,
    slots: usize,
) -> (WorkerHandles<Wire>, Vec<Worker<Wire>>) {
    let (handles, ends) = connect(count, slots).unwrap();
    let options = options(Role::Inside);
    let with_ends = fan(count as u32, frames).into_iter().zip(ends);
    let mut workers: Vec<_> = with_ends
        .map(|(device, ends)| Worker::new(device, &options, ends))
        .collect();
    receive(&mut workers, Nanos::ZERO);
    (handles, workers)
}

/// Receives with threadless workers until they are full.
pub(super) fn receive(workers: &mut [Worker<Wire>], now: Nanos) {
    for worker in workers {
        while worker.step(now).unwrap().moved() > 0 {}
    }
}

/// Asserts that all numbers below `frames` of each flow have arrived, in order.
pub(super) fn assert_whole(came: impl IntoIterator<Item = (u32, u32)>, flows: u32, frames: u32) {
    let mut next = vec![0; flows as usize];
    for (source, number) in came {
        assert_eq!(number, next[source as usize], "of {source}");
        next[source as usize] += 1;
    }
    assert_eq!(next, vec![frames; flows as usize]);
}

#[test]
fn several_workers_lose_double_and_reorder_no_frame_of_a_flow() {
    const FRAMES: u32 = 10_000;
    for count in [2, 3, 5] {
        let mut handles = working(fan(count, FRAMES), 64);
        let (mut came, begun) = (Vec::new(), Instant::now());
        while came.len() < (count * FRAMES) as usize {
            assert!(begun.elapsed() < PATIENCE);
            let mut frames = Vec::new();
            handles.take(&mut frames, BATCH).unwrap();
            came.extend(
                frames
                    .iter()
                    .map(|one| source_and_number(one.frame.bytes())),
            );
            drop(frames);
            handles.return_buffers();
        }
        assert_whole(came, count, FRAMES);
    }
}

#[test]
fn no_worker_has_more_than_its_share_while_all_have_frames_and_all_have_what_one_leaves() {
    let (mut handles, _workers) = full(3, 256, 256);
    let mut taken = |most| {
        let mut frames = Vec::new();
        handles.take(&mut frames, most).unwrap();
        let mut of_each = [0_u32; 3];
        for frame in &frames {
            of_each[source_and_number(frame.frame.bytes()).0 as usize] += 1;
        }
        of_each
    };
    // The first worker polled changes, and has one frame more.
    assert_eq!(
        [(); 3].map(|()| taken(7)),
        [[3, 3, 1], [1, 3, 3], [3, 1, 3]]
    );
    assert_eq!(taken(usize::MAX), [249; 3], "all that is left");
    assert_eq!(taken(8), [0; 3]);
}

#[test]
fn each_of_several_workers_gets_memory_back_and_no_more_than_its_own() {
    const ROUNDS: usize = 100;
    let (mut steps, mut each): (Vec<_>, Vec<_>) = [1_500, 1_500, 60]
        .map(endless)
        .into_iter()
        .map(|(step, mut handles)| (step, handles.each.pop().unwrap()))
        .unzip();
    let (mut handles, _ends) = connect::<Endless>(0, 2).unwrap();
    handles.each.append(&mut each);
    let mut places = [0; 3];
    for _ in 0..ROUNDS {
        let mut frames = Vec::new();
        for (step, places) in steps.iter_mut().zip(&mut places) {
            *places = step();
        }
        assert_eq!(handles.take(&mut frames, 3 * BATCH).unwrap(), 3 * BATCH);
        drop(frames);
        handles.return_buffers();
    }
    let few = places.iter().all(|&places| places <= ROUNDS * BATCH / 10);
    assert!(few, "{places:?} for {} frames each", ROUNDS * BATCH);
}

#[test]
fn where_one_of_several_workers_ends_all_that_was_handed_on_is_taken_before_the_reason_is_told() {
    let mut devices = fan(3, 100);
    devices.iter_mut().for_each(|device| device.is_gone = true);
    let mut handles = working(devices, 16);
    let (mut came, begun) = (Vec::new(), Instant::now());
    let error = loop {
        assert!(begun.elapsed() < PATIENCE);
        if let Err(error) = handles.take(&mut came, 7) {
            break error;
        }
    };
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    assert!(handles.each.iter().all(WorkerHandle::has_ended));
    assert!(!handles.arm_wakeup(), "there is nothing to wait for");

    // The workers that could continue end too.
    let mut devices = fan(3, 0);
    devices[1].is_gone = true;
    let mut handles = working(devices, 16);
    while handles.take(&mut came, 7).is_ok() {
        assert!(begun.elapsed() < PATIENCE);
    }
    assert!(handles.each.iter().all(WorkerHandle::has_ended));
}

#[test]
fn where_a_worker_cannot_start_the_sentence_says_so_and_no_device_is_lost() {
    let sender = Wire::new(unused(), unused());
    let no_room = WorkerOptions {
        stack: usize::MAX / 4,
        ..options(Role::Inside)
    };
    let mut worked = Worked::new("lan0", vec![sender], fan(2, 1), &no_room);
    let sentence = worked.start().unwrap_err().to_string();
    assert!(
        sentence.starts_with("cannot start a receive worker at lan0: "),
        "{sentence}"
    );
    let mut frames = Vec::new();
    for _ in 0..2 {
        assert_eq!(worked.receive(&mut frames, BATCH).unwrap(), 1);
    }
    assert_eq!(worked.backend(), "memory, 2 workers");
}

#[test]
fn where_several_workers_end_for_good_each_frame_was_taken_or_is_counted() {
    const FRAMES: usize = 300;
    let sender = Wire::new(unused(), unused());
    let devices = fan(3, FRAMES as u32);
    let mut worked = Worked::new("memory", vec![sender], devices, &options(Role::Inside));
    worked.start().unwrap();
    let (mut came, begun) = (Vec::new(), Instant::now());
    while came.len() < FRAMES {
        assert!(begun.elapsed() < PATIENCE);
        worked.take_classified(&mut came, 50).unwrap();
    }
    assert_eq!(came.len() as u64 + worked.end(), 3 * FRAMES as u64);
    assert_eq!(worked.end(), 0, "there is nothing left");
}

#[test]
fn what_workers_have_told_that_was_lost_is_known_when_one_of_them_has_panicked() {
    let device = || Endless::new(60);
    let mut handles = working(vec![device(), device()], 8);
    // As when a worker has panicked: it leaves nothing.
    let thread = thread::spawn(|| None);
    let worker = handles.each[1].thread.thread.replace(thread).unwrap();
    let sender = Endless::new(60);
    let mut worked = Worked::new("memory", vec![sender], Vec::new(), &options(Role::Inside));
    worked = worked.working(handles);
    let losses = |worked: &mut Worked<_>| {
        let Losses { lost, uncut, .. } = worked.losses().unwrap();
        (lost, uncut)
    };
    assert_eq!(losses(&mut worked), (14, 6));
    worked.end();
    assert!(worker.join().is_ok());
    assert!(worked.receive(&mut Vec::new(), BATCH).is_err());
    assert_eq!(losses(&mut worked), (14, 6));
}
