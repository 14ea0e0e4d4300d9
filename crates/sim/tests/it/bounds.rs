//! No flow ever falls further behind than its algorithm's bound says, for all weights, lengths,
//! arrivals, transmit queues, and flows that are added, changed and removed.
//!
//! Each test runs the cases of seeds 0, 1, 2, .. A failure prints the command that runs its
//! case alone. For a longer search:
//!
//! ```sh
//! FAIRLANE_CASES=10000 cargo test --profile fuzz -p fairlane-sim --test it bounds
//! ```

use std::collections::HashMap;

use crate::support::{config, for_each_seed, length, rate};
use fairlane_core::bounds::{self, Aggregate, Round, Slot, Terms, Transmit};
use fairlane_core::sched::AUTOMATIC_MEMBERS;
use fairlane_core::scheduler::Scheduler;
use fairlane_core::{FlowConfig, FlowId, Length, Rate, SchedulerLimits, Weight, sched};
use fairlane_sim::{
    Backlogged, FlowPlan, Lengths, Now, Observer, Picos, Server, Simulation, Traffic,
    TransmitQueue, Wfi, WfiMeter, scenario,
};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

/// Tests an algorithm: its name here, how it is made, the bound of a flow, and what
/// changes may cost a flow beyond it.
macro_rules! bounded {
    ($($name:ident: $algorithm:expr, $late:expr, $bound:expr;)+) => {
        $(
            #[test]
            fn $name() {
                no_flow_exceeds(stringify!($name), || $algorithm, $late, $bound);
            }
        )+
    };
}

bounded! {
    qfq: sched::Qfq::new(), Around::late_in_groups, |around, flow| {
        let terms = around.terms(flow);
        Some(bounds::qfq(&terms, Slot::Actual) + bounds::qfq_rounding(&terms, around.work))
    };
    gfq: sched::Gfq::new(), Around::late_in_groups, |around, flow| {
        let terms = around.terms(flow);
        Some(bounds::gfq(&terms, Slot::Actual) + bounds::qfq_rounding(&terms, around.work))
    };
    s_kps: sched::SKps::new(), Around::late_in_groups, |around, flow| {
        let terms = around.terms(flow);
        Some(bounds::s_kps(&terms, Slot::Actual) + bounds::qfq_rounding(&terms, around.work))
    };
    wf2q_plus: sched::Wf2qPlus::new(), Around::late, |around, flow| {
        let terms = around.terms(flow);
        Some(bounds::wf2q_plus(&terms) + bounds::qfq_rounding(&terms, around.work))
    };
    wf2q: sched::Wf2q::new(), Around::late, |around, flow| {
        let terms = around.terms(flow);
        let wfi = bounds::wf2q(&terms) + bounds::qfq_rounding(&terms, around.work);
        // B-WFI is for flows that the fluid server has packets of, which is not measured.
        Some(bounds::Wfi { service: bounds::Work::new(f64::MAX)?, ..wfi })
    };
    wfq: sched::Wfq::new(), Around::late, |around, flow| {
        let terms = around.terms(flow);
        let all = around.flows.iter().chain(&around.others);
        let slowest = all.map(|flow| Around::packet(flow) * around.weight_sum(flow) as f64);
        let slowest = bounds::Work::new(slowest.fold(0.0, f64::max))?;
        let wfi = bounds::wfq(&terms, slowest) + bounds::qfq_rounding(&terms, around.work);
        // As WF2Q's.
        Some(bounds::Wfi { service: bounds::Work::new(f64::MAX)?, ..wfi })
    };
    qfq_plus: sched::Plus::<sched::Qfq>::default(), Around::late_in_grouped_aggregates, |around, flow| {
        around.aggregated(flow, |aggregate| bounds::qfq_plus(aggregate, Slot::Actual))
    };
    gfq_plus: sched::Plus::<sched::Gfq>::default(), Around::late_in_grouped_aggregates, |around, flow| {
        around.aggregated(flow, |aggregate| bounds::gfq_plus(aggregate, Slot::Actual))
    };
    s_kps_plus: sched::Plus::<sched::SKps>::default(), Around::late_in_grouped_aggregates, |around, flow| {
        around.aggregated(flow, |aggregate| bounds::s_kps_plus(aggregate, Slot::Actual))
    };
    wf2q_plus_plus: sched::Plus::<sched::Wf2qPlus>::default(), Around::late_in_aggregates, |around, flow| {
        around.aggregated(flow, bounds::wf2q_plus_plus)
    };
    drr: sched::Drr::new(), Around::late_in_rounds, |around, flow| around.in_round(flow, bounds::drr);
    drr_of_quantum: sched::DrrOfQuantum::new(length(200)), Around::late_in_rounds, |around, flow| {
        let all = around.flows.iter().chain(&around.others);
        let lightest = all.map(|flow| flow.weight).min()?;
        around.in_round(flow, |round, weight, longest, transmit| {
            bounds::drr(&round.with_quantum(lightest, length(200)), weight, longest, transmit)
        })
    };
    scfq: sched::Scfq::new(), Around::late, |around, flow| {
        let terms = around.terms(flow);
        Some(around.in_round(flow, bounds::scfq)? + bounds::qfq_rounding(&terms, around.work))
    };
}

/// All flows are added one by one. The first of an aggregate is backlogged at once, and the
/// weight that the others bring counts from its next place on. By then it may be late by
/// two slots; at eight times the weight this would be far more than V has allowed for.
#[test]
fn growing_aggregates_delay_no_other_flow() {
    let longest = length(65_535);
    let plans = scenario::half(1001, longest).into_iter().map(|config| {
        // A service takes just less than a slot.
        FlowPlan::new(config, Traffic::Greedy(2), Lengths::Fixed(longest))
    });
    let case = Case {
        rate: rate(1_000_000_000_000),
        queue: TransmitQueue::NONE,
        plans: plans.collect(),
        until: Picos(u128::from(longest.get()) * 8 * 4000),
    };
    let (lives, work) = run(sched::Plus::<sched::Qfq>::default(), &case, 0);
    let bound: Bound = |around, flow| {
        around.aggregated(flow, |aggregate| bounds::qfq_plus(aggregate, Slot::Actual))
    };
    let late = Around::late_in_grouped_aggregates;
    let (ratio, what) = worst_ratio(&lives, work, &case, late, bound).unwrap();
    assert!(ratio <= 1.0, "{ratio} of the bound, {what}");
}

/// The environment of a flow that determines its bound.
struct Around {
    /// The smallest sum of weights while it was there.
    weight_sum: u64,
    longest: Length,
    transmit: Transmit,
    /// All flows that there ever were, as they ever were.
    flows: Vec<FlowConfig>,
    /// Those that were changed or removed while it was there, as they were before.
    others: Vec<FlowConfig>,
    /// Bytes that the link sent.
    work: u64,
}

impl Around {
    /// By a bound over a round of all flows that there ever were.
    fn in_round(
        &self,
        flow: &FlowConfig,
        bound: impl Fn(&Round, Weight, Length, Transmit) -> Option<bounds::Wfi>,
    ) -> Option<bounds::Wfi> {
        let all = self.flows.iter().chain(&self.others);
        let round = Round::of(all.map(|flow| (flow.weight, flow.max_length)))?;
        let wfi = bound(&round, flow.weight, flow.max_length, self.transmit)?;
        // Its share is that among the flows that are there, not among all of the round.
        let share = self.terms(flow).share();
        let unfinished = (1.0 - share) * f64::from(flow.max_length.get());
        let service = bounds::Work::new(share * wfi.delay.bytes() + unfinished)?;
        Some(bounds::Wfi { service, ..wfi })
    }

    fn terms(&self, flow: &FlowConfig) -> Terms {
        Terms::new(
            flow.weight,
            self.weight_sum(flow),
            flow.max_length,
            self.longest,
            self.transmit,
        )
        .unwrap()
    }

    /// Returns the loosest bound over the sizes that the flow's aggregate may have.
    fn aggregated(
        &self,
        flow: &FlowConfig,
        bound: impl Fn(&Aggregate) -> bounds::Wfi,
    ) -> Option<bounds::Wfi> {
        let terms = self.terms(flow);
        let most = AUTOMATIC_MEMBERS.get();
        // No more of them than weigh as much as all flows together.
        let all = (1..=most)
            .filter_map(|members| Aggregate::new(terms, members, most).ok())
            .map(|aggregate| bound(&aggregate));
        // Each index may be the largest for another size.
        let larger = |one, other| if one > other { one } else { other };
        let loosest = all.reduce(|one, other| bounds::Wfi {
            service: larger(one.service, other.service),
            delay: larger(one.delay, other.delay),
            latency: larger(one.latency, other.latency),
            ..one
        })?;
        Some(loosest + bounds::qfq_rounding(&terms, self.work))
    }

    fn weight_sum(&self, flow: &FlowConfig) -> u64 {
        self.weight_sum.max(flow.weight.get().into())
    }

    /// The bounds of a flow in virtual time: B-WFI and T-WFI.
    fn virtually(&self, flow: &FlowConfig, bound: Bound) -> Option<(f64, f64)> {
        let wfi = bound(self, flow)?;
        let service = wfi.service.bytes() / f64::from(flow.weight.get());
        Some((service, wfi.delay.bytes() / self.weight_sum(flow) as f64))
    }

    /// Returns the longest packet of `flow` in its own virtual time.
    fn packet(flow: &FlowConfig) -> f64 {
        f64::from(flow.max_length.get()) / f64::from(flow.weight.get())
    }

    /// Returns the virtual time of the longest packet of all, or of a budget of `packets` of them.
    fn longest(&self, packets: u32) -> f64 {
        f64::from(packets) * f64::from(self.longest.get()) / self.weight_sum as f64
    }

    /// Until a flow that was changed or removed has had its next turn, at the latest.
    fn turn(&self, flow: &FlowConfig, bound: Bound) -> Option<f64> {
        Some(self.virtually(flow, bound)?.1 + Around::packet(flow))
    }

    /// With exact timestamps.
    fn late(&self, life: &Life, bound: Bound) -> Option<f64> {
        let (mut late, mut shares) = (0.0, 0.0);
        for other in &self.others {
            let share = f64::from(other.weight.get()) / self.weight_sum as f64;
            late += self.turn(other, bound)? * share;
            shares += share;
        }
        late *= 1.0 + shares;
        if life.configs.len() > 1 {
            let turns = life.configs.iter().map(|own| self.turn(own, bound));
            late += largest(turns.collect::<Option<Vec<_>>>()?);
        }
        Some(late)
    }

    /// Returns the contribution of groups, if the lowest one changes `more` often than others are
    /// added, changed and removed, and the longest charge is `packets` packets.
    fn regrouped(&self, life: &Life, packets: u32, more: usize) -> f64 {
        let longest = self.longest(packets);
        let lowest = |own: &FlowConfig| Around::packet(own) <= longest / 16.0;
        let moves = match life.configs.iter().any(lowest) {
            true => life.others.len() + life.joins.len() + more,
            false => 0,
        };
        (life.others.len() as f64 + 1.125 * moves as f64) * longest
    }

    fn late_in_groups(&self, life: &Life, bound: Bound) -> Option<f64> {
        Some(self.late(life, bound)? + self.regrouped(life, 1, 0))
    }

    fn late_in_aggregates(&self, life: &Life, bound: Bound) -> Option<f64> {
        let joins = |own: &FlowConfig| 1 + life.joins.iter().filter(|join| *join == own).count();
        let lighter = |own: &FlowConfig| joins(own) as f64 * Around::packet(own);
        Some(2.0 * self.late(life, bound)? + largest(life.configs.iter().map(lighter)))
    }

    fn late_in_grouped_aggregates(&self, life: &Life, bound: Bound) -> Option<f64> {
        let regrouped = self.regrouped(life, AUTOMATIC_MEMBERS.get(), 4);
        Some(self.late_in_aggregates(life, bound)? + regrouped)
    }

    /// The cost of the others is part of the bound.
    fn late_in_rounds(&self, life: &Life, bound: Bound) -> Option<f64> {
        match life.configs.len() {
            1 => Some(0.0),
            _ => Some(self.virtually(&life.configs[0], bound)?.1),
        }
    }
}

fn largest(of: impl IntoIterator<Item = f64>) -> f64 {
    of.into_iter().fold(0.0, f64::max)
}

type Bound = fn(&Around, &FlowConfig) -> Option<bounds::Wfi>;
type Late = fn(&Around, &Life, Bound) -> Option<f64>;

/// A run made from a seed.
struct Case {
    rate: Rate,
    queue: TransmitQueue,
    plans: Vec<FlowPlan>,
    until: Picos,
}

/// Returns a number that is as likely to have 1 digit as 6.
fn any_size(random: &mut SmallRng, most: u32) -> u32 {
    let exponent = random.random_range(0.0..=f64::from(most).ln());
    (exponent.exp() as u32).clamp(1, most)
}

/// Returns random traffic whose packets take `packet` picoseconds at its own rate.
fn any_traffic(random: &mut SmallRng, own: Rate, packet: u128) -> Traffic {
    match random.random_range(0..8) {
        0..=2 => Traffic::Greedy(random.random_range(1..4)),
        3 => Traffic::Cbr(own),
        4 => Traffic::Poisson(own),
        5 => Traffic::ParetoOnOff {
            alpha: random.random_range(1.1..2.5),
            mean_on: Picos(packet * 5),
            mean_off: Picos(packet * 15),
            peak: Rate::from_bps((own.bps() * 4).min(Rate::MAX.bps())).unwrap(),
        },
        _ => {
            let packets = any_size(random, 50);
            let period = Picos(packet * u128::from(packets));
            Traffic::Bursty { packets, period }
        }
    }
}

/// Flows are added late, removed early, or changed.
fn disturb(random: &mut SmallRng, plans: &mut [FlowPlan], until: Picos) {
    for _ in 0..random.random_range(1..8) {
        let at = Picos(random.random_range(0..until.0));
        let plan = random.random_range(0..plans.len());
        let plan = &mut plans[plan];
        match random.random_range(0..4) {
            0 => plan.start = at,
            1 => plan.stop = at,
            2 => plan.removal = Some(at),
            _ => {
                let weight = plan.config.weight.get();
                let weight = match random.random_range(0..3) {
                    0 => (weight * 2).min(1_000_000),
                    1 => weight.div_ceil(3),
                    _ => any_size(random, 1_000_000),
                };
                let max_length = plan.config.max_length;
                plan.changes.push((at, config(weight, max_length.get())));
            }
        }
    }
}

impl Case {
    fn new(seed: u64) -> Case {
        let mut random = SmallRng::seed_from_u64(seed);
        let random = &mut random;
        let rates = [7_000_003, 100_000_000, 3_000_000_000, 999_999_999_989];
        let rate = rate(*pick(random, &rates));
        let longest: u32 = *pick(random, &[1, 64, 1500, 1500, 9000, 65_535]);
        let queue = match random.random_range(0..4) {
            0 | 1 => TransmitQueue::NONE,
            2 => TransmitQueue::Packets(random.random_range(1..40)),
            _ => TransmitQueue::Bytes(random.random_range(1..200_000)),
        };
        let one_against_thousands = random.random_ratio(1, 8);
        let flows = match one_against_thousands {
            true => random.random_range(1000..3000),
            false => any_size(random, 60) + 1,
        };
        let skew = random.random_range(0..4);
        let same_length = random.random();
        let packets = if one_against_thousands { 4000 } else { 500 };
        // The bits that the link sends in the run, for about this many packets.
        let bits = u128::from(longest) * 8 * packets;
        let until = Picos(bits * 1_000_000_000_000 / u128::from(rate.bps()));
        let share = f64::from(flows);
        let plans = (0..flows).map(|flow| {
            let weight = match (one_against_thousands || skew == 0, flow) {
                (true, 0) => (flows - 1).max(1),
                (true, _) => 1,
                _ if skew == 1 => 1,
                _ if skew == 2 => random.random_range(1..=100),
                _ => any_size(random, 1_000_000),
            };
            let max = match same_length || random.random() {
                true => longest,
                // Few enough packets for a short run.
                false => random.random_range(longest.div_ceil(8)..=longest),
            };
            let lengths = match random.random_range(0..4) {
                0 => Lengths::Fixed(length(max)),
                1 => Lengths::Uniform(length(1), length(max)),
                2 => Lengths::Weighted(vec![(length(1), 3), (length(max), 1)]),
                _ => Lengths::Weighted(vec![(length(1), 1), (length(max), 3)]),
            };
            // Between a tenth of an equal share and four times as much.
            let load = 10f64.powf(random.random_range(-1.0..0.6)) / share;
            let bps = (rate.bps() as f64 * load) as u64;
            let own = Rate::from_bps(bps.clamp(1_000, 1_000_000_000_000)).unwrap();
            let packet = u128::from(max) * 8 * 1_000_000_000_000 / u128::from(own.bps());
            let traffic = any_traffic(random, own, packet);
            FlowPlan::new(config(weight, max), traffic, lengths)
        });
        let mut plans: Vec<_> = plans.collect();
        if random.random() {
            disturb(random, &mut plans, until);
        }
        Case {
            rate,
            queue,
            plans,
            until,
        }
    }
}

fn pick<'a, T>(random: &mut SmallRng, from: &'a [T]) -> &'a T {
    &from[random.random_range(0..from.len())]
}

/// A flow from its addition to its removal.
#[derive(Clone)]
struct Life {
    /// Its configuration, at first and after each change.
    configs: Vec<FlowConfig>,
    /// The smallest and the largest sum of weights meanwhile, with each flow as light, or
    /// as heavy, as it ever was: an algorithm is allowed to take notice late.
    sums: (u64, u64),
    /// Others that were changed or removed meanwhile, as they were before.
    others: Vec<FlowConfig>,
    /// Others that were added or changed meanwhile, as they were then.
    joins: Vec<FlowConfig>,
    wfi: Option<Wfi>,
}

/// Tracks the flows present. O(flows) a change.
#[derive(Default)]
struct Lives {
    present: HashMap<FlowId, Life>,
    gone: Vec<Life>,
    sent: u64,
}

impl Lives {
    fn count(&mut self) {
        let light = |life: &Life| life.configs.iter().map(|c| c.weight.get()).min();
        let heavy = |life: &Life| life.configs.iter().map(|c| c.weight.get()).max();
        let present = self.present.values();
        let least: u64 = present.clone().filter_map(light).map(u64::from).sum();
        let most: u64 = present.filter_map(heavy).map(u64::from).sum();
        for life in self.present.values_mut() {
            life.sums = (life.sums.0.min(least), life.sums.1.max(most));
        }
    }
}

impl Observer for Lives {
    fn flow_added(&mut self, at: Now, flow: FlowId, config: &FlowConfig) {
        let life = Life {
            configs: vec![*config],
            sums: (u64::MAX, 0),
            others: Vec::new(),
            joins: Vec::new(),
            wfi: None,
        };
        // No work is done before all flows of the start are there.
        let started = at.time > Picos::ZERO;
        if started {
            self.count();
            for life in self.present.values_mut() {
                life.joins.push(*config);
            }
        }
        self.present.insert(flow, life);
        if started {
            self.count();
        }
    }
    fn flow_changed(&mut self, _: Now, flow: FlowId, config: &FlowConfig) {
        self.count();
        let changed = self.present.get_mut(&flow).unwrap();
        let before = *changed.configs.last().unwrap();
        changed.configs.push(*config);
        for (&id, life) in &mut self.present {
            if id != flow {
                life.others.push(before);
                life.joins.push(*config);
            }
        }
        self.count();
    }
    fn flow_removed(&mut self, _: Now, flow: FlowId) {
        self.count();
        let removed = self.present.remove(&flow).unwrap();
        let before = *removed.configs.last().unwrap();
        self.gone.push(removed);
        for life in self.present.values_mut() {
            life.others.push(before);
        }
        self.count();
    }
    fn ended(&mut self, at: Now) {
        self.count();
        self.sent = at.work().as_bytes_f64() as u64;
    }
}

/// Returns the lives of a case's flows with their measured indexes.
fn run<A: Scheduler>(algorithm: A, case: &Case, seed: u64) -> (Vec<Life>, u64) {
    let meter = WfiMeter::reading(case.rate, Backlogged::UntilDequeued);
    let limits = SchedulerLimits {
        packets: 20_000,
        ..SchedulerLimits::default()
    };
    let observer = (meter, Lives::default());
    let server = Server::new(algorithm, limits, case.rate, case.queue, observer);
    let mut simulation = Simulation::new(server, seed);
    for plan in &case.plans {
        simulation.add(plan.clone()).unwrap();
    }
    let (mut meter, mut lives) = simulation.run(case.until).unwrap().into_observer();
    for (life, (_, wfi)) in lives.gone.iter_mut().zip(meter.take_removed()) {
        life.wfi = Some(wfi);
    }
    for (id, wfi) in meter.flows() {
        let mut life = lives.present.remove(&id).unwrap();
        life.wfi = Some(wfi);
        lives.gone.push(life);
    }
    (lives.gone, lives.sent)
}

/// Returns the largest of measured over bound, among the flows of a case: B-WFI and T-WFI.
///
/// While the flows stay the same, this is the bound itself. Otherwise it is counted in
/// virtual time, work over the sum of weights, the bound with the smallest sum that there
/// was; and changes cost a flow once each, as follows. v stands for virtual time by the
/// weights of the flows present, as the meter has it, V for the algorithm's. A flow j has
/// the weight w_j of a sum S, packets up to L_j, and the T-WFI D_j, in virtual time.
///
/// **Timestamps.** From any V until j is served next, V advances by at most D_j + L_j / w_j: by
/// then V <= F' + (L - l) / S, where F' <= S_j + DS+ + l / w_j, and S_j was DS- + (1 / w_j - 1 / S)
/// L_j after V. That is j's *turn*.
///
/// * *Another flow is changed or removed.* Until its turn it counts as before: v gains w_j / S of
///   V's advance meanwhile. Its service ahead of V, F_j - V, counts for the others as if its turn
///   came only then; that is also the full cost of an idle flow's change, since F_j is no later
///   than its turn would be. Such work may put off the turns of others that change, each by as
///   much.
/// * *One that becomes heavier* when it is late is late by the same work after; or, in its
///   group, by what V is after the group's first F', L / S at most, at its new weight.
/// * *The flow itself was changed.* Until its turn its packets are charged at the old weight.
///   If it is late then, its S is moved towards V, and if not, it is after V by no more
///   than its old share allows: from then on the new bound holds.
/// * *The lowest group changes* with the sum. A flow that has to move from it into another starts
///   at V, and loses its lateness: two slots and L / S. Such a slot is less than a 16th of L / S.
///
/// **Aggregates.** L becomes M L. A flow that is changed or removed waits for its turn in
/// its aggregate, and its aggregate's weight for the next place: two turns. One that joins
/// counts from the aggregate's next place on. Until then all its flows share the weight that
/// it had: for a place, L_k / w_k more of virtual time; so with the flow itself, and after
/// it. While the aggregates grow after the start, up to eightfold, the lowest group changes
/// at most four times.
///
/// **Rounds.** The bound's round includes all flows that ever existed, so each added flow has a
/// turn in addition to those of the others. Removing or changing one
/// reduces the sum by its part while its turn is past or keeps its length: it is in the round once
/// more. A flow with another quantum may need another turn.
fn worst_ratio(
    lives: &[Life],
    work: u64,
    case: &Case,
    late: Late,
    bound: Bound,
) -> Option<(f64, String)> {
    let flows: Vec<_> = lives
        .iter()
        .flat_map(|life| life.configs.iter().copied())
        .collect();
    let longest = flows.iter().map(|flow| flow.max_length).max()?;
    let transmit = match case.queue {
        TransmitQueue::NONE => Transmit::Direct,
        queue => Transmit::Queue(queue.bytes(longest)),
    };
    let mut around = Around {
        weight_sum: 0,
        longest,
        transmit,
        flows,
        others: Vec::new(),
        work,
    };
    let mut worst: Option<(f64, String)> = None;
    for life in lives {
        let wfi = life.wfi?;
        around.weight_sum = life.sums.0;
        around.others.clone_from(&life.others);
        let late = late(&around, life, bound)?;
        let (mut service, mut delay) = (0f64, 0f64);
        for config in &life.configs {
            let (own_service, own_delay) = around.virtually(config, bound)?;
            // The flow's last packet counts in full where its share is smallest.
            let length = f64::from(config.max_length.get());
            let smaller = length / around.weight_sum(config) as f64 - length / life.sums.1 as f64;
            service = service.max(own_service + late + smaller);
            delay = delay.max(own_delay + late);
        }
        let weight = life
            .configs
            .iter()
            .map(|c| c.weight)
            .max()
            .map_or(0, Weight::get);
        let service = service * f64::from(weight);
        let time = delay * life.sums.1 as f64 * 8.0 / case.rate.bps() as f64;
        for (name, ratio) in [
            ("B-WFI (Eq. 5)", wfi.b_wfi.as_bytes_f64() / service),
            (
                "B-WFI (Eq. 7)",
                wfi.b_wfi_backlogged.as_bytes_f64() / service,
            ),
            ("T-WFI", (wfi.t_wfi - Picos(1)).as_secs_f64() / time),
        ] {
            if worst.as_ref().is_none_or(|(worst, _)| ratio > *worst) {
                worst = Some((ratio, format!("{name} {wfi:?}")));
            }
        }
    }
    worst
}

fn no_flow_exceeds<A: Scheduler>(name: &str, algorithm: fn() -> A, late: Late, bound: Bound) {
    let mut tightest: f64 = 0.0;
    for_each_seed("bounds", name, 60, |seed| {
        let case = Case::new(seed);
        let (lives, work) = run(algorithm(), &case, seed);
        let (ratio, what) = worst_ratio(&lives, work, &case, late, bound)
            .unwrap_or_else(|| panic!("{name} has no bound"));
        tightest = tightest.max(ratio);
        // The bounds are computed in floating point.
        assert!(ratio <= 1.0 + 1e-9, "{name}: {ratio} of the bound, {what}");
    });
    println!("{name}: at most {tightest} of the bound");
    // A bound, or an allowance, far from all measurements could hide a fault.
    let chosen = ["FAIRLANE_SEED", "FAIRLANE_CASES"].map(std::env::var_os);
    assert!(
        tightest > 0.94 || chosen.iter().any(Option::is_some),
        "{name}: no flow came nearer to its bound than {tightest}"
    );
}
