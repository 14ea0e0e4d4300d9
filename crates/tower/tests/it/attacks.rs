//! Tenants that attack one with low demand: they cancel, hold permits, and mix large and small requests.
//!
//! `FAIRLANE_TRIES=10000 cargo test -p fairlane-tower --test it attacks -- --nocapture` searches for worse tapes than
//! the one in the file.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use fairlane_testkit::tape::{Attack, Tape};
use fairlane_tower::{Acquire, Cost, FairSemaphore, Limits, Permit, Weight};

const STEPS: u32 = 150;
const VICTIM: usize = 0;

/// Granted requests in order: tenant and cost.
type Log = Arc<Mutex<Vec<(usize, u32)>>>;

/// Rings once its request has a permit.
struct Bell {
    tenant: usize,
    cost: u32,
    log: Log,
    rang: AtomicBool,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.rang.store(true, Ordering::Relaxed);
        self.log.lock().unwrap().push((self.tenant, self.cost));
    }
}

struct Request {
    bell: Arc<Bell>,
    future: Acquire<usize>,
}

/// A tenant, and what it was granted while the victim waits.
struct Tenant {
    weight: u32,
    largest: u32,
    waiting: u32,
    granted: u64,
}

struct Play {
    semaphore: FairSemaphore<usize>,
    tenants: Vec<Tenant>,
    requests: Vec<Request>,
    permits: Vec<Permit<usize>>,
    log: Log,
    victim_waits: bool,
    /// Work granted to others since the victim's last request.
    since: u64,
    ratio: f64,
}

impl Play {
    fn new(tape: &mut Tape) -> Play {
        let most_permits = 1 + tape.below(3);
        let semaphore = FairSemaphore::new(Limits::permits(most_permits));
        let tenants = (0..2 + tape.below(4)).map(|_| Tenant {
            weight: 1 + tape.below(8),
            largest: tape.pick(&[1, 10, 100, 1000, 10_000]),
            waiting: 0,
            granted: 0,
        });
        let tenants: Vec<Tenant> = tenants.collect();
        for (number, tenant) in tenants.iter().enumerate() {
            semaphore.set_weight(number, Weight::new(tenant.weight).unwrap());
        }
        Play {
            semaphore,
            tenants,
            requests: Vec::new(),
            permits: Vec::new(),
            log: Log::default(),
            victim_waits: false,
            since: u64::MAX / 2,
            ratio: 0.0,
        }
    }

    fn ask(&mut self, tenant: usize, cost: u32) {
        let bell = Arc::new(Bell {
            tenant,
            cost,
            log: Arc::clone(&self.log),
            rang: AtomicBool::new(false),
        });
        let waker = Waker::from(Arc::clone(&bell));
        let mut future = self
            .semaphore
            .acquire(tenant, Cost::try_from(cost).unwrap());
        self.tenants[tenant].waiting += 1;
        if tenant == VICTIM {
            self.victim_waits = true;
            for tenant in &mut self.tenants {
                tenant.granted = 0;
            }
        }
        match Pin::new(&mut future).poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(permit) => {
                self.permits.push(permit.unwrap());
                self.log.lock().unwrap().push((tenant, cost));
            }
            Poll::Pending => self.requests.push(Request { bell, future }),
        }
    }

    /// Collects the permits of all requests that have one, but for those of `holds`, which does not poll.
    fn collect(&mut self, holds: Option<usize>) {
        for mut request in std::mem::take(&mut self.requests) {
            if Some(request.bell.tenant) == holds {
                self.requests.push(request);
                continue;
            }
            let waker = Waker::from(Arc::clone(&request.bell));
            let mut context = Context::from_waker(&waker);
            match Pin::new(&mut request.future).poll(&mut context) {
                Poll::Ready(permit) => self.permits.push(permit.unwrap()),
                Poll::Pending => self.requests.push(request),
            }
        }
    }

    fn step(&mut self, tape: &mut Tape) {
        let tenant = 1 + tape.below(64) as usize % (self.tenants.len() - 1);
        match tape.below(10) {
            0..3 => {
                let largest = self.tenants[tenant].largest;
                let cost = [largest, largest, largest.div_ceil(7), 1][tape.below(4) as usize];
                for _ in 0..tape.pick(&[1, 1, 4]) {
                    if self.tenants[tenant].waiting < 12 {
                        self.ask(tenant, cost);
                    }
                }
            }
            // It keeps to its rate: the others had their parts of the work since its last request.
            3 | 4 => {
                let weights: u32 = self.tenants.iter().map(|tenant| tenant.weight).sum();
                let Tenant {
                    weight, largest, ..
                } = self.tenants[VICTIM];
                let own = u64::from(largest) * u64::from(weights) / u64::from(weight);
                if !self.victim_waits && self.since > own {
                    self.ask(VICTIM, largest);
                }
            }
            5..7 if !self.permits.is_empty() => {
                let which = tape.below(self.permits.len() as u32) as usize;
                drop(self.permits.swap_remove(which));
            }
            7 => self.collect(Some(tenant)),
            8 => {
                let waits = |one: &Request| {
                    one.bell.tenant == tenant && !one.bell.rang.load(Ordering::Relaxed)
                };
                if let Some(which) = self.requests.iter().rposition(waits) {
                    drop(self.requests.swap_remove(which));
                    self.tenants[tenant].waiting -= 1;
                }
            }
            _ => self.collect(None),
        }
        self.look();
    }

    /// Counts the requests that were granted.
    fn look(&mut self) {
        let granted = std::mem::take(&mut *self.log.lock().unwrap());
        for (number, cost) in granted {
            self.tenants[number].waiting -= 1;
            if number == VICTIM {
                self.measure();
                (self.victim_waits, self.since) = (false, 0);
            } else {
                self.tenants[number].granted += u64::from(cost);
                self.since = self.since.saturating_add(cost.into());
            }
        }
    }

    /// Compares the work granted to the others with that which may precede the victim.
    fn measure(&mut self) {
        let Tenant {
            weight, largest, ..
        } = self.tenants[VICTIM];
        let others = &self.tenants[1..];
        let weights: u32 = others.iter().map(|tenant| tenant.weight).sum();
        let by_weight = f64::from(largest) * f64::from(weights) / f64::from(weight);
        let one = self.tenants.iter().map(|tenant| tenant.largest).max();
        let granted: u64 = others.iter().map(|tenant| tenant.granted).sum();
        let most = by_weight + f64::from(one.unwrap_or(0));
        self.ratio = self.ratio.max(granted as f64 / most);
    }
}

fn play(tape: &mut Tape) -> Result<f64, String> {
    let mut play = Play::new(tape);
    tape.repeat();
    for _ in 0..STEPS {
        play.step(tape);
    }
    Ok(play.ratio)
}

#[test]
fn others_precede_a_tenant_with_low_demand_by_its_share_and_one_request() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/attacks");
    let worst = Attack::new(folder, "low-demand").run(20, play);
    assert!(worst.is_ok(), "{worst:?}");
}
