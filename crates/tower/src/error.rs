//! Why a request was not admitted.

/// Why a permit was refused. Nothing changed by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// The semaphore was closed, before or while the request waited.
    #[error("the semaphore is closed, and admits nobody any more")]
    Closed,
    /// The tenant has as many requests waiting as one may have.
    #[error("{limit} requests of this tenant wait already, and no more than that may")]
    TenantFull {
        /// [`Limits::waiting_per_tenant`](crate::Limits::waiting_per_tenant).
        limit: u16,
    },
    /// As many requests wait as may in all.
    #[error("{limit} requests wait already, and no more than that may in all")]
    Full {
        /// [`Limits::waiting`](crate::Limits::waiting).
        limit: u32,
    },
    /// As many tenants as there may be have requests that wait or are served.
    #[error("{limit} tenants have requests already, and there is no room for another tenant")]
    TooManyTenants {
        /// [`Limits::tenants`](crate::Limits::tenants).
        limit: u32,
    },
}

/// What a [`FairService`](crate::FairService) answers in place of a response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FairError<E> {
    /// The request was not admitted, and the inner service never saw it.
    #[error("not admitted: {0}")]
    Refused(AcquireError),
    /// What the inner service said.
    #[error(transparent)]
    Service(E),
}
