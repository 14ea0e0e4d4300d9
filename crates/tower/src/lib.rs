//! Fair admission of requests by tenant: a [semaphore](FairSemaphore) for any asynchronous runtime, and a [Tower
//! layer](FairLayer) over it.
//!
//! A request has a *tenant* (any `Hash + Eq` key) and an estimated cost, in units of the server's scarce resource:
//! tokens, rows, milliseconds. At most [`Limits::permits`] requests are served at a time; waiting requests are admitted
//! in the order of WF2Q+ ([`fairlane_core::sched::Wf2qPlus`]): tenants get work in proportion to their weights,
//! regardless of their demand.
//!
//! ```
//! use fairlane_tower::{Cost, FairSemaphore, Limits};
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let limits = Limits { waiting_per_tenant: 100, ..Limits::permits(64) };
//! let semaphore = FairSemaphore::new(limits);
//!
//! let permit = semaphore.acquire("alice", Cost::try_from(900u32).unwrap()).await?;
//! // .. serve; the answer took 1400 tokens
//! permit.correct(Cost::clamped(1400));
//! drop(permit);
//! # Ok::<(), fairlane_tower::AcquireError>(())
//! # }).unwrap();
//! ```
//!
//! # Guarantees
//!
//! * While two tenants wait, both are charged for work in proportion to their weights, to within two requests of each,
//!   and the part by weight of the largest request of any tenant. A tenant's own requests are admitted in the order of
//!   their arrival.
//! * A tenant with low demand does not wait for the backlog of others: the work that all others are admitted for before
//!   it is at most that of their weights for the cost of its own request, and the largest request of any tenant. With
//!   [`Limits::permits_per_tenant`] below [`Limits::permits`], a flooding tenant leaves permits free, and no other
//!   tenant waits for it.
//! * One request of each tenant may wait, for any backlog of other tenants: [`Limits::waiting`].
//! * A cancelled request costs nothing; one unit of cost, if it had already been granted a permit, or if it was the
//!   first of its tenant and cheaper than the next. The tenant of a first request keeps its place, until its turn if the
//!   next one is dearer: that one is admitted no later than it would have been behind the cancelled one.
//! * A tenant that becomes idle and returns keeps its state: service ahead of other waiting tenants remains to be
//!   worked off, and unused service is not saved up. Only a tenant whose state has expired starts again: the one that
//!   was idle for longest, once there are [`Limits::tenants`]. It gains at most one request, and its outstanding
//!   corrections.
//! * Requests that are admitted at once are charged like all others.
//! * [`Permit::correct`] corrects a wrong estimate, from the tenant's next request on. Wrong estimates put a tenant
//!   ahead of others, or behind, by at most the errors of as many requests as it has in progress at a time, and of one
//!   more ([`fairlane_core::bounds::corrected`]), for any order of corrections and cancellations. This includes
//!   estimates that were made without other demand: where tenants provide their own estimates, a tenant can gain at
//!   most that many times [`Limits::estimate`].
//!
//! The tenants share work as it is charged at admission, not time: holding a permit for longer costs nothing extra.
//!
//! # Cost
//!
//! A known tenant takes at most 64 bytes with a key of eight bytes; one with waiting requests takes 24 more, and each
//! request 40. All state is under one lock, held for some tens of nanoseconds per call: O(log n) in the number of
//! waiting tenants, amortised over cancelled requests and growing tables. No task is woken, and no waker is dropped,
//! under the lock.
#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]

mod admission;
mod error;
mod semaphore;
mod service;
mod tenants;
#[cfg(test)]
mod tests;
mod waiters;

/// The cost of a request: 1 to [`MAX_COST`] of the user's units (tokens, rows, milliseconds).
///
/// ```
/// use fairlane_tower::Cost;
///
/// assert_eq!(Cost::try_from(131_072u32)?.get(), 131_072);
/// let error = Cost::try_from(0u32).unwrap_err();
/// assert_eq!(error.to_string(), "a cost of 0 units: costs are 1 to 2147483648 units");
/// assert_eq!(Cost::clamped(5_000_000_000), Cost::MAX);
/// # Ok::<(), fairlane_tower::CostError>(())
/// ```
pub type Cost = fairlane_core::Cost;

pub use error::{AcquireError, BoxError, FairError};
pub use fairlane_core::cost::MAX_COST;
pub use fairlane_core::{CostError, Weight};
pub use semaphore::{Acquire, FairSemaphore, Limits, Permit};
pub use service::{Admit, FairLayer, FairService, HandOver, HoldPermit, ResponseFuture};
