//! Many threads at once: no excess permit, none lost, no waiting request left asleep.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use fairlane_tower::{AcquireError, Cost, FairSemaphore, Limits};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

const PERMITS: u32 = 3;
const THREADS: usize = 8;
const EACH: usize = 2000;

#[test]
fn storm_of_threads_loses_no_permit_and_no_wakeup() {
    let semaphore = FairSemaphore::new(Limits {
        permits_per_tenant: 2,
        ..Limits::permits(PERMITS)
    });
    let (served, at_once) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (semaphore, served, at_once) = (&semaphore, &served, &at_once);
            scope.spawn(move || {
                for round in 0..EACH {
                    let tenant = (number * 7 + round) % 5;
                    let cost = Cost::new(1 + (round % 17) as u32).unwrap();
                    if round % 3 == 0 {
                        // A request that waits for a moment and is cancelled.
                        let mut goes = pin!(semaphore.acquire(tenant, cost));
                        let waker = Waker::noop();
                        let _ = goes.as_mut().poll(&mut Context::from_waker(waker));
                        if round % 2 == 0 {
                            thread::yield_now();
                        }
                    }
                    let permit = block_on(semaphore.acquire(tenant, cost)).unwrap();
                    let now = at_once.fetch_add(1, Ordering::SeqCst);
                    assert!(now < PERMITS as usize);
                    if round % 5 == 0 {
                        permit.correct(Cost::new(40).unwrap());
                        thread::yield_now();
                    }
                    at_once.fetch_sub(1, Ordering::SeqCst);
                    drop(permit);
                    served.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
    });
    assert_eq!(served.into_inner(), THREADS * EACH);
    assert_eq!((semaphore.in_flight(), semaphore.waiting()), (0, 0));
}

#[test]
fn close_wakes_all_waiting_requests() {
    let semaphore = FairSemaphore::new(Limits::permits(1));
    let out = semaphore.try_acquire(0, Cost::ONE).unwrap();
    thread::scope(|scope| {
        let waits = |number: usize| block_on(semaphore.acquire(number % 3, Cost::ONE));
        let waiting: Vec<_> = (0..6)
            .map(|number| scope.spawn(move || waits(number)))
            .collect();
        while semaphore.waiting() < 6 {
            thread::yield_now();
        }
        semaphore.close();
        for thread in waiting {
            assert_eq!(thread.join().unwrap().err(), Some(AcquireError::Closed));
        }
    });
    assert!(semaphore.is_closed());
    assert_eq!((semaphore.in_flight(), semaphore.waiting()), (1, 0));
    drop(out);
    assert_eq!(semaphore.in_flight(), 0);
    let refused = semaphore.try_acquire(0, Cost::ONE);
    assert_eq!(refused.err(), Some(AcquireError::Closed));
}
