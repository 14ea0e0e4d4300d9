//! Fair admission of requests by tenant: a [semaphore](FairSemaphore) for any asynchronous runtime, and
//! a [Tower layer](FairLayer) over it.
//!
//! A request says whose it is (its *tenant*, any `Hash + Eq` key) and what it will cost, in whatever the
//! server is short of: tokens, rows, milliseconds. At most [`Limits::permits`] requests are served at a
//! time; who waits is admitted in the order of WF2Q+ ([`fairlane_core::sched::Wf2qPlus`]): tenants get
//! work in proportion to their weights, whatever they ask for.
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
//! # What is fair
//!
//! * While two tenants wait, both are charged for work in proportion to their weights, to within two
//!   requests of each. A tenant's own requests are admitted in the order in which they came.
//! * A tenant that asks for little does not wait for what others have waiting: of each of them, two requests
//!   go before it at most, beside as much work by weight as its own request costs. With
//!   [`Limits::permits_per_tenant`] below [`Limits::permits`], a flooding tenant leaves permits free, and
//!   nobody waits for it at all.
//! * However many requests others have waiting, one of a tenant may wait: [`Limits::waiting`].
//! * A request that goes away takes up nothing; one unit of cost, if it had been given a permit already. Was it
//!   the first of its tenant, then the tenant keeps its place: its next request is admitted no later than it
//!   would have been behind that one.
//! * A tenant that goes and comes back takes up where it was: what it was served ahead of others that
//!   wait stays to be worked off, and what it did not ask for is not saved up. Only a tenant that was
//!   forgotten starts anew: the one that was idle for longest, once there are [`Limits::tenants`]. What
//!   it can win is one request, and what corrections had left.
//! * Requests that are admitted at once are charged for like all others.
//! * An estimate that was wrong is put right by [`Permit::correct`], from the tenant's next request on.
//!   A tenant is ahead of others by that, or behind, by at most the errors of as many requests as it has
//!   under way at a time, and of one more ([`fairlane_core::bounds::corrected`]), whatever is corrected when,
//!   and goes away. That is as good for what was estimated while nobody else asked: where tenants say
//!   their estimates themselves, so many times [`Limits::estimate`] is what one can win by them.
//!
//! What is shared is work as it is charged at admission, not time: a permit that is held for long costs
//! what its request costs.
//!
//! # What it costs
//!
//! A tenant that is remembered takes 64 bytes at most with a key of eight; one with requests that wait 24
//! more, and each of them 40. All state is under one lock, held for some tens of nanoseconds a call: O(log n)
//! in the number of tenants that wait, amortised over requests that go away and tables that grow. Nobody is
//! woken, and no waker is dropped, under the lock.
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

/// What a request costs: 1 to [`MAX_COST`] of the user's units (tokens, rows, milliseconds).
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
