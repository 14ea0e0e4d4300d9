//! QFQ as its report lists it, in whole numbers that never wrap: by which rule for the start of a flow that
//! becomes backlogged ER and EB stay sorted by F (Theorems 6 and 7), on which the listings rely.
//!
//! Shares are 1 / 2^n and add up to 1. So V advances by the bytes of a packet, F = S + l / phi, and all timestamps are
//! whole numbers. Figures, equations and theorems are numbered as in F. Checconi, P. Valente, L. Rizzo, *QFQ*,
//! technical report, 2010. The conclusions are in `docs/corrections.md`.

use std::collections::{BTreeMap, VecDeque};
use std::fs;

use crate::support::{Random, config, length, scheduler, times};
use fairlane_core::sched::Qfq;
use fairlane_core::{FlowId, PacketScheduler};

/// The rule for S of a flow that becomes backlogged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// max(V, F): Fig. 4, line 8.
    Printed,
    /// Eq. 29, for the first flow of an idle group that becomes blocked, as the report says.
    IdleGroup,
    /// Eq. 29 where the flow's own last F, not V, lies after F_b: as Linux and dummynet have it.
    LastFinish,
    /// Eq. 29, for every flow.
    EveryFlow,
}

const RULES: [Rule; 4] = [
    Rule::Printed,
    Rule::IdleGroup,
    Rule::LastFinish,
    Rule::EveryFlow,
];

#[derive(Debug)]
struct Flow {
    /// 1 / phi.
    inverse: u64,
    group: usize,
    start: u64,
    finish: u64,
    /// Lengths of its queued packets.
    queue: VecDeque<u64>,
}

#[derive(Clone, Debug, Default)]
struct Group {
    start: u64,
    finish: u64,
    /// Flows by their rounded start, in the order of their coming.
    buckets: BTreeMap<u64, VecDeque<usize>>,
}

const ER: usize = 0;
const IR: usize = 1;
const EB: usize = 2;
const IB: usize = 3;

/// A set in which a group comes before one of a higher index that finishes earlier: both F.
type Disorder = (&'static str, u64, u64);

#[derive(Debug)]
struct Model {
    rule: Rule,
    /// V.
    now: u64,
    flows: Vec<Flow>,
    groups: Vec<Group>,
    /// The groups in ER, IR, EB, IB.
    sets: [u64; 4],
    /// How the order was lost first.
    lost: Option<Disorder>,
}

/// In slots of 2^`i`.
fn rounded(time: u64, i: usize) -> u64 {
    time >> i << i
}

fn lowest(set: u64) -> Option<usize> {
    (set != 0).then_some(set.trailing_zeros() as usize)
}

fn lowest_above(set: u64, i: usize) -> Option<usize> {
    lowest(set & (u64::MAX << i << 1))
}

impl Model {
    /// Of flows by 1 / phi and their longest packet.
    fn new(rule: Rule, flows: &[(u64, u64)]) -> Model {
        let flows = flows.iter().map(|&(inverse, longest)| Flow {
            inverse,
            group: (inverse * longest).next_power_of_two().ilog2() as usize,
            start: 0,
            finish: 0,
            queue: VecDeque::new(),
        });
        Model {
            rule,
            now: 0,
            flows: flows.collect(),
            groups: vec![Group::default(); 64],
            sets: [0; 4],
            lost: None,
        }
    }

    /// S of a flow that becomes backlogged.
    fn start_time(&self, flow: usize) -> u64 {
        let &Flow {
            group: i,
            finish: last,
            ..
        } = &self.flows[flow];
        let start = self.now.max(last);
        let Some(b) = lowest_above(self.sets[ER], i) else {
            return start;
        };
        let limit = self.groups[b].finish;
        let shifts = match self.rule {
            Rule::Printed => false,
            Rule::IdleGroup => {
                self.groups[i].buckets.is_empty() && rounded(start, i) + (2 << i) > limit
            }
            Rule::LastFinish => last <= self.now && rounded(last, i) > limit,
            Rule::EveryFlow => true,
        };
        match (shifts, self.rule) {
            (false, _) => start,
            // There F does not come into it again.
            (true, Rule::LastFinish) => limit.min(rounded(self.now, i) + (1 << i)),
            (true, _) => self.now.min(limit).max(last),
        }
    }

    /// `compute_group_state` (Fig. 4).
    fn state(&self, i: usize) -> usize {
        let group = &self.groups[i];
        let above = lowest_above(self.sets[ER], i);
        let blocked = above.is_some_and(|x| self.groups[x].finish < group.finish);
        match (group.start <= self.now, blocked) {
            (true, false) => ER,
            (false, false) => IR,
            (true, true) => EB,
            (false, true) => IB,
        }
    }

    /// `move_groups` (Fig. 6).
    fn move_groups(&mut self, mask: u64, from: usize, to: usize) {
        self.sets[to] |= self.sets[from] & mask;
        self.sets[from] &= !mask;
    }

    /// `make_eligible` (Fig. 6).
    fn make_eligible(&mut self, before: u64) {
        let changed = before ^ self.now;
        if changed != 0 {
            let mask = (2 << changed.ilog2()) - 1;
            self.move_groups(mask, IR, ER);
            self.move_groups(mask, IB, EB);
        }
    }

    /// `unblock_groups` (Fig. 6).
    fn unblock(&mut self, i: usize, finish: u64) {
        let first = lowest(self.sets[ER]);
        if first.is_none_or(|x| self.groups[x].finish > finish) {
            let mask = (1 << i) - 1;
            self.move_groups(mask, EB, ER);
            self.move_groups(mask, IB, IR);
        }
    }

    /// Looks whether the order still holds.
    fn look(&mut self) {
        let disorder = |(name, set): (&'static str, u64)| {
            let groups = std::iter::successors(lowest(set), |&i| lowest_above(set, i));
            let mut last = 0;
            let mut finishes = groups.map(|i| self.groups[i].finish);
            finishes.find_map(|finish| {
                let before = std::mem::replace(&mut last, finish);
                (before > finish).then_some((name, before, finish))
            })
        };
        if self.lost.is_none() {
            let sets = [("ER", self.sets[ER]), ("EB", self.sets[EB])];
            self.lost = sets.into_iter().find_map(disorder);
        }
    }

    /// Returns whether every backlogged group is in the set that Section 4.1.3 defines, and in no other.
    fn is_as_defined(&self) -> bool {
        let waits = |group: &Group| !group.buckets.is_empty();
        let eligible = |group: &Group| group.start <= self.now;
        self.groups.iter().enumerate().all(|(i, group)| {
            let found = self.sets.map(|set| set >> i & 1 == 1);
            let mut above = self.groups[i + 1..].iter();
            let blocked =
                waits(group) && above.any(|x| waits(x) && eligible(x) && x.finish < group.finish);
            let defined = match (eligible(group), blocked) {
                (true, false) => ER,
                (false, false) => IR,
                (true, true) => EB,
                (false, true) => IB,
            };
            (0..4).all(|set| found[set] == (waits(group) && set == defined))
        })
    }
}

/// A link for packets of flows.
trait Link {
    fn enqueue(&mut self, flow: usize, bytes: u64);

    /// Flow and length.
    fn dequeue(&mut self) -> Option<(usize, u64)>;
}

impl Link for Model {
    /// Fig. 4.
    fn enqueue(&mut self, flow: usize, bytes: u64) {
        self.flows[flow].queue.push_back(bytes);
        if self.flows[flow].queue.len() > 1 {
            return;
        }
        let start = self.start_time(flow);
        let newcomer = &mut self.flows[flow];
        newcomer.start = start;
        newcomer.finish = start + bytes * newcomer.inverse;
        let i = newcomer.group;
        let group = &mut self.groups[i];
        let slot = rounded(start, i);
        if group.buckets.is_empty() || start < group.start {
            self.sets[IR] &= !(1 << i);
            self.sets[IB] &= !(1 << i);
            group.start = slot;
            group.finish = slot + (2 << i);
        }
        group.buckets.entry(slot).or_default().push_back(flow);
        if self.sets[ER] == 0 {
            self.now = self.now.max(group.start);
        }
        let state = self.state(i);
        self.sets[state] |= 1 << i;
        self.look();
    }

    /// Fig. 5.
    fn dequeue(&mut self) -> Option<(usize, u64)> {
        let i = lowest(self.sets[ER])?;
        let group = &mut self.groups[i];
        let mut bucket = group.buckets.first_entry()?;
        let flow = bucket.get_mut().pop_front()?;
        if bucket.get().is_empty() {
            bucket.remove();
        }
        let served = &mut self.flows[flow];
        let bytes = served.queue.pop_front()?;
        served.start = served.finish;
        if let Some(next) = served.queue.front() {
            served.finish = served.start + next * served.inverse;
            let slot = rounded(served.start, i);
            group.buckets.entry(slot).or_default().push_back(flow);
        }
        let before = self.now;
        self.now += bytes;
        let finish = group.finish;
        let first = group.buckets.first_key_value().map(|(&slot, _)| slot);
        if let Some(slot) = first {
            group.start = slot;
            group.finish = slot + (2 << i);
        }
        if first.is_none() || group.finish > finish {
            let state = self.state(i);
            self.sets[ER] &= !(1 << i);
            if first.is_some() {
                self.sets[state] |= 1 << i;
            }
            self.unblock(i, finish);
        }
        if let Some(x) = lowest(self.sets[IR] | self.sets[IB]) {
            if self.sets[ER] == 0 {
                self.now = self.now.max(self.groups[x].start);
            }
            self.make_eligible(before);
        }
        self.look();
        Some((flow, bytes))
    }
}

impl Link for PacketScheduler<Qfq, ()> {
    fn enqueue(&mut self, flow: usize, bytes: u64) {
        let flow = FlowId::new(flow as u32);
        PacketScheduler::enqueue(self, flow, length(bytes as u32), ()).unwrap();
    }

    fn dequeue(&mut self) -> Option<(usize, u64)> {
        let packet = PacketScheduler::dequeue(self)?;
        Some((packet.owner.number() as usize, packet.len.get().into()))
    }
}

/// 3 to 10 flows by 1 / phi and their longest packet.
fn any_flows(random: &mut Random) -> Vec<(u64, u64)> {
    let mut inverses = vec![1];
    let count = 3 + random.below(8) as usize;
    while inverses.len() < count {
        let half = random.below(inverses.len() as u32) as usize;
        inverses[half] *= 2;
        inverses.push(inverses[half]);
    }
    let with_length = |inverse| {
        let longest = 1 << random.below(10);
        (inverse, 1 + u64::from(random.below(longest)))
    };
    inverses.into_iter().map(with_length).collect()
}

/// Returns whether the order is lost within 300 steps, each an arrival or a departure.
fn loses_the_order(rule: Rule, seed: u64) -> bool {
    let mut random = Random(seed);
    let flows = any_flows(&mut random);
    let mut model = Model::new(rule, &flows);
    for step in 0..300 {
        let flow = random.below(flows.len() as u32) as usize;
        let bytes = 1 + u64::from(random.below(flows[flow].1 as u32));
        if random.below(2) == 0 {
            model.enqueue(flow, bytes);
        } else {
            model.dequeue();
        }
        if model.lost.is_some() {
            return true;
        }
        assert!(
            rule != Rule::EveryFlow || step % 50 > 0 || model.is_as_defined(),
            "{seed}: {step}: {model:?}"
        );
    }
    false
}

fn of_the_corrections(name: &str) -> String {
    let path = format!("{}/../../docs/{name}", env!("CARGO_MANIFEST_DIR"));
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The page has the counts of the long form.
#[test]
fn only_where_eq_29_is_for_every_newly_backlogged_flow_do_er_and_eb_keep_their_order() {
    let runs = times(600, 4_000);
    let lost = RULES.map(|rule| {
        let runs = 0..u64::from(runs);
        runs.filter(|&seed| loses_the_order(rule, seed)).count()
    });
    println!("of {runs} runs, {lost:?} lose the order");
    let [printed, idle_group, last_finish, every_flow] = lost;
    assert_eq!(every_flow, 0);
    assert!(0 < idle_group && idle_group < printed, "{lost:?}");
    assert!(idle_group < last_finish, "{lost:?}");
    if runs == 4_000 {
        let page = of_the_corrections("corrections.md");
        let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| ")).collect();
        for (rule, count) in RULES.iter().zip(lost) {
            let cell = format!("| {count} |");
            assert!(
                rows.iter().any(|row| row.ends_with(&cell)),
                "{rule:?}: {count} is not on the page"
            );
        }
    }
}

/// Rows of whole numbers below a header.
fn numbers<const N: usize>(name: &str) -> Vec<[u64; N]> {
    let text = of_the_corrections(&format!("corrections/back-shift/{name}.csv"));
    let row = |line: &str| {
        let numbers: Vec<u64> = line
            .split(',')
            .map(|number| number.parse().unwrap())
            .collect();
        numbers.try_into().unwrap()
    };
    text.lines().skip(1).map(row).collect()
}

/// The flows in their order on a link of a byte a nanosecond.
fn departures(link: &mut impl Link, arrivals: &[[u64; 3]]) -> Vec<usize> {
    let mut arrivals = arrivals.iter().peekable();
    let (mut now, mut order) = (0, Vec::new());
    loop {
        while let Some(&[_, flow, bytes]) = arrivals.next_if(|arrival| arrival[0] <= now) {
            link.enqueue(flow as usize, bytes);
        }
        match (link.dequeue(), arrivals.peek()) {
            (Some((flow, bytes)), _) => {
                now += bytes;
                order.push(flow);
            }
            (None, Some(next)) => now = next[0],
            (None, None) => return order,
        }
    }
}

/// A flow joins a group that is not idle, behind the F_b of one above.
#[test]
fn the_arrivals_on_the_page_break_the_order_by_every_other_rule() {
    let (flows, arrivals) = (numbers::<3>("flows"), numbers::<3>("arrivals"));
    let sum: u64 = flows.iter().map(|[_, weight, _]| weight).sum();
    let shares: Vec<(u64, u64)> = flows
        .iter()
        .map(|[_, weight, longest]| (sum / weight, *longest))
        .collect();
    let order = |rule| {
        let mut model = Model::new(rule, &shares);
        let order = departures(&mut model, &arrivals);
        (model.lost, order)
    };
    for rule in [Rule::Printed, Rule::IdleGroup, Rule::LastFinish] {
        assert_eq!(order(rule).0, Some(("EB", 232, 224)), "{rule:?}");
    }
    let (lost, expected) = order(Rule::EveryFlow);
    assert_eq!(lost, None);
    let mut link = scheduler(Qfq::new());
    for &[_, weight, longest] in &flows {
        link.add_flow(config(weight as u32, longest as u32))
            .unwrap();
    }
    assert_eq!(departures(&mut link, &arrivals), expected);
}

/// Theorem 2's printed form, 3 sigma + 2 L, with nothing of the flow left when its packets come, neither
/// waiting nor on the wire: two bytes, just as a packet of 1024 has been sent. The first carries S over the
/// end of its slot, so that the second waits for one slot more; Eq. 40 counts none for both of them. This
/// is by the listing, whatever the rule for blocked groups.
#[test]
fn two_bytes_that_come_to_an_empty_flow_exceed_theorem_2() {
    const LONGEST: u64 = 65_000;
    // Nine flows have the rest of the link, in packets that take as long at their shares.
    let others = (1..10).map(|n| (1 << n, LONGEST >> (n - 1)));
    let own = [(1024, 1024), (1024, 2048)];
    let flows: Vec<(u64, u64)> = own.into_iter().chain(others).collect();
    for rule in RULES {
        let mut model = Model::new(rule, &flows);
        model.enqueue(0, 1023);
        model.enqueue(0, 1024);
        assert_eq!(model.dequeue(), Some((0, 1023)));
        // V does not jump after the next packet, because this one is eligible.
        model.enqueue(1, 1);
        assert_eq!(model.dequeue(), Some((0, 1024)));
        for (flow, &(_, bytes)) in flows.iter().enumerate().skip(2) {
            (0..40).for_each(|_| model.enqueue(flow, bytes));
        }
        assert!(model.flows[0].queue.is_empty());
        model.enqueue(0, 1);
        model.enqueue(0, 1);
        let mut late = 0;
        while !model.flows[0].queue.is_empty() {
            late += model.dequeue().unwrap().1;
        }
        late -= 2 * 1024;
        let (sigma, printed) = (1 << 20, 3 * (1 << 20) + 2 * LONGEST);
        let holds = 3 * sigma + 1024 * 1024 + LONGEST - 1024 + LONGEST;
        assert_eq!((printed, holds), (3_275_728, 4_323_280));
        println!("{rule:?}: {late}");
        assert!((printed..holds).contains(&late), "{rule:?}: {late}");
    }
}
