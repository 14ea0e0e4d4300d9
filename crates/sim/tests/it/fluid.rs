//! How much of the fluid server's service the packet servers give, and how far two of them may be
//! apart on the same arrivals.
//!
//! Each test runs the cases of seeds 0, 1, 2, .. A failure prints the command that runs its
//! case alone.

use crate::support::{config, for_each_seed, length, rate};
use fairlane_core::bounds::{self, Errors, Slot, Terms, Transmit};
use fairlane_core::scheduler::Scheduler;
use fairlane_core::{FlowConfig, FlowId, Length, Rate, Rejection, SchedulerLimits, sched};
use fairlane_sim::{
    Completion, FlowPlan, Gps, LagMeter, Lengths, Now, Observer, PacketInfo, Picos, Server,
    Simulation, Traffic, TransmitQueue, Work,
};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::collections::VecDeque;

/// Flows on a link that takes one packet at a time.
struct Case {
    rate: Rate,
    longest: Length,
    plans: Vec<FlowPlan>,
    until: Picos,
}

/// The flows' traffic.
#[derive(Clone, Copy, PartialEq)]
enum Load {
    /// Each at its own times, in all between less and more than the link can send.
    Open,
    /// All are backlogged until the end.
    Greedy,
}

impl Case {
    fn new(seed: u64, load: Load) -> Case {
        let mut random = SmallRng::seed_from_u64(seed);
        let random = &mut random;
        let rate = rate([7_000_003, 100_000_000, 3_000_000_000][random.random_range(0..3)]);
        let longest: u32 = [64, 1500, 9000][random.random_range(0..3)];
        let flows = random.random_range(2..24);
        let skewed = random.random();
        let total = random.random_range(0.5..1.3);
        let packet = u128::from(longest) * 8 * 1_000_000_000_000 / u128::from(rate.bps());
        let plans = (0..flows).map(|flow| {
            let weight = match (skewed, flow) {
                (true, 0) => flows - 1,
                (true, _) => 1,
                _ => random.random_range(1..1000),
            };
            let share = total * random.random_range(0.2..1.8) / f64::from(flows);
            let own = Rate::from_bps((rate.bps() as f64 * share) as u64).unwrap();
            let interval = (packet as f64 / share) as u128;
            let traffic = match (load, random.random_range(0..4)) {
                (Load::Greedy, _) => Traffic::Greedy(4),
                (_, 0) => Traffic::Cbr(own),
                (_, 1) => Traffic::Poisson(own),
                (_, 2) => Traffic::ParetoOnOff {
                    alpha: random.random_range(1.1..2.5),
                    mean_on: Picos(interval * 5),
                    mean_off: Picos(interval * 15),
                    peak: Rate::from_bps(own.bps() * 4).unwrap(),
                },
                _ => {
                    let packets = random.random_range(1..20);
                    let period = Picos(interval * u128::from(packets));
                    Traffic::Bursty { packets, period }
                }
            };
            let max = match load {
                Load::Greedy => longest,
                Load::Open => random.random_range(1..=longest),
            };
            let lengths = match (load, random.random()) {
                (Load::Greedy, _) | (_, false) => Lengths::Fixed(length(max)),
                _ => Lengths::Uniform(length(1), length(max)),
            };
            FlowPlan::new(config(weight, max), traffic, lengths)
        });
        Case {
            rate,
            longest: length(longest),
            plans: plans.collect(),
            until: Picos(packet * 800),
        }
    }

    fn run<A: Scheduler, O: Observer>(&self, algorithm: A, seed: u64, observer: O) -> O {
        let limits = SchedulerLimits {
            packets: 1_000_000,
            ..SchedulerLimits::default()
        };
        let server = Server::new(algorithm, limits, self.rate, TransmitQueue::NONE, observer);
        let mut simulation = Simulation::new(server, seed);
        for plan in &self.plans {
            simulation.add(plan.clone()).unwrap();
        }
        simulation.run(self.until).unwrap().into_observer()
    }

    fn flows(&self) -> impl Iterator<Item = (FlowId, FlowConfig)> {
        let plans = (0..).zip(&self.plans);
        plans.map(|(number, plan)| (FlowId::new(number), plan.config))
    }

    fn terms(&self, flow: &FlowConfig) -> Terms {
        let weights = self.plans.iter().map(|plan| plan.config.weight.get());
        let sum = weights.map(u64::from).sum();
        let (weight, own) = (flow.weight, flow.max_length);
        Terms::new(weight, sum, own, self.longest, Transmit::Direct).unwrap()
    }
}

fn bytes(work: Work) -> f64 {
    work.as_bytes_f64()
}

/// The arrivals, and the link's events.
#[derive(Default)]
struct Log {
    arrivals: Vec<(Picos, FlowId, Length)>,
    sent: Vec<Completion>,
}

impl Observer for Log {
    fn arrived(&mut self, at: Now, packet: &PacketInfo) {
        self.arrivals.push((at.time, packet.flow, packet.len));
    }
    fn dropped(&mut self, _: Now, flow: FlowId, _: Length, reason: Rejection) {
        panic!("a packet of {flow:?} is lost: {reason:?}");
    }
    fn completed(&mut self, completion: &Completion) {
        self.sent.push(*completion);
    }
}

/// Walks through a log: the service of each flow until a time.
struct Service<'a> {
    sent: &'a [Completion],
    /// Of the packets completed.
    completed: Vec<Work>,
}

impl Service<'_> {
    fn of(log: &Log, flows: usize) -> Service<'_> {
        Service {
            sent: &log.sent,
            completed: vec![Work::ZERO; flows],
        }
    }

    fn advance(&mut self, to: Picos) {
        while let Some((first, rest)) = self.sent.split_first()
            && first.end.time <= to
        {
            let own = &mut self.completed[first.packet.flow.number() as usize];
            *own += Work::of(first.packet.len);
            self.sent = rest;
        }
    }

    /// In bytes.
    fn at(&self, time: Picos, flow: FlowId, rate: Rate) -> f64 {
        let completed = bytes(self.completed[flow.number() as usize]);
        let partly = self.sent.first().filter(|sent| sent.packet.flow == flow);
        completed
            + partly.map_or(0.0, |sent| {
                (time - sent.start.time).as_secs_f64() * rate.bps() as f64 / 8.0
            })
    }
}

/// Whichever server, all packets are sent at the times at which a flow's service changes its slope.
fn instants(logs: [&Log; 2]) -> Vec<Picos> {
    let sent = logs.into_iter().flat_map(|log| &log.sent);
    let mut all: Vec<_> = sent.flat_map(|s| [s.start.time, s.end.time]).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// The error in bytes of times rounded to a picosecond, and of sums in floating point.
const ROUNDING: f64 = 0.01;

/// B-WFIs of QFQ and of WF2Q+, in bytes, with what their arithmetic may add until the end.
fn b_wfis(terms: &Terms, work: u64) -> [f64; 2] {
    let rounding = bounds::qfq_rounding(terms, work);
    let wfis = [bounds::qfq(terms, Slot::Actual), bounds::wf2q_plus(terms)];
    wfis.map(|wfi| (wfi + rounding).service.bytes())
}

/// A server that is dedicated to a flow and gives it phi W(t1, t2) while it has something
/// leaves of it, at time t, the backlog
///
/// ```text
/// H(t) = max over s <= t of  A(s, t) - phi W(s, t)
/// ```
///
/// Let s be when the flow last became backlogged in a packet scheduler, where at most the rest of one
/// packet of it was on the link. So it was served A(s) - L_k at least until s, and phi W(s, t) less its
/// B-WFI since: in all, A(t) - H(t) - L_k - B-WFI. No server can give it more than A(t). So of two
/// servers none is ahead of the other by more than `H(t) + L_k` and the B-WFI of the other. For a flow
/// that sends no more than its share, H is no more than its burst, at any load. W is the same for both,
/// as neither idles.
#[test]
fn qfq_and_wf2q_plus_are_apart_by_no_more_than_a_server_for_the_flow_alone_leaves() {
    let name = "qfq_and_wf2q_plus_are_apart_by_no_more_than_a_server_for_the_flow_alone_leaves";
    for_each_seed("fluid", name, 20, |seed| {
        let case = Case::new(seed, Load::Open);
        let logs = [
            case.run(sched::Qfq::new(), seed, Log::default()),
            case.run(sched::Wf2qPlus::new(), seed, Log::default()),
        ];
        assert_eq!(logs[0].arrivals, logs[1].arrivals);
        let all: u64 = logs[0].arrivals.iter().map(|a| u64::from(a.2.get())).sum();
        let flows = case.plans.len();
        let mut services = [&logs[0], &logs[1]].map(|log| Service::of(log, flows));
        let mut arrivals = logs[0].arrivals.iter().copied().peekable();
        let mut dedicated = vec![0.0; flows];
        let mut before = 0.0;
        let mut times = instants([&logs[0], &logs[1]]);
        times.extend(logs[0].arrivals.iter().map(|arrival| arrival.0));
        times.sort_unstable();
        for time in times {
            for service in &mut services {
                service.advance(time);
            }
            let at = |n: usize, flow| services[n].at(time, flow, case.rate);
            let work: f64 = case.flows().map(|(flow, _)| at(0, flow)).sum();
            for (n, (flow, config)) in case.flows().enumerate() {
                let terms = case.terms(&config);
                dedicated[n] = f64::max(0.0, dedicated[n] - terms.share() * (work - before));
                let [qfq, wf2q_plus] = b_wfis(&terms, all);
                let left = dedicated[n] + f64::from(config.max_length.get()) + ROUNDING;
                let ahead = at(0, flow) - at(1, flow);
                assert!(
                    ahead <= left + wf2q_plus && -ahead <= left + qfq,
                    "{flow:?} is ahead by {ahead} in QFQ at {time:?}, {left} are left: {config:?}"
                );
            }
            while let Some((_, flow, len)) = arrivals.next_if(|arrival| arrival.0 <= time) {
                dedicated[flow.number() as usize] += f64::from(len.get());
            }
            before = work;
        }
    });
}

/// Where all flows are backlogged from the start, V never jumps, and is W(t) over the sum of
/// weights when the packet has been taken. Then no flow is served more than its share by
/// more than
///
/// ```text
/// phi (DS- + Q) + (1 - phi) L_k
/// ```
///
/// by Lemma 5 of the QFQ+ paper (see [`bounds`]), and less than its share by its B-WFI: of
/// two servers, one is ahead by no more than its own excess and the other's B-WFI.
#[test]
fn with_all_flows_backlogged_qfq_and_wf2q_plus_are_apart_by_their_bounds() {
    let name = "with_all_flows_backlogged_qfq_and_wf2q_plus_are_apart_by_their_bounds";
    for_each_seed("fluid", name, 20, |seed| {
        let case = Case::new(seed, Load::Greedy);
        let logs = [
            case.run(sched::Qfq::new(), seed, Log::default()),
            case.run(sched::Wf2qPlus::new(), seed, Log::default()),
        ];
        let flows = case.plans.len();
        let mut services = [&logs[0], &logs[1]].map(|log| Service::of(log, flows));
        let mut times = instants([&logs[0], &logs[1]]);
        times.retain(|&time| time <= case.until);
        let all = case.longest.get() as u64 * 1000;
        for time in times {
            for service in &mut services {
                service.advance(time);
            }
            let at = |n: usize, flow| services[n].at(time, flow, case.rate);
            for (flow, config) in case.flows() {
                let terms = case.terms(&config);
                let [qfq, wf2q_plus] = b_wfis(&terms, all);
                let share = terms.share();
                let own = (1.0 - share) * f64::from(config.max_length.get());
                let excess = |errors: Errors| {
                    let queued = Transmit::Direct.work(case.longest).bytes();
                    share * (errors.start.bytes() + queued) + own
                };
                let slot = Slot::Actual.of(&terms);
                let ahead = at(0, flow) - at(1, flow);
                assert!(
                    ahead <= excess(Errors::qfq(slot)) + wf2q_plus + ROUNDING
                        && -ahead <= excess(Errors::EXACT) + qfq + ROUNDING,
                    "{flow:?} is ahead by {ahead} in QFQ at {time:?}: {config:?}"
                );
            }
        }
    });
}

/// The fluid server, and a packet server with the same arrivals.
struct Fluid {
    gps: Gps,
    busy: bool,
    /// A packet that arrives while another is sent is there at once, or when that one has left.
    at_once: bool,
    /// Arrivals while the link is busy.
    waiting: Vec<PacketInfo>,
    flows: Vec<Race>,
    until: Picos,
}

/// A flow in both servers.
#[derive(Default)]
struct Race {
    /// Finishes that the other server has not yet got to.
    fluid: VecDeque<Picos>,
    packets: VecDeque<Picos>,
    served: Work,
    /// How much earlier the fluid server finished a packet, at most.
    late: Picos,
    /// How much less it had served, at most.
    ahead: Work,
}

impl Fluid {
    fn new(case: &Case, at_once: bool) -> Fluid {
        Fluid {
            gps: Gps::new(case.rate),
            busy: false,
            at_once,
            waiting: Vec::new(),
            flows: Vec::new(),
            until: case.until,
        }
    }

    fn settle(&mut self, at: Picos) {
        for packet in self.waiting.drain(..) {
            self.gps.arrive(at, packet.flow, packet.len, packet.number);
        }
        self.gps.advance(at);
        self.compare();
    }

    fn compare(&mut self) {
        for finish in self.gps.take_finished() {
            let flow = &mut self.flows[finish.flow.number() as usize];
            flow.fluid.push_back(finish.time);
        }
        for flow in &mut self.flows {
            while let (Some(&fluid), Some(&packet)) = (flow.fluid.front(), flow.packets.front()) {
                if packet <= self.until {
                    flow.late = flow.late.max(packet - fluid);
                }
                flow.fluid.pop_front();
                flow.packets.pop_front();
            }
        }
    }
}

impl Observer for Fluid {
    fn flow_added(&mut self, at: Now, flow: FlowId, config: &FlowConfig) {
        self.gps.add_flow(at.time, flow, config.weight);
        self.flows.push(Race::default());
    }
    fn arrived(&mut self, at: Now, packet: &PacketInfo) {
        self.waiting.push(*packet);
        if self.at_once || !self.busy {
            self.settle(at.time);
        }
    }
    fn started(&mut self, _: Now, _: &PacketInfo) {
        self.busy = true;
    }
    fn completed(&mut self, completion: &Completion) {
        let (packet, at) = (&completion.packet, completion.end.time);
        self.busy = false;
        self.gps.advance(at);
        let fluid = self.gps.service(packet.flow).unwrap();
        let flow = &mut self.flows[packet.flow.number() as usize];
        flow.served += Work::of(packet.len);
        if at <= self.until {
            flow.ahead = flow.ahead.max(flow.served - fluid);
        }
        flow.packets.push_back(at);
        self.settle(at);
    }
    fn ended(&mut self, _: Now) {
        self.gps.finish();
        self.compare();
    }
}

/// Holds a packet server against the fluid server: the largest lag in L / R, and lead in
/// `(1 - phi) L_k`.
fn against_fluid<A: Scheduler>(case: &Case, algorithm: A, seed: u64) -> (f64, f64) {
    let fluid = case.run(algorithm, seed, Fluid::new(case, A::FOLLOWS_LINK));
    let packet = f64::from(case.longest.get()) * 8.0 / case.rate.bps() as f64;
    let late = fluid
        .flows
        .iter()
        .map(|flow| flow.late.as_secs_f64() / packet);
    let ahead = fluid
        .flows
        .iter()
        .zip(case.flows())
        .map(|(flow, (_, config))| {
            let own = f64::from(config.max_length.get());
            bytes(flow.ahead) / (own * (1.0 - case.terms(&config).share()))
        });
    (late.fold(0.0, f64::max), ahead.fold(0.0, f64::max))
}

/// Times are rounded to a picosecond, and the inverse weights of a run of this length
/// leave less.
const NEARLY: f64 = 1.001;

/// Bennett and Zhang's two theorems on WF2Q, whenever packets arrive: each packet leaves at most L / R
/// after the fluid server has finished it, and no flow's service is ever ahead of the fluid server's by
/// more than `(1 - phi) L_k`. The first is Parekh and Gallager's on WFQ.
#[test]
fn wf2q_and_wfq_follow_the_fluid_server() {
    let mut most = [0.0; 4];
    for_each_seed(
        "fluid",
        "wf2q_and_wfq_follow_the_fluid_server",
        30,
        |seed| {
            for load in [Load::Open, Load::Greedy] {
                let case = Case::new(seed, load);
                let (late, ahead) = against_fluid(&case, sched::Wf2q::new(), seed);
                assert!(late <= NEARLY && ahead <= NEARLY, "WF2Q: {late} {ahead}");
                let (wfq, far) = against_fluid(&case, sched::Wfq::new(), seed);
                assert!(wfq <= NEARLY, "WFQ: {wfq}");
                for (most, now) in most.iter_mut().zip([late, ahead, wfq, far]) {
                    *most = f64::max(*most, now);
                }
            }
        },
    );
    println!("WF2Q late and ahead, WFQ late and ahead: {most:?}");
}

/// A packet that arrives while another is sent: the smallest case in which WF2Q had sent a packet 1.8
/// L / R after the fluid server.
#[test]
fn an_arrival_during_a_transmission_counts_from_its_own_time() {
    fn late<A: Scheduler>(algorithm: A) -> Vec<f64> {
        let (rate, limits) = (rate(8_000_000), SchedulerLimits::default());
        let meter = LagMeter::new(rate);
        let mut link = Server::new(algorithm, limits, rate, TransmitQueue::NONE, meter);
        let flows = [(2, 100), (1, 1000)].map(|(weight, longest)| {
            let flow = link.add_flow(Picos::ZERO, config(weight, longest));
            (flow.unwrap(), length(longest))
        });
        for (micros, flow) in [(300, 1), (400, 0), (500, 0), (500, 1)] {
            let (flow, len) = flows[flow];
            link.arrive(Picos::from_nanos(1000 * micros), flow, len, ())
                .unwrap();
        }
        link.finish();
        let meter = link.observer();
        let late = flows.map(|(flow, _)| meter.worst(flow).unwrap());
        late.map(|late| late.as_secs_f64() * 1e3).into()
    }
    // In the fluid server the first packet of flow 0 ends after 0.55 ms; here the packet that was on
    // the wire before it ends after 1.3 ms.
    assert_eq!(late(sched::Wf2q::new()), [0.85, 0.0]);
    assert_eq!(late(sched::Wfq::new()), [0.85, 0.0]);
}

/// While all flows are backlogged, WF2Q+'s V is the fluid server's, and the theorems on WF2Q hold
/// for it unchanged. Once a flow is idle V is slower: then they hold against a fluid server in
/// which idle flows keep their shares, as the bounds state, and a flow may be ahead of the real
/// one, or behind.
#[test]
fn wf2q_plus_follows_the_fluid_server_while_all_flows_are_backlogged() {
    let name = "wf2q_plus_follows_the_fluid_server_while_all_flows_are_backlogged";
    let mut most = (0.0, 0.0);
    let mut otherwise = (0.0, 0.0);
    for_each_seed("fluid", name, 30, |seed| {
        let case = Case::new(seed, Load::Greedy);
        let (late, ahead) = against_fluid(&case, sched::Wf2qPlus::new(), seed);
        assert!(late <= NEARLY && ahead <= NEARLY, "{late} {ahead}");
        most = (f64::max(most.0, late), f64::max(most.1, ahead));
        let case = Case::new(seed, Load::Open);
        let (late, ahead) = against_fluid(&case, sched::Wf2qPlus::new(), seed);
        otherwise = (f64::max(otherwise.0, late), f64::max(otherwise.1, ahead));
    });
    println!("WF2Q+: {most:?}, otherwise {otherwise:?}");
}
