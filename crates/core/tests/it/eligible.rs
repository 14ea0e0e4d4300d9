//! WF2Q+ and WF2Q against their own definitions, and the effect of serving only entities that have started: none is
//! ahead of its share by more than a packet.

use std::collections::{BTreeMap, VecDeque};

use crate::support::{
    Backlogged, FRACTION, OfBound as _, Offer, Random, Wfi, check, config, drain, length, next,
    scheduler, times, weight,
};
use fairlane_core::sched::{ByFluid, Wf2q, Wf2qPlus, Wfq};
use fairlane_core::scheduler::{EntityId, Removal, Scheduler};
use fairlane_core::{Charge, FlowId, Length, Share, VirtualTime, Weight};

fn charge(bytes: u32) -> Charge {
    Charge::new(bytes).unwrap()
}

/// An entity by Eqs. 2 and 3, in numbers that never wrap.
#[derive(Clone, Debug)]
struct Fluid {
    /// 2^[`FRACTION`] / phi, rounded up; and after the next service.
    inverse_weight: i128,
    pending: Option<i128>,
    /// S while active, the last F while not.
    start: i128,
    /// F while active.
    finish: Option<i128>,
    removed: bool,
}

impl Fluid {
    fn counted_weight(&self) -> i128 {
        ceil_div(1 << FRACTION, self.inverse_weight)
    }
}

fn ceil_div(a: i128, b: i128) -> i128 {
    (a + b - 1) / b
}

/// WF2Q+, evaluated over all entities at each question.
#[derive(Default)]
struct Equations {
    entities: BTreeMap<usize, Fluid>,
    /// V, and its fraction in 2^-64.
    now: i128,
    fraction: u128,
    /// The latest F of all that became inactive: V passes it when a busy period starts.
    latest: i128,
}

impl Equations {
    fn add(&mut self, id: usize, share: Share) {
        let fluid = Fluid {
            inverse_weight: ceil_div(1 << FRACTION, share.weight().get().into()),
            pending: None,
            start: 0,
            finish: None,
            removed: false,
        };
        assert!(self.entities.insert(id, fluid).is_none());
    }

    fn remove(&mut self, id: usize) -> bool {
        let entity = self.entities.get_mut(&id).unwrap();
        (entity.removed, entity.pending) = (true, None);
        let done = entity.finish.is_none();
        if done {
            self.entities.remove(&id);
        }
        done
    }

    fn change(&mut self, id: usize, share: Share) {
        let entity = self.entities.get_mut(&id).unwrap();
        let inverse_weight = ceil_div(1 << FRACTION, share.weight().get().into());
        match entity.finish {
            Some(_) => entity.pending = Some(inverse_weight),
            None => entity.inverse_weight = inverse_weight,
        }
    }

    fn place(&mut self, id: usize, head: u32) {
        let entity = self.entities.get_mut(&id).unwrap();
        entity.finish = Some(entity.start + i128::from(head) * entity.inverse_weight);
        self.jump();
    }

    fn backlogged(&mut self, id: usize, head: u32) {
        if self.entities.values().all(|entity| entity.finish.is_none()) {
            self.now = self.now.max(self.latest);
        }
        let entity = self.entities.get_mut(&id).unwrap();
        if entity.finish.is_none() {
            entity.start = entity.start.max(self.now);
            self.place(id, head);
        }
    }

    fn served(&mut self, bytes: u32) {
        let sum: i128 = self.entities.values().map(Fluid::counted_weight).sum();
        let inverse_sum = u128::from(u64::MAX) / sum as u128;
        self.fraction += (u128::from(bytes) << FRACTION) * inverse_sum;
        self.now += (self.fraction >> 64) as i128;
        self.fraction %= 1 << 64;
    }

    /// The second term of Eq. 3.
    fn jump(&mut self) {
        let active = self.entities.values().filter(|e| e.finish.is_some());
        let first = active.map(|entity| entity.start).min();
        self.now = self.now.max(first.unwrap_or(self.now));
    }

    fn leave(&mut self, id: usize, charged: u32, next: Option<u32>) {
        let now = self.now;
        let entity = self.entities.get_mut(&id).unwrap();
        entity.start += i128::from(charged) * entity.inverse_weight;
        if let Some(inverse_weight) = entity.pending.take() {
            if entity.start < now && inverse_weight < entity.inverse_weight {
                let behind = (now - entity.start) * inverse_weight / entity.inverse_weight;
                entity.start = now - behind;
            }
            entity.inverse_weight = inverse_weight;
        }
        entity.finish = None;
        match next {
            Some(head) => self.place(id, head),
            None => {
                self.latest = self.latest.max(entity.start);
                if entity.removed {
                    self.entities.remove(&id);
                }
                self.jump();
            }
        }
    }

    /// Returns whether `id`, or no entity, may be next.
    fn may_be_next(&self, id: Option<usize>) -> bool {
        let eligible = self.entities.values().filter(|e| e.start <= self.now);
        let earliest = eligible.filter_map(|entity| entity.finish).min();
        let Some(id) = id else {
            return self.entities.values().all(|e| e.finish.is_none());
        };
        let entity = &self.entities[&id];
        entity.start <= self.now && entity.finish.is_some() && entity.finish == earliest
    }
}

/// The algorithm and the equations, with the same input.
struct Both<'a> {
    random: Random,
    weights: &'a [u32],
    lengths: &'a [u32],
    equations: Equations,
    algorithm: Wf2qPlus,
    states: Vec<<Wf2qPlus as Scheduler>::Entity>,
    shares: BTreeMap<usize, Share>,
    /// The most that each entity may send.
    longest: BTreeMap<usize, Charge>,
    free: Vec<usize>,
}

fn of(index: usize) -> EntityId {
    EntityId::new(index).unwrap()
}

impl Both<'_> {
    fn any_share(&mut self) -> Share {
        let share = Share::new(weight(self.random.pick(self.weights)), length(65_535));
        let flows = 1 + self.random.below(8) * self.random.below(2);
        share.times(flows).unwrap_or(share)
    }

    fn any_charge(&mut self, most: Charge) -> u32 {
        self.random.pick(self.lengths).min(most.get())
    }

    fn some(&mut self) -> Option<usize> {
        let some: Vec<usize> = self.shares.keys().copied().collect();
        (!some.is_empty()).then(|| self.random.pick(&some))
    }

    fn add(&mut self) {
        let id = self.free.pop().unwrap_or(self.states.len());
        if id == self.states.len() {
            self.states.push(Default::default());
        }
        let share = self.any_share();
        self.algorithm.add(&mut self.states, of(id), share);
        self.equations.add(id, share);
        self.longest.insert(id, share.max_charge());
        self.shares.insert(id, share);
    }

    fn remove(&mut self, id: usize) {
        let done = self.algorithm.remove(&mut self.states, of(id)) == Removal::Done;
        assert_eq!(done, self.equations.remove(id));
        self.shares.remove(&id);
        if done {
            self.free.push(id);
        }
    }

    fn change(&mut self, id: usize) {
        let share = self.any_share();
        self.algorithm.change(&mut self.states, of(id), share);
        self.equations.change(id, share);
        // Until its next place, it sends nothing that either share forbids.
        let most = share.max_charge();
        let is_active = self.algorithm.is_active(&self.states, of(id));
        let place = is_active.then_some(self.longest[&id]);
        self.longest
            .insert(id, place.map_or(most, |before| before.min(most)));
        self.shares.insert(id, share);
    }

    fn backlogged(&mut self, id: usize) {
        let head = self.any_charge(self.longest[&id]);
        let charge = charge(head);
        self.algorithm.backlogged(&mut self.states, of(id), charge);
        self.equations.backlogged(id, head);
    }

    fn served(&mut self, bytes: u32) {
        self.algorithm.served(charge(bytes));
        self.equations.served(bytes);
    }

    /// Others come while the selected one is on hold.
    fn hold(&mut self, id: EntityId, charged: u32) {
        self.algorithm.hold(&mut self.states, id);
        for _ in 0..2 {
            if charged > 1 {
                self.served(1);
            }
            if let Some(other) = self.some() {
                self.backlogged(other);
            }
            assert_eq!(self.algorithm.select(&self.states).get(), Some(id));
            self.algorithm.invariants(&self.states).unwrap();
        }
    }

    fn serve(&mut self, id: EntityId, on_hold: bool) {
        let entity = id.index();
        let share = self.shares.get(&entity).copied();
        let now = self.longest[&entity];
        let then = share.map(|share| share.max_charge());
        let (charged, next) = match (share, self.random.below(20)) {
            (None, _) | (_, 0) => (0, None),
            (_, 1..6) => (self.any_charge(now), None),
            _ => {
                let next = self.any_charge(then.unwrap_or(now));
                (self.any_charge(now), Some(next))
            }
        };
        if on_hold {
            self.hold(id, charged);
        }
        if charged > 0 {
            self.served(charged);
            let (charged, next) = (charge(charged), next.map(charge));
            self.algorithm
                .reschedule(&mut self.states, id, charged, next);
        } else {
            self.algorithm.idle(&mut self.states, id);
        }
        self.equations.leave(entity, charged, next);
        self.longest.insert(entity, then.unwrap_or(now));
        if next.is_none() && share.is_none() {
            self.free.push(entity);
        }
    }
}

/// A random sequence of all statements, to the algorithm and to the equations.
fn drive(start: VirtualTime, weights: &[u32], lengths: &[u32], busy: u32, seed: u64) {
    let mut both = Both {
        random: Random(seed),
        weights,
        lengths,
        equations: Equations::default(),
        algorithm: Wf2qPlus::starting_at(start),
        states: Vec::new(),
        shares: BTreeMap::new(),
        longest: BTreeMap::new(),
        free: Vec::new(),
    };
    for _ in 0..times(5_000, 20_000) {
        let choice = both.random.below(40);
        match (choice, both.some()) {
            (0, _) if both.shares.len() < 40 => both.add(),
            (1, Some(id)) if both.shares.len() > 5 => both.remove(id),
            (2 | 3, Some(id)) => both.change(id),
            (n, Some(id)) if n < 4 + busy => both.backlogged(id),
            (n, _) => match both.algorithm.select(&both.states).get() {
                Some(id) => both.serve(id, n % 4 == 0),
                None => continue,
            },
        }
        let Both {
            equations,
            algorithm,
            states,
            ..
        } = &both;
        algorithm.invariants(states).unwrap();
        assert_eq!(
            algorithm.virtual_time(),
            start.advanced(equations.now as u64)
        );
        let selected = algorithm.select(states).get().map(EntityId::index);
        assert!(
            equations.may_be_next(selected),
            "{selected:?} is selected at V = {}: {:#?}",
            equations.now,
            equations.entities
        );
    }
}

#[test]
fn every_choice_is_one_that_the_equations_allow() {
    let weights: [&[u32]; 4] = [
        &[1],
        &[1, 2, 3],
        &[1000, 1001, 4000, 65_537],
        &[1, 30, 1000, 999_999, 1_000_000],
    ];
    let lengths: [&[u32]; 4] = [&[1000], &[40, 576, 1500], &[1, 65_535], &[1 << 20, 3, 1500]];
    for (seed, weights) in (1..).zip(weights) {
        for (lengths, busy) in lengths.into_iter().zip([4, 10, 20, 30]) {
            drive(VirtualTime::new(0), weights, lengths, busy, seed);
            let soon_to_wrap = VirtualTime::new((seed << 58).wrapping_neg());
            drive(soon_to_wrap, weights, lengths, busy, seed + 100);
        }
    }
}

/// Bennett and Zhang's example: a flow with half of the link, and ten that share the
/// other half. By finish times alone, ten packets of the first come in a row, and then
/// ten of the others.
#[test]
fn half_the_link_goes_to_every_other_packet() {
    alternates(Wf2q::new());
    alternates(Wf2qPlus::new());
    let order = bennett_zhang(Wf2q::new());
    let alternating = (1..=10).flat_map(|other| [0, other]).chain([0]);
    assert!(
        order.iter().copied().eq(alternating),
        "WF2Q, as published: {order:?}"
    );
    let order = bennett_zhang(Wfq::new());
    let in_a_row = [0; 10].into_iter().chain(1..=10).chain([0]);
    assert!(
        order.iter().copied().eq(in_a_row),
        "WFQ, as published: {order:?}"
    );
}

/// Returns the numbers of the flows in the example, in the order of their packets.
fn bennett_zhang<A: Scheduler>(algorithm: A) -> Vec<u32> {
    let mut link = scheduler(algorithm);
    let packets = [11].into_iter().chain([1; 10]);
    for (packets, weight) in packets.zip([10].into_iter().chain([1; 10])) {
        let flow = link.add_flow(config(weight, 1000)).unwrap();
        for _ in 0..packets {
            link.enqueue(flow, length(1000), ()).unwrap();
        }
    }
    let order = drain(&mut link).into_iter();
    order.map(|(flow, _)| flow.number()).collect()
}

fn alternates<A: Scheduler>(algorithm: A) {
    let mut link = scheduler(algorithm);
    let half = link.add_flow(config(10, 1000)).unwrap();
    for _ in 0..11 {
        link.enqueue(half, length(1000), ()).unwrap();
    }
    for _ in 0..10 {
        let other = link.add_flow(config(1, 1000)).unwrap();
        link.enqueue(other, length(1000), ()).unwrap();
    }
    // A packet that may leave just now may leave after the next one, by a rounding.
    let mut ahead = 0;
    for (flow, _) in drain(&mut link) {
        ahead += if flow == half { 1 } else { -1 };
        assert!((-1..=1).contains(&ahead), "{ahead} packets ahead");
    }
}

/// Flows that are never idle, and in the fluid server neither: they hold more than it may
/// be ahead by.
fn standing<A: Scheduler>(algorithm: A, offers: &[Offer]) -> Backlogged<A> {
    let longest = offers.iter().map(|offer| offer.max_length).max().unwrap();
    let packets = |offer: &Offer| 2 + longest / offer.lengths.iter().min().unwrap();
    Backlogged::holding(algorithm, offers.to_vec(), packets)
}

fn sets_of_flows() -> Vec<Vec<Offer>> {
    vec![
        vec![Offer::mixed(17, 1500)],
        vec![Offer::mixed(1, 1500), Offer::mixed(1_000_000, 1500)],
        vec![Offer::mixed(3, 1500), Offer::mixed(1, 65_535)],
        (0..15).map(|n| Offer::of(1 << n, 1500)).collect(),
        (0..15).map(|n| Offer::mixed(1 << n, 1500)).collect(),
        (0..10).map(|n| Offer::mixed(1 << n, 64 << n)).collect(),
        (0..10).map(|n| Offer::mixed(512 >> n, 64 << n)).collect(),
        (1..30).map(|n| Offer::mixed(n * n * n, 1500)).collect(),
        (0..500).map(|_| Offer::mixed(1, 1500)).collect(),
        [(1000, 1), (1000, 64), (3, 100), (1, 65_535), (1, 40_000)]
            .map(|(weight, longest)| Offer::mixed(weight, longest))
            .into(),
    ]
}

/// After a packet of its own, S^k is at most `L^k / phi - L^k` after V, since it was served
/// when S^k <= V. Before one, it is at most `L^k / phi + L - L^k` before V, since the packet
/// ends no later than F^k + L. So the flow is behind by `(2 - 2 phi) L^k + phi L` at
/// most, and after that packet by L^k (1 - phi) + phi L: Bennett and Zhang's B-WFI, which
/// counts intervals that end there.
#[test]
fn every_flow_is_within_the_least_worst_case_fair_index() {
    comes_near_the_least_bound(Wf2q::new);
    comes_near_the_least_bound(Wf2qPlus::new);
}

fn comes_near_the_least_bound<A: Scheduler>(new: fn() -> A) {
    let mut worst = 0.0f64;
    for offers in sets_of_flows() {
        let mut wfi = Wfi::new(&offers);
        let mut flows = standing(new(), &offers);
        for _ in 0..100_000 {
            let (flow, bytes) = flows.serve();
            wfi.serve(flow, bytes);
        }
        for (flow, offer) in offers.iter().enumerate() {
            wfi.look(flow);
            let of_bound = wfi.of_least_bound(flow);
            assert!(of_bound <= 1.0, "{offer:?}: {of_bound} of the bound");
            worst = worst.max(of_bound);
        }
        check(&flows.link);
    }
    assert!(worst > 0.8, "{worst} of the bound");
}

/// A flow is never ahead of its share by more than a packet, whatever the others do.
#[test]
fn no_flow_is_ahead_of_its_share_by_more_than_its_longest_packet() {
    stays_behind_its_share(Wf2q::new);
    stays_behind_its_share(Wf2qPlus::new);
}

fn stays_behind_its_share<A: Scheduler>(new: fn() -> A) {
    for offers in sets_of_flows() {
        let sum: i64 = offers.iter().map(|offer| i64::from(offer.weight)).sum();
        let mut flows = standing(new(), &offers);
        let (mut work, mut served) = (0, vec![0; offers.len()]);
        for _ in 0..50_000 {
            let (flow, bytes) = flows.serve();
            work += i64::from(bytes);
            served[flow] += i64::from(bytes);
            let (offer, weight) = (&offers[flow], i64::from(offers[flow].weight));
            // Times the sum of weights; virtual time is rounded by less than a byte.
            let ahead = served[flow] * sum - weight * work;
            let most = i64::from(offer.max_length) * (sum - weight) + sum;
            assert!(ahead <= most, "{offer:?} is ahead by {}", ahead / sum);
        }
    }
}

/// Returns the departures of a workload with flows that come and go, and the virtual time after it.
fn departures<A: Scheduler>(algorithm: A, now: fn(&A) -> VirtualTime) -> (Vec<u32>, VirtualTime) {
    let mut link = scheduler(algorithm);
    let mut random = Random(5);
    let flows = [1, 1, 2, 3].map(|weight| link.add_flow(config(weight, 9000)).unwrap());
    let mut departures = Vec::new();
    for _ in 0..2000 {
        if random.below(2) == 0 {
            let flow = random.pick(&flows);
            let bytes = length(1 + random.below(9000));
            link.enqueue(flow, bytes, ()).unwrap();
        } else if !link.is_empty() {
            departures.push(next(&mut link).owner.number());
        }
    }
    check(&link);
    let end = now(link.algorithm());
    (departures, end)
}

#[test]
fn an_order_does_not_depend_on_where_virtual_time_starts_or_wraps() {
    fn test<A: Scheduler>(from: fn(VirtualTime) -> A, now: fn(&A) -> VirtualTime) {
        let (expected, end) = departures(from(VirtualTime::new(0)), now);
        assert!(end.units() > 1 << 58, "the last start below lets V wrap");
        for turn in 1..64 {
            let start = VirtualTime::new((turn << 58) + 12_345);
            let (order, end) = departures(from(start), now);
            assert_eq!(order, expected, "from {start:?}");
            assert!(turn != 63 || end.units() < start.units(), "V wraps");
        }
    }
    test(Wf2q::starting_at, Wf2q::virtual_time);
    test(Wf2qPlus::starting_at, Wf2qPlus::virtual_time);
}

/// A time in GPS: rounded down to 2^-64, and the work that this leaves out.
#[derive(Clone, Copy, Default, PartialEq, PartialOrd)]
struct Tag(u128, u128);

impl Tag {
    fn after(self, bytes: u32, weight: u32) -> Tag {
        let work = (u128::from(bytes) << 64) + self.1;
        Tag(
            self.0 + work / u128::from(weight),
            work % u128::from(weight),
        )
    }
}

/// Returns the nearest timestamp, of any size.
fn timestamp(time: u128) -> u128 {
    (time + (1 << 31)) >> 32 << 8
}

/// A packet of a flow, with its tags.
struct Tagged {
    bytes: u32,
    start: Tag,
    finish: Tag,
}

/// GPS, and WF2Q or WFQ, evaluated over all packets.
struct Gps {
    eligible: bool,
    weights: Vec<u32>,
    now: u128,
    /// Work done that V has not been moved by.
    carry: u128,
    /// When each flow's last packet finishes, while it is backlogged.
    finish: Vec<Option<Tag>>,
    waiting: Vec<VecDeque<Tagged>>,
}

impl Gps {
    fn new(weights: &[u32], eligible: bool) -> Gps {
        Gps {
            eligible,
            weights: weights.to_vec(),
            now: 0,
            carry: 0,
            finish: vec![None; weights.len()],
            waiting: weights.iter().map(|_| VecDeque::new()).collect(),
        }
    }

    fn arrived(&mut self, flow: usize, bytes: u32) {
        let start = self.finish[flow].unwrap_or(Tag(self.now, 0));
        let finish = start.after(bytes, self.weights[flow]);
        self.finish[flow] = Some(finish);
        self.waiting[flow].push_back(Tagged {
            bytes,
            start,
            finish,
        });
    }

    fn heads(&self) -> impl Iterator<Item = (usize, &Tagged)> {
        let heads = self.waiting.iter().enumerate();
        heads.filter_map(|(flow, waiting)| Some((flow, waiting.front()?)))
    }

    fn serve(&mut self, flow: usize, bytes: u32) {
        let now = timestamp(self.now);
        let may_leave = |head: &Tagged| !self.eligible || timestamp(head.start.0) <= now;
        let heads = self.heads().filter(|(_, head)| may_leave(head));
        let first = heads.map(|(flow, head)| (timestamp(head.finish.0), flow));
        let first = first.min().expect("a head is eligible");
        assert_eq!((first.1, self.waiting[flow][0].bytes), (flow, bytes));
        self.waiting[flow].pop_front();
        let mut left = (u128::from(bytes) << 64) + self.carry;
        loop {
            let busy = (0..self.weights.len()).filter_map(|n| Some((self.finish[n]?, n)));
            let sum: u128 = busy.clone().map(|(_, n)| u128::from(self.weights[n])).sum();
            let next = busy.min_by(|a, b| a.partial_cmp(b).unwrap());
            let Some((next, first)) = next else {
                assert_eq!(left, 0, "both servers are busy at the same times");
                break;
            };
            let need = (next.0 - self.now) * sum + next.1;
            if need > left {
                let most = next.0 - self.now;
                let advance = (left / sum).min(most);
                self.now += advance;
                left -= advance * sum;
                break;
            }
            (self.now, left) = (next.0, left - need);
            self.finish[first] = None;
        }
        self.carry = left;
    }
}

/// GPS by bytes, in floating point: another way to the same.
struct Fluids {
    weights: Vec<u32>,
    backlog: Vec<f64>,
    served: Vec<f64>,
}

impl Fluids {
    fn served(&mut self, bytes: u32) {
        let mut left = f64::from(bytes);
        while left > 1e-9 {
            let busy: Vec<usize> = (0..self.weights.len())
                .filter(|&flow| self.backlog[flow] > 1e-9)
                .collect();
            let sum: f64 = busy.iter().map(|&n| f64::from(self.weights[n])).sum();
            let until = busy
                .iter()
                .map(|&flow| self.backlog[flow] / f64::from(self.weights[flow]))
                .fold(left / sum, f64::min);
            if busy.is_empty() {
                return;
            }
            for flow in busy {
                let part = until * f64::from(self.weights[flow]);
                self.backlog[flow] -= part;
                self.served[flow] += part;
            }
            left -= until * sum;
        }
    }
}

/// Flows come and go, so that some find the fluid server done with their flow while older
/// packets of it still wait.
fn beside_gps<const ELIGIBLE: bool>(weights: &[u32], lengths: &[u32], one_in: u32, seed: u64) {
    let mut link = scheduler(ByFluid::<ELIGIBLE>::new());
    let mut random = Random(seed);
    let mut gps = Gps::new(weights, ELIGIBLE);
    let mut fluids = Fluids {
        weights: weights.to_vec(),
        backlog: vec![0.0; weights.len()],
        served: vec![0.0; weights.len()],
    };
    let sum: u32 = weights.iter().sum();
    let longest = *lengths.iter().max().unwrap();
    let mut sent = vec![0.0; weights.len()];
    for &weight in weights {
        link.add_flow(config(weight, longest)).unwrap();
    }
    for n in 0..times(5_000, 20_000) {
        for flow in 0..weights.len() {
            if random.below(one_in) == 0 {
                let bytes = random.pick(lengths);
                let id = FlowId::new(flow as u32);
                link.enqueue(id, length(bytes), ()).unwrap();
                gps.arrived(flow, bytes);
                fluids.backlog[flow] += f64::from(bytes);
            }
        }
        if !link.is_empty() {
            let packet = next(&mut link);
            let (flow, bytes) = (packet.owner.number() as usize, packet.len.get());
            gps.serve(flow, bytes);
            assert_eq!(
                link.algorithm().virtual_time().units(),
                timestamp(gps.now) as u64,
                "V"
            );
            fluids.served(bytes);
            sent[flow] += f64::from(bytes);
            for flow in 0..weights.len() {
                // Both of Bennett and Zhang's bounds, plus rounding.
                let behind = fluids.served[flow] - sent[flow];
                assert!(
                    behind < f64::from(longest) + 1.0,
                    "{behind} bytes behind GPS"
                );
                let share = f64::from(weights[flow]) / f64::from(sum);
                let most = (1.0 - share) * f64::from(longest) + 1.0;
                assert!(
                    -behind < most || !ELIGIBLE,
                    "{} bytes ahead of GPS",
                    -behind
                );
            }
        }
        if n % 50 == 0 {
            check(&link);
        }
    }
}

#[test]
fn every_packet_is_the_one_that_the_fluid_server_finishes_first() {
    let weights: [&[u32]; 5] = [
        &[1, 1],
        &[5, 3, 2, 1],
        &[1, 2, 4, 8, 16, 32, 64, 128],
        &[1000, 1001, 17, 65_537, 3, 3],
        &[1; 20],
    ];
    let lengths: [&[u32]; 4] = [&[1000], &[40, 576, 1500], &[1, 1, 1, 1, 9000], &[1, 65_535]];
    for (seed, weights) in (1..).zip(weights) {
        for lengths in lengths {
            // A little less than the link can send, and more.
            let count = weights.len() as u32;
            for one_in in [count + count / 8, count + 1, count] {
                beside_gps::<true>(weights, lengths, one_in, seed);
                beside_gps::<false>(weights, lengths, one_in, seed);
            }
        }
    }
}

/// While a long packet is sent, GPS is done with two short ones that come one after the other, each alone in its flow:
/// each starts at its arrival, and not at the finish of the one before.
#[test]
fn a_flow_that_was_idle_in_the_fluid_server_starts_again() {
    let mut link = scheduler(Wf2q::new());
    let [short, long] = [(1, 100), (1, 100)]
        .map(|(weight, longest)| link.add_flow(config(weight, longest)).unwrap());
    for _ in 0..40 {
        link.enqueue(long, length(100), ()).unwrap();
    }
    for _ in 0..10 {
        link.enqueue(short, length(1), ()).unwrap();
        for _ in 0..2 {
            next(&mut link);
            check(&link);
        }
    }
    let stats = link.flow_stats(short).unwrap();
    assert_eq!(stats.sent.packets, 10, "each goes before the next long one");
}

/// A queue whose last packet finishes further away than virtual time's circle is long.
#[test]
fn a_queue_may_be_longer_than_virtual_time() {
    let mut link = scheduler(Wf2q::new());
    let flows = [1, 3].map(|weight| link.add_flow(config(weight, 65_535)).unwrap());
    for _ in 0..400 {
        for flow in flows {
            link.enqueue(flow, length(65_535), ()).unwrap();
        }
    }
    check(&link);
    let order = drain(&mut link).into_iter().map(|(flow, _)| flow);
    let of_three = order.take(532).filter(|&flow| flow == flows[1]).count();
    assert!((397..=400).contains(&of_three), "{of_three} of 532");
    check(&link);
}

/// All of a flow's backlog is discarded: its earlier service stays accounted for.
#[test]
fn the_fluid_server_forgets_what_is_discarded() {
    for sent in 0..10 {
        let mut link = scheduler(Wf2q::new());
        let flows = [1, 1].map(|weight| link.add_flow(config(weight, 1000)).unwrap());
        for _ in 0..1000 {
            link.enqueue(flows[0], length(1000), ()).unwrap();
        }
        link.enqueue(flows[1], length(1000), ()).unwrap();
        for _ in 0..sent {
            next(&mut link);
        }
        link.flush_flow(flows[0], |_| {}).unwrap();
        check(&link);
        drain(&mut link);
        for _ in 0..10 {
            link.enqueue(flows[0], length(1000), ()).unwrap();
            link.enqueue(flows[1], length(1000), ()).unwrap();
        }
        let order: Vec<FlowId> = drain(&mut link).into_iter().map(|(flow, _)| flow).collect();
        let pairs = order.chunks(2);
        assert!(
            pairs.into_iter().all(|pair| pair[0] != pair[1]),
            "{order:?}"
        );
    }
}

/// From its next packet on, each of these flows has its new share of the link.
#[test]
fn shares_follow_a_new_weight() {
    fn test<A: Scheduler>(algorithm: A) {
        let weights = [(1, 30), (20, 2), (9, 9), (1000, 1), (1, 1000)];
        let offers = weights.map(|(weight, _)| Offer::mixed(weight, 1500));
        let mut flows = standing(algorithm, &offers);
        for _ in 0..1000 {
            flows.serve();
        }
        for (flow, (_, weight)) in (0..).zip(weights) {
            let config = config(weight, 1500);
            flows.link.change_flow(FlowId::new(flow), config).unwrap();
        }
        let sum: u32 = weights.iter().map(|(_, weight)| weight).sum();
        for round in 0..2 {
            let (mut work, mut served) = (0.0, [0.0; 5]);
            for _ in 0..100_000 {
                let (flow, bytes) = flows.serve();
                work += f64::from(bytes);
                served[flow] += f64::from(bytes);
            }
            check(&flows.link);
            for (served, (_, weight)) in served.into_iter().zip(weights) {
                let fair = work * f64::from(weight) / f64::from(sum);
                // Some have waited at their old weight for a while.
                let most = if round == 0 { fair / 2.0 } else { 0.0 };
                let error = f64::abs(served - fair);
                assert!(error < most + 5000.0, "{}: {served} of {fair}", A::NAME);
            }
        }
    }
    test(Wf2q::new());
    test(Wf2qPlus::new());
}

/// After 64 turns of virtual time an old finish time looks like one to come again.
#[test]
fn a_finish_time_of_many_turns_ago_keeps_nobody_back() {
    let quarter = 1u64 << 62;
    let mut wf2q_plus = Wf2qPlus::starting_at(VirtualTime::new(quarter / 10 * 9));
    let mut entities = vec![<Wf2qPlus as Scheduler>::Entity::default(); 2];
    let ids = [0, 1].map(|index| EntityId::new(index).unwrap());
    for id in ids {
        wf2q_plus.add(&mut entities, id, Share::new(Weight::ONE, Length::MAX));
    }
    let packet = Charge::from(Length::MAX);
    wf2q_plus.backlogged(&mut entities, ids[0], packet);
    wf2q_plus.served(packet);
    wf2q_plus.reschedule(&mut entities, ids[0], packet, None);
    // V advances by half a byte's units for each byte: to the start of the 256th quarter from there, where F of then
    // lies most of a quarter ahead.
    let mut left = (1u64 << 31) - (quarter >> 39) / 100 * 85;
    while left > 0 {
        let bytes = left.min(1 << 20);
        wf2q_plus.served(Charge::new(bytes as u32).unwrap());
        left -= bytes;
    }
    // Not alone: V would jump to its start.
    for id in [ids[1], ids[0]] {
        wf2q_plus.backlogged(&mut entities, id, packet);
    }
    wf2q_plus.invariants(&entities).unwrap();
    let served = [0; 4].map(|_: u8| {
        let id = wf2q_plus.select(&entities).get().unwrap();
        wf2q_plus.served(packet);
        wf2q_plus.reschedule(&mut entities, id, packet, Some(packet));
        id
    });
    assert_eq!(served.iter().filter(|&&id| id == ids[0]).count(), 2);
}
