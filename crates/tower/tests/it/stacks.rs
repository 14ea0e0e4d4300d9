//! The layer between layers of Tower.

use std::error::Error;
use std::future::pending;
use std::time::Duration;

use fairlane_tower::{AcquireError, BoxError, Cost, FairError, FairLayer, FairSemaphore, Limits};
use tower::buffer::BufferLayer;
use tower::limit::ConcurrencyLimitLayer;
use tower::load_shed::LoadShedLayer;
use tower::load_shed::error::Overloaded;
use tower::timeout::TimeoutLayer;
use tower::timeout::error::Elapsed;
use tower::util::BoxCloneSyncServiceLayer;
use tower::{Service, ServiceBuilder, ServiceExt, service_fn};

type Tenant = u8;

/// Requests are the numbers of their tenants.
fn fair(
    semaphore: &FairSemaphore<Tenant>,
) -> FairLayer<
    Tenant,
    impl Fn(&Tenant) -> Tenant + Clone + use<>,
    impl Fn(&Tenant) -> Cost + Clone + use<>,
> {
    let tenant = |&tenant: &Tenant| tenant;
    FairLayer::new(semaphore.clone(), tenant, |_: &Tenant| Cost::ONE)
}

/// Returns the rejection in `error`, from a stack with the layer in it.
#[track_caller]
fn refusal(error: &BoxError) -> AcquireError {
    match error.downcast_ref() {
        Some(FairError::Refused(reason)) => *reason,
        _ => panic!("it is no refusal: {error:?}"),
    }
}

/// Returns the error of an inner layer, unchanged.
#[track_caller]
fn inner<E: Error + 'static>(error: &BoxError) -> &E {
    match error.downcast_ref() {
        Some(FairError::Service(inner)) => inner.downcast_ref().expect("its own type"),
        _ => panic!("it is no error of the inner service: {error:?}"),
    }
}

async fn echo(tenant: Tenant) -> Result<Tenant, BoxError> {
    Ok(tenant)
}

async fn endless(_: Tenant) -> Result<Tenant, BoxError> {
    pending().await
}

async fn failing(_: Tenant) -> Result<Tenant, BoxError> {
    Err("the disk is full".into())
}

const SOON: Duration = Duration::from_millis(1);
const NEVER: Duration = Duration::from_secs(3_600);

#[tokio::test]
async fn timeouts_stand_on_either_side() {
    let semaphore = FairSemaphore::new(Limits::permits(1));
    let stack = |outer, within| {
        ServiceBuilder::new()
            .layer(TimeoutLayer::new(outer))
            .layer(fair(&semaphore))
            .layer(TimeoutLayer::new(within))
    };
    let mut served = stack(NEVER, NEVER).service(service_fn(echo));
    assert_eq!(served.ready().await.unwrap().call(7).await.unwrap(), 7);
    let late = stack(NEVER, SOON).service(service_fn(endless)).oneshot(7);
    inner::<Elapsed>(&late.await.unwrap_err());
    let late = stack(SOON, NEVER).service(service_fn(endless)).oneshot(7);
    assert!(late.await.unwrap_err().is::<Elapsed>());
    assert_eq!((semaphore.in_flight(), semaphore.waiting()), (0, 0));
    semaphore.close();
    let refused = served.oneshot(7).await.unwrap_err();
    assert_eq!(refusal(&refused), AcquireError::Closed);
}

#[tokio::test]
async fn load_shedding_stands_inside() {
    let semaphore = FairSemaphore::new(Limits::permits(2));
    let service = ServiceBuilder::new()
        .layer(fair(&semaphore))
        .layer(LoadShedLayer::new())
        .layer(ConcurrencyLimitLayer::new(1))
        .service(service_fn(endless));
    let first = tokio::spawn(service.clone().oneshot(1));
    while semaphore.in_flight() < 1 {
        tokio::task::yield_now().await;
    }
    let shed = BoxError::from(service.oneshot(2).await.unwrap_err());
    inner::<Overloaded>(&shed);
    first.abort();
}

#[tokio::test]
async fn layers_that_box_their_errors_stand_outside() {
    let semaphore = FairSemaphore::new(Limits::permits(1));
    let service = ServiceBuilder::new()
        .layer(BufferLayer::new(4))
        .layer(BoxCloneSyncServiceLayer::new(
            ServiceBuilder::new()
                .map_err(BoxError::from)
                .layer(fair(&semaphore)),
        ))
        .service(service_fn(failing));
    let failed = service.clone().oneshot(1).await.unwrap_err();
    assert_eq!(failed.to_string(), "the disk is full");
    semaphore.close();
    let refused = service.oneshot(1).await.unwrap_err();
    assert_eq!(refusal(&refused), AcquireError::Closed);
}

/// An error of a service, with a source.
#[derive(Debug, thiserror::Error)]
#[error("the query failed")]
struct Failed(#[source] std::io::Error);

#[test]
fn an_error_of_the_service_keeps_its_message_and_its_sources() {
    let failed = Failed(std::io::Error::other("the disk is full"));
    let error = FairError::Service(failed.into());
    assert_eq!(error.to_string(), "the query failed");
    let source = error.source().map(ToString::to_string);
    assert_eq!(source.as_deref(), Some("the disk is full"));
}
