//! The Tower layer over the semaphore.

use crate::{Acquire, AcquireError, BoxError, Cost, FairError, FairSemaphore, Permit};
use pin_project_lite::pin_project;
use std::fmt;
use std::future::Future;
use std::hash::Hash;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tower_layer::Layer;
use tower_service::Service;

/// The treatment of a permit when its request is passed on.
///
/// Implemented by [`HoldPermit`] and [`HandOver`].
pub trait Admit<Request, K> {
    /// The request type of the inner service.
    type Admitted;

    /// Returns the request for the inner service, and the permit if it is to be held until the service has answered.
    fn admit(&self, request: Request, permit: Permit<K>) -> (Self::Admitted, Option<Permit<K>>);
}

/// Holds the permit until the inner service has answered.
#[derive(Clone, Copy, Debug, Default)]
pub struct HoldPermit;

impl<Request, K> Admit<Request, K> for HoldPermit {
    type Admitted = Request;

    fn admit(&self, request: Request, permit: Permit<K>) -> (Request, Option<Permit<K>>) {
        (request, Some(permit))
    }
}

/// Passes the permit with the request, through a closure that stores it there.
#[derive(Clone, Copy, Debug)]
pub struct HandOver<F>(F);

impl<Request, K, Admitted, F> Admit<Request, K> for HandOver<F>
where
    F: Fn(Request, Permit<K>) -> Admitted,
{
    type Admitted = Admitted;

    fn admit(&self, request: Request, permit: Permit<K>) -> (Admitted, Option<Permit<K>>) {
        ((self.0)(request, permit), None)
    }
}

/// A [`Layer`] that admits requests fairly by tenant.
///
/// `X` returns the tenant of a request (`Fn(&Request) -> K`), `C` its cost (`Fn(&Request) -> Cost`). The permit is held
/// until the inner service has answered, or is passed [with the request](Self::hand_over).
///
/// ```
/// use fairlane_tower::{Cost, FairLayer, FairSemaphore, Limits};
/// use tower_layer::Layer;
///
/// struct Query { user: u64, rows: u32 }
///
/// let semaphore = FairSemaphore::new(Limits::permits(64));
/// let layer = FairLayer::new(
///     semaphore,
///     |query: &Query| query.user,
///     |query: &Query| Cost::clamped(query.rows.into()),
/// );
/// # struct Database;
/// let service = layer.layer(Database);
/// ```
pub struct FairLayer<K, X, C, A = HoldPermit> {
    semaphore: FairSemaphore<K>,
    key: X,
    cost: C,
    admit: A,
}

impl<K, X, C> FairLayer<K, X, C> {
    /// Creates a layer over a semaphore, which other layers may share.
    pub fn new<Request>(semaphore: FairSemaphore<K>, key: X, cost: C) -> Self
    where
        X: Fn(&Request) -> K,
        C: Fn(&Request) -> Cost,
    {
        FairLayer {
            semaphore,
            key,
            cost,
            admit: HoldPermit,
        }
    }

    /// Passes the permit with the request: `pass_on` stores it there, and its holder corrects the cost and drops it
    /// when the request is done. For streamed answers.
    pub fn hand_over<Request, Admitted, F>(self, pass_on: F) -> FairLayer<K, X, C, HandOver<F>>
    where
        F: Fn(Request, Permit<K>) -> Admitted,
    {
        FairLayer {
            semaphore: self.semaphore,
            key: self.key,
            cost: self.cost,
            admit: HandOver(pass_on),
        }
    }
}

impl<K, X: Clone, C: Clone, A: Clone> Clone for FairLayer<K, X, C, A> {
    fn clone(&self) -> Self {
        FairLayer {
            semaphore: self.semaphore.clone(),
            key: self.key.clone(),
            cost: self.cost.clone(),
            admit: self.admit.clone(),
        }
    }
}

impl<K, X, C, A> fmt::Debug for FairLayer<K, X, C, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FairLayer")
            .field("semaphore", &self.semaphore)
            .finish_non_exhaustive()
    }
}

impl<S, K, X: Clone, C: Clone, A: Clone> Layer<S> for FairLayer<K, X, C, A> {
    type Service = FairService<S, K, X, C, A>;

    fn layer(&self, inner: S) -> Self::Service {
        FairService {
            inner,
            layer: self.clone(),
        }
    }
}

/// A service whose requests wait for a permit of their tenant.
///
/// It is always ready: only the request identifies the tenant, so a request waits in the future of its call, and is
/// rejected there if it may not wait ([`FairError::Refused`]). After admission, a new clone of the inner service is
/// polled for readiness, so that no waiting request holds a reservation of an inner layer. A dropped future, for
/// example by a timeout around this service, frees its place and permit.
pub struct FairService<S, K, X, C, A = HoldPermit> {
    inner: S,
    layer: FairLayer<K, X, C, A>,
}

impl<S: Clone, K, X: Clone, C: Clone, A: Clone> Clone for FairService<S, K, X, C, A> {
    fn clone(&self) -> Self {
        FairService {
            inner: self.inner.clone(),
            layer: self.layer.clone(),
        }
    }
}

impl<S: fmt::Debug, K, X, C, A> fmt::Debug for FairService<S, K, X, C, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FairService")
            .field("inner", &self.inner)
            .field("layer", &self.layer)
            .finish()
    }
}

impl<Request, S, K, X, C, A> Service<Request> for FairService<S, K, X, C, A>
where
    S: Service<A::Admitted, Error: Into<BoxError>> + Clone,
    K: Hash + Eq,
    X: Fn(&Request) -> K,
    C: Fn(&Request) -> Cost,
    A: Admit<Request, K> + Clone,
{
    type Response = S::Response;
    type Error = FairError;
    type Future = ResponseFuture<S, Request, K, A>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let FairLayer {
            semaphore,
            key,
            cost,
            admit,
        } = &self.layer;
        ResponseFuture {
            stage: Stage::Waits {
                acquire: semaphore.acquire(key(&request), cost(&request)),
                rest: Some((request, self.inner.clone(), admit.clone())),
            },
        }
    }
}

pin_project! {
    /// The future of [`FairService`]: it waits for the permit, then for the inner service.
    #[must_use = "a future does nothing unless it is polled"]
    pub struct ResponseFuture<S, Request, K, A>
    where
        A: Admit<Request, K>,
        S: Service<A::Admitted>,
    {
        #[pin]
        stage: Stage<S, Request, S::Future, A::Admitted, K, A>,
    }
}

pin_project! {
    #[project = StageProjection]
    enum Stage<S, Request, Response, Admitted, K, A> {
        Waits { acquire: Acquire<K>, rest: Option<(Request, S, A)> },
        Readies { inner: S, admitted: Option<Admitted>, permit: Option<Permit<K>> },
        Responds { #[pin] response: Response, permit: Option<Permit<K>> },
        Done,
    }
}

impl<S, Request, K, A> fmt::Debug for ResponseFuture<S, Request, K, A>
where
    A: Admit<Request, K>,
    S: Service<A::Admitted>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stage = match self.stage {
            Stage::Waits { .. } => "waits",
            Stage::Readies { .. } => "readies",
            Stage::Responds { .. } => "responds",
            Stage::Done => "done",
        };
        f.debug_struct("ResponseFuture")
            .field("stage", &stage)
            .finish_non_exhaustive()
    }
}

impl<S, Request, K, A> Future for ResponseFuture<S, Request, K, A>
where
    S: Service<A::Admitted, Error: Into<BoxError>>,
    K: Hash + Eq,
    A: Admit<Request, K>,
{
    type Output = Result<S::Response, FairError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut stage = self.project().stage;
        loop {
            let next = match stage.as_mut().project() {
                StageProjection::Waits { acquire, rest } => {
                    let permit = ready!(Pin::new(acquire).poll(cx));
                    match (permit, rest.take()) {
                        (Ok(permit), Some((request, inner, admit))) => {
                            let (admitted, permit) = admit.admit(request, permit);
                            Stage::Readies {
                                inner,
                                admitted: Some(admitted),
                                permit,
                            }
                        }
                        (refused, _) => {
                            stage.set(Stage::Done);
                            let error = refused.err().unwrap_or(AcquireError::Closed);
                            return Poll::Ready(Err(FairError::Refused(error)));
                        }
                    }
                }
                StageProjection::Readies {
                    inner,
                    admitted,
                    permit,
                } => match (ready!(inner.poll_ready(cx)), admitted.take()) {
                    (Ok(()), Some(admitted)) => Stage::Responds {
                        response: inner.call(admitted),
                        permit: permit.take(),
                    },
                    (Ok(()), None) => Stage::Done,
                    (Err(error), _) => {
                        stage.set(Stage::Done);
                        return Poll::Ready(Err(FairError::Service(error.into())));
                    }
                },
                StageProjection::Responds { response, .. } => {
                    let answer = ready!(response.poll(cx));
                    // Frees the permit before the answer is used.
                    stage.set(Stage::Done);
                    return Poll::Ready(answer.map_err(|error| FairError::Service(error.into())));
                }
                StageProjection::Done => panic!("the answer was given: this future is at its end"),
            };
            stage.set(next);
        }
    }
}
