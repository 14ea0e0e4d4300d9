//! The semaphore compared with the scheduler of `firq-core`.

use fairlane_tower::{Acquire, Cost, FairSemaphore, Limits, Permit};
use firq_core::{
    BackpressurePolicy, DequeueResult, EnqueueResult, Priority, Scheduler, SchedulerConfig, Task,
    TenantKey,
};
use std::collections::HashMap;
use std::time::Instant;

use crate::cost;

const BATCH: u64 = 1000;

/// A contender with a number of tenants.
pub trait Contender {
    fn new(tenants: u64) -> Self;

    /// Admits some requests, and returns their number.
    fn batch(&mut self) -> u64;
}

fn scheduler<T>(shards: usize) -> Scheduler<T> {
    Scheduler::new(SchedulerConfig {
        shards,
        max_global: 1 << 20,
        max_per_tenant: 1 << 16,
        // The largest cost, so that no visit is in vain.
        quantum: 10,
        quantum_by_tenant: HashMap::new(),
        quantum_provider: None,
        backpressure: BackpressurePolicy::Reject,
        backpressure_by_tenant: HashMap::new(),
        top_tenants_capacity: 0,
    })
}

fn task<T>(payload: T, number: u64) -> Task<T> {
    Task {
        payload,
        enqueue_ts: Instant::now(),
        deadline: None,
        priority: Priority::Normal,
        cost: cost(number).into(),
    }
}

fn enqueue(scheduler: &Scheduler<u32>, tenant: u64, number: u64) {
    let answer = scheduler.enqueue(TenantKey::from(tenant), task(tenant as u32, number));
    assert!(matches!(answer, EnqueueResult::Enqueued));
}

fn dequeue(scheduler: &Scheduler<u32>) -> u32 {
    // A tenant without deficit needs a visit to get one.
    loop {
        if let DequeueResult::Task { task, .. } = scheduler.try_dequeue() {
            return task.payload;
        }
    }
}

fn units(number: u64) -> Cost {
    Cost::clamped(cost(number).into())
}

/// Requests find a permit at once.
pub mod free {
    use super::*;

    pub struct Ours {
        semaphore: FairSemaphore<u64>,
        tenants: u64,
        number: u64,
    }

    impl Contender for Ours {
        fn new(tenants: u64) -> Ours {
            let semaphore = FairSemaphore::new(Limits::permits(8));
            Ours {
                semaphore,
                tenants,
                number: 0,
            }
        }

        fn batch(&mut self) -> u64 {
            for _ in 0..BATCH {
                self.number += 1;
                let tenant = self.number % self.tenants;
                let permit = self.semaphore.try_acquire(tenant, units(self.number));
                assert!(permit.is_ok_and(|permit| permit.is_some()));
            }
            BATCH
        }
    }

    pub struct Theirs {
        scheduler: Scheduler<u32>,
        tenants: u64,
        number: u64,
    }

    impl Contender for Theirs {
        fn new(tenants: u64) -> Theirs {
            Theirs {
                scheduler: scheduler(1),
                tenants,
                number: 0,
            }
        }

        fn batch(&mut self) -> u64 {
            for _ in 0..BATCH {
                self.number += 1;
                enqueue(&self.scheduler, self.number % self.tenants, self.number);
                dequeue(&self.scheduler);
            }
            BATCH
        }
    }
}

/// Each tenant always has a waiting request; an admitted request ends at once, and its tenant sends another.
pub mod backlog {
    use super::*;
    use std::pin::Pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::{Context, Poll, Wake, Waker};
    use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

    /// Records the woken request.
    struct Bell {
        tenant: u32,
        woken: Arc<AtomicU32>,
    }

    impl Wake for Bell {
        fn wake(self: Arc<Self>) {
            self.woken.store(self.tenant, Ordering::Relaxed);
        }
    }

    fn poll<F: Future + Unpin>((future, waker): &mut (F, Waker)) -> Option<F::Output> {
        match Pin::new(future).poll(&mut Context::from_waker(waker)) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    fn waker(tenant: u64, woken: &Arc<AtomicU32>) -> Waker {
        Waker::from(Arc::new(Bell {
            tenant: tenant as u32,
            woken: Arc::clone(woken),
        }))
    }

    pub struct Ours {
        semaphore: FairSemaphore<u64>,
        waiting: Vec<(Acquire<u64>, Waker)>,
        woken: Arc<AtomicU32>,
        permit: Option<Permit<u64>>,
        number: u64,
    }

    impl Contender for Ours {
        fn new(tenants: u64) -> Ours {
            let semaphore = FairSemaphore::new(Limits::permits(1));
            let permit = semaphore.try_acquire(u64::MAX, Cost::ONE).unwrap();
            let woken = Arc::<AtomicU32>::default();
            let mut ours = Ours {
                waiting: Vec::new(),
                permit,
                number: 0,
                woken,
                semaphore,
            };
            for tenant in 0..tenants {
                let acquire = ours.semaphore.acquire(tenant, units(tenant));
                let mut request = (acquire, waker(tenant, &ours.woken));
                assert!(poll(&mut request).is_none());
                ours.waiting.push(request);
            }
            ours
        }

        fn batch(&mut self) -> u64 {
            for _ in 0..BATCH {
                self.number += 1;
                drop(self.permit.take());
                let at = self.woken.load(Ordering::Relaxed) as usize;
                let request = &mut self.waiting[at];
                self.permit = poll(request).and_then(Result::ok);
                assert!(self.permit.is_some());
                request.0 = self.semaphore.acquire(at as u64, units(self.number));
                assert!(poll(request).is_none());
            }
            BATCH
        }
    }

    pub struct Theirs {
        scheduler: Scheduler<u32>,
        number: u64,
    }

    impl Contender for Theirs {
        fn new(tenants: u64) -> Theirs {
            let scheduler = scheduler(1);
            (0..tenants).for_each(|tenant| enqueue(&scheduler, tenant, tenant));
            Theirs {
                scheduler,
                number: 0,
            }
        }

        fn batch(&mut self) -> u64 {
            for _ in 0..BATCH {
                self.number += 1;
                let tenant = dequeue(&self.scheduler);
                enqueue(&self.scheduler, tenant.into(), self.number);
            }
            BATCH
        }
    }

    /// Polls a pinned future.
    fn look<F: Future>((future, waker): &mut (Pin<Box<Option<F>>>, Waker)) -> Option<F::Output> {
        let future = future.as_mut().as_pin_mut()?;
        match future.poll(&mut Context::from_waker(waker)) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    /// The same with the semaphore of tokio, which knows no tenants: FIFO.
    pub fn first_come(requests: u64) -> impl FnMut() -> u64 {
        let semaphore = Arc::new(Semaphore::new(1));
        let woken = Arc::<AtomicU32>::default();
        let mut permit = Arc::clone(&semaphore).try_acquire_owned().ok();
        let mut waiting = Vec::new();
        for number in 0..requests {
            let acquire = Arc::clone(&semaphore).acquire_owned();
            let mut request = (Box::pin(Some(acquire)), waker(number, &woken));
            assert!(look(&mut request).is_none());
            waiting.push(request);
        }
        move || {
            for _ in 0..BATCH {
                drop(permit.take());
                let request = &mut waiting[woken.load(Ordering::Relaxed) as usize];
                permit = look(request).and_then(Result::ok);
                assert!(permit.is_some());
                let again = Arc::clone(&semaphore).acquire_owned();
                request.0.as_mut().set(Some(again));
                assert!(look(request).is_none());
            }
            BATCH
        }
    }

    /// The same with a waiting receiver for each task, and semaphore permits, as in `firq-tower`.
    pub struct HandedOver {
        scheduler: Scheduler<(u32, oneshot::Sender<OwnedSemaphorePermit>)>,
        permits: Arc<Semaphore>,
        waiting: Vec<(oneshot::Receiver<OwnedSemaphorePermit>, Waker)>,
        woken: Arc<AtomicU32>,
        number: u64,
    }

    impl HandedOver {
        fn ask(&mut self, tenant: u32) {
            self.number += 1;
            let (sender, receiver) = oneshot::channel();
            let task = task((tenant, sender), self.number);
            let answer = self.scheduler.enqueue(u64::from(tenant).into(), task);
            assert!(matches!(answer, EnqueueResult::Enqueued));
            let request = &mut self.waiting[tenant as usize];
            request.0 = receiver;
            assert!(poll(request).is_none());
        }
    }

    impl Contender for HandedOver {
        fn new(tenants: u64) -> HandedOver {
            let woken = Arc::<AtomicU32>::default();
            let mut theirs = HandedOver {
                scheduler: scheduler(1),
                permits: Arc::new(Semaphore::new(1)),
                waiting: Vec::new(),
                woken: Arc::clone(&woken),
                number: 0,
            };
            for tenant in 0..tenants {
                let waker = waker(tenant, &woken);
                theirs.waiting.push((oneshot::channel().1, waker));
                theirs.ask(tenant as u32);
            }
            theirs
        }

        fn batch(&mut self) -> u64 {
            for _ in 0..BATCH {
                let (_, sender) = loop {
                    if let DequeueResult::Task { task, .. } = self.scheduler.try_dequeue() {
                        break task.payload;
                    }
                };
                let permit = Arc::clone(&self.permits).try_acquire_owned();
                assert!(sender.send(permit.unwrap()).is_ok());
                let at = self.woken.load(Ordering::Relaxed);
                assert!(poll(&mut self.waiting[at as usize]).is_some());
                self.ask(at);
            }
            BATCH
        }
    }
}

/// Two threads at once; firq has four shards for this case.
pub mod threads {
    use super::*;
    use crate::rate;

    const TENANTS: u64 = 1000;

    fn both(seconds: f64, batch: impl Fn(u64) -> u64 + Sync) -> f64 {
        std::thread::scope(|scope| {
            let batch = &batch;
            let threads = [0, 1].map(|thread| {
                let mut number = thread << 32;
                scope.spawn(move || {
                    rate(seconds, || {
                        number += BATCH;
                        batch(number)
                    })
                })
            });
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .sum()
        })
    }

    pub fn ours(seconds: f64) -> f64 {
        let semaphore = FairSemaphore::new(Limits::permits(8));
        both(seconds, |from| {
            for number in from..from + BATCH {
                let permit = semaphore.try_acquire(number % TENANTS, units(number));
                assert!(permit.is_ok_and(|permit| permit.is_some()));
            }
            BATCH
        })
    }

    pub fn theirs(seconds: f64) -> f64 {
        let scheduler = scheduler(4);
        both(seconds, |from| {
            for number in from..from + BATCH {
                enqueue(&scheduler, number % TENANTS, number);
                dequeue(&scheduler);
            }
            BATCH
        })
    }
}
