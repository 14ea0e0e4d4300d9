//! Strict priority against its own definition: a queue of turns for each level.

use std::collections::{BTreeMap, VecDeque};

use crate::support::{Backlogged, Offer, Random, check, config, length, next, scheduler, weight};
use fairlane_core::FlowId;
use fairlane_core::sched::Priority;
use fairlane_core::scheduler::{EntityId, Scheduler, Share};

/// The coming turns, by level.
#[derive(Default)]
struct Turns {
    turns: BTreeMap<u32, VecDeque<usize>>,
    /// The level that a flow's next place is in.
    level: Vec<u32>,
    queued: Vec<u32>,
    placed: Vec<bool>,
}

impl Turns {
    fn place(&mut self, flow: usize) {
        let turns = self.turns.entry(self.level[flow]).or_default();
        turns.push_back(flow);
        self.placed[flow] = true;
    }

    fn enqueue(&mut self, flow: usize) {
        self.queued[flow] += 1;
        if !self.placed[flow] {
            self.place(flow);
        }
    }

    fn serve(&mut self) -> usize {
        loop {
            let mut highest = self.turns.last_entry().unwrap();
            let flow = highest.get_mut().pop_front().unwrap();
            if highest.get().is_empty() {
                highest.remove();
            }
            self.placed[flow] = false;
            if self.queued[flow] > 0 {
                self.queued[flow] -= 1;
                if self.queued[flow] > 0 {
                    self.place(flow);
                }
                return flow;
            }
        }
    }
}

/// From few levels with many flows to more levels than fit a word of bits; flows come, go,
/// are emptied and change their level, with packets waiting or without.
#[test]
fn every_packet_is_of_the_highest_level_and_of_the_one_whose_turn_it_is() {
    for (levels, flows) in [(1, 10), (3, 20), (64, 100), (200, 150), (1_000_000, 100)] {
        let mut random = Random(levels.into());
        let mut link = scheduler(Priority::new());
        let mut turns = Turns::default();
        for _ in 0..flows {
            let level = 1 + random.below(levels);
            link.add_flow(config(level, 1500)).unwrap();
            turns.level.push(level);
            turns.queued.push(0);
            turns.placed.push(false);
        }
        for n in 0..20_000 {
            let flow = random.below(flows) as usize;
            let id = FlowId::new(flow as u32);
            match random.below(20) {
                0 => {
                    let level = 1 + random.below(levels);
                    link.change_flow(id, config(level, 1500)).unwrap();
                    turns.level[flow] = level;
                    assert_eq!(link.weight(id), Some(weight(level)));
                }
                1 => {
                    link.flush_flow(id, |_| {}).unwrap();
                    turns.queued[flow] = 0;
                }
                2..11 => {
                    for _ in 0..1 + random.below(2) {
                        link.enqueue(id, length(1 + random.below(1500)), ())
                            .unwrap();
                        turns.enqueue(flow);
                    }
                }
                _ if link.is_empty() => {}
                _ => assert_eq!(next(&mut link).owner.number() as usize, turns.serve()),
            }
            if n % 50 == 0 {
                check(&link);
            }
        }
    }
}

#[test]
fn a_lower_level_is_served_only_while_no_higher_one_waits() {
    let mut link = scheduler(Priority::new());
    let flows = [7, 1_000_000, 1, 8].map(|level| link.add_flow(config(level, 1500)).unwrap());
    let [third, highest, lowest, second] = flows;
    for _ in 0..3 {
        for flow in flows {
            link.enqueue(flow, length(1500), ()).unwrap();
        }
    }
    assert_eq!(next(&mut link).owner, highest);
    assert_eq!(next(&mut link).owner, highest);
    assert_eq!(next(&mut link).owner, highest);
    assert_eq!(next(&mut link).owner, second);
    link.enqueue(highest, length(1), ()).unwrap();
    assert_eq!(next(&mut link).owner, highest);
    for flow in [second, second, third, third, third, lowest] {
        assert_eq!(next(&mut link).owner, flow);
    }
}

fn share(level: u32) -> Share {
    Share::new(weight(level), length(1500))
}

/// A packet each, however long.
#[test]
fn equals_take_turns() {
    let offers = [1500, 40, 700, 1].map(|length| Offer::of(5, length));
    let mut flows = Backlogged::new(Priority::new(), offers.into());
    for turn in 0..1000 {
        assert_eq!(flows.serve().0, turn % 4);
    }
}

#[test]
fn one_on_hold_stays_whoever_comes_above_it_or_beside_it() {
    let mut priority = Priority::new();
    let mut entities = vec![<Priority as Scheduler>::Entity::default(); 5];
    let id = |index: usize| EntityId::new(index).unwrap();
    let bytes = length(100).into();
    for (index, level) in [3, 3, 9, 1, 3].into_iter().enumerate() {
        priority.add(&mut entities, id(index), share(level));
    }
    let select = |priority: &Priority, entities: &Vec<_>| {
        let selected = priority.select(entities);
        priority.invariants(entities).unwrap();
        selected.get().map(EntityId::index)
    };
    priority.backlogged(&mut entities, id(3), bytes);
    priority.backlogged(&mut entities, id(0), bytes);
    priority.hold(&mut entities, id(0));
    for index in [1, 2] {
        priority.backlogged(&mut entities, id(index), bytes);
        assert_eq!(select(&priority, &entities), Some(0));
    }
    // Levels that come and go meanwhile move the others in the table.
    for level in [100, 2, 3] {
        priority.change(&mut entities, id(4), share(level));
        assert_eq!(select(&priority, &entities), Some(0));
    }
    priority.served(bytes);
    priority.reschedule(&mut entities, id(0), bytes, Some(bytes));
    assert_eq!(select(&priority, &entities), Some(2));
    priority.hold(&mut entities, id(2));
    priority.idle(&mut entities, id(2));
    assert_eq!(select(&priority, &entities), Some(1), "its turn is over");
    priority.reschedule(&mut entities, id(1), bytes, None);
    assert_eq!(select(&priority, &entities), Some(0));
}
