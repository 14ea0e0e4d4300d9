//! No flow ever falls further behind than its algorithm's bound says, whatever weights,
//! lengths, arrivals, transmit queue, and flows that come, change and go.
//!
//! Each test runs the cases of seeds 0, 1, 2, .. A failure prints the command that runs its
//! case alone. For a longer search:
//!
//! ```sh
//! FAIRLANE_CASES=10000 cargo test --profile fuzz -p fairlane-sim --test bounds
//! ```

mod support;

use std::collections::HashMap;
use std::env;

use fairlane_core::bounds::{self, Aggregate, Round, Slot, Terms, Transmit};
use fairlane_core::sched::AUTOMATIC_MEMBERS;
use fairlane_core::scheduler::Scheduler;
use fairlane_core::{FlowConfig, FlowId, Length, Rate, SchedulerLimits, Weight, sched};
use fairlane_sim::{
    Backlogged, FlowPlan, Lengths, Moment, Observer, Picos, Server, Simulation, Traffic,
    TransmitQueue, Wfi, WfiMeter,
};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use support::{config, length, rate};

/// Tests an algorithm: its name here, how it is made, and the bound of a flow.
macro_rules! bounded {
    ($($name:ident: $algorithm:expr, $bound:expr;)+) => {
        $(
            #[test]
            fn $name() {
                no_flow_exceeds(stringify!($name), || $algorithm, $bound);
            }
        )+
    };
}

bounded! {
    qfq: sched::Qfq::new(), |around, flow| {
        let terms = around.terms(flow);
        Some(bounds::qfq(&terms, Slot::Actual) + bounds::qfq_rounding(&terms, around.work))
    };
    gfq: sched::Gfq::new(), |around, flow| {
        let terms = around.terms(flow);
        Some(bounds::gfq(&terms, Slot::Actual) + bounds::qfq_rounding(&terms, around.work))
    };
    s_kps: sched::SKps::new(), |around, flow| {
        let terms = around.terms(flow);
        Some(bounds::s_kps(&terms, Slot::Actual) + bounds::qfq_rounding(&terms, around.work))
    };
    wf2q_plus: sched::Wf2qPlus::new(), |around, flow| {
        let terms = around.terms(flow);
        Some(bounds::wf2q_plus(&terms) + bounds::qfq_rounding(&terms, around.work))
    };
    wf2q: sched::Wf2q::new(), |around, flow| {
        let terms = around.terms(flow);
        Some(bounds::wf2q(&terms) + bounds::qfq_rounding(&terms, around.work))
    };
    qfq_plus: sched::Plus::<sched::Qfq>::default(), |around, flow| {
        around.aggregated(flow, |aggregate| bounds::qfq_plus(aggregate, Slot::Actual))
    };
    gfq_plus: sched::Plus::<sched::Gfq>::default(), |around, flow| {
        around.aggregated(flow, |aggregate| bounds::gfq_plus(aggregate, Slot::Actual))
    };
    s_kps_plus: sched::Plus::<sched::SKps>::default(), |around, flow| {
        around.aggregated(flow, |aggregate| bounds::s_kps_plus(aggregate, Slot::Actual))
    };
    wf2q_plus_plus: sched::Plus::<sched::Wf2qPlus>::default(), |around, flow| {
        around.aggregated(flow, bounds::wf2q_plus_plus)
    };
    drr: sched::Drr::new(), |around, flow| {
        let round = Round::of(around.flows.iter().map(|flow| (flow.weight, flow.max_length)))?;
        bounds::drr(&round, flow.weight, flow.max_length, around.transmit)
    };
}

/// What a flow's bound depends on, beside the flow.
struct Around {
    /// The smallest sum of weights while it was there.
    weight_sum: u64,
    longest: Length,
    transmit: Transmit,
    /// All flows that there ever were, as they ever were.
    flows: Vec<FlowConfig>,
    /// Bytes that the link sent.
    work: u64,
}

impl Around {
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

    /// The loosest bound over the sizes that the flow's aggregate may have.
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
        let loosest = all.reduce(|a, b| {
            if a.delay.bytes() > b.delay.bytes() {
                a
            } else {
                b
            }
        })?;
        Some(loosest + bounds::qfq_rounding(&terms, self.work))
    }

    fn weight_sum(&self, flow: &FlowConfig) -> u64 {
        self.weight_sum.max(flow.weight.get().into())
    }
}

type Bound = fn(&Around, &FlowConfig) -> Option<bounds::Wfi>;

/// A run made from a seed.
struct Case {
    rate: Rate,
    queue: TransmitQueue,
    plans: Vec<FlowPlan>,
    until: Picos,
}

/// A number that is as likely to have 1 digit as 6.
fn any_size(random: &mut SmallRng, most: u32) -> u32 {
    let exponent = random.random_range(0.0..=f64::from(most).ln());
    (exponent.exp() as u32).clamp(1, most)
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
        // What the link sends in the run, at about this many packets.
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
            let traffic = match random.random_range(0..8) {
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
            };
            FlowPlan::new(config(weight, max), traffic, lengths)
        });
        let mut plans: Vec<_> = plans.collect();
        if random.random() {
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

/// A flow from when it came until it went.
#[derive(Clone)]
struct Life {
    /// As it was, at first and after each change.
    configs: Vec<FlowConfig>,
    /// The smallest and the largest sum of weights meanwhile, with each flow as light, or
    /// as heavy, as it ever was: an algorithm is allowed to take notice late.
    sums: (u64, u64),
    /// Changes and removals of others meanwhile: of which share.
    others: Vec<FlowConfig>,
    wfi: Option<Wfi>,
}

/// Follows who is there. At O(flows) a change.
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
    fn flow_added(&mut self, at: Moment, flow: FlowId, config: &FlowConfig) {
        let life = Life {
            configs: vec![*config],
            sums: (u64::MAX, 0),
            others: Vec::new(),
            wfi: None,
        };
        self.present.insert(flow, life);
        // Nothing is backlogged before all flows of the start are there.
        if at.time > Picos::ZERO {
            self.count();
        }
    }
    fn flow_changed(&mut self, _: Moment, flow: FlowId, config: &FlowConfig) {
        let changed = self.present.get_mut(&flow).unwrap();
        let before = *changed.configs.last().unwrap();
        changed.configs.push(*config);
        for (&id, life) in &mut self.present {
            if id != flow {
                life.others.push(before);
            }
        }
        self.count();
    }
    fn flow_removed(&mut self, _: Moment, flow: FlowId) {
        self.count();
        let removed = self.present.remove(&flow).unwrap();
        let before = *removed.configs.last().unwrap();
        self.gone.push(removed);
        for life in self.present.values_mut() {
            life.others.push(before);
        }
        self.count();
    }
    fn ended(&mut self, at: Moment) {
        self.count();
        self.sent = at.work.as_bytes_f64() as u64;
    }
}

/// The lives of a case's flows with their measured indexes.
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

/// The largest of measured over bound, among the flows of a case: B-WFI and T-WFI.
///
/// While the flows stay the same, this is the bound itself. Otherwise, with all in virtual
/// time, which is work over the sum of weights:
///
/// * A changed or removed flow keeps its old share until its next turn, which comes within
///   its own bound, and two packets more. Until then virtual time is the slower by its
///   weight over the sum.
/// * A flow that was changed itself has its packets charged at either weight: the larger
///   bound holds, and one packet at the smaller weight on top.
fn worst_ratio(lives: &[Life], work: u64, case: &Case, bound: Bound) -> Option<(f64, String)> {
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
        work,
    };
    let mut worst: Option<(f64, String)> = None;
    for life in lives {
        let wfi = life.wfi?;
        around.weight_sum = life.sums.0;
        // In bytes for each unit of weight.
        let virtually = |flow: &FlowConfig| -> Option<(f64, f64)> {
            let sum = around.weight_sum(flow) as f64;
            let wfi = bound(&around, flow)?;
            let service = wfi.service.bytes() / f64::from(flow.weight.get());
            Some((service, wfi.delay.bytes() / sum))
        };
        let packet =
            |flow: &FlowConfig| f64::from(flow.max_length.get()) / f64::from(flow.weight.get());
        let mut late = 0.0;
        for other in &life.others {
            let turn = virtually(other)?.1 + 2.0 * packet(other);
            late += turn * f64::from(other.weight.get()) / life.sums.0 as f64;
        }
        if life.configs.len() > 1 {
            late += life.configs.iter().map(packet).fold(0.0, f64::max);
        }
        let (mut service, mut delay) = (0f64, 0f64);
        for config in &life.configs {
            let (own_service, own_delay) = virtually(config)?;
            service = service.max(own_service + late);
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

fn number(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text}: a number is expected")),
    )
}

fn no_flow_exceeds<A: Scheduler>(name: &str, algorithm: fn() -> A, bound: Bound) {
    let cases = number("FAIRLANE_CASES").unwrap_or(60);
    let seeds = number("FAIRLANE_SEED").map_or(0..cases, |seed| seed..seed + 1);
    let mut tightest: f64 = 0.0;
    for seed in seeds {
        let again =
            || format!("FAIRLANE_SEED={seed} cargo test -p fairlane-sim --test bounds {name}");
        let guard = Announce(again());
        let case = Case::new(seed);
        let (lives, work) = run(algorithm(), &case, seed);
        let (ratio, what) = worst_ratio(&lives, work, &case, bound)
            .unwrap_or_else(|| panic!("{name} has no bound"));
        tightest = tightest.max(ratio);
        // The bounds are computed in floating point.
        assert!(
            ratio <= 1.0 + 1e-9,
            "{name}: {ratio} of the bound, {what}\nAgain: {}",
            again()
        );
        std::mem::forget(guard);
    }
    println!("{name}: at most {tightest} of the bound");
}

/// Says how to run a case again, should anything in it panic.
struct Announce(String);

impl Drop for Announce {
    fn drop(&mut self) {
        eprintln!("Again: {}", self.0);
    }
}
