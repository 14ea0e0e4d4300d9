//! Inputs from files for the simulated link of [`fairlane_sim`], and reports of the results: the packets of a capture
//! or of a list of arrivals ([`replay`]), or the sources of a [`scenario`].
//!
//! It is separate from the simulator, which needs neither site files nor captures: a program that simulates its own
//! queue need not compile this.
#![forbid(unsafe_code)]

mod digest_map;
mod ledger;
mod links;
pub mod replay;
pub mod scenario;

pub use links::{choose_link, other_side};
