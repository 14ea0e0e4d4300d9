//! Errors of admission.

/// Any error, as in the layers of [Tower](https://docs.rs/tower).
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The reason why a request was rejected. A rejection changes no state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// The semaphore was closed, before or while the request waited.
    #[error("the semaphore is closed")]
    Closed,
    /// The tenant has the largest allowed number of waiting requests.
    #[error("the limit of {limit} waiting requests of this tenant is reached")]
    TenantFull {
        /// [`Limits::waiting_per_tenant`](crate::Limits::waiting_per_tenant).
        limit: u16,
    },
    /// The largest allowed number of requests waits.
    #[error("the limit of {limit} waiting requests is reached")]
    Full {
        /// [`Limits::waiting`](crate::Limits::waiting).
        limit: u32,
    },
    /// The largest allowed number of tenants has requests that wait or are served.
    #[error("the limit of {limit} tenants is reached")]
    TooManyTenants {
        /// [`Limits::tenants`](crate::Limits::tenants).
        limit: u32,
    },
}

/// The error of a [`FairService`](crate::FairService). It is an [`Error`](std::error::Error) for any error type of the
/// inner service, so that other layers can be inside or outside.
///
/// ```
/// use fairlane_tower::{AcquireError, BoxError, FairError};
///
/// /// Whether a stack of layers had no permit for a request.
/// fn is_refusal(error: &BoxError) -> bool {
///     matches!(error.downcast_ref(), Some(FairError::Refused(_)))
/// }
///
/// assert!(is_refusal(&FairError::Refused(AcquireError::Closed).into()));
/// assert!(!is_refusal(&FairError::Service("the disk is full".into()).into()));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FairError {
    /// The request was not admitted, and the inner service did not receive it.
    #[error("not admitted: {0}")]
    Refused(AcquireError),
    /// The error of the inner service, with its message and its sources.
    #[error(transparent)]
    Service(BoxError),
}
