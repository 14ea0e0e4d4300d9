//! Requests by cost: the same order as of packets, at costs up to 2^31, and shares by true cost where
//! estimates are corrected after service.

use fairlane_core::bounds::{
    self, Estimates, Round, Slot, Terms, Transmit, Wfi as Bound, Work, cost_rounding,
};
use fairlane_core::cost::MAX_COST;
use fairlane_core::sched::{Costs, Drr, Fifo, Priority, Qfq, Scfq, Wf2qPlus};
use fairlane_core::{
    ChangeError, Correction, Cost, CostScheduler, FlowConfig, FlowId, Limits, PacketScheduler,
    Rejection, Scheduler, SchedulerLimits, Ticket,
};
use proptest::prelude::*;

use crate::support::{Offer, Random, Wfi, length, scheduler, some_cases, times, weight};

fn cost(units: u32) -> Cost {
    Cost::try_from(units).unwrap()
}

fn costs<A: Scheduler, P>(algorithm: A) -> CostScheduler<A, P> {
    CostScheduler::for_costs(algorithm, SchedulerLimits::for_costs())
}

fn check<A: Scheduler, P>(link: &CostScheduler<A, P>) {
    if let Err(violation) = link.invariants() {
        panic!("{}: {violation}", A::NAME);
    }
}

/// Packets and requests that cost 2^16 units a byte: the numbers of both algorithms are the same then,
/// to the last bit. So whatever holds of packets holds of costs up to 2^31.
fn the_same_order<A: Scheduler, B: Scheduler>(bytes: A, units: B, seed: u64) {
    const FACTOR: u32 = 1 << 16;
    let mut random = Random(seed);
    let mut link: PacketScheduler<_, ()> = scheduler(bytes);
    let mut queue: CostScheduler<_, ()> = costs(units);
    let weights = [1, 2, 3, 7, 16, 1000, 65_536, 999_999, 1_000_000];
    let longest = [1, 40, 1500, 9000, 32_768];
    // Quanta are cut off at another place.
    let weights = match A::NAME == <Drr>::NAME {
        true => &[1, 2, 16, 1024][..],
        false => &weights[..],
    };
    let mut flows = Vec::new();
    for _ in 0..4_000 {
        let (of, most) = (random.pick(weights), random.pick(&longest));
        let (packets, requests) = (
            FlowConfig::new(weight(of), length(most)),
            FlowConfig::new(weight(of), cost(most * FACTOR)),
        );
        match random.below(40) {
            0 if flows.len() < 12 => {
                let flow = link.add_flow(packets).unwrap();
                assert_eq!(queue.add_flow(requests), Ok(flow));
                flows.push((flow, most));
            }
            1 if flows.len() > 2 => {
                let (flow, _) = flows.swap_remove(random.below(flows.len() as u32) as usize);
                link.remove_flow(flow, |_| ()).unwrap();
                queue.remove_flow(flow, |_| ()).unwrap();
            }
            2 if !flows.is_empty() => {
                let at = random.below(flows.len() as u32) as usize;
                let changed = link.change_flow(flows[at].0, packets).is_ok();
                assert_eq!(queue.change_flow(flows[at].0, requests).is_ok(), changed);
                flows[at].1 = if changed { most } else { flows[at].1 };
            }
            3 if !flows.is_empty() => {
                let (flow, _) = random.pick(&flows);
                link.flush_flow(flow, |_| ()).unwrap();
                queue.flush_flow(flow, |_| ()).unwrap();
            }
            4..22 if !flows.is_empty() => {
                let (flow, most) = random.pick(&flows);
                let bytes = 1 + random.below(most);
                link.enqueue(flow, length(bytes), ()).unwrap();
                queue.enqueue(flow, cost(bytes * FACTOR), ()).unwrap();
            }
            _ => {
                let sent = link.dequeue().map(|sent| (sent.owner, sent.len.get()));
                let served = queue.dequeue();
                let served = served.map(|served| (served.owner, served.len.get() / FACTOR));
                assert_eq!(sent, served, "{} from {seed}", A::NAME);
            }
        }
        if random.below(8) == 0 {
            check(&queue);
        }
    }
}

#[test]
fn the_order_of_costs_is_that_of_packets_at_any_size() {
    for seed in 0..times(3, 100).into() {
        the_same_order(Qfq::new(), Qfq::for_costs(), seed);
        the_same_order(Wf2qPlus::new(), Wf2qPlus::for_costs(), seed);
        the_same_order(Scfq::new(), Scfq::for_costs(), seed);
        the_same_order(Drr::new(), Drr::for_costs(), seed);
        the_same_order(Fifo::new(), Fifo::new(), seed);
        the_same_order(Priority::new(), Priority::new(), seed);
    }
}

/// A flow of requests, and the error of its estimates.
#[derive(Clone, Copy, Debug)]
struct Tenant {
    weight: u32,
    /// Largest true cost and estimate.
    most: u32,
    /// A request is estimated up to this much too low, or too high.
    error: u32,
    /// Requests in flight, at most.
    in_flight: u32,
}

impl Tenant {
    /// A request: its estimate and its true cost.
    fn request(&self, random: &mut Random) -> (u32, u32) {
        let within = |random: &mut Random, low: u32, high: u32| match random.below(4) {
            0 => low,
            1 => high,
            _ => low + (random.number() % u64::from(high - low + 1)) as u32,
        };
        let actual = within(random, 1, self.most);
        let (low, high) = (actual.saturating_sub(self.error), actual + self.error);
        let estimated = within(random, low.max(1), high.min(self.most));
        (estimated, actual)
    }

    fn estimates(&self) -> Estimates {
        Estimates {
            in_flight: self.in_flight,
            error: 2 * self.error,
        }
    }
}

type InFlight = (usize, Ticket, u32);

/// Tenants that are never idle, served many requests, of which each is corrected at some time.
struct Served<A: Scheduler> {
    queue: CostScheduler<A, u32>,
    tenants: Vec<Tenant>,
    in_flight: Vec<InFlight>,
    random: Random,
    wfi: Wfi,
}

impl<A: Scheduler> Served<A> {
    fn new(algorithm: A, tenants: &[Tenant], seed: u64) -> Self {
        let offer = |tenant: &Tenant| Offer::of(tenant.weight, tenant.most);
        let offers: Vec<Offer> = tenants.iter().map(offer).collect();
        let mut served = Served {
            queue: costs(algorithm),
            tenants: tenants.to_vec(),
            in_flight: Vec::new(),
            random: Random(seed),
            wfi: Wfi::new(&offers),
        };
        for tenant in tenants {
            let config = FlowConfig::new(weight(tenant.weight), cost(tenant.most));
            served.queue.add_flow(config).unwrap();
        }
        // Bounds are for sums of weights that do not change.
        for flow in 0..tenants.len() {
            served.ask(flow);
            served.ask(flow);
        }
        served
    }

    fn ask(&mut self, flow: usize) {
        let (estimated, actual) = self.tenants[flow].request(&mut self.random);
        let id = FlowId::new(flow as u32);
        self.queue.enqueue(id, cost(estimated), actual).unwrap();
    }

    /// Corrects a request in flight, of `flow` or of any flow.
    fn correct(&mut self, flow: Option<usize>) {
        let mine = |&at: &usize| flow.is_none_or(|flow| self.in_flight[at].0 == flow);
        let any: Vec<usize> = (0..self.in_flight.len()).filter(mine).collect();
        if any.is_empty() {
            return;
        }
        let at = self.random.pick(&any);
        let (_, ticket, actual) = self.in_flight.swap_remove(at);
        let by = i64::from(actual) - i64::from(ticket.estimated().get());
        let corrected = self.queue.correct(ticket, cost(actual));
        assert_eq!(corrected, Ok(Correction { by, beyond: 0 }));
    }

    fn serve(&mut self) {
        for flow in 0..self.tenants.len() {
            let own = self.in_flight.iter().filter(|of| of.0 == flow).count();
            if own >= self.tenants[flow].in_flight as usize {
                self.correct(Some(flow));
            }
        }
        let (request, ticket) = self.queue.serve().unwrap();
        let flow = request.owner.number() as usize;
        self.wfi.serve(flow, request.payload);
        self.in_flight.push((flow, ticket, request.payload));
        self.ask(flow);
        for _ in 0..self.random.below(3) {
            self.correct(None);
        }
        let balance = self.queue.balance(request.owner).unwrap();
        let most = self.tenants[flow].estimates().work().bytes();
        assert!(balance.unsigned_abs() as f64 <= most, "{balance} of {most}");
    }
}

/// Returns the bound of a tenant by an algorithm's for its largest cost.
fn bound_of(tenants: &[Tenant], flow: usize, work: u64, algorithm: fn(&Case) -> Bound) -> Bound {
    let sum = tenants.iter().map(|of| u64::from(of.weight)).sum();
    let longest = tenants.iter().map(|of| of.most).max().unwrap();
    let own = &tenants[flow];
    let (of, most) = (weight(own.weight), cost(own.most));
    let terms = Terms::new(of, sum, most, cost(longest), Transmit::Between).unwrap();
    let all = tenants.iter().map(|of| (weight(of.weight), cost(of.most)));
    let round = Round::of(all).unwrap();
    let case = Case {
        terms,
        round,
        own: *own,
    };
    let others = (tenants.iter().enumerate())
        .filter(|&(other, _)| other != flow)
        .fold(Work::ZERO, |sum, (_, of)| sum + of.estimates().work());
    let exact = algorithm(&case) + cost_rounding(&terms, work);
    bounds::corrected(exact, terms.share(), own.estimates(), others)
}

struct Case {
    terms: Terms,
    round: Round,
    own: Tenant,
}

/// Checks that no flow is further behind its share by true cost than the bound.
fn within_bounds<A: Scheduler>(
    algorithm: A,
    tenants: &[Tenant],
    requests: u32,
    seed: u64,
    bound: fn(&Case) -> Bound,
) {
    let mut served = Served::new(algorithm, tenants, seed);
    for n in 0..requests {
        served.serve();
        if n % 64 == 0 {
            check(&served.queue);
        }
    }
    let work = served.wfi.work();
    for flow in 0..tenants.len() {
        served.wfi.look(flow);
        let behind = served.wfi.service(flow);
        let bound = bound_of(tenants, flow, work, bound).service.bytes();
        assert!(
            behind <= bound,
            "{}: tenant {flow} is {behind} behind, and {bound} are the bound",
            A::NAME
        );
    }
}

fn drr(case: &Case) -> Bound {
    let (of, most) = (weight(case.own.weight), cost(case.own.most));
    bounds::drr(&case.round, of, most, Transmit::Between).unwrap()
}

fn scfq(case: &Case) -> Bound {
    let (of, most) = (weight(case.own.weight), cost(case.own.most));
    bounds::scfq(&case.round, of, most, Transmit::Between).unwrap()
}

fn qfq(case: &Case) -> Bound {
    bounds::qfq(&case.terms, Slot::Actual)
}

fn wf2q_plus(case: &Case) -> Bound {
    bounds::wf2q_plus(&case.terms)
}

fn tenants() -> impl Strategy<Value = Vec<Tenant>> {
    let weights = prop_oneof![
        1..=16u32,
        Just(1),
        Just(1000),
        Just(999_999),
        Just(1_000_000)
    ];
    let most = prop_oneof![1..=200u32, Just(131_072), Just(MAX_COST), 1..=MAX_COST];
    let tenant = (weights, most, 0..=100u32, 1..=8u32);
    let tenant = tenant.prop_map(|(weight, most, percent, in_flight)| Tenant {
        weight,
        most,
        error: (u64::from(most - 1) * u64::from(percent) / 100) as u32,
        in_flight,
    });
    prop::collection::vec(tenant, 2..6)
}

proptest! {
    #![proptest_config(some_cases(24))]

    /// With any estimates, errors up to all that a request can cost, and corrections in any order.
    #[test]
    fn shares_by_true_cost_are_within_the_bound(tenants in tenants(), seed in any::<u64>()) {
        within_bounds(Drr::for_costs(), &tenants, 600, seed, drr);
        within_bounds(Qfq::for_costs(), &tenants, 600, seed, qfq);
        within_bounds(Wf2qPlus::for_costs(), &tenants, 600, seed, wf2q_plus);
        within_bounds(Scfq::for_costs(), &tenants, 600, seed, scfq);
    }
}

/// A flow that always asks for less than it needs does not get more for it in the end; without corrections it would get
/// ten times its share. The addition to the bound is needed.
#[test]
fn estimates_that_are_always_wrong_change_no_share() {
    let honest = Tenant {
        weight: 1,
        most: 1000,
        error: 0,
        in_flight: 8,
    };
    let wrong = Tenant {
        error: 900,
        ..honest
    };
    let mut served = Served::new(Wf2qPlus::for_costs(), &[honest, wrong], 1);
    for flow in 0..2 {
        served.queue.flush_flow(FlowId::new(flow), |_| ()).unwrap();
    }
    let ask = |served: &mut Served<Wf2qPlus<Costs>>, flow: usize| {
        let estimated = if flow == 0 { 1000 } else { 100 };
        let id = FlowId::new(flow as u32);
        served.queue.enqueue(id, cost(estimated), 1000).unwrap();
    };
    (0..2).for_each(|flow| ask(&mut served, flow));
    (0..2).for_each(|flow| ask(&mut served, flow));
    for _ in 0..4_000 {
        if served.in_flight.len() == 8 {
            served.correct(None);
        }
        let (request, ticket) = served.queue.serve().unwrap();
        let flow = request.owner.number() as usize;
        served.wfi.serve(flow, 1000);
        served.in_flight.push((flow, ticket, 1000));
        ask(&mut served, flow);
    }
    served.wfi.look(0);
    let (honestly, wrongly) = (served.wfi.served(0), served.wfi.served(1));
    assert!(
        honestly.abs_diff(wrongly) <= 2 * 9 * 900,
        "{honestly} {wrongly}"
    );
    let behind = served.wfi.service(0);
    let tenants = [honest, wrong];
    let exact = tenants.map(|tenant| Tenant { error: 0, ..tenant });
    let work = served.wfi.work();
    assert!(behind <= bound_of(&tenants, 0, work, wf2q_plus).service.bytes());
    assert!(
        behind > bound_of(&exact, 0, work, wf2q_plus).service.bytes(),
        "{behind} is no more than with exact estimates"
    );
}

/// Returns a scheduler with two flows of one weight and a largest cost of 1000.
fn pair() -> (CostScheduler<Wf2qPlus<Costs>, u32>, [FlowId; 2]) {
    let mut queue = costs(Wf2qPlus::for_costs());
    let flows = [0; 2].map(|_| {
        let config = FlowConfig::new(weight(1), cost(1000));
        queue.add_flow(config).unwrap()
    });
    (queue, flows)
}

/// The next request of this cost, which must be of this flow, is served.
fn serve(queue: &mut CostScheduler<Wf2qPlus<Costs>, u32>, flow: FlowId, units: u32) -> Ticket {
    queue.enqueue(flow, cost(units), 0).unwrap();
    let (request, ticket) = queue.serve().unwrap();
    assert_eq!((request.owner, request.len), (flow, cost(units)));
    assert_eq!((ticket.flow(), ticket.estimated()), (flow, cost(units)));
    ticket
}

#[test]
fn a_correction_is_for_the_next_request_whether_one_waits_or_not() {
    let (mut queue, [flow, _]) = pair();
    let ticket = serve(&mut queue, flow, 100);
    let correction = Correction { by: 900, beyond: 0 };
    assert_eq!(queue.correct(ticket, cost(1000)), Ok(correction));
    assert_eq!(queue.balance(flow), Some(900));
    // Charged 1000, for 100 and 900.
    let ticket = serve(&mut queue, flow, 100);
    assert_eq!(queue.balance(flow), Some(0));
    let correction = Correction { by: -99, beyond: 0 };
    assert_eq!(queue.correct(ticket, cost(1)), Ok(correction));
    // No request is charged less than a unit, and none is refunded more than its charge.
    serve(&mut queue, flow, 40);
    assert_eq!(queue.balance(flow), Some(-60));
    serve(&mut queue, flow, 70);
    assert_eq!(queue.balance(flow), Some(0));
}

#[test]
fn what_does_not_fit_a_request_is_for_the_one_after_it() {
    let (mut queue, [flow, _]) = pair();
    let tickets = [0; 4].map(|_| serve(&mut queue, flow, 100));
    for ticket in tickets {
        queue.correct(ticket, cost(1000)).unwrap();
    }
    for left in [2700, 1800, 900, 0, 0] {
        serve(&mut queue, flow, 100);
        assert_eq!(queue.balance(flow), Some(left));
    }
}

#[test]
fn a_flush_takes_back_what_the_first_request_was_to_be_charged() {
    let (mut queue, [flow, _]) = pair();
    let ticket = serve(&mut queue, flow, 100);
    queue.correct(ticket, cost(400)).unwrap();
    queue.enqueue(flow, cost(50), 0).unwrap();
    queue.enqueue(flow, cost(60), 0).unwrap();
    assert_eq!(queue.balance(flow), Some(0));
    queue.flush_flow(flow, |_| ()).unwrap();
    assert_eq!(queue.balance(flow), Some(300));
    serve(&mut queue, flow, 50);
    assert_eq!(queue.balance(flow), Some(0));
    check(&queue);
}

#[test]
fn beyond_the_largest_cost_nobody_is_charged() {
    let (mut queue, [flow, _]) = pair();
    let ticket = serve(&mut queue, flow, 100);
    let correction = Correction {
        by: 900,
        beyond: 200,
    };
    assert_eq!(queue.correct(ticket, cost(1200)), Ok(correction));
    // A largest cost that was lowered meanwhile refunds nothing.
    let ticket = serve(&mut queue, flow, 800);
    let before = queue.balance(flow);
    queue
        .change_flow(flow, FlowConfig::new(weight(1), cost(500)))
        .unwrap();
    let correction = Correction { by: 0, beyond: 200 };
    assert_eq!(queue.correct(ticket, cost(1000)), Ok(correction));
    assert_eq!(queue.balance(flow), before);
}

#[test]
fn a_ticket_of_a_removed_flow_corrects_nobody_whoever_has_its_number() {
    let (mut queue, [flow, other]) = pair();
    let tickets = [0; 3].map(|_| serve(&mut queue, flow, 100));
    let mut tickets = tickets.into_iter();
    let mut late = || tickets.next().unwrap();
    queue.remove_flow(flow, |_| ()).unwrap();
    let unknown = Err(ChangeError::UnknownFlow);
    assert_eq!(queue.correct(late(), cost(1)), unknown);
    assert_eq!(queue.balance(flow), None);
    let config = FlowConfig::new(weight(1), cost(1000));
    let again = queue.add_flow(config).unwrap();
    assert_eq!(again, flow, "the number is in use again");
    assert_eq!(queue.correct(late(), cost(1)), unknown);
    let ticket = serve(&mut queue, again, 300);
    assert_eq!(queue.correct(late(), cost(1)), unknown);
    assert!(queue.correct(ticket, cost(299)).is_ok());
    assert_eq!(
        (queue.balance(again), queue.balance(other)),
        (Some(-1), Some(0))
    );
}

#[test]
fn the_largest_cost_there_is_fits_and_one_more_than_declared_does_not() {
    let mut queue: CostScheduler<_, u32> = costs(Qfq::for_costs());
    let config = FlowConfig::new(weight(1), Cost::MAX);
    let any = queue.add_flow(config).unwrap();
    for n in 0..4 {
        queue.enqueue(any, Cost::MAX, n).unwrap();
    }
    let stats = queue.flow_stats(any).unwrap();
    assert_eq!(stats.queued.bytes, 4 << 31);
    assert_eq!(queue.room(any), (1 << 20) - 4);
    let limits = Some(Limits {
        bytes: 1999,
        ..Limits::NONE
    });
    let config = FlowConfig::new(weight(1), cost(1000));
    let few = queue.add_flow(FlowConfig { limits, ..config }).unwrap();
    assert_eq!(queue.room(few), 1);
    let rejected = queue.enqueue(few, cost(1001), 7).unwrap_err();
    assert_eq!(
        (rejected.payload, rejected.reason),
        (7, Rejection::TooLong { max: cost(1000) })
    );
    assert_eq!(
        rejected.to_string(),
        "the request costs more than the 1000 units that were declared"
    );
    queue.enqueue(few, cost(1000), 0).unwrap();
    let rejected = queue.enqueue(few, cost(1000), 0).unwrap_err();
    assert_eq!(rejected.reason, Rejection::QueueFull);
    let config = FlowConfig::new(weight(1), cost(999));
    let error = queue.change_flow(few, config).unwrap_err();
    assert_eq!(
        error.to_string(),
        "a request of 1000 units is queued, more than the new maximum of 999"
    );
    check(&queue);
}
