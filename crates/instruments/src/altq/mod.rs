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

pub(super) use allocation::Allocation;
pub(super) use filters::Filters;
pub(super) use guarantee::Guarantee;
pub(super) use overhead::Overhead;
pub(super) use sharing::Sharing;
