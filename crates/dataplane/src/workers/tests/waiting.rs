//! The time that frames wait with workers: within the guarantee, and as measured.

use fairlane_runtime::bridge::MOST_TAKEN_IN;

use fairlane_config::Workers;

use super::*;

#[test]
fn what_workers_hold_is_taken_in_within_the_rounds_that_are_promised_and_not_before() {
    for count in 1..=Workers::MOST {
        // More than is taken in all that time, so all workers always have frames.
        let frames = 4 * SLOTS;
        let (mut handles, mut workers) = full(count, frames as u32, SLOTS);
        // The mailbox is then full when the last frame of a batch was handed on and another batch is received.
        let first = (17 * BATCH) - (HELD - BATCH);
        assert_eq!(
            handles.take(&mut Vec::new(), first * count).unwrap(),
            first * count
        );
        receive(&mut workers, Nanos::ZERO);
        for worker in &workers {
            assert_eq!(
                worker.handed as usize + worker.classified.len(),
                first + HELD
            );
        }
        let (mut left, mut rounds, mut taken) = (count * HELD, 1, Vec::new());
        while left > 0 {
            for _ in 0..MOST_TAKEN_IN / BATCH {
                taken.clear();
                assert_eq!(handles.take(&mut taken, BATCH).unwrap(), BATCH);
                let numbers = taken.iter();
                let numbers = numbers.map(|one| source_and_number(one.frame.bytes()).1);
                left -= numbers
                    .filter(|&number| (number as usize) < first + HELD)
                    .count();
            }
            receive(&mut workers, Nanos::ZERO);
            rounds += 1;
        }
        // Of the last batch few frames are left, which may have their turn early.
        let (least, most) = (arrival_rounds(count) - count / 9, arrival_rounds(count));
        let in_time = (least..=most).contains(&rounds);
        assert!(in_time, "{count} workers: {rounds} rounds of {most}");
    }
}

/// Returns the measured waits of frames at a site with this many workers, all of them full, after rounds that begin at
/// these times; at first without shaping if `shaped` is false.
fn measured(count: usize, times: &[u64], shaped: bool) -> Waits {
    let mut rig = Rig::new(&site("10mbit", 60_000, (false, false)), Some(SLOTS));
    let (handles, mut workers) = full(count, 4 * SLOTS as u32, SLOTS);
    let worked = Worked::new(
        "memory",
        vec![Wire::new(unused(), unused())],
        Vec::new(),
        &options(Role::Inside),
    );
    *rig.bridge.device_mut(Side::Left) = Box::new(worked.working(handles));
    rig.bridge.set_shaped(Side::Right, shaped);
    for &time in times {
        rig.round(Nanos::from_micros(time));
        rig.bridge.set_shaped(Side::Right, true);
        receive(&mut workers, Nanos::ZERO);
    }
    rig.bridge.device(Side::Left).receive_waits().unwrap()
}

#[test]
fn what_is_measured_of_frames_that_wait_is_within_what_is_promised() {
    // Rounds of 100 us, and one that takes a millisecond.
    let times: Vec<u64> = (1..=60)
        .map(|round| round * 100 + if round > 2 { 900 } else { 0 })
        .collect();
    for count in [1, 2, 3, 7, 16] {
        let waits = measured(count, &times, true);
        assert_eq!(waits.longest_round, Nanos::from_millis(1));
        assert!(
            waits.longest >= waits.longest_round && waits.beyond == 0,
            "{waits:?}"
        );
        // All of a mailbox, except the frames that have moved there from the worker's own batch meanwhile.
        let most = arrival_rounds(count);
        assert!(
            (most - count / 8 - 1..=most).contains(&waits.rounds),
            "{count} workers: {waits:?}"
        );
        assert!(
            waits.longest <= Nanos(waits.longest_round.0 * most as u64),
            "{waits:?}"
        );
    }
}

#[test]
fn waits_are_measured_from_when_the_link_is_shaped() {
    // The first round takes one batch, and no limit applies until the second begins.
    let waits = measured(1, &[1_000, 500_000, 500_100, 500_200, 500_300], false);
    assert_eq!(waits.longest_round, Nanos::from_micros(100));
    assert!(
        waits.longest <= Nanos::from_micros(200) && waits.beyond == 0,
        "{waits:?}"
    );
}

#[test]
fn frames_that_wait_for_more_rounds_than_are_promised_are_counted() {
    let (mut handles, _workers) = full(2, SLOTS as u32, SLOTS);
    let mut taken = Vec::new();
    for round in 1..=40 {
        handles.begin_round(Poll {
            now: Nanos::from_micros(round),
            has_waited: round == 2,
            takes_all: true,
        });
        // A batch, where a round takes sixteen.
        handles.take(&mut taken, BATCH).unwrap();
    }
    let waits = handles.waits();
    // They arrived before the first poll, or with it.
    assert_eq!((waits.rounds, waits.beyond), (33, 2));
    assert_eq!(
        (waits.longest, waits.longest_round),
        (Nanos::from_micros(31), Nanos::from_micros(1))
    );
    let after = Waits {
        beyond: 1,
        ..Waits::default()
    };
    let both = Waits::of_both(Some(waits), Some(after)).unwrap();
    assert_eq!((both.rounds, both.beyond), (33, 3));
    assert_eq!(Waits::of_both(None, Some(after)), Some(after));
}
