//! Keys whose own code panics: the caller gets the panic, and no other task is affected.

use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use fairlane_tower::{Acquire, Cost, FairSemaphore, Limits, Weight};

use crate::edges::waits;

thread_local! {
    /// The number of calls of keys' own code that succeed before one panics.
    static LEFT: Cell<Option<u32>> = const { Cell::new(None) };
}

fn own_code() {
    if let Some(left) = LEFT.get() {
        LEFT.set(left.checked_sub(1));
        assert!(left > 0, "a key's own code");
    }
}

#[derive(Debug)]
struct Key(u32);

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        own_code();
        self.0.hash(state);
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        own_code();
        self.0 == other.0
    }
}

impl Eq for Key {}

fn semaphore(limits: Limits) -> FairSemaphore<Key> {
    FairSemaphore::with_weights(limits, |_| {
        own_code();
        Weight::ONE
    })
}

fn state(semaphore: &FairSemaphore<Key>) -> (u32, u32, usize) {
    let (in_flight, waiting) = (semaphore.in_flight(), semaphore.waiting());
    (in_flight, waiting, semaphore.tenants())
}

/// Runs `act` with a panic in the first call of a key's code, then in the second, and so on until none panics, and
/// returns its result then. Adds the number of panics, none of which may change any state.
fn in_spite<R>(semaphore: &FairSemaphore<Key>, panics: &mut u32, act: impl Fn() -> R) -> R {
    let mut go_well = 0;
    loop {
        let before = state(semaphore);
        LEFT.set(Some(go_well));
        let found = catch_unwind(AssertUnwindSafe(&act));
        LEFT.set(None);
        match found {
            Ok(found) => return found,
            Err(_) => assert_eq!(state(semaphore), before),
        }
        go_well += 1;
        *panics += 1;
    }
}

#[test]
fn panic_in_a_key_leaves_no_state() {
    let semaphore = semaphore(Limits {
        tenants: 40,
        ..Limits::permits(3)
    });
    let mut panics = 0;
    // Tables grow, and then tenants expire; some have weights of their own.
    for tenant in 0..100 {
        if tenant % 5 == 0 {
            let weight = Weight::new(tenant + 1).unwrap();
            in_spite(&semaphore, &mut panics, || {
                semaphore.set_weight(Key(tenant), weight);
            });
        }
        let permit = in_spite(&semaphore, &mut panics, || {
            semaphore.try_acquire(Key(tenant), Cost::ONE)
        });
        assert!(permit.unwrap().is_some());
    }
    assert!(panics > 300, "{panics} times");
    assert_eq!(state(&semaphore), (0, 0, 40));
    in_spite(&semaphore, &mut panics, || semaphore.reset_weight(Key(95)));
    let weights = [90, 95].map(|tenant| semaphore.weight(&Key(tenant)));
    assert_eq!(weights, [Weight::new(91).unwrap(), Weight::ONE]);
}

fn look(acquire: &mut Acquire<Key>) -> Poll<bool> {
    let found = Pin::new(acquire).poll(&mut Context::from_waker(Waker::noop()));
    found.map(|permit| permit.is_ok())
}

#[test]
fn waiting_request_is_served_after_a_panic() {
    let semaphore = semaphore(Limits::permits(1));
    let out = semaphore.try_acquire(Key(0), Cost::ONE).unwrap();
    let mut panics = 0;
    let mut waiting = Vec::new();
    for number in 0..40 {
        let acquire = in_spite(&semaphore, &mut panics, || {
            waits(&semaphore, Key(number % 20))
        });
        waiting.push(acquire.unwrap());
    }
    assert!(panics > 40, "{panics} times");
    // A future whose start panicked has ended.
    let mut broken = semaphore.acquire(Key(0), Cost::ONE);
    LEFT.set(Some(0));
    for _ in 0..2 {
        assert!(catch_unwind(AssertUnwindSafe(|| look(&mut broken))).is_err());
        LEFT.set(None);
    }
    drop(broken);
    drop(out);
    // Each has the permit once, and returns it.
    while !waiting.is_empty() {
        let before = waiting.len();
        waiting.retain_mut(|acquire| look(acquire).is_pending());
        assert!(waiting.len() < before, "somebody is served");
    }
    assert_eq!(state(&semaphore), (0, 0, 20));
}
