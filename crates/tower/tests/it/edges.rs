//! Limits at their extremes, and types that may move to other threads.

use std::cell::Cell;
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use fairlane_tower::{
    Acquire, AcquireError, Cost, FairError, FairLayer, FairSemaphore, FairService, HandOver,
    HoldPermit, Limits, Permit, ResponseFuture,
};
use tower_service::Service;

/// Returns a request that must wait, or its rejection.
pub(crate) fn waits<K: std::hash::Hash + Eq>(
    semaphore: &FairSemaphore<K>,
    tenant: K,
) -> Result<Acquire<K>, AcquireError> {
    let mut acquire = semaphore.acquire(tenant, Cost::ONE);
    match Pin::new(&mut acquire).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Pending => Ok(acquire),
        Poll::Ready(Err(error)) => Err(error),
        Poll::Ready(Ok(permit)) => panic!("{permit:?} was free"),
    }
}

#[test]
fn one_of_each_tenant_waits_however_many_others_do() {
    let semaphore = FairSemaphore::new(Limits {
        waiting: 2,
        ..Limits::permits(1)
    });
    let out = semaphore.try_acquire(0, Cost::ONE).unwrap();
    let full = Some(AcquireError::Full { limit: 2 });
    let flood = [0; 2].map(|_| waits(&semaphore, 1).unwrap());
    assert_eq!(waits(&semaphore, 1).err(), full);
    let quiet = [2, 3].map(|tenant| waits(&semaphore, tenant).unwrap());
    assert_eq!(waits(&semaphore, 2).err(), full);
    assert_eq!(semaphore.waiting(), 4);
    drop(flood);
    assert_eq!(waits(&semaphore, 3).err(), full, "two wait");
    drop(quiet);
    drop(out);
    assert_eq!((semaphore.in_flight(), semaphore.waiting()), (0, 0));
}

#[test]
fn waiting_limits_of_zero() {
    let limits = Limits {
        waiting: 0,
        ..Limits::permits(0)
    };
    let semaphore = FairSemaphore::new(limits);
    let first = waits(&semaphore, 1).unwrap();
    let full = AcquireError::Full { limit: 0 };
    assert_eq!(waits(&semaphore, 1).err(), Some(full));
    drop(first);
    let limits = Limits {
        waiting_per_tenant: 0,
        ..limits
    };
    let semaphore = FairSemaphore::new(limits);
    let full = AcquireError::TenantFull { limit: 0 };
    assert_eq!(waits(&semaphore, 1).err(), Some(full));
}

#[test]
fn estimate_is_limited_and_actual_cost_is_not() {
    let most = Cost::new(400).unwrap();
    let semaphore = FairSemaphore::new(Limits {
        estimate: most,
        ..Limits::permits(1)
    });
    let permit = semaphore.try_acquire(0, Cost::MAX).unwrap().unwrap();
    assert_eq!(permit.cost(), most);
    permit.correct(Cost::MAX);
    assert_eq!(permit.cost(), Cost::MAX);
}

#[derive(Clone)]
struct Echo;

impl Service<u8> for Echo {
    type Response = u8;
    type Error = Infallible;
    type Future = Ready<Result<u8, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: u8) -> Self::Future {
        ready(Ok(request))
    }
}

fn goes<T: Send + Unpin>() {}

fn is_shared<T: Send + Sync + Unpin>() {}

#[test]
fn all_that_is_public_goes_to_other_threads_and_is_shared_by_them() {
    // Keys are only sent, not shared.
    is_shared::<FairSemaphore<Cell<u8>>>();
    is_shared::<Permit<Cell<u8>>>();
    goes::<Acquire<Cell<u8>>>();
    is_shared::<Acquire<u8>>();
    type Whose = fn(&u8) -> u8;
    type Costs = fn(&u8) -> Cost;
    is_shared::<FairLayer<u8, Whose, Costs>>();
    is_shared::<FairService<Echo, u8, Whose, Costs>>();
    is_shared::<ResponseFuture<Echo, u8, u8, HoldPermit>>();
    is_shared::<HandOver<Whose>>();
    is_shared::<(Limits, AcquireError, FairError)>();
}
