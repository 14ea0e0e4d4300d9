//! Random requests that arrive, poll, are cancelled and are served, one step at a time, with invariants checked after
//! each step.

use crate::{Acquire, AcquireError, Cost, FairSemaphore, Limits, MAX_COST, Permit, Weight};
use proptest::prelude::*;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

fn cost(units: u32) -> Cost {
    Cost::new(units).unwrap()
}

#[derive(Default)]
struct Bell(AtomicBool);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        assert!(!self.0.swap(true, Ordering::Relaxed), "woken once");
    }
}

impl Bell {
    fn rang(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A request that waits.
struct Request {
    tenant: u8,
    future: Acquire<u8>,
    bell: Arc<Bell>,
}

type Answer = Poll<Result<Permit<u8>, AcquireError>>;

impl Request {
    fn new(semaphore: &FairSemaphore<u8>, tenant: u8, units: u32) -> Request {
        Request {
            tenant,
            future: semaphore.acquire(tenant, cost(units)),
            bell: Arc::default(),
        }
    }

    /// A request that has to wait.
    fn waiting(semaphore: &FairSemaphore<u8>, tenant: u8, units: u32) -> Request {
        let mut request = Request::new(semaphore, tenant, units);
        assert!(request.poll().is_pending());
        request
    }

    fn poll(&mut self) -> Answer {
        let waker = Waker::from(Arc::clone(&self.bell));
        Pin::new(&mut self.future).poll(&mut Context::from_waker(&waker))
    }
}

#[derive(Clone, Debug)]
enum Step {
    Ask(u8, u32),
    TryAsk(u8, u32),
    /// A request that was never polled is dropped.
    Regret(u8),
    /// A spurious poll, with the same waker or with another.
    Look(usize, bool),
    Cancel(usize),
    Release(usize),
    Correct(usize, u32),
    Permits(u32),
    Weight(u8, u32),
    Reset(u8),
    Close,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let tenant = || 0..6u8;
    let step = prop_oneof![
        12 => (tenant(), 1..100u32).prop_map(|(tenant, cost)| Step::Ask(tenant, cost)),
        2 => (tenant(), 1..100u32).prop_map(|(tenant, cost)| Step::TryAsk(tenant, cost)),
        1 => tenant().prop_map(Step::Regret),
        4 => (any::<usize>(), any::<bool>()).prop_map(|(at, other)| Step::Look(at, other)),
        4 => any::<usize>().prop_map(Step::Cancel),
        8 => any::<usize>().prop_map(Step::Release),
        3 => (any::<usize>(), 1..200u32).prop_map(|(at, cost)| Step::Correct(at, cost)),
        1 => (0..6u32).prop_map(Step::Permits),
        1 => (tenant(), 1..10u32).prop_map(|(tenant, weight)| Step::Weight(tenant, weight)),
        1 => tenant().prop_map(Step::Reset),
    ];
    let ends = prop_oneof![9 => Just(false), 1 => Just(true)];
    (prop::collection::vec(step, 0..120), ends).prop_map(|(mut steps, closes)| {
        if closes {
            steps.insert(steps.len() / 2, Step::Close);
        }
        steps
    })
}

const LIMITS: Limits = Limits {
    permits: 3,
    permits_per_tenant: 2,
    waiting: 6,
    waiting_per_tenant: 3,
    tenants: 4,
    estimate: Cost::new(80).unwrap(),
};

struct Model {
    semaphore: FairSemaphore<u8>,
    /// In the order of arrival.
    waiting: Vec<Request>,
    permits: Vec<Permit<u8>>,
    closed: bool,
}

impl Model {
    fn new() -> Model {
        Model {
            semaphore: FairSemaphore::new(LIMITS),
            waiting: Vec::new(),
            permits: Vec::new(),
            closed: false,
        }
    }

    fn ask(&mut self, tenant: u8, units: u32) {
        let mut request = Request::new(&self.semaphore, tenant, units);
        let (before, of_tenant) = (self.semaphore.waiting(), self.queue(tenant));
        match request.poll() {
            Poll::Pending => self.waiting.push(request),
            Poll::Ready(Ok(permit)) => {
                assert_eq!(permit.cost(), cost(units).min(LIMITS.estimate));
                self.permits.push(permit);
            }
            Poll::Ready(Err(error)) => {
                assert_eq!(self.semaphore.waiting(), before);
                match error {
                    AcquireError::Closed => assert!(self.closed),
                    AcquireError::Full { limit } => assert!(before >= limit && of_tenant > 0),
                    AcquireError::TenantFull { limit } => assert_eq!(of_tenant, limit.into()),
                    AcquireError::TooManyTenants { limit } => {
                        assert_eq!(self.semaphore.tenants(), limit as usize);
                    }
                }
            }
        }
    }

    /// Returns the number of waiting requests of a tenant.
    fn queue(&self, tenant: u8) -> usize {
        let waits = |request: &&Request| request.tenant == tenant && !request.bell.rang();
        self.waiting.iter().filter(waits).count()
    }

    fn step(&mut self, step: &Step) {
        let (waiting, out) = (self.waiting.len().max(1), self.permits.len().max(1));
        match *step {
            Step::Ask(tenant, units) => self.ask(tenant, units),
            Step::TryAsk(tenant, units) => match self.semaphore.try_acquire(tenant, cost(units)) {
                Ok(permit) => self.permits.extend(permit),
                Err(AcquireError::Closed) => assert!(self.closed),
                Err(error) => assert_eq!(error, AcquireError::TooManyTenants { limit: 4 }),
            },
            Step::Regret(tenant) => drop(self.semaphore.acquire(tenant, cost(1))),
            Step::Look(at, other) => {
                if let Some(request) = self.waiting.get_mut(at % waiting) {
                    if other && !request.bell.rang() {
                        request.bell = Arc::default();
                    }
                    if !request.bell.rang() {
                        assert!(request.poll().is_pending(), "it was not woken");
                    }
                }
            }
            Step::Cancel(at) => {
                if !self.waiting.is_empty() {
                    self.waiting.remove(at % waiting);
                }
            }
            Step::Release(at) => {
                if !self.permits.is_empty() {
                    drop(self.permits.swap_remove(at % out));
                }
            }
            Step::Correct(at, units) => {
                if let Some(permit) = self.permits.get(at % out) {
                    permit.correct(cost(units));
                    assert_eq!(permit.cost(), cost(units));
                }
            }
            Step::Permits(permits) => self.semaphore.set_permits(permits),
            Step::Weight(tenant, weight) => {
                let weight = Weight::new(weight).unwrap();
                self.semaphore.set_weight(tenant, weight);
                assert_eq!(self.semaphore.weight(&tenant), weight);
            }
            Step::Reset(tenant) => {
                self.semaphore.reset_weight(tenant);
                assert_eq!(self.semaphore.weight(&tenant), Weight::ONE);
            }
            Step::Close => {
                self.semaphore.close();
                self.closed = true;
            }
        }
    }

    /// Checks the invariants between two steps.
    fn check(&self) {
        self.semaphore.check();
        for tenant in 0..6 {
            let of_tenant = self.waiting.iter().filter(|r| r.tenant == tenant);
            let rang: Vec<bool> = of_tenant.map(|request| request.bell.rang()).collect();
            assert!(
                rang.is_sorted_by(|a, b| a >= b),
                "tenant {tenant} is served in order: {rang:?}"
            );
        }
        let collected = self.permits.len();
        let granted = self.semaphore.in_flight() as usize - collected;
        let rang = self.waiting.iter().filter(|r| r.bell.rang()).count();
        assert!(self.closed || rang == granted, "who has a permit is woken");
        assert_eq!(self.waiting.len() - rang, self.semaphore.waiting() as usize);
    }

    /// Every woken request has a result; some of them poll for it.
    fn collect(&mut self, few: bool) {
        let most = if few { 1 } else { usize::MAX };
        let woken = self.waiting.extract_if(.., |request| request.bell.rang());
        for mut request in woken.take(most) {
            match request.poll() {
                Poll::Ready(Ok(permit)) => self.permits.push(permit),
                Poll::Ready(Err(error)) => assert!(self.closed, "{error}"),
                Poll::Pending => panic!("woken for nothing"),
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn no_permit_is_lost_and_no_request_leaves_a_trace(steps in steps()) {
        let mut model = Model::new();
        for (number, step) in steps.iter().enumerate() {
            model.step(step);
            model.check();
            if number % 3 == 0 {
                model.collect(number % 2 == 0);
                model.check();
            }
        }
        // The initial number of permits; then all are cancelled, in any order, after all have a result.
        model.semaphore.set_permits(3);
        while !model.permits.is_empty() || model.waiting.iter().any(|r| r.bell.rang()) {
            model.collect(false);
            model.permits.pop();
            model.check();
        }
        prop_assert!(model.waiting.is_empty(), "everybody who waited was admitted or refused");
        let (slots, _) = model.semaphore.leftovers();
        prop_assert_eq!(slots, [0; 3]);
        prop_assert_eq!((model.semaphore.in_flight(), model.semaphore.waiting()), (0, 0));
    }
}

/// Returns the order of admission of three requests each of tenants 0 and 1, of 7 and 10 units, that wait for the only
/// permit. `other` is the position and cost of one more request of tenant 0, which is cancelled if `goes`.
fn order(other: Option<(usize, u32)>, goes: bool) -> Vec<(u8, u32)> {
    let semaphore = FairSemaphore::new(Limits::permits(1));
    let mut out = semaphore.try_acquire(9, cost(1)).unwrap();
    let mut waiting: Vec<Request> = Vec::new();
    let mut ask = |tenant, units, goes: bool| {
        waiting.push(Request::waiting(&semaphore, tenant, units));
        goes.then_some(waiting.len() - 1)
    };
    let mut gone = None;
    for number in 0..4 {
        if let Some((_, units)) = other.filter(|&(at, _)| at == number) {
            gone = ask(0, units, goes);
        }
        if number < 3 {
            ask(0, 7, false);
        }
    }
    for _ in 0..3 {
        ask(1, 10, false);
    }
    gone.map(|at| waiting.remove(at));
    let mut order = Vec::new();
    while out.take().is_some() {
        semaphore.check();
        if let Some(at) = waiting.iter().position(|request| request.bell.rang()) {
            let mut request = waiting.remove(at);
            out = match request.poll() {
                Poll::Ready(Ok(permit)) => Some(permit),
                answer => panic!("{answer:?}"),
            };
            order.extend(
                out.as_ref()
                    .map(|permit| (request.tenant, permit.cost().get())),
            );
        }
    }
    assert!(waiting.is_empty());
    order
}

#[test]
fn a_request_that_goes_away_changes_nothing_whenever_it_goes() {
    let without = order(None, false);
    assert_eq!(without.len(), 6);
    for number in 0..4 {
        assert_eq!(
            order(Some((number, 7)), true),
            without,
            "as number {number}"
        );
    }
    // Behind others, for any cost.
    for number in 1..4 {
        assert_eq!(
            order(Some((number, 1000)), true),
            without,
            "as number {number}"
        );
    }
}

/// The first request of a tenant has a place in the order, at its own cost, which stays unchanged.
#[test]
fn cancelled_request_delays_no_request_of_its_tenant() {
    let (gone, stays) = (order(Some((0, 1000)), true), order(Some((0, 1000)), false));
    assert_eq!((gone.len(), stays.len()), (6, 7));
    let places = |order: &[(u8, u32)]| {
        let order = order.iter().enumerate();
        let others = order.filter(|(_, who)| who.0 == 0 && who.1 < 1000);
        others.map(|(place, _)| place).collect::<Vec<_>>()
    };
    let pairs = places(&gone).into_iter().zip(places(&stays));
    assert!(pairs.clone().all(|(gone, stays)| gone <= stays));
    assert_eq!(pairs.count(), 3);
}

/// A request that is cancelled with an uncollected permit is refunded its cost, except for the minimum cost.
#[test]
fn uncollected_permit_costs_one_unit() {
    let semaphore = FairSemaphore::new(Limits::permits(1));
    let out = semaphore.try_acquire(0, cost(5)).unwrap();
    let request = Request::waiting(&semaphore, 1, 1000);
    drop(out);
    assert!(request.bell.rang());
    assert_eq!(semaphore.in_flight(), 1);
    drop(request);
    assert_eq!(semaphore.in_flight(), 0);
    assert_eq!(semaphore.leftovers(), ([0; 3], -999));
    semaphore.check();
}

#[test]
fn a_correction_is_charged_for_as_far_as_there_are_costs_and_the_rest_is_kept() {
    let semaphore = FairSemaphore::new(Limits::permits(8));
    let take = |units| semaphore.try_acquire(0, cost(units)).unwrap().unwrap();
    let account = || semaphore.leftovers().1;
    let permit = take(100);
    permit.correct(cost(30));
    permit.correct(cost(40));
    assert_eq!(account(), -60);
    drop(take(20));
    // At least 1 is charged: 19 of the 60 are used up.
    assert_eq!(account(), -41);
    drop(take(100));
    assert_eq!(account(), 0);
    permit.correct(Cost::MAX);
    drop(take(7));
    assert_eq!(account(), 0, "the largest cost at once");
    // For any amount, on either side.
    let most = i64::from(MAX_COST) - 1;
    let dear = [0; 3].map(|_| take(MAX_COST));
    dear.iter().for_each(|permit| permit.correct(Cost::ONE));
    assert_eq!(account(), -3 * most);
    drop(take(MAX_COST));
    assert_eq!(account(), -2 * most);
    dear.iter().for_each(|permit| permit.correct(Cost::MAX));
    assert_eq!(account(), most);
    let cheap = [0; 3].map(|_| take(1));
    assert_eq!(account(), 0);
    cheap.iter().for_each(|permit| permit.correct(Cost::MAX));
    for left in [3, 2, 1, 0] {
        assert_eq!(account(), left * most);
        drop(take(1));
    }
    semaphore.check();
}

#[test]
fn forgotten_tenant_has_no_debt() {
    let semaphore = FairSemaphore::new(Limits {
        tenants: 1,
        ..Limits::permits(2)
    });
    let take = |tenant| semaphore.try_acquire(tenant, Cost::ONE).unwrap().unwrap();
    let both = [take(0), take(0)];
    both.iter().for_each(|permit| permit.correct(Cost::MAX));
    assert_eq!(semaphore.leftovers().1, 2 * i64::from(MAX_COST - 1));
    drop(both);
    drop(take(1));
    assert_eq!(semaphore.leftovers().1, 0);
    semaphore.check();
}

/// One tenant alone, whose requests all cost one unit, for any estimate.
#[test]
fn what_estimates_too_high_are_worth_is_bounded_however_often_one_asks_and_goes() {
    let (permits, estimate) = (3, 100);
    let semaphore = FairSemaphore::new(Limits {
        estimate: cost(estimate),
        ..Limits::permits(permits)
    });
    let mut random = SmallRng::seed_from_u64(1);
    let (mut waiting, mut out) = (Vec::<Request>::new(), Vec::<Permit<u8>>::new());
    let mut worst = 0;
    for _ in 0..20_000 {
        match random.random_range(0..3) {
            0 => {
                let mut request = Request::new(&semaphore, 0, random.random_range(1..1000));
                match request.poll() {
                    Poll::Pending => waiting.push(request),
                    Poll::Ready(permit) => out.push(permit.unwrap()),
                }
            }
            1 if !waiting.is_empty() => {
                let granted = waiting.iter().position(|request| request.bell.rang());
                let mut request = waiting.swap_remove(granted.unwrap_or(0));
                if request.bell.rang()
                    && random.random_bool(0.5)
                    && let Poll::Ready(permit) = request.poll()
                {
                    out.push(permit.unwrap());
                }
            }
            2 if !out.is_empty() => {
                let permit = out.swap_remove(random.random_range(0..out.len()));
                permit.correct(Cost::ONE);
            }
            _ => {}
        }
        worst = worst.min(semaphore.leftovers().1);
    }
    let bound = i64::from((permits + 1) * estimate);
    assert!((-bound..-bound / 2).contains(&worst), "{worst}");
}

/// Before, the request of 1,000 units was admitted from the place of the cancelled one.
#[test]
fn an_expensive_request_gets_its_own_place_when_a_cheap_one_before_it_is_cancelled() {
    let semaphore = FairSemaphore::new(Limits::permits(1));
    let out = semaphore.try_acquire(9, cost(1)).unwrap();
    let cheap = Request::waiting(&semaphore, 0, 1);
    let expensive = Request::waiting(&semaphore, 0, 1000);
    let other = Request::waiting(&semaphore, 1, 10);
    drop(cheap);
    drop(out);
    assert!(other.bell.rang() && !expensive.bell.rang());
    semaphore.check();
    drop(other);
    assert!(expensive.bell.rang());
    semaphore.check();
}
