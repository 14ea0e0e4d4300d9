//! The layer over a service.

use std::cell::Cell;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use fairlane_tower::{AcquireError, Cost, FairError, FairLayer, FairSemaphore, Limits, Permit};
use tower_layer::Layer;
use tower_service::Service;

/// A service that answers on command, and records its calls.
#[derive(Clone, Default)]
struct Inner {
    /// Whether this clone was found ready since it was called.
    ready: bool,
    log: Rc<Log>,
}

#[derive(Default)]
struct Log {
    busy: Cell<bool>,
    fails: Cell<bool>,
    called: Cell<u32>,
    done: Cell<bool>,
}

struct Answer(Rc<Log>);

impl Future for Answer {
    type Output = Result<&'static str, &'static str>;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        match self.0.done.get() {
            true => Poll::Ready(Ok("done")),
            false => Poll::Pending,
        }
    }
}

impl<Request> Service<Request> for Inner {
    type Response = &'static str;
    type Error = &'static str;
    type Future = Answer;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.ready = !self.log.busy.get();
        match (self.log.fails.get(), self.ready) {
            (true, _) => Poll::Ready(Err("broken")),
            (_, true) => Poll::Ready(Ok(())),
            (_, false) => Poll::Pending,
        }
    }

    fn call(&mut self, _: Request) -> Self::Future {
        assert!(std::mem::take(&mut self.ready), "it was asked before");
        self.log.called.set(self.log.called.get() + 1);
        Answer(Rc::clone(&self.log))
    }
}

fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

#[track_caller]
fn answer<T>(polled: Poll<Result<T, FairError>>) -> T {
    match polled {
        Poll::Ready(Ok(answer)) => answer,
        Poll::Ready(Err(error)) => panic!("{error}"),
        Poll::Pending => panic!("it waits"),
    }
}

#[track_caller]
fn refused<T>(polled: Poll<Result<T, FairError>>) -> AcquireError {
    match polled {
        Poll::Ready(Err(FairError::Refused(error))) => error,
        _ => panic!("it was not refused"),
    }
}

fn one_permit() -> FairSemaphore<u8> {
    FairSemaphore::new(Limits {
        waiting_per_tenant: 1,
        ..Limits::permits(1)
    })
}

/// Requests are the numbers of their tenants.
fn layer(
    semaphore: &FairSemaphore<u8>,
) -> FairLayer<u8, impl Fn(&u8) -> u8 + Clone + use<>, impl Fn(&u8) -> Cost + Clone + use<>> {
    FairLayer::new(semaphore.clone(), |&tenant: &u8| tenant, |_: &u8| Cost::ONE)
}

#[test]
fn a_request_waits_in_its_call_and_is_refused_there() {
    let (semaphore, inner) = (one_permit(), Inner::default());
    let mut service = layer(&semaphore).layer(inner.clone());
    let mut call = |tenant: u8| {
        let mut cx = Context::from_waker(Waker::noop());
        assert!(matches!(
            Service::<u8>::poll_ready(&mut service, &mut cx),
            Poll::Ready(Ok(()))
        ));
        Box::pin(service.call(tenant))
    };
    let (mut first, mut second, mut third) = (call(1), call(1), call(1));
    assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
    let full = AcquireError::TenantFull { limit: 1 };
    assert_eq!(refused(poll(&mut third)), full);
    assert_eq!(inner.log.called.get(), 1, "nobody else was let through");
    inner.log.done.set(true);
    assert_eq!(answer(poll(&mut first)), "done");
    // The permit was free before the answer arrived, although the future still exists.
    assert_eq!(semaphore.in_flight(), 1);
    assert_eq!(answer(poll(&mut second)), "done");
    assert_eq!((semaphore.in_flight(), inner.log.called.get()), (0, 2));
}

#[test]
fn a_call_that_is_dropped_leaves_nothing_whenever_it_is() {
    let (semaphore, inner) = (one_permit(), Inner::default());
    let mut service = layer(&semaphore).layer(inner.clone());
    let new = service.call(1u8);
    drop(new);
    let mut served = Box::pin(service.call(1u8));
    let mut waits = Box::pin(service.call(2u8));
    assert!(poll(&mut served).is_pending() && poll(&mut waits).is_pending());
    assert_eq!((semaphore.in_flight(), semaphore.waiting()), (1, 1));
    drop(waits);
    assert_eq!((semaphore.in_flight(), semaphore.waiting()), (1, 0));
    drop(served);
    inner.log.busy.set(true);
    let mut admitted = Box::pin(service.call(3u8));
    assert!(poll(&mut admitted).is_pending());
    assert_eq!((semaphore.in_flight(), inner.log.called.get()), (1, 1));
    drop(admitted);
    assert_eq!((semaphore.in_flight(), semaphore.waiting()), (0, 0));
}

#[test]
fn the_inner_service_is_asked_once_the_request_is_admitted() {
    let (semaphore, inner) = (one_permit(), Inner::default());
    let mut service = layer(&semaphore).layer(inner.clone());
    inner.log.busy.set(true);
    let mut call = Box::pin(service.call(1u8));
    assert!(poll(&mut call).is_pending());
    assert_eq!(inner.log.called.get(), 0);
    inner.log.busy.set(false);
    inner.log.done.set(true);
    assert_eq!(answer(poll(&mut call)), "done");
    inner.log.fails.set(true);
    let mut call = Box::pin(service.call(1u8));
    let Poll::Ready(Err(FairError::Service(error))) = poll(&mut call) else {
        panic!("the inner service is broken");
    };
    assert_eq!(error.to_string(), "broken");
    assert_eq!(semaphore.in_flight(), 0);
}

#[test]
fn a_permit_that_is_handed_over_lasts_as_long_as_its_holder() {
    let semaphore = one_permit();
    let layer = layer(&semaphore).hand_over(|request: u8, permit: Permit<u8>| (request, permit));
    /// Answers with the permit itself.
    #[derive(Clone)]
    struct Echo;
    impl Service<(u8, Permit<u8>)> for Echo {
        type Response = (u8, Permit<u8>);
        type Error = std::convert::Infallible;
        type Future = std::future::Ready<Result<Self::Response, Self::Error>>;
        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
            Poll::Ready(Ok(()))
        }
        fn call(&mut self, admitted: (u8, Permit<u8>)) -> Self::Future {
            std::future::ready(Ok(admitted))
        }
    }
    let mut service = layer.layer(Echo);
    let Poll::Ready(Ok((7, permit))) = poll(&mut Box::pin(service.call(7))) else {
        panic!("a permit was free");
    };
    let mut next = Box::pin(service.call(8));
    assert!(poll(&mut next).is_pending());
    permit.correct(Cost::new(12).unwrap());
    drop(permit);
    let Poll::Ready(Ok((8, _))) = poll(&mut next) else {
        panic!("the permit came back");
    };
}

#[test]
fn what_is_refused_says_why() {
    let refused = FairError::Refused(AcquireError::TenantFull { limit: 100 });
    assert_eq!(
        refused.to_string(),
        "not admitted: the limit of 100 waiting requests of this tenant is reached"
    );
    let failed = FairError::Service(std::io::Error::other("the disk is full").into());
    assert_eq!(failed.to_string(), "the disk is full");
}
