//! With a forwarding thread per link, frames are treated as with one.

use super::*;
use crate::early::Guard;
use crate::forward::second::{LENT, Second};

/// Makes a round of each lane separately, as two threads do.
pub(super) fn round_apart(rig: &mut Rig, now: Nanos) {
    let bridge = &mut rig.bridge;
    let lent = [LENT, LENT.other()].map(|side| {
        assert!(bridge.device(side).can_lend());
        bridge.device_mut(side).lend().unwrap()
    });
    assert!(!bridge.device(LENT.other()).can_lend(), "it has lent all");
    let [here, there] = lent.map(|lent| lent.entrance);
    let mut other = bridge.split_off(LENT, here, there);
    for bridge in [&mut *bridge, &mut other] {
        Rounds::of(bridge, true).step(now).unwrap();
    }
    bridge.join(LENT, other);
    for side in Side::BOTH {
        bridge.device_mut(side).reclaim();
    }
}

/// A rig whose second lane is at times run by another thread.
struct Both {
    second: Second,
    guard: Guard,
    clock: Clock,
    /// Rounds since the lane was lent.
    rounds: usize,
    /// Number of its returns.
    times: usize,
}

impl Both {
    fn start() -> Both {
        let clock = Clock::start();
        Both {
            second: Second::start(clock, clock.now()).unwrap(),
            guard: Guard::default(),
            clock,
            rounds: 0,
            times: 0,
        }
    }

    /// Makes a round; once one thread has made `most`, the lane is recalled, and `work` is done.
    fn step(&mut self, rig: &mut Rig, most: usize, work: impl FnOnce(&mut Rig, Nanos)) {
        let now = self.clock.now();
        rig.round(now);
        let stays = self.rounds > most;
        let Both { second, guard, .. } = self;
        if !second.look(&mut rig.bridge, guard, stays, now).unwrap() {
            self.rounds += 1;
        } else if stays {
            (self.rounds, self.times) = (0, self.times + 1);
            work(rig, now);
        }
    }

    fn end(mut self, rig: &mut Rig) {
        let now = self.clock.now();
        self.second
            .end(&mut rig.bridge, &mut self.guard, now)
            .unwrap();
    }
}

#[test]
fn between_two_threads_that_forward_no_frame_is_lost_doubled_or_reordered_while_filters_change() {
    let sites = [false, true].map(|more| site("100gbit", 60_000, (false, more)));
    let mut rig = Rig::new(&sites[0], Some(64));
    let mut both = Both::start();
    all_pass(&mut rig, |rig| {
        let other = &sites[(both.times + 1) % 2];
        both.step(rig, 64, |rig, now| rig.apply(other, now));
    });
    assert!(both.times > 2, "{} times home", both.times);
    both.end(&mut rig);
    all_is_counted(&mut rig);
}

/// The lane returns when the interface on this side is gone, whichever thread has the workers there.
fn lane_comes_home_from(gone: Side) {
    let mut rig = Rig::new(&site("100gbit", 60_000, (false, false)), Some(64));
    let mut both = Both::start();
    // Until the lane is lent.
    while both.rounds == 0 {
        both.step(&mut rig, usize::MAX, |_, _| {});
    }
    rig.hosts[gone as usize].send((0..1_000).map(|number| frame(1, number, 64)));
    rig.workers[gone as usize].device.is_gone = true;
    let mut running = rig.working();
    let (mut came, begun) = (Vec::new(), Instant::now());
    let Both {
        mut second,
        mut guard,
        clock,
        ..
    } = both;
    // It returns without being recalled.
    let error = loop {
        assert!(begun.elapsed() < PATIENCE, "{} came", came.len());
        let now = clock.now();
        match Rounds::of(&mut rig.bridge, true).step(now) {
            Ok(_) => second
                .look(&mut rig.bridge, &mut guard, false, now)
                .unwrap(),
            Err(error) => break error,
        };
        came.extend(rig.hosts[gone.other() as usize].heard());
    };
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    // Received frames leave nevertheless.
    while came.len() < 1_000 {
        assert!(begun.elapsed() < PATIENCE, "{} came", came.len());
        rig.bridge.send(clock.now()).unwrap();
        came.extend(rig.hosts[gone.other() as usize].heard());
    }
    assert_eq!(came.len(), 1_000);
    is_in_order(&came);
    second
        .end(&mut rig.bridge, &mut guard, clock.now())
        .unwrap();
    let ended = running.remove(gone as usize);
    ended.thread.join().unwrap();
    running.into_iter().for_each(Running::end);
}

#[test]
fn of_an_interface_that_is_gone_the_lane_comes_home_behind_its_last_frame_and_says_so_there() {
    Side::BOTH.into_iter().for_each(lane_comes_home_from);
}

#[test]
fn nothing_is_done_with_a_lane_that_has_just_come_home_before_a_round_that_begins_later_than_its_last()
 {
    let mut rig = Rig::new(&site("100gbit", 60_000, (false, false)), Some(64));
    let mut both = Both::start();
    while both.rounds == 0 {
        both.step(&mut rig, usize::MAX, |_, _| {});
    }
    let (begun, mut is_back) = (Instant::now(), false);
    loop {
        assert!(begun.elapsed() < PATIENCE);
        let Both {
            second,
            guard,
            clock,
            ..
        } = &mut both;
        let now = clock.now();
        if second.look(&mut rig.bridge, guard, true, now).unwrap() {
            break;
        }
        is_back = rig.bridge.device(LENT).can_lend();
    }
    assert!(is_back, "the lane may have been further than this round");
    both.end(&mut rig);
}
