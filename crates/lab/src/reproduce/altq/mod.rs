//! The experiments of the ALTQ paper (Cho, 1998), Section 4: real TCP through the daemon, as a
//! bump in the wire between network namespaces.

mod allocation;
mod bed;
mod filters;
mod guarantee;
mod overhead;
mod sharing;
mod timer;
mod trace;

pub use allocation::Allocation;
pub use filters::Filters;
pub use guarantee::Guarantee;
pub use overhead::Overhead;
pub use sharing::Sharing;
