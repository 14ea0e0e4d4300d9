//! Tenants with requests, and a server with some permits, on a virtual clock.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use fairlane_tower::{Acquire, AcquireError, Cost, FairSemaphore, Permit};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

/// The arrivals of a tenant's requests.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Asks {
    /// At random, with this mean interval.
    Every(f64),
    /// This number of requests is in progress or waits at any time.
    Always(u32),
}

/// A tenant's requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    pub(crate) asks: Asks,
    /// Least and largest cost.
    pub(crate) costs: (u32, u32),
    /// The actual cost of a request, if it differs from the estimate.
    pub(crate) actual: Option<u32>,
    /// Mean service time of a request, exponentially distributed.
    pub(crate) service: f64,
    /// Sends no requests from this time on.
    pub(crate) until: u64,
}

/// The times at which a request arrived, was admitted and was done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    pub(crate) tenant: u32,
    pub(crate) cost: u32,
    pub(crate) came: u64,
    pub(crate) admitted: u64,
    pub(crate) done: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Asks(u32),
    Ends(usize),
}

#[derive(Default)]
struct Bells(Mutex<Vec<usize>>);

struct Bell(usize, Arc<Bells>);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.1.0.lock().unwrap().push(self.0);
    }
}

struct Request {
    record: Record,
    serves: u64,
    future: Acquire<u32>,
    permit: Option<Permit<u32>>,
}

pub(crate) struct Simulation {
    pub(crate) semaphore: FairSemaphore<u32>,
    sources: Vec<(Source, SmallRng)>,
    now: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    steps: u64,
    requests: Vec<Option<Request>>,
    free: Vec<usize>,
    bells: Arc<Bells>,
    /// In the order of admission.
    pub(crate) admitted: Vec<Record>,
    pub(crate) refused: u64,
}

impl Simulation {
    pub(crate) fn new(semaphore: FairSemaphore<u32>) -> Simulation {
        Simulation {
            semaphore,
            sources: Vec::new(),
            now: 0,
            events: BinaryHeap::new(),
            steps: 0,
            requests: Vec::new(),
            free: Vec::new(),
            bells: Arc::default(),
            admitted: Vec::new(),
            refused: 0,
        }
    }

    /// Adds a tenant; tenants are numbered from 0. A tenant's requests do not depend on other tenants.
    pub(crate) fn tenant(&mut self, source: Source, seed: u64) -> u32 {
        let tenant = self.sources.len() as u32;
        self.sources.push((source, SmallRng::seed_from_u64(seed)));
        let first = match source.asks {
            Asks::Every(_) => 1,
            Asks::Always(requests) => requests,
        };
        (0..first).for_each(|_| self.schedule(0, Event::Asks(tenant)));
        tenant
    }

    fn schedule(&mut self, at: u64, event: Event) {
        self.steps += 1;
        self.events.push(Reverse((at, self.steps, event)));
    }

    fn ask(&mut self, tenant: u32) {
        let (source, random) = &mut self.sources[tenant as usize];
        if self.now >= source.until {
            return;
        }
        let mut spread = |mean: f64| (-mean * (1.0 - random.random::<f64>()).ln()) as u64;
        let serves = spread(source.service).max(1);
        let next = match source.asks {
            Asks::Every(mean) => Some(spread(mean)),
            Asks::Always(_) => None,
        };
        let cost = random.random_range(source.costs.0..=source.costs.1);
        if let Some(after) = next {
            self.schedule(self.now + after, Event::Asks(tenant));
        }
        let future = self.semaphore.acquire(tenant, Cost::new(cost).unwrap());
        let number = self.free.pop().unwrap_or(self.requests.len());
        if number == self.requests.len() {
            self.requests.push(None);
        }
        self.requests[number] = Some(Request {
            record: Record {
                tenant,
                cost,
                came: self.now,
                admitted: 0,
                done: 0,
            },
            serves,
            future,
            permit: None,
        });
        self.look(number);
    }

    /// Polls a request that is new or was woken.
    fn look(&mut self, number: usize) {
        let waker = Waker::from(Arc::new(Bell(number, Arc::clone(&self.bells))));
        let request = self.requests[number].as_mut().expect("it is under way");
        let found = Pin::new(&mut request.future).poll(&mut Context::from_waker(&waker));
        match found {
            Poll::Pending => {}
            Poll::Ready(Ok(permit)) => {
                request.permit = Some(permit);
                request.record.admitted = self.now;
                request.record.done = self.now + request.serves;
                let record = request.record;
                self.admitted.push(record);
                self.schedule(record.done, Event::Ends(number));
            }
            Poll::Ready(Err(error)) => {
                assert!(matches!(error, AcquireError::TenantFull { .. }), "{error}");
                self.refused += 1;
                self.requests[number] = None;
                self.free.push(number);
            }
        }
    }

    fn end(&mut self, number: usize) {
        let request = self.requests[number].take().expect("it is under way");
        self.free.push(number);
        let tenant = request.record.tenant;
        let source = self.sources[tenant as usize].0;
        let permit = request.permit.expect("it was admitted");
        if let Some(actual) = source.actual {
            permit.correct(Cost::new(actual).unwrap());
        }
        drop(permit);
        if let Asks::Always(_) = source.asks {
            self.ask(tenant);
        }
    }

    /// Runs until all requests have arrived and are done. A waiting request is polled only when woken: a lost wake-up
    /// would leave it waiting.
    pub(crate) fn run(&mut self) {
        while let Some(Reverse((at, _, event))) = self.events.pop() {
            self.now = at;
            match event {
                Event::Asks(tenant) => self.ask(tenant),
                Event::Ends(number) => self.end(number),
            }
            loop {
                let woken = std::mem::take(&mut *self.bells.0.lock().unwrap());
                if woken.is_empty() {
                    break;
                }
                woken.into_iter().for_each(|number| self.look(number));
            }
        }
        let left = self.requests.iter().flatten().count();
        assert_eq!(left, 0, "requests that nobody woke");
        assert_eq!(
            (self.semaphore.in_flight(), self.semaphore.waiting()),
            (0, 0)
        );
    }
}
