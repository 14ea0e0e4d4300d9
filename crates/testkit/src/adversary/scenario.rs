//! Senders whose packets arrive at instants that depend on service, and mutations of such a set.

use crate::flows::Random;

/// Maximum number of flows of a scenario.
pub(super) const MOST_FLOWS: u32 = 4_096;
const MOST_WEIGHT: u32 = 100_000;
/// Maximum number of kinds of senders.
const MOST_SENDERS: usize = 6;

/// An event that triggers a flow's next burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cue {
    /// A packet of the flow is served, and at most this many are left.
    Own(u32),
    /// A packet of a flow of that kind is served; idle flows react in turn.
    Other(usize),
    /// This percentage of the time that the last burst takes at the flow's share has passed.
    Share(u32),
}

/// Identical flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Senders {
    pub count: u32,
    /// 0 is the root, n is class n - 1.
    pub class: usize,
    pub weight: u32,
    pub longest: u32,
    /// Packets of a burst, and of the first one.
    pub burst: u32,
    pub at_first: u32,
    /// Length of the first packet of a burst, and of the others.
    pub lengths: [u32; 2],
    /// Bytes by which a packet may be shorter, at random.
    pub vary: u32,
    pub cue: Cue,
    /// Delay from the cue to the burst, in bytes of the link, and a random delay of up to `jitter` more.
    pub after: u32,
    pub jitter: u32,
    /// The time at which the first of them starts, and the time from each to the next.
    pub start: u32,
    pub apart: u32,
}

/// A class with classes or flows below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Class {
    /// 0 is the root, n is class n - 1, an earlier one.
    pub parent: usize,
    pub weight: u32,
    /// Ceiling in percent of the guaranteed rate.
    pub ceiling: Option<u32>,
}

/// A set of senders, and the number of packets of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Scenario {
    pub classes: Vec<Class>,
    pub senders: Vec<Senders>,
    pub packets: u32,
    pub seed: u64,
}

/// The scenarios to choose from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Space {
    /// Maximum number of classes between root and flows.
    pub classes: usize,
    pub ceilings: bool,
}

/// Returns a number from 1 to `most`, with every power of two equally likely.
fn scaled(random: &mut Random, most: u32) -> u32 {
    let bits = random.below(most.ilog2() + 1);
    ((1 << bits) + random.below(1 << bits)).min(most)
}

/// Returns a number near another, or far from it.
fn near(random: &mut Random, number: u32, least: u32, most: u32) -> u32 {
    let other = match random.below(6) {
        0 => number.saturating_sub(1),
        1 => number + 1,
        2 => number / 2,
        3 => number * 2,
        4 => number - number / 8 + random.below(number / 4 + 1),
        _ => scaled(random, most.max(1)),
    };
    other.clamp(least, most.max(least))
}

impl Senders {
    /// Returns random senders. Numbers at the edges of slots, which are powers of two, are likely; so are those of
    /// `others`, and weights that add up to a sum like theirs.
    fn random(random: &mut Random, classes: usize, kinds: usize, others: &[Senders]) -> Senders {
        let count = match random.below(3) {
            0 => 1,
            1 => 1 + random.below(16),
            _ => scaled(random, MOST_FLOWS / 4),
        };
        let like = match others {
            [] => None,
            [first, ..] => Some(random.pick(&[*first, others[others.len() - 1]])),
        };
        let longest = match (random.below(4), like) {
            (1.., Some(like)) => like.longest,
            (2.., None) => 64 << random.below(8),
            (1, None) => random.pick(&[200, 1025, 1500, 9000]),
            _ => scaled(random, 9_000),
        };
        let sums = others
            .iter()
            .map(|other| u64::from(other.count * other.weight));
        let sum = sums.sum::<u64>() * u64::from(scaled(random, 64)) / 16;
        let weight = (sum / u64::from(count)).clamp(1, MOST_WEIGHT.into()) as u32;
        let weight = match (random.below(4), like) {
            (0, Some(like)) => like.weight,
            (1, _) => weight,
            (_, Some(_)) => 1 << weight.ilog2(),
            _ => 1,
        };
        let length = |random: &mut Random| match random.below(4) {
            0 => longest,
            1 => longest - random.below(longest / 16 + 1),
            2 => 1 + random.below(longest),
            _ => scaled(random, longest),
        };
        let burst = match random.below(3) {
            0 => 1,
            1 => 2,
            _ => scaled(random, 16),
        };
        let mut senders = Senders {
            count,
            class: random.below(classes as u32 + 1) as usize,
            weight,
            longest,
            burst,
            at_first: burst + random.below(3),
            lengths: [length(random), length(random)],
            vary: 0,
            cue: Senders::cue(random, kinds),
            after: 0,
            jitter: 0,
            start: 0,
            apart: 0,
        };
        for _ in 0..random.below(3) {
            senders.time(random);
        }
        senders
    }

    fn cue(random: &mut Random, kinds: usize) -> Cue {
        match random.below(8) {
            0..4 => Cue::Own(0),
            4 => Cue::Own(1 + random.below(3)),
            5 => Cue::Other(random.below(kinds as u32) as usize),
            _ => Cue::Share(25 + scaled(random, 400)),
        }
    }

    /// Changes a time.
    fn time(&mut self, random: &mut Random) {
        let most = 4 * self.longest;
        match random.below(4) {
            0 => self.after = near(random, self.after, 0, most),
            1 => self.jitter = near(random, self.jitter, 0, most),
            2 => self.start = near(random, self.start, 0, 1 << 16),
            _ => self.apart = near(random, self.apart, 0, self.longest),
        }
    }

    /// Changes one property.
    fn mutate(&mut self, random: &mut Random, classes: usize, kinds: usize) {
        match random.below(10) {
            0 => self.count = near(random, self.count, 1, MOST_FLOWS),
            1 => self.weight = near(random, self.weight, 1, MOST_WEIGHT),
            2 => {
                self.longest = near(random, self.longest, 1, 65_535);
                self.lengths = self.lengths.map(|length| length.min(self.longest));
            }
            3 => self.burst = near(random, self.burst, 1, 32),
            4 => self.at_first = near(random, self.at_first, 0, 64),
            5 => {
                let which = random.below(2) as usize;
                self.lengths[which] = near(random, self.lengths[which], 1, self.longest);
            }
            6 => self.vary = near(random, self.vary, 0, self.longest / 2),
            7 => self.cue = Senders::cue(random, kinds),
            8 if classes > 0 => self.class = random.below(classes as u32 + 1) as usize,
            _ => self.time(random),
        }
    }
}

impl Class {
    fn random(random: &mut Random, space: Space, before: usize) -> Class {
        Class {
            parent: random.below(before as u32 + 1) as usize,
            weight: scaled(random, 1_000),
            ceiling: (space.ceilings && random.below(2) == 0).then(|| 20 + scaled(random, 400)),
        }
    }
}

impl Scenario {
    pub(super) fn random(random: &mut Random, space: Space) -> Scenario {
        let mut classes = Vec::new();
        if space.classes > 0 {
            for before in 0..1 + random.below(space.classes as u32) as usize {
                classes.push(Class::random(random, space, before));
            }
        }
        let kinds = 2 + random.below(3) as usize;
        let mut senders = Vec::new();
        for _ in 0..kinds {
            senders.push(Senders::random(random, classes.len(), kinds, &senders));
        }
        let mut scenario = Scenario {
            senders,
            classes,
            packets: 0,
            seed: random.number(),
        };
        scenario.packets = scenario.flows() * (1 + random.below(4)) + 200;
        scenario.repaired(space)
    }

    /// Returns the number of packets and flows.
    pub(super) fn cost(&self) -> u64 {
        u64::from(self.packets) + u64::from(self.flows())
    }

    /// Returns the maximum number of bytes of a run.
    pub(super) fn work(&self) -> u64 {
        let lengths = self.senders.iter().map(|senders| senders.longest);
        u64::from(lengths.max().unwrap_or(0)) * u64::from(self.packets)
    }

    pub(super) fn flows(&self) -> u32 {
        self.senders.iter().map(|senders| senders.count).sum()
    }

    /// Returns it with up to three changes.
    pub(super) fn mutated(&self, random: &mut Random, space: Space) -> Scenario {
        let mut next = self.clone();
        for _ in 0..1 + random.below(3) {
            let (kinds, classes) = (next.senders.len(), next.classes.len());
            let which = random.below(kinds as u32) as usize;
            match random.below(12) {
                0 if kinds < MOST_SENDERS => {
                    let more = Senders::random(random, classes, kinds + 1, &next.senders);
                    next.senders.push(more);
                }
                1 if kinds > 1 => drop(next.senders.swap_remove(which)),
                2 => next.packets = near(random, next.packets, 20, 40_000),
                3 if classes > 0 => {
                    let class = random.below(classes as u32) as usize;
                    next.classes[class] = Class::random(random, space, class);
                }
                _ => next.senders[which].mutate(random, classes, kinds),
            }
        }
        next.repaired(space)
    }

    /// Returns simpler scenarios, the simplest first.
    pub(super) fn simpler(&self, space: Space) -> Vec<Scenario> {
        let mut all = Vec::new();
        let mut add = |change: &dyn Fn(&mut Scenario)| {
            let mut next = self.clone();
            change(&mut next);
            let next = next.repaired(space);
            if next != *self {
                all.push(next);
            }
        };
        for which in 0..self.senders.len() {
            if self.senders.len() > 1 {
                add(&|next| {
                    next.senders.remove(which);
                });
            }
        }
        add(&|next| next.packets /= 2);
        add(&|next| next.packets -= next.packets / 8);
        for class in 0..self.classes.len() {
            add(&|next| next.classes[class].ceiling = None);
            add(&|next| next.classes[class].weight = 1);
        }
        for which in 0..self.senders.len() {
            let changes: [fn(&mut Senders); 12] = [
                |senders| senders.count /= 2,
                |senders| senders.count -= senders.count / 8,
                |senders| senders.count -= 1,
                |senders| senders.jitter = 0,
                |senders| senders.vary = 0,
                |senders| senders.apart = 0,
                |senders| senders.start = 0,
                |senders| senders.after = 0,
                |senders| senders.weight = 1,
                |senders| senders.lengths = [senders.longest; 2],
                |senders| (senders.burst, senders.at_first) = (1, 1),
                |senders| senders.at_first = senders.burst,
            ];
            for change in changes {
                add(&|next| change(&mut next.senders[which]));
            }
        }
        all
    }

    /// Returns it with all values clamped to the limits.
    fn repaired(mut self, space: Space) -> Scenario {
        let (kinds, classes) = (self.senders.len(), self.classes.len().min(space.classes));
        self.classes.truncate(classes);
        for senders in &mut self.senders {
            senders.count = senders.count.max(1);
            senders.class = senders.class.min(classes);
            if let Cue::Other(kind) = &mut senders.cue {
                *kind %= kinds;
            }
        }
        while self.flows() > MOST_FLOWS {
            for senders in &mut self.senders {
                senders.count = senders.count.div_ceil(2);
            }
        }
        if self.flows() < 2 {
            self.senders[0].count += 1;
        }
        self.packets = self.packets.clamp(20, 6 * self.flows() + 600);
        self
    }
}
