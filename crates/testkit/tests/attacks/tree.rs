//! Classes that attack plain classes of the same tree, on any level: queues with CoDel or RED, which become idle without
//! work, flows that come and expire, ceilings, evictions, and changes while the tree runs.
//!
//! A *victim* is a plain leaf. Two promises are measured: its B-WFI, T-WFI and latency; and, of one that keeps to its
//! rate and burst, its backlog next to its buffer reservation, and that none of its packets is dropped.

use fairlane_core::aqm::{
    AqmConfig, CodelConfig, CodelParameters, Measure, Probability, RedConfig, RedParameters,
};
use fairlane_core::bounds::{Head, Round, Transmit, Wfi, Work, drr};
use fairlane_core::room::Room;
use fairlane_core::sched::Algorithm;
use fairlane_core::tree::{
    Ceiling, ClassConfig, ClassId, Discarded, FlowsConfig, LeafConfig, Tree,
};
use fairlane_core::{Dequeue, Length, Limits, Nanos, Rate, SchedulerLimits};
use fairlane_testkit::guarantee::{Bound, Node, RATE, Served};
use fairlane_testkit::meter::Meter;
use fairlane_testkit::numbers::{length, weight};
use fairlane_testkit::tape::Tape;

/// The promise that an attack measures, and the means of the attackers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Promise {
    /// The service of a victim, in a tree that stays as it is.
    Service,
    /// The same while attackers change their weights, come and go.
    Changes,
    /// A victim within its rate and burst loses nothing in a full link.
    Room,
}

/// Maximum number of packets of an attacker, and of a victim, in the tree.
const MOST_WAITING: u32 = 24;

/// Orders of inner classes.
fn orders() -> Vec<Algorithm> {
    let all = Algorithm::ALL.iter().copied();
    all.filter(|all| all.is_bounded() && !all.follows_packets())
        .collect()
}

/// A class whose guarantee counts: the one above the victim, or the victim.
struct Tracked {
    weight: u32,
    longest: u32,
    head: Head,
    /// The least share and the largest indexes so far.
    worst: Option<(f64, Wfi)>,
}

/// A class on the path from the root to the victim.
struct Level {
    id: ClassId,
    algorithm: Algorithm,
    tracked: Vec<Tracked>,
    ceiling: Option<Ceiling>,
    /// The largest sum of weights.
    weights: f64,
    /// Work by which attackers that left were ahead, at most.
    leads: f64,
    /// The reference of DRR's unit.
    unit: Option<(u32, u32)>,
    /// The exponent of a longest packet over the sum of weights, and the number of times that it rose.
    floor: i32,
    rises: u32,
}

impl Level {
    /// Returns share and indexes of a class whose guarantee counts, across the changes so far.
    fn indexes(&self, tracked: usize) -> Option<(f64, Wfi)> {
        let (share, wfi) = self.tracked[tracked].worst?;
        let rises = if self.is_grouped() { self.rises } else { 0 };
        let lost = f64::from(rises) * wfi.delay.bytes();
        Some((share, later(wfi, share, self.leads + lost)))
    }

    /// Returns whether flows lie in groups, and lose their lateness as the sum of weights falls and the lowest group rises.
    fn is_grouped(&self) -> bool {
        let name = self.algorithm.name();
        ["qfq", "gfq", "s-kps"].contains(&name.trim_end_matches('+'))
    }

    /// Returns the weights and longest packets of the children, where `of` picks the weight of an attacker.
    fn children(&self, attackers: &[&Attacker], of: impl Fn(&Attacker) -> u32) -> Vec<(u32, u32)> {
        let own = self.tracked.iter().map(|one| (one.weight, one.longest));
        let others = attackers.iter().map(|one| (of(one), one.longest));
        own.chain(others).collect()
    }

    /// Returns the largest round under DRR: of the heaviest weights and the largest unit.
    fn largest_round(&self, attackers: &[&Attacker]) -> Option<Round> {
        let heaviest = self.children(attackers, |one| one.weights[0].max(one.weights[1]));
        let lightest = self.children(attackers, |one| one.weights[0].min(one.weights[1]));
        let (of, longest) = reference(&lightest)?;
        let heaviest = heaviest
            .iter()
            .map(|&(of, longest)| (weight(of), length(longest)));
        Some(Round::of(heaviest)?.with_quantum(weight(of), length(longest)))
    }

    /// Sets the indexes under DRR: those of the largest round, and a round more for each change of its unit.
    fn bound_round(&mut self, attackers: &[&Attacker]) {
        let Some(round) = self.largest_round(attackers) else {
            return;
        };
        let present: Vec<_> = attackers
            .iter()
            .copied()
            .filter(|one| one.id.is_some())
            .collect();
        let unit = reference(&self.children(&present, |one| one.config().weight.get()));
        let unit = unit.filter(|_| !present.is_empty());
        if self.unit.is_some_and(|before| Some(before) != unit) {
            self.leads += round.slowest().bytes();
        }
        self.unit = unit;
        for which in 0..self.tracked.len() {
            let tracked = &self.tracked[which];
            let share = f64::from(tracked.weight) / self.weights;
            let wfi = self.in_round(&round, tracked);
            self.tracked[which].worst = wfi.map(|wfi| (share, wfi));
        }
    }

    fn in_round(&self, round: &Round, tracked: &Tracked) -> Option<Wfi> {
        let wfi = drr(
            round,
            weight(tracked.weight),
            length(tracked.longest),
            Transmit::Between,
        )?;
        let share = f64::from(tracked.weight) / self.weights;
        Some(match tracked.head {
            Head::Known => wfi,
            Head::Longest => later(wfi, share, (1.0 / share - 1.0) * f64::from(tracked.longest)),
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Leaf,
    Flows,
    Inner,
}

/// A class that may do anything.
struct Attacker {
    level: usize,
    kind: Kind,
    weights: [u32; 2],
    heavy: bool,
    longest: u32,
    ceiling: Option<Ceiling>,
    leaf: LeafConfig,
    /// Of a class of flows.
    flows: FlowsConfig,
    /// Its own class, and those that take packets.
    id: Option<ClassId>,
    queues: Vec<ClassId>,
    waiting: u32,
    has_sent: bool,
    digest: u64,
}

impl Attacker {
    fn config(&self) -> ClassConfig {
        let of = self.weights[usize::from(self.heavy)];
        let mut config = ClassConfig::new(weight(of), length(self.longest));
        config.ceiling = self.ceiling;
        config
    }
}

/// A leaf that a bound protects.
struct Victim {
    id: ClassId,
    level: usize,
    tracked: usize,
    longest: u32,
    shortest: u32,
    waiting: u32,
    bytes: u32,
    /// Tokens of its rate and burst, at a time.
    burst: f64,
    rate: f64,
    tokens: (f64, u64),
    room: Room,
    /// The largest part of its room that it held.
    held: f64,
}

pub(crate) struct Play {
    promise: Promise,
    tree: Tree<usize>,
    levels: Vec<Level>,
    attackers: Vec<Attacker>,
    victims: Vec<Victim>,
    meter: Meter,
    now: u64,
    departures: u32,
    work: u64,
    lost: bool,
    changed: bool,
}

/// An event of the adversary.
#[derive(Clone, Copy, Debug)]
enum Step {
    Nothing,
    Victim(u32),
    Send(u32),
    /// From a source that was never seen.
    Spoof(u32),
    Toggle,
    Leave,
    Churn,
    Expire,
    Flush,
    Ceiling,
    Limits,
}

const STEPS: [Step; 16] = [
    Step::Nothing,
    Step::Victim(1),
    Step::Victim(1),
    Step::Victim(4),
    Step::Send(1),
    Step::Send(1),
    Step::Send(4),
    Step::Send(16),
    Step::Spoof(1),
    Step::Spoof(3),
    Step::Expire,
    Step::Flush,
    Step::Toggle,
    Step::Leave,
    Step::Churn,
    Step::Ceiling,
];

/// Those of attackers that keep their weights.
const STEPS_WITHOUT_CHANGE: [Step; 16] = [
    Step::Nothing,
    Step::Victim(1),
    Step::Victim(1),
    Step::Victim(1),
    Step::Victim(4),
    Step::Send(1),
    Step::Send(1),
    Step::Send(4),
    Step::Send(16),
    Step::Spoof(1),
    Step::Spoof(1),
    Step::Spoof(3),
    Step::Expire,
    Step::Flush,
    Step::Ceiling,
    Step::Limits,
];

const LENGTHS: [u32; 6] = [1500, 1500, 1000, 64, 9000, 300];

fn management(tape: &mut Tape) -> AqmConfig {
    let codel = CodelParameters {
        target: Nanos(1 + u64::from(tape.below(4)) * 1_000),
        interval: Nanos::from_micros(10),
        max_packet: length(1),
        ecn: false,
    };
    let red = RedParameters {
        measure: Measure::Packets,
        min: 1,
        max: 2 + tape.below(8),
        max_p: Probability::from_ppm(900_000).unwrap(),
        weight_shift: 1,
        gentle: false,
        ..RedParameters::default()
    };
    match tape.below(4) {
        0 => AqmConfig::TailDrop,
        1 => AqmConfig::Red(RedConfig::new(red).unwrap()),
        _ => AqmConfig::Codel(CodelConfig::new(codel).unwrap()),
    }
}

impl Play {
    pub(crate) fn new(root: Algorithm, promise: Promise, tape: &mut Tape) -> Play {
        let orders = orders();
        let depth = 1 + tape.below(4) as usize;
        let departures = 16 << tape.below(4);
        let mut play = Play {
            promise,
            tree: Tree::new(root, None, SchedulerLimits::default()),
            levels: Vec::new(),
            attackers: Vec::new(),
            victims: Vec::new(),
            meter: Meter::new([]),
            now: 0,
            departures,
            work: u64::from(departures) * 9000,
            lost: false,
            changed: false,
        };
        for at in 0..depth {
            let algorithm = match at {
                0 => root,
                _ => tape.pick(&orders),
            };
            play.levels.push(Level {
                id: ClassId::ROOT,
                algorithm,
                tracked: Vec::new(),
                ceiling: None,
                weights: 0.0,
                leads: 0.0,
                unit: None,
                floor: i32::MAX,
                rises: 0,
            });
            for _ in 0..1 + tape.below(3) {
                play.attackers.push(attacker(at, tape, &orders));
            }
        }
        play.protect(0, tape);
        play.protect(depth - 1, tape);
        play.build(tape);
        play
    }

    /// Adds a victim to a level.
    fn protect(&mut self, level: usize, tape: &mut Tape) {
        let longest = tape.pick(&LENGTHS);
        let tracked = &mut self.levels[level].tracked;
        tracked.push(Tracked {
            weight: 1 + tape.below(32),
            longest,
            head: Head::Known,
            worst: None,
        });
        self.victims.push(Victim {
            id: ClassId::ROOT,
            level,
            tracked: tracked.len() - 1,
            longest,
            shortest: longest,
            waiting: 0,
            bytes: 0,
            burst: f64::from(longest) * f64::from(1 + tape.below(4)),
            rate: 0.0,
            tokens: (0.0, 0),
            room: Room::NONE,
            held: 0.0,
        });
    }

    /// Builds the tree.
    fn build(&mut self, tape: &mut Tape) {
        // The classes of the path, from below.
        for at in (1..self.levels.len()).rev() {
            let longest = self.longest(at);
            self.levels[at - 1].tracked.push(Tracked {
                weight: 1 + tape.below(64),
                longest,
                head: Head::Longest,
                worst: None,
            });
        }
        if self.promise == Promise::Changes {
            self.bound(Some(true));
        }
        self.bound(Some(false));
        for at in 1..self.levels.len() {
            let above = self.levels[at - 1].id;
            let longest = self.longest(at);
            let of = self.path_of(at).weight;
            let free = self.served(at);
            let percent = 90 + 30 * tape.below(8);
            let mut config = ClassConfig::new(weight(of), length(longest));
            if let Some(free) = free.filter(|_| tape.below(3) == 0) {
                config.ceiling = free.ceiling(percent, length(longest));
            }
            self.levels[at].ceiling = config.ceiling;
            let order = self.levels[at].algorithm;
            self.levels[at].id = self.tree.add_inner(above, config, order).unwrap();
        }
        self.limit(tape);
        for which in 0..self.victims.len() {
            let victim = &self.victims[which];
            let level = &self.levels[victim.level];
            let tracked = &level.tracked[victim.tracked];
            let config = ClassConfig::new(weight(tracked.weight), length(tracked.longest));
            let leaf = LeafConfig {
                room: victim.room,
                ..LeafConfig::default()
            };
            self.victims[which].id = self.tree.add_leaf(level.id, config, leaf).unwrap();
        }
        for which in 0..self.attackers.len() {
            self.come(which);
        }
        let rates: Vec<f64> = self.victims.iter().map(|victim| victim.rate).collect();
        self.meter = Meter::new(rates);
    }

    /// Sets the rates of the victims, their rooms, and the limits of the link.
    fn limit(&mut self, tape: &mut Tape) {
        let mut kept = Room::NONE;
        for which in 0..self.victims.len() {
            let (level, at) = (self.victims[which].level, self.victims[which].tracked);
            let indexes = self.levels[level].indexes(at);
            let Some((above, (share, wfi))) = self.served_below(level).zip(indexes) else {
                continue;
            };
            let victim = &mut self.victims[which];
            victim.rate = above.rate * share;
            if self.promise == Promise::Room {
                let service = above.service.child(share, wfi);
                victim.room = service.room(victim.burst as u64, length(victim.shortest));
                victim.tokens = (victim.burst, 0);
                kept.packets += victim.room.packets;
                kept.bytes += victim.room.bytes;
            }
        }
        if self.promise != Promise::Room {
            return;
        }
        for attacker in &mut self.attackers {
            attacker.reserve(tape);
            let room = match attacker.kind {
                Kind::Flows => attacker.flows.room,
                Kind::Leaf => attacker.leaf.room,
                Kind::Inner => Room {
                    packets: 2 * attacker.leaf.room.packets,
                    bytes: 2 * attacker.leaf.room.bytes,
                },
            };
            kept.packets += room.packets;
            kept.bytes += room.bytes;
        }
        let limits = SchedulerLimits {
            packets: kept.packets + tape.below(6),
            bytes: u64::from(kept.bytes) + u64::from(tape.below(4) * 1000),
            per_flow: Limits::NONE,
        };
        let root = self.levels[0].algorithm;
        let mut tree = Tree::new(root, None, limits);
        for at in 1..self.levels.len() {
            let (above, class) = (self.levels[at - 1].id, self.levels[at].id);
            let config = *self.tree.config(class).unwrap();
            let order = self.levels[at].algorithm;
            self.levels[at].id = tree.add_inner(above, config, order).unwrap();
        }
        self.tree = tree;
    }

    fn longest(&self, from: usize) -> u32 {
        let attackers = self.attackers.iter().filter(|other| other.level >= from);
        let victims = self.victims.iter().filter(|other| other.level >= from);
        let attackers = attackers.map(|other| other.longest);
        let longest = victims.map(|other| other.longest).chain(attackers).max();
        longest.unwrap_or(1)
    }

    /// Returns the class of the path at a level below the root.
    fn path_of(&self, level: usize) -> &Tracked {
        self.levels[level - 1].tracked.last().unwrap()
    }

    /// Raises the bounds of each level to those next to the attackers that there are, or next to all of them with their
    /// larger or first weights.
    fn bound(&mut self, all: Option<bool>) {
        let work = self.work;
        for (at, level) in self.levels.iter_mut().enumerate() {
            let mut node = Node::new(level.algorithm);
            let mut sum = 0.0;
            let mut add = |of: u32, longest| {
                sum += f64::from(of);
                node.add(of, longest, 1);
            };
            for tracked in &level.tracked {
                add(tracked.weight, tracked.longest);
            }
            for attacker in self.attackers.iter().filter(|other| other.level == at) {
                let [light, heavy] = attacker.weights;
                match (all, attacker.id) {
                    (Some(true), _) => add(light.max(heavy), attacker.longest),
                    (Some(false), _) => add(light, attacker.longest),
                    (None, Some(_)) => add(attacker.config().weight.get(), attacker.longest),
                    (None, None) => {}
                }
            }
            level.weights = level.weights.max(sum);
            let floor = (f64::from(node.longest) / sum).log2().ceil() as i32;
            level.rises += u32::from(all.is_none() && floor > level.floor);
            level.floor = floor;
            if self.promise == Promise::Changes && level.algorithm == Algorithm::Drr {
                let attackers = self.attackers.iter().filter(|other| other.level == at);
                level.bound_round(&attackers.collect::<Vec<_>>());
                continue;
            }
            for tracked in &mut level.tracked {
                let Some((_, wfi)) = node.wfi(tracked.weight, tracked.longest, tracked.head, work)
                else {
                    continue;
                };
                let share = f64::from(tracked.weight) / level.weights;
                let before = tracked.worst.map_or(wfi, |(_, before)| before);
                tracked.worst = Some((share, larger(before, wfi)));
            }
        }
    }

    /// Returns the service of the class of the path at a level without its ceiling.
    fn served(&self, level: usize) -> Option<Served> {
        if level == 0 {
            return Some(Served::link(self.longest(0)));
        }
        let path = self.levels[level - 1].tracked.len() - 1;
        let (share, wfi) = self.levels[level - 1].indexes(path)?;
        Some(self.served_below(level - 1)?.child(share, wfi))
    }

    /// The same with its ceiling.
    fn served_below(&self, level: usize) -> Option<Served> {
        let free = self.served(level)?;
        match self.levels[level].ceiling {
            Some(ceiling) => free.below_ceiling(ceiling, length(self.longest(level))),
            None => Some(free),
        }
    }

    fn come(&mut self, which: usize) {
        let attacker = &mut self.attackers[which];
        if attacker.id.is_some() {
            return;
        }
        let (above, config) = (self.levels[attacker.level].id, attacker.config());
        let (id, queues) = match attacker.kind {
            Kind::Leaf => {
                let id = self.tree.add_leaf(above, config, attacker.leaf).unwrap();
                (id, vec![id])
            }
            Kind::Flows => {
                let id = self.tree.add_flows(above, config, attacker.flows).unwrap();
                (id, vec![id])
            }
            Kind::Inner => {
                let order = attacker.flows.algorithm;
                let id = self.tree.add_inner(above, config, order).unwrap();
                let below = ClassConfig::new(weight(1), config.max_length);
                let queues = [0; 2].map(|_| self.tree.add_leaf(id, below, attacker.leaf).unwrap());
                (id, queues.to_vec())
            }
        };
        (attacker.id, attacker.queues) = (Some(id), queues);
    }

    /// An attacker leaves whose queue is empty.
    fn leave(&mut self, which: usize) {
        let attacker = &mut self.attackers[which];
        if attacker.waiting > 0 || attacker.kind != Kind::Leaf {
            return;
        }
        let Some(id) = attacker.id.take() else { return };
        self.tree.remove(id, drop).unwrap();
        attacker.queues.clear();
        self.lead(which);
    }

    /// An attacker leaves or becomes lighter that may have been served ahead: by a longest packet and a slot at most.
    fn lead(&mut self, which: usize) {
        let attacker = &mut self.attackers[which];
        if std::mem::take(&mut attacker.has_sent) {
            self.levels[attacker.level].leads += f64::from(3 * attacker.longest);
        }
    }

    fn send(&mut self, which: usize, packets: u32, digest: u64, tape: &mut Tape) {
        let attacker = &mut self.attackers[which];
        if attacker.queues.is_empty() {
            return;
        }
        let class = tape.pick(&attacker.queues);
        let bytes = [attacker.longest, attacker.longest.div_ceil(8), 1][tape.below(3) as usize];
        let owner = self.victims.len() + which;
        for n in 0..packets {
            if self.attackers[which].waiting >= MOST_WAITING {
                break;
            }
            let flow = match self.promise {
                Promise::Room => digest + u64::from(n),
                _ => digest,
            };
            let mut gone = Vec::new();
            let outcome = self.tree.offer(
                class,
                flow,
                length(bytes),
                owner,
                Nanos(self.now),
                |packet| gone.push(packet),
            );
            self.attackers[which].waiting += u32::from(outcome.is_ok());
            self.discard(&gone);
        }
    }

    /// A victim sends up to this many packets, of one within its rate and burst as many as it may.
    fn offer(&mut self, which: usize, packets: u32, short: bool) {
        for _ in 0..packets {
            let now = self.now;
            let victim = &mut self.victims[which];
            let bytes = match short && self.promise != Promise::Room {
                true => victim.longest.div_ceil(8),
                false => victim.longest,
            };
            if self.promise == Promise::Room {
                let (tokens, at) = victim.tokens;
                let tokens = (tokens + victim.rate * (now - at) as f64).min(victim.burst);
                victim.tokens = (tokens, now);
                if tokens < f64::from(bytes) {
                    return;
                }
                victim.tokens.0 -= f64::from(bytes);
            } else if victim.waiting >= MOST_WAITING {
                return;
            }
            let mut gone = Vec::new();
            let (id, len) = (victim.id, length(bytes));
            let outcome = self.tree.offer(id, 0, len, which, Nanos(now), |packet| {
                gone.push(packet);
            });
            if outcome.is_err() {
                self.lost = true;
                return;
            }
            self.meter.arrived(which, bytes, now);
            let victim = &mut self.victims[which];
            victim.waiting += 1;
            victim.bytes += bytes;
            if self.promise == Promise::Room {
                let packets = f64::from(victim.waiting) / f64::from(victim.room.packets);
                let bytes = f64::from(victim.bytes) / f64::from(victim.room.bytes);
                victim.held = victim.held.max(packets).max(bytes);
            }
            self.discard(&gone);
        }
    }

    fn discard(&mut self, gone: &[Discarded<usize>]) {
        for packet in gone {
            match packet.payload.checked_sub(self.victims.len()) {
                Some(attacker) => self.attackers[attacker].waiting -= 1,
                None => self.lost = true,
            }
        }
    }

    fn step(&mut self, step: Step, which: usize, tape: &mut Tape) {
        let now = Nanos(self.now);
        match step {
            Step::Nothing => {}
            Step::Victim(packets) => {
                let victim = which % self.victims.len();
                self.offer(victim, packets, tape.below(3) == 2);
            }
            Step::Send(packets) => {
                let digest = u64::from(tape.below(4));
                self.send(which, packets, digest, tape);
            }
            Step::Spoof(packets) => {
                self.attackers[which].digest += 16;
                let digest = self.attackers[which].digest;
                self.send(which, packets, digest, tape);
            }
            Step::Toggle => {
                let attacker = &mut self.attackers[which];
                let before = attacker.config().weight;
                attacker.heavy = !attacker.heavy;
                self.changed = true;
                if attacker.config().weight < before {
                    self.lead(which);
                }
                self.change(which);
            }
            Step::Leave => {
                self.leave(which);
                self.changed = true;
            }
            Step::Churn => {
                self.leave(which);
                self.come(which);
                self.changed = true;
                self.send(which, 1, 0, tape);
            }
            Step::Expire => self.tree.expire_idle(now),
            Step::Flush => {
                let mut gone = Vec::new();
                if let Some(id) = self.attackers[which].id {
                    self.tree
                        .flush(id, now, |packet| gone.push(packet))
                        .unwrap();
                }
                self.discard(&gone);
            }
            Step::Ceiling => {
                let rate = Rate::from_bps(RATE >> tape.below(8)).unwrap();
                let burst = 100 << tape.below(10);
                let ceiling = Ceiling { rate, burst };
                self.attackers[which].ceiling = (tape.below(3) > 0).then_some(ceiling);
                self.change(which);
            }
            Step::Limits => self.change_queue(which, tape),
        }
    }

    fn change(&mut self, which: usize) {
        let attacker = &self.attackers[which];
        if let Some(id) = attacker.id {
            let config = attacker.config();
            self.tree.change(id, config, Nanos(self.now)).unwrap();
        }
    }

    /// Gives an attacker other limits and rooms, no larger than at first.
    fn change_queue(&mut self, which: usize, tape: &mut Tape) {
        let attacker = &self.attackers[which];
        let Some(id) = attacker.id else { return };
        let half = |room: Room| Room {
            packets: room.packets / 2,
            bytes: room.bytes,
        };
        let now = Nanos(self.now);
        match attacker.kind {
            Kind::Leaf => {
                let room = attacker.leaf.room;
                let leaf = LeafConfig {
                    room: if tape.below(2) == 0 { half(room) } else { room },
                    limits: Limits {
                        packets: 4 << tape.below(6),
                        ..attacker.leaf.limits
                    },
                    ..attacker.leaf
                };
                let outcome = match tape.below(2) {
                    0 => self.tree.change_leaf(id, leaf, now),
                    _ => self.tree.change_leaf_when_empty(id, leaf, now),
                };
                outcome.unwrap();
            }
            Kind::Flows => {
                let mut flows = attacker.flows;
                if tape.below(2) == 0 {
                    flows.room = half(flows.room);
                }
                if tape.below(2) == 0 {
                    flows.leaf.room = half(flows.leaf.room);
                }
                self.tree.change_flows(id, flows, now).unwrap();
            }
            Kind::Inner => {}
        }
    }

    /// Makes some steps of the adversary.
    fn react(&mut self, last: Option<usize>, tape: &mut Tape) {
        let steps = match self.promise {
            Promise::Changes => &STEPS,
            Promise::Service | Promise::Room => &STEPS_WITHOUT_CHANGE,
        };
        for _ in 0..tape.below(4) {
            let step = tape.pick(steps);
            let which = match (tape.below(3), last) {
                (0, Some(last)) => last,
                _ => tape.below(64) as usize,
            };
            self.step(step, which % self.attackers.len(), tape);
        }
        if std::mem::take(&mut self.changed) {
            self.bound(None);
        }
    }

    pub(crate) fn run(&mut self, tape: &mut Tape) -> Result<(), String> {
        let (mut sent, mut idle) = (0, 0);
        let mut last = None;
        while sent < self.departures && idle < 100 {
            self.react(last, tape);
            let mut gone = Vec::new();
            let next = self
                .tree
                .dequeue(Nanos(self.now), |packet| gone.push(packet));
            self.discard(&gone);
            match next {
                Dequeue::Packet(packet) => {
                    sent += 1;
                    let start = self.now;
                    let attacker = packet.payload.checked_sub(self.victims.len());
                    let taken = attacker.is_none().then(|| {
                        let taken = self.meter.taken(packet.payload, start);
                        self.meter.started(taken, start);
                        taken
                    });
                    match attacker {
                        Some(attacker) => {
                            self.attackers[attacker].waiting -= 1;
                            self.attackers[attacker].has_sent = true;
                        }
                        None => self.victims[packet.payload].sent(packet.len),
                    }
                    last = attacker;
                    // Some arrive while the packet is on the wire.
                    if tape.below(2) == 1 {
                        self.react(last, tape);
                    }
                    self.now = start + u64::from(packet.len.get());
                    if let Some(taken) = taken {
                        self.meter.sent(taken, self.now);
                    }
                }
                Dequeue::NotBefore(time) => {
                    let stands = time.0 <= self.now;
                    if stands {
                        return Err(format!("no packet leaves at {}", self.now));
                    }
                    self.now = time.0.min(self.now + 1 + u64::from(tape.below(4096)));
                    idle += 1;
                }
                Dequeue::Empty => {
                    self.now += 1 + u64::from(tape.below(64));
                    idle += 1;
                }
            }
            if self.lost {
                return Err("a victim lost a packet".to_owned());
            }
        }
        self.meter.ended(self.now);
        let invariants = self.tree.invariants();
        invariants.map_err(|violation| violation.to_string())
    }

    /// Returns the largest ratio of an index of a victim to its bound.
    pub(crate) fn ratio(&self) -> f64 {
        let mut largest: f64 = 0.0;
        for (flow, victim) in self.victims.iter().enumerate() {
            let indexes = self.levels[victim.level].indexes(victim.tracked);
            let Some((above, (share, wfi))) = self.served_below(victim.level).zip(indexes) else {
                continue;
            };
            let bound = Bound::of_child(above.rate * share, above.service, share, wfi);
            let meter = &self.meter;
            let ratio = match self.promise {
                Promise::Room => victim.held,
                _ => [
                    meter.service(flow) / bound.service,
                    meter.delay(flow) / bound.delay,
                    meter.latency(flow) / bound.latency,
                ]
                .into_iter()
                .fold(0.0, f64::max),
            };
            largest = largest.max(ratio);
        }
        largest
    }
}

impl Victim {
    fn sent(&mut self, len: Length) {
        self.waiting -= 1;
        self.bytes -= len.get();
    }
}

impl Attacker {
    /// Gives it room of its own.
    fn reserve(&mut self, tape: &mut Tape) {
        let each = tape.below(4);
        let room = |packets| Room {
            packets,
            bytes: packets * self.longest,
        };
        self.leaf.room = room(each);
        self.flows.leaf.room = room(each.min(1));
        self.flows.room = room(each);
    }
}

fn attacker(level: usize, tape: &mut Tape, orders: &[Algorithm]) -> Attacker {
    let kind = tape.pick(&[Kind::Leaf, Kind::Leaf, Kind::Flows, Kind::Inner]);
    let leaf = LeafConfig {
        aqm: management(tape),
        ..LeafConfig::default()
    };
    let limit = |tape: &mut Tape| Ceiling {
        rate: Rate::from_bps(RATE >> tape.below(8)).unwrap(),
        burst: 100 << tape.below(10),
    };
    let (own, each) = (limit(tape), limit(tape));
    let flows = FlowsConfig {
        most: 1 + tape.below(4),
        keeps_place: Nanos(u64::from(tape.below(2)) * 100_000),
        forget_after: Nanos(1 + u64::from(tape.below(100_000))),
        ceiling: (tape.below(3) == 0).then_some(each),
        leaf,
        ..FlowsConfig::new(tape.pick(orders))
    };
    Attacker {
        level,
        kind,
        weights: [1 + tape.below(16), 1 + tape.below(200)],
        heavy: false,
        longest: tape.pick(&LENGTHS),
        ceiling: (tape.below(3) == 0).then_some(own),
        leaf,
        flows,
        id: None,
        queues: Vec::new(),
        waiting: 0,
        has_sent: false,
        digest: 1 << 32,
    }
}

/// Returns the child with the largest packet for its weight.
fn reference(children: &[(u32, u32)]) -> Option<(u32, u32)> {
    let order = |a: &&(u32, u32), b: &&(u32, u32)| {
        (u64::from(a.1) * u64::from(b.0)).cmp(&(u64::from(b.1) * u64::from(a.0)))
    };
    children.iter().max_by(order).copied()
}

/// Returns indexes that are larger by an amount of the node's work.
fn later(wfi: Wfi, share: f64, work: f64) -> Wfi {
    let more = |index: Work, by: f64| Work::new(index.bytes() + by).unwrap();
    Wfi {
        service: more(wfi.service, share * work),
        delay: more(wfi.delay, work),
        latency: more(wfi.latency, work),
        ..wfi
    }
}

/// Returns the larger of each index.
fn larger(one: Wfi, other: Wfi) -> Wfi {
    let larger = |a: Work, b: Work| if a.bytes() < b.bytes() { b } else { a };
    Wfi {
        strict: one.strict && other.strict,
        service: larger(one.service, other.service),
        delay: larger(one.delay, other.delay),
        latency: larger(one.latency, other.latency),
        turn: larger(one.turn, other.turn),
    }
}

/// Returns the largest ratio of a play.
pub(crate) fn play(root: Algorithm, promise: Promise, tape: &mut Tape) -> Result<f64, String> {
    let mut play = Play::new(root, promise, tape);
    tape.repeat();
    play.run(tape)?;
    Ok(play.ratio())
}
